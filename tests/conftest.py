import sys
from contextlib import suppress

import pytest
import zarr
from zarr.core import codec_pipeline

import zarr_bytes  # noqa: F401 -- registers the data types with zarr 3.1 to 3.3
from zarr_bytes.data_type.extension import from_package

with suppress(ImportError):  # the benchmarks do without
    from hypothesis import settings

    # No test asserts how long it takes: a machine may be busy, or emulated.
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")

HAS_FUSED_PIPELINE = hasattr(codec_pipeline, "FusedCodecPipeline")  # from zarr 3.3 on
PIPELINES = {
    "BatchedCodecPipeline": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    **(
        {"FusedCodecPipeline": "zarr.core.codec_pipeline.FusedCodecPipeline"}
        if HAS_FUSED_PIPELINE
        else {}
    ),
    "BatchedBytesPipeline": "zarr_bytes.BatchedBytesPipeline",
}
"""Values of zarr's configuration that choose each codec pipeline, by its name."""


@pytest.fixture(params=PIPELINES)
def pipeline(request):
    """Both of zarr's codec pipelines, and the one of this package, in turn."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[request.param]}):
        yield request.param


@pytest.fixture
def without_ml_dtypes(monkeypatch):
    """As if the package ml_dtypes were not installed."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    from_package.cache_clear()
    yield
    from_package.cache_clear()


def pytest_terminal_summary(terminalreporter):
    """How much the fuzz tests have tried, where they were given time."""
    fuzz = sys.modules.get("fuzz")
    if fuzz is not None and fuzz.SECONDS:
        for name, examples in fuzz.EXAMPLES.items():
            terminalreporter.write_line(f"{examples} examples: {name}")
