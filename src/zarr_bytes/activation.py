"""The choice of codecs and pipeline in zarr's configuration, and advice where nothing is chosen.

The wheel brings ``etc/zarr/zarr-bytes.yaml``. zarr's configuration looks for it in ``/etc/zarr``,
below `sys.prefix` and in ``~/.config/zarr``, and some ways of installing put it elsewhere.
"""

from __future__ import annotations

import logging
from typing import Final

import zarr

CLASSES: Final = {
    "bytes": "zarr_bytes.codec.BytesCodec",
    "endian": "zarr_bytes.codec.EndianCodec",
}
"""The class of each codec name, as zarr's configuration names it."""

VARIABLES: Final = {name: f"ZARR_CODECS__{name.upper()}" for name in CLASSES}
"""The environment variable that chooses the class, by codec name."""

PIPELINE: Final = "zarr_bytes.BatchedBytesPipeline"
"""The pipeline, as zarr's configuration names it under ``codec_pipeline.path``."""

_HINT: Final = (
    "zarr-bytes is installed and zarr does not use it: the configuration file zarr-bytes.yaml is"
    " not where zarr looks for it.\n"
    f'  Before zarr_bytes is imported: zarr.config.set({{"codecs.bytes": "{CLASSES["bytes"]}",'
    f' "codec_pipeline.path": "{PIPELINE}"}})\n'
    f"  Or in the environment: {VARIABLES['bytes']}={CLASSES['bytes']}"
    f" ZARR_CODEC_PIPELINE__PATH={PIPELINE}\n"
    "  To go without it: the same with zarr.codecs.bytes.BytesCodec, zarr's own"
)


def is_undecided(name: str) -> bool:
    """Whether no file, no environment variable and no code has set the class of a codec name."""
    # The very object of the defaults: whoever chooses zarr's class on purpose sets an equal one.
    defaults = [d["codecs"][name] for d in zarr.config.defaults if name in d.get("codecs", {})]
    return bool(defaults) and zarr.config.get(f"codecs.{name}", None) is defaults[-1]


def say_where_undecided() -> None:
    """Log the lines that activate the package, where nothing has chosen a codec.

    A log message and no warning: zarr imports this package when it looks up a codec or a data type,
    and where warnings are errors the array that it opens would not open.
    """
    if is_undecided("bytes"):
        logging.getLogger("zarr_bytes").warning(_HINT)
