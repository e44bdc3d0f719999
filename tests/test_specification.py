"""The normative documents sentence by sentence, each with what it accepts and what it rejects.

Every class is a section, every test a sentence. Expected bytes are written out or packed by
`struct`, so that a reader can hold them against the text.
"""

import json
import re
import struct
from itertools import product

import numpy as np
import pytest
import zarr
from documents import BIG, LITTLE, open_document, rewritten_document, stored_chunk

from zarr_bytes import BytesCodec, DataTypeNameError, EndianCodec, FillValueError

# zarr warns of data types that are not yet specified.
pytestmark = [pytest.mark.zarr, pytest.mark.filterwarnings("ignore:The data type")]

# By data type: the numbers of an element, as `struct` has them.
CODES = dict(
    zip("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split(), "bhiqBHIQ", strict=True)
)
CODES |= {"float16": "e", "float32": "f", "float64": "d", "complex64": "ff", "complex128": "dd"}
BARE = [{"name": "bytes"}]


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


def zero_of(data_type):
    """The JSON form of a fill value of zeros."""
    return [0, 0] if data_type.startswith("complex") else 0


def bytes_of(values, **options):
    """The bytes of the one chunk that an array of `values` is stored in."""
    options = {"serializer": BytesCodec(), **options}
    return stored_chunk(zarr.create_array({}, data=values, compressors=None, **options))


def test_the_value_of_the_name_member_must_be_bytes():
    assert BytesCodec.from_dict({"name": "bytes"}).to_dict() == {"name": "bytes"}
    for document in {"name": "byte"}, {"name": "endian"}, {}, "bytes", None:
        words = re.escape(f'expected a codec object with "name": "bytes", found {document!r}')
        with pytest.raises(ValueError, match=words):
            BytesCodec.from_dict(document)


class TestEndianParameter:
    """`endian`: required for data types for which endianness is applicable."""

    @pytest.mark.parametrize(
        ("data_type", "fill_value"),
        [
            *((name, zero_of(name)) for name in CODES if name not in ("int8", "uint8")),
            (codec("fixed_length_utf32", length_bytes=8), ""),
            (codec("numpy.datetime64", unit="s", scale_factor=1), 0),
        ],
        ids=str,
    )
    def test_is_required_for_multi_byte_data_types(self, data_type, fill_value):
        name = data_type if isinstance(data_type, str) else ""
        with pytest.raises(ValueError, match=f'{name} needs a byte order.*"little"}} or .*"big"'):
            open_document(data_type, fill_value=fill_value, codecs=BARE)

    def test_is_not_required_for_single_byte_data_types(self):
        for data_type, fill_value in (
            *(("bool", False), ("int8", 0), ("uint8", 0), ("r8", [0]), ("r24", [0, 0, 0])),
            (codec("null_terminated_bytes", length_bytes=3), ""),
        ):
            for codecs in BARE, [codec("bytes")]:
                document = rewritten_document(data_type, fill_value=fill_value, codecs=codecs)
                assert document["codecs"] == codecs

    def test_if_present_the_value_must_be_big_or_little(self):
        """None, from Python, means that it is not."""
        for data_type in "uint8", "float32":
            for codecs in BIG, LITTLE:
                assert rewritten_document(data_type, codecs=codecs)["codecs"] == codecs
        given = BytesCodec.from_dict(codec("bytes", endian=None))
        assert given.to_dict() == {"name": "bytes"}
        read = BytesCodec.from_dict(document := codec("bytes", endian="big"))
        document["configuration"]["endian"] = "little"  # what has been read does not change
        assert read.to_dict() == codec("bytes", endian="big")

    @pytest.mark.parametrize("class_", [BytesCodec, EndianCodec])
    def test_any_other_configuration_is_refused(self, class_):
        bad = ("middle", "Little", "<", "", 1, True, ["little"])
        said = {f"endian is {v!r}; permitted are 'little' and 'big'": {"endian": v} for v in bad}
        for value in None, "little", ["endian"], 3:
            said[f"the configuration is {value!r}; it must be an object, such as"] = value
        several = dict.fromkeys("dcab") | {"endian": "big"}
        said["unknown configuration 'a', 'b', 'c', 'd'; only 'endian' is permitted"] = several
        for words, configuration in said.items():
            with pytest.raises(ValueError, match=re.escape(f"codec {class_.name!r}: {words}")):
                class_.from_dict({"name": class_.name, "configuration": configuration})


class TestFormatAndAlgorithm:
    def test_elements_are_in_lexicographical_order_and_a_transpose_gives_another(self):
        values = np.asfortranarray([[1, 2, 3], [4, 5, 6]], "u1")
        assert bytes_of(values) == bytes([1, 2, 3, 4, 5, 6])
        transpose = zarr.codecs.TransposeCodec(order=(1, 0))
        assert bytes_of(values, filters=[transpose]) == bytes([1, 4, 2, 5, 3, 6])

    def test_a_big_int32_is_4_byte_big_endian_twos_complement(self):
        array = open_document("int32", codecs=BIG, chunk=b"\xff\xff\xff\xfe\x00\x00\x00\x02")
        assert array[:].tolist() == [-2, 2]

    def test_a_big_complex128_is_two_consecutive_8_byte_big_endian_binary64_values(self):
        chunk = struct.pack(">4d", 1, 2, 3, -4)
        array = open_document("complex128", fill_value=[0, 0], codecs=BIG, chunk=chunk)
        assert array[:].tolist() == [1 + 2j, 3 - 4j]


class TestSupportedDataTypes:
    def test_bool_is_a_single_byte_with_false_as_0_and_true_as_1(self):
        array = open_document("bool", fill_value=False, codecs=BARE, chunk=b"\x00\x01")
        assert array[:].tolist() == [False, True]

    @pytest.mark.parametrize("data_type", CODES)
    def test_numbers_are_as_struct_packs_them(self, data_type):
        """Complex numbers as the real, then the imaginary component."""
        code = CODES[data_type]
        numbers = [1, 2, 3, 4] if data_type.startswith("uint") else [1, -2, 3, -4]
        values = [complex(*numbers[:2]), complex(*numbers[2:])] if len(code) == 2 else numbers
        members = {"shape": (len(values),), "fill_value": zero_of(data_type)}
        for order, codecs in ("<", LITTLE), (">", BIG):
            chunk = struct.pack(f"{order}4{code[0]}", *numbers)
            for given in [codecs, *[BARE] * (data_type in ("int8", "uint8"))]:
                array = open_document(data_type, codecs=given, chunk=chunk, **members)
                assert array[:].tolist() == values

    def test_raw_bits_are_their_bytes_in_any_byte_order(self):
        for size, codecs in product([1, 2, 3, 16], [LITTLE, BIG, BARE]):
            chunk = bytes(range(2 * size))
            fill_value = [0] * size
            array = open_document(f"r{8 * size}", fill_value=fill_value, codecs=codecs, chunk=chunk)
            assert (array.dtype, array[:].tobytes()) == (np.dtype(f"V{size}"), chunk)

    def test_the_number_of_raw_bits_must_be_a_positive_multiple_of_8_that_numpy_can_hold(self):
        top = 8 * (2**31 - 1)
        assert zarr.dtype.parse_dtype(f"r{top}", zarr_format=3).length == 2**31 - 1
        for name in "r12", "r0", "r-8", "r8.0", "r08", "r 8", "r+8", "r1e3", "r٨", f"r{top + 1}":
            with pytest.raises(DataTypeNameError, match="a multiple of 8"):
                open_document(name, fill_value=[0], codecs=BARE)
            with pytest.raises(DataTypeNameError, match="a multiple of 8"):
                zarr.create_array({}, shape=1, dtype=name)
        for bits in top + 8, 2**64, "9" * 5000:  # the last is too long for Python
            with pytest.raises(DataTypeNameError, match=f"than 2147483647 bytes, which is r{top}"):
                open_document(f"r{bits}", fill_value=[0])

    def test_data_types_of_no_fixed_size_are_refused_when_the_array_is_created(self):
        for data_type, named in (
            ("string", "the codec that stores them is 'vlen-utf8'|must be `VLenUTF8Codec`"),
            ("variable_length_bytes", "of VariableLengthBytes.* no fixed size.* is 'vlen-bytes'"),
        ):
            with pytest.raises(ValueError, match=named):
                zarr.create_array({}, shape=2, dtype=data_type, serializer=BytesCodec())


class TestEndianCodec:
    """The draft: `endian` is required, and the bytes are those of `bytes`."""

    def test_a_string_equal_to_either_big_or_little(self):
        for endian, data_type in product(["big", "little"], ["uint8", "uint16"]):
            codecs = [codec("endian", endian=endian)]
            assert rewritten_document(data_type, codecs=codecs)["codecs"] == codecs

    def test_is_required_for_single_byte_data_types_too(self):
        for given in {"name": "endian"}, codec("endian"):
            with pytest.raises(ValueError, match="^codec 'endian': no .* requires it.*little.*big"):
                open_document("uint8", codecs=[given])

    @pytest.mark.parametrize("endian", ["big", "little"])
    def test_stores_the_bytes_of_the_bytes_codec(self, endian):
        values = np.arange(12, dtype="f8").reshape(3, 4)
        chunk = bytes_of(values, serializer=EndianCodec(endian=endian))
        assert chunk == bytes_of(values, serializer=BytesCodec(endian=endian))
        codecs = [codec("endian", endian=endian)]
        array = open_document("float64", shape=(3, 4), codecs=codecs, chunk=chunk)
        assert np.array_equal(array[...], values)


def bits_of(array):
    """The bits of the numbers of the first element."""
    size = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    return array[:1].view(f"u{size}").tolist()


@pytest.mark.usefixtures("strict_fill_values")
class TestPermittedFillValues:
    def test_bool_must_be_a_json_boolean(self):
        for value in True, False:
            assert rewritten_document("bool", fill_value=value)["fill_value"] is value

    @pytest.mark.parametrize("bits", [8, 16, 32, 64])
    def test_integers_are_numbers_in_the_range_of_the_data_type(self, bits):
        half = 2 ** (bits - 1)
        for name, low, high in (f"int{bits}", -half, half - 1), (f"uint{bits}", 0, 2 * half - 1):
            for value in (low, high):
                assert rewritten_document(name, fill_value=value)["fill_value"] == value
            for value in (low - 1, high + 1, 10**400):
                with pytest.raises(FillValueError, match=f"integer from {low} to {high}"):
                    open_document(name, fill_value=value)
            assert open_document(name, fill_value=1.0).fill_value == 1  # as zarr reads it

    def test_a_float_is_a_number_rounded_to_the_nearest_representable_value(self):
        for value, bits in {
            1: 0x3F800000,
            -0.0: 0x80000000,
            0.1: 0x3DCCCCCD,
            # A limit: of a number with a fraction, JSON makes a float first, here down to a tie.
            json.loads("1.0000000596046447754"): 0x3F800000,
            16777217: 0x4B800000,  # rounded up, and a tie, to even
            2**60 + 2**36 + 1: 0x5D800001,  # not a tie, which a float64 would make it
            1e39: 0x7F800000,
            -(10**400): 0xFF800000,  # infinity, as IEEE 754 rounds
        }.items():
            assert bits_of(open_document("float32", fill_value=value)) == [bits]

    def test_a_float_is_one_of_three_names_or_the_bits_of_another_nan(self):
        """Bits survive opening, reading a missing chunk, and rewriting the metadata."""
        for data_type, infinity, nan, other in (
            ("float16", 0x7C00, 0x7E00, "0x7c01"),
            ("float32", 0x7F800000, 0x7FC00000, "0x7f800001"),
            ("float32", 0x7F800000, 0x7FC00000, "0xffc00000"),
            ("float64", 0x7FF0000000000000, 0x7FF8000000000000, "0x7ff0000000000001"),
        ):
            negative = infinity | 1 << int(data_type.removeprefix("float")) - 1
            forms = {"Infinity": infinity, "-Infinity": negative, "NaN": nan}
            for form, bits in (forms | {other: int(other, 16)}).items():
                assert bits_of(open_document(data_type, fill_value=form)) == [bits]
                assert rewritten_document(data_type, fill_value=form)["fill_value"] == form

    def test_bits_may_be_those_of_any_number_in_either_case_of_digits(self):
        for text, value in ("0x3f800000", 1.0), ("0x7FC00000", "NaN"):
            assert rewritten_document("float32", fill_value=text)["fill_value"] == value

    def test_a_complex_number_is_a_two_element_array(self):
        for value in [1, 2], ["-Infinity", "NaN"], ["0xffc00001", "0x7f800001"]:
            assert rewritten_document("complex64", fill_value=value)["fill_value"] == value
        array = open_document("complex64", fill_value=["0xffc00001", "0x7f800001"])
        assert bits_of(array) == [0xFFC00001, 0x7F800001]

    def test_raw_bits_are_an_array_of_integers_from_0_to_255(self):
        """Base64 text, which TensorStore writes, is read too."""
        for value in [1, 0, 255], "AQD/":
            array = open_document("r24", fill_value=value, codecs=BARE)
            assert array[:].tobytes() == bytes([1, 0, 255]) * 2
            assert rewritten_document("r24", fill_value=value)["fill_value"] == [1, 0, 255]

    @pytest.mark.parametrize(
        ("data_type", "permitted", "values"),
        [
            ("bool", "true or false", [0, 1, 1.0, "true", "", None, [], [True], {}]),
            ("int16", "an integer", [1.5, "1", "NaN", True, None, [1], 1e300, float("nan")]),
            (
                "float32",
                "a number, .*0x.*8 hexadec",
                [
                    *"1.5 inf nan +Infinity infinity 7fc00000 0X7fc00000".split(),
                    *"0x7fc0 0x7ff8000000000000 0x7fc0000 0x_7fc0000 0x7fc_0000 0x7fc0000g".split(),
                    *(" NaN", "NaN ", "0x7fc00000\n", "", True, None, [0.0], {}),
                    float("nan"),  # the token NaN, which is not JSON
                ],
            ),
            (
                "complex64",
                r"an array of two components, such as \[0.0, 0.0\]\.",
                [1, [1], [1, 2, 3], "12", "NaN", None, {"re": 1, "im": 2}],
            ),
            ("complex64", "a number", [[True, 0], ["0x7fc0", 0], ["1", 0]]),
            (
                "r24",
                r"an array of 3 integers from 0 to 255\.",
                [0, None, [], [1, 2], [1, 2, 3, 4], [1, 2, 256], [1, 2, -1], [1, 2, 3.0]]
                + [[True, 0, 0], "", "AQD/AA==", "AQD", "AQ D/", "é", "0x010203", {"0": 1}],
            ),
        ],
    )
    def test_nothing_else_is_a_permitted_fill_value(self, data_type, permitted, values):
        for value in values:
            with pytest.raises(FillValueError, match=f"data type .*: permitted is {permitted}"):
                open_document(data_type, fill_value=value)
