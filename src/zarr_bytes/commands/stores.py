"""Opening stores by path or URL, and closing them."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote
from zipfile import BadZipFile

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, ZipStore

from zarr_bytes.errors import StoreError, in_words
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def storage_options(texts: list[str]) -> dict[str, object]:
    """Arguments for fsspec from texts ``key=value``, where a value is JSON, or else text.

    Examples
    --------
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
        advice = "" if source is None or isinstance(error, StoreError) else hint(error, source)
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


def member_is_missing(error: KeyError) -> str:
    """Words for the error by which zarr refuses a metadata document without a member."""
    return (
        f"zarr does not open the array, since its metadata has no {error}: `zarr-bytes check` says"
        " what is missing"
    )


def hint(error: BaseException, store: Store) -> str:
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
