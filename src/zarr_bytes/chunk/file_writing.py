"""Writing byte ranges of a chunk that is a file, in place, through one open file.

A chunk that is not there yet is made whole beside its name and linked to it, so that it appears at
once and complete, and whoever comes second writes into it. Nothing is synchronised to the disk, as
with zarr.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import numpy as np

from zarr_bytes.chunk.file_systems import is_local
from zarr_bytes.chunk.files import closing, no_file
from zarr_bytes.chunk.mapped_writing import CAN_MAP, write_mapped
from zarr_bytes.errors import wrong_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.chunk.plan import Plan

__all__ = ["NewChunk", "replace_file", "write_file"]

# Windows has the second of these alone. Where one is missing, a chunk is replaced, as zarr does.
_IS_POSSIBLE: Final = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
# No wait for the other end of a FIFO; no symbolic link is followed.
_FLAGS: Final = (
    os.O_RDWR
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_TEMPORARY: Final = ".partial"  # as zarr's LocalStore names them
_BLOCK: Final = 2**20  # bytes of fill values that are written at once
_LOOK: Final = 2**16  # bytes that are compared with the fill value at once

# What opening says of a symbolic link (EMLINK on FreeBSD), and of a file that must not be written.
_IS_REPLACED: Final = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EPERM)
# What linking says on a file system that has no links.
_HAS_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

_MANY: Final = 2**6  # ranges, for which a mapping is faster than calls
_SMALL: Final = 2**10  # bytes of a range on average; longer ones are written faster by calls


class NewChunk(NamedTuple):
    """What a chunk is before anything has been written to it.

    Attributes
    ----------
    nbytes : int
        Its size.
    fill : bytes
        One element, as it is stored.
    leave_out_empty : bool
        Whether a chunk that holds nothing but the fill value is not stored.
    """

    nbytes: int
    fill: bytes
    leave_out_empty: bool

    def is_left_out(self, data: Bytes) -> bool:
        """Whether nothing is to be stored where `data`, whole elements, is all there is.

        Byte for byte: a NaN with other bits or a negative zero is another value. What differs at
        its beginning is not looked at to its end.
        """
        size = len(self.fill)
        step = max(_LOOK // size, 1) * size
        return self.leave_out_empty and all(
            data[start : start + size].tobytes() == self.fill
            and np.array_equal(
                data[start + size : start + step], data[start : start + step][:-size]
            )
            for start in range(0, data.size, step)
        )


class _StoppedError(Exception):
    """The system has refused to write more."""

    def __init__(self, offset: int, written: int) -> None:
        super().__init__(offset, written)
        self.offset = offset  # in the file
        self.written = written  # bytes of the selection


def write_file(
    path: str, plan: Plan, data: Bytes, nbytes: int, new_chunk: Callable[[], NewChunk]
) -> bool:
    """Write the ranges of `plan` to the file at `path`, which is created where it is missing.

    Parameters
    ----------
    path : str
        Of the chunk.
    plan : Plan
        Its ranges hold selected bytes alone.
    data : array of uint8, 1-D
        The bytes of all ranges one after another.
    nbytes : int
        Size of the chunk.
    new_chunk : callable
        Gives the chunk, if there is no file yet.

    Returns
    -------
    bool
        False if the chunk is to be replaced by another file: the file has other names, is a
        symbolic link, must not be written, or is missing where no link can be made.

    Raises
    ------
    ChunkSizeError
        If the file has another size than the chunk; nothing has been written then, unless somebody
        else has shortened it meanwhile.
    OSError
        If the system does not write what was asked for, or what is at `path` is no file.
    """
    is_written = None if _IS_POSSIBLE else False
    while is_written is None:
        try:
            file = os.open(path, _FLAGS)
        except FileNotFoundError:
            new = new_chunk()
            if new.is_left_out(data):
                return True
            is_written = _create(path, plan, data, new)
        except OSError as error:
            if error.errno not in _IS_REPLACED:
                raise
            with suppress(FileNotFoundError):  # a symbolic link to nothing
                _check_is_file(Path(path).stat(), path)
            return False
        else:
            with closing(file):
                is_written = _overwrite(file, path, plan, data, nbytes)
    return is_written


def _check_is_file(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):  # reading a FIFO or a device might never end
        raise no_file(path, status.st_mode)


def _overwrite(file: int, path: str, plan: Plan, data: Bytes, nbytes: int) -> bool | None:
    """Write to the open file at `path`; None if it has been replaced, and is to be opened again."""
    status = os.fstat(file)
    if status.st_nlink == 0:
        return None
    _check_is_file(status, path)
    # The user root may write to any file: the mode says what its owner wants.
    is_read_only = not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if is_read_only or _has_other_names(file, status, path):
        return False
    _check_size(status, nbytes, path)
    try:
        _write_ranges(file, plan, data, nbytes)
    except _StoppedError as error:
        outcome = f"{error.written} bytes of the selection have been written"
        raise _failed(error, path, outcome) from error.__cause__
    _check_size(os.fstat(file), nbytes, path)
    return True


def _check_size(status: os.stat_result, nbytes: int, path: str) -> None:
    if status.st_size != nbytes:
        raise wrong_size(path, 0, nbytes, status.st_size)


def _failed(error: _StoppedError, path: str, outcome: str) -> OSError:
    number = getattr(error.__cause__, "errno", None) or errno.EIO
    return OSError(
        number,
        f"{os.strerror(number)}: byte {error.offset} of the chunk could not be written; {outcome}",
        path,
    )


def _has_other_names(file: int, status: os.stat_result, path: str) -> bool:
    """Whether the open file has more names than its chunk's and a temporary one.

    A new chunk has both for a moment: it is linked to its name, and then its temporary one goes.
    """
    if status.st_nlink == 1:
        return False
    folder, name = os.path.split(path)
    with os.scandir(folder) as entries:
        temporary = sum(
            entry.name.startswith(f"{name}.")
            and entry.name.endswith(_TEMPORARY)
            and _is_at(entry, status)
            for entry in entries
        )
    return status.st_nlink - temporary > 1 and os.fstat(file).st_nlink > 1


def _is_at(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    try:  # not `entry.inode()`, which differs from the file's on overlay file systems
        return os.path.samestat(entry.stat(follow_symlinks=False), status)
    except FileNotFoundError:
        return False


def _create(path: str, plan: Plan, data: Bytes, new: NewChunk) -> bool | None:
    """Make the chunk with its ranges written.

    None if another has come into being meanwhile, False where the file system has no links.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    temporary = f"{path}.{uuid4().hex}{_TEMPORARY}"
    try:
        with closing(os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)) as file:
            _fill(file, new)
            _write_ranges(file, plan, data, new.nbytes)
        os.link(temporary, path)
    except FileExistsError:
        return None
    except _StoppedError as error:
        raise _failed(error, path, "the chunk has not been made") from error.__cause__
    except OSError as error:
        if error.errno not in _HAS_NO_LINKS or not Path(temporary).exists():
            raise
        return False
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def replace_file(path: str, blocks: Iterable[Bytes]) -> None:
    """Make the file at `path` anew, which appears at once and complete, as zarr's store does.

    Parameters
    ----------
    path : str
        Of the chunk.
    blocks : iterable of 1-D arrays of uint8
        What the file holds, one after another.

    Raises
    ------
    OSError
        If the system does not write it; what was at `path` is there still.
    """
    temporary = f"{path}.{uuid4().hex}{_TEMPORARY}"
    flags = _FLAGS | os.O_CREAT | os.O_EXCL
    try:
        try:
            new = os.open(temporary, flags, 0o666)
        except FileNotFoundError:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            new = os.open(temporary, flags, 0o666)
        with closing(new) as file:
            done = 0
            for block in blocks:
                _write(file, memoryview(block), done, done)
                done += block.size
        os.replace(temporary, path)  # noqa: PTH105 -- a string, as everywhere here
    except IsADirectoryError:
        Path(temporary).unlink(missing_ok=True)
        raise no_file(path, stat.S_IFDIR) from None
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, _StoppedError):
            raise _failed(error, path, "the chunk has not been replaced") from error.__cause__
        raise


def _fill(file: int, new: NewChunk) -> None:
    """Make the open file a chunk of fill values; zeros take no room on the disk."""
    try:
        os.truncate(file, new.nbytes)
    except OSError as error:
        raise _StoppedError(0, 0) from error
    if any(new.fill):
        count = min(max(_BLOCK // len(new.fill), 1), new.nbytes // len(new.fill))
        block = memoryview(new.fill * count)
        for start in range(0, new.nbytes, len(block)):
            _write(file, block[: new.nbytes - start], start, 0)


def _write_ranges(file: int, plan: Plan, data: Bytes, nbytes: int) -> None:
    done = 0
    # Not on a file system of other machines too: there a page that is mapped is sent whole.
    if (
        CAN_MAP
        and plan.starts.size >= _MANY
        and plan.nbytes <= plan.starts.size * _SMALL
        and is_local(file)
    ):
        done = write_mapped(file, plan, data, nbytes)
        if os.fstat(file).st_size != nbytes:
            return  # which the caller finds too: a file must not be made longer here
    memory = memoryview(data)
    for start, stop, position in plan.ranges(done):
        _write(file, memory[position : position + stop - start], start, position)


def _write(file: int, memory: memoryview, start: int, before: int) -> None:
    """Write all of `memory` at `start`; `before` bytes of the selection have been written."""
    done = 0
    while done < len(memory):
        try:
            count = os.pwrite(file, memory[done:], start + done)
        except OSError as error:
            raise _StoppedError(start + done, before + done) from error
        if not count:
            raise _StoppedError(start + done, before + done)
        done += count
