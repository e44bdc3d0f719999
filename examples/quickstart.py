"""A star of an uncompressed FITS image, read as Zarr with plain zarr code.

astropy writes an image of 72 MB: a cluster of stars, as big-endian int16. Its data segment becomes
the one chunk of an array, beside a zarr.json that describes the bytes. Nothing is converted. Plain
zarr reads the whole image for any selection; zarr-bytes reads the star, and short gaps in it.

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
import zarr  # zarr-bytes isn't imported: installing it is enough

SIDE = 6000  # pixels
STAR = np.s_[3968:4032, 1968:2032]


def cluster() -> np.ndarray:
    """A cluster of stars on a noisy sky, with a bright star at the selection."""
    random = np.random.default_rng(13)
    image = random.integers(90, 110, (SIDE, SIDE), "int16")
    y, x = np.ogrid[-32:32, -32:32]
    profile = np.exp(-(y**2 + x**2) / 40)
    places = random.normal(SIDE / 2, SIDE / 9, (4000, 2)).astype(int).clip(32, SIDE - 32)
    for (row, column), flux in zip(places, 300 * random.pareto(1.5, 4000) + 200, strict=True):
        light = (profile * min(flux, 8000)).astype("int16")
        stamp = image[row - 32 : row + 32, column - 32 : column + 32]
        np.minimum(stamp + light, 30000, out=stamp)
    image[STAR] += (profile * 9000).astype("int16")
    return image


def write(folder: Path) -> np.ndarray:
    """Make the image and the array; returns the image as astropy reads it."""
    fits = folder / "cluster.fits"
    astropy.io.fits.PrimaryHDU(cluster()).writeto(fits)
    with astropy.io.fits.open(fits, memmap=False) as hdus:
        image = hdus[0].data
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
    chunk.write_bytes(fits.read_bytes()[begin:][: image.nbytes])
    return image


def draw(image: np.ndarray, title: str) -> "matplotlib.figure.Figure":
    """Draw the image with the place of the star, and the star."""
    figure, (whole, part) = gallery.new_figure(1, 2, figsize=(5, 3.1), width_ratios=[3, 2])
    grey = matplotlib.colormaps["gray"].resampled(16)  # few levels make a small file
    blocks = image.reshape(300, SIDE // 300, 300, SIDE // 300).max((1, 3))
    rows, columns = STAR
    look = {"origin": "lower", "cmap": grey, "vmin": 90, "interpolation": "nearest"}
    whole.imshow(blocks, vmax=3000, extent=(0, SIDE, 0, SIDE), **look)
    x, y = (columns.start + columns.stop) / 2, (rows.start + rows.stop) / 2
    whole.plot(x, y, "s", ms=10, mec=gallery.BLUE, mfc="none", mew=1.5)
    part.imshow(image[STAR], vmax=9000, **look)
    for axes in (whole, part):
        axes.set_xticks([])
        axes.set_yticks([])
    part.spines[:].set_color(gallery.BLUE)
    part.spines[:].set_linewidth(1.5)
    part.spines[:].set_visible(True)
    whole.set_title(f"the image: {image.nbytes / 1e6:.0f} MB")
    part.set_title(title)
    return figure


def main() -> None:
    """Read a star, a row, a pixel and the image both ways."""
    picture = gallery.picture_path(__doc__)
    with TemporaryDirectory() as folder:
        expected = write(Path(folder))
        codec = type(zarr.open_array(folder, mode="r").metadata.codecs[0])
        if codec.__module__ != "zarr_bytes.codec":
            raise SystemExit(f"zarr reads with {codec.__module__}: zarr-bytes is not active")
        selections = {
            "a star, 64 x 64 pixels": STAR,
            "a row": np.s_[100],
            "a pixel": np.s_[4000, 2000],
            "the image": np.s_[:],
        }
        costs = gallery.compare(partial(zarr.open_array, folder, mode="r"), selections, expected)
    print(f"{expected.shape} {expected.dtype.str}; every pixel equals astropy's")
    table = [
        {"selection": what, "its own": f"{expected[selection].nbytes:,} bytes"}
        | gallery.compared(what, costs[what])
        for what, selection in selections.items()
    ]
    own, read = expected[STAR].nbytes, costs["a star, 64 x 64 pixels"]["zarr-bytes"].nbytes
    title = f"a star: {gallery.in_size(own)}\n{gallery.in_size(read)} read"
    gallery.finish(draw(expected, title), table, picture)


if __name__ == "__main__":
    main()
