"""Shards of plain inner chunks: what is exchanged with others, opened, read, and written in place.

`test_fuzz.py` has shards of every form, `test_shard_faults.py` hostile ones and faults, and
`test_shared_chunk.py` those that several processes write.
"""

import asyncio
import functools
import gc
import http.server
import os
import threading
import weakref
import zipfile

import numpy as np
import pytest
import tensorstore as ts
import zarr
from conftest import PIPELINES
from fuzz import document_of, encoded, same, values_of
from shards import ABSENT, divided, entries_in, shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    SMALL,
    CountingStore,
    keys_of,
    numbers,
    pipeline_of,
    written_documents,
)
from system_calls import watched, written_to
from test_one_version import SELECTIONS, SHAPE, selected, selected_by_numpy
from test_servers_without_ranges import WARNING, Handler, WithoutRanges, open_url, refusal
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.buffer import cpu
from zarr.storage import MemoryStore, StorePath, ZipStore

from zarr_bytes import BatchedBytesPipeline, BoolValueError, limits, preallocate, view

BIG = {"name": "bytes", "configuration": {"endian": "big"}}
TRANSPOSE = {"name": "transpose", "configuration": {"order": [2, 0, 1]}}
FORMS = {  # codecs of the inner chunks, and the index
    "index at the end": ([BIG], {}),
    "index at the start": ([BIG], {"location": "start"}),
    "no checksum": ([BIG], {"has_checksum": False}),
    "big-endian index": ([BIG], {"endian": "big"}),
    "transposed": ([TRANSPOSE, BIG], {}),
    "little-endian": ([{"name": "bytes", "configuration": {"endian": "little"}}], {}),
}
# In shards of 5 x 6 x 10.
INNER = (5, 3, 2)
COUNT = 10  # inner chunks in each of them
VALUES = numbers(SHAPE, "f8") + 1

needs_preadv = pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")


def document(shape, chunk_shape, inner_shape, form="index at the end", **others):
    codecs, index = FORMS[form]
    made = document_of("float64", shape, chunk_shape, "big")
    return made | {"codecs": [sharding(inner_shape, codecs, **index)]} | others


def made(folder, shape=SHAPE, chunk_shape=(5, 6, 10), inner_shape=INNER, **others):
    """An array of shards without any; in a folder, or in memory where that is None."""
    store = written_documents(folder, document(shape, chunk_shape, inner_shape, **others))
    return zarr.open_array(store, mode="r+")


def in_place(array):
    """The array, opened again so that it is written in place."""
    with zarr.config.set(IN_PLACE):
        return zarr.open_array(array.store, mode="r+")


def content_of(values, inner_shape=INNER, codecs=(BIG,), **index):
    """The bytes of a shard that has all inner chunks, in their order."""
    orders = [codec["configuration"]["order"] for codec in codecs[:-1]]
    parts = []
    for part in divided(values.astype("f8"), inner_shape):
        for order in orders:
            part = part.transpose(order)
        parts.append(encoded(part, "float64", codecs[-1]["configuration"]["endian"]))
    return shard_of(parts, **index)


class PlainZarr:
    """zarr's own pipeline, with its own codec; it lays inner chunks out in Morton order."""

    config = {
        "codec_pipeline.path": PIPELINES["BatchedCodecPipeline"],
        "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
    }

    def write(self, folder, values):
        with zarr.config.set(self.config):
            zarr.open_array(folder, mode="r+")[...] = values

    def read(self, folder):
        with zarr.config.set(self.config):
            return zarr.open_array(folder, mode="r")[...]


class Zarrs(PlainZarr):
    config = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}

    def __init__(self):
        pytest.importorskip("zarrs", reason="zarrs is not installed (extra stores)")


class Zarrista:
    def __init__(self):
        self._zarrista = pytest.importorskip("zarrista", reason="zarrista is not installed")

    def _open(self, folder):
        return self._zarrista.Array.open(self._zarrista.store.FilesystemStore(folder))

    def write(self, folder, values):
        self._open(folder)[:] = values

    def read(self, folder):
        return self._open(folder)[:].to_numpy()


class TensorStore:
    def _open(self, folder):
        kvstore = {"driver": "file", "path": str(folder)}
        return ts.open({"driver": "zarr3", "kvstore": kvstore}).result()

    def write(self, folder, values):
        self._open(folder).write(values).result()

    def read(self, folder):
        return self._open(folder).read().result()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", [PlainZarr, TensorStore, Zarrs, Zarrista])
class TestExchange:
    def test_every_selection_of_what_others_write_is_what_numpy_selects(
        self, tmp_path, other, form
    ):
        array = made(tmp_path, form=form)
        other().write(tmp_path, VALUES)
        assert type(pipeline_of(array)) is BatchedBytesPipeline
        for selection in SELECTIONS:
            same(selected(array, selection), selected_by_numpy(VALUES, selection))

    def test_others_read_what_is_written_whole(self, tmp_path, other, form):
        made(tmp_path, form=form)[...] = VALUES
        assert np.array_equal(other().read(tmp_path), VALUES)

    @pytest.mark.parametrize(
        "is_in_place", [pytest.param(True, marks=needs_pwrite), False], ids=["in place", "replaced"]
    )
    def test_others_read_what_is_written_into_their_shards(
        self, tmp_path, other, form, is_in_place
    ):
        array, values = made(tmp_path, form=form), VALUES.copy()
        array = in_place(array) if is_in_place else array
        other().write(tmp_path, values)
        inodes = {key: (tmp_path / key).stat().st_ino for key in keys_of(array.store)}
        for number, selection in enumerate([np.s_[3, 4], np.s_[:, 2:7, ::3], np.s_[7, 8, 9]]):
            array[selection] = values[selection] = -number - 1
        points = ([1, 7, 0], [8, 0, 5], [9, 3, 3])
        array.vindex[points] = values[points] = [-7, -8, -9]
        assert np.array_equal(other().read(tmp_path), values)
        if is_in_place:
            assert {key: (tmp_path / key).stat().st_ino for key in inodes} == inodes


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize("other", [PlainZarr, TensorStore])
def test_shards_behind_a_transpose_are_exchanged_both_ways(tmp_path, other):
    """The index has the axes that the transpose makes."""
    values = numbers((12, 8), "f8") + 1
    before = {"name": "transpose", "configuration": {"order": [1, 0]}}
    array = made(tmp_path, (12, 8), (6, 4), (2, 2), codecs=[before, sharding((2, 2), [BIG])])
    other().write(tmp_path, values)
    assert np.array_equal(array[1:11, 2:7], values[1:11, 2:7])
    values[3, 1:] = values[:7, 3] = -1
    array[3, 1:] = array[:7, 3] = -1
    assert np.array_equal(other().read(tmp_path), values)
    array[...] = values = -values
    assert np.array_equal(other().read(tmp_path), values)
    assert (tmp_path / "c/0/0").read_bytes() == content_of(values[:6, :4].T, (2, 2))


def counting(store_class=CountingStore, form="index at the end", **options):
    """An array of shards in a store that keeps the requests."""
    array = made(None, form=form)
    array[...] = VALUES
    array = zarr.open_array(store_class(array.store, **options), mode="r")
    array.store.requests.clear()
    return array


# Inner chunks have 240 bytes, their planes 48 and rows 16.
RANGES = {  # among the inner chunks of the first shard
    "point": (np.s_[1, 2, 3], [(240 + 48 + 32 + 8, 8)]),
    "row in five inner chunks": (np.s_[1, 2], [(i * 240 + 48 + 32, 16) for i in range(5)]),
    "plane in ten": (np.s_[1, :6], [(i * 240 + 48, 48) for i in range(10)]),
    "column": (np.s_[:5, 2, 3], [(240 + i * 48 + 32 + 8, 8) for i in range(5)]),
    "steps": (np.s_[1, 2, ::4], [(i * 240 + 48 + 32, 8) for i in (0, 2, 4)]),
    "inner chunk": (np.s_[:5, :3, 2:4], [(240, 240)]),
    "second half of a row": (np.s_[1, 2, 5:6], [(2 * 240 + 48 + 32 + 8, 8)]),
    "two rows of the last": (np.s_[1, 4:6, 8:10], [(9 * 240 + 48 + 16, 32)]),
    "row and half of the next": (np.s_[1, 2, 4:7], [(2 * 240 + 80, 16), (3 * 240 + 80, 8)]),
    "half of all inner chunks": (np.s_[:5, :3], [(0, 1200)]),
    "two beside each other": (np.s_[:5, 3:6, 4:8], [(7 * 240, 480)]),
    "shard": (np.s_[:5, :6], [(0, 2400)]),
}
INDEXES = {"end": (2400, 164), "start": (0, 164)}
INDEX_REQUESTS = {"end": SuffixByteRequest(164), "start": RangeByteRequest(0, 164)}


@pytest.mark.parametrize("location", INDEXES)
@pytest.mark.parametrize("case", RANGES)
class TestRanges:
    """The index is read, and then the selected ranges, and no other byte."""

    @pytest.fixture(autouse=True)
    def _no_gap(self):
        with zarr.config.set({"zarr_bytes.gap": {"local": 0, "remote": 0}}):
            yield

    def ranges(self, case, location):
        begin = 164 * (location == "start")
        return [(begin + start, nbytes) for start, nbytes in RANGES[case][1]]

    @needs_preadv
    def test_of_a_file(self, tmp_path, case, location):
        array, selection = made(tmp_path, form=f"index at the {location}"), RANGES[case][0]
        array[...] = VALUES
        with watched(tmp_path) as files:
            assert np.array_equal(array[selection], VALUES[selection])
        index, *others = [read[1:] for read in files.reads]
        assert index == INDEXES[location]
        assert others == self.ranges(case, location)

    def test_of_a_store_with_one_request_for_each(self, case, location):
        array, selection = counting(form=f"index at the {location}"), RANGES[case][0]
        assert np.array_equal(array[selection], VALUES[selection])
        index, *others = array.store.requests
        assert index == INDEX_REQUESTS[location]
        assert sorted((r.start, r.end - r.start) for r in others) == self.ranges(case, location)


@needs_preadv
@pytest.mark.parametrize("location", INDEXES)
class TestLocalReads:
    @pytest.mark.parametrize("waits_after", [0, 100, 300])
    def test_a_shard_that_has_to_be_waited_for_is_opened_once_all_the_same(
        self, tmp_path, location, waits_after
    ):
        array = made(tmp_path, form=f"index at the {location}")
        array[...] = VALUES
        assert array[0, 0, 0] == 1  # now the file system is known
        with watched(tmp_path, waits_after=waits_after) as files:
            assert np.array_equal(array[3], VALUES[3])
        assert files.opened == {"c/0/0/0": 1, "c/0/1/0": 1}

    def test_inner_chunks_in_another_order_are_read_together(self, tmp_path, location):
        array = made(tmp_path, form=f"index at the {location}")
        parts = [encoded(part, "float64", "big") for part in divided(VALUES[:5, :6], INNER)]
        (tmp_path / "c/0/0").mkdir(parents=True)
        (tmp_path / "c/0/0/0").write_bytes(shard_of(parts, location, places=range(9, -1, -1)))
        with zarr.config.set({"zarr_bytes.gap.local": 0}), watched(tmp_path) as files:
            assert np.array_equal(array[:5, :6], VALUES[:5, :6])
        assert len(files.reads) == 2

    def test_absent_inner_chunks_are_the_fill_value_and_not_read(self, tmp_path, location):
        array = made(tmp_path, form=f"index at the {location}", fill_value=7.5)
        parts = [encoded(part, "float64", "big") for part in divided(VALUES[:5, :6], INNER)]
        expected = VALUES.copy()
        expected[5:] = expected[:, 6:] = 7.5
        expected[:5, :3, 2:6] = expected[:5, 3:6, :2] = 7.5
        parts[1] = parts[2] = parts[5] = None
        (tmp_path / "c/0/0").mkdir(parents=True)
        (tmp_path / "c/0/0/0").write_bytes(shard_of(parts, location))
        for form in SELECTIONS:
            same(selected(array, form), selected_by_numpy(expected, form))
        with zarr.config.set({"zarr_bytes.gap.local": 0}), watched(tmp_path) as files:
            array[:5, :3, 3:5]
        assert files.nbytes == {"c/0/0/0": 16 * COUNT + 4}


@pytest.mark.parametrize("location", INDEXES)
@pytest.mark.parametrize("kind", ["files", "requests"])
def test_each_shard_is_read_by_its_own_index(tmp_path, kind, location):
    """Reads go through shards with the same index as the last, with another, and back."""
    values = numbers((30, 3, 10), "f8") + 1
    options = {"form": f"index at the {location}", "fill_value": 7.5, "shape": values.shape}
    array = made(tmp_path, chunk_shape=(5, 3, 10), **options)
    absent, in_order, turned = (1, 3), range(5), range(4, -1, -1)
    for i, places in enumerate([in_order, in_order, turned, None, None, in_order]):
        rows = values[5 * i : 5 * i + 5]
        parts = [encoded(part, "float64", "big") for part in divided(rows, INNER)]
        if places is None:
            for number in absent:
                parts[number] = None
                rows[:, :, 2 * number : 2 * number + 2] = 7.5
        (tmp_path / f"c/{i}/0").mkdir(parents=True)
        (tmp_path / f"c/{i}/0/0").write_bytes(shard_of(parts, location, places=places))
    if kind == "requests":
        array = zarr.open_array(CountingStore(array.store), mode="r")
    for selection in np.s_[:, 1], np.s_[:, 1, 3], np.s_[:, :2, 1:8], np.s_[...]:
        for _ in range(2):
            assert np.array_equal(array[selection], values[selection])


class TestRequests:
    def test_a_gap_that_costs_less_than_a_request_is_read_over(self):
        array = counting()
        with zarr.config.set({"zarr_bytes.gap.remote": 224}):
            assert np.array_equal(array[1, 2], VALUES[1, 2])
        assert array.store.requests[1:] == [RangeByteRequest(80, 4 * 240 + 96)]

    def test_none_is_larger_than_permitted(self):
        array = counting()
        with zarr.config.set(
            {"zarr_bytes.gap.remote": 100, "zarr_bytes.largest_request.remote": 500}
        ):
            assert np.array_equal(array[:5, :6], VALUES[:5, :6])
        ranges = [r for r in array.store.requests if isinstance(r, RangeByteRequest)]
        assert {r.end - r.start for r in ranges} == {480}  # two inner chunks together

    def test_any_size_may_be_permitted(self, monkeypatch):
        monkeypatch.setattr(limits, "LIMITS", SMALL)
        array = counting()
        settings = {"zarr_bytes.gap.remote": 0, "zarr_bytes.largest_request.remote": 10**30}
        with zarr.config.set(settings):
            found = array.oindex[[0, 1, 3], [0, 2], 0]  # uneven, in several tiles
        assert np.array_equal(found, VALUES[np.ix_([0, 1, 3], [0, 2], [0])][..., 0])

    def test_a_missing_shard_costs_one(self):
        array = zarr.open_array(CountingStore(made(None, fill_value=5).store), mode="r")
        array.store.requests.clear()
        assert (array[:5, :6] == 5).all()
        assert array.store.requests == [SuffixByteRequest(164)]

    def test_what_was_fetched_is_not_kept_in_memory(self):
        """A memory store gives the whole shard, of which the index is a part."""
        array = made(None)
        content = np.frombuffer(content_of(VALUES[:5, :6]), "u1").copy()
        array.store._store_dict["c/0/0/0"] = cpu.Buffer.from_array_like(content)
        assert np.array_equal(array[:5, 1, :6], VALUES[:5, 1, :6])
        kept = weakref.ref(content)
        del array, content
        gc.collect()
        assert kept() is None

    @pytest.mark.parametrize(
        ("selection", "largest", "indexes", "ranges"),
        [(np.s_[0, :, 0], 2**20, 2, 9), (np.s_[0, 0, :4], 16, 1, 2)],
    )
    def test_no_more_than_two_follow_one_another(self, selection, largest, indexes, ranges):
        """The requests for indexes wait for each other here, and then all those for ranges."""
        barriers = {}

        class Together(CountingStore):
            async def get(self, key, prototype, byte_range=None):
                if barriers:
                    async with asyncio.timeout(30):
                        await barriers[type(byte_range)].wait()
                return await super().get(key, prototype, byte_range)

        array = counting(Together)
        barriers[SuffixByteRequest] = asyncio.Barrier(indexes)
        barriers[RangeByteRequest] = asyncio.Barrier(ranges)
        remote = {"zarr_bytes.gap.remote": 0, "zarr_bytes.largest_request.remote": largest}
        with zarr.config.set(remote | {"async.concurrency": 20}):
            assert np.array_equal(array[selection], VALUES[selection])

    def test_no_more_tasks_are_made_than_there_are_ranges(self):
        """However many requests zarr permits: its limit may be None, for any number."""
        tasks = []

        class Counted(CountingStore):
            async def get(self, key, prototype, byte_range=None):
                tasks.append(len(asyncio.all_tasks()))
                return await super().get(key, prototype, byte_range)

        array = counting(Counted)
        tasks.clear()
        with zarr.config.set({"zarr_bytes.gap.remote": 0, "async.concurrency": 10_000}):
            assert np.array_equal(array[0, :, 0], VALUES[0, :, 0])
        assert max(tasks) <= 20

    def test_a_store_without_ranges_from_the_end_is_asked_for_its_size(self):
        class AsAzure(CountingStore):
            async def get(self, key, prototype, byte_range=None):
                if isinstance(byte_range, SuffixByteRequest):
                    raise NotImplementedError("no suffixes")
                return await super().get(key, prototype, byte_range)

            async def getsize(self, key):
                return await self._store.getsize(key)

        array = counting(AsAzure)
        with zarr.config.set({"zarr_bytes.gap.remote": 0}):
            assert array[1, 2, 3] == VALUES[1, 2, 3]
        assert array.store.requests == [RangeByteRequest(2400, 2564), RangeByteRequest(328, 336)]

    @pytest.mark.parametrize("location", INDEXES)
    def test_a_store_that_refuses_ranges_sends_each_shard_once(self, location):
        array = counting(WithoutRanges, f"index at the {location}", answer=refusal)
        with pytest.warns(UserWarning, match=WARNING):
            assert np.array_equal(array[1, :6], VALUES[1, :6])
        assert array.store.requests == [INDEX_REQUESTS[location], None]
        for selection in SELECTIONS:
            same(selected(array, selection), selected_by_numpy(VALUES, selection))

    def test_memory_is_not_asked_for_ranges(self, monkeypatch):
        array, asked, get = made(None), [], MemoryStore.get
        array[...] = VALUES

        async def counted(self, key, prototype=None, byte_range=None):
            asked.append(byte_range)
            return await get(self, key, prototype, byte_range)

        monkeypatch.setattr(MemoryStore, "get", counted)
        assert np.array_equal(array[1, :6], VALUES[1, :6])
        assert asked == [None]

    @pytest.mark.parametrize("location", INDEXES)
    @pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_a_deflated_member_of_an_archive_comes_once(
        self, tmp_path, compression, location, monkeypatch
    ):
        folder, path, asked, get = tmp_path / "a", tmp_path / "a.zip", [], ZipStore.get
        made(folder, form=f"index at the {location}")[...] = VALUES
        with zipfile.ZipFile(path, "w", compression) as archive:
            for file in folder.rglob("*"):
                if file.is_file():
                    archive.write(file, file.relative_to(folder))

        async def counted(self, key, prototype, byte_range=None):
            asked.append(byte_range)
            return await get(self, key, prototype, byte_range)

        with ZipStore(path, mode="r") as store, zarr.config.set({"zarr_bytes.gap.remote": 0}):
            array = zarr.open_array(store, mode="r")
            for selection in SELECTIONS:
                same(selected(array, selection), selected_by_numpy(VALUES, selection))
            monkeypatch.setattr(ZipStore, "get", counted)
            array[1, 2, 3]
        start = 164 * (location == "start") + 328
        ranges = [INDEX_REQUESTS[location], RangeByteRequest(start, start + 8)]
        assert asked == ([None] if compression == zipfile.ZIP_DEFLATED else ranges)


@pytest.fixture
def server(tmp_path):
    """``python -m http.server``, which has no ranges, in a folder with an array of shards."""
    handler = functools.partial(Handler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


# aiohttp's sessions are closed when their loop is.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore:Unclosed", "ignore:Object at")
@pytest.mark.parametrize("location", INDEXES)
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_a_server_without_ranges_sends_each_shard_once(server, tmp_path, client, location):
    made(tmp_path, form=f"index at the {location}")[...] = VALUES
    array = open_url(client, server.url)
    with pytest.warns(UserWarning, match=WARNING):
        assert np.array_equal(array[1, :6], VALUES[1, :6])
    # Ranges that are refused, of the end and then of its place; obstore's store tries both too.
    assert server.requests[0] == ("bytes=-164" if location == "end" else "bytes=0-163")
    assert len(server.requests) <= (1 if client == "fsspec" else 4)
    server.requests.clear()
    assert np.array_equal(array[1, :6], VALUES[1, :6])
    assert server.requests == [None]
    for selection in SELECTIONS:
        same(selected(array, selection), selected_by_numpy(VALUES, selection))


def test_a_bool_that_is_neither_0_nor_1_is_named_by_its_index_in_the_selection(tmp_path):
    codecs = [sharding((2, 3), [{"name": "bytes"}])]
    store = written_documents(
        tmp_path, document_of("bool", (4, 6), (4, 6), "big") | {"codecs": codecs}
    )
    array = zarr.open_array(store, mode="r")
    values = np.ones((4, 6), "u1")
    values[3, 4] = 5
    (tmp_path / "c/0").mkdir(parents=True)
    parts = [part.tobytes() for part in divided(values, (2, 3))]
    (tmp_path / "c/0/0").write_bytes(shard_of(parts))
    assert array[:3].all()
    for selection, index in ((..., "(3, 4)"), (np.s_[1:, 2:], "(2, 2)"), (np.s_[3, ::2], "(2,)")):
        with pytest.raises(BoolValueError) as caught:
            array[selection]
        assert index in str(caught.value)


@needs_pwrite
class TestInPlace:
    def test_only_the_selected_ranges_are_written(self, tmp_path):
        array = in_place(made(tmp_path, form="index at the start"))
        array[...] = VALUES
        with written_to(tmp_path / "c/0/0/0") as ranges:
            array[1, 2] = -1
        assert ranges == [(164 + i * 240 + 80, 16) for i in range(5)]

    @pytest.mark.parametrize("form", ["index at the end", "index at the start", "transposed"])
    @pytest.mark.parametrize("fill_value", [0, 2.5])
    def test_a_missing_shard_is_created_with_every_inner_chunk(self, tmp_path, form, fill_value):
        array = in_place(made(tmp_path, form=form, fill_value=fill_value))
        array[7, 8, 9] = -1
        values = np.full((5, 6, 10), fill_value, "f8")
        values[2, 2, 9] = -1
        codecs, index = FORMS[form]
        assert keys_of(array.store) == ["c/1/1/0"]
        assert (tmp_path / "c/1/1/0").read_bytes() == content_of(values, codecs=codecs, **index)

    def test_a_shard_of_zeros_takes_no_room_but_what_is_written(self, tmp_path):
        array = in_place(made(tmp_path, (2048, 2048), (2048, 2048), (256, 256)))
        array[7] = 1
        status = (tmp_path / "c/0/0").stat()
        assert status.st_size == 2**25 + 16 * 64 + 4
        if status.st_blocks * 512 > 2**24:
            pytest.skip("this file system has no sparse files")
        assert status.st_blocks * 512 < 2**20
        assert array[6:9].sum() == 2048

    @pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "replaced"])
    @pytest.mark.parametrize("keeps_empty", [True, False])
    def test_the_fill_value_alone_makes_a_shard_only_where_empty_chunks_are_written(
        self, tmp_path, keeps_empty, is_in_place
    ):
        array = made(tmp_path, fill_value=2.5)
        with zarr.config.set({"array.write_empty_chunks": keeps_empty}):
            array = zarr.open_array(array.store, mode="r+")
            array = in_place(array) if is_in_place else array
        array[1, 2] = 2.5
        assert keys_of(array.store) == (["c/0/0/0"] if keeps_empty else [])
        assert (array[...] == 2.5).all()
        array[...] = 2.5
        assert len(keys_of(array.store)) == 4 * keeps_empty

    def test_a_negative_zero_and_a_nan_of_other_bits_are_no_fill_values(self, tmp_path):
        array = in_place(made(tmp_path, (4,), (4,), (2,)))
        array[0] = -0.0
        assert np.signbit(array[...]).tolist() == [True, False, False, False]
        array = in_place(made(tmp_path / "nan", (4,), (4,), (2,), fill_value="NaN"))
        array[1] = np.array(0x7FF8000000000001, "u8").view("f8")
        assert array[...].view("u8")[1] == 0x7FF8000000000001

    @pytest.mark.parametrize("form", ["index at the end", "index at the start", "no checksum"])
    def test_a_shard_without_a_needed_inner_chunk_is_replaced_by_a_complete_one(
        self, tmp_path, form
    ):
        codecs, index = FORMS[form]
        array = in_place(made(tmp_path, form=form, fill_value=7))
        values = VALUES[:5, :6].copy()
        values[:, :3, 2:6] = values[:, 3:, :2] = 7
        parts = [encoded(part, "float64", "big") for part in divided(values, INNER)]
        parts[1] = parts[2] = parts[5] = None
        path = tmp_path / "c/0/0/0"
        path.parent.mkdir(parents=True)
        path.write_bytes(shard_of(parts, **index))
        before = path.stat().st_ino
        array[0, 0, :2] = values[0, 0, :2] = -1  # of one that is there
        assert path.stat().st_ino == before
        array[0, 0, 1:3] = values[0, 0, 1:3] = -2  # and of one that is not
        assert path.read_bytes() == content_of(values, codecs=codecs, **index)
        complete = path.stat().st_ino
        array[0, 0, 5] = values[0, 0, 5] = -3  # which is there now
        assert path.stat().st_ino == complete
        assert path.read_bytes() == content_of(values, codecs=codecs, **index)

    @pytest.mark.parametrize("start", [0, 8], ids=["all", "half"])
    def test_inner_chunks_that_share_bytes_are_parted_by_a_new_shard(self, tmp_path, start):
        array = in_place(made(tmp_path, (6,), (6,), (2,)))
        parts = [encoded(np.full(2, value), "float64", "big") for value in (3.0, 3.0, 5.0)]
        path = tmp_path / "c/0"
        path.parent.mkdir()
        path.write_bytes(shard_of(parts, entries={1: (start, 16)}))
        before = path.stat().st_ino
        array[4] = 6  # of one that shares none
        assert path.stat().st_ino == before
        expected = array[...]
        for place in (1, 2, 3, 0):
            array[place] = expected[place] = -place
            assert np.array_equal(array[...], expected)
        path.write_bytes(shard_of(parts, entries={1: (start, 16)}))
        mapped = view(array, mode="r+")
        mapped[4] = 7
        with pytest.raises(ValueError, match=r"block \(1,\) is missing, or shares bytes"):
            mapped[2] = 7
        assert [preallocate(array).completed for _ in range(2)] == [1, 0]

    def test_a_column_of_many_inner_chunks_in_any_order_is_written_through_a_mapping(
        self, tmp_path, monkeypatch
    ):
        array = in_place(made(tmp_path, (64, 64), (64, 64), (4, 8)))
        values = numbers((64, 64), "f8")
        parts = [encoded(part, "float64", "big") for part in divided(values, (4, 8))]
        places = np.random.default_rng(0).permutation(128)
        (tmp_path / "c/0").mkdir(parents=True)
        (tmp_path / "c/0/0").write_bytes(shard_of(parts, places=places))
        before = entries_in((tmp_path / "c/0/0").read_bytes(), 128)
        for way in True, False:
            monkeypatch.setattr("zarr_bytes.io.range_writing.is_local", lambda file: way)  # noqa: B023
            array[:, 9:20:5] = values[:, 9:20:5] = -values[:, 9:20:5]
            assert np.array_equal(array[...], values)
        assert entries_in((tmp_path / "c/0/0").read_bytes(), 128) == before

    def test_a_column_of_a_new_shard_behind_its_index_is_written_through_a_mapping(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("zarr_bytes.io.range_writing.is_local", lambda file: True)
        form = "index at the start"
        array = in_place(made(tmp_path, (64, 64), (64, 64), (4, 8), form=form))
        values = np.zeros((64, 64))
        array[:, 9:60:5] = values[:, 9:60:5] = numbers((64, 64), "f8")[:, 9:60:5]
        assert np.array_equal(array[...], values)

    def test_the_last_of_several_values_for_a_point_counts(self, tmp_path):
        for array in (
            made(tmp_path / "a", (2, 6), (2, 6), (1, 2)),
            made(None, (2, 6), (2, 6), (1, 2)),
        ):
            array = in_place(array)
            array[...] = 9
            points = ([1, 0, 1, 1, 0], [3, 0, 3, 5, 0])
            array.set_coordinate_selection(points, np.array([1, 2, 3, 4, 5.0]))
            assert array[...].tolist() == [[5, 9, 9, 9, 9, 9], [9, 9, 9, 3, 9, 4]]


class TestReplaced:
    """Without writing in place, and whole shards: all inner chunks in C order."""

    @pytest.mark.parametrize("kind", ["local", "memory"])
    def test_empty_inner_chunks_are_left_out(self, tmp_path, kind):
        array = made(tmp_path if kind == "local" else None)
        values = VALUES[:5, :6].copy()
        values[:, :3, 2:6] = 0
        array[:5, :6] = values
        entries = entries_in(stored_at(array, "c/0/0/0"), COUNT)
        assert [i for i, entry in enumerate(entries) if entry == ABSENT] == [1, 2]
        assert [entry for entry in entries if entry != ABSENT] == [(240 * i, 240) for i in range(8)]
        array[:5, :3, 4:] = values[:, :3, 4:] = 0
        entries = entries_in(stored_at(array, "c/0/0/0"), COUNT)
        assert [i for i, entry in enumerate(entries) if entry == ABSENT] == [1, 2, 3, 4]
        assert np.array_equal(array[:5, :6], values)
        array[:5, :6] = 0
        assert keys_of(array.store) == []

    @pytest.mark.parametrize("reopened", [lambda array: array, in_place], ids=["", "in place"])
    def test_a_whole_shard_is_written_without_being_read(self, tmp_path, reopened):
        array = reopened(made(tmp_path))
        (tmp_path / "c/0/0").mkdir(parents=True)
        (tmp_path / "c/0/0/0").write_bytes(b"no shard at all")
        array[:5, :6] = VALUES[:5, :6]
        assert (tmp_path / "c/0/0/0").read_bytes() == content_of(VALUES[:5, :6])


def stored_at(array, key):
    prototype = zarr.buffer.cpu.buffer_prototype
    return zarr.core.sync.sync(StorePath(array.store, key).get(prototype)).to_bytes()


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("is_in_place", [True, False], ids=["in place", "replaced"])
@pytest.mark.parametrize("data_type", ["float64", "text", "struct"])
def test_a_shard_without_axes(tmp_path, data_type, is_in_place):
    about = document_of(data_type, (), (), "big")
    about = {name: about[name] for name in ("data_type", "fill_value")}
    array = made(tmp_path, (), (), (), **about)
    array = in_place(array) if is_in_place else array
    for seed in range(3):
        value = values_of(data_type, (), seed)
        array[...] = value
        same(array[...], value)
        assert (tmp_path / "c").read_bytes() == shard_of([encoded(value, data_type, "big")])


@pytest.mark.parametrize("is_in_place", [True, False])
def test_elements_behind_the_edge_of_the_array_are_kept_as_by_zarr(tmp_path, is_in_place):
    """Where all within the array is written; zarr fills up other chunks than shards."""
    array = zarr.create_array(
        tmp_path, shape=(4,), shards=(4,), chunks=(2,), dtype="i4", compressors=None, fill_value=0
    )
    array[:] = [1, 2, 3, 4]
    with zarr.config.set(IN_PLACE if is_in_place else {}):
        array = zarr.open_array(tmp_path)
    array.resize((2,))
    array[:] = [9, 9]
    array.resize((4,))
    assert array[:].tolist() == [9, 9, 3, 4]
