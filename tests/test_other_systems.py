"""macOS and Windows, as far as Linux can show them: without the calls and names that they lack.

Each is a process of its own, from which they are taken before the package is imported, and which
cannot open `/proc`. What it then does is in `tests/other_systems.py`; the oracle is NumPy.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from other_systems import LACKING


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this is the system itself")
def test_every_behaviour_holds_without_what_a_system_lacks(tmp_path):
    script = Path(__file__).with_name("other_systems.py")
    command = [sys.executable, "-W", "error", script, tmp_path]
    # Without threads the process can be forked, and imports once what all systems have.
    without_threads = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_threads)
    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout)
    assert failed.keys() == LACKING.keys()
    tracebacks = [t for of_system in failed.values() for ts in of_system.values() for t in ts]
    assert not tracebacks, "\n".join([str({s: [*f] for s, f in failed.items() if f}), *tracebacks])
