"""What reads and writes the chunks of an array, and the reason if that is zarr itself."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.buffer import cpu
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import codec_name
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.result import class_path, in_digits
from zarr_bytes.commands.status import decided_by
from zarr_bytes.errors import in_words
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.layout.format import Stored
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import CLASSES, PIPELINE
from zarr_bytes.zarr_versions import endian_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr.abc.codec import Codec
    from zarr.abc.store import Store
    from zarr.storage import StorePath

_CODECS: Final = "codecs.bytes"
_PIPELINE: Final = "codec_pipeline.path"
_PARTIAL_WRITES: Final = "zarr_bytes.partial_writes"


class Backend(NamedTuple):
    """What reads or writes the chunks of an array: a part of zarr, or of this package."""

    name: str  # class of the pipeline, and of the codec where a pipeline of zarr calls it for parts
    stored: Stored | None  # None if zarr does it by itself
    is_pipeline: bool = False  # of this package; False for its codec alone
    in_place: bool = False  # whether a write is in place, where it can be
    nbytes_are_known: bool = False  # without reading a chunk or shard
    reason: str = ""  # why zarr does it by itself, and what to do
    reopened: str = ""  # what opening the array again with the current settings would change


def backend_of(array: zarr.Array[Any], *, is_write: bool) -> Backend:
    """What reads or writes the chunks of an array."""
    pipeline = array.async_array.codec_pipeline
    name = class_path(type(pipeline))
    if array.metadata.zarr_format != 3:
        reason = (
            "the array is of Zarr format 2, which zarr reads and writes by itself: write it as"
            " format 3, with compressors=None"
        )
        return Backend(name, None, reason=reason)
    chain = array.metadata.codecs
    codec = getattr(pipeline, "array_bytes_codec", None)
    stored: Stored | None = None
    # Buffers in other memory are left to zarr's pipeline, which calls the codec.
    is_pipeline = in_place = False
    if isinstance(pipeline, BatchedBytesPipeline) and not _has_device():
        stored, is_pipeline, in_place = pipeline.stored, True, pipeline.in_place
    elif len(chain) == 1 and isinstance(codec, BytesCodec) and not is_write:
        stored = Stored(endian_of(codec))
        name = f"{class_path(type(codec))} in {name}"
    why_not_bytes = _why_not_bytes(chain, "chunks")
    is_plain = not (why_not_bytes or isinstance(chain[-1], ShardingCodec))
    return Backend(
        name,
        stored,
        is_pipeline=is_pipeline,
        in_place=in_place,
        nbytes_are_known=stored is not None or is_plain,
        reason="" if stored is not None else why_not_bytes or _why_zarr(name, is_write=is_write),
        reopened=_reopened(array),
    )


def _has_device() -> bool:
    """Whether buffers are in other memory than NumPy's."""
    return not issubclass(get_buffer_class(), cpu.Buffer)


def _why_zarr(pipeline: str, *, is_write: bool) -> str:
    """The first reason why zarr reads and writes chunks of plain bytes by itself."""
    if _has_device():
        buffers = class_path(get_buffer_class())
        return f"buffers are {buffers}, for which zarr reads chunks of these codecs by itself"
    chosen = zarr.config.get(_CODECS, None)
    if chosen != CLASSES["bytes"]:
        return (
            f"zarr's configuration has the class {chosen} for the codec bytes"
            f" ({decided_by(_CODECS)}): `zarr-bytes status` says how to choose zarr-bytes"
        )
    if zarr.config.get(_PIPELINE) != PIPELINE:
        does = "replaces chunks" if is_write else "reads chunks of these codecs by itself"
        return (
            f"the pipeline is {pipeline} ({decided_by(_PIPELINE)}), which {does}: set {_PIPELINE}"
            f" to {PIPELINE}, and open the array again"
        )
    return "the array was opened before zarr-bytes was chosen: open it again"


def _why_not_bytes(chain: Sequence[Codec], what: str) -> str:
    """The first reason why chunks, or inner chunks, are not plain bytes; `what` names them."""
    *before, last = [codec for codec in chain if not isinstance(codec, BytesBytesCodec)]
    compressors = [codec for codec in chain if isinstance(codec, BytesBytesCodec)]
    if compressors:
        return (
            f"{what} go through the codec {codec_name(compressors[0])}, so that no element has a"
            " place of its own in the file: write the array with compressors=None to read parts"
        )
    others = [codec for codec in before if type(codec) is not TransposeCodec]
    if others:
        return (
            f"{what} go through the codec {codec_name(others[0])}, which zarr decodes by itself:"
            " write the array with filters=None to read parts"
        )
    if isinstance(last, ShardingCodec):
        if what != "chunks":
            return "there are shards in its shards, which zarr reads by itself"
        inside = _why_not_bytes(last.codecs, "inner chunks of its shards")
        names = [codec_name(codec) for codec in last.index_codecs]
        if inside or names in (["bytes"], ["bytes", "crc32c"]):
            return inside
        return (
            f"the index of its shards is stored by {', '.join(names)}, and zarr-bytes reads one by"
            " bytes, with or without crc32c"
        )
    if not isinstance(last, ZarrBytesCodec):
        return (
            f"{what} are stored by the codec {codec_name(last)}, in which elements have no fixed"
            " size or place"
        )
    return ""


def _reopened(array: zarr.Array[Any]) -> str:
    """What opening an array again with the current settings would change."""
    metadata: Any = array.metadata
    try:
        with warnings.catch_warnings(action="ignore"):  # given when it was opened
            metadata = type(metadata).from_dict(metadata.to_dict())
            again = zarr.AsyncArray(metadata=metadata, store_path=array.store_path)
    except (KeyError, TypeError, ValueError) as error:  # such as of a class that is not there
        return f"opened again, the array would not open: {in_words(error)}"
    (is_own, in_place), (would_be_own, would_be_in_place) = map(_acting, (array.async_array, again))
    if is_own != would_be_own:
        by = "zarr-bytes" if would_be_own else "zarr itself"
        return f"opened again, the array would be read and written by {by}"
    if in_place == would_be_in_place:
        return ""
    how = "would be written in place" if would_be_in_place else "would have its chunks replaced"
    return (
        f"{_PARTIAL_WRITES} is {would_be_in_place} now ({decided_by(_PARTIAL_WRITES)}):"
        f" opened again, the array {how}"
    )


def _acting(array: zarr.AsyncArray[Any]) -> tuple[bool, bool]:
    """Whether this package reads the chunks of an array, and writes them in place."""
    pipeline, chain = array.codec_pipeline, array.metadata.codecs
    if isinstance(pipeline, BatchedBytesPipeline):
        return True, pipeline.in_place
    return len(chain) == 1 and isinstance(chain[0], BytesCodec), False


def why_whole(
    key: StorePath, nbytes: int, *, selected: int, fetched: int, total: int, is_whole: bool
) -> str:
    """The first reason why more than the selected bytes is fetched, or an empty text.

    `key` is that of a chunk, which has `nbytes`; `selected` are with the indexes of shards, `total`
    those of all chunks, and `is_whole` says whether one is fetched whole.
    """
    driver = driver_of(key.store)
    if reason := driver.why_whole(key.path):
        return reason
    if selected >= fetched:
        is_all = fetched >= total
        return "the selection reaches from the first element of each chunk to the last" * is_all
    cost = driver.cost()
    if cost is None:
        name = "zarr_bytes.partial_reads"
        return f"{name} is False ({decided_by(name)}): set it to True to read parts"
    gap = f"{in_digits(cost.gap)} bytes (zarr_bytes.gap.{driver.where})"
    if not is_whole:
        return f"gaps of up to {gap} are read, to save requests"
    if nbytes <= cost.gap:
        return f"a chunk has {in_digits(nbytes)} bytes, no more than the gap of {gap}"
    return (
        "the elements are in so many places that whole chunks cost less: each range costs as much"
        f" as a gap of {gap}"
    )


def why_replaced(backend: Backend, store: Store) -> str:
    """The first reason why no write replaces less than a chunk, or an empty text."""
    if (reason := driver_of(store).why_not_in_place()) or backend.in_place:
        return reason
    return (
        f"{_PARTIAL_WRITES} was False when the array was opened: set it to True (for a command,"
        " ZARR_ZARR_BYTES__PARTIAL_WRITES=True in the environment), and open the array again"
    )
