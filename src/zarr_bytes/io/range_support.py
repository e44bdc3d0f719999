"""Stores that are known to answer byte ranges with ranges, and stores that are known not to."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from zarr.storage import StorePath

if TYPE_CHECKING:
    from zarr.abc.store import ByteGetter

    from zarr_bytes.zarr_versions import SyncByteGetter

# Stores that have answered a range with a range, and stores that have not. By identity, since many
# have no hash.
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


def has_answered_ranges(getter: ByteGetter | SyncByteGetter) -> bool:
    """Whether the store of `getter` has answered a range with a range."""
    return _is_among(_with_ranges, getter)


def note_ranges(getter: ByteGetter | SyncByteGetter) -> None:
    """Remember that the store of `getter` has answered a range with a range."""
    _remember(_with_ranges, getter)


def note_whole_object(getter: ByteGetter | SyncByteGetter) -> bool:
    """Remember that a range has brought the whole object; True for the first of a store."""
    return _remember(_without_ranges, getter)


def store_of(getter: ByteGetter | SyncByteGetter) -> object:
    """The store behind `getter`."""
    return getter.store if isinstance(getter, StorePath) else getter


def _is_among(
    stores: WeakValueDictionary[int, object], getter: ByteGetter | SyncByteGetter
) -> bool:
    store = store_of(getter)
    return stores.get(id(store)) is store


def _remember(
    stores: WeakValueDictionary[int, object], getter: ByteGetter | SyncByteGetter
) -> bool:
    """Add the store of `getter` to `stores`; whether it is new there."""
    with _lock:
        is_new = not _is_among(stores, getter)
        stores[id(store_of(getter))] = store_of(getter)
        return is_new
