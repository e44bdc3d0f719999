"""The core data types, with exact fill values.

Specification: data types. Each class is a subclass of zarr's class, is equal to it, and replaces it
under its name; only the fill values of Zarr format 3 differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.fill_value import (
    bool_from_json,
    complex_from_json,
    complex_to_json,
    float_from_json,
    float_to_json,
    int_from_json,
)
from zarr_bytes.data_type.lenient import LooselyRead, if_lenient, loosely_read, reading_null
from zarr_bytes.errors import FillValueError, in_short

if TYPE_CHECKING:
    from zarr.types import JSON, ZarrFormat

__all__ = [
    "Bool",
    "Complex64",
    "Complex128",
    "Float16",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
]


class _Exact(zarr_dtype.ZDType[Any, Any]):
    """A core data type of zarr, with the fill values that the specification permits."""

    _replaces: ClassVar[type[zarr_dtype.ZDType[Any, Any]]]  # zarr's class, a base of this one

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        bases = (base for base in cls.__mro__ if issubclass(base, zarr_dtype.ZDType))
        cls._replaces = next(base for base in bases if base.__module__.startswith("zarr."))

    def _read(self, data: JSON) -> Any:
        raise NotImplementedError

    @reading_null
    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:
        """Fill value from a metadata document.

        Parameters
        ----------
        data : JSON value
            In Zarr format 3, a value that the specification permits ("Permitted fill values").
        zarr_format : {2, 3}
            Fill values of Zarr format 2 are read by zarr.

        Returns
        -------
        NumPy scalar
            Of this data type. A number that zarr accepts and the specification does not permit
            becomes a `LooselyRead`, which `cast_scalar` refuses.

        Raises
        ------
        FillValueError
            If the specification does not permit the value for this data type. If the setting
            ``zarr_bytes.fill_values`` is "lenient", only a value that zarr refuses is an error,
            and null is read as zero.
        """
        if zarr_format != 3:
            return super().from_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]
        try:
            return self._read(data)
        except FillValueError as error:
            try:
                scalar = super().from_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]
            except (TypeError, ValueError, OverflowError):
                raise error.with_hint("") from None
            return self._loosely_read(scalar, data, error)

    def _loosely_read(self, scalar: Any, data: object, refusal: FillValueError) -> Any:
        """`scalar`, as zarr reads `data` that is not permitted, if the setting is lenient."""
        return if_lenient(scalar, data, self.to_native_dtype(), refusal)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self._replaces):
            return NotImplemented
        return bool(self.to_native_dtype() == other.to_native_dtype())

    def __hash__(self) -> int:
        return super().__hash__()  # zarr's own: equal data types of either class hash alike


class Bool(_Exact, zarr_dtype.Bool):
    """Data type `bool`. The fill value is ``true`` or ``false``."""

    def _read(self, data: JSON) -> np.bool_:
        return bool_from_json(data)


class _Number(_Exact):
    """A data type of numbers, which are also the parameters of codecs.

    zarr's codecs `scale_offset` and `cast_value` (zarr 3.3 and newer) read their parameters with
    `from_json_scalar`, and permit the values that zarr reads, such as "0.5". Only fill values pass
    through `cast_scalar` afterwards, so it refuses such a value.
    """

    def _loosely_read(self, scalar: Any, data: object, refusal: FillValueError) -> Any:
        return loosely_read(scalar, data, refusal)

    def cast_scalar(self, data: object) -> Any:
        """NumPy scalar of a fill value from metadata or from Python.

        Raises
        ------
        FillValueError
            If the value came from metadata and is not permitted as a fill value.
        TypeError
            If `data` is not a number.
        """
        if isinstance(data, LooselyRead):
            dtype = self.to_native_dtype()
            return if_lenient(dtype.type(data), data.found, dtype, data.refusal)
        return super().cast_scalar(data)  # type: ignore[safe-super]


class _Integer(_Number):
    def _read(self, data: JSON) -> np.generic:
        return int_from_json(data, self.to_native_dtype())

    def cast_scalar(self, data: object) -> Any:
        """NumPy scalar of a fill value from Python.

        Raises
        ------
        TypeError
            If `data` is not a number.
        ValueError
            If `data` is out of range.
        """
        try:
            return super().cast_scalar(data)
        except (OverflowError, ValueError):
            info = np.iinfo(self.to_native_dtype())
            raise ValueError(
                f"{in_short(data)} is not a fill value of data type {info.dtype.name}: permitted"
                f" is an integer from {info.min} to {info.max}"
            ) from None


class Int8(_Integer, zarr_dtype.Int8):
    """Data type `int8`. The fill value is an integer in its range."""


class Int16(_Integer, zarr_dtype.Int16):
    """Data type `int16`. The fill value is an integer in its range.

    Examples
    --------
    >>> Int16().from_json_scalar(-5, zarr_format=3)
    np.int16(-5)
    """


class Int32(_Integer, zarr_dtype.Int32):
    """Data type `int32`. The fill value is an integer in its range."""


class Int64(_Integer, zarr_dtype.Int64):
    """Data type `int64`. The fill value is an integer in its range."""


class UInt8(_Integer, zarr_dtype.UInt8):
    """Data type `uint8`. The fill value is an integer in its range."""


class UInt16(_Integer, zarr_dtype.UInt16):
    """Data type `uint16`. The fill value is an integer in its range."""


class UInt32(_Integer, zarr_dtype.UInt32):
    """Data type `uint32`. The fill value is an integer in its range."""


class UInt64(_Integer, zarr_dtype.UInt64):
    """Data type `uint64`. The fill value is an integer in its range."""


class _WithNaN(_Exact):
    def _write(self, scalar: Any) -> Any:
        """JSON form of a fill value of this data type."""
        raise NotImplementedError

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value: a number, a name, or the bits of a NaN; two if it is complex.

        Parameters
        ----------
        data : number or NumPy scalar
        zarr_format : {2, 3}
            Fill values of Zarr format 2 are written by zarr.
        """
        if zarr_format == 3:
            return self._write(self.cast_scalar(data))
        return super().to_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]


class _Floating(_WithNaN, _Number):
    def _read(self, data: JSON) -> np.generic:
        return float_from_json(data, self.to_native_dtype())

    def _write(self, scalar: Any) -> Any:
        return float_to_json(scalar)


class Float16(_Floating, zarr_dtype.Float16):
    """Data type `float16`. The fill value is a number, a name such as ``"NaN"``, or bits."""


class Float32(_Floating, zarr_dtype.Float32):
    """Data type `float32`. The fill value is a number, a name such as ``"NaN"``, or bits.

    Examples
    --------
    >>> Float32().to_json_scalar(np.uint32(0x7F800001).view("f4"), zarr_format=3)
    '0x7f800001'
    """


class Float64(_Floating, zarr_dtype.Float64):
    """Data type `float64`. The fill value is a number, a name such as ``"NaN"``, or bits."""


class _Complex(_WithNaN):
    def _read(self, data: JSON) -> np.generic:
        return complex_from_json(data, self.to_native_dtype())

    def _write(self, scalar: Any) -> Any:
        return complex_to_json(scalar)


class Complex64(_Complex, zarr_dtype.Complex64):
    """Data type `complex64`. The fill value is an array of two components of float32.

    Examples
    --------
    >>> Complex64().to_json_scalar(1 + 2j, zarr_format=3)
    (1.0, 2.0)
    """


class Complex128(_Complex, zarr_dtype.Complex128):
    """Data type `complex128`. The fill value is an array of two components of float64."""
