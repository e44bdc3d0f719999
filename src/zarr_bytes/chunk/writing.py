"""Writing a selection of a chunk: in place where the chunk is a file, else as zarr does.

In place, the bytes of the selected elements are written at their offsets and no others: gaps
between them may belong to another process. Everything else is read, changed and written again: a
chunk of another store, inside a shard or on another device, and a file that others may hold by
another name.
"""

from __future__ import annotations

import asyncio
from math import prod
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from zarr.buffer import cpu
from zarr.storage import LocalStore, StorePath

from zarr_bytes.chunk.byte_ranges import plan_reading
from zarr_bytes.chunk.elements import decode_elements, encode_elements
from zarr_bytes.chunk.file_writing import NewChunk, write_file
from zarr_bytes.chunk.selection import is_whole, shape_of
from zarr_bytes.settings import Cost

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.store import ByteSetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteSetter

__all__ = ["write_selection", "write_selection_sync"]

_EXACT: Final = Cost(gap=0, largest_request=2**63 - 1)  # no byte between two runs is touched


async def write_selection(
    setter: ByteSetter,
    value: NDBuffer,
    selection: SelectorTuple,
    chunk_spec: ArraySpec,
    endian: Endian | None,
) -> None:
    """Write the selected elements of the chunk behind `setter`.

    Cancelling waits for a write in place that has begun.

    Parameters
    ----------
    setter : zarr.abc.store.ByteSetter
        The chunk's key in a store, or an inner chunk of a shard.
    value : zarr.abc.buffer.NDBuffer
        The elements, in the shape of ``chunk[selection]`` or without its axes of length 1, or one
        element for all.
    selection : tuple
        One entry a dimension, as zarr's pipelines give it.
    chunk_spec : zarr.core.array_spec.ArraySpec
        Shape, data type and fill value of the chunk.
    endian : {"little", "big"} or None
        Byte order to store; None means that of the data type.

    Raises
    ------
    ChunkSizeError
        If the chunk that is there has another number of bytes than the metadata ask for. Nothing
        has been written then.
    OSError
        If a file could not be written; the message says how many bytes were.
    """
    writing = _Writing(value, selection, chunk_spec, endian)
    if (path := writing.path_of(setter)) is not None:
        in_place = asyncio.ensure_future(asyncio.to_thread(writing.in_place, path))
        try:
            is_written = await asyncio.shield(in_place)
        except asyncio.CancelledError:
            await asyncio.wait([in_place])
            raise
        if is_written:
            return
    existing = None if writing.is_whole else await setter.get(chunk_spec.prototype)
    encoded = writing.merged_into(existing)
    await (setter.delete() if encoded is None else setter.set(encoded))


def write_selection_sync(
    setter: SyncByteSetter,
    value: NDBuffer,
    selection: SelectorTuple,
    chunk_spec: ArraySpec,
    endian: Endian | None,
) -> None:
    """`write_selection` to a store that writes synchronously, in the calling thread."""
    writing = _Writing(value, selection, chunk_spec, endian)
    if (path := writing.path_of(setter)) is not None and writing.in_place(path):
        return
    existing = None if writing.is_whole else setter.get_sync(prototype=chunk_spec.prototype)
    encoded = writing.merged_into(existing)
    if encoded is None:
        setter.delete_sync()
    else:
        setter.set_sync(encoded)


class _Writing:
    """One selection of one chunk, and the elements for it."""

    def __init__(
        self,
        value: NDBuffer,
        selection: SelectorTuple,
        chunk_spec: ArraySpec,
        endian: Endian | None,
    ) -> None:
        self._value = value
        self._selection = selection if isinstance(selection, tuple) else (selection,)
        self._chunk_spec = chunk_spec
        self._dtype = chunk_spec.dtype.to_native_dtype()
        self._endian = endian
        self.is_whole = is_whole(chunk_spec.shape, self._selection)

    def path_of(self, setter: object) -> str | None:
        """Path of the file that the chunk is, if it may be written in place."""
        if (
            self.is_whole
            or not isinstance(setter, StorePath)
            or type(setter.store) is not LocalStore
            or setter.store.read_only
            or not issubclass(self._chunk_spec.prototype.buffer, cpu.Buffer)
        ):
            return None
        return f"{setter.store.root}/{setter.path}"

    def in_place(self, path: str) -> bool:
        """Write to the file at `path`, if that can be done in place."""
        shape, item_size = self._chunk_spec.shape, self._dtype.itemsize
        plan = plan_reading(shape, item_size, self._selection, _EXACT)
        if plan is None or plan.is_whole_chunk:
            return False
        selected_shape, value = self._selected()
        array = cast("Array", value.as_ndarray_like())
        if array.dtype != self._dtype:
            array = array.astype(self._dtype)
        array = np.broadcast_to(array, selected_shape)
        encoded = encode_elements(array, self._endian).view(f"V{item_size}")
        data = plan.place(encoded.reshape(selected_shape))
        fill = np.full(1, self._chunk_spec.fill_value, self._dtype)
        new = NewChunk(
            prod(shape) * item_size,
            encode_elements(fill, self._endian).tobytes(),
            leave_out_empty=not self._chunk_spec.config.write_empty_chunks,
        )
        return write_file(path, plan, data, new)

    def merged_into(self, existing: Buffer | None) -> Buffer | None:
        """The chunk to store instead of `existing`, or None if it is left out for being empty."""
        chunk_spec, value = self._chunk_spec, self._value
        if self.is_whole and value.shape == chunk_spec.shape:
            chunk = value
        else:
            chunk = self._chunk(existing)
            chunk[self._selection] = self._selected()[1]
        if not chunk_spec.config.write_empty_chunks and chunk.all_equal(chunk_spec.fill_value):
            return None
        encoded = encode_elements(cast("Array", chunk.as_ndarray_like()), self._endian)
        return chunk_spec.prototype.buffer.from_array_like(encoded)

    def _selected(self) -> tuple[tuple[int, ...], NDBuffer]:
        """Shape of ``chunk[selection]``, and the elements, with its axes of length 1."""
        shape = shape_of(self._chunk_spec.shape, self._selection)
        value = self._value
        if [n for n in value.shape if n != 1] == [n for n in shape if n != 1]:
            value = value.reshape(shape)
        return shape, value

    def _chunk(self, existing: Buffer | None) -> NDBuffer:
        spec = self._chunk_spec
        if existing is None:
            return spec.prototype.nd_buffer.create(
                shape=spec.shape, dtype=self._dtype, order=spec.order, fill_value=spec.fill_value
            )
        encoded = cast("Bytes", existing.as_array_like())
        array = decode_elements(encoded, self._dtype, spec.shape, self._endian)
        return spec.prototype.nd_buffer.from_ndarray_like(array.copy())
