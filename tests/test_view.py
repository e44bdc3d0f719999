"""`zarr_bytes.view`: selections against NumPy, what is mapped, changed and refused."""

import errno
import gc
import itertools
import os
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from operator import setitem
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np
import pytest
import stored_arrays
import zarr
from documents import BIG, document_of, text_of, write
from fuzz import ALL_TYPES, fuzz, same, store_with
from fuzz_arrays import arrays, of_format_2, sharded
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, integer_array_indices
from shards import shard_of, sharding
from stored_arrays import IN_PLACE, KINDS_OF_NO_FILE, CountingStore, contents_of, numbers, put
from system_calls import before_each, fail_at, interrupted, watched
from zarr.storage import LocalStore, MemoryStore

import zarr_bytes
from zarr_bytes import ChunkFileError, ChunkSizeError, ShardIndexError, StoreError

needs_maps = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="lists mapped files")
needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="changed in place on POSIX")
every_mode = pytest.mark.parametrize("mode", ["r", pytest.param("r+", marks=needs_pwrite)])

SHAPE = (9, 8, 10)
VALUES = numbers(SHAPE, "f4") + 1
FORMS = {  # parameters of zarr.create_array
    "one chunk": {"chunks": SHAPE},
    "chunks": {"chunks": (4, 5, 10)},
    "shards": {"chunks": (2, 5, 5), "shards": (4, 5, 10)},
}


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def form(request):
    return request.param


def stored(store, values=VALUES, **options):
    return stored_arrays.stored(store, values, **{**FORMS["chunks"], **options})


def changed(store, **options):
    """An array, and a view that can be assigned to."""
    array = stored(store, in_place=True, **options)
    return array, zarr_bytes.view(array, "r+")


@contextmanager
def any_view(data, mode="r", **options):
    """Any array as it is stored, the array as zarr opens it, and a view of it."""
    example = data.draw(arrays(**options))
    layout = data.draw(st.sampled_from(["chunks", "shards", "format 2"]))
    if layout == "shards":
        example = data.draw(sharded(example, can_be_sparse=mode == "r"))
    elif layout == "format 2":
        example = data.draw(of_format_2(example))
    _, units, *_ = ALL_TYPES[example.name]
    # Types that are not NumPy's own have no view in another byte order.
    assume(example.dtype.num < 256 or example.endian == sys.byteorder or max(units) == 1)
    kind = data.draw(st.sampled_from(["local", "memory"])) if mode == "r" else "local"
    with TemporaryDirectory() as folder, zarr.config.set(IN_PLACE):
        store = store_with(kind, example.objects(example.values()), Path(folder))
        array = zarr.open_array(store, mode="r+")
        yield example, array, zarr_bytes.view(array, mode)


@st.composite
def selections(draw, shape):
    """As NumPy takes them: basic, points, or every combination of arrays beside others."""
    kinds = ["basic", "points", "arrays"] if shape and 0 not in shape else ["basic"]
    kind = draw(st.sampled_from(kinds))
    if kind == "basic":
        selection = draw(basic_indices(shape, allow_newaxis=False))
        return selection if isinstance(selection, tuple) else (selection,)
    if kind == "points":
        sizes = array_shapes(min_side=0, max_dims=3)
        return draw(integer_array_indices(shape, result_shape=sizes))
    entries = []
    for n in shape:
        index = st.integers(-n, n - 1)
        entries.append(draw(index | st.slices(n) | st.lists(index, max_size=9)))
    arrays = iter(np.ix_(*[entry for entry in entries if isinstance(entry, list)]))
    return tuple([next(arrays) if isinstance(entry, list) else entry for entry in entries])


@pytest.fixture
def no_collector():
    gc.disable()
    yield
    gc.enable()


def mapped(folder):
    """Chunks below `folder` that this process has mapped, one for each mapping."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted(line.partition("/c/")[2] for line in lines if f" {folder}/" in line)


def open_files_below(folder):
    """Files below `folder` that this process has open, one for each descriptor."""
    files = map(os.path.realpath, Path("/proc/self/fd").glob("*"))
    return [file for file in files if file.startswith(f"{folder}/")]


def test_a_view_is_sliced_as_a_numpy_array(tmp_path):
    view = zarr_bytes.view(stored(LocalStore(tmp_path)))
    assert np.array_equal(view[7, 2:4], VALUES[7, 2:4])


class TestSelections:
    @fuzz(examples=50)
    @given(st.data())
    def test_selections_of_views_are_numpys_for_any_array_and_layout(self, data):
        """Slices and integers within one block are a view of it, all others a copy."""
        with any_view(data, can_be_missing=True) as (example, _, view):
            values, selection = example.values(), data.draw(selections(example.shape))
            found, expected = view[selection], values[selection]
            assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray)
            same(found, expected)
            same(view, values)
            numbers_of_blocks = np.zeros(example.shape, int)
            assert len(view.blocks) == len(list(view.blocks))
            for number, place in enumerate(np.ndindex(view.blocks.shape)):
                # A block is a chunk or an inner chunk, cut to the array.
                part = [slice(i * n, (i + 1) * n) for i, n in zip(place, view.chunks, strict=True)]
                numbers_of_blocks[tuple(part)] = number
                from_the_end = np.subtract(place, view.blocks.shape).tolist()
                for block in view.blocks[place], view.blocks[tuple(from_the_end)]:
                    same(block, values[(*part, ...)])
                    assert not block.flags.writeable
            if isinstance(found, np.ndarray) and found.size:
                selected = np.unique(numbers_of_blocks[selection])
                is_basic = not any(isinstance(entry, (np.ndarray, list)) for entry in selection)
                is_view = is_basic and selected.size == 1
                place = np.unravel_index(selected[0], view.blocks.shape)
                assert np.may_share_memory(found, view.blocks[place]) == is_view
                assert found.flags.writeable != is_view

    @pytest.mark.parametrize("dtype", ["i1", "u1", "i2"])
    def test_indices_of_few_bits_reach_the_end_of_a_long_axis(self, dtype):
        values, indices = numbers((40_000,)), np.array([1, 127, -1, -128]).astype(dtype)
        assert np.array_equal(
            zarr_bytes.view(stored({}, values, chunks=(30_000,)))[indices], values[indices]
        )

    def test_axes_of_a_selection_of_a_view_are_in_numpys_order(self, form):
        """Also with dots, which separate arrays where they stand for no axis."""
        view = zarr_bytes.view(stored({}, **form))
        selected = [([5, 0], 3, [1, 9]), ([], 0, [1]), (np.zeros((0, 2), int), [[0, 0]], 1)]
        selected += [([[5, 0], [1, 8]],), (np.arange(9) % 3 == 0, 4), (5, np.uint8([7, 6]))]
        selected += [([[5, 0], [1, 8]], [3, 7], 2), np.s_[5, 7:5:-1, 7], np.s_[5, 3::-1]]
        selected += [(slice(i, j), slice(1, 4)) for i, j in itertools.combinations(range(10), 2)]
        for kinds in itertools.product([-3, np.int64(-3), slice(1, 6, 2), list], repeat=3):
            arrays = iter(np.ix_(*[[5, -8, 0, 5], [-6, 7], [1, 6, -3]][: kinds.count(list)]))
            entries = [next(arrays) if kind is list else kind for kind in kinds]
            selected += [entries, *([*entries[:i], ..., *entries[i:]] for i in range(4))]
        for entries in selected:
            indices = tuple(np.array(e, int) if isinstance(e, list) else e for e in entries)
            same(view[tuple(entries)], VALUES[indices])
        values = VALUES.reshape(3, 3, 8, 10)
        view = zarr_bytes.view(stored({}, values, chunks=(2, 2, 5, 10)))
        for second, last in ([[2], [0]], [[9, 1, 5]]), ([2, 0, 1], 4), (1, [[9], [1]]):
            around = (slice(None), second, slice(3, 6), last)
            same(view[around], values[around])

    @needs_pwrite
    def test_rows_of_more_than_a_cache_holds_come_in_any_order(self, tmp_path):
        """In pieces, beside the result, of 1 MiB, or of one row if it is larger."""
        values, memory = numbers((3, 700, 1000), ">u4"), stored_arrays.most_memory
        array, view = changed(tmp_path, values=values, chunks=(2, 650, 900))
        some = np.random.default_rng(0).permutation(700)[:600]
        pieces = (np.s_[:, some, 3:900:2], 2**20), (np.s_[1:, 5:, some], 2**20)
        for selection, nbytes in (*pieces, ([2, 0, 1, 0], 650 * 900 * 4)):
            found, taken = memory(lambda: view[selection])  # noqa: B023
            same(found, values[selection])
            assert taken < found.nbytes + 1.2 * nbytes
        assert memory(lambda: setitem(view, np.s_[:, some], values[:, :600]))[1] < 1.2 * 2**20
        values[:, some] = values[:, :600].copy()
        same(array[...], values)

    @pytest.mark.parametrize(
        ("selection", "advice"),
        [
            ((..., None), "add these to the result"),
            ((..., 0, ...), "at most once"),
            ("field", "found the text 'field': select a field of the result"),
            (VALUES > 3, r"found bools of shape \(9, 8, 10\): `array\.vindex\[\.\.\.\]`"),
            ([True] * 8, r"found bools of shape \(8,\)"),
            (np.zeros(0), r"found array\(\[\], dtype=float64\) of type ndarray"),
            (([0, 1], slice(None), [0, 1]), r"array\.oindex\[\.\.\.\]"),
            (1.5, "found 1.5 of type float"),
            (([], [0, 1], 0), r"shapes \(0,\) and \(2,\) cannot be broadcast"),
            ([[1], [1, 2]], r"\[\[1\], \[1, 2\]\], not an array"),
            (slice("a", None), r"slice\('a', None, None\), which has bounds of other types"),
            (np.int64(9), "index 9 is outside axis 0, which has 9 elements"),
            (np.s_[0, 0, -11], "index -11 is outside axis 2, which has 10 elements"),
            (np.s_[0, 10, 0], "index 10 is outside axis 1, which has 8 elements"),
            ([0, 9], "index 9 is outside axis 0"),
            ([0, -10], "index -10 is outside axis 0"),
            (np.s_[0, 0, 0, 0], "4 entries, and the array 3 axes"),
        ],
    )
    def test_a_wrong_form_of_selection_of_a_view_says_what_to_call(self, selection, advice):
        with pytest.raises(IndexError, match=advice):
            zarr_bytes.view(stored({}))[selection]

    def test_a_block_of_a_view_outside_its_grid_is_an_error(self):
        blocks = zarr_bytes.view(stored({})).blocks
        for place in (3, 0, 0), (-4, 0, 0), (0, 0, 1), (0, 0), 0:
            with pytest.raises(IndexError, match=re.escape(f"{place} among (3, 2, 1) blocks")):
                blocks[place]
        with pytest.raises(IndexError, match=r"by integers, found \(0, slice"):
            blocks[0, :, 0]

    def test_a_view_may_have_more_elements_than_64_bits_count(self):
        options = {"dtype": "i4", "chunks": (2**4,) * 2, "fill_value": 3, "compressors": None}
        view, largest, larger = [
            zarr_bytes.view(zarr.create_array({}, shape=shape, **options))
            for shape in ((2**40, 2**40), (2**31 - 1, 2**31), (2**31, 2**31))
        ]
        for rows, count in ((np.s_[-2000:], 2000), (np.s_[[5, 2**39]], 2)):
            same(view[rows, 1020:1030], np.full((count, 10), 3, "i4"))
        assert next(iter(view.blocks)).shape == view.chunks
        same(largest[[1, -1], [3, -1]], np.full(2, 3, "i4"))
        with pytest.raises(IndexError, match=r"points .* less than 2\*\*62 elements"):
            larger[[1, 2], [3, 4]]
        with pytest.raises(OverflowError, match=f"there are {2**72} blocks"):
            len(view.blocks)

    def test_a_missing_block_of_a_view_has_the_fill_value_and_takes_no_memory(self, tmp_path):
        document = document_of("float32", (10, 10), (2, 10), "big", fill_value="0x7fa00001")
        view = zarr_bytes.view(zarr.open_array(write(tmp_path, document), mode="r"))
        assert (view.blocks[4, 0].shape, view.blocks[4, 0].strides) == ((2, 10), (0, 0))
        assert view[:].tobytes() == b"\x7f\xa0\x00\x01" * 100


class TestArrays:
    """What libraries ask of an array."""

    def test_properties_and_samples_of_a_view_are_those_of_the_array(self, form):
        array, chunks = stored({}, **form), form["chunks"]
        view = zarr_bytes.view(array)
        same(np.stack(list(view)), VALUES)  # as `torch.utils.data.DataLoader` draws them
        assert (view.shape, view.ndim, view.size, len(view)) == (SHAPE, 3, 720, 9)
        assert (view.dtype, view.chunks, view.nbytes) == (">f4", chunks, 2880)
        named = f"{array.store_path} shape={SHAPE} dtype=>f4 chunks={chunks} mode='r'"
        assert repr(view) == f"<ArrayView {named}>"
        assert repr(view.blocks) == f"<BlockViews shape={view.blocks.shape}>"
        with pytest.raises(TypeError, match="without axes"):
            len(zarr_bytes.view(stored({}, np.array(3, "i2"), chunks=())))

    def test_numpy_copies_a_view_of_one_chunk_only_where_it_is_asked_to(self):
        view = zarr_bytes.view(stored({}, **FORMS["one chunk"]))
        for options, is_copy in ({}, True), ({"copy": None}, False), ({"copy": False}, False):
            assert np.shares_memory(np.array(view, **options), view.blocks[0, 0, 0]) != is_copy
        assert np.asarray(view, "f8").dtype == "f8"
        with pytest.raises(ValueError, match="has 6 chunks, .* only as a copy"):
            np.array(zarr_bytes.view(stored({})), copy=False)

    @every_mode
    def test_a_view_is_pickled_with_its_mode(self, tmp_path, mode):
        view = zarr_bytes.view(stored(tmp_path, in_place=True), mode)
        same(view, VALUES)
        again = pickle.loads(pickle.dumps(view))  # noqa: S301
        assert again.mode == mode
        if mode == "r+":
            again[1, 2, 3] = -1
        assert view[1, 2, 3] == (-1 if mode == "r+" else VALUES[1, 2, 3])

    def test_threads_share_a_view(self, tmp_path):
        with zarr.config.set({"zarr_bytes.mappings": 2}):
            view = zarr_bytes.view(stored(tmp_path))
        points = [tuple(p) for p in np.random.default_rng(0).integers(0, SHAPE, (999, 3)).tolist()]
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(view.__getitem__, points)) == [VALUES[p] for p in points]

    @pytest.mark.parametrize("store", [MemoryStore, mkdtemp])
    def test_a_replaced_chunk_is_seen_by_a_view_after_refresh(self, store, form):
        options = {"shape": SHAPE, "dtype": "f4", "compressors": None, "fill_value": 7}
        array = zarr.create_array(store(), name="of/a group", **options, **form)
        view = zarr_bytes.view(array)
        for before, after in (np.full(SHAPE, 7, "f4"), VALUES), (VALUES, -VALUES):
            held = view[0, 0, :2]
            array[...] = after
            same(held, before[0, 0, :2])
            same(view[0, 0], before[0, 0])
            view.flush()  # which has nothing to do
            view.refresh()
            same(view, after)
        held = view[0, 0, :2]
        array[0, 0] = 5
        same(held, -VALUES[0, 0, :2])

    def test_zarr_writes_a_view_into_another_array(self, form):
        """Zarr asks for its elements on the loop on which stores are read."""
        array = zarr.create_array({}, shape=SHAPE, dtype="f4", compressors=None, **form)
        array[...] = VALUES
        view = zarr_bytes.view(array)
        same(zarr.create_array({}, data=view)[...], VALUES)
        target = zarr.create_array({}, shape=SHAPE, dtype="f4", compressors=None)
        target[...] = view
        same(target[...], VALUES)


@needs_maps
class TestMappings:
    def test_mappings_used_last_are_kept_as_many_as_the_setting_says(self, tmp_path):
        """A shard is opened once for blocks that follow each other."""
        with zarr.config.set({"zarr_bytes.mappings": 2}):
            view = zarr_bytes.view(stored(tmp_path / "a", chunks=(1, 8, 10)))
            of_shards = zarr_bytes.view(stored(tmp_path / "b", **FORMS["shards"]))
        for i, kept in [(0, "0"), (1, "01"), (0, "01"), (2, "02"), (0, "02"), (1, "01")]:
            assert view[i, 0, 0] == VALUES[i, 0, 0]
            assert mapped(tmp_path / "a") == [f"{j}/0/0" for j in kept]
        opened = [f"{i // 2}/{j}/0" for i in range(5) for j in range(2)]
        with watched(tmp_path / "b") as files:
            for number, _ in enumerate(of_shards.blocks):
                assert mapped(tmp_path / "b") == [opened[number // 2]]
        assert files.keys == [f"c/{key}" for key in opened]

    @pytest.mark.usefixtures("no_collector")
    def test_mappings_come_with_the_first_selection_and_go_with_the_last_array(
        self, tmp_path, form
    ):
        view = zarr_bytes.view(stored(tmp_path, **form))
        assert mapped(tmp_path) == []
        row = view[:2, 0, :2]
        same(view, VALUES)
        view.refresh()
        del view
        assert mapped(tmp_path) == ["0/0/0"]
        same(row, VALUES[:2, 0, :2])
        del row
        assert mapped(tmp_path) == []

    @every_mode
    @pytest.mark.usefixtures("no_collector")  # which would swallow an interrupt
    def test_an_interrupt_of_a_view_leaves_no_file_open(self, tmp_path, mode):
        array, _ = changed(tmp_path)
        views = [zarr_bytes.view(array, mode)]

        def look():
            views.clear()
            assert open_files_below(tmp_path) == []
            views.append(zarr_bytes.view(array, mode))

        assert interrupted(lambda: views[0][0, 0, 0], look) > 5


PLAIN = document_of("int16", [4], endian="big")
SHARD = PLAIN | {"codecs": [sharding((2,), BIG)]}


class TestFaults:
    @pytest.mark.parametrize("kind", ["local", "memory"])
    def test_a_wrong_size_or_index_is_an_error_of_the_damaged_block(self, tmp_path, kind):
        shard = shard_of([b"\0\1\0\2"] * 2, entries={0: (100, 4)})
        file, takes = f"{tmp_path}/" * (kind == "local"), "c/0 takes 36 bytes for 2 inner chunks"
        for document, content, says in [
            (PLAIN, bytes(9), f"bytes 0 to 8 of {file}c/0 are 8 bytes, found 9"),
            (SHARD, b"", f"the index of the shard STORE/{takes}, found 0"),
            (SHARD, shard[:30], f"the index of the shard STORE/{takes}, found 30"),
            (SHARD, shard, "inner chunk (0) of the shard STORE/c/0 ends at byte 104"),
        ]:
            objects = {"zarr.json": text_of(document), "c/0": content}
            view = zarr_bytes.view(zarr.open_array(store_with(kind, objects, tmp_path), mode="r"))
            with pytest.raises((ChunkSizeError, ShardIndexError)) as caught:
                view[0]
            assert str(caught.value).replace(str(view.array.store), "STORE").startswith(says)
        assert view[2] == 1  # in the other inner chunk

    @pytest.mark.skipif(sys.platform == "win32", reason="of POSIX systems")
    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    @pytest.mark.parametrize("mode", ["r", "r+"])
    def test_a_folder_fifo_or_device_is_not_mapped(self, tmp_path, kind, mode):
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(write(tmp_path, PLAIN), mode="r+")
            put(kind, tmp_path / "c/0")
            with pytest.raises(ChunkFileError, match=kind.split()[-1] if mode == "r" else " is a "):
                zarr_bytes.view(array, mode)[3]

    @every_mode
    def test_an_error_of_opening_a_file_for_a_view_is_raised_as_it_is(
        self, tmp_path, monkeypatch, mode
    ):
        view = zarr_bytes.view(stored(tmp_path, in_place=True), mode)
        fail_at(monkeypatch, "open", 0, OSError(errno.ELOOP if mode == "r" else errno.EIO, "it"))
        with pytest.raises(OSError, match="it"):
            view[0, 0, 0]

    def test_a_shard_index_that_changes_after_its_check_is_not_used_by_a_view(self, tmp_path):
        view = zarr_bytes.view(stored(tmp_path, **FORMS["shards"]))
        assert view[0, 0, 0] == 1
        with (tmp_path / "c/0/0/0").open("r+b") as file:
            file.seek(-68, os.SEEK_END)
            file.write(bytes(64))
        assert view[3, 4, 9] == VALUES[3, 4, 9]


def of_other_byte_order():
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    codec = zarr.codecs.BytesCodec(endian={"little": "big", "big": "little"}[sys.byteorder])
    return zarr.create_array({}, data=np.ones(3, dtype), serializer=codec, compressors=None)


class Own(LocalStore):
    """Of another class, which may read in any way."""


def of_chunks_of_several_shapes():
    if "rectilinear_chunks" not in zarr.config.get("array"):
        pytest.skip("zarr has them from 3.3 on")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        return stored({}, chunks=[[4, 5], [8], [10]])


class TestRefusals:
    """The error names the reason and what to do, such as the call of zarr."""

    @pytest.mark.parametrize(
        ("make", "mode", "reason"),
        [
            (lambda: zarr.create_array({}, data=VALUES), "r", "chunks go through the codec zstd"),
            (lambda: zarr.create_array({}, data=VALUES, zarr_format=2), "r", "the codec zstd"),
            (lambda: stored(CountingStore(MemoryStore())), "r", "its store is a CountingStore"),
            (lambda: stored(Own(mkdtemp())), "r", "its store is a Own, and must be a LocalStore"),
            (of_chunks_of_several_shapes, "r", "its chunks have several shapes"),
            (of_other_byte_order, "r", "its bfloat16 is stored (little|big)-endian"),
            (lambda: stored({}), "r+", "only chunks in files"),
            (lambda: zarr.open_array(stored(mkdtemp()).store, mode="r"), "r+", r'mode="r\+"'),
            (lambda: stored(mkdtemp()), "r+", r"zarr\.config\.set\(\{.zarr_bytes\.partial_writes"),
        ],
    )
    def test_arrays_that_have_no_view_are_refused_with_the_reason(self, make, mode, reason):
        if mode == "r":
            reason += r".*read it through zarr, as in `array\["
        with pytest.raises(StoreError, match=reason):
            zarr_bytes.view(make(), mode)

    def test_wrong_arguments_and_assignments_of_a_view_are_refused(self):
        group = zarr.create_group({})
        packed = group.create_array("of/a group", data=VALUES)
        array = group.create_array("of/it", data=VALUES, compressors=None)
        for act, error, message in [
            (lambda: zarr_bytes.view(packed), StoreError, "no view of memory://.*/of/a group: "),
            (lambda: zarr_bytes.view(array, "r+"), StoreError, "/of/it cannot be changed"),
            (lambda: zarr_bytes.view(VALUES), TypeError, r"ndarray; permitted is a zarr\.Array"),
            (lambda: zarr_bytes.view(array, "w"), ValueError, r"'w'; permitted are 'r' and 'r\+'"),
            (lambda: setitem(zarr_bytes.view(array), 0, 1), ValueError, r'view\(array, "r\+"\)'),
        ]:
            with pytest.raises(error, match=message):
                act()
        for value in (0, -1, "many", 1.5, True):
            message = rf"zarr_bytes\.mappings is {value!r}.* from 1 on"
            mappings = zarr.config.set({"zarr_bytes.mappings": value})
            with mappings, pytest.raises(ValueError, match=message):
                zarr_bytes.view(array)


REFUSED = (ValueError, TypeError, OverflowError)
NUMBERS = [0, -1, 300, 2**70, 1.5, float("nan"), 1j, True, "7", "x", None, np.uint8(200)]
ODD_VALUES = {  # by the type of the array
    **dict.fromkeys(["i2", "f4", "?"], NUMBERS),
    "M8[s]": [0, 1.5, "2020-01-02", "x", np.datetime64("2020-01-02", "D"), None],
    "S3": ["", "abcdef", 12345, b"ab\0c", "ü"],
    "?,i2": [(1, 2), (True, 300), (0, 2**20), 5, (1,), "x", np.array((1, 7), "?,i2")[()]],
}


@needs_pwrite
class TestWriting:
    @fuzz(examples=20)
    @given(st.data())
    def test_assignments_to_a_view_are_numpys_and_stored_at_once(self, data):
        with any_view(data, "r+", least_size=1) as (example, array, view):
            values, others = example.values(), example.values(1)
            selection = data.draw(selections(example.shape))
            assigned = others[selection]
            if np.size(assigned) and data.draw(st.booleans()):
                assigned = assigned.flat[0]
            view[selection] = assigned
            values[selection] = assigned
            if example.name in ("int2", "int4"):  # whose sign bits are repeated where stored
                same(array[...], values)
            else:
                same(view, values)
                assert contents_of(array.store) == example.objects(values)
            view.flush()
            same(array[...], values)

    @pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
    def test_a_masked_element_is_nan_or_an_error_as_for_numpy(self, tmp_path):
        masked = np.ma.masked_array([1.0, 2.0], mask=[0, 1])
        _, view = changed(tmp_path / "f8", values=np.ones(4), chunks=(2,))
        view[1] = masked[1]
        view[2:] = masked[1:].reshape(())
        same(view, np.array([1, np.nan, 2, 2]))
        _, view = changed(tmp_path / "i4", values=np.ones(4, "i4"), chunks=(2,))
        with pytest.raises(np.ma.MaskError):
            view[1] = masked[1]
        same(view, np.ones(4, "i4"))

    @pytest.mark.filterwarnings("ignore")  # of lossy conversions and of types without a document
    @pytest.mark.parametrize("dtype", ODD_VALUES)
    def test_values_assigned_to_a_view_are_converted_and_broadcast_as_by_numpy(
        self, tmp_path, dtype
    ):
        values = np.ones((6, 4), dtype)
        array, view = changed(tmp_path, values=values, chunks=(4, 2))
        selected = np.s_[:, 1, 1:2, (slice(2, 5), 1), (0, 0), (0, 0, ...), (np.array(5), 1)]
        selected += ([5, 0, 3], ([0, 5], [1, 1]), ([5], [1]))
        for value, selection in itertools.product(ODD_VALUES[dtype], selected):
            shapes = () if dtype == "?,i2" else (1, 2, 4, 7, (1, 1), (1, 1, 4))
            arrays = [np.full(n, value) for n in shapes]
            # NumPy takes a list for one bool, which is True unless the list is empty.
            lists = [np.full(n, value, object).tolist() for n in shapes if dtype != "?"]
            for assigned in [value, *arrays, *lists]:
                expected = values.copy()
                refused = nullcontext()
                try:
                    expected[selection] = assigned
                except REFUSED:
                    expected, refused = values, pytest.raises(REFUSED)
                with refused:
                    view[selection] = assigned
                same(view, expected)
                view[...] = values
        assert array[...].tobytes() == values.tobytes()

    def test_the_setting_permits_changes_of_a_view_under_any_pipeline(self, tmp_path):
        with zarr.config.set(stored_arrays.PLAIN_ZARR):
            array = stored(tmp_path)
        with pytest.raises(StoreError, match="partial writes are off"):
            zarr_bytes.view(array, "r+")
        with zarr.config.set(IN_PLACE):
            zarr_bytes.view(array, "r+")[0, 0, 0] = -1

    def test_the_setting_permits_changes_where_the_array_shows_no_pipeline(self, tmp_path):
        """As an array engine of zarr may hide it (zarr-python pull request 4064)."""
        array = stored(tmp_path)
        del vars(array.async_array)["codec_pipeline"]
        with pytest.raises(StoreError, match="partial writes are off"):
            zarr_bytes.view(array, "r+")
        with zarr.config.set(IN_PLACE):
            zarr_bytes.view(array, "r+")[0, 0, 0] = -1
        assert zarr_bytes.view(array)[0, 0, 0] == -1

    def test_a_value_that_numpy_refuses_changes_nothing_of_a_view(self, tmp_path):
        array, view = changed(tmp_path)
        with pytest.raises(ValueError, match="could not convert string"):
            view[:, 0, 0] = np.array(["1"] * 8 + ["x"])
        with pytest.raises(ValueError, match=r"shape \(3,\) .* has the shape \(0, 8, 10\)"):
            view[3:3] = [1, 2, 3]
        same(array[...], VALUES)

    @pytest.mark.parametrize("is_refreshed", [False, True])
    @pytest.mark.parametrize("step", [1, -1])
    def test_a_value_assigned_to_a_view_may_overlap_its_target(
        self, tmp_path, form, step, is_refreshed
    ):
        """As a part of the view, and of another mapping of the same file."""
        array, view = changed(tmp_path, **form)
        expected = VALUES.copy()
        for target, source, n in [(0, 1, 8), (1, 0, 8), (2, 4, 5), (5, 3, 2), (0, 0, 9)]:
            expected[target : target + n] = expected[source : source + n][::step].copy()
            value = view[source : source + n][::step]
            if is_refreshed:
                view.refresh()
            view[target : target + n] = value
            same(array[...], expected)
        view[::-1] = view
        same(array[...], expected[::-1])

    @pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
    @pytest.mark.parametrize("chunks", [4, 2])
    @pytest.mark.parametrize(
        ("dtype", "given", "kept"),
        [
            ("?", [2, 0, 1, 255], [1, 0, 1, 1]),
            ([("flag", "?")], [2, 0, 1, 255], [1, 0, 1, 1]),
            ("int4", [0x0F, 7, 1, 0x08], [0xFF, 7, 1, 0xF8]),
        ],
        ids=["bool", "field", "int4"],
    )
    def test_unused_bits_of_a_view_are_stored_as_by_zarr(
        self, tmp_path, chunks, dtype, given, kept
    ):
        """Those of bools are zero, and those of narrow integers repeat the sign."""
        if dtype == "int4":
            pytest.importorskip("ml_dtypes")
        values, kept = np.array(given, "u1").view(dtype), np.array(kept, "u1")
        _, view = changed(tmp_path, values=np.zeros(4, dtype), chunks=chunks)
        for selection in np.s_[:], np.s_[3], np.s_[-1, ...], np.s_[[3, 2, 1, 0]]:
            view[selection] = values[selection]
            assert np.array(view[selection]).tobytes() == kept[selection].tobytes()

    def test_an_assignment_to_a_missing_chunk_of_a_view_changes_nothing(self, tmp_path, form):
        array, view = changed(tmp_path, **form)
        max((tmp_path / "c").rglob("*/*/0")).unlink()
        before = array[...]
        last = re.escape(str(tuple(n - 1 for n in view.blocks.shape)))
        for selection in np.s_[..., 9], np.s_[8, 7, 9]:
            with pytest.raises(ValueError, match=rf"^block {last} is missing, .*\.preallocate\("):
                view[selection] = 1
        same(array[...], before)
        zarr_bytes.preallocate(array)
        view.refresh()
        view[...] = 1
        view.blocks[-1, -1, -1][-1, -1, -1] = 6
        assert array[8, 7, 9] == 6
        assert np.count_nonzero(array[...] == 1) == array.size - 1

    @pytest.mark.parametrize("most", [1024, 2])
    def test_flush_is_an_error_for_changes_of_a_chunk_that_was_replaced(self, tmp_path, form, most):
        with zarr.config.set({"zarr_bytes.mappings": most}):
            array, view = changed(tmp_path, **form)
        view[0, 0, 0] = -1
        plain = zarr.open_array(tmp_path, mode="r+")
        plain[...] = VALUES
        view[...]  # which maps others, where few mappings are kept
        for _ in range(2):
            with pytest.raises(ChunkFileError, match=r"c.0.0.0 was replaced .* `refresh\(\)`, and"):
                view.flush()
        view.refresh()
        view[8, 7, 9] = -2
        view.flush()
        view[0, 0, 0] = -2
        assert np.count_nonzero(array[...] == -2) == 2
        for chunk in (tmp_path / "c").rglob("*/*/0"):
            chunk.unlink()
        others = r" \(and 1 more\)" * (form["chunks"] != SHAPE)
        with pytest.raises(ChunkFileError, match=f"c.0.0.0 was deleted{others} after the view"):
            view.flush()

    def test_flush_knows_a_chunk_file_until_its_last_mapping_goes(self, tmp_path):
        with zarr.config.set({"zarr_bytes.mappings": 1}):
            _, view = changed(tmp_path)
        for point in (0, 0, 0), (8, 7, 9), (0, 0, 1):
            view[point] = -1
        view.flush()
        zarr.open_array(tmp_path, mode="r+")[...] = VALUES
        view[0, 0, 2] = -1
        with pytest.raises(ChunkFileError, match=r"c.0.0.0 was replaced"):
            view.flush()

    def test_flush_knows_a_chunk_that_another_thread_maps_while_refresh_runs(self, tmp_path):
        """The other thread is where this one looks at the file that it has opened."""
        _, view = changed(tmp_path)
        plain = zarr.open_array(tmp_path, mode="r+")  # which replaces

        def replace_and_refresh():
            plain[...] = -VALUES - 9
            view.refresh()

        for act in replace_and_refresh, lambda: view[0, 0, 0]:
            left = [act]
            view.refresh()
            with before_each(lambda *_: left and left.pop()(), ["fstat"]):  # noqa: B023
                view[0, 0, 0]
            assert view[0, 0, 0] == -VALUES[0, 0, 0] - 9
        view.flush()
        view[0, 0, 0] = -1
        plain[...] = VALUES
        with pytest.raises(ChunkFileError, match=r"c.0.0.0 was replaced"):
            view.flush()

    def test_flush_syncs_each_changed_file_once(self, tmp_path, monkeypatch):
        synced = []
        with zarr.config.set({"zarr_bytes.mappings": 1}):
            _, view = changed(tmp_path)
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
        view[...] = 1
        view.refresh()
        view.flush()
        assert sorted(synced) == sorted(p.stat().st_ino for p in tmp_path.rglob("c/*/*/*"))
        synced.clear()
        view[0, 0, 0] = 1
        for _ in range(2):
            view.flush()
        assert set(synced) == {(tmp_path / "c/0/0/0").stat().st_ino}

    @pytest.mark.parametrize("kind", ["symbolic link", "other name", "write-protected"])
    def test_a_chunk_file_with_other_names_is_not_changed_by_a_view(self, tmp_path, kind):
        _, view = changed(tmp_path)
        chunk = tmp_path / "c/0/0/0"
        if kind == "symbolic link":
            chunk.symlink_to(chunk.rename(tmp_path / "elsewhere"))
        elif kind == "other name":
            os.link(chunk, tmp_path / "elsewhere")
        else:
            chunk.chmod(0o444)
        with pytest.raises(ChunkFileError, match='open the view with mode="r"'):
            view[0, 0, 0] = 1
        assert zarr_bytes.view(zarr.open_array(tmp_path))[0, 0, 0] == 1
