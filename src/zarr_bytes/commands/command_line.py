"""The command line: arguments, output and exit statuses."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import suppress
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import zarr_bytes
from zarr_bytes.commands.check import check
from zarr_bytes.commands.explain import explain, parse_selection
from zarr_bytes.commands.preallocate import preallocate_arrays_or_list_refused
from zarr_bytes.commands.result import (
    escape_unprintable,
    progress_bar_or_no_op,
    text_for_terminal,
    to_strict_json,
    truncate,
)
from zarr_bytes.commands.status import status
from zarr_bytes.commands.stores import open_array_at, open_store, parse_storage_options
from zarr_bytes.errors import StoreError, describe_error

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from zarr_bytes.commands.result import Result


class Outcome(NamedTuple):
    """The result of a command, and whether its exit status is 0; otherwise it is 1."""

    result: Result
    is_success: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with `arguments` and return its exit status.

    The default is the arguments of the process. The exit status is 0 or 1 for the verdict of the
    command; 1 also if the output can't be written, 2 if the store or the selection is not valid,
    and 130 after an interrupt. A SystemExit with status 2 if the arguments are not permitted.
    """
    # The streams are None if the caller has closed them, as by ``>&-``.
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # so that any terminal shows any name
            stream.reconfigure(errors="backslashreplace")
    parser, commands = _make_parsers()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in commands:
        parser.parse_args(words)  # exits, unless there are no words
        parser.print_help()
        return 2
    options = commands[words[0]].parse_or_exit(words[1:])
    try:
        outcome = options.command(options)
        result = outcome.result
        text = (
            to_strict_json(vars(result))
            if options.json
            else text_for_terminal(result, in_full=options.in_full)
        )
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:  # such as a closed pager, or a full disk
        with suppress(OSError):  # for the rest of the output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(escape_unprintable(describe_error(error)) + "\n")
        return 1
    except StoreError as error:
        lines = [str(error), *getattr(error, "__notes__", ())]
        sys.stderr.writelines(f"{escape_unprintable(line)}\n" for line in lines)
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    return 0 if outcome.is_success else 1


class _CommandParser(NamedTuple):
    """The parser of all arguments of a command, and a parser of its options alone."""

    all_arguments: ArgumentParser
    options: ArgumentParser

    def parse_or_exit(self, words: list[str]) -> Namespace:
        """The arguments in `words`; options may stand anywhere before ``--``.

        A SystemExit, after a message, if the arguments are not permitted.
        """
        # `parse_args` alone fails for ``STORE --array PATH SELECTION``: at the first group of
        # positional arguments it assigns all of them, with defaults for the ones after an option.
        # `parse_intermixed_args` drops a ``--`` before all positional arguments.
        end = words.index("--") if "--" in words else len(words)
        parsed_options, others = self.options.parse_known_args(words[:end])
        return self.all_arguments.parse_args(others + words[end:], parsed_options)


class _Parsers(NamedTuple):
    """The parser of all commands, for help and errors, and the parser of each command by name."""

    all_commands: ArgumentParser
    by_command: dict[str, _CommandParser]


def _make_parsers() -> _Parsers:
    """The parsers of the command line, from the docstrings and arguments of `_COMMANDS`."""
    parser = ArgumentParser(
        "zarr-bytes",
        description="Partial reads of Zarr arrays: whether they are active, and their cost.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {zarr_bytes.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    parsers = dict[str, _CommandParser]()
    for command, arguments in _COMMANDS.items():
        description = cleandoc(command.__doc__ or "")
        name = command.__name__.removeprefix("_run_")
        options = ArgumentParser(f"zarr-bytes {name}", add_help=False, allow_abbrev=False)
        all_arguments = commands.add_parser(
            name,
            description=description,
            help=description.partition("\n")[0],
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        all_arguments.set_defaults(command=command, in_full=False)
        for argument in arguments:
            all_arguments.add_argument(*argument.split(), **_ARGUMENTS[argument])
            if argument.startswith("-"):
                options.add_argument(*argument.split(), **_ARGUMENTS[argument])
        options.usage = all_arguments.format_usage().partition(": ")[2].rstrip()
        parsers[name] = _CommandParser(all_arguments, options)
    return _Parsers(parser, parsers)


def _run_status(_: Namespace) -> Outcome:
    """Show whether zarr uses this package, and the source of each setting.

    Exit status: 0 if zarr uses it; 1 if not, or if a setting is unknown or has a value that is not
    permitted.
    """
    result = status()
    return Outcome(result, result.is_active and not result.unknown)


def _run_check(arguments: Namespace) -> Outcome:
    """Check that every array and group opens, and that stored chunks are valid; write nothing.

    Fill values must be as the specification permits them. For uncompressed arrays, the size of each
    stored chunk and the index of each shard are checked, and that bools are 0 or 1.

    Exit status: 0 if everything that was checked conforms, 1 if something doesn't conform or
    nothing could be checked, 2 if STORE can't be opened.
    """
    options = parse_storage_options(arguments.storage_option)
    with progress_bar_or_no_op() as progress:
        report = check(arguments.store, storage_options=options, progress=progress)
    return Outcome(report, report.conforms and (report.is_complete or not arguments.strict))


def _run_preallocate(arguments: Namespace) -> Outcome:
    """Make every chunk of uncompressed arrays in advance, so that processes can share chunks.

    Missing chunks and shards are filled with the fill value; if that is zero, they take no disk
    space. Shards get the inner chunks that they lack. Existing chunks are kept.

    Exit status: 0 if all chunks of all arrays exist now, 1 if not, 2 if STORE can't be opened.
    """
    with progress_bar_or_no_op() as progress:
        allocated = preallocate_arrays_or_list_refused(
            arguments.store, any_size=arguments.any_size, progress=progress
        )
    return Outcome(allocated, not allocated.refused)


def _run_explain(arguments: Namespace) -> Outcome:
    """Explain the cost of reading a selection, and why a read isn't partial; read no chunk.

    SELECTION is written as in Python: integers, slices, ... and lists of integers in brackets, such
    as '[:, 7, 3]', or 'oindex[[1, 2], 3:9]', 'vindex[...]' or 'blocks[...]'. The default is the
    whole array.

    Exit status: 0 if the read is partial, or if the write reads and replaces no chunk; 1 if not; 2
    if STORE can't be opened or SELECTION doesn't fit the array.
    """
    accessor, selection = parse_selection(arguments.selection)
    with open_store(arguments.store, parse_storage_options(arguments.storage_option)) as (store, _):
        array = open_array_at(store, arguments.array, makes_folder_writable=arguments.write)
        try:
            indexed = getattr(array, accessor) if accessor is not None else array
            explanation = explain(indexed, selection, write=arguments.write)
        except Exception as error:  # whatever zarr and NumPy raise
            text = truncate(arguments.selection, 80)
            raise StoreError(
                f"the selection {text} is not explained: {describe_error(error)}"
            ) from error
    return Outcome(explanation, explanation.is_partial)


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
        "help": "an option for fsspec to open the URL, such as anon=true; may be repeated",
    },
    "--json": _FLAG | {"help": "print one JSON document, for programs"},
    "--write": _FLAG | {"help": "explain a write"},
    "--any-size": _FLAG | {"help": "make over a million files, or more than the disk can hold"},
    "-v --verbose": _FLAG | {"dest": "in_full", "help": "list the data types, with their classes"},
    "--all": _FLAG | {"dest": "in_full", "help": "list every array, even if there are many"},
    "--strict": _FLAG | {"help": "exit status 1 also if something is not checked"},
}
"""The keyword arguments of `add_argument`, by the names of an argument."""
_COMMANDS: Final[dict[Callable[[Namespace], Outcome], list[str]]] = {
    _run_status: ["--json", "-v --verbose"],
    _run_check: ["store", "--storage-option", "--json", "--all", "--strict"],
    _run_explain: ["store", "selection", "--array", "--storage-option", "--json", "--write"],
    _run_preallocate: ["store", "--any-size", "--json"],
}
"""The names of the arguments of each command."""
