"""Reading a selection of a chunk: the plan, the fetching, and the result in one buffer.

The result equals ``chunk[selection]``. In NumPy memory it may be a view of what was fetched, in the
stored byte order: the copy that zarr makes into its output swaps it.

In a memory store, and inside a shard (whose getter is no `StorePath`), reading the whole chunk is a
view and costs nothing: there nothing is planned.
"""

from __future__ import annotations

import asyncio
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np
from zarr.buffer import cpu
from zarr.storage import LocalStore, MemoryStore, StorePath

from zarr_bytes.chunk.byte_ranges import plan_reading, plan_whole_chunk
from zarr_bytes.chunk.elements import check_bools, check_size, decode_elements
from zarr_bytes.chunk.fetch import fetch, fetch_sync
from zarr_bytes.chunk.files import read_cached_file, read_file
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.selection import is_whole
from zarr_bytes.settings import reading_cost

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.byte_ranges import Plan
    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteGetter

__all__ = ["read_selection", "read_selection_sync"]


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
    BoolValueError
        If a byte that was read as a bool is neither 0 nor 1.
    """
    reading = _Reading(selection, chunk_spec, endian)
    if not isinstance(getter, StorePath) or type(getter.store) is MemoryStore:
        buffer = await getter.get(chunk_spec.prototype)
        return None if buffer is None else reading.of_buffer(buffer)
    store, plan = getter.store, reading.plan(getter.store)
    if type(store) is LocalStore:
        root = str(store.root)
        path = f"{root}/{getter.path}"
        try:
            return reading.of_bytes(read_cached_file(root, path, plan), plan)
        except BlockingIOError:
            return await asyncio.to_thread(reading.of_file, path, plan, root)
    return reading.of_bytes(await fetch(getter, plan, reading.prototype, reading.nbytes), plan)


def read_selection_sync(
    getter: SyncByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec, endian: Endian | None
) -> NDBuffer | None:
    """`read_selection` on a store that reads synchronously, in the calling thread."""
    reading = _Reading(selection, chunk_spec, endian)
    if not isinstance(getter, StorePath) or type(getter.store) is MemoryStore:
        buffer = getter.get_sync(prototype=chunk_spec.prototype)
        return None if buffer is None else reading.of_buffer(buffer)
    store, plan = getter.store, reading.plan(getter.store)
    if type(store) is LocalStore:
        return reading.of_file(f"{store.root}/{getter.path}", plan)
    return reading.of_bytes(fetch_sync(getter, plan, reading.prototype, reading.nbytes), plan)


class _Reading:
    """One selection of one chunk: what to fetch, and what to make of it."""

    def __init__(
        self, selection: SelectorTuple, chunk_spec: ArraySpec, endian: Endian | None
    ) -> None:
        self._shape = chunk_spec.shape
        self._selection = selection if isinstance(selection, tuple) else (selection,)
        self._is_complete = is_whole(self._shape, self._selection)
        if self._is_complete:
            self._selection = ()
        self._dtype = chunk_spec.dtype.to_native_dtype()
        self._endian = endian
        self._layout = layout_of(self._dtype, endian)
        self.nbytes = prod(self._shape) * self._layout.item_size
        self._nd_buffer = chunk_spec.prototype.nd_buffer
        # Buffers that are not NumPy's get the result, not the ranges it is made from.
        self._is_numpy = issubclass(chunk_spec.prototype.buffer, cpu.Buffer)
        self.prototype = chunk_spec.prototype if self._is_numpy else cpu.buffer_prototype

    def plan(self, store: object) -> Plan:
        """What to fetch from `store`."""
        item_size = self._layout.item_size
        plan = None
        if not self._is_complete and (cost := reading_cost(store)) and self.nbytes > cost.gap:
            plan = plan_reading(self._shape, item_size, self._selection, cost)
        return plan or plan_whole_chunk(self._shape, item_size, self._selection)

    def of_file(self, path: str, plan: Plan, root: str | None = None) -> NDBuffer | None:
        return self.of_bytes(read_file(path, plan, root), plan)

    def of_bytes(self, fetched: Bytes | None, plan: Plan) -> NDBuffer | None:
        """Result from what `plan` has fetched."""
        if fetched is None:
            return None
        dtype = self._layout.view or self._dtype
        if self._is_complete:
            return self._result(fetched.view(dtype).reshape(self._shape))
        return self._result(plan.select(fetched, dtype))

    def of_buffer(self, buffer: Buffer) -> NDBuffer:
        """Result from the whole chunk in memory."""
        encoded = cast("Bytes", buffer.as_array_like())
        if not isinstance(encoded, np.ndarray):
            chunk = decode_elements(encoded, self._dtype, self._shape, self._endian)
            return self._nd_buffer.from_ndarray_like(chunk)[self._selection]
        check_size(encoded.size, self._dtype, self._shape)
        chunk = encoded.view(self._layout.view or self._dtype).reshape(self._shape)
        return self._result(chunk[(*self._selection, ...)])

    def _result(self, array: Array) -> NDBuffer:
        if self._layout.bool_offsets:
            of = "chunk" if self._is_complete else "selection"
            check_bools(array.ravel().view(np.uint8), self._layout, array.shape, of)
        if self._layout.view is None or self._layout.narrow_bytes:
            encoded = array.ravel().view(np.uint8)
            array = decode_elements(encoded, self._dtype, array.shape, self._endian)
        if self._is_numpy:
            return self._nd_buffer.from_ndarray_like(array)
        return self._nd_buffer.from_numpy_array(array.astype(array.dtype.newbyteorder("=")))
