"""What the benchmarks share: contenders that run in turn, in one process."""

from statistics import median
from time import perf_counter

WARM_UP, ROUNDS = 3, 21


def compare(benchmark, ours, calls=1, rounds=ROUNDS, **peers):
    """Time `ours` and its peers in turn, each `calls` times in a row; who begins goes round."""
    contenders = [("zarr-bytes", ours), *peers.items()]
    seconds = {name: [] for name, _ in contenders}
    for _ in range(WARM_UP + rounds):
        for name, function in contenders:
            start = perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((perf_counter() - start) / calls)
        contenders.append(contenders.pop(0))
    benchmark.extra_info["medians"] = {name: median(s[WARM_UP:]) for name, s in seconds.items()}
    benchmark.pedantic(ours, rounds=min(5, rounds), iterations=calls)
