"""One shard, written by processes, MPI ranks and Dask workers: values lost, bytes and seconds.

Each of eight processes computes every eighth plane of a volume, and writes plane by plane into an
array of one shard. The shard is one file with 8 inner chunks, and all processes write into each of
them. For each plane, zarr reads the whole shard, changes it and replaces it, and planes that other
processes wrote in between are lost. With `zarr_bytes.partial_writes`, only the bytes of the plane
are written. Then the ranks of `mpirun` write the volume, and the workers of a Dask cluster write
blocks smaller than a shard.

    python examples/shared_shard.py [--picture PATH]

Needs Linux for its count of bytes, dask[distributed], xarray, and matplotlib for the picture. The
part with MPI is skipped if mpi4py or mpirun isn't installed.
"""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import gallery
import numpy as np
import shared_chunk
import zarr
from shared_chunk import WAYS, Cost, draw, measured, processes, row, title

PROCESSES = 8
SHAPE, INNER = (96, 160, 160), (48, 80, 80)  # one shard, of 9.8 MB of float32
TWO, SHARD, BLOCK = (64, 128, 256), (32, 128, 256), (4, 128, 256)  # for Dask
PLAIN, WITH_SETTING = WAYS


@cache
def planes(number: int) -> np.ndarray:
    """Planes `number`, `number` + 8, ... of a Julia set of quaternions: how soon points escape."""
    z = np.linspace(-0.9, 0.9, SHAPE[0], dtype="f4")[number::PROCESSES, np.newaxis, np.newaxis]
    y = np.linspace(-1.2, 1.2, SHAPE[1], dtype="f4")[:, np.newaxis]
    x = np.linspace(-1.5, 1.5, SHAPE[2], dtype="f4")
    a, b, c, d = np.broadcast_arrays(x, y, z, np.float32(0))
    steps = np.ones(a.shape, "f4")  # 0 marks unwritten points
    for _ in range(20):
        inside = a * a + b * b + c * c + d * d < 4
        steps += inside
        squared = a * a - b * b - c * c - d * d - 0.2, 2 * a * b + 0.8, 2 * a * c, 2 * a * d
        a, b, c, d = (
            np.where(inside, new, old) for new, old in zip(squared, (a, b, c, d), strict=True)
        )
    return steps


def write_planes(
    number: int, path: str, way: str, wait: Callable[[], object] | None = None
) -> Cost:
    """Write every eighth plane, one at a time, together with the other processes."""
    computed = planes(number)
    with zarr.config.set(WAYS[way]):
        array = zarr.open_array(path, mode="r+")

    def write() -> None:
        for i, plane in enumerate(computed):
            array[number + PROCESSES * i] = plane

    return measured(write, wait or shared_chunk.barrier.wait)


def new_shard(path: str) -> None:
    """Create an array of one shard that isn't written yet."""
    zarr.create_array(path, shape=SHAPE, shards=SHAPE, chunks=INNER, dtype="f4", compressors=None)


def lost_in(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Mask of the missing values; exits if any other value isn't as it was written."""
    is_lost = found != expected
    if found[is_lost].any():
        raise SystemExit("a value is neither missing nor as it was written")
    return is_lost


def write_with_processes(folder: str, expected: np.ndarray) -> tuple[dict, list]:
    """Write the volume with eight processes; returns a section for each way, and the table."""
    sections, table = {}, []
    with processes(PROCESSES) as call:
        for way in WAYS:
            path = f"{folder}/{way}.zarr"
            new_shard(path)
            costs = call(write_planes, path, way)
            found = zarr.open_array(path, mode="r")[...]
            table.append(row(f"{PROCESSES} processes", way, check(way, found, expected), costs))
            sections[way] = found[:, SHAPE[1] // 2]
    return sections, table


def check(way: str, found: np.ndarray, expected: np.ndarray) -> str:
    """Number of lost planes, as text; exits if the setting lost one, or plain zarr none."""
    count = int(lost_in(found, expected).any(axis=(1, 2)).sum())
    if (way == WITH_SETTING) == (count > 0):
        raise SystemExit(f"{way}: {count} planes lost")
    return f"{count} of {SHAPE[0]} planes"


def write_with_mpi(folder: str, expected: np.ndarray) -> list:
    """Write the volume with eight ranks; returns the table."""
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpirun is None or find_spec("mpi4py") is None:
        print("mpi4py or mpirun is not installed: the part with MPI is left out")
        return []
    # For Open MPI: more ranks than processors, and root as the user, as in containers.
    allowed = {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    for way in WAYS:
        new_shard(mpi_path(folder, way))
    run = subprocess.run(  # noqa: S603
        [mpirun, "-n", str(PROCESSES), sys.executable, __file__, "--rank", folder],
        env=os.environ | allowed,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    table = []
    for way, costs in json.loads(run.stdout).items():
        lost = check(way, zarr.open_array(mpi_path(folder, way), mode="r")[...], expected)
        costs = [Cost(*cost) for cost in costs]
        table.append(row(f"`mpirun -n {PROCESSES}`", way, lost, costs))
    return table


def be_a_rank(folder: str) -> None:
    """Write the planes of this rank in both ways; the first rank prints the costs of all."""
    from mpi4py import MPI

    everybody = MPI.COMM_WORLD
    costs = {}
    for way in WAYS:
        path = mpi_path(folder, way)
        costs[way] = everybody.gather(write_planes(everybody.rank, path, way, everybody.Barrier))
    if everybody.rank == 0:
        print(json.dumps(costs))


def mpi_path(folder: str, way: str) -> str:
    """Path of the array that the ranks write."""
    return f"{folder}/mpi {way}.zarr"


@contextmanager
def counted(client: object, table: list, who: str, way: str, path: str) -> Iterator[None]:
    """Append a row: bytes moved by Dask's workers in the block, and values lost at `path`."""
    before, begin = client.run(gallery.counters), monotonic()
    yield
    end, after = monotonic(), client.run(gallery.counters)
    moved = [gallery.bytes_between(before[worker], after[worker]) for worker in after]
    costs = [Cost(*counts, begin, end) for counts in moved]
    lost = lost_in(zarr.open_array(path, mode="r")[...], value_at(*np.indices(TWO)))
    if (way == WITH_SETTING) == lost.any():
        raise SystemExit(f"{who}, {way}: {lost.mean():.0%} of the values lost")
    table.append(row(who, way, f"{lost.mean():.0%} of the values", costs))


def use(way: str) -> None:
    """Configure zarr in a worker of Dask to write in one of the ways."""
    zarr.config.refresh()
    zarr.config.set(WAYS[way])


def value_at(i: np.ndarray, j: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The values that Dask writes."""
    return (1 + i + j / 256 + k / 65536).astype("f4")


def write_with_dask(folder: str) -> list:
    """Write blocks smaller than a shard with Dask and with xarray; returns the table."""
    import dask
    import dask.array
    import xarray

    blocks = dask.array.fromfunction(value_at, shape=TWO, chunks=BLOCK, dtype="f4")
    sharded = {"shards": SHARD, "chunks": (8, 64, 64), "compressors": None}
    options = {"safe_chunks": False, "zarr_format": 3, "consolidated": False}
    # Dask takes the size of its blocks from its configuration, and warns of larger shards.
    table, block_size = [], {"array.chunk-size": 4 * int(np.prod(BLOCK))}
    with (
        gallery.dask_client() as client,
        dask.config.set(block_size),
        warnings.catch_warnings(action="ignore", category=dask.array.PerformanceWarning),
    ):
        for module in ("zarr", "dask.array", "xarray"):  # imports are not counted
            client.run(import_module, module)
        for way in WAYS:
            client.run(use, way)
            use(way)
            path = f"{folder}/dask {way}.zarr"
            zarr.create_array(path, shape=TWO, dtype="f4", **sharded)
            with counted(client, table, "`dask.array.to_zarr`", way, path):
                dask.array.to_zarr(blocks, zarr.open_array(path, mode="r+"))

            path = f"{folder}/xarray {way}.zarr"
            dataset = xarray.Dataset({"v": (("z", "y", "x"), blocks)})
            layout = {"v": {**sharded, "fill_value": 0.0}}
            dataset.to_zarr(path, encoding=layout, compute=False, **options)
            with counted(client, table, "xarray's `region=`", way, f"{path}/v"):
                dataset.to_zarr(path, region={"z": slice(0, TWO[0])}, **options)
    return sorted(table, key=lambda cells: cells["writers"])


def main() -> None:
    """Write in all ways."""
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2])
        return
    picture = gallery.picture_path(__doc__)
    expected = np.empty(SHAPE, "f4")
    for number in range(PROCESSES):
        expected[number::PROCESSES] = planes(number)
    print(f"one shard of {expected.nbytes:,} bytes, {SHAPE[0]} planes")
    with TemporaryDirectory() as folder:
        sections, table = write_with_processes(folder, expected)
        titles = {way: title(way, cells) for way, cells in zip(WAYS, table, strict=True)}
        table += write_with_mpi(folder, expected) + write_with_dask(folder)
    gallery.finish(draw(sections, titles), table, picture)


if __name__ == "__main__":
    main()
