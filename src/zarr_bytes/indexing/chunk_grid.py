"""The division of an array into chunks, or of a shard into inner chunks."""

from __future__ import annotations

from itertools import accumulate, pairwise, product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from zarr_bytes.indexing.selection import Dim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.indexing.selection import Offsets, Selection

Divided: TypeAlias = "list[list[tuple[int, Dim]]]"


def c_strides(
    shape: Sequence[int], item_size: int = 1, order: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Strides of an array whose axes are stored in C order, or in `order`, outermost first."""
    axes = range(len(shape)) if order is None else order
    steps = accumulate([shape[i] for i in reversed(axes)], mul, initial=item_size)
    found = dict(zip(reversed(axes), steps, strict=False))
    return tuple([found[i] for i in range(len(shape))])


class OneRange:
    """A point, a row or a plane: one range of one chunk, in elements."""

    __slots__ = ("count", "number", "shape", "start")

    def __init__(self, number: int, start: int, count: int, shape: tuple[int, ...]) -> None:
        self.number = number  # of the chunk
        self.start, self.count, self.shape = start, count, shape


class ChunkGrid:
    """Chunks of the shape `inner`, whose neighbours have numbers at `distances` along each axis."""

    def __init__(
        self, shape: Sequence[int], inner: Sequence[int], distances: Sequence[int] | None = None
    ) -> None:
        self.shape, self.inner = tuple(shape), tuple(inner)
        self.counts = tuple([-(-n // size) for n, size in zip(shape, inner, strict=True)])
        self.distances = c_strides(self.counts) if distances is None else tuple(distances)
        self.count = prod(self.counts)
        self.strides = c_strides(inner)
        # In this order, numbers ascend.
        self.order = sorted(range(len(self.shape)), key=lambda i: -self.distances[i])
        axes = zip(self.shape, self.inner, self.distances, self.strides, strict=True)
        self._innermost_first = [*axes][::-1]

    def place_of(self, number: int) -> tuple[int, ...]:
        """Index of a chunk along each axis."""
        axes = zip(self.counts, self.distances, strict=True)
        return tuple([number // distance % count for count, distance in axes])

    def number_of(self, place: Sequence[int]) -> int:
        """Number of a chunk, by its index along each axis."""
        return sum(map(mul, place, self.distances))

    def one_range(self, entries: Sequence[Any]) -> OneRange | None:
        """The one range of integers and slices, if it is one; in a tenth of the time of a plan."""
        number = start = 0
        run, is_whole, shape = 1, True, []
        axes = zip(reversed(entries), self._innermost_first)  # noqa: B905 -- slower
        for entry, (n, size, distance, stride) in axes:
            first, count = entry, 1
            if type(entry) is slice:
                first, stop, step = entry.indices(n)
                count = stop - first
                # Outside of a part of an axis there can be a single index alone.
                if step != 1 or count < 1 or (count > 1 and not is_whole):
                    return None
            elif type(entry) is not int:
                return None
            k, local = divmod(first, size)
            if local + count > size:
                return None
            number += k * distance
            start += local * stride
            run *= count
            is_whole = is_whole and count == size
            shape.append(count)
        return OneRange(number, start, run, tuple(shape[::-1]))

    def divided(self, selection: Selection) -> Divided:
        """Indices in chunks along each axis (points: one of offsets), with the chunks' numbers."""
        dims = selection.dims
        if selection.are_points:
            return [list(self._divided_points(dims))]
        if self.count == 1:
            return [[(0, dim)] if len(dim.indices) else [] for dim in dims]
        axes = zip(dims, self.inner, self.distances, strict=True)
        return [[(k * d, part) for k, part in _divided(dim, size)] for dim, size, d in axes]

    def parts(self, along: Divided) -> Iterator[tuple[int, tuple[Dim, ...]]]:
        """Number of each chunk with selected elements, ascending, and their indices in it."""
        order = self.order if len(along) == len(self.order) else [0]
        back = [order.index(i) for i in range(len(order))]
        for found in product(*[along[i] for i in order]):
            yield sum([number for number, _ in found]), tuple([found[i][1] for i in back])

    def _divided_points(self, dims: Sequence[Dim]) -> Iterator[tuple[int, Dim]]:
        out = dims[0].out
        numbers, offsets = np.zeros((2, len(dims[0].indices)), np.int64)
        for dim, size, distance, stride in zip(
            dims, self.inner, self.distances, self.strides, strict=True
        ):
            indices = np.asarray(dim.indices, np.int64)
            outer, local = np.divmod(indices, size) if self.count > 1 else (0, indices)
            numbers += outer * distance
            offsets += local * stride
        # Stable, since the last value counts for a point that is written twice.
        is_one = self.count == 1
        order = np.argsort(offsets, kind="stable") if is_one else np.lexsort((offsets, numbers))
        numbers, offsets = numbers[order], offsets[order]
        out = order + out if isinstance(out, int) else out[order]
        for first, last in runs_of_equals(numbers):
            yield int(numbers[first]), Dim(offsets[first:last], out[first:last])


def _divided(dim: Dim, size: int) -> Iterator[tuple[int, Dim]]:
    """Numbers of the chunks along an axis, each `size` long, and the indices within each."""
    indices = dim.indices
    if not isinstance(indices, range):
        outer = indices // size
        for first, last in runs_of_equals(outer):
            k = int(outer[first])
            if last - first == 1:
                single = int(indices[first]) - k * size
                yield k, dim.part(range(single, single + 1), first)
            else:
                yield k, dim.part(indices[first:last] - k * size, first)
        return
    step, begin, count = indices.step, 0, len(indices)
    while begin < count:
        k, local = divmod(indices[begin], size)
        end = min(begin + (size - local - 1) // step + 1, count)
        yield k, dim.part(range(local, local + (end - begin - 1) * step + 1, step), begin)
        begin = end


def runs_of_equals(ascending: Offsets) -> Iterator[tuple[int, int]]:
    """First and last, exclusive, of each run of equal numbers."""
    edges = np.flatnonzero(np.diff(ascending)) + 1
    return (pair for pair in pairwise([0, *edges.tolist(), ascending.size]) if pair[0] < pair[1])
