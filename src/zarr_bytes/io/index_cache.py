"""The indexes of shards that an open array has fetched, for its next reads.

An index that is kept is right as long as its shard does not change. An array cannot know of the
writes of others, also not within its process: an Icechunk session that discards its changes, a
group from which the array is deleted, a new array in its place. So only arrays of read-only stores
keep indexes, and each keeps its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from zarr_bytes.io import counters
from zarr_bytes.settings import setting

if TYPE_CHECKING:
    from zarr.abc.store import Store
    from zarr.storage import StorePath

    from zarr_bytes.layout.elements import Bytes


class IndexCache:
    """The bytes of the indexes that were used last, at most ``zarr_bytes.index_cache`` of them.

    Each has the store object and the path of its shard, so that arrays may share a cache. A pickled
    cache is empty: the data may have changed until it is loaded.
    """

    def __init__(self) -> None:
        # The last used one last. With the store itself, whose `id` another may have later; weakly,
        # since many stores have no hash, and an array that is closed keeps none open.
        self._indexes: dict[tuple[int, str], tuple[ref[Store], Bytes]] = {}

    def get(self, store_path: StorePath, nbytes: int) -> Bytes | None:
        """The index of a shard; None if none of `nbytes` bytes is kept."""
        store = store_path.store
        found = self._indexes.get((id(store), store_path.path))
        if found is None or not (store.read_only and setting("zarr_bytes.index_cache")):
            return None
        store_of_index, index = found
        return index if store_of_index() is store and index.size == nbytes else None

    def keep(self, store_path: StorePath, index: Bytes) -> None:
        """Keep an index as the one that was used last, if the store is read-only."""
        store = store_path.store
        if not store.read_only:
            return
        number = setting("zarr_bytes.index_cache")
        if number and index.base is not None:  # a view, perhaps of a whole shard in memory
            index = index.copy()
        key = id(store), store_path.path
        with counters.lock:
            self._indexes.pop(key, None)
            self._indexes[key] = ref(store), index
            while len(self._indexes) > number:
                del self._indexes[next(iter(self._indexes))]

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexCache, ()
