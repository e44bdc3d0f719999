"""Reading a selection of a chunk: the plan, the fetching, and the result in one buffer.

The result equals ``chunk[selection]``. In NumPy memory it may be a view of what was fetched, in the
stored byte order: the copy that zarr makes into its output swaps it.

What is the same for all chunks of an array is found once (`Chunks`), so that a chunk of 256 bytes
costs an open, a read and a close, and little else.

In a memory store, and inside a shard (whose getter is no `StorePath`), reading the whole chunk is a
view and costs nothing: there nothing is planned.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import zarr
from zarr.buffer import cpu
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from zarr_bytes.chunk.byte_ranges import plan_whole_chunk
from zarr_bytes.chunk.cached_files import read_cached_file
from zarr_bytes.chunk.elements import check_bools, check_size, decode_elements, largest
from zarr_bytes.chunk.fetch import fetch, fetch_sync, sends_whole_objects
from zarr_bytes.chunk.file_systems import is_known_to_be_local
from zarr_bytes.chunk.files import open_file, read_file
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.parts import plan_selection
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.chunk.selection import is_whole
from zarr_bytes.chunk.threads import in_threads
from zarr_bytes.errors import partly_missing
from zarr_bytes.settings import reading_cost
from zarr_bytes.zarr_versions import is_deflated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from zarr.abc.buffer import Buffer, BufferPrototype, NDBuffer
    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.parts import Parts
    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteGetter

__all__ = [
    "Chunks",
    "are_local",
    "chunks_like",
    "read_local",
    "read_selection",
    "read_selection_sync",
]

_FEW_RUNS: Final = 2**10  # in a plan that is kept for the next chunk
_ONE_HOP: Final = 2**23  # bytes that one thread reads before others would be worth their hops


async def read_selection(
    getter: ByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec, endian: Endian | None
) -> NDBuffer | None:
    """Selected elements of the chunk behind `getter`, or None if the chunk is missing.

    Parameters
    ----------
    getter : zarr.abc.store.ByteGetter
        The chunk's key in a store, or an inner chunk of a shard.
    selection : tuple
        One entry a dimension, as zarr's pipelines give it.
    chunk_spec : zarr.core.array_spec.ArraySpec
        Shape and data type of the chunk.
    endian : {"little", "big"} or None
        Byte order that is stored; None means that of the data type.

    Returns
    -------
    zarr.abc.buffer.NDBuffer or None
        ``chunk[selection]``, in NumPy memory possibly in the stored byte order.

    Raises
    ------
    ChunkSizeError
        If the chunk, or a range of it, has another number of bytes than the metadata ask for.
    ChunkFileError
        If something else than a file lies in its place.
    BoolValueError
        If a byte that was read as a bool is neither 0 nor 1.
    """
    chunks = _chunks_of(chunk_spec, endian)
    if not isinstance(selection, tuple):
        selection = (selection,)
    if not isinstance(getter, StorePath) or type(getter.store) is MemoryStore:
        buffer = await getter.get(chunk_spec.prototype)
        return None if buffer is None else chunks.select(buffer, selection)
    store, plan = getter.store, chunks.plan(selection, getter)
    if type(store) is LocalStore:
        root = str(store.root)
        path = f"{root}/{getter.path}"
        try:
            if isinstance(plan, Plan):
                return chunks.result(plan, read_cached_file(path, plan, root), is_ours=True)
        except BlockingIOError:
            pass
        return await asyncio.to_thread(chunks.of_file, path, root, plan)
    if isinstance(plan, Plan):
        return chunks.result(plan, await fetch(getter, plan, chunks.prototype, chunks.nbytes))
    selected = _Selected(plan, chunks, str(getter))
    for places, part in plan.plans:
        if sends_whole_objects(getter):  # as the part before has found out
            return await read_selection(getter, selection, chunk_spec, endian)
        if not selected.add(
            places, part, await fetch(getter, part, chunks.prototype, chunks.nbytes)
        ):
            break
    return selected.result()


def read_selection_sync(
    getter: SyncByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec, endian: Endian | None
) -> NDBuffer | None:
    """`read_selection` on a store that reads synchronously, in the calling thread."""
    chunks = _chunks_of(chunk_spec, endian)
    if not isinstance(selection, tuple):
        selection = (selection,)
    if not isinstance(getter, StorePath) or type(getter.store) is MemoryStore:
        buffer = getter.get_sync(prototype=chunk_spec.prototype)
        return None if buffer is None else chunks.select(buffer, selection)
    store, plan = getter.store, chunks.plan(selection, getter)
    if type(store) is LocalStore:
        root = str(store.root)
        return chunks.of_file(f"{root}/{getter.path}", root, plan)
    if isinstance(plan, Plan):
        return chunks.result(plan, fetch_sync(getter, plan, chunks.prototype, chunks.nbytes))
    selected = _Selected(plan, chunks, str(getter))
    for places, part in plan.plans:
        if sends_whole_objects(getter):
            return read_selection_sync(getter, selection, chunk_spec, endian)
        if not selected.add(
            places, part, fetch_sync(getter, part, chunks.prototype, chunks.nbytes)
        ):
            break
    return selected.result()


async def read_local(
    batch: Sequence[tuple[ByteGetter, SelectorTuple, ArraySpec]], endian: Endian | None
) -> list[NDBuffer | None]:
    """`read_selection` of several chunks that `are_local`, in as few threads as are of use.

    A hop to a thread and back takes longer than reading a small chunk. Many bytes, and files that
    may have to be waited for, are read by as many threads as zarr allows.
    """

    def read(chunk: tuple[ByteGetter, SelectorTuple, ArraySpec]) -> NDBuffer | None:
        getter, selection, chunk_spec = chunk
        return read_selection_sync(cast("SyncByteGetter", getter), selection, chunk_spec, endian)

    nbytes = sum(_chunks_of(chunk_spec, endian).nbytes for _, _, chunk_spec in batch)
    store = cast("StorePath", batch[0][0]).store
    is_quick = nbytes <= _ONE_HOP and is_known_to_be_local(str(cast("LocalStore", store).root))
    limit = 1 if is_quick else zarr.config.get("async.concurrency") or len(batch)
    return await in_threads(partial(map, read), batch, min(limit, len(batch)))


def are_local(getters: Iterable[ByteGetter]) -> bool:
    """Whether all chunks are files that are read here, and not by their store."""
    return all(isinstance(g, StorePath) and type(g.store) is LocalStore for g in getters)


class Chunks:
    """Chunks of one shape and data type: what is the same for all of them, found once."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        endian: Endian | None,
        prototype: BufferPrototype,
    ) -> None:
        self.shape = shape
        self._dtype = dtype
        self._endian = endian
        self._layout = layout_of(dtype, endian)
        self.item_size = self._layout.item_size
        self.stored = self._layout.view or dtype
        self.nbytes = prod(shape) * self._layout.item_size
        self.whole = plan_whole_chunk(shape, self._layout.item_size, ())
        # A column goes through many chunks in the same way. One tuple: no thread sees half of it.
        self._last_plan: tuple[tuple[Any, ...], Cost | None, Plan | None] = ((), None, None)
        self._new = prototype.nd_buffer.from_ndarray_like
        # Buffers that are not NumPy's get the result, not the ranges it is made from.
        self._is_numpy = issubclass(prototype.buffer, cpu.Buffer)
        self.prototype = prototype if self._is_numpy else cpu.buffer_prototype
        self._nd_buffer = prototype.nd_buffer
        self.is_plain = not (
            self._layout.view is None or self._layout.bool_offsets or self._layout.narrow_bytes
        )

    def plan(self, selection: tuple[Any, ...], getter: StorePath) -> Plan | Parts:
        """What to fetch from the store behind `getter`."""
        if is_whole(self.shape, selection):
            return self.whole
        store = getter.store
        cost = reading_cost(store)
        if (
            cost is None
            or self.nbytes <= cost.gap
            or (isinstance(store, ZipStore) and is_deflated(store, getter.path))
            or sends_whole_objects(getter)
        ):
            return plan_whole_chunk(self.shape, self.item_size, selection)
        last_selection, last_cost, plan = self._last_plan
        is_basic = all(type(entry) in (int, slice) for entry in selection)
        if is_basic and last_cost == cost and last_selection == selection and plan is not None:
            return plan
        new_plan = plan_selection(self.shape, self.item_size, selection, cost)
        if isinstance(new_plan, Plan) and is_basic and new_plan.runs <= _FEW_RUNS:
            self._last_plan = selection, cost, new_plan
        return new_plan or plan_whole_chunk(self.shape, self.item_size, selection)

    def of_file(self, path: str, root: str, plan: Plan | Parts) -> NDBuffer | None:
        """Result from the file at `path`, in a thread that may wait."""
        if isinstance(plan, Plan):
            return self.result(plan, read_file(path, plan, root), is_ours=True)
        selected = _Selected(plan, self, path)
        with open_file(path, root) as file:
            for places, part in plan.plans:
                if not selected.add(places, part, file.read(part) if file else None):
                    break
        return selected.result()

    def result(
        self, plan: Plan, fetched: Bytes | None, *, is_ours: bool = False
    ) -> NDBuffer | None:
        """Result from what `plan` has fetched, possibly in its place where nobody else has it."""
        if fetched is None:
            return None
        return self._buffer(self.elements(plan, fetched, is_ours=is_ours))

    def elements(self, plan: Plan, fetched: Bytes, *, is_ours: bool = False) -> Array:
        """`result` as an array in NumPy memory, possibly in the stored byte order."""
        if plan is not self.whole:
            selected = plan.select(fetched, self.stored)
            return self._checked(selected, "selection", is_ours=is_ours)
        array: Array = np.ndarray(self.shape, self.stored, fetched)
        return array if self.is_plain else self._checked(array, "chunk", is_ours=is_ours)

    def selected(self, array: Array, *, is_ours: bool = False) -> NDBuffer:
        """Result from an array of the selected elements, as they are stored."""
        return self._buffer(self._checked(array, "selection", is_ours=is_ours))

    def select(self, buffer: Buffer, selection: tuple[Any, ...]) -> NDBuffer:
        """Result from the whole chunk in memory."""
        encoded = cast("Bytes", buffer.as_array_like())
        if not isinstance(encoded, np.ndarray):
            decoded = decode_elements(encoded, self._dtype, self.shape, self._endian)
            return self._new(decoded)[selection]
        check_size(encoded.size, self._dtype, self.shape)
        chunk: Array = np.ndarray(self.shape, self.stored, encoded)
        if is_whole(self.shape, selection):
            return self._buffer(self._checked(chunk, "chunk"))
        return self.selected(np.asarray(chunk[(*selection, ...)]))  # never a scalar

    def _checked(self, array: Array, of: str, *, is_ours: bool = False) -> Array:
        # Looked at where they are: `ravel` may copy.
        if any(largest(array.getfield(np.uint8, i)) > 1 for i in self._layout.bool_offsets):
            check_bools(array.ravel().view(np.uint8), self._layout, array.shape, of)
        if self._layout.view is None or self._layout.narrow_bytes:
            encoded = array.ravel().view(np.uint8)
            array = decode_elements(
                encoded, self._dtype, array.shape, self._endian, in_place=is_ours
            )
        return array

    def _buffer(self, array: Array) -> NDBuffer:
        if self._is_numpy:
            return self._new(array)
        return self._nd_buffer.from_numpy_array(array.astype(array.dtype.newbyteorder("=")))


class _Selected:
    """The selected elements of a chunk that is read in parts."""

    def __init__(self, parts: Parts, chunks: Chunks, key: str) -> None:
        self._parts = parts
        self._filled: Array = np.empty(parts.shape, chunks.stored)
        self._chunks = chunks
        self._key = key
        self._is_missing: bool | None = None

    def add(self, places: Iterable[tuple[Any, Any]], plan: Plan, fetched: Bytes | None) -> bool:
        """Take what `plan` has fetched; False if the chunk is missing."""
        if self._is_missing is False and fetched is None:
            raise partly_missing(self._key)
        self._is_missing = fetched is None
        if fetched is not None:
            elements = plan.select(fetched, self._filled.dtype)
            for target, source in places:
                self._filled[target] = elements[source]
        return not self._is_missing

    def result(self) -> NDBuffer | None:
        if self._is_missing:
            return None
        return self._chunks.selected(self._parts.selected(self._filled), is_ours=True)


chunks_like: Callable[[tuple[int, ...], DType, Endian | None, BufferPrototype], Chunks] = lru_cache(
    maxsize=128
)(Chunks)
# The spec of the chunk that was read last: zarr makes one for all chunks of a read, and it never
# changes. What is found again by its parts takes two microseconds.
_last: tuple[ArraySpec | None, Endian | None, Chunks | None] = (None, None, None)


def _chunks_of(chunk_spec: ArraySpec, endian: Endian | None) -> Chunks:
    global _last  # one tuple, assigned at once: no thread sees half of it
    last_spec, last_endian, chunks = _last
    if last_spec is not chunk_spec or last_endian != endian or chunks is None:
        dtype = chunk_spec.dtype.to_native_dtype()
        chunks = chunks_like(chunk_spec.shape, dtype, endian, chunk_spec.prototype)
        _last = chunk_spec, endian, chunks
    return chunks
