"""The storage of uncompressed chunks, as the codecs of an array name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from zarr.codecs import ShardingCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr.abc.codec import Codec
    from zarr.codecs import TransposeCodec

    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.codec import BytesCodec

__all__ = ["Sharding", "Stored", "stored_by"]


class Sharding(NamedTuple):
    """The configuration of the sharding codec, with the `transpose` codecs around it.

    Attributes
    ----------
    inner_shape : tuple of int
        Shape of an inner chunk, in the axes of the array.
    index_order : tuple of int
        Axis of the array that each axis of the index is.
    is_at_end : bool
        Whether the index is behind the inner chunks.
    index_endian : {"little", "big"}
        Byte order of the index.
    has_checksum : bool
        Whether a checksum (crc32c codec 1.0) is behind the index.
    keeps_edges : bool
        Whether elements behind the edge of the array are kept where all within it is written, as
        zarr keeps them where no codec is before the shards.
    """

    inner_shape: tuple[int, ...]
    index_order: tuple[int, ...]
    is_at_end: bool
    index_endian: Endian
    has_checksum: bool
    keeps_edges: bool


class Stored(NamedTuple):
    """The storage of chunks, as the codecs of an array name it.

    Attributes
    ----------
    codec : BytesCodec
        The codec of the chunks, or of the inner chunks of shards.
    order : tuple of int or None
        Axis of the array that each stored axis is; None where they are in order.
    sharding : Sharding or None
        How shards are divided, where the chunks are shards.
    """

    codec: BytesCodec
    order: tuple[int, ...] | None
    sharding: Sharding | None


def stored_by(chain: Sequence[Codec]) -> Stored:
    """Storage of the chunks of a chain that `own_chain` gives."""
    *transposes, last = chain
    orders = [cast("TransposeCodec", codec).order for codec in transposes]
    if not isinstance(last, ShardingCodec):
        return Stored(cast("BytesCodec", last), _order_of(orders), None)
    inner = stored_by(last.codecs)
    nesting = _order_of(orders) or tuple(range(len(last.chunk_shape)))
    inner_orders = [cast("TransposeCodec", codec).order for codec in last.codecs[:-1]]
    sharding = _sharding_of(last, nesting, keeps_edges=not transposes)
    return Stored(inner.codec, _order_of([*orders, *inner_orders]), sharding)


def _sharding_of(codec: ShardingCodec, order: tuple[int, ...], *, keeps_edges: bool) -> Sharding:
    """Configuration of a codec with a plain index.

    Parameters
    ----------
    codec : zarr.codecs.ShardingCodec
    order : tuple of int
        Axis of the array that each axis of what the codec is given is.
    keeps_edges : bool
        As of `Sharding`.
    """
    endian = cast("BytesCodec", codec.index_codecs[0]).endian
    location = codec.index_location  # an enum up to zarr 3.3, and a string after it
    return Sharding(
        inner_shape=tuple([codec.chunk_shape[order.index(i)] for i in range(len(order))]),
        index_order=order,
        is_at_end=getattr(location, "value", location) == "end",
        index_endian=cast("Endian", getattr(endian, "value", endian)),  # an enum up to zarr 3.2
        has_checksum=len(codec.index_codecs) > 1,
        keeps_edges=keeps_edges,
    )


def _order_of(transposes: Iterable[Sequence[int]]) -> tuple[int, ...] | None:
    """Axis of the array that each stored axis is, after transposes one after another.

    None where they are stored in their order.

    Examples
    --------
    >>> _order_of([(1, 2, 0), (1, 0, 2)])
    (2, 1, 0)
    """
    composed: tuple[int, ...] = ()
    for order in transposes:
        composed = tuple(composed[i] if composed else i for i in order)
    return None if composed == tuple(sorted(composed)) else composed
