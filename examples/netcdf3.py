"""A NetCDF-3 file, read with VirtualiZarr and xarray: bytes and times, with zarr-bytes and without.

A variable of a NetCDF-3 file is one uncompressed run of bytes, so VirtualiZarr presents it as one
chunk. Plain zarr reads the whole chunk for any selection; zarr-bytes reads only the selection.

    python examples/netcdf3.py [--picture PATH]

Needs Linux for its count of bytes, virtualizarr (with kerchunk on Python 3.11), obstore, scipy,
xarray, and matplotlib for the picture.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import numpy as np
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from scipy.io import netcdf_file
from virtualizarr.parsers import NetCDF3Parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = {"time": 64, "lat": 721, "lon": 1440}  # 266 MB of float32
SELECTIONS = {
    "one time step": {"time": 40},
    "a region, all times": {"lat": slice(440, 480), "lon": slice(700, 760)},
    "a series at one point": {"lat": 240, "lon": 810},
    "the whole variable": {},
}
NEEDED = {  # bytes; for a region, from the first value to the last of each time step
    "one time step": 721 * 1440 * 4,
    "a region, all times": 64 * (39 * 1440 + 60) * 4,
    "a series at one point": 64 * 4,
}


def waves() -> xr.DataArray:
    """Waves that travel east."""
    lat = np.linspace(-np.pi / 2, np.pi / 2, SHAPE["lat"])[:, None]
    lon = np.linspace(0, 2 * np.pi, SHAPE["lon"])
    steps = [np.cos(lat) * np.sin(5 * lon - t / 4) + np.sin(3 * lat) for t in range(SHAPE["time"])]
    return xr.DataArray(np.array(steps, "f4"), dims=list(SHAPE))


def write(path: Path, values: xr.DataArray) -> None:
    """Write an ordinary NetCDF-3 file."""
    with netcdf_file(path, "w", version=2) as file:
        for name, size in SHAPE.items():
            file.createDimension(name, size)
        file.createVariable("wave", ">f4", tuple(SHAPE))[:] = values


def open_array(path: Path) -> xr.DataArray:
    """The variable as an array of xarray."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = NetCDF3Parser()(url=path.as_uri(), registry=registry)
    options = {"consolidated": False, "zarr_format": 3}
    return xr.open_dataset(store, engine="zarr", chunks=None, cache=False, **options)["wave"]


def draw(step: np.ndarray, costs: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw a time step, the places of other selections, and the bytes read for each."""
    figure, (chart, axes) = gallery.new_figure(2, figsize=(5, 5.4), height_ratios=[5, 4])
    lon, lat = np.linspace(0, 360, SHAPE["lon"]), np.linspace(-90, 90, SHAPE["lat"])
    chart.contourf(lon, lat, step, levels=np.linspace(-2, 2, 9), cmap="RdBu_r")
    chart.fill(lon[[700, 700, 759, 759]], lat[[440, 479, 479, 440]], ec="k", fc="none")
    chart.text(182, 34, "region", color="k", ha="center")
    chart.plot(lon[810], lat[240], "k.")
    chart.text(lon[810], -41, "point", color="k", ha="center")
    chart.set_title("One time step of the wave,\nand where the other selections are")
    chart.set_xlabel("longitude (degrees east)")
    chart.set_ylabel("latitude (degrees north)")
    gallery.draw_costs(axes, costs)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def main() -> None:
    """Read the selections both ways, and draw one."""
    picture = gallery.picture_path(__doc__)
    values = waves()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "wave.nc"
        write(path, values)
        print(f"{path.name}: {SHAPE} float32, {path.stat().st_size:,} bytes")
        costs = gallery.compare(lambda: open_array(path), SELECTIONS, values)
    for what, nbytes in NEEDED.items():
        if costs[what]["zarr-bytes"].nbytes != nbytes:
            raise SystemExit(f"{what}: {nbytes:,} bytes should have been read")
    table = [gallery.compared(what, both) for what, both in costs.items()]
    gallery.finish(draw(values[40], costs), table, picture)


if __name__ == "__main__":
    main()
