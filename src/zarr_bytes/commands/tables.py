"""The results of all commands as lines and tables."""

from __future__ import annotations

from dataclasses import astuple
from functools import singledispatch
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.counting import Counted
from zarr_bytes.commands.explain import Explanation
from zarr_bytes.commands.reports import Allocated, CheckReport, Migration, Preallocation, Result
from zarr_bytes.commands.screen import PATH, Line, Table, and_more, first_rows, verdict
from zarr_bytes.commands.status import Status
from zarr_bytes.commands.text import brief, cut, difference, in_digits, in_units, number
from zarr_bytes.errors import HOW_TO_INSTALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from zarr_bytes.commands.origin import Origin
    from zarr_bytes.commands.reports import ArrayReport, Change, Finding
    from zarr_bytes.commands.screen import Part, Text
    from zarr_bytes.commands.status import DataType, Setting

__all__ = ["parts_of"]

_SHOWN: Final = 10  # findings of one array, documents to migrate; --json, or the store, has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed


@singledispatch
def parts_of(found: Result, *, in_full: bool = False) -> Iterator[Part]:
    """The verdict of a result as one line, then the parts below; every detail if `in_full`."""
    raise NotImplementedError


@parts_of.register(Status)
def _of_status(found: Status, *, in_full: bool = False) -> Iterator[Part]:
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
    others: dict[str, Text] = {
        d.name: (f"lacks {_how(d)}" if d.lacks else d.found, "yellow")
        for d in data_types
        if d.lacks or not d.is_active
    }
    modules: dict[str, list[str]] = {}
    for data_type in data_types:
        if data_type.name not in others:
            modules.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    return [*((", ".join(names), module) for module, names in modules.items()), *others.items()]


def _value(setting: Setting) -> str:
    """The value of a setting, and the unit of a size."""
    value = setting.value
    is_size = setting.name.startswith(("zarr_bytes.gap.", "zarr_bytes.largest_request."))
    return in_units(value) if is_size and type(value) is int else str(value)


def _who(origin: Origin) -> Text:
    """An origin as the text of a cell."""
    return str(origin), {"default": "dim", "environment variable": ""}.get(origin.kind, PATH)


@parts_of.register(CheckReport)
def _of_check(found: CheckReport, *, in_full: bool = False) -> Iterator[Part]:
    """The verdict; a row for each array, or if there are many, with findings; the findings."""
    colour = "red" if not found.conforms else "green" if found.is_complete else "yellow"
    yield verdict(found.verdict, colour, found.store)
    reported = sorted((r for r in found if r.findings), key=lambda report: report.conforms)
    arrays = [report for report in found if report.kind != "group"]
    listed, most = arrays, len(found.nodes)
    if len(arrays) > _MANY and not in_full:
        listed, most = [report for report in reported if report.kind != "group"], _MANY
    if listed:
        names = ("Array", "Data type", "Codecs", "Chunks", "")
        yield from (Line(), Table(names, map(_array_row, listed[:most])))
    if quiet := len(arrays) - len(listed):
        yield Line((f"{number(quiet, 'array')} without findings: --all lists them", "dim"))
    for report in reported[:most]:
        columns = ((f"/{report.path}", PATH), "Found", "Permitted")
        advice = ": zarr-bytes check --json gives all"
        yield from first_rows(columns, list(map(_finding_row, report.findings)), _SHOWN, advice)
    yield from and_more(reported, most, " with findings: --all lists them")


def _array_row(report: ArrayReport) -> tuple[Text, ...]:
    named = report.data_type
    name = named.get("name") if isinstance(named, dict) else named
    data_type = name if isinstance(name, str) else "" if name is None else brief(name)
    chunks = []
    if report.stored_chunks is not None:
        of_all = in_digits(report.chunks or 0)
        chunks.append(f"{in_digits(report.stored_chunks)} of {of_all} stored")
    if report.not_checked:
        chunks.append(f"not checked: {report.not_checked}")
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


@parts_of.register(Migration)
def _of_migration(found: Migration, **_: bool) -> Iterator[Part]:
    """The changes and removals of `migrate`, planned or made, and the documents it refuses."""
    draft, leftover = "of the draft form", "of an earlier run"
    if found.is_written:
        draft, leftover = "migrated", "removed"
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
    yield verdict("; ".join(counts), colour, found.store)
    yield from _changes(found.changes)
    if found.leftovers:
        title = "Left by an interrupted earlier run, to be removed"
        yield from (Line(), Line((title, "bold")))
        for key in list(found.leftovers)[:_MANY]:
            yield Line((key, PATH), indent=2, is_cut=True)
        yield from and_more(found.leftovers, _MANY)
    yield from _refused("Not migrated", found.refused, ": zarr-bytes check --json gives all")


@parts_of.register(Allocated)
@parts_of.register(Preallocation)
def _of_allocated(found: Allocated | Preallocation, **_: bool) -> Iterator[Part]:
    """The chunks of each array that exist now, and the arrays that `preallocate` refuses."""
    arrays = [found] if isinstance(found, Allocated) else found.arrays
    made, completed = sum(a.made for a in arrays), sum(a.completed for a in arrays)
    steps = [f"{number(made, 'chunk')} made"]
    steps += [f"{number(completed, 'shard')} completed"] * bool(completed)
    refused = {array.path: array.refused for array in arrays if array.refused}
    steps += [f"{len(refused):,} of {number(len(arrays), 'array')} refused"] * bool(refused)
    there = f"{sum(array.chunks for array in arrays):,} there now"
    yield verdict(", ".join(steps), "red" if refused else "green", there)
    if len(arrays) > 1:
        rows: list[list[Text]] = [
            [(f"/{a.path}", PATH), *map(in_digits, (a.chunks, a.made, a.completed))] for a in arrays
        ]
        yield from first_rows(("Array", "There now", "Made", "Completed"), rows, _MANY)
    yield from _refused("Refused", refused)


def _refused(title: str, reasons: dict[str, str], advice: str = "") -> Iterator[Part]:
    """The reasons why documents or arrays were refused, by their paths."""
    rows = [((f"/{path}", PATH), (reason, "red")) for path, reason in reasons.items()]
    if rows:
        yield from first_rows((title, "Reason"), rows, _MANY, advice)


def _changes(changes: list[Change]) -> Iterator[Line]:
    """For each list of steps, the first document with it, and the keys of the others."""
    alike: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        alike.setdefault(tuple(change.steps), []).append(change)
    for first, *others in list(alike.values())[:_SHOWN]:
        yield from (Line(), Line((first.key, "bold"), is_cut=True))
        yield from (Line((f"  {text}", style), is_cut=True) for text, style in _lines_of(first))
        if others:
            keys = ", ".join(cut(other.key, 80) for other in others[:_SHOWN])
            more = "" if len(others) <= _SHOWN else f" and {len(others) - _SHOWN:,} more"
            yield Line(f"the same in {keys}{more}", indent=2)
    yield from and_more(alike, _SHOWN, " that change in another way")


def _lines_of(change: Change) -> Iterator[tuple[str, str]]:
    """Each step in words, then the lines that differ."""
    for step in change.steps[:_SHOWN]:
        yield step, ""
    if len(change.steps) > _SHOWN:
        yield f"... and {len(change.steps) - _SHOWN:,} more", "dim"
    lines = difference(change.old, change.new)
    for text in [*lines[: 4 * _SHOWN], *["..."] * (len(lines) > 4 * _SHOWN)]:
        yield text, {"+": "green", "-": "red"}.get(text[0], "dim")


@parts_of.register(Explanation)
def _of_explanation(found: Explanation, **_: bool) -> Iterator[Part]:
    """The reason why a read or write is not partial, and the bytes that it reads and writes."""
    if not found.is_write:
        what = "Partial" if found.is_partial else "Not partial"
    elif found.is_partial:
        what = "Written in place" if found.may_share else "Whole chunks are written"
    else:
        what = "Chunks are replaced"
    colour = "green" if found.is_partial else "yellow"
    yield verdict(what, colour, f"{found.selection} of ", (found.array, PATH))
    if found.reason:
        yield Line(("Reason: ", "bold"), f"{found.reason}.")
    if found.reopened:
        yield Line(("Settings: ", "bold"), f"{found.reopened}.")
    counts: dict[str, int | None] = {
        f"{found.kind}s with selected elements": found.chunks,
        "bytes selected": found.bytes_selected,
        "bytes read": found.bytes_fetched,
    }
    if found.is_write:
        counts["bytes written"] = found.bytes_written
    counts[f"bytes of these {found.kind}s"] = found.bytes_of_chunks
    others = {"files opened": found.opens, "requests": found.requests, "byte ranges": found.ranges}
    counts |= {name: count for name, count in others.items() if count}
    rows = [("read and written by", found.acts)]
    for name, count in counts.items():
        rows.append((name, "not known in advance" if count is None else in_digits(count)))
    if found.is_write:
        shared = "of different elements, on one machine" if found.may_share else "no"
        rows.append((f"writes by several processes to one {found.kind}", shared))
    yield from (Line(), Table((("A write" if found.is_write else "A read"), ""), rows))


@parts_of.register(Counted)
def _of_counted(found: Counted, **_: bool) -> Iterator[Part]:
    """The numbers of all stores together, then of each store."""
    texts = [number(found.chunks, "chunk"), f"{number(found.bytes_fetched, 'byte')} fetched"]
    texts += [f"{number(found.bytes_written, 'byte')} written"] * bool(found.bytes_written)
    yield Line((", ".join(texts), "bold"))
    columns = ("Store", "Chunks", "Opens", "Requests", "Ranges", "Bytes fetched", "Written")
    if found.stores:
        stores = list(found.stores.items())  # a list, as other threads may add stores
        rows: list[list[Text]] = [[(name, PATH), *map(in_digits, astuple(n))] for name, n in stores]
        yield from (Line(), Table(columns, rows))
