"""Writing byte ranges of an open file: a call of the system for each, or through a mapping.

Of many small ranges, a call for each takes four times as long as reading and writing the whole
chunk. Through a mapping, one call copies a thousand small ranges from a file in memory. It is the
system that copies, so that a file that is shortened meanwhile, or a full disk, doesn't end the
process. The call is the C library's `preadv`: the objects that `os.preadv` takes cost ten times the
copying.
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

_RANGES_IN_SOURCE: Final = 2**16  # whose bytes are put into the file in memory at a time


class RangeUpdate(NamedTuple):
    """Byte ranges of an object, and their new bytes."""

    ranges: ByteRanges
    data: Bytes  # of all ranges, one after another
    limits: Limits  # that say how they are written


NO_RANGES: Final = RangeUpdate(ByteRanges(0, 0), np.empty(0, np.uint8), DEFAULT_LIMITS)


class PartlyWrittenError(OSError):
    """The system has stopped a write.

    Parameters
    ----------
    error_number
        That of the system, or EIO where it has written nothing and given no error.
    offset
        Of the first byte in the file that is not written.
    selection_nbytes_written
        The number of bytes of the whole selection that are.
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
"""Whether the system has these calls: Linux does."""


def write_ranges(descriptor: int, update: RangeUpdate, file_nbytes: int) -> None:
    """Write the new bytes of ranges to an open file of `file_nbytes` bytes.

    A PartlyWrittenError if the system stops it. If the file gets another size meanwhile, the rest
    may not be written: the caller compares the size.
    """
    ranges, data, limits = update
    done = 0  # ranges
    # Only on a local file system: others send every mapped page whole.
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
    """Write all of `memory` at the offset `start`, however little the system takes at a time.

    `nbytes_before` is the number of bytes of the selection that are written, for a
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
    """Write ranges through a mapping, as far as that is possible; the number of written ranges.

    It ends where there is no mapping, or where the system stops: at the end of a file that was cut,
    or at a full disk. The range after the written ones may be written in part.

    The bytes of some ranges are put into a file in memory. From there the system copies those of a
    batch, one after another, to the addresses of their ranges in the mapping.
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
    """Read an open file from an offset on, into the memory that a table names.

    Returns the number of bytes, or -1: a size that is not that of the table is an error of
    the system. At most 1,024 rows, as Linux takes them. It reads no memory of Python's: addresses
    must be those of a mapping that stays open.
    """
    return int(_preadv(descriptor, table.ctypes.data, len(table), offset))
