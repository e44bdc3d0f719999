"""Metadata of the draft form to today's: `endian` to `bytes`, and an explicit codec for none.

Specification: endian codec 1.0. Its configuration is that of `bytes`, and where it was omitted the
elements were little-endian. The chunks are the same under both, so that they are not touched.

Single bytes keep the `endian` that the draft required: today's specification permits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from zarr.buffer import cpu

from zarr_bytes.commands.check import encoding_finding, refusal
from zarr_bytes.commands.codec_chain import inner_chains, kind_of, name_of
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
from zarr_bytes.commands.screen import plain
from zarr_bytes.commands.sources import within
from zarr_bytes.commands.stores import source_of
from zarr_bytes.commands.tables import migration_parts, migration_verdict
from zarr_bytes.commands.text import number
from zarr_bytes.errors import MigrationError, in_words

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from zarr.abc.store import Store

    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.json_text import Span
    from zarr_bytes.commands.sources import Source

__all__ = [
    "BACKUP",
    "Change",
    "Migration",
    "migrated",
    "plan",
    "remove_leftover",
    "rewrite",
    "write",
]

BACKUP: Final = ".before-migration"  # behind the key of the document that is kept
_LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}


@dataclass(frozen=True)
class Change:
    """A document to be rewritten: the key of it, both texts, and in words what differs."""

    path: str
    key: str
    old: bytes
    new: bytes
    steps: list[str]


@dataclass(repr=False)
class Migration:
    """What is to be done, or has been.

    Prints as the table that the command shows. A loop over it gives every `Change`.

    Attributes
    ----------
    store : str
        Where it is.
    changes : list of Change
        What is to be rewritten, arrays first.
    refused : dict
        Reasons by path, of what cannot be.
    leftovers : dict
        Old documents that an earlier run was stopped before it deleted, by their keys: the new ones
        are in order.
    is_written : bool
        Whether all of the changes have been made, and the leftovers removed.
    """

    store: str = ""
    changes: list[Change] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    leftovers: dict[str, bytes] = field(default_factory=dict)
    is_written: bool = False

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __repr__(self) -> str:
        return plain([migration_verdict(self), *migration_parts(self)])


def migrated(text: str, skip: Container[str] = ()) -> tuple[str, list[str]]:
    """Today's form of a metadata document, and in words what was changed.

    Parameters
    ----------
    text : str
        The document of an array, or of a group: then the arrays in its consolidated metadata are
        meant.
    skip : container of str
        Paths in the consolidated metadata that are left as they are.

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
            yield insert_member(text, start, "codecs", [_LITTLE]), _added(f"{where}codecs")
        return
    if copies := consolidated(document):
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
    kinds = [kind_of(name_of(codec) or "") for codec in codecs]
    if "array -> bytes" in kinds:
        return
    if None in kinds:
        unknown = name_of(codecs[kinds.index(None)])
        raise MigrationError(f"{where}: the codec {unknown!r} is not known here; install it first")
    index = kinds.count("array -> array")
    yield insert_item(text, span, index, _LITTLE), _added(where)


def _added(where: str) -> str:
    return f"{where}: bytes added, little-endian as the draft had it"


async def plan(store: Store, name: str = "") -> Migration:
    """What is to be rewritten in `store`, called `name`, of which nothing is written here.

    Every new document has been opened by zarr, apart from the store.

    Raises
    ------
    StoreError
        If the store holds no Zarr metadata.
    """
    found = Migration(name)
    groups = []
    source = source_of(store)
    try:
        async for node in Hierarchy(source, listed=await source.can_list()).nodes():
            if node.kind == "unreadable":
                found.refused[node.path] = node.error
            elif node.kind == "array":
                await _add(source, node, found)
            elif node.kind == "group":
                groups.append(node)
        refused = list(found.refused)  # stay as they are in consolidated metadata too
        for group in groups:
            prefix = within(group.path, "")
            has_copies = bool(consolidated(group.document))
            skip = {path.removeprefix(prefix) for path in refused} if has_copies else ()
            await _add(source, group, found, skip)
    finally:
        source.close()
    return found


async def _add(source: Source, node: Node, found: Migration, skip: Container[str] = ()) -> None:
    try:
        change = _change(node, skip)
        reason = None
        if change is not None and node.kind == "array":
            reason = await refusal(change.new)
        if reason is not None:
            found.refused[node.path] = f"zarr would not open it: {reason}"
        elif change is not None:
            found.changes.append(change)
    except RecursionError:
        found.refused[node.path] = "it is nested deeper than Python follows"
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
    for key in await source.unfinished(node.path):
        # Beside no backup, the second name may be that of another process that is writing now.
        if old is not None or key.startswith(f"{node.key}."):
            found.leftovers[key] = await source.read(key) or b""
    is_planned = any(change.key == node.key for change in found.changes[-1:])
    if old is None or is_planned or node.path in found.refused:
        return
    if node.kind == "group" or await refusal(node.text) is None:
        found.leftovers[backup] = old


def _change(node: Node, skip: Container[str] = ()) -> Change | None:
    if node.document.get("zarr_format") != 3:
        return None
    # As `json.loads` reads it, and so zarr.
    text = node.text.decode(node.encoding, "surrogatepass")
    new, steps = migrated(text, skip)
    if not steps:
        return None
    encoding = encoding_finding(node)
    if encoding is not None:
        raise MigrationError(f"{encoding.found}; permitted is {encoding.permitted}: rewrite it")
    return Change(node.path, node.key, node.text, new.encode(errors="surrogatepass"), steps)


async def write(store: Store, found: Migration) -> None:
    """Do what is planned.

    Raises
    ------
    MigrationError
        If anything fails; it says which of the two documents is in place, and how many are done.
    """
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


async def remove_leftover(store: Store, key: str, text: bytes) -> None:
    """Delete an old document that an earlier run has left, if it is still the one that was planned.

    Raises
    ------
    MigrationError
        If it has changed, or cannot be deleted.
    """
    try:
        if await _read(store, key) != text:
            raise MigrationError(f"{key} has changed meanwhile; it was not deleted")
        await store.delete(key)
    except OSError as error:
        raise MigrationError(f"{key} could not be deleted: {in_words(error)}") from error


async def rewrite(store: Store, change: Change) -> None:
    """Put the new document in the place of the old one, which is kept until that is done.

    At every moment the array has one of the two documents: `set` of a `LocalStore` renames, and
    one of an object store is a single request.

    Raises
    ------
    MigrationError
        If anything fails; it says which of the two is in place, and where the old one is.
    """
    backup = change.key + BACKUP
    if await _read(store, change.key) != change.old:
        raise MigrationError(f"{change.key} has changed meanwhile; nothing was written")
    kept = await _read(store, backup)
    if kept not in (None, change.old):
        raise MigrationError(
            f"{backup} holds another document, from an earlier migration; nothing was written."
            " Look at it and move it away"
        )
    try:
        await _put(store, backup, change.old)
    except Exception as error:
        with suppress(Exception):  # half of a copy would be in the way of the next attempt
            await store.delete(backup)
        raise MigrationError(f"{change.key} is as it was: {in_words(error)}") from error
    try:
        await _put(store, change.key, change.new)
    except Exception as error:
        state = await _put_back(store, change)
        raise MigrationError(f"{state}; a copy is at {backup}: {in_words(error)}") from error
    try:
        await store.delete(backup)
    except Exception as error:
        raise MigrationError(
            f"{change.key} is migrated, but {backup} could not be deleted: {in_words(error)}"
        ) from error


async def _read(store: Store, key: str) -> bytes | None:
    return await source_of(store).read(key)


async def _put(store: Store, key: str, text: bytes) -> None:
    await store.set(key, cpu.Buffer.from_bytes(text))
    if await _read(store, key) != text:
        raise OSError(f"{key} reads back as something else than was written")


async def _put_back(store: Store, change: Change) -> str:
    """What is in the store after writing the new document has failed."""
    try:
        if await _read(store, change.key) == change.new:
            return f"{change.key} is migrated"
        if await _read(store, change.key) != change.old:
            await _put(store, change.key, change.old)
    except Exception:  # noqa: BLE001 -- of any store; what failed first is what is reported
        return f"it is not known what is at {change.key}"
    return f"{change.key} is as it was"
