"""The layout of a stored object: a chunk, or a shard of uncompressed inner chunks and their index.

A chunk is treated as a shard with one inner chunk at offset 0 and a constant index.

Specification: sharding codec 1.0, "Binary shard format": an index has the offset and the size of
each inner chunk in C order, as unsigned 64-bit integers; for an absent inner chunk, all bits of
both are 1. With a `transpose` codec before the sharding codec, that is C order of the transposed
axes.
"""

from __future__ import annotations

from functools import cached_property, lru_cache, partial
from math import prod
from operator import mod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import google_crc32c
import numpy as np

from zarr_bytes.data_type.fill_value import FIRST_USER_TYPE
from zarr_bytes.errors import ShardIndexError
from zarr_bytes.indexing.selection import ChunkGrid, c_strides
from zarr_bytes.layout.elements import (
    common_byte_order_or_none,
    consists_of_repeated,
    decode_elements,
    element_layout_of,
    encode_elements,
    fill_value_array,
    iter_blocks,
    iter_blocks_to_encode,
    max_or_zero,
)
from zarr_bytes.layout.elementwise_codecs import ElementwiseCodecs
from zarr_bytes.layout.write_order import WriteOrder, inner_chunk_numbers_in_write_order
from zarr_bytes.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.indexing.selection import Offsets
    from zarr_bytes.layout.elements import Array, Bytes, EndiannessStr
    from zarr_bytes.layout.elementwise_codecs import ElementConverter
    from zarr_bytes.limits import Limits
    from zarr_bytes.zarr_versions import ArraySpec

_ENTRY_NBYTES: Final = 16  # in the index, for each inner chunk
_CHECKSUM_NBYTES: Final = 4
_ABSENT: Final = 2**64 - 1  # offset and size of an inner chunk that is missing
_MAX_OFFSET: Final = 2**63 - 1  # in a file
_MAX_LAYOUTS: Final = 128  # kept for chunks of several shapes
_NO_ELEMENTWISE_CODECS: Final = ElementwiseCodecs()


class ShardingConfig(NamedTuple):
    """The configuration of the sharding codec, with the `transpose` codecs around it."""

    inner_chunk_shape: tuple[int, ...]  # in the axes of the array
    index_order: tuple[int, ...]  # the axis of the array for each axis of the index
    index_is_at_end: bool  # after the inner chunks; otherwise before them
    index_endian: EndiannessStr
    index_has_checksum: bool  # crc32c codec 1.0, after the index
    # Elements beyond the edge of the array are kept when all elements within it are written. zarr
    # keeps them if no codec is before the shards.
    keeps_padding: bool
    write_order: WriteOrder  # of the inner chunks in a new shard, along the axes of the index


class ObjectLayout:
    """The layout of stored objects of one chunk shape, data type and fill value.

    A layout doesn't change.

    Parameters
    ----------
    encoding : ChunkEncoding
        Byte order, sharding, format and limits.
    shape : tuple of int
        Shape of a chunk or shard, in the axes of the array.
    dtype : DType
        Data type of the array, in memory.
    fill_value_bytes : bytes
        Bytes of the fill value in memory, in `dtype`.
    order : tuple of int, optional
        The attribute `order`; None for C order.
    converter : ElementConverter, optional
        Encodes and decodes the elements; None if elements are stored without a conversion.

    Attributes
    ----------
    endian : "little", "big" or None
        Byte order of stored elements. None for the byte order of `dtype`, whose fields may have
        both.
    order : tuple of int
        The axis of the array for each stored axis.
    inverse_order : tuple of int
        The stored axis for each axis of the array.
    inner_chunk_shape : tuple of int
        Shape of an inner chunk, in the axes of the array.
    grid : ChunkGrid
        The inner chunks, in the stored order of axes, numbered as in the index.
    encoded_dtype : DType
        Data type of the stored elements, in memory. It is `dtype`, unless codecs decode the stored
        elements to `dtype`. All sizes in bytes, and the checks of elements, are for this type.
    element_layout : ElementLayout
        Layout of a stored element.
    stored_dtype : DType
        Data type in which NumPy sees stored elements: `encoded_dtype` in the stored byte order, if
        NumPy converts the elements exactly. Otherwise `encoded_dtype`, and
        `decode_without_bool_check` converts them.
    fill_value : scalar
        The fill value, in `dtype`: the value of the elements of a missing object.
    accepts_any_bytes : bool
        Whether stored elements need no check, and no change other than of their byte order.
    assigns_directly : bool
        Whether NumPy assigns stored elements as they are, from arrays of `stored_dtype`.
    assigns_after_bool_check : bool
        Whether NumPy does so once bools have been checked (see `has_invalid_bool`).
    nbytes : int
        Size of all elements in bytes, which is the size of a chunk.
    inner_chunk_nbytes : int
        Size of an inner chunk in bytes.
    stored_nbytes : int or None
        Size of an object in bytes; None for shards, whose inner chunks may be absent.
    index_nbytes : int
        Size of the index in bytes, with its checksum; 0 for chunks.
    data_offset : int
        Offset of the first byte after an index at the beginning; 0 without such an index.
    index_dtype : DType
        Unsigned integers of the index. Only shards have this attribute.
    keeps_padding : bool
        As in `ShardingConfig`; False for chunks.
    is_divided : bool
        Whether inner chunks divide the shard; always True for chunks. If False, no other attribute
        is valid.
    limits : Limits
        Sizes at which reading and writing change their method.
    """

    def __init__(
        self,
        encoding: ChunkEncoding,
        shape: tuple[int, ...],
        dtype: DType,
        fill_value_bytes: bytes,
        order: tuple[int, ...] | None = None,
        converter: ElementConverter | None = None,
    ) -> None:
        sharding = encoding.sharding
        self.encoded_dtype = dtype if converter is None else converter.encoded_dtype
        endian = encoding.endian_or_none_if_of_dtype
        if endian is None:
            endian = common_byte_order_or_none(self.encoded_dtype)
        self._converter = converter
        self.shape = shape
        self.dtype = dtype
        self.endian = endian
        self.sharding = sharding
        self.limits = encoding.limits
        self.order = tuple(range(len(shape))) if order is None else order
        self.inverse_order = tuple([self.order.index(i) for i in range(len(shape))])
        self.inner_chunk_shape = shape if sharding is None else sharding.inner_chunk_shape
        self.is_divided = not any(map(mod, shape, self.inner_chunk_shape))
        counts = [-(-n // size) for n, size in zip(shape, self.inner_chunk_shape, strict=True)]
        number_strides = c_strides(counts, order=None if sharding is None else sharding.index_order)
        self.grid = ChunkGrid(
            self.in_stored_order(shape),
            self.in_stored_order(self.inner_chunk_shape),
            self.in_stored_order(number_strides),
        )
        self.inner_chunk_count = self.grid.chunk_count
        element_layout = element_layout_of(self.encoded_dtype, endian)
        if encoding.is_format_2:  # any byte other than 0 is true
            element_layout = element_layout._replace(bool_offsets=())
        self.element_layout = element_layout
        self.item_size = element_layout.item_size
        self.stored_dtype = element_layout.numpy_dtype or self.encoded_dtype
        self._fill_array = np.frombuffer(fill_value_bytes, dtype)
        self.fill_value = self._fill_array[0]
        self.accepts_any_bytes = not (element_layout.bool_offsets or element_layout.narrow_bytes)
        self.assigns_after_bool_check = (
            element_layout.numpy_dtype is not None
            and not element_layout.narrow_bytes
            and converter is None
        )
        self.assigns_directly = self.assigns_after_bool_check and self.accepts_any_bytes
        self.nbytes = prod(shape) * self.item_size
        self.inner_chunk_nbytes = prod(self.inner_chunk_shape) * self.item_size
        self.stored_nbytes: int | None = self.nbytes
        self.index_nbytes = 0
        self.data_offset = 0
        self.keeps_padding = False
        if sharding is not None:
            self.stored_nbytes = None
            self.index_nbytes = _ENTRY_NBYTES * self.inner_chunk_count
            if sharding.index_has_checksum:
                self.index_nbytes += _CHECKSUM_NBYTES
            if not sharding.index_is_at_end:
                self.data_offset = self.index_nbytes
            self.index_dtype = np.dtype("<u8" if sharding.index_endian == "little" else ">u8")
            self.keeps_padding = sharding.keeps_padding

    @property
    def max_stored_nbytes(self) -> int:
        """Size of an object with all inner chunks and, for a shard, its index."""
        return self.nbytes + self.index_nbytes

    @property
    def whole_request_is_small(self) -> bool:
        """Whether a request for a whole object is a small one, of less than `min_piece_nbytes`."""
        return self.max_stored_nbytes < self.limits.min_piece_nbytes

    def in_stored_order(self, along_axes: Sequence[Any]) -> tuple[Any, ...]:
        """Items for each axis of the array, rearranged to the stored order of axes."""
        return tuple([along_axes[i] for i in self.order])

    @cached_property
    def inner_chunk_numbers_in_write_order(self) -> range | Offsets:
        """Numbers of the inner chunks, as in the index, in the storage order of a new object."""
        if self.sharding is None:
            return range(1)
        counts = [-(-self.shape[i] // self.inner_chunk_shape[i]) for i in self.sharding.index_order]
        return inner_chunk_numbers_in_write_order(counts, self.sharding.write_order)

    @cached_property
    def absent_inner_chunk_value(self) -> Any:
        """The value of the elements of an inner chunk that its shard doesn't have.

        It is the fill value, unless codecs before the shard decode another value.
        """
        if self._converter is None:
            return self.fill_value
        return self._converter.absent_inner_chunk_value()

    @cached_property
    def stored_fill_value(self) -> bytes:
        """The fill value as inner chunks store it. Errors and warnings come from the codecs."""
        return self.encode(self._fill_array_before_chunks).tobytes()

    @property
    def _fill_array_before_chunks(self) -> Array:
        """The fill value to compare inner chunks with, as an array with one element."""
        if self._converter is None:
            return self._fill_array
        return self._converter.fill_value_before_chunks

    @cached_property
    def stores_fill_value_exactly(self) -> bool:
        """Whether a stored fill value reads back as the fill value, bit for bit.

        It doesn't if codecs lose it: NaN becomes 0.0 if floats are stored as integers. Elements
        that were never written must not be stored then.
        """
        if self._converter is None:
            return True
        try:
            with np.errstate(all="ignore"):
                stored = np.frombuffer(self.stored_fill_value, self.stored_dtype)
                found = self.decode_without_bool_check(stored)
        except Exception:  # noqa: BLE001 -- a codec has no code for this value
            return False
        return found.tobytes() == self._fill_array.tobytes()

    @cached_property
    def absent_inner_chunks_are_fill_values(self) -> bool:
        """Whether elements of inner chunks that a shard lacks are the fill value, bit for bit.

        Always True for chunks.
        """
        if self._converter is None or self.sharding is None:
            return True
        found = np.array(self.absent_inner_chunk_value, self.dtype)
        return found.tobytes() == self._fill_array.tobytes()

    def index_offset(self, object_nbytes: int) -> int:
        """Offset of the index in an object of this size, which may be too small for it."""
        return 0 if self.data_offset else max(object_nbytes - self.index_nbytes, 0)

    def decode_index_of_object(self, object_bytes: Bytes, key: str) -> InnerChunkIndex:
        """The index of an object, from all bytes of the object; `key` names it in messages.

        A ShardIndexError if the object is too short, or the checksum differs.
        """
        if not self.index_nbytes:
            return SINGLE_CHUNK_INDEX
        start = self.index_offset(object_bytes.size)
        # A copy, so that the index can't change after its check.
        entries = object_bytes[start : start + self.index_nbytes].copy()
        return ShardIndex(self, key, entries, object_bytes.size)

    @cached_property
    def encoded_full_index(self) -> bytes:
        """The bytes of the index of a new object with all inner chunks; none for a chunk."""
        if not self.index_nbytes:
            return b""
        offsets = np.empty(self.inner_chunk_count, np.int64)
        offsets[self.inner_chunk_numbers_in_write_order] = (
            self.data_offset + np.arange(self.inner_chunk_count) * self.inner_chunk_nbytes
        )
        return self.encode_index(offsets)

    def encode_index(self, offsets: Offsets) -> bytes:
        """The bytes of the index of a shard, with its checksum.

        `offsets` has the offset of each inner chunk in the shard, or -1 if it is absent.
        """
        entries = np.full((self.inner_chunk_count, 2), _ABSENT, self.index_dtype)
        is_present = offsets >= 0
        entries[is_present, 0] = offsets[is_present]
        entries[is_present, 1] = self.inner_chunk_nbytes
        content = entries.tobytes()
        if self.index_nbytes > len(content):
            content += google_crc32c.value(content).to_bytes(_CHECKSUM_NBYTES, "little")
        return content

    @cached_property
    def full_index(self) -> InnerChunkIndex:
        """The index of a new object that has all inner chunks."""
        numbers = self.inner_chunk_numbers_in_write_order
        ranks = None if isinstance(numbers, range) else np.argsort(numbers)  # the inverse
        return InnerChunkIndex(
            self.data_offset, self.inner_chunk_nbytes, self.inner_chunk_count, ranks
        )

    def encode_before_shards(self, elements: Array) -> Array:
        """Elements of `dtype`, encoded by the codecs before the shards, if there are any.

        Errors and warnings of codecs are raised as they are, here and in `encode`.
        """
        if self._converter is None:
            return elements
        return self._converter.encode_before_shards(elements)

    def encode(self, elements: Array) -> Bytes:
        """The bytes of elements from `encode_before_shards`, in C order.

        A view if nothing changes.
        """
        if self._converter is not None:
            elements = self._converter.encode_in_chunks(elements)
        return encode_elements(elements, self.endian)

    def encode_in_blocks(self, elements: Array) -> Iterator[EncodedBlock]:
        """`encode` in blocks of bounded size, or in one block if it returns a view.

        There is at least one block.
        """
        block_nbytes = self.limits.block_nbytes
        if self._converter is None:
            blocks = iter_blocks_to_encode(elements, self.endian, block_nbytes)
        else:
            blocks = iter_blocks(elements, block_nbytes)
        return (EncodedBlock(block, self.encode(block)) for block in blocks)

    def are_fill_values(self, block: EncodedBlock) -> bool:
        """Whether all elements have the bits of the fill value; -0.0 and other NaNs differ.

        As in zarr, elements are compared before the codecs of inner chunks, which may store other
        elements with equal bytes.
        """
        compared_nbytes = self.limits.compared_nbytes
        if self._converter is None:
            return consists_of_repeated(block.encoded, self.stored_fill_value, compared_nbytes)
        fill_value = encode_elements(self._fill_array_before_chunks, None).tobytes()
        return all(
            consists_of_repeated(encode_elements(one, None), fill_value, compared_nbytes)
            for one in iter_blocks(block.elements, self.limits.block_nbytes)
        )

    def inner_chunk_has_only_fill_values(
        self, new: EncodedBlock, merged: Bytes, *, was_absent: bool
    ) -> bool:
        """Whether an inner chunk has only fill values after new elements are merged into it.

        The comparison is that of `are_fill_values`.

        Parameters
        ----------
        new
            The new elements; an index that is selected twice has two.
        merged
            The bytes of the inner chunk with the new elements.
        was_absent
            Whether all other elements are fill values, because the inner chunk was absent.
        """
        if self._converter is None:
            return self.are_fill_values(EncodedBlock(new.elements, merged))
        if not self.are_fill_values(new):
            return False
        if was_absent:
            return True
        encoded = decode_elements(
            merged, self.encoded_dtype, (merged.size // self.item_size,), self.endian
        )
        return self.are_fill_values(EncodedBlock(self._converter.decode_in_chunks(encoded), merged))

    def decode_without_bool_check(self, stored: Array) -> Array:
        """Elements of the array, decoded from elements in `stored_dtype`; a view if possible.

        Bools must have been checked before: see `has_invalid_bool`. Errors and warnings of codecs
        that decode elements are raised as they are.
        """
        elements = stored
        if self.element_layout.numpy_dtype is None or self.element_layout.narrow_bytes:
            encoded = stored.ravel().view(np.uint8)
            elements = decode_elements(encoded, self.encoded_dtype, stored.shape, self.endian)
        return elements if self._converter is None else self._converter.decode(elements)

    def has_invalid_bool(self, stored: Array) -> bool:
        """Whether a bool among stored elements is neither 0 nor 1."""
        # Without a copy, which `ravel` may make.
        return any(
            max_or_zero(stored.getfield(np.uint8, i)) > 1 for i in self.element_layout.bool_offsets
        )

    def copy_or_swap_target_or_none(self, view: Array) -> CopyOrSwapTarget | None:
        """`view` and the stored elements in data types that NumPy assigns bit for bit.

        If possible, the types are plain numbers with one more axis, which are swapped two to three
        times as fast. None if elements must be checked or converted, or if `view` has another data
        type.
        """
        if not self.accepts_any_bytes or self._converter is not None:
            return None
        if view.ndim == 64:  # the maximum in NumPy
            return None
        dtypes = _copy_or_swap_dtypes_or_none(view.dtype, self.dtype, self.endian)
        if dtypes is None:
            return None
        if dtypes.stored.shape:
            view = view[..., np.newaxis]
        return CopyOrSwapTarget(view.view(dtypes.in_memory), dtypes.stored)


class EncodedBlock(NamedTuple):
    """Elements from `ObjectLayout.encode_before_shards`, and their stored bytes."""

    elements: Array
    encoded: Bytes


class CopyOrSwapTarget(NamedTuple):
    """A view to which NumPy copies or swaps stored elements, in types without numeric values."""

    raw_view: Array
    stored_raw_dtype: DType  # for the view of the stored elements


class _CopyOrSwapDtypes(NamedTuple):
    """Data types without numeric values; NumPy copies their elements bit for bit, or swaps them."""

    in_memory: DType
    stored: DType  # a subarray if an element has several numbers or is swapped as a number


@lru_cache(maxsize=1024)
def _copy_or_swap_dtypes_or_none(
    view_dtype: DType, layout_dtype: DType, endian_or_none_if_of_dtype: EndiannessStr | None
) -> _CopyOrSwapDtypes | None:
    """Data types of numbers for a view of `view_dtype` and objects of `layout_dtype`.

    None if the types differ in more than their byte order, or if NumPy doesn't know the byte order.
    """
    if view_dtype.newbyteorder("=") != layout_dtype.newbyteorder("="):
        return None
    if endian_or_none_if_of_dtype is None and view_dtype != layout_dtype:
        return None  # stored as `layout_dtype`, whose fields may have both byte orders
    element_layout = element_layout_of(view_dtype, endian_or_none_if_of_dtype)
    is_foreign = element_layout.numpy_dtype is None or view_dtype.num >= FIRST_USER_TYPE
    if is_foreign and not view_dtype.isnative:
        return None  # types of other packages have one byte order; NumPy decides
    swap_dtype = element_layout.swap_dtype
    if swap_dtype is None or element_layout.is_stored_as_is:
        return _CopyOrSwapDtypes(element_layout.raw_dtype, element_layout.stored_raw_dtype)
    count = view_dtype.itemsize // swap_dtype.itemsize
    return _CopyOrSwapDtypes(swap_dtype, np.dtype((swap_dtype.newbyteorder(), (count,))))


class ChunkEncoding:
    """The encoding of chunks by the codecs of an array; it keeps the layouts of the chunks.

    Parameters
    ----------
    endian_or_none_if_of_dtype : "little", "big" or None
        Byte order; None for the byte order of the data type.
    order : tuple of int, optional
        The axis of the array for each stored axis; None for C order.
    sharding : ShardingConfig, optional
        None for chunks that aren't shards.
    limits : Limits, optional
        The limits of all layouts.
    is_format_2 : bool, default False
        Whether the array has Zarr format 2. The order in its chunk specs, C or Fortran, is then the
        stored order, and any byte is a valid bool.
    elementwise_codecs : ElementwiseCodecs, optional
        The codecs that change elements; none by default.
    """

    def __init__(
        self,
        endian_or_none_if_of_dtype: EndiannessStr | None,
        order: tuple[int, ...] | None = None,
        sharding: ShardingConfig | None = None,
        limits: Limits = DEFAULT_LIMITS,
        *,
        is_format_2: bool = False,
        elementwise_codecs: ElementwiseCodecs = _NO_ELEMENTWISE_CODECS,
    ) -> None:
        self.endian_or_none_if_of_dtype = endian_or_none_if_of_dtype
        self.order = order
        self.sharding = sharding
        self.limits = limits
        self.is_format_2 = is_format_2
        self.elementwise_codecs = elementwise_codecs
        # By shape, data type, bytes of the fill value, and order of axes.
        self._layouts: dict[Any, ObjectLayout] = {}
        # The last spec and its layout, in one tuple, so that no thread sees only half of it.
        self._last: tuple[ArraySpec, ObjectLayout] | None = None

    def encoded_dtype_of(self, spec: ArraySpec) -> DType:
        """Data type in memory of the stored elements of chunks of a spec, for any shape."""
        converter = self.elementwise_codecs.converter_if_any_codec(spec)
        return spec.dtype.to_native_dtype() if converter is None else converter.encoded_dtype

    def layout_of(self, spec: ArraySpec) -> ObjectLayout:
        """Layout of the chunks of a spec. Equal specs, of which zarr makes many, share one layout.

        Any thread may call this without a lock; at worst, two threads each make a layout.
        """
        if (kept := self._last) is not None:
            last, layout = kept
            if spec is last or (
                spec.dtype is last.dtype
                and spec.shape == last.shape
                and spec.fill_value is last.fill_value
                and (not self.is_format_2 or spec.order == last.order)
            ):
                return layout
        dtype = spec.dtype.to_native_dtype()
        fill_bytes = fill_value_array(spec.fill_value, spec.dtype).tobytes()
        order = self.order
        if self.is_format_2 and spec.order == "F":
            order = tuple(reversed(range(len(spec.shape))))
        key = (spec.shape, dtype, fill_bytes, order)
        layout_or_none = self._layouts.get(key)
        if layout_or_none is None:
            layout = ObjectLayout(self, *key, self.elementwise_codecs.converter_if_any_codec(spec))
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            # Not to be looked up: another thread may clear them.
            self._layouts[key] = layout
        else:
            layout = layout_or_none
        self._last = spec, layout
        return layout

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            ChunkEncoding, is_format_2=self.is_format_2, elementwise_codecs=self.elementwise_codecs
        )
        return make, (self.endian_or_none_if_of_dtype, self.order, self.sharding, self.limits)


class InnerChunkIndex:
    """The offsets of the inner chunks of a complete object, without a stored index.

    A complete object is a chunk, or a new shard with all inner chunks.

    Parameters
    ----------
    data_offset : int
        Offset of the first inner chunk in the object, in bytes.
    inner_chunk_nbytes : int
        Size of an inner chunk in bytes.
    inner_chunk_count : int
        Number of inner chunks.
    ranks : array, optional
        For each inner chunk, the number of inner chunks before it; None for the order of their
        numbers.
    """

    def __init__(
        self,
        data_offset: int = 0,
        inner_chunk_nbytes: int = 0,
        inner_chunk_count: int = 1,
        ranks: Offsets | None = None,
    ) -> None:
        self._data_offset = data_offset
        self._inner_chunk_nbytes = inner_chunk_nbytes
        self._inner_chunk_count = inner_chunk_count
        self._ranks = ranks

    @property
    def present_count(self) -> int:
        """Number of inner chunks that are present."""
        return self._inner_chunk_count

    def offset_of(self, inner_chunk_number: int) -> int | None:
        """Offset of an inner chunk in its object, in bytes; None if it is absent.

        A ShardIndexError if a stored index has an impossible entry for it.
        """
        position = inner_chunk_number
        if self._ranks is not None:
            position = int(self._ranks[inner_chunk_number])
        return self._data_offset + position * self._inner_chunk_nbytes

    def key_of_entries(self, inner_chunk_numbers: Offsets | slice) -> Hashable:  # noqa: ARG002
        """A key for the offsets of these inner chunks, among indexes of one layout."""
        return None

    def share_no_bytes_with_others(self, offsets: list[int]) -> bool:  # noqa: ARG002
        """Whether the inner chunks at `offsets` share no bytes with others in the object.

        A stored index may give the same bytes to several inner chunks. Inner chunks at `offsets`
        must be present.
        """
        return True


class ShardIndex(InnerChunkIndex):
    """The stored index of one shard. Entries are checked when they are used.

    Parameters
    ----------
    layout : ObjectLayout
        Layout of the shard.
    key : str
        Name of the shard in messages.
    content : array of uint8
        Bytes of the index. They aren't copied, and must not change.
    shard_nbytes_if_known : int or None
        Size of the shard in bytes; None if it isn't known.

    Raises
    ------
    ShardIndexError
        If the size of the index doesn't match the metadata, or the checksum doesn't match.
    """

    def __init__(
        self, layout: ObjectLayout, key: str, content: Bytes, shard_nbytes_if_known: int | None
    ) -> None:
        self._layout = layout
        self._key = key
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
                    f"the index of the shard {key} has the checksum {found:#010x}, but its bytes"
                    f" have {computed:#010x}: the shard is damaged, or it was written with"
                    " other shapes or codecs than the metadata names"
                )
        self._entries = entries.view(layout.index_dtype)
        self._data_offset = layout.data_offset
        # The largest valid end of an inner chunk; None if it isn't known.
        self._data_end = shard_nbytes_if_known
        if shard_nbytes_if_known is not None and not layout.data_offset:
            self._data_end = shard_nbytes_if_known - layout.index_nbytes

    def key_of_entries(self, inner_chunk_numbers: Offsets | slice) -> Hashable:
        """The end of the inner chunks, and a copy of the entries of these inner chunks."""
        return self._data_end, self._entries.reshape(-1, 2)[inner_chunk_numbers].tobytes()

    @property
    def present_count(self) -> int:
        """Number of inner chunks that are present."""
        return self._sorted_present_offsets.size

    def share_no_bytes_with_others(self, offsets: list[int]) -> bool:
        """Whether the inner chunks at `offsets` share no bytes with others in the shard."""
        nbytes = self._layout.inner_chunk_nbytes
        begin = np.array(offsets)
        # Each inner chunk must be the only one that begins less than its size before or after it.
        first = np.searchsorted(self._sorted_present_offsets, begin - nbytes, "right")
        return bool(
            (np.searchsorted(self._sorted_present_offsets, begin + nbytes) == first + 1).all()
        )

    @cached_property
    def _sorted_present_offsets(self) -> Offsets:
        """Offsets of the present inner chunks, ascending."""
        offsets, sizes = self._entries.reshape(-1, 2).T
        present = offsets[sizes == self._layout.inner_chunk_nbytes].astype(np.int64)
        return np.sort(present, kind="stable")  # fast if they are in order

    def offset_of(self, inner_chunk_number: int) -> int | None:
        """Offset of an inner chunk in its shard, in bytes; None if it is absent.

        A ShardIndexError if its size doesn't match the metadata, or if it overlaps the index or the
        end of the shard.
        """
        start, nbytes = self._entries[2 * inner_chunk_number : 2 * inner_chunk_number + 2].tolist()
        if start == nbytes == _ABSENT:
            return None
        expected = self._layout.inner_chunk_nbytes
        if nbytes != expected:
            fault = f"has {nbytes} bytes, and must have {expected}"
        elif start < self._data_offset:
            fault = f"begins at byte {start}, within the index, which ends at {self._data_offset}"
        elif self._data_end is not None and start + nbytes > self._data_end:
            fault = f"ends at byte {start + nbytes}, and the inner chunks end at {self._data_end}"
        elif start + nbytes > _MAX_OFFSET:
            fault = f"begins at byte {start}, where no file ends"
        else:
            return int(start)
        layout = self._layout
        coords = layout.grid.coords_of(inner_chunk_number)
        names = ", ".join([str(coords[i]) for i in layout.inverse_order])
        raise ShardIndexError(
            f"inner chunk ({names}) of the shard {self._key} {fault}, says its index: the shard is"
            " damaged, or it was written with other shapes or codecs than the metadata names"
        )


SINGLE_CHUNK_INDEX: Final = InnerChunkIndex()
"""The index of every chunk that isn't a shard."""
