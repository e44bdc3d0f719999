import base64
import gc
import json
import os
import re
import secrets
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
import zarr
from zarr.core import codec_pipeline

import zarr_bytes  # noqa: F401 -- registers the data types with zarr 3.1 to 3.3
from zarr_bytes.data_type.real import import_ml_dtypes_dtype
from zarr_bytes.io.known_stores import known_stores

FUZZ_SECONDS = {"gate": 60, "night": 3600}
"""How long the fuzz tests take together, by the profile of Hypothesis that gives them time."""

with suppress(ImportError):  # the benchmarks do without
    from hypothesis import Phase, settings
    from hypothesis.database import DirectoryBasedExampleDatabase

    # No test asserts how long it takes: a machine may be busy, or emulated. Everything is said that
    # Hypothesis chooses otherwise where ``CI`` is set, and nothing is left to its profile for that.
    profile = partial(
        settings.register_profile, parent=settings.get_profile("default"), deadline=None
    )
    quick = {"derandomize": True, "database": None, "max_examples": 50}
    # An example that fails is told as it was found: to shrink one takes minutes, longer than a test
    # may take in `.ci/run`, and Hypothesis has no limit in time. `shrink` tries those of `quick`.
    told = {"database": None, "phases": [Phase.explicit, Phase.generate], "print_blob": True}
    profile("quick", **told, derandomize=True, max_examples=50)
    profile("gate", **told, derandomize=False, max_examples=10)  # in rounds, while there is time
    profile("shrink", database=None, derandomize=True, max_examples=50)
    kept = DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis/examples")
    profile("night", derandomize=False, database=kept, print_blob=True, max_examples=50)

HAS_FUSED_PIPELINE = hasattr(codec_pipeline, "FusedCodecPipeline")  # from zarr 3.3 on
NAMES = ["BatchedCodecPipeline"] + ["FusedCodecPipeline"] * HAS_FUSED_PIPELINE
PIPELINES = {name: f"zarr.core.codec_pipeline.{name}" for name in NAMES}
PIPELINES["BatchedBytesPipeline"] = "zarr_bytes.BatchedBytesPipeline"
"""Values of zarr's configuration that choose each codec pipeline, by its name."""


@pytest.fixture(params=PIPELINES)
def pipeline(request):
    """Both of zarr's codec pipelines, and the one of this package, in turn."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[request.param]}):
        yield request.param


@pytest.fixture(autouse=True)
def _nothing_is_known_of_stores():
    """Servers of other tests may have had the same port."""
    known_stores.forget()


@pytest.fixture(autouse=True)
def _no_chunk_stays_open():
    """After any test, files of chunks are closed; before Python 3.13, mappings keep theirs.

    TensorStore's threads close theirs a moment later.
    """
    yield
    deadline = monotonic() + 10
    while sys.version_info >= (3, 13) and (found := open_chunks()):
        assert monotonic() < deadline, found


def open_chunks():
    links = map(os.path.realpath, Path("/proc/self/fd").glob("*"))
    key = re.compile(r"/c/|/\d+(\.\d+)*( \(deleted\))?$")  # of a chunk of format 3 or 2
    return [link for link in links if key.search(link) and not link.startswith(("/dev/", "/proc/"))]


@pytest.fixture
def strict_fill_values():
    """Fill values that the specification does not permit are refused."""
    with zarr.config.set({"zarr_bytes.fill_values": "strict"}):
        yield


@pytest.fixture(scope="session")
def plain():
    """Zarr without this package: what it makes of the objects of a store."""
    program = Path(__file__).with_name("plain_zarr.py")
    with subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(objects):
            texts = {key: base64.b64encode(content).decode() for key, content in objects.items()}
            process.stdin.write(json.dumps(texts) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()
        assert process.wait() == 0


@pytest.fixture
def without_ml_dtypes(monkeypatch):
    """As if the package ml_dtypes were not installed."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    import_ml_dtypes_dtype.cache_clear()
    yield
    import_ml_dtypes_dtype.cache_clear()


def pytest_configure(config):
    """Not where this module is imported: tests import it once more, under another name."""
    if "hypothesis" in sys.modules:
        settings.load_profile(config.getoption("hypothesis_profile", None) or "quick")


def pytest_collection_finish(session):
    """The time of the profile is divided evenly among the fuzz tests that were chosen.

    What was made until now stays until the end: Python need not search it for garbage.
    """
    gc.freeze()
    chosen = [item for item in session.items if item.get_closest_marker("fuzz")]
    profile = session.config.getoption("hypothesis_profile", None)
    seconds = FUZZ_SECONDS.get(profile)
    if chosen and seconds:
        run, given = sys.modules["fuzz"].RUN, session.config.getoption("hypothesis_seed", None)
        run.seconds = float(os.environ.get("ZARR_BYTES_FUZZ_SECONDS", seconds)) / len(chosen)
        run.seed = secrets.randbits(32) if given is None else int(given)


def pytest_terminal_summary(terminalreporter):
    """How much the fuzz tests have tried, where they were given time."""
    fuzz = sys.modules.get("fuzz")
    if fuzz is None or not fuzz.RUN.seconds:
        return
    numbers = fuzz.RUN.examples
    for name, number in numbers.items():
        terminalreporter.write_line(f"{number} examples: {name}")
    terminalreporter.write_line(
        f"{numbers.total()} examples of {len(numbers)} properties, "
        f"--hypothesis-seed={fuzz.RUN.seed}"
    )
