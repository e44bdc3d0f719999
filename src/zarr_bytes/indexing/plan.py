"""The plan of a read or a write: the byte ranges of a selection, and the places of its elements.

Two neighbours on an axis are fetched together where the bytes between them are at most the gap. So
ranges and places are composed from the innermost axis outwards, and counted before they are made,
in slabs of bounded size: time and memory depend on the size of the selection, not of the chunk.

Of a chunk of shape (3, 4), ``chunk[0:3, 1:3]`` selects the elements 1, 2, 5, 6, 9 and 10::

    0 [1  2] 3
    4 [5  6] 7
    8 [9 10] 11

1. The inner axis has the indices 1 and 2. No element is between them, so they are one range: they
   extend over two elements, and the second is one step behind the first.
2. The outer axis has the indices 0, 1 and 2, four elements apart. Of these four, the inner axis
   takes two. The two between one row and the next are more than a gap of one, so that each row
   begins a new range: three ranges, which extend over ten elements. Six elements are fetched, and
   among these each row is two steps behind the one before it.
3. With a gap of two, the rows are one range instead. Ten elements are fetched, and each row is four
   steps behind the one before it.

The same in code, with elements of one byte:

>>> rows_and_columns = [range(3), range(1, 3)]
>>> planner = SlabPlanner(rows_and_columns, element_strides=(4, 1), item_size=1, gap_nbytes=1)
>>> inner, outer = planner.axis_ranges
>>> inner.step, inner.stats
(1, RangeStats(extent=2, fetched_elements=2, ranges=1, selected_elements=2))
>>> outer.step, outer.stats
(2, RangeStats(extent=10, fetched_elements=6, ranges=3, selected_elements=6))

The first selected element is at byte 1, from which ranges are counted: here ``chunk[0:3, 1:3]``
becomes a `Slab`, an array in the fetched bytes.

>>> slab = planner.slab_of_all_ranges
>>> [(start, stop) for start, stop, _ in slab.ranges.ranges()], slab.shape, slab.strides
([(0, 2), (4, 6), (8, 10)], (3, 2), (2, 1))
>>> planner = SlabPlanner(rows_and_columns, element_strides=(4, 1), item_size=1, gap_nbytes=2)
>>> slab = planner.slab_of_all_ranges
>>> [(start, stop) for start, stop, _ in slab.ranges.ranges()], slab.shape, slab.strides
([(0, 10)], (3, 2), (4, 1))

A `Plan` has an `InnerSelection` for each inner chunk with selected elements. Those of the same form
share a `SlabPlanner`. Once the index of an object is known, a `Fetch` combines the slabs of one or
several inner chunks. Plans are made and used by any thread, and take no lock.
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
"""A range: its start and stop in the object, and its offset in the bytes of all ranges, packed.

A plain tuple, since one is made for each of many ranges."""

AxisBounds: TypeAlias = "Sequence[PositionBounds]"
"""For each axis, outermost first, some of its selected indices."""

OutSelection: TypeAlias = "tuple[Any, ...]"
"""NumPy index in the view of `out` that has the stored order of axes."""

PlacedSlab: TypeAlias = "tuple[Slab, OutSelection, int]"
"""A slab, the places of its elements, and the position of its first byte among the fetched bytes.

A plain tuple, since one is made for each of many inner chunks."""

LocatedInnerSelection: TypeAlias = "tuple[int, InnerSelection]"
"""The offset of the first selected element in the object, in bytes, and the inner selection.

A plain tuple, since one is made for each of many inner chunks."""

UNLIMITED: Final = 2**62
"""A gap, in bytes, that joins everything in one range; a size that nothing exceeds."""

_LOCATION: Final = itemgetter(0)  # of a located inner selection
_ONLY_RANGES: Final = frozenset((range,))
_AT_ONCE: Final = 2**12  # inner selections that are sorted, ranges that are Python integers


class ByteRanges:
    """Ranges of bytes that are fetched together, ascending.

    Parameters
    ----------
    offset : int
        Of the first byte of one range; or any offset from which `bounds_from_offset_if_several` are
        counted.
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
        """As `ranges`, where longer ones are cut to at most `max_request_nbytes` bytes."""
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
        """Starts and stops of all ranges, counted as `offset` is."""
        if self.bounds_from_offset_if_several is None:
            return np.array([self.offset]), np.array([self.offset + self.nbytes])
        return self.offset + self.bounds_from_offset_if_several[
            0
        ], self.offset + self.bounds_from_offset_if_several[1]

    def ranges(self) -> Iterator[StartStopPackedOffset]:
        """Start, stop, and position among the fetched bytes, of every range."""
        if self.bounds_from_offset_if_several is None:
            return iter([(self.offset, self.offset + self.nbytes, 0)])

        def blocks() -> Iterator[Iterator[StartStopPackedOffset]]:
            position = 0
            for starts, sizes in self.starts_and_sizes():
                *positions, position = accumulate(sizes, initial=position)
                yield zip(starts, map(add, starts, sizes), positions, strict=True)

        return chain.from_iterable(blocks())  # without a step of Python for each range

    def extract(self, content: Bytes) -> Bytes:
        """The bytes of the ranges one after another, out of those of the whole object.

        One range is a view of `content`, several are a copy.
        """
        if self.bounds_from_offset_if_several is None:
            return content[self.offset : self.offset + self.nbytes]
        return np.concatenate([content[start:stop] for start, stop, _ in self.ranges()])

    def starts_and_sizes(self) -> Iterator[StartsAndSizes]:
        """Starts and sizes of the ranges, some thousands in each pair of lists.

        Not all at once, since Python integers take much memory.
        """
        if self.bounds_from_offset_if_several is None:
            yield [self.offset], [self.nbytes]
            return
        starts, stops = self.bounds_from_offset_if_several
        for i in range(0, starts.size, _AT_ONCE):
            block = starts[i : i + _AT_ONCE]
            yield (block + self.offset).tolist(), (stops[i : i + _AT_ONCE] - block).tolist()


class RangeStats(NamedTuple):
    """Sizes of what is fetched for a selection, in elements."""

    extent: int  # from the first selected element to the last, both included
    fetched_elements: int  # in all ranges, with the gaps that are read over
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
    """Some of the selected indices of an axis that follow each other."""

    first_position: int
    stop_position: int  # that of the index after the last
    stats: RangeStats


class DistinctOffsetsAndRangeStarts(NamedTuple):
    """The selected indices of an axis at some positions, without repetitions."""

    from_first: Offsets  # elements in the chunk from the first of these indices to each
    starts_new_range: bool | Array  # one for all but the first index, or for each but the first


class AxisRanges(ABC):
    """The ranges of an axis: its selected indices, each with all that the inner axes select.

    Positions count the selected indices: position 0 is the smallest, whatever it is.

    Attributes
    ----------
    indices : range or array
        The selected indices, ascending; one that is selected twice is there twice.
    stride : int
        Elements from an index of the axis to the next one, in the chunk.
    inner_stats : RangeStats
        Sizes of one index: those of the axes inside.
    stats : RangeStats
        Sizes of all indices.
    is_even : bool
        The distances of all neighbours are equal, so pieces of the same length are alike.
    """

    indices: Indices
    stats: RangeStats
    is_even: bool

    def __init__(self, stride: int, inner_stats: RangeStats) -> None:
        self.stride = stride
        self.inner_stats = inner_stats

    @abstractmethod
    def stats_of(self, first_position: int, stop_position: int) -> RangeStats:
        """Sizes of the indices at the positions `first_position` to `stop_position`, exclusive."""

    @abstractmethod
    def positions_of_each_index(self) -> list[PositionBounds]:
        """First and last position, exclusive, of each index with its repetitions."""

    @abstractmethod
    def _distinct_offsets_and_range_starts(
        self, first_position: int, stop_position: int
    ) -> DistinctOffsetsAndRangeStarts:
        """The indices at the positions `first_position` to `stop_position`, exclusive."""

    def split_by_size(self, max_elements: int, max_ranges: int) -> Iterator[AxisPiece]:
        """All indices in pieces within both limits, or of one index where that exceeds them."""
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
        """Most indices from `first_position` on that are within both limits; at least one."""

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

        `bounds_inside_if_several` has those of one index, repeated at each; None if that is one
        range.
        """
        if bounds_inside_if_several is None:
            starts, stops = np.zeros(1, np.int64), np.array([self.inner_stats.extent])
        else:
            starts, stops = bounds_inside_if_several
        offsets, starts_new_range = self._distinct_offsets_and_range_starts(
            first_position, stop_position
        )
        # Of all ranges at all indices, those that begin or end where two are joined have no bound.
        begins, ends = np.ones((2, offsets.size, starts.size), bool)
        begins[1:, 0] = starts_new_range
        ends[:-1, -1] = starts_new_range
        return (offsets[:, None] + starts)[begins], (offsets[:, None] + stops)[ends]


class EvenAxisRanges(AxisRanges):
    """The ranges of an axis whose selected indices are a `range`: all neighbours are alike.

    Attributes
    ----------
    distance : int
        Elements from an index to the next selected one, in the chunk; 0 if there is no other.
    starts_new_range : bool
        Each index but the first begins a new range.
    step : int
        Elements from an index to the next selected one, among those that are fetched: the stride
        of a slab.
    added_ranges : int
        Number of ranges that each index but the first adds: one fewer than it has, where its first
        range is joined to the last one of its neighbour.
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
        """Sizes of the indices at the positions `first_position` to `stop_position`, exclusive."""
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
    """The ranges of an axis whose selected indices are an array, some of them perhaps repeated.

    Attributes
    ----------
    distances : array
        Elements from each index to the next selected one, in the chunk: 0 to its repetition. One
        fewer than indices.
    starts_new_range : array of bool
        Whether each index but the first begins a new range.
    steps : array
        Elements from the first index to each, among those that are fetched.
    range_counts : array
        Number of ranges that all indices after the first, up to each, add.
    """

    is_even = False

    def __init__(
        self, indices: Offsets, element_stride: int, inner_stats: RangeStats, gap_elements: int
    ) -> None:
        super().__init__(element_stride, inner_stats)
        self.indices: Offsets = indices
        self.distances: Offsets = np.diff(indices) * element_stride
        unread = self.distances - inner_stats.extent
        is_new = self.distances > 0
        is_joined = is_new & (unread <= gap_elements)
        self.starts_new_range: Array = is_new ^ is_joined
        # A mask times a number is the number where the mask is true, and 0 elsewhere.
        steps = is_new * inner_stats.fetched_elements + is_joined * unread
        added_ranges = is_new * inner_stats.ranges - is_joined
        self.steps: Offsets = np.append(0, np.cumsum(steps))
        self.range_counts: Offsets = np.append(0, np.cumsum(added_ranges))
        self.stats = self.stats_of(0, len(indices))

    def stats_of(self, first_position: int, stop_position: int) -> RangeStats:
        """Sizes of the indices at the positions `first_position` to `stop_position`, exclusive."""
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
        offsets = np.append(0, distances[is_new].cumsum())
        return DistinctOffsetsAndRangeStarts(offsets, self.starts_new_range[after_first][is_new])


class Slab(NamedTuple):
    """Selected elements of an inner chunk that are fetched together, as an array in their bytes.

    A slab doesn't know its inner chunk: the same one serves all inner chunks of the same selection.
    """

    ranges: ByteRanges  # counted from the first selected element of the inner chunk
    shape: tuple[int, ...]  # of the array in the fetched bytes
    strides: tuple[int, ...]  # of that array, in bytes
    # NumPy index of the selected elements in that array; None where it has these alone.
    selected_index: tuple[Any, ...] | None
    axis_bounds: AxisBounds | None  # the part of the selection; None for all of it

    def selected_elements(self, fetched: Bytes, offset: int, dtype: Any) -> Array:
        """The selected elements, whose ranges are in `fetched` from the byte `offset` on.

        A view of `fetched`; a copy where there is a `selected_index`.
        """
        array: Array = np.ndarray(self.shape, dtype, fetched, offset, self.strides)
        return array if self.selected_index is None else array[self.selected_index]

    def put_into_bytes(self, elements: Array, range_bytes: Array) -> None:
        """Put elements into the bytes of the ranges, which `range_bytes` begins with.

        Of an element that is selected twice, the last one counts.
        """
        array: Array = np.ndarray(self.shape, elements.dtype, range_bytes, strides=self.strides)
        array[... if self.selected_index is None else self.selected_index] = elements


class SlabPlanner:
    """Makes the slabs of a selection of an inner chunk, and knows their sizes before.

    Inner chunks with the same selection, or one that is only moved, share it.

    Parameters
    ----------
    indices : sequence of range or array
        The selected indices along each stored axis, ascending; along one axis of offsets for
        points.
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
        """Slabs within both limits: all of the inner axes, pieces of one, single indices of others.

        Inner axes are taken whole as long as they are within the limits, and the next one is split.
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
            The part, as `AxisBounds`, but with the innermost axis first.
        bounds_if_several : tuple of two arrays or None
            Ranges of the part in elements, counted from its first one; None for one range.
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
                # All elements that are fetched are an axis, of which the selected ones are taken.
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
        Makes the slabs; shared with inner chunks of the same selection.
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
        """The places of the elements in the view of `out`: of all, or of a part of them."""
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
    has_small_requests: bool  # its ranges are small, as a rule; pieces of larger ones are not


class AbsentInnerChunk(NamedTuple):
    """An inner chunk that is selected and that the object does not have: the fill value."""

    out_selection: OutSelection


def group_into_fetches(
    located: list[LocatedInnerSelection],
    max_gap_within_range: int,
    max_fetch_nbytes: int,
    max_ranges: int,
    *,
    groups_ranges: bool,
) -> Iterator[Fetch]:
    """Group inner selections, of which as many are fetched together as the limits permit.

    Parameters
    ----------
    located : list of LocatedInnerSelection
        In the order of offsets, ranges of neighbours are joined where the gap permits.
    max_gap_within_range : int
        Largest number of unread bytes between two slabs of one range. A slab of several ranges is
        not joined to others.
    max_fetch_nbytes : int
        Largest size of a fetch, except for one of a single element.
    max_ranges : int
        Largest number of ranges of a fetch.
    groups_ranges : bool
        Whether slabs are fetched together that are not joined in one range.
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
    """All of these ranges, at least one, in their order; `nbytes` is the sum of their sizes."""
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

    It does not change, so that threads share it. `PlanCache` keeps the last plans.

    Parameters
    ----------
    layout : ObjectLayout
        Layout of the object.
    selection : Selection
        Selected elements.
    cost_or_none_if_read_whole : RequestCost or None
        Largest gap and size of a request. None where objects are read whole, as from memory:
        then the selection is one range.

    Attributes
    ----------
    layout : ObjectLayout
        Layout of the object.
    selection : Selection
        Selected elements. Those of a plan that is `shifted` are elsewhere, in the same places of
        `out`.
    gap : int
        Largest number of unread bytes between two selected elements of one range.
    max_request_nbytes : int
        Largest size of a request.
    nbytes : int
        Bytes to be fetched if all inner chunks are present, with the gaps within inner chunks;
        `UNLIMITED` if the selection has too many inner chunks to be counted.
    range_count : int
        Number of ranges of these bytes, before those of neighbouring inner chunks are joined;
        `UNLIMITED` likewise.
    reads_whole_chunk : bool
        All bytes of the chunk are read, which proves its size, since that is no slower. Never of a
        shard.
    is_read_at_once : bool
        The file of the chunk is read whole by one call of the system, since it is small.
    may_be_inline : bool
        The event loop may read it, if nothing has to be waited for.
    has_few_fetches : bool
        The fetches of an object are so few that they may be kept for the next one.
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
        # Of the stored axes of an inner chunk, in elements; points are on one axis of offsets.
        self._strides = (1,) if selection.are_points else layout.grid.element_strides
        # By the number of indices along each axis, all of them ranges.
        self._slab_planners: dict[tuple[int, ...], SlabPlanner] = {}
        self._split = layout.grid.split_by_axis(selection)
        # None where they are many, and are made again whenever they are needed.
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
            # The same inner selections, with slabs of one range.
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
        """A function of the number of an inner chunk, which gives the selected elements there.

        It gives None for an inner chunk without any.
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
        # Ranges of the same lengths have the same steps, which are those of the selection.
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
        """The plan of the same selection elsewhere in the object, into the same places of `out`.

        Parameters
        ----------
        inner_chunk_distance : int
            What is added to the numbers of all inner chunks.
        byte_distance : int
            What is added to the offsets in all inner chunks, in bytes.
        """
        # Attribute by attribute: `copy.copy` takes several times as long, and random rows pay
        # for it. Slab planners are shared.
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
        """Numbers of the inner chunks with selected elements; only where these are few."""
        return np.array([one.inner_chunk_number for one in self.inner_selections()], np.int64)

    def is_requested_by_ranges(self, *, may_divide_whole_chunks: bool) -> bool:
        """Whether byte ranges are requested, rather than the whole object by one request.

        A whole chunk only if it is too large for one request, and may come in several.
        """
        return not self.reads_whole_chunk or (
            may_divide_whole_chunks and self.layout.nbytes > self.max_request_nbytes
        )

    def block_nbytes(self, view: Array) -> int:
        """Most bytes of a file that are read at once into the view.

        They are more where the view is in another order than the stored elements, to fill the lines
        of the processor's cache.
        """
        strides = [stride for stride, n in zip(view.strides, view.shape, strict=True) if n > 1]
        is_in_order = strides == sorted(strides, reverse=True)
        limits = self.layout.limits
        return limits.block_nbytes if is_in_order else limits.transposed_block_nbytes

    def slab_planner_of(self, axis_selections: AxisSelections, gap_nbytes: int) -> SlabPlanner:
        """Slabs of indices in an inner chunk, with a gap in bytes that may not be the plan's."""
        indices = [axis.indices for axis in axis_selections]
        return SlabPlanner(indices, self._strides, self.layout.item_size, gap_nbytes)

    def fetches(
        self, index: InnerChunkIndex, max_nbytes: int, *, groups_ranges: bool = True
    ) -> Iterator[Fetch | AbsentInnerChunk]:
        """All fetches of an object with this index, and its absent inner chunks.

        Parameters
        ----------
        index : InnerChunkIndex
            Offsets of the inner chunks. A ShardIndexError, while iterating, if one is impossible.
        max_nbytes : int
            Largest size of a fetch, except for one of a single element.
        groups_ranges : bool
            Whether ranges of several inner chunks are fetched together, as from a file. Of a store,
            each is a request, and placed as soon as it has come.
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
        """Error for a file of `file_nbytes` bytes, which ends within or before a range."""
        if self.layout.stored_nbytes is None:
            return ChunkSizeError(
                f"{path} ends at byte {file_nbytes}, within an inner chunk that its index has: it"
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


def with_request_sizes(
    fetches: Iterable[Fetch],
    max_request_nbytes: int,
    slots: int,
    objects_at_once: int,
    min_piece_nbytes: int,
) -> Iterator[SizedFetch]:
    """Pair each fetch of an object with the largest size of its requests.

    In the last round, when slots would become idle, long ranges are cut smaller.

    Parameters
    ----------
    fetches : iterable of Fetch
        All fetches of the object; a few more than are needed at once are taken in advance.
    max_request_nbytes : int
        Largest size of a request; `UNLIMITED` where nothing is to be cut.
    slots : int
        Number of requests at the same time.
    objects_at_once : int
        Number of objects that are read at the same time, and share the slots.
    min_piece_nbytes : int
        Smallest size that longer ranges are cut to.
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
    """Largest size of requests with which all bytes have come after the shortest time.

    Each of the `objects_at_once` has requests of these `uncut_request_sizes`, in bytes, to be cut
    to smaller ones. They are sent in rounds of as many requests as there are `slots`. A round takes
    the time of its largest request: its wait for an answer, and its bytes. The wait is as long as a
    connection takes for `min_piece_nbytes` bytes. So the time of a size, in bytes of one
    connection, is the number of rounds times the sum of both.

    The sizes that are tried divide the largest request into equal pieces, none of which is much
    smaller than `min_piece_nbytes`; of two that take the same time, it is the larger one.
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
        Largest gap and size of a request; None where objects are read whole.
    out_selection : tuple or array, optional
        The places of the selected elements in `out`; None where `out` has these alone.
    drop_axes : tuple of int
        Axes of the array that `out` does not have.
    """
    selection = Selection(layout.shape, layout.order, chunk_selection, out_selection, drop_axes)
    return Plan(layout, selection, cost_or_none_if_read_whole)
