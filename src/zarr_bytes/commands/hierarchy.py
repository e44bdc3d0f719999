"""The arrays and groups of a store, found by their metadata documents and not opened by zarr.

A document that cannot be read, or is not JSON, is a node as well, with its error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from zarr_bytes.commands.sources import DOCUMENT, within
from zarr_bytes.commands.stores import hint
from zarr_bytes.commands.text import brief, nested
from zarr_bytes.errors import StoreError, in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from zarr_bytes.commands.sources import Identity, Source

__all__ = ["Node", "consolidated", "is_path", "node_at", "nodes"]

_FORMAT_2: Final = (".zarray", ".zgroup", ".zattrs", ".zmetadata")


@dataclass(frozen=True)
class Node:
    """A metadata document of a store.

    Attributes
    ----------
    path : str
        Path of the array or group within the store; empty for the root.
    kind : {"array", "group", "format 2", "unreadable", "link"}
        "unreadable" if the document is not a JSON object of an array or group; "link" for a second
        path to a folder, whose first path is `target`.
    text : bytes
        The stored document; empty if it could not be read, and for format 2.
    document : dict
        Content of the document.
    constants : list of str
        Each ``NaN``, ``Infinity`` and ``-Infinity`` in the document, which Python reads and JSON
        does not permit.
    error : str
        Why the node is unreadable; else empty.
    target : str
        The first path of a link; else empty.
    """

    path: str
    kind: Literal["array", "group", "format 2", "unreadable", "link"]
    text: bytes = b""
    document: dict[str, Any] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    error: str = ""
    target: str = ""

    @property
    def key(self) -> str:
        """Key of the document."""
        return within(self.path, DOCUMENT)

    @property
    def encoding(self) -> str:
        """Encoding in which zarr reads the document; RFC 8259 permits "utf-8" alone."""
        return json.detect_encoding(self.text)


async def nodes(source: Source) -> AsyncIterator[tuple[Node, int]]:
    """The arrays and groups of a store, each parent before its children.

    In a store that cannot list, the children are the members in the consolidated metadata.

    Yields
    ------
    node : Node
    left : int
        Number of paths found so far that are still to be read, and may be nodes.

    Raises
    ------
    StoreError
        If the store has no node, or its root cannot be read.
    """
    found = False
    async for node in _listed(source) if source.is_listed else _consolidated(source):
        found = True
        yield node
    if not found:
        raise StoreError(f"it holds no array and no group of Zarr format 3, no {DOCUMENT}")


async def _listed(source: Source) -> AsyncIterator[tuple[Node, int]]:
    # A list, not recursion: groups may be deeper than Python recurses.
    waiting = [("", False)]
    met: dict[Identity, str | None] = {}  # paths of folders; None for folders that are not nodes
    while waiting:
        path, in_group = waiting.pop()
        identity = source.identity(path)
        if identity in met:
            if (target := met[identity]) is not None:
                yield Node(path, "link", target=target), len(waiting)
            continue
        node = await node_at(source, path)
        if identity is not None:
            met[identity] = None if node is None else path
        if node is not None:
            yield node, len(waiting)
        elif in_group and not await _exist(source, path, ".zarray", ".zgroup"):
            continue  # in a group, a folder without a document is not searched
        if node is not None and node.kind == "array":
            continue
        others, names = await _below(source, path, node)
        for other in others:
            yield other, len(waiting)
        waiting += [(within(path, name), node is not None) for name in reversed(names)]


async def _exist(source: Source, path: str, *names: str) -> bool:
    return any([await source.exists(within(path, name)) for name in names])


async def _below(source: Source, path: str, node: Node | None) -> tuple[list[Node], list[str]]:
    """Other nodes to report for a folder, and the names in it that may be nodes."""
    try:
        names = sorted(await source.names(path))
    except Exception as error:  # noqa: BLE001 -- the nodes after it are still read
        found = f"it cannot be listed: {in_words(error)}"
        is_said = node is not None and node.kind == "unreadable"
        return [] if is_said else [Node(path, "unreadable", error=found)], []
    if node is None and ".zarray" in names:
        return [Node(path, "format 2")], []
    found = "is not the name of a node, and zarr does not open it"
    wrong = [name for name in names if not is_path(name)]
    others = [Node(path, "unreadable", error=f"{brief(name)} {found}") for name in wrong]
    hidden = [name for name in names if node is None and name.startswith(".")]
    ignored = {DOCUMENT, *_FORMAT_2, *wrong, *hidden}
    return others, [name for name in names if name not in ignored]


async def _consolidated(source: Source) -> AsyncIterator[tuple[Node, int]]:
    root = await node_at(source, "")
    if root is None:
        if await _exist(source, "", ".zarray"):
            yield Node("", "format 2"), 0
        return
    yield root, 0
    paths = sorted(filter(is_path, consolidated(root.document)), key=lambda p: p.split("/"))
    for done, path in enumerate(paths, 1):
        node = await node_at(source, path)
        if node is not None:
            yield node, len(paths) - done


async def node_at(source: Source, path: str) -> Node | None:
    """Node at `path`, None if there is no document; a StoreError if the root cannot be read."""
    try:
        text = await source.read(within(path, DOCUMENT))
    except Exception as error:
        if path:  # the nodes after it are still read
            return Node(path, "unreadable", error=in_words(error))
        raise StoreError(
            f"it cannot be read: {in_words(error)}{hint(error, source.store)}"
        ) from error
    return None if text is None else _parsed(path, text)


def _parsed(path: str, text: bytes) -> Node:
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        document = json.loads(text, parse_constant=constant)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        return Node(path, "unreadable", text, error=f"no JSON: {error}")
    except (RecursionError, ValueError) as error:  # more levels or digits than Python reads
        return Node(path, "unreadable", text, error=f"it cannot be read: {in_words(error)}")
    kind = nested(document, "node_type")
    if kind in ("array", "group"):
        return Node(path, kind, text, document, constants)
    return Node(path, "unreadable", text, error=f'"node_type" is {brief(kind)}')


def is_path(path: str) -> bool:
    """Whether a node can have this path within a group; ``..`` would lead out of the store."""
    return not {"", ".", ".."} & set(path.split("/"))


def consolidated(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Copies of documents in the consolidated metadata of a group, by path within the group."""
    metadata = nested(document, "consolidated_metadata", "metadata")
    return metadata if isinstance(metadata, Mapping) else {}
