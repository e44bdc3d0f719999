"""The selections of the inner chunks of a shard, and which of them are read together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.division import by_itself
from zarr_bytes.chunk.grid import combination
from zarr_bytes.chunk.tiles import Tile, tiles_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.chunk.division import Division
    from zarr_bytes.chunk.grid import Axis, Grid
    from zarr_bytes.chunk.plan import Fetch

__all__ = ["AlikeSelections", "InnerSelection", "InnerSelections", "Located", "grouped", "merged"]

_AT_START: Final = np.zeros(1, np.int64)  # the one range of a tile without a table


class AlikeSelections:
    """Inner chunks with the same selection.

    Attributes
    ----------
    tiles : Tiles
        Of one of the inner chunks, in a canvas of its own.
    first, nbytes : int
        Offset of the first selected element in the inner chunk, and distance from it to the end
        of the last one, in bytes.
    """

    def __init__(self, grid: Grid, item_size: int, gap: int) -> None:
        self.tiles = tiles_of(grid, item_size, gap)
        axes = zip(grid.axes, grid.strides, strict=True)
        self.first = sum([int(axis.indices[0]) * stride for axis, stride in axes]) * item_size
        self.nbytes = self.tiles.span.extent * item_size

    def is_one_tile(self, most: int) -> bool:
        """Whether the elements are in one tile, `tile`, of at most `most` bytes."""
        return self.nbytes <= most and self.tiles.span.ranges <= limits.LIMITS.runs

    @cached_property
    def tile(self) -> Tile:
        """The tile, where there is one."""
        return self.tiles.undivided()


class InnerSelection(NamedTuple):
    """The selection of one inner chunk."""

    number: int  # of the inner chunk
    place: tuple[Any, ...]  # NumPy index of the elements in the canvas
    axes: tuple[Axis, ...]
    alike: AlikeSelections


class InnerSelections:
    """The selections of inner chunks; those with the same selection are divided into tiles once.

    Parameters
    ----------
    division : Division
        The division of a shard into inner chunks.
    item_size, gap : int
        As of `zarr_bytes.chunk.tiles.tiles_of`.
    """

    def __init__(self, division: Division, item_size: int, gap: int) -> None:
        self._division = division
        self._item_size = item_size
        self._gap = gap
        self._known: dict[tuple[range, ...], AlikeSelections] = {}

    def of(self, grid: Grid) -> Iterator[InnerSelection]:
        """The selection of each inner chunk that has elements of a grid."""
        if 0 in grid.shape:
            return
        inside = self._division.inside(grid)
        for number, axes in self._division.parts(grid):
            indices = tuple([axis.indices for axis in axes])
            is_known = all(type(along) is range for along in indices)
            alike = self._known.get(cast("tuple[range, ...]", indices)) if is_known else None
            if alike is None:
                alike = AlikeSelections(by_itself(inside, axes), self._item_size, self._gap)
                if is_known:
                    self._known[cast("tuple[range, ...]", indices)] = alike
            yield InnerSelection(number, combination([axis.targets for axis in axes]), axes, alike)


# With the offset of its first selected element in the shard, in bytes.
Located: TypeAlias = "tuple[int, InnerSelection]"


class Group(NamedTuple):
    """Inner chunks that are read together."""

    start: int  # in the shard, in bytes
    stop: int
    parts: list[Located]


def grouped(located: list[Located], gap: int, most: int) -> Iterator[Group]:
    """Groups of parts in the order of the file: gaps of at most `gap`, and `most` bytes in all."""
    group: Group | None = None
    for start, part in located:
        stop = start + part.alike.nbytes
        if (
            group is not None
            and 0 <= start - group.stop <= gap
            and stop - group.start <= most
            and part.alike.tiles.span.ranges == 1
            and group.parts[-1][1].alike.tiles.span.ranges == 1
        ):
            group.parts.append((start, part))
            group = group._replace(stop=stop)
            continue
        if group is not None:
            yield group
        group = Group(start, stop, [(start, part)])
    if group is not None:
        yield group


def merged(fetches: list[Fetch]) -> Fetch:
    """One fetch for several, as tiles that are fetched one by one take longer than their bytes."""
    if len(fetches) == 1:
        return fetches[0]
    tables = [tile.table or (_AT_START, np.array([tile.nbytes])) for tile, _ in fetches]
    counts = [starts.size for starts, _ in tables]
    begins = np.array([tile.start for tile, _ in fetches]).repeat(counts)
    table = (
        begins + np.concatenate([starts for starts, _ in tables]),
        begins + np.concatenate([stops for _, stops in tables]),
    )
    parts: list[tuple[Tile, int]] = []
    nbytes = 0
    for tile, inner in fetches:
        parts += [(part, nbytes + first) for part, first in inner]
        nbytes += tile.nbytes
    return Tile(0, nbytes, table), parts
