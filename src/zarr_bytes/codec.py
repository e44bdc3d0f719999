"""The `bytes` codec and its draft name `endian`, as classes that zarr chooses for array metadata.

Specification: bytes codec 1.0, and endian codec 1.0 (the draft of the same codec). In metadata:

    {"name": "bytes", "configuration": {"endian": "little"}}

Deviation: a structured data type without `endian` is read as little-endian, with a warning, because
earlier versions of zarr wrote such arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self, cast

from zarr import codecs
from zarr.dtype import VariableLengthUTF8

from zarr_bytes.caller import warn_caller
from zarr_bytes.chunk.elements import decode_elements, encode_elements
from zarr_bytes.chunk.layout import has_fixed_size, layout_of
from zarr_bytes.errors import ConfigurationError
from zarr_bytes.partial_codec import PartialReads, PartialWrites
from zarr_bytes.settings import partial_writes_enabled

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.dtype import ZDType
    from zarr.types import JSON

    from zarr_bytes.chunk.elements import Array, Bytes
    from zarr_bytes.chunk.layout import Endian
    from zarr_bytes.zarr_versions import (
        ArraySpec,
        ChunkGridMetadata,
        TBaseDType,
        TBaseScalar,
    )

__all__ = ["BytesCodec", "EndianCodec"]


class BytesCodec(PartialReads, codecs.BytesCodec):
    """The `bytes` codec: array elements in C order, in one byte order.

    An instance of zarr's own ``zarr.codecs.BytesCodec``, equal to it where the byte order is the
    same. Zarr uses this class for every array that is opened and names ``bytes`` in its metadata. A
    new array shows zarr's own class until it is opened again.

    Parameters
    ----------
    endian : {"little", "big"} or None, default the byte order of this machine
        Byte order in which multi-byte numbers are stored. None means that none is given, which
        only data types of single bytes allow.

    Raises
    ------
    ConfigurationError
        If `endian` is anything else.

    Notes
    -----
    Specification: bytes codec 1.0, "Configuration parameters" and "Format and algorithm".

    Examples
    --------
    >>> BytesCodec(endian="little").to_dict()
    {'name': 'bytes', 'configuration': {'endian': 'little'}}
    >>> BytesCodec.from_dict({"name": "bytes", "configuration": {"endian": "big"}})
    zarr_bytes.BytesCodec(endian='big')
    """

    name: ClassVar[str] = "bytes"
    # The byte order, also where `evolve_from_array_spec` has dropped `endian`; and a string, where
    # `endian` is an enum member, up to zarr 3.2.
    _endian: Endian | None
    _read_configuration: dict[str, JSON] | None = None  # to be written back as it was read

    def __init__(self, *, endian: Endian | None = sys.byteorder) -> None:
        endian = getattr(endian, "value", endian)  # zarr's Endian enum, up to zarr 3.2
        if endian not in ("little", "big", None):
            permitted = "'little' and 'big'"
            raise ConfigurationError(
                f"codec {self.name!r}: endian is {endian!r}; permitted are {permitted}",
                permitted=permitted,
            )
        super().__init__(endian=endian)  # zarr's class decides what its attribute is
        object.__setattr__(self, "_endian", endian)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Codec that a codec object of array metadata describes.

        Parameters
        ----------
        data : dict
            ``{"name": ..., "configuration": {"endian": "little" or "big"}}``; the configuration may
            be empty or absent where the data type is of single bytes.

        Raises
        ------
        ConfigurationError
            If the name is not this codec's, or the configuration is not as above.

        Notes
        -----
        Specification: bytes codec 1.0, "Codec name" and "Configuration parameters". An `endian` of
        None counts as absent, because other packages write it so.
        """
        if not isinstance(data, Mapping) or data.get("name") != cls.name:
            raise ConfigurationError(
                f'expected a codec object with "name": "{cls.name}", found {data!r}'
            )
        configuration = data.get("configuration", {})
        if not isinstance(configuration, Mapping):
            permitted = 'an object, such as {"endian": "little"}'
            raise ConfigurationError(
                f"codec {cls.name!r}: the configuration is {configuration!r}; it must be"
                f" {permitted}",
                permitted=permitted,
            )
        if unknown := sorted(set(configuration) - {"endian"}):
            raise ConfigurationError(
                f"codec {cls.name!r}: unknown configuration {', '.join(map(repr, unknown))};"
                " only 'endian' is permitted"
            )
        codec = cls(endian=cast("Endian | None", configuration.get("endian")))
        if "configuration" in data and configuration.get("endian", "") is not None:
            object.__setattr__(codec, "_read_configuration", dict(configuration))
        return codec

    @classmethod
    def in_place_of(cls, codec: codecs.BytesCodec) -> BytesCodec:
        """Codec of this package for one of zarr, with the settings of the moment.

        Examples
        --------
        >>> BytesCodec.in_place_of(codecs.BytesCodec(endian="big"))
        zarr_bytes.BytesCodec(endian='big')
        """
        return cls(endian=codec.endian).with_settings()

    def with_settings(self) -> Self:
        """The codec, or one for partial writes while ``zarr_bytes.partial_writes`` is True."""
        return self._fitted(self._endian)

    def to_dict(self) -> dict[str, JSON]:
        """Codec object for array metadata, as it was read.

        Returns
        -------
        dict
            ``{"name": ..., "configuration": {"endian": ...}}``; without a configuration where none
            was read, or where `endian` is None.
        """
        configuration = self._read_configuration
        if configuration is None and self.endian is not None:
            configuration = {"endian": self._endian}
        return {"name": self.name} | (
            {} if configuration is None else {"configuration": configuration}
        )

    @property
    def stored_endian(self) -> Endian | None:
        """The byte order, also for a data type of single bytes, where `endian` is None."""
        return self._endian

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Codec for one array.

        Parameters
        ----------
        array_spec : zarr.core.array_spec.ArraySpec
            Shape and data type that this codec encodes.

        Returns
        -------
        BytesCodec
            This codec, or a `PartialWriteBytesCodec` while ``zarr_bytes.partial_writes`` is True.
            As with zarr's, its `endian` is None for a data type of single bytes, and "little" for a
            structured data type without one.

        Raises
        ------
        ConfigurationError
            If the data type has multi-byte numbers and no `endian` is given.
        """
        dtype = array_spec.dtype.to_native_dtype()
        if not has_fixed_size(dtype):
            return self  # refused by `validate`
        if not layout_of(dtype).has_byte_order:
            return self._fitted(None)
        if self._endian is not None:
            return self._fitted(self._endian)
        if dtype.names is not None:
            warn_caller(
                "Missing 'endian' for structured dtype with multi-byte fields. "
                "Assuming little-endian for legacy compatibility."
            )
            return type(self)(endian="little")._fitted("little")
        raise ConfigurationError(
            f"codec {self.name!r}: data type {dtype} needs a byte order and no endian is given;"
            f' write "configuration": {{"endian": "little"}} or {{"endian": "big"}}'
        )

    def _fitted(self, endian: Endian | None) -> Self:
        """The same codec for one array: with another value of `endian`, and its way of writing."""
        # A subclass may encode in another way, which a partial write would pass by.
        writes_parts = type(self) in (BytesCodec, EndianCodec) and partial_writes_enabled()
        if (self.endian is None) == (endian is None) and not writes_parts:
            return self
        class_ = cast("type[Self]", self._with_partial_writes()) if writes_parts else type(self)
        codec = class_.__new__(class_)
        BytesCodec.__init__(codec, endian=endian)
        object.__setattr__(codec, "_endian", self._endian)
        object.__setattr__(codec, "_read_configuration", self._read_configuration)
        return codec

    @classmethod
    def _with_partial_writes(cls) -> type[BytesCodec]:
        return PartialWriteBytesCodec

    def validate(
        self,
        *,
        shape: tuple[int, ...],  # noqa: ARG002
        dtype: ZDType[TBaseDType, TBaseScalar],
        chunk_grid: ChunkGridMetadata,  # noqa: ARG002
    ) -> None:
        """Refuse data types whose elements have no fixed size.

        Parameters
        ----------
        shape, chunk_grid
            Of the array; not used.
        dtype : zarr.dtype.ZDType
            Data type of the array.

        Raises
        ------
        ConfigurationError
            If elements of `dtype` have no fixed size. The message names the codec for such a type.
        """
        if not has_fixed_size(dtype.to_native_dtype()):
            is_text = isinstance(dtype, VariableLengthUTF8)  # every other such type holds bytes
            fitting = "vlen-utf8" if is_text else "vlen-bytes"
            raise ConfigurationError(
                f"codec {self.name!r}: elements of {dtype} have no fixed size;"
                f" the codec that stores them is {fitting!r}"
            )

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Size of a stored chunk, in bytes: that of its elements.

        Parameters
        ----------
        input_byte_length : int
            Size of the elements in memory, in bytes.
        """
        return input_byte_length

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        array = cast("Array", chunk_array.as_ndarray_like())
        encoded = encode_elements(array, self._endian)
        return chunk_spec.prototype.buffer.from_array_like(encoded)

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        encoded = cast("Bytes", chunk_bytes.as_array_like())
        dtype = chunk_spec.dtype.to_native_dtype()
        array = decode_elements(encoded, dtype, chunk_spec.shape, self._endian)
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(array)

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return self._encode_sync(chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_bytes, chunk_spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, codecs.BytesCodec):
            return NotImplemented
        name = other.name if isinstance(other, BytesCodec) else BytesCodec.name
        return self.name == name and self.endian == other.endian

    __hash__ = codecs.BytesCodec.__hash__  # equal codecs of either class hash alike

    def __repr__(self) -> str:
        endian = None if self.endian is None else self._endian
        # The module tells it from zarr's class of the same name.
        is_exported = type(self) in (BytesCodec, EndianCodec)
        module = "zarr_bytes" if is_exported else type(self).__module__
        return f"{module}.{type(self).__qualname__}(endian={endian!r})"


class EndianCodec(BytesCodec):
    """The `endian` codec: the draft name of `bytes`, with the same bytes.

    Parameters
    ----------
    endian : {"little", "big"}, default the byte order of this machine
        Required for every data type.

    Raises
    ------
    ConfigurationError
        If `endian` is anything else.

    Notes
    -----
    Specification: endian codec 1.0. Arrays keep the name when their metadata is written again.

    Examples
    --------
    >>> EndianCodec.from_dict({"name": "endian", "configuration": {"endian": "big"}})
    zarr_bytes.EndianCodec(endian='big')
    """

    name: ClassVar[str] = "endian"

    def __init__(self, *, endian: Endian | None = sys.byteorder) -> None:
        if endian is None:
            raise ConfigurationError(
                "codec 'endian': no endian is given, and this codec requires it; write"
                ' "configuration": {"endian": "little"} or {"endian": "big"}'
            )
        super().__init__(endian=endian)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:  # noqa: ARG002
        """The codec itself, or a `PartialWriteEndianCodec`: every data type has an `endian`."""
        return self._fitted(self._endian)

    @classmethod
    def _with_partial_writes(cls) -> type[BytesCodec]:
        return PartialWriteEndianCodec


class PartialWriteBytesCodec(PartialWrites, BytesCodec):
    """The `bytes` codec of an array that was opened while ``zarr_bytes.partial_writes`` was True.

    Equal to `BytesCodec`. Writing a selection of a chunk that is a local file writes the bytes of
    the selected elements and no others.
    """


class PartialWriteEndianCodec(PartialWrites, EndianCodec):
    """The `endian` codec, as `PartialWriteBytesCodec`."""
