"""Chains of codecs that store chunks uncompressed, and their chunk encoding.

A chain is all codecs of an array, in the order in which they encode. A chain is uncompressed if it
has any number of `transpose` and elementwise codecs followed by `bytes` or `endian`, or shards with
such a chain inside. Elementwise codecs, such as `scale_offset`, change each element by itself.

An array of Zarr format 2 has no codecs in its metadata. zarr gives it one codec with the filters
and the compressor. The chain is uncompressed if there is no compressor, and all filters change each
element by itself.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import zarr
from zarr import codecs as zarr_codecs
from zarr.codecs import Crc32cCodec, ShardingCodec, TransposeCodec

from zarr_bytes.codec import SAME_BYTES_CLASSES, BytesCodec
from zarr_bytes.errors import StoreError
from zarr_bytes.layout.elementwise_codecs import ElementwiseCodecs, why_filters_need_whole_chunks
from zarr_bytes.layout.write_order import WRITE_ORDERS
from zarr_bytes.limits import DEFAULT_LIMITS
from zarr_bytes.zarr_versions import (
    chunk_spec_if_regular,
    codecs_or_empty_if_unknown,
    endian_of,
    is_elementwise_codec,
    is_elementwise_filter,
    is_format_2_codec,
    write_order_of,
    zarr_refuses_shard,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zarr.abc.codec import Codec

    from zarr_bytes.layout.elements import EndiannessStr
    from zarr_bytes.layout.objects import ChunkEncoding
    from zarr_bytes.limits import Limits
    from zarr_bytes.zarr_versions import ArraySpec


def with_own_bytes_codecs(codecs: Iterable[Codec]) -> tuple[Codec, ...]:
    """The chain with this package's codec instead of zarr's `BytesCodec`, also inside shards."""
    return tuple(map(_with_own_bytes_codec, codecs))


def _with_own_bytes_codec(codec: Codec) -> Codec:
    """The codec of this package instead of zarr's `BytesCodec`; any other codec is unchanged.

    In a sharding codec, the codecs of the inner chunks are replaced: see `with_own_bytes_codecs`.

    Subclasses of zarr's codecs are unchanged, since they may store other bytes.
    """
    if type(codec) is zarr_codecs.BytesCodec:
        return BytesCodec(endian=endian_of(codec))
    if type(codec) is ShardingCodec:
        inner_codecs = with_own_bytes_codecs(codec.codecs)
        is_changed = any(a is not b for a, b in zip(inner_codecs, codec.codecs, strict=True))
        return replace(codec, codecs=inner_codecs) if is_changed else codec
    return codec


def is_uncompressed(codecs: Sequence[Codec]) -> bool:
    """Whether a chain stores each element by itself, so that this package reads and writes it.

    Such a chain is any number of `transpose` and elementwise codecs followed by `bytes` or
    `endian`; or shards with such a chain inside and an index stored by `bytes`; or the codec of
    format 2 with no compressor and only elementwise filters. False for nested shards.
    """
    if len(codecs) == 1 and is_format_2_codec(codecs[0]):
        return not any(iter_codecs_unsupported_by_themselves(codecs))
    if not codecs or not all(map(_is_transpose_or_elementwise_codec, codecs[:-1])):
        return False
    last = codecs[-1]
    if type(last) is ShardingCodec:
        is_nested = ShardingCodec in map(type, last.codecs)
        has_known_order = write_order_of(last) in WRITE_ORDERS
        has_uncompressed_parts = _has_uncompressed_index(last) and is_uncompressed(last.codecs)
        return has_uncompressed_parts and has_known_order and not is_nested
    return type(last) in SAME_BYTES_CLASSES


def _is_transpose_or_elementwise_codec(codec: Codec) -> bool:
    return type(codec) is TransposeCodec or is_elementwise_codec(codec)


def _has_uncompressed_index(codec: ShardingCodec) -> bool:
    """Whether the index of shards is stored by `bytes`, with or without a `crc32c` checksum."""
    serializer, *after_serializer = codec.index_codecs or (None,)
    return (
        type(serializer) in SAME_BYTES_CLASSES
        and cast("BytesCodec", serializer).endian is not None
        and [type(other) for other in after_serializer] in ([], [Crc32cCodec])
    )


def why_inner_chunks_do_not_divide_shard(
    uncompressed_codecs: Sequence[Codec], shape: tuple[int, ...]
) -> str | None:
    """Why inner chunks don't divide a shard evenly; None if they do, or if there are no shards.

    This package doesn't read or write a shard that inner chunks don't divide. The chain must be one
    that `is_uncompressed`. `shape` is the shape of a shard before any `transpose`, as in metadata.
    """
    last = uncompressed_codecs[-1]
    if not isinstance(last, ShardingCodec):
        return None
    order = _composed_order_unless_identity(_transposes_in(uncompressed_codecs[:-1]))
    shard_shape = shape if order is None else tuple([shape[i] for i in order])
    for axis, (length, inner_length) in enumerate(zip(shard_shape, last.chunk_shape, strict=False)):
        if length % inner_length:
            return (
                f"inner chunks of the shape {last.chunk_shape} do not divide shards, which have the"
                f" shape {shard_shape} after the codecs before them: {inner_length} does not divide"
                f" {length} on axis {axis}"
            )
    return None


def why_uncompressed_chunks_are_read_by_zarr(
    uncompressed_codecs: Sequence[Codec], spec: ArraySpec
) -> str | None:
    """Why zarr reads chunks or shards of this spec, although their chain `is_uncompressed`.

    None if this package reads them. A clause for a message.
    """
    if filters := elementwise_codecs_of(uncompressed_codecs).filters:
        return why_filters_need_whole_chunks(filters, spec)
    return why_inner_chunks_do_not_divide_shard(uncompressed_codecs, spec.shape)


def why_uncompressed_chunks_are_written_by_zarr(
    uncompressed_codecs: Sequence[Codec], spec: ArraySpec
) -> str | None:
    """Why zarr writes chunks or shards of this spec, although this package reads them.

    None if this package writes them. A clause for a message.
    """
    codecs_before_shards = elementwise_codecs_of(uncompressed_codecs).before_shards
    if not codecs_before_shards:
        return None
    layout = encoding_of_uncompressed(uncompressed_codecs).layout_of(spec)
    if layout.absent_inner_chunks_are_fill_values:
        return None
    name = codec_name_or_class_name(codecs_before_shards[0])
    return (
        f"the codec {name} is before the shards, and an inner chunk that a shard lacks reads as"
        f" {layout.absent_inner_chunk_value}, not as the fill value {layout.fill_value}"
    )


def why_neither_reads_shard(
    uncompressed_codecs: Sequence[Codec], shard_spec: ArraySpec
) -> str | None:
    """Why neither this package nor zarr reads a shard; None if at least one of them does."""
    # Up to 3.4.2, zarr compares inner chunks with the chunk before a `transpose`. It accepts some
    # that don't divide the shard, and loses elements that it writes there.
    reason = why_inner_chunks_do_not_divide_shard(uncompressed_codecs, shard_spec.shape)
    if reason is None:
        return None
    spec_in_order_of_shard = shard_spec
    for codec in uncompressed_codecs[:-1]:
        spec_in_order_of_shard = codec.resolve_metadata(spec_in_order_of_shard)
    return reason if zarr_refuses_shard(uncompressed_codecs[-1], spec_in_order_of_shard) else None


def codec_name_or_class_name(codec: Any) -> str:
    """Name of a codec of zarr or numcodecs in metadata; if it has none, the name of its class."""
    if hasattr(codec, "codec_id"):  # from numcodecs, in format 2
        return str(codec.codec_id)
    try:
        return str(codec.to_dict()["name"])
    except (KeyError, NotImplementedError):
        return type(codec).__name__


def uncompressed_codecs_or_raise(array: zarr.Array[Any]) -> Sequence[Codec]:
    """The codecs of an array if its chain `is_uncompressed`; else a StoreError.

    The message names the first codec that an uncompressed chain can't have.
    """
    codecs = codecs_or_empty_if_unknown(array.metadata)
    if not is_uncompressed(codecs):
        # If every codec is supported by itself, shards are nested, or their index isn't supported.
        names = [
            *map(codec_name_or_class_name, iter_codecs_unsupported_by_themselves(codecs)),
            "sharding_indexed",
        ]
        raise StoreError(
            f"chunks go through the codec {names[0]}, so elements have no fixed position in the"
            " file: permitted are transposes and bytes alone (compressors=None, filters=None), or"
            " shards of them, which are in no other shard, with an index of bytes and crc32c"
        )
    return codecs


class CodecsAndChunkSpec(NamedTuple):
    """The codecs of an array, and the chunk spec of all its chunks or shards."""

    codecs: Sequence[Codec]
    spec: ArraySpec


def uncompressed_codecs_and_spec_or_raise(array: zarr.Array[Any]) -> CodecsAndChunkSpec:
    """The codecs and the chunk spec of an array whose chain `is_uncompressed`; else a StoreError.

    Also a StoreError for chunks of several shapes, and for chunks that zarr reads nevertheless.
    """
    codecs = uncompressed_codecs_or_raise(array)
    spec = chunk_spec_if_regular(array.metadata)
    if spec is None:
        raise StoreError("its chunks have several shapes")
    if reason := why_uncompressed_chunks_are_read_by_zarr(codecs, spec):
        raise StoreError(reason)
    return CodecsAndChunkSpec(codecs, spec)


def iter_codecs_unsupported_by_themselves(codecs: Iterable[Codec]) -> Iterator[Any]:
    """The codecs of a chain, and of its inner chunks, that an uncompressed chain can't have.

    For format 2, these are filters and compressors of numcodecs.
    """
    for codec in codecs:
        if is_format_2_codec(codec):
            yield from (one for one in codec.filters or () if not is_elementwise_filter(one))
            if codec.compressor is not None:
                yield codec.compressor
        elif type(codec) is ShardingCodec:
            yield from iter_codecs_unsupported_by_themselves(codec.codecs)
        elif type(codec) not in SAME_BYTES_CLASSES and not _is_transpose_or_elementwise_codec(
            codec
        ):
            yield codec


def elementwise_codecs_of(uncompressed_codecs: Sequence[Codec]) -> ElementwiseCodecs:
    """The elementwise codecs of a chain that `is_uncompressed`."""
    last = uncompressed_codecs[-1]
    if is_format_2_codec(last):
        return ElementwiseCodecs(filters=tuple(last.filters or ()))
    before_last = tuple(filter(is_elementwise_codec, uncompressed_codecs[:-1]))
    if isinstance(last, ShardingCodec):
        return ElementwiseCodecs(before_last, tuple(filter(is_elementwise_codec, last.codecs)))
    return ElementwiseCodecs(in_chunks=before_last)


def first_elementwise_codec_or_none(uncompressed_codecs: Sequence[Codec]) -> Any:
    """The first elementwise codec, or filter of format 2, of a chain that `is_uncompressed`."""
    return next(chain.from_iterable(elementwise_codecs_of(uncompressed_codecs)), None)


def encoding_of_uncompressed(
    uncompressed_codecs: Sequence[Codec], limits: Limits = DEFAULT_LIMITS
) -> ChunkEncoding:
    """The chunk encoding by a chain, which must be one that `is_uncompressed`; this isn't checked.

    `limits` are the limits of the layouts.
    """
    from zarr_bytes.layout.objects import ChunkEncoding, ShardingConfig

    elementwise_codecs = elementwise_codecs_of(uncompressed_codecs)
    last = uncompressed_codecs[-1]
    if is_format_2_codec(last):
        return ChunkEncoding(
            None, limits=limits, is_format_2=True, elementwise_codecs=elementwise_codecs
        )
    # Transposes move elements, and elementwise codecs change them: the one does not know of the
    # other.
    transposes = _transposes_in(uncompressed_codecs)
    if not isinstance(last, ShardingCodec):
        return ChunkEncoding(
            endian_of(cast("BytesCodec", last)),
            _composed_order_unless_identity(transposes),
            limits=limits,
            elementwise_codecs=elementwise_codecs,
        )
    # The sharding codec has the shape of inner chunks in the order of axes after the transposes.
    axes = range(len(last.chunk_shape))
    index_order = _composed_order_unless_identity(transposes) or tuple(axes)
    location = last.index_location  # an enum up to zarr 3.3, then a string
    sharding = ShardingConfig(
        inner_chunk_shape=tuple([last.chunk_shape[index_order.index(axis)] for axis in axes]),
        index_order=index_order,
        index_is_at_end=getattr(location, "value", location) == "end",
        index_endian=cast("EndiannessStr", endian_of(cast("BytesCodec", last.index_codecs[0]))),
        index_has_checksum=len(last.index_codecs) > 1,
        keeps_padding=len(uncompressed_codecs) == 1,
        write_order=write_order_of(last),
    )
    endian = endian_of(cast("BytesCodec", last.codecs[-1]))
    order = _composed_order_unless_identity([*transposes, *_transposes_in(last.codecs)])
    return ChunkEncoding(endian, order, sharding, limits, elementwise_codecs=elementwise_codecs)


def _transposes_in(codecs: Iterable[Codec]) -> list[TransposeCodec]:
    return [codec for codec in codecs if isinstance(codec, TransposeCodec)]


def _composed_order_unless_identity(transposes: Iterable[TransposeCodec]) -> tuple[int, ...] | None:
    """The axis of the array for each stored axis, after all these transposes.

    None if there are no transposes, or if they move no axis.
    """
    orders = [codec.order for codec in transposes]
    composed: tuple[int, ...] = ()
    for order in orders:
        composed = tuple(composed[i] if composed else i for i in order)
    return None if composed == tuple(sorted(composed)) else composed
