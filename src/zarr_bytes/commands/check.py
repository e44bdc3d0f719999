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

from zarr_bytes.chains import codec_name, plain_chain, stored_by
from zarr_bytes.commands.result import Progress, Result, Table, brief, in_digits, number, verdict
from zarr_bytes.commands.stores import DOCUMENT, Listing, copies_in, is_path, opened, within
from zarr_bytes.errors import in_words
from zarr_bytes.indexing.selection import ChunkGrid
from zarr_bytes.io.tasks import for_each
from zarr_bytes.layout.elements import find_wrong_bool
from zarr_bytes.layout.format import CHUNK_INDEX, Index
from zarr_bytes.settings import CLASSES
from zarr_bytes.zarr_versions import spec_of, sync

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from zarr.abc.store import Store

    from zarr_bytes.commands.result import Cell, Part
    from zarr_bytes.commands.stores import Node
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.layout.format import AnyIndex, Format
    from zarr_bytes.zarr_versions import ArrayV3Metadata

_SHOWN: Final = 10  # findings of one array; --json has all
_MANY: Final = 20  # arrays; of more, only those with findings are listed
_PIECE: Final = 2**23  # bytes of bools read at once
_LARGEST_ELEMENT: Final = 2**26  # bytes: zarr makes copies of the fill value
_STRICT: Final = {  # the configuration of this process does not change the verdict
    "zarr_bytes.fill_values": "strict",
    "array.rectilinear_chunks": True,
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
        chunks, result = "", ("conforms", "green")
        if self.chunks is not None:
            chunks = f"{self.stored_chunks:,} of {in_digits(self.chunks)} stored"
        elif self.not_checked:
            chunks, result = f"not checked: {self.not_checked}", ("metadata conforms", "yellow")
        if count := sum(not finding.is_note for finding in self.findings):
            result = number(count, "finding"), "red"
        elif self.kind == "format 2":
            result = "", ""
        return f"/{self.path}", self.data_type, ", ".join(self.codecs), chunks, result


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
        most, listed = len(self.nodes) if in_full else _MANY, arrays
        if len(arrays) > most:
            listed = [report for report in reported if report.kind != "group"]
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
        self._store, self._progress, self._listing = store, progress, Listing(store)
        self._nodes: dict[str, Node] = {}

    async def reports(self) -> list[ArrayReport]:
        """Reports of arrays, and of other documents with findings."""
        reports: list[ArrayReport] = []
        async for node in self._listing.nodes():
            self._nodes[node.path], report = node, ArrayReport(node.path, node.kind)
            reports.append(report)
            await _guarded(report, self._check_node(node, report))
        for report in reports:
            if report.kind == "group":
                await _guarded(report, self._check_copies(self._nodes[report.path], report))
        return [r for r in reports if r.kind != "group" or r.findings or r.not_checked]

    async def _check_node(self, node: Node, report: ArrayReport) -> None:
        match node.kind:
            case "unreadable":
                report.findings.append(Finding(DOCUMENT, node.error, "a metadata document"))
            case "format 2":
                report.not_checked = "Zarr format 2"
            case "array":
                await self._check_array(node, report)
            case "group":
                await _opened(node, report)
                if not (self._listing.keys or node.path or copies_in(node.document)):
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
        metadata = getattr(await _opened(node, report), "metadata", None)
        if metadata is None:
            report.not_checked = "zarr does not open it"
            return
        report.codecs = list(map(codec_name, metadata.codecs))
        chain, spec = plain_chain(metadata.codecs), spec_of(metadata)
        if "endian" in report.codecs and chain:
            note = 'endian is the draft of the codec "bytes"; other programs may not read it'
            report.findings.append(Finding("codecs", note, is_note=True))
        if chain is None or spec is None or not self._listing.keys:
            reason = "chunks of several shapes" if spec is None else "the store cannot list"
            report.not_checked = reason if chain else "not plain bytes"
            return
        format, grid = stored_by(chain).format_of(spec), ChunkGrid(metadata.shape, spec.shape)
        report.chunks, report.stored_chunks, chunks, strays = grid.count, 0, [], []
        for name in self._listing.below(node.path):
            if _is_chunk(name.rstrip("/"), metadata, grid.counts):
                chunks.append(name)
            elif not name.endswith("/") and name != DOCUMENT:
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
            done = len(self._nodes)
            found = done + self._listing.left
            self._progress(Progress(report.path, done - 1, found, stored, report.chunks or 0))
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
                        text = f"a bool of {content[byte]} at byte {first + byte:,}"
                        return Finding(name, text, "0 or 1")
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

    async def _check_copies(self, group: Node, report: ArrayReport) -> None:
        """Compare consolidated metadata, by which zarr opens the members of a group.

        Not attributes, which change without being consolidated; a group has nothing else.
        """
        prefix, copies = within(group.path, ""), copies_in(group.document)
        nodes = self._nodes if copies else {}
        names = {path[len(prefix) :] for path in nodes if path.startswith(prefix)} - {""}
        for name in sorted(names | copies.keys()):
            path, copy, found = prefix + name, copies.get(name), f"differs from its {DOCUMENT}"
            node = nodes.get(path)
            if not is_path(name):
                found = "not the path of a node"
            elif node is not None and name not in copies:
                above = nodes.get(path.rpartition("/")[0])
                if not node.document or above is None or above.kind != "group":
                    continue
                found = f"no copy of {name}, which zarr therefore does not see"
            # Behind a second link, a node has not been met.
            elif (node := node or await self._listing.node_at(path)) is None:
                found = f"a copy of a {DOCUMENT} that is not there"
            elif isinstance(copy, dict) and copy.get("node_type") == node.kind:
                without = {"attributes": None}
                if node.kind == "group" or copy | without == node.document | without:
                    continue
            advice = "zarr.consolidate_metadata writes it anew"
            report.findings.append(Finding(f"consolidated_metadata: {name}", found, advice))


async def _guarded(report: ArrayReport, checking: Coroutine[Any, Any, None]) -> None:
    """Await a check, whose errors are findings: the nodes after it are checked."""
    try:
        await checking
    except RecursionError:
        report.findings.append(Finding(DOCUMENT, "nested too deeply for Python"))
    except Exception as error:  # noqa: BLE001 -- what a store can cause is caught where it is met
        found = f"a fault of the check and not of the store, please report it: {in_words(error)}"
        report.findings.append(Finding("zarr-bytes", found))


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


async def _opened(node: Node, report: ArrayReport) -> Any:
    """The node of a metadata document as zarr opens it; None, and why, where it does not."""
    document, open_node = node.document, open_array if node.kind == "array" else open_group
    try:
        text = cpu.Buffer.from_bytes(json.dumps(document).encode())
        with zarr.config.set(_STRICT), warnings.catch_warnings(action="ignore"):
            return await open_node(store=MemoryStore({DOCUMENT: text}), mode="r", zarr_format=3)
    except Exception as error:  # noqa: BLE001 -- whatever zarr and any codec raise
        subject, found = _SUBJECTS.get(type(error).__name__, DOCUMENT), in_words(error)
        permitted = getattr(error, "permitted", "")
        if isinstance(error, KeyError) and error.args[0] not in document:
            subject, found, permitted = str(error.args[0]), "missing", "required"
        elif permitted:
            found = brief(document.get(subject))
        report.findings.append(Finding(subject, found, permitted))


def _note(subject: str, text: str, keys: list[str]) -> list[Finding]:
    """A note of files that are not chunks, if there are any: their number, and the first names."""
    names = ", ".join(sorted(keys)[:3]) + ", ..." * (len(keys) > 3)
    return [Finding(subject, f"{len(keys):,} {text}: {names}", is_note=True)] if keys else []
