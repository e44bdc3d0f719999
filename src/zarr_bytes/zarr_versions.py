"""The differences between zarr versions, and the private names of zarr that this package needs.

Each entry says from which version of zarr it isn't needed. "Private, up to 3.4.2" means that no
version up to 3.4.2 has a public name for it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, TypeGuard, cast
from zipfile import BadZipFile, ZipFile

import donfig  # type: ignore[import-untyped]
import numcodecs  # type: ignore[import-untyped]  # which zarr needs, and imports too
import zarr
from numcodecs.registry import codec_registry  # type: ignore[import-untyped]
from zarr import codecs, dtype, errors, storage
from zarr.abc import store as abc_store
from zarr.buffer import cpu

# Private, up to 3.4.2: the description of a chunk for zarr's pipelines.
from zarr.core.array_spec import ArrayConfig
from zarr.core.array_spec import ArraySpec as ArraySpec

# Private, up to 3.4.2: the base classes of data types with a byte order, and of data types with an
# item size (for Blosc).
from zarr.core.dtype.common import HasEndianness as HasEndianness
from zarr.core.dtype.common import HasItemSize as HasItemSize

# Private, up to 3.4.2: runs the coroutines of a store on the event loop of its connections.
from zarr.core.sync import sync as sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    # Private, for annotations alone: up to 3.4.2 no public module of zarr has these names.
    # Public, but from zarr 3.3 on.
    import numpy as np
    from zarr.abc.buffer import NDBuffer
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

    from zarr_bytes.layout.elements import EndiannessStr
    from zarr_bytes.layout.write_order import WriteOrder


_ZARR_VERSION: Final = tuple(map(int, zarr.__version__.split(".")[:2]))

# In zarr.errors from 3.3 on. Before that in zarr.dtype, which warns about the name from 3.3 on.
# Goes when zarr 3.3 is required.
_IS_IN_ERRORS: Final = hasattr(errors, "DataTypeValidationError")
DataTypeValidationError = (errors if _IS_IN_ERRORS else dtype).DataTypeValidationError


def new_configuration_unless_zarr_takes_settings() -> donfig.Config | None:
    """A new configuration for the settings of this package; None if zarr's own accepts them.

    The new configuration reads the files and environment variables of zarr's. Up to 3.4.2, zarr's
    configuration accepts settings of other packages. A typed configuration (zarr-python pull
    request 4101) raises an error for such names, or ignores them.
    """
    return None if _takes_settings_of_other_packages(zarr.config) else donfig.Config("zarr")


def _takes_settings_of_other_packages(config: Any) -> bool:
    """Whether this configuration keeps settings of this package.

    A configuration of an unknown class is tried: a setting is set to its own value for a moment.
    """
    if (type(config).get, type(config).set) == (donfig.Config.get, donfig.Config.set):
        return True  # up to 3.4.2, where nothing is tried
    name = "zarr_bytes.partial_reads"
    try:
        value = config.get(name, True)  # the value that it has, so that nothing changes
        with config.set({name: value}):
            return bool(config.get(name, None) == value)
    except Exception:  # noqa: BLE001 -- any error for an unknown name
        return False


def defaults_of_zarr() -> list[Mapping[str, Any]]:
    """The defaults of zarr's configuration, nested by name; empty if it doesn't show them."""
    # A list of mappings up to 3.4.2, and one mapping in a typed configuration.
    attribute = getattr(zarr.config, "defaults", None)
    candidates = attribute if isinstance(attribute, Sequence) else [attribute]
    return [defaults for defaults in candidates if isinstance(defaults, Mapping)]


def zarr_default_or_none(setting_name: str) -> Any:
    """The default of a setting of zarr, such as ``codecs.bytes``; None if it isn't known."""
    section, _, key = setting_name.partition(".")
    for defaults in defaults_of_zarr():
        with suppress(AttributeError, LookupError, TypeError):
            return defaults[section][key]
    return None


def _zarr_pipeline_class_or_none(class_name: str) -> type[CodecPipeline] | None:
    """A pipeline of zarr itself, by the name of its class; None if this zarr doesn't have it."""
    # Private, up to 3.4.2: the module of zarr's pipelines.
    try:
        return cast(
            "type[CodecPipeline]", getattr(import_module("zarr.core.codec_pipeline"), class_name)
        )
    except (ImportError, AttributeError):
        return None


if not TYPE_CHECKING:
    # This package's pipeline is a subclass of it. Goes when zarr has a public one.
    BatchedCodecPipeline = _zarr_pipeline_class_or_none("BatchedCodecPipeline")
    if BatchedCodecPipeline is None:  # the class in zarr's defaults, under any name
        _path = zarr_default_or_none("codec_pipeline.path")
        if _path is None:
            raise ImportError(
                f"zarr {zarr.__version__} has no zarr.core.codec_pipeline.BatchedCodecPipeline, and"
                " names no other pipeline as its default: a newer zarr-bytes may know it"
            )
        _module, _, _name = _path.rpartition(".")
        BatchedCodecPipeline = getattr(import_module(_module), _name)

# The expected fields of zarr's pipeline, and the expected parameters of its methods.
_PIPELINE_FIELDS: Final = (
    "array_array_codecs",
    "array_bytes_codec",
    "bytes_bytes_codecs",
    "batch_size",
)
_METHOD_PARAMETERS: Final = {
    "from_codecs": ("codecs", "batch_size"),
    "evolve_from_array_spec": ("self", "array_spec"),
    "read": ("self", "batch_info", "out", "drop_axes"),
    "write": ("self", "batch_info", "value", "drop_axes"),
}


def why_pipeline_is_unknown(pipeline: type) -> str | None:
    """The first difference of zarr's pipeline from the expected one; None if there is none.

    A clause for a message.
    """
    # Goes when zarr has a public pipeline to derive from.
    names = tuple(field.name for field in fields(pipeline)) if is_dataclass(pipeline) else ()
    if names != _PIPELINE_FIELDS:
        return f"its fields are {', '.join(names) or 'none'}"
    for name, parameters in _METHOD_PARAMETERS.items():
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


PIPELINES: Final[dict[str, type[CodecPipeline]]] = {"batched": BatchedCodecPipeline}
if (_fused := _zarr_pipeline_class_or_none("FusedCodecPipeline")) is not None:  # from 3.3 on
    PIPELINES["fused"] = _fused
"""The pipelines of zarr itself, by the value of the setting ``zarr_bytes.other_chains``."""


class Indexer(Protocol):
    """zarr's division of a selection of an array by chunk.

    Iteration gives the coordinates, the chunk selection and the out selection of each chunk, and
    whether the selection is a complete chunk.
    """

    shape: tuple[int, ...]
    drop_axes: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], SelectorTuple, SelectorTuple, bool]]: ...


class DividedSelection(NamedTuple):
    """A selection of an array as zarr divides it."""

    indexer: Indexer
    fields: object  # the names of fields in the selection; None without any


class _DividedInsteadOfReadError(Exception):
    """Raised with the indexer instead of a read."""

    def __init__(self, indexer: Indexer, fields: object) -> None:
        super().__init__(indexer)
        self.indexer = indexer
        self.fields = fields


class _ArrayThatDividesOnly(zarr.AsyncArray[Any]):
    """An array whose reads raise a `_DividedInsteadOfReadError`."""

    # Private, up to 3.4.2: every selection of an array is read with this method.
    def _get_selection(self, indexer: Indexer, *, fields: object = None, **_: object) -> NoReturn:
        raise _DividedInsteadOfReadError(indexer, fields)


class _UnreadableStore:
    """A substitute for a store: each use of it raises a RuntimeError, and sets `is_used`."""

    is_used = False

    def __getattr__(self, name: str) -> Any:
        self.is_used = True
        raise RuntimeError(f"the selection is divided, and not read: `{name}` of its store")


# Private, up to 3.4.2: the attributes of an array that determine the division of a selection. Other
# attributes, such as an engine (zarr-python pull request 4064) or a pipeline of another package,
# may read.
_ATTRIBUTES_FOR_DIVISION: Final = ("metadata", "config", "_chunk_grid")


def divide_selection_without_reading(array_or_accessor: Any, selection: Any) -> DividedSelection:
    """Zarr's division by chunk of ``array_or_accessor[selection]``; nothing is read.

    An accessor is an array's `oindex`, `vindex` or `blocks`. The selection is applied to a copy of
    the array without a store, and stops where zarr would begin to read.

    Raises
    ------
    IndexError, and others of zarr
        If the selection doesn't fit the array.
    NotImplementedError
        If this zarr divides selections in a way that isn't known here.
    """
    array = getattr(array_or_accessor, "array", array_or_accessor)
    attributes = vars(array.async_array)
    store = _UnreadableStore()
    # zarr's class is frozen, and the parameters of its constructor depend on the version.
    async_copy = object.__new__(_ArrayThatDividesOnly)
    for name in _ATTRIBUTES_FOR_DIVISION:
        if name in attributes:
            object.__setattr__(async_copy, name, attributes[name])
    store_path = storage.StorePath(cast("Any", store), array.path)
    object.__setattr__(async_copy, "store_path", store_path)
    try:
        copy: Any = zarr.Array(async_copy)
        if array_or_accessor is not array:
            copy = replace(array_or_accessor, array=copy)
    except Exception as error:  # a copy needs more attributes, or is made in another way
        raise _unknown_selection_division_error() from error
    try:
        copy[selection]
    except _DividedInsteadOfReadError as divided:
        indexer = divided.indexer
        if all(hasattr(indexer, name) for name in ("shape", "drop_axes", "__iter__")):
            return DividedSelection(indexer, divided.fields)
    except Exception as error:
        if store.is_used or isinstance(error, AttributeError):
            raise _unknown_selection_division_error() from error
        raise  # the selection is not permitted
    raise _unknown_selection_division_error()


def _unknown_selection_division_error() -> NotImplementedError:
    """Error for a zarr that divides selections in a way that isn't known here."""
    return NotImplementedError(
        f"zarr {zarr.__version__} divides selections in a way that is not known here, so they"
        " cannot be explained: a newer zarr-bytes may know it"
    )


def axis_indexers_or_empty_if_points(indexer: Indexer) -> list[Iterable[object]]:
    """The chunks along each axis, for a division that has axes; empty for a division of points."""
    # Private, up to 3.4.2.
    return list(getattr(indexer, "dim_indexers", ()))


def zip_file_for_getinfo_or_none(store: ZipStore) -> ZipFile | None:
    """The list of members of a zip file, for `getinfo` alone; None if the file can't be opened.

    The `ZipFile` may be closed, so members can't be read through it. A store that isn't open yet
    isn't opened: from zarr 3.4.1 on, a store opens its file at the first use, also after
    unpickling.
    """
    # Private, up to 3.4.2: the open zip file.
    archive: ZipFile | None = getattr(store, "_zf", None)
    if archive is not None or store.path is None:
        return archive
    try:
        with ZipFile(store.path) as closed:
            return closed
    except (OSError, BadZipFile):  # the store raises its own error when it opens the file
        return None


# Goes when zarr 3.4 is required.
LOADS_DATA_TYPES: Final = _ZARR_VERSION >= (3, 4)
"""Whether zarr loads data types from entry points, without an import of this package."""


def overrides_get_many(store: Any) -> bool:
    """Whether the class of a store has its own `get_many`, not that of zarr's `Store`.

    Up to 3.4.2, `Store` has no `get_many`: zarr-python's pull request 4112 adds one.
    """
    own = getattr(type(store), "get_many", None)
    return own is not None and own is not getattr(abc_store.Store, "get_many", None)


def wrapped_store(store: WrapperStore[Any]) -> Store:
    """The store in a wrapper store of zarr."""
    # Private, up to 3.4.2.
    return cast("Store", store._store)


# From 3.2 on.
_MANAGED_MEMORY_STORE: Final[type] = getattr(storage, "ManagedMemoryStore", storage.MemoryStore)
MEMORY_STORES: Final = (storage.MemoryStore, _MANAGED_MEMORY_STORE)
"""The classes of stores whose chunks are buffers of this process."""


def endian_of(codec: BytesCodec) -> EndiannessStr | None:
    """Byte order of a `bytes` codec, of zarr or of this package; None if it has none."""
    # A member of an enum up to zarr 3.2, then a string.
    return cast("EndiannessStr | None", getattr(codec.endian, "value", codec.endian))


class Format2Codec(Protocol):
    """The codec that zarr uses for arrays of format 2, which have no codecs in their metadata."""

    filters: Sequence[Any] | None  # from numcodecs
    compressor: Any  # from numcodecs, or None


def _format_2_codec_class_or_none() -> type[Any] | None:
    """The class of the codec that zarr uses for arrays of format 2; None if it isn't known."""
    # Private, up to 3.4.2. Goes when zarr has a public one.
    try:
        return cast("type[Any]", import_module("zarr.codecs._v2").V2Codec)
    except (ImportError, AttributeError):
        return None


_FORMAT_2_CODEC: Final = _format_2_codec_class_or_none()


def is_format_2_codec(codec: object) -> TypeGuard[Format2Codec]:
    """Whether a codec is the codec that zarr uses for arrays of format 2."""
    return type(codec) is _FORMAT_2_CODEC


def codecs_or_empty_if_unknown(metadata: ArrayMetadata) -> tuple[Codec, ...]:
    """The codecs that zarr gives the pipeline of an array; empty if unknown, in format 2."""
    if metadata.zarr_format == 3:
        return tuple(metadata.codecs)
    if _FORMAT_2_CODEC is None:
        return ()
    return (_FORMAT_2_CODEC(filters=metadata.filters, compressor=metadata.compressor),)


# From zarr 3.3 on, codecs can be called without a coroutine.
_HAS_SYNC_CODECS: Final = _ZARR_VERSION >= (3, 3)

# Exact classes: a derived class may decode differently. Classes of the module `numcodecs.zarr3` are
# these classes, or older ones that only have coroutines. `delta` isn't elementwise, because it
# needs the preceding elements; nor is `packbits`, which stores eight elements in one byte.
_ELEMENTWISE_CODECS: Final[frozenset[type]] = frozenset(
    [
        getattr(codecs, name)
        for name in (
            "AsType",
            "BitRound",
            "CastValue",
            "FixedScaleOffset",
            "Quantize",
            "ScaleOffset",
        )
        if _HAS_SYNC_CODECS
    ]
)


class _FilterTypeNames(NamedTuple):
    """The attributes of a filter of numcodecs that name its data types."""

    stored: str
    decoded: str


# None for a filter that takes elements of any type, and keeps their size.
_ELEMENTWISE_FILTERS: Final[dict[type, _FilterTypeNames | None]] = {
    numcodecs.AsType: _FilterTypeNames("encode_dtype", "decode_dtype"),
    numcodecs.BitRound: None,
    numcodecs.FixedScaleOffset: _FilterTypeNames("astype", "dtype"),
    numcodecs.Quantize: _FilterTypeNames("astype", "dtype"),
}


def is_elementwise_codec(codec: object) -> bool:
    """Whether a codec of format 3 decodes each element by itself, and without a coroutine."""
    if type(codec) not in _ELEMENTWISE_CODECS:
        return False
    # Codecs of numcodecs call the class that is registered there under their name.
    configuration = getattr(codec, "codec_config", None)
    return configuration is None or codec_registry.get(configuration["id"]) in _ELEMENTWISE_FILTERS


def is_elementwise_filter(codec: object) -> bool:
    """Whether a filter of format 2 decodes each element by itself."""
    return _HAS_SYNC_CODECS and type(codec) in _ELEMENTWISE_FILTERS


class FilterDTypes(NamedTuple):
    """The data types of a filter of format 2, with their byte order."""

    stored: np.dtype[Any]
    decoded: np.dtype[Any]


def fixed_dtypes_of_elementwise_filter(elementwise_filter: object) -> FilterDTypes | None:
    """The data types of a filter that `is_elementwise_filter`; None if it accepts any data type.

    In the latter case, elements keep their size and byte order.
    """
    names = _ELEMENTWISE_FILTERS[type(elementwise_filter)]
    if names is None:
        return None
    return FilterDTypes(
        getattr(elementwise_filter, names.stored), getattr(elementwise_filter, names.decoded)
    )


def is_bit_round(elementwise_filter: object) -> bool:
    """Whether a filter of format 2 is numcodecs' `bitround`."""
    return type(elementwise_filter) is numcodecs.BitRound


def decode_by_codec(codec: Codec, elements: NDBuffer, spec: ArraySpec) -> NDBuffer:
    """Elements decoded by a codec that `is_elementwise_codec`, in the calling thread.

    `spec` is the spec that the codec encodes, with the shape of `elements`.
    """
    # Private, up to 3.4.2, as in `encode_by_codec`: the method of a codec that isn't a coroutine.
    return cast("NDBuffer", cast("Any", codec)._decode_sync(elements, spec))


def encode_by_codec(codec: Codec, elements: NDBuffer, spec: ArraySpec) -> NDBuffer:
    """Elements encoded by a codec that `is_elementwise_codec`, in the calling thread.

    `spec` is the spec of the elements, with their shape.
    """
    return cast("NDBuffer", cast("Any", codec)._encode_sync(elements, spec))


def write_order_of(codec: ShardingCodec) -> WriteOrder:
    """Order in which a sharding codec stores inner chunks; it may be unknown to this package."""
    # Up to 3.2, zarr only has Morton order.
    return cast("WriteOrder", getattr(codec, "subchunk_write_order", "morton"))


HAS_STRUCT: Final = hasattr(dtype, "Struct")  # from 3.2 on
"""Whether zarr has the data type `struct`."""


def chunk_shape_if_regular(metadata: ArrayMetadata) -> tuple[int, ...] | None:
    """Shape of all chunks of an array, or of its shards; None if chunks have several shapes."""
    if metadata.zarr_format == 2:
        return metadata.chunks
    # A rectilinear grid, from 3.3 on, has no `chunk_shape`.
    return getattr(metadata.chunk_grid, "chunk_shape", None)


def chunk_spec_if_regular(metadata: ArrayMetadata) -> ArraySpec | None:
    """Chunk spec of all chunks of an array; None if chunks have several shapes."""
    shape = chunk_shape_if_regular(metadata)
    return None if shape is None else chunk_spec_of_shape(metadata, shape)


def chunk_spec_in_rectilinear_grid(array: Any, chunk_coords: tuple[int, ...]) -> ArraySpec:
    """Chunk spec of one chunk of an array whose chunks have several shapes."""
    # Private, up to 3.4.2: the grid that knows the shape of each chunk.
    return chunk_spec_of_shape(array.metadata, array._chunk_grid[chunk_coords].codec_shape)


def chunk_spec_of_shape(metadata: ArrayMetadata, shape: Iterable[int]) -> ArraySpec:
    """Chunk spec of a chunk of this shape, with buffers in main memory."""
    dtype = metadata.dtype if metadata.zarr_format == 2 else metadata.data_type
    # In format 3, the order of elements only concerns memory.
    config: Any = {"order": metadata.order} if metadata.zarr_format == 2 else {}
    return ArraySpec(
        shape=tuple(shape),
        dtype=dtype,
        fill_value=metadata.fill_value,
        config=ArrayConfig.from_dict(config),
        prototype=cpu.buffer_prototype,
    )


def zarr_refuses_shard(sharding_codec: Codec, shard_spec: ArraySpec) -> bool:
    """Whether zarr refuses shards with this chunk spec, as it is after the codecs before them."""
    # zarr-python pull request 4198 proposes inner chunks that don't divide the shard. Private, up
    # to 3.4.2: the class of a regular grid, `RegularChunkGrid` up to 3.1.
    metadata_module = import_module("zarr.core.metadata.v3")
    regular_grid: Any = getattr(metadata_module, "RegularChunkGridMetadata", None)
    if regular_grid is None:
        regular_grid = import_module("zarr.core.chunk_grids").RegularChunkGrid
    try:
        chunk_grid = regular_grid(chunk_shape=shard_spec.shape)
        sharding_codec.validate(
            shape=shard_spec.shape, dtype=shard_spec.dtype, chunk_grid=chunk_grid
        )
    except ValueError:
        return True
    return False


def find_path_of_node_being_parsed() -> StorePath | str | None:
    """Path of the array or group whose metadata document zarr parses in this thread, or None.

    For messages. The path is found in the frames of the callers. It is a `StorePath`, or a text of
    zarr if the store isn't known. None if zarr parses no document, or doesn't know its path.
    """
    # Private, up to 3.4.2: the variables of zarr's functions that have the path. Goes when zarr
    # passes the array of a fill value to the data type.
    frame: FrameType | None = sys._getframe()
    key_in_group = ""
    text: str | None = None
    while frame is not None:
        is_of_zarr = frame.f_globals.get("__name__", "").startswith("zarr.")
        variables = frame.f_locals if is_of_zarr else {}
        has_path = frame.f_code.co_name == "from_dict" and isinstance(variables.get("path"), str)
        if has_path and text is None:
            text = variables["path"]  # from 3.4 on: the text of the store, and the path in it
        if "raw_metadata" in variables:  # consolidated
            key_in_group = str(variables.get("k"))
        if isinstance(store_path := variables.get("store_path"), storage.StorePath):
            if text is None:
                return store_path / key_in_group
            store_text = str(store_path.store)
            if not text.startswith(store_text):
                return text
            path = text.removeprefix(store_text).strip("/")
            return storage.StorePath(store_path.store, path)
        frame = frame.f_back
    return text


def is_caller_called_by_zarr_codec() -> bool:
    """Whether the caller of this function was called by a codec of zarr.

    Some codecs read their parameters as fill values of a data type.
    """
    # `scale_offset` and `cast_value` (zarr 3.3 and newer) permit values that zarr reads, such as
    # "0.5".
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("zarr.codecs.")
