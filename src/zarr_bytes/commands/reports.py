"""Results of commands as plain data; `tables` draws them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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

    def _document(self) -> dict[str, Any]:
        """The content of the JSON document."""
        return vars(self)

    def __repr__(self) -> str:
        from zarr_bytes.commands import screen, tables

        return screen.plain(tables.parts_of(self))

    def _repr_html_(self) -> str:
        from zarr_bytes.commands import screen, tables

        return screen.html(tables.parts_of(self))


@dataclass(frozen=True)
class Finding:
    """A value that does not conform, and the permitted values.

    Attributes
    ----------
    subject : str
        A member of the metadata document, or the key of a chunk.
    found, permitted : str
        The value found, and the permitted values.
    is_note : bool
        Whether the value is permitted, but worth knowing.
    migrate : str
        The change by `migrate`, such as "adds bytes". Empty if there is none, for instance because
        of another finding in the document.
    """

    subject: str
    found: str
    permitted: str = ""
    is_note: bool = False
    migrate: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress of a command: nodes done and found so far, and chunks of the current array."""

    path: str
    nodes_done: int
    nodes_found: int
    chunks_done: int = 0
    chunks: int = 0


@dataclass
class ArrayReport:
    """The findings for an array, a group or another document.

    Attributes
    ----------
    path : str
        Path within the store; empty for the root.
    kind : str
        "array", "group", "format 2", "unreadable" or "link".
    data_type : object
        The data type in the document.
    codecs : list of str
        Names of the codecs.
    chunks, stored_chunks : int or None
        Number of chunks of the grid, and of stored chunks. None if the chunks are not checked.
    not_checked : str
        Why some or all chunks are not checked; for a group, why its members are not.
    findings : list of Finding
        Values that are not permitted or differ from a copy, and notes.
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
    """The verdict of `check` for a store, and its reports.

    Prints as the table of the command. A loop over it gives an `ArrayReport` for every array, and
    for every other document with findings.

    Attributes
    ----------
    store : str
        Path or URL of the store, or a text of the store object.
    nodes : list of ArrayReport
        Reports of arrays, and of other documents with findings.
    verdict : str
        The verdict in words, with the number of arrays not checked.
    conforms : bool
        Whether everything that was checked conforms; False if nothing was checked.
    is_complete : bool
        Whether everything was checked.
    arrays, arrays_not_checked : int
        Number of arrays, and of arrays with chunks that were not checked.
    """

    store: str
    conforms: bool
    verdict: str
    is_complete: bool
    arrays: int
    arrays_not_checked: int
    nodes: list[ArrayReport]

    @classmethod
    def of(cls, store: str, nodes: list[ArrayReport]) -> CheckReport:
        """Report of a store with the reports of its nodes."""
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
            text = "Conforms" if is_complete else "Everything of Zarr format 3 conforms"
        if unchecked:
            text += f"; chunks of {unchecked:,} of {number(len(arrays), 'array')} not checked"
        if old and (failing or not is_empty):
            text += f"; {number(old, 'array')} of Zarr format 2 not checked"
        conforms = not (failing or is_empty)
        return cls(store, conforms, text, is_complete, len(arrays) + old, unchecked + old, nodes)

    def __iter__(self) -> Iterator[ArrayReport]:
        return iter(self.nodes)

    def _document(self) -> dict[str, Any]:
        document = {name.removeprefix("is_"): value for name, value in vars(self).items()}
        return document | {"nodes": [{"conforms": r.conforms, **vars(r)} for r in self]}


@dataclass(frozen=True)
class Change:
    """The change of a document.

    Attributes
    ----------
    path : str
        Path of the array or group within the store.
    key : str
        Key of the document.
    old, new : bytes
        The document before and after the change.
    steps : list of str
        The differences in words.
    """

    path: str
    key: str
    old: bytes
    new: bytes
    steps: list[str]


@dataclass(repr=False)
class Migration(Result):
    """The changes to a store, planned or made.

    Prints as the table of the command. A loop over it gives every `Change`.

    Attributes
    ----------
    store : str
        Path or URL of the store, or a text of the store object.
    changes : list of Change
        Changes of documents, arrays first.
    refused : dict
        Reasons why documents cannot be migrated, by path.
    leftovers : dict
        Contents of the files of an interrupted earlier run, by key. They are no longer needed.
    format_2 : list of str
        Paths of arrays of Zarr format 2, which has no draft form.
    is_written : bool
        Whether all changes are made, and the leftovers removed.
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
    """The chunks of one array, made in advance.

    Attributes
    ----------
    path : str
        Path of the array within its store.
    chunks : int
        Number of chunks, or shards, that exist now.
    made, completed : int
        Number of new chunks, and of shards with new inner chunks.
    refused : str
        The reason why chunks are missing. Empty if none are.
    """

    path: str
    chunks: int
    made: int = 0
    completed: int = 0
    refused: str = ""


@dataclass(repr=False)
class Preallocation(Result):
    """The chunks of all arrays of a store, made in advance.

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
