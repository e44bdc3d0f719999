"""The data types of the specification's core and of zarr, with exact fill values.

Specification: data types, "Core data types"; zarr-extensions, data-types/struct. Each class except
`RawBits` (`r*`) is a subclass of zarr's class, is equal to it, and replaces it under its name.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, cast

import numpy as np
from zarr import dtype as zarr_dtype

from zarr_bytes.data_type.exact import ExactFillValues, NoMatchError, ReplacesZarrDataType
from zarr_bytes.data_type.fill_value import (
    fill_value_error,
    float_from_json,
    native_component_dtype_of,
    raw_from_json,
)
from zarr_bytes.errors import DataTypeNameError, FillValueError, short_repr
from zarr_bytes.pickling import attribute, data_type_class
from zarr_bytes.zarr_versions import HAS_STRUCT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zarr.types import JSON, DTypeJSON, ZarrFormat

    from zarr_bytes.zarr_versions import TBaseDType


class _CoreDataType(ReplacesZarrDataType):
    """A core data type: a bool or a number."""

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> Self:
        """Data type of a NumPy type; a NoMatchError, which zarr catches, for any other."""
        if not cls._check_native_dtype(dtype):
            message = "Invalid data type: {}. Expected an instance of {}"  # as in zarr
            raise NoMatchError(message, dtype, cls.dtype_cls)
        return super().from_native_dtype(dtype)

    def _from_json_leniently_or_raise(self, data: JSON, error_if_refused: FillValueError) -> Any:
        """NumPy scalar of a fill value as zarr reads it, with the bits of permitted NaNs.

        Raises `error_if_refused` if zarr refuses the value, too.
        """
        scalar = super()._from_json_leniently_or_raise(data, error_if_refused)
        if scalar.dtype.kind != "c" or data is None:
            return scalar
        # zarr has read an array of two components.
        pair = np.array([scalar]).view(native_component_dtype_of(scalar.dtype))
        for i, component in enumerate(cast("Sequence[JSON]", data)):
            with suppress(FillValueError):  # zarr loses the bits of a permitted NaN
                pair[i] = float_from_json(component, pair.dtype)
        return pair.view(scalar.dtype)[0]

    def cast_scalar(self, data: object) -> Any:
        """NumPy scalar of a fill value from Python."""
        try:
            return super().cast_scalar(data)  # type: ignore[safe-super]
        except (OverflowError, ValueError):
            dtype = self.to_native_dtype()
            if dtype.kind not in "iu":
                raise
            info = np.iinfo(dtype)
            raise ValueError(
                f"{short_repr(data)} is not a fill value of data type {dtype.name}: permitted is an"
                f" integer from {info.min} to {info.max}"
            ) from None


CORE_TYPES: Final[dict[str, type[_CoreDataType]]] = {
    name: type(name, (_CoreDataType, getattr(zarr_dtype, name)), {"__module__": __name__})
    for name in (
        *("Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
        *("Float16", "Float32", "Float64", "Complex64", "Complex128"),
    )
}
"""The core data types, by the names of their classes."""

globals().update(CORE_TYPES)

_LARGEST_ITEM_SIZE: Final = 2**31 - 1  # np.dtype("V2147483648") is an error, NumPy 2.0 to 2.5


class RawBits(ExactFillValues, zarr_dtype.RawBytes):
    """The raw data types `r8`, `r16`, `r24`, ...: elements of N bits, N a multiple of 8.

    Their NumPy type is void, which zarr maps to its own ``raw_bytes``: pass ``dtype="r16"`` to
    choose a raw data type. The fill value is an array of N/8 integers from 0 to 255. Specification:
    data types, "Core data types" (`r*`) and "Permitted fill values" (`r<N>`).
    """

    _zarr_v3_name = "r*"  # type: ignore[assignment]  # the base has one name

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> NoReturn:
        """Error for every NumPy type, because zarr maps void types to ``raw_bytes``."""
        raise NoMatchError("{} is raw_bytes; write dtype='r{}'", dtype, 8 * dtype.itemsize)

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> NoReturn:
        """Error for every document of Zarr format 2, which zarr catches."""
        raise NoMatchError("{!r}: Zarr format 2 has no raw data types", data)

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        """Data type of a name such as "r16"; a DataTypeNameError for "r12", "r016" and the like.

        A NoMatchError, which zarr catches, for other names.
        """
        # Only names of raw data types begin with an "r" that no letter follows.
        if not isinstance(data, str) or not re.match("r[^a-zA-Z_]", data):
            raise NoMatchError("{!r} is not a raw data type: r8, r16, r24, ...", data)
        bits = data[1:]
        name = f"data type {reprlib.repr(data)}"
        if not re.fullmatch("[1-9][0-9]*", bits) or (len(bits) < 12 and int(bits) % 8):
            raise DataTypeNameError(
                f"{name}: 'r' is followed by digits alone, without a leading zero: a number of bits"
                " that is a multiple of 8, such as r16"
            )
        # NumPy's item sizes end before 2**31 bytes, which is 11 digits in bits.
        if len(bits) > 11 or int(bits) // 8 > _LARGEST_ITEM_SIZE:
            raise DataTypeNameError(
                f"{name}: NumPy has no elements of more than {_LARGEST_ITEM_SIZE} bytes, which is"
                f" r{8 * _LARGEST_ITEM_SIZE}"
            )
        return cls(length=int(bits) // 8)

    def to_json(self, zarr_format: ZarrFormat) -> Any:
        """Name in metadata: ``"r16"`` for two bytes; zarr's form of void types in format 2."""
        return f"r{8 * self.length}" if zarr_format == 3 else super().to_json(zarr_format)

    def _from_json_strictly(self, data: JSON) -> np.void:
        """Raw element for a permitted fill value; a FillValueError for any other."""
        return raw_from_json(data, self.length)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value: a list with one integer for each byte."""
        if zarr_format == 3:
            return list(self.cast_scalar(data).tobytes())
        return super().to_json_scalar(data, zarr_format=zarr_format)

    def cast_scalar(self, data: object) -> np.void:
        """NumPy scalar of a fill value from Python: bytes, a void scalar, or a list of integers."""
        if isinstance(data, np.void):
            data = data.tobytes()
        if isinstance(data, bytes):
            return raw_from_json(list(data), self.length)
        return raw_from_json([data] if isinstance(data, str) else data, self.length)


if HAS_STRUCT:

    class Struct(ReplacesZarrDataType, zarr_dtype.Struct):
        """Data type `struct`: a record. The fill value is an object with a value for each field."""

        def _from_json_strictly(self, data: JSON) -> Any:
            if isinstance(data, Mapping):
                return self._record_from_json(data, is_strict=True)
            # Imported here, because the module imports this package.
            from zarr_bytes.layout.elements import decode_elements

            dtype = self.to_native_dtype()
            try:  # base64 text, which older zarr wrote
                raw = raw_from_json(data if isinstance(data, str) else None, dtype.itemsize)
                encoded = np.frombuffer(raw.tobytes(), np.uint8)
                return decode_elements(encoded, dtype, (), "little")[()]
            except (TypeError, ValueError):
                permitted = (
                    "an object with a value for each field"
                    f"; zarr also reads {dtype.itemsize} bytes as base64 text"
                )
                raise fill_value_error(str(dtype), data, permitted) from None

        def _from_json_leniently_or_raise(
            self, data: JSON, error_if_refused: FillValueError
        ) -> Any:
            if isinstance(data, Mapping):
                return self._record_from_json(data, is_strict=False)
            return super()._from_json_leniently_or_raise(data, error_if_refused)

        def _record_from_json(self, data: Mapping[str, JSON], *, is_strict: bool) -> np.void:
            """Scalar of a JSON object with a value for each field; else a FillValueError.

            If `is_strict`, all fields must be there and have permitted values. Otherwise, a missing
            field has its default, and all values that zarr reads are accepted. The error names the
            field.
            """
            values: list[Any] = []
            for name, field in self.fields:
                if name not in data and is_strict:
                    raise fill_value_error(
                        "struct", data, f"an object with a value for each field, also {name!r}"
                    )
                try:
                    if name not in data:
                        values.append(field.default_scalar())
                    elif isinstance(field, ExactFillValues) and is_strict:
                        values.append(field._from_json_strictly(data[name]))
                    elif isinstance(field, ExactFillValues):
                        values.append(field._from_json_without_warning(data[name]))
                    else:
                        values.append(field.from_json_scalar(data[name], zarr_format=3))
                except FillValueError as error:
                    raise FillValueError(f"field {name!r}: {error}", error.permitted) from None
            return self.cast_scalar(tuple(values))

        def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
            """JSON form of a fill value: an object with the form of each field."""
            return zarr_dtype.Struct.to_json_scalar(self, data, zarr_format=zarr_format)

        def __reduce_ex__(self, protocol: Any) -> Any:
            # The class isn't called, because it requires its fields.
            class_ = data_type_class(self._zarr_v3_name)
            return attribute(class_, "__new__"), (class_,), [self.fields]

        def __eq__(self, other: object) -> bool:
            if not isinstance(other, zarr_dtype.Struct):
                return NotImplemented
            return self.fields == other.fields

        __hash__ = ReplacesZarrDataType.__hash__
