"""Lines and tables on a terminal by `rich`: colours, tables that fit, and a progress bar."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich import box, progress
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from zarr_bytes.commands.screen import PATH, Table
from zarr_bytes.commands.text import cut, in_digits, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import ConsoleOptions, RenderableType

    from zarr_bytes.commands.reports import Progress
    from zarr_bytes.commands.screen import Cell, Line, Part

__all__ = ["print_parts", "progress_bar"]

_PATIENCE: Final = 1.0  # seconds before the progress bar appears


class _Path:
    """A path, broken after ``/``, ``.`` or ``,`` if it does not fit on a line."""

    def __init__(self, path: str) -> None:
        self._parts = re.findall(r"[^/\\.,]*[/\\.,]+|[^/\\.,]+", path)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [cell_len(part) for part in self._parts]
        return Measurement(max(widths, default=0), sum(widths)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line = ""
        for part in self._parts:
            if line and cell_len(line + part) > options.max_width:
                yield Text(line, overflow="fold")
                line = ""
            line += part
        yield Text(line, overflow="fold")


def print_parts(parts: Iterator[Part]) -> None:
    """Print `parts`, and the first of them again if it is no longer on the screen."""
    console = Console()
    first = _rendered(next(parts))
    console.print(first, soft_wrap=True)
    height = 1
    for part in map(_rendered, parts):
        console.print(part)
        if height < console.height:
            height += len(console.render_lines(part, pad=False))
    if height + 2 > console.height:  # and the prompt
        console.print()
        console.print(first, soft_wrap=True)


def _text(line: Line) -> Text:
    return Text.assemble(*((cell.text, cell.style) for cell in line.cells))


def _rendered(part: Part) -> RenderableType:
    if isinstance(part, Table):
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for column in part.columns:
            table.add_column(_cell(column), overflow="fold")
        for row in part.rows:
            table.add_row(*map(_cell, row))
        return table
    if part.is_whole:
        indent = Text(" " * part.indent, no_wrap=True, overflow="ignore")
        return indent.append_text(_text(part))
    is_path = [cell.style for cell in part.cells] == [PATH]
    content = _cell(part.cells[0]) if is_path else _text(part)
    return Padding(content, (0, part.indent)) if part.indent else content


def _cell(cell: Cell) -> RenderableType:
    return _Path(cell.text) if cell.style == PATH else Text(cell.text, cell.style)


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar over the whole store, for commands that take longer than a second."""
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
        counts = f"{done.nodes_done:,} of {done.nodes_found:,} found"
        part = 0.0
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
