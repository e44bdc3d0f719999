"""The data types by their names in metadata, and their fill values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from zarr_bytes.data_type import complex as _complex  # noqa: F401 -- adds to EXTENSIONS
from zarr_bytes.data_type import core
from zarr_bytes.data_type.real import EXTENSIONS
from zarr_bytes.zarr_versions import HAS_STRUCT

if TYPE_CHECKING:
    from zarr.dtype import ZDType

_CORE: Final[list[type[ZDType[Any, Any]]]] = [*core.CORE_TYPES.values(), core.RawBits]
DATA_TYPES: Final[dict[str, type[ZDType[Any, Any]]]] = {
    **{data_type._zarr_v3_name: data_type for data_type in _CORE},
    **EXTENSIONS,
    **({"struct": core.Struct} if HAS_STRUCT else {}),
}
