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
from zarr_bytes.errors import ChunkSizeError, wrong_size
from zarr_bytes.indexing.selection import Selection, combination, is_basic, runs_of_equals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr_bytes.indexing.selection import Array, Dim, Indices, Offsets
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.format import ChunkIndex, Format
    from zarr_bytes.settings import Cost

Table: TypeAlias = "tuple[Offsets, Offsets]"  # starts and stops of ranges
Absent: TypeAlias = "tuple[Any, ...]"  # index in the view of `out`, of an absent inner chunk
Bounds: TypeAlias = "Sequence[tuple[int, int]]"

EVERYTHING: Final = 2**62  # bytes of a gap that joins everything in one range
_PLACE: Final = itemgetter(0)
_RANGES: Final = frozenset((range,))
_AT_ONCE: Final = 2**12  # parts that are sorted, ranges that are Python integers
_COSTS: Final = 8  # of kept plans; more of settings that change at each read


class ByteRanges:
    """Ranges of a stored object that are fetched together."""

    __slots__ = ("nbytes", "start", "table")

    def __init__(self, start: int, nbytes: int, table: Table | None = None) -> None:
        self.start = start
        self.nbytes = nbytes  # of all ranges
        self.table = table  # from `start`; None for one range

    def number_of_ranges(self) -> int:
        """Number of ranges."""
        return 1 if self.table is None else self.table[0].size

    def requests(self, largest: int) -> Iterator[tuple[int, int, int]]:
        """`ranges`, none of more than `largest` bytes."""
        if self.nbytes <= largest:
            return self.ranges()
        return (
            (begin, min(begin + largest, stop), position + begin - start)
            for start, stop, position in self.ranges()
            for begin in range(start, stop, largest)
        )

    def number_of_requests(self, largest: int) -> int:
        """Number of `requests`."""
        if self.nbytes <= largest:
            return self.number_of_ranges()
        starts, stops = self.bounds()
        return int((-(-(stops - starts) // largest)).sum())

    def bounds(self) -> Table:
        """Starts and stops of the ranges in the object."""
        if self.table is None:
            return np.array([self.start]), np.array([self.start + self.nbytes])
        return self.start + self.table[0], self.start + self.table[1]

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Start, stop, and position among the fetched bytes, of every range."""
        position = 0
        for starts, sizes in self.lists():
            for start, size in zip(starts, sizes, strict=True):
                yield start, start + size, position
                position += size

    def of(self, content: Bytes) -> Bytes:
        """The bytes of the ranges, out of those of the whole object."""
        if self.table is None:
            return content[self.start : self.start + self.nbytes]
        return np.concatenate([content[start:stop] for start, stop, _ in self.ranges()])

    def lists(self) -> Iterator[tuple[list[int], list[int]]]:
        """Starts and sizes, some thousands at a time: Python integers take much memory."""
        if self.table is None:
            yield [self.start], [self.nbytes]
            return
        starts, stops = self.table
        for i in range(0, starts.size, _AT_ONCE):
            some = starts[i : i + _AT_ONCE]
            yield (some + self.start).tolist(), (stops[i : i + _AT_ONCE] - some).tolist()


class Span(NamedTuple):
    """What combinations of indices take, in elements."""

    extent: int  # from the first to the last selected one
    fetched: int  # with the gaps that are read over
    ranges: int
    selected: int

    def fits(self, most: int, runs: int) -> bool:
        """Whether these are at most `most` elements and `runs` ranges."""
        return self.fetched <= most and self.selected <= most and self.ranges <= runs


_ONE: Final = Span(1, 1, 1, 1)


class Level:
    """Indices of an axis, combined with all of the axes inside; numbers for a range, or arrays."""

    apart: Any  # whether a range begins behind the first index; or at each
    distance: Any
    more: Any  # ranges that an index adds; or the sums
    step: Any  # of neighbours among the fetched elements; or the places there

    def __init__(self, indices: Indices, stride: int, inside: Span, gap: int) -> None:
        self.indices, self.stride, self.inside = indices, stride, inside
        self.is_even = isinstance(indices, range)
        if self.is_even and len(indices) == 1:
            self.step, self.apart, self.distance, self.more = inside.fetched, False, 0, 0
            self.span = inside
            return
        distance: Any = indices.step if isinstance(indices, range) else np.diff(indices)
        self.distance = distance = distance * stride
        unread, is_new = distance - inside.extent, distance > 0
        joined = is_new & (unread <= gap)
        self.apart = is_new ^ joined
        self.step = is_new * inside.fetched + joined * unread
        self.more = is_new * inside.ranges - joined
        if not self.is_even:
            self.step, self.more = (np.append(0, np.cumsum(x)) for x in (self.step, self.more))
        self.span = self.span_of(0, len(indices))

    def span_of(self, first: int, last: int) -> Span:
        """What the indices number `first` to `last`, exclusive, take."""
        inside, n, end = self.inside, last - first, last - 1
        if self.is_even:
            far, more, ranges = ((n - 1) * x for x in (self.distance, self.step, self.more))
        else:
            far = int(self.indices[end] - self.indices[first]) * self.stride
            more, ranges = (int(x[end] - x[first]) for x in (self.step, self.more))
        return Span(
            far + inside.extent, more + inside.fetched, ranges + inside.ranges, n * inside.selected
        )

    def pieces(self, most: int, runs: int) -> Iterator[tuple[int, int, Span]]:
        """All indices, in pieces of at most `most` elements and `runs` ranges, or of one index."""
        first, length, n, span = 0, 0, len(self.indices), self.inside
        while first < n:
            if not (length and self.is_even and first + length <= n):
                begin = first
                length = 1 + bisect_left(
                    range(first + 2, n + 1),  # at least one index
                    True,  # noqa: FBT003
                    key=lambda last: not self.span_of(begin, last).fits(most, runs),
                )
                span = self.span_of(first, first + length)
            yield first, first + length, span
            first += length

    def singles(self) -> list[tuple[int, int]]:
        """Each index by itself, with its repetitions."""
        if isinstance(self.indices, range):
            return [(i, i + 1) for i in range(len(self.indices))]
        return list(runs_of_equals(self.indices))

    def table(self, first: int, last: int, inside: Table | None) -> Table:
        """The ranges of a piece from its first: those `inside`, again at each index."""
        starts, stops = inside or (np.zeros(1, np.int64), np.array([self.inside.extent]))
        if self.is_even:
            offsets, apart = np.arange(last - first) * self.distance, self.apart
        else:
            distances = self.distance[first : last - 1]
            is_new = distances > 0
            offsets = np.append(0, distances[is_new].cumsum())
            apart = self.apart[first : last - 1][is_new]
        begins, ends = np.ones((2, offsets.size, starts.size), bool)
        begins[1:, 0] = ends[:-1, -1] = apart
        return (offsets[:, None] + starts)[begins], (offsets[:, None] + stops)[ends]


class Slab(NamedTuple):
    """Elements of an inner chunk that are fetched together."""

    ranges: ByteRanges  # from the first selected element of the inner chunk
    shape: tuple[int, ...]  # of the elements in the fetched bytes
    strides: tuple[int, ...]
    among: tuple[Any, ...] | None  # index of the selected ones there, where they lie unevenly
    bounds: Bounds | None  # numbers of the indices along each axis; None for all of them

    def elements(self, fetched: Bytes, at: int, dtype: Any) -> Array:
        """The selected elements, from `at` on in fetched bytes; a view, unless unevenly."""
        array: Array = np.ndarray(self.shape, dtype, fetched, at, self.strides)
        return array if self.among is None else array[self.among]

    def put(self, elements: Array, target: Array) -> None:
        """Put elements into their places in bytes; of one that is put twice, the last counts."""
        array: Array = np.ndarray(self.shape, elements.dtype, target, strides=self.strides)
        array[... if self.among is None else self.among] = elements


class Slabs:
    """The selection of an inner chunk, counted before it is made; shared by those alike."""

    def __init__(
        self, indices: Sequence[Indices], strides: Sequence[int], item_size: int, gap: int
    ) -> None:
        self.levels: list[Level] = []  # innermost first
        self.span = _ONE
        self.item_size = item_size
        for along, stride in zip(reversed(indices), reversed(strides), strict=True):
            self.levels.append(Level(along, stride, self.span, gap // item_size))
            self.span = self.levels[-1].span

    @cached_property
    def whole(self) -> Slab:
        """The one slab of everything."""
        (slab,) = self._divided(EVERYTHING, EVERYTHING)
        return slab

    def divided(self, most: int, runs: int) -> Iterable[Slab]:
        """Boxes of the selection, of at most `most` bytes (or one element) and `runs` ranges."""
        most = max(most // self.item_size, 1)
        return (self.whole,) if self.span.fits(most, runs) else self._divided(most, runs)

    def _divided(self, most: int, runs: int) -> Iterator[Slab]:
        bounds: list[tuple[int, int]] = []
        table, span = None, _ONE
        for level in self.levels:
            if not level.span.fits(most, runs):
                break
            span, n = level.span, len(level.indices)
            table = level.table(0, n, table) if span.ranges > 1 and n > 1 else table
            bounds.append((0, n))
        if len(bounds) == len(self.levels):
            yield self._slab(bounds, table, span)._replace(bounds=None)
            return
        level, outer = self.levels[len(bounds)], self.levels[: len(bounds) : -1]
        pieces, length = list(level.pieces(most, runs)), 0
        for single in product(*[other.singles() for other in outer]):
            for begin, end, span in pieces:
                if not (level.is_even and end - begin == length):
                    inner = level.table(begin, end, table) if span.ranges > 1 else None
                    length = end - begin
                yield self._slab([*bounds, (begin, end), *single[::-1]], inner, span)

    def _slab(self, bounds: list[tuple[int, int]], table: Table | None, span: Span) -> Slab:
        size, start, is_even = self.item_size, 0, True
        shape, strides, among = [], [], []
        bounds.reverse()
        for level, (first, last) in zip(reversed(self.levels), bounds, strict=True):
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
        ranges = ByteRanges(start * size, span.fetched * size, table)
        index = None if is_even else combination(among)
        return Slab(ranges, tuple(shape), tuple(strides), index, bounds)


class Part:
    """The selected elements of one inner chunk."""

    __slots__ = ("dims", "number", "slabs", "start")

    def __init__(self, number: int, start: int, slabs: Slabs, dims: tuple[Dim, ...]) -> None:
        self.number = number  # in the index
        self.start = start  # byte of the first selected element
        self.slabs, self.dims = slabs, dims

    def out(self, bounds: Bounds | None = None) -> tuple[Any, ...]:
        """Index in the view of `out`, of all elements or of those of a slab."""
        if bounds is None:
            return combination([dim.out for dim in self.dims])
        return combination([dim.out_of(*pair) for dim, pair in zip(self.dims, bounds, strict=True)])


class Fetch(NamedTuple):
    """Byte ranges of a stored object, and the slabs in their bytes."""

    ranges: ByteRanges
    slabs: list[tuple[Slab, tuple[Any, ...], int]]  # index in the view of `out`, place in the bytes


def coalesced(located: list[tuple[int, Part]], gap: int, most: int) -> Iterator[Fetch]:
    """Located parts fetched together, in one range across a gap, at most `most` bytes at a time."""
    runs = limits.LIMITS.runs
    found: list[ByteRanges] = []
    slabs: list[tuple[Slab, tuple[Any, ...], int]] = []
    nbytes = count = 0
    for base, part in located:
        for slab in part.slabs.divided(most, runs):
            ranges = slab.ranges
            start, size, table = ranges.start + base, ranges.nbytes, ranges.table
            if found and table is None and (last := found[-1]).table is None:
                unread = start - last.start - last.nbytes
                if 0 <= unread <= gap and nbytes + unread + size <= most:
                    found[-1] = ByteRanges(last.start, last.nbytes + unread + size)
                    slabs.append((slab, part.out(slab.bounds), nbytes + unread))
                    nbytes += unread + size
                    continue
            more = ranges.number_of_ranges()
            if found and (nbytes + size > most or count + more > runs):
                yield Fetch(joined(found, nbytes), slabs)
                found, slabs, nbytes, count = [], [], 0, 0
            found.append(ByteRanges(start, size, table))
            slabs.append((slab, part.out(slab.bounds), nbytes))
            nbytes += size
            count += more
    if found:
        yield Fetch(joined(found, nbytes), slabs)


def joined(found: list[ByteRanges], nbytes: int) -> ByteRanges:
    """Several ranges as one, of `nbytes` in all."""
    if len(found) == 1:
        return found[0]
    if all(ranges.table is None for ranges in found):
        starts = np.array([ranges.start for ranges in found])
        return ByteRanges(0, nbytes, (starts, starts + [ranges.nbytes for ranges in found]))
    bounds = zip(*[ranges.bounds() for ranges in found], strict=True)
    starts, stops = (np.concatenate(side) for side in bounds)
    return ByteRanges(0, nbytes, (starts, stops))


class Plan:
    """The bytes of a selection, one range without a `cost`, and their places in a view of `out`."""

    def __init__(self, format: Format, selection: Selection, cost: Cost | None) -> None:
        self.format, self.selection = format, selection
        self.gap, self.largest_request = (EVERYTHING, EVERYTHING) if cost is None else cost
        self._strides = (1,) if selection.are_points else format.grid.strides
        self._slabs: dict[Any, Slabs] = {}  # by numbers of indices
        self._kept: tuple[Any, list[Fetch | Absent]] | None = None
        self._few: list[Part] | None = None  # the parts, where they are few
        self.nbytes = self.ranges = EVERYTHING
        self._divided = format.grid.divided(selection)
        if prod(map(len, self._divided)) <= limits.LIMITS.loop_ranges:
            self._few = list(self._parts())
            spans = [part.slabs.span for part in self._few]
            self.nbytes = sum([span.fetched for span in spans]) * format.item_size
            self.ranges = sum([span.ranges for span in spans])
        nbytes = format.stored_nbytes
        # All of a chunk proves its size, so it is read where that is no slower.
        self.is_whole = nbytes is not None and nbytes <= max(self.gap, self.nbytes)
        if self.is_whole:
            self.gap = EVERYTHING
            self._slabs.clear()
            self._few = [self._part(part.number, part.dims) for part in self._few or ()]
            self.nbytes, self.ranges = format.nbytes, 1
        # Read on the event loop, if nothing has to be waited for.
        most = limits.LIMITS
        has_few = self.ranges <= most.loop_ranges
        self._is_kept = has_few and self.nbytes <= most.block * most.loop_ranges
        self.is_little = has_few and format.index_nbytes <= most.assigned

    def parts(self) -> Iterable[Part]:
        """The selected elements of each inner chunk, in the order of the index."""
        return self._parts() if self._few is None else self._few

    def parts_by_number(self) -> Callable[[int], Part | None]:
        """A function that gives the selected elements of the inner chunk with a number, or None."""
        if self._few is not None:
            return {part.number: part for part in self._few}.get
        find = self.format.grid.finder(self._divided)

        def part(number: int) -> Part | None:
            dims = find(number)
            return None if dims is None else self._part(number, dims)

        return part

    def _parts(self) -> Iterator[Part]:
        return (self._part(*found) for found in self.format.grid.parts(self._divided))

    def _part(self, number: int, dims: tuple[Dim, ...]) -> Part:
        indices = [dim.indices for dim in dims]
        start = sum([int(i[0]) * n for i, n in zip(indices, self._strides, strict=True)])
        key = tuple(map(len, indices)) if _RANGES.issuperset(map(type, indices)) else None
        slabs = None if key is None else self._slabs.get(key)
        if slabs is None:
            slabs = self.slabs_of(dims, self.gap)
            if key is not None:
                self._slabs[key] = slabs
        return Part(number, start * self.format.item_size, slabs, dims)

    def moved(self, number: int, start: int) -> Plan:
        """The plan of the selection that is so many inner chunks and bytes further on."""
        few = [Part(p.number + number, p.start + start, p.slabs, p.dims) for p in self._few or ()]
        plan = object.__new__(Plan)  # in less time than `copy`, which random rows would pay
        plan.__dict__ = {**self.__dict__, "_few": few, "_kept": None}
        return plan

    def comes_in_parts(self, *, answers_ranges: bool) -> bool:
        """Whether ranges are fetched; of a whole chunk, where it is too large for one request."""
        return not self.is_whole or (answers_ranges and self.format.nbytes > self.largest_request)

    def slabs_of(self, dims: tuple[Dim, ...], gap: int) -> Slabs:
        """Slabs of indices in an inner chunk, with another gap than that of the plan."""
        return Slabs([dim.indices for dim in dims], self._strides, self.format.item_size, gap)

    def fetches(self, index: ChunkIndex, most: int) -> Iterable[Fetch | Absent]:
        """What is fetched of an object with this index, at most `most` bytes at a time."""
        if not self._is_kept:
            return self._fetches(index, most)
        key, kept = (index.places, most), self._kept
        if kept is None or kept[0] != key:
            self._kept = kept = key, list(self._fetches(index, most))
        return kept[1]

    def _fetches(self, index: ChunkIndex, most: int) -> Iterator[Fetch | Absent]:
        parts = iter(self.parts())
        while some := list(islice(parts, _AT_ONCE)):
            located = []
            for part in some:
                base = index.offset(part.number)
                if base is None:
                    yield part.out()
                else:
                    located.append((base + part.start, part))
            if len(located) > 1:
                located.sort(key=_PLACE)
            yield from coalesced(located, self.gap, most)

    def filling(self, index: ChunkIndex, view: Array, most: int) -> Iterator[Fetch]:
        """`fetches` of what is there; what is absent becomes the fill value."""
        for fetch in self.fetches(index, most):
            if isinstance(fetch, Fetch):
                yield fetch
            else:
                view[fetch] = self.format.fill_value

    def end_of_file(self, path: str, offset: int) -> ChunkSizeError:
        """Error for a file that ends at the byte `offset`, within or before a range."""
        if self.format.stored_nbytes is None:
            return ChunkSizeError(
                f"{path} ends at byte {offset}, within an inner chunk that its index has: it was"
                " shortened while it was read"
            )
        if self.is_whole:
            return wrong_size(path, 0, self.format.nbytes, offset)
        (part,) = self.parts()
        slabs, first = part.slabs.divided(EVERYTHING, _AT_ONCE), part.start
        ranges = ((first + r[0], first + r[1]) for slab in slabs for r in slab.ranges.ranges())
        start, stop = next(found for found in ranges if found[1] > offset)
        return wrong_size(path, start, stop, max(offset - start, 0))


def with_sizes(
    fetches: Iterable[Fetch], largest: int, slots: int, objects: int
) -> Iterator[tuple[Fetch, int]]:
    """Fetches, each with the largest size of its requests, `slots` of them at once for `objects`.

    In the last round, when slots become idle, long ranges are cut to the size with which all end.
    """
    fetches, length = iter(fetches), -(-slots // objects)
    following = list(islice(fetches, length))
    while some := following:
        following, size = list(islice(fetches, length)), largest
        count = sum([fetch.ranges.number_of_requests(largest) for fetch in some])
        if not following and largest < EVERYTHING and count <= 2 * slots:
            requests = [r for fetch in some for r in fetch.ranges.requests(largest)]
            sizes = [stop - start for start, stop, _ in requests]
            most, piece = max(sizes), limits.LIMITS.piece
            size = min(
                [-(-most // n) for n in range(1, min(-(-most // piece), 2 * slots, _AT_ONCE) + 1)],
                key=lambda n: (
                    -(-objects * sum([-(-size // n) for size in sizes]) // slots) * (n + piece)
                ),
            )
        for fetch in some:
            yield fetch, size


def plan_of(
    format: Format,
    entries: Any,
    cost: Cost | None,
    place: Any = None,
    drop_axes: tuple[int, ...] = (),
) -> Plan:
    """The plan for a selection; the last one of integers and slices is kept, for others alike."""
    if not is_basic(entries):
        return Plan(format, Selection(format.shape, format.order, entries, place, drop_axes), cost)
    last = format.last_plans.get(cost)
    if last is not None and last[0] == entries:
        kept: Plan = last[-1]
        return kept
    # Integers move the selected elements, and nothing else.
    key = [0 if type(entry) is int else entry for entry in entries]
    number, start = format.grid.origin(format.stored_order(entries))
    if last is not None and last[1] == key:
        _, _, from_number, from_start, kept = last
        plan = kept.moved(number - from_number, (start - from_start) * format.item_size)
    else:
        selection = Selection(format.shape, format.order, entries, place, drop_axes)
        plan = Plan(format, selection, cost)
    if plan.ranges <= limits.LIMITS.loop_ranges:
        if len(format.last_plans) >= _COSTS:
            format.last_plans.clear()
        # One tuple: no thread sees half of it.
        format.last_plans[cost] = entries, key, number, start, plan
    return plan
