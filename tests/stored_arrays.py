"""Arrays of the tests: made, stored, and in stores that count, fail, or have no ranges.

Also what lies in the place of a chunk. Programs that tests run in other processes import this
module too.
"""

import os
import socket
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.buffer import cpu
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.registry import register_pipeline
from zarr.storage import FsspecStore, MemoryStore, ObjectStore, StorePath, WrapperStore

from zarr_bytes import BatchedBytesPipeline, BytesCodec

IN_PLACE = {"zarr_bytes.partial_writes": True}
CAN_WRITE_IN_PLACE = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
PLAIN_ZARR = {
    "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
    "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
}


def numbers(shape, dtype="<f8"):
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


def created(store, shape, dtype, chunks=None, *, in_place=True, **options):
    """An empty array of one chunk; parts of it are written in place unless that is turned off."""
    options = {"compressors": None, "serializer": BytesCodec(endian="big"), **options}
    with zarr.config.set(IN_PLACE if in_place else {}):
        return zarr.create_array(store, shape=shape, dtype=dtype, chunks=chunks or shape, **options)


def stored(store, values, chunks=None, *, in_place=False, **options):
    """`values` as one chunk in `store`, opened again so that metadata chooses the codec."""
    options = {"config": {"write_empty_chunks": True}, **options}
    array = created(store, values.shape, values.dtype, chunks, in_place=in_place, **options)
    array[...] = values
    with zarr.config.set(IN_PLACE if in_place else {}):
        return zarr.open_array(array.store, mode="r+")


def spec_of(array, shape=None, prototype=cpu.buffer_prototype):
    """What zarr tells a codec or a pipeline of the chunks of `array`."""
    return ArraySpec(
        shape=array.chunks if shape is None else shape,
        dtype=array.metadata.data_type,
        fill_value=0,
        config=ArrayConfig.from_dict({}),
        prototype=prototype,
    )


def pipeline_of(array):
    return array.async_array.codec_pipeline


def pipeline_with(limits):
    """The pipeline of this package with other limits, as zarr's configuration names it."""

    class PipelineWithLimits(BatchedBytesPipeline):
        pass

    PipelineWithLimits.limits = limits
    register_pipeline(PipelineWithLimits)
    return f"{PipelineWithLimits.__module__}.{PipelineWithLimits.__qualname__}"


def contents_of(store):
    """Keys and bytes of everything that is stored."""

    async def got():
        keys = [key async for key in store.list()]
        return {key: (await StorePath(store, key).get()).to_bytes() for key in keys}

    return zarr.core.sync.sync(got())


def is_metadata(key):
    """Whether the object of a key is a document, of format 3 or 2, rather than a chunk."""
    return key.endswith(("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"))


def keys_of(store):
    """Keys of the chunks that are stored."""
    return sorted(key for key in contents_of(store) if not is_metadata(key))


def most_memory(act):
    """What `act` gives, and the most memory that is taken while it runs, in bytes."""
    tracemalloc.start()
    try:
        return act(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class CountingStore(WrapperStore):
    """A store that is read through `get`, and keeps which ranges of chunks were asked for."""

    _supports_sync_io = False

    def __init__(self, store):
        super().__init__(store)
        self.requests = []

    async def get(self, key, prototype, byte_range=None):
        if not is_metadata(key):
            self.requests.append(byte_range)
        return await super().get(key, prototype, byte_range)

    async def getsize(self, key):
        return await self._store.getsize(key)

    def counted(self):
        """Requests and bytes since the last call; a whole chunk counts as None bytes."""
        requests, self.requests = self.requests, []
        if None in requests:
            return len(requests), None
        return len(requests), sum(request.end - request.start for request in requests)


class FaultyStore(CountingStore):
    """Chunks of which requests end as `await fault(number of the request, buffer)` says."""

    def __init__(self, store, fault=None):
        super().__init__(store)
        self.fault = fault
        self.running = 0  # requests at this moment
        self.most = 0  # and at any before

    def _with_store(self, store):
        return type(self)(store, self.fault)

    async def get(self, key, prototype, byte_range=None):
        buffer = await super().get(key, prototype, byte_range)
        if self.fault is None or is_metadata(key):
            return buffer
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.fault(len(self.requests), buffer)
        finally:
            self.running -= 1


def faulty(fault, values=None, store_class=FaultyStore, **options):
    """An array of one chunk in such a store; without `values`, of 50 rows of 40,000 bytes."""
    values = numbers((50, 5000)) if values is None else values
    array = stored(store_class(MemoryStore()), values, **options)
    array.store_path.store.requests.clear()
    array.store_path.store.fault = fault
    return array


def store_at(url, client):
    """A store of objects that an HTTP server has, by the package that fetches them."""
    if client == "fsspec":
        pytest.importorskip("aiohttp")
        return FsspecStore.from_url(url)
    pytest.importorskip("obstore")
    from obstore.store import HTTPStore

    return ObjectStore(HTTPStore(url, client_options={"allow_http": True}))


KINDS_OF_NO_FILE = ["folder", "FIFO", "socket", "character device", "link to a FIFO"]


def put(kind, path):
    """Put something that is no file in a chunk's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "character device":
        path.symlink_to("/dev/zero")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "link to a FIFO":
        os.mkfifo(path.with_name("fifo"))
        path.symlink_to(path.with_name("fifo"))
    else:
        folder = tempfile.mkdtemp()  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{folder}/s")
        Path(folder, "s").rename(path)
        Path(folder).rmdir()


def behind_a_link(path):
    """Put a symbolic link in the place of a file."""
    path.symlink_to(path.rename(path.with_name("target")))


class DeviceBuffer(Buffer):
    """Bytes in a memory that is not NumPy's, as that of a device; no subclass of zarr's own."""

    create_zero_length = from_buffer = combine = None

    @classmethod
    def from_bytes(cls, data):
        return cls(np.frombuffer(data, "u1"))

    def as_numpy_array(self):
        return self._data


DeviceBuffer.__abstractmethods__ = frozenset()


class DeviceNDBuffer(cpu.NDBuffer):
    is_brought = False  # from the memory of NumPy

    @classmethod
    def from_numpy_array(cls, array_like):
        found = cls(array_like)
        found.is_brought = True
        return found


DEVICE = BufferPrototype(DeviceBuffer, DeviceNDBuffer)
