"""`check` and `migrate` as functions: a store opened, gone through, and closed."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from zarr.abc.store import Store

from zarr_bytes.commands.check import check_store
from zarr_bytes.commands.migrate import plan, write
from zarr_bytes.commands.reports import CheckReport
from zarr_bytes.commands.stores import close, hint, open_store, writable
from zarr_bytes.errors import StoreError
from zarr_bytes.zarr_versions import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from zarr_bytes.commands.reports import ArrayReport, Migration, Progress

__all__ = ["check", "migrate", "opened", "run"]

Result = TypeVar("Result")


def check(
    store: str | os.PathLike[str] | Store,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> CheckReport:
    """Do the metadata and the chunks of every array of a store conform. Nothing is written.

    What the command ``zarr-bytes check`` does.

    Parameters
    ----------
    store : str, os.PathLike or zarr.abc.store.Store
        A folder, a ``.zip`` file, a URL that fsspec opens, or a store that is open: with one array
        in it or a hierarchy.
    storage_options : mapping, optional
        What fsspec is to be called with; only for a URL.
    progress : callable, optional
        Called with what is done so far, by another thread.

    Returns
    -------
    CheckReport
        It prints as a table. ``conforms`` is the verdict, and a loop over it gives an `ArrayReport`
        for every array.

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
        return CheckReport.of(name, run(_collected(source, progress)))


async def _collected(store: Store, progress: Callable[[Progress], None]) -> list[ArrayReport]:
    return [report async for report in check_store(store, progress)]


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
            run(write(_writable(source, store), found))
        return found


def _writable(source: Store, store: object) -> Store:
    if source is store and source.read_only:
        raise StoreError("the store was opened to be read only; nothing was written")
    return writable(source)


@contextmanager
def opened(
    store: str | os.PathLike[str] | Store, storage_options: Mapping[str, object] | None = None
) -> Iterator[tuple[Store, str]]:
    """A store and its name, to be read; one that is opened here is closed.

    Raises
    ------
    StoreError
        Beginning with the name, if the store cannot be opened, or something in here fails because
        of it.
    """
    if not isinstance(store, str | os.PathLike | Store):
        raise TypeError(
            f"store is of type {type(store).__qualname__}; permitted are a path, a URL and a zarr"
            " store, such as array.store"
        )
    name = str(store) if isinstance(store, Store) else os.fspath(store)
    source = None
    try:
        source = store if isinstance(store, Store) else run(open_store(name, storage_options))
        yield source, name
    except (StoreError, OSError) as error:
        advice = "" if source is None or isinstance(error, StoreError) else hint(error, source)
        raise StoreError(f"{name}: {error}{advice}") from error
    finally:
        if source is not None and source is not store:
            run(close(source))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Result of `work`, which runs on zarr's own event loop: connections of stores belong to it.

    Also where this thread has a loop that runs, as in a notebook. An interruption cancels `work`
    and waits until it has stopped.
    """
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []
    stopped = Event()

    async def cancellable() -> Result:
        started.append((asyncio.get_running_loop(), asyncio.current_task()))
        try:
            return await work
        finally:
            stopped.set()

    try:
        return sync(cancellable())
    except BaseException:
        if started and not stopped.is_set():
            loop, task = started[0]
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)
            stopped.wait(10)  # seconds, for a request that is on its way
        raise
