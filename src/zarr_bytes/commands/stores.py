"""Opening and closing stores by path or URL, and the keys and metadata documents that they hold."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.commands.result import short_json
from zarr_bytes.errors import StoreError, describe_error, not_an_array_error
from zarr_bytes.io.store_names import store_name
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METADATA_KEY: Final = "zarr.json"
_MAX_LISTED: Final = 20  # arrays that an error lists
_MAX_DOCUMENTS: Final = 1000  # that are read for it: links of folders may lead in a circle


def parse_storage_options(texts: list[str]) -> dict[str, object]:
    """Arguments for fsspec from texts ``key=value``; a StoreError if one has another form.

    A value is JSON, or else text.

    >>> parse_storage_options(["anon=True", "key=abc", 'client_kwargs={"region_name": "x"}'])
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


class StoreAndName(NamedTuple):
    """A store, and its name for messages: a path, a URL, or as of `store_name`."""

    store: Store
    name: str


@contextmanager
def open_store(
    store: str | os.PathLike[str] | Store, storage_options: Mapping[str, object] | None = None
) -> Iterator[StoreAndName]:
    """Open a store for reading; at the end of the block, close it if it was opened here.

    Parameters
    ----------
    store
        A folder, a zip file, a URL, or a store, which is used as it is.
    storage_options
        Arguments for fsspec; a StoreError if `store` is not a URL.

    Raises
    ------
    StoreError
        If the store cannot be opened. A StoreError or OSError that is raised within the context
        becomes one, too: the messages begin with the name of the store.
    TypeError
        If `store` is something else.
    """
    if not isinstance(store, str | os.PathLike | Store):
        raise TypeError(
            f"store is of type {type(store).__qualname__}; permitted are a path, a URL and a zarr"
            " store, such as array.store"
        )
    name = store_name(store) if isinstance(store, Store) else os.fspath(store)
    source = None
    try:
        source = store if isinstance(store, Store) else sync(_open_read_only(name, storage_options))
        yield StoreAndName(source, name)
    except (StoreError, OSError) as error:
        named = StoreError(f"{name}: {error}")
        for note in getattr(error, "__notes__", ()):
            named.add_note(note)
        raise named from error
    finally:
        if source is not None and source is not store:
            sync(_close_with_connections(source))


async def _open_read_only(path_or_url: str, options: Mapping[str, object] | None) -> Store:
    """The store at a path or URL, to be read; a StoreError that does not name it."""
    if not path_or_url:  # such as from an unset variable of a shell
        raise StoreError("no store is named; . is the folder you are in")
    scheme, separator, rest = path_or_url.partition("://")
    is_url = bool(separator) and scheme.lower() not in ("file", "local")
    if options and not is_url:
        raise StoreError("storage options are for URLs, and this is a path")
    # Relative, too, as zarr prints the folder of an array: the first name is no host.
    path = Path(unquote(rest) if separator else path_or_url)
    try:
        if is_url:
            # With a file system, and so connections, of its own, which
            # `_close_with_connections` may close.
            fsspec_options = {"skip_instance_cache": True} | dict(options or {})
            return FsspecStore.from_url(path_or_url, fsspec_options, read_only=True)
        if path.is_dir():
            return await LocalStore.open(path, read_only=True)
        if path.suffix == ".zip" and path.is_file():
            return await ZipStore.open(path, mode="r")
        found = "it is not a folder, a .zip file or a URL" if path.exists() else "it does not exist"
    except Exception as error:  # of any file system
        raise StoreError(f"it cannot be opened: {describe_error(error)}") from error
    raise StoreError(found)


async def _close_with_connections(store: Store) -> None:
    """Close a store, and its connections, which fsspec leaves open."""
    fs = getattr(store, "fs", None)
    session: Any = getattr(fs, "_s3", None) or getattr(fs, "_session", None)
    if hasattr(session, "close"):
        with suppress(Exception):  # nobody can act on an error at the end
            await session.close()
    store.close()


def open_array_at(store: Store, path: str, *, is_written: bool) -> zarr.Array[Any]:
    """The array at `path`, opened to be written if `is_written` and the store is a folder.

    A StoreError if zarr opens no array there. If a group or nothing is at `path`, notes of the
    error list arrays.
    """
    if is_written and isinstance(store, LocalStore):
        store = store.with_read_only(read_only=False)
    try:
        return zarr.open_array(store, path=path, mode="r" if store.read_only else "r+")
    except Exception as error:  # whatever a store, zarr and any codec or data type raise
        raise _no_array_error(store, path, error) from error


def _no_array_error(store: Store, path: str, zarr_error: Exception) -> StoreError:
    """Error for the `path` of a command that zarr does not open; its notes list arrays."""
    node = sync(_try_read_node(store, path.strip("/")))
    if node is not None and node.kind == "group":
        message = f"/{node.path} is a group: name an array in it with --array PATH"
        arrays = sync(_list_some_arrays_below(store, node.path))
        if not arrays:
            message = f"/{node.path} is a group, and no array is found in it"
    else:
        message = (
            f"zarr opens no array at /{path} ({describe_error(zarr_error)}): name another with"
            " --array PATH;"
            " `zarr-bytes check` lists the arrays, and says why one does not open"
        )
        arrays = [] if node is not None else sync(_list_some_arrays_below(store, ""))
    no_array = StoreError(message)
    _add_notes_on_arrays(
        no_array, {f"--array {shlex.quote(array.path)}": array for array in arrays}
    )
    return no_array


def not_an_array_error_listing_arrays(found: object) -> TypeError:
    """Error for an argument in place of an array; for a group, notes list its arrays."""
    type_error = not_an_array_error(found)
    if isinstance(found, zarr.Group):
        prefix = join_key(found.path, "")
        arrays = sync(_list_some_arrays_below(found.store, found.path))
        _add_notes_on_arrays(
            type_error,
            {f"group[{node.path.removeprefix(prefix)!r}]": node for node in arrays},
        )
    return type_error


def _add_notes_on_arrays(error: Exception, arrays_by_text: dict[str, _Node]) -> None:
    """Add a note to an error for each array, up to a limit: how to name it, and its shape.

    The keys are the texts by which the user names the arrays.
    """
    for text, array in islice(arrays_by_text.items(), _MAX_LISTED):
        error.add_note(f"  {text}: shape {array.shape}, {array.data_type}")
    if len(arrays_by_text) > _MAX_LISTED:
        error.add_note(f"  and others: {_MAX_LISTED} are listed")


class _Node(NamedTuple):
    """An array or a group, as its metadata document describes it; zarr may not open it."""

    path: str
    kind: Literal["array", "group"]
    shape: str  # as JSON, since it may be anything
    data_type: str  # a name, or JSON


def _node_of(path: str, document: dict[str, Any]) -> _Node:
    """The node at `path` that a metadata document describes; nothing is checked."""
    data_type = document.get("data_type")
    return _Node(
        path,
        kind=document["node_type"],
        shape=short_json(document.get("shape")),
        data_type=data_type if isinstance(data_type, str) else short_json(data_type),
    )


async def _try_read_node(store: Store, path: str) -> _Node | None:
    """The node at `path`; None if there is none, or its document can't be read. Raises nothing."""
    try:
        if _is_folder_without_file(store, join_key(path, METADATA_KEY)):
            return None
        return _node_of(path, await read_metadata_document(store, path))
    except Exception:  # noqa: BLE001 -- of any store
        return None


async def _list_some_arrays_below(store: Store, group_path: str) -> list[_Node]:
    """The arrays in a group and in the groups within, the nearest first.

    With one array more than an error lists, the search ends. The arrays are those of consolidated
    metadata, or else those that the store lists: group by group, because a list of all keys has all
    chunks. Members that cannot be read are passed over.
    """
    arrays = list[_Node]()
    groups = [group_path]
    documents = 0
    for path in groups:  # grows meanwhile, by the groups within
        with suppress(Exception):  # of any store, and of any document
            consolidated = (await read_metadata_document(store, path)).get("consolidated_metadata")
            if consolidated:
                copies = consolidated["metadata"]
                nodes = [_node_of(join_key(path, name), copies[name]) for name in sorted(copies)]
                arrays += [node for node in nodes if node.kind == "array"]
                continue
            for name in sorted([name async for name in store.list_dir(path)]):
                if len(arrays) > _MAX_LISTED or documents > _MAX_DOCUMENTS:
                    return arrays
                documents += 1
                node = await _try_read_node(store, join_key(path, name))
                if node is not None and node.kind == "array":
                    arrays.append(node)
                elif node is not None:
                    groups.append(node.path)
    return arrays


def join_key(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


async def list_keys_by_node(store: Store) -> dict[str, list[str]]:
    """The keys of each array and group of a store, by the path of the array or group.

    Returns
    -------
    dict
        By the path of an array or group, those keys that are not in a node within it, without its
        path: its metadata document and its chunks. For a store that cannot list, one node at the
        root without keys.

    Raises
    ------
    StoreError
        If the store holds no array and no group, or cannot be read.
    """
    keys = list[str]()
    with suppress(Exception):  # any error of a store that cannot list
        # An empty key is a page without links. These are quoted; in addresses, # % ? stay so.
        keys = sorted({key async for key in store.list_prefix("") if key})
        if "http" in getattr(getattr(store, "fs", None), "protocol", ()):
            keys = [unquote(re.sub("%(23|25|3F)", r"%25\1", key)) for key in keys]
    nodes: dict[str, list[str]] = {}
    for key in keys:
        path, _, name = key.rpartition("/")
        if name in (".zarray", METADATA_KEY):
            nodes[path] = []
    for key in keys:
        path = key.rpartition("/")[0]
        while path and path not in nodes:
            path = path.rpartition("/")[0]
        if path in nodes:
            nodes[path].append(key.removeprefix(join_key(path, "")))
    try:
        if not (keys or _is_folder_without_file(store, METADATA_KEY)):
            document = await store.get(METADATA_KEY, cpu.buffer_prototype)
            nodes = {} if document is None else {"": []}
    except Exception as error:
        raise StoreError(f"it cannot be read: {describe_error(error)}") from error
    if not nodes:
        raise StoreError(f"it holds no array and no group of Zarr format 3, no {METADATA_KEY}")
    return nodes


def _is_folder_without_file(store: Store, key: str) -> bool:
    """Whether a folder has no regular file at `key`; False for any other store.

    zarr would wait for a FIFO for ever.
    """
    return isinstance(store, LocalStore) and not (store.root / key).is_file()


async def read_metadata_document(store: Store, node_path: str) -> dict[str, Any]:
    """The metadata document of an array or a group.

    A FileNotFoundError if it is missing, and a ValueError if it is not JSON, or not that of a node.
    """
    buffer = await store.get(join_key(node_path, METADATA_KEY), cpu.buffer_prototype)
    if buffer is None:
        raise FileNotFoundError(join_key(node_path, METADATA_KEY))
    document = json.loads(str(buffer.to_bytes(), "utf-8"))
    kind = document.get("node_type") if isinstance(document, dict) else None
    if kind not in ("array", "group"):
        raise ValueError(f'"node_type" is {short_json(kind)}; permitted are "array" and "group"')
    return document  # type: ignore[no-any-return]
