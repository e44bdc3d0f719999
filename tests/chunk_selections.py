"""Random selections of a chunk, for tests without zarr's own handling of them."""

import numpy as np
from hypothesis import strategies as st


def entry_of(random, size, *, is_of_zarr):
    """An index of one dimension: slice with a step, integer, list in any order, bools."""
    kind = random.integers(6)
    if kind == 0:
        return int(random.integers(0 if is_of_zarr else -size, size))
    if kind == 1:
        return random.integers(0, size, random.integers(7))
    if kind == 2:
        return random.random(size) < 0.6
    start, stop = (0, size) if kind == 3 else sorted(random.integers(0, size + 1, 2).tolist())
    return slice(start, stop, int(random.integers(1, 4)))


def selection_of(seed, *, is_of_zarr):
    """A chunk shape and a selection: of any form that NumPy knows, or one of zarr's four."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 8, random.integers(5)).tolist())
    form = random.choice(["basic", "orthogonal", "points"])
    if form == "points" and shape:
        count = random.integers(9)
        return shape, tuple(random.integers(0, size, count) for size in shape)
    selection = [entry_of(random, size, is_of_zarr=is_of_zarr) for size in shape]
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


def selections(*, is_of_zarr=False):
    """By chance, and not by Hypothesis, whose examples are small and alike."""
    return st.integers(0, 2**32).map(lambda seed: selection_of(seed, is_of_zarr=is_of_zarr))
