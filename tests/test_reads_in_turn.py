"""What is found once for a chunk is not taken for another chunk, nor for other settings."""

import gc
import os

import numpy as np
import pytest
import zarr
from stored_arrays import CountingStore, created, numbers, stored
from system_calls import watched
from zarr.codecs import TransposeCodec
from zarr.storage import LocalStore, MemoryStore

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


@pytest.mark.usefixtures("pipeline")
def test_index_arrays_behind_a_slice_are_not_taken_for_each_other(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((6, 8)))
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for columns in 5, [5], [1, 2], [2, 5], [2, 5], [3]:
            assert np.array_equal(array.oindex[1:3, columns], numbers((6, 8))[1:3, columns])


def test_chunks_in_which_the_same_indices_are_selected_have_other_places(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((4, 10)), chunks=(1, 5))
    assert np.array_equal(array.oindex[:, [1, 6]], numbers((4, 10))[:, [1, 6]])


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
