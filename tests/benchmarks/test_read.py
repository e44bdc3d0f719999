"""Speed of reading from local disk, against zarr's own codec, zarrs and TensorStore.

    pytest tests/benchmarks/test_read.py

Two chunks of 125 MiB of float64, page cache warm. All contenders run in turn in one process; the
table at the end gives medians, and the ratio of this codec's to each. Every read is made with the
pipeline that is chosen by installing, and with each pipeline of zarr.
"""

from functools import partial

import numpy as np
import pytest
import zarr
from benchmark import compare
from zarr.core import codec_pipeline

from zarr_bytes.indexing.plan import plan_of
from zarr_bytes.io.files import open_chunk
from zarr_bytes.layout.format import Format
from zarr_bytes.read import read_file
from zarr_bytes.settings import Cost

zarrs = pytest.importorskip("zarrs", reason="the peer zarrs is not installed (extra benchmark)")
tensorstore = pytest.importorskip("tensorstore", reason="the peer tensorstore is not installed")

SHAPE = (36, 1000, 910)  # 2 chunks of 18 x 1000 x 910 float64, 125 MiB each
CHUNKS = (18, 1000, 910)
ENDIANS = ("little", "big")
PIPELINES = {
    "BatchedBytesPipeline": "zarr_bytes.BatchedBytesPipeline",
    **{
        name: f"zarr.core.codec_pipeline.{name}"
        for name in ("BatchedCodecPipeline", "FusedCodecPipeline")
        if hasattr(codec_pipeline, name)
    },
}
"""By name, what chooses each; with zarr's own codec the first leaves arrays to the second."""
SELECTIONS = {
    "whole array": ...,
    "plane": np.s_[7],
    "row": np.s_[7, 500],
    "box": np.s_[5:10, 200:300, 400:500],
    "point": np.s_[7, 500, 300],
    "column": np.s_[:, 500, 300],
    "last axis": np.s_[:, :, 300],
    "stepped": np.s_[::3, ::7, ::5],
    "orthogonal": (np.arange(0, 36, 5), np.arange(0, 1000, 90), np.arange(0, 910, 100)),
}


@pytest.fixture(scope="module", params=ENDIANS)
def stored(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    values = np.random.default_rng(0).random(SHAPE)
    zarr.create_array(
        path,
        data=values,
        chunks=CHUNKS,
        compressors=None,
        serializer={"name": "bytes", "configuration": {"endian": request.param}},
    )
    return path, values


def opened(path, pipeline, codec="zarr_bytes.codec.BytesCodec"):
    with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
        return zarr.open_array(path, mode="r")


def select(array, selection):
    if isinstance(selection, tuple) and isinstance(selection[0], np.ndarray):
        return array.oindex[selection]
    return array[selection]


def read_tensorstore(array, selection):
    if isinstance(selection, tuple) and isinstance(selection[0], np.ndarray):
        return array.oindex[selection].read().result()
    return array[selection].read().result()


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", SELECTIONS)
def test_read(benchmark, stored, name, pipeline):
    path, values = stored
    selection = SELECTIONS[name]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    limited = {"cache_pool": {"total_bytes_limit": 0}}  # read the file each time, as the others do
    theirs = tensorstore.open(spec, open=True, context=tensorstore.Context(limited)).result()
    ours = PIPELINES[pipeline]
    contenders = {
        "ours": partial(select, opened(path, ours), selection),
        "zarr": partial(select, opened(path, ours, "zarr.codecs.bytes.BytesCodec"), selection),
        "zarrs": partial(select, opened(path, "zarrs.ZarrsCodecPipeline"), selection),
        "tensorstore": partial(read_tensorstore, theirs, selection),
    }
    expected = select_numpy(values, selection)
    for contender in contenders.values():
        assert np.array_equal(contender(), expected)
    compare(benchmark, contenders.pop("ours"), **contenders)


def select_numpy(values, selection):
    if isinstance(selection, tuple) and isinstance(selection[0], np.ndarray):
        return values[np.ix_(*selection)]
    return values[selection]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("endian", ENDIANS)
def test_many_small_chunks(benchmark, tmp_path, endian, pipeline):
    """1,024 chunks of 256 bytes."""
    codec = {"name": "bytes", "configuration": {"endian": endian}}
    values = np.arange(1024 * 32, dtype="f8").reshape(1024, 32)
    zarr.create_array(tmp_path, data=values, chunks=(1, 32), compressors=None, serializer=codec)
    path = PIPELINES[pipeline]
    ours, theirs = opened(tmp_path, path), opened(tmp_path, path, "zarr.codecs.bytes.BytesCodec")
    assert np.array_equal(ours[...], values)
    compare(benchmark, partial(select, ours, ...), zarr=partial(select, theirs, ...))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_box_of_a_growing_chunk(benchmark, tmp_path, pipeline):
    """10 x 10 x 10 elements, of one chunk of 16 MiB, 256 MiB and 4 GiB (sparse files)."""
    reads = {}
    for mebibytes in (16, 256, 4096):
        shape = (mebibytes, 256, 512)
        path = tmp_path / str(mebibytes)
        codec = {"name": "bytes", "configuration": {"endian": "big"}}
        zarr.create_array(
            path, shape=shape, chunks=shape, dtype="f8", compressors=None, serializer=codec
        )
        chunk = path / "c/0/0/0"
        chunk.parent.mkdir(parents=True)
        with chunk.open("wb") as file:
            file.truncate(mebibytes * 2**20)
        array = opened(path, PIPELINES[pipeline])
        reads[f"{mebibytes} MiB"] = partial(select, array, np.s_[3:13, 100:110, 200:210])
    compare(benchmark, reads.pop("16 MiB"), **reads)


@pytest.mark.parametrize("kibibytes", [4, 8, 16, 32, 64, 128])
def test_the_gap_worth_bridging(benchmark, tmp_path, kibibytes):
    """400 runs of 512 bytes in a local file: each on its own, and all in one with the gaps."""
    distance = kibibytes * 2**10 + 512
    path = tmp_path / "chunk"
    path.write_bytes(bytes(500 * distance))
    chunks = Format((500, distance), np.dtype("u1"), None, None, None, bytes(1))
    out = np.empty((400, 512), "u1")

    def read(gap):
        plan = plan_of(chunks, (slice(0, 400), slice(0, 512)), Cost(gap, 2**30))
        with open_chunk(str(path), str(tmp_path), waits=True) as file:
            read_file(plan, file, out)

    compare(benchmark, partial(read, 0), bridged=partial(read, distance))
