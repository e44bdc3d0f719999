"""Blocks of one huge chunk, read by Dask workers: bytes and seconds, with zarr-bytes and without.

Plain zarr reads the whole chunk for every block: four workers read the array 16 times for its 16
blocks. zarr-bytes reads only the bytes of each block.

    python examples/dask_one_chunk.py [--picture PATH]

Needs dask[distributed], Linux for its count of bytes, and matplotlib for the picture.
"""

from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import dask.array
import gallery
import numpy as np
import zarr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = (64, 512, 512)  # 134 MB of float64
BLOCKS = (16, 128, 512)


def draw(read: dict[str, list[int]], nbytes: int) -> "Figure":
    """Draw the bytes that each worker read, and the size of the array."""
    figure, axes = gallery.new_figure()
    places = np.arange(4)
    colours = (gallery.GREY, gallery.BLUE)
    for shift, (way, counts), colour in zip((-0.2, 0.2), read.items(), colours, strict=True):
        label = f"{way}: {sum(counts) / 1e6:,.0f} MB in all"
        bars = axes.bar(places + shift, np.divide(counts, 1e6), 0.38, label=label, color=colour)
        axes.bar_label(bars, fmt="{:,.0f}", color=colour)
    axes.axhline(nbytes / 1e6, color=gallery.GREY, lw=0.8, ls=":", zorder=0)
    axes.text(3.42, nbytes / 1e6, " the array", va="bottom")
    axes.set_title("16 blocks of one chunk, read by four Dask workers")
    axes.set_xticks(places, [f"worker {i + 1}" for i in places])
    axes.set_xlim(-0.5, 4.3)
    axes.set_ylim(top=1.45 * max(max(counts) for counts in read.values()) / 1e6)
    axes.set_ylabel("MB read from the file")
    axes.legend(loc="upper left")
    return figure


def main() -> None:
    """Sum the blocks in both ways."""
    picture = gallery.picture_path(__doc__)
    values = np.random.default_rng(0).random(SHAPE)
    blocks = values.size // np.prod(BLOCKS)
    print(f"one chunk of {values.nbytes:,} bytes, {blocks} blocks, 4 workers")
    read, table = {}, []
    with TemporaryDirectory() as folder, gallery.dask_client() as client:
        zarr.create_array(folder, data=values, chunks=SHAPE, compressors=None)
        for way, configuration in gallery.WAYS.items():
            with zarr.config.set(configuration):
                array = dask.array.from_zarr(zarr.open_array(folder, mode="r"), chunks=BLOCKS)
            total = array.sum()
            total.compute()  # the first run also reads the modules that the workers import
            before, started = client.run(gallery.counters), perf_counter()
            if not np.isclose(total.compute(), values.sum()):
                raise SystemExit("the sum is wrong")
            seconds, after = perf_counter() - started, client.run(gallery.counters)
            read[way] = [gallery.bytes_between(before[key], after[key])[0] for key in after]
            nbytes = f"{sum(read[way]):,} bytes"
            table.append({"with": way, "read": nbytes, "time": gallery.in_time(seconds)})

    # The workers also read a few modules that Python imports late.
    if not values.nbytes <= sum(read["zarr-bytes"]) < 1.1 * values.nbytes:
        raise SystemExit("zarr-bytes should have read the array once")
    gallery.finish(draw(read, values.nbytes), table, picture)


if __name__ == "__main__":
    main()
