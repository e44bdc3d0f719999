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
from zarr_bytes.layout.elements import decode_elements, encode_elements, largest, layout_of
from zarr_bytes.layout.write_order import WriteOrder, numbers_as_stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.indexing.selection import Offsets
    from zarr_bytes.layout.elements import Array, Bytes, Endian
    from zarr_bytes.zarr_versions import ArraySpec

_ENTRY: Final = 16  # bytes of the index for each inner chunk
_CHECKSUM: Final = 4  # bytes
_ABSENT: Final = 2**64 - 1  # offset and size of an inner chunk that is missing
_LARGEST: Final = 2**63 - 1  # offset in a file
_FORMATS: Final = 128  # that are kept, of chunks of several shapes


class Sharding(NamedTuple):
    """The configuration of the sharding codec, with the `transpose` codecs around it."""

    inner_shape: tuple[int, ...]  # of an inner chunk, in the axes of the array
    index_order: tuple[int, ...]  # axis of the array that each axis of the index is
    is_at_end: bool  # the index is behind the inner chunks
    index_endian: Endian
    has_checksum: bool  # crc32c codec 1.0, behind the index
    # Elements behind the edge of the array are kept where all within it is written, as zarr keeps
    # them where no codec is before the shards.
    keeps_edges: bool
    write_order: WriteOrder  # of the inner chunks in a new shard, along the axes of the index

    def divides(self, shape: tuple[int, ...]) -> bool:
        """Whether shards of this shape consist of whole inner chunks."""
        return all(n % size == 0 for n, size in zip(shape, self.inner_shape, strict=True))


class Format:
    """The format of objects of one shape, data type and fill value.

    `order` has the axis of the array that each stored axis is; `fill` is the fill value in memory.
    Shapes are in the order of the array, `grid` is in the stored order.
    """

    def __init__(self, storage: Stored, shape: tuple[int, ...], dtype: DType, fill: bytes) -> None:
        endian, order, sharding = storage.endian, storage.order, storage.sharding
        self.shape, self.dtype, self.endian, self.sharding = shape, dtype, endian, sharding
        self.order = tuple(range(len(shape))) if order is None else order
        self.back = tuple([self.order.index(i) for i in range(len(shape))])
        self.inner_shape = shape if sharding is None else sharding.inner_shape
        counts = [-(-n // size) for n, size in zip(shape, self.inner_shape, strict=True)]
        # Inner chunks are numbered as in the index.
        distances = c_strides(counts, order=None if sharding is None else sharding.index_order)
        self.grid = ChunkGrid(*map(self.stored_order, (shape, self.inner_shape, distances)))
        self.count = self.grid.count
        self.layout = layout = layout_of(dtype, endian)
        self.item_size = layout.item_size
        self.stored = layout.view or dtype
        self._fill = np.frombuffer(fill, dtype)
        self.fill_value = self._fill[0]
        # Whether stored elements need no check or change but of their byte order; and whether
        # NumPy assigns them as they are stored.
        self.is_unchecked = not (layout.bool_offsets or layout.narrow_bytes)
        self.is_plain = self.is_unchecked and layout.view is not None
        self.nbytes = prod(shape) * self.item_size  # of the elements
        self.inner_nbytes = prod(self.inner_shape) * self.item_size
        self.stored_nbytes: int | None = self.nbytes  # None where inner chunks may be absent
        self.index_nbytes = self.first = 0
        self.keeps_edges = sharding is not None and sharding.keeps_edges
        if sharding is not None:
            self.stored_nbytes = None
            self.index_nbytes = _ENTRY * self.count + _CHECKSUM * sharding.has_checksum
            self.first = 0 if sharding.is_at_end else self.index_nbytes
            self.entry_dtype = np.dtype("<u8" if sharding.index_endian == "little" else ">u8")
        self.last_way: deque[Any] = deque(maxlen=1)  # to read; `Reader` takes it out meanwhile
        self.last_plans: dict[Any, Any] = {}  # by the cost of a request, with their selections

    def stored_order(self, along: Sequence[Any]) -> tuple[Any, ...]:
        """What the array has along each axis, in the stored order of axes."""
        return tuple([along[i] for i in self.order])

    @cached_property
    def numbers_as_stored(self) -> range | Offsets:
        """Numbers of the inner chunks, in the order in which a new object has them."""
        if self.sharding is None:
            return range(1)
        counts = [-(-self.shape[i] // self.inner_shape[i]) for i in self.sharding.index_order]
        return numbers_as_stored(counts, self.sharding.write_order)

    @cached_property
    def fill(self) -> bytes:
        """The fill value, as it is stored."""
        return encode_elements(self._fill, self.endian).tobytes()

    def index_start(self, size: int) -> int:
        """Offset of the index in an object of `size` bytes."""
        return 0 if self.first else max(size - self.index_nbytes, 0)

    def index_of(self, content: Bytes, key: str) -> ChunkIndex:
        """The index of an object, out of all of its bytes."""
        if not self.index_nbytes:
            return CHUNK_INDEX
        start = self.index_start(content.size)
        # A copy, so that the index cannot change after its check.
        entries = content[start : start + self.index_nbytes].copy()
        return Index(self, key, entries, content.size)

    def content_of_index(self, starts: Offsets | None = None) -> bytes:
        """The bytes of an index.

        `starts` has the offset of each inner chunk, and -1 for an absent one; None is for a new
        object that has all of them.
        """
        if not self.index_nbytes:
            return b""
        if starts is None:
            starts = np.empty(self.count, np.int64)
            starts[self.numbers_as_stored] = self.first + np.arange(self.count) * self.inner_nbytes
        entries = np.full((self.count, 2), _ABSENT, self.entry_dtype)
        is_there = starts >= 0
        entries[is_there, 0] = starts[is_there]
        entries[is_there, 1] = self.inner_nbytes
        content = entries.tobytes()
        if self.index_nbytes > len(content):
            content += google_crc32c.value(content).to_bytes(_CHECKSUM, "little")
        return content

    def complete_index(self) -> ChunkIndex:
        """The index of a new object that has all inner chunks."""
        numbers = self.numbers_as_stored
        positions = None if isinstance(numbers, range) else np.argsort(numbers)  # the inverse
        return ChunkIndex(self.first, self.inner_nbytes, self.count, positions)

    def decoded(self, array: Array) -> Array:
        """Stored elements as the array has them, without a check of bools."""
        if self.layout.view is None or self.layout.narrow_bytes:
            encoded = array.ravel().view(np.uint8)
            return decode_elements(encoded, self.dtype, array.shape, self.endian)
        return array

    def has_wrong_bool(self, array: Array) -> bool:
        """Whether a bool among stored elements is neither 0 nor 1."""
        # In place: `ravel` may copy.
        return any(largest(array.getfield(np.uint8, i)) > 1 for i in self.layout.bool_offsets)

    def as_numbers(self, view: Array) -> tuple[Array, DType] | None:
        """A view, and the type of stored elements, such that NumPy assigns them bit for bit.

        Plain numbers with one more axis, where possible, are swapped two to three times as fast.
        """
        found = _numbers(view.dtype, self.dtype, self.endian) if self.is_unchecked else None
        if found is None or view.ndim == 64:  # as many axes as NumPy has
            return None
        number, stored = found
        return (view[..., np.newaxis] if stored.shape else view).view(number), stored


@lru_cache(maxsize=1024)
def _numbers(dtype: DType, own: DType, endian: Endian | None) -> tuple[DType, DType] | None:
    """Types of numbers in memory and as stored, for a view of `dtype`."""
    if dtype.newbyteorder("=") != own.newbyteorder("="):
        return None
    layout = layout_of(dtype, endian)
    is_foreign = layout.view is None or dtype.num >= FIRST_USER_TYPE
    if is_foreign and not dtype.isnative:
        return None  # types of other packages have one byte order; NumPy decides
    if layout.number is None or layout.is_stored_as_is:
        return layout.units, layout.stored
    count = dtype.itemsize // layout.number.itemsize
    return layout.number, np.dtype((layout.number.newbyteorder(), (count,)))


class Stored:
    """The storage of the chunks of an array, as its codecs name it, and their formats."""

    def __init__(
        self,
        endian: Endian | None,  # None is that of the data type
        order: tuple[int, ...] | None = None,  # None is C order
        sharding: Sharding | None = None,
    ) -> None:
        self.endian, self.order, self.sharding = endian, order, sharding
        self._formats: dict[Any, Format] = {}
        self._last: tuple[ArraySpec, Format] | None = None  # one tuple: no thread sees half of it

    def format_of(self, spec: ArraySpec) -> Format:
        """Format of the chunks of a spec; zarr makes a spec for each read."""
        if (kept := self._last) is not None:
            last, format = kept
            if spec is last or (
                spec.dtype is last.dtype
                and spec.shape == last.shape
                and spec.fill_value is last.fill_value
            ):
                return format
        dtype, fill_value = spec.dtype.to_native_dtype(), spec.fill_value
        if fill_value is None:  # as zarr has it
            fill_value = spec.dtype.default_scalar()
        key = spec.shape, dtype, np.full(1, fill_value, dtype).tobytes()
        found = self._formats.get(key)
        if found is None:
            shape, _, fill = key
            found = Format(self, shape, dtype, fill)
            if len(self._formats) >= _FORMATS:
                self._formats.clear()
            # Not to be looked up: another thread may clear them.
            self._formats[key] = found
        self._last = spec, found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Stored, (self.endian, self.order, self.sharding)


class ChunkIndex:
    """The index of a new object that has all inner chunks, such as a chunk: no bytes of it exist.

    `positions` has for each inner chunk how many others are before it; None is for C order.
    """

    places: Any = None

    def __init__(
        self,
        first: int = 0,
        inner_nbytes: int = 0,
        count: int = 1,
        positions: Offsets | None = None,
    ) -> None:
        self._first, self._inner_nbytes = first, inner_nbytes
        self._count, self._positions = count, positions

    @property
    def count(self) -> int:
        """Number of inner chunks that are there."""
        return self._count

    def offset(self, number: int) -> int | None:
        """Offset of an inner chunk in its object, in bytes; None if it is absent."""
        position = number if self._positions is None else int(self._positions[number])
        return self._first + position * self._inner_nbytes

    def are_apart(self, starts: list[int]) -> bool:  # noqa: ARG002
        """Whether no other inner chunk has bytes of those at `starts`, which an index permits."""
        return True


class Index(ChunkIndex):
    """The index of one shard, of `size` bytes, where that is known."""

    def __init__(self, format: Format, key: str, content: Bytes, size: int | None) -> None:
        self._format, self._key = format, key
        if content.size != format.index_nbytes:
            raise ShardIndexError(
                f"the index of the shard {key} takes {format.index_nbytes} bytes for"
                f" {format.count} inner chunks, found {content.size}: the shard is truncated, or it"
                " was written with other shapes or codecs than the metadata names"
            )
        entries = content[: _ENTRY * format.count]
        if entries.size < content.size:
            found = int.from_bytes(content[entries.size :].tobytes(), "little")
            computed = google_crc32c.value(entries.tobytes())
            if found != computed:
                raise ShardIndexError(
                    f"the index of the shard {key} has the checksum {found:#010x}, and that of its"
                    f" bytes is {computed:#010x}: the shard is damaged, or it was written with"
                    " other shapes or codecs than the metadata names"
                )
        self._entries = entries.view(format.entry_dtype)
        self._first = format.first
        self._last = size  # where an inner chunk must have ended
        if size is not None and not format.first:
            self._last = size - format.index_nbytes

    @property
    def places(self) -> tuple[int | None, bytes]:
        """The places of all inner chunks, and their end; a copy, which keeps no shard in memory."""
        return self._last, self._entries.tobytes()

    @property
    def count(self) -> int:
        """Number of inner chunks that are there."""
        return self._present.size

    def are_apart(self, starts: list[int]) -> bool:
        """Whether no other inner chunk has bytes of those at `starts`, which an index permits."""
        nbytes, begin = self._format.inner_nbytes, np.array(starts)
        first = np.searchsorted(self._present, begin - nbytes, "right")
        return bool((np.searchsorted(self._present, begin + nbytes) == first + 1).all())

    @cached_property
    def _present(self) -> Offsets:
        """Offsets of the inner chunks that are not absent, ascending."""
        offsets, sizes = self._entries.reshape(-1, 2).T
        present = offsets[sizes == self._format.inner_nbytes].astype(np.int64)
        return np.sort(present, kind="stable")  # fast where they are in order

    def offset(self, number: int) -> int | None:
        """Offset of an inner chunk in its shard, in bytes; None if it is absent."""
        start, nbytes = self._entries[2 * number : 2 * number + 2].tolist()
        if start == nbytes == _ABSENT:
            return None
        expected = self._format.inner_nbytes
        if nbytes != expected:
            fault = f"has {nbytes} bytes, and must have {expected}"
        elif start < self._first:
            fault = f"begins at byte {start}, within the index, which ends at {self._first}"
        elif self._last is not None and start + nbytes > self._last:
            fault = f"ends at byte {start + nbytes}, and the inner chunks end at {self._last}"
        elif start + nbytes > _LARGEST:
            fault = f"begins at byte {start}, where no file ends"
        else:
            return int(start)
        format = self._format
        place = format.grid.place_of(number)
        names = ", ".join([str(place[i]) for i in format.back])
        raise ShardIndexError(
            f"inner chunk ({names}) of the shard {self._key} {fault}, says its index: the shard is"
            " damaged, or it was written with other shapes or codecs than the metadata names"
        )


CHUNK_INDEX: Final = ChunkIndex()
