"""`check`: the conformance of the metadata and chunks of every array of a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import zarr
from zarr.api.asynchronous import open_group

from zarr_bytes.activation import CLASSES
from zarr_bytes.commands.conformance import (
    LARGEST_ELEMENT,
    array_findings,
    element_layout,
    name_of,
    refusal,
    text_findings,
)
from zarr_bytes.commands.hierarchy import consolidated, is_path, node_at, nodes
from zarr_bytes.commands.migrate import is_migrated
from zarr_bytes.commands.reports import ArrayReport, CheckReport, Finding, Progress
from zarr_bytes.commands.sources import DOCUMENT, within
from zarr_bytes.commands.stored_chunks import check_chunks, note_unfinished, plain_chunks
from zarr_bytes.commands.stores import asked, opened, run
from zarr_bytes.commands.text import brief
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable

    from zarr.abc.store import Store

    from zarr_bytes.chunk.layout import ElementLayout
    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.sources import Source

__all__ = ["check", "check_store"]

# The configuration of this process does not change the verdict.
_STRICT: Final = {
    "zarr_bytes.fill_values": "strict",
    **{f"codecs.{name}": path for name, path in CLASSES.items()},
}
_NOT_LISTED: Final = Finding(
    "group", "the store cannot list, and nothing is consolidated: name an array in it", is_note=True
)
_TOO_DEEP: Final = Finding(DOCUMENT, "it is nested deeper than Python and zarr follow")
_AGAIN: Final = "zarr.consolidate_metadata writes it anew"
_STALE: Final = Finding(
    DOCUMENT,
    "the copy in the consolidated metadata of a group differs",
    "an equal copy: zarr.consolidate_metadata writes it",
)


def check(
    store: str | os.PathLike[str] | Store,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> CheckReport:
    """Check whether the metadata and the chunks of every array of a store conform; write nothing.

    The command ``zarr-bytes check`` calls this function.

    Parameters
    ----------
    store : str, os.PathLike or zarr.abc.store.Store
        A folder, a ``.zip`` file, a URL for fsspec, or an open store, with one array or a
        hierarchy.
    storage_options : mapping, optional
        Arguments for fsspec; only for a URL.
    progress : callable, optional
        Called with a `Progress`, in another thread.

    Returns
    -------
    CheckReport
        The report prints as a table. ``conforms`` is the verdict, and a loop over the report gives
        an `ArrayReport` for every array.

    Raises
    ------
    StoreError
        If the store cannot be opened, or holds no Zarr metadata.

    Examples
    --------
    >>> import zarr
    >>> store = zarr.storage.MemoryStore()
    >>> _ = zarr.create_array(store, shape=3, dtype="i4", fill_value=7, compressors=None)
    >>> report = check(store)
    >>> report.conforms, [(array.path, array.data_type) for array in report]
    (True, [('', 'int32')])
    """

    async def reports(store: Store) -> list[ArrayReport]:
        return [report async for report in check_store(store, progress)]

    with opened(store, storage_options) as (source, name):
        return CheckReport.of(name, run(reports(source)))


async def check_store(
    store: Store, progress: Callable[[Progress], None] = lambda _: None
) -> AsyncIterator[ArrayReport]:
    """Reports of every array of a store, and of every other document with findings.

    Raises
    ------
    StoreError
        If the store holds no Zarr metadata.
    """
    async with asked(store) as source:
        # Groups around the present node that have consolidated metadata, the outermost first.
        groups: list[_Copies] = []
        done = 0
        async for node, left in nodes(source):
            while groups and not groups[-1].holds(node.path):  # all its members are done
                if (whole := await groups.pop().report(source)).is_worth_saying:
                    yield whole
            report = ArrayReport(node.path, node.kind)
            if groups:
                report.findings += groups[-1].compare(node)
            state = Progress(node.path, done, done + 1 + left)
            await _check_node(source, node, report, progress, state)
            done += 1
            copies = node.document.get("consolidated_metadata")
            if node.kind == "group" and isinstance(copies, Mapping):
                groups.append(_Copies(node, report))
            elif node.kind != "group" or report.is_worth_saying:
                yield report
        for group in reversed(groups):
            if (whole := await group.report(source)).is_worth_saying:
                yield whole


async def _check_node(
    source: Source,
    node: Node,
    report: ArrayReport,
    progress: Callable[[Progress], None],
    state: Progress,
) -> None:
    match node.kind:
        case "array":
            progress(state)
            layout = await _check_document(node, report)
            try:
                grid, layout = plain_chunks(node.document, layout)
            except ValueError as error:
                report.not_checked = str(error)
            else:
                await check_chunks(source, report, grid, layout, progress, state)
        case "group":
            with zarr.config.set(_STRICT):
                report.findings += text_findings(node)
                if reason := await refusal(node.text, open_group):
                    report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))
            if not (source.is_listed or node.path or consolidated(node.document)):
                report.not_checked = "its members"
                report.findings.append(_NOT_LISTED)
        case "unreadable":
            report.findings.append(Finding(DOCUMENT, node.error, "a metadata document"))
        case "format 2" | "link" as kind:
            same = f"the same as /{node.target}"
            report.not_checked = same if kind == "link" else "Zarr format 2"
    if node.kind in ("array", "group", "format 2") and report.chunks is None:
        report.findings += await note_unfinished(source, node.path, below=node.kind != "group")


async def _check_document(node: Node, report: ArrayReport) -> ElementLayout | None:
    """Add the findings for the document of an array; return the layout of an element, if known."""
    codecs = node.document.get("codecs")
    report.data_type = node.document.get("data_type")
    report.codecs = [name_of(c) or "?" for c in codecs] if isinstance(codecs, list) else []
    layout = None
    with zarr.config.set(_STRICT):
        report.findings += text_findings(node)
        try:
            report.findings += array_findings(node.document)
            layout = element_layout(node.document)
        except RecursionError:
            report.findings.append(_TOO_DEEP)
        except Exception as error:  # noqa: BLE001 -- whatever a data type or codec raises
            report.findings.append(Finding(DOCUMENT, f"it cannot be checked: {in_words(error)}"))
        is_readable = layout is None or layout.item_size <= LARGEST_ELEMENT
        if report.conforms and is_readable and (reason := await refusal(node.text)):
            report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))
    if any(finding.migrate for finding in report.findings) and not await is_migrated(node):
        report.findings = [replace(finding, migrate="") for finding in report.findings]
    return layout


class _Copies:
    """The copies in the consolidated metadata of one group, and the findings for them.

    Consolidated metadata is not part of the specification, but zarr opens the members of a group by
    the copies: with one wrong copy, zarr does not open the group, or reads an array wrongly.

    Of nested groups with consolidated metadata, the nearest one compares a document with its copy.
    The report of each other group checks its own copy.
    """

    def __init__(self, group: Node, report: ArrayReport) -> None:
        self._report = report
        self._findings: list[Finding] = []
        self._prefix = within(group.path, "")
        self._copies = dict(consolidated(group.document))

    def holds(self, path: str) -> bool:
        """Whether `path` is below the group."""
        return path.startswith(self._prefix)

    def compare(self, node: Node) -> list[Finding]:
        """Findings for the copy of `node`, to be reported with the node."""
        if node.kind == "link":
            return []
        path = node.path.removeprefix(self._prefix)
        is_copied, copy = path in self._copies, self._copies.pop(path, None)
        if node.kind not in ("array", "group"):
            return []
        if not is_copied:
            found = f"no copy of {path}, which zarr therefore does not see"
            self._findings.append(Finding("consolidated_metadata", found, f"one; {_AGAIN}"))
            return []
        return [_STALE] if self._is_stale(path, node, copy) else []

    async def report(self, source: Source) -> ArrayReport:
        """Report of the group, with the copies not compared yet, such as of arrays behind links."""
        for path, copy in self._copies.items():
            subject = f"consolidated_metadata: {path}"
            if not is_path(path):
                self._report.findings.append(Finding(subject, "not the path of a node", _AGAIN))
                continue
            node = await node_at(source, self._prefix + path)
            if self._is_stale(path, node, copy):
                found = f"differs from its {DOCUMENT}"
                lost = f"a copy of a {DOCUMENT} that is not there"
                self._report.findings.append(Finding(subject, found if node else lost, _AGAIN))
        self._report.findings += self._findings
        return self._report

    def _is_stale(self, path: str, node: Node | None, copy: object) -> bool:
        """Whether zarr reads `node` differently by its copy; if so, add the copy's findings."""
        if node is not None and not _differs(node.document, copy):
            return False
        subject = f"consolidated_metadata: {path}"
        if not isinstance(copy, Mapping):
            self._findings.append(Finding(subject, brief(copy), "a metadata document"))
        elif copy.get("node_type") == "array":
            for finding in array_findings(copy):
                found = f"{finding.subject}: {finding.found}"
                self._findings.append(replace(finding, subject=subject, found=found, migrate=""))
        return True


def _differs(document: Mapping[str, Any], copy: object) -> bool:
    # Without attributes: no chunk is read by them, and they change without being consolidated. A
    # group has nothing else.
    if not isinstance(copy, Mapping):
        return True
    if document.get("node_type") == "group":
        return copy.get("node_type") != "group"
    return {**document, "attributes": None} != {**copy, "attributes": None}
