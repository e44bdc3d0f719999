"""A selection of a chunk as tiles: byte ranges, and the places of selected elements in them.

Two neighbours on an axis are read together where the bytes between them are at most the gap. That
depends on one axis at a time. So ranges, bytes and the places of elements among the fetched bytes
are composed from the innermost axis outwards, as sums with one term for each axis. They are counted
before a tile is made, and a selection of any size is divided into tiles of bounded size.

Time and memory depend on the size of the result, not on the size of the chunk.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from zarr_bytes.chunk.grid import combination
from zarr_bytes.chunk.levels import ONE, Even, Span, Uneven, singles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.grid import Grid, Offsets
    from zarr_bytes.chunk.levels import Level, Piece, Table
    from zarr_bytes.data_type.number_formats import DType

__all__ = ["Tile", "Tiles", "one_range", "tiles_of"]

_AT_ONCE: Final = 2**12  # ranges as Python integers, which take ten times the memory
_FIRST: Final = slice(0, 1)


class Tile(NamedTuple):
    """Elements that are fetched together.

    Attributes
    ----------
    start : int
        Offset of the first range in the chunk, in bytes.
    nbytes : int
        Bytes of all ranges.
    table : (array of int64, array of int64) or None
        Starts and stops of the ranges, in bytes from `start`; None for one range.
    shape, strides : tuple of int
        Of the elements in the fetched bytes, with one axis for each axis of the canvas; strides in
        bytes. Empty for a tile of bytes alone, as are the next two.
    among : tuple or None
        NumPy index of the selected elements among these, where their distances are uneven.
    place : tuple
        NumPy index of the selected elements in the canvas.
    """

    start: int
    nbytes: int
    table: tuple[Offsets, Offsets] | None = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    among: tuple[Any, ...] | None = None
    place: tuple[Any, ...] = ()

    def elements(self, fetched: Bytes, dtype: DType) -> Array:
        """The selected elements in the bytes of all ranges one after another.

        A view of `fetched`, unless their distances are uneven.
        """
        array: Array = np.ndarray(self.shape, dtype, fetched, strides=self.strides)
        return array if self.among is None else array[self.among]

    def has_no_gaps(self, item_size: int) -> bool:
        """Whether the fetched bytes are the selected elements, each once."""
        return self.among is None and prod(self.shape) * item_size == self.nbytes

    def requests(self, largest: int) -> Iterator[tuple[int, int, int]]:
        """`ranges`, none of more than `largest` bytes."""
        if self.nbytes <= largest:
            one = (self.start, self.start + self.nbytes, 0)
            return iter((one,)) if self.table is None else self.ranges()
        return (
            (begin, min(begin + largest, stop), position + begin - start)
            for start, stop, position in self.ranges()
            for begin in range(start, stop, largest)
        )

    def number_of_requests(self, largest: int) -> int:
        """Number of `requests`."""
        if self.nbytes <= largest:
            return self.number_of_ranges()
        starts, stops = self.bounds()
        return int((-(-(stops - starts) // largest)).sum())

    def number_of_ranges(self) -> int:
        """Number of `ranges`."""
        return 1 if self.table is None else self.table[0].size

    def bounds(self) -> tuple[Offsets, Offsets]:
        """Starts and stops of the ranges in the chunk, in bytes."""
        if self.table is None:
            return np.array([self.start]), np.array([self.start + self.nbytes])
        return self.start + self.table[0], self.start + self.table[1]

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Start, stop, and position among the fetched bytes, of every range."""
        position = 0
        for starts, sizes in self.lists():
            for start, size in zip(starts, sizes, strict=True):
                yield start, start + size, position
                position += size

    def lists(self) -> Iterator[tuple[list[int], list[int]]]:
        """Starts in the chunk and sizes of the ranges, in bytes, some thousands at a time."""
        starts, stops = self.bounds()
        for i in range(0, starts.size, _AT_ONCE):
            part = slice(i, i + _AT_ONCE)
            yield starts[part].tolist(), (stops[part] - starts[part]).tolist()


class Tiles(NamedTuple):
    """The tiles of a grid.

    Attributes
    ----------
    grid : Grid
    levels : list
        The levels of the axes, innermost first.
    span : Span
        Of the whole selection; all zeros if nothing is selected.
    item_size : int
        Size of an element, in bytes.
    base : int
        Offset of the chunk in its file or object, in bytes.
    """

    grid: Grid
    levels: list[Level]
    span: Span
    item_size: int
    base: int = 0

    @property
    def is_even(self) -> bool:
        """Whether the elements of a tile are a view of the fetched bytes."""
        return all(type(level) is Even for level in self.levels)

    def divided(self, most: int, runs: int) -> Iterator[Tile]:
        """Tiles of at most `most` bytes (or one element) and `runs` ranges.

        Each is a sub-box of the grid: the inner axes whole, a piece of the next one, and single
        indices of those outside.
        """
        if not self.span.selected:
            return
        most = max(most // self.item_size, 1)
        whole, table, span = self._whole(most, runs)
        if len(whole) == len(self.levels):
            yield self._tile(whole, table, span)
            return
        level = self.levels[len(whole)]
        last: tuple[Piece, Table | None] | None = None
        for outer in singles(self.levels[len(whole) + 1 :]):
            for piece in level.pieces(most, runs):
                is_alike = type(level) is Even and last is not None and last[0].span == piece.span
                if not is_alike or last is None:
                    last = piece, level.table(piece, table)
                yield self._tile([*whole, piece, *outer], last[1], piece.span)

    def alike(self, most: int, runs: int) -> Iterator[tuple[int, Tile]]:
        """The number of the tiles of each size in `divided`, with one of them."""
        if not self.span.selected:
            return
        most = max(most // self.item_size, 1)
        whole, table, span = self._whole(most, runs)
        if len(whole) == len(self.levels):
            yield 1, self._tile(whole, table, span)
            return
        level, outer = self.levels[len(whole)], self.levels[len(whole) + 1 :]
        times, single = prod([other.distinct() for other in outer]), next(singles(outer))
        for count, piece in level.alike_pieces(most, runs):
            inner = level.table(piece, table)
            yield times * count, self._tile([*whole, piece, *single], inner, piece.span)

    def _whole(self, most: int, runs: int) -> tuple[list[Piece], Table | None, Span]:
        """The innermost axes whose indices are all in one tile; `most` in elements."""
        whole: list[Piece] = []
        table, span = None, ONE
        for level in self.levels:
            inner = level.span
            if max(inner.fetched, inner.selected) > most or inner.ranges > runs:
                break
            piece = level.piece(0, len(level.indices))
            table, span = level.table(piece, table), inner
            whole.append(piece)
        return whole, table, span

    def undivided(self) -> Tile:
        """One tile, whatever its size; something must be selected."""
        (tile,) = self.divided(2**62, 2**62)
        return tile

    def _tile(self, pieces: Sequence[Piece], table: Table | None, span: Span) -> Tile:
        size, n = self.item_size, len(pieces)
        shape, strides = [0] * n, [size] * n
        among: list[slice | Offsets] = [slice(0)] * n
        place: list[slice | Offsets] = [slice(0)] * n
        start, is_even = 0, True
        for level, piece in zip(self.levels, pieces, strict=True):
            i, (first, last, offset, positions, _) = level.axis, piece
            start += offset
            place[i] = self.grid.axes[i].targets_of(first, last)
            if isinstance(positions, int):
                shape[i], strides[i] = last - first, positions * size
                among[i] = slice(0, last - first)
            else:
                is_even = False
                shape[i], among[i] = int(positions[-1]) + 1, positions
        if table is not None:
            table = table[0] * size, table[1] * size
        return Tile(
            self.base + start * size,
            span.fetched * size,
            table,
            tuple(shape),
            tuple(strides),
            None if is_even else combination(among),
            combination(place),
        )


def tiles_of(grid: Grid, item_size: int, gap: int) -> Tiles:
    """Tiles of a grid.

    Parameters
    ----------
    grid : Grid
        The selection.
    item_size : int
        Size of an element, in bytes.
    gap : int
        Bytes between selected ones that are read to save a range.

    Examples
    --------
    >>> from zarr_bytes.chunk.selection import grid_of
    >>> tiles = tiles_of(grid_of((4, 3), (slice(1, 3), slice(None))), 8, 0)
    >>> [(tile.start, tile.nbytes) for tile in tiles.divided(100, 100)]
    [(24, 48)]
    """
    if not all(len(axis.indices) for axis in grid.axes):
        return Tiles(grid, [], Span(0, 0, 0, 0), item_size)
    levels: list[Level] = []
    inside, most = ONE, gap // item_size
    for number in reversed(grid.nesting):
        indices, stride = grid.axes[number].indices, grid.strides[number]
        if isinstance(indices, range):
            levels.append(Even.of(number, indices, stride, inside, most))
        else:
            levels.append(Uneven.of(number, indices, stride, inside, most))
        inside = levels[-1].span
    return Tiles(grid, levels, inside, item_size)


def one_range(
    chunk_shape: tuple[int, ...],
    selection: Sequence[Any],
    nesting: Sequence[int],
    item_size: int,
) -> Tile | None:
    """The tile of a point, a row, a plane or several of them; None for every other selection.

    The tile of `tiles_of` for the usual case, in a fifth of the time.

    Examples
    --------
    >>> tile = one_range((4, 3), (slice(1, 3), slice(None)), (0, 1), 8)
    >>> tile.start, tile.nbytes, tile.shape
    (24, 48, (2, 3))
    """
    n = len(chunk_shape)
    if len(selection) != n:
        return None
    shape, strides, place = [1] * n, [item_size] * n, [_FIRST] * n
    first, stride, run, is_one_range = 0, item_size, item_size, True
    for axis in reversed(nesting):
        entry, size = selection[axis], chunk_shape[axis]
        start, count = entry, 1
        if type(entry) is slice:
            start, stop, step = entry.indices(size)
            count = stop - start
            # Outside of a part of an axis there can be a single index alone.
            if step != 1 or count < 1 or (count > 1 and not is_one_range):
                return None
            shape[axis], place[axis] = count, slice(0, count)
        elif type(entry) is not int or not 0 <= entry < size:
            return None
        strides[axis] = run
        is_one_range = is_one_range and count == size
        first, stride, run = first + start * stride, stride * size, run * count
    return Tile(first, run, None, tuple(shape), tuple(strides), None, tuple(place))
