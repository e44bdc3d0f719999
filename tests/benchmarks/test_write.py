"""Speed of writing to local disk, against zarr's own codec, zarrs, TensorStore and numpy.memmap.

    pytest tests/benchmarks/test_write.py

Two chunks of 125 MiB of float64, page cache warm, with `zarr_bytes.partial_writes`. All contenders
run in one process, each in an array of its own; the tables at the end give medians, the ratio of
this codec's to each, and the bars that are to hold. "memmap" is the assignment to an open
`numpy.memmap` of the whole array.

Selections are written by each contender in a loop of its own, which the bars are held to, and by
all of them in turn, below that. What has been written is on the disk before each loop, and before
each turn: a small write would else wait for the 250 MiB of a peer that the system is storing.
"""

import os
import shutil
from functools import partial

import numpy as np
import pytest
import zarr
from benchmark import alone, bar, compare
from zarr.core import codec_pipeline

zarrs = pytest.importorskip("zarrs", reason="the peer zarrs is not installed (extra benchmark)")
tensorstore = pytest.importorskip("tensorstore", reason="the peer tensorstore is not installed")

MEBIBYTE = 2**20
SHAPE = (36, 1000, 910)  # 2 chunks of 18 x 1000 x 910 float64, 125 MiB each
CHUNKS = (18, 1000, 910)
ENDIANS = ("little", "big")
ZARRS_PIPELINES = [
    name for name in ("BatchedCodecPipeline", "FusedCodecPipeline") if hasattr(codec_pipeline, name)
]
OWN = ["BatchedBytesPipeline"]
PIPELINES = [*OWN, *ZARRS_PIPELINES]
"""By name; with zarr's own codec the first leaves arrays to the second."""
PEERS = ("zarr", "zarrs", "tensorstore")
SELECTIONS = {
    "row": np.s_[7, 500],
    "plane": np.s_[7],
    "column": np.s_[:, 500, 300],
    "box": np.s_[5:10, 200:300, 400:500],
    "point": np.s_[7, 500, 300],
    "stepped": np.s_[::3, ::7, ::5],
}
# How many times faster than each peer the write is to be.
TIMES_FASTER = {"row": 100, "box": 100, "point": 100, "plane": 40, "stepped": 20, "column": 20}
OURS, ZARR = "zarr_bytes.codec.BytesCodec", "zarr.codecs.bytes.BytesCodec"


def settings(pipeline, codec=OURS, *, partial_writes=True):
    module = "zarr.core.codec_pipeline" if pipeline in ZARRS_PIPELINES else "zarr_bytes"
    path = pipeline if "." in pipeline else f"{module}.{pipeline}"
    return zarr.config.set(
        {
            "codecs.bytes": codec,
            "codec_pipeline.path": path,
            "zarr_bytes.partial_writes": partial_writes,
        }
    )


def created(path, endian="little", **options):
    options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": "f8", **options}
    serializer = {"name": "bytes", "configuration": {"endian": endian}}
    zarr.create_array(path, compressors=None, serializer=serializer, **options)
    return path


def opened(path, pipeline, codec=OURS, *, partial_writes=True):
    with settings(pipeline, codec, partial_writes=partial_writes):
        return zarr.open_array(path, mode="r+")


def opened_by_all(paths, pipeline):
    """The array of each contender, in its own folder."""
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(paths["tensorstore"])}}
    limited = {"cache_pool": {"total_bytes_limit": 0}}  # nothing is kept, as with the others
    return {
        "ours": opened(paths["ours"], pipeline),
        "zarr": opened(paths["zarr"], pipeline, ZARR),
        # What zarrs does not write itself goes to zarr's pipeline: with zarr's codec, not ours.
        "zarrs": opened(paths["zarrs"], "zarrs.ZarrsCodecPipeline", ZARR),
        "tensorstore": tensorstore.open(
            spec, open=True, context=tensorstore.Context(limited)
        ).result(),
    }


def write(array, selection, values):
    if isinstance(array, tensorstore.TensorStore):
        array[selection].write(values).result()
    else:
        array[selection] = values


@pytest.fixture(scope="module", params=ENDIANS)
def stored(request, tmp_path_factory):
    """The same array in a folder for each contender, and as one file for the memmap."""
    folder, endian = tmp_path_factory.mktemp(request.param), request.param
    values = np.random.default_rng(0).random(SHAPE)
    paths = {name: created(folder / name, endian) for name in ("ours", *PEERS)}
    for path in paths.values():
        zarr.open_array(path, mode="r+")[...] = values
    mapped = np.memmap(folder / "memmap", np.dtype("f8").newbyteorder(endian), "w+", shape=SHAPE)
    mapped[...] = values
    yield paths, mapped, values
    for name, path in paths.items():
        assert np.array_equal(zarr.open_array(path, mode="r")[...], values), name
    del mapped
    shutil.rmtree(folder)


def to_disk(paths, mapped):
    """Have the system store what has been written to the chunks of all contenders."""
    chunks = [chunk for path in paths.values() for chunk in path.glob("c/*/*/*")]
    for path in (*chunks, mapped.filename):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)


@pytest.fixture
def folder(tmp_path):
    """A folder whose files are gone at once: pytest would keep those of three runs."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("pipeline", OWN)
@pytest.mark.parametrize("name", SELECTIONS)
def test_write_selection(benchmark, stored, name, pipeline):
    paths, mapped, expected = stored
    selection = SELECTIONS[name]
    values = np.random.default_rng(1).random(expected[selection].shape)
    contenders = {**opened_by_all(paths, pipeline), "memmap": mapped}
    writes = {
        contender: partial(write, array, selection, values)
        for contender, array in contenders.items()
    }
    ours, setup = writes.pop("ours"), partial(to_disk, paths, mapped)
    medians = alone(benchmark, ours, setup, **writes)
    compare(benchmark, ours, rounds=3, warm_up=0, setup=setup, figure="in turn", **writes)
    expected[selection] = values
    times = TIMES_FASTER[name]
    for peer in PEERS:
        bar(benchmark, f"{name}: at most 1/{times} of {peer}", medians[peer] / times)


@pytest.mark.parametrize("pipeline", OWN)
def test_write_a_row_as_into_a_memmap(benchmark, stored, pipeline):
    paths, mapped, expected = stored
    row, values = SELECTIONS["row"], expected[SELECTIONS["row"]].copy()
    medians = compare(
        benchmark,
        partial(write, opened(paths["ours"], pipeline), row, values),
        memmap=partial(write, mapped, row, values),
        rounds=200,
    )
    bar(benchmark, "row: at most 3 x memmap + 0.5 ms", 3 * medians["memmap"] + 0.5e-3)


@pytest.mark.parametrize("pipeline", OWN)
def test_first_row_of_a_new_gibibyte(benchmark, folder, pipeline):
    shape = (16384, 8192)  # rows of 64 KiB
    paths = {name: created(folder / name, shape=shape, chunks=shape) for name in ("ours", *PEERS)}
    arrays, row = opened_by_all(paths, pipeline), np.ones(shape[1])
    chunks = {name: path / "c/0/0" for name, path in paths.items()}

    def remove():
        for chunk in chunks.values():
            chunk.unlink(missing_ok=True)

    writes = {name: partial(write, array, 7, row) for name, array in arrays.items()}
    compare(benchmark, writes.pop("ours"), rounds=2, warm_up=0, setup=remove, **writes)
    bar(benchmark, "first row of a new GiB: at most 10 ms", 10e-3)
    remove()
    for array in arrays.values():
        write(array, 7, row)
    disk = {name: chunk.stat().st_blocks * 512 for name, chunk in chunks.items()}
    benchmark.extra_info["disk"] = disk
    bar(benchmark, "first row of a new GiB: 1 MiB of disk", MEBIBYTE, disk["ours"], "bytes")


@pytest.mark.parametrize("pipeline", OWN)
@pytest.mark.parametrize("endian", ENDIANS)
def test_column_of_a_million_rows(benchmark, folder, endian, pipeline):
    """A million runs of 8 bytes, in one chunk of 122 MiB."""
    shape = (10**6, 16)
    paths = {
        name: created(folder / name, endian, shape=shape, chunks=shape) for name in ("ours", *PEERS)
    }
    values = np.random.default_rng(0).random(shape)
    for path in paths.values():
        zarr.open_array(path, mode="r+")[...] = values
    column = values[:, 5].copy()
    writes = {
        name: partial(write, array, np.s_[:, 5], column)
        for name, array in opened_by_all(paths, pipeline).items()
    }
    medians = compare(benchmark, writes.pop("ours"), rounds=3, warm_up=1, **writes)
    assert np.array_equal(zarr.open_array(paths["ours"], mode="r")[...], values)
    limit = 1.5 * medians["zarr"]
    bar(benchmark, "column of a million rows: at most 1.5 x the whole chunk", limit)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("endian", ENDIANS)
def test_write_whole_chunks(benchmark, folder, endian, pipeline):
    """With the setting, without it, and with zarr's own codec."""
    shape, chunks = (8, 1000, 910), (4, 1000, 910)
    values = np.random.default_rng(0).random(shape)

    def array(name, *arguments, **options):
        path = created(folder / name, endian, shape=shape, chunks=chunks)
        return opened(path, pipeline, *arguments, **options)

    medians = compare(
        benchmark,
        partial(write, array("ours"), ..., values),
        off=partial(write, array("off", partial_writes=False), ..., values),
        zarr=partial(write, array("zarr", ZARR), ..., values),
        rounds=9,
    )
    bar(benchmark, "whole chunks: within 5 % of the setting off", 1.05 * medians["off"])


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("endian", ENDIANS)
def test_write_a_row_with_the_setting_off(benchmark, folder, endian, pipeline):
    """As zarr's own codec, which reads the chunk and writes it again."""
    shape = (4, 1000, 910)
    values = np.random.default_rng(0).random(shape)

    def array(name, *arguments, **options):
        path = created(folder / name, endian, shape=shape, chunks=shape)
        zarr.open_array(path, mode="r+")[...] = values
        return opened(path, pipeline, *arguments, **options)

    row = SELECTIONS["row"][1:]
    medians = compare(
        benchmark,
        partial(write, array("off", partial_writes=False), (2, *row), values[0, 0]),
        zarr=partial(write, array("zarr", ZARR), (2, *row), values[0, 0]),
        rounds=9,
    )
    bar(benchmark, "a row, the setting off: within 5 % of zarr", 1.05 * medians["zarr"])
