"""The results of the commands as lines and tables: one function for each kind of result."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.counting import Counted
from zarr_bytes.commands.draft import indented
from zarr_bytes.commands.explain import Explanation
from zarr_bytes.commands.reports import Allocated, CheckReport, Migration, Preallocation
from zarr_bytes.commands.screen import PATH, Line, Table, html, plain
from zarr_bytes.commands.selection_tables import (
    counted_parts,
    counted_verdict,
    explanation_parts,
    explanation_verdict,
)
from zarr_bytes.commands.status_tables import status_parts, status_verdict
from zarr_bytes.commands.text import brief, cut, in_digits, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized
    from typing import TypeAlias

    from zarr_bytes.commands.reports import ArrayReport, Change, Finding
    from zarr_bytes.commands.screen import Part, Text
    from zarr_bytes.commands.status import Status

    Drawable: TypeAlias = (
        Status | CheckReport | Migration | Allocated | Preallocation | Explanation | Counted
    )

__all__ = ["drawn", "html_of", "text_of"]

_SHOWN: Final = 10  # findings of one array, documents to migrate; --json, or the store, has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_LARGEST_DIFFERENCE: Final = 2**20  # characters of a document whose change is shown as lines


def drawn(found: Drawable, *, in_full: bool = False) -> tuple[Line, Iterator[Part]]:
    """Verdict of a result in one line, and the parts below it; every detail if `in_full`."""
    if isinstance(found, CheckReport):
        return _check_verdict(found), _check(found.nodes, in_full=in_full)
    if isinstance(found, Migration):
        return _migration_verdict(found), _migration(found)
    if isinstance(found, Allocated | Preallocation):
        arrays = [found] if isinstance(found, Allocated) else found.arrays
        return _allocated_verdict(arrays), _allocated(arrays)
    if isinstance(found, Explanation):
        return explanation_verdict(found), explanation_parts(found)
    if isinstance(found, Counted):
        return counted_verdict(found), counted_parts(found)
    return status_verdict(found), status_parts(found, in_full=in_full)


def text_of(found: Drawable) -> str:
    """A result as plain text."""
    verdict, parts = drawn(found)
    return plain([verdict, *parts])


def html_of(found: Drawable) -> str:
    """A result as HTML."""
    verdict, parts = drawn(found)
    return html([verdict, *parts])


def _check_verdict(found: CheckReport) -> Line:
    colour = "green" if found.is_complete else "yellow"
    style = f"bold {colour if found.conforms else 'red'}"
    return Line((f"{found.verdict}: ", style), found.store)


def _check(reports: list[ArrayReport], *, in_full: bool) -> Iterator[Part]:
    """A row for every array, or if there are many, for those with findings; then the findings."""
    rows = [report for report in reports if report.kind != "group"]
    found = sorted((r for r in reports if r.findings), key=lambda report: report.conforms)
    most = len(reports) if in_full or len(rows) <= _MANY else _MANY
    quiet = 0
    if most < len(rows):
        listed = [report for report in found if report.kind != "group"]
        quiet = len(rows) - len(listed)
        rows = listed[:most]
    if rows:
        names = ("Array", "Data type", "Codecs", "Chunks", "")
        yield from (Line(), Table(names, map(_array_row, rows)))
    if quiet:
        yield Line((f"{number(quiet, 'array')} without findings: --all lists them", "dim"))
    for report in found[:most]:
        columns = ((f"/{report.path}", PATH), "Found", "Permitted")
        yield from (Line(), Table(columns, map(_finding_row, report.findings[:_SHOWN])))
        yield from _and_more(report.findings, _SHOWN, ": zarr-bytes check --json gives all")
    yield from _and_more(found, most, " with findings: --all lists them")


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


def _migration_verdict(found: Migration) -> Line:
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
    return Line((f"{'; '.join(counts)}: ", f"bold {colour}"), found.store)


def _migration(found: Migration) -> Iterator[Part]:
    """Changes and removals by `migrate`, planned or made, and the documents it cannot change."""
    yield from _changes(found.changes)
    if found.leftovers:
        title = "Left by an earlier run that was stopped, and to be removed"
        yield from (Line(), Line((title, "bold")))
        for key in list(found.leftovers)[:_MANY]:
            yield Line((key, PATH), indent=2, is_cut=True)
        yield from _and_more(found.leftovers, _MANY)
    if found.refused:
        refused = list(found.refused.items())[:_MANY]
        rows = (((f"/{path}", PATH), (reason, "red")) for path, reason in refused)
        yield from (Line(), Table(("Not migrated", "Reason"), rows))
        yield from _and_more(found.refused, _MANY, ": zarr-bytes check --json gives all")


def _allocated_verdict(arrays: list[Allocated]) -> Line:
    made, completed = sum(a.made for a in arrays), sum(a.completed for a in arrays)
    steps = [f"{number(made, 'chunk')} made"]
    steps += [f"{number(completed, 'shard')} completed"] * bool(completed)
    refused = sum(bool(array.refused) for array in arrays)
    steps += [f"{refused:,} of {number(len(arrays), 'array')} refused"] * bool(refused)
    there = sum(array.chunks for array in arrays)
    return Line(
        (f"{', '.join(steps)}: ", f"bold {'red' if refused else 'green'}"), f"{there:,} there now"
    )


def _allocated(arrays: list[Allocated]) -> Iterator[Part]:
    """Chunks of each array that are there now, and the arrays whose chunks cannot be made."""
    if len(arrays) > 1:
        rows = (
            ((f"/{a.path}", PATH), f"{a.chunks:,}", f"{a.made:,}", f"{a.completed:,}")
            for a in arrays[:_MANY]
        )
        yield from (Line(), Table(("Array", "There now", "Made", "Completed"), rows))
        yield from _and_more(arrays, _MANY)
    refused = [array for array in arrays if array.refused]
    if refused:
        reasons = (((f"/{a.path}", PATH), (a.refused, "red")) for a in refused[:_MANY])
        yield from (Line(), Table(("Refused", "Reason"), reasons))
        yield from _and_more(refused, _MANY)


def _changes(changes: list[Change]) -> Iterator[Line]:
    """The first of the documents with equal steps, and the keys of the others."""
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
    """Each step in words, and the lines that differ; a document on one line is indented first."""
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
    for text in lines[: 4 * _SHOWN]:
        colour = {"+": "green", "-": "red"}.get(text[0], "dim")
        yield ("...", "dim") if text.startswith("@@") else (text.removesuffix("\r"), colour)
    if len(lines) > 4 * _SHOWN:
        yield "...", "dim"


def _and_more(things: Sized, shown: int, advice: str = "") -> Iterator[Line]:
    """A line with the number of things left out, if there are any."""
    if len(things) > shown:
        yield Line((f"... and {len(things) - shown:,} more{advice}", "dim"))
