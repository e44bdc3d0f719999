"""Stores that have no byte ranges: servers that send the whole object, and stores that refuse."""

import functools
import gc
import http.server
import threading
import warnings
import weakref
from contextlib import suppress

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE
from stored_arrays import CountingStore, numbers, store_at, stored
from zarr.abc.store import SuffixByteRequest
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import ChunkSizeError

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
def _small_gap():
    with zarr.config.set({"zarr_bytes.gap.remote": 4096}):
        yield


def warned(record):
    return [str(w.message) for w in record if WARNING in str(w.message)]


class Handler(http.server.SimpleHTTPRequestHandler):
    """The handler of ``python -m http.server``, which keeps what was asked for."""

    def do_GET(self):
        if "/c/" in self.path:
            self.server.requests.append(self.headers["Range"])
        with suppress(ConnectionError):  # a client that has what it needs hangs up
            super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """``python -m http.server`` in a folder that holds an array of two chunks."""
    stored(LocalStore(tmp_path), VALUES, chunks=(30, 50, 50))
    handler = functools.partial(Handler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


def open_url(client, url):
    return zarr.open_array(store_at(url, client), mode="r")


# aiohttp's sessions are closed when their loop is.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
class TestPythonsHttpServer:
    def test_each_chunk_comes_once_and_the_later_ones_without_a_range(self, server, client):
        array = open_url(client, server.url)
        with pytest.warns(UserWarning, match=WARNING) as caught:
            found = array[:30, 5, 6]  # 30 ranges of the first chunk
        assert np.array_equal(found, VALUES[:30, 5, 6])
        assert caught[0].filename == __file__
        for words in (server.url, "600000", "240 were needed"):
            assert words in str(caught[0].message)
        refused = ["bytes=2048-2055"]
        assert server.requests == refused + ([] if client == "fsspec" else [None])
        server.requests.clear()
        assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])
        assert np.array_equal(array[7], VALUES[7])
        assert server.requests == [None, None, None]

    def test_a_truncated_object_is_an_error_with_the_sizes_of_the_chunk(
        self, server, client, tmp_path
    ):
        chunk = tmp_path / "c/0/0/0"
        chunk.write_bytes(chunk.read_bytes()[:-1])
        message = r"bytes 0 to 600000 of .*c/0/0/0 are 600000 bytes, found 599999: .* truncated"
        for selection in np.s_[7], np.s_[:30, 5, 6], ...:
            array = open_url(client, server.url)
            with pytest.raises(ChunkSizeError, match=message):
                array[selection]

    def test_a_missing_chunk_is_the_fill_value(self, server, client, tmp_path):
        (tmp_path / "c/0/0/0").unlink()
        assert (open_url(client, server.url)[:30, 5, 6] == 0).all()


class WithoutRanges(CountingStore):
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


class SynchronouslyWithoutRanges(WithoutRanges):
    _supports_sync_io = True

    def get_sync(self, key, *, prototype=None, byte_range=None):
        if not key.endswith("zarr.json"):
            self.requests.append(byte_range)
        value = self._store.get_sync(key, prototype=prototype)
        return value if byte_range is None else self._answer(value, byte_range)


def whole_object(value, byte_range):
    return value


def refusal(value, byte_range):
    raise NotImplementedError("no ranges")


STORES = [WithoutRanges] + [SynchronouslyWithoutRanges] * HAS_FUSED_PIPELINE


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("answer", [whole_object, refusal])
class TestRequests:
    def test_the_first_read_has_one_range_and_the_second_none(self, kind, answer):
        for name, selection in SELECTIONS.items():
            array = stored(kind(MemoryStore(), answer), VALUES)
            store, is_asked = array.store_path.store, name != "nothing"
            store.requests.clear()
            with warnings.catch_warnings(record=True) as record:
                warnings.simplefilter("always")
                assert np.array_equal(array[selection], VALUES[selection])
                ranged = [request for request in store.requests if request is not None]
                assert len(ranged) == len(warned(record)) == (name not in ("whole", "nothing"))
                assert len(store.requests) == is_asked + (bool(ranged) and answer is refusal)
                store.requests.clear()
                assert np.array_equal(array[selection], VALUES[selection])
            assert store.requests == [None] * is_asked
            assert len(warned(record)) <= 1

    def test_another_store_is_asked_anew(self, kind, answer):
        for _ in range(2):
            array = stored(kind(MemoryStore(), answer), VALUES)
            with pytest.warns(UserWarning, match=WARNING):
                array[7]


@pytest.mark.parametrize("instead", [whole_object, refusal])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_chunk_may_come_whole_after_some_of_its_ranges(instead, number):
    """As from several servers behind one name."""
    left = iter(range(number))

    def answer(value, byte_range):
        is_range = next(left, None) is not None
        return value[byte_range.start : byte_range.end] if is_range else instead(value, byte_range)

    array = stored(WithoutRanges(MemoryStore(), answer), VALUES)
    with zarr.config.set({"zarr_bytes.gap.remote": 0}), pytest.warns(UserWarning, match=WARNING):
        assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])


@pytest.mark.filterwarnings("ignore:.* does not answer byte ranges")
@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_store_that_nobody_uses_is_forgotten(has_ranges):
    store = MemoryStore()
    store = CountingStore(store) if has_ranges else WithoutRanges(store, whole_object)
    array, store = stored(store, VALUES), weakref.ref(store)
    array[7]
    del array
    stored(MemoryStore(), np.zeros(1))[...]  # the pipeline keeps nothing of the last read
    gc.collect()
    assert store() is None


class TestSizes:
    @pytest.fixture
    def objects(self):
        """What is in a store that sends whole objects; its array has one chunk."""
        self.array = stored(WithoutRanges(MemoryStore(), whole_object), VALUES)
        return self.array.store_path.store._store._store_dict

    @pytest.mark.parametrize("size", [0, 19_999])
    def test_fewer_bytes_than_the_range_are_an_error(self, objects, size):
        objects[KEY] = objects[KEY][:size]
        with pytest.raises(ChunkSizeError, match=rf"are 20000 bytes, found {size}: .* truncated"):
            self.array[7]

    def test_more_bytes_than_the_chunk_are_an_error(self, objects):
        objects[KEY] = objects[KEY].combine([objects[KEY][:1]])
        with pytest.raises(ChunkSizeError, match="are 1200000 bytes, found 1200001"):
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

        store = WithoutRanges(MemoryStore(), index_or_answer)
        return stored(store, VALUES, chunks=(10, 50, 50), shards=VALUES.shape)

    def test_more_bytes_than_the_range_are_an_error(self):
        array = self.array(lambda value, asked: value[asked.start : asked.end + 1])
        with pytest.raises(ChunkSizeError, match="are 20000 bytes, found 20001"):
            array[7]

    def test_a_shard_that_is_cut_before_it_comes_whole_is_an_error(self):
        def cut_and_refused(value, byte_range):
            objects["c/0/0/0"] = value[:150_000]
            raise NotImplementedError("no ranges")

        array = self.array(cut_and_refused)
        objects = array.store_path.store._store._store_dict
        found = pytest.raises(ChunkSizeError, match="are 20000 bytes, found 10000")
        with pytest.warns(UserWarning, match=WARNING), found:
            array[7]
