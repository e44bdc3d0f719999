"""Sizes and numbers at which reading and writing change their method.

No limit changes a result. Each limit was measured, or bounds the use of memory. An array has the
limits of its pipeline (`BatchedBytesPipeline.limits`). Reading and writing get them from the layout
of its objects (`ObjectLayout.limits`).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Limits(NamedTuple):
    """Thresholds; names with `nbytes` are in bytes, names with `seconds` in seconds."""

    # Largest read of files on the event loop, or else its largest average chunk; only while no file
    # has to be waited for. For these chunks, zarr itself takes twice as long there, and a thread on
    # another processor adds 2 to 3 microseconds for each chunk.
    inline_nbytes: int = 2**19
    inline_average_chunk_nbytes: int = 2**12
    # Number of chunks after which the event loop switches to other tasks.
    chunks_between_yields: int = 512
    # Largest number of ranges that are read on the event loop, with a system call of 2 microseconds
    # for each; also the largest number in a plan that is kept for the next chunk.
    inline_ranges: int = 2**10
    # Most bytes, including gaps, that are fetched on the event loop: moving to a thread takes as
    # long as copying 2 MiB. Also the largest read, and the largest write in place, that a second
    # thread wouldn't make faster.
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
    # Largest average size of ranges for which the overhead of Python matters: a thread reads them
    # as `bytes` objects, which takes less time than reading into memory.
    short_range_nbytes: int = 2**10
    # Largest number of ranges that are fetched together. Planning takes about fifty bytes of memory
    # for each range.
    ranges_at_once: int = 2**18
    # Bytes of a chunk that are compared with the fill value at a time.
    compared_nbytes: int = 2**16
    # Smallest number of short ranges for which writing through a mapping is faster than one system
    # call for each range.
    mapped_ranges: int = 2**6
    # Largest number of ranges that one system call copies into a mapping: the limit of `preadv`
    # (IOV_MAX).
    mapped_at_once: int = 2**10
    # Seconds that a write waits for a lock that another program holds.
    lock_seconds: int = 60
    # Smallest size of a large request. Longer ranges are divided into requests of this size if
    # slots are idle. A connection transfers this much while a request waits for its answer: 1 MiB
    # in 20 ms at 50 MB/s.
    min_piece_nbytes: int = 2**20


DEFAULT_LIMITS: Final = Limits()
"""The thresholds of every array, unless a subclass of the pipeline has others."""
