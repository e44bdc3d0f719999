"""The engine that reads: selections of chunks and shards, straight into the result.

A read is a plan, the index of the object, fetches, and the scattering of their elements. Local
files, requests and memory share everything but the line that fetches. The short way of one range
comes before any plan, so that a small chunk costs an open, a read, a close and little else.
"""

from __future__ import annotations

import asyncio
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
from zarr.buffer import cpu

from zarr_bytes import limits
from zarr_bytes.indexing.plan import EVERYTHING, Fetch, plan_of, with_sizes
from zarr_bytes.indexing.selection import c_strides, is_basic, is_of_zarr, shape_of, view_of
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.files import EndOfFileError, open_chunk
from zarr_bytes.io.known_stores import is_known_to_be_local, is_tried
from zarr_bytes.io.mapping import apart_from_files
from zarr_bytes.io.requests import MissingChunkError, Requests
from zarr_bytes.io.tasks import (
    finished,
    for_each,
    in_threads,
    number_of_slots,
    number_of_threads,
    objects_at_once,
)
from zarr_bytes.layout.elements import bool_error, find_wrong_bool
from zarr_bytes.layout.format import CHUNK_INDEX, Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr.abc.buffer import BufferPrototype
    from zarr.storage import StorePath

    from zarr_bytes.errors import BoolValueError
    from zarr_bytes.indexing.plan import Plan
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.io.index_cache import IndexCache
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.format import ChunkIndex, Format
    from zarr_bytes.settings import Cost

# A chunk's key in a store, its format, the selection of the chunk, the place of this selection in
# the array that is read into or written from, and whether the selection has all of the chunk that
# is within the array. A plain tuple, which is made and taken apart for each of a thousand chunks.
Chunk: TypeAlias = "tuple[StorePath, Format, Any, Any, bool]"


async def read_batch(
    batch: Sequence[Chunk],
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    index_cache: IndexCache | None = None,
    *,
    is_all: bool = True,
) -> list[bool]:
    """Read selections of chunks of one store into `out`; for each, whether it exists.

    The `index_cache` is that of the array; None for chunks, which have no index. The batch `is_all`
    that is read, except for one chunk of those that zarr's pipelines read.
    """
    driver, into = driver_of(batch[0][0].store), out
    if driver.root and out.base is not None:  # zarr's own is no view
        paths = (f"{driver.root}/{key.path}" for key, *_ in batch)
        into = apart_from_files(out, paths, is_read=True)
    reader = Reader(into, drop_axes, driver, prototype, index_cache, is_all=is_all)
    if not driver.root:
        count, slots = len(batch) if is_all else 2**31, number_of_slots()
        objects = [objects_at_once(i, count, slots) for i in range(len(batch))]
        # Before any index is fetched, which may take the place of another one in the cache.
        indexes = [reader.kept_index(key, format) for key, format, *_ in batch]
        items = [*zip(batch, objects, indexes, strict=True)]
        return await for_each(lambda of: reader.object(*of), items)
    root, nbytes = driver.root, out.nbytes
    found: list[bool] = []
    if nbytes <= max(limits.LIMITS.loop, len(batch) * limits.LIMITS.loop_each) and is_tried(root):
        try:
            for is_there in reader.files(batch, waits=False):
                found.append(is_there)
                if not len(found) % limits.LIMITS.loop_chunks:
                    await asyncio.sleep(0)
        except BlockingIOError:  # a thread reads this chunk again, and all after it
            pass
    if rest := batch[len(found) :]:
        is_little = nbytes <= limits.LIMITS.one_thread and not reader.fetches_much
        threads = threads_for(root, len(rest), is_little=is_little)
        found += await in_threads(reader.files, rest, threads)
    if into is not out:
        out[...] = into
    counters.note(root, chunks=len(found), opens=sum(found))
    return found


def read_sync(item: Chunk, out: Array, prototype: BufferPrototype) -> bool:
    """`read_batch` of one chunk in the calling thread, through the `get_sync` of a store."""
    reader = Reader(out, (), driver_of(item[0].store), prototype, is_all=False)
    if not reader.root:
        return finished(reader.object(item, is_sync=True))
    (is_there,) = reader.files([item])
    counters.note(reader.root, chunks=1, opens=int(is_there))
    return is_there


def as_read(
    getter: Any, format: Format, selection: Any, empty: Callable[..., Any] = np.empty
) -> tuple[Chunk, Any, Any]:
    """A chunk as a pipeline reads it, what NumPy selects of it then, and the array for it."""
    entries, rest = selection if isinstance(selection, tuple) else (selection,), ...
    if not is_of_zarr(entries, format.shape):
        entries, rest = (slice(None),) * len(format.shape), selection
    out = empty(shape_of(entries, format.shape), format.dtype)
    return (getter, format, entries, tuple([slice(0, n) for n in out.shape]), False), rest, out


def threads_for(root: str, count: int, *, is_little: bool) -> int:
    """Number of threads for files: as of cores, or as of requests where they may be waited for."""
    if is_known_to_be_local(root):
        return 1 if is_little else min(number_of_threads(), count)
    return min(number_of_slots(), count)


class Reader:
    """Reads selections of the objects of one store into `out`."""

    def __init__(
        self,
        out: Array,
        drop_axes: tuple[int, ...],
        driver: Driver,
        prototype: BufferPrototype = cpu.buffer_prototype,
        index_cache: IndexCache | None = None,
        *,
        is_all: bool = True,
    ) -> None:
        self.out, self.drop_axes, self.prototype = out, drop_axes, prototype
        self._index_cache = index_cache
        self.driver, self.root = driver, driver.root
        # Whether whole chunks may come in parts: known when the read begins, and so for all of its
        # chunks, whichever comes first.
        self.answers_ranges = is_all and not self.root and driver.answers_ranges()
        # Not in a thread, where a warning could not point at the line that has called zarr.
        self.cost = driver.cost() if self.root else None
        # What the way of integers and slices depends on, besides these.
        self.key = self.cost, limits.LIMITS, out.dtype, out.strides, out.flags.behaved
        self.fetches_much = False  # more than one thread is for, with the gaps

    def files(self, batch: Iterable[Chunk], *, waits: bool = True) -> Iterator[bool]:
        """Read local files; for each, whether it exists.

        A BlockingIOError without `waits`, if it and all later ones must be read in a thread.
        """
        way: _Way | None = None
        out, root, fetched = self.out, self.root, 0
        for getter, format, selection, place, _ in batch:
            if way is None or not way.has(format, selection, place):
                way = self._way(format, selection, place)
            one, plan = way.one, way.plan
            if plan is not None and not waits:
                fetched += plan.nbytes
                self.fetches_much = fetched > limits.LIMITS.one_thread
                if self.fetches_much or not plan.is_little:
                    raise BlockingIOError
            path = f"{root}/{getter.path}"
            file = open_chunk(path, root, waits=waits)
            if file is None:
                out[place] = format.fill_value
                yield False
                continue
            with file:
                try:
                    if one is not None:
                        one.read(file, out, place)
                    elif plan is not None:
                        read_file(plan, file, self._view(format, selection, place))
                except EndOfFileError as end:
                    if plan is None:
                        plan = self._plan(format, selection, place, self.cost)
                    raise plan.end_of_file(path, end.offset) from None
            yield True
        self._keep(way)

    def kept_index(self, key: StorePath, format: Format) -> Bytes | None:
        """The index of a shard that needs no request; None if there is none."""
        if self._index_cache is None or not format.index_nbytes:
            return None
        return self._index_cache.get(key, format.index_nbytes)

    async def object(
        self,
        item: Chunk,
        objects: int = 1,
        kept_index: Bytes | None = None,
        *,
        is_sync: bool = False,
    ) -> bool:
        """Read one of the `objects` of any other store that are read at once; whether it exists."""
        (getter, format, selection, place, _), driver = item, self.driver
        cost, plan = driver.cost_of(getter.path), None
        # All of a small chunk comes at once, of which NumPy selects without a plan.
        is_small = cost is None or format.nbytes <= min(cost)
        if not (is_small and format.is_plain and format.stored_nbytes):
            plan = self._plan(format, selection, place, cost)
        requests = Requests(getter, format, plan, cost, self.prototype, driver, is_sync=is_sync)
        try:
            if plan is None:
                content = await requests.fetch_whole()
                elements = np.ndarray(format.grid.shape, format.stored, content)
                selected = elements.transpose(format.back)[(*selection, ...)]
                self.out[place] = selected.squeeze(self.drop_axes) if self.drop_axes else selected
            else:
                view, index = self._view(format, selection, place), CHUNK_INDEX
                if format.index_nbytes:
                    usable = None if cost is None else kept_index  # a whole shard has its own
                    index = await self._index(getter, format, requests, usable)
                await self._object(plan, requests, index, view, objects)
        except MissingChunkError:
            requests.check_is_missing()
            self.out[place] = format.fill_value
            return False
        return True

    async def _index(
        self, key: StorePath, format: Format, requests: Requests, kept: Bytes | None
    ) -> Index:
        """The index of a shard, out of the bytes that are kept of it, or else fetched."""
        content, size = (kept, None) if kept is not None else await requests.fetch_index(format)
        index = Index(format, requests.key, content, size)
        # Not before its check: what was damaged on its way is fetched again by the next read. And
        # not of a shard that has come whole, as it will again.
        if self._index_cache is not None and size is None:
            self._index_cache.keep(key, content)
        return index

    async def _object(
        self, plan: Plan, requests: Requests, index: ChunkIndex, view: Array, objects: int
    ) -> None:
        """Fetch an object whose index is known, by several requests at a time."""
        is_chunk = not plan.format.index_nbytes
        if is_chunk and not plan.comes_in_parts(answers_ranges=self.answers_ranges):
            await requests.fetch_whole()
        put, largest = scatter(plan, view), plan.largest_request

        async def work(item: tuple[Fetch, int]) -> None:
            fetch, most = item
            async with requests.memory:
                put(fetch, await requests.fetch(fetch.ranges, most))

        fetches = plan.filling(index, view, largest)
        await for_each(work, with_sizes(fetches, largest, requests.slots, objects), requests.slots)

    def counts(self, item: Chunk, index: ChunkIndex, objects: int = 1) -> Counts:
        """What `files` or `object` would fetch of an object."""
        getter, format, selection, place, _ = item
        plan = self._plan(format, selection, place, self.driver.cost_of(getter.path))
        most = largest = plan.largest_request
        is_whole = not plan.comes_in_parts(answers_ranges=self.answers_ranges)
        if self.root:
            most = _most(self._view(format, selection, place))
            is_whole = plan.is_whole and format.nbytes <= limits.LIMITS.assigned
        ranges, nbytes = 1, format.nbytes
        if not is_whole:
            fetches = [fetch for fetch in plan.fetches(index, most) if isinstance(fetch, Fetch)]
            sized: Iterable[tuple[Fetch, int]] = zip(fetches, repeat(largest))
            if not self.root:  # a file has no slots
                sized = with_sizes(fetches, largest, number_of_slots(), objects)
            ranges = sum([fetch.ranges.number_of_requests(size) for fetch, size in sized])
            nbytes = sum([fetch.ranges.nbytes for fetch in fetches])
        requests, ranges = (0, ranges) if self.root else (ranges, ranges * (not is_whole))
        return Counts(requests=requests, ranges=ranges, bytes_fetched=nbytes)

    def _way(self, format: Format, selection: Any, place: Any) -> _Way:
        try:  # that of the last read, with memory that no other thread has then
            key, last = format.last_way.pop()
        except IndexError:
            pass
        else:
            if key == self.key and last.has(format, selection, place):
                return cast("_Way", last)
        one = plan = None
        if format.is_plain and is_basic(selection):
            one = self._one_read(format, selection, place)
        if one is None:
            plan = self._plan(format, selection, place, self.cost)
        types = [*map(type, selection)]
        arrays = [i for i, kind in enumerate(types) if kind not in (int, slice)]
        if arrays and not (type(place) is tuple and len(place) == len(selection)):
            return _Way(one, plan, format, selection, [], [])
        return _Way(one, plan, format, selection, types, [(i, place[i]) for i in arrays])

    def _keep(self, way: _Way | None) -> None:
        """Keep the way of integers and slices for the next read."""
        if way is None or (way.plan is not None and not way.plan.is_little):
            return
        if way.types and not way.places:
            way.format.last_way.append((self.key, way))

    def _one_read(self, format: Format, entries: tuple[Any, ...], place: Any) -> _OneRead | None:
        """The one read of a selection, before any plan; None if it takes more than one."""
        box, most = format.grid.box(format.stored_order(entries)), limits.LIMITS
        if box is None or format.index_nbytes > most.assigned:
            return None
        gap, largest = self.cost or (EVERYTHING, EVERYTHING)
        item_size = format.item_size
        start, nbytes = box.start * item_size, box.extent * item_size
        is_part = format.stored_nbytes is None or gap < format.nbytes != nbytes
        to_read = nbytes if is_part else format.nbytes
        # No more than a plan would read at once.
        largest = min(largest, most.block, most.block_out_of_order)
        if to_read > largest or box.gap * item_size > gap:
            return None
        begin = start if is_part else None
        is_all = to_read == prod(box.shape) * item_size
        if is_all and most.direct <= to_read <= most.loop:
            view = self._view(format, entries, place)
            if view.dtype == format.stored and view.flags.carray:
                # Without the data type: not every type has a buffer that can be read into.
                return _OneRead(format, box.number, begin, np.dtype(f"V{item_size}"), None)
        if to_read > most.assigned:
            return None
        memory, at = np.empty(to_read, np.uint8), 0 if is_part else start
        strides = None if is_all else [n * item_size for n in box.strides]
        array: Array = np.ndarray(box.shape, format.stored, memory, at, strides)
        index = [slice(None) if type(entry) is slice else 0 for entry in entries]
        elements = array.transpose(format.back)[(*index, ...)]
        return _OneRead(format, box.number, begin, memory.data, elements)

    def _plan(self, format: Format, selection: Any, place: Any, cost: Cost | None) -> Plan:
        return plan_of(format, selection, cost, place, self.drop_axes)

    def _view(self, format: Format, selection: Any, place: Any) -> Array:
        return view_of(self.out, format.order, selection, place, self.drop_axes)


class _OneRead(NamedTuple):
    """The short way of one range: a point, a row or a box, which NumPy assigns as stored."""

    format: Format
    number: int  # of the inner chunk
    start: int | None  # in the inner chunk; None where a whole file is read
    memory: Any  # that is read into: a memoryview, or for `out` the type of its raw elements
    elements: Array | None  # a view of the memory; None where it is `out`

    def read(self, file: ChunkFile, out: Array, place: Any) -> None:
        """Read an open file into its place in `out`."""
        start, memory = self.start, self.memory
        if start is not None and not self.format.index_nbytes:
            file.check(None)
        elif start is not None:
            base = index_in(file, self.format).offset(self.number)
            if base is None:
                out[place] = self.format.fill_value
                return
            start += base
        if self.elements is None:
            # Flat, in the order of the memory, which is the order of the stored axes.
            raw = out.view(memory)[(*place, ...)]  # never a scalar
            memory = raw.ravel(order="K").data.cast("B")
        if start is None:
            file.read_whole(memory)
        else:
            file.read_range(memory, start)
        if self.elements is not None:
            out[place] = self.elements


class _Way(NamedTuple):
    """How all objects of one format and one selection are read: by one range or by a plan."""

    one: _OneRead | None
    plan: Plan | None
    format: Format
    selection: Any
    types: list[type]  # of the selection; none where it is not compared
    places: list[tuple[int, Any]]  # of the arrays in it, which are in the plan, by their axes

    def has(self, format: Format, selection: Any, place: Any) -> bool:
        """Whether an object is read in this way."""
        try:
            return (
                format is self.format
                and bool(selection == self.selection)
                and self.types == [*map(type, selection)]  # an array of 5 equals 5
                and self.places == [(i, place[i]) for i, _ in self.places]
            )
        except ValueError:  # NumPy compares longer arrays element by element
            return False


def read_file(plan: Plan, file: ChunkFile, view: Array) -> None:
    """Read the selected elements of an open file into the view of `out`."""
    format, content = plan.format, None
    index = index_in(file, format)
    if plan.is_whole and format.nbytes <= limits.LIMITS.assigned:
        content = np.empty(format.nbytes, np.uint8)
        file.read_whole(content.data)
    elif format.stored_nbytes is not None:
        file.check(format.nbytes if plan.is_whole else None)
    put = scatter(plan, view)
    for fetch in plan.filling(index, view, _most(view)):
        if content is None:
            put(fetch, file.read(fetch.ranges, plan.largest_request))
        else:
            put(fetch, fetch.ranges.of(content))


def _most(view: Array) -> int:
    """Bytes of a file that are read at once; more out of order, to fill the lines of the cache."""
    long = [stride for stride, n in zip(view.strides, view.shape, strict=True) if n > 1]
    is_in_order = long == sorted(long, reverse=True)
    return limits.LIMITS.block if is_in_order else limits.LIMITS.block_out_of_order


def index_in(file: ChunkFile, format: Format) -> ChunkIndex:
    """The index of an open file; a ShardIndexError if it is truncated or damaged."""
    if not format.index_nbytes:
        return CHUNK_INDEX
    size = file.size()
    start = format.index_start(size)
    content = np.empty(min(format.index_nbytes, size), np.uint8)
    try:
        file.read_range(content.data, start)
    except EndOfFileError as end:
        content = content[: max(end.offset - start, 0)]
    return Index(format, file.path, content, size)


def scatter(plan: Plan, view: Array) -> Callable[[Fetch, Bytes], None]:
    """Function that puts the elements of a fetch, out of its bytes, into the view of `out`."""
    format = plan.format
    numbers, dtype = format.as_numbers(view) or (None, None)

    def put(fetch: Fetch, content: Bytes) -> None:
        for slab, out, at in fetch.slabs:
            if numbers is not None:
                numbers[out] = slab.elements(content, at, dtype)
                continue
            array = slab.elements(content, at, format.stored)
            if format.layout.bool_offsets and format.has_wrong_bool(array):
                raise _bool_error(plan, array, view.shape, out)
            view[out] = format.decoded(array)

    return put


def _bool_error(
    plan: Plan, array: Array, shape: tuple[int, ...], out: tuple[Any, ...]
) -> BoolValueError:
    format, encoded = plan.format, array.ravel().view(np.uint8)
    byte = find_wrong_bool(encoded, format.layout) or 0
    number, offset = divmod(byte, format.item_size)
    among = np.unravel_index(number, array.shape)
    places = zip(among, out, shape, strict=True)
    index = [int(np.arange(n)[place].ravel()[i]) for i, place, n in places]
    axes = plan.selection.axes
    index, shape = [index[i] for i in axes], tuple([shape[i] for i in axes])
    # The byte of a chunk is that in the file, whose axes may lie in another order.
    is_chunk = shape == format.shape and format.count == 1
    of, order = ("chunk", format.order) if is_chunk else ("selection", None)
    flat = sum(i * n for i, n in zip(index, c_strides(shape, 1, order), strict=True))
    return bool_error(int(encoded[byte]), tuple(index), of, flat * format.item_size + offset)
