"""The registered extension data types of real numbers, with NumPy types from ml_dtypes.

Specification: zarr-extensions, data-types/, the README of each type. ml_dtypes is imported when a
type is used. The types are also registered without it; the error then names the package.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, cast

import numpy as np

from zarr_bytes.data_type.exact import ExactFillValues, NoMatchError
from zarr_bytes.data_type.fill_value import FLOATS, number_from_json, number_to_json, raw_from_json
from zarr_bytes.errors import HOW_TO_INSTALL, FillValueError, MissingPackageError
from zarr_bytes.zarr_versions import HasEndianness, HasItemSize

if TYPE_CHECKING:
    from zarr.dtype import ZDType
    from zarr.types import JSON, DTypeJSON, ZarrFormat

    from zarr_bytes.data_type.fill_value import DType
    from zarr_bytes.zarr_versions import TBaseDType

_PACKAGE: Final = "ml_dtypes"


@lru_cache
def import_ml_dtypes_dtype(ml_dtypes_name: str, zarr_name: str) -> DType:
    """NumPy type of ml_dtypes for a Zarr data type; imports ml_dtypes.

    A MissingPackageError with the name of the data type if ml_dtypes is missing or too old.
    """
    try:
        import ml_dtypes

        return cast("DType", np.dtype(getattr(ml_dtypes, ml_dtypes_name)))
    except (ImportError, AttributeError) as error:
        raise MissingPackageError(
            f"data type {zarr_name!r} needs the package {_PACKAGE}, 0.6 or newer:"
            f" {HOW_TO_INSTALL[_PACKAGE]}",
            name=_PACKAGE,
        ) from error


class ExtensionDataType(ExactFillValues, HasItemSize):
    """A registered extension data type, which has no configuration."""

    dtype_cls = np.dtype  # the class from ml_dtypes isn't known without the package
    _name_in_package: ClassVar[str]

    @classmethod
    def _import_native_dtype(cls) -> DType:
        """NumPy type in the byte order of this machine; a MissingPackageError without ml_dtypes."""
        return import_ml_dtypes_dtype(cls._name_in_package, cls._zarr_v3_name)

    @property
    def item_size(self) -> int:
        """Bytes of an element."""
        return self.to_native_dtype().itemsize

    @classmethod
    def from_native_dtype(cls, dtype: TBaseDType) -> Self:
        """Data type of the NumPy type of ml_dtypes; an error, which zarr catches, for any other."""
        if dtype.type.__module__ != _PACKAGE or dtype.name != cls._name_in_package:
            raise NoMatchError("{} is not {}", dtype, cls._zarr_v3_name)
        return cls()

    def to_native_dtype(self) -> DType:
        """NumPy type of the elements; a `MissingPackageError` if ml_dtypes doesn't have it."""
        return self._import_native_dtype()

    @classmethod
    def from_json(cls, data: DTypeJSON, *, zarr_format: ZarrFormat) -> Self:
        """Data type for its form in metadata; else an error, which zarr catches.

        Other names are refused at once, because zarr tries every class for each new array.
        """
        if isinstance(data, str) and data != cls._zarr_v3_name:
            raise NoMatchError("{!r} is not {}", data, cls._zarr_v3_name)
        return super().from_json(data, zarr_format=zarr_format)

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        """Data type for its name; else a NoMatchError, which zarr catches.

        A MissingPackageError without ml_dtypes.
        """
        if data != cls._zarr_v3_name:
            raise NoMatchError("{!r} is not {}", data, cls._zarr_v3_name)
        cls._import_native_dtype()  # raises if the package is missing
        return cls()

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        """As `_from_json_v3`, for an object with the name."""
        # TensorStore writes these names into Zarr format 2 too.
        if not isinstance(data, dict) or data.get("object_codec_id") is not None:
            raise NoMatchError("{!r} is not {}", data, cls._zarr_v3_name)
        return cls._from_json_v3(data.get("name"))

    def to_json(self, zarr_format: ZarrFormat) -> Any:
        """Name of this data type in metadata: text in Zarr format 3, an object in 2."""
        name = self._zarr_v3_name
        return name if zarr_format == 3 else {"name": name, "object_codec_id": None}

    def _from_json_strictly(self, data: JSON) -> Any:
        return number_from_json(data, self._import_native_dtype(), self._zarr_v3_name)

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:  # noqa: ARG002
        """Fill value from a metadata document; both formats use the form of core data types."""
        return super().from_json_scalar(data, zarr_format=3)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:  # noqa: ARG002
        """JSON form of a fill value, given in any form that `cast_scalar` accepts."""
        return number_to_json(self.cast_scalar(data))

    def default_scalar(self) -> Any:
        """Element with all bits 0: the number 0, if the type has a zero."""
        return np.zeros((), self._import_native_dtype())[()]

    def cast_scalar(self, data: object) -> Any:
        """NumPy scalar of a number or a JSON form; a `FillValueError` if the type can't hold it."""
        if isinstance(data, np.generic | np.ndarray):
            if data.dtype == self._import_native_dtype() and data.ndim == 0:
                return data[()]
            data = data.tolist()
        elif getattr(data, "ndim", None) == 0:  # from JAX or PyTorch
            data = cast("Any", data).item()
        return self._from_json_strictly(self._to_json_if_number(data))

    def _to_json_if_number(self, number_or_json: Any) -> Any:
        """JSON form of a Python number; any other value is returned as it is."""
        if isinstance(number_or_json, np.floating):  # longdouble, which has no Python number
            number_or_json = float(number_or_json)
        is_nan = isinstance(number_or_json, float) and number_or_json != number_or_json
        return "NaN" if is_nan else number_or_json

    def _check_scalar(self, data: object) -> bool:
        """Whether `cast_scalar` accepts a value; False if it raises a FillValueError."""
        try:
            self.cast_scalar(data)
        except FillValueError:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class MultiByteDataType(ExtensionDataType, HasEndianness):
    """An extension data type of numbers with a byte order: `endianness` is the order in memory."""

    endianness: Literal["little", "big"] = sys.byteorder  # zarr's default is "little" up to 3.4.0

    def to_native_dtype(self) -> DType:
        """NumPy type of the elements, in the byte order `endianness`."""
        return self._import_native_dtype().newbyteorder(self.endianness)

    def cast_scalar(self, data: object) -> Any:
        """NumPy scalar of a number or a JSON form; a TypeError for the other byte order."""
        if self.endianness != sys.byteorder:
            raise TypeError(
                f"data type {self._zarr_v3_name!r}: ml_dtypes assigns to arrays of this machine's"
                f" byte order: leave endianness out, and use BytesCodec(endian={self.endianness!r})"
            )
        return super().cast_scalar(data)


class _Base64FillValueInV2(ExtensionDataType):
    """A type whose fill value TensorStore writes as base64 text in Zarr format 2."""

    def from_json_scalar(self, data: JSON, *, zarr_format: ZarrFormat) -> Any:
        """Fill value from a metadata document; in format 2, text is the base64 form of its byte."""
        if zarr_format == 2 and isinstance(data, str):
            return np.array(raw_from_json(data, 1)).view(self._import_native_dtype())[()]
        return super().from_json_scalar(data, zarr_format=zarr_format)

    def to_json_scalar(self, data: object, *, zarr_format: ZarrFormat) -> Any:
        """JSON form of a fill value; in format 2, its byte as base64 text."""
        if zarr_format == 2:
            return b64encode(self.cast_scalar(data).tobytes()).decode()
        return super().to_json_scalar(data, zarr_format=zarr_format)


EXTENSIONS: Final[dict[str, type[ZDType[Any, Any]]]] = {}
"""The extension data types, by their names in metadata."""


def define_extension_in_module_and_table(
    class_name: str,
    zarr_name: str,
    *bases: type,
    ml_dtypes_name: str | None = None,
    module_name: str = __name__,
) -> None:
    """Make the class of an extension data type, and put it into a module and into `EXTENSIONS`.

    `zarr_name` is the name in metadata. `ml_dtypes_name` is the name in ml_dtypes; None if both
    names are equal.
    """
    attributes = {
        "__module__": module_name,
        "_zarr_v3_name": zarr_name,
        "_name_in_package": ml_dtypes_name or zarr_name,
    }
    data_type = type(class_name, bases, attributes)
    setattr(sys.modules[module_name], class_name, data_type)
    EXTENSIONS[zarr_name] = data_type


# The floats of one byte, by class name, such as Float8E5M2 for float8_e5m2.
SMALL_FLOATS: Final = {
    name[:6].capitalize() + name[7:].upper(): name
    for name, form in FLOATS.items()
    if form.bits <= 8
}
define_extension_in_module_and_table("BFloat16", "bfloat16", MultiByteDataType)
for _class, _name in SMALL_FLOATS.items():
    define_extension_in_module_and_table(
        _class, _name, _Base64FillValueInV2 if _name == "float4_e2m1fn" else ExtensionDataType
    )
for _name in ("Int2", "UInt2", "Int4", "UInt4"):
    define_extension_in_module_and_table(_name, _name.lower(), ExtensionDataType)
