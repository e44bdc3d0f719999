"""Does a store conform: the metadata and the chunks of every array. Nothing is written."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import zarr
from zarr.api.asynchronous import open_array
from zarr.buffer import cpu
from zarr.storage import MemoryStore

from zarr_bytes.chunk.layout import has_fixed_size, layout_of
from zarr_bytes.commands.codec_chain import is_plain, name_of
from zarr_bytes.commands.conformance import Finding, array_findings, data_type_of
from zarr_bytes.commands.hierarchy import DOCUMENT, can_list, consolidated, nodes, within
from zarr_bytes.commands.stored_chunks import ChunkGrid, check_chunks
from zarr_bytes.errors import in_words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from zarr.abc.store import Store

    from zarr_bytes.chunk.layout import ElementLayout
    from zarr_bytes.commands.hierarchy import Node

__all__ = ["ArrayReport", "check_store", "refusal"]


@dataclass
class ArrayReport:
    """What was found for an array, or for a document that is no array's.

    Attributes
    ----------
    path : str
        Path within the store; empty for the root.
    kind : str
        "array", "group", "format 2" or "unreadable".
    data_type : object
        As the document has it.
    codecs : list of str
        Their names.
    chunks, stored_chunks : int or None
        Number of chunks of the grid, and of those that are stored. None where the chunks are not
        checked.
    not_checked : str
        Why the chunks are not.
    findings : list of Finding
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


async def check_store(
    store: Store, progress: Callable[[str, int, int], None] = lambda *_: None
) -> AsyncIterator[ArrayReport]:
    """Check every array of `store`, one after another.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Only read.
    progress : callable
        Called with the path of an array, the chunks done and the chunks of its grid, which are 0
        until the metadata has been read.

    Yields
    ------
    ArrayReport
        For every array, and for every other document that has something wrong with it.

    Raises
    ------
    StoreError
        If the store holds no Zarr metadata.
    """
    listed = await can_list(store)
    copies: dict[str, object] = {}
    async for node in nodes(store, listed=listed):
        report = ArrayReport(node.path, node.kind)
        match node.kind:
            case "array":
                await _check_array(store, node, report, progress, listed=listed)
                if node.path in copies and _differs(json.loads(node.text), copies[node.path]):
                    report.findings.append(_STALE)
            case "group":
                found = consolidated(json.loads(node.text))
                copies |= {within(node.path, path): copy for path, copy in found.items()}
                if listed or node.path or found:
                    continue
                report.findings.append(_NOT_LISTED)
            case "unreadable":
                report.findings.append(Finding(DOCUMENT, node.error, "a metadata document"))
            case "format 2":
                report.not_checked = "Zarr format 2"
        yield report


_NOT_LISTED: Final = Finding(
    "group", "the store cannot list, and nothing is consolidated: name an array in it", is_note=True
)
_STALE: Final = Finding(
    DOCUMENT,
    "a group has another copy of it in its consolidated metadata",
    "the same: zarr.consolidate_metadata",
)


def _differs(document: dict[str, object], copy: object) -> bool:
    """Whether a consolidated copy would have the array read differently."""
    # Attributes do not decide how chunks are read, and change without being consolidated.
    ours, other = document | {"attributes": None}, copy
    return not isinstance(other, dict) or ours != other | {"attributes": None}


async def _check_array(
    store: Store,
    node: Node,
    report: ArrayReport,
    progress: Callable[[str, int, int], None],
    *,
    listed: bool,
) -> None:
    progress(node.path, 0, 0)
    with zarr.config.set(_STRICT):
        document = json.loads(node.text, parse_constant=_NotJson)
        constants = [c.name for c in _constants(document)]
        report.findings += [Finding(DOCUMENT, f"{c} is no JSON", f'"{c}"') for c in constants]
        document = json.loads(node.text)
        report.findings += array_findings(document)
        report.data_type = document.get("data_type")
        codecs = document.get("codecs")
        report.codecs = [name_of(c) or "?" for c in codecs] if isinstance(codecs, list) else []
        if report.conforms and (reason := await refusal(node.text)):
            report.findings.append(Finding(DOCUMENT, f"zarr does not open it: {reason}"))
    layout = _layout(document)
    if not is_plain(codecs):
        report.not_checked = "not plain bytes"
    elif layout is None:
        report.not_checked = "item size not known"
    else:
        try:
            grid = ChunkGrid.of_document(document)
        except ValueError as error:
            report.not_checked = str(error)
            return
        report.chunks = grid.count
        found = await check_chunks(
            store,
            node.path,
            grid,
            layout,
            listed=listed,
            progress=lambda done: progress(node.path, done, grid.count),
        )
        report.stored_chunks = found.stored
        report.findings += found.findings


# What is in force in this process does not change what conforms.
_STRICT: Final = {
    "zarr_bytes.fill_values": "strict",
    "codecs.bytes": "zarr_bytes.codec.BytesCodec",
    "codecs.endian": "zarr_bytes.codec.EndianCodec",
}


async def refusal(text: bytes) -> str | None:
    """Why zarr does not open the array that a metadata document describes, or None if it does."""
    store = MemoryStore({DOCUMENT: cpu.Buffer.from_bytes(text)})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what zarr warns of, it reads
            await open_array(store=store, mode="r", zarr_format=3)
    except Exception as error:  # noqa: BLE001 -- whatever zarr and any codec raise
        return in_words(error)
    return None


class _NotJson:
    """``NaN``, ``Infinity`` or ``-Infinity`` without quotes, which Python reads and JSON lacks."""

    def __init__(self, name: str) -> None:
        self.name = name


def _constants(value: object) -> list[_NotJson]:
    if isinstance(value, _NotJson):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [constant for member in inner for constant in _constants(member)]


def _layout(document: dict[str, Any]) -> ElementLayout | None:
    try:
        dtype = data_type_of(document).to_native_dtype()
        return layout_of(dtype) if has_fixed_size(dtype) else None
    except (ImportError, KeyError, TypeError, ValueError):
        return None
