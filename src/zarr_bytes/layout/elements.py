"""The elements of a chunk to bytes and back.

Specification: bytes codec 1.0, "Format and algorithm" and "Supported data types". The numbers in an
element are its *units*: two of a complex number, one for each character of a UTF-32 string. Arrays
of other libraries (GPU arrays) have no types in the other byte order: there the bytes of each unit
are reversed, with indexing, ``view``, ``reshape``, ``ravel`` and ``copy`` alone.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from zarr_bytes import limits
from zarr_bytes.data_type.fill_value import FIRST_USER_TYPE, unused_bits
from zarr_bytes.errors import BoolValueError, ChunkSizeError, causes_of_a_wrong_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.data_type.fill_value import DType

# Arrays of other libraries have the methods used here, but no common type that declares them.
Array: TypeAlias = npt.NDArray[np.generic]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Endian: TypeAlias = Literal["little", "big"]


class ElementLayout(NamedTuple):
    """The layout of one element of a data type in the bytes of a chunk."""

    item_size: int  # in bytes
    # A type of the size and byte order of the data type, whose units NumPy copies bit for bit, and
    # swaps where the byte order of the target differs.
    raw_dtype: DType
    stored_raw_dtype: DType  # `raw_dtype` in the stored byte order
    # Unsigned integer of the size and byte order of all units, where these are equal and leave no
    # gap: elements are then swapped as plain numbers, two to three times as fast.
    swap_dtype: DType | None
    is_stored_as_is: bool  # nothing needs to be swapped
    # The data type in the stored byte order, if NumPy converts its values exactly on assignment.
    # None for types of other packages; for times, which NumPy converts by their unit; and for
    # records of numbers of two bytes, which take four times as long as plain numbers.
    numpy_dtype: DType | None
    needs_endian: bool  # any unit is longer than one byte, so that `endian` is required
    bool_offsets: tuple[int, ...]  # of the bytes in an element that must be 0 or 1
    # For each byte with unused upper bits: its offset in an element; the number of these bits; and
    # whether they repeat the sign bit when they are stored.
    narrow_bytes: tuple[tuple[int, int, bool], ...]


def has_fixed_size(dtype: DType) -> bool:
    """Whether elements have one size in memory: objects and variable-length text are pointers."""
    return not dtype.hasobject and dtype.kind != "T"


@lru_cache(maxsize=1024)  # decided once for a data type, not for every chunk
def element_layout_of(dtype: DType, endian: Endian | None = None) -> ElementLayout:
    """Layout of the elements of `dtype`, stored in the byte order `endian`."""
    if not has_fixed_size(dtype):
        raise ValueError(f"elements of {dtype} have no fixed size")
    units = _raw_dtype(dtype)
    stored = units if endian is None else units.newbyteorder(endian)
    number, leaves = _swap_dtype(units), list(_scalar_fields(dtype))
    unit_types = [unit for _, unit in _scalar_fields(units)]
    unused = [(offset, unused_bits(leaf)) for offset, leaf in leaves]
    if units == stored:
        view: DType | None = dtype
    else:
        is_slow = dtype.names is not None and number is not None and number.itemsize == 2
        is_exact = all(leaf.num < FIRST_USER_TYPE and leaf.kind not in "mM" for _, leaf in leaves)
        view = dtype.newbyteorder(endian) if endian and is_exact and not is_slow else None
    return ElementLayout(
        item_size=dtype.itemsize,
        raw_dtype=units,
        stored_raw_dtype=stored,
        swap_dtype=number,
        is_stored_as_is=units == stored,
        numpy_dtype=view,
        needs_endian=any(unit.kind not in "SV" and unit.itemsize > 1 for unit in unit_types),
        bool_offsets=tuple(offset for offset, leaf in leaves if leaf.kind == "b"),
        narrow_bytes=tuple([(offset, *bits) for offset, bits in unused if bits is not None]),
    )


def viewable_dtype(dtype: DType, endian: Endian | None) -> DType | None:
    """The NumPy data type whose elements in memory are the stored elements; None without one."""
    element_layout = element_layout_of(dtype, endian)
    if element_layout.is_stored_as_is or endian is None:
        return dtype
    # Types of other packages have one byte order, or exchange the two numbers of a complex number.
    is_numpys = all(
        leaf.num < FIRST_USER_TYPE or leaf.itemsize == 1 for _, leaf in _scalar_fields(dtype)
    )
    return dtype.newbyteorder(endian) if is_numpys else None


def _raw_dtype(dtype: DType) -> DType:
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names] if dtype.fields else []
        units, offsets = [_raw_dtype(field[0]) for field in fields], [field[1] for field in fields]
        names, size = list(dtype.names), dtype.itemsize
        return np.dtype({"names": names, "formats": units, "offsets": offsets, "itemsize": size})
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_raw_dtype(base), shape))
    if dtype.num < FIRST_USER_TYPE:
        # NumPy copies and swaps its strings and complex numbers by unit.
        is_copied = dtype.kind in "cSUV" or dtype.itemsize > 8
        return dtype if is_copied else _unsigned(dtype, dtype.itemsize)
    # A type of another package: NumPy cannot swap it, and its byte order is the machine's. A number
    # with a real part of half its size is complex.
    real = np.zeros((), dtype)[()].real
    is_complex = isinstance(real, np.generic) and 2 * real.dtype.itemsize == dtype.itemsize
    size = dtype.itemsize // (2 if is_complex else 1)
    if size not in (1, 2, 4, 8):
        raise ValueError(
            f"the byte order of {dtype} is not known: its {dtype.itemsize} bytes are not one number"
            " of 1, 2, 4 or 8 bytes"
        )
    unit = _unsigned(dtype, size)
    return np.dtype([("real", unit), ("imaginary", unit)]) if is_complex else unit


def _swap_dtype(units: DType) -> DType | None:
    """`ElementLayout.swap_dtype` of `raw_dtype`."""
    numbers, end = set(), 0
    for offset, unit in sorted(_scalar_fields(units), key=itemgetter(0)):
        parts = {"u": 1, "c": 2, "U": unit.itemsize // 4}.get(unit.kind, 0)
        if offset != end or parts == 0 or unit.itemsize // parts > 8:
            return None
        numbers.add(_unsigned(unit, unit.itemsize // parts))
        end += unit.itemsize
    return numbers.pop() if len(numbers) == 1 and end == units.itemsize else None


def _unsigned(dtype: DType, size: int) -> DType:
    """An unsigned integer of `size` bytes in the byte order of `dtype`."""
    return np.dtype(f"{dtype.byteorder if dtype.byteorder in '<>' else '='}u{size}")


def _scalar_fields(dtype: DType, start: int = 0) -> Iterator[tuple[int, DType]]:
    """Offset and type of every number in an element of `dtype`."""
    if dtype.fields is not None:
        for field in dtype.fields.values():
            yield from _scalar_fields(field[0], start + field[1])
    elif dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for i in range(int(np.prod(shape))):
            yield from _scalar_fields(base, start + i * base.itemsize)
    else:
        yield start, dtype


def encode_elements(array: Array, endian: Endian | None) -> Bytes:
    """Bytes of the elements in C order and in one byte order; where possible, a view."""
    element_layout = element_layout_of(array.dtype, endian)
    if element_layout.is_stored_as_is:
        encoded = array.ravel().view(np.uint8)
    elif not isinstance(array, np.ndarray):
        encoded = _reverse_numbers(array[..., None].view(np.uint8), element_layout)
    elif element_layout.swap_dtype is not None and array.flags.c_contiguous:
        numbers = array.reshape(-1).view(element_layout.swap_dtype)
        encoded = numbers.astype(numbers.dtype.newbyteorder()).view(np.uint8)
    else:
        target = np.empty(array.shape, element_layout.stored_raw_dtype)
        target[...] = array.view(element_layout.raw_dtype)
        encoded = target.ravel().view(np.uint8)
    for offset in element_layout.bool_offsets:
        # NumPy takes any byte but 0 for true; the specification has one byte for it.
        if max_or_zero(encoded.reshape(-1, element_layout.item_size)[:, offset]) > 1:
            encoded = encoded.copy()
            flags = encoded.reshape(-1, element_layout.item_size)[:, offset]
            flags[...] = flags != 0
    return set_unused_bits(encoded, element_layout, repeat_sign=True)


def encode_in_blocks(array: Array, endian: Endian | None) -> Iterator[Bytes]:
    """`encode_elements`, in blocks of bounded size, or as a whole where that is a view."""
    element_layout, is_flat = element_layout_of(array.dtype, endian), array.flags.c_contiguous
    is_as_is = element_layout.is_stored_as_is and not (
        element_layout.bool_offsets or element_layout.narrow_bytes
    )
    if array.nbytes <= limits.LIMITS.block_nbytes or (is_flat and is_as_is):
        yield encode_elements(array, endian)
        return
    if is_flat:
        array = array.reshape(-1)
    rows = limits.LIMITS.block_nbytes * len(array) // array.nbytes
    if rows == 0 and array.ndim > 1:
        for row in array:
            yield from encode_in_blocks(row, endian)
        return
    for start in range(0, len(array), rows or 1):
        yield encode_elements(array[start : start + (rows or 1)], endian)


def decode_elements(
    encoded: Bytes, dtype: DType, shape: tuple[int, ...], endian: Endian | None
) -> Array:
    """Array of `shape` of the elements in `encoded`, at any alignment; where possible, a view."""
    element_layout = element_layout_of(dtype, endian)
    check_chunk_nbytes(encoded.size, dtype, shape)
    if (byte := find_invalid_bool(encoded, element_layout)) is not None:
        index = tuple(int(i) for i in np.unravel_index(byte // element_layout.item_size, shape))
        raise invalid_bool_error(int(encoded[byte]), index, "chunk", byte)
    encoded = set_unused_bits(encoded, element_layout, repeat_sign=False)
    if not isinstance(encoded, np.ndarray):
        if not element_layout.stored_raw_dtype.isnative:
            encoded = _reverse_numbers(encoded, element_layout)
        return encoded.view(dtype.newbyteorder("=")).reshape(shape)
    if element_layout.is_stored_as_is:
        return encoded.view(dtype).reshape(shape)
    array = np.empty(shape, dtype)
    if element_layout.swap_dtype is not None:
        numbers = array.reshape(-1).view(element_layout.swap_dtype)
        numbers[...] = encoded.view(numbers.dtype.newbyteorder())
        return array
    array.view(element_layout.raw_dtype)[...] = encoded.view(
        element_layout.stored_raw_dtype
    ).reshape(shape)
    return array


def _reverse_numbers(encoded: Bytes, element_layout: ElementLayout) -> Bytes:
    """The bytes of each number in reverse, as a new 1-D array."""
    if element_layout.swap_dtype is None:
        raise TypeError(
            f"the byte order of {element_layout.raw_dtype} can be changed in NumPy arrays only,"
            f" not in {type(encoded).__module__}.{type(encoded).__qualname__}"
        )
    size = element_layout.swap_dtype.itemsize
    *outer, inner = encoded.shape
    return encoded.reshape(*outer, inner // size, size)[..., ::-1].copy().ravel()


def set_unused_bits(encoded: Bytes, element_layout: ElementLayout, *, repeat_sign: bool) -> Bytes:
    """`encoded`, where the unused upper bits of narrow numbers are zeros, or repeat the sign."""
    # ml_dtypes has zeros in memory, TensorStore stores the sign; the specification permits any.
    if not element_layout.narrow_bytes:
        return encoded
    encoded = encoded.copy()
    elements = encoded.reshape(-1, element_layout.item_size)
    for offset, unused, is_signed in element_layout.narrow_bytes:
        numbers = elements[:, offset]
        numbers &= 0xFF >> unused
        if is_signed and repeat_sign:
            sign = 0x80 >> unused
            numbers ^= sign
            numbers -= sign  # which wraps, where the sign was set
    return encoded


def check_chunk_nbytes(found: int, dtype: DType, shape: tuple[int, ...]) -> None:
    """Check the size of a chunk against its shape."""
    expected = prod(shape) * dtype.itemsize
    if found != expected:
        raise ChunkSizeError(
            f"a chunk of data type {dtype} and shape {shape} has {expected} bytes, found {found}"
            f": {causes_of_a_wrong_size(found, expected)}"
        )


def invalid_bool_error(found: int, index: tuple[int, ...], of: str, byte: int) -> BoolValueError:
    """Error for a bool stored as `found`, at an index and a byte of a chunk or selection."""
    return BoolValueError(
        f"a bool is stored as 0 or 1, found {found} at index {index} of the {of} (byte {byte})"
    )


def find_invalid_bool(encoded: Bytes, element_layout: ElementLayout) -> int | None:
    """Offset of the first bool in `encoded`, whole elements in C order, that is neither 0 nor 1."""
    elements, size = encoded.reshape(-1, element_layout.item_size), element_layout.item_size
    wrong = [i for i in element_layout.bool_offsets if max_or_zero(elements[:, i]) > 1]
    return min([int((elements[:, i] > 1).argmax()) * size + i for i in wrong], default=None)


def max_or_zero(flags: Bytes) -> int:
    """The largest of `flags`; 0 for an empty array."""
    return int(flags.max()) if flags.size else 0
