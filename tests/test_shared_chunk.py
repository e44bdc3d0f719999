"""Several processes that write into one chunk at the same moment lose nothing."""

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from sharing import COUNT, create_chunks, processes, write_columns, write_rows
from stored_arrays import created
from zarr.storage import LocalStore

pytestmark = pytest.mark.slow

ROUNDS = 20


@pytest.fixture(scope="module")
def together():
    """Calls a function in four processes at once, which stay for all tests here."""
    with processes() as call:
        yield call


def round_of(folder, number, **options):
    folder = folder / str(number)
    array = created(LocalStore(folder), (32, 300), "i4", **options)
    return folder, array


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("fill_value", [0, 99])
@pytest.mark.parametrize("is_there", [True, False], ids=["present", "missing"])
def test_no_row_is_lost(tmp_path, together, pipeline, fill_value, is_there):
    for number in range(ROUNDS):
        folder, array = round_of(tmp_path, number, fill_value=fill_value)
        if is_there:
            array[...] = -1
        together(write_rows, str(folder), PIPELINES[pipeline])
        values = zarr.open_array(folder, mode="r")[...]
        assert np.flatnonzero((values != np.arange(32)[:, None] + 1).any(axis=1)).tolist() == []
        assert list(folder.rglob("*.partial")) == []


def test_no_column_is_lost_though_the_processes_map_the_same_pages(tmp_path, together):
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        created(LocalStore(folder), (300, 32), "i4")
        together(write_columns, str(folder))
        expected = np.arange(300)[:, None] + np.arange(32) + 1
        assert np.array_equal(zarr.open_array(folder, mode="r")[...], expected)


@pytest.mark.parametrize("fill_value", [0, 99])
def test_processes_that_create_the_same_chunk_lose_nothing(tmp_path, together, fill_value):
    created(LocalStore(tmp_path), 400 * COUNT, "i4", (COUNT,), fill_value=fill_value)
    together(create_chunks, str(tmp_path))
    values = zarr.open_array(tmp_path, mode="r")[...]
    assert np.flatnonzero(values != np.arange(values.size) + 1).tolist() == []
    assert list(tmp_path.rglob("*.partial")) == []
