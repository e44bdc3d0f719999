"""The indices that a selection selects, dimension by dimension.

The forms are those that zarr passes to a codec, with NumPy's rules: integers, slices with a
positive step, arrays of integers that are broadcast against each other, and 1-D arrays of bools.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Dimension", "dimensions_of", "is_grid", "is_whole", "shape_of"]

Offsets: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dimension:
    """The selected indices of one dimension of a chunk.

    Attributes
    ----------
    low, high : int
        The first selected index, and one more than the last.
    count : int
        Number of distinct indices.
    entry : int, slice or array of int64
        The entry of the selection, without negative indices and bools.
    """

    low: int
    high: int
    count: int
    entry: Any

    def values(self) -> Offsets:
        """The distinct indices, ascending."""
        if isinstance(self.entry, slice):
            return np.arange(self.entry.start, self.entry.stop, self.entry.step)
        if self.count == 1:
            return np.array([self.low])
        return _distinct(np.asarray(self.entry, np.int64))

    def among(self, values: Offsets) -> Any:
        """NumPy index of the same elements in an array that has just those of `values`."""
        if isinstance(self.entry, slice):
            return slice(None)
        return 0 if isinstance(self.entry, int) else np.searchsorted(values, self.entry)

    def distinct(self) -> Dimension:
        """The same indices as a slice, or as an ascending array without repetitions."""
        if isinstance(self.entry, np.ndarray):
            return replace(self, entry=self.values())
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
            return Dimension(low, high, last - first, slice(low, high, step))
        entry = self.entry[first:last]
        return Dimension(int(entry[0]), int(entry[-1]) + 1, last - first, entry)

    def within(self) -> Any:
        """NumPy index of the same elements in an array that begins at `low`."""
        if isinstance(self.entry, slice):
            return slice(0, self.high - self.low, self.entry.step)
        return self.entry - self.low


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


def shape_of(chunk_shape: tuple[int, ...], selection: Sequence[Any]) -> tuple[int, ...]:
    """Shape of ``chunk[selection]``.

    Examples
    --------
    >>> shape_of((4, 3), (slice(None, None, 2), 1))
    (2,)
    """
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
        start, stop, step = entry.indices(size)
        if step < 1:
            return None
        count = len(range(start, stop, step))
        high = start + (count - 1) * step + 1 if count else start
        return Dimension(start, high, count, slice(start, high, step))
    if isinstance(entry, int) and 0 <= entry < size and not isinstance(entry, bool):
        return Dimension(entry, entry + 1, 1, entry)
    return _dimension_of_array(np.asarray(entry), size)


def _dimension_of_array(indices: npt.NDArray[Any], size: int) -> Dimension | None:
    if indices.dtype == bool:
        if indices.shape != (size,):
            return None
        indices = np.flatnonzero(indices)
    elif indices.dtype.kind not in "iu":
        return None
    if indices.size == 0:
        return Dimension(0, 0, 0, indices)
    low, high = int(indices.min()), int(indices.max()) + 1
    if low < 0 and high <= size and low >= -size:
        indices = np.where(indices < 0, indices + size, indices)
        low, high = int(indices.min()), int(indices.max()) + 1
    if low < 0 or high > size:
        return None  # NumPy will say what is wrong
    if indices.ndim == 0:
        return Dimension(low, high, 1, low)
    indices = indices.astype(np.int64, copy=False)
    return Dimension(low, high, _distinct(indices).size, indices)


def _distinct(indices: Offsets) -> Offsets:
    indices = indices.ravel()
    return indices if (indices[1:] > indices[:-1]).all() else np.unique(indices)


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
