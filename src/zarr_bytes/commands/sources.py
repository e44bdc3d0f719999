"""Listing and reading of stores for the commands: documents, names, and entries under arrays."""

# ruff: noqa: D102 -- `Source` documents the methods of `Zip`

from __future__ import annotations

import re
from bisect import bisect_left
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final, NamedTuple, TypeAlias
from zipfile import ZipFile

from zarr.abc.store import RangeByteRequest
from zarr.buffer import cpu

from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.text import in_digits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from zarr.abc.store import Store
    from zarr.storage import ZipStore

    from zarr_bytes.commands.chunk_grid import ChunkGrid

__all__ = [
    "DOCUMENT",
    "MOST_REQUESTS",
    "Entry",
    "Files",
    "Found",
    "Identity",
    "Source",
    "Zip",
    "is_unfinished",
    "within",
]

DOCUMENT: Final = "zarr.json"
MOST_REQUESTS: Final = 100_000  # for the chunks of an array, in a store that cannot list
_LARGEST_DOCUMENT: Final = 2**28  # bytes; 50,000 arrays in consolidated metadata are a fifth of it
Identity: TypeAlias = tuple[int, int]

# Names of files that LocalStore and this package are writing.
_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{32}\.partial\Z")


def is_unfinished(key: str) -> bool:
    """Whether `key` is the name of an unfinished file, whose writer may have been interrupted.

    Examples
    --------
    >>> is_unfinished(f"c/0.{32 * 'a'}.partial")
    True
    """
    return _UNFINISHED.search(key) is not None


def within(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


class Entry(NamedTuple):
    """An object under an array.

    Attributes
    ----------
    key : str
        Key within the array.
    size : int or None
        Size in bytes; None if not known yet.
    times : int
        Number of keys of the object, which links to one folder multiply.
    """

    key: str
    size: int | None = None
    times: int = 1


Found: TypeAlias = Entry | Finding
"""An entry under an array, or a Finding if it cannot be read."""


class Source:
    """A store for reading by the commands; this class reads any store by zarr's interface."""

    is_listed = True  # the result of `can_list`

    def __init__(self, store: Store) -> None:
        self.store = store

    def close(self) -> None:
        """Close the files of this object."""

    async def can_list(self) -> bool:
        """Whether listing the store shows its content; web servers often show nothing."""
        if not self.store.supports_listing:
            return False
        try:
            return DOCUMENT in await self.names("") or not await self.exists(DOCUMENT)
        except Exception:  # noqa: BLE001 -- any error of a store that cannot list
            return False

    async def read(self, key: str) -> bytes | None:
        """The document at `key`, or None if it is missing."""
        buffer = await self.store.get(key, prototype=cpu.buffer_prototype)
        return None if buffer is None else buffer.to_bytes()

    async def exists(self, key: str) -> bool:
        """Whether there is an object at `key`."""
        return await self.store.exists(key)

    async def names(self, path: str) -> list[str]:
        """The names directly under `path`."""
        return [name async for name in self.store.list_dir(path)]

    async def unfinished(self, path: str, *, below: bool) -> list[str]:
        """Names of unfinished files in the folder at `path`, and in all folders `below` it."""
        del path, below
        return []  # an object store shows only whole objects

    def identity(self, path: str) -> Identity | None:
        """Identity of the folder at `path`, equal for all paths to it; None without links."""
        del path
        return None

    async def entries(self, path: str, grid: ChunkGrid) -> AsyncIterator[Found]:
        """Entries under the array at `path`, except its metadata document.

        In a store that cannot list, those that may be there: the first chunks of the grid.
        """
        if not self.is_listed:
            for key in grid.keys(MOST_REQUESTS):
                yield Entry(key)
            return
        prefix = within(path, "")
        async for key in self.store.list_prefix(prefix):
            name = key.removeprefix(prefix)
            if name and name != DOCUMENT and not name.endswith("/"):
                yield Entry(name)

    async def pieces(self, key: str, size: int, step: int) -> AsyncIterator[bytes]:
        """The `size` bytes of an object, `step` at a time."""
        for start in range(0, size, step):
            stop = min(start + step, size)
            request = None if stop - start == size else RangeByteRequest(start, stop)
            buffer = await self.store.get(key, cpu.buffer_prototype, request)
            found = b"" if buffer is None else buffer.to_bytes()
            yield found
            if len(found) == size:  # a server may ignore the range
                return


class Files(Source):
    """A store whose files are opened directly, and not by zarr's own store."""

    def opened(self, key: str) -> AbstractContextManager[tuple[IO[bytes], int]]:
        """The file at `key`, and its size in bytes; an `OSError` if it is missing."""
        raise NotImplementedError

    async def can_list(self) -> bool:
        return True

    async def read(self, key: str) -> bytes | None:
        try:
            with self.opened(key) as (file, size):
                if size > _LARGEST_DOCUMENT:  # it would fill the memory
                    most = in_digits(_LARGEST_DOCUMENT)
                    found = f"{in_digits(size)} bytes"
                    raise OSError(f"{found}; a document of more than {most} is not read")
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):  # as LocalStore.get
            return None

    async def pieces(self, key: str, size: int, step: int) -> AsyncIterator[bytes]:
        with self.opened(key) as (file, _):
            for start in range(0, size, step):
                yield file.read(min(step, size - start))


class Zip(Files):
    """A zip file, with its directory read once; zarr's own store reads it for each request."""

    def __init__(self, store: ZipStore, path: Path) -> None:
        super().__init__(store)
        self._archive = ZipFile(path)
        self._members = self._archive.NameToInfo  # the last of members with one name, as in zarr
        self._keys = sorted(self._members)

    def close(self) -> None:
        self._archive.close()

    @contextmanager
    def opened(self, key: str) -> Iterator[tuple[IO[bytes], int]]:
        if key not in self._members:
            raise FileNotFoundError(key)
        with self._archive.open(key) as file:
            yield file, self._members[key].file_size

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
            # "0" is the character after "/": everything below the name is skipped.
            i = bisect_left(self._keys, f"{prefix}{name}0", i) if slash else i + 1
        return list(names)

    async def entries(self, path: str, grid: ChunkGrid) -> AsyncIterator[Found]:
        prefix = within(path, "")
        for i in range(bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[i].startswith(prefix):
                return
            name = self._keys[i][len(prefix) :]
            if name.endswith("/"):
                if grid.contains(name[:-1]):
                    yield Finding(name[:-1], "a folder", "a file")
            elif name and name != DOCUMENT:
                yield Entry(name, self._members[self._keys[i]].file_size)
