"""The blocks of an array, its chunks or the inner chunks of its shards, as NumPy arrays.

Nothing is copied: a block is an array over the bytes of its chunk, with the strides of the stored
order, cut at the edges of the array.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from operator import index
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zarr_bytes.indexing.chunk_grid import ChunkGrid, c_strides
from zarr_bytes.layout.element import stored_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.format import AnyIndex, Format, Stored
    from zarr_bytes.zarr_versions import ArraySpec


class Source(NamedTuple):
    """The source of the bytes of chunks: their paths or keys, by their places, and their bytes.

    The bytes are of the given size, unless that is None; None if the chunk is missing.
    """

    name_of: Callable[[tuple[int, ...]], str]
    bytes_of: Callable[[str, int | None], Bytes | None]


class Blocks:
    """The blocks of one array, of which the last `most` are kept: of shards, half as many."""

    def __init__(
        self,
        shape: tuple[int, ...],
        spec: ArraySpec,
        stored: Stored,
        source: Source,
        most: int,
    ) -> None:
        self._format = format = stored.format_of(spec)
        dtype = stored_dtype(format.dtype, format.endian)
        if dtype is None:
            raise TypeError(f"NumPy has no {format.dtype} that is stored {format.endian}-endian")
        self.dtype = dtype
        self.sizes = format.inner_shape
        self.grid = ChunkGrid(shape, self.sizes)
        self.counts = self.grid.counts
        self._source = source
        self._strides = c_strides(self.sizes, format.item_size, format.order)
        self.most = most
        # Of shards, of which each has several blocks, half as many blocks are kept.
        self._is_divided = format.index_nbytes > 0
        if self._is_divided:
            self.most = most // 2
            self._object = lru_cache(most - self.most)(partial(_open_shard, source, format))

    def load(self, *place: int) -> Array:
        """The block with an index along each axis."""
        if not all(0 <= i < count for i, count in zip(place, self.counts, strict=True)):
            raise IndexError(f"there is no block {place} in {self.counts} blocks")
        shape = tuple(
            [
                min(size, n - i * size)
                for i, size, n in zip(place, self.sizes, self.grid.shape, strict=True)
            ]
        )
        found = self._found(place)
        if found is None:
            return np.ndarray(shape, self.dtype, self._format.fill, 0, (0,) * len(shape))
        buffer, offset = found
        return np.ndarray(shape, self.dtype, buffer, offset, self._strides)

    def refresh(self) -> None:
        """Forget the shards, so that they are opened again."""
        if self._is_divided:
            self._object.cache_clear()

    def _found(self, place: tuple[int, ...]) -> tuple[Bytes, int] | None:
        """Bytes that have a block, and its offset there; None if it is missing."""
        format, name_of = self._format, self._source.name_of
        if not self._is_divided:
            content = self._source.bytes_of(name_of(place), format.stored_nbytes)
            return None if content is None else (content, 0)
        counts = [format.grid.counts[i] for i in format.back]
        among = [divmod(i, n) for i, n in zip(place, counts, strict=True)]
        found = self._object(name_of(tuple([i for i, _ in among])))
        if found is None:
            return None
        content, index = found
        offset = index.offset(format.grid.number_of(format.stored_order([i for _, i in among])))
        if offset is None:
            return None
        if content.flags.writeable and not index.are_apart([offset]):
            content = content.view()
            content.flags.writeable = False  # a change would be one of the other inner chunk too
        return content, offset


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


def _open_shard(source: Source, format: Format, name: str) -> tuple[Bytes, AnyIndex] | None:
    """The bytes of a shard, and its index; None if it is missing."""
    content = source.bytes_of(name, None)
    return None if content is None else (content, format.index_of(content, name))
