"""Results of commands: plain data that prints as lines and tables, and as JSON.

What a result shows are parts: first its verdict as a line, then further lines and tables. `rich`,
where it is installed, gives them colours and the width of the terminal. All texts are escaped here,
so a name from a store cannot act on the terminal.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from itertools import zip_longest
from math import isfinite, log10
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LONGEST: Final = 400  # characters of a cell
_NARROWEST: Final = 8  # columns of a terminal, for a column of a table
_PATIENCE: Final = 1.0  # seconds before the progress bar appears
_UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ENCODER: Final = json.JSONEncoder(default=str)
_LONGEST_INTEGER: Final = 4000  # bits; Python prints and reads 4,300 digits, which is more

Value: TypeAlias = str | int
Cell: TypeAlias = Value | tuple[Value, str]
"""A value, or a value and its style in the words of `rich`."""
Line: TypeAlias = tuple[Cell, ...]
"""Cells side by side; a line that begins with a space is to be copied, and never broken."""
_Texts: TypeAlias = "list[tuple[str, str]]"  # side by side, with their styles


@dataclass(frozen=True)
class Table:
    """Rows below the names of their columns; of more than `most`, the first, and a number."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    most: int = sys.maxsize
    advice: str = ""  # after the number of rows that are not shown


Part: TypeAlias = Line | Table


class Result:
    """A result that prints as the lines and tables of its command."""

    def _parts(self, *, in_full: bool = False) -> Iterator[Part]:
        """The verdict as one line, then the parts below it; every detail if `in_full`."""
        raise NotImplementedError

    def _document(self) -> dict[str, Any]:
        """The content of the JSON document."""
        return vars(self)

    def __repr__(self) -> str:
        return "\n".join(_plain(line) for part in self._parts() for line in _lines(part))


@dataclass(frozen=True)
class Progress:
    """The progress of a command: nodes done and found so far, and chunks of the current array."""

    path: str
    nodes_done: int
    nodes_found: int
    chunks_done: int = 0
    chunks: int = 0


def verdict(text: str, colour: str, *things: Cell) -> Line:
    """The first line of a result: its verdict, and the things that it is for."""
    return (f"{text}: ", f"bold {colour}"), *things


def screen(result: Result, *, in_full: bool = False) -> str:
    """A result as text for standard output; its verdict again at the end of more than a screen."""
    first, *others = result._parts(in_full=in_full)
    size, width, rule, console = shutil.get_terminal_size(), sys.maxsize, "-", None
    if find_spec("rich"):
        from rich.console import Console
        from rich.text import Text

        console, width = Console(), size.columns
        rule = "─" if console.encoding.startswith("utf") else rule
    lines = list(_lines(first))
    lines += [line for part in others for line in _lines(part, width, rule)]
    if len(lines) + 2 > size.lines:  # and the prompt
        lines += [[], lines[0]]
    if console is None:
        return "\n".join(map(_plain, lines))
    with console.capture() as captured:
        for line in lines:
            text = Text.assemble(*line)
            text.rstrip()
            console.print(text, soft_wrap=True)
    return captured.get().removesuffix("\n")


def _plain(line: _Texts) -> str:
    return "".join([text for text, _ in line]).rstrip()


def _text(cell: Cell, longest: int = sys.maxsize) -> tuple[str, str]:
    """The printable text of a cell, and its style."""
    value, style = cell if isinstance(cell, tuple) else (cell, "")
    return printable(cut(in_digits(value) if isinstance(value, int) else value, longest)), style


def _lines(part: Part, width: int = sys.maxsize, rule: str = "-") -> Iterator[_Texts]:
    """A part in lines of `width` columns, and a table below an empty line.

    >>> [_plain(line) for line in _lines(Table("AB", [("1", "x y")]))]
    ['', 'A   B', '-------', '1   x y']
    """
    if isinstance(part, tuple):
        texts = [_text(cell) for cell in part]
        yield from [texts] if texts[0][0].startswith(" ") else _broken(texts, width)
        return
    rows = [[_text((name, "bold"), _LONGEST) for name in part.columns]]
    rows += [[_text(cell, _LONGEST) for cell in row] for row in part.rows[: part.most]]
    widths = [max([_width(text) for text, _ in column]) for column in zip(*rows, strict=True)]
    while sum(widths) + 3 * len(widths) - 3 > width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    yield []
    for number, row in enumerate(rows):
        columns = [_broken([text], n) for text, n in zip(row, widths, strict=True)]
        for cells in zip_longest(*columns, fillvalue=list[tuple[str, str]]()):
            line: _Texts = []
            for texts, n in zip(cells, widths, strict=True):
                line += [*texts, (" " * (n + 3 - sum([_width(text) for text, _ in texts])), "")]
            yield line
        if number == 0:
            yield [(rule * (sum(widths) + 3 * len(widths) - 3), "")]
    if (rest := len(part.rows) - part.most) > 0:
        yield [(f"... and {rest:,} more{part.advice}", "dim")]


def _broken(texts: _Texts, width: int) -> Iterator[_Texts]:
    """Texts side by side, in lines of `width` columns."""
    line, left = list[tuple[str, str]](), width
    for text, style in texts:
        for piece in _pieces(text, width):
            if line and _width(piece.rstrip()) > left:
                line[-1] = line[-1][0].rstrip(), line[-1][1]
                yield line
                line, left = [], width
            line.append((piece, style))
            left -= _width(piece)
    yield line


def _pieces(text: str, width: int) -> Iterator[str]:
    """The words of a text; in pieces, as after ``/``, where a word is too long for a line."""
    for word in re.findall(r"\S+\s*|\s+", text):
        if _width(word.rstrip()) <= width:
            yield word
            continue
        for piece in re.findall(r"[^/\\.,]*[/\\.,]+\s*|[^/\\.,]+", word):
            step = max(width * len(piece) // _width(piece), 1)
            yield from (piece[i : i + step] for i in range(0, len(piece), step))


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return len(text) + sum([east_asian_width(character) in "WF" for character in text])


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar on a terminal with `rich`, for commands that take longer than a second."""
    if not (find_spec("rich") and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    text = progress.TextColumn("{task.description}", markup=False)
    bar = progress.Progress(
        progress.BarColumn(bar_width=20), text, console=Console(stderr=True), transient=True
    )
    task, started = bar.add_task("", total=None), time.monotonic()

    def show(done: Progress) -> None:
        if time.monotonic() - started < _PATIENCE:
            return
        bar.start()  # no effect after the first time
        counts, part = f"{done.nodes_done:,} of {done.nodes_found:,} found", 0.0
        if done.chunks:
            counts += f", chunk {done.chunks_done:,} of {in_digits(done.chunks)}"
            part = min(done.chunks_done / done.chunks, 1)
        description = f"{counts} {cut(printable(f'/{done.path}'), 24)}"
        completed, total = done.nodes_done + part, done.nodes_found
        bar.update(task, description=description, completed=completed, total=total)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def printable(text: str) -> str:
    r"""`text` with escapes for the characters that a terminal interprets or cannot show.

    These are C0, DEL, C1, the bidirectional overrides and isolates, and lone surrogates, which
    stand for the bytes of file names that are not UTF-8.
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
    """`value` as JSON, cut after `longest` characters; the rest is not even made."""
    text = ""
    for piece in _ENCODER.iterencode(value):  # lazy, so that no depth is too deep
        text += piece
        if len(text) > longest:
            return text[: longest - 4] + " ..."
    return text


def in_digits(number: int) -> str:
    """`number` with separators of thousands, or its magnitude if it has very many digits."""
    if abs(number) < 10**18:
        return f"{number:,}"
    return f"about {'-' * (number < 0)}10^{log10(abs(number)):.0f}"


def in_units(nbytes: int) -> str:
    """A size in its largest whole unit."""
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
