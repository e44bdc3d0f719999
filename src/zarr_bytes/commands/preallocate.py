"""`preallocate`: creates all chunks of an array in advance, for processes that share chunks."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import zarr

from zarr_bytes.chains import (
    encoding_of_uncompressed,
    uncompressed_codecs_and_spec_or_raise,
    why_uncompressed_chunks_are_written_by_zarr,
)
from zarr_bytes.commands.result import (
    Progress,
    Result,
    count_with_noun,
    iter_shortened_table,
    thousands_or_power_of_ten,
    verdict_line,
)
from zarr_bytes.commands.stores import (
    list_keys_by_node,
    not_an_array_error_listing_arrays,
    open_array_at,
    open_store,
    read_metadata_document,
)
from zarr_bytes.errors import StoreError, describe_error
from zarr_bytes.indexing.selection import ChunkGrid
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import create_file_if_missing
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.write import file_of_fill_values, make_or_complete_shard
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.commands.result import OutputPart, ProgressCallback
    from zarr_bytes.layout.objects import ObjectLayout

MOST_FILES: Final = 1_000_000
"""Largest number of files that are made without `any_size`."""
_MAX_LISTED: Final = 20  # refused arrays


@dataclass(repr=False)
class Allocated(Result):
    """The result of making all chunks of an array, or of all arrays of a store, in advance.

    Attributes
    ----------
    chunks : int
        Number of chunks, or shards, that exist now.
    made, completed : int
        Number of new chunks or shards, and of existing shards that got new inner chunks.
    refused : dict of str to str
        The reason why the chunks of an array are missing, by the path of the array.
    """

    chunks: int = 0
    made: int = 0
    completed: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    def _iter_output_parts(self, **_: bool) -> Iterator[OutputPart]:
        steps = [f"{count_with_noun(self.made, 'chunk')} made"]
        if self.completed:
            steps.append(f"{count_with_noun(self.completed, 'shard')} completed")
        if self.refused:
            steps.append(f"{count_with_noun(len(self.refused), 'array')} refused")
        colour = "red" if self.refused else "green"
        yield verdict_line(", ".join(steps), colour, f"{self.chunks:,} there now")
        if self.refused:
            rows = [(f"/{path}", (reason, "red")) for path, reason in self.refused.items()]
            yield from iter_shortened_table(("Refused", "Reason"), rows, _MAX_LISTED)


def preallocate(
    array: zarr.Array[Any],
    *,
    any_size: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Allocated:
    """Make every missing chunk of an uncompressed array, and complete its shards.

    Afterwards, processes with the setting ``zarr_bytes.partial_writes`` can write different
    elements of the array at any time without losing writes. A chunk of zeros takes no disk space
    until it is written to. Existing chunks are kept. The call can be interrupted and repeated.
    During the call, other processes may read, and processes with the setting may also write.

    Parameters
    ----------
    array : zarr.Array
        An array in a folder (`LocalStore`) with no codecs other than `transpose`, `bytes` and
        `sharding_indexed`, or an array of Zarr format 2 without a compressor. With zarr 3.3 or
        newer, codecs and filters that act on each element by itself are permitted, too, if they
        keep the fill value.
    any_size : bool, optional
        Whether to make more than a million files, or files that take more space than the file
        system has free. A fill value of zeros takes no space.
    progress : callable, optional
        Called with a `Progress` after each chunk.

    Returns
    -------
    Allocated
        The numbers of new chunks, completed shards and all chunks.

    Raises
    ------
    StoreError
        If the array is compressed, not in a folder, or read-only; if it has chunks of several
        shapes, or a fill value that its codecs change; or if it is too large without `any_size`.
        The message has the reason. No file has been made.
    ValueError, OSError
        If something other than a file is at the path of a chunk, if the index of a shard is
        damaged, or if the system can't make a file.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> array = zarr.create_array(mkdtemp(), shape=100, chunks=30, dtype="i4", compressors=None)
    >>> allocated = preallocate(array)
    >>> allocated.made, allocated.chunks
    (4, 4)
    """
    if not isinstance(array, zarr.Array):
        raise not_an_array_error_listing_arrays(array)
    allocated = Allocated()
    try:
        _make_chunks_and_complete_shards(allocated, array, any_size=any_size, progress=progress)
    except StoreError as error:
        message = (
            f"chunks of {store_path_name(array.store_path)} cannot be made in advance: {error}"
        )
        raise StoreError(message) from error
    return allocated


def preallocate_arrays_or_list_refused(
    folder: str, *, any_size: bool, progress: ProgressCallback
) -> Allocated:
    """Make the chunks of every array in a folder; `refused` has the arrays that fail.

    A StoreError if the folder can't be opened. `any_size` and `progress` are as in `preallocate`.
    """
    allocated = Allocated()
    with open_store(folder) as (source, _):
        for path in sorted(sync(list_keys_by_node(source))):
            try:
                if sync(read_metadata_document(source, path)).kind == "group":
                    continue
                array = open_array_at(source, path, makes_folder_writable=True)
                _make_chunks_and_complete_shards(
                    allocated, array, any_size=any_size, progress=progress
                )
            except Exception as error:  # noqa: BLE001 -- the arrays after it are still made
                allocated.refused[path] = describe_error(error)
    return allocated


def _make_chunks_and_complete_shards(
    allocated: Allocated, array: zarr.Array[Any], *, any_size: bool, progress: ProgressCallback
) -> None:
    """Make the missing chunks of an array, complete its shards, and add to `allocated`.

    Raises the errors of `preallocate`, with a StoreError that doesn't name the array.
    """
    driver = driver_of(array.store, array.path)
    if reason := driver.why_not_in_place():
        raise StoreError(reason)
    chain, spec = uncompressed_codecs_and_spec_or_raise(array)
    layout = encoding_of_uncompressed(chain).layout_of(spec)
    if reason := (
        why_uncompressed_chunks_are_written_by_zarr(chain, spec) or _why_fill_value_changes(layout)
    ):
        raise StoreError(reason)
    grid = ChunkGrid(array.shape, spec.shape)
    if not any_size and (
        reason := _why_too_many_files_or_bytes(array, driver.files_root, layout, grid)
    ):
        option = "`any_size=True`, or --any-size on the command line, makes them"
        raise StoreError(f"{reason}: {option}")
    for done, path in enumerate(_iter_chunk_file_paths(array, driver.files_root, grid), 1):
        if create_file_if_missing(path, file_of_fill_values(layout)):
            allocated.made += 1
        elif make_or_complete_shard(path, driver.files_root, layout):
            allocated.completed += 1
        allocated.chunks += 1
        progress(Progress(array.path, 0, 1, done, grid.chunk_count))


def _why_fill_value_changes(layout: ObjectLayout) -> str | None:
    """The reason why fill values can't be stored; None if they read back unchanged."""
    if layout.stores_fill_value_exactly:
        return None
    return (
        f"its codecs do not keep the fill value {layout.fill_value}, so storing elements that were"
        " never written would change their value"
    )


def _why_too_many_files_or_bytes(
    array: zarr.Array[Any], root: str, layout: ObjectLayout, grid: ChunkGrid
) -> str | None:
    """The reason why the chunks need `any_size`: their number or their bytes; None if they don't.

    Looks for the file of each chunk.
    """
    if grid.chunk_count > MOST_FILES:
        count = thousands_or_power_of_ten(grid.chunk_count)
        return f"it has {count} chunks, and no more than {MOST_FILES:,} files are made unasked"
    nbytes = layout.index_nbytes + (layout.nbytes if any(layout.stored_fill_value) else 0)
    paths = _iter_chunk_file_paths(array, root, grid)
    missing = sum(not os.path.exists(path) for path in paths)  # noqa: PTH110
    needed = missing * nbytes
    free = shutil.disk_usage(root).free
    if needed <= free:
        return None
    needed_text = thousands_or_power_of_ten(needed)
    return f"its missing chunks take {needed_text} bytes, and {free:,} bytes are free"


def _iter_chunk_file_paths(array: zarr.Array[Any], root: str, grid: ChunkGrid) -> Iterator[str]:
    """The path of the file of each chunk, in C order."""
    # By chunk number: `product` would keep a tuple of all indices along each axis.
    for chunk_coords in map(grid.coords_of, range(grid.chunk_count)):
        yield f"{root}/{(array.store_path / array.metadata.encode_chunk_key(chunk_coords)).path}"
