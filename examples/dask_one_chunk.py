"""Dask workers read blocks of an array that is one huge chunk: bytes and seconds, with and without.

zarr's own codec fetches the whole chunk for every block of it, so four workers with 16 blocks read
the array 16 times. This one reads the bytes of each block.

    python examples/dask_one_chunk.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import dask.array
import numpy as np
import zarr
from distributed import Client, LocalCluster

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


def main() -> None:
    """Sum the blocks with each codec, and print what it cost."""
    values = np.random.default_rng(0).random(SHAPE)
    print(
        f"one chunk of {values.nbytes:,} bytes, {values.size // np.prod(BLOCKS)} blocks, 4 workers"
    )
    with (
        TemporaryDirectory() as folder,
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        zarr.create_array(folder, data=values, chunks=SHAPE, compressors=None)
        for name, codec in CODECS.items():
            client.run(zarr.config.set, {"codecs.bytes": codec})
            with zarr.config.set({"codecs.bytes": codec}):
                array = dask.array.from_zarr(zarr.open_array(folder, mode="r"), chunks=BLOCKS)
            total = array.sum()
            total.compute()  # the first time, the workers also read what they import
            before, started = client.run(bytes_read), perf_counter()
            if not np.isclose(total.compute(), values.sum()):
                raise SystemExit("the sum is wrong")
            seconds, after = perf_counter() - started, client.run(bytes_read)
            nbytes = sum(after[worker] - before[worker] for worker in after)
            print(f"{name:12}{nbytes:>16,} bytes read, {seconds:6.2f} s")


if __name__ == "__main__":
    main()
