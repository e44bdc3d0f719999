"""A selection of an array with NumPy's rules, brought into a form of zarr's and back.

The *canvas* has an axis for each axis of the array, or one for points, as a `Selection` has it. The
result of NumPy has its elements in other axes.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.errors import short_repr
from zarr_bytes.indexing.selection import Selection, outer_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.indexing.selection import Array, AxisSelection, ChunkGrid, Offsets

Entry: TypeAlias = "int | range | Offsets"  # without negative integers

FORMS: Final = "permitted are integers, slices, `...` and arrays of integers"
_PIECE: Final = 2**20  # bytes that are gathered at once and stay in the cache


class NumpySelection:
    """A selection, as in ``array[selection]``, divided by chunk; an empty one has a shape alone."""

    def __init__(self, selection: object, grid: ChunkGrid) -> None:
        self._grid = grid
        self._entries, self.ellipsis_position = _entries(selection, grid.shape)
        self._arrays = arrays = [e for e in self._entries if isinstance(e, np.ndarray)]
        try:
            self._together = np.broadcast(*arrays).shape if arrays else ()
        except ValueError:
            shapes = " and ".join([str(array.shape) for array in arrays])
            raise IndexError(
                f"arrays of indices of shapes {shapes} cannot be broadcast against each other"
            ) from None
        # Arrays that are long along other axes each are combined, as by `numpy.ix_`.
        long = [axis for array in arrays for axis in _long_axes(array)]
        self._are_points = len(set(long)) < len(long)
        if self._are_points and any(isinstance(entry, range) for entry in self._entries):
            raise IndexError(
                f"{FORMS}, the arrays along one axis or along all; found other arrays along several"
                " axes: `array.oindex[...]` of zarr selects every combination of them, and"
                " `array.vindex[...]` points"
            )
        if self._are_points and prod(grid.shape) >= 2**62:  # sums of offsets are of 64 bits
            raise IndexError(
                "points are selected in arrays of less than 2**62 elements: use slices"
            )

    def in_one_chunk(self) -> tuple[int, tuple[Any, ...]] | None:
        """Number of the chunk that has the whole selection, and the selection of the chunk."""
        number = 0
        local: list[Any] = []
        axes = zip(self._entries, self._grid.chunk_shape, self._grid.number_strides, strict=True)
        for entry, size, distance in axes:
            if isinstance(entry, int):
                low = high = entry
            elif isinstance(entry, range):
                low, high = sorted((entry[0], entry[-1]))
            else:
                low, high = int(entry.min()), int(entry.max())
            k = low // size
            if high // size != k:
                return None
            number += k * distance
            local.append(_moved(entry, -k * size))
        if self.ellipsis_position >= 0:  # with which the result of NumPy is never a scalar
            local.insert(self.ellipsis_position, ...)
        return number, tuple(local)

    def chunks(self, item_size: int) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
        """Number of each chunk, NumPy index of its selection, and NumPy index of the canvas."""
        grid = self._grid
        for number, axis_selections in grid.chunks_of(grid.split_by_axis(self._selection)):
            if self._are_points:
                yield (
                    number,
                    np.unravel_index(axis_selections[0].indices, grid.chunk_shape),
                    (axis_selections[0].out_selection,),
                )
                continue
            for piece in _pieces(axis_selections, item_size):
                local: list[Any] = [_moved(axis_selection.indices, 0) for axis_selection in piece]
                yield (
                    number,
                    outer_index(local),
                    outer_index([axis_selection.out_selection for axis_selection in piece]),
                )

    @property
    def has_arrays(self) -> bool:
        """Whether arrays of integers or bools are among the entries."""
        return bool(self._arrays)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``array[selection]``."""
        sizes = [len(entry) for entry in self._entries if isinstance(entry, range)]
        return (*sizes[: self._before], *self._together, *sizes[self._before :])

    @property
    def gathered_shape(self) -> tuple[int, ...]:
        """Shape of the canvas."""
        if self._are_points:
            return (prod(self._together),)
        return tuple([len(e) if isinstance(e, range) else np.size(e) for e in self._entries])

    def from_gathered(self, gathered: Array) -> Array:
        """The result of NumPy; a view."""
        split = gathered[self._turned].reshape([self.shape[axis] for axis in self._order])
        return split.transpose(np.argsort(self._order))

    def to_gathered(self, values: Array) -> Array:
        """The canvas of values that have the shape of the result; where possible, a view."""
        return values.transpose(self._order).reshape(self.gathered_shape)[self._turned]

    @property
    def _turned(self) -> tuple[slice, ...]:
        """NumPy index that turns the canvas, which ascends, along slices of negative steps."""
        entries = () if self._are_points else self._entries
        descend = [isinstance(entry, range) and entry.step < 0 for entry in entries]
        return tuple([slice(None, None, -1 if descends else 1) for descends in descend])

    @cached_property
    def _order(self) -> list[int]:
        """The axes of the result in the order of the canvas; then those of length 1."""
        behind, count = self._before + len(self._together), len(self.shape)
        slices = iter([*range(self._before), *range(behind, count)])
        found: list[int] = []
        for entry in self._entries:
            if isinstance(entry, range):
                found.append(next(slices))
            elif isinstance(entry, np.ndarray) and not self._are_points:
                found += [behind + axis for axis in _long_axes(entry)]
        return found + [axis for axis in range(count) if axis not in found]

    @cached_property
    def _before(self) -> int:
        """Number of axes of the result before those of the arrays."""
        if not self._arrays:
            return 0
        others = [i for i, e in enumerate(self._entries) if not isinstance(e, range)]
        first, last = others[0], others[-1]
        # A slice between arrays separates them, and `...` also where it stands for no axis.
        is_split = len(others) <= last - first or first < self.ellipsis_position <= last
        return 0 if is_split else first

    @cached_property
    def _selection(self) -> Selection:
        """The selection in a form of zarr's, whose slices ascend."""
        found: list[Any] = []
        for entry in self._entries:
            if self._are_points:
                found.append(np.broadcast_to(entry, self._together).reshape(-1))
            elif isinstance(entry, np.ndarray):
                found.append(entry.reshape(1, -1))  # of 1-D arrays alone, it would be points
            elif isinstance(entry, range) and entry.step < 0:
                found.append(_moved(entry[::-1], 0))
            else:
                found.append(_moved(entry, 0))
        return Selection(self._grid.shape, range(len(found)), tuple(found))


def _long_axes(array: Offsets) -> list[int]:
    """The axes that broadcasting does not stretch, counted from the last."""
    return [axis for axis in range(-array.ndim, 0) if array.shape[axis] > 1]


def _moved(entry: Entry, distance: int) -> int | slice | Offsets:
    """NumPy index of indices plus a distance."""
    if not isinstance(entry, range):
        return entry + distance if distance else entry
    stop = entry[-1] + distance + (1 if entry.step > 0 else -1)
    return slice(entry.start + distance, None if stop < 0 else stop, entry.step)


def _pieces(
    axis_selections: Sequence[AxisSelection], item_size: int
) -> Iterator[Sequence[AxisSelection]]:
    """The indices of a chunk in pieces, along its one array: NumPy gathers in new memory."""
    arrays = [
        i
        for i, axis_selection in enumerate(axis_selections)
        if not isinstance(axis_selection.indices, range)
    ]
    nbytes = item_size * prod([len(axis_selection.indices) for axis_selection in axis_selections])
    if len(arrays) != 1 or nbytes <= _PIECE:
        yield axis_selections
        return
    i = arrays[0]
    indices = axis_selections[i].indices
    count = max(_PIECE * len(indices) // nbytes, 1)
    for first in range(0, len(indices), count):
        yield [
            *axis_selections[:i],
            axis_selections[i].subset(indices[first : first + count], first),
            *axis_selections[i + 1 :],
        ]


def _entries(selection: object, shape: tuple[int, ...]) -> tuple[list[Entry], int]:
    """An entry for each axis of an array of `shape`, and the place of `...`, or -1 without it."""
    given: list[Any] = list(selection) if isinstance(selection, tuple) else [selection]
    dots = [i for i, entry in enumerate(given) if entry is Ellipsis]
    count = len(given) - len(dots)
    if any(entry is None for entry in given):
        raise IndexError(f"{FORMS}, and no new axes: add these to the result")
    if len(dots) > 1:
        raise IndexError(f"{FORMS}, and `...` at most once")
    if count > len(shape):
        raise IndexError(f"the selection has {count} entries, and the array {len(shape)} axes")
    at = dots[0] if dots else count
    given[at : at + len(dots)] = [slice(None)] * (len(shape) - count)
    entries = zip(given, shape, strict=True)
    return [_entry(e, n, axis) for axis, (e, n) in enumerate(entries)], at if dots else -1


def _entry(entry: Any, n: int, axis: int) -> Entry:
    if isinstance(entry, slice):
        try:
            return range(*entry.indices(n))
        except TypeError:
            raise IndexError(f"{FORMS}; found {entry!r}, which has bounds of other types") from None
    if isinstance(entry, str):
        raise IndexError(
            f"{FORMS}; found the text {entry!r}: select a field of the result, and write a"
            " selection as code, such as numpy.s_[7, 1:3]"
        )
    if not isinstance(entry, bool):
        with suppress(TypeError):
            return _index_in(index(entry), n, axis)
    return _indices(entry, n, axis)


def _indices(entry: Any, n: int, axis: int) -> Offsets:
    """An array of indices along an axis of `n` elements."""
    try:
        indices = np.asarray(entry)
    except ValueError:  # lists of several lengths
        raise IndexError(f"{FORMS}; found {short_repr(entry)}, which is no array") from None
    if indices.dtype == bool:
        if indices.shape != (n,):
            raise IndexError(
                f"{FORMS}, or of bools along one axis of as many elements; found bools of shape"
                f" {indices.shape}: `array.vindex[...]` of zarr takes a mask of the whole array"
            )
        return np.flatnonzero(indices)
    is_empty = not indices.size
    # NumPy takes an empty list for floats.
    if indices.dtype.kind not in "iu" and not (is_empty and isinstance(entry, list)):
        raise IndexError(f"{FORMS}; found {entry!r} of type {type(entry).__qualname__}")
    low = 0 if is_empty else int(indices.min())
    for i in () if is_empty else (low, int(indices.max())):
        _index_in(i, n, axis)
    indices = indices.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + n, indices) if low < 0 else indices


def _index_in(i: int, n: int, axis: int) -> int:
    """An index along an axis of `n` elements, counted from its beginning."""
    if -n <= i < n:
        return i + n if i < 0 else i
    raise IndexError(f"index {i} is outside axis {axis}, which has {n} elements")
