"""Work on many chunks in a few threads."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import zarr

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

__all__ = ["in_threads", "number_of_threads", "to_its_end"]

T = TypeVar("T")
R = TypeVar("R")


def number_of_threads() -> int:
    """How many threads zarr takes for what a processor is busy with: its setting, or one a core.

    Examples
    --------
    >>> with zarr.config.set({"codec_pipeline.max_workers": 3}):
    ...     number_of_threads()
    3
    """
    setting = zarr.config.get("codec_pipeline.max_workers", None)
    return setting if isinstance(setting, int) and setting >= 1 else os.cpu_count() or 1


async def in_threads(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Results of `work` for each of `items`, in at most `threads` threads of the event loop.

    After an error, or where the caller is cancelled, no other item is begun, and what has begun is
    waited for: a thread cannot be stopped. The first error is raised.
    """
    waiting = iter(list(enumerate(items)))  # of which each thread takes the next
    results: dict[int, R] = {}
    is_over = False

    def run() -> None:
        nonlocal is_over
        try:
            for i, item in waiting:
                if is_over:
                    return
                results[i] = work(item)
        except BaseException:
            is_over = True
            raise

    async def all_of_them() -> None:
        if threads == 1:  # the usual case, worth 50 microseconds
            await asyncio.to_thread(run)
            return
        runs = (asyncio.to_thread(run) for _ in range(threads))
        for error in await asyncio.gather(*runs, return_exceptions=True):
            if error is not None:
                raise error

    def stop() -> None:
        nonlocal is_over
        is_over = True

    await to_its_end(all_of_them(), stop)
    return [results[i] for i in range(len(items))]


async def to_its_end(
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
