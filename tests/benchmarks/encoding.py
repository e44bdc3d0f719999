"""Speed of encoding and decoding 64 MiB, against zarr's own codec and NumPy.

    python tests/benchmarks/encoding.py

"copy" is `array.copy()`, "astype" NumPy's conversion to the other byte order. Contenders run in
turn, or each alone where nothing is copied and only a call is measured. Below the figures of a row
stand its bars, as in `pipeline.py`. `--quick` is for a look, and `--only` for some of the sections.
"""

import sys
from functools import partial
from itertools import product

import numpy as np
from pipeline import Row, run
from zarr.abc.buffer import BufferPrototype
from zarr.buffer.cpu import Buffer, NDBuffer
from zarr.codecs import BytesCodec as ZarrBytesCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.dtype import parse_dtype

from zarr_bytes import BytesCodec

MEBIBYTE = 2**20
CODECS = {"zarr-bytes": BytesCodec, "zarr": ZarrBytesCodec}
SWAPPED = "big" if sys.byteorder == "little" else "little"
ORDERS = {"native": sys.byteorder, "swapped": SWAPPED}
LAYOUTS = {
    "contiguous": lambda array: array,
    "stepped": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "transposed": lambda array: np.ascontiguousarray(array.T).T,
}


def main():
    run(SECTIONS, __doc__, ("zarr-bytes", "numpy", "zarr"))


def values_of(dtype, nbytes=64 * MEBIBYTE):
    raw = np.random.default_rng(0).integers(0, 2, nbytes, dtype="u1")
    return raw.view(dtype).reshape(-1, 1024)


def calls_of(array, endian):
    """What encodes an array, and what decodes it, of each codec."""
    spec = ArraySpec(
        shape=array.shape,
        dtype=parse_dtype(array.dtype, zarr_format=3),
        fill_value=0,
        config=ArrayConfig(order="C", write_empty_chunks=True),
        prototype=BufferPrototype(buffer=Buffer, nd_buffer=NDBuffer),
    )
    chunk = NDBuffer.from_numpy_array(array)
    codecs = {name: codec(endian=endian) for name, codec in CODECS.items()}
    stored = codecs["zarr"]._encode_sync(chunk, spec)
    return (
        {name: partial(codec._encode_sync, chunk, spec) for name, codec in codecs.items()},
        {name: partial(codec._decode_sync, stored, spec) for name, codec in codecs.items()},
    )


def large(_, rounds):
    for dtype, (order, endian), (layout, arrange) in product(
        ["f8", "c8"], ORDERS.items(), LAYOUTS.items()
    ):
        array = arrange(values_of(dtype))
        encode, decode = calls_of(array, endian)
        stored = array.astype(array.dtype.newbyteorder(endian))
        if order == "swapped":
            encode["astype"] = partial(array.astype, stored.dtype, "C")
            decode["astype"] = partial(stored.astype, dtype)
        elif layout != "contiguous":
            encode["copy"] = array.copy
        measure = rounds.in_turn if len(encode) > 2 else lambda calls, _: rounds.alone(calls)
        yield Row(f"encode {order} {dtype}, {layout}", measure(encode, 21), [])
        if layout == "contiguous":  # which is what decoding gives
            yield Row(f"decode {order} {dtype}", measure(decode, 21), [])


def bools(_, rounds):
    """Every byte is read, to check that it is 0 or 1; zarr's own codec reads none."""
    array = values_of("?")
    for what, calls in zip(("encode", "decode"), calls_of(array, None), strict=True):
        yield Row(f"{what} bools", rounds.in_turn(calls | {"copy": array.copy}, 21), [])


SECTIONS = {"large": large, "bools": bools}

if __name__ == "__main__":
    main()
