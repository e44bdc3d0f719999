"""Entry of the commands: what they need is an extra, and a missing one is one line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say how to get what it needs."""
    try:
        from zarr_bytes.commands.command_line import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        sys.stderr.write('the commands need typer and rich: pip install "zarr-bytes[cli]"\n')
        sys.exit(2)
    app(prog_name="zarr-bytes")


if __name__ == "__main__":
    main()
