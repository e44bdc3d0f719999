"""The commands, called in this process as a terminal calls them."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest.mock import patch

from zarr_bytes.commands.command_line import main


class _Both(io.StringIO):
    """What is written to one stream, and to the output that a terminal shows of both."""

    def __init__(self, output):
        super().__init__()
        self._output = output

    def write(self, text):
        self._output.write(text)
        return super().write(text)


def call(*arguments, answer=""):
    """Exit status and output of ``zarr-bytes ARGUMENTS``, to whose questions `answer` is given."""
    output = io.StringIO()
    stdout, stderr = _Both(output), _Both(output)
    with (
        patch.object(sys, "stdin", io.StringIO(answer)),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
    ):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:  # of the parser of arguments
            code = error.code
    return SimpleNamespace(
        exit_code=code,
        stdout=stdout.getvalue(),
        stderr=stderr.getvalue(),
        output=output.getvalue(),
    )
