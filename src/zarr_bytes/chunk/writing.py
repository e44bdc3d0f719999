"""Writing a selection of a chunk: in place where the chunk is a file, else as zarr does.

In place, the bytes of the selected elements are written at their offsets and no others: gaps
between them may belong to another process. Everything else is read, changed and written again: a
chunk of another store, inside a shard or on another device, and a file that others may hold by
another name.
"""

from __future__ import annotations

import asyncio
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from zarr.buffer import cpu
from zarr.storage import LocalStore, StorePath

from zarr_bytes.chunk.byte_ranges import plan_reading
from zarr_bytes.chunk.elements import decode_elements, encode_elements
from zarr_bytes.chunk.file_writing import NewChunk, write_file
from zarr_bytes.chunk.selection import is_whole, shape_of
from zarr_bytes.chunk.threads import to_its_end
from zarr_bytes.settings import Cost

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.store import ByteSetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteSetter

__all__ = ["Writing", "in_shape", "write_selection", "write_selection_sync"]

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
    writing = Writing(value, selection, chunk_spec, endian)
    path = writing.path_of(setter)
    if path is not None and await to_its_end(asyncio.to_thread(writing.in_place, path)):
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
    writing = Writing(value, selection, chunk_spec, endian)
    if (path := writing.path_of(setter)) is not None and writing.in_place(path):
        return
    existing = None if writing.is_whole else setter.get_sync(prototype=chunk_spec.prototype)
    encoded = writing.merged_into(existing)
    if encoded is None:
        setter.delete_sync()
    else:
        setter.set_sync(encoded)


class Writing:
    """One selection of one chunk, and the elements for it."""

    def __init__(
        self,
        value: NDBuffer,
        selection: SelectorTuple,
        chunk_spec: ArraySpec,
        endian: Endian | None,
    ) -> None:
        self._chunk_spec = chunk_spec
        self._dtype = chunk_spec.dtype.to_native_dtype()
        self._nbytes = prod(chunk_spec.shape) * self._dtype.itemsize
        self._endian = endian
        self._selection = selection if isinstance(selection, tuple) else (selection,)
        self._selected_shape = shape_of(chunk_spec.shape, self._selection)
        self._is_numpy = issubclass(chunk_spec.prototype.buffer, cpu.Buffer)
        self._value = in_shape(self._array_of(value), self._selected_shape)
        self.is_whole = is_whole(
            chunk_spec.shape,
            [
                slice(None) if size == 1 and isinstance(entry, int | np.integer) else entry
                for entry, size in zip(self._selection, chunk_spec.shape, strict=False)
            ],
        )

    def path_of(self, setter: object) -> str | None:
        """Path of the file that the chunk is, if it may be written in place."""
        if (
            self.is_whole
            or not isinstance(setter, StorePath)
            or type(setter.store) is not LocalStore
            or setter.store.read_only
            or not self._is_numpy
        ):
            return None
        return f"{setter.store.root}/{setter.path}"

    def in_place(self, path: str) -> bool:
        """Write to the file at `path`, if that can be done in place."""
        item_size = self._dtype.itemsize
        plan = plan_reading(self._chunk_spec.shape, item_size, self._selection, _EXACT)
        if plan is None or plan.is_whole_chunk:
            return False
        selected = self._value
        if selected.shape != self._selected_shape:
            selected = np.broadcast_to(selected, self._selected_shape)
        encoded = encode_elements(selected, self._endian).view(f"V{item_size}")
        data = plan.place(encoded.reshape(self._selected_shape))
        return write_file(path, plan, data, self._nbytes, self.new_chunk)

    def merged_into(self, existing: Buffer | None) -> Buffer | None:
        """The chunk to store instead of `existing`, or None if it is left out for being empty."""
        spec = self._chunk_spec
        array = self.chunk(existing)
        encoded = encode_elements(array, self._endian)
        if self._is_numpy:
            is_left_out = self.new_chunk().is_left_out(encoded)
        else:
            chunk = spec.prototype.nd_buffer.from_ndarray_like(array)
            is_left_out = not spec.config.write_empty_chunks and chunk.all_equal(spec.fill_value)
        return None if is_left_out else spec.prototype.buffer.from_array_like(encoded)

    def chunk(self, existing: Buffer | None) -> Array:
        """The elements of the chunk to store instead of `existing`."""
        spec = self._chunk_spec
        if self.is_whole and self._is_numpy:
            return np.broadcast_to(self._value, self._selected_shape).reshape(spec.shape)
        if self.is_whole and self._value.shape == spec.shape:
            return self._value
        chunk = self._chunk(existing)
        chunk[self._selection] = spec.prototype.nd_buffer.from_ndarray_like(self._value)
        return cast("Array", chunk.as_ndarray_like())

    def _array_of(self, value: NDBuffer) -> Array:
        """The elements in the data type of the chunk, in either byte order."""
        array = cast("Array", value.as_ndarray_like())
        if self._is_numpy:
            array = np.asarray(array)  # what the caller gave may be anything that has a shape
        if array.dtype.newbyteorder("=") != self._dtype.newbyteorder("="):
            array = array.astype(self._dtype)  # records: zarr compares the names of types
        return array

    def new_chunk(self) -> NewChunk:
        """What the chunk is before anything has been written to it."""
        spec = self._chunk_spec
        fill = np.full(1, spec.fill_value, self._dtype)
        return NewChunk(
            self._nbytes,
            encode_elements(fill, self._endian).tobytes(),
            leave_out_empty=not spec.config.write_empty_chunks,
        )

    def _chunk(self, existing: Buffer | None) -> NDBuffer:
        spec = self._chunk_spec
        if existing is None:
            return spec.prototype.nd_buffer.create(
                shape=spec.shape, dtype=self._dtype, order=spec.order, fill_value=spec.fill_value
            )
        encoded = cast("Bytes", existing.as_array_like())
        array = decode_elements(encoded, self._dtype, spec.shape, self._endian)
        return spec.prototype.nd_buffer.from_ndarray_like(array.copy())


def in_shape(value: Array, shape: tuple[int, ...]) -> Array:
    """`value` with the axes of length 1 of `shape` that zarr has dropped: those of integers.

    Raises
    ------
    ValueError
        If NumPy cannot broadcast it to `shape`.
    """
    if value.shape in (shape, ()):
        return value
    found = list(value.shape)
    while len(found) > len(shape) and found[0] == 1:  # as NumPy assigns
        del found[0]
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    for axes in combinations(ones, max(len(shape) - len(found), 0)):
        candidate = found.copy()
        for axis in axes:
            candidate.insert(axis, 1)
        if len(candidate) == len(shape) and all(
            size in (1, selected) for size, selected in zip(candidate, shape, strict=True)
        ):
            return value.reshape(candidate)
    raise ValueError(
        f"elements of shape {value.shape} do not fit the selection of the chunk, which has the"
        f" shape {shape}"
    )
