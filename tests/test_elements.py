"""Elements to bytes and back, over data types, byte orders, shapes and memory layouts.

The oracle is NumPy's own conversion of byte order, for types that NumPy knows. At the end are
buffers that are not NumPy's, as a GPU's: no type there is in the other byte order.
"""

import re
from itertools import product

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import most_memory

from zarr_bytes import BoolValueError, ChunkSizeError
from zarr_bytes.layout.elements import (
    consists_of_repeated,
    decode_elements,
    element_layout_of,
    encode_elements,
    iter_blocks_to_encode,
)

ENDIANS = ("little", "big")
RECORD = np.dtype(
    [
        *[("id", ">u2"), ("flag", "?"), ("position", [("x", "<f8"), ("y", ">f4")])],
        *[("amplitude", "<c8"), ("name", "S3"), ("label", ">U2"), ("time", "<M8[s]")],
        *[("matrix", ">i2", (2, 2)), ("raw", "V3")],
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

# By data type: the bytes of an element that are bools.
BOOLS = {
    np.dtype("?"): [0],
    np.dtype([("id", "<u2"), ("flags", "?", (2,))]): [2, 3],
    np.dtype([("id", "u1"), ("inner", [("x", "<i2"), ("flag", "?")])]): [3],
}


def filled(dtype, shape, seed):
    """An array of random bytes, NaN payloads and all, but bools that are 0 or 1."""
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, dtype.itemsize), "u1")
    raw[..., {RECORD: [2], **BOOLS}.get(dtype, [])] %= 2
    return raw.view(dtype)[..., 0]


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, "u1")[1:]
    memory[:] = array.reshape(-1).view("u1")
    return memory.view(array.dtype).reshape(array.shape)


LAYOUTS = {
    "C": lambda array: array,
    "F": np.asfortranarray,
    "transposed": lambda array: array.T,
    "reversed": lambda array: array[(slice(None, None, -1),) * array.ndim],
    "stepped": lambda array: np.repeat(np.atleast_1d(array), 2, axis=-1)[..., ::2],
    "repeated": lambda array: np.broadcast_to(array, (3, *array.shape)),
    "unaligned": unaligned,
}


@st.composite
def arrays(draw, dtypes=tuple(DTYPES)):
    """Arrays of any shape, size zero and zero dimensions included, in any memory layout."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    array = filled(draw(st.sampled_from(dtypes)), shape, draw(st.integers(0, 2**32)))
    array = np.asarray(LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](array))
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


def test_a_big_endian_number_begins_with_its_most_significant_byte():
    encoded = encode_elements(np.array([1, 2], "i4"), "big")
    assert encoded.tobytes() == bytes([0, 0, 0, 1, 0, 0, 0, 2])


@given(array=arrays(), endian=st.sampled_from(ENDIANS))
def test_encoded_bytes_are_those_of_numpys_own_conversion(array, endian):
    """At once, and in blocks of at most 100 bytes, or views."""
    before = array.tobytes()
    expected = np.ascontiguousarray(array).astype(array.dtype.newbyteorder(endian)).tobytes()
    assert encode_elements(array, endian).tobytes() == expected
    blocks = [encode_elements(one, endian) for one in iter_blocks_to_encode(array, endian, 100)]
    assert b"".join(blocks) == expected
    assert all(len(block) <= 100 or np.may_share_memory(block, array) for block in blocks)
    assert array.tobytes() == before


@given(array=arrays(), endian=st.sampled_from([*ENDIANS, None]), offset=st.integers(0, 7))
def test_decoded_elements_have_type_shape_and_bits_at_any_alignment(array, endian, offset):
    encoded = encode_elements(array, endian)
    memory = np.zeros(encoded.size + offset, "u1")
    memory[offset:] = encoded
    decoded = decode_elements(memory[offset:], array.dtype, array.shape, endian)
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert decoded.tobytes() == array.tobytes()  # NaN payloads compare by their bits
    assert memory[offset:].tobytes() == encoded.tobytes()


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
def test_byte_order_of_records_of_one_size_is_swapped_as_of_plain_numbers(dtype, number):
    assert element_layout_of(np.dtype(dtype)).swap_dtype == (number and np.dtype(number))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_encoding_in_the_arrays_own_byte_order_copies_nothing(dtype):
    array = filled(dtype, (4, 3), seed=1)
    endian = "big" if dtype.str[0] == ">" else "little"
    if dtype.names:
        array, endian = array.astype(dtype.newbyteorder("<")), "little"
    encoded = encode_elements(array, endian)
    assert np.shares_memory(encoded, array)
    assert np.shares_memory(decode_elements(encoded, array.dtype, (4, 3), endian), array)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", "<c16", "<U4", RECORD.newbyteorder("<")], ids=str)
def test_encoding_in_the_other_byte_order_copies_once(dtype, order):
    array = np.zeros((512, 1024), dtype, order=order)
    element_layout_of(array.dtype, "big")
    encoded, peak = most_memory(lambda: encode_elements(array, "big"))
    assert peak < 1.1 * array.nbytes
    shape = array.shape
    _, peak = most_memory(lambda: decode_elements(encoded, array.dtype, shape, "big"))
    assert peak < 1.1 * array.nbytes


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 2)])
def test_a_chunk_of_another_size_is_refused_with_both_sizes(shape):
    expected = 4 * int(np.prod(shape))
    for found in {0, 1, expected - 1, expected + 1, 2 * expected} - {expected, -1}:
        words = f"type float32 and shape {shape} has {expected} bytes, found {found}: the stored "
        words += "chunk is truncated, or" if found < expected else "chunk is too long, or"
        for memory in np.zeros(found, "u1"), DeviceArray(np.zeros(found, "u1")):
            with pytest.raises(ChunkSizeError, match=re.escape(words)):
                decode_elements(memory, np.dtype("f4"), shape, "little")


@given(dtype=st.sampled_from(list(BOOLS)), shape=hnp.array_shapes(max_dims=3), data=st.data())
def test_the_first_byte_that_is_no_bool_is_named_with_its_index(dtype, shape, data):
    """In fields of records, too; when it is written, it is 1."""
    array = filled(dtype, shape, seed=1)
    stored = array.reshape(-1).view("u1")
    bools = st.tuples(st.integers(0, array.size - 1), st.sampled_from(BOOLS[dtype]))
    wrong = data.draw(st.sets(bools, min_size=1))
    for element, offset in wrong:
        stored[element * dtype.itemsize + offset] = data.draw(st.integers(2, 255))
    first, offset = min(wrong)
    byte = first * dtype.itemsize + offset
    index = tuple(map(int, np.unravel_index(first, shape)))
    words = f"found {stored[byte]} at index {index} of the chunk (byte {byte})"
    for memory in stored, DeviceArray(stored):
        with pytest.raises(BoolValueError, match=re.escape(words)):
            decode_elements(memory, dtype, shape, "little")
    before, encoded = stored.copy(), encode_elements(array, "little")
    assert stored.tobytes() == before.tobytes()
    expected = stored.reshape(-1, dtype.itemsize)
    expected[tuple(np.transpose([*wrong]))] = 1
    assert encoded.tobytes() == expected.tobytes()


class DeviceArray:
    """An array of another library, with what array libraries share; the rest is refused.

    A change that needs more than that fails here, on machines without a GPU.
    """

    def __init__(self, values):
        if not values.dtype.isnative or values.dtype.kind not in "biufc":
            raise TypeError(f"no such type on the device: {values.dtype}")
        self._values = values
        self.dtype, self.shape, self.size = values.dtype, values.shape, values.size

    def __setitem__(self, key, value):
        self._values[key] = getattr(value, "_values", value)

    def max(self):
        return DeviceArray(self._values.max(keepdims=True))

    def argmax(self):
        return int(self._values.argmax())

    def __int__(self):
        return int(self._values.item())

    __array__ = None  # never an implicit copy to the host
    __hash__ = None


def of_device(name):
    return lambda self, *given: DeviceArray(getattr(self._values, name)(*given))


for name in ["view", "reshape", "ravel", "copy", "__getitem__", "__gt__", "__ne__"]:
    setattr(DeviceArray, name, of_device(name))


@given(
    element=st.binary(min_size=1, max_size=24),
    count=st.integers(0, 40),
    changed=st.none() | st.integers(0, 100),
    compared_nbytes=st.integers(1, 100),
)
def test_bytes_consist_of_an_element_if_they_are_that_element_repeated(
    element, count, changed, compared_nbytes
):
    encoded = np.frombuffer(element * count, np.uint8).copy()
    if changed is not None and changed < encoded.size:
        encoded[changed] ^= 1
    expected = encoded.tobytes() == element * count
    assert consists_of_repeated(encoded, element, compared_nbytes) is expected


class TestDevices:
    @pytest.mark.parametrize("dtype", "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split())
    def test_arrays_of_a_device_are_encoded_and_decoded_in_either_byte_order(self, dtype):
        """They are not copied in that of the machine."""
        values = np.arange(24).reshape(4, 6).astype(dtype)
        for view, endian in product([np.s_[:], np.s_[::-1, ::2], np.s_[1, 2], np.s_[:0]], ENDIANS):
            host = np.asarray(values[view])
            encoded = encode_elements(DeviceArray(host), endian)
            stored = np.dtype(dtype).newbyteorder(endian)
            is_view = stored.isnative and host.flags.c_contiguous and host.size > 0
            assert np.shares_memory(encoded._values, host) == is_view
            assert encoded._values.tobytes() == host.astype(stored).tobytes()
            decoded = decode_elements(encoded, stored, host.shape, endian)
            assert decoded.dtype == np.dtype(dtype)
            assert np.array_equal(decoded._values, host)
            assert np.shares_memory(decoded._values, host) == is_view
