import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from drawing import save

PEERS = ("zarr", "zarrs", "tensorstore")
PICTURES = {  # by what the names of the benchmarks begin with: title, and the selections drawn
    "test_read[": (
        "Reading from two chunks of 125 MiB",
        "whole array, plane, row, column, last axis",
    ),
    "test_write_selection[": ("Writing into two chunks of 125 MiB", "row, plane, column, stepped"),
}


def pytest_addoption(parser):
    parser.addoption(
        "--picture", type=Path, help="draw what test_read.py or test_write.py has measured"
    )


def pytest_terminal_summary(terminalreporter, config):
    """The medians that `compare` has left, one line a benchmark, and ratios to this codec."""
    benchmarks = config._benchmarksession.benchmarks
    terminalreporter.section("medians, and this codec's time over the peer's")
    terminalreporter.line(
        f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {', '.join(_versions())}"
    )
    for benchmark in benchmarks:
        for figure, name in (("medians", benchmark.name), ("in turn", "    in turn")):
            if figure not in benchmark.extra_info:
                continue
            medians = dict(benchmark.extra_info[figure])
            ours = medians.pop("zarr-bytes")
            peers = "".join(f"   {k} {_time(v)}, {ours / v:5.2f}" for k, v in medians.items())
            terminalreporter.line(f"{name:53} {_time(ours)}{peers}")
        if (disk := benchmark.extra_info.get("disk")) is not None:
            on_disk = "   ".join(f"{name} {nbytes:,} bytes" for name, nbytes in disk.items())
            terminalreporter.line(f"    on disk: {on_disk}")
    if bars := [(b.name, *bar) for b in benchmarks for bar in b.extra_info.get("bars", ())]:
        terminalreporter.section("bars")
    for name, text, found, limit, unit in bars:
        amounts = (_time(x) if unit == "seconds" else f"{x:8,.0f} {unit}" for x in (found, limit))
        holds = "holds" if found <= limit else "FAILS"
        terminalreporter.line(f"{holds}  {' of '.join(amounts)}   {text}   {name}")
    if (path := config.getoption("--picture")) is not None:
        _draw({b.name: b.extra_info["medians"] for b in benchmarks}, path)
        terminalreporter.line(f"picture: {path}")


def _versions():
    for name in PEERS:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"


def _time(seconds):
    return f"{seconds * 1e3:8.2f} ms" if seconds > 1e-3 else f"{seconds * 1e6:8.2f} us"


def _draw(medians, path):
    """Time of some selections, of big-endian data with the pipeline of an installation."""
    begin = next(begin for begin in PICTURES if any(name.startswith(begin) for name in medians))
    title, selections = PICTURES[begin]
    labels = dict(zip(PEERS, _versions(), strict=True))
    times = {
        selection: {
            labels.get(contender, contender): 1e3 * seconds
            for contender, seconds in medians[
                f"{begin}big-{selection}-BatchedBytesPipeline]"
            ].items()
        }
        for selection in selections.split(", ")
    }
    save(f"{title}, big-endian\nfloat64, local disk", "ms", times, path)
