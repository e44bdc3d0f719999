"""The bytes of a chunk through the `get` of a store, by ranges or whole.

1. Unless the store is known to answer ranges, the first range of a chunk is requested alone, and
   the others wait for its answer. An answer of the size of the range proves the store: its host is
   remembered, the other ranges follow, and no chunk waits from then on.
2. A whole object instead of a range (HTTP status 200 for 206) is kept, and all ranges are cut out
   of it. The store is remembered as one that ignores ranges, with a warning the first time.
3. After a refused range (the store has none, or status 416 for an object that a server keeps
   compressed), the whole object is requested, by one task under a lock, and kept.
4. A truncated object, and an answer of any other size: the whole object is requested once, since
   its server may keep it compressed. An object of the right size is kept; otherwise ChunkSizeError.
5. A missing object raises MissingChunkError. Missing ranges beside existing ones are an error
   (`check_nothing_has_come`): the result never has zeros or a mix of two versions.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from zarr_bytes.errors import ChunkSizeError, warn_caller, wrong_size_error
from zarr_bytes.io import counters
from zarr_bytes.io.known_stores import (
    is_known_to_answer_ranges,
    means_ranges_unsupported,
    record_range_answer,
    record_whole_object_answer,
)
from zarr_bytes.io.store_names import path_name, store_name
from zarr_bytes.io.tasks import (
    StopRequestsError,
    map_concurrently,
    max_concurrent_requests,
    slots_of_loop,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from zarr.abc.buffer import Buffer, BufferPrototype
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import ByteRanges, Plan
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.objects import ObjectLayout
    from zarr_bytes.settings import RequestCost

_Request: TypeAlias = "RangeByteRequest | OffsetByteRequest | SuffixByteRequest"


# Whether this task is inside of a request that has a slot.
_is_in_request = ContextVar("is_in_request", default=False)
_NO_SLOT: Final = nullcontext()


class MissingChunkError(StopRequestsError):
    """The store has no object for the chunk. It steers: readers put in the fill value."""


class FetchedIndex(NamedTuple):
    """The bytes of the index of a shard, and the size of the shard if all of it has come."""

    content: Bytes
    shard_nbytes: int | None  # None where only the index was fetched


class _Answer(NamedTuple):
    """What a request has brought."""

    content: Bytes
    may_be_range: bool  # False if the whole object was requested, also after a refused range


class ChunkRequests:
    """The requests for one chunk of one read, which counts as one chunk.

    It belongs to one event loop, on which its coroutines share what has come, and takes the loop's
    request slots. Where it `is_sync`, it belongs to the calling thread: it takes no slots, and its
    coroutines wait for nothing, so that `result_without_waiting` runs them.

    Parameters that their names do not explain:

    - `plan` is None where only `fetch_and_keep_whole` is called.
    - `cost` is None where the object is fetched whole, which includes the index of a shard.
    """

    def __init__(
        self,
        store_path: Any,  # a StorePath, which has `get_sync` from zarr 3.3 on
        layout: ObjectLayout,
        plan: Plan | None,
        cost: RequestCost | None,
        prototype: BufferPrototype,
        driver: Driver,
        *,
        is_sync: bool,
    ) -> None:
        self._store_path = store_path
        self._origin = driver.origin
        self._prototype = prototype
        self._stored_nbytes = layout.stored_nbytes  # None for a shard, whose size is not known
        self._plan = cast("Plan", plan)  # which nothing but ranges asks for
        self._is_sync = is_sync
        self._requests_whole = cost is None
        self._takes_slots = not (driver.is_memory or is_sync)
        self._request_slot: AbstractAsyncContextManager[object] = _NO_SLOT
        self.fetch_slot: AbstractAsyncContextManager[object] = _NO_SLOT
        # A store may read another array for its answer, and would wait for the slot that it has.
        if self._takes_slots and not _is_in_request.get():
            slots = slots_of_loop()
            self._request_slot = slots.for_request
            # For the bytes of a fetch: those of no more fetches are in memory than there are slots.
            self.fetch_slot = slots.for_fetched_bytes
        # The whole object, once it has come: then nothing more is requested.
        self._whole_chunk: Bytes | None = None
        self._has_answer = False  # whether an object was there for any request
        # Whether a range has been requested. The others wait for its answer.
        self._has_requested_range = False
        # Whether the whole object has been requested, after a range of a wrong size.
        self._has_requested_whole = False
        # Held by the first refused range while it fetches the whole object.
        self._whole_chunk_lock = asyncio.Lock()
        # Set once it is known what ranges of this object bring: a range, or all of it.
        self._answer_is_known = asyncio.Event()
        counters.count(store_path.store, chunks=1)

    @property
    def object_name(self) -> str:
        """The store and the key of the chunk, for messages."""
        return path_name(self._store_path)

    @property
    def max_requests(self) -> int:
        """Most requests for this chunk at once; 1 in memory, and once all of the chunk has come."""
        return max_concurrent_requests() if self._takes_slots and self._whole_chunk is None else 1

    async def fetch_and_keep_whole(self) -> Bytes:
        """The bytes of the whole object, in one request; every later `fetch` is cut out of them.

        Raises MissingChunkError, or ChunkSizeError if the object has not the size of the chunk.
        """
        content, _ = await self._get(None)
        self._keep_whole_chunk(content)
        return content

    async def fetch_index(self, layout: ObjectLayout) -> FetchedIndex:
        """The bytes of the index of a shard, in one request, without a check of their checksum.

        Where the whole shard comes, it is kept, and every `fetch` is cut out of it. Of an object
        that is shorter than an index the bytes are too few, or the store's answer leads to a
        ChunkSizeError. Raises MissingChunkError if the object is missing.
        """
        nbytes = layout.index_nbytes
        request = RangeByteRequest(0, nbytes) if layout.data_offset else SuffixByteRequest(nbytes)
        content, may_be_range = await self._get(None if self._requests_whole else request)
        if may_be_range and layout.data_offset and content.size != nbytes:
            whole, _ = await self._get(None)  # perhaps a server keeps it compressed
            may_be_range = whole.size == content.size
            content = whole
        if may_be_range and content.size <= nbytes:
            record_range_answer(self._store_path.store, self._origin)
            return FetchedIndex(content, None)
        self._keep_whole_chunk(content)
        if not self._requests_whole:
            self._record_that_ranges_are_ignored()
        start = layout.index_offset(content.size)
        return FetchedIndex(content[start : start + nbytes], content.size)

    async def fetch(self, ranges: ByteRanges, max_request_nbytes: int) -> Bytes:
        """The bytes of ranges one after another, in requests of at most `max_request_nbytes`.

        Without a request where the whole chunk has come. Raises MissingChunkError if the object is
        missing, ChunkSizeError if it is truncated, and errors of the store as they are.
        """
        fetched: Bytes | None = None

        async def fetch_request(request: tuple[int, int, int]) -> None:
            nonlocal fetched
            start, stop, position = request
            content = await self._fetch_range(start, stop)
            if content.size == ranges.nbytes:
                fetched = content
                return
            if fetched is None:
                fetched = np.empty(ranges.nbytes, np.uint8)
            fetched[position : position + content.size] = content

        try:
            await map_concurrently(
                fetch_request, ranges.requests(max_request_nbytes), self.max_requests
            )
        except StopRequestsError:
            if self._whole_chunk is None:
                raise
        if self._whole_chunk is not None:
            return self._ranges_of_whole(self._whole_chunk, ranges)
        return cast("Bytes", fetched)

    async def _fetch_range(self, start: int, stop: int) -> Bytes:
        """The bytes from `start` to `stop`, all of them.

        The range at the end of a chunk that is read whole is requested open-ended, so that an
        object that is too long brings too many bytes. Raises StopRequestsError once the whole chunk
        has come instead, as `_whole_chunk`; errors are those of `fetch`.
        """
        if self._has_requested_range and not is_known_to_answer_ranges(
            self._store_path.store, self._origin
        ):
            await self._answer_is_known.wait()
        self._has_requested_range = True
        if self._whole_chunk is not None:
            raise StopRequestsError
        is_open_ended = self._plan.reads_whole_chunk and stop == self._stored_nbytes
        request = OffsetByteRequest(start) if is_open_ended else RangeByteRequest(start, stop)
        expected = stop - start
        stored = self._stored_nbytes
        try:
            content, may_be_range = await self._get(request)
            size = content.size
            if may_be_range and is_open_ended and size == stored and size != expected:
                # Perhaps it is the whole object, and not its end.
                content, may_be_range = await self._get(None)
            elif may_be_range and size not in (expected, stored):
                if stored is not None and size > expected:
                    object_nbytes = start + size if is_open_ended else size
                    raise wrong_size_error(self.object_name, 0, stored, object_nbytes)
                raise wrong_size_error(self.object_name, start, stop, size)
        except ChunkSizeError:
            if not await self._fetch_whole_once():
                raise
            raise StopRequestsError from None
        if not may_be_range or content.size != expected:
            self._keep_whole_chunk(content)
            self._record_that_ranges_are_ignored()
            raise StopRequestsError
        record_range_answer(self._store_path.store, self._origin)
        self._answer_is_known.set()
        return content

    async def _fetch_whole_once(self) -> bool:
        """Request the whole object after a range of a wrong size; True if it is the chunk.

        Its server may keep it compressed. Only the first call requests it, and only while no answer
        has told what ranges bring; later calls wait for an answer.
        """
        if self._has_requested_whole:
            await self._answer_is_known.wait()
        elif self._stored_nbytes is not None and not self._answer_is_known.is_set():
            self._has_requested_whole = True
            content, _ = await self._get(None)
            if content.size == self._stored_nbytes:
                self._keep_whole_chunk(content)
        return self._whole_chunk is not None

    async def _get(self, request: _Request | None) -> _Answer:
        """The answer to a request, in a slot of the loop; None requests the whole object.

        Raises MissingChunkError, and all that `_answer` raises.
        """
        if self._request_slot is _NO_SLOT:
            answer = await self._answer(request)
        else:
            async with self._request_slot:
                token = _is_in_request.set(True)
                try:
                    answer = await self._answer(request)
                finally:
                    _is_in_request.reset(token)
        if answer is None:
            raise MissingChunkError
        self._has_answer = True
        return answer

    async def _answer(self, request: _Request | None) -> _Answer | None:
        """What the store answers; None if the object is missing.

        After a refused range it is the whole object. Raises StopRequestsError if another task has
        fetched it meanwhile, ChunkSizeError if the range is not within the object, and other errors
        of the store as they are.
        """
        try:
            if self._is_sync:
                buffer = self._store_path.get_sync(prototype=self._prototype, byte_range=request)
            else:
                buffer = await self._store_path.get(self._prototype, request)
        except Exception as error:
            if request is None:
                raise
            if isinstance(request, SuffixByteRequest):  # Azure and caches have other ranges
                size = await _object_size(self._store_path)
                if size is not None:
                    start = max(size - request.suffix, 0)
                    return await self._answer(RangeByteRequest(start, size))
            if not means_ranges_unsupported(error):
                await self._raise_unless_compressed(request, error)
            async with self._whole_chunk_lock:
                if self._whole_chunk is not None:
                    raise StopRequestsError from None
                return await self._answer(None)
        count_request(self._store_path, request, buffer)
        if buffer is None:
            return None
        return _Answer(buffer.as_numpy_array(), may_be_range=request is not None)

    async def _raise_unless_compressed(self, request: _Request, error: Exception) -> None:
        """Raise the error of a range, unless a server may keep the object compressed.

        That may be so where it refuses a range of a chunk, or the index of a shard, by HTTP status
        416. Raises ChunkSizeError where the object ends before the range does.
        """
        start = getattr(request, "start", 0)
        stop = getattr(request, "end", self._stored_nbytes or 0)
        size = await _object_size(self._store_path) if self._takes_slots else None
        if size is not None and size < stop:
            raise wrong_size_error(self.object_name, start, stop, max(size - start, 0)) from error
        first = getattr(request, "offset", start)
        if size is None and self._takes_slots and await self._ends_before(first):
            raise wrong_size_error(self.object_name, first, stop, 0) from error
        is_of_inner_chunk = self._has_requested_range and not self._stored_nbytes
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

    def check_nothing_has_come(self) -> None:
        """Raise a ChunkSizeError if a part of the chunk has come, after a MissingChunkError."""
        if self._has_answer:
            raise ChunkSizeError(
                f"some byte ranges of {self.object_name} are there and others are missing: the"
                " chunk was deleted or replaced while it was read"
            )

    def _keep_whole_chunk(self, chunk: Bytes) -> None:
        """Keep the whole object, and let go the ranges that wait; ChunkSizeError if it is not one.

        The size of a shard is not known here.
        """
        expected = self._stored_nbytes
        if expected is not None and chunk.size != expected:
            raise wrong_size_error(self.object_name, 0, expected, chunk.size)
        self._whole_chunk = chunk
        self._answer_is_known.set()

    def _ranges_of_whole(self, chunk: Bytes, ranges: ByteRanges) -> Bytes:
        """The bytes of the ranges, out of the whole object; ChunkSizeError if it ends before."""
        if self._stored_nbytes is None:  # a shard, whose size is not known before
            for start, stop, _ in ranges.ranges():
                if stop > chunk.size:
                    raise wrong_size_error(
                        self.object_name, start, stop, max(chunk.size - start, 0)
                    )
        return ranges.extract(chunk)

    def _record_that_ranges_are_ignored(self) -> None:
        """Remember that the store ignores ranges, and warn the caller of zarr of it, once a store.

        After `_keep_whole_chunk`, whose size the warning tells.
        """
        if record_whole_object_answer(self._store_path.store):
            nbytes = cast("Bytes", self._whole_chunk).size
            warn_caller(
                f"{store_name(self._store_path.store)} does not answer byte ranges, so chunks are"
                f" fetched whole each time that a part of them is read: {nbytes} bytes here,"
                f" where {self._plan.nbytes} were needed; from a server that answers ranges, such"
                " as nginx, only these are fetched"
            )


def count_request(store_path: StorePath, request: _Request | None, found: Buffer | None) -> None:
    """Add a request and its bytes to the counts; `found` is the answer, None for a missing object.

    A request of None was for the whole object, and no byte range.
    """
    nbytes = 0 if found is None else len(found)
    ranges = 0 if request is None else 1
    counters.count(store_path.store, requests=1, ranges=ranges, bytes_fetched=nbytes)


async def _object_size(store_path: StorePath) -> int | None:
    """Size of an object; None if the store fails, or would have to read the object to tell."""
    with suppress(Exception):  # the error of the request is the one to raise
        if type(store_path.store).getsize is not Store.getsize:
            return await store_path.store.getsize(store_path.path)
    return None
