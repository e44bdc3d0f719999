"""Reading a selection of a chunk or a shard: tile after tile, from a file, requests or memory.

The result equals ``chunk[selection]``. In NumPy memory it may be a view of what was fetched, in the
stored byte order: the copy that zarr makes into its output swaps it.

Synchronous and awaited reads share their coroutines: one that awaits nothing is run to its end by
`finished`.

In a memory store, and inside a shard (where the getter isn't a `StorePath`), the whole chunk is a
view that costs nothing, so nothing is planned.

A shard is read in two steps: the index, and then the ranges of all inner chunks together. So no
more than two requests follow one another, however many inner chunks are selected.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from zarr.storage import LocalStore, MemoryStore, StorePath

from zarr_bytes.chunk import counters
from zarr_bytes.chunk.files import EndOfFileError, WouldWaitError, open_chunk
from zarr_bytes.chunk.opening import is_tried
from zarr_bytes.chunk.plan import plan_of
from zarr_bytes.chunk.range_support import comes_whole
from zarr_bytes.chunk.requests import MissingChunkError, Requests, note_request
from zarr_bytes.chunk.selection import entries_of
from zarr_bytes.chunk.shard_plan import ShardPlan
from zarr_bytes.chunk.shards import Index
from zarr_bytes.chunk.tasks import finished, slots_of_loop, together
from zarr_bytes.settings import reading_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.chunks import Chunks
    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.tiles import Tile
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteGetter

__all__ = ["cost_of", "read_chunk", "read_file", "read_open_file", "read_shard"]

# The bytes of the ranges of a tile, one after another. Reading a file, it awaits nothing.
_Fetch: TypeAlias = "Callable[[Tile], Coroutine[None, None, Bytes]]"


async def read_chunk(
    getter: ByteGetter | SyncByteGetter,
    chunks: Chunks,
    selection: SelectorTuple,
    chunk_spec: ArraySpec,
    *,
    is_sync: bool,
) -> Array | None:
    """`read_selection` as an array.

    Parameters
    ----------
    getter, selection, chunk_spec
        As for `zarr_bytes.chunk.codec_calls.read_selection`.
    chunks : Chunks
        Properties of the chunk.
    is_sync : bool
        Whether the coroutine must not wait, so that `finished` can run it.
    """
    entries = entries_of(selection)
    if not isinstance(getter, StorePath) or type(getter.store) is MemoryStore:
        encoded = await _whole(getter, chunk_spec, is_sync=is_sync)
        return None if encoded is None else chunks.of_whole(encoded, entries)
    plan = plan_of(chunks, entries, cost_of(getter))
    if type(getter.store) is not LocalStore:
        return await _read_requests(Requests(getter, plan, is_sync=is_sync), plan)
    root = str(getter.store.root)
    path = f"{root}/{getter.path}"
    if counters.counters:
        counters.note(root, chunks=1)
    if is_sync:
        return read_file(plan, path, root)
    file = None
    if plan.takes_little() and is_tried(root):
        try:
            return read_file(plan, path, root, waits=False)
        except WouldWaitError as wait:
            file = wait.file
        except BlockingIOError:
            pass
    return await asyncio.to_thread(partial(read_file, plan, path, root, file=file))


def cost_of(getter: StorePath) -> Cost | None:
    """Cost of a request for a part of the chunk; None where that fetches the whole chunk."""
    return None if comes_whole(getter) else reading_cost(getter.store)


async def _whole(
    getter: ByteGetter | SyncByteGetter, chunk_spec: ArraySpec, *, is_sync: bool
) -> Bytes | None:
    """The bytes of a whole chunk, from memory."""
    if is_sync:
        buffer = cast("SyncByteGetter", getter).get_sync(prototype=chunk_spec.prototype)
    else:
        buffer = await cast("ByteGetter", getter).get(chunk_spec.prototype)
    if counters.counters and isinstance(getter, StorePath):
        counters.note(getter.store, chunks=1)
        note_request(getter, None, buffer)
    return None if buffer is None else cast("Bytes", buffer.as_array_like())


async def _read_requests(requests: Requests, plan: Plan) -> Array | None:
    if plan.is_whole:
        content = await requests.fetch_whole()
        return None if content is None else plan.chunks.of_whole(content, plan.selection)
    try:
        return await _filled(plan, requests.fetch)
    except MissingChunkError:
        return None


async def read_shard(getter: ByteGetter, plan: ShardPlan) -> Array | None:
    """Selected elements of the shard behind `getter`, in any store; None if the shard is missing.

    Raises
    ------
    ShardIndexError, BoolValueError, ChunkSizeError
        As `read_file`.
    """
    requests = Requests(getter, plan, is_sync=False)
    try:
        content, size = await requests.fetch_index(plan.shards)
    except MissingChunkError:
        return None
    index = Index(plan.shards, str(getter), content, size)
    _, limit = slots_of_loop()
    return await _filled_from_shard(plan, index, requests.fetch, workers=limit)


def read_file(
    plan: Plan, path: str, root: str, *, waits: bool = True, file: ChunkFile | None = None
) -> Array | None:
    """Selected elements of the chunk that is the file at `path`; None if it is missing.

    Parameters
    ----------
    plan : Plan
        What is read.
    path, root, waits, file
        As for `zarr_bytes.chunk.files.open_chunk`.

    Returns
    -------
    array or None
        ``chunk[selection]``.

    Raises
    ------
    ChunkSizeError, ShardIndexError, ChunkFileError, BoolValueError
        If the file is not as the metadata says.
    BlockingIOError
        If a thread must read it, where `waits` is False.
    """
    file = open_chunk(path, root, waits=waits, file=file)
    if file is None:
        return None
    with file:
        return read_open_file(plan, file)


def read_open_file(plan: Plan, file: ChunkFile, canvas: Array | None = None) -> Array:
    """`read_file` of an open file. Elements are put into the canvas where there is one.

    Raises
    ------
    EndOfFileError
        If a shard is shortened while it is read.
    """
    if isinstance(plan, ShardPlan):
        index = plan.shards.index_in(file)

        async def fetch(tile: Tile) -> Bytes:
            return file.read_again(tile, plan.largest_request)

        return finished(_filled_from_shard(plan, index, fetch, canvas, is_file=True))
    chunks = plan.chunks
    if plan.is_one_read:
        content = file.whole(chunks.nbytes)
        if plan.grid is None:
            return chunks.of_whole(content, plan.selection)

        async def fetch(tile: Tile) -> Bytes:
            return content[tile.start : tile.start + tile.nbytes]
    else:
        file.check(chunks.nbytes if plan.is_whole else None)
        read = file.read if canvas is None and plan.view is not None else file.read_again

        async def fetch(tile: Tile) -> Bytes:
            try:
                return read(tile, plan.largest_request)
            except EndOfFileError as end:
                raise plan.end_of_file(file.path, end.offset) from None

    return finished(_filled(plan, fetch, canvas, is_file=True))


async def _filled_from_shard(
    plan: ShardPlan,
    index: Index,
    fetch: _Fetch,
    canvas: Array | None = None,
    *,
    is_file: bool = False,
    workers: int = 1,
) -> Array:
    """`_filled`, also where only NumPy takes the selection."""
    if plan.grid is not None:
        return await _filled(plan, fetch, canvas, index=index, is_file=is_file, workers=workers)
    whole = plan.of_everything()
    shard = await _filled(whole, fetch, index=index, is_file=is_file, workers=workers)
    return np.asarray(shard[plan.selection])


async def _filled(
    plan: Plan,
    fetch: _Fetch,
    canvas: Array | None = None,
    *,
    index: Index | None = None,
    is_file: bool = False,
    workers: int = 1,
) -> Array:
    """The elements of a plan, put into the canvas, or into a new array where there is none.

    Parameters
    ----------
    plan : Plan
    fetch : callable
    canvas : array, optional
        Target of the elements, at the places that the grid of the plan has.
    index : Index, optional
        The index of a shard.
    is_file : bool
        Whether `fetch` reads a file, into memory that may be changed.
    workers : int
        Largest number of concurrent fetches.

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
    rest = plan.fetches(target, plan.at_once(canvas, is_file=is_file), index)
    begun = list(islice(rest, workers))  # no more workers than fetches: zarr's limit may be large
    fetches = chain(begun, rest)

    async def work() -> None:
        for tile, parts in fetches:
            content = await fetch(tile)
            for part, first in parts:
                put(part, content[first : first + part.nbytes])

    if len(begun) <= 1:
        await work()
    else:
        await together([work() for _ in begun])
    return target if canvas is not None else plan.result_of(target)
