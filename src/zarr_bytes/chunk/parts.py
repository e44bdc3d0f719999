"""A selection in parts, where reading it at once would take memory of its own accord.

What gaps between the selected bytes bridge is read with them, and a plan has numbers for each run
of bytes. Both are bounded here: a selection of which more than that would be needed is divided, and
of each part only what was selected is kept, at its place in the result. The memory is that of the
result, of the indices that were selected one by one, and a few times `LIMITS.fetched`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from zarr_bytes.chunk.byte_ranges import (
    MOST_BYTES,
    are_points,
    number_of_runs,
    offsets_of,
    plan_grid,
    plan_one_run,
    plan_points,
)
from zarr_bytes.chunk.selection import arranged, combined, dimensions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from zarr_bytes.chunk.byte_ranges import Offsets
    from zarr_bytes.chunk.plan import Plan
    from zarr_bytes.chunk.selection import Dimension
    from zarr_bytes.settings import Cost

__all__ = ["LIMITS", "Limits", "Parts", "plan_selection"]

_Entry: TypeAlias = "slice | Offsets"  # of an index: without gaps, or one by one


class Limits(NamedTuple):
    """What a plan may take.

    Attributes
    ----------
    fetched : int
        Bytes that are fetched without being selected, and all that are fetched for a part.
    runs : int
        Runs of bytes, each of which takes some fifty bytes while it is planned.
    views : bool
        Whether more may be fetched at once where the result is a view of it.
    """

    fetched: int
    runs: int
    views: bool = True


LIMITS: Final = Limits(fetched=2**24, runs=2**18)


def plan_selection(
    chunk_shape: tuple[int, ...],
    item_size: int,
    selection: Sequence[Any],
    cost: Cost,
    limits: Limits = LIMITS,
) -> Plan | Parts | None:
    """Plan for the bytes of a chunk that a selection needs, or the parts to read it in.

    Parameters
    ----------
    chunk_shape, item_size, selection, cost
        As for `zarr_bytes.chunk.byte_ranges.plan_reading`; `item_size` is in bytes.
    limits : Limits
        What a plan may take.

    Returns
    -------
    Plan, Parts or None
        None for what `plan_reading` has no plan for.

    Examples
    --------
    >>> from zarr_bytes.settings import Cost
    >>> plan_selection((4, 3), 8, (slice(1, 3), slice(None)), Cost(0, 1000)).nbytes
    48
    """
    plan = plan_one_run(chunk_shape, item_size, selection, cost)
    if plan is not None and (limits.views or plan.nbytes <= limits.fetched):
        return plan
    dimensions = dimensions_of(chunk_shape, selection)
    if dimensions is None or prod(chunk_shape) * item_size >= MOST_BYTES:
        return None
    chunk = _Chunk(chunk_shape, item_size, cost, limits)
    if are_points(dimensions):
        offsets = offsets_of(dimensions, chunk_shape, item_size)
        if offsets.size <= limits.runs:
            plan = plan_points(offsets, chunk_shape, item_size, cost)
            if plan.nbytes <= limits.fetched:
                return plan
        return chunk.parts_of_points(offsets)
    if not chunk.has_too_many_runs(dimensions):
        plan = plan_grid(dimensions, chunk_shape, item_size, cost)
        unselected = plan.nbytes - prod(d.count for d in dimensions) * item_size
        is_view = limits.views and plan.is_view
        if plan.nbytes <= limits.fetched or (unselected <= limits.fetched and is_view):
            return plan
    return chunk.parts_of_grid(dimensions)


@dataclass(frozen=True)
class Parts:
    """The parts of a selection.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array that the parts fill.
    plans : iterator of (places, Plan)
        The plan of a part, which is made when it is asked for. Each place is two NumPy indices:
        where in that array elements belong, and which of those that the plan selects they are.
    dimensions : list of Dimension
        Of a selection of all combinations: the axes of that array; else empty.
    """

    shape: tuple[int, ...]
    plans: Iterator[tuple[Iterable[tuple[Any, Any]], Plan]]
    dimensions: Sequence[Dimension] = ()

    def selected(self, filled: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The result, as a view of the array that the parts have filled."""
        return arranged(filled, self.dimensions) if self.dimensions else filled

    def filled(self, selected: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array for the parts to fill, where that is a view of the result; else another."""
        return combined(selected, self.dimensions, self.shape) if self.dimensions else selected


class _Chunk(NamedTuple):
    """What there is to divide."""

    shape: tuple[int, ...]
    item_size: int
    cost: Cost
    limits: Limits

    def parts_of_points(self, offsets: Offsets) -> Parts:
        """Points in the order in which they lie in the chunk."""
        flat = offsets.reshape(-1)
        order = None if (flat[1:] >= flat[:-1]).all() else np.argsort(flat)

        def plans() -> Iterator[tuple[list[tuple[Any, Any]], Plan]]:
            for first in range(0, flat.size, self.limits.runs):
                where = np.arange(first, min(first + self.limits.runs, flat.size))
                where = where if order is None else order[where]
                for part in self._of_few_bytes(flat[where]):
                    plan = plan_points(flat[where[part]], self.shape, self.item_size, self.cost)
                    yield [(np.unravel_index(where[part], offsets.shape), ())], plan

        return Parts(offsets.shape, plans())

    def _of_few_bytes(self, points: Offsets) -> Iterator[slice]:
        # Bytes that are fetched up to each point, where it is read together with the one before. A
        # point that is selected again is not, but takes its place in what is kept.
        distances = np.diff(points).clip(self.item_size, self.cost.gap + self.item_size)
        bridged = distances.cumsum()
        begin = 0
        while begin < points.size:
            most = self.limits.fetched - self.item_size + (bridged[begin - 1] if begin else 0)
            end = max(int(np.searchsorted(bridged, most, "right")) + 1, begin + 1)
            yield slice(begin, end)
            begin = end

    def parts_of_grid(self, dimensions: Sequence[Dimension]) -> Parts:
        """The box of all combinations, divided in two where it takes too much."""
        box = [d.distinct() for d in dimensions]
        axes = [_Axis(d) for d in dimensions]

        def plans() -> Iterator[tuple[Iterator[tuple[Any, Any]], Plan]]:
            for place, plan in self._halves(box, tuple(slice(0, d.count) for d in box)):
                entries = [axis.places(part) for axis, part in zip(axes, place, strict=True)]
                yield self._blocks(entries), plan

        return Parts(tuple(axis.size for axis in axes), plans(), dimensions)

    def _blocks(self, places: list[tuple[_Entry, _Entry]]) -> Iterator[tuple[Any, Any]]:
        """Indices of a part's places, a few at a time: elements may be selected many times."""
        counts = [_length(target) for target, _ in places]
        longest = max(range(len(counts)), key=counts.__getitem__, default=0)
        if prod(counts) * self.item_size <= self.limits.fetched or max(counts, default=1) == 1:
            targets, sources = [target for target, _ in places], [source for _, source in places]
            yield _combinations(targets), _combinations(sources)
            return
        half = counts[longest] // 2
        for block in (slice(0, half), slice(half, None)):
            target, source = places[longest]
            entry = _part(target, block), _part(source, block)
            yield from self._blocks([*places[:longest], entry, *places[longest + 1 :]])

    def _halves(
        self, part: list[Dimension], place: tuple[slice, ...]
    ) -> Iterator[tuple[tuple[slice, ...], Plan]]:
        axis = next((i for i, d in enumerate(part) if d.count > 1), None)
        if axis is None or not self.has_too_many_runs(part):
            plan = plan_grid(_as_grid(part), self.shape, self.item_size, self.cost)
            if axis is None or plan.nbytes <= self.limits.fetched:
                yield place, plan
                return
        count, begin = part[axis].count, place[axis].start
        for first, last in ((0, count // 2), (count // 2, count)):
            yield from self._halves(
                [*part[:axis], part[axis].part(first, last), *part[axis + 1 :]],
                (*place[:axis], slice(begin + first, begin + last), *place[axis + 1 :]),
            )

    def has_too_many_runs(self, dimensions: Sequence[Dimension]) -> bool:
        if prod(d.count for d in dimensions) <= self.limits.runs:
            return False
        runs = number_of_runs(dimensions, self.shape, self.item_size, self.cost)
        return runs > self.limits.runs


class _Axis:
    """Where the indices of a dimension stand among its distinct ones."""

    def __init__(self, dimension: Dimension) -> None:
        self._dimension = dimension
        entry = dimension.entry
        self._entry = entry.ravel() if isinstance(entry, np.ndarray) else None
        self.size = dimension.count if self._entry is None else self._entry.size
        if self._entry is not None and np.array_equal(self._entry, dimension.values):
            self._entry = None

    def places(self, part: slice) -> tuple[_Entry, _Entry]:
        """Where the distinct indices number `part` are selected, and which of them are there."""
        if self._entry is None:
            return part, slice(0, part.stop - part.start)
        if part == slice(0, self._dimension.count):
            return slice(0, self.size), self._among
        order, among = self._sorted
        first, last = np.searchsorted(among, (part.start, part.stop))
        return order[first:last], among[first:last] - part.start

    @cached_property
    def _among(self) -> Offsets:
        entry: Offsets = self._dimension.entry
        return np.searchsorted(self._dimension.values, entry.ravel())

    @cached_property
    def _sorted(self) -> tuple[Offsets, Offsets]:
        order = np.argsort(self._among)
        return order, self._among[order]


def _length(entry: _Entry) -> int:
    return entry.stop - entry.start if isinstance(entry, slice) else entry.size


def _part(entry: _Entry, part: slice) -> _Entry:
    if not isinstance(entry, slice):
        return entry[part]
    part_of_entry = range(entry.start, entry.stop)[part]
    return slice(part_of_entry.start, part_of_entry.stop)


def _combinations(entries: Sequence[_Entry]) -> Any:
    """NumPy index of every combination, with the axes in their order."""
    if sum(isinstance(entry, np.ndarray) for entry in entries) < 2:
        return tuple(entries)
    return np.ix_(*(np.arange(e.start, e.stop) if isinstance(e, slice) else e for e in entries))


def _as_grid(part: Sequence[Dimension]) -> Sequence[Dimension]:
    """Arrays so shaped that NumPy takes every combination, and puts none of their axes first."""
    if sum(isinstance(d.entry, np.ndarray) for d in part) < 2:
        return part
    entries = np.ix_(*(d.values for d in part))
    return [replace(d, entry=entry) for d, entry in zip(part, entries, strict=True)]
