"""Shards that are damaged or meant to harm, and faults while they are read and written.

An error names the shard, the inner chunk, and what was found and expected; an inner chunk that a
selection does not need may be damaged. A write that fails changes nothing that it should not.
"""

import errno
import functools
import os
import re
import struct
from contextlib import contextmanager

import google_crc32c
import numpy as np
import pytest
import zarr
from fuzz import document_of, encoded
from shards import ABSENT, divided, index_of, shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    CountingStore,
    FaultyStore,
    contents_of,
    most_memory,
    written_documents,
)
from system_calls import before_each, fail_at, watched
from zarr.buffer.cpu import Buffer
from zarr.storage import StorePath

import zarr_bytes
from zarr_bytes import ChunkSizeError, ConfigurationError, ShardIndexError, StoreError

SHAPE, INNER = (4, 6), (2, 3)  # of 4 bytes: four inner chunks of 24
VALUES = np.arange(1, 25, dtype="i4").reshape(SHAPE)
PARTS = [encoded(part, "int32", "big") for part in divided(VALUES, INNER)]
CODECS = [{"name": "bytes", "configuration": {"endian": "big"}}]
KEY = "c/0/0"
LOCATIONS = ["end", "start"]
# What needs the inner chunk (1, 0), and what does not.
NEEDING = {"it": np.s_[2:, :3], "all": ..., "row": 3, "column": np.s_[:, 1], "element": (2, 2)}
OTHERS = {"other half": np.s_[:2], "others": np.s_[:, 3:], "element": (3, 3)}

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")


def document(location="end", shape=SHAPE, inner_shape=INNER, data_type="int32", **index):
    made = document_of(data_type, shape, shape, "big")
    return made | {"codecs": [sharding(inner_shape, CODECS, location=location, **index)]}


def array_with(kind, folder, content, location="end", is_in_place=False, **others):
    """An array of one shard with this content, in a store of a kind."""
    made = document(location, **others)
    store = written_documents(folder if kind == "local" else None, made)
    if kind == "local":
        (folder / KEY).parent.mkdir(parents=True, exist_ok=True)
        (folder / KEY).write_bytes(content)
    else:
        zarr.core.sync.sync(StorePath(store, KEY).set(Buffer.from_bytes(content)))
    if kind == "requests":
        store = CountingStore(store)
    with zarr.config.set(IN_PLACE if is_in_place else {}):
        return zarr.open_array(store, mode="r+")


@pytest.fixture(params=["local", "memory", "requests"])
def kind(request):
    return request.param


@pytest.fixture(params=LOCATIONS)
def location(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["in place", "replaced"])
def stored(request, tmp_path, kind):
    """`array_with` for a store of each kind, and each way of writing."""
    return functools.partial(array_with, kind, tmp_path, is_in_place=request.param)


def check_that_it_is_refused(array, message, needing=NEEDING, others=OTHERS):
    """Every read that needs what is damaged, and none of the others; every write."""
    for selection in needing.values():
        with pytest.raises(ShardIndexError, match=message):
            array[selection]
    for selection in others.values():
        assert np.array_equal(array[selection], VALUES[selection])
    before = contents_of(array.store)
    for selection in ((3, 1), np.s_[:, 1]):
        with pytest.raises(ShardIndexError, match=message):
            array[selection] = 5
    assert contents_of(array.store) == before


class TestEntries:
    """Of the index, for the inner chunk (1, 0)."""

    SIZES = {
        "too short": (48, 23),
        "too long": (48, 25),
        "of no bytes": (48, 0),
        "zeros": (0, 0),
        "half absent": (48, ABSENT[1]),
        "of 2**63 bytes": (48, 2**63),
        "at 2**64 - 1 of no bytes": (2**64 - 1, 0),
    }
    PLACES = {
        "beyond the file": 1000,
        "at 2**62": 2**62,
        "at 2**63": 2**63,
        "at 2**63 less an inner chunk": 2**63 - 24,
        "at 2**64 - 2": 2**64 - 2,
        "at 2**64 - 24, as if around the end": 2**64 - 24,
        "half absent, too": ABSENT[0],
    }

    def named(self, message):
        return rf"^inner chunk \(1, 0\) of the shard .*{KEY} {message}"

    @pytest.mark.parametrize("case", SIZES)
    def test_a_wrong_size_is_an_error(self, stored, location, case):
        array = stored(shard_of(PARTS, location, entries={2: self.SIZES[case]}), location)
        says = f"has {self.SIZES[case][1]} bytes, and must have 24"
        check_that_it_is_refused(array, self.named(says))

    @pytest.mark.parametrize("kind", ["local", "memory"], indirect=True)
    @pytest.mark.parametrize("case", [*PLACES, "a byte behind the inner chunks"])
    def test_a_place_that_is_not_in_the_file_is_an_error(self, stored, location, case):
        end = 96 if location == "end" else 164  # of the inner chunks
        start = self.PLACES.get(case, end - 23)
        array = stored(shard_of(PARTS, location, entries={2: (start, 24)}), location)
        says = f"ends at byte {start + 24}, and the inner chunks end at {end}"
        check_that_it_is_refused(array, self.named(says))

    @pytest.mark.parametrize("case", PLACES)
    def test_who_asks_for_ranges_does_not_know_the_end_and_misses_the_range(self, location, case):
        start = self.PLACES[case]
        content = shard_of(PARTS, location, entries={2: (start, 24)})
        array = array_with("requests", None, content, location)
        for selection in NEEDING.values():
            with pytest.raises((ShardIndexError, ChunkSizeError), match=KEY) as caught:
                array[selection]
            if isinstance(caught.value, ShardIndexError):
                assert start + 24 > 2**63 - 1
                assert re.search(self.named(f"begins at byte {start}"), str(caught.value))
        for selection in OTHERS.values():
            assert np.array_equal(array[selection], VALUES[selection])

    def test_a_place_within_the_index_is_an_error(self, stored):
        array = stored(shard_of(PARTS, "start", entries={2: (67, 24)}), "start")
        says = "begins at byte 67, within the index, which ends at 68"
        check_that_it_is_refused(array, self.named(says))


def shards_with_a_wrong_index():
    """By a name: the content, options of the array that has it, and what the error says."""
    intact = {location: shard_of(PARTS, location) for location in LOCATIONS}
    for location, content in intact.items():
        start = 96 if location == "end" else 0
        for byte in 0, 15, 63, 64, 67:
            changed = bytearray(content)
            changed[start + byte] ^= 1
            found = struct.unpack_from("<I", changed, start + 64)[0]
            computed = google_crc32c.value(bytes(changed[start : start + 64]))
            says = f"has the checksum {found:#010x}, and that of its bytes is {computed:#010x}"
            name = f"another byte {byte} of the index at the {location}"
            yield name, (bytes(changed), {"location": location}, says)
        for size in 0, 1, 67:
            name, options = f"of {size} bytes, index at the {location}", {"location": location}
            says = f"takes 68 bytes for 4 inner chunks, found {size}: the shard is truncated"
            yield name, (content[:size], options, says)
    for size in 68, 163:
        yield f"cut off at {size}", (intact["end"][:size], {}, "has the checksum 0x")
    unchecked, options = shard_of(PARTS, has_checksum=False), {"has_checksum": False}
    for size in 0, 1, 19:
        says = f"takes 64 bytes for 4 inner chunks, found {size}"
        yield f"of {size} bytes without a checksum", (unchecked[:size], options, says)
    says = "other shapes or codecs than the metadata names"
    yield "of inner chunks of another shape", (intact["end"], {"inner_shape": (2, 6)}, says)
    says = f"has {24 << 56} bytes, and must have 24"
    yield "in another byte order", (unchecked, options | {"endian": "big"}, says)


WRONG_INDEXES = dict(shards_with_a_wrong_index())


class TestIndexes:
    @pytest.mark.parametrize("case", WRONG_INDEXES)
    def test_a_shard_with_a_wrong_index_is_an_error(self, stored, kind, case):
        content, options, says = WRONG_INDEXES[case]
        if kind == "requests":  # zarr 3.1 gives another part where there is less than is asked for
            says = re.sub(r"found \d+: the", r"found \\d+: the", says)
        message = rf"^(the index|inner chunk \(\d, \d\)) of the shard .*{KEY} .*{says}"
        array, everything = stored(content, **options), NEEDING | OTHERS
        check_that_it_is_refused(array, message, needing=everything, others={})

    def test_behind_its_index_a_shard_may_have_more_bytes(self, tmp_path, kind):
        array = array_with(kind, tmp_path, shard_of(PARTS, "start") + b"more", "start")
        assert np.array_equal(array[...], VALUES)

    def test_a_shard_that_is_cut_off_behind_its_index_has_what_is_left(self, tmp_path, kind):
        content = shard_of(PARTS, "start")[: 68 + 3 * 24 + 1]
        array = array_with(kind, tmp_path, content, "start")
        assert np.array_equal(array[:3, :3], VALUES[:3, :3])
        error, says = ShardIndexError, r"inner chunk \(1, 1\) .* ends at byte 164, .* end at 141"
        if kind == "requests":
            error, says = ChunkSizeError, f"bytes 1[45]0 to 1[56][0-9] of .*{KEY}"
        for selection in (..., np.s_[3, 5]):
            with pytest.raises((error, ChunkSizeError), match=says if kind != "requests" else KEY):
                array[selection]

    def test_each_shard_with_the_same_fault_is_named(self, tmp_path):
        grid = {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": SHAPE}}}
        store = written_documents(tmp_path, document("start", shape=(16, 6)) | grid)
        wrong = shard_of(PARTS, "start", entries={2: (48, 23)})
        intact = shard_of(PARTS, "start")
        for i, content in enumerate([intact, intact[:-1], wrong, wrong]):
            (tmp_path / f"c/{i}").mkdir(parents=True)
            (tmp_path / f"c/{i}/0").write_bytes(content)
        array = zarr.open_array(store, mode="r")
        assert np.array_equal(array[:4], VALUES)
        for i, inner in (1, "1, 1"), (2, "1, 0"), (3, "1, 0"), (2, "1, 0"):
            message = rf"inner chunk \({inner}\) of the shard .*c/{i}/0 "
            with pytest.raises(ShardIndexError, match=message):
                array[4 * i : 4 * i + 4]

    def test_inner_chunks_that_lie_in_the_same_place_are_read(self, tmp_path, kind):
        array = array_with(kind, tmp_path, shard_of(PARTS, entries={2: (24, 24), 0: (20, 24)}))
        assert np.array_equal(array[2:, :3], VALUES[:2, 3:])
        found = np.frombuffer(b"".join(PARTS)[20:44], ">i4").reshape(2, 3)
        assert np.array_equal(array[:2, :3], found)
        assert np.array_equal(array[:, 3:], VALUES[:, 3:])
        array = array_with(kind, tmp_path, shard_of(PARTS, entries={2: (0, 24)}))
        assert np.array_equal(array[1:3, :3], VALUES[[1, 0], :3])


class TestSizes:
    COUNT = 4_000_000

    def array(self, folder, **index):
        """A shard of millions of inner chunks of a byte, whose index is mostly a hole."""
        options = {"shape": (self.COUNT,), "inner_shape": (1,), "data_type": "uint8"}
        store = written_documents(folder, document(**options, **index))
        (folder / "c").mkdir()
        return zarr.open_array(store, mode="r+")

    def test_an_index_of_millions_is_read_and_no_more(self, tmp_path):
        array = self.array(tmp_path, has_checksum=False)
        with (tmp_path / "c/0").open("wb") as file:
            file.truncate(16 * self.COUNT + 10)
            file.write(b"0123456789" + struct.pack("<QQ", 7, 1))
        assert array[0] == ord("7")
        with pytest.raises(ShardIndexError, match=r"inner chunk \(3\) .* has 0 bytes"):
            array[3]
        with watched(tmp_path) as files:
            found, memory = most_memory(lambda: array[0])
        assert found == ord("7")
        assert files.nbytes["c/0"] == 16 * self.COUNT + 1
        assert memory < 1.1 * 16 * self.COUNT

    def test_a_file_that_is_far_larger_than_the_shard_is_not_read(self, tmp_path):
        array = array_with("local", tmp_path, b"")
        index = index_of([(0, 24), (2**40, 24), (2**39, 24), ABSENT])
        with (tmp_path / KEY).open("r+b") as file:
            file.truncate(2**40 + 24)
            file.write(PARTS[0])
            file.seek(2**40 + 24)
            file.write(index)
        expected = np.zeros(SHAPE, "i4")
        expected[:2, :3] = VALUES[:2, :3]
        for is_partial in True, False:
            with (
                zarr.config.set({"zarr_bytes.partial_reads": is_partial}),
                watched(tmp_path) as files,
            ):
                found, memory = most_memory(lambda: array[...])
            assert np.array_equal(found, expected)
            assert files.nbytes[KEY] == 68 + 3 * 24
            assert memory < 2**20

    @pytest.mark.parametrize("is_partial", [True, False])
    def test_ranges_far_apart_are_not_fetched_together(self, is_partial):
        content = shard_of(PARTS, entries={1: (2**61, 24)})
        array = array_with("requests", None, content)
        with zarr.config.set({"zarr_bytes.partial_reads": is_partial}):

            def read():
                with pytest.raises(ChunkSizeError, match=KEY):
                    array[...]

            _, memory = most_memory(read)
        assert memory < 2**20

    def test_an_index_that_metadata_make_large_takes_no_memory_where_the_file_is_small(
        self, tmp_path
    ):
        options = {"shape": (2**40,), "inner_shape": (1,), "data_type": "uint8"}
        for location in LOCATIONS:
            store = written_documents(tmp_path, document(location, **options))
            (tmp_path / "c").mkdir(exist_ok=True)
            (tmp_path / "c/0").write_bytes(b"0123456789")
            for settings in {}, IN_PLACE:
                with zarr.config.set(settings):
                    array = zarr.open_array(store, mode="r+")

                def act(array=array):
                    message = f"takes {2**44 + 4} bytes for {2**40} inner chunks, found 10"
                    with pytest.raises(ShardIndexError, match=message):
                        array[7]
                    with pytest.raises(ShardIndexError, match=message):
                        array[7] = 1

                assert most_memory(act)[1] < 2**20


@needs_pwrite
@pytest.mark.parametrize("call", ["fstat", "link"], ids=["replaced", "made"])
def test_a_shard_that_another_puts_there_meanwhile_is_written_by_its_own_index(
    tmp_path, monkeypatch, call
):
    """After the open, or while a missing one is made."""
    array, path = array_with("local", tmp_path, shard_of(PARTS), is_in_place=True), tmp_path / KEY

    def shard_of_others(values):
        parts = [encoded(part, "int32", "big") for part in divided(values, INNER)]
        return shard_of(parts, places=[3, 1, 0, 2], gap=b"gap")

    def put_there():
        other = tmp_path / "other"
        other.write_bytes(shard_of_others(-VALUES))
        other.replace(path)

    if call == "link":
        path.unlink()
    fail_at(monkeypatch, call, 0, before=put_there)
    array[1:3, 2:4] = 100
    values = -VALUES
    values[1:3, 2:4] = 100
    assert path.read_bytes() == shard_of_others(values)


@contextmanager
def nothing_is_left(folder):
    yield
    assert list(folder.rglob("*.partial")) == []


@needs_pwrite
class TestFaults:
    """Of the system, while a shard of 64 inner chunks of 4 KiB is read and written."""

    SHAPE, INNER = (512, 512), (64, 64)
    SELECTIONS = {"rows": np.s_[100:300], "column": np.s_[:, 70], "inner chunk": np.s_[64:128, :64]}

    @pytest.fixture
    def array(self, tmp_path, location):
        others = {"shape": self.SHAPE, "inner_shape": self.INNER, "data_type": "uint8"}
        content = self.content(location)
        with nothing_is_left(tmp_path):
            yield array_with("local", tmp_path, content, location, is_in_place=True, **others)

    def values(self):
        return np.random.default_rng(0).integers(0, 256, self.SHAPE).astype("u1")

    def content(self, location, selection=None, number=5):
        values = self.values()
        if selection is not None:
            values[selection] = number
        parts = [part.tobytes() for part in divided(values, self.INNER)]
        return shard_of(parts, location, places=np.random.default_rng(1).permutation(64))

    @pytest.mark.parametrize(
        ("selection", "call"),
        [("inner chunk", 0), *[(name, call) for name in ("rows", "column") for call in (0, 1, 20)]],
    )
    def test_a_write_that_fails_leaves_every_other_byte(
        self, array, tmp_path, location, monkeypatch, selection, call
    ):
        monkeypatch.setattr("zarr_bytes.io.range_writing.is_local", lambda file: False)
        fail_at(monkeypatch, "pwrite", call, error=OSError(errno.EIO, "the disk"))
        message = r"byte \d+ of the chunk could not be written; (\d+) bytes of the selection have"
        with pytest.raises(OSError, match=message) as caught:
            array[self.SELECTIONS[selection]] = 5
        assert str(tmp_path / KEY) in str(caught.value)
        written = int(re.search(message, str(caught.value))[1])
        before = np.frombuffer(self.content(location), "u1")
        wanted = np.frombuffer(self.content(location, self.SELECTIONS[selection]), "u1")
        after = np.frombuffer((tmp_path / KEY).read_bytes(), "u1")
        assert (after[before == wanted] == before[before == wanted]).all()
        assert ((after == before) | (after == wanted)).all()
        assert (after != before).sum() <= written

    @pytest.mark.parametrize("size", [0, 2000, 100_000])
    def test_a_shard_that_is_shortened_while_it_is_read_is_an_error(
        self, array, tmp_path, location, size
    ):
        """At every call of the system, after the one that has opened it."""
        for at in range(8):
            (tmp_path / KEY).write_bytes(self.content(location))
            calls = []

            def shorten(name, *arguments, at=at, calls=calls):
                calls.extend([name] * (name in ("fstat", "preadv", "pread")))
                if len(calls) == at + 1:
                    os.truncate(tmp_path / KEY, size)

            with before_each(shorten):
                try:
                    found = array[100:300]
                except (ChunkSizeError, ShardIndexError) as error:
                    assert KEY in str(error)  # noqa: PT017 -- else it was read before
                else:
                    assert np.array_equal(found, self.values()[100:300])


class TestOtherStores:
    """Requests end otherwise; the first one is for the index."""

    def array(self, fault):
        async def ends_as_this(number, buffer):
            return fault(number, buffer)

        array = zarr.open_array(FaultyStore(array_with("memory", None, shard_of(PARTS)).store))
        array.store.requests.clear()
        array.store.fault = ends_as_this
        return array

    @pytest.mark.parametrize("selection", [(2, 2), ...])
    def test_a_part_of_a_shard_that_goes_missing_is_an_error(self, selection):
        array = self.array(lambda number, buffer: buffer if number == 1 else None)
        message = "some byte ranges of .* are there and others are missing"
        with pytest.raises(ChunkSizeError, match=message):
            array[selection]

    def test_a_short_range_is_an_error(self):
        array = self.array(lambda number, buffer: buffer if number == 1 else buffer[:-1])
        message = rf"bytes 80 to 84 of .*{KEY} are 4 bytes, found 3"
        with pytest.raises(ChunkSizeError, match=message):
            array[2, 5]

    def test_an_error_of_the_store_is_raised_as_it_is(self):
        def fail(number, buffer):
            raise OSError("the connection is gone")

        array = self.array(fail)
        for act in (lambda: array[2, 2], lambda: array.__setitem__((2, 2), 5)):
            with pytest.raises(OSError, match="the connection is gone"):
                act()


def test_a_damaged_inner_chunk_is_replaced_where_it_is_written_whole(tmp_path, kind):
    content = shard_of(PARTS, "end", entries={2: (1000, 24)})
    array = array_with(kind, tmp_path, content, "end", False)
    array[2:, :3] = 5
    expected = VALUES.copy()
    expected[2:, :3] = 5
    assert np.array_equal(array[...], expected)


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")  # zarr's pipeline
class TestInnerChunksThatDoNotDivideATransposedShard:
    """zarr compares them with the shard before the `transpose`, and accepts them."""

    OPTIONS = {"shape": (4, 6), "chunks": (4, 3), "dtype": "int32", "compressors": None}
    ZARRS = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
    REFUSED = (
        r"inner chunks of the shape \(4, 3\) do not divide shards, which have the shape \(3, 4\)"
        r" after the codecs before them: 4 does not divide 3 on axis 0"
    )

    @staticmethod
    def chain(inner_shape, codecs=(), order=(1, 0)):
        codecs = (zarr.codecs.BytesCodec(), *codecs)
        sharding = zarr.codecs.ShardingCodec(chunk_shape=inner_shape, codecs=codecs)
        return {"filters": zarr.codecs.TransposeCodec(order=order), "serializer": sharding}

    @pytest.mark.parametrize("codecs", [(), (zarr.codecs.GzipCodec(),)], ids=["plain", "gzip"])
    def test_they_are_refused_where_they_are_created_and_opened(self, codecs):
        store = {}
        options = self.OPTIONS | self.chain((4, 3), codecs)
        with pytest.raises(ConfigurationError, match=self.REFUSED):
            zarr.create_array(store, **options)
        assert not store
        with zarr.config.set(self.ZARRS):
            zarr.create_array(store, **options)
        for open_ in (zarr.open_array, zarr.open):
            with pytest.raises(ConfigurationError, match=self.REFUSED):
                open_(store)

    def test_they_have_no_view_whatever_pipeline_the_array_has(self):
        with zarr.config.set(self.ZARRS):
            array = zarr.create_array({}, **self.OPTIONS, **self.chain((4, 3)))
        with pytest.raises(StoreError, match=self.REFUSED):
            zarr_bytes.view(array)

    def test_they_are_refused_within_shards(self):
        """zarr compares these only from zarr 3.4 on."""
        inner = zarr.codecs.ShardingCodec(chunk_shape=(2, 2))
        codecs = (zarr.codecs.TransposeCodec(order=(1, 0)), inner)
        outer = zarr.codecs.ShardingCodec(chunk_shape=(4, 3), codecs=codecs)
        with pytest.raises(ValueError, match="not divi"):
            zarr.create_array({}, **self.OPTIONS, serializer=outer)

    def test_those_that_divide_both_are_read_and_written(self):
        values = np.arange(24, dtype="i4").reshape(4, 6)
        array = zarr.create_array({}, **self.OPTIONS, **self.chain((1, 1)))
        array[:] = values
        assert np.array_equal(zarr.open_array(array.store)[:], values)
