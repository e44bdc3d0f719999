"""What was found in a store: a report of each array, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zarr_bytes.commands.screen import plain
from zarr_bytes.commands.tables import check_parts, check_verdict
from zarr_bytes.commands.text import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.commands.conformance import Finding

__all__ = ["ArrayReport", "CheckReport"]


@dataclass
class ArrayReport:
    """What was found for an array, or for a document that is no array's.

    Attributes
    ----------
    path : str
        Path within the store; empty for the root.
    kind : str
        "array", "group", "format 2", "unreadable" or "link".
    data_type : object
        As the document has it.
    codecs : list of str
        Their names.
    chunks, stored_chunks : int or None
        Number of chunks of the grid, and of those that are stored. None where the chunks are not
        checked.
    not_checked : str
        Why the chunks, or some of them, are not; of a group, its members.
    findings : list of Finding
        What is not permitted, or not as it is written elsewhere.
    """

    path: str
    kind: str
    data_type: object = None
    codecs: list[str] = field(default_factory=list)
    chunks: int | None = None
    stored_chunks: int | None = None
    not_checked: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def conforms(self) -> bool:
        """Whether nothing was found that is not permitted."""
        return all(finding.is_note for finding in self.findings)

    @property
    def is_worth_saying(self) -> bool:
        """Whether there is anything in the report of a group."""
        return bool(self.findings or self.not_checked)


@dataclass(frozen=True, repr=False)
class CheckReport:
    """What `check` has found in a store, and what that comes to.

    Prints as the table that the command shows. A loop over it gives an `ArrayReport` for every
    array, and for every other document that has something wrong with it.

    Attributes
    ----------
    store : str
        Where it is.
    nodes : list of ArrayReport
        Of each array and group, by path.
    verdict : str
        In words, also what was not checked.
    conforms : bool
        Whether nothing was found that is not permitted, and something was checked.
    is_complete : bool
        Whether everything was checked.
    arrays, arrays_not_checked : int
        Number of arrays, and of those of which the chunks, or some of them, were not checked.
    """

    store: str
    nodes: list[ArrayReport]
    verdict: str
    conforms: bool
    is_complete: bool
    arrays: int
    arrays_not_checked: int

    @classmethod
    def of(cls, store: str, nodes: list[ArrayReport]) -> CheckReport:
        """Report of the store that `nodes` are in."""
        reports = [report for report in nodes if report.kind != "link"]
        failing = sum(not report.conforms for report in reports)
        arrays = [report for report in reports if report.kind == "array"]
        unchecked = sum(bool(report.not_checked) for report in arrays)
        old = sum(report.kind == "format 2" for report in reports)
        is_complete = not any(report.not_checked for report in reports)
        is_empty = not arrays and not is_complete
        if failing:
            text = f"{failing:,} of {len(reports):,} do not conform"
        elif is_empty and old:
            text = "Not checked: it holds nothing but Zarr format 2"
        elif is_empty:
            text = "Not checked: the store cannot list, and no array in it is known"
        elif unchecked:
            text = "Metadata conforms"
        else:
            text = "Conforms" if is_complete else "What is of Zarr format 3 conforms"
        if unchecked:
            text += f"; chunks of {unchecked:,} of {number(len(arrays), 'array')} not checked"
        if old and not (is_empty and not failing):
            text += f"; {number(old, 'array')} of Zarr format 2 not checked"
        conforms = not (failing or is_empty)
        return cls(store, nodes, text, conforms, is_complete, len(arrays) + old, unchecked + old)

    def __iter__(self) -> Iterator[ArrayReport]:
        return iter(self.nodes)

    def __repr__(self) -> str:
        return plain([check_verdict(self), *check_parts(self.nodes)])
