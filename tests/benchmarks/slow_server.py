"""A file server that answers late and sends slowly, as object stores do, and the best order."""

import asyncio
import heapq
import json
import multiprocessing
from contextlib import contextmanager
from urllib.request import urlopen

PIECE = 2**17  # bytes sent between two pauses
SLOTS = 10


class Server:
    """A running server, at `url`."""

    def __init__(self, url):
        self.url = url

    def log(self):
        """What has been sent since the last call, as (path, start, stop), and the most at once.

        Answers without a body, to HEAD and for missing objects, have a start and a stop of 0.
        """
        with urlopen(f"{self.url}/-/log") as answer:  # noqa: S310
            return json.load(answer)


@contextmanager
def slow_server(folder, latency, rate):
    """A server of the files of a folder, in a process of its own.

    A response begins `latency` seconds after its request, and each connection brings `rate` bytes
    a second.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = theirs, str(folder), latency, rate
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    try:
        yield Server(f"http://127.0.0.1:{ours.recv()}")
    finally:
        process.kill()
        process.join()


def _serve(pipe, folder, latency, rate):
    from aiohttp import web

    sent, under_way = [], [0, 0]  # now, and the most

    async def answer(request):
        begin = asyncio.get_running_loop().time() + latency
        under_way[0] += 1
        under_way[1] = max(under_way)
        try:
            return await respond(request, begin)
        finally:
            under_way[0] -= 1

    async def respond(request, begin):
        try:
            file = open(f"{folder}/{request.match_info['name']}", "rb")  # noqa: PTH123, SIM115
        except OSError:
            sent.append((request.path, 0, 0))
            await asyncio.sleep(latency)
            raise web.HTTPNotFound from None
        with file:
            size = file.seek(0, 2)
            wanted, is_part = request.http_range, "Range" in request.headers
            start = wanted.start or 0
            start, stop = start + size * (start < 0), min(wanted.stop or size, size)
            response = web.StreamResponse(status=206 if is_part else 200)
            response.content_length, response.headers["Accept-Ranges"] = stop - start, "bytes"
            if is_part:
                response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
            await asyncio.sleep(begin - asyncio.get_running_loop().time())
            await response.prepare(request)
            if request.method == "HEAD":
                sent.append((request.path, 0, 0))
                return response
            sent.append((request.path, start, stop))
            file.seek(start)
            for at in range(start, stop, PIECE):
                await response.write(file.read(min(PIECE, stop - at)))
                due = begin + (min(at + PIECE, stop) - start) / rate
                await asyncio.sleep(due - asyncio.get_running_loop().time())
        return response

    async def log(_):
        found = {"sent": [*sent], "most": under_way[1]}
        sent.clear()
        under_way[1] = 0
        return web.json_response(found)

    async def main():
        app = web.Application()
        app.router.add_get("/-/log", log)
        app.router.add_get("/{name:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


def joined(sent, gap=0):
    """Sizes of the ranges of (path, start, stop), joined over gaps."""
    found = []
    for path, start, stop in sorted(sent):
        if found and found[-1][0] == path and start - found[-1][2] <= gap:
            found[-1][2] = stop
        else:
            found.append([path, start, stop])
    return [stop - start for _, start, stop in found]


def best(sizes, latency, rate, largest=2**23, least=2**20):
    """Seconds of ranges of these sizes in the best order, ten at a time.

    They are cut to one size of all from `least` to `largest`, and the longest comes first.
    """
    times = []
    for size in {largest // n for n in range(1, largest // least + 1)}:
        slots = [0.0] * SLOTS
        requests = [n / count for n in sizes if (count := -(-n // size)) for _ in range(count)]
        for request in sorted(requests, reverse=True):
            heapq.heappush(slots, heapq.heappop(slots) + latency + request / rate)
        times.append(max(slots))
    return min(times)
