"""Writing a chunk that is a file: byte ranges in place through one open file, or a new file.

A new file is made under a temporary name, so that it appears at once and complete. Nothing is
synchronised to the disk, as with zarr.

A missing chunk is made complete under a temporary name, which is then linked to its own. So it
appears at once, and a second writer at the same moment writes into it. `locks` says why no write
is lost.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from zarr_bytes import limits
from zarr_bytes.errors import wrong_size
from zarr_bytes.io import counters
from zarr_bytes.io.files import (
    READABLE,
    TEMPORARY,
    WRITABLE,
    ChunkFile,
    closing,
    is_temporary,
    no_file,
    open_chunk,
    opened,
)
from zarr_bytes.io.known_stores import note_location
from zarr_bytes.io.locks import lock, unlock
from zarr_bytes.io.range_writing import StoppedError, write_all, write_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from zarr_bytes.indexing.plan import ByteRanges
    from zarr_bytes.layout.elements import Bytes

CAN_REPLACE: Final = hasattr(os, "pwrite")
"""Whether files are replaced here. On Windows, zarr's store does it: a file that is open elsewhere
cannot be replaced at once there, and the store tries again."""
# Errors of opening a symbolic link (EMLINK on FreeBSD), or a file that must not be written.
IS_REPLACED: Final = (errno.ELOOP, errno.EMLINK, errno.EACCES, errno.EPERM)
T = TypeVar("T")

# Windows has only `link`. Where one of the three is missing, chunks are replaced, as zarr does.
_IS_POSSIBLE: Final = all(hasattr(os, name) for name in ("pwrite", "link", "O_NOFOLLOW"))
# Errors of linking on a file system without links.
_HAS_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

_ATTEMPTS: Final = 100  # to open or make the chunk while other processes replace or delete it


class _TakenError(Exception):
    """Another file has taken the place of the chunk's file, and has to be opened."""


class NewObject(NamedTuple):
    """A chunk or a shard of fill values: their bytes, and the index before or after them."""

    nbytes: int  # of the elements
    fill: bytes  # one element, as it is stored
    before: bytes = b""
    after: bytes = b""

    @property
    def size(self) -> int:
        """Size of the file, in bytes."""
        return len(self.before) + self.nbytes + len(self.after)


class Edit(Protocol):
    """New elements for a selection of a chunk or a shard, for `write_file`."""

    keeps_nothing: bool  # of what is stored
    is_in_place: bool  # whether parts of a file can be overwritten

    def in_new(self) -> tuple[NewObject, ByteRanges, Bytes] | None:
        """A new object, the ranges in it, and their bytes one after another; None if not stored."""

    def in_file(self, file: ChunkFile) -> tuple[ByteRanges, Bytes] | None:
        """The ranges in an open file; None if it has to be replaced.

        A ChunkSizeError or a ShardIndexError if the file does not fit the metadata.
        """

    def rebuilt(
        self, file: ChunkFile | None, *, is_dense: bool
    ) -> Iterator[tuple[int, Bytes]] | None:
        """Offsets and bytes of a new file; None if it is not stored.

        A dense shard has all inner chunks.
        """


def write_file(path: str, root: str, edit: Edit, *, in_place: bool) -> int:
    """Write to the file at `path`, `in_place` where that is possible; the number of written bytes.

    With `in_place`, nobody else who writes so loses anything: the file is locked where its file
    system has locks. It is replaced by another one if it has other names, is a symbolic link, must
    not be written, lacks an inner chunk, or has bytes of two of them.
    """
    if not in_place or not _IS_POSSIBLE:
        file = None if edit.keeps_nothing else open_chunk(path, root, waits=True)
        with file or nullcontext():
            return _replace(path, edit, file, is_dense=in_place and not edit.keeps_nothing)
    is_shared = edit.is_in_place
    for _ in range(_ATTEMPTS):
        with suppress(_TakenError):
            written = _written(path, root, edit, is_shared=is_shared)
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


def create_file(path: str, new: NewObject) -> bool:
    """Make a chunk of fill values at `path`, if there is none; whether it has been made."""
    if not _IS_POSSIBLE:
        raise OSError(errno.ENOSYS, "this system lacks what making a chunk at once takes", path)
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode  # noqa: PTH116 -- a string, as everywhere here
        if not stat.S_ISREG(mode):
            raise no_file(path, mode)
        return False
    outcome = "the chunk has not been made"
    is_made = _make_file(path, lambda file: _fill(file, new), _link, outcome)
    if is_made is False:
        raise OSError(errno.ENOTSUP, f"this file system has no links; {outcome}", path)
    return bool(is_made)


def _written(path: str, root: str, edit: Edit, *, is_shared: bool) -> int | None:
    """`write_file` where a file is there; None where it takes the exclusive lock."""
    try:
        descriptor = opened(path, WRITABLE)
    except OSError as error:
        if error.errno not in IS_REPLACED and (is_shared or error.errno != errno.EROFS):
            raise
        return None if is_shared else _replace_other(path, root, edit)
    if descriptor is None:
        return _make(path, edit)
    return _update(descriptor, path, root, edit, is_shared=is_shared, is_own=True)


def _update(
    descriptor: int, path: str, root: str, edit: Edit, *, is_shared: bool, is_own: bool
) -> int | None:
    """`_written` to an open file: that of the chunk alone, or one that another name leads to."""
    with ChunkFile(descriptor, path, root) as file:
        note_location(descriptor, root)
        lock(descriptor, path, root, is_shared=is_shared)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):  # writing to a FIFO or a device might never end
                raise no_file(path, status.st_mode)
            if not is_at(path, status, follows=not is_own):
                raise _TakenError
            # Not by its number of names: some file systems give 0 for every file.
            if is_own and edit.is_in_place and not is_replaced(descriptor, status, path):
                written = _overwrite(file, edit, status.st_size)
                if written is not None:
                    return written
            if is_shared:
                return None
            if counters.counters and not edit.keeps_nothing:
                counters.note(root, opens=1)
            return _replace(path, edit, file, is_dense=not edit.keeps_nothing)
        finally:
            unlock(descriptor)


def _overwrite(file: ChunkFile, edit: Edit, size: int) -> int | None:
    found = edit.in_file(file)
    if found is None:
        return None
    ranges, data = found
    try:
        write_ranges(file.descriptor, ranges, data, size)
    except StoppedError as error:
        outcome = f"{error.written} bytes of the selection have been written"
        raise _failed(error, file.path, outcome) from error.__cause__
    size_now = os.fstat(file.descriptor).st_size
    if size_now != size:
        raise wrong_size(file.path, 0, size, size_now)
    return ranges.nbytes


def _replace(path: str, edit: Edit, file: ChunkFile | None, *, is_dense: bool) -> int:
    parts = edit.rebuilt(file, is_dense=is_dense)
    if parts is not None:
        return _replace_file(path, parts)
    with _named_errors(path, "the chunk has not been deleted"):
        _check_is_replaceable(path)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)  # noqa: PTH108 -- a string, as everywhere here
    return 0


def _replace_other(path: str, root: str, edit: Edit) -> int | None:
    """Replace a symbolic link, or a file that must not be written."""
    try:
        try:
            descriptor = opened(path, WRITABLE & ~os.O_NOFOLLOW)
        except OSError as error:
            if error.errno not in (*IS_REPLACED, errno.EROFS):
                raise
            descriptor = opened(path)
    except PermissionError:
        if not edit.keeps_nothing:
            raise
        return _replace(path, edit, None, is_dense=False)  # nobody else can read it either
    if descriptor is not None:
        return _update(descriptor, path, root, edit, is_shared=False, is_own=False)
    with closing(os.open(os.path.dirname(path), READABLE)) as folder:  # noqa: PTH120
        lock(folder, path, root, is_shared=False)
        try:
            if os.path.exists(path) or not os.path.islink(path):  # noqa: PTH110, PTH114
                raise _TakenError
            return _replace(path, edit, None, is_dense=not edit.keeps_nothing)
        finally:
            unlock(folder)


def _make(path: str, edit: Edit) -> int:
    """`write_file` where none is: another process may make one first."""
    if not edit.is_in_place:
        parts = edit.rebuilt(None, is_dense=not edit.keeps_nothing)
        return 0 if parts is None else _replace_file(path, parts, _publish)
    found = edit.in_new()
    if found is None:
        return 0
    new, ranges, data = found

    def write(file: int) -> None:
        _fill(file, new)
        write_ranges(file, ranges, data, new.size)

    _make_file(path, write, _publish, "the chunk has not been made")
    return new.size


def _publish(temporary: str, path: str) -> None:
    """Give a new file its name, which none may have, where the file system has links."""
    is_made = _link(temporary, path)
    if is_made is None:
        raise _TakenError
    if not is_made:
        _rename(temporary, path)


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


def _fill(file: int, new: NewObject) -> None:
    """Make the open file a chunk of fill values; zeros take no space on the disk."""
    try:
        os.truncate(file, new.size)
    except OSError as error:
        raise StoppedError(0, 0) from error
    begin = len(new.before)
    if any(new.fill):
        count = min(max(limits.LIMITS.block // len(new.fill), 1), new.nbytes // len(new.fill))
        block = memoryview(new.fill * count)
        for start in range(0, new.nbytes, len(block)):
            write_all(file, block[: new.nbytes - start], begin + start, 0)
    write_all(file, memoryview(new.before), 0, 0)
    write_all(file, memoryview(new.after), begin + new.nbytes, 0)


def _make_file(
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


def _replace_file(
    path: str,
    parts: Iterable[tuple[int, Bytes]],
    publish: Callable[[str, str], None] | None = None,
) -> int:
    """Make the file at `path` anew, of bytes at offsets; their number. `publish` as above.

    A ChunkFileError if something other than a file is at `path`. After an OSError, the file at
    `path` is unchanged.
    """
    done = 0

    def write(file: int) -> None:
        nonlocal done
        for start, data in parts:
            write_all(file, memoryview(data), start, start)
            done += data.size

    _make_file(path, write, publish or _rename, "the chunk has not been replaced")
    return done


def _failed(error: StoppedError, path: str, outcome: str) -> OSError:
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


def _rename(temporary: str, path: str) -> None:
    """Rename the complete file `temporary` to `path`, for `_make_file`."""
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
        raise _failed(error, path, outcome) from error.__cause__
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
    if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        return True
    if status.st_nlink <= 1:
        return False
    # Between linking and the deletion of its temporary name, a new chunk has both.
    folder, name = os.path.split(path)
    with os.scandir(folder) as entries:
        temporary = sum(
            is_temporary(entry.name, name) and is_at(entry.path, status) for entry in entries
        )
    return status.st_nlink - temporary > 1 and os.fstat(file).st_nlink > 1


def is_at(path: str, status: os.stat_result, *, follows: bool = False) -> bool:
    """Whether the file at `path`, or where a link at `path` leads, is the file with this status."""
    try:  # `DirEntry.inode()` is another number on overlay file systems
        return os.path.samestat(os.stat(path) if follows else os.lstat(path), status)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
