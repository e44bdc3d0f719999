"""Work on many chunks in a few threads."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import zarr

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

__all__ = ["in_threads", "number_of_threads"]

T = TypeVar("T")
R = TypeVar("R")


def number_of_threads() -> int:
    """Number of threads that zarr takes for computing: its setting, or one for each core.

    Examples
    --------
    >>> with zarr.config.set({"codec_pipeline.max_workers": 3}):
    ...     number_of_threads()
    3
    """
    setting = zarr.config.get("codec_pipeline.max_workers", None)
    return setting if isinstance(setting, int) and setting >= 1 else os.cpu_count() or 1


async def in_threads(
    work: Callable[[Iterator[T]], Iterator[R]], items: Sequence[T], threads: int
) -> list[R]:
    """Results of `work` for each of `items`, in at most `threads` threads of the event loop.

    `work` is called in each thread, and gives one result of each item before it takes the next.
    After an error, or where the caller is cancelled, no other item is begun, and what has begun is
    waited for: a thread cannot be stopped. The first error is raised.
    """
    shared = _Shared(work, items)

    async def all_of_them() -> None:
        if threads == 1:  # the usual case, worth 50 microseconds
            await asyncio.to_thread(shared.run)
            return
        runs = (asyncio.to_thread(shared.run) for _ in range(threads))
        for error in await asyncio.gather(*runs, return_exceptions=True):
            if error is not None:
                raise error

    await _until_done(all_of_them(), shared.stop)
    return [shared.results[i] for i in range(len(items))]


class _Shared(Generic[T, R]):
    """Items of which each thread takes the next, and the results of all threads."""

    def __init__(self, work: Callable[[Iterator[T]], Iterator[R]], items: Sequence[T]) -> None:
        self._work = work
        self._waiting = deque(enumerate(items))  # an iterator is safe under the GIL alone
        self.results: dict[int, R] = {}

    def run(self) -> None:
        """Work on items until none is left; in each thread."""
        taken: list[int] = []
        try:
            for result in self._work(self._take(taken)):
                self.results[taken[-1]] = result
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Let no other item be begun."""
        self._waiting.clear()

    def _take(self, taken: list[int]) -> Iterator[T]:
        with suppress(IndexError):  # none is left
            while True:
                i, item = self._waiting.popleft()
                taken.append(i)
                yield item


async def _until_done(
    work: Coroutine[object, object, T], stop: Callable[[], None] | None = None
) -> T:
    """Wait for `work` in threads, also where the caller is cancelled; `stop` is called then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        while not task.done():
            with suppress(asyncio.CancelledError):  # cancelled more than once
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # what went wrong is nobody's to hear; asyncio would log it
        raise
