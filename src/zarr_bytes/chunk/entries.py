"""The entries of a selection of an array, one for each axis, with NumPy's rules."""

from __future__ import annotations

from contextlib import suppress
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.chunk.selection import entries_of
from zarr_bytes.errors import in_short

if TYPE_CHECKING:
    from zarr_bytes.chunk.grid import Offsets

__all__ = ["FORMS", "Entry", "array_entries"]

Entry: TypeAlias = "int | range | Offsets"
"""Without negative integers."""

FORMS: Final = "permitted are integers, slices, `...` and arrays of integers"
"""The forms of a selection, for messages."""


def array_entries(selection: object, shape: tuple[int, ...]) -> list[Entry]:
    """An entry for each axis of an array of `shape`.

    Parameters
    ----------
    selection : object
        As in ``array[selection]``: integers, slices, ``...``, and arrays of integers, or of bools
        along one axis.
    shape : tuple of int

    Returns
    -------
    list of int, range or array of int64

    Raises
    ------
    IndexError
        If the selection has another form, or an index is outside the array.

    Examples
    --------
    >>> array_entries((..., slice(None, None, 2), -1), (2, 3, 4))
    [range(0, 2), range(0, 3, 2), 3]
    """
    before: list[Any] = list(entries_of(selection))
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
