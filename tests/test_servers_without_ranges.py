"""Stores that have no byte ranges: servers that send the whole object, and stores that refuse."""

import gc
import warnings
import weakref

import numpy as np
import pytest
import zarr
from servers import WithoutRanges, serving
from stored_arrays import CountingStore, numbers, store_at, stored
from zarr.abc.store import SuffixByteRequest
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import ChunkSizeError, explain

VALUES = numbers((60, 50, 50))  # 60 planes of 20,000 bytes, in one chunk or two
SELECTIONS = {
    "first bytes": np.s_[0],
    "plane": np.s_[7],
    "point": np.s_[7, 8, 9],
    "box": np.s_[10:20, 20:40],
    "column": np.s_[:, 5, 6],
    "nothing": np.s_[5:5],
    "whole": ...,
}
WARNING = "does not answer byte ranges"
KEY = "c/0/0/0"


@pytest.fixture(autouse=True)
def _small_gaps_and_requests():
    remote = {"zarr_bytes.gap.remote": 4096, "zarr_bytes.largest_request.remote": 50_000}
    with zarr.config.set(remote):
        yield


def opened(server, client):
    return zarr.open_array(store_at(server.url, client), mode="r")


# aiohttp's sessions are closed when their loop is.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
class TestPythonsHttpServer:
    @pytest.fixture
    def server(self, tmp_path):
        """Of an array of two chunks."""
        stored(LocalStore(tmp_path), VALUES, chunks=(30, 50, 50))
        with serving(tmp_path, WithoutRanges) as server:
            yield server

    def test_each_chunk_comes_once_and_the_later_ones_without_a_range(self, server, client):
        array = opened(server, client)
        with pytest.warns(UserWarning, match=WARNING) as caught:
            found = array[:30, 5, 6]  # 30 ranges of the first chunk
        assert np.array_equal(found, VALUES[:30, 5, 6])
        assert caught[0].filename == __file__
        for words in (server.url, "600000", "240 were needed"):
            assert words in str(caught[0].message)
        refused = ["bytes=2048-2055"]
        assert server.asked == refused + ([] if client == "fsspec" else [None])
        server.asked.clear()
        assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])
        assert np.array_equal(array[7], VALUES[7])
        assert server.asked == [None, None, None]

    def test_a_shard_comes_whole_and_once(self, tmp_path, client):
        """Its index is part of it."""
        stored(LocalStore(tmp_path), VALUES, chunks=(10, 50, 50), shards=(30, 50, 50))
        with serving(tmp_path, WithoutRanges) as server:
            array = opened(server, client)
            with pytest.warns(UserWarning, match=WARNING):
                assert np.array_equal(array[:30, 5, 6], VALUES[:30, 5, 6])
            server.asked.clear()
            assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])
            assert server.asked == [None, None]

    def test_a_truncated_object_is_an_error_with_the_sizes_of_the_chunk(
        self, server, client, tmp_path
    ):
        chunk = tmp_path / KEY
        chunk.write_bytes(chunk.read_bytes()[:-1])
        message = r"bytes 0 to 600000 of .*c/0/0/0 are 600000 bytes, found 599999: .* truncated"
        for selection in np.s_[7], np.s_[:30, 5, 6], ...:
            with pytest.raises(ChunkSizeError, match=message):
                opened(server, client)[selection]
        chunk.unlink()
        assert (opened(server, client)[:30, 5, 6] == 0).all()


class Answering(CountingStore):
    """Ranges are answered with `answer(object, range)`."""

    def __init__(self, store, answer):
        super().__init__(store)
        self._answer = answer

    def _with_store(self, store):
        return type(self)(store, self._answer)

    async def get(self, key, prototype, byte_range=None):
        await super().get(key, prototype, byte_range)
        value = await self._store.get(key, prototype)
        return value if byte_range is None else self._answer(value, byte_range)


def whole_object(value, byte_range):
    return value


def refusal(value, byte_range):
    raise NotImplementedError("no ranges")


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("answer", [whole_object, refusal])
def test_the_first_read_has_one_range_and_the_second_none(answer):
    """And another store is asked anew."""
    for name, selection in SELECTIONS.items():
        array = stored(Answering(MemoryStore(), answer), VALUES)
        is_asked, is_ranged = name != "nothing", name not in ("whole", "nothing")
        array.store.requests.clear()
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            assert np.array_equal(array[selection], VALUES[selection])
            ranged = [request for request in array.store.requests if request is not None]
            assert len(ranged) == is_ranged
            assert len(array.store.requests) == is_asked + (is_ranged and answer is refusal)
            array.store.requests.clear()
            assert np.array_equal(array[selection], VALUES[selection])
        assert array.store.requests == [None] * is_asked
        assert sum(WARNING in str(warned.message) for warned in record) == is_ranged
        said = "answered a byte range with a whole object"
        assert (said in explain(array, 7).reason) == is_ranged


@pytest.mark.parametrize("instead", [whole_object, refusal])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_chunk_may_come_whole_after_some_of_its_ranges(instead, number):
    """As from several servers behind one name."""
    left = iter(range(number))

    def answer(value, byte_range):
        is_range = next(left, None) is not None
        return value[byte_range.start : byte_range.end] if is_range else instead(value, byte_range)

    array = stored(Answering(MemoryStore(), answer), VALUES)
    with zarr.config.set({"zarr_bytes.gap.remote": 0}), pytest.warns(UserWarning, match=WARNING):
        assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])


@pytest.mark.filterwarnings("ignore:.* does not answer byte ranges")
def test_a_store_that_nobody_uses_is_forgotten():
    stores = [CountingStore(MemoryStore()), Answering(MemoryStore(), whole_object)]
    for store in stores:
        stored(store, VALUES)[7]
    kept = list(map(weakref.ref, stores))
    del store, stores
    stored(MemoryStore(), np.zeros(1))[...]  # the pipeline keeps nothing of the last read
    gc.collect()
    assert [store() for store in kept] == [None, None]


class TestSizes:
    @pytest.fixture
    def objects(self):
        """What is in a store that sends whole objects; its array has one chunk."""
        self.array = stored(Answering(MemoryStore(), whole_object), VALUES)
        return self.array.store_path.store._store._store_dict

    def test_fewer_bytes_than_the_range_and_more_than_the_chunk_are_an_error(self, objects):
        content = objects[KEY].combine([objects[KEY][:1]])
        for found, size in (0, 20_000), (19_999, 20_000), (1_200_001, 1_200_000):
            objects[KEY] = content[:found]
            with pytest.raises(ChunkSizeError, match=rf"are {size} bytes, found {found}: "):
                self.array[7]

    def test_an_object_cut_to_the_very_size_of_the_range_is_told_once_the_store_is_known(
        self, objects
    ):
        """Before that, nothing tells its bytes from the range: the guide says so."""
        whole = objects[KEY]
        objects[KEY] = whole[:20_000]
        assert np.array_equal(self.array[0], VALUES[0])  # the bytes that were asked for
        assert np.array_equal(self.array[7], VALUES[0])
        objects[KEY] = whole
        with pytest.warns(UserWarning, match=WARNING):
            self.array[8]
        objects[KEY] = whole[:20_000]
        with pytest.raises(ChunkSizeError, match="are 1200000 bytes, found 20000"):
            self.array[7]


class TestShards:
    """Their index has come as a range, so that a longer answer is not the whole shard."""

    def array(self, answer):
        def index_or_answer(value, byte_range):
            if isinstance(byte_range, SuffixByteRequest):
                return value[len(value) - byte_range.suffix :]
            return answer(value, byte_range)

        store = Answering(MemoryStore(), index_or_answer)
        return stored(store, VALUES, chunks=(10, 50, 50), shards=VALUES.shape)

    def test_more_bytes_than_the_range_are_an_error(self):
        array = self.array(lambda value, asked: value[asked.start : asked.end + 1])
        with pytest.raises(ChunkSizeError, match="are 20000 bytes, found 20001"):
            array[7]

    def test_a_shard_that_is_cut_before_it_comes_whole_is_an_error(self):
        def cut_and_refused(value, byte_range):
            objects[KEY] = value[:150_000]
            raise NotImplementedError("no ranges")

        array = self.array(cut_and_refused)
        objects = array.store_path.store._store._store_dict
        found = pytest.raises(ChunkSizeError, match="are 20000 bytes, found 10000")
        with pytest.warns(UserWarning, match=WARNING), found:
            array[7]
