"""Requests for the bytes of one object by the `get` of its store, in ranges or whole.

The first request for a byte range shows whether a store answers ranges. `RangeAnswers` is the state
of this check for one object:

1. UNPROVEN: unless the store is known to answer ranges, the first range is requested alone, and the
   others wait for its answer (ASKED). If the answer has the size of the range, the store answers
   ranges: its host is recorded in `known_stores`, the other ranges follow (RANGES), and later
   objects don't wait as long as the record is kept.
2. If the whole object comes instead of a range (HTTP status 200 instead of 206), the object is
   kept, and all ranges are cut out of it (WHOLE). The store is recorded as one that ignores ranges,
   with a warning the first time. After ten minutes, a range is requested again.
3. If a range is refused (the store has no ranges, or a server that keeps the object compressed
   answers with status 416), one task requests the whole object, which is kept (WHOLE).
4. If a range has any other size, for example because the object is truncated, the whole object is
   requested once, since its server may keep it compressed. An object of the right size is kept
   (WHOLE); otherwise a ChunkSizeError is raised for the range (WRONG_SIZE).
5. If the object is missing, a MissingChunkError is raised. If some ranges are missing and others
   exist, that is an error (`check_nothing_has_come`): the result never has zeros for missing
   ranges, or a mix of two versions.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import numpy as np
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from zarr_bytes.errors import ChunkSizeError, warn_caller, wrong_size_error
from zarr_bytes.indexing.plan import with_request_sizes
from zarr_bytes.io import counters
from zarr_bytes.io.known_stores import known_stores, means_ranges_unsupported
from zarr_bytes.io.store_names import store_name, store_path_name
from zarr_bytes.io.tasks import (
    ONE_AT_A_TIME,
    RequestSlots,
    StopRequestsError,
    map_concurrently,
    shared_slots_of_running_loop,
)
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX, ShardIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zarr.abc.buffer import Buffer, BufferPrototype
    from zarr.abc.store import ByteRequest
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import ByteRanges, Fetch, Plan, SizedFetch
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.index_cache import IndexCache
    from zarr_bytes.io.tasks import RequestLimits
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout

# Whether this task is inside a request that has a slot.
_is_in_request = ContextVar("is_in_request", default=False)
_NO_SLOT: Final = nullcontext()


class MissingChunkError(StopRequestsError):
    """The store has no object for the chunk. Readers catch this and use the fill value."""


class RangeAnswers(Enum):
    """The kind of answer to byte ranges of one object, as far as known."""

    UNPROVEN = auto()
    """No range has been requested alone, or answered."""
    ASKED = auto()
    """The first range has been requested, and the others wait for its answer."""
    RANGES = auto()
    """Ranges."""
    WHOLE = auto()
    """The whole object, which has arrived: nothing more is requested."""
    WRONG_SIZE = auto()
    """Ranges of a wrong size; the whole object doesn't have the size of the chunk either."""


_NOT_ANSWERED: Final = RangeAnswers.UNPROVEN, RangeAnswers.ASKED


class _RangeRefusedError(Exception):
    """The store refuses a range of an object. The whole object is then requested instead."""


class StoreTransport:
    """Fetches one chunk or shard through its store, for one read; a `Transport`.

    A transport belongs to one event loop. Its coroutines share the bytes that have arrived, and
    take request slots of the loop. If it `is_sync`, it belongs to the calling thread instead: it
    takes no slots, and its coroutines never wait, so `run_coroutine_that_never_waits` runs them.

    Parameters
    ----------
    store_path
        Path of the object: a StorePath, which has `get_sync` since zarr 3.3.
    layout, driver
        Layout of the object, and driver of its store.
    prototype
        The class of the buffers that the store returns.
    index_cache
        Index cache of the array, where the index of a shard is kept; None if there is no cache.
    kept_index
        The index of the shard from the cache; None if it must be fetched.
    objects_at_once
        Number of objects that are read at the same time and share the request slots.
    slots
        Slots for the requests of all these objects together; None for one request at a time,
        without waiting: from a store in memory, or by `get_sync`.
    may_divide_whole_chunks
        Whether several requests may fetch a chunk that is needed as a whole; for example, from a
        store that is known to answer ranges.
    is_sync
        Whether the store's `get_sync` is called instead of `get`.
    """

    def __init__(
        self,
        store_path: Any,
        layout: ObjectLayout,
        driver: Driver,
        prototype: BufferPrototype,
        *,
        index_cache: IndexCache | None = None,
        kept_index: Bytes | None = None,
        objects_at_once: int = 1,
        slots: RequestSlots | None = None,
        may_divide_whole_chunks: bool = False,
        is_sync: bool = False,
    ) -> None:
        self.cost = driver.request_cost_or_none_if_read_whole(store_path.path)
        self.needs_plan = False
        self._store_path = store_path
        self._layout = layout
        self._origin = driver.origin
        self._prototype = prototype
        self._index_cache = index_cache
        # A shard that is fetched whole includes its index.
        self._kept_index = None if self.cost is None else kept_index
        self._objects_at_once = objects_at_once
        self._may_divide_whole_chunks = may_divide_whole_chunks
        self._is_sync = is_sync
        self._stored_nbytes = layout.stored_nbytes  # None for a shard, since its size isn't known
        self._slots = slots
        self._answers = RangeAnswers.UNPROVEN
        self._whole_object: Bytes | None = None  # set once it has arrived
        self._was_there = False  # whether any request has found the object
        # Set once the kind of answer to ranges is known: ranges, or the whole object.
        self._answer_is_known = asyncio.Event()
        # Held during the request for the whole object after a range is refused or has a wrong size.
        self._whole_instead = asyncio.Lock()
        counters.count(store_path.store, chunks=1)

    async def fetch_whole(self) -> Bytes:
        """The bytes of the whole object, in one request; every later range is cut out of them.

        Raises MissingChunkError, or ChunkSizeError if the object doesn't have the chunk's size.
        """
        content = await self._get_whole()
        self._keep_whole_object(content)
        return content

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index of the object; for a shard, from the cache, or fetched and then kept.

        A chunk that is fetched whole by one request is fetched here. Raises MissingChunkError,
        ShardIndexError if the index is truncated or damaged, and errors of the store unchanged.
        """
        layout = self._layout
        if not layout.index_nbytes:
            may_divide = self._may_divide_whole_chunks
            if not plan.is_requested_by_ranges(may_divide_whole_chunks=may_divide):
                await self.fetch_whole()
            return SINGLE_CHUNK_INDEX
        content = self._kept_index
        if content is None:
            content = await self._fetch_index(plan)
        # The size of a shard is known if the whole shard has arrived.
        whole = self._whole_object
        size = None if whole is None else whole.size
        index = ShardIndex(layout, self._object_name, content, size)
        # The index is kept only after its check, so that the next read fetches it again if it was
        # damaged in transit. It isn't kept if the whole shard has arrived, as it will again.
        if self._index_cache is not None and whole is None:
            self._index_cache.keep_if_store_is_read_only(self._store_path, content)
        return index

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:
        """Most bytes of the object that are fetched together: the largest size of a request.

        If the whole object has arrived and its elements must be decoded: the size of a block.
        """
        if self._whole_object is not None and not self._layout.assigns_directly:
            return plan.block_nbytes_limit_for(view)
        return plan.max_request_nbytes

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Fetch all `fetches`, several requests at a time, and call `place` with the bytes of each.

        Raises MissingChunkError if the object is missing, ChunkSizeError if it is truncated, and
        errors of the store unchanged.
        """
        slots = self._slots
        # One at a time if the store is in memory, or if the whole object has arrived.
        has_arrived = self._whole_object is not None
        limits = ONE_AT_A_TIME if slots is None or has_arrived else slots.limits
        min_piece_nbytes = self._layout.limits.min_piece_nbytes

        async def fetch_and_place(sized_fetch: SizedFetch) -> None:
            fetch = sized_fetch.fetch
            # There are at most as many fetches in memory as slots.
            is_small = fetch.ranges.nbytes < min_piece_nbytes
            async with slots.for_fetched_bytes.take(is_small=is_small) if slots else _NO_SLOT:
                place(fetch, await self._fetch_ranges(plan, sized_fetch, limits.max_requests))

        sized_fetches = with_request_sizes(
            fetches,
            plan.max_request_nbytes,
            limits.max_pieces_of_range,
            self._objects_at_once,
            min_piece_nbytes,
        )
        await map_concurrently(fetch_and_place, sized_fetches, limits.max_requests)

    def check_nothing_has_come(self) -> None:
        """Raise a ChunkSizeError if a part of the chunk has arrived before a MissingChunkError."""
        if self._was_there:
            raise ChunkSizeError(
                f"some byte ranges of {self._object_name} are there and others are missing: the"
                " chunk was deleted or replaced while it was read"
            )

    @property
    def _object_name(self) -> str:
        """The store and the key of the object, for messages."""
        return store_path_name(self._store_path)

    async def _fetch_index(self, plan: Plan) -> Bytes:
        """The bytes of the index of a shard, in one request. Their checksum isn't checked.

        If the plan requests the whole shard, it is kept, and every range is cut out of it. The
        shard is kept, too, if it comes instead of its index, which leads to a warning. If the
        object is shorter than an index, too few bytes are returned, or the store's answer leads to
        a ChunkSizeError. Raises MissingChunkError if the object is missing.
        """
        layout = self._layout
        nbytes = layout.index_nbytes
        request = RangeByteRequest(0, nbytes) if layout.data_offset else SuffixByteRequest(nbytes)
        content: Bytes | None = None
        if not plan.fetches_whole_shard:
            with suppress(_RangeRefusedError):
                is_small = nbytes < layout.limits.min_piece_nbytes
                content = await self._get(request, is_small=is_small, is_index=True)
        is_index = content is not None
        if content is None:
            content = await self._get_whole()
        elif layout.data_offset and content.size != nbytes:
            whole = await self._get_whole()  # a server may keep it compressed
            is_index = whole.size == content.size
            content = whole
        if is_index and content.size <= nbytes:
            known_stores.record_range_answer(self._store_path.store, self._origin)
            return content
        self._keep_whole_object(content)
        if not plan.fetches_whole_shard:
            self._record_and_warn_that_ranges_are_ignored(plan.nbytes)
        start = layout.index_offset(content.size)
        return content[start : start + nbytes]

    async def _fetch_ranges(self, plan: Plan, sized_fetch: SizedFetch, max_requests: int) -> Bytes:
        """The bytes of the ranges of a fetch one after another, in `max_requests` at a time.

        No request is sent if the whole object has arrived. Raises the errors of `fetch`.
        """
        ranges = sized_fetch.fetch.ranges
        is_small = sized_fetch.has_small_requests
        fetched: Bytes | None = None

        async def fetch_request(request: tuple[int, int, int]) -> None:
            nonlocal fetched
            start, stop, position = request
            content = await self._fetch_range(plan, start, stop, is_small=is_small)
            if content.size == ranges.nbytes:
                fetched = content
                return
            if fetched is None:
                fetched = np.empty(ranges.nbytes, np.uint8)
            fetched[position : position + content.size] = content

        if self._whole_object is None:
            try:
                requests = ranges.requests(sized_fetch.max_request_nbytes)
                await map_concurrently(fetch_request, requests, max_requests)
            except StopRequestsError:
                if self._whole_object is None:
                    raise
        if self._whole_object is not None:
            return self._ranges_of_whole(self._whole_object, ranges)
        return cast("Bytes", fetched)

    async def _fetch_range(self, plan: Plan, start: int, stop: int, *, is_small: bool) -> Bytes:
        """All bytes from `start` to `stop`; requested alone as long as ranges are unproven.

        `is_small` is whether the request takes one of the slots for small requests.

        Raises StopRequestsError once the whole object has arrived instead, and the errors of
        `fetch`.
        """
        if not known_stores.is_known_to_answer_ranges(self._store_path.store, self._origin):
            if self._answers is RangeAnswers.UNPROVEN:
                self._answers = RangeAnswers.ASKED
                return await self._request_range(plan, start, stop, is_small=is_small)
            # If the first range fails, its error cancels the tasks that wait here.
            await self._answer_is_known.wait()
        return await self._request_range(plan, start, stop, is_small=is_small)

    async def _request_range(self, plan: Plan, start: int, stop: int, *, is_small: bool) -> Bytes:
        """Like `_fetch_range`, without waiting for the answer to another range.

        If a chunk is read whole, its last range is requested without an end. So if the object is
        too long, the answer has too many bytes.
        """
        if self._answers is RangeAnswers.WHOLE:
            raise StopRequestsError
        is_open_ended = plan.reads_whole_chunk and stop == self._stored_nbytes
        request = OffsetByteRequest(start) if is_open_ended else RangeByteRequest(start, stop)
        expected = stop - start
        try:
            content = await self._get(request, is_small=is_small)
        except _RangeRefusedError:
            await self._fetch_whole_after_refusal(plan.nbytes)
            raise StopRequestsError from None
        except ChunkSizeError:
            if await self._try_fetch_whole_after_wrong_size():
                raise StopRequestsError from None
            raise
        if content.size != expected:
            await self._keep_or_fetch_whole_or_raise(plan.nbytes, request, expected, content)
        known_stores.record_range_answer(self._store_path.store, self._origin)
        if self._answers in _NOT_ANSWERED:
            self._answers = RangeAnswers.RANGES
            self._answer_is_known.set()
        return content

    async def _keep_or_fetch_whole_or_raise(
        self,
        plan_nbytes: int,
        request: RangeByteRequest | OffsetByteRequest,
        expected: int,
        content: Bytes,
    ) -> NoReturn:
        """Raise StopRequestsError if the whole object has arrived or can be fetched now.

        Otherwise raise ChunkSizeError. `content` is the answer to a request for a range of
        `expected` bytes, and has another size.
        """
        stored = self._stored_nbytes
        size = content.size
        is_open_ended = isinstance(request, OffsetByteRequest)
        if size == stored:
            if is_open_ended:  # it may be the end of an object that is too long
                content = await self._get_whole()
            self._keep_whole_object(content)
            self._record_and_warn_that_ranges_are_ignored(plan_nbytes)
            raise StopRequestsError
        if await self._try_fetch_whole_after_wrong_size():
            raise StopRequestsError
        start = request.offset if isinstance(request, OffsetByteRequest) else request.start
        if stored is not None and size > expected:
            object_nbytes = start + size if is_open_ended else size
            raise wrong_size_error(self._object_name, 0, stored, object_nbytes)
        raise wrong_size_error(self._object_name, start, start + expected, size)

    async def _fetch_whole_after_refusal(self, plan_nbytes: int) -> None:
        """Request the whole object and keep it, unless another call has already done so."""
        async with self._whole_instead:
            if self._whole_object is None:
                self._keep_whole_object(await self._get_whole())
                self._record_and_warn_that_ranges_are_ignored(plan_nbytes)

    async def _try_fetch_whole_after_wrong_size(self) -> bool:
        """Request the whole object, unless a range has been answered.

        A server may keep the object compressed. Only the first call requests it, and other calls
        wait for the answer. Returns True if a whole object of the right size has arrived.
        """
        async with self._whole_instead:
            if self._answers in _NOT_ANSWERED and self._stored_nbytes is not None:
                content = await self._get_whole()
                if content.size == self._stored_nbytes:
                    self._keep_whole_object(content)
                else:
                    self._answers = RangeAnswers.WRONG_SIZE
        return self._answers is RangeAnswers.WHOLE

    async def _get_whole(self) -> Bytes:
        """The answer to a request for the whole object; raises the errors of `_get`."""
        return await self._get(None, is_small=self._layout.whole_request_is_small)

    async def _get(
        self,
        byte_range_or_none_if_whole: ByteRequest | None,
        *,
        is_small: bool,
        is_index: bool = False,
    ) -> Bytes:
        """The answer to a request, in a slot for small or large requests.

        `is_index` is whether the index of a shard is requested. Raises MissingChunkError, and the
        errors of `_answer`.
        """
        if self._slots is None:
            buffer = await self._answer(byte_range_or_none_if_whole, is_index=is_index)
        else:
            async with self._slots.for_request.take(is_small=is_small):
                token = _is_in_request.set(True)
                try:
                    buffer = await self._answer(byte_range_or_none_if_whole, is_index=is_index)
                finally:
                    _is_in_request.reset(token)
        if buffer is None:
            raise MissingChunkError
        self._was_there = True
        return buffer.as_numpy_array()

    async def _answer(
        self, byte_range_or_none_if_whole: ByteRequest | None, *, is_index: bool
    ) -> Buffer | None:
        """The answer of the store; None if the object is missing.

        Raises _RangeRefusedError if the store refuses the range, ChunkSizeError if the range isn't
        within the object, and other errors of the store unchanged.
        """
        byte_range = byte_range_or_none_if_whole
        try:
            if self._is_sync:
                buffer = self._store_path.get_sync(prototype=self._prototype, byte_range=byte_range)
            else:
                buffer = await self._store_path.get(self._prototype, byte_range)
        except Exception as error:
            if byte_range is None:
                raise
            if isinstance(byte_range, SuffixByteRequest):  # Azure and caches support other ranges
                size = await _object_size_if_store_tells(self._store_path)
                if size is not None:
                    start = max(size - byte_range.suffix, 0)
                    return await self._answer(RangeByteRequest(start, size), is_index=is_index)
            if not means_ranges_unsupported(error):
                await self._raise_unless_refusal_may_be_from_compression(
                    byte_range, error, is_index=is_index
                )
            raise _RangeRefusedError from None
        count_request(self._store_path, byte_range, buffer)
        return cast("Buffer | None", buffer)

    async def _raise_unless_refusal_may_be_from_compression(
        self, byte_range: ByteRequest, error: Exception, *, is_index: bool
    ) -> None:
        """Raise the error of a range, unless a server may keep the object compressed.

        This is possible if the server refuses a range of a chunk, or the index of a shard, with
        HTTP status 416. Raises ChunkSizeError if the object is found to be too short: by the size
        that the store tells, or else by requests for the first byte of the object and of the range.
        Neither is asked for if no request may wait.
        """
        start = getattr(byte_range, "start", 0)
        stop = getattr(byte_range, "end", self._stored_nbytes or 0)
        may_wait = self._slots is not None
        size = await _object_size_if_store_tells(self._store_path) if may_wait else None
        if size is not None and size < stop:
            raise wrong_size_error(self._object_name, start, stop, max(size - start, 0)) from error
        first = getattr(byte_range, "offset", start)
        if size is None and may_wait and await self._ends_before(first):
            raise wrong_size_error(self._object_name, first, stop, 0) from error
        is_of_inner_chunk = self._stored_nbytes is None and not is_index
        if is_of_inner_chunk or getattr(error, "status", 0) != 416:
            raise error

    async def _ends_before(self, offset: int) -> bool:
        """Whether the store sends the first byte of the object, but not the byte at `offset`.

        For a store that doesn't return sizes, and raises its own error for a range after the end,
        like the stores of obstore. If requests fail for another reason, the first byte fails, too.
        """
        return offset > 0 and await self._sends_byte(0) and not await self._sends_byte(offset)

    async def _sends_byte(self, offset: int) -> bool:
        """Whether the store sends only the byte at `offset`; False after errors."""
        request = RangeByteRequest(offset, offset + 1)
        with suppress(Exception):  # from any store: the first error is the one to raise
            buffer = await self._store_path.get(self._prototype, request)
            count_request(self._store_path, request, buffer)
            return buffer is not None and len(buffer) == 1
        return False

    def _keep_whole_object(self, content: Bytes) -> None:
        """Keep the whole object, for all ranges; ChunkSizeError if it has a wrong size.

        A shard isn't checked, since its size isn't known.
        """
        expected = self._stored_nbytes
        if expected is not None and content.size != expected:
            raise wrong_size_error(self._object_name, 0, expected, content.size)
        self._whole_object = content
        self._answers = RangeAnswers.WHOLE
        self._answer_is_known.set()

    def _ranges_of_whole(self, chunk: Bytes, ranges: ByteRanges) -> Bytes:
        """The bytes of the ranges, from the whole object; ChunkSizeError if it ends too early."""
        if self._stored_nbytes is None:  # a shard: its size hasn't been checked
            for start, stop, _ in ranges.ranges():
                if stop > chunk.size:
                    raise wrong_size_error(
                        self._object_name, start, stop, max(chunk.size - start, 0)
                    )
        return ranges.extract(chunk)

    def _record_and_warn_that_ranges_are_ignored(self, plan_nbytes: int) -> None:
        """Record that the store ignores ranges, and warn the caller of zarr, once for each store.

        Must follow `_keep_whole_object`, since the warning has the size of the object.
        """
        if known_stores.record_whole_object_answer(self._store_path.store):
            nbytes = cast("Bytes", self._whole_object).size
            warn_caller(
                f"{store_name(self._store_path.store)} does not answer byte ranges, so chunks are"
                f" fetched whole each time that a part of them is read: {nbytes} bytes here,"
                f" where {plan_nbytes} were needed; from a server that answers ranges, such"
                " as nginx, only the needed bytes are fetched"
            )


def shared_slots_or_new_if_in_request(limits: RequestLimits) -> RequestSlots:
    """The slots for a read of a single chunk, shared with other such reads if possible.

    In a task that has such a slot, they are new: a store may read another array to answer a
    request, and that read would wait for the slot of its own task.
    """
    return RequestSlots(limits) if _is_in_request.get() else shared_slots_of_running_loop(limits)


def count_request(
    store_path: StorePath,
    byte_range_or_none_if_whole: ByteRequest | None,
    found_or_none_if_missing: Buffer | None,
) -> None:
    """Add a request for a range or a whole object, and the bytes of its answer, to the counts."""
    nbytes = 0 if found_or_none_if_missing is None else len(found_or_none_if_missing)
    ranges = 0 if byte_range_or_none_if_whole is None else 1
    counters.count(store_path.store, requests=1, ranges=ranges, bytes_fetched=nbytes)


async def _object_size_if_store_tells(store_path: StorePath) -> int | None:
    """Size of an object; None if the store fails, or would have to read the whole object."""
    with suppress(Exception):  # the error of the request is the one to raise
        if type(store_path.store).getsize is not Store.getsize:
            return await store_path.store.getsize(store_path.path)
    return None
