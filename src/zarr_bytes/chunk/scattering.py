"""Reading selections of chunks straight into the array that was asked for.

A few bytes that follow each other go there in one read, or in one assignment that changes the byte
order on the way. How that is done is found once for all chunks that are selected alike, so that a
chunk of 256 bytes costs an open, a read and a close, and little else.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from zarr.storage import LocalStore

from zarr_bytes.chunk.byte_ranges import one_run
from zarr_bytes.chunk.cached_files import read_cached_file, read_cached_file_into
from zarr_bytes.chunk.files import open_file, read_file, read_file_into
from zarr_bytes.chunk.large_selections import in_blocks, in_parts
from zarr_bytes.chunk.pieces import pieces_of
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.chunk.reading import chunks_like, read_selection
from zarr_bytes.chunk.selection import entries_of, has_both_ends, is_whole
from zarr_bytes.errors import BoolValueError, ChunkSizeError
from zarr_bytes.settings import DEFAULTS, reading_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import Store
    from zarr.storage import StorePath

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.reading import Chunks
    from zarr_bytes.chunk.transposition import Transposition
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["ChunkOfRead", "Scatter"]

# A chunk's key in a store, its spec, the selection of it, where that belongs, and whether all of
# the chunk that is within the array is selected.
ChunkOfRead: TypeAlias = "tuple[StorePath, ArraySpec, SelectorTuple, SelectorTuple, bool]"

_ONE_HOP: Final = 2**16  # bytes that are worth a try without a thread, in several ranges
_SMALL: Final = 2**18  # bytes that are assigned at once
_SOME_PAGES: Final = 2**14  # bytes, from which on it pays to find out that they need not be
_TWICE: Final = 2**24  # bytes of a result that may be there twice


class _Way(NamedTuple):
    """How a selection of a chunk is read, and the same selection of others with its spec."""

    spec: ArraySpec
    selection: SelectorTuple
    # A few bytes that follow each other: where the first is, or None if they are the whole chunk;
    start: int | None = None
    # the result, if they are read into their place in it,
    result: Array | None = None
    # or memory that they are read into, and the elements that are there then.
    window: tuple[Bytes, Array] | None = None

    def is_for(self, spec: ArraySpec, selection: SelectorTuple) -> bool:
        """Whether it is the way for `selection` of another chunk.

        An array of one index equals the index: what is read fills its place as well.
        """
        try:
            return spec is self.spec and bool(selection == self.selection)
        except ValueError:  # a longer array has no truth
            return False


class Scatter:
    """The array that selections of chunks are read into.

    Parameters
    ----------
    out : array
        Elements in the data type of the chunks; any other is converted to, as NumPy does.
    drop_axes : tuple of int
        Axes of a selection that `out` does not have.
    endian : {"little", "big"} or None
        Byte order that is stored; None means that of the data type.
    transposition : Transposition
        The order in which the axes are stored.
    store : zarr.abc.store.Store
        Where all the chunks are.
    """

    def __init__(
        self,
        out: Array,
        drop_axes: tuple[int, ...],
        endian: Endian | None,
        transposition: Transposition,
        store: Store,
    ) -> None:
        self._out = out
        self._store = store
        self._root = str(store.root) if isinstance(store, LocalStore) else ""
        self._drop_axes = drop_axes
        self._endian = endian
        self._transposition = transposition
        self._last: tuple[ArraySpec, Chunks, ArraySpec] | None = None

    def read_cached(self, chunks: Iterable[ChunkOfRead]) -> Iterator[bool]:
        """`read_files` of chunks that need not be waited for, on the event loop.

        Raises
        ------
        BlockingIOError
            Where `read_files` must be asked, in a thread, for a chunk and those after it.
        """
        return self._read_files(chunks, read_cached_file_into, self._read_cached)

    def read_files(self, chunks: Iterable[ChunkOfRead]) -> Iterator[bool]:
        """Read selections of chunks of a `LocalStore`, in a thread that may wait.

        Parameters
        ----------
        chunks : iterable of ChunkOfRead

        Yields
        ------
        bool
            False if the chunk is missing; `out` has the fill value then.

        Raises
        ------
        ValueError
            As `zarr_bytes.chunk.reading.read_selection`.
        """
        return self._read_files(chunks, read_file_into, self._read_file)

    def _read_files(
        self,
        chunks: Iterable[ChunkOfRead],
        read_into: Callable[[Array, str, str, int | None], bool],
        read_other: Callable[[ChunkOfRead], bool],
    ) -> Iterator[bool]:
        out, root = self._out, self._root
        way: _Way | None = None
        for chunk in chunks:
            getter, spec, selection, place, _ = chunk
            if way is None or not way.is_for(spec, selection):
                way = self._way(chunk)
            if way.window is not None:
                memory, elements = way.window
                is_there = read_into(memory, f"{root}/{getter.path}", root, way.start)
                if is_there:
                    out[place] = elements
            elif way.result is not None and _is_view(target := way.result[place], way.result):
                is_there = read_into(target, f"{root}/{getter.path}", root, way.start)
            else:
                yield read_other(chunk)
                continue
            yield is_there or self._assign(chunk, None)

    def _read_cached(self, chunk: ChunkOfRead) -> bool:
        chunks, selection = self._stored(chunk)
        plan = chunks.plan(selection, chunk[0]) if self._out.nbytes <= _ONE_HOP else None
        if not isinstance(plan, Plan):
            raise BlockingIOError
        return self._put(chunk, chunks, plan, read_cached_file(self._path(chunk), plan, self._root))

    def _read_file(self, chunk: ChunkOfRead) -> bool:
        chunks, selection = self._stored(chunk)
        path = self._path(chunk)
        target, cost = self._target(chunk), self._cost_of(chunks, selection)
        read, plan = None, None
        if target is not None and cost is not None and chunks.nbytes > _SMALL:
            read = in_blocks(chunks, selection, target, self._endian, cost)
        if read is None or has_both_ends(chunks.shape, selection):
            plan = chunks.plan(selection, chunk[0])
            if isinstance(plan, Plan) and plan.nbytes <= _SMALL:
                return self._put(chunk, chunks, plan, read_file(path, plan, self._root))
        if read is None and target is not None and cost is not None:
            read = in_parts(chunks, selection, target, cost)
        if read is None and self._out.nbytes > _TWICE:
            getter, spec, of_chunk, of_out, _ = chunk
            most = _TWICE // chunks.item_size
            pieces = list(pieces_of(spec.shape, of_chunk, of_out, self._drop_axes, most))
            if len(pieces) > 1:
                parts = [(getter, spec, *piece, False) for piece in pieces]
                return all(list(self.read_files(parts)))
        if read is None:
            result = chunks.of_file(path, self._root, chunks.plan(selection, chunk[0]))
            return self._assign(chunk, None if result is None else _array_of(result))
        # A file that is read whole must have the chunk's size.
        nbytes = chunks.nbytes if isinstance(plan, Plan) and plan.is_whole_chunk else None
        try:
            with open_file(path, self._root, nbytes) as file:
                if file is not None:
                    read(file)
                    return True
            return self._assign(chunk, None)
        except (BoolValueError, ChunkSizeError):  # which name a part, and not the selection
            chunks.of_file(path, self._root, chunks.plan(selection, chunk[0]))
            raise

    async def read(self, chunk: ChunkOfRead) -> bool:
        """`read_files` of one chunk through the `get` of any store."""
        getter, spec, selection, _, _ = chunk
        _, stored_spec = self._chunks_of(spec)
        stored = self._transposition.selection(selection)
        result = await read_selection(getter, stored, stored_spec, self._endian)
        return self._assign(chunk, None if result is None else _array_of(result))

    def _way(self, chunk: ChunkOfRead) -> _Way:
        _, spec, selection, _, _ = chunk
        chunks, stored = self._stored(chunk)
        way = _Way(spec, selection)
        if not chunks.is_plain:
            return way
        start, nbytes, shape = None, chunks.nbytes, chunks.shape
        if not is_whole(shape, stored):
            run, cost = one_run(shape, chunks.item_size, stored), self._cost
            if run is None or cost is None or nbytes <= cost.gap:
                return way
            start, nbytes, shape = run
            if nbytes > cost.largest_request:
                return way
        if not 0 < nbytes <= _SMALL:
            return way
        if nbytes >= _SOME_PAGES and (result := self._result(chunk, chunks)) is not None:
            return way._replace(start=start, result=result)
        memory = np.empty(nbytes, np.uint8)
        elements: Array = np.ndarray(shape, chunks.stored, memory)
        return way._replace(start=start, window=(memory, self._as_selected(elements, selection)))

    def _stored(self, chunk: ChunkOfRead) -> tuple[Chunks, tuple[Any, ...]]:
        """What there is of the chunks, and the selection of what is stored."""
        _, spec, selection, _, _ = chunk
        return self._chunks_of(spec)[0], self._transposition.selection(selection)

    @cached_property
    def _cost(self) -> Cost | None:
        return reading_cost(self._store)

    def _path(self, chunk: ChunkOfRead) -> str:
        return f"{self._root}/{chunk[0].path}"

    def _put(self, chunk: ChunkOfRead, chunks: Chunks, plan: Plan, fetched: Bytes | None) -> bool:
        if fetched is None:
            return self._assign(chunk, None)
        return self._assign(chunk, chunks.elements(plan, fetched, is_ours=True))

    def _assign(self, chunk: ChunkOfRead, array: Array | None) -> bool:
        """Put what was read where it belongs, or the fill value where the chunk is missing."""
        _, spec, selection, out_selection, _ = chunk
        if array is None:
            fill = spec.fill_value
            self._out[out_selection] = spec.dtype.default_scalar() if fill is None else fill
            return False
        self._out[out_selection] = self._as_selected(array, selection)
        return True

    def _as_selected(self, array: Array, selection: SelectorTuple) -> Array:
        """What is stored of a selection, with the axes that it has in the result."""
        array = self._transposition.from_stored(array, selection)
        return array.squeeze(axis=self._drop_axes) if self._drop_axes else array

    def _chunks_of(self, spec: ArraySpec) -> tuple[Chunks, ArraySpec]:
        """What chunks of `spec` have in common, and their spec as they are stored."""
        last = self._last
        if last is None or last[0] is not spec:
            stored = self._transposition.spec(spec)
            dtype = spec.dtype.to_native_dtype()
            chunks = chunks_like(stored.shape, dtype, self._endian, spec.prototype)
            self._last = last = spec, chunks, stored  # one tuple: no thread sees half of it
        return last[1:]

    def _target(self, chunk: ChunkOfRead) -> Array | None:
        """Where a selection belongs, with its axes as they are stored; None if that is no view."""
        _, _, selection, out_selection, _ = chunk
        entries = entries_of(out_selection)
        if self._drop_axes or not all(isinstance(entry, slice) for entry in entries):
            return None
        target = self._out[(*entries, ...)]  # never a scalar
        return self._transposition.to_stored(target, selection)

    def _result(self, chunk: ChunkOfRead, chunks: Chunks) -> Array | None:
        """The result, if chunks can be read into their places in it as they are."""
        target = self._target(chunk)
        if target is None or target.dtype != chunks.stored or not target.flags.c_contiguous:
            return None
        # Without its type, as not every type has a buffer that can be read into.
        return self._out.view(f"V{chunks.item_size}")

    def _cost_of(self, chunks: Chunks, selection: tuple[Any, ...]) -> Cost | None:
        """What a range costs; None where the chunk is read whole for a part of it."""
        if self._cost is None and is_whole(chunks.shape, selection):
            return DEFAULTS["local"]
        return self._cost


def _is_view(array: Array, of: Array) -> bool:
    return array.base is (of if of.base is None else of.base)


def _array_of(result: NDBuffer) -> Array:
    return cast("Array", result.as_ndarray_like())
