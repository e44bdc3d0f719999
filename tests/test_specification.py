"""The normative documents sentence by sentence, each with what it accepts and what it rejects.

Every class is a section, every test a sentence. Expected bytes are written out or packed by
`struct`, so that a reader can hold them against the text.
"""

import json
import struct

import numpy as np
import pytest
import zarr
from documents import BIG, LITTLE, open_document, rewritten_document, stored_chunk

from zarr_bytes import BoolValueError, BytesCodec, DataTypeNameError, EndianCodec, FillValueError

pytestmark = pytest.mark.zarr

MULTI_BYTE = {
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


def bytes_of(values, **options):
    """The bytes of the one chunk that an array of `values` is stored in."""
    options = {"serializer": BytesCodec(), **options}
    return stored_chunk(zarr.create_array({}, data=values, compressors=None, **options))


class TestBytesCodecName:
    def test_the_value_of_the_name_member_must_be_bytes(self):
        assert BytesCodec.from_dict({"name": "bytes"}).to_dict() == {"name": "bytes"}

    @pytest.mark.parametrize("document", [{"name": "byte"}, {"name": "endian"}, {}, "bytes", None])
    def test_any_other_name_is_refused(self, document):
        with pytest.raises(ValueError, match='expected a codec object with "name": "bytes"'):
            BytesCodec.from_dict(document)


class TestEndianParameter:
    """`endian`: required for data types for which endianness is applicable."""

    @pytest.mark.parametrize(
        ("data_type", "fill_value"),
        [
            *((name, 0) for name in MULTI_BYTE),
            *((name, [0, 0]) for name in ("complex64", "complex128")),
            ({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}, ""),
            ({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}, 0),
            ({"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 1}}, 0),
        ],
        ids=str,
    )
    def test_is_required_for_multi_byte_data_types(self, data_type, fill_value):
        name = data_type if isinstance(data_type, str) else ""
        with pytest.raises(ValueError, match=f'{name} needs a byte order.*"endian": "little"'):
            open_document(data_type, fill_value=fill_value, codecs=[{"name": "bytes"}])

    @pytest.mark.parametrize("data_type", ["bool", "int8", "uint8", "r8", "r24"])
    @pytest.mark.parametrize("codec", [{"name": "bytes"}, {"name": "bytes", "configuration": {}}])
    def test_is_not_required_for_single_byte_data_types(self, data_type, codec):
        fill_value = {"bool": False, "r8": [0], "r24": [0, 0, 0]}.get(data_type, 0)
        document = rewritten_document(data_type, fill_value=fill_value, codecs=[codec])
        assert document["codecs"] == [codec]

    @pytest.mark.parametrize("endian", ["big", "little"])
    @pytest.mark.parametrize("data_type", ["uint8", "float32"])
    def test_if_present_the_value_must_be_big_or_little(self, data_type, endian):
        codec = {"name": "bytes", "configuration": {"endian": endian}}
        assert rewritten_document(data_type, codecs=[codec])["codecs"] == [codec]

    @pytest.mark.parametrize("endian", ["middle", "Little", "<", "", 1, True, ["little"]])
    def test_any_other_value_is_refused(self, endian):
        codec = {"name": "bytes", "configuration": {"endian": endian}}
        with pytest.raises(ValueError, match="permitted are 'little' and 'big'"):
            open_document("float32", codecs=[codec])

    def test_none_from_python_means_not_given(self):
        codec = BytesCodec.from_dict({"name": "bytes", "configuration": {"endian": None}})
        assert codec.to_dict() == {"name": "bytes"}

    def test_an_unknown_configuration_key_is_refused(self):
        codec = {"name": "bytes", "configuration": {"endian": "little", "order": "C"}}
        with pytest.raises(ValueError, match="unknown configuration 'order'; only 'endian'"):
            open_document("float32", codecs=[codec])

    @pytest.mark.parametrize("configuration", [None, "little", ["endian"], 3])
    def test_a_configuration_that_is_no_object_is_refused(self, configuration):
        with pytest.raises(ValueError, match="it must be an object"):
            BytesCodec.from_dict({"name": "bytes", "configuration": configuration})


class TestFormatAndAlgorithm:
    def test_elements_are_encoded_in_lexicographical_order(self):
        values = np.asfortranarray([[1, 2, 3], [4, 5, 6]], "u1")
        assert bytes_of(values) == bytes([1, 2, 3, 4, 5, 6])

    def test_the_transpose_codec_gives_another_order(self):
        values = np.array([[1, 2, 3], [4, 5, 6]], "u1")
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
        codecs = [{"name": "bytes"}]
        array = open_document("bool", fill_value=False, codecs=codecs, chunk=b"\x00\x01")
        assert array[:].tolist() == [False, True]

    def test_any_other_byte_for_a_bool_is_refused_and_named(self):
        chunk = b"\x00\x01\x00\x01\x07\x02"
        array = open_document("bool", shape=(2, 3), fill_value=False, chunk=chunk)
        error = r"found 7 at index \(1, 1\) of the chunk \(byte 4"
        with pytest.raises(BoolValueError, match=error):
            array[...]

    def test_a_true_that_numpy_holds_as_another_byte_is_written_as_1(self):
        assert bytes_of(np.array([0, 1, 255], "u1").view("bool")) == b"\x00\x01\x01"

    @pytest.mark.parametrize(("endian", "codecs"), [("<", LITTLE), (">", BIG)])
    @pytest.mark.parametrize(("data_type", "code"), MULTI_BYTE.items())
    def test_numbers_are_as_struct_packs_them(self, data_type, code, endian, codecs):
        values = (1, 2) if data_type.startswith("uint") else (1, -2)
        chunk = struct.pack(f"{endian}2{code}", *values)
        assert open_document(data_type, codecs=codecs, chunk=chunk)[:].tolist() == list(values)

    @pytest.mark.parametrize(
        ("data_type", "code", "values"), [("int8", "b", [-128, 127]), ("uint8", "B", [0, 255])]
    )
    @pytest.mark.parametrize("codecs", [LITTLE, BIG, [{"name": "bytes"}]])
    def test_single_bytes_do_not_depend_on_endian(self, data_type, code, values, codecs):
        chunk = struct.pack(f"2{code}", *values)
        assert open_document(data_type, codecs=codecs, chunk=chunk)[:].tolist() == values

    @pytest.mark.parametrize(("endian", "codecs"), [("<", LITTLE), (">", BIG)])
    @pytest.mark.parametrize(("data_type", "code"), [("complex64", "f"), ("complex128", "d")])
    def test_complex_numbers_are_the_real_then_the_imaginary_component(
        self, data_type, code, endian, codecs
    ):
        chunk = struct.pack(f"{endian}4{code}", 1, 2, 3, 4)
        array = open_document(data_type, fill_value=[0, 0], codecs=codecs, chunk=chunk)
        assert array[:].tolist() == [1 + 2j, 3 + 4j]

    @pytest.mark.parametrize("bits", [8, 16, 24, 128])
    @pytest.mark.parametrize("codecs", [LITTLE, BIG, [{"name": "bytes"}]])
    def test_raw_bits_are_their_bytes_in_any_byte_order(self, bits, codecs):
        chunk = bytes(range(2 * bits // 8))
        array = open_document(f"r{bits}", fill_value=[0] * (bits // 8), codecs=codecs, chunk=chunk)
        assert array.dtype == np.dtype(f"V{bits // 8}")
        assert array[:].tobytes() == chunk

    @pytest.mark.parametrize(
        "name", ["r12", "r0", "r-8", "r8.0", "r08", "r 8", "r+8", "r1e3", "r٨"]
    )
    def test_the_number_of_raw_bits_must_be_a_positive_multiple_of_8(self, name):
        with pytest.raises(DataTypeNameError, match="a multiple of 8"):
            open_document(name, fill_value=[0], codecs=[{"name": "bytes"}])
        with pytest.raises(DataTypeNameError, match="a multiple of 8"):
            zarr.create_array({}, shape=1, dtype=name)

    @pytest.mark.parametrize("bits", [2**34, 2**64, int("9" * 4000)])
    def test_more_raw_bits_than_numpy_can_hold_are_refused_at_once(self, bits):
        error = "NumPy has no elements of more than 2147483647"
        with pytest.raises(DataTypeNameError, match=error):
            open_document(f"r{bits}", fill_value=[0])

    @pytest.mark.parametrize(
        ("data_type", "named"),
        [
            ("string", "the codec that stores them is 'vlen-utf8'|must be `VLenUTF8Codec`"),
            ("variable_length_bytes", "the codec that stores them is 'vlen-bytes'"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:The data type")  # zarr: not yet specified
    def test_data_types_of_no_fixed_size_are_refused_when_the_array_is_created(
        self, data_type, named
    ):
        with pytest.raises(ValueError, match=named):
            zarr.create_array({}, shape=2, dtype=data_type, serializer=BytesCodec())


class TestEndianCodec:
    """The draft: `endian` is required, and the bytes are those of `bytes`."""

    @pytest.mark.parametrize("endian", ["big", "little"])
    @pytest.mark.parametrize("data_type", ["uint8", "uint16"])
    def test_a_string_equal_to_either_big_or_little(self, data_type, endian):
        codec = {"name": "endian", "configuration": {"endian": endian}}
        assert rewritten_document(data_type, codecs=[codec])["codecs"] == [codec]

    @pytest.mark.parametrize("codec", [{"name": "endian"}, {"name": "endian", "configuration": {}}])
    def test_is_required_for_single_byte_data_types_too(self, codec):
        with pytest.raises(ValueError, match='requires it; write "configuration"'):
            open_document("uint8", codecs=[codec])

    @pytest.mark.parametrize("endian", ["middle", 1, {"big": True}])
    def test_any_other_value_is_refused(self, endian):
        with pytest.raises(ValueError, match="permitted are 'little' and 'big'"):
            EndianCodec.from_dict({"name": "endian", "configuration": {"endian": endian}})

    @pytest.mark.parametrize("endian", ["big", "little"])
    def test_stores_the_bytes_of_the_bytes_codec(self, endian):
        values = np.arange(12, dtype="f8").reshape(3, 4)
        chunk = bytes_of(values, serializer=EndianCodec(endian=endian))
        assert chunk == bytes_of(values, serializer=BytesCodec(endian=endian))
        codecs = [{"name": "endian", "configuration": {"endian": endian}}]
        array = open_document("float64", shape=(3, 4), codecs=codecs, chunk=chunk)
        assert np.array_equal(array[...], values)


@pytest.mark.usefixtures("strict_fill_values")
class TestPermittedFillValues:
    @pytest.mark.parametrize("value", [True, False])
    def test_bool_must_be_a_json_boolean(self, value):
        assert rewritten_document("bool", fill_value=value)["fill_value"] is value

    @pytest.mark.parametrize("value", [0, 1, 1.0, "true", "", None, [], [True], {}])
    def test_bool_is_nothing_else(self, value):
        with pytest.raises(FillValueError, match="data type bool: permitted is true or false"):
            open_document("bool", fill_value=value)

    @pytest.mark.parametrize("bits", [8, 16, 32, 64])
    def test_integers_are_numbers_in_the_range_of_the_data_type(self, bits):
        for name, low, high in (
            (f"int{bits}", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
            (f"uint{bits}", 0, 2**bits - 1),
        ):
            for value in (low, high):
                assert rewritten_document(name, fill_value=value)["fill_value"] == value
            for value in (low - 1, high + 1, 10**400):
                with pytest.raises(FillValueError, match=f"integer from {low} to {high}"):
                    open_document(name, fill_value=value)

    @pytest.mark.parametrize("value", [1.5, "1", "NaN", True, None, [1], 1e300, float("nan")])
    def test_integers_have_no_fraction_and_are_nothing_else(self, value):
        with pytest.raises(FillValueError, match="data type int16: permitted is an integer from"):
            open_document("int16", fill_value=value)

    def test_an_integer_written_with_a_fraction_of_zero_is_read_as_zarr_reads_it(self):
        assert open_document("int16", fill_value=1.0).fill_value == 1

    @pytest.mark.parametrize(
        ("value", "bits"),
        [
            (1, 0x3F800000),
            (-0.0, 0x80000000),
            (0.1, 0x3DCCCCCD),  # rounded up
            (16777217, 0x4B800000),  # a tie, to even
            (1e-50, 0),
            (1e39, 0x7F800000),  # above the largest: infinity, as IEEE 754 rounds
            (-(10**400), 0xFF800000),
        ],
    )
    def test_a_float_is_a_number_rounded_to_the_nearest_representable_value(self, value, bits):
        assert open_document("float32", fill_value=value)[:].view("u4").tolist() == [bits] * 2

    def test_a_number_with_a_fraction_is_rounded_to_a_python_float_first(self):
        """A limit: the JSON is parsed before. The digits are above a tie, the float is the tie."""
        value = json.loads("1.0000000596046447754")
        assert open_document("float32", fill_value=value)[:].view("u4").tolist() == [0x3F800000] * 2

    @pytest.mark.parametrize(
        ("data_type", "infinity", "minus_infinity", "nan"),
        [
            ("float16", 0x7C00, 0xFC00, 0x7E00),
            ("float32", 0x7F800000, 0xFF800000, 0x7FC00000),
            ("float64", 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000),
        ],
    )
    def test_a_float_is_one_of_three_names(self, data_type, infinity, minus_infinity, nan):
        bits = {"Infinity": infinity, "-Infinity": minus_infinity, "NaN": nan}
        for name, expected in bits.items():
            array = open_document(data_type, fill_value=name)
            assert array[:1].view(f"u{array.dtype.itemsize}").item() == expected
            assert rewritten_document(data_type, fill_value=name)["fill_value"] == name

    @pytest.mark.parametrize(
        ("data_type", "text"),
        [
            ("float16", "0x7c01"),
            *(("float32", text) for text in ("0x7f800001", "0xffc00000")),
            *(("float64", text) for text in ("0x7ff0000000000001", "0xfff8000000000000")),
        ],
    )
    def test_any_other_nan_is_the_bits_as_an_unsigned_integer(self, data_type, text):
        """Bits survive opening, reading a missing chunk, and rewriting the metadata."""
        array = open_document(data_type, fill_value=text)
        unsigned = f"u{array.dtype.itemsize}"
        assert array[:].view(unsigned).tolist() == [int(text, 16)] * 2
        assert rewritten_document(data_type, fill_value=text)["fill_value"] == text

    @pytest.mark.parametrize(("text", "value"), [("0x3f800000", 1.0), ("0x7FC00000", "NaN")])
    def test_bits_may_be_those_of_any_number_in_either_case_of_digits(self, text, value):
        assert rewritten_document("float32", fill_value=text)["fill_value"] == value

    @pytest.mark.parametrize(
        "value",
        [
            *"1.5 inf nan +Infinity infinity 7fc00000 0X7fc00000".split(),
            *"0x7fc0 0x7ff8000000000000 0x7fc0000 0x_7fc0000 0x7fc_0000 0x7fc0000g".split(),
            *(" NaN", "NaN ", "0x7fc00000\n", "", True, None, [0.0], {}),
            float("nan"),  # the token NaN, which is not JSON
        ],
    )
    def test_a_float_is_nothing_else(self, value):
        with pytest.raises(FillValueError, match="float32: permitted is a number, .*0x.*8 hexadec"):
            open_document("float32", fill_value=value)

    @pytest.mark.parametrize("value", [[1, 2], ["-Infinity", "NaN"], ["0xffc00001", "0x7f800001"]])
    def test_a_complex_number_is_a_two_element_array(self, value):
        assert rewritten_document("complex64", fill_value=value)["fill_value"] == value

    def test_each_component_keeps_its_bits(self):
        array = open_document("complex64", fill_value=["0xffc00001", "0x7f800001"])
        assert array[:1].view("u4").tolist() == [0xFFC00001, 0x7F800001]

    @pytest.mark.parametrize(
        "value",
        [1, [1], [1, 2, 3], "12", "NaN", None, {"re": 1, "im": 2}]
        + [[True, 0], ["0x7fc0", 0], ["1", 0]],
    )
    def test_a_complex_number_is_nothing_else(self, value):
        with pytest.raises(FillValueError, match="permitted is a"):
            open_document("complex64", fill_value=value)

    def test_raw_bits_are_an_array_of_integers_from_0_to_255(self):
        array = open_document("r24", fill_value=[1, 0, 255], codecs=[{"name": "bytes"}])
        assert array[:].tobytes() == bytes([1, 0, 255]) * 2
        assert rewritten_document("r24", fill_value=[1, 0, 255])["fill_value"] == [1, 0, 255]

    def test_raw_bits_as_base64_text_are_read_and_written_as_the_specification_has_them(self):
        """TensorStore writes the text; see also test_tensorstore.py."""
        assert rewritten_document("r24", fill_value="AQD/")["fill_value"] == [1, 0, 255]

    @pytest.mark.parametrize(
        "value",
        [0, None, [], [1, 2], [1, 2, 3, 4], [1, 2, 256], [1, 2, -1], [1, 2, 3.0], [True, 0, 0]]
        + ["", "AQD/AA==", "AQD", "AQ D/", "é", "0x010203", {"0": 1}],
    )
    def test_raw_bits_are_nothing_else(self, value):
        with pytest.raises(FillValueError, match="r24: permitted is an array of 3 integers"):
            open_document("r24", fill_value=value)
