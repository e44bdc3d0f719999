"""Levels: what each axis of a selection adds to ranges and places, in elements.

Two neighbours on an axis are read together where the elements between them are at most the gap. The
extent of all combinations of indices is composed from the innermost axis outwards.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.chunk.grid import Offsets

__all__ = ["ONE", "Even", "Level", "Piece", "Span", "Table", "Uneven", "singles"]


class Span(NamedTuple):
    """The extent of combinations of selected indices, in elements.

    Attributes
    ----------
    extent : int
        Elements of the chunk from the first to the last selected one.
    fetched : int
        Fetched elements, with the elements of gaps that are read over.
    ranges : int
        Number of ranges.
    selected : int
        Selected elements.
    """

    extent: int
    fetched: int
    ranges: int
    selected: int


ONE: Final = Span(1, 1, 1, 1)


class Piece(NamedTuple):
    """Neighbouring indices of a level, in elements."""

    first: int  # number of the first index of the level, and of the last plus one
    last: int
    offset: int  # of the first in the chunk
    positions: Offsets | int  # of each in the fetched elements, or the distance of neighbours there
    span: Span  # of all combinations with the axes inside


class Even(NamedTuple):
    """Indices of an axis at equal distances, and all combinations with those of the axes inside."""

    axis: int  # of the canvas
    indices: range
    stride: int
    inside: Span
    are_joined: bool  # neighbours, so that they are read together
    step: int  # distance of neighbours in the fetched elements
    span: Span

    @classmethod
    def of(cls, axis: int, indices: range, stride: int, inside: Span, gap: int) -> Even:
        """Level of an axis outside of `inside`, with a `gap` in elements."""
        distance = indices.step * stride
        unread = distance - inside.extent
        are_joined = unread <= gap
        step = inside.fetched + (unread if are_joined else 0)
        level = cls(axis, indices, stride, inside, are_joined, step, inside)
        return level._replace(span=level._span(len(indices))) if len(indices) > 1 else level

    def _span(self, n: int) -> Span:
        inside = self.inside
        return Span(
            (n - 1) * self.indices.step * self.stride + inside.extent,
            (n - 1) * self.step + inside.fetched,
            n * inside.ranges - (n - 1) * self.are_joined,
            n * inside.selected,
        )

    def piece(self, first: int, last: int) -> Piece:
        """The indices number `first` to `last`, exclusive."""
        offset = self.indices[first] * self.stride
        return Piece(first, last, offset, self.step, self._span(last - first))

    def pieces(self, most: int, runs: int) -> Iterator[Piece]:
        """All indices, in pieces of at most `most` elements and `runs` ranges, or of one index."""
        length = self._length(most, runs)
        distance, span = self.indices.step * self.stride, self._span(length)
        offset, last = self.indices[0] * self.stride, len(self.indices) - len(self.indices) % length
        for first in range(0, last, length):
            at = offset + first * distance
            yield Piece(first, first + length, at, self.step, span)
        if last < len(self.indices):
            yield self.piece(last, len(self.indices))

    def alike_pieces(self, most: int, runs: int) -> Iterator[tuple[int, Piece]]:
        """The number of the `pieces` of each size, with one of them."""
        length = self._length(most, runs)
        times, rest = divmod(len(self.indices), length)
        if times:
            yield times, self.piece(0, length)
        if rest:
            yield 1, self.piece(len(self.indices) - rest, len(self.indices))

    def _length(self, most: int, runs: int) -> int:
        """Number of the indices of a piece."""
        inside, more = self.inside, self.inside.ranges - self.are_joined
        length = min(
            max(most // inside.selected, 1), 1 + max((most - inside.fetched) // self.step, 0)
        )
        if more:
            length = min(length, 1 + max((runs - inside.ranges) // more, 0))
        return length

    def distinct(self) -> int:
        """Number of the `singles`."""
        return len(self.indices)

    def singles(self) -> Iterator[Piece]:
        """Each index by itself."""
        for i, index in enumerate(self.indices):
            yield Piece(i, i + 1, index * self.stride, self.step, self.inside)

    def table(self, piece: Piece, inside: Table | None) -> Table | None:
        """Starts and stops of the ranges of a piece from its first; None where there is one."""
        if piece.span.ranges == 1:
            return None
        offsets = np.arange(piece.last - piece.first) * (self.indices.step * self.stride)
        return _combined(offsets, not self.are_joined, inside, self.inside.extent)


class Uneven(NamedTuple):
    """Indices at any distance, some of them selected again; otherwise as `Even`."""

    axis: int
    indices: Offsets
    stride: int
    inside: Span
    are_joined: npt.NDArray[np.bool_]  # each with the next
    positions: Offsets  # of each in the fetched elements
    ranges: Offsets  # before those that begin with each
    span: Span

    @classmethod
    def of(cls, axis: int, indices: Offsets, stride: int, inside: Span, gap: int) -> Uneven:
        """Level of an axis outside of `inside`, with a `gap` in elements."""
        distances = np.diff(indices) * stride
        unread = distances - inside.extent
        is_new = distances > 0
        are_joined = is_new & (unread <= gap)
        positions, ranges = np.zeros((2, indices.size), np.int64)
        np.cumsum(is_new * (inside.fetched + are_joined * unread), out=positions[1:])
        np.cumsum(is_new * inside.ranges - are_joined, out=ranges[1:])
        level = cls(axis, indices, stride, inside, are_joined, positions, ranges, inside)
        return level._replace(span=level.piece(0, indices.size).span)

    def piece(self, first: int, last: int) -> Piece:
        """The indices number `first` to `last`, exclusive."""
        inside, begin = self.inside, int(self.indices[first])
        positions = self.positions[first:last] - self.positions[first]
        span = Span(
            (int(self.indices[last - 1]) - begin) * self.stride + inside.extent,
            int(positions[-1]) + inside.fetched,
            int(self.ranges[last - 1] - self.ranges[first]) + inside.ranges,
            (last - first) * inside.selected,
        )
        return Piece(first, last, begin * self.stride, positions, span)

    def pieces(self, most: int, runs: int) -> Iterator[Piece]:
        """All indices, in pieces of at most `most` elements and `runs` ranges, or of one index."""
        first, length = 0, max(most // self.inside.selected, 1)
        while first < self.indices.size:
            last = min(first + length, self.indices.size)
            for sums, room in (
                (self.positions, most - self.inside.fetched),
                (self.ranges, runs - self.inside.ranges),
            ):
                end = int(np.searchsorted(sums, sums[first] + max(room, 0), "right"))
                last = min(last, max(end, first + 1))
            yield self.piece(first, last)
            first = last

    def alike_pieces(self, most: int, runs: int) -> Iterator[tuple[int, Piece]]:
        """As `Even.alike_pieces`; every piece is taken for a different one."""
        return ((1, piece) for piece in self.pieces(most, runs))

    def distinct(self) -> int:
        """As `Even.distinct`."""
        return int(np.count_nonzero(np.diff(self.indices))) + 1

    def singles(self) -> Iterator[Piece]:
        """Each index by itself, with its repetitions."""
        ends = np.flatnonzero(np.diff(self.indices)) + 1
        for first, last in pairwise([0, *ends.tolist(), self.indices.size]):
            yield self.piece(first, last)

    def table(self, piece: Piece, inside: Table | None) -> Table | None:
        """As `Even.table`."""
        if piece.span.ranges == 1:
            return None
        indices = self.indices[piece.first : piece.last]
        is_new = np.diff(indices) > 0
        apart = ~self.are_joined[piece.first : piece.last - 1][is_new]
        indices = indices[np.concatenate(([True], is_new))]
        offsets = (indices - indices[0]) * self.stride
        return _combined(offsets, apart, inside, self.inside.extent)


_Apart: TypeAlias = "bool | npt.NDArray[np.bool_]"
Table: TypeAlias = "tuple[Offsets, Offsets]"
Level: TypeAlias = "Even | Uneven"


def singles(levels: Sequence[Level]) -> Iterator[list[Piece]]:
    """Every combination of single indices; the index of the last level changes most slowly."""
    if not levels:
        yield []
        return
    for piece in levels[-1].singles():
        for inner in singles(levels[:-1]):
            yield [*inner, piece]


def _combined(offsets: Offsets, apart: _Apart, inside: Table | None, extent: int) -> Table:
    """The ranges `inside`, or one of `extent`, at each of `offsets`; or read on to the next."""
    starts, stops = inside or (np.zeros(1, np.int64), np.array([extent]))
    begins, ends = np.ones((2, offsets.size, starts.size), bool)
    begins[1:, 0] = ends[:-1, -1] = apart
    return (offsets[:, None] + starts)[begins], (offsets[:, None] + stops)[ends]
