"""Speed of encoding and decoding 64 MiB, against zarr's own codec and NumPy.

    pytest tests/benchmarks

All contenders run in turn, in one process; the table at the end gives medians, and the ratio of
this codec's to each. "copy" is `array.copy()`, "astype" NumPy's conversion to the other byte order.
"""

import sys

import numpy as np
import pytest
from benchmark import compare
from zarr.abc.buffer import BufferPrototype
from zarr.buffer.cpu import Buffer, NDBuffer
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.dtype import parse_dtype

from zarr_bytes import BytesCodec

MEBIBYTE = 2**20
NATIVE = sys.byteorder
SWAPPED = {"little": "big", "big": "little"}[NATIVE]
LAYOUTS = {
    "contiguous": lambda array: array,
    "stepped": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
}
A_CALL = 1000  # where nothing is copied, the time of a call is what there is to measure


def values_of(dtype, nbytes=64 * MEBIBYTE):
    raw = np.random.default_rng(0).integers(0, 2, nbytes, dtype="u1")
    return raw.view(dtype).reshape(-1, 1024)


def spec_of(array):
    return ArraySpec(
        shape=array.shape,
        dtype=parse_dtype(array.dtype, zarr_format=3),
        fill_value=0,
        config=ArrayConfig(order="C", write_empty_chunks=True),
        prototype=BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "c8"])
@pytest.mark.parametrize("order", ["native", "swapped"])
def test_encode(benchmark, order, dtype, layout):
    array = LAYOUTS[layout](values_of(dtype))
    endian = {"native": NATIVE, "swapped": SWAPPED}[order]
    stored = array.dtype.newbyteorder(endian)
    numpy = (
        {"copy": array.copy} if order == "native" else {"astype": lambda: array.astype(stored, "C")}
    )
    is_copied = order == "swapped" or layout != "contiguous"
    compare_encoding(benchmark, array, endian, **(numpy if is_copied else {"calls": A_CALL}))


@pytest.mark.parametrize("dtype", ["f8", "c8"])
@pytest.mark.parametrize("order", ["native", "swapped"])
def test_decode(benchmark, order, dtype):
    array = values_of(dtype)
    endian = {"native": NATIVE, "swapped": SWAPPED}[order]
    stored = array.astype(array.dtype.newbyteorder(endian))
    numpy = {"astype": lambda: stored.astype(dtype)}
    compare_decoding(
        benchmark, array, endian, **(numpy if order == "swapped" else {"calls": A_CALL})
    )


def test_decode_bools(benchmark):
    """Here every byte is read, to check that it is 0 or 1; zarr's own codec reads none."""
    array = values_of("?")
    compare_decoding(benchmark, array, None, copy=array.copy)


def test_encode_bools(benchmark):
    array = values_of("?")
    compare_encoding(benchmark, array, None, copy=array.copy)


def compare_encoding(benchmark, array, endian, **contenders):
    buffer, spec = NDBuffer.from_numpy_array(array), spec_of(array)
    ours, zarrs = BytesCodec(endian=endian), ZarrBytesCodec(endian=endian)
    compare(
        benchmark,
        lambda: ours._encode_sync(buffer, spec),
        zarr=lambda: zarrs._encode_sync(buffer, spec),
        **contenders,
    )


def compare_decoding(benchmark, array, endian, **contenders):
    spec = spec_of(array)
    ours, zarrs = BytesCodec(endian=endian), ZarrBytesCodec(endian=endian)
    buffer = ours._encode_sync(NDBuffer.from_numpy_array(array), spec)
    compare(
        benchmark,
        lambda: ours._decode_sync(buffer, spec),
        zarr=lambda: zarrs._decode_sync(buffer, spec),
        **contenders,
    )


@pytest.mark.parametrize("order", ["native", "swapped"])
@pytest.mark.parametrize("direction", ["encode", "decode"])
def test_many_chunks_of_256_bytes(benchmark, direction, order):
    """The time of a call, where there is next to nothing to move."""
    array = values_of("f8", 256 * 256)[0, :32]
    spec = spec_of(array)
    endian = {"native": NATIVE, "swapped": SWAPPED}[order]
    chunk = NDBuffer.from_numpy_array(array)
    buffer = Buffer.from_array_like(array.astype(array.dtype.newbyteorder(endian)).view("u1"))
    calls = {}
    for name, cls in (("ours", BytesCodec), ("zarr", ZarrBytesCodec)):
        codec = cls(endian=endian)
        calls[name] = lambda codec=codec: (
            codec._encode_sync(chunk, spec)
            if direction == "encode"
            else codec._decode_sync(buffer, spec)
        )
    compare(benchmark, calls["ours"], calls=A_CALL, zarr=calls["zarr"])
