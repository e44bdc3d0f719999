"""The engine that reads: selections of chunks and shards, straight into the result.

Each object is read in four steps, by `Reader.read_object_or_fill`, or from a file by
`Reader.read_files_or_fill`:

1. plan: find the bytes of the selected elements, by `PlanCache.plan_of`;
2. locate: find the inner chunks, by the index of the object, which is a constant for a chunk;
3. fetch: read the bytes from a file, request them from a store, or only count them;
4. place: assign the elements in the bytes to their places in the result.

Two shortcuts don't need a plan. A small chunk in a store is fetched whole by one request, and NumPy
selects from it. In a file, a selection of one byte range is read by `_SingleRangeRead`, so a small
chunk costs an open, a read, a close and little else.
"""

from __future__ import annotations

import asyncio
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from zarr_bytes.indexing.plan import UNLIMITED, Fetch
from zarr_bytes.indexing.selection import (
    c_strides,
    is_basic_selection,
    is_sent_by_zarr,
    selection_shape,
    view_in_stored_order,
)
from zarr_bytes.io import counters
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.files import (
    EndOfFileError,
    open_chunk_file_if_exists,
    open_chunk_file_nowait_if_exists,
)
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.mapping import copy_if_maybe_mapped
from zarr_bytes.io.requests import (
    MissingChunkError,
    StoreTransport,
    shared_slots_or_new_if_in_request,
)
from zarr_bytes.io.tasks import (
    RequestSlots,
    count_objects_in_same_round,
    map_concurrently,
    map_in_threads,
    max_codec_pipeline_workers,
    max_concurrent_large_requests,
    max_objects_at_once,
    request_limits,
    run_coroutine_that_never_waits,
)
from zarr_bytes.layout.elements import invalid_bool_error, offset_of_first_invalid_bool
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX
from zarr_bytes.settings import request_cost_or_none_if_partial_reads_are_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr.abc.buffer import BufferPrototype
    from zarr.storage import StorePath

    from zarr_bytes.errors import BoolValueError
    from zarr_bytes.indexing.plan import AbsentInnerChunk, Plan
    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.io.index_cache import IndexCache
    from zarr_bytes.io.transports import Transport
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import ObjectLayout
    from zarr_bytes.settings import RequestCost

UNKNOWN_COUNT: Final = 2**31
"""Number of objects of a read if zarr's own pipeline calls once for each object."""


ChunkExists: TypeAlias = bool
"""Whether the store has the chunk. A missing chunk is read, too: as the fill value."""


class ChunkProjection(NamedTuple):
    """One chunk of a read or a write, as zarr divides the selection of the array by chunk."""

    store_path: StorePath
    layout: ObjectLayout
    chunk_selection: Any
    out_selection: Any  # index in the array that is read into or written from
    is_complete_chunk: bool  # whether all elements of the chunk within the array are selected


async def read_batch(
    batch: Sequence[ChunkProjection],
    driver: Driver,
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    plans: PlanCache,
    index_cache: IndexCache | None = None,
    *,
    is_whole_batch: bool = True,
) -> list[ChunkExists]:
    """Read selections of chunks of one store into `out`.

    Runs on the event loop. Small reads of local files run there; larger reads, and reads that may
    block, run in threads.

    Parameters
    ----------
    batch
        At least one chunk.
    driver
        Driver of the store.
    drop_axes
        The axes of a chunk selection that `out` lacks: the axes of integers beside arrays.
    prototype
        The class of the buffers that a store other than a folder returns.
    plans
        The last plans of the pipeline or the codec.
    index_cache
        Index cache of the array; None for the codec, since its chunks have no index.
    is_whole_batch
        False if zarr's own pipeline calls once for each chunk: other calls may run concurrently.

    Returns
    -------
    list of ChunkExists
        For each chunk, whether it exists. A missing chunk is read as the fill value.
    """
    target = out
    if driver.files_root and out.base is not None:  # zarr's own `out` isn't a view
        paths = (f"{driver.files_root}/{projection.store_path.path}" for projection in batch)
        target = copy_if_maybe_mapped(out, paths, array_is_out=True)
    reader = Reader(target, drop_axes, driver, plans)
    if not driver.files_root:
        min_large_nbytes = batch[0].layout.limits.min_piece_nbytes
        objects_at_once = max_objects_at_once(
            out.nbytes, len(batch), min_large_nbytes, is_remote=driver.is_remote
        )
        transports = _store_transports(
            batch, driver, prototype, index_cache, objects_at_once, is_whole_batch=is_whole_batch
        )
        pairs = zip(batch, transports, strict=True)
        return await map_concurrently(
            lambda pair: reader.read_object_or_fill(*pair), pairs, objects_at_once
        )
    root = driver.files_root
    nbytes = out.nbytes
    limits = batch[0].layout.limits
    exists: list[ChunkExists] = []
    if nbytes <= max(
        limits.inline_nbytes, len(batch) * limits.inline_average_chunk_nbytes
    ) and known_stores.may_read_inline(root):
        try:
            for is_there in reader.read_files_or_fill(batch, may_block=False):
                exists.append(is_there)
                if not len(exists) % limits.chunks_between_yields:
                    await asyncio.sleep(0)
        except BlockingIOError:  # a thread reads this chunk again, and all later chunks
            pass
    if rest := batch[len(exists) :]:
        is_small_in_total = nbytes <= limits.single_thread_nbytes and not reader.has_many_bytes
        threads = thread_count_for_files(root, len(rest), is_small_in_total=is_small_in_total)
        exists += await map_in_threads(reader.read_files_or_fill, rest, threads)
    if target is not out:
        out[...] = target
    if counters.active_counters:
        counters.count(root, chunks=len(exists), opens=sum(exists))
    return exists


async def read_remaining_chunks(
    already_read: dict[int, ChunkExists],
    batch: Sequence[ChunkProjection],
    driver: Driver,
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    plans: PlanCache,
    index_cache: IndexCache,
) -> list[ChunkExists]:
    """Read the chunks of a batch that have not been read, like `read_batch`.

    `already_read` has the others, by their numbers in the batch. The result is for all chunks of
    the batch.
    """
    remaining = [number for number in range(len(batch)) if number not in already_read]
    found: list[ChunkExists] = []
    if remaining:
        some = [batch[number] for number in remaining]
        found = await read_batch(some, driver, out, drop_axes, prototype, plans, index_cache)
    all_exist = already_read | dict(zip(remaining, found, strict=True))
    return [all_exist[number] for number in range(len(batch))]


def _store_transports(
    batch: Sequence[ChunkProjection],
    driver: Driver,
    prototype: BufferPrototype,
    index_cache: IndexCache | None,
    objects_at_once: int,
    *,
    is_whole_batch: bool,
) -> Iterator[StoreTransport]:
    """Transports for all objects of a read from one store, each made when it is needed.

    `objects_at_once` is the largest number of objects that are read at the same time. The other
    parameters are as in `read_batch`.
    """
    count = len(batch) if is_whole_batch else UNKNOWN_COUNT
    # Decided once for all chunks, so that the order of the chunks doesn't matter.
    may_divide_whole_chunks = is_whole_batch and driver.may_divide_whole_chunks()
    are_shards = bool(batch[0].layout.index_nbytes)
    limits = request_limits(
        shards_at_once=min(objects_at_once, len(batch)) if are_shards else None,
        is_remote=driver.is_remote,
    )
    slots: RequestSlots | None = None
    if not driver.is_memory:
        slots = (
            RequestSlots(limits) if is_whole_batch else shared_slots_or_new_if_in_request(limits)
        )
    # Looked up before any index is fetched, since a new index may replace a cached one.
    kept_indexes = [kept_index_of(index_cache, one.store_path, one.layout) for one in batch]
    return (
        StoreTransport(
            projection.store_path,
            projection.layout,
            driver,
            prototype,
            index_cache=index_cache,
            kept_index=kept_index,
            objects_at_once=count_objects_in_same_round(i, count, objects_at_once),
            slots=slots,
            may_divide_whole_chunks=may_divide_whole_chunks,
        )
        for i, (projection, kept_index) in enumerate(zip(batch, kept_indexes, strict=True))
    )


def kept_index_of(
    index_cache: IndexCache | None, store_path: StorePath, layout: ObjectLayout
) -> Bytes | None:
    """The index of a shard from the cache of the array; None if it must be fetched.

    Also None for chunks, which have no index, and if there is no cache.
    """
    if index_cache is None or not layout.index_nbytes:
        return None
    return index_cache.get(store_path, layout.index_nbytes)


def read_or_fill_sync(
    projection: ChunkProjection, out: Array, prototype: BufferPrototype, plans: PlanCache
) -> ChunkExists:
    """Read one chunk in the calling thread: from a file, or by the `get_sync` of another store.

    Returns False if the chunk is missing; `out` has then been filled with the fill value.
    """
    store_path = projection.store_path
    driver = driver_of(store_path.store, store_path.path)
    reader = Reader(out, (), driver, plans)
    if not driver.files_root:
        transport = StoreTransport(store_path, projection.layout, driver, prototype, is_sync=True)
        return run_coroutine_that_never_waits(reader.read_object_or_fill(projection, transport))
    (is_there,) = reader.read_files_or_fill([projection])
    counters.count(driver.files_root, chunks=1, opens=int(is_there))
    return is_there


class CodecRead(NamedTuple):
    """A read of one chunk by the codec, into an array from which NumPy then selects."""

    projection: ChunkProjection
    out: Array  # the array that is read into
    selection_of_out: Any  # NumPy index to apply to `out` after the read; usually `...`


def prepare_codec_read(
    store_path: Any,
    layout: ObjectLayout,
    chunk_selection: Any,
    empty: Callable[..., Any] = np.empty,
) -> CodecRead:
    """Prepare a read of one chunk by the codec, if zarr calls the codec without an `out`.

    If the selection doesn't have a form that zarr sends, the whole chunk is read, and NumPy selects
    from it. `empty` makes the array, like `numpy.empty`.
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


def thread_count_for_files(root: str, count: int, *, is_small_in_total: bool) -> int:
    """Number of threads for `count` files below the root of a store.

    If the files may be read inline, at most the number of codec workers, or one if the work
    `is_small_in_total`. Otherwise the threads mostly wait, for a network or for a disk, so there
    are at most as many as concurrent requests.
    """
    if known_stores.may_read_inline(root):
        return 1 if is_small_in_total else min(max_codec_pipeline_workers(), count)
    return min(max_concurrent_large_requests(), count)


class Reader:
    """Reads selections of the objects of one store into `out`, in memory that the caller owns.

    There is one reader for each call of zarr. Several threads may read files with it at once, each
    thread its own chunks.

    Parameters
    ----------
    out, drop_axes, plans
        As in `read_batch`.
    driver
        Driver of the store.
    places_elements
        False if the transports only count: `out` is then neither read nor written, and may stand
        for an array of any size.
    """

    def __init__(
        self,
        out: Array,
        drop_axes: tuple[int, ...],
        driver: Driver,
        plans: PlanCache,
        *,
        places_elements: bool = True,
    ) -> None:
        self._out = out
        self._drop_axes = drop_axes
        self._plans = plans
        self._places_elements = places_elements
        self._files_root = driver.files_root
        # Not looked up in a thread, where a warning couldn't point at the line that called zarr.
        opens_files = bool(driver.files_root) or driver.references is not None
        self._cost_of_files = (
            request_cost_or_none_if_partial_reads_are_off("local") if opens_files else None
        )
        # Everything that a prepared read depends on, besides the layout and the selections.
        self._key_of_prepared_reads = (
            self._cost_of_files,
            out.dtype,
            out.strides,
            out.flags.behaved,
        )
        # Whether a read without blocking has too many bytes for one thread, gaps included.
        self.has_many_bytes = False

    async def read_object_or_fill(
        self, projection: ChunkProjection, transport: Transport
    ) -> ChunkExists:
        """Read one chunk or shard: plan, locate, fetch, place.

        Returns False if the object is missing; its place in `out` then has the fill value.
        """
        _, layout, chunk_selection, out_selection, _ = projection
        try:
            if not transport.needs_plan and _fetches_whole_chunk_without_plan(
                layout, transport.cost
            ):
                content = await transport.fetch_whole()
                if content is not None:
                    self._place_from_whole_chunk(layout, content, chunk_selection, out_selection)
                return True
            plan = self._plan_of(layout, chunk_selection, out_selection, transport.cost)
            index = await transport.locate(plan)
            view = self._out_view_in_stored_order(layout, chunk_selection, out_selection)
            max_nbytes = transport.max_fetch_nbytes(plan, view)
            # `explain` forecasts reads of files, too, which group ranges.
            fetches = self._plans.fetches_of(
                plan, index, max_nbytes, groups_ranges=transport.needs_plan
            )
            await transport.fetch(
                plan,
                self._fill_absent_and_yield_present(fetches, view, layout),
                element_placer(plan, view),
            )
        except MissingChunkError:
            cast("StoreTransport", transport).check_nothing_has_come()
            self._out[out_selection] = layout.fill_value
            return False
        return True

    def _fill_absent_and_yield_present(
        self, fetches: Iterable[Fetch | AbsentInnerChunk], view: Array, layout: ObjectLayout
    ) -> Iterator[Fetch]:
        """Yield the fetches; absent inner chunks are filled in the view while iterating."""
        for fetch in fetches:
            if isinstance(fetch, Fetch):
                yield fetch
            elif self._places_elements:
                view[fetch.out_selection] = layout.absent_inner_chunk_value

    def _place_from_whole_chunk(
        self, layout: ObjectLayout, chunk_bytes: Bytes, chunk_selection: Any, out_selection: Any
    ) -> None:
        """Place the selected elements of a whole chunk, from which NumPy selects.

        A BoolValueError for a selected bool that is neither 0 nor 1.
        """
        elements = np.ndarray(layout.grid.shape, layout.stored_dtype, chunk_bytes)
        selected = elements.transpose(layout.inverse_order)[(*chunk_selection, ...)]
        if layout.element_layout.bool_offsets:
            selected = _copy_if_one_byte_items_are_strided(selected)
            if layout.has_invalid_bool(selected):
                # This raises an error, which says where the bool is.
                self._place_from_whole_chunk_by_plan(
                    layout, chunk_bytes, chunk_selection, out_selection
                )
        if self._drop_axes:
            selected = selected.squeeze(self._drop_axes)
        self._out[out_selection] = selected

    def _place_from_whole_chunk_by_plan(
        self, layout: ObjectLayout, chunk_bytes: Bytes, chunk_selection: Any, out_selection: Any
    ) -> None:
        """Like `_place_from_whole_chunk`, with a plan."""
        plan = self._plan_of(layout, chunk_selection, out_selection, None)
        view = self._out_view_in_stored_order(layout, chunk_selection, out_selection)
        place = element_placer(plan, view)
        fetches = plan.fetches(SINGLE_CHUNK_INDEX, plan.block_nbytes_limit_for(view))
        for fetch in self._fill_absent_and_yield_present(fetches, view, layout):
            place(fetch, fetch.ranges.extract(chunk_bytes))

    def read_files_or_fill(
        self, batch: Iterable[ChunkProjection], *, may_block: bool = True
    ) -> Iterator[ChunkExists]:
        """Read local files one after another, and yield whether each file exists.

        Runs in a thread, or on the event loop with `may_block=False`. A BlockingIOError then means
        that the next file and all later files must be read in threads, since the next one may
        block, or takes too long.
        """
        prepared: _PreparedRead | None = None
        out = self._out
        root = self._files_root
        open_file = open_chunk_file_if_exists if may_block else open_chunk_file_nowait_if_exists
        fetched_nbytes = 0
        for projection in batch:
            store_path, layout, chunk_selection, out_selection, _ = projection
            if prepared is None or not prepared.reads_alike(layout, chunk_selection, out_selection):
                prepared = self._take_or_make_prepared_read(layout, chunk_selection, out_selection)
            plan = prepared.plan
            if plan is not None and not may_block:
                fetched_nbytes += plan.nbytes
                self.has_many_bytes = fetched_nbytes > layout.limits.single_thread_nbytes
                if self.has_many_bytes or not plan.may_be_inline:
                    raise BlockingIOError
            path = f"{root}/{store_path.path}"
            file = open_file(path, root)
            if file is None:
                out[out_selection] = layout.fill_value
                yield False
                continue
            with file:
                self._read_file(prepared, projection, file)
            yield True
        if prepared is not None and prepared.may_be_kept:
            self._plans.keep_prepared_read(self._key_of_prepared_reads, prepared)

    def read_open_files(
        self, projections_and_files: Iterable[tuple[ChunkProjection, ChunkFile]]
    ) -> Iterator[ChunkExists]:
        """Read open files, and parts of open files, one after another; yield True for each.

        Runs in a thread. The files are not closed.
        """
        prepared: _PreparedRead | None = None
        for projection, file in projections_and_files:
            _, layout, chunk_selection, out_selection, _ = projection
            if prepared is None or not prepared.reads_alike(layout, chunk_selection, out_selection):
                prepared = self._take_or_make_prepared_read(layout, chunk_selection, out_selection)
            self._read_file(prepared, projection, file)
            yield True

    def plan_of(
        self, projection: ChunkProjection, cost_or_none_if_read_whole: RequestCost | None
    ) -> Plan:
        """The plan for a chunk that isn't read from an open file."""
        _, layout, chunk_selection, out_selection, _ = projection
        return self._plan_of(layout, chunk_selection, out_selection, cost_or_none_if_read_whole)

    def element_placer_of(
        self, projection: ChunkProjection, plan: Plan
    ) -> Callable[[Fetch, Bytes], None]:
        """A function that assigns the elements of a fetch to their places: an `element_placer`."""
        _, layout, chunk_selection, out_selection, _ = projection
        return element_placer(
            plan, self._out_view_in_stored_order(layout, chunk_selection, out_selection)
        )

    def _read_file(
        self, prepared: _PreparedRead, projection: ChunkProjection, file: ChunkFile
    ) -> None:
        """Read an open file with a prepared read, in this thread.

        A ChunkSizeError if the file is too short.
        """
        _, layout, chunk_selection, out_selection, _ = projection
        plan = prepared.plan
        try:
            if prepared.single_range is not None:
                prepared.single_range.read(file, self._out, out_selection)
            elif plan is not None:
                self._read_file_by_plan(plan, projection, file)
        except EndOfFileError as end:
            if plan is None:  # only for the message
                cost = self._cost_of_files
                plan = self._plan_of(layout, chunk_selection, out_selection, cost)
            raise plan.end_of_file_error(file.path, end.offset) from None

    def _read_file_by_plan(self, plan: Plan, projection: ChunkProjection, file: ChunkFile) -> None:
        """Locate, fetch and place elements of an open file; fetches take turns in reused memory.

        A small chunk is read at once. Otherwise the type of a chunk's file is checked first, and
        also its size if the chunk is read whole.
        """
        _, layout, chunk_selection, out_selection, _ = projection
        whole_chunk: Bytes | None = None
        if plan.is_read_at_once:
            whole_chunk = np.empty(layout.nbytes, np.uint8)
            file.read_whole(whole_chunk.data)
        elif plan.reads_whole_chunk:
            file.check_size(layout.nbytes)
        elif not layout.index_nbytes:
            file.size_of_regular_file()  # a ChunkFileError for anything else
        index = file.read_index(layout)
        view = self._out_view_in_stored_order(layout, chunk_selection, out_selection)
        place = element_placer(plan, view)
        fetches = self._plans.fetches_of(
            plan, index, plan.block_nbytes_limit_for(view), groups_ranges=True
        )
        for fetch in self._fill_absent_and_yield_present(fetches, view, layout):
            if whole_chunk is not None:
                content = fetch.ranges.extract(whole_chunk)
            else:
                content = file.read_ranges_into_reused_memory(
                    fetch.ranges, plan.max_request_nbytes, layout.limits.short_range_nbytes
                )
            place(fetch, content)

    def _take_or_make_prepared_read(
        self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any
    ) -> _PreparedRead:
        """A kept prepared read of files, if it fits, or a new one."""
        kept = self._plans.take_prepared_read_if_kept(
            self._key_of_prepared_reads, layout, chunk_selection, out_selection
        )
        if kept is not None:
            return cast("_PreparedRead", kept)
        single_range: _SingleRangeRead | None = None
        if layout.assigns_directly and is_basic_selection(chunk_selection):
            single_range = self._single_range_read(layout, chunk_selection, out_selection)
        plan: Plan | None = None
        if single_range is None:
            plan = self._plan_of(layout, chunk_selection, out_selection, self._cost_of_files)
        entry_types = [*map(type, chunk_selection)]
        axes_of_arrays = [i for i, kind in enumerate(entry_types) if kind not in (int, slice)]
        if axes_of_arrays and not (
            type(out_selection) is tuple and len(out_selection) == len(chunk_selection)
        ):
            return _PreparedRead(
                single_range, plan, layout, chunk_selection, [], [], may_be_kept=False
            )
        return _PreparedRead(
            single_range,
            plan,
            layout,
            chunk_selection,
            entry_types,
            [(i, out_selection[i]) for i in axes_of_arrays],
            may_be_kept=not axes_of_arrays and (plan is None or plan.may_be_inline),
        )

    def _single_range_read(
        self, layout: ObjectLayout, chunk_selection: tuple[Any, ...], out_selection: Any
    ) -> _SingleRangeRead | None:
        """A read of integers and slices with one range; None if it needs a plan."""
        box = layout.grid.try_box_in_one_chunk(layout.in_stored_order(chunk_selection))
        limits = layout.limits
        if box is None or layout.index_nbytes > limits.assigned_nbytes:
            return None
        gap, max_request_nbytes = self._cost_of_files or (UNLIMITED, UNLIMITED)
        item_size = layout.item_size
        box_start = box.start * item_size
        box_nbytes = box.extent * item_size
        has_known_size = layout.stored_nbytes is not None
        # A chunk that isn't larger than the gap is read whole, which proves its size.
        reads_part = not has_known_size or (gap < layout.nbytes and box_nbytes != layout.nbytes)
        nbytes_to_read = box_nbytes if reads_part else layout.nbytes
        # No more than a plan would read at once.
        max_nbytes = min(max_request_nbytes, limits.block_nbytes, limits.transposed_block_nbytes)
        if nbytes_to_read > max_nbytes or box.largest_gap * item_size > gap:
            return None
        start = box_start if reads_part else None
        has_no_gaps = nbytes_to_read == prod(box.shape) * item_size
        if has_no_gaps and limits.direct_nbytes <= nbytes_to_read <= limits.inline_nbytes:
            view = self._out_view_in_stored_order(layout, chunk_selection, out_selection)
            if view.dtype == layout.stored_dtype and view.flags.carray:
                # Raw elements, since not every data type has a buffer that can be read into.
                raw_dtype = np.dtype(f"V{item_size}")
                return _SingleRangeRead(layout, box.chunk_number, start, None, None, raw_dtype)
        if nbytes_to_read > limits.assigned_nbytes:
            return None
        scratch = np.empty(nbytes_to_read, np.uint8)
        position = 0 if reads_part else box_start
        strides = None if has_no_gaps else [n * item_size for n in box.strides]
        array: Array = np.ndarray(box.shape, layout.stored_dtype, scratch, position, strides)
        index = [slice(None) if type(entry) is slice else 0 for entry in chunk_selection]
        elements = array.transpose(layout.inverse_order)[(*index, ...)]
        return _SingleRangeRead(layout, box.chunk_number, start, scratch.data, elements, None)

    def _plan_of(
        self,
        layout: ObjectLayout,
        chunk_selection: Any,
        out_selection: Any,
        cost_or_none_if_read_whole: RequestCost | None,
    ) -> Plan:
        return self._plans.plan_of(
            layout, chunk_selection, cost_or_none_if_read_whole, out_selection, self._drop_axes
        )

    def _out_view_in_stored_order(
        self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any
    ) -> Array:
        """The place of a chunk in `out`, with the axes in their stored order."""
        return view_in_stored_order(
            self._out, layout.order, chunk_selection, out_selection, self._drop_axes
        )


def _fetches_whole_chunk_without_plan(
    layout: ObjectLayout, cost_or_none_if_read_whole: RequestCost | None
) -> bool:
    """Whether one request fetches the whole chunk, and NumPy selects from it without a plan."""
    is_cheaper_whole = cost_or_none_if_read_whole is None or layout.nbytes <= min(
        cost_or_none_if_read_whole
    )
    # A plan checks and assigns the bools of a large chunk in blocks that fit the processor's cache.
    assigns_at_once = layout.assigns_directly or (
        layout.assigns_after_bool_check and layout.nbytes <= layout.limits.block_nbytes
    )
    return is_cheaper_whole and assigns_at_once and bool(layout.stored_nbytes)


class _SingleRangeRead(NamedTuple):
    """A read with one range: a point, a row or a box that NumPy assigns without decoding.

    The bytes are read into scratch memory and assigned from there, or read straight into `out`.
    """

    layout: ObjectLayout
    inner_chunk_number: int  # in the index; 0 for a chunk
    start: int | None  # offset in the inner chunk; None if the whole file is read
    scratch: memoryview | None  # None if the bytes are read straight into `out`
    elements: Array | None  # the selected elements, as a view of `scratch`
    raw_dtype: Any  # if there is no `scratch`: raw elements of the item size

    def read(self, file: ChunkFile, out: Array, out_selection: Any) -> None:
        """Read an open file into its place in `out`; an EndOfFileError if the file is too short.

        If a shard lacks the inner chunk, its elements get the layout's value for absent ones.
        """
        start = self.start
        if start is not None and not self.layout.index_nbytes:
            file.size_of_regular_file()  # a ChunkFileError for anything else
        elif start is not None:
            inner_chunk_offset = file.read_index(self.layout).offset_of(self.inner_chunk_number)
            if inner_chunk_offset is None:
                out[out_selection] = self.layout.absent_inner_chunk_value
                return
            start += inner_chunk_offset
        memory = self.scratch
        if memory is None:
            # Flat, in memory order, which is the order of the stored axes.
            raw = out.view(self.raw_dtype)[(*out_selection, ...)]  # never a scalar
            memory = raw.ravel(order="K").data.cast("B")
        if start is None:
            file.read_whole(memory)
        else:
            file.read_range(memory, start)
        if self.elements is not None:
            out[out_selection] = self.elements


class _PreparedRead(NamedTuple):
    """A prepared read of files with one layout and one selection: with one range, or a plan."""

    single_range: _SingleRangeRead | None
    plan: Plan | None
    layout: ObjectLayout
    chunk_selection: Any
    entry_types: list[type]  # of the chunk selection; empty if this read fits only one chunk
    # The axes of arrays in the chunk selection, and their out selections: the plan depends on them.
    array_out_selections: list[tuple[int, Any]]
    may_be_kept: bool  # for the next read: it is small, and has only integers and slices

    def reads_alike(self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any) -> bool:
        """Whether this prepared read fits a chunk with these selections."""
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


def element_placer(plan: Plan, view: Array) -> Callable[[Fetch, Bytes], None]:
    """A function that assigns the elements of a fetch to their places in the view of `out`.

    The function takes the fetch and its bytes. It raises a BoolValueError for a bool that is
    neither 0 nor 1.
    """
    layout = plan.layout
    raw_view, stored_raw_dtype = layout.copy_or_swap_target_or_none(view) or (None, None)

    def place(fetch: Fetch, content: Bytes) -> None:
        for slab, out_selection, position in fetch.slabs:
            if raw_view is not None:
                raw_view[out_selection] = slab.selected_elements(
                    content, position, stored_raw_dtype
                )
                continue
            stored = slab.selected_elements(content, position, layout.stored_dtype)
            if layout.element_layout.bool_offsets:
                stored = _copy_if_one_byte_items_are_strided(stored)
                if layout.has_invalid_bool(stored):
                    raise _invalid_bool_error(plan, stored, view.shape, out_selection)
            view[out_selection] = layout.decode_without_bool_check(stored)

    return place


class ArrivingFetch:
    """The bytes of a fetch, which arrive in pieces and are placed once all have arrived."""

    __slots__ = ("content", "fetch", "missing_nbytes", "place")

    def __init__(self, fetch: Fetch, place: Callable[[Fetch, Bytes], None]) -> None:
        self.fetch = fetch
        self.place = place
        self.missing_nbytes = fetch.ranges.nbytes
        self.content: Bytes | None = None

    def add(self, position: int, piece: Bytes) -> None:
        """Add a piece; memory for all pieces is allocated for the first, and freed after the last.

        If the piece is the whole fetch, its memory is used.
        """
        if piece.size == self.fetch.ranges.nbytes:
            self.content = piece
        else:
            if self.content is None:
                self.content = np.empty(self.fetch.ranges.nbytes, np.uint8)
            self.content[position : position + piece.size] = piece
        self.missing_nbytes -= piece.size
        if not self.missing_nbytes:
            self.place(self.fetch, self.content)
            self.content = None


def _copy_if_one_byte_items_are_strided(stored: Array) -> Array:
    """Stored elements to be checked and then assigned; a copy if they are bytes with gaps.

    NumPy takes longer to compare and assign bytes with gaps than to copy them.
    """
    has_gaps = stored.itemsize == 1 and not stored.flags.forc
    return stored.copy(order="K") if has_gaps else stored


def _invalid_bool_error(
    plan: Plan, stored: Array, view_shape: tuple[int, ...], out_selection: tuple[Any, ...]
) -> BoolValueError:
    """The error for the first invalid bool among the stored elements of a slab.

    The error names the index of the element, and the offset of its byte: in the file if the whole
    chunk is read, and otherwise in the selection. `out_selection` is the slab's place in the view.
    """
    layout = plan.layout
    encoded = stored.ravel().view(np.uint8)
    invalid_byte = offset_of_first_invalid_bool(encoded, layout.element_layout) or 0
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
    # For a chunk, this is the offset in the file, where the axes may have another order.
    strides = c_strides(shape, 1, layout.order if is_chunk else None)
    position = sum(i * stride for i, stride in zip(index, strides, strict=True))
    offset = position * layout.item_size + offset_in_element
    return invalid_bool_error(int(encoded[invalid_byte]), index, subject, offset)
