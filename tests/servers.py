"""HTTP servers of the files of a folder, which keep what is asked of chunks and what is sent."""

import gzip
import re
import threading
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class WithoutRanges(SimpleHTTPRequestHandler):
    """The handler of ``python -m http.server``, which sends whole files."""

    def do_GET(self):
        if "/c/" in self.path:
            self.server.asked.append(self.headers["Range"])
        with suppress(ConnectionError):  # a client that has what it needs hangs up
            super().do_GET()

    def log_message(self, *args):
        pass


class WithRanges(WithoutRanges):
    protocol_version = "HTTP/1.1"
    encoding = None

    def content(self, path):
        return path.read_bytes()

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content = self.content(path)
        start, stop, asked = 0, len(content), self.headers["Range"]
        if asked:
            first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked).groups()
            start = int(first) if first else stop - int(last)
            stop = min(int(last) + 1, stop) if first and last else stop
        if "/c/" in self.path:
            self.server.sent.append(max(stop - start, 0))
            if self.server.together is not None:
                self.server.together.wait(30)
        if start >= stop:
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(stop - start))
        if self.encoding:
            self.send_header("Content-Encoding", self.encoding)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[start:stop])


class Compressed(WithRanges):
    """Ranges of compressed objects, as S3 sends those that have a ``Content-Encoding``."""

    encoding = "gzip"

    def content(self, path):
        return gzip.compress(super().content(path), 1)


class NextPlane(WithRanges):
    """Another range of the same length, of 20,000 bytes, and its place in ``Content-Range``."""

    def do_GET(self):
        first, _, last = (self.headers["Range"] or "").removeprefix("bytes=").partition("-")
        if first and last and int(last) - int(first) == 19_999:
            del self.headers["Range"]
            self.headers["Range"] = f"bytes={int(first) + 20_000}-{int(last) + 20_000}"
        super().do_GET()


class Server(ThreadingHTTPServer):
    request_queue_size = 100  # connections that wait to be accepted, or else for a second

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.is_serving = threading.Event()

    def service_actions(self):
        """Called in each turn of the loop of `serve_forever`."""
        self.is_serving.set()


@contextmanager
def serving(folder, handler=WithRanges):
    """A running server at `url`.

    Of chunks, it has `asked`, the headers that ask for ranges, or the bytes that it has `sent`. It
    answers when as many have asked as a barrier says, `together`.
    """
    with Server(("127.0.0.1", 0), partial(handler, directory=folder)) as server:
        server.asked, server.sent, server.together = [], [], None
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        # A server that is closed before its loop has begun, as by a test that is skipped, fails.
        assert server.is_serving.wait(30)
        try:
            yield server
        finally:
            server.shutdown()
