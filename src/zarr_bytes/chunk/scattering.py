"""Reading selections of chunks straight into the array that was asked for.

What is read of a small file goes there in one assignment, with the byte order changed on the way. A
large selection goes block by block through memory that stays in the processor's cache, so that
neither a buffer of the chunk's size nor one of the selection's is made.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk.blocks import blocks_of
from zarr_bytes.chunk.byte_ranges import Plan
from zarr_bytes.chunk.elements import BLOCK
from zarr_bytes.chunk.files import open_file, read_cached_file, read_file, read_file_into
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.parts import LIMITS, Limits, Parts, plan_selection
from zarr_bytes.chunk.pieces import pieces_of
from zarr_bytes.chunk.reading import chunks_like, read_selection
from zarr_bytes.chunk.selection import entries_of
from zarr_bytes.errors import BoolValueError, ChunkSizeError
from zarr_bytes.settings import DEFAULTS, reading_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteGetter
    from zarr.storage import StorePath

    from zarr_bytes.chunk.blocks import Block
    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import OpenFile
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.reading import Chunks
    from zarr_bytes.chunk.transposition import Transposition
    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["ChunkOfRead", "Scatter"]

# A chunk's key in a store, its spec, the selection of it, where that belongs, and whether all of
# the chunk that is within the array is selected.
ChunkOfRead: TypeAlias = "tuple[ByteGetter, ArraySpec, SelectorTuple, SelectorTuple, bool]"

_Planned: TypeAlias = "tuple[Chunks, tuple[Any, ...], Plan | Parts]"
_Types: TypeAlias = tuple[type, ...]

_SMALL: Final = 2**18  # bytes that are assigned at once
_SOME_PAGES: Final = 2**14  # bytes, from which on it pays to find out that they need not be
_TWICE: Final = 2**24  # bytes of a result that may be there twice
_OUT_OF_ORDER: Final = 16 * BLOCK
_PARTS: Final = Limits(fetched=2**23, runs=LIMITS.runs, views=False)


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
    root : str
        Root of a `LocalStore`.
    """

    def __init__(
        self,
        out: Array,
        drop_axes: tuple[int, ...],
        endian: Endian | None,
        transposition: Transposition,
        root: str = "",
    ) -> None:
        self._out = out
        self._root = root
        self._drop_axes = drop_axes
        self._endian = endian
        self._transposition = transposition
        self._last: tuple[ArraySpec, Chunks, ArraySpec] | None = None
        # The plan of the chunk before, its spec and selection: the usual chunk has the same.
        self._last_plan: tuple[ArraySpec, _Types, SelectorTuple, _Planned] | None = None

    def read_cached(self, chunk: ChunkOfRead) -> bool:
        """`read_file` of a chunk that need not be waited for, on the event loop.

        Raises
        ------
        BlockingIOError
            Where `read_file` must be asked, in a thread.
        """
        chunks, _, plan = self._plan(chunk)
        if not isinstance(plan, Plan):
            raise BlockingIOError
        fetched = read_cached_file(self._root, self._path(chunk), plan)
        return self._put(chunk, chunks, plan, fetched)

    def read_file(self, chunk: ChunkOfRead) -> bool:
        """Read a selection of a chunk of a `LocalStore`, in a thread that may wait.

        Parameters
        ----------
        chunk : ChunkOfRead

        Returns
        -------
        bool
            False if the chunk is missing; `out` has the fill value then.

        Raises
        ------
        ValueError
            As `zarr_bytes.chunk.reading.read_selection`.
        """
        chunks, selection, plan = self._plan(chunk)
        path = self._path(chunk)
        if plan is chunks.whole and _SOME_PAGES <= plan.nbytes <= _SMALL:
            memory = self._memory(chunk, chunks)
            if memory is not None:
                return read_file_into(memory, path, self._root) or self._assign(chunk, None)
        if isinstance(plan, Plan) and plan.nbytes <= _SMALL:
            return self._put(chunk, chunks, plan, read_file(path, plan, self._root))
        read = self._reading(chunk, chunks, selection, plan)
        if read is None and self._out.nbytes > _TWICE:
            getter, spec, of_chunk, of_out, _ = chunk
            most = _TWICE // chunks.item_size
            pieces = list(pieces_of(spec.shape, of_chunk, of_out, self._drop_axes, most))
            if len(pieces) > 1:
                found = [self.read_file((getter, spec, *piece, False)) for piece in pieces]
                return all(found)
        if read is None:
            result = chunks.of_file(path, self._root, plan)
            return self._assign(chunk, None if result is None else _array_of(result))
        is_whole = isinstance(plan, Plan) and plan.is_whole_chunk
        try:
            # A file that is read whole must have the chunk's size.
            with open_file(path, self._root, chunks.nbytes if is_whole else None) as file:
                if file is not None:
                    read(file)
                    return True
            return self._assign(chunk, None)
        except (BoolValueError, ChunkSizeError):  # which name a part, and not the selection
            chunks.of_file(path, self._root, chunks.plan(selection, cast("StorePath", chunk[0])))
            raise

    async def read(self, chunk: ChunkOfRead) -> bool:
        """`read_file` through the `get` of any store."""
        getter, spec, selection, _, _ = chunk
        _, stored_spec = self._chunks_of(spec)
        stored = self._transposition.selection(selection)
        result = await read_selection(getter, stored, stored_spec, self._endian)
        return self._assign(chunk, None if result is None else _array_of(result))

    def _plan(self, chunk: ChunkOfRead) -> _Planned:
        """What there is of the chunks, the selection of what is stored, and the plan for it."""
        getter, spec, selection, _, _ = chunk
        last = self._last_plan
        types = tuple(map(type, selection)) if type(selection) is tuple else None
        # None of the types is that of an array, of which `==` is no truth.
        if last is not None and last[0] is spec and last[1] == types and last[2] == selection:
            return last[3]
        chunks, _ = self._chunks_of(spec)
        stored = self._transposition.selection(selection)
        plan = chunks.plan(stored, cast("StorePath", getter))
        # Parts are used up when they have been read.
        if types is not None and isinstance(plan, Plan) and {slice, int}.issuperset(types):
            self._last_plan = spec, types, selection, (chunks, stored, plan)
        return chunks, stored, plan

    def _path(self, chunk: ChunkOfRead) -> str:
        return f"{self._root}/{cast('StorePath', chunk[0]).path}"

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
        array = self._transposition.from_stored(array, selection)
        if self._drop_axes:
            array = array.squeeze(axis=self._drop_axes)
        self._out[out_selection] = array
        return True

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

    def _memory(self, chunk: ChunkOfRead, chunks: Chunks) -> Bytes | None:
        """The bytes of the result that are to be those of the chunk, as they are stored."""
        target = self._target(chunk)
        if target is None or not target.flags.c_contiguous:
            return None
        is_same = target.dtype == chunks.stored and chunks.is_plain
        return target.reshape(-1).view(np.uint8) if is_same else None

    def _reading(
        self, chunk: ChunkOfRead, chunks: Chunks, selection: tuple[Any, ...], plan: Plan | Parts
    ) -> Callable[[OpenFile], None] | None:
        """How to read a selection without memory of its size; None where that cannot be done."""
        target = self._target(chunk)
        cost = reading_cost(cast("StorePath", chunk[0]).store)
        if target is None or (cost is None and plan is not chunks.whole):
            return None  # the whole chunk is read where partial reads are switched off
        cost = cost or DEFAULTS["local"]
        blocks = self._blocks(chunks, selection, target, cost)
        if blocks is not None:
            return partial(_read_blocks, *blocks)
        parts = plan_selection(chunks.shape, chunks.item_size, selection, cost, _PARTS)
        if not isinstance(parts, Parts):
            return None
        filled = parts.filled(target)
        is_view = np.may_share_memory(filled, target)
        return partial(_read_parts, parts, chunks, filled) if is_view else None

    def _blocks(
        self, chunks: Chunks, selection: tuple[Any, ...], target: Array, cost: Cost
    ) -> tuple[Iterator[Block], Array, DType] | None:
        """The blocks of a selection, the view of the result that they fill, and what is stored."""
        if chunks.stored.newbyteorder("=") != target.dtype.newbyteorder("="):
            return None
        layout = layout_of(target.dtype, self._endian)
        if layout.bool_offsets or layout.narrow_bytes:
            return None
        # A larger window fills the lines of the cache where the axes are stored in another order.
        is_in_order = list(target.strides) == sorted(target.strides, reverse=True)
        most = min(BLOCK if is_in_order else _OUT_OF_ORDER, cost.largest_request)
        shape, item_size, stored = chunks.shape, chunks.item_size, layout.stored
        number = layout.number
        if number is None or layout.is_stored_as_is:
            target = target.view(layout.units)
        else:  # the numbers of an element are an axis more
            target = target[..., np.newaxis].view(number)
            shape, selection = (*shape, target.shape[-1]), (*selection, slice(None))
            item_size, stored = number.itemsize, number.newbyteorder()
        blocks = blocks_of(shape, item_size, selection, cost.gap, most)
        return None if blocks is None else (blocks, target, stored)


def _read_blocks(blocks: Iterator[Block], target: Array, stored: DType, file: OpenFile) -> None:
    for place, start, nbytes, shape, strides in blocks:
        fetched = file.read_range(start, nbytes)
        target[place] = np.ndarray(shape, stored, fetched, strides=strides)


def _read_parts(parts: Parts, chunks: Chunks, filled: Array, file: OpenFile) -> None:
    for places, plan in parts.plans:
        elements = chunks.elements(plan, file.read(plan), is_ours=True)
        for target, source in places:
            filled[target] = elements[source]


def _array_of(result: NDBuffer) -> Array:
    return cast("Array", result.as_ndarray_like())
