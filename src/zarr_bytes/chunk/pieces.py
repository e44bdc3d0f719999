"""A selection by arrays of indices in pieces, where its elements would take memory twice.

What slices select is read into its place in the result. What arrays of indices select in any order
is read first and then put there, element by element.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from zarr_bytes.chunk.selection import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pieces_of"]


def pieces_of(
    chunk_shape: tuple[int, ...],
    selection: Any,
    out_selection: Any,
    drop_axes: tuple[int, ...],
    most: int,
) -> Iterator[tuple[Any, Any]]:
    """Parts of a selection of a chunk, and where in the result they belong.

    Parameters
    ----------
    chunk_shape : tuple of int
        Shape of the chunk.
    selection : int, slice, array or tuple of these
        As zarr makes it: points by arrays of one dimension, or combinations of slices
        and arrays of which each extends along an axis of its own.
    out_selection : slice, array or tuple of these
        The same elements in the result.
    drop_axes : tuple of int
        Axes of the selection that the result does not have.
    most : int
        Elements of a piece, if the arrays can be divided so far.

    Yields
    ------
    tuple
        A selection of the chunk and one of the result; these two, if there is nothing to divide.

    Examples
    --------
    >>> pieces = pieces_of((4,), np.array([3, 1, 2]), np.array([0, 2, 1]), (), 2)
    >>> [(chunk[0].tolist(), out[0].tolist()) for chunk, out in pieces]
    [([3, 1], [0, 2]), ([2], [1])]
    """
    entries = [_indices(entry) for entry in entries_of(selection)]
    targets = entries_of(out_selection)
    arrays = {i: entry for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)}
    longest = max(arrays, key=lambda i: arrays[i].size, default=0)
    are_points = len(arrays) > 1 and all(array.ndim == 1 for array in arrays.values())
    target = 0 if are_points else longest - sum(axis < longest for axis in drop_axes)
    if not arrays or target >= len(targets):
        yield selection, out_selection
        return
    length = arrays[longest].size
    counts = [array.size for i, array in arrays.items() if i == longest or not are_points]
    for entry, size in zip(entries, chunk_shape, strict=False):
        if isinstance(entry, slice):
            counts.append(len(range(*entry.indices(size))))
    step = max(most * length // max(prod(counts), 1), 1)
    for first in range(0, length, step):
        part = slice(first, first + step)
        yield (
            tuple(
                _part(entry, part) if are_points or i == longest else entry
                for i, entry in enumerate(entries)
            ),
            tuple(_part(t, part) if i == target else t for i, t in enumerate(targets)),
        )


def _indices(entry: Any) -> Any:
    is_bools = isinstance(entry, np.ndarray) and entry.dtype == np.bool_
    return np.flatnonzero(entry) if is_bools else entry


def _part(entry: Any, part: slice) -> Any:
    """A part of the one axis along which `entry` extends."""
    if isinstance(entry, slice):
        indices = range(*entry.indices(2**62))[part]
        return slice(indices.start, indices.stop)
    axis = max(range(entry.ndim), key=entry.shape.__getitem__)
    return entry[(slice(None),) * axis + (part,)]
