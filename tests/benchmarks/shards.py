"""Shards of plain inner chunks beside zarr's two pipelines, zarrs, TensorStore and zarrista.

    python tests/benchmarks/shards.py --picture tests/benchmarks/shards.png

All contenders run in one process, page cache warm; figures are medians. They run in turn, except
for short reads and writes in place, which each contender repeats alone. All read the same files,
which zarr's own pipeline has written, unless a row says otherwise; each writes into an array of its
own. The peers that are pipelines of zarr have zarr's own codec. Below the figures of a row stand
its bars, as in `pipeline.py`; inner chunks one by one have none. A bar that is missed is out of
reach where it is less than the time of the system calls alone: of a whole array one `readinto` or
`write` a file, by a thread for each core; of a part, after a read of zarr whose pipeline does
nothing, one read for the index of each shard and one for each run of selected bytes with gaps of at
most a page.
zarrista is left out where it is not installed. `--quick` is for a look, and `--only` for some of
the sections. The section `orders` is the measurement behind the order of inner chunks in a shard.
"""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from math import prod
from shutil import rmtree
from statistics import geometric_mean

import numpy as np
import zarr
from benchmark import (
    DEFAULT,
    FUSED,
    NOTHING,
    OURS,
    THEIRS,
    ZARRS,
    opened,
    read_into,
    stored,
    values_of,
    write_from,
)
from obstore.store import HTTPStore
from pipeline import (
    ALONE,
    PEERS,
    PIPELINE,
    TENSORSTORE,
    ZARRS_OWN,
    Picture,
    Row,
    at_most,
    checked,
    end,
    readers,
    run,
    writers,
)
from slow_server import slow_server
from zarr.codecs import ShardingCodec
from zarr.storage import ObjectStore

from zarr_bytes import explain

try:
    from zarrista import Array
    from zarrista.store import FilesystemStore
except ImportError:
    Array = None

ZARRISTA = "zarrista"
OURS_WAY, THEIR_WAY = ("zarr_bytes.BatchedBytesPipeline", OURS), (DEFAULT, THEIRS)
WAYS = {  # as of `readers`
    PIPELINE: OURS_WAY,
    "zarr default": THEIR_WAY,
    "zarr fused": (FUSED, THEIRS),
    "zarrs": (ZARRS, THEIRS),
    TENSORSTORE: None,
}
THREADS = ThreadPoolExecutor(os.cpu_count())  # of the system calls alone

# Array, shard of 31.25 MiB of float64, inner chunk of 0.98 MiB.
SHAPES = (
    ((128, 256, 250), (64, 256, 250), (8, 64, 250)),
    ((125, 128, 512), (125, 128, 256), (125, 32, 32)),
)
KINDS = {  # byte order, shape, and who has written the shards
    "little-endian": ("little", 0, THEIR_WAY),
    "big-endian": ("big", 0, THEIR_WAY),
    "other shape": ("big", 1, THEIR_WAY),
    "laid out by zarr-bytes": ("big", 0, OURS_WAY),
}
WRITTEN = {kind: (endian, i) for kind, (endian, i, way) in KINDS.items() if way is THEIR_WAY}
READS = {
    "plane": np.s_[7],
    "row": np.s_[7, 100],
    "point": np.s_[7, 100, 200],
    "box": np.s_[5:25, 30:90, 100:200],
    "column": np.s_[:, 100, 200],
}
IN_TURN = ("plane", "box")
SMALL = SHAPES[0][1], (4, 16, 125)  # one shard of 512 inner chunks of 62.5 KiB
TWO, ONE = "two shards of 31 MiB", "512 inner chunks of 62 KiB"

MORTON, C_ORDER = "Morton order", "C order"
ORDERS = {MORTON: "morton", C_ORDER: "lexicographic"}  # as zarr's codec names them
CUT_IN_64 = {  # shape of an array of one shard of float64, and of its inner chunks
    "4 x 4 x 4 of 1 MiB": ((256, 256, 128), (64, 64, 32)),
    "4 x 4 x 4 of 64 KiB": ((128, 64, 64), (32, 16, 16)),
    "8 x 8 of 1 MiB": ((2048, 4096), (256, 512)),
    "8 x 8 of 64 KiB": ((512, 1024), (64, 128)),
}
PLACES = 6  # of a selection, which are read one after another and timed together
LATENCY, RATE = 0.03, 50e6  # of a server over HTTP

PICTURE = Picture(
    "Shards of 31 MiB, inner chunks of 0.98 MiB,\nbig-endian",
    {
        f"big-endian, {TWO}, whole": "two shards: all",
        f"big-endian, {TWO}, plane": "two shards: a plane",
        f"big-endian, {TWO}, point": "two shards: a point",
        f"big-endian, {ONE}, one by one": "512 inner chunks, one by one",
        f"big-endian, writing {TWO}": "writing two shards",
        f"big-endian, writing into {TWO}, row": "two shards: writing a row",
    },
    (*WAYS, ZARRISTA),
)


def main():
    if Array is None:
        print("zarrista is not installed, and is left out")
    run(SECTIONS, __doc__, PEERS if Array is None else (*PEERS, ZARRISTA), PICTURE)


def written(path, shape, shards, inner, endian, way):
    """A sharded array that `way` has written."""
    pipeline, codec = way
    with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
        return stored(path, shape, inner, endian=endian, shards=shards)


def all_readers(path):
    found = readers(path, WAYS)
    if Array is not None:
        found[ZARRISTA] = partial(read_zarrista, Array.open(FilesystemStore(path)))
    return found


def all_writers(folder, shape, shards, inner, endian):
    """A writer for each contender, and the arrays, one for each."""
    names = [*WAYS, *([] if Array is None else [ZARRISTA])]
    paths = {
        name: written(folder / name, shape, shards, inner, endian, THEIR_WAY) for name in names
    }
    found = writers(paths, WAYS)
    if Array is not None:
        theirs = Array.open(FilesystemStore(paths[ZARRISTA]))
        found[ZARRISTA] = partial(write_zarrista, theirs)
    return found, paths


def read_zarrista(array, selection):
    """`array[selection]` without the axes of integers, which zarrista keeps."""
    return array[selection].to_numpy().squeeze(axis=axes_of_integers(selection))


def write_zarrista(array, selection, values):
    """`array[selection] = values`."""
    array[selection] = np.expand_dims(values, axes_of_integers(selection))


def axes_of_integers(selection):
    entries = selection if isinstance(selection, tuple) else (selection,)
    return tuple(i for i, entry in enumerate(entries) if isinstance(entry, int))


def stored_places(path, shape, shards, inner):
    """The shards, the bytes of an index, and of each element the number of its shard and offset."""
    grid = [n // m for n, m in zip(shards, inner, strict=True)]
    index_nbytes = 16 * prod(grid) + 4  # offsets and sizes, and their checksum
    files = [file for file in path.glob("c/**/*") if file.is_file()]
    number, offset = (np.empty(shape, "i8") for _ in range(2))  # of the file, and in the file
    for i, file in enumerate(files):
        where = map(int, file.relative_to(path / "c").parts)
        shard = tuple(slice(j * n, j * n + n) for j, n in zip(where, shards, strict=True))
        content = file.read_bytes()
        starts = np.frombuffer(content[-index_nbytes:-4], "<u8")[::2].reshape(grid)
        starts = np.kron(starts, np.ones(inner, "u8"))  # of the inner chunk of each element
        within = 8 * np.arange(prod(inner)).reshape(inner)
        number[shard], offset[shard] = i, starts + np.tile(within, grid)
    return files, index_nbytes, number, offset


def system_calls(path, places, selection):
    """A read of zarr whose pipeline does nothing, and the positioned reads of a selection.

    Each reads a run of selected bytes in one shard; no value is looked at.
    """
    files, index_nbytes, number, offset = places
    calls, memory = [], memoryview(bytearray(2**20))
    for i, file in enumerate(files):
        offsets = np.sort(offset[selection][number[selection] == i])
        runs = np.split(offsets, np.flatnonzero(np.diff(offsets) > mmap.PAGESIZE) + 1)
        index = (memory[:index_nbytes], file.stat().st_size - index_nbytes)
        runs = [(memory[: run[-1] + 8 - run[0]], int(run[0])) for run in runs if run.size]
        calls.append((file, [index, *runs]))
    nothing = opened(path, NOTHING, THEIRS)

    def read():
        nothing[selection]
        for file, reads in calls:
            if len(reads) > 1:
                descriptor = os.open(file, os.O_RDONLY)
                for target, start in reads:
                    os.preadv(descriptor, [target], start)
                os.close(descriptor)

    return read


def reading(folder, rounds):
    peers = (TENSORSTORE, "zarrs")
    all_peers = peers if Array is None else (*peers, ZARRISTA)
    for kind, (endian, i, way) in KINDS.items():
        path = written(folder / kind, *SHAPES[i], endian, way)
        values, contenders = values_of(SHAPES[i][0]), all_readers(path)
        reads = checked(contenders, values, ...) | {ALONE: read_into(path, THREADS.map)}
        times = rounds.in_turn(reads, 21)
        yield Row(f"{kind}, {TWO}, whole", times, [at_most(times, 0.6, *all_peers)])
        places = stored_places(path, *SHAPES[i])
        for name, selection in READS.items():
            reads = checked(contenders, values, selection)
            reads[ALONE] = system_calls(path, places, selection)
            times = rounds.in_turn(reads, 51) if name in IN_TURN else rounds.alone(reads)
            yield Row(f"{kind}, {TWO}, {name}", times, [at_most(times, 1.0, *peers)])
        rmtree(path)


def inner_chunks(folder, rounds):
    """Each inner chunk by a read of its own."""
    shape, inner = SMALL
    steps = [[slice(i, i + n) for i in range(0, m, n)] for m, n in zip(shape, inner, strict=True)]
    selections = list(product(*steps))

    def one_by_one(read):
        for selection in selections:
            read(selection)

    for endian in ("little", "big"):
        path = written(folder / endian, shape, shape, inner, endian, THEIR_WAY)
        contenders = all_readers(path)
        checked(contenders, values_of(shape), selections[-1])
        reads = {name: partial(one_by_one, read) for name, read in contenders.items()}
        times = rounds.in_turn(reads, 11)
        yield Row(f"{endian}-endian, {ONE}, one by one", times, [])


def writing(folder, rounds):
    """Whole arrays over their old shards, each contender in an array of its own."""
    for kind, (endian, i) in WRITTEN.items():
        values = np.random.default_rng(1).random(SHAPES[i][0])
        found, paths = all_writers(folder, *SHAPES[i], endian)
        writes = {name: partial(write, ..., values) for name, write in found.items()}
        bare = written(folder / "bare", *SHAPES[i], endian, THEIR_WAY)
        # The system brings one contender's bytes to the disk before the next begins.
        writes[ALONE] = write_from(bare, THREADS.map)
        times = rounds.in_turn(writes, 7, os.sync)
        end(paths, values)
        rmtree(bare)
        bars = [at_most(times, 0.8, "zarr fused", "zarrs")]
        yield Row(f"{kind}, writing {TWO}", times, bars)


def in_place(folder, rounds):
    """A row, a point and a plane: in place with the setting, by replacing the shard otherwise."""
    for kind, (endian, i) in WRITTEN.items():
        shape = SHAPES[i][0]
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            found, paths = all_writers(folder, *SHAPES[i], endian)
        files = [file for file in paths[PIPELINE].glob("c/**/*") if file.is_file()]
        before = [file.stat().st_ino for file in files]
        values = values_of(shape)
        for name, factor in {"row": 1 / 50, "point": 1 / 50, "plane": 1 / 10}.items():
            selection = READS[name]
            part = -values[selection]
            values[selection] = part
            writes = {name: partial(write, selection, part) for name, write in found.items()}
            times = rounds.alone(writes, os.sync)  # a point that follows a sync waits for the disk
            row = f"{kind}, writing into {TWO}, {name}"
            yield Row(row, times, [at_most(times, factor, *ZARRS_OWN)])
        assert [file.stat().st_ino for file in files] == before, "a shard has been replaced"
        end(paths, values)


def other_rows(folder, rounds):
    """Rows by chance, whose plans are not kept, beside one row again and again."""
    for kind, (endian, i) in WRITTEN.items():
        path = written(folder / kind, *SHAPES[i], endian, THEIR_WAY)
        read, random = opened(path, *OURS_WAY).__getitem__, np.random.default_rng(0)
        chance = map(tuple, random.integers(0, SHAPES[i][0][:2], (10**6, 2)).tolist())
        reads = {"random rows": partial(next, map(read, chance)), "a row": partial(read, (7, 100))}
        times = rounds.alone(reads)
        yield Row(f"{kind}, {TWO}, random rows", times, [at_most(times, 1.2, "a row")])


def places_by_chance(shape, inner):
    """Selections of one shard by what they are, each at `PLACES` places by chance.

    A plane has one element along an axis, and a thick plane one inner chunk. A row has all elements
    along an axis and one along the others. A box has the size of two inner chunks along each axis.
    """
    random, axes = np.random.default_rng(0), range(len(shape))

    def element(axis):
        return int(random.integers(shape[axis]))

    def inner_chunk(axis):
        start = inner[axis] * int(random.integers(shape[axis] // inner[axis]))
        return slice(start, start + inner[axis])

    def two_inner_chunks(axis):
        start = int(random.integers(shape[axis] - 2 * inner[axis] + 1))
        return slice(start, start + 2 * inner[axis])

    def selections(entry_of, chosen):
        return [
            tuple(entry_of(axis) if axis in chosen else slice(None) for axis in axes)
            for _ in range(PLACES)
        ]

    found = {}
    for axis in axes:
        found["plane", f"axis {axis}"] = selections(element, {axis})
        found["thick plane", f"axis {axis}"] = selections(inner_chunk, {axis})
        if len(shape) > 2:
            found["row", f"axis {axis}"] = selections(element, {*axes} - {axis})
    found["box", ""] = selections(two_inner_chunks, {*axes})
    return found


def new_shard(order, path, values, inner, way):
    """An array of one shard that `way` writes with its inner chunks in `order`."""
    pipeline, codec = way
    serializer = ShardingCodec(chunk_shape=inner, subchunk_write_order=order)
    with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
        options = {"chunks": values.shape, "compressors": None, "serializer": serializer}
        return zarr.create_array(path, data=values, **options)


def read_each(array, selections):
    for selection in selections:
        array[selection]


def write_each(array, selections, parts):
    for selection, part in zip(selections, parts, strict=True):
        array[selection] = part


def with_each(arrays, function, *arguments):
    """The calls of a function with each of the arrays, by their names."""
    return {name: partial(function, array, *arguments) for name, array in arrays.items()}


def explained(array, selections):
    """Opens, ranges and bytes of reads of local files, as `explain` counts them."""
    found = [explain(array, selection) for selection in selections]
    names = ("opens", "ranges", "bytes_fetched")
    opens, ranges, nbytes = (sum(getattr(each, name) for each in found) for name in names)
    return f"{opens} opens, {ranges} ranges, {nbytes:,} bytes"


def sent(server, array, selections):
    """Requests and bytes that the server counts."""
    server.log()
    read_each(array, selections)
    log = server.log()["sent"]
    return f"{len(log)} requests, {sum(stop - start for _, start, stop in log):,} bytes"


def orders(folder, rounds):
    """Shards of 64 inner chunks in Morton order and in C order.

    They are read from local files and over HTTP, written in place, and written whole. The rows at
    the end have the geometric means over all shapes and axes.
    """
    all_times = {}
    with slow_server(folder, LATENCY, RATE) as server:
        for i, (kind, (shape, inner)) in enumerate(CUT_IN_64.items()):
            values = values_of(shape)
            local, remote, changed, whole = {}, {}, {}, {}
            for name, order in ORDERS.items():
                key = f"{i}/{order}"
                new_shard(order, folder / key, values, inner, THEIR_WAY)
                store = HTTPStore(f"{server.url}/{key}", client_options={"allow_http": True})
                local[name] = opened(folder / key, *OURS_WAY)
                remote[name] = zarr.open_array(ObjectStore(store, read_only=True), mode="r")
                with zarr.config.set({"zarr_bytes.partial_writes": True}):
                    changed[name] = opened(folder / key, *OURS_WAY, mode="r+")
                array = new_shard(order, folder / f"{key} whole", values, inner, OURS_WAY)
                whole[name] = partial(array.__setitem__, ..., values)
            times = rounds.in_turn(whole, 21, os.sync)
            all_times.setdefault(("whole shard", "written"), []).append(times)
            yield Row(f"{kind}, written whole", times, [])
            for (what, axis), selections in places_by_chance(shape, inner).items():
                parts = [values[selection] for selection in selections]
                for array in (*local.values(), *remote.values()):
                    for selection, part in zip(selections, parts, strict=True):
                        assert np.array_equal(array[selection], part)
                measured = {
                    "local": rounds.alone(with_each(local, read_each, selections)),
                    "30 ms": rounds.in_turn(with_each(remote, read_each, selections), 5),
                    "written in place": rounds.alone(
                        with_each(changed, write_each, selections, parts)
                    ),
                }
                for name in ORDERS:
                    counted = explained(local[name], selections)
                    print(f"\n{name}: {counted}; {sent(server, remote[name], selections)}")
                for way, times in measured.items():
                    all_times.setdefault((what, way), []).append(times)
                    yield Row(f"{kind}, {what}, {axis}, {way}", times, [])
    for (what, way), found in all_times.items():
        means = {name: geometric_mean([times[name] for times in found]) for name in ORDERS}
        yield Row(f"{what}, {way}, mean of all", means, [at_most(means, 1.1, C_ORDER)])


SECTIONS = {
    "reading": reading,
    "rows": other_rows,
    "inner": inner_chunks,
    "writing": writing,
    "place": in_place,
    "orders": orders,
}

if __name__ == "__main__":
    main()
