"""What the commands show, as tables for a terminal."""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from zarr_bytes.commands.check import ArrayReport
    from zarr_bytes.commands.migrate import Change, Plan
    from zarr_bytes.commands.status import DataType, Origin, Setting, Status

__all__ = ["documents", "print_check", "print_plan", "print_status"]

_SHOWN: Final = 10  # findings of one array; --json gives all


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
    table = _table("Data type", "Class")
    for names, class_ in _grouped(found.data_types):
        table.add_row(names, class_)
    _show(console, table)
    table = _table("Setting", "Value", "Decided by")
    for setting in found.settings:
        table.add_row(setting.name, _value(setting), _who(setting.origin))
    _show(console, table)
    if found.problems or found.advice:
        console.print("\n[bold]What to do[/]")
        for line in (*found.problems, *found.advice):
            is_command = line.startswith(("export ", "unset "))  # to be copied as one line
            if is_command:
                console.print(Text(f"  {line}"), soft_wrap=True)
            else:
                console.print(Padding(Text(line), (0, 2)))


def _grouped(data_types: list[DataType]) -> list[tuple[str, Text]]:
    """One row for the data types in each module that are as they should be, one for each other."""
    modules: dict[str, list[str]] = {}
    others = []
    for data_type in data_types:
        if data_type.lacks:
            remark = f'needs {data_type.lacks}: pip install "zarr-bytes[ml]"'
            others.append((data_type.name, Text(remark, "yellow")))
        elif not data_type.is_active:
            others.append((data_type.name, Text(data_type.found, "yellow")))
        else:
            modules.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    return [*((", ".join(names), Text(module)) for module, names in modules.items()), *others]


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


def print_check(console: Console, location: str, reports: list[ArrayReport]) -> None:
    """Print a row for every array, and then what does not conform."""
    arrays = [r for r in reports if r.kind != "group"]
    bad = sum(not report.conforms for report in reports)
    if bad:
        verdict = (f"{bad} of {len(reports)} do not conform: ", "bold red")
    else:
        verdict = ("Conforms: ", "bold green")
    console.print(Text.assemble(verdict, location), soft_wrap=True)
    table = _table("Array", "Data type", "Codecs", "Chunks", "")
    for report in arrays:
        table.add_row(
            Text(f"/{report.path}"),
            Text(_data_type_name(report.data_type)),
            Text(", ".join(report.codecs)),
            Text(_chunks(report)),
            _result(report),
        )
    if arrays:
        _show(console, table)
    for report in reports:
        if report.findings:
            _print_findings(console, report)


def print_plan(console: Console, location: str, found: Plan) -> None:
    """Print what `migrate` would change, and what it cannot."""
    if found.changes:
        verdict = (f"{documents(len(found.changes))} of the draft form: ", "bold yellow")
    else:
        verdict = ("Nothing to migrate: ", "bold green")
    console.print(Text.assemble(verdict, location), soft_wrap=True)
    alike: dict[tuple[str, ...], list[Change]] = {}
    for change in found.changes:
        alike.setdefault((*change.steps, *_difference(change)), []).append(change)
    for first, *others in alike.values():
        console.print()
        console.print(Text(first.key, "bold"))
        for step in first.steps:
            console.print(Text(f"  {step}"))
        for line in _difference(first):
            colour = {"+": "green", "-": "red"}.get(line[0], "dim")
            console.print(Text(f"  {line}", colour))
        if others:
            keys = ", ".join(change.key for change in others[:_SHOWN])
            more = "" if len(others) <= _SHOWN else f" and {len(others) - _SHOWN:,} more"
            console.print(Text(f"  the same in {keys}{more}"))
    if found.refused:
        table = _table("Not migrated", "Reason")
        for path, reason in found.refused.items():
            table.add_row(Text(f"/{path}"), Text(reason, "red"))
        _show(console, table)


def documents(count: int) -> str:
    """`count` in words."""
    return f"{count:,} metadata document" + "s" * (count != 1)


def _difference(change: Change) -> list[str]:
    """Lines of a unified diff, of documents on one line as if they had several."""
    texts = [change.old.decode(), change.new.decode()]
    if texts[0].count("\n") < 2:
        texts = [json.dumps(json.loads(text), indent=2) for text in texts]
    old, new = (text.splitlines() for text in texts)
    lines = list(unified_diff(old, new, lineterm="", n=2))[3:]  # without the names and the place
    return ["..." if line.startswith("@@") else line for line in lines]


def _data_type_name(data_type: object) -> str:
    name = data_type.get("name") if isinstance(data_type, dict) else data_type
    return name if isinstance(name, str) else "" if name is None else json.dumps(name)


def _chunks(report: ArrayReport) -> str:
    if report.stored_chunks is None:
        return f"not checked: {report.not_checked}" if report.not_checked else ""
    return f"{report.stored_chunks:,} of {report.chunks:,} stored"


def _result(report: ArrayReport) -> Text:
    count = sum(not finding.is_note for finding in report.findings)
    if count:
        return Text(f"{count} finding" + "s" * (count != 1), "red")
    if report.kind == "format 2":
        return Text("")
    return Text("conforms", "green")


def _print_findings(console: Console, report: ArrayReport) -> None:
    table = _table(f"/{report.path}", "Found", "Permitted")
    for finding in report.findings[:_SHOWN]:
        permitted = Text("note", "dim") if finding.is_note else Text(finding.permitted, "green")
        table.add_row(Text(finding.subject), Text(finding.found), permitted)
    _show(console, table)
    if len(report.findings) > _SHOWN:
        more = len(report.findings) - _SHOWN
        console.print(f"... and {more:,} more: zarr-bytes check --json gives all", style="dim")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _show(console: Console, table: Table) -> None:
    console.print()
    console.print(table)
