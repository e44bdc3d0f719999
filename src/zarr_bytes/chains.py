"""Chains of codecs that store chunks uncompressed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import zarr
from zarr import codecs as zarr_codecs
from zarr.codecs import Crc32cCodec, ShardingCodec, TransposeCodec

from zarr_bytes.activation import CLASSES
from zarr_bytes.codec import (
    BytesCodec,
    EndianCodec,
    PartialWriteBytesCodec,
    PartialWriteEndianCodec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr.abc.codec import Codec

__all__ = ["codec_name", "own_chain", "plain_chain"]

_CODECS: Final = (BytesCodec, EndianCodec, PartialWriteBytesCodec, PartialWriteEndianCodec)


def own_chain(chain: Sequence[Codec]) -> Sequence[Codec] | None:
    """The chain with this package's codec for bytes; None for other chains.

    Also None where zarr's configuration chooses another class for `bytes`.
    """
    if zarr.config.get("codecs.bytes", None) != CLASSES["bytes"]:
        return None
    return plain_chain(chain)


def plain_chain(chain: Sequence[Codec]) -> Sequence[Codec] | None:
    """`own_chain`, whichever class is chosen for `bytes`."""
    if not chain or any(type(codec) is not TransposeCodec for codec in chain[:-1]):
        return None
    last = chain[-1]
    if type(last) is ShardingCodec:
        inner = plain_chain(last.codecs) if _has_plain_index(last) else None
        if inner is None or type(inner[-1]) is ShardingCodec:
            return None
        # Not left to zarr, which keeps a codec for one that is equal to it.
        fitted = cast("BytesCodec", inner[-1]).with_settings()
        if fitted is last.codecs[-1]:
            return chain
        return (*chain[:-1], replace(last, codecs=(*inner[:-1], fitted)))
    if type(last) is zarr_codecs.BytesCodec:
        return (*chain[:-1], BytesCodec.in_place_of(last))
    return chain if type(last) in _CODECS else None


def _has_plain_index(codec: ShardingCodec) -> bool:
    """Whether the index of shards is stored by `bytes`, with or without a checksum."""
    first, *others = codec.index_codecs
    return (
        type(first) in (zarr_codecs.BytesCodec, *_CODECS)
        and cast("BytesCodec", first).endian is not None
        and [type(other) for other in others] in ([], [Crc32cCodec])
    )


def codec_name(codec: Codec) -> str:
    """Name of a codec in metadata; of a codec without one, the name of its class."""
    try:
        return str(codec.to_dict()["name"])
    except (KeyError, NotImplementedError):
        return type(codec).__name__
