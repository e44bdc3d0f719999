"""A selection of a chunk as a grid: indices along each axis, and their places in the result.

The *canvas* is a view of the result with one axis for each axis of the chunk, including axes that
integers remove. Points are a grid of one axis, over the chunk as a flat array.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr_bytes.chunk.elements import Array

__all__ = ["Axis", "Grid", "Offsets", "c_strides", "combination"]

Offsets: TypeAlias = npt.NDArray[np.int64]


class Axis(NamedTuple):
    """Selected indices along one axis.

    Attributes
    ----------
    indices : range or array of int64
        Ascending, with repetitions.
    targets : slice or array of int64
        Place of each index along the axis of the canvas.
    """

    indices: range | Offsets
    targets: slice | Offsets

    def number_of(self, target: int) -> int:
        """Number of the index that belongs at `target`."""
        if isinstance(self.targets, slice):
            return target - int(self.targets.start)
        return int(np.flatnonzero(self.targets == target)[0])

    def target_of(self, number: int) -> int:
        """Place of the index of this number, along the axis of the canvas."""
        if isinstance(self.targets, slice):
            return int(self.targets.start) + number
        return int(self.targets[number])

    def targets_of(self, first: int, last: int) -> slice | Offsets:
        """Targets of the indices number `first` to `last`, exclusive."""
        if isinstance(self.targets, slice):
            return slice(self.targets.start + first, self.targets.start + last)
        return self.targets[first:last]


class Grid(NamedTuple):
    """All combinations of the selected indices along the axes of a chunk.

    Attributes
    ----------
    axes : tuple of Axis
        One for each axis of the chunk; one alone for points.
    strides : tuple of int
        Distance of neighbours along each axis in the stored chunk, in elements.
    nesting : tuple of int
        The axes in the order in which they are stored, outermost first.
    shapes : tuple of tuple, int or None
        For each axis, the shape of the array that selects along it, 0 for a slice, None for an
        integer. For points, their shape.
    is_split : bool
        Whether a ``...`` for no axis is between arrays: NumPy puts their axes before all others.
    """

    axes: tuple[Axis, ...]
    strides: tuple[int, ...]
    nesting: tuple[int, ...]
    shapes: tuple[tuple[int, ...] | int | None, ...]
    is_split: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the canvas."""
        return tuple([len(axis.indices) for axis in self.axes])

    @property
    def has_plain_targets(self) -> bool:
        """Whether selected elements lie in the canvas as in the chunk."""
        return all(type(axis.targets) is slice for axis in self.axes)

    def has_all_of(self, chunk_shape: tuple[int, ...]) -> bool:
        """Whether every element of the chunk is selected once, in its order."""
        return (
            self.shape == chunk_shape
            and self.has_plain_targets
            and all(isinstance(axis.indices, range) for axis in self.axes)
        )

    def result_of(self, canvas: Array) -> Array:
        """``chunk[selection]``: a view of the canvas, where NumPy allows it."""
        if not any(map(_is_array, self.shapes)):
            return canvas[tuple([0 if s is None else slice(None) for s in self.shapes] + [...])]
        sizes, order, shape = self._arrangement()
        return canvas.reshape(sizes).transpose(order).reshape(shape)

    def canvas_of(self, result: Array) -> Array:
        """The inverse of `result_of`."""
        if not any(map(_is_array, self.shapes)):
            return result[tuple([None if s is None else slice(None) for s in self.shapes] + [...])]
        sizes, order, _ = self._arrangement()
        in_order = result.reshape([sizes[axis] for axis in order])
        return in_order.transpose(np.argsort(order)).reshape(self.shape)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of ``chunk[selection]``."""
        if any(map(_is_array, self.shapes)):
            return self._arrangement()[2]
        return tuple(n for n, s in zip(self.shape, self.shapes, strict=True) if s is not None)

    def index_of(self, place: tuple[int, ...]) -> tuple[int, ...]:
        """Index in ``chunk[selection]`` of the element at `place` of the canvas."""
        if not any(map(_is_array, self.shapes)):
            return tuple(i for i, s in zip(place, self.shapes, strict=True) if s is not None)
        sizes, order, shape = self._arrangement()
        number = int(np.ravel_multi_index(place, self.shape)) if place else 0
        among = np.unravel_index(number, sizes)
        flat = np.ravel_multi_index([among[i] for i in order], [sizes[i] for i in order])
        return tuple(int(i) for i in np.unravel_index(int(flat), shape))

    def in_result(
        self, out: Array, out_selection: Any, drop_axes: tuple[int, ...]
    ) -> tuple[Array, Grid] | None:
        """The canvas in an array that holds the selections of many chunks, and the grid for it.

        Parameters
        ----------
        out : array
            The result of a read.
        out_selection : tuple
            Place of the selection there: slices, or arrays of integers that each extend along an
            axis of their own.
        drop_axes : tuple of int
            Axes of ``chunk[selection]`` that `out` does not have.

        Returns
        -------
        tuple or None
            None where the canvas is not a view of `out`.
        """
        entries = list(out_selection if isinstance(out_selection, tuple) else (out_selection,))
        if all(type(entry) is slice for entry in entries):
            result = out[(*entries, ...)]  # never a scalar
            canvas = self.canvas_of(np.expand_dims(result, drop_axes) if drop_axes else result)
            return (canvas, self) if np.may_share_memory(canvas, out) else None
        canvas = np.expand_dims(out, drop_axes)
        for axis in sorted(drop_axes):
            entries.insert(axis, slice(None))
        if len(entries) != len(self.axes) or canvas.ndim != len(self.axes):
            return None
        if len(self.axes) > 1 and not self._is_in_order():
            return None
        axes = []
        for (indices, targets), entry, size in zip(self.axes, entries, canvas.shape, strict=True):
            places = np.arange(size)[entry] if type(entry) is slice else np.ravel(entry)
            axes.append(Axis(indices, places[targets]))
        return canvas, self._replace(axes=tuple(axes))

    def _is_in_order(self) -> bool:
        """Whether the result has the axes of the canvas.

        So it is with an array beside slices, or with arrays alone, each along the axis of its own
        number.
        """
        arrays = [s for s in self.shapes if type(s) is tuple]
        if len(arrays) == 1 and None not in self.shapes:
            return len(arrays[0]) == 1
        return len(arrays) == len(self.shapes) and all(
            len(shape) == len(arrays)
            and all(size == 1 for i, size in enumerate(shape) if i != axis)
            for axis, shape in enumerate(arrays)
        )

    def _arrangement(self) -> tuple[list[int], list[int], tuple[int, ...]]:
        """Lengths of the axes that the result has, their order there, and its shape.

        The lengths are in the order of the canvas, without the axes of length 1 of arrays.
        """
        if len(self.shapes) == 1:
            return [len(self.axes[0].indices)], [0], cast("tuple[int, ...]", self.shapes[0])
        arrays = {i: s or () for i, s in enumerate(self.shapes) if not isinstance(s, int)}
        together = np.broadcast_shapes(*arrays.values())
        # The axes of arrays are at the place of the first array, or before all others if there is a
        # slice between arrays.
        first = min(arrays)
        are_together = len(arrays) == max(arrays) - first + 1 and not self.is_split
        before = first if are_together else 0
        axes: list[tuple[tuple[int, int], int]] = []  # place in the result, length
        for i, axis in enumerate(self.axes):
            if i not in arrays:
                axes.append(((0 if i < before else 2, i), len(axis.indices)))
                continue
            for place, size in enumerate(arrays[i], len(together) - len(arrays[i])):
                if size != 1:
                    axes.append(((1, place), size))
        order = sorted(range(len(axes)), key=axes.__getitem__)
        sizes = [size for (part, _), size in sorted(axes) if part != 1]
        shape = (*sizes[:before], *together, *sizes[before:])
        return [size for _, size in axes], order, shape


def c_strides(
    shape: tuple[int, ...], item_size: int = 1, order: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Strides of an array whose axes are stored in C order, or in `order`, outermost first.

    Examples
    --------
    >>> c_strides((2, 3), 8), c_strides((2, 3), 8, order=(1, 0))
    ((24, 8), (8, 16))
    """
    if order is None:
        strides = list(accumulate(reversed(shape[1:]), mul, initial=item_size))
        return tuple(reversed(strides)) if shape else ()
    stored = c_strides(tuple([shape[i] for i in order]), item_size)
    return tuple([stored[order.index(i)] for i in range(len(order))])


def combination(entries: Sequence[slice | Offsets]) -> tuple[Any, ...]:
    """NumPy index of every combination of indices along the axes, with the axes in their order.

    Examples
    --------
    >>> np.zeros((3, 4, 5))[combination([np.array([0, 2]), slice(0, 3), np.array([1])])].shape
    (2, 3, 1)
    """
    if sum(type(entry) is not slice for entry in entries) < 2:
        return tuple(entries)
    return np.ix_(*[np.arange(e.start, e.stop) if type(e) is slice else e for e in entries])


def _is_array(shape: tuple[int, ...] | int | None) -> bool:
    return type(shape) is tuple
