"""Does a store conform: the metadata and the chunks of every array. Nothing is written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import zarr
from zarr.api.asynchronous import open_group

from zarr_bytes.commands.chunk_grid import ChunkGrid
from zarr_bytes.commands.codec_chain import is_plain, name_of
from zarr_bytes.commands.conformance import (
    LARGEST_ELEMENT,
    array_findings,
    element_layout,
    refusal,
    text_findings,
)
from zarr_bytes.commands.consolidated import Copies, has_copies
from zarr_bytes.commands.hierarchy import Hierarchy, consolidated
from zarr_bytes.commands.migrate import is_migrated
from zarr_bytes.commands.reports import ArrayReport, Finding, Progress
from zarr_bytes.commands.sources import DOCUMENT
from zarr_bytes.commands.stored_chunks import MOST_REQUESTS, check_chunks, note_unfinished
from zarr_bytes.commands.stores import source_of
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from zarr.abc.store import Store

    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.sources import Source

__all__ = ["check_store"]


async def check_store(
    store: Store, progress: Callable[[Progress], None] = lambda _: None
) -> AsyncIterator[ArrayReport]:
    """Check every array of `store`, one after another.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Only read.
    progress : callable
        Called with what is done so far.

    Yields
    ------
    ArrayReport
        For every array, and for every other document that has something wrong with it.

    Raises
    ------
    StoreError
        If the store holds no Zarr metadata.
    """
    with closing(source_of(store)) as source:
        listed = await source.can_list()
        hierarchy = Hierarchy(source, listed=listed)
        # Those that the present node is in, and that have consolidated metadata.
        groups: list[tuple[ArrayReport, Copies]] = []
        done = 0
        async for node in hierarchy.nodes():
            async for finished in _left(groups, node.path, hierarchy):
                yield finished
            report = ArrayReport(node.path, node.kind)
            if groups:
                report.findings += groups[-1][1].compare(node)
            state = Progress(node.path, done, done + 1 + hierarchy.pending)
            await _check_node(source, node, report, progress, state, listed=listed)
            done += 1
            if node.kind == "group" and has_copies(node):
                groups.append((report, Copies(node)))
            elif node.kind != "group" or report.is_worth_saying:
                yield report
        async for finished in _left(groups, None, hierarchy):
            yield finished


async def _check_node(
    source: Source,
    node: Node,
    report: ArrayReport,
    progress: Callable[[Progress], None],
    state: Progress,
    *,
    listed: bool,
) -> None:
    match node.kind:
        case "array":
            progress(state)
            await _check_array(source, node, report, progress, state, listed=listed)
        case "group":
            await _check_group(node, report)
            if not (listed or node.path or consolidated(node.document)):
                report.not_checked = "its members"
                report.findings.append(_NOT_LISTED)
        case "unreadable":
            report.findings.append(Finding(DOCUMENT, node.error, "a metadata document"))
        case "format 2":
            report.not_checked = "Zarr format 2"
        case "link":
            report.not_checked = f"the same as /{node.target}"
    if node.kind in ("array", "group", "format 2") and report.chunks is None:
        report.findings += await note_unfinished(source, node.path, below=node.kind != "group")


async def _left(
    groups: list[tuple[ArrayReport, Copies]], path: str | None, hierarchy: Hierarchy
) -> AsyncIterator[ArrayReport]:
    """Complete reports of the `groups` that `path` is not in: all their members have been met."""
    while groups and (path is None or not groups[-1][1].holds(path)):
        report, copies = groups.pop()
        report.findings += [finding async for finding in copies.remaining(hierarchy)]
        report.findings += copies.findings
        if report.is_worth_saying:
            yield report


_NOT_LISTED: Final = Finding(
    "group", "the store cannot list, and nothing is consolidated: name an array in it", is_note=True
)
_TOO_DEEP: Final = Finding(DOCUMENT, "it is nested deeper than Python and zarr follow")


async def _check_group(node: Node, report: ArrayReport) -> None:
    with zarr.config.set(_STRICT):
        report.findings += text_findings(node)
        if reason := await refusal(node.text, open_group):
            report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))


async def _check_array(
    source: Source,
    node: Node,
    report: ArrayReport,
    progress: Callable[[Progress], None],
    state: Progress,
    *,
    listed: bool,
) -> None:
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
        is_too_large = layout is not None and layout.item_size > LARGEST_ELEMENT
        if report.conforms and not is_too_large and (reason := await refusal(node.text)):
            report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))
    if any(finding.migrate for finding in report.findings) and not await is_migrated(node):
        report.findings = [replace(finding, migrate="") for finding in report.findings]
    if not is_plain(codecs):
        report.not_checked = "not plain bytes"
    elif layout is None:
        report.not_checked = "item size not known"
    else:
        try:
            grid = ChunkGrid.of_document(node.document)
        except ValueError as error:
            report.not_checked = str(error)
            return
        report.chunks = grid.count
        report.stored_chunks, findings = await check_chunks(
            source,
            node.path,
            grid,
            layout,
            listed=listed,
            progress=lambda done: progress(replace(state, chunks_done=done, chunks=grid.count)),
        )
        report.findings += findings
        if is_too_large:
            report.not_checked = "elements too large to read"
        elif not listed and grid.count > MOST_REQUESTS:
            report.not_checked = "more than are asked for"


# What is in force in this process does not change what conforms.
_STRICT: Final = {
    "zarr_bytes.fill_values": "strict",
    "codecs.bytes": "zarr_bytes.codec.BytesCodec",
    "codecs.endian": "zarr_bytes.codec.EndianCodec",
}
