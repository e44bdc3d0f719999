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
from zarr_bytes.errors import wrong_size
from zarr_bytes.indexing.plan import EVERYTHING, ByteRanges, joined, plan_of
from zarr_bytes.indexing.selection import (
    broadcast,
    has_all_of,
    is_basic,
    scalar_of,
    shape_of,
    view_of,
)
from zarr_bytes.io import counters
from zarr_bytes.io.counters import Counts
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import write_file
from zarr_bytes.io.files import EndOfFileError, find_location, open_chunk
from zarr_bytes.io.known_stores import is_located
from zarr_bytes.io.mapping import apart_from_files
from zarr_bytes.io.range_writing import StoppedError, write_all, write_parts, write_ranges
from zarr_bytes.io.requests import note_request
from zarr_bytes.io.store_names import path_name
from zarr_bytes.io.tasks import for_each, in_threads
from zarr_bytes.layout.elements import check_size, encode_elements, encode_in_blocks
from zarr_bytes.read import index_in, threads_for
from zarr_bytes.settings import Cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zarr.abc.buffer import BufferPrototype, NDBuffer
    from zarr.storage import StorePath

    from zarr_bytes.indexing.plan import Part, Plan
    from zarr_bytes.io.files import ChunkFile
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.format import ChunkIndex, Format
    from zarr_bytes.read import Chunk

# Bytes of a stored inner chunk, which may be changed, by its number; None if it is absent.
_Stored: TypeAlias = "Callable[[int], Bytes | None]"

_NOTHING: Final[_Stored] = dict[int, Any]().get
_NO_BYTES: Final = ByteRanges(0, 0), np.empty(0, np.uint8)
APART: Final = Cost(0, EVERYTHING)
"""The cost of a request where no byte between two ranges may be touched."""


async def write_batch(
    batch: Sequence[Chunk],
    value: NDBuffer,
    drop_axes: tuple[int, ...],
    prototype: BufferPrototype,
    *,
    in_place: bool,
    leaves_out: bool,
) -> None:
    """Write selections of chunks of one store straight from the array that the caller gave.

    The value must fit the selection that the batch divides, or is a ValueError before any chunk is
    changed.
    """
    driver = driver_of(batch[0][0].store)
    goes_to_files = not driver.why_not_in_place()
    array: Any = value.as_ndarray_like()
    shape = _shape_of_selection(batch)
    root, last = driver.root, None
    may_overlap = goes_to_files and in_place and array.shape != ()
    if not isinstance(array, np.ndarray) and (may_overlap or array.shape not in ((), shape)):
        array = await _load_elements(array)
    if may_overlap:  # before any file is changed
        array = apart_from_files(array, (f"{root}/{key.path}" for key, *_ in batch))
    array = _broadcast_to_selection(array, shape, batch[0][1].dtype)

    def edit(item: Chunk) -> Edit:
        nonlocal last
        _, format, entries, place, is_complete = item
        change, plan = last, plan_of(format, entries, APART)
        if change is None or change.plan is not plan or change.is_complete is not is_complete:
            last = change = Change(plan, entries, is_complete=is_complete)
        return Edit(change, _elements_at(array, place, drop_axes), leaves_out=leaves_out)

    def write_to_file(item: Chunk) -> None:
        new, path = edit(item), f"{root}/{item[0].path}"
        written = 0 if new.selects_nothing else write_file(path, root, new, in_place=in_place)
        if not new.selects_nothing:
            counters.note(root, chunks=1, opens=int(written > 0), bytes_written=written)

    if not goes_to_files:
        await for_each(lambda item: edit(item).to_store(item[0], prototype), batch)
        return
    if len(batch) > 1 and not is_located(root):
        await asyncio.to_thread(find_location, root)
    # A rename waits for the file system (ext4 allocates the blocks then), so that several threads
    # pay from the second chunk on. Writing in place to a local file waits for nothing.
    nbytes = prod(shape) * value.dtype.itemsize
    is_little = value.shape != () and nbytes <= limits.LIMITS.one_thread
    is_replaced = not in_place or any(is_complete for *_, is_complete in batch)
    threads = threads_for(root, len(batch), is_little=is_little and not is_replaced)
    # Another library may read by zarr, which needs the loop and its threads.
    with nullcontext() if isinstance(array, np.ndarray) else ThreadPoolExecutor() as executor:
        await in_threads(partial(map, write_to_file), batch, threads, executor)


async def _load_elements(array: Any) -> Array:
    """All elements of an array of another library, which may read them by zarr."""
    with ThreadPoolExecutor(1) as executor:  # zarr needs the loop and its threads
        (elements,) = await in_threads(
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


def _elements_at(array: Any, place: Any, drop_axes: tuple[int, ...]) -> Array:
    """The elements for a chunk, out of anything with the shape of the selection, or a scalar."""
    if array.shape == ():
        return np.asarray(array)
    elements = np.asarray(array[place])
    return np.expand_dims(elements, drop_axes) if drop_axes else elements


def _shape_of_selection(batch: Sequence[Chunk]) -> tuple[int, ...]:
    """Shape of the selection of the array that zarr has divided by chunk.

    It is not passed to a pipeline. The places of all chunks fill it, so that the last place along
    each axis has its length.
    """
    given = [places if type(places) is tuple else (places,) for *_, places, _ in batch]
    # Chunks side by side share the places along an axis.
    distinct = [{id(p): p for p in along}.values() for along in zip(*given, strict=True)]
    return tuple([max(map(_stop, places)) for places in distinct])


def _stop(place: Any) -> int:
    if type(place) is slice:
        return max(int(place.stop), 0)  # zarr 3.1 gives -1 for some empty slices, such as 5:4
    return int(np.max(np.asarray(place), initial=-1) + 1)


class WriteForecast(NamedTuple):
    """What the write of an object will do."""

    counts: Counts
    why_replaced: str  # or empty
    depends_on_values: bool  # less is written where chunks are left out, since they are empty


class Change:
    """What the write of a selection changes in one object, whatever the new elements are."""

    def __init__(self, plan: Plan, entries: Any, *, is_complete: bool) -> None:
        # A complete one has everything within the array, so that the rest becomes the fill value.
        self.plan, self.entries, self.is_complete = plan, entries, is_complete
        self.format = format = plan.format
        self.shape = shape_of(entries, format.shape)  # of the new elements
        is_all = has_all_of(plan.selection.dims, format.grid.shape)
        self.keeps_nothing = is_all or (is_complete and not format.keeps_edges)
        self.selects_nothing = 0 in plan.selection.shape  # zarr gives a chunk for 8:7, too
        # Whether the new elements are those of a chunk, or of the one inner chunk, as they are.
        is_one = is_all and format.count == 1 and self.shape == format.shape
        self.is_chunk = is_one and is_basic(entries)

    def forecast(
        self, index: ChunkIndex | None, *, is_file: bool, in_place: bool, why: str
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
        format, counts, parts = self.format, Counts(chunks=1), list(self.plan.parts())
        inner, indexes = format.inner_nbytes, 0
        selected = sum([part.slabs.span.fetched for part in parts]) * format.item_size
        starts = [] if index is None else [index.offset(part.number) for part in parts]
        if index is not None and not why:
            indexes, why = 1, _why_rebuilt(index, starts)
        # Whether inner chunks of fill values are stored, if a new object is made.
        has_empty_chunks = False
        if self.keeps_nothing:
            counts.bytes_written = len(parts) * inner + format.index_nbytes
        elif index is None and in_place:
            counts.bytes_written = new_object_nbytes(format, selected)
        elif index is None:
            counts.bytes_written = len(parts) * inner + format.index_nbytes
        elif not why:
            has_empty_chunks = True
            counts.bytes_written = selected
        else:
            has_empty_chunks = in_place and format.stored_nbytes is None
            there = [part for part, at in zip(parts, starts, strict=True) if at is not None]
            number = format.count if in_place else index.count + len(parts) - len(there)
            counts.bytes_written = number * inner + format.index_nbytes
            indexes += 1
            replaced = sum([has_all_of(part.dims, format.grid.inner) for part in there])
            kept = index.count - replaced * is_file
            counts.bytes_fetched = kept * inner
            counts.opens, counts.requests, counts.ranges = is_file, not is_file, kept * is_file
        counts.bytes_fetched += indexes * format.index_nbytes
        counts.ranges += indexes * is_file * bool(format.index_nbytes)
        counts.opens += is_file
        counts.requests += not is_file
        return WriteForecast(counts, why, not has_empty_chunks)


def _why_rebuilt(index: ChunkIndex, starts: Sequence[int | None]) -> str:
    """Why inner chunks that begin there are not written in place; or empty."""
    if None in starts:
        return "a shard lacks inner chunks that are selected: `preallocate` adds them"
    if not index.are_apart(cast("list[int]", starts)):
        return "inner chunks of a shard share bytes: `preallocate` parts them"
    return ""


class Edit:
    """New elements for what a `change` selects, in its shape or one that NumPy broadcasts to it."""

    def __init__(self, change: Change, elements: Array, *, leaves_out: bool) -> None:
        self._format = format = change.format
        given, dtype = elements.dtype, format.dtype
        if given != dtype and given.newbyteorder("=") != dtype.newbyteorder("="):
            elements = elements.astype(format.dtype)  # zarr compares names of types
        self._elements = broadcast(elements, change.shape)
        self._change, self._plan, self._leaves_out = change, change.plan, leaves_out
        self.keeps_nothing, self.selects_nothing = change.keeps_nothing, change.selects_nothing
        self._index: tuple[ChunkFile, ChunkIndex] | None = None

    async def to_store(self, setter: StorePath, prototype: BufferPrototype) -> None:
        """Replace an object of any store."""
        format = self._format
        if self.selects_nothing:
            return
        stored: _Stored = _NOTHING
        existing = None if self.keeps_nothing else await setter.get(prototype)
        if existing is not None:
            content = existing.as_numpy_array()
            if format.stored_nbytes is not None:
                check_size(content.size, format.dtype, format.shape)
            nbytes, index = format.inner_nbytes, format.index_of(content, path_name(setter))
            stored = partial(_inner, index, lambda start: content[start : start + nbytes].copy())
        parts = self._parts_of_new(stored, is_dense=False, at_once=True)
        blocks = [data for _, data in sorted(parts, key=itemgetter(0))]
        encoded = blocks[0] if len(blocks) == 1 else np.concatenate([_NO_BYTES[1], *blocks])
        if blocks:
            await setter.set(prototype.buffer.from_array_like(encoded))
        else:
            await setter.delete()
        if not self.keeps_nothing:
            note_request(setter, None, existing)
        counters.note(setter.store, chunks=1, requests=1, bytes_written=encoded.size)

    def in_file(self, file: ChunkFile) -> tuple[ByteRanges, Bytes] | None:
        """None where an inner chunk is absent, or has bytes of another one; else as of `io`."""
        return self._located(self._index_in(file))

    def rebuilt(self, file: ChunkFile | None, *, is_dense: bool) -> Callable[[int], int] | None:
        """As of `io`: inner chunk by inner chunk, or fill values everywhere else."""
        is_dense = is_dense and not self.keeps_nothing
        if is_dense and file is None:
            is_empty = self._leaves_out and all(self._is_empty(data) for _, data in self._encoded)
            return None if is_empty else new_object(self._format, self._located)
        stored: _Stored = _NOTHING
        if file is not None and not self.keeps_nothing:
            read = partial(_read, file, self._format.inner_nbytes)
            stored = partial(_inner, self._index_in(file), read)
        parts = self._parts_of_new(stored, is_dense=is_dense)
        first = next(parts, None)
        return None if first is None else partial(write_parts, chain([first], parts))

    def _index_in(self, file: ChunkFile) -> ChunkIndex:
        """The index of a file of the right size, which does not change while the file is open."""
        if self._format.stored_nbytes is not None:
            file.check(self._format.stored_nbytes)
        if self._index is None or self._index[0] is not file:
            self._index = file, index_in(file, self._format)
        return self._index[1]

    def _located(self, index: ChunkIndex) -> tuple[ByteRanges, Bytes] | None:
        starts, found = [index.offset(part.number) for part, _ in self._encoded], []
        if _why_rebuilt(index, starts):
            return None
        for start, (part, encoded) in zip(cast("list[int]", starts), self._encoded, strict=True):
            ranges = part.slabs.whole.ranges
            found.append(ByteRanges(start + part.start, encoded.size, ranges.table))
        data = [encoded for _, encoded in self._encoded]
        together = data[0] if len(data) == 1 else np.concatenate(data)
        return joined(found, together.size), together

    @cached_property
    def _encoded(self) -> list[tuple[Part, Bytes]]:
        """Each part, and the bytes of its ranges one after another."""
        found = []
        for part in self._plan.parts():
            slab, values = part.slabs.whole, self._values_of(part)
            encoded = encode_elements(values, self._format.endian)
            if slab.among is not None:
                placed = np.empty(slab.ranges.nbytes, np.uint8)
                slab.put(self._units(encoded, values.shape), placed)
                encoded = placed
            found.append((part, encoded))
        return found

    def _parts_by_number(self) -> Callable[[int], Part | None]:
        return self._plan.parts_by_number()

    @cached_property
    def _values(self) -> Array:
        return view_of(self._elements, self._format.order, self._change.entries)

    def _values_of(self, part: Part) -> Array:
        """The elements for an inner chunk, with its axes as stored."""
        if self._change.is_chunk:
            return self._elements.transpose(self._format.order)
        return cast("Array", self._values[part.out()])

    def _units(self, encoded: Bytes, shape: tuple[int, ...]) -> Array:
        return encoded.view(f"V{self._format.item_size}").reshape(shape)

    def _parts_of_new(
        self, stored: _Stored, *, is_dense: bool, at_once: bool = False
    ) -> Iterator[tuple[int, Bytes]]:
        """Offsets and bytes of a new object: its inner chunks as stored, if any, then its index."""
        format = self._format
        is_dense = is_dense and format.stored_nbytes is None  # a chunk has no others
        leaves_out = self._leaves_out and not is_dense
        starts, position = np.full(format.count, -1, np.int64), format.first
        part_of = self._parts_by_number()
        for number in map(int, format.numbers_as_stored):
            blocks: Iterable[Bytes] | None
            if (part := part_of(number)) is not None:
                blocks = self._merged(part, stored, leaves_out=leaves_out, at_once=at_once)
            else:
                inner = stored(number)
                blocks = None if inner is None else (inner,)
            if blocks is None and is_dense:
                blocks = (_filled(format),)
            if blocks is not None:
                starts[number] = position
                for data in blocks:
                    yield position, data
                    position += data.size
        if format.index_nbytes and starts.max() >= 0:
            index = np.frombuffer(format.content_of_index(starts), np.uint8)
            yield 0 if format.first else position, index

    def _merged(
        self, part: Part, stored: _Stored, *, leaves_out: bool, at_once: bool
    ) -> Iterable[Bytes] | None:
        """The bytes of an inner chunk with its new elements, in blocks; None if it is left out."""
        format, values = self._format, self._values_of(part)
        is_whole = has_all_of(part.dims, format.grid.inner)  # the stored one may be damaged
        if is_whole and not at_once:
            blocks = encode_in_blocks(values, format.endian)
            first = next(blocks)
            if not leaves_out or not self._is_empty(first):  # usual: nothing is encoded twice
                return chain([first], blocks)
            is_empty = all(map(self._is_empty, blocks))
            return None if is_empty else encode_in_blocks(values, format.endian)
        merged = encode_elements(values, format.endian)
        if not is_whole:
            units, inner = self._units(merged, values.shape), stored(part.number)
            merged = _filled(format) if inner is None else inner
            slab = self._plan.slabs_of(part.dims, EVERYTHING).whole
            slab.put(units, merged[part.start :])
        return None if leaves_out and self._is_empty(merged) else (merged,)

    def _is_empty(self, data: Bytes) -> bool:
        """Whether the bytes of elements are those of fill values: -0.0 or another NaN is not."""
        fill, size = self._format.fill, self._format.item_size
        step = max(limits.LIMITS.compared // size, 1) * size
        return all(
            piece[:size].tobytes() == fill and np.array_equal(piece[size:], piece[:-size])
            for piece in (data[start : start + step] for start in range(0, data.size, step))
        )


def new_object(
    format: Format,
    located: Callable[[ChunkIndex], tuple[ByteRanges, Bytes] | None] = lambda _: None,
) -> Callable[[int], int]:
    """The writing of an object of fill values, but for ranges and bytes `located` by its index."""
    content = format.content_of_index()
    ranges, data = located(format.complete_index()) or _NO_BYTES
    fill, nbytes, begin = format.fill, format.nbytes, format.first
    size = nbytes + len(content)
    written = new_object_nbytes(format, ranges.nbytes)

    def write(file: int) -> int:
        try:
            os.truncate(file, min(size, 2**63 - 1))  # zeros take no space on the disk
        except OSError as error:
            raise StoppedError(error.errno, 0, 0) from error
        if any(fill):
            count = min(max(limits.LIMITS.block // len(fill), 1), nbytes // len(fill))
            block = memoryview(fill * count)
            for start in range(0, nbytes, len(block)):
                write_all(file, block[: nbytes - start], begin + start, 0)
        write_all(file, memoryview(content), 0 if begin else nbytes, 0)
        write_ranges(file, ranges, data, size)
        return written

    return write


def new_object_nbytes(format: Format, selected: int) -> int:
    """Number of bytes that `new_object` writes, for so many that are located.

    Zeros of the fill value are a hole in the file, and other fill values are written first.
    """
    fill_nbytes = format.nbytes if any(format.fill) else 0
    return fill_nbytes + format.index_nbytes + selected


class _Completion(Edit):
    """No new elements, and all inner chunks of a shard in bytes of their own."""

    def __init__(self, format: Format) -> None:
        self._format, self._leaves_out, self._index = format, False, None
        self.keeps_nothing = False

    def _parts_by_number(self) -> Callable[[int], Part | None]:
        return lambda _: None

    def _located(self, index: ChunkIndex) -> tuple[ByteRanges, Bytes] | None:
        starts = [index.offset(number) for number in range(self._format.count)]
        return None if _why_rebuilt(index, starts) else _NO_BYTES


def complete_shard(path: str, root: str, format: Format) -> bool:
    """Give a shard all inner chunks, in bytes of their own; whether it has been replaced."""
    if format.stored_nbytes is not None:  # a chunk lacks none
        return False
    completion = _Completion(format)
    with open_chunk(path, root, waits=True) or nullcontext() as file:
        if file is not None and completion.in_file(file) is not None:
            return False
    return write_file(path, root, completion, in_place=True) > 0


def _inner(index: ChunkIndex, read: Callable[[int], Bytes], number: int) -> Bytes | None:
    start = index.offset(number)
    return None if start is None else read(start)


def _read(file: ChunkFile, nbytes: int, start: int) -> Bytes:
    inner = np.empty(nbytes, np.uint8)
    try:
        file.read_range(memoryview(inner), start)
    except EndOfFileError as end:
        raise wrong_size(file.path, start, start + nbytes, max(end.offset - start, 0)) from None
    return inner


def _filled(format: Format) -> Bytes:
    """An inner chunk of fill values."""
    if not any(format.fill):
        return np.zeros(format.inner_nbytes, np.uint8)
    fill = np.frombuffer(format.fill, f"V{format.item_size}")
    return np.repeat(fill, format.inner_nbytes // format.item_size).view(np.uint8)
