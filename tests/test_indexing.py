"""The plan of a selection: its ranges cover what they must, and take no more than they may.

The oracle is NumPy.
"""

from itertools import product
from math import prod

import numpy as np
import pytest
from chunk_selections import selections
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import most_memory

from zarr_bytes.indexing.plan import EVERYTHING, Absent, Plan, plan_of
from zarr_bytes.indexing.selection import ChunkGrid, Selection, is_of_zarr, shape_of, view_of
from zarr_bytes.layout.format import Format, Sharding
from zarr_bytes.settings import Cost

GAPS = st.integers(0, 200)


@st.composite
def cases(draw):
    """A format of a chunk or a shard, and a selection of it."""
    shape, selection = draw(selections(is_of_zarr=True))
    order = draw(st.permutations(range(len(shape))).map(tuple) | st.none())
    sharding = None
    if draw(st.booleans()):
        inner = tuple(
            draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in shape
        )
        index_order = tuple(draw(st.permutations(range(len(shape)))))
        sharding = Sharding(inner, index_order, draw(st.booleans()), "big", False, False)
    dtype = np.dtype(draw(st.sampled_from(["u1", "<i2", ">f8", "V3"])))
    return format_of(shape, dtype, order, sharding), selection


def format_of(shape, dtype="f8", order=None, sharding=None):
    dtype = np.dtype(dtype)
    return Format(shape, dtype, None, order, sharding, bytes(dtype.itemsize))


def values_of(format):
    size = format.nbytes
    return (np.arange(size) * 7 % 251).astype("u1").view(format.dtype).reshape(format.shape)


def stored(format, values, starts):
    """The bytes of an object whose inner chunks begin at these places; -1 for an absent one."""
    content = np.zeros(max([*starts, 0]) + format.inner_nbytes, "u1")
    grid = ChunkGrid(format.shape, format.inner_shape)
    for place in np.ndindex(grid.counts):
        start = starts[format.grid.number_of(format.stored_order(place))]
        box = tuple(slice(i * n, i * n + n) for i, n in zip(place, grid.inner, strict=True))
        if start < 0:
            values[box] = np.zeros((), format.dtype)
            continue
        inner = (
            np.ascontiguousarray(values[(*box, ...)].transpose(format.order)).reshape(-1).view("u1")
        )
        content[start : start + inner.size] = inner
    return content


def fetched(ranges, content):
    parts = [content[start:stop] for start, stop, _ in ranges.ranges()]
    return np.concatenate([content[:0], *parts])


class Index:
    """The places of inner chunks."""

    def __init__(self, starts):
        self.places, self.starts = tuple(starts), starts

    def offset(self, number):
        return None if self.starts[number] < 0 else self.starts[number]


@given(
    case=cases(), gap=GAPS, most=st.integers(1, 300), runs=st.integers(1, 20), seed=st.integers(0)
)
def test_the_result_is_what_numpy_selects(case, gap, most, runs, seed):
    format, selection = case
    values, random = values_of(format), np.random.default_rng(seed)
    starts = [0]
    if format.sharding is not None:
        starts = format.inner_nbytes * random.permutation(2 * format.count)[: format.count]
        starts = [int(start) if random.random() < 0.8 else -1 for start in starts]
    content = stored(format, values, starts)
    expected = values[(*selection, ...)]
    shape = shape_of(selection, format.shape)
    out, times = np.zeros(shape, format.dtype), np.zeros(shape, int)
    views = [view_of(array, format.order, selection) for array in (out, times)]
    plan = plan_of(format, selection, Cost(gap, most))
    for fetch in plan.fetches(Index(starts), most):
        if isinstance(fetch, Absent):
            views[1][fetch.out] += 1
            continue
        data = fetched(fetch.ranges, content)
        assert data.size == fetch.ranges.nbytes
        for slab, place, at in fetch.slabs:
            views[0][place] = slab.elements(data[at:], format.dtype)
            views[1][place] += 1
    assert (times == 1).all()
    assert out.shape == expected.shape
    assert out.tobytes() == expected.tobytes()


@given(case=cases())
def test_a_part_of_new_values_is_where_numpy_assigns_it(case):
    """Of an element that is selected twice, the last value counts."""
    format, selection = case
    expected = values_of(format)
    new = expected[(*selection, ...)]
    new = np.arange(new.nbytes, dtype="u1").view(format.dtype).reshape(new.shape)
    starts = list(range(0, format.nbytes, format.inner_nbytes))
    content = stored(format, values_of(format), starts)
    expected[selection] = new
    values = view_of(new, format.order, selection)
    for part in plan_of(format, selection, Cost(0, EVERYTHING)).parts():
        slab, elements = part.slabs.whole, values[(*part.out(), ...)]
        placed = fetched(slab.ranges, content[starts[part.number] :])
        slab.put(np.ascontiguousarray(elements), placed)
        for start, stop, position in slab.ranges.ranges():
            begin = starts[part.number] + start
            content[begin : begin + stop - start] = placed[position : position + stop - start]
    assert np.array_equal(content, stored(format, expected, starts))


@given(case=cases(), gap=GAPS, most=st.integers(1, 300), runs=st.integers(1, 20))
def test_slabs_are_as_small_as_they_must(case, gap, most, runs):
    format, selection = case
    size = format.item_size
    plan = Plan(format, Selection(format.shape, format.order, selection), Cost(0, EVERYTHING))
    for part in plan.parts():
        for slab in plan.slabs_of(part.dims, gap).divided(most, runs):
            starts, stops = slab.ranges.bounds()
            assert slab.ranges.nbytes == (stops - starts).sum()
            assert slab.ranges.nbytes <= max(most, size)
            assert slab.ranges.number_of_ranges() == starts.size <= runs
            assert (starts < stops).all()
            assert (stops[:-1] < starts[1:]).all()
            assert 0 <= starts[0] <= stops[-1] <= format.inner_nbytes


def chunk_plan(shape, selection, cost, dtype="f8", order=None):
    return plan_of(format_of(shape, dtype, order), selection, cost)


@given(case=selections(is_of_zarr=True), gap=GAPS)
def test_ranges_are_read_together_where_the_gap_allows_and_nowhere_else(case, gap):
    shape, selection = case
    chosen = np.zeros(prod(shape), bool)
    numbers = np.arange(prod(shape)).reshape(shape)
    chosen[np.unique(numbers[selection])] = True
    selected = np.flatnonzero(np.repeat(chosen, 4))
    plan = chunk_plan(shape, selection, Cost(0, EVERYTHING), "i4")
    slabs = [plan.slabs_of(part.dims, gap) for part in plan.parts()]
    if not selected.size:
        assert slabs == []
        return
    apart = np.flatnonzero(np.diff(selected) - 1 > gap)
    starts, stops = slabs[0].whole.ranges.bounds()
    assert starts.tolist() == [selected[0], *selected[apart + 1]]
    assert stops.tolist() == [*(selected[apart] + 1), selected[-1] + 1]
    span = slabs[0].span
    assert (span.ranges, span.fetched * 4) == (starts.size, (stops - starts).sum())
    assert span.selected == numbers[selection].size


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 3), (3, 1, 2), (2, 2, 3)], ids=str)
def test_elements_that_follow_each_other_are_one_range(shape):
    values = np.arange(prod(shape)).reshape(shape)
    every = [
        [
            *range(size),
            *(slice(a, b, c) for a in range(size) for b in range(size + 1) for c in (1, 2)),
        ]
        for size in shape
    ]
    grid = ChunkGrid(shape, shape)
    for selection in product(*every):
        flat = sorted(values[(*selection, ...)].ravel().tolist())
        is_one_range = bool(flat) and flat == list(range(flat[0], flat[0] + len(flat)))
        found = grid.one_range(selection)
        if found is None:
            steps = any(isinstance(entry, slice) and entry.step == 2 for entry in selection)
            assert not is_one_range or steps
        else:
            assert is_one_range
            assert (found.start, found.count, found.number) == (flat[0], len(flat), 0)


@given(case=selections(is_of_zarr=True), gap=GAPS)
def test_the_cost_is_never_above_that_of_the_whole_chunk(case, gap):
    shape, selection = case
    plan = chunk_plan(shape, selection, Cost(gap, 10**9))
    if not plan.is_whole:
        assert plan.ranges * gap + plan.nbytes <= gap + 8 * prod(shape)


@pytest.mark.parametrize(
    "selection",
    [
        np.s_[:, 3],
        (np.arange(0, 10**6, 7), slice(3, 4)),
        (np.arange(10**5) * 9, np.zeros(10**5, int)),
    ],
    ids=["column", "list", "points"],
)
def test_memory_is_that_of_the_result(selection):
    plan, peak = most_memory(  # of a chunk of 8 TB
        lambda: chunk_plan((10**6, 10**6), selection, Cost(2**15, 2**24))
    )
    assert plan.nbytes <= 8 * 10**6
    assert peak < 200 * 10**6


def test_a_selection_of_ten_billion_ranges_is_counted_without_being_made():
    plan, peak = most_memory(
        lambda: chunk_plan((10**5, 10**5, 10), np.s_[:, :, 3], Cost(0, EVERYTHING))
    )
    assert (plan.ranges, plan.nbytes) == (10**10, 8 * 10**10)
    assert peak < 10**5


@pytest.mark.parametrize(("stop", "last"), [(13, (9, 4)), (10, (9, 1)), (9, (0, 7))])
def test_a_slab_ends_with_the_last_element_that_is_selected(stop, last):
    """And not with the distance to the next one, which would be behind the end of the chunk."""
    plan = chunk_plan((stop,), (slice(0, stop, 3),), Cost(0, EVERYTHING), "u1")
    (part,) = plan.parts()
    slabs = list(plan.slabs_of(part.dims, 2).divided(8, 8))
    assert (slabs[-1].ranges.start, slabs[-1].ranges.nbytes) == last


@pytest.mark.parametrize(
    "selection",
    [
        np.s_[::-1, :],
        (0,),
        (5, 0),
        (np.array([9]), slice(None)),
        (np.array([-1]), slice(None)),
        (np.array([0]), 0),
        (np.array([0.5]), slice(None)),
        (np.array([[0, 1]]), slice(None)),
        np.ones((4, 3), bool),
    ],
    ids=[
        "negative step",
        "too short",
        "out of range",
        "list out of range",
        "from the end",
        "list beside an integer",
        "floats",
        "list of two axes",
        "mask",
    ],
)
def test_other_selections_are_left_to_numpy(selection):
    assert not is_of_zarr(selection, (4, 3))
