"""Which pipeline an array has: this package's by installing it, zarr's for every other chain."""

import json
import pickle
import subprocess
import sys
from copy import deepcopy
from dataclasses import fields, make_dataclass

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from stored_arrays import numbers, pipeline_of
from zarr.codecs import (
    BloscCodec,
    Crc32cCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BatchedBytesPipeline, BytesCodec, EndianCodec
from zarr_bytes.zarr_versions import unknown_in_pipeline

pytestmark = pytest.mark.zarr

NAME = "zarr_bytes.BatchedBytesPipeline"
ZARRS_OWN = PIPELINES["BatchedCodecPipeline"]
PIPELINE_OF_ZARR = {"codec_pipeline.path": ZARRS_OWN}
TRANSPOSED = TransposeCodec(order=(1, 0))
BIG = zarr.codecs.BytesCodec(endian="big")
PLAIN = {
    "as zarr makes it": {},
    "this package's": {"serializer": BytesCodec(endian="big")},
    "the draft's": {"serializer": EndianCodec(endian="big")},
    "behind a transpose": {"filters": [TRANSPOSED]},
    "behind two": {"filters": [TRANSPOSED, TRANSPOSED]},
}
SHARDS = {
    "shard": {"serializer": ShardingCodec(chunk_shape=(2, 3), codecs=[BIG])},
    "shard of transposed chunks": {
        "serializer": ShardingCodec(
            chunk_shape=(2, 3), codecs=[TRANSPOSED, BIG], index_location="start"
        )
    },
    "shard without a checksum": {
        "serializer": ShardingCodec(chunk_shape=(2, 3), codecs=[BIG], index_codecs=[BIG])
    },
}
OTHER = {
    "compressor": {"compressors": ZstdCodec()},
    "checksum": {"compressors": Crc32cCodec()},
    "compressor behind a transpose": {"filters": [TRANSPOSED], "compressors": BloscCodec()},
    "shard of compressed chunks": {
        "serializer": ShardingCodec(chunk_shape=(2, 3), codecs=[BIG, ZstdCodec()])
    },
    "shard of shards": {
        "serializer": ShardingCodec(
            chunk_shape=(2, 6), codecs=[ShardingCodec(chunk_shape=(2, 3), codecs=[BIG])]
        )
    },
    "shard with a transposed index": {
        "serializer": ShardingCodec(
            chunk_shape=(2, 3), codecs=[BIG], index_codecs=[TransposeCodec(order=(2, 0, 1)), BIG]
        )
    },
    "format 2": {"zarr_format": 2},
}
VALUES = numbers((7, 9), "i4")
OTHER_PIPELINES = ["batched"] + ["fused"] * HAS_FUSED_PIPELINE


def created(store=None, **options):
    """A new array, as code without any knowledge of this package makes it."""
    options = {"shape": (7, 9), "chunks": (4, 6), "dtype": "i4", "compressors": None} | options
    return zarr.create_array(MemoryStore() if store is None else store, **options)


def printed(code, **variables):
    """What a process prints that has imported zarr alone."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import zarr\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestInstalled:
    def test_an_array_of_plain_bytes_has_it_with_nothing_imported_or_set(self):
        code = (
            "a = zarr.create_array({}, shape=3, dtype='i4', compressors=None); a[:] = 7;"
            "print(type(a._async_array.codec_pipeline).__name__, a[1])"
        )
        assert printed(code) == "BatchedBytesPipeline 7"

    @pytest.mark.parametrize("chain", PLAIN | SHARDS)
    def test_so_has_every_chain_of_transposes_and_bytes_new_and_opened(self, chain):
        store = MemoryStore()
        array = created(store, **(PLAIN | SHARDS)[chain])
        array[...] = VALUES
        opened = zarr.open_array(store)
        for found in (array, opened):
            assert type(pipeline_of(found)) is BatchedBytesPipeline
            codec = pipeline_of(found).array_bytes_codec
            assert isinstance(codec.codecs[-1] if chain in SHARDS else codec, BytesCodec)
            assert np.array_equal(found[2:6, ::4], VALUES[2:6, ::4])

    def test_it_is_zarrs_own_pipeline_with_its_fields(self):
        array = created(filters=[TRANSPOSED])
        with zarr.config.set(PIPELINE_OF_ZARR):
            plain = pipeline_of(created(filters=[TRANSPOSED]))
        found = pipeline_of(array)
        assert isinstance(found, BatchedCodecPipeline)
        assert [field.name for field in fields(found)] == [field.name for field in fields(plain)]
        for name in ("array_array_codecs", "array_bytes_codec", "bytes_bytes_codecs", "batch_size"):
            assert getattr(found, name) == getattr(plain, name)
        assert tuple(found) == tuple(plain)

    @pytest.mark.parametrize("chain", ["as zarr makes it", "behind a transpose", "shard"])
    def test_an_array_and_its_copies_keep_the_settings_that_it_was_created_with(
        self, chain, tmp_path
    ):
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            array = created(LocalStore(tmp_path), **(PLAIN | SHARDS)[chain])
        array[...] = expected = VALUES.copy()
        before = (tmp_path / "c/0/0").stat().st_ino
        for column, other in enumerate((array, pickle.loads(pickle.dumps(array)), deepcopy(array))):  # noqa: S301
            other[1, column] = expected[1, column] = -column
            assert pipeline_of(other) == pipeline_of(array)
            assert hash(pipeline_of(other)) == hash(pipeline_of(array))
        assert (tmp_path / "c/0/0").stat().st_ino == before
        assert np.array_equal(array[...], expected)


class TestOtherChains:
    @pytest.mark.parametrize("other", OTHER_PIPELINES)
    @pytest.mark.parametrize("chain", OTHER)
    def test_have_the_very_pipeline_that_zarr_would_give_them(self, chain, other):
        store = MemoryStore()
        with zarr.config.set({"zarr_bytes.other_chains": other}):
            new = pipeline_of(created(store, **OTHER[chain]))
            opened = pipeline_of(zarr.open_array(store))
        with zarr.config.set({"codec_pipeline.path": PIPELINES[f"{other.title()}CodecPipeline"]}):
            expected = pipeline_of(zarr.open_array(store))
        assert type(new) is type(opened) is type(expected)
        assert opened == expected

    @pytest.mark.parametrize("compressors", [[], [ZstdCodec()]])
    def test_have_the_size_of_batches_that_is_asked_for(self, compressors):
        pipeline = BatchedBytesPipeline.from_codecs([BytesCodec(), *compressors], batch_size=5)
        assert pipeline.batch_size == 5

    def test_a_name_that_is_none_of_them_is_an_error(self):
        expected = "zarr_bytes.other_chains is 'rust'; permitted with zarr .* are 'batched'"
        with (
            zarr.config.set({"zarr_bytes.other_chains": "rust"}),
            pytest.raises(ValueError, match=expected),
        ):
            created(compressors=ZstdCodec())


class TestWhatTheUserChooses:
    CODE = (
        "a = zarr.create_array({}, shape=3, dtype='i4', compressors=None);"
        "print(type(a._async_array.codec_pipeline).__module__)"
    )

    def test_wins_whether_zarrs_pipeline_or_zarrs_codec(self, tmp_path):
        """`test_installation` has the codec in the environment and in a file."""
        file, expected = tmp_path / "zarr.json", ZARRS_OWN.rpartition(".")[0]
        file.write_text(json.dumps({"codec_pipeline": {"path": ZARRS_OWN}}))
        for setting in (PIPELINE_OF_ZARR, {"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
            assert printed(f"zarr.config.set({setting!r}); {self.CODE}") == expected
        assert printed(self.CODE, ZARR_CODEC_PIPELINE__PATH=ZARRS_OWN) == expected
        assert printed(self.CODE, ZARR_CONFIG=str(file)) == expected


FIELDS = [field.name for field in fields(BatchedCodecPipeline)]
KNOWN = {
    name: getattr(BatchedCodecPipeline, name)
    for name in ("from_codecs", "evolve_from_array_spec", "read", "write")
}


def with_methods(names=FIELDS, **methods):
    """A class of a zarr to come: zarr's, with other methods; None takes one away."""
    kept = {name: method for name, method in (KNOWN | methods).items() if method is not None}
    return make_dataclass("Changed", names, namespace=kept)


async def with_another_parameter(self, batch_info, out, drop_axes=(), order=None):
    pass


async def with_another_result(self, batch_info, out, drop_axes=()) -> list[int]:
    pass


def not_awaited(self, batch_info, out, drop_axes=()):
    pass


def written_at_once(self, batch_info, value, drop_axes=()):
    pass


class TestAnUnknownZarr:
    @pytest.mark.parametrize(
        ("pipeline", "said"),
        [
            (BatchedCodecPipeline, None),
            (with_methods(), None),
            (with_methods(["codecs"]), "its fields are codecs"),
            (object, "its fields are none"),
            (with_methods(evolve_from_array_spec=None), "it has no `evolve_from_array_spec`"),
            (
                with_methods(read=with_another_parameter),
                "its `read` takes self, batch_info, out, drop_axes, order",
            ),
            (with_methods(read=not_awaited), "its `read` is not awaited"),
            (with_methods(read=with_another_result), "its `read` returns list[int]"),
            (
                with_methods(write=with_another_result),
                "its `write` takes self, batch_info, out, drop_axes",
            ),
            (with_methods(write=written_at_once), "its `write` is not awaited"),
            (
                with_methods(from_codecs=classmethod(lambda cls, codecs: None)),
                "its `from_codecs` takes codecs",
            ),
        ],
    )
    def test_what_is_not_known_of_its_class_is_named(self, pipeline, said):
        assert unknown_in_pipeline(pipeline) == said

    def test_then_its_own_pipeline_is_used_with_one_warning(self):
        code = """if True:
            import warnings
            from zarr.core.codec_pipeline import BatchedCodecPipeline as Its
            read = Its.read
            async def other(self, batch_info, out, drop_axes=(), order=None):
                return await read(self, batch_info, out, drop_axes)
            Its.read = other
            warnings.simplefilter("always")
            with warnings.catch_warnings(record=True) as caught:
                for _ in range(2):
                    store = zarr.storage.MemoryStore()
                    zarr.create_array(store, shape=3, dtype="i4", compressors=None)[:] = [7, 8, 9]
                    array = zarr.open_array(store)
            print(type(array._async_array.codec_pipeline) is Its, array[1])
            print(type(array.metadata.codecs[0]).__module__)
            said = [w for w in caught if "zarr-bytes" in str(w.message)]
            print(*[f"{w.filename}: {w.message}" for w in said], sep=chr(10))
        """
        first, second, warning = printed(code).splitlines()
        assert (first, second) == ("True 8", "zarr_bytes.codec")
        assert warning.startswith("<string>: zarr-bytes ")  # the line that has called zarr
        assert f"does not know the pipeline of zarr {zarr.__version__} (its `read` takes" in warning
