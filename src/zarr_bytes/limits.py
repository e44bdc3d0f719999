"""Sizes and numbers at which reading and writing change their method.

None changes a result. Each was measured, or bounds the memory that is taken. An array has those of
its pipeline (`BatchedBytesPipeline.limits`), which come to the engine with the layout of its
objects (`ObjectLayout.limits`).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Limits(NamedTuple):
    """Thresholds: names in `nbytes` are bytes, those in `seconds` seconds, and others numbers."""

    # Largest read of files on the event loop, or else its largest average chunk; only while no file
    # has to be waited for. Zarr itself takes twice as long there for these chunks, and a thread on
    # another processor adds 2 to 3 microseconds for each.
    inline_nbytes: int = 2**19
    inline_average_chunk_nbytes: int = 2**12
    # Number of chunks after which the event loop turns to other tasks.
    chunks_between_yields: int = 512
    # Largest number of ranges that are read on the event loop, each of which is a system call of 2
    # microseconds, and of a plan that is kept for the next chunk.
    inline_ranges: int = 2**10
    # Most bytes that are fetched on the event loop, with the gaps: a hop to a thread takes as long
    # as to copy 2 MiB. Largest read in one thread, and largest write in place in one thread, which
    # a second thread would not make faster.
    single_thread_nbytes: int = 2**22
    # Largest range that is read first and then assigned to the result, largest index of a shard on
    # the event loop, and largest file that is read whole without a look at its size.
    assigned_nbytes: int = 2**16
    # Smallest chunk for which a look at the result pays: whether the file can be read into it.
    direct_nbytes: int = 2**14
    # Bytes that are worked on at once: about a processor's second cache; more where the axes are
    # stored in another order, to fill the lines of the cache.
    block_nbytes: int = 2**20
    transposed_block_nbytes: int = 2**23
    # Largest average size of ranges for which the steps of Python count: a thread reads them as
    # `bytes` objects, which takes less time than reading into memory.
    short_range_nbytes: int = 2**10
    # Largest number of ranges that are fetched together, each of which takes some fifty bytes of
    # memory while it is planned.
    ranges_at_once: int = 2**18
    # Bytes of a chunk that are compared with the fill value at once.
    compared_nbytes: int = 2**16
    # Smallest number of short ranges for which writing through a mapping is faster than a system
    # call for each.
    mapped_ranges: int = 2**6
    # Largest number of ranges that one system call copies into a mapping: what `preadv` takes
    # (IOV_MAX).
    mapped_at_once: int = 2**10
    # Seconds that a write waits for a lock that another program holds.
    lock_seconds: int = 60
    # Smallest size of a large request, and that longer ranges are cut to where slots are idle: the
    # bytes that a connection brings while a request waits for its answer, 1 MiB in 20 ms at 50
    # MB/s.
    min_piece_nbytes: int = 2**20


DEFAULT_LIMITS: Final = Limits()
"""The thresholds of every array, unless a subclass of the pipeline has others."""
