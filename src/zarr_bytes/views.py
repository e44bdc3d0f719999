"""`view`: NumPy views of the chunks of an array, without reading them.

Chunks in local files are mapped into memory, and chunks in a `MemoryStore` are used in place.
Everything that all selections share is decided when the view is made.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import zarr

from zarr_bytes.chains import (
    codec_name_or_class_name,
    encoding_of_uncompressed,
    first_elementwise_codec_or_none,
    uncompressed_codecs_and_spec_or_raise,
)
from zarr_bytes.errors import StoreError, not_an_array_error, shape_mismatch_error
from zarr_bytes.indexing.numpy_selection import NumpySelection
from zarr_bytes.indexing.selection import ChunkGrid, broadcast, c_strides, scalar_of
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.mapping import WritableMappings, chain_of_bases
from zarr_bytes.io.store_names import store_name, store_path_name
from zarr_bytes.layout.elements import element_layout_of, encode_elements, viewable_dtype
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import checked_setting, code_that_sets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.layout.elements import Array, Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex

Mode: TypeAlias = Literal["r", "r+"]


def view(array: zarr.Array[Any], mode: Mode = "r") -> ArrayView:
    """View the chunks of an uncompressed array as NumPy arrays, without reading them.

    A selection takes about a microsecond; through zarr, it takes hundreds. Chunks in local files
    are mapped into memory at the first selection of their elements, and the system reads only the
    pages that are used. Chunks in a `MemoryStore` are used in place.

    Parameters
    ----------
    array : zarr.Array
        An array of Zarr format 3 in a folder (`LocalStore`) or a `MemoryStore`, with no codecs
        other than `transpose`, `bytes` and `sharding_indexed`.
    mode : {"r", "r+"}
        "r+" allows changes to existing chunks in files, if ``zarr_bytes.partial_writes`` is True.

    Returns
    -------
    ArrayView

    Raises
    ------
    StoreError
        If the array can't be viewed. The message has the reason, and the zarr call that reads or
        writes the array instead.
    TypeError
        If `array` is not a `zarr.Array`.

    Warnings
    --------
    Truncating a mapped file ends this process (SIGBUS). Writers that replace chunks by renaming, as
    zarr does, are safe: the view shows the old chunk until `ArrayView.refresh`.

    Examples
    --------
    >>> array = zarr.create_array({}, data=np.arange(6.0).reshape(2, 3), compressors=None)
    >>> view(array)[1, ::2]
    array([3., 5.])
    """
    if not isinstance(array, zarr.Array):
        raise not_an_array_error(array)
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is {mode!r}; permitted are 'r' and 'r+'")
    array_view = ArrayView(array, mode)
    if mode == "r+" and (reason := _why_not_in_place(array)):
        raise StoreError(
            f"{store_path_name(array.store_path)} cannot be changed through a view: {reason}"
        )
    return array_view


class ArrayView:
    """NumPy views of the chunks of an array, made by `view`.

    ``view[...]`` takes integers, slices and arrays of integers, as NumPy does. If one chunk has all
    selected elements, the result is a NumPy view of the chunk. If several chunks have them, or an
    array of integers selects them, the result is a new array. Views of chunks are read-only in mode
    "r", and stay valid without the `ArrayView`.

    An `ArrayView` works in ``dask.array.from_array``, as a dataset of ``torch.utils.data``, and
    wherever ``numpy.asarray`` is called. It can be pickled if the array can be; its chunks are
    mapped again after unpickling. Processes may be forked, and threads may share the view.

    Attributes
    ----------
    array : zarr.Array
    mode : {"r", "r+"}
    shape : tuple of int
        Shape of the array when the view was made.
    dtype : numpy.dtype
        Data type of the array, in the stored byte order.
    chunks : tuple of int
        Shape of a chunk, or of an inner chunk of a shard.
    """

    def __init__(self, array: zarr.Array[Any], mode: Mode = "r") -> None:
        self.array = array
        self.mode = mode
        # None in mode "r": no file is mapped for changes.
        self._writable_mappings = WritableMappings() if mode == "r+" else None
        try:
            self._blocks = _Blocks(
                array, self._writable_mappings, checked_setting("zarr_bytes.mappings")
            )
        except StoreError as error:
            reason = f"{error}; read it through zarr, as in `array[...]`"
            raise StoreError(
                f"there is no view of {store_path_name(array.store_path)}: {reason}"
            ) from None
        self._grid = grid = self._blocks.grid
        # Bound once, because a selection of one block takes only a microsecond.
        self._in_one_block = grid.try_in_one_chunk
        self.shape = grid.shape
        self.chunks = grid.chunk_shape
        self.ndim = len(self.shape)
        self.dtype: DType = self._blocks.dtype
        self._load_block = self._blocks.load_with_new_caches()

    @property
    def blocks(self) -> BlockViews:
        """The chunks, or the inner chunks of shards, one by one."""
        return BlockViews(self._load_block, self._grid)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of all elements, in bytes."""
        return self.size * self.dtype.itemsize

    def __getitem__(self, selection: Any) -> Any:
        entries = selection if type(selection) is tuple else (selection,)
        try:
            in_one_block = self._in_one_block(entries)
        except (IndexError, TypeError):  # `NumpySelection` raises a better error
            in_one_block = None
        if in_one_block is None:
            return self._select(selection)
        number, block_selection = in_one_block
        return self._load_block(number)[block_selection]

    def _select(self, selection: Any) -> Any:
        """The elements of a selection that `ChunkGrid.try_in_one_chunk` doesn't resolve.

        They may be in any number of blocks. The result is a view only if they are in one block.
        """
        if isinstance(selection, np.integer):
            return self[int(selection)]
        selected = NumpySelection(selection, self._grid)
        if 0 in selected.shape:
            return np.empty(selected.shape, self.dtype)
        if (in_one_block := selected.try_in_one_chunk()) is not None:
            number, block_selection = in_one_block
            return self._load_block(number)[block_selection]
        intermediate = np.empty(selected.intermediate_shape, self.dtype)
        for number, block_selection, intermediate_index in selected.iter_parts_chunk_by_chunk(
            self.dtype.itemsize
        ):
            intermediate[intermediate_index] = self._load_block(number)[block_selection]
        return selected.from_intermediate(intermediate)

    def __setitem__(self, selection: Any, value: Any) -> None:
        if self.mode == "r":
            raise ValueError(
                'the view is read-only: view(array, "r+") can change existing chunks, and zarr\'s'
                " `array[...] = ...` can write any chunk"
            )
        selected = NumpySelection(selection, self._grid)
        values = _values_to_assign(value, self.dtype, selected)
        if not values.size:
            return
        if (in_one_block := selected.try_in_one_chunk()) is not None:
            number, block_selection = in_one_block
            if selected.ellipsis_position < 0:
                # With `...`, elements are copied without a conversion to Python and back.
                block_selection = (*block_selection, ...)
            self._load_block_unless_read_only(number)[block_selection] = values
            return
        parts = list(selected.iter_parts_chunk_by_chunk(values.itemsize))
        for number, _, _ in parts:  # errors come before any change
            self._load_block_unless_read_only(number)
        intermediate = selected.to_intermediate(values)
        for number, block_selection, intermediate_index in parts:
            self._load_block_unless_read_only(number)[block_selection] = intermediate[
                intermediate_index
            ]

    def _load_block_unless_read_only(self, number: int) -> Array:
        """The block with a number; a ValueError if it is missing or shares bytes with another."""
        block = self._load_block(number)
        if not block.flags.writeable:
            raise ValueError(
                f"block {self._grid.coords_of(number)} is missing, or shares bytes of its shard"
                " with another block, and a view can't create blocks: make all chunks in advance"
                " with `zarr_bytes.preallocate(array)`, or write through zarr (`array[...] = ...`),"
                " and then call `refresh()`"
            )
        return block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        if copy is False and (count := self._grid.chunk_count) != 1:
            raise ValueError(
                f"the array has {count} chunks, so it is one NumPy array only as a copy,"
                " which copy=False does not permit"
            )
        return np.array(self[...], dtype, copy=copy)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def refresh(self) -> None:
        """Forget all mappings, so that the next selections open their chunks again.

        The next selections see chunks that others have replaced or created. Arrays from earlier
        selections don't change. Call `flush` first to find out whether changes made through this
        view were lost.
        """
        self._load_block = self._blocks.load_with_new_caches()
        if self._writable_mappings is not None:
            self._writable_mappings.accept_any_files_at_paths()

    def flush(self) -> None:
        """Wait until all changes are on disk. Other processes on this machine see them at once.

        Raises
        ------
        ChunkFileError
            If a chunk was replaced or deleted after it was mapped, so its changes are lost.
        OSError
            If the disk is full or fails.
        """
        if self._writable_mappings is not None:
            self._writable_mappings.sync()

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayView, (self.array, self.mode)

    def __repr__(self) -> str:
        name = store_path_name(self.array.store_path)
        return (
            f"<ArrayView {name} shape={self.shape} dtype={self.dtype}"
            f" chunks={self.chunks} mode={self.mode!r}>"
        )


def _why_not_in_place(array: zarr.Array[Any]) -> str | None:
    """Why a view may not change chunks in place, with the remedy; None if it may."""
    if reason := driver_of(array.store, array.path).why_not_in_place():
        return reason
    pipeline = getattr(array.async_array, "codec_pipeline", None)  # zarr may hide it in an engine
    if checked_setting("zarr_bytes.partial_writes") or (
        isinstance(pipeline, BatchedBytesPipeline) and pipeline.in_place
    ):
        return None
    call = code_that_sets("zarr_bytes.partial_writes", value=True)
    return f"partial writes are off; open the array and its view in `with {call}`"


class _Object(NamedTuple):
    """A stored chunk or shard: its bytes, which are None if it is missing, and its block index."""

    content: Bytes | None
    inner_chunk_index: InnerChunkIndex


class _Blocks:
    """Loads the blocks of an array: its chunks, or the inner chunks of its shards.

    Parameters
    ----------
    array
        The array; a StoreError if its chunks can't be viewed.
    writable_mappings
        Collects the mappings of files that may be changed; None maps files read-only.
    max_mappings
        Number of blocks to keep. For arrays with shards, half as many blocks are kept, and as many
        shards as blocks.

    Attributes
    ----------
    dtype, grid
        Data type of the stored elements, and the grid of the blocks.
    """

    def __init__(
        self, array: zarr.Array[Any], writable_mappings: WritableMappings | None, max_mappings: int
    ) -> None:
        self._driver = driver_of(array.store, array.path)
        self._writable_mappings = writable_mappings
        if not self._driver.can_be_viewed:
            kind = type(array.store).__name__
            raise StoreError(f"its store is a {kind}, and must be a LocalStore or a MemoryStore")
        chain, spec = uncompressed_codecs_and_spec_or_raise(array)
        if (codec := first_elementwise_codec_or_none(chain)) is not None:
            raise StoreError(
                f"chunks go through the codec {codec_name_or_class_name(codec)}, which stores"
                " other elements than those of the array: permitted are transposes and bytes alone"
                " (compressors=None, filters=None), or shards of them"
            )
        self._layout = layout = encoding_of_uncompressed(chain).layout_of(spec)
        dtype = viewable_dtype(layout.dtype, layout.endian)
        if dtype is None:
            stored = f"{layout.dtype} is stored {layout.endian}-endian"
            raise StoreError(f"its {stored}, a type that NumPy does not have")
        self.dtype = dtype
        self.grid = ChunkGrid(array.shape, layout.inner_chunk_shape)
        self._strides = c_strides(layout.inner_chunk_shape, layout.item_size, layout.order)
        self._encode_chunk_key = array.metadata.encode_chunk_key
        self._prefix = f"{array.path}/" if array.path else ""
        # A shard with several blocks is opened once.
        self._max_blocks = max_mappings // 2 if layout.index_nbytes else max_mappings
        self._max_objects = max_mappings - self._max_blocks

    def load_with_new_caches(self) -> Callable[[int], Array]:
        """A new `load` with its own empty cache.

        Threads may share it. A thread that is loading a block keeps the block in the old cache.
        """
        self._cached_object = lru_cache(self._max_objects)(self._load_object)
        # The cache is in C, so that a selection of one block takes a microsecond.
        return lru_cache(self._max_blocks)(self.load)

    def load(self, number: int) -> Array:
        """The block with a number in the grid, cut at the edges of the array.

        A missing block is the fill value with strides of 0, and read-only.
        """
        grid = self.grid
        layout = self._layout
        block_coords = grid.coords_of(number)
        axes = zip(block_coords, grid.chunk_shape, grid.shape, strict=True)
        shape = tuple([min(size, n - i * size) for i, size, n in axes])
        # The grid of a layout has the stored order of axes.
        counts = [layout.grid.chunk_counts[i] for i in layout.inverse_order]
        divided = [divmod(i, n) for i, n in zip(block_coords, counts, strict=True)]
        chunk_coords = tuple([chunk_coord for chunk_coord, _ in divided])
        inner_coords = [inner_coord for _, inner_coord in divided]
        content, inner_chunk_index = self._cached_object(chunk_coords)
        inner_chunk_number = layout.grid.number_of(layout.in_stored_order(inner_coords))
        offset = None if content is None else inner_chunk_index.offset_of(inner_chunk_number)
        if offset is None:
            return np.ndarray(shape, self.dtype, layout.stored_fill_value, 0, (0,) * len(shape))
        block: Array = np.ndarray(shape, self.dtype, content, offset, self._strides)
        if block.flags.writeable and not inner_chunk_index.share_no_bytes_with_others([offset]):
            block.flags.writeable = False  # a change would also change the other inner chunk
        return block

    def _load_object(self, chunk_coords: tuple[int, ...]) -> _Object:
        """The chunk or shard at coordinates in the chunk grid, mapped or in memory."""
        key = f"{self._prefix}{self._encode_chunk_key(chunk_coords)}"
        nbytes = self._layout.stored_nbytes
        if self._writable_mappings is None:
            content = self._driver.view_bytes_if_exists(key, nbytes)
        else:
            content = self._driver.view_writable_bytes_if_exists(
                key, nbytes, self._writable_mappings
            )
        if content is None:
            return _Object(None, SINGLE_CHUNK_INDEX)
        name = f"{store_name(self._driver.store)}/{key}"
        return _Object(content, self._layout.decode_index_of_object(content, name))


class BlockViews:
    """The chunks of an array, or the inner chunks of its shards, as NumPy arrays.

    ``blocks[i, j]`` is one block, without a copy. The block is cut at the edges of the array, has
    other strides if it is stored transposed, and is read-only in mode "r". A missing chunk has the
    fill value everywhere. Missing chunks, and inner chunks that share bytes with another one, are
    always read-only. Iteration gives all blocks in C order.

    Attributes
    ----------
    shape : tuple of int
        Number of blocks along each axis.
    """

    __slots__ = ("_grid", "_load_block", "shape")

    def __init__(self, load_block: Callable[[int], Array], grid: ChunkGrid) -> None:
        self._load_block = load_block
        self._grid = grid
        self.shape = grid.chunk_counts

    def __getitem__(self, block_coords: int | tuple[int, ...]) -> Array:
        entries = block_coords if isinstance(block_coords, tuple) else (block_coords,)
        try:
            indices = [index(entry) for entry in entries]
        except TypeError:
            raise IndexError(f"a block is selected by integers, found {block_coords!r}") from None
        axes = [*zip(indices, self.shape, strict=False)]
        if len(indices) != len(self.shape) or not all(-n <= i < n for i, n in axes):
            raise IndexError(f"there is no block {block_coords!r} among {self.shape} blocks")
        return self._load_block(self._grid.number_of([i % n for i, n in axes]))

    def __len__(self) -> int:
        if (count := self._grid.chunk_count) > sys.maxsize:
            raise OverflowError(f"there are {count} blocks, too many for len(): see `shape`")
        return count

    def __iter__(self) -> Iterator[Array]:
        return map(self._load_block, range(self._grid.chunk_count))

    def __repr__(self) -> str:
        return f"<BlockViews shape={self.shape}>"


def _values_to_assign(value: object, dtype: DType, selected: NumpySelection) -> Array:
    """The elements that ``array[selection] = value`` stores, in the shape of the selection.

    Conversions that NumPy may refuse happen here, before any chunk is changed. The result is a view
    of `value` if possible, but never of a mapped file.
    """
    shape = selected.shape
    # NumPy takes any number from an array, but from Python only numbers of the data type.
    is_masked = isinstance(value, np.ma.MaskedArray) and value.shape == shape == ()
    if is_masked or isinstance(value, np.generic):
        values = scalar_of(value, dtype)
    else:
        values = np.asarray(value, None if isinstance(value, np.ndarray) else dtype)
    if not np.can_cast(values.dtype, dtype, "equiv"):
        values = values.astype(dtype)
    layout = element_layout_of(values.dtype)
    if layout.bool_offsets or layout.narrow_bytes:
        values = encode_elements(values, None).view(values.dtype).reshape(values.shape)
    # NumPy handles a value that overlaps its target only within one assignment, and doesn't detect
    # two mappings of one file.
    if not isinstance([*chain_of_bases(values)][-1], np.ndarray):
        values = values.copy()
    # NumPy leaves out axes of an array always, but axes of a list only if arrays select.
    if isinstance(value, list | tuple) and values.ndim > len(shape) and not selected.has_arrays:
        raise shape_mismatch_error(values.shape, shape)
    return broadcast(values, shape, requires_scalar=shape == () and selected.ellipsis_position < 0)
