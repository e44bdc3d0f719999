"""Locks of the files of chunks (`flock`), so that writers of separate elements lose none.

Whoever writes into a file holds its shared lock until all bytes are written; whoever replaces or
deletes one holds its exclusive lock from before it is read until another file has its name. Both
look, once they hold the lock, whether the file still has the name. A missing file gets its name by
`link`, which replaces nothing. Readers take no lock. Locks end with the process that holds them.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from time import monotonic, sleep
from typing import Final

from zarr_bytes import limits
from zarr_bytes.errors import ChunkFileError
from zarr_bytes.io.files import closing_descriptor, is_temporary, open_descriptor
from zarr_bytes.io.known_stores import has_advisory_locks, record_file_system
from zarr_bytes.io.tasks import WorkCancelledError, is_work_cancelled

try:
    import fcntl
except ImportError:  # Windows, where zarr's store writes
    fcntl = None  # type: ignore[assignment]

# EBADF: network file systems lock exclusively only what is open for writing.
_HAS_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)
_IS_HELD: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
_PAUSES: Final = 2**-12, 2**-7  # seconds between two attempts: at first, and at most


def lock_if_supported(file: int, path: str, root: str, *, is_shared: bool) -> None:
    """Lock an open file, if its file system has locks; EndedError where nobody needs the write."""
    if fcntl is None or not has_advisory_locks(file, root):
        return
    operation = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    if (number := _try_lock(file, operation)) in _IS_HELD:
        number = _retry_lock(file, path, operation)
    if number not in (0, *_HAS_NO_LOCKS):
        raise OSError(number, os.strerror(number), path)


def _try_lock(file: int, operation: int) -> int:
    """Number of the error of one attempt, or 0."""
    try:
        fcntl.flock(file, operation)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _retry_lock(file: int, path: str, operation: int) -> int:
    """Try it again and again: a call that waits could not be stopped, and has no end."""
    seconds, (pause, longest), seen = limits.LIMITS.lock_seconds, _PAUSES, None
    until = monotonic() + seconds / 2
    while (number := _try_lock(file, operation)) in _IS_HELD:
        if is_work_cancelled.get()():
            raise WorkCancelledError
        if monotonic() >= until:
            state = _state_of(path)
            if state == seen:  # others who write, however long that takes, are waited for
                raise OSError(
                    errno.EBUSY,
                    f"{os.strerror(errno.EBUSY)}: another program has held a lock (flock) of the"
                    f" chunk for {seconds} seconds, and nothing has been written: end that program,"
                    " or write when it is done",
                    path,
                )
            until, seen = monotonic() + seconds / 2, state
        sleep(pause)
        pause = min(2 * pause, longest)
    return number


def _state_of(path: str) -> list[tuple[str, int, int]]:
    """Names, sizes and times of the file at `path` and of those that are to replace it."""
    folder, name = os.path.split(path)
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(
            (entry.name, status.st_size, status.st_mtime_ns)
            for entry in entries
            if entry.name == name or is_temporary(entry.name, name)
            for status in [entry.stat()]
        )
    return []


def unlock(file: int) -> None:
    """End a lock: a process that was forked meanwhile has the open file, too, and would keep it."""
    if fcntl is not None:
        _try_lock(file, fcntl.LOCK_UN)


def can_lock(path: str) -> bool:
    """Whether writers can lock the file at `path`, or files in its folder where it is missing."""
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 -- a string, as elsewhere
    if fcntl is None:
        return False
    try:
        file = open_descriptor(path)
    except (OSError, ChunkFileError):  # such as a folder that must not be read
        return False
    if file is None:
        return can_lock(folder)
    with closing_descriptor(file):
        record_file_system(file, folder)
        operation = fcntl.LOCK_SH | fcntl.LOCK_NB
        return has_advisory_locks(file, folder) and _try_lock(file, operation) in (0, *_IS_HELD)
