"""`.ci/other-suites`: how many chunks of another project's tests went through this package."""

import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

CI = Path(__file__).parents[1] / ".ci"
pytestmark = pytest.mark.skipif(not CI.exists(), reason="the source distribution has no .ci")

SUITE = """
import pytest, zarr

@pytest.mark.parametrize("compressors", [None, "auto"])
@pytest.mark.parametrize("number", range(3))
def test_one(compressors, number):
    array = zarr.create_array({}, shape=4, chunks=2, dtype="i4", compressors=compressors)
    array[:] = 7
    assert array[0] == 7
"""


@pytest.fixture(scope="module")
def chunks_of():
    """The function of the script, which has no ending of a module."""
    loader = SourceFileLoader("other_suites", str(CI / "other-suites"))
    module = module_from_spec(spec_from_loader("other_suites", loader))
    loader.exec_module(module)
    return module.chunks_of


@pytest.mark.slow
def test_chunks_of_all_processes_are_counted_by_what_has_read_or_written_them(tmp_path):
    """Of each array, two chunks are written and one is read."""
    counts = tmp_path / "counts"
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "count_chunks", "-n", "2", tmp_path],
        env=os.environ | {"PYTHONPATH": str(CI), "COUNT_CHUNKS_IN": str(counts)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    lines = [json.loads(line) for line in counts.read_text().splitlines()]
    assert len(lines) == 2
    assert {by: sum(line[by] for line in lines) for by in lines[0]} == {"pipeline": 9, "codec": 9}


@pytest.mark.parametrize(
    ("suite", "pipeline", "printed", "problems"),
    [
        ({}, 1200, "1,205 chunks by the pipeline of zarr_bytes, 5 by its codec alone", []),
        ({}, 0, "NO EVIDENCE of this package: no chunk went through it", ["is no evidence: "]),
        ({"no_chunks": "it has no v3 arrays"}, 0, ": it has no v3 arrays", []),
        ({"no_chunks": "it has no v3 arrays"}, 1, "6 chunks", ["has chunks, which "]),
    ],
)
def test_a_suite_without_chunks_is_no_evidence(
    tmp_path, capsys, chunks_of, suite, pipeline, printed, problems
):
    processes = [(pipeline, 0), (5, 5)] if pipeline else [(0, 0)]
    lines = [json.dumps({"pipeline": p, "codec": c}) + "\n" for p, c in processes]
    (tmp_path / "counts").write_text("".join(lines))
    found = chunks_of(suite, tmp_path / "counts")
    assert printed in capsys.readouterr().out
    assert len(found) == len(problems)
    assert all(text.startswith(start) for text, start in zip(found, problems, strict=True))


def test_a_suite_that_has_counted_nothing_is_no_evidence(tmp_path, chunks_of):
    assert len(chunks_of({}, tmp_path / "counts")) == 1
