"""`explain` says what a selection reads and writes, and `counting` counts what was."""

import errno
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import asdict
from math import prod
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zarr
from command import call
from conftest import PIPELINES
from documents import ARRAY, memory, regular, write
from fuzz import KINDS, fuzz, settings_of, store_with, thresholds
from fuzz_arrays import Sharded, arrays, basic, blocks, orthogonal, sharded, slices, transposed
from hypothesis import assume, event, given
from hypothesis import strategies as st
from shards import divided
from stored_arrays import (
    IN_PLACE,
    CountingStore,
    DeviceBuffer,
    created,
    numbers,
    pipeline_of,
    stored,
)
from system_calls import before_each, watched
from zarr.codecs import TransposeCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

import zarr_bytes
from zarr_bytes import limits
from zarr_bytes.errors import StoreError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type", "ignore:.*answer byte ranges", "ignore:Combining a"
)

COUNTS = ("chunks", "opens", "requests", "ranges", "bytes_fetched")
VALUES = numbers((60, 50, 50))
ZARRS_CODEC = {"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}


def counts_of(found):
    return {name: getattr(found, name) for name in COUNTS}


@st.composite
def selections(draw, shape, chunk_shape):
    """The name of what is indexed of an array, empty for itself, and a selection for it."""
    kinds = ["basic", "basic", "one array", "points", "oindex", "mask", "blocks"]
    kind = draw(st.sampled_from(kinds if shape else ["basic"]))
    if kind == "basic":
        return "", draw(basic(shape))
    if kind == "oindex":
        return "oindex", draw(orthogonal(shape))
    if kind == "mask":
        return "vindex", np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.3
    if kind == "blocks":
        return "blocks", draw(blocks(shape, chunk_shape))[0]
    indices = [draw(st.lists(st.integers(-n, n - 1), min_size=3, max_size=3)) for n in shape]
    if kind == "points":
        return draw(st.sampled_from(["", "vindex"])), tuple(map(np.array, indices))
    axis = draw(st.integers(0, len(shape) - 1))
    entries = [draw(slices(n)) for n in shape]
    entries[axis] = np.array(indices[axis])
    return "", tuple(entries)


class WithinTheArray(Sharded):
    """Shards that have all inner chunks but those behind the edge of the array, as of zarr."""

    def absent(self, key):
        numbers = np.empty(self.chunk_shape, int)
        for number, inner in enumerate(divided(transposed(numbers, self.before), self.inner_shape)):
            inner[...] = number
        within = np.empty(self.shape, "V1")[self.region(key)].shape
        within = numbers[tuple(slice(0, n) for n in within)]
        return sorted(set(range(self.count)) - set(within.ravel().tolist()))


@st.composite
def complete_arrays(draw):
    """Arrays of chunks, or of shards that have all inner chunks in their order."""
    example = draw(arrays(least_size=1))
    if draw(st.booleans()):
        example = draw(sharded(example, can_be_sparse=False))
        assume(not example.is_shuffled)
        example = WithinTheArray(**vars(example))
    return example


@pytest.mark.usefixtures("pipeline")
def test_axes_that_integers_drop_from_a_grid_are_explained(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((4, 9, 5)), chunks=(4, 9, 2))
    explained = zarr_bytes.explain(array.oindex, (2, 3, [1]))
    with zarr_bytes.counting() as counted:
        array.oindex[2, 3, [1]]
    assert counts_of(explained) == counts_of(counted)


@fuzz(examples=60)
@given(data=st.data())
def test_a_read_is_what_was_explained(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("store")
    example = data.draw(complete_arrays())
    kind = data.draw(st.sampled_from([*KINDS, "local", "requests"]))
    pipelines = ["BatchedBytesPipeline", "BatchedBytesPipeline", "BatchedCodecPipeline"]
    config = {"codec_pipeline.path": PIPELINES[data.draw(st.sampled_from(pipelines))]}
    config |= settings_of(data.draw)
    name, selection = data.draw(selections(example.shape, example.chunk_shape))
    store = store_with(kind, example.objects(example.values()), folder)
    with zarr.config.set(config), pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIMITS", data.draw(thresholds()))
        array = zarr.open_array(store, mode="r")
        of_array = getattr(array, name) if name else array
        explained = zarr_bytes.explain(of_array, selection)
        if explained.acts.startswith("zarr."):
            assert not explained.is_partial
            event("zarr reads it")
            return
        if kind == "requests":
            array.store.requests.clear()
        with watched(folder) as files, zarr_bytes.counting() as counted:
            found = of_array[selection]
    assert counts_of(explained) == counts_of(counted)
    assert explained.bytes_selected == np.size(found) * array.dtype.itemsize
    if kind == "local":
        assert explained.opens == len(files.keys)
        assert explained.bytes_fetched == sum(files.nbytes.values())
    elif kind == "requests":
        assert explained.requests == len(array.store.requests)
    assert explained.is_partial == (explained.bytes_fetched < explained.bytes_of_chunks)
    assert explained.is_partial or explained.reason


SHARDS = {"shape": (10, 9), "shards": (6, 6), "chunks": (2, 3), "dtype": "u2", "compressors": None}
CHUNKS = {**SHARDS, "shards": None, "chunks": (6, 6)}
POINTS = numbers((10, 9), "u2") + 1  # no fill value among them


def made(folder, options, *, partial_writes):
    """An array of `POINTS`, in complete shards if `partial_writes`."""
    with zarr.config.set({"zarr_bytes.partial_writes": partial_writes}):
        array = zarr.create_array(folder, **options)
        for rows in (slice(0, None, 2), slice(1, None, 2)):
            array[rows] = POINTS[rows]
    return array


def hard_link(path):
    os.link(path, path.with_name(f"{path.name}.copy"))


def symbolic_link(path):
    path.symlink_to(path.rename(path.with_name(f"{path.name}.moved")))


def link_to_nothing(path):
    path.unlink()
    path.symlink_to("nowhere")


def read_only(path):
    path.chmod(0o444)


def few_inner_chunks(path):
    """One inner chunk, or none where the first would be outside of the array."""
    place = [int(part) * 6 for part in path.parts[-2:]]
    path.unlink()
    folder = path.parents[2]
    with zarr.config.set({"zarr_bytes.partial_writes": False}):
        zarr.open_array(folder)[place[0], place[1]] = 7


def shared_bytes(path):
    """The second inner chunk has the bytes of the first one."""
    content = path.read_bytes()
    index = np.frombuffer(content[-100:-4], "<u8").copy()
    index[2:4] = index[:2]
    shard = content[:-100] + index.tobytes()
    path.write_bytes(shard + google_crc32c.value(index.tobytes()).to_bytes(4, "little"))


def refused(*_):
    """In place of a lock."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


STATES = [None, Path.unlink, hard_link, symbolic_link, link_to_nothing, read_only]
OF_SHARDS = [*STATES, few_inner_chunks, shared_bytes]


@fuzz(examples=60)
@given(data=st.data())
def test_a_write_to_files_of_any_kind_is_what_was_explained(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("store")
    options = data.draw(st.sampled_from([CHUNKS, SHARDS]))
    made(folder, options, partial_writes=data.draw(st.booleans()))
    paths = [folder / f"c/{i}/{j}" for i in range(2) for j in range(2)]
    for path in paths:
        change = data.draw(st.sampled_from(STATES if options is CHUNKS else OF_SHARDS))
        if change is not None:
            change(path)
    before = {path: path.lstat().st_ino for path in paths if os.path.lexists(path)}
    with zarr.config.set({"zarr_bytes.partial_writes": data.draw(st.booleans())}):
        array = zarr.open_array(folder, mode="r+")
    name, selection = data.draw(selections((10, 9), (6, 6)))
    of_array = getattr(array, name) if name else array
    explained = zarr_bytes.explain(of_array, selection, write=True)
    with zarr_bytes.counting() as counted:
        of_array[selection] = 9
    assert explained.bytes_written == counted.bytes_written
    if explained.chunks:  # zarr 3.1 writes nothing to some
        assert counts_of(explained) == counts_of(counted)
    new = sum(path not in before and path.exists() for path in paths)
    replaced = sum(path.lstat().st_ino != inode for path, inode in before.items())
    assert replaced <= explained.chunks - explained.chunks_in_place <= replaced + new
    assert explained.is_partial == (not explained.reason or not explained.chunks)
    assert explained.is_partial or replaced
    assert explained.may_share == (explained.chunks > 0 and pipeline_of(array).in_place)


FILES = [
    (hard_link, r"c/0/0 has other names \(hard links\)"),
    (symbolic_link, "c/0/0 is a symbolic link"),
    (read_only, "c/0/0 is read-only"),
]
SHARD_FILES = [
    *FILES,
    (few_inner_chunks, "lacks inner chunks that are selected: `preallocate` adds them"),
    (shared_bytes, "inner chunks of a shard share bytes: `preallocate` parts them"),
]


@pytest.mark.parametrize(
    ("options", "change", "reason"),
    [*((CHUNKS, *case) for case in FILES), *((SHARDS, *case) for case in SHARD_FILES)],
)
def test_a_file_that_a_write_replaces_is_said_with_its_reason(tmp_path, options, change, reason):
    array = made(tmp_path, options, partial_writes=True)
    change(tmp_path / "c/0/0")
    explained = zarr_bytes.explain(array, 0, write=True)
    inode = (tmp_path / "c/0/0").lstat().st_ino
    with zarr_bytes.counting() as counted:
        array[0] = 9
    assert (tmp_path / "c/0/0").lstat().st_ino != inode
    assert not explained.is_partial
    assert re.search(reason, explained.reason)
    assert (explained.chunks, explained.chunks_in_place) == (2, 1)
    assert str(explained).startswith("Chunks are replaced: ")
    assert explained.bytes_written == counted.bytes_written > 2 * 9
    assert explained.bytes_fetched == counted.bytes_fetched > 0
    assert explained.may_share is True  # who writes into the old file is waited for


def test_inner_chunks_behind_the_edge_are_taken_for_absent_where_no_shard_can_be_looked_at():
    for place, inner_chunks in ((0, 0), 6), ((9, 8), 2):
        store = MemoryStore()
        array = made(store, SHARDS, partial_writes=False)
        explained = zarr_bytes.explain(array, place, write=True)
        with zarr_bytes.counting() as counted:
            array[place] = 9
        nbytes = 100 + 12 * inner_chunks
        assert explained.bytes_fetched == counted.bytes_fetched == nbytes
        assert explained.bytes_written == counted.bytes_written == nbytes
        assert explained.chunks_assumed == 1


def test_a_read_has_the_inner_chunks_in_the_index_and_all_of_a_missing_shard(tmp_path):
    array = made(tmp_path, SHARDS, partial_writes=True)
    for key in ("c/0/0", "c/0/1"):
        few_inner_chunks(tmp_path / key)
    explained = zarr_bytes.explain(array, np.s_[:6])
    with zarr_bytes.counting() as counted:
        array[:6]
    assert counts_of(explained) == counts_of(counted)
    assert (explained.bytes_fetched, explained.chunks_assumed) == (2 * (100 + 12), 0)
    expected = zarr_bytes.explain(array, np.s_[6:, 0])
    (tmp_path / "c/1/0").unlink()
    explained = zarr_bytes.explain(array, np.s_[6:, 0])
    assert explained.bytes_fetched == expected.bytes_fetched
    assert (expected.chunks_assumed, explained.chunks_assumed) == (0, 1)
    assert re.search("shards taken for stored +1$", str(explained))


def test_of_more_than_a_thousand_files_a_thousand_are_looked_at(tmp_path):
    options = {"shape": (1001, 6), "chunks": (1, 6), "dtype": "u2", "compressors": None}
    with zarr.config.set(IN_PLACE):
        array = zarr.create_array(tmp_path, **options)
    with before_each(lambda name, *arguments: names.append((name, arguments))):
        names = []
        explained = zarr_bytes.explain(array, np.s_[:, 1], write=True)
    opened = {path for name, (path, *_) in names if name == "open" and "/c/" in str(path)}
    assert len(opened) == 1000
    assert (explained.bytes_written, explained.chunks_assumed) == (None, 1)
    assert explained.may_share is True
    assert re.search("bytes written +not known: `preallocate` makes it certain\n", str(explained))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcntl.flock", refused)
        assert zarr_bytes.explain(array, np.s_[:, 1], write=True).may_share is None
    known = zarr_bytes.explain(array, np.s_[:1000, 1], write=True)
    assert known.bytes_written == 1000 * 12


class TestWithoutLocks:
    """Who replaces a file doesn't wait for those who write into it."""

    @pytest.fixture(autouse=True)
    def _without_locks(self, monkeypatch):
        pytest.importorskip("fcntl")
        monkeypatch.setattr("fcntl.flock", refused)

    @pytest.mark.parametrize("change", [hard_link, few_inner_chunks])
    def test_a_write_that_replaces_a_file_is_not_for_several_writers(self, tmp_path, change):
        """Nor is a read, or a write of nothing."""
        array = made(tmp_path, SHARDS, partial_writes=True)
        assert zarr_bytes.explain(array, 0, write=True).may_share is True
        change(tmp_path / "c/0/0")
        assert zarr_bytes.explain(array, 7, write=True).may_share is True
        for selection in (0, np.s_[:6], np.s_[3:3]):
            assert zarr_bytes.explain(array, selection, write=True).may_share is False
        assert zarr_bytes.explain(array, 2).may_share is False


@pytest.mark.parametrize("partial_writes", [True, False])
def test_under_a_pipeline_of_zarr_a_write_replaces_chunks(tmp_path, partial_writes):
    made(tmp_path, CHUNKS, partial_writes=partial_writes)
    pipeline = {"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}
    with zarr.config.set({**pipeline, "zarr_bytes.partial_writes": partial_writes}):
        transposed = created({}, (9, 9), "u2", filters=[TransposeCodec(order=(1, 0))])
        explained = zarr_bytes.explain(transposed, 7)
        assert explained.bytes_fetched == 9 * 9 * 2
        reason = explained.reason
        assert f"the pipeline is {PIPELINES['BatchedCodecPipeline']} (set by zarr.config" in reason
        array = zarr.open_array(tmp_path)
        explained = zarr_bytes.explain(array, 2, write=True)
        assert zarr_bytes.explain(array, np.s_[:6], write=True).is_partial
        with zarr_bytes.counting() as counted:
            array[2] = 9
    assert explained.acts == PIPELINES["BatchedCodecPipeline"]
    assert not explained.is_partial
    assert not explained.may_share
    assert "which replaces chunks: set codec_pipeline.path to zarr_bytes" in explained.reason
    assert explained.bytes_fetched == explained.bytes_written == 2 * 72
    assert (counted.chunks, counted.by_zarr) == (0, 4)  # decoded and encoded


def test_explaining_leaves_files_as_they_are(tmp_path):
    array = made(tmp_path, SHARDS, partial_writes=True)
    read_only(tmp_path / "c/0/0")
    paths = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    before = [(p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in paths]
    for selection in (..., 2, np.s_[:, 3]):
        zarr_bytes.explain(array, selection)
        zarr_bytes.explain(array, selection, write=True)
    assert before == [(p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in paths]


@pytest.mark.parametrize(
    ("order", "selection", "count"),
    [((0, 1, 2), np.s_[:7], 7 * 50 * 2), ((2, 0, 1), np.s_[:, :, :7], 7 * 60 // 10)],
)
def test_more_of_a_transposed_chunk_is_read_at_once(tmp_path, monkeypatch, order, selection, count):
    """32 elements of a row of 50, or 10 such rows."""
    sizes = limits.Limits(block=2**8, block_out_of_order=2**12, loop_chunk=1, assigned=1)
    monkeypatch.setattr(limits, "LIMITS", sizes)
    filters = [TransposeCodec(order=order)]
    array = stored(LocalStore(tmp_path), VALUES, chunks=VALUES.shape, filters=filters)
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        explained = zarr_bytes.explain(array, selection)
        with zarr_bytes.counting() as counted:
            array[selection]
    assert counts_of(explained) == counts_of(counted)
    assert explained.ranges == count


@pytest.mark.parametrize("function", [zarr_bytes.explain, zarr_bytes.preallocate])
def test_what_is_no_array_is_refused(function):
    with pytest.raises(TypeError, match=r"array is of type ndarray; permitted is a zarr\.Array"):
        function(np.zeros(3))


OPTIONS = {"data": VALUES, "compressors": None}


def of_many(**options):
    return lambda _: zarr.create_array({}, **{**OPTIONS, **options})


def in_folder(folder):
    return stored(LocalStore(folder), VALUES)


def in_compressed_archive(folder):
    in_folder(folder / "a")
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "a").rglob("*")):
            archive.write(path, path.relative_to(folder / "a"))
    return zarr.open_array(ZipStore(folder / "a.zip", mode="r"))


# An array, a selection, and the reason why it is not read, or written, in parts.
READS = {
    "a compressor": (of_many(compressors="auto"), 7, "the codec zstd.*compressors=None"),
    "a compressor in shards": (
        of_many(compressors="auto", shards=(60, 50, 50), chunks=(10, 50, 50)),
        7,
        "inner chunks of its shards go through the codec zstd",
    ),
    "format 2": (of_many(zarr_format=2), 7, "Zarr format 2, which zarr reads"),
    "texts": (
        lambda _: zarr.create_array({}, shape=9, dtype="string", compressors=None),
        7,
        "vlen-utf8",
    ),
    "a chunk no larger than the gap": (
        lambda folder: stored(LocalStore(folder), VALUES[0]),
        7,
        r"a chunk has 20,000 bytes, no more than the gap of 32,768 bytes"
        r" \(zarr_bytes\.gap\.local\)$",
    ),
    "memory": (lambda _: stored(MemoryStore(), VALUES), 7, "in memory"),
    "a compressed archive": (in_compressed_archive, 7, "zipfile.ZIP_STORED"),
    "nothing": (in_folder, np.s_[5:5], "no element is selected$"),
    "everything": (in_folder, ..., "from the first element"),
    "gaps": (in_folder, np.s_[:, 3, 4], "gaps of up to 32,768 bytes"),
}


class TestTheFirstReasonThatHolds:
    @pytest.mark.parametrize("case", READS)
    def test_of_a_read(self, tmp_path, case):
        make, selection, reason = READS[case]
        array = make(tmp_path)
        explained = zarr_bytes.explain(array, selection)
        assert re.search(f"^.*{reason}", explained.reason)
        assert explained.chunks == zarr_bytes.explain(array, selection, write=True).chunks
        is_unknown = case in {"a compressor", "a compressor in shards", "format 2", "texts"}
        assert (explained.bytes_fetched is None) == is_unknown
        assert ("not known" in str(explained)) == is_unknown
        assert explained.is_partial == (case == "gaps")

    def test_of_settings(self, tmp_path):
        array = in_folder(tmp_path)
        with zarr.config.set({"zarr_bytes.partial_reads": False}):
            reason = zarr_bytes.explain(array, np.s_[:, 3, 4]).reason
        assert reason.startswith("zarr_bytes.partial_reads is False (set by zarr.config.set)")

    def test_the_class_of_zarr_for_bytes(self, tmp_path):
        stored(LocalStore(tmp_path), VALUES)
        with zarr.config.set(ZARRS_CODEC):
            array = zarr.open_array(tmp_path)
            explained = zarr_bytes.explain(array, 7)
        assert "zarr.codecs.bytes.BytesCodec for the codec bytes" in explained.reason
        assert explained.reopened == ""
        later = zarr_bytes.explain(array, 7)
        assert "opened before zarr-bytes was chosen" in later.reason
        assert "would be read and written by zarr-bytes" in later.reopened
        assert all(f": {text}." in str(later) for text in (later.reason, later.reopened))

    def test_a_store_that_sends_whole_objects(self):
        class Refusing(CountingStore):
            async def get(self, key, prototype, byte_range=None):
                if byte_range is not None:
                    raise NotImplementedError
                return await super().get(key, prototype, byte_range)

        array = stored(Refusing(MemoryStore()), np.repeat(VALUES, 2, 0))
        assert zarr_bytes.explain(array, 7).is_partial
        array[7]
        assert "answered a byte range with a whole object" in zarr_bytes.explain(array, 7).reason

    def test_buffers_on_a_device(self, tmp_path):
        transposed = zarr.codecs.TransposeCodec(order=(2, 0, 1))
        array = stored(LocalStore(tmp_path / "a"), VALUES)
        other = stored(LocalStore(tmp_path / "b"), VALUES, filters=[transposed])
        zarr.registry.register_buffer(DeviceBuffer)
        name = f"{DeviceBuffer.__module__}.{DeviceBuffer.__qualname__}"
        with zarr.config.set({"buffer": name}):
            assert zarr_bytes.explain(array, 7).is_partial  # by the codec, into memory first
            assert "DeviceBuffer" in zarr_bytes.explain(other, 7).reason

    def test_a_write_without_the_setting(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        explained = zarr_bytes.explain(array, 7, write=True)
        assert "zarr_bytes.partial_writes was False when the array was opened" in explained.reason
        assert not explained.may_share
        whole_and_part = zarr_bytes.explain(array, slice(0, 7), write=True)
        assert whole_and_part.reason == explained.reason
        for filled in array, stored(MemoryStore(), VALUES):
            whole = zarr_bytes.explain(filled, ..., write=True)
            assert (whole.is_partial, whole.reason) == (True, "")  # as it should be
            assert str(whole).startswith("Whole chunks are written: ")
        with zarr.config.set(IN_PLACE):
            requested = stored(CountingStore(MemoryStore()), VALUES)
        assert "CountingStore" in zarr_bytes.explain(requested, 7, write=True).reason
        with zarr.config.set(IN_PLACE):
            later = zarr_bytes.explain(array, 7, write=True)
        assert "opened again, the array would be written in place" in later.reopened


def test_a_chunk_that_is_read_in_millions_of_steps_is_refused(tmp_path):
    document = ARRAY | {"shape": (2**61,), "chunk_grid": regular([2**61]), "data_type": "uint8"}
    write(tmp_path, document | {"fill_value": 0})
    array = zarr.open_array(tmp_path, mode="r+")
    with pytest.raises(ValueError, match="and so has each chunk"):
        zarr_bytes.explain(array)
    assert zarr_bytes.explain(array, np.s_[7:9]).bytes_fetched == 2
    assert zarr_bytes.explain(array, np.s_[7:9], write=True).bytes_written == 2**61


@pytest.mark.slow
def test_more_than_a_million_chunks_are_refused_at_once():
    array = zarr.create_array({}, shape=2**40, chunks=1, dtype="u1", compressors=None)
    with pytest.raises(ValueError, match="more than a million chunks"):
        zarr_bytes.explain(array, np.s_[::2])


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("shape", [(10**30,), (2**62, 2**62), (2**63, 0)])
def test_more_bytes_than_numpy_counts_are_an_index_error(shape, write):
    document = ARRAY | {"shape": shape, "chunk_grid": regular([3] * len(shape))}
    array = zarr.open_array(memory({"": document}))
    with pytest.raises(IndexError, match=r"2\*\*63 bytes"):
        zarr_bytes.explain(array, write=write)
    if 0 not in shape:
        assert zarr_bytes.explain(array, (0,) * len(shape), write=write).chunks == 1


@pytest.mark.parametrize("selection", [60, (0,) * 4, (..., ...), ([60],), "[7]", 1.5])
def test_a_selection_that_does_not_fit_is_an_index_error(selection):
    array = zarr.create_array({}, data=VALUES, compressors=None)
    with pytest.raises(IndexError) as found:
        zarr_bytes.explain(array, selection)
    if selection == "[7]":  # zarr takes a text for a field of records
        assert found.match(r"'\[7\]', and fields of records")
    else:
        with pytest.raises(IndexError, match=re.escape(str(found.value))):
            array[selection]


class TestCounting:
    def test_nested_uses_count_for_themselves(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        with zarr_bytes.counting() as outer:
            array[7]
            with zarr_bytes.counting() as inner:
                array[8, 0]
        array[9]
        assert (outer.bytes_fetched, inner.bytes_fetched) == (20_400, 400)

    def test_stores_are_counted_apart(self, tmp_path):
        first = stored(LocalStore(tmp_path / "first"), VALUES)
        second = stored(CountingStore(MemoryStore()), np.repeat(VALUES, 2, 0))
        with zarr_bytes.counting() as counted:
            first[7]
            second[7]
        assert {n.rpartition("/")[2]: counted.stores[n].bytes_fetched for n in counted} == {
            "first": 20_000,
            str(second.store).rpartition("/")[2]: 20_000,
        }
        assert "first" in str(counted)
        assert str(counted).startswith("2 chunks, 40,000 bytes fetched")

    def test_a_missing_chunk_is_a_chunk_without_bytes(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        (tmp_path / "c/0/0/0").unlink()
        with zarr_bytes.counting() as counted:
            array[7]
        assert counts_of(counted) == dict(zip(COUNTS, (1, 0, 0, 0, 0), strict=True))

    def test_chunks_that_zarr_reads_are_not_counted_which_is_said(self, tmp_path):
        zarr.create_array(tmp_path / "a", data=VALUES)
        array = zarr.open_array(tmp_path / "a")
        other = stored(LocalStore(tmp_path / "b"), VALUES)
        with zarr_bytes.counting() as counted:
            array[7]
            other[7]
        assert (counted.chunks, counted.by_zarr) == (1, len(list(tmp_path.glob("a/c/0/*/*"))))
        assert "Not counted: read by zarr" in str(counted)

    def test_one_that_is_left_open_ends_without_a_message(self):
        code = (
            "import zarr, zarr_bytes\n"
            "array = zarr.create_array({}, shape=9, dtype='i4', compressors=None)\n"
            "left_open = zarr_bytes.counting()\n"
            "counted = left_open.__enter__()\n"
            "array[:]\n"
            "print(counted.chunks)"
        )
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


class TestTheCommand:
    @pytest.mark.parametrize(
        ("text", "name", "selection"),
        [
            ("[7, :, 3:9]", "", np.s_[7, :, 3:9]),
            ("[:, 0]", "", np.s_[:, 0]),
            ("oindex[[1, 5], [2, 3], 4]", "oindex", ([1, 5], [2, 3], 4)),
            (None, "", ...),
        ],
    )
    def test_it_says_what_the_function_says(self, tmp_path, text, name, selection):
        array = in_folder(tmp_path)
        expected = zarr_bytes.explain(getattr(array, name) if name else array, selection)
        assert expected.selection == (text or "[...]")
        arguments = [tmp_path, *[text] * (text is not None)]
        result = call("explain", *arguments, "--json")
        assert json.loads(result.stdout) == json.loads(json.dumps(asdict(expected)))
        assert result.exit_code == (not expected.is_partial)
        printed = call("explain", *arguments).stdout
        assert printed.startswith("Partial: [7, :, 3:9] of ") or text != "[7, :, 3:9]"
        for row in ("bytes selected", "bytes fetched", "opens", "ranges"):
            assert re.search(f"^ *{row} ", printed, re.MULTILINE)

    def test_a_write_that_is_not_in_place_is_status_1(self, tmp_path):
        in_folder(tmp_path)
        result = call("explain", tmp_path, "[7]", "--write")
        assert result.exit_code == 1
        assert "Chunks are replaced" in result.stdout

    @pytest.mark.parametrize(
        "selection",
        [
            *("[", "[a]", "[1.5]", "[f()]", "[1]; x", "[1][2]", "]", "[7:9", "[:, 1, 'a']", "[99]"),
            *("", f"[{'-' * 100_000}1]", "[" * 1000, "index[7]"),
        ],
        ids=range(14),
    )
    def test_a_wrong_selection_is_status_2(self, tmp_path, selection):
        stored(LocalStore(tmp_path), VALUES)
        result = call("explain", tmp_path, selection)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.search("selection|axis", result.stderr)

    @pytest.mark.parametrize(("path", "where"), [("", "at its root"), ("b", "at 'b'")])
    def test_a_path_without_an_array_is_named(self, tmp_path, path, where):
        zarr.create_group(tmp_path).create_array("a", shape=9, dtype="f8")
        result = call("explain", tmp_path, "[7]", "--array", path)
        assert result.exit_code == 2
        assert f"there is no array {where}: name one with --array" in result.stderr

    @pytest.mark.parametrize("command", [("explain", "[7]"), ("preallocate",)])
    def test_an_array_that_zarr_does_not_open_is_named(self, tmp_path, command):
        stored(LocalStore(tmp_path), VALUES)
        path = tmp_path / "zarr.json"
        document = json.loads(path.read_text())
        del document["codecs"]
        path.write_text(json.dumps(document))
        name, *others = command
        result = call(name, tmp_path, *others)
        printed = " ".join((result.stdout + result.stderr).split())
        assert result.exit_code
        assert "its metadata has no 'codecs': `zarr-bytes check` says what is missing" in printed


def test_everything_that_a_text_can_select_is_selected():
    from zarr_bytes.commands.explain import selection_of_text, text_of_selection

    for text in ("[:, 7, 3]", "[..., ::2]", "[-1]", "[1:-2:3, [1, 2]]", "oindex[[1, 2], :, 3]"):
        name, selection = selection_of_text(text)
        assert name + text_of_selection(selection) == text
    assert selection_of_text("7, [1, 2]") == ("", (7, [1, 2]))
    with pytest.raises(StoreError, match=r"\[:, 7, 3\]"):
        selection_of_text("[__import__('os')]")
    with pytest.raises(StoreError, match="oindex, vindex, blocks"):
        selection_of_text("index[7]")
    assert prod(VALUES[selection_of_text("[1:-2:3, [1, 2]]")[1]].shape) == 19 * 2 * 50
