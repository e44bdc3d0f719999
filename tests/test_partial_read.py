"""Partial reads through zarr: results, requests and bytes, and what happens on a fault."""

import asyncio
import gc
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import SynchronousStore, open_with
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import (
    DEVICE,
    KINDS_OF_NO_FILE,
    CountingStore,
    DeviceNDBuffer,
    FaultyStore,
    contents_of,
    faulty,
    numbers,
    put,
    spec_of,
    stored,
)
from system_calls import leased, needs_nowait
from test_indexing import selections
from zarr.abc.store import RangeByteRequest
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from zarr_bytes import (
    BoolValueError,
    BytesCodec,
    ChunkFileError,
    ChunkSizeError,
    counting,
    limits,
)
from zarr_bytes.indexing.plan import ByteRanges
from zarr_bytes.io.files import open_chunk
from zarr_bytes.io.opening import is_tried
from zarr_bytes.limits import Limits


@pytest.mark.parametrize("kind", ["local", "memory", "requests", "shard"])
def test_a_bool_is_checked_where_it_is_read(tmp_path, pipeline, kind):
    shard = zarr.codecs.ShardingCodec(chunk_shape=(40, 40), codecs=[BytesCodec()])
    options = {"serializer": shard} if kind == "shard" else {}
    objects = contents_of(stored(MemoryStore(), np.zeros((80, 40), bool), **options).store)
    content = objects["c/0/0"]
    objects["c/0/0"] = content[:820] + b"\5" + content[821:]  # the element [20, 20]
    array = open_with("memory" if kind == "shard" else kind, objects, tmp_path)
    where = "(20,) of the selection"
    if kind == "shard" and pipeline == "FusedCodecPipeline":  # which reads inner chunks whole
        where = "(20, 20) of the chunk"
    with zarr.config.set({"zarr_bytes.gap": {"local": 64, "remote": 64}}):
        assert not array[-10:].any()
        with pytest.raises(BoolValueError, match=re.escape(f"found 5 at index {where}")):
            array[20]


def selected_by_the_codec(array, selection, prototype=zarr.buffer.cpu.buffer_prototype):
    """Straight from the codec, past zarr's own handling of selections."""
    key = "/".join(["c", *("0" for _ in array.shape)])
    getter, spec = StorePath(array.store_path.store, key), spec_of(array, prototype=prototype)
    codec = array.metadata.codecs[0]
    return asyncio.run(codec._decode_partial_single(getter, selection, spec))


@given(case=selections(), gap=st.integers(0, 100))
def test_the_codec_gives_what_numpy_selects(case, gap):
    shape, selection = case
    values = numbers(shape, ">i4")
    array = stored(CountingStore(MemoryStore()), values)
    with zarr.config.set({"zarr_bytes.gap.remote": gap}):
        result = selected_by_the_codec(array, selection)
    expected = values[(*selection, ...)]
    assert result.shape == expected.shape
    assert np.array_equal(result.as_numpy_array(), expected)


def test_a_view_in_memory_is_not_copied_before_zarr_copies_it():
    array = stored(MemoryStore(), numbers((50, 5000)))
    result = selected_by_the_codec(array, np.s_[3:9, ::2])
    chunk = array.store_path.store._store_dict["c/0/0"].as_numpy_array()
    assert np.shares_memory(result.as_numpy_array(), chunk)
    assert result.dtype == np.dtype(">f8")


def test_buffers_that_are_not_numpys_get_the_declared_type():
    array = stored(CountingStore(MemoryStore()), numbers((50, 5000)))
    result = selected_by_the_codec(array, (3, slice(None, 9)), DEVICE)
    assert type(result) is DeviceNDBuffer
    assert result.dtype == np.dtype("=f8")
    assert np.array_equal(result.as_numpy_array(), numbers((50, 5000))[3, :9])


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
        ("selection", "requests", "nbytes"),
        [
            (np.s_[7], 1, 80_000),
            (np.s_[7, 8], 1, 800),
            (np.s_[7, 8, 9], 1, 8),
            (np.s_[10:20], 1, 800_000),
            (np.s_[7, 20:40], 1, 16_000),
            (np.s_[10:20, 30:60], 10, 240_000),
            (np.s_[:, 5, 6], 60, 480),
            (np.s_[[3, 4, 50], 7], 3, 2400),
            (np.s_[[3, 4, 50], [1, 2, 3], [5, 5, 5]], 3, 24),
            (np.s_[7, :, ::50], 1, (99 * 100 + 51) * 8),  # gaps of less than 4 KiB are bridged
            (np.s_[...], 1, None),
        ],
        ids="plane row point planes rows box column list points gaps whole".split(),
    )
    def test_only_the_needed_bytes_are_fetched(self, array, selection, requests, nbytes):
        """Also before it is known that the store has ranges."""
        for _ in "unknown", "known":
            assert np.array_equal(array[selection], numbers(self.SHAPE)[selection])
            assert array.store_path.store.counted() == (requests, nbytes)

    def test_a_missing_chunk_costs_one_round_trip(self, array):
        array.store_path.store._store._store_dict.pop("c/0/0/0")
        assert (array[7] == 0).all()
        assert array.store_path.store.counted() == (1, 80_000)
        assert (array[:, 5, 6] == 0).all()
        requests, _ = array.store_path.store.counted()
        assert requests <= zarr.config.get("async.concurrency")  # all of them at once

    @pytest.mark.parametrize(
        ("setting", "counted"),
        [
            ({"zarr_bytes.largest_request.remote": 30_000}, (3, 80_000)),
            ({"zarr_bytes.largest_request.remote": 20_000}, (4, 80_000)),
            ({"zarr_bytes.largest_request.remote": 80_000}, (1, 80_000)),
            ({"zarr_bytes.partial_reads": False}, (1, None)),
        ],
        ids=["three", "four", "one", "whole chunks"],
    )
    def test_requests_are_as_large_as_the_settings_say(self, array, setting, counted):
        with zarr.config.set(setting):
            assert np.array_equal(array[7], numbers(self.SHAPE)[7])
        assert array.store_path.store.counted() == counted

    def test_a_chunk_with_a_compressor_is_read_whole(self, pipeline):
        store, values = CountingStore(MemoryStore()), numbers((60, 100))
        codec = zarr.codecs.ZstdCodec()
        zarr.create_array(store, data=values, chunks=values.shape, compressors=codec)
        array = zarr.open_array(store, mode="r+")
        store.counted()
        assert np.array_equal(array[3, ::7], values[3, ::7])
        assert store.counted() == (1, None)

    def test_a_setting_that_is_not_permitted_is_an_error(self, array):
        name = "zarr_bytes.gap.remote"
        with (
            zarr.config.set({name: -1}),
            pytest.raises(ValueError, match=f"{name} is .* permitted"),
        ):
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

    with ZipStore(tmp_path / "a.zip", mode="w", compression=compression) as store:
        options = {"chunks": (60, 1000), "compressors": None, "serializer": BytesCodec()}
        zarr.create_array(store, data=numbers((60, 1000)), **options)
    array = zarr.open_array(CountingZip(tmp_path / "a.zip"), mode="r")
    assert array[3, :2].tolist() == [3000, 3001]
    assert ranges == requests


@pytest.mark.parametrize("where", ["memory", "file", "behind get"])
def test_chunks_that_no_store_holds_read_as_their_fill_value(tmp_path, pipeline, where):
    for shape in [(2**60,), (2**63,), (2**40, 2**40), (2**70, 3)]:
        folder = tmp_path / str(shape)
        stores = {"memory": MemoryStore, "file": lambda path=folder: LocalStore(path)}
        store = stores[where]() if where in stores else CountingStore(MemoryStore())
        options = {"dtype": ">f8", "fill_value": 7, "compressors": None}
        codec = BytesCodec(endian="big")
        array = zarr.create_array(store, shape=shape, chunks=shape, serializer=codec, **options)
        for entry in (3, slice(5), slice(None, None, 2**58)):
            assert (array[(entry, *(slice(2) for _ in shape[1:]))] == 7).all()
        key = "/".join(["c", *("0" for _ in shape)])
        zarr.core.sync.sync(store.set(key, zarr.buffer.cpu.Buffer.from_bytes(bytes(16))))
        with pytest.raises(ChunkSizeError, match="bytes.* found"):
            array[(slice(9), *(slice(2) for _ in shape[1:]))]


@pytest.fixture
def nothing_is_logged(caplog):
    """Asyncio logs an exception that nobody has retrieved when its task is collected."""
    yield
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def no_more(number, buffer):
    raise PermissionError("no more")


async def fails_at_the_fifth(number, buffer):
    if number == 5:
        raise PermissionError("no more")
    await asyncio.sleep(0 if number < 5 else 60)
    return buffer


async def deleted_at_the_twentieth(number, buffer):
    return buffer if number < 20 else None


@pytest.mark.usefixtures("pipeline", "nothing_is_logged")
class TestFaults:
    """50 rows of 40,000 bytes; one element of each row is one request each."""

    @pytest.fixture(autouse=True)
    def _many_requests(self):
        with zarr.config.set({"zarr_bytes.gap.remote": 100}):
            yield

    @pytest.mark.parametrize("cut", [1, 7])
    def test_a_truncated_object_is_an_error_with_key_range_and_sizes(self, cut):
        async def fault(number, buffer):
            return buffer[: max(len(buffer) - cut, 0)]

        for selection in np.s_[:, 7], np.s_[3], ...:
            with pytest.raises(
                ChunkSizeError, match=r"bytes \d+ to \d+ of .*c/0/0 are \d+ bytes, found"
            ):
                faulty(fault)[selection]

    def test_an_error_of_one_request_is_raised_and_the_others_are_cancelled(self):
        async def read():
            before = asyncio.all_tasks()
            with pytest.raises(PermissionError, match="no more"):
                await array.async_array.getitem(np.s_[:, 7])
            return asyncio.all_tasks() - before

        array = faulty(fails_at_the_fifth)
        with zarr.config.set({"async.concurrency": 4}):
            assert zarr.core.sync.sync(read()) == set()
        assert array.store_path.store.running == 0
        assert len(array.store_path.store.requests) <= 8  # and none is begun

    def test_an_error_of_one_request_is_raised_where_another_finds_nothing(self):
        async def fault(number, buffer):
            return buffer if number == 1 else None if number == 2 else await no_more(number, buffer)

        array = faulty(fault)
        array[3]  # now the store is known to answer ranges, so that several are under way
        with pytest.raises(PermissionError, match="no more"):
            array[:, 7]

    def test_an_object_that_is_deleted_midway_is_an_error_not_a_mix(self):
        with pytest.raises(
            ChunkSizeError, match="some byte ranges .* are there and others are miss"
        ):
            faulty(deleted_at_the_twentieth)[:, 7]

    def test_an_object_that_is_replaced_between_requests_may_be_of_two_versions(self):
        """As the guide says: a store has no version that all requests of a chunk could name."""

        async def fault(number, buffer):
            return buffer if number <= 20 else type(buffer).from_bytes(bytes(len(buffer)))

        read = faulty(fault)[:, 7]
        assert np.array_equal(read[:20], numbers((50, 5000))[:20, 7])
        assert not read[20:].any()

    def test_an_error_of_the_last_range_is_raised_and_not_taken_for_the_end(self):
        class Sized(FaultyStore):
            async def getsize(self, key):
                return 2_000_000

        array = faulty(no_more, store_class=Sized)
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
            before = asyncio.all_tasks()
            read = asyncio.ensure_future(array.async_array.getitem(np.s_[:, 7]))
            await started.wait()
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            return asyncio.all_tasks() - before

        started, array = asyncio.Event(), faulty(fault)
        assert asyncio.run(cancelled()) == set()
        assert array.store_path.store.running == 0


if HAS_FUSED_PIPELINE:

    def test_a_store_that_reads_synchronously_is_asked_for_one_range_after_another():
        with zarr.config.set({"codec_pipeline.path": PIPELINES["FusedCodecPipeline"]}):
            array = stored(SynchronousStore(MemoryStore()), numbers((50, 5000)))
        array.store_path.store.requests.clear()
        with zarr.config.set({"zarr_bytes.gap.remote": 100}):
            assert np.array_equal(array[:, 7], numbers((50, 5000))[:, 7])
        starts = [request.start for request in array.store_path.store.requests]
        assert starts == [56 + 40_000 * i for i in range(50)]


class TestParts:
    """A selection of which no more than 100 bytes are fetched at once that are not selected."""

    @pytest.fixture(autouse=True)
    def _small_parts(self, monkeypatch, pipeline):
        monkeypatch.setattr(limits, "LIMITS", Limits(runs=4))
        with zarr.config.set({"async.concurrency": 1, "zarr_bytes.gap.remote": 0}):
            yield

    @pytest.mark.parametrize("last", [4, 5], ids=["between them", "in the second"])
    def test_a_chunk_that_is_deleted_meanwhile_is_an_error_not_a_mix(self, last):
        async def fault(number, buffer):
            return buffer if number <= last else None  # a part is four requests

        array = faulty(fault, numbers((200,)))
        with pytest.raises(ChunkSizeError, match="of .*c/0 are there and others are missing"):
            array[::5]

    @pytest.mark.parametrize("is_synchronous", [False] + [True] * HAS_FUSED_PIPELINE)
    def test_of_a_missing_chunk_none_follows_the_first(self, is_synchronous):
        store = CountingStore(MemoryStore())
        array = stored(store, numbers((200,)))
        asyncio.run(store.delete("c/0"))
        if is_synchronous:
            store._supports_sync_io = True
            store.get_sync = lambda key, **_: store.requests.append(key)
        store.requests.clear()
        assert not array[::5].any()
        assert not array.oindex[np.arange(199, 0, -5)].any()
        assert len(store.requests) == 2


@pytest.mark.usefixtures("pipeline")
class TestLocalFiles:
    @pytest.fixture
    def array(self, tmp_path):
        return stored(LocalStore(tmp_path), numbers((50, 5000)))

    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "c/0/0"

    def test_a_truncated_file_is_an_error(self, array, path):
        """And no file stays open after it."""
        os.truncate(path, 1_999_999)
        assert array[3, 7] == numbers((50, 5000))[3, 7]  # these bytes are there
        for selection, start in ((..., 0), (49, 1_960_000)):
            sizes = f"{2_000_000 - start} bytes, found {1_999_999 - start}"
            said = f"bytes {start} to 2000000 of {path} are {sizes}: .*truncated"
            with pytest.raises(ChunkSizeError, match=said):
                array[selection]
        if Path("/proc/self/fd").exists():  # where Linux says what is open
            assert path not in [file.resolve() for file in Path("/proc/self/fd").iterdir()]

    def test_without_partial_reads_a_small_file_is_read_whole(self, tmp_path):
        array = stored(LocalStore(tmp_path), numbers((50, 100)))
        with zarr.config.set({"zarr_bytes.partial_reads": False}), counting() as counted:
            assert array[3, 7] == numbers((50, 100))[3, 7]
            assert np.array_equal(array[3], numbers((50, 100))[3])
        assert counted.bytes_fetched == 2 * 50 * 100 * 8

    def test_a_file_that_is_too_long_is_an_error(self, array, path):
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(ChunkSizeError, match="2000000 bytes, found 2000001"):
            array[...]

    @pytest.mark.filterwarnings("ignore:The data type")  # zarr 3.1: texts have no specification
    def test_one_element_of_many_bytes_is_read_straight_into_a_result_without_axes(self, tmp_path):
        value = np.array("z" * 5000, "<U5000")
        array = stored(LocalStore(tmp_path / "one"), value, serializer=BytesCodec(endian="little"))
        assert array[...] == value

    @pytest.mark.parametrize("there", ["nothing", "file above"])
    def test_what_zarr_takes_for_missing_is_missing(self, array, path, there):
        path.unlink()
        if there == "file above":
            path.parent.rmdir()
            path.parent.touch()
        assert not array[3].any()
        assert not array[...].any()

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no such things")
    @pytest.mark.parametrize("chunk_shape", [(1, 8), (50, 5000)], ids=["small", "large"])
    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_what_is_no_file_is_refused_and_never_waited_for(self, tmp_path, kind, chunk_shape):
        array = stored(LocalStore(tmp_path / "array"), numbers(chunk_shape))
        assert array[0, 2] == 2  # now small reads are made on zarr's event loop
        path = tmp_path / "array/c/0/0"
        path.unlink()
        put(kind, path)
        found = f"{re.escape(str(path))} is a {kind.removeprefix('link to a ')}"
        for selection in ..., np.s_[0, 2:5]:
            with pytest.raises(ChunkFileError, match=f"{found}.*, and a chunk is a regular file"):
                array[selection]
        path.unlink() if kind != "folder" else path.rmdir()
        assert array[0, 2] == 0

    def test_a_file_that_another_process_has_a_lease_on_is_waited_for(self, array, path):
        with leased(path):
            assert array[3, 3] == 15003

    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_a_subclass_of_the_store_is_read_through_its_get(self, tmp_path, batch_size):
        class Inverted(LocalStore):
            _supports_sync_io = False

            async def get(self, key, prototype=None, byte_range=None):
                buffer = await super().get(key, prototype, byte_range)
                if key.endswith("zarr.json") or buffer is None:
                    return buffer
                return type(buffer).from_bytes(bytes(255 - b for b in buffer.to_bytes()))

        values = numbers((50, 500), "u1")
        stored(LocalStore(tmp_path), values, chunks=(10, 500))
        with zarr.config.set({"codec_pipeline.batch_size": batch_size}):
            array = zarr.open_array(Inverted(tmp_path), mode="r")
        assert np.array_equal(array[3:33, 100:200], 255 - values[3:33, 100:200])

    @needs_nowait
    def test_only_local_file_systems_are_read_without_a_thread(self):
        with open_chunk("/proc/self/environ", "/proc/self", waits=True) as file:
            assert file.read(ByteRanges(2, 1), 1).size == 1
        assert not is_tried("/proc/self")
