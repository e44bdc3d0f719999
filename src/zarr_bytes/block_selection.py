"""A selection of an array, with NumPy's rules, and its parts by block; and the values for it."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.errors import in_short
from zarr_bytes.indexing.selection import Selection, combination
from zarr_bytes.io.mapping import owner_of
from zarr_bytes.layout.elements import encode_elements, layout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.indexing.selection import ChunkGrid, Dim, Offsets
    from zarr_bytes.layout.elements import Array

Entry: TypeAlias = "int | range | Offsets"  # without negative integers
_Part: TypeAlias = "tuple[tuple[int, ...], tuple[Any, ...], tuple[Any, ...]]"

FORMS: Final = "permitted are integers, slices, `...` and arrays of integers"
_PIECE: Final = 2**20  # bytes that are gathered at once and stay in the cache
_MOST_ELEMENTS: Final = 2**62  # so that sums of offsets fit into int64


class Selected:
    """A selection, as in ``array[selection]``, of an array that is divided into blocks."""

    def __init__(self, selection: object, grid: ChunkGrid) -> None:
        self._blocks = grid
        self._entries = array_entries(selection, grid.shape)
        self._arrays = [entry for entry in self._entries if isinstance(entry, np.ndarray)]
        # With `...`, the result of NumPy is never a scalar. Between arrays it separates them, also
        # where it stands for no axis.
        given = _entries_of(selection)
        after = next((n for n, entry in enumerate(given[::-1]) if entry is Ellipsis), None)
        self._dots = None if after is None else len(self._entries) - after
        try:
            self._together = np.broadcast_shapes(*[array.shape for array in self._arrays])
        except ValueError:
            shapes = " and ".join([str(array.shape) for array in self._arrays])
            raise IndexError(
                f"arrays of indices of shapes {shapes} cannot be broadcast against each other"
            ) from None
        self._are_points = not self._are_combined()
        if self._are_points and any(isinstance(entry, range) for entry in self._entries):
            raise IndexError(
                f"{FORMS}, the arrays along one axis or along all; found other arrays along several"
                " axes: `array.oindex[...]` of zarr selects every combination of them, and"
                " `array.vindex[...]` points"
            )
        if self._are_points and prod(grid.shape) >= _MOST_ELEMENTS:
            raise IndexError(
                "points are selected in arrays of less than 2**62 elements: use slices"
            )

    def _are_combined(self) -> bool:
        """Whether every combination of the arrays is selected, each with axes of its own."""
        arrays = self._arrays
        long_axes = [{axis - a.ndim for axis in range(a.ndim) if a.shape[axis] > 1} for a in arrays]
        return sum(map(len, long_axes)) == len(set().union(*long_axes))

    def in_one_block(self) -> tuple[tuple[int, ...], tuple[Any, ...]] | None:
        """Place of the block that has the whole selection, and the selection of the block.

        None where the selection is empty or in several blocks.
        """
        place: list[int] = []
        local: list[Any] = []
        for entry, size in zip(self._entries, self._blocks.inner, strict=True):
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

    def read(self, block_of: Callable[..., Array], dtype: DType) -> Array:
        """The selected elements of several blocks, by the array of each, in a new array."""
        selection = self._selection()
        canvas = np.empty(selection.shape, dtype)
        for place, local, out in self._parts(selection, dtype.itemsize):
            canvas[out] = block_of(*place)[local]
        if self._are_points:
            return canvas.reshape(self._together)
        found: Array = canvas[self._in_canvas(0)]
        return found

    def write(self, block_of: Callable[..., Array], value: Array) -> None:
        """Assign a value of the shape of the selection, which is not empty."""
        if (found := self.in_one_block()) is not None:
            place, local = found
            # With `...`, elements are copied, and not converted to Python and back.
            block_of(*place)[local if self._dots is not None else (*local, ...)] = value
            return
        selection = self._selection()
        if self._are_points:
            canvas = value.reshape(-1)
        elif self._is_in_order():
            canvas = value[(*self._in_canvas(None), ...)]
        else:
            canvas = np.empty(selection.shape, value.dtype)
            canvas[self._in_canvas(0)] = value
        parts = list(self._parts(selection, value.itemsize))
        for place, _, _ in parts:  # errors come before any change
            block_of(*place)
        for place, local, out in parts:
            block_of(*place)[local] = canvas[out]

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of ``array[selection]``."""
        sizes = [len(entry) for entry in self._entries if isinstance(entry, range)]
        if not self._arrays:
            return tuple(sizes)
        # The axes of arrays are at the place of the first one, or before all others if there is a
        # slice between arrays.
        first, *_, last = [i for i, e in enumerate(self._entries) if not isinstance(e, range)] * 2
        is_split = self._dots is not None and first < self._dots <= last
        are_together = last - first + 1 + len(sizes) == len(self._entries) and not is_split
        before = first if are_together else 0
        return (*sizes[:before], *self._together, *sizes[before:])

    def _selection(self) -> Selection:
        """The selection in a form of zarr's, with slices of negative steps reversed."""
        shape, entries = self._blocks.shape, self._entries
        if self._are_points:
            points = [np.broadcast_to(entry, self._together).reshape(-1) for entry in entries]
            return Selection(shape, range(len(shape)), tuple(points))
        # Of two axes, so that arrays along all axes are not taken for points.
        found = [
            entry.reshape(1, -1) if isinstance(entry, np.ndarray) else _turned(entry)
            for entry in entries
        ]
        return Selection(shape, range(len(shape)), tuple(found))

    def _is_in_order(self) -> bool:
        """Whether the result has the axes of the canvas, but for those of integers."""
        arrays = self._arrays
        if not arrays or (len(arrays) == 1 and arrays[0].ndim == 1):
            return not arrays or not any(isinstance(entry, int) for entry in self._entries)
        return len(arrays) == len(self._entries) and all(
            array.shape == (*[1] * i, array.size, *[1] * (len(arrays) - i - 1))
            for i, array in enumerate(arrays)
        )

    def _in_canvas(self, integer: int | None) -> tuple[Any, ...]:
        """NumPy index of the result in an array of all axes, or the other way with None."""
        is_in_order = self._is_in_order()
        found: list[Any] = [
            integer
            if isinstance(entry, int)
            else slice(None, None, -1 if entry.step < 0 else 1)
            if isinstance(entry, range)
            else slice(None)
            if is_in_order
            else np.arange(entry.size).reshape(entry.shape)
            for entry in self._entries
        ]
        if self._dots is not None and not is_in_order:
            found.insert(self._dots, ...)
        return tuple(found)

    def _parts(self, selection: Selection, item_size: int) -> Iterator[_Part]:
        """Place of each block, NumPy index of its selection, and NumPy index of the canvas."""
        blocks = self._blocks
        if 0 in selection.shape:  # of any number of blocks
            return
        for number, dims in blocks.parts(blocks.divided(selection)):
            place = blocks.place_of(number)
            if self._are_points:
                local = np.unravel_index(dims[0].indices, blocks.inner)
                yield place, local, (dims[0].out_of(0, len(dims[0].indices)),)
                continue
            for piece in _pieces(dims, item_size):
                out = [dim.out_of(0, len(dim.indices)) for dim in piece]
                yield place, _index(piece), combination(out)


def _turned(entry: int | range) -> int | slice:
    if isinstance(entry, int):
        return entry
    entry = entry[::-1] if entry.step < 0 else entry
    return slice(entry.start, entry.stop, entry.step)


def _pieces(axes: Sequence[Dim], item_size: int) -> Iterator[Sequence[Dim]]:
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
        yield [*axes[:i], axes[i].part(indices[first:last], first), *axes[i + 1 :]]


def _index(axes: Sequence[Dim]) -> tuple[Any, ...]:
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


def _entries_of(selection: Any) -> tuple[Any, ...]:
    return selection if isinstance(selection, tuple) else (selection,)


def array_entries(selection: object, shape: tuple[int, ...]) -> list[Entry]:
    """An entry for each axis of an array of `shape`."""
    before: list[Any] = list(_entries_of(selection))
    after: list[Any] = []
    if any(entry is Ellipsis for entry in before):
        place = next(i for i, entry in enumerate(before) if entry is Ellipsis)
        before, after = before[:place], before[place + 1 :]
    missing = len(shape) - len(before) - len(after)
    if any(entry is None for entry in [*before, *after]):
        raise IndexError(f"{FORMS}, and no new axes: add these to the result")
    if any(entry is Ellipsis for entry in after):
        raise IndexError(f"{FORMS}, and `...` at most once")
    if missing < 0:
        raise IndexError(
            f"the selection has {len(before) + len(after)} entries, and the array {len(shape)} axes"
        )
    entries = [*before, *[slice(None)] * missing, *after]
    return [
        _entry(entry, n, axis) for axis, (entry, n) in enumerate(zip(entries, shape, strict=True))
    ]


def _entry(entry: Any, n: int, axis: int) -> Entry:
    if type(entry) is int:
        return _index_in(entry, n, axis)
    if isinstance(entry, slice):
        try:
            return range(*entry.indices(n))
        except TypeError:
            raise IndexError(f"{FORMS}; found {entry!r}, which has bounds of other types") from None
    if isinstance(entry, str):
        raise IndexError(
            f"{FORMS}; found the text {entry!r}: select a field of the result, and write a"
            " selection as code, such as numpy.s_[7, 1:3]"
        )
    if not isinstance(entry, bool):
        with suppress(TypeError):
            return _index_in(index(entry), n, axis)
    return _indices(entry, n, axis)


def _indices(entry: Any, n: int, axis: int) -> Offsets:
    """An array of indices along an axis of `n` elements."""
    try:
        indices = np.asarray(entry)
    except ValueError:  # lists of several lengths
        raise IndexError(f"{FORMS}; found {in_short(entry)}, which is no array") from None
    if not indices.size and isinstance(entry, list):
        indices = indices.astype(np.int64)  # NumPy takes an empty list for floats
    if indices.dtype == bool:
        if indices.shape != (n,):
            raise IndexError(
                f"{FORMS}, or of bools along one axis of as many elements; found bools of shape"
                f" {indices.shape}: `array.vindex[...]` of zarr takes a mask of the whole array"
            )
        return np.flatnonzero(indices)
    if indices.dtype.kind not in "iu":
        raise IndexError(f"{FORMS}; found {entry!r} of type {type(entry).__qualname__}")
    if not indices.size:
        return indices.astype(np.int64)
    low, high = int(indices.min()), int(indices.max())
    for i in (low, high):
        _index_in(i, n, axis)
    indices = indices.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + n, indices) if low < 0 else indices


def _index_in(i: int, n: int, axis: int) -> int:
    """An index along an axis of `n` elements, counted from its beginning."""
    if -n <= i < n:
        return i + n if i < 0 else i
    raise IndexError(f"index {i} is outside axis {axis}, which has {n} elements")


def elements_to_store(value: object, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The elements that ``array[selection] = value`` stores.

    Everything that NumPy may refuse is converted here, before any chunk is changed.

    Of the data type, in either byte order, with bools of 0 and 1 and with unused bits as they are
    stored. Where possible, a view of `value`; never one of a mapped file.
    """
    # NumPy takes any number from an array, and only those of the data type from Python.
    if isinstance(value, np.ndarray):
        values: Array = np.asarray(value)
    elif isinstance(value, np.generic):
        values = np.empty((), dtype)
        values[()] = value
    else:
        values = np.asarray(value, dtype)
    if not np.can_cast(values.dtype, dtype, "equiv"):
        values = values.astype(dtype)
    layout = layout_of(values.dtype)
    if layout.bool_offsets or layout.narrow_bytes:
        values = encode_elements(values, None).view(values.dtype).reshape(values.shape)
    # NumPy takes care of a value that overlaps its target only within one assignment, and does not
    # know of two mappings of one file.
    if not isinstance(owner_of(values), np.ndarray):
        values = values.copy()
    return _broadcast(values, shape)


def _broadcast(values: Array, shape: tuple[int, ...]) -> Array:
    if values.shape == shape:
        return values
    extra = values.ndim - len(shape)
    is_longer = extra > 0 and values.shape[:extra] == (1,) * extra
    try:
        return np.broadcast_to(values.reshape(values.shape[extra:]) if is_longer else values, shape)
    except ValueError:
        raise ValueError(
            f"the value of shape {values.shape} could not be broadcast to the selection, which has"
            f" the shape {shape}"
        ) from None
