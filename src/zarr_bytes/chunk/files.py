"""The byte ranges of a chunk that is a file: read into NumPy memory through one open file.

A file that is missing is None, as a chunk that is missing; one that is too short or too long is an
error.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from zarr_bytes.errors import wrong_size

if TYPE_CHECKING:
    from pathlib import Path

    from zarr_bytes.chunk.byte_ranges import Plan
    from zarr_bytes.chunk.elements import Bytes

__all__ = ["read_cached_file", "read_file"]

_SMALL: Final = 2**16  # bytes: copying them takes as long as a fraction of a thread hop
_FEW: Final = 64  # ranges, each a system call
_RETRY_AFTER: Final = 1.0  # seconds
_retry_at: dict[Path, float] = {}  # by root of the store: when to expect cached files again


def read_file(path: Path, plan: Plan) -> Bytes | None:
    """Ranges of a file, read straight into NumPy memory through one open file.

    NumPy asks for huge pages, which `bytes` objects do not get: that is most of what makes this
    faster than `path.read_bytes()`. Writers replace files by renaming, so one open file is one
    version of the chunk. The file is never mapped: truncating it would end the process.

    Returns
    -------
    array of uint8, 1-D, or None
        `plan.nbytes` bytes, or None if there is no such file.

    Raises
    ------
    ChunkSizeError
        If the file has another size than the chunk, or ends early while it is read.
    """
    try:
        file = path.open("rb", buffering=0)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):  # as LocalStore.get
        return None
    with file:
        fetched = np.empty(plan.nbytes, np.uint8)
        memory = memoryview(fetched)
        for start, stop, position in plan.ranges():
            if start:
                file.seek(start)
            done = 0
            while done < stop - start:
                count = file.readinto(memory[position + done : position + stop - start])
                if not count:
                    raise wrong_size(str(path), start, stop, done)
                done += count
        if plan.is_whole_chunk and (size := file.seek(0, os.SEEK_END)) > plan.nbytes:
            raise wrong_size(str(path), 0, plan.nbytes, size)
    return fetched


def read_cached_file(root: Path, key: str, plan: Plan) -> Bytes | None:
    """A few small ranges of the file `key` below `root`, if they need not be waited for.

    For the event loop: a hop to a thread and back takes longer than the read of a cached file. None
    where the file is missing or is not in the page cache, and where the system cannot tell; then
    `read_file` reads it. Opening such a file may wait too, so after a wait was due nothing is tried
    here for a second.
    """
    if (
        not hasattr(os, "RWF_NOWAIT")  # Linux has it
        or plan.nbytes > _SMALL
        or plan.starts.size > _FEW
        or monotonic() < _retry_at.get(root, 0)
    ):
        return None
    fetched = np.empty(plan.nbytes, np.uint8)
    memory = memoryview(fetched)
    try:
        with (root / key).open("rb", buffering=0) as file:
            for start, stop, position in plan.ranges():
                part = memory[position : position + stop - start]
                if os.preadv(file.fileno(), [part], start, os.RWF_NOWAIT) != stop - start:
                    return None
            has_right_size = not plan.is_whole_chunk or file.seek(0, os.SEEK_END) == plan.nbytes
            return fetched if has_right_size else None
    except FileNotFoundError:
        return None
    except OSError:  # EAGAIN: not in the page cache; EOPNOTSUPP: the file system cannot tell
        _retry_at[root] = monotonic() + _RETRY_AFTER
        return None
