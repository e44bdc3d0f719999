import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

PEERS = ("zarr", "zarrs", "tensorstore")


def pytest_addoption(parser):
    parser.addoption("--picture", type=Path, help="draw the reads of test_read.py into this file")


def pytest_terminal_summary(terminalreporter, config):
    """The medians that `compare` has left, one line a benchmark, and ratios to this codec."""
    benchmarks = config._benchmarksession.benchmarks
    terminalreporter.section("medians, and this codec's time over the peer's")
    terminalreporter.line(
        f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {', '.join(_versions())}"
    )
    for benchmark in benchmarks:
        medians = dict(benchmark.extra_info["medians"])
        ours = medians.pop("zarr-bytes")
        peers = "".join(f"   {k} {_time(v)}, {ours / v:5.2f}" for k, v in medians.items())
        terminalreporter.line(f"{benchmark.name:53} {_time(ours)}{peers}")
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
    """Time of every read of big-endian data with zarr's default pipeline, for each contender."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    prefix, suffix = "test_read[big-", "-BatchedCodecPipeline]"
    reads = {
        name.removeprefix(prefix).removesuffix(suffix): times
        for name, times in medians.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }
    contenders = ("zarr-bytes", *PEERS)
    labels = ("zarr-bytes", *(v for v in _versions()))
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for i, (contender, label) in enumerate(zip(contenders, labels, strict=True)):
        times = [1e3 * read[contender] for read in reads.values()]
        axes.bar(np.arange(len(reads)) + 0.2 * (i - 1.5), times, 0.19, label=label)
    axes.set_xticks(range(len(reads)), reads)
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds")
    axes.set_title("Reading from two chunks of 125 MiB, big-endian float64, local disk")
    axes.legend(ncols=4, loc="upper right", fontsize="small")
    axes.set_ylim(top=2.5 * axes.get_ylim()[1])
    figure.savefig(path, dpi=110)
