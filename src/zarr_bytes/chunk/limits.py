"""Sizes and numbers at which reading and writing change their method.

None changes a result. Each was measured, or bounds the memory that is taken.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LIMITS", "Limits"]


class Limits(NamedTuple):
    """Thresholds, in bytes unless a number is named.

    Attributes
    ----------
    loop, loop_each : int
        Largest read on the event loop, or else its largest average chunk; of files, and only while
        nothing has to be waited for. Zarr itself takes twice as long there for these chunks,
        and a thread on another processor adds 2 to 3 microseconds for each.
    loop_chunks : int
        Number of chunks after which the event loop turns to other tasks.
    loop_chunk, loop_ranges : int
        Largest chunk that is read on the event loop, and its largest number of ranges. Each range
        is a system call of 2 microseconds; the copying takes a fraction of a hop to a thread.
    loop_long_ranges : int
        Largest number of ranges of a shard that are read on the event loop up to `loop` bytes: a
        plane in a few inner chunks, which takes a third less time than in a thread.
    one_thread, one_thread_codec : int
        Largest read in one thread, and largest write in place, which a second thread would not make
        faster: selected bytes in this package's pipeline, and bytes of whole chunks in zarr's.
    assigned : int
        Largest chunk that is read first and then assigned to the result.
    direct : int
        Smallest chunk for which a look at the result pays: whether the file can be read into it.
    block, block_out_of_order : int
        Bytes that are worked on at once: about a processor's second cache; more where the axes are
        stored in another order, to fill the lines of the cache.
    windowed : int
        Smallest range that is read through a window of memory, which has to be made.
    short_range : int
        Largest average size of ranges for which the steps of Python count: a thread reads them as
        `bytes` objects, which takes less time than reading into memory.
    size_not_asked : int
        Largest file that is read whole without a look at its size.
    unselected, runs : int
        Bytes that are fetched at once although they are not selected; and number of ranges of a
        tile, each of which takes some fifty bytes of memory while it is planned.
    kept_runs : int
        Largest number of ranges of a plan that is kept for the next chunk.
    compared, filled : int
        Bytes of a chunk that are compared with the fill value at once, and bytes of fill values
        that are written at once.
    mapped_ranges, mapped_range : int
        Smallest number of ranges, and largest average size, for which writing through a mapping is
        faster than a system call for each range.
    """

    loop: int = 2**19
    loop_each: int = 2**12
    loop_chunks: int = 512
    loop_chunk: int = 2**16
    loop_ranges: int = 256
    loop_long_ranges: int = 8
    one_thread: int = 2**22
    one_thread_codec: int = 2**23
    assigned: int = 2**18
    direct: int = 2**14
    block: int = 2**20
    block_out_of_order: int = 2**23
    windowed: int = 2**18
    short_range: int = 2**10
    size_not_asked: int = 2**16
    unselected: int = 2**24
    runs: int = 2**18
    kept_runs: int = 2**10
    compared: int = 2**16
    filled: int = 2**20
    mapped_ranges: int = 2**6
    mapped_range: int = 2**10


LIMITS = Limits()
"""The thresholds; tests replace all of them."""
