"""The sum of the counts of a read or write, chunk by chunk, and its reasons; for `explain`.

A `ForecastSum` reads with the transport that only counts, and writes to the target that only
counts. For writes and for shards, files are opened to read their status and index.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import encoding_of_uncompressed, uncompressed_codecs_or_raise
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.reasons import (
    HAS_OTHER_NAMES,
    IS_LINK,
    IS_READ_ONLY,
    NOT_NEEDED,
    Reason,
    first_reason_not_uncompressed,
    first_reason_zarr_handles_chunks,
    how_to_preallocate,
    how_to_set,
    why_never_in_place,
    why_read_by_zarr,
    why_written_by_zarr,
)
from zarr_bytes.commands.result import class_path, thousands_or_power_of_ten
from zarr_bytes.commands.status import source_of_setting
from zarr_bytes.errors import StoreError
from zarr_bytes.indexing.plan import is_nearly_all
from zarr_bytes.indexing.plan_cache import PlanCache
from zarr_bytes.indexing.selection import c_strides, is_basic_selection
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import (
    is_hard_linked_or_read_only,
    open_without_lock_to_write_if_exists,
)
from zarr_bytes.io.files import ChunkFile, open_descriptor_if_exists
from zarr_bytes.io.locks import can_lock
from zarr_bytes.io.tasks import (
    ONE_AT_A_TIME,
    count_objects_in_same_round,
    max_objects_at_once,
    request_limits,
    run_coroutine_that_never_waits,
)
from zarr_bytes.io.transports import ForecastTransport, StoreFacts
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX, InnerChunkIndex
from zarr_bytes.limits import DEFAULT_LIMITS
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.read import (
    UNKNOWN_COUNT,
    ChunkProjection,
    Reader,
    kept_index_of,
    prepare_codec_read,
)
from zarr_bytes.read_references import (
    MAX_JOINED_CHUNKS,
    ReferencedChunk,
    joined_read_or_none,
    offset_in_file,
)
from zarr_bytes.settings import (
    names_of_cost_settings,
    request_cost_or_none_if_partial_reads_are_off,
)
from zarr_bytes.write import NO_GAPS, ForecastTarget, SelectionUpdate, write_object
from zarr_bytes.zarr_versions import chunk_spec_if_regular, chunk_spec_in_rectilinear_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr
    from zarr.abc.codec import Codec
    from zarr.storage import StorePath

    from zarr_bytes.io.references import FilePart
    from zarr_bytes.io.tasks import RequestLimits
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.objects import ChunkEncoding, ObjectLayout
    from zarr_bytes.settings import RequestCost
    from zarr_bytes.zarr_versions import ArraySpec

_MAX_FILES_LOOKED_AT: Final = 1000
_MAX_ORDERED_INNER_CHUNKS: Final = 2**20  # in a shard; if there are more, C order is assumed


class _IndexAndWhyNotInPlace(NamedTuple):
    """The state of a stored object before a read or write.

    `object_index` is its index, or None if the object is missing. `why_not_in_place` is the reason
    why the file can't be written in place, with its path; None if it can be, if the object wasn't
    looked at, or for a read. `is_assumed` is whether the object wasn't looked at, and is assumed to
    exist.
    """

    object_index: InnerChunkIndex | None
    why_not_in_place: Reason | None
    is_assumed: bool


class _Handling(NamedTuple):
    """The part of this package that reads or writes an array, or the reason why zarr does.

    zarr reads and writes chunks by itself if there is a reason. Otherwise, there is an encoding.
    """

    acts: str  # as in `Explanation`
    own_pipeline: BatchedBytesPipeline | None  # None if zarr's pipeline reads, or calls the codec
    codecs: Sequence[Codec] = ()  # of uncompressed chunks
    encoding: ChunkEncoding | None = None
    why_zarr: Reason | None = None
    is_known: bool = True  # as in `ForecastSum`


def _decide_who_handles_chunks(
    array: zarr.Array[Any], spec_if_regular: ArraySpec | None, *, is_write: bool
) -> _Handling:
    """The handling of an array; `spec_if_regular` is None if its chunks have several shapes."""
    pipeline = array.async_array.codec_pipeline
    acts = class_path(type(pipeline))
    # Buffers in other memory are left to zarr's pipeline, which calls the codec.
    has_numpy_buffers = issubclass(get_buffer_class(), cpu.Buffer)
    own_pipeline: BatchedBytesPipeline | None = None
    if has_numpy_buffers and isinstance(pipeline, BatchedBytesPipeline):
        own_pipeline = pipeline
    try:
        codecs = uncompressed_codecs_or_raise(array)
    except StoreError:
        reason = first_reason_not_uncompressed(array, is_write=is_write)
        return _Handling(acts, own_pipeline, why_zarr=reason, is_known=False)
    if spec_if_regular is not None:
        why_zarr = why_read_by_zarr(codecs, spec_if_regular)
        if why_zarr is not None:
            return _Handling(acts, own_pipeline, codecs, why_zarr=why_zarr, is_known=False)
        if is_write:
            why_zarr = why_written_by_zarr(codecs, spec_if_regular)
        if why_zarr is not None:
            return _Handling(acts, None, codecs, why_zarr=why_zarr, is_known=False)
    if own_pipeline is not None:
        return _Handling(acts, own_pipeline, codecs, own_pipeline.encoding)
    codec = None if is_write else getattr(pipeline, "array_bytes_codec", None)
    if isinstance(codec, BytesCodec) and len(codecs) == 1:
        acts = f"{class_path(type(codec))} in {acts}"
        return _Handling(acts, None, codecs, encoding_of_uncompressed(codecs))
    is_known = not isinstance(codecs[-1], ShardingCodec)
    reason = first_reason_zarr_handles_chunks()
    return _Handling(acts, None, codecs, why_zarr=reason, is_known=is_known)


@dataclass
class ForecastTotals(Counts):
    """Numbers for one chunk, or sums over several chunks."""

    chunks_assumed: int = 0
    chunks_in_place: int = 0
    bytes_of_chunks: int = 0
    bytes_of_indexes: int = 0  # among the bytes that are fetched
    first_requests: int = 0  # that other requests wait for
    large_requests: int = 0  # fewer of them run at a time
    first_large_requests: int = 0  # both first and large


class _LastChunk(NamedTuple):
    """The last chunk and its numbers, which also hold for a next chunk that is like it."""

    chunk_selection: Any
    is_complete_chunk: bool
    totals: ForecastTotals


class ForecastSum:
    """The sum of the counts of a read or write, zero until `add` adds chunk by chunk.

    Parameters
    ----------
    array
        The array.
    out_shape, drop_axes
        Shape of the selection, and the axes that an integer of an orthogonal selection drops.
    largest_chunk_nbytes
        Uncompressed size of a whole chunk or shard; of the largest if they differ.
    item_size
        Uncompressed size of an element in bytes.
    chunk_count
        Number of chunks from the indexer.
    is_write
        Whether the selection is written.

    Attributes
    ----------
    totals : ForecastTotals
        Sums of the chunks so far.
    acts : str
        The class of the pipeline, and of the codec if the codec reads, as in `Explanation`.
    reason : Reason or None
        The first reason why a chunk is read whole, replaced, or left to zarr; None if there is
        none.
    why_not_in_place : Reason or None
        The first reason why a part of a chunk isn't written in place, whether the chunk exists or
        not; None if there is none.
    is_known : bool
        Whether the counts are known in advance; False if zarr reads shards or compressed chunks.
    depends_on_values
        As in `Explanation`.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        out_shape: tuple[int, ...],
        drop_axes: tuple[int, ...],
        largest_chunk_nbytes: int,
        item_size: int,
        chunk_count: int,
        *,
        is_write: bool,
    ) -> None:
        self._array = array
        self._largest_chunk_nbytes = largest_chunk_nbytes
        self._item_size = item_size
        self._chunk_count = chunk_count
        self._is_write = is_write
        self._driver = driver_of(array.store, array.path)
        self.totals = ForecastTotals()
        self.reason: Reason | None = None
        # Whether any chunk is requested whole only because nearly all of it is needed.
        self._needs_nearly_whole_chunk = False
        self.why_not_in_place: Reason | None = None
        self.depends_on_values = False
        self._skips_empty_chunks = not array.config.write_empty_chunks
        # The spec of all chunks; None if they have several shapes.
        self._spec = chunk_spec_if_regular(cast("Any", array.metadata))
        self._has_several_shapes = self._spec is None
        handling = _decide_who_handles_chunks(array, self._spec, is_write=is_write)
        self.acts = handling.acts
        self.is_known = handling.is_known
        self._codecs = handling.codecs
        self._encoding = handling.encoding
        self._why_zarr = handling.why_zarr
        own_pipeline = handling.own_pipeline
        self._own_pipeline = own_pipeline
        self._plans = PlanCache()
        # The reader of the pipeline; None if the codec reads, with one reader for each chunk.
        self._reader: Reader | None = None
        if own_pipeline is not None:
            out = _placeholder_array(out_shape, array.dtype, array.order)
            self._reader = Reader(out, drop_axes, self._driver, self._plans, places_elements=False)
        why_not_files = self._driver.why_not_in_place()
        self._writes_in_place = (
            own_pipeline is not None and own_pipeline.in_place and not why_not_files
        )
        self._why_never_in_place = why_never_in_place(
            self._driver, writes_in_place=self._writes_in_place
        )
        self._uses_files = not why_not_files if is_write else bool(self._driver.files_root)
        is_sharded = self._encoding is not None and self._encoding.sharding is not None
        self._is_sharded = is_sharded
        looks_at_files = self._uses_files and (is_write or is_sharded)
        self._files_to_look_at = _MAX_FILES_LOOKED_AT if looks_at_files else 0
        # Whether chunks with equal selections have equal numbers, unless their files are looked at.
        # Not if the pipeline keeps the indexes of shards: it may have them for some keys only.
        has_kept_indexes = is_sharded and not is_write and not self._uses_files
        self._references = None if is_write or own_pipeline is None else self._driver.references
        self._opened_files: set[str] = set()
        # Chunks whose requests may be joined, by the name of their file.
        self._parts_of_files: dict[str, list[ReferencedChunk]] = {}
        self._chunks_are_alike = (
            self._driver.objects_are_alike
            and not self._has_several_shapes
            and not has_kept_indexes
            and self._references is None
        )
        # The last round may have fewer chunks than slots, so its chunks aren't like the others.
        limits = DEFAULT_LIMITS if own_pipeline is None else own_pipeline.limits
        self._objects_at_once = max_objects_at_once(
            prod(out_shape) * array.dtype.itemsize,
            chunk_count,
            limits.min_piece_nbytes,
            is_remote=self._driver.is_remote,
        )
        self._limits = request_limits(
            shards_at_once=max(1, min(self._objects_at_once, chunk_count)) if is_sharded else None,
            is_remote=self._driver.is_remote,
        )
        self._chunks_before_last_round = chunk_count - chunk_count % self._objects_at_once
        self._last_chunk: _LastChunk | None = None

    def add(self, projection: Any) -> None:
        """Add the read or write of a chunk, as zarr's indexer gives it: its ChunkProjection.

        A chunk with the numbers of the previous one isn't planned again, so a million chunks take
        seconds.
        """
        _, chunk_selection, _, is_complete_chunk = projection
        may_be_alike = (
            self._chunks_are_alike
            and self.totals.chunks < self._chunks_before_last_round
            and is_basic_selection(chunk_selection)
        )
        last = self._last_chunk
        if may_be_alike and last is not None:
            has_same_selection = bool(chunk_selection == last.chunk_selection)
            if has_same_selection and bool(is_complete_chunk) is last.is_complete_chunk:
                self.totals.add(last.totals)
                return
        files_to_look_at = self._files_to_look_at
        totals = self._forecast_chunk_and_set_reason(projection)
        self.totals.add(totals)
        self._last_chunk = None
        if may_be_alike and self._files_to_look_at == files_to_look_at:
            self._last_chunk = _LastChunk(chunk_selection, bool(is_complete_chunk), totals)

    def _forecast_chunk_and_set_reason(self, projection: Any) -> ForecastTotals:
        """The numbers of one chunk. Also sets the first reason and the flags of the forecast."""
        chunk_coords, chunk_selection, out_selection, is_complete_chunk = projection
        totals = ForecastTotals(chunks=1)
        store_path = self._array.store_path / self._array.metadata.encode_chunk_key(chunk_coords)
        spec = self._spec
        chunk_nbytes = self._largest_chunk_nbytes
        if self._has_several_shapes:
            spec = chunk_spec_in_rectilinear_grid(self._array, chunk_coords)
            chunk_nbytes = prod(spec.shape) * self._item_size
        totals.bytes_of_chunks = chunk_nbytes
        layout = None
        if self._encoding is not None and spec is not None:
            if self._has_several_shapes and (why_not_read := why_read_by_zarr(self._codecs, spec)):
                self.is_known = False
                self._why_zarr = why_not_read
            else:
                layout = self._encoding.layout_of(spec)
        if layout is None:
            self._add_by_zarr_and_set_reason(
                totals, chunk_nbytes, is_complete_chunk=bool(is_complete_chunk)
            )
        elif self._is_write:
            self._add_write_and_set_reason(
                totals,
                layout,
                store_path,
                chunk_selection,
                is_complete_chunk=bool(is_complete_chunk),
            )
        else:
            self._add_read_and_set_reason(
                totals,
                ChunkProjection(
                    store_path, layout, chunk_selection, out_selection, is_complete_chunk=False
                ),
            )
        return totals

    def _add_by_zarr_and_set_reason(
        self, totals: ForecastTotals, chunk_nbytes: int, *, is_complete_chunk: bool
    ) -> None:
        """Add a chunk that zarr reads and writes as a whole."""
        if self._is_write:
            totals.bytes_written = chunk_nbytes
            self.depends_on_values = self.depends_on_values or self._skips_empty_chunks
        if not (self._is_write and is_complete_chunk):
            totals.bytes_fetched = chunk_nbytes
            totals.chunks_assumed += 1
            self.reason = self.reason or self._why_zarr

    def _add_read_and_set_reason(self, totals: ForecastTotals, projection: ChunkProjection) -> None:
        """Plan the read of a chunk with a counting transport, or leave it for later.

        `add_postponed_chunks` adds the chunks that are left.
        """
        part: FilePart | None = None
        if self._references is not None and projection.layout.stored_nbytes is not None:
            part = self._references.part_unless_store_must_be_asked(projection.store_path.path)
        if part is not None and part.file.local_path:
            self._add_local_part(totals, projection, part)
        elif (
            part is not None
            and self._driver.request_cost_or_none_if_partial_reads_are_off() is not None
        ):
            chunk = ReferencedChunk(self.totals.chunks, projection, part)
            self._parts_of_files.setdefault(part.file.name, []).append(chunk)
        else:
            self._add_read_by_store_or_file(totals, projection)

    def _add_local_part(
        self, totals: ForecastTotals, projection: ChunkProjection, part: FilePart
    ) -> None:
        """Plan the read of a chunk that is a part of a local file, with a counting transport."""
        reader = cast("Reader", self._reader)  # as with all references
        totals.opens = int(part.file.name not in self._opened_files)
        self._opened_files.add(part.file.name)
        facts = StoreFacts(
            is_folder=True, may_divide_whole_chunks=False, objects_at_once=1, limits=ONE_AT_A_TIME
        )
        cost = request_cost_or_none_if_partial_reads_are_off("local")
        transport = ForecastTransport(
            projection.layout, SINGLE_CHUNK_INDEX, cost, facts, index_is_kept=False
        )
        run_coroutine_that_never_waits(reader.read_object_or_fill(projection, transport))
        totals.add(transport.counts)

    def add_postponed_chunks(self) -> None:
        """Add the chunks that `add` has left for later; called after all calls of `add`.

        These are parts of files elsewhere, whose requests are joined if possible.
        """
        cost = self._driver.request_cost_or_none_if_partial_reads_are_off()
        for chunks in self._parts_of_files.values():
            chunks.sort(key=offset_in_file)
            for start in range(0, len(chunks), MAX_JOINED_CHUNKS):
                some = chunks[start : start + MAX_JOINED_CHUNKS]
                self._add_parts_of_one_file(some, cast("RequestCost", cost))

    def _add_parts_of_one_file(self, chunks: list[ReferencedChunk], cost: RequestCost) -> None:
        """Add the requests for some chunks of one file: joined requests, or one by one."""
        joined = joined_read_or_none(chunks, cast("Reader", self._reader), cost)
        by_themselves = chunks
        if joined is not None:
            for request in joined.requests:
                nbytes = request.stop - request.start
                self.totals.add(Counts(requests=1, ranges=1, bytes_fetched=nbytes))
                self.totals.large_requests += nbytes >= joined.min_large_nbytes
            numbers = joined.chunk_numbers
            by_themselves = [chunk for chunk in chunks if chunk.number not in numbers]
        for chunk in by_themselves:
            totals = ForecastTotals()
            self._add_read_by_store_or_file(totals, chunk.projection)
            self.totals.add(totals)

    def _add_read_by_store_or_file(
        self, totals: ForecastTotals, projection: ChunkProjection
    ) -> None:
        """Plan the read of a chunk with a counting transport."""
        store_path, layout, chunk_selection, *_ = projection
        driver = self._driver
        totals.opens = int(self._uses_files)
        state = self._look_up_or_assume_index(layout, store_path, to_write=False)
        index = state.object_index
        if index is None:  # a missing shard
            index = _assumed_index(layout)
            totals.chunks_assumed += 1
        elif state.is_assumed:
            totals.chunks_assumed += 1
        if self.reason is None and (whole_reason := driver.why_always_whole(store_path.path)):
            self.reason = Reason(whole_reason.text, whole_reason.remedy)
        goes_first = not layout.index_nbytes and not driver.is_known_to_answer_ranges()
        totals.first_requests += goes_first
        reader = self._reader
        index_cache = None if self._own_pipeline is None else self._own_pipeline.index_cache
        chunk_count = self._chunk_count
        if reader is None:
            prepared = prepare_codec_read(store_path, layout, chunk_selection, _placeholder_array)
            projection = prepared.projection
            reader = Reader(prepared.out, (), driver, self._plans, places_elements=False)
            chunk_count = UNKNOWN_COUNT  # zarr calls the codec chunk by chunk: no last round
        facts = StoreFacts(
            is_folder=self._uses_files,
            may_divide_whole_chunks=self._reader is not None and driver.may_divide_whole_chunks(),
            objects_at_once=count_objects_in_same_round(
                self.totals.chunks, chunk_count, self._objects_at_once
            ),
            limits=self._limits,
        )
        transport = ForecastTransport(
            layout,
            index,
            driver.request_cost_or_none_if_read_whole(store_path.path),
            facts,
            index_is_kept=kept_index_of(index_cache, store_path, layout) is not None,
        )
        run_coroutine_that_never_waits(reader.read_object_or_fill(projection, transport))
        totals.add(transport.counts)
        totals.bytes_of_indexes += transport.index_nbytes
        totals.first_requests += transport.requests_before_others
        totals.large_requests += transport.large_requests
        totals.first_large_requests += goes_first and transport.large_requests > 0
        self._needs_nearly_whole_chunk |= transport.needs_nearly_whole_chunk

    def _add_write_and_set_reason(
        self,
        totals: ForecastTotals,
        layout: ObjectLayout,
        store_path: StorePath,
        chunk_selection: Any,
        *,
        is_complete_chunk: bool,
    ) -> None:
        update = SelectionUpdate(
            self._plans.plan_of(layout, chunk_selection, NO_GAPS),
            chunk_selection,
            is_complete_chunk=is_complete_chunk,
        )
        index = None
        why_replaced = self._why_never_in_place
        if not update.replaces_all:
            state = self._look_up_or_assume_index(layout, store_path, to_write=not why_replaced)
            if state.is_assumed:
                totals.chunks_assumed += 1
            index = state.object_index
            why_replaced = why_replaced or state.why_not_in_place
        target = ForecastTarget(
            store_path.path,
            update,
            index,
            uses_files=self._uses_files,
            in_place=self._writes_in_place,
            must_be_replaced=why_replaced is not None,
        )
        why_rebuilt = write_object(update, target)
        if why_rebuilt is not None and why_replaced is None:
            why_replaced = Reason(why_rebuilt, how_to_preallocate(self._array))
        if not update.replaces_all:
            self.why_not_in_place = self.why_not_in_place or why_replaced
        totals.add(target.counts)
        if target.depends_on_values and self._skips_empty_chunks:
            self.depends_on_values = True
        if target.counts.requests > 1:  # the object is fetched, then written
            totals.first_requests += 1
        if not (why_replaced or update.replaces_all):
            totals.chunks_in_place += 1
        if self._uses_files and totals.chunks_assumed:
            self.is_known = False
        if index is not None:
            self.reason = self.reason or why_replaced

    @property
    def rounds_of_concurrent_requests(self) -> int:
        """Number of requests that follow one another.

        Requests for the indexes of shards, and for first ranges, come before all others.
        """
        totals = self.totals
        first = min(totals.first_requests, totals.requests)
        first_large = min(totals.first_large_requests, first)
        rounds_of_first = _rounds(first, first_large, self._limits)
        return rounds_of_first + _rounds(
            totals.requests - first, max(totals.large_requests - first_large, 0), self._limits
        )

    @property
    def chunks_may_have_several_writers(self) -> bool:
        """Whether processes may write different elements of a chunk at the same time."""
        totals = self.totals
        if self._why_never_in_place or not totals.chunks:
            return False
        all_in_place = totals.chunks_in_place == totals.chunks and not totals.chunks_assumed
        return all_in_place or can_lock(f"{self._driver.files_root}/{self._array.path}")

    @property
    def why_chunks_are_replaced_or_not_shared(self) -> Reason | None:
        """The first reason why a write replaces a chunk, or else why a new one may not be shared.

        None if there is none.
        """
        if self.reason is None and not self.chunks_may_have_several_writers:
            return self.why_not_in_place
        return self.reason

    def why_whole_or_more_is_fetched(self, selected_nbytes: int) -> Reason | None:
        """The first reason why a read fetches whole chunks or unselected bytes; None if neither.

        Called after all chunks have been added.
        """
        if self.reason:
            return self.reason
        driver = self._driver
        totals = self.totals
        fetched_nbytes = totals.bytes_fetched - totals.bytes_of_indexes
        if selected_nbytes >= fetched_nbytes:
            if fetched_nbytes >= totals.bytes_of_chunks:
                return Reason(
                    "the selection reaches from the first element of each chunk to the last",
                    NOT_NEEDED,
                )
            if totals.bytes_fetched >= totals.bytes_of_chunks:
                return Reason(
                    "the index of a shard is at least as large as the elements that are left out",
                    "write the array with larger inner chunks: each takes 16 bytes of the index",
                )
            return None
        cost = driver.request_cost_or_none_if_partial_reads_are_off()
        if cost is None:
            name = "zarr_bytes.partial_reads"
            return Reason(
                f"{name} is False (set by {source_of_setting(name)})", how_to_set(name, value=True)
            )
        name = names_of_cost_settings(driver.cost_kind).gap
        gap = f"{thousands_or_power_of_ten(cost.gap)} bytes ({name})"
        lower_gap = how_to_set(name, value=0)
        # In a file, a shard is never read whole for this reason: its index is read first.
        kind = "shard" if self._is_sharded else "chunk"
        comes_whole = not self._is_sharded or totals.bytes_fetched >= totals.bytes_of_chunks
        if self._largest_chunk_nbytes <= cost.gap and comes_whole:
            nbytes = thousands_or_power_of_ten(self._largest_chunk_nbytes)
            return Reason(
                f"a {kind} has {nbytes} bytes, no more than the gap of {gap}",
                f"none is needed: a whole {kind} takes about as long as a part. To read fewer"
                f" bytes: {lower_gap}",
            )
        if self._needs_nearly_whole_chunk and is_nearly_all(selected_nbytes, fetched_nbytes):
            return Reason(
                "nearly all of a chunk is selected, so the whole chunk is requested",
                f"none is needed. To read fewer bytes: {lower_gap}",
            )
        return Reason(
            f"gaps of up to {gap} are read, to save requests",
            f"for fewer bytes in more ranges, lower the gap: {lower_gap}. For few bytes in few"
            " ranges, store the selected elements side by side: write the array with the axes that"
            " are selected whole at the end (TransposeCodec), or in shards with inner chunks of the"
            " shape of a selection",
        )

    def _look_up_or_assume_index(
        self, layout: ObjectLayout, store_path: StorePath, *, to_write: bool
    ) -> _IndexAndWhyNotInPlace:
        """The state of an object in a file. It is assumed after a thousand files, and elsewhere.

        A ValueError if the file has the wrong size or a damaged index, or isn't a regular file.
        """
        if not self._files_to_look_at:
            return _IndexAndWhyNotInPlace(_assumed_index(layout), None, is_assumed=True)
        self._files_to_look_at -= 1
        root = self._driver.files_root
        path = f"{root}/{store_path.path}"
        why: Reason | None = None
        if to_write:
            descriptor, may_write = open_without_lock_to_write_if_exists(
                path, raises_if_mounted_read_only=True
            )
            if not may_write:
                why = IS_LINK if Path(path).is_symlink() else IS_READ_ONLY
        else:
            descriptor = open_descriptor_if_exists(path)
        index: InnerChunkIndex | None = None
        if descriptor is not None:
            with ChunkFile(descriptor, path, root) as file:
                if layout.stored_nbytes is not None:
                    file.check_size(layout.stored_nbytes)
                status = os.fstat(descriptor)
                if to_write and not why and is_hard_linked_or_read_only(descriptor, status, path):
                    why = HAS_OTHER_NAMES if status.st_mode & 0o222 else IS_READ_ONLY
                index = file.read_index(layout)
        reason = why.with_path(path) if why else None
        return _IndexAndWhyNotInPlace(index, reason, is_assumed=False)


def _placeholder_array(shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
    """An array in the place of the result, of any size, with the memory of one element.

    The array must never be read or written, since its other elements are outside this memory. Plans
    use only the shapes and strides of its views.
    """
    axes = range(len(shape))
    strides = c_strides(shape, dtype.itemsize, axes if order == "C" else axes[::-1])
    # Raw bytes first: NumPy's function doesn't support the types of other packages.
    memory = np.empty(1, f"V{dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(memory, shape, strides).view(dtype)


def _assumed_index(layout: ObjectLayout) -> InnerChunkIndex:
    """Index of an object with all inner chunks, in the order in which its array writes them.

    For more than `_MAX_ORDERED_INNER_CHUNKS` inner chunks, the index has C order, which takes no
    time.
    """
    if layout.inner_chunk_count <= _MAX_ORDERED_INNER_CHUNKS:
        return layout.full_index
    return InnerChunkIndex(layout.data_offset, layout.inner_chunk_nbytes, layout.inner_chunk_count)


def _rounds(requests: int, large_requests: int, limits: RequestLimits) -> int:
    """Number of requests that follow one another, if as many as permitted run at a time."""
    # Both quotients are rounded up.
    return max(-(-large_requests // limits.max_large_requests), -(-requests // limits.max_requests))
