"""What the commands show, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from zarr_bytes.status import DataType, Origin, Setting, Status

__all__ = ["print_status"]


def print_status(console: Console, found: Status) -> None:
    """Print whether the package is active, who decided it, and what to do where it is not."""
    if found.is_active:
        console.print("[bold green]Active:[/] zarr reads and writes bytes through zarr-bytes.")
    elif found.problems:
        console.print("[bold red]Not working:[/] a setting has a value that is not permitted.")
    else:
        console.print("[bold red]Not active:[/] zarr does not use zarr-bytes for every codec.")
    versions = (f"{name} {version}" for name, version in found.versions.items())
    console.print(", ".join(versions), highlight=False, style="dim")
    table = _table("Codec", "Class", "Decided by")
    for codec in found.codecs:
        colour = "green" if codec.is_active else "red"
        table.add_row(codec.name, Text(codec.found, colour), _who(codec.origin))
    _show(console, table)
    table = _table("Data type", "Class", "")
    for names, class_, remark in _grouped(found.data_types):
        table.add_row(names, class_, remark)
    _show(console, table)
    table = _table("Setting", "Value", "Decided by")
    for setting in found.settings:
        table.add_row(setting.name, _value(setting), _who(setting.origin))
    _show(console, table)
    if found.problems or found.advice:
        console.print("\n[bold]What to do[/]")
        for line in (*found.problems, *found.advice):
            console.print(Text("  " + line), soft_wrap=True)  # to be copied as one line


def _grouped(data_types: list[DataType]) -> list[tuple[str, str, Text]]:
    """One row for the data types in each module that are as they should be, one for each other."""
    rows: dict[str, list[str]] = {}
    others = []
    for data_type in data_types:
        if data_type.lacks:
            remark = Text(f"needs {data_type.lacks}: pip install {data_type.lacks}", "yellow")
            others.append((data_type.name, data_type.found, remark))
        elif not data_type.is_active:
            others.append((data_type.name, data_type.found, Text("not zarr-bytes", "yellow")))
        else:
            rows.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    good = [(", ".join(names), module, Text("")) for module, names in rows.items()]
    return [*good, *others]


def _value(setting: Setting) -> str:
    if isinstance(setting.value, int) and not isinstance(setting.value, bool):
        return _size(setting.value)
    return str(setting.value)


def _size(nbytes: int) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes and nbytes % 2**exponent == 0:
            return f"{nbytes >> exponent} {unit}"
    return f"{nbytes:,} bytes"


def _who(origin: Origin) -> Text:
    if origin.kind == "default":
        return Text("default", "dim")
    if origin.kind == "environment variable":
        return Text(f"environment: {origin.name}")
    return Text(origin.name or origin.kind)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _show(console: Console, table: Table) -> None:
    console.print()
    console.print(table)
