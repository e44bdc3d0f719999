"""The byte ranges of a selection, and how the selected elements lie in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.data_type.number_formats import DType

__all__ = ["Plan", "c_strides"]

Offsets: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_AT_ONCE: Final = 2**12  # ranges as Python integers, which take ten times the memory


@dataclass(frozen=True)
class Plan:
    """The byte ranges to fetch, and how the selected elements lie in them.

    Attributes
    ----------
    starts, stops : array of int64
        The ranges: sorted, disjoint, within the chunk, none empty.
    is_whole_chunk : bool
        Whether there is one range, and it is the chunk.
    """

    starts: Offsets
    stops: Offsets
    is_whole_chunk: bool
    _rows: Offsets  # where each run begins in the fetched bytes, in the shape of the outer indices
    _inner_shape: tuple[int, ...]
    _inner_strides: tuple[int, ...]
    _index: tuple[Any, ...]  # a NumPy index of the box (*_rows.shape, *_inner_shape)

    @cached_property
    def nbytes(self) -> int:
        """Number of bytes to fetch."""
        return int((self.stops - self.starts).sum())

    @property
    def runs(self) -> int:
        """Number of runs of bytes that are enumerated."""
        return self._rows.size

    @cached_property
    def is_view(self) -> bool:
        """Whether `select` needs no copy of what was fetched."""
        has_arrays = any(isinstance(entry, np.ndarray) for entry in self._index)
        return not has_arrays and _strides_of(self._rows) is not None

    def ranges(self, first: int = 0) -> Iterator[tuple[int, int, int]]:
        """Start, stop, and position among the fetched bytes, of every range from `first` on."""
        position = int((self.stops[:first] - self.starts[:first]).sum())
        for i in range(first, self.starts.size, _AT_ONCE):
            part = slice(i, i + _AT_ONCE)
            for start, stop in zip(
                self.starts[part].tolist(), self.stops[part].tolist(), strict=True
            ):
                yield start, stop, position
                position += stop - start

    def select(self, fetched: Bytes, dtype: DType) -> npt.NDArray[Any]:
        """The selected elements, out of the bytes of all ranges one after another.

        Parameters
        ----------
        fetched : array of uint8, 1-D
            `nbytes` bytes.
        dtype : numpy.dtype
            Type of the stored elements, byte order included.

        Returns
        -------
        array of `dtype`
            ``chunk[selection]``: a view of `fetched` where the selection allows.
        """
        rows = self._rows
        if rows.size == 0 or prod(self._inner_shape) == 0:
            return np.empty((*rows.shape, *self._inner_shape), dtype)[(*self._index, ...)]
        first = int(rows.flat[0])
        strides = _strides_of(rows)
        if strides is None:  # irregular: bring the runs to a regular distance
            run = sum(
                (n - 1) * s for n, s in zip(self._inner_shape, self._inner_strides, strict=True)
            )
            run += dtype.itemsize
            windows = np.lib.stride_tricks.sliding_window_view(fetched, run)
            fetched = windows[rows.ravel()].ravel()
            first, strides = 0, c_strides(rows.shape, run)
        box = self._box(fetched, dtype, first, strides)
        return np.asarray(box[(*self._index, ...)])

    def place(self, selected: npt.NDArray[Any]) -> Bytes:
        """The bytes of all ranges one after another, out of the selected elements.

        The inverse of `select`, for a plan without a byte between its runs.

        Parameters
        ----------
        selected : array, C-contiguous
            ``chunk[selection]`` as it is stored. Where an element is selected twice, the last one
            counts, as in NumPy.

        Returns
        -------
        array of uint8, 1-D
            A view of `selected` where that is in the order of the chunk.
        """
        if self.is_view:  # nothing is selected twice, and there are no gaps
            return selected.reshape(-1).view(np.uint8)
        placed = np.empty(self.nbytes, np.uint8)
        if self.nbytes:
            strides = _strides_of(self._rows) or ()
            box = self._box(placed, selected.dtype, int(self._rows.flat[0]), strides)
            box[(*self._index, ...)] = selected
        return placed

    def _box(
        self, fetched: Bytes, dtype: DType, first: int, strides: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        shape = (*self._rows.shape, *self._inner_shape)
        return np.ndarray(shape, dtype, fetched, first, (*strides, *self._inner_strides))


def c_strides(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Strides of an array in C order, in bytes.

    Examples
    --------
    >>> c_strides((2, 3), 8)
    (24, 8)
    """
    strides = list(accumulate(reversed(shape[1:]), mul, initial=item_size))
    return tuple(reversed(strides)) if shape else ()


def _strides_of(rows: Offsets) -> tuple[int, ...] | None:
    """Strides that give `rows` from its first element, or None if it is not regular."""
    strides = []
    for axis in range(rows.ndim):
        steps = np.diff(rows, axis=axis)
        if steps.size and (steps != steps.flat[0]).any():
            return None
        strides.append(int(steps.flat[0]) if steps.size else 0)
    return tuple(strides)
