"""Chunks that are kept with the plan of their last selection, for the next chunk or read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.chunks import Chunks
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.chunk.selection import is_basic

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.abc.buffer import BufferPrototype

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec

__all__ = ["PlannedChunks", "chunks_like", "chunks_of"]


class PlannedChunks(Chunks):
    """Chunks of one shape and data type, with the plan of the last selection."""

    _last_plan: tuple[tuple[Any, ...], Cost | None, Plan | None] = ((), None, None)

    def plan(self, selection: tuple[Any, ...], cost: Cost | None) -> Plan:
        """Plan for a selection, one entry an axis; `cost` is None where chunks are read whole."""
        last_selection, last_cost, plan = self._last_plan
        is_kept = is_basic(selection)
        if is_kept and last_cost == cost and last_selection == selection and plan is not None:
            return plan
        plan = Plan(self, selection, cost)
        if is_kept and plan.ranges <= limits.LIMITS.kept_runs:
            self._last_plan = selection, cost, plan  # one tuple: no thread sees half of it
        return plan


def chunks_of(
    spec: ArraySpec, endian: Endian | None, order: tuple[int, ...] | None
) -> PlannedChunks:
    """Chunks of a spec, in the stored byte order `endian` and the stored order of axes.

    The ones that were asked for last are kept by their spec: zarr makes one for all chunks of a
    read, and never changes it. To find them again by its parts takes two microseconds.
    """
    global _last  # one tuple, assigned at once: no thread sees half of it
    last_spec, last_endian, last_order, chunks = _last
    if last_spec is not spec or last_endian != endian or last_order != order or chunks is None:
        chunks = chunks_like(
            spec.shape, spec.dtype.to_native_dtype(), endian, order, spec.prototype
        )
        _last = spec, endian, order, chunks
    return chunks


_last: tuple[ArraySpec | None, Endian | None, tuple[int, ...] | None, PlannedChunks | None] = (
    None,
    None,
    None,
    None,
)
chunks_like: Callable[
    [tuple[int, ...], DType, Endian | None, tuple[int, ...] | None, BufferPrototype], PlannedChunks
] = lru_cache(maxsize=128)(PlannedChunks)
