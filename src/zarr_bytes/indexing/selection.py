"""The selection of a stored object, in the four forms that zarr sends to a pipeline.

Integers and slices; one array of integers or bools beside slices; arrays as of ``numpy.ix_``; and
points, one array of the same length for each axis. The selection and the view of `out` are
transposed once, here: everything below works in the stored order of axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Array: TypeAlias = npt.NDArray[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = "range | Offsets"

_BASIC: Final = frozenset((int, slice))


class Dim:
    """Selected indices along an axis, ascending, and their places along the axis of `out`."""

    __slots__ = ("indices", "out")

    def __init__(self, indices: Indices, out: int | Offsets) -> None:
        self.indices = indices
        self.out = out  # place of the first, where the others follow it

    def out_of(self, first: int, last: int) -> slice | Offsets:
        """Places of the indices number `first` to `last`, exclusive."""
        out = self.out
        return slice(out + first, out + last) if isinstance(out, int) else out[first:last]

    def part(self, indices: Indices, first: int) -> Dim:
        """A dim with the places of the indices from number `first` on."""
        out = self.out
        last = first + len(indices)
        return Dim(indices, out + first if isinstance(out, int) else out[first:last])


class Selection:
    """Every combination of indices along the stored axes; or points, not sorted.

    Without a `place`, the places are those in the selection itself.
    """

    __slots__ = ("are_points", "axes", "dims")

    def __init__(
        self,
        shape: Sequence[int],
        order: Sequence[int],
        entries: tuple[Any, ...],
        place: Any = None,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        self.are_points = are_points(entries)
        if self.are_points:
            if place is None:
                place = slice(0, None)
            elif type(place) is tuple:
                (place,) = place
            out = int(place.start) if type(place) is slice else place
            self.dims = tuple([Dim(entries[i], out) for i in order])
            self.axes = [0]  # the stored axis that each axis of the result is
            return
        places = _places(entries, place, drop_axes)
        self.dims = tuple([_dim(entries[i], shape[i], places[i]) for i in order])
        kept = [i for i, entry in enumerate(entries) if type(entry) is not int]
        self.axes = [order.index(i) for i in kept]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a view of the selected elements."""
        dims = self.dims[:1] if self.are_points else self.dims
        return tuple([len(dim.indices) for dim in dims])

    def has_all_of(self, shape: Sequence[int]) -> bool:
        """Whether everything along stored axes of these lengths is selected, once."""
        return not self.are_points and has_all_of(self.dims, shape)


def has_all_of(dims: Sequence[Dim], shape: Sequence[int]) -> bool:
    """Whether all indices along axes of these lengths are selected, once."""
    sizes = [len(dim.indices) for dim in dims if type(dim.indices) is range]
    return sizes == list(shape)


def view_of(
    out: Array,
    order: Sequence[int],
    entries: tuple[Any, ...],
    place: Any = None,
    drop_axes: tuple[int, ...] = (),
) -> Array:
    """The view of `out` with an axis for each stored axis, in which a `Selection` has its places.

    Slices of `place` begin at 0 in it.
    """
    if are_points(entries):
        return out
    if drop_axes:
        out = np.expand_dims(out, drop_axes)
    slices = zip(entries, _places(entries, place, drop_axes), strict=True)
    out = out[(*[p if type(entry) in _BASIC else slice(None) for entry, p in slices], ...)]
    return out.transpose(order)


def are_points(entries: Sequence[Any]) -> bool:
    """Whether a selection is made of 1-D arrays; other arrays are beside slices."""
    for entry in entries:
        if getattr(entry, "ndim", 0) != 1:
            return False
    return len(entries) > 1


def is_basic(entries: Sequence[Any]) -> bool:
    """Whether a selection is made of integers and slices."""
    return _BASIC.issuperset(map(type, entries))


def is_of_zarr(entries: Sequence[Any], shape: Sequence[int]) -> bool:
    """Whether a selection of a chunk of `shape` has one of the four forms."""
    if len(entries) != len(shape) or not all(map(_is_entry, entries, shape)):
        return False
    arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
    if not arrays:
        return True
    if len(arrays) == 1 and arrays[0].ndim == 1:
        return int not in map(type, entries)
    if len(arrays) != len(shape):
        return False
    if are_points(arrays):
        return len({a.shape for a in arrays}) == 1 and bool not in [a.dtype for a in arrays]
    n = len(shape)
    return all(a.shape == (*[1] * i, a.size, *[1] * (n - 1 - i)) for i, a in enumerate(arrays))


def _is_entry(entry: Any, size: int) -> bool:
    if type(entry) is int:
        return 0 <= entry < size
    if type(entry) is slice:
        return entry.step is None or (type(entry.step) is int and entry.step > 0)
    if not isinstance(entry, np.ndarray):
        return False
    if entry.dtype == bool:
        return bool(entry.shape == (size,))
    is_within = not entry.size or bool(0 <= entry.min() <= entry.max() < size)
    return is_within and bool(entry.dtype.kind in "iu")


def shape_of(entries: Sequence[Any], shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of a selection that `is_of_zarr`."""
    if are_points(entries):
        return tuple(entries[0].shape)
    given = [(entry, n) for entry, n in zip(entries, shape, strict=True) if type(entry) is not int]
    return tuple([_length(entry, n) for entry, n in given])


def _length(entry: Any, size: int) -> int:
    if type(entry) is slice:
        return len(range(*entry.indices(size)))
    return int(np.count_nonzero(entry)) if entry.dtype == bool else entry.size


def combination(entries: Sequence[slice | Offsets]) -> tuple[Any, ...]:
    """NumPy index of every combination of indices along the axes, with the axes in their order."""
    if sum([type(entry) is not slice for entry in entries]) < 2:
        return tuple(entries)
    return np.ix_(*[np.arange(e.start, e.stop) if type(e) is slice else e for e in entries])


def _places(entries: tuple[Any, ...], place: Any, drop_axes: tuple[int, ...]) -> list[Any]:
    """The place along each axis; None for an integer, whose axis `out` does not have."""
    first = slice(0, None)
    if place is None:
        return [None if type(entry) is int else first for entry in entries]
    given = iter(place if type(place) is tuple else (place,))
    axes = enumerate(entries)
    return [None if type(e) is int else first if i in drop_axes else next(given) for i, e in axes]


def _dim(entry: Any, size: int, place: Any) -> Dim:
    """Indices along an axis of `size`, and their places; those of a slice begin at 0."""
    if type(entry) is slice:
        return Dim(range(*entry.indices(size)), 0)
    if type(entry) is int:
        return Dim(range(entry, entry + 1), 0)
    along: Offsets = np.flatnonzero(entry) if entry.dtype == bool else entry.ravel()
    along = along.astype(np.int64, copy=False)
    out: int | Offsets = int(place.start) if type(place) is slice else place.ravel()
    steps = np.diff(along)
    if steps.size and steps.min() < 0:
        # NumPy sorts integers of 16 bits ten times as fast. The sort is stable, since the last
        # value counts for an index that is written twice.
        order = np.argsort(along.astype(np.uint16) if along.max() < 2**16 else along, kind="stable")
        along, steps = along[order], np.diff(along[order])
        out = order + out if isinstance(out, int) else out[order]
    step = int(steps[0]) if steps.size else 1
    if not step or (steps != step).any():
        return Dim(along, out)
    first = int(along[0]) if along.size else 0
    return Dim(range(first, first + along.size * step, step), out)
