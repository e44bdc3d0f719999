"""One chunk, written by four processes: rows lost, bytes and seconds, with zarr-bytes and without.

Each process computes every fourth row of a picture, and writes row by row into an array of one
chunk. For each row, zarr reads the whole chunk, changes it and replaces it, and rows that other
processes wrote in between are lost. With `zarr_bytes.partial_writes`, only the bytes of the row are
written.

    python examples/shared_chunk.py [--picture PATH]

Needs Linux for its count of bytes, and matplotlib for the picture.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import gallery
import numpy as np
import zarr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROCESSES = 4
SHAPE = (400, 600)  # one chunk, of 1.9 MB of float64
WAYS = {  # zarr's configuration
    "plain zarr": gallery.PLAIN_ZARR,
    "zarr_bytes.partial_writes": {"zarr_bytes.partial_writes": True},
}
LOST = "#d9822b"

barrier = None  # of all writing processes; set in each of them


class Cost(NamedTuple):
    """Bytes moved by a process that writes its rows, and when it began and ended."""

    read: int
    written: int
    begin: float
    end: float


def join(shared) -> None:
    """Let this process begin together with the others."""
    global barrier
    barrier = shared


def measured(write: Callable[[], None], wait: Callable[[], object]) -> Cost:
    """Cost of `write` in this process, which begins together with the others, after `wait`."""
    wait()
    before, begin = gallery.counters(), monotonic()
    write()
    end, after = monotonic(), gallery.counters()
    return Cost(*gallery.bytes_between(before, after), begin, end)


@contextmanager
def processes(count: int) -> Iterator[Callable[..., list[Cost]]]:
    """Function that calls another in all of `count` processes, and returns their costs."""
    spawn = multiprocessing.get_context("spawn")
    joined = {"initializer": join, "initargs": (spawn.Barrier(count),)}
    with ProcessPoolExecutor(count, spawn, **joined) as pool:

        def call(function: Callable[..., Cost], *arguments: object) -> list[Cost]:
            tasks = [pool.submit(function, number, *arguments) for number in range(count)]
            return [task.result() for task in tasks]

        yield call


def sums(costs: Iterable[Cost]) -> tuple[int, int, float]:
    """Bytes that all processes read and wrote, and seconds from the first to the last."""
    read, written, begins, ends = zip(*costs, strict=True)
    return sum(read), sum(written), max(ends) - min(begins)


def picture_rows(number: int) -> np.ndarray:
    """Rows `number`, `number` + 4, ... of the Mandelbrot set: how soon each point escapes."""
    y = np.linspace(-1.2, 1.2, SHAPE[0])[number::PROCESSES, np.newaxis]
    c = np.linspace(-2.3, 1.3, SHAPE[1]) + 1j * y
    z, steps = np.zeros_like(c), np.ones(c.shape)  # 0 marks unwritten points
    for _ in range(60):
        z = np.where(abs(z) < 2, z * z + c, z)
        steps += abs(z) < 2
    return steps


def write_rows(number: int, folder: str, way: str) -> Cost:
    """Write every fourth row, one at a time, together with the other processes."""
    rows = picture_rows(number)
    with zarr.config.set(WAYS[way]):
        array = zarr.open_array(folder, mode="r+")

    def write() -> None:
        for i, row in enumerate(rows):
            array[number + PROCESSES * i] = row

    return measured(write, barrier.wait)


def draw(found: dict[str, np.ndarray], titles: dict[str, str]) -> "Figure":
    """Draw the array after each way of writing, with lost rows in orange."""
    from matplotlib import colormaps  # not at the top, which every process runs

    figure, both = gallery.new_figure(2, figsize=(5, 7.4))
    colours = colormaps["Blues"].with_extremes(bad=LOST)
    for axes, (way, values) in zip(both, found.items(), strict=True):
        shown = np.ma.log(np.ma.masked_equal(values, 0))
        axes.imshow(shown, cmap=colours, vmin=-2, interpolation="nearest")
        axes.set_title(titles[way])
        axes.set_axis_off()
    return figure


def row(who: str, way: str, lost: str, costs: Iterable[Cost]) -> dict[str, str]:
    """A row of the table: the cost of writing."""
    read, written, seconds = sums(costs)
    return {
        "writers": who,
        "with": way if way == "plain zarr" else f"`{way}`",
        "lost": lost,
        "read": gallery.in_size(read),
        "written": gallery.in_size(written),
        "time": gallery.in_time(seconds),
    }


def title(way: str, cells: dict[str, str]) -> str:
    """Text of a row of the table, for the picture."""
    return f"{way}: {cells['lost']} lost\n{cells['written']} written, {cells['time']}"


def main() -> None:
    """Write the picture in both ways."""
    picture = gallery.picture_path(__doc__)
    expected = np.empty(SHAPE)
    for number in range(PROCESSES):
        expected[number::PROCESSES] = picture_rows(number)
    print(f"one chunk of {expected.nbytes:,} bytes, {SHAPE[0]} rows, {PROCESSES} processes")
    found, titles, table = {}, {}, []
    with TemporaryDirectory() as folder, processes(PROCESSES) as call:
        for way in WAYS:
            path = f"{folder}/{way}.zarr"
            zarr.create_array(path, shape=SHAPE, chunks=SHAPE, dtype="f8", compressors=None)
            costs = call(write_rows, path, way)
            found[way] = zarr.open_array(path, mode="r")[...]
            is_there = (found[way] == expected).all(axis=1)
            if found[way][~is_there].any():
                raise SystemExit("a row is neither missing nor as it was written")
            lost = int((~is_there).sum())
            if (way == "plain zarr") != (lost > 0):
                raise SystemExit(f"{way}: {lost} rows lost")
            table.append(row(f"{PROCESSES} processes", way, f"{lost} of {SHAPE[0]} rows", costs))
            titles[way] = title(way, table[-1])
    # A process that makes the chunk a moment after another writes its first row again.
    again = sums(costs)[1] - expected.nbytes
    if not 0 <= again <= (PROCESSES - 1) * expected[0].nbytes:
        raise SystemExit("with the setting, every byte should have been written once")
    gallery.finish(draw(found, titles), table, picture)


if __name__ == "__main__":
    main()
