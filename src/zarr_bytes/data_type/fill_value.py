"""Fill values from JSON and to JSON, bit for bit, and their number formats.

Specification: data types, "Permitted fill values", and the README of each extension data type
(zarr-extensions, data-types/). Any other value is a `FillValueError`. A `dtype` is a type of NumPy
or of ml_dtypes; this module works without ml_dtypes.

A NaN never passes through a Python float: that would set its quiet bit.

Deviations: 1.0 is read as the integer 1, as in zarr. Base64 text is read as raw bytes, because
TensorStore writes it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from math import copysign, inf
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from zarr_bytes.errors import FillValueError, short_repr

DType: TypeAlias = np.dtype[Any]  # the type of the elements of a chunk is known only at run time

FIRST_USER_TYPE: Final = 256  # NPY_USERDEF: NumPy's own types have smaller numbers


class UnusedUpperBits(NamedTuple):
    """The upper bits of a byte that a narrow data type doesn't use."""

    bit_count: int
    repeat_sign: bool  # in memory


class FloatFormat(NamedTuple):
    """A sign, an exponent, and a mantissa with a hidden bit, as in IEEE 754.

    With a mantissa of 0 bits, every bit pattern is a power of two: there is no zero.
    """

    bits: int  # width of a number
    mantissa: int  # width of the mantissa
    bias: int  # subtracted from the stored exponent
    nan: int | None  # the bits of the NaN that is written as "NaN"; None if there is no NaN
    has_infinity: bool = True
    has_sign: bool = True

    @property
    def sign_bit(self) -> int:
        """Bit of the sign; in a format without a sign, the bit above all used bits."""
        return 1 << (self.bits - 1 if self.has_sign else self.bits)

    @property
    def bits_after_largest_number(self) -> int:
        """The next bits after the largest number: infinity, a NaN, or the sign."""
        if self.has_infinity:
            return self.sign_bit - (1 << self.mantissa)
        return min(self.sign_bit, self.nan or self.sign_bit)


FLOATS: Final = {
    "float16": FloatFormat(16, 10, 15, 0x7E00),
    "float32": FloatFormat(32, 23, 127, 0x7FC00000),
    "float64": FloatFormat(64, 52, 1023, 0x7FF8000000000000),
    "bfloat16": FloatFormat(16, 7, 127, 0x7FC0),
    "float8_e3m4": FloatFormat(8, 4, 3, 0x78),
    "float8_e4m3": FloatFormat(8, 3, 7, 0x7C),
    "float8_e4m3b11fnuz": FloatFormat(8, 3, 11, 0x80, has_infinity=False),
    # Not registered; TensorStore writes it.
    "float8_e4m3fn": FloatFormat(8, 3, 7, 0x7F, has_infinity=False),
    "float8_e4m3fnuz": FloatFormat(8, 3, 8, 0x80, has_infinity=False),
    "float8_e5m2": FloatFormat(8, 2, 15, 0x7E),
    "float8_e5m2fnuz": FloatFormat(8, 2, 16, 0x80, has_infinity=False),
    "float8_e8m0fnu": FloatFormat(8, 0, 127, 0xFF, has_infinity=False, has_sign=False),
    "float6_e2m3fn": FloatFormat(6, 3, 1, None, has_infinity=False),
    "float6_e3m2fn": FloatFormat(6, 2, 3, None, has_infinity=False),
    "float4_e2m1fn": FloatFormat(4, 1, 1, None, has_infinity=False),
}

# The integers narrower than a byte, in two's complement.
INTEGERS: Final = {
    **{f"int{n}": range(-(2 ** (n - 1)), 2 ** (n - 1)) for n in (2, 4)},
    **{f"uint{n}": range(2**n) for n in (2, 4)},
}


@lru_cache
def _name_of(dtype: DType) -> str:
    """The name of a data type, such as "float32"; cached, because NumPy makes it anew each time."""
    return dtype.name


def unused_upper_bits(dtype: DType) -> UnusedUpperBits | None:
    """Upper bits of a byte that a narrow data type doesn't use; None if it uses all bits."""
    if _name_of(dtype) in INTEGERS:
        numbers = INTEGERS[_name_of(dtype)]
        bits = len(numbers).bit_length() - 1  # 2**bits numbers
        return UnusedUpperBits(8 - bits, repeat_sign=numbers[0] < 0)
    bits = FLOATS[_name_of(dtype)].bits if _name_of(dtype) in FLOATS else 8
    return UnusedUpperBits(8 - bits, repeat_sign=False) if bits < 8 else None


def bits_of_nearest_or_infinity(value: float, float_format: FloatFormat) -> int | None:
    """Bits of the number of a format nearest to `value`, which isn't NaN; ties to even.

    Beyond the largest number, the result is infinity. None if the value needs an infinity or a sign
    that the format doesn't have. Computed with integers, because the casts of NumPy and ml_dtypes
    may round twice.
    """
    is_negative = copysign(1, value) < 0 if isinstance(value, float) else value < 0
    if is_negative and not float_format.has_sign:
        return None
    if not value:
        bits = 0  # without a zero, the smallest number
    elif abs(value) == inf:
        bits = float_format.bits_after_largest_number
    else:
        bits = _nearest_bits_with_unlimited_exponent(*abs(value).as_integer_ratio(), float_format)
    if bits >= float_format.bits_after_largest_number:
        if not float_format.has_infinity:
            return None
        bits = float_format.bits_after_largest_number
    has_negative_zero = float_format.nan != float_format.sign_bit
    return bits | float_format.sign_bit if is_negative and (bits or has_negative_zero) else bits


def _nearest_bits_with_unlimited_exponent(
    numerator: int, denominator: int, float_format: FloatFormat
) -> int:
    """Bits of the nearest positive number, as if there were no largest exponent.

    Of two numbers that are equally near, the even one. `denominator` is a power of two.

    The bits of positive numbers count up from zero: after all bits of the mantissa are set, the
    next number has the next exponent. Even numbers have even bits.
    """
    exponent = numerator.bit_length() - denominator.bit_length()  # of the leading bit, exactly
    # Exponents of the distances (powers of two) between the smallest numbers, and between numbers
    # nearby.
    lowest = 1 - float_format.bias - float_format.mantissa
    unit = max(exponent - float_format.mantissa, lowest if float_format.mantissa else lowest - 1)
    denominator <<= max(unit, 0)
    count, rest = divmod(numerator << max(-unit, 0), denominator)
    bits = ((unit - lowest) << float_format.mantissa) + count
    is_tie = 2 * rest == denominator
    if 2 * rest > denominator or (is_tie and bits % 2):
        bits += 1
    return max(bits, 0)  # -1 below the smallest number, without a zero


def number_from_json(value: object, dtype: DType, name_in_message: str | None = None) -> np.generic:
    """Number or bool of `dtype` for the JSON form of a fill value; else a FillValueError.

    `name_in_message` is the name of the data type; None for the name in NumPy.
    """
    if dtype.kind == "b":
        if not isinstance(value, bool):
            raise fill_value_error(dtype, value, "true or false")
        return np.bool_(value)
    if _name_of(dtype) in FLOATS:
        return float_from_json(value, dtype)
    if _name_of(dtype) in INTEGERS or dtype.kind in "iu":
        return int_from_json(value, dtype)
    return complex_from_json(value, dtype, name_in_message)


def number_to_json(value: np.generic) -> bool | float | str | tuple[float | str, ...]:
    """JSON form of a number or bool; of a complex number, a tuple for its two components."""
    dtype = value.dtype
    if _name_of(dtype) in FLOATS:
        return float_to_json(value)
    if _name_of(dtype) in INTEGERS or dtype.kind in "biu":
        return bool(value) if dtype.kind == "b" else int(value)
    return tuple(map(float_to_json, np.array([value]).view(native_component_dtype_of(dtype))))


def int_from_json(value: object, dtype: DType) -> np.generic:
    """Integer of `dtype` for a JSON number in its range, without a fraction.

    Anything else is a FillValueError.
    """
    numbers = INTEGERS.get(_name_of(dtype)) or range(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and numbers[0] <= value <= numbers[-1]
        and int(value) == value
    ):
        return cast("np.generic", np.array(int(value)).astype(dtype)[()])
    raise fill_value_error(dtype, value, f"an integer from {numbers[0]} to {numbers[-1]}")


def float_from_json(value: object, dtype: DType) -> np.generic:
    """Number of `dtype` for a JSON number, a name such as "NaN", or its bits in hexadecimal.

    A JSON number is rounded by `bits_of_nearest_or_infinity`. Anything else is a FillValueError.
    """
    float_format = FLOATS[_name_of(dtype)]
    bits = None
    if isinstance(value, str):
        if value in ("Infinity", "-Infinity"):
            bits = bits_of_nearest_or_infinity(float(value), float_format)
        elif value == "NaN":
            bits = float_format.nan
        elif re.fullmatch(f"0x[0-9a-fA-F]{{{2 * dtype.itemsize}}}", value):
            bits = int(value, 16)
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        bits = bits_of_nearest_or_infinity(value, float_format)
    if bits is None or bits >> float_format.bits:
        raise fill_value_error(dtype, value, _text_of_permitted_floats(dtype))
    number = np.array(bits, f"u{dtype.itemsize}").view(dtype.newbyteorder("="))
    return cast("np.generic", number[()])


def _text_of_permitted_floats(dtype: DType) -> str:
    """The JSON forms of the numbers of a floating-point `dtype`, for a message."""
    float_format = FLOATS[_name_of(dtype)]
    names = '"Infinity", "-Infinity", ' if float_format.has_infinity else ""
    names += '"NaN" or ' if float_format.nan is not None else "or "
    digits = f'"0x" and {2 * dtype.itemsize} hexadecimal digits'
    if float_format.bits < 8:
        digits += f", up to 0x{2**float_format.bits - 1:02x}"
    if float_format.has_infinity:
        return f"a number, {names}{digits}"
    with np.errstate(invalid="ignore"):
        numbers = np.arange(1 << float_format.bits, dtype="u1").view(dtype).astype("f8")
    return f"a number from {np.nanmin(numbers)} to {np.nanmax(numbers)}, {names}{digits}"


def float_to_json(value: np.generic) -> float | str:
    """JSON form of a floating-point scalar: a number, a name, or the bits of another NaN."""
    number = float(value)
    if number != number:
        bits = int(value.view(f"u{value.dtype.itemsize}"))
        is_canonical = bits == FLOATS[_name_of(value.dtype)].nan
        return "NaN" if is_canonical else f"0x{bits:0{2 * value.dtype.itemsize}x}"
    if abs(number) == inf:
        return "Infinity" if number > 0 else "-Infinity"
    return number


def complex_from_json(
    value: object, dtype: DType, name_in_message: str | None = None
) -> np.generic:
    """Complex number for an array of two components; a FillValueError for anything else.

    `dtype` may be a record of two components.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise fill_value_error(
            name_in_message or dtype, value, "an array of two components, such as [0.0, 0.0]"
        )
    # Filled in by component, because arithmetic on NaN would lose payloads.
    pair = np.empty(2, native_component_dtype_of(dtype))
    for i, component in enumerate(value):
        pair[i] = float_from_json(component, pair.dtype)
    return cast("np.generic", pair.view(dtype.newbyteorder("="))[0])


def native_component_dtype_of(complex_dtype: DType) -> DType:
    """Type of the components of a complex type, or of a record of `real` and `imag`."""
    if complex_dtype.fields is not None:
        return complex_dtype["real"]
    return np.zeros((), complex_dtype)[()].real.dtype


def raw_from_json(value: object, nbytes: int) -> np.void:
    """Raw element of `nbytes` bytes for an array of integers or base64 text.

    A FillValueError for anything else.
    """
    raw = None
    if isinstance(value, str):
        with suppress(ValueError):  # text that is not base64, or not ASCII
            raw = base64.b64decode(value, validate=True)
    elif isinstance(value, Sequence) and all(type(i) is int and 0 <= i <= 255 for i in value):
        raw = bytes(value)
    if raw is None or len(raw) != nbytes:
        raise fill_value_error(
            f"r{8 * nbytes}", value, f"an array of {nbytes} integers from 0 to 255"
        )
    return np.void(raw)


def fill_value_error(data_type: object, value: object, permitted: str) -> FillValueError:
    """Error for a fill value that is not permitted for `data_type`, a NumPy type or a name."""
    found = "null" if value is None else short_repr(value)
    return FillValueError(
        f"{found} is not a fill value of data type {data_type}: permitted is {permitted}.",
        permitted=permitted,
    )
