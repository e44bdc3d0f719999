"""The `bytes` codec of Zarr format 3 as a plugin for zarr-python.

Installing the package is enough: zarr then uses it for every array that names `bytes`. Importing it
registers its data types also with zarr 3.1 to 3.3, which do not load them by themselves.
"""

from zarr.dtype import data_type_registry

from zarr_bytes.codec import BytesCodec, EndianCodec
from zarr_bytes.data_type.names import DATA_TYPES
from zarr_bytes.errors import (
    BoolValueError,
    ChunkFileError,
    ChunkSizeError,
    ConfigurationError,
    DataTypeNameError,
    FillValueError,
    MissingPackageError,
)
from zarr_bytes.pipeline import BytesPipeline

__all__ = [
    "BoolValueError",
    "BytesCodec",
    "BytesPipeline",
    "ChunkFileError",
    "ChunkSizeError",
    "ConfigurationError",
    "DataTypeNameError",
    "EndianCodec",
    "FillValueError",
    "MissingPackageError",
]

# zarr 3.4 loads the entry points zarr.data_type itself. Goes when zarr 3.4 is required.
for _name, _data_type in DATA_TYPES.items():
    data_type_registry.register(_name, _data_type)
