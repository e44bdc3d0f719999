"""The codec stands in for zarr's own: equal, an instance of it, in every place of a chain."""

import json
from enum import Enum
from itertools import product

import documents
import ml_dtypes
import numpy as np
import pytest
import zarr
from documents import ARRAY, BIG, LITTLE, open_document, stored_chunk, stored_document
from extension_types import NAMES
from fuzz import TYPES, same, values_of
from shards import sharding
from zarr.buffer.cpu import Buffer
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.codecs import ShardingCodec, TransposeCodec, ZstdCodec

from zarr_bytes import BoolValueError, BytesCodec, EndianCodec, FillValueError, FillValueWarning

# zarr warns that raw_bytes, null_terminated_bytes and, in 3.1, structured types are not specified.
pytestmark = [
    pytest.mark.zarr,
    pytest.mark.filterwarnings("ignore:The data type", "ignore:invalid value"),  # of NaNs
]


def stored_with(values, store=None, **options):
    """An array of one chunk, written and opened again."""
    options = {"dtype": values.dtype, "chunks": values.shape, "compressors": None, **options}
    array = zarr.create_array(store or {}, shape=values.shape, fill_value=None, **options)
    array[...] = values
    return zarr.open_array(array.store_path.store)


def test_an_array_that_is_opened_has_a_codec_that_equals_zarrs():
    store = zarr.create_array({}, shape=3, dtype="<i4", compressors=None).store
    (codec,) = zarr.open_array(store).metadata.codecs
    assert isinstance(codec, BytesCodec)
    assert codec == ZarrBytesCodec(endian="little")


class TestEquality:
    def test_codecs_are_equal_to_zarrs_of_their_byte_order_and_to_no_other_both_ways(self):
        orders = ("little", "big", None)
        known = [(BytesCodec(endian=order), ZarrBytesCodec(endian=order)) for order in orders]
        known += [(EndianCodec(endian=order),) for order in orders[:2]] + [(ZstdCodec(),)]
        for kind in ZarrBytesCodec, BytesCodec, EndianCodec:  # a subclass may store other bytes
            known.append((type("Other", (kind,), {})(endian="big"),))
        for (i, some), (j, others) in product(enumerate(known), repeat=2):
            for one, other in product(some, others):
                assert (one == other) is (other == one) is (i == j)
                assert i != j or hash(one) == hash(other)
        for ours, zarrs in known[:3]:
            assert isinstance(ours, ZarrBytesCodec)
            assert ours.endian == zarrs.endian
            with pytest.raises(AttributeError):
                ours.endian = "big"

    def test_metadata_is_equal_whichever_class_it_holds(self):
        for data_type, codecs in product(["uint8", "uint16"], [LITTLE, BIG]):
            ours = open_document(data_type, codecs=codecs)
            with zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
                zarrs = open_document(data_type, codecs=codecs)
            assert type(zarrs.metadata.codecs[0]) is ZarrBytesCodec
            assert ours.metadata.codecs == zarrs.metadata.codecs
            assert stored_document(ours) == stored_document(zarrs)


def test_changing_a_metadata_document_does_not_change_the_array():
    array = open_document("int16", codecs=LITTLE)
    array.metadata.to_dict()["codecs"][0]["configuration"]["endian"] = "big"
    assert array.metadata.codecs[0].to_dict() == LITTLE[0]


def test_a_byte_order_of_an_enum_is_stored_as_text():
    """As that of zarr 3.1 and 3.2."""
    codec = {"name": "bytes", "configuration": {"endian": Enum("Endian", {"big": "big"}).big}}
    assert json.dumps(BytesCodec.from_dict(codec).to_dict()) == json.dumps(BIG[0])


def test_writing_does_not_change_a_codec_object_that_is_given():
    codec = BytesCodec(endian="little")
    for values in np.zeros(3, "u1"), np.arange(3, dtype="i4"), np.zeros(3, "?"):
        same(stored_with(values, serializer=codec)[...], values)
    assert codec == BytesCodec(endian="little")


def test_the_codec_class_is_chosen_by_metadata_or_by_the_serializer():
    """The last is a limit that the README names."""
    for name, codec in (("bytes", BytesCodec), ("endian", EndianCodec)):
        codecs = [{"name": name, "configuration": {"endian": "big"}}]
        assert type(open_document("float32", codecs=codecs).metadata.codecs[0]) is codec
    array = zarr.create_array({}, shape=4, dtype="f4", compressors=None)
    assert type(array.metadata.codecs[0]) is ZarrBytesCodec
    assert type(zarr.open_array(array.store_path.store).metadata.codecs[0]) is BytesCodec
    given = zarr.create_array({}, shape=4, dtype="f4", serializer=BytesCodec())
    assert type(given.metadata.codecs[0]) is BytesCodec


def test_structured_types_without_endian_are_read_as_little_endian_with_a_warning():
    """Earlier versions of zarr wrote them; where no field has several bytes, nothing is assumed."""
    data_type = documents.structured(["a", "int16"], ["b", "uint8"])
    members = {"fill_value": "AAAA", "codecs": [{"name": "bytes"}]}
    with pytest.warns(UserWarning, match="Missing 'endian'.*Assuming little-endian") as caught:
        array = open_document(data_type, chunk=b"\x01\x00\x02\x03\x00\x04", **members)
    assert array[:].tolist() == [(1, 2), (3, 4)]
    assert caught[0].filename == documents.__file__  # and not a line of zarr
    data_type, members = documents.structured(["a", "int8"]), members | {"fill_value": "AA=="}
    assert documents.rewritten_document(data_type, **members)["codecs"] == members["codecs"]


@pytest.mark.usefixtures("pipeline")
class TestChains:
    """Zarr's pipelines and that of this package, and every place of a chain."""

    @pytest.mark.parametrize("name", [name for name in TYPES if name not in NAMES])
    def test_values_and_stored_bytes_are_numpys_under_every_pipeline(self, name, tmp_path):
        for in_memory in "<>":
            values = values_of(name, (6, 8), seed=1)
            values = values.astype(values.dtype.newbyteorder(in_memory))
            for endian in "little", "big":
                codec = BytesCodec(endian=endian)
                reopened = stored_with(values, serializer=codec)
                of_files = stored_with(values, tmp_path / in_memory / endian, serializer=codec)
                expected = values.astype(values.dtype.newbyteorder(endian)).tobytes()
                assert stored_chunk(reopened) == expected
                for selection in (np.s_[:], np.s_[2:5, ::3], np.s_[1, 4], np.s_[:, [0, 5]]):
                    for array in reopened, of_files:
                        same(array.oindex[selection], np.asarray(values[selection], values.dtype))

    @pytest.mark.parametrize("codecs", [LITTLE, BIG])
    @pytest.mark.parametrize("index_codecs", [LITTLE, BIG])
    def test_the_codec_encodes_inner_chunks_and_index_of_a_shard(self, codecs, index_codecs):
        values = values_of("float64", (6, 8), seed=1).astype(">f8")
        index_codecs = [*index_codecs, {"name": "crc32c"}]
        shard = ShardingCodec(chunk_shape=(2, 4), codecs=codecs, index_codecs=index_codecs)
        reopened = stored_with(values, serializer=shard)
        sharding = reopened.metadata.codecs[0]
        assert type(sharding.codecs[0]) is type(sharding.index_codecs[0]) is BytesCodec
        same(reopened[...], values)
        same(reopened[1:5, 3], values[1:5, 3])
        reopened[3, 3] = 7
        assert reopened[3, 3] == 7

    def test_a_shard_without_codecs_of_its_index_opens_as_in_zarr(self):
        shard = sharding([2], LITTLE) | {"configuration": {"chunk_shape": [2], "codecs": LITTLE}}
        shard["configuration"]["index_codecs"] = []
        assert not open_document("int16", codecs=[shard])[:].any()

    @pytest.mark.parametrize("endian", ["little", "big"])
    @pytest.mark.parametrize("name", ["int32", "bfloat16", "int4", "complex_float8_e5m2"])
    def test_the_codec_works_between_a_filter_and_a_compressor(self, name, endian):
        values = values_of(name, (6, 8), seed=1)
        chain = {"filters": TransposeCodec(order=(1, 0)), "compressors": ZstdCodec()}
        options = {"chunks": (3, 8), "serializer": BytesCodec(endian=endian), **chain}
        array = stored_with(values, dtype=name, **options)
        same(array[...], values)
        same(array[2:4, 5], values[2:4, 5])


class Half(zarr.dtype.Float16):
    """A data type that this package has never seen, over a NumPy type without byte order."""

    _zarr_v3_name = "example.half"

    def to_native_dtype(self):
        return np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("endian", ["little", "big"])
def test_numbers_of_data_types_of_other_packages_are_stored_in_either_byte_order(endian):
    values = np.arange(12).astype(ml_dtypes.bfloat16)
    options = {"compressors": None, "serializer": BytesCodec(endian=endian)}
    array = zarr.create_array({}, shape=12, dtype=Half(), **options)
    array[:] = values
    stored = values.view("u2").astype(np.dtype("u2").newbyteorder(endian))
    assert stored_chunk(array) == stored.tobytes()
    assert np.array_equal(array[2:7], values[2:7])


class TestLimits:
    """What the README says that this package cannot change."""

    @pytest.mark.parametrize("write_empty_chunks", [False, True])
    def test_zarrs_pipelines_drop_a_chunk_of_nans_with_other_bits_than_the_fill_values(
        self, pipeline, write_empty_chunks
    ):
        stored = write_empty_chunks or pipeline == "BatchedBytesPipeline"
        options = {"compressors": None, "serializer": BytesCodec(), "fill_value": np.nan}
        options["config"] = {"write_empty_chunks": write_empty_chunks}
        array = zarr.create_array({}, shape=2, dtype="float32", **options)
        array[:] = np.array([0x7F800001] * 2, "u4").view("f4")
        assert ("c/0" in array.store_path.store._store_dict) is stored
        assert array[:].view("u4").tolist() == [0x7F800001 if stored else 0x7FC00000] * 2

    def test_zarrs_fused_pipeline_reads_a_dense_shard_without_the_codec(self, pipeline):
        shards = ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec()])
        array = stored_with(np.ones(4, "?"), serializer=shards)
        objects = array.store_path.store._store_dict
        corrupt = objects["c/0"].to_bytes().replace(b"\1\1\1\1", b"\1\2\1\1", 1)
        objects["c/0"] = Buffer.from_bytes(corrupt)
        is_fused = pipeline == "FusedCodecPipeline"
        for selection in [1] if is_fused else [1, slice(None)]:
            with pytest.raises(BoolValueError, match="found 2"):
                array[selection]
        assert not is_fused or array[:].view("u1").tolist() == [1, 2, 1, 1]


@pytest.mark.parametrize(("setting", "value"), [("lenient", [1]), ("strict", "1.5")])
def test_a_refused_array_keeps_consolidated_metadata_from_opening_but_not_its_neighbours(
    setting, value
):
    """A limit that the pages name: zarr reads all of consolidated metadata at once."""
    good = ARRAY | {"data_type": "float32"}
    known = {"good": good, "bad": good | {"fill_value": value}}
    store = documents.memory({"": documents.consolidated(known), **known})
    with zarr.config.set({"zarr_bytes.fill_values": setting}):
        with pytest.raises(FillValueError, match="is not a fill value"):
            zarr.open_group(store, mode="r")
        opened = zarr.open_group(store, mode="r", use_consolidated=False)["good"]
    assert opened[:].tolist() == [0] * 4
    if setting == "strict":
        with pytest.warns(FillValueWarning, match=r"^array .*/bad: '1\.5'") as warned:
            array = zarr.open_group(store, mode="r")["bad"]
        assert array.fill_value == 1.5
        assert [warning.filename for warning in warned] == [__file__]
