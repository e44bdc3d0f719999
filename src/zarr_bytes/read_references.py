"""Reads of chunks that are parts of files, such as those of kerchunk's references.

A file with many chunks is like a shard, and the references are its index:

1. locate: `References` gives the file, the offset and the length of each chunk;
2. plan: each chunk is planned as any other;
3. fetch: a local file is opened once, and its parts are read in their order. For other files, the
   ranges of all chunks are joined across gaps, and requested from the file system or object store
   that the store itself would use;
4. place: the elements of each chunk are placed in the result.

Chunks that can't be read in this way are left to the store's `get`, one by one: chunks without a
reference, shards, large parts, and chunks of a file after an error, since the store has the error
to raise.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from zarr_bytes.errors import ChunkFileError, ChunkSizeError
from zarr_bytes.indexing.joined import joined_requests
from zarr_bytes.indexing.plan import Fetch
from zarr_bytes.io import counters
from zarr_bytes.io.files import open_chunk_file_if_exists
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.io.tasks import (
    RequestSlots,
    map_concurrently,
    map_in_threads,
    max_concurrent_requests_of_any_size,
    request_limits,
)
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX
from zarr_bytes.read import ArrivingFetch, Reader, read_remaining_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr.abc.buffer import BufferPrototype

    from zarr_bytes.indexing.joined import JoinedRequest
    from zarr_bytes.indexing.plan import Plan
    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.indexing.selection import Offsets
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.index_cache import IndexCache
    from zarr_bytes.io.references import FilePart, ReferencedFile, References
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.read import ChunkExists, ChunkProjection
    from zarr_bytes.settings import RequestCost

MAX_JOINED_CHUNKS: Final = 4096
"""Number of chunks whose ranges are joined at a time; each takes some memory."""


class ReferencedChunk(NamedTuple):
    """A chunk that is a part of a file."""

    number: int  # in the batch
    projection: ChunkProjection
    part: FilePart


class _NotAsRequestedError(Exception):
    """A range of a file has failed, or brought other bytes. Caught here: the store then reads."""


def referenced_chunks_by_file(
    batch: Sequence[ChunkProjection], references: References
) -> list[list[ReferencedChunk]]:
    """The chunks of each file, ordered by offset, without chunks that the store must read.

    Called in a thread, since references may have to be read. A ChunkSizeError for a part that
    doesn't have the size of its chunk.
    """
    by_file: dict[str, list[ReferencedChunk]] = {}
    for number, projection in enumerate(batch):
        expected = projection.layout.stored_nbytes
        part = references.part_unless_store_must_be_asked(projection.store_path.path)
        if part is None or expected is None:
            continue
        if part.nbytes != expected:
            raise ChunkSizeError(
                f"{store_path_name(projection.store_path)} is a part of {part.file.name} with"
                f" {part.nbytes} bytes from byte {part.offset} on, and a chunk of shape"
                f" {projection.layout.shape} has {expected} bytes: the file has changed, or the"
                " references are to another version of it; make the references again"
            )
        by_file.setdefault(part.file.name, []).append(ReferencedChunk(number, projection, part))
    return [sorted(chunks, key=offset_in_file) for chunks in by_file.values()]


def offset_in_file(chunk: ReferencedChunk) -> int:
    """Offset of the chunk in its file."""
    return chunk.part.offset


async def read_batch_of_references(
    batch: Sequence[ChunkProjection],
    driver: Driver,
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    plans: PlanCache,
    index_cache: IndexCache,
) -> list[ChunkExists]:
    """Like `read_batch`, for a store whose driver has `references`.

    Also raises ChunkSizeError for parts of files that are truncated, or that don't have the size of
    their chunk.
    """
    reader = Reader(out, drop_axes, driver, plans)
    numbers = await _read_parts_of_files(batch, driver, reader)
    exists = dict.fromkeys(numbers, True)
    return await read_remaining_chunks(
        exists, batch, driver, out, drop_axes, prototype, plans, index_cache
    )


async def _read_parts_of_files(
    batch: Sequence[ChunkProjection], driver: Driver, reader: Reader
) -> set[int]:
    """Read the chunks of a batch that are parts of files; return the numbers of the chunks read.

    On the event loop. All other chunks are left to the store.
    """
    references = cast("References", driver.references)
    by_file = await asyncio.to_thread(referenced_chunks_by_file, batch, references)
    local = [chunks for chunks in by_file if chunks[0].part.file.local_path]
    numbers: set[int] = set()
    if local:
        work = partial(map, partial(_read_local_parts, reader, driver.store))
        threads = min(max_concurrent_requests_of_any_size(), len(local))
        numbers.update(chain.from_iterable(await map_in_threads(work, local, threads)))
    cost = driver.request_cost_or_none_if_read_whole(batch[0].store_path.path)
    if cost is None:
        return numbers
    for chunks in by_file:
        if chunks[0].part.file.local_path:
            continue
        for start in range(0, len(chunks), MAX_JOINED_CHUNKS):
            some = chunks[start : start + MAX_JOINED_CHUNKS]
            numbers.update(await _read_remote_parts(some, driver.store, reader, cost))
    return numbers


def _read_local_parts(
    reader: Reader, store: object, chunks: Sequence[ReferencedChunk]
) -> list[int]:
    """Read the chunks of a local file, in a thread; return the numbers of the chunks read."""
    numbers: list[int] = []
    name = chunks[0].part.file.local_path
    try:
        with open_chunk_file_if_exists(name, name) or nullcontext() as file:
            if file is None:
                return numbers
            size = file.size_of_regular_file()  # a ChunkFileError for anything else
            counters.count(store, opens=1)
            for chunk in chunks:
                if chunk.part.offset + chunk.part.nbytes > size:
                    raise _part_past_end_error(chunk, size)
            projections = (
                (chunk.projection, file.part(chunk.part.offset, chunk.part.nbytes))
                for chunk in chunks
            )
            for chunk, _ in zip(chunks, reader.read_open_files(projections), strict=True):
                numbers.append(chunk.number)
    except (OSError, ChunkFileError):
        pass
    counters.count(store, chunks=len(numbers))
    return numbers


def _part_past_end_error(chunk: ReferencedChunk, file_nbytes: int) -> ChunkSizeError:
    """The error for a part of a file that reaches past the end of the file."""
    part = chunk.part
    return ChunkSizeError(
        f"{store_path_name(chunk.projection.store_path)} is a part of {part.file.name} with"
        f" {part.nbytes} bytes from byte {part.offset} on, and the file has {file_nbytes} bytes: it"
        " is truncated or has changed; copy the file again, or make the references again"
    )


class PiecesOfFetches(NamedTuple):
    """The ranges of several chunks in one file, ascending."""

    starts: list[int]
    stops: list[int]
    owners: list[int]  # the number of the fetch to which each range belongs
    positions: list[int]  # in the bytes of that fetch


def pieces_of_fetches(fetches_and_offsets: Iterable[tuple[Fetch, int]]) -> PiecesOfFetches:
    """The pieces of fetches of chunks, which begin at these offsets in a file."""
    starts: list[Offsets] = []
    sizes: list[Offsets] = []
    counts: list[int] = []
    for fetch, offset in fetches_and_offsets:
        for some_starts, some_sizes in fetch.ranges.starts_and_sizes():
            starts.append(np.array(some_starts, np.int64) + offset)
            sizes.append(np.array(some_sizes, np.int64))
        counts.append(fetch.ranges.number_of_ranges())
    all_starts = np.concatenate(starts)
    all_sizes = np.concatenate(sizes)
    owners = np.repeat(np.arange(len(counts)), counts)
    # Where each piece begins in the bytes of its fetch: in those of all fetches, less where the
    # fetch begins.
    ends = np.cumsum(all_sizes)
    positions = ends - all_sizes
    first_pieces = np.cumsum(counts) - counts
    positions -= positions[first_pieces][owners]
    order = np.argsort(all_starts, kind="stable")
    ascending = (all_starts, all_starts + all_sizes, owners, positions)
    return PiecesOfFetches(*[along[order].tolist() for along in ascending])


class PlannedFetch(NamedTuple):
    """A fetch of a chunk that is a part of a file."""

    chunk: ReferencedChunk
    plan: Plan
    fetch: Fetch


class JoinedRead(NamedTuple):
    """The requests for several chunks of one file."""

    fetches: list[PlannedFetch]  # at least one for each chunk
    pieces: PiecesOfFetches  # owners are numbers of `fetches`
    requests: list[JoinedRequest]
    min_large_nbytes: int  # the size from which on a request is large

    @property
    def chunk_numbers(self) -> set[int]:
        """Numbers of the chunks, as in `ReferencedChunk`."""
        return {one.chunk.number for one in self.fetches}


def joined_read_or_none(
    chunks: Sequence[ReferencedChunk], reader: Reader, cost: RequestCost
) -> JoinedRead | None:
    """The joined requests for the chunks of which a small part is fetched.

    Other chunks are read by themselves. None if there are fewer than two such chunks, so nothing
    can be joined.
    """
    min_large_nbytes = chunks[0].projection.layout.limits.min_piece_nbytes
    fetches: list[PlannedFetch] = []
    for chunk in chunks:
        plan = reader.plan_of(chunk.projection, cost)
        if plan.nbytes < min_large_nbytes:
            fetches += [
                PlannedFetch(chunk, plan, fetch)
                for fetch in plan.fetches(SINGLE_CHUNK_INDEX, plan.max_request_nbytes)
                if isinstance(fetch, Fetch)  # a chunk is never absent
            ]
    if len({one.chunk.number for one in fetches}) < 2:
        return None
    pieces = pieces_of_fetches((one.fetch, one.chunk.part.offset) for one in fetches)
    requests = joined_requests(
        pieces.starts, pieces.stops, cost, request_limits().max_large_requests, min_large_nbytes
    )
    return JoinedRead(fetches, pieces, requests, min_large_nbytes)


async def _range_of_file(file: ReferencedFile, start: int, stop: int) -> Bytes:
    """The bytes of a file from `start` to `stop`; a _NotAsRequestedError for any failure.

    The store will raise the actual error, which may be of any class.
    """
    try:
        content = np.frombuffer(await file.get_range(start, stop), np.uint8)
    except Exception:  # noqa: BLE001 -- see above
        raise _NotAsRequestedError from None
    if content.size != stop - start:
        raise _NotAsRequestedError
    return content


async def _read_remote_parts(
    chunks: Sequence[ReferencedChunk], store: object, reader: Reader, cost: RequestCost
) -> set[int]:
    """Read chunks of one file with joined requests; return the numbers of the chunks read.

    If any request fails, no chunk counts as read.
    """
    file: ReferencedFile = chunks[0].part.file
    joined = joined_read_or_none(chunks, reader, cost)
    if joined is None:
        return set()
    pieces = joined.pieces
    arriving = [
        ArrivingFetch(fetch, reader.element_placer_of(chunk.projection, plan))
        for chunk, plan, fetch in joined.fetches
    ]
    slots = RequestSlots(request_limits())

    async def fetch_and_place(request: JoinedRequest) -> None:
        nbytes = request.stop - request.start
        is_small = nbytes < joined.min_large_nbytes
        async with slots.for_request.take(is_small=is_small):
            content = await _range_of_file(file, request.start, request.stop)
        counters.count(store, requests=1, ranges=1, bytes_fetched=nbytes)
        for number in request.piece_numbers:
            start = pieces.starts[number] - request.start
            stop = pieces.stops[number] - request.start
            arriving[pieces.owners[number]].add(pieces.positions[number], content[start:stop])

    try:
        await map_concurrently(
            fetch_and_place, joined.requests, max_concurrent_requests_of_any_size()
        )
    except _NotAsRequestedError:
        return set()
    if any(one.missing_nbytes for one in arriving):  # never, if all pieces are in requests
        return set()
    numbers = joined.chunk_numbers
    counters.count(store, chunks=len(numbers))
    return numbers
