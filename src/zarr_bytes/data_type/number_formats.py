"""The number formats of the data types: how wide they are, and what their bit patterns mean.

Specification: data types, and the README of each registered extension (zarr-extensions,
data-types/). Facts alone; ml_dtypes, which computes with these numbers, is not needed here.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache
from math import copysign, inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FIRST_USER_TYPE",
    "FLOATS",
    "INTEGERS",
    "DType",
    "FloatFormat",
    "IntegerFormat",
    "nearest_bits",
    "unused_bits",
]

DType: TypeAlias = np.dtype[Any]  # what a chunk holds is known at run time only

FIRST_USER_TYPE: Final = 256  # NPY_USERDEF: NumPy's own types have smaller numbers


class FloatFormat(NamedTuple):
    """A floating-point format.

    Attributes
    ----------
    bits : int
        Width of a number, in bits.
    nan : int or None
        Bits of the NaN that is written "NaN"; None where the format has none.
    has_infinity, has_sign : bool
        Whether it has infinities, and negative numbers.
    """

    bits: int
    nan: int | None
    has_infinity: bool = True
    has_sign: bool = True


class IntegerFormat(NamedTuple):
    """An integer format that is narrower than a byte.

    Attributes
    ----------
    bits : int
        Width of a number, in bits.
    has_sign : bool
        Whether it is two's complement.
    """

    bits: int
    has_sign: bool

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest integer."""
        half = 2 ** (self.bits - 1)
        return (-half, half - 1) if self.has_sign else (0, 2 * half - 1)


FLOATS: Final = {
    "float16": FloatFormat(16, 0x7E00),
    "float32": FloatFormat(32, 0x7FC00000),
    "float64": FloatFormat(64, 0x7FF8000000000000),
    "bfloat16": FloatFormat(16, 0x7FC0),
    "float8_e3m4": FloatFormat(8, 0x78),
    "float8_e4m3": FloatFormat(8, 0x7C),
    "float8_e4m3b11fnuz": FloatFormat(8, 0x80, has_infinity=False),
    "float8_e4m3fn": FloatFormat(8, 0x7F, has_infinity=False),  # not registered: TensorStore's
    "float8_e4m3fnuz": FloatFormat(8, 0x80, has_infinity=False),
    "float8_e5m2": FloatFormat(8, 0x7E),
    "float8_e5m2fnuz": FloatFormat(8, 0x80, has_infinity=False),
    "float8_e8m0fnu": FloatFormat(8, 0xFF, has_infinity=False, has_sign=False),
    "float6_e2m3fn": FloatFormat(6, None, has_infinity=False),
    "float6_e3m2fn": FloatFormat(6, None, has_infinity=False),
    "float4_e2m1fn": FloatFormat(4, None, has_infinity=False),
}

INTEGERS: Final = {
    "int2": IntegerFormat(2, has_sign=True),
    "int4": IntegerFormat(4, has_sign=True),
    "uint2": IntegerFormat(2, has_sign=False),
    "uint4": IntegerFormat(4, has_sign=False),
}


def unused_bits(dtype: DType) -> tuple[int, bool] | None:
    """Number of upper bits of a byte that `dtype` leaves unused, and whether they repeat the sign.

    None where all bits are used.

    Examples
    --------
    >>> unused_bits(np.dtype("int4")), unused_bits(np.dtype("float64"))
    ((4, True), None)
    """
    if dtype.name in INTEGERS:
        integer = INTEGERS[dtype.name]
        return 8 - integer.bits, integer.has_sign
    bits = FLOATS[dtype.name].bits if dtype.name in FLOATS else 8
    return (8 - bits, False) if bits < 8 else None


def nearest_bits(value: float, dtype: DType) -> int | None:
    """Bits of the number of an extension type nearest to `value`, ties to even.

    Exact, where the cast of ml_dtypes rounds to float32 before it rounds to the type. None where no
    number is near: beyond the largest by half its distance to the one before, without an infinity,
    or negative without a sign.

    Parameters
    ----------
    value : int or float
        Any number but NaN; an integer of any size.
    dtype : numpy.dtype
        A floating-point type of ml_dtypes.

    Examples
    --------
    >>> hex(nearest_bits(2.5, np.dtype("float4_e2m1fn")))  # between 2 and 3
    '0x4'
    """
    form = FLOATS[dtype.name]
    is_negative = copysign(1, value) < 0 if isinstance(value, float) else value < 0
    if is_negative and not form.has_sign:
        return None
    numbers = _positive_numbers(dtype)
    magnitude = abs(value)
    bits = bisect_left(numbers, magnitude)
    if bits == len(numbers):
        largest, before = Fraction(numbers[-1]), Fraction(numbers[-2])
        if magnitude == inf or magnitude >= largest + (largest - before) / 2:
            if not form.has_infinity:
                return None
        else:
            bits -= 1
    elif bits and numbers[bits] != magnitude:
        below, above = (
            abs(Fraction(n) - Fraction(magnitude)) for n in numbers[bits - 1 : bits + 1]
        )
        if below < above or (below == above and bits % 2):
            bits -= 1
    has_negative_zero = form.nan != 1 << (form.bits - 1)
    sign = is_negative and (bits or has_negative_zero)
    return bits | (1 << (form.bits - 1) if sign else 0)


@lru_cache(maxsize=len(FLOATS))
def _positive_numbers(dtype: DType) -> Sequence[float]:
    """The finite numbers of `dtype` from zero up; the index of each is its bits."""
    form = FLOATS[dtype.name]
    count = 1 << (form.bits - form.has_sign)
    patterns = np.arange(count, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # ml_dtypes says so of every NaN
        numbers: Sequence[float] = patterns.view(dtype).astype("f8").tolist()
    return [number for number in numbers if number < inf]  # nor NaN
