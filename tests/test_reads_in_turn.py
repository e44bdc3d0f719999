"""What is found once for a chunk is not taken for another chunk, nor for other settings."""

import asyncio
import gc
import os
from itertools import product

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from fuzz import store_with
from stored_arrays import CountingStore, created, numbers, pipeline_of, spec_of, stored
from system_calls import watched
from zarr.buffer import cpu
from zarr.codecs import TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BytesCodec
from zarr_bytes.indexing.plan import Plan


def settings_of(where):
    """Settings one after another, and the requests for half of each of eight rows of 4 KiB."""
    gap, largest = f"zarr_bytes.gap.{where}", f"zarr_bytes.largest_request.{where}"
    return [
        ({gap: 0}, 8),
        ({gap: 4096}, 1),
        ({gap: 4096, largest: 10_240}, 3),
        ({gap: 0}, 8),
        ({"zarr_bytes.partial_reads": False}, 1),
        ({gap: 4096}, 1),
        ({gap: 0, largest: 1024}, 16),
    ]


@pytest.mark.usefixtures("pipeline")
class TestSettings:
    """Those of the moment count, at each read."""

    VALUES = numbers((8, 4096), "u1")
    SELECTION = np.s_[:, :2048]

    def test_of_requests(self):
        array = stored(CountingStore(MemoryStore()), self.VALUES)
        array.store_path.store.counted()
        for setting, requests in settings_of("remote"):
            with zarr.config.set(setting):
                assert np.array_equal(array[self.SELECTION], self.VALUES[self.SELECTION])
            assert array.store_path.store.counted()[0] == requests

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    def test_of_files(self, tmp_path):
        array = stored(LocalStore(tmp_path), self.VALUES)
        for setting, requests in settings_of("local")[:4]:  # those of more than a few bytes each
            with zarr.config.set(setting), watched(tmp_path) as files:
                assert np.array_equal(array[self.SELECTION], self.VALUES[self.SELECTION])
            assert len({offset for _, offset, _ in files.reads}) == requests

    def test_the_plans_of_few_are_kept(self, tmp_path):
        array = stored(LocalStore(tmp_path), numbers((8, 4095), "u1"))
        for gap in range(50):
            with zarr.config.set({"zarr_bytes.gap.local": gap}):
                array[self.SELECTION]
        found = [thing for thing in gc.get_objects() if isinstance(thing, Plan)]
        assert 0 < sum(plan.format.shape == (8, 4095) for plan in found) < 20


SHAPES = [(4, 2), (4, 6), (8, 3), (2, 12)]
SELECTIONS = [
    np.s_[0:4, 0:2],  # all of some of them, one run of others
    np.s_[1:2, 0:2],
    np.s_[1, 0:2],
    np.s_[1, 1:2],
    np.s_[::2, 1],
    np.s_[:, 1:],
    np.ix_([1, 0], [1, 0]),
]


class TestChunksOfOtherShapes:
    """The same selection of each, where chunks of any shape follow those of any other."""

    @pytest.fixture(params=["local", "requests", "memory"])
    def chunks(self, request, tmp_path):
        """An array, and the values of each chunk of its store."""
        shapes = [shape for pair in product(SHAPES, SHAPES) for shape in pair]
        values = [100 * i + numbers(shape, "<f8") for i, shape in enumerate(shapes)]
        objects = {f"c/{i}": v.astype(">f8").tobytes() for i, v in enumerate(values)}
        store = store_with(request.param, objects, tmp_path)
        created(store, (1,), "f8")
        with zarr.config.set({"zarr_bytes.gap": {"local": 0, "remote": 0}}):
            yield zarr.open_array(store, mode="r"), values

    @pytest.mark.usefixtures("pipeline")
    def test_in_one_read(self, chunks):
        array, values = chunks
        for selection in [
            np.s_[0, 0:1],
            *SELECTIONS,
        ]:  # files are read in another way after the first
            parts = [chunk[selection] for chunk in values]
            rows, *rest = np.max([part.shape for part in parts], axis=0)
            out = np.full((len(parts) * rows, *rest), -1.0)
            batch, expected = [], out.copy()
            for i, (chunk, part) in enumerate(zip(values, parts, strict=True)):
                place = tuple(slice(0, n) for n in part.shape)
                place = (slice(i * rows, i * rows + part.shape[0]), *place[1:])
                expected[place] = part
                spec = spec_of(array, chunk.shape)
                batch.append((array.store_path / f"c/{i}", spec, selection, place, False))
            asyncio.run(pipeline_of(array).read(batch, cpu.NDBuffer.from_numpy_array(out)))
            assert np.array_equal(out, expected)


@pytest.mark.usefixtures("pipeline")
def test_index_arrays_behind_a_slice_are_not_taken_for_each_other(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((6, 8)))
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for columns in 5, [5], [1, 2], [2, 5], [2, 5], [3]:
            assert np.array_equal(array.oindex[1:3, columns], numbers((6, 8))[1:3, columns])


def test_chunks_in_which_the_same_indices_are_selected_have_other_places(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((4, 10)), chunks=(1, 5))
    assert np.array_equal(array.oindex[:, [1, 6]], numbers((4, 10))[:, [1, 6]])


def test_chunks_of_one_spec_may_have_either_byte_order():
    """Of the codec: no spec says what it is."""
    codecs = [BytesCodec(endian=endian) for endian in ("little", "big")]
    arrays = [stored(MemoryStore(), numbers((6,)), serializer=codec) for codec in codecs]
    spec = spec_of(arrays[0])
    for array in arrays * 2:
        getter = array.store_path / "c/0"
        (codec,) = array.metadata.codecs
        found = asyncio.run(codec._decode_partial_single(getter, (slice(1, 4),), spec))
        assert found.as_numpy_array().tolist() == [1, 2, 3]


if "rectilinear_chunks" in zarr.config.get("array"):  # from zarr 3.3 on

    @pytest.mark.usefixtures("pipeline")
    @pytest.mark.parametrize("filters", [[], [TransposeCodec(order=(1, 0))]], ids=["plain", "T"])
    def test_every_part_of_a_grid_of_chunks_of_several_shapes(tmp_path, filters):
        """A part that begins with two chunks is often selected alike in both."""
        with zarr.config.set({"array.rectilinear_chunks": True}):
            store = LocalStore(tmp_path)
            array = created(store, (9, 8), "i4", chunks=[[4, 5], [2, 4, 2]], filters=filters)
        array[...] = model = numbers((9, 8), "i4")
        array[2:8, 1::2] = model[2:8, 1::2] = -1
        for start in range(8):
            for stop in range(start + 1, 9):
                assert np.array_equal(array[:, start:stop], model[:, start:stop])
                assert np.array_equal(array[1, start:stop], model[1, start:stop])
        for rows in ([0, 4], [1, 5], [3, 2, 7, 6]):
            for columns in ([0, 2], [1, 0, 3, 2], [0, 2, 6]):
                expected = model[np.ix_(rows, columns)]
                assert np.array_equal(array.oindex[rows, columns], expected)


@pytest.mark.usefixtures("pipeline")
def test_arrays_of_other_forms(tmp_path):
    """Shapes of chunks, edges, orders of axes, data types, byte orders and fill values."""
    little = BytesCodec(endian="little")
    forms = [
        {"chunks": (4, 6)},
        {"chunks": (6, 4)},
        {"chunks": (3, 8)},  # of the same size
        {"chunks": (5, 5)},  # edges on both axes
        {"chunks": (4, 6), "filters": [TransposeCodec(order=(1, 0))]},
        {"chunks": (4, 6), "serializer": little},
        {"chunks": (4, 6), "dtype": "f4"},
        {"chunks": (4, 6), "dtype": "i8"},
        {"chunks": (4, 6), "fill_value": 7},
    ]
    arrays, models = [], []
    for i, form in enumerate(forms):
        values = numbers((12, 12), form.pop("dtype", "i4")) + 1000 * i
        stored(LocalStore(tmp_path / str(i)), values, **form)
        (tmp_path / str(i) / "c/1/1").unlink()
        rows, columns = form["chunks"]
        values[rows : 2 * rows, columns : 2 * columns] = form.get("fill_value", 0)
        arrays.append(zarr.open_array(tmp_path / str(i), mode="r"))
        models.append(values)
    for selection in np.s_[..., 0:4, 1:3, (slice(None), 5), (slice(0, 4), slice(0, 4)), 7]:
        for array, model in zip(arrays, models, strict=True):
            assert np.array_equal(array[selection], model[selection])
            assert np.array_equal(array[selection], model[selection])


class TestSelectionsOfSmallChunks:
    """By this package's pipeline, a chunk is read as the one before where it is selected alike."""

    @pytest.fixture(autouse=True)
    def _pipeline(self):
        with zarr.config.set(
            {"codec_pipeline.path": PIPELINES["BatchedBytesPipeline"], "zarr_bytes.gap.local": 0}
        ):
            yield

    def read(self, array, selections):
        """An element of each chunk, after a selection of each."""
        spec = spec_of(array)
        batch = [
            (array.store_path / f"c/{row}/0", spec, selection, np.s_[row : row + 1, :1], False)
            for row, selection in enumerate(selections)
        ]
        out = cpu.NDBuffer.from_numpy_array(np.full((len(selections), 1), -1.0))
        asyncio.run(pipeline_of(array).read(batch, out))
        return out.as_numpy_array()[:, 0]

    def test_an_array_is_not_taken_for_a_slice_or_another_array_that_selects_as_many(
        self, tmp_path
    ):
        array = stored(LocalStore(tmp_path), numbers((12, 8)), chunks=(2, 8))
        masks = [np.array([False, True]), np.array([True, False])]
        rows = [slice(0, 1), np.array([0]), np.array([1]), *masks, slice(1, 2)]
        for _ in "unknown", "known":  # whether the file system is local
            found = self.read(array, [(entry, slice(5, 6)) for entry in rows])
            assert found.tolist() == [5 + 8 * row for row in (0, 2, 5, 7, 8, 11)]
