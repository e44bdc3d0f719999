"""The cases of `cases.py`: the scripts of public issues, each down to its essence.

Each function makes the files of a case, or opens them and returns what is measured. The scripts say
nothing of this package: variables of the environment switch between it and plain zarr.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path

import numpy as np
import zarr

PLAIN = {
    "ZARR_CODECS__BYTES": "zarr.codecs.bytes.BytesCodec",
    "ZARR_CODEC_PIPELINE__PATH": "zarr.core.codec_pipeline.BatchedCodecPipeline",
}
OURS: dict[str, str] = {}
IN_PLACE = {"ZARR_ZARR_BYTES__PARTIAL_WRITES": "true"}

NO_HELP = "no help with compressed data"
VIEW = "with `zarr_bytes.view`"


@dataclass(frozen=True)
class Way:
    """What a process does: `open` a folder, and call what it returns, as often as needed."""

    environment: dict[str, str]
    open: Callable[[Path], Callable[[], object]]
    figures: tuple[str, ...]  # of those of `measured`, as the table has them
    label: str = ""
    calls: int = 1  # that one call of it makes


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    asked: str
    issue: str
    script: str
    prepare: Callable[[Path], object]
    before: list[Way]
    after: list[Way]
    remark: str = ""


def both(open_, *figures, setting=OURS, calls=1, others=()):
    """One script, with plain zarr and with this package, and other ways with this package."""
    ways = [Way(environment, open_, figures, calls=calls) for environment in (PLAIN, setting)]
    return {"before": ways[:1], "after": [ways[1], *others]}


def viewed(open_, calls=1):
    return Way(OURS, partial(open_, of=view), ("time",), VIEW, calls)


def nothing(_):
    """No files are needed."""


def view(array):
    import zarr_bytes  # not at the top, which plain zarr does without

    return zarr_bytes.view(array)


def store_array(folder, shape, chunks, name="a.zarr", **options):
    """Store random numbers, uncompressed unless `options` say otherwise."""
    values = np.random.default_rng(0).random(shape)
    zarr.create_array(folder / name, data=values, chunks=chunks, **UNCOMPRESSED | options)


UNCOMPRESSED = {"compressors": None}


def store_two(folder):
    store_array(folder, (50_000_000,), (5_000_000,))
    store_array(folder, (50_000_000,), (50_000_000,), "one.zarr")


def read_whole(folder, name="a.zarr"):
    array = zarr.open_array(folder / name, mode="r")
    return lambda: array[:]


WHOLE = {"in 10 chunks": read_whole, "in one chunk": partial(read_whole, name="one.zarr")}


def write_ten(folder):
    array = zarr.open_array(folder / "a.zarr", mode="r+")
    values = np.random.default_rng(1).random(10)

    def write():
        array[1000:1010] = values

    return write


def store_as_npy_and_zarr(folder):
    store_array(folder, (2**25,), (2**25,))
    np.save(folder / "a.npy", zarr.open_array(folder / "a.zarr")[:])


def read_npy(folder):
    return lambda: np.load(folder / "a.npy")


ROWS = 500


def array_in_memory():
    values = np.random.default_rng(0).random((10_000, 1024))
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, data=values, chunks=values.shape, compressors=None)
    return zarr.open_array(store, mode="r")


def read_rows(_, of=lambda array: array):
    array = of(array_in_memory())

    def loop():
        for i in range(ROWS):
            array[i]

    return loop


def read_points(folder, of=attrgetter("vindex")):
    array = zarr.open_array(folder / "a.zarr", mode="r")
    points = tuple(np.random.default_rng(1).integers(0, array.shape[0], (2, 1000)))
    selected = of(array)
    return lambda: selected[points]


def read_slice(folder, of=lambda array: array):
    selected = of(zarr.open_array(folder / "a.zarr", mode="r"))
    return lambda: selected[1_000_000:1_000_010]


SHARED = {"shape": (8, 256, 1024), "shards": (8, 256, 1024), "chunks": (1, 256, 1024)}


def write_chunk(number, path, barrier):
    """What one of eight processes does."""
    array = zarr.open_array(path, mode="r+")
    barrier.wait()
    for j in range(0, SHARED["shape"][1], 32):
        array[number, j : j + 32] = number + 1


def write_from_processes(folder):
    path, spawn = folder / "shared.zarr", get_context("spawn")

    def write():
        zarr.create_array(path, dtype="f8", compressors=None, overwrite=True, **SHARED)
        barrier = spawn.Barrier(8)
        writers = [spawn.Process(target=write_chunk, args=(i, path, barrier)) for i in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        return lost(path)

    return write


def write_with_dask(folder, **options):
    import dask.array

    values = np.arange(1, 100**3 + 1, dtype="f8").reshape(100, 100, 100)
    blocks = dask.array.from_array(values, chunks=(25, 25, 25))
    layout = {"shape": values.shape, "chunks": (25, 25, 25), "shards": (50, 50, 50)}
    path = folder / "dask.zarr"

    def write():
        zarr.create_array(path, dtype="f8", overwrite=True, **layout | options)
        dask.array.store(blocks, zarr.open_array(path, mode="r+"), lock=False)
        return lost(path)

    return write


def lost(path):
    """How much of an array is not there, of values that are not zero."""
    return float((zarr.open_array(path, mode="r")[...] == 0).mean())


VARIABLE = (64, 512, 1024)  # 134 MB of float32


def store_netcdf3(folder):
    from scipy.io import netcdf_file

    with netcdf_file(folder / "a.nc", "w", version=2) as file:
        for name, size in zip("tyx", VARIABLE, strict=True):
            file.createDimension(name, size)
        file.createVariable("v", ">f4", tuple("tyx"))[:] = np.random.default_rng(0).random(VARIABLE)


def read_virtual(folder, parser, file, selection):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import parsers

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = getattr(parsers, parser)()(url=(folder / file).as_uri(), registry=registry)
    array = zarr.open_group(store, mode="r", zarr_format=3)["v"]
    return lambda: array[selection]


read_netcdf3 = partial(read_virtual, parser="NetCDF3Parser", file="a.nc", selection=5)
read_hdf5 = partial(read_virtual, parser="HDFParser", file="a.h5", selection=(0, 0))


def store_hdf5(folder):
    import h5py
    import kerchunk.hdf

    with h5py.File(folder / "a.h5", "w") as file:
        file["v"] = np.random.default_rng(0).random(VARIABLE).astype("f4")
    references = kerchunk.hdf.SingleHdf5ToZarr(str(folder / "a.h5")).translate()
    (folder / "a.json").write_text(json.dumps(references))


def read_kerchunk(folder):
    import fsspec

    system = fsspec.filesystem("reference", fo=str(folder / "a.json"), asynchronous=True)
    array = zarr.open_group(zarr.storage.FsspecStore(system, read_only=True), mode="r")["v"]
    return lambda: array[0, 0]


def store_icechunk(folder):
    import icechunk

    icechunk.set_logs_filter("error")  # of a folder it says that two may not commit to it at once
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder / "i")))
    session = repository.writable_session("main")
    values = np.random.default_rng(0).random((5000, 5000), dtype="f4")
    zarr.create_array(session.store, data=values, chunks=values.shape, compressors=None)
    session.commit("write")


def read_icechunk(folder):
    import icechunk

    icechunk.set_logs_filter("error")
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder / "i")))
    array = zarr.open_array(repository.readonly_session("main").store, mode="r")
    return lambda: array[:]


CASES = [
    Case(
        "A whole read takes twice the memory",
        "zarr-python 2904",
        "`array[:]` of 400 MB",
        store_two,
        [Way(PLAIN, read, ("memory", "time"), label) for label, read in WHOLE.items()],
        [Way(OURS, read, ("memory", "time"), label) for label, read in WHOLE.items()],
    ),
    Case(
        "Ten elements written cost the chunk",
        "zarr-python 2518",
        "`array[1000:1010] = values` in a chunk of 80 MB",
        partial(store_array, shape=(10**7,), chunks=(10**7,)),
        [Way(PLAIN, write_ten, ("read", "written", "time"))],
        [Way(IN_PLACE, write_ten, ("written", "time"))],
        remark="with `zarr_bytes.partial_writes`",
    ),
    Case(
        "Slower than npy",
        "zarr-python 519",
        "`array[:]` of 268 MB in one chunk",
        store_as_npy_and_zarr,
        **both(read_whole, "time", others=[Way(OURS, read_npy, ("time",), "by `np.load`")]),
    ),
    Case(
        "Slower than npy, with the compression that `zarr.save` chooses",
        "zarr-python 519",
        "the same array with zstd",
        partial(store_array, shape=(2**25,), chunks=(2**22,), compressors="auto"),
        **both(read_whole, "time"),
        remark=NO_HELP,
    ),
    Case(
        "300 times slower than an array in memory",
        "zarr-python 1395",
        "`array[i]`, a row of one chunk of 82 MB in a `MemoryStore`",
        nothing,
        **both(
            read_rows,
            "time",
            calls=ROWS,
            others=[
                viewed(read_rows, ROWS),
                Way(OURS, partial(read_rows, of=np.asarray), ("time",), "by NumPy alone", ROWS),
            ],
        ),
    ),
    Case(
        "Points all over the array read every chunk, a memory map does not",
        "zarr-python 265",
        "`array.vindex[points]`, 1,000 points in 16 chunks of 17 MB",
        partial(store_array, shape=(5792, 5792), chunks=(1448, 1448)),
        **both(read_points, "read", "time", others=[viewed(read_points)]),
    ),
    Case(
        "A memory map for small slices of large chunks",
        "zarr-python 1245",
        "`array[1_000_000:1_000_010]` of a chunk of 134 MB",
        partial(store_array, shape=(2**24,), chunks=(2**24,)),
        **both(read_slice, "read", "time", others=[viewed(read_slice)]),
    ),
    Case(
        "Processes that write different chunks of one file",
        "zarr-python 3525",
        "8 processes, each writes an inner chunk of one shard, 32 rows at a time",
        nothing,
        **both(write_from_processes, "lost", setting=IN_PLACE),
        remark="with `zarr_bytes.partial_writes`",
    ),
    Case(
        "Dask loses data where its blocks are smaller than a shard",
        "zarr-python 3682",
        "`dask.array.store(blocks, array, lock=False)`, 64 blocks, 8 shards",
        nothing,
        **both(partial(write_with_dask, **UNCOMPRESSED), "lost", setting=IN_PLACE),
        remark="with `zarr_bytes.partial_writes`",
    ),
    Case(
        "The script of that issue as it is, which compresses",
        "zarr-python 3682",
        "the same with zarr's default, zstd",
        nothing,
        **both(write_with_dask, "lost", setting=IN_PLACE),
        remark=NO_HELP,
    ),
    Case(
        "A NetCDF-3 file is one chunk, though any byte of it can be read",
        "VirtualiZarr 86",
        "`NetCDF3Parser`, a time step of 134 MB",
        store_netcdf3,
        **both(read_netcdf3, "read", "time"),
    ),
    Case(
        "An HDF5 file without chunks is slower than with h5py",
        "kerchunk 124",
        "`SingleHdf5ToZarr`, then `array[0, 0]` of 134 MB",
        store_hdf5,
        **both(
            read_kerchunk,
            "read",
            "time",
            others=[Way(OURS, read_hdf5, ("read", "time"), "with VirtualiZarr's `HDFParser`")],
        ),
    ),
    Case(
        "An uncompressed read makes one copy more",
        "icechunk 2345",
        "`array[:]` of 100 MB in one chunk",
        store_icechunk,
        **both(read_icechunk, "memory", "time"),
        remark="no help: Icechunk makes the copy before zarr has the chunk",
    ),
]
