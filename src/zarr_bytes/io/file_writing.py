"""Writing a chunk that is a file: byte ranges in place through one open file, or a new file.

These are the steps of a write, which run in a thread. `write_object` in `write` combines them:

1. `open_and_lock_if_exists` opens the file for writing, and locks it until the end of the block:
   shared to write into it, or exclusively to replace it. Then it finds the `FileState` of the path.
   If the path leads to another file by then, that file is opened.
2. `OpenedOrMissingChunk.overwrite` writes byte ranges in place.
3. `OpenedOrMissingChunk.try_replace` puts a new file at the path, `OpenedOrMissingChunk.delete`
   deletes the old file. A missing chunk gets its file by `link`. If another process has made a file
   in the meantime, that file is opened.

`open_to_replace_unlocked_if_exists` opens the file to make a new file from it, without locks, as
zarr does.

A new file is made under a temporary name beside the chunk, so that it appears at once and complete.
Nothing is synchronized to the disk, as in zarr. `locks` explains why no write is lost.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, nullcontext, suppress
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from zarr_bytes.errors import ChunkFileError, wrong_size_error
from zarr_bytes.io.files import (
    READ_FLAGS,
    TEMPORARY_SUFFIX,
    WRITE_FLAGS,
    ChunkFile,
    is_temporary,
    not_a_file_error,
    open_chunk_file_if_exists,
    open_descriptor_if_exists,
)
from zarr_bytes.io.locks import lock_if_supported, unlock
from zarr_bytes.io.range_writing import NO_RANGES, PartlyWrittenError, write_block, write_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zarr_bytes.io.range_writing import RangeUpdate
    from zarr_bytes.layout.elements import Bytes

CAN_WRITE_FILES: Final = hasattr(os, "pwrite")
"""Whether this package replaces files. On Windows, zarr's store replaces them: a file that is open
elsewhere can't be replaced at once there, and the store tries again."""
# Errors of opening a symbolic link (EMLINK on FreeBSD), or a file that must not be written.
NOT_WRITABLE_ERRNOS: Final = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EPERM)

# Windows only has `link`. If one of the three is missing, chunks are replaced, as zarr does.
CAN_WRITE_IN_PLACE: Final = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
# Errors of linking on a file system without links.
_HAS_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

MAX_ATTEMPTS: Final = 100
"""Number of attempts to open or make a chunk while other processes replace or delete it."""

OffsetAndBytes: TypeAlias = "tuple[int, Bytes]"
"""A block of a new object: its offset in the object, and its bytes."""

_MAX_FILE_NBYTES: Final = 2**63 - 1

# Gives a complete file its name: moves it from the temporary path to the path of the chunk.
_Publish: TypeAlias = "Callable[[str, str], None]"

_NOT_MADE: Final = "the chunk has not been made"
_NOT_REPLACED: Final = "the chunk has not been replaced"


class _AlreadyMadeError(Exception):
    """Another process has made a file at the path of a chunk that was missing."""


class _NoLinksError(Exception):
    """The file system has no hard links."""


class FileState(Enum):
    """The state of the path of a chunk before a write."""

    MISSING = auto()
    """No file, or a symbolic link to nothing."""
    WRITABLE = auto()
    """A file that may be written in place."""
    MUST_BE_REPLACED = auto()
    """A file that must not be changed: it is read-only, or has other names (a symbolic link, hard
    links). Also a file of which nothing is kept, or that isn't written in place at all."""
    CHANGED = auto()
    """A file other than the opened one, or no file: the path must be opened again."""


class NewFile(NamedTuple):
    """The content of a new file."""

    blocks: Iterable[OffsetAndBytes]
    """Written in this order."""
    nbytes: int | None = None
    """Size of a file with holes, whose zeros take no space. None if the blocks fill the file."""
    range_update: RangeUpdate = NO_RANGES
    """Written last, over the blocks and holes."""

    def write(self, descriptor: int) -> int:
        """Write everything to an open, empty file; return the number of written bytes.

        A PartlyWrittenError if the system stops it.
        """
        written = 0
        if self.nbytes is not None:
            try:
                os.truncate(descriptor, min(self.nbytes, _MAX_FILE_NBYTES))
            except OSError as error:
                raise PartlyWrittenError(error.errno or errno.EIO, 0, 0) from error
        for start, block in self.blocks:
            write_block(descriptor, memoryview(block), start, written)
            written += block.size
        if self.nbytes is not None:
            write_ranges(descriptor, self.range_update, self.nbytes)
        return written + self.range_update.ranges.nbytes


class OpenedOrMissingChunk(NamedTuple):
    """A chunk opened by one of the two functions below: its file, or the path for a new one.

    For the thread that opened it, within the `with` block.
    """

    path: str
    state: FileState
    publish: _Publish
    """How a new file gets its name."""
    outcome: str = _NOT_REPLACED
    """For messages: the state of the chunk if no new file could be made."""
    lock_is_shared: bool = False
    """Whether others may hold the lock, too; then the file must not be replaced."""
    file: ChunkFile | None = None
    """None if the chunk is missing; also if nothing of it is kept, and it isn't locked."""
    size: int | None = None
    """Size of the file in bytes when it was locked; None if it wasn't looked at."""

    def overwrite(self, range_update: RangeUpdate) -> None:
        """Write byte ranges into the file, whose state is WRITABLE.

        An error if the size of the file has changed afterwards: a process without a lock has cut
        the file.
        """
        descriptor = cast("ChunkFile", self.file).descriptor
        size = cast("int", self.size)
        try:
            write_ranges(descriptor, range_update, size)
        except PartlyWrittenError as error:
            outcome = f"{error.selection_nbytes_written} bytes of the selection have been written"
            raise _error_naming_chunk(error, self.path, outcome) from error.__cause__
        size_now = os.fstat(descriptor).st_size
        if size_now != size:
            raise wrong_size_error(self.path, 0, size, size_now)

    def try_replace(self, new_file: NewFile) -> int | None:
        """Put a new file at the path; return the number of written bytes.

        None if the chunk was missing, and another process has made it in the meantime: it must be
        opened again.
        """
        try:
            return _make_and_publish_file(self.path, new_file, self.publish, self.outcome)
        except _AlreadyMadeError:
            return None

    def delete(self) -> None:
        """Delete the file at the path; do nothing if the chunk was missing when it was opened."""
        path = self.path
        if self.publish is _publish_by_link_or_replace:
            return
        try:
            _regular_file_exists_or_raise(path)
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)  # noqa: PTH108 -- a string, as everywhere here
        except OSError as error:
            raise _error_naming_chunk(error, path, "the chunk has not been deleted") from None


@contextmanager
def open_to_replace_unlocked_if_exists(
    path: str, root: str, *, keeps_old_elements: bool
) -> Iterator[OpenedOrMissingChunk]:
    """Open the file of a chunk for the block, to replace it without a lock. It isn't changed.

    With `keeps_old_elements`, the file is opened for reading; otherwise, nothing is opened.
    """
    file = open_chunk_file_if_exists(path, root) if keeps_old_elements else None
    state = FileState.MISSING if file is None else FileState.MUST_BE_REPLACED
    with file or nullcontext():
        yield OpenedOrMissingChunk(path, state, _publish_by_replace, file=file)


@contextmanager
def open_and_lock_if_exists(
    path: str,
    root: str,
    *,
    lock_is_shared: bool,
    keeps_old_elements: bool,
    max_seconds_without_writes: int,
) -> Iterator[OpenedOrMissingChunk]:
    """Open the file of a chunk for writing, and lock it until the end of the block.

    The function waits for the lock. A missing chunk isn't locked.

    Parameters
    ----------
    path, root
        Path of the file, and root of its store.
    lock_is_shared
        Whether others may write into the file at the same time. For a symbolic link, and for a file
        that this process must not write, the lock is always exclusive.
    keeps_old_elements
        Whether elements of the old file are kept, so that it must be read or changed.
    max_seconds_without_writes
        Time to wait for another program that holds the lock and writes nothing.

    Raises
    ------
    OSError
        If the system can't open or lock the file.
    ChunkFileError
        If something other than a regular file is at `path`.
    WorkCancelledError
        If the write is cancelled while it waits for the lock.
    """
    unlocked: OpenedOrMissingChunk | None = None
    try:
        descriptor, may_write = open_without_lock_to_write_if_exists(
            path, raises_if_mounted_read_only=lock_is_shared
        )
        if descriptor is None and may_write:  # another process may make one first
            outcome = _NOT_MADE if keeps_old_elements else _NOT_REPLACED
            unlocked = OpenedOrMissingChunk(
                path, FileState.MISSING, _publish_by_link_or_replace, outcome
            )
    except PermissionError:
        if keeps_old_elements:
            raise
        # No other process can read it either.
        unlocked = OpenedOrMissingChunk(path, FileState.MUST_BE_REPLACED, _publish_by_replace)
    if unlocked is not None:
        yield unlocked
        return
    leads_to_nothing = descriptor is None
    if descriptor is None:  # a symbolic link to nothing: its folder is locked
        descriptor = os.open(os.path.dirname(path), READ_FLAGS)  # noqa: PTH120
    lock_is_shared = lock_is_shared and may_write
    with ChunkFile(descriptor, path, root) as file:
        lock_if_supported(
            descriptor,
            path,
            root,
            is_shared=lock_is_shared,
            max_seconds_without_writes=max_seconds_without_writes,
        )
        try:
            if leads_to_nothing:
                is_changed = os.path.exists(path) or not os.path.islink(path)  # noqa: PTH110, PTH114
                state = FileState.CHANGED if is_changed else FileState.MISSING
                yield OpenedOrMissingChunk(path, state, os.replace)
            else:
                status = os.fstat(descriptor)
                state = _state_of(
                    path,
                    descriptor,
                    status,
                    keeps_old_elements=keeps_old_elements,
                    may_write=may_write,
                )
                yield OpenedOrMissingChunk(
                    path, state, os.replace, _NOT_REPLACED, lock_is_shared, file, status.st_size
                )
        finally:
            unlock(descriptor)


def _state_of(
    path: str, descriptor: int, status: os.stat_result, *, keeps_old_elements: bool, may_write: bool
) -> FileState:
    """The state of an open, locked file; a ChunkFileError for anything but a regular file.

    Parameters are as in `open_and_lock_if_exists` and `is_hard_linked_or_read_only`; `may_write` is
    a result of `open_without_lock_to_write_if_exists`.
    """
    if not stat.S_ISREG(status.st_mode):  # writing to a FIFO or a device might never end
        raise not_a_file_error(path, status.st_mode)
    # The number of names isn't used: some file systems give 0 for every file.
    if not is_same_file(path, status, follow_symlinks=not may_write):
        return FileState.CHANGED
    if (
        may_write
        and keeps_old_elements
        and not is_hard_linked_or_read_only(descriptor, status, path)
    ):
        return FileState.WRITABLE
    return FileState.MUST_BE_REPLACED


class DescriptorAndMayWrite(NamedTuple):
    """An open file of a chunk, which the caller closes."""

    descriptor: int | None
    """None if the file is missing."""
    may_write: bool
    """False if `path` is a symbolic link, or there is no permission to write."""


def open_without_lock_to_write_if_exists(
    path: str, *, raises_if_mounted_read_only: bool
) -> DescriptorAndMayWrite:
    """Open the file at `path` without a lock, to write into it if that is permitted.

    The descriptor is None if there is no file. `may_write` is False for a file that must be
    replaced instead: a link, which is followed and may lead to no file, or a file that can only be
    read. An error on a file system that is mounted read-only, if `raises_if_mounted_read_only`.
    """
    for flags in WRITE_FLAGS, WRITE_FLAGS & ~os.O_NOFOLLOW:
        try:
            return DescriptorAndMayWrite(
                open_descriptor_if_exists(path, flags), flags == WRITE_FLAGS
            )
        except OSError as error:
            if error.errno not in NOT_WRITABLE_ERRNOS and (
                raises_if_mounted_read_only or error.errno != errno.EROFS
            ):
                raise
    return DescriptorAndMayWrite(open_descriptor_if_exists(path), may_write=False)


def too_many_attempts_error(path: str) -> OSError:
    """Error for a chunk that was replaced each time that it was opened."""
    return OSError(
        errno.EBUSY,
        f"{os.strerror(errno.EBUSY)}: the chunk was opened {MAX_ATTEMPTS} times, and each time"
        " another file had taken its place: another process keeps replacing it, or this file system"
        " does not identify files; nothing has been written",
        path,
    )


def create_file_if_missing(path: str, new_file: NewFile) -> bool:
    """Make a file at `path` if there is none; return whether it was made.

    A file that another process makes in the meantime is kept. An OSError if the system or the file
    system has no hard links, and a ChunkFileError if something other than a file is at `path`.
    """
    if not CAN_WRITE_IN_PLACE:
        raise OSError(
            errno.ENOSYS,
            "this system has no hard links, so chunks are replaced and cannot be shared: let"
            " one process write each chunk, without `preallocate`",
            path,
        )
    if _regular_file_exists_or_raise(path):
        return False
    try:
        _make_and_publish_file(path, new_file, _publish_by_link, _NOT_MADE)
    except _AlreadyMadeError:
        if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
            raise ChunkFileError(f"{path} is a symbolic link to nothing: delete it") from None
        return False
    except _NoLinksError:
        raise OSError(
            errno.ENOTSUP,
            f"this file system has no hard links; {_NOT_MADE}: let one process write all chunks"
            " with `write_empty_chunks=True` before others begin, or use another file system",
            path,
        ) from None
    return True


def _make_and_publish_file(path: str, new_file: NewFile, publish: _Publish, outcome: str) -> int:
    """Make a file beside `path`, and `publish` it; return the number of written bytes.

    After an error, no temporary file is left. `outcome` is the state of the chunk for the message.
    """
    temporary = f"{path}.{os.urandom(16).hex()}{TEMPORARY_SUFFIX}"
    held: list[int] = []  # the descriptor, so that an interrupt doesn't lose it
    try:
        try:
            try:
                _make_with_folders_into(held, temporary)
                written = new_file.write(held[0])
            finally:
                for descriptor in held:
                    os.close(descriptor)
            publish(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
    except OSError as error:
        raise _error_naming_chunk(error, path, outcome) from error.__cause__
    return written


def _publish_by_link(temporary: str, path: str) -> None:
    """Give a complete file its name by a hard link.

    An _AlreadyMadeError if there is a file with this name, and a _NoLinksError on a file system
    without hard links.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _AlreadyMadeError from None
    except OSError as error:
        if error.errno not in _HAS_NO_LINKS:
            raise
        raise _NoLinksError from None
    with suppress(OSError):
        os.unlink(temporary)  # noqa: PTH108


def _publish_by_link_or_replace(temporary: str, path: str) -> None:
    """Like `_publish_by_link`, but `_publish_by_replace` on a file system without hard links."""
    try:
        _publish_by_link(temporary, path)
    except _NoLinksError:
        _publish_by_replace(temporary, path)


def _make_with_folders_into(held: list[int], temporary: str) -> None:
    """Make and open a file and its folders; `held` is as in `open_descriptor_into_if_exists`."""
    flags = WRITE_FLAGS | os.O_CREAT | os.O_EXCL
    try:
        held.extend(map(os.open, (temporary,), (flags,), (0o666,)))
    except FileNotFoundError:
        Path(temporary).parent.mkdir(parents=True, exist_ok=True)
        held.extend(map(os.open, (temporary,), (flags,), (0o666,)))


def _publish_by_replace(temporary: str, path: str) -> None:
    """Rename a complete file, over another file if there is one."""
    _regular_file_exists_or_raise(path)
    os.replace(temporary, path)  # noqa: PTH105


def _regular_file_exists_or_raise(path: str) -> bool:
    """Whether a regular file is at `path`; False for nothing, or a symbolic link to nothing.

    A ChunkFileError for anything else: a FIFO, a socket, a folder.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
    except OSError:
        return False
    if not stat.S_ISREG(mode):
        raise not_a_file_error(path, mode)
    return True


def _error_naming_chunk(error: OSError, path: str, outcome: str) -> OSError:
    """Error of the system with the name of the chunk and its state, the `outcome` of the write.

    The error names the folder instead if the folder isn't writable.
    """
    number = error.errno or errno.EIO
    if isinstance(error, PartlyWrittenError):
        outcome = f"byte {error.offset} of the chunk could not be written; {outcome}"
    elif number in (errno.EACCES, errno.EROFS):  # EPERM: the file at `path` is protected
        folder = os.path.dirname(error.filename or path)  # noqa: PTH120
        outcome += f"; to write {os.path.relpath(path, folder)!r}, make this folder writable"
        path = folder
    return OSError(number, f"{os.strerror(number)}: {outcome}", path)


def is_hard_linked_or_read_only(descriptor: int, status: os.stat_result, path: str) -> bool:
    """Whether a file must be replaced rather than changed: it has other names, or is read-only.

    Parameters
    ----------
    descriptor, path
        Descriptor and path of the open file.
    status
        Status of the file after it was opened.
    """
    # Root may write to any file, so the mode decides.
    if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        return True
    if status.st_nlink <= 1:
        return False
    # Between linking and the deletion of its temporary name, a new chunk has both.
    folder, name = os.path.split(path)
    with os.scandir(folder) as entries:
        temporary_names = sum(
            is_temporary(entry.name, name) and is_same_file(entry.path, status) for entry in entries
        )
    if status.st_nlink - temporary_names <= 1:
        return False
    return os.fstat(descriptor).st_nlink > 1  # the other writer may have deleted one by now


def is_same_file(path: str, status: os.stat_result, *, follow_symlinks: bool = False) -> bool:
    """Whether the file at `path` has the identity in this status; False if it is missing."""
    try:  # `DirEntry.inode()` is another number on overlay file systems
        found = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116
        return os.path.samestat(found, status)
    except (FileNotFoundError, NotADirectoryError):
        return False
