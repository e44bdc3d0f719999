"""The registered complex extension data types: pairs, records, and other names of core types.

Specification: zarr-extensions, data-types/, the README of each type.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.core import CORE_TYPES
from zarr_bytes.data_type.exact import NoMatchError
from zarr_bytes.data_type.real import (
    SMALL_FLOATS,
    ExtensionDataType,
    MultiByteDataType,
    define_extension_in_module_and_table,
    import_ml_dtypes_dtype,
)

if TYPE_CHECKING:
    from zarr.types import DTypeJSON

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.zarr_versions import TBaseDType


class _Complex(ExtensionDataType):
    """A complex data type, whose fill value is an array of two components."""

    def _to_json_if_number(self, number_or_json: Any) -> Any:
        """A list of the JSON forms of both components; other values are returned as they are."""
        is_number = isinstance(number_or_json, int | float | complex | np.inexact)
        components = (number_or_json.real, number_or_json.imag) if is_number else number_or_json
        if isinstance(components, tuple | list):
            return [super(_Complex, self)._to_json_if_number(component) for component in components]
        return components


class _NativeEndianComplex(_Complex, MultiByteDataType):
    """A complex type of ml_dtypes, which only has the byte order of this machine."""

    def to_native_dtype(self) -> DType:
        """NumPy type; a TypeError in the other byte order: ml_dtypes 0.6 would swap the numbers."""
        if self.endianness != sys.byteorder:
            # For zarr's own codec, and for zarr's fused pipeline (zarr 3.3 and newer), which reads
            # a dense shard without the codec.
            raise TypeError(
                f"data type {self._zarr_v3_name!r}: ml_dtypes has no {self.endianness}-endian form"
                " of it; read it with the codec of zarr-bytes, and"
                " shards with zarr.core.codec_pipeline.BatchedCodecPipeline"
            )
        return self._import_native_dtype()


class _ComplexRecord(_Complex):
    """A complex type whose NumPy type is a record of `real` and `imag`: zarr's structured type."""

    @classmethod
    def _import_native_dtype(cls) -> np.dtype[np.void]:
        """A record of two numbers of ml_dtypes; a MissingPackageError without ml_dtypes."""
        component = import_ml_dtypes_dtype(cls._name_in_package, cls._zarr_v3_name)
        return np.dtype([("real", component), ("imag", component)])

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> NoReturn:
        """Error for every NumPy type, which zarr catches: a record is zarr's structured type."""
        raise NoMatchError("{} is not {}", dtype, cls._zarr_v3_name)


class _Alias(zarr_dtype.ZDType[Any, Any]):
    """Another name of a core data type, kept when metadata is written again."""

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> NoReturn:
        """Error for every NumPy type, which zarr catches: the core data type takes it."""
        raise NoMatchError("{} is written under its core name", dtype)

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> NoReturn:
        """Error for every document of Zarr format 2, which zarr catches."""
        raise NoMatchError("{!r}: Zarr format 2 has no such name", data)


_define = partial(define_extension_in_module_and_table, module_name=__name__)
_define("ComplexFloat16", "complex_float16", _NativeEndianComplex, ml_dtypes_name="complex32")
_define("ComplexBFloat16", "complex_bfloat16", _NativeEndianComplex, ml_dtypes_name="bcomplex32")
for _class, _name in SMALL_FLOATS.items():
    if _name != "float8_e4m3fn":
        _define(f"Complex{_class}", f"complex_{_name}", _ComplexRecord, ml_dtypes_name=_name)
_define("ComplexFloat32", "complex_float32", _Alias, CORE_TYPES["Complex64"])
_define("ComplexFloat64", "complex_float64", _Alias, CORE_TYPES["Complex128"])
