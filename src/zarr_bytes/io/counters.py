"""Counters of chunks, requests and bytes, for `zarr_bytes.counting`.

Reading and writing call `count`, from any thread. Without an active counter, `count` looks at one
variable of this module and returns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from zarr_bytes.io.store_names import store_name

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Counts:
    """Numbers of the chunks, requests and bytes that this package has read and written.

    Attributes
    ----------
    chunks : int
        Number of chunks or shards that were read or written, including missing ones.
    opens : int
        Number of files that were opened.
    requests : int
        Number of requests to stores other than folders.
    ranges : int
        Number of byte ranges that were read from files or requested from stores. Each part of a
        long range counts.
    bytes_fetched, bytes_written : int
        Number of bytes that were read and written, including gaps and the indexes of shards.
    """

    chunks: int = 0
    opens: int = 0
    requests: int = 0
    ranges: int = 0
    bytes_fetched: int = 0
    bytes_written: int = 0

    def add(self, other: Counts) -> None:
        """Add all numbers of `other`, in place; `other` may have fewer than a derived class."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)


active_counters: dict[int, Callable[[str | None, Counts], None]] = {}
"""The active counters, by their `id`. Each is called with the name of a store (None for chunks that
zarr reads by itself) and the counts to add for it."""

lock = threading.Lock()
"""The lock for short changes of state that all threads share: counts, known stores, kept indexes,
files that views change. It is never held while waiting for a disk or a store."""


def _replace_lock_after_fork() -> None:
    """Make a new lock in a forked process: a thread of the parent may have held the old one."""
    global lock
    lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock_after_fork)


def count(store_or_folder: object, **numbers: int) -> None:
    """Add numbers to all active counters, by their names in `Counts`; from any thread.

    `store_or_folder` is a store, or the path of a folder.
    """
    if active_counters:
        is_folder = isinstance(store_or_folder, str)
        name = cast("str", store_or_folder) if is_folder else store_name(store_or_folder)
        _add_to_active_counters(name, Counts(**numbers))


def count_chunk_of_zarr() -> None:
    """Add a chunk that zarr reads or writes by itself to all active counters; from any thread."""
    if active_counters:
        _add_to_active_counters(None, Counts(chunks=1))


def _add_to_active_counters(store_name_or_none_for_zarr: str | None, counts: Counts) -> None:
    """Call all active counters, under the lock."""
    with lock:
        for add_counts in [*active_counters.values()]:
            add_counts(store_name_or_none_for_zarr, counts)
