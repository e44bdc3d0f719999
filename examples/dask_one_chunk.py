"""Dask workers read blocks of an array that is one huge chunk: bytes and seconds, with and without.

zarr's own codec fetches the whole chunk for every block of it, so four workers with 16 blocks read
the array 16 times. This one reads the bytes of each block.

    python examples/dask_one_chunk.py [--picture PATH]

Needs dask[distributed], Linux for its count of bytes, and matplotlib for the picture.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import dask.array
import matplotlib.pyplot as plt
import numpy as np
import zarr
from distributed import Client, LocalCluster

HERE = Path(__file__).parent
SHAPE = (64, 512, 512)  # 134 MB of float64
BLOCKS = (16, 128, 512)
CODECS = {
    "zarr's own": "zarr.codecs.bytes.BytesCodec",
    "zarr-bytes": "zarr_bytes.codec.BytesCodec",
}


def bytes_read() -> int:
    """Bytes that this process has read from files so far, as Linux counts them."""
    counters = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in counters)["rchar"])


def draw(read: dict[str, list[int]], nbytes: int, path: Path) -> None:
    """Draw what each worker read, beside the size of the array."""
    plt.style.use(HERE / "style.mplstyle")
    figure, axes = plt.subplots()
    places = np.arange(4)
    for shift, (codec, counts) in zip((-0.2, 0.2), read.items(), strict=True):
        label = f"{codec}: {sum(counts) / 1e6:,.0f} MB in all"
        bars = axes.bar(places + shift, np.divide(counts, 1e6), 0.38, label=label)
        axes.bar_label(bars, fmt="{:,.0f}")
    axes.axhline(nbytes / 1e6, color="k", lw=0.8, ls=":", zorder=0)
    axes.text(3.88, nbytes / 1e6, "the array", ha="right", va="bottom")
    axes.set_title("16 blocks of one chunk, read by four Dask workers")
    axes.set_xticks(places, [f"worker {i + 1}" for i in places])
    axes.set_xlim(-0.5, 3.9)
    axes.set_ylim(top=1.45 * max(max(counts) for counts in read.values()) / 1e6)
    axes.set_ylabel("MB read from the file")
    axes.legend(loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Sum the blocks with each codec, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/dask_one_chunk.png")
    picture = parser.parse_args().picture

    values = np.random.default_rng(0).random(SHAPE)
    blocks = values.size // np.prod(BLOCKS)
    print(f"one chunk of {values.nbytes:,} bytes, {blocks} blocks, 4 workers")
    read = {}
    with (
        TemporaryDirectory() as folder,
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        zarr.create_array(folder, data=values, chunks=SHAPE, compressors=None)
        for name, codec in CODECS.items():
            with zarr.config.set({"codecs.bytes": codec}):
                array = dask.array.from_zarr(zarr.open_array(folder, mode="r"), chunks=BLOCKS)
            total = array.sum()
            total.compute()  # the first time, the workers also read what they import
            before, started = client.run(bytes_read), perf_counter()
            if not np.isclose(total.compute(), values.sum()):
                raise SystemExit("the sum is wrong")
            seconds, after = perf_counter() - started, client.run(bytes_read)
            read[name] = [after[worker] - before[worker] for worker in after]
            print(f"{name:12}{sum(read[name]):>16,} bytes read, {seconds:6.2f} s")

    # Workers read a little besides: their own counters, and what of Python comes in late.
    if not values.nbytes <= sum(read["zarr-bytes"]) < 1.1 * values.nbytes:
        raise SystemExit("zarr-bytes should have read the array once")
    draw(read, values.nbytes, picture)


if __name__ == "__main__":
    main()
