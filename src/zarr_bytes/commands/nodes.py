"""The metadata documents of a store, and the keys and sizes of what it holds."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from zipfile import ZipFile

from zarr.buffer import cpu
from zarr.storage import LocalStore, ZipStore

from zarr_bytes.commands.stores import hint
from zarr_bytes.commands.text import brief, in_digits
from zarr_bytes.errors import StoreError, in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from zarr.abc.store import Store

DOCUMENT: Final = "zarr.json"
_DOCUMENTS: Final = {DOCUMENT, ".zarray", ".zgroup"}
_LARGEST: Final = 2**28  # bytes of a document; 50,000 arrays in consolidated metadata are a fifth
_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{32}\.partial\Z")  # LocalStore's, and this package's
_OF_CHUNKS: Final = re.compile(r"c|[0-9]+")  # names of folders with chunks


class Node(NamedTuple):
    """A metadata document: "array", "group", "format 2" or "unreadable"."""

    path: str
    kind: str
    document: dict[str, Any] = {}  # noqa: RUF012 -- never changed
    error: str = ""


def within(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


def is_path(path: str) -> bool:
    """Whether a node can have this path within a group; ``..`` would lead out of the store."""
    return not {"", ".", ".."} & set(path.split("/"))


def copies_in(document: dict[str, Any]) -> dict[str, Any]:
    """Copies of documents in the consolidated metadata of a group, by path within the group."""
    member = document.get("consolidated_metadata")
    copies = member.get("metadata") if isinstance(member, dict) else None
    return copies if isinstance(copies, dict) else {}


class Listing:
    """What a store holds, listed once by `nodes`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.keys: list[str] = []  # ascending, of folders with a slash; none if it cannot list
        self.unfinished: list[str] = []  # keys of files that interrupted writes have left
        self._sizes: dict[str, int] = {}  # bytes, where listing has told them
        self.left = 0  # nodes to come

    async def nodes(self) -> AsyncIterator[Node]:
        """Every node, a group before its members; a StoreError if there is none.

        As in zarr, a group ends at a folder without a document. In a store that cannot list, the
        members are those in the consolidated metadata of the root.
        """
        is_empty = True
        async for fault in self._faults():
            is_empty = False
            yield fault
        places = [key.rpartition("/") for key in self.keys]
        old = {path for path, _, name in places if name == ".zarray"}
        new = {path for path, _, name in places if name == DOCUMENT} if places else {""}
        groups = {path for path, _, name in places if name == ".zgroup"}
        waiting, array = _last_first(old | new), "/"
        while waiting:
            path = waiting.pop()
            is_member = not self.keys or "" not in groups or path.rpartition("/")[0] in groups
            if path.startswith(array) or not is_member:
                continue
            is_old = path in old and path not in new
            node = Node(path, "format 2") if is_old else await self.node_at(path)
            if node is None:
                continue
            if node.kind in ("array", "format 2"):
                array = within(path, "")
            else:
                groups.add(path)
            if not (places or path):
                waiting = _last_first(filter(is_path, copies_in(node.document)))
            self.left, is_empty = len(waiting), False
            yield node
        if is_empty:
            raise StoreError(f"it holds no array and no group of Zarr format 3, no {DOCUMENT}")

    async def node_at(self, path: str) -> Node | None:
        """The node at `path`, None if there is no document; a StoreError if it is the root's."""
        try:
            text = await self._read(within(path, DOCUMENT))
            if text is None:
                return None
            document = json.loads(str(text, "utf-8"), parse_constant=_refuse)
        except (RecursionError, ValueError) as error:
            return Node(path, "unreadable", error=f"no JSON: {in_words(error)}")
        except Exception as error:
            if path:
                return Node(path, "unreadable", error=in_words(error))
            advice = hint(error, self._store)
            raise StoreError(f"it cannot be read: {in_words(error)}{advice}") from error
        kind = document.get("node_type") if isinstance(document, dict) else None
        if kind not in ("array", "group"):
            return Node(path, "unreadable", error=f'"node_type" is {brief(kind)}')
        return Node(path, kind, document)

    def below(self, path: str) -> list[str]:
        """Keys below the node at `path`, but for its document."""
        prefix = within(path, "")
        # "0" is the character after "/".
        last = bisect_left(self.keys, f"{path}0") if path else None
        keys = self.keys[bisect_left(self.keys, prefix) : last]
        return [k.removeprefix(prefix) for k in keys if k not in (prefix, prefix + DOCUMENT)]

    async def size(self, key: str) -> int:
        """Size of an object in bytes."""
        return self._sizes[key] if key in self._sizes else await self._store.getsize(key)

    async def _faults(self) -> AsyncIterator[Node]:
        """List the store: what cannot be listed, or has a name that leads out of it."""
        store, errors, keys = self._store, list[OSError](), list[str]()
        with suppress(Exception):  # any error of a store that cannot list
            if isinstance(store, LocalStore):
                self._sizes = dict(_below(store.root, errors))
            elif isinstance(store, ZipStore) and store.read_only and store.path:
                with ZipFile(store.path) as archive:  # zarr reads a member to learn its size
                    self._sizes = {info.filename: info.file_size for info in archive.infolist()}
            elif store.supports_listing:
                keys = [key async for key in store.list_prefix("")]
        keys = sorted(self._sizes or keys)
        self.unfinished = [key for key in keys if _UNFINISHED.search(key)]
        left = set(self.unfinished)
        self.keys = [k for k in keys if k not in left and is_path(k.removesuffix("/"))]
        for error in errors:
            path = os.path.relpath(error.filename, cast("LocalStore", store).root)
            yield Node(path, "unreadable", error=f"it cannot be listed: {in_words(error)}")
        for wrong in [key for key in keys if not is_path(key.removesuffix("/"))][:1]:
            found = f"{brief(wrong)} is not the name of a node, and zarr does not open it"
            yield Node("", "unreadable", error=found)

    async def _read(self, key: str) -> bytes | None:
        """The document at `key`; None if it is missing."""
        if isinstance(self._store, LocalStore) or key in self._sizes:
            try:
                size = await self.size(key)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not 0 < size <= _LARGEST:  # zarr would wait for a FIFO, or fill the memory
                found = f"it has {in_digits(size)} bytes"
                raise OSError(f"{found}; permitted are 1 to {in_digits(_LARGEST)}")
        buffer = await self._store.get(key, prototype=cpu.buffer_prototype)
        return None if buffer is None else buffer.to_bytes()


def _below(root: Path, errors: list[OSError]) -> Iterator[tuple[str, int]]:
    """Keys and sizes in a folder, through links, and no folder twice.

    zarr's listing follows no links, and has no FIFO in the place of a chunk.
    """
    met, is_group = set[tuple[int, int]](), (root / DOCUMENT).exists()
    for path, folders, files in os.walk(root, onerror=errors.append, followlinks=True):
        here = Path(path)
        status, is_node = here.stat(), not _DOCUMENTS.isdisjoint(files)
        if (status.st_dev, status.st_ino) in met or not (
            is_node or not is_group or _OF_CHUNKS.fullmatch(here.name)
        ):
            folders.clear()
            continue
        met.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if is_group or not name.startswith("."))
        prefix = "" if here == root else within(here.relative_to(root).as_posix(), "")
        for name in (*files, *(f"{folder}/" for folder in folders)):
            with suppress(OSError):  # a link that leads nowhere is missing to zarr, too
                yield prefix + name, (here / name).stat().st_size


def _last_first(paths: Iterable[str]) -> list[str]:
    """Paths in descending order, a group behind its members, which no other path is between."""
    return sorted(paths, key=lambda path: path.replace("/", "\0"), reverse=True)


def _refuse(constant: str) -> None:
    raise ValueError(f'{constant} is not JSON; permitted is "{constant}"')
