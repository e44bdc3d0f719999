"""The layout of one element of a data type in bytes.

Specification: bytes codec 1.0, "Format and algorithm" and "Supported data types". Every multi-byte
number is stored in the byte order that the codec names. A complex number is two numbers, a UTF-32
string has one for each character, a record has the numbers of its fields. These numbers are the
*units* of an element.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from zarr_bytes.data_type.number_formats import FIRST_USER_TYPE, unused_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.data_type.number_formats import DType

Endian: TypeAlias = Literal["little", "big"]


class ElementLayout(NamedTuple):
    """The layout of one element of a data type in the bytes of a chunk."""

    item_size: int  # in bytes
    # A type of the size and byte order of the data type, whose units NumPy copies bit for bit, and
    # swaps where the byte order of the target differs.
    units: DType
    stored: DType  # `units` in the stored byte order
    # Unsigned integer of the size and byte order of all units, where these are equal and leave no
    # gap: elements are then swapped as plain numbers, two to three times as fast.
    number: DType | None
    is_stored_as_is: bool  # nothing needs to be swapped
    # The data type in the stored byte order, if NumPy converts its values exactly on assignment.
    # None for types of other packages; for times, which NumPy converts by their unit; and for
    # records of numbers of two bytes, which take four times as long as plain numbers.
    view: DType | None
    has_byte_order: bool  # any unit is longer than one byte, so that `endian` is required
    bool_offsets: tuple[int, ...]  # of the bytes in an element that must be 0 or 1
    # For each byte with unused upper bits: its offset in an element; the number of these bits; and
    # whether they repeat the sign bit when they are stored.
    narrow_bytes: tuple[tuple[int, int, bool], ...]


def has_fixed_size(dtype: DType) -> bool:
    """Whether every element of `dtype` takes the same number of bytes in an array's memory.

    Python objects and NumPy's variable-length strings are pointers there.
    """
    return not dtype.hasobject and dtype.kind != "T"


@lru_cache(maxsize=1024)  # decided once for a data type, not for every chunk
def layout_of(dtype: DType, endian: Endian | None = None) -> ElementLayout:
    """Layout of the elements of `dtype`, stored in the byte order `endian`."""
    if not has_fixed_size(dtype):
        raise ValueError(f"elements of {dtype} have no fixed size")
    units = _units(dtype)
    stored = units if endian is None else units.newbyteorder(endian)
    number = _number(units)
    if units == stored:
        view: DType | None = dtype
    else:
        is_slow = dtype.names is not None and number is not None and number.itemsize == 2
        is_exact = _is_swapped_exactly(dtype)
        view = dtype.newbyteorder(endian) if endian and is_exact and not is_slow else None
    return ElementLayout(
        item_size=dtype.itemsize,
        units=units,
        stored=stored,
        number=number,
        is_stored_as_is=units == stored,
        view=view,
        has_byte_order=_has_byte_order(units),
        bool_offsets=tuple(offset for offset, leaf in _leaves(dtype) if leaf.kind == "b"),
        narrow_bytes=tuple(
            (offset, *unused)
            for offset, leaf in _leaves(dtype)
            if (unused := unused_bits(leaf)) is not None
        ),
    )


def stored_dtype(dtype: DType, endian: Endian | None) -> DType | None:
    """The NumPy data type whose elements in memory are the stored elements; None without one."""
    layout = layout_of(dtype, endian)
    if layout.is_stored_as_is or endian is None:
        return dtype
    # Types of other packages have one byte order, or exchange the two numbers of a complex number.
    is_numpys = all(leaf.num < FIRST_USER_TYPE or leaf.itemsize == 1 for _, leaf in _leaves(dtype))
    return dtype.newbyteorder(endian) if is_numpys else None


def _units(dtype: DType) -> DType:
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names] if dtype.fields else []
        return np.dtype(
            {
                "names": list(dtype.names),
                "formats": [_units(field[0]) for field in fields],
                "offsets": [field[1] for field in fields],
                "itemsize": dtype.itemsize,
            }
        )
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_units(base), shape))
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


def _number(units: DType) -> DType | None:
    """`ElementLayout.number` of `units`."""
    if units.names is not None:
        fields = sorted((units.fields or {}).values(), key=lambda field: field[1])
        ends = [0, *(offset + dtype.itemsize for dtype, offset, *_ in fields)]
        numbers = {_number(field[0]) for field in fields}
        has_gap = [*(field[1] for field in fields), units.itemsize] != ends
        return None if has_gap or len(numbers) != 1 else numbers.pop()
    if units.subdtype is not None:
        return _number(units.subdtype[0])
    parts = {"u": 1, "c": 2, "U": units.itemsize // 4}.get(units.kind, 0)
    if parts == 0 or units.itemsize // parts > 8:
        return None
    return _unsigned(units, units.itemsize // parts)


def _unsigned(dtype: DType, size: int) -> DType:
    """An unsigned integer of `size` bytes in the byte order of `dtype`."""
    return np.dtype(f"{dtype.byteorder if dtype.byteorder in '<>' else '='}u{size}")


def _has_byte_order(units: DType) -> bool:
    if units.names is not None:
        return any(_has_byte_order(units[name]) for name in units.names)
    if units.subdtype is not None:
        return _has_byte_order(units.subdtype[0])
    return units.kind not in "SV" and units.itemsize > 1


def _is_swapped_exactly(dtype: DType) -> bool:
    if dtype.fields is not None:
        return all(_is_swapped_exactly(field[0]) for field in dtype.fields.values())
    if dtype.subdtype is not None:
        return _is_swapped_exactly(dtype.subdtype[0])
    return dtype.num < FIRST_USER_TYPE and dtype.kind not in "mM"


def _leaves(dtype: DType, start: int = 0) -> Iterator[tuple[int, DType]]:
    """Offset and type of every number in an element of `dtype`."""
    if dtype.fields is not None:
        for field in dtype.fields.values():
            yield from _leaves(field[0], start + field[1])
    elif dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for i in range(int(np.prod(shape))):
            yield from _leaves(base, start + i * base.itemsize)
    else:
        yield start, dtype
