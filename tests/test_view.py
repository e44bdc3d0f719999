"""`zarr_bytes.view`: selections against NumPy, what is mapped, changed and refused."""

import contextlib
import gc
import itertools
import json
import os
import pickle
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import stored_arrays
import zarr
from fuzz import TYPES, document_of, fuzz, same, store_with
from fuzz_arrays import arrays, sharded
from hypothesis import event, given, reject
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, integer_array_indices
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
from zarr_bytes import ChunkFileError, ChunkSizeError, ShardIndexError, StoreError

needs_maps = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="lists mapped files")
needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="changed in place on POSIX")

SHAPE, CHUNKS = (9, 8, 10), (4, 5, 10)
VALUES = numbers(SHAPE, "f4") + 1
REFUSED = (ValueError, TypeError, OverflowError)
NAT = np.datetime64("NaT", "s")
NUMBERS = [0, -1, 300, 2**70, 1.5, float("nan"), 1j, True, "7", "x", None, np.uint8(200), NAT]
ODD_VALUES = {  # by the type of the array
    **dict.fromkeys(["i2", "f4", "?"], NUMBERS),
    "M8[s]": [0, 1.5, "2020-01-02", "x", np.datetime64("2020-01-02", "D"), None],
    "S3": ["", "abcdef", 12345, b"ab\0c", "ü"],
    "?,i2": [(1, 2), (True, 300), (0, 2**20), 5, (1,), "x", np.array((1, 7), "?,i2")[()]],
}
FORMS = {  # parameters of zarr.create_array
    "one chunk": {"chunks": SHAPE},
    "chunks": {"chunks": CHUNKS},
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
        if is_swapped and dtype.num >= 256:
            reason = f"its {dtype} is stored {example.endian}-endian, a type that NumPy does not"
            with pytest.raises(StoreError, match=rf"{reason} have; read it .*`array\[\.\.\.\]`"):
                zarr_bytes.view(array, mode)
            event("a type that is not mapped")
            reject()
        yield example, array, zarr_bytes.view(array, mode)


def mapped(folder):
    """Chunks below `folder` that this process has mapped, one for each mapping."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.partition("/c/")[2] for line in lines if f" {folder}/" in line]


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
    gc.disable()  # the collector calls functions of Hypothesis, and swallows what they raise
    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(previous)
        gc.enable()
    return False


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@st.composite
def selections(draw, shape):
    """As NumPy takes them: basic, every combination of arrays beside others, or points."""
    kinds = ["basic", "arrays", "points"] if shape and 0 not in shape else ["basic"]
    kind = draw(st.sampled_from(kinds))
    if kind == "points":
        sizes = array_shapes(min_side=0, max_dims=3)
        points = draw(integer_array_indices(shape, result_shape=sizes))
        odd = lambda i, n: [int(i.flat[0]), np.uint8(i.flat[0] % n)] if i.size else []  # noqa: E731
        pairs = zip(points, shape, strict=True)
        return tuple(draw(st.sampled_from([i, *odd(i, n)])) for i, n in pairs)
    like = draw(st.sampled_from([int, np.int64]))
    if kind == "basic":
        given = draw(basic_indices(shape, allow_newaxis=False))
        entries = list(given if isinstance(given, tuple) else [given])
    else:
        entries = [draw(st.integers(-n, n - 1) | st.slices(n)) for n in shape]
        axes = draw(st.permutations(range(len(shape))))[: draw(st.integers(1, len(shape)))]
        is_open = draw(st.booleans())  # all of one number of axes, as of `numpy.ix_`
        for place, axis in enumerate(axes):  # in the result
            n = shape[axis]
            indices = draw(st.lists(st.integers(-n, n - 1), max_size=9))
            sides = [1] * place * is_open, [1] * (len(axes) - 1 - place)
            entries[axis] = np.array(indices, int).reshape(*sides[0], -1, *sides[1])
        if len(axes) == 1:
            form = st.sampled_from([indices, np.tile(indices, (2, 1)).astype(int)])
            entries[axis] = draw(st.just(entries[axis]) | form | st.just(np.arange(n) % 3 == 0))
        entries = entries[: draw(st.integers(max(axes) + 1, len(shape)))]
    return tuple([like(entry) if type(entry) is int else entry for entry in entries])


class TestSelections:
    @fuzz(examples=60)
    @given(st.data())
    def test_they_are_numpys_of_any_array_and_layout(self, data):
        with any_view(data, can_be_missing=True) as (example, _, view):
            values, selection = example.values(), data.draw(selections(example.shape))
            found, expected = view[selection], values[selection]
            assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray)
            same(found, expected)
            same(view, values)
            # Each block is a chunk or an inner chunk, cut to the array.
            assert len(view.blocks) == len(list(view.blocks))
            for place in np.ndindex(view.blocks.shape):
                sizes = zip(place, view.chunks, strict=True)
                # With dots, as NumPy makes a text of no axes another type.
                part = (*(slice(i * n, (i + 1) * n) for i, n in sizes), ...)
                from_the_end = np.subtract(place, view.blocks.shape).tolist()
                for block in view.blocks[place], view.blocks[tuple(from_the_end)]:
                    same(block, values[part])
                    assert not block.flags.owndata

    def test_rows_of_more_than_a_cache_holds_come_in_any_order(self, tmp_path):
        values = numbers((700, 1000), "u4")
        array, view = changed(tmp_path, values=values, chunks=(300, 700))
        rows = np.random.default_rng(0).permutation(700)
        same(view[rows], values[rows])
        if hasattr(os, "pwrite"):
            view[rows] = values
            same(array[...], values[np.argsort(rows)])

    def test_the_axes_are_numpys_for_entries_of_any_kinds_in_any_order(self, form):
        """Also with dots, which separate arrays where they stand for no axis."""
        view = zarr_bytes.view(stored({}, **form))
        for kinds in itertools.product([np.int64(-3), slice(1, 6, 2), list], repeat=3):
            indices = iter(np.ix_(*[[5, -8, 0, 5], [-6, 7], [1, 6, -3]][: kinds.count(list)]))
            entries = [next(indices) if kind is list else kind for kind in kinds]
            for selection in [entries, *([*entries[:i], ..., *entries[i:]] for i in range(4))]:
                same(view[tuple(selection)], VALUES[tuple(selection)])

    def test_points_are_broadcast_beside_integers_also_where_there_are_none(self, form):
        view = zarr_bytes.view(stored({}, **form))
        for points in (([5, 0], 3, [1, 9]), (np.zeros((0, 2), int), [[0, 0]], 1), ([], 0, [1])):
            found = view[points]
            same(found, VALUES[tuple(np.asarray(entry, int) for entry in points)])

    @pytest.mark.parametrize("store", [MemoryStore, tempfile.mkdtemp])
    def test_a_selection_of_one_block_copies_nothing(self, store, form):
        view = zarr_bytes.view(stored(store(), **form))
        of_first = [np.s_[1, 2, :3], np.s_[:2, 4:1:-1, 4::-2], np.s_[1, ..., 2:3, 0:4]]
        other = tuple(i // n for i, n in zip((5, 7, 7), view.chunks, strict=True))
        cases = [*((s, (0, 0, 0)) for s in of_first), (np.s_[5, 7:5:-1, 7], other)]
        for selection, place in cases:
            part, block = view[selection], view.blocks[place]
            same(part, VALUES[selection])
            assert np.shares_memory(part, block)
            assert not part.flags.writeable

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
            (([], [0, 1], 0), r"shapes \(0,\) and \(2,\) cannot be broadcast"),
            ([[1], [1, 2]], r"\[\[1\], \[1, 2\]\], which is no array"),
            (slice("a", None), r"slice\('a', None, None\), which has bounds of other types"),
            (np.int64(9), "is outside axis 0, which has 9 elements"),
            ((0, 0, -11), "is outside axis 2"),
            ([0, 9], "is outside axis 0"),
            ((0, 0, 0, 0), "4 entries, and the array 3 axes"),
        ],
    )
    def test_another_form_is_an_error_that_says_what_to_call(self, selection, advice):
        view = zarr_bytes.view(stored({}))
        with pytest.raises(IndexError, match=advice):
            view[selection]

    def test_an_array_may_have_more_elements_than_offsets_have(self):
        options = {"dtype": "i4", "chunks": (2**4,) * 2, "fill_value": 3, "compressors": None}
        view = zarr_bytes.view(zarr.create_array({}, shape=(2**40, 2**40), **options))
        for rows, count in ((np.s_[-2000:], 2000), (np.s_[[5, 2**39]], 2)):
            same(view[rows, 1020:1030], np.full((count, 10), 3, "i4"))
        assert next(iter(view.blocks)).shape == view.chunks
        with pytest.raises(IndexError, match=r"points .* less than 2\*\*62 elements"):
            view[[1, 2], [3, 4]]
        with pytest.raises(OverflowError, match=f"there are {2**72} blocks"):
            len(view.blocks)

    @pytest.mark.parametrize("place", [(3, 0, 0), (-4, 0, 0), (0, 0), 0, (0, 0, slice(None))])
    def test_another_place_of_a_block_is_an_error(self, place):
        with pytest.raises(IndexError, match="block"):
            zarr_bytes.view(stored({})).blocks[place]

    def test_a_missing_block_has_the_fill_value_bit_for_bit_and_takes_no_memory(self, tmp_path):
        document = document_of("float32", (10, 10), (2, 10), "big") | {"fill_value": "0x7fa00001"}
        view = zarr_bytes.view(zarr.open_array(written_documents(tmp_path, document), mode="r"))
        block = view.blocks[4, 0]
        assert (block.shape, block.strides, block.flags.writeable) == ((2, 10), (0, 0), False)
        assert view[:].tobytes() == b"\x7f\xa0\x00\x01" * 100

    def test_a_transposed_block_has_other_strides(self):
        filters = [zarr.codecs.TransposeCodec(order=(2, 0, 1))]
        view = zarr_bytes.view(stored({}, filters=filters, chunks=SHAPE))
        assert view.blocks[0, 0, 0].strides == (4 * 8, 4, 4 * 8 * 9)
        same(view, VALUES)


class TestArrays:
    """What libraries ask of an array."""

    def test_its_properties_and_samples_are_those_of_the_array(self, form):
        view = zarr_bytes.view(stored({}, **form))
        same(np.stack(list(view)), VALUES)  # as `torch.utils.data.DataLoader` draws them
        assert (view.shape, view.ndim, view.size, len(view)) == (SHAPE, 3, 720, 9)
        assert (view.dtype, view.chunks, view.nbytes) == (">f4", form["chunks"], 2880)
        assert "dtype=>f4" in repr(view)
        assert "shape=" in repr(view.blocks)
        with pytest.raises(TypeError, match="without axes"):
            len(zarr_bytes.view(stored({}, np.array(3, "i2"), chunks=())))

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
        assert view[1, 2, 3] == VALUES[1, 2, 3]
        again = pickle.loads(pickle.dumps(view))  # noqa: S301
        assert again.mode == mode
        if mode == "r+":
            again[1, 2, 3] = -1
        assert view[1, 2, 3] == (-1 if mode == "r+" else VALUES[1, 2, 3])

    def test_threads_share_it(self, tmp_path):
        with zarr.config.set({"zarr_bytes.mappings": 2}):
            view = zarr_bytes.view(stored(tmp_path))

        def read(seed):
            points = map(tuple, np.random.default_rng(seed).integers(0, SHAPE, (300, 3)).tolist())
            return [point for point in points if view[point] != VALUES[point]]

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(read, range(4))) == [[]] * 4


class TestMappings:
    @needs_maps
    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_the_setting_bounds_their_number(self, tmp_path, form, most):
        with zarr.config.set({"zarr_bytes.mappings": most}):
            view = zarr_bytes.view(stored(tmp_path, **form))
        for point in map(
            tuple, np.random.default_rng(0).integers(np.negative(SHAPE), SHAPE, (100, 3)).tolist()
        ):
            assert view[point] == VALUES[point]
            assert 0 < len(mapped(tmp_path)) <= most

    @needs_maps
    def test_those_used_last_are_kept(self, tmp_path):
        with zarr.config.set({"zarr_bytes.mappings": 2}):
            view = zarr_bytes.view(stored(tmp_path, chunks=(1, 8, 10)))
        for i, kept in [(0, "0"), (1, "01"), (0, "01"), (2, "02"), (0, "02"), (1, "01")]:
            assert view[i, 0, 0] == VALUES[i, 0, 0]
            assert sorted(mapped(tmp_path)) == [f"{j}/0/0" for j in kept]

    @needs_maps
    def test_they_come_with_the_first_selection_and_go_with_the_last_array(self, tmp_path, form):
        """An array that must not be a copy is refused before any chunk is mapped."""
        gc.disable()
        try:
            view = zarr_bytes.view(stored(tmp_path, **form))
            if form != FORMS["one chunk"]:
                with pytest.raises(ValueError, match="only as a copy"):
                    np.array(view, copy=False)
            assert mapped(tmp_path) == []
            same(view, VALUES)
            row = view[:2, 0, :2]
            assert len(mapped(tmp_path)) >= 1
            view.refresh()
            del view
            assert mapped(tmp_path) == ["0/0/0"]
            same(row, VALUES[:2, 0, :2])
            del row
            assert mapped(tmp_path) == []
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

    @pytest.mark.parametrize("value", [2**70, 0, -1, "many", 1.5, True, "9" * 5000])
    def test_any_number_from_1_on_may_be_kept(self, value):
        array = stored({})
        with zarr.config.set({"zarr_bytes.mappings": value}):
            if value == 2**70:
                same(zarr_bytes.view(array), VALUES)
            else:
                with pytest.raises(ValueError, match=r"zarr_bytes\.mappings is .* from 1 on"):
                    zarr_bytes.view(array)

    @pytest.mark.parametrize("store", [MemoryStore, tempfile.mkdtemp])
    def test_a_chunk_stays_what_it_was_until_refresh(self, store, form):
        options = {"shape": SHAPE, "dtype": "f4", "compressors": None, "fill_value": 7}
        array = zarr.create_array(store(), **options, **form)
        view = zarr_bytes.view(array)
        for before, after in (np.full(SHAPE, 7, "f4"), VALUES), (VALUES, -VALUES):
            held = view[0, 0, :2]
            array[...] = after
            same(held, before[0, 0, :2])
            same(view[0, 0], before[0, 0])
            view.refresh()
            same(view, after)


PLAIN = document_of("int16", (4,), (4,), "big")
SHARD = PLAIN | {"codecs": [sharding((2,), PLAIN["codecs"])]}
PARTS = [b"\0\1\0\2"] * 2
DAMAGED = {  # the document, the content, and what the error says
    "long chunk": (PLAIN, bytes(9), "c/0 are 8 bytes, found 9"),
    "short shard": (SHARD, shard_of(PARTS)[:30], "truncated|checksum"),
    "long inner chunk": (SHARD, shard_of(PARTS, entries={0: (0, 7)}), r"\(0\) .* 7 bytes"),
    "inner chunk elsewhere": (SHARD, shard_of(PARTS, entries={0: (100, 4)}), "ends at byte 104"),
}


class TestFaults:
    @pytest.mark.parametrize("kind", ["local", "memory"])
    @pytest.mark.parametrize("case", DAMAGED)
    def test_a_wrong_size_or_index_is_an_error_where_the_damage_is(self, tmp_path, case, kind):
        document, content, says = DAMAGED[case]
        objects = {"zarr.json": json.dumps(document).encode(), "c/0": content}
        view = zarr_bytes.view(zarr.open_array(store_with(kind, objects, tmp_path), mode="r"))
        with pytest.raises((ChunkSizeError, ShardIndexError), match=says):
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


def in_zip(folder):
    with ZipStore(folder / "a.zip", mode="w") as store:
        stored(store)
    return zarr.open_array(ZipStore(folder / "a.zip"), mode="r")


def of_other_byte_order(_):
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    codec = zarr.codecs.BytesCodec(endian={"little": "big", "big": "little"}[sys.byteorder])
    return zarr.create_array({}, data=np.ones(3, dtype), serializer=codec, compressors=None)


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
            (of_other_byte_order, "its bfloat16 is stored (little|big)-endian"),
        ],
        ids=["compressed", "format 2", "store in another", "archive", "nested shards", "swapped"],
    )
    def test_the_error_names_the_reason_and_the_call_of_zarr(self, array_in, reason, tmp_path):
        array = array_in(tmp_path)
        with pytest.raises(StoreError, match=rf"{reason}.*read it through zarr, as in `array\["):
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
    @fuzz(examples=40)
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
    @pytest.mark.parametrize("dtype", ODD_VALUES)
    def test_values_are_converted_broadcast_and_refused_as_by_numpy(self, tmp_path, dtype):
        values = np.ones((6, 4), dtype)
        array, view = changed(tmp_path, values=values, chunks=(4, 2))
        selected = np.s_[:, 1, (slice(2, 5), 1), (0, 0), (0, ..., 0), 4:4]
        selected += np.s_[[5, 0, 3], ([], slice(2)), ([0, 5], [1, 1]), (0, [1, 0])]
        for value, selection in itertools.product(ODD_VALUES[dtype], selected):
            is_record = dtype == "?,i2"
            for form in [value] if is_record else [value, *[np.full(n, value) for n in (2, 4, 7)]]:
                expected = values.copy()
                try:
                    expected[selection] = form
                except REFUSED:
                    refused = pytest.raises(REFUSED)
                    expected = values
                else:  # of nothing, NumPy converts no array
                    refused = contextlib.suppress(*REFUSED if not values[selection].size else ())
                # NumPy takes its own NaT for integers where arrays of integers select, only there.
                if value is not NAT or "[" not in str(selection):
                    with refused:
                        view[selection] = form
                    same(view, expected)
                    view[...] = values
        assert array[...].tobytes() == values.tobytes()

    @pytest.mark.parametrize("is_refreshed", [False, True])
    @pytest.mark.parametrize("step", [1, -1])
    def test_a_value_may_overlap_its_target(self, tmp_path, form, step, is_refreshed):
        """As a part of the view, and of another mapping of the same file."""
        array, view = changed(tmp_path, **form)
        expected = VALUES.copy()
        starts = [(0, 1, 8), (1, 0, 8), (2, 4, 5), (5, 3, 2), (0, 0, 9)]
        for target, source, n in starts:
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

    @pytest.mark.parametrize("selection", [np.s_[:], np.s_[[3, 2, 1, 0]], np.s_[3], np.s_[-1, ...]])
    def test_narrow_negative_numbers_are_stored_with_their_sign_bits(self, tmp_path, selection):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        ones = np.ones(4, ml_dtypes.int4)
        for value in (-1, ml_dtypes.int4(-1), np.int64(-1)):
            _, view = changed(tmp_path, values=ones, chunks=2, overwrite=True)
            view[selection] = value
            expected = np.ones(4, "u1")
            expected[selection] = 0xFF
            assert b"".join(block.tobytes() for block in view.blocks) == expected.tobytes()

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
        max((tmp_path / "c").rglob("*/*/0")).unlink()
        before = array[...]
        for selection in (..., np.s_[8, 7, 9]):
            with pytest.raises(ValueError, match=r"missing.*zarr_bytes\.preallocate\(array\)"):
                view[selection] = 1
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

    def test_flush_syncs_every_changed_file_once_also_those_of_before_a_refresh(
        self, tmp_path, monkeypatch
    ):
        synced, files = [], {}
        with zarr.config.set({"zarr_bytes.mappings": 1}):
            _, view = changed(tmp_path)
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
        view[...] = 1
        view.refresh()
        view.flush()
        files = {path.stat().st_ino for path in tmp_path.rglob("c/*/*/*")}
        assert sorted(synced) == sorted(files)
        synced.clear()
        view[0, 0, 0] = 1
        view.flush()
        view.flush()
        assert (tmp_path / "c/0/0/0").stat().st_ino in synced
        assert len(set(synced)) == 1

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
