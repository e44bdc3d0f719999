"""The value that is assigned to a selection, as the elements to store, with NumPy's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zarr_bytes.chunk.elements import encode_elements
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.mapping import owner_of

if TYPE_CHECKING:
    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.data_type.number_formats import DType

__all__ = ["elements_to_store"]


def elements_to_store(value: object, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The elements that ``array[selection] = value`` stores.

    Everything that NumPy may refuse is converted here, before any chunk is changed.

    Parameters
    ----------
    value : object
        As NumPy takes it.
    dtype : numpy.dtype
        Data type of the array.
    shape : tuple of int
        Shape of the selection.

    Returns
    -------
    array of `shape`
        Of the data type, in either byte order, with bools of 0 and 1 and with unused bits as they
        are stored. Where possible, a view of `value`; never one of a mapped file.

    Raises
    ------
    ValueError
        If the value does not fit the shape.
    OverflowError, TypeError, ValueError
        As NumPy, if the value has no elements of the data type.

    Examples
    --------
    >>> elements_to_store([[7, 8]], np.dtype("u1"), (2,))
    array([7, 8], dtype=uint8)
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
