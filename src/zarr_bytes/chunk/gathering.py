"""Writing selections of chunks straight from the array that the caller gave.

The counterpart of `zarr_bytes.chunk.scattering`. A whole chunk goes block by block into the file
that is renamed, and no copy of it is made.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk.byte_ranges import plan_whole_chunk
from zarr_bytes.chunk.elements import encode_in_blocks
from zarr_bytes.chunk.file_writing import replace_file
from zarr_bytes.chunk.files import read_file
from zarr_bytes.chunk.selection import shape_of
from zarr_bytes.chunk.writing import Writing, in_shape

if TYPE_CHECKING:
    from zarr.abc.buffer import NDBuffer
    from zarr.abc.store import ByteSetter
    from zarr.storage import StorePath

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.transposition import Transposition
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
    transposition : Transposition
        The order in which the axes are stored.
    in_place : bool
        Whether the selected bytes of a file are written alone.
    """

    def __init__(
        self,
        value: NDBuffer,
        drop_axes: tuple[int, ...],
        endian: Endian | None,
        transposition: Transposition,
        *,
        in_place: bool,
    ) -> None:
        self._value = value
        self._drop_axes = drop_axes
        self._endian = endian
        self._transposition = transposition
        self._in_place = in_place

    def write_file(self, chunk: ChunkOfWrite) -> None:
        """Write a selection of a chunk of a `LocalStore`, in a thread that may wait.

        Parameters
        ----------
        chunk : ChunkOfWrite

        Raises
        ------
        ValueError, OSError
            As `zarr_bytes.chunk.writing.write_selection`.
        """
        setter, spec, _, _, is_complete = chunk
        writing = self._writing(chunk)
        root = str(cast("StorePath", setter).store.root)  # type: ignore[attr-defined]
        path = f"{root}/{cast('StorePath', setter).path}"
        if self._in_place and not writing.is_whole and writing.in_place(path):
            return
        existing = None
        if not writing.is_whole and not is_complete:
            shape, item_size = spec.shape, spec.dtype.to_native_dtype().itemsize
            content = read_file(path, plan_whole_chunk(shape, item_size, ()), root)
            existing = None if content is None else spec.prototype.buffer.from_array_like(content)
        array, new = writing.chunk(existing), writing.new_chunk()
        blocks = encode_in_blocks(array, self._endian)
        first = next(blocks)
        if not new.is_left_out(first):  # the usual case, in which nothing is encoded twice
            replace_file(path, chain([first], blocks))
        elif all(map(new.is_left_out, blocks)):
            with suppress(FileNotFoundError):
                Path(path).unlink()
        else:
            replace_file(path, encode_in_blocks(array, self._endian))

    async def write(self, chunk: ChunkOfWrite) -> None:
        """`write_file` through the `set` of any store."""
        setter, spec, _, _, is_complete = chunk
        writing = self._writing(chunk)
        is_needed = not writing.is_whole and not is_complete
        encoded = writing.merged_into(await setter.get(spec.prototype) if is_needed else None)
        await (setter.delete() if encoded is None else setter.set(encoded))

    def _writing(self, chunk: ChunkOfWrite) -> Writing:
        _, spec, selection, out_selection, _ = chunk
        value = self._value
        if value.shape != ():
            value = value[out_selection]
            if self._drop_axes:
                axes = range(len(spec.shape))
                value = value[tuple(None if i in self._drop_axes else slice(None) for i in axes)]
            if self._transposition.order is not None:
                shape = shape_of(spec.shape, cast("tuple[object, ...]", selection))
                array = in_shape(np.asarray(value.as_ndarray_like()), shape)
                array = self._transposition.to_stored(np.broadcast_to(array, shape), selection)
                value = spec.prototype.nd_buffer.from_ndarray_like(array)
        stored = self._transposition.selection(selection)
        return Writing(value, stored, self._transposition.spec(spec), self._endian)
