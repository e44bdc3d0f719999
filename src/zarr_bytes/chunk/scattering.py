"""Reading selections of chunks straight into the result.

A few contiguous bytes get there by one read, or by one assignment that also swaps them. The method
is chosen once for all chunks with one selection, so that a chunk of 256 bytes costs an open, a read
and a close, and little else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np
from zarr.storage import LocalStore

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.chunks import chunks_of, fill_value_of
from zarr_bytes.chunk.files import EndOfFileError, open_chunk
from zarr_bytes.chunk.plan import plan_of
from zarr_bytes.chunk.reading import cost_of, read_chunk, read_open_file, read_shard
from zarr_bytes.chunk.selection import entries_of, is_basic
from zarr_bytes.chunk.shard_plan import shard_plan_of
from zarr_bytes.chunk.shards import shards_of
from zarr_bytes.settings import reading_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zarr.abc.store import Store
    from zarr.storage import StorePath

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Grid
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.shard_plan import ShardPlan
    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["ChunkOfRead", "Scatter"]

# A chunk's key in a store, its spec, the selection of the chunk, the place of this selection in the
# result, and whether the selection has all of the chunk that is within the array.
ChunkOfRead: TypeAlias = "tuple[StorePath, ArraySpec, SelectorTuple, SelectorTuple, bool]"


class _Alike(NamedTuple):
    """Chunks of one spec and one selection."""

    spec: ArraySpec
    selection: SelectorTuple
    types: list[type]  # of the entries of the selection; empty where arrays are among them
    plan: Plan
    # For a few bytes in one range: memory to read into, with the selected elements there; or the
    # result, where its own memory is read into. And the start of the range; None for a whole chunk.
    window: tuple[Bytes, Array] | None = None
    result: Array | None = None
    start: int | None = None

    def has(self, spec: ArraySpec, selection: SelectorTuple) -> bool:
        """Whether a chunk has this spec and this selection."""
        try:
            is_equal = spec is self.spec and bool(selection == self.selection)
        except ValueError:  # NumPy compares longer arrays element by element
            return False
        # An array of one index equals the index.
        return is_equal and self.types == [*map(type, entries_of(selection))]


class Scatter:
    """An array, and the selections of chunks that are read into it.

    Parameters
    ----------
    out : array
        Elements in the data type of the chunks; NumPy converts to any other.
    drop_axes : tuple of int
        Axes of a selection that `out` does not have.
    stored : Stored
        The storage of the chunks.
    store : zarr.abc.store.Store
        The store of all chunks.
    """

    def __init__(
        self, out: Array, drop_axes: tuple[int, ...], stored: Stored, store: Store
    ) -> None:
        self._out = out
        self._root = str(store.root) if type(store) is LocalStore else ""
        # Not in a thread, where a warning could not point at the line that has called zarr.
        self._cost = reading_cost(store) if type(store) is LocalStore else None
        self._drop_axes = drop_axes
        codec, self._order, self._sharding = stored
        self._endian = codec.stored_endian
        self.left_open: dict[str, ChunkFile] = {}  # by path, for the thread that continues

    def read_files(self, chunks: Iterable[ChunkOfRead], *, waits: bool = True) -> Iterator[bool]:
        """Read selections of chunks of a `LocalStore`.

        Parameters
        ----------
        chunks : iterable of ChunkOfRead
        waits : bool, optional
            Whether this is a thread that may wait.

        Yields
        ------
        bool
            False if the chunk is missing; `out` has the fill value then.

        Raises
        ------
        ValueError
            As `zarr_bytes.chunk.codec_calls.read_selection`.
        BlockingIOError
            If this chunk and all later ones must be read in a thread, where `waits` is False.
        """
        out, root = self._out, self._root
        alike: _Alike | None = None
        for chunk in chunks:
            getter, spec, selection, place, _ = chunk
            if alike is None or not alike.has(spec, selection):
                alike = self._alike(chunk)
            # Flat, in the order of the memory, which is the order of the stored axes (`_result`).
            target = None if alike.result is None else alike.result[place].ravel(order="K")
            is_direct = target is not None and _is_view(target, alike.result)
            is_quick = is_direct or alike.window is not None
            if not (waits or is_quick or alike.plan.takes_little()):
                raise BlockingIOError
            path = f"{root}/{getter.path}"
            file = self.left_open.pop(path, None) if self.left_open else None
            file = open_chunk(path, root, waits=waits, file=file)
            if file is None:
                self._fill(chunk)
                yield False
                continue
            with file:
                try:
                    start = alike.start
                    if is_quick and start is not None:
                        base = alike.plan.base_in(file)
                        start = None if base is None else base + start
                    if not is_quick:
                        self._read_file(chunk, alike.plan, file)
                    elif start is None and alike.start is not None:
                        self._fill(chunk)
                    elif alike.window is not None:
                        memory, elements = alike.window
                        file.read_into(memory, start)
                        out[place] = elements
                    else:
                        file.read_into(cast("Array", target), start)
                except EndOfFileError as end:
                    raise alike.plan.end_of_file(path, end.offset) from None
            yield True

    async def read(self, chunk: ChunkOfRead) -> bool:
        """`read_files` of one chunk through the `get` of any store."""
        getter, spec, selection, _, _ = chunk
        if self._sharding is None:
            chunks = chunks_of(spec, self._endian, self._order)
            array = await read_chunk(getter, chunks, selection, spec, is_sync=False)
        else:
            plan = self._plan(spec, selection, cost_of(getter))
            array = await read_shard(getter, cast("ShardPlan", plan))
        if array is None:
            self._fill(chunk)
            return False
        self._assign(chunk, array)
        return True

    def _read_file(self, chunk: ChunkOfRead, plan: Plan, file: ChunkFile) -> None:
        placed = self._placed(chunk, plan)
        if placed is None:
            self._assign(chunk, read_open_file(plan, file))
            return
        canvas, grid = placed
        read_open_file(plan if grid is plan.grid else plan.placed(grid), file, canvas)

    def _placed(self, chunk: ChunkOfRead, plan: Plan) -> tuple[Array, Grid] | None:
        """The canvas in the result, and the grid for it, if there is one and it pays."""
        if plan.nbytes <= limits.LIMITS.assigned or plan.grid is None:
            return None
        return plan.grid.in_result(self._out, chunk[3], self._drop_axes)

    def method_of(self, chunk: ChunkOfRead) -> tuple[Plan, Array | None, bool]:
        """The method of `read_files` for a file, or of `read` for another store; nothing is read.

        Returns
        -------
        plan : Plan
        canvas : array or None
            The part of `out` that tiles are put into; None where they are not.
        is_one_range : bool
            Whether a file is read in one call: one range, or the whole.
        """
        if not self._root:
            return self._plan(chunk[1], chunk[2], cost_of(chunk[0])), None, False
        alike = self._alike(chunk)
        if alike.window is not None or alike.result is not None:
            return alike.plan, None, True
        placed = self._placed(chunk, alike.plan)
        return alike.plan, None if placed is None else placed[0], False

    def _alike(self, chunk: ChunkOfRead) -> _Alike:
        _, spec, selection, place, _ = chunk
        plan = self._plan(spec, selection, self._cost)
        types = [*map(type, entries_of(selection))] if is_basic(selection) else []
        tile = plan.plain_range
        if tile is None:
            return _Alike(spec, selection, types, plan)
        chunks = plan.chunks
        nbytes = chunks.nbytes if plan.is_whole else tile.nbytes
        has_gaps = tile.nbytes != nbytes or not tile.has_no_gaps(chunks.item_size)
        most = limits.LIMITS.loop_chunk if has_gaps else limits.LIMITS.assigned
        start = None if plan.is_whole else tile.start
        is_direct = not has_gaps and limits.LIMITS.direct <= nbytes <= limits.LIMITS.loop
        result = window = None
        if is_direct and nbytes <= plan.largest_request:
            result = self._result(plan, place)
        if result is None and 0 < nbytes <= min(most, plan.largest_request):
            memory = np.empty(nbytes, np.uint8)
            part = memory[tile.start :] if plan.is_whole else memory
            elements = plan.result_of(tile.elements(part, chunks.stored))
            window = memory, self._squeezed(elements)
        return _Alike(spec, selection, types, plan, window, result, start)

    def _plan(self, spec: ArraySpec, selection: SelectorTuple, cost: Cost | None) -> Plan:
        if self._sharding is None:
            chunks = chunks_of(spec, self._endian, self._order)
            return plan_of(chunks, entries_of(selection), cost)
        shards = shards_of(self._sharding, spec, self._endian, self._order)
        return shard_plan_of(shards, entries_of(selection), cost)

    def _result(self, plan: Plan, place: SelectorTuple) -> Array | None:
        """The result, if stored bytes can be read into their places in it unchanged."""
        grid = cast("Grid", plan.grid)
        placed = grid.in_result(self._out, place, self._drop_axes)
        if placed is None or placed[1] is not grid:
            return None
        canvas = placed[0]
        in_order = canvas.transpose(grid.nesting)
        is_alike = canvas.dtype == plan.chunks.stored and in_order.flags.c_contiguous
        if not is_alike:
            return None
        # Without the data type: not every type has a buffer that can be read into.
        return self._out.view(f"V{plan.chunks.item_size}")

    def _fill(self, chunk: ChunkOfRead) -> None:
        """Put the fill value in the place of a missing chunk."""
        self._out[chunk[3]] = fill_value_of(chunk[1])

    def _assign(self, chunk: ChunkOfRead, array: Array) -> None:
        self._out[chunk[3]] = self._squeezed(array)

    def _squeezed(self, array: Array) -> Array:
        return array.squeeze(axis=self._drop_axes) if self._drop_axes else array


def _is_view(array: Array, of: Array | None) -> bool:
    return of is not None and array.base is (of if of.base is None else of.base)
