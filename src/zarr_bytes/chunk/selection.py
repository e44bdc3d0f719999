"""The indices that a selection selects, dimension by dimension.

The forms are those that zarr passes to a codec, with NumPy's rules: integers, slices with a
positive step, arrays of integers that are broadcast against each other, and 1-D arrays of bools.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Dimension",
    "arranged",
    "combined",
    "dimensions_of",
    "entries_of",
    "has_both_ends",
    "is_grid",
    "is_whole",
    "shape_of",
]

Offsets: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dimension:
    """The selected indices of one dimension of a chunk.

    Attributes
    ----------
    low, high : int
        The first selected index, and one more than the last.
    entry : int, slice or array of int64
        The entry of the selection, without negative indices and bools.
    """

    low: int
    high: int
    entry: Any

    @cached_property
    def count(self) -> int:
        """Number of distinct indices."""
        if isinstance(self.entry, slice):
            return len(range(self.entry.start, self.entry.stop, self.entry.step))
        return 1 if isinstance(self.entry, int) else self.values.size

    @cached_property
    def values(self) -> Offsets:
        """The distinct indices, ascending."""
        if isinstance(self.entry, slice):
            return np.arange(self.entry.start, self.entry.stop, self.entry.step)
        if isinstance(self.entry, int):
            return np.array([self.entry])
        return _distinct(np.asarray(self.entry, np.int64))

    def among(self, values: Offsets) -> Any:
        """NumPy index of the same elements in an array that has just those of `values`."""
        if isinstance(self.entry, slice):
            return slice(None)
        return 0 if isinstance(self.entry, int) else np.searchsorted(values, self.entry)

    def distinct(self) -> Dimension:
        """The same indices as a slice, or as an ascending array without repetitions."""
        if isinstance(self.entry, np.ndarray):
            return replace(self, entry=self.values)
        return (
            self
            if isinstance(self.entry, slice)
            else replace(self, entry=slice(self.low, self.high, 1))
        )

    def part(self, first: int, last: int) -> Dimension:
        """Number `first` to `last`, exclusive, of the indices of a `distinct` dimension."""
        if isinstance(self.entry, slice):
            step = self.entry.step
            low, high = self.low + first * step, self.low + (last - 1) * step + 1
            return Dimension(low, high, slice(low, high, step))
        entry = self.entry[first:last]
        return Dimension(int(entry[0]), int(entry[-1]) + 1, entry)

    def within(self) -> Any:
        """NumPy index of the same elements in an array that begins at `low`."""
        if isinstance(self.entry, slice):
            return slice(0, self.high - self.low, self.entry.step)
        return self.entry - self.low


def entries_of(selection: Any) -> tuple[Any, ...]:
    """The entries of a selection, of which one alone need not be in a tuple.

    Examples
    --------
    >>> entries_of(5), entries_of((5, 6))
    ((5,), (5, 6))
    """
    return selection if isinstance(selection, tuple) else (selection,)


def is_whole(chunk_shape: tuple[int, ...], selection: Sequence[Any]) -> bool:
    """Whether slices select every element of a chunk, in its order.

    Examples
    --------
    >>> is_whole((4, 3), (slice(None), slice(0, 3))), is_whole((4, 3), (slice(None), slice(1)))
    (True, False)
    """
    for entry, size in zip(selection, chunk_shape, strict=False):
        if not isinstance(entry, slice):
            return False
        # The form that zarr gives, before `indices` is asked: this is done for every small chunk.
        if entry != slice(0, size, 1) and entry.indices(size) != (0, size, 1):
            return False
    return True


def has_both_ends(chunk_shape: tuple[int, ...], selection: Sequence[Any]) -> bool:
    """Whether slices and integers select the first and the last element of a chunk.

    Examples
    --------
    >>> has_both_ends((5, 3), (slice(0, 5, 2), slice(3))), has_both_ends((5,), (slice(4),))
    (True, False)
    """
    for entry, size in zip(selection, chunk_shape, strict=False):
        if type(entry) is not int and not isinstance(entry, slice):
            return False
        indices = range(size)[entry] if isinstance(entry, slice) else [entry]
        if not indices or {indices[0], indices[-1]} != {0, size - 1}:
            return False
    return True


def shape_of(chunk_shape: tuple[int, ...], selection: Sequence[Any]) -> tuple[int, ...]:
    """Shape of ``chunk[selection]``.

    Examples
    --------
    >>> shape_of((4, 3), (slice(None, None, 2), 1))
    (2,)
    """
    if len(selection) == len(chunk_shape) and all(type(e) in (int, slice) for e in selection):
        pairs = zip(selection, chunk_shape, strict=True)
        return tuple(len(range(*e.indices(n))) for e, n in pairs if type(e) is slice)
    selected: npt.NDArray[np.bool_] = np.broadcast_to(np.True_, chunk_shape)[tuple(selection)]
    return selected.shape


def dimensions_of(chunk_shape: tuple[int, ...], selection: Sequence[Any]) -> list[Dimension] | None:
    """One `Dimension` for each of the chunk's, or None if the selection has another form.

    Examples
    --------
    >>> [d.count for d in dimensions_of((4, 3), (slice(1, 4, 2), 2))]
    [2, 1]
    """
    if len(selection) != len(chunk_shape):
        return None
    dimensions = []
    for entry, size in zip(selection, chunk_shape, strict=True):
        dimension = _dimension(entry, size)
        if dimension is None:
            return None
        dimensions.append(dimension)
    return dimensions


def _dimension(entry: Any, size: int) -> Dimension | None:
    if isinstance(entry, slice):
        return _of_slice(entry, size)
    if type(entry) is int and 0 <= entry < size:  # the usual form, worth 10 microseconds
        return Dimension(entry, entry + 1, entry)
    indices = np.asarray(entry)
    if indices.dtype == bool:
        if indices.shape != (size,):
            return None
        indices = np.flatnonzero(indices)
    elif indices.dtype.kind not in "iu":
        return None
    if indices.size == 0:
        return Dimension(0, 0, indices)
    low, high = int(indices.min()), int(indices.max()) + 1
    if low < 0 and high <= size and low >= -size:
        indices = np.where(indices < 0, indices + size, indices)
        low, high = int(indices.min()), int(indices.max()) + 1
    if low < 0 or high > size:
        return None  # NumPy will say what is wrong
    if indices.ndim == 0:
        return Dimension(low, high, low)
    return Dimension(low, high, indices.astype(np.int64, copy=False))


def _of_slice(entry: slice, size: int) -> Dimension | None:
    start, stop, step = entry.indices(size)
    if step < 1:
        return None
    count = len(range(start, stop, step))
    high = start + (count - 1) * step + 1 if count else start
    return Dimension(start, high, slice(start, high, step))


def _distinct(indices: Offsets) -> Offsets:
    indices = indices.ravel()
    if (indices[1:] > indices[:-1]).all():
        return indices
    indices = np.sort(indices)  # not `np.unique`, which takes ten times as long from NumPy 2.3 on
    return indices[np.concatenate(([True], indices[1:] != indices[:-1]))]


def is_grid(arrays: Sequence[Offsets]) -> bool:
    """Whether every combination of the arrays is selected: none runs along the axis of another.

    Examples
    --------
    >>> rows, columns = np.arange(3)[:, None], np.arange(2)
    >>> is_grid([rows, columns]), is_grid([columns, columns])
    (True, False)
    """
    long_axes = [{axis - a.ndim for axis in range(a.ndim) if a.shape[axis] > 1} for a in arrays]
    return sum(map(len, long_axes)) == len(set().union(*long_axes))


def arranged(combinations: npt.NDArray[Any], dimensions: Sequence[Dimension]) -> npt.NDArray[Any]:
    """The elements of a grid in the shape in which NumPy gives them.

    Parameters
    ----------
    combinations : array
        The selected elements, with one axis for each dimension, as long as its entry.
    dimensions : sequence of Dimension
        Those of a selection that `is_grid`.

    Returns
    -------
    array
        A view of `combinations`, if that is C-contiguous.

    Examples
    --------
    >>> columns_first = dimensions_of((2, 3), (np.arange(2), np.arange(3)[:, None]))
    >>> arranged(np.zeros((2, 3)), columns_first).shape
    (3, 2)
    """
    sizes, order, shape = _arrangement(dimensions)
    return combinations.reshape(sizes).transpose(order).reshape(shape)


def combined(
    elements: npt.NDArray[Any], dimensions: Sequence[Dimension], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """The inverse of `arranged`: one axis for each dimension, and `shape`.

    Examples
    --------
    >>> dimensions = dimensions_of((4, 9), (slice(4), 5))
    >>> combined(np.zeros(4), dimensions, (4, 1)).shape
    (4, 1)
    """
    sizes, order, _ = _arrangement(dimensions)
    in_order = elements.reshape([sizes[axis] for axis in order])
    return in_order.transpose(np.argsort(order)).reshape(shape)


def _arrangement(
    dimensions: Sequence[Dimension],
) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Lengths of the axes of a grid, the order in which NumPy gives them, and its shape there."""
    arrays = {i: np.shape(d.entry) for i, d in enumerate(dimensions) if not _is_slice(d)}
    together = np.broadcast_shapes(*arrays.values())
    # The axes of arrays stand where the first array is; before all others, if a slice parts them.
    first = min(arrays, default=0)
    before = first if len(arrays) == max(arrays, default=0) - first + 1 else 0
    axes: list[tuple[tuple[int, int], int]] = []  # where it stands in the result, and its length
    for i, d in enumerate(dimensions):
        if i not in arrays:
            axes.append(((0 if i < before else 2, i), d.count))
            continue
        for axis, size in enumerate(arrays[i], len(together) - len(arrays[i])):
            if size > 1:
                axes.append(((1, axis), size))
    order = sorted(range(len(axes)), key=axes.__getitem__)
    sizes = [size for (part, _), size in sorted(axes) if part != 1]
    shape = (*sizes[:before], *together, *sizes[before:])
    return [size for _, size in axes], order, shape


def _is_slice(dimension: Dimension) -> bool:
    return isinstance(dimension.entry, slice)
