"""Reading selections of chunks straight into the array that was asked for.

What is read of a small file goes there in one assignment, with the byte order changed on the way. A
large selection goes block by block through memory that stays in the processor's cache, so that
neither a buffer of the chunk's size nor one of the selection's is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk.byte_ranges import Plan
from zarr_bytes.chunk.files import Into, open_file, read_cached_file, read_file
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.parts import LIMITS, Limits, Parts, plan_selection
from zarr_bytes.chunk.reading import chunks_like, read_selection
from zarr_bytes.errors import BoolValueError, ChunkSizeError
from zarr_bytes.settings import DEFAULTS, reading_cost

if TYPE_CHECKING:
    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteGetter
    from zarr.storage import StorePath

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.reading import Chunks
    from zarr_bytes.chunk.transposition import Transposition
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["ChunkOfRead", "Scatter"]

# A chunk's key in a store, its spec, the selection of it, where that belongs, and whether all of
# the chunk that is within the array is selected.
ChunkOfRead: TypeAlias = "tuple[ByteGetter, ArraySpec, SelectorTuple, SelectorTuple, bool]"

_SMALL: Final = 2**18  # bytes that are assigned at once
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
        if isinstance(plan, Plan):
            if plan.nbytes <= _SMALL:
                return self._put(chunk, chunks, plan, read_file(path, plan, self._root))
            if (into := self._into(chunk, chunks, plan)) is not None:
                fetched = read_file(path, plan, self._root, into)
                return fetched is not None or self._assign(chunk, None)
        parts = self._parts(chunk, chunks, selection, plan)
        if parts is None:
            result = chunks.of_file(path, self._root, plan)
            return self._assign(chunk, None if result is None else _array_of(result))
        try:
            is_whole = isinstance(plan, Plan) and plan.is_whole_chunk
            nbytes = chunks.nbytes if is_whole else None  # which the file must have then
            return self._read_parts(path, parts, chunks, nbytes) or self._assign(chunk, None)
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

    def _plan(self, chunk: ChunkOfRead) -> tuple[Chunks, tuple[Any, ...], Plan | Parts]:
        """What there is of the chunks, the selection of what is stored, and the plan for it."""
        getter, spec, selection, _, _ = chunk
        chunks, _ = self._chunks_of(spec)
        stored = self._transposition.selection(selection)
        return chunks, stored, chunks.plan(stored, cast("StorePath", getter))

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
        entries = out_selection if isinstance(out_selection, tuple) else (out_selection,)
        if self._drop_axes or not all(isinstance(entry, slice) for entry in entries):
            return None
        target = self._out[(*entries, ...)]  # never a scalar
        return self._transposition.to_stored(target, selection)

    def _into(self, chunk: ChunkOfRead, chunks: Chunks, plan: Plan) -> Into | None:
        """Memory of the result for the bytes of `plan`, if it holds these, one after another."""
        target = self._target(chunk)
        if (
            target is None
            or plan.starts.size != 1
            or not target.flags.c_contiguous
            or plan.nbytes != target.nbytes
            or chunks.stored.newbyteorder("=") != target.dtype.newbyteorder("=")
            or not plan.is_view
        ):
            return None
        layout = layout_of(target.dtype, self._endian)
        number = np.dtype(np.uint8) if layout.is_stored_as_is else layout.number
        if number is None or layout.bool_offsets or layout.narrow_bytes:
            return None
        memory: Bytes = target.reshape(-1).view(np.uint8)
        selected = plan.select(memory, target.dtype)
        if not selected.flags.c_contiguous or not np.may_share_memory(selected, memory):
            return None
        return Into(memory.view(number), number.newbyteorder() if number.itemsize > 1 else number)

    def _parts(
        self, chunk: ChunkOfRead, chunks: Chunks, selection: tuple[Any, ...], plan: Plan | Parts
    ) -> tuple[Parts, Array] | None:
        """The parts to read a selection in, and the view of the result that they fill."""
        target = self._target(chunk)
        cost = reading_cost(cast("StorePath", chunk[0]).store)
        if target is None or (cost is None and plan is not chunks.whole):
            return None  # the whole chunk is read where partial reads are switched off
        parts = plan_selection(
            chunks.shape, chunks.item_size, selection, cost or DEFAULTS["local"], _PARTS
        )
        if not isinstance(parts, Parts):
            return None
        filled = parts.filled(target)
        return (parts, filled) if np.may_share_memory(filled, target) else None

    def _read_parts(
        self, path: str, parts: tuple[Parts, Array], chunks: Chunks, nbytes: int | None
    ) -> bool:
        with open_file(path, self._root, nbytes) as read:
            if read is None:
                return False
            for places, part in parts[0].plans:
                elements = chunks.elements(part, read(part), is_ours=True)
                for target, source in places:
                    parts[1][target] = elements[source]
        return True


def _array_of(result: NDBuffer) -> Array:
    return cast("Array", result.as_ndarray_like())
