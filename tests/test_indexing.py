"""The plan of a selection: its ranges cover what they must, and take no more than they may.

The oracle is NumPy; `test_model.py` writes by such plans.
"""

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from chunk_selections import selections
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_arrays import most_memory

from zarr_bytes.indexing.plan import EVERYTHING, Fetch, plan_of
from zarr_bytes.indexing.selection import ChunkGrid, shape_of, view_of
from zarr_bytes.layout.format import Format, Sharding
from zarr_bytes.settings import Cost

GAPS, MOST = st.sampled_from([0, 0, 3, 4, 8, 20, 60, 200]), st.integers(1, 300)


def format_of(shape, dtype="f8", order=None, sharding=None):
    dtype = np.dtype(dtype)
    return Format(shape, dtype, None, order, sharding, bytes(dtype.itemsize))


@st.composite
def formats(draw, shape):
    """A format of a chunk or a shard."""
    order = draw(st.permutations(range(len(shape))).map(tuple) | st.none())
    sharding = None
    if draw(st.booleans()):
        inner = tuple(
            draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in shape
        )
        index_order = tuple(draw(st.permutations(range(len(shape)))))
        sharding = Sharding(inner, index_order, draw(st.booleans()), "big", False, False)
    return format_of(shape, draw(st.sampled_from(["u1", "<i2", ">f8", "V3"])), order, sharding)


class Index:
    """The places of inner chunks; negative for one that is absent."""

    def __init__(self, starts):
        self.places, self.starts = tuple(starts), starts

    def offset(self, number):
        return None if self.starts[number] < 0 else self.starts[number]


@settings(max_examples=200)
@given(data=st.data(), case=selections(is_of_zarr=True), gap=GAPS, most=MOST, seed=st.integers(0))
def test_the_result_is_what_numpy_selects(data, case, gap, most, seed):
    """Of the bytes of an object whose inner chunks lie anywhere, each element is put once."""
    shape, selection = case
    format, random = data.draw(formats(shape)), np.random.default_rng(seed)
    values = (np.arange(format.nbytes) * 7 % 251).astype("u1").view(format.dtype).reshape(shape)
    starts = [0]
    if format.sharding is not None:
        starts = format.inner_nbytes * random.permutation(2 * format.count)[: format.count]
        starts = [int(start) if random.random() < 0.8 else -1 for start in starts]
    content = np.zeros(max([*starts, 0]) + format.inner_nbytes, "u1")
    grid = ChunkGrid(shape, format.inner_shape)
    for place in np.ndindex(grid.counts):
        start = starts[format.grid.number_of(format.stored_order(place))]
        box = (*[slice(i * n, i * n + n) for i, n in zip(place, grid.inner, strict=True)], ...)
        if start < 0:
            values[box] = np.zeros((), format.dtype)
        else:
            inner = np.ascontiguousarray(values[box].transpose(format.order))
            content[start : start + format.inner_nbytes] = inner.reshape(-1).view("u1")
    expected = values[(*selection, ...)]
    size = shape_of(selection, shape)
    out, times = np.zeros(size, format.dtype), np.zeros(size, int)
    views = [view_of(array, format.order, selection) for array in (out, times)]
    for fetch in plan_of(format, selection, Cost(gap, most)).fetches(Index(starts), most):
        if not isinstance(fetch, Fetch):
            views[1][fetch] += 1
            continue
        fetched = fetch.ranges.of(content)
        assert fetched.size == fetch.ranges.nbytes
        for slab, place, at in fetch.slabs:
            views[0][place] = slab.elements(fetched[at:], format.dtype)
            views[1][place] += 1
    assert (times == 1).all()
    assert (out.shape, out.tobytes()) == (expected.shape, expected.tobytes())


def chunk_plan(shape, selection, cost, dtype="f8"):
    return plan_of(format_of(shape, dtype), selection, cost)


@settings(max_examples=200)
@given(case=selections(is_of_zarr=True), gap=GAPS)
def test_ranges_join_where_the_gap_allows_and_are_divided_where_they_are_many(case, gap):
    """Of elements of 4 bytes; the whole chunk is fetched where that costs less."""
    shape, selection = case
    numbers = np.arange(prod(shape)).reshape(shape)
    chosen = np.isin(numbers, numbers[selection]).reshape(-1)
    selected = np.flatnonzero(np.repeat(chosen, 4))
    plan = chunk_plan(shape, selection, Cost(0, EVERYTHING), "i4")
    found = [plan.slabs_of(part.dims, gap) for part in plan.parts()]
    if not selected.size:
        assert found == []
        return
    (slabs,) = found
    apart = np.flatnonzero(np.diff(selected) - 1 > gap)
    starts, stops = slabs.whole.ranges.bounds()
    assert starts.tolist() == [selected[0], *selected[apart + 1]]
    assert stops.tolist() == [*(selected[apart] + 1), selected[-1] + 1]
    span = slabs.span
    assert (span.ranges, span.fetched * 4) == (starts.size, (stops - starts).sum())
    assert span.selected == numbers[selection].size
    some = range(1, 13)
    for most, runs in (*((4 * n, EVERYTHING) for n in some), *((EVERYTHING, n) for n in some)):
        covered = set()
        for slab in slabs.divided(most, runs):
            starts, stops = slab.ranges.bounds()
            assert slab.ranges.nbytes == (stops - starts).sum() <= most
            assert slab.ranges.number_of_ranges() == starts.size <= runs
            assert (stops[:-1] < starts[1:]).all()
            covered.update(*map(range, starts, stops))
        assert set(selected) <= covered <= set(range(selected[0], selected[-1] + 1))
    plan = chunk_plan(shape, selection, Cost(gap, 10**9), "i4")
    assert plan.is_whole or plan.ranges * gap + plan.nbytes <= gap + 4 * prod(shape)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 3), (3, 1, 2), (2, 2, 3)], ids=str)
def test_elements_of_a_chunk_are_a_box_with_their_longest_gap(shape):
    values, grid = np.arange(prod(shape)).reshape(shape), ChunkGrid(shape, shape)
    steps = (1, 2)
    every = [
        [*range(n), *(slice(*s) for s in product(range(n), range(n + 1), steps))] for n in shape
    ]
    for selection in product(*every):
        selected = values[(*selection, ...)]
        flat, box = sorted(selected.ravel().tolist()), grid.box(selection)
        assert (box is None) == (not flat)
        if box is not None:
            assert (box.number, box.start, box.extent) == (0, flat[0], flat[-1] + 1 - flat[0])
            assert box.gap == max([b - a - 1 for a, b in pairwise(flat)], default=0)
            content = values.ravel()[box.start : box.start + box.extent].copy()
            strides = [8 * n for n in box.strides]
            found = np.ndarray(box.shape, values.dtype, content, 0, strides)
            assert found.ravel().tolist() == flat


def test_a_box_is_in_one_chunk():
    grid = ChunkGrid((6, 7), (3, 4))
    assert grid.box((slice(2, 4), 0)) is None
    assert grid.box((4, slice(3, 5))) is None
    box = grid.box((4, slice(4, 7, 2)))
    assert (box.number, box.start, box.extent, box.gap) == (3, 4, 3, 1)


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
    """Of a chunk of 8 TB."""
    cost = Cost(2**15, 2**24)
    plan, peak = most_memory(lambda: chunk_plan((10**6, 10**6), selection, cost))
    assert plan.nbytes <= 8 * 10**6
    assert peak < 200 * 10**6


def test_a_selection_of_ten_billion_ranges_is_counted_without_being_made():
    shape, cost = (10**5, 10**5, 10), Cost(0, EVERYTHING)
    plan, peak = most_memory(lambda: chunk_plan(shape, np.s_[:, :, 3], cost))
    assert (plan.ranges, plan.nbytes) == (10**10, 8 * 10**10)
    assert peak < 10**5
