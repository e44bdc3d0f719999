"""Reading and writing selections of chunks, as zarr asks codecs for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.abc.codec import ArrayBytesCodecPartialDecodeMixin, ArrayBytesCodecPartialEncodeMixin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteGetter, ByteSetter

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.zarr_versions import (
        ArraySpec,
        SelectorTuple,
        SyncByteGetter,
        SyncByteSetter,
    )

__all__ = ["PartialReads", "PartialWrites"]

# zarr loads this module for every array. `codec_calls` is imported where it is needed: the import
# takes ten milliseconds.


class PartialReads(ArrayBytesCodecPartialDecodeMixin):
    """Reading of selections of chunks, which zarr's pipelines leave to codecs with this base."""

    _endian: Endian | None

    async def decode_partial(
        self, batch_info: Iterable[tuple[ByteGetter, SelectorTuple, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        """Selections of several chunks.

        Parameters
        ----------
        batch_info : iterable of (ByteGetter, tuple, ArraySpec)
            A chunk's key in a store, the selection, and the shape and data type of the chunk.

        Returns
        -------
        list of zarr.abc.buffer.NDBuffer or None
            One for each chunk, in the same order; None if the chunk is missing.

        Raises
        ------
        ValueError
            If a chunk does not fit its metadata; see `zarr_bytes.errors`.
        """
        batch = list(batch_info)
        if len(batch) == 1:  # zarr's default: nothing to be done at the same time
            return [await self._decode_partial_single(*batch[0])]
        from zarr_bytes.chunk import codec_calls

        if batch and codec_calls.are_local(getter for getter, _, _ in batch):
            return await codec_calls.read_local(batch, self._endian)
        return await super().decode_partial(batch)

    async def _decode_partial_single(
        self, byte_getter: ByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        from zarr_bytes.chunk import codec_calls

        return await codec_calls.read_selection(byte_getter, selection, chunk_spec, self._endian)

    def _decode_partial_sync(
        self, byte_getter: SyncByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        from zarr_bytes.chunk import codec_calls

        return codec_calls.read_selection_sync(byte_getter, selection, chunk_spec, self._endian)


class PartialWrites(ArrayBytesCodecPartialEncodeMixin):
    """Writing of selections of chunks, which zarr's pipelines leave to codecs with this base."""

    _endian: Endian | None

    async def _encode_partial_single(
        self,
        byte_setter: ByteSetter,
        chunk_array: NDBuffer,
        selection: SelectorTuple,
        chunk_spec: ArraySpec,
    ) -> None:
        from zarr_bytes.chunk import codec_calls

        await codec_calls.write_selection(
            byte_setter, chunk_array, selection, chunk_spec, self._endian
        )

    def _encode_partial_sync(
        self,
        byte_setter: SyncByteSetter,
        chunk_array: NDBuffer,
        selection: SelectorTuple,
        chunk_spec: ArraySpec,
    ) -> None:
        from zarr_bytes.chunk import codec_calls

        codec_calls.write_selection_sync(
            byte_setter, chunk_array, selection, chunk_spec, self._endian
        )
