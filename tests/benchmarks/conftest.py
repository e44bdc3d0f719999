import sys

import numpy as np
import zarr


def pytest_terminal_summary(terminalreporter, config):
    """The medians that `compare` has left, one line a benchmark, and ratios to this codec."""
    benchmarks = config._benchmarksession.benchmarks
    terminalreporter.section("medians, and this codec's time over the peer's")
    terminalreporter.line(
        f"Python {sys.version.split()[0]}, NumPy {np.__version__}, zarr {zarr.__version__}"
    )
    for benchmark in benchmarks:
        medians = dict(benchmark.extra_info["medians"])
        ours = medians.pop("zarr-bytes")
        peers = "".join(f"   {k} {_time(v)}, {ours / v:5.2f}" for k, v in medians.items())
        terminalreporter.line(f"{benchmark.name:50} {_time(ours)}{peers}")


def _time(seconds):
    return f"{seconds * 1e3:8.2f} ms" if seconds > 1e-3 else f"{seconds * 1e6:8.2f} us"
