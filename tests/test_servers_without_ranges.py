"""Stores that have no byte ranges: servers that send the whole object, and stores that refuse."""

import asyncio
import gc
import shutil
import warnings
import weakref
from itertools import product
from time import monotonic

import numpy as np
import pytest
import zarr
from servers import Compressed, NextPlane, WithoutRanges, serving
from stored_arrays import PLAIN_ZARR, CountingStore, numbers, store_at, stored
from zarr.abc.store import OffsetByteRequest, Store, SuffixByteRequest
from zarr.storage import FsspecStore, LocalStore, MemoryStore

from zarr_bytes import ChunkSizeError, counting, explain
from zarr_bytes.io.known_stores import known_stores

VALUES = numbers((60, 50, 50))  # 60 planes of 20,000 bytes, in one chunk or two
PLANE, NBYTES = 20_000, 1_200_000
SELECTIONS = [
    *(np.s_[0], np.s_[7], np.s_[7, 8, 9], np.s_[10:20, 20:40], np.s_[:, 5, 6]),
    *(np.s_[5:5], ...),
]
WARNING = "does not answer byte ranges"
KEY = "c/0/0/0"


@pytest.fixture(autouse=True)
def _small_gaps_and_requests():
    remote = {"zarr_bytes.gap.remote": 4096, "zarr_bytes.largest_request.remote": 50_000}
    with zarr.config.set(remote):
        yield


def test_a_server_without_ranges_sends_the_whole_chunk_with_a_warning(tmp_path):
    stored(LocalStore(tmp_path), VALUES)
    with serving(tmp_path, WithoutRanges) as server:
        array = zarr.open_array(store_at(server.url, "obstore"), mode="r")
        with pytest.warns(UserWarning, match=WARNING):
            assert np.array_equal(array[7], VALUES[7])


# aiohttp's sessions are closed when their loop is.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
class TestPythonsHttpServer:
    """Of two chunks, or of two shards with their indexes."""

    @pytest.mark.parametrize("is_sharded", [False, True], ids=["chunks", "shards"])
    def test_each_chunk_comes_whole_once_and_later_ones_are_requested_without_a_range(
        self, tmp_path, client, is_sharded
    ):
        rows, shards = (10, (30, 50, 50)) if is_sharded else (30, None)
        stored(LocalStore(tmp_path), VALUES, chunks=(rows, 50, 50), shards=shards)
        with serving(tmp_path, WithoutRanges) as server:
            array = zarr.open_array(store_at(server.url, client), mode="r")
            with pytest.warns(UserWarning, match=WARNING) as caught:
                found = array[:30, 5, 6]  # 30 ranges of the first chunk
            assert np.array_equal(found, VALUES[:30, 5, 6])
            assert [warned.filename for warned in caught] == [__file__]
            stores = {"fsspec": "FsspecStore({})", "obstore": 'ObjectStore(HTTPStore("{}/"))'}
            assert str(caught[0].message) == (
                f"{stores[client].format(server.url)} does not answer byte ranges, so chunks are"
                " fetched whole each time"
                f" that a part of them is read: {600000 + 52 * is_sharded} bytes here, where 240"
                " were needed; from a server that answers ranges, such as nginx, only the"
                " needed bytes are fetched"
            )
            if not is_sharded:
                assert server.asked == ["bytes=2048-2055", None][: 1 + (client == "obstore")]
            server.asked.clear()
            assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])
            assert np.array_equal(array[7], VALUES[7])
            assert server.asked == [None, None, None]

    def test_a_truncated_object_is_an_error_with_the_sizes_of_the_chunk(self, client, tmp_path):
        stored(LocalStore(tmp_path), VALUES, chunks=(30, 50, 50))
        chunk = tmp_path / KEY
        chunk.write_bytes(chunk.read_bytes()[:-1])
        message = r"bytes 0 to 600000 of .*c/0/0/0 are 600000 bytes, found 599999: .* truncated"
        with serving(tmp_path, WithoutRanges) as server:
            for selection in np.s_[7], np.s_[:30, 5, 6], ...:
                array = zarr.open_array(store_at(server.url, client), mode="r")
                with pytest.raises(ChunkSizeError, match=message):
                    array[selection]
            chunk.unlink()
            array = zarr.open_array(store_at(server.url, client), mode="r")
            assert (array[:30, 5, 6] == 0).all()


@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.filterwarnings(f"ignore:.* {WARNING}")
@pytest.mark.parametrize("index_location", [None, "start", "end"])
def test_objects_that_a_server_keeps_compressed_come_whole(tmp_path, index_location):
    """Plain zarr reads them: no range of theirs can be decoded, and some end behind them."""
    layout = {"chunks": (30, 50, 50)}
    if index_location:
        shards = {"shape": (30, 50, 50), "index_location": index_location}
        layout = {"chunks": (10, 50, 50), "shards": shards}
    for name, values in ("small", VALUES // 1000), ("large", np.sqrt(VALUES)):
        stored(LocalStore(tmp_path / name), values, **layout)
        with serving(tmp_path, Compressed) as server:
            for selection in 0, 7, np.s_[:, 5, 6], ...:
                array = zarr.open_array(store_at(f"{server.url}/{name}", "fsspec"), mode="r")
                for _ in range(2):
                    assert np.array_equal(array[selection], values[selection])


def test_a_short_answer_to_a_range_is_followed_by_a_request_for_the_chunk():
    def answer(value, byte_range):
        short = next(answers, 0)
        return value[byte_range.start : byte_range.end - short]

    answers = iter([PLANE - 1, 0])
    array, objects = answered(answer)
    array.store.requests.clear()
    for index in 7, 8:
        assert np.array_equal(array[index], VALUES[index])
    first, whole, last = array.store.requests
    assert (whole, first.end - first.start, last.end - last.start) == (None, PLANE, PLANE)
    # Where another range of it has come, it is not kept compressed.
    objects[KEY] = objects[KEY][: 10 * PLANE]
    array.store.requests.clear()
    with pytest.raises(ChunkSizeError, match="are 8 bytes, found 0: "):
        array[:, 5, 6]
    assert None not in array.store.requests


class Answering(CountingStore):
    """Ranges are answered with `answer(object, range)`."""

    def __init__(self, store, answer):
        super().__init__(store)
        self._answer = answer

    def _with_store(self, store):
        return type(self)(store, self._answer)

    async def get(self, key, prototype, byte_range=None):
        await super().get(key, prototype, byte_range)
        await asyncio.sleep(0)  # others begin
        value = await self._store.get(key, prototype)
        return value if byte_range is None else self._answer(value, byte_range)


def whole_object(value, byte_range):
    return value


def refusal(value, byte_range):
    raise NotImplementedError("no ranges")


def answered(answer, **options):
    """An array whose ranges are answered so, and what its store holds, by key."""
    array = stored(Answering(MemoryStore(), answer), VALUES, **options)
    return array, array.store._store._store_dict


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("answer", [whole_object, refusal])
def test_the_first_read_has_one_range_and_the_second_none(answer):
    """And another store is asked anew."""
    for selection in SELECTIONS:
        array, _ = answered(answer)
        is_asked = VALUES[selection].size > 0
        is_ranged, requests = is_asked and selection is not ..., array.store.requests
        requests.clear()
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            assert np.array_equal(array[selection], VALUES[selection])
            assert len(requests) - requests.count(None) == is_ranged
            assert len(requests) == is_asked + (is_ranged and answer is refusal)
            requests.clear()
            assert np.array_equal(array[selection], VALUES[selection])
        assert requests == [None] * is_asked
        assert sum(WARNING in str(warned.message) for warned in record) == is_ranged
        name = f"{type(array.store).__name__}({array.store._store})"
        said = f"{name} has answered a byte range with a whole object, or refused it"
        explained = explain(array, 7)
        assert (explained.reason == said) == is_ranged
        assert explained.remedy.startswith("serve the objects from a server") == is_ranged


@pytest.mark.parametrize("answer", [whole_object, refusal])
def test_a_store_without_ranges_is_asked_for_one_again_after_ten_minutes(monkeypatch, answer):
    """Without a second warning."""
    array, _ = answered(answer)
    with pytest.warns(UserWarning, match=WARNING):
        array[7]
    array.store.requests.clear()
    for seconds, ranges in (598, 0), (602, 1):
        monkeypatch.setattr(known_stores, "clock", lambda seconds=seconds: monotonic() + seconds)
        for index in 8, 9:
            assert np.array_equal(array[index], VALUES[index])
        assert len(array.store.requests) - array.store.requests.count(None) == ranges


@pytest.mark.parametrize(("instead", "number"), [*product([whole_object, refusal], [1, 2, 7, 30])])
def test_a_chunk_may_come_whole_after_some_of_its_ranges(instead, number):
    """As from several servers behind one name; all of it is in 30 ranges, the last open-ended."""

    def answer(value, byte_range):
        if next(left, None) is None:
            return instead(value, byte_range)
        is_end = isinstance(byte_range, OffsetByteRequest)
        return value[byte_range.offset :] if is_end else value[byte_range.start : byte_range.end]

    for selection in np.s_[:, 5, 6], ...:
        left = iter(range(number))
        array, _ = answered(answer)
        with zarr.config.set({"zarr_bytes.gap.remote": 0}):
            assert array[1, 5, 6] == VALUES[1, 5, 6]  # now the store is known to have ranges
            array.store.requests.clear()
            with pytest.warns(UserWarning, match=WARNING):
                assert np.array_equal(array[selection], VALUES[selection])
            assert array.store.requests.count(None) <= 1


@pytest.mark.filterwarnings("ignore:.* does not answer byte ranges")
def test_a_store_that_would_read_a_shard_for_its_size_is_not_asked_for_that():
    store_class = type("Sizeless", (Answering,), {"getsize": Store.getsize})
    store = store_class(MemoryStore(), refusal)
    array = stored(store, VALUES, chunks=(10, 50, 50), shards=VALUES.shape)
    store.requests.clear()
    assert np.array_equal(array[7], VALUES[7])
    assert store.requests == [SuffixByteRequest(6 * 16 + 4), None]


@pytest.mark.filterwarnings("ignore:.* does not answer byte ranges")
@pytest.mark.parametrize("answer", [whole_object, refusal])
def test_a_shard_that_came_instead_of_its_index_is_waited_for_by_no_fetch(answer):
    """Of which all of it takes several."""
    array, _ = answered(answer, chunks=(10, 50, 50), shards=VALUES.shape)
    reading = asyncio.wait_for(array.async_array.getitem(...), 10)
    assert np.array_equal(asyncio.run(reading), VALUES)


def through_fsspec(url):
    """An array at a URL of several protocols."""
    pytest.importorskip("fsspec")
    return zarr.open_array(FsspecStore.from_url(url, read_only=True), mode="r")


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("rows", [60, 10], ids=["a chunk", "a shard"])
def test_an_object_of_an_archive_of_fsspec_is_one_request(tmp_path, kind, rows):
    """Ranges would move the position of the archive, which is one for all threads."""
    shards = VALUES.shape if rows < 60 else None
    stored(LocalStore(tmp_path / "a"), VALUES, chunks=(rows, 50, 50), shards=shards)
    shutil.make_archive(tmp_path / "b", kind, tmp_path, "a")
    array = through_fsspec(f"{kind}://a::file://{tmp_path}/b.{kind}")
    explained = explain(array, np.s_[:, 5, 6])
    with counting() as counted:
        assert np.array_equal(array[:, 5, 6], VALUES[:, 5, 6])
    assert explained.requests == counted.requests == 1
    assert explained.bytes_fetched == counted.bytes_fetched >= NBYTES
    assert "fsspec reads an archive at one position" in explained.reason
    assert "zarr.storage.ZipStore" in explained.remedy


def test_a_shard_is_read_through_a_cache_of_fsspec(tmp_path):
    """Which has no ranges from the end."""
    stored(LocalStore(tmp_path), VALUES, chunks=(10, 50, 50), shards=VALUES.shape)
    array = through_fsspec(f"simplecache::file://{tmp_path}")
    with counting() as counted:
        assert np.array_equal(array[7], VALUES[7])
    assert counted.bytes_fetched == PLANE + 6 * 16 + 4


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


def test_a_shard_that_ends_before_a_range_is_an_error_of_a_store_that_tells_no_size():
    """And the store still has ranges: an index names what is there."""

    def answer(value, byte_range):
        if byte_range.start >= len(value):
            raise error
        return value[byte_range.start : byte_range.end]

    error = OSError("not satisfiable")
    error.status = 416
    store = type("Sizeless", (Answering,), {"getsize": Store.getsize})(MemoryStore(), answer)
    shards = {"shape": (30, 50, 50), "index_location": "start"}
    array = stored(store, VALUES, chunks=(10, 50, 50), shards=shards)
    objects = store._store._store_dict
    objects["c/1/0/0"] = objects["c/1/0/0"][:2000]
    with pytest.raises(ChunkSizeError, match="are 20000 bytes, found 0: ") as caught:
        array[55]
    assert caught.value.__cause__ is error
    store.requests.clear()
    assert np.array_equal(array[7], VALUES[7])
    assert len(store.requests) == 2
    assert None not in store.requests


class TestSizes:
    def test_an_answer_shorter_than_the_range_or_longer_than_the_chunk_is_an_error(self):
        array, objects = answered(whole_object)
        content = objects[KEY].combine([objects[KEY][:1]])
        for found, size in (0, PLANE), (PLANE - 1, PLANE), (NBYTES + 1, NBYTES):
            objects[KEY] = content[:found]
            with pytest.raises(ChunkSizeError, match=rf"are {size} bytes, found {found}: "):
                array[7]

    def test_an_object_cut_to_the_very_size_of_the_range_is_told_once_the_store_is_known(self):
        """Before that, nothing tells its bytes from the range: the guide says so."""
        array, objects = answered(whole_object)
        whole = objects[KEY]
        objects[KEY] = whole[:PLANE]
        assert np.array_equal(array[0], VALUES[0])  # the bytes that were asked for
        assert np.array_equal(array[7], VALUES[0])
        objects[KEY] = whole
        with pytest.warns(UserWarning, match=WARNING):
            array[8]
        objects[KEY] = whole[:PLANE]
        with pytest.raises(ChunkSizeError, match=f"are {NBYTES} bytes, found {PLANE}"):
            array[7]

    @pytest.mark.filterwarnings("ignore:.* does not answer byte ranges")
    @pytest.mark.parametrize(("is_refused", "nbytes"), [(False, PLANE + 1), (True, 9), (True, -1)])
    def test_of_a_shard_whose_index_came_as_a_range_a_longer_or_cut_answer_is_an_error(
        self, is_refused, nbytes
    ):
        """A longer one is not the whole shard; the other is cut before it comes whole."""

        def answer(value, byte_range):
            if isinstance(byte_range, SuffixByteRequest):
                return value[len(value) - byte_range.suffix :]
            if not is_refused:
                return value[byte_range.start : byte_range.end + 1]
            objects[KEY] = value[: 7 * PLANE + nbytes]
            raise NotImplementedError("no ranges")

        array, objects = answered(answer, chunks=(10, 50, 50), shards=VALUES.shape)
        message = f"bytes 140000 to 160000 of .*{KEY} are {PLANE} bytes, found {max(nbytes, 0)}:"
        with pytest.raises(ChunkSizeError, match=message):
            array[7]


@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.parametrize("config", [{}, PLAIN_ZARR], ids=["own", "plain zarr"])
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_a_range_from_another_place_is_wrong_values_through_fsspec_and_an_error_through_obstore(
    tmp_path, client, config
):
    stored(LocalStore(tmp_path), VALUES, chunks=(1, 50, 50), shards=(60, 50, 50))
    with serving(tmp_path, NextPlane) as server, zarr.config.set(config):
        array = zarr.open_array(store_at(server.url, client), mode="r")
        if client == "fsspec":
            assert np.array_equal(array[7], VALUES[8])
        else:
            with pytest.raises(Exception) as caught:  # noqa: PT011 -- zarr's is a group of errors
                array[7]
            assert "Requested 140000..160000, got 160000..180000" in repr(caught.value)
