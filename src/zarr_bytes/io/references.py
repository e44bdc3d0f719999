"""Objects that are parts of files: kerchunk's references, and the manifests of VirtualiZarr.

A store of references has no objects of its own: it maps a key to a file, an offset and a length.
This module looks references up without the store's `get`, so that a file is opened once for all of
its chunks, and neighbors come in one request. Bytes come from the file system or object store that
the store itself would use. All other cases are left to its `get`: keys without a reference, bytes
within the references, whole files, and anything unexpected.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlparse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from zarr.storage import FsspecStore

# Bytes of a file from a start to a stop.
_GetRange: TypeAlias = "Callable[[int, int], Awaitable[Any]]"

PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_./-]*")
"""Keys that obstore uses as file names unchanged; it encodes other characters."""


class ReferencedFile(NamedTuple):
    """A file of which chunks are parts."""

    name: str  # as in the references
    local_path: str  # opened by this package; empty if `get_range` must be used
    get_range: _GetRange  # on the event loop of the store; may raise any error


class FilePart(NamedTuple):
    """The part of a file that is an object."""

    file: ReferencedFile
    offset: int
    nbytes: int


class References(Protocol):
    """The locations of the objects of a store, for one read; for one thread at a time."""

    def part_unless_store_must_be_asked(self, key: str) -> FilePart | None:
        """The part of a file with this object; None if the store must read the object."""


def is_exactly(instance: object, module_name: str, class_name: str) -> bool:
    """Whether an object is an instance of exactly this class, not of a derived class.

    The module is not imported.
    """
    return type(instance) is getattr(sys.modules.get(module_name), class_name, None)


def is_local_file_system(file_system: object) -> bool:
    """Whether a file system is exactly fsspec's file system of local files."""
    return is_exactly(file_system, "fsspec.implementations.local", "LocalFileSystem")


def is_obstore_local_store_without_links(obstore_store: Any) -> bool:
    """Whether a store is exactly obstore's store of local files, with no link in its folder path.

    obstore keeps the folder that it found when the store was made.
    """
    if not is_exactly(obstore_store, "obstore.store", "LocalStore"):
        return False
    return (
        obstore_store.prefix is not None
        and Path(obstore_store.prefix).resolve() == obstore_store.prefix
    )


def references_of_fsspec_if_any(store: FsspecStore) -> References | None:
    """The references of a store, if its file system is exactly fsspec's `ReferenceFileSystem`."""
    if is_exactly(store.fs, "fsspec.implementations.reference", "ReferenceFileSystem"):
        return _FsspecReferences(store)
    return None


class _FsspecReferences:
    """References of a `ReferenceFileSystem`: JSON, or parquet files that it reads when needed."""

    def __init__(self, store: FsspecStore) -> None:
        self._file_system: Any = store.fs
        root = store.path.rstrip("/")
        self._prefix = f"{root}/" if root else ""
        self._files: dict[str, ReferencedFile] = {}

    def part_unless_store_must_be_asked(self, key: str) -> FilePart | None:
        path = self._file_system._strip_protocol(self._prefix + key)
        try:
            reference = self._file_system.references[path]
        except KeyError:
            return None
        if not isinstance(reference, list | tuple) or len(reference) != 3:
            return None
        url, offset, nbytes = reference
        if url is None:
            url = self._file_system.target
        if not isinstance(url, str):  # None without a target, or pandas' NaN: an error of fsspec
            return None
        file = self._files.get(url)
        if file is None:
            file = self._file_at_if_known_protocol(url)
            if file is None:
                return None
            self._files[url] = file
        return FilePart(file, int(offset), int(nbytes))

    def _file_at_if_known_protocol(self, url: str) -> ReferencedFile | None:
        protocol = url.partition("://")[0] if "://" in url else None
        file_system = self._file_system.fss.get(protocol)
        if file_system is None:
            return None
        local = getattr(file_system, "sync_fs", file_system)
        local_path = local._strip_protocol(url) if is_local_file_system(local) else ""

        async def get_range(start: int, stop: int) -> Any:
            return await file_system._cat_file(url, start=start, end=stop)

        return ReferencedFile(url, local_path, get_range)


class ManifestReferences:
    """References of VirtualiZarr's `ManifestStore`, and the stores of its registry."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._files: dict[str, ReferencedFile] = {}

    def part_unless_store_must_be_asked(self, key: str) -> FilePart | None:
        """As in `References`."""
        # Private, up to VirtualiZarr 2.8: as in its `get`.
        module = sys.modules["virtualizarr.manifests.store"]
        with suppress(Exception):  # from the store: its `get` will raise the actual error
            node, _ = module._get_deepest_group_or_array(self._store._group, key)
            separator = getattr(node.metadata.chunk_key_encoding, "separator", ".")
            indices = module.parse_manifest_index(key, separator, expand_pattern=True)
            entry = None
            if indices not in node.manifest._inlined:
                entry = node.manifest.get_entry(indices)
            if entry is None:
                return None
            path = entry["path"]
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = self._file_at(path)
            return FilePart(file, int(entry["offset"]), int(entry["length"]))
        return None

    def _file_at(self, path: str) -> ReferencedFile:
        store, _ = self._store._registry.resolve(path)
        root = str(getattr(store, "prefix", None) or "")
        prefix = root.lstrip("/") or urlparse(getattr(store, "url", "")).path.lstrip("/")
        key = urlparse(path).path.lstrip("/").removeprefix(prefix).lstrip("/")
        local_path = ""
        if is_exactly(store, "obstore.store", "LocalStore") and PLAIN_KEY.fullmatch(key):
            if not root:
                local_path = f"/{key}"
            elif is_obstore_local_store_without_links(store):
                local_path = f"{root}/{key}"
        return ReferencedFile(path, local_path, partial(_get_range_of_obstore, store, key))


async def _get_range_of_obstore(store: Any, key: str, start: int, stop: int) -> Any:
    return await store.get_range_async(key, start=start, end=stop)
