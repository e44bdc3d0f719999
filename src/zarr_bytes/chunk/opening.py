"""Opening the file of a chunk, refusing anything else, and what may have to be waited for.

Opening a file of another machine may wait for a server or for another process, and a page of it
that is mapped is sent whole. So files are read on the event loop only on a file system that belongs
to this machine alone, and a file of such a system only while its pages are in memory.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from zarr_bytes.errors import ChunkFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "READABLE",
    "WRITABLE",
    "closing",
    "is_known_to_be_local",
    "is_local",
    "is_tried",
    "no_file",
    "note_location",
    "note_wait",
    "opened",
    "opened_now",
]

# Windows alone has O_BINARY, and lacks the others. Without O_NONBLOCK, opening a FIFO waits for its
# other end; with O_NOCTTY, a terminal that is opened is nobody's. No symbolic link is written to.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
_ALWAYS: Final = _NONBLOCK | getattr(os, "O_NOCTTY", 0)
READABLE: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | _ALWAYS
WRITABLE: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | _ALWAYS

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOCAL: Final = (
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3"),
    *("overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs"),
)

# By root of a store: whether it is on this machine, and until when that is taken for true.
_roots: dict[str, tuple[bool, float]] = {}
_UNKNOWN: Final = (False, 0.0)
# By number of a block device. Other file systems, such as those of a network, share numbers that
# are given again once something is unmounted.
_known: dict[int, tuple[bool, float]] = {}
_TRUSTED: Final = 60.0  # seconds: what is mounted changes

# By root of a store: until when nothing is read on the event loop, after a wait was due.
_busy: dict[str, float] = {}
_RETRY_AFTER: Final = 1.0  # seconds


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


def opened_now(path: str) -> int | None:
    """`opened` for reading, on the event loop.

    Raises
    ------
    BlockingIOError
        If there is something that only a thread may look at.
    """
    try:
        return os.open(path, READABLE)
    except FileNotFoundError:
        return None
    except OSError:
        raise BlockingIOError from None


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


def is_local(file: int) -> bool:
    """Whether an open file is on a file system of this machine, as far as Linux says.

    Parameters
    ----------
    file : int
        Its descriptor.

    Returns
    -------
    bool
        False on other systems, and for a kind of file system that is not known.
    """
    device = os.fstat(file).st_dev
    found, until = _known.get(device, (False, 0.0))
    if monotonic() > until:
        found = _is_of_known_kind(file)
        if hasattr(os, "major") and os.major(device):
            _known[device] = found, monotonic() + _TRUSTED
    return found


def note_location(file: int, root: str) -> None:
    """Find out where an open file below the `root` of a store is, where that is not known.

    In a thread: reading what is mounted may take its time.
    """
    if monotonic() > _roots.get(root, _UNKNOWN)[1]:
        found = hasattr(os, "RWF_NOWAIT") and is_local(file)
        if len(_roots) > 1000:
            _roots.clear()
        _roots[root] = found, monotonic() + _TRUSTED


def is_known_to_be_local(root: str) -> bool:
    """Whether files below `root` are on this machine, as far as is known by now."""
    found, until = _roots.get(root, _UNKNOWN)
    return found and monotonic() <= until


def is_tried(root: str) -> bool:
    """Whether files below `root` are read on the event loop.

    Only on a local file system, and not where a wait was due a moment ago.
    """
    return is_known_to_be_local(root) and monotonic() >= _busy.get(root, 0)


def note_wait(root: str) -> None:
    """Read no file below `root` on the event loop for a moment: one was not in memory."""
    if len(_busy) > 1000:
        _busy.clear()
    _busy[root] = monotonic() + _RETRY_AFTER


def _is_of_known_kind(file: int) -> bool:
    try:
        about = Path(f"/proc/self/fdinfo/{file}").read_text()
        (mount,) = (line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:"))
        mounts = _MOUNTS.read_bytes().splitlines()
    except (OSError, ValueError):
        return False
    for line in mounts:  # proc_pid_mountinfo(5): the type is the first field after " - "
        if line.split(maxsplit=1)[0] == mount.encode():
            return line.partition(b" - ")[2].split()[0].decode() in _LOCAL
    return False
