"""A chunk that is a file is read from one open file, to the file's end, and once.

So a result has each chunk in one version, whatever happens to its name meanwhile; a system that
returns fewer bytes than were asked for is asked for the rest; and an error is made of what has been
read. `test_fuzz_files.py` has files that others replace at any moment.
"""

import errno
import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from fuzz import same, settings_of, store_with, thresholds
from fuzz_arrays import arrays, reads, take_orthogonally
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from stored_arrays import SMALL, numbers, stored
from system_calls import NEVER, watched
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore

from zarr_bytes import BoolValueError, BytesCodec, ChunkFileError, ChunkSizeError, limits
from zarr_bytes.limits import Limits

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv"),
    pytest.mark.filterwarnings("ignore:The data type"),
]


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


LAYOUTS = {  # for the pipeline that reads them itself
    "transposed": {"filters": [TransposeCodec(order=(2, 0, 1))]},
    **{
        f"shards, index at the {location}": {
            "serializer": ShardingCodec(
                chunk_shape=(5, 3, 2), codecs=[BytesCodec(endian="big")], index_location=location
            )
        }
        for location in ("start", "end")
    },
}


@pytest.fixture(params=[*PIPELINES, *LAYOUTS])
def array(request, tmp_path):
    """An array of float64 for each pipeline and layout."""
    pipeline = PIPELINES.get(request.param, PIPELINES["BatchedBytesPipeline"])
    options = LAYOUTS.get(request.param, {})
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        return stored(LocalStore(tmp_path), numbers(SHAPE) + 1, chunks=(5, 6, 10), **options)


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

    @pytest.mark.parametrize("most", [NEVER, 7], ids=["", "short reads"])
    def test_a_read_opens_each_chunk_once(self, array, tmp_path, is_partial, most):
        (tmp_path / "c/0/1/0").unlink()
        values = numbers(SHAPE) + 1
        values[:5, 6:] = 0
        for form in SELECTIONS:
            with watched(tmp_path, most=most) as files:
                found = selected(array, form)
            assert (form, files.opened) == (form, Counter(keys_of(form)))
            if not is_partial:  # nor are its bytes read again
                sizes = {key: (tmp_path / key).stat().st_size for key in files.nbytes}
                assert all(files.nbytes[key] <= sizes[key] for key in sizes), form
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


def outcome(folder, read, array, **faults):
    """What a read gives, elements or an error; and the files that it reads."""
    with watched(folder, **faults) as files:
        try:
            found = np.asarray(read(array)).tobytes()
        except (ChunkSizeError, ChunkFileError, BoolValueError) as error:
            found = type(error), str(error)
    return found, files


class TestErrors:
    """They are made of what has been read, in the words of zarr's batched pipeline."""

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_take_no_second_reading(self, tmp_path_factory, pipeline, data):
        """Zarr's pipelines let the store read transposed chunks; here there are none."""
        folder, example = tmp_path_factory.mktemp("a"), replace(data.draw(arrays(1)), orders=[])
        store = store_with("local", example.objects(example.values()), folder)
        read, select = data.draw(reads(example.shape, example.chunk_shape))
        keys = np.unique(select(example.numbers_of_chunks())).tolist()
        assume(keys)
        key = example.keys[data.draw(st.sampled_from(keys))]
        nbytes = (folder / key).stat().st_size
        faults = ["truncated", "too long", "folder"] + ["bool"] * 3 * (example.name == "bool")
        fault = data.draw(st.sampled_from(faults))
        most = data.draw(st.sampled_from([NEVER, 1, 3, 7, 30]))
        assume(fault != "too long" or most != nbytes)  # what is enough at once is the end
        with zarr.config.set(settings_of(data.draw)), pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "LIMITS", data.draw(thresholds()))
            array = zarr.open_array(store, mode="r")
            outcome(folder, read, array)  # now the file system is known
            _, intact = outcome(folder, read, array)
            damage(folder / key, fault, data.draw(st.integers(0, nbytes - 1)))
            expected, _ = outcome(folder, read, batched(array))
            found, files = outcome(folder, read, array, most=most)
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
