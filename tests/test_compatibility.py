"""The table of `docs/compatibility.md` is true of the zarr and the Python that run the tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import zarr
from packaging.version import Version

PAGE = Path(__file__).parents[1] / "docs/compatibility.md"
LINES = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
(_, *ZARRS), _, (_, *PYTHONS), *ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in LINES
]


def column():
    """The column of this Python, or where it has none of the last; a newer zarr has the last."""
    here = Version(zarr.__version__)
    zarrs = [name for name in ZARRS if Version(name) <= here] or ZARRS[:1]
    python = "{}.{}".format(*sys.version_info)
    columns = [number for number, name in enumerate(ZARRS) if name == zarrs[-1]]
    return next((n for n in columns if python in PYTHONS[n].split(", ")), columns[-1])


@pytest.mark.skipif(sys.platform == "win32", reason="the table is of Linux and macOS")
def test_the_compatibility_table_says_what_works_here():
    script = Path(__file__).with_name("compatibility.py")
    command = [sys.executable, "-W", "ignore", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    works = {name: "yes" if is_so else "no" for name, is_so in json.loads(done.stdout).items()}
    said = {name: cells[column()] for name, *cells in ROWS}
    assert works == said, f".ci/compatibility writes the table anew\n{done.stderr}"
