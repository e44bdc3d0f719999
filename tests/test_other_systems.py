"""macOS and Windows, as far as Linux can show them: without the calls and names that they lack.

Each is a process of its own, from which they are taken before the package is imported, and which
cannot open `/proc`. What it then does is in `tests/other_systems.py`; the oracle is NumPy.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from other_systems import BEHAVIOURS, LACKING

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this is the system itself")


@cache
def failed_on(system, folder):
    """The behaviours that do not hold on `system`, with their tracebacks."""
    script = Path(__file__).with_name("other_systems.py")
    command = [sys.executable, "-W", "error", script, system, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("systems")


@pytest.mark.parametrize("behaviour", [behaviour.__name__ for behaviour in BEHAVIOURS])
@pytest.mark.parametrize("system", LACKING)
def test_without_what_a_system_lacks(system, behaviour, folder):
    (folder / system).mkdir(exist_ok=True)
    failed = failed_on(system, folder / system)
    assert not failed.get(behaviour), "\n".join(failed[behaviour])
