"""Selections of a chunk whose axes are stored in another order. The oracle is NumPy."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from test_byte_ranges import selections
from zarr.core.array_spec import ArrayConfig, ArraySpec

from zarr_bytes.chunk.transposition import Transposition


@st.composite
def transposed(draw):
    """A chunk, the orders of one transpose after another, and a selection."""
    shape, selection = draw(selections())
    chunk = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    orders = draw(st.lists(st.permutations(range(len(shape))), max_size=3))
    return chunk, orders, selection


def stored(chunk, orders):
    for order in orders:
        chunk = chunk.transpose(order)
    return chunk


@given(transposed())
def test_a_selection_is_one_of_the_stored_chunk_with_its_axes_exchanged(case):
    chunk, orders, selection = case
    transposition = Transposition.of(orders)
    if not transposition.is_possible(selection):
        return
    selected = np.asarray(stored(chunk, orders)[(*transposition.selection(selection), ...)])
    expected = np.asarray(chunk[(*selection, ...)])
    assert np.array_equal(transposition.from_stored(selected, selection), expected)
    assert np.array_equal(transposition.to_stored(expected, selection), selected)


@given(transposed())
def test_slices_and_integers_are_always_possible(case):
    _, orders, selection = case
    basic = tuple(entry if isinstance(entry, int | slice) else slice(1) for entry in selection)
    assert Transposition.of(orders).is_possible(basic)


@pytest.mark.parametrize(
    "selection",
    [
        (np.array([0, 2]), slice(3), np.array([1, 0])),
        (np.array([0, 2]), slice(3), 1),
        (slice(2), slice(3)),
    ],
    ids=["arrays beside a slice", "an array beside both", "fewer entries than axes"],
)
def test_where_numpy_moves_axes_a_selection_is_left_to_zarr(selection):
    assert not Transposition((2, 0, 1)).is_possible(selection)
    assert Transposition(None).is_possible(selection)


@given(transposed())
def test_the_stored_shape_is_that_of_the_transposed_chunk(case):
    chunk, orders, _ = case
    spec = ArraySpec(
        shape=chunk.shape,
        dtype=zarr.dtype.Int32(),
        fill_value=0,
        config=ArrayConfig.from_dict({}),
        prototype=zarr.buffer.cpu.buffer_prototype,
    )
    assert Transposition.of(orders).spec(spec).shape == stored(chunk, orders).shape


@pytest.mark.parametrize("orders", [[], [(0, 1, 2)], [(1, 2, 0), (2, 0, 1)]], ids=str)
def test_transposes_that_undo_each_other_are_none(orders):
    assert Transposition.of(orders) == Transposition(None)


def test_neither_way_copies():
    chunk, selection = np.zeros((3, 4, 5)), (slice(2), 1, slice(None))
    transposition = Transposition((2, 0, 1))
    assert np.shares_memory(transposition.to_stored(chunk[selection], selection), chunk)
    assert np.shares_memory(transposition.from_stored(chunk[selection], selection), chunk)
