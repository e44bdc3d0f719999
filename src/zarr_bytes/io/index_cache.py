"""The indexes of shards that an open array has fetched, for its next reads.

An index that is kept is right as long as its shard does not change. An array cannot know of the
writes of others, also not within its process: an Icechunk session that discards its changes, a
group from which the array is deleted, a new array in its place. So only arrays of read-only stores
keep indexes, and each keeps its own.
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

    Weakly, since an array that is closed keeps no store open.
    """

    store: ref[Store]
    content: Bytes


class IndexCache:
    """The bytes of the indexes that were used last, at most ``zarr_bytes.index_cache`` of them.

    Each has the store object and the path of its shard, so that arrays may share a cache. A pickled
    cache is empty: the data may have changed until it is loaded. Any thread may use it.
    """

    def __init__(self) -> None:
        # By `id` of the store, since many have no hash, and by path; the last used one last.
        # Another store may have this `id` later, so that the store itself is compared.
        self._indexes: dict[tuple[int, str], _KeptIndex] = {}

    def get(self, store_path: StorePath, index_nbytes: int) -> Bytes | None:
        """The kept index of a shard, not to be changed; None if none of this size is kept.

        None, too, once the cache is switched off. Keep it again to make it the last used one.
        """
        store = store_path.store
        kept = self._indexes.get((id(store), store_path.path))
        if kept is None or not (store.read_only and checked_setting("zarr_bytes.index_cache")):
            return None
        is_of_store = kept.store() is store
        return kept.content if is_of_store and kept.content.size == index_nbytes else None

    def keep_if_store_is_read_only(self, store_path: StorePath, index: Bytes) -> None:
        """Keep an index as the last used one, if the store is read-only and the cache is not off.

        The indexes that were not used for longest are dropped, down to the setting. In any thread,
        under `counters.lock`.
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
