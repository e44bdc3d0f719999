"""Writing a chunk that is a file: byte ranges in place through one open file, or a new file.

`write_file` runs in a thread, and takes these steps in place:

1. Open the file for writing. If it is missing, make a new one, and give it its name by `link`.
2. Lock the file: shared to write into it, exclusively if nothing of it is kept.
3. If the path leads to another file by now, begin again; likewise if `link` finds a file.
4. Ask the `FileUpdate` for its byte ranges in this file, write them, and unlock.
5. If it has none, since a shard lacks inner chunks, or the file must not be changed (a symbolic
   link, other hard links, no permission to write): begin again with the exclusive lock. Under it,
   make a new file out of the old one, and rename it.

Otherwise a new file is made out of the old one and renamed, without locks, as zarr does.

A new file is made under a temporary name beside the chunk, so that it appears at once and complete.
Nothing is synchronised to the disk, as with zarr. `locks` says why no write is lost.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from zarr_bytes.errors import ChunkFileError, wrong_size_error
from zarr_bytes.io import counters
from zarr_bytes.io.files import (
    READ_FLAGS,
    TEMPORARY_SUFFIX,
    WRITE_FLAGS,
    ChunkFile,
    is_temporary,
    not_a_file_error,
    open_chunk_file,
    open_descriptor,
)
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.locks import lock_if_supported, unlock
from zarr_bytes.io.range_writing import PartlyWrittenError, write_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr_bytes.io.range_writing import RangeUpdate

CAN_WRITE_FILES: Final = hasattr(os, "pwrite")
"""Whether files are replaced here. On Windows, zarr's store does it: a file that is open elsewhere
cannot be replaced at once there, and the store tries again."""
# Errors of opening a symbolic link (EMLINK on FreeBSD), or a file that must not be written.
NOT_WRITABLE_ERRNOS: Final = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EPERM)

# Windows has only `link`. Where one of the three is missing, chunks are replaced, as zarr does.
CAN_WRITE_IN_PLACE: Final = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
# Errors of linking on a file system without links.
_HAS_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

NewFileWriter: TypeAlias = "Callable[[int], int]"
"""Writes all of a new file, given its descriptor; returns the number of written bytes."""

# Gives a complete file its name: from the temporary path, to the path of the chunk.
_Publish: TypeAlias = "Callable[[str, str], None]"

_NOT_MADE: Final = "the chunk has not been made"
_ATTEMPTS: Final = 100  # to open or make the chunk while other processes replace or delete it


class _PathChangedError(Exception):
    """Another process has put another file at the path, or deleted it: open the chunk again."""


class _NoLinksError(Exception):
    """The file system has no hard links."""


class FileUpdate(Protocol):
    """New elements for a selection of a chunk or a shard, for `write_file`.

    The methods are called in the thread of the write, under the lock of the file if there is one.
    """

    replaces_all: bool
    """Whether nothing of an existing file is kept, so that it is not read."""

    def ranges_in_file(self, file: ChunkFile) -> RangeUpdate | None:
        """The ranges to overwrite in an open file; None if the file must be replaced."""

    def writer_unless_empty(
        self, file: ChunkFile | None, *, is_dense: bool
    ) -> NewFileWriter | None:
        """The function that writes the new file; None if the chunk is empty, and is not stored.

        `file` is the old one, from which the function may read; None if it is missing or not
        needed. A new shard that `is_dense` has all inner chunks.
        """


def write_file(path: str, root: str, update: FileUpdate, *, in_place: bool) -> int:
    """Write to the file of a chunk, or replace or delete it; waits for its lock.

    Parameters
    ----------
    path, root
        Of the file, and of its store.
    update
        The new elements.
    in_place
        Whether only the selected bytes are written where that is possible, under a lock. No other
        writer in place loses anything then, if the file system has locks.

    Returns
    -------
    int
        The number of written bytes; 0 if the chunk is empty and has been deleted, or not made.

    Raises
    ------
    OSError
        Of the system, with the chunk, and what has been written of it.
    ChunkFileError
        If something other than a regular file is at `path`.
    WorkCancelledError
        If the write is cancelled while it waits for a lock; nothing has been written.
    """
    if not in_place or not CAN_WRITE_IN_PLACE:
        file = None if update.replaces_all else open_chunk_file(path, root)
        counters.count(root, opens=int(file is not None))
        with file or nullcontext():
            return _replace(path, update, file, _publish_by_rename, is_dense=in_place)
    is_shared = not update.replaces_all
    for _ in range(_ATTEMPTS):
        with suppress(_PathChangedError):
            written = _try_write_locked(path, root, update, is_shared=is_shared)
            if written is not None:
                return written
            is_shared = False
    raise OSError(
        errno.EBUSY,
        f"{os.strerror(errno.EBUSY)}: the chunk was opened {_ATTEMPTS} times, and each time another"
        " file had taken its place: another process keeps replacing it, or this file system does"
        " not identify files; nothing has been written",
        path,
    )


def create_file(path: str, write: NewFileWriter) -> bool:
    """Make a file at `path` by `write`, if there is none; whether it has been made.

    A file that another process makes meanwhile stays. An OSError if the system or the file system
    has no hard links, and a ChunkFileError if something else than a file is at `path`.
    """
    if not CAN_WRITE_IN_PLACE:
        raise OSError(
            errno.ENOSYS,
            "this system has no hard links, so that chunks are replaced and cannot be shared: let"
            " one process write each chunk, without `preallocate`",
            path,
        )
    if _check_kind(path):
        return False
    try:
        _make_file(path, write, partial(_publish_by_link, renames=False), _NOT_MADE)
    except _PathChangedError:
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


def _try_write_locked(path: str, root: str, update: FileUpdate, *, is_shared: bool) -> int | None:
    """One attempt of `write_file` in place; None if it needs the exclusive lock instead.

    A _PathChangedError if another process has changed the path meanwhile; nothing is written then.
    """
    try:
        descriptor, may_write_in_place = _open_for_writing(path, is_shared=is_shared)
    except PermissionError:
        if not update.replaces_all:
            raise
        return _replace(path, update, None, _publish_by_rename)  # nobody else can read it either
    if descriptor is None and may_write_in_place:  # another process may make one first
        return _replace(path, update, None, _publish_by_link)
    is_shared = is_shared and may_write_in_place
    is_missing = descriptor is None
    if descriptor is None:  # a symbolic link to nothing: its folder is locked
        descriptor = os.open(os.path.dirname(path), READ_FLAGS)  # noqa: PTH120
    with ChunkFile(descriptor, path, root) as file:
        known_stores.record_file_system(descriptor, root)
        lock_if_supported(descriptor, path, root, is_shared=is_shared)
        try:
            if is_missing:
                if os.path.exists(path) or not os.path.islink(path):  # noqa: PTH110, PTH114
                    raise _PathChangedError
                return _replace(path, update, None, os.replace)
            return _update(
                file, root, update, may_write_in_place=may_write_in_place, is_shared=is_shared
            )
        finally:
            unlock(descriptor)


def _update(
    file: ChunkFile, root: str, update: FileUpdate, *, may_write_in_place: bool, is_shared: bool
) -> int | None:
    """Write into a locked file, or replace it; None if it must be replaced and `is_shared`.

    A _PathChangedError if `path` leads to another file by now.
    """
    path = file.path
    status = os.fstat(file.descriptor)
    if not stat.S_ISREG(status.st_mode):  # writing to a FIFO or a device might never end
        raise not_a_file_error(path, status.st_mode)
    # Not by its number of names: some file systems give 0 for every file.
    if not is_same_file(path, status, follow_symlinks=not may_write_in_place):
        raise _PathChangedError
    if (
        may_write_in_place
        and not update.replaces_all
        and not must_be_replaced(file.descriptor, status, path)
    ):
        written = _overwrite(file, update, status.st_size)
        if written is not None:
            return written
    if is_shared:
        return None
    counters.count(root, opens=int(not update.replaces_all))
    return _replace(path, update, file, os.replace)


class _OpenedForWriting(NamedTuple):
    """An open file of a chunk, which the caller closes."""

    descriptor: int | None
    """None if the file is missing."""
    may_write_in_place: bool
    """False if `path` is a symbolic link, or there is no permission to write."""


def _open_for_writing(path: str, *, is_shared: bool) -> _OpenedForWriting:
    """Open the file at `path` without a lock; for reading, where it must not be written.

    On a file system that is mounted read-only, an error if the lock `is_shared`.
    """
    for flags in WRITE_FLAGS, WRITE_FLAGS & ~os.O_NOFOLLOW:
        try:
            return _OpenedForWriting(open_descriptor(path, flags), flags == WRITE_FLAGS)
        except OSError as error:
            if error.errno not in NOT_WRITABLE_ERRNOS and (is_shared or error.errno != errno.EROFS):
                raise
    return _OpenedForWriting(open_descriptor(path), may_write_in_place=False)


def _overwrite(file: ChunkFile, update: FileUpdate, size: int) -> int | None:
    """Write the ranges of an update into a locked file of `size` bytes; the number of bytes.

    None if the update says that the file must be replaced. An error if the size has changed after
    the writing: somebody without a lock has cut the file.
    """
    range_update = update.ranges_in_file(file)
    if range_update is None:
        return None
    ranges, data = range_update
    try:
        write_ranges(file.descriptor, ranges, data, size)
    except PartlyWrittenError as error:
        outcome = f"{error.written} bytes of the selection have been written"
        raise _error_naming_chunk(error, file.path, outcome) from error.__cause__
    size_now = os.fstat(file.descriptor).st_size
    if size_now != size:
        raise wrong_size_error(file.path, 0, size, size_now)
    return ranges.nbytes


def _replace(
    path: str,
    update: FileUpdate,
    file: ChunkFile | None,
    publish: _Publish,
    *,
    is_dense: bool = True,
) -> int:
    """Put a new file at `path`, or delete the file there; the number of written bytes.

    `file` is the open old one, None if it is missing or not needed. By `_publish_by_link` a chunk
    was missing, so that nothing is deleted, and a _PathChangedError says that it is there now.
    """
    was_missing = publish is _publish_by_link
    write = update.writer_unless_empty(file, is_dense=is_dense)
    if write is not None:
        has_other_elements = was_missing and not update.replaces_all
        outcome = _NOT_MADE if has_other_elements else "the chunk has not been replaced"
        return _make_file(path, write, publish, outcome)
    if not was_missing:
        try:
            _check_kind(path)
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)  # noqa: PTH108 -- a string, as everywhere here
        except OSError as error:
            raise _error_naming_chunk(error, path, "the chunk has not been deleted") from None
    return 0


def _make_file(path: str, write: NewFileWriter, publish: _Publish, outcome: str) -> int:
    """Make a file beside `path` by `write`, and `publish` it; the number of written bytes.

    After an error no temporary file is left; `outcome`, for its message, is the state of the chunk.
    """
    temporary = f"{path}.{os.urandom(16).hex()}{TEMPORARY_SUFFIX}"
    held: list[int] = []  # the descriptor, which an interrupt does not lose
    try:
        try:
            try:
                _make_with_folders_into(held, temporary)
                written = write(held[0])
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


def _publish_by_link(temporary: str, path: str, *, renames: bool = True) -> None:
    """Give a complete file its name by a hard link; a _PathChangedError if a file has it already.

    On a file system without hard links, the file is renamed, or a _NoLinksError without `renames`.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _PathChangedError from None
    except OSError as error:
        if error.errno not in _HAS_NO_LINKS:
            raise
        if not renames:
            raise _NoLinksError from None
        _publish_by_rename(temporary, path)
    else:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108


def _make_with_folders_into(held: list[int], temporary: str) -> None:
    """Make and open a file, and its folders if they are missing, as `open_descriptor_into`."""
    flags = WRITE_FLAGS | os.O_CREAT | os.O_EXCL
    try:
        held.extend(map(os.open, (temporary,), (flags,), (0o666,)))
    except FileNotFoundError:
        Path(temporary).parent.mkdir(parents=True, exist_ok=True)
        held.extend(map(os.open, (temporary,), (flags,), (0o666,)))


def _publish_by_rename(temporary: str, path: str) -> None:
    """Rename a complete file, over another file if there is one."""
    _check_kind(path)
    os.replace(temporary, path)  # noqa: PTH105


def _check_kind(path: str) -> bool:
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
    """Error of the system that names the chunk and its state, the `outcome` of the write.

    It names the folder instead, where that is not writable.
    """
    number = error.errno or errno.EIO
    if isinstance(error, PartlyWrittenError):
        outcome = f"byte {error.offset} of the chunk could not be written; {outcome}"
    elif number in (errno.EACCES, errno.EROFS):  # EPERM: what is at `path` is protected
        folder = os.path.dirname(error.filename or path)  # noqa: PTH120
        outcome += f"; to write {os.path.relpath(path, folder)!r}, make this folder writable"
        path = folder
    return OSError(number, f"{os.strerror(number)}: {outcome}", path)


def must_be_replaced(descriptor: int, status: os.stat_result, path: str) -> bool:
    """Whether a file must be replaced, and not changed: it has other names, or is read-only.

    Parameters
    ----------
    descriptor, path
        Of the open file.
    status
        That of the file after it was opened.
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
    """Whether the file at `path` is the one with this status; False if it is missing."""
    try:  # `DirEntry.inode()` is another number on overlay file systems
        found = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116
        return os.path.samestat(found, status)
    except (FileNotFoundError, NotADirectoryError):
        return False
