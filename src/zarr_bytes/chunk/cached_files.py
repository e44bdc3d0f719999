"""The byte ranges of a chunk that is a file, on the event loop: only what need not be waited for.

A hop to a thread and back takes longer than the read of a small file that is in the page cache.
"""

from __future__ import annotations

import os
import stat
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from zarr_bytes.chunk.file_systems import is_known_to_be_local
from zarr_bytes.chunk.files import FLAGS, ONE_MORE

if TYPE_CHECKING:
    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.plan import Plan

__all__ = ["is_tried", "read_cached_file", "read_cached_file_into"]

_SMALL: Final = 2**16  # bytes: copying them takes as long as a fraction of a thread hop
_FEW: Final = 256  # ranges, each a system call of 2 microseconds

# By root of a store: until when nothing is tried, after a wait was due.
_busy: dict[str, float] = {}
_RETRY_AFTER: Final = 1.0  # seconds


def is_tried(root: str) -> bool:
    """Whether files below `root` are read here: on a local file system, and not waited for."""
    return is_known_to_be_local(root) and monotonic() >= _busy.get(root, 0)


def read_cached_file(path: str, plan: Plan, root: str) -> Bytes | None:
    """A few small ranges of the file at `path`, if they need not be waited for.

    Tried only below a `root` where `read_file` has found a local file system.

    Returns
    -------
    array of uint8, 1-D, or None
        As of `read_file`.

    Raises
    ------
    BlockingIOError
        Where `read_file` must be asked, in a thread: the file is not in the page cache, or not as
        it should be, or the system cannot tell.
    """
    if not is_tried(root) or plan.nbytes > _SMALL or not 0 < plan.starts.size <= _FEW:
        raise BlockingIOError
    file = _open(path)
    if file is None:
        return None
    try:
        if not plan.is_whole_chunk and not stat.S_ISREG(os.fstat(file).st_mode):
            raise BlockingIOError
        # One byte more of a whole chunk: as `read_file`.
        fetched = np.empty(plan.nbytes + plan.is_whole_chunk, np.uint8)
        memory = memoryview(fetched)
        for start, stop, position in plan.ranges():
            part = memory[position : position + stop - start + plan.is_whole_chunk]
            if os.preadv(file, [part], start, os.RWF_NOWAIT) != stop - start:
                raise BlockingIOError
        return fetched[: plan.nbytes]
    except OSError:  # EAGAIN: not in the page cache; EOPNOTSUPP: the file system cannot tell
        raise _must_wait(root) from None
    finally:
        os.close(file)


def read_cached_file_into(target: Array, path: str, root: str, start: int | None = None) -> bool:
    """`read_file_into`, if the file need not be waited for; to be asked only where it `is_tried`.

    Raises
    ------
    BlockingIOError
        As `read_cached_file`.
    """
    file = _open(path)
    if file is None:
        return False
    try:
        if start is None:
            count = os.preadv(file, (target, ONE_MORE), 0, os.RWF_NOWAIT)
        elif stat.S_ISREG(os.fstat(file).st_mode):
            count = os.preadv(file, (target,), start, os.RWF_NOWAIT)
        else:
            raise BlockingIOError
        if count != target.nbytes:
            raise BlockingIOError
    except OSError:
        raise _must_wait(root) from None
    finally:
        os.close(file)
    return True


def _open(path: str) -> int | None:
    try:
        return os.open(path, FLAGS)
    except FileNotFoundError:
        return None
    except OSError:
        raise BlockingIOError from None


def _must_wait(root: str) -> BlockingIOError:
    if len(_busy) > 1000:
        _busy.clear()
    _busy[root] = monotonic() + _RETRY_AFTER
    return BlockingIOError()
