"""Writing selections of chunks straight from the array that the caller gave.

The counterpart of `zarr_bytes.chunk.scattering`. A whole chunk goes block by block into the file
that is renamed, and no copy of it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from zarr_bytes.chunk.shard_writing import ShardWriting
from zarr_bytes.chunk.writing import Writing

if TYPE_CHECKING:
    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteSetter
    from zarr.storage import StorePath

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.stored import Sharding
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["ChunkOfWrite", "Gather"]

# As `zarr_bytes.chunk.scattering.ChunkOfRead`; the last selection is where the elements are.
ChunkOfWrite: TypeAlias = "tuple[ByteSetter, ArraySpec, SelectorTuple, SelectorTuple, bool]"


class Gather:
    """The array that selections of chunks are written from.

    Parameters
    ----------
    value : zarr.abc.buffer.NDBuffer
        The elements, or one for all.
    drop_axes : tuple of int
        Axes of a selection that `value` does not have.
    endian : {"little", "big"} or None
        Byte order to store; None means that of the data type.
    order : tuple of int or None
        The axis of the chunk that each stored axis is; None where they are in order.
    sharding : Sharding or None
        How shards are divided, where the chunks are shards.
    in_place : bool
        Whether the selected bytes of a file are written alone.
    """

    def __init__(
        self,
        value: NDBuffer,
        drop_axes: tuple[int, ...],
        endian: Endian | None,
        order: tuple[int, ...] | None,
        sharding: Sharding | None,
        *,
        in_place: bool,
    ) -> None:
        self._value = value
        self._drop_axes = drop_axes
        self._endian = endian
        self._order = order
        self._sharding = sharding
        self._in_place = in_place

    def write_file(self, chunk: ChunkOfWrite) -> None:
        """Write a selection of a chunk that is local, in a thread that may wait.

        Parameters
        ----------
        chunk : ChunkOfWrite

        Raises
        ------
        ValueError, OSError
            As `zarr_bytes.chunk.codec_calls.write_selection`.
        """
        self._writing(chunk).to_file(cast("StorePath", chunk[0]), in_place=self._in_place)

    async def write(self, chunk: ChunkOfWrite) -> None:
        """`write_file` through the `set` of any store."""
        await self._writing(chunk).to_store(chunk[0])

    def _writing(self, chunk: ChunkOfWrite) -> Writing:
        _, spec, selection, out_selection, is_complete = chunk
        value = self._value
        if value.shape != ():
            value = value[out_selection]
            if self._drop_axes:
                axes = range(len(spec.shape))
                value = value[tuple(None if i in self._drop_axes else slice(None) for i in axes)]
        stored = (value, selection, spec, self._endian, self._order)
        if self._sharding is None:
            return Writing(*stored, is_complete=is_complete)
        return ShardWriting(self._sharding, *stored, is_complete=is_complete)
