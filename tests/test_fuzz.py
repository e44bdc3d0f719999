"""Random selections, writes and faults: NumPy says what an array holds.

`tests/fuzz.py` says how long they run.
"""

import json

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import (
    KINDS,
    TYPES,
    chunks_of,
    document_of,
    encoded,
    fuzz,
    open_with,
    same,
    settings_of,
    store_with,
    values_of,
)
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from zarr_bytes import BytesCodec, ChunkSizeError

pytestmark = pytest.mark.filterwarnings("ignore:The data type", "ignore:.*does not answer byte")


@st.composite
def arrays(draw, least_size=0):
    """Data type, byte order, values, and the shape of the chunks."""
    shape = draw(st.lists(st.integers(least_size, 9), max_size=4).map(tuple))
    chunk_shape = tuple(draw(st.integers(1, max(n, 1) + 2)) for n in shape)
    name = draw(st.sampled_from(list(TYPES)))
    values = values_of(name, shape, draw(st.integers(0, 2**32)))
    return name, draw(st.sampled_from(["little", "big"])), values, chunk_shape


def orders_of(ndim):
    """Orders of one transpose after another."""
    return st.lists(st.permutations(range(ndim)), max_size=3) if ndim else st.just([])


@st.composite
def slices(draw, size):
    limits = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(limits), draw(limits), draw(st.none() | st.integers(1, 4)))


@st.composite
def basic(draw, shape):
    """Integers and slices, some of them left out or replaced by an ellipsis."""
    entries = []
    for size in shape:
        integers = st.integers(-size, size - 1) if size else slices(size)
        entries.append(draw(slices(size) | integers))
    form = draw(st.sampled_from(["all", "fewer", "ellipsis"]))
    if form == "all" or not shape:
        return tuple(entries)
    cut = draw(st.integers(0, len(shape)))
    if form == "fewer":
        return tuple(entries[:cut])
    return (*entries[:cut], ..., *entries[draw(st.integers(cut, len(shape))) :])


@st.composite
def orthogonal(draw, shape):
    """For each dimension an integer, a slice, a list of integers in any order, or bools."""
    entries = []
    for size in shape:
        forms = [slices(size), st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)]
        if size:
            integers = st.integers(-size, size - 1)
            forms += [integers, st.lists(integers, min_size=1, max_size=6).map(np.array)]
        entry = draw(st.one_of(forms))
        entries.append(slice(None) if isinstance(entry, np.ndarray) and not entry.size else entry)
    return tuple(entries)


def take_orthogonally(values, entries):
    """NumPy, one dimension after another from the last."""
    for axis in reversed(range(len(entries))):
        values = values[(slice(None),) * axis + (entries[axis],)]
    return values


@st.composite
def reads(draw, shape, chunk_shape):
    """A read of an array, and what NumPy says to it."""
    kinds = ["basic", "orthogonal", "mask", "blocks"] + ["points"] * (0 not in shape)
    kind = draw(st.sampled_from(kinds if shape else ["basic"]))
    if kind == "basic":
        entries = draw(basic(shape))
        return lambda array: array[entries], lambda values: values[entries]
    if kind == "orthogonal":
        entries = draw(orthogonal(shape))
        return lambda array: array.oindex[entries], lambda v: take_orthogonally(v, entries)
    if kind == "mask":
        mask = np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.3
        return lambda array: array.vindex[mask], lambda values: values[mask]
    if kind == "blocks":
        block = tuple(
            draw(st.integers(0, max(-(-n // c) - 1, 0)))
            for n, c in zip(shape, chunk_shape, strict=True)
        )
        if 0 in shape:
            return lambda array: array[...], lambda values: values
        part = tuple(slice(b * c, (b + 1) * c) for b, c in zip(block, chunk_shape, strict=True))
        return lambda array: array.blocks[block], lambda values: values[part]
    form = draw(st.sampled_from([(1,), (3,), (5,), (2, 3), (1, 2)]))
    points = tuple(
        np.reshape(
            draw(st.lists(st.integers(-n, n - 1), min_size=6, max_size=6))[: np.prod(form)], form
        )
        for n in shape
    )
    return lambda array: array.vindex[points], lambda values: values[points]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("kind", KINDS)
@fuzz(examples=12, share=0.02)
@given(data=st.data())
def test_every_selection_of_every_store_is_what_numpy_selects(
    tmp_path_factory, kind, pipeline, data
):
    name, endian, values, chunk_shape = data.draw(arrays())
    orders = data.draw(st.just([]) | orders_of(values.ndim))
    chunks = dict(chunks_of(values, chunk_shape, name, endian, orders))
    document = json.dumps(document_of(name, values.shape, chunk_shape, endian, orders)).encode()
    objects = {"zarr.json": document, **chunks}
    config = {"codec_pipeline.path": PIPELINES[pipeline]}
    with zarr.config.set(config | settings_of(data.draw, st)):
        array = open_with(kind, objects, tmp_path_factory.mktemp("a"))
        assert type(array.metadata.codecs[-1]) is BytesCodec
        for _ in range(4):
            read, select = data.draw(reads(values.shape, chunk_shape))
            same(read(array), np.asarray(select(values), values.dtype))  # text scalars lose zeros
        array.store_path.store.close()


@st.composite
def writes(draw, shape):
    """A write to an array, and the same in NumPy; each is given values of a shape by `give`."""
    kinds = ["basic", "orthogonal", "mask"] + ["points"] * (0 not in shape)
    kind = draw(st.sampled_from(kinds if shape else ["basic"]))
    if kind == "basic":
        entries = draw(basic(shape))
        return lambda array, value: array.__setitem__(entries, value), (entries,)
    if kind == "mask":
        mask = np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.3
        return lambda array, value: array.set_mask_selection(mask, value), (mask,)
    if kind == "points":
        count = draw(st.integers(1, 5))
        flat = draw(
            st.lists(
                st.integers(0, int(np.prod(shape)) - 1), min_size=1, max_size=count, unique=True
            )
        )
        points = np.unravel_index(flat, shape)
        return lambda array, value: array.set_coordinate_selection(points, value), (points,)
    entries = [
        np.unique(np.arange(n)[entry]) if isinstance(entry, np.ndarray) else entry
        for n, entry in zip(shape, draw(orthogonal(shape)), strict=True)
    ]
    grid = np.ix_(
        *(np.atleast_1d(np.arange(n)[entry]) for n, entry in zip(shape, entries, strict=True))
    )
    return lambda array, value: array.set_orthogonal_selection(tuple(entries), value), (
        grid,
        take_orthogonally(np.empty(shape), entries).shape,
    )


def can_be_sharded(name, pipeline):
    """Whether zarr writes and reads shards of it through the codec.

    The fused pipeline reads a dense shard past it, as the limits say. zarr up to 3.2 cannot write
    shards of voids, or of no dimensions.
    """
    if not HAS_FUSED_PIPELINE:
        return False
    is_limited = TYPES[name][2] < 255 or name in ("complex_float16", "complex_bfloat16")
    return not (is_limited and pipeline == "FusedCodecPipeline")


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("kind", ["local", "memory", "requests"])
@fuzz(examples=6, share=0.03)
@given(data=st.data())
def test_every_write_is_what_numpy_assigns(tmp_path_factory, kind, pipeline, data):
    name, endian, values, chunk_shape = data.draw(arrays())
    document = document_of(name, values.shape, chunk_shape, endian)
    if data.draw(st.booleans()) and values.shape:
        order = data.draw(st.permutations(range(values.ndim)))
        document["codecs"].insert(0, {"name": "transpose", "configuration": {"order": order}})
    elif data.draw(st.booleans()) and can_be_sharded(name, pipeline):
        inner = [
            data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
            for n in chunk_shape
        ]
        document["codecs"] = [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": inner,
                    "codecs": document["codecs"],
                    "index_codecs": [
                        {"name": "bytes", "configuration": {"endian": endian}},
                        {"name": "crc32c"},
                    ],
                },
            }
        ]
    objects = {"zarr.json": json.dumps(document).encode()}
    config = {
        "codec_pipeline.path": PIPELINES[pipeline],
        "array.write_empty_chunks": True,
    }
    model = np.zeros(values.shape, values.dtype)
    with zarr.config.set(config | settings_of(data.draw, st)):
        store = store_with(kind, objects, tmp_path_factory.mktemp("a"))
        array = zarr.open_array(store, mode="r+")
        for step in range(3):
            write, (where, *shape) = data.draw(writes(values.shape))
            part = values_of(name, np.shape(model[where]), step)
            if part.size and data.draw(st.booleans()):
                part = np.broadcast_to(part.flat[0], part.shape)
                write(array, part.flat[0])
            else:
                write(array, part.reshape(*shape) if shape else part)
            model[where] = part
            same(array[...], model)
            same(zarr.open_array(store, mode="r")[...], model)
            read, select = data.draw(reads(values.shape, chunk_shape))
            same(read(array), np.asarray(select(model), model.dtype))


class Faulty(MemoryStore):
    """A store whose n-th request for a chunk ends as `fault` says."""

    _supports_sync_io = False
    fault, number, count = None, 0, 0

    async def get(self, key, prototype=None, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        if key.endswith("zarr.json"):
            return buffer
        return await self._with_fault(key, buffer, is_range=byte_range is not None)

    async def _with_fault(self, key, buffer, *, is_range):
        self.count += 1
        if self.count != self.number:
            return buffer
        if self.fault == "error":
            raise OSError("the connection is gone")
        if self.fault == "refusal" and is_range:
            raise NotImplementedError("no ranges")
        if self.fault == "missing":
            return None
        if self.fault in ("whole", "refusal"):
            return await super().get(key, None)
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
@pytest.mark.parametrize("fault", FAULTS)
@fuzz(examples=6, share=0.01)
@given(data=st.data())
def test_a_fault_of_one_request_is_an_error_or_does_no_harm(pipeline, fault, data):
    """One chunk of numbers that are not zero, so that a mix with the fill value would show."""
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    values = 1 + np.arange(np.prod(shape), dtype="i4").reshape(shape)
    objects = {
        "zarr.json": json.dumps(document_of("int32", shape, shape, "big")).encode(),
        **dict(chunks_of(values, shape, "int32", "big")),
    }
    config = {"codec_pipeline.path": PIPELINES[pipeline]}
    with zarr.config.set(config | settings_of(data.draw, st)):
        array = zarr.open_array(Faulty(store_with("memory", objects, None)._store_dict), mode="r")
        store = array.store_path.store
        store.fault, store.number, store.count = fault, data.draw(st.integers(1, 5)), 0
        read, select = data.draw(reads(shape, shape))
        expected = select(values)
        try:
            found = np.asarray(read(array))
        except FAULTS[fault]:
            assert store.count >= store.number
        else:
            is_fill = fault == "missing" and store.count >= store.number and not found.any()
            assert is_fill or np.array_equal(found, expected)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("kind", ["local", "requests"])
@fuzz(examples=8, share=0.02)
@given(data=st.data())
def test_a_chunk_of_a_wrong_size_is_an_error_or_does_no_harm(
    tmp_path_factory, kind, pipeline, data
):
    """The bytes that are there are where they should be, as where a file is truncated."""
    name, endian, values, _ = data.draw(arrays(least_size=1))
    content = encoded(values, name, endian)
    size = data.draw(st.integers(0, len(content) + 3))
    key = "/".join(["c", *("0" for _ in values.shape)])
    document = document_of(name, values.shape, values.shape, endian)
    objects = {"zarr.json": json.dumps(document).encode(), key: (content + b"\1\1\1")[:size]}
    config = {"codec_pipeline.path": PIPELINES[pipeline]}
    with zarr.config.set(config | settings_of(data.draw, st)):
        array = open_with(kind, objects, tmp_path_factory.mktemp("a"))
        read, select = data.draw(reads(values.shape, values.shape))
        try:
            found = read(array)
        except ChunkSizeError as error:
            assert "bytes" in str(error)  # noqa: PT017 -- the values are right where there is none
            assert size != len(content)
        else:
            same(found, np.asarray(select(values), values.dtype))
