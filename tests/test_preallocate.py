"""`preallocate`: chunks and shards made in advance, and what is left alone.

`test_model` has it with anything else that is done to an array, `test_faults` with each call of the
system failing, and `test_meanwhile` with other processes.
"""

import errno
import json
import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from command import call
from stored_arrays import IN_PLACE, PLAIN_ZARR, created
from system_calls import fail_at
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import StoreError, preallocate

preallocating = import_module("zarr_bytes.commands.preallocate")

BIG = BytesCodec(endian="big")
CHAINS = {
    "chunks": {"serializer": BIG},
    "transposed chunks": {"serializer": BIG, "filters": [TransposeCodec(order=(1, 0))]},
    "shards": {"serializer": ShardingCodec(chunk_shape=(2, 3), codecs=[BIG])},
    "shards with their index at the start": {
        "serializer": ShardingCodec(chunk_shape=(2, 3), codecs=[BIG], index_location="start")
    },
}

INNER_CHUNKS = {"serializer": ShardingCodec(chunk_shape=(1,))}


def array_in(folder, shape=(7, 9), chunks=(4, 6), dtype="i4", **options):
    return created(LocalStore(folder), shape, dtype, chunks, **options)


def files_in(folder):
    paths = sorted(folder.rglob("*"))
    return [path for path in paths if path.is_file() and path.name != "zarr.json"]


@pytest.mark.parametrize("fill_value", [0, 7])
@pytest.mark.parametrize("chain", CHAINS)
def test_missing_chunks_and_inner_chunks_are_made_and_then_written_in_place(
    tmp_path, chain, fill_value
):
    with zarr.config.set(PLAIN_ZARR):
        array_in(tmp_path, fill_value=fill_value, **CHAINS[chain])[1, 2] = 5
    array, completed = zarr.open_array(tmp_path), int("shards" in chain)
    told = []
    found = preallocate(array, progress=told.append)
    assert (found.made, found.completed, found.chunks) == (3, completed, 4)
    assert [(p.chunks_done, p.chunks) for p in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert str(found).startswith("3 chunks made")
    inodes = {path: path.stat().st_ino for path in files_in(tmp_path)}
    index_nbytes = (4 * 16 + 4) * completed
    assert [path.stat().st_size for path in inodes] == [4 * 4 * 6 + index_nbytes] * 4
    found = preallocate(array)
    assert (found.made, found.completed, found.chunks) == (0, 0, 4)
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(tmp_path)
    array[3:5, 5:7] = 8
    array[6, 8] = 9
    assert {path: path.stat().st_ino for path in files_in(tmp_path)} == inodes
    expected = np.full((7, 9), fill_value)
    expected[1, 2], expected[3:5, 5:7], expected[6, 8] = 5, 8, 9
    with zarr.config.set(PLAIN_ZARR):
        assert np.array_equal(zarr.open_array(tmp_path)[...], expected)


def test_a_chunk_of_zeros_takes_no_room_on_the_disk(tmp_path):
    shape = (4096, 4096)
    for name, codec in (("chunk", BIG), ("shard", ShardingCodec(chunk_shape=(64, 64)))):
        preallocate(array_in(tmp_path / name, shape, shape, serializer=codec))
        (file,) = files_in(tmp_path / name)
        assert file.stat().st_size >= 2**26
        assert file.stat().st_blocks * 512 < 2**18


REFUSED = {
    "a compressor": (lambda folder: array_in(folder, compressors="auto"), "codec zstd"),
    "memory": (lambda _: created(MemoryStore(), 3, "i4"), "MemoryStore"),
    "format 2": (lambda path: array_in(path, serializer="auto", zarr_format=2), "format 2"),
    "reading alone": (lambda path: zarr.open_array(array_in(path).store, mode="r"), "read only"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_made_is_refused_with_the_reason(tmp_path, kind):
    make, reason = REFUSED[kind]
    array = make(tmp_path)
    before = files_in(tmp_path)
    with pytest.raises(StoreError, match=reason):
        preallocate(array)
    assert files_in(tmp_path) == before


class TestTooMuch:
    """More files or bytes than anybody means to make are refused before the first one."""

    @pytest.mark.parametrize(
        ("shape", "chunk_shape", "options", "message"),
        [
            ((2**62, 2**62), (4, 6), {}, r"about 10\^36 chunks, and no more than 1,000,000 files"),
            (2**62, 2**62, INNER_CHUNKS, "its missing chunks take about 10.20 bytes"),
            (2**48, 2**47, {"fill_value": 1}, r"take 1,125,899,906,842,624 bytes, and "),
        ],
    )
    def test_is_an_error_with_the_option(self, tmp_path, shape, chunk_shape, options, message):
        array = array_in(tmp_path, shape, chunk_shape, **options)
        with pytest.raises(StoreError, match=f"{message}.* `any_size=True`, or --any-size"):
            preallocate(array)
        assert files_in(tmp_path) == []

    def test_chunks_that_are_there_and_chunks_of_zeros_take_none(self, tmp_path, monkeypatch):
        monkeypatch.setattr(preallocating, "disk_usage", lambda root: SimpleNamespace(free=300))
        array = array_in(tmp_path / "ones", fill_value=1)  # 4 chunks of 96 bytes
        array[:4, :6] = 7
        assert preallocate(array).made == 3
        assert preallocate(array).made == 0
        assert preallocate(array_in(tmp_path / "zeros")).made == 4
        assert preallocate(array_in(tmp_path / "0", (0, 10**12), (2, 3))).chunks == 0  # at once

    @pytest.mark.parametrize("option", [(), ("--any-size",)])
    def test_an_option_goes_on(self, tmp_path, monkeypatch, option):
        monkeypatch.setattr(preallocating, "MOST_FILES", 3)
        array_in(tmp_path)
        done = call("preallocate", tmp_path, *option)
        assert (done.exit_code, len(files_in(tmp_path))) == ((0, 4) if option else (1, 0))
        assert ("no more than 3 files" in done.stdout) is not bool(option)


def test_the_command_makes_the_chunks_of_every_array_and_names_those_it_cannot(tmp_path):
    group = zarr.create_group(tmp_path)
    options = {"shape": 9, "chunks": 4, "dtype": "i4"}
    group.create_array("plain", compressors=None, **options)
    group.create_array("compressed", **options)
    result = call("preallocate", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.startswith("3 chunks made, 1 array refused: 3 there now")
    assert [path.name for path in files_in(tmp_path / "plain")] == ["0", "1", "2"]
    zarr.create_array(tmp_path / "old", **options, zarr_format=2)
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/zarr.json").write_text("{")
    found = json.loads(call("preallocate", "--json", tmp_path).stdout)
    refused = found["refused"]
    assert (found["chunks"], found["made"], [*refused]) == (3, 0, ["compressed", "old", "wrong"])
    assert refused["old"] == "it is of Zarr format 2"
    assert "zstd" in refused["compressed"]
    assert refused["wrong"].startswith("JSONDecodeError: ")


class TestWithoutLinks:
    """A file that is renamed to its name might replace one that another process makes."""

    def test_of_a_file_system_the_error_says_what_to_do(self, tmp_path, monkeypatch):
        array = array_in(tmp_path)
        fail_at(
            monkeypatch, "link", 0, error=PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        )
        with pytest.raises(
            OSError, match=r"no hard links.*`write_empty_chunks=True` before others"
        ):
            preallocate(array)
        assert files_in(tmp_path) == []

    @pytest.mark.skipif(not hasattr(os, "pwrite"), reason="preallocate is refused")
    def test_of_a_system_the_error_says_what_to_do(self, tmp_path):
        array_in(tmp_path)
        lines = "import os", "del os.link", "import zarr, zarr_bytes"
        act = f"zarr_bytes.preallocate(zarr.open_array({str(tmp_path)!r}))"
        command = [sys.executable, "-c", "\n".join([*lines, act])]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "no hard links, so that chunks are replaced" in done.stderr
        assert files_in(tmp_path) == []
