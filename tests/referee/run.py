"""Put mistakes into the source, one at a time, and say which test sees each of them.

A patch in ``mended`` makes a mistake again that a commit has mended, and one in ``mistakes`` makes
one that nobody has made yet; ``README.md`` says how they were chosen. Each begins with where it is
from, what it does, and the tests that see it::

    python tests/referee/run.py                  # the tests that each patch names
    python tests/referee/run.py read-range index # patches with these in their names
    python tests/referee/run.py --all            # every test, where those see nothing

The patches are applied to a clone of the last commit, with the Python and the packages of the
virtual environment that runs this script; zarr and others are imported once for all of them. Exits
with 1 if a patch does not apply, or no test sees it.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import hypothesis.extra.numpy  # noqa: F401
import ml_dtypes  # noqa: F401
import pytest
import zarr  # noqa: F401

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LONGEST = 900  # seconds of a run of tests; a mistake that lets it hang is seen


class Mistake(NamedTuple):
    """A patch: its path, what it does in a sentence, and the tests that see it."""

    path: Path
    does: str
    tests: list[str]

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


def read(path: Path) -> Mistake:
    """The patch at `path`, with what its header says."""
    header = path.read_text().partition("\ndiff --git")[0]
    (does,) = re.findall(r"^Mistake: (.*)$", header, re.MULTILINE)
    return Mistake(path, does, re.findall(r"^Seen by: (.*)$", header, re.MULTILINE))


def cloned(folder: Path) -> Path:
    """A clone of the repository below `folder`, beside an environment that has its source."""
    tree, environment = folder / "clone", folder / "environment"
    subprocess.run([*"git clone --quiet --shared".split(), ROOT, tree], check=True)
    shutil.copytree(sys.prefix, environment, copy_function=os.symlink)
    for path in environment.glob("lib/*/site-packages/*.pth"):
        if str(ROOT / "src") in path.read_text():  # of the editable installation
            path.unlink()
            path.write_text(f"{tree / 'src'}\n")
    return tree


def is_applied(tree: Path, mistake: Mistake, *options: str) -> bool:
    """Whether the patch fits into the tree, where it is then; with fewer lines around it."""
    command = ["git", "apply", "-C1", "--recount", *options, str(mistake.path.absolute())]
    return subprocess.run(command, cwd=tree, capture_output=True).returncode == 0


def run_pytest(tree: Path, tests: list[str], log: Path) -> None:
    """Run tests against the source in the tree; in a process of its own."""
    os.setpgid(0, 0)
    for descriptor in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(tree)
    sys.path.insert(0, str(tree / "src"))
    sys.executable = str(tree.parent / "environment" / Path(sys.executable).relative_to(sys.prefix))
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    options = ["-xqm", "", "-p", "no:cacheprovider", "--assert=plain", "--tb=no"]
    options += ["--hypothesis-profile=referee", "-o", "faulthandler_timeout=60"]
    options += ["-o", "faulthandler_exit_on_timeout=true"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported here
    os._exit(pytest.main([*options, *tests]))


def first_failure(tree: Path, tests: list[str]) -> str | None:
    """The first test that fails in the tree, or None where all of them pass."""
    log = tree.parent / "log"
    log.unlink(missing_ok=True)
    run = multiprocessing.get_context("fork").Process(target=run_pytest, args=(tree, tests, log))
    run.start()
    run.join(LONGEST)
    if run.exitcode is None:
        os.killpg(run.pid, signal.SIGKILL)
        run.join()
    if run.exitcode == 0:
        return None
    found = log.read_text(errors="replace")
    if run.exitcode == pytest.ExitCode.USAGE_ERROR:
        print(f"    {re.findall('^ERROR.*', found, re.MULTILINE)}")
        return None
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", found, re.MULTILINE):
        return failed[1]
    hung = re.search(r"/(tests/test_\w+\.py)\", line \d+ in (test_\w+)", found)
    test = f"{hung[1]}::{hung[2]}" if hung else f"a run that ended with {run.exitcode}"
    return f"{test} (hangs, or the machine is busy)"


def judged(tree: Path, mistake: Mistake, *, is_thorough: bool) -> tuple[str, str]:
    """What became of a mistake in one word, and the test that sees it."""
    if not is_applied(tree, mistake):
        return "does not apply", ""
    try:
        found = first_failure(tree, mistake.tests) if mistake.tests else None
        if found is None and is_thorough:
            found = first_failure(tree, ["tests"])
    finally:
        assert is_applied(tree, mistake, "--reverse")
    return ("seen", found) if found else ("not seen", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of the names of patches; default: all")
    parser.add_argument("--all", action="store_true", help="every test, where those named pass")
    given = parser.parse_args()
    patches = [read(path) for path in sorted(HERE.glob("*/*.patch"))]
    chosen = [p for p in patches if not given.names or any(n in p.name for n in given.names)]
    outcomes = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        tree = cloned(Path(folder))
        for mistake in chosen:
            begin = time.monotonic()
            outcome, test = judged(tree, mistake, is_thorough=given.all)
            outcomes[outcome] += 1
            took = f"{time.monotonic() - begin:.0f} s"
            print(f"{outcome:>14}  {mistake.name}  {test} ({took})", flush=True)
            if outcome != "seen":
                print(f"    {mistake.does}")
    print(", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))
    return int(set(outcomes) > {"seen"} or not outcomes["seen"])


if __name__ == "__main__":
    sys.exit(main())
