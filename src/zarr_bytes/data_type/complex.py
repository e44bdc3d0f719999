"""The registered complex extension data types: pairs, records, and other names of core types.

Specification: zarr-extensions, data-types/, the README of each type.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.core import Complex64, Complex128
from zarr_bytes.data_type.extension import ExtensionDataType, MultiByteDataType, from_package
from zarr_bytes.data_type.fill_value import complex_from_json, complex_to_json
from zarr_bytes.zarr_versions import DataTypeValidationError

if TYPE_CHECKING:
    from zarr.types import JSON, DTypeJSON

    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.zarr_versions import TBaseDType

__all__ = [
    "ComplexBFloat16",
    "ComplexFloat4E2M1FN",
    "ComplexFloat6E2M3FN",
    "ComplexFloat6E3M2FN",
    "ComplexFloat8E3M4",
    "ComplexFloat8E4M3",
    "ComplexFloat8E4M3B11FNUZ",
    "ComplexFloat8E4M3FNUZ",
    "ComplexFloat8E5M2",
    "ComplexFloat8E5M2FNUZ",
    "ComplexFloat8E8M0FNU",
    "ComplexFloat16",
    "ComplexFloat32",
    "ComplexFloat64",
]


class _Complex(ExtensionDataType):
    def _read(self, data: JSON) -> Any:
        return complex_from_json(data, self._native(), self._zarr_v3_name)

    def _write(self, scalar: Any) -> Any:
        return complex_to_json(scalar)

    def _as_json(self, data: Any) -> Any:
        is_number = isinstance(data, int | float | complex | np.floating)
        parts = (data.real, data.imag) if is_number else data
        if isinstance(parts, tuple | list):
            return [super(_Complex, self)._as_json(part) for part in parts]
        return parts


class _Pair(_Complex, MultiByteDataType):
    def to_native_dtype(self) -> DType:
        """NumPy type of the elements.

        Raises
        ------
        TypeError
            If the byte order is not the machine's: ml_dtypes 0.6 would swap the two numbers too.
        """
        if self.endianness != sys.byteorder:
            # For zarr's own codec, and for its fused pipeline (zarr 3.3 and newer), which reads a
            # dense shard without the codec.
            raise TypeError(
                f"data type {self._zarr_v3_name!r}: ml_dtypes has no {self.endianness}-endian form"
                " of it; read it with the codec of zarr-bytes, and"
                " out of a shard with zarr.core.codec_pipeline.BatchedCodecPipeline"
            )
        return self._native()


class ComplexFloat16(_Pair, name="complex_float16", in_package="complex32"):
    """Data type `complex_float16`: two float16."""


class ComplexBFloat16(_Pair, name="complex_bfloat16", in_package="bcomplex32"):
    """Data type `complex_bfloat16`: two bfloat16.

    Examples
    --------
    >>> ComplexBFloat16().to_json_scalar(1 + 2j, zarr_format=3)
    (1.0, 2.0)
    """


class _ComplexRecord(_Complex):
    """A complex type whose NumPy type is a record of `real` and `imag`.

    zarr takes such a NumPy type for a structured data type: pass the name of the complex type,
    ``dtype="complex_float8_e5m2"``.
    """

    @classmethod
    def _native(cls) -> DType:
        component = from_package(cls._zarr_v3_name.removeprefix("complex_"), cls._zarr_v3_name)
        return np.dtype([("real", component), ("imag", component)])

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> Self:
        """Error for every NumPy type, because zarr takes a record for a structured data type."""
        raise DataTypeValidationError(f"{dtype} is not {cls._zarr_v3_name}")


class ComplexFloat8E3M4(_ComplexRecord, name="complex_float8_e3m4"):
    """Data type `complex_float8_e3m4`: a record of two float8_e3m4."""


class ComplexFloat8E4M3(_ComplexRecord, name="complex_float8_e4m3"):
    """Data type `complex_float8_e4m3`: a record of two float8_e4m3."""


class ComplexFloat8E4M3B11FNUZ(_ComplexRecord, name="complex_float8_e4m3b11fnuz"):
    """Data type `complex_float8_e4m3b11fnuz`: a record of two float8_e4m3b11fnuz."""


class ComplexFloat8E4M3FNUZ(_ComplexRecord, name="complex_float8_e4m3fnuz"):
    """Data type `complex_float8_e4m3fnuz`: a record of two float8_e4m3fnuz."""


class ComplexFloat8E5M2(_ComplexRecord, name="complex_float8_e5m2"):
    """Data type `complex_float8_e5m2`: a record of two float8_e5m2."""


class ComplexFloat8E5M2FNUZ(_ComplexRecord, name="complex_float8_e5m2fnuz"):
    """Data type `complex_float8_e5m2fnuz`: a record of two float8_e5m2fnuz."""


class ComplexFloat8E8M0FNU(_ComplexRecord, name="complex_float8_e8m0fnu"):
    """Data type `complex_float8_e8m0fnu`: a record of two float8_e8m0fnu."""


class ComplexFloat6E2M3FN(_ComplexRecord, name="complex_float6_e2m3fn"):
    """Data type `complex_float6_e2m3fn`: a record of two float6_e2m3fn."""


class ComplexFloat6E3M2FN(_ComplexRecord, name="complex_float6_e3m2fn"):
    """Data type `complex_float6_e3m2fn`: a record of two float6_e3m2fn."""


class ComplexFloat4E2M1FN(_ComplexRecord, name="complex_float4_e2m1fn"):
    """Data type `complex_float4_e2m1fn`: a record of two float4_e2m1fn."""


class _Alias(zarr_dtype.ZDType[Any, Any]):
    """Another name of a core data type, kept when metadata is written again."""

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> Self:
        """Error for every NumPy type, because the NumPy type belongs to the core data type."""
        raise DataTypeValidationError(f"{dtype} is written under its core name")

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        raise DataTypeValidationError(f"{data!r}: Zarr format 2 has no such name")


class ComplexFloat32(_Alias, Complex64):
    """Data type `complex_float32`: another name of `complex64`."""

    _zarr_v3_name = "complex_float32"  # type: ignore[assignment]  # the base has one name


class ComplexFloat64(_Alias, Complex128):
    """Data type `complex_float64`: another name of `complex128`."""

    _zarr_v3_name = "complex_float64"  # type: ignore[assignment]
