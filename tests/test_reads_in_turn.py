"""What is found once for a chunk is not taken for another chunk, nor for other settings."""

import gc

import numpy as np
import pytest
import zarr
from stored_arrays import CountingStore, created, numbers, stored
from zarr.codecs import TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes.indexing.plan import Plan

GAP, LARGEST = "zarr_bytes.gap.remote", "zarr_bytes.largest_request.remote"


def test_the_settings_of_the_moment_count_at_each_read(pipeline):
    """Half of each of eight rows of 4 KiB is selected."""
    values, store = numbers((8, 4096), "u1"), CountingStore(MemoryStore())
    array = stored(store, values)
    for settings, requests in [
        ({GAP: 0}, 8),
        ({GAP: 4096}, 1),
        ({GAP: 4096, LARGEST: 10_240}, 3),
        ({GAP: 0}, 8),
        ({"zarr_bytes.partial_reads": False}, 1),
        ({GAP: 4096}, 1),
        ({GAP: 0, LARGEST: 1024}, 16),
    ]:
        store.counted()
        with zarr.config.set(settings):
            assert np.array_equal(array[:, :2048], values[:, :2048])
        assert store.counted()[0] == requests


def test_the_plans_of_few_settings_are_kept(tmp_path, pipeline):
    array = stored(LocalStore(tmp_path), numbers((8, 4095), "u1"))
    for gap in range(50):
        with zarr.config.set({"zarr_bytes.gap.local": gap}):
            array[:, :2048]
    found = [thing for thing in gc.get_objects() if isinstance(thing, Plan)]
    assert 0 < sum(plan.format.shape == (8, 4095) for plan in found) < 20


def test_arrays_of_indices_are_not_taken_for_each_other(tmp_path, pipeline):
    """Nor are equal ones of two chunks, whose elements have other places in the result."""
    values = numbers((6, 10))
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for chunks in (6, 10), (1, 5):
            array = stored(LocalStore(tmp_path / str(chunks)), values, chunks)
            for columns in 5, [5], [1, 2], [2, 5], [2, 5], [3], [1, 6]:
                assert np.array_equal(array.oindex[1:4, columns], values[1:4, columns])


@pytest.mark.skipif(
    "rectilinear_chunks" not in zarr.config.get("array"), reason="zarr has them from 3.3 on"
)
@pytest.mark.parametrize("filters", [[], [TransposeCodec(order=(1, 0))]], ids=["plain", "T"])
def test_every_part_of_a_grid_of_chunks_of_several_shapes(tmp_path, pipeline, filters):
    """A part that begins with two chunks is often selected alike in both."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        store = LocalStore(tmp_path)
        array = created(store, (9, 8), "i4", chunks=[[4, 5], [2, 4, 2]], filters=filters)
    array[...] = model = numbers((9, 8), "i4")
    array[2:8, 1::2] = model[2:8, 1::2] = -1
    for start in range(8):
        for stop in range(start + 1, 9):
            for rows in 1, [0, 4], [3, 2, 7, 6], slice(None):
                found = array.oindex[rows, start:stop]
                assert np.array_equal(found, model[rows, start:stop])
