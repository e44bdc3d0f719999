"""The tiles of a selection: they cover what they must, and take no more than they may.

The oracle is NumPy.
"""

from itertools import islice, product
from math import prod

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import most_memory
from zarr.buffer import cpu

from zarr_bytes.chunk import plan
from zarr_bytes.chunk.chunks import Chunks
from zarr_bytes.chunk.selection import grid_of
from zarr_bytes.chunk.tiles import one_range, tiles_of
from zarr_bytes.settings import Cost

GAPS = st.integers(0, 200)
EVERYTHING = 2**62


@st.composite
def entries(draw, size):
    """An index of one dimension: integer, slice with a step, list in any order, bools."""
    kind = draw(st.sampled_from(["integer", "slice", "array", "bools"]))
    if kind == "integer":
        return draw(st.integers(-size, size - 1))
    if kind == "slice":
        start, stop = draw(st.tuples(st.integers(0, size), st.integers(0, size)))
        return slice(start, stop, draw(st.integers(1, 4)))
    if kind == "bools":
        return draw(hnp.arrays(bool, size))
    return np.array(draw(st.lists(st.integers(0, size - 1), max_size=6)), np.int64)


@st.composite
def selections(draw):
    """A chunk shape and a selection of each form that zarr passes."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=7))
    form = draw(st.sampled_from(["basic", "orthogonal", "points"]))
    if form == "points" and shape:
        count = draw(st.integers(0, 8))
        index = st.integers(0, 10**6)
        return shape, tuple(
            np.array(draw(st.lists(index, min_size=count, max_size=count)), np.int64) % size
            for size in shape
        )
    selection = [draw(entries(size)) for size in shape]
    arrays = [i for i, entry in enumerate(selection) if isinstance(entry, np.ndarray)]
    if form == "orthogonal" and len(arrays) > 1:
        selection = [
            np.arange(size)[entry] if isinstance(entry, slice) else np.atleast_1d(entry)
            for entry, size in zip(selection, shape, strict=True)
        ]
        return shape, np.ix_(*selection)
    for i in arrays[1:]:  # only one array beside integers and slices
        selection[i] = slice(None)
    return shape, tuple(selection)


@st.composite
def cases(draw):
    """A chunk shape, a selection, and an order of axes, mostly another one than their own."""
    shape, selection = draw(selections())
    order = draw(st.permutations(range(len(shape))).map(tuple) | st.none())
    return shape, selection, order


def chunk_of(shape, dtype):
    size = prod(shape) * np.dtype(dtype).itemsize
    return (np.arange(size) * 7 % 251).astype("u1").view(dtype).reshape(shape)


def stored_bytes(chunk, order):
    stored = np.ascontiguousarray(chunk if order is None else chunk.transpose(order))
    return stored.reshape(-1).view("u1")


def fetched(tile, stored):
    parts = [stored[start:stop] for start, stop, _ in tile.ranges()]
    return np.concatenate([stored[:0], *parts])


@given(
    case=cases(),
    gap=GAPS,
    most=st.integers(1, 300),
    runs=st.integers(1, 20),
    dtype=st.sampled_from(["u1", "<i2", ">f8", "V3"]),
)
def test_the_result_is_what_numpy_selects(case, gap, most, runs, dtype):
    shape, selection, order = case
    chunk = chunk_of(shape, dtype)
    stored = stored_bytes(chunk, order)
    expected = chunk[(*selection, ...)]
    grid = grid_of(shape, selection, order)
    canvas, times = np.zeros(grid.shape, chunk.dtype), np.zeros(grid.shape, int)
    for tile in tiles_of(grid, chunk.dtype.itemsize, gap).divided(most, runs):
        content = fetched(tile, stored)
        assert content.size == tile.nbytes
        canvas[tile.place] = tile.elements(content, chunk.dtype)
        times[tile.place] += 1
    assert (times == 1).all()
    result = grid.result_of(canvas)
    assert result.shape == expected.shape == grid.result_shape
    assert result.tobytes() == expected.tobytes()


@given(case=cases())
def test_the_canvas_is_the_result_with_all_axes(case):
    shape, selection, order = case
    grid = grid_of(shape, selection, order)
    result = chunk_of(shape, "<i4")[(*selection, ...)]
    canvas = grid.canvas_of(result)
    assert canvas.shape == grid.shape
    assert np.array_equal(grid.result_of(canvas), result)
    for place in islice(np.ndindex(grid.shape), 20):
        assert result[grid.index_of(place)] == canvas[place]


@given(case=cases(), gap=GAPS, most=st.integers(1, 300), runs=st.integers(1, 20))
def test_tiles_are_as_small_as_they_must(case, gap, most, runs):
    grid = grid_of(*case)
    for tile in tiles_of(grid, 4, gap).divided(most, runs):
        starts, stops = tile.bounds()
        assert tile.nbytes == (stops - starts).sum()
        assert tile.nbytes <= max(most, 4)
        assert tile.number_of_ranges() == starts.size <= runs
        assert (starts < stops).all()
        assert (stops[:-1] < starts[1:]).all()
        assert 0 <= starts[0] <= stops[-1] <= 4 * prod(case[0])


@given(case=cases(), gap=GAPS, most=st.integers(4, 10**4))
def test_ranges_are_read_together_where_the_gap_allows_and_nowhere_else(case, gap, most):
    shape, selection, order = case
    chunk = np.zeros((*shape, 4), "u1")
    numbers = np.arange(prod(shape)).reshape(shape)
    chunk.reshape(-1, 4)[np.unique(numbers[selection])] = 1
    selected = np.flatnonzero(stored_bytes(chunk.view("V4")[..., 0], order))
    tiles = tiles_of(grid_of(shape, selection, order), 4, gap)
    if not selected.size:
        assert list(tiles.divided(most, most)) == []
        return
    apart = np.flatnonzero(np.diff(selected) - 1 > gap)
    starts, stops = tiles.undivided().bounds()
    assert starts.tolist() == [selected[0], *selected[apart + 1]]
    assert stops.tolist() == [*(selected[apart] + 1), selected[-1] + 1]
    assert (tiles.span.ranges, tiles.span.fetched * 4) == (starts.size, (stops - starts).sum())
    assert tiles.span.selected == numbers[selection].size


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 3), (3, 1, 2), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("is_reversed", [False, True], ids=["in order", "reversed"])
def test_elements_that_follow_each_other_are_one_range(shape, is_reversed):
    nesting = tuple(range(len(shape)))[:: -1 if is_reversed else 1]
    stored = np.arange(prod(shape), dtype="<u2").view("u1")
    shape_there = tuple(shape[i] for i in nesting)
    chunk = stored.view("<u2").reshape(shape_there).transpose(np.argsort(nesting))
    entries = [
        [
            *range(size),
            *(slice(a, b, c) for a in range(size) for b in range(size + 1) for c in (1, 2)),
        ]
        for size in shape
    ]
    for selection in product(*entries):
        flat = sorted(chunk[(*selection, ...)].ravel().tolist())
        is_one_range = bool(flat) and flat == list(range(flat[0], flat[0] + len(flat)))
        tile = one_range(shape, selection, nesting, 2)
        if tile is None:
            steps = any(isinstance(entry, slice) and entry.step == 2 for entry in selection)
            assert not is_one_range or steps
        else:
            assert is_one_range
            assert tile == tiles_of(grid_of(shape, selection, nesting), 2, 0).undivided()


def plan_of(shape, selection, cost):
    chunks = Chunks(shape, np.dtype("f8"), "big", None, cpu.buffer_prototype)
    return plan.plan_of(chunks, selection, cost)


@given(case=selections(), gap=GAPS)
def test_the_cost_is_never_above_that_of_the_whole_chunk(case, gap):
    shape, selection = case
    plan = plan_of(shape, selection, Cost(gap, 10**9))
    if not plan.is_whole:
        assert plan.ranges * gap + plan.nbytes <= gap + 8 * prod(shape)


def test_a_column_of_a_million_short_rows_is_one_request():
    plan = plan_of((10**6, 10), np.s_[:, 3], Cost(2**15, 2**40))
    assert plan.ranges == 1
    assert plan.nbytes == 80 * (10**6 - 1) + 8


@pytest.mark.parametrize(
    "selection",
    [np.s_[:, 3], (np.arange(0, 10**6, 7), 3), (np.arange(10**5) * 9, np.zeros(10**5, int))],
    ids=["column", "list", "points"],
)
def test_memory_is_that_of_the_result(selection):
    plan, peak = most_memory(  # of a chunk of 8 TB
        lambda: plan_of((10**6, 10**6), selection, Cost(2**15, 2**24))
    )
    assert plan.nbytes <= 8 * 10**6
    assert peak < 200 * 10**6


@pytest.mark.parametrize(
    "selection",
    [(0, slice(0, 10**9, 1000)), (np.zeros(10**6, int), np.arange(10**6) * 1000)],
    ids=["stepped", "points"],
)
def test_ranges_take_no_memory_of_their_own_accord(selection):
    """A million ranges of a byte: 64 MiB at most, beside the offsets of a million points."""
    tiles = tiles_of(grid_of((2, 10**9), selection), 1, 0)
    ranges, peak = most_memory(
        lambda: sum(tile.number_of_ranges() for tile in tiles.divided(2**24, 2**18))
    )
    assert ranges == 10**6
    assert peak < 64 * 2**20


def test_a_selection_of_ten_billion_ranges_is_counted_without_being_made():
    tiles, peak = most_memory(lambda: tiles_of(grid_of((10**5, 10**5, 10), np.s_[:, :, 3]), 8, 0))
    assert (tiles.span.ranges, tiles.span.fetched) == (10**10, 10**10)
    assert peak < 10**5


@pytest.mark.parametrize(
    ("selection", "gap", "ranges"),
    [
        (np.s_[:, :, :], 0, [(0, 32000), (32000, 32000)]),
        (np.s_[1, :, :], 0, [(32000, 32000)]),
        (np.s_[:, 2:4, :], 0, [(16000, 16000), (48000, 16000)]),
        (np.s_[:, :, 10:], 80, [(80, 31920), (32080, 31920)]),
        (np.s_[:, ::2, :], 8000, [(0, 24000), (32000, 24000)]),
        (np.s_[:, :, 7], 7992, [(56, 24008), (32056, 24008)]),
    ],
    ids=str,
)
def test_a_window_is_filled_as_far_as_the_gap_allows(selection, gap, ranges):
    """Of chunks of eight rows of 8,000 bytes, of which a window holds four."""
    tiles = tiles_of(grid_of((2, 4, 1000), selection), 8, gap).divided(32000, 1)
    assert [(tile.start, tile.nbytes) for tile in tiles] == ranges


@pytest.mark.parametrize(("stop", "last"), [(13, (9, 4)), (10, (9, 1)), (9, (0, 7))])
def test_a_tile_ends_with_the_last_element_that_is_selected(stop, last):
    """And not with the distance to the next one, which would be behind the end of the chunk."""
    tiles = tiles_of(grid_of((stop,), (slice(0, stop, 3),)), 1, 2)
    assert [(tile.start, tile.nbytes) for tile in tiles.divided(8, 8)][-1] == last


@pytest.mark.parametrize(
    "selection",
    [np.s_[::-1, :], (0,), (5, 0), (np.array([9]), 0), (np.array([0.5]), 0), np.ones((4, 3), bool)],
    ids=["negative step", "too short", "out of range", "list out of range", "floats", "mask"],
)
def test_other_selections_are_left_to_numpy(selection):
    assert grid_of((4, 3), selection) is None
