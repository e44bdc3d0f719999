"""Which pipeline an array has: this package's by installing it, zarr's for every other chain."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
from dataclasses import fields, make_dataclass, replace

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import fuzz, same, values_of
from fuzz_arrays import arrays, reads, writes
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import CountingStore, contents_of, numbers, pipeline_of
from zarr.codecs import (
    BloscCodec,
    Crc32cCodec,
    ShardingCodec,
    TransposeCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BatchedBytesPipeline, BytesCodec, EndianCodec
from zarr_bytes.zarr_versions import unknown_in_pipeline

NAME = "zarr_bytes.BatchedBytesPipeline"
ZARRS_OWN = PIPELINES["BatchedCodecPipeline"]
TRANSPOSED = TransposeCodec(order=(1, 0))
BIG = zarr.codecs.BytesCodec(endian="big")
PLAIN = {
    "as zarr makes it": {},
    "zarr's own codec": {"serializer": BIG},
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
        with zarr.config.set({"codec_pipeline.path": ZARRS_OWN}):
            plain = pipeline_of(created(filters=[TRANSPOSED]))
        found = pipeline_of(array)
        assert isinstance(found, BatchedCodecPipeline)
        assert [field.name for field in fields(found)] == [field.name for field in fields(plain)]
        for name in ("array_array_codecs", "array_bytes_codec", "bytes_bytes_codecs", "batch_size"):
            assert getattr(found, name) == getattr(plain, name)
        assert tuple(found) == tuple(plain)

    def test_a_row_of_a_new_array_costs_its_bytes(self):
        store = CountingStore(MemoryStore())
        array = created(store, shape=(200, 1000), chunks=(200, 1000))
        array[...] = values = numbers((200, 1000), "i4")
        store.requests.clear()
        assert np.array_equal(array[7], values[7])
        assert store.counted() == (1, 4000)

    @pytest.mark.parametrize("chain", PLAIN | SHARDS)
    def test_an_array_and_its_pickle_keep_the_settings_that_it_was_created_with(
        self, chain, tmp_path
    ):
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            array = created(LocalStore(tmp_path), **(PLAIN | SHARDS)[chain])
        array[...] = expected = VALUES.copy()
        chunk = tmp_path / "c/0/0"
        before = chunk.stat().st_ino
        array[1, 2] = expected[1, 2] = -1
        other = pickle.loads(pickle.dumps(array))  # noqa: S301
        other[3, 4] = expected[3, 4] = -2
        assert chunk.stat().st_ino == before
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

    def test_an_array_without_the_codec_loads_where_the_package_is_not_installed(self):
        array = created(dtype="str", serializer=VLenUTF8Codec(), compressors=ZstdCodec())
        assert b"zarr_bytes" not in pickle.dumps(array)

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

    @pytest.mark.parametrize(
        ("key", "value"),
        [("codec_pipeline.path", ZARRS_OWN), ("codecs.bytes", "zarr.codecs.bytes.BytesCodec")],
    )
    def test_wins_whether_zarrs_pipeline_or_zarrs_codec(self, key, value, tmp_path):
        section, _, name = key.partition(".")
        variable = f"ZARR_{section}__{name}".upper()
        file = tmp_path / "zarr.json"
        file.write_text(json.dumps({section: {name: value}}))
        expected = ZARRS_OWN.rpartition(".")[0]
        assert printed(f"zarr.config.set({{{key!r}: {value!r}}}); {self.CODE}") == expected
        assert printed(self.CODE, **{variable: value}) == expected
        assert printed(self.CODE, ZARR_CONFIG=str(file)) == expected


class TestInOtherProcesses:
    @pytest.mark.parametrize("is_in_place", [False, True])
    @pytest.mark.parametrize("again", [lambda a: pickle.loads(pickle.dumps(a)), copy.deepcopy])  # noqa: S301
    def test_an_array_has_its_pipeline_again(self, tmp_path, again, is_in_place):
        with zarr.config.set({"zarr_bytes.partial_writes": is_in_place}):
            array = created(LocalStore(tmp_path), filters=[TRANSPOSED])
        array[...] = VALUES
        found = again(array)
        assert pipeline_of(found) == pipeline_of(array)
        assert hash(pipeline_of(found)) == hash(pipeline_of(array))
        assert np.array_equal(found[2:, 1], VALUES[2:, 1])

    def test_an_array_has_zarrs_pipeline_where_that_is_configured(self, tmp_path):
        array = created(LocalStore(tmp_path), filters=[TRANSPOSED])
        array[...] = VALUES
        with zarr.config.set({"codec_pipeline.path": ZARRS_OWN}):
            found = pickle.loads(pickle.dumps(array))  # noqa: S301
        assert type(pipeline_of(found)) is BatchedCodecPipeline
        assert np.array_equal(found[2:, 1], VALUES[2:, 1])

    def test_an_array_that_is_written_in_place_keeps_its_pipeline_whatever_is_configured(
        self, tmp_path
    ):
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            array = created(LocalStore(tmp_path))
        with zarr.config.set({"codec_pipeline.path": ZARRS_OWN}):
            found = pickle.loads(pickle.dumps(array))  # noqa: S301
        assert type(pipeline_of(found)) is BatchedBytesPipeline
        assert pipeline_of(found).in_place

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    @pytest.mark.parametrize("start", multiprocessing.get_all_start_methods())
    def test_processes_read_and_write_the_array_that_is_sent_to_them(self, tmp_path, start):
        array = created(LocalStore(tmp_path))
        with multiprocessing.get_context(start).Pool(2) as pool:
            pool.starmap(_write_row, [(array, row) for row in range(0, 7, 4)])
            assert pool.starmap(_sum_of, [(array, 0), (array, 4)]) == [0, 36]


def _write_row(array, row):
    array[row] = row


def _sum_of(array, row):
    return int(array[row].sum())


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


PLAIN_ZARR = {"codecs.bytes": "zarr.codecs.bytes.BytesCodec", "codec_pipeline.path": ZARRS_OWN}


# Zarr compares chunks with the fill value, and NumPy warns where a NaN is a signalling one.
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@fuzz(examples=40)
@given(data=st.data())
def test_new_and_opened_arrays_hold_what_plain_zarr_makes_of_them(tmp_path_factory, data):
    name = data.draw(st.sampled_from(["bool", "uint8", "int16", "float32", "complex128"]))
    example = replace(data.draw(arrays()), name=name)
    write_empty = data.draw(st.booleans())
    options = {
        "shape": example.shape,
        "chunks": example.chunk_shape,
        "dtype": name,
        "filters": [TransposeCodec(order=order) for order in example.orders],
        "serializer": zarr.codecs.BytesCodec(endian=example.endian),
        "config": {"write_empty_chunks": write_empty},
    }
    kind = data.draw(
        st.sampled_from([MemoryStore, lambda: LocalStore(tmp_path_factory.mktemp("a"))])
    )
    with zarr.config.set(PLAIN_ZARR):
        plain = created(MemoryStore(), **options)
    # In place, a chunk that becomes empty stays.
    in_place = write_empty and data.draw(st.booleans())
    with zarr.config.set(
        {"zarr_bytes.partial_writes": in_place, "array.write_empty_chunks": write_empty}
    ):
        array = created(kind(), **options)
        for step in range(4):
            if data.draw(st.booleans()):
                array = zarr.open_array(array.store, mode="r+")
            write, where = data.draw(writes(example.shape))
            shape = np.shape(np.zeros(example.shape)[where])
            part = values_of(name, shape, example.seed + step)
            write(plain, part)
            write(array, part)
            read, _ = data.draw(reads(example.shape, example.chunk_shape))
            same(read(array), read(plain))
    assert contents_of(array.store) == contents_of(plain.store)
