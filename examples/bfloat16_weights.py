"""A model's weights in bfloat16: written by TensorStore, read by zarr, changed, and read back.

TensorStore writes bfloat16, and plain zarr cannot open it. With zarr-bytes it is an array like any
other: of the embedding of 32,000 tokens, which is one uncompressed chunk, only the rows of the
tokens at hand are read.

    python examples/bfloat16_weights.py [--picture PATH]

Needs Linux for its count of bytes, TensorStore, ml_dtypes, and matplotlib for the picture.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import ml_dtypes
import numpy as np
import tensorstore as ts
import zarr

import zarr_bytes  # noqa: F401  # zarr before 3.4 does not load data types by itself

HERE = Path(__file__).parent
LAYERS = {"embedding": (32_000, 1024), "attention": (1024, 3072), "output": (1024, 1024)}
TOKENS = [11, 2_050, 7_777, 12_345, 31_999]


def bytes_read() -> int:
    """Bytes that this process has read from files so far, as Linux counts them."""
    counters = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in counters)["rchar"])


def tensorstore_at(path: Path, **options: object) -> ts.TensorStore:
    """Open a Zarr array with TensorStore."""
    kvstore = {"driver": "file", "path": str(path)}
    return ts.open({"driver": "zarr3", "kvstore": kvstore}, **options).result()


def write(folder: Path) -> dict[str, np.ndarray]:
    """Write random weights, a layer an array and an array one chunk."""
    random = np.random.default_rng(0)
    weights = {}
    for name, shape in LAYERS.items():
        weights[name] = random.normal(0, 0.02, shape).astype(ml_dtypes.bfloat16)
        layout = ts.ChunkLayout(chunk_shape=shape)
        layer = tensorstore_at(
            folder / name, create=True, dtype=ts.bfloat16, shape=shape, chunk_layout=layout
        )
        layer.write(weights[name]).result()
    return weights


def draw(fetched: int, whole: int, path: Path) -> None:
    """Draw the bytes that five rows cost."""
    plt.style.use(HERE / "style.mplstyle")
    figure, axes = plt.subplots(figsize=(5, 1.9))
    for y, nbytes in enumerate((whole, fetched)):
        axes.plot(nbytes, y, "o", ms=8)
        axes.annotate(
            f"{nbytes:,} bytes", (nbytes, y), (8, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks([0, 1], ["the whole layer", "five rows"])
    axes.set_ylim(-0.6, 1.6)
    axes.set_xscale("log")
    axes.set_xlim(1e3, 1e8)
    axes.set_xticks([1e3, 1e5, 1e7], ["1 kB", "100 kB", "10 MB"])
    axes.set_xlabel("bytes read (logarithmic)")
    axes.set_title("Five rows of an embedding of\n32,000 x 1,024 bfloat16, in one chunk")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Write with TensorStore, read rows with zarr, write one back, and print what that cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/bfloat16_weights.png")
    picture = parser.parse_args().picture

    with TemporaryDirectory() as name:
        folder = Path(name)
        weights = write(folder)
        model = {layer: zarr.open_array(folder / layer, mode="r+") for layer in LAYERS}
        for layer, array in model.items():
            print(f"{layer:10}{array.dtype!s:>10}{array.shape!s:>15}{array.nbytes:>12,} bytes")

        embedding = model["embedding"]
        embedding[0]  # what the first read imports is read here
        counts = [bytes_read()]
        rows = embedding.oindex[TOKENS]
        counts.append(bytes_read())
        embedding[...]
        counts.append(bytes_read())
        fetched, whole = (int(count) for count in np.diff(counts))
        print(f"rows of {len(TOKENS)} tokens:  {fetched:>12,} bytes read")
        print(f"the whole layer:   {whole:>12,} bytes read")

        model["output"][10] = 2 * weights["output"][10]
        changed = tensorstore_at(folder / "output").read().result()
    expected = weights["output"].copy()
    expected[10] *= 2
    if rows.tobytes() != weights["embedding"][TOKENS].tobytes():
        raise SystemExit("zarr has read other weights than TensorStore has written")
    if changed.tobytes() != expected.tobytes():
        raise SystemExit("TensorStore has read other weights than zarr has written")
    # Some hundred bytes besides are the counters themselves.
    if fetched > rows.nbytes + 4096:
        raise SystemExit("zarr-bytes should have read the rows asked for, and no others")
    print("a row was changed by zarr and read back by TensorStore: every bit as it should be")
    draw(fetched, whole, picture)


if __name__ == "__main__":
    main()
