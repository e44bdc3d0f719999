"""`explain`: the forecast of a read or write, with a reason and a remedy if it isn't partial.

zarr's indexer divides the selection by chunk, and the read and write plans count the bytes of each
chunk. For writes and for shards, files are opened to read their status and index.
"""

from __future__ import annotations

import ast
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodec
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import (
    codec_name_or_class_name,
    encoding_of_uncompressed,
    is_uncompressed,
    iter_codecs_unsupported_by_themselves,
    uncompressed_codecs_or_raise,
    why_uncompressed_chunks_are_read_by_zarr,
    why_uncompressed_chunks_are_written_by_zarr,
)
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.result import (
    Result,
    Table,
    class_path,
    percentage,
    short_json,
    thousands_or_power_of_ten,
    verdict_line,
)
from zarr_bytes.commands.status import source_of_setting
from zarr_bytes.commands.stores import not_an_array_error_listing_arrays
from zarr_bytes.errors import StoreError
from zarr_bytes.indexing.plan_cache import PlanCache
from zarr_bytes.indexing.selection import c_strides, is_basic_selection
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import (
    CAN_WRITE_IN_PLACE,
    is_hard_linked_or_read_only,
    open_to_write_unlocked_if_exists,
)
from zarr_bytes.io.files import ChunkFile, open_descriptor_if_exists
from zarr_bytes.io.locks import can_lock
from zarr_bytes.io.store_names import store_path_name
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
    CLASSES,
    PIPELINE,
    code_that_sets,
    names_of_cost_settings,
    request_cost_if_partial_reads,
    zarr_setting_or_default,
)
from zarr_bytes.write import NO_GAPS, ForecastTarget, SelectionUpdate, write_object
from zarr_bytes.zarr_versions import (
    axis_indexers_or_empty_if_points,
    chunk_spec_if_regular,
    chunk_spec_in_rectilinear_grid,
    chunk_spec_of_shape,
    codecs_or_empty_if_unknown,
    divide_selection_without_reading,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr.abc.codec import Codec
    from zarr.storage import StorePath

    from zarr_bytes.commands.result import Cell, OutputPart
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.references import FilePart
    from zarr_bytes.io.tasks import RequestLimits
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.objects import ChunkEncoding, ObjectLayout
    from zarr_bytes.settings import RequestCost
    from zarr_bytes.zarr_versions import ArraySpec

# The limit for the chunks of a selection, and for the steps of large chunks. A chunk that is like
# the previous one takes about 20 microseconds, mostly in zarr's indexer.
_MAX_CHUNKS: Final = 10**6
_LARGE_CHUNK_STEP: Final = 2**20  # bytes
_MAX_FILES_LOOKED_AT: Final = 1000
_MAX_ORDERED_INNER_CHUNKS: Final = 2**20  # in a shard; if there are more, C order is assumed
_FEW_ROUNDS: Final = 4  # of requests; of more, a note says how to have fewer
_ACCESSORS: Final = ("oindex", "vindex", "blocks")  # of an array, each with its own indexer
_OWN_CLASSES: Final = {"codecs.bytes": CLASSES["bytes"], "codec_pipeline.path": PIPELINE}
# The attributes of an explanation that its table shows, each with a note.
_READ_ROWS: Final = {
    "acts": "the class that reads",
    "kind": "",
    "chunks": "",
    "chunks_assumed": "not looked at, and assumed to exist",
    "opens": "files that are opened",
    "requests": "to the store",
    "rounds": "of concurrent requests; the settings limit how many run at a time",
    "ranges": "of bytes",
    "bytes_selected": "",
    "bytes_fetched": "",
    "bytes_of_chunks": "as a whole, uncompressed",
}
_WRITE_ROWS: Final = _READ_ROWS | {
    "acts": "the class that writes",
    "chunks_in_place": "changed without replacing the file",
    "ranges": "of bytes to read",
    "bytes_written": "",
    "may_share": "whether processes may write different elements of a chunk at the same time",
}
# Numbers that are smaller if chunks become empty.
_DEPEND_ON_VALUES: Final = ("opens", "chunks_in_place", "bytes_written")
_IN_WORDS: Final = {"None": "not known in advance", "True": "yes", "False": "no"}
_NOT_NEEDED: Final = "none is needed"
_WRITE_WHOLE: Final = "write whole chunks at a time, which needs no read"


class _Reason(NamedTuple):
    """Why more than the selection is read, or why chunks are replaced; and the remedy.

    Both are sentences without a full stop.
    """

    text: str
    remedy: str

    def of_file(self, path: str) -> _Reason:
        """The reason, with the path of its file in front."""
        return self._replace(text=f"{path} {self.text}")


# Reasons why a file is not written in place, without its path.
_IS_LINK: Final = _Reason(
    "is a symbolic link",
    "none is needed: the first write replaces the link with a file, and keeps the link's target",
)
_HAS_OTHER_NAMES: Final = _Reason(
    "has other names (hard links), which keep their content",
    "none is needed: the first write replaces the file with one that has no other names",
)
_IS_READ_ONLY: Final = _Reason("is read-only", "change its mode (chmod u+w), if it may be written")
_ARRAY_IS_READ_ONLY: Final = _Reason(
    "the array was opened read-only, so a write is an error",
    'open it with mode="r+", from a store that is not read-only',
)


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The forecast of a read or write of a selection; prints as a table of its attributes.

    Attributes
    ----------
    array, selection : str
        Location of the array, and the selection as written between brackets.
    is_write : bool
        Whether the explanation is of a write.
    acts : str
        The class of the pipeline; also the class of the codec if a pipeline of zarr calls the codec
        of this package.
    is_partial : bool
        For a read, whether it fetches less than whole chunks. For a write, whether no chunk is read
        and then replaced; False for an array that was opened read-only.
    reason : str
        The first reason why more than the selected bytes are fetched, why chunks are replaced, why
        processes may not share a chunk that is written in part, or why nothing is read or written.
        Empty if there is none.
    remedy : str
        The remedy for the reason: a setting, or another way to open, select or write the array. It
        says so if there is no remedy, or if none is needed. Empty without a reason.
    kind : {"chunk", "shard"}
        Kind of the files or objects.
    chunks, opens, requests, ranges, bytes_fetched, bytes_written : int
        As in `Counts`; 0 if nothing is read or written. All except `chunks` are None if they are
        not known in advance: for compressed chunks, for shards that zarr reads by itself, and for a
        write to more than a thousand files.
    depends_on_values : bool
        Whether `opens`, `chunks_in_place` and `bytes_written` are upper bounds, shown with "at
        most" in the table. They depend on the written values: chunks and inner chunks that become
        empty, with the fill value everywhere, are not stored unless the array has
        ``write_empty_chunks``. False for a read.
    chunks_assumed : int
        Number of chunks that are assumed to exist. Shards among them are assumed to have all inner
        chunks, in the order in which this array writes them. The other files have been looked at:
        shards, and files of which a write keeps a part.
    chunks_in_place : int
        Number of chunks that a write changes in place, or creates if they are missing, so that
        other processes can write to them at the same time.
    rounds : int
        Number of requests that follow one another, with the current values of
        ``zarr_bytes.small_requests`` and zarr's ``async.concurrency``. None as above.
    bytes_selected, bytes_of_chunks : int
        Uncompressed size of the selected elements, and of the whole chunks.
    may_share : bool
        Whether processes of one machine, all with ``zarr_bytes.partial_writes``, may write
        different elements of a chunk at the same time without losing any. Writers of a file that
        must be replaced wait for a lock. On a file system without locks (`flock`), False unless all
        files are known to be changed in place. False for a read, and if no element is selected.
    """

    array: str
    selection: str
    is_write: bool
    acts: str
    is_partial: bool
    reason: str
    remedy: str
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
        if self.acts.partition(".")[0] not in ("zarr", "zarr_bytes"):
            yield verdict_line("Not known", "yellow", f"{self.acts} reads and writes by itself.")
        elif self.is_write:
            yield verdict_line(
                self._verdict_of_write(), colour, f"{self._clause_on_share_of_write()}."
            )
        else:
            word = "Partial" if self.is_partial else "Not partial"
            fetched = self.bytes_fetched
            if self.is_partial and fetched and 10 * fetched > 9 * self.bytes_of_chunks:
                word = "Hardly partial"
            yield verdict_line(word, colour, f"{self._clause_on_share_of_read()}.")
        yield ("Selection: ", "bold"), f"{self.selection} of ", self.array
        if self.reason:
            yield ("Reason: ", "bold"), f"{self.reason}."
            yield ("Remedy: ", "bold"), f"{self.remedy}."
        notes = _WRITE_ROWS if self.is_write else _READ_ROWS
        rows = [
            (
                name.replace("_", " "),
                self._in_words(name, value),
                (self._note_on_attribute(name), "dim"),
            )
            for name, value in vars(self).items()
            if name in notes and self._is_in_table(name, value)
        ]
        yield Table(("A write" if self.is_write else "A read", "", ""), rows)

    def _verdict_of_write(self) -> str:
        if not self.chunks:
            return "Nothing is written"
        if not self.is_partial:
            return "Chunks are replaced"
        if self.chunks_in_place == self.chunks:
            return "Written in place"
        return "Written without reading"

    def _clause_on_share_of_read(self) -> str:
        """The share of the chunks that is read, and the selected part of it, in words."""
        if not self.chunks:
            return "nothing is read"
        chunks = self._chunks_in_words()
        fetched = self.bytes_fetched
        if fetched is None and self.kind == "shard":  # zarr reads the inner chunks by itself
            text = "whole inner chunks are read"
        else:  # zarr reads other chunks as a whole
            share = "100 %" if fetched is None else percentage(fetched, self.bytes_of_chunks)
            text = f"{share} of the bytes of the {chunks} are read"
        if fetched is not None and self.is_partial:
            unselected = fetched - self.bytes_selected
            if unselected <= 0:  # some may be selected twice
                return text
            kind = "gaps between the selected elements"
            if self.kind == "shard":
                kind += " or indexes of shards"
            return f"{text}, and {percentage(unselected, fetched)} of the bytes read are {kind}"
        if self.bytes_selected >= self.bytes_of_chunks:  # some may be selected twice
            return text
        selected = percentage(self.bytes_selected, self.bytes_of_chunks)
        if self.kind == "shard":
            selected = f"{selected} of the bytes of the {chunks}"
        return f"{text}, and {selected} are selected"

    def _clause_on_share_of_write(self) -> str:
        """The share of the chunks that is written, in words; the reason if it is none."""
        if not self.chunks:
            return self.reason
        chunks = self._chunks_in_words()
        in_place = ""
        if 0 < self.chunks_in_place < self.chunks:
            in_place = f"; changed in place: {self.chunks_in_place:,} of {self.chunks:,}"
        selected = percentage(self.bytes_selected, self.bytes_of_chunks)
        if not self.is_partial:
            return f"they are read and written whole, to change {selected} of their bytes{in_place}"
        share = f"{selected} of the bytes of the {chunks} are selected"
        if self.bytes_written is not None:
            written = percentage(self.bytes_written, self.bytes_of_chunks)
            if self.depends_on_values and not written.startswith("less than"):
                written = f"at most {written}"
            share = f"{written} of the bytes of the {chunks} are written"
        return f"{share}{in_place}"

    def _chunks_in_words(self) -> str:
        """The kind of the files or objects; plural if there are several."""
        return self.kind if self.chunks == 1 else f"{self.kind}s"

    def _is_in_table(self, name: str, value: Any) -> bool:
        """Whether the table shows an attribute: neither zero nor one of several unknown numbers."""
        if name == "may_share":
            return self.chunks > 0
        return bool(value) or (value is None and name.startswith("bytes_"))

    def _note_on_attribute(self, attribute_name: str) -> str:
        """The note on an attribute, beside its value in the table."""
        if self.kind == "shard" and attribute_name == "chunks_assumed":
            return "not looked at, and assumed to exist and to have all inner chunks"
        if (
            self.kind == "shard"
            and attribute_name == "bytes_fetched"
            and self.bytes_fetched is not None
        ):
            return "with the indexes of shards"
        has_many_rounds = not self.is_write and (self.rounds or 0) > _FEW_ROUNDS
        has_gaps = (self.ranges or 0) > self.chunks
        if attribute_name == "rounds" and has_many_rounds and has_gaps:
            return f"{_READ_ROWS['rounds']}; longer gaps (zarr_bytes.gap) make them fewer"
        return (_WRITE_ROWS if self.is_write else _READ_ROWS)[attribute_name]

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
        Any selection that zarr takes between the brackets. The default is the whole array.
    write : bool, optional
        Whether to explain ``array[selection] = values`` instead. For up to a thousand files, this
        looks at the status of each file, and at the index of each shard.

    Returns
    -------
    Explanation
        The numbers come from the plan that the read or write itself uses.

    Raises
    ------
    TypeError
        If `array` isn't an array. For a group, the notes of the error list its arrays.
    IndexError
        If the selection does not fit the array, or has fields.
    ValueError
        If more than a million chunks are selected, or if a chunk and the selection both have more
        than a million MiB. Also if a file that is looked at isn't a regular file, or the index of a
        shard is damaged.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(60, 100), dtype="f8", compressors=None)
    >>> explained = explain(array, (7, slice(40, 44)))
    >>> explained.bytes_selected, explained.is_partial
    (32, False)
    >>> explained.reason, explained.remedy
    ('the chunks are in memory, where reading one whole costs nothing', 'none is needed')
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
            " integers, slices with positive steps, `...`, and arrays of integers or bools"
        )
    accessors = [name for name in _ACCESSORS if type(getattr(array, name)) is type(indexed)]
    entries = selection if isinstance(selection, tuple) else (selection,)
    text = f"{''.join(accessors)}[{', '.join(map(_entry_as_python_text, entries))}]"
    item_size = _stored_item_size(array)
    # For a mask, zarr's shape has NumPy integers.
    selected_nbytes = prod(map(int, indexer.shape)) * item_size
    largest_chunk_nbytes = prod(_largest_shard_or_chunk_shape(array)) * item_size
    counts_by_axis = [
        sum(1 for _ in islice(axis, _MAX_CHUNKS + 1))
        for axis in axis_indexers_or_empty_if_points(indexer)
    ]
    steps = min(largest_chunk_nbytes, selected_nbytes) // _LARGE_CHUNK_STEP
    if max(prod(counts_by_axis), steps) > _MAX_CHUNKS:
        raise ValueError(
            f"the selection {text} has more than a million chunks of"
            f" {store_path_name(array.store_path)}, or more than a million MiB of larger chunks:"
            " explain a part of it"
        )
    chunk_count = prod(counts_by_axis) if counts_by_axis else sum(1 for _ in indexer)
    forecast = _ForecastSum(
        array,
        tuple(indexer.shape),
        indexer.drop_axes,
        largest_chunk_nbytes,
        item_size,
        chunk_count,
        is_write=write,
    )
    is_refused = write and array.read_only and selected_nbytes > 0
    if selected_nbytes and not is_refused:
        for projection in indexer:
            forecast.add(projection)
        forecast.add_joined_parts_of_files()
    totals = forecast.totals
    reason: _Reason | None
    if is_refused:
        reason = _ARRAY_IS_READ_ONLY
    elif not totals.chunks:
        reason = _Reason("no element is selected", _NOT_NEEDED)
    elif write:
        reason = forecast.why_chunks_are_replaced_or_must_not_be_shared
    else:
        reason = forecast.why_whole_or_more_is_fetched(selected_nbytes)
    fetches_less = totals.bytes_fetched < totals.bytes_of_chunks
    codecs = codecs_or_empty_if_unknown(array.metadata)

    def if_known(number: int) -> int | None:
        return number if forecast.is_known or is_refused else None

    return Explanation(
        array=store_path_name(array.store_path),
        selection=text,
        is_write=write,
        acts=forecast.acts,
        is_partial=not (forecast.reason or is_refused) if write else fetches_less,
        reason=reason.text if reason else "",
        remedy=reason.remedy if reason else "",
        kind="shard" if ShardingCodec in map(type, codecs) else "chunk",
        chunks=totals.chunks,
        chunks_assumed=totals.chunks_assumed,
        chunks_in_place=totals.chunks_in_place,
        opens=if_known(totals.opens),
        requests=if_known(totals.requests),
        rounds=if_known(forecast.rounds_of_concurrent_requests),
        ranges=if_known(totals.ranges),
        bytes_selected=selected_nbytes,
        bytes_fetched=if_known(totals.bytes_fetched),
        bytes_written=if_known(totals.bytes_written),
        bytes_of_chunks=totals.bytes_of_chunks,
        depends_on_values=forecast.depends_on_values,
        may_share=write and forecast.chunks_may_have_several_writers,
    )


def _stored_item_size(array: zarr.Array[Any]) -> int:
    """Size in bytes of an element as the chunks store it, before any compression."""
    codecs = codecs_or_empty_if_unknown(array.metadata)
    if not is_uncompressed(codecs):
        return int(array.dtype.itemsize)
    spec = chunk_spec_of_shape(array.metadata, (1,) * array.ndim)
    return encoding_of_uncompressed(codecs).encoded_dtype_of(spec).itemsize


def _largest_shard_or_chunk_shape(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Shape of a shard or chunk; for chunks of several shapes, the largest size along each axis."""
    try:
        return array.shards or array.chunks
    except NotImplementedError:  # from zarr, for chunks of several shapes
        return tuple(map(max, array.write_chunk_sizes))


def _placeholder_array(shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
    """An array of any size in place of the result; all its elements share one memory location.

    The array is never read or written. Plans use only the shapes and strides of its views.
    """
    axes = range(len(shape))
    strides = c_strides(shape, dtype.itemsize, axes if order == "C" else axes[::-1])
    # Raw bytes first: NumPy's function doesn't support the types of other packages.
    memory = np.empty(1, f"V{dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(memory, shape, strides).view(dtype)


class _IndexAndWhyNotInPlace(NamedTuple):
    """The state of a stored object before a read or write.

    `object_index` is its index, or None if the object is missing. `why_not_in_place` is the reason
    why the file can't be written in place, with its path; None if it can be, if the object wasn't
    looked at, or for a read. `is_assumed` is whether the object wasn't looked at, and is assumed to
    exist.
    """

    object_index: InnerChunkIndex | None
    why_not_in_place: _Reason | None
    is_assumed: bool


@dataclass
class _Totals(Counts):
    """Numbers for one chunk, or sums over several chunks."""

    chunks_assumed: int = 0
    chunks_in_place: int = 0
    bytes_of_chunks: int = 0
    bytes_of_indexes: int = 0  # among the bytes that are fetched
    first_requests: int = 0  # that other requests wait for
    large_requests: int = 0  # fewer of them run at a time
    first_large_requests: int = 0  # both first and large

    def add_totals(self, other: _Totals) -> None:
        """Add the numbers of `other`, in place."""
        self.add(other)
        self.chunks_assumed += other.chunks_assumed
        self.chunks_in_place += other.chunks_in_place
        self.bytes_of_chunks += other.bytes_of_chunks
        self.bytes_of_indexes += other.bytes_of_indexes
        self.first_requests += other.first_requests
        self.large_requests += other.large_requests
        self.first_large_requests += other.first_large_requests


class _LastChunk(NamedTuple):
    """The last chunk and its numbers, which also hold for a next chunk that is like it."""

    chunk_selection: Any
    is_complete_chunk: bool
    totals: _Totals


class _ForecastSum:
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
    totals : _Totals
        Sums of the chunks so far.
    acts : str
        The class of the pipeline, and of the codec if the codec reads, as in `Explanation`.
    reason : _Reason or None
        The first reason why a chunk is read whole, replaced, or left to zarr; None if there is
        none.
    why_not_in_place : _Reason or None
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
        pipeline = array.async_array.codec_pipeline
        self.acts = class_path(type(pipeline))
        self.totals = _Totals()
        self.reason: _Reason | None = None
        self.why_not_in_place: _Reason | None = None
        self.is_known = True
        self.depends_on_values = False
        self._skips_empty_chunks = not array.config.write_empty_chunks
        # None where zarr reads and writes chunks by itself.
        self._encoding: ChunkEncoding | None = None
        # The reader of the pipeline; None if the codec reads, with one reader for each chunk.
        self._reader: Reader | None = None
        # Buffers in other memory are left to zarr's pipeline, which calls the codec.
        has_numpy_buffers = issubclass(get_buffer_class(), cpu.Buffer)
        own_pipeline = None
        self._plans = PlanCache()
        if has_numpy_buffers and isinstance(pipeline, BatchedBytesPipeline):
            own_pipeline = pipeline
        codec = None if is_write else getattr(pipeline, "array_bytes_codec", None)
        metadata: Any = array.metadata
        # The spec of all chunks; None if they have several shapes.
        self._spec = chunk_spec_if_regular(metadata)
        self._has_several_shapes = self._spec is None
        self._chain: Sequence[Codec] = ()
        try:
            self._chain = chain = uncompressed_codecs_or_raise(array)
            why_not_read = (
                None
                if self._spec is None
                else _why_uncompressed_chunks_are_read_by_zarr(chain, self._spec)
            )
        except StoreError:
            why_not_read = _why_not_uncompressed(array, is_write=is_write)
        why_written_by_zarr = None
        if is_write and self._spec is not None and self._chain:
            why_written_by_zarr = _why_written_by_zarr(self._chain, self._spec)
        if why_not_read is not None:
            self.is_known = False
            self._why_zarr = why_not_read
        elif why_written_by_zarr is not None:
            own_pipeline = None
            self.is_known = False
            self._why_zarr = why_written_by_zarr
        elif own_pipeline is not None or (isinstance(codec, BytesCodec) and len(chain) == 1):
            self._encoding = (
                encoding_of_uncompressed(chain) if own_pipeline is None else own_pipeline.encoding
            )
        else:
            self.is_known = not isinstance(chain[-1], ShardingCodec)
            self._why_zarr = _why_zarr_handles_chunks_itself()
        self._own_pipeline = own_pipeline
        if own_pipeline is not None:
            out = _placeholder_array(out_shape, array.dtype, array.order)
            self._reader = Reader(out, drop_axes, self._driver, self._plans, places_elements=False)
        elif self._encoding is not None:
            self.acts = f"{class_path(type(codec))} in {self.acts}"
        why_not_files = self._driver.why_not_in_place()
        self._writes_in_place = (
            own_pipeline is not None and own_pipeline.in_place and not why_not_files
        )
        self._why_never_in_place = _why_never_in_place(
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
            max(1, min(self._objects_at_once, chunk_count)),
            are_shards=is_sharded,
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
                self.totals.add_totals(last.totals)
                return
        files_to_look_at = self._files_to_look_at
        totals = self._forecast_chunk_and_set_reason(projection)
        self.totals.add_totals(totals)
        self._last_chunk = None
        if may_be_alike and self._files_to_look_at == files_to_look_at:
            self._last_chunk = _LastChunk(chunk_selection, bool(is_complete_chunk), totals)

    def _forecast_chunk_and_set_reason(self, projection: Any) -> _Totals:
        """The numbers of one chunk. Also sets the first reason and the flags of the forecast."""
        chunk_coords, chunk_selection, out_selection, is_complete_chunk = projection
        totals = _Totals(chunks=1)
        store_path = self._array.store_path / self._array.metadata.encode_chunk_key(chunk_coords)
        spec = self._spec
        chunk_nbytes = self._largest_chunk_nbytes
        if self._has_several_shapes:
            spec = chunk_spec_in_rectilinear_grid(self._array, chunk_coords)
            chunk_nbytes = prod(spec.shape) * self._item_size
        totals.bytes_of_chunks = chunk_nbytes
        layout = None
        if self._encoding is not None and spec is not None:
            if self._has_several_shapes and (
                why_not_read := _why_uncompressed_chunks_are_read_by_zarr(self._chain, spec)
            ):
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
        self, totals: _Totals, chunk_nbytes: int, *, is_complete_chunk: bool
    ) -> None:
        """Add a chunk that zarr reads and writes as a whole."""
        if self._is_write:
            totals.bytes_written = chunk_nbytes
            self.depends_on_values = self.depends_on_values or self._skips_empty_chunks
        if not (self._is_write and is_complete_chunk):
            totals.bytes_fetched = chunk_nbytes
            totals.chunks_assumed += 1
            self.reason = self._why_zarr

    def _add_read_and_set_reason(self, totals: _Totals, projection: ChunkProjection) -> None:
        """Plan the read of a chunk with a counting transport, or leave it for later.

        `add_joined_parts_of_files` adds the chunks that are left.
        """
        part: FilePart | None = None
        if self._references is not None and projection.layout.stored_nbytes is not None:
            part = self._references.part_unless_store_must_be_asked(projection.store_path.path)
        if part is not None and part.file.local_path:
            self._add_local_part(totals, projection, part)
        elif part is not None and self._driver.request_cost_if_partial_reads() is not None:
            chunk = ReferencedChunk(self.totals.chunks, projection, part)
            self._parts_of_files.setdefault(part.file.name, []).append(chunk)
        else:
            self._add_read_by_store_or_file(totals, projection)

    def _add_local_part(self, totals: _Totals, projection: ChunkProjection, part: FilePart) -> None:
        """Plan the read of a chunk that is a part of a local file, with a counting transport."""
        reader = cast("Reader", self._reader)  # as with all references
        totals.opens = int(part.file.name not in self._opened_files)
        self._opened_files.add(part.file.name)
        facts = StoreFacts(
            is_folder=True, may_divide_whole_chunks=False, objects_at_once=1, limits=ONE_AT_A_TIME
        )
        cost = request_cost_if_partial_reads("local")
        transport = ForecastTransport(
            projection.layout, SINGLE_CHUNK_INDEX, cost, facts, index_is_kept=False
        )
        run_coroutine_that_never_waits(reader.read_object_or_fill(projection, transport))
        totals.add(transport.counts)

    def add_joined_parts_of_files(self) -> None:
        """Add the requests for chunks that are parts of files; called after all calls of `add`."""
        cost = self._driver.request_cost_if_partial_reads()
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
            totals = _Totals()
            self._add_read_by_store_or_file(totals, chunk.projection)
            self.totals.add_totals(totals)

    def _add_read_by_store_or_file(self, totals: _Totals, projection: ChunkProjection) -> None:
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
            self.reason = _Reason(whole_reason.text, whole_reason.remedy)
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

    def _add_write_and_set_reason(
        self,
        totals: _Totals,
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
            why_replaced = _Reason(why_rebuilt, _how_to_preallocate(self._array))
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
    def why_chunks_are_replaced_or_must_not_be_shared(self) -> _Reason | None:
        """The first reason why a write replaces a chunk, or else why a new one may not be shared.

        None if there is none.
        """
        if self.reason is None and not self.chunks_may_have_several_writers:
            return self.why_not_in_place
        return self.reason

    def why_whole_or_more_is_fetched(self, selected_nbytes: int) -> _Reason | None:
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
                return _Reason(
                    "the selection reaches from the first element of each chunk to the last",
                    _NOT_NEEDED,
                )
            if totals.bytes_fetched >= totals.bytes_of_chunks:
                return _Reason(
                    "the index of a shard is at least as large as the elements that are left out",
                    "write the array with larger inner chunks: each takes 16 bytes of the index",
                )
            return None
        cost = driver.request_cost_if_partial_reads()
        if cost is None:
            name = "zarr_bytes.partial_reads"
            return _Reason(
                f"{name} is False (set by {source_of_setting(name)})", _how_to_set(name, value=True)
            )
        name = names_of_cost_settings(driver.cost_kind).gap
        gap = f"{thousands_or_power_of_ten(cost.gap)} bytes ({name})"
        lower_gap = _how_to_set(name, value=0)
        if self._largest_chunk_nbytes <= cost.gap and not self._is_sharded:
            nbytes = thousands_or_power_of_ten(self._largest_chunk_nbytes)
            return _Reason(
                f"a chunk has {nbytes} bytes, no more than the gap of {gap}",
                "none is needed: a whole chunk takes about as long as a part. To read fewer bytes:"
                f" {lower_gap}",
            )
        return _Reason(
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
        why: _Reason | None = None
        if to_write:
            descriptor, may_write = open_to_write_unlocked_if_exists(path, for_shared_lock=True)
            if not may_write:
                why = _IS_LINK if Path(path).is_symlink() else _IS_READ_ONLY
        else:
            descriptor = open_descriptor_if_exists(path)
        index: InnerChunkIndex | None = None
        if descriptor is not None:
            with ChunkFile(descriptor, path, root) as file:
                if layout.stored_nbytes is not None:
                    file.check_size(layout.stored_nbytes)
                status = os.fstat(descriptor)
                if to_write and not why and is_hard_linked_or_read_only(descriptor, status, path):
                    why = _HAS_OTHER_NAMES if status.st_mode & 0o222 else _IS_READ_ONLY
                index = file.read_index(layout)
        reason = why.of_file(path) if why else None
        return _IndexAndWhyNotInPlace(index, reason, is_assumed=False)


def _assumed_index(layout: ObjectLayout) -> InnerChunkIndex:
    """Index of an object with all inner chunks, in the order in which its array writes them.

    For more than `_MAX_ORDERED_INNER_CHUNKS` inner chunks, the index has C order, which takes no
    time.
    """
    if layout.inner_chunk_count <= _MAX_ORDERED_INNER_CHUNKS:
        return layout.full_index
    return InnerChunkIndex(layout.data_offset, layout.inner_chunk_nbytes, layout.inner_chunk_count)


def _why_zarr_handles_chunks_itself() -> _Reason:
    """The first reason why zarr reads and writes uncompressed chunks by itself."""
    buffer_class = get_buffer_class()
    if not issubclass(buffer_class, cpu.Buffer):
        return _Reason(
            f"buffers are {class_path(buffer_class)}, into which zarr reads chunks by itself",
            "read into main memory, and copy the selection from there:"
            ' zarr.config.set({"buffer": "zarr.buffer.cpu.Buffer",'
            ' "ndbuffer": "zarr.buffer.cpu.NDBuffer"})',
        )
    for key, own in _OWN_CLASSES.items():
        if (chosen := zarr_setting_or_default(key)) != own:
            does = "reads and writes chunks, and inner chunks of shards, as a whole"
            if not str(chosen).startswith("zarr."):
                does = "is from another package: its reads and writes are not known here"
            source = source_of_setting(key)
            return _Reason(
                f"zarr's configuration has {chosen} for {key} (set by {source}), which {does}",
                f"set it to {own}, and open the array again: {_how_to_set(key, value=own)}",
            )
    return _Reason("the array was opened before zarr-bytes was chosen", "open it again")


def _why_not_uncompressed(array: zarr.Array[Any], *, is_write: bool) -> _Reason:
    """The first reason why the chunks of an array are not stored uncompressed."""
    first = f"{_WRITE_WHOLE}, or " if is_write else ""
    codec = next(
        iter_codecs_unsupported_by_themselves(codecs_or_empty_if_unknown(array.metadata)), None
    )
    if codec is None:
        return _Reason(
            "chunks go through the codec sharding_indexed with nested shards, or with index_codecs"
            " other than bytes and crc32c",
            f"{first}write the array again with one level of shards and the default index_codecs",
        )
    name = codec_name_or_class_name(codec)
    text = f"chunks go through the codec {name}, so no part of a chunk can be read or written"
    text += " by itself"
    if isinstance(codec, ArrayBytesCodec) or name.startswith("vlen-"):  # the latter in format 2
        return _Reason(
            text,
            f"{first}write the array again with a data type that the codec bytes stores, such as"
            ' strings of a fixed length (dtype="U8")',
        )
    return _Reason(
        text,
        f"{first}write the array again with compressors=None and filters=None (only TransposeCodec"
        " and codecs that change each element by itself are permitted), or with chunks, or inner"
        " chunks of shards, about as large as a selection",
    )


def _why_uncompressed_chunks_are_read_by_zarr(
    codecs: Sequence[Codec], spec: ArraySpec
) -> _Reason | None:
    """The reason of `why_uncompressed_chunks_are_read_by_zarr` and its remedy, or None."""
    if not (text := why_uncompressed_chunks_are_read_by_zarr(codecs, spec)):
        return None
    if isinstance(codecs[-1], ShardingCodec):
        remedy = "write the array again with inner chunk lengths that divide the shard lengths"
    else:
        remedy = "write the array again with filters=None"
    return _Reason(text, remedy)


def _why_written_by_zarr(codecs: Sequence[Codec], spec: ArraySpec) -> _Reason | None:
    """The reason of `why_uncompressed_chunks_are_written_by_zarr` and its remedy, or None."""
    if not (text := why_uncompressed_chunks_are_written_by_zarr(codecs, spec)):
        return None
    return _Reason(
        text,
        f"{_WRITE_WHOLE}, or write the array again with the codec inside the shards (filters= of"
        " zarr.create_array)",
    )


def _rounds(requests: int, large_requests: int, limits: RequestLimits) -> int:
    """Number of requests that follow one another, if as many as permitted run at a time."""
    # Both quotients are rounded up.
    return max(-(-large_requests // limits.large), -(-requests // limits.small))


def _why_never_in_place(driver: Driver, *, writes_in_place: bool) -> _Reason | None:
    """Why partly written chunks are always replaced; None if it depends on their files.

    `writes_in_place` is whether the array writes files in place, on a system that supports it.
    """
    if not driver.files_root:
        name = type(driver.store).__name__
        return _Reason(
            f"its store is a {name}, and only chunks in files (LocalStore) are changed in place",
            f"{_WRITE_WHOLE}, or keep the array in a folder",
        )
    if why_no_files := driver.why_not_in_place():
        return _Reason(why_no_files, f"none here: {_WRITE_WHOLE}")
    if not writes_in_place:
        name = "zarr_bytes.partial_writes"
        return _Reason(
            f"{name} was False when the array was opened",
            f"set it to True, and open the array again: {_how_to_set(name, value=True)}",
        )
    if not CAN_WRITE_IN_PLACE:
        return _Reason(
            "this system has no hard links, so chunks are replaced",
            f"none here: {_WRITE_WHOLE}",
        )
    return None


def _how_to_preallocate(array: zarr.Array[Any]) -> str:
    """The remedy for an incomplete shard of an array in a folder."""
    path = shlex.quote(f"{driver_of(array.store, array.path).files_root}/{array.path}".rstrip("/"))
    return (
        "none is needed: this first write completes the shard. To complete all shards in advance:"
        f" zarr_bytes.preallocate(array), or `zarr-bytes preallocate {path}`"
    )


def _how_to_set(name: str, *, value: object) -> str:
    """How to change a setting, in code and for a command."""
    variable = f"ZARR_{name.upper().replace('.', '__')}={value}"
    return f"{code_that_sets(name, value=value)}, or {variable} in the environment of a command"


def _entry_as_python_text(entry: Any) -> str:
    """An entry of a selection as Python code; a long array is cut."""
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        return f"{entry.start}:{entry.stop}:{entry.step}".replace("None", "").removesuffix(":")
    return short_json(np.asarray(entry).tolist(), 40)


class ParsedSelection(NamedTuple):
    """A selection that was written as text."""

    accessor: str | None  # "oindex", "vindex" or "blocks"; None for the array itself
    entries: tuple[Any, ...]  # between the brackets


def parse_selection(text: str) -> ParsedSelection:
    """The selection in a text such as ``oindex[[1, 2], 3:9]``; a StoreError for any other text.

    The text is parsed, never evaluated.
    """
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{text.strip()}", mode="eval").body:
            case ast.Subscript(ast.Name(name), node) if name[1:] in ("", *_ACCESSORS):
                entries = node.elts if isinstance(node, ast.Tuple) else [node]
                values = tuple(map(_entry_of_literal_node, entries))
                return ParsedSelection(accessor=name[1:] or None, entries=values)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]'; oindex, vindex or blocks may stand before the brackets"
    )


def _entry_of_literal_node(node: ast.expr) -> Any:
    """An entry of a selection; a ValueError or TypeError if it isn't a literal."""
    if not isinstance(node, ast.Slice):
        return ast.literal_eval(node)
    bounds = (node.lower, node.upper, node.step)
    return slice(*[None if bound is None else ast.literal_eval(bound) for bound in bounds])
