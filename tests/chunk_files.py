"""The files of chunks, watched while they are read, with the faults that no file system gives.

What `os` is asked for is counted by the key of the chunk. `os.preadv` with ``RWF_NOWAIT`` finds
every byte in the page cache, unless it is told to have to wait.
"""

import errno
import os
import threading
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

REAL = {name: getattr(os, name, None) for name in ("open", "close", "read", "pread", "preadv")}
NOWAIT = getattr(os, "RWF_NOWAIT", 0)
NEVER = 2**62


class ChunkFiles:
    """Opens and reads of the files of chunks below `root`.

    Parameters
    ----------
    root : path
        Of the array.
    most : int
        Bytes that one call reads at most.
    waits_after : int
        Bytes of each chunk after which what is not waited for is refused.
    refusal : int
        Number of the error that says so.
    then : callable
        Called with the key after each open and each read of a chunk.
    """

    def __init__(
        self, root, *, most=NEVER, waits_after=NEVER, refusal=errno.EAGAIN, then=lambda key: None
    ):
        self.root = f"{root}/"
        self.most = most
        self.waits_after = waits_after
        self.refusal = refusal
        self.then = then
        self.opened = Counter()  # by key, also of chunks that are missing
        self.nbytes = Counter()  # by key
        self.threads = set()  # that have opened a file
        self.refused = 0
        self._keys = {}  # by descriptor

    def open(self, path, *args, **options):
        key = os.fspath(path).removeprefix(self.root)
        if key.partition("/")[0] != "c":
            return REAL["open"](path, *args, **options)
        self.opened[key] += 1
        self.threads.add(threading.get_ident())
        file = REAL["open"](path, *args, **options)
        self._keys[file] = key
        self.then(key)
        return file

    def close(self, file):
        self._keys.pop(file, None)
        REAL["close"](file)

    def read(self, file, nbytes):
        return self._noted(file, REAL["read"](file, self._limited(file, nbytes)))

    def pread(self, file, nbytes, offset):
        return self._noted(file, REAL["pread"](file, self._limited(file, nbytes), offset))

    def preadv(self, file, buffers, offset, flags=0):
        key = self._keys.get(file)
        if key is None:
            return REAL["preadv"](file, buffers, offset, flags)
        left = self.most
        if flags & NOWAIT:
            left = min(left, self.waits_after - self.nbytes[key])
            if left <= 0:
                self.refused += 1
                raise OSError(self.refusal, os.strerror(self.refusal))
        cut = []
        for buffer in buffers:
            memory = memoryview(np.frombuffer(buffer, np.uint8))[:left]
            cut.append(memory)
            left -= len(memory)
        return self._noted(file, REAL["preadv"](file, cut, offset))

    def _limited(self, file, nbytes):
        return min(nbytes, self.most) if file in self._keys else nbytes

    def _noted(self, file, content):
        key = self._keys.get(file)
        if key is not None:
            self.nbytes[key] += content if isinstance(content, int) else len(content)
            self.then(key)
        return content


@contextmanager
def watched(root, **options):
    """`ChunkFiles` of the array at `root`, in the place of what `os` has."""
    files = ChunkFiles(root, **options)
    with pytest.MonkeyPatch.context() as patch:
        for name, real in REAL.items():
            if real is not None:
                patch.setattr(os, name, getattr(files, name))
        yield files
