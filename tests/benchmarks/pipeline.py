"""`zarr_bytes.BatchedBytesPipeline` beside zarr's two pipelines, zarrs and TensorStore.

    python tests/benchmarks/pipeline.py --picture tests/benchmarks/pipeline.png
    python tests/benchmarks/pipeline.py --only large --picture tests/benchmarks/reading.png

All contenders run in one process, page cache warm; figures are medians. They run in turn, except
for small reads, which each contender repeats alone. Below the figures of a row stand its bars: what
the pipeline's time is divided by, the quotient, and what it may be. Every result is compared with
NumPy's before it is timed. "System calls alone" are one `readinto` of each file, after a read of
zarr whose pipeline does nothing: a bar below them is out of reach. `--quick` is for a look, and
`--only` for some of the sections.
"""

import argparse
import os
import sys
import tempfile
import zipfile
from collections import Counter
from functools import partial
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import NamedTuple

import numpy as np
import tensorstore
import zarr
import zarrs  # noqa: F401 -- the peer
from benchmark import (
    DEFAULT,
    FUSED,
    LARGE,
    NOTHING,
    OURS,
    THEIRS,
    ZARRS,
    in_words,
    medians,
    medians_alone,
    opened,
    read_into,
    stored,
    values_of,
)
from drawing import save
from zarr.codecs import TransposeCodec
from zarr.storage import FsspecStore, LocalStore, WrapperStore, ZipStore

PIPELINE, TENSORSTORE, ALONE = "zarr-bytes pipeline", "TensorStore", "system calls alone"
PEERS = ("zarr-bytes", "numpy", "zarr", "zarrs", "tensorstore")
CONTENDERS = {  # zarr's pipelines with this package's codec, and with zarr's own
    PIPELINE: ("zarr_bytes.BatchedBytesPipeline", OURS),
    "zarr-bytes, default": (DEFAULT, OURS),
    "zarr-bytes, fused": (FUSED, OURS),
    "zarr default": (DEFAULT, THEIRS),
    "zarr fused": (FUSED, THEIRS),
    "zarrs": (ZARRS, OURS),
}
ZARRS_OWN = ("zarr default", "zarr fused")
NO_CACHE = {"cache_pool": {"total_bytes_limit": 0}}  # it reads the file each time, as the others do

# Each measurement is made of the first shape in both byte orders, and of the second in big-endian.
KINDS = {"little-endian": ("little", 0), "big-endian": ("big", 0), "other shape": ("big", 1)}
SMALL = ((1024, 32), (1, 32), "f8"), ((256, 256), (8, 8), "f4")
MIDDLING = ((64 * 8192,), (8192,), "f8"), ((256, 128, 64), (32, 32, 32), "i2")
PART_OF_48 = np.s_[5000 : 5000 + 48 * 8192], np.s_[5:180, 10:120, 7:60]
TWO_LARGE = (LARGE, (18, *LARGE[1:]), "f8"), ((250, 256, 512), (250, 256, 256), "f8")
LARGE_READS = {  # and the bar, times zarrs
    "plane": (np.s_[7], 1.0),
    "row": (np.s_[7, 200], 1.0),
    "point": (np.s_[7, 200, 300], 1.0),
    "box": (np.s_[5:10, 100:200, 200:300], 1.0),
    "column": (np.s_[:, 200, 300], 1.1),
    "last axis": (np.s_[:, :, 300], 2.0),
}
TRANSPOSED = ((18, 1000, 910), (2, 1, 0)), ((250, 256, 256), (1, 2, 0))  # one chunk of 125 MiB
TRANSPOSED_READS = {
    "last axis": np.s_[:, :, 200],
    "point": np.s_[7, 200, 200],
    "column": np.s_[:, 200, 200],
}
BETWEEN = ("row", "column", "box")
IN_TURN = ("plane", "last axis")  # of two large chunks; the other reads are too short for that
MANY = (16384, 32)
UNITS = {"ms": 1e3, "us": 1e6}  # in a second


class Picture(NamedTuple):
    """What is drawn: rows, by what the picture calls them, whose times, and in which unit."""

    title: str
    rows: dict[str, str]
    contenders: tuple[str, ...]
    unit: str = "ms"
    file: str = ""  # its name; that of the first picture may be any


PICTURE = Picture(
    "This package's pipeline and its peers,\nbig-endian",
    {
        "big-endian, 1,024 chunks of 256 B": "1,024 chunks of 256 B: all",
        "big-endian, 64 chunks of 64 KiB": "64 chunks of 64 KiB: all",
        "big-endian, two chunks of 125 MiB, whole": "2 chunks of 125 MiB: all",
        "big-endian, two chunks of 125 MiB, point": "2 chunks of 125 MiB: a point",
        "big-endian, two chunks of 125 MiB, last axis": "2 chunks of 125 MiB: [:, :, k]",
        "big-endian, transposed chunk of 125 MiB, point": "a transposed chunk: a point",
        "big-endian, writing two chunks of 125 MiB": "writing 2 chunks of 125 MiB",
    },
    (PIPELINE, *ZARRS_OWN, "zarrs", TENSORSTORE),
)
OF_LARGE_CHUNKS = Picture(
    "Reading from two chunks of 125 MiB, big-endian\nfloat64, local disk",
    {
        "big-endian, two chunks of 125 MiB, whole": "the whole array",
        "big-endian, two chunks of 125 MiB, plane": "a plane: [i]",
        "big-endian, two chunks of 125 MiB, row": "a row: [i, j]",
        "big-endian, two chunks of 125 MiB, column": "a column: [:, j, k]",
        "big-endian, two chunks of 125 MiB, last axis": "a plane: [:, :, k]",
    },
    (PIPELINE, "zarr default", "zarrs", TENSORSTORE),
    file="reading.png",
)


class Bar(NamedTuple):
    """The first contender's time is at most `factor` times `seconds`, those of `whom`."""

    factor: float
    whom: str
    seconds: float


class Row(NamedTuple):
    """Seconds of each contender, and what is asked of the first.

    A bar below those of the system calls alone, if these were measured, is out of reach.
    """

    name: str
    times: dict[str, float]
    bars: list[Bar]


def main():
    run(SECTIONS, __doc__, PEERS, PICTURE, OF_LARGE_CHUNKS)


def run(sections, description, packages, *pictures):
    """Measure what the command line asks for: print every row, and draw those of a picture."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="draw some of the rows into this file")
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    options = parser.parse_args()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    print(f"Python {sys.version.split()[0]}, {versions}, {os.cpu_count()} cores")
    start, words, times = perf_counter(), Counter(), {}
    for section in options.only:
        with tempfile.TemporaryDirectory() as folder:
            for row in sections[section](Path(folder), Rounds(quick=options.quick)):
                words.update(show(row))
                times[row.name] = row.times
    counts = ", ".join(f"{count} {word}" for word, count in words.items())
    print(f"\nbars: {counts}; {perf_counter() - start:.0f} s")
    if options.picture:
        named = [picture for picture in pictures if picture.file == options.picture.name]
        draw(times, *(named or pictures)[:1], options.picture)
    return times


def draw(times, picture, path):
    """Draw the rows of a picture that were measured."""
    measured = {}
    for name, heading in picture.rows.items():
        found = times.get(name, {})
        if shown := [contender for contender in picture.contenders if contender in found]:
            measured[heading] = {each: UNITS[picture.unit] * found[each] for each in shown}
    save(picture.title, picture.unit, measured, path)
    print(f"picture: {path}")


def show(row):
    """Print a row and its bars; whether each of them holds, in a word or three."""
    print(f"\n{row.name}")
    print("   ", ", ".join(f"{name} {in_words(s).strip()}" for name, s in row.times.items()))
    ours = next(iter(row.times.values()))
    words = []
    for bar in row.bars:
        allowed = bar.factor * bar.seconds
        reached = "MISSED" if allowed >= row.times.get(ALONE, 0) else "out of reach"
        words.append("hold" if ours <= allowed else reached)
        found = f"{ours / bar.seconds:6.3f} of {bar.factor:.3g} x {bar.whom}"
        print(f"    {words[-1]:12} {found}", flush=True)
    return words


def at_most(times, factor, *peers):
    """A bar: `factor` times the fastest of `peers`."""
    fastest = min(peers, key=times.__getitem__)
    return Bar(factor, fastest, times[fastest])


class Rounds:
    """How often everything is measured; at least three times, whatever that takes."""

    def __init__(self, *, quick):
        self.seconds = {"in turn": 1, "alone": 0.03} if quick else {"in turn": 10, "alone": 0.1}
        self.loops = 1 if quick else 3

    def in_turn(self, contenders, rounds, setup=None):
        """The contenders one after another, up to `rounds` times."""
        start = perf_counter()
        medians(1, warm_up=0, setup=setup, **contenders)
        affordable = int(self.seconds["in turn"] / (perf_counter() - start))
        return medians(max(3, min(rounds, affordable)), warm_up=0, setup=setup, **contenders)

    def alone(self, contenders, setup=None):
        """Each contender in six loops of its own, forwards and backwards through the list.

        The best of their medians: for a second or two, processors that are shared with others may
        take half as long again.
        """
        backwards = dict(reversed(contenders.items()))
        loops = [
            medians_alone(setup, lasting=self.seconds["alone"], **order)
            for order in (contenders, backwards) * self.loops
        ]
        return {name: min(loop[name] for loop in loops) for name in contenders}


def reading(path, values, selection=..., names=(*CONTENDERS, TENSORSTORE)):
    """A function for each contender that reads `selection` of an array of `values`."""
    ways = {name: CONTENDERS.get(name) for name in names}
    return checked(readers(path, ways), values, selection)


def checked(readers, values, selection):
    """`readers` of one `selection`, each of which has read it as NumPy does."""
    for name, read in readers.items():
        assert np.array_equal(read(selection), values[selection]), name
    return {name: partial(read, selection) for name, read in readers.items()}


def readers(path, ways):
    """A function of a selection for each contender.

    `ways` has the pipeline and the codec of each, and None for TensorStore.
    """
    found = {}
    for name, way in ways.items():
        if way is None:
            # Two, each with a cache of its own: one frees its last chunk while the other reads.
            kvstore = {"driver": "file", "path": f"{path}/"}
            theirs = cycle([open_tensorstore(kvstore), open_tensorstore(kvstore)])
            found[name] = partial(read_tensorstore, theirs)
        else:
            found[name] = opened(path, *way).__getitem__
    return found


def writers(paths, ways):
    """A function of a selection and its values for each contender; ways as of `readers`."""
    found = {}
    for name, way in ways.items():
        if way is None:
            theirs = open_tensorstore({"driver": "file", "path": f"{paths[name]}/"})
            found[name] = partial(write_tensorstore, theirs)
        else:
            found[name] = opened(paths[name], *way, mode="r+").__setitem__
    return found


def array_of(kind):
    shape, _, dtype = kind
    return values_of(shape, dtype)


def open_tensorstore(kvstore, metadata=None):
    spec = {"driver": "zarr3", "kvstore": kvstore}
    options = {"open": True, "context": tensorstore.Context(NO_CACHE)}
    if metadata is not None:
        spec["metadata"], options["assume_metadata"] = metadata, True
    return tensorstore.open(spec, **options).result()


def read_tensorstore(arrays, selection):
    return next(arrays)[selection].read().result()


def write_tensorstore(array, selection, values):
    array[selection].write(values).result()


def small_chunks(folder, rounds):
    for kind, (endian, i) in KINDS.items():
        for what, spec, count, *factors in (
            ("1,024 chunks of 256 B", SMALL[i], 15, ("zarrs", 0.7), (TENSORSTORE, 1.5)),
            ("64 chunks of 64 KiB", MIDDLING[i], 31, ("zarrs", 0.8)),
        ):
            path, values = stored(folder / f"{what} {kind}", *spec, endian), array_of(spec)
            reads = reading(path, values) | {ALONE: system_calls(path)}
            times = rounds.in_turn(reads, count)
            bars = [at_most(times, factor, peer) for peer, factor in factors]
            yield Row(f"{kind}, {what}", times, bars)
        times = rounds.in_turn(reading(path, values, PART_OF_48[i]), 31)
        yield Row(f"{kind}, {what}, a part of 48", times, [at_most(times, 0.9, "zarrs")])


def system_calls(path):
    """A read of zarr whose pipeline does nothing, and one `readinto` of each file."""
    nothing, read = opened(path, NOTHING, THEIRS), read_into(path)
    return lambda: (nothing[...], read())


def many_chunks(folder, rounds):
    """What a chunk costs where there are many: 16,384 times that of 1,024, for each of them."""
    for endian in ("little", "big"):
        times = {}
        for shape in (SMALL[0][0], MANY):
            path = stored(folder / f"{endian} {shape[0]}", shape, (1, 32), endian=endian)
            reads = reading(path, values_of(shape), names=(PIPELINE, "zarrs", TENSORSTORE))
            times[shape] = rounds.in_turn(reads, 7 if shape is MANY else 15)
        fewer, more = times.values()
        each = more[PIPELINE] / MANY[0], fewer[PIPELINE] / SMALL[0][0][0]
        what = "the time of 16 times 1,024 chunks ({:.1f} and {:.1f} us a chunk)"
        what = what.format(*(1e6 * seconds for seconds in each))
        bars = [Bar(1.2, what, MANY[0] * each[1])]
        yield Row(f"{endian}-endian, 16,384 chunks of 256 B", more, bars)


def large_chunks(folder, rounds):
    for kind, (endian, i) in KINDS.items():
        path, values = stored(folder / kind, *TWO_LARGE[i], endian), array_of(TWO_LARGE[i])
        what = f"{kind}, two chunks of 125 MiB"
        times = rounds.in_turn(reading(path, values) | {"readinto": read_into(path)}, 7)
        bars = [at_most(times, 0.6, "zarrs"), at_most(times, 0.4, TENSORSTORE)]
        if i == 0:  # the chunks of the other lie side by side, where no `readinto` can put them
            bars.insert(0, at_most(times, 1.15, "readinto"))
        yield Row(f"{what}, whole", times, bars)
        for name, (selection, factor) in LARGE_READS.items():
            reads = reading(path, values, selection)
            times = rounds.in_turn(reads, 11) if name in IN_TURN else rounds.alone(reads)
            yield Row(f"{what}, {name}", times, [at_most(times, factor, "zarrs")])
        rmtree(path)


def between(folder, rounds):
    """Small reads of large chunks, with 250 MiB of another array read before each."""
    paths = [stored(folder / name, *TWO_LARGE[0]) for name in ("read", "other")]
    names, values = (PIPELINE, "zarrs"), array_of(TWO_LARGE[0])
    other = reading(paths[1], values, names=names)["zarrs"]
    for name in BETWEEN:
        selection, _ = LARGE_READS[name]
        times = rounds.in_turn(reading(paths[0], values, selection, names), 41, other)
        yield Row(f"{name}, 250 MiB read in between", times, [at_most(times, 0.9, "zarrs")])


def transposed_chunk(folder, rounds):
    for kind, (endian, i) in KINDS.items():
        shape, order = TRANSPOSED[i]
        filters = [TransposeCodec(order=order)]
        path = stored(folder / kind, shape, shape, endian=endian, filters=filters)
        values = values_of(shape)
        what = f"{kind}, transposed chunk of 125 MiB"
        for name, selection in TRANSPOSED_READS.items():
            times = rounds.alone(reading(path, values, selection))
            bars = [at_most(times, 1 / 20, *ZARRS_OWN), at_most(times, 1.3, "zarrs")]
            yield Row(f"{what}, {name}", times, bars)
        times = rounds.in_turn(reading(path, values), 5)
        yield Row(f"{what}, whole", times, [at_most(times, 1.0, *ZARRS_OWN)])
        rmtree(path)


def writing(folder, rounds):
    """Whole arrays over their old chunks, each contender in an array of its own."""
    arrays = {
        "1,024 chunks of 256 B": (SMALL[0], 7, None),
        "64 chunks of 64 KiB": (MIDDLING[0], 15, None),
        # The system brings one contender's bytes to the disk before the next begins.
        "two chunks of 125 MiB": (TWO_LARGE[0], 5, os.sync),
    }
    for endian in ("little", "big"):
        for what, ((shape, chunks, dtype), count, setup) in arrays.items():
            values = np.random.default_rng(1).random(shape, dtype)
            ways = {**CONTENDERS, TENSORSTORE: None}
            paths = {name: stored(folder / name, shape, chunks, dtype, endian) for name in ways}
            writes = {
                name: partial(write, ..., values) for name, write in writers(paths, ways).items()
            }
            times = rounds.in_turn(writes, count, setup)
            end(paths, values)
            bars = [at_most(times, 0.95, *ZARRS_OWN)]
            yield Row(f"{endian}-endian, writing {what}", times, bars)


def end(paths, values):
    """Compare what every contender has written with `values`, and delete it."""
    for name, path in paths.items():
        assert np.array_equal(zarr.open_array(path, mode="r")[...], values), name
        rmtree(path)


def gap(folder, rounds):
    """400 runs of 512 bytes in a local file, read with the gaps between them or one by one."""

    for kibibytes in (4, 8, 16, 32, 64, 128):
        path, shape = stored_runs(folder, kibibytes)
        array = opened(path, *CONTENDERS[PIPELINE])
        yield gap_row(f"runs of 512 B with gaps of {kibibytes} KiB", array, shape, rounds)


def asked(folder, rounds):
    """The same runs, of local stores that are asked for each range; and requests of other sizes."""
    for kibibytes in (16, 32, 64, 128, 256, 512, 1024):
        path, shape = stored_runs(folder, kibibytes)
        memory = FsspecStore.from_url(f"memory://{kibibytes}")
        with zipfile.ZipFile(f"{path}.zip", "w") as archive:
            for file in ("zarr.json", "c/0/0"):
                archive.write(path / file, file)
                memory.fs.sync_fs.pipe_file(f"{kibibytes}/{file}", (path / file).read_bytes())
        stores = {
            "zip": ZipStore(f"{path}.zip"),
            "wrapper": WrapperStore(LocalStore(path)),
            "fsspec memory": memory,
        }
        for kind, store in stores.items():
            array = opened(store, *CONTENDERS[PIPELINE])
            name = f"{kind}, runs of 512 B with gaps of {kibibytes} KiB"
            yield gap_row(name, array, shape, rounds)
            if kibibytes == 128:
                yield largest_request_row(f"{kind}, a chunk of 62 MiB", array, rounds)
        memory.fs.sync_fs.store.clear()


def largest_request_row(name, array, rounds):
    def read(size):
        with zarr.config.set({"zarr_bytes.largest_request.local": size}):
            array[...]

    reads = {
        f"in {mebibytes} MiB": partial(read, mebibytes * 2**20) for mebibytes in (4, 16, 32, 64)
    }
    return Row(name, rounds.in_turn(reads, 21), [])


def stored_runs(folder, kibibytes):
    """An array of 500 rows in one chunk, and its shape; a run is at the start of a row."""
    shape = (500, kibibytes * 2**10 + 512)
    return stored(folder / f"{kibibytes}", shape, shape, "u1"), shape


def gap_row(name, array, shape, rounds):
    def read(size):
        with zarr.config.set({"zarr_bytes.gap.local": size}):
            array[:400, :512]

    reads = {"with gaps": partial(read, shape[1]), "one by one": partial(read, 0)}
    return Row(name, rounds.in_turn(reads, 21), [])


SECTIONS = {
    "small": small_chunks,
    "many": many_chunks,
    "large": large_chunks,
    "between": between,
    "transposed": transposed_chunk,
    "writing": writing,
    "gap": gap,
    "asked": asked,
}

if __name__ == "__main__":
    main()
