"""A selection of an array with NumPy's rules, converted to a form of zarr's and back.

NumPy's result and zarr's forms of selection have different axes. Between them is the *intermediate*
array. It has an ascending axis for each axis of the array, also for an integer; or one axis for all
points. Elements are copied between chunks and the intermediate array, and NumPy's result is a view
of the intermediate array.

For an array of shape (4, 5, 6), the result of ``array[2, ::-1, [1, 3]]`` has the shape (2, 5):
NumPy treats an integer beside an array as an array, and puts the axes of arrays that a slice
separates first.

>>> grid = ChunkGrid((4, 5, 6), chunk_shape=(4, 5, 2))
>>> selection = NumpySelection(np.s_[2, ::-1, [1, 3]], grid)
>>> selection.shape, selection.intermediate_shape
((2, 5), (1, 5, 2))

Each chunk puts its elements into the intermediate array, in which slices ascend:

>>> array = np.arange(120).reshape(4, 5, 6)
>>> chunks = [array[..., :2], array[..., 2:4], array[..., 4:]]
>>> intermediate = np.empty(selection.intermediate_shape, int)
>>> for number, index, intermediate_index in selection.iter_parts_chunk_by_chunk(item_size=8):
...     intermediate[intermediate_index] = chunks[number][index]
>>> bool((selection.from_intermediate(intermediate) == array[2, ::-1, [1, 3]]).all())
True

If one chunk has all selected elements, NumPy selects from this chunk instead:

>>> NumpySelection(np.s_[2, ::-1, [2, 3]], grid).try_in_one_chunk()
(1, (2, slice(4, None, -1), array([0, 1])))
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from zarr_bytes.errors import short_repr
from zarr_bytes.indexing.selection import ChunkGrid, Selection, outer_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.indexing.selection import Array, AxisSelection, ChunkNumberAndIndex, Offsets

IntRangeOrIndices: TypeAlias = "int | range | Offsets"
"""A selection along an axis, counted from the beginning of the axis: no negative integers, no
bools. Only a range may descend. Arrays have any number of axes."""

FORMS: Final = "permitted are integers, slices, `...` and arrays of integers"
_MAX_PIECE_NBYTES: Final = 2**20  # bytes to copy at a time, which fit the processor's cache


class ChunkPart(NamedTuple):
    """The selected elements of one chunk, or some of them."""

    chunk_number: int
    chunk_index: tuple[Any, ...]  # NumPy index of the chunk
    intermediate_index: tuple[Any, ...]  # NumPy index of the intermediate array


class EntriesAndEllipsisPosition(NamedTuple):
    """The entries of a selection."""

    along_axes: list[IntRangeOrIndices]  # one for each axis of the array
    ellipsis_position: int  # axis at which `...` stands; -1 without `...`


class NumpySelection:
    """A selection of an array, as in ``array[selection]``, divided by chunk.

    If no element is selected, only `shape` and `has_arrays` may be used.

    Parameters
    ----------
    selection : object
        The selection between the brackets.
    grid : ChunkGrid
        Chunks of the array, with axes in the order of the array.

    Attributes
    ----------
    ellipsis_position : int
        Axis at which the selection has `...`; -1 without `...`.

    Raises
    ------
    IndexError
        If NumPy doesn't permit the selection. Also if it has points beside slices, or a mask of
        several axes, although NumPy permits these.
    """

    def __init__(self, selection: object, grid: ChunkGrid) -> None:
        self._grid = grid
        self._entries, self.ellipsis_position = _entries_and_ellipsis_position(
            selection, grid.shape
        )
        arrays = [entry for entry in self._entries if isinstance(entry, np.ndarray)]
        self._arrays = arrays
        try:
            self._broadcast_shape = np.broadcast(*arrays).shape if arrays else ()
        except ValueError:
            shapes = " and ".join([str(array.shape) for array in arrays])
            raise IndexError(
                f"arrays of indices of shapes {shapes} cannot be broadcast against each other"
            ) from None
        # Arrays that are long along different axes are combined, as by `numpy.ix_`.
        long_axes = [axis for array in arrays for axis in _long_axes(array)]
        self._are_points = len(set(long_axes)) < len(long_axes)
        if self._are_points and any(isinstance(entry, range) for entry in self._entries):
            raise IndexError(
                f"{FORMS}, the arrays along one axis or along all; found other arrays along several"
                " axes: zarr's `array.oindex[...]` selects every combination of their indices, and"
                " `array.vindex[...]` selects points"
            )
        if self._are_points and prod(grid.shape) >= 2**62:  # sums of offsets have 64 bits
            raise IndexError(
                "points are selected in arrays of less than 2**62 elements: use slices"
            )

    def try_in_one_chunk(self) -> ChunkNumberAndIndex | None:
        """Number of the chunk that has all selected elements, and the NumPy index in this chunk.

        The index gives NumPy's result without an intermediate array. None if the elements are in
        several chunks.
        """
        bounds = [_bounding_slice(entry) for entry in self._entries]
        in_one_chunk = self._grid.try_in_one_chunk(bounds)
        if in_one_chunk is None:
            return None
        number, within = in_one_chunk
        index_in_chunk: list[Any] = [
            _shifted_index(entry, in_chunk.start - in_array.start)
            for entry, in_array, in_chunk in zip(self._entries, bounds, within, strict=True)
        ]
        if self.ellipsis_position >= 0:  # with `...`, NumPy's result is never a scalar
            index_in_chunk.insert(self.ellipsis_position, ...)
        return number, tuple(index_in_chunk)

    def iter_parts_chunk_by_chunk(self, item_size: int) -> Iterator[ChunkPart]:
        """All selected elements, chunk by chunk, in the order of chunk numbers.

        An element has `item_size` bytes. If many elements of one chunk are selected, they come in
        several parts.
        """
        grid = self._grid
        for number, axis_selections in grid.combine_axes_by_chunk(
            grid.split_by_axis(self._selection)
        ):
            if self._are_points:
                (points,) = axis_selections
                index = np.unravel_index(points.indices, grid.chunk_shape)
                yield ChunkPart(number, index, (points.out_selection,))
                continue
            for part in _split_by_size(axis_selections, item_size):
                along_axes: list[Any] = [_shifted_index(axis.indices, 0) for axis in part]
                intermediate_index = outer_index([axis.out_selection for axis in part])
                yield ChunkPart(number, outer_index(along_axes), intermediate_index)

    @property
    def has_arrays(self) -> bool:
        """Whether arrays of integers or bools are among the entries."""
        return bool(self._arrays)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``array[selection]``."""
        sizes = [len(entry) for entry in self._entries if isinstance(entry, range)]
        before = self._axes_before_arrays
        return (*sizes[:before], *self._broadcast_shape, *sizes[before:])

    @property
    def intermediate_shape(self) -> tuple[int, ...]:
        """Shape of the intermediate array."""
        if self._are_points:
            return (prod(self._broadcast_shape),)
        return tuple([len(e) if isinstance(e, range) else np.size(e) for e in self._entries])

    def from_intermediate(self, intermediate: Array) -> Array:
        """NumPy's result, as a view of the intermediate array."""
        order = self._result_axes_in_intermediate_order
        with_all_axes = intermediate[self._reversing_index].reshape([self.shape[i] for i in order])
        return with_all_axes.transpose(np.argsort(order))

    def to_intermediate(self, values: Array) -> Array:
        """The intermediate array for values in the shape of the result; a view if possible."""
        in_order = values.transpose(self._result_axes_in_intermediate_order)
        return in_order.reshape(self.intermediate_shape)[self._reversing_index]

    @property
    def _reversing_index(self) -> tuple[slice, ...]:
        """NumPy index that reverses the intermediate array along slices of negative steps.

        These slices ascend in the intermediate array. Applying the index twice has no effect.
        """
        entries = () if self._are_points else self._entries
        descends = [isinstance(entry, range) and entry.step < 0 for entry in entries]
        return tuple([slice(None, None, -1 if is_reversed else 1) for is_reversed in descends])

    @cached_property
    def _result_axes_in_intermediate_order(self) -> list[int]:
        """The axes of the result in the order of the intermediate array; then axes of length 1.

        If an array of indices has several long axes, these correspond to one axis of the
        intermediate array.
        """
        count = len(self.shape)
        before = self._axes_before_arrays
        after_arrays = before + len(self._broadcast_shape)
        slice_axes = iter([*range(before), *range(after_arrays, count)])
        axes: list[int] = []
        for entry in self._entries:
            if isinstance(entry, range):
                axes.append(next(slice_axes))
            elif isinstance(entry, np.ndarray) and not self._are_points:
                axes += [after_arrays + axis for axis in _long_axes(entry)]
        return axes + [axis for axis in range(count) if axis not in axes]

    @cached_property
    def _axes_before_arrays(self) -> int:
        """Number of axes of the result before the axes of the arrays."""
        if not self._arrays:
            return 0
        others = [i for i, entry in enumerate(self._entries) if not isinstance(entry, range)]
        first = others[0]
        last = others[-1]
        # A slice between arrays separates them; so does `...`, even if it stands for no axis.
        has_slice_between = len(others) <= last - first
        has_ellipsis_between = first < self.ellipsis_position <= last
        return 0 if has_slice_between or has_ellipsis_between else first

    @cached_property
    def _selection(self) -> Selection:
        """The selection in one of zarr's forms, with ascending slices."""
        along_axes: list[Any] = []
        for entry in self._entries:
            if self._are_points:
                along_axes.append(np.broadcast_to(entry, self._broadcast_shape).reshape(-1))
            elif isinstance(entry, np.ndarray):
                along_axes.append(entry.reshape(1, -1))  # 1-D arrays alone would be points
            elif isinstance(entry, range) and entry.step < 0:
                along_axes.append(_shifted_index(entry[::-1], 0))
            else:
                along_axes.append(_shifted_index(entry, 0))
        return Selection(self._grid.shape, range(len(along_axes)), tuple(along_axes))


def _long_axes(array: Offsets) -> list[int]:
    """The axes that broadcasting does not stretch, counted from the last."""
    return [axis for axis in range(-array.ndim, 0) if array.shape[axis] > 1]


def _bounding_slice(entry: IntRangeOrIndices) -> slice:
    """From the lowest index of an entry to the highest."""
    if isinstance(entry, int):
        return slice(entry, entry + 1)
    if isinstance(entry, range):
        low, high = sorted((entry[0], entry[-1]))
    else:
        low = int(entry.min())
        high = int(entry.max())
    return slice(low, high + 1)


def _shifted_index(entry: IntRangeOrIndices, distance: int) -> int | slice | Offsets:
    """NumPy index of a selection along an axis, shifted by a distance."""
    if not isinstance(entry, range):
        return entry + distance if distance else entry
    stop = entry[-1] + distance + (1 if entry.step > 0 else -1)
    return slice(entry.start + distance, None if stop < 0 else stop, entry.step)


def _split_by_size(
    axis_selections: Sequence[AxisSelection], item_size: int
) -> Iterator[Sequence[AxisSelection]]:
    """The selection of a chunk, in pieces of bounded size if NumPy gathers it in new memory.

    The pieces divide the one array of indices. A selection of only slices is a view, and isn't
    divided.
    """
    arrays = [i for i, axis in enumerate(axis_selections) if not isinstance(axis.indices, range)]
    nbytes = item_size * prod([len(axis.indices) for axis in axis_selections])
    if len(arrays) != 1 or nbytes <= _MAX_PIECE_NBYTES:
        yield axis_selections
        return
    i = arrays[0]
    indices = axis_selections[i].indices
    count = max(_MAX_PIECE_NBYTES * len(indices) // nbytes, 1)
    for first in range(0, len(indices), count):
        piece = axis_selections[i].subset(indices[first : first + count], first)
        yield [*axis_selections[:i], piece, *axis_selections[i + 1 :]]


def _entries_and_ellipsis_position(
    selection: object, shape: tuple[int, ...]
) -> EntriesAndEllipsisPosition:
    """The entries of a selection, one for each axis of an array of `shape`."""
    entries: list[Any] = list(selection) if isinstance(selection, tuple) else [selection]
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    count = len(entries) - len(dots)
    if any(entry is None for entry in entries):
        raise IndexError(f"{FORMS}, and no new axes: add these to the result")
    if len(dots) > 1:
        raise IndexError(f"{FORMS}, and `...` at most once")
    if count > len(shape):
        raise IndexError(f"the selection has {count} entries, and the array {len(shape)} axes")
    ellipsis_position = dots[0] if dots else -1
    all_indices = [slice(None)] * (len(shape) - count)  # for the remaining axes
    if dots:
        entries[ellipsis_position : ellipsis_position + 1] = all_indices
    else:
        entries += all_indices
    axes = enumerate(zip(entries, shape, strict=True))
    return EntriesAndEllipsisPosition(
        [_entry(entry, n, axis) for axis, (entry, n) in axes], ellipsis_position
    )


def _entry(entry: Any, n: int, axis: int) -> IntRangeOrIndices:
    """An entry of a selection along an axis of `n` elements, counted from its beginning.

    An IndexError if its type is not permitted, or if it is outside the axis.
    """
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
            return _index_from_start(index(entry), n, axis)
    return _indices_of_array(entry, n, axis)


def _indices_of_array(array_like: Any, n: int, axis: int) -> Offsets:
    """Indices along an axis of `n` elements, from an array or list of integers or bools."""
    try:
        indices = np.asarray(array_like)
    except ValueError:  # lists of several lengths
        raise IndexError(f"{FORMS}; found {short_repr(array_like)}, not an array") from None
    if indices.dtype == bool:
        if indices.shape != (n,):
            raise IndexError(
                f"{FORMS}, or of bools along one axis of as many elements; found bools of shape"
                f" {indices.shape}: `array.vindex[...]` of zarr takes a mask of the whole array"
            )
        return np.flatnonzero(indices)
    is_empty = not indices.size
    # For NumPy, an empty list has floats.
    if indices.dtype.kind not in "iu" and not (is_empty and isinstance(array_like, list)):
        raise IndexError(f"{FORMS}; found {array_like!r} of type {type(array_like).__qualname__}")
    low = 0 if is_empty else int(indices.min())
    if not is_empty:
        _index_from_start(low, n, axis)
        _index_from_start(int(indices.max()), n, axis)
    indices = indices.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + n, indices) if low < 0 else indices


def _index_from_start(i: int, n: int, axis: int) -> int:
    """An index along an axis of `n` elements, counted from its beginning.

    An IndexError if it is outside the axis.
    """
    if -n <= i < n:
        return i + n if i < 0 else i
    raise IndexError(f"index {i} is outside axis {axis}, which has {n} elements")
