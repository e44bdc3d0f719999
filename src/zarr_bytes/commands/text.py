"""Names and values of a store as text: without control characters, cut, and as strict JSON.

The names and documents of a store may have any content. Terminals interpret some characters, and
Python fails for numbers of many digits and for deep values; the texts of this module have neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from difflib import unified_diff
from math import isfinite, log10
from typing import Any, Final

from zarr_bytes.settings import UNITS

__all__ = [
    "as_json",
    "brief",
    "class_path",
    "cut",
    "difference",
    "in_digits",
    "in_units",
    "nested",
    "number",
    "printable",
]

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_ENCODER: Final = json.JSONEncoder(default=str)
_LARGEST_DIFFERENCE: Final = 2**20  # bytes of a text that is compared
_DEEPEST: Final = 50  # levels of a value in JSON output; deeper values are text
_LONGEST_INTEGER: Final = 4000  # bits; Python prints and reads 4,300 digits, which is more


def printable(text: str) -> str:
    r"""`text` with escapes for the characters that a terminal interprets or cannot show.

    These are C0, DEL, C1, the bidirectional overrides and isolates, and lone surrogates, which
    stand for the bytes of file names that are not UTF-8.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, longest: int) -> str:
    """`text`, or its beginning and end if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    head = (longest - 5) // 2
    return f"{text[:head]} ... {text[len(text) - (longest - 5 - head) :]}"


def brief(value: object, longest: int = 80) -> str:
    """`value` as JSON, cut after `longest` characters; the rest is not even made.

    Examples
    --------
    >>> brief([1, "a"])
    '[1, "a"]'
    """
    text = ""
    for piece in _ENCODER.iterencode(value):  # lazy, so that no depth is too deep
        text += piece
        if len(text) > longest:
            return text[: longest - 4] + " ..."
    return text


def nested(value: object, *names: str, default: object = None) -> Any:
    """The value at nested `names`, or `default` if there is none.

    Examples
    --------
    >>> nested({"a": {"b": 1}}, "a", "b"), nested({"a": 1}, "a", "b")
    (1, None)
    """
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return value


def in_digits(number: int) -> str:
    """`number` with separators of thousands, or its magnitude if it has very many digits.

    Examples
    --------
    >>> in_digits(10**6), in_digits(-(10**5000))
    ('1,000,000', 'about -10^5000')
    """
    if abs(number) < 10**18:
        return f"{number:,}"
    return f"about {'-' * (number < 0)}10^{log10(abs(number)):.0f}"


def in_units(nbytes: int) -> str:
    """A size in its largest whole unit.

    Examples
    --------
    >>> in_units(2**15), in_units(1000)
    ('32 KiB', '1,000 bytes')
    """
    units = [unit for unit, size in UNITS.items() if nbytes % size == 0]
    unit = units[-1] if nbytes else units[0]
    return f"{in_digits(nbytes // UNITS[unit])} {unit}"


def number(count: int, noun: str) -> str:
    """`count` things in words."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def class_path(class_: type) -> str:
    """A class as it is named in zarr's configuration."""
    return f"{class_.__module__}.{class_.__qualname__}"


def difference(old: bytes, new: bytes) -> list[str]:
    """The lines that differ between two JSON texts, with ``+`` and ``-``, and a few around them.

    A text on one line is indented first. Lines left out are ``...``. Of long texts there are none.
    """
    if len(old) > _LARGEST_DIFFERENCE:
        return []
    texts = [text.decode(errors="surrogateescape") for text in (old, new)]
    if texts[0].count("\n") < 2:
        texts = [_indented(text) for text in texts]
    before, after = (text.split("\n") for text in texts)
    # Without the three lines of the header.
    lines = list(unified_diff(before, after, lineterm="", n=2))[3:]
    return ["..." if line.startswith("@@") else line.removesuffix("\r") for line in lines]


def _indented(text: str) -> str:
    """A JSON text on many lines, with the spelling of every value, at any depth.

    Examples
    --------
    >>> print(_indented('{"a": [1.50]}'))
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


def as_json(document: object) -> str:
    """`document` as a strict JSON text in ASCII: NaN and infinities are strings.

    Instances of dataclasses are objects, without a copy of their values, however deep those are.
    """
    return json.dumps(_permitted(document, 0), indent=2, allow_nan=False)


def _permitted(value: object, depth: int) -> object:
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if value.bit_length() <= _LONGEST_INTEGER else in_digits(value)
        case float():
            return value if isfinite(value) else json.dumps(value)  # NaN, Infinity, -Infinity
        case dict() | list() | tuple() if depth == _DEEPEST:
            return brief(value)
        case dict():
            return {str(name): _permitted(member, depth + 1) for name, member in value.items()}
        case list() | tuple():
            return [_permitted(item, depth + 1) for item in value]
    if is_dataclass(value):
        return _permitted(vars(value), depth)
    return str(value)
