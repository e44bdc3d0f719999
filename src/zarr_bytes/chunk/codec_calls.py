"""Reading and writing selections of chunks for the codec, in zarr's pipelines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import zarr
from zarr.storage import LocalStore, StorePath

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.chunks import chunks_of
from zarr_bytes.chunk.opening import is_known_to_be_local
from zarr_bytes.chunk.reading import read_chunk
from zarr_bytes.chunk.tasks import finished, in_threads
from zarr_bytes.chunk.writing import Writing, is_local_chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteGetter, ByteSetter

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteGetter, SyncByteSetter

__all__ = [
    "are_local",
    "read_local",
    "read_selection",
    "read_selection_sync",
    "write_selection",
    "write_selection_sync",
]


async def read_selection(
    getter: ByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec, endian: Endian | None
) -> NDBuffer | None:
    """Selected elements of the chunk behind `getter`, or None if the chunk is missing.

    Parameters
    ----------
    getter : zarr.abc.store.ByteGetter
        The chunk's key in a store, or an inner chunk of a shard.
    selection : tuple
        One entry a dimension, as zarr's pipelines give it.
    chunk_spec : zarr.core.array_spec.ArraySpec
        Shape and data type of the chunk.
    endian : {"little", "big"} or None
        Stored byte order; None means the byte order of the data type.

    Returns
    -------
    zarr.abc.buffer.NDBuffer or None
        ``chunk[selection]``; in NumPy memory possibly in the stored byte order.

    Raises
    ------
    ChunkSizeError
        If the chunk, or a range of it, has another number of bytes than the metadata asks for.
    ChunkFileError
        If something other than a file is in the place of a chunk.
    BoolValueError
        If a byte that was read as a bool is neither 0 nor 1.
    """
    chunks = chunks_of(chunk_spec, endian, None)
    array = await read_chunk(getter, chunks, selection, chunk_spec, is_sync=False)
    return None if array is None else chunks.buffer(array)


def read_selection_sync(
    getter: SyncByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec, endian: Endian | None
) -> NDBuffer | None:
    """`read_selection` on a store that reads synchronously, in the calling thread."""
    chunks = chunks_of(chunk_spec, endian, None)
    array = finished(read_chunk(getter, chunks, selection, chunk_spec, is_sync=True))
    return None if array is None else chunks.buffer(array)


async def read_local(
    batch: Sequence[tuple[ByteGetter, SelectorTuple, ArraySpec]], endian: Endian | None
) -> list[NDBuffer | None]:
    """`read_selection` of several chunks that `are_local`, in as few threads as pay.

    A hop to a thread and back takes longer than reading a small chunk. Large reads, and files that
    may not be on this machine, get as many threads as zarr allows requests.
    """

    def read(chunk: tuple[ByteGetter, SelectorTuple, ArraySpec]) -> NDBuffer | None:
        getter, selection, chunk_spec = chunk
        return read_selection_sync(cast("SyncByteGetter", getter), selection, chunk_spec, endian)

    nbytes = sum(chunks_of(chunk_spec, endian, None).nbytes for _, _, chunk_spec in batch)
    store = cast("LocalStore", cast("StorePath", batch[0][0]).store)
    is_quick = nbytes <= limits.LIMITS.one_thread_codec and is_known_to_be_local(str(store.root))
    limit = 1 if is_quick else zarr.config.get("async.concurrency") or len(batch)
    return await in_threads(partial(map, read), batch, min(limit, len(batch)))


def are_local(getters: Iterable[ByteGetter]) -> bool:
    """Whether all chunks are files that this package reads itself, without their store."""
    return all(isinstance(g, StorePath) and type(g.store) is LocalStore for g in getters)


async def write_selection(
    setter: ByteSetter,
    value: NDBuffer,
    selection: SelectorTuple,
    chunk_spec: ArraySpec,
    endian: Endian | None,
) -> None:
    """Write the selected elements of the chunk behind `setter`.

    Cancelling waits for the end of a write to a file, unless it has not begun: it never begins
    then.

    Parameters
    ----------
    setter : zarr.abc.store.ByteSetter
        The chunk's key in a store, or an inner chunk of a shard.
    value : zarr.abc.buffer.NDBuffer
        The elements, in the shape of ``chunk[selection]`` or without its axes of length 1, or one
        element for all.
    selection : tuple
        One entry a dimension, as zarr's pipelines give it.
    chunk_spec : zarr.core.array_spec.ArraySpec
        Shape, data type and fill value of the chunk.
    endian : {"little", "big"} or None
        Byte order to store; None means the byte order of the data type.

    Raises
    ------
    ChunkSizeError
        If the existing chunk has another number of bytes than the metadata asks for. Nothing has
        been written then.
    ChunkFileError
        If something other than a file is in the place of a chunk.
    OSError
        If a file could not be written; the message has the number of written bytes.
    """
    writing = Writing(value, selection, chunk_spec, endian)
    if is_local_chunk(setter) and writing.is_numpy:
        await in_threads(partial(map, writing.to_file), [setter], 1)
    else:
        await writing.to_store(setter)


def write_selection_sync(
    setter: SyncByteSetter,
    value: NDBuffer,
    selection: SelectorTuple,
    chunk_spec: ArraySpec,
    endian: Endian | None,
) -> None:
    """`write_selection` to a store that writes synchronously, in the calling thread."""
    writing = Writing(value, selection, chunk_spec, endian)
    if is_local_chunk(setter) and writing.is_numpy:
        writing.to_file(setter)
        return
    existing = None
    if not writing.keeps_nothing:
        existing = setter.get_sync(prototype=chunk_spec.prototype)
    encoded = writing.merged_into(existing, setter)
    if encoded is None:
        setter.delete_sync()
    else:
        setter.set_sync(encoded)
    writing.note_replaced(setter, existing, encoded)
