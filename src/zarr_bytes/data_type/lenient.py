"""Fill values that are not permitted, and the setting ``zarr_bytes.fill_values`` that reads them.

Specification: Zarr 3.1, "fill_value": required, in a form that the data type permits. No data type
of this package permits null, which GDAL and zarrita.js write where no value is set.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from zarr_bytes.caller import warn_caller
from zarr_bytes.errors import FillValueError
from zarr_bytes.settings import fill_values_are_lenient

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.dtype import ZDType
    from zarr.types import JSON, ZarrFormat

    from zarr_bytes.data_type.number_formats import DType

__all__ = ["LooselyRead", "if_lenient", "loosely_read", "reading_null"]

_NULL_HINT: Final = (
    ' GDAL and zarrita.js write null: zarr.config.set({"zarr_bytes.fill_values": "lenient"})'
    " reads it as zero."
)
Read = TypeVar("Read", bound="Callable[..., Any]")


def reading_null(read: Read) -> Read:
    """`from_json_scalar` that reads null as zero if ``zarr_bytes.fill_values`` is "lenient".

    Zero is an element with all bits 0, and is written back as zero.

    Raises
    ------
    FillValueError
        For null if the setting is "strict"; the message names the setting.
    """

    @wraps(read)
    def from_json_scalar(self: ZDType[Any, Any], data: JSON, *, zarr_format: ZarrFormat) -> Any:
        if data is not None or zarr_format != 3:
            return read(self, data, zarr_format=zarr_format)
        if fill_values_are_lenient():
            _warn("null", self.to_native_dtype(), "zero")
            return self.default_scalar()
        try:
            return read(self, data, zarr_format=zarr_format)
        except FillValueError as error:
            raise error.with_hint(_NULL_HINT) from None

    return cast("Read", from_json_scalar)


def if_lenient(scalar: Any, found: object, dtype: DType, refusal: FillValueError) -> Any:
    """`scalar`, as zarr reads the JSON value `found`, with a warning.

    Raises
    ------
    FillValueError
        `refusal`, if ``zarr_bytes.fill_values`` is "strict".
    """
    if not fill_values_are_lenient():
        raise refusal
    _warn(repr(found), dtype, f"{scalar}, as zarr reads it")
    return scalar


def _warn(found: str, dtype: DType, read_as: str) -> None:
    warn_caller(
        f"fill value {found} is not permitted for data type {dtype}; it is read as {read_as},"
        " because zarr_bytes.fill_values is 'lenient'"
    )


class LooselyRead(np.generic):
    """A number that zarr accepts in JSON and that is not permitted as a fill value.

    Attributes
    ----------
    found : object
        The JSON value.
    refusal : FillValueError
        The error, which names the permitted values.
    """

    found: object
    refusal: FillValueError


def loosely_read(scalar: np.generic, found: object, refusal: FillValueError) -> Any:
    """Number of a type that is also `LooselyRead`, equal to `scalar`."""
    marked = _loosely_read_class(scalar.dtype)(scalar)
    marked.found, marked.refusal = found, refusal.with_traceback(None)
    return marked


@lru_cache
def _loosely_read_class(dtype: DType) -> type[Any]:
    return type(f"LooselyRead{dtype.name.title()}", (dtype.type, LooselyRead), {})
