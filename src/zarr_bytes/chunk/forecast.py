"""The counts of reads and writes in advance, from their plans.

All chunks are assumed to exist, and all shards to have every inner chunk, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from zarr.storage import LocalStore

from zarr_bytes.chunk.counters import Counts
from zarr_bytes.chunk.division import by_itself
from zarr_bytes.chunk.grid import c_strides
from zarr_bytes.chunk.range_support import comes_whole
from zarr_bytes.chunk.shard_plan import ShardPlan
from zarr_bytes.chunk.tiles import tiles_of
from zarr_bytes.chunk.writing import is_local_chunk

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.grid import Grid
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.shards import Shards

__all__ = ["array_without_memory", "counts_of_read", "counts_of_write"]


def array_without_memory(shape: tuple[int, ...], dtype: np.dtype[np.generic], order: str) -> Array:
    """An array of any size without elements of its own, which can only be divided."""
    axes = range(len(shape))
    strides = c_strides(shape, dtype.itemsize, axes if order == "C" else axes[::-1])
    # Raw bytes at first: NumPy's function does not know the types of other packages.
    memory = np.empty(1, f"V{dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(memory, shape, strides).view(dtype)


def counts_of_read(
    getter: StorePath, plan: Plan, canvas: Array | None, *, is_one_range: bool
) -> Counts:
    """Counts of the read of a chunk.

    Parameters
    ----------
    getter : zarr.storage.StorePath
        Key of a chunk.
    plan, canvas, is_one_range
        As returned by `zarr_bytes.chunk.scattering.Scatter.method_of`.
    """
    is_file = type(getter.store) is LocalStore
    counts = Counts(chunks=1, opens=int(is_file))
    if isinstance(plan, ShardPlan):
        shards = plan.shards
        if comes_whole(getter):
            nbytes = shards.count * shards.inner_nbytes + shards.index_nbytes
            _add_whole(counts, nbytes, is_file=False)
            return counts
        _add_ranges(counts, 1, shards.index_nbytes, is_file=is_file)
        plan = plan if plan.grid else plan.of_everything()
    if is_file and is_one_range and not plan.is_whole:
        _add_ranges(counts, 1, plan.nbytes, is_file=True)
    elif plan.is_whole and (is_one_range or plan.is_one_read or not is_file):
        _add_whole(counts, plan.chunks.nbytes, is_file=is_file)
    else:
        _add_tiles(counts, plan, canvas, is_file=is_file)
    return counts


def _add_tiles(counts: Counts, plan: Plan, canvas: Array | None, *, is_file: bool) -> None:
    for times, tile in plan.alike_tiles(canvas, is_file=is_file):
        requests = tile.number_of_requests(plan.largest_request)
        _add_ranges(counts, times * requests, times * tile.nbytes, is_file=is_file)


def _add_ranges(counts: Counts, ranges: int, nbytes: int, *, is_file: bool) -> None:
    counts.ranges += ranges
    counts.requests += 0 if is_file else ranges
    counts.bytes_fetched += nbytes


def _add_whole(counts: Counts, nbytes: int, *, is_file: bool) -> None:
    """One range that is all of a file, or one request without a range."""
    counts.ranges += is_file
    counts.requests += not is_file
    counts.bytes_fetched += nbytes


def counts_of_write(
    getter: StorePath, plan: Plan, *, in_place: bool, is_complete: bool
) -> tuple[Counts, bool]:
    """Counts of the write of a chunk, and whether it is written in place.

    Parameters
    ----------
    getter : zarr.storage.StorePath
        Key of a chunk.
    plan : Plan
        Plan of a read of the selection.
    in_place : bool
        Whether the array has partial writes.
    is_complete : bool
        Whether the selection has all of the chunk within the array.
    """
    is_file, grid = is_local_chunk(getter), plan.grid
    shards = plan.shards if isinstance(plan, ShardPlan) else None
    nbytes, selected, whole = plan.chunks.nbytes, _selected_nbytes(plan), 0
    if shards is not None:
        whole = _whole_inner_chunks(grid, shards)
        is_complete = is_complete and not shards.sharding.keeps_edges
    keeps_nothing = is_complete or (grid is not None and grid.has_all_of(plan.chunks.shape))
    counts = Counts(chunks=1, opens=int(is_file))
    is_in_place = in_place and is_file and not keeps_nothing and grid is not None
    if shards is None:
        is_in_place = is_in_place and selected < nbytes
    else:
        if keeps_nothing and grid is not None:  # without inner chunks behind the array's edge
            nbytes = shards.division.most_parts(grid) * shards.inner_nbytes
        nbytes += shards.index_nbytes
    if is_in_place:
        counts.bytes_written = selected
        if shards is not None:
            _add_ranges(counts, 1, shards.index_nbytes, is_file=True)
        return counts, True
    counts.bytes_written = nbytes
    counts.requests = int(not is_file)
    if keeps_nothing:
        return counts, False
    counts.opens += is_file
    if shards is not None and is_file:
        _add_ranges(counts, 1, shards.index_nbytes, is_file=True)
        kept = shards.count - whole
        _add_ranges(counts, kept, kept * shards.inner_nbytes, is_file=True)
    else:
        _add_whole(counts, nbytes, is_file=is_file)
    return counts, False


def _selected_nbytes(plan: Plan) -> int:
    """Bytes of the selected elements, each once."""
    if plan.grid is None:
        return plan.chunks.nbytes
    return tiles_of(plan.grid, plan.chunks.item_size, 0).span.fetched * plan.chunks.item_size


def _whole_inner_chunks(grid: Grid | None, shards: Shards) -> int:
    """Number of the inner chunks that are wholly selected."""
    if grid is None:
        return 0
    inside, shape = shards.division.inside(grid), shards.sharding.inner_shape
    return sum(
        alike.times
        for alike in shards.division.alike(grid)
        if by_itself(inside, alike.axes).has_all_of(shape)
    )
