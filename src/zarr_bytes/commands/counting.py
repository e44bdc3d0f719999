"""`counting`: counts the reads and writes of this package during a block of code, by store."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING

from zarr_bytes.commands.result import Result, Table, count_with_noun
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.commands.result import OutputPart


@dataclass(repr=False)
class Counted(Result, Counts):
    """`Counts` in total and by store. It prints as a table, and iterates over the store names.

    Attributes
    ----------
    stores : dict of str to Counts
        The counts of each store, by the path of a folder, or by the class and URL of a store.
    by_zarr : int
        Number of chunks, inner chunks and shard indexes that zarr has read or written by itself,
        through the codec `bytes`. They are not in the other counts.
    """

    stores: dict[str, Counts] = field(default_factory=dict)
    by_zarr: int = 0

    def count(self, store_name_or_none_for_zarr: str | None, counts: Counts) -> None:
        """Add the counts of a store; the name is None for chunks that zarr handles by itself.

        Called in the thread that reads or writes, under `io.counters.lock`.
        """
        if store_name_or_none_for_zarr is None:
            self.by_zarr += counts.chunks
            return
        self.add(counts)
        self.stores.setdefault(store_name_or_none_for_zarr, Counts()).add(counts)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.stores))

    def _iter_output_parts(self, **_: bool) -> Iterator[OutputPart]:
        chunks = count_with_noun(self.chunks, "chunk")
        fetched = count_with_noun(self.bytes_fetched, "byte")
        written = count_with_noun(self.bytes_written, "byte")
        yield ((f"{chunks}, {fetched} fetched, {written} written", "bold"),)
        names = "Store", "Chunks", "Opens", "Requests", "Ranges", "Bytes fetched", "Bytes written"
        # A list, as other threads may add stores.
        stores = list(self.stores.items())
        if stores:
            yield Table(names, [(name, *astuple(counts)) for name, counts in stores])
        if self.by_zarr or not self.stores:
            yield (
                ("Not counted: ", "bold"),
                "chunks that zarr reads, such as compressed ones, and views.",
            )


@contextmanager
def counting() -> Iterator[Counted]:
    """Count the chunks, requests and bytes that this package reads and writes in a block of code.

    All threads of the process are counted. Blocks may be nested or concurrent; each block counts
    everything. Metadata documents, reads of `view` through a mapping, and chunks that zarr reads or
    writes by itself, such as compressed chunks, are not counted.

    Yields
    ------
    Counted
        The counts so far; they stop changing at the end of the block.

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
    counters.active_counters[id(counted)] = counted.count
    try:
        yield counted
    finally:
        del counters.active_counters[id(counted)]
