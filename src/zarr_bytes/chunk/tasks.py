"""Requests at the same time, as many as zarr allows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import zarr

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

__all__ = ["EnoughError", "finished", "for_each", "slots_of_loop", "together"]

T = TypeVar("T")
R = TypeVar("R")


class EnoughError(Exception):
    """No other request is needed: the chunk is missing, or it has come whole."""


async def for_each(work: Callable[[T], Coroutine[None, None, R]], items: Sequence[T]) -> list[R]:
    """Results of `work` for each of `items`, as many at a time as zarr's ``async.concurrency``.

    One that fails cancels the others, and its error is raised.
    """
    _, limit = slots_of_loop()
    waiting = iter(enumerate(items))
    results: dict[int, R] = {}

    async def run() -> None:
        for i, item in waiting:
            results[i] = await work(item)

    await together([run() for _ in range(min(limit, len(items)))])
    return [results[i] for i in range(len(items))]


async def together(workers: Iterable[Coroutine[None, None, None]]) -> None:
    """Run `workers`; one that fails cancels the others, and its error is raised as it is."""
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for worker in workers:
                tasks.create_task(worker)
    except* Exception as failures:  # noqa: BLE001 -- raised again, as the one that a caller expects
        failure = failures.split(EnoughError)[1] or failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if failure is not None:
        raise failure


# One semaphore an event loop, so that the chunks of a read share zarr's limit.
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, int]] = (
    WeakKeyDictionary()
)


def slots_of_loop() -> tuple[asyncio.Semaphore, int]:
    """Slots that all requests of the event loop share, and their number: zarr's limit."""
    loop, limit = asyncio.get_running_loop(), zarr.config.get("async.concurrency") or 2**31
    if loop not in _slots or _slots[loop][1] != limit:
        _slots[loop] = asyncio.Semaphore(limit), limit
    return _slots[loop]


def finished(coroutine: Coroutine[object, None, T]) -> T:
    """Result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine that must not wait has waited")
