"""`counting`: the reads and writes of this package during a block of code, by store."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zarr_bytes.chunk import counters
from zarr_bytes.chunk.counters import Counts
from zarr_bytes.commands.reports import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Counted", "counting"]


@dataclass(repr=False)
class Counted(Result, Counts):
    """Numbers of chunks, requests and bytes, in total and by store.

    Prints as a table. A loop over it gives the names of the stores.

    Attributes
    ----------
    chunks, opens, requests, ranges, bytes_fetched, bytes_written : int
        The numbers of all stores together, as in `Counts`.
    stores : dict of str to Counts
        The numbers of each store, by the path of a folder or the text of a store object.
    """

    stores: dict[str, Counts] = field(default_factory=dict)

    @property
    def total(self) -> Counts:
        """The numbers of all stores together."""
        total = Counts()
        total.add(self)
        return total

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.stores))


@contextmanager
def counting() -> Iterator[Counted]:
    """Count the chunks, requests and bytes that this package reads and writes in a block of code.

    All threads of the process are counted. Blocks may be nested and concurrent; each of them counts
    everything. Not counted are chunks that zarr reads by itself (such as compressed chunks),
    metadata documents, and reads of `view` through a mapping.

    Yields
    ------
    Counted
        Counts until the end of the block, and prints as a table.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=100, chunks=50, dtype="i4", compressors=None)
    >>> array[:] = 1
    >>> with counting() as counted:
    ...     _ = array[10:60]
    >>> counted.chunks, counted.bytes_fetched
    (2, 400)
    """
    counted = Counted()

    def count(store: str, counts: Counts) -> None:
        counted.add(counts)
        counted.stores.setdefault(store, Counts()).add(counts)

    counters.start(count)
    try:
        yield counted
    finally:
        counters.stop(count)
