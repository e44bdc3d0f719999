"""What chunks cost: opens, requests, bytes, memory, and room on the disk.

The offset of each element comes from its layout, laid out by hand. Read and written are the
selected bytes and the gaps that settings permit, and nothing else.
"""

import asyncio
import gc
import os
import struct
import weakref
import zipfile
from contextlib import suppress
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from documents import document_of, write
from fuzz import SynchronousStore, encoded, store_with
from shards import divided, morton_order, shard_of
from stored_arrays import (
    IN_PLACE,
    CountingStore,
    contents_of,
    created,
    faulty,
    most_memory,
    numbers,
    stored,
)
from system_calls import NEVER, watched, written_to
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

from zarr_bytes import BytesCodec, counting, explain

OWN = "BatchedBytesPipeline"
BIG = BytesCodec(endian="big")
TRANSPOSE = TransposeCodec(order=(2, 0, 1))  # not its own inverse
SHAPE, INNER = (12, 16, 10), (4, 8, 2)  # of 8 bytes; a plane is so many ranges that it is mapped
VALUES = numbers(SHAPE) + 1
INDEX = 16 * prod(n // c for n, c in zip(SHAPE, INNER, strict=True)) + 4  # bytes of an index
KEY = "c/0/0/0"
MEBIBYTE = 2**20
GAP, LARGEST = "zarr_bytes.gap.remote", "zarr_bytes.largest_request.remote"

pytestmark = pytest.mark.zarr

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")
needs_preadv = pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")


class Layout(NamedTuple):
    options: dict
    inner: tuple = INNER
    order: tuple = (0, 1, 2)  # of the axes of an inner chunk
    begin: int = 0  # of the first inner chunk
    index: tuple = ()  # how the index is asked for, if there is one
    key: str = KEY

    def ranges(self, selection):
        """Offset and length of each run of selected bytes."""
        offsets = np.empty(SHAPE, int)
        parts = [*divided(offsets, self.inner)]
        counts = [n // c for n, c in zip(SHAPE, self.inner, strict=True)]
        for position, number in enumerate(morton_order(counts)):
            part = parts[number].transpose(self.order)
            first = self.begin + 8 * position * part.size
            part[...] = first + 8 * np.arange(part.size).reshape(part.shape)
        return merged((int(offset), 8) for offset in np.unique(offsets[selection]))


def sharding(*codecs, location="end"):
    return {"serializer": ShardingCodec(chunk_shape=INNER, codecs=codecs, index_location=location)}


END, START = (SuffixByteRequest(INDEX),), (RangeByteRequest(0, INDEX),)
LAYOUTS = {
    "chunk": Layout({"serializer": BIG}, SHAPE),
    "transposed": Layout({"serializer": BIG, "filters": [TRANSPOSE]}, SHAPE, (2, 0, 1)),
    "shard": Layout(sharding(BIG), index=END),
    "index at the start": Layout(sharding(BIG, location="start"), begin=INDEX, index=START),
    "transposed inner chunks": Layout(sharding(TRANSPOSE, BIG), order=(2, 0, 1), index=END),
    "format 2 in order F": Layout(
        {"serializer": "auto", "zarr_format": 2, "order": "F"}, SHAPE, (2, 1, 0), key="0.0.0"
    ),
}
if HAS_FUSED_PIPELINE:  # from zarr 3.3 on
    LAYOUTS["scaled inner chunks"] = Layout(
        sharding(zarr.codecs.ScaleOffset(offset=4, scale=2), BIG), index=END
    )
SELECTIONS = [
    *(np.s_[7, 8, 9], np.s_[7, 8], np.s_[7, 8, 3:6], np.s_[7], np.s_[4:8], np.s_[:, 5, 6]),
    *(np.s_[:, :, 3], np.s_[2:9, 3:11, 5:10], np.s_[::3, 1, ::4], np.s_[:, :8]),
    np.s_[4:8, 8:, 2:4],  # an inner chunk
    np.ix_([0, 3, 11], [15, 1], [5, 2]),
    *(np.s_[index, 3:11, ::4] for index in (np.array([7, 0, 11]), np.arange(12) % 5 == 1)),
    ([7, 0, 11], [0, 9, 3], [4, 4, 4]),
]
SETTINGS = [  # selection, settings; requests and bytes
    (np.s_[7, :, ::5], {GAP: 72}, 1, 8 * (15 * 10 + 6)),
    (np.s_[:, 5, 6], {GAP: 1271}, 12, 12 * 8),
    (np.s_[:, 5, 6], {GAP: 1272}, 1, 11 * 1280 + 8),
    (np.s_[[3, 4, 10], 7], {GAP: 7000}, 2, 2 * 80 + 1280 - 80 + 80),
    (np.s_[2:4], {LARGEST: 1000}, 4, 2560),
    (np.s_[2:4], {LARGEST: 1280}, 2, 2560),
    (np.s_[2:4], {LARGEST: 10**30}, 1, 2560),
    (np.s_[2:4], {LARGEST: 1000, "zarr_bytes.partial_reads": False}, 1, None),
    (np.s_[2:4], {LARGEST: 1000}, 4, 2560),
    (np.s_[:, 5, 6], {GAP: 1271}, 12, 12 * 8),
    (..., {GAP: 0}, 1, None),
]
both_ways = pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
files_and_memory = pytest.mark.parametrize("kind", ["local", "memory"])
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
PIPELINES_AND_LAYOUTS = [
    *((OWN, name) for name in LAYOUTS),
    *((p, "chunk") for p in PIPELINES if p != OWN),
]
every_pipeline_and_layout = pytest.mark.parametrize(("pipeline", "layout"), PIPELINES_AND_LAYOUTS)


def merged(ranges):
    """Ranges, joined where one begins at the end of another."""
    found = []
    for start, nbytes in sorted(ranges):
        if found and sum(found[-1]) == start:
            start, nbytes = found[-1][0], found.pop()[1] + nbytes
        found.append((start, nbytes))
    return found


def array_of(layout, store, pipeline=OWN, values=VALUES):
    with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
        return stored(store, values, **LAYOUTS[layout].options)


@pytest.fixture
def no_gaps():
    with zarr.config.set({"zarr_bytes.gap": {"local": 0, "remote": 0}}):
        yield


def indexed(array, selection):
    """What of the array is indexed, and by what."""
    if isinstance(selection, tuple) and isinstance(selection[0], np.ndarray):
        return array.oindex, tuple(e if isinstance(e, slice) else e.ravel() for e in selection)
    if isinstance(selection, tuple) and isinstance(selection[0], list):
        return array.vindex, selection
    return array, selection


def read(array, selection):
    of_array, selection = indexed(array, selection)
    return of_array[selection]


def test_a_row_of_a_chunk_is_one_range_of_its_bytes(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((100, 100)))
    with zarr.config.set({"zarr_bytes.gap.local": 0}), counting() as counted:
        array[7]
    assert (counted.ranges, counted.bytes_fetched) == (1, 100 * 8)


@pytest.mark.usefixtures("no_gaps")
class TestReading:
    @needs_preadv
    @every_layout
    @pytest.mark.parametrize("waits_after", [0, 100, 2**62])
    def test_a_file_is_read_at_the_selected_byte_ranges(self, tmp_path, layout, waits_after):
        """It is opened once, and again by a thread where bytes have to be waited for."""
        array = array_of(layout, LocalStore(tmp_path))
        assert array[0, 0, 0] == 1  # now the file system is known
        index = [INDEX] * len(LAYOUTS[layout].index)
        for selection in SELECTIONS:
            with watched(tmp_path, waits_after=waits_after) as files:
                assert np.array_equal(read(array, selection), VALUES[selection])
            found = [(offset, nbytes) for _, offset, nbytes in files.reads]
            assert files.opened == {LAYOUTS[layout].key: 1 + files.refused}
            if waits_after > 2**60:
                assert [nbytes for _, nbytes in found[: len(index)]] == index
                found = merged(found[len(index) :])
                assert found == LAYOUTS[layout].ranges(selection), selection

    @every_pipeline_and_layout
    @pytest.mark.parametrize("kind", [CountingStore, SynchronousStore])
    def test_a_store_is_asked_for_the_index_and_each_run_of_selected_bytes(
        self, pipeline, layout, kind
    ):
        array = array_of(layout, kind(MemoryStore()), pipeline)
        index = LAYOUTS[layout].index
        for selection in SELECTIONS:
            array.store.requests.clear()
            assert np.array_equal(read(array, selection), VALUES[selection])
            found = array.store.requests
            assert tuple(found[: len(index)]) == index
            ranges = sorted((r.start, r.end - r.start) for r in found[len(index) :])
            assert ranges == LAYOUTS[layout].ranges(selection), selection

    def test_requests_are_as_large_as_the_settings_of_the_moment_say(self, pipeline):
        """Also before it is known that the store has ranges, and of one array read in turn."""
        in_turn = array_of("chunk", CountingStore(MemoryStore()), pipeline)
        for selection, settings, requests, nbytes in SETTINGS:
            for array in array_of("chunk", CountingStore(MemoryStore()), pipeline), in_turn:
                array.store.counted()
                with zarr.config.set(settings):
                    assert np.array_equal(array[selection], VALUES[selection])
                assert (settings, *array.store.counted()) == (settings, requests, nbytes)

    def test_a_whole_chunk_is_one_request_under_a_pipeline_of_zarr(self, pipeline):
        """Where this one does, it comes in parts once the store is known to have ranges."""
        array = array_of("chunk", CountingStore(MemoryStore()), pipeline)
        with zarr.config.set({LARGEST: 4000}):
            assert array[0, 0, 0] == 1
            array.store.requests.clear()
            assert np.array_equal(array[...], VALUES)
        assert len(array.store.requests) == (4 if pipeline == OWN else 1)

    def test_a_small_gap_between_inner_chunks_is_read_too(self):
        array = array_of("index at the start", CountingStore(MemoryStore()))
        # 16 of 512 bytes each, of four inner chunks that are neighbours in Morton order.
        selection = np.s_[3:8:4, ::8, :2]
        ranges = LAYOUTS["index at the start"].ranges(selection)
        for most, largest in (10**9, 3 * 512 + 16), (1200, 2 * 512 + 16):
            array.store.requests.clear()
            with zarr.config.set({GAP: 496, LARGEST: most}):
                assert np.array_equal(array[selection], VALUES[selection])
            found = array.store.requests[1:]
            assert max(r.end - r.start for r in found) == largest
            assert (found[0].start, found[-1].end) == (ranges[0][0], sum(ranges[-1]))

    @every_pipeline_and_layout
    def test_a_missing_chunk_costs_one_round_trip(self, pipeline, layout):
        array = array_of(layout, CountingStore(MemoryStore()), pipeline)
        asyncio.run(array.store.delete(LAYOUTS[layout].key))
        array.store.requests.clear()
        assert not array[7, 8].any()
        assert len(array.store.requests) == 1
        assert not array[:, :, 6].any()
        assert len(array.store.requests) <= 1 + zarr.config.get("async.concurrency")

    @every_layout
    def test_a_memory_store_is_not_asked_for_byte_ranges(self, monkeypatch, layout):
        array, asked, get = array_of(layout, MemoryStore()), [], MemoryStore.get

        async def counted(self, key, prototype=None, byte_range=None):
            asked.append(byte_range)
            return await get(self, key, prototype, byte_range)

        monkeypatch.setattr(MemoryStore, "get", counted)
        assert np.array_equal(array[1, :6], VALUES[1, :6])
        assert asked == [None]

    @every_pipeline_and_layout
    def test_a_deflated_zip_member_is_read_whole_and_once(self, tmp_path, pipeline, layout):
        """A range of it is inflated from its start, each time."""
        asked = []

        class Counting(ZipStore):
            async def get(self, key, prototype, byte_range=None):
                asked.append(byte_range)
                return await super().get(key, prototype, byte_range)

        objects = contents_of(array_of(layout, MemoryStore()).store)
        for compression in zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED:
            with zipfile.ZipFile(tmp_path / "a.zip", "w", compression) as archive:
                for key, content in objects.items():
                    archive.writestr(key, content)
            with Counting(tmp_path / "a.zip", mode="r") as store:
                with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
                    array = zarr.open_array(store, mode="r")
                assert np.array_equal(array[2:9, ::3], VALUES[2:9, ::3])
                asked.clear()
                assert array[1, 2, 3] == VALUES[1, 2, 3]
                is_said = "zipfile.ZIP_STORED" in explain(array, np.s_[1, 2, 3]).remedy
            assert is_said == (asked == [None]) == (compression == zipfile.ZIP_DEFLATED)

    @needs_preadv
    @pytest.mark.parametrize(
        ("pipeline", "layout"),
        [one for one in PIPELINES_AND_LAYOUTS if "scaled" not in one[1]],  # which bools are not
    )
    @pytest.mark.parametrize("fault", ["truncated", "too long", "no bools", "a folder"])
    def test_an_error_of_a_chunk_causes_no_second_read(self, tmp_path, pipeline, layout, fault):
        """It is made of what has been read, also where a call reads a part."""
        array = array_of(layout, LocalStore(tmp_path), pipeline, values=VALUES > 0)
        key = LAYOUTS[layout].key
        path, intact, complete = tmp_path / key, [], 0
        content = path.read_bytes()
        for selection in SELECTIONS:
            with watched(tmp_path) as files:
                assert read(array, selection).all()
            intact.append(files.nbytes[key])
        cut, fives = content[: len(content) // 3], content.replace(b"\1", b"\5")
        path.unlink()
        if fault == "a folder":
            path.mkdir()
        else:
            wrong = {"truncated": cut, "too long": content + b"xyz", "no bools": fives}
            path.write_bytes(wrong[fault])
        for number, most in product(range(len(SELECTIONS)), [NEVER, 30]):
            with watched(tmp_path, most=most) as files, suppress(ValueError):
                read(array, SELECTIONS[number])
                complete += 1
            assert files.opened == {key: 1}
            assert files.nbytes[key] <= intact[number] + (fault == "too long")
        is_refused = fault != "no bools" or "format 2" not in layout  # where any byte is a bool
        assert complete < 2 * len(SELECTIONS) or fault == "too long" or not is_refused

    @needs_preadv
    def test_inner_chunks_in_another_order_are_read_together(self, tmp_path):
        """The index, and all of them."""
        array = array_of("shard", LocalStore(tmp_path))
        parts = [encoded(part, "float64", "big") for part in divided(VALUES, INNER)]
        (tmp_path / KEY).write_bytes(shard_of(parts, places=range(len(parts) - 1, -1, -1)))
        with watched(tmp_path) as files:
            assert np.array_equal(array[...], VALUES)
        assert len(files.reads) == 2

    @needs_preadv
    def test_each_of_very_many_inner_chunks_is_read_once(self, tmp_path):
        serializer, values = ShardingCodec(chunk_shape=(3,)), numbers(15_000, "u1") % 251
        array = created(tmp_path, values.shape, "u1", serializer=serializer)
        array[...] = values
        with counting() as counted:
            assert np.array_equal(array[::3], values[::3])
        assert counted.bytes_fetched == 5000 + 16 * 5000 + 4

    def test_absent_inner_chunks_are_not_read(self, tmp_path):
        options = {"shape": SHAPE, "dtype": "f8", "compressors": None, "fill_value": 7.5}
        array = zarr.create_array(tmp_path, **options, chunks=SHAPE, **sharding(BIG))
        array[:4, :8, :2] = VALUES[:4, :8, :2]
        with watched(tmp_path) as files:
            assert (array[4:, :8] == 7.5).all()
        assert files.nbytes == {KEY: INDEX}
        with watched(tmp_path) as files:
            assert (array[1, 2] == [*VALUES[1, 2, :2], *[7.5] * 8]).all()
        assert files.nbytes == {KEY: INDEX + 16}

    def test_absent_inner_chunks_are_not_requested(self):
        options = {"shape": SHAPE, "dtype": "f8", "compressors": None, "fill_value": 7.5}
        store = CountingStore(MemoryStore())
        array = zarr.create_array(store, **options, chunks=SHAPE, **sharding(BIG))
        array[:4, :8, :2] = VALUES[:4, :8, :2]
        store.requests.clear()
        assert (array[4:, :8] == 7.5).all()
        assert len(store.requests) == 1


SWAPPED = TransposeCodec(order=(1, 0))
LAYOUTS_OF_BYTES = {
    "chunk": {},
    "transposed": {"filters": [SWAPPED]},
    "shard": {"serializer": ShardingCodec(chunk_shape=(2, 2), codecs=[BIG])},
}


@needs_pwrite
class TestWriting:
    @every_layout
    def test_a_write_in_place_writes_the_selected_byte_ranges_and_no_others(self, tmp_path, layout):
        """By calls of the system, or through a mapping."""
        array = stored(LocalStore(tmp_path), VALUES, in_place=True, **LAYOUTS[layout].options)
        array[0, 0, 0] = array[:, :, 0] = 1  # whatever is written once in a process has been
        for selection in SELECTIONS:
            value = -np.zeros(SHAPE)[selection] - 1
            of_array, entries = indexed(array, selection)
            with written_to(tmp_path / LAYOUTS[layout].key) as ranges:
                of_array[entries] = value
            assert merged(ranges) == LAYOUTS[layout].ranges(selection), selection

    @both_ways
    @files_and_memory
    @pytest.mark.parametrize("layout", LAYOUTS_OF_BYTES)
    def test_a_chunk_that_is_written_whole_is_not_read(self, tmp_path, kind, way, layout):
        """It would be an error here; nor at the edge of the array, where zarr fills up a chunk."""
        store, codecs = store_with(kind, {}, tmp_path), LAYOUTS_OF_BYTES[layout]
        created(store, (5, 3), "u1", chunks=(4, 4), fill_value=9, **codecs)
        with zarr.config.set(way):
            array = zarr.open_array(store, mode="r+")
        if layout == "shard":  # zarr keeps what it has behind the edge
            array.resize((4, 4))
        for key in "c/0/0", "c/1/0":
            asyncio.run(store.set(key, cpu.Buffer.from_bytes(b"damaged")))
        array[:4] = expected = np.arange(4 * array.shape[1]).reshape(4, -1)
        assert np.array_equal(array[:4], expected)
        if layout != "shard":
            array[4:] = [[2, 3, 4]]
            array.resize((8, 4))
            assert array[4:].tolist() == [[2, 3, 4, 9], *3 * [[9, 9, 9, 9]]]

    @both_ways
    @files_and_memory
    @pytest.mark.parametrize("value", [7, numbers((0, 9))], ids=["one", "none"])
    def test_a_write_of_an_empty_selection_reads_and_writes_nothing(
        self, tmp_path, kind, way, value
    ):
        """For a slice such as 8:7, too, for which zarr gives a chunk."""
        array = stored(store_with(kind, {}, tmp_path), numbers((9, 9)))
        with zarr.config.set(way):
            array = zarr.open_array(array.store, mode="r+")
        with counting() as counted:
            array[8:7] = value
        assert not any(counted.stores)
        assert np.array_equal(array[...], numbers((9, 9)))

    @pytest.mark.parametrize("codec", [BIG, ShardingCodec(chunk_shape=(2**12, 2**12))])
    def test_chunks_of_zeros_that_are_written_take_no_room_on_the_disk(self, tmp_path, codec):
        array = created(LocalStore(tmp_path), (2**15, 2**15), "u1", serializer=codec)  # 1 GiB
        array[5] = 1
        status = (tmp_path / "c/0/0").stat()
        assert status.st_size >= 2**30
        if 512 * status.st_blocks > 2**29:
            pytest.skip("this file system has no sparse files")
        assert 512 * status.st_blocks < MEBIBYTE
        assert array[4:7].sum() == 2**15


def chunk_of_zeros(folder, name, shape):
    """An array of one chunk, whose file is sparse."""
    write(folder, document_of(name, shape, shape, "big"))
    (folder / "c/0").mkdir(parents=True)
    (folder / "c/0/0").touch()
    os.truncate(folder / "c/0/0", prod(shape) * np.dtype(name).itemsize)
    return zarr.open_array(folder, mode="r+")


ROWS, COLUMNS = np.random.default_rng(0).permutation(20_000), np.arange(8_000)
SCATTERED = {  # out of a chunk of 400 MB, and whether it is slow
    "points": (tuple(np.random.default_rng(0).integers(0, 20_000, (2, 20_000)).tolist()), False),
    "grid": (np.ix_(np.arange(0, 20_000, 9), np.arange(0, 20_000, 1999)), False),
    "steps": (np.s_[::2000, ::2000], False),
    "rows in any order": (np.ix_(ROWS, COLUMNS), True),
    "rows twice": (np.ix_(np.repeat(ROWS, 2), COLUMNS[:4000]), True),
    "columns": (np.ix_(ROWS, COLUMNS[::-1]), True),
}


class TestMemory:
    @pytest.mark.parametrize("filters", [[], [SWAPPED]], ids=["plain", "transposed"])
    def test_memory_of_a_read_is_that_of_the_result_and_a_few_blocks(self, tmp_path, filters):
        """Of a chunk of 48 MiB, that zarr's own way copies whole at least once."""
        shape, limit = (2048, 3072), 20 * MEBIBYTE
        for endian, order in ("big", "C"), ("little", "F"), ("big", "F"):
            values = np.zeros(shape, order=order)
            values[...] = np.arange(3072)
            folder, codec = tmp_path / endian / order, BytesCodec(endian=endian)
            array = created(folder, shape, "f8", serializer=codec, filters=filters)
            _, peak = most_memory(lambda: array.__setitem__(..., values))  # noqa: B023
            assert peak < limit
            assert (folder / "c/0/0").stat().st_size == values.nbytes
        for selection in np.s_[...], np.s_[:, 100:3000], np.s_[::2], np.s_[::3, ::2]:
            found, peak = most_memory(lambda: array[selection])  # noqa: B023
            assert peak < found.nbytes + limit
            assert np.array_equal(found, values[selection])

    @pytest.mark.parametrize("location", ["end", "start"])
    def test_memory_of_writing_a_sparse_shard_into_a_store_is_that_of_its_inner_chunks(
        self, location
    ):
        """Two of 1,024, of 64 KiB each; the store has as many bytes afterwards."""
        codec = ShardingCodec(chunk_shape=(8192,), codecs=[BytesCodec()], index_location=location)
        objects, values = {}, np.zeros(8192 * 1024)
        array = created(MemoryStore(objects), values.shape, "f8", serializer=codec)
        values[[5, 8192 * 700]] = 1, 2
        _, peak = most_memory(lambda: array.__setitem__(..., values))
        assert peak < 2 * MEBIBYTE
        assert len(objects["c/0"]) == 2 * 65536 + 16 * 1024 + 4
        assert np.array_equal(array[...], values)

    def test_memory_of_a_write_in_the_byte_order_of_format_2_is_that_of_a_few_blocks(
        self, tmp_path
    ):
        """Values in the other byte order are not converted as a whole."""
        options = {"serializer": "auto", "zarr_format": 2, "order": "F"}
        array, values = created(tmp_path, (1024, 2048), ">f8", **options), np.ones((1024, 2048))
        _, peak = most_memory(lambda: array.__setitem__(..., values))
        assert peak < 8 * MEBIBYTE < values.nbytes
        assert (tmp_path / "0.0").read_bytes()[-8:] == struct.pack(">d", 1)

    @pytest.mark.parametrize(
        "selection",
        [pytest.param(s, marks=[pytest.mark.slow] * slow) for s, slow in SCATTERED.values()],
        ids=SCATTERED,
    )
    def test_memory_of_reading_scattered_elements_is_that_of_the_result_and_64_mib(
        self, tmp_path, selection
    ):
        """Gaps between them take none."""
        array = chunk_of_zeros(tmp_path, "uint8", (20_000, 20_000))
        found, peak = most_memory(lambda: read(array, selection))
        assert not found.any()
        assert peak < found.nbytes + 64 * MEBIBYTE

    def test_memory_of_reading_1_mib_of_1_gib_is_less_than_16_mib(self, tmp_path):
        array = chunk_of_zeros(tmp_path, "float64", (1024, 131072))
        for selection in np.s_[5], np.s_[:128, 100:1124], np.s_[:, 7:135]:
            found, peak = most_memory(lambda: array[selection])  # noqa: B023
            assert found.nbytes == MEBIBYTE
            assert peak < 16 * MEBIBYTE

    def test_fetched_bytes_are_not_kept_in_memory_after_a_read(self):
        """A memory store gives the whole shard, of which the index is a part."""
        array = array_of("shard", MemoryStore())
        objects = array.store._store_dict
        content = np.frombuffer(objects[KEY].to_bytes(), "u1").copy()
        objects[KEY] = cpu.Buffer.from_array_like(content)
        assert np.array_equal(array[:5, 1, :6], VALUES[:5, 1, :6])
        kept = weakref.ref(content)
        del array, objects, content
        gc.collect()
        assert kept() is None

    @pytest.mark.usefixtures("no_gaps")
    def test_requests_under_way_are_no_more_than_ranges_or_slots(self):
        """Zarr's limit may be None, for any number. In the end, 16 requests fill 256 KiB each."""
        tasks = []

        async def fault(number, buffer):
            tasks.append(len(asyncio.all_tasks()))
            await asyncio.sleep(0)
            return buffer

        array = faulty(fault, VALUES, **LAYOUTS["shard"].options)
        with zarr.config.set({"async.concurrency": 10_000}):
            assert np.array_equal(array[0, :, 0], VALUES[0, :, 0])
        assert max(tasks) <= 20
        array = faulty(fault, numbers((8, 64, 2, 2048)), chunks=(1, 64, 2, 2048))
        with zarr.config.set({"async.concurrency": 4, LARGEST: 2**18}):
            found, peak = most_memory(lambda: array[:, :, 0])
        assert peak < found.nbytes + 8 * 2**18
