"""The commands: what they take, what they print, and their exit statuses."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from zarr_bytes import tables
from zarr_bytes.status import status as find_status

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]


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


def print_json(document: object) -> None:
    """Print `document` as JSON, on stdout."""
    typer.echo(json.dumps(document, indent=2))
