"""Which pipeline an array has: this package's by installing it, zarr's for every other chain."""

import pickle
import re
import subprocess
import sys
from copy import deepcopy
from dataclasses import fields, make_dataclass

import documents
import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from numcodecs import AsType, BitRound, Delta
from numcodecs.registry import codec_registry
from shards import sharding
from stored_arrays import IN_PLACE, numbers, pipeline_of
from zarr.codecs import BloscCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as of_numcodecs
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore, MemoryStore

import zarr_bytes
from zarr_bytes import BatchedBytesPipeline, BytesCodec, EndianCodec
from zarr_bytes.zarr_versions import why_pipeline_is_unknown

pytestmark = [
    pytest.mark.zarr,
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
]


class OwnAsType(of_numcodecs.AsType):
    """A codec that may decode in another way."""


class OwnFilter(AsType):
    """A filter that may decode in another way."""


PIPELINE_OF_ZARR = {"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}
TRANSPOSED = TransposeCodec(order=(1, 0))
FIELDS = [field.name for field in fields(BatchedCodecPipeline)]
BIG = zarr.codecs.BytesCodec(endian="big")


def shard(chunk_shape=(2, 3), codecs=(BIG,), **options):
    return {"serializer": ShardingCodec(chunk_shape=chunk_shape, codecs=codecs, **options)}


# By their names: classes of numcodecs warn with zarr 3.1 that they are not in the specification.
DELTA = {"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}
AS_TYPE = {
    "name": "numcodecs.astype",
    "configuration": {"encode_dtype": "<i8", "decode_dtype": "<i4"},
}
OWN = {
    "as zarr makes it": {},
    "this package's": {"serializer": BytesCodec(endian="big")},
    "the draft's": {"serializer": EndianCodec(endian="big")},
    "behind two transposes": {"filters": [TRANSPOSED, TRANSPOSED]},
    "shard": shard(),
    "shard of transposed chunks": shard(codecs=[TRANSPOSED, BIG], index_location="start"),
    "shard without a checksum": shard(index_codecs=[BIG]),
}
OTHER = {
    "compressor": {"compressors": ZstdCodec()},
    "checksum": {"compressors": Crc32cCodec()},
    "compressor behind a transpose": {"filters": [TRANSPOSED], "compressors": BloscCodec()},
    "shard of compressed chunks": shard(codecs=[BIG, ZstdCodec()]),
    "shard of shards": shard((2, 6), shard().values()),
    "shard with a transposed index": shard(index_codecs=[TransposeCodec(order=(2, 0, 1)), BIG]),
    "format 2 with a compressor": {"zarr_format": 2, "compressors": "auto"},
    "format 2 with a filter": {"zarr_format": 2, "filters": Delta("<i4")},
    "a codec of all elements before one": {"filters": [DELTA]},
}
# Codecs that decode each element by itself, which this package reads from zarr 3.3 on.
ELEMENTWISE_CODECS = {
    "elementwise codec": {"filters": [AS_TYPE]},
    "elementwise codec behind a transpose": {"filters": [TRANSPOSED, AS_TYPE]},
    "shard of elementwise codecs": {"serializer": sharding((2, 3), [AS_TYPE, *documents.BIG])},
    "format 2 with filters of elements": {
        "zarr_format": 2,
        "filters": [AsType("<f8", "<i4"), BitRound(52)],
    },
}
if not HAS_FUSED_PIPELINE:
    OTHER |= ELEMENTWISE_CODECS
VALUES = numbers((7, 9), "i4")


def created(store=None, **options):
    """A new array, as code without any knowledge of this package makes it."""
    options = {"shape": (7, 9), "chunks": (4, 6), "dtype": "i4", "compressors": None} | options
    return zarr.create_array(MemoryStore() if store is None else store, **options)


def test_an_uncompressed_array_has_the_pipeline_of_this_package():
    array = zarr.create_array(MemoryStore(), shape=(7, 9), dtype="i4", compressors=None)
    assert type(pipeline_of(array)) is BatchedBytesPipeline


@pytest.mark.parametrize("chain", OWN)
def test_chains_of_transpose_and_bytes_have_the_pipeline_of_this_package(chain, tmp_path):
    with zarr.config.set(IN_PLACE):
        array = created(LocalStore(tmp_path), **OWN[chain])
    array[...] = expected = VALUES.copy()
    opened = zarr.open_array(tmp_path)
    for found in (array, opened):
        assert type(pipeline_of(found)) is BatchedBytesPipeline
        codec = pipeline_of(found).array_bytes_codec
        assert isinstance(codec.codecs[-1] if "shard" in chain else codec, BytesCodec)
        assert np.array_equal(found[2:6, ::4], VALUES[2:6, ::4])
    before = (tmp_path / "c/0/0").stat().st_ino
    # Copies keep the settings that the array was created with.
    for column, other in enumerate((array, pickle.loads(pickle.dumps(array)), deepcopy(array))):  # noqa: S301
        other[1, column] = expected[1, column] = -column
        assert pipeline_of(other) == pipeline_of(array)
        assert hash(pipeline_of(other)) == hash(pipeline_of(array))
    assert (tmp_path / "c/0/0").stat().st_ino == before
    assert np.array_equal(opened[...], expected)


def test_uncompressed_arrays_of_format_2_have_the_pipeline_of_this_package(tmp_path):
    array = created(LocalStore(tmp_path), zarr_format=2)
    for found in array, zarr.open_array(tmp_path), pickle.loads(pickle.dumps(array)):  # noqa: S301
        assert type(pipeline_of(found)) is BatchedBytesPipeline
        with zarr.config.set(PIPELINE_OF_ZARR):
            plain = pipeline_of(zarr.open_array(tmp_path))
        assert pipeline_of(found).array_bytes_codec == plain.array_bytes_codec


@pytest.mark.newest
@pytest.mark.skipif(not HAS_FUSED_PIPELINE, reason="from zarr 3.3 on")
@pytest.mark.parametrize("chain", ELEMENTWISE_CODECS)
def test_codecs_that_decode_each_element_have_the_pipeline_of_this_package(chain, tmp_path):
    """With zarr's own codecs, so that equality and pickles are as before."""
    array = created(LocalStore(tmp_path), **ELEMENTWISE_CODECS[chain])
    for found in array, zarr.open_array(tmp_path), pickle.loads(pickle.dumps(array)):  # noqa: S301
        assert type(pipeline_of(found)) is BatchedBytesPipeline
        with zarr.config.set(PIPELINE_OF_ZARR):
            plain = pipeline_of(zarr.open_array(tmp_path))
        assert tuple(pipeline_of(found)) == tuple(plain)


def test_codecs_of_derived_classes_are_left_to_zarr():
    codec = OwnAsType(encode_dtype="<i8", decode_dtype="<i4")
    for array in (
        created(filters=[codec]),
        created(filters=OwnFilter("<i8", "<i4"), zarr_format=2),
    ):
        assert type(pipeline_of(array)) is BatchedCodecPipeline


def test_codecs_of_numcodecs_are_left_to_zarr_if_another_class_has_their_name(monkeypatch):
    monkeypatch.setitem(codec_registry, "astype", OwnFilter)
    (chain, *_) = ELEMENTWISE_CODECS.values()
    assert type(pipeline_of(created(**chain))) is BatchedCodecPipeline


def test_the_pipeline_has_the_class_and_the_fields_of_zarrs_batched_pipeline():
    found = pipeline_of(created(filters=[TRANSPOSED]))
    with zarr.config.set(PIPELINE_OF_ZARR):
        plain = pipeline_of(created(filters=[TRANSPOSED]))
    assert isinstance(found, BatchedCodecPipeline)
    assert [field.name for field in fields(found)] == FIELDS
    assert all(getattr(found, name) == getattr(plain, name) for name in FIELDS)
    assert tuple(found) == tuple(plain)


@pytest.mark.parametrize("other", ["batched"] + ["fused"] * HAS_FUSED_PIPELINE)
@pytest.mark.parametrize("chain", OTHER)
def test_other_chains_have_the_pipeline_that_zarr_gives_them(chain, other):
    store = MemoryStore()
    with zarr.config.set({"zarr_bytes.other_chains": other}):
        new = pipeline_of(created(store, **OTHER[chain]))
        opened = pipeline_of(zarr.open_array(store))
    with zarr.config.set({"codec_pipeline.path": PIPELINES[f"{other.title()}CodecPipeline"]}):
        expected = pipeline_of(zarr.open_array(store))
    assert type(new) is type(opened) is type(expected)
    assert opened == expected


@pytest.mark.parametrize("compressors", [[], [ZstdCodec()]])
def test_the_batch_size_of_a_pipeline_is_kept_for_other_chains_too(compressors):
    pipeline = BatchedBytesPipeline.from_codecs([BytesCodec(), *compressors], batch_size=5)
    assert pipeline.batch_size == 5


def test_zarrs_pipeline_or_codec_is_used_where_the_user_chooses_it():
    """`test_installation` has the choice by the environment and by a file."""
    for setting in PIPELINE_OF_ZARR, {"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}:
        store = MemoryStore()
        with zarr.config.set(setting):
            for array in created(store), zarr.open_array(store):
                array[...] = VALUES
                assert type(pipeline_of(array)) is BatchedCodecPipeline
            assert type(pipeline_of(created(zarr_format=2))) is BatchedCodecPipeline


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "BatchedBytesPipeline"])
def test_arrays_of_format_2_are_left_to_a_pipeline_of_zarr_that_the_user_chooses(tmp_path, name):
    """Its stored bytes and its error are zarr's."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[name], **IN_PLACE}):
        array = created(LocalStore(tmp_path), zarr_format=2, dtype=">i4", order="F")
    assert type(pipeline_of(array)).__name__ == name
    array[...] = VALUES
    chunk, path = np.zeros((4, 6), ">i4"), tmp_path / "1.1"
    chunk[:3, :3] = VALUES[4:, 6:]
    assert path.read_bytes() == chunk.tobytes("F")
    inode = path.stat().st_ino
    array[5, 7] = -1
    assert array[5:, 7].tolist() == [-1, VALUES[6, 7]]
    assert path.stat().st_ino != inode
    path.write_bytes(b"truncated")
    with pytest.raises(ValueError, match=r"must be (a )?divisor|reshape") as caught:
        array[5, 7]
    assert type(caught.value) is ValueError


TOO_EARLY = """if True:
    import importlib.metadata, os, site, sys
    real = importlib.metadata.entry_points
    importlib.metadata.entry_points = lambda **_: importlib.metadata.EntryPoints(())
    sys.prefix, site.PREFIXES = "/nowhere", []
    import zarr
    importlib.metadata.entry_points = real
    from zarr.registry import get_codec_class, get_pipeline_class

    def classes():
        found = get_codec_class("bytes"), get_codec_class("endian"), get_pipeline_class()
        return [f"{c.__module__}.{c.__qualname__}" for c in found]

    before = classes()
"""
"""A process that imports zarr where this package is not installed yet."""


def test_importing_registers_what_zarr_did_not_find_and_chooses_nothing():
    code = f"""{TOO_EARLY}
    import logging
    logging.disable()
    import zarr_bytes
    print(classes() == before)
    own = zarr_bytes.settings.CLASSES
    zarr.config.set({{"codecs": own, "codec_pipeline.path": zarr_bytes.settings.PIPELINE}})
    print(*classes())
    zarr.registry._collect_entrypoints()  # of a process that finds them later
    print(*classes())
    """
    command = [sys.executable, "-W", "error", "-c", code]
    printed = subprocess.check_output(command, text=True, env={}).splitlines()
    classes = "zarr_bytes.codec.BytesCodec zarr_bytes.codec.EndianCodec"
    assert printed == ["True", *[f"{classes} zarr_bytes.BatchedBytesPipeline"] * 2]


@pytest.mark.parametrize(
    ("is_there", "said"),
    [
        (True, "restart Python: zarr read its configuration before zarr-bytes was installed"),
        (False, "the configuration file zarr-bytes.yaml is not where zarr looks for it"),
    ],
)
def test_the_notice_says_restart_where_zarr_would_find_the_file_now(tmp_path, is_there, said):
    code = f"""{TOO_EARLY}
    if {is_there}:
        open(os.environ["ZARR_CONFIG"] + "/zarr-bytes.yaml", "w").close()
    import zarr_bytes
    """
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"ZARR_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stderr.startswith(f"zarr-bytes is installed and zarr does not use it: {said}.\n")
    line = 'zarr.config.set({"codecs.bytes": "zarr_bytes.codec.BytesCodec", "codec_pipeline.path": '
    assert f'{line}"zarr_bytes.BatchedBytesPipeline"}})\n' in run.stderr
    assert ("ZARR_CODECS__BYTES=" in run.stderr) is not is_there


@pytest.fixture
def sharding_1_1(monkeypatch):
    """As of a zarr whose own pipeline has shards that inner chunks need not divide: what it wrote.

    zarr-python pull request 4198. It is known by what its sharding codec permits.
    """
    created()  # the pipeline of today's zarr is known
    written = {}

    async def write(self, batch_info, value, drop_axes=()):
        for path, spec, selection, out, _ in batch_info:
            dtype = spec.dtype.to_native_dtype()
            chunk = written.setdefault(str(path), np.zeros(spec.shape, dtype))
            chunk[selection] = value.as_ndarray_like()[out]

    async def read(self, batch_info, out, drop_axes=()):
        for path, _, selection, place, _ in batch_info:
            out.as_ndarray_like()[place] = written[str(path)][selection]
        return [{"status": "present"} for _ in batch_info]

    monkeypatch.setattr(ShardingCodec, "validate", lambda self, **_: None)
    for method in read, write:
        monkeypatch.setattr(BatchedCodecPipeline, method.__name__, method)
    return written


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
def test_shards_that_inner_chunks_do_not_divide_are_left_to_a_zarr_that_has_them(
    tmp_path, sharding_1_1, filters, in_place
):
    """The inner chunks divide one axis of the shard, or the other where it is transposed."""
    with zarr.config.set({"zarr_bytes.partial_writes": in_place}):
        created(LocalStore(tmp_path), filters=filters, **shard((4, 5)))
        array = zarr.open_array(tmp_path)
    with zarr_bytes.counting() as counted:
        array[...] = VALUES
        array[1:3, 4] = [-1, -2]
        expected = VALUES.copy()
        expected[1:3, 4] = [-1, -2]
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array.oindex[[0, 6], 3:8], expected[[0, 6], 3:8])
    assert (len(sharding_1_1), counted.chunks) == (4, 0)
    reason = r"inner chunks of the shape \(4, 5\) do not divide shards, which have the shape "
    with pytest.raises(zarr_bytes.StoreError, match=reason):
        zarr_bytes.view(array)
    explained = zarr_bytes.explain(array, 0)
    assert re.match(reason, explained.reason)
    assert "inner chunk lengths that divide the shard lengths" in explained.remedy
    assert (explained.is_partial, explained.bytes_fetched) == (False, None)
    (tmp_path / "c/0").mkdir(parents=True)
    (tmp_path / "c/0/0").write_bytes(b"of inner chunks of several sizes")
    report = zarr_bytes.check(tmp_path)
    (node,) = report
    assert (node.findings, node.not_checked) == ([], "inner chunks do not divide shards")


METHODS = ("from_codecs", "evolve_from_array_spec", "read", "write")


def pipeline_with(names=FIELDS, **methods):
    """A class of a zarr to come: zarr's, with other methods; None takes one away."""
    kept = {name: getattr(BatchedCodecPipeline, name) for name in METHODS} | methods
    kept = {name: method for name, method in kept.items() if method is not None}
    return make_dataclass("Changed", names, namespace=kept) if names else object


async def of_more(self, batch_info, out, drop_axes=(), order=None):
    pass


async def with_a_result(self, batch_info, out, drop_axes=()) -> list[int]:
    pass


def test_an_unknown_signature_of_zarrs_pipeline_is_named():
    for changes, said in (
        ({}, None),
        ({"names": None}, "its fields are none"),
        ({"names": [*FIELDS, "more"]}, f"its fields are {', '.join(FIELDS)}, more"),
        ({"evolve_from_array_spec": None}, "it has no `evolve_from_array_spec`"),
        (
            {"from_codecs": with_a_result},
            "its `from_codecs` takes self, batch_info, out, drop_axes",
        ),
        ({"read": of_more}, "its `read` takes self, batch_info, out, drop_axes, order"),
        ({"read": with_a_result}, "its `read` returns list[int]"),
        ({"read": lambda self, batch_info, out, drop_axes: ()}, "its `read` is not awaited"),
        ({"write": with_a_result}, "its `write` takes self, batch_info, out, drop_axes"),
        ({"write": lambda self, batch_info, value, drop_axes: ()}, "its `write` is not awaited"),
    ):
        assert why_pipeline_is_unknown(pipeline_with(**changes)) == said


def test_zarrs_pipeline_of_an_unknown_signature_is_used_with_one_warning():
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
    command = [sys.executable, "-W", "error", "-c", f"import zarr\n{code}"]
    printed = subprocess.check_output(command, text=True, env={})
    first, second, warning = printed.splitlines()
    assert (first, second) == ("True 8", "zarr_bytes.codec")
    assert warning.startswith("<string>: zarr-bytes ")  # the line that has called zarr
    assert f"does not know the pipeline of zarr {zarr.__version__} (its `read` takes" in warning
