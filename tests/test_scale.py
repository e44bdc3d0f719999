"""What a read costs does not depend on the size of the chunk."""

import json
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest
import zarr
from fuzz import document_of
from stored_arrays import most_memory, spec_of
from zarr.storage import LocalStore, StorePath

from zarr_bytes import BytesCodec

MEBIBYTE = 2**20

# Peak memory of a process before and after it has read 1 MiB out of a chunk of 1 GiB.
READ = """
import resource, sys
import numpy, zarr, zarr_bytes

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

array = zarr.open_array(sys.argv[1], mode="r")
array[0, 0]  # what the first read imports
before = peak()
for selection in numpy.s_[5], numpy.s_[:128, 100:1124], numpy.s_[:, 7:135]:
    part = array[selection]
    assert part.nbytes == 2**20, part.nbytes
print(peak() - before)
"""


@pytest.mark.slow
def test_reading_1_mib_of_1_gib_takes_less_than_16_mib_of_memory(tmp_path):
    document = document_of("float64", [1024, 131072], [1024, 131072], "big")
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    chunk = tmp_path / "c/0/0"
    chunk.parent.mkdir(parents=True)
    with chunk.open("wb") as file:
        file.truncate(1024 * MEBIBYTE)  # sparse
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16 * MEBIBYTE


SCATTERED = np.random.default_rng(0).integers(0, 400 * 10**6, 20_000)


@pytest.mark.parametrize(
    ("shape", "selection"),
    [
        ((400 * 10**6,), (SCATTERED,)),
        ((20_000, 20_000), np.ix_(np.arange(0, 20_000, 9), np.arange(0, 20_000, 1999))),
        ((400 * 10**6,), (slice(None, None, 20_000),)),
    ],
    ids=["points", "grid", "stepped"],
)
def test_gaps_take_no_memory_of_their_own_accord(tmp_path, shape, selection):
    """Scattered bytes of a chunk of 400 MB: the result and 64 MiB."""
    result, peak = read_sparse_chunk(tmp_path, shape, selection)
    assert result.size in (SCATTERED.size, 2223 * 11)
    assert not result.any()
    assert peak < result.nbytes + 64 * MEBIBYTE


@pytest.mark.slow
def test_indices_one_by_one_take_their_result_once(tmp_path):
    """The result, the indices and 64 MiB; results have 80 to 320 MB."""
    rows, columns = np.random.default_rng(0).permutation(20_000), np.arange(8_000)
    selections = {
        "rows": (np.arange(20_000), slice(None)),
        "any order": (rows, slice(None)),
        "repeated": (np.repeat(rows, 2), slice(4_000)),
        "grid": np.ix_(rows, columns[::-1]),
        "columns": (slice(None), columns[::-1]),
        "mask": (rows % 2 == 0, slice(None)),
    }
    for name, selection in selections.items():
        result, peak = read_sparse_chunk(tmp_path / name, (20_000, 8_000), selection)
        assert not result.any()
        assert (name, peak) < (name, result.nbytes + 64 * MEBIBYTE)


def read_sparse_chunk(folder, shape, selection):
    """Elements of a chunk of zeros, each a byte, and the peak of the memory that reading takes."""
    store = LocalStore(folder)
    options = {"shape": shape, "chunks": shape, "dtype": "u1", "fill_value": 1}
    array = zarr.create_array(store, compressors=None, serializer=BytesCodec(), **options)
    chunk = folder.joinpath("c", *("0" for _ in shape))
    chunk.parent.mkdir(parents=True)
    with chunk.open("wb") as file:
        file.truncate(prod(shape))  # sparse
    getter = StorePath(store, chunk.relative_to(folder).as_posix())
    (codec,), spec = array.metadata.codecs, spec_of(array)
    return most_memory(lambda: codec._decode_partial_sync(getter, selection, spec).as_numpy_array())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what dask and its servers warn of
def test_four_dask_workers_read_one_huge_chunk_once(tmp_path):
    dask_array = pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    if not Path("/proc/self/io").exists():
        pytest.skip("this system does not count the bytes that a process reads")

    def bytes_read():  # in here, so that it is sent to the workers as it is
        """Bytes that a process has read so far, from files or from their cache."""
        counters = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in counters)["rchar"])

    values = np.arange(32 * MEBIBYTE // 8, dtype="f8").reshape(64, -1)
    zarr.create_array(
        tmp_path, data=values, chunks=values.shape, compressors=None, serializer=BytesCodec()
    )
    blocks = (8, values.shape[1] // 2)  # 16 blocks: zarr's own codec reads 16 times the array
    with (
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        array = dask_array.from_zarr(zarr.open_array(tmp_path, mode="r"), chunks=blocks)
        sums = array.map_blocks(lambda block: block.sum(keepdims=True), chunks=(1, 1))
        sums.compute()  # what the workers import is read here
        before = client.run(bytes_read)
        totals = sums.compute()
        after = client.run(bytes_read)
    assert totals.sum() == values.sum()
    read = sum(after[worker] - before[worker] for worker in after)
    assert values.nbytes <= read <= 1.2 * values.nbytes
