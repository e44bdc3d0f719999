"""Codecs between the array and `bytes` that decode each element by itself, such as `scale_offset`.

So the selected elements can be decoded without the others. Each codec does it by its own function:
nothing of its arithmetic is here. `zarr_versions` has the table of these codecs. In metadata:

    {"name": "scale_offset", "configuration": {"offset": 5, "scale": 10}}
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from zarr.buffer import cpu

from zarr_bytes.layout.elements import array_of_one_element, has_fixed_size
from zarr_bytes.zarr_versions import (
    decode_by_codec,
    fixed_dtypes_of_elementwise_filter,
    is_bit_round,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr.abc.codec import Codec

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.zarr_versions import ArraySpec


class ElementwiseCodecs(NamedTuple):
    """The elementwise codecs of an array, in the order in which they encode."""

    before_shards: tuple[Codec, ...] = ()
    in_chunks: tuple[Codec, ...] = ()  # those of the inner chunks, of an array with shards
    filters: tuple[Any, ...] = ()  # of numcodecs, in format 2, which has no other codecs

    def decoder_if_any_codec(self, spec: ArraySpec) -> ElementwiseDecoder | None:
        """The decoder for chunks or shards of a spec; None if there are no elementwise codecs."""
        if self.filters:
            return _DecoderOfFilters(self.filters, spec.dtype.to_native_dtype())
        if self.before_shards or self.in_chunks:
            return _DecoderOfCodecs(self.before_shards, self.in_chunks, spec)
        return None


class ElementwiseDecoder(Protocol):
    """Decodes stored elements of one data type. It doesn't change; any thread may use it."""

    encoded_dtype: DType
    """Data type of the elements that `decode` takes: the stored ones, in memory."""

    def decode(self, elements: Array) -> Array:
        """The decoded elements, at least one, in the same shape.

        Errors and warnings are those of the codecs, about these elements.
        """

    def absent_inner_chunk_value(self) -> Any:
        """The value of the elements of an inner chunk that its shard does not have."""


class _Stage(NamedTuple):
    """A codec, and the spec of the chunks that it encodes; their shape is not used."""

    codec: Codec
    spec: ArraySpec


class _DecoderOfCodecs:
    """Decodes by the codecs of an array of Zarr format 3.

    Parameters
    ----------
    before_shards, in_chunks
        As of `ElementwiseCodecs`.
    spec
        Spec of the chunks or shards of the array.
    """

    def __init__(
        self, before_shards: Sequence[Codec], in_chunks: Sequence[Codec], spec: ArraySpec
    ) -> None:
        spec = replace(spec, prototype=cpu.buffer_prototype)
        self._stages_before_shards, self._spec_of_shards = _stages_and_last_spec(
            before_shards, spec
        )
        stages, last_spec = _stages_and_last_spec(in_chunks, self._spec_of_shards)
        self._stages = [*self._stages_before_shards, *stages]
        self.encoded_dtype: DType = last_spec.dtype.to_native_dtype()

    def decode(self, elements: Array) -> Array:
        return _decode_by_stages(self._stages, elements, self.encoded_dtype)

    def absent_inner_chunk_value(self) -> Any:
        # As zarr: a codec in the inner chunks takes no part, and one before the shard decodes the
        # fill value in the data type that it encodes to.
        spec = self._spec_of_shards
        dtype = spec.dtype.to_native_dtype()
        fill_value = array_of_one_element(spec.fill_value, dtype)
        return _decode_by_stages(self._stages_before_shards, fill_value, dtype)[0]


class _StagesAndLastSpec(NamedTuple):
    stages: list[_Stage]
    last_spec: ArraySpec  # of the chunks after the last codec


def _stages_and_last_spec(codecs: Sequence[Codec], spec: ArraySpec) -> _StagesAndLastSpec:
    """The codecs with the specs that they encode, of which the first is `spec`."""
    stages = []
    for codec in codecs:
        stages.append(_Stage(codec, spec))
        spec = codec.resolve_metadata(spec)
    return _StagesAndLastSpec(stages, spec)


def _decode_by_stages(stages: Sequence[_Stage], elements: Array, dtype: DType) -> Array:
    """Elements decoded by the last codec first; `dtype` is what this one expects."""
    # Codecs look at the memory: those of numcodecs need this data type and no gaps, and
    # `cast_value` needs numbers at multiples of their size, too, where bytes of a file may not lie.
    contiguous = np.require(elements.reshape(-1), dtype, ["C_CONTIGUOUS", "ALIGNED"])
    buffer = cpu.buffer_prototype.nd_buffer.from_ndarray_like(contiguous)
    for codec, spec in reversed(stages):
        buffer = decode_by_codec(codec, buffer, replace(spec, shape=contiguous.shape))
    return np.asarray(buffer.as_ndarray_like()).reshape(elements.shape)


class _DecoderOfFilters:
    """Decodes by the filters of an array of Zarr format 2, whose data type is `dtype`."""

    def __init__(self, filters: Sequence[Any], dtype: DType) -> None:
        self._filters = filters
        self._dtype = dtype
        self.encoded_dtype: DType = dtype
        for elementwise_filter in filters:
            if dtypes := fixed_dtypes_of_elementwise_filter(elementwise_filter):
                self.encoded_dtype = dtypes.stored

    def decode(self, elements: Array) -> Array:
        # As zarr: the last filter gets the bytes of the elements, and what the first one gives has
        # the bytes of the data type of the array, whatever its own data type is.
        decoded: Array = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
        for elementwise_filter in reversed(self._filters):
            decoded = elementwise_filter.decode(decoded)
        return decoded.view(self._dtype).reshape(elements.shape)

    def absent_inner_chunk_value(self) -> Any:
        raise NotImplementedError("Zarr format 2 has no shards")


def why_filters_need_whole_chunks(filters: Sequence[Any], spec: ArraySpec) -> str | None:
    """Why filters of format 2 do not give each element by itself; None if they do.

    All are filters that `is_elementwise_filter`. A clause for a message.
    """
    item_size = spec.dtype.to_native_dtype().itemsize
    for one in filters:
        dtypes = fixed_dtypes_of_elementwise_filter(one)
        if dtypes is None:
            continue
        stored, decoded = dtypes
        if decoded.itemsize != item_size:
            return (
                f"the filter {one.codec_id} gives elements of {decoded.itemsize} bytes"
                f" ({decoded}), where {item_size} bytes are an element"
            )
        if not (stored.itemsize and has_fixed_size(stored)):
            return f"the filter {one.codec_id} stores elements of no fixed size"
        item_size = stored.itemsize
    # numcodecs writes the elements in C order then, and zarr reads them in the order F.
    if spec.order == "F" and len(spec.shape) > 1 and any(map(is_bit_round, filters)):
        return (
            "the filter bitround does not keep the order F, so that zarr itself reads elements in"
            " other places than it wrote them"
        )
    return None
