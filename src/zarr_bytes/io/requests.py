"""The bytes of one object through the `get` of its store, by ranges or whole.

Whether a store answers byte ranges shows with the first of them. `RangeAnswers` has what is known
of an object:

1. UNPROVEN: unless the store is known to answer ranges, the first range is requested alone, and the
   others wait for its answer (ASKED). An answer of the size of the range proves the store: its host
   is remembered in `known_stores`, the other ranges follow (RANGES), and no later object waits
   while it is known.
2. A whole object instead of a range (HTTP status 200 for 206) is kept, and all ranges are cut out
   of it (WHOLE). The store is remembered as one that ignores ranges, with a warning the first time.
   After ten minutes it is asked for a range again.
3. After a refused range (the store has none, or status 416 for an object that a server keeps
   compressed), one task requests the whole object, which is kept (WHOLE).
4. A range of any other size, as of a truncated object: the whole object is requested once, since
   its server may keep it compressed. An object of the right size is kept (WHOLE); otherwise the
   range is a ChunkSizeError (WRONG_SIZE).
5. A missing object raises MissingChunkError. Missing ranges beside existing ones are an error
   (`check_nothing_has_come`): the result never has zeros or a mix of two versions.
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
    StopRequestsError,
    map_concurrently,
    slots_of_running_loop,
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
    from zarr_bytes.io.tasks import LoopSlots, RequestLimits
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout

# Whether this task is inside of a request that has a slot.
_is_in_request = ContextVar("is_in_request", default=False)
_NO_SLOT: Final = nullcontext()


class MissingChunkError(StopRequestsError):
    """The store has no object for the chunk. It steers: readers put in the fill value."""


class RangeAnswers(Enum):
    """What byte ranges of one object bring, as far as it is known."""

    UNPROVEN = auto()
    """No range has been requested alone, or answered."""
    ASKED = auto()
    """The first range has been requested, and the others wait for its answer."""
    RANGES = auto()
    """Ranges."""
    WHOLE = auto()
    """The whole object, which has come: nothing more is requested."""
    WRONG_SIZE = auto()
    """Ranges of a wrong size, and the whole object does not have the size of the chunk either."""


_NOT_ANSWERED: Final = RangeAnswers.UNPROVEN, RangeAnswers.ASKED


class _RangeRefusedError(Exception):
    """The store refuses a range of an object. It steers: the whole object is requested instead."""


class StoreTransport:
    """Fetches one chunk or shard through its store, for one read; a `Transport`.

    It belongs to one event loop, on which its coroutines share what has come, and takes the loop's
    request slots. Where it `is_sync`, it belongs to the calling thread: it takes no slots, and its
    coroutines wait for nothing, so that `run_coroutine_that_never_waits` runs them.

    Parameters
    ----------
    store_path
        Of the object: a StorePath, which has `get_sync` from zarr 3.3 on.
    layout, driver
        Of the object, and of its store.
    prototype
        The class of the buffers that the store returns.
    index_cache
        That of the array, which gets the index of a shard; None without one.
    kept_index
        The index of the shard out of this cache; None if it must be fetched.
    objects_at_once
        Number of objects that are read at the same time, and share the request slots.
    limits
        Most requests at once, of all these objects.
    may_divide_whole_chunks
        Whether a chunk of which all bytes are needed may come in several requests, as from a store
        that is known to answer ranges.
    is_sync
        Whether the store's `get_sync` is called, and not `get`.
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
        limits: RequestLimits = ONE_AT_A_TIME,
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
        # A shard that is fetched whole brings its own index.
        self._kept_index = None if self.cost is None else kept_index
        self._objects_at_once = objects_at_once
        self._may_divide_whole_chunks = may_divide_whole_chunks
        self._is_sync = is_sync
        self._stored_nbytes = layout.stored_nbytes  # None for a shard, whose size is not known
        self._takes_slots = not (driver.is_memory or is_sync)
        self._limits = limits if self._takes_slots else ONE_AT_A_TIME
        self._slots = slots_unless_within_request(limits) if self._takes_slots else None
        self._answers = RangeAnswers.UNPROVEN
        self._whole_object: Bytes | None = None  # once it has come
        self._was_there = False  # whether an object was there for any request
        # Set once it is known what ranges bring: a range, or the whole object.
        self._answer_is_known = asyncio.Event()
        # Held by the request for the whole object after a range that was refused or of wrong size.
        self._whole_instead = asyncio.Lock()
        counters.count(store_path.store, chunks=1)

    async def fetch_whole(self) -> Bytes:
        """The bytes of the whole object, in one request; every later range is cut out of them.

        Raises MissingChunkError, or ChunkSizeError if the object has not the size of the chunk.
        """
        content = await self._get_whole()
        self._keep_whole_object(content)
        return content

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index of the object: that of a shard out of the cache, or fetched and then kept.

        A chunk that comes by one request is fetched here. Raises MissingChunkError, ShardIndexError
        if the index is truncated or damaged, and errors of the store as they are.
        """
        layout = self._layout
        if not layout.index_nbytes:
            may_divide = self._may_divide_whole_chunks
            if not plan.is_requested_by_ranges(may_divide_whole_chunks=may_divide):
                await self.fetch_whole()
            return SINGLE_CHUNK_INDEX
        content = self._kept_index
        if content is None:
            content = await self._fetch_index(plan.nbytes)
        # The size of a shard is known where it has come whole.
        whole = self._whole_object
        size = None if whole is None else whole.size
        index = ShardIndex(layout, self._object_name, content, size)
        # Not before its check: what was damaged on its way is fetched again by the next read. And
        # not of a shard that has come whole, as it will again.
        if self._index_cache is not None and whole is None:
            self._index_cache.keep_if_store_is_read_only(self._store_path, content)
        return index

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:
        """Most bytes of the object that are fetched together: those of a request.

        Where the whole object has come, a block of memory, if its elements must be decoded.
        """
        if self._whole_object is not None and not self._layout.assigns_directly:
            return plan.block_nbytes(view)
        return plan.max_request_nbytes

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Fetch all `fetches`, several requests at a time, and call `place` with the bytes of each.

        Raises MissingChunkError if the object is missing, ChunkSizeError if it is truncated, and
        errors of the store as they are.
        """
        # One in memory, and once all of the chunk has come.
        limits = self._limits if self._whole_object is None else ONE_AT_A_TIME
        slots = self._slots
        min_piece_nbytes = self._layout.limits.min_piece_nbytes

        async def fetch_and_place(sized_fetch: SizedFetch) -> None:
            fetch = sized_fetch.fetch
            # The bytes of no more fetches are in memory than there are slots.
            is_small = fetch.ranges.nbytes < min_piece_nbytes
            async with slots.for_fetched_bytes.take(is_small=is_small) if slots else _NO_SLOT:
                place(fetch, await self._fetch_ranges(plan, sized_fetch, limits.small))

        sized_fetches = with_request_sizes(
            fetches,
            plan.max_request_nbytes,
            limits.pieces,
            self._objects_at_once,
            min_piece_nbytes,
        )
        await map_concurrently(fetch_and_place, sized_fetches, limits.small)

    def check_nothing_has_come(self) -> None:
        """Raise a ChunkSizeError if a part of the chunk has come, after a MissingChunkError."""
        if self._was_there:
            raise ChunkSizeError(
                f"some byte ranges of {self._object_name} are there and others are missing: the"
                " chunk was deleted or replaced while it was read"
            )

    @property
    def _object_name(self) -> str:
        """The store and the key of the object, for messages."""
        return store_path_name(self._store_path)

    async def _fetch_index(self, plan_nbytes: int) -> Bytes:
        """The bytes of the index of a shard, in one request, without a check of their checksum.

        Where the whole shard comes, it is kept, and every range is cut out of it. A warning
        compares its size with `plan_nbytes`, the bytes that the read needs. Of an object that is
        shorter than an index the bytes are too few, or the store's answer leads to a
        ChunkSizeError. Raises MissingChunkError if the object is missing.
        """
        layout = self._layout
        nbytes = layout.index_nbytes
        request = RangeByteRequest(0, nbytes) if layout.data_offset else SuffixByteRequest(nbytes)
        content: Bytes | None = None
        if self.cost is not None:
            with suppress(_RangeRefusedError):
                is_small = nbytes < layout.limits.min_piece_nbytes
                content = await self._get(request, is_small=is_small, is_index=True)
        is_index = content is not None
        if content is None:
            content = await self._get_whole()
        elif layout.data_offset and content.size != nbytes:
            whole = await self._get_whole()  # perhaps a server keeps it compressed
            is_index = whole.size == content.size
            content = whole
        if is_index and content.size <= nbytes:
            known_stores.record_range_answer(self._store_path.store, self._origin)
            return content
        self._keep_whole_object(content)
        if self.cost is not None:
            self._record_and_warn_that_ranges_are_ignored(plan_nbytes)
        start = layout.index_offset(content.size)
        return content[start : start + nbytes]

    async def _fetch_ranges(self, plan: Plan, sized_fetch: SizedFetch, max_requests: int) -> Bytes:
        """The bytes of the ranges of a fetch one after another, in `max_requests` at a time.

        Without a request where the whole object has come. Errors are those of `fetch`.
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
        """The bytes from `start` to `stop`, all of them; alone, as long as ranges are unproven.

        `is_small` is whether it takes one of the slots for small requests.

        Raises StopRequestsError once the whole object has come instead. Errors are those of
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
        """As `_fetch_range`, at once, whatever is known of ranges.

        The range at the end of a chunk that is read whole is requested open-ended, so that an
        object that is too long brings too many bytes.
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
        """Raise StopRequestsError if the whole object has come, or comes now; else ChunkSizeError.

        `content` has come for a range of `expected` bytes, and has another size.
        """
        stored = self._stored_nbytes
        size = content.size
        is_open_ended = isinstance(request, OffsetByteRequest)
        if size == stored:
            if is_open_ended:  # perhaps it is the end of an object that is too long
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
        """Request the whole object and keep it, unless another call has done so meanwhile."""
        async with self._whole_instead:
            if self._whole_object is None:
                self._keep_whole_object(await self._get_whole())
                self._record_and_warn_that_ranges_are_ignored(plan_nbytes)

    async def _try_fetch_whole_after_wrong_size(self) -> bool:
        """Request the whole object, unless a range has been answered; True if it is the chunk.

        Its server may keep it compressed. Only the first call requests it, and others wait for it.
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
        """The answer to a request for the whole object; raises as `_get`."""
        nbytes = self._stored_nbytes
        is_small = nbytes is not None and nbytes < self._layout.limits.min_piece_nbytes
        return await self._get(None, is_small=is_small)

    async def _get(
        self,
        byte_range_or_none_if_whole: ByteRequest | None,
        *,
        is_small: bool,
        is_index: bool = False,
    ) -> Bytes:
        """The answer to a request, in a slot of the loop for small or large requests.

        `is_index` is whether the index of a shard is requested. Raises MissingChunkError, and all
        that `_answer` raises.
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
        """What the store answers; None if the object is missing.

        Raises _RangeRefusedError if the store refuses the range, ChunkSizeError if the range is not
        within the object, and other errors of the store as they are.
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
            if isinstance(byte_range, SuffixByteRequest):  # Azure and caches have other ranges
                size = await _object_size_if_store_tells(self._store_path)
                if size is not None:
                    start = max(size - byte_range.suffix, 0)
                    return await self._answer(RangeByteRequest(start, size), is_index=is_index)
            if not means_ranges_unsupported(error):
                await self._raise_unless_maybe_compressed(byte_range, error, is_index=is_index)
            raise _RangeRefusedError from None
        count_request(self._store_path, byte_range, buffer)
        return cast("Buffer | None", buffer)

    async def _raise_unless_maybe_compressed(
        self, byte_range: ByteRequest, error: Exception, *, is_index: bool
    ) -> None:
        """Raise the error of a range, unless a server may keep the object compressed.

        That may be so where it refuses a range of a chunk, or the index of a shard, by HTTP status
        416. Raises ChunkSizeError where the object ends before the range does.
        """
        start = getattr(byte_range, "start", 0)
        stop = getattr(byte_range, "end", self._stored_nbytes or 0)
        size = await _object_size_if_store_tells(self._store_path) if self._takes_slots else None
        if size is not None and size < stop:
            raise wrong_size_error(self._object_name, start, stop, max(size - start, 0)) from error
        first = getattr(byte_range, "offset", start)
        if size is None and self._takes_slots and await self._ends_before(first):
            raise wrong_size_error(self._object_name, first, stop, 0) from error
        is_of_inner_chunk = self._stored_nbytes is None and not is_index
        if is_of_inner_chunk or getattr(error, "status", 0) != 416:
            raise error

    async def _ends_before(self, offset: int) -> bool:
        """Whether the store sends the first byte of the object, and not the byte at `offset`.

        For a store that does not tell sizes and has an error of its own for a range behind the end,
        as those of obstore have. Where it fails for another reason, the first byte fails, too.
        """
        return offset > 0 and await self._sends_byte(0) and not await self._sends_byte(offset)

    async def _sends_byte(self, offset: int) -> bool:
        """Whether the store sends the byte at `offset`, and no other bytes; False after errors."""
        request = RangeByteRequest(offset, offset + 1)
        with suppress(Exception):  # of any store: the first error is the one to raise
            buffer = await self._store_path.get(self._prototype, request)
            count_request(self._store_path, request, buffer)
            return buffer is not None and len(buffer) == 1
        return False

    def _keep_whole_object(self, content: Bytes) -> None:
        """Keep the whole object, for all ranges; ChunkSizeError if it is not one.

        The size of a shard is not known here.
        """
        expected = self._stored_nbytes
        if expected is not None and content.size != expected:
            raise wrong_size_error(self._object_name, 0, expected, content.size)
        self._whole_object = content
        self._answers = RangeAnswers.WHOLE
        self._answer_is_known.set()

    def _ranges_of_whole(self, chunk: Bytes, ranges: ByteRanges) -> Bytes:
        """The bytes of the ranges, out of the whole object; ChunkSizeError if it ends before."""
        if self._stored_nbytes is None:  # a shard, whose size is not known before
            for start, stop, _ in ranges.ranges():
                if stop > chunk.size:
                    raise wrong_size_error(
                        self._object_name, start, stop, max(chunk.size - start, 0)
                    )
        return ranges.extract(chunk)

    def _record_and_warn_that_ranges_are_ignored(self, plan_nbytes: int) -> None:
        """Remember that the store ignores ranges, and warn the caller of zarr of it, once a store.

        After `_keep_whole_object`, whose size the warning tells.
        """
        if known_stores.record_whole_object_answer(self._store_path.store):
            nbytes = cast("Bytes", self._whole_object).size
            warn_caller(
                f"{store_name(self._store_path.store)} does not answer byte ranges, so chunks are"
                f" fetched whole each time that a part of them is read: {nbytes} bytes here,"
                f" where {plan_nbytes} were needed; from a server that answers ranges, such"
                " as nginx, only these are fetched"
            )


def slots_unless_within_request(limits: RequestLimits) -> LoopSlots | None:
    """The slots of the running event loop for `limits`; None in a task that has one.

    A store may read another array for its answer, and would wait for the slot that it has.
    """
    return None if _is_in_request.get() else slots_of_running_loop(limits)


def count_request(
    store_path: StorePath,
    byte_range_or_none_if_whole: ByteRequest | None,
    found_or_none_if_missing: Buffer | None,
) -> None:
    """Add a request, of a range or a whole object, and the bytes of its answer to the counts."""
    nbytes = 0 if found_or_none_if_missing is None else len(found_or_none_if_missing)
    ranges = 0 if byte_range_or_none_if_whole is None else 1
    counters.count(store_path.store, requests=1, ranges=ranges, bytes_fetched=nbytes)


async def _object_size_if_store_tells(store_path: StorePath) -> int | None:
    """Size of an object; None if the store fails, or would have to read the object to tell."""
    with suppress(Exception):  # the error of the request is the one to raise
        if type(store_path.store).getsize is not Store.getsize:
            return await store_path.store.getsize(store_path.path)
    return None
