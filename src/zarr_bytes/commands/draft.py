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


class Place(NamedTuple):
    """A value in a text, from its beginning to its end."""

    text: str
    start: int
    stop: int

    @property
    def value(self) -> Any:
        """The value."""
        return json.loads(self.text[self.start : self.stop])

    def parts(self) -> dict[str, Place]:
        """The values in an object or array, by name or number; the last one of a doubled name."""
        text, found = self.text, dict[str, Place]()
        is_object, i = text[self.start] == "{", _skip(text, self.start + 1)
        while text[i] not in "]}":
            name = str(len(found))
            if is_object:
                name, i = _DECODER.raw_decode(text, i)
                i = _skip(text, _skip(text, i) + 1)  # over the colon
            _, stop = _DECODER.raw_decode(text, i)
            found[name] = Place(text, i, stop)
            i = _skip(text, stop)
            i = _skip(text, i + 1) if text[i] == "," else i
        return found

    def at(self, *names: str) -> Place:
        """The value at nested `names`."""
        place = self
        for name in names:
            place = place.parts()[name]
        return place


class Edit(NamedTuple):
    """The replacement of a part of a text, and the change in words."""

    start: int
    stop: int
    replacement: str
    step: str


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
    found = list(_document_edits(Place(text, _skip(text, 0), len(text)), "", skip))
    pieces, end = [], 0
    for edit in sorted(found):
        pieces += [text[end : edit.start], edit.replacement]
        end = edit.stop
    return "".join([*pieces, text[end:]]), [edit.step for edit in found]


def _document_edits(place: Place, where: str, skip: Container[str]) -> Iterator[Edit]:
    document = {name: part.value for name, part in place.parts().items()}
    if document.get("node_type") == "array":
        if "codecs" in document:
            yield from _chain_edits(place.at("codecs"), f"{where}codecs")
        else:
            yield _insert_chain(place, f"{where}codecs: {_ADDED}")
    elif copies := consolidated(document):
        for path, copy in place.at("consolidated_metadata", "metadata").parts().items():
            if path not in skip and isinstance(copies[path], Mapping):
                yield from _document_edits(copy, f"{path}: ", skip)


def _chain_edits(chain: Place, where: str) -> Iterator[Edit]:
    codecs = chain.value
    if not isinstance(codecs, list):
        return  # not the draft form either; `check` reports it
    for i, (codec, place) in enumerate(zip(codecs, chain.parts().values(), strict=True)):
        if name_of(codec) == "endian" and isinstance(codec, Mapping):
            _, start, stop = place.at("name")
            yield Edit(start, stop, '"bytes"', f"{where}[{i}]: endian becomes bytes")
        for member in inner_chains(codec):
            yield from _chain_edits(place.at("configuration", member), f"{where}[{i}].{member}")
    kinds = list(map(kind_of, codecs))
    if "array -> bytes" in kinds:
        return
    if None in kinds:
        unknown = name_of(codecs[kinds.index(None)])
        raise MigrationError(f"{where}: the codec {unknown!r} is not known here; install it first")
    yield _insert_codec(chain, kinds.count("array -> array"), f"{where}: {_ADDED}")


def _insert_codec(chain: Place, index: int, step: str) -> Edit:
    """The insertion of `bytes` into a chain, on its own lines if the other codecs have theirs."""
    text, places = chain.text, list(chain.parts().values())
    if not places:
        rendered = _rendered([_LITTLE], text, _line_indent(text, chain.start))
        return Edit(chain.start, chain.stop, rendered, step)
    first = places[0].start
    comma, colon = _separators(text)
    if text[max(first - _WIDEST, 0) : first].rstrip(" \t").endswith("\n"):
        indent = _line_indent(text, first)
        rendered, comma = _rendered(_LITTLE, text, indent), f",\n{indent}"
    else:
        rendered = json.dumps(_LITTLE, separators=(comma, colon))
    if index < len(places):
        return Edit(places[index].start, places[index].start, rendered + comma, step)
    return Edit(places[-1].stop, places[-1].stop, comma + rendered, step)


def _insert_chain(document: Place, step: str) -> Edit:
    """The insertion of the member `codecs` at the end of a document, which is not empty."""
    text, last = document.text, list(document.parts().values())[-1]
    indent = _line_indent(text, last.start)
    comma, colon = _separators(text)
    comma = f",\n{indent}" if _INDENT.match(text) else comma
    chain = f'{comma}"codecs"{colon}{_rendered([_LITTLE], text, indent)}'
    return Edit(last.stop, last.stop, chain, step)


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
