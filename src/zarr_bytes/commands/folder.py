"""A store in a folder of this machine, read directly.

zarr's `LocalStore` opens anything with the name of a document, even a FIFO, which blocks. It does
not list folders behind links.
"""

# ruff: noqa: D102 -- `Source` documents the methods

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from zarr_bytes.chunk.opening import READABLE, kind_of_file
from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.sources import DOCUMENT, Entry, Files, is_unfinished
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from zarr.storage import LocalStore

    from zarr_bytes.commands.chunk_grid import ChunkGrid
    from zarr_bytes.commands.sources import Found, Identity

__all__ = ["Folder"]


class Folder(Files):
    """A store in a folder of this machine."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.root = store.root

    @contextmanager
    def opened(self, key: str) -> Iterator[tuple[IO[bytes], int]]:
        """The file at `key`, opened without blocking; nothing other than a file is opened."""
        path = self.root / key
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(str(path))
        if stat.S_ISREG(mode):
            # It may have been replaced after the first look.
            with open(os.open(path, READABLE), "rb") as file:  # noqa: PTH123 -- of a descriptor
                status = os.fstat(file.fileno())
                mode = status.st_mode
                if stat.S_ISREG(mode):
                    yield file, status.st_size
                    return
        raise OSError(f"it is {kind_of_file(mode)}, not a file")

    async def exists(self, key: str) -> bool:
        return (self.root / key).is_file()

    async def names(self, path: str) -> list[str]:
        try:
            return os.listdir(self.root / path)  # noqa: PTH208 -- names alone
        except (FileNotFoundError, NotADirectoryError):
            return []

    async def unfinished(self, path: str, *, below: bool) -> list[str]:
        names = _names_below(self.root / path) if below else await self.names(path)
        return list(filter(is_unfinished, names))

    def identity(self, path: str) -> Identity | None:
        try:
            return _identity(self.root / path)
        except OSError:
            return None  # reading the folder reports the error

    async def entries(self, path: str, grid: ChunkGrid) -> AsyncIterator[Found]:
        """Entries under the array at `path`, with links followed as by zarr.

        Each folder is listed once on its level, by its identity, so that links in a circle, and
        many links to one folder, add no work.
        """
        root = self.root / path
        folders = {_identity(root): ("", 1)}
        while folders:
            below: dict[Identity, tuple[str, int]] = {}
            for prefix, times in folders.values():
                try:
                    with os.scandir(root / prefix) as entries:
                        for entry in entries:
                            key = prefix + entry.name
                            if grid.has_folder(key) and _kind_of(entry) == "a folder":
                                identity = _identity(root / key)
                                first, others = below.get(identity, (f"{key}/", 0))
                                below[identity] = first, others + times
                            else:
                                for stored in _stored(root, entry, key, grid, times):
                                    yield stored
                except OSError as error:
                    found = f"they cannot be listed: {in_words(error)}"
                    yield Finding(prefix or "chunks", found, "a file")
            folders = below


def _identity(path: Path) -> Identity:
    status = path.stat()
    return status.st_dev, status.st_ino


def _stored(
    root: Path, entry: os.DirEntry[str], key: str, grid: ChunkGrid, times: int
) -> Iterator[Found]:
    """Entries at `key`; links to folders that have no chunks are not followed, as by zarr."""
    if grid.contains(key) or grid.has_folder(key):
        kind, permitted = _kind_of(entry), "a folder" if grid.has_folder(key) else "a file"
        if kind == permitted:
            yield Entry(key, entry.stat().st_size, times)
        elif kind:
            yield Finding(key, kind, permitted)
    elif entry.is_dir(follow_symlinks=False):
        yield from (Entry(f"{key}/{name}") for name in _names_below(root / key))
    elif key != DOCUMENT:
        yield Entry(key + "/" * (_kind_of(entry) == "a folder"))


def _names_below(root: Path) -> Iterator[str]:
    """Relative paths of all files below a folder; links are not followed."""
    folders = [""]  # `os.walk` recurses up to Python 3.11
    while folders:
        prefix = folders.pop()
        with suppress(OSError), os.scandir(root / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    yield name


def _kind_of(entry: os.DirEntry[str]) -> str:
    """Kind of an entry of a folder, or of the target of a link; empty if the entry has gone."""
    try:
        return kind_of_file(entry.stat().st_mode)
    except FileNotFoundError:
        return "a link to nothing" if entry.is_symlink() else ""
    except OSError as error:  # such as for a link to itself
        return in_words(error)
