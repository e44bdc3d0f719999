"""Chains of codecs that store chunks uncompressed, and how they store them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import zarr
from zarr import codecs as zarr_codecs
from zarr.codecs import Crc32cCodec, ShardingCodec, TransposeCodec

from zarr_bytes.codec import SAME_BYTES_CLASSES, BytesCodec
from zarr_bytes.errors import StoreError
from zarr_bytes.layout.write_order import WRITE_ORDERS
from zarr_bytes.zarr_versions import chunk_spec_of, endian_of, refuses_shard, write_order_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zarr.abc.codec import Codec

    from zarr_bytes.layout.elements import Endian
    from zarr_bytes.layout.objects import ChunkEncoding
    from zarr_bytes.zarr_versions import ArraySpec, ArrayV3Metadata


def with_own_codecs(codecs: Iterable[Codec]) -> tuple[Codec, ...]:
    """The chain with this package's codec in place of zarr's `bytes`, in shards, too."""
    return tuple(map(_own, codecs))


def _own(codec: Codec) -> Codec:
    if type(codec) is zarr_codecs.BytesCodec:
        return BytesCodec(endian=endian_of(codec))
    if type(codec) is ShardingCodec:
        inner = with_own_codecs(codec.codecs)
        is_changed = any(a is not b for a, b in zip(inner, codec.codecs, strict=True))
        return replace(codec, codecs=inner) if is_changed else codec
    return codec


def is_uncompressed(codecs: Sequence[Codec]) -> bool:
    """Whether these are transposes and `bytes`, or shards of these."""
    if not codecs or any(type(codec) is not TransposeCodec for codec in codecs[:-1]):
        return False
    last = codecs[-1]
    if type(last) is ShardingCodec:
        is_nested = ShardingCodec in map(type, last.codecs)
        has_known_order = write_order_of(last) in WRITE_ORDERS
        is_stored_plainly = _has_plain_index(last) and is_uncompressed(last.codecs)
        return is_stored_plainly and has_known_order and not is_nested
    return type(last) in SAME_BYTES_CLASSES


def _has_plain_index(codec: ShardingCodec) -> bool:
    """Whether the index of shards is stored by `bytes`, with or without a checksum."""
    first, *others = codec.index_codecs or (None,)
    return (
        type(first) in SAME_BYTES_CLASSES
        and cast("BytesCodec", first).endian is not None
        and [type(other) for other in others] in ([], [Crc32cCodec])
    )


def why_undivided(codecs: Sequence[Codec], spec: ArraySpec) -> str | None:
    """Which inner chunk does not divide which shard of a chain that `is_plain`; None if it does.

    This package neither reads nor writes such shards. Their spec is as zarr gives it to a pipeline.
    """
    last, shard = codecs[-1], _spec_of_last(codecs, spec)
    if not isinstance(last, ShardingCodec):
        return None
    for axis, (n, size) in enumerate(zip(shard.shape, last.chunk_shape, strict=False)):
        if n % size:
            return (
                f"inner chunks of the shape {last.chunk_shape} do not divide shards, which have the"
                f" shape {shard.shape} after the codecs before them: {size} does not divide {n} on"
                f" axis {axis}"
            )
    return None


def why_unreadable(codecs: Sequence[Codec], spec: ArraySpec) -> str | None:
    """As `why_undivided`, but None where this zarr reads and writes such shards by itself."""
    # Up to 3.4.2, zarr compares inner chunks with the chunk before a `transpose`. It accepts some
    # that do not divide the shard, and what it writes there is lost.
    reason = why_undivided(codecs, spec)
    is_refused = reason and refuses_shard(codecs[-1], _spec_of_last(codecs, spec))
    return reason if is_refused else None


def _spec_of_last(codecs: Sequence[Codec], spec: ArraySpec) -> ArraySpec:
    """What the last codec of a chain gets, behind all others."""
    for codec in codecs[:-1]:
        spec = codec.resolve_metadata(spec)
    return spec


def codec_name(codec: Codec) -> str:
    """Name of a codec in metadata; of a codec without one, the name of its class."""
    try:
        return str(codec.to_dict()["name"])
    except (KeyError, NotImplementedError):
        return type(codec).__name__


def uncompressed_codecs(array: zarr.Array[Any]) -> Sequence[Codec]:
    """Codecs of an array with chunks of plain bytes; a StoreError for any other array."""
    metadata = array.metadata
    if metadata.zarr_format != 3:
        raise StoreError("it is of Zarr format 2")
    if not is_uncompressed(metadata.codecs):
        others = [*map(codec_name, _other_codecs(metadata.codecs)), "sharding_indexed"]
        raise StoreError(
            f"chunks go through the codec {others[0]}, so that no element has a place of its own in"
            " the file: permitted are transposes and bytes alone (compressors=None, filters=None),"
            " or shards of them, which are in no other shard, with an index of bytes and crc32c"
        )
    return metadata.codecs


def uncompressed_parts(
    array: zarr.Array[Any],
) -> tuple[Sequence[Codec], ArrayV3Metadata, ArraySpec]:
    """As `uncompressed_codecs`, with metadata and chunk spec.

    A StoreError also for chunks of several shapes.
    """
    codecs, metadata = uncompressed_codecs(array), cast("ArrayV3Metadata", array.metadata)
    spec = chunk_spec_of(metadata)
    if spec is None:
        raise StoreError("its chunks have several shapes")
    if reason := why_undivided(codecs, spec):
        raise StoreError(reason)
    return codecs, metadata, spec


def _other_codecs(codecs: Iterable[Codec]) -> Iterator[Codec]:
    """The codecs of a chain, and of inner chunks, that are not among those of plain bytes."""
    for codec in codecs:
        if type(codec) is ShardingCodec:
            yield from _other_codecs(codec.codecs)
        elif type(codec) not in (TransposeCodec, *SAME_BYTES_CLASSES):
            yield codec


def encoding_of(codecs: Sequence[Codec]) -> ChunkEncoding:
    """Storage of the chunks of a chain that `is_plain`."""
    from zarr_bytes.layout.objects import ChunkEncoding, ShardingConfig

    *transposes, last = codecs
    if not isinstance(last, ShardingCodec):
        return ChunkEncoding(endian_of(cast("BytesCodec", last)), _composed_order(transposes))
    nesting = _composed_order(transposes) or tuple(range(len(last.chunk_shape)))
    location = last.index_location  # an enum up to zarr 3.3, and a string after it
    sharding = ShardingConfig(
        inner_chunk_shape=tuple([last.chunk_shape[nesting.index(i)] for i in range(len(nesting))]),
        index_order=nesting,
        index_is_at_end=getattr(location, "value", location) == "end",
        index_endian=cast("Endian", endian_of(cast("BytesCodec", last.index_codecs[0]))),
        index_has_checksum=len(last.index_codecs) > 1,
        keeps_padding=not transposes,
        write_order=write_order_of(last),
    )
    *inner, serializer = last.codecs
    endian = endian_of(cast("BytesCodec", serializer))
    return ChunkEncoding(endian, _composed_order([*transposes, *inner]), sharding)


def _composed_order(codecs: Iterable[Codec]) -> tuple[int, ...] | None:
    """Axis of the array that each stored axis is, after all transposes; None if none moves."""
    transposes = [cast("TransposeCodec", codec).order for codec in codecs]
    composed: tuple[int, ...] = ()
    for order in transposes:
        composed = tuple(composed[i] if composed else i for i in order)
    return None if composed == tuple(sorted(composed)) else composed
