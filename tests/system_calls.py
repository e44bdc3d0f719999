"""Calls of the system, watched: they fail, do less than they were asked for, or something happens.

No file system does these things on demand, or at a given moment.
"""

import asyncio
import errno
import mmap
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from zarr_bytes.io import range_writing
from zarr_bytes.io.known_stores import known_stores

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None

READING = ("read", "pread", "preadv", "readv")
WRITING = ("write", "pwrite", "pwritev", "writev")
OTHERS = (
    *("open", "close", "lseek", "stat", "lstat", "fstat", "scandir"),
    *("link", "rename", "replace", "unlink", "truncate", "ftruncate"),
)
LOCKING = ("flock", "lockf", "fcntl")
RARER = (
    *("mkdir", "rmdir", "remove", "chmod", "fchmod", "utime", "fsync", "fdatasync"),
    *("posix_fallocate", "copy_file_range", "sendfile", "memfd_create"),
    *(*LOCKING, "mmap", "read_to_addresses"),
)
EVERY_CALL = READING + WRITING + OTHERS + RARER


def module_of(name):
    """The module that has a call of the system, where tests replace it: `os` for most.

    The package looks up each call there when it makes it. `read_to_addresses` is the one that
    Python lacks.
    """
    others = {"read_to_addresses": range_writing, "mmap": mmap, **dict.fromkeys(LOCKING, fcntl)}
    return others.get(name, os)


@contextmanager
def _replaced(names, replacement):
    """The calls of these names that there are, each replaced by what `replacement` makes of it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            if call := getattr(module_of(name), name, None):
                patch.setattr(module_of(name), name, replacement(name, call))
        yield


@contextmanager
def ending_early(seed):
    """Reads and writes take at least one byte and as many more as `seed` says.

    Some calls that must not wait are refused. The arguments of a call decide it alone, so that
    threads change nothing.
    """

    def number(*arguments):
        return crc32(repr((seed, *arguments)).encode())

    def part_of(count, *arguments):
        return 1 + number(count, *arguments) % count if count else 0

    def replacement(name, function):
        def of_count(file, count, *offset):
            return function(file, part_of(count, *offset), *offset)

        def of_memory(file, memory, *offset):
            memory = memoryview(memory).cast("B")
            return function(file, memory[: part_of(len(memory), *offset)], *offset)

        def of_memories(file, memories, *offset_and_flags):
            must_not_wait = offset_and_flags[1:] and offset_and_flags[1] & os.RWF_NOWAIT
            if must_not_wait and not number(*offset_and_flags) % 4:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            left = part_of(sum(memoryview(m).nbytes for m in memories), *offset_and_flags)
            return function(file, first_of(memories, left), *offset_and_flags)

        if name.endswith("v"):
            return of_memories
        return of_memory if name in WRITING else of_count

    with _replaced(READING + WRITING, replacement):
        yield


_thread = threading.local()  # whether it acts, in any use of `before_each`


def interrupted(act, check, *, only=""):
    """`act` with an interrupt at each moment in turn, until it is done, each followed by `check`.

    Python looks for signals when a function of Python begins, and after one of C; those in files
    with `only` in their names. How many moments there are.
    """
    previous, number = sys.getprofile(), 0

    def look(frame, event, argument):
        is_meant = only in frame.f_code.co_filename and event in ("call", "c_return")
        if is_meant and next(looks) == 0:
            raise KeyboardInterrupt

    while True:
        looks, is_done = count(-number), False
        with suppress(KeyboardInterrupt):
            try:
                sys.setprofile(look)
                act()
                is_done = True
            finally:
                sys.setprofile(previous)
        check()
        if is_done:
            return number
        number += 1


@contextmanager
def before_each(act, names=READING + WRITING + OTHERS):
    """`act` is called before each call of the system that concerns files: its name and arguments.

    Not for calls that `act` makes itself. What it raises is what the call raises.
    """

    def replacement(name, function):
        def wrapped(*arguments, **named):
            if getattr(_thread, "is_acting", False):
                return function(*arguments, **named)
            _thread.is_acting = True
            try:
                act(name, *arguments)
            except OSError:
                if name == "close":  # which closes the file all the same
                    function(*arguments)
                raise
            finally:
                _thread.is_acting = False
            return function(*arguments, **named)

        return wrapped

    with _replaced(names, replacement):
        yield


@contextmanager
def at_each_call_below(root, act):
    """`act` is called before each call on files below `root`: its number, name and first argument.

    Yields the names of all these calls.
    """
    calls = []

    def act_below(name, first=None, *_):
        named = first
        if isinstance(first, int):
            with suppress(OSError):
                named = Path(f"/proc/self/fd/{first}").readlink()
        below = str(root), "/memfd:zarr-bytes", "zarr-bytes"
        if name == "read_to_addresses" or str(named).startswith(below):
            calls.append(name)
            act(len(calls) - 1, name, first)

    with before_each(act_below, EVERY_CALL):
        yield calls


NEVER = 2**62
NOWAIT = getattr(os, "RWF_NOWAIT", 0)
needs_nowait = pytest.mark.skipif(not NOWAIT, reason="this system has no RWF_NOWAIT")


@dataclass
class ChunkFiles:
    """What is opened and read below the folder of an array, by the keys of its chunks."""

    root: str | Path  # of the array
    _: KW_ONLY
    most: int = NEVER  # bytes that one call reads at most
    waits_after: int = NEVER  # bytes of each chunk after which reads that must not wait are refused
    refusal: int = errno.EAGAIN  # number of the error with which they are refused
    before: Callable[[str], object] = str  # called with the key before each chunk is opened
    then: Callable[[str], object] = str  # and after each open and each read of a chunk
    keys: list = field(default_factory=list)  # of chunks that are opened, or missing
    threads: list = field(default_factory=list)  # that open them
    reads: list = field(default_factory=list)  # of each read: thread, offset and bytes
    nbytes: Counter = field(default_factory=Counter)  # by key
    refused: int = 0
    files: dict = field(default_factory=dict)  # keys by descriptors that are open

    @property
    def opened(self):
        """How often each chunk is opened."""
        return Counter(self.keys)

    def open(self, function, path, *args, **options):
        key = os.fspath(path).removeprefix(f"{self.root}/")
        if not re.match(r"c(/|$)|\d", key):  # of a chunk of format 3 or 2
            return function(path, *args, **options)
        self.keys.append(key)
        self.threads.append(threading.get_ident())
        self.before(key)
        file = function(path, *args, **options)
        self.files[file] = key
        self.then(key)
        return file

    def close(self, function, file):
        self.files.pop(file, None)
        function(file)

    def read(self, function, file, wanted, *offset_and_flags):
        key = self.files.get(file)
        if key is None:
            return function(file, wanted, *offset_and_flags)
        left = self.most
        if sum(offset_and_flags[1:]) & NOWAIT:
            left = min(left, self.waits_after - self.nbytes[key])
            if left <= 0:
                self.refused += 1
                raise OSError(self.refusal, os.strerror(self.refusal))
        wanted = min(wanted, left) if isinstance(wanted, int) else first_of(wanted, left)
        # Whether the page cache has it is not left to the system.
        content = function(file, wanted, *offset_and_flags[:1])
        count = content if isinstance(content, int) else len(content)
        self.nbytes[key] += count
        self.reads.append((threading.get_ident(), sum(offset_and_flags[:1]), count))
        self.then(key)
        return content


def first_of(memories, left):
    """The first `left` bytes of several memories."""
    cut = []
    for memory in memories:
        cut.append(np.frombuffer(memory, np.uint8)[:left])
        left -= cut[-1].size
    return [memory for memory in cut if memory.size]


@contextmanager
def watched(root, **options):
    """`ChunkFiles` of the array at `root`."""
    files = ChunkFiles(root, **options)
    with _replaced(
        ("open", "close", "read", "pread", "preadv"),
        lambda name, function: partial(getattr(files, name, files.read), function),
    ):
        yield files


@contextmanager
def written_to(path):
    """Offset and length of each write to the file at `path`, by system call or mapping."""
    ranges, mapped_at = [], []

    def is_chunk(file):
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), path.stat())
        return str(Path(f"/proc/self/fd/{file}").readlink()).startswith(f"{path}.")

    def replacement(name, function):
        def noting(*arguments):
            result = function(*arguments)
            if name == "mmap":
                mapped_at[:] = [np.frombuffer(result, "u1").ctypes.data]
            elif name == "read_to_addresses":
                ranges.extend((int(at) - mapped_at[0], int(size)) for at, size in arguments[1])
            elif is_chunk(arguments[0]):
                ranges.append((arguments[2], result))
            return result

        return noting

    with _replaced(("pwrite", "read_to_addresses", "mmap"), replacement):
        yield ranges


def fail_at(monkeypatch, name, call, error=None, before=None):
    """Let a call of the system do something else first at its `call`-th call, from 0."""
    module = module_of(name)
    real, calls = getattr(module, name), []

    def wrapped(*args, **options):
        calls.append(args)
        if len(calls) == call + 1:
            if before is not None:
                before()
            if error is not None:
                raise error
        return real(*args, **options)

    monkeypatch.setattr(module, name, wrapped)
    return calls


class Stop:
    """A function that waits, in another thread that calls it, until it may `go_on`."""

    def __init__(self):
        self.has_begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *_):
        self.has_begun.set()
        assert self.go_on.wait(30)

    def cancelled(self, work, times=1):
        """Cancel the coroutine `work` while it stops here; whether it still runs after that.

        The event loop has one thread.
        """

        async def run():
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            task = asyncio.ensure_future(work)
            with ThreadPoolExecutor(1) as thread:  # that no other job takes
                assert await loop.run_in_executor(thread, self.has_begun.wait, 30)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            is_waited_for = not task.done()
            self.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            return is_waited_for

        return asyncio.run(run())


@contextmanager
def leased(path):
    """This process has a lease on the file, until a signal says that somebody waits for it."""
    fcntl = pytest.importorskip("fcntl")
    if not hasattr(fcntl, "F_SETLEASE"):
        pytest.skip("this system has no leases")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def give_back():  # at once: Python's own handler may wait for what the main thread waits for
        number = os.read(reading, 1)[0]
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return number

    with path.open("r+b") as file, ThreadPoolExecutor(1) as thread:
        handler = signal.signal(signal.SIGIO, lambda *_: None)
        signal.set_wakeup_fd(writing)
        try:
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError:
                pytest.skip("this file system has no leases")
            given_back = thread.submit(give_back)
            yield
        finally:
            os.write(writing, b"0")
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGIO, handler)
    os.close(reading)
    os.close(writing)
    assert given_back.result() == signal.SIGIO


@contextmanager
def as_somebody_else():
    """As a user who is not root, whom the modes of files do not hold back."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@contextmanager
def mounted_as(kind, file_in_it, mounts):
    """The system's list of mounts names `kind` for the file system of a file, and no other.

    The list is empty if the kind is, and missing if the kind is None. Nothing is known before, and
    nothing of it is known afterwards.
    """
    with file_in_it.open() as file:
        about = Path(f"/proc/self/fdinfo/{file.fileno()}").read_text()
    mount = re.search(r"mnt_id:\s*(\d+)", about)[1]
    mounts.unlink(missing_ok=True)
    if kind is not None:
        mounts.write_text(f"{mount} 1 8:1 / / rw - {kind} /dev/x rw\n" if kind else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_stores, "mounts", mounts)
        known_stores.forget()
        yield
    known_stores.forget()
