"""A NetCDF-3 file seen through VirtualiZarr and xarray: what it costs, with the plugin and without.

A variable of a NetCDF-3 file is one uncompressed run of bytes, so VirtualiZarr shows it as one
chunk. zarr's own codec fetches all of it for any selection; this one fetches what is selected.

    python examples/netcdf3.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import matplotlib as mpl
import numpy as np
import xarray as xr
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from scipy.io import netcdf_file
from virtualizarr.parsers import NetCDF3Parser
from zarr.storage import WrapperStore

mpl.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).parent / "output" / "netcdf3.png"
SHAPE = {"time": 64, "lat": 721, "lon": 1440}  # 266 MB of float32
SELECTIONS = {
    "one time step": {"time": 40},
    "a region, all times": {"lat": slice(300, 340), "lon": slice(700, 760)},
    "a series at one point": {"lat": 360, "lon": 720},
    "the whole variable": {},
}
CODECS = {
    "zarr's own": "zarr.codecs.bytes.BytesCodec",
    "zarr-bytes": "zarr_bytes.codec.BytesCodec",
}


class CountingStore(WrapperStore):
    """Counts the bytes that come out of the store behind it."""

    nbytes = 0

    async def get(self, key, prototype, byte_range=None):
        """Value of `key`, counted."""
        value = await super().get(key, prototype, byte_range)
        self.nbytes += 0 if value is None else len(value)
        return value


def write(path: Path) -> None:
    """Write waves that travel east, as an ordinary NetCDF-3 file."""
    lat = np.linspace(-np.pi / 2, np.pi / 2, SHAPE["lat"])[:, None]
    lon = np.linspace(0, 2 * np.pi, SHAPE["lon"])
    with netcdf_file(path, "w", version=2) as file:
        for name, size in SHAPE.items():
            file.createDimension(name, size)
        variable = file.createVariable("wave", ">f4", tuple(SHAPE))
        for t in range(SHAPE["time"]):
            variable[t] = np.cos(lat) * np.sin(5 * lon - t / 4) + np.sin(3 * lat)


def main() -> None:
    """Read the selections with each codec, print what they cost, and draw one."""
    print(f"{'':24}{'codec':>14}{'fetched':>16}{'time':>12}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "wave.nc"
        write(path)
        registry = ObjectStoreRegistry({"file://": LocalStore()})
        for name, selection in SELECTIONS.items():
            results = []
            for codec, qualified_name in CODECS.items():
                store = CountingStore(NetCDF3Parser()(url=path.as_uri(), registry=registry))
                with zarr.config.set({"codecs.bytes": qualified_name}):
                    dataset = xr.open_zarr(store, consolidated=False, chunks=None, zarr_format=3)
                    store.nbytes, started = 0, perf_counter()
                    results.append(dataset["wave"].isel(selection).to_numpy())
                seconds = perf_counter() - started
                print(f"{name:24}{codec:>14}{store.nbytes:>16,}{seconds * 1e3:>9.1f} ms")
            if not np.array_equal(*results):
                raise SystemExit("the codecs read different values")
            if name == "one time step":
                picture, fetched = results[1], store.nbytes

    PICTURE.parent.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.imshow(picture, origin="lower", extent=(0, 360, -90, 90), cmap="RdBu_r")
    whole = np.prod(list(SHAPE.values())) * 4
    axes.set_title(f"{fetched / 1e6:.1f} MB fetched out of the {whole / 1e6:.0f} MB of a variable")
    axes.set_xlabel("longitude")
    axes.set_ylabel("latitude")
    figure.savefig(PICTURE, dpi=120)
    print(f"picture  {PICTURE}")


if __name__ == "__main__":
    main()
