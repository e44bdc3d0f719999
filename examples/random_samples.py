"""A training loop draws samples at random from a Zarr array: samples a second, in four ways.

A linear model learns where a spot lies in a noisy picture of 4 KiB, by stochastic gradient descent:
each step takes 64 of 16,384 pictures, in random order and one by one, as a data loader does. The
pictures are a Zarr array in chunks of 1 MB, without compression. zarr reads a whole chunk for each
picture. With zarr-bytes, and no other change, it reads the bytes of the picture. A view maps the
chunks, and needs no call of zarr. For comparison, the same pictures are a bare `.npy` file that is
mapped by NumPy. The model must be the same to the bit in all ways.

    python examples/random_samples.py [--picture PATH]

Needs Linux for its count of bytes, and matplotlib for the picture.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
import zarr

import zarr_bytes

HERE = Path(__file__).parent
COUNT, SIDE, CHUNK = 16_384, 32, 256  # pictures, of 4 KiB; in a chunk of 1 MB
STEPS, BATCH, RATE = 40, 64, 2e-3
ZARRS_OWN = {
    "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
    "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
}


def spots() -> tuple[np.ndarray, np.ndarray]:
    """Pictures with a spot each, and where it lies, from -1 to 1 along both axes."""
    random = np.random.default_rng(0)
    places = random.uniform(-0.7, 0.7, (COUNT, 2)).astype("f4")
    axis = np.linspace(-1, 1, SIDE, dtype="f4")
    y, x = (np.exp(-(((axis - places[:, i, None]) / 0.2) ** 2)) for i in (0, 1))
    noise = random.normal(0, 0.1, (COUNT, SIDE, SIDE)).astype("f4")
    return y[:, :, None] * x[:, None, :] + noise, places


def ways(folder: Path, pictures: np.ndarray) -> dict[str, object]:
    """The pictures, in each of the ways: all have `pictures[i]`."""
    zarr.create_array(
        folder / "a.zarr", data=pictures, chunks=(CHUNK, SIDE, SIDE), compressors=None
    )
    np.save(folder / "a.npy", pictures)
    with zarr.config.set(ZARRS_OWN):
        plain = zarr.open_array(folder / "a.zarr", mode="r")
    array = zarr.open_array(folder / "a.zarr", mode="r")
    return {
        "zarr": plain,
        "zarr with zarr-bytes": array,
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


def bytes_read() -> int:
    """Bytes that this process has read from files so far, as Linux counts them."""
    counters = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in counters)["rchar"])


def measured(act: Callable[[], np.ndarray], rounds: int) -> tuple[np.ndarray, float, int]:
    """What `act` gives, the seconds it takes, and the bytes that it reads."""
    seconds = []
    for _ in range(rounds):
        before, begin = bytes_read(), perf_counter()
        result = act()
        seconds.append(perf_counter() - begin)
        read = bytes_read() - before
    return result, median(seconds), read


def draw(rates: dict[str, float], path: Path) -> None:
    """Draw the samples a second of each way."""
    plt.style.use(HERE / "style.mplstyle")
    figure, axes = plt.subplots(figsize=(5, 2.2))
    for place, (way, rate) in enumerate(rates.items()):
        colour = "C1" if "bytes" in way else "C0"
        axes.plot(rate, place, "o", color=colour, clip_on=False)
        text = {"textcoords": "offset points", "va": "center"}
        axes.annotate(f"{rate:,.0f}", (rate, place), (8, 0), **text)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.set_ylim(len(rates) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(100, 1_000_000)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.set_xlabel("samples a second (logarithmic)")
    figure.suptitle("Samples of 4 KiB, drawn at random", x=0.02, ha="left", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Train in all ways, and print how fast each was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/random_samples.png")
    picture = parser.parse_args().picture

    pictures, places = spots()
    expected = train(pictures, places)
    error = np.abs(pictures.reshape(COUNT, -1) @ expected - places).mean()
    samples = STEPS * BATCH
    print(f"{samples:,} of {COUNT:,} pictures; the model errs by {error * SIDE / 2:.1f} pixels")
    rates, read = {}, {}
    with TemporaryDirectory() as folder:
        for way, source in ways(Path(folder), pictures).items():
            rounds = 1 if way == "zarr" else 5
            model, seconds, read[way] = measured(lambda s=source: train(s, places), rounds)
            if not np.array_equal(model, expected):
                raise SystemExit(f"{way}: another model")
            rates[way] = samples / seconds
            print(f"{way:22}{rates[way]:>12,.0f} samples a second,{read[way]:>16,} bytes read")

    selected = samples * pictures[0].nbytes
    if (
        read["zarr"] < CHUNK * selected
        or not selected <= read["zarr with zarr-bytes"] < 1.01 * selected
    ):
        raise SystemExit("zarr should have read whole chunks, and zarr-bytes the pictures alone")
    if read["zarr_bytes.view"] > 1000:  # the count itself
        raise SystemExit("a view should have read nothing")
    draw(rates, picture)


if __name__ == "__main__":
    main()
