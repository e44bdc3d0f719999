"""Results of commands: plain data that prints as lines and tables, and as JSON.

A result prints as parts: first a line with its verdict, then further lines and tables. If `rich` is
installed, `text_for_terminal` adds colors and fits the parts to the width of the terminal. All text
is escaped here, so that a name from a store can't control the terminal.
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
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MAX_CELL_LENGTH: Final = 400  # characters
_UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ENCODER: Final = json.JSONEncoder(default=str)

Cell: TypeAlias = str | int | tuple[str | int, str]
"""A value, or a value and its `rich` style."""
Line: TypeAlias = tuple[Cell, ...]
"""Cells side by side; a line that ends in a full stop is wrapped between words."""


class _StyledText(NamedTuple):
    """A printable text and its `rich` style, which may be empty."""

    text: str
    style: str


@dataclass(frozen=True)
class Table:
    """Rows below the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def styled_rows_with_header(self) -> list[list[_StyledText]]:
        """The printable text of each cell, by row; the first row has the names of the columns."""
        rows = (self.columns, *self.rows)
        return [[_styled_text(cell, _MAX_CELL_LENGTH) for cell in row] for row in rows]


OutputPart: TypeAlias = Line | Table


def iter_shortened_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    max_rows: int,
    advice_if_shortened: str = "",
) -> Iterator[OutputPart]:
    """A table of the first rows; then a line with the number of the others, and the advice."""
    yield Table(columns, rows[:max_rows])
    if len(rows) > max_rows:
        yield (f"... and {len(rows) - max_rows:,} more{advice_if_shortened}",)


class Result:
    """A result that prints as the lines and tables of its command."""

    def _iter_output_parts(self, *, in_full: bool = False) -> Iterator[OutputPart]:
        """The verdict as one line, then the parts below it; every detail if `in_full`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(map(_plain_text, self._iter_output_parts()))


@dataclass(frozen=True)
class Progress:
    """The progress of a command: nodes done, nodes found, and chunks of the current array."""

    path: str
    nodes_done: int
    nodes_found: int
    chunks_done: int = 0
    chunks: int = 0


ProgressCallback: TypeAlias = "Callable[[Progress], None]"
"""A function that a command calls with its progress."""


def verdict_line(text: str, colour: str, *subjects: Cell) -> Line:
    """The first line of a result: its verdict in a color, and its subjects."""
    return (f"{text}: ", f"bold {colour}"), *subjects


def text_for_terminal(result: Result, *, in_full: bool = False) -> str:
    """A result as text for standard output, colored if `rich` is installed.

    If the text is longer than the terminal, the verdict is repeated at its end. `in_full` shows
    every detail.
    """
    parts = [*result._iter_output_parts(in_full=in_full)]
    shown = [*map(_coloured_text if is_package_installed("rich") else _plain_text, parts)]
    text = "\n".join(shown)
    if text.count("\n") + 3 > shutil.get_terminal_size().lines:  # and the prompt
        text += f"\n\n{shown[0]}"
    return text


def is_package_installed(name: str) -> bool:
    """Whether a package is installed; False if there is only a folder of that name."""
    return getattr(find_spec(name), "origin", None) is not None


def _plain_text(part: OutputPart) -> str:
    """A part as text; a table starts with an empty line."""
    if isinstance(part, tuple):
        return "".join([_styled_text(cell).text for cell in part]).rstrip()
    rows = [[text for text, _ in row] for row in part.styled_rows_with_header()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    rule = "-" * (sum(widths) + 3 * len(widths) - 3)
    return "\n".join(["", lines[0], rule, *lines[1:]])


def _coloured_text(part: OutputPart) -> str:
    """A part as `rich` text for this terminal; sentences are wrapped between words."""
    from rich import box, table
    from rich.console import Console
    from rich.text import Text

    console = Console(width=Console().width or 80)  # 0 if COLUMNS is 0
    with console.capture() as captured:
        if isinstance(part, tuple):
            line = Text.assemble(*map(_styled_text, part))
            console.print(line, soft_wrap=not line.plain.endswith("."))
        else:
            names, *rows = part.styled_rows_with_header()
            columns = [table.Column(Text(*name), overflow="fold") for name in names]
            shown = table.Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for row in rows:
                shown.add_row(*starmap(Text, row))
            console.print("", shown, sep="\n")
    return captured.get().removesuffix("\n")


def _styled_text(cell: Cell, max_length: int = sys.maxsize) -> _StyledText:
    """The printable text of a cell, and its style; the text is cut first, then escaped."""
    value, style = cell if isinstance(cell, tuple) else (cell, "")
    text = thousands_or_power_of_ten(value) if isinstance(value, int) else value
    return _StyledText(escape_unprintable(truncate(text, max_length)), style)


@contextmanager
def progress_bar_or_no_op() -> Iterator[ProgressCallback]:
    """A callback that shows a progress bar on a terminal with `rich`, and otherwise does nothing.

    It may be called in any thread. The bar disappears at the end of the block.
    """
    if not (is_package_installed("rich") and sys.stderr.isatty()):
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

        def show(state: Progress) -> None:
            fraction_of_node = state.chunks_done / state.chunks if state.chunks else 0
            nodes = f"{state.nodes_done:,} of {state.nodes_found:,} found"
            chunks = f"chunk {state.chunks_done:,} of {thousands_or_power_of_ten(state.chunks)}"
            path = truncate(escape_unprintable(f"/{state.path}"), 24)
            bar.update(
                task,
                description=f"{nodes}, {chunks} {path}",
                completed=state.nodes_done + fraction_of_node,
                total=state.nodes_found,
            )

        yield show


def escape_unprintable(text: str) -> str:
    """`text` with escapes for control and format characters, and for lone surrogates."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def truncate(text: str, max_length: int) -> str:
    """`text`, or its beginning and " ..." if it has more than `max_length` characters."""
    return text if len(text) <= max_length else f"{text[: max_length - 4]} ..."


def short_json(value: object, max_length: int = 80) -> str:
    """`value` as JSON text, cut after `max_length` characters; the rest isn't encoded."""
    pieces = _ENCODER.iterencode(value)  # lazy, so that no value is nested too deeply
    return truncate("".join(islice(pieces, max_length + 1)), max_length)


def thousands_or_power_of_ten(n: int) -> str:
    """`n` with thousands separators; from 10^18 on, its magnitude, such as "about 10^20"."""
    if abs(n) < 10**18:
        return f"{n:,}"
    sign = "-" if n < 0 else ""
    return f"about {sign}10^{log10(abs(n)):.0f}"


def percentage(part: int, whole: int) -> str:
    """`part` of `whole` in percent, such as "2 %".

    "0 %" and "100 %" are exact: other values near them are "less than 1 %" and "more than 99 %".
    """
    if not 0 < part < whole:
        return f"{thousands_or_power_of_ten(100 * part // whole if whole else 0)} %"
    if 100 * part < whole:
        return "less than 1 %"
    if 100 * part > 99 * whole:
        return "more than 99 %"
    return f"{(200 * part + whole) // (2 * whole)} %"


def in_largest_exact_unit(nbytes: int) -> str:
    """A size in the largest binary unit that divides it, such as "8 MiB"."""
    whole_units = [unit for unit, size in _UNITS.items() if nbytes % size == 0]
    unit = whole_units[-1] if nbytes else "bytes"
    return f"{thousands_or_power_of_ten(nbytes // _UNITS[unit])} {unit}"


def count_with_noun(count: int, noun: str) -> str:
    """A count with its noun, such as "1 chunk" or "2 chunks"."""
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}"


def class_path(class_: type) -> str:
    """The name of a class in zarr's configuration."""
    return f"{class_.__module__}.{class_.__qualname__}"


def to_strict_json(document: object) -> str:
    """`document` as strict JSON in ASCII; numbers that JSON doesn't have become strings."""
    text = json.dumps(document, default=lambda x: vars(x) if is_dataclass(x) else str(x))
    return json.dumps(json.loads(text, parse_constant=str), indent=2)
