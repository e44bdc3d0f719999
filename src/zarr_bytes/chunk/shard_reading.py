"""Reading a selection of a shard: its index, and then the ranges of all inner chunks together.

Inner chunks that lie beside each other in the file are read at once. At most two requests follow
one another, however many inner chunks there are.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.files import EndOfFileError
from zarr_bytes.chunk.grid import combination
from zarr_bytes.chunk.levels import Span
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.chunk.requests import MissingChunkError, Requests
from zarr_bytes.chunk.shards import Index, by_itself
from zarr_bytes.chunk.tasks import finished, slots_of_loop, together
from zarr_bytes.chunk.tiles import Tile, Tiles, tiles_of
from zarr_bytes.errors import ChunkSizeError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Axis, Grid
    from zarr_bytes.chunk.shards import Shards
    from zarr_bytes.settings import Cost

__all__ = ["ShardPlan", "read_index", "read_open_shard", "read_shard"]

_EVERYTHING: Final = 2**62  # bytes of a gap, so that there is one range
_Ranges: TypeAlias = "tuple[range, ...]"
_SORTED: Final = 2**12  # inner chunks that are put in the order of the file at a time


class _Alike:
    """Inner chunks that are selected alike.

    Attributes
    ----------
    tiles : Tiles
        Of one of them, in a canvas of its own.
    first, nbytes : int
        Where the first selected element is in the inner chunk, and from it to the last, in bytes.
    """

    def __init__(self, grid: Grid, item_size: int, gap: int) -> None:
        self.tiles = tiles_of(grid, item_size, gap)
        axes = zip(grid.axes, grid.strides, strict=True)
        self.first = sum([int(axis.indices[0]) * stride for axis, stride in axes]) * item_size
        self.nbytes = self.tiles.span.extent * item_size

    @cached_property
    def tile(self) -> Tile:
        """The tile, where that is one."""
        return self.tiles.undivided()


class _Part(NamedTuple):
    """The selection of one inner chunk."""

    start: int  # of what is read, in the shard, in bytes
    place: tuple[Any, ...]  # NumPy index of the elements in the canvas
    axes: tuple[Axis, ...]
    alike: _Alike


class _Group(NamedTuple):
    """Inner chunks that are read together."""

    start: int  # in the shard, in bytes
    stop: int
    parts: list[_Part]


class ShardPlan(Plan):
    """What is read for a selection of a shard.

    Parameters
    ----------
    shards : Shards
        The shard, and those like it.
    selection : tuple
        One entry an axis.
    cost : Cost or None
        What a request costs; None where an inner chunk is read in one range.
    """

    view = None  # parts of several inner chunks are no view of what is fetched
    is_whole = False

    def __init__(self, shards: Shards, selection: tuple[object, ...], cost: Cost | None) -> None:
        self.shards = shards
        self.chunks = shards.chunks
        self.selection = selection
        self.gap = _EVERYTHING if cost is None else cost.gap
        self.largest_request = _EVERYTHING if cost is None else cost.largest_request
        self._known: dict[_Ranges, _Alike] = {}
        self._number, self._tile = shards.one_range(selection) or (0, None)

    @property
    def stored_nbytes(self) -> None:
        """None: inner chunks may be absent, and bytes may be unused."""
        return

    @cached_property
    def tiles(self) -> Tiles:
        """The canvas; the tiles are those of inner chunks."""
        return Tiles(cast("Grid", self.grid), [], Span(0, 0, 0, 0), self.chunks.item_size)

    @property
    def plain_range(self) -> Tile | None:
        """The one range of one inner chunk, from its first byte, if it is assigned as stored."""
        is_quick = self.chunks.is_plain and self.shards.index_nbytes <= limits.LIMITS.loop_chunk
        return self._tile if is_quick else None

    def start_of(self, index: Index) -> int | None:
        """Where the inner chunk of `plain_range` begins in its shard; None if it is absent."""
        return index.offset(self._number)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements that are selected."""
        if self._tile is not None:
            return self._tile.nbytes
        if self.grid is None:
            return self.chunks.nbytes
        return prod(self.grid.shape) * self.chunks.item_size

    def takes_little(self) -> bool:
        """Whether it is read on the event loop, if nothing has to be waited for."""
        return self._is_little

    @cached_property
    def _is_little(self) -> bool:
        if self._tile is not None:
            return max(self._tile.nbytes, self.shards.index_nbytes) <= limits.LIMITS.loop_chunk
        if self.grid is None or self.shards.index_nbytes > limits.LIMITS.loop_chunk:
            return False
        if self.nbytes > limits.LIMITS.loop_chunk:
            return False
        ranges = 0
        for _, _, alike in self._parts():
            ranges += alike.tiles.span.ranges
            if ranges > limits.LIMITS.loop_ranges:
                return False
        return True

    def _parts(self) -> Iterator[tuple[int, tuple[Axis, ...], _Alike]]:
        """Number of each inner chunk that has selected elements, their axes, and what is read."""
        grid = self.tiles.grid
        if 0 in grid.shape:
            return
        inside = self.shards.inside(grid)
        for number, axes in self.shards.parts(grid):
            indices = tuple([axis.indices for axis in axes])
            is_known = all(type(along) is range for along in indices)
            alike = self._known.get(cast("_Ranges", indices)) if is_known else None
            if alike is None:
                alike = _Alike(by_itself(inside, axes), self.chunks.item_size, self.gap)
                if is_known:
                    self._known[cast("_Ranges", indices)] = alike
            yield number, axes, alike

    def groups(self, index: Index, canvas: Array, most: int) -> Iterator[_Group]:
        """Inner chunks, those together that are worth one range of at most `most` bytes.

        Where an inner chunk is absent, the canvas gets the fill value.
        """
        parts, fill = self._parts(), self.shards.fill_value
        while some := list(islice(parts, _SORTED)):
            located = []
            for number, axes, alike in some:
                base = index.offset(number)
                place = combination([axis.targets for axis in axes])
                if base is None:
                    canvas[place] = fill
                else:
                    located.append(_Part(base + alike.first, place, axes, alike))
            located.sort(key=_start)
            yield from self._grouped(located, most)

    def _grouped(self, located: list[_Part], most: int) -> Iterator[_Group]:
        group: _Group | None = None
        for part in located:
            start, stop = part.start, part.start + part.alike.nbytes
            if (
                group is not None
                and 0 <= start - group.stop <= self.gap
                and stop - group.start <= most
                and part.alike.tiles.span.ranges == 1
                and group.parts[-1].alike.tiles.span.ranges == 1
            ):
                group.parts.append(part)
                group = group._replace(stop=stop)
                continue
            if group is not None:
                yield group
            group = _Group(start, stop, [part])
        if group is not None:
            yield group

    def tiles_in(self, part: _Part, most: int) -> Iterator[Tile]:
        """The tiles of a part, of at most `most` bytes each, in the canvas of the shard."""
        alike = part.alike
        if alike.nbytes <= most and alike.tiles.span.ranges <= limits.LIMITS.runs:
            yield alike.tile._replace(start=part.start, place=part.place)
            return
        grid = self.shards.inside(self.tiles.grid)._replace(axes=part.axes)
        base = part.start - alike.first
        yield from alike.tiles._replace(grid=grid, base=base).divided(most, limits.LIMITS.runs)

    def end_of_file(self, path: str, offset: int) -> ChunkSizeError:
        """Error for a file that ends at the byte `offset`, though it was longer."""
        return ChunkSizeError(
            f"{path} ends at byte {offset}, within an inner chunk that its index has: it was"
            " shortened while it was read"
        )


def read_index(shards: Shards, file: ChunkFile) -> Index:
    """The index of a shard that is an open file.

    Raises
    ------
    ShardIndexError
        If it is truncated or damaged.
    """
    size = file.size()
    content = np.empty(min(shards.index_nbytes, size), np.uint8)
    try:
        file.read_range(memoryview(content), shards.index_start(size))
    except EndOfFileError as end:
        content = content[: max(end.offset - shards.index_start(size), 0)]
    return Index(shards, file.path, content, size)


def read_open_shard(plan: ShardPlan, file: ChunkFile, canvas: Array | None = None) -> Array:
    """The selection of a shard that is an open file.

    Parameters
    ----------
    plan : ShardPlan
        What is read.
    file : ChunkFile
    canvas : array, optional
        Where the elements are put, in the place that the grid of the plan has for them.

    Returns
    -------
    array
        ``shard[selection]``, or the canvas.

    Raises
    ------
    ShardIndexError
        If the index does not fit the shard.
    BoolValueError
        If a byte that was read as a bool is neither 0 nor 1.
    EndOfFileError
        If the file is shortened meanwhile.
    """
    index = read_index(plan.shards, file)

    async def fetch(tile: Tile) -> Bytes:
        return file.read_again(tile, plan.largest_request)

    return finished(_filled(plan, index, fetch, canvas, in_place=True, workers=1))


async def read_shard(getter: ByteGetter, plan: ShardPlan) -> Array | None:
    """The selection of the shard behind `getter`, in any store; None if the shard is missing.

    Raises
    ------
    ShardIndexError, BoolValueError, ChunkSizeError
        As `read_open_shard`.
    """
    requests = Requests(getter, plan, is_sync=False)
    try:
        content, size = await requests.fetch_index(plan.shards)
    except MissingChunkError:
        return None
    index = Index(plan.shards, str(getter), content, size)
    _, limit = slots_of_loop()
    return await _filled(plan, index, requests.fetch, None, in_place=False, workers=limit)


async def _filled(
    plan: ShardPlan,
    index: Index,
    fetch: Callable[[Tile], Coroutine[None, None, Bytes]],
    canvas: Array | None,
    *,
    in_place: bool,
    workers: int,
) -> Array:
    """Put the elements of all inner chunks into the canvas; without one, give the result."""
    if plan.grid is None:  # only NumPy takes the selection
        everything = ShardPlan(plan.shards, (slice(None),) * len(plan.chunks.shape), None)
        shard = await _filled(everything, index, fetch, None, in_place=in_place, workers=workers)
        return np.asarray(shard[plan.selection])
    filled = np.empty(plan.grid.shape, plan.chunks.selected_dtype) if canvas is None else canvas
    put = plan.putter(filled, in_place=in_place)
    most = plan.block_for(filled) if workers == 1 else plan.largest_request
    groups = plan.groups(index, filled, most)

    async def work() -> None:
        for start, stop, parts in groups:
            if len(parts) == 1:
                for tile in plan.tiles_in(parts[0], most):
                    put(tile, await fetch(tile))
                continue
            fetched = await fetch(Tile(start, stop - start, None, (), (), None, ()))
            for part in parts:
                (tile,) = plan.tiles_in(part, most)
                first = part.start - start
                put(tile, fetched[first : first + tile.nbytes])

    if workers == 1:
        await work()
    else:
        await together([work() for _ in range(workers)])
    return filled if canvas is not None else plan.result_of(filled)


def _start(part: _Part) -> int:
    return part.start
