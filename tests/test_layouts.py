"""Elements at their places: every order of three axes, indices of 16 bits, arrays side by side.

The values of an array are all distinct, so that none can stand in the place of another. The oracles
are NumPy and plain zarr, and for stored bytes the transposes of NumPy.
"""

import os
import warnings
from itertools import permutations, product

import numpy as np
import pytest
import zarr
from fuzz import document_of
from stored_arrays import (
    PLAIN_ZARR,
    created,
    keys_of,
    numbers,
    stored,
    written_documents,
)
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BytesCodec, view

pytestmark = pytest.mark.zarr

ORDERS = list(permutations(range(3)))
SHAPE, INNER = (4, 6, 8), (2, 1, 2)  # every size of INNER divides every size of SHAPE
GAPS = {"zarr_bytes.gap.local": 0, "zarr_bytes.gap.remote": 0}

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")


def by_plain_zarr(folder):
    """All elements, as the codecs and the pipeline of zarr read them."""
    with zarr.config.set(PLAIN_ZARR), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it reads shards behind a transpose whole
        return np.asarray(zarr.open_array(folder, mode="r")[...])


def layouts_of(order):
    """By a name: the options of an array of one chunk or shard whose axes have this order."""
    transpose, big = TransposeCodec(order=order), BytesCodec(endian="big")
    inverse = TransposeCodec(order=np.argsort(order).tolist())
    return {
        "chunk": {"filters": [transpose], "serializer": big},
        "chunk, transposed twice": {"filters": [transpose, transpose], "serializer": big},
        "inner chunks": {"serializer": ShardingCodec(chunk_shape=INNER, codecs=[transpose, big])},
        "shard": {
            "filters": [transpose],
            "serializer": ShardingCodec(chunk_shape=INNER, codecs=[big]),
        },
        "shard, and inner chunks back": {
            "filters": [transpose],
            "serializer": ShardingCodec(chunk_shape=INNER, codecs=[inverse, big]),
        },
        "shard, and inner chunks again": {
            "filters": [transpose],
            "serializer": ShardingCodec(chunk_shape=INNER, codecs=[transpose, big]),
        },
    }


LAYOUTS = list(layouts_of((0, 1, 2)))

# The call, its selection, and the same elements for NumPy.
WRITES = {
    "integers": ("set_basic_selection", (3, 4, 5), np.s_[3, 4, 5]),
    "row": ("set_basic_selection", np.s_[1, 2], np.s_[1, 2]),
    "middle axis": ("set_basic_selection", np.s_[1, :, 5], np.s_[1, :, 5]),
    "box": ("set_basic_selection", np.s_[1:3, 2:5, 3:8], np.s_[1:3, 2:5, 3:8]),
    "strided": ("set_basic_selection", np.s_[::2, 1::3, 1:8:2], np.s_[::2, 1::3, 1:8:2]),
    "orthogonal": (
        "set_orthogonal_selection",
        ([0, 3], slice(1, 5, 2), [1, 2, 6]),
        np.ix_([0, 3], [1, 3], [1, 2, 6]),
    ),
    "points": ("set_coordinate_selection", ([3, 0, 2, 2], [5, 0, 4, 1], [7, 0, 3, 6]), None),
}


@needs_pwrite
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_writes_in_place_reach_their_elements_in_every_order_of_three_axes(tmp_path, order, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = created(LocalStore(tmp_path), SHAPE, "i4", **layouts_of(order)[layout])
    array[...] = model = numbers(SHAPE, "i4") + 1
    (path,) = (path for path in tmp_path.rglob("*/0") if path.is_file())
    inode, next_value = path.stat().st_ino, 1000
    for name, (call, selection, index) in WRITES.items():
        index = selection if index is None else index
        shape = model[index].shape
        values = next_value + np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
        getattr(array, call)(selection, values)
        model[index], next_value = values, next_value + 1000
        assert np.array_equal(array[...], model), name
    assert np.array_equal(by_plain_zarr(tmp_path), model)
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_reads_and_views_find_their_elements_in_every_order_of_three_axes(tmp_path, order, layout):
    """A cyclic order is not its own inverse."""
    values = numbers(SHAPE, "i4") + 1
    with zarr.config.set(PLAIN_ZARR), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codecs = layouts_of(order)[layout]
        array = created(LocalStore(tmp_path), SHAPE, "i4", **codecs)
        array[...] = values
    with zarr.config.set(GAPS):
        array = zarr.open_array(tmp_path, mode="r")
        viewed = view(array)
        for selection in (
            *(np.s_[...], np.s_[1], np.s_[:, 3], np.s_[:, :, 5], np.s_[3, 4, 5]),
            *(np.s_[1:3, 2:5, 3:8], np.s_[::2, 1::3, 1:8:2]),
        ):
            assert np.array_equal(array[selection], values[selection])
            assert np.array_equal(viewed[selection], values[selection])
        rows = [3, 0, 1], [5, 0], [1, 7, 2]
        assert np.array_equal(array.oindex[rows], values[np.ix_(*rows)])
        points = [3, 0, 2], [5, 0, 4], [7, 0, 3]
        assert np.array_equal(array.vindex[points], values[points])
        assert np.array_equal(viewed[points], values[points])


def test_two_transposes_act_one_after_another(tmp_path):
    values = numbers(SHAPE, "i4") + 1
    for first, second in product(ORDERS, repeat=2):
        folder = tmp_path / f"{first}{second}"
        document = document_of("int32", SHAPE, SHAPE, "big", [first, second])
        array = zarr.open_array(written_documents(folder, document), mode="r+")
        array[...] = values
        transposed = values.transpose(first).transpose(second)
        assert (folder / "c/0/0/0").read_bytes() == transposed.astype(">i4").tobytes()
        assert np.array_equal(array[1:3, 2, ::3], values[1:3, 2, ::3])
        assert np.array_equal(view(array)[1:3, 2, ::3], values[1:3, 2, ::3])


@pytest.mark.parametrize("shape", [(65538,), (257, 256)], ids=str)
def test_points_out_of_order_around_an_index_of_16_bits(pipeline, shape):
    values = numbers(shape, "u4") + 1
    array = stored(MemoryStore(), values)
    for largest in 65535, 65536, 65537:
        flat = [largest, 0, 7, largest - 1, 65534, 3]
        points = np.unravel_index(flat, shape)
        assert np.array_equal(array.vindex[points], values[points])
        if len(shape) == 1:
            assert np.array_equal(array.oindex[flat], values[flat])
        array.vindex[points] = values[points] + 10**6
        values[points] += 10**6
        assert np.array_equal(array[...], values)


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("chunks", [{"chunks": (4,)}, {"chunks": (2,), "shards": (4,)}])
def test_arrays_that_share_a_data_type_keep_their_own_fill_values(chunks):
    """One object of the data type, chunks of one shape, read and written in turn."""
    fill_values = (5, 7, 9)
    options = {"shape": (8,), "dtype": zarr.dtype.Int32(), "compressors": None, **chunks}
    arrays = [zarr.create_array({}, fill_value=value, **options) for value in fill_values]
    assert len({id(array.metadata.data_type) for array in arrays}) == 1
    for _ in range(2):
        for array in arrays:
            array[1] = 1  # of a shard, the other inner chunk stays absent
        for fill_value, array in zip(fill_values, arrays, strict=True):
            assert array[2:4].tolist() == [fill_value] * 2
            assert array[...].tolist() == [fill_value, 1, *[fill_value] * 6]
    for fill_value, array in zip(fill_values, arrays, strict=True):
        array[:4] = fill_value
        assert keys_of(array.store) == []
