"""The bytes of a chunk through the `get` of a store, by ranges or whole.

The result is one NumPy array of bytes, the ranges one after another. A range that comes back short
is an error, and so are missing ranges beside existing ones: the result never has zeros or a mix.

Some servers ignore ranges and send the whole object (HTTP status 200 instead of 206), and some
stores refuse ranges. Both can be read: the whole object is the chunk if it has its size. Until a
store is known to answer ranges with ranges, the first range of each chunk is requested alone, so
that no chunk is sent several times, and a whole chunk in one request, however large.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from zarr_bytes.errors import ChunkSizeError, warn_caller, wrong_size
from zarr_bytes.io import counters
from zarr_bytes.io.known_stores import (
    answers_ranges,
    keep_index,
    kept_index,
    note_ranges,
    note_whole_object,
    says_that_there_are_no_ranges,
)
from zarr_bytes.io.tasks import EnoughError, number_of_slots, slots_of_loop, together

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from zarr.abc.buffer import Buffer, BufferPrototype
    from zarr.abc.store import ByteGetter
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import ByteRanges, Plan
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.format import Format
    from zarr_bytes.zarr_versions import SyncByteGetter

_Request: TypeAlias = "RangeByteRequest | OffsetByteRequest | SuffixByteRequest"


class MissingChunkError(Exception):
    """A chunk is missing, which readers take for the fill value."""


class Requests:
    """The requests for one chunk, which is counted; no coroutine waits where it `is_sync`.

    Warns once of a store that has answered a range with the whole object, or refused it.
    """

    def __init__(
        self,
        getter: StorePath,
        plan: Plan,
        prototype: BufferPrototype,
        *,
        origin: str = "",
        is_asked_whole: bool = False,
        is_sync: bool = False,
        takes_slots: bool = True,
    ) -> None:
        self.is_sync = is_sync
        self._takes_slots = takes_slots and not is_sync
        self._getter, self._origin = getter, origin
        self._is_asked_whole = is_asked_whole  # also for an index
        self._plan = plan
        self._prototype = prototype
        self._stored_nbytes = plan.format.stored_nbytes
        self._chunk: Bytes | None = None  # whole, once it has come
        self._is_there = False  # whether a range has come
        if counters.counters:
            counters.note(getter.store, chunks=1)

    @property
    def key(self) -> str:
        """The key of the chunk, for messages."""
        return str(self._getter)

    @cached_property
    def known(self) -> asyncio.Event:
        """Set once the first answer has told what ranges bring."""
        return asyncio.Event()

    @property
    def slots(self) -> int:
        """Number of requests that are under way at once; 1 for a chunk that has come."""
        return 1 if self.is_sync or self._chunk is not None else number_of_slots()

    @property
    def answers_ranges(self) -> bool:
        """Whether it is known that ranges are answered with ranges, or the chunk has come."""
        return self._chunk is not None or answers_ranges(self._getter.store, self._origin)

    async def fetch_whole(self) -> None:
        """Get the bytes of the chunk in one request, for `fetch`."""
        async with self._slot():
            found = await self._get(None)
        if found is None:
            raise MissingChunkError
        self._check(found)

    async def fetch_index(self, format: Format) -> tuple[Bytes, int | None]:
        """The bytes of the index of a shard, in one request, and its size, if that is known."""
        nbytes, kept = format.index_nbytes, kept_index(self._getter)
        if kept is not None:
            keep_index(self._getter, kept)
            return kept, None
        request = RangeByteRequest(0, nbytes) if format.first else SuffixByteRequest(nbytes)
        async with self._slot():
            if self._is_asked_whole:
                buffer, is_range = await self._get(None), False
            else:
                buffer, is_range = await self._get_range(request)
        if buffer is None:
            raise MissingChunkError
        self._is_there = True
        content: Bytes = buffer.as_numpy_array()
        if is_range and content.size <= nbytes:
            self._note_ranges()
            keep_index(self._getter, content)
            return content, None
        self._chunk = content
        if not self._is_asked_whole:
            self._note_whole_object()
        start = format.index_start(content.size)
        return content[start : start + nbytes], content.size

    async def fetch(self, ranges: ByteRanges, largest: int) -> Bytes:
        """The bytes of ranges one after another, in requests of at most `largest` bytes.

        Several are under way at a time, unless `is_sync`. The last of a chunk that is read whole is
        open-ended, which proves the size of the chunk.

        A request that fails cancels the others and waits for them; so does cancelling the caller.
        """
        if self._chunk is not None:
            return self.part(ranges)
        collected = _Collected(self._getter, ranges.nbytes, self._stored_nbytes)
        end = self._stored_nbytes if self._plan.is_whole else None

        async def work(requests: Iterable[tuple[int, int, int]]) -> None:
            for start, stop, position in requests:
                request = RangeByteRequest(start, stop) if stop != end else OffsetByteRequest(start)
                async with self._slot():
                    buffer, is_range = await self._get_range(request)
                if not collected.add(buffer, start, stop, position, is_range=is_range, end=end):
                    raise EnoughError
                if not self.answers_ranges:
                    self._note_ranges()
                self.known.set()  # also where another chunk has told meanwhile

        requests, count = ranges.requests(largest), ranges.number_of_requests(largest)
        limit = self.slots
        try:
            if count == 1 or limit == 1 or not self.answers_ranges:
                await work(requests if limit == 1 else islice(requests, 1))
            if count > 1 and limit > 1:
                await together([work(requests) for _ in range(min(limit, count))])
        except EnoughError:
            pass  # the chunk is missing, or has come whole
        return self._result(collected, ranges)

    def memory(self) -> AbstractAsyncContextManager[object]:
        """A slot for the bytes of a fetch: no more of them are in memory than there are slots."""
        return slots_of_loop()[1] if self._takes_slots else nullcontext()

    def _slot(self) -> AbstractAsyncContextManager[object]:
        return slots_of_loop()[0] if self._takes_slots else nullcontext()

    async def _get(self, request: _Request | None) -> Buffer | None:
        if self.is_sync:
            getter = cast("SyncByteGetter", self._getter)
            found = getter.get_sync(prototype=self._prototype, byte_range=request)
        else:
            found = await cast("ByteGetter", self._getter).get(self._prototype, request)
        if counters.counters:
            note_request(self._getter, request, found)
        return found

    async def _get_range(self, request: _Request) -> tuple[Buffer | None, bool]:
        """The answer to a request, and whether it may be the range.

        Some stores answer a range past the end with an error (HTTP status 416).
        """
        try:
            return await self._get(request), True
        except Exception as error:
            if not says_that_there_are_no_ranges(error):
                await self._check_is_within(request, error)
                raise
            if isinstance(request, SuffixByteRequest):  # Azure has other ranges
                size = await _size(self._getter)
                if size is not None:
                    start = max(size - request.suffix, 0)
                    return await self._get_range(RangeByteRequest(start, size))
        return await self._get(None), False

    async def _check_is_within(self, request: _Request, error: Exception) -> None:
        size = None if self.is_sync else await _size(self._getter)
        if size is None or not isinstance(request, RangeByteRequest) or size >= request.end:
            return
        found = max(size - request.start, 0)
        raise wrong_size(self.key, request.start, request.end, found) from error

    def _result(self, collected: _Collected, ranges: ByteRanges) -> Bytes:
        if collected.is_missing:
            if self._is_there or collected.fetched is not None:
                raise ChunkSizeError(
                    f"some byte ranges of {self.key} are there and others are missing: the chunk"
                    " was deleted or replaced while it was read"
                )
            raise MissingChunkError
        self._is_there = True
        if collected.whole is None:
            return cast("Bytes", collected.fetched)
        self._check(collected.whole)
        self._note_whole_object()
        return self.part(ranges)

    def _check(self, buffer: Buffer) -> None:
        chunk: Bytes = buffer.as_numpy_array()
        expected = self._stored_nbytes
        if expected is not None and chunk.size != expected:
            raise wrong_size(self.key, 0, expected, chunk.size)
        self._chunk = chunk
        self.known.set()

    @property
    def has_come(self) -> bool:
        """Whether the whole object has come, so that nothing more is fetched."""
        return self._chunk is not None

    def part(self, ranges: ByteRanges) -> Bytes:
        """The ranges, out of the whole object, which has come."""
        chunk = cast("Bytes", self._chunk)
        if self._stored_nbytes is None:  # a shard, whose size is not known before
            for start, stop, _ in ranges.ranges():
                if stop > chunk.size:
                    raise wrong_size(self.key, start, stop, max(chunk.size - start, 0))
        return ranges.of(chunk)

    def _note_ranges(self) -> None:
        note_ranges(self._getter.store, self._origin)
        self.known.set()

    def _note_whole_object(self) -> None:
        if note_whole_object(self._getter.store):
            warn_caller(
                f"{self._getter.store} does not answer byte ranges, so chunks are fetched whole"
                f" each time that a part of them is read: {self._plan.format.nbytes} bytes here,"
                f" where {self._plan.nbytes} were needed; from a server that answers ranges, such"
                " as nginx, only these are fetched"
            )


def note_request(getter: StorePath, request: _Request | None, found: Buffer | None) -> None:
    """Count a request that a store has answered."""
    nbytes = 0 if found is None else len(found)
    counters.note(getter.store, requests=1, ranges=int(request is not None), bytes_fetched=nbytes)


class _Collected:
    """The bytes of the ranges so far, and whether the chunk is missing or has come whole."""

    def __init__(self, key: StorePath, nbytes: int, stored_nbytes: int | None) -> None:
        self._key = key
        self._nbytes = nbytes
        self._stored_nbytes = stored_nbytes  # None for a shard, whose index has come as a range
        self.fetched: Bytes | None = None
        self.is_missing = False
        self.whole: Buffer | None = None

    def add(
        self,
        buffer: Buffer | None,
        start: int,
        stop: int,
        position: int,
        *,
        is_range: bool,
        end: int | None,
    ) -> bool:
        """Add the answer to a request; False if no other request is needed.

        That of a range to the `end` is never taken for the whole chunk, since ranges are answered.
        """
        if buffer is None:
            self.is_missing = True
            return False
        nbytes = len(buffer)
        if stop == end and is_range and nbytes > stop - start:
            raise wrong_size(str(self._key), 0, stop, start + nbytes)
        if not is_range or (nbytes > stop - start and self._stored_nbytes is not None):
            self.whole = buffer
            return False
        if nbytes != stop - start:
            raise wrong_size(str(self._key), start, stop, nbytes)
        part = buffer.as_numpy_array()
        if part.size == self._nbytes:
            self.fetched = part
            return True
        if self.fetched is None:
            self.fetched = np.empty(self._nbytes, np.uint8)
        self.fetched[position : position + part.size] = part
        return True


async def _size(getter: StorePath) -> int | None:
    """Size of the object behind `getter`, where the store has it without reading the object."""
    if type(getter.store).getsize is Store.getsize:
        return None
    try:
        return await getter.store.getsize(getter.path)
    except Exception:  # noqa: BLE001 -- the error of the request is the one to raise
        return None
