"""`explain`: what a read or write of a selection will do, and why it is not partial.

zarr's indexer divides the selection by chunk, and the plans of reading and writing count the bytes
of each chunk. For a write, and for shards, files are opened, and their status and index are read.
"""

from __future__ import annotations

import ast
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import zarr
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import (
    encoding_of_uncompressed,
    uncompressed_codecs_or_raise,
    why_shard_is_not_divisible,
)
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.result import (
    Result,
    Table,
    class_path,
    short_json,
    thousands_or_power_of_ten,
    verdict_line,
)
from zarr_bytes.commands.status import source_of_setting
from zarr_bytes.commands.stores import not_an_array_error_listing_arrays
from zarr_bytes.errors import StoreError
from zarr_bytes.indexing.plan_cache import PlanCache
from zarr_bytes.indexing.selection import c_strides
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import CAN_WRITE_IN_PLACE, must_be_replaced, open_for_writing
from zarr_bytes.io.files import ChunkFile, open_descriptor
from zarr_bytes.io.locks import can_lock
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.io.tasks import (
    count_objects_in_same_round,
    max_concurrent_requests,
    run_coroutine_that_never_waits,
)
from zarr_bytes.io.transports import CountingTransport, StoreFacts, read_index
from zarr_bytes.layout.objects import InnerChunkIndex
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.read import (
    UNKNOWN_COUNT,
    ChunkProjection,
    Reader,
    kept_index_of,
    prepare_codec_read,
)
from zarr_bytes.settings import CLASSES, PIPELINE, zarr_setting_or_default
from zarr_bytes.write import NO_GAPS, CountingTarget, SelectionUpdate, write_object
from zarr_bytes.zarr_versions import (
    axis_indexers_of,
    chunk_spec_at,
    chunk_spec_if_regular,
    divide_selection_without_reading,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr.abc.codec import Codec
    from zarr.storage import StorePath

    from zarr_bytes.commands.result import Cell, OutputPart
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.objects import ChunkEncoding, ObjectLayout
    from zarr_bytes.zarr_versions import Indexer

# A selection may have as many chunks, each of which takes some 30 microseconds, or as many steps of
# large chunks.
_MAX_CHUNKS: Final = 10**6
_LARGE_CHUNK_STEP: Final = 2**20  # bytes
_MAX_FILES_LOOKED_AT: Final = 1000
_MAX_ORDERED_INNER_CHUNKS: Final = 2**20  # in a shard; more are assumed to be in C order
_ACCESSORS: Final = ("oindex", "vindex", "blocks")  # of an array, each with an indexer of its own
_OWN_CLASSES: Final = {"codecs.bytes": CLASSES["bytes"], "codec_pipeline.path": PIPELINE}
# Attributes of an explanation that stand above its table, or in the words of others.
_NOT_IN_TABLE: Final = (
    "array",
    "selection",
    "is_write",
    "is_partial",
    "reason",
    "depends_on_values",
)
# Numbers that are smaller where chunks become empty.
_DEPEND_ON_VALUES: Final = ("opens", "chunks_in_place", "bytes_written")
_IN_WORDS: Final = {"None": "not known in advance", "True": "yes", "False": "no"}
# Reasons why a chunk is not written in place. The last three follow the path of its file.
_NOT_IN_PLACE: Final = (
    "zarr_bytes.partial_writes was False when the array was opened: set it to True (for a command,"
    " ZARR_ZARR_BYTES__PARTIAL_WRITES=True in the environment), and open the array again"
)
_IS_LINK: Final = "is a symbolic link: move the file itself there"
_HAS_OTHER_NAMES: Final = "has other names (hard links), which keep their content: copy it instead"
_IS_READ_ONLY: Final = "is read-only: change its mode, if it may be written"


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The read or write of a selection, in advance; prints as a table of its attributes.

    Attributes
    ----------
    array, selection : str
        Place of the array, and the selection as written between brackets.
    is_write : bool
        Whether a write is explained.
    acts : str
        The class of the pipeline, and of the codec where a pipeline of zarr calls the codec of this
        package.
    is_partial : bool
        For a read, whether it fetches less than whole chunks; for a write, whether it replaces no
        chunk after reading it.
    reason : str
        The first reason why more than the selected bytes is fetched, or why chunks are replaced,
        and what to do. Empty if there is none.
    kind : {"chunk", "shard"}
        Kind of the files or objects.
    chunks, opens, requests, ranges, bytes_fetched, bytes_written : int
        As of `Counts`. All but the chunks are None if they are not known in advance: for compressed
        chunks, for shards that zarr reads by itself, and for a write to more than a thousand files.
    depends_on_values : bool
        Whether `opens`, `chunks_in_place` and `bytes_written` are the largest possible numbers,
        with "at most" before them in the table. Chunks and inner chunks that become empty, with the
        fill value everywhere, are not stored, unless the array has ``write_empty_chunks``. Whether
        they do depends on the values that are written. False for a read.
    chunks_assumed : int
        How many chunks are assumed to exist, and shards to have all inner chunks in the order in
        which this array writes them. The others have been looked at: files of shards, and files
        that a write keeps a part of.
    chunks_in_place : int
        How many chunks a write changes in place, or makes where they are missing, so that other
        processes can write to them.
    rounds : int
        How many requests follow one another, as zarr's ``async.concurrency`` is now; None as above.
    bytes_selected, bytes_of_chunks : int
        Bytes of the selected elements, and of the whole chunks, uncompressed.
    may_share : bool
        Whether processes of one machine, all with ``zarr_bytes.partial_writes``, may write
        different elements of a chunk at one time, and lose none. Writers of a file that is replaced
        wait for a lock. On a file system without locks (`flock`), False unless all files are known
        to be changed in place. False for a read, and for no element.
    """

    array: str
    selection: str
    is_write: bool
    acts: str
    is_partial: bool
    reason: str
    kind: str
    chunks: int
    chunks_assumed: int
    chunks_in_place: int
    opens: int | None
    requests: int | None
    rounds: int | None
    ranges: int | None
    bytes_selected: int
    bytes_fetched: int | None
    bytes_written: int | None
    bytes_of_chunks: int
    depends_on_values: bool
    may_share: bool

    def _iter_output_parts(self, **_: bool) -> Iterator[OutputPart]:
        colour = "green" if self.is_partial else "yellow"
        yield verdict_line(self._verdict(), colour, f"{self.selection} of ", self.array)
        if self.reason:
            yield ("Reason: ", "bold"), f"{self.reason}."
        rows = [
            (name.replace("_", " "), self._in_words(name, value))
            for name, value in vars(self).items()
            if name not in _NOT_IN_TABLE
        ]
        yield Table(("A write" if self.is_write else "A read", ""), rows)

    def _verdict(self) -> str:
        if not self.is_write:
            return "Partial" if self.is_partial else "Not partial"
        if not self.is_partial:
            return "Chunks are replaced"
        if self.chunks and self.chunks_in_place == self.chunks:
            return "Written in place"
        return "Whole chunks are written"

    def _in_words(self, name: str, value: Any) -> Cell:
        """The value of an attribute as a cell of the table."""
        if self.depends_on_values and name in _DEPEND_ON_VALUES and value:
            return f"at most {thousands_or_power_of_ten(value)}"
        return cast("Cell", _IN_WORDS.get(str(value), value))


def explain(array: Any, selection: Any = ..., *, write: bool = False) -> Explanation:
    """Explain what ``array[selection]`` reads or writes, without reading a chunk.

    Parameters
    ----------
    array : zarr.Array, or its oindex, vindex or blocks
        Any array. ``explain(array.oindex, selection)`` explains ``array.oindex[selection]``.
    selection : int, slice, Ellipsis, array of integers or bools, or a tuple of these, optional
        Whatever zarr takes between the brackets. The default is everything.
    write : bool, optional
        Whether to explain ``array[selection] = values`` instead. As many as a thousand files are
        looked at for it: their status, and the index of a shard.

    Returns
    -------
    Explanation
        The numbers come from the plan of the read or write itself.

    Raises
    ------
    TypeError
        If `array` is something else. Notes of the error list the arrays of a group.
    IndexError
        If the selection does not fit the array, or has fields.
    ValueError
        If more than a million chunks are selected, or as many MiB of larger chunks. Where files
        are looked at, also if one is no file, or the index of a shard is damaged.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(60, 100), dtype="f8", compressors=None)
    >>> explained = explain(array, (7, slice(40, 44)))
    >>> explained.bytes_selected, explained.is_partial
    (32, False)
    >>> explained.reason
    'the chunks are in memory, where reading one whole costs nothing'
    >>> explain(array.oindex, ([1, 3], [5, 7])).selection
    'oindex[[1, 3], [5, 7]]'
    """
    indexed = array  # the array, or an accessor of it
    array = getattr(indexed, "array", indexed)
    if not isinstance(array, zarr.Array):
        raise not_an_array_error_listing_arrays(indexed)
    indexer, fields = divide_selection_without_reading(indexed, selection)
    if fields:
        raise IndexError(
            f"the selection has {fields!r}, and fields of records are not explained: permitted are"
            " integers, slices with positive steps, `...` and arrays of integers or bools"
        )
    accessors = [name for name in _ACCESSORS if type(getattr(array, name)) is type(indexed)]
    entries = selection if isinstance(selection, tuple) else (selection,)
    text = f"{''.join(accessors)}[{', '.join(map(_entry_as_python_text, entries))}]"
    # Of a mask, zarr has numbers of NumPy.
    selected_nbytes = prod(map(int, indexer.shape)) * array.dtype.itemsize
    largest_chunk_nbytes = prod(_largest_shard_or_chunk_shape(array)) * array.dtype.itemsize
    counts_by_axis = [
        sum(1 for _ in islice(axis, _MAX_CHUNKS + 1)) for axis in axis_indexers_of(indexer)
    ]
    steps = min(largest_chunk_nbytes, selected_nbytes) // _LARGE_CHUNK_STEP
    if max(prod(counts_by_axis), steps) > _MAX_CHUNKS:
        raise ValueError(
            f"the selection {text} has more than a million chunks of"
            f" {store_path_name(array.store_path)}, or MiB of larger chunks: explain a part of it"
        )
    chunk_count = prod(counts_by_axis) if counts_by_axis else sum(1 for _ in indexer)
    forecast = _Forecast(array, indexer, largest_chunk_nbytes, chunk_count, is_write=write)
    if selected_nbytes:
        for projection in indexer:
            forecast.add(*projection)
    counts = forecast.counts
    if not counts.chunks:
        reason = "no element is selected"
    elif write:
        reason = forecast.reason
    else:
        reason = forecast.why_more_is_fetched(selected_nbytes)
    fetches_less = counts.bytes_fetched < forecast.bytes_of_chunks
    codecs = getattr(array.metadata, "codecs", ())  # none in format 2

    def if_known(number: int) -> int | None:
        return number if forecast.is_known else None

    return Explanation(
        array=store_path_name(array.store_path),
        selection=text,
        is_write=write,
        acts=forecast.acts,
        is_partial=not forecast.reason if write else fetches_less,
        reason=reason,
        kind="shard" if ShardingCodec in map(type, codecs) else "chunk",
        chunks=counts.chunks,
        chunks_assumed=forecast.chunks_assumed,
        chunks_in_place=forecast.chunks_in_place,
        opens=if_known(counts.opens),
        requests=if_known(counts.requests),
        rounds=if_known(forecast.rounds),
        ranges=if_known(counts.ranges),
        bytes_selected=selected_nbytes,
        bytes_fetched=if_known(counts.bytes_fetched),
        bytes_written=if_known(counts.bytes_written),
        bytes_of_chunks=forecast.bytes_of_chunks,
        depends_on_values=forecast.depends_on_values,
        may_share=write and forecast.may_share,
    )


def _largest_shard_or_chunk_shape(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Shape of a shard or chunk; of chunks of several shapes, the largest size along each axis."""
    try:
        return array.shards or array.chunks
    except NotImplementedError:  # of zarr, for chunks of several shapes
        return tuple(map(max, array.write_chunk_sizes))


def _placeholder_array(shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
    """An array of any size that stands for the result: its elements share one place in memory.

    It is never read or written. Plans are made for views of it, from their shapes and strides.
    """
    axes = range(len(shape))
    strides = c_strides(shape, dtype.itemsize, axes if order == "C" else axes[::-1])
    # Raw bytes at first: NumPy's function does not know the types of other packages.
    memory = np.empty(1, f"V{dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(memory, shape, strides).view(dtype)


class _FileState(NamedTuple):
    """The state of a stored object before a read or write.

    `object_index` is its index, or None if the object is missing. `why_not_in_place` is the
    reason why the file cannot be written in place, with its path; None if it can be, if the object
    was not looked at, or for a read.
    """

    object_index: InnerChunkIndex | None
    why_not_in_place: str | None


class _Forecast:
    """The counts of a read or write, to which `add` adds chunk by chunk.

    Parameters
    ----------
    array, indexer
        The array, and zarr's indexer of the selection.
    chunk_nbytes
        Bytes of a whole chunk or shard, uncompressed; of the largest if they differ.
    chunk_count
        Number of chunks that the indexer gives.
    is_write
        Whether the selection is written.

    Attributes
    ----------
    counts : Counts
        Sums of the chunks so far.
    acts : str
        The class of the pipeline, and of the codec if that reads, as in `Explanation`.
    reason : str
        The first reason why a chunk is read whole, replaced, or left to zarr; empty if there is
        none.
    is_known : bool
        Whether the counts are known in advance; False if zarr reads shards or compressed chunks.
    chunks_assumed, chunks_in_place, bytes_of_chunks, depends_on_values
        As in `Explanation`.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        indexer: Indexer,
        chunk_nbytes: int,
        chunk_count: int,
        *,
        is_write: bool,
    ) -> None:
        self._array = array
        self._chunk_nbytes = chunk_nbytes
        self._chunk_count = chunk_count
        self._is_write = is_write
        self._driver = driver_of(array.store)
        pipeline = array.async_array.codec_pipeline
        self.acts = class_path(type(pipeline))
        self.counts = Counts()
        self.chunks_assumed = 0
        self.chunks_in_place = 0
        self.bytes_of_chunks = 0
        self._bytes_of_indexes = 0
        self.reason = ""
        self._first_requests = 0  # requests that others wait for
        self.is_known = True
        self.depends_on_values = False
        self._skips_empty_chunks = not array.config.write_empty_chunks
        # None where zarr reads and writes chunks by itself.
        self._encoding: ChunkEncoding | None = None
        # The pipeline's; None where the codec reads, with a reader for each chunk.
        self._reader: Reader | None = None
        self._last_assumed: tuple[ObjectLayout, InnerChunkIndex] | None = None
        # Buffers in other memory are left to zarr's pipeline, which calls the codec.
        has_numpy_buffers = issubclass(get_buffer_class(), cpu.Buffer)
        own_pipeline = None
        self._plans = PlanCache()
        if has_numpy_buffers and isinstance(pipeline, BatchedBytesPipeline):
            own_pipeline = pipeline
        codec = None if is_write else getattr(pipeline, "array_bytes_codec", None)
        metadata: Any = array.metadata
        # Of all chunks; None where they have several shapes, and in format 2.
        self._spec = chunk_spec_if_regular(metadata) if metadata.zarr_format == 3 else None
        self._has_several_shapes = metadata.zarr_format == 3 and self._spec is None
        self._chain: Sequence[Codec] = ()
        try:
            self._chain = chain = uncompressed_codecs_or_raise(array)
            why_not_read = (
                None if self._spec is None else why_shard_is_not_divisible(chain, self._spec)
            )
        except StoreError as error:
            why_not_read = str(error)
        if why_not_read is not None:
            self.is_known = False
            self._why_zarr = why_not_read
        elif own_pipeline is not None or (isinstance(codec, BytesCodec) and len(chain) == 1):
            self._encoding = encoding_of_uncompressed(chain)
        else:
            self.is_known = not isinstance(chain[-1], ShardingCodec)
            self._why_zarr = _why_zarr_handles_chunks_itself()
        self._own_pipeline = own_pipeline
        if own_pipeline is not None:
            out = _placeholder_array(tuple(indexer.shape), array.dtype, array.order)
            self._reader = Reader(
                out, indexer.drop_axes, self._driver, self._plans, places_elements=False
            )
        elif self._encoding is not None:
            self.acts = f"{class_path(type(codec))} in {self.acts}"
        why_not_files = self._driver.why_not_in_place()
        self._writes_in_place = (
            own_pipeline is not None and own_pipeline.in_place and not why_not_files
        )
        if why_not_files:
            self._why_replaced = why_not_files
        elif not self._writes_in_place:
            self._why_replaced = _NOT_IN_PLACE
        elif not CAN_WRITE_IN_PLACE:
            self._why_replaced = "this system has no hard links, so that chunks are replaced"
        else:
            self._why_replaced = ""
        self._uses_files = not why_not_files if is_write else bool(self._driver.files_root)
        is_sharded = self._encoding is not None and self._encoding.sharding is not None
        self._is_sharded = is_sharded
        looks_at_files = self._uses_files and (is_write or is_sharded)
        self._files_to_look_at = _MAX_FILES_LOOKED_AT if looks_at_files else 0

    def add(
        self,
        chunk_coords: tuple[int, ...],
        chunk_selection: Any,
        out_selection: Any,
        is_complete_chunk: object,
    ) -> None:
        """Add the read or write of a chunk; the parameters are those of zarr's ChunkProjection."""
        store_path = self._array.store_path / self._array.metadata.encode_chunk_key(chunk_coords)
        spec = self._spec
        chunk_nbytes = self._chunk_nbytes
        if self._has_several_shapes:
            spec = chunk_spec_at(self._array, chunk_coords)
            chunk_nbytes = prod(spec.shape) * self._array.dtype.itemsize
        self.bytes_of_chunks += chunk_nbytes
        layout = None
        if self._encoding is not None and spec is not None:
            if self._has_several_shapes and (
                why_not_read := why_shard_is_not_divisible(self._chain, spec)
            ):
                self.is_known = False
                self._why_zarr = why_not_read
            else:
                layout = self._encoding.layout_of(spec)
        if layout is None:
            self._add_by_zarr(chunk_nbytes, is_complete_chunk=bool(is_complete_chunk))
        elif self._is_write:
            self._add_write(
                layout, store_path, chunk_selection, is_complete_chunk=bool(is_complete_chunk)
            )
        else:
            self._add_read(layout, store_path, chunk_selection, out_selection)

    def _add_by_zarr(self, chunk_nbytes: int, *, is_complete_chunk: bool) -> None:
        """Add a chunk that zarr reads and writes whole."""
        counts = Counts(chunks=1)
        if self._is_write:
            counts.bytes_written = chunk_nbytes
            self.depends_on_values = self.depends_on_values or self._skips_empty_chunks
        if not (self._is_write and is_complete_chunk):
            counts.bytes_fetched = chunk_nbytes
            self.chunks_assumed += 1
            self.reason = self._why_zarr
        self.counts.add(counts)

    def _add_read(
        self, layout: ObjectLayout, store_path: StorePath, chunk_selection: Any, out_selection: Any
    ) -> None:
        """Read a chunk by a transport that counts."""
        driver = self._driver
        self.counts.add(Counts(chunks=1, opens=int(self._uses_files)))
        index = self._file_state(layout, store_path, to_write=False).object_index
        if index is None:  # a missing shard
            self.chunks_assumed += 1
            index = self._assumed_index(layout)
        self.reason = self.reason or driver.why_whole(store_path.path) or ""
        if not layout.index_nbytes and not driver.is_known_to_answer_ranges():
            self._first_requests += 1
        projection = ChunkProjection(
            store_path, layout, chunk_selection, out_selection, is_complete_chunk=False
        )
        reader = self._reader
        index_cache = None if self._own_pipeline is None else self._own_pipeline.index_cache
        chunk_count = self._chunk_count
        if reader is None:
            prepared = prepare_codec_read(store_path, layout, chunk_selection, _placeholder_array)
            projection = prepared.projection
            reader = Reader(prepared.out, (), driver, self._plans, places_elements=False)
            chunk_count = UNKNOWN_COUNT  # zarr calls the codec chunk by chunk: no round is the last
        facts = StoreFacts(
            is_folder=self._uses_files,
            may_divide_whole_chunks=self._reader is not None and driver.is_known_to_answer_ranges(),
            objects_at_once=count_objects_in_same_round(
                self.counts.chunks - 1, chunk_count, max_concurrent_requests()
            ),
        )
        transport = CountingTransport(
            layout,
            index,
            driver.request_cost_unless_read_whole(store_path.path),
            facts,
            index_is_kept=kept_index_of(index_cache, store_path, layout) is not None,
        )
        run_coroutine_that_never_waits(reader.read_object(projection, transport))
        self.counts.add(transport.counts)
        self._bytes_of_indexes += transport.index_nbytes
        self._first_requests += transport.requests_before_others

    def _add_write(
        self,
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
        index: InnerChunkIndex | None = None
        why_replaced = self._why_replaced
        if not update.replaces_all:
            state = self._file_state(layout, store_path, to_write=not why_replaced)
            index = state.object_index
            why_replaced = why_replaced or state.why_not_in_place or ""
        target = CountingTarget(
            store_path.path,
            update,
            index,
            is_file=self._uses_files,
            in_place=self._writes_in_place,
            must_be_replaced=bool(why_replaced),
        )
        why_rebuilt = write_object(update, target)
        why_replaced = why_replaced or why_rebuilt or ""
        self.counts.add(target.counts)
        if target.depends_on_values and self._skips_empty_chunks:
            self.depends_on_values = True
        if target.counts.requests > 1:  # the object is fetched, and then written
            self._first_requests += 1
        if not (why_replaced or update.replaces_all):
            self.chunks_in_place += 1
        self.is_known = not (self._uses_files and self.chunks_assumed)
        if index is not None:
            self.reason = self.reason or why_replaced

    @property
    def rounds(self) -> int:
        """Number of requests that follow one another.

        Requests for the indexes of shards, and for first ranges, go before all others.
        """
        slots = max_concurrent_requests()
        first = min(self._first_requests, self.counts.requests)
        others = self.counts.requests - first
        return -(-first // slots) + -(-others // slots)  # each rounded up

    @property
    def may_share(self) -> bool:
        """Whether processes may write different elements of a chunk at one time."""
        if self._why_replaced or not self.counts.chunks:
            return False
        all_in_place = self.chunks_in_place == self.counts.chunks and not self.chunks_assumed
        return all_in_place or can_lock(f"{self._driver.files_root}/{self._array.path}")

    def why_more_is_fetched(self, selected_nbytes: int) -> str:
        """The first reason why a read fetches more than the selected bytes; empty if it doesn't."""
        if self.reason:
            return self.reason
        driver = self._driver
        fetched_nbytes = self.counts.bytes_fetched - self._bytes_of_indexes
        if selected_nbytes >= fetched_nbytes:
            if fetched_nbytes >= self.bytes_of_chunks:
                return "the selection reaches from the first element of each chunk to the last"
            if self.counts.bytes_fetched >= self.bytes_of_chunks:
                return "the index of a shard takes more than the elements that are left out"
            return ""
        cost = driver.request_cost_if_partial_reads()
        if cost is None:
            name = "zarr_bytes.partial_reads"
            return (
                f"{name} is False (set by {source_of_setting(name)}): set it to True to read parts"
            )
        gap = f"{thousands_or_power_of_ten(cost.gap)} bytes (zarr_bytes.gap.{driver.cost_kind})"
        if self._chunk_nbytes <= cost.gap and not self._is_sharded:
            nbytes = thousands_or_power_of_ten(self._chunk_nbytes)
            return f"a chunk has {nbytes} bytes, no more than the gap of {gap}"
        return f"gaps of up to {gap} are read, to save requests"

    def _assumed_index(self, layout: ObjectLayout) -> InnerChunkIndex:
        """Index of an object with all inner chunks, in the order in which this array writes them.

        More inner chunks than `_MAX_ORDERED_INNER_CHUNKS` are in C order, which takes no time.
        """
        if self._last_assumed is not None and self._last_assumed[0] is layout:
            return self._last_assumed[1]
        if layout.inner_chunk_count > _MAX_ORDERED_INNER_CHUNKS:
            index = InnerChunkIndex(
                layout.data_offset, layout.inner_chunk_nbytes, layout.inner_chunk_count
            )
        else:
            index = layout.full_index()
        self._last_assumed = layout, index
        return index

    def _file_state(
        self, layout: ObjectLayout, store_path: StorePath, *, to_write: bool
    ) -> _FileState:
        """The state of an object in a file; after a thousand files, and elsewhere, an assumed one.

        A ValueError if the file has the wrong size, its index is damaged, or it is no file.
        """
        if not self._files_to_look_at:
            self.chunks_assumed += 1
            return _FileState(self._assumed_index(layout), None)
        self._files_to_look_at -= 1
        root = self._driver.files_root
        path = f"{root}/{store_path.path}"
        why = ""
        if to_write:
            descriptor, may_write = open_for_writing(path, is_shared=True)
            if not may_write:
                why = _IS_LINK if Path(path).is_symlink() else _IS_READ_ONLY
        else:
            descriptor = open_descriptor(path)
        index: InnerChunkIndex | None = None
        if descriptor is not None:
            with ChunkFile(descriptor, path, root) as file:
                if layout.stored_nbytes is not None:
                    file.check_size(layout.stored_nbytes)
                status = os.fstat(descriptor)
                if to_write and not why and must_be_replaced(descriptor, status, path):
                    why = _HAS_OTHER_NAMES if status.st_mode & 0o222 else _IS_READ_ONLY
                index = read_index(file, layout)
        return _FileState(index, f"{path} {why}" if why else None)


def _why_zarr_handles_chunks_itself() -> str:
    """The first reason why zarr reads and writes uncompressed chunks by itself, and what to do."""
    buffer_class = get_buffer_class()
    if not issubclass(buffer_class, cpu.Buffer):
        return f"buffers are {class_path(buffer_class)}, for which zarr reads such chunks by itself"
    for key, own in _OWN_CLASSES.items():
        if (chosen := zarr_setting_or_default(key)) != own:
            source = source_of_setting(key)
            return (
                f"zarr's configuration has {chosen} for {key} (set by {source}), which"
                f" reads and writes whole chunks: set it to {own}, and open the array again"
            )
    return "the array was opened before zarr-bytes was chosen: open it again"


def _entry_as_python_text(entry: Any) -> str:
    """An entry of a selection as Python code, for messages; only the beginning of a long array."""
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        return f"{entry.start}:{entry.stop}:{entry.step}".replace("None", "").removesuffix(":")
    return short_json(np.asarray(entry).tolist(), 40)


class ParsedSelection(NamedTuple):
    """A selection that was written as text."""

    accessor: str | None  # "oindex", "vindex" or "blocks"; None for the array itself
    entries: tuple[Any, ...]  # what is between the brackets


def parse_selection(text: str) -> ParsedSelection:
    """The selection in a text such as ``oindex[[1, 2], 3:9]``; a StoreError for other texts.

    The text is parsed, and never evaluated.
    """
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{text.strip()}", mode="eval").body:
            case ast.Subscript(ast.Name(name), node) if name[1:] in ("", *_ACCESSORS):
                entries = node.elts if isinstance(node, ast.Tuple) else [node]
                values = tuple(map(_entry_of_literal_node, entries))
                return ParsedSelection(accessor=name[1:] or None, entries=values)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]', after oindex, vindex, blocks or nothing"
    )


def _entry_of_literal_node(node: ast.expr) -> Any:
    """An entry of a selection; a ValueError or TypeError if it is more than a literal."""
    if not isinstance(node, ast.Slice):
        return ast.literal_eval(node)
    bounds = (node.lower, node.upper, node.step)
    return slice(*[None if bound is None else ast.literal_eval(bound) for bound in bounds])
