"""Results of commands: plain data that prints as lines and tables, and as JSON.

What a result shows are parts: first its verdict as a line, then further lines and tables. `rich`,
where it is installed, gives them colours and the width of the terminal. All texts are escaped here,
so a name from a store cannot act on the terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from itertools import islice, starmap
from math import log10
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LONGEST: Final = 400  # characters of a cell
_UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ENCODER: Final = json.JSONEncoder(default=str)

Cell: TypeAlias = str | int | tuple[str | int, str]
"""A value, or a value and its style in the words of `rich`."""
Line: TypeAlias = tuple[Cell, ...]
"""Cells side by side; a sentence, with its full stop, is broken between words."""


@dataclass(frozen=True)
class Table:
    """Rows below the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def texts(self) -> list[list[tuple[str, str]]]:
        """The texts of the names and of all cells, with their styles."""
        return [[_text(cell, _LONGEST) for cell in row] for row in (self.columns, *self.rows)]


OutputPart: TypeAlias = Line | Table


def first_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], most: int, advice: str = ""
) -> Iterator[OutputPart]:
    """A table of the first rows, and a line about the others, if there are any."""
    yield Table(columns, rows[:most])
    if len(rows) > most:
        yield (f"... and {len(rows) - most:,} more{advice}",)


class Result:
    """A result that prints as the lines and tables of its command."""

    def _parts(self, *, in_full: bool = False) -> Iterator[OutputPart]:
        """The verdict as one line, then the parts below it; every detail if `in_full`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(map(_plain, self._parts()))


@dataclass(frozen=True)
class Progress:
    """The progress of a command: nodes done and found so far, and chunks of the current array."""

    path: str
    nodes_done: int
    nodes_found: int
    chunks_done: int = 0
    chunks: int = 0


Callback: TypeAlias = "Callable[[Progress], None]"
"""What a command calls with its progress."""


def verdict(text: str, colour: str, *things: Cell) -> Line:
    """The first line of a result: its verdict, and the things that it is for."""
    return (f"{text}: ", f"bold {colour}"), *things


def screen(result: Result, *, in_full: bool = False) -> str:
    """A result as text for standard output; its verdict again at the end of more than a screen."""
    parts = [*result._parts(in_full=in_full)]
    shown = [*map(_coloured if is_package("rich") else _plain, parts)]
    text = "\n".join(shown)
    if text.count("\n") + 3 > shutil.get_terminal_size().lines:  # and the prompt
        text += f"\n\n{shown[0]}"
    return text


def is_package(name: str) -> bool:
    """Whether a package is installed, and not only a folder of its name there."""
    return getattr(find_spec(name), "origin", None) is not None


def _plain(part: OutputPart) -> str:
    """A part as text, a table below an empty line."""
    if isinstance(part, tuple):
        return "".join([_text(cell)[0] for cell in part]).rstrip()
    rows = [[text for text, _ in row] for row in part.texts()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    rule = "-" * (sum(widths) + 3 * len(widths) - 3)
    return "\n".join(["", lines[0], rule, *lines[1:]])


def _coloured(part: OutputPart) -> str:
    """A part as text for this terminal, by `rich`; sentences are broken between words."""
    from rich import box, table
    from rich.console import Console
    from rich.text import Text

    console = Console(width=Console().width or 80)  # none where COLUMNS is 0
    with console.capture() as captured:
        if isinstance(part, tuple):
            line = Text.assemble(*map(_text, part))
            console.print(line, soft_wrap=not line.plain.endswith("."))
        else:
            names, *rows = part.texts()
            columns = [table.Column(Text(*name), overflow="fold") for name in names]
            shown = table.Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for row in rows:
                shown.add_row(*starmap(Text, row))
            console.print("", shown, sep="\n")
    return captured.get().removesuffix("\n")


def _text(cell: Cell, longest: int = sys.maxsize) -> tuple[str, str]:
    """The printable text of a cell, and its style."""
    value, style = cell if isinstance(cell, tuple) else (cell, "")
    return printable(
        cut(with_thousands(value) if isinstance(value, int) else value, longest)
    ), style


@contextmanager
def progress_bar() -> Iterator[Callback]:
    """A progress bar on a terminal with `rich`."""
    if not (is_package("rich") and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.BarColumn(bar_width=20),
        progress.TextColumn("{task.description}", markup=False),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(done: Progress) -> None:
            part = done.chunks_done / done.chunks if done.chunks else 0
            counts = f"{done.nodes_done:,} of {done.nodes_found:,} found"
            chunks = f"chunk {done.chunks_done:,} of {with_thousands(done.chunks)}"
            description = f"{counts}, {chunks} {cut(printable(f'/{done.path}'), 24)}"
            completed, total = done.nodes_done + part, done.nodes_found
            bar.update(task, description=description, completed=completed, total=total)

        yield show


def printable(text: str) -> str:
    """`text` with escapes for control and format characters, and for lone surrogates."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, longest: int) -> str:
    """`text`, or its beginning if it has more than `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."


def brief(value: object, longest: int = 80) -> str:
    """`value` as JSON, cut after `longest` characters; the rest is not even made."""
    pieces = _ENCODER.iterencode(value)  # lazy, so that no depth is too deep
    return cut("".join(islice(pieces, longest + 1)), longest)


def with_thousands(n: int) -> str:
    """`n` with separators of thousands, or its magnitude if it has very many digits."""
    return f"{n:,}" if abs(n) < 10**18 else f"about {'-' * (n < 0)}10^{log10(abs(n)):.0f}"


def in_binary_units(nbytes: int) -> str:
    """A size in its largest whole unit."""
    units = [unit for unit, size in _UNITS.items() if nbytes % size == 0]
    unit = units[-1] if nbytes else units[0]
    return f"{with_thousands(nbytes // _UNITS[unit])} {unit}"


def counted(count: int, noun: str) -> str:
    """`count` things in words."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def class_path(class_: type) -> str:
    """A class as it is named in zarr's configuration."""
    return f"{class_.__module__}.{class_.__qualname__}"


def as_json(document: object) -> str:
    """`document` as strict JSON in ASCII; numbers that are not JSON are text."""
    text = json.dumps(document, default=lambda x: vars(x) if is_dataclass(x) else str(x))
    return json.dumps(json.loads(text, parse_constant=str), indent=2)
