"""A map in 1,024 chunks of 1 KiB: the time that each chunk costs in four pipelines.

All pipelines read equally many bytes. Plain zarr needs more time for the bookkeeping of a chunk
than for reading it. zarr 3.3 and newer have a faster pipeline, the fused one; the pipeline of zarrs
is written in Rust.

    python examples/small_chunks.py [--picture PATH]

Needs zarrs, Linux for its count of bytes, and matplotlib for the picture.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import numpy as np
import zarr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE, TILE = (512, 512), (16, 16)  # of float32
SELECTIONS = {
    "the whole map": ...,
    "a part, 128 x 128": np.s_[192:320, 192:320],
    "a line": np.s_[256],
}
FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
WAYS = gallery.WAYS | {"zarrs": {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}}
if hasattr(zarr.core.codec_pipeline, FUSED.rpartition(".")[2]):
    WAYS["zarr, fused"] = {**gallery.PLAIN_ZARR, "codec_pipeline.path": FUSED}
COLOURS = {"zarr-bytes": gallery.BLUE}


def hills() -> np.ndarray:
    """Heights of a map."""
    north, east = np.mgrid[0 : 12 : 1j * SHAPE[0], 0 : 12 : 1j * SHAPE[1]]
    return np.float32(200 + 90 * np.sin(east + np.cos(north)) * np.cos(0.7 * north))


def draw(heights: np.ndarray, costs: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw the map in its tiles, and the time of each read."""
    figure, (chart, axes) = gallery.new_figure(2, figsize=(5, 6.4), height_ratios=[5, 5])
    chart.imshow(heights[::4, ::4], cmap="gist_earth", extent=(0, 32, 0, 32), vmin=0)
    chart.set_xticks(range(33), minor=False, labels=[])
    chart.set_yticks(range(33), minor=False, labels=[])
    chart.tick_params(length=0)
    chart.grid(color="w", lw=0.4)
    chart.set_title("A map in 1,024 chunks of 1 KiB")
    places, names = [], []
    for i, (what, ways) in enumerate(costs.items()):
        for j, (way, cost) in enumerate(sorted(ways.items())):
            y = i * (len(ways) + 1.6) + j
            colour = COLOURS.get(way, gallery.GREY)
            axes.barh(y, 1e3 * cost.seconds, 0.75, color=colour)
            place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(
                gallery.in_time(cost.seconds), (1e3 * cost.seconds, y), color=colour, **place
            )
            places.append(y)
            names.append(way)
        axes.text(0, i * (len(ways) + 1.6) - 0.9, what, fontweight="bold", va="center")
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(right=1.2 * axes.get_xlim()[1])
    axes.set_xlabel("milliseconds")
    return figure


def main() -> None:
    """Read the selections each way."""
    picture = gallery.picture_path(__doc__)
    heights = hills()
    with TemporaryDirectory() as name:
        folder = Path(name)
        zarr.create_array(folder, data=heights, chunks=TILE, compressors=None)
        print(f"map: {SHAPE} float32 in chunks {TILE}, {heights.nbytes:,} bytes")
        open_array = partial(zarr.open_array, folder, mode="r")
        costs = gallery.compare(open_array, SELECTIONS, heights, WAYS)
    table = []
    for what, ways in costs.items():
        read = {"selection": what, "bytes read": ways["zarr-bytes"].in_bytes}
        table.append(read | {way: gallery.in_time(ways[way].seconds) for way in sorted(ways)})
    gallery.finish(draw(heights, costs), table, picture)


if __name__ == "__main__":
    main()
