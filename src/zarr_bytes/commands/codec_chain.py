"""What the codecs of a metadata document are, by their names alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
from zarr.registry import get_codec_class

from zarr_bytes.commands.text import nested

__all__ = ["BYTES_CODECS", "Kind", "inner_chains", "is_plain", "kind_of", "name_of"]

Kind: TypeAlias = Literal["array -> array", "array -> bytes", "bytes -> bytes"]

BYTES_CODECS: Final = ("bytes", "endian")
_KINDS: Final[dict[type, Kind]] = {
    ArrayArrayCodec: "array -> array",
    ArrayBytesCodec: "array -> bytes",
    BytesBytesCodec: "bytes -> bytes",
}


def name_of(codec: object) -> str | None:
    """Name of a codec object of a document, or of a codec given by its name alone."""
    name = codec.get("name") if isinstance(codec, Mapping) else codec
    return name if isinstance(name, str) else None


def kind_of(codec: object) -> Kind | None:
    """What a codec object turns into what, or None if no package here knows it."""
    name = name_of(codec)
    if name is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns of names that are not standardised
            found = get_codec_class(name)
    except (KeyError, ValueError, ImportError):
        return None
    return next((kind for base, kind in _KINDS.items() if issubclass(found, base)), None)


def is_plain(codecs: object) -> bool:
    """Whether a chunk is its elements and nothing else.

    A missing codec counts: under the draft it meant little-endian elements.
    """
    if not isinstance(codecs, list):
        return codecs is None
    return len(codecs) < 2 and all(name_of(codec) in BYTES_CODECS for codec in codecs)


def inner_chains(codec: object) -> dict[str, object]:
    """The chains within a `sharding_indexed` codec object, by the name of their member."""
    configuration = nested(codec, "configuration")
    if name_of(codec) != "sharding_indexed" or not isinstance(configuration, Mapping):
        return {}
    return {k: configuration[k] for k in ("codecs", "index_codecs") if k in configuration}
