"""Read an uncompressed FITS image as Zarr, byte for byte, with plain zarr code.

The image is M13, big-endian int16, as it ships inside the astropy package. Its data segment becomes
the one chunk of an array, beside metadata that says how the bytes lie. Nothing is converted.

    python examples/quickstart.py [--picture PATH]

Needs astropy, and matplotlib for the picture.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import astropy.io.fits
import matplotlib.pyplot as plt
import numpy as np
import zarr  # and nothing of zarr-bytes: installing it is enough

HERE = Path(__file__).parent
IMAGE = Path(astropy.io.fits.__path__[0]) / "hdu/compressed/tests/data/m13.fits"


def draw(image: np.ndarray, path: Path) -> None:
    """Draw the image, stars white on black."""
    plt.style.use(HERE / "style.mplstyle")
    figure, axes = plt.subplots(figsize=(5, 5))
    low, high = np.percentile(image, [1, 99.5])
    grey = plt.get_cmap("gray", 16)  # few levels make a small file
    axes.imshow(image, origin="lower", cmap=grey, vmin=low, vmax=high, interpolation="nearest")
    axes.set_title(f"M13: {image.nbytes:,} bytes of a FITS file, read as a Zarr chunk")
    axes.set_xlabel("x (pixels)")
    axes.set_ylabel("y (pixels)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Read the image both ways and save a picture of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/quickstart.png")
    picture = parser.parse_args().picture

    with astropy.io.fits.open(IMAGE) as hdus:
        expected = hdus[0].data.copy()
        segment = hdus[0].fileinfo()  # where in the file the data lie
    data = IMAGE.read_bytes()[segment["datLoc"] :][: expected.nbytes]

    with TemporaryDirectory() as folder:
        store = Path(folder)
        document = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": expected.shape,
            "data_type": "int16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": expected.shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
        }
        (store / "zarr.json").write_text(json.dumps(document, indent=2))
        chunk = store / "c/0/0"
        chunk.parent.mkdir(parents=True)
        chunk.write_bytes(data)

        array = zarr.open_array(store, mode="r")
        image = array[:]

    codec = array.metadata.codecs[0]
    if not np.array_equal(image, expected):
        raise SystemExit("zarr and astropy read different images")
    if type(codec).__module__ != "zarr_bytes.codec":
        raise SystemExit(f"zarr reads with {codec!r}: zarr-bytes is not active")
    print(f"image    {IMAGE.name}: {image.shape} {expected.dtype.str} in {len(data):,} bytes")
    print(f"codec    {codec!r}, named by zarr.json as {codec.to_dict()}")
    print("compared with astropy: every pixel is equal, no byte was converted on the way in")
    draw(image, picture)


if __name__ == "__main__":
    main()
