"""Helpers of the examples: counts of bytes, tables, and pictures that contain their tables.

    python examples/gallery

runs all examples one after another, draws their pictures into `examples/pictures`, and writes their
tables into `examples/README.md`, the README and the front page of the site.
"""

import argparse
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import zarr

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXAMPLES = Path(__file__).parents[1]
PLAIN_ZARR = {  # zarr's configuration without zarr-bytes
    "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
    "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
}
WAYS = {"plain zarr": PLAIN_ZARR, "zarr-bytes": {}}
HEADLINE, HEADLINE_ROW = "netcdf3", "a series at one point"  # shown on the front pages
GREY, BLUE = "#7b8087", "#2f86c9"

Table = list[dict[str, str]]  # rows; each has a cell for every column


class Cost(NamedTuple):
    """Bytes and seconds of a read."""

    nbytes: int
    seconds: float

    @property
    def in_bytes(self) -> str:
        """The bytes as text; only Linux counts the bytes of files."""
        return f"{self.nbytes:,} bytes" if self.nbytes >= 0 else "not counted"


def compare(
    open_array: Callable[[], zarr.Array],
    selections: dict[str, object],
    expected: np.ndarray,
    ways: dict[str, dict[str, str]] = WAYS,
) -> dict[str, dict[str, Cost]]:
    """Cost of each selection of an array each way; exits if values differ from NumPy's."""
    arrays = {}
    for way, configuration in ways.items():
        with zarr.config.set(configuration):
            arrays[way] = open_array()
    costs = {}
    for what, selection in selections.items():
        reads = {way: partial(values_of, array, selection) for way, array in arrays.items()}
        for way, read in reads.items():
            if not np.array_equal(read(), expected[selection]):
                raise SystemExit(f"{what}, {way}: the values differ from NumPy's")
        costs[what] = costs_in_turn(reads)
    return costs


def values_of(array: zarr.Array, selection: object) -> np.ndarray:
    """Values of a selection, as a NumPy array."""
    return np.asarray(array[selection])


def costs_in_turn(reads: dict[str, Callable[[], object]], times: int = 5) -> dict[str, Cost]:
    """Bytes of each read, as Linux counts them, and median seconds of reads in turn."""
    for read in reads.values():
        read()  # the first read also reads modules that it imports
    seconds, counts = {way: [] for way in reads}, {way: [] for way in reads}
    for _ in range(times):
        for way, read in reads.items():
            before = counters()
            started = perf_counter()
            read()
            seconds[way].append(perf_counter() - started)
            counts[way].append(bytes_between(before, counters())[0])
    return {way: Cost(min(counts[way]), median(seconds[way])) for way in reads}


def cost(read: Callable[[], object], times: int = 5) -> Cost:
    """Cost of one read, as in `costs_in_turn`."""
    return costs_in_turn({"": read}, times)[""]


def counters() -> str:
    """Linux's counters of this process, as text; empty on other systems."""
    file = Path("/proc/self/io")
    return file.read_text() if file.exists() else ""


def bytes_between(before: str, after: str) -> tuple[int, int]:
    """Bytes read and written between two readings of the counters; -1 without counters."""
    if not before:
        return -1, -1
    read, written, read_later, written_later = map(
        int, re.findall(r"^[rw]char: (\d+)", before + after, re.MULTILINE)
    )
    return read_later - read - len(before), written_later - written  # without the first reading


def compared(selection: str, costs: dict[str, Cost]) -> dict[str, str]:
    """A row of a table: the cost of a selection each way."""
    row = {"selection": selection}
    for way, found in costs.items():
        row |= {f"{way} reads": found.in_bytes, f"{way} takes": in_time(found.seconds)}
    return row


def in_time(seconds: float) -> str:
    """Seconds or milliseconds as text, with one digit after the point if it is small."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1e3 * seconds:.{0 if seconds >= 0.01 else 1}f} ms"


def in_size(nbytes: float) -> str:
    """Bytes, kB or MB as text, with one digit after the point if it is small."""
    units = (("MB", 1e6), ("kB", 1e3), ("bytes", 1))
    unit, size = next(((unit, size) for unit, size in units if nbytes >= size), ("byte", 1))
    digits = f"{nbytes / size:.{0 if nbytes >= 10 * size else 1}f}".removesuffix(".0")
    return f"{digits} {'byte' if digits == '1' and size == 1 else unit}"


@contextmanager
def dask_client() -> Iterator["Client"]:
    """Client of four Dask workers, each a process with one thread."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=4,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.ERROR,  # it warns of workers that are slow to end
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def new_figure(*rows_and_columns: int, **options: object) -> tuple["Figure", "Axes"]:
    """A figure in the style of the gallery, and its axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.style.use(EXAMPLES / "style.mplstyle")
    return plt.subplots(*rows_and_columns, **options)


def draw_costs(
    axes: "Axes",
    costs: dict[str, dict[str, Cost]],
    label: str = "bytes read",
    of: Literal["nbytes", "seconds"] = "nbytes",
) -> None:
    """Draw the bytes or seconds of each selection both ways, on a logarithmic scale."""
    text_of = in_size if of == "nbytes" else in_time
    beside = {"xytext": (7, 0), "va": "center", "color": GREY}
    above = {"xytext": (-4, 6), "color": BLUE}  # to the right, clear of the axis
    for y, selection in enumerate(costs.values()):
        plain, ours = (getattr(selection[way], of) for way in WAYS)
        axes.plot([ours, plain], [y, y], color=GREY, lw=0.8, alpha=0.5, zorder=0)
        axes.plot(plain, y, "o", ms=9, color=GREY, label=None if y else "plain zarr")
        axes.plot(ours, y, "o", ms=6, color=BLUE, label=None if y else "zarr-bytes")
        for amount, place in ((plain, beside), (ours, above)):
            if place is beside or ours < 0.9 * plain:  # one text if both are alike
                axes.annotate(text_of(amount), (amount, y), textcoords="offset points", **place)
    axes.set_yticks(range(len(costs)), list(costs))
    axes.set_ylim(len(costs) - 0.6, -0.8)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 3, high * 10)  # room for the texts
    ticks = (1, 1e2, 1e4, 1e6, 1e8) if of == "nbytes" else (1e-3, 1e-2, 1e-1, 1)
    axes.set_xticks([tick for tick in ticks if low / 3 < tick < high])
    axes.xaxis.set_major_formatter(lambda amount, _: text_of(amount))
    axes.minorticks_off()
    axes.set_xlabel(f"{label} (logarithmic)")


def picture_path(doc: str) -> Path:
    """Path of the picture, from the command line of an example; `doc` is its docstring."""
    name = Path(sys.argv[0]).with_suffix(".png").name
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=EXAMPLES / "output" / name)
    return parser.parse_args().picture


def finish(figure: "Figure", table: Table, path: Path) -> None:
    """Print the table, and save the picture with the table in it."""
    print(as_text(table))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Figures": json.dumps(table)})
    print(f"picture: {path}")


def as_text(table: Table) -> str:
    """A table for a terminal."""
    lines = [list(table[0]), *([cell.replace("`", "") for cell in row.values()] for row in table)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        f"{first:<{widths[0]}}"
        + "".join(f"  {c:>{w}}" for c, w in zip(rest, widths[1:], strict=True))
        for first, *rest in lines
    )


def as_markdown(table: Table) -> str:
    """A table for a page."""
    head = "| " + " | ".join(table[0]) + " |"
    line = "| --- |" + " ---: |" * (len(table[0]) - 1)
    return "\n".join([head, line, *("| " + " | ".join(row.values()) + " |" for row in table)])


def as_headline(table: Table) -> str:
    """The row of the front pages, with a line for each way."""
    row = next(row for row in table if row["selection"] == HEADLINE_ROW)
    lines = ["| | bytes fetched | time |", "| --- | ---: | ---: |"]
    for name, way in {"zarr": "plain zarr", "zarr with zarr-bytes": "zarr-bytes"}.items():
        nbytes = row[f"{way} reads"].removesuffix(" bytes")
        lines.append(f"| {name} | {nbytes} | {row[f'{way} takes']} |")
    return "\n".join(lines)
