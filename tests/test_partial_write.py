"""Writing a selection of a chunk through zarr: the setting, forms of values, new and empty chunks.

The oracle is NumPy, and for stored bytes the layout by hand. `test_model.py` has writes of every
form, and `test_cost.py` the bytes that are written.
"""

import pickle
import shutil
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE
from documents import document_of, write
from fuzz import conditions, filled_up, fuzz, store_with, transposed
from fuzz_arrays import Format2, arrays, selections, sharded
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from shards import divided, morton_order, shard_of
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    contents_of,
    created,
    keys_of,
    numbers,
    stored,
)
from system_calls import written_to
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BytesCodec, view

# zarr warns that some of its types have no specification, and 3.1 of structured ones.
pytestmark = pytest.mark.filterwarnings("ignore:The data type")

BIG = BytesCodec(endian="big")
LAYOUTS = {
    "chunks": {},
    "shards": {"serializer": ShardingCodec(chunk_shape=(1, 2), codecs=[BIG])},
}
both_ways = pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])


def stored_after(shard, key, values, is_selected, is_in_place):
    """What may be stored for a shard that is written to, and whether its file stays."""
    is_whole = is_selected[shard.region(key)].all()
    in_file = replace(shard, missing=[]).chunks(values)[key]
    number = shard.keys.index(key)
    full, selected = ([*filled_up(a, shard.chunk_shape)][number] for a in (values, is_selected))
    is_needed = [p.any() for p in divided(transposed(selected, shard.before), shard.inner_shape)]

    def in_order(absent):
        parts = [
            None if number in absent and not is_needed[number] else part
            for number, part in enumerate(shard.parts(full))
        ]
        return shard_of(parts, **shard.index, places=morton_order(shard.counts))

    every = range(shard.count)
    absent = every if key in shard.missing else shard.absent(key)
    if is_whole:  # of what is behind the array's edge, any
        return [in_file, in_order(()), in_order(absent), in_order(every)], False
    if is_in_place and not any(is_needed[number] for number in absent):
        return [in_file], True
    return [in_order(() if is_in_place else absent)], False


def test_a_row_is_written_and_the_others_stay(tmp_path):
    array, expected = stored(LocalStore(tmp_path), numbers((4, 6)), in_place=True), numbers((4, 6))
    array[1] = expected[1] = 7
    assert np.array_equal(array[...], expected)


@fuzz(examples=20)
@given(data=st.data())
def test_a_write_to_a_shard_changes_the_selected_bytes_and_no_others(tmp_path_factory, data):
    """Nor the index, nor what is between inner chunks; a new one has them all, in Morton order.

    Where a shard is replaced, no inner chunk is added to those that it had but what is selected.
    The bytes of other chunks are those of their elements, which `test_model.py` has.
    """
    is_in_place = data.draw(st.booleans())
    kind = "local" if is_in_place else data.draw(st.sampled_from(["local", "memory"]))
    shard = data.draw(arrays(least_size=1, can_be_missing=True).flatmap(sharded))
    assume(shard.name not in ("int2", "int4"))  # of which bits that do not count are written
    selection = data.draw(selections(shard.shape, shard.chunk_shape, to_write=True))
    is_selected = np.zeros(shard.shape, bool)
    selection.assign(is_selected, True)
    assume(is_selected.any() and not is_selected.all())
    values, folder = shard.values(), tmp_path_factory.mktemp("a")
    part = selection.take(shard.values(1))
    store = store_with(kind, shard.objects(values), folder)
    expected = {key: [content] for key, content in contents_of(store).items()}
    inodes = {key: (folder / key).stat().st_ino for key in expected if kind == "local"}
    settings = {"zarr_bytes__partial_writes": is_in_place, "array__write_empty_chunks": True}
    with conditions(data.draw, "BatchedBytesPipeline", **settings):
        selection.write(zarr.open_array(store, mode="r+"), part)
    selection.assign(values, part)
    for key in shard.keys:
        stays = True
        if is_selected[shard.region(key)].any():
            expected[key], stays = stored_after(shard, key, values, is_selected, is_in_place)
        if stays and key in inodes:
            assert (folder / key).stat().st_ino == inodes[key]
    found = contents_of(store)
    assert found.keys() == expected.keys()
    assert [key for key in found if found[key] not in expected[key]] == []


class TestTheSetting:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_an_array_keeps_the_setting_of_partial_writes_it_was_opened_with(
        self, tmp_path, layout
    ):
        """Also where it is pickled; another configuration takes the setting of the moment."""
        replaced = stored(LocalStore(tmp_path), np.ones((40, 2), "i2"), **LAYOUTS[layout])
        with zarr.config.set(IN_PLACE):
            in_place = zarr.open_array(tmp_path, mode="r+")
            pickled = [pickle.dumps(array) for array in (replaced, in_place)]
            configured = replaced.with_config({"write_empty_chunks": False})
            with written_to(tmp_path / "c/0/0") as counted:
                replaced[1] = 5
                pickle.loads(pickled[0])[2] = 5  # noqa: S301
            assert counted == []
        with written_to(tmp_path / "c/0/0") as counted:
            in_place[3] = 5
            pickle.loads(pickled[1])[4] = 5  # noqa: S301
            configured[5] = 5
        assert counted == [(12, 4), (16, 4), (20, 4)]
        assert (in_place[1:6] == 5).all()


REFUSED = [  # selections by `oindex` of an array of 8 x 12, and shapes that they do not have
    *((np.s_[:, :], shape) for shape in ((8, 11), (8, 13), (7, 12), (9, 12), (8,), (2, 8, 12))),
    (np.s_[1:7, 1:11], (6, 9)),
    (np.s_[1:7, 1:11], (6, 10, 1)),
    (np.s_[3], (11,)),
    (np.s_[3], (12, 1)),
    (([5, 0, 1], [7, 1]), (2, 2)),
    (([5, 0, 1], [7, 1]), (2, 3)),
]


def of_another_library(array):
    """The same as an array that is none of NumPy's."""
    names = {"shape": array.shape, "dtype": array.dtype, "__getitem__": lambda _, at: array[at]}
    return type("Array", (), names)()


def without_a_name(array):
    """Of a mapping that does not say which file it maps."""
    with Path(array.filename).open("rb") as file:
        mapping = mmap(file.fileno(), 0, access=ACCESS_READ)
    return np.frombuffer(mapping, array.dtype, array.size)


DISGUISES = [  # of the memory of an array, which is another object's then
    as_strided,
    lambda array: sliding_window_view(array, 1)[:, 0],
    lambda array: np.from_dlpack(array.view("u1")).view(array.dtype),
    without_a_name,
]
OVERLAPS = [  # shape, that of chunks, what is written, of which elements of a view or file, how
    *(
        ((8,), (size,), np.s_[1:5], np.s_[start : start + 4], None, given)
        for given in (np.asarray, of_another_library)
        for size in (8, 4)
        for start in range(4)
    ),
    *(((3, 4), (1, 4), np.s_[:, :3], np.s_[row, 1:], None, np.asarray) for row in range(3)),
    ((3, 4), (1, 4), np.s_[:, :3], np.s_[1, 1:], None, of_another_library),
    *(  # of several pages
        ((2**16,), (2**16,), np.s_[1:], np.s_[:-1], "c/0", given)
        for given in (np.asarray, *DISGUISES)
    ),
]


def read_by_a_thread(array, indices):
    return ThreadPoolExecutor(1).submit(array.__getitem__, indices).result(timeout=10)


READS = [zarr.Array.__getitem__, read_by_a_thread]


class TestForms:
    """Which shapes of values fit: with the setting as without it."""

    @pytest.mark.parametrize(
        ("selection", "shape"),
        [
            (np.s_[2], (1, 8, 10)),
            (np.s_[2:4], (2, 1, 10)),
            (np.s_[2:4, :, 3], (2, 1)),
            (np.s_[2:3, :, 3:4], (1, 8, 1)),
            (([1, 2], 3, [0, 5, 7]), (1, 3)),
            (([2, 1], 3, 4), (2,)),
            ((1, 3, [4, 9]), (2,)),
            (([1], [2, 3], [4]), (1, 2, 1)),
            ((np.arange(6) % 2 == 0, 2, slice(0, 9, 4)), (3, 3)),
        ],
        ids=str,
    )
    def test_values_are_broadcast_over_axes_of_integers_and_of_one(
        self, tmp_path, selection, shape
    ):
        array = created(LocalStore(tmp_path), (6, 8, 10), "f8")
        plain = created(MemoryStore(), (6, 8, 10), "f8", serializer=zarr.codecs.BytesCodec())
        values = np.random.default_rng(0).random(shape)
        for each in (array, plain):
            each[...] = 7
            each.set_orthogonal_selection(selection, values)
        assert np.array_equal(array[...], plain[...])
        assert (array[...] != 7).sum() >= values.size

    @both_ways
    @pytest.mark.parametrize("kind", ["local", "memory"])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_a_value_that_does_not_fit_is_refused_before_anything_is_written(
        self, tmp_path, kind, layout, in_place
    ):
        store = store_with(kind, {}, tmp_path)
        array = created(store, (8, 12), "i4", (4, 6), in_place=in_place, **LAYOUTS[layout])
        array[...] = 7
        for selection, shape in REFUSED:
            message = rf"{'.*'.join(map(str, shape))}.* do not fit .*, which has the shape"
            with pytest.raises(ValueError, match=message):
                array.oindex[selection] = np.ones(shape)
        with pytest.raises((TypeError, ValueError)):
            array[:6] = np.full((6, 12), "a")
        assert (array[...] == 7).all()
        assert not list(tmp_path.rglob("*.partial"))

    def test_values_in_another_byte_order_memory_or_library(self, tmp_path):
        array, model = created(LocalStore(tmp_path), (6, 8), "f8"), np.zeros((6, 8))
        values = np.random.default_rng(0).random((8, 6)).astype(">f8").T
        array[1:4] = model[1:4] = values[1:4]
        array[:, ::2] = model[:, ::2] = values[::-1, ::2]
        assert np.array_equal(array[...], model)
        for selection in np.s_[1:3], np.s_[2], ...:
            part = np.arange(48.0).reshape(6, 8)[selection]
            array[selection] = np.ma.masked_array(part, mask=part % 2 == 0)
            model[selection] = part
            assert np.array_equal(array[...], model)

    @both_ways
    @pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
    def test_a_masked_element_is_nan_or_an_error_as_for_plain_zarr(self, tmp_path, in_place):
        masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0])
        array = created(tmp_path / "f8", 3, "f8", in_place=in_place)
        for i, element in enumerate(masked):
            array[i] = element
        assert np.array_equal(array[...], [1, np.nan, 3], equal_nan=True)
        with zarr.config.set(PLAIN_ZARR):
            plain = created(tmp_path / "plain", 3, "i4", serializer="auto")
        for each in plain, created(tmp_path / "i4", 3, "i4", in_place=in_place):
            with pytest.raises(np.ma.MaskError):
                each[1] = masked[1]
            for selection, element in (np.s_[:2], masked[1]), (np.s_[1:], masked[1:2].reshape(())):
                each[selection], expected = element, each[...]
                expected[selection] = element  # without its mask
                assert np.array_equal(each[...], expected)
            assert each[...].tolist() == [0, 2, 2]

    @pytest.mark.parametrize("reads", READS)
    def test_a_value_may_read_an_array_of_zarr(self, tmp_path, reads):
        """As those of Dask and of xarray do, where their elements are asked for."""
        source = stored(LocalStore(tmp_path / "source"), numbers(8, "i4"))
        names = {"shape": (4,), "dtype": source.dtype}
        names["__getitem__"] = lambda _, at: reads(source, np.arange(2, 6)[at])
        array = created(tmp_path / "array", 8, "i4", 4)
        array[1:5] = type("Lazy", (), names)()
        assert array[...].tolist() == [0, 2, 3, 4, 5, 0, 0, 0]

    @pytest.mark.parametrize("selection", [np.s_[1:3], ...], ids=["part", "whole"])
    def test_records_with_other_fields_are_converted_as_numpy_does(self, tmp_path, selection):
        array = created(LocalStore(tmp_path), 4, [("a", "<i4"), ("b", "<f4")])
        values = np.array([(1.5, 2), (3.5, 4)] * 2, [("x", "<f4"), ("y", "<i4")])[selection]
        array[selection] = values
        assert array[selection].tolist() == [(int(x), float(y)) for x, y in values]

    def test_true_is_stored_as_a_byte_of_one(self, tmp_path):
        array = created(LocalStore(tmp_path), (4, 5), "?")
        array[1] = np.array([0, 1, 2, 128, 255], "u1").view("?")
        assert (tmp_path / "c/0/0").read_bytes()[5:10] == bytes([0, 1, 1, 1, 1])

    @both_ways
    @pytest.mark.parametrize("kind", ["local", "memory"])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_last_value_of_a_point_that_is_selected_twice_is_written(
        self, tmp_path, kind, layout, in_place
    ):
        store = store_with(kind, {}, tmp_path)
        array = created(store, (2, 6), "i4", in_place=in_place, **LAYOUTS[layout])
        points = ([1, 0, 1, 1, 0], [3, 0, 3, 5, 0])
        for number in 0, 10:  # of a missing chunk, and of one that is there
            values = np.arange(1, 6) + number
            array.set_coordinate_selection(points, values)
            _, _, third, fourth, last = values.tolist()
            assert array[...].tolist() == [[last, *[0] * 5], [0, 0, 0, third, 0, fourth]]

    @both_ways
    @pytest.mark.parametrize("kind", ["local", "memory"])
    def test_as_many_indices_as_a_chunk_is_long_may_leave_some_out(self, tmp_path, kind, in_place):
        store = store_with(kind, {}, tmp_path)
        array = stored(store, np.arange(1, 5, dtype="i4"), in_place=in_place)
        array.oindex[[0, 1, 1, 3]] = np.array([5, 6, 7, 8])
        assert array[...].tolist() == [5, 7, 3, 8]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["plain", "transposed"])
    def test_an_array_of_the_caller_stays_unchanged_once_it_is_written(self, order):
        filters = [TransposeCodec(order=order)]
        array = created(MemoryStore(), (8, 8), ">i4", filters=filters)
        values = np.ones((8, 8), ">i4")
        array[...] = values
        array[2] = 5
        assert (values == 1).all()
        if HAS_FUSED_PIPELINE:  # the memory store of older zarr keeps the memory itself
            array[...] = values
            values[...] = 7
            assert (array[...] == 1).all()

    @pytest.mark.parametrize(("shape", "chunks", "target", "source", "mapped", "given"), OVERLAPS)
    def test_values_that_map_the_chunk_file_itself_are_written(
        self, tmp_path, shape, chunks, target, source, mapped, given
    ):
        expected = numbers(shape, "i8")
        array = stored(LocalStore(tmp_path), expected, chunks, in_place=True)
        mapping = view(array) if mapped is None else np.memmap(tmp_path / mapped, ">i8", mode="r")
        elements = mapping[source]
        if len(shape) > 1:
            elements = np.broadcast_to(elements, expected[target].shape)
        array[target] = given(elements)
        expected[target] = expected[source].copy()
        assert np.array_equal(array[...], expected)


@both_ways
def test_records_of_format_2_keep_the_byte_order_of_each_field(tmp_path, in_place):
    """Whatever the byte orders of the values that are written, and of the memory to read into."""
    dtype, content = np.dtype([("a", ">i2"), ("b", "<f8")]), b""
    options = {"serializer": "auto", "zarr_format": 2, "in_place": in_place}
    array = created(LocalStore(tmp_path), 6, dtype, **options)
    for place, of_values in enumerate([dtype, dtype.newbyteorder(), dtype.newbyteorder("=")]):
        values = [(2 * place + 1, 2.5), (2 * place + 2, -0.5)]
        array[2 * place : 2 * place + 2] = np.array(values, of_values)
        content += b"".join(struct.pack(">h", a) + struct.pack("<d", b) for a, b in values)
        assert (tmp_path / "0").read_bytes()[: len(content)] == content
        out = np.zeros(2, of_values)
        for read, selection in (
            (array.get_basic_selection, np.s_[:2]),
            (array.get_orthogonal_selection, [0, 1]),
        ):
            read(selection, out=cpu.NDBuffer.from_numpy_array(out))
            assert out.tolist() == [(1, 2.5), (2, -0.5)]
            out[...] = 0


class TestNewAndEmptyChunks:
    """`test_model.py` has new chunks of every fill value."""

    @both_ways
    @pytest.mark.parametrize("fill_value", [0, 7])
    @pytest.mark.parametrize("writes_empty", [False, True])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_a_chunk_of_the_fill_value_is_stored_where_empty_chunks_are_written(
        self, tmp_path, in_place, layout, fill_value, writes_empty
    ):
        options = {"fill_value": fill_value, "config": {"write_empty_chunks": writes_empty}}
        options |= {"in_place": in_place, **LAYOUTS[layout]}
        array = created(LocalStore(tmp_path), (3, 8), "u1", (1, 8), **options)
        array[0, 2:4] = fill_value
        array[1, 1::2] = np.full(4, fill_value)
        array[2] = np.full(8, fill_value, order="F")
        assert keys_of(array.store) == ["c/0/0", "c/1/0", "c/2/0"] * writes_empty
        assert (array[...] == fill_value).all()
        array[1] = 9
        array[1] = fill_value
        assert ("c/1/0" in keys_of(array.store)) is writes_empty

    def test_numbers_equal_to_the_fill_value_with_other_bits_are_stored(self, tmp_path):
        other_nan = np.uint32(0x7FC00001).view("f4")
        for fill_value, value in (0.0, -0.0), (-0.0, 0.0), (np.nan, other_nan):
            options = {"fill_value": fill_value, "overwrite": True}
            array = created(LocalStore(tmp_path), (8,), "f4", **options)
            array[...] = expected = np.full(8, value, "f4")
            assert array[...].tobytes() == expected.tobytes()

    @pytest.mark.parametrize("size", [3, 8, 12], ids="{} bytes".format)
    def test_a_large_chunk_with_one_element_that_is_no_fill_value_is_stored(self, tmp_path, size):
        """Wherever it is: such a chunk is encoded and compared in blocks of several sizes."""
        count, fill = 150_000, bytes(range(1, size + 1))
        document = document_of(f"r{8 * size}", [count], fill_value=list(fill))
        array = zarr.open_array(write(tmp_path, document), mode="r+")
        for place in 5461, 5462, 8191, 8192, 21_845, 21_846, 65_535, 65_536, -1:
            values = np.full(count, np.void(fill))
            array[...] = values
            assert keys_of(array.store) == []
            values.view("u1").reshape(count, -1)[place, -1] ^= 1
            array[...] = values
            assert array[...].tobytes() == values.tobytes()

    def test_chunks_that_zarr_leaves_out_in_format_2_are_left_out(self, tmp_path):
        """Of a fill value that is null, too, where zarr has one of its own."""
        names = "bool int16 float32 complex64 datetime text ascii r24 mixed bfloat16".split()
        not_null = [("float32", True), ("datetime", True)]
        for name, has_fill_value in [*((name, False) for name in names), *not_null]:
            example = Format2(name, sys.byteorder, (6,), (2,), [], [], 0, ".", has_fill_value)
            stored_by = []
            for number, settings in enumerate([PLAIN_ZARR, IN_PLACE]):
                folder = tmp_path / f"{name} {has_fill_value} {number}"
                folder.mkdir()
                with zarr.config.set(settings):
                    array = zarr.open_array(store_with("local", example.objects(), folder))
                missing = array[:2]
                array[:2] = missing
                array[2:4] = example.values()[:2]
                array[4] = missing[0]
                stored_by.append(contents_of(array.store))
                assert keys_of(array.store) == ["1"]
                array[2:4] = missing
                assert keys_of(array.store) == []
            assert stored_by[0] == stored_by[1]

    def test_a_large_chunk_is_filled_to_its_end_and_no_further(self, tmp_path):
        array = created(LocalStore(tmp_path), (400_000,), "i4", fill_value=7)
        array[5] = 1
        assert (tmp_path / "c/0").stat().st_size == 1_600_000
        assert np.array_equal(np.flatnonzero(array[...] != 7), [5])


class TestChunkFiles:
    def test_the_folder_of_an_array_is_found_in_a_group_and_at_a_relative_root(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        zarr.create_group(tmp_path)
        created("a b/c.d", (8, 9), "u1")
        with zarr.config.set(IN_PLACE):
            arrays = [zarr.open_group(tmp_path, mode="r+")["a b/c.d"], zarr.open_array("a b/c.d")]
        for array in arrays:
            array[2, 3:5] = 7  # makes the chunk, and its folder again
            array[3, 3:5] = 7
            assert (tmp_path / "a b/c.d/c/0/0").read_bytes().count(7) == 4
            shutil.rmtree(tmp_path / "a b")

    def test_a_subclass_of_the_local_store_gets_whole_chunks(self, tmp_path):
        class Logged(LocalStore):
            _supports_sync_io = False
            keys = []

            async def set(self, key, value):
                self.keys.append(key)
                await super().set(key, value)

        array = created(Logged(tmp_path), (8, 9), "i4")
        Logged.keys.clear()
        array[2, 3] = 7
        array[3, 3] = 7
        assert Logged.keys == ["c/0/0", "c/0/0"]
        assert array[2:4, 3].tolist() == [7, 7]
