"""The file of a chunk mapped into memory, for NumPy views of it.

Nothing else in this package reads through a mapping: truncating a mapped file ends the process
(SIGBUS). A mapping lives as long as any array over it.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zarr_bytes.chunk.new_files import IS_REPLACED, is_replaced
from zarr_bytes.chunk.opening import READABLE, WRITABLE, closing, no_file, opened
from zarr_bytes.errors import ChunkFileError, wrong_size

if TYPE_CHECKING:
    from zarr_bytes.chunk.elements import Bytes

__all__ = ["mapped"]

# Otherwise each mapping keeps a file descriptor. Goes when Python 3.13 is required.
_OPTIONS: Final[dict[str, Any]] = (
    {"trackfd": False} if sys.version_info >= (3, 13) and sys.platform != "win32" else {}
)


def mapped(path: str, nbytes: int | None, *, writes: bool) -> Bytes | None:
    """The bytes of the file at `path`, mapped instead of read; None if it is missing.

    Parameters
    ----------
    path : str
        Of the chunk.
    nbytes : int or None
        Size that the file must have; None for any.
    writes : bool
        Whether a change of the bytes is a change of the file.

    Raises
    ------
    ChunkFileError
        If something other than a file is at `path`; with `writes`, also if the file has another
        name or must not be written to.
    ChunkSizeError
        If the file has another size.
    OSError
        If the system does not open or map it.
    """
    try:
        descriptor = opened(path, WRITABLE if writes else READABLE)
    except OSError as error:
        if not writes or error.errno not in IS_REPLACED:
            raise
        raise _protected(path) from error
    if descriptor is None:
        return None
    with closing(descriptor):
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise no_file(path, status.st_mode)
        if nbytes is not None and status.st_size != nbytes:
            raise wrong_size(path, 0, nbytes, status.st_size)
        if writes and is_replaced(descriptor, status, path):
            raise _protected(path)
        if not status.st_size:  # no system maps an empty file
            return np.empty(0, np.uint8)
        access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
        mapping = mmap.mmap(descriptor, status.st_size, access=access, **_OPTIONS)
    return np.frombuffer(mapping, np.uint8)


def _protected(path: str) -> ChunkFileError:
    return ChunkFileError(
        f"{path} is a symbolic link, has other names or must not be written to, and is not changed"
        ' in place: open the view with mode="r", or write through zarr (`array[...] = ...`), which'
        " replaces the file"
    )
