"""The elements of a chunk to bytes, block by block, for the writing of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr_bytes import limits
from zarr_bytes.layout.element import layout_of
from zarr_bytes.layout.elements import encode_elements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.layout.element import Endian
    from zarr_bytes.layout.elements import Array, Bytes


def encode_in_blocks(array: Array, endian: Endian | None) -> Iterator[Bytes]:
    """`encode_elements`, in blocks of bounded size, or as a whole where that is a view."""
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
