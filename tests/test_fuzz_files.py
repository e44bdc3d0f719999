"""Writes between resizes, in random order; `test_meanwhile.py` has chunks that others replace.

`tests/fuzz.py` says how long they run.
"""

import json
from math import gcd

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import WAYS, conditions, document_of, fuzz, same, store_with
from fuzz_arrays import orders_of, writes
from hypothesis import given
from hypothesis import strategies as st
from shards import sharding
from stored_arrays import contents_of
from zarr.codecs import BytesCodec, TransposeCodec
from zarr.storage import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore:The data type")

LARGEST = 9  # size of an axis


# zarr up to 3.2 fails in some writes to its shards.
@pytest.mark.parametrize("way", WAYS if HAS_FUSED_PIPELINE else PIPELINES)
@fuzz(examples=12)
@given(data=st.data())
def test_writes_between_resizes_leave_what_zarr_alone_leaves(tmp_path_factory, way, data):
    """What is behind the edge of the array shows once the array is larger.

    Zarr fills up a chunk at the edge that is written whole, and keeps what a shard has there.
    """
    kind = data.draw(st.sampled_from(["local", "memory"]))
    shape = data.draw(st.lists(st.integers(0, LARGEST), min_size=1, max_size=2).map(tuple))
    chunk_shape = tuple(data.draw(st.integers(2, 6)) for _ in shape)
    orders = data.draw(st.just([]) | orders_of(len(shape)))
    dtype, fill_value = data.draw(st.sampled_from(["uint8", "int32"])), data.draw(st.integers(0, 1))
    is_replaced, writes_empty = data.draw(st.booleans()), data.draw(st.booleans())
    document = document_of(dtype, shape, chunk_shape, "big", orders) | {"fill_value": fill_value}
    layout = {"chunks": chunk_shape}
    if way == "shards":
        inner_shape = tuple(n if data.draw(st.booleans()) else gcd(n, 2) for n in chunk_shape)
        document["codecs"] = [sharding(inner_shape, document["codecs"])]
        layout = {"chunks": inner_shape, "shards": chunk_shape}
    objects = {"zarr.json": json.dumps(document).encode()}
    store = store_with(kind, objects, tmp_path_factory.mktemp("a"))
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
        expected = zarr.create_array(
            MemoryStore(),
            shape=shape,
            **layout,
            dtype=dtype,
            fill_value=fill_value,
            filters=[TransposeCodec(order=tuple(order)) for order in orders],
            serializer=BytesCodec(endian="big"),
            compressors=None,
            config={"write_empty_chunks": writes_empty},
        )
    with conditions(
        data.draw,
        WAYS[way],
        array__write_empty_chunks=writes_empty,
        zarr_bytes__partial_writes=not is_replaced,
    ):
        array = zarr.open_array(store, mode="r+")
        for step in range(data.draw(st.integers(1, 6))):
            if data.draw(st.booleans()):
                shape = tuple(data.draw(st.integers(0, LARGEST)) for _ in shape)
                array.resize(shape)
                expected.resize(shape)
            else:
                write, where = data.draw(writes(shape))
                selected = np.shape(np.empty(shape)[where])
                part = np.random.default_rng(step).integers(0, 3, selected, dtype)
                write(array, part)
                write(expected, part)
            same(array[...], expected[...])
            if is_replaced and way != "shards":
                stored, expected_stored = contents_of(store), contents_of(expected.store)
                del stored["zarr.json"], expected_stored["zarr.json"]
                assert stored == expected_stored
        shape = (LARGEST,) * len(shape)
        array.resize(shape)
        expected.resize(shape)
        same(array[...], expected[...])
