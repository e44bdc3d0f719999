"""A store that is a zip file, by its directory, which zarr's own store reads for each question."""

# ruff: noqa: D102 -- the methods are those of Source, and said there

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING
from zipfile import ZipFile

from zarr_bytes.commands.sources import DOCUMENT, Entry, Source, refuse_large, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from zarr.storage import ZipStore

    from zarr_bytes.commands.chunk_grid import ChunkGrid

__all__ = ["Zip"]


class Zip(Source):
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
        refuse_large(self._members[key].file_size)
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
