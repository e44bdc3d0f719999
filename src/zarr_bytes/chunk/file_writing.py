"""Writing byte ranges of a chunk that is a file, in place, through one open file.

A chunk that is not there yet is made whole beside its name and linked to it, so that it appears at
once and complete, and whoever comes second writes into it. Nothing is synchronised to the disk, as
with zarr.
"""

from __future__ import annotations

import mmap
import os
import stat
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import numpy as np

from zarr_bytes.chunk.file_systems import is_local
from zarr_bytes.errors import wrong_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.chunk.byte_ranges import Plan
    from zarr_bytes.chunk.elements import Bytes

__all__ = ["NewChunk", "write_file"]

_IS_POSSIBLE: Final = hasattr(os, "pwrite")  # not on Windows
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

_CAN_MAP: Final = hasattr(os, "memfd_create") and hasattr(os, "preadv")  # Linux
_MANY: Final = 2**8  # ranges
_BATCH: Final = 2**10  # ranges, the most that one `preadv` takes (IOV_MAX)


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


def write_file(path: str, plan: Plan, data: Bytes, new: NewChunk) -> bool:
    """Write the ranges of `plan` to the file at `path`, which is created where it is missing.

    Parameters
    ----------
    path : str
        Of the chunk.
    plan : Plan
        Its ranges hold selected bytes alone.
    data : array of uint8, 1-D
        The bytes of all ranges one after another.
    new : NewChunk
        The chunk, if there is no file yet.

    Returns
    -------
    bool
        False if the chunk cannot be written in place: the file has other names, is a symbolic link
        or no file at all, must not be written, or lies where no link can be made.

    Raises
    ------
    ChunkSizeError
        If the file has another size than the chunk; nothing has been written then.
    OSError
        If the system does not write what was asked for.
    """
    is_written = None if _IS_POSSIBLE else False
    while is_written is None:
        try:
            file = os.open(path, _FLAGS)
        except FileNotFoundError:
            if new.leave_out_empty and _is_filled(data, new.fill):
                return True
            is_written = _create(path, plan, data, new)
        except OSError:  # a link, a folder, no permission
            return False
        else:
            with _closing(file):
                is_written = _overwrite(file, path, plan, data, new.nbytes)
    return is_written


@contextmanager
def _closing(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)


def _is_filled(data: Bytes, fill: bytes) -> bool:
    pattern = np.frombuffer(fill, np.uint8)
    return bool((data.reshape(-1, pattern.size) == pattern).all())


def _overwrite(file: int, path: str, plan: Plan, data: Bytes, nbytes: int) -> bool | None:
    """Write to the open file at `path`; None if it has been replaced, and is to be opened again."""
    status = os.fstat(file)
    if status.st_nlink == 0:
        return None
    if not stat.S_ISREG(status.st_mode) or _has_other_names(file, status, path):
        return False
    _check_size(file, nbytes, path)
    _write_ranges(file, plan, data, path, nbytes)
    return True


def _check_size(file: int, nbytes: int, path: str) -> None:
    if (size := os.fstat(file).st_size) != nbytes:
        raise wrong_size(path, 0, nbytes, size)


def _has_other_names(file: int, status: os.stat_result, path: str) -> bool:
    """Whether the open file has more names than its chunk's and a temporary one.

    A new chunk has both for a moment: it is linked to its name, and then its temporary one goes.
    """
    if status.st_nlink == 1:
        return False
    folder, name = os.path.split(path)
    with os.scandir(folder) as entries:
        temporary = sum(
            entry.name.startswith(name)
            and entry.name.endswith(_TEMPORARY)
            and entry.inode() == status.st_ino
            for entry in entries
        )
    return status.st_nlink - temporary > 1 and os.fstat(file).st_nlink > 1


def _create(path: str, plan: Plan, data: Bytes, new: NewChunk) -> bool | None:
    """Make the chunk with its ranges written.

    None if another has come into being meanwhile, False where the file system has no links.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    temporary = f"{path}.{uuid4().hex}{_TEMPORARY}"
    try:
        with _closing(os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)) as file:
            os.truncate(file, new.nbytes)
            if any(new.fill):  # what was never written reads as zeros, and takes no room
                _write_fill(file, new, path)
            _write_ranges(file, plan, data, path, new.nbytes)
        return _link(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _link(temporary: str, path: str) -> bool | None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return None
    except OSError:
        return False
    return True


def _write_fill(file: int, new: NewChunk, path: str) -> None:
    count = min(max(_BLOCK // len(new.fill), 1), new.nbytes // len(new.fill))
    block = memoryview(new.fill * count)
    for start in range(0, new.nbytes, len(block)):
        _write(file, block[: new.nbytes - start], start, path, 0)


def _write_ranges(file: int, plan: Plan, data: Bytes, path: str, nbytes: int) -> None:
    done = 0
    # Not on a file system of other machines too: there a page that is mapped is sent whole.
    if _CAN_MAP and plan.starts.size >= _MANY and is_local(file):
        done = _write_mapped(file, plan, data)
        if done < plan.starts.size:
            _check_size(file, nbytes, path)
    memory = memoryview(data)
    for start, stop, position in islice(plan.ranges(), done, None):
        _write(file, memory[position : position + stop - start], start, path, position)


def _write(file: int, memory: memoryview, start: int, path: str, before: int) -> None:
    """Write all of `memory` at `start`; `before` are the bytes that went before, for the error."""
    done = 0
    while done < len(memory):
        try:
            count = os.pwrite(file, memory[done:], start + done)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{os.strerror(error.errno or 0)}: byte {start + done} of the chunk could not be"
                f" written, {before + done} bytes of the selection were",
                path,
            ) from error
        done += count


def _write_mapped(file: int, plan: Plan, data: Bytes) -> int:
    """Write many small ranges through a mapping of the file; returns how many have been.

    A system call for each takes four times as long as reading and writing the chunk whole. Here one
    call copies a thousand, from a file in memory into the mapping. The system does the copying, so
    that a file which somebody shortens meanwhile, or a full disk, ends this and not the process.
    """
    memory, starts, sizes = memoryview(data), plan.starts, plan.stops - plan.starts
    source = os.memfd_create("zarr-bytes")
    position = 0
    with _closing(source), mmap.mmap(file, 0) as chunk, memoryview(chunk) as mapped:
        for first in range(0, starts.size, _BATCH):
            batch = slice(first, first + _BATCH)
            count = int(sizes[batch].sum())
            os.pwrite(source, memory[position : position + count], 0)
            ranges = zip(starts[batch].tolist(), sizes[batch].tolist(), strict=True)
            targets = [mapped[start : start + size] for start, size in ranges]
            try:
                is_done = os.preadv(source, targets, 0) == count
            except OSError:  # EFAULT
                is_done = False
            for target in targets:
                target.release()
            if not is_done:
                return first
            position += count
    return starts.size
