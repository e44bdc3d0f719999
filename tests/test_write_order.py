"""The order of inner chunks in a shard: new shards have zarr's, and shards in any order are found.

zarr's `subchunk_write_order` (from zarr 3.3 on) is no metadata: an array that is opened again has
the default, Morton order, whoever has made it.
"""

import os
import pickle

import numpy as np
import pytest
import zarr
from fuzz import encoded, fuzz, thresholds
from hypothesis import given
from hypothesis import strategies as st
from shards import divided, entries_in, morton_order, shard_of
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    CountingStore,
    contents_of,
    numbers,
    pipeline_of,
    pipeline_with,
)
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec
from zarr.storage import MemoryStore

import zarr_bytes
from zarr_bytes import BatchedBytesPipeline, check, explain, preallocate, view

HAS_WRITE_ORDER = hasattr(ShardingCodec(chunk_shape=(1,)), "subchunk_write_order")
pytestmark = [
    pytest.mark.zarr,
    # zarr, of shards behind a transpose.
    pytest.mark.filterwarnings("ignore:Combining a"),
]
# zarr's sharding codec has no other order, and none that can be set, before 3.3.
needs_write_order = pytest.mark.skipif(not HAS_WRITE_ORDER, reason="zarr 3.3 has the first orders")
needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")

INNER, COUNTS = (2, 3), (4, 5)
SHAPE = tuple(n * m for n, m in zip(INNER, COUNTS, strict=True))
VALUES = numbers(SHAPE, "i4") + 1
ORDERS = {  # numbers of the inner chunks, as they are stored
    "morton": morton_order(COUNTS),
    "lexicographic": [*range(20)],
    "unordered": [*range(20)],
    "colexicographic": [5 * i + j for j in range(5) for i in range(4)],
}
every_order = pytest.mark.parametrize(
    "order",
    [
        "morton",
        *[
            pytest.param(name, marks=[pytest.mark.newest, needs_write_order])
            for name in [*ORDERS][1:]
        ],
    ],
)


def sharding(order="morton", inner_shape=INNER, location="end", **others):
    options = {"chunk_shape": inner_shape, "index_location": location, **others}
    options["codecs"] = [BytesCodec(endian="big")]
    return ShardingCodec(**options, **{"subchunk_write_order": order} if HAS_WRITE_ORDER else {})


def array_in(store, codec, shape=SHAPE, filters=(), **others):
    """A new array of one shard."""
    options = {"chunks": shape, "dtype": "i4", "compressors": None, "filters": list(filters)}
    return zarr.create_array(store, shape=shape, serializer=codec, **options, **others)


def numbers_as_stored(store, location="end"):
    """The numbers of the inner chunks of the one shard, by their offsets."""
    (content,) = [found for key, found in contents_of(store).items() if "/" in key]
    entries = entries_in(content, 20, location)
    return sorted(range(20), key=lambda number: entries[number])


@fuzz(examples=30)
@given(data=st.data())
def test_new_shards_have_the_bytes_of_zarrs_own_pipeline(data):
    """Whole and partly written, with inner chunks of zeros, which are absent; in every order."""
    counts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    inner = data.draw(st.lists(st.integers(1, 3), min_size=len(counts), max_size=len(counts)))
    shape = tuple(n * m for n, m in zip(counts, inner, strict=True))
    filters = []
    if data.draw(st.booleans()) and len(set(inner)) == 1:  # zarr holds both orders of axes to it
        filters = [TransposeCodec(order=data.draw(st.permutations(range(len(shape)))))]
        shape = (max(shape),) * len(shape)
    codec = sharding(
        data.draw(st.sampled_from([*ORDERS] if HAS_WRITE_ORDER else ["morton"])),
        tuple(inner),
        data.draw(st.sampled_from(["start", "end"])),
    )
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    writes = []
    for _ in range(data.draw(st.integers(1, 3))):
        bounds = [sorted(random.integers(0, n + 1, 2).tolist()) for n in shape]
        selection = tuple(slice(*pair) for pair in bounds) if writes else ...
        values = random.integers(1, 2**31, shape, "i4")
        for _ in range(random.integers(0, 4)):
            place = [slice(*sorted(random.integers(0, n + 1, 2).tolist())) for n in shape]
            values[tuple(place)] = 0
        writes.append((selection, values[selection]))
    write_empty_chunks = data.draw(st.booleans())
    stored = []
    for settings in PLAIN_ZARR, {"codec_pipeline.path": pipeline_with(data.draw(thresholds()))}:
        with zarr.config.set(settings):
            config = {"write_empty_chunks": write_empty_chunks}
            array = array_in(MemoryStore(), codec, shape, filters, config=config)
            is_own = isinstance(pipeline_of(array), BatchedBytesPipeline)
            assert is_own is not (settings is PLAIN_ZARR)
            for selection, values in writes:
                array[selection] = values
        stored.append(contents_of(array.store))
    theirs, ours = stored
    assert ours == theirs


class TestTheOrderOfTheCodec:
    @every_order
    def test_a_new_shard_has_it(self, order):
        array = array_in(MemoryStore(), sharding(order))
        array[...] = VALUES
        assert numbers_as_stored(array.store) == ORDERS[order]

    @every_order
    def test_a_shard_that_is_replaced_has_it(self, tmp_path, order):
        array = array_in(tmp_path, sharding(order))
        with zarr.config.set(PLAIN_ZARR):
            zarr.open_array(tmp_path)[...] = VALUES
        assert numbers_as_stored(array.store) == ORDERS["morton"]
        array[3] = -VALUES[3]
        assert numbers_as_stored(array.store) == ORDERS[order]

    @every_order
    def test_a_pickled_array_keeps_it(self, tmp_path, order):
        for settings in {}, IN_PLACE:
            with zarr.config.set(settings):
                array = array_in(tmp_path, sharding(order), overwrite=True)
            array = pickle.loads(pickle.dumps(array))  # noqa: S301
            array[...] = VALUES
            assert numbers_as_stored(array.store) == ORDERS[order]

    @pytest.mark.newest
    @needs_write_order
    def test_an_array_that_is_opened_again_has_the_default_as_in_zarr(self, tmp_path):
        array_in(tmp_path, sharding("colexicographic"))
        array = zarr.open_array(tmp_path)
        array[...] = VALUES
        assert numbers_as_stored(array.store) == ORDERS["morton"]

    @every_order
    @needs_pwrite
    @pytest.mark.parametrize("fill_value", [0, 7])
    @pytest.mark.parametrize("location", ["start", "end"])
    def test_a_new_shard_of_which_a_part_is_written_has_it(
        self, tmp_path, order, fill_value, location
    ):
        """By processes that write in place, and in advance."""
        expected = np.full(SHAPE, fill_value, "i4")
        with zarr.config.set(IN_PLACE):
            for name in "written", "made":
                codec = sharding(order, location=location)
                array = array_in(tmp_path / name, codec, fill_value=fill_value)
                if name == "made":
                    assert preallocate(array).made == 1
                array[2:5, 4] = VALUES[2:5, 4]
                expected[2:5, 4] = VALUES[2:5, 4]
                assert numbers_as_stored(array.store, location) == ORDERS[order]
                with zarr.config.set(PLAIN_ZARR):
                    assert np.array_equal(zarr.open_array(tmp_path / name)[...], expected)

    @every_order
    @needs_pwrite
    def test_a_shard_that_is_completed_has_it(self, tmp_path, order):
        array = array_in(tmp_path, sharding(order))
        array[:, :7] = VALUES[:, :7]
        with zarr.config.set(IN_PLACE):
            assert preallocate(array).completed == 1
        assert numbers_as_stored(array.store) == ORDERS[order]

    @pytest.mark.newest
    @needs_write_order
    def test_an_order_of_a_newer_zarr_is_left_to_its_pipeline(self):
        codec = ShardingCodec(chunk_shape=INNER, codecs=[zarr_bytes.BytesCodec()])
        assert isinstance(BatchedBytesPipeline.from_codecs([codec]), BatchedBytesPipeline)
        object.__setattr__(codec, "subchunk_write_order", "hilbert")
        assert not isinstance(BatchedBytesPipeline.from_codecs([codec]), BatchedBytesPipeline)


def test_the_read_of_a_shard_of_more_inner_chunks_than_memory_has_is_explained():
    for size in 2**20, 2**40:
        array = array_in(MemoryStore(), sharding(inner_shape=(1, 1)), (size, size))
        assert explain(array, np.s_[3, 7]).chunks_assumed == 1
        assert explain(array, np.s_[3, 7], write=True).chunks_assumed == 1


@pytest.mark.parametrize(
    "order",
    ["morton", pytest.param("lexicographic", marks=[pytest.mark.newest, needs_write_order])],
)
def test_a_shard_that_is_not_looked_at_is_explained_in_the_order_of_the_codec(order):
    """A row, which has five inner chunks one after another in C order alone."""
    array = array_in(CountingStore(MemoryStore()), sharding(order))
    array[...] = VALUES
    for gap in 0, 16:
        with zarr.config.set({"zarr_bytes.gap.remote": gap}):
            explained = explain(array, 3)
            array.store.requests.clear()
            assert np.array_equal(array[3], VALUES[3])
        assert explained.requests == len(array.store.requests)
        if gap:
            assert (explained.requests == 2) is (order == "lexicographic")


RANDOM = np.random.default_rng(0).permutation(20).tolist()
PARTS = [encoded(part, "int32", "big") for part in divided(VALUES, INNER)]


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("gap", [b"", b"gap"], ids=["dense", "with gaps"])
@pytest.mark.parametrize(
    "places", [*ORDERS.values(), [*range(20)][::-1], RANDOM], ids=[*ORDERS, "reversed", "random"]
)
class TestAShardInAnyOrder:
    @pytest.fixture
    def folder(self, tmp_path, places, gap, location):
        array_in(tmp_path, sharding(location=location))
        path = tmp_path / "c/0/0"
        path.parent.mkdir(parents=True)
        path.write_bytes(shard_of(PARTS, location, places=places, gap=gap))
        return tmp_path

    def test_is_read_viewed_and_checked(self, folder):
        array = zarr.open_array(folder, mode="r")
        for selection in np.s_[3], np.s_[:, 7], np.s_[1:6, 2:11:4], np.s_[5, 5], ...:
            assert np.array_equal(array[selection], VALUES[selection])
            assert np.array_equal(view(array)[selection], VALUES[selection])
        assert np.array_equal(array.oindex[[6, 1], [14, 0, 3]], VALUES[np.ix_([6, 1], [14, 0, 3])])
        assert np.array_equal(array.vindex[[6, 1], [14, 3]], VALUES[[6, 1], [14, 3]])
        report = check(folder)
        assert report.conforms
        assert report.is_complete

    @needs_pwrite
    def test_is_written_in_place(self, folder, places, gap, location):
        path, values = folder / "c/0/0", VALUES.copy()
        inode = path.stat().st_ino
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(folder)
            assert preallocate(array).completed == 0
            array[1:6, 2:11:4] = values[1:6, 2:11:4] = -VALUES[1:6, 2:11:4]
            array.vindex[[7, 0], [14, 3]] = values[[7, 0], [14, 3]] = [5, 6]
            view(array, "r+")[4] = values[4] = 9
        parts = [encoded(part, "int32", "big") for part in divided(values, INNER)]
        assert path.read_bytes() == shard_of(parts, location, places=places, gap=gap)
        assert path.stat().st_ino == inode

    def test_is_rebuilt_in_the_order_of_the_codec_without_gaps(self, folder, location):
        array, values = zarr.open_array(folder), VALUES.copy()
        array[1:6, 2:11:4] = values[1:6, 2:11:4] = -VALUES[1:6, 2:11:4]
        parts = [encoded(part, "int32", "big") for part in divided(values, INNER)]
        expected = shard_of(parts, location, places=ORDERS["morton"])
        assert (folder / "c/0/0").read_bytes() == expected
