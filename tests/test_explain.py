"""`explain` says what a selection reads and writes, and `counting` counts what was.

`test_promises.py` has that it reads no chunk.
"""

import errno
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
import zipfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from time import process_time
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from command import call
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from documents import ARRAY, ARRAY_2, GROUP, GROUP_2, document_of, memory, write
from fuzz import KINDS, fuzz, settings_of, store_with, thresholds
from fuzz_arrays import arrays, of_format_2, orthogonal, selections, sharded
from hypothesis import event, given
from hypothesis import strategies as st
from shards import entries_in, index_of, shard_of
from stored_arrays import (
    IN_PLACE,
    CountingStore,
    DeviceBuffer,
    behind_a_link,
    contents_of,
    created,
    most_memory,
    numbers,
    pipeline_of,
    pipeline_with,
    stored,
)
from system_calls import before_each, watched
from zarr.codecs import Crc32cCodec, ShardingCodec, TransposeCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, ZipStore

import zarr_bytes
from zarr_bytes import BytesCodec, ChunkSizeError, counting, explain
from zarr_bytes.limits import Limits

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type", "ignore:.*answer byte ranges", "ignore:Combining a"
)

VALUES = numbers((60, 50, 50))
ZARRS = PIPELINES["BatchedCodecPipeline"]
OTHER = {"codec_pipeline.path": ZARRS}
counts_of = attrgetter("chunks", "opens", "requests", "ranges", "bytes_fetched", "bytes_written")


def is_as_explained(array, selection, *, write=False):
    """A read, or write, moves what was said before; what it moves is given."""
    explained = explain(array, selection, write=write)
    with counting() as counted:
        if write:
            array[selection] = 9
        else:
            array[selection]
    assert counts_of(explained) == counts_of(counted)
    return counted


@dataclass
class Explained:
    """An array, or its oindex, vindex or blocks, of which a read is explained."""

    indexed: object

    def __getattr__(self, name):
        return Explained(getattr(self.indexed, name))

    def __getitem__(self, selection):
        return explain(self.indexed, selection)


def test_a_row_is_explained_as_one_range_of_its_bytes(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((100, 100)))
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        explained = explain(array, 7)
    assert (explained.is_partial, explained.ranges, explained.bytes_fetched) == (True, 1, 100 * 8)


@fuzz(examples=80)
@given(data=st.data())
def test_a_read_is_what_was_explained(tmp_path_factory, data):
    """Of chunks of both formats, or of whole shards with all inner chunks in Morton order."""
    folder, example = tmp_path_factory.mktemp("store"), data.draw(arrays(least_size=1))
    layout = data.draw(st.sampled_from(["chunks", "shards", "format 2"]))
    if layout == "format 2":
        example = data.draw(of_format_2(example))
    elif layout == "shards":
        sizes = zip(example.shape, example.chunk_shape, strict=True)
        whole = replace(example, shape=tuple(-(-n // c) * c for n, c in sizes))
        example = replace(data.draw(sharded(whole, can_be_sparse=False)), is_shuffled=False)
    kind = data.draw(st.sampled_from([*KINDS, "local", "requests"]))
    pipelines = [pipeline_with(data.draw(thresholds())), ZARRS]
    config = {"codec_pipeline.path": data.draw(st.sampled_from([pipelines[0], *pipelines]))}
    config |= settings_of(data.draw)
    selection = data.draw(selections(example.shape, example.chunk_shape))
    store = store_with(kind, example.objects(example.values()), folder)
    with zarr.config.set(config):
        array = zarr.open_array(store, mode="r")
        explained = selection.read(Explained(array))
        if explained.acts.startswith("zarr."):
            assert not explained.is_partial
            event("zarr reads it")
            return
        if kind == "requests":
            array.store.requests.clear()
        with watched(folder) as files, counting() as counted:
            found = selection.read(array)
    assert counts_of(explained) == counts_of(counted)
    assert explained.bytes_selected == np.size(found) * array.dtype.itemsize
    if kind == "local":
        assert explained.opens == len(files.keys)
        assert explained.bytes_fetched == sum(files.nbytes.values())
    elif kind == "requests":
        assert explained.requests == len(array.store.requests)
    assert explained.is_partial == (explained.bytes_fetched < explained.bytes_of_chunks)
    assert explained.is_partial or explained.reason


@pytest.mark.parametrize("selection", [np.s_[7], np.s_[:, 3], np.s_[7, 8], np.s_[3::50, ::100]])
def test_a_read_of_a_large_file_without_partial_reads_is_what_was_explained(tmp_path, selection):
    """A file is read from the first to the last selected byte of each block of 1 MiB."""
    stored(LocalStore(tmp_path), numbers((1000, 1000), "i4"))
    with zarr.config.set(WHOLE):
        array = zarr.open_array(tmp_path, mode="r")
        explained = explain(array, selection)
        with counting() as counted:
            array[selection]
    assert counts_of(explained) == counts_of(counted)


@pytest.mark.parametrize(
    ("order", "selection", "count"),
    [((0, 1, 2), np.s_[:7], 7 * 50 * 2), ((2, 0, 1), np.s_[:, :, :7], 7 * 60 // 10)],
)
@pytest.mark.parametrize("memory", ["C", "F"])
def test_larger_blocks_of_a_transposed_chunk_are_read_at_once(
    tmp_path, order, selection, count, memory
):
    """32 elements of a row of 50, or 10 such rows; these for another order in memory, too."""
    sizes = Limits(block_nbytes=2**8, transposed_block_nbytes=2**12, assigned_nbytes=1)
    path = pipeline_with(sizes)
    stored(LocalStore(tmp_path), VALUES, filters=[TransposeCodec(order=order)])
    config = {"zarr_bytes.gap.local": 0, "array.order": memory, "codec_pipeline.path": path}
    with zarr.config.set(config):
        array = zarr.open_array(tmp_path, mode="r")
        found = is_as_explained(array, selection).ranges
    assert found == (count if memory == "C" or order != (0, 1, 2) else 7 * 50 // 10)


def test_points_in_several_objects_share_the_requests_at_once():
    """Four for the ranges in three objects, the last of which is cut."""
    path = pipeline_with(Limits(min_piece_nbytes=8))
    with zarr.config.set({"codec_pipeline.path": path}):
        array = stored(CountingStore(MemoryStore()), numbers((3, 100)), (1, 100))
    with zarr.config.set({"zarr_bytes.gap.remote": 0, "async.concurrency": 2}):
        counted = is_as_explained(array.vindex, tuple(np.mgrid[:3, 10:90]))
    assert counted.requests == 4


@pytest.mark.parametrize("deflated", ["c/0/0/0", "c/1/0/0"])
def test_deflated_and_stored_zip_members_are_explained(tmp_path, deflated):
    objects = contents_of(stored(MemoryStore(), VALUES, (30, 50, 50)).store)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for key, content in objects.items():
            archive.writestr(key, content, zipfile.ZIP_DEFLATED if key == deflated else None)
    with ZipStore(tmp_path / "a.zip", mode="r") as store:
        array = zarr.open_array(store, mode="r")
        is_as_explained(array, COLUMN)
        assert "zipfile.ZIP_STORED" in explain(array, COLUMN).remedy


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_of_an_archive_that_was_unpickled_are_known_before_it_is_open(tmp_path, kind):
    """And explaining does not open it, which zarr does at the first use (3.4.1 and newer)."""
    with ZipStore(tmp_path / "a.zip", mode="w", compression=kind) as store:
        stored(store, VALUES, (30, 50, 50))
    with ZipStore(tmp_path / "a.zip", mode="r") as store:
        array = pickle.loads(pickle.dumps(zarr.open_array(store, mode="r")))  # noqa: S301
    is_open = array.store._is_open
    explained = explain(array, 7)
    assert array.store._is_open is is_open
    assert ("zipfile.ZIP_STORED" in explained.remedy) == (kind == zipfile.ZIP_DEFLATED)
    is_as_explained(array, 7)
    assert counts_of(explain(array, 7)) == counts_of(explained)
    array.store.close()


CHUNKS = {"serializer": BytesCodec(endian="little")}
SHARDS = {"serializer": ShardingCodec(chunk_shape=(2, 3))}
POINTS = numbers((10, 9), "u2") + 1  # no fill value among them


def made(folder, options, *, in_place=True):
    """An array of `POINTS`, in complete shards if it is written `in_place`."""
    array = created(folder, (10, 9), "u2", (6, 6), in_place=in_place, **options)
    for rows in (slice(0, None, 2), slice(1, None, 2)):
        array[rows] = POINTS[rows]
    return array


def hard_link(path):
    os.link(path, path.with_name(f"{path.name}.copy"))


def link_to_nothing(path):
    path.unlink()
    path.symlink_to("nowhere")


def few_inner_chunks(path):
    """The first one alone."""
    path.write_bytes(shard_of([bytes(range(1, 13)), *[None] * 5]))


def shared_bytes(path):
    """The second inner chunk has the bytes of the first one."""
    content = path.read_bytes()
    first, _, *others = entries_in(content, 6)
    path.write_bytes(content[:-100] + index_of([first, first, *others]))


read_only = partial(Path.chmod, mode=0o444)
STATES = [None, Path.unlink, hard_link, behind_a_link, link_to_nothing, read_only]
OF_SHARDS = [*STATES, few_inner_chunks, shared_bytes]
PREALLOCATE = (
    "none is needed: this first write completes the shard. To complete all shards in advance:"
)


@fuzz(examples=60)
@given(data=st.data())
def test_a_write_to_files_of_any_kind_is_what_was_explained(tmp_path_factory, data):
    """And explaining it leaves them as they are."""
    folder = tmp_path_factory.mktemp("store")
    options = data.draw(st.sampled_from([CHUNKS, SHARDS]))
    made(folder, options, in_place=data.draw(st.booleans()))
    paths = [folder / f"c/{i}/{j}" for i in range(2) for j in range(2)]
    for path in paths:
        change = data.draw(st.sampled_from(STATES if options is CHUNKS else OF_SHARDS))
        if change is not None:
            change(path)

    def stats():
        found = {path: path.lstat() for path in paths if os.path.lexists(path)}
        return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}

    before = stats()
    with zarr.config.set({"zarr_bytes.partial_writes": data.draw(st.booleans())}):
        array = zarr.open_array(folder, mode="r+")
    selection = data.draw(orthogonal((10, 9)))
    explained = explain(array.oindex, selection, write=True)
    assert stats() == before
    assert str(folder) not in map(os.path.realpath, Path("/proc/self/fd").glob("*"))  # closed
    with counting() as counted:
        array.oindex[selection] = 9
    if explained.chunks:  # zarr 3.1 writes nothing to some
        assert counts_of(explained) == counts_of(counted)
    new = sum(path not in before and path.exists() for path in paths)
    replaced = sum(path.lstat().st_ino != inode for path, (inode, _) in before.items())
    assert replaced <= explained.chunks - explained.chunks_in_place <= replaced + new
    assert explained.is_partial or explained.reason
    if explained.may_share:
        assert explained.is_partial == (not explained.reason)
    elif explained.is_partial and explained.reason and explained.chunks:
        # Of missing chunks, or links to nothing: another process would replace the new files.
        assert new or replaced
    assert explained.is_partial or replaced
    assert explained.may_share == (explained.chunks > 0 and pipeline_of(array).in_place)


@pytest.mark.parametrize(
    ("options", "change", "reason", "remedy"),
    [
        (CHUNKS, hard_link, "{}/c/0/0 has other names (hard links)", "none is needed: the first"),
        (CHUNKS, behind_a_link, "{}/c/0/0 is a symbolic link", "none is needed: the first write"),
        (SHARDS, read_only, "{}/c/0/0 is read-only", "change its mode (chmod u+w)"),
        (SHARDS, few_inner_chunks, "a shard lacks inner chunks that are selected", PREALLOCATE),
        (SHARDS, shared_bytes, "inner chunks of a shard share bytes", PREALLOCATE),
    ],
)
def test_explain_says_why_a_write_replaces_a_file(
    tmp_path, monkeypatch, options, change, reason, remedy
):
    """Without locks, it is not for several writers; nor is a read, or a write of nothing."""
    array = made(tmp_path, options)
    change(tmp_path / "c/0/0")
    explained = explain(array, 0, write=True)
    assert explained.reason.startswith(reason.format(tmp_path))
    assert explained.remedy.startswith(remedy)
    assert (explained.chunks, explained.chunks_in_place) == (2, 1)
    assert str(explained).startswith("Chunks are replaced: ")
    assert explained.may_share is True  # who writes into the old file is waited for
    assert not any(explain(array, row).may_share for row in (2, 7))
    monkeypatch.setattr("fcntl.flock", refused)
    assert explain(array, 7, write=True).may_share is True
    for selection in (0, np.s_[:6], np.s_[3:3]):
        assert explain(array, selection, write=True).may_share is False
    read_only(tmp_path / "c/0/1")
    again = explain(array, 0, write=True)
    assert (again.reason, again.remedy) == (explained.reason, explained.remedy)  # the first
    (tmp_path / "c/0/1").unlink()
    is_as_explained(array, 0, write=True)  # with the bytes of a new chunk


def test_explain_of_a_write_to_a_truncated_chunk_is_the_error_of_the_write(tmp_path):
    array = made(tmp_path, CHUNKS)
    os.truncate(tmp_path / "c/0/0", 71)
    for act in partial(explain, write=True), lambda array, entry: array.__setitem__(entry, 1):
        with pytest.raises(ChunkSizeError, match="c/0/0 are 72 bytes, found 71"):
            act(array, 2)


@pytest.mark.parametrize("options", [CHUNKS, SHARDS], ids=["chunks", "shards"])
def test_why_a_new_chunk_may_not_be_shared_is_said(tmp_path, options):
    """Nothing is replaced, but another process would replace what is written."""
    options = {"compressors": None, **options}
    array = zarr.create_array(tmp_path / "a", shape=(8, 12), dtype="f8", **options)
    explained = explain(array, 0, write=True)
    assert (explained.is_partial, explained.may_share) == (True, False)
    assert explained.reason == "zarr_bytes.partial_writes was False when the array was opened"
    assert explained.remedy.startswith("set it to True")


def test_a_whole_chunk_and_a_part_of_another_are_not_both_written_in_place(tmp_path):
    explained = explain(made(tmp_path, CHUNKS), np.s_[:6, :7], write=True)
    assert (explained.chunks, explained.chunks_in_place, explained.is_partial) == (2, 1, True)
    assert str(explained).startswith("Written without reading: ")


def test_explain_counts_inner_chunks_that_are_written_whole_or_deleted(tmp_path):
    array = made(tmp_path, SHARDS, in_place=False)
    for selection, nbytes in (np.s_[:4, :6], 124), (np.s_[:4, :5], 148), (np.s_[:6, :6], 0):
        assert is_as_explained(array, selection, write=True).bytes_fetched == nbytes
    with counting() as counted:
        array[...] = 0
    assert (counted.chunks, counted.opens, counted.bytes_written) == (4, 3, 0)  # at the edge


def refused(*_):
    """In place of a lock."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_explain_takes_shards_that_are_no_files_for_complete_ones():
    array = made(MemoryStore(), SHARDS, in_place=False)
    counted = is_as_explained(array, (0, 0), write=True)
    assert counted.bytes_fetched == counted.bytes_written == 100 + 12 * 6
    explained = explain(array, (9, 8), write=True)  # on the edge, where the others are absent
    assert (explained.bytes_written, explained.chunks_assumed) == (100 + 12 * 6, 1)


def test_explain_counts_the_inner_chunks_in_the_index_of_a_shard(tmp_path):
    array = made(tmp_path, SHARDS)
    expected = explain(array, np.s_[6:, 0])
    for key in ("c/0/0", "c/0/1"):
        few_inner_chunks(tmp_path / key)
        is_as_explained(array, np.s_[2:5, ::6])  # selected alike, with other inner chunks
    (tmp_path / "c/1/0").unlink()
    explained = explain(array, np.s_[:6])
    assert (explained.bytes_fetched, explained.chunks_assumed) == (2 * (100 + 12), 0)
    explained = explain(array, np.s_[6:, 0])
    assert explained.bytes_fetched == expected.bytes_fetched
    assert (expected.chunks_assumed, explained.chunks_assumed) == (0, 1)


def test_explain_opens_a_thousand_files_at_most(tmp_path, monkeypatch):
    array, opened = created(tmp_path, (1001, 6), "u2", (1, 6)), []
    with before_each(lambda _, path, *others: opened.append(str(path)), ["open"]):
        explained = explain(array, np.s_[:, 1], write=True)
    assert sum("/c/" in path for path in opened) == 1000
    found = explained.bytes_written, explained.chunks_assumed, explained.may_share
    assert found == (None, 1, True)
    assert explain(array, np.s_[:1000, 1], write=True).bytes_written == 1000 * 2
    monkeypatch.setattr("fcntl.flock", refused)
    assert explain(array, np.s_[:, 1], write=True).may_share is False


def test_explain_says_that_writers_cannot_share_a_folder_they_cannot_lock(tmp_path):
    def not_the_folder(_, path, *others):
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    array = made(tmp_path, CHUNKS)
    assert explain(array, np.s_[:6], write=True).may_share
    with before_each(not_the_folder, ["open"]):
        assert explain(array, np.s_[:6], write=True).may_share is False


def test_under_a_pipeline_of_zarr_a_write_replaces_chunks(tmp_path):
    """Those of which a part is written are read, and so assumed to exist."""
    made(tmp_path, CHUNKS)
    with zarr.config.set(OTHER | IN_PLACE):
        array = zarr.open_array(tmp_path)
        for selection, written, parts in (2, 2, 2), (np.s_[:6], 2, 0), (np.s_[3:], 4, 2):
            found = explain(array, selection, write=True)
            assert (found.bytes_written, found.bytes_fetched) == (written * 72, parts * 72)
            assert (found.chunks_assumed, found.is_partial) == (parts, not parts)
            assert not found.may_share
        with counting() as counted:
            array[2] = 9
    assert (counted.chunks, counted.by_zarr) == (0, 4)  # decoded and encoded


def in_folder(folder, **options):
    return stored(LocalStore(folder), VALUES, **options)


zarr.registry.register_buffer(DeviceBuffer)
WHOLE = {"zarr_bytes.partial_reads": False}
BUFFER = {"buffer": f"{DeviceBuffer.__module__}.{DeviceBuffer.__qualname__}"}
ZARRS_CODEC = {"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}
SHARDED = {"chunks": (10, 50, 50), "shards": (30, 50, 50)}
ROWS = {"chunks": (1, 50, 50)}
COLUMN = np.s_[:, 3, 4]
CODEC = "chunks go through the codec {}, so no part of a chunk can be read or written by itself"
NO_INDEX = (
    "chunks go through the codec sharding_indexed with nested shards, or with index_codecs .*"
)
LESS = r"a chunk has 20,000 bytes, no more than the gap of {} bytes \(zarr_bytes\.gap\.{}\)"
GAPS = r"gaps of up to 32,768 bytes \(zarr_bytes\.gap\.local\) are read, to save requests"
CHOSEN = r"zarr's .* has {} for {} \(set by zarr.config.set\), which reads and writes chunks, .*"
PIPELINE = CHOSEN.format(ZARRS, "codec_pipeline.path")
OF_CODEC = CHOSEN.format(*reversed(next(iter(ZARRS_CODEC.items()))))
UNCOMPRESSED = r"write the array again with compressors=None and filters=None .*"
NOT_NEEDED = "none is needed"
TWICE = ShardingCodec(chunk_shape=VALUES.shape, index_codecs=[BytesCodec(), *[Crc32cCodec()] * 2])
AS_MUCH = {"zarr_bytes.gap.local": 20_000}
transposed = partial(in_folder, filters=[TransposeCodec(order=(2, 0, 1))])
compressed = partial(transposed, compressors="auto")
texts = partial(created, shape=(9,), dtype="string", serializer="auto")
in_format_2 = partial(in_folder, zarr_format=2, serializer="auto")
by_rows = partial(in_folder, **ROWS)
by_shards = partial(in_folder, **SHARDED)


def one_by_one(folder):
    """An index of 160 bytes, and 40 of numbers."""
    return stored(LocalStore(folder), numbers(10, "f4"), (1,), shards=(10,))


def requested(_):
    return stored(CountingStore(MemoryStore()), VALUES, **ROWS)


def of_format_2_compressed(folder):
    return zarr.create_array(folder, data=VALUES, zarr_format=2)


def by_setting(name, *, value):
    """A remedy that ends with the ways to set a setting."""
    text = f'"{value}"' if isinstance(value, str) else value
    variable = f"ZARR_{name.upper().replace('.', '__')}={value}"
    ways = f'.config.set({{"{name}": {text}}}), or {variable} in the environment of a command'
    return f".*{re.escape(ways)}.*"


LOWER_GAP = by_setting("zarr_bytes.gap.local", value=0) + "side by side.*"
PIPELINE_AGAIN = "set it to .*, and open .*" + by_setting(
    "codec_pipeline.path", value="zarr_bytes.BatchedBytesPipeline"
)
CODEC_AGAIN = "set it to .*, and open .*" + by_setting(
    "codecs.bytes", value="zarr_bytes.codec.BytesCodec"
)

# An array, a selection, the reason why more than that is read, the remedy, and settings.
READS = {
    "unknown: a compressor": (
        compressed,
        7,
        CODEC.format("zstd"),
        UNCOMPRESSED,
        ZARRS_CODEC | OTHER,
    ),
    "unknown: compressed shards": (
        partial(compressed, **SHARDED),
        7,
        CODEC.format("zstd"),
        UNCOMPRESSED,
        {},
    ),
    "unknown: a compressor of format 2": (
        of_format_2_compressed,
        7,
        CODEC.format("zstd"),
        UNCOMPRESSED,
        {},
    ),
    "unknown: texts of format 2": (
        partial(texts, zarr_format=2),
        7,
        CODEC.format("vlen-utf8"),
        'write the array again with a data type that .*, such as strings .* .dtype="U8".',
        {},
    ),
    "unknown: texts": (
        texts,
        7,
        CODEC.format("vlen-utf8"),
        'write the array again with a data type that .*, such as strings .* .dtype="U8".',
        {},
    ),
    "unknown: two checksums": (
        partial(in_folder, serializer=TWICE),
        7,
        NO_INDEX,
        "write the array again with one level of shards and the default index_codecs",
        {},
    ),
    "unknown: zarr's shards": (by_shards, 7, PIPELINE, PIPELINE_AGAIN, OTHER),
    "as small as a gap": (
        by_rows,
        np.s_[7:17, 8, ::40],
        LESS.format("20,000", "local"),
        f"{NOT_NEEDED}: a whole .* {by_setting('zarr_bytes.gap.local', value=0)}",
        AS_MUCH,
    ),
    "small objects": (
        requested,
        np.s_[7:27, 8],
        LESS.format("65,536", "remote"),
        f"{NOT_NEEDED}: a whole .* {by_setting('zarr_bytes.gap.remote', value=0)}",
        {},
    ),
    "memory": (
        lambda _: stored(MemoryStore(), VALUES),
        7,
        "the chunks are in memory, .*",
        NOT_NEEDED,
        {},
    ),
    "shards in memory": (
        lambda _: stored(MemoryStore(), VALUES, **SHARDED),
        7,
        "the chunks are in memory, .*",
        NOT_NEEDED,
        {},
    ),
    "nothing": (in_folder, np.s_[8:7], "no element is selected", NOT_NEEDED, {}),
    "a row": (in_folder, 7, "", "", {}),
    "a row of format 2": (in_format_2, 7, "", "", {}),
    "halves of chunks": (by_rows, np.s_[7:11, :25], "", "", {"zarr_bytes.gap.local": 0}),
    "shards: rows of two": (by_shards, np.s_[29:31], "", "", {}),
    "shards: a large index": (
        one_by_one,
        7,
        "the index of a shard is at least .*",
        "write the array with larger inner chunks: each takes 16 bytes of the index",
        {},
    ),
    "everything": (
        in_folder,
        ...,
        "the selection reaches from the first element .*",
        NOT_NEEDED,
        {},
    ),
    "gaps": (in_folder, COLUMN, GAPS, LOWER_GAP, {}),
    "a setting": (
        in_folder,
        COLUMN,
        r"zarr_bytes.partial_reads is False \(set by z.*",
        by_setting("zarr_bytes.partial_reads", value=True),
        WHOLE,
    ),
    "zarr's codec": (in_folder, 7, OF_CODEC, CODEC_AGAIN, ZARRS_CODEC),
    "zarr's pipeline": (transposed, 7, PIPELINE, PIPELINE_AGAIN, OTHER),
    "zarr's codec, of format 2": (in_format_2, 7, OF_CODEC, CODEC_AGAIN, ZARRS_CODEC),
    "zarr's pipeline, of format 2": (in_format_2, 7, PIPELINE, PIPELINE_AGAIN, OTHER),
    "a device": (
        transposed,
        7,
        "buffers are stored_arrays.DeviceBuffer, into which zarr.*",
        r'read into main memory, .* zarr.config.set.*"buffer": "zarr.buffer.cpu.Buffer".*',
        BUFFER,
    ),
    "a device, into memory first": (in_folder, COLUMN, GAPS, LOWER_GAP, BUFFER),
}
if HAS_FUSED_PIPELINE:  # from zarr 3.3 on
    scaled = partial(in_folder, filters=[zarr.codecs.ScaleOffset(offset=1, scale=2)])
    READS["a row of elements that a codec decodes"] = scaled, 7, "", "", {}
    READS["zarr's pipeline, and a codec"] = scaled, 7, PIPELINE, PIPELINE_AGAIN, OTHER


@pytest.mark.parametrize("case", READS)
def test_explain_gives_the_first_reason_that_holds(tmp_path, case):
    """With what to do, who reads, the kind of the files, and whether the numbers are known."""
    make, selection, reason, remedy, config = READS[case]
    with zarr.config.set(config):
        array = make(tmp_path)
        explained = explain(array, selection)
        assert explained.chunks == explain(array, selection, write=True).chunks is not None
    assert re.fullmatch(reason, explained.reason)
    assert re.fullmatch(remedy, explained.remedy)
    assert not (explained.is_partial and explained.reason.startswith("a chunk has"))
    if config == ZARRS_CODEC:
        again = explain(array, 7)
        assert again.reason == "the array was opened before zarr-bytes was chosen"
        assert again.remedy == "open it again"
    is_unknown = case.startswith("unknown")
    counts = explained.opens, explained.requests, explained.rounds, explained.bytes_fetched
    assert all((count is None) == is_unknown for count in counts)
    assert ("not known" in str(explained)) == is_unknown
    assert explained.chunks_assumed == explained.chunks * (not case.startswith("shards: "))
    acts = ZARRS if is_unknown or case.startswith("zarr's") else PIPELINES["BatchedBytesPipeline"]
    assert explained.acts == "zarr_bytes.codec.BytesCodec in " * ("memory first" in case) + acts
    assert explained.kind == ("shard" if "shards" in case or "checksums" in case else "chunk")


def table_of(explained):
    """The value and the words of each row of the table, by its name."""
    lines = str(explained).splitlines()
    rows = [re.split("   +", row) for row in lines[lines.index("") + 3 :]]
    return {row[0]: (row[1], " ".join(row[2:])) for row in rows}


def verdict_of(explained):
    return str(explained).splitlines()[0]


def test_the_text_of_explain_has_verdict_selection_reason_remedy_and_what_matters(tmp_path):
    """Of a read of a row of each of seven planes, which are in two shards; no number is zero."""
    array = by_shards(tmp_path)
    explained = explain(array, np.s_[25:32, 3])
    share = "8 % of the bytes of the shards are read"
    gaps = "97 % of the bytes read are gaps between the selected elements or indexes of shards"
    first, selection, reason, remedy, empty, title, *_ = str(explained).splitlines()
    assert first == f"Partial: {share}, and {gaps}."
    assert selection == f"Selection: [25:32, 3] of {array.store_path}"
    assert reason == f"Reason: {explained.reason}."
    assert remedy == f"Remedy: {explained.remedy}."
    assert (empty, title, explained.is_write) == ("", "A read", False)
    assert table_of(explained) == {
        "acts": ("zarr_bytes.BatchedBytesPipeline", "the class that reads"),
        "kind": ("shard", ""),
        "chunks": ("2", ""),
        "opens": ("2", "files that are opened"),
        "ranges": ("4", "of bytes"),
        "bytes selected": ("2,800", ""),
        "bytes fetched": ("100,904", "with the indexes of shards"),
        "bytes of chunks": ("1,200,000", "as a whole, uncompressed"),
    }


def test_the_guide_shows_what_explain_prints(tmp_path):
    """With lines broken as in a terminal of 100 columns."""
    page = (Path(__file__).parents[1] / "docs/guide/partial-reads.md").read_text()
    shown = page.partition("```text\n")[2].partition("```")[0]
    options = {"chunks": (50, 200, 300), "compressors": None}
    cube = zarr.create_array(tmp_path / "cube.zarr", data=np.ones((50, 200, 300)), **options)
    printed = str(explain(cube, np.s_[7, :, 150])).replace(f"{tmp_path}", "/data")
    assert printed.split() == shown.split()


def test_the_text_of_explain_of_a_write_has_the_numbers_of_a_write(tmp_path):
    """Inner chunks that become empty would be left out."""
    explained = explain(by_shards(tmp_path), np.s_[25:32, 3], write=True)
    whole = "they are read and written whole, to change less than 1 % of their bytes"
    assert verdict_of(explained) == f"Chunks are replaced: {whole}."
    assert "\nA write\n" in str(explained)
    words = "whether processes may write different elements of a chunk at the same time"
    assert table_of(explained) == {
        "acts": ("zarr_bytes.BatchedBytesPipeline", "the class that writes"),
        "kind": ("shard", ""),
        "chunks": ("2", ""),
        "opens": ("at most 4", "files that are opened"),
        "ranges": ("8", "of bytes to read"),
        "bytes selected": ("2,800", ""),
        "bytes fetched": ("1,200,104", "with the indexes of shards"),
        "bytes written": ("at most 1,200,104", ""),
        "bytes of chunks": ("1,200,000", "as a whole, uncompressed"),
        "may share": ("no", words),
    }


def test_the_text_of_explain_says_what_rounds_and_assumed_chunks_are(tmp_path):
    table = table_of(explain(requested(None), np.s_[7:27, 8]))
    assert table["requests"] == ("20", "to the store")
    words = "of concurrent requests; the settings limit how many run at a time"
    assert table["rounds"] == ("1", words)
    assert table["chunks assumed"] == ("20", "not looked at, and assumed to exist")
    assert "opens" not in table
    words = "not looked at, and assumed to exist and to have all inner chunks"
    shards = stored(CountingStore(MemoryStore()), VALUES, **SHARDED)
    assert table_of(explain(shards, 7))["chunks assumed"] == ("1", words)
    nothing = explain(in_folder(tmp_path), np.s_[8:7], write=True)
    assert table_of(nothing).keys() == {"acts", "kind"}


@pytest.mark.parametrize(
    ("make", "selection", "config", "verdict"),
    [
        (in_folder, 7, {}, "Partial: 2 % of the bytes of the chunk are read."),
        (
            in_folder,
            np.s_[7, 3, 4],
            {},
            "Partial: less than 1 % of the bytes of the chunk are read.",
        ),
        (
            in_folder,
            COLUMN,
            {},
            "Hardly partial: 97 % of the bytes of the chunk are read,"
            " and more than 99 % of the bytes read are gaps between the selected elements.",
        ),
        (in_folder, ..., {}, "Not partial: 100 % of the bytes of the chunk are read."),
        (in_folder, np.s_[3:3], {}, "Not partial: nothing is read."),
        (
            requested,
            np.s_[7:27, 8],
            {},
            "Not partial: 100 % of the bytes of the chunks are read, and 2 % are selected.",
        ),
        (
            compressed,
            np.s_[7, 8],
            {},
            "Not partial: 100 % of the bytes of the chunk are read,"
            " and less than 1 % are selected.",
        ),
        (
            by_shards,
            7,
            OTHER,
            "Not partial: whole inner chunks are read,"
            " and 3 % of the bytes of the shard are selected.",
        ),
    ],
)
def test_the_verdict_on_a_read_has_the_share(tmp_path, make, selection, config, verdict):
    with zarr.config.set(config):
        assert verdict_of(explain(make(tmp_path), selection)) == verdict


def test_a_small_shard_of_a_store_is_read_with_its_index_and_is_all_of_it():
    """More bytes than the inner chunks have, which are still 100 %."""
    values = VALUES[:2]
    array = stored(CountingStore(MemoryStore()), values, chunks=(1, 50, 50), shards=(2, 50, 50))
    explained = explain(array, 1)
    assert explained.bytes_fetched == values.nbytes + 2 * 16 + 4
    assert verdict_of(explained) == (
        "Not partial: 100 % of the bytes of the shard are read,"
        " and 50 % of the bytes of the shard are selected."
    )
    assert explained.reason.startswith(f"a shard has {values.nbytes:,} bytes, no more than the gap")
    with counting() as counted:
        assert np.array_equal(array[1], values[1])
    assert (counted.requests, counted.bytes_fetched) == (1, explained.bytes_fetched)


class OtherPipeline(BatchedCodecPipeline):
    """As of another package."""


def test_what_a_pipeline_of_another_package_reads_is_not_known(tmp_path):
    name = f"{__name__}.OtherPipeline"
    zarr.registry.register_pipeline(OtherPipeline)
    with zarr.config.set({"codec_pipeline.path": name}):
        explained = explain(by_shards(tmp_path), 7)
    assert verdict_of(explained) == f"Not known: {name} reads and writes by itself."
    is_other = ", which is from another package: its reads and writes are not known here"
    assert explained.reason.endswith(is_other)
    assert re.fullmatch(PIPELINE_AGAIN, explained.remedy)


@pytest.mark.parametrize(
    ("selection", "config", "verdict"),
    [
        (0, IN_PLACE, "Written in place: 13 % of the bytes of the chunks are written."),
        (
            0,
            {},
            "Chunks are replaced: they are read and written whole, to change 13 % of their bytes.",
        ),
        (
            np.s_[:6, :7],
            IN_PLACE,
            "Written without reading: at most 58 % of the bytes of the chunks are written; changed"
            " in place: 1 of 2.",
        ),
        (np.s_[3:3], IN_PLACE, "Nothing is written: no element is selected."),
    ],
)
def test_the_verdict_on_a_write_has_the_share(tmp_path, selection, config, verdict):
    made(tmp_path, CHUNKS)
    with zarr.config.set(config):
        assert verdict_of(explain(zarr.open_array(tmp_path), selection, write=True)) == verdict


def test_a_write_that_is_not_partial_says_to_write_whole_chunks_first(tmp_path):
    first = "write whole chunks at a time, which needs no read, or "
    for name, make, selection in (
        ("codec", partial(compressed, **SHARDED), 7),
        ("texts", texts, 7),
        ("format", of_format_2_compressed, 7),
        ("store", requested, np.s_[7, 3]),
    ):
        explained = explain(make(tmp_path / name), selection, write=True)
        assert explained.remedy.startswith(first)


def test_explain_says_that_partial_writes_are_off(tmp_path):
    array = in_folder(tmp_path)
    explained = explain(array, 7, write=True)
    name = "zarr_bytes.partial_writes"
    assert explained.reason == f"{name} was False when the array was opened"
    ways = by_setting(name, value=True)
    assert re.match(f"set it to True, and open the array again: {ways}", explained.remedy)
    for filled in array, stored(MemoryStore(), VALUES):
        whole = explain(filled, ..., write=True)
        assert (whole.is_partial, whole.reason) == (True, "")  # as it should be
        assert str(whole).startswith("Written without reading: ")
    with zarr.config.set(IN_PLACE):
        explained = explain(requested(None), np.s_[:23, 3], write=True)
        assert explained.rounds == 2  # of 23 requests, which get the chunks and then set them
        with zarr.config.set({"zarr_bytes.small_requests": 10}):
            assert explain(requested(None), np.s_[:23, 3], write=True).rounds == 6
        array = requested(None)
        array[:] = 0  # so that no object is there
        with counting() as counted:
            array[:23, 3] = 5
        assert counted.requests == explained.requests == 46
        assert "its store is a CountingStore" in explained.reason


@pytest.mark.parametrize("selection", [np.s_[7, 3], ...])
def test_explain_says_that_an_array_that_was_opened_to_be_read_only_is_not_written(
    tmp_path, selection
):
    """Whole chunks neither; and the array of any store."""
    said = "the array was opened read-only, so a write is an error"
    for array in (
        in_format_2(tmp_path / "old"),
        compressed(tmp_path / "compressed"),
        stored(MemoryStore(), VALUES),
    ):
        read_only = zarr.open_array(array.store, mode="r")
        with pytest.raises(ValueError, match="read-only"):
            read_only[selection] = 5
        explained = explain(read_only, selection, write=True)
        assert verdict_of(explained) == f"Nothing is written: {said}."
        assert explained.reason == said
        assert explained.remedy == 'open it with mode="r+", from a store that is not read-only'
        assert (explained.is_partial, explained.may_share) == (False, False)
        assert explained.bytes_selected > 0
        assert counts_of(explained) == (0,) * 6
        assert explain(read_only, np.s_[8:7], write=True).reason == "no element is selected"


def test_the_explain_command_explains_a_write_to_a_store_of_fsspec(tmp_path):
    """Which it opens to be written, as it does a folder; a zip file is one to read."""
    fs = pytest.importorskip("fsspec").filesystem("memory")
    in_folder(tmp_path / "a")
    fs.put(str(tmp_path / "a"), "/explain.zarr", recursive=True)
    shown = call("explain", "memory://explain.zarr", "[7]", "--write").stdout
    assert "Chunks are replaced: " in shown
    assert "only chunks in files (LocalStore) are changed in place" in " ".join(shown.split())
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        stored(store, VALUES)
    shown = call("explain", tmp_path / "a.zip", "[7]", "--write").stdout
    assert shown.startswith("Nothing is written: the array was opened read-only")


@pytest.mark.parametrize("function", [explain, zarr_bytes.preallocate])
def test_explain_refuses_all_but_arrays(function):
    for other in np.zeros(3), zarr.create_group(MemoryStore()), SimpleNamespace(array=3):
        name = type(other).__name__
        with pytest.raises(TypeError, match=f"array is of type {name}; permitted is a zarr.Array"):
            function(other)


@pytest.mark.parametrize("function", [explain, zarr_bytes.preallocate])
def test_for_a_group_its_arrays_are_listed_as_they_are_written_in_code(function):
    documents = {
        "": GROUP,
        "other": ARRAY,
        "model": GROUP,
        "model/t2m": document_of("float32", [30, 4]),
        "model/odd": ARRAY | {"data_type": "float2048"},
        "model/not-json": "{",
        "model/deep": GROUP,
        "model/deep/x y": document_of("int16", []),
    }
    with pytest.raises(TypeError) as caught:
        function(zarr.open_group(memory(documents), path="model", mode="r"))
    assert str(caught.value).endswith('a zarr.Array, such as group["NAME"]')
    assert caught.value.__notes__ == [
        "  group['odd']: shape [4], float2048",
        "  group['t2m']: shape [30, 4], float32",
        "  group['deep/x y']: shape [], int16",
    ]


@pytest.mark.parametrize("is_consolidated", [False, True])
def test_for_a_group_of_format_2_its_arrays_are_listed(is_consolidated):
    """Not those of format 3, which zarr does not find in it."""
    objects = {
        ".zgroup": GROUP_2,
        "a/.zarray": ARRAY_2,
        "deep/.zgroup": GROUP_2,
        "deep/b/.zarray": ARRAY_2 | {"dtype": [["x", "<i2"]]},
        "not-json/.zarray": "{",
    }
    if is_consolidated:
        objects = {".zgroup": GROUP_2, ".zmetadata": {"metadata": objects}}
        del objects[".zmetadata"]["metadata"]["not-json/.zarray"]
    store = memory({} if is_consolidated else {"new": ARRAY}, **objects)
    with pytest.raises(TypeError) as caught:
        explain(zarr.open_group(store, mode="r", zarr_format=2, use_consolidated=False))
    assert caught.value.__notes__ == [
        "  group['a']: shape [4], <i2",
        '  group[\'deep/b\']: shape [4], [["x", "<i2"]]',
    ]


@pytest.mark.slow  # to import xarray
@pytest.mark.parametrize("function", [explain, zarr_bytes.preallocate, zarr_bytes.view])
def test_for_an_object_of_xarray_the_way_to_its_array_is_given(function):
    xarray = pytest.importorskip("xarray", reason="the extra stores")
    dataset = xarray.Dataset({"t2m": ("x", np.zeros(3))})
    for found, path in (
        (dataset["t2m"], "'t2m'"),
        (dataset["t2m"].variable, '"NAME"'),
        (dataset, '"NAME"'),
    ):
        way = f"zarr.open_array(store, path={path}), with the store that xarray has opened"
        said = f"array is of type {type(found).__name__}; permitted is a zarr.Array, such as {way}"
        with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
            function(found)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("size", "chunk_size", "stop", "part"),
    [
        (2**61, 2**61, 1_000_001 * 2**19, slice(10**6 * 2**19)),  # elements of as many MiB
        pytest.param(10**30, 1, 10**30, 7, marks=pytest.mark.slow),
    ],
)
def test_explain_refuses_too_many_chunks_and_explains_a_part(size, chunk_size, stop, part, write):
    array = zarr.open_array(memory({"": document_of("int16", [size], [chunk_size])}))
    said = f"[:{stop}] has more than a million chunks of {array.store_path}, or more than a million"
    with pytest.raises(ValueError, match=re.escape(said)):
        explain(array, slice(stop), write=write)
    assert explain(array, part, write=write).chunks == 1


def test_explain_of_a_selection_out_of_bounds_is_zarrs_error():
    array = zarr.create_array({}, data=VALUES, compressors=None)
    for selection in 60, (0,) * 4, (..., ...), ([60],), 1.5:
        with pytest.raises(IndexError) as found:
            array[selection]
        with pytest.raises(IndexError, match=re.escape(str(found.value))):
            explain(array, selection)
    with pytest.raises(IndexError, match=r"^the selection has '\[7\]', and fields of records"):
        explain(array, "[7]")


@pytest.mark.usefixtures("pipeline")
def test_nested_uses_of_counting_count_for_themselves_and_stores_apart(tmp_path):
    """A missing chunk is a chunk without bytes."""
    first = in_folder(tmp_path / "first", chunks=(10, 50, 50))
    second = stored(CountingStore(MemoryStore()), np.repeat(VALUES, 2, 0))
    (tmp_path / "first/c/1/0/0").unlink()
    with counting() as outer:
        second[7]
        with counting() as inner:
            first[8:12]
            second[8]
    assert (outer.bytes_fetched, inner.bytes_fetched) == (80_000, 60_000)
    first_line, _, names, _, *rows = str(inner).splitlines()
    assert first_line == "3 chunks, 60,000 bytes fetched, 0 bytes written"
    assert names.split() == "Store Chunks Opens Requests Ranges Bytes fetched Bytes written".split()
    names = [str(tmp_path / "first"), f"CountingStore({second.store._store})"]
    assert [row.split() for row in rows] == [
        [names[0], *"2 1 0 1 40,000 0".split()],
        [names[1], *"1 0 1 1 20,000 0".split()],
    ]
    assert [*inner] == names


def test_counting_ends_with_its_block_whatever_ends_it(tmp_path):
    """What zarr reads is said beside what is counted, and where nothing is."""
    array = stored(LocalStore(tmp_path / "a"), np.ones(1, "u1"))
    by_zarr = compressed(tmp_path / "b", **ROWS)
    with pytest.raises(IndexError), counting() as counted:
        (nothing := str(counted)), array[0], by_zarr[:2], array[1]
    array[0]
    first_line, *_, last_line = str(counted).splitlines()
    assert first_line == "1 chunk, 1 byte fetched, 0 bytes written"
    not_counted = "Not counted: chunks that zarr reads, such as compressed ones, and views."
    assert (last_line, counted.by_zarr) == (not_counted, 2)
    assert nothing == f"0 chunks, 0 bytes fetched, 0 bytes written\n{not_counted}"


class TestTheCommand:
    @pytest.mark.parametrize(
        ("arguments", "name", "selection", "verdict"),
        [
            (["[7, :, 3:9]"], "", np.s_[7, :, 3:9], "Partial"),
            (["oindex[[1, 5], [2, 3], 4]"], "oindex", ([1, 5], [2, 3], 4), "Partial"),
            ([], "", ..., "Not partial"),
            (["[7]", "--write"], "", 7, "Chunks are replaced"),
        ],
    )
    def test_the_explain_command_says_what_the_function_says(
        self, tmp_path, arguments, name, selection, verdict
    ):
        """With status 0 for what is partial."""
        array, is_write = in_folder(tmp_path), "--write" in arguments
        expected = explain(getattr(array, name) if name else array, selection, write=is_write)
        result = call("explain", tmp_path, *arguments, "--json")
        assert json.loads(result.stdout) == json.loads(json.dumps(asdict(expected)))
        assert result.exit_code == (verdict != "Partial")
        printed = call("explain", tmp_path, *arguments).stdout
        assert printed.startswith(f"{verdict}: ")
        assert f"\nSelection: {(arguments or ['[...]'])[0]} of file:" in printed

    @pytest.mark.parametrize(
        "arguments",
        [
            "STORE --array t2m [7]",
            "STORE [7] --array t2m",
            "--array t2m STORE [7]",
            "--array=t2m STORE [7]",
            "STORE --json --array t2m [7] --json",
            "--array a STORE --json [7] --array t2m",
            "--array t2m -- STORE [7]",
            "STORE --array t2m -- [7]",
            "STORE [7] --array t2m --",
        ],
    )
    def test_options_stand_before_between_and_after_the_store_and_the_selection(
        self, tmp_path, arguments
    ):
        for name, dtype in ("t2m", "f4"), ("a", "i2"):
            zarr.create_array(tmp_path, name=name, shape=(30, 4), dtype=dtype, compressors=None)
        words = [str(tmp_path) if word == "STORE" else word for word in arguments.split()]
        result = call("explain", *words)
        as_json = ["--json"] * ("--json" in words)
        assert result.stderr == ""
        assert result.stdout == call("explain", tmp_path / "t2m", "[7]", *as_json).stdout
        assert "[7]" in result.stdout

    def test_options_of_the_other_commands_stand_anywhere_too(self, tmp_path):
        zarr.create_array(tmp_path, shape=3, dtype="i2", compressors=None)
        for command, options in ("check", ["--strict", "--all"]), ("preallocate", ["--any-size"]):
            orders = [[*options, tmp_path], [tmp_path, *options], [options[0], "--", tmp_path]]
            found = [vars(call(command, "--json", *order)) for order in orders]
            assert found[0]["exit_code"] == 0
            assert command == "preallocate" or found[1:] == found[:-1]
        assert call("explain", "--array", "a").stderr.endswith("arguments are required: STORE\n")
        assert call("explain", tmp_path, "[7]", "[8]").stderr.endswith("arguments: [8]\n")

    def test_the_explain_command_exits_with_2_for_a_wrong_selection(self, tmp_path):
        in_folder(tmp_path)
        wrong = ["", "7", "[", "]", "[a]", "[1.5]", "[f()]", "[1]; x", "[1][2]", "[7:9"]
        wrong += ["[:, 1, 'a']", "[{[]: 1}]"]
        for selection in *wrong, "[99]", f"[{'-' * 100_000}1]", "[" * 1000, "index[7]":
            result = call("explain", tmp_path, selection)
            assert (result.exit_code, result.stdout) == (2, "")
            assert "selection" in result.stderr.removeprefix(str(tmp_path))

    @pytest.mark.parametrize(
        ("path", "said"),
        [
            ("b", "no array is at /b, no zarr.json, .zarray or .zgroup: name another with --array"),
            ("c", "zarr opens no array at /c (KeyError: 'codecs'): see its zarr.json; `zarr-bytes"),
            ("old", "zarr opens no array at /old (TypeError: "),
            ("d", "d/zarr.json is damaged: JSONDecodeError: "),
            ("e", 'e/zarr.json is damaged: ValueError: "node_type" is null; permitted are '),
            ("f", "f/.zarray is damaged: ValueError: 5 is not a JSON object"),
        ],
    )
    def test_the_explain_command_says_why_zarr_opens_no_array_at_a_path(self, tmp_path, path, said):
        """And lists others only where it is the path that is wrong."""
        zarr.create_group(tmp_path).create_array("a", shape=9, dtype="f8")
        write(tmp_path / "c", {key: value for key, value in ARRAY.items() if key != "codecs"})
        write(tmp_path / "d", "{")
        write(tmp_path / "e", {})
        for name, text in ("f", b"5"), ("old", b'{"zarr_format": 2, "dtype": "<i2"}'):
            (tmp_path / name).mkdir()
            (tmp_path / name / ".zarray").write_bytes(text)
        result = call("explain", tmp_path, "[7]", "--array", path)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"{tmp_path}: {said}")
        arrays = ["  --array a: shape [9], float64", "  --array c: shape [4], int16"]
        assert result.stderr.splitlines()[1:] == (arrays if path == "b" else [])

    @pytest.mark.parametrize("is_consolidated", [False, True])
    def test_for_a_group_its_arrays_are_listed_as_they_are_named(self, tmp_path, is_consolidated):
        group = zarr.create_group(tmp_path)
        group.create_array("t2m", shape=(30, 4), dtype="f4")
        group.create_array("model/deep/x y\n", shape=(), dtype="i2")
        group.create_group("empty")
        if is_consolidated:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zarr's, that it is not in the specification
                zarr.consolidate_metadata(tmp_path)
        t2m, deep = (
            "--array t2m: shape [30, 4], float32",
            "--array 'model/deep/x y\\n': shape [], int16",
        )
        for path, lines in ("", [t2m, deep]), ("/model/", [deep]), ("model/deep", [deep]):
            result = call("explain", tmp_path, "--array", path)
            first, *others = result.stderr.splitlines()
            said = f"/{path.strip('/')} is a group: name an array in it with --array PATH"
            assert (result.exit_code, first) == (2, f"{tmp_path}: {said}")
            assert sorted(others) == sorted(f"  {line}" for line in lines)
        result = call("explain", tmp_path, "--array", "empty")
        said = "/empty is a group without arrays"
        assert result.stderr == f"{tmp_path}: {said}\n"

    def test_of_many_arrays_of_a_group_twenty_are_listed_and_chunks_are_not(self, tmp_path):
        group = zarr.create_group(tmp_path)
        for number in range(25):
            group.create_array(f"a{number:02}", shape=(3,), dtype="u1")[:] = 7
        lines = call("explain", tmp_path).stderr.splitlines()
        listed = [f"  --array a{number:02}: shape [3], uint8" for number in range(20)]
        assert lines[1:] == [*listed, "  and others: 20 are listed"]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs of Unix")
    def test_links_in_a_circle_and_a_fifo_in_a_group_do_not_keep_it_from_ending(self, tmp_path):
        group = zarr.create_group(tmp_path)
        group.create_array("a", shape=3, dtype="u1")
        group.create_group("b")
        for name in "c", "d":
            (tmp_path / "b" / name).symlink_to(tmp_path / "b")
        (tmp_path / "fifo").mkdir()
        os.mkfifo(tmp_path / "fifo" / "zarr.json")
        _, *arrays = call("explain", tmp_path).stderr.splitlines()
        assert arrays == ["  --array a: shape [3], uint8"]


# For each selection, the exit status, the output, seconds of computing, the most bytes of Python's
# and NumPy's memory, and KiB by which the process grew; and all paths that were opened or listed.
MEASURED = """
import json, resource, sys, tracemalloc
from contextlib import redirect_stdout
from io import StringIO
from time import process_time
from zarr_bytes.__main__ import main

folder, *commands = sys.argv[1:]
opened, found = [], []

def note(event, details):
    if event in ("open", "os.listdir", "os.scandir", "socket.connect"):
        opened.append(str(details[0] if event == "open" else details))

def explained(words):
    with redirect_stdout(StringIO()) as output:
        return main(["explain", folder, *words]), output.getvalue()

def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

explained(["[7, 7]"])  # imports
sys.addaudithook(note)
for command in commands:
    before, start = resident(), process_time()
    status, output = explained(command.split("|"))
    seconds, grown = process_time() - start, resident() - before
    tracemalloc.start()
    explained(command.split("|"))
    found.append([status, output, seconds, tracemalloc.get_traced_memory()[1], grown])
    tracemalloc.stop()
print(json.dumps([found, opened]))
"""


@pytest.mark.slow  # for a process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="KiB of getrusage")
def test_the_explain_command_takes_a_terabyte_of_chunks_that_are_not_there(tmp_path):
    """In seconds, in some MiB, and without a look at anything but the metadata."""
    layout = {"shape": (10**6, 10**6), "chunks": (10**4, 10**4), "dtype": "u1"}  # 10,000 chunks
    zarr.create_array(tmp_path, compressors=None, fill_value=0, **layout)
    commands = ["[...]", "[...]|--write", "[:, ::2]"]
    command = [sys.executable, "-c", MEASURED, str(tmp_path), *commands]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found, opened = json.loads(run.stdout.splitlines()[-1])
    assert [status for status, *_ in found] == [1, 0, 0]  # everything, whole chunks, and a part
    for _, output, seconds, traced, grown in found:
        assert "bytes of chunks   1,000,000,000,000" in output
        assert seconds < 10
        assert traced < 2**24
        assert grown < 2**16
    below = {path for path in opened if str(tmp_path) in path}
    assert str(tmp_path / "zarr.json") in below
    assert [path for path in below if str(tmp_path / "c") in path] == []


def test_a_terabyte_at_a_server_is_explained_without_a_request():
    shape = {"shape": (10**6, 10**6), "chunks": (10**5, 10**4), "dtype": "u1"}  # 1,000 chunks
    array = zarr.create_array(CountingStore(MemoryStore()), compressors=None, **shape)
    for is_write in False, True:
        explained, most = most_memory(partial(explain, array, write=is_write))
        assert (explained.bytes_selected, explained.chunks) == (10**12, 1000)
        assert most < 2**23
    assert array.store.requests == []


@pytest.mark.slow  # 20 seconds, half of them in zarr's indexer
def test_a_million_chunks_are_explained_in_half_a_minute():
    array = zarr.create_array(
        CountingStore(MemoryStore()),
        shape=(10**6, 10**6),
        chunks=(10**3, 10**3),
        dtype="u1",
        compressors=None,
    )
    start = process_time()
    explained = explain(array)
    assert process_time() - start < 30
    assert (explained.chunks, explained.bytes_fetched) == (10**6, 10**12)
    assert array.store.requests == []


@pytest.mark.parametrize("concurrency", [3, 10, 100])
@pytest.mark.parametrize("selection", [np.s_[:, :40], np.s_[3:90, 7:33:5], np.s_[:, 5]])
def test_chunks_that_are_alike_are_counted_as_often_as_they_are_read(selection, concurrency):
    """With less in the first, the last and those at the edge; ranges are cut in the last round."""
    array = stored(CountingStore(MemoryStore()), numbers((97, 45)), (4, 10))
    settings = {"zarr_bytes.gap.remote": 0, "async.concurrency": concurrency}
    with zarr.config.set(settings | {"zarr_bytes.largest_request.remote": 100}):
        is_as_explained(array, selection)
        is_as_explained(array, selection, write=True)


def test_the_explain_command_takes_every_form_of_selection(tmp_path):
    array = stored(LocalStore(tmp_path), VALUES)
    texts = ["[:, 7, 3]", "[..., ::2]", "[-1]", "[1:-2:3, [1, 2]]"]
    texts += ["oindex[[1, 2], :, 3]", "vindex[[1, 2], [3, 4], [5, 6]]", "blocks[0, :, 0]"]
    for text in texts:
        assert json.loads(call("explain", tmp_path, text, "--json").stdout)["selection"] == text
    by_mask = explain(array.oindex, VALUES[:, 0, 0] < 2500)
    assert table_of(by_mask)["bytes selected"] == ("20,000", "")
    long = explain(array, (np.arange(30), slice(None))).selection
    assert long == f"[{str([*range(30)])[:36]} ..., :]"


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="from zarr 3.3 on")
def test_chunks_of_several_shapes_are_read_and_written_in_place_as_explained(tmp_path):
    """Each counts with the bytes that it has."""
    values = numbers((12, 9))
    with zarr.config.set({"array.rectilinear_chunks": True, "zarr_bytes.gap.local": 0, **IN_PLACE}):
        array = stored(LocalStore(tmp_path), values, [[2, 4, 6], [9]], in_place=True)
        for rows, chunk_rows in (1, 2), (slice(2), 2), (slice(1, 5), 6), (slice(2, 12), 10):
            explained = explain(array, rows)
            assert explained.bytes_of_chunks == values[:chunk_rows].nbytes
            assert explained.is_partial == (values[rows].size < values[:chunk_rows].size)
            is_as_explained(array, rows)
            is_as_explained(array, rows, write=True)
        explained = explain(array, 5, write=True)
        assert (explained.is_partial, explained.chunks_in_place) == (True, 1)


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="from zarr 3.3 on")
@fuzz(examples=60)
@given(data=st.data())
def test_a_read_and_a_write_of_objects_of_several_shapes_are_what_was_explained(
    tmp_path_factory, data
):
    """Of chunks, or of shards, whose sizes are multiples of those of their inner chunks."""
    draw = data.draw
    inner = draw(st.tuples(*[st.integers(1, 3)] * 2))
    counts = [draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)) for _ in inner]
    edges = [[n * size for n in numbers] for numbers, size in zip(counts, inner, strict=True)]
    layouts = {"chunk": {"chunks": edges}, "shard": {"chunks": inner, "shards": edges}}
    kind = draw(st.sampled_from([*layouts]))
    store = LocalStore(tmp_path_factory.mktemp("store"))
    if draw(st.booleans()):
        store = CountingStore(MemoryStore())
    values = numbers([sum(sizes) for sizes in edges], "u2") + 1
    config = {"array.rectilinear_chunks": True, **settings_of(draw)}
    # Under the pipeline of zarr the codec reads chunks, and zarr its shards.
    is_own = draw(st.booleans()) or kind == "shard"
    with zarr.config.set(config if is_own else config | OTHER):
        array = stored(store, values, in_place=config["zarr_bytes.partial_writes"], **layouts[kind])
        selection = draw(orthogonal(values.shape))
        explained = explain(array.oindex, selection)
        is_as_explained(array.oindex, selection)
        places = [
            np.arange(sum(n))[entry].ravel() for n, entry in zip(edges, selection, strict=True)
        ]
        selected = np.zeros(values.shape, bool)
        selected[np.ix_(*places)] = True
        bounds = [np.cumsum([0, *sizes]) for sizes in edges]
        sizes = [
            block.size * 2
            for i, k in pairwise(bounds[0])
            for j, n in pairwise(bounds[1])
            if (block := selected[i:k, j:n]).any()
        ]
        assert (explained.kind, explained.chunks) == (kind, len(sizes))
        assert explained.bytes_of_chunks == sum(sizes)
        if is_own and sizes:
            is_as_explained(array.oindex, selection, write=True)


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="from zarr 3.3 on")
def test_a_write_to_shards_of_several_shapes_is_in_place(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True, **IN_PLACE}):
        layout = {"chunks": (2, 3), "shards": [[2, 6], [6]]}
        array = stored(LocalStore(tmp_path), numbers((8, 6), "i4"), in_place=True, **layout)
    explained = explain(array, 3, write=True)
    assert (explained.is_partial, explained.chunks_in_place, explained.reason) == (True, 1, "")
    assert (explained.bytes_written, explained.bytes_of_chunks) == (6 * 4, 6 * 6 * 4)


@pytest.mark.skipif("rectilinear_chunks" not in zarr.config.get("array"), reason="from zarr 3.3 on")
def test_chunks_of_several_shapes_that_zarr_reads_have_their_own_sizes():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        layout = {"chunks": [[2, 6], [6]], "compressors": "auto"}
        array = stored(MemoryStore(), numbers((8, 6), "i4"), **layout)
    assert [explain(array, row).bytes_of_chunks for row in (0, 7)] == [2 * 6 * 4, 6 * 6 * 4]


class TestValuesThatMayBeEmpty:
    """Chunks that become empty are not stored."""

    @pytest.mark.parametrize("options", [CHUNKS, SHARDS])
    def test_the_numbers_are_the_largest(self, tmp_path, options):
        """Of a missing chunk, nothing is written where the values are the fill value."""
        array = created(tmp_path, (10, 9), "u2", (6, 6), **options)
        explained = explain(array, np.s_[0:2, 0:2], write=True)
        assert explained.depends_on_values
        assert (explained.opens, explained.chunks_in_place) == (1, 1)
        for words in "opens at most 1", "chunks in place at most 1", "bytes written at most":
            assert words in re.sub(" +", " ", str(explained))
        with counting() as counted:
            array[0:2, 0:2] = 0
        assert (counted.opens, counted.bytes_written) == (0, 0)
        is_as_explained(array, np.s_[0:2, 0:2], write=True)
        explained = explain(array, np.s_[0:2, 0:2], write=True)
        assert not explained.depends_on_values  # since the file is there now
        assert "at most" not in str(explained)

    def test_they_are_exact_for_an_array_that_stores_empty_chunks(self, tmp_path):
        options = CHUNKS | {"config": {"write_empty_chunks": True}}
        array = created(tmp_path, (10, 9), "u2", (6, 6), **options)
        explained = explain(array, 0, write=True)
        assert not explained.depends_on_values
        with counting() as counted:
            array[0] = 0
        assert counts_of(explained) == counts_of(counted)
        assert counted.bytes_written == 9 * 2

    @fuzz(examples=60)
    @given(data=st.data())
    def test_a_write_of_any_values_takes_no_more(self, tmp_path_factory, data):
        """And just that where the values do not matter."""
        folder = tmp_path_factory.mktemp("store")
        options = data.draw(st.sampled_from([CHUNKS, SHARDS]))
        config = {"config": {"write_empty_chunks": data.draw(st.booleans())}}
        array = created(folder, (10, 9), "u2", (6, 6), in_place=False, **options, **config)
        array.oindex[data.draw(orthogonal((10, 9)))] = 7
        with zarr.config.set({"zarr_bytes.partial_writes": data.draw(st.booleans())}):
            array = zarr.open_array(folder, **config)
        selection = data.draw(orthogonal((10, 9)))
        new = data.draw(st.sampled_from([0, 9]))
        explained = explain(array.oindex, selection, write=True)
        with counting() as counted:
            array.oindex[selection] = new
        if not explained.chunks:  # zarr 3.1 writes nothing to some
            return
        is_exact = new or not explained.depends_on_values
        for said, found in zip(counts_of(explained), counts_of(counted), strict=True):
            assert found == said if is_exact else found <= said


@pytest.mark.parametrize(
    ("fill_value", "options", "nbytes"),
    [
        (0, {"chunks": (100, 100)}, 400),
        (7, {"chunks": (100, 100)}, 40_000 + 400),
        (0, {"chunks": (10, 10), "shards": (100, 100)}, 400 + 16 * 100 + 4),
        (7, {"chunks": (10, 10), "shards": (100, 100)}, 40_000 + 400 + 16 * 100 + 4),
    ],
)
def test_a_hole_in_a_new_file_is_not_written(tmp_path, monkeypatch, fill_value, options, nbytes):
    """A row, the index of a shard, and fill values other than zeros."""
    with zarr.config.set(IN_PLACE):
        array = zarr.create_array(
            tmp_path,
            shape=(100, 100),
            dtype="i4",
            fill_value=fill_value,
            compressors=None,
            **options,
        )
    written, pwrite = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *call: written.append(pwrite(*call)) or written[-1])
    assert explain(array, 3, write=True).bytes_written == nbytes
    assert is_as_explained(array, 3, write=True).bytes_written == nbytes == sum(written)


def read_by_another_name(self, selection):
    return sync(self.async_array._read_selection(self.store_path, selection))


def read_by_a_request(self, selection):
    return sync(self.async_array._get_selection((self.store_path, selection)))


def read_synchronously(self, selection):
    return self._get_selection((self.store_path, selection))


def read_by_an_engine(self, selection):
    return sync(self.async_array._engine(selection))


@pytest.mark.parametrize(
    "getitem", [read_by_another_name, read_by_a_request, read_synchronously, read_by_an_engine]
)
def test_a_zarr_that_reads_in_another_way_is_said_not_to_be_known_and_reads_nothing(
    monkeypatch, getitem
):
    """As array engines may do (zarr-python pull request 4064)."""
    values = np.arange(20, dtype="<i4")
    array = stored(CountingStore(MemoryStore()), values, serializer=BytesCodec(endian="little"))

    async def read(store_path, selection):
        content = await (store_path / "c/0").get()
        return np.frombuffer(content.to_bytes(), "<i4")[selection]

    async def read_selection(self, store_path, selection):
        return await read(store_path, selection)

    monkeypatch.setattr(zarr.AsyncArray, "_read_selection", read_selection, raising=False)
    monkeypatch.setattr(zarr.AsyncArray, "_get_selection", lambda self, request: read(*request))
    monkeypatch.setattr(
        zarr.Array, "_get_selection", lambda self, request: sync(read(*request)), raising=False
    )
    monkeypatch.setitem(
        vars(array.async_array), "_engine", lambda selection: read(array.store_path, selection)
    )
    monkeypatch.setattr(zarr.Array, "__getitem__", getitem)
    assert array[3:5].tolist() == [3, 4]
    array.store.requests.clear()
    with pytest.raises(NotImplementedError, match="divides selections in a way that is not known"):
        explain(array, slice(3, 5))
    assert array.store.requests == []


def test_a_selection_that_zarr_does_not_permit_is_zarrs_error():
    array = stored(MemoryStore(), np.arange(20, dtype="i4"))
    for selection in 20, slice(None, None, -1), (1, 2):
        with pytest.raises(IndexError):
            explain(array, selection)


def test_a_read_of_nearly_all_bytes_is_hardly_partial():
    """Such as a column: its gaps are read over."""
    array = stored(MemoryStore(), numbers((100, 100)), chunks=(100, 100))
    array = zarr.open_array(CountingStore(array.store))
    assert str(explain(array, np.s_[2:, 7])).startswith("Hardly partial: ")
    assert str(explain(array, np.s_[:2])).startswith("Partial: ")


def test_a_chunk_that_is_needed_except_for_its_first_or_last_bytes_needs_no_remedy():
    """More than a 64th of the chunk, or than the gap, is left out."""
    array = stored(MemoryStore(), numbers((128, 128)), chunks=(128, 128))
    array = zarr.open_array(CountingStore(array.store))
    text = str(explain(array, np.s_[2:]))
    assert text.startswith("Not partial: 100 % of the bytes of the chunk are read, and 98 % are")
    assert "Reason: nearly all of a chunk is selected, so the whole chunk is requested" in text
    assert str(explain(array, np.s_[3:])).startswith("Hardly partial: ")
    rows_of_two = stored(CountingStore(MemoryStore()), numbers((256, 128)), chunks=(128, 128))
    found = explain(rows_of_two, np.s_[2:200])
    assert found.reason.startswith("nearly all of a chunk is selected")
    assert found.bytes_fetched == 200 * 128 * 8
    with zarr.config.set({"zarr_bytes.gap.remote": 0}):
        assert str(explain(array, np.s_[2:])).startswith("Hardly partial: ")


def test_a_file_is_not_requested_whole_though_nearly_all_of_its_chunk_is_selected(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((128, 128)), chunks=(128, 128))
    found = explain(array, np.s_[1:, :-1])
    assert found.bytes_fetched == (127 * 128 - 1) * 8
    assert found.reason.startswith("gaps of up to 32,768 bytes")


@pytest.mark.parametrize(
    ("shape", "chunks", "has_gaps"), [((300, 2), (300, 2), True), ((300, 1), (1, 1), False)]
)
def test_many_rounds_come_with_the_setting_that_makes_them_fewer_if_there_are_gaps(
    shape, chunks, has_gaps
):
    """Longer gaps do nothing for the requests of many chunks, one for each."""
    array = stored(MemoryStore(), numbers(shape), chunks=chunks)
    with zarr.config.set({"zarr_bytes.gap.remote": 0}):
        explained = explain(zarr.open_array(CountingStore(array.store)), np.s_[:, 0])
    assert explained.requests == 300
    assert ("longer gaps (zarr_bytes.gap) make them fewer" in str(explained)) is has_gaps
