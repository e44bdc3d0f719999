"""Consolidated metadata, compared with the documents that it copies.

Consolidated metadata is not part of the specification, but zarr opens the members of a group by the
copies: with one wrong copy, zarr does not open the group, or reads an array wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from zarr_bytes.commands.conformance import array_findings
from zarr_bytes.commands.hierarchy import consolidated, is_path, node_at
from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.sources import DOCUMENT, within
from zarr_bytes.commands.text import brief

if TYPE_CHECKING:
    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.reports import ArrayReport
    from zarr_bytes.commands.sources import Source

__all__ = ["Copies"]

_AGAIN: Final = "zarr.consolidate_metadata writes it anew"
_STALE: Final = Finding(
    DOCUMENT,
    "the copy in the consolidated metadata of a group differs",
    "an equal copy: zarr.consolidate_metadata writes it",
)


class Copies:
    """The copies in the consolidated metadata of one group, and the findings for them.

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
