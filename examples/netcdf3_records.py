"""A NetCDF-3 file with an unlimited time, read through kerchunk's references: local and over HTTP.

The file has a record for each time step, and the references have a chunk for each record. For each
chunk, plain zarr opens the file or sends a request, and reads the whole chunk. zarr-bytes opens a
local file once and reads the selection. From a server, it requests the selection, with 32 small
requests at a time and joined requests for consecutive records.

The server is another process on this machine, and begins each response after 20 ms.

    python examples/netcdf3_records.py [--picture PATH]

Needs Linux for its count of bytes, aiohttp, fsspec, kerchunk, scipy, xarray, and matplotlib for the
picture.
"""

import asyncio
import multiprocessing
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import numpy as np
import xarray as xr
import zarr
from aiohttp import web
from kerchunk.netCDF3 import NetCDF3ToZarr
from scipy.io import netcdf_file

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import SynchronizedArray

    from matplotlib.figure import Figure

SHAPE = {"time": 365, "lat": 180, "lon": 360}  # a record of 259 kB of float32 for each day
RECORD_NBYTES = SHAPE["lat"] * SHAPE["lon"] * 4
POINT = {"lat": 140, "lon": 10}
SELECTIONS = {"a series at one point": POINT, "30 days": {"time": slice(151, 181)}}
NEEDED = {  # files opened, requests and bytes
    ("local file", "a series at one point"): (1, 0, SHAPE["time"] * 4),
    ("local file", "30 days"): (1, 0, 30 * RECORD_NBYTES),
    ("HTTP", "a series at one point"): (0, 365, SHAPE["time"] * 4),
    # Each request has three records, and the time between two records, which has 8 bytes.
    ("HTTP", "30 days"): (0, 10, 30 * RECORD_NBYTES + 20 * 8),
}
SECONDS_TO_ANSWER = 0.02


class Access:
    """Counts of a file's opens in this process, and of a server's requests and sent bytes."""

    def __init__(self, path: Path) -> None:
        self.path, self.opens = str(path), 0
        self.sent = multiprocessing.get_context("spawn").Array("q", 2)  # requests, bytes
        sys.addaudithook(self.count_open)

    def count_open(self, event: str, arguments: tuple[object, ...]) -> None:
        """Count an event of Python if it opens the file."""
        if event == "open" and arguments[0] == self.path:
            self.opens += 1

    def during(self, read: Callable[[], object]) -> tuple[int, int, int]:
        """Opens, requests and the bytes sent during a read."""
        opens, (requests, nbytes) = self.opens, self.sent[:]
        read()
        return self.opens - opens, self.sent[0] - requests, self.sent[1] - nbytes


def serve(folder: str, listening: socket.socket, sent: "SynchronizedArray[int]") -> None:
    """Serve a folder over HTTP, with late responses; aiohttp answers requests for ranges."""

    async def wait_and_count(request: web.Request, response: web.StreamResponse) -> None:
        await asyncio.sleep(SECONDS_TO_ANSWER)
        if request.method == "GET":
            sent[0] += 1
            sent[1] += response.content_length or 0

    app = web.Application()
    app.router.add_static("/", folder)
    app.on_response_prepare.append(wait_and_count)
    web.run_app(app, sock=listening, print=None)


@contextmanager
def server_of(folder: str, sent: "SynchronizedArray[int]") -> Iterator[str]:
    """The URL of a server of a folder, which runs in a separate process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = folder, listening, sent
        process = multiprocessing.get_context("spawn").Process(target=serve, args=arguments)
        process.start()
        try:
            yield "http://{}:{}".format(*listening.getsockname())
        finally:
            process.kill()
            process.join()


def temperatures() -> xr.DataArray:
    """Temperatures of a year, in degrees Celsius: warm at the equator, and summers and winters."""
    day = np.arange(SHAPE["time"])[:, None, None]
    lat = np.deg2rad(np.arange(-89.5, 90))[:, None]
    lon = np.deg2rad(np.arange(0.5, 360))
    season = np.sin(2 * np.pi * (day - 110) / 365)
    weather = 3 * np.sin(4 * lon - day / 2.5) * np.cos(lat) + 2 * np.sin(7 * lon + day / 1.7)
    values = 40 * np.cos(lat) - 15 + 15 * np.sin(lat) * season + weather
    return xr.DataArray(values.astype("f4"), dims=list(SHAPE))


def write(path: Path, values: xr.DataArray) -> None:
    """Write a NetCDF-3 file with an unlimited time."""
    with netcdf_file(path, "w", version=2) as file:
        for name, size in SHAPE.items():
            file.createDimension(name, None if name == "time" else size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2025-01-01"
        time[:] = np.arange(SHAPE["time"])
        file.createVariable("temperature", ">f4", tuple(SHAPE))[:] = values


def open_array(references: dict[str, object]) -> xr.DataArray:
    """The variable of kerchunk's references as an array of xarray."""
    options = {"chunks": None}  # without Dask, where each task would read one chunk
    dataset = xr.open_dataset(references, engine="kerchunk", open_dataset_options=options)
    return dataset["temperature"]


def count(
    references: dict[str, object], access: Access
) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Opens, requests and bytes sent for each selection and way."""
    arrays, found = {}, {}
    for way, configuration in gallery.WAYS.items():
        with zarr.config.set(configuration):
            arrays[way] = open_array(references)
    for what, selection in SELECTIONS.items():
        for way, array in arrays.items():
            found[what, way] = access.during(partial(gallery.values_of, array, selection))
    return found


def draw(series: np.ndarray, costs: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw the series at the point, and the time of each read."""
    figure, (chart, axes) = gallery.new_figure(2, figsize=(5, 5.4), height_ratios=[4, 5])
    chart.plot(series, color=gallery.BLUE, lw=1)
    chart.set_title("The temperature at one point,\nin 365 records of a file")
    chart.set_xlabel("day")
    chart.set_ylabel("degrees Celsius")
    gallery.draw_costs(axes, costs, "time", of="seconds")
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def main() -> None:
    """Read the selections both ways, from the file and from the server."""
    picture = gallery.picture_path(__doc__)
    values = temperatures()
    drawn, table = {}, []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "temperature.nc"
        write(path, values)
        print(f"{path.name}: {SHAPE} float32, {path.stat().st_size:,} bytes")
        access = Access(path)
        with server_of(folder, access.sent) as server:
            for place, url in {"local file": str(path), "HTTP": f"{server}/{path.name}"}.items():
                references = NetCDF3ToZarr(url, inline_threshold=0).translate()
                costs = gallery.compare(partial(open_array, references), SELECTIONS, values)
                for (what, way), (opens, requests, sent) in count(references, access).items():
                    cost = costs[what][way]
                    if place == "HTTP":
                        cost = gallery.Cost(sent, cost.seconds)
                    found, needed = (opens, requests, cost.nbytes), NEEDED[place, what]
                    if way == "zarr-bytes" and found != needed:
                        raise SystemExit(f"{place}, {what}: {found} instead of {needed}")
                    drawn.setdefault(f"{place}: {what}", {})[way] = cost
                    row = {"from": place, "selection": what, "with": way}
                    row |= {"files opened": str(opens), "requests": str(requests)}
                    row |= {"read": cost.in_bytes, "time": gallery.in_time(cost.seconds)}
                    table.append(row)
    gallery.finish(draw(values[:, POINT["lat"], POINT["lon"]], drawn), table, picture)


if __name__ == "__main__":
    main()
