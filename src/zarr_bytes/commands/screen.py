"""Lines and tables, and their form as plain text and HTML.

All texts go through `printable`, and none is read as markup.
"""

from __future__ import annotations

from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from zarr_bytes.commands.text import cut, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized

__all__ = [
    "PATH",
    "Cell",
    "Line",
    "Part",
    "Table",
    "Text",
    "and_more",
    "first_rows",
    "has_rich",
    "html",
    "plain",
    "verdict",
]

PATH: Final = "path"
"""The style of a path, which may be broken after ``/``, ``.`` or ``,``."""

_LONGEST: Final = 400  # characters of one cell

Text: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style."""


class Cell(NamedTuple):
    """A printable text, and its style."""

    text: str
    style: str


def _cells(texts: Iterable[Text], *, is_cut: bool = True) -> list[Cell]:
    pairs = ((text, "") if isinstance(text, str) else text for text in texts)
    return [Cell(printable(cut(t, _LONGEST) if is_cut else t), style) for t, style in pairs]


class Line:
    """Texts on one line, which may be cut if long, or kept whole for copying."""

    def __init__(
        self, *texts: Text, indent: int = 0, is_whole: bool = False, is_cut: bool = False
    ) -> None:
        self.cells = _cells(texts, is_cut=is_cut)
        self.indent, self.is_whole = indent, is_whole


class Table:
    """Rows below the names of their columns, all texts cut."""

    def __init__(self, columns: Iterable[Text], rows: Iterable[Iterable[Text]]) -> None:
        self.columns, *self.rows = map(_cells, (columns, *rows))


Part: TypeAlias = Line | Table


def verdict(text: str, colour: str, *things: Text) -> Line:
    """The first line of a result: its verdict, and the things that it is for."""
    return Line((f"{text}: ", f"bold {colour}"), *things)


def first_rows(
    columns: Iterable[Text], rows: Sequence[Iterable[Text]], most: int, advice: str = ""
) -> Iterator[Part]:
    """A table of the first rows, below an empty line, and the number of the others."""
    yield from (Line(), Table(columns, rows[:most]))
    yield from and_more(rows, most, advice)


def and_more(things: Sized, shown: int, advice: str = "") -> Iterator[Line]:
    """A line with the number of things left out, if any."""
    if len(things) > shown:
        yield Line((f"... and {len(things) - shown:,} more{advice}", "dim"))


def plain(parts: Iterable[Part]) -> str:
    """Lines and tables as plain text, with tables as wide as their texts.

    Examples
    --------
    >>> print(plain([Line("Two:"), Table("AB", [("1", "x y")])]))
    Two:
    A   B
    -------
    1   x y
    """
    return "\n".join(text for part in parts for text in _plain_lines(part))


def _plain_lines(part: Part) -> Iterator[str]:
    if isinstance(part, Line):
        yield " " * part.indent + "".join(cell.text for cell in part.cells)
        return
    rows = [[cell.text for cell in row] for row in (part.columns, *part.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    yield from (lines[0], "-" * max(map(len, lines)), *lines[1:])


def html(parts: Iterable[Part]) -> str:
    """Lines and tables as HTML.

    Examples
    --------
    >>> html([Line(("Two", "bold"), " < 3")])
    '<div><b>Two</b> &lt; 3</div>'
    """
    return "".join(map(_html_of, parts))


def _html_of(part: Part) -> str:
    if isinstance(part, Line):
        return f"<div>{''.join(map(_html_cell, part.cells))}</div>"
    head = "".join(f"<th>{_html_cell(cell)}</th>" for cell in part.columns)
    rows = ("".join(f"<td>{_html_cell(cell)}</td>" for cell in row) for row in part.rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _html_cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"<b>{text}</b>" if cell.style.startswith("bold") else text


def has_rich() -> bool:
    """Whether the package `rich` is installed, which the extra `cli` brings."""
    return find_spec("rich") is not None
