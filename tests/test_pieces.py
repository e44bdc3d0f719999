"""The pieces of a selection by arrays of indices; the oracle is NumPy."""

from math import prod

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zarr_bytes.chunk.pieces import pieces_of


def put_together(chunk, shape, selection, out_selection, drop_axes, most):
    """The result that the pieces fill, and how many elements each has."""
    result = np.full(shape, -1)
    sizes = []
    pieces = pieces_of(chunk.shape, selection, out_selection, drop_axes, most)
    for piece, place in pieces:
        elements = chunk[piece]
        sizes.append(elements.size)
        result[place] = elements.squeeze(axis=drop_axes)
    return result, sizes


@given(data=st.data(), most=st.integers(1, 40))
def test_points_are_divided_into_pieces(data, most):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=6))
    count = data.draw(st.integers(1, 60))
    points = tuple(
        data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, n - 1))) for n in shape
    )
    chunk = np.arange(prod(shape)).reshape(shape)
    where = data.draw(
        st.sampled_from([slice(3, 3 + count), 3 + np.random.default_rng(0).permutation(count)])
    )
    result, sizes = put_together(chunk, count + 5, points, where, (), most)
    expected = np.full(count + 5, -1)
    expected[where] = chunk[points]
    assert np.array_equal(result, expected)
    assert max(sizes) <= most


@given(data=st.data(), most=st.integers(1, 200))
def test_combinations_are_divided_along_their_longest_array(data, most):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=3, max_side=6))
    chunk = np.arange(prod(shape)).reshape(shape)
    entries, dropped = [], ()
    for axis, size in enumerate(shape):
        kind = data.draw(st.sampled_from(["array", "bools", "slice", "integer"]))
        if kind == "integer":
            entries.append(np.array([data.draw(st.integers(0, size - 1))]))
            dropped += (axis,)
        elif kind == "slice":
            entries.append(np.arange(0, size, data.draw(st.integers(1, 2))))
        elif kind == "bools":
            entries.append(np.flatnonzero(data.draw(hnp.arrays(bool, size))))
        else:
            indices = st.lists(st.integers(0, size - 1), max_size=9)
            entries.append(np.array(data.draw(indices), np.int64))
    kept = [entry.size for axis, entry in enumerate(entries) if axis not in dropped]
    places = [np.random.default_rng(0).permutation(size) for size in kept]
    selection, where = np.ix_(*entries), np.ix_(*places) if places else ()
    result, sizes = put_together(chunk, kept, selection, where, dropped, most)
    expected = np.full(kept, -1)
    expected[where] = chunk[selection].squeeze(axis=dropped)
    assert np.array_equal(result, expected)
    others = prod(entry.size for entry in entries) // max(max(e.size for e in entries), 1)
    assert max(sizes, default=0) <= max(most, others)


@pytest.mark.parametrize(
    ("selection", "out_selection", "lengths"),
    [
        ((slice(0, 4), np.array([5, 1, 3])), (slice(2, 6), slice(0, 3)), [8, 4]),
        ((slice(0, 4, 2), np.array([5, 1, 3])), (slice(0, 2), np.array([0, 2, 1])), [6]),
        ((slice(0, 4), np.arange(6) % 2 == 0), (slice(2, 6), slice(0, 3)), [8, 4]),
        ((np.array([1, 0, 2]), slice(0, 6)), (slice(0, 3),), [6, 6, 6]),
    ],
    ids=["array", "stepped", "bools", "rows"],
)
def test_one_array_beside_slices(selection, out_selection, lengths):
    chunk = np.arange(24).reshape(4, 6)
    expected = np.full((8, 6), -1)
    expected[out_selection] = chunk[selection]
    result, sizes = put_together(chunk, (8, 6), selection, out_selection, (), 8)
    assert np.array_equal(result, expected)
    assert sizes == lengths


def test_slices_are_left_as_they_are():
    selection, where = (slice(1, 3), 2), (slice(0, 2),)
    assert list(pieces_of((4, 4), selection, where, (), 1)) == [(selection, where)]
