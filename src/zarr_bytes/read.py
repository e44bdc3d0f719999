"""The engine that reads: selections of chunks and shards, straight into the result.

A read is a plan, the index of the object, fetches, and the scattering of their elements. Local
files, requests and memory share everything but the line that fetches. A selection that is one byte
range is read without a plan, so that a small chunk costs an open, a read, a close and little else.
"""

from __future__ import annotations

import asyncio
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
from zarr.buffer import cpu

from zarr_bytes import limits
from zarr_bytes.indexing.plan import UNLIMITED, Fetch, plan_of, with_request_sizes
from zarr_bytes.indexing.selection import (
    c_strides,
    is_basic_selection,
    is_sent_by_zarr,
    selection_shape,
    view_in_stored_order,
)
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.files import EndOfFileError, open_chunk_file
from zarr_bytes.io.known_stores import is_known_as_local, may_read_inline
from zarr_bytes.io.mapping import copy_if_mapped
from zarr_bytes.io.requests import ChunkRequests, MissingChunkError
from zarr_bytes.io.tasks import (
    map_concurrently,
    map_in_threads,
    max_concurrent_requests,
    max_threads,
    objects_in_same_round,
    result_without_waiting,
)
from zarr_bytes.layout.elements import invalid_bool_error, offset_of_invalid_bool
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

UNKNOWN_COUNT: Final = 2**31
"""Number of objects of a read where zarr's own pipeline calls once for each."""


class ChunkProjection(NamedTuple):
    """One chunk of a read or a write, as zarr divides the selection of the array by chunk."""

    store_path: StorePath
    layout: ObjectLayout
    chunk_selection: Any
    out_selection: Any  # index in the array that is read into or written from
    is_complete_chunk: bool  # whether all of the chunk that is within the array is selected


async def read_batch(
    batch: Sequence[ChunkProjection],
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    index_cache: IndexCache | None = None,
    *,
    is_whole_batch: bool = True,
) -> list[bool]:
    """Read selections of chunks of one store into `out`.

    Runs on the event loop. Small reads of local files are done there; larger ones, and files that
    may have to be waited for, in threads.

    Parameters
    ----------
    batch
        At least one chunk.
    drop_axes
        The axes of a chunk selection that `out` lacks: those of integers beside arrays.
    index_cache
        That of the array; None for the codec, whose chunks have no index.
    is_whole_batch
        False where zarr's own pipeline calls once for each chunk: others may be under way.

    Returns
    -------
    list of bool
        For each chunk, whether it exists. A missing one is read as the fill value.
    """
    driver = driver_of(batch[0].store_path.store)
    target = out
    if driver.files_root and out.base is not None:  # zarr's own is no view
        paths = (f"{driver.files_root}/{projection.store_path.path}" for projection in batch)
        target = copy_if_mapped(out, paths, is_read=True)
    reader = Reader(
        target, drop_axes, driver, prototype, index_cache, is_whole_batch=is_whole_batch
    )
    if not driver.files_root:
        count = len(batch) if is_whole_batch else UNKNOWN_COUNT
        slots = max_concurrent_requests()
        objects_at_once = [objects_in_same_round(i, count, slots) for i in range(len(batch))]
        # Before any index is fetched, which may take the place of another one in the cache.
        indexes = [reader.kept_index(one.store_path, one.layout) for one in batch]
        arguments = [*zip(batch, objects_at_once, indexes, strict=True)]
        return await map_concurrently(lambda each: reader.read_object(*each), arguments)
    root = driver.files_root
    nbytes = out.nbytes
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
    if target is not out:
        out[...] = target
    counters.count(root, chunks=len(exists), opens=sum(exists))
    return exists


def read_sync(projection: ChunkProjection, out: Array, prototype: BufferPrototype) -> bool:
    """Read one chunk in the calling thread, through the `get_sync` of a store that has no files.

    Returns False if the chunk is missing, after `out` is filled with the fill value.
    """
    driver = driver_of(projection.store_path.store)
    reader = Reader(out, (), driver, prototype, is_whole_batch=False)
    if not reader.files_root:
        return result_without_waiting(reader.read_object(projection, is_sync=True))
    (is_there,) = reader.read_files([projection])
    counters.count(reader.files_root, chunks=1, opens=int(is_there))
    return is_there


class CodecRead(NamedTuple):
    """How the codec reads a selection of one chunk: into an array, from which NumPy selects."""

    projection: ChunkProjection
    out: Array  # that is read into
    selection_of_out: Any  # what is left to select of it; `...` as a rule


def prepare_codec_read(
    store_path: Any,
    layout: ObjectLayout,
    chunk_selection: Any,
    empty: Callable[..., Any] = np.empty,
) -> CodecRead:
    """Prepare a read of one chunk by the codec, where zarr calls it without an `out`.

    A selection of any form that zarr doesn't send reads the whole chunk, and is left to NumPy.
    `empty` makes the array, as `numpy.empty`.
    """
    if not isinstance(chunk_selection, tuple):
        chunk_selection = (chunk_selection,)
    selection_of_out: Any = ...
    if not is_sent_by_zarr(chunk_selection, layout.shape):
        selection_of_out = chunk_selection
        chunk_selection = (slice(None),) * len(layout.shape)
    out = empty(selection_shape(chunk_selection, layout.shape), layout.dtype)
    out_selection = tuple([slice(0, n) for n in out.shape])
    projection = ChunkProjection(
        store_path, layout, chunk_selection, out_selection, is_complete_chunk=False
    )
    return CodecRead(projection, out, selection_of_out)


def threads_for_files(root: str, count: int, *, is_small: bool) -> int:
    """Number of threads for `count` files.

    As many as cores for local files, and one if the work `is_small`. Elsewhere as many as requests,
    since threads wait there.
    """
    if is_known_as_local(root):
        return 1 if is_small else min(max_threads(), count)
    return min(max_concurrent_requests(), count)


class Reader:
    """Reads selections of the objects of one store into `out`, whose memory is the caller's.

    One for each call of zarr. Several threads may read files by it at once, each its own chunks.
    """

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
        self.out = out
        self.drop_axes = drop_axes
        self.prototype = prototype
        self._index_cache = index_cache
        self.driver = driver
        self.files_root = driver.files_root
        # Whether whole chunks may come in parts: known when the read begins, and so for all of its
        # chunks, whichever comes first.
        self.answers_ranges = is_whole_batch and not self.files_root and driver.answers_ranges()
        # Not in a thread, where a warning could not point at the line that has called zarr.
        self.cost = driver.request_cost() if self.files_root else None
        # What a kept strategy depends on, besides the layout and the selections.
        self.strategy_key = self.cost, limits.LIMITS, out.dtype, out.strides, out.flags.behaved
        # Whether a read without blocking has met more bytes, with gaps, than are for one thread.
        self.needs_threads = False

    def read_files(
        self, batch: Iterable[ChunkProjection], *, may_block: bool = True
    ) -> Iterator[bool]:
        """Read local files one after another, and yield for each whether it exists.

        Runs in a thread, or on the event loop with `may_block=False`. A BlockingIOError then means
        that the file that is next and all later ones must be read in threads: it may have to be
        waited for, or takes too long.
        """
        strategy: _ReadStrategy | None = None
        out = self.out
        root = self.files_root
        fetched_nbytes = 0
        for store_path, layout, chunk_selection, out_selection, _ in batch:
            if strategy is None or not strategy.applies_to(layout, chunk_selection, out_selection):
                strategy = self._strategy_for(layout, chunk_selection, out_selection)
            single_range = strategy.single_range
            plan = strategy.plan
            if plan is not None and not may_block:
                fetched_nbytes += plan.nbytes
                self.needs_threads = fetched_nbytes > limits.LIMITS.single_thread_nbytes
                if self.needs_threads or not plan.is_small:
                    raise BlockingIOError
            path = f"{root}/{store_path.path}"
            file = open_chunk_file(path, root, may_block=may_block)
            if file is None:
                out[out_selection] = layout.fill_value
                yield False
                continue
            with file:
                try:
                    if single_range is not None:
                        single_range.read(file, out, out_selection)
                    elif plan is not None:
                        view = self._out_view(layout, chunk_selection, out_selection)
                        read_selected(plan, file, view)
                except EndOfFileError as end:
                    if plan is None:
                        plan = self._plan(layout, chunk_selection, out_selection, self.cost)
                    raise plan.end_of_file(path, end.offset) from None
            yield True
        self._keep_strategy(strategy)

    def kept_index(self, store_path: StorePath, layout: ObjectLayout) -> Bytes | None:
        """The index of a shard out of the cache of the array; None if it must be fetched.

        None, too, for chunks, which have no index.
        """
        if self._index_cache is None or not layout.index_nbytes:
            return None
        return self._index_cache.get(store_path, layout.index_nbytes)

    async def read_object(
        self,
        projection: ChunkProjection,
        objects_at_once: int = 1,
        kept_index: Bytes | None = None,
        *,
        is_sync: bool = False,
    ) -> bool:
        """Read one chunk or shard through the store's `get`.

        Parameters
        ----------
        objects_at_once
            Number of objects that are read at the same time, which share the request slots.
        kept_index
            As `kept_index` gives it.
        is_sync
            Whether the store's `get_sync` is called instead. The coroutine waits for nothing then.

        Returns
        -------
        bool
            False if the object is missing, after `out` has the fill value in its place.
        """
        store_path, layout, chunk_selection, out_selection, _ = projection
        driver = self.driver
        cost = driver.request_cost_of(store_path.path)
        # All of a small chunk comes at once, of which NumPy selects without a plan.
        is_small = cost is None or layout.nbytes <= min(cost)
        plan: Plan | None = None
        if not (is_small and layout.assigns_directly and layout.stored_nbytes):
            plan = self._plan(layout, chunk_selection, out_selection, cost)
        requests = ChunkRequests(
            store_path, layout, plan, cost, self.prototype, driver, is_sync=is_sync
        )
        try:
            if plan is None:
                content = await requests.fetch_and_keep_whole()
                elements = np.ndarray(layout.grid.shape, layout.stored_dtype, content)
                selected = elements.transpose(layout.inverse_order)[(*chunk_selection, ...)]
                if self.drop_axes:
                    selected = selected.squeeze(self.drop_axes)
                self.out[out_selection] = selected
            else:
                view = self._out_view(layout, chunk_selection, out_selection)
                index: InnerChunkIndex = SINGLE_CHUNK_INDEX
                if layout.index_nbytes:
                    usable = None if cost is None else kept_index  # a whole shard has its own
                    index = await self._index(store_path, layout, requests, usable)
                await self._fetch_and_place(plan, requests, index, view, objects_at_once)
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
        """The index of a shard: from its `kept` bytes, or else fetched and kept in the cache.

        A ShardIndexError if it is truncated or damaged.
        """
        shard_nbytes: int | None = None  # known where the whole shard has come
        if kept is None:
            content, shard_nbytes = await requests.fetch_index(layout)
        else:
            content = kept
        index = ShardIndex(layout, requests.object_name, content, shard_nbytes)
        # Not before its check: what was damaged on its way is fetched again by the next read. And
        # not of a shard that has come whole, as it will again.
        if self._index_cache is not None and shard_nbytes is None:
            self._index_cache.keep(store_path, content)
        return index

    async def _fetch_and_place(
        self,
        plan: Plan,
        requests: ChunkRequests,
        index: InnerChunkIndex,
        view: Array,
        objects_at_once: int,
    ) -> None:
        """Fetch what the plan needs of an object, several requests at a time, into the view.

        A MissingChunkError if the object is missing.
        """
        is_chunk = not plan.layout.index_nbytes
        if is_chunk and not plan.fetches_ranges(answers_ranges=self.answers_ranges):
            await requests.fetch_and_keep_whole()
        place = element_placer(plan, view)
        max_request_nbytes = plan.max_request_nbytes

        async def fetch_and_place(sized_fetch: tuple[Fetch, int]) -> None:
            fetch, request_nbytes = sized_fetch
            async with requests.fetch_slot:
                place(fetch, await requests.fetch(fetch.ranges, request_nbytes))

        fetches = plan.fetches_filling_absent(index, view, max_request_nbytes)
        await map_concurrently(
            fetch_and_place,
            with_request_sizes(fetches, max_request_nbytes, requests.max_requests, objects_at_once),
            requests.max_requests,
        )

    def forecast(
        self, projection: ChunkProjection, index: InnerChunkIndex, objects_at_once: int = 1
    ) -> Counts:
        """Count what `read_files` or `read_object` would fetch of an object with this index.

        Nothing is read, and the fetch of the index itself is not counted.
        """
        store_path, layout, chunk_selection, out_selection, _ = projection
        cost = self.driver.request_cost_of(store_path.path)
        plan = self._plan(layout, chunk_selection, out_selection, cost)
        max_request_nbytes = plan.max_request_nbytes
        if self.files_root:
            view = self._out_view(layout, chunk_selection, out_selection)
            max_fetch_nbytes = _max_fetch_nbytes(view)
            is_whole = plan.reads_whole_chunk and layout.nbytes <= limits.LIMITS.assigned_nbytes
        else:
            max_fetch_nbytes = max_request_nbytes
            is_whole = not plan.fetches_ranges(answers_ranges=self.answers_ranges)
        range_count = 1
        nbytes = layout.nbytes
        if not is_whole:
            fetches = [
                fetch for fetch in plan.fetches(index, max_fetch_nbytes) if isinstance(fetch, Fetch)
            ]
            sized: Iterable[tuple[Fetch, int]] = zip(fetches, repeat(max_request_nbytes))
            if not self.files_root:  # a file has no slots
                sized = with_request_sizes(
                    fetches, max_request_nbytes, max_concurrent_requests(), objects_at_once
                )
            range_count = sum([fetch.ranges.number_of_requests(size) for fetch, size in sized])
            nbytes = sum([fetch.ranges.nbytes for fetch in fetches])
        if self.files_root:
            return Counts(ranges=range_count, bytes_fetched=nbytes)
        ranges = 0 if is_whole else range_count
        return Counts(requests=range_count, ranges=ranges, bytes_fetched=nbytes)

    def _strategy_for(
        self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any
    ) -> _ReadStrategy:
        """The kept strategy of the layout, if it applies, or a new one."""
        # `pop` takes the strategy and its scratch memory out of the layout, so that no other thread
        # uses them meanwhile.
        try:
            key, kept = layout.kept_strategy.pop()
        except IndexError:
            pass
        else:
            if key == self.strategy_key and kept.applies_to(layout, chunk_selection, out_selection):
                return cast("_ReadStrategy", kept)
        single_range: _SingleRangeRead | None = None
        if layout.assigns_directly and is_basic_selection(chunk_selection):
            single_range = self._single_range_read(layout, chunk_selection, out_selection)
        plan: Plan | None = None
        if single_range is None:
            plan = self._plan(layout, chunk_selection, out_selection, self.cost)
        entry_types = [*map(type, chunk_selection)]
        axes_of_arrays = [i for i, kind in enumerate(entry_types) if kind not in (int, slice)]
        if axes_of_arrays and not (
            type(out_selection) is tuple and len(out_selection) == len(chunk_selection)
        ):
            return _ReadStrategy(single_range, plan, layout, chunk_selection, [], [])
        array_out_selections = [(i, out_selection[i]) for i in axes_of_arrays]
        return _ReadStrategy(
            single_range, plan, layout, chunk_selection, entry_types, array_out_selections
        )

    def _keep_strategy(self, strategy: _ReadStrategy | None) -> None:
        """Keep a small strategy for integers and slices, for the next read of its layout."""
        if strategy is None or (strategy.plan is not None and not strategy.plan.is_small):
            return
        if strategy.entry_types and not strategy.array_out_selections:
            strategy.layout.kept_strategy.append((self.strategy_key, strategy))

    def _single_range_read(
        self, layout: ObjectLayout, chunk_selection: tuple[Any, ...], out_selection: Any
    ) -> _SingleRangeRead | None:
        """A read of integers and slices by one range; None if a plan must divide it."""
        box = layout.grid.box_of(layout.in_stored_order(chunk_selection))
        thresholds = limits.LIMITS
        if box is None or layout.index_nbytes > thresholds.assigned_nbytes:
            return None
        gap, max_request_nbytes = self.cost or (UNLIMITED, UNLIMITED)
        item_size = layout.item_size
        box_start = box.start * item_size
        box_nbytes = box.extent * item_size
        has_known_size = layout.stored_nbytes is not None
        # A chunk of which the gap reaches over the rest is read whole, which proves its size.
        is_part = not has_known_size or (gap < layout.nbytes and box_nbytes != layout.nbytes)
        nbytes_to_read = box_nbytes if is_part else layout.nbytes
        # No more than a plan would read at once.
        max_nbytes = min(
            max_request_nbytes, thresholds.block_nbytes, thresholds.transposed_block_nbytes
        )
        if nbytes_to_read > max_nbytes or box.largest_gap * item_size > gap:
            return None
        start = box_start if is_part else None
        has_no_gaps = nbytes_to_read == prod(box.shape) * item_size
        if has_no_gaps and thresholds.direct_nbytes <= nbytes_to_read <= thresholds.inline_nbytes:
            view = self._out_view(layout, chunk_selection, out_selection)
            if view.dtype == layout.stored_dtype and view.flags.carray:
                # Without the data type: not every type has a buffer that can be read into.
                raw_dtype = np.dtype(f"V{item_size}")
                return _SingleRangeRead(layout, box.chunk_number, start, None, None, raw_dtype)
        if nbytes_to_read > thresholds.assigned_nbytes:
            return None
        scratch = np.empty(nbytes_to_read, np.uint8)
        position = 0 if is_part else box_start
        strides = None if has_no_gaps else [n * item_size for n in box.strides]
        array: Array = np.ndarray(box.shape, layout.stored_dtype, scratch, position, strides)
        index = [slice(None) if type(entry) is slice else 0 for entry in chunk_selection]
        elements = array.transpose(layout.inverse_order)[(*index, ...)]
        return _SingleRangeRead(layout, box.chunk_number, start, scratch.data, elements, None)

    def _plan(
        self,
        layout: ObjectLayout,
        chunk_selection: Any,
        out_selection: Any,
        cost: RequestCost | None,
    ) -> Plan:
        return plan_of(layout, chunk_selection, cost, out_selection, self.drop_axes)

    def _out_view(self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any) -> Array:
        """The place of a chunk in `out`, with the axes in their stored order."""
        return view_in_stored_order(
            self.out, layout.order, chunk_selection, out_selection, self.drop_axes
        )


class _SingleRangeRead(NamedTuple):
    """A read by one range: a point, a row or a box, which NumPy assigns as it is stored.

    The bytes come into scratch memory and are assigned from there, or straight into `out`.
    """

    layout: ObjectLayout
    inner_chunk_number: int  # in the index; 0 for a chunk
    start: int | None  # offset in the inner chunk; None where a whole file is read
    scratch: memoryview | None  # None where the bytes are read straight into `out`
    elements: Array | None  # the selected ones, as a view of `scratch`
    raw_dtype: Any  # where there is no `scratch`: raw elements of the item size

    def read(self, file: ChunkFile, out: Array, out_selection: Any) -> None:
        """Read an open file into its place in `out`; an EndOfFileError if it is too short.

        An inner chunk that is absent from a shard is read as the fill value.
        """
        start = self.start
        if start is not None and not self.layout.index_nbytes:
            file.check_size(None)
        elif start is not None:
            inner_chunk_offset = read_index(file, self.layout).offset_of(self.inner_chunk_number)
            if inner_chunk_offset is None:
                out[out_selection] = self.layout.fill_value
                return
            start += inner_chunk_offset
        memory = self.scratch
        if memory is None:
            # Flat, in the order of the memory, which is the order of the stored axes.
            raw = out.view(self.raw_dtype)[(*out_selection, ...)]  # never a scalar
            memory = raw.ravel(order="K").data.cast("B")
        if start is None:
            file.read_whole(memory)
        else:
            file.read_range(memory, start)
        if self.elements is not None:
            out[out_selection] = self.elements


class _ReadStrategy(NamedTuple):
    """How all objects of one layout and one selection are read: by one range, or else by a plan."""

    single_range: _SingleRangeRead | None
    plan: Plan | None
    layout: ObjectLayout
    chunk_selection: Any
    entry_types: list[type]  # of the chunk selection; empty for a strategy of one chunk alone
    # Of the arrays in the chunk selection: axes and out selections, which the plan depends on.
    array_out_selections: list[tuple[int, Any]]

    def applies_to(self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any) -> bool:
        """Whether a chunk with these selections is read in the same way."""
        try:
            return (
                layout is self.layout
                and bool(chunk_selection == self.chunk_selection)
                and self.entry_types == [*map(type, chunk_selection)]  # an array of 5 equals 5
                and self.array_out_selections
                == [(i, out_selection[i]) for i, _ in self.array_out_selections]
            )
        except ValueError:  # NumPy compares longer arrays element by element
            return False


def read_selected(plan: Plan, file: ChunkFile, view: Array) -> None:
    """Read the selected elements of an open file into the view of `out`, in the stored order.

    An EndOfFileError if the file ends too early, and a ChunkSizeError if it is too long.
    """
    layout = plan.layout
    index = read_index(file, layout)
    content: Bytes | None = None
    if plan.reads_whole_chunk and layout.nbytes <= limits.LIMITS.assigned_nbytes:
        content = np.empty(layout.nbytes, np.uint8)
        file.read_whole(content.data)
    elif layout.stored_nbytes is not None:
        file.check_size(layout.nbytes if plan.reads_whole_chunk else None)
    place = element_placer(plan, view)
    for fetch in plan.fetches_filling_absent(index, view, _max_fetch_nbytes(view)):
        if content is None:
            place(fetch, file.read_ranges(fetch.ranges, plan.max_request_nbytes))
        else:
            place(fetch, fetch.ranges.extract(content))


def _max_fetch_nbytes(view: Array) -> int:
    """Most bytes of a file that are read at once into the view.

    They are more where the view is in another order than the stored elements, to fill the lines of
    the processor's cache.
    """
    strides = [stride for stride, n in zip(view.strides, view.shape, strict=True) if n > 1]
    is_in_order = strides == sorted(strides, reverse=True)
    return limits.LIMITS.block_nbytes if is_in_order else limits.LIMITS.transposed_block_nbytes


def read_index(file: ChunkFile, layout: ObjectLayout) -> InnerChunkIndex:
    """Read the index of an open file; a ShardIndexError if it is truncated or damaged.

    Nothing is read of a chunk, whose index is a constant.
    """
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
    """A function that puts the elements of a fetch into the view of `out`.

    It takes the fetch and its bytes. A BoolValueError for a bool that is neither 0 nor 1.
    """
    layout = plan.layout
    bitwise_view, bitwise_dtype = layout.bitwise_target(view) or (None, None)

    def place(fetch: Fetch, content: Bytes) -> None:
        for slab, out_selection, position in fetch.slabs:
            if bitwise_view is not None:
                bitwise_view[out_selection] = slab.elements(content, position, bitwise_dtype)
                continue
            stored = slab.elements(content, position, layout.stored_dtype)
            if layout.element_layout.bool_offsets and layout.has_invalid_bool(stored):
                raise _invalid_bool_error(plan, stored, view.shape, out_selection)
            view[out_selection] = layout.decode(stored)

    return place


def _invalid_bool_error(
    plan: Plan, stored: Array, view_shape: tuple[int, ...], out_selection: tuple[Any, ...]
) -> BoolValueError:
    """The error for the first invalid bool among the stored elements of a slab.

    It names the index of the element, and the offset of its byte: in the file, if all of a chunk is
    read, and otherwise in the selection. `out_selection` is the place of the slab in the view.
    """
    layout = plan.layout
    encoded = stored.ravel().view(np.uint8)
    invalid_byte = offset_of_invalid_bool(encoded, layout.element_layout) or 0
    element_number, offset_in_element = divmod(invalid_byte, layout.item_size)
    index_in_slab = np.unravel_index(element_number, stored.shape)
    index_in_view = [
        int(np.arange(length)[axis_out_selection].ravel()[i])
        for i, axis_out_selection, length in zip(
            index_in_slab, out_selection, view_shape, strict=True
        )
    ]
    result_axes = plan.selection.result_axes
    index = tuple([index_in_view[axis] for axis in result_axes])
    shape = tuple([view_shape[axis] for axis in result_axes])
    is_chunk = shape == layout.shape and layout.inner_chunk_count == 1
    subject = "chunk" if is_chunk else "selection"
    # The byte of a chunk is that in the file, whose axes may lie in another order.
    strides = c_strides(shape, 1, layout.order if is_chunk else None)
    position = sum(i * stride for i, stride in zip(index, strides, strict=True))
    offset = position * layout.item_size + offset_in_element
    return invalid_bool_error(int(encoded[invalid_byte]), index, subject, offset)
