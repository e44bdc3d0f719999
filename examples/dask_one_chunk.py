"""Dask workers read blocks of an array that is one huge chunk: bytes and seconds, with and without.

Plain zarr fetches the whole chunk for every block of it, so four workers with 16 blocks read the
array 16 times. With zarr-bytes the bytes of each block are read.

    python examples/dask_one_chunk.py [--picture PATH]

Needs dask[distributed], Linux for its count of bytes, and matplotlib for the picture.
"""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import dask.array
import gallery
import numpy as np
import zarr
from distributed import Client, LocalCluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = (64, 512, 512)  # 134 MB of float64
BLOCKS = (16, 128, 512)


def bytes_read() -> int:
    """Bytes that this process has read from files so far, as Linux counts them."""
    counters = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in counters)["rchar"])


def draw(read: dict[str, list[int]], nbytes: int) -> "Figure":
    """Draw what each worker read, beside the size of the array."""
    figure, axes = gallery.new_figure()
    places = np.arange(4)
    colours = (gallery.GREY, gallery.BLUE)
    for shift, (way, counts), colour in zip((-0.2, 0.2), read.items(), colours, strict=True):
        label = f"{way}: {sum(counts) / 1e6:,.0f} MB in all"
        bars = axes.bar(places + shift, np.divide(counts, 1e6), 0.38, label=label, color=colour)
        axes.bar_label(bars, fmt="{:,.0f}", color=colour)
    axes.axhline(nbytes / 1e6, color=gallery.GREY, lw=0.8, ls=":", zorder=0)
    axes.text(3.42, nbytes / 1e6, " the array", va="center")
    axes.set_title("16 blocks of one chunk, read by four Dask workers")
    axes.set_xticks(places, [f"worker {i + 1}" for i in places])
    axes.set_xlim(-0.5, 4.3)
    axes.set_ylim(top=1.45 * max(max(counts) for counts in read.values()) / 1e6)
    axes.set_ylabel("MB read from the file")
    axes.legend(loc="upper left")
    return figure


def main() -> None:
    """Sum the blocks each way."""
    picture = gallery.picture_path(__doc__)
    values = np.random.default_rng(0).random(SHAPE)
    blocks = values.size // np.prod(BLOCKS)
    print(f"one chunk of {values.nbytes:,} bytes, {blocks} blocks, 4 workers")
    read, table = {}, []
    with (
        TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=4,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.ERROR,  # it warns of workers that are slow to end
        ) as cluster,
        Client(cluster) as client,
    ):
        zarr.create_array(folder, data=values, chunks=SHAPE, compressors=None)
        for way, configuration in gallery.WAYS.items():
            with zarr.config.set(configuration):
                array = dask.array.from_zarr(zarr.open_array(folder, mode="r"), chunks=BLOCKS)
            total = array.sum()
            total.compute()  # the first time, the workers also read what they import
            before, started = client.run(bytes_read), perf_counter()
            if not np.isclose(total.compute(), values.sum()):
                raise SystemExit("the sum is wrong")
            seconds, after = perf_counter() - started, client.run(bytes_read)
            read[way] = [after[worker] - before[worker] for worker in after]
            nbytes = f"{sum(read[way]):,} bytes"
            table.append({"with": way, "read": nbytes, "time": gallery.in_time(seconds)})

    # Workers read a little besides: their own counters, and what of Python comes in late.
    if not values.nbytes <= sum(read["zarr-bytes"]) < 1.1 * values.nbytes:
        raise SystemExit("zarr-bytes should have read the array once")
    gallery.finish(draw(read, values.nbytes), table, picture)


if __name__ == "__main__":
    main()
