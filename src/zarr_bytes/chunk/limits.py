"""The sizes and numbers from which on reading and writing are done in another way.

None of them changes a result. Each was measured, or bounds the memory that is taken.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LIMITS", "Limits"]


class Limits(NamedTuple):
    """Thresholds, in bytes if nothing else is said.

    Attributes
    ----------
    loop, loop_each : int
        Of a read, or else of each of its chunks, that are read on the event loop if nothing has to
        be waited for: zarr has been busy there with the same chunks for twice as long, and in a
        thread on another processor each of them takes 2 to 3 microseconds more.
    loop_chunks : int
        Chunks, after which others have their turn on the event loop.
    loop_chunk, loop_ranges : int
        Of a chunk that is read there, and the number of its ranges, each a system call of 2
        microseconds. Copying so much takes as long as a fraction of a thread hop.
    loop_long_ranges : int
        Number of the ranges of a shard that are read there up to `loop` bytes: a plane in a few
        inner chunks, which takes a third less time than by a thread.
    one_thread, one_thread_codec : int
        Of a read that another thread would not make faster: of what the pipeline selects, and of
        whole chunks by zarr's pipelines.
    assigned : int
        Of a chunk, that are read at once and then assigned.
    direct : int
        Of a chunk, from which on it pays to find out that nothing need be assigned.
    block, block_out_of_order : int
        That are worked on at once: about a processor's second cache; more where the axes are
        stored in another order, to fill the lines of the cache.
    windowed : int
        Of a range, from which on reading it through a window is worth the making of the window.
    short_range : int
        Of a range on average, up to which `bytes` are faster than memory to be read into.
    size_not_asked : int
        Of a file that is read whole without being asked for its size.
    unselected, runs : int
        That are fetched at once without being selected; and ranges of a tile, each of which takes
        some fifty bytes while it is planned.
    kept_runs : int
        Ranges of a plan that is kept for the next chunk.
    compared, filled : int
        Of a chunk, that are compared with the fill value at once, and of fill values, that are
        written at once.
    mapped_ranges, mapped_range : int
        Number of ranges from which on, and size of a range on average up to which, writing through
        a mapping is faster than calls.
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
