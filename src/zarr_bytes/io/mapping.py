"""The file of a chunk mapped into memory, for NumPy views of it.

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
from zarr_bytes.io.file_writing import NOT_WRITABLE_ERRNOS, must_be_replaced
from zarr_bytes.io.files import (
    READ_FLAGS,
    WRITE_FLAGS,
    closing_descriptor,
    not_a_file_error,
    open_descriptor,
    open_descriptor_into,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from zarr_bytes.layout.elements import Array, Bytes

_Identity: TypeAlias = "tuple[int, int]"  # device and inode

# Otherwise each mapping keeps a file descriptor. Goes when Python 3.13 is required.
_OPTIONS: Final[dict[str, Any]] = (
    {"trackfd": False} if sys.version_info >= (3, 13) and sys.platform != "win32" else {}
)


class Mapping(mmap.mmap):
    """A mapping that knows its file."""

    identity: _Identity


def chain_of_bases(array: Array) -> Iterator[object]:
    """The array, what it is a view of, and so on: at last an array of NumPy's own, or a mapping."""
    owner: object = array
    while owner is not None:
        yield owner
        # The base of an object of another library, too, as NumPy's `as_strided` puts one between.
        owner = getattr(owner, "obj" if isinstance(owner, memoryview) else "base", None)


def copied_if_mapped(array: Array, paths: Iterable[str], *, is_read: bool = False) -> Array:
    """The array, or a copy where it may map a file at one of `paths`, which are changed or read."""
    for owner in chain_of_bases(array):
        identity = owner.identity if isinstance(owner, Mapping) else None
        if isinstance(owner, np.memmap) and owner.filename is not None:
            identity = _identity_at(owner.filename)
        if identity is not None:
            return array.copy() if identity in map(_identity_at, paths) else array
    # Of any other memory nobody says whether it is a file's: a mapping without a name, a capsule.
    # What is read into is taken for shared memory, which a copy would double.
    is_own = is_read or (isinstance(owner, np.ndarray) and owner.flags.owndata)
    return array if is_own or isinstance(owner, bytes | bytearray) else array.copy()


def _identity_at(path: str | Path) -> _Identity | None:
    """Identity of the file at `path`; None if there is none."""
    with suppress(OSError):
        status = os.stat(path)  # noqa: PTH116 -- a string, as everywhere here
        return status.st_dev, status.st_ino
    return None


class ChangedFiles:
    """The files that were mapped to be changed, until they are synced and not mapped any more."""

    def __init__(self) -> None:
        # By path and identity, which is None where a replaced file is known to be one.
        self._files: dict[tuple[str, _Identity | None], WeakSet[Mapping]] = {}

    def add(self, path: str, mapping: Mapping) -> None:
        """Keep the identity of a file that has been mapped."""
        with counters.lock:
            self._files.setdefault((path, mapping.identity), WeakSet()).add(mapping)

    def accept_replaced_files(self) -> None:
        """Take the files that are now at the paths for those that were mapped."""
        with counters.lock:
            files, self._files = self._files, {}
            for (path, _), mappings in files.items():
                self._files.setdefault((path, None), WeakSet()).update(mappings)

    def sync(self) -> None:
        """Wait until the files are on the disk."""
        lost = []
        for path, identity in sorted([*self._files], key=itemgetter(0)):
            found = _synced(path)
            with counters.lock:  # threads may call the other methods
                if identity not in (None, found):
                    lost.append(f"{path} was {'replaced' if found else 'deleted'}")
                elif not self._files.get((path, identity)):
                    self._files.pop((path, identity), None)
        if lost:
            others = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise ChunkFileError(
                f"{lost[0]}{others} after the view had mapped it, so that changes since then are"
                " lost: call `refresh()`, and write them again"
            )


def _synced(path: str) -> _Identity | None:
    """Identity of the file at `path`, which is on the disk then; None if there is none."""
    file = open_descriptor(path)
    if file is None:
        return None
    with closing_descriptor(file):
        os.fsync(file)
        status = os.fstat(file)
    return status.st_dev, status.st_ino


def map_file(path: str, nbytes: int | None, changed: ChangedFiles | None) -> Bytes | None:
    """The bytes of the file at `path`, mapped instead of read; None if it is missing."""
    writes = changed is not None
    held: list[int] = []
    try:
        try:
            open_descriptor_into(held, path, WRITE_FLAGS if writes else READ_FLAGS)
        except OSError as error:
            if not writes or error.errno not in NOT_WRITABLE_ERRNOS:
                raise
            raise _not_writable_error(path) from error
        if not held:
            return None
        descriptor = held[0]
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_a_file_error(path, status.st_mode)
        if nbytes is not None and status.st_size != nbytes:
            raise wrong_size_error(path, 0, nbytes, status.st_size)
        if writes and must_be_replaced(descriptor, status, path):
            raise _not_writable_error(path)
        if not status.st_size:  # no system maps an empty file
            return np.empty(0, np.uint8)
        access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
        mapping = Mapping(descriptor, status.st_size, access=access, **_OPTIONS)
        mapping.identity = status.st_dev, status.st_ino
    finally:
        for descriptor in held:
            os.close(descriptor)
    if changed is not None:
        changed.add(path, mapping)
    return np.frombuffer(mapping, np.uint8)


def _not_writable_error(path: str) -> ChunkFileError:
    return ChunkFileError(
        f"{path} is a symbolic link, has other names or must not be written to, and is not changed"
        ' in place: open the view with mode="r", or write through zarr (`array[...] = ...`), which'
        " replaces the file"
    )
