"""`view`: NumPy views of the chunks of an array, without a read.

Chunks in local files are mapped into memory, and chunks in a `MemoryStore` are used in place.
Everything that is common to all selections is decided when the view is made.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import zarr

from zarr_bytes.block_selection import Selected, elements_to_store
from zarr_bytes.blocks import Blocks, BlockViews
from zarr_bytes.errors import StoreError, no_array
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.mapping import ChangedFiles
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import number_of_mappings, partial_writes_enabled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.layout.elements import Array

Mode: TypeAlias = Literal["r", "r+"]

_SETTING: Final = 'with zarr.config.set({"zarr_bytes.partial_writes": True})'


def view(array: zarr.Array[Any], mode: Mode = "r") -> ArrayView:
    """View the chunks of an uncompressed array as NumPy arrays, without reading them.

    A selection takes about a microsecond, where a selection through zarr takes 250. Chunks in local
    files are mapped into memory at the first selection of their elements, and the system reads the
    pages that are used. Chunks in a `MemoryStore` are used in place.

    Parameters
    ----------
    array : zarr.Array
        Of Zarr format 3, in a folder (`LocalStore`) or a `MemoryStore`, with no other codecs than
        `transpose`, `bytes` and `sharding_indexed`.
    mode : {"r", "r+"}
        "r+" allows changes of existing chunks in files, if ``zarr_bytes.partial_writes`` is True.

    Returns
    -------
    ArrayView

    Raises
    ------
    StoreError
        If the array has no such view. The message has the reason, and the call of zarr that reads
        or writes the array.
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
        raise no_array(array)
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is {mode!r}; permitted are 'r' and 'r+'")
    made = ArrayView(array, mode)
    if mode == "r+" and (reason := _why_read_only(array)):
        raise StoreError(f"{array.store_path} cannot be changed through a view: {reason}")
    return made


class ArrayView:
    """NumPy views of the chunks of an array, which `view` makes.

    ``view[...]`` takes integers, slices and arrays of integers, as NumPy does. Where one chunk has
    all selected elements, the result is a NumPy view of it; where several chunks have them, or an
    array of integers selects them, a new array. Views of chunks are read-only in mode "r", and stay
    valid without the `ArrayView`.

    An `ArrayView` works in ``dask.array.from_array``, as a dataset of ``torch.utils.data`` and
    wherever ``numpy.asarray`` is called. It can be pickled if the array can, and is then mapped
    again. Processes may be forked, and threads may share it.

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
    blocks : BlockViews
        The chunks, or the inner chunks of shards, one by one.
    """

    __slots__ = (
        "_block",
        "_blocks",
        "_changed",
        "_rest",
        "array",
        "blocks",
        "chunks",
        "dtype",
        "mode",
        "ndim",
        "shape",
    )

    def __init__(self, array: zarr.Array[Any], mode: Mode = "r") -> None:
        self.array, self.mode = array, mode
        self._changed = ChangedFiles() if mode == "r+" else None
        most = number_of_mappings()
        try:
            self._blocks = Blocks(array, self._changed, most)
        except StoreError as error:
            reason = f"{error}; read it through zarr, as in `array[...]`"
            raise StoreError(f"there is no view of {array.store_path}: {reason}") from None
        self.shape: tuple[int, ...] = array.shape
        self.ndim = len(self.shape)
        self.dtype: DType = self._blocks.dtype
        self.chunks = self._blocks.sizes
        # `lru_cache` is in C, so that a selection of one block takes a microsecond.
        self._block = lru_cache(self._blocks.most)(self._blocks.load)
        self.blocks = BlockViews(self._block, self._blocks.grid)
        # By the number of entries of a selection: the place of the one block along all other axes.
        counts = self._blocks.grid.counts
        self._rest = [
            (0,) * (self.ndim - n) if all(count == 1 for count in counts[n:]) else None
            for n in range(self.ndim + 1)
        ]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of all elements, in bytes."""
        return self.size * self.dtype.itemsize

    def __getitem__(self, selection: Any) -> Any:
        # Integers and slices within one block, in the time of a few operations of Python.
        entries = selection if type(selection) is tuple else (selection,)
        try:
            rest = self._rest[len(entries)]
            place: list[int] = []
            local: list[int | slice] = []
            for entry, size, n in zip(entries, self.chunks, self.shape):  # noqa: B905 -- slower
                if type(entry) is int:
                    place.append(entry // size)
                    local.append(entry % size)
                    continue
                if type(entry) is not slice:
                    break
                start, stop, step = entry.indices(n)
                k = start // size
                if step < 1 or not start < stop <= (k + 1) * size:
                    break
                place.append(k)
                local.append(slice(start - k * size, stop - k * size, step))
            else:
                if rest is not None:
                    return self._block(*place, *rest)[tuple(local)]
        except (IndexError, TypeError):  # a negative index, or an error that `Selected` explains
            pass
        if isinstance(selection, np.integer):
            return self[int(selection)]
        selected = Selected(selection, self._blocks.grid)
        if (found := selected.in_one_block()) is not None:
            return self._block(*found[0])[found[1]]
        return selected.read(self._block, self.dtype)

    def __setitem__(self, selection: Any, value: Any) -> None:
        if self.mode == "r":
            raise ValueError(
                'the view is read-only: view(array, "r+") lets existing chunks be changed, and'
                " `array[...] = ...` of zarr writes any"
            )
        selected = Selected(selection, self._blocks.grid)
        values = elements_to_store(value, self.dtype, selected.result_shape)
        if values.size:
            selected.write(self._writable, values)

    def _writable(self, *place: int) -> Array:
        block = self._block(*place)
        if not block.flags.writeable:
            raise ValueError(
                f"block {place} is missing, or shares bytes of its shard with another one, and a"
                " view creates none: make all chunks in advance by"
                " `zarr_bytes.preallocate(array)`, or write through zarr (`array[...] = ...`), and"
                " then call `refresh()`"
            )
        return block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        if copy is False and (count := self._blocks.grid.count) != 1:
            raise ValueError(
                f"the array has {count} chunks, and is one NumPy array only as a copy,"
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
        """Forget all mappings, so that the next selections open chunks again.

        These see chunks that others have replaced or created. Arrays that were selected before
        don't change. Call `flush` first, to find out whether changes of this view were lost.
        """
        self._block.cache_clear()
        self._blocks.refresh()
        if self._changed is not None:
            self._changed.forget_identities()

    def flush(self) -> None:
        """Wait until all changes are on the disk. Other processes of this machine see them at once.

        Raises
        ------
        ChunkFileError
            If a chunk was replaced or deleted after it was mapped, so that changes are lost.
        OSError
            If the disk is full or fails.
        """
        if self._changed is not None:
            self._changed.sync()

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayView, (self.array, self.mode)

    def __repr__(self) -> str:
        return (
            f"<ArrayView {self.array.store_path} shape={self.shape} dtype={self.dtype}"
            f" chunks={self.chunks} mode={self.mode!r}>"
        )


def _why_read_only(array: zarr.Array[Any]) -> str:
    """The reason why chunks of an array are not changed in place, and what to do; or empty."""
    if reason := driver_of(array.store).why_not_in_place():
        return reason
    pipeline = array.async_array.codec_pipeline
    if partial_writes_enabled() or (
        isinstance(pipeline, BatchedBytesPipeline) and pipeline.in_place
    ):
        return ""
    return f"partial writes are off; open the array and its view in `{_SETTING}`"
