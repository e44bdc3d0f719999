"""The plan of a read or a write: the byte ranges of a selection, and the places of its elements.

Two neighbours on an axis are fetched together where the bytes between them are at most the gap. So
ranges and places are composed from the innermost axis outwards, and counted before they are made,
in slabs of bounded size: time and memory depend on the size of the selection, not of the chunk.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from itertools import islice, product
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from zarr_bytes import limits
from zarr_bytes.errors import ChunkSizeError, wrong_size_error
from zarr_bytes.indexing.selection import Selection, is_basic_selection, outer_index, runs_of_equals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr_bytes.indexing.selection import Array, AxisSelection, Indices, Offsets
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.settings import RequestCost

RangeBounds: TypeAlias = "tuple[Offsets, Offsets]"  # starts and stops of ranges
AbsentOutSelection: TypeAlias = (
    "tuple[Any, ...]"  # index in the view of `out`, of an absent inner chunk
)
AxisBounds: TypeAlias = "Sequence[tuple[int, int]]"

UNLIMITED: Final = 2**62  # bytes of a gap that joins everything in one range
_PLACE: Final = itemgetter(0)
_RANGES: Final = frozenset((range,))
_AT_ONCE: Final = 2**12  # parts that are sorted, ranges that are Python integers
_COSTS: Final = 8  # of kept plans; more of settings that change at each read


class ByteRanges:
    """Ranges of a stored object that are fetched together."""

    __slots__ = ("bounds_from_start", "nbytes", "start")

    def __init__(self, start: int, nbytes: int, table: RangeBounds | None = None) -> None:
        self.start = start
        self.nbytes = nbytes  # of all ranges
        self.bounds_from_start = table  # from `start`; None for one range

    def number_of_ranges(self) -> int:
        """Number of ranges."""
        return 1 if self.bounds_from_start is None else self.bounds_from_start[0].size

    def requests(self, max_request_nbytes: int) -> Iterator[tuple[int, int, int]]:
        """`ranges`, none of more than `max_request_nbytes` bytes."""
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
        starts, stops = self.bounds()
        return int((-(-(stops - starts) // max_request_nbytes)).sum())

    def bounds(self) -> RangeBounds:
        """Starts and stops of the ranges in the object."""
        if self.bounds_from_start is None:
            return np.array([self.start]), np.array([self.start + self.nbytes])
        return self.start + self.bounds_from_start[0], self.start + self.bounds_from_start[1]

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Start, stop, and position among the fetched bytes, of every range."""
        position = 0
        for starts, sizes in self.starts_and_sizes():
            for start, size in zip(starts, sizes, strict=True):
                yield start, start + size, position
                position += size

    def extract(self, content: Bytes) -> Bytes:
        """The bytes of the ranges, out of those of the whole object."""
        if self.bounds_from_start is None:
            return content[self.start : self.start + self.nbytes]
        return np.concatenate([content[start:stop] for start, stop, _ in self.ranges()])

    def starts_and_sizes(self) -> Iterator[tuple[list[int], list[int]]]:
        """Starts and sizes, some thousands at a time: Python integers take much memory."""
        if self.bounds_from_start is None:
            yield [self.start], [self.nbytes]
            return
        starts, stops = self.bounds_from_start
        for i in range(0, starts.size, _AT_ONCE):
            some = starts[i : i + _AT_ONCE]
            yield (some + self.start).tolist(), (stops[i : i + _AT_ONCE] - some).tolist()


class RangeStats(NamedTuple):
    """What combinations of indices take, in elements."""

    extent: int  # from the first to the last selected one
    fetched_elements: int  # with the gaps that are read over
    ranges: int
    selected_elements: int

    def fits(self, max_elements: int, max_ranges: int) -> bool:
        """Whether these are at most `most` elements and `max_ranges` ranges."""
        return (
            self.fetched_elements <= max_elements
            and self.selected_elements <= max_elements
            and self.ranges <= max_ranges
        )


_ONE: Final = RangeStats(1, 1, 1, 1)


class AxisRanges:
    """Indices of an axis, combined with all of the axes inside; numbers for a range, or arrays."""

    starts_new_range: Any  # whether a range begins behind the first index; or at each
    distance: Any
    added_ranges: Any  # ranges that an index adds; or the sums
    step: Any  # of neighbours among the fetched elements; or the places there

    def __init__(self, indices: Indices, stride: int, inside: RangeStats, gap: int) -> None:
        self.indices, self.stride, self.inner_stats = indices, stride, inside
        self.is_even = isinstance(indices, range)
        if self.is_even and len(indices) == 1:
            self.step, self.starts_new_range, self.distance, self.added_ranges = (
                inside.fetched_elements,
                False,
                0,
                0,
            )
            self.stats = inside
            return
        distance: Any = indices.step if isinstance(indices, range) else np.diff(indices)
        self.distance = distance = distance * stride
        unread, is_new = distance - inside.extent, distance > 0
        joined = is_new & (unread <= gap)
        self.starts_new_range = is_new ^ joined
        self.step = is_new * inside.fetched_elements + joined * unread
        self.added_ranges = is_new * inside.ranges - joined
        if not self.is_even:
            self.step, self.added_ranges = (
                np.append(0, np.cumsum(x)) for x in (self.step, self.added_ranges)
            )
        self.stats = self.stats_of(0, len(indices))

    def stats_of(self, first: int, last: int) -> RangeStats:
        """What the indices number `first` to `last`, exclusive, take."""
        inside, n, end = self.inner_stats, last - first, last - 1
        if self.is_even:
            far, more, ranges = ((n - 1) * x for x in (self.distance, self.step, self.added_ranges))
        else:
            far = int(self.indices[end] - self.indices[first]) * self.stride
            more, ranges = (int(x[end] - x[first]) for x in (self.step, self.added_ranges))
        return RangeStats(
            far + inside.extent,
            more + inside.fetched_elements,
            ranges + inside.ranges,
            n * inside.selected_elements,
        )

    def split_by_size(
        self, max_elements: int, max_ranges: int
    ) -> Iterator[tuple[int, int, RangeStats]]:
        """All indices, in pieces of at most `max_elements` and `max_ranges`, or of one index."""
        first, length, n, span = 0, 0, len(self.indices), self.inner_stats
        while first < n:
            if not (length and self.is_even and first + length <= n):
                begin = first
                length = 1 + bisect_left(
                    range(first + 2, n + 1),  # at least one index
                    True,  # noqa: FBT003
                    key=lambda last: not self.stats_of(begin, last).fits(max_elements, max_ranges),
                )
                span = self.stats_of(first, first + length)
            yield first, first + length, span
            first += length

    def split_by_index(self) -> list[tuple[int, int]]:
        """Each index by itself, with its repetitions."""
        if isinstance(self.indices, range):
            return [(i, i + 1) for i in range(len(self.indices))]
        return list(runs_of_equals(self.indices))

    def range_bounds(self, first: int, last: int, inside: RangeBounds | None) -> RangeBounds:
        """The ranges of a piece from its first: those `inner_stats`, again at each index."""
        starts, stops = inside or (np.zeros(1, np.int64), np.array([self.inner_stats.extent]))
        if self.is_even:
            offsets, apart = np.arange(last - first) * self.distance, self.starts_new_range
        else:
            distances = self.distance[first : last - 1]
            is_new = distances > 0
            offsets = np.append(0, distances[is_new].cumsum())
            apart = self.starts_new_range[first : last - 1][is_new]
        begins, ends = np.ones((2, offsets.size, starts.size), bool)
        begins[1:, 0] = ends[:-1, -1] = apart
        return (offsets[:, None] + starts)[begins], (offsets[:, None] + stops)[ends]


class Slab(NamedTuple):
    """Elements of an inner chunk that are fetched together."""

    ranges: ByteRanges  # from the first selected element of the inner chunk
    shape: tuple[int, ...]  # of the elements in the fetched bytes
    strides: tuple[int, ...]
    selected_index: (
        tuple[Any, ...] | None
    )  # index of the selected ones there, where they lie unevenly
    axis_bounds: AxisBounds | None  # numbers of the indices along each axis; None for all of them

    def elements(self, fetched: Bytes, at: int, dtype: Any) -> Array:
        """The selected elements, from `at` on in fetched bytes; a view, unless unevenly."""
        array: Array = np.ndarray(self.shape, dtype, fetched, at, self.strides)
        return array if self.selected_index is None else array[self.selected_index]

    def put(self, elements: Array, target: Array) -> None:
        """Put elements into their places in bytes; of one that is put twice, the last counts."""
        array: Array = np.ndarray(self.shape, elements.dtype, target, strides=self.strides)
        array[... if self.selected_index is None else self.selected_index] = elements


class SlabPlanner:
    """The selection of an inner chunk, counted before it is made; shared by those alike."""

    def __init__(
        self, indices: Sequence[Indices], strides: Sequence[int], item_size: int, gap: int
    ) -> None:
        self.axis_ranges: list[AxisRanges] = []  # innermost first
        self.stats = _ONE
        self.item_size = item_size
        for along, stride in zip(reversed(indices), reversed(strides), strict=True):
            self.axis_ranges.append(AxisRanges(along, stride, self.stats, gap // item_size))
            self.stats = self.axis_ranges[-1].stats

    @cached_property
    def single_slab(self) -> Slab:
        """The one slab of everything."""
        (slab,) = self._split_by_size(UNLIMITED, UNLIMITED)
        return slab

    def split_by_size(self, max_nbytes: int, max_ranges: int) -> Iterable[Slab]:
        """Boxes of the selection, of at most `max_nbytes` (or one element) and `max_ranges`."""
        max_nbytes = max(max_nbytes // self.item_size, 1)
        return (
            (self.single_slab,)
            if self.stats.fits(max_nbytes, max_ranges)
            else self._split_by_size(max_nbytes, max_ranges)
        )

    def _split_by_size(self, max_elements: int, max_ranges: int) -> Iterator[Slab]:
        bounds: list[tuple[int, int]] = []
        table, span = None, _ONE
        for level in self.axis_ranges:
            if not level.stats.fits(max_elements, max_ranges):
                break
            span, n = level.stats, len(level.indices)
            table = level.range_bounds(0, n, table) if span.ranges > 1 and n > 1 else table
            bounds.append((0, n))
        if len(bounds) == len(self.axis_ranges):
            yield self._slab(bounds, table, span)._replace(axis_bounds=None)
            return
        level, outer = self.axis_ranges[len(bounds)], self.axis_ranges[: len(bounds) : -1]
        pieces, length = list(level.split_by_size(max_elements, max_ranges)), 0
        for single in product(*[other.split_by_index() for other in outer]):
            for begin, end, span in pieces:
                if not (level.is_even and end - begin == length):
                    inner = level.range_bounds(begin, end, table) if span.ranges > 1 else None
                    length = end - begin
                yield self._slab([*bounds, (begin, end), *single[::-1]], inner, span)

    def _slab(
        self, bounds: list[tuple[int, int]], table: RangeBounds | None, span: RangeStats
    ) -> Slab:
        size, start, is_even = self.item_size, 0, True
        shape, strides, among = [], [], []
        bounds.reverse()
        for level, (first, last) in zip(reversed(self.axis_ranges), bounds, strict=True):
            start += int(level.indices[first] - level.indices[0]) * level.stride
            if level.is_even:
                shape.append(last - first)
                strides.append(level.step * size)
                among.append(slice(0, last - first))
            else:
                positions, is_even = level.step[first:last] - level.step[first], False
                shape.append(int(positions[-1]) + 1)
                strides.append(size)
                among.append(positions)
        if table is not None:
            table = table[0] * size, table[1] * size
        ranges = ByteRanges(start * size, span.fetched_elements * size, table)
        index = None if is_even else outer_index(among)
        return Slab(ranges, tuple(shape), tuple(strides), index, bounds)


class InnerSelection:
    """The selected elements of one inner chunk."""

    __slots__ = ("axis_selections", "inner_chunk_number", "slab_planner", "start_byte")

    def __init__(
        self,
        number: int,
        start: int,
        slabs: SlabPlanner,
        axis_selections: tuple[AxisSelection, ...],
    ) -> None:
        self.inner_chunk_number = number  # in the index
        self.start_byte = start  # byte of the first selected element
        self.slab_planner, self.axis_selections = slabs, axis_selections

    def out_selection(self, bounds: AxisBounds | None = None) -> tuple[Any, ...]:
        """Index in the view of `out`, of all elements or of those of a slab."""
        if bounds is None:
            return outer_index(
                [axis_selection.out_selection for axis_selection in self.axis_selections]
            )
        return outer_index(
            [
                axis_selection.out_selection_of(*pair)
                for axis_selection, pair in zip(self.axis_selections, bounds, strict=True)
            ]
        )


class Fetch(NamedTuple):
    """Byte ranges of a stored object, and the slabs in their bytes."""

    ranges: ByteRanges
    slabs: list[tuple[Slab, tuple[Any, ...], int]]  # index in the view of `out`, place in the bytes


def coalesce(
    located: list[tuple[int, InnerSelection]], gap: int, max_nbytes: int
) -> Iterator[Fetch]:
    """Located parts fetched together, in one range across a gap, at most `most` bytes at a time."""
    max_ranges = limits.LIMITS.ranges_at_once
    found: list[ByteRanges] = []
    slabs: list[tuple[Slab, tuple[Any, ...], int]] = []
    nbytes = count = 0
    for base, inner_selection in located:
        for slab in inner_selection.slab_planner.split_by_size(max_nbytes, max_ranges):
            ranges = slab.ranges
            start, size, table = ranges.start + base, ranges.nbytes, ranges.bounds_from_start
            if found and table is None and (last := found[-1]).bounds_from_start is None:
                unread = start - last.start - last.nbytes
                if 0 <= unread <= gap and nbytes + unread + size <= max_nbytes:
                    found[-1] = ByteRanges(last.start, last.nbytes + unread + size)
                    slabs.append(
                        (slab, inner_selection.out_selection(slab.axis_bounds), nbytes + unread)
                    )
                    nbytes += unread + size
                    continue
            more = ranges.number_of_ranges()
            if found and (nbytes + size > max_nbytes or count + more > max_ranges):
                yield Fetch(concatenate_ranges(found, nbytes), slabs)
                found, slabs, nbytes, count = [], [], 0, 0
            found.append(ByteRanges(start, size, table))
            slabs.append((slab, inner_selection.out_selection(slab.axis_bounds), nbytes))
            nbytes += size
            count += more
    if found:
        yield Fetch(concatenate_ranges(found, nbytes), slabs)


def concatenate_ranges(found: list[ByteRanges], nbytes: int) -> ByteRanges:
    """Several ranges as one, of `nbytes` in all."""
    if len(found) == 1:
        return found[0]
    if all(ranges.bounds_from_start is None for ranges in found):
        starts = np.array([ranges.start for ranges in found])
        return ByteRanges(0, nbytes, (starts, starts + [ranges.nbytes for ranges in found]))
    bounds = zip(*[ranges.bounds() for ranges in found], strict=True)
    starts, stops = (np.concatenate(side) for side in bounds)
    return ByteRanges(0, nbytes, (starts, stops))


class Plan:
    """The bytes of a selection, one range without a `cost`, and their places in a view of `out`."""

    def __init__(
        self, layout: ObjectLayout, selection: Selection, cost: RequestCost | None
    ) -> None:
        self.layout, self.selection = layout, selection
        self.gap, self.max_request_nbytes = (UNLIMITED, UNLIMITED) if cost is None else cost
        self._strides = (1,) if selection.are_points else layout.grid.element_strides
        self._slab_planners: dict[Any, SlabPlanner] = {}  # by numbers of indices
        self._kept: tuple[Any, list[Fetch | AbsentOutSelection]] | None = None
        self._kept_inner_selections: list[InnerSelection] | None = (
            None  # the parts, where they are few
        )
        self.nbytes = self.ranges = UNLIMITED
        self._split = layout.grid.split_by_axis(selection)
        if prod(map(len, self._split)) <= limits.LIMITS.inline_ranges:
            self._kept_inner_selections = list(self._generate_inner_selections())
            spans = [
                inner_selection.slab_planner.stats
                for inner_selection in self._kept_inner_selections
            ]
            self.nbytes = sum([span.fetched_elements for span in spans]) * layout.item_size
            self.ranges = sum([span.ranges for span in spans])
        nbytes = layout.stored_nbytes
        # All of a chunk proves its size, so it is read where that is no slower.
        self.reads_whole_chunk = nbytes is not None and nbytes <= max(self.gap, self.nbytes)
        if self.reads_whole_chunk:
            self.gap = UNLIMITED
            self._slab_planners.clear()
            self._kept_inner_selections = [
                self._inner_selection(
                    inner_selection.inner_chunk_number, inner_selection.axis_selections
                )
                for inner_selection in self._kept_inner_selections or ()
            ]
            self.nbytes, self.ranges = layout.nbytes, 1
        # Read on the event loop, if nothing has to be waited for.
        most = limits.LIMITS
        has_few = self.ranges <= most.inline_ranges
        self._is_kept = has_few and self.nbytes <= most.block_nbytes * most.inline_ranges
        self.is_small = has_few and layout.index_nbytes <= most.assigned_nbytes

    def inner_selections(self) -> Iterable[InnerSelection]:
        """The selected elements of each inner chunk, in the order of the index."""
        return (
            self._generate_inner_selections()
            if self._kept_inner_selections is None
            else self._kept_inner_selections
        )

    def inner_selections_by_number(self) -> Callable[[int], InnerSelection | None]:
        """A function that gives the selected elements of the inner chunk with a number, or None."""
        if self._kept_inner_selections is not None:
            return {
                inner_selection.inner_chunk_number: inner_selection
                for inner_selection in self._kept_inner_selections
            }.get
        find = self.layout.grid.finder(self._split)

        def inner_selection_at(number: int) -> InnerSelection | None:
            axis_selections = find(number)
            return (
                None if axis_selections is None else self._inner_selection(number, axis_selections)
            )

        return inner_selection_at

    def _generate_inner_selections(self) -> Iterator[InnerSelection]:
        return (self._inner_selection(*found) for found in self.layout.grid.chunks_of(self._split))

    def _inner_selection(
        self, number: int, axis_selections: tuple[AxisSelection, ...]
    ) -> InnerSelection:
        indices = [axis_selection.indices for axis_selection in axis_selections]
        start = sum([int(i[0]) * n for i, n in zip(indices, self._strides, strict=True)])
        key = tuple(map(len, indices)) if _RANGES.issuperset(map(type, indices)) else None
        slabs = None if key is None else self._slab_planners.get(key)
        if slabs is None:
            slabs = self.slab_planner_of(axis_selections, self.gap)
            if key is not None:
                self._slab_planners[key] = slabs
        return InnerSelection(number, start * self.layout.item_size, slabs, axis_selections)

    def shifted(self, number: int, start: int) -> Plan:
        """The plan of the selection that is so many inner chunks and bytes further on."""
        few = [
            InnerSelection(
                p.inner_chunk_number + number,
                p.start_byte + start,
                p.slab_planner,
                p.axis_selections,
            )
            for p in self._kept_inner_selections or ()
        ]
        plan = object.__new__(Plan)  # in less time than `copy`, which random rows would pay
        plan.__dict__ = {**self.__dict__, "_kept_inner_selections": few, "_kept": None}
        return plan

    def is_fetched_in_ranges(self, *, answers_ranges: bool) -> bool:
        """Whether ranges are fetched; of a whole chunk, where it is too large for one request."""
        return not self.reads_whole_chunk or (
            answers_ranges and self.layout.nbytes > self.max_request_nbytes
        )

    def slab_planner_of(self, axis_selections: tuple[AxisSelection, ...], gap: int) -> SlabPlanner:
        """Slabs of indices in an inner chunk, with another gap than that of the plan."""
        return SlabPlanner(
            [axis_selection.indices for axis_selection in axis_selections],
            self._strides,
            self.layout.item_size,
            gap,
        )

    def fetches(
        self, index: InnerChunkIndex, max_nbytes: int
    ) -> Iterable[Fetch | AbsentOutSelection]:
        """What is fetched of an object with this index, at most `most` bytes at a time."""
        if not self._is_kept:
            return self._fetches(index, max_nbytes)
        key, kept = (index.cache_key, max_nbytes), self._kept
        if kept is None or kept[0] != key:
            self._kept = kept = key, list(self._fetches(index, max_nbytes))
        return kept[1]

    def _fetches(
        self, index: InnerChunkIndex, max_nbytes: int
    ) -> Iterator[Fetch | AbsentOutSelection]:
        inner_selections = iter(self.inner_selections())
        while some := list(islice(inner_selections, _AT_ONCE)):
            located = []
            for inner_selection in some:
                base = index.offset_of(inner_selection.inner_chunk_number)
                if base is None:
                    yield inner_selection.out_selection()
                else:
                    located.append((base + inner_selection.start_byte, inner_selection))
            if len(located) > 1:
                located.sort(key=_PLACE)
            yield from coalesce(located, self.gap, max_nbytes)

    def fetches_filling_absent(
        self, index: InnerChunkIndex, view: Array, max_nbytes: int
    ) -> Iterator[Fetch]:
        """`fetches` of what is there; what is absent becomes the fill value."""
        for fetch in self.fetches(index, max_nbytes):
            if isinstance(fetch, Fetch):
                yield fetch
            else:
                view[fetch] = self.layout.fill_value

    def end_of_file(self, path: str, offset: int) -> ChunkSizeError:
        """Error for a file that ends at the byte `offset`, within or before a range."""
        if self.layout.stored_nbytes is None:
            return ChunkSizeError(
                f"{path} ends at byte {offset}, within an inner chunk that its index has: it was"
                " shortened while it was read"
            )
        if self.reads_whole_chunk:
            return wrong_size_error(path, 0, self.layout.nbytes, offset)
        (inner_selection,) = self.inner_selections()
        slabs, first = (
            inner_selection.slab_planner.split_by_size(UNLIMITED, _AT_ONCE),
            inner_selection.start_byte,
        )
        ranges = ((first + r[0], first + r[1]) for slab in slabs for r in slab.ranges.ranges())
        start, stop = next(found for found in ranges if found[1] > offset)
        return wrong_size_error(path, start, stop, max(offset - start, 0))


def with_request_sizes(
    fetches: Iterable[Fetch], max_request_nbytes: int, slots: int, objects: int
) -> Iterator[tuple[Fetch, int]]:
    """Fetches, each with the largest size of its requests, `slots` of them at once for `objects`.

    In the last round, when slots become idle, long ranges are cut to the size with which all end.
    """
    fetches, length = iter(fetches), -(-slots // objects)
    following = list(islice(fetches, length))
    while some := following:
        following, size = list(islice(fetches, length)), max_request_nbytes
        count = sum([fetch.ranges.number_of_requests(max_request_nbytes) for fetch in some])
        if not following and max_request_nbytes < UNLIMITED and count <= 2 * slots:
            requests = [r for fetch in some for r in fetch.ranges.requests(max_request_nbytes)]
            sizes = [stop - start for start, stop, _ in requests]
            most, piece = max(sizes), limits.LIMITS.min_piece_nbytes
            size = min(
                [-(-most // n) for n in range(1, min(-(-most // piece), 2 * slots, _AT_ONCE) + 1)],
                key=lambda n: (
                    -(-objects * sum([-(-size // n) for size in sizes]) // slots) * (n + piece)
                ),
            )
        for fetch in some:
            yield fetch, size


def plan_of(
    layout: ObjectLayout,
    chunk_selection: Any,
    cost: RequestCost | None,
    out_selection: Any = None,
    drop_axes: tuple[int, ...] = (),
) -> Plan:
    """The plan for a selection; the last one of integers and slices is kept, for others alike."""
    if not is_basic_selection(chunk_selection):
        return Plan(
            layout,
            Selection(layout.shape, layout.order, chunk_selection, out_selection, drop_axes),
            cost,
        )
    last = layout.kept_plans.get(cost)
    if last is not None and last[0] == chunk_selection:
        kept: Plan = last[-1]
        return kept
    # Integers move the selected elements, and nothing else.
    key = [0 if type(entry) is int else entry for entry in chunk_selection]
    number, start = layout.grid.origin_of_integers(layout.in_stored_order(chunk_selection))
    if last is not None and last[1] == key:
        _, _, from_number, from_start, kept = last
        plan = kept.shifted(number - from_number, (start - from_start) * layout.item_size)
    else:
        selection = Selection(layout.shape, layout.order, chunk_selection, out_selection, drop_axes)
        plan = Plan(layout, selection, cost)
    if plan.ranges <= limits.LIMITS.inline_ranges:
        if len(layout.kept_plans) >= _COSTS:
            layout.kept_plans.clear()
        # One tuple: no thread sees half of it.
        layout.kept_plans[cost] = chunk_selection, key, number, start, plan
    return plan
