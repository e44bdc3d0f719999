"""The data type classes stand in for zarr's own, and differ in nothing but fill values."""

import base64
import json
import re
import traceback
import warnings
from contextlib import suppress

import numpy as np
import pytest
import zarr
from documents import (
    ARRAY,
    GROUP,
    LITTLE,
    document_of,
    memory,
    open_document,
    rewritten_document,
    store_of,
    stored_chunk,
    stored_document,
    struct_of,
    write,
)
from plain_zarr import outcome
from zarr import dtype as zarr_dtype

from zarr_bytes import FillValueError, FillValueWarning
from zarr_bytes.data_type import DATA_TYPES, core
from zarr_bytes.zarr_versions import HAS_STRUCT

CORE = {name: cls for name, cls in DATA_TYPES.items() if cls in core.CORE.values()}

pytestmark = pytest.mark.filterwarnings("ignore:The data type")  # zarr: not yet specified


def pairs():
    """Data types of this package and zarr's: each with both byte orders, and two structs."""
    for ours in CORE.values():
        zarrs = getattr(zarr_dtype, ours.__name__)
        has_order = "endianness" in ours.__dataclass_fields__
        for order in [{"endianness": "little"}, {"endianness": "big"}] if has_order else [{}]:
            yield ours(**order), zarrs(**order)
    if HAS_STRUCT:
        for fields in (("a", zarr_dtype.Int8()),), (("a", zarr_dtype.Int16()),):
            yield DATA_TYPES["struct"](fields=fields), zarr_dtype.Struct(fields=fields)


class TestDropIn:
    def test_each_is_equal_to_zarrs_class_of_its_name_and_to_no_other_both_ways(self):
        known = list(pairs())
        for i, (ours, zarrs) in enumerate(known):
            assert (hash(ours), repr(ours)) == (hash(zarrs), repr(zarrs))
            assert isinstance(ours, type(zarrs))
            for j, others in enumerate(known):
                for other in others:
                    assert (ours == other) is (other == ours) is (i == j)

    def test_zarr_finds_them_by_name_and_by_numpy_type(self):
        for name in CORE:
            for given in (name, np.dtype(name)):
                assert type(zarr_dtype.parse_dtype(given, zarr_format=3)) is CORE[name]
        if HAS_STRUCT:
            record = np.dtype([("a", "f4"), ("b", "i2")])
            found = zarr_dtype.parse_dtype(record, zarr_format=3)
            assert type(found) is DATA_TYPES["struct"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [("float16", "0x7c01"), ("float32", 1.5), ("complex64", ("-Infinity", "0x7f800001"))],
    )
    def test_the_byte_order_does_not_matter_to_a_fill_value(self, name, value):
        native = CORE[name]().from_json_scalar(value, zarr_format=3)
        for endianness in "little", "big":
            ours = CORE[name](endianness=endianness)
            scalar = ours.from_json_scalar(value, zarr_format=3)
            assert scalar.tobytes() == native.tobytes()
            assert ours.to_json_scalar(scalar, zarr_format=3) == value

    @pytest.mark.parametrize("name", CORE)
    def test_zarr_format_2_is_unchanged(self, name):
        ours, zarrs = CORE[name](), getattr(zarr_dtype, CORE[name].__name__)()
        assert ours.to_json(zarr_format=2) == zarrs.to_json(zarr_format=2)
        written = zarrs.to_json_scalar(zarrs.cast_scalar(1), zarr_format=2)
        assert ours.to_json_scalar(zarrs.cast_scalar(1), zarr_format=2) == written
        if name == "float32":  # also where the specification of format 3 permits no such value
            assert ours.from_json_scalar("1.5", zarr_format=2) == 1.5
        array = zarr.create_array({}, shape=2, dtype=name, zarr_format=2, fill_value=1)
        reopened = zarr.open_array(array.store)
        assert reopened.metadata.to_dict() == array.metadata.to_dict()
        assert (reopened[:] == 1).all()


class TestFillValuesFromPython:
    def test_what_is_no_integer_in_range_is_refused(self):
        for value in (300, -1, 1e30, float("nan")):
            with pytest.raises(ValueError, match="uint8: permitted is an integer from 0 to"):
                zarr.create_array({}, shape=2, dtype="uint8", fill_value=value)

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_any_other_integer_is_taken_as_zarr_takes_it(self, zarr_format):
        """A NumPy integer wraps around: xarray's `_Unsigned` variables rely on it."""
        for value, taken in (np.int8(-1), 255), (np.timedelta64(3, "s"), 3), ("7", 7), (1.0, 1):
            options = {"fill_value": value, "zarr_format": zarr_format}
            assert zarr.create_array({}, shape=2, dtype="uint8", **options).fill_value == taken

    def test_the_bits_of_a_nan_are_kept(self):
        for bits in 0x7F800001, 0xFFC00000:
            value = np.uint32(bits).view("f4")
            array = zarr.create_array({}, shape=2, dtype="float32", fill_value=value)
            assert array[:].view("u4").tolist() == [bits] * 2
            assert stored_document(array)["fill_value"] == f"{bits:#010x}"


def fill_values(setting):
    return zarr.config.set({"zarr_bytes.fill_values": setting})


# What is in documents of other writers, or is next to what is permitted.
ODD = [
    None, True, False, 0, 1, -1, 1.0, 1.5, 300, 2**63, 2**64, 1e30, 10**400, float("nan"),
    float("inf"), "0", "1", "-1", " 7 ", "1_0", "1.5", "1e3", "inf", "nan", " NaN", "NaN",
    "Infinity", "true", "", "x", "0x7fc00000", "0x7f800001", "0x7e01", "0x7ff8000000000000", "0x0",
    "0X7FC00000", "\u0663", [], [0], [1], [[1]], [1, 2], [True, "1"], [None, 0], ["1.5", 0],
    [True, "0x7f800001"], ["0x7e01", "0x7f800001"], [1, 2, 3], {}, {"a": 1},
]  # fmt: skip


class TestFillValuesThatAreNotPermitted:
    @pytest.mark.parametrize("data_type", CORE)
    def test_the_value_is_the_one_that_plain_zarr_takes(self, plain, data_type):
        """And what is written back for it is permitted."""
        for value in ODD:
            with warnings.catch_warnings(), suppress(FillValueError):
                warnings.simplefilter("ignore")
                written = rewritten_document(data_type, fill_value=value)["fill_value"]
                with fill_values("strict"):
                    open_document(data_type, fill_value=written)
            document = ARRAY | {"data_type": data_type, "fill_value": value}
            objects = {"zarr.json": json.dumps(document).encode()}
            expected, found = plain(objects), outcome(objects)
            if data_type == "bool" and isinstance(value, list) and len(value) > 1:
                assert "FillValueError" in found["error"]  # it would be another for each element
            elif "error" not in expected:
                assert found["values"] == expected["values"], value
            elif value is None:
                assert not int(found["values"], 16)
            elif value == 10**400 and data_type.startswith("float"):
                assert not np.isfinite(open_document(data_type, fill_value=value)[0])
            else:
                assert "FillValueError" in found["error"], value

    @pytest.mark.parametrize(
        ("value", "bits"),
        [
            ([True, "0x7f800001"], [0x3F800000, 0x7F800001]),
            (["0xffc00001", "0x7e01"], [0xFFC00001, 0x7FC00000]),
        ],
    )
    def test_a_component_that_is_permitted_keeps_its_bits(self, value, bits):
        with pytest.warns(FillValueWarning):
            array = open_document("complex64", fill_value=value)
        assert array[:1].view("u4").tolist() == bits

    @pytest.mark.parametrize(
        ("data_type", "value", "read"),
        [("float32", "1.5", 1.5), ("int16", "7", 7), ("bool", 1, True), ("float64", True, 1.0)],
    )
    def test_a_warning_names_the_array_the_value_and_what_is_permitted(
        self, tmp_path, data_type, value, read
    ):
        document = ARRAY | {"data_type": data_type, "fill_value": value}
        write(tmp_path / "a", document)
        place = re.escape(f"array {(tmp_path / 'a').as_uri()}")
        expected = f"^{place}: {value!r} is not a fill value of data type {data_type}: permitted"
        with pytest.warns(FillValueWarning, match=f"{expected} is .* read as the value {read}"):
            found = zarr.open_array(tmp_path / "a").fill_value
        assert (found, type(found)) == (read, np.dtype(data_type).type)
        write(tmp_path / "a", document | {"fill_value": read})
        zarr.open_array(tmp_path / "a")  # without a warning

    def test_one_warning_an_array_however_it_is_opened_and_used(self, tmp_path):
        def use(array):
            array[:] = array[:] + 1
            array.resize(6)

        write(tmp_path, GROUP)
        for open_ in (
            lambda: zarr.open_array(tmp_path / "a", mode="r+"),
            lambda: zarr.open(tmp_path, path="a", mode="r+"),
            lambda: zarr.open_group(tmp_path, mode="r+")["a"],
            lambda: dict(zarr.open_group(tmp_path, mode="r+").members())["a"],
        ):
            write(tmp_path / "a", ARRAY | {"fill_value": "1"})
            with pytest.warns(FillValueWarning, match="^array file://.*/a: '1'") as warned:
                use(open_())
            assert [warning.filename for warning in warned] == [__file__]

    @pytest.mark.parametrize("name", DATA_TYPES)
    def test_null_is_the_default_and_written_back_as_it(self, name):
        data_type = {"r*": "r24", "struct": struct_of(a="float32")}.get(name, name)
        expected = "null is not a fill value of .* permitted is .*"
        hint = 'zarr.config.set.*"zarr_bytes.fill_values": "lenient".* reads it as'
        with fill_values("strict"), pytest.raises(FillValueError, match=expected + hint):
            open_document(data_type, fill_value=None)
        with pytest.warns(FillValueWarning, match=f"{expected} It is read as"):
            document = rewritten_document(data_type, fill_value=None)
        array = open_document(data_type, fill_value=document["fill_value"])
        assert not np.any(np.asarray(array[:]).view("u1"))

    def test_what_zarr_refuses_too_is_always_refused(self):
        for data_type, value, expected in (
            ("complex64", [None, 0], "null is not a fill value of data type float32"),
            ("r8", [None], "r8: permitted is an array"),
            ("int8", 300, "int8: permitted is an integer from -128 to 127"),
            ("bfloat16", "1.5", "bfloat16: permitted is a number"),
        ):
            for setting in "strict", "lenient":
                with fill_values(setting), pytest.raises(FillValueError, match=expected):
                    open_document(data_type, fill_value=value)

    @pytest.mark.skipif(not hasattr(zarr.codecs, "ScaleOffset"), reason="zarr 3.3 has it")
    @pytest.mark.usefixtures("pipeline")
    @pytest.mark.parametrize(
        ("data_type", "offset", "scale", "stored"),
        [
            ("float32", "0.5", "2", [1, 3]),
            ("int16", "-1", "3", [6, 9]),
            ("uint8", "0", True, [1, 2]),
        ],
    )
    def test_it_is_a_parameter_of_other_codecs_as_in_zarr(self, data_type, offset, scale, stored):
        codec = zarr.codecs.ScaleOffset(offset=offset, scale=scale)
        options = {"filters": codec, "compressors": None}
        created = zarr.create_array({}, shape=2, dtype=data_type, **options)
        assert stored_document(created)["codecs"][0] == codec.to_dict()
        for store in created.store, store_of(data_type, codecs=[codec.to_dict(), *LITTLE]):
            zarr.open_array(store, mode="r+")[:] = [1, 2]
            array = zarr.open_array(store)
            assert (array.dtype, array[:].tolist()) == (data_type, [1, 2])
        chunk = np.array(stored).astype(np.dtype(data_type).newbyteorder("<")).tobytes()
        assert stored_chunk(array) == chunk


class TestStruct:
    __test__ = HAS_STRUCT  # from zarr 3.2 on

    DATA_TYPE = struct_of(a="float32", c=struct_of(b="int8"))

    @pytest.mark.parametrize(
        ("value", "bits", "read"),
        [
            ({"a": "1.5"}, 0x3FC00000, 0),
            ({"a": "0x7f800001", "c": {"b": "2"}}, 0x7F800001, 2),
            ({"a": 5, "c": {"b": None}}, 0x40A00000, 0),
        ],
    )
    def test_what_a_field_does_not_permit_is_read_with_one_warning(self, value, bits, read):
        expected = "is not a fill value of data type (float32|int8)"
        with fill_values("strict"), pytest.raises(FillValueError, match=expected):
            open_document(self.DATA_TYPE, fill_value=value)
        with pytest.warns(FillValueWarning, match=expected) as warned:
            found = open_document(self.DATA_TYPE, fill_value=value)[0]
        assert (found["a"].view("u4"), found["c"]["b"]) == (bits, read)
        assert len(warned) == 1

    def test_the_bits_of_each_field_are_kept_from_an_object_and_from_base64_text(self):
        data_type = struct_of(a="float32", b="r16", c=struct_of(d="int4", e="complex_bfloat16"))
        value = {"a": "0x7f800001", "b": [1, 2], "c": {"d": -3, "e": ["0x7f81", "-Infinity"]}}
        text = base64.b64encode(bytes.fromhex("0100807f 0102 0d 817f 80ff")).decode()
        for given in value, text:
            found = open_document(data_type, fill_value=given)[0]
            assert found["a"].view("u4") == 0x7F800001
            document = rewritten_document(data_type, fill_value=given)
            assert document["fill_value"] == value
            assert document["data_type"] == data_type

    @pytest.mark.parametrize("text", ["", "!!", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAA"])
    def test_a_text_that_is_not_its_bytes_is_refused(self, text):
        with pytest.raises(FillValueError, match="an object with one for each field.*5 bytes"):
            open_document(self.DATA_TYPE, fill_value=text)


@pytest.mark.usefixtures("strict_fill_values")
def test_where_an_array_makes_a_group_fail_the_error_ends_with_the_command_that_names_it():
    for data_type, members in (
        ("float32", {"fill_value": "1.5"}),
        ("r16", {"fill_value": 1}),
        ("r12", {}),
        ("float32", {"codecs": [{"name": "bytes"}]}),
        ("float32", {"codecs": [{"name": "endian"}]}),
        ("float32", {"codecs": [{"name": "bytes", "configuration": {"endian": 1}}]}),
    ):
        inner = document_of(data_type, (2,), **members)
        store = memory({"": GROUP, "outer": GROUP, "outer/inner": inner})
        with pytest.raises((TypeError, ValueError)) as error:
            zarr.open_group(store, mode="r").members(max_depth=None)
        *_, last = traceback.format_exception_only(error.value)
        assert last == "If a group was opened, `zarr-bytes check STORE` names the array.\n"


class TestRawBits:
    def test_a_new_array_takes_the_name(self):
        array = zarr.create_array({}, shape=2, dtype="r24", fill_value=[1, 2, 3], compressors=None)
        assert array.dtype == np.dtype("V3")
        assert stored_document(array)["data_type"] == "r24"
        assert stored_document(array)["fill_value"] == [1, 2, 3]
        array[0] = np.void(b"abc")
        assert zarr.open_array(array.store_path.store)[:].tobytes() == b"abc\1\2\3"

    def test_a_fill_value_from_python_is_bytes_or_a_scalar_or_integers(self):
        for value in (b"abc", np.void(b"abc"), [97, 98, 99], (97, 98, 99)):
            array = zarr.create_array({}, shape=2, dtype="r24", fill_value=value)
            assert array[:].tobytes() == b"abcabc"
        for value in (b"ab", np.void(b"abcd"), [1, 2], 0, "abcd", 1.5):
            with pytest.raises(FillValueError, match="r24: permitted is an array of 3 integers"):
                zarr.create_array({}, shape=2, dtype="r24", fill_value=value)

    def test_a_void_type_of_numpy_stays_raw_bytes_and_other_names_are_left_to_others(self):
        array = zarr.create_array({}, shape=2, dtype=np.dtype("V3"))
        assert array.metadata.data_type == zarr_dtype.RawBytes(length=3)
        assert array.metadata.data_type != DATA_TYPES["r*"](length=3)
        with pytest.raises(ValueError, match="No Zarr data type found that matches 'raw'"):
            open_document("raw", fill_value=0)
