"""The results of `status`, `check`, `migrate` and `preallocate` as lines and tables."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.screen import PATH, Line, Table
from zarr_bytes.commands.text import brief, cut, in_digits, indented, number
from zarr_bytes.errors import HOW_TO_INSTALL
from zarr_bytes.settings import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from zarr_bytes.commands.origin import Origin
    from zarr_bytes.commands.reports import (
        Allocated,
        ArrayReport,
        Change,
        CheckReport,
        Finding,
        Migration,
    )
    from zarr_bytes.commands.screen import Part, Text
    from zarr_bytes.commands.status import DataType, Setting, Status

__all__ = ["allocated_parts", "check_parts", "migration_parts", "status_parts"]

_SHOWN: Final = 10  # findings of one array, documents to migrate; --json, or the store, has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_LARGEST_DIFFERENCE: Final = 2**20  # bytes of a document whose change is shown as lines


def status_parts(found: Status, *, in_full: bool) -> Iterator[Part]:
    """Whether zarr uses this package, the origin of each class and setting, and advice."""
    yield _status_verdict(found)
    yield Line((", ".join(f"{name} {version}" for name, version in found.versions.items()), "dim"))
    pipeline = found.pipeline
    classes: list[tuple[Text, ...]] = [
        (codec.name, (codec.found, "green" if codec.is_active else "red"), _who(codec.origin))
        for codec in found.codecs
    ]
    classes += [("pipeline", (pipeline.found, PATH), _who(pipeline.origin))]
    yield from (Line(), Table(("Codec", "Class", "Decided by"), classes), Line())
    yield Line(("Parts of chunks ", "bold"), f"{pipeline.acts_for}.")
    yield Line(("New arrays ", "bold"), f"have {found.new_arrays}.")
    yield Line(("One array ", "bold"), "is explained by `zarr-bytes explain STORE '[0]'`.")
    if found.data_types_need_import:
        text = "need `import zarr_bytes` first: zarr {zarr} does not load them by itself."
        yield Line(("Data types ", "bold"), (text.format_map(found.versions), "yellow"))
    if in_full:
        yield from (Line(), Table(("Data type", "Class"), _grouped(found.data_types)))
    else:
        yield _data_types(found.data_types)
    settings = ((s.name, _value(s), _who(s.origin)) for s in found.settings)
    yield from (Line(), Table(("Setting", "Value", "Decided by"), settings))
    texts = (*found.problems, *found.unknown, *found.advice)
    if texts:
        yield from (Line(), Line(("What to do", "bold")))
    for text in texts:
        # Commands and lines of files are copied, as one line each.
        yield Line(text, indent=2, is_whole=text.startswith(("export ", "unset ", "codec")))


def _status_verdict(found: Status) -> Line:
    if found.is_active and found.unknown:
        first, *others = found.unknown
        more = f", and {len(others)} more below" if others else ""
        return Line(("Active, but", "bold yellow"), f" {first}{more}.")
    if found.is_active:
        lacking = " and ".join(codec.name for codec in found.codecs if not codec.is_active)
        but = f" Not so for {lacking}." if lacking else ""
        does = " zarr reads and writes bytes through zarr-bytes."
        return Line(("Active:", "bold green"), does, but)
    if found.problems:
        return Line(("Not working:", "bold red"), " a setting is not permitted.")
    return Line(("Not active:", "bold red"), " zarr does not use zarr-bytes.")


def _data_types(data_types: list[DataType]) -> Line:
    """Number of data types with a class of this package, in one line."""
    lacking = [d for d in data_types if d.lacks]
    others = [d.name for d in data_types if not (d.is_active or d.lacks)]
    active = len(data_types) - len(lacking) - len(others)
    but = f"; {len(lacking)} lack {_how(lacking[0])}" if lacking else ""
    but += f"; by others: {', '.join(others)}" if others else ""
    found = f"{active} of {len(data_types)} by zarr-bytes"
    return Line(("Data types: ", "bold"), found, (but, "yellow"), ("; --verbose lists them", "dim"))


def _how(data_type: DataType) -> str:
    """The package missing for a data type, and the command that installs it."""
    return f"{data_type.lacks}: {HOW_TO_INSTALL[data_type.lacks or '']}"


def _grouped(data_types: list[DataType]) -> list[tuple[Text, ...]]:
    """One row for the active data types of each module, and one for each other data type."""
    modules: dict[str, list[str]] = {}
    others: list[tuple[Text, ...]] = []
    for data_type in data_types:
        if data_type.lacks:
            others.append((data_type.name, (f"lacks {_how(data_type)}", "yellow")))
        elif not data_type.is_active:
            others.append((data_type.name, (data_type.found, "yellow")))
        else:
            modules.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    return [*((", ".join(names), module) for module, names in modules.items()), *others]


def _value(setting: Setting) -> str:
    """The value of a setting; a size in its largest whole unit."""
    value = setting.value
    is_size = setting.name.startswith(("zarr_bytes.gap.", "zarr_bytes.largest_request."))
    if not is_size or not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    sizes = [unit for unit, size in UNITS.items() if value % size == 0]
    unit = sizes[-1] if value else sizes[0]
    return f"{in_digits(value // UNITS[unit])} {unit}"


def _who(origin: Origin) -> Text:
    """An origin as the text of a cell."""
    if origin.kind == "default":
        return "default", "dim"
    if origin.kind == "environment variable":
        return f"environment: {origin.name}"
    return origin.name or origin.kind, PATH


def check_parts(found: CheckReport, *, in_full: bool) -> Iterator[Part]:
    """The verdict; a row for each array, or if there are many, with findings; the findings."""
    colour = "green" if found.is_complete else "yellow"
    style = f"bold {colour if found.conforms else 'red'}"
    yield Line((f"{found.verdict}: ", style), found.store)
    reports = found.nodes
    rows = [report for report in reports if report.kind != "group"]
    reported = sorted((r for r in reports if r.findings), key=lambda report: report.conforms)
    most = len(reports) if in_full or len(rows) <= _MANY else _MANY
    quiet = 0
    if most < len(rows):
        listed = [report for report in reported if report.kind != "group"]
        quiet = len(rows) - len(listed)
        rows = listed[:most]
    if rows:
        names = ("Array", "Data type", "Codecs", "Chunks", "")
        yield from (Line(), Table(names, map(_array_row, rows)))
    if quiet:
        yield Line((f"{number(quiet, 'array')} without findings: --all lists them", "dim"))
    for report in reported[:most]:
        columns = ((f"/{report.path}", PATH), "Found", "Permitted")
        yield from (Line(), Table(columns, map(_finding_row, report.findings[:_SHOWN])))
        yield from _and_more(report.findings, _SHOWN, ": zarr-bytes check --json gives all")
    yield from _and_more(reported, most, " with findings: --all lists them")


def _array_row(report: ArrayReport) -> tuple[Text, ...]:
    named = report.data_type
    name = named.get("name") if isinstance(named, dict) else named
    data_type = name if isinstance(name, str) else "" if name is None else brief(name)
    chunks = [f"not checked: {report.not_checked}"] if report.not_checked else []
    if report.stored_chunks is not None:
        stored = f"{in_digits(report.stored_chunks)} of {in_digits(report.chunks or 0)} stored"
        chunks.insert(0, stored)
    count = sum(not finding.is_note for finding in report.findings)
    result: Text = ("metadata conforms", "yellow") if report.not_checked else ("conforms", "green")
    if count:
        result = number(count, "finding"), "red"
    elif report.kind in ("format 2", "link"):
        result = ""
    found = report.not_checked if report.kind == "link" else "; ".join(chunks)
    return (f"/{report.path}", PATH), data_type, ", ".join(report.codecs), found, result


def _finding_row(finding: Finding) -> tuple[Text, ...]:
    migrate = f"; zarr-bytes migrate {finding.migrate}" if finding.migrate else ""
    permitted = ("note", "dim") if finding.is_note else (finding.permitted + migrate, "green")
    return (finding.subject, PATH), finding.found, permitted


def migration_parts(found: Migration) -> Iterator[Part]:
    """The changes and removals of `migrate`, planned or made, and the documents it refuses."""
    draft = "migrated" if found.is_written else "of the draft form"
    leftover = "removed" if found.is_written else "of an earlier run"
    things: tuple[tuple[Sized, str, str], ...] = (
        (found.changes, "metadata document", draft),
        (found.leftovers, "leftover", leftover),
        (found.refused, "metadata document", "not migrated"),
    )
    counts = [f"{number(len(them), noun)} {state}" for them, noun, state in things if them]
    counts = counts or ["Nothing to migrate"]
    if found.format_2:
        old = f"{number(len(found.format_2), 'array')} of Zarr format 2"
        counts.append(f"{old}, which has no draft form")
    is_open = (found.changes or found.leftovers) and not found.is_written
    colour = "yellow" if is_open else "red" if found.refused else "green"
    yield Line((f"{'; '.join(counts)}: ", f"bold {colour}"), found.store)
    yield from _changes(found.changes)
    if found.leftovers:
        title = "Left by an interrupted earlier run, to be removed"
        yield from (Line(), Line((title, "bold")))
        for key in list(found.leftovers)[:_MANY]:
            yield Line((key, PATH), indent=2, is_cut=True)
        yield from _and_more(found.leftovers, _MANY)
    yield from _refused("Not migrated", found.refused, ": zarr-bytes check --json gives all")


def allocated_parts(arrays: list[Allocated]) -> Iterator[Part]:
    """The chunks of each array that exist now, and the arrays that `preallocate` refuses."""
    made, completed = sum(a.made for a in arrays), sum(a.completed for a in arrays)
    steps = [f"{number(made, 'chunk')} made"]
    steps += [f"{number(completed, 'shard')} completed"] * bool(completed)
    refused = {array.path: array.refused for array in arrays if array.refused}
    steps += [f"{len(refused):,} of {number(len(arrays), 'array')} refused"] * bool(refused)
    style = f"bold {'red' if refused else 'green'}"
    there = sum(array.chunks for array in arrays)
    yield Line((f"{', '.join(steps)}: ", style), f"{there:,} there now")
    if len(arrays) > 1:
        rows = (
            ((f"/{a.path}", PATH), f"{a.chunks:,}", f"{a.made:,}", f"{a.completed:,}")
            for a in arrays[:_MANY]
        )
        yield from (Line(), Table(("Array", "There now", "Made", "Completed"), rows))
        yield from _and_more(arrays, _MANY)
    yield from _refused("Refused", refused)


def _refused(title: str, reasons: dict[str, str], advice: str = "") -> Iterator[Part]:
    """The reasons why documents or arrays were refused, by their paths."""
    if reasons:
        first = list(reasons.items())[:_MANY]
        rows = (((f"/{path}", PATH), (reason, "red")) for path, reason in first)
        yield from (Line(), Table((title, "Reason"), rows))
        yield from _and_more(reasons, _MANY, advice)


def _changes(changes: list[Change]) -> Iterator[Line]:
    """For each list of steps, the first document with it, and the keys of the others."""
    alike: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        alike.setdefault(tuple(change.steps), []).append(change)
    for first, *others in list(alike.values())[:_SHOWN]:
        yield from (Line(), Line((first.key, "bold"), is_cut=True))
        for text, style in _change_lines(first):
            yield Line((f"  {text}", style), is_cut=True)
        if others:
            keys = ", ".join(cut(other.key, 80) for other in others[:_SHOWN])
            more = "" if len(others) <= _SHOWN else f" and {len(others) - _SHOWN:,} more"
            yield Line(f"the same in {keys}{more}", indent=2)
    yield from _and_more(alike, _SHOWN, " that change in another way")


def _change_lines(change: Change) -> Iterator[tuple[str, str]]:
    """Each step in words, then the lines that differ; a document on one line is indented first."""
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
    # Without the three lines of the header.
    lines = list(unified_diff(old, new, lineterm="", n=2))[3:]
    for text in lines[: 4 * _SHOWN]:
        colour = {"+": "green", "-": "red"}.get(text[0], "dim")
        yield ("...", "dim") if text.startswith("@@") else (text.removesuffix("\r"), colour)
    if len(lines) > 4 * _SHOWN:
        yield "...", "dim"


def _and_more(things: Sized, shown: int, advice: str = "") -> Iterator[Line]:
    """A line with the number of things left out, if any."""
    if len(things) > shown:
        yield Line((f"... and {len(things) - shown:,} more{advice}", "dim"))
