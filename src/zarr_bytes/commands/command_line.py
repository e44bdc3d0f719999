"""The commands on a command line: arguments, output and exit statuses."""

from __future__ import annotations

import io
import os
import shutil
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import nullcontext, suppress
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, Literal

import zarr
from zarr.errors import ArrayNotFoundError, NodeTypeValidationError
from zarr.storage import LocalStore

import zarr_bytes
from zarr_bytes.commands.check import check
from zarr_bytes.commands.explain import explain
from zarr_bytes.commands.migrate import plan, write
from zarr_bytes.commands.preallocate import preallocate_store
from zarr_bytes.commands.screen import has_rich, plain
from zarr_bytes.commands.selections import selection_of_text
from zarr_bytes.commands.status import status
from zarr_bytes.commands.stores import (
    member_is_missing,
    opened,
    run,
    storage_options,
    writable,
)
from zarr_bytes.commands.tables import parts_of
from zarr_bytes.commands.text import as_json, number, printable
from zarr_bytes.errors import MigrationError, StoreError, in_words

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from zarr_bytes.commands.reports import Progress, Result

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with `arguments`, or those of the process, and return its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as by ``>&-``
            setattr(sys, name, io.StringIO())
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # so that any terminal shows any name
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    given = parser.parse_args(arguments)
    if "command" not in given:
        parser.print_help()
        return 2
    try:
        code: int = given.command(given)
        sys.stdout.flush()
    except OSError as error:  # such as of a pager that was closed, or a full disk
        with suppress(OSError):  # for the rest of the output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(printable(in_words(error)) + "\n")
        return 1
    except StoreError as error:
        sys.stderr.write(printable(str(error)) + "\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    return code


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        "zarr-bytes",
        description="Reads of selected bytes in Zarr arrays: are they active, what do they cost.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {zarr_bytes.__version__}")
    parser.set_defaults(as_json=False, in_full=False)  # where a command has no such option
    commands = parser.add_subparsers(metavar="COMMAND")
    for command, options in _OPTIONS.items():
        text = dedent(f"    {command.__doc__}").strip()
        added = commands.add_parser(
            command.__name__.removeprefix("_"),
            description=text,
            help=text.partition("\n")[0],
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        added.set_defaults(command=command)
        for names, keywords in options.items():
            added.add_argument(*names.split(), **keywords)
    return parser


def _flag(text: str, **keywords: str) -> dict[str, str]:
    return {"action": "store_true", "help": text, **keywords}


def _status(given: Namespace) -> int:
    """Say whether zarr uses this package, and who decided that.

    Exit status: 0 if it does, 1 if not, or if a setting is not known or has a value that is not
    permitted.
    """
    found = status()
    _print(found, given)
    return 0 if found.is_in_order else 1


def _check(given: Namespace) -> int:
    """Check whether the metadata and the chunks of every array conform; write nothing.

    Metadata is compared with the specification. For uncompressed arrays, the size of each stored
    chunk is checked, without reading it where the store can tell, and that bools are 0 or 1.

    Exit status: 0 if everything that was checked conforms, 1 if something does not or nothing
    could be checked, 2 if STORE cannot be opened.
    """
    options = storage_options(given.storage_option)
    with _progress() as progress:
        found = check(given.store, storage_options=options, progress=progress)
    _print(found, given)
    return 0 if found.conforms and (found.is_complete or not given.strict) else 1


def _progress() -> AbstractContextManager[Callable[[Progress], None]]:
    if not (has_rich() and sys.stderr.isatty()):
        return nullcontext(lambda _: None)
    from zarr_bytes.commands.rich_screen import progress_bar

    return progress_bar()


def _migrate(given: Namespace) -> int:
    """Rewrite metadata of the draft form to today's: endian to bytes, and bytes for no codec.

    The changes are shown, and written if you say so. Chunks are not touched. Each old document
    is kept beside the new one until the new one is in place and has been read back. An old document
    that a killed run has left is removed.

    Exit status: 0 if everything is migrated or, on --dry-run, can be, 1 if something is not, 2 if
    STORE cannot be opened.
    """
    with opened(given.store, storage_options(given.storage_option)) as (store, name):
        found = run(plan(store, name))
        _print(found, given)
        if given.dry_run or not (found.changes or found.leftovers):
            return 1 if found.refused else 0
        target = writable(store)
        changes = number(len(found.changes), "metadata document")
        leftovers = number(len(found.leftovers), "leftover")
        steps = [f"write {changes}"] * bool(found.changes)
        steps += [f"remove {leftovers}"] * bool(found.leftovers)
        _write("")
        if not given.yes and not _agreed(f"{' and '.join(steps).capitalize()}?"):
            _write("Nothing written; --yes writes.")
            return 1
        try:
            run(write(target, found))
        except MigrationError as error:
            sys.stderr.writelines(f"{printable(line)}\n" for line in str(error).split("\n"))
            return 1
    if found.changes:
        _write(f"Migrated: {changes}.")
    if found.leftovers:
        _write(f"Removed: {leftovers} of an earlier run.")
    if found.refused:
        refused = number(len(found.refused), "metadata document")
        _write(f"Not migrated: {refused}, for the reasons above.")
    return 1 if found.refused else 0


def _preallocate(given: Namespace) -> int:
    """Make every chunk of uncompressed arrays in advance, so that processes can share each of them.

    Missing chunks and shards are made of the fill value, and take no room on the disk where that is
    zero. Shards get the inner chunks that they lack. What is there is kept.

    Exit status: 0 if all chunks of all arrays are there now, 1 if not, 2 if STORE cannot be opened.
    """
    with _progress() as progress:
        found = preallocate_store(given.store, progress=progress)
    _print(found, given)
    return 1 if any(array.refused for array in found) else 0


def _explain(given: Namespace) -> int:
    """Say what a read of a selection does, and why it is not partial; read no chunk.

    SELECTION is as between brackets in Python: integers, slices, ... and lists of integers, such as
    '[:, 7, 3]'. Chunks that are missing are taken for chunks that are there.

    Exit status: 0 if the read is partial, or the write in place; 1 if not, 2 if STORE cannot be
    opened or SELECTION does not fit the array.
    """
    selection = selection_of_text(given.selection)
    with opened(given.store, storage_options(given.storage_option)) as (store, _):
        try:
            # In other stores nothing is written in place, which `explain` says.
            is_written = given.write and isinstance(store, LocalStore)
            target = writable(store) if is_written else store
            mode: Literal["r", "r+"] = "r+" if is_written else "r"
            array = zarr.open_array(target, path=given.array, mode=mode)
        except (ArrayNotFoundError, NodeTypeValidationError) as error:
            where = f"at {given.array!r}" if given.array else "at its root"
            raise StoreError(
                f"there is no array {where}: name one with --array PATH; `zarr-bytes check` lists"
                " the arrays of a store"
            ) from error
        except KeyError as error:
            raise StoreError(member_is_missing(error)) from error
        except Exception as error:  # whatever a store, zarr and any codec or data type raise
            raise StoreError(in_words(error)) from error
        try:
            found = explain(array, selection, write=given.write)
        except (IndexError, TypeError, ValueError, OSError) as error:
            raise StoreError(in_words(error)) from error
    _print(found, given)
    return 0 if found.is_partial else 1


def _agreed(question: str) -> bool:
    try:
        return input(f"{question} [y/N]: ").strip().lower() in ("y", "yes")
    except (EOFError, RuntimeError):  # no terminal, or no standard input at all
        _write("")
        return False


def _print(found: Result, given: Namespace) -> None:
    """Print a result as JSON or tables; its verdict again if it is no longer on the screen."""
    if given.as_json:
        _write(as_json(found._document()))
        return
    parts = parts_of(found, in_full=given.in_full)
    if has_rich():
        from zarr_bytes.commands import rich_screen

        rich_screen.print_parts(parts)
        return
    verdict, *others = parts
    text = plain([verdict, *others])
    if text.count("\n") + 3 > shutil.get_terminal_size().lines:  # and the prompt
        text += "\n\n" + plain([verdict])
    _write(text)


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")


_STORE: Final[dict[str, dict[str, Any]]] = {
    "store": {
        "metavar": "STORE",
        "help": "a folder, a .zip file or a URL (http, s3, ...): one array or a hierarchy",
    },
    "--storage-option": {
        "metavar": "KEY=VALUE",
        "action": "append",
        "default": [],
        "help": "what fsspec needs to open the URL, such as anon=true; may be repeated",
    },
}
_JSON: Final = {"--json": _flag("print one JSON document, for programs", dest="as_json")}
_OPTIONS: Final[dict[Callable[[Namespace], int], dict[str, dict[str, Any]]]] = {
    _status: {
        **_JSON,
        "-v --verbose": _flag("list the data types, with their classes", dest="in_full"),
    },
    _check: {
        **_STORE,
        **_JSON,
        "--all": _flag("list every array, also of many", dest="in_full"),
        "--strict": _flag("exit status 1 also where something is not checked"),
    },
    _migrate: {
        **_STORE,
        "-y --yes": _flag("write without asking"),
        "--dry-run": _flag("show, and write nothing"),
    },
    _explain: {
        "store": _STORE["store"],
        "selection": {"metavar": "SELECTION", "help": "such as '[:, 7, 3]'"},
        "--array": {"metavar": "PATH", "default": "", "help": "the array in a hierarchy"},
        "--storage-option": _STORE["--storage-option"],
        **_JSON,
        "--write": _flag("explain a write"),
    },
    _preallocate: {
        "store": {"metavar": "STORE", "help": "a folder: one array or a hierarchy"},
        **_JSON,
    },
}
