"""The common properties of chunks of one shape and data type, with the plan of the last read."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from zarr.buffer import cpu

from zarr_bytes.chunk.elements import check_bools, check_size, decode_elements, largest
from zarr_bytes.chunk.layout import layout_of
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.chunk.selection import is_basic
from zarr_bytes.data_type.number_formats import FIRST_USER_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.abc.buffer import BufferPrototype, NDBuffer

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec

__all__ = ["Chunks", "Planned", "chunks_like", "chunks_of", "fill_value_of", "is_like"]

P = TypeVar("P", bound=Plan)


def fill_value_of(spec: ArraySpec) -> Any:  # as zarr has it
    """The fill value of a chunk spec: the default of its data type, where none is given."""
    return spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value


class Planned(Generic[P]):
    """Chunks or shards that keep the last plan for each cost, for the next chunk, read or write."""

    def __init__(self) -> None:
        self._last: dict[Cost | None, tuple[tuple[Any, ...], P]] = {}

    def plan(self, selection: tuple[Any, ...], cost: Cost | None) -> P:
        """Plan for a selection, one entry an axis; `cost` is None where chunks are read whole."""
        is_kept = is_basic(selection)
        if is_kept and (last := self._last.get(cost)) is not None and last[0] == selection:
            return last[1]
        plan = self._new_plan(selection, cost)
        if is_kept and plan.is_small:
            self._last[cost] = selection, plan  # one tuple: no thread sees half of it
        return plan

    def _new_plan(self, selection: tuple[Any, ...], cost: Cost | None) -> P:
        raise NotImplementedError


class Chunks(Planned[Plan]):
    """Chunks of one shape and data type.

    Parameters
    ----------
    shape : tuple of int
        Shape in the array, before any transpose.
    dtype : numpy.dtype
        Type of the elements.
    endian : {"little", "big"} or None
        Stored byte order; None means the byte order of `dtype`.
    order : tuple of int or None
        The axis that each stored axis is (transpose codec 1.0); None where they are in order.
    prototype : zarr.abc.buffer.BufferPrototype
        Prototype of the buffers of results.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        endian: Endian | None,
        order: tuple[int, ...] | None,
        prototype: BufferPrototype,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.dtype = dtype
        self.endian = endian
        self.order = order
        self.nesting = tuple(range(len(shape))) if order is None else order
        self.layout = layout = layout_of(dtype, endian)
        self.item_size = layout.item_size
        self.stored = layout.view or dtype
        self.nbytes = prod(shape) * layout.item_size
        # Whether stored elements need no check or change but of their byte order; and whether
        # NumPy assigns them as they are stored.
        self.is_unchecked = not (layout.bool_offsets or layout.narrow_bytes)
        self.is_plain = self.is_unchecked and layout.view is not None
        self.selected_dtype = dtype if layout.view is None or layout.narrow_bytes else layout.view
        # Other buffers than NumPy's get the result alone: ranges are fetched into NumPy memory.
        self.is_numpy = issubclass(prototype.buffer, cpu.Buffer)
        self.prototype = prototype if self.is_numpy else cpu.buffer_prototype
        self._nd_buffer = prototype.nd_buffer

    def _new_plan(self, selection: tuple[Any, ...], cost: Cost | None) -> Plan:
        return Plan(self, selection, cost)

    def of_whole(self, encoded: Bytes, selection: tuple[Any, ...]) -> Array:
        """``chunk[selection]``, out of the bytes of the whole chunk; possibly a view of them."""
        if not isinstance(encoded, np.ndarray):
            decoded = decode_elements(encoded, self.dtype, self.shape, self.endian)
            return decoded[selection]
        check_size(encoded.size, self.dtype, self.shape)
        selected = self._whole(encoded)[(*selection, ...)]  # never a scalar
        of = "chunk" if selected.shape == self.shape else "selection"
        return self._checked(np.asarray(selected), of)

    def _whole(self, encoded: Bytes) -> Array:
        if self.order is None:
            return np.ndarray(self.shape, self.stored, encoded)
        shape = tuple([self.shape[i] for i in self.order])
        return np.ndarray(shape, self.stored, encoded).transpose(np.argsort(self.order))

    def _checked(self, array: Array, of: str) -> Array:
        """Stored elements as the array has them, possibly in the stored byte order."""
        self.check_bools(array, of)
        return self.decoded(array, in_place=False)

    def check_bools(self, array: Array, of: str) -> None:
        """Check that the bools among stored elements are 0 or 1.

        Raises
        ------
        BoolValueError
            If a bool is neither; `of` names the thing that the index in the message is of.
        """
        if self.has_wrong_bool(array):
            check_bools(array.ravel().view(np.uint8), self.layout, array.shape, of)

    def has_wrong_bool(self, array: Array) -> bool:
        """Whether a bool among stored elements is neither 0 nor 1."""
        # In place: `ravel` may copy.
        return any(largest(array.getfield(np.uint8, i)) > 1 for i in self.layout.bool_offsets)

    def decoded(self, array: Array, *, in_place: bool) -> Array:
        """Stored elements as the array has them, without a check of bools."""
        if self.layout.view is None or self.layout.narrow_bytes:
            encoded = array.ravel().view(np.uint8)
            return decode_elements(encoded, self.dtype, array.shape, self.endian, in_place=in_place)
        return array

    def as_numbers(self, canvas: Array) -> tuple[Array, DType] | None:
        """A canvas, and the type of stored elements, such that NumPy assigns them bit for bit.

        With a last axis for the numbers in an element, where these have one type, since plain
        numbers are swapped two to three times as fast. None where elements must be checked, or the
        canvas has another data type.
        """
        layout = layout_of(canvas.dtype, self.endian)
        is_alike = canvas.dtype.newbyteorder("=") == self.dtype.newbyteorder("=")
        if not is_alike or not self.is_unchecked:
            return None
        is_foreign = layout.view is None or canvas.dtype.num >= FIRST_USER_TYPE
        if is_foreign and not canvas.dtype.isnative:
            return None  # types of other packages have one byte order; NumPy decides
        if layout.number is None or layout.is_stored_as_is:
            return canvas.view(layout.units), layout.stored
        numbers = canvas[..., np.newaxis].view(layout.number)
        return numbers, np.dtype((layout.number.newbyteorder(), numbers.shape[-1:]))

    def buffer(self, array: Array) -> NDBuffer:
        """A result in its buffer."""
        if self.is_numpy or not isinstance(array, np.ndarray):
            return self._nd_buffer.from_ndarray_like(array)
        return self._nd_buffer.from_numpy_array(array.astype(array.dtype.newbyteorder("=")))


def chunks_of(spec: ArraySpec, endian: Endian | None, order: tuple[int, ...] | None) -> Chunks:
    """Chunks of a spec, in the stored byte order `endian` and the stored order of axes.

    The result of the last call is kept: a look-up takes two microseconds.
    """
    global _last  # one tuple, assigned at once: no thread sees half of it
    last, given, chunks = _last
    if chunks is None or given != (endian, order) or not is_like(spec, last):
        dtype = spec.dtype.to_native_dtype()
        chunks = chunks_like(spec.shape, dtype, endian, order, spec.prototype)
        _last = spec, (endian, order), chunks
    return chunks


def is_like(spec: ArraySpec, last: ArraySpec | None) -> bool:
    """Whether a chunk spec has the parts of another one: zarr makes one for each read."""
    return spec is last or (
        last is not None
        and spec.dtype is last.dtype
        and spec.shape == last.shape
        and spec.fill_value is last.fill_value
        and spec.prototype == last.prototype
    )


_last: tuple[ArraySpec | None, object, Chunks | None] = None, None, None
chunks_like: Callable[
    [tuple[int, ...], DType, Endian | None, tuple[int, ...] | None, BufferPrototype], Chunks
] = lru_cache(maxsize=128)(Chunks)
