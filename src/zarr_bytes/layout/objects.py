"""The format of a stored object: a chunk, or a shard of uncompressed inner chunks and their index.

A chunk is a shard of one inner chunk at offset 0, whose index is a constant. Specification:
sharding codec 1.0, "Binary shard format": an index has the offset and the size of each inner chunk
in C order, as unsigned integers of 64 bits, all bits of both being 1 for an absent one.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import google_crc32c
import numpy as np

from zarr_bytes.data_type.fill_value import FIRST_USER_TYPE
from zarr_bytes.errors import ShardIndexError
from zarr_bytes.indexing.selection import ChunkGrid, c_strides
from zarr_bytes.layout.elements import (
    decode_elements,
    element_layout_of,
    encode_elements,
    max_or_zero,
)
from zarr_bytes.layout.write_order import WriteOrder, numbers_in_write_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.indexing.plan import KeptPlan
    from zarr_bytes.indexing.selection import Offsets
    from zarr_bytes.layout.elements import Array, Bytes, Endian
    from zarr_bytes.settings import RequestCost
    from zarr_bytes.zarr_versions import ArraySpec

_ENTRY_NBYTES: Final = 16  # bytes of the index for each inner chunk
_CHECKSUM_NBYTES: Final = 4  # bytes
_ABSENT: Final = 2**64 - 1  # offset and size of an inner chunk that is missing
_MAX_OFFSET: Final = 2**63 - 1  # offset in a file
_MAX_LAYOUTS: Final = 128  # that are kept, of chunks of several shapes


class ShardingConfig(NamedTuple):
    """The configuration of the sharding codec, with the `transpose` codecs around it."""

    inner_chunk_shape: tuple[int, ...]  # of an inner chunk, in the axes of the array
    index_order: tuple[int, ...]  # axis of the array that each axis of the index is
    index_is_at_end: bool  # the index is behind the inner chunks
    index_endian: Endian
    index_has_checksum: bool  # crc32c codec 1.0, behind the index
    # Elements behind the edge of the array are kept where all within it is written, as zarr keeps
    # them where no codec is before the shards.
    keeps_padding: bool
    write_order: WriteOrder  # of the inner chunks in a new shard, along the axes of the index

    def divides(self, shape: tuple[int, ...]) -> bool:
        """Whether shards of this shape consist of whole inner chunks."""
        return all(n % size == 0 for n, size in zip(shape, self.inner_chunk_shape, strict=True))


class ObjectLayout:
    """The layout of stored objects of one chunk shape, data type and fill value.

    Shapes are in the axes of the array; `grid` has the axes in their stored order. `order` has, for
    each stored axis, the axis of the array that it is. `stored_fill_value` has the stored bytes of
    the fill value.
    """

    def __init__(
        self, encoding: ChunkEncoding, shape: tuple[int, ...], dtype: DType, fill_value: bytes
    ) -> None:
        endian, order, sharding = encoding.endian, encoding.order, encoding.sharding
        self.shape, self.dtype, self.endian, self.sharding = shape, dtype, endian, sharding
        self.order = tuple(range(len(shape))) if order is None else order
        self.inverse_order = tuple([self.order.index(i) for i in range(len(shape))])
        self.inner_chunk_shape = shape if sharding is None else sharding.inner_chunk_shape
        counts = [-(-n // size) for n, size in zip(shape, self.inner_chunk_shape, strict=True)]
        # Inner chunks are numbered as in the index.
        distances = c_strides(counts, order=None if sharding is None else sharding.index_order)
        self.grid = ChunkGrid(
            *map(self.in_stored_order, (shape, self.inner_chunk_shape, distances))
        )
        self.inner_chunk_count = self.grid.chunk_count
        self.element_layout = element_layout = element_layout_of(dtype, endian)
        self.item_size = element_layout.item_size
        self.stored_dtype = element_layout.numpy_dtype or dtype
        self._fill_array = np.frombuffer(fill_value, dtype)
        self.fill_value = self._fill_array[0]
        # Whether stored elements need no check or change but of their byte order; and whether
        # NumPy assigns them as they are stored.
        self.accepts_any_bytes = not (element_layout.bool_offsets or element_layout.narrow_bytes)
        self.assigns_directly = self.accepts_any_bytes and element_layout.numpy_dtype is not None
        self.nbytes = prod(shape) * self.item_size  # of the elements
        self.inner_chunk_nbytes = prod(self.inner_chunk_shape) * self.item_size
        self.stored_nbytes: int | None = self.nbytes  # None where inner chunks may be absent
        self.index_nbytes = self.data_offset = 0
        self.keeps_padding = sharding is not None and sharding.keeps_padding
        if sharding is not None:
            self.stored_nbytes = None
            self.index_nbytes = (
                _ENTRY_NBYTES * self.inner_chunk_count
                + _CHECKSUM_NBYTES * sharding.index_has_checksum
            )
            self.data_offset = 0 if sharding.index_is_at_end else self.index_nbytes
            self.index_dtype = np.dtype("<u8" if sharding.index_endian == "little" else ">u8")
        self.kept_strategy: deque[Any] = deque(maxlen=1)  # to read; `Reader` takes it out meanwhile
        self.kept_plans: dict[
            RequestCost | None, KeptPlan
        ] = {}  # by the cost of a request, with their selections

    def in_stored_order(self, along: Sequence[Any]) -> tuple[Any, ...]:
        """What the array has along each axis, in the stored order of axes."""
        return tuple([along[i] for i in self.order])

    @cached_property
    def numbers_in_write_order(self) -> range | Offsets:
        """Numbers of the inner chunks, in the order in which a new object has them."""
        if self.sharding is None:
            return range(1)
        counts = [-(-self.shape[i] // self.inner_chunk_shape[i]) for i in self.sharding.index_order]
        return numbers_in_write_order(counts, self.sharding.write_order)

    @cached_property
    def stored_fill_value(self) -> bytes:
        """The fill value, as it is stored."""
        return encode_elements(self._fill_array, self.endian).tobytes()

    def index_offset(self, size: int) -> int:
        """Offset of the index in an object of `size` bytes."""
        return 0 if self.data_offset else max(size - self.index_nbytes, 0)

    def parse_index(self, content: Bytes, key: str) -> InnerChunkIndex:
        """The index of an object, out of all of its bytes."""
        if not self.index_nbytes:
            return SINGLE_CHUNK_INDEX
        start = self.index_offset(content.size)
        # A copy, so that the index cannot change after its check.
        entries = content[start : start + self.index_nbytes].copy()
        return ShardIndex(self, key, entries, content.size)

    def encode_index(self, offsets: Offsets | None = None) -> bytes:
        """The bytes of an index.

        `starts` has the offset of each inner chunk, and -1 for an absent one; None is for a new
        object that has all of them.
        """
        if not self.index_nbytes:
            return b""
        if offsets is None:
            offsets = np.empty(self.inner_chunk_count, np.int64)
            offsets[self.numbers_in_write_order] = (
                self.data_offset + np.arange(self.inner_chunk_count) * self.inner_chunk_nbytes
            )
        entries = np.full((self.inner_chunk_count, 2), _ABSENT, self.index_dtype)
        is_there = offsets >= 0
        entries[is_there, 0] = offsets[is_there]
        entries[is_there, 1] = self.inner_chunk_nbytes
        content = entries.tobytes()
        if self.index_nbytes > len(content):
            content += google_crc32c.value(content).to_bytes(_CHECKSUM_NBYTES, "little")
        return content

    def full_index(self) -> InnerChunkIndex:
        """The index of a new object that has all inner chunks."""
        numbers = self.numbers_in_write_order
        positions = None if isinstance(numbers, range) else np.argsort(numbers)  # the inverse
        return InnerChunkIndex(
            self.data_offset, self.inner_chunk_nbytes, self.inner_chunk_count, positions
        )

    def decode(self, array: Array) -> Array:
        """Stored elements as the array has them, without a check of bools."""
        if self.element_layout.numpy_dtype is None or self.element_layout.narrow_bytes:
            encoded = array.ravel().view(np.uint8)
            return decode_elements(encoded, self.dtype, array.shape, self.endian)
        return array

    def has_invalid_bool(self, array: Array) -> bool:
        """Whether a bool among stored elements is neither 0 nor 1."""
        # In place: `ravel` may copy.
        return any(
            max_or_zero(array.getfield(np.uint8, i)) > 1 for i in self.element_layout.bool_offsets
        )

    def bitwise_target(self, view: Array) -> tuple[Array, DType] | None:
        """A view, and the type of stored elements, such that NumPy assigns them bit for bit.

        Plain numbers with one more axis, where possible, are swapped two to three times as fast.
        """
        found = (
            _bitwise_dtypes(view.dtype, self.dtype, self.endian) if self.accepts_any_bytes else None
        )
        if found is None or view.ndim == 64:  # as many axes as NumPy has
            return None
        number, stored = found
        return (view[..., np.newaxis] if stored.shape else view).view(number), stored


@lru_cache(maxsize=1024)
def _bitwise_dtypes(dtype: DType, own: DType, endian: Endian | None) -> tuple[DType, DType] | None:
    """Types of numbers in memory and as stored, for a view of `dtype`."""
    if dtype.newbyteorder("=") != own.newbyteorder("="):
        return None
    element_layout = element_layout_of(dtype, endian)
    is_foreign = element_layout.numpy_dtype is None or dtype.num >= FIRST_USER_TYPE
    if is_foreign and not dtype.isnative:
        return None  # types of other packages have one byte order; NumPy decides
    if element_layout.swap_dtype is None or element_layout.is_stored_as_is:
        return element_layout.raw_dtype, element_layout.stored_raw_dtype
    count = dtype.itemsize // element_layout.swap_dtype.itemsize
    return element_layout.swap_dtype, np.dtype((element_layout.swap_dtype.newbyteorder(), (count,)))


class ChunkEncoding:
    """The storage of the chunks of an array, as its codecs name it, and their formats."""

    def __init__(
        self,
        endian: Endian | None,  # None is that of the data type
        order: tuple[int, ...] | None = None,  # None is C order
        sharding: ShardingConfig | None = None,
    ) -> None:
        self.endian, self.order, self.sharding = endian, order, sharding
        self._layouts: dict[Any, ObjectLayout] = {}
        self._last: tuple[ArraySpec, ObjectLayout] | None = (
            None  # one tuple: no thread sees half of it
        )

    def layout_of(self, spec: ArraySpec) -> ObjectLayout:
        """Format of the chunks of a spec; zarr makes a spec for each read."""
        if (kept := self._last) is not None:
            last, layout = kept
            if spec is last or (
                spec.dtype is last.dtype
                and spec.shape == last.shape
                and spec.fill_value is last.fill_value
            ):
                return layout
        dtype, fill_value = spec.dtype.to_native_dtype(), spec.fill_value
        if fill_value is None:  # as zarr has it
            fill_value = spec.dtype.default_scalar()
        key = spec.shape, dtype, np.full(1, fill_value, dtype).tobytes()
        found = self._layouts.get(key)
        if found is None:
            shape, _, fill = key
            found = ObjectLayout(self, shape, dtype, fill)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            # Not to be looked up: another thread may clear them.
            self._layouts[key] = found
        self._last = spec, found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkEncoding, (self.endian, self.order, self.sharding)


class InnerChunkIndex:
    """The index of a new object that has all inner chunks, such as a chunk: no bytes of it exist.

    `positions` has for each inner chunk how many others are before it; None is for C order.
    """

    cache_key: Any = None

    def __init__(
        self,
        data_offset: int = 0,
        inner_chunk_nbytes: int = 0,
        inner_chunk_count: int = 1,
        positions: Offsets | None = None,
    ) -> None:
        self._first, self._inner_nbytes = data_offset, inner_chunk_nbytes
        self._count, self._positions = inner_chunk_count, positions

    @property
    def present_count(self) -> int:
        """Number of inner chunks that are there."""
        return self._count

    def offset_of(self, inner_chunk_number: int) -> int | None:
        """Offset of an inner chunk in its object, in bytes; None if it is absent."""
        position = (
            inner_chunk_number
            if self._positions is None
            else int(self._positions[inner_chunk_number])
        )
        return self._first + position * self._inner_nbytes

    def share_no_bytes(self, offsets: list[int]) -> bool:  # noqa: ARG002
        """Whether no other inner chunk has bytes of those at `starts`, which an index permits."""
        return True


class ShardIndex(InnerChunkIndex):
    """The index of one shard, of `size` bytes, where that is known."""

    def __init__(self, layout: ObjectLayout, key: str, content: Bytes, size: int | None) -> None:
        self._layout, self._key = layout, key
        if content.size != layout.index_nbytes:
            raise ShardIndexError(
                f"the index of the shard {key} takes {layout.index_nbytes} bytes for"
                f" {layout.inner_chunk_count} inner chunks, found {content.size}: the shard is"
                " truncated, or it was written with other shapes or codecs than the metadata names"
            )
        entries = content[: _ENTRY_NBYTES * layout.inner_chunk_count]
        if entries.size < content.size:
            found = int.from_bytes(content[entries.size :].tobytes(), "little")
            computed = google_crc32c.value(entries.tobytes())
            if found != computed:
                raise ShardIndexError(
                    f"the index of the shard {key} has the checksum {found:#010x}, and that of its"
                    f" bytes is {computed:#010x}: the shard is damaged, or it was written with"
                    " other shapes or codecs than the metadata names"
                )
        self._entries = entries.view(layout.index_dtype)
        self._first = layout.data_offset
        self._last = size  # where an inner chunk must have ended
        if size is not None and not layout.data_offset:
            self._last = size - layout.index_nbytes

    @property
    def cache_key(self) -> tuple[int | None, bytes]:
        """The places of all inner chunks, and their end; a copy, which keeps no shard in memory."""
        return self._last, self._entries.tobytes()

    @property
    def present_count(self) -> int:
        """Number of inner chunks that are there."""
        return self._present.size

    def share_no_bytes(self, offsets: list[int]) -> bool:
        """Whether no other inner chunk has bytes of those at `starts`, which an index permits."""
        nbytes, begin = self._layout.inner_chunk_nbytes, np.array(offsets)
        first = np.searchsorted(self._present, begin - nbytes, "right")
        return bool((np.searchsorted(self._present, begin + nbytes) == first + 1).all())

    @cached_property
    def _present(self) -> Offsets:
        """Offsets of the inner chunks that are not absent, ascending."""
        offsets, sizes = self._entries.reshape(-1, 2).T
        present = offsets[sizes == self._layout.inner_chunk_nbytes].astype(np.int64)
        return np.sort(present, kind="stable")  # fast where they are in order

    def offset_of(self, inner_chunk_number: int) -> int | None:
        """Offset of an inner chunk in its shard, in bytes; None if it is absent."""
        start, nbytes = self._entries[2 * inner_chunk_number : 2 * inner_chunk_number + 2].tolist()
        if start == nbytes == _ABSENT:
            return None
        expected = self._layout.inner_chunk_nbytes
        if nbytes != expected:
            fault = f"has {nbytes} bytes, and must have {expected}"
        elif start < self._first:
            fault = f"begins at byte {start}, within the index, which ends at {self._first}"
        elif self._last is not None and start + nbytes > self._last:
            fault = f"ends at byte {start + nbytes}, and the inner chunks end at {self._last}"
        elif start + nbytes > _MAX_OFFSET:
            fault = f"begins at byte {start}, where no file ends"
        else:
            return int(start)
        layout = self._layout
        place = layout.grid.coords_of(inner_chunk_number)
        names = ", ".join([str(place[i]) for i in layout.inverse_order])
        raise ShardIndexError(
            f"inner chunk ({names}) of the shard {self._key} {fault}, says its index: the shard is"
            " damaged, or it was written with other shapes or codecs than the metadata names"
        )


SINGLE_CHUNK_INDEX: Final = InnerChunkIndex()
