"""The blocks of a selection: they are what was selected, and no larger than the window."""

from math import prod

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zarr_bytes.chunk.blocks import blocks_of

ITEM = np.dtype("V2048")  # of smaller elements these chunks have no blocks that are worth it


@st.composite
def selections(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=6))
    selection = []
    for size in shape:
        start, stop = draw(st.tuples(st.integers(0, size), st.integers(0, size)))
        entry = slice(start, stop, draw(st.integers(1, 3)))
        selection.append(draw(st.sampled_from([entry, slice(None), min(start, size - 1)])))
    return shape, tuple(selection)


@given(case=selections(), gap=st.integers(0, 10**4), most=st.integers(1, 10**5))
def test_they_are_what_numpy_selects(case, gap, most):
    shape, selection = case
    stored = (np.arange(prod(shape) * ITEM.itemsize) * 7 % 251).astype("u1")
    expected = stored.view(ITEM).reshape(shape)[(*selection, ...)]
    result = np.zeros(expected.shape, ITEM)
    blocks = blocks_of(shape, ITEM.itemsize, selection, gap, most)
    if blocks is None:  # all are small: a part of the first run that the gaps allow
        return
    for place, start, nbytes, block_shape, strides in blocks:
        assert nbytes <= max(most, ITEM.itemsize)
        part = stored[start : start + nbytes]
        assert part.size == nbytes
        result[place] = np.ndarray(block_shape, ITEM, part, strides=strides)
    assert np.array_equal(result.view("u1"), np.ascontiguousarray(expected).view("u1"))


@pytest.mark.parametrize(
    ("selection", "gap", "ranges"),
    [
        (np.s_[:, :, :], 0, [(0, 32000), (32000, 32000)]),
        (np.s_[1, :, :], 0, [(32000, 32000)]),
        (np.s_[:, 2:4, :], 0, [(16000, 16000), (48000, 16000)]),
        (np.s_[:, :, 10:], 0, [(80 + 8000 * i, 7920) for i in range(8)]),
        (np.s_[:, :, 10:], 80, [(80, 31920), (32080, 31920)]),
        (np.s_[:, ::2, :], 8000, [(0, 24000), (32000, 24000)]),
        (np.s_[:, ::2, :], 7999, [(8000 * i, 8000) for i in (0, 2, 4, 6)]),
        (np.s_[:, :, 7], 7992, [(56, 24008), (32056, 24008)]),
    ],
    ids=str,
)
def test_the_bytes_between_are_read_up_to_the_gap(selection, gap, ranges):
    """Of chunks of eight rows of 8,000 bytes, of which a block holds four."""
    blocks = blocks_of((2, 4, 1000), 8, selection, gap, 32000)
    assert [(block.start, block.nbytes) for block in blocks] == ranges


@pytest.mark.parametrize(
    "selection",
    [
        np.s_[::-1, :, :],
        np.s_[:0, :, :],
        np.s_[[0, 1], :, :],
        np.s_[:, :],
        np.s_[-1, :, :],
        np.s_[:, :, 7],  # eight bytes each
    ],
    ids=str,
)
def test_other_selections_have_none(selection):
    assert blocks_of((2, 4, 1000), 8, selection, 0, 32000) is None
