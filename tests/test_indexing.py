"""The plan of a selection: its ranges cover what they must, and take no more than they may.

The oracle is NumPy. `test_model.py` reads and writes by such plans, and `test_cost.py` counts.
"""

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from chunk_selections import selections
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stored_arrays import most_memory

from zarr_bytes.indexing.plan import UNLIMITED, ByteRanges, Fetch, plan_of, with_request_sizes
from zarr_bytes.indexing.selection import ChunkGrid
from zarr_bytes.layout.objects import ChunkEncoding, ObjectLayout
from zarr_bytes.settings import RequestCost


def chunk_plan(shape, selection, cost, dtype="f8"):
    dtype = np.dtype(dtype)
    return plan_of(
        ObjectLayout(ChunkEncoding(None), shape, dtype, bytes(dtype.itemsize)), selection, cost
    )


def test_a_row_is_one_range_of_its_bytes():
    plan = chunk_plan((4, 5), (slice(1, 2), slice(0, 5)), RequestCost(0, UNLIMITED))
    (part,) = plan.inner_selections()
    starts, stops = plan.slab_planner_of(
        part.axis_selections, 0
    ).slab_of_all_ranges.ranges.starts_and_stops()
    assert part.offset_in_inner_chunk == 5 * 8  # from which on the ranges are counted
    assert (starts.tolist(), stops.tolist()) == ([0], [5 * 8])


@settings(max_examples=200)
@example(case=((3, 4, 5), (slice(0, 3), np.array([0, 2, 3]), slice(0, 5))), gap=4)
@given(case=selections(is_of_zarr=True), gap=st.sampled_from([0, 0, 3, 4, 8, 20, 60, 200]))
def test_ranges_join_where_the_gap_allows_and_are_divided_where_they_are_many(case, gap):
    """Of elements of 4 bytes; the whole chunk is fetched where that costs less."""
    shape, selection = case
    numbers = np.arange(prod(shape)).reshape(shape)
    chosen = np.isin(numbers, numbers[selection]).reshape(-1)
    selected = np.flatnonzero(np.repeat(chosen, 4))
    plan = chunk_plan(shape, selection, RequestCost(0, UNLIMITED), "i4")
    found = [
        (part.offset_in_inner_chunk, plan.slab_planner_of(part.axis_selections, gap))
        for part in plan.inner_selections()
    ]
    if not selected.size:
        assert found == []
        return
    ((start, slabs),) = found
    assert start == selected[0]
    selected -= start
    apart = np.flatnonzero(np.diff(selected) - 1 > gap)
    starts, stops = slabs.slab_of_all_ranges.ranges.starts_and_stops()
    count, nbytes, every = starts.size, int((stops - starts).sum()), 4 * prod(shape)
    assert starts.tolist() == [selected[0], *selected[apart + 1]]
    assert stops.tolist() == [*(selected[apart] + 1), selected[-1] + 1]
    stats = slabs.stats
    assert (stats.ranges, stats.fetched_elements * 4) == (count, nbytes)
    assert stats.selected_elements == numbers[selection].size
    some = range(1, 13)
    for most, runs in (*((4 * n, UNLIMITED) for n in some), *((UNLIMITED, n) for n in some)):
        covered = set()
        for slab in slabs.split_by_size(most, runs):
            requests = list(slab.ranges.requests(3))
            assert slab.ranges.number_of_requests(3) == len(requests)
            assert all(0 < stop - start <= 3 for start, stop, _ in requests)
            starts, stops = slab.ranges.starts_and_stops()
            assert slab.ranges.nbytes == (stops - starts).sum() <= most
            assert slab.ranges.number_of_ranges() == starts.size <= runs
            assert (stops[:-1] < starts[1:]).all()
            covered.update(*map(range, starts, stops))
        assert set(selected) <= covered <= set(range(selected[0], selected[-1] + 1))
    plan = chunk_plan(shape, selection, RequestCost(gap, 10**9), "i4")
    is_whole = every <= max(gap, nbytes)
    costs = (1, every) if is_whole else (count, nbytes)
    assert (plan.reads_whole_chunk, plan.range_count, plan.nbytes) == (is_whole, *costs)


@pytest.mark.parametrize(
    ("fetches", "largest", "slots", "objects", "expected"),
    [  # sizes of the ranges of fetches, and the largest sizes of their requests
        ([[80]], 80, 4, 1, [20]),
        ([[11]], 80, 4, 1, [6]),
        ([[10]], 80, 4, 1, [10]),
        ([[80]], UNLIMITED, 4, 1, [UNLIMITED]),
        ([[200]], 80, 4, 1, [27]),
        ([[80]], 80, 4, 2, [40]),
        ([[80], [8]], 80, 4, 3, [27, 27]),
        ([[80], [8], [8], [8], [8]], 80, 4, 1, [80, 80, 80, 80, 8]),
        ([[80, 8, 8, 8]], 90, 2, 1, [27]),
        ([[80, 8, 8, 8, 8]], 90, 2, 1, [90]),
    ],
)
def test_long_ranges_are_cut_in_the_last_round_of_requests(
    fetches, largest, slots, objects, expected
):
    """Where a connection brings 10 bytes while a request waits for its answer."""
    stops = [np.cumsum(sizes) + np.arange(len(sizes)) for sizes in fetches]
    tables = [(stop - sizes, stop) for stop, sizes in zip(stops, fetches, strict=True)]
    given = [Fetch(ByteRanges(0, sum(s), t), []) for s, t in zip(fetches, tables, strict=True)]
    found = list(with_request_sizes(given, largest, slots, objects, min_piece_nbytes=10))
    assert [one[:2] for one in found] == list(zip(given, expected, strict=True))
    are_small = [max(sizes) < 10 for sizes in fetches if max(sizes) < 10 or min(sizes) >= 10]
    assert [
        one.has_small_requests
        for one, sizes in zip(found, fetches, strict=True)
        if max(sizes) < 10 or min(sizes) >= 10
    ] == are_small


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 3), (3, 1, 2), (2, 2, 3)], ids=str)
def test_the_selected_box_of_a_chunk_has_its_longest_gap(shape):
    values, grid = np.arange(prod(shape)).reshape(shape), ChunkGrid(shape, shape)
    every = [
        [*range(n), *(slice(*s) for s in product(range(n), range(n + 1), (1, 2)))] for n in shape
    ]
    for selection in product(*every):
        selected = values[(*selection, ...)]
        flat, box = sorted(selected.ravel().tolist()), grid.try_box_in_one_chunk(selection)
        assert (box is None) == (not flat)
        if box is not None:
            assert (box.chunk_number, box.start, box.extent) == (0, flat[0], flat[-1] + 1 - flat[0])
            assert box.largest_gap == max([b - a - 1 for a, b in pairwise(flat)], default=0)
            content = values.ravel()[box.start : box.start + box.extent].copy()
            strides = [8 * n for n in box.strides]
            found = np.ndarray(box.shape, values.dtype, content, 0, strides)
            assert found.ravel().tolist() == flat


def test_a_box_of_a_chunk_grid_is_found_in_one_chunk():
    grid = ChunkGrid((6, 7), (3, 4))
    assert grid.try_box_in_one_chunk((slice(2, 4), 0)) is None
    assert grid.try_box_in_one_chunk((4, slice(3, 5))) is None
    box = grid.try_box_in_one_chunk((4, slice(4, 7, 2)))
    assert (box.chunk_number, box.start, box.extent, box.largest_gap) == (3, 4, 3, 1)


HUGE, FAR = (10**6, 10**6), np.arange(10**5) * 9  # elements of 8 bytes
DEFAULT, NO_GAP = RequestCost(2**15, 2**24), RequestCost(0, UNLIMITED)
LARGE = {  # shape, selection, cost; bytes, which may be fewer, and memory that a plan takes at most
    "column": (HUGE, np.s_[:, 3], DEFAULT, 8 * 10**6, 200 * 10**6),
    "list": (HUGE, (np.arange(0, 10**6, 7), slice(3, 4)), DEFAULT, 8 * 10**6, 200 * 10**6),
    "points": (HUGE, (FAR, FAR * 0), DEFAULT, 8 * 10**6, 200 * 10**6),
    "ten billion ranges": ((10**5, 10**5, 10), np.s_[:, :, 3], NO_GAP, 8 * 10**10, 10**5),
}


@pytest.mark.parametrize("name", LARGE)
def test_memory_of_a_plan_is_that_of_the_result_and_ranges_are_counted_unmade(name):
    shape, selection, cost, nbytes, memory = LARGE[name]
    plan, peak = most_memory(lambda: chunk_plan(shape, selection, cost))
    assert plan.nbytes <= nbytes
    assert peak < memory
    if cost == NO_GAP:
        assert (plan.range_count, plan.nbytes) == (10**10, nbytes)
