"""`explain`: the cost of a read or write of a selection, and why it is not partial."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import zarr

from zarr_bytes.chunk.chunks import chunks_of
from zarr_bytes.chunk.counters import Counts
from zarr_bytes.chunk.division import Division
from zarr_bytes.chunk.forecast import array_without_memory, counts_of_read, counts_of_write
from zarr_bytes.chunk.plan import plan_of
from zarr_bytes.chunk.reading import cost_of
from zarr_bytes.chunk.scattering import Scatter
from zarr_bytes.chunk.selection import entries_of, grid_of_array
from zarr_bytes.commands.acting import acting_on, why_replaced, why_whole
from zarr_bytes.commands.reports import Result
from zarr_bytes.commands.selections import (
    can_be_complete_to_zarr,
    chunk_as_zarr,
    dropped_axes,
    entries_as_zarr,
    ranks_in_zarr,
    text_of_selection,
)
from zarr_bytes.errors import no_array
from zarr_bytes.zarr_versions import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.grid import Grid
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.scattering import ChunkOfRead
    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.commands.acting import Acting

    MethodOf: TypeAlias = Callable[[ChunkOfRead], tuple[Plan, Array | None, bool]]

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
        Bytes read, with gaps and indexes of shards, and bytes written. None if they are not known
        in advance: for compressed chunks, and for shards that zarr reads by itself.
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
    if not isinstance(array, zarr.Array):
        raise no_array(array)
    entries = entries_as_zarr(selection, array.shape)
    slices = [entry for entry in entries if isinstance(entry, range)]
    # Not by `len`, which ends at 2**63. NumPy has no axis of 2**63 beside one of 0 either.
    count = prod([max(-((s.start - s.stop) // s.step), 1) for s in slices])
    is_too_large = count * array.dtype.itemsize > sys.maxsize
    grid = None if is_too_large else grid_of_array(array.shape, entries)
    if grid is None:
        raise IndexError(
            f"the selection {text_of_selection(selection)} cannot be explained: permitted are"
            " integers, slices with positive steps, and arrays of integers or bools, for less than"
            " 2**63 bytes, and points in an array of less than 2**62 elements"
        )
    acting, metadata = acting_on(array), array.metadata
    spec = spec_of(metadata) if metadata.zarr_format == 3 else None
    if spec is None and metadata.zarr_format == 3:
        raise ValueError(f"the chunks of {array.store_path} have several shapes")
    chunk_shape = array.chunks if spec is None else spec.shape
    axes = tuple(range(array.ndim))
    division = Division(array.shape, chunk_shape, axes, axes)
    total, reasons, are_fine, are_in_place = Counts(), [acting.reason], [], []
    method_of = None if acting.stored is None else _method_of(array, acting, acting.stored, grid)
    ranks = ranks_in_zarr(entries, division)
    # A pipeline of zarr doesn't tell the codec.
    is_told = acting.is_pipeline or not acting.writes_parts
    can_be_complete = is_told and can_be_complete_to_zarr(entries, chunk_shape)
    for alike in division.alike(grid):
        if method_of is None or spec is None:
            total.chunks += alike.times
            continue
        is_complete = alike.are_complete and can_be_complete
        chunk = chunk_as_zarr(array, spec, division, grid, alike, ranks, is_complete=is_complete)
        plan, canvas, is_one_range = method_of(chunk)
        if write:
            counts, is_in_place = counts_of_write(
                chunk[0], plan, in_place=acting.writes_parts, is_complete=is_complete
            )
            is_kept = counts.bytes_fetched > 0
            # A chunk that the values fill is replaced at once, as it should be.
            are_fine.append(is_in_place or not is_kept)
            reasons.append("" if are_fine[-1] else why_replaced(acting, chunk[0]))
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


def _method_of(array: zarr.Array[Any], acting: Acting, stored: Stored, grid: Grid) -> MethodOf:
    """`Scatter.method_of` of the selection, or its like for the codec in a pipeline of zarr."""
    if acting.is_pipeline:
        sizes = [n for n, s in zip(grid.shape, grid.shapes, strict=True) if s is not None]
        out = array_without_memory(tuple(sizes), array.dtype, array.order)
        return Scatter(out, dropped_axes(grid), stored, array.store).method_of

    def method_of(chunk: ChunkOfRead) -> tuple[Plan, None, bool]:
        getter, spec, selection, *_ = chunk
        chunks = chunks_of(spec, stored.codec.stored_endian, None)
        return plan_of(chunks, entries_of(selection), cost_of(getter)), None, False

    return method_of
