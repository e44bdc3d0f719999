"""Writing byte ranges of an open file: a call of the system for each, or through a mapping.

Through a mapping, one call copies a thousand small ranges from a file in memory. It is the system
that copies, so that a file that is shortened meanwhile, or a full disk, doesn't end the process.
The call is the C library's `preadv`: the objects that `os.preadv` takes cost ten times the copying.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zarr_bytes import limits
from zarr_bytes.io.files import closing_descriptor
from zarr_bytes.io.known_stores import is_on_local_file_system

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr_bytes.indexing.plan import ByteRanges
    from zarr_bytes.layout.elements import Bytes

AddressTable: TypeAlias = npt.NDArray[np.uintp]

_AT_ONCE: Final = 2**16  # ranges that are made ready at a time


class PartlyWrittenError(OSError):
    """The system has stopped a write."""

    def __init__(self, number: int | None, offset: int, written: int) -> None:
        super().__init__(number, "")
        self.offset = offset  # in the file
        self.written = written  # bytes of the selection


def _c_preadv() -> Any:  # ctypes has no types for functions of C
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None  # an offset has 64 bits everywhere else
    try:
        function = ctypes.CDLL(None).preadv
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
    function.restype = ctypes.c_ssize_t
    return function


_preadv: Final = _c_preadv()

CAN_MAP: Final = _preadv is not None and hasattr(os, "memfd_create")
"""Whether the system has these calls: Linux does."""


def write_ranges(file: int, ranges: ByteRanges, data: Bytes, size: int) -> None:
    """Write the bytes of ranges, one after another in `data`, to an open file of `size` bytes."""
    done = 0
    # Only on a local file system: others send every mapped page whole.
    if (
        CAN_MAP
        and ranges.number_of_ranges() >= limits.LIMITS.mapped_ranges
        and ranges.nbytes <= ranges.number_of_ranges() * limits.LIMITS.short_range_nbytes
        and is_on_local_file_system(file)
    ):
        done = _write_mapped(file, ranges, data, size)
        if os.fstat(file).st_size != size:
            return  # an error of the caller; writing would make the file longer
    memory = memoryview(data)
    for start, stop, position in islice(ranges.ranges(), done, None):
        write_block(file, memory[position : position + stop - start], start, position)


def write_blocks(parts: Iterable[tuple[int, Bytes]], file: int) -> int:
    """Write bytes at offsets to a new file; the number of them."""
    done = 0
    for start, data in parts:
        write_block(file, memoryview(data), start, start)
        done += data.size
    return done


def write_block(file: int, memory: memoryview, start: int, before: int) -> None:
    """Write all of `memory` at `start`, after `before` bytes of the selection."""
    done = 0
    while done < len(memory):
        try:
            count = os.pwrite(file, memory[done:], start + done)
        except OSError as error:
            raise PartlyWrittenError(error.errno, start + done, before + done) from error
        if not count:
            raise PartlyWrittenError(errno.EIO, start + done, before + done)
        done += count


def _write_mapped(file: int, ranges: ByteRanges, data: Bytes, nbytes: int) -> int:
    """Write ranges until one cannot be (no mapping, a shorter file, a full disk); how many were."""
    starts, stops = ranges.bounds()
    memory, sizes = memoryview(data), stops - starts
    done = position = 0
    with (
        suppress(OSError, ValueError),
        closing_descriptor(os.memfd_create("zarr-bytes")) as source,
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
            most = limits.LIMITS.mapped_at_once
            for i in range(0, len(places), most):
                batch = places[i : i + most]
                count = int(batch[:, 1].sum())
                if copy_to_addresses(source, batch, copied) != count:
                    return done
                copied += count
                done += len(batch)
    return done


def copy_to_addresses(source: int, places: AddressTable, begin: int) -> int:
    """Copy bytes of a file, from `begin` on, to rows of an address and a size; how many, or -1."""
    return int(_preadv(source, places.ctypes.data, len(places), begin))
