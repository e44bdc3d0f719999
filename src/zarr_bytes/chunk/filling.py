"""The elements of a plan fetched and put into a canvas, or given as a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zarr_bytes.chunk.tasks import together

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.tiles import Tile

__all__ = ["filled"]


async def filled(
    plan: Plan,
    fetch: Callable[[Tile], Coroutine[None, None, Bytes]],
    canvas: Array | None,
    *,
    is_file: bool,
    workers: int = 1,
) -> Array:
    """Put the elements of a plan into the canvas; without one, give the result.

    Parameters
    ----------
    plan : Plan
    fetch : callable
        Gives the bytes of the ranges of a tile, one after another. For a file it waits for nothing
        else.
    canvas : array or None
        Where the elements are put, in the place that the grid of the plan has for them.
    is_file : bool
        Whether `fetch` reads a file, into memory that may be changed.
    workers : int, optional
        Number of fetches at a time.

    Returns
    -------
    array
        The canvas, or ``chunk[selection]``.
    """
    target = canvas
    if target is None:
        if plan.view is not None:
            fetched = await fetch(plan.view)
            return plan.result_of(plan.elements(plan.view, fetched, in_place=is_file))
        target = np.empty(plan.tiles.grid.shape, plan.chunks.selected_dtype)
    put = plan.putter(target, in_place=is_file)
    fetches = plan.fetches(target, plan.at_once(canvas, is_file=is_file))

    async def work() -> None:
        for tile, parts in fetches:
            content = await fetch(tile)
            for part, first in parts:
                put(part, content[first : first + part.nbytes])

    if workers == 1:
        await work()
    else:
        await together([work() for _ in range(workers)])
    return target if canvas is not None else plan.result_of(target)
