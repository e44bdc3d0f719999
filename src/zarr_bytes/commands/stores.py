"""Opening and closing stores by path or URL, and the keys and metadata documents that they hold."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.commands.result import brief
from zarr_bytes.errors import StoreError, in_words
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DOCUMENT: Final = "zarr.json"


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
            options[name] = json.loads({"True": "true", "False": "false"}.get(value, value))
        except (RecursionError, ValueError):
            options[name] = value
    return options


@contextmanager
def opened(
    store: str | os.PathLike[str] | Store, storage_options: Mapping[str, object] | None = None
) -> Iterator[tuple[Store, str]]:
    """A store for reading, and its name, with which errors of the context, too, begin."""
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
        raise StoreError(f"{name}: {error}") from error
    finally:
        if source is not None and source is not store:
            sync(_close(source))


async def _open(location: str, options: Mapping[str, object] | None) -> Store:
    if not location:  # such as from an unset variable of a shell
        raise StoreError("no store is named; . is the folder you are in")
    scheme, separator, rest = location.partition("://")
    is_url = bool(separator) and scheme.lower() not in ("file", "local")
    if options and not is_url:
        raise StoreError("storage options are for URLs, and this is a path")
    # Relative, too, as zarr prints the folder of an array: the first name is no host.
    path = Path(unquote(rest) if separator else location)
    try:
        if is_url:
            own = {"skip_instance_cache": True} | dict(options or {})  # and connections of its own
            return FsspecStore.from_url(location, own, read_only=True)
        if path.is_dir():
            return await LocalStore.open(path, read_only=True)
        if path.suffix == ".zip" and path.is_file():
            return await ZipStore.open(path, mode="r")
        found = "it is not a folder, a .zip file or a URL" if path.exists() else "it does not exist"
    except Exception as error:  # of any file system
        raise StoreError(f"it cannot be opened: {in_words(error)}") from error
    raise StoreError(found)


async def _close(store: Store) -> None:
    """Close a store, and its connections, which fsspec leaves open."""
    fs = getattr(store, "fs", None)
    session: Any = getattr(fs, "_s3", None) or getattr(fs, "_session", None)
    if hasattr(session, "close"):
        with suppress(Exception):  # nobody can act on an error at the end
            await session.close()
    store.close()


def array_at(store: Store, path: str, *, is_written: bool) -> zarr.Array[Any]:
    """The array at `path`, to be written if that is asked for; a StoreError if zarr opens none."""
    if is_written and isinstance(store, LocalStore):
        store = store.with_read_only(read_only=False)
    try:
        return zarr.open_array(store, path=path, mode="r" if store.read_only else "r+")
    except Exception as error:  # whatever a store, zarr and any codec or data type raise
        raise StoreError(
            f"zarr opens no array at /{path} ({in_words(error)}): name another with --array PATH;"
            " `zarr-bytes check` lists the arrays, and says why one does not open"
        ) from error


def within(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


async def listed(store: Store) -> dict[str, list[str]]:
    """The nodes by path, and the keys of each without its path, among them its document.

    A store that cannot list has no keys, and the node at its root. A StoreError if there is none.
    """
    keys = list[str]()
    with suppress(Exception):  # any error of a store that cannot list
        # An empty key is a page without links. These are quoted; in addresses, # % ? stay so.
        keys = sorted({key async for key in store.list_prefix("") if key})
        if "http" in getattr(getattr(store, "fs", None), "protocol", ()):
            keys = [unquote(re.sub("%(23|25|3F)", r"%25\1", key)) for key in keys]
    places = [key.rpartition("/") for key in keys]
    nodes: dict[str, list[str]] = {p: [] for p, _, name in places if name in (".zarray", DOCUMENT)}
    for key in keys:
        path = key.rpartition("/")[0]
        while path and path not in nodes:
            path = path.rpartition("/")[0]
        if path in nodes:
            nodes[path].append(key.removeprefix(within(path, "")))
    try:
        # In a folder, zarr would wait for a FIFO.
        is_no_file = isinstance(store, LocalStore) and not (store.root / DOCUMENT).is_file()
        if not (keys or is_no_file):
            nodes = {} if await store.get(DOCUMENT, cpu.buffer_prototype) is None else {"": []}
    except Exception as error:
        raise StoreError(f"it cannot be read: {in_words(error)}") from error
    if not nodes:
        raise StoreError(f"it holds no array and no group of Zarr format 3, no {DOCUMENT}")
    return nodes


async def document_at(store: Store, path: str) -> dict[str, Any]:
    """The metadata document of an array or a group."""
    buffer = await store.get(within(path, DOCUMENT), cpu.buffer_prototype)
    if buffer is None:
        raise FileNotFoundError(within(path, DOCUMENT))
    document = json.loads(str(buffer.to_bytes(), "utf-8"))
    kind = document.get("node_type") if isinstance(document, dict) else None
    if kind not in ("array", "group"):
        raise ValueError(f'"node_type" is {brief(kind)}; permitted are "array" and "group"')
    return document  # type: ignore[no-any-return]
