"""Reading selections of chunks straight into the array that was asked for.

What is read of a small file goes there in one assignment, with the byte order changed on the way. A
large selection goes block by block through memory that stays in the processor's cache, so that
neither a buffer of the chunk's size nor one of the selection's is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk.byte_ranges import Plan
from zarr_bytes.chunk.files import Into, open_file, read_cached_file, read_file
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.parts import LIMITS, Limits, Parts, plan_selection
from zarr_bytes.chunk.reading import chunks_like, read_selection
from zarr_bytes.errors import BoolValueError
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
_PARTS: Final = Limits(fetched=2**23, runs=LIMITS.runs)


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
    """

    def __init__(
        self,
        out: Array,
        drop_axes: tuple[int, ...],
        endian: Endian | None,
        transposition: Transposition,
    ) -> None:
        self._out = out
        self._drop_axes = drop_axes
        self._endian = endian
        self._transposition = transposition
        self._layout = layout_of(out.dtype, endian)
        self._last: tuple[ArraySpec, Chunks, ArraySpec] | None = None
        self._planned: tuple[ChunkOfRead, Plan | Parts] | None = None

    def read_cached(self, chunk: ChunkOfRead) -> bool:
        """`read_file` of a chunk that need not be waited for, on the event loop.

        Raises
        ------
        BlockingIOError
            Where `read_file` must be asked, in a thread.
        """
        getter, spec, selection, _, _ = chunk
        store_path = cast("StorePath", getter)
        chunks = self._chunks_of(spec)[0]
        plan = chunks.plan(self._transposition.selection(selection), store_path)
        self._planned = chunk, plan
        if not isinstance(plan, Plan):
            raise BlockingIOError
        root = str(store_path.store.root)  # type: ignore[attr-defined]
        fetched = read_cached_file(root, f"{root}/{store_path.path}", plan)
        return self._put(chunk, chunks.result(plan, fetched, is_ours=True))

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
        getter, spec, selection, out_selection, _ = chunk
        store_path = cast("StorePath", getter)
        chunks = self._chunks_of(spec)[0]
        stored_selection = self._transposition.selection(selection)
        if self._planned is not None and self._planned[0] is chunk:
            plan = self._planned[1]
        else:
            plan = chunks.plan(stored_selection, store_path)
        root = str(store_path.store.root)  # type: ignore[attr-defined]
        path = f"{root}/{store_path.path}"
        if isinstance(plan, Plan) and plan.nbytes <= _SMALL:
            return self._put(chunk, chunks.result(plan, read_file(path, plan, root), is_ours=True))
        target = self._target(selection, out_selection)
        if target is None:
            return self._put(chunk, chunks.of_file(path, root, plan))
        if isinstance(plan, Plan) and (into := self._into(plan, chunks, target)) is not None:
            return read_file(path, plan, root, into) is not None or self._put(chunk, None)
        cost = reading_cost(store_path.store)
        if cost is None and plan is not chunks.whole:  # partial reads are switched off
            return self._put(chunk, chunks.of_file(path, root, plan))
        parts = plan_selection(
            chunks.shape, chunks.item_size, stored_selection, cost or DEFAULTS["local"], _PARTS
        )
        if not isinstance(parts, Parts):
            return self._put(chunk, chunks.of_file(path, root, plan))
        filled = parts.filled(target)
        if not np.may_share_memory(filled, target):
            return self._put(chunk, chunks.of_file(path, root, plan))
        try:
            return _read_parts(path, root, parts, chunks, filled) or self._put(chunk, None)
        except BoolValueError:  # which counts from the beginning of a part
            chunks.of_file(path, root, chunks.plan(stored_selection, store_path))
            raise

    async def read(self, chunk: ChunkOfRead) -> bool:
        """`read_file` through the `get` of any store."""
        getter, spec, selection, _, _ = chunk
        stored_spec = self._chunks_of(spec)[1]
        stored = self._transposition.selection(selection)
        return self._put(chunk, await read_selection(getter, stored, stored_spec, self._endian))

    def _put(self, chunk: ChunkOfRead, selected: NDBuffer | None) -> bool:
        """Put what was read where it belongs, or the fill value where the chunk is missing."""
        _, spec, selection, out_selection, _ = chunk
        if selected is None:
            fill = spec.fill_value
            self._out[out_selection] = spec.dtype.default_scalar() if fill is None else fill
            return False
        array = cast("Array", selected.as_ndarray_like())
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

    def _target(self, selection: SelectorTuple, out_selection: SelectorTuple) -> Array | None:
        """The part of `out` that a selection belongs to, with its axes as they are stored.

        None where that is no view of `out`.
        """
        entries = out_selection if isinstance(out_selection, tuple) else (out_selection,)
        if self._drop_axes or not all(isinstance(entry, slice) for entry in entries):
            return None
        return self._transposition.to_stored(self._out[out_selection], selection)

    def _into(self, plan: Plan, chunks: Chunks, target: Array) -> Into | None:
        """`target` as memory for the bytes of `plan`, if it holds these, one after another."""
        layout = self._layout
        number = np.dtype(np.uint8) if layout.is_stored_as_is else layout.number
        if (
            plan.starts.size != 1
            or not target.flags.c_contiguous
            or plan.nbytes != target.nbytes
            or number is None
            or layout.bool_offsets
            or layout.narrow_bytes
            or chunks.stored.newbyteorder("=") != target.dtype.newbyteorder("=")
            or not plan.is_view
        ):
            return None
        memory: Bytes = target.reshape(-1).view(np.uint8)
        selected = plan.select(memory, target.dtype)
        if not selected.flags.c_contiguous or not np.may_share_memory(selected, memory):
            return None
        return Into(memory.view(number), number.newbyteorder() if number.itemsize > 1 else number)


def _read_parts(path: str, root: str, parts: Parts, chunks: Chunks, filled: Array) -> bool:
    with open_file(path, root) as read:
        if read is None:
            return False
        for places, part in parts.plans:
            elements = chunks.elements(part, read(part))
            for target, source in places:
                filled[target] = elements[source]
    return True
