"""Four processes write into one chunk: what is lost, in bytes and seconds, with and without.

Every process has computed each fourth row of a picture, and writes row by row into an array that is
one chunk. zarr reads the whole chunk for a row, changes it and replaces it, so that the rows which
others wrote meanwhile are lost. With `zarr_bytes.partial_writes` the bytes of the row are written
where they belong.

    python examples/shared_chunk.py [--picture PATH]

Needs Linux for its count of bytes, and matplotlib for the picture.
"""

import argparse
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

import numpy as np
import zarr

HERE = Path(__file__).parent
PROCESSES = 4
SHAPE = (400, 600)  # one chunk, of 1.9 MB of float64
WAYS = {"without the setting": False, "zarr_bytes.partial_writes": True}

barrier = None  # of all processes that write; set in each


class Cost(NamedTuple):
    """What writing its rows cost a process."""

    read: int
    written: int
    begin: float
    end: float


def join(shared) -> None:
    """Let this process begin together with the others."""
    global barrier
    barrier = shared


def bytes_moved() -> tuple[int, int]:
    """Bytes that this process has read and written so far, as Linux counts them."""
    counters = Path("/proc/self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in counters)
    return int(counts["rchar"]), int(counts["wchar"])


def measured(write: Callable[[], None], wait: Callable[[], object]) -> Cost:
    """What `write` costs this process, when `wait` has let it begin together with the others."""
    wait()
    before, begin = bytes_moved(), monotonic()
    write()
    end, after = monotonic(), bytes_moved()
    return Cost(after[0] - before[0], after[1] - before[1], begin, end)


@contextmanager
def processes(count: int) -> Iterator[Callable[..., list[Cost]]]:
    """Processes that all call a function, each with its number, and give what it cost them."""
    spawn = multiprocessing.get_context("spawn")
    joined = {"initializer": join, "initargs": (spawn.Barrier(count),)}
    with ProcessPoolExecutor(count, spawn, **joined) as pool:

        def call(function: Callable[..., Cost], *arguments: object) -> list[Cost]:
            tasks = [pool.submit(function, number, *arguments) for number in range(count)]
            return [task.result() for task in tasks]

        yield call


def sums(costs: Iterable[Cost]) -> tuple[int, int, float]:
    """Bytes that all have read and written, and the seconds from the first to the last."""
    read, written, begins, ends = zip(*costs, strict=True)
    return sum(read), sum(written), max(ends) - min(begins)


def picture_rows(number: int) -> np.ndarray:
    """Rows `number`, `number` + 4, ... of the Mandelbrot set: how soon each point escapes."""
    y = np.linspace(-1.2, 1.2, SHAPE[0])[number::PROCESSES, np.newaxis]
    c = np.linspace(-2.3, 1.3, SHAPE[1]) + 1j * y
    z, steps = np.zeros_like(c), np.ones(c.shape)  # 0 is what has not been written
    for _ in range(60):
        z = np.where(abs(z) < 2, z * z + c, z)
        steps += abs(z) < 2
    return steps


def write_rows(number: int, folder: str, partial_writes: bool) -> Cost:  # noqa: FBT001
    """Write every fourth row, one at a time, together with the other processes."""
    rows = picture_rows(number)
    with zarr.config.set({"zarr_bytes.partial_writes": partial_writes}):
        array = zarr.open_array(folder, mode="r+")

    def write() -> None:
        for i, row in enumerate(rows):
            array[number + PROCESSES * i] = row

    return measured(write, barrier.wait)


def draw(found: dict[str, np.ndarray], titles: dict[str, str], path: Path) -> None:
    """Draw what the array holds after each way of writing, lost rows in white."""
    import matplotlib.pyplot as plt  # not at the top, which every process runs

    plt.style.use(HERE / "style.mplstyle")
    figure, both = plt.subplots(2, figsize=(5, 7.4))
    colours = plt.get_cmap("Blues").with_extremes(bad="white")
    for axes, (way, values) in zip(both, found.items(), strict=True):
        shown = np.ma.masked_equal(values, 0)
        axes.imshow(np.ma.log(shown), cmap=colours, vmin=-2, interpolation="nearest")
        axes.set_title(titles[way])
        axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Write the picture in both ways, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/shared_chunk.png")
    picture = parser.parse_args().picture

    expected = np.empty(SHAPE)
    for number in range(PROCESSES):
        expected[number::PROCESSES] = picture_rows(number)
    print(f"one chunk of {expected.nbytes:,} bytes, {SHAPE[0]} rows, {PROCESSES} processes")
    found, titles, lost, written = {}, {}, {}, {}
    with TemporaryDirectory() as folder, processes(PROCESSES) as call:
        for way, setting in WAYS.items():
            path = f"{folder}/{way}.zarr"
            zarr.create_array(path, shape=SHAPE, chunks=SHAPE, dtype="f8", compressors=None)
            costs = call(write_rows, path, setting)
            read, written[way], seconds = sums(costs)
            found[way] = zarr.open_array(path, mode="r")[...]
            is_there = (found[way] == expected).all(axis=1)
            if found[way][~is_there].any():
                raise SystemExit("a row is neither what was written nor missing")
            lost[way] = int((~is_there).sum())
            titles[way] = (
                f"{way}: {lost[way]} of {SHAPE[0]} rows lost\n"
                f"{read / 1e6:,.1f} MB read, {written[way] / 1e6:,.1f} MB written, {seconds:.2f} s"
            )
            print(
                f"{way:27}{lost[way]:>4} rows lost,{read:>12,} bytes read,"
                f"{written[way]:>12,} bytes written, {seconds:5.2f} s"
            )

    without, with_setting = WAYS
    if lost[with_setting]:
        raise SystemExit("with the setting, no row should have been lost")
    # Whoever comes second in making the chunk writes its row again, into the first's.
    again = written[with_setting] - expected.nbytes
    if not 0 <= again <= (PROCESSES - 1) * expected[0].nbytes:
        raise SystemExit("with the setting, every byte should have been written once")
    if not lost[without]:
        raise SystemExit("without the setting, rows should have been lost")
    draw(found, titles, picture)


if __name__ == "__main__":
    main()
