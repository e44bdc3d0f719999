"""Locks on chunk files (`flock`), so that writers of separate elements don't lose any.

A process that writes into a file holds a shared lock until all bytes are written. A process that
replaces or deletes a file holds an exclusive lock from before it reads the file until another file
has its name. With the lock, both check that the file still has its name. A missing file gets its
name by `link`, which replaces nothing. Readers take no lock. Locks end with the process that holds
them.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from time import monotonic, sleep
from typing import Final, NamedTuple, TypeAlias

from zarr_bytes.errors import ChunkFileError
from zarr_bytes.io.files import closing_descriptor, is_temporary, open_descriptor_if_exists
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.tasks import WorkCancelledError, work_cancelled_check

try:
    import fcntl
except ImportError:  # Windows, where zarr's store writes
    fcntl = None  # type: ignore[assignment]

# EBADF: on network file systems, an exclusive lock needs a file that is open for writing.
_HAS_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)
_IS_HELD: Final = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
# Seconds between two attempts; the time doubles each time.
_FIRST_PAUSE: Final = 2**-12
_LONGEST_PAUSE: Final = 2**-7

_ErrnoOrZero: TypeAlias = int
"""The number of a system error; 0 for no error."""


def lock_if_supported(
    descriptor: int, path: str, root: str, *, is_shared: bool, max_seconds_without_writes: int
) -> None:
    """Lock an open file, for as long as it is open or until `unlock`.

    Called in a thread, since it waits while another program holds the lock. It returns without a
    lock if the system or the file system has no locks, or if locks would also stop readers (SMB).

    Parameters
    ----------
    descriptor, path
        Descriptor and path of the open file.
    root
        Root of the store.
    is_shared
        Whether others may hold a shared lock at the same time; otherwise the lock is exclusive.
    max_seconds_without_writes
        Time to wait for another program that holds the lock and writes nothing.

    Raises
    ------
    OSError
        If the system can't lock the file; EBUSY after `max_seconds_without_writes`.
    WorkCancelledError
        If the write is cancelled while it waits.
    """
    if fcntl is None or known_stores.has_mandatory_locks(descriptor, root):
        return
    operation = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    error_number = _try_lock(descriptor, operation)
    if error_number in _IS_HELD:
        error_number = _retry_lock_until_nothing_is_written(
            descriptor, path, operation, max_seconds_without_writes
        )
    if error_number not in (0, *_HAS_NO_LOCKS):
        raise OSError(error_number, os.strerror(error_number), path)


def _try_lock(descriptor: int, operation: int) -> _ErrnoOrZero:
    """Error number of one attempt, or 0."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _retry_lock_until_nothing_is_written(
    descriptor: int, path: str, operation: int, max_seconds_without_writes: int
) -> _ErrnoOrZero:
    """Try repeatedly while the lock is held; return the number of any other error, or 0.

    A blocking call might wait forever, and couldn't be stopped. Raises as `lock_if_supported`.
    """
    pause = _FIRST_PAUSE
    last_state = None
    until = monotonic() + max_seconds_without_writes / 2
    while (error_number := _try_lock(descriptor, operation)) in _IS_HELD:
        if work_cancelled_check.get()():
            raise WorkCancelledError
        if monotonic() >= until:
            state = _state_of_file_and_temporaries(path)
            if state == last_state:  # otherwise, another program is writing: wait for it
                raise OSError(
                    errno.EBUSY,
                    f"{os.strerror(errno.EBUSY)}: another program has held a lock (flock) of the"
                    f" chunk for {max_seconds_without_writes} seconds, and nothing has been"
                    " written: end that program, or write when it is done",
                    path,
                )
            last_state = state
            until = monotonic() + max_seconds_without_writes / 2
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return error_number


class _NameSizeAndTime(NamedTuple):
    """Attributes of a file that change when it is written."""

    name: str
    nbytes: int
    mtime_ns: int


def _state_of_file_and_temporaries(path: str) -> list[_NameSizeAndTime]:
    """The state of the file at `path` and of temporary files that will replace it.

    Two states are equal if nothing was written in between. Empty if the folder can't be read.
    """
    folder, name = os.path.split(path)
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(
            _NameSizeAndTime(entry.name, status.st_size, status.st_mtime_ns)
            for entry in entries
            if entry.name == name or is_temporary(entry.name, name)
            for status in [entry.stat()]
        )
    return []


def unlock(descriptor: int) -> None:
    """End the lock of an open file, if there is one, before the file is closed.

    A process that was forked in the meantime shares the open file, and would keep the lock.
    """
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def can_lock(path: str) -> bool:
    """Whether writers can lock the file at `path`, or files in its folder if it is missing.

    Called in a thread. It opens the file, and locks it for a moment. If another program holds the
    lock, locks work. False if the file can't be opened.
    """
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 -- a string, as elsewhere
    if fcntl is None:
        return False
    try:
        descriptor = open_descriptor_if_exists(path)
    except (OSError, ChunkFileError):  # such as a folder without read permission
        return False
    if descriptor is None:
        return can_lock(folder)
    with closing_descriptor(descriptor):
        if known_stores.has_mandatory_locks(descriptor, folder):
            return False
        return _try_lock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB) in (0, *_IS_HELD)
