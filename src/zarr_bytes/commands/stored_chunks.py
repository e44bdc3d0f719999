"""The stored chunks of an array: which there are, how large they are, and whether bools are 0 or 1.

Specification: Zarr 3.1, "Chunk key encoding"; bytes codec 1.0, "Supported data types" (`bool`).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from itertools import islice, product
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from zipfile import ZipFile

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.buffer import cpu
from zarr.storage import LocalStore, ZipStore

from zarr_bytes.chunk.elements import find_wrong_bool
from zarr_bytes.commands.conformance import Finding
from zarr_bytes.commands.hierarchy import DOCUMENT, within
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from zarr.abc.store import Store

    from zarr_bytes.chunk.layout import ElementLayout

__all__ = ["ChunkGrid", "ChunkReport", "check_chunks"]

Coordinates = tuple[int, ...]

MOST_REQUESTS: Final = 100_000  # for the chunks of an array, in a store that cannot list
_PIECE: Final = 2**23  # bytes of bools to hold at once, for each of the concurrent requests


@dataclass(frozen=True)
class ChunkGrid:
    """The regular grid of an array, and the keys of its chunks.

    Attributes
    ----------
    chunk_shape : tuple of int
        Shape of a chunk, also of those at the edge.
    counts : tuple of int
        Number of chunks along each dimension.
    prefix, separator : str
        What every key begins with, and what stands between the coordinates.
    """

    chunk_shape: tuple[int, ...]
    counts: tuple[int, ...]
    prefix: str
    separator: str

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Grid of an array.

        Raises
        ------
        ValueError
            Saying what is not as the specification has it.
        """
        shape = _sizes(document.get("shape"), "shape", 0)
        grid = document.get("chunk_grid")
        if not isinstance(grid, dict) or grid.get("name") != "regular":
            raise ValueError("the chunk grid is not regular")
        configuration = grid.get("configuration")
        chunk_shape = configuration.get("chunk_shape") if isinstance(configuration, dict) else None
        sizes = _sizes(chunk_shape, "chunk_shape", 1)
        if len(sizes) != len(shape):
            raise ValueError(f"shape {list(shape)} and chunk_shape {list(sizes)} differ in length")
        encoding = document.get("chunk_key_encoding")
        name = encoding.get("name") if isinstance(encoding, dict) else encoding
        if name not in ("default", "v2"):
            raise ValueError(f"the chunk key encoding {name!r} is not known here")
        default = name == "default"
        configuration = encoding.get("configuration") if isinstance(encoding, dict) else None
        separator = (configuration or {}).get("separator", "/" if default else ".")
        if separator not in ("/", "."):
            raise ValueError(f"the separator of chunk keys is {separator!r}, not '/' or '.'")
        counts = tuple(ceil(n / m) for n, m in zip(shape, sizes, strict=True))
        return cls(sizes, counts, "c" if default else "", separator)

    @property
    def count(self) -> int:
        """Number of chunks, stored or not."""
        return prod(self.counts)

    def key(self, coordinates: Coordinates) -> str:
        """Key of a chunk, within its array."""
        parts = [self.prefix] if self.prefix else []
        return self.separator.join([*parts, *map(str, coordinates)]) or "0"

    def contains(self, key: str) -> bool:
        """Whether `key` is that of a chunk of this grid."""
        parts = key.split(self.separator) if self.counts or self.prefix else []
        if self.prefix and parts.pop(0) != self.prefix:
            return False
        if not all(part.isascii() and part.isdigit() for part in parts):
            return False
        coordinates = tuple(map(int, parts))
        return (
            len(coordinates) == len(self.counts)
            and all(i < n for i, n in zip(coordinates, self.counts, strict=True))
            and key == self.key(coordinates)  # no leading zeros
        )

    def keys(self) -> Iterator[str]:
        """Keys of all chunks, one after another."""
        return map(self.key, product(*map(range, self.counts)))


def _sizes(value: object, name: str, least: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int and n >= least for n in value):
        raise ValueError(f"{name} is {value!r}, not an array of integers from {least} on")
    return tuple(value)


@dataclass
class ChunkReport:
    """What was found: stored chunks, and what is wrong with some."""

    stored: int
    findings: list[Finding]


async def check_chunks(
    store: Store,
    path: str,
    grid: ChunkGrid,
    layout: ElementLayout,
    *,
    listed: bool,
    progress: Callable[[int], None],
) -> ChunkReport:
    """Hold every stored chunk of an array to its size, and its bools to 0 and 1.

    Parameters
    ----------
    store, path
        The store, and the array in it. Nothing is written.
    grid, layout
        What the metadata says of the chunks and of their elements.
    listed : bool
        Whether the store can list; if not, every possible chunk is asked for, up to 100,000.
    progress : callable
        Called with the number of chunks done so far.
    """
    report = ChunkReport(0, [])
    stray: list[str] = []
    keys = _listed(store, path, grid, stray) if listed else _possible(grid)
    sizes = _Sizes(store)
    asked = 0

    async def check(key: str) -> None:
        nonlocal asked
        try:
            size = await sizes.of(within(path, key))
            report.stored += 1
            report.findings.extend(
                [f async for f in _chunk_findings(store, path, key, size, grid, layout)]
            )
        except FileNotFoundError:
            pass  # a chunk that is not stored is the fill value
        except Exception as error:  # noqa: BLE001 -- of any store: one chunk is not to stop the rest
            report.findings.append(Finding(key, in_words(error), "readable"))
        asked += 1
        progress(asked)

    try:
        await _concurrently(keys, check)
    except ExceptionGroup as errors:
        found = f"they cannot be listed: {in_words(errors.exceptions[0])}"
        report.findings.append(Finding("chunks", found, "listed"))
    if not listed and grid.count > MOST_REQUESTS:
        found = f"the store cannot list: {MOST_REQUESTS:,} of {grid.count:,} chunks were asked for"
        report.findings.append(Finding("chunks", found, is_note=True))
    if stray:
        shown = ", ".join(sorted(stray)[:3]) + (", ..." if len(stray) > 3 else "")
        found = f"{len(stray)} stored under the array, no chunk of its grid: {shown}"
        report.findings.append(Finding("chunks", found, is_note=True))
    report.findings.sort(key=lambda finding: (finding.is_note, finding.subject))
    return report


async def _listed(store: Store, path: str, grid: ChunkGrid, stray: list[str]) -> AsyncIterator[str]:
    async for key in _keys(store, path):
        if grid.contains(key):
            yield key
        elif key != DOCUMENT and key and not key.endswith("/"):  # which a zip has for a folder
            stray.append(key)


async def _keys(store: Store, path: str) -> AsyncIterator[str]:
    """Keys under `path`, without it."""
    if isinstance(store, LocalStore):
        # Its own `list_prefix` takes a folder that may not be read for an empty one.
        folder = store.root / path
        for parent, _, names in os.walk(folder, onerror=_raise):
            for file in (Path(parent, name) for name in names):
                if file.is_file():
                    yield file.relative_to(folder).as_posix()
        return
    prefix = within(path, "")
    async for key in store.list_prefix(prefix):
        yield key.removeprefix(prefix)


def _raise(error: OSError) -> None:
    raise error


async def _possible(grid: ChunkGrid) -> AsyncIterator[str]:
    for key in islice(grid.keys(), MOST_REQUESTS):
        yield key


async def _concurrently(keys: AsyncIterator[str], check: Callable[[str], Any]) -> None:
    """Await `check` of every key, within zarr's ``async.concurrency``; no key is held for long."""
    one_at_a_time = asyncio.Lock()

    async def work() -> None:
        while True:
            async with one_at_a_time:
                try:
                    key = await anext(keys)
                except StopAsyncIteration:
                    return
            await check(key)

    async with asyncio.TaskGroup() as group:
        for _ in range(zarr.config.get("async.concurrency") or 10):
            group.create_task(work())


class _Sizes:
    """Sizes of stored objects, without reading them where that is possible."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_zip: dict[str, int] | None = None
        if (
            isinstance(store, ZipStore) and store.path
        ):  # whose getsize reads, but whose directory has the sizes
            with ZipFile(store.path) as archive:
                self._of_zip = {entry.filename: entry.file_size for entry in archive.infolist()}

    async def of(self, key: str) -> int:
        if self._of_zip is None:
            return await self._store.getsize(key)
        return self._of_zip[key]


async def _chunk_findings(
    store: Store, path: str, key: str, size: int, grid: ChunkGrid, layout: ElementLayout
) -> AsyncIterator[Finding]:
    expected = prod(grid.chunk_shape) * layout.item_size
    if size != expected:
        yield Finding(key, f"{size:,} bytes", f"{expected:,} bytes")
        return
    if not layout.bool_offsets:
        return
    step = max(_PIECE // layout.item_size, 1) * layout.item_size
    for start in range(0, size, step):
        stop = min(start + step, size)
        request = None if (start, stop) == (0, size) else RangeByteRequest(start, stop)
        buffer = await store.get(within(path, key), cpu.buffer_prototype, request)
        piece = np.frombuffer(b"" if buffer is None else buffer.to_bytes(), np.uint8)
        if piece.size != stop - start:
            yield Finding(key, f"{piece.size:,} bytes from {start:,} on", f"{stop - start:,}")
            return
        wrong = find_wrong_bool(piece, layout)
        if wrong is not None:
            byte = start + wrong
            element = np.unravel_index(byte // layout.item_size, grid.chunk_shape)
            index = tuple(int(i) for i in element)
            found = f"a bool of {piece[wrong]} at index {index}, byte {byte:,}"
            yield Finding(key, found, "0 or 1")
            return
