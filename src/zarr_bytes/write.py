"""The engine that writes: new elements for a selection of a chunk or a shard.

In place, only the bytes of the selected elements are written, since gaps between them may belong
to another process, and the index of a shard does not change, so that readers need no lock. All
other objects are rebuilt inner chunk by inner chunk, and replaced.
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
from zarr_bytes.indexing.plan import UNLIMITED, ByteRanges, concatenate_ranges, plan_of
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
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import write_file
from zarr_bytes.io.files import EndOfFileError, open_chunk, record_file_system_of_root
from zarr_bytes.io.known_stores import location_is_known
from zarr_bytes.io.mapping import copied_if_mapped
from zarr_bytes.io.range_writing import PartlyWrittenError, write_block, write_blocks, write_ranges
from zarr_bytes.io.requests import count_request
from zarr_bytes.io.store_names import path_name
from zarr_bytes.io.tasks import map_concurrently, map_in_threads
from zarr_bytes.layout.elements import check_chunk_nbytes, encode_elements, encode_in_blocks
from zarr_bytes.read import read_index, threads_for_files
from zarr_bytes.settings import RequestCost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr.abc.buffer import BufferPrototype, NDBuffer
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import InnerSelection, Plan
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.read import ChunkProjection

# Bytes of a stored inner chunk, which may be changed, by its number; None if it is absent.
_ReadInnerChunk: TypeAlias = "Callable[[int], Bytes | None]"

_ALL_ABSENT: Final[_ReadInnerChunk] = dict[int, Any]().get
_NO_RANGES: Final = ByteRanges(0, 0), np.empty(0, np.uint8)
NO_GAPS: Final = RequestCost(0, UNLIMITED)
"""The cost of a request where no byte between two ranges may be touched."""


async def write_batch(
    batch: Sequence[ChunkProjection],
    value: NDBuffer,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    *,
    in_place: bool,
    skips_empty_chunks: bool,
) -> None:
    """Write selections of chunks of one store straight from the array that the caller gave.

    The value must fit the selection that the batch divides, or is a ValueError before any chunk is
    changed.
    """
    driver = driver_of(batch[0].store_path.store)
    goes_to_files = not driver.why_not_in_place()
    array: Any = value.as_ndarray_like()
    shape = _shape_of_selection(batch)
    root, last = driver.root, None
    may_overlap = goes_to_files and in_place and array.shape != ()
    if not isinstance(array, np.ndarray) and (may_overlap or array.shape not in ((), shape)):
        array = await _load_elements(array)
    if may_overlap:  # before any file is changed
        array = copied_if_mapped(
            array, (f"{root}/{projection.store_path.path}" for projection in batch)
        )
    array = _broadcast_to_selection(array, shape, batch[0].layout.dtype)

    def edit(projection: ChunkProjection) -> ChunkUpdate:
        nonlocal last
        _, layout, chunk_selection, out_selection, is_complete_chunk = projection
        selection_update, plan = last, plan_of(layout, chunk_selection, NO_GAPS)
        if (
            selection_update is None
            or selection_update.plan is not plan
            or selection_update.is_complete_chunk is not is_complete_chunk
        ):
            last = selection_update = SelectionUpdate(
                plan, chunk_selection, is_complete_chunk=is_complete_chunk
            )
        return ChunkUpdate(
            selection_update,
            _elements_at(array, out_selection, drop_axes),
            skips_empty_chunks=skips_empty_chunks,
        )

    def write_to_file(projection: ChunkProjection) -> None:
        new = edit(projection)
        path = f"{root}/{projection.store_path.path}"
        written = 0 if new.is_empty_selection else write_file(path, root, new, in_place=in_place)
        if not new.is_empty_selection:
            counters.count(root, chunks=1, opens=int(written > 0), bytes_written=written)

    if not goes_to_files:
        await map_concurrently(lambda item: edit(item).to_store(item.store_path, prototype), batch)
        return
    if len(batch) > 1 and not location_is_known(root):
        await asyncio.to_thread(record_file_system_of_root, root)
    # A rename waits for the file system (ext4 allocates the blocks then), so that several threads
    # pay from the second chunk on. Writing in place to a local file waits for nothing.
    nbytes = prod(shape) * value.dtype.itemsize
    is_small = value.shape != () and nbytes <= limits.LIMITS.single_thread_nbytes
    is_replaced = not in_place or any(projection.is_complete_chunk for projection in batch)
    threads = threads_for_files(root, len(batch), is_small=is_small and not is_replaced)
    # Another library may read by zarr, which needs the loop and its threads.
    with nullcontext() if isinstance(array, np.ndarray) else ThreadPoolExecutor() as executor:
        await map_in_threads(partial(map, write_to_file), batch, threads, executor)


async def _load_elements(array: Any) -> Array:
    """All elements of an array of another library, which may read them by zarr."""
    with ThreadPoolExecutor(1) as executor:  # zarr needs the loop and its threads
        (elements,) = await map_in_threads(
            partial(map, lambda given: np.asarray(given[...])), [array], 1, executor
        )
    return cast("Array", elements)


def _broadcast_to_selection(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The array in the shape of the whole selection, before any of it is cut; a scalar stays one.

    zarr cuts an array before NumPy broadcasts it, so that of a column some elements could be taken
    for those of a row. An array of another library has the shape already, or is a scalar.
    """
    if array.shape == ():
        is_masked_element = shape == () and isinstance(array, np.ma.MaskedArray)
        return scalar_of(array, dtype) if is_masked_element else array
    return broadcast(array, shape, is_element=shape == ())


def _elements_at(array: Any, out_selection: Any, drop_axes: tuple[int, ...]) -> Array:
    """The elements for a chunk, out of anything with the shape of the selection, or a scalar."""
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
    return tuple([max(map(_stop, places)) for places in distinct])


def _stop(out_selection: Any) -> int:
    if type(out_selection) is slice:
        return max(
            int(out_selection.stop), 0
        )  # zarr 3.1 gives -1 for some empty slices, such as 5:4
    return int(np.max(np.asarray(out_selection), initial=-1) + 1)


class WriteForecast(NamedTuple):
    """What the write of an object will do."""

    counts: Counts
    why_replaced: str  # or empty
    depends_on_values: bool  # less is written where chunks are left out, since they are empty


class SelectionUpdate:
    """What the write of a selection changes in one object, whatever the new elements are."""

    def __init__(self, plan: Plan, chunk_selection: Any, *, is_complete_chunk: bool) -> None:
        # A complete one has everything within the array, so that the rest becomes the fill value.
        self.plan, self.chunk_selection, self.is_complete_chunk = (
            plan,
            chunk_selection,
            is_complete_chunk,
        )
        self.layout = layout = plan.layout
        self.shape = selection_shape(chunk_selection, layout.shape)  # of the new elements
        selects_everything = selects_all(plan.selection.axis_selections, layout.grid.shape)
        self.replaces_all = selects_everything or (is_complete_chunk and not layout.keeps_padding)
        self.is_empty_selection = 0 in plan.selection.shape  # zarr gives a chunk for 8:7, too
        # Whether the new elements are those of a chunk, or of the one inner chunk, as they are.
        is_one = selects_everything and layout.inner_chunk_count == 1 and self.shape == layout.shape
        self.values_are_chunk = is_one and is_basic_selection(chunk_selection)

    def forecast(
        self, index: InnerChunkIndex | None, *, is_file: bool, in_place: bool, why: str
    ) -> WriteForecast:
        """What the write of an object does, in advance.

        Parameters
        ----------
        index
            That of the object; None if the object is missing or nothing of it is kept.
        is_file, in_place
            Whether files are written here, and in place.
        why
            Why the object is replaced, if that is known.
        """
        layout, counts, inner_selections = (
            self.layout,
            Counts(chunks=1),
            list(self.plan.inner_selections()),
        )
        inner, indexes = layout.inner_chunk_nbytes, 0
        selected = (
            sum(
                [
                    inner_selection.slab_planner.stats.fetched_elements
                    for inner_selection in inner_selections
                ]
            )
            * layout.item_size
        )
        starts = (
            []
            if index is None
            else [
                index.offset_of(inner_selection.inner_chunk_number)
                for inner_selection in inner_selections
            ]
        )
        if index is not None and not why:
            indexes, why = 1, _why_rebuild(index, starts)
        # Whether inner chunks of fill values are stored, if a new object is made.
        has_empty_chunks = False
        if self.replaces_all:
            counts.bytes_written = len(inner_selections) * inner + layout.index_nbytes
        elif index is None and in_place:
            counts.bytes_written = new_object_nbytes(layout, selected)
        elif index is None:
            counts.bytes_written = len(inner_selections) * inner + layout.index_nbytes
        elif not why:
            has_empty_chunks = True
            counts.bytes_written = selected
        else:
            has_empty_chunks = in_place and layout.stored_nbytes is None
            there = [
                inner_selection
                for inner_selection, at in zip(inner_selections, starts, strict=True)
                if at is not None
            ]
            number = (
                layout.inner_chunk_count
                if in_place
                else index.present_count + len(inner_selections) - len(there)
            )
            counts.bytes_written = number * inner + layout.index_nbytes
            indexes += 1
            replaced = sum(
                [
                    selects_all(inner_selection.axis_selections, layout.grid.chunk_shape)
                    for inner_selection in there
                ]
            )
            kept = index.present_count - replaced * is_file
            counts.bytes_fetched = kept * inner
            counts.opens, counts.requests, counts.ranges = is_file, not is_file, kept * is_file
        counts.bytes_fetched += indexes * layout.index_nbytes
        counts.ranges += indexes * is_file * bool(layout.index_nbytes)
        counts.opens += is_file
        counts.requests += not is_file
        return WriteForecast(counts, why, not has_empty_chunks)


def _why_rebuild(index: InnerChunkIndex, starts: Sequence[int | None]) -> str:
    """Why inner chunks that begin there are not written in place; or empty."""
    if None in starts:
        return "a shard lacks inner chunks that are selected: `preallocate` adds them"
    if not index.share_no_bytes(cast("list[int]", starts)):
        return "inner chunks of a shard share bytes: `preallocate` parts them"
    return ""


class ChunkUpdate:
    """New elements for what a `change` selects, in its shape or one that NumPy broadcasts to it."""

    def __init__(
        self, selection_update: SelectionUpdate, elements: Array, *, skips_empty_chunks: bool
    ) -> None:
        self._layout = layout = selection_update.layout
        given, dtype = elements.dtype, layout.dtype
        if given != dtype and given.newbyteorder("=") != dtype.newbyteorder("="):
            elements = elements.astype(layout.dtype)  # zarr compares names of types
        self._elements = broadcast(elements, selection_update.shape)
        self._update, self._plan, self._skips_empty_chunks = (
            selection_update,
            selection_update.plan,
            skips_empty_chunks,
        )
        self.replaces_all, self.is_empty_selection = (
            selection_update.replaces_all,
            selection_update.is_empty_selection,
        )
        self._index: tuple[ChunkFile, InnerChunkIndex] | None = None

    async def to_store(self, store_path: StorePath, prototype: BufferPrototype) -> None:
        """Replace an object of any store."""
        layout = self._layout
        if self.is_empty_selection:
            return
        read_inner_chunk: _ReadInnerChunk = _ALL_ABSENT
        existing = None if self.replaces_all else await store_path.get(prototype)
        if existing is not None:
            content = existing.as_numpy_array()
            if layout.stored_nbytes is not None:
                check_chunk_nbytes(content.size, layout.dtype, layout.shape)
            nbytes, index = (
                layout.inner_chunk_nbytes,
                layout.parse_index(content, path_name(store_path)),
            )
            read_inner_chunk = partial(
                _inner, index, lambda start: content[start : start + nbytes].copy()
            )
        inner_selections = self._blocks_of_new_object(
            read_inner_chunk, is_dense=False, at_once=True
        )
        blocks = [data for _, data in sorted(inner_selections, key=itemgetter(0))]
        encoded = blocks[0] if len(blocks) == 1 else np.concatenate([_NO_RANGES[1], *blocks])
        if blocks:
            await store_path.set(prototype.buffer.from_array_like(encoded))
        else:
            await store_path.delete()
        if not self.replaces_all:
            count_request(store_path, None, existing)
        counters.count(store_path.store, chunks=1, requests=1, bytes_written=encoded.size)

    def ranges_in_file(self, file: ChunkFile) -> tuple[ByteRanges, Bytes] | None:
        """None where an inner chunk is absent, or has bytes of another one; else as of `io`."""
        return self._ranges_at(self._index_in(file))

    def writer_of_new_file(
        self, file: ChunkFile | None, *, is_dense: bool
    ) -> Callable[[int], int] | None:
        """As of `io`: inner chunk by inner chunk, or fill values everywhere else."""
        is_dense = is_dense and not self.replaces_all
        if is_dense and file is None:
            is_empty = self._skips_empty_chunks and all(
                self._is_fill_value(data) for _, data in self._encoded
            )
            return None if is_empty else fill_value_object_writer(self._layout, self._ranges_at)
        read_inner_chunk: _ReadInnerChunk = _ALL_ABSENT
        if file is not None and not self.replaces_all:
            read = partial(_read, file, self._layout.inner_chunk_nbytes)
            read_inner_chunk = partial(_inner, self._index_in(file), read)
        inner_selections = self._blocks_of_new_object(read_inner_chunk, is_dense=is_dense)
        first = next(inner_selections, None)
        return None if first is None else partial(write_blocks, chain([first], inner_selections))

    def _index_in(self, file: ChunkFile) -> InnerChunkIndex:
        """The index of a file of the right size, which does not change while the file is open."""
        if self._layout.stored_nbytes is not None:
            file.check_size(self._layout.stored_nbytes)
        if self._index is None or self._index[0] is not file:
            self._index = file, read_index(file, self._layout)
        return self._index[1]

    def _ranges_at(self, index: InnerChunkIndex) -> tuple[ByteRanges, Bytes] | None:
        starts, found = (
            [
                index.offset_of(inner_selection.inner_chunk_number)
                for inner_selection, _ in self._encoded
            ],
            [],
        )
        if _why_rebuild(index, starts):
            return None
        for start, (inner_selection, encoded) in zip(
            cast("list[int]", starts), self._encoded, strict=True
        ):
            ranges = inner_selection.slab_planner.single_slab.ranges
            found.append(
                ByteRanges(
                    start + inner_selection.start_byte, encoded.size, ranges.bounds_from_start
                )
            )
        data = [encoded for _, encoded in self._encoded]
        together = data[0] if len(data) == 1 else np.concatenate(data)
        return concatenate_ranges(found, together.size), together

    @cached_property
    def _encoded(self) -> list[tuple[InnerSelection, Bytes]]:
        """Each part, and the bytes of its ranges one after another."""
        found = []
        for inner_selection in self._plan.inner_selections():
            slab, values = (
                inner_selection.slab_planner.single_slab,
                self._values_of(inner_selection),
            )
            encoded = encode_elements(values, self._layout.endian)
            if slab.selected_index is not None:
                placed = np.empty(slab.ranges.nbytes, np.uint8)
                slab.put(self._raw_elements(encoded, values.shape), placed)
                encoded = placed
            found.append((inner_selection, encoded))
        return found

    def _inner_selections_by_number(self) -> Callable[[int], InnerSelection | None]:
        return self._plan.inner_selections_by_number()

    @cached_property
    def _values(self) -> Array:
        return view_in_stored_order(
            self._elements, self._layout.order, self._update.chunk_selection
        )

    def _values_of(self, inner_selection: InnerSelection) -> Array:
        """The elements for an inner chunk, with its axes as stored."""
        if self._update.values_are_chunk:
            return self._elements.transpose(self._layout.order)
        return cast("Array", self._values[inner_selection.out_selection()])

    def _raw_elements(self, encoded: Bytes, shape: tuple[int, ...]) -> Array:
        return encoded.view(f"V{self._layout.item_size}").reshape(shape)

    def _blocks_of_new_object(
        self, read_inner_chunk: _ReadInnerChunk, *, is_dense: bool, at_once: bool = False
    ) -> Iterator[tuple[int, Bytes]]:
        """Offsets and bytes of a new object: its inner chunks as stored, if any, then its index."""
        layout = self._layout
        is_dense = is_dense and layout.stored_nbytes is None  # a chunk has no others
        skips_empty_chunks = self._skips_empty_chunks and not is_dense
        starts, position = np.full(layout.inner_chunk_count, -1, np.int64), layout.data_offset
        part_of = self._inner_selections_by_number()
        for number in map(int, layout.numbers_in_write_order):
            blocks: Iterable[Bytes] | None
            if (inner_selection := part_of(number)) is not None:
                blocks = self._inner_chunk_blocks(
                    inner_selection,
                    read_inner_chunk,
                    skips_empty_chunks=skips_empty_chunks,
                    at_once=at_once,
                )
            else:
                inner = read_inner_chunk(number)
                blocks = None if inner is None else (inner,)
            if blocks is None and is_dense:
                blocks = (_fill_value_chunk(layout),)
            if blocks is not None:
                starts[number] = position
                for data in blocks:
                    yield position, data
                    position += data.size
        if layout.index_nbytes and starts.max() >= 0:
            index = np.frombuffer(layout.encode_index(starts), np.uint8)
            yield 0 if layout.data_offset else position, index

    def _inner_chunk_blocks(
        self,
        inner_selection: InnerSelection,
        read_inner_chunk: _ReadInnerChunk,
        *,
        skips_empty_chunks: bool,
        at_once: bool,
    ) -> Iterable[Bytes] | None:
        """The bytes of an inner chunk with its new elements, in blocks; None if it is left out."""
        layout, values = self._layout, self._values_of(inner_selection)
        is_whole = selects_all(
            inner_selection.axis_selections, layout.grid.chunk_shape
        )  # the stored one may be damaged
        if is_whole and not at_once:
            blocks = encode_in_blocks(values, layout.endian)
            first = next(blocks)
            if not skips_empty_chunks or not self._is_fill_value(
                first
            ):  # usual: nothing is encoded twice
                return chain([first], blocks)
            is_empty = all(map(self._is_fill_value, blocks))
            return None if is_empty else encode_in_blocks(values, layout.endian)
        merged = encode_elements(values, layout.endian)
        if not is_whole:
            units, inner = (
                self._raw_elements(merged, values.shape),
                read_inner_chunk(inner_selection.inner_chunk_number),
            )
            merged = _fill_value_chunk(layout) if inner is None else inner
            slab = self._plan.slab_planner_of(
                inner_selection.axis_selections, UNLIMITED
            ).single_slab
            slab.put(units, merged[inner_selection.start_byte :])
        return None if skips_empty_chunks and self._is_fill_value(merged) else (merged,)

    def _is_fill_value(self, data: Bytes) -> bool:
        """Whether the bytes of elements are those of fill values: -0.0 or another NaN is not."""
        fill, size = self._layout.stored_fill_value, self._layout.item_size
        step = max(limits.LIMITS.compared_nbytes // size, 1) * size
        return all(
            piece[:size].tobytes() == fill and np.array_equal(piece[size:], piece[:-size])
            for piece in (data[start : start + step] for start in range(0, data.size, step))
        )


def fill_value_object_writer(
    layout: ObjectLayout,
    located: Callable[[InnerChunkIndex], tuple[ByteRanges, Bytes] | None] = lambda _: None,
) -> Callable[[int], int]:
    """The writing of an object of fill values, but for ranges and bytes `located` by its index."""
    content = layout.encode_index()
    ranges, data = located(layout.full_index()) or _NO_RANGES
    fill, nbytes, begin = layout.stored_fill_value, layout.nbytes, layout.data_offset
    size = nbytes + len(content)
    written = new_object_nbytes(layout, ranges.nbytes)

    def write(file: int) -> int:
        try:
            os.truncate(file, min(size, 2**63 - 1))  # zeros take no space on the disk
        except OSError as error:
            raise PartlyWrittenError(error.errno, 0, 0) from error
        if any(fill):
            count = min(max(limits.LIMITS.block_nbytes // len(fill), 1), nbytes // len(fill))
            block = memoryview(fill * count)
            for start in range(0, nbytes, len(block)):
                write_block(file, block[: nbytes - start], begin + start, 0)
        write_block(file, memoryview(content), 0 if begin else nbytes, 0)
        write_ranges(file, ranges, data, size)
        return written

    return write


def new_object_nbytes(layout: ObjectLayout, selected: int) -> int:
    """Number of bytes that `fill_value_object_writer` writes, for so many that are located.

    Zeros of the fill value are a hole in the file, and other fill values are written first.
    """
    fill_nbytes = layout.nbytes if any(layout.stored_fill_value) else 0
    return fill_nbytes + layout.index_nbytes + selected


class _ShardCompletion(ChunkUpdate):
    """No new elements, and all inner chunks of a shard in bytes of their own."""

    def __init__(self, layout: ObjectLayout) -> None:
        self._layout, self._skips_empty_chunks, self._index = layout, False, None
        self.replaces_all = False

    def _inner_selections_by_number(self) -> Callable[[int], InnerSelection | None]:
        return lambda _: None

    def _ranges_at(self, index: InnerChunkIndex) -> tuple[ByteRanges, Bytes] | None:
        starts = [index.offset_of(number) for number in range(self._layout.inner_chunk_count)]
        return None if _why_rebuild(index, starts) else _NO_RANGES


def complete_shard(path: str, root: str, layout: ObjectLayout) -> bool:
    """Give a shard all inner chunks, in bytes of their own; whether it has been replaced."""
    if layout.stored_nbytes is not None:  # a chunk lacks none
        return False
    completion = _ShardCompletion(layout)
    with open_chunk(path, root, may_block=True) or nullcontext() as file:
        if file is not None and completion.ranges_in_file(file) is not None:
            return False
    return write_file(path, root, completion, in_place=True) > 0


def _inner(index: InnerChunkIndex, read: Callable[[int], Bytes], number: int) -> Bytes | None:
    start = index.offset_of(number)
    return None if start is None else read(start)


def _read(file: ChunkFile, nbytes: int, start: int) -> Bytes:
    inner = np.empty(nbytes, np.uint8)
    try:
        file.read_range(memoryview(inner), start)
    except EndOfFileError as end:
        raise wrong_size_error(
            file.path, start, start + nbytes, max(end.offset - start, 0)
        ) from None
    return inner


def _fill_value_chunk(layout: ObjectLayout) -> Bytes:
    """An inner chunk of fill values."""
    if not any(layout.stored_fill_value):
        return np.zeros(layout.inner_chunk_nbytes, np.uint8)
    fill = np.frombuffer(layout.stored_fill_value, f"V{layout.item_size}")
    return np.repeat(fill, layout.inner_chunk_nbytes // layout.item_size).view(np.uint8)
