"""Where the values of a JSON text stand, so that one is changed and every other byte is kept.

Reading and writing a document would lose what Python does not hold: the spelling of numbers, the
order of doubled members, the indentation. The texts are known to be JSON when they come here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Edit",
    "Span",
    "apply",
    "indented",
    "insert_item",
    "insert_member",
    "items",
    "members",
    "value",
]

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INDENT: Final = re.compile(r"\s*\{\r?\n([ \t]+)")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
# Of a text of many megabytes, an edit is not to look at more than what is near it.
_WIDEST: Final = 10_000  # characters of indentation
_BEGINNING: Final = 10_000  # characters that show how a text is spaced
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)  # only the end is asked for


class Span(NamedTuple):
    """Where a value begins and ends in a text."""

    start: int
    stop: int


class Edit(NamedTuple):
    """What is to stand instead of a span of a text."""

    span: Span
    replacement: str


def value(text: str, span: Span) -> Any:
    """The value at `span`."""
    return json.loads(text[span.start : span.stop])


def members(text: str, start: int = 0) -> dict[str, Span]:
    """Spans of the values of the object that begins at `start`, by name; the last of a name."""
    return dict(_parts(text, start))


def items(text: str, start: int) -> list[Span]:
    """Spans of the items of the array that begins at `start`."""
    return [span for _, span in _parts(text, start)]


def _parts(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """Names, empty in an array, and spans of what is in the object or array at `start`."""
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


def insert_item(text: str, array: Span, index: int, item: object) -> Edit:
    """Insert `item` into an array, on lines of its own where the others have theirs."""
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


def insert_member(text: str, start: int, name: str, member: object) -> Edit:
    """Insert a member behind the last of the object that begins at `start`, which has some."""
    last = list(members(text, start).values())[-1]
    indent = _line_indent(text, last.start)
    comma, colon = _separators(text)
    comma = f",\n{indent}" if _INDENT.match(text) else comma
    inserted = f"{comma}{json.dumps(name)}{colon}{_rendered(member, text, indent)}"
    return Edit(Span(last.stop, last.stop), inserted)


def apply(text: str, edits: list[Edit]) -> str:
    """`text` with all `edits`, whose spans do not overlap."""
    pieces, end = [], 0
    for (start, stop), replacement in sorted(edits, key=lambda edit: edit.span):
        pieces += [text[end:start], replacement]
        end = stop
    return "".join([*pieces, text[end:]])


def indented(text: str) -> str:
    """`text` on many lines, with every value as it is spelled, however deep.

    Examples
    --------
    >>> print(indented('{"a": [1.50]}'))
    {
      "a": [
        1.50
      ]
    }
    """
    pieces: list[str] = []
    depth = 0
    for part in _TOKEN.findall(text):
        if part in ("]", "}"):
            depth -= 1
            pieces.append("" if pieces[-1] in ("[", "{") else _line(depth))
        elif pieces and pieces[-1] in ("[", "{", ","):
            pieces.append(_line(depth))
        depth += part in ("[", "{")
        pieces.append(": " if part == ":" else part)
    return "".join(pieces)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, 100)  # or deep texts would be mostly spaces


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
