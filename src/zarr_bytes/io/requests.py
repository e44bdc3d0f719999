"""The bytes of a chunk through the `get` of a store, by ranges or whole.

The result is one NumPy array of bytes, the ranges one after another. A range that comes back short
is an error, and so are missing ranges beside existing ones: the result never has zeros or a mix.

Some servers ignore ranges and send the whole object (HTTP status 200 instead of 206), and some
stores refuse ranges. Both can be read: the whole object is the chunk if it has its size. Until a
store has answered a range with a range, the first range of each chunk is requested alone, so that
no chunk is sent several times.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import StorePath

from zarr_bytes.errors import partly_missing, warn_caller, wrong_size
from zarr_bytes.io import counters
from zarr_bytes.io.range_support import (
    has_answered_ranges,
    note_ranges,
    note_whole_object,
    says_that_there_are_no_ranges,
    store_of,
)
from zarr_bytes.io.tasks import EnoughError, slots_of_loop, together

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from zarr.abc.buffer import Buffer, BufferPrototype
    from zarr.abc.store import ByteGetter

    from zarr_bytes.indexing.plan import ByteRanges, Plan
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.format import Format
    from zarr_bytes.zarr_versions import SyncByteGetter

_Request: TypeAlias = "RangeByteRequest | SuffixByteRequest"


class MissingChunkError(Exception):
    """A chunk is missing, which readers take for the fill value."""


class Requests:
    """The requests for one chunk, which is counted; no coroutine waits where it `is_sync`.

    Warns once of a store that has answered a range with the whole object, or refused it.
    """

    def __init__(
        self,
        getter: ByteGetter | SyncByteGetter,
        plan: Plan,
        prototype: BufferPrototype,
        *,
        is_sync: bool = False,
        is_asked_whole: bool = False,
    ) -> None:
        self.is_sync = is_sync
        self._is_asked_whole = is_asked_whole  # also for the index of a shard
        self.key = str(getter)
        self._getter = getter
        self._plan = plan
        self._prototype = prototype
        self._stored_nbytes = plan.format.stored_nbytes
        self._chunk: Bytes | None = None  # whole, once it has come
        self._is_there = False  # whether a range has come
        if counters.counters:
            counters.note(store_of(getter), chunks=1)

    async def fetch_whole(self) -> None:
        """Get the bytes of the chunk in one request, for `fetch`."""
        slots, _ = self._slots()
        async with slots:
            found = await self._get(None)
        if found is None:
            raise MissingChunkError
        self._check(found)

    async def fetch_index(self, format: Format) -> tuple[Bytes, int | None]:
        """The bytes of the index of a shard, in one request, and its size, if that is known."""
        nbytes = format.index_nbytes
        request = RangeByteRequest(0, nbytes) if format.first else SuffixByteRequest(nbytes)
        slots, _ = self._slots()
        async with slots:
            if self._is_asked_whole:
                buffer, is_range = await self._get(None), False
            else:
                buffer, is_range = await self._get_range(request)
        if buffer is None:
            raise MissingChunkError
        self._is_there = True
        content: Bytes = buffer.as_numpy_array()
        if is_range and content.size <= nbytes:
            note_ranges(self._getter)
            return content, None
        self._chunk = content
        if not self._is_asked_whole:
            self._note_whole_object()
        start = format.index_start(content.size)
        return content[start : start + nbytes], content.size

    async def fetch(self, ranges: ByteRanges) -> Bytes:
        """The bytes of ranges one after another, several requests at a time unless `is_sync`.

        A request that fails cancels the others and waits for them; so does cancelling the caller.
        """
        if self._chunk is not None:
            return self._part(ranges)
        collected = _Collected(self._getter, ranges.nbytes, self._stored_nbytes)
        slots, limit = self._slots()

        async def work(requests: Iterable[tuple[int, int, int]]) -> None:
            for start, stop, position in requests:
                async with slots:
                    buffer, is_range = await self._get_range(RangeByteRequest(start, stop))
                if not collected.add(buffer, start, stop, position, is_range=is_range):
                    raise EnoughError

        largest = self._plan.largest_request
        requests, count = ranges.requests(largest), ranges.number_of_requests(largest)
        try:
            if count == 1 or limit == 1 or not has_answered_ranges(self._getter):
                await work(requests if limit == 1 else islice(requests, 1))
            if count > 1 and limit > 1:
                await together([work(requests) for _ in range(min(limit, count))])
        except EnoughError:
            pass  # the chunk is missing, or has come whole
        return self._result(collected, ranges)

    def _slots(self) -> tuple[AbstractAsyncContextManager[object], int]:
        return (nullcontext(), 1) if self.is_sync else slots_of_loop()

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
        if size is None or isinstance(request, SuffixByteRequest) or size >= request.end:
            return
        found = max(size - request.start, 0)
        raise wrong_size(self.key, request.start, request.end, found) from error

    def _result(self, collected: _Collected, ranges: ByteRanges) -> Bytes:
        if collected.is_missing:
            if self._is_there or collected.fetched is not None:
                raise partly_missing(self.key)
            raise MissingChunkError
        self._is_there = True
        if collected.whole is None:
            return cast("Bytes", collected.fetched)
        self._check(collected.whole)
        self._note_whole_object()
        return self._part(ranges)

    def _check(self, buffer: Buffer) -> None:
        chunk: Bytes = buffer.as_numpy_array()
        expected = self._stored_nbytes
        if expected is not None and chunk.size != expected:
            raise wrong_size(self.key, 0, expected, chunk.size)
        self._chunk = chunk

    def _part(self, ranges: ByteRanges) -> Bytes:
        """The ranges, out of the whole chunk."""
        chunk = cast("Bytes", self._chunk)
        parts = []
        for start, stop, _ in ranges.ranges():
            if stop > chunk.size:  # a shard, whose size is not known before
                raise wrong_size(self.key, start, stop, max(chunk.size - start, 0))
            parts.append(chunk[start:stop])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _note_whole_object(self) -> None:
        if note_whole_object(self._getter):
            warn_caller(
                f"{store_of(self._getter)} does not answer byte ranges, so chunks are fetched whole"
                f" each time that a part of them is read: {self._plan.format.nbytes} bytes here,"
                f" where {self._plan.nbytes} were needed; from a server that answers ranges, such"
                " as nginx, only these are fetched"
            )


def note_request(
    getter: ByteGetter | SyncByteGetter, request: _Request | None, found: Buffer | None
) -> None:
    """Count a request that a store has answered."""
    nbytes = 0 if found is None else len(found)
    counters.note(store_of(getter), requests=1, ranges=int(request is not None), fetched=nbytes)


class _Collected:
    """The bytes of the ranges so far, and whether the chunk is missing or has come whole."""

    def __init__(
        self, getter: ByteGetter | SyncByteGetter, nbytes: int, stored_nbytes: int | None
    ) -> None:
        self._getter = getter
        self._nbytes = nbytes
        self._stored_nbytes = stored_nbytes  # None for a shard, whose index has come as a range
        self.fetched: Bytes | None = None
        self.is_missing = False
        self._is_known = has_answered_ranges(getter)
        self.whole: Buffer | None = None

    def add(
        self, buffer: Buffer | None, start: int, stop: int, position: int, *, is_range: bool
    ) -> bool:
        """Add the answer to a request; False if no other request is needed."""
        if buffer is None:
            self.is_missing = True
            return False
        nbytes = len(buffer)
        if not is_range or (nbytes > stop - start and self._stored_nbytes is not None):
            self.whole = buffer
            return False
        if nbytes != stop - start:
            raise wrong_size(str(self._getter), start, stop, nbytes)
        part = buffer.as_numpy_array()
        if not self._is_known:
            self._is_known = True
            note_ranges(self._getter)
        if part.size == self._nbytes:
            self.fetched = part
            return True
        if self.fetched is None:
            self.fetched = np.empty(self._nbytes, np.uint8)
        self.fetched[position : position + part.size] = part
        return True


async def _size(getter: object) -> int | None:
    """Size of the object behind `getter`, where the store has it without reading the object."""
    if not isinstance(getter, StorePath) or type(getter.store).getsize is Store.getsize:
        return None
    try:
        return await getter.store.getsize(getter.path)
    except Exception:  # noqa: BLE001 -- the error of the request is the one to raise
        return None
