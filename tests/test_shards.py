"""Shards of plain inner chunks: exchange with others, absent inner chunks, shared bytes.

`test_cost.py` has what is read and written of them, `test_model.py` and `test_fuzz.py` shards of
every form, `test_damaged.py` hostile ones, and `test_locks.py` those of several writers.
"""

import os
import weakref

import numpy as np
import pytest
import tensorstore as ts
import zarr
from documents import document_of, memory, transposes, write
from fuzz import encoded, transposed
from shards import ABSENT, divided, entries_in, morton_order, shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    contents_of,
    is_metadata,
    keys_of,
    most_memory,
    numbers,
)
from zarr.storage import MemoryStore

from zarr_bytes import preallocate, view
from zarr_bytes.io.known_stores import known_stores

# Codecs of the inner chunks, the index, and the orders of transposes before the shard.
FORMS = {
    "index at the end": ("big", [], {}, []),
    "index at the start": ("big", [], {"location": "start"}, []),
    "no checksum": ("big", [], {"has_checksum": False}, []),
    "big-endian index": ("little", [], {"endian": "big"}, []),
    "transposed inner chunks": ("big", [(2, 0, 1)], {}, []),
    "transposed shards": ("big", [], {}, [(2, 0, 1)]),
}
SHAPE, SHARD, INNER = (8, 9, 10), (5, 6, 10), (5, 3, 2)
COUNT = 10  # inner chunks in each shard
VALUES = numbers(SHAPE) + 1

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")
pytestmark = pytest.mark.filterwarnings("ignore:Combining a", "ignore:The data type")


def made(folder, shape=SHAPE, shard=SHARD, inner=INNER, form="index at the end", in_place=False):
    """An array of shards without any; in a folder, or in memory where that is None."""
    endian, orders, index, before = FORMS[form]
    document = document_of("float64", shape, shard, endian, orders)
    inner = (5, 1, 2) if before else inner  # which divides the shard in either order of axes
    document["codecs"] = [*transposes(before), sharding(inner, document["codecs"], **index)]
    with zarr.config.set(IN_PLACE if in_place else {}):
        store = memory({"": document}) if folder is None else write(folder, document)
        return zarr.open_array(store, mode="r+")


def opened_by(other, folder):
    """The array, as something else opens it."""
    if other == "TensorStore":
        kvstore = {"driver": "file", "path": str(folder)}
        return ts.open({"driver": "zarr3", "kvstore": kvstore}).result()
    if other == "zarrista":
        zarrista = pytest.importorskip("zarrista", reason="zarrista is not installed")
        return zarrista.Array.open(zarrista.store.FilesystemStore(folder))
    if other == "zarrs":
        pytest.importorskip("zarrs", reason="zarrs is not installed (extra stores)")
    config = {"zarr": PLAIN_ZARR, "zarrs": {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}}
    with zarr.config.set(config[other]):
        return zarr.open_array(folder, mode="r+")


def test_a_part_of_an_inner_chunk_is_read_from_its_shard(tmp_path):
    array = made(tmp_path)
    array[...] = VALUES
    assert np.array_equal(array[1, :3, :2], VALUES[1, :3, :2])


@pytest.mark.parametrize(
    ("other", "form"),
    [
        (other, form)
        for other in ("zarr", "TensorStore", "zarrs", "zarrista")
        for form in FORMS
        if form != "transposed shards" or other in ("zarr", "TensorStore")
    ],
)
def test_shards_are_exchanged_both_ways(tmp_path, other, form):
    array, values = made(tmp_path, form=form), VALUES.copy()
    array[...] = values
    endian, orders, index, before = FORMS[form]
    if not before:
        parts = [transposed(part, orders) for part in divided(values[:5, :6], INNER)]
        parts = [encoded(part, "float64", endian) for part in parts]
        content = shard_of(parts, **index, places=morton_order((1, 2, 5)))
        assert (tmp_path / "c/0/0/0").read_bytes() == content
    theirs = opened_by(other, tmp_path)
    assert np.array_equal(np.asarray(theirs[:]), values)
    theirs[:] = values = -values  # in any order
    for in_place in True, False:
        array = made(tmp_path, form=form, in_place=in_place)
        assert np.array_equal(array[2:7, 3:8, ::3], values[2:7, 3:8, ::3])
        for number, selection in enumerate([np.s_[3, 4], np.s_[:, 2:7, ::3], np.s_[7, 8, 9]]):
            array[selection] = values[selection] = number + in_place / 2
        points = ([1, 7, 0], [8, 0, 5], [9, 3, 3])
        array.vindex[points] = values[points] = [7, 8, 9]
        assert np.array_equal(np.asarray(opened_by(other, tmp_path)[:]), values)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_shard_that_is_replaced_has_no_empty_inner_chunks(tmp_path, kind):
    array = made(tmp_path if kind == "local" else None)
    values = VALUES[:5, :6].copy()
    values[:, :3, 2:6] = 0
    array[:5, :6] = values
    for absent in [1, 2], [1, 2, 3, 4]:
        entries = entries_in(contents_of(array.store)["c/0/0/0"], COUNT)
        assert [i for i, entry in enumerate(entries) if entry == ABSENT] == absent
        found = [entries[i] for i in morton_order((1, 2, 5)) if i not in absent]
        assert found == [(240 * i, 240) for i in range(COUNT - len(absent))]
        assert np.array_equal(array[:5, :6], values)
        array[:5, :3, 4:] = values[:, :3, 4:] = 0
    array[:5, :6] = 0
    assert keys_of(array.store) == []


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_inner_chunks_that_are_encoded_in_several_blocks_are_contiguous(tmp_path, kind):
    values = numbers((6, 400, 500))  # of 1.6 MB
    values[3, :350] = 0  # no empty inner chunk, though it begins like one
    array = made(tmp_path if kind == "local" else None, values.shape, values.shape, (1, 400, 500))
    array[...] = values
    content = contents_of(array.store)["c/0/0/0"]
    assert content[: values.nbytes] == values.astype(">f8").tobytes()
    assert entries_in(content, 6) == [(1_600_000 * i, 1_600_000) for i in range(6)]


PARTS = [encoded(np.full(2, value), "float64", "big") for value in (3.0, 3.0, 5.0)]


@needs_pwrite
def test_memory_of_a_write_to_a_part_of_a_shard_in_a_store_is_that_of_the_new_shard():
    """And of the copy that a store in memory makes of it."""
    values = numbers((16, 2**15)) + 1
    array = made(None, values.shape, values.shape, (1, 2**15))
    array[...] = values
    values[3, 5:9] = 7
    _, peak = most_memory(lambda: array.set_basic_selection(np.s_[3, 5:9], 7))
    assert np.array_equal(array[...], values)
    assert peak <= 2 * values.nbytes + 2**20


class NotingOldObjects(MemoryStore):
    """Whether the chunk that was fetched last is still in memory while another one is set."""

    fetched, was_kept = None, None

    async def get(self, key, prototype=None, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        if buffer is not None and not is_metadata(key):
            buffer = type(buffer).from_bytes(buffer.to_bytes())
            self.fetched = weakref.ref(buffer)
        return buffer

    async def set(self, key, value, byte_range=None):
        self.was_kept = self.fetched is not None and self.fetched() is not None
        await super().set(key, value, byte_range)


def test_an_old_shard_is_not_in_memory_while_the_new_one_is_stored():
    options = {"shape": (8, 8), "chunks": (2, 2), "shards": (8, 8), "compressors": None}
    array = zarr.create_array(NotingOldObjects(), dtype="i4", **options)
    array[...] = 1
    array[3, 5] = 7
    assert array.store.fetched is not None
    assert array.store.was_kept is False


class TestInPlace:
    @pytest.fixture
    def array(self, tmp_path):
        """Of one shard of three inner chunks."""
        array = made(tmp_path, (6,), (6,), (2,), in_place=True)
        array[...] = 1
        return array

    def test_a_shard_without_a_needed_inner_chunk_is_replaced_by_a_complete_one(
        self, array, tmp_path
    ):
        (tmp_path / "c/0").write_bytes(shard_of([PARTS[0], None, PARTS[2]]))
        for place, is_replaced in [(0, False), (3, True), (2, False)]:
            inode = (tmp_path / "c/0").stat().st_ino
            array[place] = 3
            assert ((tmp_path / "c/0").stat().st_ino != inode) is is_replaced
        assert (tmp_path / "c/0").read_bytes() == shard_of(PARTS)

    @pytest.mark.parametrize("start", [0, 8], ids=["all", "half"])
    def test_inner_chunks_that_share_bytes_are_separated_by_a_new_shard(
        self, array, tmp_path, start
    ):
        path, content = tmp_path / "c/0", shard_of(PARTS, entries={1: (start, 16)})
        path.write_bytes(content)
        inode = path.stat().st_ino
        array[4] = 6  # of one that shares none
        assert path.stat().st_ino == inode
        expected = array[...]
        for place in (1, 2, 3, 0):
            array[place] = expected[place] = -place
            assert np.array_equal(array[...], expected)
        path.write_bytes(content)
        mapped = view(array, mode="r+")
        mapped[4] = 7
        with pytest.raises(ValueError, match=r"block \(1,\) is missing, or shares bytes"):
            mapped[2] = 7
        assert [preallocate(array).completed for _ in range(2)] == [1, 0]

    def test_writes_of_one_selection_go_where_the_index_of_each_shard_says(self, tmp_path):
        """Though the plan, and the places in the shard before, are kept for the next write."""
        array = made(tmp_path, (12,), (6,), (2,), in_place=True)
        for name, places in ("0", [0, 1, 2]), ("1", [2, 0, 1]):
            (tmp_path / "c").mkdir(exist_ok=True)
            (tmp_path / "c" / name).write_bytes(shard_of(PARTS, places=places))
        expected = array[...]
        for number in (7, 8):
            array[1::6] = expected[1::6] = number
            assert np.array_equal(array[...], expected)
        (tmp_path / "c/0").write_bytes(shard_of(PARTS, places=[1, 2, 0]))
        expected = array[...]
        array[1::6] = expected[1::6] = 9
        assert np.array_equal(array[...], expected)

    def test_a_column_of_a_new_shard_behind_its_index_is_written_through_a_mapping(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(known_stores, "is_on_local_file_system", lambda descriptor: True)
        shapes = (64, 64), (64, 64), (4, 8)
        array = made(tmp_path, *shapes, form="index at the start", in_place=True)
        values = np.zeros((64, 64))
        array[:, 9:60:5] = values[:, 9:60:5] = numbers((64, 64))[:, 9:60:5]
        assert np.array_equal(array[...], values)


def test_elements_behind_the_edge_of_the_array_are_kept_as_by_zarr(tmp_path):
    """Where all within the array is written; zarr fills up other chunks than shards."""
    for in_place in False, True:
        array = made(tmp_path / str(in_place), (4,), (4,), (2,), in_place=in_place)
        array[:] = [1, 2, 3, 4]
        array.resize((2,))
        array[:] = [9, 9]
        array.resize((4,))
        assert array[:].tolist() == [9, 9, 3, 4]
