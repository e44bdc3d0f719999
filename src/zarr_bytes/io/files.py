"""The bytes of a chunk that is a file: one open, a read for each range, one close.

A missing file is None. A file of the wrong size is an error, and so is a FIFO or a folder. The
event loop waits for nothing, and reads small files from the page cache, because a hop to a thread
takes longer. Files are never mapped here: truncating a mapped file would end the process.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import repeat
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from zarr_bytes import limits
from zarr_bytes.errors import ChunkFileError, wrong_size_error
from zarr_bytes.io import counters
from zarr_bytes.io.known_stores import avoid_inline_reads, record_file_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.indexing.plan import ByteRanges
    from zarr_bytes.layout.elements import Bytes

# Windows alone has O_BINARY, and lacks the others. Without O_NONBLOCK, opening a FIFO waits for its
# other end; with O_NOCTTY, a terminal that is opened is nobody's. No symbolic link is written to.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
_ALWAYS: Final = _NONBLOCK | getattr(os, "O_NOCTTY", 0)
READ_FLAGS: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | _ALWAYS
WRITE_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | _ALWAYS

TEMPORARY_SUFFIX: Final = ".partial"  # the end of a temporary name, as zarr's LocalStore has it

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_ONE_MORE: Final = bytearray(1)  # for the byte behind a whole file, which must not exist


def is_temporary(other: str, name: str) -> bool:
    """Whether `other` is a temporary name of a new file that gets this name."""
    return other.startswith(f"{name}.") and other.endswith(TEMPORARY_SUFFIX)


@contextmanager
def closing_descriptor(file: int) -> Iterator[int]:
    """The descriptor of an open file, which is closed at the end."""
    try:
        yield file
    finally:
        os.close(file)


def open_descriptor(path: str, flags: int = READ_FLAGS) -> int | None:
    """Descriptor of the file at `path`, or None if it is missing; in a thread that may wait."""
    held: list[int] = []
    try:
        open_descriptor_into(held, path, flags)
    except BaseException:
        for descriptor in held:
            os.close(descriptor)
        raise
    return held[0] if held else None


def open_descriptor_into(held: list[int], path: str, flags: int) -> None:
    """`opened`, with the descriptor in a list, where an interrupt (Ctrl-C) doesn't lose it."""
    # Python handles no signal between the opening of the file and the change of the list.
    try:
        held.extend(map(os.open, (path,), (flags,)))
    except (FileNotFoundError, NotADirectoryError):  # as LocalStore.get
        return
    except OSError as error:
        # A socket, or a device without a driver (ENXIO); a folder, for writing (EISDIR) or on
        # Windows (EACCES); or a file that another process has a lease on, such as a Samba server,
        # which may wait (EAGAIN).
        if error.errno not in (errno.ENXIO, errno.EISDIR, errno.EACCES, errno.EAGAIN):
            raise
        with suppress(FileNotFoundError):  # deleted meanwhile
            mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
            if not stat.S_ISREG(mode):
                raise not_a_file_error(path, mode) from None
            if error.errno != errno.EAGAIN:
                raise
            held.extend(map(os.open, (path,), (flags & ~_NONBLOCK,)))


def open_nowait(path: str) -> int | None:
    """`opened` for reading, on the event loop."""
    try:
        return os.open(path, READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError:
        raise BlockingIOError from None


def not_a_file_error(path: str, mode: int) -> ChunkFileError:
    """Error for something other than a file in the place of a chunk, by its mode."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "something else")
    return ChunkFileError(
        f"{path} is {kind}, and a chunk is a regular file: move it out of the array"
        " (the chunk is missing then, and reads as the fill value), or put the chunk's file there"
    )


def record_file_system_of_root(root: str) -> None:
    """`record_file_system` for the `root` itself, in a thread."""
    # Without one, the folder will be made, or the caller gets the error of a chunk.
    with suppress(OSError), closing_descriptor(os.open(root, READ_FLAGS)) as file:
        record_file_system(file, root)


class EndOfFileError(Exception):
    """A file ends at the byte `offset`, before the end of a read."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def open_chunk(path: str, root: str, *, may_block: bool) -> ChunkFile | None:
    """The file at `path`, None if it is missing; a BlockingIOError where a thread must open it."""
    descriptor = open_descriptor(path) if may_block else open_nowait(path)
    if descriptor is None:
        return None
    file = ChunkFile(descriptor, path, root, may_block=may_block)
    if may_block:
        try:
            record_file_system(descriptor, root)
        except OSError as error:
            file.__exit__(None, error, None)
            raise
    return file


class ChunkFile:
    """An open file for several reads, with memory that is used again; closed by its context."""

    __slots__ = ("_root", "_window", "descriptor", "may_block", "path")

    def __init__(self, descriptor: int, path: str, root: str, *, may_block: bool = True) -> None:
        self.descriptor, self.path, self.may_block = descriptor, path, may_block
        self._root = root
        self._window: Bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            os.close(self.descriptor)
        except OSError as end:  # as of NFS, where what was written reaches the server only now
            error = error or end
            raise
        finally:
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.path  # the system does not know it: it got a descriptor

    def check_size(self, nbytes: int | None) -> None:
        """Check that the file is a regular one, of `nbytes` bytes if that is given."""
        size = self.size()
        if nbytes is not None and size != nbytes:
            raise wrong_size_error(self.path, 0, nbytes, size)

    def size(self) -> int:
        """Size of the file in bytes; an error for anything but a regular file."""
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_a_file_error(self.path, status.st_mode)
        return status.st_size

    def read_whole(self, memory: memoryview) -> None:
        """Read a file that must have the size of `memory`, and try to read one more byte."""
        # That proves size and kind in less time than `fstat`: FIFOs cannot be read from an offset.
        nbytes = len(memory)
        try:
            count = self._read((memory, _ONE_MORE), 0)
            if 0 < count < nbytes:  # a short read, perhaps not a short file
                self._fill(memory[count:], count)
                count = nbytes + self._read((_ONE_MORE,), nbytes)
        except BlockingIOError:
            raise
        except OSError:
            self.check_size(None)
            raise
        except EndOfFileError:
            count = -1
        if count != nbytes or not nbytes:
            self.check_size(nbytes)
            if nbytes:  # the file has its size now
                self._fill(memory, 0)
        if counters.active:
            counters.count(self._root, ranges=1, bytes_fetched=nbytes)

    def read_range(self, memory: memoryview, start: int) -> None:
        """Read the bytes from `start` on, however few the system gives at a time."""
        self._fill(memory, start)
        if counters.active:
            counters.count(self._root, ranges=1, bytes_fetched=len(memory))

    def _fill(self, memory: memoryview, start: int) -> None:
        done = 0
        while done < len(memory):
            count = self._read((memory[done:] if done else memory,), start + done)
            if not count:
                size = os.fstat(self.descriptor).st_size  # perhaps before `start`
                raise EndOfFileError(start + done if done else min(start, size))
            done += count

    def read_ranges(self, ranges: ByteRanges, max_request_nbytes: int) -> Bytes:
        """The bytes of ranges, at most `max_request_nbytes` at once; valid until the next read."""
        if self._window is None or self._window.size < ranges.nbytes:
            self._window = np.empty(ranges.nbytes, np.uint8)
        fetched = self._window[: ranges.nbytes]
        memory = memoryview(fetched)
        short = ranges.number_of_ranges() * limits.LIMITS.short_range_nbytes
        if ranges.bounds_from_start is not None and ranges.nbytes <= min(short, max_request_nbytes):
            self._read_short_ranges(ranges, memory)
        else:
            for start, stop, position in ranges.requests(max_request_nbytes):
                end = position + stop - start
                if (done := self._read((memory[position:end],), start)) < stop - start:
                    self._fill(memory[position + done : end], start + done)
        if counters.active:
            count = ranges.number_of_requests(max_request_nbytes)
            counters.count(self._root, ranges=count, bytes_fetched=ranges.nbytes)
        return fetched

    def _read_short_ranges(self, ranges: ByteRanges, memory: memoryview) -> None:
        """Read many short ranges, each of which costs Python as much as the system."""
        file, done = repeat(self.descriptor), 0
        for starts, sizes in ranges.starts_and_sizes():
            parts: Sequence[bytes | bytearray]  # in less time than views of one memory
            if self.may_block:
                parts = list(map(_pread, file, sizes, starts))
                counts = list(map(len, parts))
            else:
                parts = list(map(bytearray, sizes))
                try:
                    counts = list(map(os.preadv, file, zip(parts), starts, repeat(_NOWAIT)))
                except OSError as error:
                    raise self._wait_for(error) from None
            begin, done = done, done + sum(sizes)
            if sum(counts) == done - begin:
                memory[begin:done] = b"".join(parts)
                continue
            for start, size, part, count in zip(starts, sizes, parts, counts, strict=True):
                memory[begin : begin + count] = part[:count]
                self._fill(memory[begin + count : begin + size], start + count)
                begin += size

    def _read(self, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
        if self.may_block:
            return _preadv(self.descriptor, buffers, offset)
        try:
            return os.preadv(self.descriptor, buffers, offset, _NOWAIT)
        except OSError as error:
            raise self._wait_for(error) from None

    def _wait_for(self, error: OSError) -> OSError:
        """A BlockingIOError for the error of a read that must not wait, or any other error."""
        if not isinstance(error, BlockingIOError) and error.errno != errno.EOPNOTSUPP:
            return error
        self.check_size(None)  # only of files can the system tell whether it would wait
        # Not in the page cache, or on a file system that cannot tell.
        avoid_inline_reads(self._root)
        return BlockingIOError()


def _pread(file: int, count: int, offset: int) -> bytes:
    if hasattr(os, "pread"):  # not on Windows
        return os.pread(file, count, offset)
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, count)


def _preadv(file: int, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
    if hasattr(os, "preadv"):  # not on Windows
        return os.preadv(file, buffers, offset)
    content = BytesIO(_pread(file, sum(map(len, buffers)), offset))
    return sum(map(content.readinto, buffers))
