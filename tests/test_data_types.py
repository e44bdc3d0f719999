"""The data type classes stand in for zarr's own, and differ in nothing but fill values."""

import base64
import json
import pickle
import re
import sys
import traceback
import warnings
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
import zarr
from documents import (
    ARRAY,
    GROUP,
    GZIP,
    LITTLE,
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
from zarr.storage import MemoryStore

from zarr_bytes import FillValueError, FillValueWarning
from zarr_bytes.data_type import DATA_TYPES, core
from zarr_bytes.zarr_versions import HAS_STRUCT

CORE = {name: cls for name, cls in DATA_TYPES.items() if cls in core.CORE.values()}
MULTI_BYTE = [name for name in CORE if name not in ("bool", "int8", "uint8")]


def pair(name, **configuration):
    """The data type of this package and zarr's."""
    ours = CORE[name](**configuration)
    return ours, getattr(zarr_dtype, type(ours).__name__)(**configuration)


def assert_alike(ours, zarrs):
    """Equal both ways, and interchangeable in sets and in messages."""
    assert ours == zarrs
    assert zarrs == ours
    assert hash(ours) == hash(zarrs)
    assert repr(ours) == repr(zarrs)
    assert isinstance(ours, type(zarrs))


class TestDropIn:
    @pytest.mark.parametrize("name", CORE)
    def test_they_are_equal_to_zarrs_both_ways_and_survive_pickling(self, name):
        ours, zarrs = pair(name)
        assert_alike(ours, zarrs)
        copy = pickle.loads(pickle.dumps(ours))  # noqa: S301
        assert copy == ours
        assert type(copy) is type(ours)

    def test_different_data_types_and_byte_orders_are_unequal_both_ways(self):
        pairs = {name: pair(name) for name in CORE}
        pairs |= {f"big {name}": pair(name, endianness="big") for name in MULTI_BYTE}
        pairs |= {name: pair(name, endianness="little") for name in MULTI_BYTE}
        for (name, (ours, _)), (other, others) in product(pairs.items(), repeat=2):
            for data_type in others:
                assert (ours == data_type) is (data_type == ours) is (name == other)

    @pytest.mark.parametrize("endianness", ["little", "big"])
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("int32", 1),
            ("float16", "0x7c01"),
            ("float32", 1.5),
            ("float32", "NaN"),
            ("float64", "-Infinity"),
            ("float64", "0x7ff0000000000001"),
            ("complex64", ("-Infinity", "0x7f800001")),
        ],
    )
    def test_the_byte_order_does_not_matter_to_a_fill_value(self, name, value, endianness):
        ours, _ = pair(name, endianness=endianness)
        scalar = ours.from_json_scalar(value, zarr_format=3)
        native = CORE[name]().from_json_scalar(value, zarr_format=3)
        assert scalar.tobytes() == native.tobytes()
        assert ours.to_json_scalar(scalar, zarr_format=3) == value

    @pytest.mark.parametrize("name", CORE)
    def test_zarr_finds_them_by_name_and_by_numpy_type(self, name):
        for given in (name, np.dtype(name)):
            assert type(zarr_dtype.parse_dtype(given, zarr_format=3)) is CORE[name]

    @pytest.mark.parametrize("name", CORE)
    def test_zarr_format_2_is_unchanged(self, name):
        ours, zarrs = pair(name)
        assert ours.to_json(zarr_format=2) == zarrs.to_json(zarr_format=2)
        scalar = zarrs.cast_scalar(1)
        written = ours.to_json_scalar(scalar, zarr_format=2)
        assert written == zarrs.to_json_scalar(scalar, zarr_format=2)
        assert ours.from_json_scalar(written, zarr_format=2) == scalar
        if name == "float32":  # also where the specification of format 3 permits no such value
            assert ours.from_json_scalar("1.5", zarr_format=2) == 1.5
        array = zarr.create_array({}, shape=2, dtype=name, zarr_format=2, fill_value=1)
        reopened = zarr.open_array(array.store)
        assert reopened.metadata.to_dict() == array.metadata.to_dict()
        assert (reopened[:] == 1).all()


class TestFillValuesFromPython:
    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            *((n, ValueError, "uint8: permitted is an integer from 0 to") for n in (300, -1, 1e30)),
            (float("nan"), ValueError, "uint8: permitted is an integer from 0 to"),
            ([1], TypeError, "Cannot convert object"),
        ],
    )
    def test_what_is_no_integer_in_range_is_refused(self, value, error, message):
        with pytest.raises(error, match=message):
            zarr.create_array({}, shape=2, dtype="uint8", fill_value=value)

    @pytest.mark.parametrize(
        ("value", "taken"), [(np.int8(-1), 255), (np.timedelta64(3, "s"), 3), ("7", 7), (1.0, 1)]
    )
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_any_other_integer_is_taken_as_zarr_takes_it(self, value, taken, zarr_format):
        """A NumPy integer wraps around: xarray's `_Unsigned` variables rely on it."""
        options = {"fill_value": value, "zarr_format": zarr_format}
        assert zarr.create_array({}, shape=2, dtype="uint8", **options).fill_value == taken

    @pytest.mark.parametrize("bits", [0x7F800001, 0xFFC00000, 0x7FC00000])
    def test_the_bits_of_a_nan_are_kept(self, bits):
        value = np.uint32(bits).view("f4")
        array = zarr.create_array({}, shape=2, dtype="float32", fill_value=value)
        assert array[:].view("u4").tolist() == [bits] * 2
        text = "NaN" if bits == 0x7FC00000 else f"{bits:#010x}"
        assert stored_document(array)["fill_value"] == text


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
            assert zarr.open_array(tmp_path / "a").fill_value == read
        write(tmp_path / "a", document | {"fill_value": read})
        zarr.open_array(tmp_path / "a")  # without a warning

    @pytest.mark.parametrize("compressed", [False, True])
    def test_one_warning_an_array_however_it_is_opened_and_used(self, tmp_path, compressed):
        write(tmp_path, GROUP)
        codecs = [*LITTLE, *[GZIP] * compressed]
        write(tmp_path / "a", ARRAY | {"fill_value": "1", "codecs": codecs})

        def use(array):
            array[:] = array[:] + 1
            array.resize(6)
            return array.metadata.fill_value

        ways = (
            lambda: zarr.open_array(tmp_path / "a", mode="r+"),
            lambda: zarr.open(tmp_path, path="a", mode="r+"),
            lambda: zarr.open_group(tmp_path, mode="r+")["a"],
            lambda: dict(zarr.open_group(tmp_path, mode="r+").members())["a"],
        )
        for open_ in ways:
            write(tmp_path / "a", ARRAY | {"fill_value": "1", "codecs": codecs})
            with pytest.warns(FillValueWarning, match="^array file://.*/a: '1'") as warned:
                assert use(open_()) == 1
            assert [warning.filename for warning in warned] == [__file__]

    @pytest.mark.filterwarnings("ignore:The data type")  # of structs, in zarr 3.2
    @pytest.mark.parametrize("name", DATA_TYPES)
    def test_null_is_the_default_and_written_back_as_it(self, name):
        struct = struct_of(a="float32")
        data_type = {"r*": "r24", "struct": struct}.get(name, name)
        expected = "null is not a fill value of .* permitted is .* reads? (it )?as"
        error = pytest.raises(FillValueError, match=expected)
        with fill_values("strict"), error as raised:
            open_document(data_type, fill_value=None)
        assert str(raised.value).count('"zarr_bytes.fill_values": "lenient"') == 1
        with pytest.warns(FillValueWarning, match=expected):
            document = rewritten_document(data_type, fill_value=None)
        array = open_document(data_type, fill_value=document["fill_value"])
        assert not np.any(np.asarray(array[:]).view("u1"))

    @pytest.mark.parametrize(
        ("data_type", "value", "expected"),
        [
            ("complex64", [None, 0], "null is not a fill value of data type float32"),
            ("r8", [None], "r8: permitted is an array"),
            ("int8", 300, "int8: permitted is an integer from -128 to 127"),
            ("int8", [1], "int8: permitted is an integer from -128 to 127"),
            ("bfloat16", "1.5", "bfloat16: permitted is a number"),
        ],
    )
    def test_what_zarr_refuses_too_is_refused_with_the_same_message(
        self, data_type, value, expected
    ):
        messages = set()
        for setting in ("strict", "lenient"):
            with fill_values(setting), pytest.raises(FillValueError, match=expected) as raised:
                open_document(data_type, fill_value=value)
            messages.add(str(raised.value))
        assert len(messages) == 1


class TestParametersOfOtherCodecs:
    """zarr's `scale_offset` and `cast_value` read theirs by `from_json_scalar` too."""

    __test__ = hasattr(zarr.codecs, "ScaleOffset")  # from zarr 3.3 on

    @staticmethod
    def chain(offset, scale):
        configuration = {"offset": offset, "scale": scale}
        return [{"name": "scale_offset", "configuration": configuration}, *LITTLE]

    @pytest.mark.usefixtures("pipeline")
    @pytest.mark.parametrize(
        ("data_type", "offset", "scale", "stored"),
        [
            ("float32", "0.5", "2", [1, 3]),
            ("float64", "5e-1", 2, [1, 3]),
            ("float64", -0.5, "2.0", [3, 5]),
            ("int16", "-1", "3", [6, 9]),
            ("uint64", "0", True, [1, 2]),
        ],
    )
    def test_what_zarr_reads_is_read(self, data_type, offset, scale, stored):
        codec = zarr.codecs.ScaleOffset(offset=offset, scale=scale)
        options = {"filters": codec, "compressors": None}
        created = zarr.create_array({}, shape=2, dtype=data_type, **options)
        assert stored_document(created)["codecs"][0] == codec.to_dict()
        document = store_of(data_type, codecs=self.chain(offset, scale))
        for store in (created.store, document):
            zarr.open_array(store, mode="r+")[:] = [1, 2]
            array = zarr.open_array(store)
            assert array[:].tolist() == [1, 2]
            assert array.dtype == data_type
        chunk = np.array(stored).astype(np.dtype(data_type).newbyteorder("<")).tobytes()
        assert stored_chunk(array) == chunk

    def test_numbers_and_names_of_a_scalar_map_are_read(self):
        scalar_map = {"encode": [["NaN", 0], ["1.5", "2"]], "decode": [["0", "NaN"]]}
        codec = zarr.codecs.CastValue(data_type="uint8", scalar_map=scalar_map)
        codec.validate(shape=(2,), dtype=CORE["float64"](), chunk_grid=None)
        with pytest.raises(ValueError, match="'one' is not representable"):
            zarr.codecs.CastValue(data_type="uint8", scalar_map={"encode": [["one", 1]]}).validate(
                shape=(2,), dtype=CORE["float64"](), chunk_grid=None
            )

    @pytest.mark.parametrize("data_type", ["float32", "int16"])
    def test_the_fill_value_beside_them_is_held_to_the_specification(self, data_type):
        codecs = self.chain("1", "2")
        expected = f"'7' is not a fill value of data type {data_type}"
        with fill_values("strict"), pytest.raises(FillValueError, match=expected):
            open_document(data_type, codecs=codecs, fill_value="7")
        with pytest.warns(FillValueWarning, match=expected):
            array = open_document(data_type, codecs=codecs, fill_value="7")
        assert array.fill_value == 7
        assert type(array.fill_value) is np.dtype(data_type).type
        for setting in ("lenient", "strict"):
            with fill_values(setting):
                open_document(data_type, codecs=codecs, fill_value=7)  # without a warning


@pytest.mark.filterwarnings("ignore:The data type")
class TestStruct:
    __test__ = HAS_STRUCT  # from zarr 3.2 on

    INNER = struct_of(b="int8")
    DATA_TYPE = struct_of(a="float32", c=INNER)

    @pytest.mark.parametrize(
        ("value", "read"),
        [
            ({"a": "1.5"}, (1.5, (0,))),
            ({"a": "1.5", "c": {"b": "2"}}, (1.5, (2,))),
            ({"c": {"b": "2"}}, (0, (2,))),
            ({"a": 5, "c": {"b": None}}, (5, (0,))),
        ],
    )
    def test_what_a_field_does_not_permit_is_read_with_one_warning(self, value, read):
        expected = "is not a fill value of data type (float32|int8)"
        with fill_values("strict"), pytest.raises(FillValueError, match=expected):
            open_document(self.DATA_TYPE, fill_value=value)
        with pytest.warns(FillValueWarning, match=expected) as warned:
            assert open_document(self.DATA_TYPE, fill_value=value)[0].tolist() == read
        assert len(warned) == 1

    def test_each_field_that_is_permitted_keeps_its_bits(self):
        with pytest.warns(FillValueWarning):
            array = open_document(self.DATA_TYPE, fill_value={"a": "0x7f800001", "c": {"b": "2"}})
        assert array[:1].tobytes() == (0x7F800001).to_bytes(4, sys.byteorder) + b"\2"

    @pytest.mark.parametrize("text", ["", "!!", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAA"])
    def test_a_text_that_is_not_its_bytes_is_refused(self, text):
        with pytest.raises(FillValueError, match="an object with one for each field.*5 bytes"):
            open_document(self.DATA_TYPE, fill_value=text)

    def test_it_is_equal_to_zarrs_both_ways_and_hashes_alike(self):
        ours = zarr_dtype.parse_dtype(self.DATA_TYPE, zarr_format=3)
        assert type(ours) is DATA_TYPES["struct"] is not zarr_dtype.Struct
        assert_alike(ours, zarr_dtype.Struct(fields=ours.fields))
        other = zarr_dtype.Struct(fields=ours.fields[:1])
        assert ours != other
        assert other != ours

    def test_a_record_of_numpy_is_one(self):
        found = zarr_dtype.parse_dtype(np.dtype([("a", "f4"), ("b", "i2")]), zarr_format=3)
        assert type(found) is DATA_TYPES["struct"]
        assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301


@pytest.mark.usefixtures("strict_fill_values")
@pytest.mark.parametrize(
    "refused",
    [
        {"data_type": "float32", "fill_value": "1.5"},
        {"data_type": "bool", "fill_value": 1},
        {"data_type": "r16", "fill_value": 1},
        {"data_type": "r12"},
        {"data_type": "float32", "codecs": [{"name": "bytes"}]},
        {"data_type": "float32", "codecs": [{"name": "endian"}]},
        {"data_type": "float32", "codecs": [{"name": "bytes", "configuration": {"endian": 1}}]},
    ],
    ids=str,
)
def test_where_an_array_makes_a_group_fail_the_error_ends_with_the_command_that_names_it(refused):
    store = MemoryStore()
    zarr.create_group(store).create_group("outer")
    objects = {"outer/inner/zarr.json": store_of(**refused)._store_dict["zarr.json"]}
    store._store_dict |= objects
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

    @pytest.mark.filterwarnings("ignore:The data type")
    def test_a_void_type_of_numpy_stays_raw_bytes(self):
        array = zarr.create_array({}, shape=2, dtype=np.dtype("V3"))
        assert array.metadata.data_type == zarr_dtype.RawBytes(length=3)
        assert array.metadata.data_type != DATA_TYPES["r*"](length=3)

    def test_other_names_are_left_to_others(self):
        with pytest.raises(ValueError, match="No Zarr data type found that matches 'raw'"):
            open_document("raw", fill_value=0)


@pytest.mark.filterwarnings("ignore:The data type")  # zarr 3.1 and 3.2: not yet specified
def test_a_nan_in_a_field_of_a_structured_type_keeps_its_bits():
    fields = [["a", "float32"], ["b", "r16"]]
    data_type = {"name": "structured", "configuration": {"fields": fields}}
    text = base64.b64encode(b"\x01\x00\x80\x7f\x01\x02").decode()
    array = open_document(data_type, shape=(1,), fill_value=text)
    assert array[:].astype([("a", "<f4"), ("b", "V2")]).tobytes() == b"\x01\x00\x80\x7f\x01\x02"
    # zarr 3.1 writes the text, later versions write an object.
    written = {"a": "0x7f800001", "b": [1, 2]} if hasattr(zarr_dtype, "Struct") else text
    assert rewritten_document(data_type, fill_value=text)["fill_value"] == written
