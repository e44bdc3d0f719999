"""Results of commands: plain data that prints as lines and tables, by `rich` where it is installed.

What a result shows are parts: first its verdict as a line, then further lines and tables. All texts
are escaped here, so a name from a store cannot act on the terminal.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from zarr_bytes.commands.text import cut, in_digits, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.text import Text

_LONGEST: Final = 400  # characters of a cell
_PATIENCE: Final = 1.0  # seconds before the progress bar appears

Value: TypeAlias = str | int
Cell: TypeAlias = Value | tuple[Value, str]
"""A value, or a value and its style in the words of `rich`."""
Line: TypeAlias = tuple[Cell, ...]
"""Cells side by side; a line that begins with a space is to be copied, and never broken."""


@dataclass(frozen=True)
class Table:
    """Rows below the names of their columns; of more than `most`, the first, and a number."""

    columns: Sequence[Cell]
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
        return "\n".join(map(_plain, self._parts()))


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
    show = _by_rich if _has_rich() else _plain
    first, *others = result._parts(in_full=in_full)
    text = "\n".join([show(first, is_whole=True), *map(show, others)])
    if text.count("\n") + 3 > shutil.get_terminal_size().lines:  # and the prompt
        text += "\n\n" + show(first, is_whole=True)
    return text


def _has_rich() -> bool:
    return find_spec("rich") is not None


def _text(cell: Cell, longest: int = sys.maxsize) -> tuple[str, str]:
    """The printable text of a cell, and its style."""
    value, style = cell if isinstance(cell, tuple) else (cell, "")
    return printable(cut(in_digits(value) if isinstance(value, int) else value, longest)), style


def _cells(table: Table) -> Iterator[list[tuple[str, str]]]:
    """The texts and styles of the columns' names and of each row that is shown."""
    for row in (table.columns, *table.rows[: table.most]):
        yield [_text(cell, _LONGEST) for cell in row]


def _rest(table: Table) -> Iterator[str]:
    if (rest := len(table.rows) - table.most) > 0:
        yield f"... and {rest:,} more{table.advice}"


def _plain(part: Part, *, is_whole: bool = True) -> str:
    """A part without colours, and a table as wide as its texts, below an empty line.

    Examples
    --------
    >>> print(_plain(("Two", " things:")))
    Two things:
    >>> print(_plain(Table("AB", [("1", "x y")])))
    <BLANKLINE>
    A   B
    -------
    1   x y
    """
    del is_whole  # nothing is broken here
    if isinstance(part, tuple):
        return "".join(_text(cell)[0] for cell in part)
    rows = [[text for text, _ in row] for row in _cells(part)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(["", lines[0], "-" * max(map(len, lines)), *lines[1:], *_rest(part)])


def _by_rich(part: Part, *, is_whole: bool = False) -> str:
    """A part as wide as the terminal at most, and in colours if standard output is one."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    with console.capture() as captured:
        if isinstance(part, tuple):
            text = Text.assemble(*map(_text, part))
            console.print(text, soft_wrap=is_whole or text.plain.startswith(" "))
        else:
            table = RichTable(
                box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold"
            )
            columns, *rows = _cells(part)
            for column in columns:
                table.add_column(_folded(*column), overflow="fold")
            for row in rows:
                table.add_row(*(_folded(*cell) for cell in row))
            console.print("", table, *(Text(rest, "dim") for rest in _rest(part)), sep="\n")
    return captured.get().removesuffix("\n")


class _Path:
    """A text without spaces, broken after ``/``, ``.`` or ``,`` if it does not fit on a line."""

    def __init__(self, path: str, style: str) -> None:
        self._parts, self._style = re.findall(r"[^/\\.,]*[/\\.,]+|[^/\\.,]+", path), style

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        from rich.cells import cell_len
        from rich.measure import Measurement

        widths = [cell_len(part) for part in self._parts]
        return Measurement(max(widths, default=0), sum(widths)).with_maximum(options.max_width)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.cells import cell_len
        from rich.text import Text

        line = ""
        for part in self._parts:
            if line and cell_len(line + part) > options.max_width:
                yield Text(line, self._style, overflow="fold")
                line = ""
            line += part
        yield Text(line, self._style, overflow="fold")


def _folded(text: str, style: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style) if " " in text else _Path(text, style)


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar on a terminal with `rich`, for commands that take longer than a second."""
    if not (_has_rich() and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.BarColumn(bar_width=20),
        progress.TextColumn("{task.fields[counts]}", markup=False),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=None, counts="")
    started = time.monotonic()

    def show(done: Progress) -> None:
        if time.monotonic() - started < _PATIENCE:
            return
        bar.start()  # no effect after the first time
        counts, part = f"{done.nodes_done:,} of {done.nodes_found:,} found", 0.0
        if done.chunks:
            counts += f", chunk {done.chunks_done:,} of {in_digits(done.chunks)}"
            part = min(done.chunks_done / done.chunks, 1)
        bar.update(
            task,
            description=cut(printable(f"/{done.path}"), 24),
            completed=done.nodes_done + part,
            total=done.nodes_found,
            counts=counts,
        )

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
