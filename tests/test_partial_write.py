"""Writing a selection of a chunk through zarr: results, the bytes that are written, and fallbacks.

The oracle is NumPy, and for bytes the system: what it says that this process has written.
"""

import importlib.util
import json
import math
import os
import pickle
import tempfile
from pathlib import Path

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from extension_types import NAMES, numpy_type
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from zarr.abc.codec import ArrayBytesCodecPartialEncodeMixin
from zarr.codecs import ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ZipStore

from zarr_bytes import BytesCodec, ChunkSizeError
from zarr_bytes.codec import EndianCodec, PartialWriteBytesCodec, PartialWriteEndianCodec

IN_PLACE = {"zarr_bytes.partial_writes": True}

pytestmark = [
    # zarr warns that some of its types have no specification, and 3.1 of structured ones.
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:Missing 'endian'"),
    pytest.mark.filterwarnings("ignore:Duplicate name"),  # in a zip, of a chunk that is replaced
    pytest.mark.filterwarnings("ignore:invalid value encountered"),  # ml_dtypes, of NaN
]


def created(store, shape, dtype, chunks=None, **options):
    """An array in `store`, opened again while parts of chunks are written in place."""
    options = {"compressors": None, "serializer": BytesCodec(endian="big"), **options}
    zarr.create_array(store, shape=shape, dtype=dtype, chunks=chunks or shape, **options)
    with zarr.config.set(IN_PLACE):
        return zarr.open_array(store, mode="r+")


# Data types: a name or NumPy type that zarr takes, and the NumPy type.
STRUCT = np.dtype([("a", "<i2"), ("b", "?"), ("c", [("d", "<f8"), ("e", ml_dtypes.int4)])])
TYPES = {
    **{name: np.dtype(name) for name in "bool int8 uint8 int16 uint16 int32 uint32".split()},
    **{name: np.dtype(name) for name in "int64 uint64 float16 float32 float64".split()},
    **{name: np.dtype(name) for name in "complex64 complex128".split()},
    **{name: numpy_type(name) for name in NAMES},
    "complex_float32": np.dtype("c8"),
    "complex_float64": np.dtype("c16"),
    "r24": np.dtype("V3"),
    **{dtype: np.dtype(dtype) for dtype in ("<U3", "S3", "V5", "<M8[s]", "<m8[ns]")},
    "struct": STRUCT,
}


def leaves(dtype, start=0):
    """Offset and type of every number in an element."""
    if dtype.names is None:
        return [(start, dtype)]
    fields = [dtype.fields[name] for name in dtype.names]
    return [leaf for field in fields for leaf in leaves(field[0], start + field[1])]


def random_values(rng, dtype, shape):
    """Elements of any bits that the data type permits."""
    count = math.prod(shape)
    if dtype.kind in "US":
        return rng.choice(np.array(["", "a", "bc", "def"], dtype), count).reshape(shape)
    bits = rng.integers(0, 256, (count, dtype.itemsize), np.uint8)
    for offset, leaf in leaves(dtype):
        if leaf.kind == "b":
            bits[:, offset] %= 2
        elif leaf.name in ("int2", "uint2", "int4", "uint4"):
            bits[:, offset] %= 4 if leaf.name.endswith("2") else 16
        elif leaf.name.startswith(("float4", "float6")):
            bits[:, offset] %= 16 if leaf.name.startswith("float4") else 64
    return bits.view(dtype).reshape(shape)


def bits(values):
    """The bits by which to compare: narrow numbers may hold anything above theirs in memory."""
    values = np.asarray(values)
    bits = np.frombuffer(values.tobytes(), np.uint8).reshape(-1, values.itemsize).copy()
    for offset, leaf in leaves(values.dtype):
        if leaf.name in ("int2", "uint2", "int4", "uint4"):
            bits[:, offset] %= 4 if leaf.name.endswith("2") else 16
    return bits.tobytes()


@st.composite
def slices(draw, size):
    start, stop = sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    return slice(start, stop, draw(st.integers(1, 4)))


@st.composite
def basic(draw, shape):
    return tuple(draw(st.one_of(st.integers(0, n - 1), slices(n))) for n in shape)


@st.composite
def orthogonal(draw, shape):
    def entries(n):
        unique = st.lists(st.integers(0, n - 1), max_size=n, unique=True)
        bools = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda b: np.array(b, bool))
        return st.one_of(
            st.integers(0, n - 1),
            slices(n),
            unique.map(lambda i: np.array(i, np.int64)),
            unique.map(lambda i: np.array(sorted(i), np.int64)),
            bools,
        )

    return tuple(draw(entries(n)) for n in shape)


def as_grid(selection, shape):
    """The selection that NumPy takes for an orthogonal one, and the shape without its integers."""
    indices = [np.atleast_1d(np.arange(n)[entry]) for entry, n in zip(selection, shape, strict=True)]
    dropped = [isinstance(entry, int) for entry in selection]
    kept = tuple(len(i) for i, is_dropped in zip(indices, dropped, strict=True) if not is_dropped)
    return np.ix_(*indices) if indices else (), kept


KINDS = ["basic", "orthogonal", "coordinates", "mask", "block"]
STORES = ["local", "memory", "zip", "fsspec", "shard", "compressed", "transposed"]
if not importlib.util.find_spec("fsspec"):
    STORES.remove("fsspec")


def store_and_chain(kind, folder, chunks, endian):
    """A store of this kind, and how an array of uncompressed chunks is created there."""
    options = {"serializer": BytesCodec(endian=endian), "chunks": chunks}
    if kind == "memory":
        return MemoryStore(), options
    if kind == "zip":
        return ZipStore(folder / "store.zip", mode="w"), options
    if kind == "fsspec":
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
        from fsspec.implementations.memory import MemoryFileSystem

        files = AsyncFileSystemWrapper(MemoryFileSystem(), asynchronous=True)
        return FsspecStore(files, path=f"/{folder.name}"), options
    if kind == "shard":
        options["serializer"] = ShardingCodec(chunk_shape=chunks, codecs=[options["serializer"]])
        options["chunks"] = tuple(2 * n for n in chunks)
    elif kind == "compressed":
        options["compressors"] = ZstdCodec()
    elif kind == "transposed":
        options["filters"] = [TransposeCodec(order=tuple(range(len(chunks)))[::-1])]
    return LocalStore(folder / "store"), options


def write_same(array, model, kind, data, rng, chunks):
    """Write the same random elements to `array` and to its NumPy model."""
    shape, is_scalar = model.shape, data.draw(st.booleans(), label="scalar")

    def values(of_shape):
        return random_values(rng, model.dtype, () if is_scalar else of_shape)

    if kind == "basic":
        selection = data.draw(basic(shape), label="selection")
        value = values(model[selection].shape)
        array[selection] = model[selection] = value
    elif kind == "orthogonal":
        selection = data.draw(orthogonal(shape), label="selection")
        grid, kept = as_grid(selection, shape)
        value = values(kept)
        array.set_orthogonal_selection(selection, value)
        model[grid] = value if is_scalar else value.reshape(model[grid].shape)
    elif kind == "coordinates":
        points = data.draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in shape)), min_size=1))
        if chunks != shape:  # zarr sorts points by chunk, so that not the last of the same counts
            points = list(dict.fromkeys(points))
        selection = tuple(np.array(points).T)
        value = values((len(points),))
        array.set_coordinate_selection(selection, value)
        model[selection] = value
    elif kind == "mask":
        mask = rng.random(shape) < 0.4
        value = values((int(mask.sum()),))
        array.set_mask_selection(mask, value)
        model[mask] = value
    else:
        blocks = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
        block = data.draw(st.tuples(*(st.integers(0, n - 1) for n in blocks)), label="block")
        region = tuple(slice(b * c, (b + 1) * c) for b, c in zip(block, chunks, strict=True))
        value = values(model[region].shape)
        array.set_block_selection(block, value)
        model[region] = value


@pytest.mark.parametrize("store", STORES)
@settings(deadline=None, max_examples=40, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_selection_of_every_type_is_written_as_numpy_does(store, pipeline, data, tmp_path):
    name = data.draw(st.sampled_from(sorted(TYPES)), label="data type")
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=6), label="shape")
    chunks = data.draw(
        st.one_of(st.just(shape), st.tuples(*(st.integers(1, n) for n in shape))), label="chunks"
    )
    endian = data.draw(st.sampled_from(["little", "big"]), label="endian")
    # Nothing can be deleted from a zip.
    keeps_empty = store == "zip" or data.draw(st.booleans(), label="write_empty_chunks")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))

    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    opened, options = store_and_chain(store, folder, chunks, endian)
    data_type = STRUCT if name == "struct" else name
    array = created(
        opened, shape, data_type, config={"write_empty_chunks": keeps_empty}, **options
    )
    model = np.full(shape, array.fill_value, TYPES[name])
    for kind in data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), label="kinds"):
        write_same(array, model, kind, data, rng, array.shards or array.chunks)
        assert bits(array[...]) == bits(model)
    assert bits(zarr.open_array(opened, mode="r+")[...]) == bits(model)
    if store == "zip":
        opened.close()
    assert not list(folder.rglob("*.partial"))
