"""Writing many small ranges of a file through a memory mapping.

A system call for each range takes four times as long as reading and writing the whole chunk. Here
one call copies a thousand ranges, from a file in memory into the mapping. The system does the
copying, so that a file that another process shortens meanwhile, or a full disk, is an error of the
call and doesn't end the process.

The call is the C library's `preadv`: `os.preadv` takes a Python object for each range, and making
these objects takes ten times as long as the copying.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zarr_bytes.chunk.opening import closing

if TYPE_CHECKING:
    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.chunk.tiles import Tile

__all__ = ["CAN_MAP", "write_mapped"]

Places: TypeAlias = npt.NDArray[np.uintp]

_BATCH: Final = 2**10  # ranges, the most that one `preadv` takes (IOV_MAX)
_AT_ONCE: Final = 2**16  # ranges that are made ready at a time


def _c_preadv() -> Any:  # ctypes has no types for functions of C
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None  # an offset has 64 bits everywhere else
    try:
        function = ctypes.CDLL(None, use_errno=True).preadv
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
    function.restype = ctypes.c_ssize_t
    return function


_preadv: Final = _c_preadv()

CAN_MAP: Final = _preadv is not None and hasattr(os, "memfd_create")
"""Whether the system has these calls: Linux does."""


def write_mapped(file: int, tile: Tile, data: Bytes, nbytes: int) -> int:
    """Write the ranges of `tile`, up to the first that cannot be written.

    Parameters
    ----------
    file : int
        Descriptor of an open file.
    tile : Tile
        The ranges.
    data : array of uint8, 1-D
        The bytes of all ranges one after another.
    nbytes : int
        Size of the file, in bytes.

    Returns
    -------
    int
        Number of written ranges: fewer than all where the file cannot be mapped or has become
        shorter, or the disk is full (EFAULT).
    """
    starts, stops = tile.bounds()
    memory, sizes = memoryview(data), stops - starts
    done = position = 0
    with (
        suppress(OSError, ValueError),
        closing(os.memfd_create("zarr-bytes")) as source,
        mmap.mmap(file, nbytes) as chunk,
    ):
        address = np.frombuffer(chunk, np.uint8).ctypes.data
        for first in range(0, starts.size, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            places = np.stack([starts[part] + address, sizes[part]], 1).astype(np.uintp)
            count = int(sizes[part].sum())
            if os.pwrite(source, memory[position : position + count], 0) != count:
                break
            position += count
            copied = 0
            for i in range(0, len(places), _BATCH):
                batch = places[i : i + _BATCH]
                count = int(batch[:, 1].sum())
                if scatter(source, batch, copied) != count:
                    return done
                copied += count
                done += len(batch)
    return done


def scatter(source: int, places: Places, begin: int) -> int:
    """Copy bytes of an open file, from `begin` on, to places in memory.

    Parameters
    ----------
    source : int
        Descriptor of the file.
    places : array of uintp, C-contiguous
        Rows of an address and a size.
    begin : int
        Offset of the first byte in the file.

    Returns
    -------
    int
        Number of copied bytes.

    Raises
    ------
    OSError
        If a place cannot be written to.
    """
    count: int = _preadv(source, places.ctypes.data, len(places), begin)
    if count < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return count
