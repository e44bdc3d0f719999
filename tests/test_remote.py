"""Reads of remote stores on a simulated clock: how long, how many requests, how many at a time.

An answer begins 30 ms after its request, and each comes at 50 MB/s, ten at a time; all sizes are a
64th of those of a real store. Time is exact here, as nothing but the requests takes any. It is
compared with that of the selected ranges in the best order, which are found in the stored bytes.
"""

import asyncio
import http.server
import re
import selectors
import threading
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import zarr
from slow_server import SLOTS, best, joined
from stored_arrays import CountingStore, most_memory, numbers, stored
from test_real_stores import store_at
from zarr.abc.store import SuffixByteRequest
from zarr.storage import LocalStore, MemoryStore, ObjectStore

import zarr_bytes
from zarr_bytes import ChunkSizeError, limits
from zarr_bytes.limits import Limits

SCALE = 64
LATENCY, RATE = 0.03, 50e6 / SCALE
GAP, LARGEST, PIECE = 2**18 // SCALE, 2**23 // SCALE, 2**20 // SCALE


class Jumping(selectors.DefaultSelector):
    """Waits by moving a clock."""

    now = 0.0

    def select(self, timeout=None):
        found = super().select(None if timeout is None else 0)
        if not found and timeout:
            self.now += timeout
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.clock = Jumping()
        super().__init__(self.clock)

    def time(self):
        return self.clock.now


class Remote(CountingStore):
    """A store whose answers take their time, and which knows how many were under way at once."""

    running = most = sent = 0
    rate = RATE

    async def get(self, key, prototype, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        if key.endswith("zarr.json"):
            return buffer
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(LATENCY + len(buffer or b"") / self.rate)
        finally:
            self.running -= 1
        self.sent += len(buffer or b"")
        return buffer


@pytest.fixture(autouse=True)
def _a_64th_of_the_sizes(monkeypatch):
    monkeypatch.setattr(limits, "LIMITS", Limits(piece=PIECE))
    sizes = {"zarr_bytes.gap.remote": GAP, "zarr_bytes.largest_request.remote": LARGEST}
    with zarr.config.set(sizes | {"async.concurrency": SLOTS}):
        yield


def remote(values, **options):
    """An array in such a store, which is known to answer ranges."""
    array = stored(Remote(MemoryStore()), values, **options)
    timed(array, (0,) * values.ndim)
    store = array.store
    store.requests, store.most, store.sent = [], 0, 0
    return array


def timed(array, selection):
    """The elements of a selection, and the seconds that its requests take."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        found = runner.run(array.async_array.getitem(selection))
        return found, runner.get_loop().time()


def contents(array):
    """The big-endian elements of each chunk or shard, without the indexes of shards."""
    sharding = array.metadata.codecs[-1]
    inner = getattr(sharding, "chunk_shape", array.chunks)
    index = 16 * np.prod(array.chunks if array.shards is None else array.shards) // np.prod(inner)
    for key, buffer in array.store._store._store_dict.items():
        if not key.endswith("zarr.json"):
            content = buffer.to_bytes()
            yield key, np.frombuffer(content[: -index - 4] if array.shards else content, ">f8")


def selected(array, values):
    """The ranges that have these elements, as (key, start, stop); all elements are distinct."""
    for key, elements in contents(array):
        for place in 8 * np.flatnonzero(np.isin(elements, values)):
            yield key, int(place), int(place) + 8


READS = {  # shape of one chunk, and the selection
    "a point": ((100, 100, 50), np.s_[3, 4, 5]),
    "a row": ((100, 100, 50), np.s_[3, 4]),
    "a plane": ((100, 100, 50), np.s_[3]),
    "a column of 1,000 values": ((1000, 500), np.s_[:, 3]),
    "every tenth plane, with gaps that are read": ((10000, 50), np.s_[::10]),
    "every tenth plane, one by one": ((200, 1000), np.s_[::10]),
    "a box of 50 ranges": ((100, 100, 50), np.s_[10:60, 10:30]),
    "a box in one range": ((100, 100, 50), np.s_[10:20]),
    "eleven long ranges": ((11, 2, 16000), np.s_[:, 0]),
    "six ranges": ((6, 2, 7000), np.s_[:, 0]),
    "a chunk of 125 MB": ((500, 488), ...),
    "a chunk of 256 MB": ((1000, 500), ...),
    "a chunk of 16 MB": ((125, 250), ...),
}
OF_SHARDS = {  # shape, shard, inner chunk, and the selection
    "a plane of 8.3 MB in one range": ((20, 129, 126), (20, 129, 126), (1, 129, 126), np.s_[3]),
    "a plane of inner chunks": ((64, 100, 126), (64, 100, 126), (1, 10, 126), np.s_[3]),
    "a column": ((64, 100, 126), (64, 100, 126), (1, 10, 126), np.s_[:, 3, 5]),
    "a shard of 125 MB": ((125, 16, 125), (125, 16, 125), (5, 16, 125), ...),
    "a plane of four": ((40, 128, 128), (40, 64, 64), (1, 64, 64), np.s_[3]),
    "a box of four": ((40, 128, 128), (40, 64, 64), (1, 64, 64), np.s_[3:12]),
}
OF_CHUNKS = {  # shape, chunk, and the selection
    "eleven chunks": ((11, 32000), (1, 32000), ...),
    "three chunks": ((3, 32000), (1, 32000), ...),
    "a plane of four chunks": ((40, 128, 128), (40, 64, 64), np.s_[3]),
    "a column of 100 chunks": ((100, 5000), (1, 5000), np.s_[:, 7]),
}


def check(array, values, selection):
    """Compare the time of a read with the best, and what was said of it with what happened."""
    store, explained = array.store, zarr_bytes.explain(array, selection)
    with zarr_bytes.counting() as counted:
        found, seconds = timed(array, selection)
    assert np.array_equal(found, values[selection])
    indexes = [r.suffix for r in store.requests if isinstance(r, SuffixByteRequest)]
    ranges = joined(selected(array, found), GAP)
    least = best(ranges, LATENCY, RATE, LARGEST, PIECE)
    least += ceil(len(indexes) / SLOTS) * LATENCY + sum(indexes[:1]) / RATE
    assert seconds <= 1.15 * least
    assert explained.requests == counted.requests == len(store.requests)
    assert explained.bytes_fetched == counted.bytes_fetched == store.sent
    assert store.sent <= sum(ranges) + sum(indexes)
    assert store.most <= SLOTS


@pytest.mark.parametrize("name", READS)
def test_a_chunk_takes_hardly_longer_than_at_best(name):
    shape, selection = READS[name]
    check(remote(numbers(shape)), numbers(shape), selection)


@pytest.mark.parametrize("name", OF_CHUNKS)
def test_chunks_take_hardly_longer_than_at_best(name):
    shape, chunks, selection = OF_CHUNKS[name]
    check(remote(numbers(shape), chunks=chunks), numbers(shape), selection)


@pytest.mark.parametrize("name", OF_SHARDS)
def test_shards_take_hardly_longer_than_at_best(name):
    shape, shards, inner, selection = OF_SHARDS[name]
    check(remote(numbers(shape), chunks=inner, shards=shards), numbers(shape), selection)


@pytest.mark.parametrize("name", [*READS, *OF_SHARDS, *OF_CHUNKS])
@pytest.mark.parametrize("is_known", [True, False])
def test_the_explained_rounds_are_the_requests_that_follow_one_another(name, is_known):
    """Where nothing takes time but the wait for an answer."""
    shape, *shapes, selection = {**READS, **OF_SHARDS, **OF_CHUNKS}[name]
    layout = dict(zip(("chunks", "shards"), shapes[::-1], strict=False))
    made = remote if is_known else partial(stored, Remote(MemoryStore()))
    array = made(numbers(shape), **layout)
    array.store.rate = float("inf")
    explained = zarr_bytes.explain(array, selection)
    _, seconds = timed(array, selection)
    assert explained.rounds == round(seconds / LATENCY)


LONG = numbers((1000, 500))  # a chunk of 32 requests


class WithoutRanges(Remote):
    async def get(self, key, prototype, byte_range=None):
        await super().get(key, prototype, byte_range)
        return await self._store.get(key, prototype)


@pytest.mark.filterwarnings("ignore:.* does not answer byte ranges")
def test_a_server_without_ranges_gets_one_request_for_a_chunk_however_long_it_is():
    array = stored(WithoutRanges(MemoryStore()), LONG)
    for selection in np.s_[:, 3], np.s_[:, 3], ...:
        array.store.requests.clear()
        found, _ = timed(array, selection)
        assert np.array_equal(found, LONG[selection])
        assert len(array.store.requests) == 1


def test_one_range_goes_first_until_a_store_is_known_to_answer_ranges():
    array = stored(Remote(MemoryStore()), LONG)
    _, first = timed(array, np.s_[:, 3])
    _, second = timed(array, np.s_[:, 3])
    assert first == pytest.approx(second + LATENCY + LARGEST / RATE, rel=0.1)


def test_chunks_of_a_store_that_is_not_known_are_read_at_the_same_time():
    """Once the first answer of one has told, the others wait for no answer of their own."""
    values = numbers((2, *LONG.shape))
    array = stored(Remote(MemoryStore()), values, chunks=(1, *LONG.shape))

    async def read():
        return await asyncio.wait_for(array.async_array.getitem(np.s_[:, :, 3]), 60)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert np.array_equal(runner.run(read()), values[:, :, 3])


@pytest.mark.parametrize("selection", [np.s_[:, 3], np.s_[::2], ...])
def test_a_whole_chunk_comes_at_once_where_partial_reads_are_off(selection):
    array = remote(LONG)
    with zarr.config.set({"zarr_bytes.partial_reads": False}):
        found, _ = timed(array, selection)
    assert np.array_equal(found, LONG[selection])
    assert array.store.requests == [None]


@pytest.mark.parametrize("found", [1, 2_000_000, 3_999_999, 4_000_001, 7_900_000, 8_000_000])
def test_a_chunk_in_parts_that_has_another_size_is_an_error(found):
    array = remote(LONG)
    objects = array.store._store._store_dict
    content = objects["c/0/0"].to_bytes()
    objects["c/0/0"] = type(objects["c/0/0"]).from_bytes((content + content)[:found])
    with pytest.raises(ChunkSizeError, match=r"c/0/0 are \d+ bytes, found"):
        timed(array, ...)


def test_a_chunk_in_parts_that_is_longer_by_the_place_of_the_last_is_an_error():
    """The open-ended answer has the size of a whole chunk then."""
    array = remote(LONG)
    timed(array, ...)
    last = max(getattr(request, "offset", 0) for request in array.store.requests)
    objects = array.store._store._store_dict
    objects["c/0/0"] = type(objects["c/0/0"]).from_bytes(bytes(LONG.nbytes + last))
    with pytest.raises(ChunkSizeError, match=f"4000000 bytes, found {LONG.nbytes + last}"):
        timed(array, ...)


def test_a_missing_chunk_in_parts_is_the_fill_value():
    array = remote(LONG)
    array.store._store._store_dict.pop("c/0/0")
    found, _ = timed(array, ...)
    assert not found.any()


class Copying(CountingStore):
    async def get(self, key, prototype, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        return buffer and type(buffer).from_bytes(buffer.to_bytes())


MEMORY = {  # shape, chunk, and the selection
    "a chunk": ((1000, 2000), (1000, 2000), ...),
    "a column": ((4000, 500), (4000, 500), np.s_[:, 3]),
    "planes with gaps": ((100, 20000), (100, 20000), np.s_[::2]),
    "many ranges": ((200, 10000), (200, 10000), np.s_[:, :7000]),
    "chunks": ((11, 200_000), (1, 200_000), ...),
    "parts of chunks": ((11, 20, 10000), (1, 20, 10000), np.s_[:, :, :7000]),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_that_of_the_result_and_of_a_request_for_each_slot(name):
    shape, chunks, selection = MEMORY[name]
    array = stored(Remote(Copying(MemoryStore())), numbers(shape), chunks=chunks)
    with zarr.config.set({"zarr_bytes.largest_request.remote": 2**19}):
        timed(array, (0,) * len(shape))
        (found, _), peak = most_memory(lambda: timed(array, selection))
    assert peak <= found.nbytes + SLOTS * 2**19 + 2**20  # the last for Python's tasks


class Ending(Remote):
    """The seventh request ends as `end` does, while others are under way."""

    end = None

    async def get(self, key, prototype, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        if len(self.requests) > 6 and self.end is not None:
            end, self.end = self.end, None
            end()
        return buffer


@pytest.mark.parametrize("selection", [np.s_[:, 3], ...], ids=["ranges", "whole"])
class TestEnds:
    def array(self):
        array = stored(Ending(MemoryStore()), LONG)
        timed(array, (0, 0))
        array.store.requests.clear()
        return array

    def test_an_error_cancels_and_awaits_all_other_requests(self, selection):
        def fail():
            raise PermissionError("no more")

        async def read():
            before = asyncio.all_tasks()
            with pytest.raises(PermissionError, match="no more"):
                await array.async_array.getitem(selection)
            assert asyncio.all_tasks() == before

        array = self.array()
        array.store.end = fail
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:  # Python 3.11's `run` has none
            runner.run(read())
        assert array.store.running == 0
        assert len(array.store.requests) <= 2 * SLOTS

    def test_cancelling_the_caller_cancels_and_awaits_all_requests(self, selection):
        async def read():
            before = asyncio.all_tasks()
            task = asyncio.ensure_future(array.async_array.getitem(selection))
            array.store.end = task.cancel
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == before

        array = self.array()
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:  # Python 3.11's `run` has none
            runner.run(read())
        assert array.store.running == 0


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers ranges of the files of a folder, and keeps what it has sent of chunks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        path = Path(server.folder, self.path.strip("/"))
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        start, stop, size = 0, len(content), len(content)
        if asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"] or ""):
            first, last = asked.groups()
            start = int(first) if first else size - int(last)
            stop = min(int(last) + 1, size) if first and last else size
        if "/c/" in self.path:
            server.sent.append(stop - start)
            if server.together is not None:
                server.together.wait(30)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(stop - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        self.wfile.write(content[start:stop])

    def log_message(self, *args):
        pass


@contextmanager
def serving(folder):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.folder, server.sent, server.together = folder, [], None
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


# What clients leave open is not this package's.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
class TestServers:
    @pytest.mark.parametrize("client", ["fsspec", "obstore"])
    def test_what_is_explained_and_counted_is_what_the_server_has_sent(self, tmp_path, client):
        values = numbers((100, 5000))
        stored(LocalStore(tmp_path / "chunk"), values)
        stored(LocalStore(tmp_path / "shards"), values, chunks=(10, 500), shards=(50, 5000))
        with serving(tmp_path) as server:
            for name in "chunk", "shards":
                array = zarr.open_array(store_at(f"{server.url}/{name}", client), mode="r")
                for selection in np.s_[3, 7], np.s_[3], np.s_[:, 7], np.s_[::2, 70:], ...:
                    server.sent.clear()
                    explained = zarr_bytes.explain(array, selection)
                    with zarr_bytes.counting() as counted:
                        assert np.array_equal(array[selection], values[selection])
                    assert explained.requests == counted.requests == len(server.sent)
                    nbytes = explained.bytes_fetched, counted.bytes_fetched
                    assert nbytes == (sum(server.sent),) * 2
            assert len(server.sent) > 2  # a chunk in parts

    @pytest.mark.parametrize("client", ["fsspec", "obstore"])
    def test_a_host_that_has_answered_a_range_is_known(self, tmp_path, client):
        values = numbers((10, 5000))
        for name in "first", "second":
            stored(LocalStore(tmp_path / name), values)
        with serving(tmp_path) as server:
            for name in "first", "second":
                array = zarr.open_array(store_at(f"{server.url}/{name}", client), mode="r")
                assert np.array_equal(array[:, 7], values[:, 7])
                server.together = threading.Barrier(10)  # the second array's requests wait for all

    def test_a_service_that_always_answers_ranges_is_known(self, tmp_path):
        obstore = pytest.importorskip("obstore.store")
        values = numbers((10, 5000))
        stored(LocalStore(tmp_path / "bucket"), values)
        with serving(tmp_path) as server:
            server.together = threading.Barrier(10)
            keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
            options = {
                "virtual_hosted_style_request": False,
                "client_options": {"allow_http": True},
            }
            store = obstore.S3Store("bucket", endpoint=server.url, **keys, **options)
            array = zarr.open_array(ObjectStore(store), mode="r")
            assert np.array_equal(array[:, 7], values[:, 7])


class TestKeptIndexes:
    """Three shards of an index and a value each."""

    VALUES = numbers((3, 40, 50))

    def array(self):
        array = remote(self.VALUES, chunks=(1, 10, 50), shards=(1, 40, 50))
        array.store.rate = float("inf")
        return array

    def requests(self, array, selection):
        """How many are explained and made, with their rounds."""
        explained = zarr_bytes.explain(array, selection)
        array.store.requests.clear()
        found, seconds = timed(array, selection)
        assert np.array_equal(found, self.VALUES[selection])
        assert explained.requests == len(array.store.requests)
        assert explained.rounds == round(seconds / LATENCY)
        assert explained.bytes_fetched == array.store.sent - self.sent
        self.sent = array.store.sent
        return len(array.store.requests)

    def test_as_many_as_the_setting_says_are_those_used_last(self):
        array, self.sent = self.array(), 0
        assert [self.requests(array, (i, 5, 6)) for i in (0, 0)] == [2, 2]  # none by default
        with zarr.config.set({"zarr_bytes.index_cache": 2}):
            shards = [0, 0, 1, 0, 2, 0, 1]
            found = [self.requests(array, (i, 5, 6)) for i in shards]
            assert found == [2, 1, 2, 1, 2, 1, 2]
            assert self.requests(array, (slice(3), 5, 6)) == 4  # of three shards, one index
        assert self.requests(array, (1, 5, 6)) == 2

    def test_that_of_a_shard_that_is_written_here_is_forgotten(self):
        array = self.array()
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            timed(array, ...)
            array[1, 12, :] = 0  # of the values, the fill value
            array[1, 10:20] = 0
            array[1, 30:] = 7
            found, _ = timed(array, 1)
        assert (found[10:20] == 0).all()
        assert (found[30:] == 7).all()
        assert np.array_equal(found[:10], self.VALUES[1, :10])

    def test_another_store_has_others(self):
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            for _ in range(3):
                array, self.sent = self.array(), 0
                assert self.requests(array, (0, 5, 6)) <= 2

    def test_a_deleted_shard_is_the_fill_value(self):
        array = self.array()
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            timed(array, ...)
            array.store._store._store_dict.pop("c/1/0/0")
            assert not timed(array, 1)[0].any()
