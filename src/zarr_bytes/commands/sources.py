"""What the commands read of a store: documents, names, and what stands in the places of chunks.

A folder and a zip file are looked at directly: zarr's stores for them open whatever has the name of
a document, also a FIFO, which blocks, and need a listing of everything for each question.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, TypeAlias
from zipfile import ZipFile

from zarr.abc.store import RangeByteRequest
from zarr.buffer import cpu
from zarr.storage import LocalStore, ZipStore

from zarr_bytes.commands.text import in_digits
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from zarr.abc.store import Store

    from zarr_bytes.commands.chunk_grid import ChunkGrid

__all__ = ["DOCUMENT", "Entry", "Source", "source_of", "within"]

DOCUMENT: Final = "zarr.json"
_LARGEST_DOCUMENT: Final = 2**28  # bytes; 50,000 arrays in consolidated metadata are a fifth of it
# What LocalStore writes before it renames it to zarr.json or zarr.json.before-migration.
_TEMPORARY: Final = re.compile(r"zarr(\.json)?\.[0-9a-f]{32}\.partial")
Identity: TypeAlias = tuple[int, int]


def within(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


@dataclass(frozen=True)
class Entry:
    """Something that is stored under an array.

    Attributes
    ----------
    key : str
        Its key, without the path of the array.
    size : int or None
        In bytes; None where the store is yet to be asked.
    fault : str
        What stands there, if it is nothing that can be read.
    permitted : str
        What may stand there.
    times : int
        How many keys it is stored under: more than one where folders are links to one.
    """

    key: str
    size: int | None = None
    fault: str = ""
    permitted: str = "a file"
    times: int = 1


class Source:
    """What the commands ask a store; this one through zarr's interface, for any store.

    Attributes
    ----------
    store : zarr.abc.store.Store
        Only read.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def close(self) -> None:
        """Let go of what was opened here."""

    async def can_list(self) -> bool:
        """Whether listing the store shows what is in it; web servers often show nothing."""
        if not self.store.supports_listing:
            return False
        try:
            names = [name async for name in self.store.list_dir("")]
            return DOCUMENT in names or not await self.store.exists(DOCUMENT)
        except Exception:  # noqa: BLE001 -- whatever a store raises that cannot list
            return False

    async def read(self, key: str) -> bytes | None:
        """The document at `key`, or None where there is none."""
        buffer = await self.store.get(key, prototype=cpu.buffer_prototype)
        return None if buffer is None else buffer.to_bytes()

    async def exists(self, key: str) -> bool:
        """Whether there is an object at `key`."""
        return await self.store.exists(key)

    async def names(self, path: str) -> list[str]:
        """The names directly under `path`."""
        return [name async for name in self.store.list_dir(path)]

    async def unfinished(self, path: str) -> list[str]:
        """Keys of what a process that was killed had begun to write at `path`."""
        del path
        return []  # of an object store, nothing is seen before it is whole

    def identity(self, path: str) -> Identity | None:
        """What the folder at `path` is, whatever name it is reached by; None where names decide."""
        del path
        return None

    async def entries(self, path: str, grid: ChunkGrid) -> AsyncIterator[Entry]:
        """What is stored under the array at `path`, but its metadata document."""
        del grid
        prefix = within(path, "")
        async for key in self.store.list_prefix(prefix):
            name = key.removeprefix(prefix)
            if name and name != DOCUMENT and not name.endswith("/"):
                yield Entry(name)

    async def size(self, key: str) -> int:
        """Size of an object in bytes.

        Raises
        ------
        FileNotFoundError
            If there is none.
        """
        return await self.store.getsize(key)

    async def pieces(self, key: str, size: int, step: int) -> AsyncIterator[bytes]:
        """The `size` bytes of an object, `step` at a time."""
        for start in range(0, size, step):
            stop = min(start + step, size)
            request = None if stop - start == size else RangeByteRequest(start, stop)
            buffer = await self.store.get(key, cpu.buffer_prototype, request)
            found = b"" if buffer is None else buffer.to_bytes()
            if len(found) == size:  # also from a server that ignores ranges
                yield found
                return
            yield found


class _Folder(Source):
    """A folder of this machine."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.root = store.root

    async def can_list(self) -> bool:
        return True

    async def read(self, key: str) -> bytes | None:
        try:
            with _opened(self.root / key) as file:
                _refuse_large(os.fstat(file.fileno()).st_size)
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

    async def unfinished(self, path: str) -> list[str]:
        return [within(path, name) for name in await self.names(path) if _TEMPORARY.fullmatch(name)]

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
                        found = _chunk(entry, key, times)
                        if found is not None:
                            yield found
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


def _chunk(entry: os.DirEntry[str], key: str, times: int) -> Entry | None:
    """What stands in the place of a chunk, or None if it has gone meanwhile."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return Entry(key, fault="a link to nothing") if entry.is_symlink() else None
    except OSError as error:
        return Entry(key, fault=in_words(error))
    if stat.S_ISREG(status.st_mode):
        return Entry(key, status.st_size, times=times)
    return Entry(key, fault=_kind(status.st_mode))


def _others(root: Path, entry: os.DirEntry[str], key: str, grid: ChunkGrid) -> Iterator[Entry]:
    """Files that are no chunks; links to other folders are not followed, as zarr does not."""
    if grid.has_folder(key):
        yield Entry(key, fault=_kind_of(root / key), permitted="a folder")
    elif not entry.is_dir(follow_symlinks=False):
        if key != DOCUMENT:
            yield Entry(key + "/" * _is_folder(entry))
    else:
        for parent, _, names in os.walk(root / key):
            below = os.path.relpath(parent, root).replace(os.sep, "/")
            yield from (Entry(f"{below}/{name}") for name in names)


def _kind_of(path: Path) -> str:
    try:
        return _kind(path.stat().st_mode)
    except FileNotFoundError:
        return "a link to nothing"
    except OSError as error:
        return in_words(error)


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


def _refuse_large(size: int) -> None:
    if size > _LARGEST_DOCUMENT:
        most = in_digits(_LARGEST_DOCUMENT)
        raise OSError(f"{in_digits(size)} bytes; a document of more than {most} is not read")


class _Zip(Source):
    """A zip file, by its directory."""

    def __init__(self, store: ZipStore, path: Path) -> None:
        super().__init__(store)
        self._archive = ZipFile(path)
        self._members = self._archive.NameToInfo  # of members with one name, the last, as in zarr
        self._keys = sorted(self._members)

    def close(self) -> None:
        self._archive.close()

    async def can_list(self) -> bool:
        return True

    async def read(self, key: str) -> bytes | None:
        if key not in self._members:
            return None
        _refuse_large(self._members[key].file_size)
        return self._archive.read(key)

    async def exists(self, key: str) -> bool:
        return key in self._members

    async def names(self, path: str) -> list[str]:
        prefix = within(path, "")
        names: dict[str, None] = {}
        i = bisect_left(self._keys, prefix)
        while i < len(self._keys) and self._keys[i].startswith(prefix):
            rest = self._keys[i][len(prefix) :]
            name, slash, _ = rest.partition("/")
            if rest:  # and not the folder itself
                names[name] = None
            # "0" comes right behind "/": what is below the name is passed over.
            i = bisect_left(self._keys, f"{prefix}{name}0", i) if slash else i + 1
        return list(names)

    async def entries(self, path: str, grid: ChunkGrid) -> AsyncIterator[Entry]:
        prefix = within(path, "")
        for i in range(bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[i].startswith(prefix):
                return
            name = self._keys[i][len(prefix) :]
            if name.endswith("/"):
                if grid.contains(name[:-1]):
                    yield Entry(name[:-1], fault="a folder")
            elif name and name != DOCUMENT:
                yield Entry(name, self._members[self._keys[i]].file_size)

    async def size(self, key: str) -> int:
        return self._members[key].file_size

    async def pieces(self, key: str, size: int, step: int) -> AsyncIterator[bytes]:
        with self._archive.open(key) as member:
            for start in range(0, size, step):
                yield member.read(min(step, size - start))


def source_of(store: Store) -> Source:
    """How to ask `store`."""
    if isinstance(store, LocalStore):
        return _Folder(store)
    if isinstance(store, ZipStore) and store.path:
        return _Zip(store, store.path)
    return Source(store)
