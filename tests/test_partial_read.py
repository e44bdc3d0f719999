"""Partial reads through zarr: results, requests and bytes, and what happens on a fault."""

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from documents import BIG, store_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tiles import selections
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import RangeByteRequest
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

from zarr_bytes import BoolValueError, BytesCodec, ChunkFileError, ChunkSizeError
from zarr_bytes.chunk import limits
from zarr_bytes.chunk.files import is_tried
from zarr_bytes.chunk.limits import Limits
from zarr_bytes.chunk.plan import chunks_like
from zarr_bytes.chunk.reading import read_file
from zarr_bytes.chunk.requests import MissingChunkError, Requests
from zarr_bytes.chunk.tasks import finished
from zarr_bytes.settings import Cost

SMALL_GAP = {"zarr_bytes.gap": {"local": 64, "remote": 64}}


class CountingStore(WrapperStore):
    """A store that is read through `get`, and keeps which ranges of chunks were asked for."""

    _supports_sync_io = False

    def __init__(self, store):
        super().__init__(store)
        self.requests = []

    async def get(self, key, prototype, byte_range=None):
        if not key.endswith("zarr.json"):
            self.requests.append(byte_range)
        return await super().get(key, prototype, byte_range)

    def counted(self):
        """Requests and bytes since the last call; a whole chunk counts as None bytes."""
        requests, self.requests = self.requests, []
        if None in requests:
            return len(requests), None
        return len(requests), sum(request.end - request.start for request in requests)


def numbers(shape, dtype="<f8"):
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


def stored(store, values, **options):
    """`values` as one chunk in `store`, opened again so that metadata chooses the codec."""
    options = {
        "chunks": values.shape,
        "serializer": BytesCodec(endian="big"),
        "config": {"write_empty_chunks": True},
        **options,
    }
    array = zarr.create_array(
        store, shape=values.shape, dtype=values.dtype, compressors=None, **options
    )
    array[...] = values
    return zarr.open_array(store, mode="r+")


@pytest.fixture(params=["memory", "local", "general", "shard"])
def any_store(request, tmp_path):
    """A store for each way of reading, and options that put the values there."""
    if request.param == "local":
        return LocalStore(tmp_path), {}
    if request.param == "general":
        return CountingStore(MemoryStore()), {}
    return MemoryStore(), {"inner": True} if request.param == "shard" else {}


def stored_anywhere(any_store, values, **options):
    store, in_shard = any_store
    if in_shard:  # the values are the first inner chunk of a shard, or its only one
        double = np.concatenate([values, values]) if values.ndim else values
        options["serializer"] = zarr.codecs.ShardingCodec(
            chunk_shape=values.shape, codecs=[BytesCodec(endian="big")]
        )
        return stored(store, double, chunks=double.shape, **options)
    return stored(store, values, **options)


def exists(store, key):
    return zarr.core.sync.sync(store.exists(key))


@pytest.mark.usefixtures("pipeline")
class TestResults:
    @pytest.mark.parametrize(
        "dtype",
        ["?", "u1", "<i2", ">f4", "<f8", "<c16", ">U3", "S3", "V5", "<M8[s]"]
        + [[("a", "<i2"), ("b", "?"), ("c", [("d", ">f8")])], [("re", "<f2"), ("im", "<f2")]],
        ids=str,
    )
    @pytest.mark.filterwarnings("ignore:The data type")
    def test_every_data_type_on_every_way_of_reading(self, any_store, dtype):
        dtype = np.dtype(dtype)
        shape = (12, 20, 3)
        if dtype.kind == "U":
            values = np.resize(np.array(["a", "bc", "déf"], dtype), shape)
        else:
            limit = 2 if "b" in (dtype.kind, *(dtype.names or ())) else 120
            raw = np.arange(np.prod(shape) * dtype.itemsize) % limit
            values = raw.astype("u1").view(dtype).reshape(shape)
        if any_store[1] and dtype.kind == "V" and not HAS_FUSED_PIPELINE:
            # zarr up to 3.2 cannot write a void type into a shard: its scalars have no hash.
            with pytest.raises(TypeError, match="unhashable"):
                stored_anywhere(any_store, values)
            return
        array = stored_anywhere(any_store, values)
        full = np.concatenate([values, values])[: array.shape[0]]
        with zarr.config.set(SMALL_GAP):
            for selection in (
                np.s_[...],
                np.s_[2],  # of what is still as it was stored
                np.s_[3:7, 5],
                np.s_[::3, 4:18:5],
                np.s_[1, 2, 1],
                np.s_[:5],
            ):
                expected = full[selection]
                assert np.array_equal(array[selection], np.asarray(expected, array.dtype))
            rows, columns = np.array([5, 0, 9]), np.array([19, 3, 3])
            assert np.array_equal(array.oindex[rows, columns], values[np.ix_(rows, columns)])
            assert np.array_equal(
                array.vindex[rows, columns, columns % 3], values[rows, columns, columns % 3]
            )
            mask = np.arange(array.shape[0]) % 3 == 0
            assert np.array_equal(array.oindex[mask, 4], full[mask, 4])

    def test_the_bits_of_a_nan_survive(self, any_store):
        bits = np.arange(0x7F800001, 0x7F800001 + 4000, dtype="u4")
        array = stored_anywhere(any_store, bits.view("f4"))
        with zarr.config.set(SMALL_GAP):
            assert array[100:200:3].view("u4").tolist() == bits[100:200:3].tolist()

    def test_a_zero_dimensional_array(self, any_store):
        if any_store[1] and zarr.__version__ < "3.2":  # its index of such a shard has no axis
            with pytest.raises(IndexError, match="too many indices"):
                stored_anywhere(any_store, np.array(5.5))
            return
        assert stored_anywhere(any_store, np.array(5.5))[...] == 5.5

    def test_a_missing_chunk_is_the_fill_value(self, any_store):
        """In a shard, an inner chunk beside another one that is there."""
        store, in_shard = any_store
        values = np.full((100, 100), 7, "i4")
        options = {"fill_value": 7, "config": {"write_empty_chunks": False}}
        array = stored_anywhere(any_store, values, **options)
        assert not exists(store, "c/0/0")
        if in_shard:
            array[100:] = 3
            assert array[150, 5] == 3
        assert exists(store, "c/0/0") == bool(in_shard)
        assert (array[3:50:7, 5] == 7).all()

    def test_a_bool_is_checked_where_it_is_read(self, any_store, pipeline):
        store, in_shard = any_store
        array = stored_anywhere(any_store, np.zeros((40, 40), bool))
        prototype = zarr.buffer.default_buffer_prototype()
        stored_bytes = zarr.core.sync.sync(store.get("c/0/0", prototype)).to_bytes()
        changed = stored_bytes[:820] + b"\5" + stored_bytes[821:]  # the element [20, 20]
        buffer = prototype.buffer.from_bytes(changed)
        zarr.core.sync.sync(store.set("c/0/0", buffer))
        where = "(20,) of the selection"
        if in_shard and pipeline == "FusedCodecPipeline":  # which reads inner chunks whole
            where = "(20, 20) of the chunk"
        with zarr.config.set(SMALL_GAP):
            assert not array[-10:].any()
            with pytest.raises(BoolValueError, match=re.escape(f"found 5 at index {where}")):
                array[20]


@settings(deadline=None)
@given(case=selections(), gap=st.integers(0, 100))
def test_the_codec_gives_what_numpy_selects(case, gap):
    """Straight to the codec, past zarr's own handling of selections."""
    shape, selection = case
    values = numbers(shape, ">i4")
    store = CountingStore(MemoryStore())
    array = stored(store, values)
    codec = array.metadata.codecs[0]
    spec = zarr.core.array_spec.ArraySpec(
        shape=shape,
        dtype=array.metadata.data_type,
        fill_value=0,
        config=zarr.core.array_spec.ArrayConfig.from_dict({}),
        prototype=zarr.buffer.cpu.buffer_prototype,
    )
    getter = zarr.storage.StorePath(store, "/".join(["c", *("0" for _ in shape)]))
    with zarr.config.set({"zarr_bytes.gap.remote": gap}):
        result = asyncio.run(codec._decode_partial_single(getter, selection, spec))
    expected = values[(*selection, ...)]
    assert result.shape == expected.shape
    assert np.array_equal(result.as_numpy_array(), expected)


class TestRequests:
    """A chunk of 60 x 100 x 100 float64: 4.8 MB, with a gap of 4 KiB on a store behind `get`."""

    SHAPE = (60, 100, 100)

    @pytest.fixture
    def array(self, pipeline):
        with zarr.config.set({"zarr_bytes.gap.remote": 4096}):
            array = stored(CountingStore(MemoryStore()), numbers(self.SHAPE))
            array.store_path.store.counted()
            yield array

    @pytest.mark.parametrize(
        ("selection", "requests"),
        [
            (np.s_[7], 1),
            (np.s_[7, 8], 1),
            (np.s_[7, 8, 9], 1),
            (np.s_[10:20], 1),
            (np.s_[7, 20:40], 1),
            (np.s_[10:20, 30:60], 10),
            (np.s_[:, 5, 6], 60),
        ],
        ids=["plane", "row", "point", "planes", "rows", "box", "column"],
    )
    def test_only_the_needed_bytes_are_fetched(self, array, selection, requests):
        needed = numbers(self.SHAPE)[selection].nbytes
        assert np.array_equal(array[selection], numbers(self.SHAPE)[selection])
        assert array.store_path.store.counted() == (requests, needed)

    def test_gaps_are_bridged_as_the_setting_allows(self, array):
        assert np.array_equal(array[7, :, ::50], numbers(self.SHAPE)[7, :, ::50])
        requests, nbytes = array.store_path.store.counted()
        assert requests == 1
        assert nbytes == (99 * 100 + 51) * 8  # from the first to the last element of the plane

    def test_lists_and_points(self, array):
        array.oindex[[3, 4, 50], 7]
        assert array.store_path.store.counted() == (3, 3 * 800)
        array.vindex[[3, 4, 50], [1, 2, 3], [5, 5, 5]]
        assert array.store_path.store.counted() == (3, 3 * 8)

    def test_the_whole_chunk_is_one_request_without_a_range(self, array):
        array[...]
        assert array.store_path.store.counted() == (1, None)

    def test_a_missing_chunk_costs_one_round_trip(self, array):
        array.store_path.store._store._store_dict.pop("c/0/0/0")
        assert (array[7] == 0).all()
        assert array.store_path.store.counted() == (1, 80_000)
        assert (array[:, 5, 6] == 0).all()
        requests, _ = array.store_path.store.counted()
        assert requests <= zarr.config.get("async.concurrency")  # all of them at once

    @pytest.mark.parametrize(("largest", "requests"), [(30_000, 3), (20_000, 4), (80_000, 1)])
    def test_requests_are_no_larger_than_the_setting(self, array, largest, requests):
        with zarr.config.set({"zarr_bytes.largest_request.remote": largest}):
            assert np.array_equal(array[7], numbers(self.SHAPE)[7])
        assert array.store_path.store.counted() == (requests, 80_000)

    def test_switched_off_every_chunk_is_read_whole(self, array):
        with zarr.config.set({"zarr_bytes.partial_reads": False}):
            assert np.array_equal(array[7, 8], numbers(self.SHAPE)[7, 8])
        assert array.store_path.store.counted() == (1, None)

    @pytest.mark.parametrize(
        "setting",
        [
            {"zarr_bytes.partial_reads": "no"},
            {"zarr_bytes.gap.remote": -1},
            {"zarr_bytes.gap.remote": "1 MB"},
            {"zarr_bytes.gap": 2**20},
            {"zarr_bytes.largest_request": None},
            {"zarr_bytes.largest_request.remote": 0},
        ],
        ids=str,
    )
    def test_a_setting_that_is_not_permitted_is_an_error(self, array, setting):
        (name,) = setting
        with zarr.config.set(setting), pytest.raises(ValueError, match=f"{name} is .* permitted"):
            array[7]


@pytest.mark.parametrize(
    ("compression", "requests"),
    [(zipfile.ZIP_STORED, [RangeByteRequest(24_000, 24_016)]), (zipfile.ZIP_DEFLATED, [None])],
    ids=["stored", "deflated"],
)
def test_a_deflated_member_of_a_zip_file_is_read_whole(tmp_path, pipeline, compression, requests):
    """A range of it is inflated from its start, each time."""
    ranges = []

    class CountingZip(ZipStore):
        async def get(self, key, prototype, byte_range=None):
            if key.startswith("c/"):
                ranges.append(byte_range)
            return await super().get(key, prototype, byte_range)

    values = numbers((60, 1000))
    store = ZipStore(tmp_path / "a.zip", mode="w", compression=compression)
    zarr.create_array(
        store, data=values, chunks=values.shape, compressors=None, serializer=BytesCodec()
    )
    store.close()
    array = zarr.open_array(CountingZip(tmp_path / "a.zip"), mode="r")
    assert array[3, :2].tolist() == [3000, 3001]
    assert ranges == requests


@pytest.mark.parametrize("where", ["memory", "file", "behind get"])
@pytest.mark.parametrize("shape", [(2**60,), (2**63,), (2**40, 2**40), (2**70, 3)], ids=str)
def test_chunks_that_no_store_holds_read_as_their_fill_value(tmp_path, pipeline, shape, where):
    stores = {"memory": MemoryStore, "file": lambda: LocalStore(tmp_path)}
    store = stores[where]() if where in stores else CountingStore(MemoryStore())
    array = zarr.create_array(
        store,
        shape=shape,
        chunks=shape,
        dtype=">f8",
        fill_value=7,
        compressors=None,
        serializer=BytesCodec(endian="big"),
    )
    for entry in (3, slice(5), slice(None, None, 2**58)):
        assert (array[(entry, *(slice(2) for _ in shape[1:]))] == 7).all()
    key = "/".join(["c", *("0" for _ in shape)])
    zarr.core.sync.sync(store.set(key, zarr.buffer.cpu.Buffer.from_bytes(bytes(16))))
    with pytest.raises(ChunkSizeError, match="bytes.* found"):
        array[(slice(9), *(slice(2) for _ in shape[1:]))]


@pytest.mark.usefixtures("pipeline")
def test_chains_with_other_codecs_read_as_before():
    values = numbers((60, 100))
    store = CountingStore(MemoryStore())
    zarr.create_array(store, data=values, chunks=values.shape, compressors=zarr.codecs.ZstdCodec())
    array = zarr.open_array(store, mode="r+")
    store.counted()
    assert np.array_equal(array[3, ::7], values[3, ::7])
    assert store.counted() == (1, None)


class FaultyStore(CountingStore):
    """Chunks of which requests fail as `fault(number of the request, buffer)` says."""

    def __init__(self, store, fault):
        super().__init__(store)
        self.fault = None
        self._fault = fault
        self.running = 0  # requests at this moment
        self.most = 0  # and at any before

    def _with_store(self, store):
        return type(self)(store, self._fault)

    async def get(self, key, prototype, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        if self.fault is None or key.endswith("zarr.json"):
            return buffer
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.fault(len(self.requests), buffer)
        finally:
            self.running -= 1


def faulty(fault):
    array = stored(FaultyStore(MemoryStore(), fault), numbers((50, 5000)))
    array.store_path.store.requests.clear()
    array.store_path.store.fault = fault
    return array


@pytest.fixture
def nothing_is_logged(caplog):
    """Asyncio logs an exception that nobody has retrieved when its task is collected."""
    yield
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.usefixtures("pipeline", "nothing_is_logged")
class TestFaults:
    """50 rows of 40,000 bytes; one element of each row is one request each."""

    @pytest.fixture(autouse=True)
    def _many_requests(self):
        with zarr.config.set({"zarr_bytes.gap.remote": 100}):
            yield

    @pytest.mark.parametrize(
        "selection", [np.s_[:, 7], np.s_[3], ...], ids=["many", "one", "whole"]
    )
    @pytest.mark.parametrize("cut", [1, 7])
    def test_a_truncated_object_is_an_error_with_key_range_and_sizes(self, selection, cut):
        async def fault(number, buffer):
            return buffer[: max(len(buffer) - cut, 0)]

        with pytest.raises(
            ChunkSizeError, match=r"bytes \d+ to \d+ of .*c/0/0 are \d+ bytes, found"
        ):
            faulty(fault)[selection]

    def test_an_error_of_one_request_is_raised_and_the_others_are_cancelled(self):
        async def fault(number, buffer):
            if number == 5:
                raise PermissionError("no more")
            await asyncio.sleep(0 if number < 5 else 60)
            return buffer

        array = faulty(fault)
        with pytest.raises(PermissionError, match="no more"):
            array[:, 7]
        assert array.store_path.store.running == 0

    def test_an_error_of_one_request_is_raised_where_another_finds_nothing(self):
        async def fault(number, buffer):
            if number > 2:
                raise PermissionError("no more")
            return buffer if number == 1 else None

        array = faulty(fault)
        array[3]  # now the store is known to answer ranges, so that several are under way
        with pytest.raises(PermissionError, match="no more"):
            array[:, 7]

    def test_an_object_that_is_deleted_midway_is_an_error_not_a_mix(self):
        async def fault(number, buffer):
            return buffer if number < 20 else None

        with pytest.raises(
            ChunkSizeError, match="some byte ranges .* are there and others are miss"
        ):
            faulty(fault)[:, 7]

    def test_an_object_that_is_replaced_between_requests_may_be_of_two_versions(self):
        """As the guide says: a store has no version that all requests of a chunk could name."""

        async def fault(number, buffer):
            return buffer if number <= 20 else type(buffer).from_bytes(bytes(len(buffer)))

        read = faulty(fault)[:, 7]
        assert np.array_equal(read[:20], numbers((50, 5000))[:20, 7])
        assert not read[20:].any()

    def test_an_error_of_the_last_range_is_raised_and_not_taken_for_the_end(self):
        async def fault(number, buffer):
            raise PermissionError("no more")

        class Sized(FaultyStore):
            async def getsize(self, key):
                return 2_000_000

        array = stored(Sized(MemoryStore(), fault), numbers((50, 5000)))
        array.store_path.store.fault = fault
        for selection in np.s_[49], np.s_[49, 4999]:
            with pytest.raises(PermissionError, match="no more"):
                array[selection]

    def test_requests_stay_within_the_concurrency_of_zarr(self):
        async def fault(number, buffer):
            await asyncio.sleep(0)
            return buffer

        array = faulty(fault)
        with zarr.config.set({"async.concurrency": 4}):
            assert np.array_equal(array[:, 7], numbers((50, 5000))[:, 7])
        assert array.store_path.store.most == 4

    def test_cancelling_the_caller_cancels_and_awaits_the_requests(self):
        async def fault(number, buffer):
            started.set()
            await asyncio.sleep(60)

        async def cancelled():
            nonlocal started
            started = asyncio.Event()
            read = asyncio.ensure_future(array._async_array.getitem(np.s_[:, 7]))
            await started.wait()
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            return array.store_path.store.running

        started = None
        array = faulty(fault)
        assert asyncio.run(cancelled()) == 0


def plan_of(shape, selection, cost, dtype=">f8"):
    prototype = zarr.buffer.cpu.buffer_prototype
    return chunks_like(shape, np.dtype(dtype), None, None, prototype).plan(selection, cost)


class TestSynchronousFaults:
    """Stores that read synchronously: one request after another, in the thread of the pipeline."""

    PLAN = plan_of((50, 5000), np.s_[:, 7], Cost(100, 10**9))

    def fetched(self, fault):
        class Getter:
            requests = 0

            def get_sync(self, *, prototype, byte_range):
                self.requests += 1
                part = numbers((50, 5000)).tobytes()[byte_range.start : byte_range.end]
                return fault(self.requests, prototype.buffer.from_bytes(part))

            def __str__(self):
                return "memory://c/0/0"

        requests = Requests(Getter(), self.PLAN, is_sync=True)
        return finished(requests.fetch(self.PLAN.view))

    def test_without_a_fault_the_ranges_come_one_after_another(self):
        fetched = self.fetched(lambda number, buffer: buffer)
        assert fetched.view("<f8").tolist() == numbers((50, 5000))[:, 7].tolist()

    def test_a_truncated_object_is_an_error_with_key_range_and_sizes(self):
        message = r"bytes 56 to 64 of memory://c/0/0 are 8 bytes, found 7: .* truncated"
        with pytest.raises(ChunkSizeError, match=message):
            self.fetched(lambda number, buffer: buffer[:7])

    def test_an_object_that_is_deleted_midway_is_an_error_not_a_mix(self):
        with pytest.raises(
            ChunkSizeError, match="some byte ranges .* are there and others are miss"
        ):
            self.fetched(lambda number, buffer: buffer if number < 20 else None)

    def test_a_missing_object_is_asked_for_once(self):
        asked = []
        with pytest.raises(MissingChunkError):
            self.fetched(lambda number, buffer: asked.append(number))
        assert asked == [1]


class TestParts:
    """Every 10,000th byte of 100 MB, which is read in parts of 32 MiB."""

    def array(self, store):
        values = np.zeros(10**8, "u1")
        values[::10_000] = np.arange(10_000) % 251
        options = {
            "shape": values.shape,
            "chunks": values.shape,
            "dtype": "u1",
            "compressors": None,
        }
        array = zarr.create_array(store, serializer=BytesCodec(), **options)
        array[...] = values
        return zarr.open_array(store, mode="r")

    @pytest.mark.parametrize("where", ["file", "behind get"])
    def test_the_parts_make_the_result(self, tmp_path, pipeline, where):
        store = LocalStore(tmp_path) if where == "file" else CountingStore(MemoryStore())
        array = self.array(store)
        assert np.array_equal(array[::10_000], np.arange(10_000) % 251)
        order = np.random.default_rng(0).permutation(10_000)
        points = np.concatenate([order, order[:9]]) * 10_000
        assert np.array_equal(array.vindex[points], points // 10_000 % 251)
        if where == "file":
            (tmp_path / "c/0").unlink()
            assert not array[::10_000].any()

    def test_a_chunk_that_is_deleted_between_the_parts_is_an_error_not_a_mix(self, pipeline):
        async def fault(number, buffer):
            return buffer if number < 6 else None  # a part is four requests

        array = self.array(FaultyStore(MemoryStore(), fault))
        array.store_path.store.requests.clear()
        array.store_path.store.fault = fault
        with pytest.raises(ChunkSizeError, match="of .*c/0 are there and others are missing"):
            array[::10_000]

    @pytest.mark.parametrize("is_synchronous", [False, True], ids=["get", "get_sync"])
    def test_of_a_missing_chunk_no_part_follows_the_first(
        self, pipeline, is_synchronous, monkeypatch
    ):
        monkeypatch.setattr(limits, "LIMITS", Limits(unselected=100, runs=4))
        store = CountingStore(MemoryStore())
        array = stored(store, numbers((200,)))
        asyncio.run(store.delete("c/0"))
        if is_synchronous:
            if not hasattr(MemoryStore, "get_sync"):
                pytest.skip("this zarr does not read synchronously")
            store._supports_sync_io = True
            store.get_sync = lambda key, **_: store.requests.append(key)
        store.requests.clear()
        with zarr.config.set({"async.concurrency": 1, "zarr_bytes.gap.remote": 0}):
            assert not array[::5].any()
            assert not array.oindex[np.arange(199, 0, -5)].any()
        assert len(store.requests) == 2


needs_nowait = pytest.mark.skipif(
    not hasattr(os, "RWF_NOWAIT"), reason="this system has no RWF_NOWAIT"
)
HOLD_A_LEASE = """
import fcntl, sys, time
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
time.sleep(60)  # until the signal that somebody waits for the lease ends this process
"""


def put(kind, path):
    """Put something that is no file in a chunk's place."""
    if kind == "folder":
        path.mkdir()
    elif kind == "character device":
        path.symlink_to("/dev/zero")
    elif kind == "FIFO":
        os.mkfifo(path)
    else:
        folder = tempfile.mkdtemp()  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{folder}/s")
        Path(folder, "s").rename(path)
        Path(folder).rmdir()


class TestLocalFiles:
    def test_a_truncated_file_is_an_error(self, tmp_path, pipeline):
        array = stored(LocalStore(tmp_path), numbers((50, 5000)))
        path = tmp_path / "c/0/0"
        path.write_bytes(path.read_bytes()[:-1])
        assert array[3, 7] == numbers((50, 5000))[3, 7]  # these bytes are there
        for selection in (..., 49):
            with pytest.raises(ChunkSizeError, match=f"of {path} are .* bytes, found .* truncated"):
                array[selection]

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux says what is open")
    def test_after_an_error_no_file_stays_open(self, tmp_path, pipeline):
        array = stored(LocalStore(tmp_path), numbers((50, 5000)))
        path = tmp_path / "c/0/0"
        os.truncate(path, 100)
        for selection in (..., 49, np.s_[:, 49]):
            with pytest.raises(ChunkSizeError):
                array[selection]
        files = [file.resolve() for file in Path("/proc/self/fd").iterdir()]
        assert path.resolve() not in files

    def test_a_file_that_is_too_long_is_an_error(self, tmp_path, pipeline):
        array = stored(LocalStore(tmp_path), numbers((50, 5000)))
        path = tmp_path / "c/0/0"
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(ChunkSizeError, match="2000000 bytes, found 2000001"):
            array[...]

    @pytest.mark.parametrize("there", ["nothing", "file above"])
    def test_what_zarr_takes_for_missing_is_missing(self, tmp_path, pipeline, there):
        array = stored(LocalStore(tmp_path), numbers((50, 5000)))
        path = tmp_path / "c/0/0"
        path.unlink()
        if there == "file above":
            path.parent.rmdir()
            path.parent.touch()
        assert (array[3] == 0).all()
        assert (array[...] == 0).all()

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no such things")
    @pytest.mark.parametrize("chunk_shape", [(1, 8), (50, 5000)], ids=["small", "large"])
    @pytest.mark.parametrize("selection", [..., np.s_[0, 2:5]], ids=["whole", "range"])
    @pytest.mark.parametrize("kind", ["folder", "FIFO", "socket", "character device"])
    def test_what_is_no_file_is_refused_and_never_waited_for(
        self, tmp_path, pipeline, kind, selection, chunk_shape
    ):
        array = stored(LocalStore(tmp_path / "array"), numbers(chunk_shape))
        assert array[0, 2] == 2  # now small reads are made on zarr's event loop
        path = tmp_path / "array/c/0/0"
        path.unlink()
        put(kind, path)
        found = f"{re.escape(str(path))} is a {kind}, and a chunk is a regular file: move it"
        with pytest.raises(ChunkFileError, match=found):
            array[selection]
        path.unlink() if kind != "folder" else path.rmdir()
        assert array[0, 2] == 0

    @needs_nowait
    def test_a_small_read_of_a_cached_file_takes_no_thread(self, tmp_path):
        stored(LocalStore(tmp_path), numbers((50, 5000)))
        root, path = str(tmp_path), f"{tmp_path}/c/0/0"
        plan = plan_of((50, 5000), (3, slice(7, 9)), Cost(0, 2**30))
        assert not is_tried(root)  # before a thread has looked where the file is
        assert read_file(plan, path, root).tolist() == [15007, 15008]
        assert is_tried(root)
        assert read_file(plan, path, root, waits=False).tolist() == [15007, 15008]

    @needs_nowait
    def test_only_local_file_systems_are_read_without_a_thread(self):
        plan = plan_of((50,), (slice(2, 3),), Cost(0, 2**30), "u1")
        assert read_file(plan, "/proc/self/environ", "/proc/self").size == 1
        assert not is_tried("/proc/self")

    @pytest.mark.parametrize(("columns", "most"), [(16, 1), (2**19, 10)], ids=["small", "large"])
    def test_a_batch_of_chunks_takes_few_hops_to_a_thread(
        self, tmp_path, monkeypatch, columns, most
    ):
        values = numbers((40, columns), "u1")
        stored(LocalStore(tmp_path), values, chunks=(1, columns))
        hops = []
        to_thread = asyncio.to_thread
        settings = {
            "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
            "codec_pipeline.batch_size": 40,
        }
        with zarr.config.set(settings):
            array = zarr.open_array(tmp_path, mode="r")
        array[0, 0]  # now the file system is known
        monkeypatch.setattr(
            asyncio, "to_thread", lambda *args: (hops.append(args[0]), to_thread(*args))[1]
        )
        assert np.array_equal(array[...], values)
        assert 0 < len(hops) <= most
        (tmp_path / "c/7/0").unlink()
        assert not array[7].any()
        assert np.array_equal(array[6::2, 3], values[6::2, 3])

    def test_arrays_that_are_read_in_turn_keep_their_own_form(self, tmp_path, pipeline):
        """What is found once for an array is not taken for another one."""
        forms = [((4, 6), "<i4"), ((4, 6), "<f4"), ((6, 4), "<i4"), ((4, 6), "<i8")]
        values = [numbers(shape, dtype) for shape, dtype in forms]
        arrays = [
            stored(LocalStore(tmp_path / f"{i}{endian}"), v, serializer=BytesCodec(endian=endian))
            for i, v in enumerate(values)
            for endian in ("little", "big")
        ]
        for _ in range(2):
            for array, expected in zip(arrays, np.repeat(np.arange(4), 2), strict=True):
                assert np.array_equal(array[...], values[expected])
                assert np.array_equal(array[1:3, 2], values[expected][1:3, 2])

    @needs_nowait
    def test_a_missing_file_takes_no_thread(self, tmp_path):
        stored(LocalStore(tmp_path), numbers((50, 5000)))
        plan = plan_of((50, 5000), (3, slice(7, 9)), Cost(0, 2**30))
        assert read_file(plan, f"{tmp_path}/c/9/9", str(tmp_path), waits=False) is None

    @needs_nowait
    def test_a_file_that_must_be_waited_for_is_read_in_a_thread(self, tmp_path, monkeypatch):
        stored(LocalStore(tmp_path), numbers((50, 5000)))
        tries = []

        def preadv(descriptor, buffers, offset, flags=0):
            tries.append(flags)
            if flags == os.RWF_NOWAIT:
                raise BlockingIOError
            return read_now(descriptor, buffers, offset)

        read_now = os.preadv
        monkeypatch.setattr(os, "preadv", preadv)  # what is in the page cache, nobody can command
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            array = zarr.open_array(tmp_path, mode="r")
            for expected in ([0], [os.RWF_NOWAIT, 0], [0]):  # not tried again within a second
                assert array[3, 7:9].tolist() == [15007, 15008]
                assert tries == expected
                tries.clear()

    def test_a_file_that_another_process_has_a_lease_on_is_waited_for(self, tmp_path):
        fcntl = pytest.importorskip("fcntl")
        if not hasattr(fcntl, "F_SETLEASE"):
            pytest.skip("this system has no leases")
        array = stored(LocalStore(tmp_path), numbers((5, 5)))
        command = [sys.executable, "-c", HOLD_A_LEASE, str(tmp_path / "c/0/0")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            if holder.stdout.readline() != "held\n":
                pytest.skip("this file system has no leases")
            assert array[3, 3] == 18

    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_a_subclass_of_the_store_is_read_through_its_get(self, tmp_path, pipeline, batch_size):
        class Inverted(LocalStore):
            _supports_sync_io = False

            async def get(self, key, prototype=None, byte_range=None):
                buffer = await super().get(key, prototype, byte_range)
                if key.endswith("zarr.json") or buffer is None:
                    return buffer
                return type(buffer).from_bytes(bytes(255 - b for b in buffer.to_bytes()))

        values = numbers((50, 5000), "u1")
        stored(LocalStore(tmp_path), values, chunks=(10, 5000))
        with zarr.config.set({"codec_pipeline.batch_size": batch_size}):
            array = zarr.open_array(Inverted(tmp_path), mode="r")
        assert np.array_equal(array[3:33, 100:200], 255 - values[3:33, 100:200])


def test_a_view_in_memory_is_not_copied_before_zarr_copies_it():
    array = stored(MemoryStore(), numbers((50, 5000)))
    codec = array.metadata.codecs[0]
    spec = zarr.core.array_spec.ArraySpec(
        shape=(50, 5000),
        dtype=array.metadata.data_type,
        fill_value=0,
        config=zarr.core.array_spec.ArrayConfig.from_dict({}),
        prototype=zarr.buffer.cpu.buffer_prototype,
    )
    getter = zarr.storage.StorePath(array.store_path.store, "c/0/0")
    result = asyncio.run(codec._decode_partial_single(getter, np.s_[3:9, ::2], spec))
    chunk = array.store_path.store._store_dict["c/0/0"].as_numpy_array()
    assert np.shares_memory(result.as_numpy_array(), chunk)
    assert result.dtype == np.dtype(">f8")


def test_buffers_that_are_not_numpys_get_the_declared_type():
    class DeviceBuffer(Buffer):  # no subclass of zarr's CPU buffer
        create_zero_length = from_buffer = from_bytes = as_numpy_array = combine = None

    DeviceBuffer.__abstractmethods__ = frozenset()

    class DeviceNDBuffer(zarr.buffer.cpu.NDBuffer):
        pass

    array = stored(CountingStore(MemoryStore()), numbers((50, 5000)))
    spec = zarr.core.array_spec.ArraySpec(
        shape=(50, 5000),
        dtype=array.metadata.data_type,
        fill_value=0,
        config=zarr.core.array_spec.ArrayConfig.from_dict({}),
        prototype=BufferPrototype(DeviceBuffer, DeviceNDBuffer),
    )
    getter = zarr.storage.StorePath(array.store_path.store, "c/0/0")
    codec = array.metadata.codecs[0]
    result = asyncio.run(codec._decode_partial_single(getter, (3, slice(None, 9)), spec))
    assert type(result) is DeviceNDBuffer
    assert result.dtype == np.dtype("=f8")
    assert np.array_equal(result.as_numpy_array(), numbers((50, 5000))[3, :9])


def test_big_documents_of_other_writers():
    chunk = numbers((300, 300), ">i2").tobytes()
    store = CountingStore(store_of("int16", shape=(300, 300), codecs=BIG, chunk=chunk))
    with zarr.config.set({"zarr_bytes.gap.remote": 10}):
        array = zarr.open_array(store, mode="r+")
        store.counted()
        assert array[5, 5:8].tolist() == [1505, 1506, 1507]
    assert store.requests == [RangeByteRequest(3010, 3016)]
