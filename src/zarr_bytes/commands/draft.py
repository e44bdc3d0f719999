"""Metadata in today's form, from the draft form: `endian` to `bytes`, and `bytes` for no codec.

Specification: endian codec 1.0. The codecs `endian` and `bytes` have one configuration, and a chain
without either has little-endian elements. Data types of single bytes keep the `endian` that the
draft requires, and that today's specification permits.

Values in the text are replaced, and every other byte is kept. Parsing and serializing the document
would lose the spelling of numbers, doubled members and the indentation. Every text here is known to
be JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zarr_bytes.commands.conformance import inner_chains, kind_of, name_of
from zarr_bytes.commands.hierarchy import consolidated
from zarr_bytes.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

__all__ = ["migrated"]

_LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}
_ADDED: Final = "bytes added, little-endian as the draft had it"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INDENT: Final = re.compile(r"\s*\{\r?\n([ \t]+)")
# An edit of a text of many megabytes must not search more than its surroundings.
_WIDEST: Final = 10_000  # characters of indentation
_BEGINNING: Final = 10_000  # characters that show how a text is spaced
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)  # for the ends of values


class Span(NamedTuple):
    """The beginning and end of a value in a text."""

    start: int
    stop: int


class Edit(NamedTuple):
    """The replacement of a span of a text."""

    span: Span
    replacement: str


def migrated(text: str, skip: Container[str] = ()) -> tuple[str, list[str]]:
    """Today's form of a metadata document, and the changes in words.

    In a group, the copies of arrays in its consolidated metadata are changed, except those of paths
    in `skip`.

    Raises
    ------
    MigrationError
        If an unknown codec may be the one from array to bytes.

    Examples
    --------
    >>> migrated('{"node_type": "array", "codecs": []}')[1]
    ['codecs: bytes added, little-endian as the draft had it']
    """
    found = list(_document_edits(text, 0, "", skip))
    pieces, end = [], 0
    for (start, stop), replacement in sorted(edit for edit, _ in found):
        pieces += [text[end:start], replacement]
        end = stop
    return "".join([*pieces, text[end:]]), [step for _, step in found]


def _document_edits(
    text: str, start: int, where: str, skip: Container[str]
) -> Iterator[tuple[Edit, str]]:
    spans = members(text, start)
    document = {name: value(text, span) for name, span in spans.items()}
    if document.get("node_type") == "array":
        if "codecs" in document:
            yield from _chain_edits(text, spans["codecs"], f"{where}codecs")
        else:
            yield _insert_member(text, start, "codecs", [_LITTLE]), f"{where}codecs: {_ADDED}"
    elif copies := consolidated(document):
        metadata = members(text, spans["consolidated_metadata"].start)["metadata"]
        for path, span in members(text, metadata.start).items():
            if path not in skip and isinstance(copies[path], Mapping):
                yield from _document_edits(text, span.start, f"{path}: ", skip)


def _chain_edits(text: str, span: Span, where: str) -> Iterator[tuple[Edit, str]]:
    codecs = value(text, span)
    if not isinstance(codecs, list):
        return  # not the draft form either; `check` reports it
    for i, (codec, place) in enumerate(zip(codecs, items(text, span.start), strict=True)):
        if name_of(codec) == "endian" and isinstance(codec, Mapping):
            name = members(text, place.start)["name"]
            yield Edit(name, '"bytes"'), f"{where}[{i}]: endian becomes bytes"
        for member in inner_chains(codec):
            configuration = members(text, place.start)["configuration"]
            chain = members(text, configuration.start)[member]
            yield from _chain_edits(text, chain, f"{where}[{i}].{member}")
    kinds = list(map(kind_of, codecs))
    if "array -> bytes" in kinds:
        return
    if None in kinds:
        unknown = name_of(codecs[kinds.index(None)])
        raise MigrationError(f"{where}: the codec {unknown!r} is not known here; install it first")
    yield _insert_item(text, span, kinds.count("array -> array"), _LITTLE), f"{where}: {_ADDED}"


def value(text: str, span: Span) -> Any:
    """The value at `span`."""
    return json.loads(text[span.start : span.stop])


def members(text: str, start: int = 0) -> dict[str, Span]:
    """Spans of the values of the object at `start`, by name; the last one of a doubled name."""
    return dict(_parts(text, start))


def items(text: str, start: int) -> list[Span]:
    """Spans of the items of the array that begins at `start`."""
    return [span for _, span in _parts(text, start)]


def _parts(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """Names and spans of the values in the object or array at `start`; no names in an array."""
    start = _skip(text, start)
    is_object, i = text[start] == "{", _skip(text, start + 1)
    while text[i] not in "]}":
        name = ""
        if is_object:
            name, i = _DECODER.raw_decode(text, i)
            i = _skip(text, _skip(text, i) + 1)  # over the colon
        _, stop = _DECODER.raw_decode(text, i)
        yield name, Span(i, stop)
        i = _skip(text, stop)
        i = _skip(text, i + 1) if text[i] == "," else i


def _insert_item(text: str, array: Span, index: int, item: object) -> Edit:
    """The insertion of `item` into an array, on its own lines if the other items have theirs."""
    spans = items(text, array.start)
    if not spans:
        return Edit(array, _rendered([item], text, _line_indent(text, array.start)))
    first = spans[0].start
    comma, colon = _separators(text)
    if text[max(first - _WIDEST, 0) : first].rstrip(" \t").endswith("\n"):
        indent = _line_indent(text, first)
        rendered, comma = _rendered(item, text, indent), f",\n{indent}"
    else:
        rendered = json.dumps(item, separators=(comma, colon))
    if index < len(spans):
        return Edit(Span(spans[index].start, spans[index].start), rendered + comma)
    return Edit(Span(spans[-1].stop, spans[-1].stop), comma + rendered)


def _insert_member(text: str, start: int, name: str, member: object) -> Edit:
    """The insertion of a member at the end of the object at `start`, which is not empty."""
    last = list(members(text, start).values())[-1]
    indent = _line_indent(text, last.start)
    comma, colon = _separators(text)
    comma = f",\n{indent}" if _INDENT.match(text) else comma
    inserted = f"{comma}{json.dumps(name)}{colon}{_rendered(member, text, indent)}"
    return Edit(Span(last.stop, last.stop), inserted)


def _skip(text: str, i: int) -> int:
    space = _SPACE.match(text, i)
    return space.end() if space else i


def _line_indent(text: str, i: int) -> str:
    line = text[max(i - _WIDEST, 0) : i].rpartition("\n")[2]
    return line[: len(line) - len(line.lstrip())]


def _separators(text: str) -> tuple[str, str]:
    return (", ", ": ") if '": ' in text[:_BEGINNING] else (",", ":")


def _rendered(new: object, text: str, indent: str) -> str:
    """`new` in the style of `text`: on one line, or indented further than `indent`."""
    step = _INDENT.match(text)
    if step is None:
        return json.dumps(new, separators=_separators(text))
    return json.dumps(new, indent=step[1]).replace("\n", f"\n{indent}")
