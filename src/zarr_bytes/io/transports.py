"""Transports of the bytes of a stored object: the part of a read that differs between stores.

A read makes a plan, gets the index of the object, executes fetches, and places their elements. A
transport gets the index (`locate`) and executes the fetches. There are two transports:
`StoreTransport` of `io.requests` sends requests to a store. `ForecastTransport` fetches nothing,
and counts the requests and bytes of a read for `explain`. Files don't need a transport, since
reading them doesn't await anything (`Reader.read_files_or_fill`).

The methods that fetch are coroutines, since requests to stores are sent on an event loop. Counting
never waits, so `run_coroutine_that_never_waits` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from zarr_bytes.indexing.plan import SizedFetch, with_request_sizes
from zarr_bytes.io.counters import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zarr_bytes.indexing.plan import Fetch, Plan
    from zarr_bytes.io.tasks import RequestLimits
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.settings import RequestCost


BytesOrNoneIfOnlyCounted: TypeAlias = "Bytes | None"
"""The bytes of a chunk; None from a transport that only counts."""


class Transport(Protocol):
    """Fetches bytes of one object, in this order: `locate`, then `fetch`; or only `fetch_whole`.

    Each method raises MissingChunkError if a store doesn't have the object, ChunkSizeError if the
    object doesn't have the size of a chunk, and errors of the store unchanged.
    """

    cost: RequestCost | None
    """The cost of a request for a part of the object; None if it is always fetched whole."""

    needs_plan: bool
    """Whether `fetch_whole` can't replace a plan: files are read in blocks of a plan."""

    async def fetch_whole(self) -> BytesOrNoneIfOnlyCounted:
        """The bytes of a whole chunk, in one request."""

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index of the object; a ShardIndexError if it is truncated or damaged."""

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:
        """Most bytes that are fetched together and placed in the view."""

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Execute the fetches, in any order, and call `place` with the bytes of each."""


class StoreFacts(NamedTuple):
    """Properties of a store and a read that a `ForecastTransport` needs, besides the object."""

    is_folder: bool  # whether files are read without the store
    may_divide_whole_chunks: bool  # as in `StoreTransport`
    objects_at_once: int  # number of objects that share the request slots
    limits: RequestLimits  # for all these objects together


class ForecastTransport:
    """Counts the requests and bytes of a read of one object, and fetches nothing.

    Parameters
    ----------
    layout
        Layout of the object.
    index
        Index of the object: looked up, or assumed.
    cost_or_none_if_read_whole
        The `cost`, as in `Transport`.
    facts
        Properties of the store and the read.
    index_is_kept
        Whether the index of the shard is in the cache of the array, and isn't fetched.

    Attributes
    ----------
    counts : Counts
        Counts of the read, without chunks and opened files.
    index_nbytes : int
        Bytes of the index, included in `counts.bytes_fetched`.
    requests_before_others : int
        Requests that the other requests for the object wait for.
    large_requests : int
        Large requests, included in `counts.requests`; fewer large than small requests run at the
        same time.
    needs_nearly_whole_chunk : bool
        Whether a chunk is requested whole only because nearly all of it is needed.
    """

    def __init__(
        self,
        layout: ObjectLayout,
        index: InnerChunkIndex,
        cost_or_none_if_read_whole: RequestCost | None,
        facts: StoreFacts,
        *,
        index_is_kept: bool,
    ) -> None:
        self.cost = cost_or_none_if_read_whole
        self.needs_plan = facts.is_folder
        self.counts = Counts()
        self.index_nbytes = 0
        self.requests_before_others = 0
        self.large_requests = 0
        self.needs_nearly_whole_chunk = False
        self._layout = layout
        self._index = index
        self._facts = facts
        # A shard that is always fetched whole includes its index.
        self._has_usable_index = index_is_kept and self.cost is not None
        self._has_come_whole = False

    async def fetch_whole(self) -> None:
        """Count one request, or one range of a file, for all bytes of the object."""
        layout = self._layout
        self._has_come_whole = True
        nbytes = self._index.present_count * layout.inner_chunk_nbytes + layout.index_nbytes
        self.index_nbytes += layout.index_nbytes
        if self._facts.is_folder:
            self.counts.add(Counts(ranges=1, bytes_fetched=nbytes))
        else:
            self.counts.add(Counts(requests=1, bytes_fetched=nbytes))
            self.large_requests += 0 if layout.whole_request_is_small else 1

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index; counts its requests and bytes."""
        nbytes = self._layout.index_nbytes
        is_folder = self._facts.is_folder
        if not nbytes:
            may_divide = self._facts.may_divide_whole_chunks
            if is_folder:
                comes_whole = plan.is_read_at_once
            else:
                comes_whole = not plan.is_requested_by_ranges(may_divide_whole_chunks=may_divide)
                self.needs_nearly_whole_chunk = comes_whole and not plan.reads_whole_chunk
            if comes_whole:
                await self.fetch_whole()
        elif not is_folder and plan.fetches_whole_shard and not self._has_usable_index:
            await self.fetch_whole()
        elif is_folder or not self._has_usable_index:
            self.counts.add(Counts(requests=0 if is_folder else 1, ranges=1, bytes_fetched=nbytes))
            self.index_nbytes += nbytes
            self.requests_before_others += 1
        return self._index

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:
        """Most bytes of a block of a file, or of a request."""
        return (
            plan.block_nbytes_limit_for(view) if self._facts.is_folder else plan.max_request_nbytes
        )

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Count the ranges and the requests of the fetches; `place` isn't called."""
        del place
        if self._has_come_whole:
            return
        sized_fetches: Iterable[SizedFetch]
        if self._facts.is_folder:  # a file has no slots
            sized_fetches = (
                SizedFetch(fetch, plan.max_request_nbytes, has_small_requests=True)
                for fetch in fetches
            )
        else:
            sized_fetches = with_request_sizes(
                fetches,
                plan.max_request_nbytes,
                self._facts.limits.max_pieces_of_range,
                self._facts.objects_at_once,
                self._layout.limits.min_piece_nbytes,
            )
        for fetch, request_nbytes, has_small_requests in sized_fetches:
            count = fetch.ranges.number_of_requests(request_nbytes)
            self.large_requests += 0 if has_small_requests else count
            requests = 0 if self._facts.is_folder else count
            self.counts.add(
                Counts(requests=requests, ranges=count, bytes_fetched=fetch.ranges.nbytes)
            )
