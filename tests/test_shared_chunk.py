"""Several processes that write into one chunk or shard at the same moment lose nothing."""

import os

import numpy as np
import pytest
import zarr
from fuzz import document_of, encoded
from shards import divided, shard_of, sharding
from sharing import COUNT, create_chunks, processes, write_shares
from stored_arrays import created, numbers, written_documents
from zarr.storage import LocalStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="written in place on POSIX")

SHAPE, INNER = (32, 300), (8, 50)  # so that four rows of each inner chunk belong to four processes
CODECS = [{"name": "bytes", "configuration": {"endian": "big"}}]


@pytest.fixture(scope="module")
def together():
    """Calls a function in four processes at once, which stay for all tests here."""
    with processes() as call:
        yield call


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(20, marks=pytest.mark.slow)], ids=["some", "many"]
)
@pytest.mark.parametrize("kind", ["rows", "columns", "points"])
@pytest.mark.parametrize("layout", ["chunk", "shard"])
def test_nothing_is_lost_of_what_each_process_writes(tmp_path, together, layout, kind, rounds):
    """Into chunks and shards that are there, and that the first of them makes."""
    # A column is so long that the processes map the same pages.
    shape, inner_shape = (SHAPE[::-1], INNER[::-1]) if kind == "columns" else (SHAPE, INNER)
    expected = numbers(shape, "i4")
    parts = [encoded(part, "int32", "big") for part in divided(expected, inner_shape)]
    for number in range(rounds):
        folder, location = tmp_path / str(number), ("end", "start")[number % 2]
        document = document_of("int32", shape, shape, "big") | {"fill_value": 99 * (number % 3)}
        if layout == "shard":
            document |= {"codecs": [sharding(inner_shape, CODECS, location=location)]}
        array = zarr.open_array(written_documents(folder, document), mode="r+")
        if number % 4 == 1:
            array[...] = -1
        together(write_shares, str(folder), kind)
        values = zarr.open_array(folder, mode="r")[...]
        assert np.argwhere(values != expected).tolist() == []
        if layout == "shard":
            assert (folder / "c/0/0").read_bytes() == shard_of(parts, location)
        assert list(folder.rglob("*.partial")) == []


@pytest.mark.slow
@pytest.mark.parametrize("fill_value", [0, 99])
def test_processes_that_create_the_same_chunk_lose_nothing(tmp_path, together, fill_value):
    created(LocalStore(tmp_path), 400 * COUNT, "i4", (COUNT,), fill_value=fill_value)
    together(create_chunks, str(tmp_path))
    values = zarr.open_array(tmp_path, mode="r")[...]
    assert np.flatnonzero(values != np.arange(values.size) + 1).tolist() == []
    assert list(tmp_path.rglob("*.partial")) == []
