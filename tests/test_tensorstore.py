"""Exchange with TensorStore both ways, bit for bit."""

import json

import numpy as np
import pytest
import tensorstore as ts
import zarr

from zarr_bytes import BytesCodec

DATA_TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] + [
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
SHAPE = (7, 5)
CHUNKS = (4, 3)


def values_of(data_type):
    """Random bits, NaN payloads included; bools are 0 or 1."""
    raw = np.random.default_rng(7).bytes(35 * np.dtype(data_type).itemsize)
    array = np.frombuffer(raw, data_type).reshape(SHAPE)
    return array.view("u1").reshape(SHAPE) % 2 == 1 if data_type == "bool" else array


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def tensorstore_at(path, **spec):
    kvstore = {"driver": "file", "path": str(path)}
    return ts.open({"driver": "zarr3", "kvstore": kvstore, **spec}, open=True, create=bool(spec))


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_tensorstore_reads_what_this_codec_writes(tmp_path, data_type, endian):
    values = values_of(data_type)
    array = zarr.create_array(
        tmp_path,
        shape=SHAPE,
        chunks=CHUNKS,
        dtype=data_type,
        compressors=None,
        serializer=BytesCodec(endian=endian),
    )
    array[...] = values
    assert bits(tensorstore_at(tmp_path).result().read().result()) == bits(values)


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_this_codec_reads_what_tensorstore_writes(tmp_path, data_type, endian):
    values = values_of(data_type)
    metadata = {
        "shape": SHAPE,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNKS}},
        "codecs": [{"name": "bytes", "configuration": {"endian": endian}}],
    }
    tensorstore_at(tmp_path, metadata=metadata).result().write(values).result()
    array = zarr.open_array(tmp_path, mode="r")
    assert type(array.metadata.codecs[0]) is BytesCodec
    assert bits(array[...]) == bits(values)


@pytest.mark.parametrize("fill_value", ["NaN", "0x7f800001", "0xffc00000", "-Infinity", 1.5])
def test_fill_values_are_read_alike_and_written_alike(tmp_path, fill_value):
    metadata = {
        "shape": [3],
        "data_type": "float32",
        "fill_value": fill_value,
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
    }
    theirs = tensorstore_at(tmp_path, metadata=metadata).result().read().result()
    array = zarr.open_array(tmp_path, mode="r+")
    assert bits(array[...]) == bits(theirs)
    array.update_attributes({"rewritten": True})
    assert json.loads((tmp_path / "zarr.json").read_text())["fill_value"] == fill_value


def test_raw_bits_with_the_base64_fill_value_of_tensorstore(tmp_path):
    """TensorStore 0.1.86 reads and writes no other form, and sees each byte as an index."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "r24",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": "AQID",
        "codecs": [{"name": "bytes"}],
    }
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    written = np.arange(6, dtype="u1").reshape(2, 3).view("V1")
    tensorstore_at(tmp_path).result()[:2].write(written).result()
    array = zarr.open_array(tmp_path, mode="r")
    assert array[...].tobytes() == bytes([0, 1, 2, 3, 4, 5, 1, 2, 3, 1, 2, 3])
