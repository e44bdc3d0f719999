"""The configuration of shards whose index is plain, as the codec of zarr has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from zarr.codecs import BytesCodec, ShardingCodec

    from zarr_bytes.chunk.layout import Endian

__all__ = ["Sharding", "sharding_of"]


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


def sharding_of(codec: ShardingCodec, order: tuple[int, ...], *, keeps_edges: bool) -> Sharding:
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
