"""The blocks of an array, its chunks or the inner chunks of its shards, as NumPy arrays.

Nothing is copied: a block is an array over the bytes of its chunk, with the strides of the stored
order, cut at the edges of the array.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from zarr_bytes.chains import plain_parts, stored_by
from zarr_bytes.errors import StoreError
from zarr_bytes.indexing.selection import ChunkGrid, c_strides
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.layout.elements import stored_dtype
from zarr_bytes.layout.format import CHUNK_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import zarr

    from zarr_bytes.io.mapping import ChangedFiles
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.format import AnyIndex


class Blocks:
    """The blocks of an array, of which the last `most` are kept: of shards, half as many.

    A StoreError with the reason if NumPy cannot view them. `changed` gets the files that may be
    changed through them.
    """

    def __init__(self, array: zarr.Array[Any], changed: ChangedFiles | None, most: int) -> None:
        self._driver, self._changed = driver_of(array.store), changed
        if reason := self._driver.why_no_view():
            raise StoreError(reason)
        chain, metadata, spec = plain_parts(array)
        self._format = format = stored_by(chain).format_of(spec)
        dtype = stored_dtype(format.dtype, format.endian)
        if dtype is None:
            stored = f"{format.dtype} is stored {format.endian}-endian"
            raise StoreError(f"its {stored}, a type that NumPy does not have")
        self.dtype, self.sizes = dtype, format.inner_shape
        self.grid = ChunkGrid(array.shape, self.sizes)
        self._strides = c_strides(self.sizes, format.item_size, format.order)
        self._encode, self._prefix = metadata.encode_chunk_key, f"{array.path}/" * bool(array.path)
        # A shard, which has several blocks, is opened once for them.
        self.most = most // 2 if format.index_nbytes else most
        self._kept_object = lru_cache(most - self.most)(self._object)

    def load(self, *place: int) -> Array:
        """The block with an index along each axis."""
        grid, format = self.grid, self._format
        if not all(0 <= i < count for i, count in zip(place, grid.counts, strict=True)):
            raise IndexError(f"there is no block {place} in {grid.counts} blocks")
        axes = zip(place, self.sizes, grid.shape, strict=True)
        shape = tuple([min(size, n - i * size) for i, size, n in axes])
        counts = [format.grid.counts[i] for i in format.back]
        among = [divmod(i, n) for i, n in zip(place, counts, strict=True)]
        content, index = self._kept_object(tuple([i for i, _ in among]))
        inner = format.grid.number_of(format.stored_order([i for _, i in among]))
        offset = None if content is None else index.offset(inner)
        if offset is None:
            return np.ndarray(shape, self.dtype, format.fill, 0, (0,) * len(shape))
        block: Array = np.ndarray(shape, self.dtype, content, offset, self._strides)
        if block.flags.writeable and not index.are_apart([offset]):
            block.flags.writeable = False  # a change would be one of the other inner chunk too
        return block

    def refresh(self) -> None:
        """Forget the shards, so that they are opened again."""
        self._kept_object.cache_clear()

    def _object(self, place: tuple[int, ...]) -> tuple[Bytes | None, AnyIndex]:
        """The bytes of a chunk or shard, None if it is missing, and its index."""
        key = f"{self._prefix}{self._encode(place)}"
        content = self._driver.content(key, self._format.stored_nbytes, self._changed)
        if content is None:
            return None, CHUNK_INDEX
        return content, self._format.index_of(content, f"{self._driver.store}/{key}")


class BlockViews:
    """The chunks of an array, or the inner chunks of its shards, as NumPy arrays.

    ``blocks[i, j]`` is one block, without a copy: cut at the edges of the array, with other strides
    where it is stored transposed, and read-only in mode "r". A missing chunk has the fill value
    everywhere, and is always read-only, as are inner chunks that share bytes with another one.
    Iteration gives all blocks in C order.

    Attributes
    ----------
    shape : tuple of int
        Number of blocks along each axis.
    """

    __slots__ = ("_block", "_grid", "shape")

    def __init__(self, block: Callable[..., Array], grid: ChunkGrid) -> None:
        self._block = block
        self._grid = grid
        self.shape = grid.counts

    def __getitem__(self, place: int | tuple[int, ...]) -> Array:
        given = place if isinstance(place, tuple) else (place,)
        try:
            indices = [index(i) for i in given]
        except TypeError:
            raise IndexError(f"a block is selected by integers, found {place!r}") from None
        is_inside = [-n <= i < n for i, n in zip(indices, self.shape, strict=False)]
        if len(indices) != len(self.shape) or not all(is_inside):
            raise IndexError(f"there is no block {place!r} among {self.shape} blocks")
        return self._block(*[i % n for i, n in zip(indices, self.shape, strict=True)])

    def __len__(self) -> int:
        if (count := self._grid.count) > sys.maxsize:
            raise OverflowError(f"there are {count} blocks, too many for len(): see their shape")
        return count

    def __iter__(self) -> Iterator[Array]:
        return (self._block(*self._grid.place_of(k)) for k in range(self._grid.count))

    def __repr__(self) -> str:
        return f"<BlockViews shape={self.shape}>"
