"""`migrate`: draft documents replaced by today's form, safe when interrupted.

Chunks are not touched: their bytes are equal in both forms.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from zarr.buffer import cpu

from zarr_bytes.commands.conformance import encoding_finding, refusal
from zarr_bytes.commands.draft import migrated
from zarr_bytes.commands.hierarchy import consolidated, nodes
from zarr_bytes.commands.reports import Change, Migration
from zarr_bytes.commands.sources import DOCUMENT, within
from zarr_bytes.commands.stores import asked, opened, run, source_of, writable
from zarr_bytes.commands.text import number
from zarr_bytes.errors import MigrationError, StoreError, in_words

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Mapping

    from zarr.abc.store import Store

    from zarr_bytes.commands.hierarchy import Node
    from zarr_bytes.commands.sources import Source

__all__ = ["BACKUP", "is_migrated", "migrate", "plan", "write"]

BACKUP: Final = ".before-migration"  # added to the key of a document, for its copy


def migrate(
    store: str | os.PathLike[str] | Store,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> Migration:
    """Rewrite metadata of the draft form to today's: endian to bytes, and bytes for no codec.

    Writes without asking, like the command ``zarr-bytes migrate --yes``. Chunks are not touched.

    Parameters
    ----------
    store : str, os.PathLike or zarr.abc.store.Store
        As for `check`.
    dry_run : bool, default False
        Whether to report the changes without writing.
    storage_options : mapping, optional
        Arguments for fsspec; only for a URL.

    Returns
    -------
    Migration
        The result prints as a table. A loop over it gives every `Change`, with both texts;
        ``refused`` has the reason for each document that cannot be migrated.

    Raises
    ------
    StoreError
        If the store cannot be opened, or its documents cannot be replaced.
    MigrationError
        If writing fails; the message says what the store holds then.

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
    """Planned changes to `store`, called `name`, without writing.

    zarr has opened the new document of each array, in memory.

    Raises
    ------
    StoreError
        If the store holds no Zarr metadata.
    """
    found = Migration(name)
    groups = []
    async with asked(store) as source:
        async for node, _ in nodes(source):
            match node.kind:
                case "unreadable":
                    found.refused[node.path] = node.error
                case "array":
                    await _add(source, node, found)
                case "group":
                    groups.append(node)
                case "format 2":
                    found.format_2.append(node.path)
        refused = list(found.refused)  # their copies in consolidated metadata stay, too
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
    except Exception as error:  # noqa: BLE001 -- of any store; the documents after it are still read
        found.refused.setdefault(node.path, in_words(error))


async def _add_leftovers(source: Source, node: Node, found: Migration) -> None:
    """Add the files that an interrupted run has left beside a document."""
    if not source.store.supports_deletes:
        return
    backup = node.key + BACKUP
    old = await source.read(backup) if await source.exists(backup) else None
    # Without a backup, "zarr." and digits may be a file that another process writes now.
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
    """Whether `migrate` changes a document."""
    try:
        return await _change(node) is not None
    except ValueError:
        return False


async def _change(node: Node, skip: Container[str] = ()) -> Change | None:
    if node.document.get("zarr_format") != 3:
        return None
    # Decoded as by `json.loads`, which zarr uses.
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
    """Write the changes; a MigrationError names the failing document, and how many are done."""
    done = 0
    try:
        for change in found.changes:
            await _rewrite(store, change)
            done += 1
        for key, text in found.leftovers.items():
            await _remove_leftover(store, key, text)
    except MigrationError as error:
        documents = number(len(found.changes), "metadata document")
        raise MigrationError(f"{error}\n{done:,} of {documents} migrated.") from error
    found.is_written = True


async def _remove_leftover(store: Store, key: str, text: bytes) -> None:
    """Delete a file of an interrupted run, if its content is still `text`."""
    try:
        if await _read(store, key) != text:
            raise MigrationError(f"{key} has changed meanwhile; it was not deleted")
        await store.delete(key)
    except OSError as error:
        raise MigrationError(f"{key} could not be deleted: {in_words(error)}") from error


async def _rewrite(store: Store, change: Change) -> None:
    """Replace a document, and keep a copy of the old one until the new one has been read back.

    At every moment the array has one of the two documents: `set` of a `LocalStore` renames a file,
    and `set` of an object store is a single request. After a failure, a MigrationError says which
    of the two is in place, and where the old one is.
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
        with suppress(Exception):  # half a copy would stop the next attempt
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
        raise OSError(f"{key} reads back as something other than was written")


async def _put_back(store: Store, change: Change) -> str:
    """Put the old document back after a failed write, and say what is in the store."""
    try:
        if await _read(store, change.key) == change.new:
            return f"{change.key} is migrated"
        if await _read(store, change.key) != change.old:
            await _put(store, change.key, change.old)
    except Exception:  # noqa: BLE001 -- of any store; the first error is reported
        return f"it is not known what is at {change.key}"
    return f"{change.key} is as it was"
