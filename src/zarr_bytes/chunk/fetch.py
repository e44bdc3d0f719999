"""Fetching the byte ranges of a chunk through the `get` of a store.

What is fetched comes back as one NumPy array of bytes, the ranges one after another, or None where
the chunk is missing. A range that comes back short is an error, and so are some ranges that are
missing where others are there: never zeros, never a mix.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest, Store
from zarr.storage import StorePath

from zarr_bytes.errors import ChunkSizeError, wrong_size

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer, BufferPrototype
    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.byte_ranges import Plan
    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.zarr_versions import SyncByteGetter

__all__ = ["fetch", "fetch_sync"]


def fetch_sync(getter: SyncByteGetter, plan: Plan, prototype: BufferPrototype) -> Bytes | None:
    """`fetch` through the synchronous `get_sync` of a store: ranges one after another."""
    collected = _Collected(str(getter), plan)
    for start, stop, position in plan.ranges():
        request = None if plan.is_whole_chunk else RangeByteRequest(start, stop)
        buffer = getter.get_sync(prototype=prototype, byte_range=request)
        if not collected.add(buffer, start, stop, position):
            break
    return collected.result()


async def fetch(getter: ByteGetter, plan: Plan, prototype: BufferPrototype) -> Bytes | None:
    """Ranges through the `get` of a store, concurrently within zarr's ``async.concurrency``.

    A request that fails cancels the others and waits for them; so does cancelling the caller.

    Returns
    -------
    array of uint8, 1-D, or None
        `plan.nbytes` bytes, or None if the chunk is missing.

    Raises
    ------
    ChunkSizeError
        If a range comes back with another size, or is missing where others are there.
    """
    collected = _Collected(str(getter), plan)
    ranges = plan.ranges()
    slots, limit = _slots()

    async def work() -> None:
        for start, stop, position in ranges:
            request = None if plan.is_whole_chunk else RangeByteRequest(start, stop)
            async with slots:
                buffer = await _get(getter, prototype, request)
            if not collected.add(buffer, start, stop, position):
                raise _MissingError

    if plan.starts.size == 1:
        with suppress(_MissingError):
            await work()
        return collected.result()
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(limit, plan.starts.size)):
                tasks.create_task(work())
    except* _MissingError:
        pass  # the chunk is missing, as far as the requests go that were not cancelled
    except* Exception as failures:  # noqa: BLE001 -- raised again, as the one that a caller expects
        failure = _first(failures)
    if failure is not None:
        raise failure
    return collected.result()


class _MissingError(Exception):
    pass


class _Collected:
    """The bytes of the ranges so far; knows whether the chunk is there, missing, or both."""

    def __init__(self, key: str, plan: Plan) -> None:
        self._key = key
        self._plan = plan
        self._fetched: Bytes | None = None
        self._is_missing = False

    def add(self, buffer: Buffer | None, start: int, stop: int, position: int) -> bool:
        """Take what a request has brought; False if the chunk is missing."""
        if buffer is None:
            self._is_missing = True
            return False
        part = buffer.as_numpy_array()
        if part.size != stop - start:
            raise wrong_size(self._key, start, stop, part.size)
        if self._plan.starts.size == 1:
            self._fetched = part
            return True
        if self._fetched is None:
            self._fetched = np.empty(self._plan.nbytes, np.uint8)
        self._fetched[position : position + part.size] = part
        return True

    def result(self) -> Bytes | None:
        if self._is_missing and self._fetched is not None:
            raise ChunkSizeError(
                f"some byte ranges of {self._key} are there and others are missing: the chunk was"
                " deleted or replaced while it was read"
            )
        return self._fetched if self._plan.starts.size else np.empty(0, np.uint8)


async def _get(
    getter: ByteGetter, prototype: BufferPrototype, request: RangeByteRequest | None
) -> Buffer | None:
    """`getter.get`; some stores answer a range past the end with an error (HTTP status 416)."""
    try:
        return await getter.get(prototype, request)
    except Exception as error:
        size = None if request is None else await _size(getter)
        if request is None or size is None or size >= request.end:
            raise
        found = max(size - request.start, 0)
        raise wrong_size(str(getter), request.start, request.end, found) from error


async def _size(getter: ByteGetter) -> int | None:
    """Size of the object behind `getter`, where the store can tell without reading it."""
    if not isinstance(getter, StorePath) or type(getter.store).getsize is Store.getsize:
        return None
    try:
        return await getter.store.getsize(getter.path)
    except Exception:  # noqa: BLE001 -- the error of the request is the one to raise
        return None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


# One semaphore an event loop, so that the chunks of a read share zarr's limit.
_slots_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, int]] = (
    WeakKeyDictionary()
)


def _slots() -> tuple[asyncio.Semaphore, int]:
    loop, limit = asyncio.get_running_loop(), zarr.config.get("async.concurrency") or 2**31
    if loop not in _slots_of_loop or _slots_of_loop[loop][1] != limit:
        _slots_of_loop[loop] = asyncio.Semaphore(limit), limit
    return _slots_of_loop[loop]
