"""The differences between zarr versions, and the private names of zarr that this package needs.

Each entry says which version of zarr lets it go.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from zipfile import BadZipFile, ZipFile

import donfig  # type: ignore[import-untyped]
import zarr
from zarr import dtype, errors, storage
from zarr.buffer import cpu

# Private, up to 3.4.2: what zarr's pipelines are told of a chunk.
from zarr.core.array_spec import ArrayConfig
from zarr.core.array_spec import ArraySpec as ArraySpec

# Private, up to 3.4.2: the bases by which zarr knows that a data type needs a byte order, and that
# it has an item size (for Blosc).
from zarr.core.dtype.common import HasEndianness as HasEndianness
from zarr.core.dtype.common import HasItemSize as HasItemSize

# Private, up to 3.4.2: how zarr runs the coroutines of a store, on the loop of its connections.
from zarr.core.sync import sync as sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    # Private, for annotations alone: up to 3.4.2 no public module of zarr has these names.
    # Public, but from zarr 3.3 on.
    from zarr.abc.codec import Codec, CodecPipeline
    from zarr.abc.store import Store
    from zarr.abc.store import SyncByteGetter as SyncByteGetter
    from zarr.codecs import BytesCodec, ShardingCodec
    from zarr.core.codec_pipeline import BatchedCodecPipeline as BatchedCodecPipeline
    from zarr.core.dtype.wrapper import TBaseDType as TBaseDType
    from zarr.core.dtype.wrapper import TBaseScalar as TBaseScalar
    from zarr.core.indexing import SelectorTuple as SelectorTuple
    from zarr.core.metadata import ArrayMetadata as ArrayMetadata
    from zarr.core.metadata.v3 import ArrayV3Metadata as ArrayV3Metadata
    from zarr.core.metadata.v3 import ChunkGridMetadata as ChunkGridMetadata
    from zarr.storage import StorePath, WrapperStore, ZipStore

    from zarr_bytes.layout.elements import Endian
    from zarr_bytes.layout.write_order import WriteOrder


# Public in zarr.errors from 3.3, and in zarr.dtype, which warns about it from 3.3, before.
# Goes when zarr 3.3 is required.
_HAS_ERROR: Final = hasattr(errors, "DataTypeValidationError")
DataTypeValidationError = (errors if _HAS_ERROR else dtype).DataTypeValidationError


def own_configuration() -> Any | None:
    """A configuration beside zarr's, of the same files and environment; None if zarr's will do.

    zarr's takes settings of other packages up to 3.4.2. A typed one (zarr-python pull request 4101)
    raises for their names, or ignores them.
    """
    return None if _takes_names_of_others(zarr.config) else donfig.Config("zarr")


def _takes_names_of_others(config: Any) -> bool:
    if (type(config).get, type(config).set) == (donfig.Config.get, donfig.Config.set):
        return True  # up to 3.4.2, where nothing is tried
    name = "zarr_bytes.partial_reads"
    try:
        value = config.get(name, True)  # the value that it has, so that nothing changes
        with config.set({name: value}):
            return bool(config.get(name, None) == value)
    except Exception:  # noqa: BLE001 -- whatever it raises for a name that it does not know
        return False


def defaults_of_zarr() -> list[Mapping[str, Any]]:
    """The defaults of zarr's configuration, nested by name; none where it does not show them."""
    # A list of mappings up to 3.4.2, and one mapping in a typed configuration.
    found = getattr(zarr.config, "defaults", None)
    listed = found if isinstance(found, Sequence) else [found]
    return [defaults for defaults in listed if isinstance(defaults, Mapping)]


def default_of_zarr(name: str) -> Any:
    """The default of a setting of zarr, such as ``codecs.bytes``; None where it is not known."""
    section, _, key = name.partition(".")
    for defaults in defaults_of_zarr():
        with suppress(AttributeError, LookupError, TypeError):
            return defaults[section][key]
    return None


def _pipeline(name: str) -> type[CodecPipeline] | None:
    # Private, up to 3.4.2: where zarr's own pipelines are.
    try:
        return cast("type[CodecPipeline]", getattr(import_module("zarr.core.codec_pipeline"), name))
    except (ImportError, AttributeError):
        return None


if not TYPE_CHECKING:
    # This package's pipeline is a subclass of it. Goes when zarr has a public one.
    BatchedCodecPipeline = _pipeline("BatchedCodecPipeline")
    if BatchedCodecPipeline is None:  # the class that zarr's defaults name, whatever its name is
        _path = default_of_zarr("codec_pipeline.path")
        if _path is None:
            raise ImportError(
                f"zarr {zarr.__version__} has no zarr.core.codec_pipeline.BatchedCodecPipeline, and"
                " names no other pipeline as its default: a newer zarr-bytes may know it"
            )
        _module, _, _name = _path.rpartition(".")
        BatchedCodecPipeline = getattr(import_module(_module), _name)

_FIELDS: Final = ("array_array_codecs", "array_bytes_codec", "bytes_bytes_codecs", "batch_size")
_PARAMETERS: Final = {
    "from_codecs": ("codecs", "batch_size"),
    "evolve_from_array_spec": ("self", "array_spec"),
    "read": ("self", "batch_info", "out", "drop_axes"),
    "write": ("self", "batch_info", "value", "drop_axes"),
}


def unknown_part_of_pipeline(pipeline: type) -> str | None:
    """First difference of a pipeline of zarr from the one that this package expects, in words."""
    # Goes when zarr has a public pipeline to derive from.
    found = tuple(field.name for field in fields(pipeline)) if is_dataclass(pipeline) else ()
    if found != _FIELDS:
        return f"its fields are {', '.join(found) or 'none'}"
    for name, parameters in _PARAMETERS.items():
        method = getattr(pipeline, name, None)
        if method is None:
            return f"it has no `{name}`"
        signature = inspect.signature(method)
        if tuple(signature.parameters) != parameters:
            return f"its `{name}` takes {', '.join(signature.parameters)}"
        if name in ("read", "write") and not inspect.iscoroutinefunction(method):
            return f"its `{name}` is not awaited"
        # None up to 3.1.
        if name == "read" and signature.return_annotation not in ("tuple[GetResult, ...]", "None"):
            return f"its `read` returns {signature.return_annotation}"
    return None


PIPELINES: Final[dict[str, type[CodecPipeline]]] = {
    "batched": BatchedCodecPipeline,
    # From 3.3 on.
    **({} if (fused := _pipeline("FusedCodecPipeline")) is None else {"fused": fused}),
}
"""The pipelines of zarr itself, by the value of the setting ``zarr_bytes.other_chains``."""


class Indexer(Protocol):
    """zarr's division of a selection.

    For each chunk its coordinates, the selection of it, the place of that in the result, and
    whether all of the chunk that is within the array is selected.
    """

    shape: tuple[int, ...]
    drop_axes: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], SelectorTuple, SelectorTuple, bool]]: ...


class _DividedError(Exception):
    """A selection is divided, and not read."""

    def __init__(self, indexer: Indexer, fields: object) -> None:
        super().__init__(indexer)
        self.indexer, self.fields = indexer, fields


class _Divided(zarr.AsyncArray[Any]):
    # Private, up to 3.4.2: what every selection of an array becomes before it is read.
    def _get_selection(self, indexer: Indexer, *, fields: object = None, **_: object) -> Any:
        raise _DividedError(indexer, fields)


class _UnreadableStore:
    """In the place of a store: each use of it is an error, and is noted."""

    is_used = False

    def __getattr__(self, name: str) -> Any:
        self.is_used = True
        raise RuntimeError(f"the selection is divided, and not read: `{name}` of its store")


# Private, up to 3.4.2: the attributes of an array that say how a selection is divided. Any other,
# such as an engine (zarr-python pull request 4064) or a pipeline of another package, may read.
_DIVIDING: Final = ("metadata", "config", "_chunk_grid")


def indexer_of(indexed: Any, selection: Any) -> tuple[Indexer, object]:
    """Zarr's division of ``indexed[selection]``, and the fields in it; nothing is read.

    NotImplementedError where this zarr divides selections in another way.
    """
    array = getattr(indexed, "array", indexed)  # of its `oindex`, `vindex` or `blocks`
    original = vars(array.async_array)
    store, divided = _UnreadableStore(), object.__new__(_Divided)
    vars(divided).update({name: original[name] for name in _DIVIDING if name in original})
    vars(divided)["store_path"] = storage.StorePath(cast("Any", store), array.path)
    try:
        copy: Any = zarr.Array(divided)
        copy = copy if indexed is array else replace(indexed, array=copy)
    except Exception as error:  # a copy takes more, or is made in another way
        raise _not_divided() from error
    try:
        copy[selection]
    except _DividedError as found:
        if all(hasattr(found.indexer, name) for name in ("shape", "drop_axes", "__iter__")):
            return found.indexer, found.fields
    except Exception as error:
        if store.is_used or isinstance(error, AttributeError):
            raise _not_divided() from error
        raise  # the selection is not permitted
    raise _not_divided()


def _not_divided() -> NotImplementedError:
    return NotImplementedError(
        f"zarr {zarr.__version__} divides selections in a way not known here, and they cannot be"
        " explained: a newer zarr-bytes may know it"
    )


def axis_indexers_of(indexer: Indexer) -> list[Iterable[object]]:
    """The chunks along each axis, for a division that has axes: one of points has none."""
    # Private, up to 3.4.2.
    return list(getattr(indexer, "dim_indexers", ()))


def zip_directory(store: ZipStore) -> ZipFile | None:
    """The directory of a zip file, as of `ZipFile.getinfo`; None if there is no such file.

    A store that is not open yet stays so: from zarr 3.4.1 on, a store opens its file at the first
    use, also after it was unpickled.
    """
    # Private, up to 3.4.2: the open zip file.
    archive: ZipFile | None = getattr(store, "_zf", None)
    if archive is not None or store.path is None:
        return archive
    try:
        with ZipFile(store.path) as closed:
            return closed
    except (OSError, BadZipFile):  # the error of the store's own opening is the one to raise
        return None


# Whether zarr loads entry points in zarr.data_type by itself. Goes when zarr 3.4 is required.
LOADS_DATA_TYPES: Final = tuple(map(int, zarr.__version__.split(".")[:2])) >= (3, 4)


def wrapped_store(store: WrapperStore[Any]) -> Store:
    """The store within a wrapper of zarr."""
    # Private, up to 3.4.2.
    return cast("Store", store._store)


# Stores whose chunks are buffers of this process. ManagedMemoryStore is there from 3.2 on.
_MANAGED: Final[type] = getattr(storage, "ManagedMemoryStore", storage.MemoryStore)
MEMORY_STORES: Final = (storage.MemoryStore, _MANAGED)


def endian_of(codec: BytesCodec) -> Endian | None:
    """Byte order of a `bytes` codec: a member of an enum up to zarr 3.2, and a string after it."""
    return cast("Endian | None", getattr(codec.endian, "value", codec.endian))


def write_order_of(codec: ShardingCodec) -> WriteOrder:
    """Order in which a sharding codec stores inner chunks; zarr up to 3.2 has Morton order only."""
    return cast("WriteOrder", getattr(codec, "subchunk_write_order", "morton"))


HAS_STRUCT: Final = hasattr(dtype, "Struct")  # from 3.2 on


def chunk_spec_of(
    metadata: ArrayV3Metadata, shape: Iterable[int] | None = None
) -> ArraySpec | None:
    """Shape, data type and fill value of the chunks of an array; None if their shapes differ."""
    # None for a rectilinear grid, from 3.3 on.
    shape = getattr(metadata.chunk_grid, "chunk_shape", shape)
    if shape is None:
        return None
    return ArraySpec(
        shape=tuple(shape),
        dtype=metadata.data_type,
        fill_value=metadata.fill_value,
        config=ArrayConfig.from_dict({}),
        prototype=cpu.buffer_prototype,
    )


def chunk_spec_at(array: Any, chunk_coords: tuple[int, ...]) -> ArraySpec:
    """`chunk_spec_of` one chunk, of several shapes; private, up to 3.4.2."""
    return cast(
        "ArraySpec", chunk_spec_of(array.metadata, array._chunk_grid[chunk_coords].codec_shape)
    )


def refuses_shard(codec: Codec, spec: ArraySpec) -> bool:
    """Whether zarr refuses shards of this shape for a sharding codec, whatever is before it."""
    # zarr-python pull request 4198 proposes inner chunks that do not divide the shard.
    # Private, up to 3.4.2: the class of a regular grid, `RegularChunkGrid` up to 3.1.
    metadata, grids = import_module("zarr.core.metadata.v3"), import_module("zarr.core.chunk_grids")
    regular: Any = getattr(metadata, "RegularChunkGridMetadata", None)
    regular = regular or grids.RegularChunkGrid
    try:
        codec.validate(
            shape=spec.shape, dtype=spec.dtype, chunk_grid=regular(chunk_shape=spec.shape)
        )
    except ValueError:
        return True
    return False


def path_of_metadata_being_parsed() -> StorePath | str | None:
    """Place of the metadata document that zarr parses in this thread; None if unknown.

    A text of zarr where the store is not known.
    """
    # Private, up to 3.4.2: the names of the variables of zarr's functions that have the place. Goes
    # when zarr tells a data type which array it reads a fill value of.
    frame: FrameType | None = sys._getframe()
    key = ""
    text: str | None = None
    while frame is not None:
        names = frame.f_locals if frame.f_globals.get("__name__", "").startswith("zarr.") else {}
        is_path = frame.f_code.co_name == "from_dict" and isinstance(names.get("path"), str)
        if is_path and text is None:
            text = names["path"]  # from 3.4 on: the text of the store, and the path in it
        if "raw_metadata" in names:  # consolidated
            key = str(names.get("k"))
        if isinstance(place := names.get("store_path"), storage.StorePath):
            if text is None:
                return place / key
            store = str(place.store)
            if not text.startswith(store):
                return text
            return storage.StorePath(place.store, text.removeprefix(store).strip("/"))
        frame = frame.f_back
    return text


def is_parameter_of_codec() -> bool:
    """Whether the caller's caller is a codec of zarr: some read parameters as fill values."""
    # `scale_offset` and `cast_value` (zarr 3.3 and newer) permit what zarr takes, such as "0.5".
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("zarr.codecs.")
