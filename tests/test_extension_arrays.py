"""Arrays of extension data types: what users do with them, against NumPy doing the same."""

import json
import math
import sys

import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from documents import open_document, rewritten_document, stored_chunk, struct_of
from extension_types import BY_LAYOUT, INTEGERS, PAIRS, RECORDS, component_of, numpy_type
from zarr.buffer.cpu import Buffer
from zarr.codecs import BloscCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

from zarr_bytes import BytesCodec

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
    # zarr 3.1 warns that structured types, which these records are to NumPy, are not specified.
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:Missing 'endian'"),  # and writes them without, in 3.1
    # ml_dtypes says so of every NaN that is cast or asked for being NaN, as zarr 3.1 asks.
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]


OTHER = "big" if sys.byteorder == "little" else "little"

# Types that zarr has, held to the same tests.
ZARRS = {
    "datetime64": np.dtype("M8[ns]"),
    "timedelta64": np.dtype("m8[s]"),
    "fixed_length_utf32": np.dtype("U3"),
    "null_terminated_bytes": np.dtype("S4"),
    "raw_bytes": np.dtype("V5"),
    "struct": np.dtype([("a", ml_dtypes.bfloat16), ("b", [("c", ml_dtypes.int4), ("d", "c8")])]),
}
VOIDS = [*RECORDS, "raw_bytes", "struct"]


class TestWhatUsersDo:
    @pytest.fixture(params=[*BY_LAYOUT, *ZARRS])
    def name(self, request):
        return request.param

    @staticmethod
    def values(name, shape=(6, 8)):
        """Elements of known bits, none of them NaN."""
        if name in ZARRS:
            dtype = ZARRS[name]
            if dtype.kind in "US":
                return np.resize(np.array(["a", "bc", "def", ""], dtype), shape)
            bits = np.arange(math.prod(shape) * dtype.itemsize, dtype="u1") % 8
            return bits.view(dtype).reshape(shape)
        dtype = numpy_type(name)
        count = math.prod(shape) * (2 if "complex" in name else 1)
        numbers = (np.arange(count) % 2 + 1) if name in INTEGERS else (np.arange(count) % 4 + 1) / 2
        numbers = numbers if name != "int2" else -numbers
        return numbers.astype(component_of(name)).view(dtype).reshape(shape)

    def created(self, name, **options):
        options = {"compressors": None, "serializer": BytesCodec(endian="big"), **options}
        array = zarr.create_array(
            MemoryStore(), shape=(6, 8), chunks=(4, 4), dtype=ZARRS.get(name, name), **options
        )
        array[...] = self.values(name)
        return zarr.open_array(array.store, mode="r+")

    def test_info_and_fill_value(self, name):
        array = self.created(name)
        assert type(array.metadata.data_type).__name__ in str(array.info)
        assert array.fill_value.dtype.kind == array.dtype.kind

    def test_resizing_and_appending(self, name):
        array, values = self.created(name), self.values(name)
        array.append(values[:3])
        assert array[6:].tobytes() == values[:3].tobytes()
        array.resize((10, 9))
        missing = np.array(array.fill_value, array.dtype)
        assert np.array(array[9, 8], array.dtype).tobytes() == missing.tobytes()

    # zarr up to 3.2 cannot write records into shards: its voids have no hash.
    @pytest.mark.parametrize(
        "name",
        [n for n in [*BY_LAYOUT, *ZARRS] if n not in VOIDS or zarr.__version__ > "3.3"],
        indirect=True,
    )
    def test_in_a_shard(self, name, pipeline):
        shard = ShardingCodec(chunk_shape=(2, 2), codecs=[BytesCodec(endian=OTHER)])
        array = self.created(name, serializer=shard)
        assert array[1:5, 3].tobytes() == self.values(name)[1:5, 3].tobytes()
        if name in PAIRS and pipeline == "FusedCodecPipeline":  # reads it past the codec
            with pytest.raises(TypeError, match="BatchedCodecPipeline"):
                array[...]
        elif name in INTEGERS:  # the same way leaves unused bits as they are stored
            assert np.array_equal(array[...], self.values(name))
        else:
            assert array[...].tobytes() == self.values(name).tobytes()

    def test_with_a_compressor_after_the_codec(self, name, pipeline):
        for compressor in (ZstdCodec(), BloscCodec(cname="lz4")):
            array = self.created(name, compressors=compressor)
            assert array[1:5, 3].tobytes() == self.values(name)[1:5, 3].tobytes()

    def test_below_consolidated_metadata_and_copied_array_by_array(self, name):
        root = zarr.create_group(MemoryStore())
        root.create_array("a", shape=(6, 8), dtype=ZARRS.get(name, name))[...] = self.values(name)
        zarr.consolidate_metadata(root.store)
        source = zarr.open_consolidated(root.store)
        target = zarr.create_group(MemoryStore())
        for key, array in source.arrays():
            target.create_array(
                key, shape=array.shape, dtype=array.metadata.data_type, chunks=array.chunks
            )[...] = array[...]
        assert target["a"][...].tobytes() == self.values(name).tobytes()
        assert target["a"].metadata.data_type == root["a"].metadata.data_type

    @pytest.mark.slow
    def test_opened_by_xarray(self, name):
        xarray = pytest.importorskip("xarray", reason="xarray is not installed (extra stores)")
        root = zarr.create_group(MemoryStore())
        array = root.create_array(
            "a",
            shape=(6, 8),
            chunks=(4, 4),
            dtype=ZARRS.get(name, name),
            dimension_names=("y", "x"),
        )
        array[...] = self.values(name)
        dataset = xarray.open_zarr(
            root.store, consolidated=False, chunks=None, mask_and_scale=False
        )
        assert dataset["a"][1:5, 3].to_numpy().tobytes() == self.values(name)[1:5, 3].tobytes()


class TestRecords:
    """Structured data types with these types as fields, also nested."""

    DTYPE = np.dtype(
        [
            ("weight", ml_dtypes.bfloat16),
            ("level", ml_dtypes.int4),
            ("inner", [("pair", ml_dtypes.bcomplex32), ("flag", "?"), ("scale", "f4")]),
        ]
    )

    @pytest.mark.parametrize("endian", ["little", "big"])
    def test_each_field_is_stored_in_its_own_way(self, endian, pipeline):
        values = np.zeros(5, self.DTYPE)
        values["weight"] = [1.5, -2, 3, 0, 1]
        values["level"] = [-8, -1, 0, 7, 3]
        values["inner"]["pair"] = [1 + 2j, 0, 1j, -1, 3]
        values["inner"]["scale"] = [1, 2, 3, 4, 5]
        array = zarr.create_array(
            MemoryStore(),
            shape=5,
            dtype=self.DTYPE,
            compressors=None,
            serializer=BytesCodec(endian=endian),
        )
        array[...] = values
        array = zarr.open_array(array.store, mode="r+")
        first = bytes.fromhex("3fc0f83f804000003f800000")
        if endian == "little":
            first = bytes.fromhex("c03ff8803f0040000000803f")
        assert stored_chunk(array)[: len(first)] == first
        assert array[...].tobytes() == values.tobytes()
        assert array[1:4].tobytes() == values[1:4].tobytes()

    if hasattr(zarr.dtype, "Struct"):  # zarr 3.2 has it

        def test_the_fill_value_of_each_field_keeps_its_bits(self):
            inner = struct_of(d="float8_e5m2", e="complex_bfloat16")
            data_type = struct_of(a="bfloat16", b="int4", c=inner)
            fill_value = {"a": "0x7f81", "b": -3, "c": {"d": "NaN", "e": [1.5, "-Infinity"]}}
            found = open_document(data_type, fill_value=fill_value)[0]
            assert found.tobytes() == bytes.fromhex(
                "817f 0d 7e c03f 80ff" if sys.byteorder == "little" else "7f81 0d 7e 3fc0 ff80"
            )
            document = rewritten_document(data_type, fill_value=fill_value)
            assert document["fill_value"] == fill_value
            assert document["data_type"] == data_type

    def test_unused_bits_of_a_field_are_ignored(self):
        array = zarr.create_array(
            MemoryStore(), shape=2, dtype=self.DTYPE, compressors=None, serializer=BytesCodec()
        )
        chunk = bytearray(2 * self.DTYPE.itemsize)
        chunk[2] = 0x5F  # bits that do not count, and the integer -1
        chunk[3] = 1
        array.store._store_dict["c/0"] = Buffer.from_bytes(bytes(chunk))
        found = zarr.open_array(array.store, mode="r")[...]
        assert found["level"].view("u1").tolist() == [0x0F, 0]


class TestZarrFormat2:
    @pytest.mark.parametrize("compressor", [None, numcodecs.Zlib()], ids=str)
    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
    def test_a_name_is_read_and_written_as_tensorstore_writes_it(self, name, compressor):
        values = np.array([1, 0, 1], numpy_type(name))
        array = zarr.create_array(
            MemoryStore(), shape=3, dtype=name, zarr_format=2, compressors=compressor, fill_value=1
        )
        array[...] = values
        document = json.loads(array.store._store_dict[".zarray"].to_bytes())
        assert document["dtype"] == name
        again = zarr.open_array(array.store, mode="r")
        assert again.dtype == values.dtype
        assert again[...].tobytes() == values.tobytes()


class TestLimits:
    """Where zarr itself stands in the way."""

    @pytest.mark.parametrize("write_empty_chunks", [True, False])
    def test_a_chunk_of_negative_zeros_is_taken_for_one_of_zeros(self, write_empty_chunks):
        array = zarr.create_array(
            MemoryStore(),
            shape=2,
            dtype="bfloat16",
            config={"write_empty_chunks": write_empty_chunks},
        )
        array[...] = np.array([-0.0, -0.0], ml_dtypes.bfloat16)
        assert ("c/0" in array.store._store_dict) is write_empty_chunks

    def test_zarrs_own_codec_exchanges_the_two_numbers_of_a_big_endian_pair(self):
        values = np.array([1 + 2j], ml_dtypes.complex32)
        ours, zarrs = ("3c004000", "40003c00") if OTHER == "big" else ("003c0040", "0040003c")
        for codec, expected in ((BytesCodec, ours), (zarr.codecs.BytesCodec, zarrs)):
            with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
                array = zarr.create_array(
                    MemoryStore(), data=values, compressors=None, serializer=codec(endian=OTHER)
                )
            assert stored_chunk(array).hex() == expected
