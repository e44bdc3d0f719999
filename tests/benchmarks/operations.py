"""The cases of `beside_zarr.py`: arrays in stores, and operations on them, with zarr alone.

Run as a program, it is one of the processes that are compared. Each line of its standard input
is a method of `Worker` and its arguments, in JSON, and each line of its output an answer.
"""

import ctypes
import gc
import hashlib
import json
import pickle
import sys
import traceback
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from shutil import copytree
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np
import zarr
from zarr.codecs import TransposeCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, WrapperStore, ZipStore

ARRAY = "array"  # its name in a store
LEAST = 5e-3  # seconds of a sample, in which an operation is repeated


class Case(NamedTuple):
    """One row of the benchmark, by keys of `STORES`, `LAYOUTS` and `OPERATIONS`."""

    store: str
    layout: str
    operation: str

    def __str__(self):
        return ", ".join(self)


class Layout(NamedTuple):
    """An array, without compression unless `options` of `zarr.create_array` have one."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str | list = "f4"
    options: dict = {}
    filled: object = ...  # the other elements are zero, the fill value

    def create(self, store, name, **options):
        options = {"compressors": None, "chunks": self.chunks, **self.options, **options}
        return zarr.create_array(
            store, name=name, shape=self.shape, dtype=np.dtype(self.dtype), **options
        )

    def values(self, seed):
        """Random elements."""
        shape, dtype = np.empty(self.shape, "?")[self.filled].shape, np.dtype(self.dtype)
        numbers = np.random.default_rng(seed).integers(1, 100, shape, "u1")
        values = np.zeros(self.shape, dtype)
        if dtype.names is None:
            values[self.filled] = numbers > 50 if dtype.kind == "b" else numbers
        else:
            for name in dtype.names:
                values[name][self.filled] = numbers
        return values


BIG_ENDIAN = {"serializer": {"name": "bytes", "configuration": {"endian": "big"}}}
SHARDS = {"shards": (64, 256, 256)}  # of 16 MiB, in four of which are 64 MiB
LAYOUTS = {
    "chunks of 4 KiB": Layout((512, 512), (32, 32)),
    "chunks of 64 KiB": Layout((1024, 1024), (128, 128)),
    "chunks of 1 MiB": Layout((128, 128, 256), (64, 64, 64)),
    "chunks of 4 MiB": Layout((8, 1024, 1024), (1, 1024, 1024)),
    "a chunk of 64 MiB": Layout((60, 512, 512), (64, 512, 512)),
    "one-dimensional": Layout((2**20,), (2**16,), "f8"),
    "transposed": Layout(
        (128, 128, 128), (64, 64, 64), options={"filters": [TransposeCodec(order=(2, 1, 0))]}
    ),
    "big-endian": Layout((128, 128, 128), (32, 32, 32), "f8", BIG_ENDIAN),
    "bool": Layout((128, 256, 256), (64, 64, 64), "?"),
    "records": Layout((1024, 512), (256, 128), [("number", "<i4"), ("value", "<f8")]),
    "complex": Layout((1024, 512), (256, 128), "c16"),
    "large shards": Layout((64, 512, 512), (16, 64, 64), options=SHARDS),
    "small shards": Layout((512, 512), (16, 16), options={"shards": (64, 64)}),
    "sparse shards": Layout(
        (64, 512, 512), (16, 64, 64), options=SHARDS, filled=np.s_[:, 64:192, 200:300]
    ),
    "format 2": Layout((128, 128, 128), (32, 32, 32), "f8", {"zarr_format": 2}),
    "zstd": Layout((128, 128, 256), (64, 64, 64), options={"compressors": "auto"}),
    "zstd in shards": Layout(
        (64, 512, 512), (16, 64, 64), options={**SHARDS, "compressors": "auto"}
    ),
}


class Place(NamedTuple):
    """Where a store of a process may have its files."""

    data: Path  # a folder with an array that plain zarr has written; not to be changed
    own: Path  # a folder that does not exist yet
    url: str  # of `data` on the server
    writes: bool


def folder(place):
    return copytree(place.data, place.own) if place.writes else place.data


def filled(store, place):
    """A store with a copy of the array."""
    for file in place.data.rglob("*"):
        if file.is_file():
            content = default_buffer_prototype().buffer.from_bytes(file.read_bytes())
            sync(store.set(file.relative_to(place.data).as_posix(), content))
    return store


def archive(place):
    with ZipStore(place.own, mode="w") as store:
        filled(store, place)
    return ZipStore(place.own, mode="r")


def obstore_files(place):
    from obstore.store import LocalStore as Files

    return ObjectStore(Files(folder(place)))


def obstore_memory(place):
    from obstore.store import MemoryStore as Memory

    return filled(ObjectStore(Memory()), place)


def fsspec_files(place):
    options = {"auto_mkdir": True}
    return FsspecStore.from_url(f"file://{folder(place)}", storage_options=options)


def fsspec_memory(place):
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    return filled(FsspecStore.from_url("memory://array"), place)


def icechunk(place):
    import icechunk

    icechunk.set_logs_filter("error")  # it warns of concurrent commits, which nobody makes here
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(place.own)))
    session = repository.writable_session("main")
    filled(session.store, place)
    session.commit("written")
    writable, readonly = repository.writable_session, repository.readonly_session
    return (writable if place.writes else readonly)("main").store


def http(place):
    from obstore.store import HTTPStore

    store = HTTPStore(place.url, client_options={"allow_http": True})
    return ObjectStore(store, read_only=True)


ZIP, HTTP, ICECHUNK, OBSTORE_MEMORY = "ZipStore", "HTTP", "Icechunk", "obstore memory"
STORES = {
    "LocalStore": lambda place: LocalStore(folder(place)),
    "MemoryStore": lambda place: filled(MemoryStore(), place),
    ZIP: archive,
    "WrapperStore": lambda place: WrapperStore(LocalStore(folder(place))),
    "obstore files": obstore_files,
    "fsspec files": fsspec_files,
    "fsspec memory": fsspec_memory,
    OBSTORE_MEMORY: obstore_memory,
    ICECHUNK: icechunk,
    HTTP: http,
}


class Subject(NamedTuple):
    """What an operation acts on."""

    store: object
    array: zarr.Array
    layout: Layout
    new: np.ndarray | None  # what operations write


def third(shape):
    return tuple(n // 3 for n in shape)


def first_chunk(array):
    return tuple(slice(0, n) for n in array.shards or array.chunks)


def some_rows(array):
    n = array.shape[0]
    return slice(n // 3, n // 3 + max(n // 8, 2))


def middle(array):
    return tuple(slice(n // 4, 3 * n // 4) for n in array.shape)


def reading(selection):
    """An operation that reads `selection` of an array, or what this returns of the array."""

    def operation(subject):
        chosen = selection(subject.array) if callable(selection) else selection
        return partial(subject.array.__getitem__, chosen)

    return operation


def writing(selection):
    """An operation that writes a part of the new elements to the same places each time."""

    def operation(subject):
        chosen = selection(subject.array) if callable(selection) else selection
        part = subject.new[chosen].copy()

        def write():
            subject.array[chosen] = part
            return subject.array

        return write

    return operation


def write_scalar(subject):
    rows, scalar = some_rows(subject.array), subject.new[third(subject.array.shape)]

    def write():
        subject.array[rows] = scalar
        return subject.array

    return write


def orthogonal(subject):
    indices = tuple(np.arange(n // 10, n, max(n // 20, 1)) for n in subject.array.shape)
    return partial(subject.array.oindex.__getitem__, indices)


def points(subject):
    random = np.random.default_rng(2)
    return partial(
        subject.array.vindex.__getitem__,
        tuple(random.integers(0, n, 200) for n in subject.array.shape),
    )


def mask(subject):
    chosen = np.zeros(subject.array.shape, bool)
    chosen.flat[np.random.default_rng(3).integers(0, chosen.size, 1000)] = True
    return partial(subject.array.__getitem__, chosen)


THREADS = ThreadPoolExecutor(4)


def four_threads(subject):
    """Each reads a quarter of the rows."""
    edges = np.linspace(0, subject.array.shape[0], 5).astype(int).tolist()
    parts = [*map(slice, edges[:-1], edges[1:])]
    return lambda: [*THREADS.map(subject.array.__getitem__, parts)]


def dask_array(subject):
    import dask.array

    array = subject.array
    blocks = dask.array.from_array(array, chunks=array.shards or array.chunks)
    return partial(blocks.compute, scheduler="threads", num_workers=16)


def opening(subject):
    return partial(zarr.open_array, subject.store, path=ARRAY, mode="r")


def first_point(subject):
    point = third(subject.array.shape)
    return lambda: zarr.open_array(subject.store, path=ARRAY, mode="r")[point]


def pickling(subject):
    return lambda: pickle.loads(pickle.dumps(subject.array))  # noqa: S301


def creating(subject):
    return partial(subject.layout.create, subject.store, "new", overwrite=True)


CHANGES = {
    "write whole": writing(...),
    "write one chunk": writing(first_chunk),
    "write rows": writing(some_rows),
    "write box": writing(middle),
    "write a scalar": write_scalar,
    "create": creating,
}
OPERATIONS = {
    "whole": reading(...),
    "one chunk": reading(first_chunk),
    "row": reading(lambda array: array.shape[0] // 3),
    "rows": reading(some_rows),
    "point": reading(lambda array: third(array.shape)),
    "box": reading(middle),
    "column": reading(lambda array: (..., array.shape[-1] // 3)),
    "steps": reading(lambda array: (slice(1, None, 3),) * array.ndim),
    "oindex": orthogonal,
    "vindex": points,
    "mask": mask,
    "four threads": four_threads,
    "Dask": dask_array,
    "open": opening,
    "open and read a point": first_point,
    "pickle": pickling,
    **CHANGES,
}
PACKAGES = {  # that a store or an operation needs
    "obstore files": "obstore",
    "fsspec files": "fsspec",
    "fsspec memory": "fsspec",
    OBSTORE_MEMORY: "obstore",
    ICECHUNK: "icechunk",
    HTTP: "obstore",
    "Dask": "dask",
}


def why_not(case):
    """Why there is no such case, or None. All that is left out is left out here."""
    layout = LAYOUTS[case.layout]
    for key in case:
        if key in PACKAGES and find_spec(PACKAGES[key]) is None:
            return f"{PACKAGES[key]} is not installed"
    if case.operation in CHANGES and case.store == ZIP:
        return "members of an archive cannot be replaced"
    if case.operation in CHANGES and case.store == HTTP:
        return "this server takes no writes"
    if case.layout == "format 2" and case.store == ICECHUNK:
        return "Icechunk has arrays of format 3 alone"
    if case.operation == "pickle" and case.store == OBSTORE_MEMORY:
        return "obstore's memory cannot be pickled"
    if case.operation in ("row", "column") and len(layout.shape) == 1:
        return "a row of one axis is a point"
    if case.operation.endswith("one chunk") and case.layout == "a chunk of 64 MiB":
        return "the chunk is the whole array"
    return None


def all_cases():
    cases = map(Case._make, product(STORES, LAYOUTS, OPERATIONS))
    return [case for case in cases if why_not(case) is None]


def digest(result):
    """A digest of arrays and their data types; of a Zarr array, of all its elements."""
    found = hashlib.blake2b(digest_size=16)
    for part in result if isinstance(result, list) else [result]:
        values = np.asarray(part[...] if isinstance(part, zarr.Array) else part)
        found.update(f"{values.dtype.descr} {values.shape}".encode())
        found.update(np.ascontiguousarray(values).view("u1").data)
    return found.hexdigest()


def resident_nbytes(name):
    """Bytes of resident memory of this process: now (VmRSS), or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(kibibytes)


class Worker:
    """What one of the processes does on command."""

    def __init__(self):
        self.prepare_call = self.call = None
        self.store_of_reads = None  # with the arguments that it was made of

    def has_package(self):
        """Whether zarr uses the pipeline of this package."""
        return "zarr_bytes" in zarr.config.get("codec_pipeline.path")

    def make(self, layout, path):
        """Write an array into a folder."""
        LAYOUTS[layout].create(path, ARRAY)[...] = LAYOUTS[layout].values(0)

    def prepare(self, keys, data, own, url):
        """Make the store of a case, and do its operation once; a digest of what it has returned.

        Cases that read and follow one another share a store.
        """
        self.prepare_call = self.call = None
        case = Case(*keys)
        layout, writes = LAYOUTS[case.layout], case.operation in CHANGES
        made_of = (case.store, data, own)
        if writes or self.store_of_reads is None or self.store_of_reads[0] != made_of:
            self.store_of_reads = None
            gc.collect()
            store = STORES[case.store](Place(Path(data), Path(own), url, writes))
            if not writes:
                self.store_of_reads = made_of, store
        else:
            store = self.store_of_reads[1]
        new = layout.values(1) if writes else None

        def prepare_call():
            array = zarr.open_array(store, path=ARRAY, mode="r+" if writes else "r")
            return OPERATIONS[case.operation](Subject(store, array, layout, new))

        self.prepare_call, self.call = prepare_call, prepare_call()
        return digest(self.call())

    def sample(self):
        """Seconds of a call, repeated until a few milliseconds have gone."""
        calls, seconds, start = 0, 0.0, perf_counter()
        while seconds < LEAST:
            self.call()
            calls, seconds = calls + 1, perf_counter() - start
        return seconds / calls

    def peak(self):
        """Peak of the traced memory of a call, the first of a newly opened array."""
        self.call = None
        gc.collect()
        self.call = self.prepare_call()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        self.call()
        return tracemalloc.get_traced_memory()[1] - before

    def resident_peak(self):
        """Peak of the resident memory in a call, above that before it; the median of three.

        Other than traced memory, it has what libraries in Rust take, and no page that isn't used.
        """
        return median(self._resident_peak() for _ in range(3))

    def _resident_peak(self):
        self.call = None
        gc.collect()
        self.call = self.prepare_call()
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free belongs to the system again
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that from here on: proc(5)
        before = resident_nbytes("VmRSS")
        self.call()
        return resident_nbytes("VmHWM") - before


def main():
    worker = Worker()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            answer = {"result": getattr(worker, command)(*arguments)}
        except Exception:  # noqa: BLE001 -- the other process says whether it fails there, too
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
