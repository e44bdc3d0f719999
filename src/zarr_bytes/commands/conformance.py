"""The conformance of an array's metadata document: codecs, byte order, data type, fill value.

Specification: bytes codec 1.0 ("Codec name", "Configuration parameters"), and data types ("Core
data types", "Permitted fill values"). A value of the stored document that does not conform is found
even if zarr or this package reads it, such as 1.0 for an integer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
from zarr.api.asynchronous import open_array
from zarr.buffer import cpu
from zarr.dtype import ZDType, data_type_registry
from zarr.registry import get_codec_class
from zarr.storage import MemoryStore

from zarr_bytes.chunk.layout import has_fixed_size, layout_of
from zarr_bytes.codec import BytesCodec
from zarr_bytes.commands.chunk_grid import are_sizes
from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.sources import DOCUMENT
from zarr_bytes.commands.text import brief, in_digits, nested
from zarr_bytes.data_type.fill_value import raw_to_json
from zarr_bytes.data_type.number_formats import INTEGERS
from zarr_bytes.data_type.raw import RawBits
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr_bytes.chunk.layout import ElementLayout
    from zarr_bytes.commands.hierarchy import Node

__all__ = [
    "LARGEST_ELEMENT",
    "array_findings",
    "element_layout",
    "encoding_finding",
    "inner_chains",
    "is_plain",
    "kind_of",
    "name_of",
    "refusal",
    "text_findings",
]

LARGEST_ELEMENT: Final = 2**26
"""Size in bytes of the largest element whose fill value is checked; zarr makes copies of it."""

Kind: TypeAlias = Literal["array -> array", "array -> bytes", "bytes -> bytes"]

_BYTES_CODECS: Final = ("bytes", "endian")
_KINDS: Final[dict[Kind, type]] = {  # in the order of a chain
    "array -> array": ArrayArrayCodec,
    "array -> bytes": ArrayBytesCodec,
    "bytes -> bytes": BytesBytesCodec,
}
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
_ENDIAN: Final = '"configuration": {"endian": "little"} or {"endian": "big"}'


def array_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings for the metadata document of an array.

    Examples
    --------
    >>> [f.subject for f in array_findings({"zarr_format": 3, "node_type": "array"})][:2]
    ['shape', 'data_type']
    """
    for name in _REQUIRED:
        if name not in document:
            adds = "adds bytes" if name == "codecs" else ""
            yield Finding(name, "missing", "required", migrate=adds)
    if document.get("zarr_format", 3) != 3:
        yield Finding("zarr_format", brief(document["zarr_format"]), "3")
    for name, value in document.items():
        may_be_ignored = isinstance(value, Mapping) and value.get("must_understand") is False
        if name not in (*_REQUIRED, *_OPTIONAL) and not may_be_ignored:
            yield Finding(name, brief(value), 'unknown: only with "must_understand": false')
    yield from _grid_findings(document)
    try:
        data_type, dtype = _data_type(document)
    except _NO_DATA_TYPE as error:
        dtype = None
        if "data_type" in document:
            yield Finding("data_type", brief(document["data_type"]), str(error))
    if dtype is not None and "fill_value" in document:
        yield from _fill_value_findings(document["fill_value"], data_type, dtype)
    if "codecs" in document:
        yield from _chain_findings(document["codecs"], dtype, "codecs")


def _grid_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    # zarr also opens a number for an array, a bool for a number, and chunks of size 0.
    shape = document.get("shape", [])
    if not are_sizes(shape, 0):
        yield Finding("shape", brief(shape), "an array of integers from 0 on")
    grid = document.get("chunk_grid")
    chunk_shape = nested(grid, "configuration", "chunk_shape")
    if nested(grid, "name") == "regular" and not are_sizes(chunk_shape, 1):
        yield Finding("chunk_grid", brief(chunk_shape), "an array of integers from 1 on")


# Raised for a data type that is unknown here, or needs a package that is not installed.
_NO_DATA_TYPE: Final = (ArithmeticError, ImportError, KeyError, TypeError, ValueError)


def _data_type(document: Mapping[str, Any]) -> tuple[ZDType[Any, Any], np.dtype[Any]]:
    with warnings.catch_warnings(action="ignore"):  # zarr warns of names that are not standardised
        data_type = data_type_registry.match_json(document["data_type"], zarr_format=3)
    return data_type, data_type.to_native_dtype()


def element_layout(document: Mapping[str, Any]) -> ElementLayout | None:
    """Layout of an element of an array; None for an unknown data type, or one of no fixed size."""
    try:
        _, dtype = _data_type(document)
        return layout_of(dtype) if has_fixed_size(dtype) else None
    except _NO_DATA_TYPE:
        return None


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
    kinds = list(map(kind_of, codecs))
    if None in kinds:
        return
    count = kinds.count("array -> bytes")
    if count == 0:
        yield Finding(where, "no array -> bytes codec", "one", migrate="adds bytes")
    elif count > 1:
        yield Finding(where, f"{count} array -> bytes codecs", "one")
    elif kinds != sorted(kinds, key=[*_KINDS, None].index):
        names = ", ".join(str(name_of(codec)) for codec in codecs)
        yield Finding(where, f"the order {names}", ", then ".join(_KINDS))


def _codec_findings(codec: object, dtype: np.dtype[Any] | None, subject: str) -> Iterator[Finding]:
    name = name_of(codec)
    if name is None:
        yield Finding(subject, brief(codec), 'a codec object: {"name": ...}')
        return
    if isinstance(codec, Mapping):
        for key in sorted(codec.keys() - {"name", "configuration", "must_understand"}):
            yield Finding(subject, f"unknown member {brief(key)}", '"name" and "configuration"')
    if name in _BYTES_CODECS:
        yield from _bytes_findings(codec, name, dtype, subject)
    elif kind_of(codec) is None:
        yield Finding(subject, f"unknown codec {brief(name)}", "a codec that is installed here")
    for member, chain in inner_chains(codec).items():
        inner = np.dtype("u8") if member == "index_codecs" else dtype
        yield from _chain_findings(chain, inner, f"{subject}.{member}")


def _bytes_findings(
    codec: object, name: str, dtype: np.dtype[Any] | None, subject: str
) -> Iterator[Finding]:
    if name == "endian":
        yield Finding(subject, '"name": "endian"', '"name": "bytes"', migrate="writes it")
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
    """Finding from an error, whose attribute or message has the permitted values."""
    return Finding(subject, brief(value), getattr(error, "permitted", "") or str(error))


def encoding_finding(node: Node) -> Finding | None:
    """Finding for an encoding that zarr reads and RFC 8259 does not permit; None for UTF-8."""
    if node.encoding == "utf-8":
        return None
    found = "a byte order mark" if node.encoding == "utf-8-sig" else node.encoding.upper()
    return Finding(DOCUMENT, f"encoded with {found}", "UTF-8 without a byte order mark")


def text_findings(node: Node) -> list[Finding]:
    """Findings for the text of a document: its encoding, and numbers that are not JSON."""
    found = [Finding(DOCUMENT, f"{c} is not JSON", f'"{c}"') for c in dict.fromkeys(node.constants)]
    encoding = encoding_finding(node)
    return found if encoding is None else [encoding, *found]


async def refusal(text: bytes, open_node: Callable[..., Any] = open_array) -> str | None:
    """Reason why zarr does not open the node of a metadata document; None if it does."""
    store = MemoryStore({DOCUMENT: cpu.Buffer.from_bytes(text)})
    try:
        with warnings.catch_warnings(action="ignore"):  # zarr reads a node that it warns of
            await open_node(store=store, mode="r", zarr_format=3)
    except Exception as error:  # noqa: BLE001 -- whatever zarr and any codec raise
        return in_words(error)
    return None


def name_of(codec: object) -> str | None:
    """Name of a codec object of a document, or of a codec given by its name alone."""
    name = codec.get("name") if isinstance(codec, Mapping) else codec
    return name if isinstance(name, str) else None


def kind_of(codec: object) -> Kind | None:
    """Kind of a codec object, by its input and output; None if no installed package knows it."""
    name = name_of(codec)
    if name is None:
        return None
    try:
        # Zarr warns of names that are not standardised.
        with warnings.catch_warnings(action="ignore"):
            found = get_codec_class(name)
    except (KeyError, ValueError, ImportError):
        return None
    return next((kind for kind, base in _KINDS.items() if issubclass(found, base)), None)


def is_plain(codecs: object) -> bool:
    """Whether a chunk of these codecs is its elements alone.

    A missing codec counts: in the draft it means little-endian elements.
    """
    if not isinstance(codecs, list):
        return codecs is None
    return len(codecs) < 2 and all(name_of(codec) in _BYTES_CODECS for codec in codecs)


def inner_chains(codec: object) -> dict[str, object]:
    """The chains within a `sharding_indexed` codec object, by the name of their member."""
    configuration = nested(codec, "configuration")
    if name_of(codec) != "sharding_indexed" or not isinstance(configuration, Mapping):
        return {}
    return {k: configuration[k] for k in ("codecs", "index_codecs") if k in configuration}
