"""Opening and closing stores by path or URL, and the keys and metadata documents that they hold."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.commands.result import brief
from zarr_bytes.errors import StoreError, describe_error, not_an_array_error
from zarr_bytes.io.store_names import store_name
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METADATA_KEY: Final = "zarr.json"
_MANY: Final = 20  # arrays that an error lists
_MOST_DOCUMENTS: Final = 1000  # that are read for it: links of folders may lead in a circle


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
def open_store(
    store: str | os.PathLike[str] | Store, storage_options: Mapping[str, object] | None = None
) -> Iterator[tuple[Store, str]]:
    """A store for reading, and its name, with which errors of the context, too, begin."""
    if not isinstance(store, str | os.PathLike | Store):
        raise TypeError(
            f"store is of type {type(store).__qualname__}; permitted are a path, a URL and a zarr"
            " store, such as array.store"
        )
    name = store_name(store) if isinstance(store, Store) else os.fspath(store)
    source = None
    try:
        source = store if isinstance(store, Store) else sync(_open(name, storage_options))
        yield source, name
    except (StoreError, OSError) as error:
        named = StoreError(f"{name}: {error}")
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from error
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
        raise StoreError(f"it cannot be opened: {describe_error(error)}") from error
    raise StoreError(found)


async def _close(store: Store) -> None:
    """Close a store, and its connections, which fsspec leaves open."""
    fs = getattr(store, "fs", None)
    session: Any = getattr(fs, "_s3", None) or getattr(fs, "_session", None)
    if hasattr(session, "close"):
        with suppress(Exception):  # nobody can act on an error at the end
            await session.close()
    store.close()


def open_array_at(store: Store, path: str, *, is_written: bool) -> zarr.Array[Any]:
    """The array at `path`, to be written if that is asked for; a StoreError if zarr opens none.

    Where a group or nothing is at `path`, notes of the error list arrays.
    """
    if is_written and isinstance(store, LocalStore):
        store = store.with_read_only(read_only=False)
    try:
        return zarr.open_array(store, path=path, mode="r" if store.read_only else "r+")
    except Exception as error:  # whatever a store, zarr and any codec or data type raise
        raise _no_array_at(store, path, error) from error


def _no_array_at(store: Store, path: str, error: Exception) -> StoreError:
    """Error for the `path` of a command, where zarr has raised `error`."""
    node = sync(_node_at(store, path.strip("/")))
    if node is not None and node.kind == "group":
        message = f"/{node.path} is a group: name an array in it with --array PATH"
        arrays = sync(_arrays_below(store, node.path))
        if not arrays:
            message = f"/{node.path} is a group, and no array is found in it"
    else:
        message = (
            f"zarr opens no array at /{path} ({describe_error(error)}): name another with"
            " --array PATH;"
            " `zarr-bytes check` lists the arrays, and says why one does not open"
        )
        arrays = [] if node is not None else sync(_arrays_below(store, ""))
    refused = StoreError(message)
    _note_arrays(refused, [(f"--array {shlex.quote(array.path)}", array) for array in arrays])
    return refused


def error_without_array(found: object) -> TypeError:
    """Error for an argument in place of an array; for a group, notes list its arrays."""
    refused = not_an_array_error(found)
    if isinstance(found, zarr.Group):
        above = join_key(found.path, "")
        arrays = sync(_arrays_below(found.store, found.path))
        named = [(f"group[{array.path.removeprefix(above)!r}]", array) for array in arrays]
        _note_arrays(refused, named)
    return refused


def _note_arrays(error: Exception, named: list[tuple[str, _Node]]) -> None:
    """Add a note to an error for each array, after the text by which the user names it."""
    for text, array in named[:_MANY]:
        error.add_note(f"  {text}: shape {array.shape}, {array.data_type}")
    if len(named) > _MANY:
        error.add_note(f"  and others: {_MANY} are listed")


class _Node(NamedTuple):
    """An array or a group, as its metadata document describes it; zarr may not open it."""

    path: str
    kind: Literal["array", "group"]
    shape: str
    data_type: str


def _node_of(path: str, document: dict[str, Any]) -> _Node:
    data_type = document.get("data_type")
    text = data_type if isinstance(data_type, str) else brief(data_type)
    return _Node(path, document["node_type"], brief(document.get("shape")), text)


async def _node_at(store: Store, path: str) -> _Node | None:
    """The node at `path`; None if there is none whose document can be read."""
    try:
        if _is_no_file(store, join_key(path, METADATA_KEY)):
            return None
        return _node_of(path, await read_document(store, path))
    except Exception:  # noqa: BLE001 -- of any store
        return None


async def _arrays_below(store: Store, group: str) -> list[_Node]:
    """The arrays in a group and in the groups within, the nearest first: at most one too many.

    They are those of its consolidated metadata, or else those that the store lists: group by group,
    because a list of all keys has all chunks. Members that cannot be read are passed over.
    """
    arrays = list[_Node]()
    groups = [group]
    documents = 0
    for path in groups:  # to which those found are added
        with suppress(Exception):  # of any store, and of any document
            consolidated = (await read_document(store, path)).get("consolidated_metadata")
            if consolidated:
                copies = consolidated["metadata"]
                nodes = [_node_of(join_key(path, name), copies[name]) for name in sorted(copies)]
                arrays += [node for node in nodes if node.kind == "array"]
                continue
            for name in sorted([name async for name in store.list_dir(path)]):
                if len(arrays) > _MANY or documents > _MOST_DOCUMENTS:
                    return arrays
                documents += 1
                node = await _node_at(store, join_key(path, name))
                if node is not None and node.kind == "array":
                    arrays.append(node)
                elif node is not None:
                    groups.append(node.path)
    return arrays


def join_key(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


async def list_nodes(store: Store) -> dict[str, list[str]]:
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
    nodes: dict[str, list[str]] = {
        p: [] for p, _, name in places if name in (".zarray", METADATA_KEY)
    }
    for key in keys:
        path = key.rpartition("/")[0]
        while path and path not in nodes:
            path = path.rpartition("/")[0]
        if path in nodes:
            nodes[path].append(key.removeprefix(join_key(path, "")))
    try:
        if not (keys or _is_no_file(store, METADATA_KEY)):
            nodes = {} if await store.get(METADATA_KEY, cpu.buffer_prototype) is None else {"": []}
    except Exception as error:
        raise StoreError(f"it cannot be read: {describe_error(error)}") from error
    if not nodes:
        raise StoreError(f"it holds no array and no group of Zarr format 3, no {METADATA_KEY}")
    return nodes


def _is_no_file(store: Store, key: str) -> bool:
    """Whether a folder has no file at `key`; zarr would wait for a FIFO."""
    return isinstance(store, LocalStore) and not (store.root / key).is_file()


async def read_document(store: Store, path: str) -> dict[str, Any]:
    """The metadata document of an array or a group."""
    buffer = await store.get(join_key(path, METADATA_KEY), cpu.buffer_prototype)
    if buffer is None:
        raise FileNotFoundError(join_key(path, METADATA_KEY))
    document = json.loads(str(buffer.to_bytes(), "utf-8"))
    kind = document.get("node_type") if isinstance(document, dict) else None
    if kind not in ("array", "group"):
        raise ValueError(f'"node_type" is {brief(kind)}; permitted are "array" and "group"')
    return document  # type: ignore[no-any-return]
