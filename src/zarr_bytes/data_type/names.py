"""The data types of this package, by their names in metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from zarr_bytes.data_type import complex as complex_
from zarr_bytes.data_type import core, real
from zarr_bytes.data_type.raw import RawBits
from zarr_bytes.zarr_versions import HAS_STRUCT

if TYPE_CHECKING:
    from zarr.dtype import ZDType

__all__ = ["DATA_TYPES"]

DATA_TYPES: Final[dict[str, type[ZDType[Any, Any]]]] = {
    "bool": core.Bool,
    "int8": core.Int8,
    "int16": core.Int16,
    "int32": core.Int32,
    "int64": core.Int64,
    "uint8": core.UInt8,
    "uint16": core.UInt16,
    "uint32": core.UInt32,
    "uint64": core.UInt64,
    "float16": core.Float16,
    "float32": core.Float32,
    "float64": core.Float64,
    "complex64": core.Complex64,
    "complex128": core.Complex128,
    "r*": RawBits,
    "bfloat16": real.BFloat16,
    "float8_e3m4": real.Float8E3M4,
    "float8_e4m3": real.Float8E4M3,
    "float8_e4m3b11fnuz": real.Float8E4M3B11FNUZ,
    "float8_e4m3fn": real.Float8E4M3FN,
    "float8_e4m3fnuz": real.Float8E4M3FNUZ,
    "float8_e5m2": real.Float8E5M2,
    "float8_e5m2fnuz": real.Float8E5M2FNUZ,
    "float8_e8m0fnu": real.Float8E8M0FNU,
    "float6_e2m3fn": real.Float6E2M3FN,
    "float6_e3m2fn": real.Float6E3M2FN,
    "float4_e2m1fn": real.Float4E2M1FN,
    "int2": real.Int2,
    "uint2": real.UInt2,
    "int4": real.Int4,
    "uint4": real.UInt4,
    "complex_float16": complex_.ComplexFloat16,
    "complex_bfloat16": complex_.ComplexBFloat16,
    "complex_float8_e3m4": complex_.ComplexFloat8E3M4,
    "complex_float8_e4m3": complex_.ComplexFloat8E4M3,
    "complex_float8_e4m3b11fnuz": complex_.ComplexFloat8E4M3B11FNUZ,
    "complex_float8_e4m3fnuz": complex_.ComplexFloat8E4M3FNUZ,
    "complex_float8_e5m2": complex_.ComplexFloat8E5M2,
    "complex_float8_e5m2fnuz": complex_.ComplexFloat8E5M2FNUZ,
    "complex_float8_e8m0fnu": complex_.ComplexFloat8E8M0FNU,
    "complex_float6_e2m3fn": complex_.ComplexFloat6E2M3FN,
    "complex_float6_e3m2fn": complex_.ComplexFloat6E3M2FN,
    "complex_float4_e2m1fn": complex_.ComplexFloat4E2M1FN,
    "complex_float32": complex_.ComplexFloat32,
    "complex_float64": complex_.ComplexFloat64,
}

if HAS_STRUCT:
    from zarr_bytes.data_type.record import Struct

    DATA_TYPES["struct"] = Struct
