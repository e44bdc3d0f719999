"""An array behind HTTP and in S3: bytes that the servers send, with zarr-bytes and without.

Both servers run on this machine: aiohttp serves files, and moto imitates S3. A proxy in front of
each server counts all bytes that the server sends, headers included. The array is one chunk. Plain
zarr fetches the whole chunk for any selection; zarr-bytes fetches only the selection. No times are
given, because there is no network to wait for, and moto copies the whole object for each request.

    python examples/http_and_s3.py [--picture PATH]

Needs aiohttp, fsspec, moto[server], obstore, s3fs, and matplotlib for the picture.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

import gallery
import numpy as np
import s3fs
import zarr
from aiohttp import web
from moto.server import ThreadedMotoServer
from obstore.store import S3Store
from zarr.storage import ObjectStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = (32, 512, 512)  # time, y, x: 34 MB of float32
SELECTIONS = {  # with the necessary bytes and requests
    "one time step": (np.s_[20], 512 * 512 * 4, 1),
    # From the first value to the last of each time step: a gap costs less than a request.
    "a region, all times": (np.s_[:, 200:240, 300:340], 32 * (39 * 512 + 40) * 4, 32),
    "a series at one point": (np.s_[:, 256, 256], 32 * 4, 32),
}


class Meter:
    """A proxy for a server on this machine that counts requests, and the bytes sent back."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.upstream, self.requests, self.sent = port, 0, 0
        listening = asyncio.start_server(self.connect, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(listening, loop).result()
        self.url = "http://{}:{}".format(*server.sockets[0].getsockname())

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection on, in both directions."""
        answers, requests = await asyncio.open_connection("127.0.0.1", self.upstream)
        with suppress(ConnectionError):
            await asyncio.gather(self.ask(reader, requests), self.answer(answers, writer))

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass requests on; each GET arrives in one piece, because it is short and alone."""
        while data := await reader.read(2**16):
            self.requests += data.startswith(b"GET ")
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass answers on."""
        while data := await reader.read(2**18):
            self.sent += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()


def serve_files(folder: str) -> int:
    """Serve a folder over HTTP, and return the port; aiohttp answers requests for ranges."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = web.Application()
    app.router.add_static("/", folder)
    options = {"sock": listening, "loop": asyncio.new_event_loop(), "handle_signals": False}
    Thread(target=web.run_app, args=[app], kwargs={**options, "print": None}, daemon=True).start()
    return listening.getsockname()[1]


def draw(sent: dict[str, dict[str, gallery.Cost]]) -> "Figure":
    """Draw the bytes that the servers sent for each store and selection."""
    figure, axes = gallery.new_figure(figsize=(5, 4.6))
    gallery.draw_costs(axes, sent, "bytes sent")
    title = "What the servers sent, out of a chunk of 34 MB"
    figure.suptitle(title, x=0.02, ha="left", size=10.5)
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def main() -> None:
    """Write the array to both servers, and read the selections."""
    picture = gallery.picture_path(__doc__)
    values = np.random.default_rng(0).random(SHAPE, dtype="f4")
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto would log every request
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    sent, table = {}, []
    with TemporaryDirectory() as folder:
        http = Meter(serve_files(folder), loop)
        s3 = Meter(moto.get_host_and_port()[1], loop)
        options = {"endpoint_url": s3.url, "key": "testing", "secret": "testing"}
        obstore = S3Store(
            "bucket",
            prefix="array",
            endpoint=s3.url,
            access_key_id="testing",
            secret_access_key="testing",  # noqa: S106
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        stores = {
            "HTTP, fsspec": (http, {"store": http.url}),
            "S3, s3fs": (s3, {"store": "s3://bucket/array", "storage_options": options}),
            "S3, obstore": (s3, {"store": ObjectStore(obstore, read_only=True)}),
        }
        s3fs.S3FileSystem(**options).mkdir("bucket")
        for place in ({"store": folder}, stores["S3, s3fs"][1]):
            zarr.create_array(**place, data=values, chunks=SHAPE, compressors=None)

        for store, (meter, place) in stores.items():
            for name, (selection, nbytes, requests) in SELECTIONS.items():
                found, row = {}, {"store": store, "selection": name}
                for way, configuration in gallery.WAYS.items():
                    with zarr.config.set(configuration):
                        array = zarr.open_array(**place, mode="r")
                    meter.requests, meter.sent = 0, 0
                    result = array[selection]
                    found[way] = gallery.Cost(meter.sent, 0)
                    row[f"sent to {way}"] = found[way].in_bytes
                    row[f"requests of {way}"] = str(meter.requests)
                    if not np.array_equal(result, values[selection]):
                        raise SystemExit("the values read are not the values written")
                headers = meter.sent - nbytes
                if meter.requests != requests or not 0 < headers < 1000 * requests:
                    raise SystemExit(f"expected {nbytes:,} bytes and headers, {requests} requests")
                sent[f"{store}: {name}"] = found
                table.append(row)
    moto.stop()
    gallery.finish(draw(sent), table, picture)


if __name__ == "__main__":
    main()
