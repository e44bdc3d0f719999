"""A star of an uncompressed FITS image, read as Zarr with plain zarr code.

The image is M13, big-endian int16, from the astropy package. Its data segment becomes the one chunk
of an array, beside a zarr.json that describes the bytes. Nothing is converted. Plain zarr reads the
whole image for any selection; zarr-bytes reads only the star.

    python examples/quickstart.py [--picture PATH]

Needs astropy, and matplotlib for the picture.
"""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import astropy.io.fits
import gallery
import matplotlib
import numpy as np
import zarr  # and nothing of zarr-bytes: installing it is enough

IMAGE = Path(astropy.io.fits.__path__[0]) / "hdu/compressed/tests/data/m13.fits"


def write(folder: Path) -> np.ndarray:
    """Make the array; returns the image as astropy reads it."""
    with astropy.io.fits.open(IMAGE) as hdus:
        image = hdus[0].data.copy()
        begin = hdus[0].fileinfo()["datLoc"]  # offset of the data in the file
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": image.shape,
        "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": image.shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
    }
    (folder / "zarr.json").write_text(json.dumps(document, indent=2))
    chunk = folder / "c/0/0"
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(IMAGE.read_bytes()[begin:][: image.nbytes])
    return image


def draw(image: np.ndarray, star: tuple[slice, slice], title: str) -> "matplotlib.figure.Figure":
    """Draw the image with the place of the star, and the star."""
    figure, (whole, part) = gallery.new_figure(1, 2, figsize=(5, 3.1), width_ratios=[3, 2])
    low, high = np.percentile(image, [1, 99.5])
    grey = matplotlib.colormaps["gray"].resampled(16)  # few levels make a small file
    y, x = (slice(side.start - 0.5, side.stop - 0.5) for side in star)
    for axes in (whole, part):
        axes.imshow(image, origin="lower", cmap=grey, vmin=low, vmax=high, interpolation="nearest")
        corners = [x.start, x.stop, x.stop, x.start], [y.start, y.start, y.stop, y.stop]
        axes.fill(*corners, ec=gallery.BLUE, fc="none", lw=1.5)
        axes.set_xticks([])
        axes.set_yticks([])
    part.set_xlim(x.start - 1, x.stop + 1)
    part.set_ylim(y.start - 1, y.stop + 1)
    part.spines[:].set_visible(False)
    whole.set_title(f"M13: {image.nbytes:,} bytes")
    part.set_title(title)
    return figure


def main() -> None:
    """Read a star, a row and the image both ways."""
    picture = gallery.picture_path(__doc__)
    with TemporaryDirectory() as folder:
        expected = write(Path(folder))
        codec = type(zarr.open_array(folder, mode="r").metadata.codecs[0])
        if codec.__module__ != "zarr_bytes.codec":
            raise SystemExit(f"zarr reads with {codec.__module__}: zarr-bytes is not active")
        y, x = np.unravel_index(expected[20:-20, 20:-20].argmax(), (260, 260))
        star = np.s_[y + 8 : y + 32, x + 8 : x + 32]
        selections = {"a star, 24 x 24 pixels": star, "a row": np.s_[100], "the image": np.s_[:]}
        costs = gallery.compare(partial(zarr.open_array, folder, mode="r"), selections, expected)
    print(f"{IMAGE.name}: {expected.shape} {expected.dtype.str}; every pixel equals astropy's")
    table = [gallery.compared(what, both) for what, both in costs.items()]
    ours = next(iter(costs.values()))["zarr-bytes"]
    gallery.finish(draw(expected, star, f"a star: {ours.in_bytes}"), table, picture)


if __name__ == "__main__":
    main()
