"""Speed of writing to local disk, against zarr's own codec, zarrs, TensorStore and numpy.memmap.

    python tests/benchmarks/writing.py --picture tests/benchmarks/writing.png

Two chunks of 125 MiB of float64, page cache warm, with `zarr_bytes.partial_writes`. All contenders
run in one process, each in an array of its own; figures are medians. "memmap" is the assignment to
an open `numpy.memmap` of the whole array. Below the figures of a row stand its bars, as in
`pipeline.py`. `--quick` is for a look, and `--only` for some of the sections.

Selections are written by each contender in a loop of its own. What has been written is on the disk
before each loop: a small write would else wait while the system stores the 250 MiB of a peer.
"""

import os
from functools import partial

import numpy as np
import zarr
from benchmark import DEFAULT, LARGE, OURS, THEIRS, ZARRS, stored, values_of
from pipeline import PEERS, PIPELINE, TENSORSTORE, Bar, Picture, Row, at_most, end, run, writers

WAYS = {  # as of `pipeline.readers`; what zarrs does not write itself goes to zarr's pipeline
    PIPELINE: ("zarr_bytes.BatchedBytesPipeline", OURS),
    "zarr default": (DEFAULT, THEIRS),
    "zarrs": (ZARRS, THEIRS),
    TENSORSTORE: None,
}
MEMMAP = "memmap"
CHUNK = (18, *LARGE[1:])
SELECTIONS = {  # and how many times faster than each peer the write is to be
    "row": (np.s_[7, 500], 100),
    "plane": (np.s_[7], 40),
    "column": (np.s_[:, 500, 300], 20),
    "box": (np.s_[5:10, 200:300, 400:500], 100),
    "point": (np.s_[7, 500, 300], 100),
    "stepped": (np.s_[::3, ::7, ::5], 20),
}
PICTURE = Picture(
    "Writing into two chunks of 125 MiB, big-endian\nfloat64, local disk",
    {
        "big-endian, row": "a row: [i, j]",
        "big-endian, plane": "a plane: [i]",
        "big-endian, column": "a column: [:, j, k]",
        "big-endian, stepped": "steps: [::3, ::7, ::5]",
    },
    (*WAYS, MEMMAP),
)


def main():
    with zarr.config.set({"zarr_bytes.partial_writes": True}):
        run(SECTIONS, __doc__, PEERS, PICTURE)


def selections(folder, rounds):
    for endian in ("little", "big"):
        values = values_of(LARGE)
        paths = {name: stored(folder / name, LARGE, CHUNK, endian=endian) for name in WAYS}
        dtype = np.dtype("f8").newbyteorder(endian)
        mapped = np.memmap(folder / MEMMAP, dtype, "w+", shape=LARGE)
        mapped[...] = values
        found = writers(paths, WAYS) | {MEMMAP: mapped.__setitem__}
        for name, (selection, factor) in SELECTIONS.items():
            values[selection] = part = -values[selection]
            writes = {each: partial(write, selection, part) for each, write in found.items()}
            times = rounds.alone(writes, os.sync)
            bars = [at_most(times, 1 / factor, peer) for peer in WAYS if peer != PIPELINE]
            if name == "row":
                bars.append(Bar(1, "(3 x memmap + 0.5 ms)", 3 * times[MEMMAP] + 0.5e-3))
            yield Row(f"{endian}-endian, {name}", times, bars)
        end(paths, values)


def first_row(folder, rounds):
    """The first row of a new chunk of a gibibyte, which takes the disk of that row."""
    shape = (16384, 8192)  # rows of 64 KiB
    paths = {name: folder / name for name in WAYS}
    for path in paths.values():
        zarr.create_array(path, shape=shape, chunks=shape, dtype="f8", compressors=None)
    row, chunks = np.ones(shape[1]), {name: path / "c/0/0" for name, path in paths.items()}
    writes = {name: partial(write, 7, row) for name, write in writers(paths, WAYS).items()}

    def remove():
        for chunk in chunks.values():
            chunk.unlink(missing_ok=True)

    times = rounds.in_turn(writes, 3, remove)
    yield Row("first row of a new GiB", times, [Bar(1, "10 ms", 10e-3)])
    remove()
    for name, write in writes.items():
        write()
        nbytes = chunks[name].stat().st_blocks * 512
        print(f"    on disk: {name} {nbytes:,} bytes")
        assert name != PIPELINE or nbytes <= 2**20


def column(folder, rounds):
    """A million runs of 8 bytes, in one chunk of 122 MiB."""
    shape = (10**6, 16)
    for endian in ("little", "big"):
        values = values_of(shape)
        paths = {name: stored(folder / name, shape, shape, endian=endian) for name in WAYS}
        part = values[:, 5].copy()
        found = writers(paths, WAYS).items()
        times = rounds.in_turn({each: partial(w, np.s_[:, 5], part) for each, w in found}, 3)
        bars = [at_most(times, 1.5, "zarr default")]  # which writes the whole chunk
        yield Row(f"{endian}-endian, column of a million rows", times, bars)
        end(paths, values)


SECTIONS = {"selections": selections, "new": first_row, "column": column}

if __name__ == "__main__":
    main()
