"""A chunk that is a file is read from one open file, to the file's end, and once.

So a result has each chunk in one version, whatever happens to its name meanwhile; a system that
returns fewer bytes than were asked for is asked for the rest; and an error is made of what has been
read.
"""

import asyncio
import errno
import json
import os
import threading
from collections import Counter
from contextlib import contextmanager
from itertools import product
from time import monotonic

import numpy as np
import pytest
import zarr
from chunk_files import NEVER, watched
from conftest import PIPELINES
from fuzz import chunks_of, document_of, same, settings_of, store_with
from fuzz_arrays import orders_of, reads, take_orthogonally
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_partial_read import needs_nowait, numbers, put, stored
from test_pipeline import SMALL
from zarr.codecs import TransposeCodec
from zarr.storage import LocalStore

from zarr_bytes import BoolValueError, BytesCodec, ChunkFileError, ChunkSizeError
from zarr_bytes.chunk import limits
from zarr_bytes.chunk.limits import Limits

pytestmark = pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")


# The pipelines that may read in the thread of the event loop.
ON_THE_LOOP = [name for name in PIPELINES if name != "FusedCodecPipeline"]

SHAPE = (8, 9, 10)  # in chunks of 5 x 6 x 10
SOME = np.random.default_rng(0).random(SHAPE) < 0.1
POINTS = np.argwhere(SOME)
SELECTIONS = {
    "whole": ("basic", np.s_[...]),
    "row": ("basic", np.s_[3, 4]),
    "plane": ("basic", np.s_[3]),
    "column": ("basic", np.s_[:, 3, 4]),
    "box": ("basic", np.s_[2:7, 3:8, 1:9]),
    "steps": ("basic", np.s_[::2, 1::3, ::4]),
    "nothing": ("basic", np.s_[3:3]),
    "list": ("oindex", ([1, 4, 6], slice(None), slice(None))),
    "list in any order": ("oindex", ([6, 1, 4], slice(None), slice(2, 9))),
    "list with repetitions": ("oindex", ([6, 1, 6, 4, 1, 1], slice(None), slice(None))),
    "lists": ("oindex", ([1, 4, 6], [0, 7, 8], [2, 3, 9])),
    "lists in any order": ("oindex", ([6, 1, 4], [8, 8, 0], [9, 2, 3])),
    "lists and an integer": ("oindex", ([1, 4, 6], 5, [2, 3, 9])),
    "lists in any order and an integer": ("oindex", ([6, 1, 4], [8, 0, 7], 5)),
    "an integer and lists in any order": ("oindex", (6, [8, 0, 7], [9, 2, 3])),
    "masks of axes": ("oindex", (np.arange(8) % 3 == 1, slice(None), np.arange(10) % 4 == 0)),
    "points": ("vindex", tuple(POINTS.T)),
    "points in any order": ("vindex", tuple(np.random.default_rng(0).permutation(POINTS).T)),
    "mask": ("vindex", SOME),
}


def selected(array, form):
    kind, selection = SELECTIONS[form]
    return array[selection] if kind == "basic" else getattr(array, kind)[selection]


def selected_by_numpy(values, form):
    kind, selection = SELECTIONS[form]
    return take_orthogonally(values, selection) if kind == "oindex" else values[selection]


@pytest.fixture(
    params=[
        *((name, []) for name in PIPELINES),
        ("BytesPipeline", [TransposeCodec(order=(2, 0, 1))]),
    ],
    ids=[*PIPELINES, "transposed"],
)
def array(request, tmp_path):
    """Of float64; with transposed chunks in the one pipeline that reads these itself."""
    pipeline, filters = request.param
    with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
        return stored(LocalStore(tmp_path), numbers(SHAPE) + 1, chunks=(5, 6, 10), filters=filters)


def keys_of(form):
    """The chunks of which something is selected."""
    number = np.indices(SHAPE)[:2] // np.reshape([5, 6], (2, 1, 1, 1))
    number = selected_by_numpy(number[0] * 2 + number[1], form)
    return [f"c/{n // 2}/{n % 2}/0" for n in np.unique(number).tolist()]


@pytest.mark.parametrize("is_partial", [True, False], ids=["partial reads", "whole chunks"])
@pytest.mark.parametrize("sizes", [Limits(), SMALL], ids=["small results", "large results"])
class TestOneOpenFile:
    """Results count as large beyond 40 bytes, and so on, where the thresholds are small."""

    @pytest.fixture(autouse=True)
    def _settings(self, array, is_partial, sizes, monkeypatch):
        monkeypatch.setattr(limits, "LIMITS", sizes)
        with zarr.config.set({"zarr_bytes.partial_reads": is_partial, "zarr_bytes.gap.local": 64}):
            yield

    def test_a_read_opens_each_chunk_once(self, array, tmp_path, is_partial):
        (tmp_path / "c/0/1/0").unlink()
        values = numbers(SHAPE) + 1
        values[:5, 6:] = 0
        for form in SELECTIONS:
            with watched(tmp_path) as files:
                found = selected(array, form)
            assert (form, files.opened) == (form, Counter(keys_of(form)))
            if not is_partial:  # nor are its bytes read again
                assert (form, max(files.nbytes.values(), default=0)) <= (form, 5 * 6 * 10 * 8)
            same(found, selected_by_numpy(values, form))

    @pytest.mark.parametrize("becomes", ["another version", "missing"])
    def test_a_chunk_that_becomes_another_during_a_read_is_the_one_that_was_opened(
        self, array, tmp_path, becomes
    ):
        contents = {path: path.read_bytes() for path in tmp_path.glob("c/*/*/*")}
        changed = set()

        def change(key):
            path = tmp_path / key
            if key not in changed:
                changed.add(key)
                path.with_suffix(".new").write_bytes(bytes(len(contents[path])))
                path.with_suffix(".new").replace(path)
                if becomes == "missing":
                    path.unlink()

        for form in SELECTIONS:
            for key in changed:
                (tmp_path / key).write_bytes(contents[tmp_path / key])
            changed.clear()
            with watched(tmp_path, then=change):
                found = selected(array, form)
            assert (form, changed) == (form, set(keys_of(form)))
            same(found, selected_by_numpy(numbers(SHAPE) + 1, form))

    def test_an_error_of_the_last_call_is_raised_as_it_is(self, array, tmp_path):
        assert array[0, 0, 0] == 1  # now the file system is known
        calls, last = [], 0

        def fail(key):
            calls.append(key)
            if len(calls) == last:
                raise OSError(errno.EIO, "no more")

        for form in SELECTIONS.keys() - {"nothing"}:
            calls, last = [], 0
            with watched(tmp_path, then=fail):
                selected(array, form)
            calls, last = [], len(calls)
            with watched(tmp_path, then=fail), pytest.raises(OSError, match="no more") as caught:
                selected(array, form)
            assert (form, caught.value.errno) == (form, errno.EIO)


def property_of(examples):
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def thresholds(draw):
    """Those that there are, or some of them so small that small arrays are on either side."""
    if draw(st.integers(0, 4)) == 0:
        return Limits()
    sizes = {name: st.sampled_from([1, 24, 100, size]) for name, size in Limits()._asdict().items()}
    return Limits(**draw(st.fixed_dictionaries(sizes)))


class Case:
    """An array of a few chunks in two versions, and a read of it."""

    def __init__(self, draw, folder, pipeline, *, can_be_transposed=True):
        self.folder = folder
        shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
        chunk_shape = tuple(draw(st.integers(-(-n // 2), n + 1)) for n in shape)
        name = draw(st.sampled_from(["bool", "uint8", "int16", "float64"]))
        endian = draw(st.sampled_from(["little", "big"]))
        # Zarr's pipelines let the store read transposed chunks.
        is_plain = pipeline != "BytesPipeline" or not can_be_transposed
        orders = [] if is_plain else draw(orders_of(len(shape)))
        order = np.arange(np.prod(shape)).reshape(shape)
        old = (order >= 0) if name == "bool" else (order % 100 + 1).astype(name)
        new = ~old if name == "bool" else old + old.dtype.type(100)
        self.read, self.select = draw(reads(shape, chunk_shape))
        self.old, self.new = np.asarray(self.select(old)), np.asarray(self.select(new))
        # Of each selected element, the key of its chunk.
        grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
        places = [i // c for i, c in zip(np.indices(shape), chunk_shape, strict=True)]
        keys = ["/".join(["c", *map(str, index)]) for index in product(*map(range, grid))]
        self.keys = np.array(keys)[self.select(np.ravel_multi_index(places, grid))]
        self.contents = [
            dict(chunks_of(values, chunk_shape, name, endian, orders)) for values in (old, new)
        ]
        self._document = json.dumps(document_of(name, shape, chunk_shape, endian, orders)).encode()
        self.settings = settings_of(draw)
        self._limits = draw(thresholds())
        self._is_known = draw(st.booleans())  # whether the file system is known to be local

    @contextmanager
    def array(self):
        """The old version, to be read with the settings and thresholds of the case."""
        objects = {"zarr.json": self._document, **self.contents[0]}
        array = zarr.open_array(store_with("local", objects, self.folder), mode="r")
        if self._is_known:
            array[...]
        with zarr.config.set(self.settings), pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "LIMITS", self._limits)
            yield array

    def outcome(self, array, **faults):
        """What the read gives, elements or an error; and the files that it reads."""
        with watched(self.folder, **faults) as files:
            try:
                found = np.asarray(self.read(array)).tobytes()
            except (ChunkSizeError, ChunkFileError, BoolValueError) as error:
                found = type(error), str(error)
        return found, files


@property_of(20)
@given(data=st.data())
def test_each_chunk_of_a_result_is_one_version(tmp_path_factory, pipeline, data):
    """It becomes another after so many opens and reads, and may have to be waited for."""
    case = Case(data.draw, tmp_path_factory.mktemp("a"), pipeline)
    moment, is_deleted = data.draw(st.integers(1, 4)), data.draw(st.booleans())
    waits_after = data.draw(st.sampled_from([NEVER, 0, 1, 5, 20]))
    events = Counter()

    def replace(key):
        path = case.folder / key
        events[key] += 1
        if events[key] == moment:
            path.with_suffix(".new").write_bytes(case.contents[1][key])
            path.with_suffix(".new").replace(path)
            if is_deleted:
                path.unlink()

    with (
        case.array() as array,
        watched(case.folder, then=replace, waits_after=waits_after) as files,
    ):
        found = np.asarray(case.read(array))
    for key in np.unique(case.keys).tolist():
        part = case.keys == key
        assert files.opened[key] == 1  # also where a thread reads on
        same(found[part], case.old[part])


class TestShortReads:
    @property_of(20)
    @given(data=st.data())
    def test_the_rest_is_read_too(self, tmp_path_factory, pipeline, data):
        case = Case(data.draw, tmp_path_factory.mktemp("a"), pipeline)
        most = data.draw(st.sampled_from([1, 3, 7, 30]))
        waits_after = data.draw(st.sampled_from([NEVER, 0, 1, 5, 20]))
        with case.array() as array:
            found, _ = case.outcome(array, most=most, waits_after=waits_after)
        assert found == case.old.tobytes()

    @pytest.mark.parametrize("most", [1000, 40_000, 65_536, 200_000])
    @pytest.mark.parametrize("columns", [8_000, 30_000, 100_000])
    def test_of_chunks_of_every_size(self, tmp_path, pipeline, columns, most):
        """Of 64 to 800 kB: on the event loop, in the result, at once and block by block."""
        values = numbers((3, columns))
        array = stored(LocalStore(tmp_path), values, chunks=(1, columns))
        for _ in "unknown", "known":  # whether the file system is local
            with watched(tmp_path, most=most):
                assert np.array_equal(array[...], values)
                assert np.array_equal(array[:, 5:-5], values[:, 5:-5])
                assert np.array_equal(array[1, ::7], values[1, ::7])

    @needs_nowait
    @pytest.mark.parametrize("pipeline", ON_THE_LOOP, indirect=True)
    def test_what_need_not_be_waited_for_takes_no_thread(self, tmp_path, pipeline):
        array, values = small_chunks(tmp_path)
        for selection in np.s_[...], np.s_[:, 2:5], np.s_[7, ::3]:
            with watched(tmp_path, most=5) as files:
                assert np.array_equal(on_the_loop(array, selection), values[selection])
            assert files.threads == {threading.get_ident()}


class TestErrors:
    """They are made of what has been read, in the words of zarr's batched pipeline."""

    @property_of(30)
    @given(data=st.data())
    def test_take_no_second_reading(self, tmp_path_factory, pipeline, data):
        case = Case(data.draw, tmp_path_factory.mktemp("a"), pipeline, can_be_transposed=False)
        assume(case.keys.size)
        key = data.draw(st.sampled_from(np.unique(case.keys).tolist()))
        content = case.contents[0][key]
        most = data.draw(st.sampled_from([NEVER, 1, 3, 7, 30]))
        fault = data.draw(st.sampled_from(["truncated", "too long", "bool", "folder"]))
        assume(fault != "too long" or most != len(content))  # what is enough at once is the end
        with case.array() as array:
            case.outcome(array)  # now the file system is known
            _, intact = case.outcome(array)
            damage(case.folder / key, fault, data.draw(st.integers(0, len(content) - 1)))
            expected, _ = case.outcome(batched(array))
            found, files = case.outcome(array, most=most)
        assert found == expected
        assert files.opened[key] == 1
        assert files.nbytes[key] <= intact.nbytes[key] + (fault == "too long")

    @pytest.mark.parametrize("is_partial", [True, False], ids=["partial reads", "whole chunks"])
    @pytest.mark.parametrize("fault", ["bool", "truncated"])
    def test_name_the_selection_and_not_the_part_of_it_that_was_read(
        self, tmp_path, monkeypatch, pipeline, fault, is_partial
    ):
        monkeypatch.setattr(limits, "LIMITS", SMALL)
        values = np.ones(SHAPE, "?")
        array = stored(LocalStore(tmp_path), values)
        assert array[0, 0, 0]  # now the file system is known
        path, places = tmp_path / "c/0/0/0", np.arange(values.size).reshape(SHAPE)
        with zarr.config.set({"zarr_bytes.partial_reads": is_partial, "zarr_bytes.gap.local": 64}):
            for form in SELECTIONS.keys() - {"nothing"}:
                path.write_bytes(values.tobytes())
                with watched(tmp_path) as intact:
                    selected(array, form)
                damage(path, fault, int(selected_by_numpy(places, form).max()))
                with pytest.raises((BoolValueError, ChunkSizeError)) as expected:
                    selected(batched(array), form)
                with watched(tmp_path) as files, pytest.raises(expected.type) as caught:
                    selected(array, form)
                assert (form, str(caught.value)) == (form, str(expected.value))
                assert files.opened["c/0/0/0"] == 1
                assert files.nbytes["c/0/0/0"] <= intact.nbytes["c/0/0/0"]

    def test_are_of_the_whole_chunk_where_that_is_no_larger_than_the_gap(self, tmp_path, pipeline):
        array = stored(LocalStore(tmp_path), numbers((60, 1000)))
        os.truncate(tmp_path / "c/0/0", 479_999)
        with (
            zarr.config.set({"zarr_bytes.gap.local": 2**20}),
            pytest.raises(ChunkSizeError, match="480000 bytes, found 479999"),
        ):
            array[:50]

    @pytest.mark.parametrize(
        "selection", [..., np.s_[:, 1:], np.s_[::2]], ids=["whole", "tile", "steps"]
    )
    def test_of_a_large_chunk_cost_no_more_than_reading_it(self, tmp_path, pipeline, selection):
        options = {"shape": (1500, 4000), "chunks": (1500, 4000), "dtype": "f8"}
        zarr.create_array(tmp_path, compressors=None, serializer=BytesCodec(), **options)
        (tmp_path / "c/0").mkdir(parents=True)
        with (tmp_path / "c/0/0").open("wb") as file:
            file.truncate(40_000_000)  # of 48,000,000, and takes no space
        array = zarr.open_array(tmp_path, mode="r")
        with watched(tmp_path) as files, pytest.raises(ChunkSizeError, match="truncated"):
            array[selection]
        assert files.opened["c/0/0"] == 1
        assert files.nbytes["c/0/0"] <= 40_000_000


def batched(array):
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
        return zarr.open_array(array.store, mode="r")


def damage(path, fault, place):
    """Change a chunk of bools or other bytes at `place`, or put something else there."""
    content = path.read_bytes()
    if fault == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = {
            "truncated": content[:place],
            "too long": content + b"xyz",
            "bool": content[:place] + b"\5" + content[place + 1 :],
        }
        path.write_bytes(changed[fault])


@needs_nowait
@pytest.mark.parametrize("pipeline", ON_THE_LOOP, indirect=True)
class TestWaiting:
    """Small chunks that need not be waited for are read on the event loop."""

    @pytest.mark.parametrize("selection", [3, (3, slice(2, 5))], ids=["whole", "range"])
    @pytest.mark.parametrize(
        "fault", ["truncated", "too long", "folder", "FIFO", "socket", "character device"]
    )
    def test_is_not_due_for_others_because_one_chunk_is_an_error(
        self, tmp_path, pipeline, fault, selection
    ):
        array, values = small_chunks(tmp_path)
        path = tmp_path / "c/3/0"
        if fault in ("truncated", "too long"):
            damage(path, fault, 20)
        else:
            path.unlink()
            put(fault, path)
        with pytest.raises((ChunkSizeError, ChunkFileError)):
            on_the_loop(array, selection)
        with watched(tmp_path) as files:
            assert np.array_equal(on_the_loop(array, np.s_[4:]), values[4:])
        assert files.threads == {threading.get_ident()}

    @pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EOPNOTSUPP], ids=["wait", "unable"])
    @pytest.mark.parametrize("selection", [3, (3, slice(2, 5))], ids=["whole", "range"])
    def test_is_due_for_all_chunks_for_a_while_where_it_was_for_one(
        self, tmp_path, pipeline, refusal, selection
    ):
        array, values = small_chunks(tmp_path)
        with watched(tmp_path, waits_after=0, refusal=refusal) as files:
            begun = monotonic()
            assert np.array_equal(on_the_loop(array, selection), values[selection])
            assert (files.refused, files.opened["c/3/0"]) == (1, 1)
            assert np.array_equal(on_the_loop(array, np.s_[4:]), values[4:])
            assert files.refused == 1 or monotonic() > begun + 1  # second, after which it is tried


def small_chunks(folder):
    """Chunks of 64 bytes, on a file system that is known to be local, and what they hold."""
    values = numbers((10, 8)) + 1
    array = stored(LocalStore(folder), values, chunks=(1, 8))
    assert array[0, 0] == 1
    return array, values


def on_the_loop(array, selection):
    """What is read of `array` on an event loop of this thread."""
    return asyncio.run(array._async_array.getitem(selection))
