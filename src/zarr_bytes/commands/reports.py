"""Results of `check`, `migrate` and `preallocate`, as plain data; `tables` draws them."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from zarr_bytes.commands.text import number

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Allocated",
    "ArrayReport",
    "Change",
    "CheckReport",
    "Finding",
    "Migration",
    "Preallocation",
    "Progress",
    "Result",
]


class Result:
    """A result that prints as the tables of its command, and shows as HTML in Jupyter."""

    # By name, because `tables` imports the results.

    def __repr__(self) -> str:
        text: str = import_module(".tables", __package__).text_of(self)
        return text

    def _repr_html_(self) -> str:
        text: str = import_module(".tables", __package__).html_of(self)
        return text


@dataclass(frozen=True)
class Finding:
    """A value that does not conform, and the ones that would.

    Attributes
    ----------
    subject : str
        A member of the metadata document, or a chunk's key.
    found, permitted : str
        The value that is there, and those that would conform.
    is_note : bool
        Whether the value is permitted, but worth knowing.
    migrate : str
        The change that `migrate` makes, such as "adds bytes"; empty where it makes none, also
        because something else in the document is in its way.
    """

    subject: str
    found: str
    permitted: str = ""
    is_note: bool = False
    migrate: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress of a check: nodes done and found so far, and chunks of the present array."""

    path: str
    nodes_done: int
    nodes_found: int
    chunks_done: int = 0
    chunks: int = 0


@dataclass
class ArrayReport:
    """The findings for an array, or for a document that is not an array's.

    Attributes
    ----------
    path : str
        Path within the store; empty for the root.
    kind : str
        "array", "group", "format 2", "unreadable" or "link".
    data_type : object
        The data type, as in the document.
    codecs : list of str
        Names of the codecs.
    chunks, stored_chunks : int or None
        Number of chunks of the grid, and of those that are stored. None where the chunks are not
        checked.
    not_checked : str
        Why the chunks, or some of them, are not checked; for a group, why its members are not.
    findings : list of Finding
        Values that are not permitted, or differ from those in another document; and notes.
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
        """Whether all findings are notes."""
        return all(finding.is_note for finding in self.findings)

    @property
    def is_worth_saying(self) -> bool:
        """Whether the report of a group has any content."""
        return bool(self.findings or self.not_checked)


@dataclass(frozen=True, repr=False)
class CheckReport(Result):
    """The reports of `check` for a store, and the verdict.

    Prints as the table that the command shows. A loop over it gives an `ArrayReport` for every
    array, and for every other document with findings.

    Attributes
    ----------
    store : str
        Path or URL of the store, or a text of the store object.
    nodes : list of ArrayReport
        Report of each array and group, by path.
    verdict : str
        The verdict in words, with everything that was not checked.
    conforms : bool
        Whether everything found is permitted, and something was checked.
    is_complete : bool
        Whether everything was checked.
    arrays, arrays_not_checked : int
        Number of arrays, and of arrays whose chunks, or some of them, were not checked.
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
        """Report of the store that has the `nodes`."""
        reports = [report for report in nodes if report.kind != "link"]
        failing = sum(not report.conforms for report in reports)
        arrays = [report for report in reports if report.kind == "array"]
        unchecked = sum(bool(report.not_checked) for report in arrays)
        old = sum(report.kind == "format 2" for report in reports)
        is_complete = not any(report.not_checked for report in reports)
        is_empty = not arrays and not is_complete
        if failing:
            text = f"{failing:,} of {len(reports):,} do not conform"
        elif is_empty:
            only = "it holds nothing but Zarr format 2"
            text = only if old else "the store cannot list, and no array in it is known"
            text = f"Not checked: {text}"
        elif unchecked:
            text = "Metadata conforms"
        else:
            text = "Conforms" if is_complete else "What is of Zarr format 3 conforms"
        if unchecked:
            text += f"; chunks of {unchecked:,} of {number(len(arrays), 'array')} not checked"
        if old and (failing or not is_empty):
            text += f"; {number(old, 'array')} of Zarr format 2 not checked"
        conforms = not (failing or is_empty)
        return cls(store, nodes, text, conforms, is_complete, len(arrays) + old, unchecked + old)

    def __iter__(self) -> Iterator[ArrayReport]:
        return iter(self.nodes)


@dataclass(frozen=True)
class Change:
    """A document to be rewritten: its key, both texts, and the differences in words."""

    path: str
    key: str
    old: bytes
    new: bytes
    steps: list[str]


@dataclass(repr=False)
class Migration(Result):
    """The changes to a store, planned or made.

    Prints as the table that the command shows. A loop over it gives every `Change`.

    Attributes
    ----------
    store : str
        Path or URL of the store, or a text of the store object.
    changes : list of Change
        Documents to be rewritten, arrays first.
    refused : dict
        Reasons why documents cannot be rewritten, by path.
    leftovers : dict
        Old documents by key, which an earlier run was stopped before deleting: the new ones are in
        order.
    format_2 : list of str
        Paths of arrays of Zarr format 2, which has no draft form.
    is_written : bool
        Whether all of the changes have been made, and the leftovers removed.
    """

    store: str = ""
    changes: list[Change] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    leftovers: dict[str, bytes] = field(default_factory=dict)
    format_2: list[str] = field(default_factory=list)
    is_written: bool = False

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)


@dataclass(repr=False)
class Allocated(Result):
    """The chunks of one array that were made in advance.

    Attributes
    ----------
    path : str
        Path of the array within its store.
    chunks : int
        Number of chunks that are there now; of shards, where the chunks are shards.
    made, completed : int
        Number of chunks that were made, and of shards that have got the inner chunks they lacked.
    refused : str
        The reason why nothing, or not all, was made; empty where all was.
    """

    path: str
    chunks: int
    made: int = 0
    completed: int = 0
    refused: str = ""


@dataclass(repr=False)
class Preallocation(Result):
    """The chunks of all arrays of a store that were made in advance.

    Attributes
    ----------
    store : str
        Path of the store.
    arrays : list of Allocated
        One for each array.
    """

    store: str
    arrays: list[Allocated]

    def __iter__(self) -> Iterator[Allocated]:
        return iter(self.arrays)
