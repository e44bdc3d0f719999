"""Fill values of the core data types, from JSON and to JSON, bit for bit.

Specification: data types, "Permitted fill values". What the text does not permit raises
`FillValueError`.

A NaN never passes through a Python float: that would set its quiet bit.

Deviation: 1.0 is read for the integer 1, as zarr reads it, and base64 text for raw bytes, as
TensorStore writes it.
"""

from __future__ import annotations

import base64
import binascii
import re
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from zarr_bytes.errors import FillValueError

if TYPE_CHECKING:
    Floating: TypeAlias = np.dtype[np.floating[Any]]
    Complex: TypeAlias = np.dtype[np.complexfloating[Any, Any]]

__all__ = [
    "bool_from_json",
    "complex_from_json",
    "complex_to_json",
    "float_from_json",
    "float_to_json",
    "int_from_json",
    "raw_from_json",
    "raw_to_json",
]


def bool_from_json(value: object) -> np.bool_:
    """NumPy bool for the JSON value ``true`` or ``false``."""
    if not isinstance(value, bool):
        raise _refused("bool", value, "true or false")
    return np.bool_(value)


def int_from_json(value: object, dtype: np.dtype[np.integer[Any]]) -> np.integer[Any]:
    """Integer of `dtype` for a JSON number in its range, without a fraction."""
    info = np.iinfo(dtype)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and info.min <= value <= info.max
        and int(value) == value
    ):
        return dtype.type(int(value))
    raise _refused(dtype, value, f"an integer from {info.min} to {info.max}")


def float_from_json(value: object, dtype: Floating) -> np.floating[Any]:
    """Number of `dtype` for a JSON number, a name, or the hexadecimal form of its bits.

    Parameters
    ----------
    value : int, float or str
        A number is rounded to the nearest representable value, ties to even; one beyond the largest
        becomes an infinity, as IEEE 754 has it.
    dtype : numpy.dtype
        float16, float32 or float64.

    Raises
    ------
    FillValueError
        If `value` is anything else.

    Examples
    --------
    >>> float_to_json(float_from_json("0x7f800001", np.dtype("f4")))
    '0x7f800001'
    """
    digits = 2 * dtype.itemsize
    if isinstance(value, str):
        if value in ("Infinity", "-Infinity"):
            return dtype.type(value)
        if value == "NaN":
            return _from_bits(_canonical_nan(dtype), dtype)
        if re.fullmatch(f"0x[0-9a-fA-F]{{{digits}}}", value):
            return _from_bits(int(value, 16), dtype)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        with np.errstate(over="ignore"):
            try:
                # From an array, so that an integer is rounded once, and not through a float.
                return dtype.type(np.array(value).astype(dtype))
            except OverflowError:  # an integer of more than 308 digits
                return dtype.type("inf" if value > 0 else "-inf")
    raise _refused(
        dtype,
        value,
        f'a number, "Infinity", "-Infinity", "NaN" or "0x" and {digits} hexadecimal digits',
    )


def float_to_json(value: np.floating[Any]) -> float | str:
    """JSON form of `value`: a number, a name, or for any NaN but the canonical one its bits."""
    if np.isnan(value):
        bits = int(value.view(f"u{value.dtype.itemsize}"))
        is_canonical = bits == _canonical_nan(value.dtype)
        return "NaN" if is_canonical else f"0x{bits:0{2 * value.dtype.itemsize}x}"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def complex_from_json(value: object, dtype: Complex) -> np.complexfloating[Any, Any]:
    """Complex number of `dtype` for an array of two components, each as `float_from_json` reads."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise _refused(dtype, value, "an array of two components, such as [0.0, 0.0]")
    # Filled in by component: arithmetic on NaN would lose payloads.
    pair = np.empty(2, f"f{dtype.itemsize // 2}")
    for i, component in enumerate(value):
        pair[i] = float_from_json(component, pair.dtype)
    scalar: np.complexfloating[Any, Any] = pair.view(dtype.newbyteorder("="))[0]
    return scalar


def complex_to_json(value: np.complexfloating[Any, Any]) -> tuple[float | str, float | str]:
    """JSON form of `value`: its real and imaginary component, each as `float_to_json` writes."""
    return float_to_json(value.real), float_to_json(value.imag)


def raw_from_json(value: object, size: int) -> np.void:
    """Raw element of `size` bytes for an array of integers, or the base64 text of its bytes."""
    raw = None
    if isinstance(value, str):
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):  # ValueError: characters that are not ASCII
            raw = None
    elif isinstance(value, Sequence) and all(type(i) is int and 0 <= i <= 255 for i in value):
        raw = bytes(value)
    if raw is None or len(raw) != size:
        raise _refused(f"r{8 * size}", value, f"an array of {size} integers from 0 to 255", hint="")
    return np.void(raw)


def raw_to_json(value: np.void) -> list[int]:
    """JSON form of `value`: one integer for each byte."""
    return list(value.tobytes())


def _canonical_nan(dtype: Floating) -> int:
    """Bits of "NaN": sign 0, exponent all ones, the most significant bit of the mantissa alone."""
    info = np.finfo(dtype)
    return ((1 << (info.iexp + 1)) - 1) << (info.nmant - 1)


def _from_bits(bits: int, dtype: Floating) -> np.floating[Any]:
    unsigned = np.array([bits], f"u{dtype.itemsize}")
    scalar: np.floating[Any] = unsigned.view(dtype.newbyteorder("="))[0]
    return scalar


_LENIENT_HINT: Final = (
    " For a store that was written loosely,"
    ' zarr.config.set({"zarr_bytes.fill_values": "lenient"}) accepts what zarr accepts.'
)


def _refused(
    data_type: object, value: object, permitted: str, hint: str = _LENIENT_HINT
) -> FillValueError:
    return FillValueError(
        f"{reprlib.repr(value)} is no fill value of data type {data_type}: permitted is"
        f" {permitted}.{hint}"
    )
