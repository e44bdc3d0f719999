"""The registered extension data types: every bit pattern, fill values, and all that users do."""

import json
import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import zarr
from documents import (
    BIG,
    LITTLE,
    open_document,
    rewritten_document,
    store_of,
    stored_chunk,
    stored_document,
)
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
from stored_arrays import CountingStore
from zarr.storage import MemoryStore

from zarr_bytes import FillValueError
from zarr_bytes.data_type import DATA_TYPES

ENDIANS = {"little": LITTLE, "big": BIG}
# Of 16 bits, every pattern takes seconds.
REAL_BY_COST = [pytest.param(n, marks=[pytest.mark.slow] * (width_of(n) > 8)) for n in REAL]

pytestmark = [
    # zarr 3.1 warns that structured types, which these records are to NumPy, are not specified.
    pytest.mark.filterwarnings("ignore:The data type"),
    # ml_dtypes says so of every NaN that is cast or asked for being NaN, as zarr 3.1 asks.
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]


def patterns_of(name):
    """Every bit pattern of `name`, as unsigned integers in the byte order of the machine."""
    size = numpy_type(name).itemsize
    if name in PAIRS or name in RECORDS:  # of the components, in two orders
        half = np.arange(256 ** (size // 2), dtype=f"u{size // 2}")
        return np.stack([half, half[::-1]], axis=-1).ravel()
    return np.arange(256**size, dtype=f"u{size}")


def memory_of(name):
    """What memory should hold for `patterns_of`: unused bits are zeros."""
    patterns = patterns_of(name)
    if patterns.itemsize > 1:
        return patterns
    return patterns & (2 ** width_of(name.removeprefix("complex_")) - 1)


def stored_of(name):
    """What should be stored for `patterns_of`: unused bits of signed integers repeat the sign."""
    memory = memory_of(name)
    if name not in INTEGERS or name.startswith("u"):
        return memory
    width = width_of(name)
    return np.where(memory < 2 ** (width - 1), memory, memory | (256 - 2**width)).astype("u1")


@pytest.mark.parametrize("endian", ENDIANS)
class TestEveryBitPattern:
    @pytest.mark.parametrize("name", NAMES)
    def test_is_read_whole_and_in_part(self, name, endian):
        patterns = patterns_of(name)
        chunk = patterns.astype(patterns.dtype.newbyteorder(endian)).tobytes()
        expected = memory_of(name).view(numpy_type(name))
        members = {"shape": expected.shape, "fill_value": one_of(name), "codecs": ENDIANS[endian]}
        memory = store_of(name, chunk=chunk, **members)
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

    @pytest.mark.parametrize("name", NAMES)
    def test_is_written_and_written_again(self, name, endian):
        values = patterns_of(name).view(numpy_type(name))
        members = {"shape": values.shape, "fill_value": one_of(name), "codecs": ENDIANS[endian]}
        array = zarr.open_array(store_of(name, **members), mode="r+")
        expected = stored_of(name)
        expected = expected.astype(expected.dtype.newbyteorder(endian)).tobytes()
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


class TestFillValues:
    """As for the core types, and what each README says."""

    @staticmethod
    def bits(name, fill_value):
        scalar = open_document(name, fill_value=fill_value).fill_value
        assert scalar.dtype == numpy_type(name)
        return int.from_bytes(scalar.tobytes(), sys.byteorder)

    @pytest.mark.parametrize("name", REAL_BY_COST)
    def test_every_bit_pattern_survives_when_metadata_is_written_again(self, name):
        width, data_type = width_of(name), DATA_TYPES[name]()
        for bits in range(2**width):
            digits = f"0x{bits:0{4 if width > 8 else 2}x}"
            scalar = data_type.from_json_scalar(digits, zarr_format=3)
            assert int.from_bytes(scalar.tobytes(), sys.byteorder) == bits
            json_form = data_type.to_json_scalar(scalar, zarr_format=3)
            written = json.loads(json.dumps(json_form, allow_nan=False))
            again = data_type.from_json_scalar(written, zarr_format=3)
            assert again.tobytes() == scalar.tobytes()
            assert isinstance(written, str) is not math.isfinite(value_of(bits, name))

    @pytest.mark.parametrize(
        ("name", "bits"),
        [
            ("bfloat16", 0x7FC0),
            ("float8_e3m4", 0x78),
            ("float8_e4m3", 0x7C),
            ("float8_e4m3b11fnuz", 0x80),
            ("float8_e4m3fn", 0x7F),
            ("float8_e4m3fnuz", 0x80),
            ("float8_e5m2", 0x7E),
            ("float8_e5m2fnuz", 0x80),
            ("float8_e8m0fnu", 0xFF),
        ],
    )
    def test_nan_has_the_bits_that_its_readme_states(self, name, bits):
        assert self.bits(name, "NaN") == bits
        assert rewritten_document(name, fill_value="NaN")["fill_value"] == "NaN"

    @pytest.mark.parametrize("name", REAL)
    def test_what_a_type_does_not_have_is_refused(self, name):
        values = [value_of(bits, name) for bits in range(2 ** width_of(name))]
        for constant, number in (("Infinity", math.inf), ("-Infinity", -math.inf)):
            if number in values:
                assert value_of(self.bits(name, constant), name) == number
            else:
                with pytest.raises(FillValueError, match=f"type {name}: permitted is a number"):
                    open_document(name, fill_value=constant)
        if not any(map(math.isnan, values)):
            with pytest.raises(FillValueError, match='permitted is a number from .* or "0x" and 2'):
                open_document(name, fill_value="NaN")

    @pytest.mark.parametrize(
        ("name", "number", "bits"),
        [
            # ml_dtypes rounds to float32 on the way, where this one is a tie.
            ("bfloat16", 1 + 2**-8 + 2**-40, 0x3F81),
            ("bfloat16", -(1 + 2**-8 + 2**-40), 0xBF81),
            ("bfloat16", 2**64 + 2**56 + 1, 0x5F81),
            ("bfloat16", 1e40, 0x7F80),
            ("float8_e5m2", -61440, 0xFC),  # half a step beyond the largest
            ("float8_e5m2", -61439, 0xFB),
            ("float4_e2m1fn", 6.9, 7),
            # Negative zero is kept where the type has it.
            ("bfloat16", -0.0, 0x8000),
            ("float4_e2m1fn", -0.0, 8),
            ("float8_e4m3fnuz", -0.0, 0),
            # Without a zero, it is the smallest number: TensorStore 0.1.86 writes 0.0 for it.
            ("float8_e8m0fnu", 0.0, 0),
        ],
    )
    def test_a_number_is_rounded_once_to_the_nearest(self, name, number, bits):
        assert self.bits(name, number) == bits

    @pytest.mark.parametrize(
        ("name", "value", "permitted"),
        [
            ("float4_e2m1fn", 7, r"permitted is a number from -6.0 to 6.0, or"),
            ("float4_e2m1fn", math.nan, "float4_e2m1fn"),
            ("float8_e8m0fnu", -1.0, "float8_e8m0fnu: permitted is a number from"),
            ("float6_e2m3fn", "0x40", "hexadecimal digits, up to 0x3f"),
            ("int4", 8, "int4: permitted is an integer from -8 to 7"),
            ("int2", 0.5, "int2: permitted is an integer from -2 to 1"),
            *(
                ("bfloat16", value, 'permitted is a number, "Infinity"')
                for value in ("0x7f", "0x7fc00", "7fc0", "nan", "1.5", [])
            ),
        ],
    )
    def test_what_is_no_number_of_the_type_is_refused_in_metadata_and_from_python(
        self, name, value, permitted
    ):
        with pytest.raises(FillValueError, match=permitted):
            open_document(name, fill_value=value)
        with pytest.raises((FillValueError, TypeError), match="is not a fill value of data type"):
            zarr.create_array(MemoryStore(), shape=2, dtype=name, fill_value=value)

    @pytest.mark.parametrize("name", INTEGERS)
    def test_integers_are_in_range(self, name):
        least, largest = INTEGERS[name]
        for value in range(least, largest + 1):
            assert open_document(name, fill_value=value).fill_value == value
            assert rewritten_document(name, fill_value=value)["fill_value"] == value
        for value in (least - 1, largest + 1, 0.5, "1", True):
            with pytest.raises(FillValueError, match=f"an integer from {least} to {largest}"):
                open_document(name, fill_value=value)

    @pytest.mark.parametrize("name", [*PAIRS, *RECORDS])
    def test_complex_values_are_pairs_of_the_component(self, name):
        fill_value = [1.5, 0.5] if "e8m0" not in name else [2.0, 0.5]
        array = open_document(name, fill_value=fill_value)
        pair = np.array([array.fill_value]).view(component_of(name))
        assert pair.astype("f8").tolist() == fill_value
        assert array[0].tobytes() == array.fill_value.tobytes()
        assert rewritten_document(name, fill_value=fill_value)["fill_value"] == fill_value
        for refused in (1, [1]):
            with pytest.raises(FillValueError, match=f"{name}: permitted is an array of two"):
                open_document(name, fill_value=refused)
        with pytest.raises(FillValueError, match="'1' is not a fill value"):
            open_document(name, fill_value=["1", 1])

    @pytest.mark.parametrize(
        ("name", "given", "json_form"),
        [
            ("bfloat16", 1.5, 1.5),
            ("bfloat16", np.float32(1.5), 1.5),
            ("bfloat16", ml_dtypes.bfloat16(1.5), 1.5),
            ("bfloat16", float("nan"), "NaN"),
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


@pytest.mark.parametrize("name", ["bfloat16", *PAIRS])
def test_the_byte_order_in_memory_is_that_of_the_machine(name):
    """ml_dtypes computes with no other; zarr's own default is "little", up to 3.4.0."""
    assert DATA_TYPES[name]().endianness == sys.byteorder
    assert DATA_TYPES[name]().to_native_dtype() == numpy_type(name)


class TestNames:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_makes_an_array_of_zero_bits_and_is_written_back(self, name):
        array = zarr.create_array(MemoryStore(), shape=2, dtype=name)
        assert array.dtype == numpy_type(name)
        assert not any(array.fill_value.tobytes())
        assert not any(zarr.open_array(array.store, mode="r")[...].tobytes())
        assert stored_document(array)["data_type"] == name
        assert rewritten_document(name, fill_value=one_of(name))["data_type"] == name

    @pytest.mark.parametrize("name", [n for n in NAMES if n not in RECORDS])
    def test_the_numpy_type_is_found_in_data_and_given_as_a_class(self, name):
        values = np.zeros(3, numpy_type(name))
        given = ({"dtype": values.dtype}, {"dtype": values.dtype.type})
        for arguments in ({"data": values}, *({"shape": 3} | dtype for dtype in given)):
            array = zarr.create_array(MemoryStore(), **arguments)
            assert stored_document(array)["data_type"] == name

    @pytest.mark.parametrize(
        ("alias", "core"), [("complex_float32", "complex64"), ("complex_float64", "complex128")]
    )
    def test_an_alias_is_the_core_type_and_keeps_its_name(self, alias, core):
        values = np.array([1 + 2j, np.nan], core)
        chunk = values.astype(values.dtype.newbyteorder("<")).tobytes()
        array = open_document(alias, fill_value=[0, "NaN"], chunk=chunk)
        assert array.dtype == core
        assert array[...].astype(core).tobytes() == values.tobytes()
        document = rewritten_document(alias, fill_value=[0, "NaN"])
        assert document["data_type"] == alias
        assert document["fill_value"] == [0.0, "NaN"]
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


WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ml_dtypes":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import numpy as np, zarr, zarr_bytes
from zarr.storage import MemoryStore
array = zarr.create_array(MemoryStore(), data=np.arange(4.0), compressors=None)
assert zarr.open_array(array.store)[1:3].tolist() == [1.0, 2.0]
assert zarr.create_array(MemoryStore(), shape=1, dtype="complex_float32").dtype == "c8"
for name in sys.argv[2:]:
    for use in (
        lambda: zarr.create_array(MemoryStore(), shape=1, dtype=name),
        lambda: zarr.open_array(sys.argv[1], path=name, mode="r"),
    ):
        try:
            use()
        except zarr_bytes.MissingPackageError as error:
            assert isinstance(error, ImportError)
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
