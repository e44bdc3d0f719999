"""The selection of a stored object, and its division by chunk or inner chunk.

A selection has one of the four forms that zarr sends to a pipeline:

1. integers and slices;
2. one array of integers or bools, and slices along the other axes;
3. arrays as from ``numpy.ix_``, one for each axis; every combination of indices is selected; 4.
points: one array for each axis, all of equal length.

Its axes are the axes of the array. A `Selection`, the view of the result from
`view_in_stored_order`, and all code that uses them, have the stored order of axes.
"""

from __future__ import annotations

from itertools import accumulate, pairwise, product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from zarr_bytes.errors import shape_mismatch_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Array: TypeAlias = npt.NDArray[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]

Indices: TypeAlias = "range | Offsets"
"""Ascending indices along an axis, perhaps repeated: a range for even steps, else an array."""

AxisSelections: TypeAlias = "tuple[AxisSelection, ...]"
"""A selection along each stored axis, outermost first; for points, along one axis of offsets."""

AxisSplit: TypeAlias = "list[list[tuple[int, AxisSelection]]]"
"""A selection split by chunk, along each stored axis: the part of the chunk numbers from this axis,
and the indices in these chunks. For points, one list with complete chunk numbers."""

ChunkNumberAndIndex: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""The number of a chunk, and a NumPy index of this chunk."""

ChunkNumberAndStart: TypeAlias = "tuple[int, int]"
"""The number of a chunk, and an offset in it, in elements."""

ChunkNumberAndSelections: TypeAlias = "tuple[int, AxisSelections]"
"""The number of a chunk, and the selection in it."""

ChunkNumberAndPoints: TypeAlias = "tuple[int, AxisSelection]"
"""The number of a chunk, and the offsets of points in it, in elements, with their places."""

ChunkCoordAndSelection: TypeAlias = "tuple[int, AxisSelection]"
"""The index of a chunk along one axis, and the selection in it along this axis."""

PositionBounds: TypeAlias = "tuple[int, int]"
"""The positions of the first of some selected indices, and of the one after the last: (2, 5) are
the third to the fifth of the selected indices, whatever these are."""

_BASIC_TYPES: Final = frozenset((int, slice))
_FROM_FIRST: Final = slice(0, None)  # places from the first on


class AxisSelection:
    """Selected indices along an axis, ascending, and their places along the axis of `out`.

    Parameters
    ----------
    indices : range or array
        The selected indices; an index that is selected twice is there twice.
    out_selection : slice or array
        The place of each index, in the order of the indices; a slice has a start and step 1.
    """

    __slots__ = ("indices", "out_selection")

    def __init__(self, indices: Indices, out_selection: slice | Offsets) -> None:
        self.indices = indices
        self.out_selection = out_selection

    def out_selection_of(self, first_position: int, stop_position: int) -> slice | Offsets:
        """Places of the indices at the positions `first_position` to `stop_position`, exclusive."""
        out = self.out_selection
        if type(out) is slice:
            return slice(out.start + first_position, out.start + stop_position)
        return out[first_position:stop_position]

    def subset(self, indices: Indices, first_position: int) -> AxisSelection:
        """These `indices`, in the places of the indices from `first_position` on."""
        stop_position = first_position + len(indices)
        return AxisSelection(indices, self.out_selection_of(first_position, stop_position))


class Selection:
    """The selected elements of a stored object, and their places in a view of `out`.

    Parameters
    ----------
    shape : sequence of int
        Shape of the object, in the axes of the array.
    order : sequence of int
        The axis of the array for each stored axis.
    chunk_selection : tuple
        The selection, in one of the four forms.
    out_selection : tuple, slice or array, optional
        The places in `out`, as zarr gives them; None if `out` has only the selected elements.
    drop_axes : tuple of int
        Axes of the array that `out` doesn't have, although no integer selects them.

    Attributes
    ----------
    are_points : bool
        Whether one element is selected for each position in the arrays of the selection. Otherwise,
        every combination of indices along the axes is selected.
    axis_selections : tuple of AxisSelection
        Indices along each stored axis. Indices of points are in the order of the selection.
    result_axes : list of int
        The stored axis for each axis of the result; [0] for points.
    """

    __slots__ = ("are_points", "axis_selections", "result_axes")

    def __init__(
        self,
        shape: Sequence[int],
        order: Sequence[int],
        chunk_selection: tuple[Any, ...],
        out_selection: Any = None,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        self.are_points = is_point_selection(chunk_selection)
        if self.are_points:
            if type(out_selection) is tuple:
                (out_selection,) = out_selection
            out = _FROM_FIRST if out_selection is None else out_selection
            self.axis_selections = tuple([AxisSelection(chunk_selection[i], out) for i in order])
            self.result_axes = [0]
            return
        out_selections = _out_selection_by_axis(chunk_selection, out_selection, drop_axes)
        self.axis_selections = tuple(
            [_axis_selection(chunk_selection[i], shape[i], out_selections[i]) for i in order]
        )
        kept_axes = [i for i, entry in enumerate(chunk_selection) if type(entry) is not int]
        self.result_axes = [order.index(i) for i in kept_axes]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the view of the selected elements, in the stored order of axes."""
        axes = self.axis_selections[:1] if self.are_points else self.axis_selections
        return tuple([len(axis.indices) for axis in axes])


def selects_all(axis_selections: Sequence[AxisSelection], shape: Sequence[int]) -> bool:
    """Whether all indices along axes of these lengths are selected, each once.

    False for points, and for an array of indices with uneven steps.
    """
    sizes = [len(axis.indices) for axis in axis_selections if type(axis.indices) is range]
    return sizes == list(shape)


def view_in_stored_order(
    out: Array,
    order: Sequence[int],
    chunk_selection: tuple[Any, ...],
    out_selection: Any,
    drop_axes: tuple[int, ...],
) -> Array:
    """The view of `out` with an axis for each stored axis, for the places of a `Selection`.

    Parameters are as in `Selection`. If `out_selection` has a slice, the view has only this part of
    `out`, and the places begin at 0. For points, the view is `out` itself.
    """
    if is_point_selection(chunk_selection):
        return out
    if drop_axes:
        out = np.expand_dims(out, drop_axes)
    out_selections = _out_selection_by_axis(chunk_selection, out_selection, drop_axes)
    # For an integer, None is a new axis.
    entries = zip(chunk_selection, out_selections, strict=True)
    index = [along if type(entry) in _BASIC_TYPES else slice(None) for entry, along in entries]
    return out[(*index, ...)].transpose(order)


def is_point_selection(chunk_selection: Sequence[Any]) -> bool:
    """Whether a selection in one of the four forms has points: only 1-D arrays, two or more."""
    for entry in chunk_selection:
        if getattr(entry, "ndim", 0) != 1:
            return False
    return len(chunk_selection) > 1


def is_basic_selection(chunk_selection: Sequence[Any]) -> bool:
    """Whether a selection consists of integers and slices."""
    return _BASIC_TYPES.issuperset(map(type, chunk_selection))


def is_sent_by_zarr(chunk_selection: Sequence[Any], shape: Sequence[int]) -> bool:
    """Whether a selection of a chunk of `shape` has one of the four forms, within the chunk."""
    if len(chunk_selection) != len(shape) or not all(
        map(_has_form_of_zarr_along_axis, chunk_selection, shape)
    ):
        return False
    arrays = [entry for entry in chunk_selection if isinstance(entry, np.ndarray)]
    if not arrays:
        return True
    if len(arrays) == 1 and arrays[0].ndim == 1:
        return int not in map(type, chunk_selection)
    if len(arrays) != len(shape):
        return False
    if is_point_selection(arrays):
        return len({a.shape for a in arrays}) == 1 and bool not in [a.dtype for a in arrays]
    # As from `numpy.ix_`: each array is long along its own axis.
    n = len(shape)
    return all(a.shape == (*[1] * i, a.size, *[1] * (n - 1 - i)) for i, a in enumerate(arrays))


def _has_form_of_zarr_along_axis(entry: Any, size: int) -> bool:
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


def selection_shape(chunk_selection: Sequence[Any], shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of the result of a selection that `is_sent_by_zarr`; integers have no axis there."""
    if is_point_selection(chunk_selection):
        return tuple(chunk_selection[0].shape)
    axes = zip(chunk_selection, shape, strict=True)
    return tuple(
        [_length_of_slice_or_array(entry, n) for entry, n in axes if type(entry) is not int]
    )


def _length_of_slice_or_array(entry: slice | Array, axis_length: int) -> int:
    """Number of indices that a slice or an array selects along an axis of this length."""
    if isinstance(entry, slice):
        return len(range(*entry.indices(axis_length)))
    return int(np.count_nonzero(entry)) if entry.dtype == bool else entry.size


def scalar_of(value: Any, dtype: Any) -> Array:
    """A scalar as NumPy assigns it to one element; a masked scalar is NaN, or an error."""
    element: Array = np.empty((), dtype)
    element[()] = value
    return element


def broadcast(value: Array, shape: tuple[int, ...], *, requires_scalar: bool = False) -> Array:
    """`value` broadcast to the shape of a selection, as NumPy assigns it: a view, maybe read-only.

    As in ``array[selection] = value``, leading axes of length 1 are dropped. A selection of one
    element `requires_scalar`: it accepts no array with axes, other than an array of one bool or of
    one record. A ValueError if the value doesn't fit.
    """
    if value.shape == shape:
        return value
    elements = np.asarray(value)  # a matrix always has two axes
    extra_axes = elements.ndim - len(shape)
    is_taken_for_one = elements.size == 1 and elements.dtype.type in (np.bool_, np.void)
    if requires_scalar and extra_axes and not is_taken_for_one:
        raise shape_mismatch_error(value.shape, shape)
    try:
        return np.broadcast_to(elements.squeeze(tuple(range(extra_axes))), shape)
    except ValueError:
        raise shape_mismatch_error(value.shape, shape) from None


def outer_index(chunk_selection: Sequence[slice | Offsets]) -> tuple[Any, ...]:
    """NumPy index of every combination of indices along the axes.

    The result of the index has its axes in order. At most one array is used as it is; several
    arrays, with the slices beside them, are combined by `numpy.ix_`. Slices have a start and a
    stop.
    """
    if sum([type(entry) is not slice for entry in chunk_selection]) < 2:
        return tuple(chunk_selection)
    return np.ix_(
        *[np.arange(e.start, e.stop, e.step) if type(e) is slice else e for e in chunk_selection]
    )


def _out_selection_by_axis(
    chunk_selection: tuple[Any, ...], out_selection: Any, drop_axes: tuple[int, ...]
) -> list[Any]:
    """The places along each axis of the array; zarr's `out_selection` leaves out some axes.

    None for an integer, whose axis `out` doesn't have. An axis in `drop_axes`, which `out` doesn't
    have either, has one place, given as a slice from 0 on.
    """
    if out_selection is None:
        return [None if type(entry) is int else _FROM_FIRST for entry in chunk_selection]
    out_entries = iter(out_selection if type(out_selection) is tuple else (out_selection,))
    out_selections: list[Any] = []
    for axis, entry in enumerate(chunk_selection):
        if type(entry) is int:
            out_selections.append(None)
        elif axis in drop_axes:
            out_selections.append(_FROM_FIRST)
        else:
            out_selections.append(next(out_entries))
    return out_selections


def _axis_selection(entry: Any, size: int, out_selection: Any) -> AxisSelection:
    """Indices along an axis of `size` elements, ascending, and their places.

    The places of an integer or a slice begin at 0, as in `view_in_stored_order`.
    """
    if type(entry) is slice:
        selected = range(*entry.indices(size))
        return AxisSelection(selected, slice(0, len(selected)))
    if type(entry) is int:
        return AxisSelection(range(entry, entry + 1), slice(0, 1))
    indices: Offsets = np.flatnonzero(entry) if entry.dtype == bool else entry.ravel()
    indices = indices.astype(np.int64, copy=False)
    out: slice | Offsets
    if type(out_selection) is slice:
        out = slice(out_selection.start, out_selection.start + indices.size)
    else:
        out = out_selection.ravel()
    steps = indices[1:] - indices[:-1]  # `numpy.diff` takes several times as long
    if steps.size and steps.min() < 0:
        # NumPy sorts integers of 16 bits ten times as fast. The sort is stable, since the last
        # value counts for an index that is written twice.
        sorted_by = indices.astype(np.uint16) if indices.max() < 2**16 else indices
        order = np.argsort(sorted_by, kind="stable")
        indices = indices[order]
        steps = indices[1:] - indices[:-1]
        out = order + out.start if type(out) is slice else out[order]
    step = int(steps[0]) if steps.size else 1
    if not step or (steps != step).any():
        return AxisSelection(indices, out)
    first = int(indices[0]) if indices.size else 0
    return AxisSelection(range(first, first + indices.size * step, step), out)


def c_strides(
    shape: Sequence[int], item_size: int = 1, order: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Strides of a contiguous array, in units of which an element has `item_size`.

    Its axes are stored in C order; or in `order`, the axes from the outermost to the innermost.
    """
    axes = range(len(shape)) if order is None else order
    products = accumulate([shape[i] for i in reversed(axes)], mul, initial=item_size)
    by_axis = dict(zip(reversed(axes), products, strict=False))  # the last product is the size
    return tuple([by_axis[i] for i in range(len(shape))])


class StridedBox(NamedTuple):
    """Elements at even steps along each axis of one chunk: a point, a row, a plane, a block.

    All values except the number are in elements. The `AxisRanges` of a plan also have distances and
    extents, axis by axis, and the sums of fetched elements for a given gap. These sums take most of
    the planning time, and a box doesn't need them: it is one range for any gap from `largest_gap`
    on.
    """

    chunk_number: int
    start: int  # from the first element of the chunk to the first selected one
    extent: int  # from the first selected element to the last, both included
    largest_gap: int  # largest number of elements between two selected ones
    shape: tuple[int, ...]  # with an axis for each stored axis
    strides: tuple[int, ...]


class ChunkGrid:
    """A regular grid of numbered chunks.

    Parameters
    ----------
    shape : sequence of int
        Shape of the array, or of the stored object.
    chunk_shape : sequence of int
        Shape of a chunk, or of an inner chunk.
    number_strides : sequence of int, optional
        The difference between the numbers of neighbors along each axis; None for C order.

    Attributes
    ----------
    chunk_counts : tuple of int
        Number of chunks along each axis; the last chunk may be partly outside the array.
    chunk_count : int
        Number of all chunks.
    element_strides : tuple of int
        Strides of the axes in a chunk, in elements.
    axes_by_number : list of int
        The axes in the order in which chunk numbers are in C order.
    """

    def __init__(
        self,
        shape: Sequence[int],
        chunk_shape: Sequence[int],
        number_strides: Sequence[int] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.chunk_shape = tuple(chunk_shape)
        self.chunk_counts = tuple(
            [-(-n // size) for n, size in zip(shape, chunk_shape, strict=True)]
        )
        self.number_strides = (
            c_strides(self.chunk_counts) if number_strides is None else tuple(number_strides)
        )
        self.chunk_count = prod(self.chunk_counts)
        self.element_strides = c_strides(chunk_shape)
        self.axes_by_number = sorted(range(len(self.shape)), key=lambda i: -self.number_strides[i])
        self._axes = [*zip(self.shape, self.chunk_shape, self.number_strides, strict=True)]
        # Whether there is one chunk along all remaining axes, by the number of selection entries.
        self._has_one_chunk_along_others = [
            prod(self.chunk_counts[count:]) == 1 for count in range(len(self.shape) + 1)
        ]

    def coords_of(self, number: int) -> tuple[int, ...]:
        """Index of a chunk along each axis."""
        axes = zip(self.chunk_counts, self.number_strides, strict=True)
        return tuple([number // number_stride % count for count, number_stride in axes])

    def number_of(self, chunk_coords: Sequence[int]) -> int:
        """Number of a chunk, by its index along each axis."""
        return sum(map(mul, chunk_coords, self.number_strides))

    def chunk_number_and_start_of_integers(
        self, chunk_selection: Sequence[Any]
    ) -> ChunkNumberAndStart:
        """The parts of chunk numbers, and of offsets in a chunk, from the integers of a selection.

        Offsets are in elements. Slices and arrays don't count: selections that differ only in
        integers are equal along all other axes. A plain tuple, to keep reads of random rows fast.
        """
        chunk_number = 0
        start = 0
        axes = zip(
            chunk_selection,
            self.chunk_shape,
            self.number_strides,
            self.element_strides,
            strict=True,
        )
        for entry, size, number_stride, stride in axes:
            if type(entry) is int:
                chunk_number += entry // size * number_stride
                start += entry % size * stride
        return chunk_number, start

    def try_in_one_chunk(self, selection: Sequence[Any]) -> ChunkNumberAndIndex | None:
        """Number of the chunk that has all selected elements, and the selection within this chunk.

        A plain tuple, since a selection of a view takes only a microsecond.

        Parameters
        ----------
        selection
            Integers and slices of the array, for the first axes or for all.

        Returns
        -------
        tuple of int and tuple, or None
            The second item has an entry for each entry of `selection`; slices end after their last
            index. None if no chunk or several chunks have selected elements. Also None for entries
            that don't count up from the beginning: entries of other types, negative integers,
            integers beyond the end, steps below 1.

        Raises
        ------
        IndexError
            If there are more entries than axes.
        TypeError
            If a slice has bounds that aren't integers.

        Examples
        --------
        >>> grid = ChunkGrid((6, 7), chunk_shape=(3, 4))
        >>> grid.try_in_one_chunk((4, slice(4, None, 2)))
        (3, (1, slice(0, 3, 2)))
        >>> grid.try_in_one_chunk((slice(2, 4), 0)) is None
        True
        """
        is_one_chunk = self._has_one_chunk_along_others[len(selection)]
        number = 0
        within: list[int | slice] = []
        for entry, (n, size, number_stride) in zip(selection, self._axes):  # noqa: B905 -- slower
            if type(entry) is int:
                if not 0 <= entry < n:
                    return None
                number += entry // size * number_stride
                within.append(entry % size)
            elif type(entry) is slice:
                start, stop, step = entry.indices(n)
                if step < 1 or start >= stop:
                    return None
                k = start // size
                if step > 1:
                    stop -= (stop - 1 - start) % step
                before = k * size
                if stop > before + size:
                    return None
                start -= before
                stop -= before
                number += k * number_stride
                within.append(slice(start, stop, step))
            else:
                return None
        return (number, tuple(within)) if is_one_chunk else None

    def try_box_in_one_chunk(self, chunk_selection: Sequence[Any]) -> StridedBox | None:
        """The box for integers and slices, one for each axis in the stored order, without a plan.

        None if no elements are selected, or if they are in several chunks. It takes a tenth of the
        time of a plan.
        """
        in_one_chunk = self.try_in_one_chunk(chunk_selection)
        if in_one_chunk is None:
            return None
        number, within = in_one_chunk
        start = largest_gap = 0
        extent = 1
        shape = []
        strides = []
        axes = zip(reversed(within), reversed(self.element_strides))  # noqa: B905 -- slower
        for entry, stride in axes:
            first = entry
            count = distance = 1
            if type(entry) is slice:
                first = entry.start
                distance = entry.step * stride
                count = (entry.stop - 1 - first) // entry.step + 1
            if count > 1:
                largest_gap = max(largest_gap, distance - extent)
                extent += (count - 1) * distance
            start += first * stride
            shape.append(count)
            strides.append(distance)
        return StridedBox(
            number, start, extent, largest_gap, tuple(shape[::-1]), tuple(strides[::-1])
        )

    def split_by_axis(self, selection: Selection) -> AxisSplit:
        """The indices of a selection in each chunk, axis by axis."""
        axis_selections = selection.axis_selections
        if selection.are_points:
            return [list(self._points_by_chunk(axis_selections))]
        if self.chunk_count == 1:
            return [[(0, axis)] if len(axis.indices) else [] for axis in axis_selections]
        axes = zip(axis_selections, self.chunk_shape, self.number_strides, strict=True)
        return [
            [(k * number_stride, in_chunk) for k, in_chunk in _split_axis(axis_selection, size)]
            for axis_selection, size, number_stride in axes
        ]

    def combine_axes_by_chunk(self, axis_split: AxisSplit) -> Iterator[ChunkNumberAndSelections]:
        """Number of each chunk with selected elements, ascending, and its selection.

        Plain tuples, since there may be many inner chunks.
        """
        order = self.axes_by_number if len(axis_split) == len(self.axes_by_number) else [0]
        inverse_order = [order.index(i) for i in range(len(order))]
        for combination in product(*[axis_split[i] for i in order]):
            number = sum([added for added, _ in combination])
            yield number, tuple([combination[i][1] for i in inverse_order])

    def lookup_by_chunk(self, axis_split: AxisSplit) -> Callable[[int], AxisSelections | None]:
        """A function from the number of a chunk to its selection; None if it has none."""
        axes = [dict(axis) for axis in axis_split]

        def axis_selections_in(number: int) -> AxisSelections | None:
            added = [number]
            if len(axes) == len(self.number_strides):
                added = [*map(mul, self.coords_of(number), self.number_strides)]
            axis_selections = [axis.get(n) for axis, n in zip(axes, added, strict=True)]
            if None in axis_selections:
                return None
            return tuple(cast("list[AxisSelection]", axis_selections))

        return axis_selections_in

    def _points_by_chunk(
        self, axis_selections: Sequence[AxisSelection]
    ) -> Iterator[ChunkNumberAndPoints]:
        """Number of each chunk with points, ascending, and its points.

        These are the offsets in the chunk, in elements and ascending, and the places in `out`.
        """
        out = axis_selections[0].out_selection
        numbers = np.zeros(len(axis_selections[0].indices), np.int64)
        offsets = np.zeros_like(numbers)
        axes = zip(
            axis_selections,
            self.chunk_shape,
            self.number_strides,
            self.element_strides,
            strict=True,
        )
        has_one_chunk = self.chunk_count == 1
        for axis_selection, size, number_stride, stride in axes:
            indices = np.asarray(axis_selection.indices, np.int64)
            if not has_one_chunk:
                outer, indices = np.divmod(indices, size)
                numbers += outer * number_stride
            offsets += indices * stride
        # Stable, since the last value counts for a point that is written twice.
        order = offsets.argsort(kind="stable") if has_one_chunk else np.lexsort((offsets, numbers))
        numbers = numbers[order]
        offsets = offsets[order]
        out = order + out.start if type(out) is slice else out[order]
        for first, last in runs_of_equals(numbers):
            yield int(numbers[first]), AxisSelection(offsets[first:last], out[first:last])


def _split_axis(
    axis_selection: AxisSelection, chunk_length: int
) -> Iterator[ChunkCoordAndSelection]:
    """Index of each chunk along an axis, and the selected indices within it.

    Chunks without selected indices are left out. `chunk_length` is the length of each chunk.
    """
    indices = axis_selection.indices
    if not isinstance(indices, range):
        outer = indices // chunk_length
        for first, last in runs_of_equals(outer):
            k = int(outer[first])
            if last - first == 1:
                single = int(indices[first]) - k * chunk_length
                yield k, axis_selection.subset(range(single, single + 1), first)
            else:
                yield k, axis_selection.subset(indices[first:last] - k * chunk_length, first)
        return
    step = indices.step
    count = len(indices)
    first = 0
    while first < count:
        k, local = divmod(indices[first], chunk_length)
        last = min(first + (chunk_length - local - 1) // step + 1, count)
        within = range(local, local + (last - first - 1) * step + 1, step)
        yield k, axis_selection.subset(within, first)
        first = last


def runs_of_equals(ascending: Offsets) -> Iterator[PositionBounds]:
    """Start and stop of each run of equal numbers; nothing for an empty array."""
    edges = np.flatnonzero(ascending[1:] != ascending[:-1]) + 1
    return (pair for pair in pairwise([0, *edges.tolist(), ascending.size]) if pair[0] < pair[1])
