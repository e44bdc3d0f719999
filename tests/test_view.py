"""`zarr_bytes.view`: selections against NumPy, what is mapped, changed and refused."""

import contextlib
import gc
import itertools
import json
import multiprocessing
import operator
import os
import pickle
import sys
import tempfile
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import stored_arrays
import zarr
from fuzz import TYPES, document_of, fuzz, same, store_with
from fuzz_arrays import arrays, sharded
from hypothesis import event, given, reject
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices, integer_array_indices
from shards import shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    KINDS_OF_NO_FILE,
    CountingStore,
    contents_of,
    numbers,
    put,
    written_documents,
)
from zarr.storage import MemoryStore, ZipStore

import zarr_bytes
from zarr_bytes import ChunkFileError, ChunkSizeError, ShardIndexError, StoreError, block_selection
from zarr_bytes.data_type.number_formats import FIRST_USER_TYPE
from zarr_bytes.io import mapping

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="changed in place on POSIX")

SHAPE, CHUNKS = (9, 8, 10), (4, 5, 10)
VALUES = numbers(SHAPE, "f4") + 1
RECORD = "?,i2"
REFUSED = (ValueError, TypeError, OverflowError)
NUMBERS = [0, 1, -1, 300, 2**70, 1.5, float("nan"), 1e300, 1j, True, "7", "x", None, b"7"]
NUMBERS += [
    np.uint8(200),
    np.int64(300),
    np.float64(2.5),
    np.float32("nan"),
    np.datetime64("NaT", "s"),
]
ODD_VALUES = dict.fromkeys(["i2", "u1", "f4", "?"], NUMBERS) | {  # by the type of the array
    "M8[s]": [
        0,
        1.5,
        "2020-01-02",
        "x",
        np.datetime64("2020-01-02", "D"),
        np.timedelta64(1, "s"),
        None,
    ],
    "U3": ["", "abcdef", 12345, 1.5, b"ab", np.str_("ü"), None],
    "S3": ["", "abcdef", 12345, b"ab\0c", "ü", np.bytes_(b"abcd")],
    RECORD: [(1, 2), (True, 300), (0, 2**20), 5, (1,), "x", np.array((1, 7), RECORD)[()]],
}
FORMS = {  # parameters of zarr.create_array
    "one chunk": {"chunks": SHAPE},
    "chunks": {"chunks": CHUNKS},
    "rows": {"chunks": (4, 8, 10)},
    "shards": {"chunks": (2, 5, 5), "shards": (4, 5, 10)},
}


def stored(store, values=VALUES, **options):
    return stored_arrays.stored(store, values, **{"chunks": CHUNKS, **options})


def changed(store, **options):
    """A view that can be assigned to: the setting counts when the array is opened."""
    with zarr.config.set(IN_PLACE):
        array = stored(store, **options)
    return array, zarr_bytes.view(array, "r+")


@contextlib.contextmanager
def any_view(data, mode="r", **options):
    """Any array as it is stored, the array as zarr opens it, and a view of it.

    There is none of types that are not NumPy's own, in another byte order.
    """
    example = data.draw(arrays(**options))
    if data.draw(st.booleans()):
        example = data.draw(sharded(example, can_be_sparse=mode == "r"))
    kind = data.draw(st.sampled_from(["local", "memory"])) if mode == "r" else "local"
    dtype = np.dtype(TYPES[example.name][0])
    is_swapped = example.endian != sys.byteorder and max(TYPES[example.name][1]) > 1
    with tempfile.TemporaryDirectory() as folder, zarr.config.set(IN_PLACE):
        store = store_with(kind, example.objects(example.values()), Path(folder))
        array = zarr.open_array(store, mode="r+")
        if is_swapped and dtype.num >= FIRST_USER_TYPE:
            reason = f"its {dtype} is stored {example.endian}-endian, a type that NumPy does not"
            with pytest.raises(StoreError, match=rf"{reason} have; read it .*`array\[\.\.\.\]`"):
                zarr_bytes.view(array, mode)
            event("a type that is not mapped")
            reject()
        yield example, array, zarr_bytes.view(array, mode)


def alive(references):
    return sum(reference() is not None for reference in references)


def lowest_descriptor():
    """The lowest number that is free for an open file."""
    file = os.open(os.devnull, os.O_RDONLY)
    os.close(file)
    return file


def interrupted(call, number):
    """Whether a call of a function took a KeyboardInterrupt, where Python looks for the n-th time.

    Python looks for signals when a function of Python begins, and after one of C.
    """
    looks = itertools.count()

    def look(frame, event, _):
        is_look = event in ("call", "c_return") and frame.f_code is not call.__code__
        if is_look and next(looks) == number:
            raise KeyboardInterrupt

    previous = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(previous)
    return False


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@st.composite
def selections(draw, shape):
    """As NumPy takes them: basic, an array along one axis, or points."""
    kinds = ["basic", "rows", "points"] if shape and 0 not in shape else ["basic"]
    kind = draw(st.sampled_from(kinds))
    if kind == "basic":
        return draw(basic_indices(shape, allow_newaxis=False))
    if kind == "points":
        points = draw(integer_array_indices(shape))
        return tuple(
            draw(st.sampled_from([i, int(i.flat[0]), np.uint8(i.flat[0] % n)])) if n < 256 else i
            for i, n in zip(points, shape, strict=True)
        )
    entries = [draw(st.integers(-n, n - 1) | st.slices(n)) for n in shape]
    axis = draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    indices = draw(st.lists(st.integers(-n, n - 1), max_size=9))
    form = st.sampled_from([indices, np.array(indices, int), np.tile(indices, (2, 1)).astype(int)])
    entries[axis] = draw(form | st.just(np.arange(n) % 3 == 0))
    return tuple(entries[: draw(st.integers(axis + 1, len(shape)))])


class TestSelections:
    @fuzz(examples=80)
    @given(st.data())
    def test_they_are_numpys_of_any_array_and_layout(self, data):
        with (
            any_view(data, can_be_missing=True) as (example, _, view),
            pytest.MonkeyPatch.context() as patch,
        ):
            values, selection = example.values(), data.draw(selections(example.shape))
            piece = data.draw(st.sampled_from([1, 100, 2**20]))  # many, where they are small
            patch.setattr(block_selection, "_PIECE", piece)
            found, expected = view[selection], values[selection]
            assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray)
            same(found, expected)
            same(view, values)

    @pytest.mark.parametrize("rows", [[1, 2, 0], [5, -8, 0]])
    def test_dots_separate_arrays_also_where_they_stand_for_no_axis(self, form, rows):
        view = zarr_bytes.view(stored({}, **form))
        for entries in itertools.permutations([rows, 3, slice(1, 4)]):
            for place in range(4):
                selection = (*entries[:place], ..., *entries[place:])
                same(view[selection], VALUES[selection])

    @pytest.mark.parametrize("store", [MemoryStore, tempfile.mkdtemp])
    def test_a_selection_of_one_block_copies_nothing(self, store, form):
        view = zarr_bytes.view(stored(store(), **form))
        block = view.blocks[0, 0, 0]
        for selection in (np.s_[1, 2, :3], np.s_[:2, 4:1:-1, 4::-2], np.s_[1, ..., 2:3, 0:4]):
            part = view[selection]
            same(part, VALUES[selection])
            assert np.shares_memory(part, block)
            assert not part.flags.writeable

    def test_an_index_out_of_the_array_is_an_error_that_names_the_axis(self, form):
        view = zarr_bytes.view(stored({}, **form))
        for selection in (9, -10, np.int64(9), (0, 8), (0, 0, -11), (0, 0, 10), [0, 9], (8, 8, 9)):
            with pytest.raises(IndexError, match=r"is outside axis \d, which has \d+ elements"):
                view[selection]
        with pytest.raises(IndexError, match="4 entries, and the array 3 axes"):
            view[0, 0, 0, 0]

    @pytest.mark.parametrize(
        ("selection", "advice"),
        [
            (None, "add these to the result"),
            ((..., None), "add these to the result"),
            ((..., 0, ...), "at most once"),
            ("field", "found the text 'field': select a field of the result"),
            (VALUES > 3, r"array\.vindex\[\.\.\.\]"),
            (True, r"array\.vindex\[\.\.\.\]"),
            (([0, 1], slice(None), [0, 1]), r"array\.oindex\[\.\.\.\]"),
            (([0, 1], [0, 1]), r"array\.vindex\[\.\.\.\]"),
            (1.5, "found 1.5 of type float"),
            ([0.5], "of type list"),
            (([0, 1], [0, 1, 2], 0), r"shapes \(2,\) and \(3,\) cannot be broadcast"),
            (([], [0, 1], 0), r"shapes \(0,\) and \(2,\) cannot be broadcast"),
            ([[1], [1, 2]], r"\[\[1\], \[1, 2\]\], which is no array"),
            (slice("a", None), r"slice\('a', None, None\), which has bounds of other types"),
        ],
    )
    def test_another_form_is_an_error_that_says_what_to_call(self, form, selection, advice):
        view = zarr_bytes.view(stored({}, **form))
        with pytest.raises(IndexError, match=advice):
            view[selection]

    def test_empty_points_are_broadcast(self, form):
        view = zarr_bytes.view(stored({}, **form))
        for points in ((np.zeros((0, 2), int), [[0, 0]], 1), ([], 0, [1]), ([[]], [[1]], [])):
            same(view[points], np.zeros(np.broadcast_shapes(*map(np.shape, points)), "f4"))

    @pytest.mark.parametrize("shape", [(2**62,), (2**40, 2**40)])
    def test_an_array_may_have_more_elements_than_offsets_have(self, shape):
        options = {"dtype": "i4", "chunks": (2**10,) * len(shape), "fill_value": 3}
        view = zarr_bytes.view(zarr.create_array({}, shape=shape, compressors=None, **options))
        rest = (slice(1020, 1030),) * (len(shape) - 1)
        for rows, count in ((np.s_[-2000:], 2000), (np.s_[[5, 2**39]], 2), (np.s_[5:15], 10)):
            same(view[rows, *rest], np.full((count, *[10] * len(rest)), 3, "i4"))
        assert view[0:0].shape == (0, *shape[1:])
        assert next(iter(view.blocks)).shape == view.chunks

    def test_what_does_not_fit_an_integer_of_the_machine_is_said(self):
        options = {"dtype": "i4", "chunks": (2**4,) * 2, "compressors": None}
        view = zarr_bytes.view(zarr.create_array({}, shape=(2**40, 2**40), **options))
        with pytest.raises(IndexError, match=r"points .* less than 2\*\*62 elements"):
            view[[1, 2], [3, 4]]
        with pytest.raises(OverflowError, match=f"there are {2**72} blocks"):
            len(view.blocks)

    def test_an_array_without_axes_has_no_length(self):
        with pytest.raises(TypeError, match="without axes"):
            len(zarr_bytes.view(stored({}, np.array(3, "i2"), chunks=())))


class TestArrays:
    """What libraries ask of an array."""

    def test_its_properties_are_those_of_the_array(self, form):
        view = zarr_bytes.view(stored({}, **form))
        assert (view.shape, view.ndim, view.size, len(view)) == (SHAPE, 3, 720, 9)
        assert (view.dtype, view.chunks, view.nbytes) == (">f4", form["chunks"], 2880)
        assert "dtype=>f4" in repr(view)
        assert "shape=" in repr(view.blocks)

    def test_numpy_makes_an_array_of_it_and_copies_one_chunk_only_where_it_is_asked_to(self, form):
        view = zarr_bytes.view(stored({}, **form))
        whole = np.asarray(view)
        same(whole, VALUES)
        assert np.asarray(view, "f8").dtype == "f8"
        is_one = view.blocks.shape == (1, 1, 1)
        assert np.shares_memory(whole, view.blocks[0, 0, 0]) == is_one
        assert not np.shares_memory(np.array(view), view.blocks[0, 0, 0])
        if is_one:
            assert np.shares_memory(np.array(view, copy=False), whole)
        else:
            with pytest.raises(ValueError, match="only as a copy"):
                np.array(view, copy=False)

    def test_it_is_a_dataset_of_which_samples_are_drawn_one_by_one(self, form):
        """What `torch.utils.data.DataLoader` calls: `len`, and an integer for each sample."""
        dataset = zarr_bytes.view(stored({}, **form))
        drawn = np.random.default_rng(0).permutation(len(dataset)).tolist()
        same(np.stack([dataset[i] for i in drawn]), VALUES[drawn])
        same(np.stack(list(dataset)), VALUES)

    def test_dask_computes_with_it(self):
        dask = pytest.importorskip("dask.array", reason="dask is not installed (extra stores)")
        lazy = dask.from_array(zarr_bytes.view(stored({}, **FORMS["shards"])))
        same(lazy[2:8, :, 3].compute(scheduler="threads"), VALUES[2:8, :, 3])

    @pytest.mark.parametrize("method", sorted({"spawn", *multiprocessing.get_all_start_methods()}))
    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    def test_it_goes_to_other_processes(self, tmp_path, method):
        view = zarr_bytes.view(stored(tmp_path, **FORMS["shards"]))
        before = view[3]
        with multiprocessing.get_context(method).Pool(1) as pool:
            same(pool.apply(operator.getitem, (view, 3)), before)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    def test_a_forked_process_goes_on_with_it(self, tmp_path, form):
        view = zarr_bytes.view(stored(tmp_path, **form))
        assert view[0, 0, 0] == 1
        child = os.fork()
        if not child:
            os._exit(not np.array_equal(view, VALUES))
        assert os.waitpid(child, 0)[1] == 0

    @pytest.mark.parametrize("mode", ["r", pytest.param("r+", marks=needs_pwrite)])
    def test_it_is_pickled_with_its_mode(self, tmp_path, mode):
        with zarr.config.set(IN_PLACE):
            view = zarr_bytes.view(stored(tmp_path), mode)
        again = pickle.loads(pickle.dumps(view))  # noqa: S301
        assert again.mode == mode
        if mode == "r+":
            again[1, 2, 3] = -1
        assert view[1, 2, 3] == (-1 if mode == "r+" else VALUES[1, 2, 3])

    def test_threads_share_it(self, tmp_path, form):
        with zarr.config.set({"zarr_bytes.mappings": 2}):
            view = zarr_bytes.view(stored(tmp_path, **form))
        wrong = []

        def read(seed):
            points = map(tuple, np.random.default_rng(seed).integers(0, SHAPE, (300, 3)).tolist())
            wrong.extend([point for point in points if view[point] != VALUES[point]])

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestBlocks:
    @fuzz(examples=40)
    @given(st.data())
    def test_each_is_a_chunk_or_an_inner_chunk_cut_to_the_array(self, data):
        with any_view(data) as (example, _, view):
            assert len(view.blocks) == len(list(view.blocks))
            for place in np.ndindex(view.blocks.shape):
                sizes = zip(place, view.chunks, strict=True)
                part = tuple(slice(i * n, (i + 1) * n) for i, n in sizes)
                from_the_end = np.subtract(place, view.blocks.shape).tolist()
                for block in view.blocks[place], view.blocks[tuple(from_the_end)]:
                    same(block, example.values()[part])
                    assert not block.flags.owndata

    @pytest.mark.parametrize("place", [(3, 0, 0), (-4, 0, 0), (0, 0), 0, (0, 0, slice(None))])
    def test_another_place_is_an_error(self, place):
        with pytest.raises(IndexError, match="block"):
            zarr_bytes.view(stored({})).blocks[place]

    def test_a_missing_one_has_the_fill_value_bit_for_bit_and_takes_no_memory(self, tmp_path):
        document = document_of("float32", (10, 10), (2, 10), "big") | {"fill_value": "0x7fa00001"}
        view = zarr_bytes.view(zarr.open_array(written_documents(tmp_path, document), mode="r"))
        block = view.blocks[4, 0]
        assert block.shape == (2, 10)
        assert block.strides == (0, 0)
        assert not block.flags.writeable
        assert view[:].tobytes() == b"\x7f\xa0\x00\x01" * 100

    def test_a_transposed_one_has_other_strides(self):
        filters = [zarr.codecs.TransposeCodec(order=(2, 0, 1))]
        view = zarr_bytes.view(stored({}, filters=filters, chunks=SHAPE))
        assert view.blocks[0, 0, 0].strides == (4 * 8, 4, 4 * 8 * 9)
        same(view, VALUES)


class TestMappings:
    @pytest.fixture
    def made(self, monkeypatch):
        """References to all mappings, one after another."""
        found = []

        class Mapping(mapping.Mapping):
            def __init__(self, *args, **kwargs):
                found.append(weakref.ref(self))

        monkeypatch.setattr(mapping, "Mapping", Mapping)
        return found

    def test_an_array_that_must_not_be_a_copy_is_refused_before_any_chunk_is_mapped(
        self, tmp_path, made
    ):
        view = zarr_bytes.view(stored(tmp_path, **FORMS["shards"]))
        with pytest.raises(ValueError, match="only as a copy"):
            np.array(view, copy=False)
        assert made == []

    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_the_setting_bounds_their_number(self, tmp_path, made, form, most):
        with zarr.config.set({"zarr_bytes.mappings": most}):
            view = zarr_bytes.view(stored(tmp_path, **form))
        for point in map(tuple, np.random.default_rng(0).integers(0, SHAPE, (100, 3)).tolist()):
            assert view[point] == VALUES[point]
            assert 0 < alive(made) <= most

    def test_those_used_last_are_kept(self, tmp_path, made):
        with zarr.config.set({"zarr_bytes.mappings": 2}):
            view = zarr_bytes.view(stored(tmp_path, chunks=(1, 8, 10)))
        for i, count in [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)]:
            assert view[i, 0, 0] == VALUES[i, 0, 0]
            assert len(made) == count

    def test_an_array_that_is_held_keeps_its_own(self, tmp_path, made, form):
        view = zarr_bytes.view(stored(tmp_path, **form))
        row = view[:2, 0, :2]
        view.refresh()
        del view
        gc.collect()
        assert alive(made) == 1
        same(row, VALUES[:2, 0, :2])
        del row
        assert alive(made) == 0

    def test_they_come_with_the_first_selection_and_go_with_the_view(self, tmp_path, made, form):
        gc.disable()
        try:
            view = zarr_bytes.view(stored(tmp_path, **form))
            assert alive(made) == 0
            same(view, VALUES)
            assert alive(made) > 0
            del view
            assert alive(made) == 0
        finally:
            gc.enable()

    @pytest.mark.parametrize("mode", ["r", pytest.param("r+", marks=needs_pwrite)])
    def test_an_interrupt_leaves_no_file_open(self, tmp_path, mode):
        array, _ = changed(tmp_path)
        before = lowest_descriptor()
        for number in itertools.count():
            with zarr.config.set(IN_PLACE):
                view = zarr_bytes.view(array, mode)
            if not interrupted(lambda view=view: view[0, 0, 0], number):
                break
            del view
            assert lowest_descriptor() == before
        assert number > 5

    def test_any_number_may_be_kept(self):
        with zarr.config.set({"zarr_bytes.mappings": 2**70}):
            same(zarr_bytes.view(stored({})), VALUES)

    @pytest.mark.parametrize("value", [0, -1, "many", 1.5, True, "9" * 5000])
    def test_another_number_is_an_error(self, value):
        array = stored({})
        with (
            zarr.config.set({"zarr_bytes.mappings": value}),
            pytest.raises(ValueError, match=r"zarr_bytes\.mappings is .* integer from 1 on"),
        ):
            zarr_bytes.view(array)

    @pytest.mark.parametrize("store", [MemoryStore, tempfile.mkdtemp])
    def test_a_replaced_chunk_stays_what_it_was_until_refresh(self, store, form):
        array = stored(store(), **form)
        view = zarr_bytes.view(array)
        same(view[0], VALUES[0])
        held = view[0, 0, :2]
        array[...] = -VALUES
        same(held, VALUES[0, 0, :2])
        same(view[0], VALUES[0])
        view.refresh()
        same(view[0], -VALUES[0])

    def test_a_chunk_that_comes_or_goes_is_seen_after_refresh(self, tmp_path, form):
        options = {"shape": SHAPE, "dtype": "f4", "compressors": None, "fill_value": 7}
        array = zarr.create_array(tmp_path, **options, **form)
        view = zarr_bytes.view(array)
        assert view[0, 0, 0] == 7
        array[...] = VALUES
        assert view[0, 0, 0] == 7
        view.refresh()
        same(view, VALUES)


PLAIN = document_of("int16", (4,), (4,), "big")
SHARD = PLAIN | {"codecs": [sharding((2,), PLAIN["codecs"])]}
PARTS = [b"\0\1\0\2"] * 2
LONG, ELSEWHERE = shard_of(PARTS, entries={0: (0, 7)}), shard_of(PARTS, entries={0: (100, 4)})
WRONG_SHARDS = {  # the content, and what the error says
    **{f"{size} bytes": (shard_of(PARTS)[:size], "truncated|checksum") for size in (0, 3, 30, 43)},
    "long inner chunk": (LONG, r"inner chunk \(0\) .* has 7 bytes, and must have 4"),
    "inner chunk elsewhere": (ELSEWHERE, r"inner chunk \(0\) .* ends at byte 104"),
}


class TestFaults:
    @pytest.fixture(params=["local", "memory"])
    def viewed(self, tmp_path, request):
        """Function that makes a view of one chunk, in a store of each kind."""

        def viewed(document, content, **options):
            objects = {"zarr.json": json.dumps(document).encode(), "c/0": content}
            store = store_with(request.param, objects, tmp_path)
            return zarr_bytes.view(zarr.open_array(store, mode="r"), **options)

        return viewed

    @pytest.mark.parametrize("size", [7, 9])
    def test_a_chunk_of_another_size(self, viewed, size):
        with pytest.raises(ChunkSizeError, match=f"c/0 are 8 bytes, found {size}"):
            viewed(PLAIN, bytes(size))[0]

    @pytest.mark.parametrize("case", WRONG_SHARDS)
    def test_a_wrong_shard_is_an_error_where_its_damage_is(self, viewed, case):
        content, says = WRONG_SHARDS[case]
        view = viewed(SHARD, content)
        with pytest.raises(ShardIndexError, match=says):
            view[0]
        if "inner chunk" in case:
            assert view[2] == 1

    @pytest.mark.skipif(sys.platform == "win32", reason="of POSIX systems")
    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    @pytest.mark.parametrize("mode", ["r", "r+"])
    def test_what_is_no_file_is_not_mapped(self, tmp_path, kind, mode):
        document = document_of("int16", (4,), (2,), "big")
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(written_documents(tmp_path, document), mode="r+")
            put(kind, tmp_path / "c/1")
            with pytest.raises(ChunkFileError):
                zarr_bytes.view(array, mode)[3]

    def test_an_index_that_another_process_changes_after_its_check_is_not_used(self, tmp_path):
        view = zarr_bytes.view(stored(tmp_path, **FORMS["shards"]))
        assert view[0, 0, 0] == 1
        with min((tmp_path / "c").rglob("0/0/0")).open("r+b") as file:
            file.seek(-68, os.SEEK_END)
            file.write(bytes(64))
        assert view[3, 4, 9] == VALUES[3, 4, 9]

    def test_values_are_not_checked(self, viewed):
        view = viewed(document_of("bool", (3,), (3,), "big"), b"\0\1\2")
        assert view[...].view("u1").tolist() == [0, 1, 2]


def in_zip(folder):
    with ZipStore(folder / "a.zip", mode="w") as store:
        stored(store)
    return zarr.open_array(ZipStore(folder / "a.zip"), mode="r")


def of_nested_shards(_):
    document = PLAIN | {"codecs": [sharding((4,), SHARD["codecs"])]}
    return zarr.open_array(written_documents(None, document), mode="r")


class TestRefusals:
    @pytest.mark.parametrize(
        ("array_in", "reason"),
        [
            (lambda _: zarr.create_array({}, data=VALUES), "its codecs are bytes, zstd"),
            (lambda _: zarr.create_array({}, data=VALUES, zarr_format=2), "format 2"),
            (lambda _: stored(CountingStore(MemoryStore())), "its store is a CountingStore"),
            (in_zip, "its store is a ZipStore"),
            (of_nested_shards, "its codecs are shard"),
        ],
        ids=["compressed", "format 2", "store in another", "archive", "nested shards"],
    )
    def test_the_error_names_the_reason_and_the_call_of_zarr(self, array_in, reason, tmp_path):
        array = array_in(tmp_path)
        with pytest.raises(StoreError, match=rf"{reason}.*read it through zarr, as in `array\["):
            zarr_bytes.view(array)

    def test_a_byte_order_that_numpy_does_not_have_is_a_reason(self):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        other = {"little": "big", "big": "little"}[sys.byteorder]
        values, codec = np.ones(3, ml_dtypes.bfloat16), zarr.codecs.BytesCodec(endian=other)
        array = zarr.create_array({}, data=values, serializer=codec, compressors=None)
        with pytest.raises(StoreError, match=f"its bfloat16 is stored {other}-endian"):
            zarr_bytes.view(array)

    def test_what_is_no_array_of_zarr(self):
        with pytest.raises(TypeError, match=r"of type ndarray; permitted is a zarr\.Array"):
            zarr_bytes.view(VALUES)
        with pytest.raises(ValueError, match=r"mode is 'w'; permitted are 'r' and 'r\+'"):
            zarr_bytes.view(stored({}), "w")

    def test_the_pipeline_and_the_codec_of_the_array_do_not_matter(self, form):
        pipeline = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
        with zarr.config.set(pipeline | {"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
            same(zarr_bytes.view(stored({}, **form)), VALUES)
        new = zarr.create_array({}, data=VALUES, compressors=None, **form)
        same(zarr_bytes.view(new), VALUES)


class TestReadOnly:
    def test_it_cannot_be_assigned_to(self, form):
        view = zarr_bytes.view(stored({}, **form))
        with pytest.raises(ValueError, match=r'read-only: view\(array, "r\+"\)'):
            view[0] = 1
        for array in (view[0, 0, :2], view.blocks[0, 0, 0]):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 1

    @pytest.mark.parametrize(
        ("store", "mode", "reason"),
        [
            (MemoryStore, "r+", "only chunks in files"),
            (tempfile.mkdtemp, "r", 'open it with mode="r\\+"'),
            (tempfile.mkdtemp, "r+", r"zarr\.config\.set\(\{.zarr_bytes\.partial_writes"),
        ],
    )
    def test_it_is_not_changed_where_partial_writes_are_impossible(self, store, mode, reason):
        store = store()
        stored(store)
        with pytest.raises(StoreError, match=reason):
            zarr_bytes.view(zarr.open_array(store, mode=mode), "r+")


@needs_pwrite
class TestWriting:
    @fuzz(examples=50)
    @given(st.data())
    def test_selections_are_assigned_to_as_numpy_does_and_stored_at_once(self, data):
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

    @pytest.mark.filterwarnings("ignore")  # of lossy conversions and of types without a document
    @fuzz(examples=200)
    @given(st.data(), st.sampled_from(sorted(ODD_VALUES)), st.booleans())
    def test_values_are_converted_broadcast_and_refused_as_by_numpy(self, data, dtype, is_one):
        values = np.ones((6, 4), dtype)
        value = data.draw(st.sampled_from(ODD_VALUES[dtype]))
        choice = [np.s_[:], np.s_[1], np.s_[2:5, 1], np.s_[0, 0], np.s_[0, ..., 0], np.s_[4:4]]
        choice += [np.s_[[5, 0, 3]], np.s_[[], :2], np.s_[[0, 5], [1, 1]], np.s_[0, [1, 0]]]
        # NumPy takes its own NaN and NaT for integers where arrays of integers select, only there.
        is_inexact = isinstance(value, np.floating | np.datetime64)
        choice = choice[:5] if is_inexact else choice
        selection = data.draw(st.sampled_from(choice))
        sizes = data.draw(
            st.sampled_from([None, *[(1,) * n + (2,) for n in range(4)], (1, 3), (7,)])
        )
        if sizes is not None and dtype == RECORD:
            value = np.ones(sizes, RECORD)
        elif sizes is not None:
            value = np.full(sizes, value)
            # NumPy refuses lists of more levels than axes are selected.
            is_list = len(sizes) <= np.ndim(values[selection]) and data.draw(st.booleans())
            value = value.tolist() if is_list else value
        with tempfile.TemporaryDirectory() as folder:
            array, view = changed(folder, values=values, chunks=(6, 4) if is_one else (2, 2))
            try:
                expected = values.copy()
                expected[selection] = value
            except REFUSED:
                expected = values
                with pytest.raises(REFUSED):
                    view[selection] = value
            else:
                # Of nothing, NumPy converts no array.
                with contextlib.suppress(*REFUSED if not values[selection].size else []):
                    view[selection] = value
            assert array[...].tobytes() == expected.tobytes()
            del view

    @fuzz(examples=60)
    @given(st.data(), st.sampled_from(sorted(FORMS)), st.booleans())
    def test_a_value_may_overlap_its_target(self, data, form, is_refreshed):
        n = data.draw(st.integers(1, 9))
        slices = st.integers(0, 9 - n).map(lambda i: slice(i, i + n))
        target, source = data.draw(slices), data.draw(slices)
        step = data.draw(st.sampled_from([1, -1]))
        with tempfile.TemporaryDirectory() as folder:
            array, view = changed(folder, **FORMS[form])
            expected = VALUES.copy()
            expected[target] = expected[source][::step].copy()
            value = view[source][::step]
            if is_refreshed:
                view.refresh()
            view[target] = value
            same(array[...], expected)
            del view, value

    @pytest.mark.parametrize("step", [1, -1])
    def test_a_value_may_be_of_another_mapping_of_the_same_file(self, tmp_path, step):
        array, view = changed(tmp_path, chunks=SHAPE)
        value = view[:8][::step]
        view.refresh()
        view[1:] = value
        same(array[...], np.concatenate([VALUES[:1], VALUES[:8][::step]]))

    def test_a_view_may_be_the_value(self, tmp_path):
        array, view = changed(tmp_path, values=np.arange(6.0), chunks=3)
        view[::-1] = view
        same(array[...], np.arange(6.0)[::-1])

    @pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
    @pytest.mark.parametrize("chunks", [4, 2])
    @pytest.mark.parametrize("dtype", ["?", [("a", "i2"), ("flag", "?")]])
    def test_bools_are_stored_as_0_or_1(self, tmp_path, chunks, dtype):
        values = np.frombuffer(bytes([2, 0, 1, 255] * np.dtype(dtype).itemsize), dtype)
        array, view = changed(tmp_path, values=np.ones(4, dtype), chunks=chunks)
        view[:] = values
        view[3] = values[3]
        whole = b"".join(block.tobytes() for block in view.blocks)
        flags = np.frombuffer(whole, "u1").reshape(4, -1)[:, -1]
        assert flags.tolist() == (values.view("u1").reshape(4, -1)[:, -1] != 0).tolist()
        array[...]  # which is refused with another bool

    @pytest.mark.parametrize("chunks", [4, 2])
    @pytest.mark.parametrize(
        "selection", [np.s_[:], np.s_[[3, 2, 1, 0]], np.s_[3], np.s_[[1]], np.s_[-1, ...]]
    )
    def test_narrow_negative_numbers_are_stored_with_their_sign_bits(
        self, tmp_path, chunks, selection
    ):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        ones = np.ones(4, ml_dtypes.int4)
        for value in (-1, ml_dtypes.int4(-1), np.array([-1], ml_dtypes.int4), np.int64(-1)):
            array, view = changed(tmp_path, values=ones, chunks=chunks, overwrite=True)
            if np.ndim(value) and np.ndim(ones[selection]) == 0:
                value = value[0]
            view[selection] = value
            expected = np.ones(4, "u1")
            expected[selection] = 0xFF
            assert b"".join(block.tobytes() for block in view.blocks) == expected.tobytes()
            assert array[...].astype(int).tolist() == expected.view("i1").tolist()

    def test_a_value_that_numpy_refuses_is_an_error_before_anything_is_changed(self, tmp_path):
        array, view = changed(tmp_path)
        with pytest.raises(ValueError, match="could not convert string"):
            view[:, 0, 0] = np.array(["1"] * 8 + ["x"])
        same(array[...], VALUES)

    def test_a_block_is_assigned_to(self, tmp_path, form):
        array, view = changed(tmp_path, **form)
        view.blocks[-1, -1, -1][-1, -1, -1] = 6
        assert array[8, 7, 9] == 6

    def test_a_missing_chunk_is_an_error_before_anything_is_changed(self, tmp_path, form):
        array, view = changed(tmp_path, **form)
        if view.blocks.shape == (1, 1, 1):
            (tmp_path / "c/0/0/0").unlink()
        else:
            (tmp_path / "c/2/1/0").unlink(missing_ok=True)
            (tmp_path / "c/2/0/0").unlink(missing_ok=True)
        before = array[...]
        with pytest.raises(ValueError, match=r"missing.*zarr_bytes\.preallocate\(array\)"):
            view[...] = 1
        with pytest.raises(ValueError, match=r"missing"):
            view[8, 7, 9] = 1
        same(array[...], before)
        zarr_bytes.preallocate(array)
        view.refresh()
        view[...] = 1
        assert (array[...] == 1).all()

    @pytest.mark.parametrize("most", [1024, 2])
    def test_changes_of_a_chunk_that_was_replaced_are_an_error_of_flush(self, tmp_path, form, most):
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
        view[0, 0, 0] = -2
        view.flush()
        assert array[0, 0, 0] == -2
        (tmp_path / "c/0/0/0").unlink()
        with pytest.raises(ChunkFileError, match=r"c.0.0.0 was deleted"):
            view.flush()

    def test_changes_before_refresh_are_synced_and_no_path_is_kept_for_ever(
        self, tmp_path, monkeypatch
    ):
        synced = []
        with zarr.config.set({"zarr_bytes.mappings": 1}):
            _, view = changed(tmp_path)
        monkeypatch.setattr(mapping.os, "fsync", synced.append)
        view[...] = 1
        view.refresh()
        for count in (6, 7, 8):
            view.flush()
            assert len(synced) == count
            view[0, 0, 0] = 1

    @pytest.mark.parametrize("kind", ["symbolic link", "other name", "write-protected"])
    def test_a_file_that_others_see_is_not_changed(self, tmp_path, kind):
        _, view = changed(tmp_path)
        chunk = tmp_path / "c/0/0/0"
        if kind == "symbolic link":
            chunk.rename(tmp_path / "elsewhere")
            chunk.symlink_to(tmp_path / "elsewhere")
        elif kind == "other name":
            os.link(chunk, tmp_path / "elsewhere")
        else:
            chunk.chmod(0o444)
        with pytest.raises(ChunkFileError, match='open the view with mode="r"'):
            view[0, 0, 0] = 1
        assert zarr_bytes.view(zarr.open_array(tmp_path))[0, 0, 0] == 1
