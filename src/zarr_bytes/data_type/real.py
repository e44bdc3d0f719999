"""The registered extension data types of real numbers, bit for bit.

Specification: zarr-extensions, data-types/, the README of each type.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import numpy as np

from zarr_bytes.data_type.extension import ExtensionDataType, MultiByteDataType
from zarr_bytes.data_type.fill_value import (
    float_from_json,
    float_to_json,
    int_from_json,
    raw_from_json,
)

if TYPE_CHECKING:
    from zarr.types import JSON, ZarrFormat

__all__ = [
    "BFloat16",
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
    "UInt2",
    "UInt4",
]


class _Float(ExtensionDataType):
    def _read(self, data: JSON) -> Any:
        return float_from_json(data, self._native())

    def _write(self, scalar: Any) -> Any:
        return float_to_json(scalar)


class BFloat16(_Float, MultiByteDataType, name="bfloat16"):
    """Data type `bfloat16`: the upper half of a float32.

    Examples
    --------
    >>> BFloat16().from_json_scalar(1.5, zarr_format=3)
    1.5
    >>> BFloat16().to_json_scalar(float("nan"), zarr_format=3)
    'NaN'
    """


class Float8E3M4(_Float, name="float8_e3m4"):
    """Data type `float8_e3m4`: 3 bits of exponent and 4 of mantissa."""


class Float8E4M3(_Float, name="float8_e4m3"):
    """Data type `float8_e4m3`: 4 bits of exponent and 3 of mantissa, with infinities."""


class Float8E4M3B11FNUZ(_Float, name="float8_e4m3b11fnuz"):
    """Data type `float8_e4m3b11fnuz`: bias 11; one NaN, no infinity, no -0."""


class Float8E4M3FN(_Float, name="float8_e4m3fn"):
    """Data type `float8_e4m3fn`: no infinity. Not registered; TensorStore writes it."""


class Float8E4M3FNUZ(_Float, name="float8_e4m3fnuz"):
    """Data type `float8_e4m3fnuz`: one NaN, no infinity, no -0."""


class Float8E5M2(_Float, name="float8_e5m2"):
    """Data type `float8_e5m2`: the upper half of a float16."""


class Float8E5M2FNUZ(_Float, name="float8_e5m2fnuz"):
    """Data type `float8_e5m2fnuz`: one NaN, no infinity, no -0."""


class Float8E8M0FNU(_Float, name="float8_e8m0fnu"):
    """Data type `float8_e8m0fnu`: powers of two. It has no zero; the bits 0 are 2**-127."""


class Float6E2M3FN(_Float, name="float6_e2m3fn"):
    """Data type `float6_e2m3fn`: in the lower six bits of a byte; neither NaN nor infinity."""


class Float6E3M2FN(_Float, name="float6_e3m2fn"):
    """Data type `float6_e3m2fn`: in the lower six bits of a byte; neither NaN nor infinity."""


class Float4E2M1FN(_Float, name="float4_e2m1fn"):
    """Data type `float4_e2m1fn`: in the lower four bits of a byte; neither NaN nor infinity."""

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:
        """Fill value from a metadata document; in Zarr format 2 also base64 text."""
        if zarr_format == 2 and isinstance(data, str):  # written by TensorStore
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


class Int2(_Integer, name="int2"):
    """Data type `int2`: -2 to 1, in the lower two bits of a byte."""


class UInt2(_Integer, name="uint2"):
    """Data type `uint2`: 0 to 3, in the lower two bits of a byte."""


class Int4(_Integer, name="int4"):
    """Data type `int4`: -8 to 7, in the lower four bits of a byte.

    Examples
    --------
    >>> Int4().to_json_scalar(-8, zarr_format=3)
    -8
    """


class UInt4(_Integer, name="uint4"):
    """Data type `uint4`: 0 to 15, in the lower four bits of a byte."""
