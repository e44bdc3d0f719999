"""What the benchmarks share: contenders that run in turn, or each in a loop of its own."""

from statistics import median
from time import perf_counter

WARM_UP, ROUNDS = 3, 21


def alone(benchmark, ours, setup, **peers):
    """Time `ours` and each of its peers in a loop of its own, of 3 to 200 rounds.

    `setup` is called before each loop. Returns the medians by name.
    """
    medians = {}
    for name, function in (("zarr-bytes", ours), *peers.items()):
        setup()
        function()
        seconds = []
        while len(seconds) < 3 or (len(seconds) < 200 and sum(seconds) < 0.5):
            start = perf_counter()
            function()
            seconds.append(perf_counter() - start)
        medians[name] = median(seconds)
    benchmark.extra_info["medians"] = medians
    return medians


def compare(
    benchmark,
    ours,
    calls=1,
    rounds=ROUNDS,
    warm_up=WARM_UP,
    setup=None,
    figure="medians",
    **peers,
):
    """Time `ours` and its peers in turn, each `calls` times in a row; who begins goes round.

    `setup` is called before each of them, and not timed. Returns the medians by name, which are
    left for the table under the name `figure`.
    """
    contenders = [("zarr-bytes", ours), *peers.items()]
    seconds = {name: [] for name, _ in contenders}
    for _ in range(warm_up + rounds):
        for name, function in contenders:
            if setup is not None:
                setup()
            start = perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((perf_counter() - start) / calls)
        contenders.append(contenders.pop(0))
    medians = {name: median(s[warm_up:]) for name, s in seconds.items()}
    benchmark.extra_info[figure] = medians
    benchmark.pedantic(ours, rounds=min(5, rounds), iterations=calls, setup=setup)
    return medians


def bar(benchmark, name, limit, found=None, unit="seconds"):
    """Leave a bar for the table at the end: `found`, or the time of `ours`, is at most `limit`."""
    if found is None:
        found = benchmark.extra_info["medians"]["zarr-bytes"]
    benchmark.extra_info.setdefault("bars", []).append((name, found, limit, unit))
