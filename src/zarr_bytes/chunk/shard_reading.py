"""Reading a selection of a shard: its index, and then the ranges of all inner chunks together.

Inner chunks that lie beside each other in the file are read at once. At most two requests follow
one another, however many inner chunks there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zarr_bytes.chunk.filling import filled
from zarr_bytes.chunk.requests import MissingChunkError, Requests
from zarr_bytes.chunk.shard_index import Index, read_index
from zarr_bytes.chunk.tasks import finished, slots_of_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.shard_plan import ShardPlan
    from zarr_bytes.chunk.tiles import Tile

__all__ = ["read_open_shard", "read_shard"]


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
    located = plan.located(read_index(plan.shards, file))

    async def fetch(tile: Tile) -> Bytes:
        return file.read_again(tile, plan.largest_request)

    return finished(_selected(located, fetch, canvas, is_file=True, workers=1))


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
    located = plan.located(Index(plan.shards, str(getter), content, size))
    _, limit = slots_of_loop()
    return await _selected(located, requests.fetch, None, is_file=False, workers=limit)


async def _selected(
    plan: ShardPlan,
    fetch: Callable[[Tile], Coroutine[None, None, Bytes]],
    canvas: Array | None,
    *,
    is_file: bool,
    workers: int,
) -> Array:
    if plan.grid is not None:
        return await filled(plan, fetch, canvas, is_file=is_file, workers=workers)
    # Only NumPy takes the selection.
    everything = plan.of_everything()
    shard = await filled(everything, fetch, None, is_file=is_file, workers=workers)
    return np.asarray(shard[plan.selection])
