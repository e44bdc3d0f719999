"""How the bytes of a stored object come: the part of a read that differs between stores.

A read is a plan, the index of the object, fetches, and the placing of their elements. A transport
gives the index (`locate`) and executes the fetches. There are three: `FileTransport` reads an open
file, `StoreTransport` of `io.requests` asks a store, and `CountingTransport` fetches nothing and
counts what the others would fetch, for `explain`.

All are coroutines, since stores are asked on an event loop. Those of files and of counting wait for
nothing that a loop would have to be told of, so that `run_coroutine_that_never_waits` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from zarr_bytes.indexing.plan import SizedFetch, with_request_sizes
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.tasks import max_concurrent_requests
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zarr_bytes.indexing.plan import Fetch, Plan
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.limits import Limits
    from zarr_bytes.settings import RequestCost


class Transport(Protocol):
    """Fetches bytes of one object, in this order: `locate`, then `fetch`; or `fetch_whole` alone.

    Each raises MissingChunkError if a store has no such object, ChunkSizeError if it has another
    size than a chunk, and errors of the system or the store as they are. A file that ends too early
    is an EndOfFileError.
    """

    cost: RequestCost | None
    """The cost of a request of a part of the object; None if it is always fetched whole."""

    async def fetch_whole(self) -> Bytes | None:
        """The bytes of a whole chunk, in one request; None if they are only counted."""

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index of the object; a ShardIndexError if it is truncated or damaged."""

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:
        """Most bytes that are fetched together, to be placed in the view."""

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Execute the fetches, in any order, and call `place` with the bytes of each."""


class FileTransport:
    """Reads one open file, in the thread that calls."""

    def __init__(self, file: ChunkFile, layout: ObjectLayout, cost: RequestCost | None) -> None:
        self.cost = cost
        self._file = file
        self._layout = layout

    async def fetch_whole(self) -> Bytes:
        """The bytes of the file of a chunk."""
        content = np.empty(self._layout.nbytes, np.uint8)
        self._file.read_whole(content.data)
        return content

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index of a shard, read; a chunk has a constant one, and its file a size to check."""
        layout = self._layout
        if layout.index_nbytes:
            return self._file.read_index(layout)
        if not _is_read_at_once(plan):  # which proves the size
            if plan.reads_whole_chunk:
                self._file.check_size(layout.nbytes)
            else:
                self._file.size_of_regular_file()  # a ChunkFileError for anything else
        return SINGLE_CHUNK_INDEX

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:  # noqa: ARG002 -- of stores
        """A block of memory."""
        return block_nbytes_of(view, self._layout.limits)

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Read one fetch after the other, into the same memory."""
        if _is_read_at_once(plan):
            content = await self.fetch_whole()
            for fetch in fetches:
                place(fetch, fetch.ranges.extract(content))
            return
        for fetch in fetches:
            content = self._file.read_ranges_into_reused_memory(
                fetch.ranges, plan.max_request_nbytes, self._layout.limits.short_range_nbytes
            )
            place(fetch, content)


def _is_read_at_once(plan: Plan) -> bool:
    """Whether a file is read whole by one call of the system, since it is small."""
    layout = plan.layout
    return plan.reads_whole_chunk and layout.nbytes <= layout.limits.assigned_nbytes


def block_nbytes_of(view: Array, limits: Limits) -> int:
    """Most bytes of a file that are read at once into the view.

    They are more where the view is in another order than the stored elements, to fill the lines of
    the processor's cache.
    """
    strides = [stride for stride, n in zip(view.strides, view.shape, strict=True) if n > 1]
    is_in_order = strides == sorted(strides, reverse=True)
    return limits.block_nbytes if is_in_order else limits.transposed_block_nbytes


class StoreFacts(NamedTuple):
    """What a `CountingTransport` has to know of a store and a read, besides the object."""

    is_folder: bool  # whether files are read without the store
    may_divide_whole_chunks: bool  # as of `StoreTransport`
    objects_at_once: int  # that share the request slots


class CountingTransport:
    """Counts what a read would fetch of one object, and fetches nothing.

    Parameters
    ----------
    layout
        Of the object.
    index
        Of the object: looked up, or assumed.
    cost
        As of `Transport`.
    facts
        Of the store.
    index_is_kept
        Whether the index of the shard is in the cache of the array, and is not fetched.

    Attributes
    ----------
    counts : Counts
        What has been counted, but no chunk and no opening of a file.
    index_nbytes : int
        Bytes of the index among `counts.bytes_fetched`.
    requests_before_others : int
        Requests that the other requests for the object wait for.
    """

    def __init__(
        self,
        layout: ObjectLayout,
        index: InnerChunkIndex,
        cost: RequestCost | None,
        facts: StoreFacts,
        *,
        index_is_kept: bool,
    ) -> None:
        self.cost = cost
        self.counts = Counts()
        self.index_nbytes = 0
        self.requests_before_others = 0
        self._layout = layout
        self._index = index
        self._facts = facts
        self._index_is_kept = index_is_kept
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

    async def locate(self, plan: Plan) -> InnerChunkIndex:
        """The index; counts what is fetched for it."""
        nbytes = self._layout.index_nbytes
        is_folder = self._facts.is_folder
        if not nbytes:
            may_divide = self._facts.may_divide_whole_chunks
            if is_folder:
                comes_whole = _is_read_at_once(plan)
            else:
                comes_whole = not plan.is_requested_by_ranges(may_divide_whole_chunks=may_divide)
            if comes_whole:
                await self.fetch_whole()
        elif self.cost is None and not is_folder:
            await self.fetch_whole()
        elif is_folder or not self._index_is_kept:
            self.counts.add(Counts(requests=0 if is_folder else 1, ranges=1, bytes_fetched=nbytes))
            self.index_nbytes += nbytes
            self.requests_before_others += 1
        return self._index

    def max_fetch_nbytes(self, plan: Plan, view: Array) -> int:
        """As that of a file, or of a request."""
        if self._facts.is_folder:
            return block_nbytes_of(view, self._layout.limits)
        return plan.max_request_nbytes

    async def fetch(
        self, plan: Plan, fetches: Iterable[Fetch], place: Callable[[Fetch, Bytes], None]
    ) -> None:
        """Count the ranges and the requests of the fetches; `place` is not called."""
        del place
        if self._has_come_whole:
            return
        sized_fetches: Iterable[SizedFetch]
        if self._facts.is_folder:  # a file has no slots
            sized_fetches = (SizedFetch(fetch, plan.max_request_nbytes) for fetch in fetches)
        else:
            sized_fetches = with_request_sizes(
                fetches,
                plan.max_request_nbytes,
                max_concurrent_requests(),
                self._facts.objects_at_once,
                self._layout.limits.min_piece_nbytes,
            )
        for fetch, request_nbytes in sized_fetches:
            count = fetch.ranges.number_of_requests(request_nbytes)
            requests = 0 if self._facts.is_folder else count
            self.counts.add(
                Counts(requests=requests, ranges=count, bytes_fetched=fetch.ranges.nbytes)
            )
