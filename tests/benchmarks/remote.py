"""Reads from a server that answers late: this package, zarr, zarrs, zarrista and TensorStore.

    python tests/benchmarks/remote.py --picture tests/benchmarks/remote.png

A server on loopback answers after 30 ms and sends 50 MB/s on each connection. Each contender reads
in a process of its own; figures are medians of three reads, or one read that takes more than a
second; results are compared with NumPy's, and what the server has sent with `explain`. The bars of
a row: the ranges sent to this package in the best order, ten at a time or 32 small ones, and by
obstore alone. The last two sections are the measurements behind the remote defaults, also with 10
and 100 ms. With `--picture`, the table of `docs/performance.md` is written again, too, if the first
two sections were measured. All takes some eleven minutes, and ends after twenty.
"""

import asyncio
import faulthandler
import multiprocessing
import os
import sys
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from itertools import product, repeat
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import zarr
from benchmark import DEFAULT, OURS, THEIRS, ZARRS, stored, values_of
from drawing import in_words
from obspec_utils.registry import ObjectStoreRegistry
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
from scipy.io import netcdf_file
from slow_server import SLOTS, SMALL_SLOTS, best, joined, slow_server
from virtualizarr.parsers import NetCDF3Parser
from zarr.storage import FsspecStore, ObjectStore

import zarr_bytes

try:
    import zarrista
except ImportError:
    zarrista = None

LATENCY, RATE = 0.03, 50e6
LATENCIES = (0.01, LATENCY, 0.1)
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
    NETCDF: ((512, 256, 256), (), "f4", {}),
}
SELECTIONS = {
    "point": np.s_[7, 30, 40],
    "plane": np.s_[7],
    "column": np.s_[:, 30, 40],
    "box": np.s_[4:60, 10:60],
    "whole": ...,
}
BEST, ALONE = "best order", "requests alone"
PAGE = Path(__file__).parents[2] / "docs/performance.md"
BEGIN, END = "<!-- written by tests/benchmarks/remote.py -->\n", "\n<!-- end -->"
Place = namedtuple("Place", "what url")  # an array, and where it is on the server
PICTURE = Picture(
    "Reading over HTTP, 30 ms an answer,\n50 MB/s a connection",
    {
        "one chunk of 134 MB, column": "one chunk of 134 MB: a column",
        "one chunk of 134 MB, whole": "one chunk of 134 MB: all",
        "two shards of 66 MB, plane": "a shard of 66 MB: a plane",
        "1,024 chunks of 32 KiB, column": "1,024 small chunks: a column",
    },
    (*WAYS, "zarrista", TENSORSTORE),
)


def http(url):
    return HTTPStore(url, client_options={"allow_http": True})


def store_at(url, client):
    if client == "fsspec":
        return FsspecStore.from_url(url, read_only=True)
    return ObjectStore(http(url), read_only=True)


@cache
def opened(name, place):
    """The array as a contender opens it."""
    if name == TENSORSTORE:
        return open_tensorstore({"driver": "http", "base_url": place.url, "path": "/"})
    (pipeline, codec), client = WAYS[name]
    with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
        if place.what != NETCDF:
            return zarr.open_array(store_at(place.url, client), mode="r")
        server = place.url.rpartition("/")[0]
        registry = ObjectStoreRegistry({server: http(server)})
        store = NetCDF3Parser()(url=place.url, registry=registry)
        return zarr.open_group(store, mode="r", zarr_format=3)["v"]


def read(name, place, selection):
    if name == TENSORSTORE:
        return read_tensorstore(repeat(opened(name, place)), selection)
    if name == "zarrista":
        return read_zarrista(place.url, selection)
    return opened(name, place)[selection]


def read_zarrista(url, selection):
    async def read():
        array = await zarrista.AsyncArray.open(http(url))
        return (await array[selection]).to_numpy()

    found = asyncio.run(read())
    entries = selection if isinstance(selection, tuple) else (selection,)
    return found.squeeze(axis=tuple(i for i, entry in enumerate(entries) if isinstance(entry, int)))


def in_a_process(processes, name):
    """A function that calls others in a new process, with the name of the contender in front."""
    context = multiprocessing.get_context("spawn")
    pool = processes.enter_context(ProcessPoolExecutor(1, mp_context=context))
    return lambda function, *arguments: pool.submit(function, name, *arguments).result()


def rows(server, place, names):
    """A row for each selection, with the time of the best order as its bar."""
    with ExitStack() as processes:
        calls = {name: in_a_process(processes, name) for name in (*names, server.url)}
        alone = calls.pop(server.url)
        for name, selection in SELECTIONS.items():
            if (place.what, name) == (SMALL, "whole"):
                continue  # its requests are those of the column
            seconds, of_requests = {}, []
            for contender, call in calls.items():
                try:
                    seconds[contender] = [call(timed, place, selection)]
                except Exception as error:  # noqa: BLE001 -- a peer that cannot
                    print(f"{contender}, {place.what}, {name}: {error!r:.100}")
                    continue
                if contender.startswith(PIPELINE):
                    log, least = requests(server, call, place, selection)
                    seconds[contender] = []  # until now, no range was known to be answered
            for _ in range(3):
                of_requests.append(alone(alone_in_turn, log))
                for contender, some in seconds.items():
                    if not some or (len(some) < 3 and some[0] < 1):
                        some.append(calls[contender](timed, place, selection))
            times = {contender: median(some) for contender, some in seconds.items()}
            least = {BEST: least, ALONE: median(of_requests)}
            bars = [Bar(1.15, f"{kind} of {len(log)} requests", n) for kind, n in least.items()]
            yield Row(f"{place.what}, {name}", times | least, bars)


def timed(name, place, selection):
    start = perf_counter()
    found = read(name, place, selection)
    seconds = perf_counter() - start
    shape, _, dtype, _ = ARRAYS[place.what]
    assert np.array_equal(found, values_of(shape, dtype)[selection])
    return seconds


def explained(name, place, selection):
    found = zarr_bytes.explain(opened(name, place), selection)
    return (found.requests, found.bytes_fetched), found.kind


def requests(server, call, place, selection):
    """What is sent, which is what was explained, and the seconds of these ranges at best."""
    expected, kind = call(explained, place, selection)
    server.log()
    call(timed, place, selection)
    log = server.log()
    assert expected == (len(log["sent"]), sum(stop - start for _, start, stop in log["sent"]))
    assert log["most"] <= SMALL_SLOTS
    seconds = best(joined(log["sent"]), LATENCY, RATE)
    return log["sent"], seconds + LATENCY * (kind == "shard")  # its index goes first


def alone_in_turn(url, ranges):
    """Seconds of ranges by obstore, without zarr and a result: ten at a time, or 32 small ones."""
    are_small = all(stop - start < 2**20 for _, start, stop in ranges)
    store, slots = http(url), asyncio.Semaphore(SMALL_SLOTS if are_small else SLOTS)

    async def get(path, start, stop):
        async with slots:
            await store.get_range_async(path, start=start, end=stop)

    async def get_all():
        await asyncio.gather(*[get(*each) for each in ranges])

    start = perf_counter()
    asyncio.run(get_all())
    return perf_counter() - start


def arrays(folder, _):
    names = (*WAYS, *["zarrista"] * (zarrista is not None), TENSORSTORE)
    with slow_server(folder, LATENCY, RATE) as server:
        for i, (what, (shape, chunks, dtype, options)) in enumerate([*ARRAYS.items()][:-1]):
            stored(folder / str(i), shape, chunks, dtype, **options)
            yield from rows(server, Place(what, f"{server.url}/{i}"), names)


def netcdf(folder, _):
    """A variable of a NetCDF-3 file behind VirtualiZarr's store."""
    shape, _, dtype, _ = ARRAYS[NETCDF]
    with netcdf_file(folder / "a.nc", "w", version=2) as file:
        for name, size in zip("tyx", shape, strict=True):
            file.createDimension(name, size)
        file.createVariable("v", ">f4", tuple("tyx"))[:] = values_of(shape, dtype)
    with slow_server(folder, LATENCY, RATE) as server:
        yield from rows(server, Place(NETCDF, f"{server.url}/a.nc"), (*WAYS,)[:3:2])


def compared(folder, rounds, latency, shape, selection, settings):
    """Seconds of a selection of one chunk of bytes with each of some settings, by name."""
    zarr.create_array(folder, shape=shape, chunks=shape, dtype="u1", compressors=None)
    path = folder.joinpath("c", *["0"] * len(shape))
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, prod(shape))  # zeros that no disk has
    with slow_server(folder, latency, RATE) as server:
        array = zarr.open_array(store_at(server.url, "obstore"), mode="r")

        def read(setting):
            with zarr.config.set(setting):
                array[selection]

        read({})
        return rounds.in_turn({name: partial(read, some) for name, some in settings.items()}, 3)


def gap(folder, rounds):
    """Runs of 4 KiB with gaps: each by itself, and all with the gaps."""
    for latency, runs, kibibytes in product(LATENCIES, (4, 64), (32, 128, 256, 512, 2048)):
        distance, name = kibibytes * 2**10, "zarr_bytes.gap.remote"
        settings = {"one by one": {name: 0}, "with the gaps": {name: distance}}
        what = f"{latency * 1e3:.0f} ms, {runs} runs, gaps of {kibibytes} KiB"
        shape, selection = (runs, distance + 4096), np.s_[:, :4096]
        yield Row(what, compared(folder / what, rounds, latency, shape, selection, settings), [])


def size(folder, rounds):
    """One range, in requests of different sizes."""
    name = "zarr_bytes.largest_request.remote"
    for latency, mebibytes in product(LATENCIES, (16, 128)):
        settings = {f"{n} MiB": {name: n * 2**20} for n in (8, 2, 4, 16, 32, 64)}
        what = f"{latency * 1e3:.0f} ms, {mebibytes} MiB"
        shape = 2, mebibytes, 2**20
        yield Row(what, compared(folder / what, rounds, latency, shape, 0, settings), [])


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
    faulthandler.dump_traceback_later(1200, exit=True)
    times = run(SECTIONS, __doc__, (*PEERS, *["zarrista"] * (zarrista is not None)), PICTURE)
    of_reads = {name: found for name, found in times.items() if BEST in found}
    if "--picture" in sys.argv and {f"{SMALL}, point", f"{NETCDF}, point"} <= of_reads.keys():
        write(of_reads)
