"""The base classes of data types: their fill values are exact, or read as zarr reads them.

Specification: Zarr 3.1, "fill_value": required, in a form that the data type permits. Deviation: a
value that is not permitted is read as zarr reads it, with a warning that names the array; null, for
which zarr has no value, is read as the default of the data type. If the setting
``zarr_bytes.fill_values`` is "strict", such a value is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from zarr import dtype as zarr_dtype
from zarr.storage import StorePath

from zarr_bytes.data_type.fill_value import number_from_json, number_to_json
from zarr_bytes.errors import FillValueError, FillValueWarning, short_repr, warn_caller
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.pickling import data_type_class
from zarr_bytes.settings import checked_setting, code_that_sets, reads_fill_values_strictly
from zarr_bytes.zarr_versions import (
    DataTypeValidationError,
    find_path_of_node_being_parsed,
    is_caller_called_by_zarr_codec,
)

if TYPE_CHECKING:
    from zarr.types import JSON, ZarrFormat


class NoMatchError(DataTypeValidationError):  # type: ignore[misc]  # of a place that varies
    """A NumPy type or a name in metadata that doesn't belong to a data type.

    zarr tries every registered class and catches the errors of all but one. So the message is only
    made when it is read: the text of a NumPy type takes longer than everything else.

    Parameters
    ----------
    template
        The message, as for `str.format`.
    *values
        The values for the message.
    """

    def __str__(self) -> str:
        template, *values = self.args  # the arguments of the exception
        return str(template).format(*values)


class ExactFillValues(zarr_dtype.ZDType[Any, Any]):
    """A data type that reads and writes the fill values of Zarr format 3 bit for bit."""

    def _from_json_strictly(self, data: JSON) -> Any:
        """NumPy scalar of a permitted fill value; a `FillValueError` for any other."""
        return number_from_json(data, self.to_native_dtype(), self._zarr_v3_name)

    def _from_json_leniently_or_raise(self, data: JSON, error_if_refused: FillValueError) -> Any:
        """NumPy scalar of a fill value as zarr reads it, without a warning.

        `error_if_refused`, which `_from_json_strictly` has raised, is raised again if zarr refuses
        the value, too. Null gives the default scalar.
        """
        if data is None:
            return self.default_scalar()
        raise error_if_refused

    def _from_json_without_warning(self, data: JSON) -> Any:
        """Scalar of a fill value that is permitted or that zarr reads; else a FillValueError."""
        try:
            return self._from_json_strictly(data)
        except FillValueError as refusal:
            return self._from_json_leniently_or_raise(data, refusal)

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:
        """Fill value from a metadata document; zarr reads fill values of Zarr format 2.

        For a value that is not permitted, a `FillValueWarning` if zarr reads it, and a
        `FillValueError` if zarr doesn't read it or the setting ``zarr_bytes.fill_values`` is
        "strict".
        """
        if zarr_format != 3:
            return super().from_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]
        try:
            return self._from_json_strictly(data)
        except FillValueError as refusal:
            scalar = self._from_json_leniently_or_raise(data, refusal)
            if not is_caller_called_by_zarr_codec():
                warn_of_fill_value_or_raise_if_strict(scalar, data, refusal)
            return scalar

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value: a number, a name, or the bits of a NaN; a pair if complex."""
        if zarr_format != 3:
            return super().to_json_scalar(data, zarr_format=zarr_format)  # type: ignore[safe-super]
        return number_to_json(self.cast_scalar(data))


class ReplacesZarrDataType(ExactFillValues):
    """A data type that replaces zarr's class under its name, and is equal to it."""

    _replaces: ClassVar[type[zarr_dtype.ZDType[Any, Any]]]  # zarr's class, a base of this one
    _field_names: ClassVar[tuple[str, ...]]  # of the dataclass

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        bases = (base for base in cls.__mro__ if issubclass(base, zarr_dtype.ZDType))
        cls._replaces = next(base for base in bases if base.__module__.startswith("zarr."))
        cls._field_names = tuple([field.name for field in fields(cls._replaces)])

    def _from_json_leniently_or_raise(self, data: JSON, error_if_refused: FillValueError) -> Any:
        """NumPy scalar of a fill value as zarr's class reads it, or raise `error_if_refused`."""
        try:
            scalar = np.asarray(self._replaces.from_json_scalar(self, data, zarr_format=3))
        except (IndexError, OverflowError, TypeError, ValueError, struct.error):
            return super()._from_json_leniently_or_raise(data, error_if_refused)
        if scalar.size != 1:  # for the bool [0, 1], zarr gives an array, not an element
            raise error_if_refused
        return scalar.reshape(())[()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self._replaces):
            return NotImplemented
        return bool(self.to_native_dtype() == other.to_native_dtype())

    def __hash__(self) -> int:
        return super().__hash__()  # zarr's own: equal data types of either class hash alike

    def __copy__(self) -> Self:
        return self  # nothing in it changes

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        # With the class that zarr has for the name, so that no pickle names this package: if the
        # package isn't installed, that is zarr's own class. The state is that of zarr's classes.
        if self._zarr_v3_name != self._replaces._zarr_v3_name:
            return super().__reduce_ex__(protocol)
        values = [getattr(self, name) for name in self._field_names]
        return data_type_class(self._zarr_v3_name), (), values or None


def warn_of_fill_value_or_raise_if_strict(
    scalar: Any, data: object, refusal: FillValueError
) -> None:
    """Warn that the JSON value `data`, which is not permitted, is read as `scalar`, or raise.

    `refusal` is a message with the permitted values. If fill values are strict, a FillValueError
    with this message, and with the setting that reads the value. The warning names the array that
    zarr opens.
    """
    value = short_repr(scalar.item())
    if reads_fill_values_strictly.get() or checked_setting("zarr_bytes.fill_values") == "strict":
        hint = f"{code_that_sets('zarr_bytes.fill_values', value='lenient')} reads it as {value}."
        raise FillValueError(f"{refusal} {hint}", permitted=refusal.permitted)
    path = find_path_of_node_being_parsed()
    name = store_path_name(path) if isinstance(path, StorePath) else path
    where = "" if name is None else f"array {name}: "
    if isinstance(data, Mapping):  # a record, of which some fields are permitted
        read_as = value
    elif data is None:
        read_as = f"{value}, the default"
    else:
        read_as = f"the value {value} that zarr takes"
    warn_caller(
        f"{where}{refusal} It is read as {read_as}. To store that value: open the array with mode"
        " 'r+', and call update_attributes({})",
        FillValueWarning,
    )
