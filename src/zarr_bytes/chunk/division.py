"""A selection divided by chunk: the chunks of an array, or the inner chunks of a shard."""

from __future__ import annotations

from itertools import pairwise, product
from math import lcm, prod
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zarr_bytes.chunk.grid import Axis, c_strides

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.chunk.grid import Grid, Offsets

__all__ = ["Alike", "Division", "by_itself"]


class Alike(NamedTuple):
    """Chunks with selected elements at the same places.

    Attributes
    ----------
    times : int
        Number of chunks.
    number : int
        Number of one of these chunks.
    axes : tuple of Axis
        Indices in this chunk, and their targets, as in `Division.parts`.
    are_complete : bool
        Whether the selection has everything of these chunks that is within the array.
    """

    times: int
    number: int
    axes: tuple[Axis, ...]
    are_complete: bool


class Division:
    """The division of an array into chunks of one shape, or of a shard into inner chunks.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array or shard.
    inner_shape : tuple of int
        Shape of a chunk.
    nesting : tuple of int
        The axes in the order in which they are stored, outermost first.
    number_order : tuple of int
        The axes in the order in which chunks are numbered, outermost first.

    Attributes
    ----------
    counts : tuple of int
        Number of chunks along each axis.
    count : int
        Number of all chunks.
    distances : tuple of int
        Distance of neighbours along each axis, in the numbers of chunks.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        inner_shape: tuple[int, ...],
        nesting: Sequence[int],
        number_order: Sequence[int],
    ) -> None:
        self.shape = shape
        self.inner_shape = inner_shape
        self.nesting = nesting
        self.number_order = number_order
        self.counts = tuple([-(-n // size) for n, size in zip(shape, inner_shape, strict=True)])
        self.count = prod(self.counts)
        self.distances = c_strides(self.counts, order=number_order)
        self._strides = c_strides(inner_shape, order=nesting)

    def place_of(self, number: int) -> tuple[int, ...]:
        """Index of a chunk along each axis."""
        along = zip(self.counts, self.distances, strict=True)
        return tuple([number // distance % count for count, distance in along])

    def number_of(self, place: tuple[int, ...]) -> int:
        """Number of a chunk, by its index along each axis."""
        return sum(map(mul, place, self.distances))

    def inside(self, grid: Grid) -> Grid:
        """The grid of a selection, with the strides of a chunk."""
        return grid if self._has_points(grid) else grid._replace(strides=self._strides)

    def most_parts(self, grid: Grid) -> int:
        """Number of `parts`, at most."""
        if self._has_points(grid) or 0 in grid.shape:
            return prod(grid.shape)
        sizes = zip(grid.axes, self.inner_shape, strict=True)
        return prod([min(i[-1] // n - i[0] // n + 1, len(i)) for (i, _), n in sizes])

    def parts(self, grid: Grid) -> Iterator[tuple[int, tuple[Axis, ...]]]:
        """The chunks with selected elements, and the selection of each.

        Parameters
        ----------
        grid : Grid
            The selection, made by `grid_of` or put into a result.

        Yields
        ------
        tuple of int, tuple of Axis
            Number of a chunk, and its axes for the grid `inside`, with the targets of `grid`.
        """
        if self._has_points(grid):
            yield from self._parts_of_points(grid)
            return
        along = [
            [
                (k * self.distances[i], axis)
                for k, axis in _divided(grid.axes[i], self.inner_shape[i])
            ]
            for i in self.number_order
        ]
        places = [self.number_order.index(i) for i in range(len(self.number_order))]
        for combined in product(*along):
            yield (
                sum([number for number, _ in combined]),
                tuple([combined[place][1] for place in places]),
            )

    def alike(self, grid: Grid) -> Iterator[Alike]:
        """`parts`, grouped by the places of elements in the chunk; points are not grouped."""
        if self._has_points(grid):
            for number, axes in self._parts_of_points(grid):
                yield Alike(1, number, axes, are_complete=False)
            return
        for combined in product(
            *(
                _alike_along(axis, n, size)
                for axis, n, size in zip(grid.axes, self.shape, self.inner_shape, strict=True)
            )
        ):
            yield Alike(
                prod([count for count, _, _, _ in combined]),
                sum([k * n for (_, k, _, _), n in zip(combined, self.distances, strict=True)]),
                tuple([axis for _, _, axis, _ in combined]),
                are_complete=all(is_complete for _, _, _, is_complete in combined),
            )

    def _has_points(self, grid: Grid) -> bool:
        return len(grid.axes) != len(self.shape)

    def _parts_of_points(self, grid: Grid) -> Iterator[tuple[int, tuple[Axis, ...]]]:
        indices, targets = grid.axes[0]
        flat = np.asarray(indices, np.int64)
        places = np.arange(flat.size) if isinstance(targets, slice) else targets
        numbers, offsets = np.zeros((2, flat.size), np.int64)
        points = np.unravel_index(flat, [self.shape[i] for i in self.nesting])
        for i, along in zip(self.nesting, points, strict=True):
            outer, local = np.divmod(along, self.inner_shape[i])
            numbers += outer * self.distances[i]
            offsets += local * self._strides[i]
        # Stable, since the last value counts for a point that is written twice.
        order = np.lexsort((offsets, numbers))
        numbers, offsets, places = numbers[order], offsets[order], places[order]
        for part in _equal(numbers):
            yield int(numbers[part.start]), (Axis(offsets[part], places[part]),)


def by_itself(inside: Grid, axes: tuple[Axis, ...]) -> Grid:
    """The grid of one chunk, with a canvas for its selected elements alone."""
    own = [Axis(indices, slice(0, len(indices))) for indices, _ in axes]
    return inside._replace(axes=tuple(own))


def _divided(axis: Axis, size: int) -> Iterator[tuple[int, Axis]]:
    """Numbers of the chunks along an axis, each `size` long, and the indices within each."""
    indices = axis.indices
    if isinstance(indices, range):
        step, first = indices.step, 0
        while first < len(indices):
            k, local = divmod(indices[first], size)
            last = min(first + (size - local - 1) // step + 1, len(indices))
            inner = range(local, local + (last - first - 1) * step + 1, step)
            yield k, Axis(inner, axis.targets_of(first, last))
            first = last
        return
    outer = indices // size
    for part in _equal(outer):
        k = int(outer[part.start])
        yield k, Axis(indices[part] - k * size, axis.targets_of(part.start, part.stop))


def _alike_along(axis: Axis, n: int, size: int) -> list[tuple[int, int, Axis, bool]]:
    """`_divided` along an axis of `n`, with equal chunks counted, and whether each is complete."""
    found: dict[object, tuple[int, int, Axis, bool]] = {}
    for times, part in _periods(axis, size):
        for k, inner in _divided(part, size):
            is_range = isinstance(inner.indices, range)
            is_complete = is_range and inner.indices == range(min(size, n - k * size))
            key = (inner.indices, is_complete) if is_range else k
            count, first, alike, _ = found.get(key, (0, k, inner, is_complete))
            found[key] = count + times, first, alike, is_complete
    return list(found.values())


def _periods(axis: Axis, size: int) -> Iterator[tuple[int, Axis]]:
    """Parts of an axis, and how often each is repeated: an axis may have very many chunks.

    The first chunk and the last ones are parts of their own, because they may be cut. The places of
    a range in the chunks between them are periodic.
    """
    indices = axis.indices
    if not (isinstance(indices, range) and indices):
        yield 1, axis
        return
    head = min(-(-(size - indices[0] % size) // indices.step), len(indices))
    period = lcm(size, indices.step) // indices.step
    times = max(len(indices) - head - 1, 0) // period
    parts = [(1, 0, head), (times, head, head + period), (1, head + times * period, len(indices))]
    for count, first, last in parts:
        if count and first < last:
            yield count, Axis(indices[first:last], axis.targets_of(first, last))


def _equal(ascending: Offsets) -> Iterator[slice]:
    """Slices of equal numbers."""
    edges = np.flatnonzero(np.diff(ascending)) + 1
    return (slice(i, j) for i, j in pairwise([0, *edges.tolist(), ascending.size]) if i < j)
