"""Reading selections of chunks, as zarr's pipelines ask codecs for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from zarr import codecs
from zarr.abc.codec import ArrayBytesCodecPartialDecodeMixin

from zarr_bytes.layout.elements import decode_selected
from zarr_bytes.layout.stored import Stored, is_for_numpy
from zarr_bytes.zarr_versions import endian_of

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.store import ByteGetter

    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteGetter

# zarr loads this module for every array. `read` is imported where it is needed: the import takes
# ten milliseconds.


class PartialReads(ArrayBytesCodecPartialDecodeMixin, codecs.BytesCodec):
    """Reading of selections of chunks, which zarr's pipelines leave to codecs with this base.

    An adapter of the pipeline's reader: each chunk is read into an array of its own.
    """

    async def _decode_partial_single(
        self, byte_getter: ByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        from zarr_bytes.read import as_read, is_in_memory, read_batch

        if is_in_memory(byte_getter):
            buffer = await byte_getter.get(chunk_spec.prototype)
            return self._selected(buffer, selection, chunk_spec)
        item, rest, out = as_read(byte_getter, selection, chunk_spec)
        (is_there,) = await read_batch([item], out, (), Stored(endian_of(self), None, None))
        return _buffer(out[rest], chunk_spec) if is_there else None

    def _decode_partial_sync(
        self, byte_getter: SyncByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        from zarr_bytes.read import as_read, is_in_memory, read_sync

        if is_in_memory(byte_getter):
            buffer = byte_getter.get_sync(prototype=chunk_spec.prototype)
            return self._selected(buffer, selection, chunk_spec)
        item, rest, out = as_read(byte_getter, selection, chunk_spec)
        is_there = read_sync(item, out, Stored(endian_of(self), None, None))
        return _buffer(out[rest], chunk_spec) if is_there else None

    def _selected(self, buffer: Buffer | None, selection: Any, spec: ArraySpec) -> NDBuffer | None:
        if buffer is None:
            return None
        encoded, dtype = cast("Bytes", buffer.as_array_like()), spec.dtype.to_native_dtype()
        array = decode_selected(encoded, dtype, spec.shape, endian_of(self), selection)
        return _buffer(array, spec)


def _buffer(array: Any, spec: ArraySpec) -> NDBuffer:
    array = np.asarray(array) if isinstance(array, np.generic) else array
    if is_for_numpy(spec) or not isinstance(array, np.ndarray):
        return spec.prototype.nd_buffer.from_ndarray_like(array)
    return spec.prototype.nd_buffer.from_numpy_array(array.astype(array.dtype.newbyteorder("=")))
