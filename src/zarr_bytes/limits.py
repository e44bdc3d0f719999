"""Sizes and numbers at which reading and writing change their method.

None changes a result. Each was measured, or bounds the memory that is taken.
"""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Thresholds, in bytes unless a number is named."""

    # Largest read on the event loop, or else its largest average chunk; of files, and only while
    # nothing has to be waited for. Zarr itself takes twice as long there for these chunks, and a
    # thread on another processor adds 2 to 3 microseconds for each.
    loop: int = 2**19
    loop_each: int = 2**12
    # Number of chunks after which the event loop turns to other tasks.
    loop_chunks: int = 512
    # Largest part of a chunk that is read on the event loop in many ranges, and their number. Each
    # range is a system call of 2 microseconds; the copying takes a fraction of a hop to a thread.
    loop_chunk: int = 2**16
    loop_ranges: int = 256
    # Bytes that are fetched on the event loop, with the gaps, and largest number of longer ranges:
    # a column or a box in a few inner chunks. A hop to a thread takes as long as to copy 2 MiB.
    loop_fetched: int = 2**22
    loop_long_ranges: int = 16
    # Largest read in one thread, and largest write in place, which a second thread would not make
    # faster, in selected bytes.
    one_thread: int = 2**22
    # Largest chunk that is read first and then assigned to the result.
    assigned: int = 2**18
    # Smallest chunk for which a look at the result pays: whether the file can be read into it.
    direct: int = 2**14
    # Bytes that are worked on at once: about a processor's second cache; more where the axes are
    # stored in another order, to fill the lines of the cache.
    block: int = 2**20
    block_out_of_order: int = 2**23
    # Largest average size of ranges for which the steps of Python count: a thread reads them as
    # `bytes` objects, which takes less time than reading into memory.
    short_range: int = 2**10
    # Largest file that is read whole without a look at its size.
    size_not_asked: int = 2**16
    # Number of ranges that are fetched together, each of which takes some fifty bytes of memory
    # while it is planned.
    runs: int = 2**18
    # Largest number of ranges of a plan that is kept for the next chunk.
    kept_runs: int = 2**10
    # Bytes of a chunk that are compared with the fill value at once, and bytes of fill values that
    # are written at once.
    compared: int = 2**16
    filled: int = 2**20
    # Smallest number of ranges, and largest average size, for which writing through a mapping is
    # faster than a system call for each range.
    mapped_ranges: int = 2**6
    mapped_range: int = 2**10
    # Seconds that a write waits for a lock that another program holds.
    lock_seconds: int = 60
    # Size that longer ranges are cut to, at most, where slots are idle; the bytes that a connection
    # brings while a request waits for its answer: 1 MiB in 20 ms at 50 MB/s.
    piece: int = 2**20


LIMITS = Limits()
"""The thresholds; tests replace all of them."""
