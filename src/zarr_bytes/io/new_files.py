"""New files of chunks, made under a temporary name so that they appear at once and complete.

Nothing is synchronised to the disk, as with zarr.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from zarr_bytes.io.opening import WRITABLE, closing, no_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zarr_bytes.layout.elements import Bytes

T = TypeVar("T")

CAN_REPLACE: Final = hasattr(os, "pwrite")
"""Whether files are replaced here. On Windows, zarr's store does it: a file that is open elsewhere
cannot be replaced at once there, and the store tries again."""
# Errors of opening a symbolic link (EMLINK on FreeBSD), or a file that must not be written.
IS_REPLACED: Final = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EPERM)
TEMPORARY: Final = ".partial"  # the end of a temporary name, as zarr's LocalStore has it


class StoppedError(Exception):
    """The system has stopped a write."""

    def __init__(self, offset: int, written: int) -> None:
        super().__init__(offset, written)
        self.offset = offset  # in the file
        self.written = written  # bytes of the selection


def make_file(
    path: str,
    write: Callable[[int], None],
    publish: Callable[[str, str], T],
    outcome: str,
) -> T:
    """Make a file beside `path` by `write`, and `publish` it under its name once it is complete.

    `outcome` is the state of the chunk after an error, for its message. No temporary file is left.
    """
    temporary = f"{path}.{uuid4().hex}{TEMPORARY}"
    with _named_errors(path, outcome):
        file = _new_file(temporary)
        try:
            with closing(file):
                write(file)
            return publish(temporary, path)
        finally:
            with suppress(OSError):  # after a rename it is gone
                os.unlink(temporary)  # noqa: PTH108 -- a string, as everywhere here


def replace_file(
    path: str,
    parts: Iterable[tuple[int, Bytes]],
    publish: Callable[[str, str], None] | None = None,
) -> int:
    """Make the file at `path` anew, of bytes at offsets; their number. `publish` as of `make_file`.

    A ChunkFileError if something other than a file is at `path`. After an OSError, the file at
    `path` is unchanged.
    """
    done = 0

    def write(file: int) -> None:
        nonlocal done
        for start, data in parts:
            write_all(file, memoryview(data), start, start)
            done += data.size

    make_file(path, write, publish or replace, "the chunk has not been replaced")
    return done


def delete_file(path: str) -> None:
    """Delete the file at `path`, if there is one; a ChunkFileError for anything but a file."""
    with _named_errors(path, "the chunk has not been deleted"):
        _check_is_replaceable(path)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)  # noqa: PTH108


def write_all(file: int, memory: memoryview, start: int, before: int) -> None:
    """Write all of `memory` at `start`, after `before` bytes of the selection."""
    done = 0
    while done < len(memory):
        try:
            count = os.pwrite(file, memory[done:], start + done)
        except OSError as error:
            raise StoppedError(start + done, before + done) from error
        if not count:
            raise StoppedError(start + done, before + done)
        done += count


def failed(error: StoppedError, path: str, outcome: str) -> OSError:
    """Error for a write that was stopped, with its place in the chunk at `path`."""
    number = getattr(error.__cause__, "errno", None) or errno.EIO
    return OSError(
        number,
        f"{os.strerror(number)}: byte {error.offset} of the chunk could not be written; {outcome}",
        path,
    )


def _new_file(temporary: str) -> int:
    flags = WRITABLE | os.O_CREAT | os.O_EXCL
    try:
        return os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        Path(temporary).parent.mkdir(parents=True, exist_ok=True)
        return os.open(temporary, flags, 0o666)


def replace(temporary: str, path: str) -> None:
    """Rename the complete file `temporary` to `path`, for `make_file`."""
    _check_is_replaceable(path)
    os.replace(temporary, path)  # noqa: PTH105


def _check_is_replaceable(path: str) -> None:
    """Refuse to replace or delete anything but a file: a FIFO, a socket, a folder."""
    with suppress(OSError):  # nothing is there, or a symbolic link to nothing
        mode = os.stat(path).st_mode  # noqa: PTH116
        if not stat.S_ISREG(mode):
            raise no_file(path, mode)


@contextmanager
def _named_errors(path: str, outcome: str) -> Iterator[None]:
    """Let errors of the system name the chunk, or the folder where that is not writable."""
    try:
        yield
    except StoppedError as error:
        raise failed(error, path, outcome) from error.__cause__
    except OSError as error:
        number = error.errno or errno.EIO
        if number not in (errno.EACCES, errno.EROFS):  # EPERM: what is at `path` is protected
            raise OSError(number, f"{os.strerror(number)}: {outcome}", path) from None
        folder = os.path.dirname(error.filename or path)  # noqa: PTH120
        chunk = os.path.relpath(path, folder)
        message = f"{os.strerror(number)}: {outcome}; to write {chunk!r}, make this folder writable"
        raise OSError(number, message, folder) from None


def is_replaced(file: int, status: os.stat_result, path: str) -> bool:
    """Whether an open file must be replaced, not written: it has other names, or is read-only."""
    # Root may write to any file, so the mode decides.
    is_read_only = not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    return is_read_only or _has_other_names(file, status, path)


def _has_other_names(file: int, status: os.stat_result, path: str) -> bool:
    """Whether the open file has more names than the name of its chunk and a temporary one.

    A new chunk has both for a moment, between linking and the deletion of the temporary name.
    """
    if status.st_nlink <= 1:
        return False
    folder, name = os.path.split(path)
    with os.scandir(folder) as entries:
        temporary = sum(
            is_temporary(entry.name, name) and is_at(entry.path, status) for entry in entries
        )
    return status.st_nlink - temporary > 1 and os.fstat(file).st_nlink > 1


def is_temporary(other: str, name: str) -> bool:
    """Whether `other` is a temporary name of a new file that gets this name."""
    return other.startswith(f"{name}.") and other.endswith(TEMPORARY)


def is_at(path: str, status: os.stat_result, *, follows: bool = False) -> bool:
    """Whether the file at `path`, or where a link at `path` leads, is the file with this status."""
    try:  # `DirEntry.inode()` is another number on overlay file systems
        return os.path.samestat(os.stat(path) if follows else os.lstat(path), status)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
