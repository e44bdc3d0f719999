"""A selection of an array, with NumPy's rules, and its parts by block."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.chunk.entries import FORMS, array_entries
from zarr_bytes.chunk.grid import Axis, combination
from zarr_bytes.chunk.selection import entries_of, grid_of_array, together_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from zarr_bytes.chunk.division import Division
    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.entries import Entry
    from zarr_bytes.chunk.grid import Grid, Offsets
    from zarr_bytes.data_type.number_formats import DType

__all__ = ["Selected"]

_Part: TypeAlias = "tuple[tuple[int, ...], tuple[Any, ...], tuple[Any, ...]]"

_PIECE: Final = 2**20  # bytes that are gathered at once and stay in the cache


class Selected:
    """A selection of an array that is divided into blocks.

    Parameters
    ----------
    selection : object
        As in ``array[selection]``: integers, slices, ``...`` and arrays of integers.
    division : Division
        The division of the array into blocks.

    Raises
    ------
    IndexError
        If the selection has another form, or an index is outside the array.
    """

    def __init__(self, selection: object, division: Division) -> None:
        self._division = division
        self._entries = array_entries(selection, division.shape)
        self._arrays = sum(isinstance(entry, np.ndarray) for entry in self._entries)
        # With `...`, the result of NumPy is never a scalar. Between arrays it separates them, also
        # where it stands for no axis.
        given = entries_of(selection)
        after = next((n for n, entry in enumerate(given[::-1]) if entry is Ellipsis), None)
        self._dots = None if after is None else len(self._entries) - after
        self._grid = self._made_grid() if self._arrays > 1 else None

    @property
    def grid(self) -> Grid:
        """The selection of the array as a grid, with slices of negative steps reversed."""
        if self._grid is None:
            self._grid = self._made_grid()
        return self._grid

    def in_one_block(self) -> tuple[tuple[int, ...], tuple[Any, ...]] | None:
        """Place of the block that has the whole selection, and the selection of the block.

        None where the selection is empty or in several blocks.
        """
        place: list[int] = []
        local: list[Any] = []
        for entry, size in zip(self._entries, self._division.inner_shape, strict=True):
            if isinstance(entry, int):
                k, inside = divmod(entry, size)
                local.append(inside)
            elif not _size(entry):
                return None
            else:
                low, high = _bounds(entry)
                k = low // size
                if high // size != k:
                    return None
                local.append(_moved(entry, -k * size))
            place.append(k)
        if self._dots is not None:
            local.insert(self._dots, ...)
        return tuple(place), tuple(local)

    def of_nothing(self, dtype: DType) -> Array | None:
        """The result, where no element is selected."""
        if all(isinstance(entry, int) or _size(entry) for entry in self._entries):
            return None
        return np.empty(self.result_shape, dtype)

    def read(self, block_of: Callable[..., Array], dtype: DType) -> Array:
        """The selected elements of several blocks, in a new array.

        Parameters
        ----------
        block_of : callable
            Function from the place of a block to its array.
        dtype : numpy.dtype
            Data type of the elements.
        """
        canvas = np.empty(self.grid.shape, dtype)
        for place, local, targets in self._parts(dtype.itemsize):
            canvas[targets] = block_of(*place)[local]
        return self.grid.result_of(canvas[self._turns()])

    def write(self, block_of: Callable[..., Array], value: Array) -> None:
        """Assign a value of the shape of the selection, which is not empty."""
        if (found := self.in_one_block()) is not None:
            place, local = found
            # With `...`, elements are copied, and not converted to Python and back.
            block_of(*place)[local if self._dots is not None else (*local, ...)] = value
            return
        canvas = self.grid.canvas_of(value)[self._turns()]
        parts = list(self._parts(value.itemsize))
        for place, _, _ in parts:  # errors come before any change
            block_of(*place)
        for place, local, targets in parts:
            block_of(*place)[local] = canvas[targets]

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of ``array[selection]``."""
        if self._arrays:
            return self.grid.result_shape
        return tuple([len(entry) for entry in self._entries if isinstance(entry, range)])

    def _made_grid(self) -> Grid:
        turned = [
            entry[::-1] if isinstance(entry, range) and entry.step < 0 else entry
            for entry in self._entries
        ]
        grid = grid_of_array(self._division.shape, turned)
        if grid is None:
            raise IndexError(self._refusal())
        if self._dots is None:
            return grid
        joined = [i for i, entry in enumerate(self._entries) if not isinstance(entry, range)]
        return grid._replace(is_split=bool(joined) and joined[0] < self._dots <= joined[-1])

    def _refusal(self) -> str:
        """The reason why there is no grid for several arrays."""
        arrays = [entry for entry in self._entries if isinstance(entry, np.ndarray)]
        if together_of(arrays) is None:
            shapes = " and ".join([str(array.shape) for array in arrays])
            return f"arrays of indices of shapes {shapes} cannot be broadcast against each other"
        if not any(isinstance(entry, range) for entry in self._entries):
            return "points are selected in arrays of less than 2**62 elements: use slices"
        return (
            f"{FORMS}, the arrays along one axis or along all; found other arrays along several"
            " axes: `array.oindex[...]` of zarr selects every combination of them, and"
            " `array.vindex[...]` points"
        )

    def _turns(self) -> tuple[Any, ...]:
        """NumPy index that reverses the canvas along axes with a negative step."""
        steps = [entry.step if isinstance(entry, range) else 1 for entry in self._entries]
        return (*[slice(None, None, -1 if step < 0 else 1) for step in steps][: self._axes], ...)

    @property
    def _axes(self) -> int:
        return len(self.grid.axes)

    def _parts(self, item_size: int) -> Iterator[_Part]:
        """Place of each block, NumPy index of its selection, and NumPy index of the canvas."""
        division = self._division
        for number, axes in division.parts(self.grid):
            place = division.place_of(number)
            if self._axes != len(division.shape):  # points
                local = np.unravel_index(axes[0].indices, division.inner_shape)
                yield place, local, (axes[0].targets,)
                continue
            for piece in _pieces(axes, item_size):
                yield place, _index(piece), combination([axis.targets for axis in piece])


def _pieces(axes: Sequence[Axis], item_size: int) -> Iterator[Sequence[Axis]]:
    """The axes, in pieces along the axis that has an array of indices.

    NumPy gathers the elements that an array of indices selects in new memory.
    """
    arrays = [i for i, axis in enumerate(axes) if not isinstance(axis.indices, range)]
    if len(arrays) != 1:
        yield axes
        return
    (i,) = arrays
    indices = axes[i].indices
    nbytes = item_size * prod([len(axis.indices) for k, axis in enumerate(axes) if k != i])
    count = max(_PIECE // max(nbytes, 1), 1)
    for first in range(0, len(indices), count):
        last = min(first + count, len(indices))
        axis = Axis(indices[first:last], axes[i].targets_of(first, last))
        yield [*axes[:i], axis, *axes[i + 1 :]]


def _index(axes: Sequence[Axis]) -> tuple[Any, ...]:
    """NumPy index of every combination of the indices of a block."""
    entries = [axis.indices for axis in axes]
    if sum(not isinstance(entry, range) for entry in entries) > 1:
        return np.ix_(*map(np.asarray, entries))
    return tuple([_moved(entry, 0) for entry in entries])


def _moved(entry: Entry, distance: int) -> int | slice | Offsets:
    """NumPy index of indices plus a distance."""
    if not isinstance(entry, range):
        return entry + distance if distance else entry
    if not entry:
        return slice(0, 0)
    stop = entry[-1] + distance + (1 if entry.step > 0 else -1)
    return slice(entry.start + distance, None if stop < 0 else stop, entry.step)


def _size(entry: range | Offsets) -> int:
    return len(entry) if isinstance(entry, range) else entry.size


def _bounds(entry: range | Offsets) -> tuple[int, int]:
    """The smallest and the largest index."""
    if isinstance(entry, range):
        return min(entry[0], entry[-1]), max(entry[0], entry[-1])
    return int(entry.min()), int(entry.max())
