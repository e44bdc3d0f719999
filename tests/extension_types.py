"""The extension data types: their names, and what the bits of each mean by its README."""

from math import inf, nan

import ml_dtypes
import numpy as np

# name: (bits of exponent, bits of mantissa, bias, what the topmost patterns are)
FLOATS = {
    "bfloat16": (8, 7, 127, "ieee"),
    "float8_e3m4": (3, 4, 3, "ieee"),
    "float8_e4m3": (4, 3, 7, "ieee"),
    "float8_e4m3b11fnuz": (4, 3, 11, "fnuz"),
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    "float6_e2m3fn": (2, 3, 1, "finite"),
    "float6_e3m2fn": (3, 2, 3, "finite"),
    "float4_e2m1fn": (2, 1, 1, "finite"),
}
FORMATS = {
    "float16": (5, 10, 15, "ieee"),
    "float32": (8, 23, 127, "ieee"),
    "float64": (11, 52, 1023, "ieee"),
    "float8_e8m0fnu": (8, 0, 127, "fn"),  # without a sign
    **FLOATS,
}
REAL = [*FLOATS, "float8_e8m0fnu"]
INTEGERS = {"int2": (-2, 1), "uint2": (0, 3), "int4": (-8, 7), "uint4": (0, 15)}
RECORDS = {f"complex_{name}": name for name in REAL if name not in ("bfloat16", "float8_e4m3fn")}
PAIRS = {"complex_float16": "float16", "complex_bfloat16": "bfloat16"}
NAMES = [*REAL, *INTEGERS, *PAIRS, *RECORDS]
IN_PACKAGE = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}


def numpy_type(name):
    """Also of NumPy's own types."""
    if name in RECORDS:
        part = numpy_type(RECORDS[name])
        return np.dtype([("real", part), ("imag", part)])
    name = IN_PACKAGE.get(name, name)
    return np.dtype(getattr(ml_dtypes, name, name))


def value_of(bits, name):
    """The number that `bits` are in the format `name`."""
    if name == "float8_e8m0fnu":  # no sign, no mantissa
        return nan if bits == 0xFF else 2.0 ** (bits - 127)
    exponent_bits, mantissa_bits, bias, topmost = FLOATS[name]
    mantissa = bits % 2**mantissa_bits
    exponent = bits >> mantissa_bits & 2**exponent_bits - 1
    is_negative = bits >> mantissa_bits + exponent_bits & 1
    if topmost == "fnuz" and is_negative and not exponent and not mantissa:
        return nan
    if exponent == 2**exponent_bits - 1:
        if topmost == "ieee":
            return nan if mantissa else -inf if is_negative else inf
        if topmost == "fn" and mantissa == 2**mantissa_bits - 1:
            return nan
    if exponent:
        magnitude = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
    else:
        magnitude = mantissa / 2**mantissa_bits * 2.0 ** (1 - bias)
    return -magnitude if is_negative else magnitude


def width_of(name):
    """Number of bits that a number of the format `name` has."""
    if name in INTEGERS:
        return int(name[-1])
    exponent_bits, mantissa_bits, *_ = FORMATS[name]
    return exponent_bits + mantissa_bits + (name != "float8_e8m0fnu")
