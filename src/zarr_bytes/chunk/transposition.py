"""Selections of a chunk whose axes are stored in another order.

Specification: transpose codec 1.0. Stored axis ``i`` is axis ``order[i]`` of the array, so a
selection of the array is a selection of the stored chunk with its entries exchanged, and no other
bytes need to be read or written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zarr_bytes.chunk.selection import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["Transposition"]


@dataclass(frozen=True)
class Transposition:
    """The order in which the axes of a chunk are stored.

    Parameters
    ----------
    order : tuple of int or None
        Axis of the array that each stored axis is; None where they are in the array's order.

    Examples
    --------
    >>> Transposition((1, 0)).selection((slice(2), 1))
    (1, slice(None, 2, None))
    """

    order: tuple[int, ...] | None

    @classmethod
    def of(cls, orders: Iterable[Sequence[int]]) -> Transposition:
        """Of several transposes one after another.

        Examples
        --------
        >>> Transposition.of([(1, 2, 0), (1, 0, 2)])
        Transposition(order=(2, 1, 0))
        """
        composed: tuple[int, ...] = ()
        for order in orders:
            composed = tuple(composed[i] if composed else i for i in order)
        return cls(None if composed == tuple(sorted(composed)) else composed)

    def spec(self, chunk_spec: ArraySpec) -> ArraySpec:
        """Spec of the chunk as it is stored."""
        if self.order is None:
            return chunk_spec
        return replace(chunk_spec, shape=tuple(chunk_spec.shape[axis] for axis in self.order))

    def selection(self, selection: SelectorTuple) -> tuple[Any, ...]:
        """The same elements of the stored chunk; one entry an axis."""
        entries = entries_of(selection)
        return entries if self.order is None else tuple(entries[axis] for axis in self.order)

    def is_possible(self, selection: SelectorTuple) -> bool:
        """Whether it is known how the axes of ``chunk[selection]`` are exchanged.

        Not where several arrays stand beside slices, or one beside slices and integers: there NumPy
        moves axes, and zarr asks for no such selection.
        """
        if self.order is None:
            return True
        entries = entries_of(selection)
        arrays = [entry for entry in entries if np.ndim(entry)]
        slices = sum(isinstance(entry, slice) for entry in entries)
        is_one_axis = len(arrays) == 1 and np.ndim(arrays[0]) == 1
        return len(entries) == len(self.order) and (
            not arrays or not slices or (is_one_axis and slices + 1 == len(entries))
        )

    def to_stored(self, array: Array, selection: SelectorTuple) -> Array:
        """``chunk[selection]`` as a view with its axes as they are stored."""
        return array if self.order is None else array.transpose(self._axes(selection))

    def from_stored(self, array: Array, selection: SelectorTuple) -> Array:
        """The inverse of `to_stored`."""
        return array if self.order is None else array.transpose(np.argsort(self._axes(selection)))

    def _axes(self, selection: SelectorTuple) -> tuple[int, ...]:
        entries = entries_of(selection)
        arrays = [entry for entry in entries if np.ndim(entry)]
        if arrays and not any(isinstance(entry, slice) for entry in entries):
            # Broadcast against each other, in whatever order they stand.
            return tuple(range(max(np.ndim(array) for array in arrays)))
        kept = [i for i, entry in enumerate(entries) if isinstance(entry, slice) or np.ndim(entry)]
        return tuple(kept.index(axis) for axis in self.order or () if axis in kept)
