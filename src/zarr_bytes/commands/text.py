"""Names and values of a store as text: without control characters, cut, and as strict JSON."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from math import isfinite, log10
from typing import Final

_UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ENCODER: Final = json.JSONEncoder(default=str)
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
    units = [unit for unit, size in _UNITS.items() if nbytes % size == 0]
    unit = units[-1] if nbytes else units[0]
    return f"{in_digits(nbytes // _UNITS[unit])} {unit}"


def number(count: int, noun: str) -> str:
    """`count` things in words."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def class_path(class_: type) -> str:
    """A class as it is named in zarr's configuration."""
    return f"{class_.__module__}.{class_.__qualname__}"


def as_json(document: object) -> str:
    """`document` as strict JSON in ASCII; numbers that are not JSON are text."""
    return json.dumps(_permitted(document), indent=2)


def _permitted(value: object) -> object:
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if value.bit_length() <= _LONGEST_INTEGER else in_digits(value)
        case float():
            return value if isfinite(value) else str(value)
        case dict():
            return {str(name): _permitted(member) for name, member in value.items()}
        case list() | tuple():
            return [_permitted(item) for item in value]
    return _permitted(vars(value)) if is_dataclass(value) else str(value)
