"""Fill values as pure functions: every bit pattern goes to JSON and back."""

import json
import math
import struct
import sys
from bisect import bisect_left
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from extension_types import FLOATS, numpy_type, width_of
from hypothesis import given
from hypothesis import strategies as st

from zarr_bytes import FillValueError
from zarr_bytes.data_type.fill_value import (
    bool_from_json,
    complex_from_json,
    float_from_json,
    float_to_json,
    int_from_json,
    raw_from_json,
    to_json,
)

pytestmark = pytest.mark.zarr

CODES = {"float16": ("H", "e"), "float32": ("I", "f"), "float64": ("Q", "d")}


def bits_of(scalar):
    return int.from_bytes(scalar.tobytes(), sys.byteorder)


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.slow
def test_every_float16_goes_to_json_and_back():
    dtype = np.dtype("float16")
    for bits in range(2**16):
        scalar = np.uint16(bits).view(dtype)
        assert bits_of(float_from_json(through_json(float_to_json(scalar)), dtype)) == bits


@pytest.mark.parametrize("name", CODES)
@given(data=st.data())
def test_every_float_goes_to_json_and_back(name, data):
    dtype = np.dtype(name)
    largest = 256**dtype.itemsize - 1
    exponent = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    nan = st.integers(1, 2 ** np.finfo(dtype).nmant - 1).map(lambda payload: exponent | payload)
    bits = data.draw(st.integers(0, largest) | nan | nan.map(lambda b: b | (largest + 1) // 2))
    scalar = np.array([bits], f"u{dtype.itemsize}").view(dtype)[0]
    assert bits_of(float_from_json(through_json(float_to_json(scalar)), dtype)) == bits


@pytest.mark.parametrize("name", CODES)
@given(data=st.data())
def test_hexadecimal_digits_are_the_bits(name, data):
    dtype, (unsigned, _) = np.dtype(name), CODES[name]
    bits = data.draw(st.integers(0, 256**dtype.itemsize - 1))
    text = "0x" + struct.pack(f">{unsigned}", bits).hex()
    text = data.draw(st.sampled_from([text, "0x" + text[2:].upper()]))
    assert bits_of(float_from_json(text, dtype)) == bits


# name: (bits of mantissa, bias, bits of what follows the largest number)
FORMATS = {
    "float16": (10, 15, 0x7C00),
    "float32": (23, 127, 0x7F800000),
    "float64": (52, 1023, 0x7FF0000000000000),
    "float8_e8m0fnu": (0, 127, 0xFF),
}
PATTERNS_ABOVE = {"ieee": lambda mantissa: 2**mantissa, "fn": lambda _: 1}
for _name, (_exponent, _mantissa, _bias, _topmost) in FLOATS.items():
    _above = PATTERNS_ABOVE.get(_topmost, lambda _: 0)(_mantissa)
    FORMATS[_name] = (_mantissa, _bias, 2 ** (_exponent + _mantissa) - _above)

COMPLEX = {
    "float16": np.dtype(ml_dtypes.complex32),
    "bfloat16": np.dtype(ml_dtypes.bcomplex32),
    "float32": np.dtype("complex64"),
    "float64": np.dtype("complex128"),
}


def exactly(bits, name):
    """The positive number that `bits` are, as if the exponent had no end."""
    mantissa_bits, bias, _ = FORMATS[name]
    exponent, mantissa = divmod(bits, 2**mantissa_bits)
    if exponent or name == "float8_e8m0fnu":
        return (1 + Fraction(mantissa, 2**mantissa_bits)) * Fraction(2) ** (exponent - bias)
    return Fraction(mantissa, 2**mantissa_bits) * Fraction(2) ** (1 - bias)


def nearest(number, name):
    """The bits of the positive number nearest to `number`, those that are even where two are."""
    *_, end = FORMATS[name]
    above = bisect_left(range(end), number, key=lambda bits: exactly(bits, name))
    candidates = (above, max(above - 1, 0))
    return min(candidates, key=lambda bits: (abs(exactly(bits, name) - number), bits % 2))


@st.composite
def numbers_beside(draw, name):
    """An integer or a float: a number of the format, one between two, or one just beside it."""
    bits = draw(st.integers(0, FORMATS[name][-1] - 1))
    below, above = exactly(bits, name), exactly(bits + 1, name)
    middle = (below + above) / 2
    place = draw(st.sampled_from([middle, below, middle, above]))
    if draw(st.booleans()):
        return round(place) + draw(st.integers(-1, 1))
    number = float(min(place, Fraction(sys.float_info.max)))
    return draw(st.sampled_from([number, math.nextafter(number, 0), math.nextafter(number, 1e308)]))


class TestRounding:
    @pytest.mark.parametrize("name", FORMATS)
    @given(data=st.data())
    def test_every_number_becomes_the_nearest_and_a_tie_the_even_one(self, name, data):
        number = data.draw(
            numbers_beside(name)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.integers(-(10**320), 10**320)
        )
        component = np.dtype(name) if name in CODES else numpy_type(name)
        pair = COMPLEX.get(name, np.dtype([("real", component), ("imag", component)]))
        expected, end = nearest(abs(Fraction(number)), name), FORMATS[name][-1]
        is_negative = math.copysign(1, number) < 0 if number == 0 else number < 0
        has_infinity = name in CODES or "ieee" in FLOATS.get(name, ())
        is_refused = expected == end and not has_infinity
        if is_refused or (is_negative and name == "float8_e8m0fnu"):
            for read, value, dtype in (
                (float_from_json, number, component),
                (complex_from_json, [1, number], pair),
            ):
                with pytest.raises(FillValueError, match="permitted is a number from"):
                    read(value, dtype)
            return
        if is_negative and (expected or not name.endswith("fnuz")):
            expected |= 1 << (component.itemsize * 8 if name in CODES else width_of(name)) - 1
        assert bits_of(float_from_json(number, component)) == expected
        read = complex_from_json([number, number], pair)
        assert np.array(read).reshape(1).view(f"u{component.itemsize}").tolist() == [expected] * 2

    @pytest.mark.parametrize(
        ("number", "name", "bits"),
        [
            # Through a float64 it would become a tie, and round down.
            (2**60 + 2**36 + 1, "float32", 0x5D800001),
            (2**100 + 2**76 + 1, "float32", 0x71800001),
            # The last before the tie between the largest number and the next power of two.
            (340282356779733661637539395458142568447, "float32", 0x7F7FFFFF),
            (340282356779733661637539395458142568448, "float32", 0x7F800000),
            (-(10**400), "float64", 0xFFF0000000000000),
        ],
    )
    def test_an_integer_of_any_size_is_rounded_once(self, number, name, bits):
        assert bits_of(float_from_json(number, np.dtype(name))) == bits


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@given(data=st.data())
def test_every_complex_number_goes_to_json_and_back(name, data):
    dtype = np.dtype(name)
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    scalar = np.frombuffer(raw, dtype)[0]
    assert complex_from_json(through_json(to_json(scalar)), dtype).tobytes() == raw


@given(raw=st.binary(min_size=1, max_size=40))
def test_every_raw_element_goes_to_json_and_back(raw):
    scalar = np.frombuffer(raw, f"V{len(raw)}")[0]
    assert raw_from_json(through_json(list(scalar.tobytes())), len(raw)).tobytes() == raw


TEXTS = st.text("0x1aNInfity.e-_ \u0663")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)


@given(value=JSON)
def test_any_other_json_is_refused_with_a_message_and_never_with_another_error(value):
    readers = {
        "bool": bool_from_json,
        "int8": lambda v: int_from_json(v, np.dtype("int8")),
        "float64": lambda v: float_from_json(v, np.dtype("float64")),
        "complex64": lambda v: complex_from_json(v, np.dtype("complex64")),
        "r16": lambda v: raw_from_json(v, 2),
    }
    for name, read in readers.items():
        try:
            scalar = read(value)
        except FillValueError as error:
            message = str(error)
            assert "permitted is" in message
            assert name in message or name == "complex64"  # which may name a component's type
        else:
            assert isinstance(scalar, np.generic)


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(FillValueError) as error:
        float_from_json("x" * 100_000, np.dtype("float32"))
    assert len(str(error.value)) < 400


def test_an_integer_that_python_does_not_write_is_refused_as_others_are():
    with pytest.raises(FillValueError, match="permitted is an integer from -128 to 127"):
        int_from_json(10**5000, np.dtype("int8"))
