"""What the commands show, as tables for a terminal."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.text import Text

from zarr_bytes.commands.json_text import indented
from zarr_bytes.commands.reports import number
from zarr_bytes.commands.screen import PathText, and_more, print_parts, shown, table_of
from zarr_bytes.commands.text import brief, cut, in_digits, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.table import Table

    from zarr_bytes.commands.migrate import Change, Plan
    from zarr_bytes.commands.reports import ArrayReport, Verdict
    from zarr_bytes.commands.status import DataType, Origin, Setting, Status

__all__ = ["print_check", "print_plan", "print_status"]

_SHOWN: Final = 10  # findings of one array, documents to migrate; --json, or the store, has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_LARGEST_DIFFERENCE: Final = 2**20  # characters of a document whose change is shown as lines


def print_status(
    console: Console,
    found: Status,
    *,
    verbose: bool = False,
) -> None:
    """Print whether the package is active, who decided it, and what to do where it is not."""
    if found.is_active:
        verdict = ("Active:", "bold green"), " zarr reads and writes bytes through zarr-bytes."
    elif found.problems:
        verdict = ("Not working:", "bold red"), " a setting is not permitted."
    else:
        verdict = ("Not active:", "bold red"), " zarr does not use zarr-bytes for every codec."
    print_parts(console, Text.assemble(*verdict), _status_parts(found, verbose=verbose))


def _status_parts(found: Status, *, verbose: bool) -> Iterator[RenderableType]:
    versions = (f"{name} {version}" for name, version in found.versions.items())
    yield shown(", ".join(versions), "dim")
    table = table_of("Codec", "Class", "Decided by")
    for codec in found.codecs:
        colour = "green" if codec.is_active else "red"
        table.add_row(shown(codec.name), shown(codec.found, colour), _who(codec.origin))
    yield from ("", table)
    if verbose:
        table = table_of("Data type", "Class")
        for names, class_ in _grouped(found.data_types):
            table.add_row(shown(names), class_)
        yield from ("", table)
    else:
        yield from ("", _data_types(found.data_types))
    table = table_of("Setting", "Value", "Decided by")
    for setting in found.settings:
        table.add_row(shown(setting.name), shown(_value(setting)), _who(setting.origin))
    yield from ("", table)
    if found.problems or found.advice:
        yield from ("", Text("What to do", "bold"))
    for line in (*found.problems, *found.advice):
        is_command = line.startswith(("export ", "unset "))  # to be copied as one line
        text = Text(printable(f"  {line}" if is_command else line))
        if is_command:
            text.no_wrap, text.overflow = True, "ignore"
        yield text if is_command else Padding(text, (0, 2))


def _data_types(data_types: list[DataType]) -> Text:
    """How many data types are this package's, in one line."""
    lacking = [d for d in data_types if d.lacks]
    others = [d.name for d in data_types if not (d.is_active or d.lacks)]
    active = len(data_types) - len(lacking) - len(others)
    line = Text.assemble(("Data types: ", "bold"), f"{active} of {len(data_types)} by zarr-bytes")
    if lacking:
        needs = _needs(lacking[0])
        line.append(f"; {len(lacking)} {needs}", "yellow")
    if others:
        line.append(printable(f"; by others: {', '.join(others)}"), "yellow")
    return line.append("; --verbose lists them", "dim")


def _needs(data_type: DataType) -> str:
    return f'needs {data_type.lacks}: pip install "zarr-bytes[ml]"'


def _grouped(data_types: list[DataType]) -> list[tuple[str, Text]]:
    """One row for the data types in each module that are as they should be, one for each other."""
    modules: dict[str, list[str]] = {}
    others = []
    for data_type in data_types:
        if data_type.lacks:
            others.append((data_type.name, shown(_needs(data_type), "yellow")))
        elif not data_type.is_active:
            others.append((data_type.name, shown(data_type.found, "yellow")))
        else:
            modules.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    return [*((", ".join(names), shown(module)) for module, names in modules.items()), *others]


def _value(setting: Setting) -> str:
    if isinstance(setting.value, int) and not isinstance(setting.value, bool):
        return _size(setting.value)
    return str(setting.value)


def _size(nbytes: int) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes and nbytes % 2**exponent == 0:
            return f"{in_digits(nbytes >> exponent)} {unit}"
    return f"{in_digits(nbytes)} bytes"


def _who(origin: Origin) -> RenderableType:
    if origin.kind == "default":
        return Text("default", "dim")
    if origin.kind == "environment variable":
        return shown(f"environment: {origin.name}")
    return PathText(origin.name or origin.kind)


def print_check(
    console: Console,
    location: str,
    reports: list[ArrayReport],
    verdict: Verdict,
    *,
    list_all: bool = False,
) -> None:
    """Print a row for every array, or of many for those with findings, and then the findings."""
    colour = "green" if verdict.is_complete else "yellow"
    headline = (f"{verdict.text}: ", f"bold {colour if verdict.conforms else 'red'}")
    parts = _check_parts(reports, list_all=list_all)
    print_parts(console, Text.assemble(headline, printable(location)), parts)


def _check_parts(reports: list[ArrayReport], *, list_all: bool) -> Iterator[RenderableType]:
    rows = [report for report in reports if report.kind != "group"]
    found = sorted((r for r in reports if r.findings), key=lambda report: report.conforms)
    most = len(reports) if list_all or len(rows) <= _MANY else _MANY
    if most < len(rows):
        listed = [report for report in found if report.kind != "group"]
        quiet = len(rows) - len(listed)
        rows = listed[:most]
    else:
        quiet = 0
    if rows:
        yield from ("", _array_table(rows))
    if quiet:
        yield Text(f"{number(quiet, 'array')} without findings: --all lists them", "dim")
    for report in found[:most]:
        yield from _finding_parts(report)
    yield from and_more(len(found) - most, " with findings: --all lists them")


def _array_table(reports: list[ArrayReport]) -> Table:
    table = table_of("Array", "Data type", "Codecs", "Chunks", "")
    for report in reports:
        table.add_row(
            PathText(f"/{report.path}"),
            shown(_data_type_name(report.data_type)),
            shown(", ".join(report.codecs)),
            shown(_chunks(report)),
            _result(report),
        )
    return table


def _data_type_name(data_type: object) -> str:
    name = data_type.get("name") if isinstance(data_type, dict) else data_type
    return name if isinstance(name, str) else "" if name is None else brief(name)


def _chunks(report: ArrayReport) -> str:
    if report.kind == "link":
        return report.not_checked
    if report.stored_chunks is None:
        return f"not checked: {report.not_checked}" if report.not_checked else ""
    stored = f"{in_digits(report.stored_chunks)} of {in_digits(report.chunks or 0)} stored"
    return f"{stored}; not checked: {report.not_checked}" if report.not_checked else stored


def _result(report: ArrayReport) -> Text:
    count = sum(not finding.is_note for finding in report.findings)
    if count:
        return Text(number(count, "finding"), "red")
    if report.kind in ("format 2", "link"):
        return Text("")
    if report.not_checked:
        return Text("metadata conforms", "yellow")
    return Text("conforms", "green")


def _finding_parts(report: ArrayReport) -> Iterator[RenderableType]:
    table = table_of(PathText(f"/{report.path}"), "Found", "Permitted")
    for finding in report.findings[:_SHOWN]:
        permitted = Text("note", "dim") if finding.is_note else shown(finding.permitted, "green")
        table.add_row(PathText(finding.subject), shown(finding.found), permitted)
    yield from ("", table)
    yield from and_more(len(report.findings) - _SHOWN, ": zarr-bytes check --json gives all")


def print_plan(console: Console, location: str, found: Plan) -> None:
    """Print what `migrate` would change and remove, and what it cannot."""
    counts = [
        f"{number(len(found.changes), 'metadata document')} of the draft form",
        f"{number(len(found.leftovers), 'leftover')} of an earlier run",
        f"{number(len(found.refused), 'metadata document')} not migrated",
    ]
    things = (found.changes, found.leftovers, found.refused)
    counts = [count for count, of in zip(counts, things, strict=True) if of]
    colour = "yellow" if found.changes or found.leftovers else "red" if counts else "green"
    headline = (f"{'; '.join(counts) or 'Nothing to migrate'}: ", f"bold {colour}")
    print_parts(console, Text.assemble(headline, printable(location)), _plan_parts(found))


def _plan_parts(found: Plan) -> Iterator[RenderableType]:
    yield from _changes(found.changes)
    if found.leftovers:
        yield from ("", Text("Left by an earlier run that was stopped, and to be removed", "bold"))
        yield from (Padding(PathText(key), (0, 2)) for key in list(found.leftovers)[:_MANY])
        yield from and_more(len(found.leftovers) - _MANY)
    if found.refused:
        table = table_of("Not migrated", "Reason")
        for path, reason in list(found.refused.items())[:_MANY]:
            table.add_row(PathText(f"/{path}"), shown(reason, "red"))
        yield from ("", table)
        yield from and_more(len(found.refused) - _MANY, ": zarr-bytes check --json gives all")


def _changes(changes: list[Change]) -> Iterator[RenderableType]:
    """One of the documents that change in the same way, and the keys of the others."""
    alike: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        alike.setdefault(tuple(change.steps), []).append(change)
    for first, *others in list(alike.values())[:_SHOWN]:
        yield from ("", shown(first.key, "bold"))
        for line, colour in _change_lines(first):
            yield shown(f"  {line}", colour)
        if others:
            keys = ", ".join(cut(other.key, 80) for other in others[:_SHOWN])
            more = "" if len(others) <= _SHOWN else f" and {len(others) - _SHOWN:,} more"
            yield Padding(Text(printable(f"the same in {keys}{more}")), (0, 2))
    yield from and_more(len(alike) - _SHOWN, " that change in another way")


def _change_lines(change: Change) -> Iterator[tuple[str, str]]:
    """Each step in words, and the lines that differ, of documents on one line as if on several."""
    for step in change.steps[:_SHOWN]:
        yield step, ""
    if len(change.steps) > _SHOWN:
        yield f"... and {len(change.steps) - _SHOWN:,} more", "dim"
    if len(change.old) > _LARGEST_DIFFERENCE:
        return
    texts = [text.decode(errors="surrogateescape") for text in (change.old, change.new)]
    if texts[0].count("\n") < 2:
        texts = [indented(text) for text in texts]
    old, new = (text.split("\n") for text in texts)
    # Without the names and the place.
    lines = list(unified_diff(old, new, lineterm="", n=2))[3:]
    for line in lines[: 4 * _SHOWN]:
        colour = {"+": "green", "-": "red"}.get(line[0], "dim")
        yield ("...", "dim") if line.startswith("@@") else (line.removesuffix("\r"), colour)
    if len(lines) > 4 * _SHOWN:
        yield "...", "dim"
