"""The data type `struct`: records whose fields have exact fill values.

Specification: zarr-extensions, data-types/struct. This module needs zarr 3.2, the first that has
`struct`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.fill_value import refused
from zarr_bytes.data_type.lenient import LooselyRead, reading_null

if TYPE_CHECKING:
    import numpy as np
    from zarr.types import JSON, ZarrFormat

__all__ = ["Struct"]


class Struct(zarr_dtype.Struct):
    """Data type `struct`: a record. The fill value is an object with one value for each field.

    Examples
    --------
    >>> from zarr_bytes.data_type.core import UInt8
    >>> Struct(fields=(("a", UInt8()),)).from_json_scalar({"a": 1}, zarr_format=3)
    np.void((1,), dtype=[('a', 'u1')])
    """

    @reading_null
    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> np.void:
        """Fill value from a metadata document.

        Raises
        ------
        FillValueError
            If the value of a field is not permitted for its data type, or `data` is text other
            than the record's bytes in base64, which older versions of zarr wrote.
        """
        if zarr_format == 3 and isinstance(data, Mapping):
            for name, field in self.fields:
                scalar = field.from_json_scalar(data[name], zarr_format=3) if name in data else None
                if isinstance(scalar, LooselyRead):
                    field.cast_scalar(scalar)  # refuses it; zarr's class does not call it
        try:
            return super().from_json_scalar(data, zarr_format=zarr_format)
        except (IndexError, TypeError, ValueError):
            if not isinstance(data, str | None):
                raise
            dtype = self.to_native_dtype()
            permitted = "an object with one for each field"
            also = f"; zarr also reads {dtype.itemsize} bytes as base64 text"
            raise refused(str(dtype), data, permitted + also) from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, zarr_dtype.Struct):
            return NotImplemented
        return self.fields == other.fields

    def __hash__(self) -> int:
        return super().__hash__()  # zarr's own: equal data types of either class hash alike
