"""Reads from a server that answers late: this package, zarr, zarrs, zarrista and TensorStore.

    python tests/benchmarks/remote.py --picture tests/benchmarks/remote.png

A server on loopback answers after 30 ms and sends 50 MB/s on each connection; figures are medians
of three reads, or one read that takes more than a second. Every result is compared with NumPy's.
The bars of a row: the time of the ranges that the server has sent to this package, in the best
order, ten at a time; and the time that obstore takes for these ranges alone, ten at a time. What
the server says that it has sent is compared with what `explain` has said. The last two sections are
the measurements behind the remote defaults, also with 10 and 100 ms; `--quick` is for a look at
these. `--only` is for some of the sections. With `--picture`, the table of `docs/performance.md` is
written again, too, if the first two sections were measured. All takes some seven minutes, and ends
after fifteen at the latest.
"""

import asyncio
import faulthandler
import sys
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import zarr
from benchmark import DEFAULT, OURS, THEIRS, ZARRS, stored, values_of
from drawing import in_words
from obstore.store import HTTPStore
from pipeline import (
    PIPELINE,
    TENSORSTORE,
    Bar,
    Picture,
    Row,
    open_tensorstore,
    read_tensorstore,
    run,
)
from slow_server import SLOTS, best, joined, slow_server
from zarr.storage import FsspecStore, ObjectStore

import zarr_bytes

try:
    import zarrista
except ImportError:
    zarrista = None

LATENCY, RATE = 0.03, 50e6
OURS_WAY, THEIR_WAY = ("zarr_bytes.BatchedBytesPipeline", OURS), (DEFAULT, THEIRS)
WAYS = {
    f"{PIPELINE}, obstore": (OURS_WAY, "obstore"),
    f"{PIPELINE}, fsspec": (OURS_WAY, "fsspec"),
    "zarr, obstore": (THEIR_WAY, "obstore"),
    "zarr, fsspec": (THEIR_WAY, "fsspec"),
    "zarrs, obstore": ((ZARRS, THEIRS), "obstore"),
    "zarrs, fsspec": ((ZARRS, THEIRS), "fsspec"),
}
PEERS = ("zarr-bytes", "numpy", "zarr", "zarrs", "tensorstore", "obstore", "fsspec")
SMALL, NETCDF = "1,024 chunks of 32 KiB", "a NetCDF-3 file of 134 MB"
ARRAYS = {  # shape, chunk, data type, shard
    "one chunk of 134 MB": ((512, 512, 64), (512, 512, 64), "f8", {}),
    "four chunks of 33 MB": ((64, 1440, 360), (16, 1440, 360), "f4", {}),
    "two shards of 66 MB": ((16, 1440, 1440), (1, 360, 360), "f4", {"shards": (8, 1440, 1440)}),
    SMALL: ((1024, 64, 64), (1, 64, 64), "f8", {}),
}
SELECTIONS = {
    "point": np.s_[7, 30, 40],
    "plane": np.s_[7],
    "column": np.s_[:, 30, 40],
    "box": np.s_[4:60, 10:60],
    "whole": ...,
}
VARIABLE = (512, 256, 256)  # of float32 in a NetCDF-3 file, 134 MB
BEST, ALONE = "best order", "requests alone"
PAGE = Path(__file__).parents[2] / "docs/performance.md"
BEGIN, END = "<!-- written by tests/benchmarks/remote.py -->\n", "\n<!-- end -->"
PICTURE = Picture(
    "Reading over HTTP, 30 ms an answer,\n50 MB/s a connection",
    {
        "one chunk of 134 MB, column": "a column of one chunk of 134 MB",
        "one chunk of 134 MB, whole": "this chunk, whole",
        "two shards of 66 MB, plane": "a plane of a shard, 8.3 MB",
        "1,024 chunks of 32 KiB, column": "a column of 1,024 chunks",
    },
    (*WAYS, "zarrista", TENSORSTORE),
)


def store_at(url, client):
    if client == "fsspec":
        return FsspecStore.from_url(url, read_only=True)
    return ObjectStore(HTTPStore(url, client_options={"allow_http": True}), read_only=True)


def readers(url):
    """The arrays of this package, and a function of a selection for each contender."""
    arrays, found = {}, {}
    for name, ((pipeline, codec), client) in WAYS.items():
        with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
            array = zarr.open_array(store_at(url, client), mode="r")
        found[name] = array.__getitem__
        if name.startswith(PIPELINE):
            arrays[name] = array
    if zarrista is not None:
        found["zarrista"] = partial(read_zarrista, url)
    kvstore = {"driver": "http", "base_url": url, "path": "/"}
    found[TENSORSTORE] = partial(read_tensorstore, repeat(open_tensorstore(kvstore)))
    return arrays, found


def read_zarrista(url, selection):
    async def read():
        store = HTTPStore(url, client_options={"allow_http": True})
        array = await zarrista.AsyncArray.open(store)
        return (await array[selection]).to_numpy()

    found = asyncio.run(read())
    entries = selection if isinstance(selection, tuple) else (selection,)
    return found.squeeze(axis=tuple(i for i, entry in enumerate(entries) if isinstance(entry, int)))


def rows(server, arrays, reads, values, what):
    """A row for each selection, with the time of the best order as its bar."""
    for name, selection in SELECTIONS.items():
        if (what, name) == (SMALL, "whole"):
            continue  # its requests are those of the column
        expected, seconds = values[selection], {}
        for contender, read in reads.items():
            try:
                seconds[contender] = [timed(read, selection, expected)]
            except Exception as error:  # noqa: BLE001 -- a peer that cannot
                print(f"{contender}, {what}, {name}: {error!r:.100}")
                continue
            if contender in arrays:
                log, least = requests(server, arrays[contender], selection)
                alone = partial(alone_in_turn, server.url, log)
                seconds[contender] = []  # until now, no range was known to be answered
        of_requests = []
        for _ in range(3):
            of_requests.append(alone())
            for contender, some in seconds.items():
                if not some or (len(some) < 3 and some[0] < 1):
                    some.append(timed(reads[contender], selection, expected))
        times = {contender: median(some) for contender, some in seconds.items()}
        least = {BEST: least, ALONE: median(of_requests)}
        bars = [Bar(1.15, f"{kind} of {len(log)} requests", n) for kind, n in least.items()]
        yield Row(f"{what}, {name}", times, bars, least)


def timed(read, selection, expected):
    start = perf_counter()
    found = read(selection)
    seconds = perf_counter() - start
    assert np.array_equal(found, expected)
    return seconds


def requests(server, array, selection):
    """What is sent, which is what was explained, and the seconds of these ranges at best."""
    explained = zarr_bytes.explain(array, selection)
    server.log()
    array[selection]
    log = server.log()
    nbytes = sum(stop - start for _, start, stop in log["sent"])
    assert (explained.requests, explained.bytes_fetched) == (len(log["sent"]), nbytes)
    assert log["most"] <= SLOTS
    seconds = best(joined(log["sent"]), LATENCY, RATE)
    return log["sent"], seconds + LATENCY * (explained.kind == "shard")  # its index goes first


def alone_in_turn(url, ranges):
    """Seconds of ranges by obstore, ten at a time, without zarr, and without a result."""
    store, slots = HTTPStore(url, client_options={"allow_http": True}), asyncio.Semaphore(SLOTS)

    async def get(path, start, stop):
        async with slots:
            await store.get_range_async(path, start=start, end=stop)

    async def get_all():
        await asyncio.gather(*[get(*each) for each in ranges])

    start = perf_counter()
    asyncio.run(get_all())
    return perf_counter() - start


def arrays(folder, _):
    with slow_server(folder, LATENCY, RATE) as server:
        for i, (what, (shape, chunks, dtype, options)) in enumerate(ARRAYS.items()):
            stored(folder / str(i), shape, chunks, dtype, **options)
            ours, reads = readers(f"{server.url}/{i}")
            yield from rows(server, ours, reads, values_of(shape, dtype), what)


def netcdf(folder, _):
    """A variable of a NetCDF-3 file behind VirtualiZarr's store."""
    from obspec_utils.registry import ObjectStoreRegistry
    from scipy.io import netcdf_file
    from virtualizarr.parsers import NetCDF3Parser

    values = values_of(VARIABLE, "f4")
    with netcdf_file(folder / "a.nc", "w", version=2) as file:
        for name, size in zip("tyx", VARIABLE, strict=True):
            file.createDimension(name, size)
        file.createVariable("v", ">f4", tuple("tyx"))[:] = values
    with slow_server(folder, LATENCY, RATE) as server:
        client = HTTPStore(server.url, client_options={"allow_http": True})
        registry = ObjectStoreRegistry({server.url: client})
        store = NetCDF3Parser()(url=f"{server.url}/a.nc", registry=registry)
        found = {}
        for name, ((pipeline, codec), _) in {k: WAYS[k] for k in (*WAYS,)[:3:2]}.items():
            with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
                found[name] = zarr.open_group(store, mode="r", zarr_format=3)["v"]
        reads = {name: array.__getitem__ for name, array in found.items()}
        ours = {name: found[name] for name in found if name.startswith(PIPELINE)}
        yield from rows(server, ours, reads, values, NETCDF)


def empty(folder, shape):
    """An array of bytes in one chunk, of zeros that no disk has."""
    folder.mkdir()
    zarr.create_array(folder, shape=shape, chunks=shape, dtype="u1", compressors=None)
    path = folder.joinpath("c", *["0"] * len(shape))
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(int(np.prod(shape)))


def compared(folder, rounds, latency, shape, selection, settings):
    """Seconds of a selection with each of some settings, by name."""
    empty(folder / "a", shape)
    with slow_server(folder, latency, RATE) as server:
        array = zarr.open_array(store_at(f"{server.url}/a", "obstore"), mode="r")

        def read(setting):
            with zarr.config.set(setting):
                array[selection]

        read({})
        return rounds.in_turn({name: partial(read, some) for name, some in settings.items()}, 3)


def gap(folder, rounds):
    """Runs of 4 KiB with gaps: each by itself, and all with the gaps."""
    for latency in (0.01, 0.03, 0.1):
        for runs in (4, 64):
            for kibibytes in (32, 128, 256, 512, 2048):
                distance = kibibytes * 2**10
                settings = {"one by one": 0, "with the gaps": distance}
                settings = {k: {"zarr_bytes.gap.remote": v} for k, v in settings.items()}
                what = f"{latency * 1e3:.0f} ms, {runs} runs, gaps of {kibibytes} KiB"
                shape = runs, distance + 4096
                place = folder / what
                place.mkdir()
                times = compared(place, rounds, latency, shape, np.s_[:, :4096], settings)
                yield Row(what, times, [])


def size(folder, rounds):
    """One range, in requests of different sizes."""
    name = "zarr_bytes.largest_request.remote"
    for latency in (0.01, 0.03, 0.1):
        for mebibytes in (16, 128):
            settings = {f"{n} MiB": {name: n * 2**20} for n in (8, 2, 4, 16, 32, 64)}
            what = f"{latency * 1e3:.0f} ms, {mebibytes} MiB"
            place = folder / what
            place.mkdir()
            shape, selection = (2, mebibytes, 2**20), 0
            yield Row(what, compared(place, rounds, latency, shape, selection, settings), [])


def write(times):
    """Write the table of the page again, in milliseconds."""
    lines = [
        f"| read | {BEST} | {ALONE} | zarr-bytes, obstore | the fastest other |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row, seconds in times.items():
        names = BEST, ALONE, f"{PIPELINE}, obstore"
        others = {name: n for name, n in seconds.items() if not name.startswith((PIPELINE, *names))}
        other = min(others, key=others.get)
        shown = [in_words(1e3 * seconds[name]) for name in (*names, other)]
        lines.append(f"| {row} | {' | '.join(shown)} ({other}) |")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after, table = rest.partition(END)[2], "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8")


SECTIONS = {"arrays": arrays, "netcdf": netcdf, "gap": gap, "size": size}

if __name__ == "__main__":
    faulthandler.dump_traceback_later(900, exit=True)
    peers = PEERS if zarrista is None else (*PEERS, "zarrista")
    times = run(SECTIONS, __doc__, peers, PICTURE)
    of_reads = {name: found for name, found in times.items() if BEST in found}
    if "--picture" in sys.argv and {f"{SMALL}, point", f"{NETCDF}, point"} <= of_reads.keys():
        write(of_reads)
