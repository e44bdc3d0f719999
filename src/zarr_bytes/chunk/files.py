"""The byte ranges of a chunk that is a file: one open, a read for each range, one close.

A file that is missing is None, as a chunk that is missing; one that is too short or too long is an
error, and so is what is no file: a FIFO, a device, a folder. Nothing is waited for but the disk.

The file is never mapped: truncating it would end the process.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from zarr_bytes.chunk.elements import BLOCK
from zarr_bytes.chunk.file_systems import look_where
from zarr_bytes.errors import ChunkFileError, wrong_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.plan import Plan

__all__ = [
    "FLAGS",
    "ONE_MORE",
    "OpenFile",
    "closing",
    "no_file",
    "open_file",
    "read_file",
    "read_file_into",
]

# Windows alone has O_BINARY, and lacks the others. Without O_NONBLOCK, opening a FIFO waits for a
# writer; with O_NOCTTY, a terminal that is opened is nobody's.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
FLAGS: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0) | _NONBLOCK
ONE_MORE: Final = bytearray(1)  # where the byte goes that a whole file must not have
_SHORT: Final = 2**10  # bytes of a range on average
_AT_ONCE: Final = 2**12  # short ranges that are there twice
_LARGE: Final = 2**18  # bytes of a range, from which on the window is worth its making

_SMALL: Final = 2**16  # bytes of a file that is read whole without being asked for its size


def read_file(path: str, plan: Plan, root: str) -> Bytes | None:
    """Ranges of a file, read through one open file: for a thread that may wait.

    Writers replace files by renaming, so one open file is one version of the chunk.

    Parameters
    ----------
    path : str
        Of the file.
    plan : Plan
        What to read.
    root : str
        Root of the store. Whether it is on this machine is found out here, where that may take its
        time, for `read_cached_file`.

    Returns
    -------
    array of uint8, 1-D, or None
        `plan.nbytes` bytes; None if there is no such file.

    Raises
    ------
    ChunkSizeError
        If the file has another size than the chunk, or ends early while it is read.
    ChunkFileError
        If there is something else than a file.
    """
    file = _open(path)
    if file is None:
        return None
    try:
        look_where(file, root)
        if plan.is_whole_chunk and plan.nbytes <= _SMALL:
            return _read_whole(file, path, plan.nbytes)
        return _read_ranges(file, path, plan)
    finally:
        os.close(file)


def read_file_into(target: Array, path: str, root: str, start: int | None = None) -> bool:
    """`read_file` of one range into a C-contiguous array; False if the file is missing.

    The range begins at `start`; without one, the file has the bytes of `target` and no others.

    Raises
    ------
    ChunkSizeError, ChunkFileError
        As `read_file`; `target` may have changed then.
    """
    file = _open(path)
    if file is None:
        return False
    try:
        look_where(file, root)
        if start is not None:
            _check_file(file, path, None)
            _fill(memoryview(target).cast("B"), file, path, start)
            return True
        try:
            count = os.preadv(file, (target, ONE_MORE), 0)  # a byte more: as `_read_whole`
        except (AttributeError, OSError):  # not on Windows, and not from what is no file
            count = -1
        if count != target.nbytes:
            whole = _read_whole(file, path, target.nbytes)
            target[...] = whole.view(target.dtype).reshape(target.shape)
    finally:
        os.close(file)
    return True


class OpenFile:
    """An open file that is read several times, through memory that is used again."""

    def __init__(self, file: int, path: str) -> None:
        self._file = file
        self._path = path
        self._memory: Bytes = np.empty(0, np.uint8)

    def read(self, plan: Plan) -> Bytes:
        """What `read_file` returns; valid until something else is read."""
        return _read_ranges(self._file, self._path, plan, self._window(plan.nbytes))

    def read_range(self, start: int, nbytes: int) -> Bytes:
        """One range; valid until something else is read."""
        fetched = self._window(nbytes)
        _fill(memoryview(fetched), self._file, self._path, start)
        return fetched

    def _window(self, nbytes: int) -> Bytes:
        if self._memory.size < nbytes:
            self._memory = np.empty(nbytes, np.uint8)
        return self._memory[:nbytes]


@contextmanager
def open_file(path: str, root: str, nbytes: int | None = None) -> Iterator[OpenFile | None]:
    """The file at `path`, which must have `nbytes` bytes where that is given; None if missing."""
    file = _open(path)
    if file is None:
        yield None
        return
    with closing(file):
        look_where(file, root)
        _check_file(file, path, nbytes)
        yield OpenFile(file, path)


@contextmanager
def closing(file: int) -> Iterator[int]:
    """The descriptor of an open file, which is closed at the end."""
    try:
        yield file
    finally:
        os.close(file)


def _open(path: str) -> int | None:
    try:
        return os.open(path, FLAGS)
    except (FileNotFoundError, NotADirectoryError):  # as LocalStore.get
        return None
    except PermissionError:  # which Windows raises for a folder
        if os.path.isdir(path):  # noqa: PTH112 -- a string, as everywhere here
            raise no_file(path, stat.S_IFDIR) from None
        raise
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EAGAIN):
            raise
        # A socket, or a device without a driver; or a file that another process has a lease on
        # (a Samba server), which may wait.
        mode = os.stat(path).st_mode  # noqa: PTH116
        if not stat.S_ISREG(mode):
            raise no_file(path, mode) from None
        return os.open(path, FLAGS & ~_NONBLOCK)


def _read_whole(file: int, path: str, nbytes: int) -> Bytes:
    """A file that must have `nbytes` bytes, in one read of one byte more.

    That proves size and kind without `fstat`, which takes longer than the read of a small chunk:
    what cannot be read from an offset is an error, and no device ends where the chunk does.
    """
    try:
        content = _read_at(file, nbytes + 1, 0)
    except OSError:
        content = b""
    if len(content) != nbytes or not nbytes:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise no_file(path, status.st_mode)
        if nbytes != status.st_size:
            raise wrong_size(path, 0, nbytes, status.st_size)
        content = _read_at(file, nbytes, 0)
        if len(content) != nbytes:
            raise wrong_size(path, 0, nbytes, len(content))
    return np.frombuffer(content, np.uint8)


def _check_file(file: int, path: str, nbytes: int | None) -> None:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise no_file(path, status.st_mode)
    if nbytes is not None and status.st_size != nbytes:
        raise wrong_size(path, 0, nbytes, status.st_size)


def _read_ranges(file: int, path: str, plan: Plan, reused: Bytes | None = None) -> Bytes:
    """The ranges of `plan`, in memory that is new, or in `reused`, which is in the cache."""
    _check_file(file, path, plan.nbytes if plan.is_whole_chunk else None)
    # NumPy asks for huge pages, which `bytes` objects do not get: that is most of what makes this
    # faster than `path.read_bytes()`.
    fetched = np.empty(plan.nbytes, np.uint8) if reused is None else reused
    memory = memoryview(fetched)
    if 1 < plan.starts.size >= plan.nbytes / _SHORT:
        # `bytes` of each range take half the time of views of the memory to read into.
        _read_short_ranges(file, path, plan, memory)
        return fetched
    for start, stop, position in plan.ranges():
        end = position + stop - start
        if reused is None and stop - start > _LARGE:
            _fill_through_window(fetched[position:end], file, path, start)
        else:
            _fill(memory[position:end], file, path, start)
    return fetched


def _read_short_ranges(file: int, path: str, plan: Plan, memory: memoryview) -> None:
    parts: list[bytes] = []
    filled = 0
    for start, stop, position in plan.ranges():
        part = _read_at(file, stop - start, start)
        if len(part) != stop - start:  # usually the end of the file, of which that is the error
            again = bytearray(stop - start)
            _fill(memoryview(again), file, path, start)
            part = bytes(again)
        parts.append(part)
        if len(parts) == _AT_ONCE:
            end = position + len(part)
            memory[filled:end] = b"".join(parts)
            filled = end
            parts.clear()
    memory[filled:] = b"".join(parts)


def _fill(memory: memoryview, file: int, path: str, start: int) -> None:
    """Read the bytes from `start` on."""
    done = _read_into(file, memory, start)
    while done < len(memory):
        count = _read_into(file, memory[done:], start + done)
        if not count:
            raise wrong_size(path, start, start + len(memory), done)
        done += count


def _fill_through_window(target: Bytes, file: int, path: str, start: int) -> None:
    """Read the bytes from `start` on, block by block, through memory that stays in the cache.

    Linux copies into memory that is not there at a third of the speed: 125 MiB straight into a new
    array took 85 ms, and 30 this way.
    """
    window = np.empty(min(BLOCK, target.size), np.uint8)
    memory, done = memoryview(window), 0
    while done < target.size:
        count = _read_into(file, memory[: target.size - done], start + done)
        if not count:
            raise wrong_size(path, start, start + target.size, done)
        target[done : done + count] = window[:count]
        done += count


def _seek_and_read(file: int, count: int, offset: int) -> bytes:
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, count)


_read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)  # not on Windows


def _read_into(file: int, memory: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):  # not on Windows
        return os.preadv(file, [memory], offset)
    content = _read_at(file, len(memory), offset)
    memory[: len(content)] = content
    return len(content)


def no_file(path: str, mode: int) -> ChunkFileError:
    """Error for what lies at `path` in a chunk's place, by its mode."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "something else")
    return ChunkFileError(
        f"{path} is {kind}, and a chunk is a regular file: move it out of the array (the chunk is"
        " missing then, and reads as the fill value), or put the chunk's file there"
    )
