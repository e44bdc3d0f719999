"""The data types of this package, by their names in metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from zarr_bytes.data_type import complex as complex_
from zarr_bytes.data_type import core, raw, real
from zarr_bytes.zarr_versions import HAS_STRUCT

if TYPE_CHECKING:
    from zarr.dtype import ZDType

__all__ = ["DATA_TYPES"]

_MODULES = [core, raw, real, complex_]
if HAS_STRUCT:
    from zarr_bytes.data_type import record

    _MODULES.append(record)

DATA_TYPES: Final[dict[str, type[ZDType[Any, Any]]]] = {
    data_type._zarr_v3_name: data_type
    for module in _MODULES
    for name, data_type in vars(module).items()  # in the order of the module
    if name in module.__all__
}
