"""Arrays of extension data types: what users do with them, against NumPy doing the same."""

import json
import sys

import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from documents import open_document, rewritten_document, stored_chunk, struct_of
from extension_types import BY_LAYOUT, INTEGERS, PAIRS, RECORDS, numpy_type
from fuzz import TYPES, same, values_of
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


# One for each way of storing, and types that zarr has.
TYPE_OF = {name: TYPES[name][0] for name in ("datetime", "text", "ascii", "struct", "nested")}
NAMES = [*BY_LAYOUT, *TYPE_OF]
VOIDS = [*RECORDS, "struct", "nested"]
OTHER = "big" if sys.byteorder == "little" else "little"


class TestWhatUsersDo:
    @pytest.fixture(params=NAMES)
    def name(self, request):
        return request.param

    @staticmethod
    def values(name):
        return values_of(name, (6, 8), 7)

    def created(self, name, **options):
        options = {"compressors": None, "serializer": BytesCodec(endian="big"), **options}
        options |= {"shape": (6, 8), "chunks": (4, 4), "dtype": TYPE_OF.get(name, name)}
        array = zarr.create_array(MemoryStore(), **options)
        array[...] = self.values(name)
        return zarr.open_array(array.store, mode="r+")

    # zarr up to 3.2 cannot write records into shards: its voids have no hash.
    @pytest.mark.parametrize(
        "name", [n for n in NAMES if n not in VOIDS or zarr.__version__ > "3.3"], indirect=True
    )
    def test_in_a_shard(self, name, pipeline):
        shard = ShardingCodec(chunk_shape=(2, 2), codecs=[BytesCodec(endian=OTHER)])
        array, values = self.created(name, serializer=shard), self.values(name)
        same(array[1:5, 3], values[1:5, 3])
        if name in PAIRS and pipeline == "FusedCodecPipeline":  # reads it past the codec
            with pytest.raises(TypeError, match="BatchedCodecPipeline"):
                array[...]
        elif name in INTEGERS:  # the same way leaves unused bits as they are stored
            assert np.array_equal(array[...], values)
        else:
            same(array[...], values)

    def test_with_a_compressor_after_the_codec(self, name, pipeline):
        for compressor in (ZstdCodec(), BloscCodec(cname="lz4")):
            same(self.created(name, compressors=compressor)[1:5, 3], self.values(name)[1:5, 3])

    def test_below_consolidated_metadata_and_copied_array_by_array(self, name):
        root, target = zarr.create_group(MemoryStore()), zarr.create_group(MemoryStore())
        root.create_array("a", data=self.values(name))
        zarr.consolidate_metadata(root.store)
        for key, array in zarr.open_consolidated(root.store).arrays():
            options = {"shape": array.shape, "dtype": array.metadata.data_type}
            target.create_array(key, chunks=array.chunks, **options)[...] = array[...]
        same(target["a"][...], self.values(name))
        assert target["a"].metadata.data_type == root["a"].metadata.data_type


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
        codec = BytesCodec(endian=endian)
        array = zarr.create_array({}, data=values, compressors=None, serializer=codec)
        array = zarr.open_array(array.store)
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
        options = {"compressors": None, "serializer": BytesCodec()}
        array = zarr.create_array({}, shape=2, dtype=self.DTYPE, **options)
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
        options = {"zarr_format": 2, "compressors": compressor, "fill_value": 1}
        array = zarr.create_array({}, shape=3, dtype=name, **options)
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
        config = {"write_empty_chunks": write_empty_chunks}
        array = zarr.create_array({}, shape=2, dtype="bfloat16", config=config)
        array[...] = np.array([-0.0, -0.0], ml_dtypes.bfloat16)
        assert ("c/0" in array.store._store_dict) is write_empty_chunks

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
