"""Conversion of the elements of a chunk to bytes and back.

Specification: bytes codec 1.0, "Format and algorithm" and "Supported data types": elements follow
each other in C order, and each multi-byte number has the byte order of the codec. The numbers in an
element are its *units*: a complex number has two, and a UTF-32 string has one for each character.
Everything is copied at most once.

Arrays of other libraries (GPU arrays) have no types in the other byte order. The bytes of their
units are reversed using only indexing, ``view``, ``reshape``, ``ravel`` and ``copy``.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from zarr_bytes.data_type.fill_value import FIRST_USER_TYPE, unused_upper_bits
from zarr_bytes.errors import BoolValueError, ChunkSizeError, describe_causes_of_wrong_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr.dtype import ZDType

    from zarr_bytes.data_type.fill_value import DType

# Arrays of other libraries have the methods used here, but no common type declares them.
Array: TypeAlias = npt.NDArray[np.generic]
Bytes: TypeAlias = npt.NDArray[np.uint8]
EndiannessStr: TypeAlias = Literal["little", "big"]


class _ScalarField(NamedTuple):
    """A number or other scalar in an element, such as a field of a record."""

    offset: int  # in the element, in bytes
    dtype: DType


class NarrowByte(NamedTuple):
    """A byte of an element with unused upper bits, such as a byte of int4."""

    offset: int  # in the element
    unused_bits: int  # number of unused bits
    is_signed: bool  # the unused bits repeat the sign bit when they are stored


class ElementLayout(NamedTuple):
    """The layout of one element of a data type in the bytes of a chunk."""

    item_size: int  # in bytes
    # A type with the size and byte order of the data type. NumPy copies its units bit for bit, and
    # swaps them if the byte order of the target differs.
    raw_dtype: DType
    stored_raw_dtype: DType  # `raw_dtype` in the stored byte order
    # Unsigned integer with the size and byte order of all units, if all are alike and leave no gap.
    # Elements are then swapped as plain numbers, which is two to three times as fast.
    swap_dtype: DType | None
    is_stored_as_is: bool  # nothing needs to be swapped
    # The data type in the stored byte order, if NumPy converts its values exactly on assignment.
    # None for types of other packages; for times, which NumPy converts by their unit; and for
    # records of two-byte numbers, which take four times as long as plain numbers.
    numpy_dtype: DType | None
    needs_endian: bool  # some unit is longer than one byte, so `endian` is required
    bool_offsets: tuple[int, ...]  # offsets of the bytes in an element that must be 0 or 1
    narrow_bytes: tuple[NarrowByte, ...]


def empty_array(shape: int | tuple[int, ...], dtype: DType) -> Array:
    """Like `numpy.empty`, but times without a unit keep their byte order."""
    return np.ndarray(shape, dtype)


def array_of_one_element(value: Any, dtype: DType) -> Array:
    """An array with one element, converted to `dtype` as by `numpy.full`."""
    array = empty_array(1, dtype)
    np.copyto(array, value, casting="unsafe")
    return array


def fill_value_array(fill_value_if_any: Any, data_type: ZDType[Any, Any]) -> Array:
    """A fill value as an array with one element; None is zarr's default for the data type."""
    fill_value = fill_value_if_any
    if fill_value is None:
        fill_value = data_type.default_scalar()
    return array_of_one_element(fill_value, data_type.to_native_dtype())


def has_fixed_size(dtype: DType) -> bool:
    """Whether all elements have one size: objects and variable-length text are only pointers."""
    return not dtype.hasobject and dtype.kind != "T"


@lru_cache(maxsize=1024)  # computed once for a data type, not for every chunk
def element_layout_of(dtype: DType, new_endian: EndiannessStr | None = None) -> ElementLayout:
    """Layout of the elements of `dtype`, stored in the byte order `new_endian`.

    None keeps the byte order of `dtype`. A ValueError if elements have no fixed size, or if their
    byte order isn't known.
    """
    if not has_fixed_size(dtype):
        raise ValueError(f"elements of {dtype} have no fixed size")
    raw_dtype = _bit_preserving_dtype(dtype)
    stored_raw_dtype = raw_dtype if new_endian is None else raw_dtype.newbyteorder(new_endian)
    is_stored_as_is = raw_dtype == stored_raw_dtype
    swap_dtype = _common_unsigned_unit_or_none(raw_dtype)
    fields = list(_iter_scalar_fields(dtype))
    units = [unit for _, unit in _iter_scalar_fields(raw_dtype)]
    unused = [(offset, unused_upper_bits(field)) for offset, field in fields]
    numpy_dtype: DType | None = None
    if is_stored_as_is:
        numpy_dtype = dtype
    elif new_endian is not None:
        is_slow = dtype.names is not None and swap_dtype is not None and swap_dtype.itemsize == 2
        is_exact = all(f.num < FIRST_USER_TYPE and f.kind not in "mM" for _, f in fields)
        if is_exact and not is_slow:
            numpy_dtype = dtype.newbyteorder(new_endian)
    return ElementLayout(
        item_size=dtype.itemsize,
        raw_dtype=raw_dtype,
        stored_raw_dtype=stored_raw_dtype,
        swap_dtype=swap_dtype,
        is_stored_as_is=is_stored_as_is,
        numpy_dtype=numpy_dtype,
        needs_endian=any(unit.kind not in "SV" and unit.itemsize > 1 for unit in units),
        bool_offsets=tuple(offset for offset, field in fields if field.kind == "b"),
        narrow_bytes=tuple(
            [NarrowByte(offset, *bits) for offset, bits in unused if bits is not None]
        ),
    )


def common_byte_order_or_none(dtype: DType) -> EndiannessStr | None:
    """Byte order of all multi-byte units; None if they have both orders, or if there are none."""
    units = [unit for _, unit in _iter_scalar_fields(_bit_preserving_dtype(dtype))]
    signs = {unit.str[0] for unit in units} - {"|"}
    if len(signs) != 1:
        return None
    return "little" if signs == {"<"} else "big"


def viewable_dtype(dtype: DType, endian_or_none_if_of_dtype: EndiannessStr | None) -> DType | None:
    """The NumPy data type for a view of stored elements; None if there is none."""
    element_layout = element_layout_of(dtype, endian_or_none_if_of_dtype)
    if element_layout.is_stored_as_is or endian_or_none_if_of_dtype is None:
        return dtype
    # Types of other packages have one byte order, or swap the two numbers of a complex number.
    is_numpys = all(
        leaf.num < FIRST_USER_TYPE or leaf.itemsize == 1 for _, leaf in _iter_scalar_fields(dtype)
    )
    return dtype.newbyteorder(endian_or_none_if_of_dtype) if is_numpys else None


def _bit_preserving_dtype(dtype: DType) -> DType:
    """A type of equal size that NumPy copies bit for bit, and swaps if byte orders differ.

    This is `ElementLayout.raw_dtype`. A ValueError if the byte order of `dtype` isn't known.
    """
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names] if dtype.fields else []
        return np.dtype(
            {
                "names": list(dtype.names),
                "formats": [_bit_preserving_dtype(field[0]) for field in fields],
                "offsets": [field[1] for field in fields],
                "itemsize": dtype.itemsize,
            }
        )
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_bit_preserving_dtype(base), shape))
    if dtype.num < FIRST_USER_TYPE:
        # NumPy copies and swaps its strings and complex numbers by unit.
        is_copied = dtype.kind in "cSUV" or dtype.itemsize > 8
        return dtype if is_copied else _unsigned_like(dtype, dtype.itemsize)
    # A type of another package: NumPy can't swap it, and its byte order is the machine's. A number
    # with a real part of half its size is complex.
    real = np.zeros((), dtype)[()].real
    is_complex = isinstance(real, np.generic) and 2 * real.dtype.itemsize == dtype.itemsize
    size = dtype.itemsize // (2 if is_complex else 1)
    if size not in (1, 2, 4, 8):
        raise ValueError(
            f"the byte order of {dtype} is not known: its {dtype.itemsize} bytes are not one number"
            " of 1, 2, 4 or 8 bytes"
        )
    unit = _unsigned_like(dtype, size)
    return np.dtype([("real", unit), ("imaginary", unit)]) if is_complex else unit


def _common_unsigned_unit_or_none(raw_dtype: DType) -> DType | None:
    """The unsigned integer for all units of an element; None if units differ or leave a gap.

    This is `ElementLayout.swap_dtype`.
    """
    unit_dtypes = set()
    end = 0
    for offset, field in sorted(_iter_scalar_fields(raw_dtype), key=itemgetter(0)):
        unit_count = {"u": 1, "c": 2, "U": field.itemsize // 4}.get(field.kind, 0)
        if offset != end or unit_count == 0 or field.itemsize // unit_count > 8:
            return None
        unit_dtypes.add(_unsigned_like(field, field.itemsize // unit_count))
        end += field.itemsize
    return unit_dtypes.pop() if len(unit_dtypes) == 1 and end == raw_dtype.itemsize else None


def _unsigned_like(dtype: DType, nbytes: int) -> DType:
    """An unsigned integer of `nbytes` bytes in the byte order of `dtype`."""
    return np.dtype(f"{dtype.byteorder if dtype.byteorder in '<>' else '='}u{nbytes}")


def _iter_scalar_fields(dtype: DType, start_offset: int = 0) -> Iterator[_ScalarField]:
    """Every number in an element of `dtype`, including numbers in records and subarrays."""
    if dtype.fields is not None:
        for field in dtype.fields.values():
            yield from _iter_scalar_fields(field[0], start_offset + field[1])
    elif dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for i in range(int(np.prod(shape))):
            yield from _iter_scalar_fields(base, start_offset + i * base.itemsize)
    else:
        yield _ScalarField(start_offset, dtype)


def encode_elements(array: Array, new_endian: EndiannessStr | None) -> Bytes:
    """Bytes of the elements in C order, in the byte order `new_endian`; a view if nothing changes.

    None keeps the byte order of the array. Bools become 0 or 1.
    """
    element_layout = element_layout_of(array.dtype, new_endian)
    if element_layout.is_stored_as_is:
        encoded = array.ravel().view(np.uint8)
    elif not isinstance(array, np.ndarray):
        encoded = _flat_byteswapped_copy(array[..., None].view(np.uint8), element_layout)
    elif element_layout.swap_dtype is not None and array.flags.c_contiguous:
        numbers = array.reshape(-1).view(element_layout.swap_dtype)
        encoded = numbers.astype(numbers.dtype.newbyteorder()).view(np.uint8)
    else:
        target = np.empty(array.shape, element_layout.stored_raw_dtype)
        target[...] = array.view(element_layout.raw_dtype)
        encoded = target.ravel().view(np.uint8)
    for offset in element_layout.bool_offsets:
        # In NumPy, any byte other than 0 is true; in the specification, only 1 is.
        if max_or_zero(encoded.reshape(-1, element_layout.item_size)[:, offset]) > 1:
            encoded = encoded.copy()
            flags = encoded.reshape(-1, element_layout.item_size)[:, offset]
            flags[...] = flags != 0
    if element_layout.narrow_bytes:
        encoded = with_unused_bits_normalized(encoded, element_layout, repeat_sign=True)
    return encoded


def iter_blocks_to_encode(
    array: Array, new_endian: EndiannessStr | None, block_nbytes: int
) -> Iterator[Array]:
    """Views of `array` in C order, as blocks that `encode_elements` can encode in little memory.

    A block has `block_nbytes`, or one element if that is larger; some are smaller if the array has
    gaps. If encoding returns a view, one block has all elements. There is at least one block, even
    for an empty array.
    """
    element_layout = element_layout_of(array.dtype, new_endian)
    is_as_is = element_layout.is_stored_as_is and not (
        element_layout.bool_offsets or element_layout.narrow_bytes
    )
    if array.flags.c_contiguous and is_as_is:
        yield array
    else:
        yield from iter_blocks(array, block_nbytes)


def iter_blocks(array: Array, block_nbytes: int) -> Iterator[Array]:
    """Views of `array` as in `iter_blocks_to_encode`, for any data type."""
    if array.nbytes <= block_nbytes:
        yield array
        return
    if array.flags.c_contiguous:
        array = array.reshape(-1)
    rows = block_nbytes * len(array) // array.nbytes
    if rows == 0 and array.ndim > 1:
        for row in array:
            yield from iter_blocks(row, block_nbytes)
        return
    for start in range(0, len(array), rows or 1):
        yield array[start : start + (rows or 1)]


def decode_elements(
    encoded: Bytes,
    dtype: DType,
    shape: tuple[int, ...],
    endian_or_none_if_of_dtype: EndiannessStr | None,
) -> Array:
    """Array of `shape` and `dtype` with the elements in `encoded`, at any alignment.

    A view if nothing is swapped or changed, otherwise a new array. A ChunkSizeError if `encoded`
    has another size, a BoolValueError if a bool is neither 0 nor 1.
    """
    element_layout = element_layout_of(dtype, endian_or_none_if_of_dtype)
    check_chunk_nbytes(encoded.size, dtype, shape)
    if (byte := offset_of_first_invalid_bool(encoded, element_layout)) is not None:
        index = tuple(int(i) for i in np.unravel_index(byte // element_layout.item_size, shape))
        raise invalid_bool_error(int(encoded[byte]), index, "chunk", byte)
    if element_layout.narrow_bytes:
        encoded = with_unused_bits_normalized(encoded, element_layout, repeat_sign=False)
    if not isinstance(encoded, np.ndarray):
        if not element_layout.stored_raw_dtype.isnative:
            encoded = _flat_byteswapped_copy(encoded, element_layout)
        return encoded.view(dtype.newbyteorder("=")).reshape(shape)
    if element_layout.is_stored_as_is:
        return encoded.view(dtype).reshape(shape)
    array = empty_array(shape, dtype)
    if element_layout.swap_dtype is not None:
        numbers = array.reshape(-1).view(element_layout.swap_dtype)
        numbers[...] = encoded.view(numbers.dtype.newbyteorder())
        return array
    array.view(element_layout.raw_dtype)[...] = encoded.view(
        element_layout.stored_raw_dtype
    ).reshape(shape)
    return array


def _flat_byteswapped_copy(encoded: Bytes, element_layout: ElementLayout) -> Bytes:
    """The bytes of each number in reverse order, as a new array with one axis.

    For arrays of other libraries. A TypeError if the units of an element differ.
    """
    if element_layout.swap_dtype is None:
        raise TypeError(
            f"the byte order of {element_layout.raw_dtype} can be changed in NumPy arrays only,"
            f" not in {type(encoded).__module__}.{type(encoded).__qualname__}"
        )
    size = element_layout.swap_dtype.itemsize
    *outer, inner = encoded.shape
    return encoded.reshape(*outer, inner // size, size)[..., ::-1].copy().ravel()


def with_unused_bits_normalized(
    encoded: Bytes, element_layout: ElementLayout, *, repeat_sign: bool
) -> Bytes:
    """A copy whose unused bits in narrow numbers are zeros, or repeat the sign of signed ones."""
    # ml_dtypes has zeros in memory, TensorStore stores the sign; the specification permits any.
    encoded = encoded.copy()
    elements = encoded.reshape(-1, element_layout.item_size)
    for narrow_byte in element_layout.narrow_bytes:
        numbers = elements[:, narrow_byte.offset]
        numbers &= 0xFF >> narrow_byte.unused_bits
        if narrow_byte.is_signed and repeat_sign:
            sign = 0x80 >> narrow_byte.unused_bits
            numbers ^= sign
            numbers -= sign  # wraps if the sign was set
    return encoded


def check_chunk_nbytes(nbytes: int, dtype: DType, shape: tuple[int, ...]) -> None:
    """Raise a ChunkSizeError unless a chunk of this shape has this size in bytes."""
    expected = prod(shape) * dtype.itemsize
    if nbytes != expected:
        raise ChunkSizeError(
            f"a chunk of data type {dtype} and shape {shape} has {expected} bytes, found {nbytes}"
            f": {describe_causes_of_wrong_size(nbytes, expected)}"
        )


def invalid_bool_error(
    value: int, index: tuple[int, ...], chunk_or_selection: str, byte_offset: int
) -> BoolValueError:
    """Error for a bool stored as `value`, at an index and a byte of a chunk or selection.

    `chunk_or_selection` is "chunk" or "selection", to which the index and the offset refer.
    """
    return BoolValueError(
        f"a bool is stored as 0 or 1, found {value} at index {index} of the {chunk_or_selection}"
        f" (byte {byte_offset})"
    )


def offset_of_first_invalid_bool(encoded: Bytes, element_layout: ElementLayout) -> int | None:
    """Offset in `encoded` of the first bool that is neither 0 nor 1; None if there is none.

    `encoded` has whole elements in C order.
    """
    item_size = element_layout.item_size
    elements = encoded.reshape(-1, item_size)
    invalid = [i for i in element_layout.bool_offsets if max_or_zero(elements[:, i]) > 1]
    first_of_each = [int((elements[:, i] > 1).argmax()) * item_size + i for i in invalid]
    return min(first_of_each, default=None)


def consists_of_repeated(encoded: Bytes, element: bytes, step_nbytes: int) -> bool:
    """Whether all encoded elements equal `element`; True if there are no elements.

    About `step_nbytes` bytes are compared at a time, so that most comparisons end early.
    """
    # As eight-byte numbers if possible, which NumPy compares in half the time of single bytes.
    if encoded.size % 8 == 0 and 8 % len(element) == 0:
        element *= 8 // len(element)
    if encoded[: len(element)].tobytes() not in (element, b""):
        return False
    unit_nbytes = gcd(len(element), 8)
    units = encoded.view(f"u{unit_nbytes}")
    size = len(element) // unit_nbytes
    step = max(step_nbytes // unit_nbytes, 1)
    elements, next_elements = units[:-size], units[size:]
    return all(
        bool((elements[start : start + step] == next_elements[start : start + step]).all())
        for start in range(0, elements.size, step)
    )


def max_or_zero(flags: Bytes) -> int:
    """The largest of `flags`; 0 for an empty array."""
    return int(flags.max()) if flags.size else 0
