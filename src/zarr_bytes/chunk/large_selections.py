"""Reading a large selection of a file straight into the result, in memory of bounded size.

What is read goes block by block through memory that stays in the processor's cache, so that neither
a buffer of the chunk's size nor one of the selection's is made.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.chunk.blocks import blocks_of
from zarr_bytes.chunk.elements import BLOCK
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.parts import LIMITS, Limits, Parts, plan_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.chunk.blocks import Block
    from zarr_bytes.chunk.elements import Array
    from zarr_bytes.chunk.files import OpenFile
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.reading import Chunks
    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.settings import Cost

__all__ = ["in_blocks", "in_parts"]

Reading: TypeAlias = "Callable[[OpenFile], None]"

_OUT_OF_ORDER: Final = 16 * BLOCK
_PARTS: Final = Limits(fetched=2**23, runs=LIMITS.runs, views=False)


def in_blocks(
    chunks: Chunks, selection: tuple[Any, ...], target: Array, endian: Endian | None, cost: Cost
) -> Reading | None:
    """How to read a selection by slices, block by block.

    Parameters
    ----------
    chunks : Chunks
        What there is of the chunk.
    selection : tuple
        Of what is stored; one entry a dimension.
    target : array
        A view of the result that has the shape of the selection.
    endian : {"little", "big"} or None
        Byte order that is stored; None means that of the data type.
    cost : Cost
        What a range of the file costs.

    Returns
    -------
    callable or None
        What reads from an open file; None where the selection has another form, the blocks would
        be small, or the elements must be looked at.
    """
    if chunks.stored.newbyteorder("=") != target.dtype.newbyteorder("="):
        return None
    layout = layout_of(target.dtype, endian)
    if layout.bool_offsets or layout.narrow_bytes:
        return None
    # A larger window fills the lines of the cache where the axes are stored in another order.
    is_in_order = list(target.strides) == sorted(target.strides, reverse=True)
    most = min(BLOCK if is_in_order else _OUT_OF_ORDER, cost.largest_request)
    shape, item_size, stored = chunks.shape, chunks.item_size, layout.stored
    number = layout.number
    if number is None or layout.is_stored_as_is:
        target = target.view(layout.units)
    else:  # the numbers of an element are an axis more
        target = target[..., np.newaxis].view(number)
        shape, selection = (*shape, target.shape[-1]), (*selection, slice(None))
        item_size, stored = number.itemsize, number.newbyteorder()
    blocks = blocks_of(shape, item_size, selection, cost.gap, most)
    return None if blocks is None else partial(_read_blocks, blocks, target, stored)


def in_parts(
    chunks: Chunks, selection: tuple[Any, ...], target: Array, cost: Cost
) -> Reading | None:
    """How to read any other selection in parts of bounded size; None if it has none.

    Parameters
    ----------
    chunks, selection, target, cost
        As for `in_blocks`.
    """
    parts = plan_selection(chunks.shape, chunks.item_size, selection, cost, _PARTS)
    if not isinstance(parts, Parts):
        return None
    filled = parts.filled(target)
    is_view = np.may_share_memory(filled, target)
    return partial(_read_parts, parts, chunks, filled) if is_view else None


def _read_blocks(blocks: Iterator[Block], target: Array, stored: DType, file: OpenFile) -> None:
    for place, start, nbytes, shape, strides in blocks:
        fetched = file.read_range(start, nbytes)
        target[place] = np.ndarray(shape, stored, fetched, strides=strides)


def _read_parts(parts: Parts, chunks: Chunks, filled: Array, file: OpenFile) -> None:
    for places, plan in parts.plans:
        elements = chunks.elements(plan, file.read(plan), is_ours=True)
        for target, source in places:
            filled[target] = elements[source]
