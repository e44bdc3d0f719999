"""The number formats of the data types: widths, and the meaning of bit patterns.

Specification: data types, and the README of each registered extension (zarr-extensions,
data-types/). The package ml_dtypes, which computes with these numbers, is not needed here.
"""

from __future__ import annotations

from math import copysign, inf
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

DType: TypeAlias = np.dtype[Any]  # the type of the elements of a chunk is known only at run time

FIRST_USER_TYPE: Final = 256  # NPY_USERDEF: NumPy's own types have smaller numbers


class FloatFormat(NamedTuple):
    """A floating-point format: a sign, an exponent, and a mantissa with a hidden bit, as IEEE 754.

    A format with a mantissa of 0 bits has neither a zero nor subnormal numbers: every bit pattern
    is a power of two.
    """

    bits: int  # width of a number
    mantissa: int  # width of the mantissa
    bias: int  # subtracted from the stored exponent
    nan: int | None  # the bits that are written "NaN"; None if the format has no NaN
    has_infinity: bool = True
    has_sign: bool = True

    @property
    def sign(self) -> int:
        """Bit of the sign; in a format without a sign, the bit above all others."""
        return 1 << (self.bits - self.has_sign)

    @property
    def end(self) -> int:
        """Bits that follow the largest number: bits of infinity, of a NaN, or of the sign."""
        if self.has_infinity:
            return self.sign - (1 << self.mantissa)
        return min(self.sign, self.nan or self.sign)


FLOATS: Final = {
    "float16": FloatFormat(16, 10, 15, 0x7E00),
    "float32": FloatFormat(32, 23, 127, 0x7FC00000),
    "float64": FloatFormat(64, 52, 1023, 0x7FF8000000000000),
    "bfloat16": FloatFormat(16, 7, 127, 0x7FC0),
    "float8_e3m4": FloatFormat(8, 4, 3, 0x78),
    "float8_e4m3": FloatFormat(8, 3, 7, 0x7C),
    "float8_e4m3b11fnuz": FloatFormat(8, 3, 11, 0x80, has_infinity=False),
    "float8_e4m3fn": FloatFormat(8, 3, 7, 0x7F, has_infinity=False),  # TensorStore's
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
    "int2": range(-2, 2),
    "int4": range(-8, 8),
    "uint2": range(4),
    "uint4": range(16),
}


def unused_bits(dtype: DType) -> tuple[int, bool] | None:
    """Number of upper bits of a byte that `dtype` leaves unused, and whether they repeat the sign.

    >>> unused_bits(np.dtype("int4")), unused_bits(np.dtype("float64"))
    ((4, True), None)
    """
    if dtype.name in INTEGERS:
        numbers = INTEGERS[dtype.name]
        return 9 - len(numbers).bit_length(), numbers[0] < 0
    bits = FLOATS[dtype.name].bits if dtype.name in FLOATS else 8
    return (8 - bits, False) if bits < 8 else None


def nearest_bits(value: float, form: FloatFormat) -> int | None:
    """Bits of the number of a format nearest to `value`, an integer or no NaN; ties to even.

    A value that is rounded beyond the largest number is infinity, as in IEEE 754, and None if the
    format has none; so is a negative value if the format has no sign. It is computed with integers:
    casts may round twice, NumPy's an integer of more than 64 bits, ml_dtypes' any number.

    >>> hex(nearest_bits(2.5, FLOATS["float4_e2m1fn"]))  # between 2 and 3
    '0x4'
    """
    is_negative = copysign(1, value) < 0 if isinstance(value, float) else value < 0
    if is_negative and not form.has_sign:
        return None
    if not value:
        bits = 0  # without a zero, the smallest number
    elif abs(value) == inf:
        bits = form.end
    else:
        bits = _nearest_positive(*abs(value).as_integer_ratio(), form)
    if bits >= form.end:
        if not form.has_infinity:
            return None
        bits = form.end
    has_negative_zero = form.nan != form.sign
    return bits | form.sign if is_negative and (bits or has_negative_zero) else bits


def _nearest_positive(numerator: int, denominator: int, form: FloatFormat) -> int:
    """Bits of the nearest number, as if exponents were unlimited; `denominator` a power of two.

    The bits of positive numbers count up from zero: after all bits of the mantissa are set, the
    next number has the next exponent. Even numbers have even bits.
    """
    exponent = numerator.bit_length() - denominator.bit_length()  # of the leading bit, exactly
    # Exponents of two: of the distance between the smallest numbers, and between numbers nearby.
    lowest = 1 - form.bias - form.mantissa
    unit = max(exponent - form.mantissa, lowest if form.mantissa else lowest - 1)
    denominator <<= max(unit, 0)
    count, rest = divmod(numerator << max(-unit, 0), denominator)
    bits = ((unit - lowest) << form.mantissa) + count
    is_nearer_to_next = 2 * rest > denominator or (2 * rest == denominator and bits % 2)
    return max(bits + is_nearer_to_next, 0)  # -1 below the smallest number, without a zero
