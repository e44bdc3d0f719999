"""Metadata of the draft form to today's: `endian` to `bytes`, and an explicit codec for none.

Specification: endian codec 1.0. Its configuration is that of `bytes`, and where it was omitted the
elements were little-endian. The chunks are the same under both, so that they are not touched.

Single bytes keep the `endian` that the draft required: today's specification permits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zarr_bytes.commands.conformance import (
    encoding_finding,
    inner_chains,
    kind_of,
    name_of,
    refusal,
)
from zarr_bytes.commands.hierarchy import Hierarchy, consolidated
from zarr_bytes.commands.json_text import (
    Edit,
    apply,
    insert_item,
    insert_member,
    items,
    members,
    value,
)
from zarr_bytes.commands.replacing import BACKUP, remove_leftover, rewrite
from zarr_bytes.commands.reports import Change, Migration
from zarr_bytes.commands.sources import DOCUMENT, within
from zarr_bytes.commands.stores import asked, opened, run, writable
from zarr_bytes.commands.text import number
from zarr_bytes.errors import MigrationError, StoreError, in_words

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Iterator

    from zarr.abc.store import Store

    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.json_text import Span
    from zarr_bytes.commands.sources import Source

__all__ = ["is_migrated", "migrate", "migrated", "plan", "write"]

_LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}
_ADDED: Final = "bytes added, little-endian as the draft had it"


def migrated(text: str, skip: Container[str] = ()) -> tuple[str, list[str]]:
    """Today's form of a metadata document, and in words what was changed.

    Of a group, the arrays in its consolidated metadata are meant, but for those whose paths are in
    `skip`.

    Raises
    ------
    MigrationError
        If an unknown codec may or may not be the one that turns an array into bytes.

    Examples
    --------
    >>> migrated('{"node_type": "array", "codecs": []}')[1]
    ['codecs: bytes added, little-endian as the draft had it']
    """
    found = list(_document_edits(text, 0, "", skip))
    return apply(text, [edit for edit, _ in found]), [step for _, step in found]


def _document_edits(
    text: str, start: int, where: str, skip: Container[str]
) -> Iterator[tuple[Edit, str]]:
    spans = members(text, start)
    document = {name: value(text, span) for name, span in spans.items()}
    if document.get("node_type") == "array":
        if "codecs" in document:
            yield from _chain_edits(text, spans["codecs"], f"{where}codecs")
        else:
            yield insert_member(text, start, "codecs", [_LITTLE]), f"{where}codecs: {_ADDED}"
    elif copies := consolidated(document):
        metadata = members(text, spans["consolidated_metadata"].start)["metadata"]
        for path, span in members(text, metadata.start).items():
            if path not in skip and isinstance(copies[path], Mapping):
                yield from _document_edits(text, span.start, f"{path}: ", skip)


def _chain_edits(text: str, span: Span, where: str) -> Iterator[tuple[Edit, str]]:
    codecs = value(text, span)
    if not isinstance(codecs, list):
        return  # not the draft's form either: `check` says so
    for i, (codec, place) in enumerate(zip(codecs, items(text, span.start), strict=True)):
        if name_of(codec) == "endian" and isinstance(codec, Mapping):
            name = members(text, place.start)["name"]
            yield Edit(name, '"bytes"'), f"{where}[{i}]: endian becomes bytes"
        for member in inner_chains(codec):
            configuration = members(text, place.start)["configuration"]
            chain = members(text, configuration.start)[member]
            yield from _chain_edits(text, chain, f"{where}[{i}].{member}")
    kinds = list(map(kind_of, codecs))
    if "array -> bytes" in kinds:
        return
    if None in kinds:
        unknown = name_of(codecs[kinds.index(None)])
        raise MigrationError(f"{where}: the codec {unknown!r} is not known here; install it first")
    yield insert_item(text, span, kinds.count("array -> array"), _LITTLE), f"{where}: {_ADDED}"


def migrate(
    store: str | os.PathLike[str] | Store,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> Migration:
    """Rewrite metadata of the draft form to today's: endian to bytes, and bytes for no codec.

    Writes at once, as the command ``zarr-bytes migrate --yes``. Chunks are not touched.

    Parameters
    ----------
    store : str, os.PathLike or zarr.abc.store.Store
        As for `check`.
    dry_run : bool, default False
        Whether to report only, and write nothing.
    storage_options : mapping, optional
        What fsspec is to be called with; only for a URL.

    Returns
    -------
    Migration
        It prints as a table. A loop over it gives every `Change`, with both texts, and ``refused``
        has what cannot be migrated, with the reasons.

    Raises
    ------
    StoreError
        If the store cannot be opened, or a document in it not replaced.
    MigrationError
        If writing fails; it says what is in the store then.

    Examples
    --------
    >>> import zarr
    >>> store = zarr.storage.MemoryStore()
    >>> _ = zarr.create_array(store, shape=3, dtype="i4", compressors=None)
    >>> list(migrate(store, dry_run=True))
    []
    """
    with opened(store, storage_options) as (source, name):
        found = run(plan(source, name))
        if not dry_run and (found.changes or found.leftovers):
            if source is store and source.read_only:
                raise StoreError("the store was opened to be read only; nothing was written")
            run(write(writable(source), found))
        return found


async def plan(store: Store, name: str = "") -> Migration:
    """What is to be rewritten in `store`, called `name`, of which nothing is written here.

    Every new document has been opened by zarr, apart from the store. A StoreError says that the
    store holds no Zarr metadata.
    """
    found = Migration(name)
    groups = []
    async with asked(store) as source:
        async for node in Hierarchy(source).nodes():
            match node.kind:
                case "unreadable":
                    found.refused[node.path] = node.error
                case "array":
                    await _add(source, node, found)
                case "group":
                    groups.append(node)
                case "format 2":
                    found.format_2.append(node.path)
        refused = list(found.refused)  # stay as they are in consolidated metadata too
        for group in groups:
            prefix = within(group.path, "")
            has_copies = bool(consolidated(group.document))
            skip = {path.removeprefix(prefix) for path in refused} if has_copies else ()
            await _add(source, group, found, skip)
    return found


async def _add(source: Source, node: Node, found: Migration, skip: Container[str] = ()) -> None:
    try:
        change = await _change(node, skip)
        found.changes += [change] if change else []
    except ValueError as error:
        found.refused[node.path] = str(error)
    try:
        await _add_leftovers(source, node, found)
    except Exception as error:  # noqa: BLE001 -- of any store: one document is not to stop the rest
        found.refused.setdefault(node.path, in_words(error))


async def _add_leftovers(source: Source, node: Node, found: Migration) -> None:
    """Find what a run that was killed has left beside a document."""
    if not source.store.supports_deletes:
        return
    backup = node.key + BACKUP
    old = await source.read(backup) if await source.exists(backup) else None
    # Beside no backup, "zarr." and digits may be what another process is writing now.
    prefix = f"{DOCUMENT}." if old is None else "zarr."
    for name in await source.unfinished(node.path, below=False):
        if name.startswith(prefix):
            key = within(node.path, name)
            found.leftovers[key] = await source.read(key) or b""
    is_planned = any(change.key == node.key for change in found.changes[-1:])
    if old is None or is_planned or node.path in found.refused:
        return
    if node.kind == "group" or await refusal(node.text) is None:
        found.leftovers[backup] = old


async def is_migrated(node: Node) -> bool:
    """Whether there is something to migrate in a document, and nothing in the way."""
    try:
        return await _change(node) is not None
    except ValueError:
        return False


async def _change(node: Node, skip: Container[str] = ()) -> Change | None:
    if node.document.get("zarr_format") != 3:
        return None
    # As `json.loads` reads it, and so zarr.
    text = node.text.decode(node.encoding, "surrogatepass")
    try:
        new, steps = migrated(text, skip)
    except RecursionError:
        raise MigrationError("it is nested deeper than Python follows") from None
    if not steps:
        return None
    encoding = encoding_finding(node)
    if encoding is not None:
        raise MigrationError(f"{encoding.found}; permitted is {encoding.permitted}: rewrite it")
    change = Change(node.path, node.key, node.text, new.encode(errors="surrogatepass"), steps)
    if node.kind == "array" and (reason := await refusal(change.new)):
        raise MigrationError(f"zarr would not open it: {reason}")
    return change


async def write(store: Store, found: Migration) -> None:
    """Do what is planned; a MigrationError says which document is in place, and how many are."""
    done = 0
    try:
        for change in found.changes:
            await rewrite(store, change)
            done += 1
        for key, text in found.leftovers.items():
            await remove_leftover(store, key, text)
    except MigrationError as error:
        documents = number(len(found.changes), "metadata document")
        raise MigrationError(f"{error}\n{done:,} of {documents} migrated.") from error
    found.is_written = True
