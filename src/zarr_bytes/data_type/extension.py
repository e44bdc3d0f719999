"""The base of the registered extension data types, whose NumPy types come from ml_dtypes.

Specification: zarr-extensions, data-types/, the README of each type. The package ml_dtypes is
imported when such a type is used. Without the package the data types are registered all the same,
so that the error for an array of such a type names the missing package.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.lenient import reading_null
from zarr_bytes.errors import HOW_TO_INSTALL, FillValueError, MissingPackageError
from zarr_bytes.zarr_versions import DataTypeValidationError, HasEndianness, HasItemSize

if TYPE_CHECKING:
    from zarr.types import JSON, DTypeJSON, ZarrFormat

    from zarr_bytes.data_type.number_formats import DType
    from zarr_bytes.zarr_versions import TBaseDType

__all__ = ["ExtensionDataType", "MultiByteDataType", "from_package"]

_PACKAGE: Final = "ml_dtypes"


@lru_cache
def from_package(name: str, data_type: str) -> DType:
    """NumPy type of ml_dtypes with the name `name`."""
    try:
        import ml_dtypes

        dtype: DType = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        raise MissingPackageError(
            f"data type {data_type!r} needs the package {_PACKAGE}, 0.6 or newer:"
            f" {HOW_TO_INSTALL[_PACKAGE]}",
            name=_PACKAGE,
        ) from error
    return dtype


class ExtensionDataType(zarr_dtype.ZDType[Any, Any], HasItemSize):
    """Base of the registered extension data types, which have no configuration.

    A class statement gives the name in metadata, and the name in ml_dtypes if it is another:
    ``class ComplexFloat16(..., name="complex_float16", in_package="complex32")``.

    Notes
    -----
    Specification: zarr-extensions, data-types/, the README of the type ("Fill value
    representation", "Codec compatibility").
    """

    dtype_cls = np.dtype  # the class of ml_dtypes is not known without the package
    _name_in_package: ClassVar[str]

    def __init_subclass__(cls, name: str = "", in_package: str = "") -> None:
        super().__init_subclass__()
        cls._zarr_v3_name, cls._name_in_package = name, in_package or name

    @classmethod
    def _native(cls) -> DType:
        return from_package(cls._name_in_package, cls._zarr_v3_name)

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
        """Data type of a NumPy type.

        Raises
        ------
        DataTypeValidationError
            If `dtype` is not the type of ml_dtypes; zarr then tries the next data type.
        """
        if dtype.type.__module__ != _PACKAGE or dtype.name != cls._name_in_package:
            raise DataTypeValidationError(f"{dtype} is not {cls._zarr_v3_name}")
        return cls()

    def to_native_dtype(self) -> DType:
        """NumPy type of the elements.

        Raises
        ------
        MissingPackageError
            If ml_dtypes is not installed, or has no such type yet.
        """
        return self._native()

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        if data != cls._zarr_v3_name:
            raise DataTypeValidationError(f"{data!r} is not {cls._zarr_v3_name}")
        cls._native()  # raises if the package is missing
        return cls()

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        # TensorStore writes these names into Zarr format 2 too.
        if not isinstance(data, dict) or data.get("object_codec_id") is not None:
            raise DataTypeValidationError(f"{data!r} is not {cls._zarr_v3_name}")
        return cls._from_json_v3(data.get("name"))

    def to_json(self, zarr_format: ZarrFormat) -> Any:
        """Name of this data type in metadata: text in Zarr format 3, an object in 2."""
        name = self._zarr_v3_name
        return name if zarr_format == 3 else {"name": name, "object_codec_id": None}

    @reading_null
    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:  # noqa: ARG002
        """Fill value from a metadata document.

        Parameters
        ----------
        data : JSON value
            In the form of the core data types; rounded once, to the nearest number, ties to even.
        zarr_format : {2, 3}
            Not used.

        Returns
        -------
        NumPy scalar
            Of a type of ml_dtypes; for complex numbers of the small floats, a record.

        Raises
        ------
        FillValueError
            If the value is not permitted for this data type: a number out of range, or a NaN or
            an infinity that the data type does not have.
        """
        return self._read(data)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:  # noqa: ARG002
        """JSON form of a fill value, given in any form that `cast_scalar` accepts."""
        return self._write(self.cast_scalar(data))

    def default_scalar(self) -> Any:
        """Element with all bits 0: the number 0, if the type has a zero."""
        return np.zeros((), self._native())[()]

    def cast_scalar(self, data: object) -> Any:
        """NumPy scalar of a fill value from Python.

        Raises
        ------
        FillValueError
            If `data` is not a number of this data type.
        """
        if isinstance(data, np.generic | np.ndarray):
            if data.dtype == self._native() and data.ndim == 0:
                return data[()]
            data = data.tolist()
        return self._read(self._as_json(data))

    def _as_json(self, data: Any) -> Any:
        """JSON form of a Python number, or `data` if it has the JSON form of a fill value."""
        if isinstance(data, np.floating):  # longdouble, which has no Python number
            data = float(data)
        return "NaN" if isinstance(data, float) and data != data else data

    def _check_scalar(self, data: object) -> bool:
        try:
            self.cast_scalar(data)
        except FillValueError:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class MultiByteDataType(ExtensionDataType, HasEndianness):
    """An extension data type of numbers with a byte order.

    Parameters
    ----------
    endianness : {"little", "big"}, default the byte order of this machine
        Byte order in memory. ml_dtypes computes in the byte order of the machine; zarr's own codec
        passes the stored byte order.
    """

    endianness: Literal["little", "big"] = sys.byteorder  # zarr's own is "little", up to 3.4.0

    def to_native_dtype(self) -> DType:
        """NumPy type of the elements."""
        return self._native().newbyteorder(self.endianness)
