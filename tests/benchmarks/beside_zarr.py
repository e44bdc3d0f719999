"""Operations on arrays with this package installed, beside plain zarr: does anything get slower?

    python tests/benchmarks/beside_zarr.py --draw 60
    python tests/benchmarks/beside_zarr.py --only LocalStore "small shards"

Two processes run the cases of `operations.py`: one of this environment, and one of an environment
without the package, with equal packages otherwise. Both have the default settings and act on copies
of one array, which plain zarr has written, with a warm page cache. Their results must be equal. A
case is timed in nine rounds: both processes repeat it for a few milliseconds, one after the other,
and who begins alternates. A row has the median times of both, and the ratio of the time with the
package to that without: the median of the nine ratios, and as its interval the second and the
eighth of them. The true median is between these with a probability of 96%, whatever the
distribution. A row is slower if all of its interval is above 1.05. It is then timed again at the
end, by new processes, and counts if it is slower again.

Memory is the traced peak of the first call of a newly opened array, in two other processes. What
libraries in Rust take is not traced, and pages that are never used are. So if the traced peak is
more than 1.1 times that without the package, and at least 64 KiB more, the peak of the resident
memory is measured at the end, by new processes. A row takes more memory if that is more than 1.1
times that without the package, too, and at least 1 MiB more.

`--only` is for the cases whose name has all of some texts. `--draw` takes a number of cases at
random, evenly from stores, layouts and operations; otherwise arrays are taken at random, each with
all of its cases. `--seed` repeats the order. `--minutes` begins no other case after that time, so
that the time of slower rows is added. All cases take more than an hour.
With `--write`, the table of `docs/performance.md` is written again.
`--quick` is a draw of 100 within 15 minutes, and the process ends after 30. Needs the extra
`benchmark`; cases of the extra `stores` are left out where it is missing.
"""

import argparse
import faulthandler
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, deque
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from select import select
from shutil import rmtree
from statistics import geometric_mean, median
from time import perf_counter, time
from typing import NamedTuple
from uuid import uuid4

import operations
from installed import environment, python_without
from operations import LAYOUTS, STORES, Case, all_cases
from slow_server import slow_server

WITH, WITHOUT = "with", "without"
ROUNDS, SECOND, EIGHTH = 9, 1, 7
SLOWER = 1.05
MORE_MEMORY, LEAST_MEMORY, LEAST_RESIDENT = 1.1, 2**16, 2**20
GROUP = 40  # cases of a pair of processes
LONGEST = 120  # seconds in which a process must answer
LATENCY, RATE = 0.01, 200e6
PAGE = Path(__file__).parents[2] / "docs/performance.md"
BEGIN, END = "<!-- written by tests/benchmarks/beside_zarr.py -->\n", "\n<!-- end -->"
MIB = 2**20


class Row(NamedTuple):
    """What was measured of a case: seconds of each round, and bytes of memory."""

    case: Case
    seconds: dict[str, list[float]]
    memory: dict[str, int]

    def medians(self):
        return {name: median(seconds) for name, seconds in self.seconds.items()}

    def ratios(self):
        """Those of the rounds, in ascending order."""
        pairs = zip(self.seconds[WITH], self.seconds[WITHOUT], strict=True)
        return sorted(ours / theirs for ours, theirs in pairs)

    def ratio(self):
        return median(self.ratios())

    def interval(self):
        ratios = self.ratios()
        return ratios[SECOND], ratios[EIGHTH]

    def is_slower(self):
        return self.interval()[0] > SLOWER

    def more_memory(self):
        return self.memory[WITH] - self.memory[WITHOUT]

    def takes_more_memory(self, least=LEAST_MEMORY):
        return self.more_memory() >= max(least, (MORE_MEMORY - 1) * self.memory[WITHOUT])

    def __str__(self):
        times = (f"{1e3 * self.medians()[name]:9.3f}" for name in (WITH, WITHOUT))
        memory = (f"{self.memory[name] / MIB:7.2f}" for name in (WITH, WITHOUT))
        low, high = self.interval()
        words = ["SLOWER"] * self.is_slower() + ["MORE MEMORY"] * self.takes_more_memory()
        return (
            f"{' '.join(times)} ms {self.ratio():6.3f} [{low:6.3f}, {high:6.3f}]"
            f" {' '.join(memory)} MiB  {self.case}  {' '.join(words)}"
        )


class Process:
    """A process of `operations.py`."""

    def __init__(self, python, folder, *options):
        self.folder, self.own, self.reads = folder, None, None
        command = [python, "-W", "ignore", *options, operations.__file__]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment(), **pipes)

    def __call__(self, command, *arguments):
        """What a method of its `Worker` returns."""
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()
        if not select([self.process.stdout], [], [], LONGEST)[0]:
            raise RuntimeError(f"no answer to {command} within {LONGEST} seconds")
        answer = json.loads(self.process.stdout.readline() or '{"error": "the process has ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def own_path(self, case):
        """Where the store of a case may have files: a new place, unless it is read as before."""
        reads = None if case.operation in operations.CHANGES else (case.store, case.layout)
        if reads is None or reads != self.reads:
            self.remove_own()
            self.own = self.folder / uuid4().hex
        self.reads = reads
        return self.own

    def remove_own(self):
        """Remove the files of the last store."""
        if self.own is not None:
            remove(self.own)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.remove_own()


class Bench:
    """The folder of the arrays, its server, and the two interpreters."""

    def __init__(self, folder, url):
        self.folder, self.url = folder, url
        self.pythons = {WITH: sys.executable, WITHOUT: python_without(folder / "plain zarr")}

    @contextmanager
    def processes(self, *options):
        """A process with the package and one without, which are what they should be."""
        with ExitStack() as stack:
            both = {
                name: stack.enter_context(Process(python, self.folder, *options))
                for name, python in self.pythons.items()
            }
            has_package = {name: process("has_package") for name, process in both.items()}
            if has_package != {WITH: True, WITHOUT: False}:
                sys.exit("zarr must use this package here: see python -m zarr_bytes status")
            yield both

    @contextmanager
    def prepared(self, case, both):
        """The processes have done a case once. A RuntimeError if their results differ."""
        number = [*LAYOUTS].index(case.layout)
        data = self.folder / f"{number}"
        if not data.exists():
            both[WITHOUT]("make", case.layout, str(data))
        digests = {
            name: process(
                "prepare", case, str(data), str(process.own_path(case)), f"{self.url}/{number}"
            )
            for name, process in both.items()
        }
        if digests[WITH] != digests[WITHOUT]:
            raise RuntimeError("the results differ")
        yield

    def seconds(self, case, both):
        """Seconds of a case in each round."""
        with self.prepared(case, both):
            os.sync()  # or files would be written to the disk while they are read
            found, order = {name: [] for name in both}, [*both]
            for _ in range(1 + ROUNDS):
                for name in order:
                    found[name].append(both[name]("sample"))
                order.reverse()
        return {name: samples[1:] for name, samples in found.items()}  # without the warm-up

    def memory(self, case, both):
        """Peaks of traced memory."""
        with self.prepared(case, both):
            return {name: process("peak") for name, process in both.items()}

    def with_resident_memory(self, row):
        """The row with peaks of resident memory instead of traced memory, from new processes."""
        with self.processes() as both, self.prepared(row.case, both):
            peaks = {name: process("resident_peak") for name, process in both.items()}
        return row._replace(memory=peaks)


def remove(path):
    if path.is_dir():
        rmtree(path)
    else:
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="texts that names of cases have")
    parser.add_argument("--draw", type=int, help="so many cases, at random")
    parser.add_argument("--seed", type=int, default=int(time()), help="of the order")
    parser.add_argument("--minutes", type=float, help="begin no other case then")
    parser.add_argument("--write", action="store_true", help="write the table of the page again")
    parser.add_argument("--quick", action="store_true", help="as --draw 100 --minutes 15")
    options = parser.parse_args()
    if options.quick:
        options.draw, options.minutes = 100, 15
    if options.minutes:
        faulthandler.dump_traceback_later(60 * (options.minutes + 15), exit=True)
    cases = [case for case in all_cases() if all(text in str(case) for text in options.only)]
    if options.draw:
        cases = drawn(cases, options.draw, options.seed)
    else:
        cases = array_by_array(cases, options.seed)
    print(f"{versions()}; seed {options.seed}, {len(cases)} cases")
    print("times with and without, ratio and its interval, memory with and without")
    end = perf_counter() + 60 * (options.minutes or 10**6)
    with tempfile.TemporaryDirectory() as name, slow_server(name, LATENCY, RATE) as server:
        bench = Bench(Path(name), server.url)
        rows, failed = measured(bench, cases, end)
        slower = [row for row in rows if row.is_slower()]
        if slower:
            print("\nthe slower rows again, by new processes")
        again, failed_again = measured(bench, [row.case for row in slower])
        resident, failed_there = with_resident_memory(
            bench, [row for row in rows if row.takes_more_memory()]
        )
    report(rows, again, resident)
    if options.write:
        write(rows, again)
    if all_failed := failed + failed_again + failed_there:
        sys.exit(f"FAILED: {', '.join(map(str, all_failed))}")


def measured(bench, cases, end=float("inf")):
    """The rows of cases, and the cases that failed; no case begins after `end`."""
    rows, failed, waiting = [], [], deque(cases)
    while waiting and perf_counter() < end:
        # Memory is traced from the start: to stop it while threads run can block Python 3.13.0.
        with bench.processes() as timed, bench.processes("-X", "tracemalloc") as traced:
            for _ in range(GROUP):
                if not waiting or perf_counter() > end:
                    break
                case = waiting.popleft()
                try:
                    row = Row(case, bench.seconds(case, timed), bench.memory(case, traced))
                except RuntimeError as error:
                    print(f"FAILED: {case}: {error}", flush=True)
                    failed.append(case)
                    break  # the others have new processes
                print(row, flush=True)
                rows.append(row)
    if waiting:
        print(f"{len(waiting)} cases are left, for which there was no time")
    return rows, failed


def with_resident_memory(bench, rows):
    """The rows with resident memory, and the cases that failed."""
    found, failed = [], []
    for row in rows:
        try:
            found.append(bench.with_resident_memory(row))
        except RuntimeError as error:
            print(f"FAILED: {row.case}: {error}", flush=True)
            failed.append(row.case)
    return found, failed


def array_by_array(cases, seed):
    """All cases of one array in one store after another, in a random order of these."""
    arrays = sorted({case[:2] for case in cases})
    random.Random(seed).shuffle(arrays)  # noqa: S311
    places = {array: place for place, array in enumerate(arrays)}
    return sorted(cases, key=lambda case: places[case[:2]])


def drawn(cases, count, seed):
    """Cases in a random order, any beginning of which has stores, layouts and operations evenly."""
    waiting = random.Random(seed).sample(cases, len(cases))  # noqa: S311
    used, order = Counter(), []
    while waiting and len(order) < count:
        best = min(waiting, key=lambda case: sum(used[key] for key in case))
        waiting.remove(best)
        order.append(best)
        used.update(best)
    return order


def versions():
    packages = ", ".join(f"{name} {version(name)}" for name in ("zarr", "zarr-bytes", "numpy"))
    return f"Python {sys.version.split()[0]}, {packages}, {os.cpu_count()} cores"


def report(rows, again, resident):
    """Means of all rows and of each kind, then the rows that are worse than with plain zarr."""
    print(f"\n{versions()}\n{len(rows)} rows")
    if not rows:
        return
    print(f"geometric mean of the ratios: {geometric_mean(row.ratio() for row in rows):.3f}")
    for field in Case._fields:
        kinds = {}
        for row in rows:
            kinds.setdefault(getattr(row.case, field), []).append(row.ratio())
        means = sorted((geometric_mean(ratios), kind) for kind, ratios in kinds.items())
        print(f"by {field}: {', '.join(f'{kind} {mean:.2f}' for mean, kind in means)}")
    slower = [row for row in again if row.is_slower()]
    show("are slower, in both of two measurements; the second", slower, Row.ratio)
    print(f"\n{len(resident)} rows take more traced memory")
    more = [row for row in resident if row.takes_more_memory(LEAST_RESIDENT)]
    show("of these take more resident memory, which they have here", more, Row.more_memory)


def write(rows, again):
    """Write the table of the page again: a line for each store, with its slowest row."""
    second = {row.case: row for row in again}  # of those that were slower in the first
    lines = [
        "| store | cases | mean of the ratios | slower | the slowest |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for store in (*STORES, "all"):
        some = [second.get(row.case, row) for row in rows if store in (row.case.store, "all")]
        if not some:
            continue
        mean = geometric_mean(row.ratio() for row in some)
        slower = sum(row.is_slower() for row in some)
        worst = max(some, key=lambda row: row.interval()[0])
        case = worst.case[0 if store == "all" else 1 :]
        cells = (store, len(some), f"{mean:.2f}", slower, f"{', '.join(case)}: {worst.ratio():.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    table = "\n".join([*lines, "", f"{versions()}."])
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}", encoding="utf-8")


def show(what, rows, key):
    print(f"\n{len(rows)} rows {what}")
    for row in sorted(rows, key=key, reverse=True):
        print(row)


if __name__ == "__main__":
    main()
