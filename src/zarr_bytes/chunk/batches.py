"""Reading and writing the chunks of a selection of an array together, for the pipeline."""

from __future__ import annotations

import asyncio
from functools import partial
from math import prod
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodecPartialEncodeMixin
from zarr.storage import LocalStore

from zarr_bytes.chunk import counters, limits
from zarr_bytes.chunk.files import WouldWaitError
from zarr_bytes.chunk.mapping import apart_from_files
from zarr_bytes.chunk.opening import find_location, is_known_to_be_local, is_located, is_tried
from zarr_bytes.chunk.scattering import Scatter
from zarr_bytes.chunk.shard_writing import ShardWriting
from zarr_bytes.chunk.tasks import for_each, in_threads, number_of_threads
from zarr_bytes.chunk.writing import Writing, is_local_chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteSetter
    from zarr.storage import StorePath

    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.scattering import ChunkOfRead
    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["ChunkOfWrite", "read_batch", "write_batch"]

# As `zarr_bytes.chunk.scattering.ChunkOfRead`; the second selection is of the written values.
ChunkOfWrite: TypeAlias = "tuple[ByteSetter, ArraySpec, SelectorTuple, SelectorTuple, bool]"


async def read_batch(
    batch: Sequence[ChunkOfRead], out: Array, drop_axes: tuple[int, ...], stored: Stored
) -> list[bool]:
    """Read selections of chunks of one store into `out`.

    Parameters
    ----------
    batch : sequence of ChunkOfRead
        At least one chunk.
    out, drop_axes
        As of `zarr_bytes.chunk.scattering.Scatter`.
    stored : Stored
        The storage of the chunks.

    Returns
    -------
    list of bool
        For each chunk, whether it exists.
    """
    store = batch[0][0].store
    scatter = Scatter(out, drop_axes, stored, store)
    if type(store) is not LocalStore:
        return await for_each(scatter.read, batch)
    root = str(store.root)
    found = await _read_files(scatter, batch, out.nbytes, root)
    if counters.counters:
        counters.note(root, chunks=len(found))
    return found


async def write_batch(
    batch: Sequence[ChunkOfWrite], value: NDBuffer, drop_axes: tuple[int, ...], stored: Stored
) -> None:
    """Write selections of chunks straight from the array that the caller gave.

    The new file of a whole chunk is written block by block, without a copy of the chunk.

    Parameters
    ----------
    batch : sequence of ChunkOfWrite
        At least one chunk.
    value : zarr.abc.buffer.NDBuffer
        The elements, or one element for all.
    drop_axes : tuple of int
        Axes of a selection that `value` does not have.
    stored : Stored
        The storage of the chunks.

    Raises
    ------
    ValueError, OSError
        As `zarr_bytes.chunk.codec_calls.write_selection`.
    """
    codec, order, sharding = stored
    in_place = isinstance(codec, ArrayBytesCodecPartialEncodeMixin)

    def writing(chunk: ChunkOfWrite) -> Writing:
        _, spec, selection, place, is_complete = chunk
        elements = value
        if value.shape != ():
            elements = value[place]
            if drop_axes:
                axes = range(len(spec.shape))
                elements = elements[tuple(None if i in drop_axes else slice(None) for i in axes)]
        parts = (elements, selection, spec, codec.stored_endian, order)
        if sharding is None:
            return Writing(*parts, is_complete=is_complete)
        return ShardWriting(sharding, *parts, is_complete=is_complete)

    def write_file(chunk: ChunkOfWrite) -> None:
        writing(chunk).to_file(cast("StorePath", chunk[0]), in_place=in_place)

    async def write(chunk: ChunkOfWrite) -> None:
        await writing(chunk).to_store(chunk[0])

    if not is_local_chunk(batch[0][0]):
        await for_each(write, batch)
        return
    setters = [cast("StorePath", setter) for setter, *_ in batch]
    root = str(cast("LocalStore", setters[0].store).root)
    threads = await _threads_of_write(batch, value, root, in_place=in_place)
    if in_place and isinstance(array := value.as_ndarray_like(), np.ndarray):
        apart = apart_from_files(array, (f"{root}/{setter.path}" for setter in setters))
        value = value if apart is array else type(value).from_ndarray_like(apart)
    await in_threads(partial(map, write_file), batch, threads)


async def _read_files(
    scatter: Scatter, batch: Sequence[ChunkOfRead], nbytes: int, root: str
) -> list[bool]:
    """Read files into `nbytes` bytes of the result; for each, whether it exists."""
    found: list[bool] = []
    if nbytes <= max(limits.LIMITS.loop, len(batch) * limits.LIMITS.loop_each) and is_tried(root):
        try:
            for is_there in scatter.read_files(batch, waits=False):
                found.append(is_there)
                if not len(found) % limits.LIMITS.loop_chunks:
                    await asyncio.sleep(0)
        except WouldWaitError as wait:
            scatter.left_open[wait.file.path] = wait.file
        except BlockingIOError:
            pass
    rest = batch[len(found) :]
    if not rest:
        return found
    is_little = nbytes <= limits.LIMITS.one_thread and is_known_to_be_local(root)
    threads = 1 if is_little else _threads(root, len(rest))
    return [*found, *await in_threads(scatter.read_files, rest, threads)]


async def _threads_of_write(
    batch: Sequence[ChunkOfWrite], value: NDBuffer, root: str, *, in_place: bool
) -> int:
    """Number of threads for a write of files below `root`.

    A rename waits for the file system (ext4 allocates the blocks then), so that several threads pay
    from the second chunk on. Writing in place to a local file waits for nothing.
    """
    if len(batch) > 1 and not is_located(root):
        await asyncio.to_thread(find_location, root)
    is_little = value.shape != () and (
        prod(value.shape) * value.dtype.itemsize <= limits.LIMITS.one_thread
    )
    is_replaced = not in_place or any(is_complete for *_, is_complete in batch)
    if is_little and not is_replaced and is_known_to_be_local(root):
        return 1
    return _threads(root, len(batch))


def _threads(root: str, count: int) -> int:
    """Number of threads for `count` files below `root`.

    Files that may have to be waited for get as many as zarr makes requests.
    """
    if is_known_to_be_local(root):
        return min(number_of_threads(), count)
    return min(zarr.config.get("async.concurrency") or count, count)
