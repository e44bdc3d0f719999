"""The data types: in place of zarr's own, and those that are registered as extensions.

Zarr's own differ in nothing but fill values. Of extensions, every bit pattern is tried.
"""

import base64
import copy
import json
import math
import pickle
import re
import struct
import subprocess
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import fields
from functools import partial

import documents
import ml_dtypes
import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from documents import (
    ARRAY,
    GROUP,
    HAS_STRUCT,
    open_document,
    rewritten_document,
    stored_chunk,
    stored_document,
)
from extension_types import INTEGERS, NAMES, PAIRS, REAL, RECORDS, numpy_type, value_of, width_of
from fuzz import TYPES, encoded
from fuzz_documents import ODD
from plain_zarr import outcome
from stored_arrays import PLAIN_ZARR, CountingStore
from zarr import dtype as zarr_dtype
from zarr.codecs import ShardingCodec

from zarr_bytes import BytesCodec, FillValueError, FillValueWarning
from zarr_bytes.data_type import DATA_TYPES

CORE_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
CORE_NAMES += "float16 float32 float64 complex64 complex128".split()
CORE = {name: DATA_TYPES[name] for name in CORE_NAMES}
NAMED = '"Infinity", "-Infinity"'
PAIR = "complex_float8_e5m2"
OTHER = "big" if sys.byteorder == "little" else "little"
STRUCT = documents.struct_of(a="float32", c=documents.struct_of(b="int8"))
OBJECT = (
    rf"type \[\('a', '{np.dtype('f4').str}'\), .*"
    "an object with a value for each field; zarr also reads 5 bytes as"
)
ABC = np.frombuffer(b"abc", [(name, ml_dtypes.float8_e5m2) for name in "xyz"])[0]

pytestmark = [
    pytest.mark.filterwarnings("ignore:The data type"),  # zarr: not yet specified
    # ml_dtypes says so of every NaN that is cast or asked for being NaN, as zarr 3.1 asks.
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]


def all_data_types():
    """Each with both byte orders, and structs whose fields have other names, or another order."""
    for name, class_ in DATA_TYPES.items():
        if name == "r*":
            yield class_(length=3)
        elif name == "struct":
            inner = class_(fields=(("c", DATA_TYPES["r*"](length=2)),))
            two = (("a", zarr_dtype.Int16(endianness="big")), ("b", inner))
            for fields_ in two, two[::-1], (("a", zarr_dtype.Int8()),), (("b", zarr_dtype.Int8()),):
                yield class_(fields=fields_)
        elif "endianness" in class_.__dataclass_fields__:
            yield from (class_(endianness=endianness) for endianness in ("little", "big"))
        else:
            yield class_()


def zarrs_own(ours):
    """The data type of zarr that `ours` is an instance of, if there is one."""
    class_ = getattr(zarr_dtype, type(ours).__name__, None)
    return class_ and class_(**{field.name: getattr(ours, field.name) for field in fields(class_)})


def test_an_array_of_bfloat16_holds_numbers():
    array = zarr.create_array({}, shape=3, dtype="bfloat16", compressors=None)
    array[:] = [1, 2, 3]
    assert array.dtype == ml_dtypes.bfloat16
    assert array[:].tolist() == [1, 2, 3]


class TestDropIn:
    def test_data_types_equal_zarrs_of_the_same_name_and_no_others(self):
        known = [(ours, zarrs_own(ours)) for ours in all_data_types() if zarrs_own(ours)]
        for i, (ours, zarrs) in enumerate(known):
            assert (hash(ours), repr(ours)) == (hash(zarrs), repr(zarrs))
            assert isinstance(ours, type(zarrs))
            for j, others in enumerate(known):
                for other in others:
                    assert (ours == other) is (other == ours) is (i == j)

    @pytest.mark.parametrize("data_type", [*all_data_types()], ids=str)
    def test_data_types_equal_their_copies_and_name_this_package_where_zarr_has_none(
        self, data_type
    ):
        pickled = pickle.dumps(data_type)
        for copied in pickle.loads(pickled), copy.copy(data_type), copy.deepcopy(data_type):  # noqa: S301
            assert copied == data_type
            assert type(copied) is type(data_type)
            assert repr(copied) == repr(data_type)  # the byte order, and those of fields
        is_zarrs = zarrs_own(data_type) is not None and "RawBits" not in str(data_type)
        assert (b"zarr_bytes" in pickled) is not is_zarrs

    @pytest.mark.parametrize("name", CORE)
    def test_core_data_types_refuse_other_numpy_types_in_the_words_of_zarr(self, name):
        messages = set()
        for class_ in CORE[name], getattr(zarr_dtype, CORE[name].__name__):
            with pytest.raises(ValueError, match="Invalid data type") as refusal:
                class_.from_native_dtype(np.dtype("M8[s]"))
            messages.add(str(refusal.value))
        assert len(messages) == 1

    def test_zarr_finds_data_types_by_name_and_by_numpy_type(self):
        """And none of its own has become ambiguous."""
        found = partial(zarr_dtype.parse_dtype, zarr_format=3)
        for name in CORE:
            assert type(found(name)) is type(found(np.dtype(name))) is CORE[name]
        if HAS_STRUCT:
            assert type(found(np.dtype([("a", "f4"), ("b", "i2")]))) is DATA_TYPES["struct"]
        others = [np.dtypes.StringDType(), np.dtype([("real", "f4"), ("imag", "f4")])]
        for dtype in [*map(np.dtype, "V5 S4 U3 M8[ns] m8[s]".split()), *others]:
            matched = zarr_dtype.data_type_registry.match_dtype(dtype)
            assert matched.to_native_dtype() == dtype
            module = type(matched).__module__.removeprefix("zarr_bytes.data_type.")
            assert module in ("core", "record") or module.startswith("zarr.")

    def test_the_byte_order_does_not_matter_to_a_fill_value(self):
        pair = ("-Infinity", "0x7f800001")
        for name, value in ("float16", "0x7c01"), ("float32", 1.5), ("complex64", pair):
            native = CORE[name]().from_json_scalar(value, zarr_format=3)
            for endianness in "little", "big":
                ours = CORE[name](endianness=endianness)
                scalar = ours.from_json_scalar(value, zarr_format=3)
                assert scalar.tobytes() == native.tobytes()
                assert ours.to_json_scalar(scalar, zarr_format=3) == value

    @pytest.mark.parametrize("data_type", [*all_data_types()], ids=str)
    def test_data_types_have_zarrs_names_in_format_2(self, data_type):
        zarrs = zarrs_own(data_type)
        if isinstance(data_type, zarr_dtype.RawBytes):
            zarrs = zarr_dtype.RawBytes(length=data_type.length)
        if zarrs is not None:
            assert data_type.to_json(zarr_format=2) == zarrs.to_json(zarr_format=2)
            try:
                fill_value = zarrs.default_scalar()
            except TypeError:
                pytest.skip("zarr 3.2 makes no fill value for raw bytes in a struct in a struct")
            written = zarrs.to_json_scalar(fill_value, zarr_format=2)
            assert data_type.to_json_scalar(fill_value, zarr_format=2) == written

    @pytest.mark.parametrize("name", CORE)
    def test_metadata_and_values_of_zarr_format_2_are_unchanged(self, name):
        if name == "float32":  # also where the specification of format 3 says otherwise
            assert CORE[name]().from_json_scalar("1.5", zarr_format=2) == 1.5
        array = zarr.create_array({}, shape=2, dtype=name, zarr_format=2, fill_value=1)
        reopened = zarr.open_array(array.store)
        assert reopened.metadata.to_dict() == array.metadata.to_dict()
        assert (reopened[:] == 1).all()


class TestFillValuesFromPython:
    @pytest.mark.parametrize(
        ("name", "given", "json_form"),
        [
            # A NumPy integer wraps around: xarray's `_Unsigned` variables rely on it.
            *[("uint8", np.int8(-1), 255), ("uint8", np.timedelta64(3, "s"), 3)],
            *[("uint8", "7", 7), ("uint8", 1.0, 1), ("int4", np.int64(-8), -8)],
            ("float32", np.uint32(0x7F800001).view("f4"), "0x7f800001"),
            ("float32", np.uint32(0xFFC00000).view("f4"), "0xffc00000"),
            *[("bfloat16", v, 1.5) for v in (1.5, np.longdouble(1.5), ml_dtypes.bfloat16(1.5))],
            *[("bfloat16", -np.inf, "-Infinity"), ("bfloat16", "NaN", "NaN")],
            ("bfloat16", "0x7f81", "0x7f81"),
            ("complex_float16", np.longdouble(1.5), [1.5, 0.0]),
            ("complex_float16", (1, math.nan), [1.0, "NaN"]),
            ("complex_bfloat16", 1 + 2j, [1.0, 2.0]),
            ("complex_bfloat16", ["0x7f81", math.nan], ["0x7f81", "NaN"]),
            *[(PAIR, v, [2.0, 0.0]) for v in (2, np.clongdouble(2))],
            *[("r24", v, [97, 98, 99]) for v in (b"abc", np.void(b"abc"), (97, 98, 99), ABC)],
        ],
    )
    def test_fill_values_given_as_numbers_are_taken_as_by_zarr(self, name, given, json_form):
        for form in [given, *[np.array(given)] * isinstance(given, np.number)]:
            array = zarr.create_array({}, shape=2, dtype=name, fill_value=form)
            assert stored_document(array)["fill_value"] == json_form
            if name in ("float32", "r24"):
                assert array[:].tobytes() == 2 * (b"abc" if name == "r24" else given.tobytes())
        if name == "uint8":
            array = zarr.create_array({}, shape=2, dtype=name, fill_value=given, zarr_format=2)
            assert array.fill_value == json_form

    @pytest.mark.parametrize("name", ["bfloat16", "int4"])
    def test_a_fill_value_may_be_a_number_of_another_library(self, name):
        """Of JAX or PyTorch, say; NumPy cannot have every type of theirs."""
        for number in 2.0, 2:
            array = type("Array", (), {"item": lambda _, number=number: number})
            array.ndim = 0
            assert zarr.create_array({}, shape=2, dtype=name, fill_value=array()).fill_value == 2
            array.ndim = 1
            with pytest.raises(FillValueError):
                zarr.create_array({}, shape=2, dtype=name, fill_value=array())

    def test_any_other_fill_value_is_refused_with_what_is_permitted(self):
        raw = (b"ab", np.void(b"abcd"), [1, 2], 0, "abcd", 1.5)
        for name, value, error, words in (
            *[("r24", v, FillValueError, "r24: permitted is an array of 3 integers") for v in raw],
            (">i2", 2**15, ValueError, "int16: permitted is an integer from -32768 to 32767$"),
            ("int8", 10**5000, ValueError, "^an integer of thousands of digits is not"),
            ("int4", 10**5000, FillValueError, "^an integer of thousands of .* from -8 to 7"),
            (
                "bfloat16",
                "x" * 10**5,
                FillValueError,
                r"^'x{9,20}\.\.\.x{9,20}' is not a fill value",
            ),
            ("float32", 10**400, OverflowError, "^int too large to convert to float$"),
            *[(PAIR, v, FillValueError, "an array of two") for v in (b"<@", np.void(b"<@"))],
            ("bfloat16", np.zeros(2, ml_dtypes.bfloat16), FillValueError, r"^\[0.0, 0.0\] is not"),
        ):
            with pytest.raises(error, match=words):
                zarr.create_array({}, shape=2, dtype=name, fill_value=value)


def fill_values(setting):
    return zarr.config.set({"zarr_bytes.fill_values": setting})


class TestFillValuesThatAreNotPermitted:
    @pytest.mark.parametrize("data_type", CORE)
    def test_a_fill_value_that_is_not_permitted_is_read_as_by_plain_zarr(self, plain, data_type):
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
        ("data_type", "value", "content", "refused"),
        [
            ("complex64", [True, "0x7f800001"], (0x3F800000, 0x7F800001), "True is not"),
            ("complex64", ["0xffc00001", "0x7e01"], (0xFFC00001, 0x7FC00000), "'0x7e01' is not"),
            *[
                (STRUCT, {"a": "1.5"}, (0x3FC00000, 0), "field 'a': '1.5' is not"),
                (STRUCT, {"a": 5}, (0x40A00000, 0), "{'a': 5} is not .* each field, also 'c'"),
                (STRUCT, {"a": "0x7f800001", "c": {"b": "2"}}, (0x7F800001, 2), "'b': '2' is not"),
                (STRUCT, {"a": 5, "c": {"b": None}}, (0x40A00000, 0), "field 'b': null is not"),
                (STRUCT, {"a": 5, "c": {"B": 2}}, (0x40A00000, 0), "field 'c': {'B': 2} is not"),
            ]
            * HAS_STRUCT,
        ],
    )
    def test_permitted_parts_of_a_fill_value_keep_their_bits_with_one_warning_of_the_others(
        self, data_type, value, content, refused
    ):
        """With the name of a field that is not permitted, or lacks."""
        with fill_values("strict"), pytest.raises(FillValueError, match=refused):
            open_document(data_type, fill_value=value)
        with pytest.warns(FillValueWarning, match=refused) as warned:
            array = open_document(data_type, fill_value=value)
        assert array[:1].tobytes() == struct.pack("=Ib" if data_type is STRUCT else "=II", *content)
        assert len(warned) == 1

    def test_a_warning_of_a_fill_value_names_the_array_and_what_is_permitted(self, tmp_path):
        for data_type, value, read, permitted in (
            ("float32", "1.5", 1.5, f'a number, {NAMED}, "NaN" or "0x" and 8 hexadecimal digits'),
            ("int16", "7", 7, "an integer from -32768 to 32767"),
            ("bool", 1, True, "true or false"),
        ):
            document, path = ARRAY | {"data_type": data_type, "fill_value": value}, tmp_path / "a"
            documents.write(path, document)
            words = re.escape(
                f"{value!r} is not a fill value of data type {data_type}: permitted is {permitted}."
                f" It is read as the value {read} that zarr takes. To store that value: open the"
                " array with mode 'r+', and call update_attributes({})"
            )
            place = re.escape(f"array {path.as_uri()}: ")
            with pytest.warns(FillValueWarning, match=f"^{place}{words}$"):
                found = zarr.open_array(path).fill_value
            assert (found, type(found)) == (read, np.dtype(data_type).type)
            with pytest.warns(FillValueWarning, match=f"^{words}$"):  # outside an array
                CORE[data_type]().from_json_scalar(value, zarr_format=3)
            documents.write(path, document | {"fill_value": read})
            zarr.open_array(path)  # without a warning

    def test_an_array_warns_once_of_its_fill_value(self, tmp_path):
        def use(array):
            array[:] = array[:] + 1
            array.resize(6)

        documents.write(tmp_path, GROUP)
        for open_ in (
            lambda: zarr.open_array(tmp_path / "a", mode="r+"),
            lambda: zarr.open(tmp_path, path="a", mode="r+"),
            lambda: zarr.open_group(tmp_path, mode="r+")["a"],
            lambda: dict(zarr.open_group(tmp_path, mode="r+").members())["a"],
        ):
            documents.write(tmp_path / "a", ARRAY | {"fill_value": "1"})
            with pytest.warns(FillValueWarning, match="^array file://.*/a: '1'") as warned:
                use(open_())
            assert [warning.filename for warning in warned] == [__file__]

    @pytest.mark.parametrize("name", DATA_TYPES)
    def test_a_fill_value_of_null_is_the_default_and_is_written_as_it(self, name):
        data_type = {"r*": "r24", "struct": documents.struct_of(a="float32")}.get(name, name)
        expected = "null is not a fill value of .* permitted is .*"
        hint = 'zarr.config.set.*"zarr_bytes.fill_values": "lenient".* reads it as'
        with fill_values("strict"), pytest.raises(FillValueError, match=expected + hint) as refused:
            open_document(data_type, fill_value=None)
        assert f": permitted is {refused.value.permitted}. zarr.config" in str(refused.value)
        read = re.escape(str(refused.value).rpartition(" reads it as ")[2][:-1])
        with pytest.warns(FillValueWarning, match=f"{expected} It is read as {read}, the default"):
            document = rewritten_document(data_type, fill_value=None)
        array = open_document(data_type, fill_value=document["fill_value"])
        assert not np.any(np.asarray(array[:]).view("u1"))

    @pytest.mark.parametrize(
        ("data_type", "values", "permitted"),
        [
            ("uint8", [-1, 1e30, math.nan, "x"], "uint8: permitted is an integer from 0 to 255"),
            ("float32", ["0x7f 80 00"], "float32: permitted is a number, "),
            ("complex64", [[None, 0]], "null is not a fill value of data type float32"),
            ("r8", [[None]], "r8: permitted is an array"),
            ("float8_e8m0fnu", [-1.0, 2.0**128], "float8_e8m0fnu: permitted is a number from"),
            ("float8_e4m3fn", [480.0], "float8_e4m3fn: permitted is a number from -448.0 to 448.0"),
            *[
                (name, [low - 1, high + 1, 0.5, "1", True], f"{name}: .* from {low} to {high}")
                for name, (low, high) in INTEGERS.items()
            ],
            ("complex_bfloat16", [["1", 1]], "'1' is not a fill value"),
            *[(name, [1], f"{name}: permitted is an array of two") for name in [*PAIRS, *RECORDS]],
            *[(STRUCT, ["", "!!", "AAAA", 24 * "A", 5], OBJECT)] * HAS_STRUCT,
        ],
    )
    def test_a_fill_value_that_zarr_refuses_too_is_always_refused(
        self, data_type, values, permitted
    ):
        """From Python, too, where a pair may be one number."""
        for value in values:
            for setting in "strict", "lenient":
                with fill_values(setting), pytest.raises(FillValueError, match=permitted):
                    open_document(data_type, fill_value=value)
            is_taken = data_type in (*PAIRS, *RECORDS) and value == 1
            if data_type not in (STRUCT, "float32", "complex64") and not is_taken:
                refused = ValueError if data_type == "uint8" else (FillValueError, TypeError)
                with pytest.raises(refused, match=permitted):
                    zarr.create_array({}, shape=2, dtype=data_type, fill_value=value)

    @pytest.mark.skipif(not hasattr(zarr.codecs, "ScaleOffset"), reason="zarr 3.3 has it")
    @pytest.mark.usefixtures("pipeline")
    @pytest.mark.parametrize(
        ("data_type", "offset", "scale", "stored"),
        [
            ("float32", "0.5", "2", struct.pack("<2f", 1, 3)),
            ("int16", "-1", "3", struct.pack("<2h", 6, 9)),
            ("uint8", "0", True, b"\1\2"),
        ],
    )
    def test_parameters_of_other_codecs_are_fill_values_as_in_zarr(
        self, data_type, offset, scale, stored
    ):
        codec = zarr.codecs.ScaleOffset(offset=offset, scale=scale)
        options = {"filters": codec, "compressors": None}
        created = zarr.create_array({}, shape=2, dtype=data_type, **options)
        assert stored_document(created)["codecs"][0] == codec.to_dict()
        codecs = [codec.to_dict(), *documents.LITTLE]
        for store in created.store, documents.store_of(data_type, codecs=codecs):
            zarr.open_array(store, mode="r+")[:] = [1, 2]
            array = zarr.open_array(store)
            assert (array.dtype, array[:].tolist()) == (data_type, [1, 2])
        assert stored_chunk(array) == stored


@pytest.mark.skipif(not HAS_STRUCT, reason="from zarr 3.2 on")
def test_fill_values_of_structs_keep_the_bits_of_each_field():
    datetime = documents.LONG_NAMES["datetime"]  # of zarr alone
    inner = documents.struct_of(d="int4", e="complex_bfloat16", f=datetime)
    data_type = documents.struct_of(a="float32", b="r16", c=inner)
    value = {"a": "0x7f800001", "b": [1, 2], "c": {"d": -3, "e": ["0x7f81", "-Infinity"], "f": 7}}
    text = base64.b64encode(bytes.fromhex("0100807f 0102 0d 817f 80ff 07") + bytes(7)).decode()
    for given in value, text:
        found = open_document(data_type, fill_value=given)[0]
        assert found["a"].view("u4") == 0x7F800001
        document = rewritten_document(data_type, fill_value=given)
        assert (document["fill_value"], document["data_type"]) == (value, data_type)


@pytest.mark.usefixtures("strict_fill_values")
def test_an_error_of_consolidated_metadata_ends_with_the_command_that_names_the_array():
    for data_type, members in (
        ("float32", {"fill_value": "1.5"}),
        ("r16", {"fill_value": 1}),
        ("r12", {}),
        ("float32", {"codecs": [{"name": "bytes"}]}),
        ("float32", {"codecs": [{"name": "endian"}]}),
        ("float32", {"codecs": [{"name": "bytes", "configuration": {"endian": 1}}]}),
    ):
        inner = documents.document_of(data_type, (2,), **members)
        store = documents.memory({"": GROUP, "outer": GROUP, "outer/inner": inner})
        with pytest.raises((TypeError, ValueError)) as error:
            zarr.open_group(store, mode="r").members(max_depth=None)
        *_, last = traceback.format_exception_only(error.value)
        assert last == "If a group was opened, `zarr-bytes check STORE` names the array.\n"


class TestNames:
    def test_a_new_array_of_raw_bits_takes_its_data_type_by_name(self):
        array = zarr.create_array({}, shape=2, dtype="r24", fill_value=[1, 2, 3], compressors=None)
        assert array.dtype == np.dtype("V3")
        document = stored_document(array)
        assert (document["data_type"], document["fill_value"]) == ("r24", [1, 2, 3])
        array[0] = np.void(b"abc")
        assert zarr.open_array(array.store_path.store)[:].tobytes() == b"abc\1\2\3"

    def test_a_void_type_of_numpy_stays_raw_bytes_and_other_names_are_left_to_others(self):
        array = zarr.create_array({}, shape=2, dtype=np.dtype("V3"))
        assert array.metadata.data_type == zarr_dtype.RawBytes(length=3)
        assert array.metadata.data_type != DATA_TYPES["r*"](length=3)
        for name in "r", "raw", "R8", "r_8", "rX", "complex_float8_e4m3fn":
            with pytest.raises(ValueError, match=f"No Zarr data type found that matches '{name}'"):
                open_document(name, fill_value=0)
        of_objects = {"name": "int4", "object_codec_id": "vlen-utf8"}
        with pytest.raises(ValueError, match="No Zarr data type found that matches"):
            zarr_dtype.data_type_registry.match_json(of_objects, zarr_format=2)

    @pytest.mark.parametrize("name", NAMES)
    def test_an_extension_by_name_or_numpy_type_makes_an_array_of_zero_bits(self, name):
        """ml_dtypes computes in the machine's byte order; zarr's default is "little" to 3.4.0."""
        array = zarr.create_array({}, shape=2, dtype=name)
        assert DATA_TYPES[name].__name__.lower() == name.replace("_", "")
        assert array.dtype == DATA_TYPES[name]().to_native_dtype() == numpy_type(name)
        assert array.metadata.data_type.item_size == numpy_type(name).itemsize  # for Blosc
        if name in ("bfloat16", *PAIRS):
            assert DATA_TYPES[name]().endianness == sys.byteorder
        assert not any(array.fill_value.tobytes())
        assert not any(zarr.open_array(array.store, mode="r")[...].tobytes())
        given = [{"shape": 3, "dtype": dtype} for dtype in (name, array.metadata.data_type)]
        if name not in RECORDS:  # which are structured types to zarr
            given += [{"shape": 3, "dtype": dtype} for dtype in (array.dtype, array.dtype.type)]
            given += [{"data": np.zeros(3, array.dtype)}]
        for arguments in given:
            assert stored_document(zarr.create_array({}, **arguments))["data_type"] == name

    def test_an_alias_of_a_core_data_type_keeps_its_name(self):
        for alias, core in ("complex_float32", "complex64"), ("complex_float64", "complex128"):
            array = open_document(alias, fill_value=[0, "NaN"])
            assert array.dtype == core
            assert (array[0].real, np.isnan(array[0].imag)) == (0, True)
            document = rewritten_document(alias, fill_value=[0, "NaN"])
            assert (document["data_type"], document["fill_value"]) == (alias, [0.0, "NaN"])
            with pytest.raises(FillValueError, match=f"type {alias}: permitted is an array of two"):
                open_document(alias, fill_value=[])
            created = zarr.create_array({}, shape=2, dtype=core)
            assert stored_document(created)["data_type"] == core


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("name", NAMES)
def test_every_bit_pattern_of_an_extension_is_read_and_written(name, endian):
    """Unused bits are zeros, but for those of signed integers, which repeat the sign."""
    _, units, mask = TYPES[name]
    patterns = np.arange(256 ** units[0], dtype=f"u{units[0]}")
    if len(units) == 2:
        patterns = np.stack([patterns, patterns[::-1]], axis=-1).ravel()
    expected = (patterns.view("u1") & mask).view(numpy_type(name))
    chunk = patterns.astype(patterns.dtype.newbyteorder(endian)).tobytes()
    document = documents.document_of(name, expected.shape, expected.shape, endian)
    memory = documents.memory({"": document}, **{"c/0": chunk})
    indices = np.array([9, 2, expected.size - 1, 2])
    for store in (memory, CountingStore(memory)):  # as a view, and by byte ranges
        with zarr.config.set({"zarr_bytes.gap.remote": 0}):
            array = zarr.open_array(store, mode="r+")
            for selection in (np.s_[:], np.s_[3:200], np.s_[1::7], np.s_[5]):
                found = np.asarray(array[selection])
                assert found.dtype == numpy_type(name)
                assert found.tobytes() == expected[selection].tobytes()
            assert array.oindex[indices].tobytes() == expected[indices].tobytes()
    assert store.counted()[0] >= len(indices)
    array = zarr.open_array(documents.memory({"": document}), mode="r+")
    is_signed = name in ("int2", "int4")
    for given in (expected, array):
        array[...] = given[...]
        written = encoded(expected.astype("i1") if is_signed else expected, name, endian)
        assert stored_chunk(array) == written


@pytest.mark.parametrize("name", REAL)
def test_values_of_an_extension_are_those_of_its_specification(name):
    width = width_of(name)
    chunk = np.arange(2**width, dtype="<u2" if width > 8 else "u1").tobytes()
    values = open_document(name, shape=(2**width,), fill_value=1, chunk=chunk)[...].astype("f8")
    expected = [value_of(bits, name) for bits in range(2**width)]
    assert np.array_equal(values, expected, equal_nan=True)
    signs = [math.copysign(1, value) < 0 for value in expected if value == 0]
    assert np.signbit(values[values == 0]).tolist() == signs


# By data type: the bits of "NaN", as the README of each states them.
NANS = {"bfloat16": 0x7FC0, "float8_e3m4": 0x78, "float8_e4m3": 0x7C, "float8_e4m3b11fnuz": 0x80}
NANS |= {"float8_e4m3fn": 0x7F, "float8_e4m3fnuz": 0x80, "float8_e5m2": 0x7E}
NANS |= {"float8_e5m2fnuz": 0x80, "float8_e8m0fnu": 0xFF}


class TestFillValuesOfExtensions:
    """As for the core types, and what each README says."""

    @pytest.mark.parametrize(
        "name",  # of 16 bits, every pattern takes seconds
        [pytest.param(n, marks=[pytest.mark.slow] * (n == "bfloat16")) for n in [*REAL, *INTEGERS]],
    )
    def test_every_fill_value_of_an_extension_survives_in_metadata(self, name):
        data_type, width = DATA_TYPES[name](), width_of(name)
        first = INTEGERS[name][0] if name in INTEGERS else 0
        for number in range(first, first + 2**width):
            given = number if name in INTEGERS else f"0x{number:0{4 if width > 8 else 2}x}"
            scalar = data_type.from_json_scalar(given, zarr_format=3)
            written = json.dumps(data_type.to_json_scalar(scalar, zarr_format=3), allow_nan=False)
            again = data_type.from_json_scalar(json.loads(written), zarr_format=3)
            assert again.tobytes() == scalar.tobytes()
            if name in INTEGERS:
                assert (int(scalar), written) == (number, str(number))
            else:
                assert int.from_bytes(scalar.tobytes(), sys.byteorder) == number
                assert (written[0] == '"') is not math.isfinite(value_of(number, name))

    @pytest.mark.parametrize("name", REAL)
    def test_fill_values_of_extensions_are_nan_or_infinity_where_the_type_has_them(self, name):
        values = [value_of(bits, name) for bits in range(2 ** width_of(name))]
        assert (name in NANS) is any(map(math.isnan, values))
        infinities = [text for text in ("Infinity", "-Infinity") if float(text) in values]
        known = {text: values.index(float(text)) for text in infinities}
        known |= {"NaN": NANS[name]} if name in NANS else {}
        width, digits = width_of(name), 4 if name == "bfloat16" else 2
        low, *_, high = sorted(filter(math.isfinite, values))
        permitted = "a number" + (f", {NAMED}" if infinities else f" from {low} to {high}")
        permitted += ", " + '"NaN" ' * (name in NANS) + f'or "0x" and {digits} hexadecimal digits'
        permitted += f", up to 0x{2**width - 1:02x}" * (width < 8)
        no_bits = [f"0x{2**width:0{digits}x}", f"0x{0:0{digits - 1}x}", "0" * digits]
        for text in "Infinity", "-Infinity", "NaN", "nan", "1", *no_bits:
            if text in known:
                scalar = open_document(name, fill_value=text).fill_value
                assert scalar.dtype == numpy_type(name)
                assert int.from_bytes(scalar.tobytes(), sys.byteorder) == known[text]
                assert rewritten_document(name, fill_value=text)["fill_value"] == text
            else:
                with pytest.raises(FillValueError, match=f"^'{text}' is not a") as error:
                    open_document(name, fill_value=text)
                assert str(error.value).endswith(f" of data type {name}: permitted is {permitted}.")
                assert error.value.permitted == permitted

    @pytest.mark.parametrize("place", [(2, ".zarray", "dtype"), (3, "zarr.json", "data_type")])
    @pytest.mark.parametrize("name", NAMES)
    def test_fill_values_of_extensions_are_numbers_or_pairs_or_base64_of_tensorstore(
        self, name, place
    ):
        number, node, member = place
        data_type, components = DATA_TYPES[name](), PAIRS | RECORDS
        form = [2.0, 0.5] if name in components else 1
        read = data_type.from_json_scalar(form, zarr_format=number)
        array = zarr.create_array({}, shape=2, dtype=data_type, fill_value=read, zarr_format=number)
        document = json.loads(array.store_path.store._store_dict[node].to_bytes())
        written = "Ag==" if (name, number) == ("float4_e2m1fn", 2) else form
        assert (document[member], document["fill_value"]) == (name, written)
        found = zarr.open_array(array.store)[...].view(numpy_type(components.get(name, name)))
        assert found.astype("f8").tolist() == 2 * (form if name in components else [form])


INNER = [("pair", ml_dtypes.bcomplex32), ("flag", "?"), ("scale", "f4")]
RECORD = np.dtype([("weight", ml_dtypes.bfloat16), ("level", ml_dtypes.int4), ("inner", INNER)])


@pytest.mark.filterwarnings("ignore:Missing 'endian'")  # zarr 3.1 writes records without
@pytest.mark.parametrize(
    ("endian", "first"),
    [("little", "c03f f8 803f0040 00 0000803f"), ("big", "3fc0 f8 3f804000 00 3f800000")],
)
def test_each_field_of_a_record_is_stored_in_its_own_way(endian, first, pipeline):
    values = np.zeros(5, RECORD)
    values["weight"] = [1.5, -2, 3, 0, 1]
    values["level"] = [-8, -1, 0, 7, 3]
    values["inner"]["pair"] = [1 + 2j, 0, 1j, -1, 3]
    values["inner"]["scale"] = [1, 2, 3, 4, 5]
    options = {"compressors": None, "serializer": BytesCodec(endian=endian)}
    array = zarr.open_array(zarr.create_array({}, data=values, **options).store)
    chunk = stored_chunk(array)
    assert chunk.hex().startswith(first.replace(" ", ""))
    assert array[...].tobytes() == values.tobytes()
    assert array[1:4].tobytes() == values[1:4].tobytes()
    changed = chunk[:2] + b"\x58" + chunk[3:]  # bits that do not count, and the integer -8
    array.store._store_dict["c/0"] = zarr.core.buffer.cpu.Buffer.from_bytes(changed)
    assert array[...].tobytes() == values.tobytes()


TRUE_OF_ANY_BYTE = np.array([2, 0, 255, 1], "u1").view("?")


@pytest.mark.parametrize("layout", [{}, {"chunks": (2,), "shards": (4,)}], ids=str)
def test_a_bool_in_compressed_chunks_of_a_new_array_is_stored_as_0_or_1(layout):
    array = zarr.create_array({}, data=TRUE_OF_ANY_BYTE, **layout)
    for config in {}, PLAIN_ZARR:
        with zarr.config.set(config):
            assert zarr.open_array(array.store)[...].tobytes() == bytes([1, 0, 1, 1])


@pytest.mark.filterwarnings("ignore:Missing 'endian'")
def test_a_record_in_compressed_chunks_of_a_new_array_is_stored_as_in_one_that_is_opened():
    """By this package's codec: zarr's leaves bools as they are, and exchanges numbers of pairs."""
    values = np.zeros(4, RECORD)
    values["inner"]["pair"] = [1 + 2j, 0, 1j, -1]
    values["inner"]["flag"] = TRUE_OF_ANY_BYTE
    codec = zarr.codecs.BytesCodec(endian=OTHER)
    array = zarr.open_array(zarr.create_array({}, data=values, serializer=codec).store)
    values["inner"]["flag"] = [True, False, True, True]
    assert array[...].tobytes() == values.tobytes()


class TestLimits:
    """Where zarr itself stands in the way."""

    @pytest.mark.parametrize("fill_value", [None, 1.5])
    def test_a_bfloat16_of_the_other_byte_order_is_refused_with_what_to_do(self, fill_value):
        other = DATA_TYPES["bfloat16"](endianness=OTHER)
        words = f"'bfloat16': ml_dtypes .*: leave endianness out, and use .*endian='{OTHER}'"
        with pytest.raises(TypeError, match=words):
            zarr.create_array({}, shape=4, dtype=other, fill_value=fill_value)

    def test_zarrs_own_codec_exchanges_the_two_numbers_of_a_big_endian_pair(self):
        values = np.array([1 + 2j], ml_dtypes.complex32)
        ours, zarrs = ("3c004000", "40003c00") if OTHER == "big" else ("003c0040", "0040003c")
        for codec, expected in ((BytesCodec, ours), (zarr.codecs.BytesCodec, zarrs)):
            options = {"compressors": None, "serializer": codec(endian=OTHER)}
            with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
                array = zarr.create_array({}, data=values, **options)
            assert stored_chunk(array).hex() == expected
        reading = zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"})
        words = f"'complex_float16': ml_dtypes has no {OTHER}-endian form of it; read it with the"
        with reading, pytest.raises(TypeError, match=words):
            zarr.open_array(array.store)[...]

    @pytest.mark.skipif(not HAS_FUSED_PIPELINE, reason="zarr 3.3 has the fused pipeline")
    @pytest.mark.parametrize("name", PAIRS)
    def test_zarrs_fused_pipeline_cannot_read_pairs_of_a_whole_shard(self, name):
        codec = [BytesCodec(endian=OTHER)]
        # Without a checksum, whose bytes zarr exchanges on a big-endian machine.
        shard = ShardingCodec(chunk_shape=(2,), codecs=codec, index_codecs=codec)
        values = np.array([1 + 2j, 3 + 4j, 5 + 6j, 7 + 8j], numpy_type(name))
        array = zarr.create_array({}, data=values, serializer=shard, compressors=None)
        with zarr.config.set({"codec_pipeline.path": PIPELINES["FusedCodecPipeline"]}):
            array = zarr.open_array(array.store)
        assert array[1:3].tobytes() == values[1:3].tobytes()
        with pytest.raises(TypeError, match="BatchedCodecPipeline"):
            array[...]


WITHOUT = """
import sys, types
sys.modules["ml_dtypes"] = eval(sys.argv[2])
import numpy as np, zarr, zarr_bytes
array = zarr.create_array({}, data=np.arange(4.0), compressors=None)
assert zarr.open_array(array.store)[1:3].tolist() == [1.0, 2.0]
assert zarr.create_array({}, shape=1, dtype="complex_float32").dtype == "c8"
for name in sys.argv[3:]:
    for use, given in (
        (zarr.create_array, {"store": {}, "shape": 1, "dtype": name}),
        (zarr.open_array, {"store": sys.argv[1], "path": name, "mode": "r"}),
    ):
        try:
            use(**given)
        except zarr_bytes.MissingPackageError as error:
            print(error, error.name)
"""


@pytest.mark.parametrize("package", ["None", "types.ModuleType('older')"])
def test_without_ml_dtypes_an_error_says_how_to_get_it_and_nothing_else_changes(tmp_path, package):
    names = ["bfloat16", "int4", "complex_float16", "complex_float8_e5m2"]
    for name in names:
        zarr.create_array(tmp_path, name=name, shape=1, dtype=name)
    command = [sys.executable, "-W", "error", "-c", WITHOUT, str(tmp_path), package, *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    needs = 'needs the package ml_dtypes, 0.6 or newer: pip install "ml_dtypes>=0.6" ml_dtypes'
    assert done.stdout.splitlines() == [f"data type {n!r} {needs}" for n in names for _ in "12"]
