"""The forms of a selection of a chunk, as zarr passes them to a codec, with NumPy's rules.

Integers, slices with a positive step, arrays of integers that are broadcast against each other, and
1-D arrays of bools.
"""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.chunk.grid import Axis, Grid, c_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.grid import Offsets

__all__ = ["entries_of", "grid_of", "grid_of_array", "in_shape", "is_basic", "together_of"]

_Entry: TypeAlias = "int | range | Offsets"  # without bools and negative indices

_BASIC: Final = frozenset((int, slice))
_MOST_ELEMENTS: Final = 2**62  # so that sums of offsets fit into int64


def grid_of(
    chunk_shape: tuple[int, ...], selection: Sequence[Any], order: tuple[int, ...] | None = None
) -> Grid | None:
    """Grid of a selection of a chunk.

    Parameters
    ----------
    chunk_shape : tuple of int
        Shape of the chunk in the array, before any transpose.
    selection : sequence
        One entry an axis.
    order : tuple of int or None
        The axis of the chunk that each stored axis is (transpose codec 1.0); None where they are
        stored in their order.

    Returns
    -------
    Grid or None
        None for a selection of another form, which NumPy may still accept for the whole chunk, and
        for chunks of 2**62 elements or more, which no store holds.

    Examples
    --------
    >>> grid = grid_of((4, 3), (slice(1, 4, 2), 2))
    >>> grid.shape, grid.strides
    ((2, 1), (3, 1))
    """
    return grid_of_array(chunk_shape, selection, order) if _fits(chunk_shape) else None


def grid_of_array(
    shape: tuple[int, ...], selection: Sequence[Any], order: tuple[int, ...] | None = None
) -> Grid | None:
    """`grid_of` for a whole array, which may have any number of elements.

    None also for points of an array of 2**62 elements or more.
    """
    if len(selection) != len(shape):
        return None
    nesting = tuple(range(len(shape))) if order is None else order
    strides = c_strides(shape, order=order)
    entries = []
    for entry, size in zip(selection, shape, strict=True):
        found = _entry_of(entry, size)
        if found is None:
            return None
        entries.append(found)
    arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
    if arrays:
        together = together_of(arrays)
        if together is None:
            return None
        if not _are_combined(arrays):
            if any(type(entry) is range for entry in entries) or not _fits(shape):
                return None
            offsets = np.zeros(together, np.int64)
            for points, stride in zip(entries, strides, strict=True):
                offsets += np.asarray(points) * stride
            return Grid((_axis_of(offsets),), (1,), (0,), (offsets.shape,))
    shapes = tuple(
        [0 if type(e) is range else None if type(e) is int else np.shape(e) for e in entries]
    )
    return Grid(tuple(map(_axis_of, entries)), strides, nesting, shapes)


def together_of(arrays: Sequence[Offsets]) -> tuple[int, ...] | None:
    """Shape of arrays of indices that NumPy broadcasts against each other; None if it refuses."""
    try:
        return np.broadcast_shapes(*[array.shape for array in arrays])
    except ValueError:
        return None


def entries_of(selection: Any) -> tuple[Any, ...]:
    """The entries of a selection as a tuple, also of one entry without a tuple.

    Examples
    --------
    >>> entries_of(5), entries_of((5, 6))
    ((5,), (5, 6))
    """
    return selection if isinstance(selection, tuple) else (selection,)


def is_basic(selection: Any) -> bool:
    """Whether a selection is made of integers and slices.

    Examples
    --------
    >>> is_basic((slice(3), 5)), is_basic((slice(3), np.array([5])))
    (True, False)
    """
    return _BASIC.issuperset(map(type, entries_of(selection)))


def in_shape(value: Array, shape: tuple[int, ...]) -> Array:
    """`value` with the axes of length 1 that `shape` has for integers, and zarr has dropped.

    Raises
    ------
    ValueError
        If NumPy cannot broadcast `value` to `shape`.
    """
    if value.shape in (shape, ()):
        return value
    found = list(value.shape)
    while len(found) > len(shape) and found[0] == 1:  # as NumPy assigns
        del found[0]
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    for axes in combinations(ones, max(len(shape) - len(found), 0)):
        candidate = found.copy()
        for axis in axes:
            candidate.insert(axis, 1)
        if len(candidate) == len(shape) and all(
            size in (1, selected) for size, selected in zip(candidate, shape, strict=True)
        ):
            return value.reshape(candidate)
    raise ValueError(
        f"elements of shape {value.shape} do not fit the selection of the chunk, which has the"
        f" shape {shape}"
    )


def _entry_of(entry: Any, size: int) -> _Entry | None:
    if type(entry) is slice:
        start, stop, step = entry.indices(size)
        return range(start, stop, step) if step > 0 else None
    if type(entry) is range:
        return entry if entry.step > 0 else None
    if type(entry) is int and 0 <= entry < size:
        return entry
    indices = np.asarray(entry)
    if indices.dtype == bool:
        if indices.shape != (size,):
            return None
        indices = np.flatnonzero(indices)
    elif indices.dtype.kind not in "iu":
        return None
    if indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < -size or high >= size:
            return None  # NumPy raises the error
        if low < 0:
            indices = np.where(indices < 0, indices + size, indices)
    return int(indices) if indices.ndim == 0 else indices.astype(np.int64, copy=False)


def _axis_of(entry: _Entry) -> Axis:
    if type(entry) is int:
        return Axis(range(entry, entry + 1), slice(0, 1))
    if type(entry) is range:
        return Axis(entry, slice(0, len(entry)))
    indices, targets = np.ravel(entry), slice(0, np.size(entry))
    steps = np.diff(indices)
    if steps.size and steps.min() < 0:
        # Stable, since the last value counts for an index that is written twice.
        # NumPy sorts integers of 16 bits ten times as fast.
        keys = indices.astype(np.uint16) if indices.max() < 2**16 else indices
        order = np.argsort(keys, kind="stable")
        indices = indices[order]
        return Axis(_regular(indices, np.diff(indices)), order)
    return Axis(_regular(indices, steps), targets)


def _regular(indices: Offsets, steps: Offsets) -> range | Offsets:
    """Ascending indices as a range, where they are one."""
    if not indices.size:
        return range(0)
    step = int(steps[0]) if steps.size else 1
    if not step or (steps != step).any():
        return indices
    return range(int(indices[0]), int(indices[-1]) + 1, step)


def _fits(shape: tuple[int, ...]) -> bool:
    """Whether an array or chunk has few enough elements for offsets of int64."""
    return prod(shape) < _MOST_ELEMENTS


def _are_combined(arrays: Sequence[Offsets]) -> bool:
    """Whether every combination of the arrays is selected, each with axes of its own."""
    long_axes = [{axis - a.ndim for axis in range(a.ndim) if a.shape[axis] > 1} for a in arrays]
    return sum(map(len, long_axes)) == len(set().union(*long_axes))
