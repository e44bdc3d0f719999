"""Consolidated metadata: the copies that zarr reads instead of the documents, held to these.

It is no part of the specification, but where a group has it, zarr takes every member of the group
from it: one wrong copy, and zarr does not open the group or reads an array wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from zarr_bytes.commands.conformance import array_findings
from zarr_bytes.commands.hierarchy import consolidated, is_path
from zarr_bytes.commands.reports import Finding
from zarr_bytes.commands.sources import DOCUMENT, within
from zarr_bytes.commands.text import brief

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from zarr_bytes.commands.hierarchy import Hierarchy, Node

__all__ = ["Copies", "has_copies"]

_AGAIN: Final = "zarr.consolidate_metadata writes it anew"
_STALE: Final = Finding(
    DOCUMENT,
    "a group has another copy of it in its consolidated metadata",
    "the same: zarr.consolidate_metadata",
)


def has_copies(group: Node) -> bool:
    """Whether zarr takes the members of `group` from its consolidated metadata."""
    return isinstance(group.document.get("consolidated_metadata"), Mapping)


class Copies:
    """The copies in the consolidated metadata of one group.

    Of groups with consolidated metadata within each other, a document is held to the copy in the
    nearest; the copies in the others are `remaining`.

    Attributes
    ----------
    path : str
        The path of the group.
    findings : list of Finding
        What is wrong with copies, or lacking.
    """

    def __init__(self, group: Node) -> None:
        self.path = group.path
        self.findings: list[Finding] = []
        self._copies = dict(consolidated(group.document))

    def holds(self, path: str) -> bool:
        """Whether `path` is below the group."""
        return path.startswith(within(self.path, ""))

    def compare(self, node: Node) -> list[Finding]:
        """What is wrong with the copy of `node`, as findings for the node."""
        if node.kind == "link":
            return []
        path = node.path.removeprefix(within(self.path, ""))
        if path not in self._copies:
            if node.kind in ("array", "group"):
                found = f"no copy of {path}, which zarr therefore does not see"
                self.findings.append(Finding("consolidated_metadata", found, f"one; {_AGAIN}"))
            return []
        copy = self._copies.pop(path)
        if node.kind not in ("array", "group") or not _differs(node.document, copy):
            return []
        self._judge(path, copy)
        return [_STALE]

    async def remaining(self, hierarchy: Hierarchy) -> AsyncIterator[Finding]:
        """What is wrong with the copies of what was not met, such as arrays behind links."""
        for path, copy in self._copies.items():
            subject = f"consolidated_metadata: {path}"
            if not is_path(path):
                yield Finding(subject, "no path of a node", _AGAIN)
                continue
            node = await hierarchy.node(within(self.path, path))
            if node is None:
                yield Finding(subject, f"a copy of a {DOCUMENT} that is not there", _AGAIN)
            elif _differs(node.document, copy):
                yield Finding(subject, f"another copy than its {DOCUMENT}", _AGAIN)
            else:
                continue
            self._judge(path, copy)

    def _judge(self, path: str, copy: object) -> None:
        """Find what does not conform in a copy by itself."""
        subject = f"consolidated_metadata: {path}"
        if not isinstance(copy, Mapping):
            self.findings.append(Finding(subject, brief(copy), "a metadata document"))
        elif copy.get("node_type") == "array":
            for finding in array_findings(copy):
                found = f"{finding.subject}: {finding.found}"
                self.findings.append(Finding(subject, found, finding.permitted, finding.is_note))


def _differs(document: dict[str, Any], copy: object) -> bool:
    """Whether a copy would have the array or group read differently."""
    # Attributes do not decide how chunks are read, and change without being consolidated; of a
    # group there is nothing else.
    if not isinstance(copy, Mapping):
        return True
    if document.get("node_type") == "group":
        return copy.get("node_type") != "group"
    return document | {"attributes": None} != {**copy, "attributes": None}
