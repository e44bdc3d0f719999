"""Opening the file of a chunk, and the error for what is not a file."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from zarr_bytes.errors import ChunkFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["READABLE", "closing", "no_file", "opened"]

# Windows alone has O_BINARY, and lacks the others. Without O_NONBLOCK, opening a FIFO waits for a
# writer; with O_NOCTTY, a terminal that is opened is nobody's.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
READABLE: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0) | _NONBLOCK


@contextmanager
def closing(file: int) -> Iterator[int]:
    """The descriptor of an open file, which is closed at the end."""
    try:
        yield file
    finally:
        os.close(file)


def opened(path: str, flags: int = READABLE) -> int | None:
    """Descriptor of the file at `path`, or None if there is none; in a thread that may wait.

    Raises
    ------
    ChunkFileError
        If there is something that cannot be opened, because it is not a file.
    """
    try:
        return os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):  # as LocalStore.get
        return None
    except OSError as error:
        # A socket, or a device without a driver (ENXIO); a folder, for writing (EISDIR) or on
        # Windows (EACCES); or a file that another process has a lease on, such as a Samba server,
        # which may wait (EAGAIN).
        if error.errno not in (errno.ENXIO, errno.EISDIR, errno.EACCES, errno.EAGAIN):
            raise
        with suppress(FileNotFoundError):  # deleted meanwhile
            mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
            if not stat.S_ISREG(mode):
                raise no_file(path, mode) from None
            if error.errno != errno.EAGAIN:
                raise
            return os.open(path, flags & ~_NONBLOCK)
        return None


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
