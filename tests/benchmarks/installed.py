"""The cost of this package for arrays that it does nothing for: compressed ones.

    python tests/benchmarks/installed.py

Processes of this environment and of one without the package, with equal packages otherwise, run
in turn. Each opens a compressed array and reads one element, or does both many times over; these
are also measured with zarr's own pipeline chosen. The figures are medians, and bars are quotients.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from statistics import median
from sysconfig import get_path
from time import perf_counter

import zarr
from benchmark import DEFAULT, in_words

TIMES = 2000  # in a process
ONCE = "import sys, zarr; zarr.open_array(sys.argv[1], mode='r')[3, 4]"
OFTEN = f"""
import sys, time, zarr
from statistics import median
path, pipeline = sys.argv[1:]
def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
def opened():
    return zarr.open_array(path, mode="r")
settings = [{{}}, {{"codec_pipeline.path": pipeline}}]
arrays, opening, reading = [], [[], []], [[], []]
for setting in settings:
    with zarr.config.set(setting):
        arrays.append(opened())
for i in range({TIMES}):
    for k in (0, 1) if i % 2 else (1, 0):
        with zarr.config.set(settings[k]):
            opening[k].append(seconds(opened))
    for k in (0, 1) if i % 4 > 1 else (1, 0):
        reading[k].append(seconds(lambda: arrays[k][3, 4]))
print(*map(median, opening + reading))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100, help="of processes")
    rounds = parser.parse_args().rounds
    print(f"Python {sys.version.split()[0]}, zarr {zarr.__version__}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/a.zarr"
        zarr.create_array(path, shape=(100, 100), chunks=(50, 50), dtype="f4")[...] = 1
        without = python_without(Path(folder) / "without")
        once = {
            "with": [sys.executable, "-c", ONCE, path],
            "without": [without, "-c", ONCE, path],
        }
        print("\na process that opens the array and reads one element")
        show(in_turn(once, rounds, used_by), ("time", "processor time"), {"without": (1.05, 1.05)})
        often = {
            "with": [sys.executable, "-c", OFTEN, path, DEFAULT],
            "without": [without, "-c", OFTEN, path, DEFAULT],
        }
        found = in_turn(often, max(rounds // 20, 2), said_by)
        print("\nin a process, by the installed pipeline and by zarr's own, in turn")
        for heading, columns, factors in (
            ("opening", (0, 1), (1.02, 1.08)),
            ("reading", (2, 3), (1.01, 1.01)),
        ):
            times = {
                "with": [(figures[columns[0]],) for figures in found["with"]],
                "zarr's pipeline": [(figures[columns[1]],) for figures in found["with"]],
                "without": [(figures[columns[0]],) for figures in found["without"]],
            }
            bars = {"zarr's pipeline": factors[:1], "without": factors[1:]}
            show(times, (heading,), bars)


def python_without(folder):
    """The interpreter of an environment with all packages of this one but zarr-bytes."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in Path(get_path("purelib")).iterdir():
        if "zarr_bytes" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def in_turn(commands, rounds, measure):
    """What `measure` finds of each command, a list of `rounds` each, after one for the caches."""
    found = {name: [] for name in commands}
    order = list(commands.items())
    for _ in range(1 + rounds):
        for name, command in order:
            found[name].append(measure(command))
        order.append(order.pop(0))
    return {name: figures[1:] for name, figures in found.items()}


def used_by(command):
    """Seconds that a process takes, and seconds of processors that it uses."""
    start = perf_counter()
    process = subprocess.Popen(command, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    seconds = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return seconds, usage.ru_utime + usage.ru_stime


def said_by(command):
    """Seconds that a process prints."""
    said = subprocess.run(command, env=environment(), capture_output=True, check=True).stdout
    return tuple(map(float, said.split()))


def environment():
    """Compiled modules are kept, as everywhere; one thread does what takes one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"OPENBLAS_NUM_THREADS": "1"}


def show(found, headings, bars):
    """Print the medians, and the quotients of those with the package by the others."""
    medians = {
        name: [median(seconds) for seconds in zip(*figures, strict=True)]
        for name, figures in found.items()
    }
    for i, heading in enumerate(headings):
        times = (f"{name} {in_words(seconds[i]).strip()}" for name, seconds in medians.items())
        print(f"{heading}: {', '.join(times)}")
        for name, factors in bars.items():
            quotient = medians["with"][i] / medians[name][i]
            word = "holds " if quotient <= factors[i] else "MISSED"
            print(f"    {word} {quotient:6.3f} of {factors[i]:.3g} x {name}", flush=True)


if __name__ == "__main__":
    main()
