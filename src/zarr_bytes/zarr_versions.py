"""What differs between zarr versions, and the private names of zarr that this package needs.

Each entry says which version of zarr lets it go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast
from zipfile import ZIP_STORED, ZipFile

import zarr
import zarr.core.codec_pipeline
from zarr import dtype, errors

# Private, up to 3.4.2: the bases by which zarr knows that a data type needs a byte order, and that
# it has an item size (for Blosc).
from zarr.core.dtype.common import HasEndianness as HasEndianness
from zarr.core.dtype.common import HasItemSize as HasItemSize

# Private, up to 3.4.2: how zarr runs the coroutines of a store, on the loop of its connections.
from zarr.core.sync import sync as sync

if TYPE_CHECKING:
    # Private, for annotations alone: up to 3.4.2 no public module of zarr has these names.
    # Public, but from zarr 3.3 on.
    from zarr.abc.codec import CodecPipeline
    from zarr.abc.store import SyncByteGetter as SyncByteGetter
    from zarr.abc.store import SyncByteSetter as SyncByteSetter
    from zarr.core.array_spec import ArraySpec as ArraySpec
    from zarr.core.dtype.wrapper import TBaseDType as TBaseDType
    from zarr.core.dtype.wrapper import TBaseScalar as TBaseScalar
    from zarr.core.indexing import SelectorTuple as SelectorTuple
    from zarr.core.metadata.v3 import ChunkGridMetadata as ChunkGridMetadata
    from zarr.storage import ZipStore


def _data_type_validation_error() -> type[ValueError]:
    # Public in zarr.errors from 3.3, and in zarr.dtype, which warns about it from 3.3, before.
    # Goes when zarr 3.3 is required.
    module = errors if hasattr(errors, "DataTypeValidationError") else dtype
    return cast("type[ValueError]", module.DataTypeValidationError)


DataTypeValidationError = _data_type_validation_error()


# Private, up to 3.4.2: the pipelines of zarr itself; the second is there from 3.3 on.
PIPELINES: Final[dict[str, type[CodecPipeline]]] = {
    name: getattr(zarr.core.codec_pipeline, class_name)
    for name, class_name in {
        "batched": "BatchedCodecPipeline",
        "fused": "FusedCodecPipeline",
    }.items()
    if hasattr(zarr.core.codec_pipeline, class_name)
}


def is_deflated(store: ZipStore, key: str) -> bool:
    """Whether a member of a zip file is compressed, so that a range is inflated from its start."""
    # Private, up to 3.4.2: the open zip file. A member that is missing is for `get` to miss.
    archive: ZipFile | None = getattr(store, "_zf", None)
    try:
        return archive is not None and archive.getinfo(key).compress_type != ZIP_STORED
    except KeyError:
        return False


# Whether zarr loads the entry points zarr.data_type by itself. Goes when zarr 3.4 is required.
LOADS_DATA_TYPES: Final = tuple(map(int, zarr.__version__.split(".")[:2])) >= (3, 4)

HAS_STRUCT: Final = hasattr(dtype, "Struct")  # from 3.2 on
