"""Make the mistakes of `mistakes.py` one at a time, and say which the tests that they name see.

In a copy of the repository, with the packages of the environment that runs this script; zarr and
others are imported once for all. First the tests have to pass as the source is::

    python tests/run_mistakes.py             # all, two at a time
    python tests/run_mistakes.py locks write # those with one of these texts in module or function

Exits with 1 if a mistake isn't seen or doesn't fit, or a test fails without one.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import hypothesis.extra.numpy  # noqa: F401
import ml_dtypes  # noqa: F401
import pytest
import zarr  # noqa: F401
from mistakes import MISTAKES, PACKAGE, ROOT, MisfitError, Mistake

FORKING = multiprocessing.get_context("fork")
LONGEST = 600  # seconds of a run of tests; a mistake that lets one hang is seen after 60


def run_pytest(tree: Path, tests: list[str], log: Path) -> None:
    """Run tests with the source below `tree`; in a process of its own."""
    os.setpgid(0, 0)
    for descriptor in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(tree)
    sys.path.insert(0, str(tree / "src"))
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-xq", "-p", "no:cacheprovider", "--assert=plain", "--tb=line"]
    options += ["-o", "faulthandler_timeout=60", "-o", "faulthandler_exit_on_timeout=true"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported here
    os._exit(pytest.main([*options, *tests]))


def first_failure(tests: list[str], mistake: Mistake | None = None) -> str:
    """The first test that fails with a mistake in the source, or as it is; empty if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        tree, log = Path(folder, "tree"), Path(folder, "log")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        if mistake is not None:
            module = tree / PACKAGE / mistake.module
            module.write_text(mistake.edited(module.read_text()))
        run = FORKING.Process(target=run_pytest, args=(tree, tests, log))
        run.start()
        run.join(LONGEST)
        if run.exitcode is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.join()
        if run.exitcode == pytest.ExitCode.OK:
            return ""
        text = log.read_text(errors="replace")
    if run.exitcode in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        errors = re.findall(r"^ERROR.*", text, re.MULTILINE)
        raise MisfitError(" ".join(errors) or "the tests are slow ones, which aren't run here")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
    if failed:
        return failed[1]
    last_line = "".join(text.strip().splitlines()[-1:])
    return f"a run that ended with {run.exitcode} and the line {last_line!r}: it hung, or crashed"


def judged(mistake: Mistake) -> tuple[str, float]:
    """What became of a mistake, in a word and with the reason, and the seconds that it took."""
    begin = time.monotonic()
    try:
        failure = first_failure([f"tests/{mistake.test}"], mistake)
        outcome = f"seen by {failure}" if failure else f"NOT SEEN by {mistake.test}: {mistake.why}"
    except MisfitError as error:
        outcome = f"DOES NOT FIT: {error}"
    return outcome, time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", nargs="*", help="in the name of a mistake; default: all")
    parser.add_argument("--at-once", type=int, default=2, help="mistakes at a time (2)")
    given = parser.parse_args()
    chosen = [m for m in MISTAKES if not given.texts or any(t in m.name for t in given.texts)]
    tests = sorted({f"tests/{mistake.test}" for mistake in chosen})
    seen = 0
    with ProcessPoolExecutor(given.at_once, FORKING) as pool:
        parts = [tests[i :: given.at_once] for i in range(min(given.at_once, len(tests)))]
        if failures := [*filter(None, pool.map(first_failure, parts))]:
            print(f"{' and '.join(failures)} fails without a mistake")
            return 1
        for mistake, (outcome, seconds) in zip(chosen, pool.map(judged, chosen), strict=True):
            seen += outcome.startswith("seen")
            print(f"{mistake.name}\n    {outcome} ({seconds:.1f} s)", flush=True)
    print(f"{seen} of {len(chosen)} mistakes seen")
    return int(not chosen or seen < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
