"""`preallocate`: chunks and shards made in advance, and what is left alone.

`test_model` has it with anything else that is done to an array, `test_faults` with each call of the
system failing, and `test_meanwhile` with other processes.
"""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from command import call
from documents import ARRAY, write
from stored_arrays import IN_PLACE, KINDS_OF_NO_FILE, PLAIN_ZARR, created, put
from system_calls import fail_at
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import ChunkFileError, StoreError, preallocate

preallocating = import_module("zarr_bytes.commands.preallocate")

BIG = BytesCodec(endian="big")


def shards(location):
    """The index is at the end, or at the start."""
    return ShardingCodec(chunk_shape=(2, 3), codecs=[BIG], index_location=location)


CHAINS = {
    "chunks": {"serializer": BIG},
    "transposed chunks": {"serializer": BIG, "filters": [TransposeCodec(order=(1, 0))]},
    "shards": {"serializer": shards("end")},
    "shards with their index at the start": {"serializer": shards("start")},
}
MOST = "no more than 1,000,000 files"
BUT = ".*: `any_size=True`, or --any-size on the command line, makes them$"
LARGE_INDEX = {"shape": 2**62, "chunks": 2**62, "serializer": ShardingCodec(chunk_shape=(1,))}


def array_in(folder, shape=(7, 9), chunks=(4, 6), dtype="i4", **options):
    return created(LocalStore(folder), shape, dtype, chunks, **options)


def files_in(folder):
    paths = sorted(folder.rglob("*"))
    return [path for path in paths if path.is_file() and path.name != "zarr.json"]


def test_every_missing_chunk_is_made(tmp_path):
    array = array_in(tmp_path)
    assert preallocate(array).made == 4
    assert len(files_in(tmp_path)) == 4
    assert not array[...].any()


@pytest.mark.parametrize("fill_value", [0, 7])
@pytest.mark.parametrize("chain", CHAINS)
def test_preallocated_chunks_and_inner_chunks_are_written_in_place(tmp_path, chain, fill_value):
    with zarr.config.set(PLAIN_ZARR):
        array_in(tmp_path, fill_value=fill_value, **CHAINS[chain])[1, 2] = 5
    with zarr.config.set(IN_PLACE):
        array, completed, told = zarr.open_array(tmp_path), int("shards" in chain), []
    found = preallocate(array, progress=told.append)
    assert (found.made, found.completed, found.chunks) == (3, completed, 4)
    assert [(*vars(p).values(),) for p in told] == [("", 0, 1, n, 4) for n in (1, 2, 3, 4)]
    steps = "3 chunks made" + ", 1 shard completed" * completed
    assert str(found).splitlines()[0] == f"{steps}: 4 there now"
    inodes = {path: path.stat().st_ino for path in files_in(tmp_path)}
    index_nbytes = (4 * 16 + 4) * completed
    assert [path.stat().st_size for path in inodes] == [4 * 4 * 6 + index_nbytes] * 4
    assert preallocate(array).made == preallocate(array).completed == 0
    expected = np.full((7, 9), fill_value)
    expected[1, 2] = 5
    for selection in np.s_[3:5, 5:7], np.s_[6, 8]:
        array[selection] = expected[selection] = 8
    assert {path: path.stat().st_ino for path in files_in(tmp_path)} == inodes
    with zarr.config.set(PLAIN_ZARR):
        assert np.array_equal(zarr.open_array(tmp_path)[...], expected)


@pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
def test_preallocate_takes_a_folder_or_fifo_for_no_chunk(tmp_path, kind):
    array = array_in(tmp_path)
    put(kind, tmp_path / "c/0/1")
    with pytest.raises(ChunkFileError, match=f"is a {kind.removeprefix('link to a ')}"):
        preallocate(array)


def test_a_symbolic_link_to_nothing_is_no_chunk_and_is_named(tmp_path):
    array, link = array_in(tmp_path), tmp_path / "c/0/1"
    link.parent.mkdir(parents=True)
    link.symlink_to("nothing")
    with pytest.raises(ChunkFileError, match=f"^{re.escape(str(link))} is a symbolic link to not"):
        preallocate(array)
    assert not link.exists()


def test_a_chunk_of_zeros_takes_no_room_on_the_disk(tmp_path):
    shape = (4096, 4096)
    for name, codec in (("chunk", BIG), ("shard", ShardingCodec(chunk_shape=(64, 64)))):
        preallocate(array_in(tmp_path / name, shape, shape, serializer=codec))
        (file,) = files_in(tmp_path / name)
        assert file.stat().st_size >= 2**26
        assert file.stat().st_blocks * 512 < 2**18


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (partial(array_in, compressors="auto"), "chunks go through the codec zstd, "),
        (lambda _: created(MemoryStore(), 3, "i4"), "its store is a MemoryStore, and must be"),
        (lambda path: zarr.open_array(array_in(path).store, mode="r"), "it was opened read-only"),
        # More files or bytes than anybody means to make.
        (partial(array_in, shape=[2**62] * 2), rf"it has about 10\^36 chunks, and {MOST}{BUT}"),
        (partial(array_in, **LARGE_INDEX), f"its missing chunks take about 10.20 bytes{BUT}"),
    ],
)
def test_preallocate_refuses_arrays_with_the_reason(tmp_path, make, reason):
    array = make(tmp_path)
    before = files_in(tmp_path)
    what = f"chunks of {re.escape(str(array.store_path))} cannot be made in advance: "
    with pytest.raises(StoreError, match=f"^{what}{reason}"):
        preallocate(array)
    assert files_in(tmp_path) == before


def test_chunks_that_are_there_and_chunks_of_zeros_take_no_room(tmp_path, monkeypatch):
    disk = SimpleNamespace(free=491)
    monkeypatch.setattr(shutil, "disk_usage", lambda root: str(tmp_path) in root and disk)
    array = array_in(tmp_path / "ones", fill_value=1, **CHAINS["shards"])  # 4 of 96 + 68 bytes
    array[:4, :6] = 7
    with pytest.raises(StoreError, match=" take 492 bytes, and 491 bytes are free: "):
        preallocate(array)
    for disk.free, made in (492, 3), (0, 0):
        assert preallocate(array).made == made
    assert preallocate(array_in(tmp_path / "zeros")).made == 4
    assert preallocate(array_in(tmp_path / "0", (0, 10**12), (2, 3))).chunks == 0  # at once


def test_preallocate_makes_very_many_files_only_with_an_option(tmp_path, monkeypatch):
    monkeypatch.setattr(preallocating, "MOST_FILES", 3)
    array = array_in(tmp_path)
    found = json.loads(call("preallocate", tmp_path, "--json").stdout)
    assert "it has 4 chunks, and no more than 3 files are made" in found.pop("refused")[""]
    assert found == {"chunks": 0, "made": 0, "completed": 0}
    assert call("preallocate", tmp_path, "--any-size").exit_code == 0
    assert len(files_in(tmp_path)) == preallocate(array, any_size=True).chunks == 4
    monkeypatch.setattr(preallocating, "MOST_FILES", 4)
    assert preallocate(array).chunks == 4


def test_the_preallocate_command_makes_the_chunks_of_every_array(tmp_path):
    group, told = zarr.create_group(tmp_path), []
    options = {"chunks": 4, "dtype": "i4"}
    group.create_array("plain", shape=9, compressors=None, **options)
    group.create_array("deep/plain", shape=5, compressors=None, **options)
    group.create_array("compressed", shape=9, **options)
    result = call("preallocate", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.startswith("5 chunks made, 1 array refused: 5 there now")
    assert [path.name for path in files_in(tmp_path / "plain")] == ["0", "1", "2"]
    zarr.create_array(tmp_path / "old", shape=9, **options, zarr_format=2)
    write(tmp_path / "unopened", {key: value for key, value in ARRAY.items() if key != "codecs"})
    write(tmp_path / "wrong", "{")
    found = preallocating.preallocate_arrays_or_list_refused(
        str(tmp_path), any_size=False, progress=told.append
    )
    assert (found.chunks, found.made) == (5, 0)
    shown = [(progress.path, progress.chunks_done, progress.chunks) for progress in told]
    assert shown[1:3] == [("deep/plain", 2, 2), ("plain", 1, 3)]
    said = {
        "compressed": "chunks go through the codec zstd, ",
        "old": "chunks go through the codec zstd, ",
        "unopened": r"zarr opens no array at /unopened \(KeyError: 'codecs'\): see its zarr.json;"
        " `zarr-bytes check` says what is not permitted there$",
        "wrong": "JSONDecodeError: ",
    }
    assert [*found.refused] == [*said]
    assert all(re.match(said[name], reason) for name, reason in found.refused.items())
    found.refused |= {f"{n}": "it is full" for n in range(17)}
    head, _, names, *_, row, more = str(found).splitlines()
    assert head == "0 chunks made, 21 arrays refused: 5 there now"
    assert (names[:10], row[:3], more) == ("Refused   ", "/15", "... and 1 more")


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("fill_value", [None, 0, 7])
def test_the_chunks_of_arrays_of_format_2_in_a_folder_are_made(
    tmp_path, separator, order, fill_value
):
    """Those that are there are kept, and plain zarr reads all of them."""
    options = {"shape": (7, 9), "chunks": (4, 6), "dtype": ">i4", "fill_value": fill_value}
    options |= {"order": order, "chunk_key_encoding": {"name": "v2", "separator": separator}}
    zarr.create_group(tmp_path, zarr_format=2).create_group("deep")
    expected = np.full((7, 9), fill_value or 0)
    expected[1, 2:4] = 5
    for path in "a", "deep/b":
        with zarr.config.set(PLAIN_ZARR):
            array = zarr.create_array(
                tmp_path / path, **options, zarr_format=2, compressors=None, attributes={"x": 1}
            )
            array[1, 2:4] = 5
    result = call("preallocate", tmp_path)
    assert (result.exit_code, result.stdout) == (0, "6 chunks made: 8 there now\n")
    keys = [f"{i}{separator}{j}" for i in range(2) for j in range(2)]
    for path in "a", "deep/b":
        assert [(tmp_path / path / key).stat().st_size for key in keys] == [4 * 4 * 6] * 4
        with zarr.config.set(PLAIN_ZARR):
            assert np.array_equal(zarr.open_array(tmp_path / path)[...], expected)
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(tmp_path / "a", mode="r+")
        inode = (tmp_path / "a" / keys[-1]).stat().st_ino
        array[6, 8] = expected[6, 8] = 9
    assert (tmp_path / "a" / keys[-1]).stat().st_ino == inode
    assert preallocate(array).made == 0
    with zarr.config.set(PLAIN_ZARR):
        assert np.array_equal(zarr.open_array(tmp_path / "a")[...], expected)


def test_preallocate_without_hard_links_says_what_to_do(tmp_path, monkeypatch):
    """A file that is renamed to its name might replace one that another process makes."""
    array = array_in(tmp_path)
    with monkeypatch.context() as patch:
        fail_at(patch, "link", 0, error=PermissionError(errno.EPERM, os.strerror(errno.EPERM)))
        expected = r"no hard links.*`write_empty_chunks=True` before others"
        with pytest.raises(OSError, match=expected):
            preallocate(array)
    assert files_in(tmp_path) == []
    if not hasattr(os, "pwrite"):  # it is refused
        return
    act = f"zarr_bytes.preallocate(zarr.open_array({str(tmp_path)!r}))"
    program = f"import os; del os.link; import zarr, zarr_bytes; {act}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "no hard links, so chunks are replaced" in done.stderr
    assert files_in(tmp_path) == []
