"""Names of stores and of chunks in messages and results: by class, and by root or URL.

The text of a store of another package isn't used, since it may have any length: a `ManifestStore`
of VirtualiZarr has thousands of characters, and a store of Icechunk has several lines.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from zarr.storage import FsspecStore, LocalStore, ObjectStore, StorePath, WrapperStore, ZipStore

from zarr_bytes.zarr_versions import MEMORY_STORES, wrapped_store

if TYPE_CHECKING:
    from collections.abc import Iterator

# Stores with a URL as text, which zarr can open; the scheme implies the class.
_NAMED_BY_URL: Final = (LocalStore, ZipStore, *MEMORY_STORES)
_LOCATION_ATTRIBUTES: Final = ("url", "root", "path")
_MAX_LOCATION_LENGTH: Final = 200  # characters


def store_name(store: object) -> str:
    """Name of a store for messages: ``file:///data/a.zarr``, ``FsspecStore(s3://bucket/a.zarr)``.

    Stores of one class without a root or URL have the address of the object:
    ``ManifestStore(0x7f5e2c)``. Nothing is raised, even if the properties of the store raise
    errors.
    """
    if type(store) in _NAMED_BY_URL:
        return str(store)
    location = hex(id(store))
    with suppress(Exception):  # from any store: no message may fail because of a name
        location = next(_iter_locations(store), location)
    return f"{type(store).__name__}({location[:_MAX_LOCATION_LENGTH]})"


def store_path_name(store_path: StorePath) -> str:
    """Name of a node or a chunk for messages: the name of the store, `/`, and the path in it."""
    name = store_name(store_path.store)
    return f"{name}/{store_path.path}" if store_path.path else name


def _iter_locations(store: Any) -> Iterator[str]:
    """The URLs, roots and paths of a store, the most specific first; often none.

    Raises the errors that the properties of the store raise.
    """
    if isinstance(store, WrapperStore):
        yield store_name(wrapped_store(store))
    elif isinstance(store, FsspecStore):
        yield store.fs.unstrip_protocol(store.path)
    elif isinstance(store, ObjectStore):
        text = repr(store.store)  # its class, and its bucket or URL, if it has one
        yield store_name(store.store) if text.startswith("<") else text
    for name in _LOCATION_ATTRIBUTES:
        value = getattr(store, name, None)
        if value and isinstance(value, str | os.PathLike):
            yield os.fspath(value)
