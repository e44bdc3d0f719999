"""What people have asked of zarr, kerchunk and VirtualiZarr, and what it is with this package.

    python tests/benchmarks/cases.py --write

Each case is the essence of the script in its issue. It runs unchanged in processes of its own, with
plain zarr and with this package in turn: variables of the environment switch between the two. Bytes
are those that Linux counts for the process, memory is the peak of the process over what it had
before, times are medians over all processes, with a warm page cache. `--write` stores the figures
in `cases.json` beside this script, and their tables in `docs/performance.md` and in the README.
`--only` is for some of the cases, `--quick` for a look. Needs the extras `examples` and `stores`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from asked import CASES

FIGURES = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).parents[2]
PAGE, README = ROOT / "docs/performance.md", ROOT / "README.md"
IN_README = (
    "A whole read takes twice the memory",
    "Ten elements written cost the chunk",
    "Processes that write different chunks of one file",
)
BEGIN, END = "<!-- written by tests/benchmarks/cases.py -->\n", "\n<!-- end -->"
PACKAGES = ("numpy", "zarr", "dask", "h5py", "icechunk", "kerchunk", "virtualizarr", "xarray")
PROJECTS = {
    "zarr-python": "zarr-developers/zarr-python",
    "VirtualiZarr": "zarr-developers/VirtualiZarr",
    "kerchunk": "fsspec/kerchunk",
    "icechunk": "earth-mover/icechunk",
}
LONGEST = 0.5  # seconds in which a process repeats what it times


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"store the figures, and {PAGE.name}")
    parser.add_argument("--quick", action="store_true", help="one process a way")
    parser.add_argument("--only", default="", help="cases whose issue or text has this")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        asked, way, folder = options.measure
        print(json.dumps(measured(ways(case_of(asked))[way], Path(folder))))
        return
    found = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {"cases": {}}
    found["versions"] = versions()
    for case in CASES:
        if options.only in f"{case.issue} {case.asked}":
            found["cases"][case.asked] = measure(case, 1 if options.quick else 3)
            print("\n".join(rows(case, found["cases"])), flush=True)
            if options.write:
                write(found)
    print(f"\n{table(found)}")


def write(found):
    """Store the figures, and write the page and the README again."""
    FIGURES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for path, text in ((PAGE, table(found)), (README, table_in_readme(found))):
        before, _, rest = path.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        path.write_text(f"{before}{BEGIN}{text}{END}{after}", encoding="utf-8")


def case_of(asked):
    return next(case for case in CASES if case.asked == asked)


def versions():
    found = {"Python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            print(f"{name} is not installed: cases that need it are not measured")
    return found


def ways(case):
    """The ways of a case, by names for the figures."""
    sides = {"before": case.before, "after": case.after}
    return {f"{side} {i}": way for side, found in sides.items() for i, way in enumerate(found)}


def measure(case, rounds):
    """Medians of each way of a case, whose processes run in turn."""
    with TemporaryDirectory() as folder:
        found = {name: [] for name in ways(case)}
        try:
            case.prepare(Path(folder))
            os.sync()  # or files would be written to the disk while they are read
            for name, figures in [*found.items()] * rounds:
                figures.append(in_process(case, name, folder))
        except (ImportError, subprocess.CalledProcessError) as error:
            print(f"{case.asked}: not measured, {error}")
            return {}
    return {
        way: {name: median(each[name] for each in figures) for name in figures[0]}
        for way, figures in found.items()
    }


def in_process(case, name, folder):
    """What a process of its own has measured."""
    others = {key: value for key, value in os.environ.items() if not key.startswith("ZARR_")}
    command = [sys.executable, "-W", "ignore", __file__, "--measure", case.asked, name, folder]
    environment = others | ways(case)[name].environment
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def measured(way, folder):
    """The figures of a way, measured in this process."""
    call = way.open(folder)
    outcome = call()  # of the rest, what a first call imports is not counted
    if isinstance(outcome, float):
        return {"lost": outcome}
    del outcome
    seconds = []
    while not seconds or (len(seconds) < 50 and sum(seconds) < LONGEST):
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
    read, written = bytes_moved(call)
    sleep(0.2)  # threads let go of the result before
    Path("/proc/self/clear_refs").write_text("5")  # the peak is of now on
    before = in_status("VmRSS")
    result = call()
    memory = in_status("VmHWM") - before
    del result
    each = median(seconds) / way.calls
    return {"read": read, "written": written, "memory": memory, "time": each}


def bytes_moved(call):
    """Bytes that this process reads and writes in a call, as Linux counts them."""
    counters = Path("/proc/self/io")
    before = counters.read_text()  # which is read after it was written, and counted
    call()
    counts = [
        dict(line.split(": ") for line in text.splitlines())
        for text in (before, counters.read_text())
    ]
    read, written = (int(counts[1][name]) - int(counts[0][name]) for name in ("rchar", "wchar"))
    return read - len(before), written


def in_status(name):
    line = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(line[1])


def table(found):
    """The table of the page, in Markdown, of what `cases.json` holds."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return "\n".join(
        [*HEAD, *(row for case in CASES for row in rows(case, found["cases"])), "", f"{versions}."]
    )


def table_in_readme(found):
    """A table of some cases, without versions and scripts."""
    asked = map(case_of, IN_README)
    return "\n".join([*HEAD, *(row for case in asked for row in rows(case, found["cases"], ""))])


HEAD = ["| what was asked | bytes | time | memory |", "| --- | --- | --- | --- |"]
COLUMNS = (("read", "written", "lost"), ("time",), ("memory",))


def rows(case, found, script=None):
    """The rows of a case, one for each way: what plain zarr takes, and this package."""
    figures = found.get(case.asked)
    script = f": {case.script}" if script is None else script
    remark = f" ({case.remark})" if case.remark else ""
    named = f"{case.asked} ({link(case)}){script}{remark}"
    for number, after in enumerate(case.after):
        sides = {f"before {number}": way for way in case.before[number : number + 1]}
        sides[f"after {number}"] = after
        cells = [in_cell(keys, sides, figures) for keys in COLUMNS]
        first = (
            f"the same, {after.label}" if number else f"{named}, {after.label}".removesuffix(", ")
        )
        yield f"| {first} | {' | '.join(cells)} |"


def link(case):
    project, number = case.issue.split()
    return f"[{case.issue}](https://github.com/{PROJECTS[project]}/issues/{number})"


def in_cell(keys, sides, figures):
    """The figures of both sides for one column, in words."""
    if not figures:
        return "not measured"
    texts = (
        ", ".join(in_words(key, figures[name][key]) for key in keys if key in way.figures)
        for name, way in sides.items()
    )
    return " → ".join(filter(None, texts))


def in_words(name, figure):
    if name == "lost":
        return f"{figure:.0%} lost" if figure else "nothing lost"
    if name == "time":
        factor, unit = next(((f, u) for f, u in TIMES if figure * f >= 1), TIMES[-1])
        return f"{figure * factor:.{0 if figure * factor >= 10 else 1}f} {unit}"
    what = "" if name == "memory" else f" {name}"
    if figure < 1e6:
        return f"{figure:,.0f} bytes{what}"
    return f"{figure / 1e6:,.{0 if figure >= 1e7 else 1}f} MB{what}"


TIMES = ((1, "s"), (1e3, "ms"), (1e6, "µs"))

if __name__ == "__main__":
    main()
