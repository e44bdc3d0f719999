"""`preallocate`: chunks and shards made in advance, and what is left alone."""

import json
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from command import call
from stored_arrays import PLAIN_ZARR, contents_of, numbers
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


def created(folder, **options):
    options = {"shape": (7, 9), "chunks": (4, 6), "dtype": "i4", "compressors": None} | options
    return zarr.create_array(LocalStore(folder), **options)


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "zarr.json"]


@pytest.mark.parametrize("fill_value", [0, 7])
@pytest.mark.parametrize("chain", CHAINS)
def test_every_missing_chunk_is_made_of_the_fill_value(tmp_path, chain, fill_value):
    array = created(tmp_path, fill_value=fill_value, **CHAINS[chain])
    array[1, 2] = 5
    before = contents_of(array.store)
    found = preallocate(array)
    assert (found.made, found.chunks) == (3, 4)
    assert len(files_in(tmp_path)) == 4
    expected = np.full((7, 9), fill_value)
    expected[1, 2] = 5
    with zarr.config.set(PLAIN_ZARR):
        assert np.array_equal(zarr.open_array(tmp_path)[...], expected)
    after = contents_of(array.store)
    if "shards" not in chain:
        assert before.items() <= after.items()
    assert preallocate(array).made == 0
    assert contents_of(array.store) == after


def test_a_shard_gets_the_inner_chunks_that_it_lacks_and_keeps_the_others(tmp_path):
    with zarr.config.set(PLAIN_ZARR):
        array = created(tmp_path, **CHAINS["shards"])
        array[0:2, 0:3] = values = numbers((2, 3), "i4")
    array = zarr.open_array(tmp_path)
    found = preallocate(array)
    assert (found.made, found.completed) == (3, 1)
    sizes = {path.stat().st_size for path in files_in(tmp_path)}
    assert sizes == {4 * (24 + 16) + 4}  # four inner chunks, their entries and the checksum
    expected = np.zeros((7, 9), "i4")
    expected[0:2, 0:3] = values
    assert np.array_equal(array[...], expected)


def test_a_chunk_of_zeros_takes_no_room_on_the_disk(tmp_path):
    shape = (4096, 4096)
    for name, codec in (("chunk", BIG), ("shard", ShardingCodec(chunk_shape=(64, 64)))):
        array = created(tmp_path / name, shape=shape, chunks=shape, serializer=codec)
        preallocate(array)
        (file,) = files_in(tmp_path / name)
        assert file.stat().st_size >= 2**26
        assert file.stat().st_blocks * 512 < 2**18


@pytest.mark.parametrize("chain", CHAINS)
def test_afterwards_any_element_is_written_in_place(tmp_path, chain):
    preallocate(created(tmp_path, **CHAINS[chain]))
    inodes = {path: path.stat().st_ino for path in files_in(tmp_path)}
    with zarr.config.set({"zarr_bytes.partial_writes": True}):
        array = zarr.open_array(tmp_path)
        array[3:5, 5:7] = 8
        array[6, 8] = 9
    assert {path: path.stat().st_ino for path in files_in(tmp_path)} == inodes
    expected = np.zeros((7, 9))
    expected[3:5, 5:7], expected[6, 8] = 8, 9
    assert np.array_equal(array[...], expected)


def test_arrays_without_dimensions_or_without_elements(tmp_path):
    """One of 0 beside very many chunks takes no time."""
    assert preallocate(created(tmp_path / "0-d", shape=(), chunks=())).made == 1
    assert preallocate(created(tmp_path / "empty", shape=(0, 10**12), chunks=(2, 3))).chunks == 0


def test_progress_is_told_of_each_chunk(tmp_path):
    told = []
    assert "4 chunks made" in str(preallocate(created(tmp_path), progress=told.append))
    assert [(p.chunks_done, p.chunks) for p in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def of_zarrs_pipeline(folder):
    with zarr.config.set(PLAIN_ZARR):
        return created(folder)


REFUSED = {
    "a compressor": (lambda folder: created(folder, compressors="auto"), "bytes, zstd"),
    "memory": (lambda _: zarr.create_array(MemoryStore(), shape=3, dtype="i4"), "MemoryStore"),
    "format 2": (lambda folder: created(folder, zarr_format=2), "format 2"),
    "reading alone": (lambda folder: zarr.open_array(created(folder).store, mode="r"), "read only"),
    "zarr's pipeline": (of_zarrs_pipeline, "zarr-bytes status"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_made_is_refused_with_the_reason(tmp_path, kind):
    make, reason = REFUSED[kind]
    with pytest.raises(StoreError, match=reason):
        preallocate(make(tmp_path))
    assert files_in(tmp_path) == [p for p in files_in(tmp_path) if p.name.startswith(".z")]


class TestTooMuch:
    """More files or bytes than anybody means to make are refused before the first one."""

    @pytest.mark.parametrize("chain", CHAINS)
    def test_a_document_that_claims_very_many_chunks(self, tmp_path, chain):
        created(tmp_path, **CHAINS[chain])
        document = json.loads((tmp_path / "zarr.json").read_text())
        document["shape"] = [2**62, 2**62]
        (tmp_path / "zarr.json").write_text(json.dumps(document))
        message = (
            r"about 10\^36 chunks, and no more than 1,000,000 .* `any_size=True`, or --any-size"
        )
        with pytest.raises(StoreError, match=message):
            preallocate(zarr.open_array(tmp_path))
        assert files_in(tmp_path) == []

    def test_shards_that_claim_very_many_inner_chunks(self, tmp_path):
        array = created(
            tmp_path, shape=2**62, chunks=2**62, serializer=ShardingCodec(chunk_shape=(1,))
        )
        with pytest.raises(StoreError, match="its missing chunks take about 10.20 bytes"):
            preallocate(array)

    def test_more_bytes_than_the_file_system_has_free(self, tmp_path):
        options = {"shape": 2**50, "chunks": 2**49, "dtype": "u1"}
        array = created(tmp_path, fill_value=1, **options)
        message = r"take 1,125,899,906,842,624 bytes, and the file system has [\d,]+ bytes free"
        with pytest.raises(StoreError, match=message):
            preallocate(array)
        assert files_in(tmp_path) == []

    def test_chunks_that_are_there_and_chunks_of_zeros_take_none(self, tmp_path, monkeypatch):
        monkeypatch.setattr(preallocating, "disk_usage", lambda root: SimpleNamespace(free=300))
        array = created(tmp_path / "ones", fill_value=1)  # 4 chunks of 96 bytes
        array[:4, :6] = 7
        assert preallocate(array).made == 3
        assert preallocate(array).made == 0
        assert preallocate(created(tmp_path / "zeros")).made == 4

    @pytest.mark.parametrize("option", [(), ("--any-size",)])
    def test_an_option_goes_on(self, tmp_path, monkeypatch, option):
        monkeypatch.setattr(preallocating, "MOST_FILES", 3)
        created(tmp_path)
        done = call("preallocate", tmp_path, *option)
        assert (done.exit_code, len(files_in(tmp_path))) == ((0, 4) if option else (1, 0))
        assert ("no more than 3 files" in done.output) is not bool(option)


class TestCommand:
    @pytest.fixture
    def store(self, tmp_path):
        group = zarr.create_group(tmp_path)
        options = {"shape": 9, "chunks": 4, "dtype": "i4"}
        group.create_array("plain", compressors=None, **options)
        group.create_array("compressed", **options)
        return tmp_path

    def test_it_makes_the_chunks_of_every_array_and_names_those_it_cannot(self, store):
        result = call("preallocate", store)
        assert result.exit_code == 1
        assert "3 chunks made" in result.stdout
        assert "zstd" in result.stdout
        rows = [line.split()[:4] for line in result.stdout.splitlines()]
        assert ["/compressed", "0", "0", "0"] in rows
        assert ["/plain", "3", "3", "0"] in rows
        assert sorted(path.name for path in files_in(store / "plain")) == ["0", "1", "2"]
        assert not (store / "compressed/c").exists()

    def test_arrays_that_cannot_be_read_and_those_of_format_2_are_refused_too(self, store):
        zarr.create_array(store / "old", shape=9, dtype="i4", zarr_format=2)
        (store / "compressed/zarr.json").write_text("{")
        result = call("preallocate", "--json", store)
        assert result.exit_code == 1
        found = json.loads(result.stdout)["arrays"]
        assert {array["path"]: array["made"] for array in found}["plain"] == 3
        refused = {array["path"]: array["refused"] for array in found}
        assert refused["compressed"].startswith("JSONDecodeError: ")
        assert refused["old"] == "it is of Zarr format 2"
        assert refused["plain"] == ""

    def test_a_store_that_is_no_folder_is_refused(self, tmp_path):
        with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as archive:
            zarr.create_array(archive, shape=3, dtype="i4", compressors=None)
        result = call("preallocate", tmp_path / "a.zip")
        assert result.exit_code == 1
        assert "must be a folder" in " ".join(result.stdout.split())
