"""A store that is a folder of this machine, looked at directly.

zarr's own store opens whatever has the name of a document, also a FIFO, which blocks, and lists no
folder behind a link.
"""

# ruff: noqa: D102 -- the methods are those of Source, and said there

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Final

from zarr_bytes.commands.sources import (
    DOCUMENT,
    Entry,
    Identity,
    Source,
    is_unfinished,
    refuse_large,
)
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from zarr.storage import LocalStore

    from zarr_bytes.commands.chunk_grid import ChunkGrid

__all__ = ["Folder"]


class Folder(Source):
    """A folder of this machine."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.root = store.root

    async def can_list(self) -> bool:
        return True

    async def read(self, key: str) -> bytes | None:
        try:
            with _opened(self.root / key) as file:
                refuse_large(os.fstat(file.fileno()).st_size)
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):  # as LocalStore.get
            return None

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
            return None  # reading it says what is wrong

    async def entries(self, path: str, grid: ChunkGrid) -> AsyncIterator[Entry]:
        """What is stored, following links as zarr does.

        Each folder is looked at once on its level, by what it is: a link that leads back, and links
        that branch, lead nowhere new.
        """
        root = self.root / path
        folders = {_identity(root): ("", 1)}
        for level in range(1, grid.levels + 1):
            below: dict[Identity, tuple[str, int]] = {}
            for prefix, times in folders.values():
                for entry in _scanned(root, prefix):
                    key = prefix + entry.name if isinstance(entry, os.DirEntry) else entry.key
                    if not isinstance(entry, os.DirEntry):
                        yield entry
                    elif level < grid.levels and grid.has_folder(key) and _is_folder(entry):
                        identity = _identity(root / key)
                        first, others = below.get(identity, (f"{key}/", 0))
                        below[identity] = first, others + times
                    elif level == grid.levels and grid.contains(key):
                        if found := _looked_at(entry):
                            size, fault = found
                            yield (
                                Entry(key, fault=fault) if fault else Entry(key, size, times=times)
                            )
                    else:
                        for other in _others(root, entry, key, grid):
                            yield other
            folders = below

    async def size(self, key: str) -> int:
        return (self.root / key).stat().st_size

    async def pieces(self, key: str, size: int, step: int) -> AsyncIterator[bytes]:
        with _opened(self.root / key) as file:
            for start in range(0, size, step):
                yield file.read(min(step, size - start))


def _identity(path: Path) -> Identity:
    status = path.stat()
    return status.st_dev, status.st_ino


def _scanned(root: Path, prefix: str) -> Iterator[os.DirEntry[str] | Entry]:
    try:
        with os.scandir(root / prefix) as entries:
            yield from entries
    except OSError as error:
        yield Entry(prefix or "chunks", fault=f"they cannot be listed: {in_words(error)}")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link to itself
        return False


def _looked_at(entry: os.DirEntry[str]) -> tuple[int, str] | None:
    """Size of a file, and what stands there if it is none; None if it has gone meanwhile."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return (0, "a link to nothing") if entry.is_symlink() else None
    except OSError as error:
        return 0, in_words(error)
    return status.st_size, "" if stat.S_ISREG(status.st_mode) else _kind(status.st_mode)


def _others(root: Path, entry: os.DirEntry[str], key: str, grid: ChunkGrid) -> Iterator[Entry]:
    """Files that are no chunks; links to other folders are not followed, as zarr does not."""
    if grid.has_folder(key):
        if found := _looked_at(entry):
            yield Entry(key, fault=found[1] or "a file", permitted="a folder")
    elif not entry.is_dir(follow_symlinks=False):
        if key != DOCUMENT:
            yield Entry(key + "/" * _is_folder(entry))
    else:
        yield from (Entry(f"{key}/{name}") for name in _names_below(root / key))


def _names_below(root: Path) -> Iterator[str]:
    """Names of files in a folder and in those below it, relative to it; links are not followed."""
    folders = [""]  # a list of its own: in Python 3.11 `os.walk` recurses
    while folders:
        prefix = folders.pop()
        with suppress(OSError), os.scandir(root / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    yield name


_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no file")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A file, opened without waiting for another process; what is none is not even opened.

    Raises
    ------
    OSError
        If it is no file, but a FIFO, say; a folder is an `IsADirectoryError`.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(str(path))
    if stat.S_ISREG(mode):
        # Between the two it may have been replaced.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 -- of a descriptor
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode):
                yield file
                return
    raise OSError(f"it is {_kind(mode)}, not a file")
