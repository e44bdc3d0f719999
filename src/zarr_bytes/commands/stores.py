"""Stores by their path or URL: opening one, being allowed to write to it, and closing it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from zipfile import BadZipFile

from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.commands.folder import Folder
from zarr_bytes.commands.sources import Source, Zip
from zarr_bytes.errors import StoreError, in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zarr.abc.store import Store

__all__ = ["close", "hint", "open_store", "source_of", "storage_options", "writable"]


def storage_options(texts: list[str]) -> dict[str, object]:
    """What fsspec is to be called with, from texts ``key=value``.

    A value is JSON where it can be, true and false in any case of letters, and else the text.

    Raises
    ------
    StoreError
        If a text has no ``=``.

    Examples
    --------
    >>> storage_options(["anon=True", "key=abc", 'client_kwargs={"region_name": "x"}'])
    {'anon': True, 'key': 'abc', 'client_kwargs': {'region_name': 'x'}}
    """
    options: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise StoreError(f"--storage-option: {text!r} is no key=value")
        try:
            options[name] = json.loads(value.lower() if value.lower() in _BOOLS else value)
        except (RecursionError, ValueError):
            options[name] = value
    return options


_BOOLS: Final = ("true", "false")


async def open_store(location: str, options: Mapping[str, object] | None = None) -> Store:
    """Store at a path or URL, to be read: a folder, a ``.zip`` file, or what fsspec opens.

    Parameters
    ----------
    location : str
        Path or URL.
    options : mapping
        What fsspec is to be called with; only for a URL.

    Raises
    ------
    StoreError
        If there is nothing, or a package is missing that opens such a URL.
    """
    if not location:  # such as a variable of the shell that is not set
        raise StoreError("no store is named; . is the folder you are in")
    try:
        url = urlsplit(location)
        is_url = "://" in location
        is_local = is_url and url.scheme in ("file", "local")
        if is_url and not is_local:
            return FsspecStore.from_url(location, dict(options or {}), read_only=True)
        if options:
            raise StoreError("storage options are for URLs, and it is none")
        path = Path(unquote(url.path) if is_local else location)
        if path.is_dir():
            return await LocalStore.open(path, read_only=True)
        if path.suffix == ".zip" and path.is_file():
            return await ZipStore.open(path, mode="r")
        path.stat()
    except FileNotFoundError as error:
        raise StoreError("it does not exist") from error
    except (BadZipFile, ImportError, OSError, TypeError, ValueError) as error:
        raise StoreError(f"it cannot be opened: {in_words(error)}") from error
    raise StoreError("it is no folder, no .zip file and no URL")


def hint(error: BaseException, store: Store) -> str:
    """What to do where `error` says that a store behind a URL lets nobody in."""
    lacks_credentials = isinstance(error, PermissionError) or "Credential" in type(error).__name__
    if not (isinstance(store, FsspecStore) and (lacks_credentials or _is_refusal(error))):
        return ""
    return (
        ". Give credentials with --storage-option key=value, once for each, or say"
        " --storage-option anon=true if everybody may read it; in Python, with"
        ' storage_options={"anon": True}; the keys are those of fsspec\'s'
        f" {type(store.fs).__name__}"
    )


def _is_refusal(error: BaseException) -> bool:
    return getattr(error, "status", None) in (401, 403)  # as aiohttp has it


def writable(store: Store) -> Store:
    """The same store, to be written; with the same connections, which are one event loop's.

    Raises
    ------
    StoreError
        If a document in it cannot be replaced.
    """
    if not (store.supports_writes and store.supports_deletes):
        advice = ": unpack it first" if isinstance(store, ZipStore) else ""
        raise StoreError(f"a document in it cannot be replaced{advice}")
    return store.with_read_only(read_only=False)


async def close(store: Store) -> None:
    """Close a store, with the connections that fsspec leaves to its caller."""
    if isinstance(store, FsspecStore):
        session = getattr(store.fs, "_session", None)
        if session is not None and hasattr(session, "close"):
            with suppress(Exception):  # at the end, what it says helps nobody
                await session.close()
    store.close()


def source_of(store: Store) -> Source:
    """How to ask `store`."""
    if isinstance(store, LocalStore):
        return Folder(store)
    if isinstance(store, ZipStore) and store.path:
        return Zip(store, store.path)
    return Source(store)
