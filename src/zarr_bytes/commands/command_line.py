"""The commands: what they take, what they print, and their exit statuses."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from zarr_bytes.commands import tables
from zarr_bytes.commands.check import ArrayReport, check_store
from zarr_bytes.commands.hierarchy import StoreError, close, open_store, writable
from zarr_bytes.commands.migrate import MigrationError, plan, rewrite
from zarr_bytes.commands.status import status as find_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from zarr.abc.store import Store

__all__ = ["app"]

Result = TypeVar("Result")

_PATIENCE: Final = 1.0  # seconds; what is done by then needs no progress bar

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

Location = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A folder, a .zip file or a URL (http, s3, ...): one array or a hierarchy.",
    ),
]


@app.callback()
def commands() -> None:
    """The bytes codec of Zarr format 3: does it act, do stores conform."""


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Does zarr use this package, and who decided that.

    Exit status: 0 if it does, 1 if not.
    """
    found = find_status()
    if as_json:
        print_json({"active": found.is_active, **asdict(found)})
    else:
        tables.print_status(Console(), found)
    raise typer.Exit(0 if found.is_active else 1)


@app.command()
def check(store: Location, *, as_json: AsJson = False) -> None:
    """Do the metadata and the chunks of every array conform. Nothing is written.

    Metadata is held to the specification. Where a chunk is its elements alone, each stored one is
    held to its size, without reading it where the store can tell, and bools to 0 and 1.

    Exit status: 0 if everything conforms, 1 if something does not, 2 if STORE cannot be opened.
    """
    with _Bar(sys.stderr.isatty()) as bar:
        reports = _run(store, _check(store, bar.show))
    conforms = all(report.conforms for report in reports)
    if as_json:
        print_json({"store": store, "conforms": conforms, "nodes": [_as_json(r) for r in reports]})
    else:
        tables.print_check(Console(), store, reports)
    raise typer.Exit(0 if conforms else 1)


@app.command()
def migrate(
    store: Location,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show, and write nothing.")] = False,
) -> None:
    """Rewrite metadata of the draft form to today's: endian to bytes, and bytes for no codec.

    The changes are shown, and written if you say so. Chunks are not touched. Each old document
    is kept beside the new one until that is in place and has been read back.

    Exit status: 0 if everything is migrated or, on --dry-run, can be, 1 if something is not, 2 if
    STORE cannot be opened.
    """
    raise typer.Exit(_run(store, _migrate(store, yes=yes, dry_run=dry_run)))


async def _migrate(location: str, *, yes: bool, dry_run: bool) -> int:
    async with _opened(location) as store:
        found = await plan(store)
        tables.print_plan(Console(), location, found)
        if dry_run or not found.changes:
            return 1 if found.refused else 0
        target = writable(store)
        documents = tables.documents(len(found.changes))
        typer.echo()
        if not yes and not typer.confirm(f"Write {documents}?"):
            return 1
        for done, change in enumerate(found.changes):
            try:
                await rewrite(target, change)
            except MigrationError as error:
                typer.echo(f"{error}\n{done} of {documents} migrated.", err=True)
                return 1
        typer.echo(f"Migrated: {documents}.")
        return 1 if found.refused else 0


async def _check(location: str, progress: Callable[[str, int, int], None]) -> list[ArrayReport]:
    async with _opened(location) as store:
        return [report async for report in check_store(store, progress)]


@asynccontextmanager
async def _opened(location: str) -> AsyncIterator[Store]:
    store = await open_store(location)
    try:
        yield store
    finally:
        await close(store)


def _as_json(report: ArrayReport) -> dict[str, object]:
    return {"conforms": report.conforms, **asdict(report)}


def _run(location: str, work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`; what keeps a store from being opened is one line, and exit status 2."""
    try:
        return asyncio.run(work)
    except (StoreError, OSError) as error:
        typer.echo(f"{location}: {error}", err=True)
        raise typer.Exit(2) from None


class _Bar:
    """A progress bar on a terminal, for what takes longer than a second."""

    def __init__(self, is_terminal: bool) -> None:  # noqa: FBT001
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._is_terminal = is_terminal
        self._started = time.monotonic()
        self._path: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self._progress.stop()

    def show(self, path: str, done: int, total: int) -> None:
        """`done` of `total` chunks of the array at `path` are checked; 0 is not known yet."""
        if not self._is_terminal or time.monotonic() - self._started < _PATIENCE:
            return
        self._progress.start()  # does nothing if it has
        if path != self._path:
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(f"/{path}")
            self._path = path
        self._progress.update(self._progress.task_ids[0], completed=done, total=total or None)


def print_json(document: object) -> None:
    """Print `document` as JSON, on stdout."""
    typer.echo(json.dumps(document, indent=2, default=str))
