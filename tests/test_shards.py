"""Shards of plain inner chunks: exchange with others, complete and incomplete ones, shared bytes.

`test_cost.py` has what is read and written of them, `test_fuzz.py` shards of every form,
`test_damaged.py` hostile ones, and `test_shared_chunk.py` those that several processes write.
"""

import os

import numpy as np
import pytest
import tensorstore as ts
import zarr
from fuzz import document_of, encoded, same, transposed, transposes, values_of
from shards import ABSENT, divided, entries_in, shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    CountingStore,
    contents_of,
    keys_of,
    numbers,
    pipeline_of,
    written_documents,
)

from zarr_bytes import BatchedBytesPipeline, preallocate, view

BIG = {"name": "bytes", "configuration": {"endian": "big"}}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
# Codecs of the inner chunks, the index, and the orders of transposes before the shard.
FORMS = {
    "index at the end": ([BIG], {}, []),
    "index at the start": ([BIG], {"location": "start"}, []),
    "no checksum": ([BIG], {"has_checksum": False}, []),
    "big-endian index": ([LITTLE], {"endian": "big"}, []),
    "transposed inner chunks": ([*transposes([(2, 0, 1)]), BIG], {}, []),
    "transposed shards": ([BIG], {}, [(2, 0, 1)]),
}
SHAPE, SHARD, INNER = (8, 9, 10), (5, 6, 10), (5, 3, 2)
COUNT = 10  # inner chunks in each shard
VALUES = numbers(SHAPE) + 1

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")
both_ways = pytest.mark.parametrize(
    "is_in_place",
    [pytest.param(True, marks=needs_pwrite), False],
    ids=["in place", "replaced"],
)
pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type", "ignore:Combining a `sharding_indexed` codec"
)


def made(folder, shape=SHAPE, shard=SHARD, inner=INNER, form="index at the end", **others):
    """An array of shards without any; in a folder, or in memory where that is None."""
    codecs, index, before = FORMS[form]
    document = document_of("float64", shape, shard, "big")
    inner = (5, 1, 2) if before else inner  # which divides the shard in either order of axes
    document["codecs"] = [*transposes(before), sharding(inner, codecs, **index)]
    return zarr.open_array(written_documents(folder, document | others), mode="r+")


def again(array, is_in_place=True):
    """The array, opened again so that it is written in place, or not."""
    with zarr.config.set(IN_PLACE if is_in_place else {}):
        return zarr.open_array(array.store, mode="r+")


def parts_of(values, inner=INNER, codecs=(BIG,)):
    """The inner chunks of a shard as they are stored."""
    orders = [codec["configuration"]["order"] for codec in codecs[:-1]]
    endian = codecs[-1]["configuration"]["endian"]
    for part in divided(values.astype("f8"), inner):
        yield encoded(transposed(part, orders), "float64", endian)


def content_of(values, inner=INNER, form="index at the end"):
    """The bytes of a shard that has all inner chunks, in their order."""
    codecs, index, _ = FORMS[form]
    return shard_of(list(parts_of(values, inner, codecs)), **index)


def put(array, content, key="c/0/0/0"):
    """Store a shard, and say where."""
    path = array.store.root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class PlainZarr:
    """zarr's own pipeline, with its own codec; it lays inner chunks out in Morton order."""

    config = PLAIN_ZARR

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


@pytest.mark.parametrize(
    ("other", "form"),
    [
        (other, form)
        for other in (PlainZarr, TensorStore, Zarrs, Zarrista)
        for form in FORMS
        if form != "transposed shards" or other in (PlainZarr, TensorStore)
    ],
)
class TestExchange:
    @both_ways
    def test_others_read_what_is_written_into_their_shards(
        self, tmp_path, other, form, is_in_place
    ):
        array, values = again(made(tmp_path, form=form), is_in_place), VALUES.copy()
        assert type(pipeline_of(array)) is BatchedBytesPipeline
        other().write(tmp_path, values)
        assert np.array_equal(array[...], values)
        assert np.array_equal(array[2:7, 3:8, ::3], values[2:7, 3:8, ::3])
        inodes = {key: (tmp_path / key).stat().st_ino for key in keys_of(array.store)}
        for number, selection in enumerate([np.s_[3, 4], np.s_[:, 2:7, ::3], np.s_[7, 8, 9]]):
            array[selection] = values[selection] = -number - 1
        points = ([1, 7, 0], [8, 0, 5], [9, 3, 3])
        array.vindex[points] = values[points] = [-7, -8, -9]
        assert np.array_equal(other().read(tmp_path), values)
        if is_in_place:
            assert {key: (tmp_path / key).stat().st_ino for key in inodes} == inodes

    def test_others_read_what_is_written_whole(self, tmp_path, other, form):
        """In the order of the index."""
        made(tmp_path, form=form)[...] = VALUES
        assert np.array_equal(other().read(tmp_path), VALUES)
        if form != "transposed shards":
            assert (tmp_path / "c/0/0/0").read_bytes() == content_of(VALUES[:5, :6], form=form)


@pytest.mark.parametrize("location", ["end", "start"])
@pytest.mark.parametrize("kind", ["files", "requests"])
def test_each_shard_is_read_by_its_own_index(tmp_path, kind, location):
    """Reads go through shards with the same index as the last, with another, and back."""
    values = numbers((30, 3, 10)) + 1
    form = f"index at the {location}"
    array = made(tmp_path, values.shape, (5, 3, 10), form=form, fill_value=7.5)
    in_order, turned = range(5), range(4, -1, -1)
    for i, places in enumerate([in_order, in_order, turned, None, None, in_order]):
        rows = values[5 * i : 5 * i + 5]
        parts = list(parts_of(rows))
        if places is None:
            for number in (1, 3):
                parts[number], rows[:, :, 2 * number : 2 * number + 2] = None, 7.5
        put(array, shard_of(parts, location, places=places), f"c/{i}/0/0")
    if kind == "requests":
        array = zarr.open_array(CountingStore(array.store), mode="r")
    for selection in np.s_[:, 1], np.s_[:, 1, 3], np.s_[:, :2, 1:8], np.s_[...]:
        for _ in range(2):
            assert np.array_equal(array[selection], values[selection])


@needs_pwrite
class TestInPlace:
    @pytest.mark.parametrize("form", ["index at the end", "index at the start", "no checksum"])
    def test_a_shard_without_a_needed_inner_chunk_is_replaced_by_a_complete_one(
        self, tmp_path, form
    ):
        array = again(made(tmp_path, form=form, fill_value=7))
        values = VALUES[:5, :6].copy()
        values[:, :3, 2:6] = values[:, 3:, :2] = 7
        parts = [part if i not in (1, 2, 5) else None for i, part in enumerate(parts_of(values))]
        path = put(array, shard_of(parts, **FORMS[form][1]))
        before = path.stat().st_ino
        array[0, 0, :2] = values[0, 0, :2] = -1  # of one that is there
        assert path.stat().st_ino == before
        array[0, 0, 1:3] = values[0, 0, 1:3] = -2  # and of one that is not
        assert path.read_bytes() == content_of(values, form=form)
        complete = path.stat().st_ino
        array[0, 0, 5] = values[0, 0, 5] = -3  # which is there now
        assert path.stat().st_ino == complete
        assert path.read_bytes() == content_of(values, form=form)

    @pytest.mark.parametrize("start", [0, 8], ids=["all", "half"])
    def test_inner_chunks_that_share_bytes_are_parted_by_a_new_shard(self, tmp_path, start):
        array = again(made(tmp_path, (6,), (6,), (2,)))
        parts = [encoded(np.full(2, value), "float64", "big") for value in (3.0, 3.0, 5.0)]
        path = put(array, shard_of(parts, entries={1: (start, 16)}), "c/0")
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

    def test_a_column_of_a_new_shard_behind_its_index_is_written_through_a_mapping(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("zarr_bytes.io.range_writing.is_local", lambda file: True)
        array = again(made(tmp_path, (64, 64), (64, 64), (4, 8), form="index at the start"))
        values = np.zeros((64, 64))
        array[:, 9:60:5] = values[:, 9:60:5] = numbers((64, 64))[:, 9:60:5]
        assert np.array_equal(array[...], values)


@both_ways
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_the_last_of_several_values_for_a_point_counts(tmp_path, kind, is_in_place):
    array = made(tmp_path if kind == "local" else None, (2, 6), (2, 6), (1, 2))
    array = again(array, is_in_place)
    array[...] = 9
    points = ([1, 0, 1, 1, 0], [3, 0, 3, 5, 0])
    array.set_coordinate_selection(points, np.array([1, 2, 3, 4, 5.0]))
    assert array[...].tolist() == [[5, 9, 9, 9, 9, 9], [9, 9, 9, 3, 9, 4]]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_shard_that_is_replaced_has_no_empty_inner_chunks(tmp_path, kind):
    array = made(tmp_path if kind == "local" else None)
    values = VALUES[:5, :6].copy()
    values[:, :3, 2:6] = 0
    array[:5, :6] = values
    for absent in [1, 2], [1, 2, 3, 4]:
        entries = entries_in(contents_of(array.store)["c/0/0/0"], COUNT)
        assert [i for i, entry in enumerate(entries) if entry == ABSENT] == absent
        found = [entry for entry in entries if entry != ABSENT]
        assert found == [(240 * i, 240) for i in range(COUNT - len(absent))]
        assert np.array_equal(array[:5, :6], values)
        array[:5, :3, 4:] = values[:, :3, 4:] = 0
    array[:5, :6] = 0
    assert keys_of(array.store) == []


@both_ways
@pytest.mark.parametrize("data_type", ["float64", "text", "struct"])
def test_a_shard_without_axes(tmp_path, data_type, is_in_place):
    about = document_of(data_type, (), (), "big")
    about = {name: about[name] for name in ("data_type", "fill_value")}
    array = again(made(tmp_path, (), (), (), **about), is_in_place)
    for seed in range(3):
        value = values_of(data_type, (), seed)
        array[...] = value
        same(array[...], value)
        assert (tmp_path / "c").read_bytes() == shard_of([encoded(value, data_type, "big")])


@both_ways
def test_elements_behind_the_edge_of_the_array_are_kept_as_by_zarr(tmp_path, is_in_place):
    """Where all within the array is written; zarr fills up other chunks than shards."""
    array = again(made(tmp_path, (4,), (4,), (2,)), is_in_place)
    array[:] = [1, 2, 3, 4]
    array.resize((2,))
    array[:] = [9, 9]
    array.resize((4,))
    assert array[:].tolist() == [9, 9, 3, 4]
