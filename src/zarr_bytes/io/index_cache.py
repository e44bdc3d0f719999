"""The shard indexes that an open array has fetched, for its next reads.

A kept index is valid as long as its shard doesn't change. An array can't detect changes by others,
not even in its own process: an Icechunk session may discard changes, or the array may be deleted or
replaced by a new array. So only arrays of read-only stores keep indexes, and each array keeps its
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from zarr_bytes.io import counters
from zarr_bytes.settings import checked_setting

if TYPE_CHECKING:
    from zarr.abc.store import Store
    from zarr.storage import StorePath

    from zarr_bytes.layout.elements import Bytes


class _KeptIndex(NamedTuple):
    """The bytes of an index, and the store of its shard.

    The reference to the store is weak, so that a closed array doesn't keep its store open.
    """

    store: ref[Store]
    content: Bytes


class IndexCache:
    """The bytes of the last used indexes, at most ``zarr_bytes.index_cache`` indexes.

    Each entry has the store object and the path of its shard, so arrays may share a cache. A
    pickled cache is empty: the data may change before the pickle is loaded. Any thread may use the
    cache.
    """

    def __init__(self) -> None:
        # By `id` of the store, since many stores have no hash, and by path; the last used is last.
        # Another store may get this `id` later, so the store itself is compared.
        self._indexes: dict[tuple[int, str], _KeptIndex] = {}

    def get(self, store_path: StorePath, index_nbytes: int) -> Bytes | None:
        """The kept index of a shard, which must not be changed; None if none of this size is kept.

        Also None if the cache is switched off. To make the index the last used one, keep it again.
        """
        store = store_path.store
        kept = self._indexes.get((id(store), store_path.path))
        if kept is None or not (store.read_only and checked_setting("zarr_bytes.index_cache")):
            return None
        is_of_store = kept.store() is store
        return kept.content if is_of_store and kept.content.size == index_nbytes else None

    def keep_if_store_is_read_only(self, store_path: StorePath, index: Bytes) -> None:
        """Keep an index as the last used one, if the store is read-only and the cache is on.

        If there are more indexes than the setting permits, the least recently used are dropped. In
        any thread, under `counters.lock`.
        """
        store = store_path.store
        if not store.read_only:
            return
        max_indexes = checked_setting("zarr_bytes.index_cache")
        if max_indexes and index.base is not None:  # a view, perhaps of a whole shard in memory
            index = index.copy()
        key = id(store), store_path.path
        with counters.lock:
            self._indexes.pop(key, None)
            self._indexes[key] = _KeptIndex(ref(store), index)
            while len(self._indexes) > max_indexes:
                del self._indexes[next(iter(self._indexes))]

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexCache, ()
