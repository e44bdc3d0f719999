"""Arrays through the zarrs pipeline, another implementation of Zarr format 3."""

import warnings

import numpy as np
import pytest
import tensorstore as ts
import zarr
from extension_types import INTEGERS, PAIRS, numpy_type

from zarr_bytes import BytesCodec

zarrs = pytest.importorskip("zarrs", reason="zarrs is not installed (extra stores)")

ALIASES = {"complex_float32": np.dtype("c8"), "complex_float64": np.dtype("c16")}
# What zarrs 0.2.3 reads and writes by itself, and what it leaves to zarr's own pipeline without a
# word. Of all others it warns, and leaves them too.
BY_ITSELF = [*PAIRS, *ALIASES]
LEFT_TO_PYTHON = ["bfloat16", *INTEGERS, "r16"]
ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}
STRICTLY = ZARRS | {"codec_pipeline.strict": True}  # an error in place of zarr's own pipeline

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered")  # NaNs of ml_dtypes


def values_of(name):
    dtype = {**ALIASES, "r16": np.dtype("V2")}.get(name) or numpy_type(name)
    raw = np.frombuffer(np.random.default_rng(3).bytes(35 * dtype.itemsize), "u1")
    if name in INTEGERS:
        raw = raw % 2 ** int(name[-1])
    return raw.view(dtype).reshape(7, 5)


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("name", BY_ITSELF)
def test_arrays_are_exchanged_both_ways(tmp_path, name, endian):
    check_exchange(tmp_path, name, endian, STRICTLY)


@pytest.mark.parametrize("name", LEFT_TO_PYTHON)
def test_zarrs_leaves_these_to_python_without_a_warning(tmp_path, name):
    """zarrs 0.2.3: once a newer one does not, correct docs/with/other-implementations.md."""
    check_exchange(tmp_path, name, "little", ZARRS)
    with zarr.config.set(STRICTLY):
        array = zarr.open_array(tmp_path, mode="r")
        with pytest.raises(zarrs.pipeline.UnsupportedDataTypeError):
            array[...]


def check_exchange(folder, name, endian, config):
    """Write an array, read it by zarrs without a warning, write it so, and read it again."""
    values = values_of(name)
    array = zarr.create_array(
        folder,
        shape=values.shape,
        # Whole chunks, because of the fault below.
        chunks=values.shape if "complex" in name else (4, 3),
        dtype=name,
        compressors=None,
        serializer=BytesCodec(endian=endian),
    )
    array[...] = values
    with zarr.config.set(config):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            theirs = zarr.open_array(folder, mode="r+")
        assert np.array_equal(theirs[...].view("u1") & mask(name), values.view("u1") & mask(name))
        theirs[...] = values[::-1]
    ours = zarr.open_array(folder, mode="r")[...]
    assert ours.tobytes() == values[::-1].tobytes()


def mask(name):
    """The bits of a byte that count."""
    return 2 ** int(name[-1]) - 1 if name in INTEGERS else 255


BIG = BytesCodec(endian="big")
LAYOUTS = {
    "chunks": {"serializer": BIG, "compressors": None},
    "compressed chunks": {"serializer": BIG, "compressors": zarr.codecs.ZstdCodec()},
    "shards": {
        "serializer": zarr.codecs.ShardingCodec(chunk_shape=(2,), codecs=[BIG]),
        "compressors": None,
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_zarrs_exchanges_the_components_in_a_part_of_a_big_endian_chunk(tmp_path, dtype, layout):
    """zarrs 0.2.3: once a newer one does not, correct docs/with/other-implementations.md."""
    values = np.array([1 + 10j, 2 + 20j, 3 + 30j, 4 + 40j, 5 + 50j], dtype)
    exchanged = values.imag + 1j * values.real
    options = {"shape": (5,), "chunks": (4,), "dtype": dtype, **LAYOUTS[layout]}
    zarr.create_array(tmp_path, **options)[...] = values
    with zarr.config.set(STRICTLY):
        theirs = zarr.open_array(tmp_path, mode="r")
    ours = zarr.open_array(tmp_path, mode="r")
    kvstore = {"driver": "file", "path": str(tmp_path)}
    tensorstore = ts.open({"driver": "zarr3", "kvstore": kvstore}).result()
    assert np.array_equal(theirs[:4], values[:4])
    for part in (np.s_[1:3], np.s_[2:3], np.s_[4:]):  # the last chunk goes beyond the array
        assert np.array_equal(theirs[part], exchanged[part])
        assert np.array_equal(ours[part], values[part])
        assert np.array_equal(tensorstore[part].read().result(), values[part])
