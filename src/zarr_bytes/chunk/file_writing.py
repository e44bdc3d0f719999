"""Writing byte ranges of a chunk that is a file, in place, through one open file.

A missing chunk is made complete under a temporary name, which is then linked to its own. So it
appears at once, and a second writer at the same moment writes into it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.files import ChunkFile
from zarr_bytes.chunk.mapped_writing import CAN_MAP, write_mapped
from zarr_bytes.chunk.new_files import (
    IS_REPLACED,
    StoppedError,
    failed,
    is_at,
    is_replaced,
    make_file,
    write_all,
)
from zarr_bytes.chunk.opening import WRITABLE, is_local, no_file, note_location, opened
from zarr_bytes.errors import wrong_size

if TYPE_CHECKING:
    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.chunk.tiles import Tile

__all__ = ["NewChunk", "Selected", "create_file", "write_file"]

# Windows has only `link`. Where one of the three is missing, chunks are replaced, as zarr does.
_IS_POSSIBLE: Final = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
# Errors of linking on a file system without links.
_HAS_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

_ATTEMPTS: Final = 100  # to open or make the chunk while other processes replace or delete it


class _TakenError(Exception):
    """Another file has taken the place of the chunk's file, and has to be opened."""


class NewChunk(NamedTuple):
    """A chunk or a shard before anything has been written to it.

    Attributes
    ----------
    nbytes : int
        Size of its elements, in bytes.
    fill : bytes
        One element, as it is stored.
    leave_out_empty : bool
        Whether a chunk that has only the fill value is not stored.
    before, after : bytes
        The index of a shard, before or after its elements.
    """

    nbytes: int
    fill: bytes
    leave_out_empty: bool
    before: bytes = b""
    after: bytes = b""

    @property
    def size(self) -> int:
        """Size of the file, in bytes."""
        return len(self.before) + self.nbytes + len(self.after)

    def is_left_out(self, data: Bytes) -> bool:
        """Whether a chunk of these elements alone, as bytes, is not stored.

        Compared byte for byte: a NaN with other bits or a negative zero is another value. The
        comparison ends at the first block that differs.
        """
        size = len(self.fill)
        step = max(limits.LIMITS.compared // size, 1) * size
        return self.leave_out_empty and all(
            data[start : start + size].tobytes() == self.fill
            and np.array_equal(
                data[start + size : start + step], data[start : start + step][:-size]
            )
            for start in range(0, data.size, step)
        )


class Selected(Protocol):
    """The selected bytes of a chunk or a shard, for `write_file`."""

    def in_new(self) -> tuple[NewChunk, Tile, Bytes]:
        """A new chunk, the ranges in it, and the bytes of all ranges one after another."""

    def in_file(self, file: ChunkFile) -> tuple[Tile, Bytes] | None:
        """The ranges in an open file; None if it has to be replaced.

        Raises
        ------
        ChunkSizeError, ShardIndexError
            If the file does not fit the metadata.
        """


def write_file(path: str, root: str, selected: Selected) -> int | None:
    """Write selected bytes to the file at `path`, which is created where it is missing.

    Parameters
    ----------
    path : str
        Of the chunk.
    root : str
        Root of the store. It is found out here whether the root is on this machine.
    selected : Selected
        Ranges that hold selected bytes alone.

    Returns
    -------
    int or None
        Number of written bytes: the size of the file where it was missing. None if the chunk has to
        be replaced by another file: the file has other names, is a symbolic link, must not be
        written, lacks an inner chunk, has bytes of two of them, or is missing on a file system
        without links.

    Raises
    ------
    ChunkFileError
        If something other than a file is at `path`.
    ChunkSizeError, ShardIndexError
        If the file does not have the size of the chunk, or a shard the index of its metadata.
        Nothing has been written then, unless another process has shortened the file meanwhile.
    OSError
        If the system does not write all bytes.
    """
    if not _IS_POSSIBLE:
        return None
    for _ in range(_ATTEMPTS):
        try:
            descriptor = opened(path, WRITABLE)
        except OSError as error:
            if error.errno not in IS_REPLACED:
                raise
            return None
        with suppress(_TakenError):
            if descriptor is None:
                new, tile, data = selected.in_new()
                return 0 if new.is_left_out(data) else _create(path, tile, data, new)
            with ChunkFile(descriptor, path, root) as file:
                note_location(descriptor, root)
                return _overwrite(file, selected)
    raise OSError(
        errno.EBUSY,
        f"{os.strerror(errno.EBUSY)}: the chunk was opened {_ATTEMPTS} times, and each time another"
        " file had taken its place: another process keeps replacing it, or this file system does"
        " not identify files; nothing has been written",
        path,
    )


def create_file(path: str, new: NewChunk) -> bool:
    """Make a chunk of fill values at `path`, if there is none.

    Returns
    -------
    bool
        Whether it has been made. A chunk that another process makes first is kept.

    Raises
    ------
    ChunkFileError
        If something other than a file is at `path`.
    OSError
        If the system does not make the file, or has no links.
    """
    if not _IS_POSSIBLE:
        raise OSError(errno.ENOSYS, "this system lacks what making a chunk at once takes", path)
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
        if not stat.S_ISREG(mode):
            raise no_file(path, mode)
        return False
    outcome = "the chunk has not been made"
    is_made = make_file(path, lambda file: _fill(file, new), _link, outcome)
    if is_made is False:
        raise OSError(errno.ENOTSUP, f"this file system has no links; {outcome}", path)
    return bool(is_made)


def _overwrite(file: ChunkFile, selected: Selected) -> int | None:
    """`write_file` to an open file."""
    path, descriptor = file.path, file.descriptor
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):  # writing to a FIFO or a device might never end
        raise no_file(path, status.st_mode)
    # Not by its number of names: some file systems give 0 for every file.
    if not is_at(path, status):
        raise _TakenError
    if is_replaced(descriptor, status, path):
        return None
    size = status.st_size
    found = selected.in_file(file)
    if found is None:
        return None
    tile, data = found
    try:
        _write_ranges(descriptor, tile, data, size)
    except StoppedError as error:
        outcome = f"{error.written} bytes of the selection have been written"
        raise failed(error, path, outcome) from error.__cause__
    size_now = os.fstat(descriptor).st_size
    if size_now != size:
        raise wrong_size(path, 0, size, size_now)
    return tile.nbytes


def _create(path: str, tile: Tile, data: Bytes, new: NewChunk) -> int | None:
    """`write_file` to a new file; None where the file system has no links."""

    def write(file: int) -> None:
        _fill(file, new)
        _write_ranges(file, tile, data, new.size)

    is_made = make_file(path, write, _link, "the chunk has not been made")
    if is_made is None:
        raise _TakenError
    return new.size if is_made else None


def _link(temporary: str, path: str) -> bool | None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return None
    except OSError as error:
        if error.errno not in _HAS_NO_LINKS:
            raise
        return False
    return True


def _fill(file: int, new: NewChunk) -> None:
    """Make the open file a chunk of fill values; zeros take no space on the disk."""
    try:
        os.truncate(file, new.size)
    except OSError as error:
        raise StoppedError(0, 0) from error
    begin = len(new.before)
    if any(new.fill):
        count = min(max(limits.LIMITS.filled // len(new.fill), 1), new.nbytes // len(new.fill))
        block = memoryview(new.fill * count)
        for start in range(0, new.nbytes, len(block)):
            write_all(file, block[: new.nbytes - start], begin + start, 0)
    write_all(file, memoryview(new.before), 0, 0)
    write_all(file, memoryview(new.after), begin + new.nbytes, 0)


def _write_ranges(file: int, tile: Tile, data: Bytes, size: int) -> None:
    done = 0
    # Only on a local file system: others send every mapped page whole.
    if (
        CAN_MAP
        and tile.number_of_ranges() >= limits.LIMITS.mapped_ranges
        and tile.nbytes <= tile.number_of_ranges() * limits.LIMITS.mapped_range
        and is_local(file)
    ):
        done = write_mapped(file, tile, data, size)
        if os.fstat(file).st_size != size:
            return  # an error of the caller; writing would make the file longer
    memory = memoryview(data)
    for start, stop, position in islice(tile.ranges(), done, None):
        write_all(file, memory[position : position + stop - start], start, position)
