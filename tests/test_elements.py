"""Elements to bytes and back, over data types, byte orders, shapes and memory layouts.

The oracle is NumPy's own conversion of byte order, for types that NumPy knows.
"""

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import most_memory

from zarr_bytes import BoolValueError, ChunkSizeError
from zarr_bytes.layout.elements import decode_elements, encode_elements, layout_of

ENDIANS = ("little", "big")
RECORD = np.dtype(
    [
        ("id", ">u2"),
        ("flag", "?"),
        ("position", [("x", "<f8"), ("y", ">f4")]),
        ("amplitude", "<c8"),
        ("name", "S3"),
        ("label", ">U2"),
        ("time", "<M8[s]"),
        ("matrix", ">i2", (2, 2)),
        ("raw", "V3"),
    ]
)
# Records and pairs whose numbers are of one size and leave no gap, and some that nearly are.
ONE_SIZE = [
    np.dtype([("x", "<f4"), ("y", "<f4")]),
    np.dtype([("x", ">f2"), ("y", ">i2", (2, 3)), ("z", [("re", ">f2"), ("im", ">f2")])]),
    np.dtype([("z", "<c8"), ("label", "<U3"), ("id", "<u4")]),
]
NEARLY = [
    np.dtype([("x", "<f4"), ("y", ">f4")]),
    np.dtype([("x", "<f4"), ("y", "<f2")]),
    np.dtype([("x", "<f4"), ("y", "S4")]),
]
SCALARS = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 S5 U3 V7 M8[ns] m8[D]".split()
DTYPES = [np.dtype(order + code) for code in SCALARS for order in "<>"]
DTYPES += [RECORD, *ONE_SIZE, *NEARLY]


def filled(dtype, shape, seed):
    """An array of random bytes, NaN payloads and all, but bools that are 0 or 1."""
    generator = np.random.default_rng(seed)
    array = np.frombuffer(generator.bytes(int(np.prod(shape)) * dtype.itemsize), dtype)
    array = array.reshape(shape).copy()
    has_flag = dtype.names and "flag" in dtype.names
    for bools in [array] if dtype.kind == "b" else [array["flag"]] if has_flag else []:
        bools[...] = bools.view("u1") % 2
    return array


LAYOUTS = {
    "C": lambda array: array,
    "F": np.asfortranarray,
    "transposed": lambda array: array.T,
    "reversed": lambda array: array[(slice(None, None, -1),) * array.ndim],
    "stepped": lambda array: np.repeat(np.atleast_1d(array), 2, axis=-1)[..., ::2],
    "repeated": lambda array: np.broadcast_to(array, (3, *array.shape)),
    "unaligned": lambda array: unaligned(array),
}


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, "u1")[1:]
    memory[:] = array.reshape(-1).view("u1")
    return memory.view(array.dtype).reshape(array.shape)


@st.composite
def arrays(draw, dtypes=tuple(DTYPES)):
    """Arrays of any shape, size zero and zero dimensions included, in any memory layout."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    array = filled(draw(st.sampled_from(dtypes)), shape, draw(st.integers(0, 2**32)))
    array = np.asarray(LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](array))
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


def bytes_of(array):
    """The bits of an array: NaN payloads compare by their bits."""
    return np.ascontiguousarray(array).tobytes()


@given(array=arrays(), endian=st.sampled_from(ENDIANS))
def test_encoded_bytes_are_those_of_numpys_own_conversion(array, endian):
    before = bytes_of(array)
    expected = np.ascontiguousarray(array).astype(array.dtype.newbyteorder(endian)).tobytes()
    assert encode_elements(array, endian).tobytes() == expected
    assert bytes_of(array) == before


@given(
    array=arrays(),
    endian=st.sampled_from([*ENDIANS, None]),
    offset=st.integers(0, 7),
)
def test_decoding_gives_back_type_shape_and_bits_at_any_alignment(array, endian, offset):
    encoded = encode_elements(array, endian)
    memory = np.zeros(encoded.size + offset, "u1")
    memory[offset:] = encoded
    decoded = decode_elements(memory[offset:], array.dtype, array.shape, endian)
    assert decoded.dtype == array.dtype
    assert decoded.shape == array.shape
    assert bytes_of(decoded) == bytes_of(array)
    assert memory[offset:].tobytes() == encoded.tobytes()


@pytest.mark.parametrize(
    "dtype", ["<f8", ">c16", "<M8[s]", *ONE_SIZE, ml_dtypes.complex32], ids=str
)
def test_numbers_are_swapped_in_new_memory(dtype):
    dtype = np.dtype(dtype)
    encoded = np.arange(6 * dtype.itemsize, dtype="u1")
    other = "big" if layout_of(dtype, "big").units != layout_of(dtype, "big").stored else "little"
    assert not np.may_share_memory(decode_elements(encoded, dtype, (2, 3), other), encoded)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("<f8", "<u8"),
        (">c16", ">u8"),
        ("<U3", "<u4"),
        *zip(ONE_SIZE, ["<u4", ">u2", "<u4"], strict=True),
        *((dtype, None) for dtype in [RECORD, *NEARLY, "S3", "V4", "<U0"]),
        ({"names": ["x"], "formats": ["<f4"], "itemsize": 8}, None),
        ({"names": ["x", "y"], "formats": ["<f4", "<f4"], "offsets": [0, 8]}, None),
        ({"names": ["x", "y"], "formats": ["<f4", "<f4"], "offsets": [0, 0]}, None),
    ],
    ids=str,
)
def test_numbers_of_one_size_without_gaps_are_swapped_as_plain_numbers(dtype, number):
    assert layout_of(np.dtype(dtype)).number == (number and np.dtype(number))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_is_copied_in_the_arrays_own_byte_order(dtype):
    array = filled(dtype, (4, 3), seed=1)
    endian = "big" if dtype.str[0] == ">" else "little"
    if dtype.names:
        array, endian = array.astype(dtype.newbyteorder("<")), "little"
    encoded = encode_elements(array, endian)
    assert np.shares_memory(encoded, array)
    assert np.shares_memory(decode_elements(encoded, array.dtype, (4, 3), endian), array)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", "<c16", "<U4", RECORD.newbyteorder("<")], ids=str)
def test_everything_is_copied_once_in_the_other_byte_order(dtype, order):
    array = np.zeros((512, 1024), dtype, order=order)
    layout_of(array.dtype, "big")
    encoded, peak = most_memory(lambda: encode_elements(array, "big"))
    assert peak < 1.1 * array.nbytes
    shape = array.shape
    _, peak = most_memory(lambda: decode_elements(encoded, array.dtype, shape, "big"))
    assert peak < 1.1 * array.nbytes


@given(
    found=st.integers(0, 100),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)
def test_a_chunk_of_another_size_is_refused_with_both_sizes(found, shape):
    expected = 4 * int(np.prod(shape))
    if found == expected:
        return
    with pytest.raises(ChunkSizeError) as error:
        decode_elements(np.zeros(found, "u1"), np.dtype("f4"), shape, "little")
    message = str(error.value)
    assert f"data type float32 and shape {shape} has {expected} bytes, found {found}:" in message


@given(
    flags=hnp.arrays("u1", hnp.array_shapes(min_dims=1, max_dims=3), elements=st.integers(0, 1)),
    data=st.data(),
)
def test_the_first_byte_that_is_no_bool_is_named_with_its_index(flags, data):
    positions = data.draw(st.sets(st.integers(0, flags.size - 1), min_size=1))
    for position in positions:
        flags.reshape(-1)[position] = data.draw(st.integers(2, 255))
    first = min(positions)
    index = tuple(map(int, np.unravel_index(first, flags.shape)))
    with pytest.raises(BoolValueError) as error:
        decode_elements(flags.reshape(-1), np.dtype("?"), flags.shape, None)
    value = flags.reshape(-1)[first]
    assert f"found {value} at index {index} of the chunk (byte {first})" in str(error.value)


def test_a_bool_field_of_a_record_is_held_to_the_same():
    dtype = np.dtype([("id", "<u2"), ("flags", "?", (2,))])
    encoded = np.array([1, 0, 0, 1, 2, 0, 1, 3], "u1")
    with pytest.raises(BoolValueError, match=r"found 3 at index \(1,\) of the chunk \(byte 7\)"):
        decode_elements(encoded, dtype, (2,), "little")
    array = encoded.view(dtype)
    assert encode_elements(array, "little").tobytes() == bytes([1, 0, 0, 1, 2, 0, 1, 1])
    assert encoded.tolist() == [1, 0, 0, 1, 2, 0, 1, 3]  # the input is never changed


def test_a_bool_of_a_record_in_a_record_is_where_the_outer_one_has_it():
    dtype = np.dtype([("id", "u1"), ("inner", [("x", "<i2"), ("flag", "?")])])
    encoded = np.array([9, 7, 7, 1, 9, 7, 7, 2], "u1")
    with pytest.raises(BoolValueError, match=r"found 2 at index \(1,\) of the chunk \(byte 7\)"):
        decode_elements(encoded, dtype, (2,), "little")
    array = encoded.view(dtype)
    assert encode_elements(array, "little").tolist() == [9, 7, 7, 1, 9, 7, 7, 1]


@pytest.mark.parametrize("dtype", [np.dtype("O"), np.dtypes.StringDType()], ids=str)
def test_types_of_no_fixed_size_have_no_layout(dtype):
    with pytest.raises(ValueError, match="no fixed size"):
        layout_of(dtype)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("?", False), ("u1", False), ("S8", False), ("V8", False), ("U1", True), ("<i2", True)]
    + [([("a", "u1"), ("b", "S3")], False), ([("a", "u1"), ("b", [("c", "<f4")])], True)],
    ids=str,
)
def test_byte_order_matters_where_any_unit_is_longer_than_a_byte(dtype, expected):
    assert layout_of(np.dtype(dtype)).has_byte_order is expected
