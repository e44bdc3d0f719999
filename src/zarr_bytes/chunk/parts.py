"""A selection in parts, where reading it at once would take memory of its own accord.

What gaps between the selected bytes bridge is read with them, and a plan has numbers for each run
of bytes. Both are bounded here: a selection of which more than that would be needed is divided, and
of each part only what was selected is kept. The memory is that of the result, of the indices that
were selected one by one, and a few times `LIMITS.fetched`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from zarr_bytes.chunk.byte_ranges import (
    MOST_BYTES,
    are_points,
    number_of_runs,
    offsets_of,
    plan_grid,
    plan_points,
)
from zarr_bytes.chunk.selection import dimensions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.chunk.byte_ranges import Offsets, Plan
    from zarr_bytes.chunk.selection import Dimension
    from zarr_bytes.settings import Cost

__all__ = ["LIMITS", "Limits", "Parts", "plan_selection"]


class Limits(NamedTuple):
    """What a plan may take.

    Attributes
    ----------
    fetched : int
        Bytes that are fetched without being selected, and all that are fetched for a part.
    runs : int
        Runs of bytes, each of which takes some fifty bytes while it is planned.
    """

    fetched: int
    runs: int


LIMITS: Final = Limits(fetched=2**25, runs=2**18)


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
        if plan.nbytes <= limits.fetched or (unselected <= limits.fetched and plan.is_regular):
            return plan
    return chunk.parts_of_grid(dimensions)


@dataclass(frozen=True)
class Parts:
    """The parts of a selection.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array that the parts fill.
    plans : iterator of (index, Plan)
        Where in that array a part belongs, and its plan, which is made when it is asked for.
    index : tuple
        NumPy index of that array that gives what was selected.
    """

    shape: tuple[int, ...]
    plans: Iterator[tuple[Any, Plan]]
    index: tuple[Any, ...]


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

        def plans() -> Iterator[tuple[Any, Plan]]:
            for first in range(0, flat.size, self.limits.runs):
                where = np.arange(first, min(first + self.limits.runs, flat.size))
                where = where if order is None else order[where]
                for part in self._of_few_bytes(flat[where]):
                    plan = plan_points(flat[where[part]], self.shape, self.item_size, self.cost)
                    yield np.unravel_index(where[part], offsets.shape), plan

        return Parts(offsets.shape, plans(), ())

    def _of_few_bytes(self, points: Offsets) -> Iterator[slice]:
        # Bytes that are fetched up to each point, where it is read together with the one before.
        bridged = np.minimum(np.diff(points), self.cost.gap + self.item_size).cumsum()
        begin = 0
        while begin < points.size:
            most = self.limits.fetched - self.item_size + (bridged[begin - 1] if begin else 0)
            end = max(int(np.searchsorted(bridged, most, "right")) + 1, begin + 1)
            yield slice(begin, end)
            begin = end

    def parts_of_grid(self, dimensions: Sequence[Dimension]) -> Parts:
        """The box of all combinations, divided in two where it takes too much."""
        box = [d.distinct() for d in dimensions]
        shape = tuple(d.count for d in box)
        index = tuple(
            0 if isinstance(d.entry, int) else d.among(distinct.entry)
            for d, distinct in zip(dimensions, box, strict=True)
        )
        return Parts(shape, self._halves(box, tuple(slice(0, n) for n in shape)), index)

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


def _as_grid(part: Sequence[Dimension]) -> Sequence[Dimension]:
    """Arrays so shaped that NumPy takes every combination, and puts none of their axes first."""
    if sum(isinstance(d.entry, np.ndarray) for d in part) < 2:
        return part
    entries = np.ix_(*(d.values() for d in part))
    return [replace(d, entry=entry) for d, entry in zip(part, entries, strict=True)]
