"""Chunks that are kept with the plan of their last selection, for the next chunk or read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from zarr_bytes.chunk.chunks import Chunks
from zarr_bytes.chunk.plan import Plan
from zarr_bytes.chunk.selection import is_basic
from zarr_bytes.chunk.shard_plan import ShardPlan
from zarr_bytes.chunk.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.abc.buffer import BufferPrototype

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.chunk.stored import Sharding
    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.settings import Cost
    from zarr_bytes.zarr_versions import ArraySpec

__all__ = ["PlannedChunks", "PlannedShards", "chunks_like", "chunks_of", "shards_of"]

P = TypeVar("P", bound=Plan)


class _Planned(Generic[P]):
    """Chunks with the plan of the last selection."""

    _last_plan: tuple[tuple[Any, ...], Cost | None, P | None] = ((), None, None)

    def plan(self, selection: tuple[Any, ...], cost: Cost | None) -> P:
        """Plan for a selection, one entry an axis; `cost` is None where chunks are read whole."""
        last_selection, last_cost, plan = self._last_plan
        is_kept = is_basic(selection)
        if is_kept and last_cost == cost and last_selection == selection and plan is not None:
            return plan
        plan = self._new_plan(selection, cost)
        if is_kept and plan.is_small:
            self._last_plan = selection, cost, plan  # one tuple: no thread sees half of it
        return plan

    def _new_plan(self, selection: tuple[Any, ...], cost: Cost | None) -> P:
        raise NotImplementedError


class PlannedChunks(_Planned[Plan], Chunks):
    """Chunks of one shape and data type, with the plan of the last selection."""

    def _new_plan(self, selection: tuple[Any, ...], cost: Cost | None) -> Plan:
        return Plan(self, selection, cost)


class PlannedShards(_Planned[ShardPlan], Shards):
    """Shards of one shape, data type and fill value, with the plan of the last selection."""

    def _new_plan(self, selection: tuple[Any, ...], cost: Cost | None) -> ShardPlan:
        return ShardPlan(self, selection, cost)


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


def shards_of(
    sharding: Sharding, spec: ArraySpec, endian: Endian | None, order: tuple[int, ...] | None
) -> PlannedShards:
    """Shards of a spec; the arguments after it are those of `chunks_of`."""
    dtype = spec.dtype.to_native_dtype()
    fill = spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value
    encoded = np.full(1, fill, dtype).tobytes()
    return shards_like(sharding, encoded, spec.shape, dtype, endian, order, spec.prototype)


_last: tuple[ArraySpec | None, Endian | None, tuple[int, ...] | None, PlannedChunks | None] = (
    None,
    None,
    None,
    None,
)
chunks_like: Callable[
    [tuple[int, ...], DType, Endian | None, tuple[int, ...] | None, BufferPrototype], PlannedChunks
] = lru_cache(maxsize=128)(PlannedChunks)
shards_like = lru_cache(maxsize=128)(PlannedShards)
