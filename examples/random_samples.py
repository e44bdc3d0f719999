"""Samples that a training loop draws at random from a Zarr array: samples per second in four ways.

A linear model learns the place of a spot in a noisy picture of 4 KiB, by stochastic gradient
descent. Each step takes 64 of 16,384 pictures, in random order and one by one, as a data loader
does. The pictures are a Zarr array in chunks of 1 MB, without compression. Plain zarr reads a whole
chunk for each picture. With zarr-bytes, and no other change, zarr reads only the bytes of the
picture. A view maps the chunks, and needs no call to zarr. For comparison, NumPy maps an `.npy`
file with the pictures. The model must be identical, bit for bit, in all ways.

    python examples/random_samples.py [--picture PATH]

Needs Linux for its count of bytes, and matplotlib for the picture.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import gallery
import numpy as np
import zarr

import zarr_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT, SIDE, CHUNK = 16_384, 32, 256  # pictures, of 4 KiB; in a chunk of 1 MB
STEPS, BATCH, RATE = 40, 64, 2e-3


def spots() -> tuple[np.ndarray, np.ndarray]:
    """Pictures of one spot each, and the places of the spots, from -1 to 1 along both axes."""
    random = np.random.default_rng(0)
    places = random.uniform(-0.7, 0.7, (COUNT, 2)).astype("f4")
    axis = np.linspace(-1, 1, SIDE, dtype="f4")
    y, x = (np.exp(-(((axis - places[:, i, None]) / 0.2) ** 2)) for i in (0, 1))
    noise = random.normal(0, 0.1, (COUNT, SIDE, SIDE)).astype("f4")
    return y[:, :, None] * x[:, None, :] + noise, places


def ways(folder: Path, pictures: np.ndarray) -> dict[str, object]:
    """The pictures in each of the ways; `pictures[i]` is one picture in all of them."""
    zarr.create_array(
        folder / "a.zarr", data=pictures, chunks=(CHUNK, SIDE, SIDE), compressors=None
    )
    np.save(folder / "a.npy", pictures)
    with zarr.config.set(gallery.PLAIN_ZARR):
        plain = zarr.open_array(folder / "a.zarr", mode="r")
    array = zarr.open_array(folder / "a.zarr", mode="r")
    return {
        "plain zarr": plain,
        "zarr-bytes": array,
        "zarr_bytes.view": zarr_bytes.view(array),
        "numpy.load, mapped": np.load(folder / "a.npy", mmap_mode="r"),
    }


def train(pictures: object, places: np.ndarray) -> np.ndarray:
    """A model, trained on pictures drawn at random."""
    order = np.random.default_rng(1).permutation(COUNT)[: STEPS * BATCH].tolist()
    model = np.zeros((SIDE * SIDE, 2), "f4")
    batch = np.empty((BATCH, SIDE, SIDE), "f4")
    for first in range(0, len(order), BATCH):
        drawn = order[first : first + BATCH]
        for k, i in enumerate(drawn):
            batch[k] = pictures[i]
        flat = batch.reshape(BATCH, -1)
        model -= RATE * flat.T @ (flat @ model - places[drawn])
    return model


def measured(act: Callable[[], np.ndarray], rounds: int) -> tuple[np.ndarray, gallery.Cost]:
    """The result of `act`, and its cost."""
    seconds = []
    for _ in range(rounds):
        before, begin = gallery.counters(), perf_counter()
        result = act()
        seconds.append(perf_counter() - begin)
        read, _ = gallery.bytes_between(before, gallery.counters())
    return result, gallery.Cost(read, median(seconds))


def draw(rates: dict[str, float]) -> "Figure":
    """Draw the samples per second of each way."""
    figure, axes = gallery.new_figure(figsize=(5, 2.2))
    for place, (way, rate) in enumerate(rates.items()):
        colour = gallery.BLUE if "bytes" in way else gallery.GREY
        axes.plot(rate, place, "o", color=colour, clip_on=False)
        text = {"textcoords": "offset points", "va": "center", "color": colour}
        axes.annotate(f"{rate:,.0f}", (rate, place), (8, 0), **text)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.set_ylim(len(rates) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(100, 1_000_000)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("samples a second (logarithmic)")
    figure.suptitle("Samples of 4 KiB, drawn at random", x=0.02, ha="left", size=10.5)
    return figure


def main() -> None:
    """Train in all ways."""
    picture = gallery.picture_path(__doc__)
    pictures, places = spots()
    expected = train(pictures, places)
    error = np.abs(pictures.reshape(COUNT, -1) @ expected - places).mean()
    samples = STEPS * BATCH
    print(f"{samples:,} of {COUNT:,} pictures; the model errs by {error * SIDE / 2:.1f} pixels")
    rates, costs, table = {}, {}, []
    with TemporaryDirectory() as folder:
        for way, source in ways(Path(folder), pictures).items():
            rounds = 1 if way == "plain zarr" else 5
            model, costs[way] = measured(lambda s=source: train(s, places), rounds)
            if not np.array_equal(model, expected):
                raise SystemExit(f"{way}: another model")
            rates[way] = samples / costs[way].seconds
            rate = f"{rates[way]:,.0f}"
            cells = way, costs[way].in_bytes, gallery.in_time(costs[way].seconds), rate
            columns = "pictures from", "read", "time", "samples a second"
            table.append(dict(zip(columns, cells, strict=True)))

    selected = samples * pictures[0].nbytes
    if costs["plain zarr"].nbytes < CHUNK * selected:
        raise SystemExit("plain zarr should have read whole chunks")
    if not selected <= costs["zarr-bytes"].nbytes < 1.01 * selected:
        raise SystemExit("zarr-bytes should have read the pictures alone")
    if costs["zarr_bytes.view"].nbytes > 1000:
        raise SystemExit("a view should have read nothing")
    gallery.finish(draw(rates), table, picture)


if __name__ == "__main__":
    main()
