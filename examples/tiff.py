"""A window of an uncompressed TIFF image, read as Zarr through virtual-tiff and VirtualiZarr.

The pixels of an uncompressed TIFF are stored in strips: one run of bytes, or several. virtual-tiff
presents each strip, or each tile of a COG, as a chunk. Plain zarr reads whole chunks; zarr-bytes
reads only the selection.

    python examples/tiff.py [--picture PATH]

Needs Linux for its count of bytes, virtual-tiff, obstore, and matplotlib for the picture.
"""

import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import numpy as np
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtual_tiff import VirtualTIFF

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT, WIDTH = 6000, 8000  # of uint16: 96 MB
WINDOW = np.s_[2600:3000, 4300:4700]
SELECTIONS = {
    "a window, 400 x 400": WINDOW,
    "a line": np.s_[3000],
    "a pixel": np.s_[3000, 4000],
    "the image": ...,
}


def landscape() -> np.ndarray:
    """Heights of a landscape in meters: ridges, and smaller ridges on them."""
    y, x = np.ogrid[0 : 12 : HEIGHT * 1j, 0 : 16 : WIDTH * 1j]
    heights = np.full((HEIGHT, WIDTH), 1500, "f4")
    for octave in (1, 2, 4, 8, 16):
        bend = np.float32(octave) * (x + np.sin(y)), np.float32(octave) * (y - np.cos(x / 2))
        heights += np.sin(bend[0].astype("f4")) * np.cos(bend[1].astype("f4")) * (600 / octave)
    return heights.astype("u2")


def write(path: Path, image: np.ndarray) -> None:
    """Write an image as a TIFF of one strip, as TIFF 6.0 describes it."""
    height, width = image.shape
    entries = [  # tag, type (3 has 16 bits, 4 has 32), value
        (256, 4, width),
        (257, 4, height),
        (258, 3, 16),  # bits per sample
        (259, 3, 1),  # no compression
        (262, 3, 1),  # black is zero
        (273, 4, 8),  # offset of the strip
        (277, 3, 1),  # samples per pixel
        (278, 4, height),  # rows per strip
        (279, 4, image.nbytes),
        (339, 3, 1),  # unsigned integers
    ]
    with path.open("wb") as file:
        file.write(struct.pack("<2sHI", b"II", 42, 8 + image.nbytes))
        image.tofile(file)
        file.write(struct.pack("<H", len(entries)))
        for tag, kind, value in entries:
            file.write(struct.pack("<HHII", tag, kind, 1, value))
        file.write(struct.pack("<I", 0))  # no other image


def open_array(path: Path) -> zarr.Array:
    """The image as an array of zarr."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = VirtualTIFF(ifd=0)(path.as_uri(), registry=registry)
    return zarr.open_group(store, mode="r", zarr_format=3)["0"]


def draw(image: np.ndarray, costs: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw the image with the window in it, and the bytes read for each selection."""
    figure, (chart, axes) = gallery.new_figure(2, figsize=(5, 5.6), height_ratios=[5, 4])
    small = image[::20, ::20]
    chart.contourf(small, levels=10, cmap="gist_earth", extent=(0, WIDTH, 0, HEIGHT))
    y, x = WINDOW
    corners = [x.start, x.stop, x.stop, x.start], [y.start, y.start, y.stop, y.stop]
    chart.fill(*corners, ec="k", fc="w", alpha=0.7)
    chart.annotate("window", (x.stop, y.stop), (x.stop + 100, y.stop + 100), color="k")
    chart.set_aspect("equal")
    chart.set_title(f"A TIFF of {WIDTH:,} x {HEIGHT:,} pixels")
    gallery.draw_costs(axes, costs)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def main() -> None:
    """Read the selections both ways."""
    picture = gallery.picture_path(__doc__)
    image = landscape()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "landscape.tif"
        write(path, image)
        print(f"{path.name}: {image.shape} {image.dtype} in one strip, {image.nbytes:,} bytes")
        costs = gallery.compare(lambda: open_array(path), SELECTIONS, image)
    table = [gallery.compared(what, both) for what, both in costs.items()]
    gallery.finish(draw(image, costs), table, picture)


if __name__ == "__main__":
    main()
