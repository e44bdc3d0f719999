"""The engine that writes: new elements for a selection of a chunk or a shard.

1. `write_batch` broadcasts the values to the shape of the selection, and makes a `ChunkUpdate` for
   each chunk: a `SelectionUpdate`, which chunks with equal selections share, and new elements.
2. `write_object` writes an update to a file. It opens and locks the file, and locates the selected
   inner chunks by the index. In place, only the bytes of the selected elements are written, since
   another process may write the gaps between them. The index of a shard doesn't change, so readers
   don't need a lock.
3. If selected inner chunks are absent or share bytes, or the file must not be changed, the object
   is rebuilt inner chunk by inner chunk, and replaced. An object is replaced without a read if
   nothing of it is kept.
4. In stores that aren't folders, `write_to_store` rebuilds and replaces each object.

`explain` calls `write_object` with a `ForecastTarget` instead of a file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from zarr_bytes.errors import wrong_size_error
from zarr_bytes.indexing.plan import UNLIMITED, ByteRanges, concatenate_ranges
from zarr_bytes.indexing.selection import (
    broadcast,
    is_basic_selection,
    is_point_selection,
    scalar_of,
    selection_shape,
    selects_all,
)
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.file_writing import (
    CAN_WRITE_IN_PLACE,
    MAX_ATTEMPTS,
    FileState,
    NewFile,
    OpenedOrMissingChunk,
    open_and_lock_if_exists,
    open_to_replace_unlocked_if_exists,
    too_many_attempts_error,
)
from zarr_bytes.io.files import (
    EndOfFileError,
    open_chunk_file_if_exists,
    record_file_system_of_root,
)
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.mapping import copy_if_maybe_mapped
from zarr_bytes.io.range_writing import NO_RANGES, RangeUpdate
from zarr_bytes.io.requests import count_request
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.io.tasks import map_concurrently, map_in_threads, max_objects_at_once
from zarr_bytes.layout.elements import check_chunk_nbytes
from zarr_bytes.layout.objects import EncodedBlock
from zarr_bytes.read import thread_count_for_files
from zarr_bytes.settings import RequestCost

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from zarr.abc.buffer import Buffer, BufferPrototype, NDBuffer
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import InnerSelection, OutSelection, Plan, Slab
    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.indexing.selection import Offsets
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.file_writing import OffsetAndBytes
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.read import ChunkProjection

# Takes the number of an inner chunk and returns its stored bytes, which the caller may change; None
# if the inner chunk is absent.
_ReadInnerChunk: TypeAlias = "Callable[[int], Bytes | None]"

# A text for the user.
WhyInnerChunksRebuilt: TypeAlias = "str"

_ALL_ABSENT: Final[_ReadInnerChunk] = dict[int, Any]().get
_ALL_ENTRIES: Final = slice(None)  # of an index
_NO_BYTES: Final = np.empty(0, np.uint8)
NO_GAPS: Final = RequestCost(0, UNLIMITED)
"""The cost of a request if bytes between ranges must not be changed."""


async def write_batch(
    batch: Sequence[ChunkProjection],
    driver: Driver,
    value: NDBuffer,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    plans: PlanCache,
    *,
    in_place: bool,
    skips_empty_chunks: bool,
) -> None:
    """Write selections of chunks of one store straight from the caller's array.

    Runs on the event loop. Files are written in threads, other objects by requests on the loop.

    Parameters
    ----------
    batch
        At least one chunk, all in one store: zarr's division of one selection of the array.
    driver
        Driver of the store.
    value
        The new elements of all chunks together, or a scalar. The array may come from another
        library.
    drop_axes
        Axes that integers in an orthogonal selection drop: `value` lacks them.
    prototype
        The class of the buffers that a store other than a folder gets.
    plans
        The last plans of the pipeline.
    in_place
        Whether only the selected bytes of a file are written, if possible.
    skips_empty_chunks
        Whether chunks and inner chunks with only fill values are deleted, or not stored.

    Raises
    ------
    ValueError
        If `value` doesn't fit the selection. No chunk has been changed then.
    """
    goes_to_files = not driver.why_not_in_place()
    array: Any = value.as_ndarray_like()
    shape = _shape_of_selection(batch)
    root = driver.files_root
    may_overlap = goes_to_files and in_place and array.shape != ()
    if not isinstance(array, np.ndarray) and (may_overlap or array.shape not in ((), shape)):
        array = await _load_elements(array)
    if may_overlap and not array.flags.owndata:  # before any file is changed
        array = copy_if_maybe_mapped(
            array, (f"{root}/{projection.store_path.path}" for projection in batch)
        )
    array = _broadcast_unless_scalar(array, shape, batch[0].layout.dtype)

    def update_of(projection: ChunkProjection) -> ChunkUpdate:
        _, layout, chunk_selection, out_selection, is_complete_chunk = projection
        plan = plans.plan_of(layout, chunk_selection, NO_GAPS)
        kept = plans.get_prepared_write_if_kept(plan, is_complete_chunk=is_complete_chunk)
        selection_update = cast("SelectionUpdate | None", kept)
        if selection_update is None:
            selection_update = SelectionUpdate(
                plan, chunk_selection, is_complete_chunk=is_complete_chunk
            )
            plans.keep_prepared_write(selection_update)
        elements = _elements_at(array, out_selection, drop_axes)
        return ChunkUpdate(selection_update, elements, skips_empty_chunks=skips_empty_chunks)

    def write_to_file(projection: ChunkProjection) -> None:
        update = update_of(projection)
        if update.is_empty_selection:
            return
        path = f"{root}/{projection.store_path.path}"
        target = _FileTarget(path, root, update, in_place=in_place)
        write_object(update.selection_update, target)
        if counters.active_counters:
            written = target.bytes_written
            counters.count(root, chunks=1, opens=int(written > 0), bytes_written=written)

    if not goes_to_files:
        layout = batch[0].layout
        min_large_nbytes = layout.limits.min_piece_nbytes
        await map_concurrently(
            lambda item: write_to_store(update_of(item), item.store_path, prototype),
            batch,
            max_objects_at_once(
                layout.nbytes * len(batch),
                len(batch),
                min_large_nbytes,
                is_remote=driver.is_remote,
            ),
        )
        return
    threads = 1
    if len(batch) > 1:
        nbytes = prod(shape) * value.dtype.itemsize
        is_small_in_total = (
            value.shape != () and nbytes <= batch[0].layout.limits.single_thread_nbytes
        )
        threads = await _threads_to_write(
            batch, root, is_small_in_total=is_small_in_total, in_place=in_place
        )
    # Another library may read its array with zarr, which needs the loop and its threads.
    with nullcontext() if isinstance(array, np.ndarray) else ThreadPoolExecutor() as executor:
        await map_in_threads(partial(map, write_to_file), batch, threads, executor)


async def _threads_to_write(
    batch: Sequence[ChunkProjection], root: str, *, is_small_in_total: bool, in_place: bool
) -> int:
    """Number of threads for several files; looks up their file system unless it is known."""
    if not known_stores.file_system_is_known(root):
        await asyncio.to_thread(record_file_system_of_root, root)
    # A rename waits for the file system (ext4 allocates the blocks then), so several threads are
    # faster for two chunks or more. Writing in place to a local file doesn't wait.
    renames = not in_place or any(projection.is_complete_chunk for projection in batch)
    return thread_count_for_files(
        root, len(batch), is_small_in_total=is_small_in_total and not renames
    )


async def _load_elements(array: Any) -> Array:
    """All elements of an array from another library, which may read them with zarr."""
    with ThreadPoolExecutor(1) as executor:  # zarr needs the loop and its threads
        (elements,) = await map_in_threads(
            partial(map, lambda lazy: np.asarray(lazy[...])), [array], 1, executor
        )
    return cast("Array", elements)


def _broadcast_unless_scalar(
    array: Any, shape: tuple[int, ...], dtype_of_masked_scalar: np.dtype[Any]
) -> Any:
    """The array, broadcast to the shape of the whole selection; a scalar stays a scalar.

    A ValueError if the array doesn't fit. The array is broadcast before it is divided by chunk.
    zarr divides it first, so elements of a column could be mistaken for elements of a row. An array
    from another library already has the shape, or is a scalar.
    """
    if array.shape == ():
        is_masked_element = shape == () and isinstance(array, np.ma.MaskedArray)
        return scalar_of(array, dtype_of_masked_scalar) if is_masked_element else array
    return array if array.shape == shape else broadcast(array, shape, requires_scalar=shape == ())


def _elements_at(array: Any, out_selection: Any, drop_axes: tuple[int, ...]) -> Array:
    """The elements for one chunk; `array` has the shape of the whole selection, or is a scalar.

    They have no axis for an integer in the selection, but an axis of length 1 for each of
    `drop_axes`.
    """
    if array.shape == ():
        return np.asarray(array)
    elements = np.asarray(array[out_selection])
    return np.expand_dims(elements, drop_axes) if drop_axes else elements


def _shape_of_selection(batch: Sequence[ChunkProjection]) -> tuple[int, ...]:
    """Shape of the selection of the array, which zarr has divided by chunk.

    zarr doesn't pass the shape to a pipeline. The places of all chunks fill the selection, so the
    length along each axis is the largest end of a place.
    """
    given = [places if type(places) is tuple else (places,) for *_, places, _ in batch]
    # Neighboring chunks share the places along an axis.
    distinct = [{id(p): p for p in along}.values() for along in zip(*given, strict=True)]
    return tuple([max(map(_stop_along_axis, along_axis)) for along_axis in distinct])


def _stop_along_axis(axis_out_selection: slice | Offsets) -> int:
    """The end of a place along one axis, exclusive; 0 for an empty place."""
    if isinstance(axis_out_selection, slice):
        # zarr 3.1 gives -1 for some empty slices, such as 5:4.
        return max(int(axis_out_selection.stop), 0)
    return int(np.max(np.asarray(axis_out_selection), initial=-1) + 1)


class LocatedInnerChunks(NamedTuple):
    """The inner chunks that an update changes, in one object."""

    offsets: Sequence[int | None]  # of these inner chunks, in their order; None for an absent one
    why_rebuilt: WhyInnerChunksRebuilt | None  # why not written in place; None if written in place


class ObjectUpdate(Protocol):
    """The changes of an object, independent of the new elements."""

    replaces_all: bool
    """Whether nothing of an existing object is kept, so that it doesn't have to be read."""

    def locate_inner_chunks_to_overwrite(self, index: InnerChunkIndex) -> LocatedInnerChunks:
        """Locate the inner chunks that must be present for a write in place.

        A ShardIndexError if the index has an impossible offset for one of these inner chunks.
        """


class Opened(Protocol):
    """An object that a target has opened."""

    @property
    def state(self) -> FileState:
        """The state of the object."""

    @property
    def lock_is_shared(self) -> bool:
        """Whether others may hold the lock, too, so that the object must not be replaced."""


OpenedT = TypeVar("OpenedT", bound=Opened)


class WriteTarget(Protocol[OpenedT]):
    """An object that an update is written to: a file, or only counts."""

    path: str

    def open(
        self, *, lock_is_shared: bool, keeps_old_elements: bool
    ) -> AbstractContextManager[OpenedT]:
        """Open and lock the object for a `with` block, like `open_and_lock_if_exists`."""

    def read_index(self, opened: OpenedT) -> InnerChunkIndex:
        """The index of an existing object; an error if it is damaged, or the size is wrong."""

    def overwrite(self, opened: OpenedT, inner_chunk_offsets: Sequence[int]) -> None:
        """Write the new elements in place, into inner chunks that are all present."""

    def try_replace_or_delete(
        self, opened: OpenedT, index_if_old_elements_kept: InnerChunkIndex | None
    ) -> bool:
        """Make a new object, or delete the old one if the new one is empty.

        `index_if_old_elements_kept` is the index of the old object, if its other elements are kept;
        None if no old elements are kept. Returns False if another process has made the object in
        the meantime: it must be opened again.
        """


def write_object(
    update: ObjectUpdate, target: WriteTarget[OpenedT]
) -> WhyInnerChunksRebuilt | None:
    """Write an update to one object: in place, or as a new object; or delete it.

    Runs in a thread, and waits for the lock of a file.

    Returns
    -------
    WhyInnerChunksRebuilt or None
        Why inner chunks of an object that may be written in place had to be rebuilt. None if they
        weren't rebuilt, or if the object couldn't be written in place anyway.

    Raises
    ------
    OSError
        From the system; the message names the chunk and the part of it that has been written.
    ChunkFileError, ChunkSizeError, ShardIndexError
        If the object isn't a file, doesn't have the size of a chunk, or has a damaged index.
    WorkCancelledError
        If the write is cancelled while it waits for a lock; nothing has been written.
    """
    keeps_old_elements = not update.replaces_all
    lock_is_shared = keeps_old_elements
    for _ in range(MAX_ATTEMPTS):
        with target.open(
            lock_is_shared=lock_is_shared, keeps_old_elements=keeps_old_elements
        ) as opened:
            if opened.state is FileState.CHANGED:
                continue
            index: InnerChunkIndex | None = None
            why_rebuilt: WhyInnerChunksRebuilt | None = None
            if keeps_old_elements and opened.state is not FileState.MISSING:
                if opened.state is FileState.WRITABLE:
                    index = target.read_index(opened)
                    offsets, why_rebuilt = update.locate_inner_chunks_to_overwrite(index)
                    if why_rebuilt is None:
                        target.overwrite(opened, cast("Sequence[int]", offsets))
                        return None
                if opened.lock_is_shared:  # others may write into the file that must be replaced
                    lock_is_shared = False
                    continue
                if index is None:
                    index = target.read_index(opened)
            if target.try_replace_or_delete(opened, index):
                return why_rebuilt
    raise too_many_attempts_error(target.path)


def _locate(index: InnerChunkIndex, inner_chunk_numbers: Iterable[int]) -> LocatedInnerChunks:
    """Look up inner chunks in an index; a ShardIndexError if it has an impossible offset."""
    offsets = [index.offset_of(number) for number in inner_chunk_numbers]
    why_rebuilt = None
    if None in offsets:
        why_rebuilt = "a shard lacks inner chunks that are selected"
    elif not index.share_no_bytes_with_others(cast("list[int]", offsets)):
        why_rebuilt = "inner chunks of a shard share bytes"
    return LocatedInnerChunks(offsets, why_rebuilt)


@dataclass
class _FileTarget:
    """The file of a chunk, and its new bytes; for one write, in one thread.

    Attributes
    ----------
    path, root : str
        Path of the file, and root folder of its store.
    in_place : bool
        Whether only the selected bytes are written if possible, under a lock. Other writers in
        place then don't lose anything, if the file system has locks. New shards have all inner
        chunks.
    bytes_written : int
        Number of bytes written; 0 if the chunk is empty and has been deleted, or not made.
    """

    path: str
    root: str
    update: ChunkUpdate | _ShardRebuildIfIncomplete
    in_place: bool
    bytes_written: int = 0

    def open(
        self, *, lock_is_shared: bool, keeps_old_elements: bool
    ) -> AbstractContextManager[OpenedOrMissingChunk]:
        """See `WriteTarget`; takes no lock if nothing is written in place."""
        if self.in_place and CAN_WRITE_IN_PLACE:
            return open_and_lock_if_exists(
                self.path,
                self.root,
                lock_is_shared=lock_is_shared,
                keeps_old_elements=keeps_old_elements,
                max_seconds_without_writes=self.update.layout.limits.lock_seconds,
            )
        return open_to_replace_unlocked_if_exists(
            self.path, self.root, keeps_old_elements=keeps_old_elements
        )

    def read_index(self, opened: OpenedOrMissingChunk) -> InnerChunkIndex:
        """See `WriteTarget`."""
        file = cast("ChunkFile", opened.file)
        layout = self.update.layout
        size = file.size_of_regular_file() if opened.size is None else opened.size
        if layout.stored_nbytes is not None and size != layout.stored_nbytes:
            raise wrong_size_error(file.path, 0, layout.stored_nbytes, size)
        return file.read_index(layout, size)

    def overwrite(self, opened: OpenedOrMissingChunk, inner_chunk_offsets: Sequence[int]) -> None:
        """See `WriteTarget`."""
        range_update = self.update.range_update(inner_chunk_offsets)
        opened.overwrite(range_update)
        self.bytes_written = range_update.ranges.nbytes

    def try_replace_or_delete(
        self, opened: OpenedOrMissingChunk, index_if_old_elements_kept: InnerChunkIndex | None
    ) -> bool:
        """See `WriteTarget`."""
        read_old_inner_chunk: _ReadInnerChunk | None = None
        if index_if_old_elements_kept is not None:
            counters.count(self.root, opens=1)
            file = cast("ChunkFile", opened.file)
            read = partial(_read_from_file, file, self.update.layout.inner_chunk_nbytes)
            read_old_inner_chunk = partial(_read_if_present, index_if_old_elements_kept, read)
        new_file = self.update.new_file_unless_empty(read_old_inner_chunk, is_dense=self.in_place)
        if new_file is None:
            opened.delete()
            return True
        written = opened.try_replace(new_file)
        self.bytes_written = written or 0
        return written is not None


class _OpenedForForecast(NamedTuple):
    """An object that is only counted, and isn't opened."""

    state: FileState
    lock_is_shared: bool


class ForecastTarget:
    """Counts the requests, ranges and bytes of a write to an object; nothing is read or written.

    A write may need less if new elements are fill values.

    Parameters
    ----------
    path
        Path of the object.
    update
        The changes of the object.
    index_if_old_elements_kept
        The index of the object, if old elements are kept; None if not, or if the object is missing.
    uses_files, in_place
        Whether files are written here, and in place.
    must_be_replaced
        Whether the object can't be written in place, whatever its index is.

    Attributes
    ----------
    counts : Counts
        Counts of the write, without chunks.
    depends_on_values : bool
        Whether the counts are smaller if new chunks or inner chunks are empty and skipped.
    """

    def __init__(
        self,
        path: str,
        update: SelectionUpdate,
        index_if_old_elements_kept: InnerChunkIndex | None,
        *,
        uses_files: bool,
        in_place: bool,
        must_be_replaced: bool,
    ) -> None:
        self.path = path
        self.counts = Counts()
        self.depends_on_values = False
        self._update = update
        self._layout = update.layout
        self._index = index_if_old_elements_kept
        self._uses_files = uses_files
        self._is_dense = (
            in_place and not update.replaces_all and self._layout.stores_fill_value_exactly
        )
        self._state = FileState.WRITABLE
        if index_if_old_elements_kept is None:
            self._state = FileState.MISSING
        elif must_be_replaced:
            self._state = FileState.MUST_BE_REPLACED

    def open(
        self, *, lock_is_shared: bool, keeps_old_elements: bool
    ) -> AbstractContextManager[_OpenedForForecast]:
        """See `WriteTarget`; nothing is opened."""
        del keeps_old_elements
        return nullcontext(_OpenedForForecast(self._state, lock_is_shared))

    def read_index(self, opened: _OpenedForForecast) -> InnerChunkIndex:
        """See `WriteTarget`; an object in a store is read whole."""
        del opened
        index = cast("InnerChunkIndex", self._index)
        layout = self._layout
        self.counts.bytes_fetched += layout.index_nbytes
        if not self._uses_files:
            self.counts.requests += 1
            self.counts.bytes_fetched += index.present_count * layout.inner_chunk_nbytes
        elif layout.index_nbytes:
            self.counts.ranges += 1
        return index

    def overwrite(self, opened: _OpenedForForecast, inner_chunk_offsets: Sequence[int]) -> None:
        """See `WriteTarget`."""
        del opened, inner_chunk_offsets
        self.counts.opens += 1
        self.counts.bytes_written += self._update.selected_nbytes

    def try_replace_or_delete(
        self, opened: _OpenedForForecast, index_if_old_elements_kept: InnerChunkIndex | None
    ) -> bool:
        """See `WriteTarget`."""
        del opened
        layout = self._layout
        counts = self.counts
        if self._uses_files:
            counts.opens += 1
        else:
            counts.requests += 1
        self.depends_on_values = True
        inner_selections = list(self._update.plan.inner_selections())
        if index_if_old_elements_kept is None and self._is_dense:
            counts.bytes_written += nbytes_written_to_file_of_fill_values(
                layout, self._update.selected_nbytes
            )
            return True
        inner_chunk_count = len(inner_selections)
        if index_if_old_elements_kept is not None:
            offsets = self._update.locate_inner_chunks_to_overwrite(
                index_if_old_elements_kept
            ).offsets
            existing = [
                one
                for one, offset in zip(inner_selections, offsets, strict=True)
                if offset is not None
            ]
            inner_chunk_count += index_if_old_elements_kept.present_count - len(existing)
            if self._uses_files:  # inner chunks that are selected as a whole aren't read
                chunk_shape = layout.grid.chunk_shape
                whole = sum([selects_all(one.axis_selections, chunk_shape) for one in existing])
                read_count = index_if_old_elements_kept.present_count - whole
                counts.opens += 1
                counts.ranges += read_count
                counts.bytes_fetched += read_count * layout.inner_chunk_nbytes
            if self._is_dense:
                inner_chunk_count = layout.inner_chunk_count
                self.depends_on_values = layout.stored_nbytes is not None
        counts.bytes_written += inner_chunk_count * layout.inner_chunk_nbytes + layout.index_nbytes
        return True


async def write_to_store(
    update: ChunkUpdate, store_path: StorePath, prototype: BufferPrototype
) -> None:
    """Replace or delete an object of any store with `get`, `set` and `delete`; takes no lock."""
    if update.is_empty_selection:
        return
    existing: Buffer | None = None
    if not update.selection_update.replaces_all:
        existing = await store_path.get(prototype)
        count_request(store_path, None, existing)
    encoded = _bytes_of_new_object(update, existing, store_path)
    del existing  # it doesn't have to be in memory while the new object is stored
    if encoded.size:
        await store_path.set(prototype.buffer.from_array_like(encoded))
    else:
        await store_path.delete()
    counters.count(store_path.store, chunks=1, requests=1, bytes_written=encoded.size)


def _bytes_of_new_object(
    update: ChunkUpdate, existing: Buffer | None, store_path: StorePath
) -> Bytes:
    """The bytes of an object after an update; an empty array if nothing should be stored.

    `existing` is the old object; None if there is none, or nothing of it is kept.
    """
    layout = update.layout
    read_old_inner_chunk: _ReadInnerChunk = _ALL_ABSENT
    old_inner_chunk_count = 0
    if existing is not None:
        content = existing.as_numpy_array()
        if layout.stored_nbytes is not None:
            check_chunk_nbytes(content.size, layout.encoded_dtype, layout.shape)
        index = layout.decode_index_of_object(content, store_path_name(store_path))
        old_inner_chunk_count = index.present_count
        nbytes = layout.inner_chunk_nbytes

        def copy_from(start: int) -> Bytes:
            # The store may still use these bytes.
            return content[start : start + nbytes].copy()

        read_old_inner_chunk = partial(_read_if_present, index, copy_from)
    blocks = update.blocks_of_new_object(read_old_inner_chunk, is_dense=False, is_unsplit=True)
    return _assemble_object(blocks, update.max_nbytes_of_new_object(old_inner_chunk_count))


class SelectionUpdate:
    """The part of a write to one object that doesn't depend on the new elements.

    An `ObjectUpdate` and a `PreparedWrite`. Chunks with equal selections share it, in several
    threads: only its last results change, and each of them is replaced as a whole.

    Parameters
    ----------
    plan
        Plan of the selection, with `NO_GAPS`.
    chunk_selection
        zarr's selection of the chunk.
    is_complete_chunk
        Whether the selection has all elements of the chunk that are within the array. Elements
        beyond the edge of the array then become the fill value, unless the layout keeps them.

    Attributes
    ----------
    replaces_all : bool
        Whether nothing of an existing object is kept, so that it doesn't have to be read.
    values_are_chunk : bool
        Whether the new elements, in their shape and order, are all elements of the object. The
        object then has one inner chunk.
    """

    def __init__(self, plan: Plan, chunk_selection: Any, *, is_complete_chunk: bool) -> None:
        self.plan = plan
        self.chunk_selection = chunk_selection
        self.is_complete_chunk = is_complete_chunk
        self.layout = layout = plan.layout
        selects_everything = selects_all(plan.selection.axis_selections, layout.grid.shape)
        self.replaces_all = selects_everything or (is_complete_chunk and not layout.keeps_padding)
        self.values_are_chunk = (
            selects_everything
            and layout.inner_chunk_count == 1
            and self.shape == layout.shape
            and is_basic_selection(chunk_selection)
        )
        # The last results, with their keys: the entries of an index, and offsets.
        self._last_located: tuple[Hashable, LocatedInnerChunks] | None = None
        self._last_ranges: tuple[Sequence[int], ByteRanges] | None = None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the new elements."""
        return selection_shape(self.chunk_selection, self.layout.shape)

    @property
    def selected_nbytes(self) -> int:
        """Bytes of the selected elements; an element that is selected twice counts once."""
        planners = [one.slab_planner for one in self.plan.inner_selections()]
        return sum([one.stats.fetched_elements for one in planners]) * self.layout.item_size

    def locate_inner_chunks_to_overwrite(self, index: InnerChunkIndex) -> LocatedInnerChunks:
        """See `ObjectUpdate`; for the inner chunks with selected elements, in the plan's order."""
        key = index.key_of_entries(_ALL_ENTRIES)
        last = self._last_located
        if last is not None and last[0] == key:
            return last[1]
        numbers = (one.inner_chunk_number for one in self.plan.inner_selections())
        located = _locate(index, numbers)
        self._last_located = key, located
        return located

    def ranges_at(self, inner_chunk_offsets: Sequence[int]) -> ByteRanges:
        """The ranges of the selection in an object with its inner chunks at these offsets.

        The ranges and the offsets are in the order of the plan.
        """
        last = self._last_ranges
        if last is not None and last[0] == inner_chunk_offsets:
            return last[1]
        together = []
        for offset, inner_selection in zip(
            inner_chunk_offsets, self.plan.inner_selections(), strict=True
        ):
            ranges = inner_selection.slab_planner.slab_of_all_ranges.ranges
            start = offset + inner_selection.offset_in_inner_chunk
            together.append(ByteRanges(start, ranges.nbytes, ranges.bounds_from_offset_if_several))
        all_ranges = concatenate_ranges(together, sum([one.nbytes for one in together]))
        self._last_ranges = inner_chunk_offsets, all_ranges
        return all_ranges

    @cached_property
    def placed_slabs(self) -> list[tuple[Slab, OutSelection]]:
        """The slab of each inner chunk, and the places of its elements in the new elements.

        The places are in an array with an axis for each stored axis, in the stored order.
        """
        return [
            (one.slab_planner.slab_of_all_ranges, one.out_selection())
            for one in self.plan.inner_selections()
        ]

    @cached_property
    def newaxis_index_of_values_or_none_if_points(self) -> tuple[Any, ...] | None:
        """The NumPy index that adds the axes of integers to new elements.

        None for points, which have one axis.
        """
        if is_point_selection(self.chunk_selection):
            return None
        is_integer = [type(entry) is int for entry in self.chunk_selection]
        return (*[None if one else slice(None) for one in is_integer], ...)


class ChunkUpdate:
    """New elements for the selection of one chunk or shard, and their encoded bytes.

    Only one thread at a time may use an update.

    Parameters
    ----------
    selection_update
        The selection, which other chunks may share.
    elements
        New elements in the shape of the selection, or a scalar.
    skips_empty_chunks
        Whether chunks and inner chunks with only fill values are not stored.

    Attributes
    ----------
    is_empty_selection : bool
        Whether nothing is selected. zarr also sends a chunk for the slice 8:7.
    """

    def __init__(
        self, selection_update: SelectionUpdate, elements: Array, *, skips_empty_chunks: bool
    ) -> None:
        self.selection_update = selection_update
        self.layout = selection_update.layout
        # zarr compares the names of types, so it doesn't convert between types of equal name.
        value_dtype = elements.dtype
        dtype = self.layout.dtype
        if value_dtype != dtype:
            # Elements are encoded in the byte order of the layout, or else of each field.
            differs_in_byte_order_only = value_dtype.newbyteorder("=") == dtype.newbyteorder("=")
            if self.layout.endian is None or not differs_in_byte_order_only:
                elements = elements.astype(dtype)
        if elements.size:
            elements = self.layout.encode_before_shards(elements)
        if not elements.shape:
            elements = np.broadcast_to(elements, selection_update.shape)
        self.is_empty_selection = not elements.size
        self._elements = elements
        self._plan = selection_update.plan
        self._skips_empty_chunks = skips_empty_chunks

    def range_update(self, inner_chunk_offsets: Sequence[int]) -> RangeUpdate:
        """The ranges of an object to overwrite, and their new bytes.

        The offsets are in the order of the plan.
        """
        ranges = self.selection_update.ranges_at(inner_chunk_offsets)
        return RangeUpdate(ranges, self._new_bytes_of_ranges, self.layout.limits)

    def new_file_unless_empty(
        self, read_old_inner_chunk: _ReadInnerChunk | None, *, is_dense: bool
    ) -> NewFile | None:
        """The new object as a file; None if nothing should be stored.

        Parameters
        ----------
        read_old_inner_chunk
            Returns the inner chunks of the old object, while the new one is written. None if there
            is no old object, or if nothing of it is kept.
        is_dense
            Whether the new object gets room for all inner chunks, so that later writes can be in
            place; only if the layout `stores_fill_value_exactly`.
        """
        is_dense = (
            is_dense
            and not self.selection_update.replaces_all
            and self.layout.stores_fill_value_exactly
        )
        if is_dense and read_old_inner_chunk is None:
            block = EncodedBlock(self._values_in_stored_order, self._new_bytes_of_ranges)
            if self._skips_empty_chunks and self.layout.are_fill_values(block):
                return None
            offsets = self.selection_update.locate_inner_chunks_to_overwrite(
                self.layout.full_index
            ).offsets
            return file_of_fill_values(
                self.layout, self.range_update(cast("Sequence[int]", offsets))
            )
        blocks = self.blocks_of_new_object(read_old_inner_chunk or _ALL_ABSENT, is_dense=is_dense)
        return _file_of_blocks_unless_empty(blocks)

    def blocks_of_new_object(
        self, read_old_inner_chunk: _ReadInnerChunk, *, is_dense: bool, is_unsplit: bool = False
    ) -> Iterator[OffsetAndBytes]:
        """Like the function `_blocks_of_new_object`, for inner chunks with their new elements.

        Parameters
        ----------
        read_old_inner_chunk
            Returns the inner chunks of the old object; called for inner chunks with old elements.
        is_dense
            Whether absent inner chunks are also stored, as fill values, and empty ones are kept.
        is_unsplit
            Whether each inner chunk is one block, because all must be in memory anyway.
        """
        is_dense = is_dense and self.layout.stored_nbytes is None  # only a shard has others
        skips_empty_chunks = self._skips_empty_chunks and not is_dense
        inner_selection_of = self._plan.inner_selections_by_number()

        def blocks_of(number: int) -> Iterable[Bytes] | None:
            inner_selection = inner_selection_of(number)
            if inner_selection is None:
                return _as_one_block(read_old_inner_chunk(number))
            return self._inner_chunk_blocks(
                inner_selection,
                read_old_inner_chunk,
                skips_empty_chunks=skips_empty_chunks,
                as_one_block=is_unsplit,
            )

        return _blocks_of_new_object(self.layout, blocks_of, is_dense=is_dense)

    def max_nbytes_of_new_object(self, old_inner_chunk_count: int) -> int:
        """Most bytes of a new object, if the old one has `old_inner_chunk_count` inner chunks."""
        layout = self.layout
        count = old_inner_chunk_count + self._plan.selected_inner_chunk_count
        return (
            min(count, layout.inner_chunk_count) * layout.inner_chunk_nbytes + layout.index_nbytes
        )

    @cached_property
    def _new_bytes_of_ranges(self) -> Bytes:
        """The new bytes of all ranges one after another, in the order of the plan."""
        values = self._values_in_stored_order
        encoded = self._raw_elements(self.layout.encode(values), values.shape)
        slabs = self.selection_update.placed_slabs
        first_slab, first_places = slabs[0]
        if len(slabs) == 1 and first_slab.selected_index is None:  # without a copy, if possible
            return cast("Bytes", encoded[first_places].ravel().view(np.uint8))
        data = np.empty(sum([slab.ranges.nbytes for slab, _ in slabs]), np.uint8)
        position = 0
        for slab, places in slabs:
            # In the order of the object; if an index is given twice, with its last value.
            slab.put_into_bytes(encoded[places], data[position:])
            position += slab.ranges.nbytes
        return data

    @cached_property
    def _values_in_stored_order(self) -> Array:
        """A view of the new elements with an axis for each stored axis, in the stored order.

        Points have one axis.
        """
        index = self.selection_update.newaxis_index_of_values_or_none_if_points
        if index is None:
            return self._elements
        with_all_axes: Array = self._elements[index]
        return with_all_axes.transpose(self.layout.order)

    def _values_of(self, inner_selection: InnerSelection) -> Array:
        """The new elements of an inner chunk, with its axes as stored."""
        if self.selection_update.values_are_chunk:
            return self._elements.transpose(self.layout.order)
        return cast("Array", self._values_in_stored_order[inner_selection.out_selection()])

    def _raw_elements(self, encoded: Bytes, shape: tuple[int, ...]) -> Array:
        """Encoded elements in a `shape`, as opaque items that NumPy copies unchanged."""
        return encoded.view(f"V{self.layout.item_size}").reshape(shape)

    def _inner_chunk_blocks(
        self,
        inner_selection: InnerSelection,
        read_old_inner_chunk: _ReadInnerChunk,
        *,
        skips_empty_chunks: bool,
        as_one_block: bool,
    ) -> Iterable[Bytes] | None:
        """The bytes of an inner chunk with its new elements, in blocks; None if it is skipped.

        An inner chunk that is selected as a whole isn't read, since it may be damaged in the file.
        """
        layout = self.layout
        values = self._values_of(inner_selection)
        is_whole = selects_all(inner_selection.axis_selections, layout.grid.chunk_shape)
        if is_whole and not as_one_block:
            blocks = layout.encode_in_blocks(values)
            first = next(blocks)
            if not skips_empty_chunks or not layout.are_fill_values(first):
                # The usual case: nothing is encoded twice.
                return (block.encoded for block in chain([first], blocks))
            if all(map(layout.are_fill_values, blocks)):
                return None
            return (block.encoded for block in layout.encode_in_blocks(values))
        new = EncodedBlock(values, layout.encode(values))
        merged = new.encoded
        was_absent = is_whole  # or has no other elements
        if not is_whole:
            raw_elements = self._raw_elements(merged, values.shape)
            inner = read_old_inner_chunk(inner_selection.inner_chunk_number)
            was_absent = inner is None
            merged = _inner_chunk_of_fill_values(layout) if inner is None else inner
            # Unlike the slab of the plan, this slab includes gaps: `merged` has their bytes.
            planner = self._plan.slab_planner_of(inner_selection.axis_selections, UNLIMITED)
            planner.slab_of_all_ranges.put_into_bytes(
                raw_elements, merged[inner_selection.offset_in_inner_chunk :]
            )
        if skips_empty_chunks and layout.inner_chunk_has_only_fill_values(
            new, merged, was_absent=was_absent
        ):
            return None
        return (merged,)


def _blocks_of_new_object(
    layout: ObjectLayout, blocks_of: Callable[[int], Iterable[Bytes] | None], *, is_dense: bool
) -> Iterator[OffsetAndBytes]:
    """Offsets and bytes of a new object: blocks of its inner chunks, and finally its index.

    Yields nothing if no inner chunk is stored. The index comes last, wherever it is in the object.

    Parameters
    ----------
    blocks_of
        Returns the bytes of an inner chunk by its number; None if it is absent.
    is_dense
        Whether absent inner chunks are stored as fill values.
    """
    offsets = np.full(layout.inner_chunk_count, -1, np.int64)
    position = layout.data_offset
    for number in map(int, layout.inner_chunk_numbers_in_write_order):
        blocks = blocks_of(number)
        if blocks is None and is_dense:
            blocks = (_inner_chunk_of_fill_values(layout),)
        if blocks is not None:
            offsets[number] = position
            for data in blocks:
                yield position, data
                position += data.size
    if layout.index_nbytes and offsets.max() >= 0:
        index = np.frombuffer(layout.encode_index(offsets), np.uint8)
        yield 0 if layout.data_offset else position, index


def _assemble_object(blocks: Iterator[OffsetAndBytes], max_nbytes: int) -> Bytes:
    """All bytes of a new object of at most `max_nbytes`; an empty array if nothing is stored.

    The blocks leave no gaps. A single block isn't copied. The first blocks, up to a quarter of
    `max_nbytes`, are made before they are copied: if there are no others, the object is sparse, and
    no memory for `max_nbytes` is needed. All others are made and copied one after another, so that
    they are not in memory besides the object.
    """
    first_blocks: deque[OffsetAndBytes] = deque()
    first_nbytes = 0
    for offset, data in blocks:
        first_blocks.append((offset, data))
        first_nbytes += data.size
        if first_nbytes > max_nbytes // 4 and len(first_blocks) > 1:
            break
    if not first_blocks:
        return _NO_BYTES
    if len(first_blocks) == 1:
        return first_blocks[0][1]
    is_sparse = first_nbytes <= max_nbytes // 4  # there are no other blocks
    content = np.empty(first_nbytes if is_sparse else max_nbytes, np.uint8)
    nbytes = 0
    # Each block is dropped once it is copied.
    taken_blocks = (first_blocks.popleft() for _ in range(len(first_blocks)))
    for offset, data in chain(taken_blocks, blocks):
        stop = offset + data.size
        content[offset:stop] = data
        nbytes = max(nbytes, stop)
    # Not a view, since a store may keep the memory as long as the object exists.
    content.resize(nbytes, refcheck=False)
    return content


def _file_of_blocks_unless_empty(blocks: Iterator[OffsetAndBytes]) -> NewFile | None:
    """A new file of these blocks; None if there are none. The first block is made immediately."""
    first = next(blocks, None)
    return None if first is None else NewFile(chain([first], blocks))


def file_of_fill_values(layout: ObjectLayout, range_update: RangeUpdate = NO_RANGES) -> NewFile:
    """A new file with all inner chunks: fill values, except in the ranges of an update."""
    blocks = _blocks_of_nonzero_fill_values_and_index(layout)
    return NewFile(blocks, layout.max_stored_nbytes, range_update)


def _blocks_of_nonzero_fill_values_and_index(layout: ObjectLayout) -> Iterator[OffsetAndBytes]:
    """Offsets and bytes of a file of fill values and its index, in blocks of bounded size.

    Zeros are left out, so they are a hole in the file.
    """
    fill_value = layout.stored_fill_value
    nbytes = layout.nbytes
    if any(fill_value):
        most_elements = max(layout.limits.block_nbytes // len(fill_value), 1)
        repeated = fill_value * min(most_elements, nbytes // len(fill_value))
        block = np.frombuffer(repeated, np.uint8)
        for start in range(0, nbytes, block.size):
            yield layout.data_offset + start, block[: nbytes - start]
    if layout.index_nbytes:
        index = np.frombuffer(layout.encoded_full_index, np.uint8)
        yield layout.index_offset(nbytes + layout.index_nbytes), index


def nbytes_written_to_file_of_fill_values(layout: ObjectLayout, selected_nbytes: int) -> int:
    """Number of bytes that are written to a `file_of_fill_values`, with the ranges of an update.

    Fill values of zero bytes are a hole in the file. Other fill values are written first, and then
    overwritten by the ranges, so the bytes of the ranges count twice.
    """
    fill_nbytes = layout.nbytes if any(layout.stored_fill_value) else 0
    return fill_nbytes + layout.index_nbytes + selected_nbytes


class _ShardRebuildIfIncomplete:
    """An update without new elements, which completes a shard.

    A shard is replaced by a shard with all inner chunks if it lacks any, or if they share bytes.

    An `ObjectUpdate` that also has the bytes for a `_FileTarget`, like a `ChunkUpdate`.
    """

    replaces_all = False

    def __init__(self, layout: ObjectLayout) -> None:
        self.layout = layout

    def locate_inner_chunks_to_overwrite(self, index: InnerChunkIndex) -> LocatedInnerChunks:
        """See `ObjectUpdate`; for all inner chunks."""
        return _locate(index, range(self.layout.inner_chunk_count))

    def range_update(self, _: Sequence[int]) -> RangeUpdate:
        """No ranges, wherever the inner chunks are: the shard is complete."""
        return NO_RANGES

    def new_file_unless_empty(
        self, read_old_inner_chunk: _ReadInnerChunk | None, *, is_dense: bool
    ) -> NewFile | None:
        """A file with the inner chunks of the old shard; absent inner chunks get fill values."""
        if read_old_inner_chunk is None:
            return file_of_fill_values(self.layout)

        def blocks_of(number: int) -> Iterable[Bytes] | None:
            return _as_one_block(read_old_inner_chunk(number))

        return _file_of_blocks_unless_empty(
            _blocks_of_new_object(self.layout, blocks_of, is_dense=is_dense)
        )


def make_or_complete_shard(path: str, root: str, layout: ObjectLayout) -> bool:
    """Make or replace a shard, so that it has all inner chunks and they don't share bytes.

    Runs in a thread: it waits for the exclusive lock of the file, if the file must be replaced. A
    chunk without inner chunks is unchanged. Returns whether the shard had to be made or replaced.
    """
    if layout.stored_nbytes is not None:
        return False
    rebuild = _ShardRebuildIfIncomplete(layout)
    with open_chunk_file_if_exists(path, root) or nullcontext() as file:
        if file is not None:
            index = file.read_index(layout)
            if rebuild.locate_inner_chunks_to_overwrite(index).why_rebuilt is None:
                return False
    target = _FileTarget(path, root, rebuild, in_place=True)
    write_object(rebuild, target)
    return target.bytes_written > 0


def _as_one_block(data: Bytes | None) -> Iterable[Bytes] | None:
    """The bytes of an inner chunk as the only block; None if it is absent."""
    return None if data is None else (data,)


def _read_if_present(
    index: InnerChunkIndex, read_at_offset: Callable[[int], Bytes], inner_chunk_number: int
) -> Bytes | None:
    """The bytes of an inner chunk, from `read_at_offset`; None if it is absent."""
    offset = index.offset_of(inner_chunk_number)
    return None if offset is None else read_at_offset(offset)


def _read_from_file(file: ChunkFile, nbytes: int, start: int) -> Bytes:
    """Bytes of an open file, in new memory; a ChunkSizeError if the file ends too early."""
    content = np.empty(nbytes, np.uint8)
    try:
        file.read_range(memoryview(content), start)
    except EndOfFileError as end:
        found = max(end.offset - start, 0)
        raise wrong_size_error(file.path, start, start + nbytes, found) from None
    return content


def _inner_chunk_of_fill_values(layout: ObjectLayout) -> Bytes:
    """The bytes of an inner chunk of fill values, in new memory."""
    if not any(layout.stored_fill_value):
        return np.zeros(layout.inner_chunk_nbytes, np.uint8)
    fill_value = np.frombuffer(layout.stored_fill_value, f"V{layout.item_size}")
    return np.repeat(fill_value, layout.inner_chunk_nbytes // layout.item_size).view(np.uint8)
