"""`check`: whether every node of a store opens, and its stored chunks are as the metadata says.

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
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.api.asynchronous import open_array, open_group
from zarr.buffer import cpu
from zarr.dtype import data_type_registry
from zarr.storage import MemoryStore

from zarr_bytes.activation import CLASSES
from zarr_bytes.chains import codec_name, plain_chain
from zarr_bytes.commands.nodes import DOCUMENT, Listing, copies_in, is_path, within
from zarr_bytes.commands.result import Progress, Result, Table, verdict
from zarr_bytes.commands.stores import opened
from zarr_bytes.commands.text import brief, in_digits, number
from zarr_bytes.errors import in_words
from zarr_bytes.indexing.chunk_grid import ChunkGrid
from zarr_bytes.io.tasks import for_each
from zarr_bytes.layout.elements import find_wrong_bool
from zarr_bytes.layout.format import CHUNK_INDEX, Index
from zarr_bytes.layout.stored import format_of, stored_by
from zarr_bytes.zarr_versions import spec_of, sync

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from zarr.abc.store import Store

    from zarr_bytes.commands.nodes import Node
    from zarr_bytes.commands.result import Cell, Part
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.format import AnyIndex, Format
    from zarr_bytes.zarr_versions import ArrayV3Metadata

_SHOWN: Final = 10  # findings of one array; --json has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_PIECE: Final = 2**23  # bytes of bools read at once
_LARGEST_ELEMENT: Final = 2**26  # bytes: zarr makes copies of the fill value
_STRICT: Final = {  # the configuration of this process does not change the verdict
    "zarr_bytes.fill_values": "strict",
    **{f"codecs.{name}": path for name, path in CLASSES.items()},
}
_SUBJECTS: Final = {  # member of the metadata, by the error that refuses it
    "FillValueError": "fill_value",
    "ConfigurationError": "codecs",
    "DataTypeNameError": "data_type",
    "MissingPackageError": "data_type",
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
    data_type: str = ""
    codecs: list[str] = field(default_factory=list)
    chunks: int | None = None  # of the grid, and stored ones; None if they are not checked
    stored_chunks: int | None = None
    not_checked: str = ""  # why chunks, or the members of a group, are not
    findings: list[Finding] = field(default_factory=list)

    @property
    def conforms(self) -> bool:
        """Whether all findings are notes."""
        return all(finding.is_note for finding in self.findings)

    def _row(self) -> tuple[Cell, ...]:
        chunks = [f"not checked: {self.not_checked}"] if self.not_checked else []
        if self.chunks is not None:
            chunks.append(f"{self.stored_chunks:,} of {in_digits(self.chunks)} stored")
        result: Cell = "conforms", "green"
        if count := sum(not finding.is_note for finding in self.findings):
            result = number(count, "finding"), "red"
        elif self.kind == "format 2":
            result = ""
        elif self.not_checked:
            result = "metadata conforms", "yellow"
        return f"/{self.path}", self.data_type, ", ".join(self.codecs), "; ".join(chunks), result


@dataclass(frozen=True, repr=False)
class CheckReport(Result):
    """The verdict of `check`; prints as a table, and a loop gives an `ArrayReport` for each array.

    And for each other document with findings.
    """

    store: str
    conforms: bool  # False also if nothing was checked
    verdict: str
    is_complete: bool  # whether everything was checked
    arrays: int
    arrays_not_checked: int  # number of arrays with chunks that were not
    nodes: list[ArrayReport]

    def __iter__(self) -> Iterator[ArrayReport]:
        return iter(self.nodes)

    def _document(self) -> dict[str, Any]:
        document = {name.removeprefix("is_"): value for name, value in vars(self).items()}
        return document | {"nodes": [{"conforms": r.conforms, **vars(r)} for r in self]}

    def _parts(self, *, in_full: bool = False) -> Iterator[Part]:
        colour = "red" if not self.conforms else "green" if self.is_complete else "yellow"
        yield verdict(self.verdict, colour, self.store)
        reported = sorted((r for r in self if r.findings), key=lambda report: report.conforms)
        arrays = [report for report in self if report.kind != "group"]
        listed, most = arrays, len(self.nodes)
        if len(arrays) > _MANY and not in_full:
            listed, most = [report for report in reported if report.kind != "group"], _MANY
        if listed:
            names = ("Array", "Data type", "Codecs", "Chunks", "")
            yield Table(names, [report._row() for report in listed[:most]])
        if quiet := len(arrays) - len(listed):
            yield ((f"{number(quiet, 'array')} without findings: --all lists them", "dim"),)
        for report in reported[:most]:
            rows: list[tuple[Cell, ...]] = [
                (f.subject, f.found, ("note", "dim") if f.is_note else (f.permitted, "green"))
                for f in report.findings
            ]
            columns = (f"/{report.path}", "Found", "Permitted")
            yield Table(columns, rows, _SHOWN, ": zarr-bytes check --json gives all")
        if (rest := len(reported) - most) > 0:
            yield ((f"... and {rest:,} more with findings: --all lists them", "dim"),)


def check(
    store: str | os.PathLike[str] | Store,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> CheckReport:
    """Check whether every array and group of a store opens, and the stored chunks of the arrays.

    Everything is opened as with the setting ``zarr_bytes.fill_values: strict``. Of uncompressed
    arrays, the size of each stored chunk, the index of each shard and each bool are checked.
    Nothing is written. The command ``zarr-bytes check`` calls this function.

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
    with opened(store, storage_options) as (source, name):
        reports = sync(_Check(source, progress).reports())
    failing = sum(not report.conforms for report in reports)
    arrays = [report for report in reports if report.kind == "array"]
    unchecked = sum(bool(report.not_checked) for report in arrays)
    old = sum(report.kind == "format 2" for report in reports)
    is_complete = not any(report.not_checked for report in reports)
    is_empty = not (arrays or is_complete)
    text = "Nothing is checked" if is_empty else "Metadata conforms" if unchecked else "Conforms"
    if failing:
        text = f"{failing:,} of {len(reports):,} do not conform"
    if unchecked:
        text += f"; chunks of {unchecked:,} of {number(len(arrays), 'array')} not checked"
    if old:
        text += f"; {number(old, 'array')} of Zarr format 2 not checked"
    conforms, count = not (failing or is_empty), len(arrays) + old
    return CheckReport(name, conforms, text, is_complete, count, unchecked + old, reports)


class _Check:
    """The check of one store."""

    def __init__(self, store: Store, progress: Callable[[Progress], None]) -> None:
        self._store, self._progress, self._done = store, progress, 0
        self._listing = Listing(store)
        # Groups with consolidated metadata: prefix of their members, and copies not met yet.
        self._groups: list[tuple[ArrayReport, str, dict[str, Any]]] = []

    async def reports(self) -> list[ArrayReport]:
        """Reports of arrays, and of other documents with findings."""
        reports: list[ArrayReport] = []
        async for node in self._listing.nodes():
            report = ArrayReport(node.path, node.kind)
            reports.append(report)
            try:
                await self._check_node(node, report)
            except Exception as error:  # noqa: BLE001 -- whatever a store holds is a finding
                report.findings.append(Finding(DOCUMENT, in_words(error)))
            self._done += 1
        for report, prefix, copies in self._groups:
            for name, copy in copies.items():  # such as of arrays behind a second link
                there = await self._listing.node_at(prefix + name) if is_path(name) else None
                report.findings += _differences(name, copy, there)
        return [r for r in reports if r.kind != "group" or r.findings or r.not_checked]

    async def _check_node(self, node: Node, report: ArrayReport) -> None:
        for group, prefix, copies in self._groups:
            name = node.path.removeprefix(prefix)
            if node.path.startswith(prefix) and (name in copies or node.document):
                group.findings += _differences(name, copies.pop(name, None), node)
        match node.kind:
            case "unreadable":
                report.findings.append(Finding(DOCUMENT, node.error, "a metadata document"))
            case "format 2":
                report.not_checked = "Zarr format 2"
            case "array":
                await self._check_array(node, report)
            case "group":
                await _opened(node, report, open_group)
                if copies := copies_in(node.document):
                    self._groups.append((report, within(node.path, ""), dict(copies)))
                if not (self._listing.keys or node.path or copies):
                    report.not_checked = "its members"
                    found = "the store cannot list, and nothing is consolidated: name an array"
                    report.findings.append(Finding("group", found, is_note=True))
        text = "left by interrupted writes; may be deleted while nobody writes"
        prefix, is_array = within(node.path, ""), node.kind == "array"
        left = [k.removeprefix(prefix) for k in self._listing.unfinished if k.startswith(prefix)]
        left = [name for name in left if is_array or "/" not in name]
        report.findings += _note("*.partial", text, left)

    async def _check_array(self, node: Node, report: ArrayReport) -> None:
        named = node.document.get("data_type")
        name = named.get("name") if isinstance(named, dict) else named
        report.data_type = name if isinstance(name, str) else brief(named)
        if _item_size(named) > _LARGEST_ELEMENT:
            report.not_checked = "elements too large to read"
            return
        metadata = getattr(await _opened(node, report, open_array), "metadata", None)
        if metadata is None:
            report.not_checked = "zarr does not open it"
            return
        report.codecs = list(map(codec_name, metadata.codecs))
        chain, spec = plain_chain(metadata.codecs), spec_of(metadata)
        if chain is None or spec is None:
            report.not_checked = "chunks of several shapes" if chain else "not plain bytes"
            return
        if "endian" in report.codecs:
            note = 'endian is the draft of the codec "bytes"; other programs may not read it'
            report.findings.append(Finding("codecs", note, is_note=True))
        if not self._listing.keys:
            report.not_checked = "the store cannot list"
            return
        format, grid = format_of(spec, stored_by(chain)), ChunkGrid(metadata.shape, spec.shape)
        report.chunks, report.stored_chunks, chunks, strays = grid.count, 0, [], []
        for name in self._listing.below(node.path):
            if _is_chunk(name.rstrip("/"), metadata, grid.counts):
                chunks.append(name)
            elif not name.endswith("/"):
                strays.append(name)
        results = await for_each(partial(self._check_chunk, report, format), chunks)
        report.findings += [finding for finding in results if finding is not None]
        report.findings += _note("chunks", "stored under the array, not chunks of it", strays)

    async def _check_chunk(self, report: ArrayReport, format: Format, name: str) -> Finding | None:
        """The finding for a stored object, if there is one."""
        if name.endswith("/"):
            return Finding(name[:-1], "a folder", "a file")
        key, nbytes = within(report.path, name), format.inner_nbytes
        step = max(_PIECE // format.item_size, 1) * format.item_size
        try:
            size = await self._listing.size(key)
            report.stored_chunks = stored = (report.stored_chunks or 0) + 1
            nodes = self._done + 1 + self._listing.left
            self._progress(Progress(report.path, self._done, nodes, stored, report.chunks or 0))
            if format.stored_nbytes not in (None, size):
                return Finding(name, f"{size:,} bytes", f"{in_digits(format.nbytes)} bytes")
            index: AnyIndex = CHUNK_INDEX
            if format.index_nbytes:
                first = format.index_start(size)
                content = await self._bytes(key, first, min(size, first + format.index_nbytes))
                index = Index(format, key, content, size)
            for start in map(index.offset, range(format.count)):
                if start is None or not format.layout.bool_offsets:
                    continue
                for first in range(start, start + nbytes, step):
                    content = await self._bytes(key, first, min(first + step, start + nbytes))
                    if (byte := find_wrong_bool(content, format.layout)) is not None:
                        found = f"a bool of {content[byte]} at byte {first + byte:,}"
                        return Finding(name, found, "0 or 1")
        except FileNotFoundError:
            pass  # a missing chunk is the fill value
        except Exception as error:  # noqa: BLE001 -- of any store; the chunks after it are checked
            return Finding(name, str(error) if isinstance(error, ValueError) else in_words(error))
        return None

    async def _bytes(self, key: str, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop` of an object."""
        if start == stop:  # such as of a FIFO, which nobody writes
            return np.zeros(0, np.uint8)
        wanted = RangeByteRequest(start, stop)
        buffer = await self._store.get(key, cpu.buffer_prototype, wanted)
        if buffer is None:
            raise FileNotFoundError(key)
        content = np.frombuffer(buffer.to_bytes(), np.uint8)
        if content.size > stop - start:  # a server may ignore the range
            content = content[start:stop]
        if content.size != stop - start:
            raise ValueError(f"{content.size:,} bytes from {start:,} on, of {stop - start:,}")
        return content


def _is_chunk(key: str, metadata: ArrayV3Metadata, counts: tuple[int, ...]) -> bool:
    """Whether `key` is the key of a chunk of a grid of `counts` along each axis."""
    try:
        place = tuple(map(int, re.findall("[0-9]+", key))) if counts else ()
    except ValueError:  # more digits than Python reads
        return False
    is_within = len(place) == len(counts) and all(map(lt, place, counts))
    return is_within and metadata.encode_chunk_key(place) == key


def _item_size(data_type: object) -> int:
    with suppress(Exception), warnings.catch_warnings(action="ignore"):  # opening says why
        found = data_type_registry.match_json(cast("Any", data_type), zarr_format=3)
        return found.to_native_dtype().itemsize
    return 0


async def _opened(node: Node, report: ArrayReport, open_node: Callable[..., Any]) -> Any:
    """The node of a metadata document as zarr opens it; None, and why, where it does not."""
    try:
        return await _open_strictly(node.document, open_node)
    except Exception as refused:  # noqa: BLE001 -- whatever zarr and any codec raise
        error, found = refused, in_words(refused)
    with suppress(Exception), zarr.config.set({"array.rectilinear_chunks": True}):
        await _open_strictly(_in_full(node.document), open_node)
        note = f"it conforms, and this zarr does not open it: {found}"
        report.findings.append(Finding(DOCUMENT, note, is_note=True))
        return None
    subject, permitted = _SUBJECTS.get(type(error).__name__, DOCUMENT), ""
    if isinstance(error, KeyError) and error.args[0] not in node.document:
        subject, found, permitted = str(error.args[0]), "missing", "required"
    elif permitted := getattr(error, "permitted", ""):
        found = brief(node.document.get(subject))
    report.findings.append(Finding(subject, found, permitted))
    return None


async def _open_strictly(document: dict[str, Any], open_node: Callable[..., Any]) -> Any:
    store = MemoryStore({DOCUMENT: cpu.Buffer.from_bytes(json.dumps(document).encode())})
    with zarr.config.set(_STRICT), warnings.catch_warnings(action="ignore"):
        return await open_node(store=store, mode="r", zarr_format=3)


def _in_full(document: dict[str, Any]) -> dict[str, Any]:
    """An equal document in the forms that zarr opens.

    Shards behind a `transpose` are shards of the transposed array, where zarr compares their inner
    chunks with the chunks of the array.
    """
    full: dict[str, Any] = json.loads(json.dumps(document), object_hook=_with_long_names)
    codecs, grid = full["codecs"], full["chunk_grid"]["configuration"]
    while "sharding_indexed" in (c["name"] for c in codecs) and codecs[0]["name"] == "transpose":
        order = codecs.pop(0)["configuration"]["order"]
        if sorted(order) != list(range(len(full["shape"]))):
            raise ValueError
        full["shape"] = [full["shape"][i] for i in order]
        grid["chunk_shape"] = [grid["chunk_shape"][i] for i in order]
    return full


def _with_long_names(members: dict[str, Any]) -> dict[str, Any]:
    """Zarr 3.1, "Extension definition": a name stands for an object with nothing else."""
    for name, value in members.items():
        if name in ("codecs", "index_codecs") and isinstance(value, list):
            members[name] = [{"name": c} if isinstance(c, str) else c for c in value]
        elif name == "chunk_key_encoding" and isinstance(value, str):
            members[name] = {"name": value}
        elif name == "data_type" and isinstance(value, dict) and list(value) == ["name"]:
            members[name] = value["name"]
    return members


def _differences(name: str, copy: object, node: Node | None) -> list[Finding]:
    """Findings for the copy of a node in consolidated metadata, by which zarr opens it.

    Not of attributes, which change without being consolidated; a group has nothing else.
    """
    subject, found = f"consolidated_metadata: {name}", f"differs from its {DOCUMENT}"
    if not is_path(name):
        found = "not the path of a node"
    elif node is None:
        found = f"a copy of a {DOCUMENT} that is not there"
    elif copy is None:
        found = f"no copy of {name}, which zarr therefore does not see"
    elif isinstance(copy, dict) and copy.get("node_type") == node.kind:
        without = {"attributes": None}
        if node.kind == "group" or copy | without == node.document | without:
            return []
    return [Finding(subject, found, "zarr.consolidate_metadata writes it anew")]


def _note(subject: str, text: str, keys: list[str]) -> list[Finding]:
    """A note of files that are not chunks, if there are any: their number, and the first names."""
    names = ", ".join(sorted(keys)[:3]) + ", ..." * (len(keys) > 3)
    return [Finding(subject, f"{len(keys):,} {text}: {names}", is_note=True)] if keys else []
