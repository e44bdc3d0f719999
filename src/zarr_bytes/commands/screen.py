"""Texts and tables, as plain text here, and by `rich` on a terminal where it is installed.

Whatever comes from a store goes through `printable`, and none of it is taken for markup.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.text import cut, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Cell",
    "Line",
    "Part",
    "Table",
    "and_more",
    "has_rich",
    "line",
    "path_cell",
    "plain",
    "print_parts",
    "shown",
]

_LONGEST: Final = 400  # characters of one cell


@dataclass(frozen=True)
class Cell:
    """A text and its style; a path is broken behind ``/``, ``.`` or ``,`` where it must be."""

    text: str
    style: str = ""
    is_path: bool = False


@dataclass(frozen=True)
class Line:
    """Texts beside each other, on one line where it `is_whole`, such as a command to be copied."""

    cells: tuple[Cell, ...]
    indent: int = 0
    is_whole: bool = False


@dataclass
class Table:
    """Rows below the names of their columns."""

    columns: tuple[Cell, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)


Part = Line | Table


def line(*texts: str | tuple[str, str], indent: int = 0, is_whole: bool = False) -> Line:
    """A line of texts, each perhaps with its style."""
    pairs = [(text, "") if isinstance(text, str) else text for text in texts]
    return Line(tuple(Cell(printable(text), style) for text, style in pairs), indent, is_whole)


def shown(text: str, style: str = "") -> Cell:
    """`text` as it can be shown, cut."""
    return Cell(printable(cut(text, _LONGEST)), style)


def path_cell(path: str) -> Cell:
    """A path or the like as it can be shown, cut."""
    return Cell(printable(cut(path, _LONGEST)), is_path=True)


def and_more(count: int, advice: str = "") -> Iterator[Line]:
    """A line that says how many were left out, if any were."""
    if count > 0:
        yield line((f"... and {count:,} more{advice}", "dim"))


def plain(parts: Iterable[Part]) -> str:
    """`parts` as text, each table as wide as it must be.

    Examples
    --------
    >>> print(plain([line("Two:"), Table((shown("A"), shown("B")), [(shown("1"), shown("x y"))])]))
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


def has_rich() -> bool:
    """Whether the package `rich` is installed, which the extra `cli` brings."""
    try:
        import rich as rich
    except ModuleNotFoundError as error:
        if error.name != "rich":
            raise
        return False
    return True


def print_parts(verdict: Line, parts: Iterable[Part]) -> None:
    """Print `parts` below the verdict, and it once more where they push it off the screen."""
    if has_rich():
        from zarr_bytes.commands import rich_screen

        rich_screen.print_parts(verdict, parts)
        return
    text = plain([verdict, *parts])
    if text.count("\n") + 3 > shutil.get_terminal_size().lines:  # and the prompt
        text += "\n\n" + plain([verdict])
    sys.stdout.write(text + "\n")
