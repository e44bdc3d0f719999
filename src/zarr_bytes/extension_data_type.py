"""The registered extension data types of real numbers, bit for bit.

Specification: zarr-extensions, data-types/, the README of each type. Their NumPy types come from
the package ml_dtypes, which is asked for only where such a type is used. Registered without it too,
so that an array of such a type says what is missing.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.errors import FillValueError, MissingPackageError
from zarr_bytes.fill_value import (
    float_from_json,
    float_to_json,
    int_from_json,
    raw_from_json,
)
from zarr_bytes.zarr_versions import DataTypeValidationError, HasEndianness, HasItemSize

if TYPE_CHECKING:
    from zarr.types import JSON, DTypeJSON, ZarrFormat

    from zarr_bytes.layout import DType
    from zarr_bytes.zarr_versions import TBaseDType

__all__ = [
    "BFloat16",
    "ExtensionDataType",
    "Float4E2M1FN",
    "Float6E2M3FN",
    "Float6E3M2FN",
    "Float8E3M4",
    "Float8E4M3",
    "Float8E4M3B11FNUZ",
    "Float8E4M3FN",
    "Float8E4M3FNUZ",
    "Float8E5M2",
    "Float8E5M2FNUZ",
    "Float8E8M0FNU",
    "Int2",
    "Int4",
    "MultiByteDataType",
    "UInt2",
    "UInt4",
    "from_package",
]

_PACKAGE: Final = "ml_dtypes"


@lru_cache
def from_package(name: str, data_type: str) -> DType:
    """NumPy type that ml_dtypes has under `name`."""
    try:
        import ml_dtypes

        dtype: DType = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        raise MissingPackageError(
            f"data type {data_type!r} needs the package {_PACKAGE}, 0.6 or newer:"
            ' pip install "zarr-bytes[ml]"',
            name=_PACKAGE,
        ) from error
    return dtype


class ExtensionDataType(zarr_dtype.ZDType[Any, Any], HasItemSize):
    """A registered extension data type, without configuration."""

    dtype_cls = np.dtype  # the class of ml_dtypes is not known without the package
    _name_in_package: ClassVar[str] = ""  # where it is another

    @classmethod
    def _native(cls) -> DType:
        return from_package(cls._name_in_package or cls._zarr_v3_name, cls._zarr_v3_name)

    def _read(self, data: JSON) -> Any:
        raise NotImplementedError

    def _write(self, scalar: Any) -> Any:
        raise NotImplementedError

    @property
    def item_size(self) -> int:
        """Size of an element, in bytes."""
        return self.to_native_dtype().itemsize

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> Self:
        """Data type of a NumPy type; matches the type of ml_dtypes alone."""
        name = cls._name_in_package or cls._zarr_v3_name
        if dtype.type.__module__ != _PACKAGE or dtype.name != name:
            raise DataTypeValidationError(f"{dtype} is no {cls._zarr_v3_name}")
        return cls()

    def to_native_dtype(self) -> DType:
        """NumPy type of the elements."""
        return self._native()

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        if data != cls._zarr_v3_name:
            raise DataTypeValidationError(f"{data!r} is no {cls._zarr_v3_name}")
        cls._native()  # raises if the package is missing
        return cls()

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        # TensorStore writes these names into Zarr format 2 too.
        if not isinstance(data, dict) or data.get("object_codec_id") is not None:
            raise DataTypeValidationError(f"{data!r} is no {cls._zarr_v3_name}")
        return cls._from_json_v3(data.get("name"))

    def to_json(self, zarr_format: ZarrFormat) -> Any:
        """Name of this data type in metadata."""
        name = self._zarr_v3_name
        return name if zarr_format == 3 else {"name": name, "object_codec_id": None}

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:  # noqa: ARG002
        """Fill value that a metadata document holds, as a NumPy scalar.

        Raises
        ------
        FillValueError
            If the specification does not permit the value for this data type.
        """
        return self._read(data)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:  # noqa: ARG002
        """JSON form of a fill value."""
        return self._write(self.cast_scalar(data))

    def default_scalar(self) -> Any:
        """Element whose bits are all 0: the number 0, where the type has it."""
        return np.zeros((), self._native())[()]

    def cast_scalar(self, data: object) -> Any:
        """Fill value that a Python caller gives, as a NumPy scalar.

        Raises
        ------
        FillValueError
            If `data` is no number, or none that the data type has.
        """
        if isinstance(data, np.generic | np.ndarray):
            if data.dtype == self._native() and data.ndim == 0:
                return data[()]
            data = data.tolist()
        return self._read(self._as_json(data))

    def _as_json(self, data: Any) -> Any:
        """A Python number as JSON has it: the form that `_read` takes."""
        if isinstance(data, float) and data != data:
            return "NaN"
        return None if isinstance(data, str | bytes) else data

    def _check_scalar(self, data: object) -> bool:
        try:
            self.cast_scalar(data)
        except FillValueError:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class MultiByteDataType(ExtensionDataType, HasEndianness):
    """An extension data type of numbers that have a byte order.

    Parameters
    ----------
    endianness : {"little", "big"}, default the byte order of this machine
        Byte order in memory: ml_dtypes computes with that of the machine. zarr's own codec asks for
        the stored one.
    """

    def to_native_dtype(self) -> DType:
        """NumPy type of the elements."""
        return self._native().newbyteorder(self.endianness)


class _Float(ExtensionDataType):
    def _read(self, data: JSON) -> Any:
        return float_from_json(data, self._native())

    def _write(self, scalar: Any) -> Any:
        return float_to_json(scalar)


class BFloat16(_Float, MultiByteDataType):
    """Data type `bfloat16`: the upper half of a float32."""

    _zarr_v3_name = "bfloat16"


class Float8E3M4(_Float):
    """Data type `float8_e3m4`: 3 bits of exponent and 4 of mantissa."""

    _zarr_v3_name = "float8_e3m4"


class Float8E4M3(_Float):
    """Data type `float8_e4m3`: 4 bits of exponent and 3 of mantissa, with infinities."""

    _zarr_v3_name = "float8_e4m3"


class Float8E4M3B11FNUZ(_Float):
    """Data type `float8_e4m3b11fnuz`: bias 11; one NaN, no infinity, no -0."""

    _zarr_v3_name = "float8_e4m3b11fnuz"


class Float8E4M3FN(_Float):
    """Data type `float8_e4m3fn`: no infinity. Not registered; TensorStore writes it."""

    _zarr_v3_name = "float8_e4m3fn"


class Float8E4M3FNUZ(_Float):
    """Data type `float8_e4m3fnuz`: one NaN, no infinity, no -0."""

    _zarr_v3_name = "float8_e4m3fnuz"


class Float8E5M2(_Float):
    """Data type `float8_e5m2`: the upper half of a float16."""

    _zarr_v3_name = "float8_e5m2"


class Float8E5M2FNUZ(_Float):
    """Data type `float8_e5m2fnuz`: one NaN, no infinity, no -0."""

    _zarr_v3_name = "float8_e5m2fnuz"


class Float8E8M0FNU(_Float):
    """Data type `float8_e8m0fnu`: powers of two. It has no zero; the bits 0 are 2**-127."""

    _zarr_v3_name = "float8_e8m0fnu"


class Float6E2M3FN(_Float):
    """Data type `float6_e2m3fn`: in the lower six bits of a byte; neither NaN nor infinity."""

    _zarr_v3_name = "float6_e2m3fn"


class Float6E3M2FN(_Float):
    """Data type `float6_e3m2fn`: in the lower six bits of a byte; neither NaN nor infinity."""

    _zarr_v3_name = "float6_e3m2fn"


class Float4E2M1FN(_Float):
    """Data type `float4_e2m1fn`: in the lower four bits of a byte; neither NaN nor infinity."""

    _zarr_v3_name = "float4_e2m1fn"

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:
        """Fill value that a metadata document holds; base64 text too in Zarr format 2."""
        if zarr_format == 2 and isinstance(data, str):  # as TensorStore writes it
            return np.array(raw_from_json(data, 1)).view(self._native())[()]
        return super().from_json_scalar(data, zarr_format=zarr_format)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value; base64 text in Zarr format 2."""
        if zarr_format == 2:
            return b64encode(self.cast_scalar(data).tobytes()).decode()
        return super().to_json_scalar(data, zarr_format=zarr_format)


class _Integer(ExtensionDataType):
    def _read(self, data: JSON) -> Any:
        return int_from_json(data, self._native())

    def _write(self, scalar: Any) -> Any:
        return int(scalar)


class Int2(_Integer):
    """Data type `int2`: -2 to 1, in the lower two bits of a byte."""

    _zarr_v3_name = "int2"


class UInt2(_Integer):
    """Data type `uint2`: 0 to 3, in the lower two bits of a byte."""

    _zarr_v3_name = "uint2"


class Int4(_Integer):
    """Data type `int4`: -8 to 7, in the lower four bits of a byte."""

    _zarr_v3_name = "int4"


class UInt4(_Integer):
    """Data type `uint4`: 0 to 15, in the lower four bits of a byte."""

    _zarr_v3_name = "uint4"
