"""The engine that writes: new elements for a selection of a chunk or a shard.

1. `write_batch` brings the values into the shape of the selection, and makes a `ChunkUpdate` for
   each chunk: a `SelectionUpdate`, which chunks with the same selection share, and new elements.
2. `write_file` of `io.file_writing` opens and locks the file, and asks the update for its ranges in
   this file. In place, only the bytes of the selected elements are written, since gaps between them
   may belong to another process. The index of a shard does not change, so that readers need no
   lock.
3. Where there are no such ranges, the object is rebuilt inner chunk by inner chunk, and replaced.
   An object of which nothing is kept is replaced without a read.
4. In stores that are not folders, `ChunkUpdate.to_store` rebuilds and replaces each object.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import chain
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from zarr_bytes import limits
from zarr_bytes.errors import wrong_size_error
from zarr_bytes.indexing.plan import UNLIMITED, ByteRanges, concatenate_ranges
from zarr_bytes.indexing.selection import (
    broadcast,
    is_basic_selection,
    scalar_of,
    selection_shape,
    selects_all,
    view_in_stored_order,
)
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.file_writing import write_file
from zarr_bytes.io.files import EndOfFileError, open_chunk_file, record_file_system_of_root
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.mapping import copy_if_mapped
from zarr_bytes.io.range_writing import (
    PartlyWrittenError,
    RangeUpdate,
    write_block,
    write_blocks,
    write_ranges,
)
from zarr_bytes.io.requests import count_request
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.io.tasks import map_concurrently, map_in_threads
from zarr_bytes.io.transports import read_index
from zarr_bytes.layout.elements import check_chunk_nbytes, encode_elements, encode_in_blocks
from zarr_bytes.read import threads_for_files
from zarr_bytes.settings import RequestCost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr.abc.buffer import BufferPrototype, NDBuffer
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import InnerSelection, Plan
    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.io.file_writing import NewFileWriter
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.read import ChunkProjection

# By the number of an inner chunk: its stored bytes, which the caller may change; None if absent.
_ReadInnerChunk: TypeAlias = "Callable[[int], Bytes | None]"

_ALL_ABSENT: Final[_ReadInnerChunk] = dict[int, Any]().get
_NO_BYTES: Final = np.empty(0, np.uint8)
_NO_RANGES: Final = RangeUpdate(ByteRanges(0, 0), _NO_BYTES)
NO_GAPS: Final = RequestCost(0, UNLIMITED)
"""The cost of a request where no byte between two ranges may be touched."""


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
    """Write selections of chunks of one store straight from the array that the caller gave.

    Runs on the event loop. Files are written in threads, other objects by requests of the loop.

    Parameters
    ----------
    batch
        At least one chunk, all of one store: zarr's division of one selection of the array.
    driver
        That of the store.
    value
        The new elements of all chunks together, or a scalar. Its array may be one of another
        library.
    drop_axes
        Axes that an integer of an orthogonal selection drops: `value` lacks them.
    prototype
        The class of the buffers that a store other than a folder gets.
    plans
        The last plans of the pipeline.
    in_place
        Whether only the selected bytes of a file are written, where that is possible.
    skips_empty_chunks
        Whether chunks and inner chunks that have only fill values are deleted, or not stored.

    Raises
    ------
    ValueError
        If `value` does not fit the selection. No chunk has been changed then.
    """
    goes_to_files = not driver.why_not_in_place()
    array: Any = value.as_ndarray_like()
    shape = _shape_of_selection(batch)
    root = driver.files_root
    last: SelectionUpdate | None = None
    may_overlap = goes_to_files and in_place and array.shape != ()
    if not isinstance(array, np.ndarray) and (may_overlap or array.shape not in ((), shape)):
        array = await _load_elements(array)
    if may_overlap:  # before any file is changed
        array = copy_if_mapped(
            array, (f"{root}/{projection.store_path.path}" for projection in batch)
        )
    array = _broadcast_unless_scalar(array, shape, batch[0].layout.dtype)

    def edit(projection: ChunkProjection) -> ChunkUpdate:
        # Called by several threads, so that `last` is read once.
        nonlocal last
        _, layout, chunk_selection, out_selection, is_complete_chunk = projection
        plan = plans.plan_of(layout, chunk_selection, NO_GAPS)
        update = last
        if (
            update is None
            or update.plan is not plan
            or update.is_complete_chunk is not is_complete_chunk
        ):
            update = SelectionUpdate(plan, chunk_selection, is_complete_chunk=is_complete_chunk)
            last = update
        elements = _elements_at(array, out_selection, drop_axes)
        return ChunkUpdate(update, elements, skips_empty_chunks=skips_empty_chunks)

    def write_to_file(projection: ChunkProjection) -> None:
        update = edit(projection)
        if update.is_empty_selection:
            return
        path = f"{root}/{projection.store_path.path}"
        written = write_file(path, root, update, in_place=in_place)
        counters.count(root, chunks=1, opens=int(written > 0), bytes_written=written)

    if not goes_to_files:
        await map_concurrently(lambda item: edit(item).to_store(item.store_path, prototype), batch)
        return
    if len(batch) > 1 and not known_stores.file_system_is_known(root):
        await asyncio.to_thread(record_file_system_of_root, root)
    # A rename waits for the file system (ext4 allocates the blocks then), so that several threads
    # pay from the second chunk on. Writing in place to a local file waits for nothing.
    nbytes = prod(shape) * value.dtype.itemsize
    is_small = value.shape != () and nbytes <= limits.LIMITS.single_thread_nbytes
    renames = not in_place or any(projection.is_complete_chunk for projection in batch)
    threads = threads_for_files(root, len(batch), is_small=is_small and not renames)
    # Another library may read by zarr, which needs the loop and its threads.
    with nullcontext() if isinstance(array, np.ndarray) else ThreadPoolExecutor() as executor:
        await map_in_threads(partial(map, write_to_file), batch, threads, executor)


async def _load_elements(array: Any) -> Array:
    """All elements of an array of another library, which may read them by zarr."""
    with ThreadPoolExecutor(1) as executor:  # zarr needs the loop and its threads
        (elements,) = await map_in_threads(
            partial(map, lambda lazy: np.asarray(lazy[...])), [array], 1, executor
        )
    return cast("Array", elements)


def _broadcast_unless_scalar(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The array in the shape of the whole selection, before any of it is cut; a scalar stays one.

    A ValueError if it does not fit. zarr cuts an array before NumPy broadcasts it, so that of a
    column some elements could be taken for those of a row. An array of another library has the
    shape already, or is a scalar.
    """
    if array.shape == ():
        is_masked_element = shape == () and isinstance(array, np.ma.MaskedArray)
        return scalar_of(array, dtype) if is_masked_element else array
    return broadcast(array, shape, is_element=shape == ())


def _elements_at(array: Any, out_selection: Any, drop_axes: tuple[int, ...]) -> Array:
    """The elements for one chunk; `array` has the shape of the whole selection, or is a scalar.

    They have no axis for an integer of the selection, but one of length 1 for each of `drop_axes`.
    """
    if array.shape == ():
        return np.asarray(array)
    elements = np.asarray(array[out_selection])
    return np.expand_dims(elements, drop_axes) if drop_axes else elements


def _shape_of_selection(batch: Sequence[ChunkProjection]) -> tuple[int, ...]:
    """Shape of the selection of the array that zarr has divided by chunk.

    It is not passed to a pipeline. The places of all chunks fill it, so that the last place along
    each axis has its length.
    """
    given = [places if type(places) is tuple else (places,) for *_, places, _ in batch]
    # Chunks side by side share the places along an axis.
    distinct = [{id(p): p for p in along}.values() for along in zip(*given, strict=True)]
    return tuple([max(map(_stop, along_axis)) for along_axis in distinct])


def _stop(out_selection: Any) -> int:
    """The end of a place along one axis, exclusive; 0 of an empty one."""
    if type(out_selection) is slice:
        # zarr 3.1 gives -1 for some empty slices, such as 5:4.
        return max(int(out_selection.stop), 0)
    return int(np.max(np.asarray(out_selection), initial=-1) + 1)


class WriteForecast(NamedTuple):
    """The counts of the write of an object, in advance."""

    counts: Counts
    why_replaced: str  # why the object is not written in place; empty where it is, or is missing
    depends_on_values: bool  # with less to write where (inner) chunks of fill values are skipped


class SelectionUpdate:
    """The part of a write to one object that does not depend on the new elements.

    Chunks with the same selection share it, in several threads: it does not change.

    Parameters
    ----------
    plan
        That of the selection, with `NO_GAPS`.
    chunk_selection
        zarr's selection of the chunk.
    is_complete_chunk
        Whether the selection has all elements of the chunk that are within the array. Those behind
        the edge become the fill value then, unless the layout keeps them.

    Attributes
    ----------
    shape : tuple of int
        Shape of the new elements.
    replaces_all : bool
        Whether nothing of an existing object is kept, so that it need not be read.
    is_empty_selection : bool
        Whether nothing is selected. zarr gives a chunk for the slice 8:7, too.
    values_are_chunk : bool
        Whether the new elements, in their shape and order, are all elements of the object, which
        has one inner chunk.
    """

    def __init__(self, plan: Plan, chunk_selection: Any, *, is_complete_chunk: bool) -> None:
        self.plan = plan
        self.chunk_selection = chunk_selection
        self.is_complete_chunk = is_complete_chunk
        self.layout = layout = plan.layout
        self.shape = selection_shape(chunk_selection, layout.shape)
        selects_everything = selects_all(plan.selection.axis_selections, layout.grid.shape)
        self.replaces_all = selects_everything or (is_complete_chunk and not layout.keeps_padding)
        self.is_empty_selection = 0 in plan.selection.shape
        self.values_are_chunk = (
            selects_everything
            and layout.inner_chunk_count == 1
            and self.shape == layout.shape
            and is_basic_selection(chunk_selection)
        )

    def forecast(
        self, index: InnerChunkIndex | None, *, is_file: bool, in_place: bool, why: str
    ) -> WriteForecast:
        """The counts of the write of an object, in advance; nothing is read.

        Parameters
        ----------
        index
            That of the object; None if the object is missing or nothing of it is kept.
        is_file, in_place
            Whether files are written here, and in place.
        why
            Why the object is replaced, as far as that is known without its index; or empty.
        """
        layout = self.layout
        inner_selections = list(self.plan.inner_selections())
        selected_elements = sum([s.slab_planner.stats.fetched_elements for s in inner_selections])
        selected_nbytes = selected_elements * layout.item_size
        # Of an object that has the selected inner chunks, and no others.
        minimal_nbytes = len(inner_selections) * layout.inner_chunk_nbytes + layout.index_nbytes
        counts = Counts(chunks=1)
        offsets: list[int | None] = []
        if index is not None:
            offsets = [index.offset_of(s.inner_chunk_number) for s in inner_selections]
            if not why:  # the index is read, to find out whether the ranges are all there
                why = _why_rebuild(index, offsets)
                counts.add(_counts_of_index(layout, is_file=is_file))
        # Whether as much is written where the new elements are fill values.
        keeps_empty_chunks = False
        if self.replaces_all or (index is None and not in_place):
            counts.bytes_written = minimal_nbytes
        elif index is None:
            counts.bytes_written = nbytes_written_to_new_object(layout, selected_nbytes)
        elif not why:
            keeps_empty_chunks = True
            counts.bytes_written = selected_nbytes
        else:
            keeps_empty_chunks = in_place and layout.stored_nbytes is None
            existing = [
                inner_selection
                for inner_selection, offset in zip(inner_selections, offsets, strict=True)
                if offset is not None
            ]
            added = len(inner_selections) - len(existing)
            counts.add(
                _counts_of_rebuild(
                    layout, index, existing, added, is_file=is_file, is_dense=in_place
                )
            )
        if is_file:
            counts.opens += 1
        else:
            counts.requests += 1
        return WriteForecast(counts, why, not keeps_empty_chunks)


def _counts_of_index(layout: ObjectLayout, *, is_file: bool) -> Counts:
    """Counts of reading the index of an object; all are 0 for a chunk, which has none."""
    ranges = 1 if is_file and layout.index_nbytes else 0
    return Counts(ranges=ranges, bytes_fetched=layout.index_nbytes)


def _counts_of_rebuild(
    layout: ObjectLayout,
    index: InnerChunkIndex,
    existing: Sequence[InnerSelection],
    added: int,
    *,
    is_file: bool,
    is_dense: bool,
) -> Counts:
    """Counts of reading an object, and of the bytes of the one that replaces it.

    `existing` are the selections of inner chunks that the object has, and `added` is the number of
    selected ones that it lacks. The new object has all inner chunks if it `is_dense`. The opening
    of its file, or the request that writes it, is not counted.
    """
    inner_chunk_count = layout.inner_chunk_count if is_dense else index.present_count + added
    counts = _counts_of_index(layout, is_file=is_file)
    counts.bytes_written = inner_chunk_count * layout.inner_chunk_nbytes + layout.index_nbytes
    fetched = index.present_count
    if is_file:
        # Inner chunks that are selected as a whole are not read.
        chunk_shape = layout.grid.chunk_shape
        fetched -= sum([selects_all(s.axis_selections, chunk_shape) for s in existing])
        counts.opens += 1
        counts.ranges += fetched
    else:
        counts.requests += 1
    counts.bytes_fetched += fetched * layout.inner_chunk_nbytes
    return counts


def _why_rebuild(index: InnerChunkIndex, offsets: Sequence[int | None]) -> str:
    """Why selected inner chunks are not written in place; empty if they are.

    `offsets` are those of the inner chunks in the `index`, with None for an absent one.
    """
    if None in offsets:
        return "a shard lacks inner chunks that are selected: `preallocate` adds them"
    if not index.share_no_bytes_with_others(cast("list[int]", offsets)):
        return "inner chunks of a shard share bytes: `preallocate` parts them"
    return ""


class ChunkUpdate:
    """New elements for the selection of one chunk or shard, and the bytes that they become.

    One thread at a time uses it. It is a `FileUpdate`, for `write_file`; `to_store` is for stores
    other than folders.

    Parameters
    ----------
    selection_update
        The selection, which other chunks may share.
    elements
        In the shape of the selection, or one that NumPy broadcasts to it.
    skips_empty_chunks
        Whether chunks and inner chunks that have only fill values are not stored.
    """

    def __init__(
        self, selection_update: SelectionUpdate, elements: Array, *, skips_empty_chunks: bool
    ) -> None:
        self._layout = selection_update.layout
        # zarr compares the names of types, so that an equal one converts nothing.
        value_dtype = elements.dtype
        dtype = self._layout.dtype
        if value_dtype != dtype and value_dtype.newbyteorder("=") != dtype.newbyteorder("="):
            elements = elements.astype(dtype)
        self._elements = broadcast(elements, selection_update.shape)
        self._selection_update = selection_update
        self._plan = selection_update.plan
        self._skips_empty_chunks = skips_empty_chunks
        self.replaces_all = selection_update.replaces_all
        self.is_empty_selection = selection_update.is_empty_selection
        # The last index, and the file that it is of.
        self._index: InnerChunkIndex | None = None
        self._indexed_file: ChunkFile | None = None

    async def to_store(self, store_path: StorePath, prototype: BufferPrototype) -> None:
        """Replace an object of any store by its `get`, `set` and `delete`; takes no lock."""
        layout = self._layout
        if self.is_empty_selection:
            return
        read_inner_chunk: _ReadInnerChunk = _ALL_ABSENT
        existing = None if self.replaces_all else await store_path.get(prototype)
        if existing is not None:
            content = existing.as_numpy_array()
            if layout.stored_nbytes is not None:
                check_chunk_nbytes(content.size, layout.dtype, layout.shape)
            index = layout.decode_index_of_object(content, store_path_name(store_path))
            nbytes = layout.inner_chunk_nbytes

            def copy_from(start: int) -> Bytes:
                # The store may still have these bytes.
                return content[start : start + nbytes].copy()

            read_inner_chunk = partial(_read_if_present, index, copy_from)
        located = self._blocks_of_new_object(read_inner_chunk, is_dense=False, is_unsplit=True)
        blocks = [data for _, data in sorted(located, key=itemgetter(0))]
        encoded = blocks[0] if len(blocks) == 1 else np.concatenate([_NO_BYTES, *blocks])
        if blocks:
            await store_path.set(prototype.buffer.from_array_like(encoded))
        else:
            await store_path.delete()
        if not self.replaces_all:
            count_request(store_path, None, existing)
        counters.count(store_path.store, chunks=1, requests=1, bytes_written=encoded.size)

    def ranges_in_file(self, file: ChunkFile) -> RangeUpdate | None:
        """The ranges to overwrite in an open, locked file, and their new bytes.

        None if the shard must be rebuilt, because a selected inner chunk is absent or shares bytes
        with another. An error if the file has another size than a chunk, or a damaged index.
        """
        return self._ranges_at(self._index_in(file))

    def writer_unless_empty(
        self, file: ChunkFile | None, *, is_dense: bool
    ) -> NewFileWriter | None:
        """The function that writes the whole new object; None if nothing is to be stored.

        Parameters
        ----------
        file
            The open file to keep unselected elements of. It must stay open until the function has
            been called. None if there is none, or nothing of it is kept.
        is_dense
            Whether the new object has room for all inner chunks, so that later writes go in place.
        """
        is_dense = is_dense and not self.replaces_all
        if is_dense and file is None:
            is_empty = self._skips_empty_chunks and all(
                self._is_fill_value(data) for _, data in self._encoded
            )
            return None if is_empty else fill_value_object_writer(self._layout, self._ranges_at)
        read_inner_chunk: _ReadInnerChunk = _ALL_ABSENT
        if file is not None and not self.replaces_all:
            read = partial(_read_from_file, file, self._layout.inner_chunk_nbytes)
            read_inner_chunk = partial(_read_if_present, self._index_in(file), read)
        blocks = self._blocks_of_new_object(read_inner_chunk, is_dense=is_dense)
        first = next(blocks, None)
        return None if first is None else partial(write_blocks, chain([first], blocks))

    def _index_in(self, file: ChunkFile) -> InnerChunkIndex:
        """The index of a file, read once: it does not change while the file is open.

        An error if the file has another size than a chunk, or a damaged index.
        """
        if self._layout.stored_nbytes is not None:
            file.check_size(self._layout.stored_nbytes)
        if self._index is None or self._indexed_file is not file:
            self._index = read_index(file, self._layout)
            self._indexed_file = file
        return self._index

    def _ranges_at(self, index: InnerChunkIndex) -> RangeUpdate | None:
        """`ranges_in_file` of a file with this index."""
        offsets = [index.offset_of(selection.inner_chunk_number) for selection, _ in self._encoded]
        if _why_rebuild(index, offsets):
            return None
        ranges = []
        for offset, (inner_selection, encoded) in zip(
            cast("list[int]", offsets), self._encoded, strict=True
        ):
            start = offset + inner_selection.start_byte
            bounds = inner_selection.slab_planner.single_slab.ranges.bounds_from_start
            ranges.append(ByteRanges(start, encoded.size, bounds))
        blocks = [encoded for _, encoded in self._encoded]
        data = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return RangeUpdate(concatenate_ranges(ranges, data.size), data)

    @cached_property
    def _encoded(self) -> list[tuple[InnerSelection, Bytes]]:
        """Each selection of an inner chunk, and the new bytes of its ranges one after another."""
        pairs = []
        for inner_selection in self._plan.inner_selections():
            slab = inner_selection.slab_planner.single_slab
            values = self._values_of(inner_selection)
            encoded = encode_elements(values, self._layout.endian)
            if slab.selected_index is not None:
                # In the order of the object; of an index given twice, the last value.
                in_ranges = np.empty(slab.ranges.nbytes, np.uint8)
                slab.put(self._raw_elements(encoded, values.shape), in_ranges)
                encoded = in_ranges
            pairs.append((inner_selection, encoded))
        return pairs

    def _inner_selections_by_number(self) -> Callable[[int], InnerSelection | None]:
        """`Plan.inner_selections_by_number`: of an inner chunk without new elements, None."""
        return self._plan.inner_selections_by_number()

    @cached_property
    def _values(self) -> Array:
        """A view of the new elements with an axis for each stored axis, in the stored order."""
        chunk_selection = self._selection_update.chunk_selection
        return view_in_stored_order(self._elements, self._layout.order, chunk_selection)

    def _values_of(self, inner_selection: InnerSelection) -> Array:
        """The new elements of an inner chunk, with its axes as stored."""
        if self._selection_update.values_are_chunk:
            return self._elements.transpose(self._layout.order)
        return cast("Array", self._values[inner_selection.out_selection()])

    def _raw_elements(self, encoded: Bytes, shape: tuple[int, ...]) -> Array:
        """Encoded elements in a `shape`, as opaque items that NumPy moves without a change."""
        return encoded.view(f"V{self._layout.item_size}").reshape(shape)

    def _blocks_of_new_object(
        self, read_inner_chunk: _ReadInnerChunk, *, is_dense: bool, is_unsplit: bool = False
    ) -> Iterator[tuple[int, Bytes]]:
        """Offsets and bytes of a new object: blocks of its inner chunks, and at last its index.

        Nothing if no inner chunk is stored. The index comes last, wherever it is in the object.

        Parameters
        ----------
        read_inner_chunk
            Gives the inner chunks of the old object; called for those that are not all new.
        is_dense
            Whether absent inner chunks are stored too, as fill values, and empty ones are kept.
        is_unsplit
            Whether each inner chunk is one block, because all must be in memory anyway.
        """
        layout = self._layout
        is_dense = is_dense and layout.stored_nbytes is None  # a chunk has no others
        skips_empty_chunks = self._skips_empty_chunks and not is_dense
        offsets = np.full(layout.inner_chunk_count, -1, np.int64)
        position = layout.data_offset
        inner_selection_of = self._inner_selections_by_number()
        for number in map(int, layout.inner_chunk_numbers_in_write_order):
            blocks: Iterable[Bytes] | None
            if (inner_selection := inner_selection_of(number)) is not None:
                blocks = self._inner_chunk_blocks(
                    inner_selection,
                    read_inner_chunk,
                    skips_empty_chunks=skips_empty_chunks,
                    as_one_block=is_unsplit,
                )
            else:
                inner = read_inner_chunk(number)
                blocks = None if inner is None else (inner,)
            if blocks is None and is_dense:
                blocks = (_fill_value_chunk(layout),)
            if blocks is not None:
                offsets[number] = position
                for data in blocks:
                    yield position, data
                    position += data.size
        if layout.index_nbytes and offsets.max() >= 0:
            index = np.frombuffer(layout.encode_index(offsets), np.uint8)
            yield 0 if layout.data_offset else position, index

    def _inner_chunk_blocks(
        self,
        inner_selection: InnerSelection,
        read_inner_chunk: _ReadInnerChunk,
        *,
        skips_empty_chunks: bool,
        as_one_block: bool,
    ) -> Iterable[Bytes] | None:
        """The bytes of an inner chunk with its new elements, in blocks; None if it is skipped.

        One that is selected as a whole is not read: the stored one may be damaged.
        """
        layout = self._layout
        values = self._values_of(inner_selection)
        is_whole = selects_all(inner_selection.axis_selections, layout.grid.chunk_shape)
        if is_whole and not as_one_block:
            blocks = encode_in_blocks(values, layout.endian)
            first = next(blocks)
            if not skips_empty_chunks or not self._is_fill_value(first):
                return chain([first], blocks)  # the usual case: nothing is encoded twice
            is_empty = all(map(self._is_fill_value, blocks))
            return None if is_empty else encode_in_blocks(values, layout.endian)
        merged = encode_elements(values, layout.endian)
        if not is_whole:
            raw_elements = self._raw_elements(merged, values.shape)
            inner = read_inner_chunk(inner_selection.inner_chunk_number)
            merged = _fill_value_chunk(layout) if inner is None else inner
            # A slab over the gaps, too, unlike that of the plan: `merged` has their bytes.
            planner = self._plan.slab_planner_of(inner_selection.axis_selections, UNLIMITED)
            planner.single_slab.put(raw_elements, merged[inner_selection.start_byte :])
        return None if skips_empty_chunks and self._is_fill_value(merged) else (merged,)

    def _is_fill_value(self, data: Bytes) -> bool:
        """Whether the bytes of elements are those of fill values: -0.0 or another NaN is not."""
        fill = self._layout.stored_fill_value
        size = self._layout.item_size
        step = max(limits.LIMITS.compared_nbytes // size, 1) * size
        return all(
            piece[:size].tobytes() == fill and np.array_equal(piece[size:], piece[:-size])
            for piece in (data[start : start + step] for start in range(0, data.size, step))
        )


def fill_value_object_writer(
    layout: ObjectLayout,
    ranges_at: Callable[[InnerChunkIndex], RangeUpdate | None] | None = None,
) -> NewFileWriter:
    """A function that writes an object with all inner chunks, of fill values, to a new file.

    `ranges_at` gives, by the index of the new object, the ranges of it that have other elements,
    and their new bytes; None if there are none. The function takes a descriptor, and returns the
    number of bytes as `nbytes_written_to_new_object` has it. It raises a PartlyWrittenError.
    """
    index = layout.encode_full_index()
    range_update = None if ranges_at is None else ranges_at(layout.full_index())
    ranges, data = range_update or _NO_RANGES
    fill_value = layout.stored_fill_value
    size = layout.nbytes + len(index)
    index_offset = layout.index_offset(size)
    written = nbytes_written_to_new_object(layout, ranges.nbytes)

    def write(file: int) -> int:
        try:
            os.truncate(file, min(size, 2**63 - 1))  # zeros take no space on the disk
        except OSError as error:
            raise PartlyWrittenError(error.errno, 0, 0) from error
        if any(fill_value):
            _write_fill_values(file, fill_value, layout.data_offset, layout.nbytes)
        write_block(file, memoryview(index), index_offset, 0)
        write_ranges(file, ranges, data, size)
        return written

    return write


def _write_fill_values(file: int, fill_value: bytes, offset: int, nbytes: int) -> None:
    """Write `nbytes` bytes of fill values at an offset, some blocks of memory at a time."""
    most_elements = max(limits.LIMITS.block_nbytes // len(fill_value), 1)
    block = memoryview(fill_value * min(most_elements, nbytes // len(fill_value)))
    for start in range(0, nbytes, len(block)):
        write_block(file, block[: nbytes - start], offset + start, 0)


def nbytes_written_to_new_object(layout: ObjectLayout, selected_nbytes: int) -> int:
    """Number of bytes that `fill_value_object_writer` writes, ranges of other elements included.

    Fill values of zero bytes are a hole in the file. Others are written first, and the ranges over
    them, so that their bytes count twice.
    """
    fill_nbytes = layout.nbytes if any(layout.stored_fill_value) else 0
    return fill_nbytes + layout.index_nbytes + selected_nbytes


class _ShardCompletion(ChunkUpdate):
    """An update without new elements: it gives a shard all inner chunks, in bytes of their own.

    There is no selection and no plan, so that the methods that use these are replaced.
    """

    def __init__(self, layout: ObjectLayout) -> None:
        self._layout = layout
        self._skips_empty_chunks = False
        self._index = None
        self._indexed_file = None
        self.replaces_all = False

    def _inner_selections_by_number(self) -> Callable[[int], InnerSelection | None]:
        return lambda _: None

    def _ranges_at(self, index: InnerChunkIndex) -> RangeUpdate | None:
        """No ranges if the shard is complete; None if it must be rebuilt."""
        offsets = [index.offset_of(number) for number in range(self._layout.inner_chunk_count)]
        return None if _why_rebuild(index, offsets) else _NO_RANGES


def complete_shard(path: str, root: str, layout: ObjectLayout) -> bool:
    """Give a shard all inner chunks, in bytes of their own; whether it has been replaced.

    Runs in a thread: it waits for the exclusive lock of the file, if the file must be replaced.
    A chunk without inner chunks stays as it is.
    """
    if layout.stored_nbytes is not None:
        return False
    completion = _ShardCompletion(layout)
    with open_chunk_file(path, root) or nullcontext() as file:
        if file is not None and completion.ranges_in_file(file) is not None:
            return False
    return write_file(path, root, completion, in_place=True) > 0


def _read_if_present(
    index: InnerChunkIndex, read: Callable[[int], Bytes], number: int
) -> Bytes | None:
    """The bytes of an inner chunk, by `read` from its offset; None if it is absent."""
    offset = index.offset_of(number)
    return None if offset is None else read(offset)


def _read_from_file(file: ChunkFile, nbytes: int, start: int) -> Bytes:
    """Bytes of an open file, in new memory; a ChunkSizeError if the file ends before."""
    content = np.empty(nbytes, np.uint8)
    try:
        file.read_range(memoryview(content), start)
    except EndOfFileError as end:
        found = max(end.offset - start, 0)
        raise wrong_size_error(file.path, start, start + nbytes, found) from None
    return content


def _fill_value_chunk(layout: ObjectLayout) -> Bytes:
    """The bytes of an inner chunk of fill values, in new memory."""
    if not any(layout.stored_fill_value):
        return np.zeros(layout.inner_chunk_nbytes, np.uint8)
    fill_value = np.frombuffer(layout.stored_fill_value, f"V{layout.item_size}")
    return np.repeat(fill_value, layout.inner_chunk_nbytes // layout.item_size).view(np.uint8)
