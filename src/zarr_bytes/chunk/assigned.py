"""The value that is assigned to a selection, as the elements to store, with NumPy's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
        Of the data type, in either byte order. Where possible, a view of `value`.

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
    is_numpys = isinstance(value, np.ndarray | np.generic)
    values: Array = np.asarray(value) if is_numpys else np.asarray(value, dtype)
    if not np.can_cast(values.dtype, dtype, "equiv"):
        values = values.astype(dtype)
    return _broadcast(values, shape)


def _broadcast(values: Array, shape: tuple[int, ...]) -> Array:
    extra = values.ndim - len(shape)
    is_longer = extra > 0 and values.shape[:extra] == (1,) * extra
    try:
        return np.broadcast_to(values.reshape(values.shape[extra:]) if is_longer else values, shape)
    except ValueError:
        raise ValueError(
            f"the value of shape {values.shape} could not be broadcast to the selection, which has"
            f" the shape {shape}"
        ) from None
