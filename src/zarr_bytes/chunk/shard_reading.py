"""Reading a selection of a shard: its index, and then the ranges of all inner chunks together.

Inner chunks that lie beside each other in the file are read at once. At most two requests follow
one another, however many inner chunks there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zarr_bytes.chunk.files import EndOfFileError
from zarr_bytes.chunk.requests import MissingChunkError, Requests
from zarr_bytes.chunk.shard_index import Index, complete_index
from zarr_bytes.chunk.shard_plan import ShardPlan, together_in
from zarr_bytes.chunk.tasks import finished, slots_of_loop, together

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.shards import Shards
    from zarr_bytes.chunk.tiles import Tile

__all__ = ["alike_tiles_of_shard", "read_index", "read_open_shard", "read_shard"]


def read_index(shards: Shards, file: ChunkFile) -> Index:
    """The index of a shard that is an open file.

    Raises
    ------
    ShardIndexError
        If it is truncated or damaged.
    """
    size = file.size()
    content = np.empty(min(shards.index_nbytes, size), np.uint8)
    try:
        file.read_range(memoryview(content), shards.index_start(size))
    except EndOfFileError as end:
        content = content[: max(end.offset - shards.index_start(size), 0)]
    return Index(shards, file.path, content, size)


def read_open_shard(plan: ShardPlan, file: ChunkFile, canvas: Array | None = None) -> Array:
    """The selection of a shard that is an open file.

    Parameters
    ----------
    plan : ShardPlan
        What is read.
    file : ChunkFile
    canvas : array, optional
        Where the elements are put, in the place that the grid of the plan has for them.

    Returns
    -------
    array
        ``shard[selection]``, or the canvas.

    Raises
    ------
    ShardIndexError
        If the index does not fit the shard.
    BoolValueError
        If a byte that was read as a bool is neither 0 nor 1.
    EndOfFileError
        If the file is shortened meanwhile.
    """
    index = read_index(plan.shards, file)

    async def fetch(tile: Tile) -> Bytes:
        return file.read_again(tile, plan.largest_request)

    return finished(_filled(plan, index, fetch, canvas, in_place=True, workers=1))


async def read_shard(getter: ByteGetter, plan: ShardPlan) -> Array | None:
    """The selection of the shard behind `getter`, in any store; None if the shard is missing.

    Raises
    ------
    ShardIndexError, BoolValueError, ChunkSizeError
        As `read_open_shard`.
    """
    requests = Requests(getter, plan, is_sync=False)
    requests.note_chunk()
    try:
        content, size = await requests.fetch_index(plan.shards)
    except MissingChunkError:
        return None
    index = Index(plan.shards, str(getter), content, size)
    _, limit = slots_of_loop()
    return await _filled(plan, index, requests.fetch, None, in_place=False, workers=limit)


async def _filled(
    plan: ShardPlan,
    index: Index,
    fetch: Callable[[Tile], Coroutine[None, None, Bytes]],
    canvas: Array | None,
    *,
    in_place: bool,
    workers: int,
) -> Array:
    """Put the elements of all inner chunks into the canvas; without one, give the result."""
    if plan.grid is None:  # only NumPy takes the selection
        everything = ShardPlan(plan.shards, (slice(None),) * len(plan.chunks.shape), None)
        shard = await _filled(everything, index, fetch, None, in_place=in_place, workers=workers)
        return np.asarray(shard[plan.selection])
    filled = np.empty(plan.grid.shape, plan.chunks.selected_dtype) if canvas is None else canvas
    put = plan.putter(filled, in_place=in_place)
    most = plan.largest_range(filled, is_file=workers == 1)
    groups = plan.groups(index, filled, most)

    async def work() -> None:
        for start, stop, parts in groups:
            if len(parts) == 1:
                for tile in plan.tiles_in(parts[0], most):
                    put(tile, await fetch(tile))
                continue
            fetched = await fetch(together_in(start, stop))
            for part in parts:
                (tile,) = plan.tiles_in(part, most)
                first = part.start - start
                put(tile, fetched[first : first + tile.nbytes])

    if workers == 1:
        await work()
    else:
        await together([work() for _ in range(workers)])
    return filled if canvas is not None else plan.result_of(filled)


def alike_tiles_of_shard(
    plan: ShardPlan, canvas: Array, *, is_file: bool
) -> Iterator[tuple[int, Tile]]:
    """Number of the tiles of each size that are fetched of a complete shard, and one of them.

    Parameters
    ----------
    plan : ShardPlan
        With a `grid`.
    canvas : array
        Where the elements belong; not changed.
    is_file : bool
        Whether the shard is a file, and not behind requests.
    """
    index, _ = complete_index(plan.shards)
    most = plan.largest_range(canvas, is_file=is_file)
    for start, stop, parts in plan.groups(index, canvas, most):
        if len(parts) > 1:
            yield 1, together_in(start, stop)
        else:
            yield from plan.alike_tiles_in(parts[0], most)
