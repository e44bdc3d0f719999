"""The nodes of a store, found by their metadata documents, without opening them.

A document that cannot be read, or is no JSON, is a node as well: what is wrong with it is for the
caller to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit
from zipfile import BadZipFile

from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from zarr.abc.store import Store

__all__ = [
    "DOCUMENT",
    "Node",
    "StoreError",
    "can_list",
    "close",
    "consolidated",
    "nodes",
    "open_store",
    "read",
    "within",
    "writable",
]

DOCUMENT = "zarr.json"


class StoreError(Exception):
    """A store that cannot be opened, or that holds no Zarr metadata."""


@dataclass(frozen=True)
class Node:
    """A metadata document of a store.

    Attributes
    ----------
    path : str
        Path of the array or group within the store; empty for the root.
    kind : {"array", "group", "format 2", "unreadable"}
        "unreadable" where the document is no JSON object that says which of the two it is.
    text : bytes
        The document as it is stored; empty where it could not be read, and for format 2.
    error : str
        Why it could not be read.
    """

    path: str
    kind: Literal["array", "group", "format 2", "unreadable"]
    text: bytes = b""
    error: str = ""

    @property
    def key(self) -> str:
        """Key of the document."""
        return within(self.path, DOCUMENT)


def within(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


async def open_store(location: str) -> Store:
    """Store at a path or URL, to be read: a folder, a ``.zip`` file, or what fsspec opens.

    Raises
    ------
    StoreError
        If there is nothing, or a package is missing that opens such a URL.
    """
    if not location:  # such as a variable of the shell that is not set
        raise StoreError("no store is named; . is the folder you are in")
    url = urlsplit(location)
    try:
        if "://" in location and url.scheme != "file":
            return FsspecStore.from_url(location, read_only=True)
        path = Path(unquote(url.path) if url.scheme == "file" else location)
        if path.is_dir():
            return await LocalStore.open(path, read_only=True)
        if path.suffix == ".zip" and path.is_file():
            return await ZipStore.open(path, mode="r")
    except (BadZipFile, ImportError, OSError, ValueError) as error:
        raise StoreError(f"it cannot be opened: {in_words(error)}") from error
    raise StoreError("it is no folder, no .zip file and no URL")


def writable(store: Store) -> Store:
    """The same store, to be written; with the same connections, which are one event loop's.

    Raises
    ------
    StoreError
        If a document in it cannot be replaced.
    """
    if not (store.supports_writes and store.supports_deletes):
        hint = ": unpack it first" if isinstance(store, ZipStore) else ""
        raise StoreError(f"a document in it cannot be replaced{hint}")
    return store.with_read_only(read_only=False)


async def close(store: Store) -> None:
    """Close a store, with the connections that fsspec leaves to its caller."""
    if isinstance(store, FsspecStore):
        session = getattr(store.fs, "_session", None)
        if session is not None and hasattr(session, "close"):
            with suppress(Exception):  # at the end, what it says helps nobody
                await session.close()
    store.close()


async def read(store: Store, key: str) -> bytes | None:
    """The object at `key`, or None where there is none."""
    buffer = await store.get(key, prototype=cpu.buffer_prototype)
    return None if buffer is None else buffer.to_bytes()


async def nodes(store: Store, *, listed: bool) -> AsyncIterator[Node]:
    """The arrays and groups of `store`, each parent before its children.

    Where the store cannot list (`listed` is false, from `can_list`), the children are those that
    consolidated metadata names.

    Raises
    ------
    StoreError
        If there is no node at all, or the root cannot be read.
    """
    found = False
    async for node in _walk(store, "") if listed else _walk_consolidated(store):
        found = True
        yield node
    if not found:
        raise StoreError(f"it holds no Zarr metadata, no {DOCUMENT}")


async def can_list(store: Store) -> bool:
    """Whether listing `store` shows what is in it; web servers often show nothing."""
    if not store.supports_listing:
        return False
    try:
        names = [name async for name in store.list_dir("")]
        return DOCUMENT in names or not await store.exists(DOCUMENT)
    except Exception:  # noqa: BLE001 -- whatever a store raises that cannot list
        return False


async def _walk(store: Store, path: str, *, below_group: bool = False) -> AsyncIterator[Node]:
    node = await _node(store, path)
    if node is not None:
        yield node
        if node.kind == "array":
            return
    elif below_group and not await _is_format_2(store, path):
        return  # a folder is no node by itself
    try:
        names = [name async for name in store.list_dir(path)]
    except Exception as error:  # noqa: BLE001 -- of any store: one node is not to stop the rest
        yield Node(path, "unreadable", error=f"it cannot be listed: {in_words(error)}")
        return
    if node is None and ".zarray" in names:
        yield Node(path, "format 2")
        return
    for name in sorted(names):
        if not name.startswith(".") and name != DOCUMENT:
            async for child in _walk(store, within(path, name), below_group=node is not None):
                yield child


async def _is_format_2(store: Store, path: str) -> bool:
    return any([await store.exists(within(path, name)) for name in (".zarray", ".zgroup")])


async def _walk_consolidated(store: Store) -> AsyncIterator[Node]:
    root = await _node(store, "")
    if root is None:
        if await store.exists(".zarray"):
            yield Node("", "format 2")
        return
    yield root
    if root.kind == "group":
        for path in consolidated(json.loads(root.text)):
            node = await _node(store, path)
            yield node or Node(path, "unreadable", error=f"there is no {DOCUMENT}")


def consolidated(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The copies of documents in the consolidated metadata of a group's, by their path in it."""
    member = document.get("consolidated_metadata")
    metadata = member.get("metadata") if isinstance(member, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}


async def _node(store: Store, path: str) -> Node | None:
    try:
        text = await read(store, within(path, DOCUMENT))
    except Exception as error:
        if not path:
            raise StoreError(f"it cannot be read: {in_words(error)}") from error
        return Node(path, "unreadable", error=in_words(error))  # one is not to stop the rest
    if text is None:
        return None
    try:
        document = json.loads(text)
    except (RecursionError, ValueError) as error:  # also what is not UTF-8
        return Node(path, "unreadable", text, f"no JSON: {error}")
    node_type = document.get("node_type") if isinstance(document, dict) else None
    match node_type:
        case "array" | "group":
            return Node(path, node_type, text)
        case _:
            return Node(path, "unreadable", text, f'"node_type" is {json.dumps(node_type)}')
