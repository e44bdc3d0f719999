"""What every data type of this package has: fill values that are exact, else as zarr takes them.

Specification: Zarr 3.1, "fill_value": required, in a form that the data type permits. Deviation,
unless ``zarr_bytes.fill_values`` is "strict": any other value is taken as zarr takes it, and null,
for which zarr has no value, as the default of the data type, with a warning that names the array.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from zarr import dtype as zarr_dtype
from zarr.storage import StorePath

from zarr_bytes.data_type.fill_value import from_json, to_json
from zarr_bytes.errors import FillValueError, FillValueWarning, short_repr, warn_caller
from zarr_bytes.io.store_names import path_name
from zarr_bytes.settings import call_to_set, is_strict, setting
from zarr_bytes.zarr_versions import is_parameter_of_codec, path_of_metadata_being_parsed

if TYPE_CHECKING:
    from zarr.types import JSON, ZarrFormat


class ExactFillValues(zarr_dtype.ZDType[Any, Any]):
    """A data type that reads and writes the fill values of Zarr format 3 bit for bit."""

    def _read_exactly(self, data: JSON) -> Any:
        """Scalar of a fill value that is permitted; a `FillValueError` for any other."""
        return from_json(data, self.to_native_dtype(), self._zarr_v3_name)

    def _read_as_zarr(self, data: JSON, refusal: FillValueError) -> Any:
        """Scalar of a fill value that `_read_exactly` has refused: the default for null."""
        if data is None:
            return self.default_scalar()
        raise refusal

    def _read_either_way(self, data: JSON) -> Any:
        """Scalar of a fill value, permitted or not."""
        try:
            return self._read_exactly(data)
        except FillValueError as refusal:
            return self._read_as_zarr(data, refusal)

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:
        """Fill value from a metadata document; those of Zarr format 2 are read by zarr."""
        if zarr_format != 3:
            return super().from_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]
        try:
            return self._read_exactly(data)
        except FillValueError as refusal:
            scalar = self._read_as_zarr(data, refusal)
            return scalar if is_parameter_of_codec() else taken(scalar, data, refusal)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value: a number, a name, or the bits of a NaN; two if complex."""
        if zarr_format != 3:
            return super().to_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]
        return to_json(self.cast_scalar(data))


_BY_ZARR: Final = partial(zarr_dtype.parse_dtype, zarr_format=3)


class ReplacesZarrDataType(ExactFillValues):
    """A data type that takes the place of zarr's class of the name, and is equal to it."""

    _replaces: ClassVar[type[zarr_dtype.ZDType[Any, Any]]]  # zarr's class, a base of this one
    _pickled_as: ClassVar[JSON] = None  # its form in metadata, where the name alone is none

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        bases = (base for base in cls.__mro__ if issubclass(base, zarr_dtype.ZDType))
        cls._replaces = next(base for base in bases if base.__module__.startswith("zarr."))

    def _read_as_zarr(self, data: JSON, refusal: FillValueError) -> Any:
        try:
            scalar = np.asarray(self._replaces.from_json_scalar(self, data, zarr_format=3))
        except (IndexError, OverflowError, TypeError, ValueError, struct.error):
            return super()._read_as_zarr(data, refusal)
        if scalar.size != 1:  # the bool [0, 1] is an array to zarr, and no value of an element
            raise refusal
        return scalar.reshape(())[()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self._replaces):
            return NotImplemented
        return bool(self.to_native_dtype() == other.to_native_dtype())

    def __hash__(self) -> int:
        return super().__hash__()  # zarr's own: equal data types of either class hash alike

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Made again by zarr, so that no pickle names this package: where it is not installed, zarr
        # makes its own class. The state is the one of zarr's classes.
        if self._zarr_v3_name != self._replaces._zarr_v3_name:
            return super().__reduce_ex__(protocol)
        values = [getattr(self, field.name) for field in fields(self)]
        return _BY_ZARR, (self._pickled_as or self._zarr_v3_name,), values or None


def taken(scalar: Any, found: object, refusal: FillValueError) -> Any:
    """`scalar` for the JSON value `found`, with a warning; `refusal` if the setting is strict."""
    value = short_repr(scalar.item())
    if is_strict.get() or setting("zarr_bytes.fill_values") == "strict":
        hint = f"{call_to_set('zarr_bytes.fill_values', value='lenient')} reads it as {value}."
        raise FillValueError(f"{refusal} {hint}", permitted=refusal.permitted)
    place = path_of_metadata_being_parsed()
    name = path_name(place) if isinstance(place, StorePath) else place
    where = "" if name is None else f"array {name}: "
    how = f"{value}, the default" if found is None else f"the value {value} that zarr takes"
    how = value if isinstance(found, Mapping) else how  # some fields are permitted
    warn_caller(
        f"{where}{refusal} It is read as {how}. To store that value: open the array with mode 'r+',"
        " and call update_attributes({})",
        FillValueWarning,
    )
    return scalar
