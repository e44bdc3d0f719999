"""Counters of chunks, requests and bytes, for `zarr_bytes.counting`.

Reading and writing call `count`, from any thread. Without an active counter, that looks at one
name of this module and returns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zarr_bytes.io.store_names import store_name

if TYPE_CHECKING:
    from collections.abc import Callable


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
        """Add the numbers of `other` to these, in place."""
        self.chunks += other.chunks
        self.opens += other.opens
        self.requests += other.requests
        self.ranges += other.ranges
        self.bytes_fetched += other.bytes_fetched
        self.bytes_written += other.bytes_written


active_counters: dict[int, Callable[[str | None, Counts], None]] = {}
"""The active counters, by their `id`. Each is called with the name of a store (None for what zarr
reads by itself) and what is to be added for it."""

lock = threading.Lock()
"""For short changes of what modules of this package keep for all threads: counts, known stores,
kept indexes, files that views change. Nobody waits for a disk or a store while he holds it."""


def _replace_lock() -> None:
    """Make a new lock in a forked process: a thread that is not there may have held the old one."""
    global lock
    lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)


def count(store: object | None, **numbers: int) -> None:
    """Add numbers to all active counters, by their names in `Counts`; from any thread.

    `store` is a store, the path of a folder, or None for chunks that zarr reads by itself.
    """
    if not active_counters:
        return
    counts = Counts(**numbers)
    name = store if store is None or isinstance(store, str) else store_name(store)
    with lock:
        for add_counts in [*active_counters.values()]:
            add_counts(name, counts)
