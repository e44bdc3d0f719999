"""The storage of uncompressed chunks, as the codecs of an array name it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec

from zarr_bytes.layout.format import Format, Sharding
from zarr_bytes.zarr_versions import endian_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr.abc.codec import Codec
    from zarr.codecs import BytesCodec, TransposeCodec

    from zarr_bytes.layout.element import Endian
    from zarr_bytes.zarr_versions import ArraySpec


class Stored(NamedTuple):
    """The storage of chunks, as the codecs of an array name it."""

    endian: Endian | None  # of the (inner) chunks; None means the byte order of the data type
    order: tuple[int, ...] | None  # axis of the array that each stored axis is; None in order
    sharding: Sharding | None  # where the chunks are shards


def is_for_numpy(spec: ArraySpec) -> bool:
    """Whether chunks become arrays in the memory of this machine."""
    return issubclass(spec.prototype.buffer, cpu.Buffer)


def stored_by(chain: Sequence[Codec]) -> Stored:
    """Storage of the chunks of a chain that `own_chain` gives."""
    *transposes, last = chain
    orders = [cast("TransposeCodec", codec).order for codec in transposes]
    if not isinstance(last, ShardingCodec):
        return Stored(endian_of(cast("BytesCodec", last)), _order_of(orders), None)
    inner = stored_by(last.codecs)
    nesting = _order_of(orders) or tuple(range(len(last.chunk_shape)))
    inner_orders = [cast("TransposeCodec", codec).order for codec in last.codecs[:-1]]
    sharding = _sharding_of(last, nesting, keeps_edges=not transposes)
    return Stored(inner.endian, _order_of([*orders, *inner_orders]), sharding)


def _sharding_of(codec: ShardingCodec, order: tuple[int, ...], *, keeps_edges: bool) -> Sharding:
    """Configuration of a codec with a plain index."""
    location = codec.index_location  # an enum up to zarr 3.3, and a string after it
    return Sharding(
        inner_shape=tuple([codec.chunk_shape[order.index(i)] for i in range(len(order))]),
        index_order=order,
        is_at_end=getattr(location, "value", location) == "end",
        index_endian=cast("Endian", endian_of(cast("BytesCodec", codec.index_codecs[0]))),
        has_checksum=len(codec.index_codecs) > 1,
        keeps_edges=keeps_edges,
    )


def _order_of(transposes: Iterable[Sequence[int]]) -> tuple[int, ...] | None:
    """Axis of the array that each stored axis is, after transposes one after another.

    None where they are stored in their order.
    """
    composed: tuple[int, ...] = ()
    for order in transposes:
        composed = tuple(composed[i] if composed else i for i in order)
    return None if composed == tuple(sorted(composed)) else composed


def format_of(spec: ArraySpec, stored: Stored) -> Format:
    """Format of the chunks of a spec; that of the last call is kept."""
    global _last  # one tuple, assigned at once: no thread sees half of it
    last, given, format = _last
    if format is None or given != stored or not _is_like(spec, last):
        dtype = spec.dtype.to_native_dtype()
        fill = np.full(1, fill_value_of(spec), dtype).tobytes()
        format = _format_like(spec.shape, dtype, *stored, fill)
        _last = spec, stored, format
    return format


def fill_value_of(spec: ArraySpec) -> Any:  # as zarr has it
    """The fill value of a chunk spec: the default of its data type, where none is given."""
    return spec.dtype.default_scalar() if spec.fill_value is None else spec.fill_value


def _is_like(spec: ArraySpec, last: ArraySpec | None) -> bool:
    """Whether a chunk spec has the parts of another one: zarr makes one for each read."""
    return spec is last or (
        last is not None
        and spec.dtype is last.dtype
        and spec.shape == last.shape
        and spec.fill_value is last.fill_value
    )


_format_like = lru_cache(maxsize=128)(Format)
_last: tuple[ArraySpec | None, object, Format | None] = None, None, None
