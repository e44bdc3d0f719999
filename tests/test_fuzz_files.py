"""Chunks that others replace meanwhile, and writes between resizes: random orders of events.

`tests/fuzz.py` says how long they run.
"""

import json
import os
import threading
from itertools import cycle
from math import gcd

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import TYPES, WAYS, conditions, document_of, fuzz, same, store_with
from fuzz_arrays import arrays, orders_of, reads, sharded, writes
from hypothesis import event, given
from hypothesis import strategies as st
from shards import sharding
from stored_arrays import contents_of
from system_calls import before_each
from zarr.codecs import BytesCodec, TransposeCodec
from zarr.storage import MemoryStore

from zarr_bytes import ChunkSizeError, ShardIndexError

pytestmark = pytest.mark.filterwarnings("ignore:The data type")

VERSIONS = 3
ONE_AFTER_ANOTHER = {"async__concurrency": 1, "codec_pipeline__max_workers": 1}


class Others:
    """Another process, which replaces, deletes and truncates chunks that are files.

    Called before each call of the system: one of `events` happens to the chunk that was opened
    last. After the last event, the content of that chunk is added to `seen`.
    """

    def __init__(self, folder, versions, events):
        self._folder = folder
        self._versions = {key: cycle([v[key] for v in versions]) for key in versions[0]}
        self._events = events
        self.seen = set()
        # After an error zarr's default pipeline reads other chunks on, beside the next read.
        self._lock = threading.Lock()
        self._key = next(iter(self._versions))
        for key in self._versions:
            self._act("replace", key)

    def __call__(self, call, *arguments):
        with self._lock:
            if call == "open":
                key = os.fspath(arguments[0]).removeprefix(f"{self._folder}/")
                self._key = key if key in self._versions else self._key
            self._act(next(self._events, "look"), self._key)

    def _act(self, event, key):
        path = self._folder / key
        if event == "replace":
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name("new")
            new.write_bytes(next(self._versions[key]))
            new.replace(path)
        elif event == "delete":
            path.unlink(missing_ok=True)
        elif event == "truncate" and path.exists():
            os.truncate(path, path.stat().st_size // 2)
        elif event == "look" and path.exists():
            self.seen.add((key, path.read_bytes()))


def is_of_one_version_each(found, versions, numbers):
    """Whether the elements of each chunk are those of one of `versions`, bit for bit."""
    found, numbers = np.asarray(found, versions[0].dtype), np.asarray(numbers)
    assert found.shape == versions[0].shape
    return all(
        any(found[part].tobytes() == version[part].tobytes() for version in versions)
        for part in (numbers == number for number in np.unique(numbers))
    )


@pytest.mark.parametrize("way", WAYS)
@fuzz(examples=20)
@given(data=st.data())
def test_a_read_sees_one_version_of_each_chunk_that_others_replace(tmp_path_factory, way, data):
    example = data.draw(arrays(least_size=1))
    example = data.draw(sharded(example)) if way == "shards" else example
    versions = [example.values(i) for i in range(VERSIONS)]
    folder = tmp_path_factory.mktemp("a")
    store = store_with("local", example.objects(), folder)
    other = data.draw(st.sampled_from(["replace", "delete", "truncate"]))
    events = st.lists(st.sampled_from(["replace", other, None, None]), min_size=1, max_size=20)
    stored = [example.chunks(values) for values in versions]
    others = Others(folder, stored, cycle(data.draw(events)))
    numbers = example.numbers_of_chunks()
    possible = [*versions, *[np.zeros_like(versions[0])] * (other == "delete")]
    with conditions(data.draw, WAYS[way], **ONE_AFTER_ANOTHER):
        array = zarr.open_array(store, mode="r")
        for _ in range(3):
            read, select = data.draw(reads(example.shape, example.chunk_shape))
            try:
                with before_each(others):
                    found = read(array)
            except (ChunkSizeError, ShardIndexError):
                event("an error")
                assert other == "truncate"
            else:
                selected = [np.asarray(select(v), v.dtype) for v in possible]
                assert is_of_one_version_each(found, selected, select(numbers))


@pytest.mark.parametrize("pipeline", PIPELINES)
@fuzz(examples=15)
@given(data=st.data())
def test_a_write_is_done_to_one_version_of_each_chunk_that_others_replace(
    tmp_path_factory, pipeline, data
):
    """The others may undo the write. No chunk is a mix of versions, or is written in part.

    A chunk that is replaced is one version for the others at every moment, and a chunk that is
    written in place has all its bytes.
    """
    example = data.draw(arrays(least_size=1))
    versions = [example.values(i) for i in range(VERSIONS)]
    folder = tmp_path_factory.mktemp("a")
    store = store_with("local", example.objects(), folder)
    events = st.lists(st.sampled_from(["replace", "delete", "look", None, None]), max_size=20)
    stored = [example.chunks(values) for values in versions]
    others = Others(folder, stored, iter(data.draw(events)))
    with conditions(data.draw, pipeline, array__write_empty_chunks=True, **ONE_AFTER_ANOTHER):
        array = zarr.open_array(store, mode="r+")
        write, where = data.draw(writes(example.shape))
        part = example.values(VERSIONS)[where]
        with before_each(others):
            write(array, part)
        found = zarr.open_array(store, mode="r")[...]
        is_in_place = pipeline == "BatchedBytesPipeline" and zarr.config.get(
            "zarr_bytes.partial_writes"
        )
    possible = [*versions, np.zeros_like(versions[0])]
    for version in possible[:]:
        possible.append(version.copy())
        possible[-1][where] = part
    assert is_of_one_version_each(found, possible, example.numbers_of_chunks())
    assert not list(folder.rglob("*.partial"))
    stored = [example.chunks(values) for values in possible]
    is_narrow = TYPES[example.name][2] not in (0, 255)  # other bits may be stored than in memory
    for key, content in others.seen:
        assert len(content) == len(stored[0][key])
        assert is_in_place or is_narrow or content in [chunks[key] for chunks in stored]


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
