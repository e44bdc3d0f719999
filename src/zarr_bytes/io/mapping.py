"""The file of a chunk mapped into memory, for NumPy views of the chunk.

Nothing else in this package reads through a mapping: truncating a mapped file ends the process
(SIGBUS). A mapping lives as long as any array over it.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

import numpy as np

from zarr_bytes.errors import ChunkFileError, wrong_size_error
from zarr_bytes.io import counters
from zarr_bytes.io.file_writing import NOT_WRITABLE_ERRNOS, is_hard_linked_or_read_only
from zarr_bytes.io.files import (
    READ_FLAGS,
    WRITE_FLAGS,
    closing_descriptor,
    not_a_file_error,
    open_descriptor_if_exists,
    open_descriptor_into_if_exists,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from zarr_bytes.layout.elements import Array, Bytes

_Identity: TypeAlias = "tuple[int, int]"  # device and inode

# Without this option, each mapping keeps a file descriptor. Goes when Python 3.13 is required.
_OPTIONS: Final[dict[str, Any]] = (
    {"trackfd": False} if sys.version_info >= (3, 13) and sys.platform != "win32" else {}
)


class MappedFile(mmap.mmap):
    """A mapping of the file of a chunk, with the identity of the file."""

    identity: _Identity


def chain_of_bases(array: Array) -> Iterator[object]:
    """The array, its base, the base of its base, and so on.

    The last object owns the memory: an array, a mapping, `bytes`, or an object of another library.
    """
    owner: object = array
    while owner is not None:
        yield owner
        # Objects of other classes may have a base, too: NumPy's `as_strided` inserts one.
        owner = getattr(owner, "obj" if isinstance(owner, memoryview) else "base", None)


def copy_if_maybe_mapped(
    array: Array, paths: Iterable[str], *, array_is_out: bool = False
) -> Array:
    """The array, or a copy if it may share memory with a file at one of `paths`.

    Parameters
    ----------
    array
        The values to write into the files, or the array to read into.
    paths
        Paths of the files; looked at only if `array` is known to map a file.
    array_is_out
        Whether the files are read into `array`. Memory of unknown origin isn't copied then.
    """
    for owner in chain_of_bases(array):
        identity = owner.identity if isinstance(owner, MappedFile) else None
        if isinstance(owner, np.memmap) and owner.filename is not None:
            identity = _identity_if_exists(owner.filename)
        if identity is not None:
            return array.copy() if identity in map(_identity_if_exists, paths) else array
    # Other memory may belong to a file, too: a mapping without a name, a capsule. An array to read
    # into is assumed to be shared memory, which a copy would double.
    owns_memory = isinstance(owner, np.ndarray) and owner.flags.owndata
    if array_is_out or owns_memory or isinstance(owner, bytes | bytearray):
        return array
    return array.copy()


def _identity_if_exists(path: str | Path) -> _Identity | None:
    """Identity of the file at `path`; None if it is missing or can't be looked at."""
    with suppress(OSError):
        status = os.stat(path)  # noqa: PTH116 -- a string, as everywhere here
        return status.st_dev, status.st_ino
    return None


class WritableMappings:
    """The mappings through which a view changes files; `sync` writes the changes to the disk.

    Each `sync` includes a file as long as one of its mappings is left, and once after that. Any
    thread may call the methods: each takes `counters.lock`.
    """

    def __init__(self) -> None:
        # Mappings by the path and the identity of their file. After `accept_any_files_at_paths`,
        # the identity is None: any file at the path is synced.
        self._mappings: dict[tuple[str, _Identity | None], WeakSet[MappedFile]] = {}

    def add(self, path: str, mapping: MappedFile) -> None:
        """Keep the mapping of a file, by the path and the identity of the file."""
        with counters.lock:
            self._mappings.setdefault((path, mapping.identity), WeakSet()).add(mapping)

    def accept_any_files_at_paths(self) -> None:
        """Let `sync` accept any files at the paths, including replaced files."""
        with counters.lock:
            accepted: dict[tuple[str, _Identity | None], WeakSet[MappedFile]] = {}
            for (path, _), mappings in self._mappings.items():
                accepted.setdefault((path, None), WeakSet()).update(mappings)
            self._mappings = accepted

    def sync(self) -> None:
        """Wait until the changes of all files are on disk.

        A ChunkFileError, after all files have been synced, if a file was replaced or deleted after
        it had been mapped.
        """
        lost = []
        for path, identity in sorted([*self._mappings], key=itemgetter(0)):
            synced = _sync_file_if_exists(path)
            with counters.lock:  # threads may call the other methods
                if identity not in (None, synced):
                    lost.append(f"{path} was {'replaced' if synced else 'deleted'}")
                elif not self._mappings.get((path, identity)):  # no mapping is left
                    self._mappings.pop((path, identity), None)
        if lost:
            others = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise ChunkFileError(
                f"{lost[0]}{others} after the view had mapped it, so changes since then are lost:"
                " call `refresh()`, and write them again"
            )


def _sync_file_if_exists(path: str) -> _Identity | None:
    """Wait until the file at `path` is on disk; return its identity, or None if it is missing."""
    descriptor = open_descriptor_if_exists(path)
    if descriptor is None:
        return None
    with closing_descriptor(descriptor):
        os.fsync(descriptor)
        status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def map_read_only_if_exists(path: str, expected_nbytes_if_known: int | None) -> Bytes | None:
    """The bytes of the file at `path`, mapped instead of read; None if it is missing.

    Parameters
    ----------
    path
        Path of the file of a chunk.
    expected_nbytes_if_known
        Required size of the file; None for a shard, which is mapped with any size.

    Raises
    ------
    ChunkFileError
        If the file is not a regular one.
    ChunkSizeError
        If the file has another size.
    """
    mapping = _map_file_if_exists(path, expected_nbytes_if_known, is_writable=False)
    return None if mapping is None else np.frombuffer(mapping, np.uint8)


def map_writable_if_exists(
    path: str, expected_nbytes_if_known: int | None, writable_mappings: WritableMappings
) -> Bytes | None:
    """Like `map_read_only_if_exists`, but changes of the bytes change the file.

    Parameters
    ----------
    path, expected_nbytes_if_known
        As in `map_read_only_if_exists`.
    writable_mappings
        Gets the mapping, to sync its file after changes.

    Raises
    ------
    ChunkFileError
        If the file isn't a regular file, or must be replaced rather than changed.
    ChunkSizeError
        If the file has another size.
    """
    mapping = _map_file_if_exists(path, expected_nbytes_if_known, is_writable=True)
    if isinstance(mapping, MappedFile):
        writable_mappings.add(path, mapping)
    return None if mapping is None else np.frombuffer(mapping, np.uint8)


def _map_file_if_exists(
    path: str, expected_nbytes_if_known: int | None, *, is_writable: bool
) -> MappedFile | bytes | None:
    """Map the file at `path`, with the errors of the two functions that call this one.

    None if the file is missing; no bytes if it is empty, since systems don't map empty files.
    """
    held: list[int] = []
    try:
        try:
            open_descriptor_into_if_exists(held, path, WRITE_FLAGS if is_writable else READ_FLAGS)
        except OSError as error:
            if not is_writable or error.errno not in NOT_WRITABLE_ERRNOS:
                raise
            raise _not_writable_error(path) from error
        if not held:
            return None
        descriptor = held[0]
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_a_file_error(path, status.st_mode)
        if expected_nbytes_if_known is not None and status.st_size != expected_nbytes_if_known:
            raise wrong_size_error(path, 0, expected_nbytes_if_known, status.st_size)
        if is_writable and is_hard_linked_or_read_only(descriptor, status, path):
            raise _not_writable_error(path)
        if not status.st_size:
            return b""
        access = mmap.ACCESS_WRITE if is_writable else mmap.ACCESS_READ
        mapping = MappedFile(descriptor, status.st_size, access=access, **_OPTIONS)
        mapping.identity = status.st_dev, status.st_ino
        return mapping
    finally:
        for descriptor in held:
            os.close(descriptor)


def _not_writable_error(path: str) -> ChunkFileError:
    """Error for a file that can't be changed: a link, or `is_hard_linked_or_read_only`."""
    return ChunkFileError(
        f"{path} is a symbolic link, has other names or must not be written to, and is not changed"
        ' in place: open the view with mode="r", or write through zarr (`array[...] = ...`), which'
        " replaces the file"
    )
