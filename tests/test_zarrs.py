"""Arrays through the zarrs pipeline, another implementation of Zarr format 3.

How zarrs 0.2.3 behaves: once a newer one does otherwise, docs/with/other-implementations.md has to
be corrected.
"""

import warnings

import numpy as np
import pytest
import zarr
from extension_types import INTEGERS, PAIRS
from fuzz import same, values_of

from zarr_bytes import BytesCodec

zarrs = pytest.importorskip("zarrs", reason="zarrs is not installed (extra stores)")

# By data type: the name of its values. What zarrs reads and writes by itself, and what it leaves to
# zarr's own pipeline without a word. Of all others it warns, and leaves them too.
BY_ITSELF = {name: name for name in PAIRS}
BY_ITSELF |= {"complex_float32": "complex64", "complex_float64": "complex128"}
LEFT_TO_PYTHON = {name: name for name in ["bfloat16", *INTEGERS]} | {"r24": "r24"}
ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}
STRICTLY = ZARRS | {"codec_pipeline.strict": True}  # an error in place of zarr's own pipeline

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered")  # NaNs of ml_dtypes


def test_zarrs_reads_a_big_endian_array(tmp_path):
    big = BytesCodec(endian="big")
    zarr.create_array(tmp_path, data=np.arange(4), serializer=big, compressors=None)
    with zarr.config.set(STRICTLY):
        assert zarr.open_array(tmp_path, mode="r")[...].tolist() == [0, 1, 2, 3]


def test_zarrs_refuses_numbers_of_format_2_in_the_other_byte_order(tmp_path):
    other = np.arange(4, dtype="i4").byteswap().view(np.dtype("i4").newbyteorder())
    zarr.create_array(tmp_path, data=other, compressors=None, zarr_format=2)
    assert zarr.open_array(tmp_path, mode="r")[1:].tolist() == [1, 2, 3]
    with zarr.config.set(ZARRS):
        theirs = zarr.open_array(tmp_path, mode="r")
        with pytest.raises(RuntimeError, match="Non-native byte order not supported"):
            theirs[...]


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("name", [*BY_ITSELF, *LEFT_TO_PYTHON])
def test_arrays_are_exchanged_both_ways_without_a_warning(tmp_path, name, endian):
    values = values_of((BY_ITSELF | LEFT_TO_PYTHON)[name], (7, 5), seed=3)
    chunks = (7, 5) if name in BY_ITSELF else (4, 3)  # whole chunks, because of the fault below
    options = {"shape": (7, 5), "chunks": chunks, "dtype": name, "compressors": None}
    zarr.create_array(tmp_path, serializer=BytesCodec(endian=endian), **options)[...] = values
    with zarr.config.set(STRICTLY if name in BY_ITSELF else ZARRS):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            theirs = zarr.open_array(tmp_path, mode="r+")
        same(theirs[...], values)
        theirs[...] = values[::-1]
    same(zarr.open_array(tmp_path, mode="r")[...], values[::-1])
    if name in LEFT_TO_PYTHON:
        with zarr.config.set(STRICTLY), pytest.raises(zarrs.pipeline.UnsupportedDataTypeError):
            zarr.open_array(tmp_path, mode="r")[...]


BIG = BytesCodec(endian="big")
LAYOUTS = {  # the serializer and compressors of each
    "chunks": (BIG, None),
    "compressed chunks": (BIG, zarr.codecs.ZstdCodec()),
    "shards": (zarr.codecs.ShardingCodec(chunk_shape=(2,), codecs=[BIG]), None),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_zarrs_exchanges_the_components_of_complex_numbers_in_a_part_of_a_chunk(
    tmp_path, dtype, layout
):
    values = np.array([1 + 10j, 2 + 20j, 3 + 30j, 4 + 40j, 5 + 50j], dtype)
    exchanged = values.imag + 1j * values.real
    options = dict(zip(("serializer", "compressors"), LAYOUTS[layout], strict=True))
    zarr.create_array(tmp_path, shape=5, chunks=4, dtype=dtype, **options)[...] = values
    with zarr.config.set(STRICTLY):
        theirs = zarr.open_array(tmp_path, mode="r")
    ours = zarr.open_array(tmp_path, mode="r")
    assert np.array_equal(theirs[:4], values[:4])
    for part in (np.s_[1:3], np.s_[2:3], np.s_[4:]):  # the last chunk goes beyond the array
        assert np.array_equal(theirs[part], exchanged[part])
        assert np.array_equal(ours[part], values[part])
