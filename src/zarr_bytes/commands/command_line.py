"""The commands: what they take, what they print, and their exit statuses."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from zarr_bytes.commands import tables
from zarr_bytes.commands.check import Progress as Done
from zarr_bytes.commands.check import check_store
from zarr_bytes.commands.migrate import MigrationError, Plan, plan, remove_leftover, rewrite
from zarr_bytes.commands.reports import ArrayReport, Verdict, number
from zarr_bytes.commands.status import status as find_status
from zarr_bytes.commands.stores import (
    StoreError,
    close,
    hint,
    open_store,
    storage_options,
    writable,
)
from zarr_bytes.commands.text import as_json, cut, in_digits, printable

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

StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="What fsspec needs to open the URL, such as anon=true or key=... ; may be repeated.",
    ),
]


@app.callback()
def commands() -> None:
    """The bytes codec of Zarr format 3: does it act, do stores conform."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # any name can be shown on any terminal
            stream.reconfigure(errors="backslashreplace")


@app.command()
def status(
    *,
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List the data types, with their classes.")
    ] = False,
) -> None:
    """Does zarr use this package, and who decided that.

    Exit status: 0 if it does, 1 if not.
    """
    found = find_status()
    if as_json:
        print_json({"active": found.is_active, **asdict(found)})
    else:
        tables.print_status(Console(), found, verbose=verbose)
    raise typer.Exit(0 if found.is_active else 1)


@app.command()
def check(
    store: Location,
    *,
    as_json: AsJson = False,
    list_all: Annotated[
        bool, typer.Option("--all", help="List every array, also of many.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit status 1 also where something is not checked.")
    ] = False,
    storage_option: StorageOptions = None,
) -> None:
    """Do the metadata and the chunks of every array conform. Nothing is written.

    Metadata is held to the specification. Where a chunk is its elements alone, each stored one is
    held to its size, without reading it where the store can tell, and bools to 0 and 1.

    Exit status: 0 if everything that was checked conforms, 1 if something does not or nothing
    could be checked, 2 if STORE cannot be opened.
    """
    with _Bar(sys.stderr.isatty()) as bar:
        reports = _run(store, _check(store, _options(storage_option), bar.show))
    verdict = Verdict.of(reports)
    if as_json:
        nodes = [_as_json(report) for report in reports]
        print_json({"store": store, **_verdict_as_json(verdict), "nodes": nodes})
    else:
        tables.print_check(Console(), store, reports, verdict, list_all=list_all)
    raise typer.Exit(0 if verdict.conforms and (verdict.is_complete or not strict) else 1)


@app.command()
def migrate(
    store: Location,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show, and write nothing.")] = False,
    storage_option: StorageOptions = None,
) -> None:
    """Rewrite metadata of the draft form to today's: endian to bytes, and bytes for no codec.

    The changes are shown, and written if you say so. Chunks are not touched. Each old document
    is kept beside the new one until that is in place and has been read back; one that a killed run
    has left is removed.

    Exit status: 0 if everything is migrated or, on --dry-run, can be, 1 if something is not, 2 if
    STORE cannot be opened.
    """
    options = _options(storage_option)
    raise typer.Exit(_run(store, _migrate(store, options, yes=yes, dry_run=dry_run)))


async def _migrate(location: str, options: dict[str, object], *, yes: bool, dry_run: bool) -> int:
    async with _opened(location, options) as store:
        found = await plan(store)
        tables.print_plan(Console(), location, found)
        if dry_run or not (found.changes or found.leftovers):
            return 1 if found.refused else 0
        target = writable(store)
        typer.echo()
        if not yes and not typer.confirm(f"{_intended(found)}?"):
            return 1
        done = 0
        try:
            for change in found.changes:
                await rewrite(target, change)
                done += 1
            for key, text in found.leftovers.items():
                await remove_leftover(target, key, text)
        except MigrationError as error:
            documents = number(len(found.changes), "metadata document")
            typer.echo(f"{printable(str(error))}\n{done:,} of {documents} migrated.", err=True)
            return 1
        if found.changes:
            typer.echo(f"Migrated: {number(done, 'metadata document')}.")
        if found.leftovers:
            leftovers = number(len(found.leftovers), "leftover")
            typer.echo(f"Removed: {leftovers} of an earlier run.")
        if found.refused:
            refused = number(len(found.refused), "metadata document")
            typer.echo(f"Not migrated: {refused}, for the reasons above.")
        return 1 if found.refused else 0


def _intended(found: Plan) -> str:
    steps = []
    if found.changes:
        steps.append(f"Write {number(len(found.changes), 'metadata document')}")
    if found.leftovers:
        steps.append(f"Remove {number(len(found.leftovers), 'leftover')}")
    return " and ".join([steps[0], *(step.lower() for step in steps[1:])])


async def _check(
    location: str, options: dict[str, object], progress: Callable[[Done], None]
) -> list[ArrayReport]:
    async with _opened(location, options) as store:
        return [report async for report in check_store(store, progress)]


@asynccontextmanager
async def _opened(location: str, options: dict[str, object]) -> AsyncIterator[Store]:
    store = await open_store(location, options)
    try:
        yield store
    except OSError as error:
        if advice := hint(error, store):
            raise StoreError(f"{error}{advice}") from error
        raise
    finally:
        await close(store)


def _options(texts: list[str] | None) -> dict[str, object]:
    try:
        return storage_options(texts or [])
    except ValueError as error:
        raise typer.BadParameter(printable(str(error)), param_hint="--storage-option") from None


def _verdict_as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "conforms": verdict.conforms,
        "verdict": verdict.text,
        "complete": verdict.is_complete,
        "arrays": verdict.arrays,
        "arrays_not_checked": verdict.arrays_not_checked,
    }


def _as_json(report: ArrayReport) -> dict[str, object]:
    # `asdict` would copy the data type, however deep it is.
    members = {field.name: getattr(report, field.name) for field in fields(report)}
    findings = [asdict(finding) for finding in report.findings]
    return {"conforms": report.conforms, **members, "findings": findings}


def _run(location: str, work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`; what keeps a store from being opened is one line, and exit status 2."""
    try:
        return asyncio.run(work)
    except (StoreError, OSError) as error:
        typer.echo(printable(f"{location}: {error}"), err=True)
        raise typer.Exit(2) from None


class _Bar:
    """A progress bar over the whole store, on a terminal, for what takes longer than a second."""

    def __init__(self, is_terminal: bool) -> None:  # noqa: FBT001
        self._progress = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.fields[counts]}", markup=False),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, counts="")
        self._is_terminal = is_terminal
        self._is_shown = False
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._progress.stop()

    def show(self, done: Done) -> None:
        """Show how far the check is."""
        if not self._is_terminal or time.monotonic() - self._started < _PATIENCE:
            return
        self._progress.start()  # does nothing if it has
        self._is_shown = True
        counts = f"{done.nodes_done:,} of {done.nodes_found:,} found"
        part = 0.0
        if done.chunks:
            counts += f", chunk {done.chunks_done:,} of {in_digits(done.chunks)}"
            part = min(done.chunks_done / done.chunks, 1)
        self._progress.update(
            self._task,
            description=cut(printable(f"/{done.path}"), 24),
            completed=done.nodes_done + part,
            total=done.nodes_found,
            counts=counts,
        )


def print_json(document: object) -> None:
    """Print `document` as JSON, on stdout."""
    typer.echo(as_json(document))
