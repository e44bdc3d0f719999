"""Findings for the stored chunks of an array: keys, sizes, and bools other than 0 and 1.

Specification: Zarr 3.1, "Regular grids" and "Chunk key encoding"; bytes codec 1.0,
"Supported data types" (`bool`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr

from zarr_bytes.chunk.elements import find_wrong_bool
from zarr_bytes.chunk.tasks import together
from zarr_bytes.commands.chunk_grid import ChunkGrid
from zarr_bytes.commands.conformance import LARGEST_ELEMENT, is_plain
from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.sources import MOST_REQUESTS, is_unfinished, within
from zarr_bytes.commands.text import in_digits, nested
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from zarr_bytes.chunk.layout import ElementLayout
    from zarr_bytes.commands.reports import ArrayReport, Progress
    from zarr_bytes.commands.sources import Entry, Found, Source

__all__ = ["check_chunks", "note_unfinished", "plain_chunks"]

_PIECE: Final = 2**23  # bytes of bools read at once, by each concurrent request
_UNFINISHED: Final = ("*.partial", "left by interrupted writes; may be deleted while nobody writes")
_SHOWN: Final = 3  # names of files that are not chunks


@dataclass
class _Names:
    """Files that are not chunks: their number, and the first names."""

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


def plain_chunks(
    document: Mapping[str, Any], layout: ElementLayout | None
) -> tuple[ChunkGrid, ElementLayout]:
    """Grid and layout of chunks that can be checked; a ValueError gives the reason if not."""
    codecs = document.get("codecs")
    if not is_plain(codecs):
        names = [nested(codec, "name") for codec in codecs] if isinstance(codecs, list) else []
        raise ValueError("shards" if "sharding_indexed" in names else "not plain bytes")
    if layout is None:
        raise ValueError("item size not known")
    return ChunkGrid.of_document(document), layout


async def check_chunks(
    source: Source,
    report: ArrayReport,
    grid: ChunkGrid,
    layout: ElementLayout,
    progress: Callable[[Progress], None],
    state: Progress,
) -> None:
    """Check the size of every stored chunk of the array of `report`, and that bools are 0 or 1.

    In a store that cannot list, each possible chunk is requested, up to 100,000.
    """
    findings: list[Finding] = []
    strays, unfinished = _Names(), _Names()
    report.chunks, report.stored_chunks, done = grid.count, 0, 0

    async def check(entry: Found) -> None:
        nonlocal done
        if isinstance(entry, Finding):
            findings.append(entry)
        elif not grid.contains(entry.key):
            (unfinished if is_unfinished(entry.key) else strays).add(entry.key)
            return
        else:
            finding = await _chunk_finding(source, report, entry, grid, layout)
            findings.extend([finding] if finding else [])
        done += getattr(entry, "times", 1)
        progress(replace(state, chunks_done=done, chunks=grid.count))

    try:
        await _each(source.entries(report.path, grid), check)
    except Exception as error:  # noqa: BLE001 -- of any store; its other nodes are still checked
        found = f"they cannot be listed: {in_words(error)}"
        findings.append(Finding("chunks", found, "listed"))
    if not source.is_listed and grid.count > MOST_REQUESTS:
        report.not_checked = "too many to request"
        of_all = in_digits(grid.count)
        found = f"the store cannot list: {MOST_REQUESTS:,} of {of_all} chunks were requested"
        findings.append(Finding("chunks", found, is_note=True))
    findings += strays.notes("chunks", "stored under the array, not chunks of its grid")
    findings += unfinished.notes(*_UNFINISHED)
    if layout.item_size > LARGEST_ELEMENT:
        report.not_checked = "elements too large to read"
    report.findings += sorted(findings, key=lambda finding: (finding.is_note, finding.subject))


async def _each(entries: AsyncIterator[Found], check: Callable[[Found], Awaitable[None]]) -> None:
    """Await `check` of each entry, with zarr's ``async.concurrency``; entries are not collected."""
    one_at_a_time = asyncio.Lock()

    async def work() -> None:
        while True:
            async with one_at_a_time:
                entry = await anext(entries, None)
            if entry is None:
                return
            await check(entry)

    await together(work() for _ in range(zarr.config.get("async.concurrency") or 10))


async def _chunk_finding(
    source: Source, report: ArrayReport, entry: Entry, grid: ChunkGrid, layout: ElementLayout
) -> Finding | None:
    key = within(report.path, entry.key)
    try:
        size = await source.store.getsize(key) if entry.size is None else entry.size
        report.stored_chunks = (report.stored_chunks or 0) + entry.times
        expected = prod(grid.chunk_shape) * layout.item_size
        if size != expected:
            return Finding(entry.key, f"{size:,} bytes", f"{in_digits(expected)} bytes")
        if layout.bool_offsets:
            return await _bool_finding(source, key, entry.key, size, grid, layout)
    except FileNotFoundError:
        pass  # a missing chunk is the fill value
    except Exception as error:  # noqa: BLE001 -- of any store; the chunks after it are still checked
        return Finding(entry.key, in_words(error), "readable")
    return None


async def _bool_finding(
    source: Source, key: str, subject: str, size: int, grid: ChunkGrid, layout: ElementLayout
) -> Finding | None:
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
