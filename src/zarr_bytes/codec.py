"""The classes of the `bytes` codec and of its draft name `endian`, which zarr's registry chooses.

Specification: bytes codec 1.0, and endian codec 1.0 (the draft of the same codec). In metadata:

    {"name": "bytes", "configuration": {"endian": "little"}}

Deviation: a structured data type without `endian` is read as little-endian, with a warning, because
earlier versions of zarr wrote such arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import numpy as np
from zarr import codecs
from zarr.abc.codec import ArrayBytesCodecPartialDecodeMixin
from zarr.buffer import cpu
from zarr.dtype import VariableLengthUTF8
from zarr.storage import StorePath

from zarr_bytes.errors import ConfigurationError, warn_caller
from zarr_bytes.io import counters
from zarr_bytes.layout.elements import (
    decode_elements,
    element_layout_of,
    encode_elements,
    has_fixed_size,
)
from zarr_bytes.pickling import codec_from_dict
from zarr_bytes.zarr_versions import endian_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.abc.buffer import Buffer, BufferPrototype, NDBuffer
    from zarr.abc.store import ByteGetter
    from zarr.dtype import ZDType
    from zarr.types import JSON

    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.layout.elements import Array, Bytes, EndiannessStr
    from zarr_bytes.layout.objects import ChunkEncoding
    from zarr_bytes.zarr_versions import (
        ArraySpec,
        ChunkGridMetadata,
        SelectorTuple,
        SyncByteGetter,
        TBaseDType,
        TBaseScalar,
    )


class Immutable:
    """Base of classes whose instances never change: copies don't go through `__reduce_ex__`.

    `__reduce_ex__` is for pickles, which may be loaded where this package isn't installed.
    """

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # nothing in it changes


class BytesCodec(Immutable, ArrayBytesCodecPartialDecodeMixin, codecs.BytesCodec):
    """The `bytes` codec: array elements in C order, in one byte order.

    A subclass of zarr's own ``zarr.codecs.BytesCodec``; instances of both classes are equal if
    their byte order is. Zarr uses this class when it opens an array with ``bytes`` in its metadata.
    A new array shows zarr's own class until it is opened again.

    Parameters
    ----------
    endian : {"little", "big"} or None, default the byte order of this machine
        Byte order in which multi-byte numbers are stored. None means no byte order, which is only
        allowed for data types of single bytes.

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
    _read_configuration: dict[str, JSON] | None = None  # written back as it was read

    def __init__(self, *, endian: EndiannessStr | None = sys.byteorder) -> None:
        endian = getattr(endian, "value", endian)  # zarr's Endian enum, up to zarr 3.2
        if endian not in ("little", "big", None):
            raise ConfigurationError(
                f"codec {self.name!r}: endian is {endian!r}; permitted are 'little' and 'big'"
            )
        super().__init__(endian=endian)  # zarr's class decides the type of its attribute

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Codec for a codec object of array metadata.

        Parameters
        ----------
        data : dict
            ``{"name": ..., "configuration": {"endian": "little" or "big"}}``; the configuration may
            be empty or absent for a data type of single bytes.

        Raises
        ------
        ConfigurationError
            If the name isn't the name of this codec, or the configuration isn't as above.

        Notes
        -----
        Specification: bytes codec 1.0, "Codec name" and "Configuration parameters". An `endian` of
        None counts as absent, because other packages write it.
        """
        if not isinstance(data, Mapping) or data.get("name") != cls.name:
            raise ConfigurationError(
                f'expected a codec object with "name": "{cls.name}", found {data!r}'
            )
        configuration = data.get("configuration", {})
        if not isinstance(configuration, Mapping):
            raise ConfigurationError(
                f"codec {cls.name!r}: the configuration is {configuration!r}; it must be an object,"
                ' such as {"endian": "little"}'
            )
        if unknown := set(configuration) - {"endian"}:
            names = ", ".join(map(repr, sorted(unknown)))
            raise ConfigurationError(
                f"codec {cls.name!r}: unknown configuration {names}; only 'endian' is permitted"
            )
        codec = cls(endian=cast("EndiannessStr | None", configuration.get("endian")))
        if "configuration" in data and configuration.get("endian", "") is not None:
            # zarr's class is frozen. The configuration is empty, or has `endian`.
            read: dict[str, JSON] = dict.fromkeys(configuration, endian_of(codec))
            object.__setattr__(codec, "_read_configuration", read)
        return codec

    def to_dict(self) -> dict[str, JSON]:
        """Codec object for array metadata, as it was read.

        Returns
        -------
        dict
            ``{"name": ..., "configuration": {"endian": ...}}``; without a configuration if none was
            read, or if `endian` is None.
        """
        configuration = self._read_configuration
        if configuration is None and self.endian is not None:
            configuration = {"endian": endian_of(self)}
        if configuration is None:
            return {"name": self.name}
        return {"name": self.name, "configuration": dict(configuration)}

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Codec for one array: `endian` is None for a data type of single bytes.

        A ConfigurationError if the data type needs a byte order and the codec has none; a
        structured data type is little-endian in that case, with a warning.
        """
        dtype = array_spec.dtype.to_native_dtype()
        if not has_fixed_size(dtype):
            return self  # refused by `validate`
        if not element_layout_of(dtype).needs_endian:
            return self._without_endian()
        if self.endian is not None:
            return self
        if dtype.names is not None:
            warn_caller(
                "Missing 'endian' for structured dtype with multi-byte fields. "
                "Assuming little-endian for legacy compatibility."
            )
            return type(self)(endian="little")
        raise ConfigurationError(
            f"codec {self.name!r}: data type {dtype} needs a byte order and no endian is given;"
            f' write "configuration": {{"endian": "little"}} or {{"endian": "big"}}'
        )

    def _without_endian(self) -> Self:
        """The codec with None for `endian`; the same object if it has no `endian`."""
        if self.endian is None:
            return self
        codec = copy(self)  # with the configuration that was read, and the attributes of a subclass
        object.__setattr__(codec, "endian", None)
        with suppress(AttributeError):  # there only if it was used
            object.__delattr__(codec, "_encoding")
        return codec

    def validate(
        self,
        *,
        shape: tuple[int, ...],  # noqa: ARG002
        dtype: ZDType[TBaseDType, TBaseScalar],
        chunk_grid: ChunkGridMetadata,  # noqa: ARG002
    ) -> None:
        """Raise a ConfigurationError if the elements of the data type have no fixed size."""
        if not has_fixed_size(dtype.to_native_dtype()):
            # All other types of this kind hold bytes.
            suitable = "vlen-utf8" if isinstance(dtype, VariableLengthUTF8) else "vlen-bytes"
            raise ConfigurationError(
                f"codec {self.name!r}: elements of {dtype} have no fixed size;"
                f" the codec that stores them is {suitable!r}"
            )

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        """Bytes of a chunk, in the calling thread; counted as a chunk that zarr writes itself."""
        counters.count_chunk_of_zarr()
        array = cast("Array", chunk_array.as_ndarray_like())
        encoded = encode_elements(array, endian_of(self))
        return chunk_spec.prototype.buffer.from_array_like(encoded)

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        """Elements of a chunk, in the calling thread; counted as a chunk that zarr reads itself.

        A ChunkSizeError or a BoolValueError if the bytes don't fit.
        """
        counters.count_chunk_of_zarr()
        encoded = cast("Bytes", chunk_bytes.as_array_like())
        dtype = chunk_spec.dtype.to_native_dtype()
        array = decode_elements(encoded, dtype, chunk_spec.shape, endian_of(self))
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(array)

    async def decode_partial(
        self, batch_info: Iterable[tuple[ByteGetter, SelectorTuple, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        """Read selections of chunks; each result is an array, or None if the chunk is missing.

        Zarr's pipeline calls this, by default with one chunk at a time, which needs no task.
        """
        batch = list(batch_info)
        if len(batch) != 1:
            return await super().decode_partial(batch)
        return [await self._decode_partial_single(*batch[0])]

    async def _decode_partial_single(
        self, byte_getter: ByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        """Read a selection of one chunk on the event loop; None if the chunk is missing."""
        if not isinstance(byte_getter, StorePath):  # inside a shard that zarr reads
            buffer = await byte_getter.get(chunk_spec.prototype)
            return None if buffer is None else self._decode_sync(buffer, chunk_spec)[selection]
        from zarr_bytes.io.drivers import driver_of
        from zarr_bytes.read import prepare_codec_read, read_batch

        layout = self._encoding.layout_of(chunk_spec)
        projection, out, selection_of_out = prepare_codec_read(byte_getter, layout, selection)
        (is_there,) = await read_batch(
            [projection],
            driver_of(byte_getter.store, byte_getter.path),
            out,
            (),
            cpu.buffer_prototype,
            self._plans,
            is_whole_batch=False,
        )
        if not is_there:
            return None
        return _nd_buffer_of_prototype(out[selection_of_out], chunk_spec.prototype)

    def _decode_partial_sync(
        self, byte_getter: SyncByteGetter, selection: SelectorTuple, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        """`_decode_partial_single` in the calling thread, for zarr's fused pipeline."""
        if not isinstance(byte_getter, StorePath):  # inside a shard that zarr reads
            buffer = byte_getter.get_sync(prototype=chunk_spec.prototype)
            return None if buffer is None else self._decode_sync(buffer, chunk_spec)[selection]
        from zarr_bytes.read import prepare_codec_read, read_or_fill_sync

        layout = self._encoding.layout_of(chunk_spec)
        projection, out, selection_of_out = prepare_codec_read(byte_getter, layout, selection)
        is_there = read_or_fill_sync(projection, out, cpu.buffer_prototype, self._plans)
        if not is_there:
            return None
        return _nd_buffer_of_prototype(out[selection_of_out], chunk_spec.prototype)

    @cached_property
    def _encoding(self) -> ChunkEncoding:
        """The chunk encoding by this codec alone; it keeps the layouts of chunks."""
        from zarr_bytes.layout.objects import ChunkEncoding

        return ChunkEncoding(endian_of(self))

    @cached_property
    def _plans(self) -> PlanCache:
        """The plans of the last reads by this codec."""
        from zarr_bytes.indexing.plan_cache import PlanCache

        return PlanCache()

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        """`_encode_sync` on the event loop, without a thread."""
        return self._encode_sync(chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        """`_decode_sync` on the event loop, without a thread."""
        return self._decode_sync(chunk_bytes, chunk_spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Made again by the class that zarr's registry chooses, so that no pickle names this
        # package. If the package isn't installed or is switched off, that is zarr's class.
        if type(self) not in SAME_BYTES_CLASSES:
            return super().__reduce_ex__(protocol)
        has_dropped_endian = self.endian is None and "endian" in (self._read_configuration or {})
        state = {"endian": None} if has_dropped_endian else None
        return codec_from_dict(self.name), (self.to_dict(),), state

    def __dask_tokenize__(self) -> Any:
        # A new array has zarr's class in its metadata, and the same token when it is opened.
        if type(self) is BytesCodec:
            identity: object = codecs.BytesCodec(endian=endian_of(self))
        else:
            identity = repr(self)
        return import_module("dask.base").normalize_token(identity)

    def __eq__(self, other: Any) -> bool:
        classes = {type(self), type(other)}
        if len(classes) > 1 and not classes <= SAME_BYTES_CLASSES:
            return NotImplemented
        name = getattr(other, "name", BytesCodec.name)  # zarr's class has none
        return bool(self.name == name and self.endian == other.endian)

    __hash__ = codecs.BytesCodec.__hash__  # equal codecs of either class hash alike

    def __repr__(self) -> str:
        # The module distinguishes it from zarr's class of the same name.
        module = "zarr_bytes" if type(self) in SAME_BYTES_CLASSES else type(self).__module__
        return f"{module}.{type(self).__qualname__}(endian={endian_of(self)!r})"


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

    def __init__(self, *, endian: EndiannessStr | None = sys.byteorder) -> None:
        if endian is None:
            raise ConfigurationError(
                "codec 'endian': no endian is given, and this codec requires it; write"
                ' "configuration": {"endian": "little"} or {"endian": "big"}'
            )
        super().__init__(endian=endian)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:  # noqa: ARG002
        """The codec itself: every data type has an `endian`."""
        return self


SAME_BYTES_CLASSES: Final = {codecs.BytesCodec, BytesCodec, EndianCodec}
"""The classes that store equal bytes; derived classes may store other bytes."""


def _nd_buffer_of_prototype(elements: Any, prototype: BufferPrototype) -> NDBuffer:
    """Elements as a buffer of the class that zarr asks for.

    GPU buffers have the byte order of the machine.
    """
    array = np.asarray(elements)  # never a scalar
    if issubclass(prototype.buffer, cpu.Buffer):  # in the main memory
        return prototype.nd_buffer.from_ndarray_like(array)
    return prototype.nd_buffer.from_numpy_array(array.astype(array.dtype.newbyteorder("=")))
