"""The cost of this package for processes that do little, and for compressed arrays.

    python tests/benchmarks/installed.py

Processes of this environment and of one without the package, with equal packages otherwise, run
in turn. Each opens an array and reads one element, or does both many times over, with zarr's own
pipeline, too. The figures are medians, and bars are quotients, or seconds more.
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

import zarr
from benchmark import DEFAULT, in_words

TIMES = 2000  # in a process
ONCE = """
import sys, time
times = [time.perf_counter()]
import zarr
array = zarr.open_array(sys.argv[1], mode="r")
times.append(time.perf_counter())
array[3, 4]
times.append(time.perf_counter())
print(times[1] - times[0], times[2] - times[1])
"""
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
        without = python_without(Path(folder) / "without")
        for what, compressors in {"plain": None, "compressed": "auto"}.items():
            path, options = f"{folder}/{what}", {"shape": (100, 100), "chunks": (50, 50)}
            zarr.create_array(path, dtype="f4", compressors=compressors, **options)[...] = 1
            once = {
                "with": [sys.executable, "-c", ONCE, path],
                "without": [without, "-c", ONCE, path],
            }
            print(f"\na process that imports zarr and opens a {what} array, then reads an element")
            show(in_turn(once, rounds, said_by), ("opening", "reading"), {}, (10e-3, 12e-3))
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


def said_by(command):
    """Seconds that a process prints."""
    said = subprocess.run(command, env=environment(), capture_output=True, check=True).stdout
    return tuple(map(float, said.split()))


def environment():
    """Compiled modules are kept, as everywhere; one thread does what takes one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"OPENBLAS_NUM_THREADS": "1"}


def show(found, headings, bars, more=()):
    """Print the medians, and those with the package beside the others."""
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
        for seconds in more[i : i + 1]:
            found = medians["with"][i] - medians["without"][i]
            word = "holds " if found <= seconds else "MISSED"
            print(f"    {word} {1e3 * found:.1f} of {1e3 * seconds:.0f} ms more", flush=True)


if __name__ == "__main__":
    main()
