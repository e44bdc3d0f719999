"""The codec and pipeline that act on an array, and the reason if those are zarr's own."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import zarr
from zarr.abc.codec import ArrayBytesCodecPartialEncodeMixin, BytesBytesCodec
from zarr.buffer import cpu
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.registry import get_buffer_class, get_pipeline_class
from zarr.storage import LocalStore, MemoryStore, ZipStore

from zarr_bytes.activation import CLASSES, PIPELINE
from zarr_bytes.array_blocks import why_not_in_place
from zarr_bytes.chains import codec_name, own_chain
from zarr_bytes.chunk.range_support import comes_whole
from zarr_bytes.chunk.shard_plan import ShardPlan
from zarr_bytes.chunk.stored import Stored
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.origin import decided_by
from zarr_bytes.commands.text import class_path, in_digits
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import partial_writes_enabled, reading_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr.abc.codec import Codec
    from zarr.storage import StorePath

    from zarr_bytes.chunk.plan import Plan

__all__ = ["Acting", "acting_on", "why_replaced", "why_whole"]

_CODECS: Final = "codecs.bytes"
_PIPELINE: Final = "codec_pipeline.path"
_PARTIAL_WRITES: Final = "zarr_bytes.partial_writes"


class Acting(NamedTuple):
    """The part of zarr or of this package that reads and writes the chunks of an array.

    Attributes
    ----------
    name : str
        The class of the pipeline, and of the codec if a pipeline of zarr calls it for parts of
        chunks.
    stored : Stored or None
        The storage of the chunks; None if zarr reads and writes them by itself.
    is_pipeline : bool
        Whether this package's pipeline reads and writes the chunks; False for its codec alone.
    writes_parts : bool
        Whether selected bytes are written in place.
    nbytes_are_known : bool
        Whether the stored size of a chunk, or shard, is known without reading it.
    reason : str
        Why zarr reads and writes by itself, and what to do. Empty if `stored` is given.
    reopened : str
        What opening the array again with the current settings would change. Empty if nothing.
    """

    name: str
    stored: Stored | None
    is_pipeline: bool = False
    writes_parts: bool = False
    nbytes_are_known: bool = False
    reason: str = ""
    reopened: str = ""


def acting_on(array: zarr.Array[Any]) -> Acting:
    """The pipeline or codec that acts on an array."""
    pipeline = array.async_array.codec_pipeline
    name = class_path(type(pipeline))
    if array.metadata.zarr_format != 3:
        reason = (
            "the array is of Zarr format 2, which zarr reads and writes by itself: write it as"
            " format 3, with compressors=None"
        )
        return Acting(name, None, reason=reason)
    chain = array.metadata.codecs
    codec = getattr(pipeline, "array_bytes_codec", None)
    stored: Stored | None = None
    # Buffers in other memory are left to zarr's pipeline, which calls the codec.
    is_pipeline = False
    if isinstance(pipeline, BatchedBytesPipeline) and not _has_device():
        stored, is_pipeline = pipeline.stored, True
    elif len(chain) == 1 and isinstance(codec, BytesCodec):
        stored = Stored(codec, None, None)
        name = f"{class_path(type(codec))} in {name}"
    writes_parts = stored is not None and isinstance(
        stored.codec, ArrayBytesCodecPartialEncodeMixin
    )
    why_not_bytes = _why_not_bytes(chain, "chunks")
    is_plain = not (why_not_bytes or isinstance(chain[-1], ShardingCodec))
    return Acting(
        name,
        stored,
        is_pipeline=is_pipeline,
        writes_parts=writes_parts,
        nbytes_are_known=stored is not None or is_plain,
        reason="" if stored is not None else why_not_bytes or _why_zarr(name),
        reopened=_reopened(chain, is_own=stored is not None, writes_parts=writes_parts),
    )


def _has_device() -> bool:
    """Whether buffers are in other memory than NumPy's."""
    return not issubclass(get_buffer_class(), cpu.Buffer)


def _why_zarr(pipeline: str) -> str:
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
        return (
            f"the pipeline is {pipeline} ({decided_by(_PIPELINE)}), which reads chunks of these"
            f" codecs by itself: set {_PIPELINE} to {PIPELINE}, and open the array again"
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


def _reopened(chain: Sequence[Codec], *, is_own: bool, writes_parts: bool) -> str:
    """What opening an array again with the current settings would change."""
    is_chosen = zarr.config.get(_CODECS, None) == CLASSES["bytes"]
    has_pipeline = is_chosen and issubclass(get_pipeline_class(), BatchedBytesPipeline)
    would_be_own = is_chosen and (
        (has_pipeline and own_chain(chain) is not None)
        or (len(chain) == 1 and isinstance(chain[0], ZarrBytesCodec))
    )
    if is_own != would_be_own:
        by = "zarr-bytes" if would_be_own else "zarr itself"
        return f"opened again, the array would be read and written by {by}"
    would_write_parts = would_be_own and partial_writes_enabled()
    if writes_parts == would_write_parts:
        return ""
    how = "would be written in place" if would_write_parts else "would have its chunks replaced"
    return (
        f"{_PARTIAL_WRITES} is {would_write_parts} now ({decided_by(_PARTIAL_WRITES)}):"
        f" opened again, the array {how}"
    )


def why_whole(getter: StorePath, plan: Plan, fetched: int) -> str:
    """The first reason why more than the selected bytes of a chunk is read, or an empty text.

    Parameters
    ----------
    getter : zarr.storage.StorePath
        A key of the chunk.
    plan : Plan
        The plan of the read.
    fetched : int
        Number of bytes that the read fetches.
    """
    store, nbytes = getter.store, plan.chunks.nbytes
    shards = plan.shards if isinstance(plan, ShardPlan) else None
    selected = nbytes if plan.grid is None else prod(plan.grid.shape) * plan.chunks.item_size
    if type(store) is MemoryStore:
        return "the chunks are in memory, where reading one whole costs nothing"
    if comes_whole(getter):
        if isinstance(store, ZipStore):
            return "the zip file is compressed: make it with zipfile.ZIP_STORED to read parts"
        return (
            f"{store} has answered a byte range with a whole object, or refused it: a server that"
            " answers ranges is needed to read parts"
        )
    if selected + (0 if shards is None else shards.index_nbytes) >= fetched:
        is_all = fetched >= nbytes
        return "the selection reaches from the first element of each chunk to the last" * is_all
    cost = reading_cost(store)
    if cost is None:
        name = "zarr_bytes.partial_reads"
        return f"{name} is False ({decided_by(name)}): set it to True to read parts"
    where = "local" if isinstance(store, LocalStore | ZipStore) else "remote"
    gap = f"{in_digits(cost.gap)} bytes (zarr_bytes.gap.{where})"
    if not plan.is_whole:
        return f"gaps of up to {gap} are read, to save requests"
    if nbytes <= cost.gap:
        return f"a chunk has {in_digits(nbytes)} bytes, no more than the gap of {gap}"
    return (
        "the elements are in so many places that whole chunks cost less: each range costs as much"
        f" as a gap of {gap}"
    )


def why_replaced(acting: Acting, getter: StorePath) -> str:
    """The first reason why a write replaces chunks of which some elements stay."""
    if reason := why_not_in_place(getter.store):
        return reason
    if not acting.writes_parts:
        return (
            f"{_PARTIAL_WRITES} was False when the array was opened: set it to True (for a command,"
            " ZARR_ZARR_BYTES__PARTIAL_WRITES=True in the environment), and open the array again"
        )
    return "only zarr's own index arithmetic takes this selection"
