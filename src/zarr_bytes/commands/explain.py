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
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import zarr

from zarr_bytes.commands.backend import backend_of, why_replaced, why_whole
from zarr_bytes.commands.result import Result, Table, verdict
from zarr_bytes.errors import StoreError, no_array
from zarr_bytes.indexing.plan import plan_of
from zarr_bytes.indexing.selection import c_strides, is_basic
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import IS_REPLACED, is_replaced
from zarr_bytes.io.files import READABLE, WRITABLE, ChunkFile, opened
from zarr_bytes.io.locks import can_lock
from zarr_bytes.io.requests import kept_index
from zarr_bytes.io.tasks import number_of_slots, objects_at_once
from zarr_bytes.layout.format import CHUNK_INDEX, Index
from zarr_bytes.read import Reader, as_read, index_in
from zarr_bytes.write import APART, Change
from zarr_bytes.zarr_versions import axes_of, indexer_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr.storage import StorePath

    from zarr_bytes.commands.backend import Backend
    from zarr_bytes.commands.result import Part
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.format import AnyIndex, Format
    from zarr_bytes.read import Chunk
    from zarr_bytes.zarr_versions import Indexer

T = TypeVar("T")

_MOST: Final = 10**6  # chunks, each of which takes some 15 microseconds
_LARGEST: Final = 2**40  # bytes of a chunk, which is read in some million steps
_LOOKED_AT: Final = 1000  # files
_INDEXED: Final = ("oindex", "vindex", "blocks")  # of an array, each with a way of its own
_CERTAIN: Final = "not known: `preallocate` makes it certain"
# What is said of a file that is not written in place.
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
    reopened : str
        What opening the array again with the current settings would change. Empty if nothing.
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
    reopened: str
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
        if self.reopened:
            yield ("Settings: ", "bold"), f"{self.reopened}."
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
    # NumPy has no axis of 2**63 beside one of 0 either.
    if prod([max(n, 1) for n in indexer.shape]) * array.dtype.itemsize > sys.maxsize:
        raise IndexError(f"the selection {text} has more than 2**63 bytes, the most that NumPy has")
    chunks = [sum(1 for _ in islice(axis, _MOST + 1)) for axis in axes_of(indexer)]
    if prod(chunks) > _MOST:
        raise ValueError(
            f"the selection {text} has more than a million chunks of {array.store_path}: explain a"
            " part of it"
        )
    backend = backend_of(array, is_write=write)
    walk = _Walk(array, backend, indexer, is_write=write)
    if min(walk.nbytes, prod(indexer.shape) * array.dtype.itemsize) > _LARGEST:
        raise ValueError(
            f"the selection {text} has more than {_LARGEST:,} bytes, and so has each chunk of"
            f" {array.store_path}, which is read in as many steps: explain a part of it"
        )
    walk.count = prod(chunks) if chunks else sum(1 for _ in indexer)
    for chunk in indexer if 0 not in indexer.shape else ():
        (walk.write if write else walk.read)(*chunk)
    counts, nbytes = walk.counts, walk.counts.chunks * walk.nbytes
    selected = prod(indexer.shape) * array.dtype.itemsize
    is_partial = not walk.why if write else counts.bytes_fetched < nbytes
    reason = walk.why if counts.chunks else "no element is selected"
    if not (write or reason):
        with_indexes = selected + counts.chunks * walk.index_nbytes
        sizes = {"selected": with_indexes, "fetched": counts.bytes_fetched, "total": nbytes}
        reason = why_whole(walk.key, walk.nbytes, **sizes, is_whole=walk.has_whole)
    known: dict[str, Any] = vars(counts)
    if not backend.nbytes_are_known or (
        write and backend.is_pipeline and walk.is_local and walk.assumed
    ):
        known = known | {"bytes_fetched": None, "bytes_written": None}
    return Explanation(
        array=str(array.store_path),
        selection=text,
        is_write=write,
        acts=backend.name,
        is_partial=is_partial,
        reason=reason,
        reopened=backend.reopened,
        kind=walk.kind,
        chunks_assumed=walk.assumed,
        chunks_in_place=walk.in_place,
        rounds=walk.rounds,
        bytes_selected=selected,
        bytes_of_chunks=nbytes,
        may_share=walk.may_share() if write and counts.chunks else False,
        **known,
    )


def _fetched(
    chunk: Chunk, out: Array | None, drop_axes: tuple[int, ...], index: AnyIndex, objects: int
) -> tuple[int, int, bool]:
    """What the read of a chunk with this index fetches, as of `Reader.fetched`.

    `out` is the array that it is read into, and None for the codec in zarr's pipelines.
    """
    getter, format, selection, *_ = chunk
    driver = driver_of(getter.store)
    if out is not None:
        return Reader(out, drop_axes, driver).fetched(chunk, index, objects)
    if driver.is_memory:
        return 1, format.nbytes, True
    chunk, _, out = as_read(getter, format, selection, _array_without_memory)
    return Reader(out, (), driver, is_all=False).fetched(chunk, index, objects)


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
    """The chunks of a selection one after another, and their counts."""

    def __init__(
        self, array: zarr.Array[Any], backend: Backend, indexer: Indexer, *, is_write: bool
    ) -> None:
        metadata, stored, driver = array.metadata, backend.stored, driver_of(array.store)
        spec = spec_of(metadata) if metadata.zarr_format == 3 else None
        if spec is None and metadata.zarr_format == 3:
            raise ValueError(f"the chunks of {array.store_path} have several shapes")
        self._array, self._backend = array, backend
        chunk_shape = array.chunks if spec is None else spec.shape
        self.nbytes = prod(chunk_shape) * array.dtype.itemsize  # of a chunk, uncompressed
        # None where zarr reads or writes by itself.
        self._format: Format | None = None
        self.index_nbytes = 0
        if spec is not None and stored is not None:
            self._format = stored.format_of(spec)
            self.index_nbytes = self._format.index_nbytes
        self.kind = "shard" if self.index_nbytes else "chunk"
        self._out, self._drop_axes = None, indexer.drop_axes
        if backend.is_pipeline:
            self._out = _array_without_memory(tuple(indexer.shape), array.dtype, array.order)
        self._driver, self._root = driver, driver.root
        self.is_local = not driver.why_not_in_place() if is_write else bool(driver.root)
        self._looks = _LOOKED_AT if self.is_local and (is_write or self.index_nbytes) else 0
        self._why_replaced = why_replaced(backend, array.store)
        self.counts, self.assumed, self.in_place = Counts(), 0, 0
        self.count, self._objects = 1, 1  # chunks, and those that are read at once
        self._first = 0  # requests that others wait for
        self.has_whole = False  # chunks that are read whole though a part is selected
        self.why = ""  # the first reason why a chunk is replaced, or left to zarr
        self.key = array.store_path  # of a chunk
        self._indexes: dict[tuple[int, ...], AnyIndex] = {}  # by the shape within the array
        self._last: tuple[Any, Any, Any] = None, None, None

    def read(self, place: tuple[int, ...], selection: Any, out: Any, _: object) -> None:
        """Count the read of the selection of a chunk."""
        if self._format is None:
            self._leave_to_zarr(is_read=True)
            return
        self.counts.chunks += 1
        self.counts.opens += self.is_local
        if self.counts.chunks == 1 or self._driver.is_mixed:
            self.key = self._key_of(place)  # of any chunk, except for members of a zip file
        getter, index = self.key, self._look(place, to_write=False)[0]
        if index is None:  # a missing shard
            self.assumed, index = self.assumed + 1, self._complete(place)
        if self.index_nbytes and self._driver.why_whole(getter.path):
            self._fetch(index.count * self._format.inner_nbytes + self.index_nbytes, is_range=False)
            return
        if self.index_nbytes and (self.is_local or kept_index(self._key_of(place)) is None):
            self._fetch(self.index_nbytes)
            self._first += 1
        self._first += not (self.index_nbytes or self._driver.answers_ranges())
        count = 2**31 if self._out is None else self.count
        objects = objects_at_once(self.counts.chunks - 1, count, number_of_slots())
        if objects != self._objects:
            self._objects, self._last = objects, (None, None, None)
        chunk = getter, self._format, selection, out, False
        to = self._out, self._drop_axes, index, objects
        ranges, nbytes, is_whole = self._once(selection, index, lambda: _fetched(chunk, *to))
        self.has_whole |= is_whole
        self._fetch(nbytes, ranges, is_range=not is_whole)

    def write(self, place: tuple[int, ...], selection: Any, _: object, is_complete: object) -> None:
        """Count the write of the selection of a chunk."""
        format, counts, why = self._format, self.counts, self._why_replaced
        if format is None or not self._backend.is_pipeline:
            self._leave_to_zarr(is_read=not is_complete, is_written=True)
            return
        change = self._once(
            selection,
            is_complete,
            lambda: Change(format, selection, is_complete=bool(is_complete)),
        )
        index: AnyIndex | None = None
        if not change.keeps_nothing:
            index, found = self._look(place, to_write=not why)
            why = why or found
        in_place = not self._why_replaced
        added, why = change.counts(index, is_file=self.is_local, in_place=in_place, why=why)
        counts.add(added)
        self._first += added.requests > 1
        self.in_place += not (why or change.keeps_nothing)
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
        if not (self.is_local and self._backend.in_place):
            return False
        if can_lock(f"{self._root}/{self._array.path}"):
            return True
        return False if self.in_place < self.counts.chunks else None if self.assumed else True

    def _leave_to_zarr(self, *, is_read: bool, is_written: bool = False) -> None:
        counts = self.counts
        counts.chunks += 1
        counts.bytes_fetched += self.nbytes * is_read
        counts.bytes_written += self.nbytes * is_written
        if is_read:
            self.assumed += 1
            self.why = self.why or self._backend.reason

    def _fetch(self, nbytes: int, ranges: int = 1, *, is_range: bool = True) -> None:
        """Count ranges, or one whole object; nothing for no bytes."""
        counts, is_any = self.counts, bool(nbytes)
        counts.bytes_fetched += nbytes
        counts.ranges += ranges * is_any * (is_range or self.is_local)
        counts.requests += ranges * is_any * (not self.is_local)

    def _key_of(self, place: tuple[int, ...]) -> StorePath:
        """The key of a chunk."""
        return self._array.store_path / self._array.metadata.encode_chunk_key(place)

    def _once(self, selection: Any, index: object, count: Callable[[], T]) -> T:
        """What `count` gives, kept for the next chunk that is selected alike."""
        if is_basic(selection):
            if index is not self._last[1] or selection != self._last[0]:
                self._last = selection, index, count()
            found: T = self._last[2]
            return found
        return count()

    def _look(self, place: tuple[int, ...], *, to_write: bool) -> tuple[AnyIndex | None, str]:
        """The index of a file, None if it is missing, and why it cannot be written in place."""
        if not self._looks:
            self.assumed += 1
            return self._complete(place), ""
        self._looks -= 1
        root, why = self._root, ""
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
        if self.is_local and self._backend.in_place:  # as this package writes shards then
            within = format.shape
        if within not in self._indexes:
            parts = plan_of(format, tuple([slice(0, n) for n in within]), APART).parts()
            numbers = sorted([part.number for part in parts])
            starts = np.full(format.count, -1, np.int64)
            starts[numbers] = format.first + np.arange(len(numbers)) * format.inner_nbytes
            content = np.frombuffer(format.content_of_index(starts), np.uint8)
            self._indexes[within] = Index(format, "", content, None)
        return self._indexes[within]


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
    name, bracket, code = text.strip().partition("[")
    if name not in ("", *_INDEXED) or not code.endswith("]"):
        name, bracket, code = "", "[", f"{text}]"
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{bracket}{code}", mode="eval").body:
            case ast.Subscript(ast.Name(), ast.Tuple(nodes)):
                return name, tuple(map(_entry_of_text, nodes))
            case ast.Subscript(ast.Name(), node):
                return name, (_entry_of_text(node),)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]', after oindex, vindex, blocks or nothing"
    )


def _entry_of_text(node: ast.expr) -> Any:
    if isinstance(node, ast.Slice):
        ends = (node.lower, node.upper, node.step)
        return slice(*[None if end is None else _integer(end) for end in ends])
    if isinstance(node, ast.List):
        return [_integer(element) for element in node.elts]
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Ellipsis
    return _integer(node)


def _integer(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if type(value) is not int:
        raise ValueError
    return value
