"""Fill values from JSON and to JSON, bit for bit.

Specification: data types, "Permitted fill values", and the README of each extension data type. Any
other value is a `FillValueError`. A `dtype` is a type of NumPy or of ml_dtypes.

A NaN never passes through a Python float: that would set its quiet bit.

Deviations: 1.0 is read as the integer 1, as in zarr. Base64 text is read as raw bytes, because
TensorStore writes it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from zarr_bytes.data_type.number_formats import FLOATS, INTEGERS, nearest_bits
from zarr_bytes.errors import FillValueError, in_short

if TYPE_CHECKING:
    from zarr_bytes.data_type.number_formats import DType


def from_json(value: object, dtype: DType, name: str = "") -> np.generic:
    """Number or bool of `dtype`; `name` is the data type's, for a message, if `dtype` has another.

    >>> from_json([1, "Infinity"], np.dtype("complex64"))
    np.complex64(1+infj)
    """
    if dtype.kind == "b":
        return bool_from_json(value)
    if dtype.name in FLOATS:
        return float_from_json(value, dtype)
    if dtype.name in INTEGERS or dtype.kind in "iu":
        return int_from_json(value, dtype)
    return complex_from_json(value, dtype, name)


def to_json(value: np.generic) -> Any:
    """JSON form of a number or bool: a NaN of other bits than the usual ones as its bits.

    >>> to_json(np.float32("nan")), to_json(np.uint32(0x7F800001).view("f4")), to_json(np.int8(-1))
    ('NaN', '0x7f800001', -1)
    """
    dtype = value.dtype
    if dtype.name in FLOATS:
        return float_to_json(value)
    if dtype.name in INTEGERS:
        return int(value)
    return value.item() if dtype.kind in "biu" else complex_to_json(value)


def bool_from_json(value: object) -> np.bool_:
    """NumPy bool for the JSON value ``true`` or ``false``."""
    if not isinstance(value, bool):
        raise refused(np.dtype("bool"), value, "true or false")
    return np.bool_(value)


def int_from_json(value: object, dtype: DType) -> np.generic:
    """Integer of `dtype` for a JSON number in its range, without a fraction.

    >>> int_from_json(-8, np.dtype("int16"))
    np.int16(-8)
    """
    if dtype.name in INTEGERS:
        least, largest = INTEGERS[dtype.name][0], INTEGERS[dtype.name][-1]
    else:
        info = np.iinfo(dtype)
        least, largest = int(info.min), int(info.max)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and least <= value <= largest
        and int(value) == value
    ):
        return _scalar(np.array(int(value)).astype(dtype))
    raise refused(dtype, value, f"an integer from {least} to {largest}")


def float_from_json(value: object, dtype: DType) -> np.generic:
    """Number of `dtype` for a JSON number, a name, or the hexadecimal form of its bits.

    A number is rounded to the nearest, ties to even. Beyond the largest it is an infinity, as in
    IEEE 754, and refused if the type has none.

    >>> float_to_json(float_from_json("0x7f800001", np.dtype("f4")))
    '0x7f800001'
    """
    form = FLOATS[dtype.name]
    bits = None
    if isinstance(value, str):
        if value in ("Infinity", "-Infinity"):
            bits = nearest_bits(float(value), form)
        elif value == "NaN":
            bits = form.nan
        elif re.fullmatch(f"0x[0-9a-fA-F]{{{2 * dtype.itemsize}}}", value):
            bits = int(value, 16)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        bits = nearest_bits(value, form)
    if bits is None or bits >> form.bits:
        raise refused(dtype, value, _permitted(dtype))
    return _scalar(np.array(bits, f"u{dtype.itemsize}").view(dtype.newbyteorder("=")))


def _permitted(dtype: DType) -> str:
    form = FLOATS[dtype.name]
    names = '"Infinity", "-Infinity", ' if form.has_infinity else ""
    names += '"NaN" or ' if form.nan is not None else "or "
    digits = f'"0x" and {2 * dtype.itemsize} hexadecimal digits'
    if form.bits < 8:
        digits += f", up to 0x{2**form.bits - 1:02x}"
    if form.has_infinity:
        return f"a number, {names}{digits}"
    with np.errstate(invalid="ignore"):
        numbers = np.arange(1 << form.bits, dtype="u1").view(dtype).astype("f8")
    return f"a number from {np.nanmin(numbers)} to {np.nanmax(numbers)}, {names}{digits}"


def float_to_json(value: np.generic) -> float | str:
    """JSON form of a floating-point scalar: a number, a name, or the bits of another NaN.

    >>> float_to_json(np.float32(1.5)), float_to_json(np.float32("-inf"))
    (1.5, '-Infinity')
    """
    number = float(value)
    if number != number:
        bits = int(value.view(f"u{value.dtype.itemsize}"))
        is_canonical = bits == FLOATS[value.dtype.name].nan
        return "NaN" if is_canonical else f"0x{bits:0{2 * value.dtype.itemsize}x}"
    if abs(number) == inf:
        return "Infinity" if number > 0 else "-Infinity"
    return number


def complex_from_json(value: object, dtype: DType, name: str = "") -> np.generic:
    """Complex number for an array of two components; `dtype` may be a record of them."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise refused(name or dtype, value, "an array of two components, such as [0.0, 0.0]")
    # Filled in by component, because arithmetic on NaN would lose payloads.
    pair = np.empty(2, component_of(dtype))
    for i, component in enumerate(value):
        pair[i] = float_from_json(component, pair.dtype)
    return _scalar(pair.view(dtype.newbyteorder("="))[0])


def complex_to_json(value: np.generic) -> tuple[float | str, float | str]:
    """JSON form of a complex number: its real and imaginary component.

    >>> complex_to_json(np.complex64(complex(1, float("inf"))))
    (1.0, 'Infinity')
    """
    real, imaginary = np.array([value]).view(component_of(value.dtype))
    return float_to_json(real), float_to_json(imaginary)


def component_of(dtype: DType) -> DType:
    """Type of the components of a complex type, or of a record of `real` and `imag`."""
    if dtype.fields is not None:
        return dtype["real"]
    component: DType = np.zeros((), dtype)[()].real.dtype
    return component


def raw_from_json(value: object, size: int) -> np.void:
    r"""Raw element of `size` bytes for an array of integers, or the base64 text of its bytes.

    >>> raw_from_json([0, 255], 2).tobytes()
    b'\x00\xff'
    """
    raw = None
    if isinstance(value, str):
        with suppress(ValueError):  # text that is not base64, or not ASCII
            raw = base64.b64decode(value, validate=True)
    elif isinstance(value, Sequence) and all(type(i) is int and 0 <= i <= 255 for i in value):
        raw = bytes(value)
    if raw is None or len(raw) != size:
        raise refused(f"r{8 * size}", value, f"an array of {size} integers from 0 to 255")
    return np.void(raw)


def raw_to_json(value: np.void) -> list[int]:
    """JSON form of a raw element: one integer for each byte."""
    return list(value.tobytes())


def _scalar(array: Any) -> np.generic:
    scalar: np.generic = array[()]
    return scalar


def refused(data_type: object, value: object, permitted: str) -> FillValueError:
    """Error for a fill value that is not permitted for `data_type`, a NumPy type or a name."""
    found = "null" if value is None else in_short(value)
    return FillValueError(
        f"{found} is not a fill value of data type {data_type}: permitted is {permitted}.",
        permitted=permitted,
    )
