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
from zarr_bytes.indexing.plan import UNLIMITED, Fetch, plan_of, with_request_sizes
from zarr_bytes.indexing.selection import (
    c_strides,
    has_form_of_zarr,
    is_basic_selection,
    selection_shape,
    view_in_stored_order,
)
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.files import EndOfFileError, open_chunk
from zarr_bytes.io.known_stores import is_local_file_system, may_read_inline
from zarr_bytes.io.mapping import copied_if_mapped
from zarr_bytes.io.requests import ChunkRequests, MissingChunkError
from zarr_bytes.io.tasks import (
    concurrent_objects,
    map_concurrently,
    map_in_threads,
    max_concurrent_requests,
    number_of_threads,
    result_without_waiting,
)
from zarr_bytes.layout.elements import find_invalid_bool, invalid_bool_error
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX, ShardIndex

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
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.settings import RequestCost

# A chunk's key in a store, its format, the selection of the chunk, the place of this selection in
# the array that is read into or written from, and whether the selection has all of the chunk that
# is within the array. A plain tuple, which is made and taken apart for each of a thousand chunks.
ChunkProjection: TypeAlias = "tuple[StorePath, ObjectLayout, Any, Any, bool]"


async def read_batch(
    batch: Sequence[ChunkProjection],
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    index_cache: IndexCache | None = None,
    *,
    is_whole_batch: bool = True,
) -> list[bool]:
    """Read selections of chunks of one store into `out`; for each, whether it exists.

    The `index_cache` is that of the array; None for chunks, which have no index. The batch `is_all`
    that is read, except for one chunk of those that zarr's pipelines read.
    """
    driver, into = driver_of(batch[0][0].store), out
    if driver.root and out.base is not None:  # zarr's own is no view
        paths = (f"{driver.root}/{store_path.path}" for store_path, *_ in batch)
        into = copied_if_mapped(out, paths, is_read=True)
    reader = Reader(into, drop_axes, driver, prototype, index_cache, is_whole_batch=is_whole_batch)
    if not driver.root:
        count, slots = len(batch) if is_whole_batch else 2**31, max_concurrent_requests()
        objects = [concurrent_objects(i, count, slots) for i in range(len(batch))]
        # Before any index is fetched, which may take the place of another one in the cache.
        indexes = [reader.kept_index(store_path, layout) for store_path, layout, *_ in batch]
        items = [*zip(batch, objects, indexes, strict=True)]
        return await map_concurrently(lambda of: reader.read_object(*of), items)
    root, nbytes = driver.root, out.nbytes
    exists: list[bool] = []
    if nbytes <= max(
        limits.LIMITS.inline_nbytes, len(batch) * limits.LIMITS.inline_chunk_nbytes
    ) and may_read_inline(root):
        try:
            for is_there in reader.read_files(batch, may_block=False):
                exists.append(is_there)
                if not len(exists) % limits.LIMITS.chunks_between_yields:
                    await asyncio.sleep(0)
        except BlockingIOError:  # a thread reads this chunk again, and all after it
            pass
    if rest := batch[len(exists) :]:
        is_small = nbytes <= limits.LIMITS.single_thread_nbytes and not reader.needs_threads
        threads = threads_for_files(root, len(rest), is_small=is_small)
        exists += await map_in_threads(reader.read_files, rest, threads)
    if into is not out:
        out[...] = into
    counters.count(root, chunks=len(exists), opens=sum(exists))
    return exists


def read_sync(projection: ChunkProjection, out: Array, prototype: BufferPrototype) -> bool:
    """`read_batch` of one chunk in the calling thread, through the `get_sync` of a store."""
    reader = Reader(out, (), driver_of(projection[0].store), prototype, is_whole_batch=False)
    if not reader.root:
        return result_without_waiting(reader.read_object(projection, is_sync=True))
    (is_there,) = reader.read_files([projection])
    counters.count(reader.root, chunks=1, opens=int(is_there))
    return is_there


def prepare_codec_read(
    store_path: Any,
    layout: ObjectLayout,
    chunk_selection: Any,
    empty: Callable[..., Any] = np.empty,
) -> tuple[ChunkProjection, Any, Any]:
    """A chunk as a pipeline reads it, what NumPy selects of it then, and the array for it."""
    chunk_selection, rest = (
        chunk_selection if isinstance(chunk_selection, tuple) else (chunk_selection,),
        ...,
    )
    if not has_form_of_zarr(chunk_selection, layout.shape):
        chunk_selection, rest = (slice(None),) * len(layout.shape), chunk_selection
    out = empty(selection_shape(chunk_selection, layout.shape), layout.dtype)
    return (
        (store_path, layout, chunk_selection, tuple([slice(0, n) for n in out.shape]), False),
        rest,
        out,
    )


def threads_for_files(root: str, count: int, *, is_small: bool) -> int:
    """Number of threads for files: as of cores, or as of requests where they may be waited for."""
    if is_local_file_system(root):
        return 1 if is_small else min(number_of_threads(), count)
    return min(max_concurrent_requests(), count)


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
        is_whole_batch: bool = True,
    ) -> None:
        self.out, self.drop_axes, self.prototype = out, drop_axes, prototype
        self._index_cache = index_cache
        self.driver, self.root = driver, driver.root
        # Whether whole chunks may come in parts: known when the read begins, and so for all of its
        # chunks, whichever comes first.
        self.answers_ranges = is_whole_batch and not self.root and driver.answers_ranges()
        # Not in a thread, where a warning could not point at the line that has called zarr.
        self.cost = driver.request_cost() if self.root else None
        # What the way of integers and slices depends on, besides these.
        self.strategy_key = self.cost, limits.LIMITS, out.dtype, out.strides, out.flags.behaved
        self.needs_threads = False  # more than one thread is for, with the gaps

    def read_files(
        self, batch: Iterable[ChunkProjection], *, may_block: bool = True
    ) -> Iterator[bool]:
        """Read local files; for each, whether it exists.

        A BlockingIOError without `may_block`, if it and all later ones must be read in a thread.
        """
        strategy: _ReadStrategy | None = None
        out, root, fetched = self.out, self.root, 0
        for store_path, layout, chunk_selection, out_selection, _ in batch:
            if strategy is None or not strategy.applies_to(layout, chunk_selection, out_selection):
                strategy = self._strategy_for(layout, chunk_selection, out_selection)
            one, plan = strategy.single_range, strategy.plan
            if plan is not None and not may_block:
                fetched += plan.nbytes
                self.needs_threads = fetched > limits.LIMITS.single_thread_nbytes
                if self.needs_threads or not plan.is_small:
                    raise BlockingIOError
            path = f"{root}/{store_path.path}"
            file = open_chunk(path, root, may_block=may_block)
            if file is None:
                out[out_selection] = layout.fill_value
                yield False
                continue
            with file:
                try:
                    if one is not None:
                        one.read(file, out, out_selection)
                    elif plan is not None:
                        read_selected(
                            plan, file, self._out_view(layout, chunk_selection, out_selection)
                        )
                except EndOfFileError as end:
                    if plan is None:
                        plan = self._plan(layout, chunk_selection, out_selection, self.cost)
                    raise plan.end_of_file(path, end.offset) from None
            yield True
        self._keep_strategy(strategy)

    def kept_index(self, store_path: StorePath, layout: ObjectLayout) -> Bytes | None:
        """The index of a shard that needs no request; None if there is none."""
        if self._index_cache is None or not layout.index_nbytes:
            return None
        return self._index_cache.get(store_path, layout.index_nbytes)

    async def read_object(
        self,
        projection: ChunkProjection,
        objects: int = 1,
        kept_index: Bytes | None = None,
        *,
        is_sync: bool = False,
    ) -> bool:
        """Read one of the `objects` of any other store that are read at once; whether it exists."""
        (store_path, layout, chunk_selection, out_selection, _), driver = projection, self.driver
        cost, plan = driver.request_cost_of(store_path.path), None
        # All of a small chunk comes at once, of which NumPy selects without a plan.
        is_small = cost is None or layout.nbytes <= min(cost)
        if not (is_small and layout.assigns_directly and layout.stored_nbytes):
            plan = self._plan(layout, chunk_selection, out_selection, cost)
        requests = ChunkRequests(
            store_path, layout, plan, cost, self.prototype, driver, is_sync=is_sync
        )
        try:
            if plan is None:
                content = await requests.fetch_whole()
                elements = np.ndarray(layout.grid.shape, layout.stored_dtype, content)
                selected = elements.transpose(layout.inverse_order)[(*chunk_selection, ...)]
                self.out[out_selection] = (
                    selected.squeeze(self.drop_axes) if self.drop_axes else selected
                )
            else:
                view, index = (
                    self._out_view(layout, chunk_selection, out_selection),
                    SINGLE_CHUNK_INDEX,
                )
                if layout.index_nbytes:
                    usable = None if cost is None else kept_index  # a whole shard has its own
                    index = await self._index(store_path, layout, requests, usable)
                await self._fetch_and_place(plan, requests, index, view, objects)
        except MissingChunkError:
            requests.check_nothing_has_come()
            self.out[out_selection] = layout.fill_value
            return False
        return True

    async def _index(
        self,
        store_path: StorePath,
        layout: ObjectLayout,
        requests: ChunkRequests,
        kept: Bytes | None,
    ) -> ShardIndex:
        """The index of a shard, out of the bytes that are kept of it, or else fetched."""
        content, size = (kept, None) if kept is not None else await requests.fetch_index(layout)
        index = ShardIndex(layout, requests.key, content, size)
        # Not before its check: what was damaged on its way is fetched again by the next read. And
        # not of a shard that has come whole, as it will again.
        if self._index_cache is not None and size is None:
            self._index_cache.keep(store_path, content)
        return index

    async def _fetch_and_place(
        self, plan: Plan, requests: ChunkRequests, index: InnerChunkIndex, view: Array, objects: int
    ) -> None:
        """Fetch an object whose index is known, by several requests at a time."""
        is_chunk = not plan.layout.index_nbytes
        if is_chunk and not plan.is_fetched_in_ranges(answers_ranges=self.answers_ranges):
            await requests.fetch_whole()
        put, max_request_nbytes = element_placer(plan, view), plan.max_request_nbytes

        async def work(projection: tuple[Fetch, int]) -> None:
            fetch, most = projection
            async with requests.memory:
                put(fetch, await requests.fetch(fetch.ranges, most))

        fetches = plan.fetches_filling_absent(index, view, max_request_nbytes)
        await map_concurrently(
            work,
            with_request_sizes(fetches, max_request_nbytes, requests.slots, objects),
            requests.slots,
        )

    def forecast(
        self, projection: ChunkProjection, index: InnerChunkIndex, objects: int = 1
    ) -> Counts:
        """What `read_files` or `read_object` would fetch of an object."""
        store_path, layout, chunk_selection, out_selection, _ = projection
        plan = self._plan(
            layout, chunk_selection, out_selection, self.driver.request_cost_of(store_path.path)
        )
        most = max_request_nbytes = plan.max_request_nbytes
        is_whole = not plan.is_fetched_in_ranges(answers_ranges=self.answers_ranges)
        if self.root:
            most = _max_fetch_nbytes(self._out_view(layout, chunk_selection, out_selection))
            is_whole = plan.reads_whole_chunk and layout.nbytes <= limits.LIMITS.assigned_nbytes
        ranges, nbytes = 1, layout.nbytes
        if not is_whole:
            fetches = [fetch for fetch in plan.fetches(index, most) if isinstance(fetch, Fetch)]
            sized: Iterable[tuple[Fetch, int]] = zip(fetches, repeat(max_request_nbytes))
            if not self.root:  # a file has no slots
                sized = with_request_sizes(
                    fetches, max_request_nbytes, max_concurrent_requests(), objects
                )
            ranges = sum([fetch.ranges.number_of_requests(size) for fetch, size in sized])
            nbytes = sum([fetch.ranges.nbytes for fetch in fetches])
        requests, ranges = (0, ranges) if self.root else (ranges, ranges * (not is_whole))
        return Counts(requests=requests, ranges=ranges, bytes_fetched=nbytes)

    def _strategy_for(
        self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any
    ) -> _ReadStrategy:
        try:  # that of the last read, with memory that no other thread has then
            key, last = layout.kept_strategy.pop()
        except IndexError:
            pass
        else:
            if key == self.strategy_key and last.applies_to(layout, chunk_selection, out_selection):
                return cast("_ReadStrategy", last)
        one = plan = None
        if layout.assigns_directly and is_basic_selection(chunk_selection):
            one = self._single_range_read(layout, chunk_selection, out_selection)
        if one is None:
            plan = self._plan(layout, chunk_selection, out_selection, self.cost)
        types = [*map(type, chunk_selection)]
        arrays = [i for i, kind in enumerate(types) if kind not in (int, slice)]
        if arrays and not (
            type(out_selection) is tuple and len(out_selection) == len(chunk_selection)
        ):
            return _ReadStrategy(one, plan, layout, chunk_selection, [], [])
        return _ReadStrategy(
            one, plan, layout, chunk_selection, types, [(i, out_selection[i]) for i in arrays]
        )

    def _keep_strategy(self, strategy: _ReadStrategy | None) -> None:
        """Keep the way of integers and slices for the next read."""
        if strategy is None or (strategy.plan is not None and not strategy.plan.is_small):
            return
        if strategy.types and not strategy.array_out_selections:
            strategy.layout.kept_strategy.append((self.strategy_key, strategy))

    def _single_range_read(
        self, layout: ObjectLayout, chunk_selection: tuple[Any, ...], out_selection: Any
    ) -> _SingleRangeRead | None:
        """The one read of a selection, before any plan; None if it takes more than one."""
        box, most = layout.grid.box_of(layout.in_stored_order(chunk_selection)), limits.LIMITS
        if box is None or layout.index_nbytes > most.assigned_nbytes:
            return None
        gap, max_request_nbytes = self.cost or (UNLIMITED, UNLIMITED)
        item_size = layout.item_size
        start, nbytes = box.start * item_size, box.extent * item_size
        is_part = layout.stored_nbytes is None or gap < layout.nbytes != nbytes
        to_read = nbytes if is_part else layout.nbytes
        # No more than a plan would read at once.
        max_request_nbytes = min(
            max_request_nbytes, most.block_nbytes, most.transposed_block_nbytes
        )
        if to_read > max_request_nbytes or box.largest_gap * item_size > gap:
            return None
        begin = start if is_part else None
        has_no_gaps = to_read == prod(box.shape) * item_size
        if has_no_gaps and most.direct_nbytes <= to_read <= most.inline_nbytes:
            view = self._out_view(layout, chunk_selection, out_selection)
            if view.dtype == layout.stored_dtype and view.flags.carray:
                # Without the data type: not every type has a buffer that can be read into.
                return _SingleRangeRead(
                    layout, box.chunk_number, begin, np.dtype(f"V{item_size}"), None
                )
        if to_read > most.assigned_nbytes:
            return None
        memory, at = np.empty(to_read, np.uint8), 0 if is_part else start
        strides = None if has_no_gaps else [n * item_size for n in box.strides]
        array: Array = np.ndarray(box.shape, layout.stored_dtype, memory, at, strides)
        index = [slice(None) if type(entry) is slice else 0 for entry in chunk_selection]
        elements = array.transpose(layout.inverse_order)[(*index, ...)]
        return _SingleRangeRead(layout, box.chunk_number, begin, memory.data, elements)

    def _plan(
        self,
        layout: ObjectLayout,
        chunk_selection: Any,
        out_selection: Any,
        cost: RequestCost | None,
    ) -> Plan:
        return plan_of(layout, chunk_selection, cost, out_selection, self.drop_axes)

    def _out_view(self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any) -> Array:
        return view_in_stored_order(
            self.out, layout.order, chunk_selection, out_selection, self.drop_axes
        )


class _SingleRangeRead(NamedTuple):
    """The short way of one range: a point, a row or a box, which NumPy assigns as stored."""

    layout: ObjectLayout
    inner_chunk_number: int  # of the inner chunk
    start: int | None  # in the inner chunk; None where a whole file is read
    memory: Any  # that is read into: a memoryview, or for `out` the type of its raw elements
    elements: Array | None  # a view of the memory; None where it is `out`

    def read(self, file: ChunkFile, out: Array, out_selection: Any) -> None:
        """Read an open file into its place in `out`."""
        start, memory = self.start, self.memory
        if start is not None and not self.layout.index_nbytes:
            file.check_size(None)
        elif start is not None:
            base = read_index(file, self.layout).offset_of(self.inner_chunk_number)
            if base is None:
                out[out_selection] = self.layout.fill_value
                return
            start += base
        if self.elements is None:
            # Flat, in the order of the memory, which is the order of the stored axes.
            raw = out.view(memory)[(*out_selection, ...)]  # never a scalar
            memory = raw.ravel(order="K").data.cast("B")
        if start is None:
            file.read_whole(memory)
        else:
            file.read_range(memory, start)
        if self.elements is not None:
            out[out_selection] = self.elements


class _ReadStrategy(NamedTuple):
    """How all objects of one format and one selection are read: by one range or by a plan."""

    single_range: _SingleRangeRead | None
    plan: Plan | None
    layout: ObjectLayout
    chunk_selection: Any
    types: list[type]  # of the selection; none where it is not compared
    array_out_selections: list[
        tuple[int, Any]
    ]  # of the arrays in it, which are in the plan, by their axes

    def applies_to(self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any) -> bool:
        """Whether an object is read in this way."""
        try:
            return (
                layout is self.layout
                and bool(chunk_selection == self.chunk_selection)
                and self.types == [*map(type, chunk_selection)]  # an array of 5 equals 5
                and self.array_out_selections
                == [(i, out_selection[i]) for i, _ in self.array_out_selections]
            )
        except ValueError:  # NumPy compares longer arrays element by element
            return False


def read_selected(plan: Plan, file: ChunkFile, view: Array) -> None:
    """Read the selected elements of an open file into the view of `out`."""
    layout, content = plan.layout, None
    index = read_index(file, layout)
    if plan.reads_whole_chunk and layout.nbytes <= limits.LIMITS.assigned_nbytes:
        content = np.empty(layout.nbytes, np.uint8)
        file.read_whole(content.data)
    elif layout.stored_nbytes is not None:
        file.check_size(layout.nbytes if plan.reads_whole_chunk else None)
    put = element_placer(plan, view)
    for fetch in plan.fetches_filling_absent(index, view, _max_fetch_nbytes(view)):
        if content is None:
            put(fetch, file.read_ranges(fetch.ranges, plan.max_request_nbytes))
        else:
            put(fetch, fetch.ranges.extract(content))


def _max_fetch_nbytes(view: Array) -> int:
    """Bytes of a file that are read at once; more out of order, to fill the lines of the cache."""
    long = [stride for stride, n in zip(view.strides, view.shape, strict=True) if n > 1]
    is_in_order = long == sorted(long, reverse=True)
    return limits.LIMITS.block_nbytes if is_in_order else limits.LIMITS.transposed_block_nbytes


def read_index(file: ChunkFile, layout: ObjectLayout) -> InnerChunkIndex:
    """The index of an open file; a ShardIndexError if it is truncated or damaged."""
    if not layout.index_nbytes:
        return SINGLE_CHUNK_INDEX
    size = file.size()
    start = layout.index_offset(size)
    content = np.empty(min(layout.index_nbytes, size), np.uint8)
    try:
        file.read_range(content.data, start)
    except EndOfFileError as end:
        content = content[: max(end.offset - start, 0)]
    return ShardIndex(layout, file.path, content, size)


def element_placer(plan: Plan, view: Array) -> Callable[[Fetch, Bytes], None]:
    """Function that puts the elements of a fetch, out of its bytes, into the view of `out`."""
    layout = plan.layout
    numbers, dtype = layout.bitwise_target(view) or (None, None)

    def put(fetch: Fetch, content: Bytes) -> None:
        for slab, out, at in fetch.slabs:
            if numbers is not None:
                numbers[out] = slab.elements(content, at, dtype)
                continue
            array = slab.elements(content, at, layout.stored_dtype)
            if layout.element_layout.bool_offsets and layout.has_invalid_bool(array):
                raise _invalid_bool_error(plan, array, view.shape, out)
            view[out] = layout.decode(array)

    return put


def _invalid_bool_error(
    plan: Plan, array: Array, shape: tuple[int, ...], out: tuple[Any, ...]
) -> BoolValueError:
    layout, encoded = plan.layout, array.ravel().view(np.uint8)
    byte = find_invalid_bool(encoded, layout.element_layout) or 0
    number, offset = divmod(byte, layout.item_size)
    among = np.unravel_index(number, array.shape)
    places = zip(among, out, shape, strict=True)
    index = [int(np.arange(n)[index_along_axis].ravel()[i]) for i, index_along_axis, n in places]
    axes = plan.selection.result_axes
    index, shape = [index[i] for i in axes], tuple([shape[i] for i in axes])
    # The byte of a chunk is that in the file, whose axes may lie in another order.
    is_chunk = shape == layout.shape and layout.inner_chunk_count == 1
    of, order = ("chunk", layout.order) if is_chunk else ("selection", None)
    flat = sum(i * n for i, n in zip(index, c_strides(shape, 1, order), strict=True))
    return invalid_bool_error(
        int(encoded[byte]), tuple(index), of, flat * layout.item_size + offset
    )
