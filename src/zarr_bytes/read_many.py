"""Reads of many small chunks with a store's own `get_many`, which takes requests for several keys.

zarr-python's pull request 4112 gives all stores a `get_many`. zarr's version calls `get` for each
request, as `read_batch` does. A class that overrides it can do better: it may know which chunks are
neighbors in one file, or how to request several chunks at once. Such a store gets the requests for
all small chunks of a read:

1. plan: each chunk is planned like any other, with one request for each range, or one request for
   the whole chunk;
2. fetch: batches of requests go to `get_many`, one after another, so that memory is bounded;
3. place: the elements of each chunk are placed in the result as soon as its bytes have arrived.

All other chunks are left to `read_batch`: shards, chunks with large reads, and chunks with answers
that failed, were partly missing, or had the wrong size, since `get` finds the error to raise. If it
isn't known whether the store answers byte ranges, the first chunk is requested alone.
"""

from __future__ import annotations

from contextlib import aclosing
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from zarr.abc.store import RangeByteRequest

from zarr_bytes.indexing.plan import Fetch
from zarr_bytes.io import counters
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.tasks import max_concurrent_requests_of_any_size
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX
from zarr_bytes.read import ArrivingFetch, Reader, read_remaining_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from zarr.abc.buffer import Buffer, BufferPrototype

    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.index_cache import IndexCache
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.read import ChunkExists, ChunkProjection

MAX_REQUESTS: Final = 4096
"""Most requests in one call of `get_many`; each request takes some memory."""


async def read_batch_by_get_many(
    batch: Sequence[ChunkProjection],
    driver: Driver,
    out: Array,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    plans: PlanCache,
    index_cache: IndexCache,
) -> list[ChunkExists]:
    """Like `read_batch`, for a store with its own `get_many`."""
    reader = Reader(out, drop_axes, driver, plans)
    max_nbytes = max_concurrent_requests_of_any_size() * batch[0].layout.limits.min_piece_nbytes
    exists: dict[int, ChunkExists] = {}
    small_chunks = _iter_small_chunks(batch, driver, reader) if len(batch) > 1 else iter(())
    first = list(islice(small_chunks, 1))
    if first and first[0].has_ranges and not driver.is_known_to_answer_ranges():
        exists |= await _read_small_chunks(first, driver, out, prototype)
        first = []
        if not exists:
            small_chunks = iter(())  # `get` finds the reason
    for chunks in _groups_for_calls(chain(first, small_chunks), max_nbytes):
        exists |= await _read_small_chunks(chunks, driver, out, prototype)
    counters.count(driver.store, chunks=len(exists))
    return await read_remaining_chunks(
        exists, batch, driver, out, drop_axes, prototype, plans, index_cache
    )


class _Request(NamedTuple):
    """A request for bytes of a chunk."""

    byte_range_or_none_if_whole: RangeByteRequest | None
    nbytes: int
    arriving: ArrivingFetch  # the fetch to which the answer belongs
    position: int  # of the answer in the fetch


class _SmallChunk:
    """A chunk with a small read, and its requests."""

    __slots__ = ("missing", "number", "projection", "requests", "unanswered")

    def __init__(
        self, number: int, projection: ChunkProjection, requests: Sequence[_Request]
    ) -> None:
        self.number = number  # in the batch
        self.projection = projection
        self.requests = requests
        self.unanswered = {*range(len(requests))}  # numbers of requests
        self.missing: set[int] = set()  # numbers of requests answered by None: no such object

    @property
    def nbytes(self) -> int:
        """Bytes of all requests."""
        return sum(request.nbytes for request in self.requests)

    @property
    def has_ranges(self) -> bool:
        """Whether only a part of the chunk is requested."""
        return self.requests[0].byte_range_or_none_if_whole is not None

    def take_answer(self, request_number: int, buffer_or_none_if_missing: Buffer | None) -> None:
        """Place the answer to a request, once; an answer of the wrong size is ignored."""
        if request_number not in self.unanswered:
            return
        request = self.requests[request_number]
        if buffer_or_none_if_missing is None:
            self.missing.add(request_number)
            return
        content = buffer_or_none_if_missing.as_numpy_array()
        if content.size == request.nbytes:
            request.arriving.add(request.position, content)
            self.unanswered.remove(request_number)  # not after an error

    def exists_or_none_if_unclear(self) -> ChunkExists | None:
        """Whether the chunk exists, if all its answers agree; otherwise None."""
        if not self.unanswered:
            return True
        return False if len(self.missing) == len(self.requests) else None


async def _read_small_chunks(
    chunks: Sequence[_SmallChunk], driver: Driver, out: Array, prototype: BufferPrototype
) -> dict[int, ChunkExists]:
    """Read chunks with one call of `get_many`.

    Returns whether each chunk exists, by its number in the batch. Chunks that must be read by `get`
    are left out.
    """
    exists: dict[int, ChunkExists] = {}
    await _get_many(chunks, driver.store, prototype)
    for chunk in chunks:
        is_there = chunk.exists_or_none_if_unclear()
        if is_there is not None:
            exists[chunk.number] = is_there
        if is_there is False:
            out[chunk.projection.out_selection] = chunk.projection.layout.fill_value
        elif is_there and chunk.has_ranges:
            known_stores.record_range_answer(driver.store, driver.origin)
    return exists


def _iter_small_chunks(
    batch: Sequence[ChunkProjection], driver: Driver, reader: Reader
) -> Iterator[_SmallChunk]:
    """The chunks of a batch with small reads, without shards."""
    for number, projection in enumerate(batch):
        layout = projection.layout
        if layout.stored_nbytes is None:
            continue
        key = projection.store_path.path
        plan = reader.plan_of(projection, driver.request_cost_or_none_if_read_whole(key))
        if plan.nbytes >= layout.limits.min_piece_nbytes:
            continue
        place = reader.element_placer_of(projection, plan)
        requests: list[_Request] = []
        for fetch in plan.fetches(SINGLE_CHUNK_INDEX, plan.max_request_nbytes):
            if not isinstance(fetch, Fetch):
                continue  # a chunk is never absent
            arriving = ArrivingFetch(fetch, place)
            for start, stop, position in fetch.ranges.requests(plan.max_request_nbytes):
                is_whole = (start, stop) == (0, layout.stored_nbytes)
                byte_range = None if is_whole else RangeByteRequest(start, stop)
                requests.append(_Request(byte_range, stop - start, arriving, position))
        yield _SmallChunk(number, projection, requests)


def _groups_for_calls(
    chunks: Iterable[_SmallChunk], max_nbytes: int
) -> Iterator[list[_SmallChunk]]:
    """Divide chunks into groups of at most `MAX_REQUESTS` requests and `max_nbytes` bytes.

    A chunk that exceeds these limits is a group by itself.
    """
    some: list[_SmallChunk] = []
    nbytes = count = 0
    for chunk in chunks:
        nbytes += chunk.nbytes
        count += len(chunk.requests)
        if some and (nbytes > max_nbytes or count > MAX_REQUESTS):
            yield some
            some = []
            nbytes = chunk.nbytes
            count = len(chunk.requests)
        some.append(chunk)
    if some:
        yield some


async def _get_many(chunks: Sequence[_SmallChunk], store: Any, prototype: BufferPrototype) -> None:
    """Call `get_many` for all requests of some chunks, and pass the answers to the chunks.

    An error of the store ends the call. All other chunks are left to `get`, which raises the error
    again.
    """
    owners = [(chunk, i) for chunk in chunks for i in range(len(chunk.requests))]
    requests: list[Any] = []
    for chunk, i in owners:
        key = chunk.projection.store_path.path
        byte_range = chunk.requests[i].byte_range_or_none_if_whole
        requests.append(key if byte_range is None else (key, byte_range))
    try:
        async with aclosing(store.get_many(requests, prototype=prototype)) as answers:
            async for some in answers:
                for number, buffer in some:
                    chunk, i = owners[number]
                    byte_range = chunk.requests[i].byte_range_or_none_if_whole
                    counters.count(
                        store,
                        requests=1,
                        ranges=0 if byte_range is None else 1,
                        bytes_fetched=0 if buffer is None else len(buffer),
                    )
                    chunk.take_answer(i, buffer)
    except Exception:  # noqa: BLE001 -- see above
        return
