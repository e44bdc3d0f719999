"""Entry point of the commands."""

import sys

from zarr_bytes.commands.command_line import main

if __name__ == "__main__":
    sys.exit(main())
