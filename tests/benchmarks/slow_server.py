"""A file server that answers late and sends slowly, as object stores do."""

import asyncio
import multiprocessing
from contextlib import contextmanager

from aiohttp import web

PIECE = 2**16  # bytes sent between two pauses


@contextmanager
def slow_server(size, latency, rate):
    """URL of a server in a process of its own, which has `size` zero bytes under any name.

    A response begins `latency` seconds after its request, and each connection brings `rate` bytes
    a second.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, size, latency, rate), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def _serve(pipe, size, latency, rate):
    zeros = bytes(PIECE)

    async def answer(request):
        begin = asyncio.get_running_loop().time() + latency
        wanted = request.http_range
        start, stop = wanted.start or 0, min(wanted.stop or size, size)
        is_part = "Range" in request.headers
        response = web.StreamResponse(status=206 if is_part else 200)
        response.content_length = stop - start
        if is_part:
            response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        sent = 0
        while sent < stop - start:
            due = begin + sent / rate
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            if not sent:
                await response.prepare(request)
                if request.method == "HEAD":
                    break
            await response.write(zeros[: stop - start - sent])
            sent += PIECE
        return response

    async def main():
        app = web.Application()
        app.router.add_get("/{name:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())
