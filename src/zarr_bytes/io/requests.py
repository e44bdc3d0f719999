"""The bytes of a chunk through the `get` of a store, by ranges or whole.

A range that comes back short is an error, and so are missing ranges beside existing ones. Servers
that send the whole object (HTTP status 200 instead of 206) can be read, and stores that refuse
ranges. Until a store is known to answer them, the first of each chunk is requested alone.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

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


_is_within = ContextVar("is_within", default=False)  # a request that is under way
_FREE: Final = nullcontext()


class MissingChunkError(StopRequestsError):
    """A chunk is missing, which readers take for the fill value."""


class ChunkRequests:
    """The requests for one chunk, which is counted; no coroutine waits where it `is_sync`."""

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
        self._is_sync = is_sync
        self._takes_slots = not (driver.is_memory or is_sync)
        # A store may read another array for its answer, and would wait for the slot that it has.
        is_limited = self._takes_slots and not _is_within.get()
        slots = slots_of_loop() if is_limited else (_FREE, _FREE)
        # For one request, and for the bytes of a fetch: no more of them are in memory than slots.
        self._slot: AbstractAsyncContextManager[object] = slots[0]
        self.memory: AbstractAsyncContextManager[object] = slots[1]
        self._store_path, self._origin = store_path, driver.origin
        self._requests_whole = cost is None  # also for an index
        self._prototype = prototype
        self._stored_nbytes = layout.stored_nbytes
        self._plan = cast("Plan", plan)  # which nothing but ranges and indexes asks for
        self._whole_chunk: Bytes | None = (
            None  # whole, once it has come: then nothing more is fetched
        )
        self._has_answer = False  # whether anything has come
        self._has_requested_range = (
            False  # whether a range has been requested, after which others wait
        )
        self._has_requested_whole = False  # whether all of it is, after a range of another size
        self._whole_chunk_lock = asyncio.Lock()  # of refused ranges, which gets all of the chunk
        self._answer_is_known = asyncio.Event()  # until its answer has told what ranges bring
        counters.count(store_path.store, chunks=1)

    @property
    def key(self) -> str:
        """The key of the chunk, for messages."""
        return path_name(self._store_path)

    @property
    def slots(self) -> int:
        """Number of requests that are under way at once; 1 for a chunk that has come."""
        return max_concurrent_requests() if self._takes_slots and self._whole_chunk is None else 1

    async def fetch_whole(self) -> Bytes:
        """The bytes of the chunk in one request, which `fetch` has then, too."""
        content, _ = await self._get(None)
        self._keep_whole_chunk(content)
        return content

    async def fetch_index(self, layout: ObjectLayout) -> tuple[Bytes, int | None]:
        """The bytes of the index of a shard, in one request, and the size of the shard.

        The size is None unless the whole shard has come.
        """
        nbytes = layout.index_nbytes
        request = RangeByteRequest(0, nbytes) if layout.data_offset else SuffixByteRequest(nbytes)
        content, is_range = await self._get(None if self._requests_whole else request)
        if is_range and layout.data_offset and content.size != nbytes:
            whole, _ = await self._get(None)  # perhaps a server keeps it compressed
            content, is_range = whole, whole.size == content.size
        if is_range and content.size <= nbytes:
            record_range_answer(self._store_path.store, self._origin)
            return content, None
        self._keep_whole_chunk(content)
        if not self._requests_whole:
            self._warn_of_whole_object()
        start = layout.index_offset(content.size)
        return content[start : start + nbytes], content.size

    async def fetch(self, ranges: ByteRanges, max_request_nbytes: int) -> Bytes:
        """The bytes of ranges one after another, in requests of at most `max_request_nbytes`."""
        fetched: Bytes | None = None

        async def work(request: tuple[int, int, int]) -> None:
            nonlocal fetched
            start, stop, position = request
            part = await self._fetch_range(start, stop)
            if part.size == ranges.nbytes:
                fetched = part
                return
            if fetched is None:
                fetched = np.empty(ranges.nbytes, np.uint8)
            fetched[position : position + part.size] = part

        try:
            await map_concurrently(work, ranges.requests(max_request_nbytes), self.slots)
        except StopRequestsError:
            if self._whole_chunk is None:
                raise
        return (
            cast("Bytes", fetched)
            if self._whole_chunk is None
            else self._ranges_of_whole(self._whole_chunk, ranges)
        )

    async def _fetch_range(self, start: int, stop: int) -> Bytes:
        """The bytes of one range; an EnoughError where the chunk has come instead.

        The last of a whole chunk is open-ended, which proves the size of the chunk.
        """
        if self._has_requested_range and not is_known_to_answer_ranges(
            self._store_path.store, self._origin
        ):
            await self._answer_is_known.wait()
        self._has_requested_range = True
        if self._whole_chunk is not None:
            raise StopRequestsError
        is_end = self._plan.reads_whole_chunk and stop == self._stored_nbytes
        request = OffsetByteRequest(start) if is_end else RangeByteRequest(start, stop)
        expected, stored = stop - start, self._stored_nbytes
        try:
            content, is_range = await self._get(request)
            size = content.size
            if is_range and is_end and size == stored != expected:
                content, is_range = await self._get(None)  # perhaps it came instead of its end
            elif is_range and size not in (expected, stored):
                if stored is not None and size > expected:
                    raise wrong_size_error(self.key, 0, stored, size + start * is_end)
                raise wrong_size_error(self.key, start, stop, size)
        except ChunkSizeError:
            if not await self._fetch_whole_once():
                raise
            raise StopRequestsError from None
        if not is_range or content.size != expected:
            self._keep_whole_chunk(content)
            self._warn_of_whole_object()
            raise StopRequestsError
        record_range_answer(self._store_path.store, self._origin)
        self._answer_is_known.set()
        return content

    async def _fetch_whole_once(self) -> bool:
        """Whether a chunk has its size, of which no range has: a server may keep it compressed."""
        if self._has_requested_whole:
            await self._answer_is_known.wait()
        elif self._stored_nbytes is not None and not self._answer_is_known.is_set():
            self._has_requested_whole = True
            content, _ = await self._get(None)
            if content.size == self._stored_nbytes:
                self._keep_whole_chunk(content)
        return self._whole_chunk is not None

    async def _get(self, request: _Request | None) -> tuple[Bytes, bool]:
        """The bytes that a request brings, and whether they may be the range."""
        if self._slot is _FREE:
            found, is_range = await self._answer(request)
        else:
            async with self._slot:
                within = _is_within.set(True)
                try:
                    found, is_range = await self._answer(request)
                finally:
                    _is_within.reset(within)
        if found is None:
            raise MissingChunkError
        self._has_answer = True
        return found.as_numpy_array(), is_range

    async def _answer(self, request: _Request | None) -> tuple[Buffer | None, bool]:
        """The answer of the store, to a request for the whole object where it has no ranges."""
        try:
            if self._is_sync:
                found = self._store_path.get_sync(prototype=self._prototype, byte_range=request)
            else:
                found = await self._store_path.get(self._prototype, request)
        except Exception as error:
            if request is None:
                raise
            if isinstance(request, SuffixByteRequest):  # Azure and caches have other ranges
                size = await _size(self._store_path)
                if size is not None:
                    start = max(size - request.suffix, 0)
                    return await self._answer(RangeByteRequest(start, size))
            if not means_ranges_unsupported(error):
                await self._check_is_within(request, error)
            async with self._whole_chunk_lock:
                if self._whole_chunk is not None:
                    raise StopRequestsError from None
                return await self._answer(None)
        count_request(self._store_path, request, found)
        return found, request is not None

    async def _check_is_within(self, request: _Request, error: Exception) -> None:
        """Raise the error of a range, unless the object may be compressed (HTTP status 416).

        A ChunkSizeError where the object ends before the range does.
        """
        start, end = getattr(request, "start", 0), getattr(request, "end", self._stored_nbytes or 0)
        size = await _size(self._store_path) if self._takes_slots else None
        if size is not None and size < end:
            raise wrong_size_error(self.key, start, end, max(size - start, 0)) from error
        first = getattr(request, "offset", start)
        if size is None and self._takes_slots and await self._ends_before(first):
            raise wrong_size_error(self.key, first, end, 0) from error
        is_named = self._has_requested_range and not self._stored_nbytes  # by an index
        if is_named or getattr(error, "status", 0) != 416:
            raise error

    async def _ends_before(self, offset: int) -> bool:
        """Whether the first byte of the object comes, and the byte at `offset` does not.

        For a store that does not tell sizes and has an error of its own for a range behind the end,
        as those of obstore have. Where it fails for another reason, the first byte fails, too.
        """
        return offset > 0 and await self._comes(0) and not await self._comes(offset)

    async def _comes(self, offset: int) -> bool:
        """Whether the store sends the byte at `offset`, and no other bytes."""
        request = RangeByteRequest(offset, offset + 1)
        with suppress(Exception):  # of any store: the first error is the one to raise
            found = await self._store_path.get(self._prototype, request)
            count_request(self._store_path, request, found)
            return found is not None and len(found) == 1
        return False

    def check_nothing_has_come(self) -> None:
        """Check that nothing of a chunk has come whose ranges are missing."""
        if self._has_answer:
            raise ChunkSizeError(
                f"some byte ranges of {self.key} are there and others are missing: the chunk"
                " was deleted or replaced while it was read"
            )

    def _keep_whole_chunk(self, chunk: Bytes) -> None:
        expected = self._stored_nbytes
        if expected is not None and chunk.size != expected:
            raise wrong_size_error(self.key, 0, expected, chunk.size)
        self._whole_chunk = chunk
        self._answer_is_known.set()

    def _ranges_of_whole(self, chunk: Bytes, ranges: ByteRanges) -> Bytes:
        """The ranges, out of the whole object, which has come."""
        if self._stored_nbytes is None:  # a shard, whose size is not known before
            for start, stop, _ in ranges.ranges():
                if stop > chunk.size:
                    raise wrong_size_error(self.key, start, stop, max(chunk.size - start, 0))
        return ranges.extract(chunk)

    def _warn_of_whole_object(self) -> None:
        if record_whole_object_answer(self._store_path.store):
            nbytes = cast("Bytes", self._whole_chunk).size
            warn_caller(
                f"{store_name(self._store_path.store)} does not answer byte ranges, so chunks are"
                f" fetched whole each time that a part of them is read: {nbytes} bytes here,"
                f" where {self._plan.nbytes} were needed; from a server that answers ranges, such"
                " as nginx, only these are fetched"
            )


def count_request(store_path: StorePath, request: _Request | None, found: Buffer | None) -> None:
    """Count a request that a store has answered."""
    nbytes = 0 if found is None else len(found)
    counters.count(
        store_path.store, requests=1, ranges=int(request is not None), bytes_fetched=nbytes
    )


async def _size(store_path: StorePath) -> int | None:
    """Size of the object behind `getter`, where the store has it without reading the object."""
    with suppress(Exception):  # the error of the request is the one to raise
        if type(store_path.store).getsize is not Store.getsize:
            return await store_path.store.getsize(store_path.path)
    return None
