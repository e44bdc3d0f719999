"""Random selections of a chunk, for tests without zarr's own handling of them."""

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st


@st.composite
def entries(draw, size, *, is_of_zarr):
    """An index of one dimension: integer, slice with a step, list in any order, bools."""
    kind = draw(st.sampled_from(["integer", "slice", "array", "bools"]))
    if kind == "integer":
        return draw(st.integers(0 if is_of_zarr else -size, size - 1))
    if kind == "slice":
        start, stop = draw(st.tuples(st.integers(0, size), st.integers(0, size)))
        return slice(start, stop, draw(st.integers(1, 4)))
    if kind == "bools":
        return draw(hnp.arrays(bool, size))
    return np.array(draw(st.lists(st.integers(0, size - 1), max_size=6)), np.int64)


@st.composite
def selections(draw, *, is_of_zarr=False):
    """A chunk shape and a selection: of any form that NumPy knows, or one of zarr's four."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=7))
    form = draw(st.sampled_from(["basic", "orthogonal", "points"]))
    if form == "points" and shape:
        count = draw(st.integers(0, 8))
        index = st.integers(0, 10**6)
        return shape, tuple(
            np.array(draw(st.lists(index, min_size=count, max_size=count)), np.int64) % size
            for size in shape
        )
    selection = [draw(entries(size, is_of_zarr=is_of_zarr)) for size in shape]
    arrays = [i for i, entry in enumerate(selection) if isinstance(entry, np.ndarray)]
    if form == "orthogonal" and len(arrays) > 1:
        selection = [
            np.arange(size)[entry] if isinstance(entry, slice) else np.atleast_1d(entry)
            for entry, size in zip(selection, shape, strict=True)
        ]
        return shape, np.ix_(*selection)
    for i in arrays[1:]:  # only one array beside integers and slices
        selection[i] = slice(None)
    if is_of_zarr and arrays:
        selection = [slice(e, e + 1) if isinstance(e, int) else e for e in selection]
    return shape, tuple(selection)
