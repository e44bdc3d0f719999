"""A stretch of a recording in an HDF5 file, read as Zarr through VirtualiZarr.

By default, h5py stores a dataset as one uncompressed run of bytes. Raw recordings of neurons in NWB
files often have this form. VirtualiZarr presents such a dataset as one chunk. Plain zarr reads the
whole chunk for any selection; zarr-bytes reads only the selection.

    python examples/hdf5.py [--picture PATH]

Needs Linux for its count of bytes, h5py, virtualizarr, obstore, and matplotlib for the picture.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import h5py
import numpy as np
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE, SECONDS, ELECTRODES = 30_000, 40, 64  # 154 MB of int16
STRETCH = slice(20 * RATE, 20 * RATE + RATE // 50)  # 20 ms
SELECTIONS = {
    "20 ms, all electrodes": STRETCH,
    "one electrode, 1 s": np.s_[600_000:630_000, 7],
    "one sample": np.s_[600_000, 7],
    "the recording": ...,
}


def record() -> np.ndarray:
    """Noise of 64 electrodes along a needle, with a neuron beside one of them."""
    random = np.random.default_rng(0)
    samples = random.integers(-30, 31, (SECONDS * RATE, ELECTRODES), "i2")
    time = np.arange(45)
    spike = -400 * np.exp(-(((time - 12) / 4) ** 2)) + 130 * np.exp(-(((time - 24) / 8) ** 2))
    depth = np.exp(-(((np.arange(ELECTRODES) - 40) / 6) ** 2))
    for begin in random.integers(0, len(samples) - 45, 60 * SECONDS):
        samples[begin : begin + 45] += np.outer(spike, depth).astype("i2")
    return samples


def open_array(path: Path) -> zarr.Array:
    """The dataset as an array of zarr."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = HDFParser()(url=path.as_uri(), registry=registry)
    return zarr.open_group(store, mode="r", zarr_format=3)["samples"]


def draw(stretch: np.ndarray, costs: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw some electrodes, and the bytes read for each selection."""
    figure, (traces, chart) = gallery.new_figure(2, figsize=(5, 5.4), height_ratios=[5, 5])
    time = 1e3 * np.arange(len(stretch)) / RATE
    for electrode in range(28, 53, 4):
        traces.plot(time, stretch[:, electrode] / 300 + electrode / 4, gallery.BLUE, lw=0.8)
    traces.set_yticks([])
    traces.spines["left"].set_visible(False)
    traces.set_xlabel("time (ms)")
    traces.set_title("20 ms of a recording in an HDF5 file")
    traces.margins(x=0)
    gallery.draw_costs(chart, costs)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def main() -> None:
    """Read the selections both ways."""
    picture = gallery.picture_path(__doc__)
    samples = record()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recording.h5"
        with h5py.File(path, "w") as file:
            file["samples"] = samples
        print(
            f"{path.name}: {samples.shape} {samples.dtype} without chunks, {samples.nbytes:,} bytes"
        )
        costs = gallery.compare(lambda: open_array(path), SELECTIONS, samples)
    table = [gallery.compared(what, both) for what, both in costs.items()]
    gallery.finish(draw(samples[STRETCH], costs), table, picture)


if __name__ == "__main__":
    main()
