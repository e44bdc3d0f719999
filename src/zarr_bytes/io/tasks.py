"""Concurrent work: requests on the event loop and chunks in threads, as many as zarr allows."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from contextvars import ContextVar, copy_context
from itertools import chain, islice
from math import ceil
from numbers import Real
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from zarr_bytes.errors import short_repr
from zarr_bytes.settings import setting_of_zarr

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

T = TypeVar("T")
R = TypeVar("R")


class StopRequestsError(Exception):
    """No other request is needed; any other error of the same time is the one to raise."""


class WorkCancelledError(Exception):
    """Nobody needs any more what a thread waits for."""


is_work_cancelled: ContextVar[Callable[[], bool]] = ContextVar("is_ended", default=lambda: False)
"""Whether nobody needs the work of `map_in_threads` any more; for work that waits."""


async def map_concurrently(
    work: Callable[[T], Coroutine[None, None, R]], items: Iterable[T], slots: int = 0
) -> list[R]:
    """Results of `work` for each of `items`, in so many `slots` or zarr's ``async.concurrency``.

    The first failure cancels the others, and its error is raised, ungrouped.
    """
    waiting, results = iter(enumerate(items)), {}
    begun = list(islice(waiting, slots or max_concurrent_requests()))  # no more tasks than items
    rest = chain(begun, waiting)

    async def run() -> None:
        for i, item in rest:
            results[i] = await work(item)

    if len(begun) <= 1:
        await run()
    else:
        await _run_together(run, len(begun))
    return [results[i] for i in range(len(results))]


async def _run_together(run: Callable[[], Coroutine[None, None, None]], number: int) -> None:
    """So many runs, as a TaskGroup that cancels the others and not the caller after a failure."""
    failures: list[BaseException] = []
    running: list[asyncio.Task[None]] = []

    async def heard() -> None:
        try:
            await run()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- raised again
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                return  # after the first failure, or by the caller, to whom the group raises it
            failures.append(error)  # also a store's own CancelledError
            for task in running:
                task.get_loop().call_soon(task.cancel)  # after others of the same time have failed

    async with asyncio.TaskGroup() as tasks:
        while len(running) < number and not failures:  # an eager task may have failed already
            running.append(tasks.create_task(heard()))
    if failures:
        raise next(
            (error for error in failures if not isinstance(error, StopRequestsError)), failures[0]
        )


_NO_LIMIT: Final = 2**31  # requests


def max_concurrent_requests() -> int:
    """Number of requests that are under way at once: zarr's ``async.concurrency``.

    zarr takes any number, and starts another request while fewer than that are under way, so that
    2.5 is 3. None and 0 are no limit here. A ValueError for anything else.
    """
    limit = setting_of_zarr("async.concurrency", 10)
    if type(limit) is int and 0 < limit < _NO_LIMIT:  # the usual case, asked for every chunk
        return limit
    if limit is None:
        return _NO_LIMIT
    is_number = isinstance(limit, Real)
    if is_number and limit >= 0:  # False for NaN
        return ceil(min(limit, _NO_LIMIT)) or _NO_LIMIT
    raise ValueError(
        f"zarr's setting async.concurrency is {short_repr(limit)}; permitted are numbers from 0 on,"
        " and None; 0 and None are no limit"
    )


def concurrent_objects(number: int, count: int, slots: int) -> int:
    """How many of `count` objects are read at the same time as one: fewer in the last round."""
    return slots if number < count - count % slots else count % slots


# By event loop, so that the chunks of all reads share zarr's limit: the limit, and semaphores.
_slots = WeakKeyDictionary[Any, tuple[int, asyncio.Semaphore, asyncio.Semaphore]]()


def slots_of_loop() -> tuple[asyncio.Semaphore, asyncio.Semaphore]:
    """Slots that the event loop has for requests, and for fetches, whose bytes are in memory."""
    loop, limit = asyncio.get_running_loop(), max_concurrent_requests()
    slots = _slots.get(loop)
    if slots is None or slots[0] != limit:
        for other in [o for key in _slots.keyrefs() if (o := key()) is not None and o.is_closed()]:
            _slots.pop(other, None)  # a semaphore that has waited keeps its loop
        slots = _slots[loop] = limit, asyncio.Semaphore(limit), asyncio.Semaphore(limit)
    return slots[1:]


def result_without_waiting(coroutine: Coroutine[object, None, T]) -> T:
    """Result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("a coroutine that must not wait has waited")


def number_of_threads() -> int:
    """Number of zarr's threads for computing: its setting, or one for each core."""
    setting = setting_of_zarr("codec_pipeline.max_workers")
    return setting if isinstance(setting, int) and setting >= 1 else os.cpu_count() or 1


async def map_in_threads(
    work: Callable[[Iterator[T]], Iterator[R]],
    items: Sequence[T],
    threads: int,
    executor: Executor | None = None,
) -> list[R]:
    """Results of `work` for each of `items`, in at most `threads` threads, as a rule of the loop.

    `work` yields the result of each item before it takes the next. After an error, or where the
    caller is cancelled, no other item is begun; those that have begun are waited for.
    """
    waiting = deque(enumerate(items))  # an iterator is safe under the GIL alone
    results: dict[int, R] = {}
    ended = Event()

    def stop() -> None:
        ended.set()
        waiting.clear()

    def run() -> None:
        i = -1

        def taken() -> Iterator[T]:
            nonlocal i
            with suppress(IndexError):  # none is left
                while True:
                    i, item = waiting.popleft()
                    yield item

        is_work_cancelled.set(ended.is_set)
        with suppress(WorkCancelledError):
            try:
                for result in work(taken()):
                    results[i] = result
            except BaseException:
                stop()
                raise

    loop = asyncio.get_running_loop()
    runs = [loop.run_in_executor(executor, copy_context().run, run) for _ in range(threads)]
    if threads == 1:  # the usual case, worth a task
        await _wait_until_done(runs[0], stop)
    else:
        outcomes = await _wait_until_done(asyncio.gather(*runs, return_exceptions=True), stop)
        for error in outcomes:
            if error is not None:
                raise error
    return [results[i] for i in range(len(items))]


async def _wait_until_done(work: asyncio.Future[T], stop: Callable[[], None]) -> T:
    """Wait for `work` in threads, even if the caller is cancelled; `stop` is called then."""
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
