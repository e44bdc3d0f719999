"""The `bytes` codec of Zarr format 3 as a plugin for zarr-python.

Installing the package is enough: zarr then uses it for every array with the codec `bytes`.
Importing the package registers its data types, which zarr 3.4 and newer do by themselves. It also
registers its codecs and its pipeline, for a process that imported zarr before the package was
installed.

The functions `status`, `check`, `preallocate` and `explain` correspond to the commands with these
names. `counting` counts the bytes that are read and written. `view` gives NumPy views of the chunks
of an array. `config` changes the settings.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING

from zarr.dtype import data_type_registry
from zarr.registry import register_codec, register_pipeline

from zarr_bytes.codec import BytesCodec, EndianCodec
from zarr_bytes.data_type import DATA_TYPES
from zarr_bytes.errors import (
    BoolValueError,
    ChunkFileError,
    ChunkSizeError,
    ConfigurationError,
    DataTypeNameError,
    FillValueError,
    FillValueWarning,
    MissingPackageError,
    ShardIndexError,
    StoreError,
)
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import config, log_how_to_activate_unless_bytes_codec_is_chosen

if TYPE_CHECKING:
    from zarr_bytes.commands.check import check
    from zarr_bytes.commands.counting import counting
    from zarr_bytes.commands.explain import explain
    from zarr_bytes.commands.preallocate import preallocate
    from zarr_bytes.commands.status import status
    from zarr_bytes.views import view

    __version__: str

__all__ = [
    "BatchedBytesPipeline",
    "BoolValueError",
    "BytesCodec",
    "ChunkFileError",
    "ChunkSizeError",
    "ConfigurationError",
    "DataTypeNameError",
    "EndianCodec",
    "FillValueError",
    "FillValueWarning",
    "MissingPackageError",
    "ShardIndexError",
    "StoreError",
    "__version__",
    "check",
    "config",
    "counting",
    "explain",
    "preallocate",
    "status",
    "view",
]

# The modules of functions that are imported at first use, because zarr imports this package for
# every array.
_MODULES_OF_FUNCTIONS = {
    name: f"zarr_bytes.commands.{name}"
    for name in ("check", "counting", "explain", "preallocate", "status")
} | {"view": "zarr_bytes.views"}


def __getattr__(name: str) -> object:
    """The version, or a function whose module is imported now; else an AttributeError."""
    if name == "__version__":
        return metadata.version("zarr-bytes")
    if name in _MODULES_OF_FUNCTIONS:
        return getattr(import_module(_MODULES_OF_FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# zarr 3.4 imports the package for its entry point in zarr.data_type when it looks up a data type.
for _name, _data_type in DATA_TYPES.items():
    data_type_registry.register(_name, _data_type)

# zarr reads the entry points once, when it is imported, so a process that imported zarr before the
# package was installed has none of these. Only zarr's configuration chooses them.
for _codec in (BytesCodec, EndianCodec):
    register_codec(_codec.name, _codec)
register_pipeline(BatchedBytesPipeline)

log_how_to_activate_unless_bytes_codec_is_chosen()
