"""`zarr_bytes.view` beside numpy.memmap, zarr, zarrs, zarrista, HDF5 and TensorStore.

    python tests/benchmarks/view.py --picture tests/benchmarks/view.png

Samples are drawn at random from an array of 78 MiB, page cache warm, in one process; figures are
medians. Points and rows one by one are short, and each contender repeats them alone; for the others
the contenders run in turn. `numpy.memmap` maps a file of the same elements without
chunks, which for the first shape are the bytes of its one chunk; HDF5 is one contiguous dataset,
read by h5py. Every result is compared with NumPy's before it is timed. Below the figures of a row
stand its bars, as in `pipeline.py`. zarrista is left out where it is not installed. `--quick` is
for a look, and `--only` for some of the sections.
"""

from functools import partial
from itertools import cycle

import h5py
import numpy as np
import zarr
from benchmark import ZARRS, opened, stored, values_of
from pipeline import (
    PIPELINE,
    TENSORSTORE,
    Picture,
    Row,
    at_most,
    open_tensorstore,
    read_tensorstore,
    run,
)
from shards import FUSED, OURS_WAY, THEIR_WAY, THEIRS, ZARRISTA, Array, FilesystemStore

import zarr_bytes

VIEW, MEMMAP, HDF5 = "zarr-bytes view", "numpy.memmap", "HDF5 contiguous"
WAYS = {
    PIPELINE: OURS_WAY,
    "zarr default": THEIR_WAY,
    "zarr fused": (FUSED, THEIRS),
    "zarrs": (ZARRS, THEIRS),
}
PEERS = ("zarr-bytes", "numpy", "zarr", "zarrs", "h5py", "tensorstore")
# Shape, chunk, data type, byte order; a row of each has 4 KiB.
KINDS = {
    "one chunk": ((20_000, 512), (20_000, 512), "f8", "little"),
    "eight chunks, big-endian": ((20_000, 32, 32), (2_500, 32, 32), "f4", "big"),
}
CALLS, GATHERED = 1_000, 10_000
WHOLE = ("zarr default", "zarr fused", TENSORSTORE)  # which read whole chunks: fewer calls do

PICTURE = Picture(
    "Samples drawn at random,\nfrom eight big-endian chunks",
    {
        "eight chunks, big-endian, a point": "a point",
        "eight chunks, big-endian, a row": "a row of 4 KiB",
        "eight chunks, big-endian, 10,000 rows at once": "10,000 rows at once",
    },
    (VIEW, MEMMAP, *WAYS, ZARRISTA, HDF5, TENSORSTORE),
    "us",
)


def main():
    run(SECTIONS, __doc__, PEERS if Array is None else (*PEERS, ZARRISTA), PICTURE)


def arrays_of(folder, kind):
    """The elements, and for each contender what is selected from."""
    shape, chunk, dtype, endian = KINDS[kind]
    values = values_of(shape, dtype)
    folder.mkdir()
    path = stored(folder / "array", shape, chunk, dtype, endian)
    order = {"little": "<", "big": ">"}[endian] + dtype
    values.astype(order).tofile(folder / "bare")
    with h5py.File(folder / "contiguous.h5", "w") as file:
        file.create_dataset("array", data=values.astype(order))
    found = {
        VIEW: zarr_bytes.view(zarr.open_array(path, mode="r")),
        MEMMAP: np.memmap(folder / "bare", order, mode="r", shape=shape),
        **{name: opened(path, *way) for name, way in WAYS.items()},
    }
    if Array is not None:
        found[ZARRISTA] = Array.open(FilesystemStore(path))
    found[HDF5] = h5py.File(folder / "contiguous.h5", "r")["array"]
    # Two in turn, as in `pipeline.readers`.
    kvstore = {"driver": "file", "path": f"{path}/"}
    found[TENSORSTORE] = cycle([open_tensorstore(kvstore), open_tensorstore(kvstore)])
    return values, found


def one_by_one(name, array, selections, result):
    """A function that puts each selection into its place of `result`."""

    def by_subscript():
        for i, selection in enumerate(selections):
            result[i] = array[selection]

    def by_zarrista():
        for i, selection in enumerate(selections):
            result[i] = array[selection].to_numpy().reshape(result.shape[1:])

    def by_tensorstore():
        for i, selection in enumerate(selections):
            result[i] = read_tensorstore(array, selection)

    return {ZARRISTA: by_zarrista, TENSORSTORE: by_tensorstore}.get(name, by_subscript)


def drawn(rounds, values, arrays, selections):
    """Seconds of a selection of each contender, drawn one by one."""
    reads, calls = {}, {}
    for name, array in arrays.items():
        some = selections[: 3 if name in WHOLE else None]
        expected = np.stack([values[selection] for selection in some])
        result = np.zeros_like(expected)
        reads[name], calls[name] = one_by_one(name, array, some, result), len(some)
        reads[name]()
        assert np.array_equal(result, expected), name
    times = rounds.alone(reads)
    return {name: seconds / calls[name] for name, seconds in times.items()}


def points(folder, rounds):
    for kind in KINDS:
        values, arrays = arrays_of(folder / kind, kind)
        random = np.random.default_rng(0)
        selections = [*map(tuple, random.integers(0, values.shape, (CALLS, values.ndim)).tolist())]
        times = drawn(rounds, values, arrays, selections)
        bars = [at_most(times, 6, MEMMAP)]
        bars += [at_most(times, 0.5, ZARRISTA)] if ZARRISTA in times else []
        yield Row(f"{kind}, a point", times, bars)


def rows(folder, rounds):
    """A row after another, each copied into its place in a batch."""
    for kind in KINDS:
        values, arrays = arrays_of(folder / kind, kind)
        selections = np.random.default_rng(0).integers(0, len(values), CALLS).tolist()
        times = drawn(rounds, values, arrays, selections)
        yield Row(f"{kind}, a row", times, [at_most(times, 0.5, ZARRISTA)] if Array else [])


def gathered(folder, rounds):
    """Rows in any order by one array of integers, for those who take one."""
    for kind in KINDS:
        values, arrays = arrays_of(folder / kind, kind)
        indices = np.random.default_rng(0).integers(0, len(values), GATHERED)
        reads = {name: partial(arrays[name].__getitem__, indices) for name in (VIEW, MEMMAP, *WAYS)}
        reads[TENSORSTORE] = partial(read_tensorstore, arrays[TENSORSTORE], indices)
        for name, read in reads.items():
            assert np.array_equal(read(), values[indices]), name
        times = rounds.in_turn(reads, 21)
        yield Row(f"{kind}, 10,000 rows at once", times, [at_most(times, 1.3, MEMMAP)])


SECTIONS = {"points": points, "rows": rows, "gathered": gathered}

if __name__ == "__main__":
    main()
