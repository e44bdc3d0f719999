"""The plan alone: it covers what it must, and costs no more than it may. The oracle is NumPy."""

import tracemalloc
from itertools import product
from math import prod

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zarr_bytes.chunk.byte_ranges import plan_one_run, plan_reading, plan_whole_chunk
from zarr_bytes.chunk.parts import Limits, plan_selection
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.settings import Cost

COSTS = st.builds(Cost, st.integers(0, 200), st.integers(1, 300))


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


def read(plan, chunk):
    """What the plan makes of a chunk."""
    stored = chunk.reshape(-1).view("u1")
    ranges = zip(plan.starts, plan.stops, strict=True)
    parts = [stored[start:stop] for start, stop in ranges]
    return plan.select(np.concatenate([np.empty(0, "u1"), *parts]), chunk.dtype)


@given(case=selections(), cost=COSTS, dtype=st.sampled_from(["u1", "<i2", ">f8", "V3"]))
def test_the_result_is_what_numpy_selects(case, cost, dtype):
    shape, selection = case
    size = prod(shape) * np.dtype(dtype).itemsize
    chunk = (np.arange(size) * 7 % 251).astype("u1").view(dtype).reshape(shape)
    for plan in (
        plan_reading(shape, chunk.dtype.itemsize, selection, cost),
        plan_whole_chunk(shape, chunk.dtype.itemsize, selection),
    ):
        result = read(plan, chunk)
        expected = chunk[(*selection, ...)]
        assert result.shape == expected.shape
        assert result.tobytes() == expected.tobytes()


@given(
    case=selections(),
    cost=COSTS,
    limits=st.builds(Limits, st.integers(1, 60), st.integers(1, 20)),
    dtype=st.sampled_from(["u1", "<i2", ">f8"]),
)
def test_a_selection_in_parts_is_what_numpy_selects(case, cost, limits, dtype):
    shape, selection = case
    size = prod(shape) * np.dtype(dtype).itemsize
    chunk = (np.arange(size) * 7 % 251).astype("u1").view(dtype).reshape(shape)
    expected = chunk[(*selection, ...)]
    parts = plan_selection(shape, chunk.dtype.itemsize, selection, cost, limits)
    if isinstance(parts, Plan):
        result = read(parts, chunk)
        assert parts.nbytes <= limits.fetched + expected.nbytes
    else:
        filled = np.empty(parts.shape, chunk.dtype)
        times = np.zeros(parts.shape, int)
        for places, plan in parts.plans:
            assert plan.nbytes <= max(limits.fetched, chunk.dtype.itemsize)
            elements = read(plan, chunk)
            for target, source in places:
                assert elements[source].nbytes <= max(limits.fetched, chunk.dtype.itemsize)
                filled[target] = elements[source]
                times[target] += 1
        assert (times == 1).all()
        result = parts.selected(filled)
        assert np.may_share_memory(result, filled)
    assert result.shape == expected.shape
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 3), (3, 1, 2), (2, 2, 3)], ids=str)
def test_elements_that_follow_each_other_are_one_run(shape):
    chunk = np.arange(prod(shape), dtype="<u2").reshape(shape)
    entries = [
        [
            *range(size),
            *(slice(a, b, c) for a in range(size) for b in range(size + 1) for c in (1, 2)),
        ]
        for size in shape
    ]
    for selection in product(*entries):
        expected = chunk[(*selection, ...)]
        flat = expected.ravel().tolist()
        is_one_run = flat and flat == list(range(flat[0], flat[0] + len(flat)))
        plan = plan_one_run(shape, 2, selection, Cost(0, 100))
        if plan is None:
            steps = any(isinstance(entry, slice) and entry.step == 2 for entry in selection)
            assert not is_one_run or steps or len(flat) == chunk.size
        else:
            assert is_one_run
            assert plan.starts.size == 1
            result = read(plan, chunk)
            assert result.shape == expected.shape
            assert result.ravel().tolist() == flat


@given(case=selections(), cost=COSTS)
def test_ranges_are_sorted_disjoint_in_bounds_and_not_too_large(case, cost):
    shape, selection = case
    plan = plan_reading(shape, 4, selection, cost)
    assert (plan.starts >= 0).all()
    assert (plan.stops <= 4 * prod(shape)).all()
    assert (plan.starts < plan.stops).all()
    assert (plan.stops[:-1] <= plan.starts[1:]).all()
    if not plan.is_whole_chunk:
        assert (plan.stops - plan.starts <= cost.largest_request).all()


@given(case=selections(), gap=st.integers(0, 200))
def test_the_cost_is_never_above_that_of_the_whole_chunk(case, gap):
    shape, selection = case
    plan = plan_reading(shape, 4, selection, Cost(gap, 10**9))
    assert plan.starts.size * gap + plan.nbytes <= gap + 4 * prod(shape)


@given(case=selections())
def test_nothing_is_read_that_is_not_needed_where_requests_are_free(case):
    shape, selection = case
    plan = plan_reading(shape, 4, selection, Cost(0, 10**9))
    numbers = np.arange(prod(shape)).reshape(shape)
    assert plan.nbytes == 4 * np.unique(numbers[selection]).size


SHAPE = (1000, 1000, 1000)  # of 8 bytes: 8 GB


@pytest.mark.parametrize(
    ("selection", "requests", "nbytes"),
    [
        (np.s_[3, :, :], 1, 8_000_000),
        (np.s_[3, 4, :], 1, 8_000),
        (np.s_[3, 4, 5], 1, 8),
        (np.s_[:, 4, 5], 1000, 8_000),
        (np.s_[10:20, 30:40, :], 10, 10 * 10 * 8_000),
        (np.s_[3, ::2, 5], 1, 998 * 8_000 + 8),  # a gap of 16 kB is worth bridging
        (np.s_[[1, 2, 3, 900], :, :], 2, 4 * 8_000_000),
        (np.ix_([5, 9], [1, 2], np.arange(1000)), 2, 2 * 2 * 8_000),
        ((np.array([5, 9]), np.array([1, 2]), np.array([0, 1])), 2, 16),
        (np.s_[:, :, :], 1, 8_000_000_000),
    ],
    ids=["plane", "row", "point", "column", "box", "stepped", "list", "grid", "points", "whole"],
)
def test_requests_and_bytes_of_usual_selections(selection, requests, nbytes):
    plan = plan_reading(SHAPE, 8, selection, Cost(2**15, 2**40))
    assert (plan.starts.size, plan.nbytes) == (requests, nbytes)


def test_a_column_of_a_million_short_rows_is_one_request():
    plan = plan_reading((10**6, 10), 8, np.s_[:, 3], Cost(2**15, 2**40))
    assert plan.starts.size == 1
    assert plan.nbytes == 80 * (10**6 - 1) + 8


@pytest.mark.parametrize(
    "selection",
    [np.s_[:, 3], (np.arange(0, 10**6, 7), 3), (np.arange(10**5) * 9, np.zeros(10**5, int))],
    ids=["column", "list", "points"],
)
def test_memory_is_that_of_the_result(selection):
    tracemalloc.start()
    plan = plan_reading((10**6, 10**6), 8, selection, Cost(2**15, 2**24))  # of a chunk of 8 TB
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.nbytes <= 8 * 10**6
    assert peak < 200 * 10**6


@pytest.mark.parametrize(
    "selection",
    [(0, slice(0, 10**9, 1000)), (np.zeros(10**6, int), np.arange(10**6) * 1000)],
    ids=["stepped", "points"],
)
def test_runs_take_no_memory_of_their_own_accord(selection):
    """A million runs of a byte: 64 MiB at most, beside the offsets of a million points."""
    tracemalloc.start()
    try:
        parts = plan_selection((2, 10**9), 1, selection, Cost(0, 2**30))
        _, first = next(parts.plans)
        runs = sum(1 for _ in first.ranges()) + sum(plan.nbytes for _, plan in parts.plans)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert runs == 10**6
    assert peak < 64 * 2**20


@pytest.mark.parametrize(
    "selection",
    [np.s_[::-1, :], (0,), (5, 0), (np.array([9]), 0), (np.array([0.5]), 0), np.ones((4, 3), bool)],
    ids=["negative step", "too short", "out of range", "list out of range", "floats", "mask"],
)
def test_other_selections_are_left_to_numpy(selection):
    assert plan_reading((4, 3), 8, selection, Cost(0, 100)) is None
