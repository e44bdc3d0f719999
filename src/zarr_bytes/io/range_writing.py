"""Writing byte ranges of an open file: with a system call for each, or through a mapping.

For many small ranges, one call per range takes four times as long as reading and writing the whole
chunk. Through a mapping, one call copies a thousand small ranges from a file in memory. The system
does the copying, so a full disk, or a file that is truncated in the meantime, doesn't end the
process. The call is the C library's `preadv`: making the objects for `os.preadv` would take ten
times as long as the copying.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from zarr_bytes.indexing.plan import ByteRanges
from zarr_bytes.io.files import closing_descriptor
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.limits import Limits

AddressTable: TypeAlias = npt.NDArray[np.uintp]
"""A row for each range of memory: its address, and its size in bytes (C's `struct iovec`)."""

_RANGES_IN_SOURCE: Final = 2**16  # ranges with bytes in the file in memory at a time


class RangeUpdate(NamedTuple):
    """Byte ranges of an object, and their new bytes."""

    ranges: ByteRanges
    data: Bytes  # of all ranges, one after another
    limits: Limits  # for the way of writing


NO_RANGES: Final = RangeUpdate(ByteRanges(0, 0), np.empty(0, np.uint8), DEFAULT_LIMITS)


class PartlyWrittenError(OSError):
    """The system has stopped a write.

    Parameters
    ----------
    error_number
        Error number of the system, or EIO if it has written nothing without an error.
    offset
        Offset in the file of the first byte that isn't written.
    selection_nbytes_written
        Number of bytes of the whole selection that are written.
    """

    def __init__(self, error_number: int, offset: int, selection_nbytes_written: int) -> None:
        super().__init__(error_number, "")
        self.offset = offset
        self.selection_nbytes_written = selection_nbytes_written


def _c_preadv_or_none() -> Any:  # ctypes has no types for functions of C
    """The function `preadv` of the C library; None if the system has none, or another signature."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None  # an offset has 64 bits everywhere else
    try:
        function = ctypes.CDLL(None).preadv
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
    function.restype = ctypes.c_ssize_t
    return function


_preadv: Final = _c_preadv_or_none()

CAN_MAP: Final = _preadv is not None and hasattr(os, "memfd_create")
"""Whether the system has these calls, as Linux does."""


def write_ranges(descriptor: int, update: RangeUpdate, file_nbytes: int) -> None:
    """Write the new bytes of ranges to an open file of `file_nbytes` bytes.

    A PartlyWrittenError if the system stops the write. If the size of the file changes during the
    write, the rest may not be written: the caller compares the size.
    """
    ranges, data, limits = update
    done = 0  # ranges
    # Only on a local file system: others send every mapped page as a whole.
    if (
        CAN_MAP
        and ranges.number_of_ranges() >= limits.mapped_ranges
        and ranges.nbytes <= ranges.number_of_ranges() * limits.short_range_nbytes
        and known_stores.is_on_local_file_system(descriptor)
    ):
        done = _write_mapped_and_count_ranges(descriptor, update, file_nbytes)
        if os.fstat(descriptor).st_size != file_nbytes:
            return  # an error of the caller; writing would make the file longer
    memory = memoryview(data)
    for start, stop, position in islice(ranges.ranges(), done, None):
        write_block(descriptor, memory[position : position + stop - start], start, position)


def write_block(descriptor: int, memory: memoryview, start: int, nbytes_before: int) -> None:
    """Write all of `memory` at the offset `start`, in as many system calls as needed.

    `nbytes_before` is the number of bytes of the selection that are already written, for a
    PartlyWrittenError.
    """
    done = 0
    while done < len(memory):
        try:
            count = os.pwrite(descriptor, memory[done:], start + done)
        except OSError as error:
            raise PartlyWrittenError(
                error.errno or errno.EIO, start + done, nbytes_before + done
            ) from error
        if not count:
            raise PartlyWrittenError(errno.EIO, start + done, nbytes_before + done)
        done += count


def _write_mapped_and_count_ranges(descriptor: int, update: RangeUpdate, file_nbytes: int) -> int:
    """Write ranges through a mapping, as far as possible; return the number of written ranges.

    The write ends if there is no mapping, or if the system stops: at the end of a truncated file,
    or because the disk is full. The range after the written ranges may be partly written.

    The bytes of some ranges are put into a file in memory. From there, the system copies them in
    batches, one range after another, to the addresses of their ranges in the mapping.
    """
    ranges, data, limits = update
    starts, stops = ranges.starts_and_stops()
    sizes = stops - starts
    memory = memoryview(data)
    batch_size = limits.mapped_at_once
    done = 0  # ranges
    position = 0  # in the data
    with (
        suppress(OSError, ValueError),
        closing_descriptor(os.memfd_create("zarr-bytes")) as source,
        mmap.mmap(descriptor, file_nbytes) as chunk,
    ):
        address = np.frombuffer(chunk, np.uint8).ctypes.data
        for first in range(0, starts.size, _RANGES_IN_SOURCE):
            some = slice(first, first + _RANGES_IN_SOURCE)
            table = np.stack([starts[some] + address, sizes[some]], 1).astype(np.uintp)
            nbytes = int(sizes[some].sum())
            if os.pwrite(source, memory[position : position + nbytes], 0) != nbytes:
                break
            position += nbytes
            copied = 0
            for i in range(0, len(table), batch_size):
                batch = table[i : i + batch_size]
                nbytes = int(batch[:, 1].sum())
                if read_to_addresses(source, batch, copied) != nbytes:
                    return done
                copied += nbytes
                done += len(batch)
    return done


def read_to_addresses(descriptor: int, table: AddressTable, offset: int) -> int:
    """Read an open file from an offset on, into the memory at the addresses of a table.

    Returns the number of bytes, or -1. If it isn't the total size of the table, the system had an
    error. The table has at most 1,024 rows, the limit of Linux. Python doesn't protect the memory:
    the addresses must belong to a mapping that stays open.
    """
    return int(_preadv(descriptor, table.ctypes.data, len(table), offset))
