"""A selection by slices and integers, in blocks that a small window of memory holds.

Such a selection lies at regular distances in its chunk, so where a block begins is counted, and not
planned. What is read of a block goes from the window, which stays in the processor's cache, to its
place in the result.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zarr_bytes.chunk.plan import c_strides

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Block", "blocks_of"]

_WORTH: Final = 2**12  # bytes: a block takes a few microseconds, as reading them does


class Block(NamedTuple):
    """Elements that are read together.

    Attributes
    ----------
    place : tuple of int and slice
        NumPy index of the elements in the result.
    start, nbytes : int
        Which bytes of the chunk to read.
    shape, strides : tuple of int
        Of the elements in those bytes.
    """

    place: tuple[int | slice, ...]
    start: int
    nbytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def blocks_of(
    chunk_shape: Sequence[int], item_size: int, selection: Sequence[Any], gap: int, most: int
) -> Iterator[Block] | None:
    """The blocks of a selection.

    Parameters
    ----------
    chunk_shape : sequence of int
        Shape of the chunk.
    item_size : int
        Size of an element, in bytes.
    selection : sequence
        One entry a dimension.
    gap : int
        Bytes between selected ones that are read too, where that saves a request.
    most : int
        Bytes of a block; one element may have more.

    Returns
    -------
    iterator of Block or None
        None for a selection by anything else than integers and slices with positive steps, for an
        empty one, and where the blocks would be small.

    Examples
    --------
    >>> [block.start for block in blocks_of((4, 1000), 8, (slice(1, 3), slice(700)), 0, 6000)]
    [8000, 16000]
    """
    if len(selection) != len(chunk_shape):
        return None
    begin = 0
    counts: list[int] = []  # of the axes of the result, and their distances in bytes
    strides: list[int] = []
    chunk_strides = c_strides(tuple(chunk_shape), item_size)
    for entry, size, stride in zip(selection, chunk_shape, chunk_strides, strict=True):
        if type(entry) is slice:
            indices = range(*entry.indices(size))
            if not indices or indices.step < 1:
                return None
            counts.append(len(indices))
            strides.append(indices.step * stride)
            begin += indices.start * stride
        elif type(entry) is int and 0 <= entry < size:
            begin += entry * stride
        else:
            return None
    # The inner axes are read together as far as the window and the gaps allow; of the one before
    # them, as many indices as fit.
    axis, run = len(counts), item_size
    while axis and strides[axis - 1] - run <= gap:
        span = (counts[axis - 1] - 1) * strides[axis - 1] + run
        if span > most:
            break
        axis, run = axis - 1, span
    length = 1
    if axis and strides[axis - 1] - run <= gap:
        length = max((most - run) // strides[axis - 1] + 1, 1)
    if (length - 1) * (strides[axis - 1] if axis else 0) + run < _WORTH:
        return None
    return _divided(begin, counts, strides, run, axis, length)


def _divided(
    begin: int, counts: list[int], strides: list[int], run: int, axis: int, length: int
) -> Iterator[Block]:
    """Blocks of all indices from `axis` on, and `length` of the axis before."""
    if not axis:
        yield Block((), begin, run, tuple(counts), tuple(strides))
        return
    count, stride = counts[axis - 1], strides[axis - 1]
    for outer in product(*(range(n) for n in counts[: axis - 1])):
        start = begin + sum(i * s for i, s in zip(outer, strides, strict=False))
        for first in range(0, count, length):
            n = min(length, count - first)
            yield Block(
                (*outer, slice(first, first + n)),
                start + first * stride,
                (n - 1) * stride + run,
                (n, *counts[axis:]),
                tuple(strides[axis - 1 :]),
            )
