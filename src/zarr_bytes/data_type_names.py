"""The data types of this package, by their names in metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from zarr_bytes import complex_data_type, data_type, real_data_type
from zarr_bytes.raw_data_type import RawBits

if TYPE_CHECKING:
    from zarr.dtype import ZDType

__all__ = ["DATA_TYPES"]

DATA_TYPES: Final[dict[str, type[ZDType[Any, Any]]]] = {
    "bool": data_type.Bool,
    "int8": data_type.Int8,
    "int16": data_type.Int16,
    "int32": data_type.Int32,
    "int64": data_type.Int64,
    "uint8": data_type.UInt8,
    "uint16": data_type.UInt16,
    "uint32": data_type.UInt32,
    "uint64": data_type.UInt64,
    "float16": data_type.Float16,
    "float32": data_type.Float32,
    "float64": data_type.Float64,
    "complex64": data_type.Complex64,
    "complex128": data_type.Complex128,
    "r*": RawBits,
    "bfloat16": real_data_type.BFloat16,
    "float8_e3m4": real_data_type.Float8E3M4,
    "float8_e4m3": real_data_type.Float8E4M3,
    "float8_e4m3b11fnuz": real_data_type.Float8E4M3B11FNUZ,
    "float8_e4m3fn": real_data_type.Float8E4M3FN,
    "float8_e4m3fnuz": real_data_type.Float8E4M3FNUZ,
    "float8_e5m2": real_data_type.Float8E5M2,
    "float8_e5m2fnuz": real_data_type.Float8E5M2FNUZ,
    "float8_e8m0fnu": real_data_type.Float8E8M0FNU,
    "float6_e2m3fn": real_data_type.Float6E2M3FN,
    "float6_e3m2fn": real_data_type.Float6E3M2FN,
    "float4_e2m1fn": real_data_type.Float4E2M1FN,
    "int2": real_data_type.Int2,
    "uint2": real_data_type.UInt2,
    "int4": real_data_type.Int4,
    "uint4": real_data_type.UInt4,
    "complex_float16": complex_data_type.ComplexFloat16,
    "complex_bfloat16": complex_data_type.ComplexBFloat16,
    "complex_float8_e3m4": complex_data_type.ComplexFloat8E3M4,
    "complex_float8_e4m3": complex_data_type.ComplexFloat8E4M3,
    "complex_float8_e4m3b11fnuz": complex_data_type.ComplexFloat8E4M3B11FNUZ,
    "complex_float8_e4m3fnuz": complex_data_type.ComplexFloat8E4M3FNUZ,
    "complex_float8_e5m2": complex_data_type.ComplexFloat8E5M2,
    "complex_float8_e5m2fnuz": complex_data_type.ComplexFloat8E5M2FNUZ,
    "complex_float8_e8m0fnu": complex_data_type.ComplexFloat8E8M0FNU,
    "complex_float6_e2m3fn": complex_data_type.ComplexFloat6E2M3FN,
    "complex_float6_e3m2fn": complex_data_type.ComplexFloat6E3M2FN,
    "complex_float4_e2m1fn": complex_data_type.ComplexFloat4E2M1FN,
    "complex_float32": complex_data_type.ComplexFloat32,
    "complex_float64": complex_data_type.ComplexFloat64,
}
