"""Writing a selection of a shard: in place if a file has its inner chunks, else as a new shard.

In place, the index does not change, so that readers and other writers need no lock. A new shard is
complete for that: it has every inner chunk.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk.elements import encode_elements
from zarr_bytes.chunk.file_writing import write_file
from zarr_bytes.chunk.files import EndOfFileError, open_chunk
from zarr_bytes.chunk.new_files import delete_file, make_file, replace, write_all
from zarr_bytes.chunk.plan import EVERYTHING
from zarr_bytes.chunk.selection import entries_of
from zarr_bytes.chunk.shard_plan import shard_plan_of
from zarr_bytes.chunk.shards import Index, shards_of
from zarr_bytes.chunk.tiles import Tile, tiles_of
from zarr_bytes.chunk.writing import APART, Writing
from zarr_bytes.errors import wrong_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.store import ByteSetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.file_writing import NewChunk
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Grid
    from zarr_bytes.chunk.inner_selections import InnerSelection
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.shards import Shards
    from zarr_bytes.chunk.stored import Sharding
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple, SyncByteSetter

__all__ = ["ShardWriting", "complete_shard"]

# Bytes of a stored inner chunk, by its number; None if it is absent.
_Stored: TypeAlias = "Callable[[int], Bytes | None]"


class ShardWriting(Writing):
    """One selection of one shard, and the elements for it.

    Parameters
    ----------
    sharding : Sharding
        Configuration of the shard.
    value, selection, chunk_spec, endian, order, is_complete
        As of `Writing`.

    Raises
    ------
    ValueError
        If the form of the selection is not one of zarr's.
    """

    def __init__(
        self,
        sharding: Sharding,
        value: NDBuffer,
        selection: SelectorTuple,
        chunk_spec: ArraySpec,
        endian: Endian | None,
        order: tuple[int, ...] | None,
        *,
        is_complete: bool,
    ) -> None:
        is_complete = is_complete and not sharding.keeps_edges
        self._shards = shards_of(sharding, chunk_spec, endian, order)
        self._shard_plan = plan = shard_plan_of(self._shards, entries_of(selection), APART)
        parts = (value, selection, chunk_spec, endian, order)
        super().__init__(*parts, is_complete=is_complete, plan=plan)
        if self._grid is None:
            raise ValueError(
                f"the selection {selection} of a shard has another form than integers, slices with"
                " positive steps and arrays of integers or bools"
            )
        self._shard_grid = self._grid

    def _written(self, path: str, root: str, *, in_place: bool) -> int:
        in_place = in_place and not self.keeps_nothing
        if 0 in self._shard_grid.shape:
            return 0
        if in_place:
            written = write_file(path, root, self)
            if written is not None:
                return written
        file = None if self.keeps_nothing else open_chunk(path, root, waits=True)
        if file is None:
            new = self._inner_chunks(_nothing, is_complete=in_place)
            return _replace_shard(path, self._shards, new)
        with file:
            stored = _stored_in(file, self._shards, self._shards.index_in(file))
            new = self._inner_chunks(stored, is_complete=in_place)
            return _replace_shard(path, self._shards, new)

    def in_new(self) -> tuple[NewChunk, Tile, Bytes]:
        """A complete shard, the selected ranges in it, and their bytes."""
        new, index = self._shards.new_shard(self._new_chunk())
        return new, *cast("tuple[Tile, Bytes]", self._located(index))

    def in_file(self, file: ChunkFile) -> tuple[Tile, Bytes] | None:
        """The selected ranges in an open shard; None if it has to be replaced.

        So it is where an inner chunk is absent, or has bytes of another one.

        Raises
        ------
        ShardIndexError
            If the index does not fit the shard.
        """
        return self._located(self._shards.index_in(file))

    def _located(self, index: Index) -> tuple[Tile, Bytes] | None:
        bases, starts, stops, data = [], [], [], []
        for part, elements in self._parts():
            base = index.offset(part.number)
            if base is None:
                return None
            bases.append(base)
            tile = part.alike.tile
            begins, ends = tile.bounds()
            starts.append(base + begins)
            stops.append(base + ends)
            data.append(self._bytes_of(tile, part.alike.tiles.grid, elements))
        if not index.are_apart(bases):
            return None
        table = np.concatenate(starts), np.concatenate(stops)
        together = data[0] if len(data) == 1 else np.concatenate(data)
        return Tile(0, together.size, table), together

    def _parts(self) -> Iterator[tuple[InnerSelection, Array]]:
        """The selection of each inner chunk that is written to, and the elements for it."""
        canvas = self._canvas(self._shard_grid)
        for part in self._shard_plan.parts():
            yield part, canvas[(*part.place, ...)]  # never a scalar

    def _inner_chunks(self, stored: _Stored, *, is_complete: bool) -> Iterator[tuple[int, Bytes]]:
        """Numbers and bytes of the inner chunks to store; all, if the shard `is_complete`."""
        new = self._new_chunk()
        parts = self._parts()
        part = next(parts, None)
        for number in range(self._shards.count):
            if part is not None and part[0].number == number:
                merged = self._merged_inner(number, part[0].alike.tiles.grid, part[1], stored)
                inner = None if not is_complete and new.is_left_out(merged) else merged
                part = next(parts, None)
            else:
                inner = stored(number)
            if inner is None and is_complete:
                inner = self._empty
            if inner is not None:
                yield number, inner

    @cached_property
    def _empty(self) -> Bytes:
        return _filled(self._shards, self._new_chunk())

    def _merged_inner(self, number: int, grid: Grid, canvas: Array, stored: _Stored) -> Bytes:
        """The bytes of an inner chunk with its selected elements."""
        if grid.has_all_of(self._shards.sharding.inner_shape):  # the stored one may be damaged
            return encode_elements(canvas.transpose(grid.nesting), self._endian)
        inner = stored(number)
        merged = (self._empty if inner is None else inner).copy()
        tile = tiles_of(grid, self._dtype.itemsize, EVERYTHING).undivided()
        self._put(merged[tile.start :], tile, grid, canvas)
        return merged

    def merged_into(
        self, existing: Buffer | None, setter: ByteSetter | SyncByteSetter
    ) -> Buffer | None:
        """The shard to store in place of `existing`; None if it has no inner chunk."""
        stored: _Stored = _nothing
        if existing is not None:
            shard: Bytes = existing.as_numpy_array()
            index = Index(self._shards, str(setter), self._shards.index_of(shard), shard.size)
            nbytes = self._shards.inner_nbytes
            stored = _located_by(index, lambda start: shard[start : start + nbytes])
        inner = self._inner_chunks(stored, is_complete=False)
        laid_out = sorted(_laid_out(self._shards, inner), key=itemgetter(0))
        if len(laid_out) == 1:  # the index alone
            return None
        encoded = np.concatenate([data for _, data in laid_out])
        return self._chunk_spec.prototype.buffer.from_array_like(encoded)


def complete_shard(path: str, root: str, shards: Shards, elements: NewChunk) -> bool:
    """Replace a shard that lacks inner chunks, or of which two share bytes, by one that has all.

    Parameters
    ----------
    path, root
        As of `open_chunk`.
    shards : Shards
        Properties of the shard.
    elements : NewChunk
        As of `Shards.new_shard`.

    Returns
    -------
    bool
        Whether the shard has been replaced.

    Raises
    ------
    ValueError, OSError
        As `ShardWriting.to_file`.
    """
    file = open_chunk(path, root, waits=True)
    if file is None:
        return False
    with file:
        index = shards.index_in(file)
        starts = [start for n in range(shards.count) if (start := index.offset(n)) is not None]
        if len(starts) == shards.count and index.are_apart(starts):
            return False
        stored, empty = _stored_in(file, shards, index), _filled(shards, elements)
        inner = (
            (number, empty if (found := stored(number)) is None else found)
            for number in range(shards.count)
        )
        _replace_shard(path, shards, inner)
    return True


def _stored_in(file: ChunkFile, shards: Shards, index: Index) -> _Stored:
    def read(start: int) -> Bytes:
        inner = np.empty(shards.inner_nbytes, np.uint8)
        try:
            file.read_range(memoryview(inner), start)
        except EndOfFileError as end:
            stop = start + inner.size
            raise wrong_size(file.path, start, stop, max(end.offset - start, 0)) from None
        return inner

    return _located_by(index, read)


def _located_by(index: Index, read: Callable[[int], Bytes]) -> _Stored:
    def stored(number: int) -> Bytes | None:
        start = index.offset(number)
        return None if start is None else read(start)

    return stored


def _nothing(number: int) -> Bytes | None:  # noqa: ARG001
    return None


def _filled(shards: Shards, elements: NewChunk) -> Bytes:
    """An inner chunk of fill values."""
    fill = np.frombuffer(elements.fill, np.uint8)
    return np.tile(fill, shards.inner_nbytes // fill.size)


def _laid_out(shards: Shards, inner: Iterator[tuple[int, Bytes]]) -> Iterator[tuple[int, Bytes]]:
    """Offsets and bytes of the inner chunks of a new shard, and at last of its index."""
    starts = np.full(shards.count, -1, np.int64)
    position = shards.first
    for number, data in inner:
        yield position, data
        starts[number] = position
        position += data.size
    index = np.frombuffer(shards.content_of_index(starts), np.uint8)
    yield position if shards.sharding.is_at_end else 0, index


def _replace_shard(path: str, shards: Shards, inner: Iterator[tuple[int, Bytes]]) -> int:
    """Replace the shard at `path`, or delete it if it has no inner chunk; its size in bytes."""
    first = next(inner, None)
    if first is None:
        delete_file(path)
        return 0
    written = 0

    def write(file: int) -> None:
        nonlocal written
        for start, data in _laid_out(shards, chain([first], inner)):
            write_all(file, memoryview(data), start, start)
            written += data.size

    make_file(path, write, replace, "the shard has not been replaced")
    return written
