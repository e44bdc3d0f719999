"""`explain`: what a read or write of a selection will do, and why it is not partial.

zarr divides the selection, the plans that read and write count the bytes, and for a write the files
are looked at: nothing here does what another part of the package or of zarr does.
"""

from __future__ import annotations

import ast
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import zarr
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import encoding_of, uncompressed_codecs, why_undivided
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.result import Result, Table, brief, class_path, verdict, with_thousands
from zarr_bytes.commands.status import source_of
from zarr_bytes.commands.stores import error_without_array
from zarr_bytes.errors import StoreError
from zarr_bytes.indexing.plan import plan_of
from zarr_bytes.indexing.selection import c_strides
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import CAN_WRITE_IN_PLACE, NOT_WRITABLE_ERRNOS, must_be_replaced
from zarr_bytes.io.files import READ_FLAGS, WRITE_FLAGS, ChunkFile, open_descriptor
from zarr_bytes.io.locks import can_lock
from zarr_bytes.io.store_names import path_name
from zarr_bytes.io.tasks import concurrent_objects, max_concurrent_requests
from zarr_bytes.layout.objects import InnerChunkIndex
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.read import (
    UNKNOWN_COUNT,
    ChunkProjection,
    Reader,
    prepare_codec_read,
    read_index,
)
from zarr_bytes.settings import CLASSES, PIPELINE, setting_of_zarr
from zarr_bytes.write import NO_GAPS, SelectionUpdate
from zarr_bytes.zarr_versions import axis_indexers_of, chunk_spec_at, chunk_spec_of, indexer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr.abc.codec import Codec
    from zarr.storage import StorePath

    from zarr_bytes.commands.result import Cell, OutputPart
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.objects import ChunkEncoding, ObjectLayout
    from zarr_bytes.zarr_versions import Indexer

_MOST: Final = 10**6  # chunks, each of which takes some 30 microseconds, or steps of one
_STEP: Final = 2**20  # bytes of a large chunk
_LOOKED_AT: Final = 1000  # files
_IN_ORDER: Final = 2**20  # inner chunks of a shard whose order is forecast; C order for more
_INDEXED: Final = ("oindex", "vindex", "blocks")  # of an array, each with a way of its own
_CHOSEN: Final = {"codecs.bytes": CLASSES["bytes"], "codec_pipeline.path": PIPELINE}
# Said above the table, or within it.
_NOT_IN_TABLE: Final = (
    *("array", "selection", "is_write", "is_partial", "reason"),
    "depends_on_values",
)
# What is less where chunks become empty.
_ON_VALUES: Final = ("opens", "chunks_in_place", "bytes_written")
_IN_WORDS: Final = {"None": "not known in advance", "True": "yes", "False": "no"}
# What is said of a chunk that is not written in place.
_NOT_IN_PLACE: Final = (
    "zarr_bytes.partial_writes was False when the array was opened: set it to True (for a command,"
    " ZARR_ZARR_BYTES__PARTIAL_WRITES=True in the environment), and open the array again"
)
_LINK: Final = "is a symbolic link: move the file itself there"
_OTHER_NAMES: Final = "has other names (hard links), which keep their content: copy it instead"
_READ_ONLY: Final = "is read-only: change its mode, if it may be written"


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

    def _parts(self, **_: bool) -> Iterator[OutputPart]:
        what = "Partial" if self.is_partial else "Not partial"
        if self.is_write and self.is_partial:
            is_in_place = 0 < self.chunks_in_place == self.chunks
            what = "Written in place" if is_in_place else "Whole chunks are written"
        elif self.is_write:
            what = "Chunks are replaced"
        colour = "green" if self.is_partial else "yellow"
        yield verdict(what, colour, f"{self.selection} of ", self.array)
        if self.reason:
            yield ("Reason: ", "bold"), f"{self.reason}."
        rows = [
            (name.replace("_", " "), self._in_words(name, value))
            for name, value in vars(self).items()
            if name not in _NOT_IN_TABLE
        ]
        yield Table(("A write" if self.is_write else "A read", ""), rows)

    def _in_words(self, name: str, value: Any) -> Cell:
        if self.depends_on_values and name in _ON_VALUES and value:
            return f"at most {with_thousands(value)}"
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
    indexed, array = array, getattr(array, "array", array)
    if not isinstance(array, zarr.Array):
        raise error_without_array(indexed)
    indexer, fields = indexer_of(indexed, selection)
    if fields:
        raise IndexError(
            f"the selection has {fields!r}, and fields of records are not explained: permitted are"
            " integers, slices with positive steps, `...` and arrays of integers or bools"
        )
    name = "".join(name for name in _INDEXED if type(getattr(array, name)) is type(indexed))
    entries = selection if isinstance(selection, tuple) else (selection,)
    text = f"{name}[{', '.join(map(_text_of_entry, entries))}]"
    # Of a mask, zarr has numbers of NumPy.
    selected = prod(map(int, indexer.shape)) * array.dtype.itemsize
    try:
        largest = array.shards or array.chunks
    except NotImplementedError:  # of zarr, for chunks of several shapes
        largest = tuple(map(max, array.write_chunk_sizes))
    nbytes = prod(largest) * array.dtype.itemsize
    chunks = [sum(1 for _ in islice(axis, _MOST + 1)) for axis in axis_indexers_of(indexer)]
    if max(prod(chunks), min(nbytes, selected) // _STEP) > _MOST:
        raise ValueError(
            f"the selection {text} has more than a million chunks of"
            f" {path_name(array.store_path)}, or MiB of larger chunks: explain a part of it"
        )
    count = prod(chunks) if chunks else sum(1 for _ in indexer)
    walk = _Walk(array, indexer, nbytes, count, is_write=write)
    for chunk in indexer if selected else ():
        walk.add(*chunk)
    counts, reason = walk.counts, "no element is selected"
    codecs = getattr(array.metadata, "codecs", ())  # none in format 2
    if counts.chunks:
        reason = walk.why if write else walk.why_whole(selected)
    counted = vars(counts) | {"rounds": walk.rounds}
    if not walk.is_known:
        counted = dict.fromkeys(counted) | {"chunks": counts.chunks}
    return Explanation(
        array=path_name(array.store_path),
        selection=text,
        is_write=write,
        acts=walk.acts,
        is_partial=not walk.why if write else counts.bytes_fetched < walk.bytes_of_chunks,
        reason=reason,
        kind="shard" if ShardingCodec in map(type, codecs) else "chunk",
        chunks_assumed=walk.assumed,
        chunks_in_place=walk.in_place,
        bytes_selected=selected,
        bytes_of_chunks=walk.bytes_of_chunks,
        depends_on_values=walk.depends_on_values,
        may_share=write and walk.may_share,
        **counted,
    )


def _without_memory(shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Array:
    """An array of any size without elements of its own, which can only be divided."""
    axes = range(len(shape))
    strides = c_strides(shape, dtype.itemsize, axes if order == "C" else axes[::-1])
    # Raw bytes at first: NumPy's function does not know the types of other packages.
    memory = np.empty(1, f"V{dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(memory, shape, strides).view(dtype)


class _Walk:
    """The chunks of a selection one after another: what reads or writes them, and their counts."""

    def __init__(
        self, array: zarr.Array[Any], indexer: Indexer, nbytes: int, count: int, *, is_write: bool
    ) -> None:
        self._array, self._nbytes, self._count, self._is_write = array, nbytes, count, is_write
        self._driver, pipeline = driver_of(array.store), array.async_array.codec_pipeline
        self.counts, self.assumed, self.in_place = Counts(), 0, 0
        self.bytes_of_chunks = self._bytes_of_indexes = 0
        self.why = ""  # the first reason why a chunk is read whole, replaced or left to zarr
        self._first = 0  # requests that others wait for
        self.acts = class_path(type(pipeline))
        self.is_known = True
        self.depends_on_values = False
        self._leaves_out = not array.config.write_empty_chunks
        self._encoding: ChunkEncoding | None = None  # where zarr reads or writes by itself
        self._reader: Reader | None = None  # of the pipeline; the codec has one of a chunk
        self._assumed: tuple[ObjectLayout, InnerChunkIndex] | None = (
            None  # the last layout, and its index
        )
        # Buffers in other memory are left to zarr's pipeline, which calls the codec.
        is_numpy = issubclass(get_buffer_class(), cpu.Buffer)
        own = pipeline if is_numpy and isinstance(pipeline, BatchedBytesPipeline) else None
        codec = None if is_write else getattr(pipeline, "array_bytes_codec", None)
        metadata: Any = array.metadata
        # Of all chunks; None where they have several shapes, and in format 2.
        self._spec = chunk_spec_of(metadata) if metadata.zarr_format == 3 else None
        self._has_several_shapes = metadata.zarr_format == 3 and self._spec is None
        self._chain: Sequence[Codec] = ()
        try:
            self._chain = chain = uncompressed_codecs(array)
            reason = None if self._spec is None else why_undivided(chain, self._spec)
        except StoreError as error:
            reason = str(error)
        if reason is not None:
            self.is_known = False
            self._why_zarr = reason
        elif own is not None or (isinstance(codec, BytesCodec) and len(chain) == 1):
            self._encoding = encoding_of(chain)
        else:
            self.is_known = not isinstance(chain[-1], ShardingCodec)
            self._why_zarr = _why_zarr()
        self._is_sharded = self._encoding is not None and self._encoding.sharding is not None
        if own is not None:
            out = _without_memory(tuple(indexer.shape), array.dtype, array.order)
            cache = own.index_cache
            self._reader = Reader(out, indexer.drop_axes, self._driver, index_cache=cache)
        elif self._encoding is not None:
            self.acts = f"{class_path(type(codec))} in {self.acts}"
        why_not_a_file = self._driver.why_not_in_place()
        self._writes_in_place = own is not None and own.in_place and not why_not_a_file
        self._why_replaced = why_not_a_file or _NOT_IN_PLACE * (not self._writes_in_place)
        if not (self._why_replaced or CAN_WRITE_IN_PLACE):
            self._why_replaced = "this system has no hard links, so that chunks are replaced"
        self._is_local = not why_not_a_file if is_write else bool(self._driver.root)
        self._looks = _LOOKED_AT if self._is_local and (is_write or self._is_sharded) else 0

    def add(
        self, chunk_coords: tuple[int, ...], selection: Any, out: Any, is_complete_chunk: object
    ) -> None:
        """Count the read or write of the selection of a chunk."""
        key = self._array.store_path / self._array.metadata.encode_chunk_key(chunk_coords)
        spec, nbytes = self._spec, self._nbytes
        if self._has_several_shapes:
            spec = chunk_spec_at(self._array, chunk_coords)
            nbytes = prod(spec.shape) * self._array.dtype.itemsize
        self.bytes_of_chunks += nbytes
        layout = None
        if self._encoding is not None and spec is not None:
            if self._has_several_shapes and (reason := why_undivided(self._chain, spec)):
                self.is_known = False
                self._why_zarr = reason
            else:
                layout = self._encoding.layout_of(spec)
        if layout is None:
            is_read = not (self._is_write and is_complete_chunk)
            fetched, written = nbytes * is_read, nbytes * self._is_write
            self.counts.add(Counts(chunks=1, bytes_fetched=fetched, bytes_written=written))
            self.assumed += is_read
            self.depends_on_values |= self._is_write and self._leaves_out
            self.why = self._why_zarr if is_read else self.why
        elif self._is_write:
            self._write(layout, key, selection, is_complete_chunk=bool(is_complete_chunk))
        else:
            self._read(layout, key, selection, out)

    def _read(self, layout: ObjectLayout, key: StorePath, selection: Any, out: Any) -> None:
        driver, reader, count = self._driver, self._reader, self._count
        self.counts.add(Counts(chunks=1, opens=self._is_local))
        index = self._look(layout, key, to_write=False)[0]
        if index is None:  # a missing shard
            self.assumed, index = self.assumed + 1, self._assumed_index(layout)
        why, requests = driver.why_whole(key.path), not self._is_local
        self.why = self.why or why
        if layout.index_nbytes and requests and driver.request_cost_of(key.path) is None:
            nbytes = index.present_count * layout.inner_chunk_nbytes + layout.index_nbytes
            self.counts.add(Counts(requests=1, bytes_fetched=nbytes))
            self._bytes_of_indexes += layout.index_nbytes
            return
        is_kept = reader is not None and reader.kept_index(key, layout) is not None
        if layout.index_nbytes and (self._is_local or not is_kept):
            self.counts.add(Counts(requests=requests, ranges=1, bytes_fetched=layout.index_nbytes))
            self._first += 1
            self._bytes_of_indexes += layout.index_nbytes
        self._first += not (layout.index_nbytes or driver.answers_ranges())
        projection = ChunkProjection(key, layout, selection, out, is_complete_chunk=False)
        if reader is None:
            prepared = prepare_codec_read(key, layout, selection, _without_memory)
            projection = prepared.projection
            reader = Reader(prepared.out, (), driver, is_whole_batch=False)
            count = UNKNOWN_COUNT
        objects = concurrent_objects(self.counts.chunks - 1, count, max_concurrent_requests())
        self.counts.add(reader.forecast(projection, index, objects))

    def _write(
        self, layout: ObjectLayout, key: StorePath, selection: Any, *, is_complete_chunk: bool
    ) -> None:
        change = SelectionUpdate(
            plan_of(layout, selection, NO_GAPS), selection, is_complete_chunk=is_complete_chunk
        )
        index, why, in_place = None, self._why_replaced, self._writes_in_place
        if not change.replaces_all:
            index, found = self._look(layout, key, to_write=not why)
            why = why or found
        added, why, depends_on_values = change.forecast(
            index, is_file=self._is_local, in_place=in_place, why=why
        )
        self.counts.add(added)
        self.depends_on_values |= depends_on_values and self._leaves_out
        self._first += added.requests > 1
        self.in_place += not (why or change.replaces_all)
        self.is_known = not (self._is_local and self.assumed)
        if index is not None:
            self.why = self.why or why

    @property
    def rounds(self) -> int:
        """As of `Explanation`; the index of a shard, or a first range, goes before all others."""
        slots, requests = max_concurrent_requests(), self.counts.requests
        first = min(self._first, requests)
        return -(-first // slots) - (first - requests) // slots

    @property
    def may_share(self) -> bool:
        """As of `Explanation`."""
        if self._why_replaced or not self.counts.chunks:
            return False
        is_in_place = self.in_place == self.counts.chunks and not self.assumed
        return is_in_place or can_lock(f"{self._driver.root}/{self._array.path}")

    def why_whole(self, selected: int) -> str:
        """The first reason why more than the selected bytes is fetched, or an empty text."""
        driver, counts = self._driver, self.counts
        if self.why:
            return self.why
        fetched = counts.bytes_fetched - self._bytes_of_indexes
        if selected >= fetched:
            if fetched >= self.bytes_of_chunks:
                return "the selection reaches from the first element of each chunk to the last"
            is_whole = counts.bytes_fetched >= self.bytes_of_chunks
            return "the index of a shard takes more than the elements that are left out" * is_whole
        cost = driver.request_cost()
        if cost is None:
            name = "zarr_bytes.partial_reads"
            return f"{name} is False (set by {source_of(name)}): set it to True to read parts"
        gap = f"{with_thousands(cost.gap)} bytes (zarr_bytes.gap.{driver.cost_kind})"
        if self._nbytes <= cost.gap and not self._is_sharded:
            return (
                f"a chunk has {with_thousands(self._nbytes)} bytes, no more than the gap of {gap}"
            )
        return f"gaps of up to {gap} are read, to save requests"

    def _assumed_index(self, layout: ObjectLayout) -> InnerChunkIndex:
        """The index that an object is assumed to have; of a million inner chunks, in C order."""
        if self._assumed is None or self._assumed[0] is not layout:
            if layout.inner_chunk_count > _IN_ORDER:
                index = InnerChunkIndex(
                    layout.data_offset, layout.inner_chunk_nbytes, layout.inner_chunk_count
                )
            else:
                index = layout.full_index()
            self._assumed = layout, index
        return self._assumed[1]

    def _look(
        self, layout: ObjectLayout, key: StorePath, *, to_write: bool
    ) -> tuple[InnerChunkIndex | None, str]:
        """The index of a file, None if it is missing, and why it cannot be written in place."""
        if not self._looks:
            self.assumed += 1
            return self._assumed_index(layout), ""
        self._looks -= 1
        path, root, why = f"{self._driver.root}/{key.path}", self._driver.root, ""
        try:
            descriptor = open_descriptor(path, WRITE_FLAGS if to_write else READ_FLAGS)
        except OSError as error:
            if not (to_write and error.errno in NOT_WRITABLE_ERRNOS):
                raise
            why = _LINK if Path(path).is_symlink() else _READ_ONLY
            descriptor = open_descriptor(path)
        index: InnerChunkIndex | None = None
        if descriptor is not None:
            with ChunkFile(descriptor, path, root) as file:
                file.check_size(layout.stored_nbytes)
                status = os.fstat(descriptor)
                if to_write and not why and must_be_replaced(descriptor, status, path):
                    why = _OTHER_NAMES if status.st_mode & 0o222 else _READ_ONLY
                index = read_index(file, layout)
        return index, f"{path} {why}" if why else ""


def _why_zarr() -> str:
    """The first reason why zarr reads and writes chunks of plain bytes by itself."""
    if not issubclass(buffers := get_buffer_class(), cpu.Buffer):
        return f"buffers are {class_path(buffers)}, for which zarr reads such chunks by itself"
    for key, own in _CHOSEN.items():
        if (chosen := setting_of_zarr(key)) != own:
            return (
                f"zarr's configuration has {chosen} for {key} (set by {source_of(key)}), which"
                f" reads and writes whole chunks: set it to {own}, and open the array again"
            )
    return "the array was opened before zarr-bytes was chosen: open it again"


def _text_of_entry(entry: Any) -> str:
    """An entry of a selection as Python code; the beginning of long arrays."""
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        return f"{entry.start}:{entry.stop}:{entry.step}".replace("None", "").removesuffix(":")
    return brief(np.asarray(entry).tolist(), 40)


def selection_of_text(text: str) -> tuple[str, Any]:
    """The name, such as `oindex`, and the selection in a text; a StoreError for other code."""
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{text.strip()}", mode="eval").body:
            case ast.Subscript(ast.Name(name), node) if name[1:] in ("", *_INDEXED):
                entries = node.elts if isinstance(node, ast.Tuple) else [node]
                return name[1:], tuple(map(_entry_of_text, entries))
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]', after oindex, vindex, blocks or nothing"
    )


def _entry_of_text(node: ast.expr) -> Any:
    if not isinstance(node, ast.Slice):
        return ast.literal_eval(node)
    ends = [end and ast.literal_eval(end) for end in (node.lower, node.upper, node.step)]
    return slice(*ends)
