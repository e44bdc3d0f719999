"""A model's weights in bfloat16: written by TensorStore, read by zarr, changed, and read back.

TensorStore writes bfloat16, which plain zarr can't open. With zarr-bytes, the weights are ordinary
arrays. The embedding of 32,000 tokens is one uncompressed chunk, and zarr reads only the rows of
five tokens from it.

    python examples/bfloat16_weights.py [--picture PATH]

Needs Linux for its count of bytes, TensorStore, ml_dtypes, and matplotlib for the picture.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import ml_dtypes
import numpy as np
import tensorstore as ts
import zarr

import zarr_bytes  # noqa: F401  # zarr before 3.4 does not load data types by itself

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYERS = {"embedding": (32_000, 1024), "attention": (1024, 3072), "output": (1024, 1024)}
TOKENS = [11, 2_050, 7_777, 12_345, 31_999]


def tensorstore_at(path: Path, **options: object) -> ts.TensorStore:
    """Open a Zarr array with TensorStore."""
    kvstore = {"driver": "file", "path": str(path)}
    return ts.open({"driver": "zarr3", "kvstore": kvstore}, **options).result()


def write(folder: Path) -> dict[str, np.ndarray]:
    """Write random weights: one array of one chunk for each layer."""
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


def draw(read: dict[str, gallery.Cost]) -> "Figure":
    """Draw the bytes read for each selection."""
    figure, axes = gallery.new_figure(figsize=(5, 1.9))
    for y, cost in enumerate(read.values()):
        axes.plot(cost.nbytes, y, "o", ms=8, color=gallery.BLUE)
        place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{cost.in_bytes} read", (cost.nbytes, y), color=gallery.BLUE, **place)
    axes.set_yticks(range(len(read)), list(read))
    axes.set_ylim(len(read) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(1e3, 1e10)
    axes.set_xticks([1e3, 1e5, 1e7], ["1 kB", "100 kB", "10 MB"])
    axes.set_title("An embedding of 32,000 x 1,024\nbfloat16 in one chunk of 66 MB")
    return figure


def main() -> None:
    """Write with TensorStore, read rows with zarr, and write one back."""
    picture = gallery.picture_path(__doc__)
    with TemporaryDirectory() as name:
        folder = Path(name)
        weights = write(folder)
        model = {layer: zarr.open_array(folder / layer, mode="r+") for layer in LAYERS}
        for layer, array in model.items():
            print(f"{layer:10}{array.dtype!s:>10}{array.shape!s:>15}{array.nbytes:>12,} bytes")

        embedding = model["embedding"]
        rows = embedding.oindex[TOKENS]
        read = {
            "rows of 5 tokens": gallery.cost(lambda: embedding.oindex[TOKENS]),
            "the whole layer": gallery.cost(lambda: embedding[...]),
        }
        model["output"][10] = 2 * weights["output"][10]
        changed = tensorstore_at(folder / "output").read().result()
    expected = weights["output"].copy()
    expected[10] *= 2
    if rows.tobytes() != weights["embedding"][TOKENS].tobytes():
        raise SystemExit("zarr read other weights than TensorStore wrote")
    if changed.tobytes() != expected.tobytes():
        raise SystemExit("TensorStore read other weights than zarr wrote")
    if read["rows of 5 tokens"].nbytes > rows.nbytes + 64:
        raise SystemExit("zarr-bytes should have read the five rows alone")
    print("zarr changed a row and TensorStore read it back: every bit is right")
    table = [
        {
            "selection": what,
            "plain zarr": "can't open it",
            "zarr-bytes reads": cost.in_bytes,
            "zarr-bytes takes": gallery.in_time(cost.seconds),
        }
        for what, cost in read.items()
    ]
    gallery.finish(draw(read), table, picture)


if __name__ == "__main__":
    main()
