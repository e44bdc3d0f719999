"""`explain`: what a read or write of a selection will do, and why it is not partial.

zarr divides the selection, the plans that read and write count the bytes, and for a write the files
are looked at: nothing here does what another part of the package or of zarr does.
"""

from __future__ import annotations

import ast
import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.buffer import cpu
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import codec_name, plain_chain
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.result import Result, Table, class_path, in_digits, verdict
from zarr_bytes.commands.status import source_of
from zarr_bytes.errors import StoreError, no_array
from zarr_bytes.indexing.plan import plan_of
from zarr_bytes.indexing.selection import c_strides
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import IS_REPLACED, is_replaced
from zarr_bytes.io.files import READABLE, WRITABLE, ChunkFile, opened
from zarr_bytes.io.known_stores import kept_index
from zarr_bytes.io.locks import can_lock
from zarr_bytes.io.tasks import number_of_slots, objects_at_once
from zarr_bytes.layout.format import CHUNK_INDEX, Index, Stored
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.read import Reader, as_read, index_in
from zarr_bytes.settings import CLASSES, PIPELINE
from zarr_bytes.write import APART, Change
from zarr_bytes.zarr_versions import axes_of, endian_of, indexer_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr.abc.codec import Codec
    from zarr.storage import StorePath

    from zarr_bytes.commands.result import Part
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.format import AnyIndex, Format
    from zarr_bytes.zarr_versions import Indexer

_MOST: Final = 10**6  # chunks, each of which takes some 30 microseconds
_LARGEST: Final = 2**40  # bytes of a chunk, which is read in some million steps
_LOOKED_AT: Final = 1000  # files
_INDEXED: Final = ("oindex", "vindex", "blocks")  # of an array, each with a way of its own
_CODECS: Final = "codecs.bytes"
_PIPELINE: Final = "codec_pipeline.path"
_CERTAIN: Final = "not known: `preallocate` makes it certain"
# What is said of a chunk that is not written in place.
_NOT_IN_PLACE: Final = (
    "zarr_bytes.partial_writes was False when the array was opened: set it to True (for a command,"
    " ZARR_ZARR_BYTES__PARTIAL_WRITES=True in the environment), and open the array again"
)
_LINK: Final = "is a symbolic link: move the file itself there"
_OTHER_NAMES: Final = "has other names (hard links), which keep their content: copy it instead"
_READ_ONLY: Final = "is read-only: change its mode, if it may be written"
_WRITERS: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The read or write of a selection, in advance.

    Prints as the table that the command shows.

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
    chunks : int
        Number of chunks, or shards, with selected elements.
    chunks_assumed : int
        How many of them are taken for stored, shards with all inner chunks within the array. The
        others have been looked at: files of shards, and files that a write keeps a part of.
    chunks_in_place : int
        How many of them a write changes in place, or makes where they are missing, so that other
        processes can write to them.
    opens, requests, ranges : int
        Number of files opened, of requests to stores other than folders, and of byte ranges read,
        long ones in parts.
    rounds : int
        How many requests follow one another, as zarr's setting ``async.concurrency`` is now.
    bytes_selected : int
        Bytes of the selected elements.
    bytes_fetched, bytes_written : int or None
        Bytes read, with gaps and indexes of shards, and bytes written, for values other than the
        fill value. None if they are not known in advance: for compressed chunks, for shards that
        zarr reads by itself, and for a write to more than a thousand files.
    bytes_of_chunks : int
        Bytes of the chunks, uncompressed and whole.
    may_share : bool or None
        Whether several processes of one machine may write different elements of one chunk at the
        same time, all of them with ``zarr_bytes.partial_writes``. No element is lost then that one
        of them alone writes, not even where a file is replaced: its writers wait for a lock. On a
        file system without locks (`flock`), False for a write that replaces a file, and None where
        that is not known. False for a read, and where nothing is selected.
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
    opens: int
    requests: int
    rounds: int
    ranges: int
    bytes_selected: int
    bytes_fetched: int | None
    bytes_written: int | None
    bytes_of_chunks: int
    may_share: bool | None

    def _parts(self, *, in_full: bool = False) -> Iterator[Part]:
        del in_full
        if not self.is_write:
            what = "Partial" if self.is_partial else "Not partial"
        elif not self.is_partial:
            what = "Chunks are replaced"
        else:
            is_in_place = 0 < self.chunks_in_place == self.chunks
            what = "Written in place" if is_in_place else "Whole chunks are written"
        colour = "green" if self.is_partial else "yellow"
        yield verdict(what, colour, f"{self.selection} of ", self.array)
        if self.reason:
            yield ("Reason: ", "bold"), f"{self.reason}."
        kind, unknown = self.kind, "not known in advance"
        if self.is_write and self.opens:
            unknown = _CERTAIN
        shared = {None: _CERTAIN, True: "of different elements, on one machine", False: "no"}
        values: dict[str, str | int | None] = {  # False where there is nothing to say
            "read and written by": self.acts,
            f"{kind}s with selected elements": self.chunks,
            "bytes selected": self.bytes_selected,
            "bytes fetched": self.bytes_fetched,
            "bytes written": self.is_write and self.bytes_written,
            f"bytes of these {kind}s": self.bytes_of_chunks,
            "opens": self.opens or False,
            "requests": self.requests or False,
            "requests one after another": self.rounds or False,
            "ranges": self.ranges or False,
            f"{kind}s taken for stored": self.chunks_assumed or False,
            f"writes by several processes to one {kind}": self.is_write and shared[self.may_share],
        }
        shown = ((name, value) for name, value in values.items() if value is not False)
        rows = [(name, unknown if value is None else value) for name, value in shown]
        yield Table(("A write" if self.is_write else "A read", ""), rows)


def explain(array: Any, selection: Any = ..., *, write: bool = False) -> Explanation:
    """Explain what ``array[selection]`` reads or writes, without reading a chunk.

    Parameters
    ----------
    array : zarr.Array, or its oindex, vindex or blocks
        Any array; no chunk of it is read. ``explain(array.oindex, selection)`` explains
        ``array.oindex[selection]``.
    selection : int, slice, Ellipsis, array of integers or bools, or a tuple of these, optional
        Whatever zarr takes between the brackets. The default is everything.
    write : bool, optional
        Whether to explain ``array[selection] = values`` instead. The files are looked at for it: as
        many as a thousand, their status, and the index of a shard.

    Returns
    -------
    Explanation
        The result prints as a table. zarr divides the selection, and the numbers come from the
        plan of the read or write itself.

    Raises
    ------
    IndexError
        If the selection does not fit the array, has fields, or has more than 2**63 bytes.
    ValueError
        If more than a million chunks are selected, or more than 2**40 bytes where a chunk has more,
        or the chunks of the array have several shapes.
        For a write, and for a read of shards, also if something other than a file is in the place
        of a chunk, or the index of a shard is damaged.

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
        raise no_array(array)
    indexer, fields = indexer_of(indexed, selection)
    if fields:
        raise IndexError(
            f"the selection has {fields!r}, and fields of records are not explained: permitted are"
            " integers, slices with positive steps, `...` and arrays of integers or bools"
        )
    name = "".join(name for name in _INDEXED if type(getattr(array, name)) is type(indexed))
    text = name + text_of_selection(selection)
    shape = [int(n) for n in indexer.shape]  # of a mask, zarr has numbers of NumPy
    # NumPy has no axis of 2**63 beside one of 0 either.
    if prod([max(n, 1) for n in shape]) * array.dtype.itemsize > sys.maxsize:
        raise IndexError(f"the selection {text} has more than 2**63 bytes, the most that NumPy has")
    chunks = [sum(1 for _ in islice(axis, _MOST + 1)) for axis in axes_of(indexer)]
    if prod(chunks) > _MOST:
        raise ValueError(
            f"the selection {text} has more than a million chunks of {array.store_path}: explain a"
            " part of it"
        )
    walk = _Walk(array, indexer, is_write=write)
    selected = prod(shape) * array.dtype.itemsize
    if min(walk.nbytes, selected) > _LARGEST:
        raise ValueError(
            f"the selection {text} has more than {_LARGEST:,} bytes, and so has each chunk of"
            f" {array.store_path}, which is read in as many steps: explain a part of it"
        )
    walk.count = prod(chunks) if chunks else sum(1 for _ in indexer)
    for chunk in indexer if 0 not in shape else ():
        (walk.write if write else walk.read)(*chunk)
    known: dict[str, Any] = vars(walk.counts)
    if not walk.is_known:
        known = known | {"bytes_fetched": None, "bytes_written": None}
    nbytes, reason = walk.counts.chunks * walk.nbytes, "no element is selected"
    if walk.counts.chunks:
        reason = walk.why if write else walk.why_whole(selected)
    return Explanation(
        array=str(array.store_path),
        selection=text,
        is_write=write,
        acts=walk.acts,
        is_partial=not walk.why if write else walk.counts.bytes_fetched < nbytes,
        reason=reason,
        kind="shard" if walk.index_nbytes else "chunk",
        chunks_assumed=walk.assumed,
        chunks_in_place=walk.in_place,
        rounds=walk.rounds,
        bytes_selected=selected,
        bytes_of_chunks=nbytes,
        may_share=walk.may_share() if write and walk.counts.chunks else False,
        **known,
    )


def _array_without_memory(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], order: str = "C"
) -> Array:
    """An array of any size without elements of its own, which can only be divided."""
    axes = range(len(shape))
    strides = c_strides(shape, dtype.itemsize, axes if order == "C" else axes[::-1])
    # Raw bytes at first: NumPy's function does not know the types of other packages.
    memory = np.empty(1, f"V{dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(memory, shape, strides).view(dtype)


class _Walk:
    """The chunks of a selection one after another: what reads or writes them, and their counts."""

    def __init__(self, array: zarr.Array[Any], indexer: Indexer, *, is_write: bool) -> None:
        metadata, pipeline = array.metadata, array.async_array.codec_pipeline
        spec = spec_of(metadata) if metadata.zarr_format == 3 else None
        if spec is None and metadata.zarr_format == 3:
            raise ValueError(f"the chunks of {array.store_path} have several shapes")
        self._array, self._driver = array, driver_of(array.store)
        chunk_shape = array.chunks if spec is None else spec.shape
        self.nbytes = prod(chunk_shape) * array.dtype.itemsize  # of a chunk, uncompressed
        self.acts = class_path(type(pipeline))
        self._in_place, self._reader = False, None  # of the pipeline; the codec has one of a chunk
        codecs: Sequence[Codec] = getattr(metadata, "codecs", ())  # format 2 has none
        stored, codec = None, getattr(pipeline, "array_bytes_codec", None)
        # Buffers in other memory are left to zarr's pipeline, which calls the codec.
        if isinstance(pipeline, BatchedBytesPipeline) and not _has_device():
            stored, self._in_place = pipeline.stored, pipeline.in_place
            out = _array_without_memory(tuple(indexer.shape), array.dtype, array.order)
            self._reader = Reader(out, indexer.drop_axes, self._driver)
        elif not is_write and isinstance(codec, BytesCodec) and len(codecs) == 1:
            stored = Stored(endian_of(codec))
            self.acts = f"{class_path(type(codec))} in {self.acts}"
        self._format: Format | None = None  # where zarr reads or writes by itself
        self._why_zarr, self.index_nbytes, self.is_known = "", 0, True
        if spec is not None and stored is not None:
            self._format = stored.format_of(spec)
            self.index_nbytes = self._format.index_nbytes
        else:
            not_bytes = _why_not_bytes(codecs, "chunks")
            self.is_known = not (not_bytes or isinstance(codecs[-1], ShardingCodec))
            self._why_zarr = not_bytes or _why_zarr(self.acts, is_write=is_write)
        why_not_a_file = self._driver.why_not_in_place()
        self._why_replaced = why_not_a_file or ("" if self._in_place else _NOT_IN_PLACE)
        self.is_local = not why_not_a_file if is_write else bool(self._driver.root)
        self._looks = _LOOKED_AT if self.is_local and (is_write or self.index_nbytes) else 0
        self.counts, self.assumed, self.in_place = Counts(), 0, 0
        self.count = 1  # chunks
        self._first = 0  # requests that others wait for
        self._has_whole = False  # whether a chunk is read whole though a part is selected
        self.why = ""  # the first reason why a chunk is replaced, or left to zarr
        self._key = array.store_path  # of a chunk
        self._indexes: dict[tuple[int, ...], AnyIndex] = {}  # by the shape within the array

    def read(self, place: tuple[int, ...], selection: Any, out: Any, _: object) -> None:
        """Count the read of the selection of a chunk."""
        format, driver, reader = self._format, self._driver, self._reader
        if format is None:
            self._leave_to_zarr(is_read=True)
            return
        self.counts.chunks += 1
        self.counts.opens += self.is_local
        self._key = key = self._key_of(place)
        index = self._look(place, to_write=False)[0]
        if index is None:  # a missing shard
            self.assumed, index = self.assumed + 1, self._complete(place)
        if self.index_nbytes and driver.why_whole(key.path):
            self._fetch(index.count * format.inner_nbytes + self.index_nbytes, is_range=False)
            return
        if self.index_nbytes and (self.is_local or kept_index(key) is None):
            self._fetch(self.index_nbytes)
            self._first += 1
        self._first += not (self.index_nbytes or driver.answers_ranges())
        chunk, count = (key, format, selection, out, False), self.count
        if reader is None:
            chunk, _, part = as_read(key, format, selection, _array_without_memory)
            reader, count = Reader(part, (), driver, is_all=False), 2**31
        objects = objects_at_once(self.counts.chunks - 1, count, number_of_slots())
        ranges, nbytes, is_whole = reader.fetched(chunk, index, objects)
        self._has_whole |= is_whole
        self._fetch(nbytes, ranges, is_range=not is_whole)

    def write(self, place: tuple[int, ...], selection: Any, _: object, is_complete: object) -> None:
        """Count the write of the selection of a chunk."""
        if self._format is None:
            self._leave_to_zarr(is_read=not is_complete, is_written=True)
            return
        change = Change(self._format, selection, is_complete=bool(is_complete))
        index, why, in_place = None, self._why_replaced, not self._why_replaced
        if not change.keeps_nothing:
            index, found = self._look(place, to_write=in_place)
            why = why or found
        added, why = change.counts(index, is_file=self.is_local, in_place=in_place, why=why)
        self.counts.add(added)
        self._first += added.requests > 1
        self.in_place += not (why or change.keeps_nothing)
        self.is_known = not (self.is_local and self.assumed)
        if index is not None:
            self.why = self.why or why

    @property
    def rounds(self) -> int:
        """As of `Explanation`; the index of a shard, or a first range, goes before all others."""
        slots, requests = number_of_slots(), self.counts.requests
        first = min(self._first, requests)
        return -(-first // slots) - (first - requests) // slots

    def may_share(self) -> bool | None:
        """As of `Explanation`."""
        if not (self.is_local and self._in_place):
            return False
        if can_lock(f"{self._driver.root}/{self._array.path}"):
            return True
        return False if self.in_place < self.counts.chunks else None if self.assumed else True

    def why_whole(self, selected: int) -> str:
        """The first reason why more than the selected bytes is fetched, or an empty text."""
        driver, counts = self._driver, self.counts
        if self.why or (reason := driver.why_whole(self._key.path)):
            return self.why or reason
        if selected + counts.chunks * self.index_nbytes >= counts.bytes_fetched:
            is_all = counts.bytes_fetched >= counts.chunks * self.nbytes
            return "the selection reaches from the first element of each chunk to the last" * is_all
        cost = driver.cost()
        if cost is None:
            name = "zarr_bytes.partial_reads"
            return f"{name} is False (set by {source_of(name)}): set it to True to read parts"
        gap = f"{in_digits(cost.gap)} bytes (zarr_bytes.gap.{driver.where})"
        if not self._has_whole:
            return f"gaps of up to {gap} are read, to save requests"
        if self.nbytes <= cost.gap:
            return f"a chunk has {in_digits(self.nbytes)} bytes, no more than the gap of {gap}"
        return (
            "the elements are in so many places that whole chunks cost less: each range costs as"
            f" much as a gap of {gap}"
        )

    def _leave_to_zarr(self, *, is_read: bool, is_written: bool = False) -> None:
        nbytes = {"bytes_fetched": self.nbytes * is_read, "bytes_written": self.nbytes * is_written}
        self.counts.add(Counts(chunks=1, **nbytes))
        if is_read:
            self.assumed += 1
            self.why = self._why_zarr

    def _fetch(self, nbytes: int, ranges: int = 1, *, is_range: bool = True) -> None:
        """Count ranges, or one whole object; nothing for no bytes."""
        counts, is_any = self.counts, bool(nbytes)
        counts.bytes_fetched += nbytes
        counts.ranges += ranges * is_any * (is_range or self.is_local)
        counts.requests += ranges * is_any * (not self.is_local)

    def _key_of(self, place: tuple[int, ...]) -> StorePath:
        """The key of a chunk."""
        return self._array.store_path / self._array.metadata.encode_chunk_key(place)

    def _look(self, place: tuple[int, ...], *, to_write: bool) -> tuple[AnyIndex | None, str]:
        """The index of a file, None if it is missing, and why it cannot be written in place."""
        if not self._looks:
            self.assumed += 1
            return self._complete(place), ""
        self._looks -= 1
        root, why = self._driver.root, ""
        path = f"{root}/{self._key_of(place).path}"
        try:
            descriptor = opened(path, WRITABLE if to_write else READABLE)
        except OSError as error:
            if not (to_write and error.errno in IS_REPLACED):
                raise
            why = _LINK if Path(path).is_symlink() else _READ_ONLY
            descriptor = opened(path)
        index: AnyIndex | None = None
        if descriptor is not None:
            with ChunkFile(descriptor, path, root) as file:
                file.check(None if self.index_nbytes else self.nbytes)
                status = os.fstat(descriptor)
                if to_write and not why and is_replaced(descriptor, status, path):
                    why = _OTHER_NAMES if status.st_mode & _WRITERS else _READ_ONLY
                index = CHUNK_INDEX if self._format is None else index_in(file, self._format)
        return index, f"{path} {why}" if why else ""

    def _complete(self, place: tuple[int, ...]) -> AnyIndex:
        """The index of a chunk, or of a shard with all inner chunks within the array."""
        format = self._format
        if format is None or not self.index_nbytes:
            return CHUNK_INDEX
        sizes = zip(format.shape, self._array.shape, place, strict=True)
        within = tuple([min(size, n - size * i) for size, n, i in sizes])
        if self.is_local and self._in_place:  # as this package writes shards then
            within = format.shape
        if within not in self._indexes:
            parts = plan_of(format, tuple([slice(0, n) for n in within]), APART).parts()
            numbers = sorted([part.number for part in parts])
            starts = np.full(format.count, -1, np.int64)
            starts[numbers] = format.first + np.arange(len(numbers)) * format.inner_nbytes
            content = np.frombuffer(format.content_of_index(starts), np.uint8)
            self._indexes[within] = Index(format, "", content, None)
        return self._indexes[within]


def _has_device() -> bool:
    """Whether buffers are in other memory than NumPy's."""
    return not issubclass(get_buffer_class(), cpu.Buffer)


def _why_zarr(pipeline: str, *, is_write: bool) -> str:
    """The first reason why zarr reads and writes chunks of plain bytes by itself."""
    if _has_device():
        buffers = class_path(get_buffer_class())
        return f"buffers are {buffers}, for which zarr reads chunks of these codecs by itself"
    chosen = zarr.config.get(_CODECS, None)
    if chosen != CLASSES["bytes"]:
        return (
            f"zarr's configuration has the class {chosen} for the codec bytes"
            f" (set by {source_of(_CODECS)}): `zarr-bytes status` says how to choose zarr-bytes"
        )
    if zarr.config.get(_PIPELINE) != PIPELINE:
        does = "replaces chunks" if is_write else "reads chunks of these codecs by itself"
        return (
            f"the pipeline is {pipeline} (set by {source_of(_PIPELINE)}), which {does}: set"
            f" {_PIPELINE} to {PIPELINE}, and open the array again"
        )
    return "the array was opened before zarr-bytes was chosen: open it again"


def _why_not_bytes(chain: Sequence[Codec], what: str) -> str:
    """The first reason why chunks, or inner chunks, are not plain bytes; `what` names them."""
    if not chain:
        return (
            "the array is of Zarr format 2, which zarr reads and writes by itself: write it as"
            " format 3, with compressors=None"
        )
    *before, last = [codec for codec in chain if not isinstance(codec, BytesBytesCodec)]
    compressors = [codec for codec in chain if isinstance(codec, BytesBytesCodec)]
    if compressors:
        return (
            f"{what} go through the codec {codec_name(compressors[0])}, so that no element has a"
            " place of its own in the file: write the array with compressors=None to read parts"
        )
    others = [codec for codec in before if type(codec) is not TransposeCodec]
    if others:
        return (
            f"{what} go through the codec {codec_name(others[0])}, which zarr decodes by itself:"
            " write the array with filters=None to read parts"
        )
    if isinstance(last, ShardingCodec):
        inside = _why_not_bytes(last.codecs, "inner chunks of its shards")
        if inside or plain_chain(chain):
            return inside
        return (
            "its shards have shards inside, or an index that is not stored by bytes alone or with"
            " crc32c, and zarr reads them by itself"
        )
    if not isinstance(last, ZarrBytesCodec):
        return (
            f"{what} are stored by the codec {codec_name(last)}, in which elements have no fixed"
            " size or place"
        )
    return ""


def text_of_selection(selection: Any) -> str:
    """A selection as Python code, in brackets; long arrays by their shape."""
    entries = selection if isinstance(selection, tuple) else (selection,)
    return f"[{', '.join(map(_text_of_entry, entries))}]"


def _text_of_entry(entry: Any) -> str:
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        ends = ["" if end is None else str(end) for end in (entry.start, entry.stop, entry.step)]
        return ":".join(ends if ends[2] else ends[:2])
    values = np.asarray(entry)
    if values.ndim == 0:
        return str(entry)
    if values.size > 6:
        return f"<{values.size} of {'x'.join(map(str, values.shape))}>"
    return str(values.tolist())


def selection_of_text(text: str) -> tuple[str, Any]:
    """The selection in a text such as ``[:, 7, 3]``, after a name such as ``oindex`` or none.

    No code is run. A StoreError if the text has anything else.

    >>> selection_of_text("[:, -7, ..., [1, 2]]")
    ('', (slice(None, None, None), -7, Ellipsis, [1, 2]))
    """
    name, _, code = text.strip().partition("[")
    if name not in ("", *_INDEXED) or not code.endswith("]"):
        name, code = "", f"{text}]"
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_[{code}", mode="eval").body:
            case ast.Subscript(ast.Name(), ast.Tuple(nodes)):
                return name, tuple(map(_entry_of_text, nodes))
            case ast.Subscript(ast.Name(), node):
                return name, (_entry_of_text(node),)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]', after oindex, vindex, blocks or nothing"
    )


def _entry_of_text(node: ast.expr) -> Any:
    if not isinstance(node, ast.Slice):
        return ast.literal_eval(node)
    ends = (node.lower, node.upper, node.step)
    return slice(*[None if end is None else ast.literal_eval(end) for end in ends])
