"""`explain`: the cost of a read or write of a selection, and why it is not partial."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from zarr.storage import StorePath

from zarr_bytes.chunk.block_selection import array_entries
from zarr_bytes.chunk.chunks import chunks_of
from zarr_bytes.chunk.counters import Counts
from zarr_bytes.chunk.division import Division
from zarr_bytes.chunk.forecast import array_without_memory, counts_of_read, counts_of_write
from zarr_bytes.chunk.grid import Axis, combination
from zarr_bytes.chunk.reading import cost_of
from zarr_bytes.chunk.scattering import Scatter
from zarr_bytes.chunk.selection import entries_of, grid_of
from zarr_bytes.commands.acting import acting_on, why_replaced, why_whole
from zarr_bytes.commands.reports import Result
from zarr_bytes.commands.selections import text_of_selection
from zarr_bytes.commands.sources import within
from zarr_bytes.zarr_versions import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import zarr

    from zarr_bytes.chunk.division import Alike
    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.grid import Grid, Offsets
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.scattering import ChunkOfRead
    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.commands.acting import Acting
    from zarr_bytes.zarr_versions import ArraySpec

    WayOf: TypeAlias = Callable[[ChunkOfRead], tuple[Plan, Array | None, bool]]

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The read or write of a selection, in advance.

    Prints as the table that the command shows.

    Attributes
    ----------
    array, selection : str
        Place of the array, and the selection as written between brackets.
    is_write : bool
        Whether a write is explained.
    acts : str
        The class of the pipeline, and of the codec where a pipeline of zarr calls the codec of this
        package.
    is_partial : bool
        For a read, whether it reads less than whole chunks; for a write, whether it replaces no
        chunk after reading it.
    reason : str
        The first reason why more than the selected bytes is read, or why chunks are replaced, and
        what to do. Empty if there is none.
    reopened : str
        What opening the array again with the current settings would change. Empty if nothing.
    kind : {"chunk", "shard"}
        Kind of the files or objects.
    chunks : int
        Number of chunks, or shards, with selected elements.
    opens, requests, ranges : int
        Number of files opened, of requests to stores other than folders, and of byte ranges read,
        long ones in parts.
    bytes_selected : int
        Bytes of the selected elements.
    bytes_fetched, bytes_written : int or None
        Bytes read, with gaps and indexes of shards, and bytes written. None if only the compressor
        knows.
    bytes_of_chunks : int
        Bytes of the chunks, uncompressed and whole.
    may_share : bool
        Whether processes of one machine may write different elements of one chunk at the same time,
        in the way of this write.
    """

    array: str
    selection: str
    is_write: bool
    acts: str
    is_partial: bool
    reason: str
    reopened: str
    kind: str
    chunks: int
    opens: int
    requests: int
    ranges: int
    bytes_selected: int
    bytes_fetched: int | None
    bytes_written: int | None
    bytes_of_chunks: int
    may_share: bool


def explain(array: zarr.Array[Any], selection: Any = ..., *, write: bool = False) -> Explanation:
    """Explain what ``array[selection]`` reads or writes, without reading a chunk.

    Parameters
    ----------
    array : zarr.Array
        Any array; no chunk of it is read.
    selection : int, slice, Ellipsis, array of integers or bools, or a tuple of these, optional
        As in ``array[selection]``: arrays on all axes are points, and beside slices they select
        along their axes. The default is everything.
    write : bool, optional
        Whether to explain ``array[selection] = values`` instead.

    Returns
    -------
    Explanation
        The result prints as a table. The numbers come from the plan of the read or write itself,
        for stored chunks alone, and for shards with all of their inner chunks, in order.

    Raises
    ------
    IndexError
        If the selection does not fit the array.
    ValueError
        If the chunks of the array have several shapes.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(60, 100), dtype="f8", compressors=None)
    >>> explained = explain(array, (7, slice(40, 44)))
    >>> explained.bytes_selected, explained.is_partial
    (32, False)
    >>> explained.reason
    'the chunks are in memory, where reading one whole costs nothing'
    """
    grid = grid_of(array.shape, _entries(selection, array.shape))
    if grid is None:
        raise IndexError(
            f"the selection {text_of_selection(selection)} cannot be explained: permitted are"
            " integers, slices with positive steps, and arrays of integers or bools"
        )
    acting, metadata = acting_on(array), array.metadata
    spec = spec_of(metadata) if metadata.zarr_format == 3 else None
    if spec is None and metadata.zarr_format == 3:
        raise ValueError(f"the chunks of {array.store_path} have several shapes")
    chunk_shape = array.chunks if spec is None else spec.shape
    axes = tuple(range(array.ndim))
    division = Division(array.shape, chunk_shape, axes, axes)
    total, reasons, are_fine, are_in_place = Counts(), [acting.reason], [], []
    way_of = None if acting.stored is None else _way_of(array, acting, grid)
    for alike in division.alike(grid):
        if way_of is None or spec is None:
            total.chunks += alike.times
            continue
        chunk = _chunk(array, spec, division, grid, alike)
        plan, canvas, is_one_range = way_of(chunk)
        if write:
            counts, is_in_place = counts_of_write(
                chunk[0], plan, in_place=acting.writes_parts, is_complete=alike.are_complete
            )
            is_kept = is_in_place or counts.bytes_fetched > 0
            reasons.append("" if is_in_place else why_replaced(acting, chunk[0], is_kept=is_kept))
            are_fine.append(is_in_place or not is_kept)
            are_in_place.append(is_in_place)
        else:
            counts = counts_of_read(chunk[0], plan, canvas, is_one_range=is_one_range)
            reasons.append(why_whole(chunk[0], plan, counts.bytes_fetched))
        total.add(counts.times(alike.times))
    nbytes = total.chunks * prod(chunk_shape) * array.dtype.itemsize
    if acting.stored is None:
        total.bytes_fetched, total.bytes_written = nbytes, nbytes * write
    if not total.chunks:
        reasons.append("no element is selected")
    is_partial = all(are_fine) if write else total.bytes_fetched < nbytes
    is_partial = is_partial and not acting.reason
    totals = asdict(total)
    if not acting.nbytes_are_known:
        totals |= {"bytes_fetched": None, "bytes_written": None}
    return Explanation(
        array=str(array.store_path),
        selection=text_of_selection(selection),
        is_write=write,
        acts=acting.name,
        is_partial=is_partial,
        reason="" if write and is_partial else next(filter(None, reasons), ""),
        reopened=acting.reopened,
        kind="chunk" if acting.stored is None or acting.stored.sharding is None else "shard",
        bytes_selected=prod(grid.shape) * array.dtype.itemsize,
        bytes_of_chunks=nbytes,
        may_share=any(are_in_place) and all(are_in_place),
        **totals,
    )


def _entries(selection: Any, shape: tuple[int, ...]) -> list[Any]:
    """An entry for each axis, by zarr's rule: an array beside slices selects along its axis."""
    if isinstance(selection, np.ndarray) and selection.ndim > 1 and selection.dtype == bool:
        selection = np.nonzero(selection)  # a mask
    entries: list[Any] = array_entries(selection, shape)
    arrays = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    if len(arrays) > 1 and any(isinstance(entry, range) for entry in entries):
        for i, array in zip(arrays, np.ix_(*[entries[i] for i in arrays]), strict=True):
            entries[i] = array
    return entries


def _way_of(array: zarr.Array[Any], acting: Acting, grid: Grid) -> WayOf:
    """`Scatter.way_of` of the selection, or its like for the codec in a pipeline of zarr."""
    stored = cast("Stored", acting.stored)
    if acting.is_pipeline:
        sizes = [n for n, s in zip(grid.shape, grid.shapes, strict=True) if s is not None]
        out = array_without_memory(tuple(sizes), array.dtype, array.order)
        return Scatter(out, _dropped(grid), stored, array.store).way_of

    def way_of(chunk: ChunkOfRead) -> tuple[Plan, None, bool]:
        getter, spec, selection, *_ = chunk
        chunks = chunks_of(spec, stored.codec.stored_endian, None)
        return chunks.plan(entries_of(selection), cost_of(getter)), None, False

    return way_of


def _chunk(
    array: zarr.Array[Any], spec: ArraySpec, division: Division, grid: Grid, alike: Alike
) -> ChunkOfRead:
    """One of the chunks that are selected alike, in the form that zarr's pipelines get."""
    key = within(array.path, array.metadata.encode_chunk_key(division.place_of(alike.number)))
    getter = StorePath(array.store, key)
    axes = [_in_order(axis) for axis in alike.axes]
    local, targets = [axis.indices for axis in axes], [axis.targets for axis in axes]
    if len(local) != array.ndim:  # points
        points = np.unravel_index(np.asarray(local[0]), spec.shape)
        return getter, spec, points, (cast("Offsets", targets[0]),), False
    selection: list[Any] = [
        _entry(indices, is_integer=shape is None)
        for indices, shape in zip(local, grid.shapes, strict=True)
    ]
    if any(isinstance(shape, tuple) for shape in grid.shapes):
        selection = list(np.ix_(*map(np.asarray, local)))
    kept = [t for t, shape in zip(targets, grid.shapes, strict=True) if shape is not None]
    return getter, spec, tuple(selection), combination(kept), alike.are_complete


def _in_order(axis: Axis) -> Axis:
    """An axis with its indices in the order of the selection, which zarr keeps."""
    if isinstance(axis.targets, slice):
        return axis
    order = np.argsort(axis.targets)
    return Axis(np.asarray(axis.indices)[order], axis.targets[order])


def _entry(indices: range | Offsets, *, is_integer: bool) -> int | slice | Offsets:
    """Indices along an axis as an entry of a selection."""
    if not isinstance(indices, range):
        return indices
    return indices[0] if is_integer else slice(indices.start, indices.stop, indices.step)


def _dropped(grid: Grid) -> tuple[int, ...]:
    """The axes of integers beside arrays, which zarr's pipelines drop."""
    if not any(isinstance(shape, tuple) for shape in grid.shapes):
        return ()
    return tuple([i for i, shape in enumerate(grid.shapes) if shape is None])
