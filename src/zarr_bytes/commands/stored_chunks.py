"""The stored chunks of an array: which there are, how large they are, and whether bools are 0 or 1.

Specification: Zarr 3.1, "Chunk key encoding"; bytes codec 1.0, "Supported data types" (`bool`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from heapq import nsmallest
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr

from zarr_bytes.chunk.elements import find_wrong_bool
from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.sources import Entry, is_unfinished, within
from zarr_bytes.commands.text import in_digits
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from zarr_bytes.chunk.layout import ElementLayout
    from zarr_bytes.commands.chunk_grid import ChunkGrid
    from zarr_bytes.commands.sources import Source

__all__ = ["MOST_REQUESTS", "check_chunks", "note_unfinished"]

MOST_REQUESTS: Final = 100_000  # for the chunks of an array, in a store that cannot list
_PIECE: Final = 2**23  # bytes of bools to hold at once, for each of the concurrent requests
_UNFINISHED: Final = ("*.partial", "left by interrupted writes; may be deleted while nobody writes")
_SHOWN: Final = 3  # names of files that are no chunks


@dataclass
class _Names:
    """Files that are no chunks: how many, and the first names."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        self.first = nsmallest(_SHOWN, [*self.first, name])

    def notes(self, subject: str, text: str) -> Iterator[Finding]:
        if self.count:
            names = ", ".join(self.first) + ", ..." * (self.count > len(self.first))
            yield Finding(subject, f"{self.count:,} {text}: {names}", is_note=True)


async def note_unfinished(source: Source, path: str, *, below: bool) -> list[Finding]:
    """Note of the unfinished files in the folder at `path`, and in all folders `below` it."""
    names = _Names()
    for name in await source.unfinished(path, below=below):
        names.add(name)
    return list(names.notes(*_UNFINISHED))


async def check_chunks(
    source: Source,
    path: str,
    grid: ChunkGrid,
    layout: ElementLayout,
    *,
    listed: bool,
    progress: Callable[[int], None],
) -> tuple[int, list[Finding]]:
    """Hold every stored chunk of an array to its size, and its bools to 0 and 1.

    Parameters
    ----------
    source, path
        The store, and the array in it. Nothing is written.
    grid, layout
        What the metadata says of the chunks and of their elements.
    listed : bool
        Whether the store can list; if not, every possible chunk is asked for, up to 100,000.
    progress : callable
        Called with the number of chunks done so far.

    Returns
    -------
    stored : int
        Number of stored chunks.
    findings : list of Finding
        What is wrong with some of them, and then the notes.
    """
    findings: list[Finding] = []
    strays, unfinished = _Names(), _Names()
    stored = asked = 0

    async def check(entry: Entry) -> None:
        nonlocal asked
        if entry.fault:
            findings.append(Finding(entry.key, entry.fault, entry.permitted))
        elif listed and not grid.contains(entry.key):
            (unfinished if is_unfinished(entry.key) else strays).add(entry.key)
            return
        else:
            await check_chunk(entry)
        asked += entry.times
        progress(asked)

    async def check_chunk(entry: Entry) -> None:
        nonlocal stored
        try:
            key = within(path, entry.key)
            size = await source.size(key) if entry.size is None else entry.size
            stored += entry.times
            finding = await _chunk_finding(source, key, entry.key, size, grid, layout)
            findings.extend([] if finding is None else [finding])
        except FileNotFoundError:
            pass  # a chunk that is not stored is the fill value
        except Exception as error:  # noqa: BLE001 -- of any store: one chunk is not to stop the rest
            findings.append(Finding(entry.key, in_words(error), "readable"))

    try:
        await _concurrently(source.entries(path, grid) if listed else _possible(grid), check)
    except ExceptionGroup as errors:
        found = f"they cannot be listed: {in_words(errors.exceptions[0])}"
        findings.append(Finding("chunks", found, "listed"))
    if not listed and grid.count > MOST_REQUESTS:
        of_all = in_digits(grid.count)
        found = f"the store cannot list: {MOST_REQUESTS:,} of {of_all} chunks were asked for"
        findings.append(Finding("chunks", found, is_note=True))
    findings += strays.notes("chunks", "stored under the array, no chunk of its grid")
    findings += unfinished.notes(*_UNFINISHED)
    return stored, sorted(findings, key=lambda finding: (finding.is_note, finding.subject))


async def _possible(grid: ChunkGrid) -> AsyncIterator[Entry]:
    for key in grid.keys(MOST_REQUESTS):
        yield Entry(key)


async def _concurrently(entries: AsyncIterator[Entry], check: Callable[[Entry], Any]) -> None:
    """Await `check` of every entry, within zarr's ``async.concurrency``; none is held for long."""
    one_at_a_time = asyncio.Lock()

    async def work() -> None:
        while True:
            async with one_at_a_time:
                try:
                    entry = await anext(entries)
                except StopAsyncIteration:
                    return
            await check(entry)

    async with asyncio.TaskGroup() as group:
        for _ in range(zarr.config.get("async.concurrency") or 10):
            group.create_task(work())


async def _chunk_finding(
    source: Source, key: str, subject: str, size: int, grid: ChunkGrid, layout: ElementLayout
) -> Finding | None:
    expected = prod(grid.chunk_shape) * layout.item_size
    if size != expected:
        return Finding(subject, f"{size:,} bytes", f"{in_digits(expected)} bytes")
    if not layout.bool_offsets:
        return None
    start = 0
    step = max(_PIECE // layout.item_size, 1) * layout.item_size
    async for part in source.pieces(key, size, step):
        piece = np.frombuffer(part, np.uint8)
        if piece.size not in (size, min(step, size - start)):
            found = f"{piece.size:,} bytes from {start:,} on"
            return Finding(subject, found, f"{min(step, size - start):,}")
        wrong = find_wrong_bool(piece, layout)
        if wrong is not None:
            byte = start + wrong
            element = np.unravel_index(byte // layout.item_size, grid.chunk_shape)
            index = tuple(int(i) for i in element)
            found = f"a bool of {piece[wrong]} at index {index}, byte {byte:,}"
            return Finding(subject, found, "0 or 1")
        start += piece.size
    return None
