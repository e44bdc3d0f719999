"""Concurrent work: requests on the event loop and chunks in threads, as many as zarr allows.

The coroutines run on the event loop of their caller, which is zarr's own for zarr's synchronous
functions. Only `map_in_threads` uses other threads. After a failure or a cancellation, the error is
raised when no part of the work is running anymore, in any thread.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from itertools import islice
from math import ceil
from numbers import Real
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from zarr_bytes.errors import short_repr
from zarr_bytes.settings import checked_setting, zarr_setting_or_default

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

T = TypeVar("T")
R = TypeVar("R")


class StopRequestsError(Exception):
    """No other request is needed: work raises this error to cancel the other work.

    If another error occurs at the same time, `map_concurrently` raises that one instead.
    """


class WorkCancelledError(Exception):
    """Work in a thread has ended early because it isn't needed; not visible to users."""


work_cancelled_check: ContextVar[Callable[[], bool]] = ContextVar(
    "work_cancelled_check", default=lambda: False
)
"""In a thread of `map_in_threads`, a function that tells whether its work isn't needed anymore.

It returns True after the caller is cancelled or other work has failed. Work that waits for a lock
calls the function regularly, and raises a WorkCancelledError. In other threads, it always returns
False.
"""


async def map_concurrently(
    work: Callable[[T], Coroutine[None, None, R]],
    items: Iterable[T],
    max_at_once: int | None = None,
) -> list[R]:
    """Results of `work` for each of `items`, in their order, at most `max_at_once` at a time.

    If `max_at_once` is None, it is zarr's ``async.concurrency``. `items` may be a generator: an
    item is taken when a slot is free. All work runs on the event loop of the caller: in the
    caller's own task if one task is enough, and otherwise in one task for each slot.

    The first failure cancels the other tasks, and its error is raised without a group. If the
    caller is cancelled, the tasks are cancelled, too. In both cases, the function waits for their
    end.
    """
    numbered_items = iter(enumerate(items))
    first_items = deque(islice(numbered_items, max_at_once or max_concurrent_large_requests()))
    task_count = len(first_items)  # no more tasks than items
    results: dict[int, R] = {}

    def remaining_items() -> Iterator[tuple[int, T]]:
        while first_items:
            yield first_items.popleft()  # not kept, since an item may have much memory
        yield from numbered_items

    async def work_on_items() -> None:
        for i, item in remaining_items():
            results[i] = await work(item)

    if task_count <= 1:
        await work_on_items()
    else:
        await _run_in_tasks(work_on_items, task_count)
    return [results[i] for i in range(len(results))]


async def _run_in_tasks(run: Callable[[], Coroutine[None, None, None]], task_count: int) -> None:
    """Call `run` in `task_count` tasks of the running loop, and wait for all of them.

    As in a TaskGroup, a failure cancels the other tasks, and so does a cancellation of the caller,
    which is raised. Otherwise, the first error that isn't a StopRequestsError is raised by itself,
    or a StopRequestsError if there is no other. A CancelledError from the store counts as an error.
    """
    failures: list[BaseException] = []
    running: list[asyncio.Task[None]] = []

    async def record_failure() -> None:
        try:
            await run()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- raised again
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                return  # after the first failure, or by the caller, to whom the group raises it
            failures.append(error)
            for task in running:
                task.get_loop().call_soon(task.cancel)  # after others of the same time have failed

    async with asyncio.TaskGroup() as tasks:
        while len(running) < task_count and not failures:  # an eager task may have failed already
            running.append(tasks.create_task(record_failure()))
    if failures:
        raise next(
            (error for error in failures if not isinstance(error, StopRequestsError)), failures[0]
        )


_NO_LIMIT: Final = 2**31  # requests
_DEFAULT_OF_ZARR: Final = 10  # requests


def max_concurrent_requests_of_any_size(*, is_remote: bool = True) -> int:
    """Maximum number of concurrent small requests of a read; it includes large requests.

    A request is small if it has fewer bytes than `Limits.min_piece_nbytes`: it waits longer for the
    answer to begin than for its bytes. For a remote store, the number is
    ``zarr_bytes.small_requests`` if ``async.concurrency`` has its default. Otherwise it is
    ``async.concurrency``, as for large requests: a store on this machine does not answer sooner if
    more requests are under way.
    """
    limit = max_concurrent_large_requests()
    if limit != _DEFAULT_OF_ZARR or not is_remote:
        return limit
    return int(checked_setting("zarr_bytes.small_requests"))


def max_concurrent_large_requests() -> int:
    """Maximum number of concurrent large requests of a read: zarr's ``async.concurrency``.

    zarr accepts any number, and starts a request while fewer than that number are running, so 2.5
    means 3. None and 0 mean no limit here. A ValueError for anything else.
    """
    limit = zarr_setting_or_default("async.concurrency", _DEFAULT_OF_ZARR)
    if type(limit) is int and 0 < limit < _NO_LIMIT:  # the usual case, checked for every chunk
        return limit
    if limit is None:
        return _NO_LIMIT
    is_number = isinstance(limit, Real)
    if is_number and limit >= 0:  # not for NaN
        return ceil(min(limit, _NO_LIMIT)) or _NO_LIMIT
    raise ValueError(
        f"zarr's setting async.concurrency is {short_repr(limit)}; permitted are numbers from 0 on,"
        " and None; 0 and None are no limit"
    )


def max_objects_at_once(
    total_selected_nbytes: int, object_count: int, min_large_nbytes: int, *, is_remote: bool
) -> int:
    """Maximum number of objects of a read that are read at a time, by their selected bytes.

    Requests of `min_large_nbytes` bytes or more are large. Requests that become larger than the
    selection wait for a slot for large requests, of which there are fewer.
    """
    is_small = total_selected_nbytes < min_large_nbytes * object_count
    if not is_small:
        return max_concurrent_large_requests()
    return max_concurrent_requests_of_any_size(is_remote=is_remote)


def count_objects_in_same_round(object_number: int, object_count: int, slots: int) -> int:
    """Number of objects in the same round as this one, including the object itself.

    `object_count` objects are read `slots` at a time, from number 0 on. The last round may have
    fewer: for 25 objects and 10 slots, numbers 0 to 19 are in rounds of 10, and numbers 20 to 24 in
    a round of 5.
    """
    in_last_round = object_count % slots
    return slots if object_number < object_count - in_last_round else in_last_round


class RequestLimits(NamedTuple):
    """Maximum numbers of concurrent requests, and of fetches whose bytes are in memory.

    Requests of `Limits.min_piece_nbytes` bytes or more are large.
    """

    max_large_requests: int
    max_requests: int  # small and large requests together
    max_pieces_of_range: int  # into which a long range is cut; 1 if that would not be faster


ONE_AT_A_TIME: Final = RequestLimits(1, 1, 1)


def request_limits(*, shards_at_once: int | None = None, is_remote: bool = True) -> RequestLimits:
    """Maximum numbers of requests for a read of chunks, or of `shards_at_once` at a time.

    For chunks, these are the limits of all chunks of the read together. zarr applies
    ``async.concurrency`` to the shards and to the ranges of each shard, and so do these limits.
    """
    max_large = max_concurrent_large_requests()
    max_all = max_concurrent_requests_of_any_size(is_remote=is_remote)
    if shards_at_once is not None:
        max_shards = min(max_large, shards_at_once)
        max_large = min(max_large * max_shards, _NO_LIMIT)
        max_all = max(max_all, max_large)
    return RequestLimits(max_large, max_all, max_pieces_of_range=max_large if is_remote else 1)


class _Slots:
    """Slots for small and large work on one event loop; large work takes one slot of each kind."""

    def __init__(self, limits: RequestLimits) -> None:
        self._any = asyncio.Semaphore(limits.max_requests)
        self._large = asyncio.Semaphore(limits.max_large_requests)

    @asynccontextmanager
    async def take(self, *, is_small: bool) -> AsyncIterator[None]:
        """The slots for the work in a block: one for small work, and two for large work.

        Waits until they are free.
        """
        if is_small:
            async with self._any:
                yield
        else:
            async with self._large, self._any:
                yield


class RequestSlots:
    """Slots for the requests of a read, on one event loop, and for the bytes that they fetch.

    Each read of a batch has its own: zarr's ``async.concurrency`` limits each read by itself, too,
    so reads in several threads don't wait for one another.

    Attributes
    ----------
    limits : RequestLimits
        The numbers of slots.
    for_request : slots
        Taken during a request to a store.
    for_fetched_bytes : slots
        Taken while the bytes of a fetch are in memory.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.for_request = _Slots(limits)
        self.for_fetched_bytes = _Slots(limits)


# The slots of the event loops of all threads, for reads of single chunks.
_slots_by_loop = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[RequestLimits, RequestSlots]]()


def shared_slots_of_running_loop(limits: RequestLimits) -> RequestSlots:
    """The slots that reads of single chunks with equal limits share on the running event loop.

    Zarr's own pipeline reads each chunk with a call of the codec, which doesn't know whether the
    other chunks belong to the same read.
    """
    loop = asyncio.get_running_loop()
    slots_by_limits = _slots_by_loop.get(loop)
    if slots_by_limits is None:
        for reference in _slots_by_loop.keyrefs():
            other = reference()
            if other is not None and other.is_closed():
                # A semaphore that has waited refers to its loop, so the weak key never expires.
                _slots_by_loop.pop(other, None)
        slots_by_limits = _slots_by_loop[loop] = {}
    slots = slots_by_limits.get(limits)
    if slots is None:
        slots = slots_by_limits[limits] = RequestSlots(limits)
    return slots


def run_coroutine_that_never_waits(coroutine: Coroutine[object, None, T]) -> T:
    """Run a coroutine that never waits, in the calling thread and without a loop.

    Returns the result of the coroutine. Raises its errors, and a RuntimeError if it waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("a coroutine that must not wait has waited")


def max_codec_pipeline_workers() -> int:
    """Number of zarr's threads for computing: ``codec_pipeline.max_workers``, or one per core."""
    setting = zarr_setting_or_default("codec_pipeline.max_workers")
    return setting if isinstance(setting, int) and setting >= 1 else os.cpu_count() or 1


async def map_in_threads(
    work: Callable[[Iterator[T]], Iterator[R]],
    items: Sequence[T],
    thread_count: int,
    executor: Executor | None = None,
) -> list[R]:
    """Results of `work` for each of `items`, in their order.

    `work` is called `thread_count` times, in as many threads of the `executor`; None is the
    executor of the event loop. `work` gets an iterator over items that no other thread takes, and
    yields the result of each item before it takes the next, as ``partial(map, function)`` does. It
    sees the context variables of the caller, and `work_cancelled_check`. The caller's task waits on
    its event loop until all threads end.

    After an error, or if the caller is cancelled, no other item is begun. The function waits for
    items that have begun, and then raises the error or the CancelledError; of errors in several
    threads, it raises that of the first thread in their order. Results that have been written by
    then stay.
    """
    waiting = deque(enumerate(items))  # an iterator would be safe only with the GIL
    results: dict[int, R] = {}
    is_cancelled = Event()

    def stop() -> None:
        is_cancelled.set()
        waiting.clear()

    def run() -> None:
        i = -1  # number of the last item that `work` has taken

        def next_items() -> Iterator[T]:
            nonlocal i
            with suppress(IndexError):  # none is left
                while True:
                    i, item = waiting.popleft()
                    yield item

        work_cancelled_check.set(is_cancelled.is_set)
        with suppress(WorkCancelledError):
            try:
                for result in work(next_items()):
                    results[i] = result
            except BaseException:
                stop()
                raise

    loop = asyncio.get_running_loop()
    runs = [loop.run_in_executor(executor, copy_context().run, run) for _ in range(thread_count)]
    if thread_count == 1:  # the usual case, worth a task
        await _result_once_threads_have_ended(runs[0], stop)
    else:
        outcomes = await _result_once_threads_have_ended(
            asyncio.gather(*runs, return_exceptions=True), stop
        )
        for error in outcomes:
            if error is not None:
                raise error
    return [results[i] for i in range(len(items))]


async def _result_once_threads_have_ended(work: asyncio.Future[T], stop: Callable[[], None]) -> T:
    """The result of `work`, which is running in threads; on the event loop of the caller.

    If the caller is cancelled, `stop` is called on the event loop to end the threads early. The
    CancelledError is raised only after all threads have ended, since they write into memory of the
    caller. Errors from the threads are dropped in that case.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop()
        while not work.done():
            with suppress(asyncio.CancelledError):  # cancelled more than once
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # retrieved, or asyncio would log it
        raise
