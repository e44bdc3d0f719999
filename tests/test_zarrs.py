"""Extension data types through the zarrs pipeline, another implementation of Zarr format 3."""

import warnings

import numpy as np
import pytest
import zarr
from extension_types import INTEGERS, PAIRS, numpy_type

from zarr_bytes import BytesCodec

pytest.importorskip("zarrs", reason="zarrs is not installed (extra stores)")

# What zarrs 0.2.3 takes; for the others it says so and leaves the array to zarr's own pipeline.
NAMES = ["bfloat16", *INTEGERS, *PAIRS, "complex_float32", "complex_float64"]

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered")  # NaNs of ml_dtypes


def values_of(name):
    dtype = np.dtype(
        {"complex_float32": "c8", "complex_float64": "c16"}.get(name) or numpy_type(name)
    )
    raw = np.frombuffer(np.random.default_rng(3).bytes(35 * dtype.itemsize), "u1")
    if name in INTEGERS:
        raw = raw % 2 ** int(name[-1])
    return raw.view(dtype).reshape(7, 5)


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_exchanged_both_ways(tmp_path, name, endian):
    values = values_of(name)
    array = zarr.create_array(
        tmp_path,
        shape=values.shape,
        chunks=(4, 3),
        dtype=name,
        compressors=None,
        serializer=BytesCodec(endian=endian),
    )
    array[...] = values
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it would warn, and not be used
            theirs = zarr.open_array(tmp_path, mode="r+")
        assert np.array_equal(theirs[...].view("u1") & mask(name), values.view("u1") & mask(name))
        theirs[...] = values[::-1]
    ours = zarr.open_array(tmp_path, mode="r")[...]
    assert ours.tobytes() == values[::-1].tobytes()


def mask(name):
    """The bits of a byte that count."""
    return 2 ** int(name[-1]) - 1 if name in INTEGERS else 255
