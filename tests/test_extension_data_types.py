"""The registered extension data types: every bit pattern, fill values, names, and limits."""

import json
import math
import subprocess
import sys

import documents
import ml_dtypes
import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from documents import open_document, rewritten_document, stored_chunk, stored_document
from extension_types import (
    INTEGERS,
    NAMES,
    PAIRS,
    REAL,
    RECORDS,
    component_of,
    numpy_type,
    one_of,
    value_of,
    width_of,
)
from fuzz import TYPES, encoded
from stored_arrays import CountingStore
from zarr.codecs import ShardingCodec
from zarr.storage import MemoryStore

from zarr_bytes import BytesCodec, FillValueError
from zarr_bytes.data_type import DATA_TYPES

OTHER = "big" if sys.byteorder == "little" else "little"

pytestmark = [
    # zarr 3.1 warns that structured types, which these records are to NumPy, are not specified.
    pytest.mark.filterwarnings("ignore:The data type"),
    # ml_dtypes says so of every NaN that is cast or asked for being NaN, as zarr 3.1 asks.
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]


def patterns_of(name):
    """Every bit pattern of `name`, as unsigned integers; of a pair, of its parts in two orders."""
    units = TYPES[name][1]
    numbers = np.arange(256 ** units[0], dtype=f"u{units[0]}")
    return numbers if len(units) == 1 else np.stack([numbers, numbers[::-1]], axis=-1).ravel()


def memory_of(name):
    """What memory should hold for `patterns_of`: unused bits are zeros."""
    mask = TYPES[name][2]
    return (patterns_of(name).view("u1") & mask).view(numpy_type(name))


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("name", NAMES)
class TestEveryBitPattern:
    def test_is_read_whole_and_in_part(self, name, endian):
        patterns, expected = patterns_of(name), memory_of(name)
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

    def test_is_written_and_written_again(self, name, endian):
        """Unused bits are zeros, but for those of signed integers, which repeat the sign."""
        values = memory_of(name)
        document = documents.document_of(name, values.shape, values.shape, endian)
        array = zarr.open_array(documents.memory({"": document}), mode="r+")
        is_signed = name in ("int2", "int4")
        expected = encoded(values.astype("i1") if is_signed else values, name, endian)
        for given in (values, array):
            array[...] = given[...]
            assert stored_chunk(array) == expected


@pytest.mark.parametrize("name", REAL)
def test_values_are_those_of_the_text_that_registers_the_type(name):
    width = width_of(name)
    chunk = np.arange(2**width, dtype="<u2" if width > 8 else "u1").tobytes()
    values = open_document(name, shape=(2**width,), fill_value=1, chunk=chunk)[...].astype("f8")
    expected = [value_of(bits, name) for bits in range(2**width)]
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.array_equal(
        np.signbit(values[values == 0]), [math.copysign(1, v) < 0 for v in expected if v == 0]
    )


def bits_of(name, fill_value):
    scalar = open_document(name, fill_value=fill_value).fill_value
    assert scalar.dtype == numpy_type(name)
    return int.from_bytes(scalar.tobytes(), sys.byteorder)


# By data type: the bits of "NaN", as the README of each states them.
NANS = {"bfloat16": 0x7FC0, "float8_e3m4": 0x78, "float8_e4m3": 0x7C, "float8_e4m3b11fnuz": 0x80}
NANS |= {"float8_e4m3fn": 0x7F, "float8_e4m3fnuz": 0x80, "float8_e5m2": 0x7E}
NANS |= {"float8_e5m2fnuz": 0x80, "float8_e8m0fnu": 0xFF}


class TestFillValues:
    """As for the core types, and what each README says."""

    @pytest.mark.parametrize(
        "name",  # of 16 bits, every pattern takes seconds
        [pytest.param(n, marks=[pytest.mark.slow] * (n == "bfloat16")) for n in [*REAL, *INTEGERS]],
    )
    def test_every_number_survives_when_metadata_is_written_again(self, name):
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
    def test_names_are_read_where_the_type_has_such_a_number_and_refused_elsewhere(self, name):
        values = [value_of(bits, name) for bits in range(2 ** width_of(name))]
        assert (name in NANS) is any(map(math.isnan, values))
        for constant, number in (("Infinity", math.inf), ("-Infinity", -math.inf)):
            if number in values:
                assert value_of(bits_of(name, constant), name) == number
            else:
                with pytest.raises(FillValueError, match=f"type {name}: permitted is a number"):
                    open_document(name, fill_value=constant)
        if name in NANS:
            assert bits_of(name, "NaN") == NANS[name]
            assert rewritten_document(name, fill_value="NaN")["fill_value"] == "NaN"
        else:
            with pytest.raises(FillValueError, match='permitted is a number from .* or "0x" and 2'):
                open_document(name, fill_value="NaN")

    @pytest.mark.parametrize(
        ("name", "values", "permitted"),
        [
            ("float4_e2m1fn", [7], r"permitted is a number from -6.0 to 6.0, or"),
            ("float8_e8m0fnu", [-1.0], "float8_e8m0fnu: permitted is a number from"),
            ("float6_e2m3fn", ["0x40"], "hexadecimal digits, up to 0x3f"),
            ("int4", [-9, 8, 0.5, "1", True], "int4: permitted is an integer from -8 to 7"),
            ("uint2", [-1, 4], "uint2: permitted is an integer from 0 to 3"),
            ("bfloat16", ["0x7f", "7fc0", "nan", "1.5", []], 'permitted is a number, "Infinity"'),
            ("complex_float8_e5m2", [[1]], "permitted is an array of two"),
            ("complex_bfloat16", [["1", 1]], "'1' is not a fill value"),
        ],
    )
    def test_what_is_no_number_of_the_type_is_refused_in_metadata_and_from_python(
        self, name, values, permitted
    ):
        for value in values:
            with pytest.raises(FillValueError, match=permitted):
                open_document(name, fill_value=value)
            with pytest.raises((FillValueError, TypeError), match="is not a fill value of data"):
                zarr.create_array(MemoryStore(), shape=2, dtype=name, fill_value=value)

    @pytest.mark.parametrize("name", [*PAIRS, *RECORDS])
    def test_complex_values_are_pairs_of_the_component(self, name):
        fill_value = [1.5, 0.5] if "e8m0" not in name else [2.0, 0.5]
        array = open_document(name, fill_value=fill_value)
        pair = np.array([array.fill_value]).view(component_of(name))
        assert pair.astype("f8").tolist() == fill_value
        assert array[0].tobytes() == array.fill_value.tobytes()
        assert rewritten_document(name, fill_value=fill_value)["fill_value"] == fill_value
        with pytest.raises(FillValueError, match=f"{name}: permitted is an array of two"):
            open_document(name, fill_value=1)

    @pytest.mark.parametrize(
        ("name", "given", "json_form"),
        [
            ("bfloat16", 1.5, 1.5),
            ("bfloat16", ml_dtypes.bfloat16(1.5), 1.5),
            ("bfloat16", -np.inf, "-Infinity"),
            ("bfloat16", np.longdouble(1.5), 1.5),
            ("bfloat16", "NaN", "NaN"),
            ("bfloat16", "0x7f81", "0x7f81"),
            ("complex_float16", np.longdouble(1.5), [1.5, 0.0]),
            ("int4", np.int64(-8), -8),
            ("complex_bfloat16", 1 + 2j, [1.0, 2.0]),
            ("complex_float16", (1, math.nan), [1.0, "NaN"]),
            ("complex_bfloat16", ["0x7f81", "NaN"], ["0x7f81", "NaN"]),
            ("complex_float8_e5m2", 2, [2.0, 0.0]),
        ],
    )
    def test_from_python_any_number_of_the_type_is_taken(self, name, given, json_form):
        for form in [given, *[np.array(given)] * isinstance(given, np.generic)]:
            array = zarr.create_array(MemoryStore(), shape=2, dtype=name, fill_value=form)
            assert stored_document(array)["fill_value"] == json_form


class TestNames:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_or_numpy_type_makes_an_array_of_zero_bits_and_the_name_is_kept(self, name):
        array = zarr.create_array(MemoryStore(), shape=2, dtype=name)
        assert array.dtype == numpy_type(name)
        assert not any(array.fill_value.tobytes())
        assert not any(zarr.open_array(array.store, mode="r")[...].tobytes())
        given = [{"shape": 3, "dtype": dtype} for dtype in (name, array.metadata.data_type)]
        if name not in RECORDS:  # which are structured types to zarr
            given += [{"shape": 3, "dtype": dtype} for dtype in (array.dtype, array.dtype.type)]
            given += [{"data": np.zeros(3, array.dtype)}]
        for arguments in given:
            array = zarr.create_array(MemoryStore(), **arguments)
            assert stored_document(array)["data_type"] == name
        assert rewritten_document(name, fill_value=one_of(name))["data_type"] == name

    @pytest.mark.parametrize(
        ("alias", "core"), [("complex_float32", "complex64"), ("complex_float64", "complex128")]
    )
    def test_an_alias_is_the_core_type_and_keeps_its_name(self, alias, core):
        array = open_document(alias, fill_value=[0, "NaN"])
        assert array.dtype == core
        assert (array[0].real, np.isnan(array[0].imag)) == (0, True)
        document = rewritten_document(alias, fill_value=[0, "NaN"])
        assert (document["data_type"], document["fill_value"]) == (alias, [0.0, "NaN"])
        created = zarr.create_array(MemoryStore(), shape=2, dtype=core)
        assert stored_document(created)["data_type"] == core

    def test_no_type_of_zarr_has_become_ambiguous(self):
        codes = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 V5 S4 U3 M8[ns] m8[s]".split()
        others = [np.dtypes.StringDType(), np.dtype([("real", "f4"), ("imag", "f4")])]
        for dtype in [*map(np.dtype, codes), *others]:
            matched = zarr.dtype.data_type_registry.match_dtype(dtype)
            assert matched.to_native_dtype() == dtype
            module = type(matched).__module__.removeprefix("zarr_bytes.data_type.")
            assert module in ("core", "record") or module.startswith("zarr.")

    @pytest.mark.parametrize("name", ["bfloat16", *PAIRS])
    def test_the_byte_order_in_memory_is_that_of_the_machine(self, name):
        """ml_dtypes computes with no other; zarr's own default is "little", up to 3.4.0."""
        assert DATA_TYPES[name]().endianness == sys.byteorder
        assert DATA_TYPES[name]().to_native_dtype() == numpy_type(name)


RECORD = np.dtype(
    [
        ("weight", ml_dtypes.bfloat16),
        ("level", ml_dtypes.int4),
        ("inner", [("pair", ml_dtypes.bcomplex32), ("flag", "?"), ("scale", "f4")]),
    ]
)


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


class TestLimits:
    """Where zarr itself stands in the way."""

    def test_zarrs_own_codec_exchanges_the_two_numbers_of_a_big_endian_pair(self):
        values = np.array([1 + 2j], ml_dtypes.complex32)
        ours, zarrs = ("3c004000", "40003c00") if OTHER == "big" else ("003c0040", "0040003c")
        for codec, expected in ((BytesCodec, ours), (zarr.codecs.BytesCodec, zarrs)):
            options = {"compressors": None, "serializer": codec(endian=OTHER)}
            with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
                array = zarr.create_array({}, data=values, **options)
            assert stored_chunk(array).hex() == expected
        reading = zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"})
        with reading, pytest.raises(TypeError, match="read it with the codec of zarr-bytes"):
            zarr.open_array(array.store)[...]

    @pytest.mark.skipif(not HAS_FUSED_PIPELINE, reason="zarr 3.3 has the fused pipeline")
    @pytest.mark.parametrize("name", PAIRS)
    def test_zarrs_fused_pipeline_cannot_read_pairs_of_a_whole_shard(self, name):
        shard = ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec(endian=OTHER)])
        values = np.arange(1, 9).astype(component_of(name)).view(numpy_type(name))
        array = zarr.create_array({}, data=values, serializer=shard, compressors=None)
        with zarr.config.set({"codec_pipeline.path": PIPELINES["FusedCodecPipeline"]}):
            array = zarr.open_array(array.store)
        assert array[1:3].tobytes() == values[1:3].tobytes()
        with pytest.raises(TypeError, match="BatchedCodecPipeline"):
            array[...]


WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, zarr, zarr_bytes
array = zarr.create_array({}, data=np.arange(4.0), compressors=None)
assert zarr.open_array(array.store)[1:3].tolist() == [1.0, 2.0]
assert zarr.create_array({}, shape=1, dtype="complex_float32").dtype == "c8"
for name in sys.argv[2:]:
    for use in (
        lambda: zarr.create_array({}, shape=1, dtype=name),
        lambda: zarr.open_array(sys.argv[1], path=name, mode="r"),
    ):
        try:
            use()
        except zarr_bytes.MissingPackageError as error:
            print(error)
"""


def test_without_ml_dtypes_an_error_says_how_to_get_it_and_nothing_else_changes(tmp_path):
    names = ["bfloat16", "int4", "complex_float16", "complex_float8_e5m2"]
    for name in names:
        zarr.create_array(tmp_path, name=name, shape=1, dtype=name)
    command = [sys.executable, "-W", "error", "-c", WITHOUT, str(tmp_path), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    needs = 'needs the package ml_dtypes, 0.6 or newer: pip install "ml_dtypes>=0.6"'
    assert done.stdout.splitlines() == [f"data type {n!r} {needs}" for n in names for _ in "12"]
