"""Planning which bytes of a chunk a selection needs.

A pure plan, apart from any reading. The dimensions of the chunk are split once: the selected
indices of the outer ones are enumerated, and for each of them the inner ones are one run of bytes,
seen through strides. The split is the cheapest in bytes and requests, so a column of a million rows
is one run, and a column of a few large planes is a few small ones. Runs whose gap costs less than a
request are read together, and the whole chunk is read where that is cheapest.

Nothing here has the size of the chunk: time and memory are those of the result.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from zarr_bytes.chunk.plan import Plan, c_strides
from zarr_bytes.chunk.selection import dimensions_of, is_grid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr_bytes.chunk.selection import Dimension
    from zarr_bytes.settings import Cost

__all__ = [
    "MOST_BYTES",
    "Run",
    "are_points",
    "number_of_runs",
    "offsets_of",
    "one_run",
    "plan_grid",
    "plan_one_run",
    "plan_points",
    "plan_reading",
    "plan_whole_chunk",
]

Offsets: TypeAlias = npt.NDArray[np.int64]

MOST_BYTES: Final = 2**62  # of a chunk, so that no sum of offsets is too large for int64
_FIRST: Final = np.zeros((), np.int64)  # where a single run begins in the fetched bytes


def plan_reading(
    chunk_shape: tuple[int, ...], item_size: int, selection: Sequence[Any], cost: Cost
) -> Plan | None:
    """Plan for the bytes of a chunk that a selection needs.

    Parameters
    ----------
    chunk_shape : tuple of int
        Shape of the chunk.
    item_size : int
        Size of an element, in bytes.
    selection : sequence
        One entry a dimension: an integer, a slice with a positive step, an array of integers, a
        1-D array of bools. Arrays are broadcast against each other, as NumPy does.
    cost : Cost
        What a request costs.

    Returns
    -------
    Plan or None
        None for a selection of another form, which NumPy may still take of the whole chunk, and
        for chunks of 2**62 bytes and more, which no store holds.

    Examples
    --------
    >>> from zarr_bytes.settings import Cost
    >>> plan = plan_reading((4, 3), 8, (slice(1, 3), slice(None)), Cost(0, 1000))
    >>> plan.starts, plan.stops
    (array([24]), array([72]))
    """
    if (plan := plan_one_run(chunk_shape, item_size, selection, cost)) is not None:
        return plan
    dimensions = dimensions_of(chunk_shape, selection)
    if dimensions is None or prod(chunk_shape) * item_size >= MOST_BYTES:
        return None
    if are_points(dimensions):
        offsets = offsets_of(dimensions, chunk_shape, item_size)
        return plan_points(offsets, chunk_shape, item_size, cost)
    return plan_grid(dimensions, chunk_shape, item_size, cost)


def plan_one_run(
    chunk_shape: tuple[int, ...], item_size: int, selection: Sequence[Any], cost: Cost
) -> Plan | None:
    """Plan for elements that follow each other, without a gap: the usual case.

    It is the plan of `plan_reading`, found in a fourth of the time; None for other selections.
    """
    run = one_run(chunk_shape, item_size, selection)
    if run is None or run.nbytes > cost.largest_request:
        return None
    starts, stops = np.array([run.start]), np.array([run.start + run.nbytes])
    strides = c_strides(run.shape, item_size)
    return Plan(starts, stops, False, _FIRST, run.shape, strides, ())  # noqa: FBT003


class Run(NamedTuple):
    """Selected elements that follow each other in the chunk."""

    start: int  # bytes
    nbytes: int
    shape: tuple[int, ...]


def one_run(chunk_shape: tuple[int, ...], item_size: int, selection: Sequence[Any]) -> Run | None:
    """The bytes of a point, a row, a plane or several of them; None for every other selection.

    Examples
    --------
    >>> one_run((4, 3), 8, (slice(1, 3), slice(None)))
    Run(start=24, nbytes=48, shape=(2, 3))
    """
    if len(selection) != len(chunk_shape):
        return None
    first, stride, run, is_one_run = 0, item_size, item_size, True
    shape = []
    for entry, size in zip(reversed(selection), reversed(chunk_shape), strict=True):
        if type(entry) is slice:
            start, stop, step = entry.indices(size)
            count = stop - start
            shape.append(count)
        else:
            start, step, count = entry, 1, 1
            if type(entry) is not int or not 0 <= entry < size:
                return None
        if step != 1 or count < 1 or (count > 1 and not is_one_run):
            return None
        # Outside of a part of a dimension there can be a single index alone.
        is_one_run = is_one_run and count == size
        first, stride, run = first + start * stride, stride * size, run * count
    if run == stride or stride >= MOST_BYTES:  # the whole chunk, or one that no store holds
        return None
    return Run(first, run, tuple(reversed(shape)))


def plan_grid(
    dimensions: Sequence[Dimension], chunk_shape: tuple[int, ...], item_size: int, cost: Cost
) -> Plan:
    """Plan for every combination of the selected indices of the dimensions."""
    if any(d.count == 0 for d in dimensions):
        return _plan_nothing(dimensions)
    strides = c_strides(chunk_shape, item_size)
    split = _cheapest_split(dimensions, strides, item_size, cost)
    outer, inner = dimensions[:split], dimensions[split:]
    values = [d.values for d in outer]
    begin = sum(d.low * stride for d, stride in zip(dimensions, strides, strict=True))
    rows = np.full((1,) * split, begin)
    for axis, (d, v, stride) in enumerate(zip(outer, values, strides, strict=False)):
        if d.count > 1:
            rows = rows + ((v - d.low) * stride).reshape(-1, *(1,) * (split - axis - 1))
    run = _run(inner, strides[split:], item_size)
    index = (
        *(d.among(v) for d, v in zip(outer, values, strict=True)),
        *(d.within() for d in inner),
    )
    inner_shape = tuple(d.high - d.low for d in inner)
    nbytes = prod(chunk_shape) * item_size
    return _plan(rows, run, inner_shape, strides[split:], index, nbytes, cost)


def are_points(dimensions: Sequence[Dimension]) -> bool:
    """Whether elements are selected one by one, by arrays of all their indices."""
    entries = [d.entry for d in dimensions]
    arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
    if any(isinstance(entry, slice) for entry in entries) or not all(a.size for a in arrays):
        return False
    # The indices of one dimension alone are either; as points they need not be sorted.
    return not is_grid(arrays) or len(arrays) == len(entries) == 1


def offsets_of(
    dimensions: Sequence[Dimension], chunk_shape: tuple[int, ...], item_size: int
) -> Offsets:
    """Where the selected points begin, in bytes."""
    strides = c_strides(chunk_shape, item_size)
    shape = np.broadcast_shapes(*(np.shape(d.entry) for d in dimensions))
    offsets = np.zeros(shape, np.int64)
    for d, stride in zip(dimensions, strides, strict=True):
        offsets += d.entry * stride
    return offsets


def plan_points(offsets: Offsets, chunk_shape: tuple[int, ...], item_size: int, cost: Cost) -> Plan:
    """Plan for the elements that begin at `offsets`, in any order."""
    nbytes = prod(chunk_shape) * item_size
    flat = offsets.ravel()
    if (flat[1:] > flat[:-1]).all():
        return _plan(offsets, item_size, (), (), (), nbytes, cost)
    rows, inverse = np.unique(offsets, return_inverse=True)
    return _plan(rows, item_size, (), (), (inverse.reshape(offsets.shape),), nbytes, cost)


def number_of_runs(
    dimensions: Sequence[Dimension], chunk_shape: tuple[int, ...], item_size: int, cost: Cost
) -> int:
    """How many runs `plan_grid` enumerates."""
    split = _cheapest_split(dimensions, c_strides(chunk_shape, item_size), item_size, cost)
    return prod(d.count for d in dimensions[:split])


def plan_whole_chunk(
    chunk_shape: tuple[int, ...], item_size: int, selection: Sequence[Any]
) -> Plan:
    """Plan that fetches the whole chunk, for any selection that NumPy takes.

    Parameters
    ----------
    chunk_shape, item_size, selection
        As for `plan_reading`; `item_size` is in bytes.

    Examples
    --------
    >>> plan_whole_chunk((4, 3), 8, (slice(None, None, -1),)).nbytes
    96
    """
    if not selection:
        return _plan_complete(chunk_shape, item_size)
    return replace(_plan_complete(chunk_shape, item_size), _index=tuple(selection))


@lru_cache(maxsize=128)  # the same for every chunk of an array that is read whole
def _plan_complete(chunk_shape: tuple[int, ...], item_size: int) -> Plan:
    total = prod(chunk_shape) * item_size
    # A chunk of more bytes than int64 counts is missing, or has another size: that is for the
    # reading to find.
    nbytes = np.array([total], np.int64 if total < 2**63 else object)
    strides = c_strides(chunk_shape, item_size)
    row = np.zeros((), np.int64)
    return Plan(nbytes - nbytes, nbytes, True, row, chunk_shape, strides, ())  # noqa: FBT003


def _plan(
    rows: Offsets,
    run: int,
    inner_shape: tuple[int, ...],
    inner_strides: tuple[int, ...],
    index: tuple[Any, ...],
    nbytes: int,
    cost: Cost,
) -> Plan:
    """Plan for runs of `run` bytes that begin at `rows`, ascending in C order and disjoint."""
    if rows.ndim == 0 and run < nbytes:  # one run: the usual case, worth 20 microseconds
        starts, stops = np.array([int(rows)]), np.array([int(rows) + run])
        if run > cost.largest_request:
            starts, stops = _split_ranges(starts, stops, cost.largest_request)
        return Plan(starts, stops, False, _FIRST, inner_shape, inner_strides, index)  # noqa: FBT003
    starts = rows.ravel()
    # A new range where the gap is not worth bridging.
    begins = np.flatnonzero(np.diff(starts) - run > cost.gap) + 1
    firsts = np.concatenate(([0], begins))
    lasts = np.concatenate((begins, [starts.size])) - 1
    range_starts, range_stops = starts[firsts], starts[lasts] + run
    fetched = int((range_stops - range_starts).sum())
    if range_starts.size * cost.gap + fetched >= cost.gap + nbytes or fetched == nbytes:
        whole = np.array([0, nbytes])
        return Plan(whole[:1], whole[1:], True, rows, inner_shape, inner_strides, index)  # noqa: FBT003
    positions = np.concatenate(([0], np.cumsum(range_stops - range_starts)[:-1]))
    shift = np.repeat(positions - range_starts, lasts - firsts + 1).reshape(rows.shape)
    range_starts, range_stops = _split_ranges(range_starts, range_stops, cost.largest_request)
    return Plan(range_starts, range_stops, False, rows + shift, inner_shape, inner_strides, index)  # noqa: FBT003


def _plan_nothing(dimensions: Sequence[Dimension]) -> Plan:
    """Plan for a selection that is empty: a box of the right shape, and no bytes."""
    nothing = np.empty(0, np.int64)
    shape = tuple(d.high - d.low if d.count else 0 for d in dimensions)
    index = tuple(d.within() if d.count else _empty(d.entry) for d in dimensions)
    rows = np.empty(shape, np.int64)
    return Plan(nothing, nothing, False, rows, (), (), index)  # noqa: FBT003


def _empty(entry: Any) -> Any:
    return slice(0, 0) if isinstance(entry, slice) else np.zeros(np.shape(entry), np.int64)


def _cheapest_split(
    dimensions: Sequence[Dimension], strides: tuple[int, ...], item_size: int, cost: Cost
) -> int:
    """How many of the first dimensions to enumerate, so that requests and bytes cost least."""
    requests, runs = 1, [item_size]
    for d, stride in zip(reversed(dimensions), reversed(strides), strict=True):
        runs.append(runs[-1] + (d.high - d.low - 1) * stride)
    costs = []
    for count, run in zip([*(d.count for d in dimensions), 1], reversed(runs), strict=True):
        costs.append(requests * (cost.gap + run))
        requests *= count
    return min(range(len(costs)), key=costs.__getitem__)


def _run(inner: Sequence[Dimension], strides: Iterable[int], item_size: int) -> int:
    """Bytes from the first to the last selected element of the inner dimensions."""
    last = sum((d.high - d.low - 1) * s for d, s in zip(inner, strides, strict=True))
    return int(last) + item_size


def _split_ranges(starts: Offsets, stops: Offsets, largest: int) -> tuple[Offsets, Offsets]:
    """The same bytes in ranges of at most `largest`."""
    if (stops - starts).max() <= largest:
        return starts, stops
    pieces = -(-(stops - starts) // largest)
    firsts = np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = np.repeat(starts, pieces) + (np.arange(pieces.sum()) - firsts) * largest
    return begins, np.minimum(begins + largest, np.repeat(stops, pieces))
