"""A file server that answers late and sends slowly, as object stores do, and the best order."""

import heapq
import json
import multiprocessing
import os
import re
import socket
import socketserver
from contextlib import contextmanager, suppress
from math import inf
from threading import Lock, Thread
from time import perf_counter, sleep
from urllib.request import urlopen

PIECE = 2**17  # bytes sent between two pauses
SLOTS, SMALL_SLOTS = 10, 32  # those of requests of less than a MiB


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
def slow_server(folder, latency, rate, rate_in_all=inf):
    """A server of the files of a folder, in a process of its own.

    A response begins `latency` seconds after its request. Each connection brings `rate` bytes a
    second, and all together at most `rate_in_all`.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = theirs, str(folder), latency, rate, rate_in_all
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    try:
        yield Server(f"http://127.0.0.1:{ours.recv()}")
    finally:
        process.kill()
        process.join()


class Answering(socketserver.BaseRequestHandler):
    """A connection, in a thread of its own; the system sends the files, as Python is slow."""

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = b""
        with suppress(ConnectionError):
            while part := self.request.recv(2**16):
                head += part
                if head.endswith(b"\r\n\r\n"):
                    self.answer(head.decode("latin-1"), perf_counter() + self.server.latency)
                    head = b""

    def answer(self, head, begin):
        server, (method, path, _) = self.server, head.split(" ", 2)
        if path == "/-/log":
            content = json.dumps({"sent": server.sent, "most": server.most}).encode()
            server.sent, server.most = [], 0
            self.send_head("200 OK", len(content))
            self.request.sendall(content)
            return
        server.running.add(self)
        server.most = max(server.most, len(server.running))
        try:
            file = open(server.folder + path, "rb")  # noqa: PTH123, SIM115
        except OSError:
            server.sent.append((path, 0, 0))
            self.send_head("404 Not Found", 0, begin=begin)
            return
        with file:
            size = file.seek(0, 2)
            start, stop, status, more = 0, size, "200 OK", ()
            if found := re.search(r"(?i)\r\nrange: *bytes=(\d*)-(\d*)", head):
                first, last = found.groups()
                start = int(first) if first else max(size - int(last), 0)
                stop = min(int(last) + 1, size) if first and last else size
                status = "206 Partial Content"
                more = (f"Content-Range: bytes {start}-{stop - 1}/{size}",)
            at = start if method == "GET" else stop
            server.sent.append((path, start, stop) if method == "GET" else (path, 0, 0))
            self.send_head(status, stop - start, *more, begin=begin, is_all=at == stop)
            while at < stop:
                if stop - at <= PIECE:
                    server.running.discard(self)  # before the client has all, and asks again
                nbytes = os.sendfile(
                    self.request.fileno(), file.fileno(), at, min(PIECE, stop - at)
                )
                at += nbytes
                with server.lock:  # the pieces of all connections go one after another
                    server.free_at = max(server.free_at, perf_counter())
                    server.free_at += nbytes / server.rate_in_all
                    free_at = server.free_at
                sleep(max(begin + (at - start) / server.rate - perf_counter(), 0))
                sleep(max(free_at - perf_counter(), 0))

    def send_head(self, status, nbytes, *more, begin=0, is_all=True):
        sleep(max(begin - perf_counter(), 0))
        if is_all:
            self.server.running.discard(self)
        lines = f"HTTP/1.1 {status}", f"Content-Length: {nbytes}", "Accept-Ranges: bytes", *more
        self.request.sendall("\r\n".join([*lines, "", ""]).encode())


def _serve(pipe, folder, latency, rate, rate_in_all):
    class Threads(socketserver.ThreadingTCPServer):
        daemon_threads, request_queue_size = True, 128

    with Threads(("127.0.0.1", 0), Answering) as server:
        server.folder, server.latency, server.rate = folder, latency, rate
        server.rate_in_all, server.free_at, server.lock = rate_in_all, 0.0, Lock()
        server.sent, server.most, server.running = [], 0, set()
        Thread(target=server.serve_forever, daemon=True).start()
        pipe.send(server.server_address[1])
        pipe.poll(None)  # until the other process has ended


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
    """Seconds of ranges of these sizes in the best order.

    Ranges smaller than `least` are sent 32 at a time, and of these ten may be larger, or pieces of
    larger ones, cut to one size of all from `least` to `largest`. The longest comes first.
    """
    times = []
    for size in {largest // n for n in range(1, largest // least + 1)}:
        slots, others = [0.0] * SLOTS, [0.0] * (SMALL_SLOTS - SLOTS)
        cut = [(n, -(-n // size)) for n in sizes]
        requests = [(n / count, n < least) for n, count in cut for _ in range(count)]
        for request, is_small in sorted(requests, reverse=True):
            chosen = others if is_small and others[0] < slots[0] else slots
            heapq.heappush(chosen, heapq.heappop(chosen) + latency + request / rate)
        times.append(max(*slots, *others))
    return min(times)
