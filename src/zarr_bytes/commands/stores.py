"""Opening and closing stores by path or URL, and the nodes, keys and sizes of what they hold."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote
from zipfile import BadZipFile, ZipFile

import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.commands.result import brief, in_digits
from zarr_bytes.errors import StoreError, in_words
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

DOCUMENT: Final = "zarr.json"
_DOCUMENTS: Final = {DOCUMENT, ".zarray", ".zgroup"}
_OF_CHUNKS: Final = re.compile(r"c|[0-9]+")  # names of folders with chunks
_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{32}\.partial\Z")  # LocalStore's, and this package's
_LARGEST: Final = 2**28  # bytes of a document; 50,000 arrays in consolidated metadata are a fifth


def storage_options(texts: list[str]) -> dict[str, object]:
    """Arguments for fsspec from texts ``key=value``, where a value is JSON, or else text.

    >>> storage_options(["anon=True", "key=abc", 'client_kwargs={"region_name": "x"}'])
    {'anon': True, 'key': 'abc', 'client_kwargs': {'region_name': 'x'}}
    """
    options: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise StoreError(f"--storage-option: {text!r} is not of the form key=value")
        try:
            is_bool = value.lower() in ("true", "false")
            options[name] = json.loads(value.lower() if is_bool else value)
        except (RecursionError, ValueError):
            options[name] = value
    return options


@contextmanager
def opened(
    store: str | os.PathLike[str] | Store, storage_options: Mapping[str, object] | None = None
) -> Iterator[tuple[Store, str]]:
    """A store for reading, and its name; only a store that is opened here is closed.

    Errors of the store, within the context too, are a StoreError that begins with the name.
    """
    if not isinstance(store, str | os.PathLike | Store):
        raise TypeError(
            f"store is of type {type(store).__qualname__}; permitted are a path, a URL and a zarr"
            " store, such as array.store"
        )
    name = str(store) if isinstance(store, Store) else os.fspath(store)
    source = None
    try:
        source = store if isinstance(store, Store) else sync(_open(name, storage_options))
        yield source, name
    except (StoreError, OSError) as error:
        advice = "" if source is None or isinstance(error, StoreError) else _hint(error, source)
        raise StoreError(f"{name}: {error}{advice}") from error
    finally:
        if source is not None and source is not store:
            sync(_close(source))


async def _open(location: str, options: Mapping[str, object] | None) -> Store:
    if not location:  # such as from an unset variable of a shell
        raise StoreError("no store is named; . is the folder you are in")
    scheme, separator, rest = location.partition("://")
    is_local = bool(separator) and scheme.lower() in ("file", "local")
    is_path = is_local or not separator
    if options and is_path:
        raise StoreError("storage options are for URLs, and this is a path")
    try:
        if not is_path:
            return FsspecStore.from_url(location, dict(options or {}), read_only=True)
        # Relative, too, as zarr prints the folder of an array: the first name is no host.
        path = Path(unquote(re.sub("^localhost/", "/", rest)) if is_local else location)
        if path.is_dir():
            return await LocalStore.open(path, read_only=True)
        if path.suffix == ".zip" and path.is_file():
            return await ZipStore.open(path, mode="r")
        path.stat()
    except FileNotFoundError as error:
        raise StoreError("it does not exist") from error
    except (BadZipFile, ImportError, OSError, TypeError, ValueError) as error:
        raise StoreError(f"it cannot be opened: {in_words(error)}") from error
    raise StoreError("it is not a folder, a .zip file or a URL")


async def _close(store: Store) -> None:
    """Close a store, and its connections, which fsspec leaves open."""
    if isinstance(store, FsspecStore):
        session = getattr(store.fs, "_session", None)
        if session is not None and hasattr(session, "close"):
            with suppress(Exception):  # nobody can act on an error at the end
                await session.close()
            # fsspec shares one file system between callers: the next one connects again.
            store.fs._session = None
    store.close()


def array_at(store: Store, path: str, *, is_written: bool) -> zarr.Array[Any]:
    """The array at `path`, to be written if that is asked for and the store is a folder."""
    if not (is_written and isinstance(store, LocalStore)):
        return zarr.open_array(store, path=path, mode="r")
    return zarr.open_array(store.with_read_only(read_only=False), path=path, mode="r+")


def why_not_opened(error: Exception) -> str:
    """Words for the error by which zarr, a codec or a data type refuses an array."""
    if not isinstance(error, KeyError):
        return in_words(error)
    return (
        f"zarr does not open the array, since its metadata has no {error}: `zarr-bytes check` says"
        " what is missing"
    )


def _hint(error: BaseException, store: Store) -> str:
    """Advice if `error` means that a store at a URL denies access; else an empty text."""
    is_refused = (
        isinstance(error, PermissionError)
        or "Credential" in type(error).__name__
        or getattr(error, "status", None) in (401, 403)  # as aiohttp has it
    )
    if not (isinstance(store, FsspecStore) and is_refused):
        return ""
    return (
        ". Give credentials with --storage-option key=value, once for each, or say"
        " --storage-option anon=true if everybody may read it; in Python, with"
        ' storage_options={"anon": True}; the keys are those of fsspec\'s'
        f" {type(store.fs).__name__}"
    )


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
        self.keys: list[str] = []  # in order, of folders with a slash; none if it cannot list
        self.unfinished: list[str] = []  # keys of files that interrupted writes have left
        self._sizes: dict[str, int] = {}  # bytes, where listing has told them
        self.left = 0  # nodes to come

    async def nodes(self) -> AsyncIterator[Node]:
        """Every node, and what cannot be listed; a StoreError if there is none.

        In a store that cannot list, the nodes are those in the consolidated metadata of the root.
        """
        faults = await self._list()
        for fault in faults:
            yield fault
        places = [key.rpartition("/") for key in self.keys]
        new = {path for path, _, name in places if name == DOCUMENT}
        old = {path for path, _, name in places if name == ".zarray"} - new
        paths, is_empty = sorted(new | old) if places else [""], not faults
        for number, path in enumerate(paths, 1):
            node = Node(path, "format 2") if path in old else await self.node_at(path)
            if node is None:
                continue
            if not (places or path):
                paths += filter(is_path, copies_in(node.document))
            self.left, is_empty = len(paths) - number, False
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
            advice = _hint(error, self._store)
            raise StoreError(f"it cannot be read: {in_words(error)}{advice}") from error
        kind = document.get("node_type") if isinstance(document, dict) else None
        if kind not in ("array", "group"):
            return Node(path, "unreadable", error=f'"node_type" is {brief(kind)}')
        return Node(path, kind, document)

    def below(self, path: str) -> list[str]:
        """Keys below the node at `path`, without the path."""
        prefix = within(path, "")
        # "0" is the character after "/".
        last = bisect_left(self.keys, f"{path}0") if path else None
        keys = self.keys[bisect_left(self.keys, prefix) : last]
        return [key[len(prefix) :] for key in keys if key != prefix]

    async def size(self, key: str) -> int:
        """Size of an object in bytes."""
        return self._sizes[key] if key in self._sizes else await self._store.getsize(key)

    async def _list(self) -> list[Node]:
        """Find keys and sizes; what cannot be listed, or has a name that leads out of the store."""
        store, keys, faults = self._store, list[str](), list[Node]()
        with suppress(Exception):  # any error of a store that cannot list
            if isinstance(store, LocalStore):
                self._sizes = dict(_below(f"{store.root}/", faults))
            elif isinstance(store, ZipStore) and store.read_only and store.path:
                with ZipFile(store.path) as archive:  # zarr reads a member to learn its size
                    self._sizes = {info.filename: info.file_size for info in archive.infolist()}
            elif store.supports_listing:
                keys = [key async for key in store.list_prefix("")]
        keys = sorted(self._sizes or keys)
        wrong = [key for key in keys if not is_path(key.removesuffix("/"))]
        self.unfinished = [key for key in keys if _UNFINISHED.search(key)]
        self.keys = sorted({*keys}.difference(wrong, self.unfinished))
        text = "is not the name of a node, and zarr does not open it"
        return faults + [Node("", "unreadable", error=f"{brief(key)} {text}") for key in wrong[:1]]

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


def _below(root: str, faults: list[Node]) -> Iterator[tuple[str, int]]:
    """Keys and sizes in a folder, of folders with a slash; no folder twice.

    zarr's listing follows no links, and has no FIFO in the place of a chunk. Links are followed to
    nodes and to folders of chunks alone, since others may lead to anything.
    """

    def note(error: OSError) -> None:
        text = f"it cannot be listed: {in_words(error)}"
        faults.append(Node(error.filename[len(root) :], "unreadable", error=text))

    met = set[tuple[int, int]]()
    for path, folders, files in os.walk(root, onerror=note, followlinks=True):
        here = Path(path)
        status, is_followed = here.stat(), path == root or not here.is_symlink()
        is_followed |= not _DOCUMENTS.isdisjoint(files) or bool(_OF_CHUNKS.fullmatch(here.name))
        if (status.st_dev, status.st_ino) in met or not is_followed:
            folders.clear()
            continue
        met.add((status.st_dev, status.st_ino))
        folders.sort()
        prefix = within(path[len(root) :].replace(os.sep, "/"), "")
        for name in (*files, *(f"{folder}/" for folder in folders)):
            with suppress(OSError):  # a link that leads nowhere is missing to zarr, too
                yield prefix + name, (here / name).stat().st_size


def _refuse(constant: str) -> None:
    raise ValueError(f'{constant} is not JSON; permitted is "{constant}"')
