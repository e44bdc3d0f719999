"""Documents of a store replaced and deleted, so that a run that is stopped loses none."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from zarr.buffer import cpu

from zarr_bytes.commands.stores import source_of
from zarr_bytes.errors import MigrationError, in_words

if TYPE_CHECKING:
    from zarr.abc.store import Store

    from zarr_bytes.commands.reports import Change

__all__ = ["BACKUP", "remove_leftover", "rewrite"]

BACKUP: Final = ".before-migration"  # behind the key of the document that is kept


async def remove_leftover(store: Store, key: str, text: bytes) -> None:
    """Delete what an earlier run has left, if it is still what was planned."""
    try:
        if await _read(store, key) != text:
            raise MigrationError(f"{key} has changed meanwhile; it was not deleted")
        await store.delete(key)
    except OSError as error:
        raise MigrationError(f"{key} could not be deleted: {in_words(error)}") from error


async def rewrite(store: Store, change: Change) -> None:
    """Put the new document in the place of the old one, which is kept until that is done.

    At every moment the array has one of the two documents: `set` of a `LocalStore` renames, and
    one of an object store is a single request. Where anything fails, a MigrationError says which of
    the two is in place, and where the old one is.
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
