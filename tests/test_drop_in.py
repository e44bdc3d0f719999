"""The codec stands in for zarr's own: equal, an instance of it, in every place of a chain."""

import re

import documents
import numpy as np
import pytest
import zarr
from documents import (
    BIG,
    LITTLE,
    open_document,
    rewritten_document,
    stored_chunk,
    stored_document,
)
from fuzz import same
from zarr.buffer.cpu import Buffer
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.codecs import ShardingCodec, ZstdCodec

from zarr_bytes import (
    BoolValueError,
    BytesCodec,
    EndianCodec,
    FillValueError,
    FillValueWarning,
)

ENDIANS = ("little", "big")
DATA_TYPES = (
    "? i1 u1 <i2 >i2 <u4 >u4 <i8 >u8 <f2 >f4 <f8 >f8 <c8 >c16 V5 S4 <U3 >U3 <M8[ns] >m8[s]"
).split() + [[("a", "<i2"), ("b", [("c", "<f8"), ("d", "u1")]), ("e", "<c8")]]

# zarr warns that raw_bytes, null_terminated_bytes and, in 3.1, structured types are not specified.
pytestmark = [pytest.mark.zarr, pytest.mark.filterwarnings("ignore:The data type")]


def values_of(dtype, shape=(6, 8)):
    dtype = np.dtype(dtype)
    if dtype.kind in "US":
        words = ["a", "bc", "", "defg" if dtype.kind == "S" else "déf"]
        return np.resize(np.array(words, dtype), shape)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = (np.arange(size) % (2 if dtype.kind == "b" else 251)).astype("u1")
    return raw.view(dtype).reshape(shape)


def stored_with(values, store=None, **options):
    """An array of one chunk, written and opened again."""
    options = {"chunks": values.shape, "compressors": None, **options}
    array = zarr.create_array(store or {}, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values
    return zarr.open_array(array.store_path.store)


class TestEquality:
    @pytest.mark.parametrize("endian", [*ENDIANS, None])
    def test_codecs_of_either_class_are_equal_both_ways_and_hash_alike(self, endian):
        ours, zarrs = BytesCodec(endian=endian), ZarrBytesCodec(endian=endian)
        assert isinstance(ours, ZarrBytesCodec)
        assert ours == zarrs
        assert zarrs == ours
        assert (hash(ours), ours.endian) == (hash(zarrs), zarrs.endian)
        with pytest.raises(AttributeError):
            ours.endian = "big"

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (BytesCodec(endian="big"), ZarrBytesCodec(endian="little")),
            (EndianCodec(endian="big"), ZarrBytesCodec(endian="big")),
            (EndianCodec(endian="big"), BytesCodec(endian="big")),
            (EndianCodec(endian="big"), EndianCodec(endian="little")),
            (BytesCodec(), ZstdCodec()),
        ],
    )
    def test_another_byte_order_or_codec_is_unequal_both_ways(self, one, other):
        assert one != other
        assert other != one

    @pytest.mark.parametrize("data_type", ["uint8", "uint16"])
    @pytest.mark.parametrize("codecs", [LITTLE, BIG])
    def test_metadata_is_equal_whichever_class_it_holds(self, data_type, codecs):
        ours = open_document(data_type, codecs=codecs)
        with zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
            zarrs = open_document(data_type, codecs=codecs)
        assert type(zarrs.metadata.codecs[0]) is ZarrBytesCodec
        assert ours.metadata.codecs == zarrs.metadata.codecs
        assert stored_document(ours) == stored_document(zarrs)


class TestChoice:
    def test_metadata_that_names_a_codec_gets_this_packages_class(self):
        for name, codec in (("bytes", BytesCodec), ("endian", EndianCodec)):
            codecs = [{"name": name, "configuration": {"endian": "big"}}]
            assert type(open_document("float32", codecs=codecs).metadata.codecs[0]) is codec

    def test_a_new_array_uses_zarrs_class_until_it_is_reopened_or_its_given_serializer(self):
        """The first is a limit that the README names."""
        array = zarr.create_array({}, shape=4, dtype="f4", compressors=None)
        assert type(array.metadata.codecs[0]) is ZarrBytesCodec
        assert type(zarr.open_array(array.store_path.store).metadata.codecs[0]) is BytesCodec
        given = zarr.create_array({}, shape=4, dtype="f4", serializer=BytesCodec())
        assert type(given.metadata.codecs[0]) is BytesCodec


class TestStructuredTypesWithoutEndian:
    """Earlier versions of zarr wrote them."""

    DATA_TYPE = {
        "name": "structured",
        "configuration": {"fields": [["a", "int16"], ["b", "uint8"]]},
    }

    def test_they_are_read_as_little_endian_with_a_warning(self):
        with pytest.warns(UserWarning, match="Missing 'endian'.*Assuming little-endian") as caught:
            array = open_document(
                self.DATA_TYPE,
                fill_value="AAAA",
                codecs=[{"name": "bytes"}],
                chunk=b"\x01\x00\x02\x03\x00\x04",
            )
        assert array[:].tolist() == [(1, 2), (3, 4)]
        assert caught[0].filename == documents.__file__  # and not a line of zarr

    def test_without_multi_byte_fields_nothing_is_assumed(self):
        data_type = {"name": "structured", "configuration": {"fields": [["a", "int8"]]}}
        codecs = [{"name": "bytes"}]
        document = rewritten_document(data_type, fill_value="AA==", codecs=codecs)
        assert document["codecs"] == codecs


@pytest.mark.usefixtures("pipeline")
class TestChains:
    """Both of zarr's pipelines, and every place of a chain that the codec can have."""

    @pytest.mark.parametrize("endian", ENDIANS)
    @pytest.mark.parametrize("dtype", DATA_TYPES, ids=str)
    def test_values_come_back_and_bytes_are_numpys(self, dtype, endian, tmp_path):
        values, options = values_of(dtype), {"serializer": BytesCodec(endian=endian)}
        reopened = stored_with(values, fill_value=None, **options)
        of_files = stored_with(values, tmp_path, fill_value=None, **options)
        assert stored_chunk(reopened) == values.astype(values.dtype.newbyteorder(endian)).tobytes()
        assert type(reopened.metadata.codecs[0]) is BytesCodec
        for selection in (np.s_[:], np.s_[2:5, ::3], np.s_[3], np.s_[1, 4], np.s_[:, [0, 5]]):
            for array in reopened, of_files:
                same(array.oindex[selection], np.asarray(values[selection], values.dtype))

    @pytest.mark.parametrize("codecs", [LITTLE, BIG])
    @pytest.mark.parametrize("index_codecs", [LITTLE, BIG])
    def test_inner_chunks_and_index_of_a_shard(self, codecs, index_codecs):
        values = values_of(">f8")
        index_codecs = [*index_codecs, {"name": "crc32c"}]
        shard = ShardingCodec(chunk_shape=(2, 4), codecs=codecs, index_codecs=index_codecs)
        reopened = stored_with(values, serializer=shard)
        sharding = reopened.metadata.codecs[0]
        assert type(sharding.codecs[0]) is type(sharding.index_codecs[0]) is BytesCodec
        assert np.array_equal(reopened[...], values)
        assert np.array_equal(reopened[1:5, 3], values[1:5, 3])
        reopened[3, 3] = 7
        assert reopened[3, 3] == 7

    @pytest.mark.parametrize("endian", ENDIANS)
    def test_a_compressor_and_a_filter(self, endian):
        values = values_of("<i4")
        reopened = stored_with(
            values,
            chunks=(3, 8),
            filters=[zarr.codecs.TransposeCodec(order=(1, 0))],
            serializer=BytesCodec(endian=endian),
            compressors=[ZstdCodec()],
        )
        assert np.array_equal(reopened[...], values)
        assert np.array_equal(reopened[2:4, 5], values[2:4, 5])


class TestDataTypesOfOtherPackages:
    """A data type class that this package has never seen, over a NumPy type without byte order."""

    @pytest.mark.parametrize("endian", ENDIANS)
    def test_its_numbers_are_stored_in_either_byte_order(self, endian):
        import ml_dtypes
        from other_data_type import Half

        values = np.arange(12).astype(ml_dtypes.bfloat16)
        array = zarr.create_array(
            {}, shape=12, dtype=Half(), compressors=None, serializer=BytesCodec(endian=endian)
        )
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
        array = zarr.create_array(
            {},
            shape=2,
            dtype="float32",
            fill_value=np.nan,
            compressors=None,
            serializer=BytesCodec(),
            config={"write_empty_chunks": write_empty_chunks},
        )
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


def group_of_two(fill_value):
    """A group with consolidated metadata, whose member `bad` has another fill value."""
    group = zarr.open_group({}, mode="w")
    for name, value in (("good", 1.5), ("bad", 5)):
        group.create_array(name, shape=2, dtype="float32", fill_value=value)
    with pytest.warns(UserWarning, match="Consolidated metadata"):
        zarr.consolidate_metadata(group.store)
    for key in ("zarr.json", "bad/zarr.json"):
        text = group.store._store_dict[key].to_bytes().decode()
        changed = re.sub(r'("fill_value": )5\.0', rf"\g<1>{fill_value}", text)
        group.store._store_dict[key] = Buffer.from_bytes(changed.encode())
    return group.store


@pytest.mark.parametrize(("setting", "value"), [("lenient", "[1]"), ("strict", '"1.5"')])
def test_a_refused_array_keeps_consolidated_metadata_from_opening_but_not_its_neighbours(
    setting, value
):
    """A limit that the pages name: zarr reads all of consolidated metadata at once."""
    store = group_of_two(value)
    with zarr.config.set({"zarr_bytes.fill_values": setting}):
        with pytest.raises(FillValueError, match="is not a fill value"):
            zarr.open_group(store, mode="r")
        good = zarr.open_group(store, mode="r", use_consolidated=False)["good"]
    assert good[:].tolist() == [1.5, 1.5]


def test_consolidated_metadata_opens_with_a_fill_value_that_only_zarr_takes():
    store = group_of_two('"1.5"')
    with pytest.warns(FillValueWarning, match=r"^array .*/bad: '1\.5'") as warned:
        array = zarr.open_group(store, mode="r")["bad"]
    assert array.fill_value == 1.5
    assert [warning.filename for warning in warned] == [__file__]
