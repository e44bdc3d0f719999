"""The fill value null, which GDAL and zarrita.js write where no value is set.

Specification: Zarr 3.1, "fill_value": required, in a form that the data type permits. No data type
of this package permits null.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from zarr_bytes.caller import warn_caller
from zarr_bytes.errors import FillValueError
from zarr_bytes.settings import fill_values_are_lenient

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.dtype import ZDType
    from zarr.types import JSON, ZarrFormat

__all__ = ["reading_null"]

_NULL_HINT: Final = (
    ' GDAL and zarrita.js write null: zarr.config.set({"zarr_bytes.fill_values": "lenient"})'
    " reads it as zero."
)
Read = TypeVar("Read", bound="Callable[..., Any]")


def reading_null(read: Read) -> Read:
    """Decorate `from_json_scalar` to read null as zero where ``zarr_bytes.fill_values`` is lenient.

    Zero is an element whose bits are all 0, and is written back as zero.

    Raises
    ------
    FillValueError
        For null where the setting is strict; the message names the setting.
    """

    @wraps(read)
    def from_json_scalar(self: ZDType[Any, Any], data: JSON, *, zarr_format: ZarrFormat) -> Any:
        if data is not None or zarr_format != 3:
            return read(self, data, zarr_format=zarr_format)
        if fill_values_are_lenient():
            warn_caller(
                f"fill value null is not permitted for data type {self.to_native_dtype()}; it is"
                " read as zero, because zarr_bytes.fill_values is 'lenient'"
            )
            return self.default_scalar()
        try:
            return read(self, data, zarr_format=zarr_format)
        except FillValueError as error:
            raise error.with_hint(_NULL_HINT) from None

    return cast("Read", from_json_scalar)
