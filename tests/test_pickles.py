"""Pickles: of what zarr has too, they name zarr alone, and load where this package is not."""

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from documents import ARRAY, BIG, GZIP, LITTLE, open_document, write
from shards import sharding
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_pipeline

from zarr_bytes import BatchedBytesPipeline, BytesCodec, EndianCodec

LOAD = """
import json, pickle, sys
if sys.argv[1] == "plain":
    from plain_zarr import without_this_package
    without_this_package()
for path in sys.argv[2:]:
    try:
        with open(path, "rb") as file:
            loaded = pickle.load(file)
    except ModuleNotFoundError as error:
        print(json.dumps(str(error)))
        continue
    if hasattr(loaded, "load"):
        print(json.dumps(loaded["a"].values.tolist()))
        continue
    parts = (loaded.metadata.dtype, *getattr(loaded.metadata, "codecs", ()))
    parts += (loaded.async_array.codec_pipeline,)
    print(json.dumps([str(loaded[...].tolist()), *(type(part).__module__ for part in parts)]))
"""


def loaded_in(environment, folder, made, **variables):
    """What another process makes of pickles, "plain" or with this package; or the error, as text.

    Of an array, its elements and the modules of its data type, its codecs and its pipeline.
    """
    paths = [folder / f"{name}.pickle" for name in made]
    for path, one in zip(paths, made.values(), strict=True):
        path.write_bytes(pickle.dumps(one))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOAD, environment, *paths],
        cwd=Path(__file__).parent,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(zip(made, map(json.loads, done.stdout.splitlines()), strict=True))


def array_of(folder, **members):
    """An array of two chunks, of which one is missing."""
    array = zarr.open_array(write(folder, ARRAY | members), mode="r+")
    array[:2] = [1, 2]
    return array


OFF = {"ZARR_CODECS__BYTES": "zarr.codecs.bytes.BytesCodec"} | {
    "ZARR_CODEC_PIPELINE__PATH": "zarr.core.codec_pipeline.BatchedCodecPipeline"
}


@pytest.fixture
def made(tmp_path):
    """Arrays by their names; those of format 2 keep their byte order."""
    options = {"dtype": ">i2", "shape": 4, "chunks": 2, "zarr_format": 2, "fill_value": 0}
    for name, compressors in ("a", "auto"), ("b", None):
        zarr.create_array(tmp_path / name, compressors=compressors, **options)[:2] = [1, 2]
    raw = ARRAY | {"data_type": "r16", "fill_value": [0, 0], "codecs": [*LITTLE, GZIP]}
    documents = {
        "int8": {"data_type": "int8", "codecs": [*LITTLE, GZIP]},
        "int16": {"codecs": [*LITTLE, GZIP]},
        "chunks": {},
        "shards": {"codecs": [sharding([2], LITTLE)]},
    }
    made = {name: array_of(tmp_path / name, **members) for name, members in documents.items()}
    made["compressed format 2"] = zarr.open_array(tmp_path / "a")
    made["format 2"] = zarr.open_array(tmp_path / "b")
    made["raw"] = zarr.open_array(write(tmp_path / "f", raw))
    with zarr.config.set({"zarr_bytes.partial_writes": True}):
        made["format 2 in place"] = zarr.open_array(tmp_path / "b")
        return made | {"in place": array_of(tmp_path / "g")}


def test_an_array_comes_back_from_its_pickle(tmp_path):
    copied = pickle.loads(pickle.dumps(array_of(tmp_path)))  # noqa: S301
    assert copied[...].tolist() == [1, 2, 0, 0]


class TestArrays:
    def test_arrays_equal_their_pickles_which_load_without_this_package(self, tmp_path, made):
        """Others are an error: another pipeline would replace chunks that are written in place."""
        found = loaded_in("plain", tmp_path, made)
        for name, array in made.items():
            copied = pickle.loads(pickle.dumps(array))  # noqa: S301
            assert copied.metadata == array.metadata
            assert copied.metadata.to_dict() == array.metadata.to_dict()
            assert np.array_equal(copied[...], array[...])
            if "in place" in name or name == "raw":
                assert "zarr_bytes" in found[name]
                continue
            values, *modules = found[name]
            assert b"zarr_bytes" not in pickle.dumps(array)
            assert values == "[1, 2, 0, 0]"
            assert not any(module.startswith("zarr_bytes") for module in modules)

    @pytest.mark.parametrize(("variables", "module"), [({}, "zarr_bytes"), (OFF, "zarr.co")])
    def test_arrays_from_pickles_have_the_codec_and_pipeline_of_the_process(
        self, tmp_path, made, variables, module
    ):
        """But those that are written in place have that of this package."""
        found = loaded_in("installed", tmp_path, made, **variables)
        for name in "chunks", "shards", "format 2":
            values, *modules = found[name]
            assert values == "[1, 2, 0, 0]"
            assert modules[-1].startswith(module)
        assert found["chunks"][2].startswith(module)
        assert found["in place"][-1] == found["format 2 in place"][-1] == "zarr_bytes"


class OfCodecsAlone(BatchedCodecPipeline):
    """As that of the package zarrs."""

    @classmethod
    def from_codecs(cls, codecs):
        return super().from_codecs(codecs)


def test_a_pickled_pipeline_keeps_its_batch_size_and_loads_as_any_class():
    pipeline = BatchedBytesPipeline.from_codecs([BytesCodec()], batch_size=7)
    pickled = pickle.dumps(pipeline)
    register_pipeline(OfCodecsAlone)
    for kind in BatchedBytesPipeline, OfCodecsAlone:
        with zarr.config.set({"codec_pipeline.path": f"{kind.__module__}.{kind.__qualname__}"}):
            loaded = pickle.loads(pickled)  # noqa: S301
        assert type(loaded) is kind
        assert (tuple(loaded), loaded.batch_size) == (tuple(pipeline), 7)


def test_a_new_array_and_the_array_opened_have_one_token_of_dask(tmp_path):
    dask = pytest.importorskip("dask.base", reason="Dask is not installed (extra stores)")
    arrays = []
    for endian in "little", "big":
        serializer = zarr.codecs.BytesCodec(endian=endian)
        options = {"shape": 4, "dtype": "f4", "compressors": None, "serializer": serializer}
        arrays += [zarr.create_array(tmp_path / endian, **options)]
        arrays += [zarr.open_array(tmp_path / endian)]
    little, opened, *others = map(dask.tokenize, (array.metadata for array in arrays))
    assert little == opened
    assert len({little, *others}) == 2


def test_a_dataset_of_xarray_that_is_loaded_needs_no_zarr(tmp_path):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed (extra stores)")
    dataset = xarray.Dataset({"a": ("x", np.arange(4.0))})
    encoding = {"a": {"compressors": None}}
    dataset.to_zarr(tmp_path / "a", consolidated=False, encoding=encoding)
    loaded = xarray.open_zarr(tmp_path / "a", consolidated=False).load()
    assert b"zarr_bytes" not in pickle.dumps(loaded)
    assert loaded_in("plain", tmp_path, {"loaded": loaded}) == {"loaded": [0.0, 1.0, 2.0, 3.0]}


class Derived(BytesCodec):
    pass


def test_a_codec_is_equal_to_its_copies_and_its_repr_says_whose_it_is():
    absent = BytesCodec.from_dict({"name": "bytes", "configuration": {}})
    dropped = open_document("uint8", codecs=BIG).metadata.codecs[0]
    for codec, shown in (
        (dropped, "zarr_bytes.BytesCodec(endian=None)"),
        (BytesCodec(endian="big"), "zarr_bytes.BytesCodec(endian='big')"),
        (BytesCodec(endian=None), "zarr_bytes.BytesCodec(endian=None)"),
        (absent, "zarr_bytes.BytesCodec(endian=None)"),
        (EndianCodec(endian="little"), "zarr_bytes.EndianCodec(endian='little')"),
        (Derived(endian="big"), f"{__name__}.Derived(endian='big')"),
    ):
        assert b"zarr_bytes" not in pickle.dumps(codec)
        unpickled = pickle.loads(pickle.dumps(codec))  # noqa: S301
        with zarr.config.set({"codecs.bytes": OFF["ZARR_CODECS__BYTES"]}):  # of no matter to copies
            copies = copy.copy(codec), copy.deepcopy(codec)
        for copied in unpickled, *copies:
            assert copied == codec
            assert type(copied) is type(codec)
            assert copied.to_dict() == codec.to_dict()
            assert repr(copied) == shown
