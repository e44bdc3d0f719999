"""The elements of a chunk to bytes, block by block, for the writing of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.elements import encode_elements
from zarr_bytes.chunk.layout import layout_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian

__all__ = ["encode_in_blocks"]


def encode_in_blocks(array: Array, endian: Endian | None) -> Iterator[Bytes]:
    r"""`encode_elements`, block by block, so that no copy of all elements is made.

    Parameters
    ----------
    array, endian
        As for `encode_elements`.

    Yields
    ------
    array of uint8, 1-D
        Everything as a view of `array` where its memory has these bytes already, otherwise blocks
        of bounded size, or of one element.

    Examples
    --------
    >>> import numpy as np
    >>> [bytes(block) for block in encode_in_blocks(np.array([1, 2], "<u2"), "big")]
    [b'\x00\x01\x00\x02']
    """
    if array.flags.c_contiguous:
        layout = layout_of(array.dtype, endian)
        is_view = layout.is_stored_as_is and not (layout.bool_offsets or layout.narrow_bytes)
        if is_view or array.nbytes <= limits.LIMITS.block:
            yield encode_elements(array, endian)
            return
        array = array.reshape(-1)
    elif array.nbytes <= limits.LIMITS.block:
        yield encode_elements(array, endian)
        return
    rows = limits.LIMITS.block * len(array) // array.nbytes
    if rows == 0 and array.ndim > 1:
        for row in array:
            yield from encode_in_blocks(row, endian)
        return
    for start in range(0, len(array), rows or 1):
        yield encode_elements(array[start : start + (rows or 1)], endian)
