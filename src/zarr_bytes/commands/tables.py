"""What the reports say, as lines and tables."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.json_text import indented
from zarr_bytes.commands.screen import Line, Table, and_more, line, path_cell, shown
from zarr_bytes.commands.text import brief, cut, in_digits, number
from zarr_bytes.errors import HOW_TO_INSTALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.commands.migrate import Change, Migration
    from zarr_bytes.commands.origin import Origin
    from zarr_bytes.commands.reports import ArrayReport, CheckReport
    from zarr_bytes.commands.screen import Cell, Part
    from zarr_bytes.commands.status import DataType, Setting, Status

__all__ = [
    "check_parts",
    "check_verdict",
    "migration_parts",
    "migration_verdict",
    "status_parts",
    "status_verdict",
]

_SHOWN: Final = 10  # findings of one array, documents to migrate; --json, or the store, has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_LARGEST_DIFFERENCE: Final = 2**20  # characters of a document whose change is shown as lines


def status_verdict(found: Status) -> Line:
    """Whether the package is active, in one line."""
    if found.is_active:
        lacking = [codec.name for codec in found.codecs if not codec.is_active]
        but = f" Not so for {' and '.join(lacking)}." if lacking else ""
        return line(
            ("Active:", "bold green"), f" zarr reads and writes bytes through zarr-bytes.{but}"
        )
    if found.problems:
        return line(("Not working:", "bold red"), " a setting is not permitted.")
    return line(("Not active:", "bold red"), " zarr does not use zarr-bytes.")


def status_parts(found: Status, *, verbose: bool = False) -> Iterator[Part]:
    """What is active, who decided it, and what to do where it is not."""
    yield line((", ".join(f"{name} {version}" for name, version in found.versions.items()), "dim"))
    table = Table((shown("Codec"), shown("Class"), shown("Decided by")))
    for codec in found.codecs:
        colour = "green" if codec.is_active else "red"
        table.rows.append((shown(codec.name), shown(codec.found, colour), _who(codec.origin)))
    pipeline = found.pipeline
    table.rows.append((shown("pipeline"), path_cell(pipeline.found), _who(pipeline.origin)))
    yield from (line(), table, line())
    yield line(("Parts of chunks ", "bold"), f"{pipeline.acts_for}.")
    yield line(("New arrays ", "bold"), f"have {found.new_arrays}.")
    if verbose:
        table = Table((shown("Data type"), shown("Class")), _grouped(found.data_types))
        yield from (line(), table)
    else:
        yield _data_types(found.data_types)
    table = Table((shown("Setting"), shown("Value"), shown("Decided by")))
    for setting in found.settings:
        table.rows.append((shown(setting.name), shown(_value(setting)), _who(setting.origin)))
    yield from (line(), table)
    if found.problems or found.advice:
        yield from (line(), line(("What to do", "bold")))
    for text in (*found.problems, *found.advice):
        # A command is to be copied as one line.
        yield line(text, indent=2, is_whole=text.startswith(("export ", "unset ")))


def _data_types(data_types: list[DataType]) -> Line:
    """How many data types are this package's, in one line."""
    lacking = [d for d in data_types if d.lacks]
    others = [d.name for d in data_types if not (d.is_active or d.lacks)]
    active = len(data_types) - len(lacking) - len(others)
    texts: list[str | tuple[str, str]] = [
        ("Data types: ", "bold"),
        f"{active} of {len(data_types)} by zarr-bytes",
    ]
    if lacking:
        texts.append((f"; {len(lacking)} lack {_how(lacking[0])}", "yellow"))
    if others:
        texts.append((f"; by others: {', '.join(others)}", "yellow"))
    return line(*texts, ("; --verbose lists them", "dim"))


def _how(data_type: DataType) -> str:
    """The package that a data type lacks, and how to get it."""
    return f"{data_type.lacks}: {HOW_TO_INSTALL[data_type.lacks or '']}"


def _grouped(data_types: list[DataType]) -> list[tuple[Cell, ...]]:
    """One row for the data types in each module that are as they should be, one for each other."""
    modules: dict[str, list[str]] = {}
    others: list[tuple[Cell, ...]] = []
    for data_type in data_types:
        if data_type.lacks:
            others.append((shown(data_type.name), shown(f"lacks {_how(data_type)}", "yellow")))
        elif not data_type.is_active:
            others.append((shown(data_type.name), shown(data_type.found, "yellow")))
        else:
            modules.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    ours = [(shown(", ".join(names)), shown(module)) for module, names in modules.items()]
    return [*ours, *others]


def _value(setting: Setting) -> str:
    if isinstance(setting.value, int) and not isinstance(setting.value, bool):
        return _size(setting.value)
    return str(setting.value)


def _size(nbytes: int) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes and nbytes % 2**exponent == 0:
            return f"{in_digits(nbytes >> exponent)} {unit}"
    return f"{in_digits(nbytes)} bytes"


def _who(origin: Origin) -> Cell:
    if origin.kind == "default":
        return shown("default", "dim")
    if origin.kind == "environment variable":
        return shown(f"environment: {origin.name}")
    return path_cell(origin.name or origin.kind)


def check_verdict(found: CheckReport) -> Line:
    """Whether the store conforms, in one line."""
    colour = "green" if found.is_complete else "yellow"
    style = f"bold {colour if found.conforms else 'red'}"
    return line((f"{found.verdict}: ", style), found.store)


def check_parts(reports: list[ArrayReport], *, list_all: bool = False) -> Iterator[Part]:
    """A row for every array, or of many for those with findings, and then the findings."""
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
        yield from (line(), _array_table(rows))
    if quiet:
        yield line((f"{number(quiet, 'array')} without findings: --all lists them", "dim"))
    for report in found[:most]:
        yield from _finding_parts(report)
    yield from and_more(len(found) - most, " with findings: --all lists them")


def _array_table(reports: list[ArrayReport]) -> Table:
    table = Table(tuple(map(shown, ("Array", "Data type", "Codecs", "Chunks", ""))))
    for report in reports:
        table.rows.append(
            (
                path_cell(f"/{report.path}"),
                shown(_data_type_name(report.data_type)),
                shown(", ".join(report.codecs)),
                shown(_chunks(report)),
                _result(report),
            )
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


def _result(report: ArrayReport) -> Cell:
    count = sum(not finding.is_note for finding in report.findings)
    if count:
        return shown(number(count, "finding"), "red")
    if report.kind in ("format 2", "link"):
        return shown("")
    if report.not_checked:
        return shown("metadata conforms", "yellow")
    return shown("conforms", "green")


def _finding_parts(report: ArrayReport) -> Iterator[Part]:
    table = Table((path_cell(f"/{report.path}"), shown("Found"), shown("Permitted")))
    for finding in report.findings[:_SHOWN]:
        permitted = shown("note", "dim") if finding.is_note else shown(finding.permitted, "green")
        table.rows.append((path_cell(finding.subject), shown(finding.found), permitted))
    yield from (line(), table)
    yield from and_more(len(report.findings) - _SHOWN, ": zarr-bytes check --json gives all")


def migration_verdict(found: Migration) -> Line:
    """What is to be migrated, or has been, in one line."""
    draft = "migrated" if found.is_written else "of the draft form"
    leftover = "removed" if found.is_written else "of an earlier run"
    counts = [
        f"{number(len(found.changes), 'metadata document')} {draft}",
        f"{number(len(found.leftovers), 'leftover')} {leftover}",
        f"{number(len(found.refused), 'metadata document')} not migrated",
    ]
    things = (found.changes, found.leftovers, found.refused)
    counts = [count for count, of in zip(counts, things, strict=True) if of]
    is_open = (found.changes or found.leftovers) and not found.is_written
    colour = "yellow" if is_open else "red" if found.refused else "green"
    return line((f"{'; '.join(counts) or 'Nothing to migrate'}: ", f"bold {colour}"), found.store)


def migration_parts(found: Migration) -> Iterator[Part]:
    """What `migrate` would change and remove, or has, and what it cannot."""
    yield from _changes(found.changes)
    if found.leftovers:
        yield from (
            line(),
            line(("Left by an earlier run that was stopped, and to be removed", "bold")),
        )
        yield from (Line((path_cell(key),), indent=2) for key in list(found.leftovers)[:_MANY])
        yield from and_more(len(found.leftovers) - _MANY)
    if found.refused:
        table = Table((shown("Not migrated"), shown("Reason")))
        for path, reason in list(found.refused.items())[:_MANY]:
            table.rows.append((path_cell(f"/{path}"), shown(reason, "red")))
        yield from (line(), table)
        yield from and_more(len(found.refused) - _MANY, ": zarr-bytes check --json gives all")


def _changes(changes: list[Change]) -> Iterator[Line]:
    """One of the documents that change in the same way, and the keys of the others."""
    alike: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        alike.setdefault(tuple(change.steps), []).append(change)
    for first, *others in list(alike.values())[:_SHOWN]:
        yield from (line(), Line((shown(first.key, "bold"),)))
        for text, colour in _change_lines(first):
            yield Line((shown(f"  {text}", colour),))
        if others:
            keys = ", ".join(cut(other.key, 80) for other in others[:_SHOWN])
            more = "" if len(others) <= _SHOWN else f" and {len(others) - _SHOWN:,} more"
            yield line(f"the same in {keys}{more}", indent=2)
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
    for text in lines[: 4 * _SHOWN]:
        colour = {"+": "green", "-": "red"}.get(text[0], "dim")
        yield ("...", "dim") if text.startswith("@@") else (text.removesuffix("\r"), colour)
    if len(lines) > 4 * _SHOWN:
        yield "...", "dim"
