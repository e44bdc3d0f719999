"""The plan for a selection of a shard: the tiles of all inner chunks with selected elements.

Inner chunks with the same selection are divided into tiles once, and neighbours in the file are
read together.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.inner_selections import InnerSelections, grouped, merged
from zarr_bytes.chunk.levels import Span
from zarr_bytes.chunk.plan import EVERYTHING, Plan
from zarr_bytes.chunk.tiles import Tile, Tiles
from zarr_bytes.errors import ChunkSizeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Grid
    from zarr_bytes.chunk.inner_selections import Group, InnerSelection, Located
    from zarr_bytes.chunk.plan import Fetch
    from zarr_bytes.chunk.shards import Index, Shards
    from zarr_bytes.settings import Cost

__all__ = ["ShardPlan", "shard_plan_of"]

_Key: TypeAlias = "tuple[int | None, bytes, int]"  # `Index.places`, and bytes at a time

_SORTED: Final = 2**12  # inner chunks that are sorted by their place in the file at a time


class ShardPlan(Plan):
    """The bytes to read for a selection of a shard.

    Parameters
    ----------
    shards : Shards
        Properties of the shard.
    selection : tuple
        One entry an axis.
    cost : Cost or None
        Cost of a request; None where an inner chunk is read in one range.
    """

    view = None  # parts of several inner chunks are not a view of the fetched bytes
    is_whole = False
    # The fetches of the last shard, with its index and their size, and the places of absent inner
    # chunks: most shards of an array have one index.
    _kept: tuple[_Key, list[tuple[Any, ...]], list[Fetch]] | None = None

    def __init__(self, shards: Shards, selection: tuple[object, ...], cost: Cost | None) -> None:
        self.shards = shards
        self.chunks = shards.chunks
        self.selection = selection
        self.gap = EVERYTHING if cost is None else cost.gap
        self.largest_request = EVERYTHING if cost is None else cost.largest_request
        self._inner = InnerSelections(shards.division, self.chunks.item_size, self.gap)
        self._number, self._tile = shards.one_range(selection) or (0, None)

    @property
    def stored_nbytes(self) -> None:
        """None: inner chunks may be absent, and bytes may be unused."""
        return

    @cached_property
    def tiles(self) -> Tiles:
        """The canvas alone; the tiles are made for each inner chunk."""
        return Tiles(cast("Grid", self.grid), [], Span(0, 0, 0, 0), self.chunks.item_size)

    @property
    def plain_range(self) -> Tile | None:
        """The one range of one inner chunk, from its start, if NumPy can assign it as stored."""
        is_quick = self.chunks.is_plain and self.shards.index_nbytes <= limits.LIMITS.loop_chunk
        return self._tile if is_quick else None

    def base_in(self, file: ChunkFile) -> int | None:
        """Offset of the inner chunk of `plain_range` in a file; None if it is absent."""
        return self.shards.index_in(file).offset(self._number)

    def of_everything(self) -> ShardPlan:
        """The plan for all of the shard."""
        return ShardPlan(self.shards, (slice(None),) * len(self.chunks.shape), None)

    @property
    def nbytes(self) -> int:
        """Bytes of the selected elements."""
        if self._tile is not None:
            return self._tile.nbytes
        if self.grid is None:
            return self.chunks.nbytes
        return prod(self.grid.shape) * self.chunks.item_size

    def takes_little(self) -> bool:
        """Whether the selection is read on the event loop, if nothing has to be waited for."""
        return self._is_little

    @property
    def is_small(self) -> bool:
        """Whether the plan takes so little memory that it is kept."""
        return self._tile is not None or self._ranges <= limits.LIMITS.kept_runs

    @cached_property
    def _is_little(self) -> bool:
        if self.shards.index_nbytes > limits.LIMITS.loop_chunk or self.nbytes > limits.LIMITS.loop:
            return False
        if self._tile is not None:
            return self.nbytes <= limits.LIMITS.loop_chunk
        is_short = self.nbytes <= limits.LIMITS.loop_chunk
        most = limits.LIMITS.loop_ranges if is_short else limits.LIMITS.loop_long_ranges
        return self._ranges <= most

    @cached_property
    def _ranges(self) -> int:
        """Number of ranges, where the parts are few; otherwise very many."""
        if self._few is None:
            return EVERYTHING
        return sum([part.alike.tiles.span.ranges for part in self._few])

    @cached_property
    def _few(self) -> list[InnerSelection] | None:
        """The parts, where they are few."""
        most = limits.LIMITS.loop_ranges
        if self.grid is None or self.shards.division.most_parts(self.grid) > most:
            return None
        return list(self._inner.of(self.grid))

    def parts(self) -> Iterable[InnerSelection]:
        """The selection of each inner chunk that has selected elements."""
        grid = self.tiles.grid  # perhaps put into a result
        return self._few if grid is self.grid and self._few else self._inner.of(grid)

    def at_once(self, canvas: Array | None, *, is_file: bool) -> int:
        """Bytes that are fetched at once, at most."""
        if not is_file:
            return self.largest_request
        return limits.LIMITS.block if canvas is None else self.block_for(canvas)

    def fetches(self, canvas: Array, most: int, index: Index | None = None) -> Iterator[Fetch]:
        """The ranges to fetch of the shard with this index, at most `most` bytes at a time."""
        found = cast("Index", index)
        if not self._is_little or self.tiles.grid is not self.grid:
            return self._fetches(found, canvas, most)
        key, kept = (*found.places, most), self._kept
        if kept is None or kept[0] != key:
            absent = [part.place for part in self.parts() if found.offset(part.number) is None]
            self._kept = kept = key, absent, list(self._fetches(found, None, most))
        for place in kept[1]:
            canvas[place] = self.shards.fill_value
        return iter(kept[2])

    def _fetches(self, index: Index, canvas: Array | None, most: int) -> Iterator[Fetch]:
        some: list[Fetch] = []
        nbytes = ranges = 0
        for fetch in self._fetches_of_groups(index, canvas, most):
            nbytes += fetch[0].nbytes
            ranges += fetch[0].number_of_ranges()
            if some and (nbytes > most or ranges > limits.LIMITS.runs):
                yield merged(some)
                some, nbytes, ranges = [], fetch[0].nbytes, fetch[0].number_of_ranges()
            some.append(fetch)
        if some:
            yield merged(some)

    def _fetches_of_groups(self, index: Index, canvas: Array | None, most: int) -> Iterator[Fetch]:
        """The ranges of each group of inner chunks."""
        for start, stop, parts in self._groups(index, canvas, most):
            if len(parts) == 1:
                for tile in self._tiles_in(parts[0], most):
                    yield tile, ((tile, 0),)
                continue
            tiles = [(tile, p[0] - start) for p in parts for tile in self._tiles_in(p, most)]
            yield Tile(start, stop - start), tiles

    def alike_tiles(self, canvas: Array | None, *, is_file: bool) -> Iterator[tuple[int, Tile]]:
        """As `Plan.alike_tiles`, for a shard that has all inner chunks."""
        index, _ = self.shards.complete_index()
        most = self.at_once(canvas, is_file=is_file)
        for start, stop, parts in self._groups(index, canvas, most):
            if len(parts) > 1:
                yield 1, Tile(start, stop - start)
            elif parts[0][1].alike.is_one_tile(most):
                yield 1, parts[0][1].alike.tile
            else:
                yield from parts[0][1].alike.tiles.alike(most, limits.LIMITS.runs)

    def _groups(self, index: Index, canvas: Array | None, most: int) -> Iterator[Group]:
        """Groups of inner chunks, each read in one range of at most `most` bytes if it is several.

        In the place of an absent inner chunk, the canvas gets the fill value.
        """
        parts, fill = iter(self.parts()), self.shards.fill_value
        while some := list(islice(parts, _SORTED)):
            located = []
            for part in some:
                base = index.offset(part.number)
                if base is not None:
                    located.append((base + part.alike.first, part))
                elif canvas is not None:
                    canvas[part.place] = fill
            located.sort(key=itemgetter(0))
            yield from grouped(located, self.gap, most)

    def _tiles_in(self, located: Located, most: int) -> Iterable[Tile]:
        """The tiles of a part, of at most `most` bytes each, in the canvas of the shard."""
        start, part = located
        alike = part.alike
        if alike.is_one_tile(most):
            _, nbytes, table, shape, strides, among, _ = alike.tile
            return (Tile(start, nbytes, table, shape, strides, among, part.place),)
        grid = self.shards.division.inside(self.tiles.grid)._replace(axes=part.axes)
        tiles = alike.tiles._replace(grid=grid, base=start - alike.first)
        return tiles.divided(most, limits.LIMITS.runs)

    def end_of_file(self, path: str, offset: int) -> ChunkSizeError:
        """Error for a file that ends at the byte `offset`, though it was longer."""
        return ChunkSizeError(
            f"{path} ends at byte {offset}, within an inner chunk that its index has: it was"
            " shortened while it was read"
        )


def shard_plan_of(shards: Shards, selection: tuple[object, ...], cost: Cost | None) -> ShardPlan:
    """Plan for a selection of a shard, otherwise as `plan_of`."""
    return shards.plans.plan(selection, cost, lambda: ShardPlan(shards, selection, cost))
