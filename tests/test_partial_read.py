"""Partial reads: the codec in zarr's pipelines, and every fault of requests.

`test_cost.py` has the requests and bytes of reads without faults, `test_damaged.py` chunks that are
not what they should be, and `test_fuzz.py` a fault of any request.
"""

import asyncio
import gc
import sys
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import zarr
from chunk_selections import selections
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import (
    DEVICE,
    CountingStore,
    DeviceNDBuffer,
    created,
    faulty,
    numbers,
    spec_of,
    stored,
)
from system_calls import ending_early
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore, StorePath

from zarr_bytes import BytesCodec, ChunkSizeError, counting

OWN = "BatchedBytesPipeline"
BIG = BytesCodec(endian="big")
VALUES = numbers((50, 500))
MANY = {"zarr_bytes.gap.remote": 100}  # an element of each row is a request


def selected_by_the_codec(array, selection, prototype=zarr.buffer.cpu.buffer_prototype):
    """Straight from the codec, past zarr's own handling of selections."""
    key = "/".join(["c", *("0" for _ in array.shape)])
    getter, spec = StorePath(array.store_path.store, key), spec_of(array, prototype=prototype)
    codec = array.metadata.codecs[0]
    return asyncio.run(codec._decode_partial_single(getter, selection, spec))


def test_a_row_is_one_request_for_its_bytes():
    array = stored(CountingStore(MemoryStore()), VALUES)
    array.store.requests.clear()
    with zarr.config.set(MANY):
        assert np.array_equal(array[7], VALUES[7])
    assert array.store.counted() == (1, VALUES[7].nbytes)


class TestTheCodec:
    @given(case=selections(), gap=st.integers(0, 100))
    def test_partial_decoding_by_the_codec_gives_what_numpy_selects(self, case, gap):
        shape, selection = case
        values = numbers(shape, ">i4")
        array = stored(CountingStore(MemoryStore()), values)
        with zarr.config.set({"zarr_bytes.gap.remote": gap}):
            result = selected_by_the_codec(array, selection)
        expected = values[(*selection, ...)]
        assert result.shape == expected.shape
        assert np.array_equal(result.as_numpy_array(), expected)

    def test_partial_decoding_gives_device_buffers_in_the_declared_type(self):
        array = stored(CountingStore(MemoryStore()), VALUES)
        result = selected_by_the_codec(array, np.s_[3, :9], DEVICE)
        assert (type(result), result.dtype) == (DeviceNDBuffer, np.dtype("=f8"))
        assert result.is_brought
        assert np.array_equal(result.as_numpy_array(), VALUES[3, :9])


@pytest.fixture
def nothing_is_logged(caplog):
    """Asyncio logs an exception that nobody has retrieved when its task is collected."""
    yield
    gc.collect(1)  # young objects: a full collection takes longer than the test
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


# Pipelines and options; in front of the ranges of a shard is the request for its index.
ARRAYS = {
    **{name: (name, {}, 0) for name in PIPELINES},
    "transposed": (OWN, {"filters": [TransposeCodec(order=(1, 0))]}, 0),
    "a chunk for each row": (OWN, {"chunks": (1, 500)}, 0),
    "shard": (OWN, {"serializer": ShardingCodec(chunk_shape=(1, 500), codecs=[BIG])}, 1),
}
if HAS_FUSED_PIPELINE:  # from zarr 3.3 on
    ARRAYS["decoded"] = (OWN, {"filters": [zarr.codecs.ScaleOffset(offset=1, scale=2)]}, 0)


@pytest.mark.usefixtures("nothing_is_logged")
class TestFaults:
    """50 rows of 4,000 bytes; one element of each row is one request each."""

    @pytest.fixture(params=ARRAYS)
    def made(self, request):
        """A function that makes an array whose requests end as `fault(number, buffer)`.

        The number 1 is that of the first request for elements.
        """
        pipeline, options, index = ARRAYS[request.param]

        def made(fault, **others):
            async def of_ranges(number, buffer):
                return await fault(number - index, buffer) if number > index else buffer

            return faulty(of_ranges, VALUES, **options, **others)

        made.selection = np.s_[7, :50] if request.param == "transposed" else np.s_[:, 7]
        made.index, made.has_chunks = index, "chunks" in options
        made.nearly_all = np.s_[1:] if index else ...  # all of a small shard is one request
        with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline], **MANY}):
            yield made

    @pytest.mark.parametrize("cut", [1, 7])
    def test_a_truncated_object_is_an_error_with_key_range_and_sizes(self, made, cut):
        async def fault(number, buffer):
            return buffer[: max(len(buffer) - cut, 0)]

        message = r"bytes \d+ to \d+ of .*c/\d+/0 are \d+ bytes, found \d"
        for selection in made.selection, 3, (3, 4), made.nearly_all:
            with pytest.raises(ChunkSizeError, match=message):
                made(fault)[selection]

    def test_an_error_of_one_request_is_raised_and_the_others_are_cancelled(self, made):
        async def fault(number, buffer):
            if number == 5:
                raise PermissionError("no more")
            await asyncio.sleep(0 if number < 5 else 60)
            return buffer

        async def read():
            before = asyncio.all_tasks()
            with pytest.raises(PermissionError, match="no more"):
                await array.async_array.getitem(made.selection)
            return asyncio.all_tasks() - before

        array = made(fault)
        with zarr.config.set({"async.concurrency": 4}):
            assert zarr.core.sync.sync(read()) == set()
        assert (array.store.running, array.store.most) == (0, 4)
        assert len(array.store.requests) <= 8 + made.index  # and none is begun

    def test_an_error_of_every_request_is_raised_as_it_is_by_reads_and_writes(self, made):
        """Also where the size of the object says that the range is its end."""

        async def fault(number, buffer):
            raise PermissionError("no more")

        array = made(fault)
        selections = made.nearly_all, made.selection, 49, (49, 499)
        acts = [partial(array.__getitem__, selection) for selection in selections]
        if not made.index:  # a shard is read by one request, to be written
            acts.append(partial(array.__setitem__, (2, 2), 5))
        for act in acts:
            with pytest.raises(PermissionError, match="no more"):
                act()

    def test_a_chunk_that_is_deleted_between_requests_is_an_error(self, made):
        """Of a shard, also after its index alone."""
        for last in range(1 - made.index, 20, 19):

            async def fault(number, buffer, last=last):
                return buffer if number <= last else None

            array = made(fault)
            if made.has_chunks:  # of which some are missing then
                with zarr.config.set({"async.concurrency": 1}):
                    assert np.count_nonzero(array[:, 7]) == last
                continue
            message = "some byte ranges .* are there and others are miss"
            with pytest.raises(ChunkSizeError, match=message):
                array[made.selection]

    def test_cancelling_the_caller_cancels_and_awaits_the_requests(self, made):
        async def fault(number, buffer):
            started.set()
            await asyncio.sleep(60)

        async def cancelled():
            before = asyncio.all_tasks()
            read = asyncio.ensure_future(array.async_array.getitem(made.selection))
            await started.wait()
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            return asyncio.all_tasks() - before

        started, array = asyncio.Event(), made(fault)
        assert asyncio.run(cancelled()) == set()
        assert array.store.running == 0


class TestRequests:
    def test_a_store_without_ranges_from_the_end_is_asked_for_its_size(self, tmp_path):
        """Here a subclass of that of folders, which is asked for all that it has."""
        requests = []

        class AsAzure(LocalStore):
            _supports_sync_io = False

            async def get(self, key, prototype=None, byte_range=None):
                if isinstance(byte_range, SuffixByteRequest):
                    raise NotImplementedError("no suffixes")
                requests.append(byte_range)
                return await super().get(key, prototype, byte_range)

        shards = ShardingCodec(chunk_shape=(5, 50), codecs=[BIG])
        array = stored(AsAzure(tmp_path), VALUES, serializer=shards)
        requests.clear()
        with zarr.config.set({"zarr_bytes.gap.local": 0}):
            assert array[1, 2] == VALUES[1, 2]
        assert requests == [RangeByteRequest(200_000, 201_604), RangeByteRequest(416, 424)]


@pytest.mark.usefixtures("pipeline")
class TestLocalFiles:
    def test_without_partial_reads_a_small_file_is_read_whole(self, tmp_path):
        values = numbers((50, 100))
        array = stored(LocalStore(tmp_path), values)
        with zarr.config.set({"zarr_bytes.partial_reads": False}), counting() as counted:
            for selection in np.s_[3, 7], np.s_[3]:
                assert np.array_equal(array[selection], values[selection])
        assert counted.bytes_fetched == 2 * values.nbytes

    def test_a_read_that_the_system_cuts_short_goes_on_where_it_ended(self, tmp_path):
        """Of one range, of a few rows, and of many short ranges."""
        values = numbers((80, 60), "i4")
        array = stored(LocalStore(tmp_path), values)
        with zarr.config.set({"zarr_bytes.gap.local": 0}):
            for seed in range(8):
                for selection in np.s_[7], np.s_[5:60:27, 3:9], np.s_[:, 8:13], np.s_[...]:
                    with ending_early(seed):
                        assert np.array_equal(array[selection], values[selection])

    @pytest.mark.skipif(sys.platform == "win32", reason="files without holes")
    def test_elements_at_offsets_above_32_bits_are_read(self, tmp_path):
        n, points = 2**17, ([2**16 + 1, 3, 2**17 - 1], [5, 2**17 - 2, 7])
        array = created(tmp_path, (n, n), "u1")
        (tmp_path / "c/0").mkdir(parents=True)
        with (tmp_path / "c/0/0").open("wb") as file:
            file.truncate(n * n)
            for row, column in zip(*points, strict=True):
                file.seek(row * n + column)
                file.write(b"\7")
        assert array.vindex[points].tolist() == [7, 7, 7]
        assert array[2**16 + 1, 4:7].tolist() == [0, 7, 0]


@pytest.mark.skipif(
    "rectilinear_chunks" not in zarr.config.get("array"), reason="zarr has them from 3.3 on"
)
@pytest.mark.parametrize("filters", [[], [TransposeCodec(order=(1, 0))]], ids=["plain", "T"])
def test_every_selection_of_a_rectilinear_chunk_grid_is_read(tmp_path, pipeline, filters):
    """A part that begins with two chunks is often selected alike in both."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        store = LocalStore(tmp_path)
        array = created(store, (9, 8), "i4", chunks=[[4, 5], [2, 4, 2]], filters=filters)
    array[...] = model = numbers((9, 8), "i4")
    array[2:8, 1::2] = model[2:8, 1::2] = -1
    for start, stop in combinations(range(9), 2):
        for rows in 1, [0, 4], [3, 2, 7, 6], slice(None):
            assert np.array_equal(array.oindex[rows, start:stop], model[rows, start:stop])
