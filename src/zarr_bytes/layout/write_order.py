"""The orders in which zarr stores the inner chunks of a new shard.

The order only affects where new inner chunks are stored. Readers find inner chunks through the
index of their shard, so metadata doesn't record the order.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr_bytes.indexing.selection import Offsets

WriteOrder: TypeAlias = Literal["morton", "unordered", "lexicographic", "colexicographic"]
"""The values of `subchunk_write_order` in zarr's ``ShardingCodec``."""

WRITE_ORDERS: Final[tuple[str, ...]] = get_args(WriteOrder)


def inner_chunk_numbers_in_write_order(
    counts_along_axes: Sequence[int], write_order: WriteOrder
) -> range | Offsets:
    """Numbers of the inner chunks of a shard, in the order in which they are stored.

    Inner chunks are numbered in C order, as in the index.

    Parameters
    ----------
    counts_along_axes : sequence of int
        Number of inner chunks along each axis of the index.
    write_order : WriteOrder
        "unordered" guarantees no order; it is C order here, as in zarr.

    Returns
    -------
    range or numpy.ndarray
        A range if the result is C order, since a range takes no memory.

    Examples
    --------
    >>> inner_chunk_numbers_in_write_order((2, 3), "lexicographic")
    range(0, 6)
    >>> inner_chunk_numbers_in_write_order((2, 3), "colexicographic")
    array([0, 3, 1, 4, 2, 5])
    >>> inner_chunk_numbers_in_write_order((4, 4), "morton")
    array([ 0,  4,  1,  5,  8, 12,  9, 13,  2,  6,  3,  7, 10, 14, 11, 15])
    """
    count = prod(counts_along_axes)
    is_one_row = sum(n > 1 for n in counts_along_axes) <= 1
    if is_one_row or write_order in ("lexicographic", "unordered"):
        return range(count)
    if write_order == "colexicographic":
        return np.arange(count, dtype=np.int64).reshape(counts_along_axes).ravel(order="F")
    return np.argsort(_morton_codes(counts_along_axes).ravel())


def _morton_codes(counts_along_axes: Sequence[int]) -> Offsets:
    """The Morton code of each inner chunk, as an array of the shape `counts_along_axes`.

    A code interleaves the bits of all indices, from the lowest bit of the first axis on. An axis
    has only as many bits as its last index; the remaining bits of longer axes follow one another.
    """
    codes = np.zeros((1,) * len(counts_along_axes), np.int64)
    lengths = [(n - 1).bit_length() for n in counts_along_axes]
    indices = np.ogrid[tuple(slice(0, n) for n in counts_along_axes)]
    position = 0
    for bit in range(max(lengths)):
        for index, length in zip(indices, lengths, strict=True):
            if bit < length:
                codes = codes | (((index >> bit) & 1) << position)
                position += 1
    return codes
