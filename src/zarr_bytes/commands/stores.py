"""Opening and closing stores by path or URL; their keys and metadata documents."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.commands.result import is_package_installed, short_json
from zarr_bytes.errors import StoreError, describe_error, not_an_array_error
from zarr_bytes.io.store_names import store_name
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

METADATA_KEY: Final = "zarr.json"
"""Key of the metadata document of an array or a group of format 3, within the node."""
ARRAY_KEY: Final = ".zarray"
"""Key of the metadata document of an array of format 2."""
GROUP_KEY: Final = ".zgroup"
"""Key of the metadata document of a group of format 2."""
ATTRIBUTES_KEY: Final = ".zattrs"
"""Key of the attributes of an array or a group of format 2; it may be missing."""
CONSOLIDATED_KEY: Final = ".zmetadata"
"""Key of the consolidated metadata of a group of format 2; it may be missing."""
DOCUMENT_KEYS: Final = (METADATA_KEY, ARRAY_KEY, GROUP_KEY)
"""Keys of metadata documents; if a node has several, zarr opens the first in this order."""

_DOCUMENT_KEYS_BY_FORMAT: Final = {3: (METADATA_KEY,), 2: (ARRAY_KEY, GROUP_KEY)}
_NO_DOCUMENT: Final = f"no {METADATA_KEY}, {ARRAY_KEY} or {GROUP_KEY}"
# The packages that fsspec needs to open URLs of a scheme.
_PACKAGES_BY_SCHEME: Final = {
    "http": "aiohttp",
    "https": "aiohttp",
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
}
_MAX_LISTED: Final = 20  # arrays that an error lists
_MAX_DOCUMENTS: Final = 1000  # read for such an error: links to folders may form a loop


def parse_storage_options(texts: list[str]) -> dict[str, object]:
    """Arguments for fsspec from texts ``key=value``; a StoreError if one has another form.

    A value is parsed as JSON, and kept as text if it isn't JSON.

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
    """A store, and its name for messages: a path, a URL, or the result of `store_name`."""

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
        A folder, a zip file, a URL, or an open store, which is used as it is.
    storage_options
        Arguments for fsspec; a StoreError if any are given and `store` isn't a URL.

    Raises
    ------
    StoreError
        If the store can't be opened. A StoreError or OSError that is raised within the context is
        converted to a StoreError, too. The messages begin with the name of the store.
    TypeError
        If `store` is of another type.
    """
    if not isinstance(store, str | os.PathLike | Store):
        raise TypeError(
            f"store is of type {type(store).__qualname__}; permitted are a path, a URL and a zarr"
            " store, such as array.store"
        )
    name = store_name(store) if isinstance(store, Store) else os.fspath(store)
    if storage_options and isinstance(store, Store):
        raise StoreError(f"{name}: storage options are for URLs, and this is an open store")
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
    """The store at a path or URL, opened for reading; a StoreError without its name if it fails."""
    if not path_or_url:  # such as from an unset variable of a shell
        raise StoreError("no store is named; . is the folder you are in")
    scheme, separator, rest = path_or_url.partition("://")
    is_url = bool(separator) and scheme.lower() not in ("file", "local")
    if options and not is_url:
        raise StoreError("storage options are for URLs, and this is a path")
    # Also a relative path, as zarr prints the folder of an array: the first name isn't a host.
    path = Path(unquote(rest) if separator else path_or_url)
    try:
        if is_url:
            # With its own file system and connections, which `_close_with_connections` may close.
            fsspec_options = {"skip_instance_cache": True} | dict(options or {})
            return FsspecStore.from_url(path_or_url, fsspec_options, read_only=True)
        if path.is_dir():
            return await LocalStore.open(path, read_only=True)
        if path.suffix == ".zip" and path.is_file():
            return await ZipStore.open(path, mode="r")
        found = "it is not a folder, a .zip file or a URL" if path.exists() else "it does not exist"
    except Exception as error:  # from any file system
        message = f"it cannot be opened: {describe_error(error)}"
        if isinstance(error, ImportError) and (packages := _missing_packages_of_url(scheme)):
            message += f"; pip install {' '.join(packages)}"
        raise StoreError(message) from error
    raise StoreError(found)


def _missing_packages_of_url(scheme: str) -> list[str]:
    """The missing packages that a URL needs: fsspec, and for some schemes another one."""
    last_scheme = scheme.rpartition("::")[2].lower()  # such as in simplecache::s3://bucket
    packages = ["fsspec", *filter(None, [_PACKAGES_BY_SCHEME.get(last_scheme)])]
    return [name for name in packages if not is_package_installed(name)]


async def _close_with_connections(store: Store) -> None:
    """Close a store and its connections, which fsspec leaves open."""
    fs = getattr(store, "fs", None)
    session: Any = getattr(fs, "_s3", None) or getattr(fs, "_session", None)
    if hasattr(session, "close"):
        with suppress(Exception):  # an error while closing has no remedy
            await session.close()
    store.close()


def open_array_at(store: Store, path: str, *, makes_folder_writable: bool) -> zarr.Array[Any]:
    """The array at `path`, opened for reading, or for writing if the store permits it.

    `makes_folder_writable` opens a read-only LocalStore again for writing. A StoreError if zarr
    opens no array at `path`. If there is a group or nothing, the notes of the error list arrays.
    """
    if makes_folder_writable:
        with suppress(NotImplementedError):  # of a zip file, for one
            store = store.with_read_only(read_only=False)
    try:
        return zarr.open_array(store, path=path, mode="r" if store.read_only else "r+")
    except Exception as error:  # from any store, zarr, or any codec or data type
        raise _no_array_error(store, path.strip("/"), error) from error


def _no_array_error(store: Store, path: str, zarr_error: Exception) -> StoreError:
    """Error for a `path` at which zarr opens no array; its notes list arrays.

    The message says whether the store, a metadata document, or the path is at fault.
    """
    try:
        found = sync(_find_document(store, path))
    except Exception as error:  # noqa: BLE001 -- of any store
        return unreadable_store_error(error)
    arrays = list[_Node]()
    if found is None:
        arrays = sync(_list_some_arrays_below(store, ""))
        advice = "name another with --array PATH" if arrays else "see whether it is elsewhere"
        message = f"no array is at /{path}, {_NO_DOCUMENT}: {advice}"
    else:
        try:
            kind = _parse_document(*found).kind
        except Exception as error:  # noqa: BLE001 -- of any document
            return StoreError(f"{join_key(path, found.key)} is damaged: {describe_error(error)}")
        if kind == "array":
            return StoreError(
                f"zarr opens no array at /{path} ({describe_error(zarr_error)}): see its"
                f" {found.key}; `zarr-bytes check` says what is not permitted there"
            )
        arrays = sync(_list_some_arrays_below(store, path))
        message = f"/{path} is a group: name an array in it with --array PATH"
        if not arrays:
            message = f"/{path} is a group without arrays"
    no_array = StoreError(message)
    _add_notes_on_arrays(
        no_array, {f"--array {shlex.quote(array.path)}": array for array in arrays}
    )
    return no_array


def unreadable_store_error(error: Exception) -> StoreError:
    """Error for a store that can't be read, with the error that the store has raised."""
    return StoreError(
        f"it cannot be read: {describe_error(error)}; check that the address is right, the server"
        " answers, and reading is permitted"
    )


def not_an_array_error_listing_arrays(found: object) -> TypeError:
    """Error for an argument that isn't an array; for a group, the notes list its arrays."""
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
    """Add a note to an error for each array, up to a limit, with its shape and data type.

    The keys are the texts with which the user can name the arrays.
    """
    for text, array in islice(arrays_by_text.items(), _MAX_LISTED):
        error.add_note(f"  {text}: shape {array.shape}, {array.data_type}")
    if len(arrays_by_text) > _MAX_LISTED:
        error.add_note(f"  and others: {_MAX_LISTED} are listed")


PathInGroup: TypeAlias = str
"""The path of an array or a group, relative to the group with its consolidated metadata."""


class MetadataDocument(NamedTuple):
    """The metadata document of an array or a group, in format 2 without the attributes."""

    key: str  # in the node, one of `DOCUMENT_KEYS`
    members: dict[str, Any]

    @property
    def zarr_format(self) -> Literal[2, 3]:
        """The Zarr format, which the key tells."""
        return 3 if self.key == METADATA_KEY else 2

    @property
    def kind(self) -> Literal["array", "group"]:
        """The kind of the node."""
        if self.zarr_format == 3:
            return "array" if self.members["node_type"] == "array" else "group"
        return "array" if self.key == ARRAY_KEY else "group"

    @property
    def data_type(self) -> str:
        """The data type in the document: its name, or JSON; empty for a group."""
        data_type = self.members.get("data_type" if self.zarr_format == 3 else "dtype", "")
        return data_type if isinstance(data_type, str) else short_json(data_type)


class _Node(NamedTuple):
    """An array or a group as its metadata document describes it; zarr may fail to open it."""

    path: str
    kind: Literal["array", "group"]
    shape: str  # as JSON, since it may be anything
    data_type: str  # a name, or JSON


def _node_of(path: str, document: MetadataDocument) -> _Node:
    """The node at `path` as a metadata document describes it; nothing is checked."""
    shape = short_json(document.members.get("shape"))
    return _Node(path, document.kind, shape, document.data_type)


async def _try_read_node(store: Store, path: str, keys: Sequence[str]) -> _Node | None:
    """The node at `path` with a document at one of the `keys`; None if no document can be read.

    Raises nothing.
    """
    try:
        return _node_of(path, await read_metadata_document(store, path, keys))
    except Exception:  # noqa: BLE001 -- of any store
        return None


async def _list_some_arrays_below(store: Store, group_path: str) -> list[_Node]:
    """The arrays in a group and its subgroups, the nearest first.

    The search ends with one array more than an error lists. The arrays come from consolidated
    metadata, or otherwise from the store, group by group: a list of all keys would include all
    chunks. Members that can't be read are skipped, and so are members of another format, which zarr
    doesn't find in the group.
    """
    arrays = list[_Node]()
    groups = [group_path]
    documents = 0
    for path in groups:  # the loop appends subgroups
        with suppress(Exception):  # from any store and any document
            document = await read_metadata_document(store, path)
            copies = await _read_consolidated_copies_or_none(store, path, document)
            if copies is not None:
                nodes = [_node_of(join_key(path, name), copies[name]) for name in sorted(copies)]
                arrays += [node for node in nodes if node.kind == "array"]
                continue
            keys = _DOCUMENT_KEYS_BY_FORMAT[document.zarr_format]
            for name in sorted([name async for name in store.list_dir(path)]):
                if len(arrays) > _MAX_LISTED or documents > _MAX_DOCUMENTS:
                    return arrays
                documents += 1
                node = await _try_read_node(store, join_key(path, name), keys)
                if node is not None and node.kind == "array":
                    arrays.append(node)
                elif node is not None:
                    groups.append(node.path)
    return arrays


async def _read_consolidated_copies_or_none(
    store: Store, group_path: str, document: MetadataDocument
) -> dict[str, MetadataDocument] | None:
    """The consolidated metadata of a group, parsed; None if there is none.

    Raises the errors of the store, and any error for consolidated metadata of another form.
    """
    if document.zarr_format == 3:
        return parse_consolidated_copies_or_none(METADATA_KEY, document.members)
    members = await read_json_object_or_none(store, join_key(group_path, CONSOLIDATED_KEY))
    return None if members is None else parse_consolidated_copies_or_none(CONSOLIDATED_KEY, members)


def parse_consolidated_copies_or_none(
    document_key: str, document_members: dict[str, Any]
) -> dict[PathInGroup, MetadataDocument] | None:
    """The copies of documents in consolidated metadata, by path in the group; None if none.

    `document_members` is the whole document at `document_key`: the `zarr.json` or the `.zmetadata`
    of a group. Any error may be raised for consolidated metadata of another form.
    """
    if document_key == METADATA_KEY:
        consolidated = document_members.get("consolidated_metadata")
        if not consolidated:
            return None
        copies = consolidated["metadata"].items()
        return {path: MetadataDocument(METADATA_KEY, copy) for path, copy in copies}
    by_path = dict[PathInGroup, MetadataDocument]()
    for copied_key, copy in document_members["metadata"].items():
        path, _, name = copied_key.rpartition("/")
        if path and name in (ARRAY_KEY, GROUP_KEY):
            by_path[path] = MetadataDocument(name, copy)
    return by_path


def join_key(path: str, name: str) -> str:
    """Key of `name` under `path`."""
    return f"{path}/{name}" if path else name


async def list_keys_by_node(store: Store) -> dict[str, list[str]]:
    """The keys of each array and group of a store, by the path of the array or group.

    Returns
    -------
    dict
        By the path of an array or group, its keys without that path: its metadata document and its
        chunks, but no keys of nodes within it. For a store that can't list, one node at the root
        without keys.

    Raises
    ------
    StoreError
        If the store has no array and no group, or can't be read.
    """
    keys = list[str]()
    with suppress(Exception):  # any error of a store that can't list
        # A page without links gives an empty key. Links are quoted; # % ? stay quoted in addresses.
        keys = sorted({key async for key in store.list_prefix("") if key})
        if "http" in getattr(getattr(store, "fs", None), "protocol", ()):
            keys = [unquote(re.sub("%(23|25|3F)", r"%25\1", key)) for key in keys]
    nodes: dict[str, list[str]] = {}
    for key in keys:
        path, _, name = key.rpartition("/")
        if name in DOCUMENT_KEYS:
            nodes[path] = []
    for key in keys:
        path = key.rpartition("/")[0]
        while path and path not in nodes:
            path = path.rpartition("/")[0]
        if path in nodes:
            nodes[path].append(key.removeprefix(join_key(path, "")))
    try:
        if not keys and await _find_document(store, "") is not None:
            nodes = {"": []}
    except Exception as error:
        raise unreadable_store_error(error) from error
    if not nodes:
        raise StoreError(f"it holds no array and no group, {_NO_DOCUMENT}")
    return nodes


async def read_metadata_document(
    store: Store, node_path: str, keys: Sequence[str] = DOCUMENT_KEYS
) -> MetadataDocument:
    """The metadata document of an array or a group, at the first existing key of `keys`.

    A FileNotFoundError if all keys are missing, and a ValueError if the document isn't JSON, or
    isn't the document of a node.
    """
    found = await _find_document(store, node_path, keys)
    if found is None:
        raise FileNotFoundError(", ".join(join_key(node_path, key) for key in keys))
    return _parse_document(*found)


async def read_json_object_or_none(store: Store, key: str) -> dict[str, Any] | None:
    """The JSON object at a key, such as the attributes of format 2; None if it is missing.

    A ValueError if the content isn't a JSON object.
    """
    content = await _get_or_none(store, key)
    return None if content is None else _parse_json_object(content)


class _KeyAndContent(NamedTuple):
    """A metadata document before it is parsed."""

    key: str  # in the node
    content: bytes


async def _find_document(
    store: Store, node_path: str, keys: Sequence[str] = DOCUMENT_KEYS
) -> _KeyAndContent | None:
    """The document of a node at the first existing key of `keys`; None if all are missing."""
    for key in keys:
        content = await _get_or_none(store, join_key(node_path, key))
        if content is not None:
            return _KeyAndContent(key, content)
    return None


async def _get_or_none(store: Store, key: str) -> bytes | None:
    """The content of the object at a key; None if it is missing, or isn't a file in a folder.

    zarr would wait for a FIFO forever.
    """
    if isinstance(store, LocalStore) and not (store.root / key).is_file():
        return None
    buffer = await store.get(key, cpu.buffer_prototype)
    return None if buffer is None else buffer.to_bytes()


def _parse_document(key: str, content: bytes) -> MetadataDocument:
    """The metadata document with this content; a ValueError if it isn't the document of a node."""
    members = _parse_json_object(content)
    if key == METADATA_KEY and (kind := members.get("node_type")) not in ("array", "group"):
        raise ValueError(f'"node_type" is {short_json(kind)}; permitted are "array" and "group"')
    return MetadataDocument(key, members)


def _parse_json_object(content: bytes) -> dict[str, Any]:
    """The JSON object in this UTF-8 text; a ValueError if it isn't a JSON object."""
    members = json.loads(str(content, "utf-8"))
    if not isinstance(members, dict):
        raise ValueError(f"{short_json(members)} is not a JSON object")
    return members
