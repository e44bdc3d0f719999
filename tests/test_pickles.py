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
from documents import ARRAY, GZIP, LITTLE, write
from shards import sharding
from zarr import dtype as zarr_dtype

from zarr_bytes import BytesCodec, EndianCodec
from zarr_bytes.data_type import DATA_TYPES

LOAD = """
import json, pickle, sys
if sys.argv[1] == "plain":
    from plain_zarr import without_this_package
    without_this_package()
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        loaded = pickle.load(file)
    found = {}
    if hasattr(loaded, "metadata"):
        data_type = loaded.metadata.dtype
        codecs = getattr(loaded.metadata, "codecs", ())
        pipeline = loaded.async_array.codec_pipeline
        found["classes"] = [type(part).__module__ for part in (data_type, *codecs, pipeline)]
    if hasattr(loaded, "load"):
        loaded = loaded["a"]
    print(json.dumps(found | {"values": loaded[...].tolist() if found else loaded.values.tolist()}))
"""


def loaded_in(environment, folder, *made, **variables):
    """What another process makes of pickles, each: "plain", or with this package; or its error."""
    paths = [folder / f"pickle{number}" for number, _ in enumerate(made)]
    for path, one in zip(paths, made, strict=True):
        path.write_bytes(pickle.dumps(one))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOAD, environment, *paths],
        cwd=Path(__file__).parent,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return done.stderr.splitlines()[-1]
    return [json.loads(line) for line in done.stdout.splitlines()]


def compressed(folder, **members):
    """An array of two chunks, of which one is missing."""
    write(folder, ARRAY | {"codecs": [*LITTLE, GZIP]} | members)
    array = zarr.open_array(folder, mode="r+")
    array[:2] = [1, 2]
    return array


OFF = {"ZARR_CODECS__BYTES": "zarr.codecs.bytes.BytesCodec"} | {
    "ZARR_CODEC_PIPELINE__PATH": "zarr.core.codec_pipeline.BatchedCodecPipeline"
}


class TestWithoutThisPackage:
    def test_a_compressed_array_is_zarrs_own(self, tmp_path):
        """Also one of format 2, which keeps its byte order."""
        arrays = [compressed(tmp_path / name, data_type=name) for name in ("int8", "int16")]
        options = {"dtype": ">i2", "shape": 4, "chunks": 2, "zarr_format": 2}
        zarr.create_array(tmp_path / "a", **options)[:2] = [1, 2]
        arrays.append(zarr.open_array(tmp_path / "a"))
        assert not any(b"zarr_bytes" in pickle.dumps(array) for array in arrays)
        for found in loaded_in("plain", tmp_path, *arrays):
            assert found["values"] == [1, 2, 0, 0]
            assert not any(module.startswith("zarr_bytes") for module in found["classes"])

    def test_a_dataset_of_xarray_that_is_loaded(self, tmp_path):
        xarray = pytest.importorskip("xarray", reason="xarray is not installed (extra stores)")
        dataset = xarray.Dataset({"a": ("x", np.arange(4.0))})
        encoding = {"a": {"compressors": None}}
        dataset.to_zarr(tmp_path / "a", consolidated=False, encoding=encoding)
        loaded = xarray.open_zarr(tmp_path / "a", consolidated=False).load()
        assert b"zarr_bytes" not in pickle.dumps(loaded)
        assert loaded_in("plain", tmp_path, loaded) == [{"values": [0.0, 1.0, 2.0, 3.0]}]

    def test_an_uncompressed_array_has_zarrs_pipeline(self, tmp_path):
        chunks = compressed(tmp_path / "chunks", codecs=LITTLE)
        shards = compressed(tmp_path / "shards", codecs=[sharding([2], LITTLE)])
        assert b"zarr_bytes" not in pickle.dumps(chunks) + pickle.dumps(shards)
        for environment, variables, pipeline in (
            ("plain", {}, "zarr.core"),
            ("installed", {}, "zarr_bytes"),
            ("installed", OFF, "zarr.core"),
        ):
            both = loaded_in(environment, tmp_path, chunks, shards, **variables)
            for found in both:
                assert found["values"] == [1, 2, 0, 0]
                assert found["classes"][-1].startswith(pipeline)
            codec = "zarr_bytes.codec" if pipeline == "zarr_bytes" else "zarr.codecs.bytes"
            assert both[0]["classes"][1] == codec

    def test_an_array_that_is_written_in_place_is_an_error_that_names_this_package(self, tmp_path):
        """Another pipeline would replace chunks that other processes write into."""
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            array = compressed(tmp_path / "a", codecs=LITTLE)
        self.check_that_it_is_an_error(tmp_path, array)
        (found,) = loaded_in("installed", tmp_path, array, **OFF)
        assert found["classes"][-1] == "zarr_bytes"

    def test_a_data_type_that_zarr_does_not_have_is_an_error_that_names_this_package(
        self, tmp_path
    ):
        members = {"data_type": "r16", "fill_value": [0, 0], "codecs": [*LITTLE, GZIP]}
        write(tmp_path / "a", ARRAY | members)
        self.check_that_it_is_an_error(tmp_path, zarr.open_array(tmp_path / "a"))

    @staticmethod
    def check_that_it_is_an_error(folder, array):
        found = loaded_in("plain", folder, array)
        assert found.startswith("ModuleNotFoundError")
        assert "zarr_bytes" in found


def all_data_types():
    for name, class_ in DATA_TYPES.items():
        if name == "r*":
            yield class_(length=3)
        elif name == "struct":
            inner = class_(fields=(("c", DATA_TYPES["r*"](length=2)),))
            yield class_(fields=(("a", zarr_dtype.Int16(endianness="big")), ("b", inner)))
        elif "endianness" in class_.__dataclass_fields__:
            yield from (class_(endianness=endianness) for endianness in ("little", "big"))
        else:
            yield class_()


def is_zarrs(data_type):
    return hasattr(zarr_dtype, type(data_type).__name__)


def copies_of(made):
    return pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)  # noqa: S301


class Derived(BytesCodec):
    pass


class TestCopies:
    @pytest.mark.parametrize("data_type", [*all_data_types()], ids=str)
    def test_a_data_type_is_equal_to_its_copies_and_names_this_package_where_zarr_has_none(
        self, data_type
    ):
        for copied in copies_of(data_type):
            assert copied == data_type
            assert type(copied) is type(data_type)
            assert repr(copied) == repr(data_type)  # the byte order, and those of fields
        names = b"zarr_bytes" in pickle.dumps(data_type)
        assert names is (not is_zarrs(data_type) or "RawBits" in repr(data_type))

    @pytest.mark.parametrize(
        ("codec", "shown"),
        [
            (BytesCodec(endian="big"), "zarr_bytes.BytesCodec(endian='big')"),
            (BytesCodec(endian=None), "zarr_bytes.BytesCodec(endian=None)"),
            (BytesCodec.from_dict({"name": "bytes", "configuration": {}}), "zarr_bytes.Bytes"),
            (EndianCodec(endian="little"), "zarr_bytes.EndianCodec(endian='little')"),
            (Derived(), "Derived(endian='little')"),
        ],
        ids=str,
    )
    def test_a_codec_is_equal_to_its_copies_and_its_repr_says_whose_it_is(self, codec, shown):
        assert b"zarr_bytes" not in pickle.dumps(codec)
        for copied in copies_of(codec):
            assert copied == codec
            assert type(copied) is type(codec)
            assert copied.to_dict() == codec.to_dict()
            assert shown in repr(copied)

    @pytest.mark.parametrize("data_type", ["int8", "int16"])
    def test_a_codec_of_an_array_is_equal_to_its_pickle(self, tmp_path, data_type):
        array = compressed(tmp_path, data_type=data_type)
        copied = pickle.loads(pickle.dumps(array))  # noqa: S301
        assert copied.metadata == array.metadata
        assert copied.metadata.to_dict() == array.metadata.to_dict()
        assert type(copied.metadata.codecs[0]) is BytesCodec
