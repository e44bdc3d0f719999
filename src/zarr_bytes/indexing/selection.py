"""The selection of a stored object, and its division by chunk or inner chunk.

It has one of the four forms that zarr sends to a pipeline: integers and slices; one array of
integers or bools beside slices; arrays as of ``numpy.ix_``; and points, one array of the same
length for each axis. All are transposed here, and everything below has the stored order of axes.
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
AxisSplit: TypeAlias = "list[list[tuple[int, AxisSelection]]]"

_BASIC: Final = frozenset((int, slice))
_ALL: Final = slice(0, None)  # places from the first on


class AxisSelection:
    """Selected indices along an axis, ascending, and their places along the axis of `out`."""

    __slots__ = ("indices", "out_selection")

    def __init__(self, indices: Indices, out: slice | Offsets) -> None:
        self.indices = indices
        self.out_selection = out

    def out_selection_of(self, first: int, last: int) -> slice | Offsets:
        """Places of the indices number `first` to `last`, exclusive."""
        out = self.out_selection
        return slice(out.start + first, out.start + last) if type(out) is slice else out[first:last]

    def subset(self, indices: Indices, first: int) -> AxisSelection:
        """A dim with the places of the indices from number `first` on."""
        return AxisSelection(indices, self.out_selection_of(first, first + len(indices)))


class Selection:
    """Every combination of indices along the stored axes; or points, not sorted."""

    __slots__ = ("are_points", "axis_selections", "result_axes")

    def __init__(
        self,
        shape: Sequence[int],
        order: Sequence[int],
        chunk_selection: tuple[Any, ...],
        out_selection: Any = None,  # the one in the selection itself
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        self.are_points = is_point_selection(chunk_selection)
        if self.are_points:
            if type(out_selection) is tuple:
                (out_selection,) = out_selection
            out = _ALL if out_selection is None else out_selection
            self.axis_selections = tuple([AxisSelection(chunk_selection[i], out) for i in order])
            self.result_axes = [0]  # the stored axis that each axis of the result is
            return
        places = _out_selection_by_axis(chunk_selection, out_selection, drop_axes)
        self.axis_selections = tuple(
            [_axis_selection(chunk_selection[i], shape[i], places[i]) for i in order]
        )
        kept = [i for i, entry in enumerate(chunk_selection) if type(entry) is not int]
        self.result_axes = [order.index(i) for i in kept]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a view of the selected elements."""
        axis_selections = self.axis_selections[:1] if self.are_points else self.axis_selections
        return tuple([len(axis_selection.indices) for axis_selection in axis_selections])


def selects_all(axis_selections: Sequence[AxisSelection], shape: Sequence[int]) -> bool:
    """Whether all indices along axes of these lengths are selected, once; never of points."""
    sizes = [
        len(axis_selection.indices)
        for axis_selection in axis_selections
        if type(axis_selection.indices) is range
    ]
    return sizes == list(shape)


def view_in_stored_order(
    out: Array,
    order: Sequence[int],
    chunk_selection: tuple[Any, ...],
    out_selection: Any = None,
    drop_axes: tuple[int, ...] = (),
) -> Array:
    """The view of `out` with an axis for each stored axis, in which a `Selection` has its places.

    Slices of `place` begin at 0 in it.
    """
    if is_point_selection(chunk_selection):
        return out
    if drop_axes:
        out = np.expand_dims(out, drop_axes)
    slices = zip(
        chunk_selection,
        _out_selection_by_axis(chunk_selection, out_selection, drop_axes),
        strict=True,
    )
    out = out[(*[p if type(entry) in _BASIC else slice(None) for entry, p in slices], ...)]
    return out.transpose(order)


def is_point_selection(chunk_selection: Sequence[Any]) -> bool:
    """Whether a selection is made of 1-D arrays; other arrays are beside slices."""
    for entry in chunk_selection:
        if getattr(entry, "ndim", 0) != 1:
            return False
    return len(chunk_selection) > 1


def is_basic_selection(chunk_selection: Sequence[Any]) -> bool:
    """Whether a selection is made of integers and slices."""
    return _BASIC.issuperset(map(type, chunk_selection))


def has_form_of_zarr(chunk_selection: Sequence[Any], shape: Sequence[int]) -> bool:
    """Whether a selection of a chunk of `shape` has one of the four forms."""
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
    """Shape of a selection that `has_form_of_zarr`."""
    if is_point_selection(chunk_selection):
        return tuple(chunk_selection[0].shape)
    along = zip(chunk_selection, shape, strict=True)
    return tuple([_selected_length(entry, n) for entry, n in along if type(entry) is not int])


def _selected_length(entry: Any, size: int) -> int:
    if type(entry) is slice:
        return len(range(*entry.indices(size)))
    return int(np.count_nonzero(entry)) if entry.dtype == bool else entry.size


def scalar_of(value: Any, dtype: Any) -> Array:
    """A scalar as NumPy assigns it to one element: one that is masked is NaN, or an error."""
    element: Array = np.empty((), dtype)
    element[()] = value
    return element


def broadcast(value: Array, shape: tuple[int, ...], *, is_element: bool = False) -> Array:
    """`value` in the shape of a selection, as NumPy assigns it: a view, which may be read-only.

    As in ``array[selection] = value``, axes of length 1 in front of those of the selection are left
    out. A selection that `is_element` has no axes and takes no array with axes, other than an array
    of one bool or of one record. A ValueError if the value does not fit.
    """
    if value.shape == shape:
        return value
    elements = np.asarray(value)  # a matrix has two axes in any shape
    more = elements.ndim - len(shape)
    is_taken_for_one = elements.size == 1 and elements.dtype.type in (np.bool_, np.void)
    if is_element and more and not is_taken_for_one:
        raise shape_mismatch_error(value.shape, shape)
    try:
        return np.broadcast_to(elements.squeeze(tuple(range(more))), shape)
    except ValueError:
        raise shape_mismatch_error(value.shape, shape) from None


def outer_index(chunk_selection: Sequence[slice | Offsets]) -> tuple[Any, ...]:
    """NumPy index of every combination of indices along the axes, with the axes in their order."""
    if sum([type(entry) is not slice for entry in chunk_selection]) < 2:
        return tuple(chunk_selection)
    return np.ix_(
        *[np.arange(e.start, e.stop, e.step) if type(e) is slice else e for e in chunk_selection]
    )


def _out_selection_by_axis(
    chunk_selection: tuple[Any, ...], out_selection: Any, drop_axes: tuple[int, ...]
) -> list[Any]:
    """The place along each axis; None for an integer, whose axis `out` does not have."""
    if out_selection is None:
        return [None if type(entry) is int else _ALL for entry in chunk_selection]
    given = iter(out_selection if type(out_selection) is tuple else (out_selection,))
    axes = enumerate(chunk_selection)
    return [None if type(e) is int else _ALL if i in drop_axes else next(given) for i, e in axes]


def _axis_selection(entry: Any, size: int, out_selection: Any) -> AxisSelection:
    """Indices along an axis of `size`, and their places; those of a slice begin at 0."""
    if type(entry) is slice:
        within = range(*entry.indices(size))
        return AxisSelection(within, slice(0, len(within)))
    if type(entry) is int:
        return AxisSelection(range(entry, entry + 1), slice(0, 1))
    along: Offsets = np.flatnonzero(entry) if entry.dtype == bool else entry.ravel()
    along = along.astype(np.int64, copy=False)
    begin = out_selection.start if type(out_selection) is slice else None
    out: slice | Offsets = (
        out_selection.ravel() if begin is None else slice(begin, begin + along.size)
    )
    steps = np.diff(along)
    if steps.size and steps.min() < 0:
        # NumPy sorts integers of 16 bits ten times as fast. The sort is stable, since the last
        # value counts for an index that is written twice.
        order = np.argsort(along.astype(np.uint16) if along.max() < 2**16 else along, kind="stable")
        along, steps = along[order], np.diff(along[order])
        out = order + out.start if type(out) is slice else out[order]
    step = int(steps[0]) if steps.size else 1
    if not step or (steps != step).any():
        return AxisSelection(along, out)
    first = int(along[0]) if along.size else 0
    return AxisSelection(range(first, first + along.size * step, step), out)


def c_strides(
    shape: Sequence[int], item_size: int = 1, order: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Strides of an array whose axes are stored in C order, or in `order`, outermost first."""
    axes = range(len(shape)) if order is None else order
    steps = accumulate([shape[i] for i in reversed(axes)], mul, initial=item_size)
    found = dict(zip(reversed(axes), steps, strict=False))
    return tuple([found[i] for i in range(len(shape))])


class Box(NamedTuple):
    """Elements at even steps along each axis of one chunk: a point, a row, a plane, a block."""

    chunk_number: int  # of the chunk
    start: int  # in elements, as all that follow
    extent: int  # from the first to the last selected one
    largest_gap: int  # the longest between two selected ones
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class ChunkGrid:
    """A regular grid of chunks, which are numbered.

    The numbers of neighbours along an axis differ by the number stride of the axis: in C order,
    unless `number_strides` are given.
    """

    def __init__(
        self,
        shape: Sequence[int],
        chunk_shape: Sequence[int],
        number_strides: Sequence[int] | None = None,
    ) -> None:
        self.shape, self.chunk_shape = tuple(shape), tuple(chunk_shape)
        self.chunk_counts = tuple(
            [-(-n // size) for n, size in zip(shape, chunk_shape, strict=True)]
        )
        self.number_strides = (
            c_strides(self.chunk_counts) if number_strides is None else tuple(number_strides)
        )
        self.chunk_count = prod(self.chunk_counts)
        self.element_strides = c_strides(chunk_shape)
        # In this order, numbers ascend.
        self.axes_by_number = sorted(range(len(self.shape)), key=lambda i: -self.number_strides[i])
        axes = zip(
            self.shape, self.chunk_shape, self.number_strides, self.element_strides, strict=True
        )
        self._innermost_first = [*axes][::-1]

    def coords_of(self, number: int) -> tuple[int, ...]:
        """Index of a chunk along each axis."""
        axes = zip(self.chunk_counts, self.number_strides, strict=True)
        return tuple([number // distance % count for count, distance in axes])

    def number_of(self, chunk_coords: Sequence[int]) -> int:
        """Number of a chunk, by its index along each axis."""
        return sum(map(mul, chunk_coords, self.number_strides))

    def origin_of_integers(self, chunk_selection: Sequence[Any]) -> tuple[int, int]:
        """What integers add to the numbers of chunks, and to the first element in a chunk."""
        number = start = 0
        axes = zip(
            chunk_selection,
            self.chunk_shape,
            self.number_strides,
            self.element_strides,
            strict=True,
        )
        for entry, size, distance, stride in axes:
            if type(entry) is int:
                number += entry // size * distance
                start += entry % size * stride
        return number, start

    def box_of(self, chunk_selection: Sequence[Any]) -> Box | None:
        """Integers and slices in one chunk, in a tenth of the time of a plan; None for others."""
        number = start = gap = 0
        extent, shape, strides = 1, [], []
        axes = zip(reversed(chunk_selection), self._innermost_first)  # noqa: B905 -- slower
        for entry, (n, size, distance, stride) in axes:
            first, count, step = entry, 1, 1
            if type(entry) is slice:
                first, stop, step = entry.indices(n)
                count = -((first - stop) // step)
                if count < 1:
                    return None
            k, local = divmod(first, size)
            if local + (count - 1) * step >= size:
                return None
            if count > 1:
                step *= stride
                gap = max(gap, step - extent)
                extent += (count - 1) * step
            number += k * distance
            start += local * stride
            shape.append(count)
            strides.append(step)
        return Box(number, start, extent, gap, tuple(shape[::-1]), tuple(strides[::-1]))

    def split_by_axis(self, selection: Selection) -> AxisSplit:
        """Indices in chunks along each axis (points: one of offsets), with the chunks' numbers."""
        axis_selections = selection.axis_selections
        if selection.are_points:
            return [list(self._split_points(axis_selections))]
        if self.chunk_count == 1:
            return [
                [(0, axis_selection)] if len(axis_selection.indices) else []
                for axis_selection in axis_selections
            ]
        axes = zip(axis_selections, self.chunk_shape, self.number_strides, strict=True)
        return [
            [(k * d, part) for k, part in _split_axis(axis_selection, size)]
            for axis_selection, size, d in axes
        ]

    def chunks_of(self, along: AxisSplit) -> Iterator[tuple[int, tuple[AxisSelection, ...]]]:
        """Number of each chunk with selected elements, ascending, and their indices in it."""
        order = self.axes_by_number if len(along) == len(self.axes_by_number) else [0]
        back = [order.index(i) for i in range(len(order))]
        for found in product(*[along[i] for i in order]):
            yield sum([number for number, _ in found]), tuple([found[i][1] for i in back])

    def finder(self, along: AxisSplit) -> Callable[[int], tuple[AxisSelection, ...] | None]:
        """A function that gives the indices in the chunk with a number, or None without any."""
        axes = [dict(axis) for axis in along]

        def dims(number: int) -> tuple[AxisSelection, ...] | None:
            numbers = [number]
            if len(axes) == len(self.number_strides):
                numbers = [*map(mul, self.coords_of(number), self.number_strides)]
            found = [axis.get(part) for axis, part in zip(axes, numbers, strict=True)]
            return None if None in found else tuple(cast("list[AxisSelection]", found))

        return dims

    def _split_points(
        self, axis_selections: Sequence[AxisSelection]
    ) -> Iterator[tuple[int, AxisSelection]]:
        out = axis_selections[0].out_selection
        numbers, offsets = np.zeros((2, len(axis_selections[0].indices)), np.int64)
        for axis_selection, size, distance, stride in zip(
            axis_selections,
            self.chunk_shape,
            self.number_strides,
            self.element_strides,
            strict=True,
        ):
            indices = np.asarray(axis_selection.indices, np.int64)
            outer, local = np.divmod(indices, size) if self.chunk_count > 1 else (0, indices)
            numbers += outer * distance
            offsets += local * stride
        # Stable, since the last value counts for a point that is written twice.
        is_one = self.chunk_count == 1
        order = np.argsort(offsets, kind="stable") if is_one else np.lexsort((offsets, numbers))
        numbers, offsets = numbers[order], offsets[order]
        out = order + out.start if type(out) is slice else out[order]
        for first, last in runs_of_equals(numbers):
            yield int(numbers[first]), AxisSelection(offsets[first:last], out[first:last])


def _split_axis(axis_selection: AxisSelection, size: int) -> Iterator[tuple[int, AxisSelection]]:
    """Numbers of the chunks along an axis, each `size` long, and the indices within each."""
    indices = axis_selection.indices
    if not isinstance(indices, range):
        outer = indices // size
        for first, last in runs_of_equals(outer):
            k = int(outer[first])
            if last - first == 1:
                single = int(indices[first]) - k * size
                yield k, axis_selection.subset(range(single, single + 1), first)
            else:
                yield k, axis_selection.subset(indices[first:last] - k * size, first)
        return
    step, begin, count = indices.step, 0, len(indices)
    while begin < count:
        k, local = divmod(indices[begin], size)
        end = min(begin + (size - local - 1) // step + 1, count)
        yield (
            k,
            axis_selection.subset(range(local, local + (end - begin - 1) * step + 1, step), begin),
        )
        begin = end


def runs_of_equals(ascending: Offsets) -> Iterator[tuple[int, int]]:
    """First and last, exclusive, of each run of equal numbers."""
    edges = np.flatnonzero(np.diff(ascending)) + 1
    return (pair for pair in pairwise([0, *edges.tolist(), ascending.size]) if pair[0] < pair[1])
