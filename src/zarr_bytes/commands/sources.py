"""What the commands read of a store: documents, names, and what stands in the places of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from zarr.abc.store import RangeByteRequest
from zarr.buffer import cpu

from zarr_bytes.commands.text import in_digits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from zarr.abc.store import Store

    from zarr_bytes.commands.chunk_grid import ChunkGrid

__all__ = ["DOCUMENT", "Entry", "Identity", "Source", "refuse_large", "within"]

DOCUMENT: Final = "zarr.json"
_LARGEST_DOCUMENT: Final = 2**28  # bytes; 50,000 arrays in consolidated metadata are a fifth of it
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


def refuse_large(size: int) -> None:
    """Refuse a document of `size` bytes that would fill the memory.

    Raises
    ------
    OSError
        If it has more than 256 MiB.
    """
    if size > _LARGEST_DOCUMENT:
        most = in_digits(_LARGEST_DOCUMENT)
        raise OSError(f"{in_digits(size)} bytes; a document of more than {most} is not read")
