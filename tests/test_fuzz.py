"""Faults of any request, and chunks of any size; `test_model.py` has reads and writes without.

`tests/fuzz.py` says how long they run.
"""

from dataclasses import replace

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import conditions, fuzz, same, store_with
from fuzz_arrays import Example, Format2, arrays, converted, of_format_2, selections
from hypothesis import event, given
from hypothesis import strategies as st
from stored_arrays import is_metadata
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from zarr_bytes import BoolValueError, ChunkSizeError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type", "ignore:.*does not answer byte", "ignore:Numcodecs codecs are not in"
)


class Faulty(MemoryStore):
    """A store whose n-th request for a chunk ends as `fault` says."""

    fault, number, count = None, 0, 0

    async def get(self, key, prototype=None, byte_range=None):
        return self._ended(key, byte_range, await super().get(key, prototype, byte_range))

    def get_sync(self, key, *, prototype=None, byte_range=None):
        buffer = super().get_sync(key, prototype=prototype, byte_range=byte_range)
        return self._ended(key, byte_range, buffer)

    def _ended(self, key, byte_range, buffer):
        self.count += not is_metadata(key)
        if is_metadata(key) or self.count != self.number:
            return buffer
        match self.fault:
            case "error":
                raise OSError("the connection is gone")
            case "refusal" if byte_range is not None:
                raise NotImplementedError("no ranges")
            case "whole" | "refusal":
                return self._store_dict[key]
            case "missing":
                return None
            case "empty":
                return buffer[:0]
            case "short":
                return buffer[:-1]
        return Buffer.from_bytes(buffer.to_bytes() + b"x")


OWN = "BatchedBytesPipeline"
FAULTS = {  # what a read may end in besides the values
    "error": OSError,
    **dict.fromkeys(["missing", "empty", "short", "long"], ChunkSizeError),
    **dict.fromkeys(["whole", "refusal"], ()),
}


def test_a_chunk_that_is_too_long_is_an_error():
    store = MemoryStore()
    zarr.create_array(store, data=np.arange(4, dtype="i4"), compressors=None)
    store._store_dict["c/0"] = Buffer.from_bytes(bytes(17))
    with pytest.raises(ChunkSizeError, match="16 bytes, found 17"):
        zarr.open_array(store)[...]


@pytest.mark.parametrize("pipeline", PIPELINES)
@fuzz(examples=25)
@given(data=st.data())
def test_a_fault_of_one_request_is_an_error_or_does_no_harm(pipeline, data):
    """One chunk of numbers that are not zero, so that a mix with the fill value would show."""
    fault = data.draw(st.sampled_from(list(FAULTS)))
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    values = 1 + np.arange(np.prod(shape), dtype="i4").reshape(shape)
    example = Example("int32", "big", shape, shape, orders=[], missing=[], seed=0)
    if pipeline == OWN and data.draw(st.booleans()):
        example = Format2(**vars(example), separator=".", has_fill_value=True)
    objects = example.objects(values)
    with conditions(data.draw, pipeline):
        array = zarr.open_array(Faulty(store_with("memory", objects, None)._store_dict), mode="r")
        store = array.store_path.store
        store._supports_sync_io = HAS_FUSED_PIPELINE and data.draw(st.booleans())
        store.fault, store.number, store.count = fault, data.draw(st.integers(1, 5)), 0
        selection = data.draw(selections(shape, shape))
        try:
            found = np.asarray(selection.read(array))
        except FAULTS[fault]:
            event(f"{fault} is an error")
            assert store.count >= store.number
        else:
            is_fill = fault == "missing" and store.count >= store.number and not found.any()
            assert is_fill or np.array_equal(found, selection.take(values))


@pytest.mark.parametrize("pipeline", PIPELINES)
@fuzz(examples=12)
@given(data=st.data())
def test_a_chunk_of_a_wrong_size_is_an_error_or_does_no_harm(tmp_path_factory, pipeline, data):
    """The bytes that are there are where they should be, as where a file is truncated."""
    kind = data.draw(st.sampled_from(["local", "requests"]))
    example = data.draw(arrays(least_size=1).map(lambda a: replace(a, chunk_shape=a.shape)))
    if pipeline == OWN and data.draw(st.booleans()):  # zarr's have a codec of zarr for them
        example = data.draw(of_format_2(example))
    if pipeline == OWN and HAS_FUSED_PIPELINE and data.draw(st.booleans()):  # from zarr 3.3 on
        example = data.draw(converted(example))
    values = example.values()
    ((key, content),) = example.chunks(values).items()
    size = data.draw(st.integers(0, len(content) + 3))
    objects = example.objects() | {key: (content + b"\1\1\1")[:size]}
    with conditions(data.draw, pipeline):
        store = store_with(kind, objects, tmp_path_factory.mktemp("a"))
        array = zarr.open_array(store, mode="r")
        selection = data.draw(selections(example.shape, example.shape))
        try:
            found = selection.read(array)
        except ChunkSizeError:
            event("an error")
            assert size != len(content)
        else:
            same(found, np.asarray(selection.take(values), values.dtype))


@fuzz(examples=20)
@given(data=st.data())
def test_a_wrong_bool_is_an_error_where_it_is_selected(tmp_path_factory, data):
    """Alike in memory, where NumPy selects of a chunk, and in a file, which a plan divides."""
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    orders = [data.draw(st.permutations(range(len(shape))).map(tuple))]
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    stored = random.integers(0, 2, shape, "u1")
    stored[random.random(shape) < data.draw(st.sampled_from([0.02, 0.3]))] = 7
    example = Example("bool", "little", shape, shape, orders, missing=[], seed=0)
    objects = example.objects(stored)
    selection = data.draw(selections(shape, shape))
    selected = selection.take(stored)
    errors = []
    with conditions(data.draw, OWN):
        for kind in ("memory", "local"):
            store = store_with(kind, objects, tmp_path_factory.mktemp("a"))
            array = zarr.open_array(store, mode="r")
            if (selected > 1).any():
                with pytest.raises(BoolValueError, match="found 7 at index") as error:
                    selection.read(array)
                errors.append(str(error.value))
                event("an error")
            else:
                same(selection.read(array), selected.astype(bool))
    assert len(set(errors)) <= 1
