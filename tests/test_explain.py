"""`explain` says what a selection reads and writes, and `counting` counts what was."""

import json
import re
import shutil
import zipfile
from dataclasses import asdict
from itertools import product
from math import prod

import numpy as np
import pytest
import zarr
from command import call
from conftest import PIPELINES
from documents import ARRAY, memory, regular, write
from fuzz import KINDS, fuzz, settings_of, store_with, thresholds
from fuzz_arrays import arrays, basic, sharded, slices
from hypothesis import assume, given
from hypothesis import strategies as st
from stored_arrays import IN_PLACE, CountingStore, DeviceBuffer, numbers, stored
from system_calls import watched, written_to
from zarr.storage import LocalStore, MemoryStore, ZipStore

import zarr_bytes
from zarr_bytes.chunk import limits
from zarr_bytes.errors import StoreError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type", "ignore:.*answer byte ranges", "ignore:Combining a"
)

COUNTS = ("chunks", "opens", "requests", "ranges", "bytes_fetched")
VALUES = numbers((60, 50, 50))
ZARRS_CODEC = {"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}


def counts_of(found):
    return {name: getattr(found, name) for name in COUNTS}


@st.composite
def selections(draw, shape):
    """What ``array[...]`` takes: basic ones, an array beside slices, and points."""
    kind = draw(st.sampled_from(["basic", "basic", "one array", "points"]))
    if kind == "basic" or not shape or 0 in shape:
        return draw(basic(shape))
    indices = [draw(st.lists(st.integers(-n, n - 1), min_size=3, max_size=3)) for n in shape]
    if kind == "points":
        return tuple(map(np.array, indices))
    axis = draw(st.integers(0, len(shape) - 1))
    entries = [draw(slices(n)) for n in shape]
    entries[axis] = np.array(indices[axis])
    return tuple(entries)


@st.composite
def complete_arrays(draw):
    """Arrays of chunks, or of shards that have all inner chunks in their order."""
    example = draw(arrays(least_size=1))
    if draw(st.booleans()):
        example = draw(sharded(example, can_be_sparse=False))
        assume(not example.is_shuffled)
    return example


@fuzz(examples=150, share=1)
@given(data=st.data())
def test_a_read_is_what_was_explained(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("store")
    example = data.draw(complete_arrays())
    kind = data.draw(st.sampled_from([*KINDS, "local", "requests"]))
    pipelines = ["BatchedBytesPipeline", "BatchedBytesPipeline", "BatchedCodecPipeline"]
    config = {"codec_pipeline.path": PIPELINES[data.draw(st.sampled_from(pipelines))]}
    config |= settings_of(data.draw)
    selection = data.draw(selections(example.shape))
    store = store_with(kind, example.objects(example.values()), folder)
    with zarr.config.set(config), pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIMITS", data.draw(thresholds()))
        array = zarr.open_array(store, mode="r")
        explained = zarr_bytes.explain(array, selection)
        if explained.acts.startswith("zarr."):
            assert not explained.is_partial
            return
        if kind == "requests":
            array.store.requests.clear()
        with watched(folder) as files, zarr_bytes.counting() as counted:
            array[selection]
    assert counts_of(explained) == counts_of(counted)
    assert explained.bytes_selected == np.empty(example.shape, "V1")[selection].size * (
        array.dtype.itemsize
    )
    if kind == "local":
        assert explained.opens == len(files.keys)
        assert explained.bytes_fetched == sum(files.nbytes.values())
    elif kind == "requests":
        assert explained.requests == len(array.store.requests)
    assert explained.is_partial == (explained.bytes_fetched < explained.bytes_of_chunks)
    assert explained.is_partial or explained.reason


@fuzz(examples=150, share=1)
@given(data=st.data())
def test_a_write_is_what_was_explained(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("store")
    example = data.draw(complete_arrays())
    selection = data.draw(selections(example.shape))
    kind = data.draw(st.sampled_from(["local", "local", "memory"]))
    store = store_with(kind, example.objects(example.values()), folder)
    config = {
        "codec_pipeline.path": data.draw(st.sampled_from([*PIPELINES.values()])),
        "zarr_bytes.partial_writes": data.draw(st.booleans()),
        "array.write_empty_chunks": True,
    }
    with zarr.config.set(config):
        array = zarr.open_array(store, mode="r+")
        explained = zarr_bytes.explain(array, selection, write=True)
        if explained.acts.startswith("zarr.") or not explained.chunks:
            return
        values = array[selection]
        with zarr_bytes.counting() as counted:
            array[selection] = values
    if not counted.chunks:
        return  # chunks that zarr reads and replaces with what the codec encodes
    assert counts_of(explained) == counts_of(counted)
    assert explained.bytes_written == counted.bytes_written


def test_one_range_of_a_shard_is_one_however_little_is_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LIMITS", limits.Limits(block=1))
    array = stored(LocalStore(tmp_path), VALUES, chunks=(10, 25, 50), shards=(30, 50, 50))
    explained = zarr_bytes.explain(array, np.s_[7, 3, :9])
    with zarr_bytes.counting() as counted:
        array[7, 3, :9]
    assert counts_of(explained) == counts_of(counted)
    assert explained.ranges == 2  # with the index


@pytest.mark.parametrize("partial_writes", [True, False])
@pytest.mark.parametrize("selection", [np.s_[7], np.s_[:, 5, 6], np.s_[:30], np.s_[3:17, :25]])
def test_a_write_to_shards_is_what_was_explained(tmp_path, selection, partial_writes):
    options = {"shards": (30, 50, 50), "chunks": (10, 25, 50), "compressors": None}
    with zarr.config.set({"zarr_bytes.partial_writes": partial_writes}):
        array = zarr.create_array(tmp_path, data=VALUES + 1, **options)
        array = zarr.open_array(tmp_path, mode="r+")
    explained = zarr_bytes.explain(array, selection, write=True)
    with zarr_bytes.counting() as counted:
        array[selection] = -1.0
    assert explained.kind == "shard"
    assert counts_of(explained) == counts_of(counted)
    assert explained.bytes_written == counted.bytes_written
    if explained.may_share:
        assert str(explained).startswith("Written in place: ")
        with written_to(tmp_path / "c/0/0/0") as ranges:
            array[selection] = -2.0
        in_first = zarr_bytes.explain(array, np.s_[0, 0, 0], write=True)
        assert sum(n for _, n in ranges) <= explained.bytes_written
        assert in_first.bytes_written == 8


@pytest.mark.parametrize("function", [zarr_bytes.explain, zarr_bytes.preallocate])
def test_what_is_no_array_is_refused(function):
    with pytest.raises(TypeError, match=r"array is of type ndarray; permitted is a zarr\.Array"):
        function(np.zeros(3))


class TestTheFirstReasonThatHolds:
    def test_a_compressor_is_named(self):
        array = zarr.create_array({}, data=VALUES)
        explained = zarr_bytes.explain(array, 7)
        assert "the codec zstd" in explained.reason
        assert "compressors=None" in explained.reason
        assert explained.bytes_fetched is None
        assert "not known" in str(explained)

    def test_a_compressor_in_shards_is_named(self):
        array = zarr.create_array({}, data=VALUES, shards=(60, 50, 50), chunks=(10, 50, 50))
        assert "inner chunks of its shards go through the codec zstd" in (
            zarr_bytes.explain(array, 7).reason
        )

    def test_format_2(self):
        array = zarr.create_array({}, data=VALUES, compressors=None, zarr_format=2)
        assert "Zarr format 2" in zarr_bytes.explain(array, 7).reason

    def test_texts_of_any_length(self):
        array = zarr.create_array({}, shape=9, dtype="string", compressors=None)
        assert "vlen-utf8" in zarr_bytes.explain(array, 7).reason

    def test_a_pipeline_of_zarr_that_reads_transposed_chunks(self, tmp_path):
        filters = [zarr.codecs.TransposeCodec(order=(2, 0, 1))]
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            stored(LocalStore(tmp_path), VALUES, filters=filters)
            array = zarr.open_array(tmp_path)
            explained = zarr_bytes.explain(array, 7)
        assert "the pipeline is zarr.core.codec_pipeline.BatchedCodecPipeline" in explained.reason
        assert "set by zarr.config.set" in explained.reason
        assert explained.bytes_fetched == VALUES.nbytes

    def test_the_class_of_zarr_for_bytes(self, tmp_path):
        stored(LocalStore(tmp_path), VALUES)
        with zarr.config.set(ZARRS_CODEC):
            array = zarr.open_array(tmp_path)
            explained = zarr_bytes.explain(array, 7)
        assert "zarr.codecs.bytes.BytesCodec for the codec bytes" in explained.reason
        assert explained.reopened == ""
        later = zarr_bytes.explain(array, 7)
        assert "opened before zarr-bytes was chosen" in later.reason
        assert "would be read and written by zarr-bytes" in later.reopened

    def test_partial_reads_that_are_off(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        with zarr.config.set({"zarr_bytes.partial_reads": False}):
            reason = zarr_bytes.explain(array, np.s_[:, 3, 4]).reason
        assert reason.startswith("zarr_bytes.partial_reads is False (set by zarr.config.set)")

    def test_a_chunk_no_larger_than_the_gap(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES[0])
        reason = zarr_bytes.explain(array, 7).reason
        assert reason == (
            "a chunk has 20,000 bytes, no more than the gap of 32,768 bytes (zarr_bytes.gap.local)"
        )

    def test_chunks_in_memory(self):
        array = stored(MemoryStore(), VALUES)
        assert "in memory" in zarr_bytes.explain(array, 7).reason

    def test_a_compressed_archive(self, tmp_path):
        stored(LocalStore(tmp_path / "a"), VALUES)
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted((tmp_path / "a").rglob("*")):
                archive.write(path, path.relative_to(tmp_path / "a"))
        array = zarr.open_array(ZipStore(tmp_path / "a.zip", mode="r"))
        assert "zipfile.ZIP_STORED" in zarr_bytes.explain(array, 7).reason

    def test_a_store_that_sends_whole_objects(self):
        class Refusing(CountingStore):
            async def get(self, key, prototype, byte_range=None):
                if byte_range is not None:
                    raise NotImplementedError
                return await super().get(key, prototype, byte_range)

        array = stored(Refusing(MemoryStore()), np.repeat(VALUES, 2, 0))
        assert zarr_bytes.explain(array, 7).is_partial
        array[7]
        assert "answered a byte range with a whole object" in zarr_bytes.explain(array, 7).reason

    def test_buffers_on_a_device(self, tmp_path):
        transposed = zarr.codecs.TransposeCodec(order=(2, 0, 1))
        array = stored(LocalStore(tmp_path / "a"), VALUES)
        other = stored(LocalStore(tmp_path / "b"), VALUES, filters=[transposed])
        zarr.registry.register_buffer(DeviceBuffer)
        name = f"{DeviceBuffer.__module__}.{DeviceBuffer.__qualname__}"
        with zarr.config.set({"buffer": name}):
            assert zarr_bytes.explain(array, 7).is_partial  # by the codec, into memory first
            assert "DeviceBuffer" in zarr_bytes.explain(other, 7).reason

    def test_nothing_is_selected(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        explained = zarr_bytes.explain(array, np.s_[5:5])
        assert (explained.chunks, explained.reason) == (0, "no element is selected")

    def test_everything_is_selected(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        assert "from the first element" in zarr_bytes.explain(array).reason

    def test_gaps_are_read_over(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        explained = zarr_bytes.explain(array, np.s_[:, 3, 4])
        assert explained.is_partial
        assert explained.reason.startswith("gaps of up to 32,768 bytes")

    def test_a_write_of_whole_chunks_needs_none(self, tmp_path):
        explained = zarr_bytes.explain(stored(LocalStore(tmp_path), VALUES), write=True)
        assert (explained.is_partial, explained.reason) == (True, "")
        assert str(explained).startswith("Whole chunks are written: ")

    def test_a_write_in_a_store_that_is_no_folder(self):
        with zarr.config.set(IN_PLACE):
            array = stored(CountingStore(MemoryStore()), VALUES)
        assert "CountingStore" in zarr_bytes.explain(array, 7, write=True).reason

    def test_a_write_without_the_setting(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        explained = zarr_bytes.explain(array, 7, write=True)
        assert "zarr_bytes.partial_writes was False when the array was opened" in explained.reason
        assert not explained.may_share
        whole_and_part = zarr_bytes.explain(array, slice(0, 7), write=True)
        assert whole_and_part.reason == explained.reason
        with zarr.config.set(IN_PLACE):
            later = zarr_bytes.explain(array, 7, write=True)
        assert "opened again, the array would be written in place" in later.reopened


def test_a_store_that_is_made_from_local_store_is_explained_as_requests(tmp_path):
    class Other(LocalStore):
        pass

    stored(LocalStore(tmp_path), VALUES)
    array = zarr.open_array(Other(tmp_path), mode="r")
    explained = zarr_bytes.explain(array, np.s_[:, 3, 4])
    with zarr_bytes.counting() as counted:
        array[:, 3, 4]
    assert counts_of(explained) == counts_of(counted)


def test_ten_billion_ranges_are_counted_without_being_made():
    array = zarr.create_array(
        CountingStore(MemoryStore()),
        shape=(100_000, 100_000, 3),
        chunks=(100_000, 100_000, 3),
        dtype="u1",
        compressors=None,
    )
    with zarr.config.set({"zarr_bytes.gap.remote": 0}):
        explained = zarr_bytes.explain(array, np.s_[:, :, 1])
    assert (explained.ranges, explained.bytes_fetched) == (10**10, 10**10)


def test_alike_chunks_are_counted_together(tmp_path):
    array = zarr.create_array(
        tmp_path, shape=(10**7, 10**5), chunks=(10, 10**5), dtype="u1", compressors=None
    )
    explained = zarr_bytes.explain(array, np.s_[:, 5:7])
    assert (explained.chunks, explained.bytes_selected) == (10**6, 2 * 10**7)


def test_chunks_between_the_first_and_the_last_are_counted_by_their_period():
    for shape, chunk, selection, chunks in (
        ((2**40,), (3,), np.s_[::2], 2**40 // 3),
        ((2**62,), (2**20,), np.s_[5::3], 2**42),
        ((2**62,), (7,), np.s_[1::70], -(-(2**62) // 70)),
        ((0, 2**62), (7, 7), ..., 0),
    ):
        array = zarr.create_array({}, shape=shape, chunks=chunk, dtype="u1", compressors=None)
        assert zarr_bytes.explain(array, selection).chunks == chunks


@pytest.mark.parametrize("size", range(1, 13))
def test_chunks_counted_by_their_period_are_those_counted_one_by_one(tmp_path, size):
    array = zarr.create_array(tmp_path, shape=50, chunks=size, dtype="u1", compressors=None)
    for start, stop, step in product(range(5), (23, 49, 50), range(1, 16)):
        selected = np.arange(50)[start:stop:step]
        explained = zarr_bytes.explain(array, np.s_[start:stop:step])
        assert explained.chunks == np.unique(selected // size).size
        assert explained.bytes_selected == selected.size


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("shape", [(2**63,), (10**30,), (2**62, 2**62), (2**63, 0)])
def test_more_bytes_than_numpy_counts_are_an_index_error(shape, write):
    document = ARRAY | {"shape": shape, "chunk_grid": regular([3] * len(shape))}
    array = zarr.open_array(memory({"": document}))
    with pytest.raises(IndexError, match=r"2\*\*63 bytes"):
        zarr_bytes.explain(array, write=write)
    if 0 not in shape:
        assert zarr_bytes.explain(array, (0,) * len(shape), write=write).chunks == 1


@pytest.mark.parametrize("selection", [60, (0, 0, 0, 0), (..., ...), ([60],), ("a",), (1.5,)])
def test_a_selection_that_does_not_fit_is_an_index_error(selection):
    array = zarr.create_array({}, data=VALUES, compressors=None)
    with pytest.raises(IndexError, match="axis|axes|permitted are"):
        zarr_bytes.explain(array, selection)


class TestCounting:
    def test_nested_uses_count_for_themselves(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        with zarr_bytes.counting() as outer:
            array[7]
            with zarr_bytes.counting() as inner:
                array[8, 0]
        array[9]
        assert (outer.bytes_fetched, inner.bytes_fetched) == (20_400, 400)

    def test_stores_are_counted_apart(self, tmp_path):
        first = stored(LocalStore(tmp_path / "first"), VALUES)
        second = stored(CountingStore(MemoryStore()), np.repeat(VALUES, 2, 0))
        with zarr_bytes.counting() as counted:
            first[7]
            second[7]
        assert {n.rpartition("/")[2]: counted.stores[n].bytes_fetched for n in counted} == {
            "first": 20_000,
            str(second.store).rpartition("/")[2]: 20_000,
        }
        assert "first" in str(counted)
        assert str(counted).startswith("2 chunks, 40,000 bytes fetched")

    def test_a_missing_chunk_is_a_chunk_without_bytes(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        (tmp_path / "c/0/0/0").unlink()
        with zarr_bytes.counting() as counted:
            array[7]
        assert counts_of(counted) == dict(zip(COUNTS, (1, 0, 0, 0, 0), strict=True))

    def test_chunks_that_zarr_reads_are_not_counted(self):
        array = zarr.create_array({}, data=VALUES)
        with zarr_bytes.counting() as counted:
            array[7]
        assert counted.chunks == 0


class TestTheCommand:
    def test_it_explains_a_read(self, tmp_path):
        stored(LocalStore(tmp_path), VALUES)
        result = call("explain", tmp_path, "[7, :, 3:9]")
        assert result.exit_code == 0
        assert result.stdout.startswith("Partial: [7, :, 3:9] of ")

    def test_json_is_the_report(self, tmp_path):
        array = stored(LocalStore(tmp_path), VALUES)
        result = call("explain", tmp_path, "[:, 0]", "--json")
        expected = asdict(zarr_bytes.explain(array, np.s_[:, 0]))
        assert (result.exit_code, json.loads(result.stdout)) == (0, expected)

    def test_a_write_that_is_not_in_place_is_status_1(self, tmp_path):
        stored(LocalStore(tmp_path), VALUES)
        result = call("explain", tmp_path, "[7]", "--write")
        assert result.exit_code == 1
        assert "Chunks are replaced" in result.stdout

    @pytest.mark.parametrize(
        "selection",
        [
            *("[", "[a]", "[1.5]", "[f()]", "[1]; x", "[1][2]", "]", "[7:9", "[:, 1, 'a']", "[99]"),
            *("", f"[{'-' * 100_000}1]", "[" * 1000),
        ],
        ids=range(13),
    )
    def test_a_wrong_selection_is_status_2(self, tmp_path, selection):
        stored(LocalStore(tmp_path), VALUES)
        result = call("explain", tmp_path, selection)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.search("selection|axis", result.stderr)

    @pytest.mark.parametrize(("path", "where"), [("", "at its root"), ("b", "at 'b'")])
    def test_a_path_without_an_array_is_named(self, tmp_path, path, where):
        zarr.create_group(tmp_path).create_array("a", shape=9, dtype="f8")
        result = call("explain", tmp_path, "[7]", "--array", path)
        assert result.exit_code == 2
        assert f"there is no array {where}: name one with --array" in result.stderr

    def test_a_write_to_a_zip_file_is_explained(self, tmp_path):
        stored(LocalStore(tmp_path / "a"), VALUES)
        path = shutil.make_archive(str(tmp_path / "a"), "zip", tmp_path / "a")
        result = call("explain", path, "[7]", "--write")
        assert result.exit_code == 1
        assert "its store is a ZipStore, and must be a folder" in " ".join(result.stdout.split())

    @pytest.mark.parametrize("position", [0, 31], ids=["header", "name"])
    def test_a_damaged_zip_file_is_status_2(self, tmp_path, position):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("zarr.json", json.dumps(ARRAY))
        content = bytearray(path.read_bytes())
        content[position] ^= 1
        path.write_bytes(content)
        result = call("explain", path, "[0]")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{path}: BadZipFile: ")

    @pytest.mark.parametrize("command", [("explain", "[7]"), ("preallocate",)])
    def test_a_data_type_beyond_numpy_is_refused(self, tmp_path, command):
        length = {"length_bytes": 2**65}
        data_type = {"name": "fixed_length_utf32", "configuration": length}
        write(tmp_path, ARRAY | {"data_type": data_type, "fill_value": ""})
        name, *others = command
        result = call(name, tmp_path, *others)
        assert result.exit_code in (1, 2)
        assert "OverflowError" in result.output

    @pytest.mark.parametrize("command", [("explain", "[7]"), ("preallocate",)])
    def test_an_array_that_zarr_does_not_open_is_named(self, tmp_path, command):
        stored(LocalStore(tmp_path), VALUES)
        path = tmp_path / "zarr.json"
        document = json.loads(path.read_text())
        del document["codecs"]
        path.write_text(json.dumps(document))
        name, *others = command
        result = call(name, tmp_path, *others)
        printed = " ".join((result.stdout + result.stderr).split())
        assert result.exit_code
        assert "its metadata has no 'codecs': `zarr-bytes check` says what is missing" in printed


def test_a_selection_as_text_is_refused(tmp_path):
    array = stored(LocalStore(tmp_path), VALUES)
    with pytest.raises(IndexError, match=re.escape("found the text '[7]': ")):
        zarr_bytes.explain(array, "[7]")


@pytest.mark.parametrize("options", [{"zarr_format": 2, "filters": None}, {"shards": (60, 50, 50)}])
def test_bytes_that_zarr_alone_knows_are_not_known_in_advance(tmp_path, options):
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
        array = zarr.create_array(
            tmp_path, shape=(60, 50, 50), chunks=(6, 5, 5), dtype="f8", compressors=None, **options
        )
    explained = zarr_bytes.explain(array, 7)
    assert explained.bytes_fetched is None
    assert "not known in advance" in str(explained)


def test_jupyter_shows_a_table(tmp_path):
    array = stored(LocalStore(tmp_path), VALUES)
    text = zarr_bytes.explain(array, 7)._repr_html_()
    assert text.startswith("<div><b>Partial: </b>[7] of ")
    assert "<td>bytes read</td><td>20,000</td>" in text


def test_everything_that_a_text_can_select_is_selected():
    from zarr_bytes.commands.selections import selection_of_text, text_of_selection

    for text in ("[:, 7, 3]", "[..., ::2]", "[-1]", "[1:-2:3, [1, 2]]"):
        assert text_of_selection(selection_of_text(text)) == text
    with pytest.raises(StoreError, match=r"\[:, 7, 3\]"):
        selection_of_text("[__import__('os')]")
    assert prod(VALUES[selection_of_text("[1:-2:3, [1, 2]]")].shape) == 19 * 2 * 50
