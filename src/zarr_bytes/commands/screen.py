"""Paths, texts and tables on a terminal, whatever is in them.

Whatever comes from a store goes through `printable`, and none of it is taken for markup.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich import box
from rich.cells import cell_len
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from zarr_bytes.commands.text import cut, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["PathText", "and_more", "print_parts", "shown", "table_of"]

_LONGEST: Final = 400  # characters of one cell


class PathText:
    """A path or the like, which is broken behind ``/``, ``.`` or ``,`` where it must be broken."""

    def __init__(self, path: str) -> None:
        self._parts = re.findall(r"[^/\\.,]*[/\\.,]+|[^/\\.,]+", printable(cut(path, _LONGEST)))

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


def shown(text: str, style: str = "") -> Text:
    """`text` as it can be shown, cut."""
    return Text(printable(cut(text, _LONGEST)), style)


def print_parts(console: Console, verdict: Text, parts: Iterable[RenderableType]) -> None:
    """Print `parts` below the verdict, and it once more where they push it off the screen."""
    console.print(verdict, soft_wrap=True)
    height = 1
    for part in parts:
        console.print(part)
        if height < console.height:
            height += len(console.render_lines(part, pad=False))
    if height + 2 > console.height:  # and the prompt
        console.print()
        console.print(verdict, soft_wrap=True)


def and_more(count: int, advice: str = "") -> Iterator[Text]:
    """A line that says how many were left out, if any were."""
    if count > 0:
        yield Text(f"... and {count:,} more{advice}", "dim")


def table_of(*columns: RenderableType) -> Table:
    """A table with these columns and no rows yet."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
