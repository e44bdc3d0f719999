"""`preallocate`: all chunks of an array made in advance, for processes that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import zarr
from zarr.storage import LocalStore

from zarr_bytes.array_blocks import plain_parts, why_not_in_place
from zarr_bytes.chunk.division import Division
from zarr_bytes.chunk.file_writing import create_file
from zarr_bytes.chunk.shard_writing import complete_shard
from zarr_bytes.chunk.shards import shards_of
from zarr_bytes.chunk.writing import new_chunk
from zarr_bytes.commands.hierarchy import nodes
from zarr_bytes.commands.reports import Allocated, Preallocation, Progress
from zarr_bytes.commands.stores import asked, member_is_missing, opened, run
from zarr_bytes.errors import StoreError, in_words, no_array
from zarr_bytes.pipeline import BatchedBytesPipeline

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from zarr.abc.store import Store

    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.zarr_versions import ArraySpec, ArrayV3Metadata

__all__ = ["preallocate", "preallocate_store"]


def preallocate(
    array: zarr.Array[Any], *, progress: Callable[[Progress], None] = lambda _: None
) -> Allocated:
    """Make every missing chunk of an uncompressed array, and complete its shards.

    Processes with the setting ``zarr_bytes.partial_writes`` can then write different elements of
    the array at any time, and no write is lost. A chunk of zeros takes no disk space until it is
    written to. Existing chunks are kept, and readers are not disturbed. The call can be interrupted
    and repeated. Nothing else may write to a shard while it is completed.

    Parameters
    ----------
    array : zarr.Array
        An array in a folder (`LocalStore`), with the codecs `transpose`, `bytes` and
        `sharding_indexed` alone.
    progress : callable, optional
        Called with a `Progress` after each chunk.

    Returns
    -------
    Allocated
        Numbers of new chunks, of completed shards, and of all chunks.

    Raises
    ------
    StoreError
        If the array is compressed, not in a folder, read-only, or has chunks of several shapes. The
        message names the reason.
    ValueError, OSError
        If something other than a file is where a chunk should be, if the index of a shard is
        damaged, or if the system cannot make a file.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> array = zarr.create_array(mkdtemp(), shape=100, chunks=30, dtype="i4", compressors=None)
    >>> allocated = preallocate(array)
    >>> allocated.made, allocated.chunks
    (4, 4)
    """
    if not isinstance(array, zarr.Array):
        raise no_array(array)
    try:
        stored, metadata, spec = _parts_of(array)
    except StoreError as error:
        message = f"chunks of {array.store_path} cannot be made in advance: {error}"
        raise StoreError(message) from error
    codec, order, sharding = stored
    elements = new_chunk(spec, codec.stored_endian)
    root, shards = str(cast("LocalStore", array.store).root), None
    if sharding is not None:
        shards = shards_of(sharding, spec, codec.stored_endian, order)
        elements, _ = shards.new_shard(elements)
    axes = range(array.ndim)
    division = Division(array.shape, spec.shape, axes, axes)
    found = Allocated(array.path, 0)
    # By their numbers: `product` would keep the indices along each axis as a tuple.
    for index in map(division.place_of, range(division.count)):
        path = f"{root}/{(array.store_path / metadata.encode_chunk_key(index)).path}"
        if create_file(path, elements):
            found.made += 1
        elif shards is not None and complete_shard(path, root, shards, elements):
            found.completed += 1
        found.chunks += 1
        progress(Progress(array.path, 0, 1, found.chunks, array.nchunks))
    return found


def preallocate_store(
    store: str | os.PathLike[str], *, progress: Callable[[Progress], None] = lambda _: None
) -> Preallocation:
    """`preallocate` of every array in a folder.

    Parameters
    ----------
    store : str or os.PathLike
        A folder with one array or a hierarchy.
    progress : callable, optional
        Called with a `Progress`.

    Returns
    -------
    Preallocation
        The numbers of chunks of each array, or the reason why none were made.

    Raises
    ------
    StoreError
        If the folder holds no Zarr metadata.
    """

    async def arrays(opened_store: Store) -> list[tuple[str, str]]:
        """Paths of arrays, and the reason where one could not be read; else it is empty."""
        async with asked(opened_store) as source:
            return [
                (node.path, node.error)
                async for node, _ in nodes(source)
                if node.error or node.kind in ("array", "format 2")
            ]

    with opened(store) as (source, name):
        found = Preallocation(name, [])
        is_folder = isinstance(source, LocalStore)
        target = source.with_read_only(read_only=False) if is_folder else source
        for path, refused in run(arrays(source)):
            if refused:
                found.arrays.append(Allocated(path, 0, refused=refused))
                continue
            try:
                array = zarr.open_array(target, path=path, mode="r+" if is_folder else "r")
                found.arrays.append(preallocate(array, progress=progress))
            except StoreError as error:
                found.arrays.append(Allocated(path, 0, refused=str(error.__cause__)))
            except KeyError as error:
                found.arrays.append(Allocated(path, 0, refused=member_is_missing(error)))
            except Exception as error:  # noqa: BLE001 -- the arrays after it are still made
                found.arrays.append(Allocated(path, 0, refused=in_words(error)))
    return found


def _parts_of(array: zarr.Array[Any]) -> tuple[Stored, ArrayV3Metadata, ArraySpec]:
    """Storage of the chunks, metadata and chunk spec of an array; else a StoreError."""
    if reason := why_not_in_place(array.store):
        raise StoreError(reason)
    _, metadata, spec = plain_parts(array)
    pipeline = array.async_array.codec_pipeline
    if not isinstance(pipeline, BatchedBytesPipeline):
        raise StoreError(
            f"its pipeline is {type(pipeline).__name__}, which does not share chunks; `zarr-bytes"
            " status` says how to use that of this package"
        )
    return pipeline.stored, metadata, spec
