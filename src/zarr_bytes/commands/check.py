"""`check`: a test of every node of a store, and of its stored chunks against the metadata.

Specification: bytes codec 1.0, "Format and algorithm" and "Supported data types" (`bool`); sharding
codec 1.0, "Binary shard format".
"""

from __future__ import annotations

import json
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import lt
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.api.asynchronous import open_array, open_group
from zarr.buffer import cpu
from zarr.storage import MemoryStore

from zarr_bytes.chains import (
    codec_name_or_class_name,
    encoding_of_uncompressed,
    is_uncompressed,
    why_shard_is_not_divisible,
)
from zarr_bytes.commands.result import (
    Progress,
    Result,
    count_with_noun,
    iter_shortened_table,
    short_json,
    thousands_or_power_of_ten,
    verdict_line,
)
from zarr_bytes.commands.stores import (
    METADATA_KEY,
    join_key,
    list_keys_by_node,
    open_store,
    read_metadata_document,
)
from zarr_bytes.errors import FillValueError, describe_error, wrong_size_error
from zarr_bytes.indexing.selection import ChunkGrid
from zarr_bytes.io.tasks import map_concurrently
from zarr_bytes.layout.elements import offset_of_first_invalid_bool
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX, ShardIndex
from zarr_bytes.settings import CLASSES, reads_fill_values_strictly, zarr_setting_or_default
from zarr_bytes.zarr_versions import chunk_spec_if_regular, sync

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from zarr.abc.store import Store

    from zarr_bytes.commands.result import Cell, OutputPart
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.zarr_versions import ArrayV3Metadata

_MAX_LISTED: Final = 20  # nodes that are listed, first those with findings, and findings of one
_MAX_CHUNKS: Final = 10**1000  # a count that is printed; Python prints at most 4,300 digits
_MAX_BOOL_NBYTES: Final = 2**23  # bytes of bools read at once
# Temporary files of LocalStore and of this package.
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.partial\Z")
# Settings with which nodes are opened, so that the verdict is the same in every process.
_CONFIG: Final = {
    "array.rectilinear_chunks": True,
    **{f"codecs.{name}": path for name, path in CLASSES.items()},
}


@dataclass(frozen=True)
class Finding:
    """A value that does not conform, or a note, and the permitted values."""

    subject: str  # a member of the metadata document, or the key of a chunk
    found: str
    permitted: str = ""
    is_note: bool = False  # permitted, but worth knowing


@dataclass
class ArrayReport:
    """The findings for an array, a group or another document."""

    path: str
    kind: str  # "array", "group", "format 2" or "unreadable"
    conforms: bool = True  # all findings are notes
    data_type: str = ""
    codecs: list[str] = field(default_factory=list)
    chunks: int | None = None  # of the grid, and stored ones; None if they are not checked
    stored_chunks: int | None = None
    not_checked: str = ""  # why chunks, or the members of a group, are not
    findings: list[Finding] = field(default_factory=list)

    def _table_row(self) -> tuple[Cell, ...]:
        """The row of the table of nodes."""
        chunks = ""
        result = ("conforms", "green")
        if self.chunks is not None:
            chunks = f"{self.stored_chunks:,} of {thousands_or_power_of_ten(self.chunks)} stored"
        elif self.not_checked:
            chunks = f"not checked: {self.not_checked}"
            result = ("metadata conforms" if self.codecs else "", "yellow")
        if count := sum(not finding.is_note for finding in self.findings):
            result = (count_with_noun(count, "finding"), "red")
        return f"/{self.path}", self.data_type, ", ".join(self.codecs), chunks, result


@dataclass(frozen=True, repr=False)
class CheckReport(Result):
    """The result of `check`. Prints as a table; iteration gives each `ArrayReport`."""

    store: str
    conforms: bool  # False also if nothing was checked
    verdict: str
    is_complete: bool  # whether everything was checked
    nodes: list[ArrayReport]

    def __iter__(self) -> Iterator[ArrayReport]:
        return iter(self.nodes)

    def _iter_output_parts(self, *, in_full: bool = False) -> Iterator[OutputPart]:
        colour = "red" if not self.conforms else "green" if self.is_complete else "yellow"
        yield verdict_line(self.verdict, colour, self.store)
        nodes = sorted(self, key=lambda report: not report.findings)
        max_nodes = len(nodes) if in_full else _MAX_LISTED
        if nodes:
            columns = ("Node", "Data type", "Codecs", "Chunks", "")
            rows = [report._table_row() for report in nodes]
            yield from iter_shortened_table(columns, rows, max_nodes, ": --all lists them")
        for report in nodes[:max_nodes]:
            if report.findings:
                rows = [
                    (finding.subject, finding.found, finding.permitted)
                    for finding in report.findings
                ]
                names = (f"/{report.path}", "Found", "Permitted")
                yield from iter_shortened_table(
                    names, rows, _MAX_LISTED, ": zarr-bytes check --json gives all"
                )


def check(
    store: str | os.PathLike[str] | Store,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> CheckReport:
    """Check whether every array and group of a store opens, and the stored chunks of the arrays.

    Everything is opened as with the setting ``zarr_bytes.fill_values: strict``. Of uncompressed
    arrays, the size of each stored chunk, the index of each shard and each bool are checked. Only
    what zarr lists is checked: links to folders are not followed. Nothing is written. The command
    ``zarr-bytes check`` calls this function.

    Parameters
    ----------
    store : str, os.PathLike or zarr.abc.store.Store
        A folder, a ``.zip`` file, a URL for fsspec, or an open store.
    storage_options : mapping, optional
        Arguments for fsspec; only for a URL.
    progress : callable, optional
        Called with a `Progress`, in another thread.

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
    with open_store(store, storage_options) as (source, name):
        reports = sync(_StoreCheck(source, progress).check_all_nodes())
    arrays = [report for report in reports if report.kind in ("array", "format 2")]
    failing = sum(not report.conforms for report in reports)
    unchecked = sum(bool(report.not_checked) for report in arrays)
    is_complete = not any(report.not_checked for report in reports)
    is_empty = not is_complete and all(report.kind != "array" for report in reports)
    text = "Nothing is checked" if is_empty else "Conforms"
    if failing:
        text = f"{failing:,} of {len(reports):,} do not conform"
    if unchecked:
        text += f"; {unchecked:,} of {count_with_noun(len(arrays), 'array')} not checked in full"
    conforms = not (failing or is_empty)
    return CheckReport(name, conforms, text, is_complete, reports)


class _StoreCheck:
    """The check of one store, in zarr's event loop: `check_all_nodes` is awaited once."""

    def __init__(self, store: Store, progress: Callable[[Progress], None]) -> None:
        self._store = store
        self._progress = progress
        self._documents: dict[str, dict[str, Any]] = {}  # of arrays and groups, by path
        self._reports: list[ArrayReport] = []

    async def check_all_nodes(self) -> list[ArrayReport]:
        """Reports of arrays, and of groups and other documents with findings, sorted by path."""
        reads_fill_values_strictly.set(True)  # in this task and its own
        self._nodes = await list_keys_by_node(self._store)
        # Members come before their groups, whose copies of documents are compared with them.
        for path in sorted(self._nodes, reverse=True):
            report = ArrayReport(path, "unreadable")
            self._reports.append(report)
            try:
                await self._fill_in_report_or_raise(report, self._nodes[path])
            except FillValueError as error:
                found = short_json(self._documents[path].get("fill_value"))
                report.findings.append(Finding("fill_value", found, error.permitted))
            except Exception as error:  # noqa: BLE001 -- of any store, zarr and any codec
                report.findings.append(Finding(METADATA_KEY, describe_error(error)))
            report.conforms = all(finding.is_note for finding in report.findings)
        return [
            report
            for report in reversed(self._reports)
            if report.kind != "group" or report.findings or report.not_checked
        ]

    async def _fill_in_report_or_raise(self, report: ArrayReport, keys_in_node: list[str]) -> None:
        """Fill in the report of a node; its keys, without its path, are `keys_in_node`.

        Whatever zarr raises when it opens the node is raised here, too.
        """
        if temporary := list(filter(_TEMPORARY.search, keys_in_node)):
            text = "left by interrupted writes; may be deleted while nobody writes: "
            found = f"{len(temporary):,} {text}{temporary[0]}"
            if len(temporary) > 1:
                found += ", ..."
            report.findings.append(Finding("*.partial", found, is_note=True))
        if keys_in_node and METADATA_KEY not in keys_in_node:
            report.kind = "format 2"
            report.not_checked = "Zarr format 2"
            return
        document = await read_metadata_document(self._store, report.path)
        self._documents[report.path] = document
        report.kind = document["node_type"]
        try:
            json.dumps(document, allow_nan=False)
        except ValueError as error:  # which zarr opens, and others do not
            report.findings.append(Finding(METADATA_KEY, describe_error(error)))
        data_type = document.get("data_type", "")
        report.data_type = data_type if isinstance(data_type, str) else short_json(data_type)
        report.not_checked = "zarr does not open it"
        metadata = (await _open_document_in_memory(report.path, document)).metadata
        report.not_checked = "" if keys_in_node else "the store cannot list"
        if report.kind == "array":
            report.codecs = list(map(codec_name_or_class_name, metadata.codecs))
            await self._add_chunk_findings(report, metadata, keys_in_node)
        elif keys_in_node and document.get("consolidated_metadata"):
            await self._add_consolidated_findings(
                report, document["consolidated_metadata"]["metadata"]
            )

    async def _add_chunk_findings(
        self, report: ArrayReport, metadata: ArrayV3Metadata, keys_in_node: list[str]
    ) -> None:
        """Add what is found in the chunks among `keys_in_node`, or say why they are not checked."""
        codecs = metadata.codecs
        spec = chunk_spec_if_regular(metadata)
        if not is_uncompressed(codecs):
            report.not_checked = "not plain bytes"
        elif spec is None:
            report.not_checked = "chunks of several shapes"
        elif why_shard_is_not_divisible(codecs, spec):
            report.not_checked = "inner chunks do not divide shards"
        elif keys_in_node:
            layout = encoding_of_uncompressed(codecs).layout_of(spec)
            grid = ChunkGrid(metadata.shape, spec.shape)
            report.chunks = min(grid.chunk_count, _MAX_CHUNKS)
            report.stored_chunks = 0
            stored = [
                key for key in keys_in_node if _is_chunk_key(key, metadata, grid.chunk_counts)
            ]
            results = await map_concurrently(
                partial(self._check_chunk_until_sure_and_report_progress, report, layout), stored
            )
            report.findings += filter(None, results)

    async def _check_chunk_until_sure_and_report_progress(
        self, report: ArrayReport, layout: ObjectLayout, key_in_node: str
    ) -> Finding | None:
        """The finding for a stored object, and progress; None if it conforms or is missing.

        An object may be replaced while it is read: it is read again until a finding comes twice,
        at most five times.
        """
        finding = None
        for _ in range(5):  # until two looks find the same
            before = finding
            try:
                finding = await self._find_fault_or_raise_if_missing(
                    report.path, layout, key_in_node
                )
            except FileNotFoundError:  # a missing chunk is the fill value
                return None
            except Exception as error:  # noqa: BLE001 -- of any store; others are still checked
                finding = Finding(key_in_node, describe_error(error))
            if finding in (None, before):
                break
        report.stored_chunks = (report.stored_chunks or 0) + 1
        progress = Progress(
            report.path,
            nodes_done=len(self._reports) - 1,
            nodes_found=len(self._nodes),
            chunks_done=report.stored_chunks,
            chunks=report.chunks or 0,
        )
        self._progress(progress)
        return finding

    async def _find_fault_or_raise_if_missing(
        self, node_path: str, layout: ObjectLayout, key_in_node: str
    ) -> Finding | None:
        """The finding for a stored object as it is now; None if it conforms.

        A FileNotFoundError if it is missing, and a ValueError if its index is damaged.
        """
        full_key = join_key(node_path, key_in_node)
        nbytes = layout.inner_chunk_nbytes
        step = max(_MAX_BOOL_NBYTES // layout.item_size, 1) * layout.item_size
        size = await self._store.getsize(full_key)
        if layout.stored_nbytes not in (None, size):
            return Finding(
                key_in_node, f"{size:,} bytes", f"{thousands_or_power_of_ten(layout.nbytes)} bytes"
            )
        index: InnerChunkIndex = SINGLE_CHUNK_INDEX
        if layout.index_nbytes:
            offset = layout.index_offset(size)
            content = await self._read_whole_range_or_raise(
                full_key, offset, min(size, offset + layout.index_nbytes)
            )
            index = ShardIndex(layout, full_key, content, size)
        for start in map(index.offset_of, range(layout.inner_chunk_count)):
            if start is None or not layout.element_layout.bool_offsets:
                continue
            for first in range(start, start + nbytes, step):
                content = await self._read_whole_range_or_raise(
                    full_key, first, min(first + step, start + nbytes)
                )
                if (
                    byte := offset_of_first_invalid_bool(content, layout.element_layout)
                ) is not None:
                    text = f"a bool of {content[byte]} at byte {first + byte:,}"
                    return Finding(key_in_node, text, "0 or 1")
        return None

    async def _read_whole_range_or_raise(self, key: str, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop` of an object.

        A FileNotFoundError if it is missing, and a ChunkSizeError if it has not all of them.
        """
        buffer = await self._store.get(key, cpu.buffer_prototype, RangeByteRequest(start, stop))
        if buffer is None:
            raise FileNotFoundError(key)
        content = np.frombuffer(buffer.to_bytes(), np.uint8)
        if content.size > stop - start:  # a server may ignore the range
            content = content[start:stop]
        if content.size != stop - start:
            raise wrong_size_error(key, start, stop, content.size)
        return content

    async def _add_consolidated_findings(
        self, report: ArrayReport, consolidated: dict[str, Any]
    ) -> None:
        """Compare consolidated metadata with the documents of the members that are read already.

        zarr opens the members of a group by the copies. Differences become findings.
        """
        prefix = join_key(report.path, "")
        documents = dict[str, Any]()
        for path, document in self._documents.items():
            parent_kind = self._documents.get(path.rpartition("/")[0], {}).get("node_type")
            if path.startswith(prefix) and path != report.path and parent_kind == "group":
                documents[path.removeprefix(prefix)] = _part_shared_with_consolidated_copy(document)
        copies = {
            name: _part_shared_with_consolidated_copy(copy) for name, copy in consolidated.items()
        }
        for name in sorted(documents.keys() | copies.keys()):
            original = documents.get(name)
            copy = copies.get(name)
            if original != copy and not await _open_with_equal_metadata(original, copy):
                found = f"not the same as its {METADATA_KEY}, or one of them is missing"
                advice = "zarr.consolidate_metadata writes it anew"
                report.findings.append(Finding(f"consolidated_metadata: {name}", found, advice))


def _part_shared_with_consolidated_copy(document: dict[str, Any]) -> dict[str, Any]:
    """The members that a consolidated copy has to share with a document.

    Attributes change without being copied, and a group has nothing else.
    """
    is_group = document["node_type"] == "group"
    return {"node_type": "group"} if is_group else document | {"attributes": {}}


async def _open_with_equal_metadata(
    document: dict[str, Any] | None, copy: dict[str, Any] | None
) -> bool:
    """Whether zarr opens both with the same metadata, with the defaults that documents leave out.

    False if one is None, or zarr does not open it.
    """
    if document is None or copy is None:
        return False
    with suppress(Exception):
        array = await _open_document_in_memory("", document)
        copied = await _open_document_in_memory("", copy)
        return bool(array.metadata.to_dict() == copied.metadata.to_dict())
    return False


def _is_chunk_key(
    key_in_array: str, metadata: ArrayV3Metadata, chunk_counts: tuple[int, ...]
) -> bool:
    """Whether `key_in_array` is the key of a chunk of a grid of `chunk_counts` along each axis."""
    # Python reads no integer of more than 4,300 digits.
    numbers = re.findall("[0-9]{1,4300}", key_in_array) if chunk_counts else []
    chunk_coords = tuple(map(int, numbers))
    is_within = len(chunk_coords) == len(chunk_counts) and all(map(lt, chunk_coords, chunk_counts))
    return is_within and metadata.encode_chunk_key(chunk_coords) == key_in_array


async def _open_document_in_memory(path: str, document: dict[str, Any]) -> Any:
    """The array or group of a metadata document, as zarr opens it at this path.

    Whatever zarr raises for the document is raised; its warnings are not shown.
    """
    open_node = open_array if document["node_type"] == "array" else open_group
    text = json.dumps(document)
    store = MemoryStore({join_key(path, METADATA_KEY): cpu.Buffer.from_bytes(text.encode())})
    # As little as possible: all threads share zarr's configuration, and may change it meanwhile.
    config = {key: value for key, value in _CONFIG.items() if zarr_setting_or_default(key) != value}
    # Once zarr needs no such setting, a typed configuration raises for it.
    if "rectilinear" not in text or zarr_setting_or_default("array.rectilinear_chunks") is None:
        config.pop("array.rectilinear_chunks", None)
    with zarr.config.set(config), warnings.catch_warnings(action="ignore"):
        return await open_node(store=store, path=path, mode="r", zarr_format=3)
