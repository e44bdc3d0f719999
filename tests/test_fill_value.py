"""Fill values as pure functions: every bit pattern goes to JSON and back."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zarr_bytes import FillValueError
from zarr_bytes.data_type.fill_value import (
    bool_from_json,
    complex_from_json,
    complex_to_json,
    float_from_json,
    float_to_json,
    int_from_json,
    raw_from_json,
    raw_to_json,
)

CODES = {"float16": ("H", "e"), "float32": ("I", "f"), "float64": ("Q", "d")}


def bits_of(scalar):
    return int.from_bytes(scalar.tobytes(), "little")


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


def test_every_float16_goes_to_json_and_back():
    dtype = np.dtype("float16")
    for bits in range(2**16):
        scalar = np.uint16(bits).view(dtype)
        assert bits_of(float_from_json(through_json(float_to_json(scalar)), dtype)) == bits


@pytest.mark.parametrize("name", ["float32", "float64"])
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


@pytest.mark.parametrize("name", CODES)
@given(value=st.floats(-60000, 60000) | st.integers(-60000, 60000))
def test_numbers_are_rounded_to_the_nearest_as_struct_rounds(name, value):
    unsigned, code = CODES[name]
    (bits,) = struct.unpack(f"<{unsigned}", struct.pack(f"<{code}", value))
    assert bits_of(float_from_json(value, np.dtype(name))) == bits


def test_an_integer_is_rounded_once():
    above_a_tie = 2**60 + 2**36 + 1  # through a float64 it would become the tie, and round down
    assert bits_of(float_from_json(above_a_tie, np.dtype("float32"))) == 0x5D800001


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@given(data=st.data())
def test_every_complex_number_goes_to_json_and_back(name, data):
    dtype = np.dtype(name)
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    scalar = np.frombuffer(raw, dtype)[0]
    assert complex_from_json(through_json(complex_to_json(scalar)), dtype).tobytes() == raw


@given(raw=st.binary(min_size=1, max_size=40))
def test_every_raw_element_goes_to_json_and_back(raw):
    scalar = np.frombuffer(raw, f"V{len(raw)}")[0]
    assert raw_from_json(through_json(raw_to_json(scalar)), len(raw)).tobytes() == raw


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
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
            # zarr knows no raw data types, so the setting could not help there.
            assert ('{"zarr_bytes.fill_values": "lenient"}' in message) is (name != "r16")
            assert name in message or name == "complex64"  # which may name a component's type
        else:
            assert isinstance(scalar, np.generic)


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(FillValueError) as error:
        float_from_json("x" * 100_000, np.dtype("float32"))
    assert len(str(error.value)) < 400
