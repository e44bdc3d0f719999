"""Counters of chunks, requests and bytes, for `zarr_bytes.counting`.

Without an active counter, reading and writing test one name of this module and continue.
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
        """Add the numbers of `other`."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)


active: dict[int, Callable[[str | None, Counts], None]] = {}
"""The active counters, by identity: what is told of the counts of each store."""

lock = threading.Lock()
"""Of what modules keep for all threads."""

if hasattr(os, "register_at_fork"):  # another thread may hold it
    os.register_at_fork(after_in_child=lambda: globals().update(lock=threading.Lock()))


def count(store: object | None, **numbers: int) -> None:
    """Add `Counts` for a folder's path or a store; None is for chunks that zarr reads by itself."""
    if not active:
        return
    counts = Counts(**numbers)
    name = store if store is None or isinstance(store, str) else store_name(store)
    with lock:
        for count in [*active.values()]:
            count(name, counts)
