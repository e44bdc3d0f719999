"""The commands on a command line: arguments, output and exit statuses."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import suppress
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import zarr_bytes
from zarr_bytes.commands.check import check
from zarr_bytes.commands.explain import explain, selection_of_text
from zarr_bytes.commands.preallocate import preallocate_store
from zarr_bytes.commands.result import as_json, cut, printable, progress_bar, screen
from zarr_bytes.commands.status import status
from zarr_bytes.commands.stores import open_array_at, open_store, storage_options
from zarr_bytes.errors import StoreError, describe_error

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from zarr_bytes.commands.result import Result

Outcome: TypeAlias = "tuple[Result, bool]"  # of a command, and whether its exit status is 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with `arguments`, or those of the process, and return its exit status."""
    # Closed by the caller, as by ``>&-``.
    sys.stdout, sys.stderr = sys.stdout or io.StringIO(), sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # so that any terminal shows any name
            stream.reconfigure(errors="backslashreplace")
    parser, commands = _parsers()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in commands:
        parser.parse_args(words)  # exits, unless nothing is named
        parser.print_help()
        return 2
    given = commands[words[0]].parse(words[1:])
    try:
        found, is_good = given.command(given)
        text = as_json(vars(found)) if given.json else screen(found, in_full=given.in_full)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:  # such as of a pager that was closed, or a full disk
        with suppress(OSError):  # for the rest of the output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(printable(describe_error(error)) + "\n")
        return 1
    except StoreError as error:
        lines = [str(error), *getattr(error, "__notes__", ())]
        sys.stderr.writelines(f"{printable(line)}\n" for line in lines)
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    return 0 if is_good else 1


class _CommandParser(NamedTuple):
    """The parser of the arguments of a command, and one of its options alone."""

    whole: ArgumentParser
    options: ArgumentParser

    def parse(self, words: list[str]) -> Namespace:
        """The arguments in `words`, where options stand anywhere before ``--``."""
        # By itself, `parse_args` fails for ``STORE --array PATH SELECTION``: of the first group of
        # positional arguments it takes all, with defaults for those that stand behind an option.
        # `parse_intermixed_args` drops ``--`` where it is before all positional arguments.
        end = words.index("--") if "--" in words else len(words)
        given, others = self.options.parse_known_args(words[:end])
        return self.whole.parse_args(others + words[end:], given)


def _parsers() -> tuple[ArgumentParser, dict[str, _CommandParser]]:
    """The parser of all commands, for help and for errors, and that of each by its name."""
    parser = ArgumentParser(
        "zarr-bytes",
        description="Reads of selected bytes in Zarr arrays: are they active, what do they cost.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {zarr_bytes.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    parsers = dict[str, _CommandParser]()
    for command, names in _COMMANDS.items():
        text = cleandoc(command.__doc__ or "")
        name = command.__name__.removeprefix("_")
        options = ArgumentParser(f"zarr-bytes {name}", add_help=False, allow_abbrev=False)
        added = commands.add_parser(
            name,
            description=text,
            help=text.partition("\n")[0],
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        added.set_defaults(command=command, in_full=False)
        for argument in names:
            for taking in (added, options) if argument.startswith("-") else (added,):
                taking.add_argument(*argument.split(), **_ARGUMENTS[argument])
        options.usage = added.format_usage().partition(": ")[2].rstrip()
        parsers[name] = _CommandParser(added, options)
    return parser, parsers


def _status(_: Namespace) -> Outcome:
    """Say whether zarr uses this package, and who decided that.

    Exit status: 0 if it does, 1 if not, or if a setting is not known or has a value that is not
    permitted.
    """
    found = status()
    return found, found.is_active and not found.unknown


def _check(given: Namespace) -> Outcome:
    """Check whether every array and group opens, and the stored chunks; write nothing.

    Fill values must be as the specification permits them. For uncompressed arrays, the size of each
    stored chunk is checked, the index of each shard, and that bools are 0 or 1.

    Exit status: 0 if everything that was checked conforms, 1 if something does not or nothing
    could be checked, 2 if STORE cannot be opened.
    """
    options = storage_options(given.storage_option)
    with progress_bar() as progress:
        found = check(given.store, storage_options=options, progress=progress)
    return found, found.conforms and (found.is_complete or not given.strict)


def _preallocate(given: Namespace) -> Outcome:
    """Make every chunk of uncompressed arrays in advance, so that processes can share each of them.

    Missing chunks and shards are made of the fill value, and take no room on the disk where that is
    zero. Shards get the inner chunks that they lack. What is there is kept.

    Exit status: 0 if all chunks of all arrays are there now, 1 if not, 2 if STORE cannot be opened.
    """
    with progress_bar() as progress:
        found = preallocate_store(given.store, any_size=given.any_size, progress=progress)
    return found, not found.refused


def _explain(given: Namespace) -> Outcome:
    """Say what a read of a selection does, and why it is not partial; read no chunk.

    SELECTION is as between brackets in Python: integers, slices, ... and lists of integers, such as
    '[:, 7, 3]', or 'oindex[[1, 2], 3:9]', 'vindex[...]' or 'blocks[...]'. Without it, everything is
    selected.

    Exit status: 0 if the read is partial, or no chunk is read and replaced by the write; 1 if not,
    2 if STORE cannot be opened or SELECTION does not fit the array.
    """
    name, selection = selection_of_text(given.selection)
    with open_store(given.store, storage_options(given.storage_option)) as (store, _):
        array = open_array_at(store, given.array, is_written=given.write)
        try:
            indexed = getattr(array, name) if name else array
            found = explain(indexed, selection, write=given.write)
        except Exception as error:  # whatever zarr and NumPy raise
            text = cut(given.selection, 80)
            raise StoreError(
                f"the selection {text} is not explained: {describe_error(error)}"
            ) from error
    return found, found.is_partial


_FLAG: Final = {"action": "store_true"}
_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "store": {
        "metavar": "STORE",
        "help": "a folder, a .zip file or a URL (http, s3, ...): one array or a hierarchy",
    },
    "selection": {
        "metavar": "SELECTION",
        "nargs": "?",
        "default": "[...]",
        "help": "such as '[:, 7, 3]'; everything by default",
    },
    "--array": {"metavar": "PATH", "default": "", "help": "the array in a hierarchy"},
    "--storage-option": {
        "metavar": "KEY=VALUE",
        "action": "append",
        "default": [],
        "help": "what fsspec needs to open the URL, such as anon=true; may be repeated",
    },
    "--json": _FLAG | {"help": "print one JSON document, for programs"},
    "--write": _FLAG | {"help": "explain a write"},
    "--any-size": _FLAG | {"help": "make over a million files, or more than the disk can hold"},
    "-v --verbose": _FLAG | {"dest": "in_full", "help": "list the data types, with their classes"},
    "--all": _FLAG | {"dest": "in_full", "help": "list every array, also of many"},
    "--strict": _FLAG | {"help": "exit status 1 also where something is not checked"},
}
_COMMANDS: Final[dict[Callable[[Namespace], Outcome], list[str]]] = {
    _status: ["--json", "-v --verbose"],
    _check: ["store", "--storage-option", "--json", "--all", "--strict"],
    _explain: ["store", "selection", "--array", "--storage-option", "--json", "--write"],
    _preallocate: ["store", "--any-size", "--json"],
}
