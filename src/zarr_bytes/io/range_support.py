"""Stores that are known to answer byte ranges with ranges, and stores that are known not to."""

from __future__ import annotations

import sys
import threading
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

# Hosts and stores that have answered a range with a range, services that always do, and stores that
# have not. Stores by identity, since many have no hash.
_SERVICES: Final = frozenset(("s3://", "gs://", "abfs://", "S3Store", "GCSStore", "AzureStore"))
_origins: set[str] = {*_SERVICES}
_with_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()
_without_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()
_lock = threading.Lock()


def says_that_there_are_no_ranges(error: Exception) -> bool:
    """Whether an error of a store means that it cannot read ranges."""
    obstore = sys.modules.get("obstore.exceptions")  # loaded, if the error is one of its own
    return isinstance(error, NotImplementedError) or (
        obstore is not None and isinstance(error, obstore.NotSupportedError)
    )


def ignores_ranges(store: object) -> bool:
    """Whether a store has answered a range with the whole object, or refused it."""
    return _without_ranges.get(id(store)) is store


def origin_of(service: str, address: str) -> str:
    """A service that always answers ranges, or the host of an address; empty if there is none."""
    return service if service in _SERVICES else urlsplit(address).netloc


def answers_ranges(store: object, origin: str) -> bool:
    """Whether a store, or the host or service behind it, is known to answer ranges with ranges."""
    return origin in _origins or _with_ranges.get(id(store)) is store


def note_ranges(store: object, origin: str) -> None:
    """Remember that a store has answered a range with a range; so does all of its host then."""
    if origin:
        _origins.add(origin)
    else:
        _remember(_with_ranges, store)


def note_whole_object(store: object) -> bool:
    """Remember that a range has brought the whole object; True for the first of a store."""
    return _remember(_without_ranges, store)


def _remember(stores: WeakValueDictionary[int, object], store: object) -> bool:
    """Add a store to `stores`; whether it is new there."""
    with _lock:
        is_new = stores.get(id(store)) is not store
        stores[id(store)] = store
        return is_new
