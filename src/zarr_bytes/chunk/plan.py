"""The plan for a selection of a chunk: its tiles, or the whole chunk.

The whole chunk is read where that is cheapest. The plan of a selection is kept for the next chunk,
so that a chunk of 256 bytes costs an open, a read and a close, and little else.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.elements import bool_error, find_wrong_bool
from zarr_bytes.chunk.grid import c_strides
from zarr_bytes.chunk.selection import grid_of
from zarr_bytes.chunk.tiles import one_range, tiles_of
from zarr_bytes.errors import wrong_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from zarr_bytes.chunk.chunks import Chunks
    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Grid, Offsets
    from zarr_bytes.chunk.shards import Index
    from zarr_bytes.chunk.tiles import Tile, Tiles
    from zarr_bytes.errors import BoolValueError, ChunkSizeError
    from zarr_bytes.settings import Cost

__all__ = ["EVERYTHING", "Fetch", "Plan", "plan_of"]

# A tile to fetch, and the tiles whose elements are in its bytes, each with its place there.
Fetch: TypeAlias = "tuple[Tile, Sequence[tuple[Tile, int]]]"

EVERYTHING: Final = 2**62
"""Bytes of a gap that joins everything in one range."""


class Plan:
    """The bytes to read for a selection of a chunk.

    Parameters
    ----------
    chunks : Chunks
        Properties of the chunk.
    selection : tuple
        One entry an axis.
    cost : Cost or None
        Cost of a request; None where chunks are read whole.

    Attributes
    ----------
    is_whole : bool
        Whether the whole chunk is read, which also proves its size. `tiles` are one range then,
        from the first to the last selected element.
    largest_request : int
        Largest size of a request, in bytes.
    """

    _tile: Tile | None = None  # for the whole selection, where `one_range` finds it

    def __init__(self, chunks: Chunks, selection: tuple[Any, ...], cost: Cost | None) -> None:
        self.chunks = chunks
        self.selection = selection
        self.is_whole = cost is None or chunks.nbytes <= cost.gap or not self._saves(cost.gap)
        self.largest_request = (
            chunks.nbytes if cost is None or self.is_whole else cost.largest_request
        )

    def _saves(self, gap: int) -> bool:
        """Whether ranges cost less than the whole chunk; sets `_tile` or `tiles`."""
        chunks = self.chunks
        if chunks.nbytes < EVERYTHING:
            tile = one_range(chunks.shape, self.selection, chunks.nesting, chunks.item_size)
            if tile is not None and tile.nbytes < chunks.nbytes:
                self._tile = tile
                return True
        if self.grid is None:
            return False
        tiles = tiles_of(self.grid, chunks.item_size, gap)
        nbytes = tiles.span.fetched * chunks.item_size
        if nbytes >= chunks.nbytes or (
            nbytes and tiles.span.ranges * gap + nbytes >= gap + chunks.nbytes
        ):
            return False
        self.tiles = tiles
        return True

    @cached_property
    def grid(self) -> Grid | None:
        """The selection; None for one that only NumPy takes, of the whole chunk."""
        return grid_of(self.chunks.shape, self.selection, self.chunks.order)

    @cached_property
    def tiles(self) -> Tiles:
        """The tiles of the selection, in the canvas of `grid`, or of another grid (`placed`)."""
        return tiles_of(cast("Grid", self.grid), self.chunks.item_size, EVERYTHING)

    @property
    def nbytes(self) -> int:
        """Bytes to fetch."""
        if self._tile is not None:
            return self._tile.nbytes
        return (
            self.chunks.nbytes
            if self.grid is None
            else self.tiles.span.fetched * self.chunks.item_size
        )

    @property
    def is_one_read(self) -> bool:
        """Whether a whole file is read in one call, not only its selected part."""
        is_small = self.chunks.nbytes <= limits.LIMITS.size_not_asked
        return self.is_whole and (is_small or self.grid is None)

    @property
    def stored_nbytes(self) -> int | None:
        """Size that the object must have; None where it is unknown."""
        return self.chunks.nbytes

    @property
    def ranges(self) -> int:
        """Number of ranges to fetch."""
        return 1 if self._tile is not None or self.grid is None else self.tiles.span.ranges

    @property
    def is_small(self) -> bool:
        """Whether the plan takes so little memory that it is kept."""
        return self.ranges <= limits.LIMITS.kept_runs

    @cached_property
    def view(self) -> Tile | None:
        """The one tile whose elements are the canvas, unless it takes too much memory."""
        if self._tile is not None:
            return self._tile
        grid = self.grid
        if grid is None or not grid.has_plain_targets:
            return None
        tiles, span = self.tiles, self.tiles.span
        unselected = (span.fetched - span.selected) * self.chunks.item_size
        is_small = self.nbytes <= limits.LIMITS.unselected or (
            tiles.is_even and unselected <= limits.LIMITS.unselected
        )
        is_one = is_small and 0 < span.ranges <= limits.LIMITS.runs
        return tiles.undivided() if is_one else None

    @property
    def plain_range(self) -> Tile | None:
        """`view`, where it is one range that NumPy can assign as stored."""
        if self._tile is None and (
            self.grid is None or self.tiles.span.ranges != 1 or not self.tiles.is_even
        ):
            return None
        return self.view if self.chunks.is_plain else None

    def result_of(self, canvas: Array) -> Array:
        """``chunk[selection]``, as a view of the canvas where NumPy allows it."""
        if self._tile is not None:
            index = [slice(None) if type(entry) is slice else 0 for entry in self.selection]
            return canvas[(*index, ...)]
        return cast("Grid", self.grid).result_of(canvas)

    def takes_little(self) -> bool:
        """Whether the selection is read on the event loop, if nothing has to be waited for."""
        nbytes = self.chunks.nbytes if self.is_whole else self.nbytes
        return (
            0 < nbytes <= limits.LIMITS.loop_chunk and 0 < self.ranges <= limits.LIMITS.loop_ranges
        )

    def base_in(self, file: ChunkFile) -> int | None:  # noqa: ARG002
        """Offset of `plain_range` in its file, in bytes; None if its elements are fill values."""
        return 0

    def fetches(self, canvas: Array, most: int, index: Index | None = None) -> Iterator[Fetch]:  # noqa: ARG002
        """The ranges to fetch for the canvas, at most `most` bytes at a time.

        Parameters
        ----------
        canvas : array
            As of `zarr_bytes.chunk.reading.read_open_file`. Absent inner chunks are put into it.
        most : int
        index : Index, optional
            The index of a shard.
        """
        return ((tile, ((tile, 0),)) for tile in self.tiles.divided(most, limits.LIMITS.runs))

    def alike_tiles(self, canvas: Array | None, *, is_file: bool) -> Iterator[tuple[int, Tile]]:
        """The number of fetched tiles of each size, with one of them.

        Parameters
        ----------
        canvas : array or None
            As of `zarr_bytes.chunk.reading.read_open_file`; not changed.
        is_file : bool
            Whether a file is read, and not another store.
        """
        if canvas is None and self.view is not None:
            return iter([(1, self.view)])
        return self.tiles.alike(self.at_once(canvas, is_file=is_file), limits.LIMITS.runs)

    def at_once(self, canvas: Array | None, *, is_file: bool) -> int:  # noqa: ARG002
        """Bytes that are fetched at once, at most."""
        return limits.LIMITS.unselected if canvas is None else self.block_for(canvas)

    def block_for(self, canvas: Array) -> int:
        """Size of the parts of a canvas that are filled at once, in bytes."""
        grid = cast("Grid", self.grid)
        strides = [canvas.strides[i] for i in grid.nesting]
        if strides == sorted(strides, reverse=True):
            return limits.LIMITS.block
        return limits.LIMITS.block_out_of_order

    def placed(self, grid: Grid) -> Plan:
        """The plan for another canvas, with the targets of `grid`."""
        plan = copy(self)
        plan.tiles = self.tiles._replace(grid=grid)
        return plan

    def elements(self, tile: Tile, fetched: Bytes, *, in_place: bool) -> Array:
        """The elements of a tile out of its bytes, possibly in the stored byte order.

        Raises
        ------
        BoolValueError
            If a bool is neither 0 nor 1. The message has its index in the selection.
        """
        chunks = self.chunks
        array = tile.elements(fetched, chunks.stored)
        if chunks.layout.bool_offsets and chunks.has_wrong_bool(array):
            raise self._bool_error(array, tile.place)
        return chunks.decoded(array, in_place=in_place)

    def putter(self, canvas: Array, *, in_place: bool) -> Callable[[Tile, Bytes], None]:
        """Function that puts the elements of a tile, out of its bytes, into the canvas."""
        found = self.chunks.as_numbers(canvas)

        def put_elements(tile: Tile, fetched: Bytes) -> None:
            canvas[tile.place] = self.elements(tile, fetched, in_place=in_place)

        if found is None:
            return put_elements
        numbers, dtype = found

        def put_numbers(tile: Tile, fetched: Bytes) -> None:
            numbers[tile.place] = tile.elements(fetched, dtype)

        return put_numbers

    def _bool_error(self, array: Array, place: tuple[Any, ...]) -> BoolValueError:
        encoded = array.ravel().view(np.uint8)
        byte = find_wrong_bool(encoded, self.chunks.layout) or 0
        number, offset = divmod(byte, self.chunks.item_size)
        grid, placed = cast("Grid", self.grid), self.tiles.grid
        index = grid.index_of(
            tuple(
                axis.target_of(other.number_of(_nth(entry, int(i))))
                for i, entry, axis, other in zip(
                    np.unravel_index(number, array.shape),
                    place,
                    grid.axes,
                    placed.axes,
                    strict=True,
                )
            )
        )
        shape = grid.result_shape
        flat = sum(i * s for i, s in zip(index, c_strides(shape), strict=True))
        of = "chunk" if shape == self.chunks.shape else "selection"
        return bool_error(int(encoded[byte]), index, of, flat * self.chunks.item_size + offset)

    def end_of_file(self, path: str, offset: int) -> ChunkSizeError:
        """Error for a file that ends at the byte `offset`, within or before a range."""
        if self.is_whole:
            return wrong_size(path, 0, self.chunks.nbytes, offset)
        for tile in self.tiles.divided(EVERYTHING, limits.LIMITS.runs):
            starts, stops = tile.bounds()
            number = int(np.searchsorted(stops, offset, "right"))
            if number < stops.size:
                break
        start, stop = int(starts[number]), int(stops[number])
        return wrong_size(path, start, stop, max(offset - start, 0))


def plan_of(chunks: Chunks, selection: tuple[Any, ...], cost: Cost | None) -> Plan:
    """Plan for a selection of a chunk, one entry an axis; `cost` is None for the whole chunk."""
    return chunks.plans.plan(selection, cost, lambda: Plan(chunks, selection, cost))


def _nth(entry: slice | Offsets, i: int) -> int:
    return entry.start + i if type(entry) is slice else int(np.ravel(entry)[i])
