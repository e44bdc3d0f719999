"""Does the metadata document of an array conform: codecs, byte order, data type, fill value.

Specification: bytes codec 1.0 ("Codec name", "Configuration parameters"), and data types ("Core
data types", "Permitted fill values"). The document is judged as it is stored, so that what zarr
or this package reads anyway, such as 1.0 for an integer, is found too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from zarr.dtype import ZDType, data_type_registry

from zarr_bytes.chunk.layout import has_fixed_size, layout_of
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.codec_chain import BYTES_CODECS, Kind, inner_chains, kind_of, name_of
from zarr_bytes.commands.text import brief, in_digits
from zarr_bytes.data_type.fill_value import raw_to_json
from zarr_bytes.data_type.number_formats import INTEGERS
from zarr_bytes.data_type.raw import RawBits

__all__ = ["LARGEST_ELEMENT", "Finding", "array_findings", "data_type_of"]

LARGEST_ELEMENT: Final = 2**26
"""Size in bytes of the largest element whose fill value is read; zarr makes copies of it."""

_REQUIRED: Final = (
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
)
_OPTIONAL: Final = ("attributes", "storage_transformers", "dimension_names")
_MIGRATE_ADDS: Final = "; zarr-bytes migrate adds bytes"
_ENDIAN: Final = '"configuration": {"endian": "little"} or {"endian": "big"}'
_ORDER: Final[tuple[Kind, ...]] = ("array -> array", "array -> bytes", "bytes -> bytes")


@dataclass(frozen=True)
class Finding:
    """Something that does not conform, with what would.

    Attributes
    ----------
    subject : str
        What it is about: a member of the metadata document, or a chunk's key.
    found, permitted : str
        What is there, and what would conform.
    is_note : bool
        Whether it is worth knowing, but permitted.
    """

    subject: str
    found: str
    permitted: str = ""
    is_note: bool = False


def array_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """What in the metadata document of an array does not conform.

    Parameters
    ----------
    document : mapping
        The parsed JSON, with `float` for every number that has a fraction or an exponent.

    Examples
    --------
    >>> [f.subject for f in array_findings({"zarr_format": 3, "node_type": "array"})][:2]
    ['shape', 'data_type']
    """
    for name in _REQUIRED:
        if name not in document:
            hint = _MIGRATE_ADDS if name == "codecs" else ""
            yield Finding(name, "missing", f"required{hint}")
    if document.get("zarr_format", 3) != 3:
        yield Finding("zarr_format", brief(document["zarr_format"]), "3")
    for name, value in document.items():
        may_be_ignored = isinstance(value, Mapping) and value.get("must_understand") is False
        if name not in (*_REQUIRED, *_OPTIONAL) and not may_be_ignored:
            yield Finding(name, brief(value), 'unknown: only with "must_understand": false')
    yield from _grid_findings(document.get("chunk_grid"))
    try:
        data_type = data_type_of(document)
        dtype = data_type.to_native_dtype()
    except (ArithmeticError, ImportError, KeyError, TypeError, ValueError) as error:
        dtype = None
        if "data_type" in document:
            yield Finding("data_type", brief(document["data_type"]), str(error))
    if dtype is not None and "fill_value" in document:
        yield from _fill_value_findings(document["fill_value"], data_type, dtype)
    if "codecs" in document:
        yield from _chain_findings(document["codecs"], dtype, "codecs")


def _grid_findings(grid: object) -> Iterator[Finding]:
    if not isinstance(grid, Mapping) or grid.get("name") != "regular":
        return
    configuration = grid.get("configuration")
    chunk_shape = configuration.get("chunk_shape") if isinstance(configuration, Mapping) else None
    if isinstance(chunk_shape, list) and 0 in chunk_shape:  # zarr opens it
        yield Finding("chunk_grid", brief(chunk_shape), "integers from 1 on")


def data_type_of(document: Mapping[str, Any]) -> ZDType[Any, Any]:
    """The data type that a document names.

    Raises
    ------
    ValueError or TypeError
        If no package here knows it.
    MissingPackageError
        If it needs a package that is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of names that are not standardised
        return data_type_registry.match_json(document["data_type"], zarr_format=3)


def _fill_value_findings(
    value: Any, data_type: ZDType[Any, Any], dtype: np.dtype[Any]
) -> Iterator[Finding]:
    if dtype.itemsize > LARGEST_ELEMENT:
        found = f"not checked: an element is {in_digits(dtype.itemsize)} bytes"
        yield Finding("fill_value", found, is_note=True)
        return
    try:
        data_type.cast_scalar(data_type.from_json_scalar(value, zarr_format=3))
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        yield _refused("fill_value", value, error)
        return
    if isinstance(value, float) and (dtype.kind in "iu" or dtype.name in INTEGERS):
        yield Finding("fill_value", brief(value), f"no fraction or exponent: {value:.0f}")
    if isinstance(value, str) and isinstance(data_type, RawBits):
        integers = raw_to_json(data_type.from_json_scalar(value, zarr_format=3))
        yield Finding("fill_value", brief(value), f"an array of integers: {brief(integers)}")


def _chain_findings(codecs: object, dtype: np.dtype[Any] | None, where: str) -> Iterator[Finding]:
    if not isinstance(codecs, list):
        yield Finding(where, brief(codecs), "an array of codec objects")
        return
    for i, codec in enumerate(codecs):
        yield from _codec_findings(codec, dtype, f"{where}[{i}]")
    kinds = [kind_of(name_of(codec) or "") for codec in codecs]
    if None in kinds:
        return
    count = kinds.count("array -> bytes")
    if count == 0:
        yield Finding(where, "no array -> bytes codec", f"one{_MIGRATE_ADDS}")
    elif count > 1:
        yield Finding(where, f"{count} array -> bytes codecs", "one")
    elif kinds != sorted(kinds, key=_ORDER.index):
        names = ", ".join(str(name_of(codec)) for codec in codecs)
        yield Finding(where, f"the order {names}", ", then ".join(_ORDER))


def _codec_findings(codec: object, dtype: np.dtype[Any] | None, subject: str) -> Iterator[Finding]:
    name = name_of(codec)
    if name is None:
        yield Finding(subject, brief(codec), 'a codec object: {"name": ...}')
        return
    if isinstance(codec, Mapping):
        for key in sorted(codec.keys() - {"name", "configuration", "must_understand"}):
            yield Finding(subject, f"unknown member {brief(key)}", '"name" and "configuration"')
    if name in BYTES_CODECS:
        yield from _bytes_findings(codec, name, dtype, subject)
    elif kind_of(name) is None:
        yield Finding(subject, f"unknown codec {brief(name)}", "a codec that is installed here")
    for member, chain in inner_chains(codec).items():
        inner = np.dtype("u8") if member == "index_codecs" else dtype
        yield from _chain_findings(chain, inner, f"{subject}.{member}")


def _bytes_findings(
    codec: object, name: str, dtype: np.dtype[Any] | None, subject: str
) -> Iterator[Finding]:
    if name == "endian":
        yield Finding(subject, '"name": "endian"', '"name": "bytes"; zarr-bytes migrate writes it')
    members = dict(codec) if isinstance(codec, Mapping) else {}
    try:
        BytesCodec.from_dict({**members, "name": "bytes"})
    except ValueError as error:
        yield _refused(subject, members.get("configuration"), error)
        return
    configuration = members.get("configuration", {})
    endian = configuration.get("endian")
    if endian is None and "endian" in configuration:
        yield Finding(subject, '"endian": null', _ENDIAN)
    elif dtype is None:
        return
    elif not has_fixed_size(dtype):
        yield Finding(subject, f"elements of {dtype} have no fixed size", "another codec")
    elif endian is None and (name == "endian" or layout_of(dtype).has_byte_order):
        yield Finding(subject, f"no endian, and {dtype} needs a byte order", _ENDIAN)


def _refused(subject: str, value: object, error: Exception) -> Finding:
    """Finding from an error whose message gives what is permitted, or else gives it whole."""
    text = str(error)
    for separator in (": permitted is ", "; permitted are ", "; it must be "):
        if separator in text:
            permitted = text.partition(separator)[2].partition(". ")[0].rstrip(".")
            return Finding(subject, brief(value), permitted)
    return Finding(subject, brief(value), text)
