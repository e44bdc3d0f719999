"""Writing a chunk that is a file: byte ranges in place through one open file, or a new file.

A new file is made under a temporary name, so that it appears at once and complete: it is renamed,
or linked where the chunk was missing, so that a second writer at the same moment writes into it.
Nothing is synchronised to the disk, as with zarr. `locks` says why no write is lost.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from zarr_bytes.errors import ChunkFileError, wrong_size_error
from zarr_bytes.io import counters
from zarr_bytes.io.files import (
    READ_FLAGS,
    TEMPORARY_SUFFIX,
    WRITE_FLAGS,
    ChunkFile,
    is_temporary,
    not_a_file_error,
    open_chunk,
    open_descriptor,
)
from zarr_bytes.io.known_stores import record_file_system
from zarr_bytes.io.locks import lock_if_supported, unlock
from zarr_bytes.io.range_writing import PartlyWrittenError, write_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr_bytes.indexing.plan import ByteRanges
    from zarr_bytes.layout.elements import Bytes

CAN_WRITE_FILES: Final = hasattr(os, "pwrite")
"""Whether files are replaced here. On Windows, zarr's store does it: a file that is open elsewhere
cannot be replaced at once there, and the store tries again."""
# Errors of opening a symbolic link (EMLINK on FreeBSD), or a file that must not be written.
NOT_WRITABLE_ERRNOS: Final = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EPERM)

# Windows has only `link`. Where one of the three is missing, chunks are replaced, as zarr does.
CAN_WRITE_IN_PLACE: Final = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
# Errors of linking on a file system without links.
_HAS_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

Publish: TypeAlias = "Callable[[str, str], None]"  # of a complete file, from and to

_NOT_MADE: Final = "the chunk has not been made"
_ATTEMPTS: Final = 100  # to open or make the chunk while other processes replace or delete it


class _TakenError(Exception):
    """Another file has taken the place of the chunk's file, and has to be opened."""


class _NoLinksError(Exception):
    """The file system has no links."""


class FileUpdate(Protocol):
    """New elements for a selection of a chunk or a shard, for `write_file`."""

    replaces_all: bool  # of what is stored

    def ranges_in_file(self, file: ChunkFile) -> tuple[ByteRanges, Bytes] | None:
        """The ranges in an open file, and their bytes; None if it has to be replaced."""

    def writer_of_new_file(
        self, file: ChunkFile | None, *, is_dense: bool
    ) -> Callable[[int], int] | None:
        """The writing of a new file: the number of written bytes. None if it is not stored."""


def write_file(path: str, root: str, update: FileUpdate, *, in_place: bool) -> int:
    """Write to the file at `path`, `in_place` where possible; the number of written bytes."""
    if not in_place or not CAN_WRITE_IN_PLACE:
        file = None if update.replaces_all else open_chunk(path, root, may_block=True)
        counters.count(root, opens=int(file is not None))
        with file or nullcontext():
            return _replace(path, update, file, _publish_by_rename, is_dense=in_place)
    is_shared = not update.replaces_all
    for _ in range(_ATTEMPTS):
        with suppress(_TakenError):
            written = _write_locked(path, root, update, is_shared=is_shared)
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


def create_file(path: str, write: Callable[[int], int]) -> bool:
    """Make a file at `path` by `write`, if there is none; whether it has been made."""
    if not CAN_WRITE_IN_PLACE:
        raise OSError(
            errno.ENOSYS,
            "this system has no hard links, so that chunks are replaced and cannot be shared: let"
            " one process write each chunk, without `preallocate`",
            path,
        )
    if _is_file(path):
        return False
    try:
        _make_file(path, write, partial(_publish_by_link, renames=False), _NOT_MADE)
    except _TakenError:
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


def _write_locked(path: str, root: str, update: FileUpdate, *, is_shared: bool) -> int | None:
    """`write_file` with a lock; None where it takes the exclusive one."""
    try:
        descriptor, is_regular_path = _open_for_writing(path, is_shared=is_shared)
    except PermissionError:
        if not update.replaces_all:
            raise
        return _replace(path, update, None, _publish_by_rename)  # nobody else can read it either
    if descriptor is None and is_regular_path:  # another process may make one first
        return _replace(path, update, None, _publish_by_link)
    is_shared, is_there = is_shared and is_regular_path, descriptor is not None
    if descriptor is None:  # a symbolic link to nothing
        descriptor = os.open(os.path.dirname(path), READ_FLAGS)  # noqa: PTH120
    with ChunkFile(descriptor, path, root) as file:
        record_file_system(descriptor, root)
        lock_if_supported(descriptor, path, root, is_shared=is_shared)
        try:
            if is_there:
                return _update(
                    file, root, update, is_regular_path=is_regular_path, is_shared=is_shared
                )
            if os.path.exists(path) or not os.path.islink(path):  # noqa: PTH110, PTH114
                raise _TakenError
            return _replace(path, update, None, os.replace)
        finally:
            unlock(descriptor)


def _update(
    file: ChunkFile, root: str, update: FileUpdate, *, is_regular_path: bool, is_shared: bool
) -> int | None:
    """Write to a locked file: that of the chunk alone, or one that another name leads to."""
    path, status = file.path, os.fstat(file.descriptor)
    if not stat.S_ISREG(status.st_mode):  # writing to a FIFO or a device might never end
        raise not_a_file_error(path, status.st_mode)
    if not is_same_file(path, status, follows=not is_regular_path):
        raise _TakenError
    # Not by its number of names: some file systems give 0 for every file.
    if (
        is_regular_path
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


def _open_for_writing(path: str, *, is_shared: bool) -> tuple[int | None, bool]:
    """Descriptor of the file at `path`, None if it is missing; and whether it may be written."""
    for flags in WRITE_FLAGS, WRITE_FLAGS & ~os.O_NOFOLLOW:
        try:
            return open_descriptor(path, flags), flags == WRITE_FLAGS
        except OSError as error:
            if error.errno not in NOT_WRITABLE_ERRNOS and (is_shared or error.errno != errno.EROFS):
                raise
    return open_descriptor(path), False


def _overwrite(file: ChunkFile, update: FileUpdate, size: int) -> int | None:
    found = update.ranges_in_file(file)
    if found is None:
        return None
    ranges, data = found
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
    publish: Publish,
    *,
    is_dense: bool = True,
) -> int:
    """Put another file in the place of `file`, or none; `publish` is as of `_make_file`."""
    write, is_new = update.writer_of_new_file(file, is_dense=is_dense), publish is _publish_by_link
    if write is not None:
        is_made = is_new and not update.replaces_all
        outcome = _NOT_MADE if is_made else "the chunk has not been replaced"
        return _make_file(path, write, publish, outcome)
    if not is_new:
        try:
            _is_file(path)
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)  # noqa: PTH108 -- a string, as everywhere here
        except OSError as error:
            raise _error_naming_chunk(error, path, "the chunk has not been deleted") from None
    return 0


def _make_file(path: str, write: Callable[[int], int], publish: Publish, outcome: str) -> int:
    """Make a file beside `path` by `write`, and `publish` it; `outcome` is for errors."""
    temporary, held = f"{path}.{os.urandom(16).hex()}{TEMPORARY_SUFFIX}", list[int]()
    try:
        try:
            try:
                _open_new(held, temporary)
                written = write(held[0])
            finally:
                for file in held:
                    os.close(file)
            publish(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
    except OSError as error:
        raise _error_naming_chunk(error, path, outcome) from error.__cause__
    return written


def _publish_by_link(temporary: str, path: str, *, renames: bool = True) -> None:
    """Give a new file its name, which none may have, where the file system has links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _TakenError from None
    except OSError as error:
        if error.errno not in _HAS_NO_LINKS:
            raise
        if not renames:
            raise _NoLinksError from None
        _publish_by_rename(temporary, path)
    else:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108


def _open_new(held: list[int], temporary: str) -> None:
    """Open a new file, as `open_descriptor_into`."""
    flags = WRITE_FLAGS | os.O_CREAT | os.O_EXCL
    try:
        held.extend(map(os.open, (temporary,), (flags,), (0o666,)))
    except FileNotFoundError:
        Path(temporary).parent.mkdir(parents=True, exist_ok=True)
        held.extend(map(os.open, (temporary,), (flags,), (0o666,)))


def _publish_by_rename(temporary: str, path: str) -> None:
    """Rename the complete file `temporary` to `path`, for `_make_file`."""
    _is_file(path)
    os.replace(temporary, path)  # noqa: PTH105


def _is_file(path: str) -> bool:
    """Whether a file is there; an error for anything else: a FIFO, a socket, a folder."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
    except OSError:  # nothing is there, or a symbolic link to nothing
        return False
    if not stat.S_ISREG(mode):
        raise not_a_file_error(path, mode)
    return True


def _error_naming_chunk(error: OSError, path: str, outcome: str) -> OSError:
    """Error of the system that names the chunk, or the folder where that is not writable."""
    number = error.errno or errno.EIO
    if isinstance(error, PartlyWrittenError):
        outcome = f"byte {error.offset} of the chunk could not be written; {outcome}"
    elif number in (errno.EACCES, errno.EROFS):  # EPERM: what is at `path` is protected
        folder = os.path.dirname(error.filename or path)  # noqa: PTH120
        outcome += f"; to write {os.path.relpath(path, folder)!r}, make this folder writable"
        path = folder
    return OSError(number, f"{os.strerror(number)}: {outcome}", path)


def must_be_replaced(file: int, status: os.stat_result, path: str) -> bool:
    """Whether an open file must be replaced, not written: it has other names, or is read-only."""
    # Root may write to any file, so the mode decides.
    if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        return True
    if status.st_nlink <= 1:
        return False
    # Between linking and the deletion of its temporary name, a new chunk has both.
    folder, name = os.path.split(path)
    with os.scandir(folder) as entries:
        temporary = sum(
            is_temporary(entry.name, name) and is_same_file(entry.path, status) for entry in entries
        )
    return status.st_nlink - temporary > 1 and os.fstat(file).st_nlink > 1


def is_same_file(path: str, status: os.stat_result, *, follows: bool = False) -> bool:
    """Whether the file at `path`, or where a link at `path` leads, is the file with this status."""
    try:  # `DirEntry.inode()` is another number on overlay file systems
        return os.path.samestat(os.stat(path, follow_symlinks=follows), status)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
