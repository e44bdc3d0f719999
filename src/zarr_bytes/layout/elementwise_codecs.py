"""Codecs between the array and `bytes` that change each element by itself, such as `scale_offset`.

The selected elements can be encoded and decoded without the others. The arithmetic is left to the
functions of each codec. `zarr_versions` has the table of these codecs. In metadata:

    {"name": "scale_offset", "configuration": {"offset": 5, "scale": 10}}

Codecs may stand before the sharding codec, and in its inner chunks. The sharding codec gets the
elements between the two: it compares them with its fill value, and leaves out inner chunks that
have only the fill value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from zarr.buffer import cpu

from zarr_bytes.errors import ConfigurationError
from zarr_bytes.layout.elements import fill_value_array, has_fixed_size
from zarr_bytes.zarr_versions import (
    decode_by_codec,
    encode_by_codec,
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
    in_chunks: tuple[Codec, ...] = ()  # in the inner chunks, if the array has shards
    filters: tuple[Any, ...] = ()  # from numcodecs, in format 2, which has no other codecs

    def converter_if_any_codec(self, spec: ArraySpec) -> ElementConverter | None:
        """The converter for chunks or shards of a spec; None if there are no elementwise codecs."""
        if self.filters:
            return _ConverterByFilters(self.filters, spec)
        if self.before_shards or self.in_chunks:
            return _ConverterByCodecs(self.before_shards, self.in_chunks, spec)
        return None


class ElementConverter(Protocol):
    """Encodes and decodes elements of one data type. It doesn't change; any thread may use it.

    Arrays of elements aren't empty, and keep their shape. Errors and warnings come from the codecs,
    and are about these elements.
    """

    encoded_dtype: DType
    """Data type of the stored elements, in memory."""
    fill_value_before_chunks: Array
    """The fill value to compare inner chunks with: one element, after `encode_before_shards` if
    there are shards."""

    def encode_before_shards(self, elements: Array) -> Array:
        """Elements of the array, encoded by the codecs before the shards, if there are any."""

    def encode_in_chunks(self, elements: Array) -> Array:
        """Results of `encode_before_shards`, encoded by all other codecs, in `encoded_dtype`."""

    def decode_in_chunks(self, elements: Array) -> Array:
        """The inverse of `encode_in_chunks`."""

    def decode(self, elements: Array) -> Array:
        """Elements of the array, decoded from stored elements in `encoded_dtype`."""

    def absent_inner_chunk_value(self) -> Any:
        """The value of the elements of an inner chunk that its shard doesn't have."""


class _Stage(NamedTuple):
    """A codec, and the spec of the chunks that it encodes; the shape in the spec isn't used."""

    codec: Codec
    spec: ArraySpec


class _ConverterByCodecs:
    """Converts elements with the codecs of an array of Zarr format 3.

    Parameters
    ----------
    before_shards, in_chunks
        As in `ElementwiseCodecs`.
    spec
        Spec of the chunks or shards of the array.
    """

    def __init__(
        self, before_shards: Sequence[Codec], in_chunks: Sequence[Codec], spec: ArraySpec
    ) -> None:
        spec = replace(spec, prototype=cpu.buffer_prototype)
        self._dtype: DType = spec.dtype.to_native_dtype()
        self._stages_before_shards, spec_of_shards = _stages_and_last_spec(before_shards, spec)
        self._stages_in_chunks, last_spec = _stages_and_last_spec(in_chunks, spec_of_shards)
        self._dtype_in_shards: DType = spec_of_shards.dtype.to_native_dtype()
        self.encoded_dtype: DType = last_spec.dtype.to_native_dtype()
        self.fill_value_before_chunks = fill_value_array(
            spec_of_shards.fill_value, spec_of_shards.dtype
        )

    def encode_before_shards(self, elements: Array) -> Array:
        return _encode_by_stages(
            self._stages_before_shards, elements, self._dtype, self._dtype_in_shards
        )

    def encode_in_chunks(self, elements: Array) -> Array:
        return _encode_by_stages(
            self._stages_in_chunks, elements, self._dtype_in_shards, self.encoded_dtype
        )

    def decode_in_chunks(self, elements: Array) -> Array:
        return _decode_by_stages(self._stages_in_chunks, elements, self.encoded_dtype)

    def decode(self, elements: Array) -> Array:
        stages = [*self._stages_before_shards, *self._stages_in_chunks]
        return _decode_by_stages(stages, elements, self.encoded_dtype)

    def absent_inner_chunk_value(self) -> Any:
        # As in zarr: codecs in the inner chunks aren't applied, and a codec before the shard
        # decodes the fill value in the data type that it encodes to.
        return _decode_by_stages(
            self._stages_before_shards, self.fill_value_before_chunks, self._dtype_in_shards
        )[0]


class _StagesAndLastSpec(NamedTuple):
    stages: list[_Stage]
    last_spec: ArraySpec  # for the chunks after the last codec


def _stages_and_last_spec(codecs: Sequence[Codec], spec: ArraySpec) -> _StagesAndLastSpec:
    """The codecs with the specs that they encode; the first spec is `spec`."""
    stages = []
    for codec in codecs:
        stages.append(_Stage(codec, spec))
        spec = codec.resolve_metadata(spec)
    return _StagesAndLastSpec(stages, spec)


def _encode_by_stages(
    stages: Sequence[_Stage], elements: Array, dtype: DType, encoded_dtype: DType
) -> Array:
    """Elements of `dtype`, encoded to `encoded_dtype` by all codecs, from the first to the last."""
    if not stages:
        return elements
    contiguous = _contiguous(elements, dtype)
    buffer = cpu.buffer_prototype.nd_buffer.from_ndarray_like(contiguous)
    for codec, spec in stages:
        buffer = encode_by_codec(codec, buffer, replace(spec, shape=contiguous.shape))
    encoded = np.asarray(buffer.as_ndarray_like()).reshape(-1)
    if encoded.dtype.itemsize != encoded_dtype.itemsize:
        raise ConfigurationError(
            f"the codec {type(stages[-1].codec).__name__} encodes elements to {encoded.dtype}, and"
            f" they are decoded as {encoded_dtype}, which has another size: such chunks cannot be"
            " read again; change the parameters of the codec"
        )
    # `bitround` gives integers with the bits of floats.
    in_byte_order = encoded.dtype.newbyteorder(encoded_dtype.byteorder)
    return encoded.astype(in_byte_order, copy=False).view(encoded_dtype).reshape(elements.shape)


def _decode_by_stages(stages: Sequence[_Stage], elements: Array, encoded_dtype: DType) -> Array:
    """Elements of `encoded_dtype`, decoded by all codecs, from the last to the first."""
    contiguous = _contiguous(elements, encoded_dtype)
    buffer = cpu.buffer_prototype.nd_buffer.from_ndarray_like(contiguous)
    for codec, spec in reversed(stages):
        buffer = decode_by_codec(codec, buffer, replace(spec, shape=contiguous.shape))
    return np.asarray(buffer.as_ndarray_like()).reshape(elements.shape)


def _contiguous(elements: Array, dtype: DType) -> Array:
    """Elements along one axis, as codecs expect them."""
    # Codecs access the memory: codecs of numcodecs need this data type and no gaps. `cast_value`
    # also needs aligned numbers, which the bytes of a file may not be.
    return np.require(elements.reshape(-1), dtype, ["C_CONTIGUOUS", "ALIGNED"])


class _ConverterByFilters:
    """Converts elements with the filters of an array of Zarr format 2 with this chunk spec."""

    def __init__(self, filters: Sequence[Any], spec: ArraySpec) -> None:
        self._filters = filters
        self._dtype: DType = spec.dtype.to_native_dtype()
        self.encoded_dtype = self._dtype
        for elementwise_filter in filters:
            if dtypes := fixed_dtypes_of_elementwise_filter(elementwise_filter):
                self.encoded_dtype = dtypes.stored
        self.fill_value_before_chunks = fill_value_array(spec.fill_value, spec.dtype)

    def encode_before_shards(self, elements: Array) -> Array:
        return elements

    def encode_in_chunks(self, elements: Array) -> Array:
        encoded: Array = np.require(elements.reshape(-1), self._dtype, ["C_CONTIGUOUS"])
        for elementwise_filter in self._filters:
            encoded = elementwise_filter.encode(encoded)
        return encoded.reshape(-1).view(np.uint8).view(self.encoded_dtype).reshape(elements.shape)

    def decode_in_chunks(self, elements: Array) -> Array:
        # As in zarr: the last filter gets the bytes of the elements, and the result of the first
        # filter is viewed in the data type of the array, regardless of its own data type.
        decoded: Array = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
        for elementwise_filter in reversed(self._filters):
            decoded = elementwise_filter.decode(decoded)
        return decoded.view(self._dtype).reshape(elements.shape)

    def decode(self, elements: Array) -> Array:
        return self.decode_in_chunks(elements)

    def absent_inner_chunk_value(self) -> Any:
        raise NotImplementedError("Zarr format 2 has no shards")


def why_filters_need_whole_chunks(filters: Sequence[Any], spec: ArraySpec) -> str | None:
    """Why filters of format 2 can't decode each element by itself; None if they can.

    A clause for a message. All filters must be `is_elementwise_filter`.
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
            "the filter bitround does not keep the order F, so zarr itself reads elements at other"
            " positions than it wrote them"
        )
    return None
