"""Exchange with TensorStore both ways, bit for bit."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts
import zarr
from documents import ARRAY, LITTLE, document_of, transposes, write
from fuzz import values_of

from zarr_bytes import BytesCodec, FillValueWarning

DATA_TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
DATA_TYPES += "float16 float32 float64 complex64 complex128".split()
# What TensorStore 0.1.86 has of the extensions.
FLOAT8 = "e3m4 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu".split()
EXTENSIONS = ["bfloat16", "float4_e2m1fn", "int2", "int4", *(f"float8_{name}" for name in FLOAT8)]
NARROW = ["float4_e2m1fn", "int2", "int4"]
SHAPE = (7, 5)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def tensorstore_at(path, driver="zarr3", **spec):
    kvstore = {"driver": "file", "path": str(path)}
    return ts.open({"driver": driver, "kvstore": kvstore}, **spec).result()


def write_document(path, data_type, fill_value, endian="little"):
    """Metadata of an array of four elements, none of which is stored."""
    codecs = [{"name": "bytes", "configuration": {"endian": endian}}]
    write(path, ARRAY | {"data_type": data_type, "fill_value": fill_value, "codecs": codecs})


def test_tensorstore_reads_a_big_endian_array(tmp_path):
    big = BytesCodec(endian="big")
    zarr.create_array(tmp_path, data=np.arange(4), serializer=big, compressors=None)
    assert tensorstore_at(tmp_path).read().result().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("data_type", DATA_TYPES + EXTENSIONS)
def test_tensorstore_and_zarr_read_what_the_other_writes(tmp_path, data_type):
    values = values_of(data_type, SHAPE, 7)
    for endian in "little", "big":
        codec = BytesCodec(endian=endian)
        options = {"shape": SHAPE, "chunks": (4, 3), "dtype": data_type, "compressors": None}
        zarr.create_array(tmp_path / endian, serializer=codec, **options)[...] = values
        theirs = tensorstore_at(tmp_path / endian)
        read = theirs.read().result()
        # Of narrow types, bits that are not used may be any.
        assert np.array_equal(read, values) if data_type in NARROW else bits(read) == bits(values)
        theirs.write(values[::-1]).result()
        array = zarr.open_array(tmp_path / endian, mode="r")
        assert type(array.metadata.codecs[0]) is BytesCodec
        assert bits(array[...]) == bits(values[::-1])


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_uncompressed_chunks_of_zarr_format_2_are_exchanged_with_tensorstore(tmp_path, data_type):
    """Of both byte orders and orders of axes."""
    values, others = values_of(data_type, SHAPE, 7), values_of(data_type, SHAPE, 8)
    for endian, order in ("little", "F"), ("big", "C"):
        folder, dtype = tmp_path / endian / order, values.dtype.newbyteorder(endian)
        document = {"zarr_format": 2, "shape": SHAPE, "chunks": (4, 3), "dtype": dtype.str}
        document |= {"order": order, "compressor": None, "filters": None, "fill_value": None}
        folder.mkdir(parents=True)
        (folder / ".zarray").write_text(json.dumps(document))
        theirs = tensorstore_at(folder, "zarr")
        theirs.write(values).result()
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            array = zarr.open_array(folder, mode="r+")
        assert array.dtype == dtype
        assert bits(array[...].astype(values.dtype)) == bits(values)
        array[2:6, ::3] = others[2:6, ::3]
        expected = values.copy()
        expected[2:6, ::3] = others[2:6, ::3]
        assert bits(theirs.read().result()) == bits(expected)


@pytest.mark.parametrize("data_type", EXTENSIONS)
def test_arrays_of_zarr_format_2_are_exchanged_with_tensorstore(tmp_path, data_type):
    values = values_of(data_type, SHAPE, 7)
    fill_value = np.ones((), values.dtype)
    options = {"dtype": ts.dtype(data_type), "shape": SHAPE, "create": True}
    theirs = tensorstore_at(tmp_path / "empty", **options).read().result()
    assert bits(zarr.open_array(tmp_path / "empty", mode="r")[...]) == bits(theirs)
    theirs = tensorstore_at(tmp_path / "theirs", "zarr", fill_value=fill_value, **options)
    theirs.write(values).result()
    array = zarr.open_array(tmp_path / "theirs", mode="r")
    assert array.dtype == values.dtype
    if data_type != "float8_e8m0fnu":  # TensorStore 0.1.86 writes other numbers for this one
        assert array.fill_value == fill_value
    zarr.create_array(tmp_path / "ours", data=values, zarr_format=2, compressors=None)
    theirs = tensorstore_at(tmp_path / "ours", "zarr").read().result()
    for found in array[...], theirs:
        assert np.array_equal(found.astype("f4"), values.astype("f4"), equal_nan=True)


@pytest.mark.parametrize(
    ("data_type", "fill_value"),
    [
        *[("float32", value) for value in ("NaN", "0x7f800001", "0xffc00000", "-Infinity", 1.5)],
        *[("int64", value) for value in (-(2**63), 2**53 + 1, 2**63 - 1)],
        *[("uint64", value) for value in (2**53 + 1, 2**63, 2**64 - 1)],
        ("float16", "0x7e01"),
        ("float64", "0x7ff8000000000001"),
        ("complex64", ["0x7fc00001", 1.5]),
    ],
)
def test_fill_values_are_exchanged_with_tensorstore(tmp_path, data_type, fill_value):
    write_document(tmp_path, data_type, fill_value, "big")
    array = zarr.open_array(tmp_path, mode="r+")
    assert bits(array[...]) == bits(tensorstore_at(tmp_path).read().result())
    array.update_attributes({"rewritten": True})
    assert json.loads((tmp_path / "zarr.json").read_text())["fill_value"] == fill_value


# What follows is how TensorStore 0.1.86 behaves. Once a newer one behaves otherwise, the page
# docs/with/other-implementations.md has to be corrected.


def test_tensorstore_misreads_and_writes_another_number_as_the_fill_value_of_float8_e8m0fnu(
    tmp_path,
):
    for fill_value, theirs, ours in (2.0, 0x40, 0x80), (1.0, 0x3F, 0x7F), ("0x80", 0x80, 0x80):
        write_document(tmp_path, "float8_e8m0fnu", fill_value)
        assert bits(tensorstore_at(tmp_path).read().result()) == bytes([theirs] * 4)
        assert bits(zarr.open_array(tmp_path, mode="r")[...]) == bytes([ours] * 4)
    two = np.array(2, ml_dtypes.float8_e8m0fnu)
    options = {"dtype": two.dtype, "shape": [4], "create": True}
    tensorstore_at(tmp_path / "theirs", fill_value=two, **options)
    assert json.loads((tmp_path / "theirs/zarr.json").read_text())["fill_value"] == -(2.0**65)


def test_raw_bits_with_the_base64_fill_value_of_tensorstore(tmp_path):
    """TensorStore 0.1.86 reads and writes no list, and sees each byte as an index."""
    write_document(tmp_path, "r24", [1, 2, 3])
    with pytest.raises(ValueError, match="Expected base64-encoded string"):
        tensorstore_at(tmp_path)
    assert bits(zarr.open_array(tmp_path, mode="r")[...]) == bytes([1, 2, 3] * 4)
    write_document(tmp_path, "r24", "AQID")
    written = np.arange(6, dtype="u1").reshape(2, 3).view("V1")
    tensorstore_at(tmp_path)[:2].write(written).result()
    array = zarr.open_array(tmp_path, mode="r")
    assert array[...].tobytes() == bytes([0, 1, 2, 3, 4, 5, 1, 2, 3, 1, 2, 3])


def test_tensorstore_ends_the_process_where_it_creates_raw_bits(tmp_path):
    program = f"""
import tensorstore as ts
metadata = {{"shape": [4], "data_type": "r16"}}
kvstore = {{"driver": "file", "path": {str(tmp_path)!r}}}
ts.open({{"driver": "zarr3", "kvstore": kvstore, "metadata": metadata, "create": True}}).result()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode not in (0, 1)
    assert "Check failed" in done.stderr


def test_tensorstore_reads_shards_behind_a_transpose_that_zarr_refuses(tmp_path):
    values = np.arange(8, dtype="i4").reshape(2, 4)
    configuration = {"chunk_shape": [4, 1], "codecs": LITTLE, "index_codecs": LITTLE}
    codecs = [*transposes([(1, 0)]), {"name": "sharding_indexed", "configuration": configuration}]
    write(tmp_path, document_of("int32", (2, 4), codecs=codecs))
    tensorstore_at(tmp_path).write(values).result()
    assert np.array_equal(tensorstore_at(tmp_path).read().result(), values)
    with pytest.raises(ValueError, match="divisible by the shard's inner"):  # zarr's words
        zarr.open_array(tmp_path, mode="r")


def test_tensorstore_refuses_null_as_a_fill_value(tmp_path):
    """As GDAL and zarrita.js write it."""
    for data_type in "int32", "float32", "complex64":
        write_document(tmp_path, data_type, None)
        with pytest.raises(ValueError, match="received: null"):
            tensorstore_at(tmp_path)
        with pytest.warns(FillValueWarning, match=data_type):
            assert not zarr.open_array(tmp_path, mode="r")[...].any()
