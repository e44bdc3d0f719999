"""A level and a profile of a field that a simulation in Fortran has written, read as Zarr.

The file is the output of `write(10) temperature` to a stream: the first axis varies fastest. A
zarr.json with a `transpose`, and a link to the file, make the file a Zarr array of one chunk. Plain
zarr reads the whole file for any selection. zarr-bytes reads only the selection, and so does zarrs,
a pipeline in Rust.

    python examples/fortran_order.py [--picture PATH]

Needs zarrs, Linux for its count of bytes, and matplotlib for the picture.
"""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import numpy as np
import zarr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIELD = (250, 160, 100)  # x, y, z of float64: 32 MB
SELECTIONS = {
    "a level": np.s_[:, :, 60],
    "a profile": np.s_[120, 80, :],
    "the whole field": ...,
}
WAYS = gallery.WAYS | {"zarrs": {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}}


def write_field(folder: Path) -> np.ndarray:
    """Write a warm plume as Fortran does, and describe the file as a Zarr array."""
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) for size in FIELD), indexing="ij", sparse=True)
    bend = x - 0.25 * np.sin(3 * z)
    temperature = 285 - 6 * z + 12 * np.exp(-(bend**2 + y**2) / (0.05 + 0.04 * (z + 1)))
    file = folder / "temperature.raw"
    temperature.T.tofile(file)  # the first axis fastest
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": FIELD,
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": FIELD}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [
            {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
            {"name": "bytes", "configuration": {"endian": "little"}},
        ],
    }
    chunk = folder / "c/0/0/0"
    chunk.parent.mkdir(parents=True)
    chunk.symlink_to(file)
    (folder / "zarr.json").write_text(json.dumps(document, indent=2))
    return temperature


def draw(level: np.ndarray, costs: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw the level, and the bytes read for each selection."""
    figure, (chart, axes) = gallery.new_figure(2, figsize=(5, 5.4), height_ratios=[5, 4])
    chart.contourf(level.T, levels=12, cmap="RdBu_r")
    chart.set_title("A level of a field that Fortran wrote:\nin the file it is one run of bytes")
    chart.set_xlabel("x")
    chart.set_ylabel("y")
    gallery.draw_costs(axes, costs)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def main() -> None:
    """Read the selections each way."""
    picture = gallery.picture_path(__doc__)
    with TemporaryDirectory() as name:
        folder = Path(name)
        field = write_field(folder)
        print(f"temperature.raw: {field.shape} {field.dtype}, {field.nbytes:,} bytes")
        open_array = partial(zarr.open_array, folder, mode="r")
        costs = gallery.compare(open_array, SELECTIONS, field, WAYS)
    for what, selection in SELECTIONS.items():
        # Python also reads the number of processors from the system, which adds a few bytes.
        if costs[what]["zarr-bytes"].nbytes > field[selection].nbytes + 64:
            raise SystemExit(f"{what}: {field[selection].nbytes:,} bytes should have been read")
    table = [gallery.compared(what, ways) for what, ways in costs.items()]
    gallery.finish(draw(field[SELECTIONS["a level"]], costs), table, picture)


if __name__ == "__main__":
    main()
