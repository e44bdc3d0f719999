"""`counting`: what this package reads and writes meanwhile, by store."""

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
class Counted(Result):
    """Numbers of chunks, requests and bytes, by store.

    Prints as a table. A loop over it gives the names of the stores.

    Attributes
    ----------
    stores : dict of str to Counts
        For each store (the path of a folder, or the text of a store object) its `chunks`, `opens`,
        `requests`, `ranges`, `bytes_fetched` and `bytes_written`.
    """

    stores: dict[str, Counts] = field(default_factory=dict)

    @property
    def total(self) -> Counts:
        """The numbers of all stores together."""
        total = Counts()
        for counts in list(self.stores.values()):
            total.add(counts)
        return total

    @property
    def chunks(self) -> int:
        """Chunks, or shards, that were read or written, missing ones too."""
        return self.total.chunks

    @property
    def opens(self) -> int:
        """Files that were opened."""
        return self.total.opens

    @property
    def requests(self) -> int:
        """Requests to stores other than folders."""
        return self.total.requests

    @property
    def ranges(self) -> int:
        """Byte ranges that were read of files or asked of stores."""
        return self.total.ranges

    @property
    def bytes_fetched(self) -> int:
        """Bytes that were read, those of gaps and of indexes of shards too."""
        return self.total.bytes_fetched

    @property
    def bytes_written(self) -> int:
        """Bytes that were written."""
        return self.total.bytes_written

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.stores))


@contextmanager
def counting() -> Iterator[Counted]:
    """Count the chunks, requests and bytes that this package reads and writes meanwhile.

    In all threads of the process. Uses may be nested and concurrent, and each counts everything.
    Chunks that zarr reads by itself, such as compressed ones, are not counted, and neither are
    metadata documents and what `view` reads through a mapping.

    Yields
    ------
    Counted
        Counts on until the end of the block, and prints as a table.

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
    stores = counters.start()
    try:
        yield Counted(stores)
    finally:
        counters.stop(stores)
