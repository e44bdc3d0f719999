"""What the fuzz tests share: times, data types, stores of every kind, and conditions of a read.

They take a few seconds, on the same examples each time. With ``--hypothesis-profile=gate`` or
``night`` they take a minute or an hour, on other examples each time; `conftest` has the profiles.
"""

import functools
import importlib.util
import time
import zipfile
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from shards import divided
from stored_arrays import CountingStore, is_metadata, pipeline_with
from system_calls import ending_early
from zarr.buffer.cpu import Buffer
from zarr.storage import (
    FsspecStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    WrapperStore,
    ZipStore,
)

from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.limits import Limits


@dataclass
class Run:
    """How long each test repeats its examples, from which seed on, and how many it has tried."""

    seconds: float = 0
    seed: int = 0
    examples: Counter = field(default_factory=Counter)  # by the name of the test


RUN = Run()


def fuzz(examples):
    """Decorator that tests a property on `examples`, and on more while there is time.

    They come in rounds of ten: after these, Hypothesis makes most by changing one a little.
    """

    def decorate(test):
        body = test.hypothesis.inner_test

        @functools.wraps(body)
        def counted(*arguments, **named):
            body(*arguments, **named)
            RUN.examples[body.__name__] += 1

        test.hypothesis.inner_test = counted
        rounds = -(-examples * settings().max_examples // 500)  # the profile says 50, or fewer
        test = settings(max_examples=10, suppress_health_check=list(HealthCheck))(test)

        @functools.wraps(test)
        def repeated(*arguments, **named):
            end, number = time.monotonic() + RUN.seconds, RUN.seed
            while number < RUN.seed + rounds or time.monotonic() < end:
                try:
                    seed(number)(test)(*arguments, **named)
                except Exception as error:
                    error.add_note(f"In the round of --hypothesis-seed={number}")
                    raise
                number += 1

        return pytest.mark.fuzz(repeated)

    return decorate


IS_NEWER_ZARR = zarr.__version__ > "3.3"  # which has records in records, and swaps their fields

# data type: (NumPy type, sizes of the units whose bytes a byte order turns round, bits of each byte
# that count); `documents.LONG_NAMES` has what some of them are called in metadata
TYPES = {
    "bool": ("?", [1], 1),
    **{f"int{8 * n}": (f"i{n}", [n], 255) for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": (f"u{n}", [n], 255) for n in (1, 2, 4, 8)},
    **{f"float{8 * n}": (f"f{n}", [n], 255) for n in (2, 4, 8)},
    **{f"complex{8 * n}": (f"c{n}", [n // 2] * 2, 255) for n in (8, 16)},
    "r8": ("V1", [1], 255),
    "r24": ("V3", [1] * 3, 255),
    "datetime": ("M8[s]", [8], 255),
    "text": ("U2", [4] * 2, 0),
    "ascii": ("S3", [1] * 3, 127),
    "struct": ([("a", "i2"), ("b", "u1"), ("c", "f8")], [2, 1, 8], 255),
    "nested": ([("a", "?"), ("b", [("c", "f4"), ("d", "i2")])], [1, 4, 2], 1),
}
# Of Zarr format 2 alone, whose records have fields of both byte orders. They are in NumPy memory as
# they are stored.
RECORDS_OF_FORMAT_2 = {
    "mixed": ([("a", ">i2"), ("b", "u1"), ("c", "<f8")], [1] * 11, 255),
    "padded": ([("a", "<i2"), ("gap", "V3"), ("b", ">c8")], [1] * 13, 255),
}
OF_NEWER_ZARR = ["nested", "padded"]  # in format 2
NAMES_OF_FORMAT_2 = [
    name for name in TYPES | RECORDS_OF_FORMAT_2 if name not in OF_NEWER_ZARR or IS_NEWER_ZARR
]
try:
    import extension_types as extensions
except ModuleNotFoundError:  # ml_dtypes is not installed
    pass
else:
    for name in extensions.NAMES:
        bits = extensions.width_of((extensions.PAIRS | extensions.RECORDS).get(name, name))
        units = [-(-bits // 8)] * (1 + name.startswith("complex"))
        TYPES[name] = extensions.numpy_type(name), units, 2 ** min(bits, 8) - 1
    NAMES_OF_FORMAT_2.append("bfloat16")


ALL_TYPES = TYPES | RECORDS_OF_FORMAT_2


def values_of(name, shape, seed):
    """Random elements of a data type in NumPy memory, whose bits have a meaning."""
    dtype, _, mask = ALL_TYPES[name]
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    if name == "text":
        return random.integers(0, 128, (*shape, 2), "u4").view("U2")[..., 0]
    raw = random.integers(0, 256, (*shape, dtype.itemsize), "u1") & mask
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


def encoded(values, name, endian):
    """The bytes of `values`, made by turning round each unit by hand."""
    raw, units = np.ascontiguousarray(values).view("u1"), ALL_TYPES[name][1]
    raw = raw.reshape(-1, values.dtype.itemsize)
    if np.little_endian == (endian == "big"):
        ends = zip(np.cumsum(units), units, strict=True)
        raw = raw[:, [byte for end, n in ends for byte in range(end - 1, end - n - 1, -1)]]
    return raw.tobytes()


def filled_up(values, chunk_shape):
    """Elements of every chunk; those at the edge are filled up with zeros."""
    grid = [-(-n // c) for n, c in zip(values.shape, chunk_shape, strict=True)]
    whole = np.zeros([n * c for n, c in zip(grid, chunk_shape, strict=True)], values.dtype)
    whole[tuple(map(slice, values.shape))] = values
    return divided(whole, chunk_shape)


def transposed(values, orders):
    """`values` after one transpose after another."""
    for order in orders:
        values = values.transpose(order)
    return values


class SynchronousStore(CountingStore):
    """A store that is neither local nor in memory, and reads synchronously."""

    _supports_sync_io = True

    def get_sync(self, key, *, prototype=None, byte_range=None):
        if not is_metadata(key):
            self.requests.append(byte_range)
        return self._store.get_sync(key, prototype=prototype, byte_range=byte_range)


KINDS = ["local", "zip", "memory", "requests"]
KINDS += [name for name in ("fsspec", "obstore") if importlib.util.find_spec(name)]
KINDS += [f"{name} files" for name in ("fsspec", "obstore") if importlib.util.find_spec(name)]
KINDS.append("wrapped")
if hasattr(MemoryStore, "get_sync"):
    KINDS.append("synchronous")


def store_of_files(kind, folder):
    """A store of a kind that has the files of a folder."""
    if kind == "fsspec files":
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
        from fsspec.implementations.local import LocalFileSystem

        files = LocalFileSystem(auto_mkdir=True)
        return FsspecStore(AsyncFileSystemWrapper(files, asynchronous=True), path=str(folder))
    if kind == "obstore files":
        import obstore

        return ObjectStore(obstore.store.LocalStore(folder))
    return LocalStore(folder) if kind == "local" else WrapperStore(LocalStore(folder))


def store_with(kind, objects, folder):
    """A store of a kind that holds `objects`; `folder` is new and empty."""
    if kind in ("local", "wrapped") or kind.endswith(" files"):
        for key, content in objects.items():
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(content)
        return store_of_files(kind, folder)
    if kind == "zip":
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            for key, content in objects.items():
                archive.writestr(key, content)
        return ZipStore(folder / "a.zip", mode="r")
    if kind == "fsspec":
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
        from fsspec.implementations.memory import MemoryFileSystem

        class AskedForRanges(MemoryFileSystem):  # as its own class is not
            pass

        files = AskedForRanges()
        files.pipe({f"{folder}/{key}": content for key, content in objects.items()})
        return FsspecStore(AsyncFileSystemWrapper(files, asynchronous=True), path=str(folder))
    if kind == "obstore":
        import obstore

        class AskedForRanges(ObjectStore):
            pass

        store = obstore.store.MemoryStore()
        for key, content in objects.items():
            store.put(key, content)
        return AskedForRanges(store)
    store = MemoryStore({key: Buffer.from_bytes(content) for key, content in objects.items()})
    if kind == "requests":
        return CountingStore(store)
    return SynchronousStore(store) if kind == "synchronous" else store


def same(found, expected):
    """Whether `found` has the shape and the very bits of `expected`."""
    found = np.asarray(found, expected.dtype)
    assert found.shape == expected.shape
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


SMALL_THRESHOLDS = st.builds(
    Limits,
    **{
        name: st.sampled_from([size, 1, 8, 16, 40, 100, 400])
        for name, size in Limits()._asdict().items()
    },
)


@st.composite
def thresholds(draw):
    """Thresholds as they are, or most of them so small that a few elements exceed them."""
    return draw(SMALL_THRESHOLDS) if draw(st.integers(0, 3)) else Limits()


def pipeline_with_any_thresholds(draw, name):
    """A pipeline by its name, as zarr's configuration has it; of ours, with `thresholds`."""
    is_own = name == "BatchedBytesPipeline"
    return pipeline_with(draw(thresholds())) if is_own else PIPELINES[name]


def settings_of(draw):
    """Settings that make small chunks be read in ranges, and be written in place or replaced."""
    gap, largest = draw(st.sampled_from([0, 8, 64])), draw(st.sampled_from([1, 7, 100, 10**6]))
    return {
        "zarr_bytes.gap": {"local": gap, "remote": gap},
        "zarr_bytes.largest_request": {"local": largest, "remote": largest},
        "zarr_bytes.partial_reads": draw(st.sampled_from([True, True, True, False])),
        "zarr_bytes.partial_writes": draw(st.booleans()),
    }


@contextmanager
def conditions(draw, pipeline, **others):
    """A pipeline by its name; settings, thresholds, and where calls of the system end, by chance.

    An array has the thresholds with which it is opened.
    `others` are settings that are not left to chance, with two underscores for each dot.
    """
    config = {
        "codec_pipeline.path": pipeline_with_any_thresholds(draw, pipeline),
        **settings_of(draw),
    }
    config |= {name.replace("__", "."): value for name, value in others.items()}
    seed = draw(st.none() | st.integers(0, 99))
    with (
        zarr.config.set(config),
        pytest.MonkeyPatch.context() as patch,
        nullcontext() if seed is None else ending_early(seed),
    ):
        if draw(st.booleans()):  # as on a file system that is known, where writes may be mapped
            patch.setattr(known_stores, "is_on_local_file_system", lambda descriptor: True)
        yield
