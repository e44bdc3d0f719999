"""The raw data types `r*`: elements of any whole number of bytes.

Specification: data types, "Core data types" (`r*`) and "Permitted fill values" (`r<N>`).
"""

from __future__ import annotations

import re
import reprlib
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.fill_value import raw_from_json, raw_to_json
from zarr_bytes.data_type.lenient import reading_null
from zarr_bytes.errors import DataTypeNameError
from zarr_bytes.zarr_versions import DataTypeValidationError

if TYPE_CHECKING:
    from zarr.types import JSON, DTypeJSON, ZarrFormat

    from zarr_bytes.zarr_versions import TBaseDType

__all__ = ["RawBits"]

_LARGEST_ITEM_SIZE: Final = 2**31 - 1  # np.dtype("V2147483648") is an error, NumPy 2.0 to 2.5


class RawBits(zarr_dtype.RawBytes):
    """The raw data types `r8`, `r16`, `r24`, ...: elements of N bits, N a multiple of 8.

    Their NumPy type is void, which zarr maps to its own ``raw_bytes``: pass ``dtype="r16"`` to
    choose this one.
    The fill value is an array of N/8 integers from 0 to 255.

    Parameters
    ----------
    length : int
        Size of an element, in bytes.

    Notes
    -----
    Specification: data types, "Core data types" and "Permitted fill values".

    Examples
    --------
    >>> from zarr.dtype import parse_dtype
    >>> parse_dtype("r16", zarr_format=3)
    RawBits(length=2)
    """

    _zarr_v3_name: ClassVar[str] = "r*"  # type: ignore[assignment]  # the base has one name

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> Self:
        """Error for every NumPy type, because zarr maps void types to ``raw_bytes``.

        Raises
        ------
        DataTypeValidationError
            Always; zarr then tries the next data type.
        """
        raise DataTypeValidationError(f"{dtype} is raw_bytes; write dtype='r{8 * dtype.itemsize}'")

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        raise DataTypeValidationError(f"{data!r}: Zarr format 2 has no raw data types")

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        # Only names of raw data types begin with an "r" without a letter after it.
        if not isinstance(data, str) or not re.match("r[^a-zA-Z_]", data):
            raise DataTypeValidationError(f"{data!r} is not a raw data type: r8, r16, r24, ...")
        bits, name = data[1:], reprlib.repr(data)
        # NumPy's item sizes end before 2**31 bytes, which is 11 digits in bits.
        if not (bits.isascii() and bits.isdigit() and bits[0] != "0"):
            raise DataTypeNameError(
                f"data type {name}: 'r' is followed by digits alone, without a leading"
                " zero: a number of bits that is a multiple of 8"
            )
        if len(bits) > 11 or int(bits) // 8 > _LARGEST_ITEM_SIZE:
            raise DataTypeNameError(
                f"data type {name}: NumPy has no elements of more than {_LARGEST_ITEM_SIZE}"
                f" bytes, which is r{8 * _LARGEST_ITEM_SIZE}"
            )
        if int(bits) % 8:
            raise DataTypeNameError(
                f"data type {name}: the number of bits is a multiple of 8, such as"
                f" r{int(bits) + -int(bits) % 8}"
            )
        return cls(length=int(bits) // 8)

    def to_json(self, zarr_format: ZarrFormat) -> Any:
        """Name of this data type in metadata.

        Returns
        -------
        str or dict
            ``"r16"`` for two bytes in Zarr format 3, zarr's form of void types in format 2.
        """
        return f"r{8 * self.length}" if zarr_format == 3 else super().to_json(zarr_format)

    @reading_null
    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> np.void:
        """Fill value from a metadata document.

        Parameters
        ----------
        data : list of int, or str
            One integer for each byte, or base64 text, which TensorStore writes.
        zarr_format : {2, 3}
            Fill values of Zarr format 2 are read by zarr.

        Raises
        ------
        FillValueError
            If `data` is neither a list with one integer from 0 to 255 for each byte, nor base64
            text of as many bytes.
        """
        if zarr_format == 3:
            return raw_from_json(data, self.length)
        return super().from_json_scalar(data, zarr_format=zarr_format)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value: a list with one integer for each byte."""
        if zarr_format == 3:
            return raw_to_json(self.cast_scalar(data))
        return super().to_json_scalar(data, zarr_format=zarr_format)

    def cast_scalar(self, data: object) -> np.void:
        """NumPy scalar of a fill value from Python: bytes, a void scalar, or a list of integers.

        Raises
        ------
        FillValueError
            If `data` is anything else, or does not have the size of an element.
        """
        if isinstance(data, np.void | bytes):
            return raw_from_json(list(bytes(data)), self.length)
        return raw_from_json([data] if isinstance(data, str) else data, self.length)
