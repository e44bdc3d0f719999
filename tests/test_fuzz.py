"""Random selections and faults: NumPy says what an array holds; `test_model.py` has writes.

`tests/fuzz.py` says how long they run.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import (
    KINDS,
    WAYS,
    chunks_of,
    conditions,
    document_of,
    fuzz,
    open_with,
    same,
    store_with,
)
from fuzz_arrays import arrays, reads, sharded
from hypothesis import event, given
from hypothesis import strategies as st
from stored_arrays import pipeline_of
from zarr.storage import MemoryStore

from zarr_bytes import BytesCodec, ChunkSizeError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type",
    "ignore:.*does not answer byte",
    "ignore:Combining a `sharding_indexed` codec",  # with transposes before it
)


@pytest.mark.parametrize("way", WAYS)
@fuzz(examples=25)
@given(data=st.data())
def test_every_selection_of_every_store_is_what_numpy_selects(tmp_path_factory, way, data):
    """In shards, inner chunks are absent, lie in any order, and have other bytes between them."""
    kind = data.draw(st.sampled_from(["local", "local", "local", *KINDS]))
    example = data.draw(arrays(can_be_missing=True))
    example = data.draw(sharded(example)) if way == "shards" else example
    values = example.values()
    order = data.draw(st.sampled_from("CF"))
    with conditions(data.draw, WAYS[way], array__order=order):
        array = open_with(kind, example.objects(values), tmp_path_factory.mktemp("a"))
        assert type(pipeline_of(array)).__name__ == WAYS[way]
        assert isinstance(array.metadata.codecs[-1], BytesCodec) == (way != "shards")
        for _ in range(4):
            read, select = data.draw(reads(example.shape, example.chunk_shape))
            same(read(array), np.asarray(select(values), values.dtype))  # text scalars lose zeros
        array.store_path.store.close()


class Faulty(MemoryStore):
    """A store whose n-th request for a chunk ends as `fault` says."""

    fault, number, count = None, 0, 0

    async def get(self, key, prototype=None, byte_range=None):
        return self._with_fault(key, await super().get(key, prototype, byte_range), byte_range)

    def get_sync(self, key, *, prototype=None, byte_range=None):
        buffer = super().get_sync(key, prototype=prototype, byte_range=byte_range)
        return self._with_fault(key, buffer, byte_range)

    def _with_fault(self, key, buffer, byte_range):
        self.count += not key.endswith("zarr.json")
        if key.endswith("zarr.json") or self.count != self.number:
            return buffer
        if self.fault == "error":
            raise OSError("the connection is gone")
        if self.fault == "refusal" and byte_range is not None:
            raise NotImplementedError("no ranges")
        if self.fault == "missing":
            return None
        if self.fault in ("whole", "refusal"):
            return self._store_dict[key]
        kept = {"empty": 0, "short": len(buffer) - 1}.get(self.fault)
        return type(buffer).from_bytes(buffer.to_bytes() + b"x") if kept is None else buffer[:kept]


FAULTS = {  # what a read may end in besides the values
    "error": OSError,
    "missing": ChunkSizeError,
    "empty": ChunkSizeError,
    "short": ChunkSizeError,
    "long": ChunkSizeError,
    "whole": (),
    "refusal": (),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@fuzz(examples=25)
@given(data=st.data())
def test_a_fault_of_one_request_is_an_error_or_does_no_harm(pipeline, data):
    """One chunk of numbers that are not zero, so that a mix with the fill value would show."""
    fault = data.draw(st.sampled_from(list(FAULTS)))
    is_synchronous = HAS_FUSED_PIPELINE and data.draw(st.booleans())
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    values = 1 + np.arange(np.prod(shape), dtype="i4").reshape(shape)
    objects = {
        "zarr.json": json.dumps(document_of("int32", shape, shape, "big")).encode(),
        **dict(chunks_of(values, shape, "int32", "big")),
    }
    with conditions(data.draw, pipeline):
        array = zarr.open_array(Faulty(store_with("memory", objects, None)._store_dict), mode="r")
        store = array.store_path.store
        store._supports_sync_io = is_synchronous
        store.fault, store.number, store.count = fault, data.draw(st.integers(1, 5)), 0
        read, select = data.draw(reads(shape, shape))
        expected = select(values)
        try:
            found = np.asarray(read(array))
        except FAULTS[fault]:
            event(f"{fault} is an error")
            assert store.count >= store.number
        else:
            is_fill = fault == "missing" and store.count >= store.number and not found.any()
            assert is_fill or np.array_equal(found, expected)


def in_one_chunk(example):
    return replace(example, chunk_shape=example.shape)


@pytest.mark.parametrize("pipeline", PIPELINES)
@fuzz(examples=12)
@given(data=st.data())
def test_a_chunk_of_a_wrong_size_is_an_error_or_does_no_harm(tmp_path_factory, pipeline, data):
    """The bytes that are there are where they should be, as where a file is truncated."""
    kind = data.draw(st.sampled_from(["local", "requests"]))
    example = data.draw(arrays(least_size=1).map(in_one_chunk))
    values = example.values()
    ((key, content),) = example.chunks(values).items()
    size = data.draw(st.integers(0, len(content) + 3))
    objects = example.objects() | {key: (content + b"\1\1\1")[:size]}
    with conditions(data.draw, pipeline):
        array = open_with(kind, objects, tmp_path_factory.mktemp("a"))
        read, select = data.draw(reads(example.shape, example.shape))
        try:
            found = read(array)
        except ChunkSizeError as error:
            event("an error")
            assert "bytes" in str(error)  # noqa: PT017 -- the values are right where there is none
            assert size != len(content)
        else:
            same(found, np.asarray(select(values), values.dtype))
