"""Writing a selection of a chunk: in place where the chunk is a file, otherwise as zarr does.

In place, only the bytes of the selected elements are written, since gaps between them may belong
to another process. All other chunks are read, changed and replaced: in other stores, inside shards
and on devices, and files with another name. A chunk of which nothing is kept is replaced without a
read.
"""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard, cast

import numpy as np
from zarr.buffer import cpu
from zarr.storage import LocalStore, StorePath

from zarr_bytes.chunk import counters
from zarr_bytes.chunk.chunks import chunks_of, fill_value_of
from zarr_bytes.chunk.element_blocks import encode_in_blocks
from zarr_bytes.chunk.elements import decode_elements, encode_elements
from zarr_bytes.chunk.file_writing import NewChunk, write_file
from zarr_bytes.chunk.files import open_chunk
from zarr_bytes.chunk.mapping import apart_from_files
from zarr_bytes.chunk.new_files import CAN_REPLACE, delete_file, replace_file
from zarr_bytes.chunk.plan import EVERYTHING, plan_of
from zarr_bytes.chunk.requests import note_request
from zarr_bytes.chunk.selection import entries_of, in_shape
from zarr_bytes.settings import Cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.store import ByteSetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Grid
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.tiles import Tile
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteSetter

__all__ = ["APART", "Writing", "is_local_chunk", "new_chunk"]

APART: Final = Cost(0, EVERYTHING)
"""The cost of a request where no byte between two ranges may be touched."""


def is_local_chunk(setter: ByteSetter | SyncByteSetter) -> TypeGuard[StorePath]:
    """Whether the chunk is a file that this package writes itself, without its store."""
    return (
        CAN_REPLACE
        and isinstance(setter, StorePath)
        and type(setter.store) is LocalStore
        and not setter.store.read_only  # the store raises the error
    )


def new_chunk(chunk_spec: ArraySpec, endian: Endian | None) -> NewChunk:
    """A chunk before anything has been written to it.

    Parameters
    ----------
    chunk_spec, endian
        As of `zarr_bytes.chunk.codec_calls.write_selection`.
    """
    dtype = chunk_spec.dtype.to_native_dtype()
    fill = np.full(1, fill_value_of(chunk_spec), dtype)
    return NewChunk(
        prod(chunk_spec.shape) * dtype.itemsize,
        encode_elements(fill, endian).tobytes(),
        leave_out_empty=not chunk_spec.config.write_empty_chunks,
    )


class _SelectedOfChunk(NamedTuple):
    """The selected bytes of a chunk."""

    tile: Tile
    data: Bytes
    nbytes: int  # of the chunk
    new_chunk: Callable[[], NewChunk]

    def in_new(self) -> tuple[NewChunk, Tile, Bytes]:
        return self.new_chunk(), self.tile, self.data

    def in_file(self, file: ChunkFile) -> tuple[Tile, Bytes]:
        file.check(self.nbytes)
        return self.tile, self.data


class Writing:
    """One selection of one chunk, and the elements for it.

    Parameters
    ----------
    value, selection, chunk_spec, endian
        As of `zarr_bytes.chunk.codec_calls.write_selection`.
    order : tuple of int or None
        The axis of the chunk that each stored axis is; None where they are in order.
    is_complete : bool
        Whether the selection has all of the chunk within the array, so that the rest becomes the
        fill value.
    plan : Plan, optional
        The plan of the selection, with a gap of 0. Made here by default.
    """

    def __init__(
        self,
        value: NDBuffer,
        selection: SelectorTuple,
        chunk_spec: ArraySpec,
        endian: Endian | None,
        order: tuple[int, ...] | None = None,
        *,
        is_complete: bool = False,
        plan: Plan | None = None,
    ) -> None:
        shape = chunk_spec.shape
        self._chunk_spec = chunk_spec
        self._dtype = chunk_spec.dtype.to_native_dtype()
        self._nbytes = prod(shape) * self._dtype.itemsize
        self._endian = endian
        self._order = tuple(range(len(shape))) if order is None else order
        self._selection = entries_of(selection)
        if plan is None:
            plan = plan_of(chunks_of(chunk_spec, endian, order), self._selection, APART)
        self._plan, self._grid = plan, plan.grid
        if self._grid is None:  # only NumPy takes it
            selected: Array = np.broadcast_to(np.True_, shape)[self._selection]
            self._selected_shape = selected.shape
        else:
            self._selected_shape = self._grid.result_shape
        self.is_numpy = issubclass(chunk_spec.prototype.buffer, cpu.Buffer)
        self._value = in_shape(self._array_of(value), self._selected_shape)
        self._is_whole = self._grid is not None and self._grid.has_all_of(shape)
        self.keeps_nothing = self._is_whole or is_complete

    def to_file(self, setter: StorePath, *, in_place: bool = True) -> None:
        """Write to a local chunk, `in_place` if possible; in a thread that may wait.

        Raises
        ------
        ValueError, OSError
            As `zarr_bytes.chunk.codec_calls.write_selection`.
        """
        root = str(cast("LocalStore", setter.store).root)
        path = f"{root}/{setter.path}"
        if in_place:
            self._value = apart_from_files(self._value, [path])
        written = self._written(path, root, in_place=in_place)
        if counters.counters:
            counters.note(root, chunks=1, opens=int(written > 0), written=written)

    def _written(self, path: str, root: str, *, in_place: bool) -> int:
        """`to_file`; the number of written bytes."""
        if in_place and not self.keeps_nothing:
            written = self._in_place(path, root)
            if written is not None:
                return written
        existing = None
        if not self.keeps_nothing:
            file = open_chunk(path, root, waits=True)
            if file is not None:
                with file:
                    content = file.whole(self._nbytes)
                existing = self._chunk_spec.prototype.buffer.from_array_like(content)
        array, new = self._merged(existing), self._new_chunk()
        blocks = encode_in_blocks(array, self._endian)
        first = next(blocks)
        if not new.is_left_out(first):  # the usual case, in which nothing is encoded twice
            return replace_file(path, chain([first], blocks))
        if not all(map(new.is_left_out, blocks)):
            return replace_file(path, encode_in_blocks(array, self._endian))
        delete_file(path)
        return 0

    async def to_store(self, setter: ByteSetter) -> None:
        """Replace the chunk behind any `setter`."""
        existing = None if self.keeps_nothing else await setter.get(self._chunk_spec.prototype)
        encoded = self.merged_into(existing, setter)
        await (setter.delete() if encoded is None else setter.set(encoded))
        self.note_replaced(setter, existing, encoded)

    def note_replaced(
        self, setter: ByteSetter | SyncByteSetter, existing: Buffer | None, encoded: Buffer | None
    ) -> None:
        """Count a chunk that has been replaced in a store."""
        if counters.counters and isinstance(setter, StorePath):
            if not self.keeps_nothing:
                note_request(setter, None, existing)
            written = 0 if encoded is None else len(encoded)
            counters.note(setter.store, chunks=1, requests=1, written=written)

    def _in_place(self, path: str, root: str) -> int | None:
        """Number of bytes written to the file at `path` in place; None if that is impossible."""
        if self._grid is None or self._plan.is_whole:
            return None
        if not self._plan.nbytes:
            return 0
        tile = self._plan.tiles.undivided()
        data = self._bytes_of(tile, self._grid, self._canvas(self._grid))
        selected = _SelectedOfChunk(tile, data, self._nbytes, self._new_chunk)
        return write_file(path, root, selected)

    def _bytes_of(self, tile: Tile, grid: Grid, canvas: Array) -> Bytes:
        """The bytes of the ranges of `tile` one after another."""
        if tile.among is None and grid.has_plain_targets:
            return encode_elements(canvas.transpose(grid.nesting), self._endian)
        placed = np.empty(tile.nbytes, np.uint8)
        self._put(placed, tile, grid, canvas)
        return placed

    def _put(self, target: Bytes, tile: Tile, grid: Grid, canvas: Array) -> None:
        """Put elements into their places among the bytes of `tile`."""
        stored = canvas.transpose(grid.nesting)
        encoded = encode_elements(stored, self._endian)
        elements = encoded.view(f"V{self._dtype.itemsize}").reshape(stored.shape)
        # Of an element that is selected twice, the last value counts, as in NumPy.
        places: Array = np.ndarray(tile.shape, elements.dtype, target, strides=tile.strides)
        places[tile.among or ...] = elements.transpose(np.argsort(grid.nesting))[tile.place]

    def _canvas(self, grid: Grid) -> Array:
        selected = self._value
        if selected.shape != self._selected_shape:
            selected = np.broadcast_to(selected, self._selected_shape)
        return grid.canvas_of(selected)

    def merged_into(
        self,
        existing: Buffer | None,
        setter: ByteSetter | SyncByteSetter,  # noqa: ARG002
    ) -> Buffer | None:
        """The chunk to store in place of `existing`; None if it is empty and not stored.

        The messages of errors name the chunk by its `setter`.
        """
        spec = self._chunk_spec
        array = self._merged(existing)
        encoded = encode_elements(array, self._endian)
        if self.is_numpy:
            is_left_out = self._new_chunk().is_left_out(encoded)
        else:
            chunk = spec.prototype.nd_buffer.from_ndarray_like(array)
            is_left_out = not spec.config.write_empty_chunks and chunk.all_equal(
                fill_value_of(spec)
            )
        return None if is_left_out else spec.prototype.buffer.from_array_like(encoded)

    def _merged(self, existing: Buffer | None) -> Array:
        """The elements of the chunk to store in place of `existing`, with the axes as stored."""
        spec = self._chunk_spec
        if self._is_whole and self._grid is not None and self.is_numpy:
            array = self._canvas(self._grid)
        elif self._is_whole and self._value.shape == spec.shape:
            array = self._value
        else:
            chunk = self._chunk(existing)
            chunk[self._selection] = spec.prototype.nd_buffer.from_ndarray_like(self._value)
            array = cast("Array", chunk.as_ndarray_like())
        return array.transpose(self._order) if self.is_numpy else array

    def _array_of(self, value: NDBuffer) -> Array:
        """The elements in the data type of the chunk, in either byte order."""
        array = cast("Array", value.as_ndarray_like())
        if self.is_numpy:
            array = np.asarray(array)  # the caller may give anything with a shape
        if array.dtype.newbyteorder("=") != self._dtype.newbyteorder("="):
            array = array.astype(self._dtype)  # records: zarr compares the names of types
        return array

    def _new_chunk(self) -> NewChunk:
        return new_chunk(self._chunk_spec, self._endian)

    def _chunk(self, existing: Buffer | None) -> NDBuffer:
        spec = self._chunk_spec
        if existing is None:
            fill = fill_value_of(spec)
            return spec.prototype.nd_buffer.create(
                shape=spec.shape, dtype=self._dtype, order=spec.order, fill_value=fill
            )
        encoded = cast("Bytes", existing.as_array_like())
        shape = tuple(spec.shape[axis] for axis in self._order)
        array = decode_elements(encoded, self._dtype, shape, self._endian).copy()
        if self.is_numpy:
            array = array.transpose(np.argsort(self._order))
        return spec.prototype.nd_buffer.from_ndarray_like(array)
