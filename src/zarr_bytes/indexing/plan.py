"""The plan of a read or a write: the byte ranges of a selection, and the places of its elements.

Two neighbors on an axis are fetched together if there are no more bytes between them than the gap.
Ranges and places are composed from the innermost axis outwards. They are counted before they are
made, in slabs of bounded size: time and memory depend on the size of the selection, not on the size
of the chunk.

In a chunk of shape (3, 4), ``chunk[0:3, 1:3]`` selects the elements 1, 2, 5, 6, 9 and 10::

    0 [1  2] 3
    4 [5  6] 7
    8 [9 10] 11

1. The inner axis has the indices 1 and 2. No element is between them, so they are one range. Its
   extent is two elements, and the second element is one step after the first.
2. The outer axis has the indices 0, 1 and 2, at distances of four elements. The inner axis selects
   two of these four. The other two are more than a gap of one, so each row begins a new range:
   there are three ranges with an extent of ten elements. Six elements are fetched, and each row is
   two steps after the previous row in the fetched elements.
3. With a gap of two, the rows are one range instead. Ten elements are fetched, and each row is four
   steps after the previous row.

This example in code, with elements of one byte:

>>> rows_and_columns = [range(3), range(1, 3)]
>>> planner = SlabPlanner(rows_and_columns, element_strides=(4, 1), item_size=1, gap_nbytes=1)
>>> inner, outer = planner.axis_ranges
>>> inner.step, inner.stats
(1, RangeStats(extent=2, fetched_elements=2, ranges=1, selected_elements=2))
>>> outer.step, outer.stats
(2, RangeStats(extent=10, fetched_elements=6, ranges=3, selected_elements=6))

Ranges are counted from the first selected element, which is at byte 1. The selection
``chunk[0:3, 1:3]`` becomes a `Slab`, an array in the fetched bytes.

>>> slab = planner.slab_of_all_ranges
>>> [(start, stop) for start, stop, _ in slab.ranges.ranges()], slab.shape, slab.strides
([(0, 2), (4, 6), (8, 10)], (3, 2), (2, 1))
>>> planner = SlabPlanner(rows_and_columns, element_strides=(4, 1), item_size=1, gap_nbytes=2)
>>> slab = planner.slab_of_all_ranges
>>> [(start, stop) for start, stop, _ in slab.ranges.ranges()], slab.shape, slab.strides
([(0, 10)], (3, 2), (4, 1))

A `Plan` has an `InnerSelection` for each inner chunk with selected elements. Inner selections of
equal form share a `SlabPlanner`. Once the index of an object is known, a `Fetch` combines the slabs
of one or several inner chunks. Any thread may make and use plans, without a lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from functools import cached_property
from itertools import accumulate, chain, islice, product
from math import prod
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from zarr_bytes.errors import ChunkSizeError, wrong_size_error
from zarr_bytes.indexing.selection import Selection, outer_index, runs_of_equals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr_bytes.indexing.selection import (
        Array,
        AxisSelections,
        Indices,
        Offsets,
        PositionBounds,
    )
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.settings import RequestCost

StartsAndStops: TypeAlias = "tuple[Offsets, Offsets]"
"""Starts and stops of ranges, ascending."""

StartsAndSizes: TypeAlias = "tuple[list[int], list[int]]"
"""Starts and sizes of ranges, ascending."""

StartStopPackedOffset: TypeAlias = "tuple[int, int, int]"
"""A range: its start and stop in the object, and its offset in the packed bytes of all ranges.

A plain tuple, since there may be many ranges."""

AxisBounds: TypeAlias = "Sequence[PositionBounds]"
"""Bounds of some of the selected indices along each axis, outermost axis first."""

OutSelection: TypeAlias = "tuple[Any, ...]"
"""NumPy index into the view of `out` with the axes in their stored order."""

PlacedSlab: TypeAlias = "tuple[Slab, OutSelection, int]"
"""A slab, the places of its elements, and the position of its first byte in the fetched bytes.

A plain tuple, since there may be many inner chunks."""

LocatedInnerSelection: TypeAlias = "tuple[int, InnerSelection]"
"""The offset of the first selected element in the object, in bytes, and the inner selection.

A plain tuple, since there may be many inner chunks."""

UNLIMITED: Final = 2**62
"""A gap, in bytes, that joins everything into one range; a size that is never exceeded."""

_LOCATION: Final = itemgetter(0)  # of a located inner selection
_ONLY_RANGES: Final = frozenset((range,))
_AT_ONCE: Final = 2**12  # inner selections that are sorted, or ranges in Python integers


class ByteRanges:
    """Ranges of bytes that are fetched together, ascending.

    Parameters
    ----------
    offset : int
        Offset of the first byte, if there is one range; otherwise the offset from which
        `bounds_from_offset_if_several` are counted.
    total_nbytes : int
        Sum of the sizes of all ranges; the attribute is `nbytes`.
    bounds_from_offset_if_several : tuple of two arrays, optional
        Starts and stops of the ranges, counted from `offset`; None for one range.
    """

    __slots__ = ("bounds_from_offset_if_several", "nbytes", "offset")

    def __init__(
        self,
        offset: int,
        total_nbytes: int,
        bounds_from_offset_if_several: StartsAndStops | None = None,
    ) -> None:
        self.offset = offset
        self.nbytes = total_nbytes
        self.bounds_from_offset_if_several = bounds_from_offset_if_several

    def number_of_ranges(self) -> int:
        """Number of ranges."""
        return (
            1
            if self.bounds_from_offset_if_several is None
            else self.bounds_from_offset_if_several[0].size
        )

    def requests(self, max_request_nbytes: int) -> Iterator[StartStopPackedOffset]:
        """Like `ranges`, with longer ranges cut to at most `max_request_nbytes` bytes."""
        if self.nbytes <= max_request_nbytes:
            return self.ranges()
        return (
            (begin, min(begin + max_request_nbytes, stop), position + begin - start)
            for start, stop, position in self.ranges()
            for begin in range(start, stop, max_request_nbytes)
        )

    def number_of_requests(self, max_request_nbytes: int) -> int:
        """Number of `requests`."""
        if self.nbytes <= max_request_nbytes:
            return self.number_of_ranges()
        starts, stops = self.starts_and_stops()
        return int((-(-(stops - starts) // max_request_nbytes)).sum())

    def starts_and_stops(self) -> StartsAndStops:
        """Starts and stops of all ranges, counted from the same origin as `offset`."""
        if self.bounds_from_offset_if_several is None:
            return np.array([self.offset]), np.array([self.offset + self.nbytes])
        return self.offset + self.bounds_from_offset_if_several[
            0
        ], self.offset + self.bounds_from_offset_if_several[1]

    def ranges(self) -> Iterator[StartStopPackedOffset]:
        """Start, stop, and position in the fetched bytes, of every range."""
        if self.bounds_from_offset_if_several is None:
            return iter([(self.offset, self.offset + self.nbytes, 0)])

        def blocks() -> Iterator[Iterator[StartStopPackedOffset]]:
            position = 0
            for starts, sizes in self.starts_and_sizes():
                *positions, position = accumulate(sizes, initial=position)
                yield zip(starts, map(add, starts, sizes), positions, strict=True)

        return chain.from_iterable(blocks())  # without Python code for each range

    def extract(self, content: Bytes) -> Bytes:
        """The bytes of the ranges one after another, from the bytes of the whole object.

        One range is a view of `content`; several ranges are a copy.
        """
        if self.bounds_from_offset_if_several is None:
            return content[self.offset : self.offset + self.nbytes]
        return np.concatenate([content[start:stop] for start, stop, _ in self.ranges()])

    def starts_and_sizes(self) -> Iterator[StartsAndSizes]:
        """Starts and sizes of the ranges, in pairs of lists of a few thousand each.

        They are not returned all at once, since Python integers take much memory.
        """
        if self.bounds_from_offset_if_several is None:
            yield [self.offset], [self.nbytes]
            return
        starts, stops = self.bounds_from_offset_if_several
        for i in range(0, starts.size, _AT_ONCE):
            block = starts[i : i + _AT_ONCE]
            yield (block + self.offset).tolist(), (stops[i : i + _AT_ONCE] - block).tolist()


class RangeStats(NamedTuple):
    """Sizes of a selection and its ranges, in elements."""

    extent: int  # from the first selected element to the last, both included
    fetched_elements: int  # in all ranges, including gaps within ranges
    ranges: int  # number of ranges
    selected_elements: int  # an element that is selected twice counts twice

    def fits(self, max_elements: int, max_ranges: int) -> bool:
        """Whether at most `max_elements` are fetched and selected, in at most `max_ranges`."""
        return (
            self.fetched_elements <= max_elements
            and self.selected_elements <= max_elements
            and self.ranges <= max_ranges
        )


_STATS_OF_ONE_ELEMENT: Final = RangeStats(1, 1, 1, 1)


class AxisPiece(NamedTuple):
    """Some successive selected indices of an axis."""

    first_position: int
    stop_position: int  # the position after the last index
    stats: RangeStats


class DistinctOffsetsAndRangeStarts(NamedTuple):
    """The selected indices of an axis at some positions, without repetitions."""

    from_first: Offsets  # elements in the chunk from the first of these indices to each index
    starts_new_range: bool | Array  # without the first index: one bool for all, or one for each


class AxisRanges(ABC):
    """The ranges of an axis: its selected indices, each with the selection of the inner axes.

    Positions count the selected indices: the smallest selected index has position 0.

    Attributes
    ----------
    indices : range or array
        The selected indices, ascending; an index that is selected twice is included twice.
    stride : int
        Elements from an index of the axis to the next index, in the chunk.
    inner_stats : RangeStats
        Sizes for one index, from the inner axes.
    stats : RangeStats
        Sizes for all indices.
    is_even : bool
        Whether all neighbors have equal distances, so that pieces of equal length are alike.
    """

    indices: Indices
    stats: RangeStats
    is_even: bool

    def __init__(self, stride: int, inner_stats: RangeStats) -> None:
        self.stride = stride
        self.inner_stats = inner_stats

    @abstractmethod
    def stats_of(self, first_position: int, stop_position: int) -> RangeStats:
        """Sizes for the indices at the positions `first_position` to `stop_position`, exclusive."""

    @abstractmethod
    def positions_of_each_index(self) -> list[PositionBounds]:
        """First and last position, exclusive, of each index with its repetitions."""

    @abstractmethod
    def _distinct_offsets_and_range_starts(
        self, first_position: int, stop_position: int
    ) -> DistinctOffsetsAndRangeStarts:
        """The indices at the positions `first_position` to `stop_position`, exclusive."""

    def split_by_size(self, max_elements: int, max_ranges: int) -> Iterator[AxisPiece]:
        """All indices, in pieces within both limits; an index that exceeds them is one piece."""
        count = len(self.indices)
        first = length = 0
        stats = self.inner_stats
        while first < count:
            is_like_last = length > 0 and self.is_even and first + length <= count
            if not is_like_last:
                length = self._largest_length(first, max_elements, max_ranges)
                stats = self.stats_of(first, first + length)
            yield AxisPiece(first, first + length, stats)
            first += length

    def _largest_length(self, first_position: int, max_elements: int, max_ranges: int) -> int:
        """Largest number of indices from `first_position` within both limits; at least one."""

        def exceeds(stop_position: int) -> bool:
            return not self.stats_of(first_position, stop_position).fits(max_elements, max_ranges)

        longer = range(first_position + 2, len(self.indices) + 1)
        return 1 + bisect_left(longer, True, key=exceeds)  # noqa: FBT003 -- the value looked for

    def range_bounds_of_piece(
        self,
        first_position: int,
        stop_position: int,
        bounds_inside_if_several: StartsAndStops | None,
    ) -> StartsAndStops:
        """Starts and stops of the ranges of a piece, counted from its first element.

        `bounds_inside_if_several` are the starts and stops for one index, which repeat at each
        index; None if one index is one range.
        """
        if bounds_inside_if_several is None:
            starts, stops = np.zeros(1, np.int64), np.array([self.inner_stats.extent])
        else:
            starts, stops = bounds_inside_if_several
        offsets, starts_new_range = self._distinct_offsets_and_range_starts(
            first_position, stop_position
        )
        # All starts and stops of the ranges at all indices, except where two ranges are joined.
        begins, ends = np.ones((2, offsets.size, starts.size), bool)
        begins[1:, 0] = starts_new_range
        ends[:-1, -1] = starts_new_range
        return (offsets[:, None] + starts)[begins], (offsets[:, None] + stops)[ends]


class EvenAxisRanges(AxisRanges):
    """The ranges of an axis with a `range` of selected indices: all neighbors are alike.

    Attributes
    ----------
    distance : int
        Elements from a selected index to the next one, in the chunk; 0 if there is only one.
    starts_new_range : bool
        Whether each index except the first begins a new range.
    step : int
        Elements from a selected index to the next one, in the fetched elements: the stride of a
        slab.
    added_ranges : int
        Number of ranges that each index except the first adds: one less than its own ranges, if its
        first range is joined to the last range of the previous index.
    """

    is_even = True

    def __init__(
        self, indices: range, element_stride: int, inner_stats: RangeStats, gap_elements: int
    ) -> None:
        super().__init__(element_stride, inner_stats)
        self.indices: range = indices
        self.distance = 0
        self.starts_new_range = False
        self.step = inner_stats.fetched_elements
        self.added_ranges = 0
        self.stats = inner_stats
        if len(indices) == 1:
            return
        self.distance = indices.step * element_stride
        unread = self.distance - inner_stats.extent
        self.starts_new_range = unread > gap_elements
        if self.starts_new_range:
            self.added_ranges = inner_stats.ranges
        else:
            self.step += unread
            self.added_ranges = inner_stats.ranges - 1
        self.stats = self.stats_of(0, len(indices))

    def stats_of(self, first_position: int, stop_position: int) -> RangeStats:
        """Sizes for the indices at the positions `first_position` to `stop_position`, exclusive."""
        inner = self.inner_stats
        others = stop_position - first_position - 1
        return RangeStats(
            inner.extent + others * self.distance,
            inner.fetched_elements + others * self.step,
            inner.ranges + others * self.added_ranges,
            inner.selected_elements * (stop_position - first_position),
        )

    def positions_of_each_index(self) -> list[PositionBounds]:
        """First and last position, exclusive, of each index."""
        return [(i, i + 1) for i in range(len(self.indices))]

    def _distinct_offsets_and_range_starts(
        self, first_position: int, stop_position: int
    ) -> DistinctOffsetsAndRangeStarts:
        count = stop_position - first_position
        return DistinctOffsetsAndRangeStarts(
            np.arange(count) * self.distance, self.starts_new_range
        )


class UnevenAxisRanges(AxisRanges):
    """The ranges of an axis with an array of selected indices, which may have repetitions.

    Attributes
    ----------
    distances : array
        Elements from each selected index to the next one, in the chunk: 0 to a repetition. There is
        one distance less than indices.
    starts_new_range : array of bool
        Whether each index except the first begins a new range.
    steps : array
        Elements from the first index to each index, in the fetched elements.
    range_counts : array
        Total number of ranges that the indices after the first add, up to each index.
    """

    is_even = False

    def __init__(
        self, indices: Offsets, element_stride: int, inner_stats: RangeStats, gap_elements: int
    ) -> None:
        super().__init__(element_stride, inner_stats)
        self.indices: Offsets = indices
        self.distances: Offsets = (indices[1:] - indices[:-1]) * element_stride
        unread = self.distances - inner_stats.extent
        is_new = self.distances > 0
        is_joined = is_new & (unread <= gap_elements)
        self.starts_new_range: Array = is_new ^ is_joined
        # A mask times a number is the number where the mask is true, and 0 elsewhere.
        steps = is_new * inner_stats.fetched_elements + is_joined * unread
        added_ranges = is_new * inner_stats.ranges - is_joined
        self.steps = _cumulative_sums_from_zero(steps)
        self.range_counts = _cumulative_sums_from_zero(added_ranges)
        self.stats = self.stats_of(0, len(indices))

    def stats_of(self, first_position: int, stop_position: int) -> RangeStats:
        """Sizes for the indices at the positions `first_position` to `stop_position`, exclusive."""
        inner = self.inner_stats
        end = stop_position - 1
        return RangeStats(
            inner.extent + int(self.indices[end] - self.indices[first_position]) * self.stride,
            inner.fetched_elements + int(self.steps[end] - self.steps[first_position]),
            inner.ranges + int(self.range_counts[end] - self.range_counts[first_position]),
            inner.selected_elements * (stop_position - first_position),
        )

    def positions_of_each_index(self) -> list[PositionBounds]:
        """First and last position, exclusive, of each index with its repetitions."""
        return list(runs_of_equals(self.indices))

    def _distinct_offsets_and_range_starts(
        self, first_position: int, stop_position: int
    ) -> DistinctOffsetsAndRangeStarts:
        after_first = slice(first_position, stop_position - 1)
        distances = self.distances[after_first]
        is_new = distances > 0
        offsets = _cumulative_sums_from_zero(distances[is_new])
        return DistinctOffsetsAndRangeStarts(offsets, self.starts_new_range[after_first][is_new])


def _cumulative_sums_from_zero(numbers: Offsets) -> Offsets:
    """0, and the sum of the numbers up to each one: one item more than `numbers`."""
    # `numpy.append` takes several times as long for the few indices of a usual selection.
    sums = np.zeros(numbers.size + 1, np.int64)
    numbers.cumsum(out=sums[1:])
    return sums


class Slab(NamedTuple):
    """Selected elements of an inner chunk that are fetched together, as an array in their bytes.

    A slab is independent of its inner chunk: inner chunks with equal selections share slabs.
    """

    ranges: ByteRanges  # counted from the first selected element of the inner chunk
    shape: tuple[int, ...]  # of the array in the fetched bytes
    strides: tuple[int, ...]  # of the array, in bytes
    # NumPy index of the selected elements in the array; None if all its elements are selected.
    selected_index: tuple[Any, ...] | None
    axis_bounds: AxisBounds | None  # the part of the selection; None for the whole selection

    def selected_elements(self, fetched: Bytes, offset: int, dtype: Any) -> Array:
        """The selected elements. Their ranges are in `fetched` from the byte `offset` on.

        A view of `fetched`; a copy if there is a `selected_index`.
        """
        array: Array = np.ndarray(self.shape, dtype, fetched, offset, self.strides)
        return array if self.selected_index is None else array[self.selected_index]

    def put_into_bytes(self, elements: Array, range_bytes: Array) -> None:
        """Assign elements to the bytes of the ranges, at the beginning of `range_bytes`.

        If an element is selected twice, its last value is used.
        """
        array: Array = np.ndarray(self.shape, elements.dtype, range_bytes, strides=self.strides)
        array[... if self.selected_index is None else self.selected_index] = elements


class SlabPlanner:
    """Makes the slabs of a selection of an inner chunk, after computing their sizes.

    Inner chunks with equal selections, or selections that are only shifted, share a planner.

    Parameters
    ----------
    indices : sequence of range or array
        The selected indices along each stored axis, ascending; for points, along one axis of
        offsets.
    element_strides : sequence of int
        Strides of the stored axes in the inner chunk, in elements.
    item_size : int
        Bytes of an element.
    gap_nbytes : int
        Largest number of unread bytes between two selected elements of one range.

    Attributes
    ----------
    axis_ranges : list of AxisRanges
        The ranges of each axis, innermost first.
    stats : RangeStats
        Sizes of the whole selection.
    item_size : int
        Bytes of an element.
    """

    def __init__(
        self,
        indices: Sequence[Indices],
        element_strides: Sequence[int],
        item_size: int,
        gap_nbytes: int,
    ) -> None:
        self.axis_ranges: list[EvenAxisRanges | UnevenAxisRanges] = []
        self.stats = _STATS_OF_ONE_ELEMENT
        self.item_size = item_size
        gap_elements = gap_nbytes // item_size
        for along, stride in zip(reversed(indices), reversed(element_strides), strict=True):
            axis: EvenAxisRanges | UnevenAxisRanges
            if isinstance(along, range):
                axis = EvenAxisRanges(along, stride, self.stats, gap_elements)
            else:
                axis = UnevenAxisRanges(along, stride, self.stats, gap_elements)
            self.axis_ranges.append(axis)
            self.stats = axis.stats

    @cached_property
    def slab_of_all_ranges(self) -> Slab:
        """The slab of the whole selection."""
        (slab,) = self._split_by_size(UNLIMITED, UNLIMITED)
        return slab

    def split_by_size(self, max_nbytes: int, max_ranges: int) -> Iterable[Slab]:
        """Slabs of the whole selection, each of at most `max_nbytes` and `max_ranges`.

        A single element may exceed `max_nbytes`.
        """
        max_elements = max(max_nbytes // self.item_size, 1)
        if self.stats.fits(max_elements, max_ranges):
            return (self.slab_of_all_ranges,)
        return self._split_by_size(max_elements, max_ranges)

    def _split_by_size(self, max_elements: int, max_ranges: int) -> Iterator[Slab]:
        """Slabs within both limits.

        Each slab has whole inner axes, as long as these are within the limits; a piece of the next
        axis, which is split; and single indices of the outer axes.
        """
        whole_axes: list[PositionBounds] = []  # innermost first
        bounds: StartsAndStops | None = None  # of the whole axes; None for one range
        stats = _STATS_OF_ONE_ELEMENT
        for axis in self.axis_ranges:
            if not axis.stats.fits(max_elements, max_ranges):
                break
            stats = axis.stats
            count = len(axis.indices)
            if stats.ranges > 1 and count > 1:
                bounds = axis.range_bounds_of_piece(0, count, bounds)
            whole_axes.append((0, count))
        if len(whole_axes) == len(self.axis_ranges):
            yield self._slab(whole_axes, bounds, stats)._replace(axis_bounds=None)
            return
        split_axis = self.axis_ranges[len(whole_axes)]
        pieces = list(split_axis.split_by_size(max_elements, max_ranges))
        outer_axes = self.axis_ranges[: len(whole_axes) : -1]
        length = 0  # of the last piece
        for outer_bounds in product(*[axis.positions_of_each_index() for axis in outer_axes]):
            for first, last, stats in pieces:
                is_like_last = split_axis.is_even and last - first == length
                if not is_like_last:
                    length = last - first
                    piece_bounds = None
                    if stats.ranges > 1:
                        piece_bounds = split_axis.range_bounds_of_piece(first, last, bounds)
                innermost_first = [*whole_axes, (first, last), *outer_bounds[::-1]]
                yield self._slab(innermost_first, piece_bounds, stats)

    def _slab(
        self,
        innermost_first: list[PositionBounds],
        bounds_if_several: StartsAndStops | None,
        stats: RangeStats,
    ) -> Slab:
        """The slab of a part of the selection.

        Parameters
        ----------
        innermost_first : list of PositionBounds
            The part, like `AxisBounds`, but with the innermost axis first.
        bounds_if_several : tuple of two arrays or None
            Ranges of the part in elements, counted from its first element; None for one range.
        stats : RangeStats
            Sizes of the part.
        """
        size = self.item_size
        axis_bounds = innermost_first[::-1]
        start = 0
        is_even = True
        shape: list[int] = []
        strides: list[int] = []
        selected: list[slice | Offsets] = []
        for axis, (first, last) in zip(reversed(self.axis_ranges), axis_bounds, strict=True):
            start += int(axis.indices[first] - axis.indices[0]) * axis.stride
            if isinstance(axis, EvenAxisRanges):
                shape.append(last - first)
                strides.append(axis.step * size)
                selected.append(slice(0, last - first))
            else:
                # The fetched elements are one axis, and an index takes the selected ones.
                is_even = False
                steps = axis.steps[first:last] - axis.steps[first]
                shape.append(int(steps[-1]) + 1)
                strides.append(size)
                selected.append(steps)
        bounds: StartsAndStops | None = None
        if bounds_if_several is not None:
            starts, stops = bounds_if_several
            bounds = starts * size, stops * size
        ranges = ByteRanges(start * size, stats.fetched_elements * size, bounds)
        selected_index = None if is_even else outer_index(selected)
        return Slab(ranges, tuple(shape), tuple(strides), selected_index, axis_bounds)


class InnerSelection:
    """The selected elements of one inner chunk.

    Attributes
    ----------
    inner_chunk_number : int
        Number of the inner chunk, in the order of the index; 0 in a chunk.
    offset_in_inner_chunk : int
        Offset of the first selected element in the inner chunk, in bytes.
    slab_planner : SlabPlanner
        Makes the slabs; shared by inner chunks with equal selections.
    axis_selections : tuple of AxisSelection
        Indices in the inner chunk and their places, along each stored axis; for points, along one
        axis of offsets.
    """

    __slots__ = ("axis_selections", "inner_chunk_number", "offset_in_inner_chunk", "slab_planner")

    def __init__(
        self,
        inner_chunk_number: int,
        offset_in_inner_chunk: int,
        slab_planner: SlabPlanner,
        axis_selections: AxisSelections,
    ) -> None:
        self.inner_chunk_number = inner_chunk_number
        self.offset_in_inner_chunk = offset_in_inner_chunk
        self.slab_planner = slab_planner
        self.axis_selections = axis_selections

    def out_selection(self, axis_bounds: AxisBounds | None = None) -> tuple[Any, ...]:
        """The places of all elements in the view of `out`, or of the elements within the bounds."""
        if axis_bounds is None:
            return outer_index([axis.out_selection for axis in self.axis_selections])
        pairs = zip(self.axis_selections, axis_bounds, strict=True)
        return outer_index([axis.out_selection_of(first, last) for axis, (first, last) in pairs])


class Fetch(NamedTuple):
    """Byte ranges of a stored object, and the slabs in their bytes."""

    ranges: ByteRanges  # in the object
    slabs: list[PlacedSlab]


class SizedFetch(NamedTuple):
    """A fetch, and the largest size of its requests in bytes."""

    fetch: Fetch
    max_request_nbytes: int
    has_small_requests: bool  # whether its ranges are small on average, before they are cut


class AbsentInnerChunk(NamedTuple):
    """A selected inner chunk that is absent from the object: it has the fill value."""

    out_selection: OutSelection


def group_into_fetches(
    located: list[LocatedInnerSelection],
    max_gap_within_range: int,
    max_fetch_nbytes: int,
    max_ranges: int,
    *,
    groups_ranges: bool,
) -> Iterator[Fetch]:
    """Group inner selections into fetches, each with as many as the limits permit.

    Parameters
    ----------
    located : list of LocatedInnerSelection
        If sorted by offset, ranges of neighbors are joined if the gap permits.
    max_gap_within_range : int
        Largest number of unread bytes between two slabs of one range. A slab of several ranges
        isn't joined to others.
    max_fetch_nbytes : int
        Largest size of a fetch, except for a fetch of a single element.
    max_ranges : int
        Largest number of ranges of a fetch.
    groups_ranges : bool
        Whether a fetch may have several slabs that aren't joined in one range.
    """
    together: list[ByteRanges] = []  # the ranges of the next fetch
    slabs: list[PlacedSlab] = []
    nbytes = count = 0  # of `together`
    for offset, inner_selection in located:
        for slab in inner_selection.slab_planner.split_by_size(max_fetch_nbytes, max_ranges):
            ranges = slab.ranges
            start = offset + ranges.offset
            size = ranges.nbytes
            bounds = ranges.bounds_from_offset_if_several
            if (
                together
                and bounds is None
                and (last := together[-1]).bounds_from_offset_if_several is None
            ):
                unread = start - last.offset - last.nbytes
                if (
                    0 <= unread <= max_gap_within_range
                    and nbytes + unread + size <= max_fetch_nbytes
                ):
                    together[-1] = ByteRanges(last.offset, last.nbytes + unread + size)
                    nbytes += unread
                    out_selection = inner_selection.out_selection(slab.axis_bounds)
                    slabs.append((slab, out_selection, nbytes))
                    nbytes += size
                    continue
            added = ranges.number_of_ranges()
            if together and (
                not groups_ranges or nbytes + size > max_fetch_nbytes or count + added > max_ranges
            ):
                yield Fetch(concatenate_ranges(together, nbytes), slabs)
                together = []
                slabs = []
                nbytes = count = 0
            together.append(ByteRanges(start, size, bounds))
            slabs.append((slab, inner_selection.out_selection(slab.axis_bounds), nbytes))
            nbytes += size
            count += added
    if together:
        yield Fetch(concatenate_ranges(together, nbytes), slabs)


def concatenate_ranges(together: list[ByteRanges], nbytes: int) -> ByteRanges:
    """All these ranges in their order; at least one. `nbytes` is the sum of their sizes."""
    if len(together) == 1:
        return together[0]
    if all(ranges.bounds_from_offset_if_several is None for ranges in together):
        starts = np.array([ranges.offset for ranges in together])
        stops = starts + [ranges.nbytes for ranges in together]
        return ByteRanges(0, nbytes, (starts, stops))
    bounds = zip(*[ranges.starts_and_stops() for ranges in together], strict=True)
    starts, stops = (np.concatenate(side) for side in bounds)
    return ByteRanges(0, nbytes, (starts, stops))


class Plan:
    """The bytes of a selection of a stored object, and their places in a view of `out`.

    A plan doesn't change, so threads may share it. `PlanCache` keeps the last plans.

    Parameters
    ----------
    layout : ObjectLayout
        Layout of the object.
    selection : Selection
        Selected elements.
    cost_or_none_if_read_whole : RequestCost or None
        Largest gap and size of a request. None if objects are read whole, for example from memory:
        then the selection is one range.

    Attributes
    ----------
    layout : ObjectLayout
        Layout of the object.
    selection : Selection
        Selected elements. A `shifted` plan has the selection of the original plan: its elements are
        elsewhere in the object, with unchanged places in `out`.
    gap : int
        Largest number of unread bytes between two selected elements of one range.
    max_request_nbytes : int
        Largest size of a request.
    nbytes : int
        Bytes to be fetched if all inner chunks are present, with the gaps within inner chunks;
        `UNLIMITED` if the selection has too many inner chunks to count the bytes.
    range_count : int
        Number of ranges of these bytes, before ranges of neighboring inner chunks are joined;
        `UNLIMITED` if the selection has too many inner chunks.
    reads_whole_chunk : bool
        Whether all bytes of the chunk are read because that isn't slower; this proves the chunk's
        size. Always False for a shard.
    is_read_at_once : bool
        Whether the file of the chunk is read whole by one system call, since it is small.
    may_be_inline : bool
        Whether the event loop may read the object, if the read doesn't block.
    has_few_fetches : bool
        Whether an object has so few fetches that they may be kept for the next object.
    """

    def __init__(
        self,
        layout: ObjectLayout,
        selection: Selection,
        cost_or_none_if_read_whole: RequestCost | None,
    ) -> None:
        self.layout = layout
        self.selection = selection
        self.gap, self.max_request_nbytes = (
            (UNLIMITED, UNLIMITED)
            if cost_or_none_if_read_whole is None
            else cost_or_none_if_read_whole
        )
        # Strides of the stored axes of an inner chunk, in elements; for points, of the offsets.
        self._strides = (1,) if selection.are_points else layout.grid.element_strides
        # The key is the number of indices along each axis, if all are ranges.
        self._slab_planners: dict[tuple[int, ...], SlabPlanner] = {}
        self._split = layout.grid.split_by_axis(selection)
        # None if there are many, which are made again whenever they are needed.
        self._few_inner_selections: list[InnerSelection] | None = None
        self.nbytes = UNLIMITED
        self.range_count = UNLIMITED
        limits = layout.limits
        if self.selected_inner_chunk_count <= limits.inline_ranges:
            self._few_inner_selections = list(self._generate_inner_selections())
            stats = [one.slab_planner.stats for one in self._few_inner_selections]
            self.nbytes = sum([one.fetched_elements for one in stats]) * layout.item_size
            self.range_count = sum([one.ranges for one in stats])
        chunk_nbytes = layout.stored_nbytes  # None for a shard
        self.reads_whole_chunk = chunk_nbytes is not None and chunk_nbytes <= max(
            self.gap, self.nbytes
        )
        if self.reads_whole_chunk:
            # These inner selections again, with slabs of one range.
            self.gap = UNLIMITED
            self._slab_planners.clear()
            self._few_inner_selections = [
                self._inner_selection(one.inner_chunk_number, one.axis_selections)
                for one in self._few_inner_selections or ()
            ]
            self.nbytes = layout.nbytes
            self.range_count = 1
        self.is_read_at_once = self.reads_whole_chunk and layout.nbytes <= limits.assigned_nbytes
        has_few_ranges = self.range_count <= limits.inline_ranges
        max_kept_nbytes = limits.block_nbytes * limits.inline_ranges
        self.has_few_fetches = has_few_ranges and self.nbytes <= max_kept_nbytes
        self.may_be_inline = has_few_ranges and layout.index_nbytes <= limits.assigned_nbytes

    def inner_selections(self) -> Iterable[InnerSelection]:
        """The selected elements of each inner chunk, in the order of the index."""
        if self._few_inner_selections is None:
            return self._generate_inner_selections()
        return self._few_inner_selections

    def inner_selections_by_number(self) -> Callable[[int], InnerSelection | None]:
        """A function that returns the inner selection for the number of an inner chunk.

        The function returns None for an inner chunk without selected elements.
        """
        if self._few_inner_selections is not None:
            return {one.inner_chunk_number: one for one in self._few_inner_selections}.get
        axis_selections_in = self.layout.grid.lookup_by_chunk(self._split)

        def inner_selection_in(number: int) -> InnerSelection | None:
            axis_selections = axis_selections_in(number)
            if axis_selections is None:
                return None
            return self._inner_selection(number, axis_selections)

        return inner_selection_in

    def _generate_inner_selections(self) -> Iterator[InnerSelection]:
        by_chunk = self.layout.grid.combine_axes_by_chunk(self._split)
        return (self._inner_selection(*numbered) for numbered in by_chunk)

    def _inner_selection(
        self, inner_chunk_number: int, axis_selections: AxisSelections
    ) -> InnerSelection:
        indices = [axis.indices for axis in axis_selections]
        start = sum([int(i[0]) * n for i, n in zip(indices, self._strides, strict=True)])
        # All ranges have the steps of the selection, so ranges of equal lengths are alike.
        key = tuple(map(len, indices)) if _ONLY_RANGES.issuperset(map(type, indices)) else None
        slab_planner = None if key is None else self._slab_planners.get(key)
        if slab_planner is None:
            slab_planner = self.slab_planner_of(axis_selections, self.gap)
            if key is not None:
                self._slab_planners[key] = slab_planner
        offset_in_inner_chunk = start * self.layout.item_size
        return InnerSelection(
            inner_chunk_number, offset_in_inner_chunk, slab_planner, axis_selections
        )

    def shifted(self, inner_chunk_distance: int, byte_distance: int) -> Plan:
        """The plan of the selection shifted within the object, with its places in `out` unchanged.

        Parameters
        ----------
        inner_chunk_distance : int
            The number to add to the numbers of all inner chunks.
        byte_distance : int
            The number of bytes to add to the offsets in all inner chunks.
        """
        # Copied attribute by attribute, since `copy.copy` takes several times as long, which slows
        # reads of random rows. Slab planners are shared.
        plan = Plan.__new__(Plan)
        plan.layout = self.layout
        plan.selection = self.selection
        plan.gap = self.gap
        plan.max_request_nbytes = self.max_request_nbytes
        plan.nbytes = self.nbytes
        plan.range_count = self.range_count
        plan.reads_whole_chunk = self.reads_whole_chunk
        plan.is_read_at_once = self.is_read_at_once
        plan.may_be_inline = self.may_be_inline
        plan._strides = self._strides
        plan._split = self._split
        plan._slab_planners = self._slab_planners
        plan.has_few_fetches = self.has_few_fetches
        plan._few_inner_selections = [
            InnerSelection(
                one.inner_chunk_number + inner_chunk_distance,
                one.offset_in_inner_chunk + byte_distance,
                one.slab_planner,
                one.axis_selections,
            )
            for one in self._few_inner_selections or ()
        ]
        return plan

    @property
    def selected_inner_chunk_count(self) -> int:
        """Number of inner chunks with selected elements."""
        return prod(map(len, self._split))

    @cached_property
    def inner_chunk_numbers(self) -> Offsets:
        """Numbers of the inner chunks with selected elements; only for few inner chunks."""
        return np.array([one.inner_chunk_number for one in self.inner_selections()], np.int64)

    def is_requested_by_ranges(self, *, may_divide_whole_chunks: bool) -> bool:
        """Whether byte ranges are requested, instead of the whole object by one request.

        For a whole chunk, True only if it is too large for one request, and may be divided.
        """
        is_one_request = self.layout.nbytes <= self.max_request_nbytes
        if self.reads_whole_chunk:
            return may_divide_whole_chunks and not is_one_request
        return not (is_one_request and self.needs_nearly_whole_chunk)

    @property
    def needs_nearly_whole_chunk(self) -> bool:
        """Whether all of a chunk is needed, or all but a few bytes at its ends; False for a shard.

        These few bytes are at most a 64th of the chunk, and no more than the gap. A store is asked
        for the whole chunk then, if that is one request, because it may fetch an object once for
        several readers, or keep it.
        """
        chunk_nbytes = self.layout.stored_nbytes
        if chunk_nbytes is None:
            return False
        return is_nearly_all(self.nbytes, chunk_nbytes) and chunk_nbytes - self.nbytes <= self.gap

    @property
    def fetches_whole_shard(self) -> bool:
        """Whether one request fetches a whole shard, instead of its index and then byte ranges.

        True if the shard isn't larger than the gap, or if it is small and all its bytes are needed.
        A shard with absent inner chunks may be smaller than assumed here. If the index is kept, it
        isn't needed, and only ranges are fetched.
        """
        layout = self.layout
        needs_all = self.nbytes >= layout.nbytes
        return layout.max_stored_nbytes <= self.gap or (needs_all and layout.whole_request_is_small)

    def block_nbytes_limit_for(self, view: Array) -> int:
        """Most bytes of a file, or of an object in memory, that are worked on at once.

        This is more if the view and the stored elements have different orders, to fill the lines of
        the processor's cache.
        """
        strides = [stride for stride, n in zip(view.strides, view.shape, strict=True) if n > 1]
        is_in_order = strides == sorted(strides, reverse=True)
        limits = self.layout.limits
        return limits.block_nbytes if is_in_order else limits.transposed_block_nbytes

    def slab_planner_of(self, axis_selections: AxisSelections, gap_nbytes: int) -> SlabPlanner:
        """A planner for slabs in an inner chunk, with a gap that may differ from the plan's gap."""
        indices = [axis.indices for axis in axis_selections]
        return SlabPlanner(indices, self._strides, self.layout.item_size, gap_nbytes)

    def fetches(
        self, index: InnerChunkIndex, max_nbytes: int, *, groups_ranges: bool = True
    ) -> Iterator[Fetch | AbsentInnerChunk]:
        """All fetches of an object with this index, and its absent inner chunks.

        Parameters
        ----------
        index : InnerChunkIndex
            Offsets of the inner chunks. If an offset is impossible, a ShardIndexError is raised
            while iterating.
        max_nbytes : int
            Largest size of a fetch, except for a fetch of a single element.
        groups_ranges : bool
            Whether ranges of several inner chunks are fetched together, as from a file. From a
            store, each range is a request, and is placed as soon as it has arrived.
        """
        max_ranges = self.layout.limits.ranges_at_once
        inner_selections = iter(self.inner_selections())
        while block := list(islice(inner_selections, _AT_ONCE)):
            located = []
            for inner_selection in block:
                offset = index.offset_of(inner_selection.inner_chunk_number)
                if offset is None:
                    yield AbsentInnerChunk(inner_selection.out_selection())
                else:
                    located.append(
                        (offset + inner_selection.offset_in_inner_chunk, inner_selection)
                    )
            if len(located) > 1:
                located.sort(key=_LOCATION)
            yield from group_into_fetches(
                located, self.gap, max_nbytes, max_ranges, groups_ranges=groups_ranges
            )

    def end_of_file_error(self, path: str, file_nbytes: int) -> ChunkSizeError:
        """Error for a file of `file_nbytes` bytes that ends within or before a range."""
        if self.layout.stored_nbytes is None:
            return ChunkSizeError(
                f"{path} ends at byte {file_nbytes}, within an inner chunk of its index: the file"
                " was shortened while it was read"
            )
        if self.reads_whole_chunk:
            return wrong_size_error(path, 0, self.layout.nbytes, file_nbytes)
        (inner_selection,) = self.inner_selections()
        first = inner_selection.offset_in_inner_chunk
        slabs = inner_selection.slab_planner.split_by_size(UNLIMITED, _AT_ONCE)
        ranges = (bounds for slab in slabs for bounds in slab.ranges.ranges())
        start, stop = next(
            (first + start, first + stop) for start, stop, _ in ranges if first + stop > file_nbytes
        )
        return wrong_size_error(path, start, stop, max(file_nbytes - start, 0))


def is_nearly_all(some_nbytes: int, all_nbytes: int) -> bool:
    """Whether `some_nbytes` are all of `all_nbytes` except for at most a 64th."""
    return all_nbytes - some_nbytes <= all_nbytes // 64


def with_request_sizes(
    fetches: Iterable[Fetch],
    max_request_nbytes: int,
    slots: int,
    objects_at_once: int,
    min_piece_nbytes: int,
) -> Iterator[SizedFetch]:
    """Pair each fetch of an object with the largest size of its requests.

    In the last round, when slots would become idle, long ranges are cut into smaller requests.

    Parameters
    ----------
    fetches : iterable of Fetch
        All fetches of the object; some are taken in advance, before they are needed.
    max_request_nbytes : int
        Largest size of a request; `UNLIMITED` if ranges aren't cut.
    slots : int
        Number of requests at the same time.
    objects_at_once : int
        Number of objects that are read at the same time and share the slots.
    min_piece_nbytes : int
        Smallest size of the pieces of longer ranges.
    """
    remaining = iter(fetches)
    round_length = -(-slots // objects_at_once)
    following = list(islice(remaining, round_length))
    while this_round := following:
        following = list(islice(remaining, round_length))
        size = max_request_nbytes
        is_last_round = not following
        if is_last_round and max_request_nbytes < UNLIMITED:
            all_ranges = [fetch.ranges for fetch in this_round]
            count = sum([ranges.number_of_requests(max_request_nbytes) for ranges in all_ranges])
            if count <= 2 * slots:
                requests = [r for ranges in all_ranges for r in ranges.requests(max_request_nbytes)]
                sizes = [stop - start for start, stop, _ in requests]
                size = fastest_max_request_nbytes(sizes, slots, objects_at_once, min_piece_nbytes)
        for fetch in this_round:
            ranges = fetch.ranges
            is_small = ranges.nbytes < min_piece_nbytes * ranges.number_of_ranges()
            yield SizedFetch(fetch, size, is_small)


def fastest_max_request_nbytes(
    uncut_request_sizes: list[int], slots: int, objects_at_once: int, min_piece_nbytes: int
) -> int:
    """Largest size of a request for which all bytes arrive in the shortest time.

    Each of the `objects_at_once` has requests of these `uncut_request_sizes`, in bytes, which are
    cut into smaller requests. The requests are sent in rounds of `slots` requests. A round takes as
    long as its largest request: the wait for an answer, and the transfer of its bytes. The wait is
    as long as a connection takes for `min_piece_nbytes` bytes. So the time for a size, in bytes of
    one connection, is the number of rounds times the sum of the size and `min_piece_nbytes`.

    The sizes to choose from divide the largest request into equal pieces, which are not much
    smaller than `min_piece_nbytes`. If two sizes take equal time, the larger size is returned.
    """
    wait = min_piece_nbytes
    largest = max(uncut_request_sizes)

    def time_of(max_size: int) -> int:
        requests = objects_at_once * sum([-(-size // max_size) for size in uncut_request_sizes])
        rounds = -(-requests // slots)
        return rounds * (max_size + wait)

    most_pieces = min(-(-largest // wait), 2 * slots, _AT_ONCE)
    return min([-(-largest // pieces) for pieces in range(1, most_pieces + 1)], key=time_of)


def plan_of(
    layout: ObjectLayout,
    chunk_selection: Any,
    cost_or_none_if_read_whole: RequestCost | None,
    out_selection: Any = None,
    drop_axes: tuple[int, ...] = (),
) -> Plan:
    """A new plan for a selection of an object.

    Parameters
    ----------
    layout : ObjectLayout
        Layout of the object.
    chunk_selection : tuple
        The selection, in one of the four forms of `indexing.selection`.
    cost_or_none_if_read_whole : RequestCost or None
        Largest gap and size of a request; None if objects are read whole.
    out_selection : tuple or array, optional
        The places of the selected elements in `out`; None if `out` has only these elements.
    drop_axes : tuple of int
        Axes of the array that `out` doesn't have.
    """
    selection = Selection(layout.shape, layout.order, chunk_selection, out_selection, drop_axes)
    return Plan(layout, selection, cost_or_none_if_read_whole)
