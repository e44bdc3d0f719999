"""The bytes of a chunk that is a file: one open, a read for each range, one close.

A missing file is None. A file of the wrong size is an error, and so is a FIFO or a folder.

Files are read in a thread that may wait for the disk (`may_block`), or on the event loop, which
never waits. The event loop reads small files from the page cache, because moving to a thread takes
longer; a BlockingIOError there means that a thread must read the file. No locks are taken, and
files are never mapped here: truncating a mapped file would end the process.
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

from zarr_bytes.errors import ChunkFileError, wrong_size_error
from zarr_bytes.io import counters
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX, ShardIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.indexing.plan import ByteRanges
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout

# Only Windows has O_BINARY, and it lacks the others. Without O_NONBLOCK, opening a FIFO waits for
# its other end. With O_NOCTTY, an opened terminal doesn't become the terminal of this process.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
_COMMON_FLAGS: Final = _NONBLOCK | getattr(os, "O_NOCTTY", 0)
READ_FLAGS: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | _COMMON_FLAGS
# Symbolic links are never written to.
WRITE_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | _COMMON_FLAGS

TEMPORARY_SUFFIX: Final = ".partial"  # the end of a temporary name, as in zarr's LocalStore
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)  # preadv fails if it would wait for the disk
_EXTRA_BYTE: Final = bytearray(1)  # for the byte after a whole file, which must not exist


def is_temporary(other_name: str, name: str) -> bool:
    """Whether the text of `other_name` is a temporary name for a file that will get `name`."""
    return other_name.startswith(f"{name}.") and other_name.endswith(TEMPORARY_SUFFIX)


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Close an open file at the end of the block, which gets its descriptor."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_descriptor_if_exists(path: str, flags: int = READ_FLAGS) -> int | None:
    """Descriptor of the file at `path`, or None if it is missing; in a thread that may wait.

    Raises the errors of `open_descriptor_into_if_exists`. An interrupt (Ctrl-C) leaves no file
    open.
    """
    descriptors: list[int] = []
    try:
        open_descriptor_into_if_exists(descriptors, path, flags)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors[0] if descriptors else None


def open_descriptor_into_if_exists(descriptors: list[int], path: str, flags: int) -> None:
    """Open the file at `path` and append its descriptor; do nothing if the file is missing.

    Called in a thread, since it may wait for another program that has a lease on the file. The list
    keeps the descriptor if an interrupt (Ctrl-C) comes before the caller has it. Raises
    ChunkFileError for a socket, a folder or a device that can't be opened, and any other OSError as
    it is. The caller must detect folders and FIFOs that can be opened.
    """
    # Python handles no signal between the opening of the file and the change of the list.
    try:
        descriptors.extend(map(os.open, (path,), (flags,)))
    except (FileNotFoundError, NotADirectoryError):  # as LocalStore.get
        return
    except OSError as error:
        # A socket, or a device without a driver (ENXIO); a folder, for writing (EISDIR) or on
        # Windows (EACCES); or a file that another process has a lease on, such as a Samba server,
        # which may wait (EAGAIN).
        if error.errno not in (errno.ENXIO, errno.EISDIR, errno.EACCES, errno.EAGAIN):
            raise
        with suppress(FileNotFoundError):  # deleted in the meantime
            mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
            if not stat.S_ISREG(mode):
                raise not_a_file_error(path, mode) from None
            if error.errno != errno.EAGAIN:
                raise
            descriptors.extend(map(os.open, (path,), (flags & ~_NONBLOCK,)))


def not_a_file_error(path: str, mode: int) -> ChunkFileError:
    """Error for something other than a regular file at the path of a chunk, by its `st_mode`."""
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
    """Record the file system of the folder `root` of a store; in a thread, which may wait.

    Nothing is recorded if the folder can't be opened. For a write, which may have no open file yet.
    """
    # A missing folder will be made. Other errors will be raised when a chunk is opened.
    with suppress(OSError), closing_descriptor(os.open(root, READ_FLAGS)) as descriptor:
        known_stores.record_file_system_unless_known(descriptor, root)


class EndOfFileError(Exception):
    """A file ends before the end of a read. Caught by code that has the plan and makes the message.

    `offset` is the size of the file, as far as the read has found.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def open_chunk_file_if_exists(path: str, root: str) -> ChunkFile | None:
    """The open file at `path`, a context manager that closes it; None if it is missing.

    Called in a thread, since it may wait, and records the file system of the `root` of the store.
    Raises the errors of `open_descriptor_if_exists`.
    """
    descriptor = open_descriptor_if_exists(path)
    if descriptor is None:
        return None
    file = ChunkFile(descriptor, path, root)
    try:
        known_stores.record_file_system_unless_known(descriptor, root)
    except OSError as error:
        file.__exit__(None, error, None)
        raise
    return file


def open_chunk_file_nowait_if_exists(path: str, root: str) -> ChunkFile | None:
    """Like `open_chunk_file_if_exists`, on the event loop, where neither it nor the reads may wait.

    Any error other than a missing file becomes a BlockingIOError: `open_chunk_file_if_exists` in a
    thread may wait, and raises the actual error.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
    except FileNotFoundError:
        return None
    except OSError:
        raise BlockingIOError from None
    return ChunkFile(descriptor, path, root, may_block=False)


class ChunkFile:
    """An open file for several reads, closed at the end of its `with` block; for one thread.

    An OSError within the block gets the path of the file. Without `may_block`, a read that would
    wait raises a BlockingIOError, and keeps other reads below the `root` of the store off the event
    loop for a second. All reads raise EndOfFileError if the file ends too early, except
    `read_whole`, which raises a ChunkSizeError.
    """

    __slots__ = ("_fetched", "_offset", "_part_nbytes", "_root", "descriptor", "may_block", "path")

    def __init__(
        self,
        descriptor: int,
        path: str,
        root: str,
        *,
        may_block: bool = True,
        offset: int = 0,
        part_nbytes: int | None = None,
    ) -> None:
        self.descriptor = descriptor
        self.path = path
        self.may_block = may_block
        self._root = root
        self._offset = offset  # of the object in the file
        self._part_nbytes = part_nbytes  # of an object in the file; None if it is the whole file
        self._fetched: Bytes | None = (
            None  # memory of `read_ranges_into_reused_memory`, which is reused
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            os.close(self.descriptor)
        except OSError as error_of_close:  # as on NFS, where writes reach the server only now
            error = error or error_of_close
            raise
        finally:
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.path  # the system only had a descriptor

    def part(self, offset: int, nbytes: int) -> ChunkFile:
        """A part of the open file as a separate object; closing the part does nothing."""
        return ChunkFile(
            self.descriptor,
            self.path,
            self._root,
            may_block=self.may_block,
            offset=offset,
            part_nbytes=nbytes,
        )

    def check_size(self, nbytes: int) -> None:
        """Check that the file is a regular file of `nbytes` bytes.

        A ChunkFileError or a ChunkSizeError otherwise.
        """
        size = self.size_of_regular_file()
        if size != nbytes:
            raise wrong_size_error(self.path, 0, nbytes, size)

    def size_of_regular_file(self) -> int:
        """Size of the file in bytes; a ChunkFileError for anything but a regular file.

        For a part of a file, the size of the part, without a look at the file.
        """
        if self._part_nbytes is not None:
            return self._part_nbytes
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_a_file_error(self.path, status.st_mode)
        return status.st_size

    def read_whole(self, memory: memoryview) -> None:
        """Fill `memory` with a file, which must have exactly its size; a ChunkSizeError if not."""
        # Reading one more byte proves size and kind in less time than `fstat`: FIFOs can't be read
        # from an offset.
        nbytes = len(memory)
        if self._part_nbytes is not None:
            self.check_size(nbytes)
            self.read_range(memory, 0)
            return
        try:
            count = self._read((memory, _EXTRA_BYTE), 0)
            if 0 < count < nbytes:  # a short read, perhaps not a short file
                self._fill(memory[count:], count)
                count = nbytes + self._read((_EXTRA_BYTE,), nbytes)
        except BlockingIOError:
            raise
        except OSError:
            self.size_of_regular_file()
            raise
        except EndOfFileError:
            count = -1
        if count != nbytes or not nbytes:
            self.check_size(nbytes)
            if nbytes:  # the file has its size now
                self._fill(memory, 0)
        if counters.active_counters:
            counters.count(self._root, ranges=1, bytes_fetched=nbytes)

    def read_range(self, memory: memoryview, start: int) -> None:
        """Fill `memory` with the bytes from `start` on."""
        count = self._read((memory,), start)
        if count < len(memory):
            self._fill(memory[count:], start + count)
        if counters.active_counters:
            counters.count(self._root, ranges=1, bytes_fetched=len(memory))

    def _fill(self, memory: memoryview, start: int) -> None:
        """Fill `memory` with the bytes from `start` on, in as many system calls as needed."""
        done = 0
        while done < len(memory):
            count = self._read((memory[done:] if done else memory,), start + done)
            if not count:
                size = os.fstat(self.descriptor).st_size - self._offset  # perhaps before `start`
                raise EndOfFileError(start + done if done else min(start, size))
            done += count

    def read_index(
        self, layout: ObjectLayout, file_nbytes_if_known: int | None = None
    ) -> InnerChunkIndex:
        """Read the index of the object; a ShardIndexError if it is truncated or damaged.

        `file_nbytes_if_known` is the size of the file, if it is known. For a chunk, nothing is
        read, since its index is a constant.
        """
        if not layout.index_nbytes:
            return SINGLE_CHUNK_INDEX
        size = self.size_of_regular_file() if file_nbytes_if_known is None else file_nbytes_if_known
        start = layout.index_offset(size)
        content = np.empty(min(layout.index_nbytes, size), np.uint8)
        try:
            self.read_range(content.data, start)
        except EndOfFileError as end:
            content = content[: max(end.offset - start, 0)]
        return ShardIndex(layout, self.path, content, size)

    def read_ranges_into_reused_memory(
        self, ranges: ByteRanges, max_request_nbytes: int, short_range_nbytes: int
    ) -> Bytes:
        """The bytes of ranges one after another; valid until the next call, which overwrites them.

        No system call reads more than `max_request_nbytes`. Ranges with an average size of at most
        `short_range_nbytes` are read as many small objects.
        """
        if self._fetched is None or self._fetched.size < ranges.nbytes:
            self._fetched = np.empty(ranges.nbytes, np.uint8)
        fetched = self._fetched[: ranges.nbytes]
        memory = memoryview(fetched)
        if ranges.bounds_from_offset_if_several is None and ranges.nbytes <= max_request_nbytes:
            self.read_range(memory, ranges.offset)
            return fetched
        max_short_nbytes = ranges.number_of_ranges() * short_range_nbytes
        if ranges.nbytes <= min(max_short_nbytes, max_request_nbytes):
            self._read_short_ranges(ranges, memory)
        else:
            for start, stop, position in ranges.requests(max_request_nbytes):
                end = position + stop - start
                count = self._read((memory[position:end],), start)
                if count < stop - start:
                    self._fill(memory[position + count : end], start + count)
        if counters.active_counters:
            range_count = ranges.number_of_requests(max_request_nbytes)
            counters.count(self._root, ranges=range_count, bytes_fetched=ranges.nbytes)
        return fetched

    def _read_short_ranges(self, ranges: ByteRanges, memory: memoryview) -> None:
        """Fill `memory` with many short ranges, for which Python takes as long as the system."""
        descriptor = repeat(self.descriptor)
        filled = 0  # bytes of `memory`
        for starts_in_object, sizes in ranges.starts_and_sizes():
            starts = [self._offset + start for start in starts_in_object]
            contents: Sequence[bytes | bytearray]  # faster than views of one memory
            if self.may_block:
                contents = list(map(_pread_once, descriptor, sizes, starts))
                counts = list(map(len, contents))
            else:
                contents = list(map(bytearray, sizes))
                nowait = repeat(_NOWAIT)
                try:
                    counts = list(map(os.preadv, descriptor, zip(contents), starts, nowait))
                except OSError as error:
                    raise self._avoid_inline_reads_if_would_block(error) from None
            position = filled
            filled += sum(sizes)
            if sum(counts) == filled - position:
                memory[position:filled] = b"".join(contents)
                continue
            for start, size, content, count in zip(
                starts_in_object, sizes, contents, counts, strict=True
            ):
                end = position + size
                memory[position : position + count] = content[:count]
                self._fill(memory[position + count : end], start + count)
                position = end

    def _read(self, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
        """Number of bytes that one system call reads into `buffers`; 0 at the end of the file."""
        start = self._offset + offset
        if self.may_block:
            return _preadv_once(self.descriptor, buffers, start)
        try:
            return os.preadv(self.descriptor, buffers, start, _NOWAIT)
        except OSError as error:
            raise self._avoid_inline_reads_if_would_block(error) from None

    def _avoid_inline_reads_if_would_block(self, error: OSError) -> OSError:
        """The error to raise after an error of a read on the event loop, which must never wait.

        A BlockingIOError if the read would have waited: other reads below the root of the store are
        then kept off the event loop for a second. A ChunkFileError is raised if the file isn't a
        regular file.
        """
        if not isinstance(error, BlockingIOError) and error.errno != errno.EOPNOTSUPP:
            return error
        self.size_of_regular_file()  # only for files does the system know whether it would wait
        # Not in the page cache, or on a file system that can't tell.
        known_stores.avoid_inline_reads(self._root)
        return BlockingIOError()


def _pread_once(descriptor: int, count: int, offset: int) -> bytes:
    """`os.pread`, or a replacement on Windows that moves the position of the file."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, count)


def _preadv_once(descriptor: int, buffers: Sequence[memoryview | bytearray], offset: int) -> int:
    """`os.preadv`, or a replacement on Windows."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, buffers, offset)
    content = BytesIO(_pread_once(descriptor, sum(map(len, buffers)), offset))
    return sum(map(content.readinto, buffers))
