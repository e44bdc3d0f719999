"""A plugin of pytest: how many chunks the tests of a process read and wrote through this package.

Each process, such as a worker of pytest-xdist, adds a line of JSON to the file that
COUNT_CHUNKS_IN names. What tests do in other processes of theirs is not counted.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

COUNTING = pytest.StashKey()


def pytest_collection_finish(session):
    """Count from here on: until then, zarr imports the package by itself, if it can."""
    import zarr_bytes

    stack = ExitStack()
    counted = stack.enter_context(zarr_bytes.counting())
    session.stash[COUNTING] = stack, counted


def pytest_sessionfinish(session):
    """Write the counts, if any test was collected."""
    if COUNTING not in session.stash:
        return
    stack, counted = session.stash[COUNTING]
    stack.close()
    line = json.dumps({"pipeline": counted.chunks, "codec": counted.by_zarr})
    with Path(os.environ["COUNT_CHUNKS_IN"]).open("a") as file:
        file.write(line + "\n")
