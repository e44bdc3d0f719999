"""Fetching the byte ranges of a chunk through the `get` of a store.

What is fetched comes back as one NumPy array of bytes, the ranges one after another, or None where
the chunk is missing. A range that comes back short is an error, and so are some ranges that are
missing where others are there: never zeros, never a mix.

Some servers ignore ranges and send the whole object (HTTP status 200 instead of 206), and some
stores refuse ranges. Both read: the whole object is taken for the chunk if it has its size. So that
no chunk comes several times over, the first range of a store goes alone, until the store has
answered one as a range.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest, Store
from zarr.storage import StorePath

from zarr_bytes.errors import ChunkSizeError, wrong_size

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from zarr.abc.buffer import Buffer, BufferPrototype
    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.zarr_versions import SyncByteGetter

__all__ = ["fetch", "fetch_sync", "for_each", "sends_whole_objects"]

T = TypeVar("T")
R = TypeVar("R")


def fetch_sync(
    getter: SyncByteGetter, plan: Plan, prototype: BufferPrototype, chunk_nbytes: int
) -> Bytes | None:
    """`fetch` through the synchronous `get_sync` of a store: ranges one after another."""
    collected = _Collected(getter, plan, chunk_nbytes)
    if collected.is_to_be_whole:
        return collected.of_whole(getter.get_sync(prototype=prototype))
    for start, stop, position in plan.ranges():
        is_range = True
        try:
            request = RangeByteRequest(start, stop)
            buffer = getter.get_sync(prototype=prototype, byte_range=request)
        except Exception as error:
            if not _says_that_there_are_no_ranges(error):
                raise
            buffer, is_range = getter.get_sync(prototype=prototype), False
        if not collected.add(buffer, start, stop, position, is_range=is_range):
            break
    return collected.result()


async def fetch(
    getter: ByteGetter, plan: Plan, prototype: BufferPrototype, chunk_nbytes: int
) -> Bytes | None:
    """Ranges through the `get` of a store, concurrently within zarr's ``async.concurrency``.

    A request that fails cancels the others and waits for them; so does cancelling the caller.

    Parameters
    ----------
    getter : zarr.abc.store.ByteGetter
        The chunk's key in a store.
    plan : Plan
        The ranges.
    prototype : zarr.abc.buffer.BufferPrototype
        Of buffers in NumPy memory.
    chunk_nbytes : int
        Size of the chunk, by which a whole object that comes for a range is known.

    Returns
    -------
    array of uint8, 1-D, or None
        `plan.nbytes` bytes, or None if the chunk is missing.

    Raises
    ------
    ChunkSizeError
        If a range comes back with another size, or is missing where others are there.

    Warns
    -----
    UserWarning
        Once for a store that has answered a range with the whole object, or refused it.
    """
    collected = _Collected(getter, plan, chunk_nbytes)
    slots, limit = _slots()

    async def work(ranges: Iterable[tuple[int, int, int]]) -> None:
        for start, stop, position in ranges:
            async with slots:
                buffer, is_range = await _get(getter, prototype, RangeByteRequest(start, stop))
            if not collected.add(buffer, start, stop, position, is_range=is_range):
                raise _EnoughError

    if collected.is_to_be_whole:
        async with slots:
            return collected.of_whole(await getter.get(prototype))
    ranges = plan.ranges()
    try:
        if plan.starts.size == 1 or not _is_among(_with_ranges, getter):
            await work(islice(ranges, 1))
        if plan.starts.size > 1:
            await _together([work(ranges) for _ in range(min(limit, plan.starts.size))])
    except _EnoughError:
        pass  # missing or whole, as far as the requests go that were not cancelled
    return collected.result()


async def for_each(work: Callable[[T], Coroutine[None, None, R]], items: Sequence[T]) -> list[R]:
    """Results of `work` for each of `items`, as many at a time as zarr's ``async.concurrency``.

    One that fails cancels the others, and its error is raised.
    """
    _, limit = _slots()
    waiting = iter(enumerate(items))
    results: dict[int, R] = {}

    async def run() -> None:
        for i, item in waiting:
            results[i] = await work(item)

    await _together([run() for _ in range(min(limit, len(items)))])
    return [results[i] for i in range(len(items))]


async def _together(workers: Iterable[Coroutine[None, None, None]]) -> None:
    """Run `workers`; one that fails cancels the others, and its error is raised as it is."""
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for worker in workers:
                tasks.create_task(worker)
    except* Exception as failures:  # noqa: BLE001 -- raised again, as the one that a caller expects
        failure = failures.split(_EnoughError)[1] or failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if failure is not None:
        raise failure


class _EnoughError(Exception):
    """No further range is needed: the chunk is missing, or it has come whole."""


class _Collected:
    """The bytes of the ranges so far; knows whether the chunk is there, missing, or both."""

    def __init__(self, getter: ByteGetter | SyncByteGetter, plan: Plan, chunk_nbytes: int) -> None:
        self._getter = getter
        self._plan = plan
        self._chunk_nbytes = chunk_nbytes
        self._fetched: Bytes | None = None
        self._whole: Buffer | None = None
        self._is_missing = False
        self._is_known = _is_among(_with_ranges, getter)
        self.is_to_be_whole = plan.is_whole_chunk or (
            plan.starts.size > 0 and sends_whole_objects(getter)
        )

    def add(
        self, buffer: Buffer | None, start: int, stop: int, position: int, *, is_range: bool
    ) -> bool:
        """Take what a request has brought; False if no other is needed."""
        if buffer is None:
            self._is_missing = True
            return False
        if not is_range or len(buffer) > stop - start:
            self._whole = buffer
            return False
        part = buffer.as_numpy_array()
        if part.size != stop - start:
            raise wrong_size(str(self._getter), start, stop, part.size)
        if not self._is_known:
            self._is_known = True
            _remember(_with_ranges, self._getter)
        if self._plan.starts.size == 1:
            self._fetched = part
            return True
        if self._fetched is None:
            self._fetched = np.empty(self._plan.nbytes, np.uint8)
        self._fetched[position : position + part.size] = part
        return True

    def result(self) -> Bytes | None:
        if self._whole is not None:
            fetched = self.of_whole(self._whole)
            if _remember(_without_ranges, self._getter):
                warnings.warn(self._cost_of_whole(), UserWarning, stacklevel=2)
            return fetched
        if self._is_missing and self._fetched is not None:
            raise ChunkSizeError(
                f"some byte ranges of {self._getter} are there and others are missing: the chunk"
                " was deleted or replaced while it was read"
            )
        return self._fetched if self._plan.starts.size else np.empty(0, np.uint8)

    def of_whole(self, buffer: Buffer | None) -> Bytes | None:
        """The ranges, out of the whole object."""
        if buffer is None:
            return None
        chunk: Bytes = buffer.as_numpy_array()
        if chunk.size != self._chunk_nbytes:
            raise wrong_size(str(self._getter), 0, self._chunk_nbytes, chunk.size)
        parts = [chunk[start:stop] for start, stop, _ in self._plan.ranges()]
        return parts[0] if len(parts) == 1 else np.concatenate([chunk[:0], *parts])

    def _cost_of_whole(self) -> str:
        return (
            f"{_store_of(self._getter)} does not answer byte ranges, so chunks are fetched whole"
            f" each time that a part of them is read: {self._chunk_nbytes} bytes here, where"
            f" {self._plan.nbytes} were needed; from a server that answers ranges, such as nginx,"
            " only these are fetched"
        )


async def _get(
    getter: ByteGetter, prototype: BufferPrototype, request: RangeByteRequest
) -> tuple[Buffer | None, bool]:
    """`getter.get`, and whether it is known to be the whole object instead of the range.

    Some stores answer a range past the end with an error (HTTP status 416).
    """
    try:
        return await getter.get(prototype, request), True
    except Exception as error:
        if not _says_that_there_are_no_ranges(error):
            size = await _size(getter)
            if size is None or size >= request.end:
                raise
            found = max(size - request.start, 0)
            raise wrong_size(str(getter), request.start, request.end, found) from error
    return await getter.get(prototype), False


def _says_that_there_are_no_ranges(error: Exception) -> bool:
    """Whether a store says by `error` that it cannot read a range of an object."""
    obstore = sys.modules.get("obstore.exceptions")  # loaded, if the error is one of its own
    return isinstance(error, NotImplementedError) or (
        obstore is not None and isinstance(error, obstore.NotSupportedError)
    )


async def _size(getter: ByteGetter) -> int | None:
    """Size of the object behind `getter`, where the store can tell without reading it."""
    if not isinstance(getter, StorePath) or type(getter.store).getsize is Store.getsize:
        return None
    try:
        return await getter.store.getsize(getter.path)
    except Exception:  # noqa: BLE001 -- the error of the request is the one to raise
        return None


# Stores that have answered a range with a range, and stores that have not, by identity: many have
# no hash.
_with_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()
_without_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()
_lock = threading.Lock()


def sends_whole_objects(getter: ByteGetter | SyncByteGetter) -> bool:
    """Whether the store of `getter` has answered a range with the whole object, or refused it."""
    return _is_among(_without_ranges, getter)


def _store_of(getter: ByteGetter | SyncByteGetter) -> object:
    return getter.store if isinstance(getter, StorePath) else getter


def _is_among(
    stores: WeakValueDictionary[int, object], getter: ByteGetter | SyncByteGetter
) -> bool:
    store = _store_of(getter)
    return stores.get(id(store)) is store


def _remember(
    stores: WeakValueDictionary[int, object], getter: ByteGetter | SyncByteGetter
) -> bool:
    """Whether the store of `getter` was not among `stores`, where it is now."""
    with _lock:
        is_new = not _is_among(stores, getter)
        stores[id(_store_of(getter))] = _store_of(getter)
        return is_new


# One semaphore an event loop, so that the chunks of a read share zarr's limit.
_slots_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, int]] = (
    WeakKeyDictionary()
)


def _slots() -> tuple[asyncio.Semaphore, int]:
    loop, limit = asyncio.get_running_loop(), zarr.config.get("async.concurrency") or 2**31
    if loop not in _slots_of_loop or _slots_of_loop[loop][1] != limit:
        _slots_of_loop[loop] = asyncio.Semaphore(limit), limit
    return _slots_of_loop[loop]
