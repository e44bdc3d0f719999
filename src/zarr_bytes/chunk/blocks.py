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

from zarr_bytes.chunk.chunks import Chunks
from zarr_bytes.chunk.division import Division
from zarr_bytes.chunk.grid import c_strides
from zarr_bytes.chunk.layout import stored_dtype
from zarr_bytes.chunk.shards import Index, shards_of
from zarr_bytes.chunk.writing import new_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.shards import Shards
    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.zarr_versions import ArraySpec

__all__ = ["BlockViews", "Blocks", "Source"]


class Source(NamedTuple):
    """The source of the bytes of chunks.

    Attributes
    ----------
    name_of : callable
        Path or key of a chunk, by its index along each axis.
    bytes_of : callable
        The bytes of the chunk at a path or key, of the given size unless that is None; None if the
        chunk is missing.
    """

    name_of: Callable[[tuple[int, ...]], str]
    bytes_of: Callable[[str, int | None], Bytes | None]


class Blocks:
    """The blocks of one array.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    spec : zarr.core.array_spec.ArraySpec
        Shape, data type and fill value of its chunks.
    stored : Stored
        The storage of the chunks.
    source : Source
    most : int
        Number of chunks that are kept.
    is_checked : bool
        Whether each block is read once to check its bools and narrow numbers.

    Attributes
    ----------
    sizes : tuple of int
        Shape of a block, unless the edge of the array cuts it.
    counts : tuple of int
        Number of blocks along each axis.
    division : Division
        The division of the array into blocks.
    dtype : numpy.dtype
        Data type of the elements, in the stored byte order.
    most : int
        Number of blocks to keep. For shards, half of the parameter, since as many shards are kept.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        spec: ArraySpec,
        stored: Stored,
        source: Source,
        most: int,
        *,
        is_checked: bool,
    ) -> None:
        codec, order, sharding = stored
        native, endian = spec.dtype.to_native_dtype(), codec.stored_endian
        dtype = stored_dtype(native, endian)
        if dtype is None:
            raise TypeError(f"NumPy has no {native} in the byte order that is stored ({endian})")
        self.dtype = dtype
        self.sizes = spec.shape if sharding is None else sharding.inner_shape
        in_order = range(len(shape))
        self.division = Division(shape, self.sizes, in_order, in_order)
        self.counts = self.division.counts
        self.is_checked = is_checked
        self._shape = shape
        self._source = source
        self._chunks = Chunks(self.sizes, native, endian, order, spec.prototype)
        self._strides = c_strides(self.sizes, self._chunks.item_size, order)
        self._fill = new_chunk(spec, endian).fill
        self.most = most
        self._shards = None
        if sharding is not None:
            self.most = most // 2
            self._shards = shards = shards_of(sharding, spec, endian, order)
            self._shard = lru_cache(most - self.most)(partial(_open_shard, source, shards))

    def load(self, *place: int) -> Array:
        """The block with an index along each axis.

        Raises
        ------
        IndexError
            If there is no such block.
        ChunkFileError, ChunkSizeError, ShardIndexError, BoolValueError
            If the chunk does not fit its metadata.
        """
        if not all(0 <= i < count for i, count in zip(place, self.counts, strict=True)):
            raise IndexError(f"there is no block {place} in {self.counts} blocks")
        shape = tuple(
            [
                min(size, n - i * size)
                for i, size, n in zip(place, self.sizes, self._shape, strict=True)
            ]
        )
        found = self._found(place)
        if found is None:
            return np.ndarray(shape, self.dtype, self._fill, 0, (0,) * len(shape))
        buffer, offset = found
        block: Array = np.ndarray(shape, self.dtype, buffer, offset, self._strides)
        if self.is_checked:
            self._check(block)
        return block

    def refresh(self) -> None:
        """Forget the shards, so that they are opened again."""
        if self._shards is not None:
            self._shard.cache_clear()

    def _found(self, place: tuple[int, ...]) -> tuple[Bytes, int] | None:
        """Bytes that have a block, and its offset there; None if it is missing."""
        if self._shards is None:
            content = self._source.bytes_of(self._source.name_of(place), self._chunks.nbytes)
            return None if content is None else (content, 0)
        counts = self._shards.division.counts
        among = [divmod(i, n) for i, n in zip(place, counts, strict=True)]
        shard = self._shard(self._source.name_of(tuple([i for i, _ in among])))
        if shard is None:
            return None
        content, index = shard
        offset = index.offset(self._shards.division.number_of(tuple([i for _, i in among])))
        if offset is None:
            return None
        if content.flags.writeable and not index.are_apart([offset]):
            content = content.view()
            content.flags.writeable = False  # a change would be one of the other inner chunk too
        return content, offset

    def _check(self, block: Array) -> None:
        """Check every bool of a block, and the unused bits of narrow numbers."""
        self._chunks.check_bools(block, "block")
        for offset, unused, is_signed in self._chunks.layout.narrow_bytes:
            found = block.getfield(np.uint8, offset)
            number, sign = found & (0xFF >> unused), 0x80 >> unused
            is_wrong = found != number
            if is_signed:
                is_wrong &= found != (number ^ sign) - sign
            if is_wrong.any():
                at = tuple([int(i[0]) for i in np.nonzero(is_wrong)])
                raise ValueError(
                    f"the {unused} upper bits of a byte of {self.dtype} are not used, and"
                    f" {int(found[at]):#04x} at index {at} of the block has some of them set:"
                    " NumPy takes them for a part of the number; `array[...]` of zarr clears them"
                )


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

    __slots__ = ("_block", "_division", "shape")

    def __init__(self, block: Callable[..., Array], division: Division) -> None:
        self._block = block
        self._division = division
        self.shape = division.counts

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
        if (count := self._division.count) > sys.maxsize:
            raise OverflowError(f"there are {count} blocks, too many for len(): see their shape")
        return count

    def __iter__(self) -> Iterator[Array]:
        return (self._block(*self._division.place_of(k)) for k in range(self._division.count))

    def __repr__(self) -> str:
        return f"<BlockViews shape={self.shape}>"


def _open_shard(source: Source, shards: Shards, name: str) -> tuple[Bytes, Index] | None:
    """The bytes of a shard, and its index; None if it is missing."""
    content = source.bytes_of(name, None)
    if content is None:
        return None
    # A copy, so that the index cannot change after its check.
    return content, Index(shards, name, shards.index_of(content).copy(), content.size)
