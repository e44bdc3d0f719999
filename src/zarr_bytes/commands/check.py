"""`check`: a check of every node of a store, and of the stored chunks against the metadata.

Specification: bytes codec 1.0, "Format and algorithm" and "Supported data types" (`bool`); sharding
codec 1.0, "Binary shard format".
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.api.asynchronous import open_array, open_group
from zarr.buffer import cpu
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes.chains import (
    codec_name_or_class_name,
    encoding_of_uncompressed,
    is_uncompressed,
    iter_codecs_unsupported_by_themselves,
    why_inner_chunks_do_not_divide_shard,
    why_uncompressed_chunks_are_read_by_zarr,
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
    ATTRIBUTES_KEY,
    CONSOLIDATED_KEY,
    DOCUMENT_KEYS,
    GROUP_KEY,
    METADATA_KEY,
    MetadataDocument,
    join_key,
    list_keys_by_node,
    open_store,
    parse_consolidated_copies_or_none,
    read_json_object_or_none,
    read_metadata_document,
)
from zarr_bytes.errors import FillValueError, describe_error, wrong_size_error
from zarr_bytes.indexing.selection import ChunkGrid
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.files import not_a_file_error
from zarr_bytes.io.tasks import map_concurrently
from zarr_bytes.layout.elements import element_layout_of, offset_of_first_invalid_bool
from zarr_bytes.layout.objects import SINGLE_CHUNK_INDEX, ShardIndex
from zarr_bytes.settings import CLASSES, reads_fill_values_strictly, zarr_setting_or_default
from zarr_bytes.zarr_versions import chunk_spec_if_regular, codecs_or_empty_if_unknown, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from zarr.abc.codec import Codec
    from zarr.abc.store import Store

    from zarr_bytes.commands.result import Cell, OutputPart
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.zarr_versions import ArrayMetadata

_MAX_LISTED: Final = 20  # nodes, those with findings first; also findings of one node
_MAX_CHUNKS: Final = 10**1000  # the largest printed count; Python prints at most 4,300 digits
_MAX_BOOL_NBYTES: Final = 2**23  # bytes of bools per read
_NOT_OPENED: Final = "zarr does not open it"
# Temporary files of LocalStore and of this package.
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.partial\Z")
# The settings for opening nodes, so that every process gives the same verdict.
_CONFIG: Final = {
    "array.rectilinear_chunks": True,
    **{f"codecs.{name}": path for name, path in CLASSES.items()},
}


@dataclass(frozen=True)
class Finding:
    """A value that doesn't conform, or a note, with the permitted values."""

    subject: str  # a member of the metadata document, or the key of a document or a chunk
    found: str
    permitted: str = ""
    is_note: bool = False  # permitted, but worth knowing


@dataclass
class ArrayReport:
    """The findings for an array, a group or an unreadable document."""

    path: str
    kind: str  # "array", "group" or "unreadable"
    zarr_format: int | None = None  # 2 or 3; None without a document that can be read
    conforms: bool = True  # all findings are notes
    data_type: str = ""  # as in the document
    codecs: list[str] = field(default_factory=list)  # in format 2, the filters and the compressor
    chunks: int | None = None  # in the grid; None if chunks aren't checked
    stored_chunks: int | None = None  # None if chunks aren't checked
    not_checked: str = ""  # why the chunks, or the members of a group, aren't checked
    findings: list[Finding] = field(default_factory=list)

    def _table_row(self) -> tuple[Cell, ...]:
        """The row of the table of nodes."""
        chunks = ""
        result = ("conforms", "green")
        if self.chunks is not None:
            chunks = f"{self.stored_chunks:,} of {thousands_or_power_of_ten(self.chunks)} stored"
        elif self.not_checked:
            chunks = f"not checked: {self.not_checked}"
            is_opened = self.kind == "array" and self.not_checked != _NOT_OPENED
            result = ("metadata conforms" if is_opened else "", "yellow")
        if count := sum(not finding.is_note for finding in self.findings):
            result = (count_with_noun(count, "finding"), "red")
        codecs = ", ".join(self.codecs)
        if self.kind == "array" and self.zarr_format == 2:
            codecs = f"{codecs or 'none'} (format 2)"
        return f"/{self.path}", self.data_type, codecs, chunks, result


@dataclass(frozen=True, repr=False)
class CheckReport(Result):
    """The result of `check`. It prints as a table, and iterates over the `ArrayReport` objects."""

    store: str
    conforms: bool  # also False if nothing was checked
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
    """Check that every array and group of a store opens, and that stored chunks are valid.

    Nodes are opened with strict fill values (``zarr_bytes.fill_values: strict``). For uncompressed
    arrays, the size of each stored chunk, the index of each shard and the value of each bool are
    checked. Zarr formats 2 and 3 are checked alike; if a node has documents of both formats, zarr
    opens format 3. Only the keys that zarr lists are checked, and in a folder also that each chunk
    is a file; links to folders are not followed. Nothing is written. The command ``zarr-bytes
    check`` calls this function.

    Parameters
    ----------
    store : str, os.PathLike or zarr.abc.store.Store
        A folder, a ``.zip`` file, a URL for fsspec, or an open store.
    storage_options : mapping, optional
        Arguments for fsspec; only permitted with a URL.
    progress : callable, optional
        Called with a `Progress`, in another thread.

    Raises
    ------
    StoreError
        If the store can't be opened or has no Zarr metadata, or if `storage_options` are given
        without a URL.

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
    arrays = [report for report in reports if report.kind == "array"]
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
        self._has_references = driver_of(store, "").references is not None
        self._progress = progress
        self._documents: dict[str, MetadataDocument] = {}  # of arrays and groups, by path
        self._reports: list[ArrayReport] = []

    async def check_all_nodes(self) -> list[ArrayReport]:
        """Reports sorted by path: of all arrays, and of other nodes with something to report."""
        reads_fill_values_strictly.set(True)  # in this task and the tasks that it starts
        self._nodes = await list_keys_by_node(self._store)
        # Members come before their groups: the consolidated copies in a group are compared with the
        # documents of its members.
        for path in sorted(self._nodes, reverse=True):
            report = ArrayReport(path, "unreadable")
            self._reports.append(report)
            keys_in_node = self._nodes[path]
            # All document keys if the store can't list.
            keys = [key for key in DOCUMENT_KEYS if key in keys_in_node] or DOCUMENT_KEYS
            try:
                await self._fill_in_report_of_node_or_raise(report, keys, keys_in_node)
            except FillValueError as error:
                found = short_json(self._documents[path].members.get("fill_value"))
                report.findings.append(Finding("fill_value", found, error.permitted))
            except Exception as error:  # noqa: BLE001 -- of any store, zarr and any codec
                document = self._documents.get(path)
                key = keys[0] if document is None else document.key
                report.findings.append(Finding(key, describe_error(error)))
            report.conforms = all(finding.is_note for finding in report.findings)
        return [
            report
            for report in reversed(self._reports)
            if report.kind != "group" or report.findings or report.not_checked
        ]

    async def _fill_in_report_of_node_or_raise(
        self, report: ArrayReport, document_keys: Sequence[str], keys_in_node: list[str]
    ) -> None:
        """Fill in the report of a node. `keys_in_node` are its keys, without its path.

        The document of the node is at the first existing key of `document_keys`. Any error that
        zarr raises when it opens the node is raised here, too.
        """
        if temporary := list(filter(_TEMPORARY.search, keys_in_node)):
            text = "left by interrupted writes; may be deleted while nobody writes: "
            found = f"{len(temporary):,} {text}{temporary[0]}"
            if len(temporary) > 1:
                found += ", ..."
            report.findings.append(Finding("*.partial", found, is_note=True))
        document = await read_metadata_document(self._store, report.path, document_keys)
        self._documents[report.path] = document
        report.kind = document.kind
        report.zarr_format = document.zarr_format
        report.data_type = document.data_type
        for key in document_keys:
            if key in keys_in_node and key != document.key:
                found = f"not checked: zarr opens {document.key} instead"
                report.findings.append(Finding(key, found, is_note=True))
        report.not_checked = _NOT_OPENED
        documents = await self._read_documents_or_add_findings(report, document, keys_in_node)
        if documents is None:
            return
        metadata = (await _open_documents_in_memory(report.path, document.kind, documents)).metadata
        report.not_checked = "" if keys_in_node else "the store cannot list"
        if report.kind == "array":
            codecs: Iterable[Codec] = codecs_or_empty_if_unknown(metadata)
            # In format 2, zarr wraps all codecs in one codec without a name.
            if document.zarr_format == 2:
                codecs = iter_codecs_unsupported_by_themselves(codecs)
            report.codecs = list(map(codec_name_or_class_name, codecs))
            await self._check_stored_chunks_if_possible(report, metadata, keys_in_node)
            return
        key = METADATA_KEY if document.zarr_format == 3 else CONSOLIDATED_KEY
        copies = (
            parse_consolidated_copies_or_none(key, documents[key]) if key in documents else None
        )
        if keys_in_node and copies is not None:
            await self._add_findings_on_consolidated_copies(report, document.zarr_format, copies)

    async def _read_documents_or_add_findings(
        self, report: ArrayReport, document: MetadataDocument, keys_in_node: list[str]
    ) -> dict[str, dict[str, Any]] | None:
        """The document of a node, and in format 2 the documents that zarr reads with it, by key.

        None if one of the documents can't be read, which becomes a finding. Numbers such as NaN,
        which zarr reads although they aren't JSON, become findings, too.
        """
        documents = {document.key: document.members}
        keys = [ATTRIBUTES_KEY, CONSOLIDATED_KEY] if document.key == GROUP_KEY else [ATTRIBUTES_KEY]
        for key in keys if document.zarr_format == 2 else []:
            if keys_in_node and key not in keys_in_node:
                continue
            try:
                members = await read_json_object_or_none(self._store, join_key(report.path, key))
                if members is not None and key == CONSOLIDATED_KEY:
                    parse_consolidated_copies_or_none(key, members)  # raises if it is damaged
            except Exception as error:  # noqa: BLE001 -- of any store
                report.findings.append(Finding(key, describe_error(error)))
                report.not_checked = f"its {key} is damaged"
                return None
            if members is not None:
                documents[key] = members
        for key, members in documents.items():
            try:
                json.dumps(members, allow_nan=False)
            except ValueError as error:
                report.findings.append(Finding(key, describe_error(error)))
        return documents

    async def _check_stored_chunks_if_possible(
        self, report: ArrayReport, metadata: ArrayMetadata, keys_in_node: list[str]
    ) -> None:
        """Add the findings for the chunks in `keys_in_node`, or set why they aren't checked."""
        codecs = codecs_or_empty_if_unknown(metadata)
        spec = chunk_spec_if_regular(metadata)
        if not is_uncompressed(codecs):
            report.not_checked = "not plain bytes"
        elif spec is None:
            report.not_checked = "chunks of several shapes"
        elif why_inner_chunks_do_not_divide_shard(codecs, spec.shape):
            report.not_checked = "inner chunks do not divide shards"
        elif why_uncompressed_chunks_are_read_by_zarr(codecs, spec):
            report.not_checked = "filters do not give each element by itself"
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
            if isinstance(self._store, LocalStore):
                folder = self._store.root / report.path
                report.findings += await asyncio.to_thread(
                    _find_chunks_that_are_no_files, folder, metadata, grid, set(keys_in_node)
                )

    async def _check_chunk_until_sure_and_report_progress(
        self, report: ArrayReport, layout: ObjectLayout, key_in_node: str
    ) -> Finding | None:
        """The finding for a stored object; None if it conforms or is missing. Reports progress.

        An object may be replaced during the read. It is read until two findings in a row are equal,
        at most five times.
        """
        finding = None
        for _ in range(5):  # until two findings in a row are equal
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
        # Made anew: in format 2, the layout permits any byte for a bool, as zarr does.
        element_layout = element_layout_of(layout.encoded_dtype, layout.endian)
        nbytes = layout.inner_chunk_nbytes
        step = max(_MAX_BOOL_NBYTES // layout.item_size, 1) * layout.item_size
        size = await self._store.getsize(full_key)
        if layout.stored_nbytes not in (None, size):
            return Finding(
                key_in_node, f"{size:,} bytes", f"{thousands_or_power_of_ten(layout.nbytes)} bytes"
            )
        if self._has_references and size:  # they have sizes, whatever the files are
            await self._read_whole_range_or_raise(full_key, size - 1, size)
        index: InnerChunkIndex = SINGLE_CHUNK_INDEX
        if layout.index_nbytes:
            offset = layout.index_offset(size)
            content = await self._read_whole_range_or_raise(
                full_key, offset, min(size, offset + layout.index_nbytes)
            )
            index = ShardIndex(layout, full_key, content, size)
        for start in map(index.offset_of, range(layout.inner_chunk_count)):
            if start is None or not element_layout.bool_offsets:
                continue
            for first in range(start, start + nbytes, step):
                content = await self._read_whole_range_or_raise(
                    full_key, first, min(first + step, start + nbytes)
                )
                if (byte := offset_of_first_invalid_bool(content, element_layout)) is not None:
                    text = f"a bool of {content[byte]} at byte {first + byte:,}"
                    return Finding(key_in_node, text, "0 or 1")
        return None

    async def _read_whole_range_or_raise(self, key: str, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop` of an object.

        A FileNotFoundError if the object is missing, and a ChunkSizeError if it is too short.
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

    async def _add_findings_on_consolidated_copies(
        self, group_report: ArrayReport, zarr_format: int, copies: dict[str, MetadataDocument]
    ) -> None:
        """Compare consolidated metadata with the documents of the members, which have been read.

        zarr opens the members of a group from the copies. Differences become findings.
        """
        place = "consolidated_metadata" if zarr_format == 3 else CONSOLIDATED_KEY
        prefix = join_key(group_report.path, "")
        documents = dict[str, MetadataDocument]()
        for path, document in self._documents.items():
            parent = self._documents.get(path.rpartition("/")[0])
            is_below = path.startswith(prefix) and path != group_report.path
            is_in_group = parent is not None and parent.kind == "group"
            # zarr finds no members of another format.
            if is_below and is_in_group and document.zarr_format == zarr_format:
                documents[path.removeprefix(prefix)] = document
        for name in sorted(documents.keys() | copies.keys()):
            if not await _have_equal_metadata(documents.get(name), copies.get(name)):
                key = (documents.get(name) or copies[name]).key
                found = f"differs from its {key}, or one of them is missing"
                advice = "zarr.consolidate_metadata writes it anew"
                group_report.findings.append(Finding(f"{place}: {name}", found, advice))


async def _have_equal_metadata(
    document: MetadataDocument | None, copy: MetadataDocument | None
) -> bool:
    """Whether a document and its consolidated copy are equivalent, except for attributes.

    Attributes may change without the copy, and a group has nothing else. Documents may leave out
    defaults, so unequal documents are opened by zarr and then compared. False if either is None, or
    if zarr doesn't open it.
    """
    if document is None or copy is None or document.kind != copy.kind:
        return False
    if document.kind == "group":
        return True
    members = [one.members | {"attributes": {}} for one in (document, copy)]
    if members[0] == members[1]:
        return True
    with suppress(Exception):
        arrays = [
            await _open_documents_in_memory("", "array", {document.key: one}) for one in members
        ]
        return bool(arrays[0].metadata.to_dict() == arrays[1].metadata.to_dict())
    return False


def _find_chunks_that_are_no_files(
    folder: Path, metadata: ArrayMetadata, grid: ChunkGrid, listed: Collection[str]
) -> list[Finding]:
    """A finding for each folder, FIFO or the like where an array's folder should have a chunk file.

    Keys that the store has `listed` are files. Folders are listed down to the depth of the keys,
    except for links to folders, which count as folders.
    """
    findings = []
    depth = metadata.encode_chunk_key((0,) * len(grid.chunk_counts)).count("/")
    for parent, folder_names, file_names in os.walk(folder):
        parts = Path(parent).relative_to(folder).parts
        for name in sorted((*folder_names, *file_names)):
            key = "/".join((*parts, name))
            if key in listed or not _is_chunk_key(key, metadata, grid.chunk_counts):
                continue
            with suppress(FileNotFoundError):  # a link to nothing is a missing chunk
                mode = Path(parent, name).stat().st_mode
                if not stat.S_ISREG(mode):
                    findings.append(Finding(key, str(not_a_file_error(key, mode))))
        if len(parts) == depth:
            folder_names.clear()
    return findings


def _is_chunk_key(
    key_in_array: str, metadata: ArrayMetadata, chunk_counts: tuple[int, ...]
) -> bool:
    """Whether `key_in_array` is a chunk key; `chunk_counts` is the grid size along each axis."""
    # Python doesn't parse integers of more than 4,300 digits.
    numbers = re.findall("[0-9]{1,4300}", key_in_array) if chunk_counts else []
    chunk_coords = tuple(map(int, numbers))
    is_within = len(chunk_coords) == len(chunk_counts) and all(map(lt, chunk_coords, chunk_counts))
    return is_within and metadata.encode_chunk_key(chunk_coords) == key_in_array


async def _open_documents_in_memory(
    path: str, kind: str, documents: Mapping[str, dict[str, Any]]
) -> Any:
    """The array or group that zarr opens from metadata documents, which are given by key.

    Errors of zarr are raised; its warnings are hidden.
    """
    open_node = open_array if kind == "array" else open_group
    texts = {key: json.dumps(document) for key, document in documents.items()}
    store = MemoryStore(
        {join_key(path, key): cpu.Buffer.from_bytes(text.encode()) for key, text in texts.items()}
    )
    # Few settings: all threads share zarr's configuration, and may change it during the block.
    config = {key: value for key, value in _CONFIG.items() if zarr_setting_or_default(key) != value}
    # A zarr that no longer needs this setting may have a typed configuration that rejects it.
    is_rectilinear = "rectilinear" in texts.get(METADATA_KEY, "")
    if not is_rectilinear or zarr_setting_or_default("array.rectilinear_chunks") is None:
        config.pop("array.rectilinear_chunks", None)
    with zarr.config.set(config), warnings.catch_warnings(action="ignore"):
        return await open_node(
            store=store,
            path=path,
            mode="r",
            zarr_format=3 if METADATA_KEY in documents else 2,
        )
