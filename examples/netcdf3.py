"""A NetCDF-3 file seen through VirtualiZarr and xarray: what it costs, with the plugin and without.

A variable of a NetCDF-3 file is one uncompressed run of bytes, so VirtualiZarr shows it as one
chunk. zarr's own codec fetches all of it for any selection; this one fetches what is selected.

    python examples/netcdf3.py [--picture PATH]

Needs virtualizarr (with kerchunk on Python 3.11), obstore, scipy, xarray, and matplotlib for the
picture.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
import zarr
from matplotlib.ticker import EngFormatter
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from scipy.io import netcdf_file
from virtualizarr.parsers import NetCDF3Parser
from zarr.storage import WrapperStore

HERE = Path(__file__).parent
SHAPE = {"time": 64, "lat": 721, "lon": 1440}  # 266 MB of float32
WHOLE = 64 * 721 * 1440 * 4
SELECTIONS = {  # with the bytes that zarr-bytes fetches
    "one time step": ({"time": 40}, 721 * 1440 * 4),
    "a region, all times": (  # in each time step from the first value to the last
        {"lat": slice(440, 480), "lon": slice(700, 760)},
        64 * (39 * 1440 + 60) * 4,
    ),
    "a series at one point": ({"lat": 240, "lon": 810}, 64 * 4),
    "the whole variable": ({}, WHOLE),
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


def draw(step: np.ndarray, fetched: dict[str, list[int]], path: Path) -> None:
    """Draw the time step with the places of the other selections, and what each of them cost."""
    plt.style.use(HERE / "style.mplstyle")
    figure, (chart, costs) = plt.subplots(2, figsize=(5, 5.4), height_ratios=[5, 4])
    lon, lat = np.linspace(0, 360, SHAPE["lon"]), np.linspace(-90, 90, SHAPE["lat"])
    chart.contourf(lon, lat, step, levels=np.linspace(-2, 2, 9), cmap="RdBu_r")
    chart.fill(lon[[700, 700, 759, 759]], lat[[440, 479, 479, 440]], ec="k", fc="none")
    chart.text(182, 34, "region", ha="center")
    chart.plot(lon[810], lat[240], "k.")
    chart.text(lon[810], -41, "point", ha="center")
    chart.set_title("One time step of the wave,\nand where the other selections are")
    chart.set_xlabel("longitude (degrees east)")
    chart.set_ylabel("latitude (degrees north)")

    names, (own, ours) = list(fetched), zip(*fetched.values(), strict=True)
    costs.hlines(names, ours, own, "0.85", zorder=0)
    costs.plot(own, names, "o", ms=10, label="zarr's own codec")
    costs.plot(ours, names, "o", ms=6, label="zarr-bytes")
    in_words = EngFormatter("B", places=0)
    for name, theirs, read in zip(names, own, ours, strict=True):
        beside, above = {"va": "center", "color": "0.4"}, {"ha": "center", "color": "C1"}
        costs.annotate(
            in_words(theirs), (theirs, name), (9, 0), textcoords="offset points", **beside
        )
        costs.annotate(in_words(read), (read, name), (0, 5), textcoords="offset points", **above)
    costs.set_xscale("log")
    costs.set_xlim(1e2, 1e9)
    costs.xaxis.set_major_formatter(EngFormatter("B"))
    costs.set_ylim(len(names) - 0.5, -0.7)
    costs.set_xlabel("bytes fetched (logarithmic)")
    figure.legend(loc="outside lower right", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Read the selections with each codec, print what they cost, and draw one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/netcdf3.png")
    picture = parser.parse_args().picture

    fetched = {}
    print(f"{'':24}{'codec':>14}{'fetched':>16}{'time':>12}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "wave.nc"
        write(path)
        registry = ObjectStoreRegistry({"file://": LocalStore()})
        for name, (selection, nbytes) in SELECTIONS.items():
            results, fetched[name] = [], []
            for codec, qualified_name in CODECS.items():
                store = CountingStore(NetCDF3Parser()(url=path.as_uri(), registry=registry))
                with zarr.config.set({"codecs.bytes": qualified_name}):
                    dataset = xr.open_zarr(store, consolidated=False, chunks=None, zarr_format=3)
                    store.nbytes, started = 0, perf_counter()
                    results.append(dataset["wave"].isel(selection).to_numpy())
                seconds = perf_counter() - started
                fetched[name].append(store.nbytes)
                print(f"{name:24}{codec:>14}{store.nbytes:>16,}{seconds * 1e3:>9.1f} ms")
            if not np.array_equal(*results):
                raise SystemExit("the codecs read different values")
            if fetched[name] != [WHOLE, nbytes]:
                raise SystemExit(f"expected {WHOLE:,} and {nbytes:,} bytes to be fetched")
            if name == "one time step":
                step = results[1]
    draw(step, fetched, picture)


if __name__ == "__main__":
    main()
