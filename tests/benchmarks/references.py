"""Many chunks in one file, by kerchunk's references and VirtualiZarr's manifest, beside plain zarr.

    python tests/benchmarks/references.py

A file has 1,000 records of 65 kB, with bytes of other variables between them, as NetCDF-3 has them
with an unlimited dimension; and a row of 64 tiles that lie one behind the other, as in a TIFF. The
files are local, or behind a server that answers after 20 ms and sends 50 MB/s on each connection,
and 100 MB/s in all.
All contenders run in one process, page cache warm; figures are medians. "zarr alone" is a read of
zarr whose pipeline does nothing: its time and 10 ms are the bar of local series. That of remote
ones is 1.2 times the requests that were sent, in the best order. `--quick` is for a look.
"""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import obstore
import zarr
from benchmark import DEFAULT, NOTHING, OURS, THEIRS, values_of
from obspec_utils.registry import ObjectStoreRegistry
from pipeline import PIPELINE, Bar, Row, run
from slow_server import best, slow_server
from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import FsspecStore

import zarr_bytes

LATENCY, RATE, RATE_IN_ALL = 0.02, 50e6, 100e6
RECORDS, STEP = (1000, 100, 163), 65_400  # the step from record to record, of 65,200 bytes
TILES = (256, 64 * 256)  # of 256 x 256 numbers of float32
SERIES, ROW = "a series over 1,000 records", "a row of 64 tiles"
READS = {  # selection, shape, and shape of a chunk
    SERIES: (np.s_[:, 50, 60], RECORDS, (1, *RECORDS[1:])),
    ROW: (np.s_[:], TILES, (256, 256)),
}
OURS_WAY = {"codec_pipeline.path": "zarr_bytes.BatchedBytesPipeline", "codecs.bytes": OURS}
WAYS = {
    PIPELINE: OURS_WAY,
    "zarr": {"codec_pipeline.path": DEFAULT, "codecs.bytes": THEIRS},
    "zarr alone": {"codec_pipeline.path": NOTHING, "codecs.bytes": THEIRS},
}
PEERS = ("zarr-bytes", "numpy", "zarr", "fsspec", "virtualizarr", "obstore")


def document(shape, chunk_shape, zarr_format):
    """The metadata of an array of float32, big-endian."""
    if zarr_format == 2:
        return {
            "zarr_format": 2,
            "shape": shape,
            "chunks": chunk_shape,
            "dtype": ">f4",
            "order": "C",
            "fill_value": 0.0,
            "compressor": None,
            "filters": None,
        }
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
        "attributes": {},
    }


def kerchunk(url, shape, chunk_shape, offsets, zarr_format):
    """A store of references."""
    grid = [n // c for n, c in zip(shape, chunk_shape, strict=True)]
    separator = "." if zarr_format == 2 else "/"
    nbytes = 4 * int(np.prod(chunk_shape))
    references = {
        ("" if zarr_format == 2 else "c/") + separator.join(map(str, index)): [url, offset, nbytes]
        for index, offset in zip(np.ndindex(*grid), offsets, strict=True)
    }
    name = ".zarray" if zarr_format == 2 else "zarr.json"
    references[name] = json.dumps(document(shape, chunk_shape, zarr_format))
    options = {"fo": references, "remote_protocol": url.partition(":")[0], "asynchronous": True}
    if not url.startswith("file"):
        options["remote_options"] = {"asynchronous": True}
    return FsspecStore.from_url("reference://", storage_options=options, read_only=True)


def manifest(url, shape, chunk_shape, offsets):
    """A store of a manifest."""
    grid = [n // c for n, c in zip(shape, chunk_shape, strict=True)]
    chunks = ChunkManifest.from_arrays(
        paths=np.full(grid, url, np.dtypes.StringDType()),
        offsets=np.asarray(offsets, np.uint64).reshape(grid),
        lengths=np.full(grid, 4 * np.prod(chunk_shape), np.uint64),
    )
    metadata = ArrayV3Metadata.from_dict(document(shape, chunk_shape, 3))
    scheme, _, rest = url.partition("://")
    host = f"{scheme}://{rest.partition('/')[0]}"
    store = obstore.store.LocalStore()
    if scheme != "file":
        store = obstore.store.HTTPStore(host, client_options={"allow_http": True})
    registry = ObjectStoreRegistry()
    registry.register(host, store)
    array = ManifestArray(metadata=metadata, chunkmanifest=chunks)
    return ManifestStore(ManifestGroup(arrays={"a": array}), registry=registry)


def stores(url, shape, chunk_shape, offsets):
    """A function that makes the store of each kind, and the path of the array."""
    given = url, shape, chunk_shape, offsets
    yield "kerchunk, format 2", partial(kerchunk, *given, 2), ""
    yield "kerchunk, format 3", partial(kerchunk, *given, 3), ""
    yield "VirtualiZarr", partial(manifest, *given), "a"


def write_file(folder):
    """The file, and the offsets of its records and tiles."""
    records = values_of(RECORDS, "f4").astype(">f4")
    tiles = values_of(TILES, "f4").astype(">f4")
    offsets = [1000 + i * STEP for i in range(len(records))]
    with (folder / "a.nc").open("wb") as file:
        for record, offset in zip(records, offsets, strict=True):
            file.seek(offset)
            file.write(record.tobytes())
        first = file.tell()
        for i in range(64):
            file.write(tiles[:, i * 256 : (i + 1) * 256].tobytes())
    return offsets, [first + i * 4 * 256**2 for i in range(64)]


def rows(what, url, offsets, rounds, bar_of):
    selection, shape, chunk_shape = READS[what]
    values = values_of(shape, "f4")[selection]
    for name, make, path in stores(url, shape, chunk_shape, offsets):
        reads = {}
        for way, config in WAYS.items():
            with zarr.config.set(config):
                array = zarr.open_array(make(), path=path, mode="r")
            if way != "zarr alone":
                assert np.array_equal(array[selection], values), (name, way)
            reads[way] = partial(array.__getitem__, selection)
            if way == PIPELINE:
                with zarr_bytes.counting() as counted:
                    array[selection]
        times = rounds.in_turn(reads, 15)
        counts = (
            f"{counted.opens} opens, {counted.requests} requests, {counted.bytes_fetched} bytes"
        )
        yield Row(f"{what}, {name}: {counts}", times, [bar_of(times, counted)])


def local_bar(times, _):
    return Bar(1.0, "zarr alone and 10 ms", times["zarr alone"] + 0.01)


def remote_bar(times, counted):
    sizes = [counted.bytes_fetched // counted.requests] * counted.requests
    least = max(best(sizes, LATENCY, RATE), LATENCY + counted.bytes_fetched / RATE_IN_ALL)
    return Bar(1.2, "the best order", max(least, times["zarr alone"]))


def local(folder, rounds):
    """A series of a point, and whole tiles, of a local file."""
    records, tiles = write_file(folder)
    url = f"file://{folder}/a.nc"
    yield from rows(SERIES, url, records, rounds, local_bar)
    yield from rows(ROW, url, tiles, rounds, local_bar)


def remote(folder, rounds):
    """The same from a server."""
    records, tiles = write_file(folder)
    with slow_server(folder, LATENCY, RATE, RATE_IN_ALL) as server:
        url = f"{server.url}/a.nc"
        yield from rows(SERIES, url, records, rounds, remote_bar)
        yield from rows(ROW, url, tiles, rounds, remote_bar)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    run({"local": local, "remote": remote}, __doc__, PEERS)
