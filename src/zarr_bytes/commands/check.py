"""Does a store conform: the metadata and the chunks of every array. Nothing is written."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import zarr
from zarr.api.asynchronous import open_array, open_group
from zarr.buffer import cpu
from zarr.storage import MemoryStore

from zarr_bytes.chunk.layout import has_fixed_size, layout_of
from zarr_bytes.commands.chunk_grid import ChunkGrid
from zarr_bytes.commands.codec_chain import is_plain, name_of
from zarr_bytes.commands.conformance import (
    LARGEST_ELEMENT,
    Finding,
    array_findings,
    data_type_of,
)
from zarr_bytes.commands.consolidated import Copies, has_copies
from zarr_bytes.commands.hierarchy import Hierarchy, consolidated
from zarr_bytes.commands.reports import ArrayReport
from zarr_bytes.commands.sources import DOCUMENT
from zarr_bytes.commands.stored_chunks import MOST_REQUESTS, check_chunks
from zarr_bytes.commands.stores import source_of
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from zarr.abc.store import Store

    from zarr_bytes.chunk.layout import ElementLayout
    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.sources import Source

__all__ = ["Progress", "check_store", "encoding_finding", "refusal"]


@dataclass(frozen=True)
class Progress:
    """How far a check is: nodes done of those found so far, and chunks of the present array."""

    path: str
    nodes_done: int
    nodes_found: int
    chunks_done: int = 0
    chunks: int = 0


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
    source = source_of(store)
    try:
        listed = await source.can_list()
        hierarchy = Hierarchy(source, listed=listed)
        # Those that the present node is in, and that have consolidated metadata.
        groups: list[tuple[ArrayReport, Copies]] = []
        done = 0
        async for node in hierarchy.nodes():
            while groups and not groups[-1][1].holds(node.path):
                if await _finish(*groups[-1], hierarchy):
                    yield groups[-1][0]
                groups.pop()
            report = ArrayReport(node.path, node.kind)
            if groups:
                report.findings += groups[-1][1].compare(node)
            state = Progress(node.path, done, done + 1 + hierarchy.pending)
            await _check_node(source, node, report, partial(_advance, progress, state), listed)
            done += 1
            if node.kind == "group" and has_copies(node):
                groups.append((report, Copies(node)))
            elif node.kind != "group" or report.is_worth_saying:
                yield report
        for report, copies in reversed(groups):
            if await _finish(report, copies, hierarchy):
                yield report
    finally:
        source.close()


def _advance(
    progress: Callable[[Progress], None], state: Progress, chunks_done: int, chunks: int
) -> None:
    progress(replace(state, chunks_done=chunks_done, chunks=chunks))


async def _check_node(
    source: Source,
    node: Node,
    report: ArrayReport,
    progress: Callable[[int, int], None],
    listed: bool,  # noqa: FBT001
) -> None:
    match node.kind:
        case "array":
            progress(0, 0)
            await _check_array(source, node, report, progress, listed=listed)
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


async def _finish(report: ArrayReport, copies: Copies, hierarchy: Hierarchy) -> bool:
    """Complete the report of a group all of whose members have been met; is anything in it."""
    report.findings += [finding async for finding in copies.remaining(hierarchy)]
    report.findings += copies.findings
    return report.is_worth_saying


_NOT_LISTED: Final = Finding(
    "group", "the store cannot list, and nothing is consolidated: name an array in it", is_note=True
)
_TOO_DEEP: Final = Finding(DOCUMENT, "it is nested deeper than Python and zarr follow")


async def _check_group(node: Node, report: ArrayReport) -> None:
    with zarr.config.set(_STRICT):
        report.findings += _text_findings(node)
        if reason := await refusal(node.text, open_group):
            report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))


async def _check_array(
    source: Source,
    node: Node,
    report: ArrayReport,
    progress: Callable[[int, int], None],
    *,
    listed: bool,
) -> None:
    codecs = node.document.get("codecs")
    report.data_type = node.document.get("data_type")
    report.codecs = [name_of(c) or "?" for c in codecs] if isinstance(codecs, list) else []
    layout = None
    with zarr.config.set(_STRICT):
        report.findings += _text_findings(node)
        try:
            report.findings += array_findings(node.document)
            layout = _layout(node.document)
        except RecursionError:
            report.findings.append(_TOO_DEEP)
        except Exception as error:  # noqa: BLE001 -- whatever a data type or codec raises
            report.findings.append(Finding(DOCUMENT, f"it cannot be checked: {in_words(error)}"))
        is_too_large = layout is not None and layout.item_size > LARGEST_ELEMENT
        if report.conforms and not is_too_large and (reason := await refusal(node.text)):
            report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))
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
        found = await check_chunks(
            source,
            node.path,
            grid,
            layout,
            listed=listed,
            progress=lambda done: progress(done, grid.count),
        )
        report.chunks, report.stored_chunks = grid.count, found.stored
        report.findings += found.findings
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


def _text_findings(node: Node) -> list[Finding]:
    """What is wrong with a document as a text."""
    found = [Finding(DOCUMENT, f"{c} is no JSON", f'"{c}"') for c in dict.fromkeys(node.constants)]
    encoding = encoding_finding(node)
    return found if encoding is None else [encoding, *found]


def encoding_finding(node: Node) -> Finding | None:
    """Finding for a document that zarr reads although it is not encoded as JSON is (RFC 8259)."""
    if node.encoding == "utf-8":
        return None
    found = "a byte order mark" if node.encoding == "utf-8-sig" else node.encoding.upper()
    return Finding(DOCUMENT, f"encoded with {found}", "UTF-8 without a byte order mark")


async def refusal(text: bytes, open_node: Callable[..., Any] = open_array) -> str | None:
    """Why zarr does not open the array that a metadata document describes, or None if it does."""
    store = MemoryStore({DOCUMENT: cpu.Buffer.from_bytes(text)})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what zarr warns of, it reads
            await open_node(store=store, mode="r", zarr_format=3)
    except Exception as error:  # noqa: BLE001 -- whatever zarr and any codec raise
        return in_words(error)
    return None


def _layout(document: dict[str, Any]) -> ElementLayout | None:
    try:
        dtype = data_type_of(document).to_native_dtype()
        return layout_of(dtype) if has_fixed_size(dtype) else None
    except (ArithmeticError, ImportError, KeyError, TypeError, ValueError):
        return None
