"""The results of all commands as lines and tables: one function for each kind of result."""

from __future__ import annotations

from dataclasses import asdict, astuple
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.counting import Counted
from zarr_bytes.commands.draft import indented
from zarr_bytes.commands.explain import Explanation
from zarr_bytes.commands.reports import Allocated, CheckReport, Migration, Preallocation
from zarr_bytes.commands.screen import PATH, Line, Table, html, plain
from zarr_bytes.commands.status import Status
from zarr_bytes.commands.status_tables import status_parts
from zarr_bytes.commands.text import as_json, brief, cut, in_digits, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized
    from typing import TypeAlias

    from zarr_bytes.commands.reports import ArrayReport, Change, Finding
    from zarr_bytes.commands.screen import Part, Text

    Drawable: TypeAlias = (
        Status | CheckReport | Migration | Allocated | Preallocation | Explanation | Counted
    )

__all__ = ["drawn", "html_of", "json_of", "text_of"]

_SHOWN: Final = 10  # findings of one array, documents to migrate; --json, or the store, has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_LARGEST_DIFFERENCE: Final = 2**20  # bytes of a document whose change is shown as lines


def drawn(found: Drawable, *, in_full: bool = False) -> Iterator[Part]:
    """The verdict of a result as one line, then the parts below; every detail if `in_full`."""
    match found:
        case CheckReport():
            return _check(found, in_full=in_full)
        case Migration():
            return _migration(found)
        case Allocated():
            return _allocated([found])
        case Preallocation():
            return _allocated(found.arrays)
        case Explanation():
            return _explanation(found)
        case Counted():
            return _counted(found)
    return status_parts(found, in_full=in_full)


def text_of(found: Drawable) -> str:
    """A result as plain text."""
    return plain(drawn(found))


def html_of(found: Drawable) -> str:
    """A result as HTML."""
    return html(drawn(found))


def json_of(found: Drawable) -> str:
    """A result as one JSON document."""
    if isinstance(found, CheckReport):
        # `asdict` would copy the data type, however deep it is.
        nodes = [
            {"conforms": report.conforms, **vars(report)}
            | {"findings": list(map(asdict, report.findings))}
            for report in found
        ]
        return as_json(
            {
                "store": found.store,
                "conforms": found.conforms,
                "verdict": found.verdict,
                "complete": found.is_complete,
                "arrays": found.arrays,
                "arrays_not_checked": found.arrays_not_checked,
                "nodes": nodes,
            }
        )
    active = {"active": found.is_active} if isinstance(found, Status) else {}
    return as_json(active | asdict(found))


def _check(found: CheckReport, *, in_full: bool) -> Iterator[Part]:
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


def _migration(found: Migration) -> Iterator[Part]:
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


def _allocated(arrays: list[Allocated]) -> Iterator[Part]:
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


def _explanation(found: Explanation) -> Iterator[Part]:
    """Whether a selection is read or written in part, the reason if it is not, and the numbers."""
    if found.is_write:
        what = "Written in place" if found.may_share else "Whole chunks are written"
        if not found.is_partial:
            what = "Chunks are replaced"
    else:
        what = "Partial" if found.is_partial else "Not partial"
    style = f"bold {'green' if found.is_partial else 'yellow'}"
    yield Line((f"{what}: ", style), f"{found.selection} of ", (found.array, PATH))
    if found.reason:
        yield Line(("Reason: ", "bold"), f"{found.reason}.")
    if found.reopened:
        yield Line(("Settings: ", "bold"), f"{found.reopened}.")
    rows: list[tuple[str, str]] = [
        ("read and written by", found.acts),
        (f"{found.kind}s with selected elements", in_digits(found.chunks)),
        ("bytes selected", in_digits(found.bytes_selected)),
        ("bytes read", _nbytes(found.bytes_fetched)),
    ]
    if found.is_write:
        rows.append(("bytes written", _nbytes(found.bytes_written)))
    rows.append((f"bytes of these {found.kind}s", in_digits(found.bytes_of_chunks)))
    rows += [
        (name, in_digits(count))
        for name, count in (
            ("files opened", found.opens),
            ("requests", found.requests),
            ("byte ranges", found.ranges),
        )
        if count
    ]
    if found.is_write:
        shared = "of different elements, on one machine" if found.may_share else "no"
        rows.append((f"writes by several processes to one {found.kind}", shared))
    yield from (Line(), Table((("A write" if found.is_write else "A read"), ""), rows))


def _counted(found: Counted) -> Iterator[Part]:
    """The numbers of all stores in one line, and of each store."""
    texts = [number(found.chunks, "chunk"), f"{number(found.bytes_fetched, 'byte')} fetched"]
    texts += [f"{number(found.bytes_written, 'byte')} written"] * bool(found.bytes_written)
    yield Line((", ".join(texts), "bold"))
    columns = ("Store", "Chunks", "Opens", "Requests", "Ranges", "Bytes fetched", "Written")
    if found.stores:
        stores = list(found.stores.items())  # a list, as other threads may add stores
        rows: Iterator[tuple[Text, ...]] = (
            ((store, PATH), *map(in_digits, astuple(counts))) for store, counts in stores
        )
        yield from (Line(), Table(columns, rows))


def _nbytes(count: int | None) -> str:
    return "not known: the chunks are compressed" if count is None else in_digits(count)


def _and_more(things: Sized, shown: int, advice: str = "") -> Iterator[Line]:
    """A line with the number of things left out, if any."""
    if len(things) > shown:
        yield Line((f"... and {len(things) - shown:,} more{advice}", "dim"))
