"""The gap of remote stores: how much longer a read takes with it than with the best one.

    python tests/benchmarks/remote_gap.py

On a simulated clock, so that the table is the same everywhere. A read selects 4 bytes of each of a
thousand planes of a grid (float32), or a box of rows of an image (uint16). It takes either one
range, with the gaps, in requests of up to 8 MiB, ten at a time; or a range for each plane or row,
32 at a time. Answers begin after the latency, and share the link. The regret of a gap is the time
that it leads to, by the shorter one of the two. The best gap has the least worst regret.
"""

import heapq
from itertools import product
from statistics import geometric_mean
from typing import NamedTuple

LATENCIES = (0.01, 0.03, 0.1)  # seconds
LINKS = (5e6, 20e6, 100e6, 1e9)  # bytes a second
KIBIBYTE, LARGEST_REQUEST = 2**10, 2**23
SLOTS, SMALL_SLOTS, SMALL_REQUEST = 10, 32, 2**20
GAPS = [n * KIBIBYTE for n in (0, 8, 16, 32, 64, 128, 256, 512, 1024)]


class Read(NamedTuple):
    """Runs of bytes at even steps."""

    name: str
    count: int
    nbytes: int  # of a run
    step: int  # from the start of a run to that of the next one


READS = [
    *(
        Read(f"a series, grid of {degrees}°", 1000, 4, 4 * rows * columns)
        for degrees, rows, columns in ((0.25, 721, 1440), (0.5, 361, 720), (1, 181, 360))
    ),
    Read("a series, grid of 2.5°", 1000, 4, 4 * 73 * 144),
    *(
        Read(f"a box, rows of {n:,} pixels", 256, 2 * 256, 2 * n)
        for n in (2048, 10_980, 20_000, 40_000)
    ),
]


def seconds(sizes, slots, latency, link):
    """Time until requests of these sizes, `slots` at a time, have come over one link."""
    free, link_is_free, end = [0.0] * slots, 0.0, 0.0
    for size in sizes:
        link_is_free = max(heapq.heappop(free) + latency, link_is_free) + size / link
        heapq.heappush(free, link_is_free)
        end = max(end, link_is_free)
    return end


def with_gaps(read, latency, link):
    """Seconds of one range for all runs, cut so that no slot is idle."""
    nbytes = (read.count - 1) * read.step + read.nbytes
    pieces = max(-(-nbytes // LARGEST_REQUEST), min(SLOTS, nbytes // SMALL_REQUEST), 1)
    return seconds([nbytes / pieces] * pieces, SLOTS, latency, link)


def one_by_one(read, latency, link):
    """Seconds of a range for each run."""
    return seconds([read.nbytes] * read.count, SMALL_SLOTS, latency, link)


def main():
    print("gap       regret: mean, worst, and where")
    places = list(product(READS, LATENCIES, LINKS))
    times = {place: (one_by_one(*place), with_gaps(*place)) for place in places}
    for gap in GAPS:
        regrets = {
            place: times[place][place[0].step - place[0].nbytes <= gap] / min(times[place])
            for place in places
        }
        read, latency, link = worst = max(regrets, key=regrets.get)
        mean = geometric_mean(regrets.values())
        where = f"{read.name}, {latency * 1e3:.0f} ms, {link / 1e6:,.0f} MB/s"
        print(f"{gap // KIBIBYTE:5,} KiB  {mean:7.2f} {regrets[worst]:7.1f}, {where}")


if __name__ == "__main__":
    main()
