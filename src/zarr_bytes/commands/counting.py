"""`counting`: the reads and writes of this package during a block of code, by store."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Self

from zarr_bytes.commands.result import Result, Table, number
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from zarr_bytes.commands.result import Part


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
    by_zarr : int
        Number of chunks, inner chunks and indexes of shards that zarr has read or written by
        itself, through the codec `bytes`. They are not counted otherwise.
    """

    stores: dict[str, Counts] = field(default_factory=dict)
    by_zarr: int = 0

    def __enter__(self) -> Self:
        counters.start(self)
        return self

    def __exit__(self, *_: object) -> None:
        counters.stop(self)

    def count(self, store: str | None, counts: Counts) -> None:
        """Add the counts of a store; None is for chunks that zarr reads or writes by itself."""
        if store is None:
            self.by_zarr += counts.chunks
            return
        self.add(counts)
        self.stores.setdefault(store, Counts()).add(counts)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.stores))

    def _parts(self, *, in_full: bool = False) -> Iterator[Part]:
        del in_full
        texts = [number(self.chunks, "chunk"), f"{number(self.bytes_fetched, 'byte')} fetched"]
        texts += [f"{number(self.bytes_written, 'byte')} written"] * bool(self.bytes_written)
        yield ((", ".join(texts), "bold"),)
        names = "Store", "Chunks", "Opens", "Requests", "Ranges", "Bytes fetched", "Bytes written"
        # A list, as other threads may add stores.
        if rows := [(name, *astuple(counts)) for name, counts in list(self.stores.items())]:
            yield Table(names, rows)
        if self.by_zarr or not self.stores:
            yield ("Not counted: ", "bold"), "read by zarr, such as compressed chunks."


def counting() -> AbstractContextManager[Counted]:
    """Count the chunks, requests and bytes that this package reads and writes in a block of code.

    All threads of the process are counted. Blocks may be nested and concurrent; each of them counts
    everything. Not counted are metadata documents, reads of `view` through a mapping, and chunks
    that zarr reads or writes by itself, such as compressed chunks: ``by_zarr`` has those of the
    codec `bytes`.

    Returns
    -------
    context manager of Counted
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
    return Counted()
