"""Reads of remote stores on a simulated clock: how long, how many requests, how many at a time.

An answer begins 30 ms after its request, and each comes at 50 MB/s, ten at a time; all sizes are a
64th of those of a real store. Time is exact here, as nothing but the requests takes any. It is
compared with that of the selected ranges in the best order, which are found in the stored bytes.
"""

import asyncio
import gc
import itertools
import pickle
import re
import selectors
import sys
import threading
import weakref
from contextlib import suppress
from copy import copy
from functools import partial
from math import ceil, inf, nan

import numpy as np
import pytest
import zarr
from servers import serving
from slow_server import SLOTS, SMALL_SLOTS, best, joined
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    CountingStore,
    faulty,
    most_memory,
    numbers,
    pipeline_of,
    spec_of,
    store_at,
    stored,
)
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.buffer import cpu
from zarr.registry import register_pipeline
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore, ZipStore

from zarr_bytes import (
    BatchedBytesPipeline,
    ChunkSizeError,
    ShardIndexError,
    counting,
    explain,
    preallocate,
)
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.mapping import chain_of_bases
from zarr_bytes.io.tasks import StopRequestsError, map_concurrently
from zarr_bytes.limits import Limits

SCALE = 64
LATENCY, RATE = 0.03, 50e6 / SCALE
GAP, LARGEST, PIECE = 2**16 // SCALE, 2**23 // SCALE, 2**20 // SCALE


class PipelineOfSmallPieces(BatchedBytesPipeline):
    limits = Limits(min_piece_nbytes=PIECE)


register_pipeline(PipelineOfSmallPieces)


class Clock(selectors.DefaultSelector):
    """Waits by moving a clock."""

    now = 0.0

    def select(self, timeout=None):
        found = super().select(None if timeout is None else 0)
        self.now += (timeout or 0) if not found else 0
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.clock = Clock()
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
        await asyncio.sleep(LATENCY + len(buffer or b"") / self.rate)
        self.running -= 1
        self.sent += len(buffer or b"")
        return buffer


@pytest.fixture(autouse=True)
def _a_64th_of_the_sizes():
    sizes = {"zarr_bytes.gap.remote": GAP, "zarr_bytes.largest_request.remote": LARGEST}
    path = f"{__name__}.{PipelineOfSmallPieces.__qualname__}"
    with zarr.config.set(sizes | {"async.concurrency": SLOTS, "codec_pipeline.path": path}):
        yield


def timed(array, selection):
    """The elements of a selection, and the seconds that its requests take."""

    async def read():
        of_array = array.async_array.oindex if type(selection) is list else array.async_array
        return await asyncio.wait_for(of_array.getitem(selection), 600)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(read()), runner.get_loop().time()


def remote(values, memory=MemoryStore, **options):
    """An array in such a store, which is known to answer ranges."""
    array = stored(Remote(memory()), values, **options)
    timed(array, (0,) * values.ndim)
    store = array.store
    store.requests, store.most, store.sent = [], 0, 0
    return array


def objects_of(array):
    """What is stored, by key."""
    return array.store._store._store_dict


def ranges_of(array, values):
    """Sizes of the ranges that have these elements, which are distinct, joined over gaps."""
    found, inner = [], getattr(array.metadata.codecs[-1], "chunk_shape", None)
    index = 4 + 16 * (np.prod(array.shards) // np.prod(inner)) if inner else 0
    for key in objects_of(array).keys() - {"zarr.json"}:
        content = objects_of(array)[key].to_bytes()
        elements = np.frombuffer(content[: len(content) - index], ">f8")
        places = 8 * np.flatnonzero(np.isin(elements, values))
        runs = np.split(places, np.flatnonzero(np.diff(places) > 8) + 1)
        found += [(key, int(run[0]), int(run[-1]) + 8) for run in runs if run.size]
    return joined(found, GAP)


LONG, SHARD, PLANES = (1000, 500), (64, 100, 126), (40, 128, 128)
SHARD_OF_TENS = {"chunks": (1, 10, 126), "shards": SHARD}
FOUR_SHARDS = {"chunks": (1, 64, 64), "shards": (40, 64, 64)}


def of_rows(*shape):
    """A chunk for each row."""
    return shape, {"chunks": (1, *shape[1:])}


def of_planes(planes, *shape):
    """One shard, whose inner chunks are so many planes."""
    return shape, {"chunks": (planes, *shape[1:]), "shards": shape}


READS = {  # shape, chunks where they are several or shards, and the selection
    "a point": ((100, 100, 50), {}, np.s_[3, 4, 5]),
    "a plane": ((100, 100, 50), {}, np.s_[3]),
    "a column of 1,000 values": (LONG, {}, np.s_[:, 3]),
    "every tenth plane, with gaps that are read": ((10000, 50), {}, np.s_[::10]),
    "every tenth plane, one by one": ((200, 1000), {}, np.s_[::10]),
    "a box of 50 ranges": ((100, 100, 50), {}, np.s_[10:60, 10:30]),
    "a box in one range": ((100, 100, 50), {}, np.s_[10:20]),
    "eleven long ranges": ((11, 2, 16000), {}, np.s_[:, 0]),
    "six ranges": ((6, 2, 7000), {}, np.s_[:, 0]),
    "a chunk of 125 MB": ((500, 488), {}, ...),
    "a chunk of 256 MB": (LONG, {}, ...),
    "a chunk of 16 MB": ((125, 250), {}, ...),
    "a plane of 8.3 MB in one range": (*of_planes(1, 20, 129, 126), np.s_[3]),
    "a plane of inner chunks": (SHARD, SHARD_OF_TENS, np.s_[3]),
    "a column of inner chunks": (SHARD, SHARD_OF_TENS, np.s_[:, 3, 5]),
    "a shard of 125 MB": (*of_planes(5, 125, 16, 125), ...),
    "a plane of four shards": (PLANES, FOUR_SHARDS, np.s_[3]),
    "a box of four shards": (PLANES, FOUR_SHARDS, np.s_[3:12]),
    "long planes, one of them twice": ((8, 50, 500), {}, [7, 3, 7]),
    "eleven chunks": (*of_rows(11, 32000), ...),
    "three chunks": (*of_rows(3, 32000), ...),
    "a plane of four chunks": (PLANES, {"chunks": (40, 64, 64)}, np.s_[3]),
    "a column of 100 chunks": (*of_rows(100, 5000), np.s_[:, 7]),
    "a column of two long chunks": (*of_rows(2, *LONG), np.s_[:, :, 3]),
}


def test_a_row_takes_the_time_of_one_request_and_of_its_bytes():
    array = remote(numbers((100, 1000)))
    row, seconds = timed(array, 7)
    assert np.array_equal(row, numbers((100, 1000))[7])
    assert seconds == pytest.approx(LATENCY + row.nbytes / RATE)


@pytest.mark.parametrize("name", READS)
def test_a_remote_read_takes_hardly_longer_than_at_best(name):
    shape, options, selection = READS[name]
    values = numbers(shape)
    array = remote(values, **options)
    store, explained = array.store, explain(array, selection)
    with counting() as counted:
        found, seconds = timed(array, selection)
    assert np.array_equal(found, values[selection])
    indexes = [r.suffix for r in store.requests if isinstance(r, SuffixByteRequest)]
    ranges = ranges_of(array, found)
    least = best(ranges, LATENCY, RATE, LARGEST, PIECE)
    least += ceil(len(indexes) / SMALL_SLOTS) * LATENCY + sum(indexes[:1]) / RATE
    assert seconds <= 1.15 * least
    assert explained.requests == counted.requests == len(store.requests)
    assert explained.bytes_fetched == counted.bytes_fetched == store.sent
    assert store.sent <= sum(ranges) + sum(indexes)
    most = SLOTS * max(1, len(indexes))  # zarr has so many for each shard
    assert store.most <= (max(SMALL_SLOTS, most) if min(ranges) < PIECE else most)
    # The rounds are the requests that follow one another, where nothing else takes time; also
    # where the store is not known to answer ranges, and one of each chunk goes first.
    for known in array, zarr.open_array(Remote(store._store)):
        known.store.rate, explained = inf, explain(known, selection)
        _, seconds = timed(known, selection)
        assert explained.rounds == round(seconds / LATENCY)


@pytest.mark.parametrize(
    ("name", "requests"), [("eleven long ranges", 10 + 8), ("eleven chunks", 10 * 2 + 10)]
)
def test_ranges_are_cut_in_the_last_round_alone(name, requests):
    """One of 128,000 bytes into pieces of 16 KiB, and one of 256,000 into as many as slots."""
    shape, options, selection = READS[name]
    array = remote(numbers(shape), **options)
    timed(array, selection)
    assert len(array.store.requests) == requests


@pytest.mark.parametrize("selection", [3, np.s_[:, 3, 5], ...])
def test_without_partial_reads_a_shard_is_one_request(selection):
    values = numbers(SHARD)
    array = remote(values, **SHARD_OF_TENS)
    with zarr.config.set({"zarr_bytes.partial_reads": False}), counting() as counted:
        explained = explain(array, selection)
        assert np.array_equal(timed(array, selection)[0], values[selection])
    assert array.store.requests == [None]
    assert explained.requests == counted.requests == explained.rounds == 1
    assert explained.bytes_fetched == counted.bytes_fetched == array.store.sent


@pytest.mark.parametrize(
    ("rows", "selection", "requests"),
    [
        (4, (0, 5), 1),  # of 644 bytes with the index, less than the gap
        (4, ..., 1),
        (60, (7, 5), 2),  # of 8,724 bytes: the index, and an inner chunk
        (60, np.s_[1:], 2),
        (60, ..., 1),  # all of a shard that is less than a large request
        (120, ..., 2),  # of 17,124 bytes
    ],
)
def test_a_shard_within_the_gap_and_all_of_a_small_shard_are_one_request(rows, selection, requests):
    """For a range, the index would have to come first."""
    values = numbers((rows, 16))
    array = remote(values, shards=(rows, 16), chunks=(1, 16))
    explained = explain(array, selection)
    with counting() as counted:
        found, seconds = timed(array, selection)
    assert np.array_equal(found, values[selection])
    assert explained.requests == counted.requests == len(array.store.requests) == requests
    assert explained.rounds == requests
    assert seconds == pytest.approx(requests * LATENCY + array.store.sent / RATE)
    assert explained.bytes_fetched == counted.bytes_fetched == array.store.sent


@pytest.mark.parametrize("settings", [{}, PLAIN_ZARR], ids=["by this package", "by zarr"])
def test_each_read_of_an_event_loop_has_the_limit_of_the_moment_for_itself(settings):
    """As where many threads of Dask read a chunk each: they do not wait for one another."""
    array = remote(numbers((9, 5000)), chunks=(1, 5000))

    async def most(limit):
        array.store.most = 0
        with zarr.config.set({"async.concurrency": limit}):
            await asyncio.gather(*(opened.async_array.getitem(...) for _ in range(2)))
        return array.store.most

    with zarr.config.set(settings), asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        opened = zarr.open_array(array.store_path)
        assert [runner.run(most(limit)) for limit in (3, 5, 2, None)] == [6, 10, 4, 18]


def test_chunks_that_zarrs_pipeline_reads_by_the_codec_share_the_limit():
    """Each is a call of the codec, which cannot know which others belong to its read."""
    array = remote(numbers((9, 5000)), chunks=(1, 5000))
    zarrs = {"codec_pipeline.path": PLAIN_ZARR["codec_pipeline.path"]}
    with zarr.config.set(zarrs | {"async.concurrency": 4}):
        timed(zarr.open_array(array.store_path), np.s_[:, ::2])
    assert array.store.most == 4


@pytest.mark.parametrize(
    ("selection", "request_of_chunk"),
    [
        (np.s_[1:], None),
        (np.s_[:-1], None),
        (np.s_[:, 3], None),  # with gaps; three elements before it, and four after
        (np.s_[2:], RangeByteRequest(2 * 8 * 8, 64 * 8 * 8)),
    ],
)
def test_a_chunk_that_is_needed_except_for_a_64th_is_requested_whole(selection, request_of_chunk):
    """Its store may keep whole chunks, or fetch one once for several readers."""
    values = numbers((64, 8), "f8")
    array = remote(values, chunks=values.shape)
    with zarr.config.set({"zarr_bytes.gap.remote": 64}), counting() as counted:
        found, _ = timed(array, selection)
        explained = explain(array, selection)
    assert np.array_equal(found, values[selection])
    assert array.store.requests == [request_of_chunk]
    assert explained.bytes_fetched == counted.bytes_fetched == array.store.sent


@pytest.mark.parametrize(("rows", "most"), [(4, 32), (PIECE, 10)], ids=["small", "large"])
@pytest.mark.parametrize("setting", [None, 7, 50])
def test_more_small_requests_than_large_ones_are_under_way(rows, most, setting):
    """Of chunks of four bytes a row, read and written; also the other limit is kept."""
    values = numbers((60, rows), "f4")
    array = remote(values, chunks=(1, rows))
    config = {} if setting is None else {"zarr_bytes.small_requests": setting}
    with zarr.config.set(config):
        found, _ = timed(array, ...)
    assert np.array_equal(found, values)
    if setting is not None:
        most = setting if most == 32 else min(setting, most)
    assert array.store.most == most


@pytest.mark.parametrize("limit", [10, 3])
@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("columns", [4, PIECE], ids=["small", "large"])
def test_zarr_limits_the_shards_at_once_and_the_requests_for_each(limit, shards, columns):
    """Of inner chunks of one row, all of them; small requests are at least 32 by default."""
    values = np.arange(shards * 40 * columns, dtype="f4").reshape(-1, columns)
    array = remote(values, shards=(40, columns), chunks=(1, columns))
    selection = np.s_[:, : columns // 2]  # so that each inner chunk is a range
    with zarr.config.set({"async.concurrency": limit, "zarr_bytes.gap.remote": 0}):
        explained = explain(array, selection)
        found, seconds = timed(array, selection)
    assert np.array_equal(found, values[selection])
    most = limit * min(shards, limit)
    if columns == 4 and limit == 10:
        most = max(most, 32)
    assert array.store.most == most
    if columns == 4 and shards <= limit:  # others take the time of their bytes, too
        assert explained.rounds == round(seconds / LATENCY)


@pytest.mark.parametrize(
    ("limit", "most"), [(2.5, 3), (0.5, 1), (True, 1), (np.float32(3.5), 4), (inf, 9), (10**30, 9)]
)
def test_a_limit_of_requests_may_be_any_number_as_for_zarr(limit, most):
    """For a semaphore of asyncio, as zarr has it, another request may begin at 0.5."""
    values = numbers((9, 500))
    array = remote(values, chunks=(1, 500))
    with zarr.config.set({"async.concurrency": limit}):
        assert np.array_equal(timed(array, ...)[0], values)
    assert array.store.most == most


@pytest.mark.parametrize("limit", ["10", -1, -0.5, nan, [2], 1j])
def test_a_limit_of_requests_that_is_no_number_from_0_on_is_named(limit):
    array = remote(numbers((9, 500)), chunks=(1, 500))
    message = f"async.concurrency is {re.escape(repr(limit))}; permitted are numbers from 0 on"
    with zarr.config.set({"async.concurrency": limit}):
        for act in partial(timed, array, ...), partial(array.__setitem__, ..., 7):
            with pytest.raises(ValueError, match=message):
                act()


def test_a_store_may_read_another_array_for_its_answers():
    """Of as many chunks as there are slots; none is left for the other array."""
    values = numbers((SLOTS, 50))
    other = remote(values + 1, chunks=(1, 50))

    async def fault(_, buffer):
        assert np.array_equal(await other.async_array.getitem(...), values + 1)
        return buffer

    array = faulty(fault, values, chunks=(1, 50))
    assert np.array_equal(timed(array, ...)[0], values)


def test_event_loops_that_are_closed_are_not_kept():
    """But the last, whose slots some requests have waited for."""
    array, loops = remote(numbers((2 * SLOTS, 50)), chunks=(1, 50)), []

    async def read():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(*(array.async_array.getitem(...) for _ in range(2)))

    for _ in range(4):
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(read())
    gc.collect()
    assert [loop() is None for loop in loops[:3]] == [True] * 3


@pytest.mark.parametrize("rows", [1, 10], ids=["chunks", "ranges"])
@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), ExceptionGroup("of a store", [OSError()])]
)
def test_an_error_of_a_store_is_raised_as_it_is(error, rows):
    """Though nobody has cancelled anything, and other requests run."""

    async def fault(number, buffer):
        if number == 1:
            raise error
        await asyncio.sleep(0)
        return buffer

    for act in "getitem", "setitem":
        array = faulty(fault, numbers((20, 5)), chunks=(rows, 5))
        arguments = (np.s_[:, 3], 7)[: 1 + (act == "setitem")]
        settings = zarr.config.set({"zarr_bytes.gap.remote": 0})
        with settings, pytest.raises(type(error)) as caught:
            asyncio.run(getattr(array.async_array, act)(*arguments))
        assert repr(caught.value) == repr(error)


def test_cancelling_a_read_is_heard_while_a_request_fails():
    """Though another request takes its time to end, and the error is caught."""

    async def fault(number, buffer):
        if number % 2:
            asyncio.get_running_loop().call_soon(read.cancel)
            raise OSError
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)

    async def retried():
        for _ in range(3):
            with suppress(OSError):
                await array.async_array.getitem(...)

    async def main():
        nonlocal read
        read = asyncio.ensure_future(retried())
        await asyncio.wait([read])
        assert read.cancelled()
        assert len(array.store.requests) == 2

    read, array = None, faulty(fault, numbers((2, 5)), chunks=(1, 5))
    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks are eager from Python 3.12 on")
def test_a_missing_chunk_is_the_fill_value_for_eager_tasks():
    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        return await array.async_array.getitem(np.s_[:, 3])

    array = stored(CountingStore(MemoryStore()), numbers((10, 5)), config={"order": "C"})
    del objects_of(array)["c/0/0"]
    with zarr.config.set({"zarr_bytes.gap.remote": 0}):
        assert not asyncio.run(main()).any()


def test_an_error_of_a_request_counts_more_than_a_missing_range():
    """Such as that a range is missing, which would be the fill value."""

    async def fail(error):
        await asyncio.sleep(0)
        raise error

    with pytest.raises(PermissionError):
        asyncio.run(
            map_concurrently(fail, [StopRequestsError(), PermissionError(), StopRequestsError()])
        )


def test_a_chunk_in_parts_of_another_size_is_an_error_and_a_missing_one_the_fill_value():
    """Of 32 requests; the last is open-ended."""
    array = remote(numbers(LONG))
    content, objects = objects_of(array)["c/0/0"], objects_of(array)
    timed(array, ...)
    last = max(getattr(request, "offset", 0) for request in array.store.requests)
    # In the end, the open-ended answer has the size of the whole chunk.
    for size in 1, 2_000_000, 3_999_999, 4_000_001, 7_900_000, 8_000_000, 4_000_000 + last:
        objects["c/0/0"] = content.combine([content])[:size]
        with pytest.raises(ChunkSizeError) as caught:
            timed(array, ...)
        message = r"bytes (\d+) to (\d+) of .*/c/0/0 are (\d+) bytes, found (\d+): "
        start, stop, nbytes, found = map(int, re.match(message, str(caught.value)).groups())
        assert (nbytes, found) == (stop - start, max(size - start, 0))
        assert size < stop or (start, stop) == (0, 4_000_000)
    del objects["c/0/0"]
    assert not timed(array, ...)[0].any()


class Copying(MemoryStore):
    async def get(self, key, prototype=None, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        return buffer and type(buffer).from_bytes(buffer.to_bytes())


@pytest.mark.parametrize(
    ("shape", "chunks", "selection"),
    [
        ((1000, 2000), (1000, 2000), ...),
        ((4000, 500), (4000, 500), np.s_[:, 3]),
        ((11, 200_000), (1, 200_000), ...),
        ((11, 150, 4000), (1, 150, 4000), np.s_[:, :, :2100]),
    ],
    ids=["a chunk", "a column", "chunks", "parts of chunks"],
)
def test_memory_of_a_remote_read_is_that_of_the_result_and_of_a_request_for_each_slot(
    shape, chunks, selection
):
    """Parts of chunks have more ranges in a fetch than there are slots."""
    with zarr.config.set({"zarr_bytes.largest_request.remote": 2**20}):
        array = remote(numbers(shape), Copying, chunks=chunks)
        (found, _), peak = most_memory(lambda: timed(array, selection))
    assert peak <= found.nbytes + SLOTS * 2**20 + 2**20  # the last for Python's tasks


def test_memory_of_chunks_that_are_fetched_whole_is_that_of_a_request_for_each_slot():
    with zarr.config.set({"zarr_bytes.partial_reads": False}):
        array = remote(numbers((60, 2**17)), Copying, chunks=(1, 2**17))
        _, peak = most_memory(lambda: timed(array, np.s_[:, 3]))
    assert peak <= (SLOTS + 2) * 2**20  # one before it is placed, and one for Python's tasks


def test_memory_of_a_column_of_a_shard_is_that_of_an_inner_chunk_for_each_slot():
    with zarr.config.set({"zarr_bytes.largest_request.remote": 2**23}):
        values = numbers((4096, 256))
        array = remote(values, Copying, chunks=(64, 128), shards=values.shape)
        (found, _), peak = most_memory(lambda: timed(array, np.s_[:, 3]))
    assert np.array_equal(found, values[:, 3])
    assert peak <= (SLOTS + 1) * 2**16 + 2**20  # the last for Python's tasks


# What clients leave open is not this package's.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
class TestServers:
    def test_what_is_explained_and_counted_is_what_the_server_has_sent(self, tmp_path, client):
        values = numbers((40, 5000))
        stored(LocalStore(tmp_path / "chunk"), values)
        stored(LocalStore(tmp_path / "shards"), values, chunks=(10, 500), shards=(20, 5000))
        with serving(tmp_path) as server:
            for name in "chunk", "shards":
                array = zarr.open_array(store_at(f"{server.url}/{name}", client), mode="r")
                for selection in np.s_[3, 7], np.s_[3], np.s_[:, 7], np.s_[::2, 70:], ...:
                    server.sent.clear()
                    explained = explain(array, selection)
                    with counting() as counted:
                        assert np.array_equal(array[selection], values[selection])
                    for said in explained, counted:
                        assert said.requests == len(server.sent)
                        assert said.bytes_fetched == sum(server.sent)
            assert len(server.sent) > 2  # a chunk in parts

    def test_a_host_that_has_answered_a_range_is_known_with_its_port(self, tmp_path, client):
        """Then no request waits for another: the server answers when ten have asked."""
        values = numbers((10, 5000))
        with serving(tmp_path) as server:
            for name, together in ("first", None), ("second", threading.Barrier(10)):
                stored(LocalStore(tmp_path / name), values)
                server.together = together
                array = zarr.open_array(store_at(f"{server.url}/{name}", client), mode="r")
                assert np.array_equal(array[:, 7], values[:, 7])
        second = store_at("http://127.0.0.1:1/second", client)
        assert not driver_of(second, "").is_known_to_answer_ranges()


class TestIndexCache:
    """Three shards of an index and a value each, with `zarr_bytes.index_cache`."""

    VALUES = numbers((3, 40, 50)) + 1
    LAYOUT = {"chunks": (1, 10, 50), "shards": (1, 40, 50)}

    def array(self, mode="r"):
        """An array of a store that is known to answer ranges."""
        store = remote(self.VALUES, **self.LAYOUT).store
        array = zarr.open_array(store, mode=mode)
        array.store.rate = inf
        timed(array, (0, 0, 0))
        return array

    def requests(self, array, selection):
        """How many are explained, counted and made, with their rounds."""
        explained = explain(array, selection)
        array.store.requests, array.store.sent = [], 0
        with counting() as counted:
            found, seconds = timed(array, selection)
        assert np.array_equal(found, self.VALUES[selection])
        assert explained.requests == counted.requests == len(array.store.requests)
        assert explained.rounds == round(seconds / LATENCY)
        assert explained.bytes_fetched == counted.bytes_fetched == array.store.sent
        return len(array.store.requests)

    def test_keeps_as_many_indexes_as_the_setting_says_of_those_used_last(self):
        array = self.array()
        assert [self.requests(array, (i, 5, 6)) for i in (0, 0)] == [2, 2]  # none by default
        with zarr.config.set({"zarr_bytes.index_cache": 2}):
            shards = [0, 0, 1, 0, 2, 0, 1]
            found = [self.requests(array, (i, 5, 6)) for i in shards]
            assert found == [2, 1, 2, 1, 2, 1, 2]
            assert self.requests(array, (slice(3), 5, 6)) == 4  # of three shards, one index
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            timed(array, np.s_[:, 1:])  # all of these shards would be fetched whole
        with zarr.config.set({"zarr_bytes.index_cache": 1}):
            assert [self.requests(array, (i, 5, 6)) for i in (0, 2, 1)] == [1, 2, 2]
        assert self.requests(array, (1, 5, 6)) == 2

    def test_gives_the_indexes_that_it_had_when_the_read_began(self):
        """So `explain` knows the requests, though the first of three indexes evicts a second."""
        array = self.array()
        with zarr.config.set({"zarr_bytes.index_cache": 2, "async.concurrency": 1}):
            for shard in 1, 2:
                timed(array, (shard, 5, 6))
            assert self.requests(array, (slice(3), 5, 6)) == 4

    def test_belongs_to_one_open_array(self):
        """And to its copies, but not to another array of the store, or to one that is loaded."""
        array = self.array()
        with zarr.config.set({"zarr_bytes.index_cache": 3}):
            assert [self.requests(array, (1, 5, 6)) for _ in range(2)] == [2, 1]
            assert self.requests(copy(array), (1, 5, 6)) == 1
            for other in (
                zarr.open_array(array.store, mode="r"),
                array.with_config({"order": "F"}),
                self.array(),
            ):
                assert other.store is array.store or timed(other, (0, 0, 0))
                assert self.requests(other, (1, 5, 6)) == 2

    @pytest.mark.parametrize("settings", [{}, IN_PLACE], ids=["any", "in place"])
    def test_of_a_pickled_array_is_empty(self, tmp_path, settings):
        """A zip file is read by requests, and its arrays can be pickled."""
        with ZipStore(tmp_path / "a.zip", mode="w") as store:
            zarr.create_array(store, data=self.VALUES, compressors=None, **self.LAYOUT)
        no_gap = {"zarr_bytes.gap.local": 0}  # or the shard would be read whole
        with zarr.config.set({"zarr_bytes.index_cache": 3} | no_gap | settings):
            array = zarr.open_array(ZipStore(tmp_path / "a.zip", mode="r"), mode="r")
            for opened in array, pickle.loads(pickle.dumps(array)):  # noqa: S301
                for expected in 2, 1:
                    with counting() as counted:
                        assert opened[1, 5, 6] == self.VALUES[1, 5, 6]
                    assert counted.requests == expected
                opened.store.close()

    def test_keeps_no_index_of_a_store_that_can_be_written(self):
        array = self.array("r+")
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            assert [self.requests(array, (1, 5, 6)) for _ in range(3)] == [2, 2, 2]

    def test_keeps_no_index_of_a_folder(self, tmp_path):
        stored(LocalStore(tmp_path), self.VALUES, **self.LAYOUT)
        array = zarr.open_array(tmp_path, mode="r")
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            for _ in range(2):
                with counting() as counted:
                    assert array[1, 5, 6] == self.VALUES[1, 5, 6]
                assert (counted.ranges, counted.bytes_fetched) == (2, 4 * 16 + 4 + 8)

    def test_is_not_used_where_shards_come_whole(self):
        array = self.array()
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            timed(array, np.s_[:, 1:])
            with zarr.config.set({"zarr_bytes.partial_reads": False}):
                assert self.requests(array, (slice(3), 5, 6)) == 3

    def test_keeps_no_index_that_was_damaged_on_its_way(self):
        """The first answer has a wrong bit."""

        async def fault(number, buffer):
            content = np.array(buffer.as_numpy_array())
            content[0] ^= number == 1
            return cpu.Buffer.from_array_like(content)

        array = zarr.open_array(faulty(None, self.VALUES, **self.LAYOUT).store, mode="r")
        array.store.requests, array.store.fault = [], fault
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            with pytest.raises(ShardIndexError):
                array[1, 5, 6]
            assert array[1, 5, 6] == self.VALUES[1, 5, 6]

    def test_keeps_no_shard_in_memory(self):
        """The index from a store in memory is a view of the shard."""
        values = np.ones((1, 2**20))
        array = remote(values, chunks=(1, 2**19), shards=values.shape)
        read_only = zarr.open_array(array.store, mode="r")
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            timed(read_only, (0, 5))
            shard = objects_of(array).pop("c/0/0").as_numpy_array()
            memory = weakref.ref([*chain_of_bases(shard)][-1])
            del shard
            gc.collect()
        assert memory() is None

    def read(self, array, store, rows=40):
        """The first shard of any store, of so many rows, through the pipeline of an array.

        Without its first row: all of a small shard would be one request.
        """
        out = cpu.NDBuffer.from_numpy_array(np.zeros((1, rows - 1, 50)))
        spec = spec_of(array, (1, rows, 50))
        item = StorePath(store, "c/0/0/0"), spec, np.s_[:1, 1:rows, :50], np.s_[:1, : rows - 1, :50]
        asyncio.run(pipeline_of(array).read([(*item, False)], out))
        return out.as_numpy_array()

    def test_tells_stores_apart_that_have_one_path(self):
        """Also one that is made where another was in memory, which has its `id`."""
        array = self.array()
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            for rows in itertools.repeat((10, 20, 30), 2):
                for n in rows:
                    values = self.VALUES.copy()
                    values[:, n:] = 0  # the fill value, of inner chunks that are not stored
                    config = {"write_empty_chunks": False}
                    other = stored(Remote(MemoryStore()), values, config=config, **self.LAYOUT)
                    found = self.read(array, zarr.open_array(other.store, mode="r").store)
                    del other
                    assert np.array_equal(found, values[:1, 1:])

    def test_has_no_index_of_another_length(self):
        """As of the chunks of two shapes that an array may have."""
        array, values = self.array(), numbers((1, 80, 50)) + 1
        longer = stored(MemoryStore(), values, chunks=(1, 10, 50), shards=values.shape).store
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            assert np.array_equal(self.read(array, array.store), self.VALUES[:1, 1:])
            objects_of(array)["c/0/0/0"] = longer._store_dict["c/0/0/0"]
            assert np.array_equal(self.read(array, array.store, 80), values[:1, 1:])
            assert np.array_equal(self.read(array, array.store, 80), values[:1, 1:])


class TestIndexCacheOfAStoreThatChanges:
    """A group with one array `a`, of one shard, which was read before the change."""

    OLD = numbers((40, 50)) + 1

    @pytest.fixture
    def group(self):
        group = zarr.create_group(CountingStore(MemoryStore()))
        self.create(group, (10, 50))[...] = self.OLD
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            assert np.array_equal(group["a"][5, 6:8], self.OLD[5, 6:8])
            yield group

    @staticmethod
    def create(group, inner, **options):
        options |= {"chunks": inner, "shards": (40, 50), "compressors": None}
        return group.create_array("a", shape=(40, 50), dtype="f8", **options)

    @pytest.mark.parametrize("settings", [{}, PLAIN_ZARR], ids=["by this package", "by zarr"])
    def test_a_write_is_seen_by_arrays_that_are_open(self, group, settings):
        """The fill value takes inner chunks away, so that all others move."""
        array, values = group["a"], self.OLD.copy()
        array[5, 6]
        with zarr.config.set(settings):
            group["a"][10:20] = values[10:20] = 0
        assert np.array_equal(array[...], values)

    def test_an_array_in_its_place_has_inner_chunks_of_its_own(self, group):
        self.create(group, (5, 50), overwrite=True)
        assert not group["a"][...].any()

    def test_a_new_array_is_empty_after_deletion(self, group):
        del group["a"]
        self.create(group, (5, 50))
        assert not group["a"][...].any()

    def test_a_new_array_is_empty_after_the_store_was_cleared(self, group):
        zarr.core.sync.sync(group.store.clear())
        self.create(zarr.create_group(group.store), (5, 50))
        assert not zarr.open_group(group.store)["a"][...].any()

    @pytest.mark.parametrize("path", ["group", ""])
    @pytest.mark.parametrize("kind", ["the same address", "a folder", "preallocated"])
    def test_a_write_through_another_store_object_is_seen(self, tmp_path, kind, path):
        """Of the array itself, if its path is empty."""
        above, values = "" if path else "/group", self.OLD
        store, reader = LocalStore(tmp_path), WrapperStore(LocalStore(f"{tmp_path}{above}"))
        if kind == "the same address":
            store = WrapperStore(store)
        options = {"chunks": (10, 50), "shards": (40, 50), "compressors": None}
        array = zarr.create_array(store, name="group", shape=(40, 50), dtype="f8", **options)
        array[20:30] = 7
        array_of_reader = zarr.open_array(reader, path=path, mode="r+")
        with zarr.config.set({"zarr_bytes.index_cache": 5}):
            assert array_of_reader[25, 5] == 7
            if kind == "preallocated":
                preallocate(array)
                assert array_of_reader[25, 5] == 7
            array[...] = values
            assert np.array_equal(array_of_reader[...], values)
