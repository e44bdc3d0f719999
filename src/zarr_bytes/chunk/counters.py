"""Counters of chunks, requests and bytes, for `zarr_bytes.counting`.

Without an active counter, reading and writing test one name of this module and continue.
"""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Counter: TypeAlias = Callable[[str, "Counts"], None]

__all__ = ["Counts", "note", "start", "stop"]


@dataclass
class Counts:
    """Numbers of the chunks, requests and bytes that this package has read and written.

    Attributes
    ----------
    chunks : int
        Chunks or shards that were read or written, including missing ones.
    opens : int
        Files that were opened.
    requests : int
        Requests to stores other than folders.
    ranges : int
        Byte ranges that were read from files or requested from stores. Each part of a long range
        counts.
    bytes_fetched, bytes_written : int
        Bytes that were read and written, including gaps and the indexes of shards.
    """

    chunks: int = 0
    opens: int = 0
    requests: int = 0
    ranges: int = 0
    bytes_fetched: int = 0
    bytes_written: int = 0

    def add(self, other: Counts) -> None:
        """Add the numbers of `other`."""
        self.chunks += other.chunks
        self.opens += other.opens
        self.requests += other.requests
        self.ranges += other.ranges
        self.bytes_fetched += other.bytes_fetched
        self.bytes_written += other.bytes_written

    def times(self, number: int) -> Counts:
        """The counts times a number."""
        return Counts(*[number * count for count in astuple(self)])


counters: tuple[Counter, ...] = ()
"""The active counters, called with a store and its new counts; replaced as a whole."""

_lock = threading.Lock()


def start(counter: Counter) -> None:
    """Call `counter` with all counts from now on."""
    global counters
    with _lock:
        counters = (*counters, counter)


def stop(counter: Counter) -> None:
    """End the calls of `counter`."""
    global counters
    with _lock:
        counters = tuple([other for other in counters if other is not counter])


def note(
    store: object,
    *,
    chunks: int = 0,
    opens: int = 0,
    requests: int = 0,
    ranges: int = 0,
    fetched: int = 0,
    written: int = 0,
) -> None:
    """Add counts for a store: the path of a folder, or a store object."""
    counts = Counts(chunks, opens, requests, ranges, fetched, written)
    with _lock:
        for counter in counters:
            counter(str(store), counts)
