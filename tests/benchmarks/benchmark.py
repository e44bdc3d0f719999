"""What the benchmarks share: contenders that run in turn, or each in a loop of its own."""

from statistics import median
from time import perf_counter

import numpy as np
import zarr
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_pipeline

OURS, THEIRS = "zarr_bytes.codec.BytesCodec", "zarr.codecs.bytes.BytesCodec"
DEFAULT, FUSED = (
    f"zarr.core.codec_pipeline.{name}" for name in ("BatchedCodecPipeline", "FusedCodecPipeline")
)
ZARRS, NOTHING = "zarrs.ZarrsCodecPipeline", "benchmark.NoPipeline"
LARGE = (36, 1000, 910)  # two chunks of 125 MiB of float64


class NoPipeline(BatchedCodecPipeline):
    """A pipeline that reads and writes nothing: the time that remains is zarr's own."""

    async def read(self, batch_info, out, drop_axes=()):
        return tuple({"status": "present"} for _ in batch_info)

    async def write(self, batch_info, value, drop_axes=()):
        pass


register_pipeline(NoPipeline)


def medians(rounds, *, warm_up=2, calls=1, setup=None, **contenders):
    """Seconds of a call of each contender, by name.

    They run in turn, each `calls` times in a row, and who begins goes round. `setup` is called
    before each of them, and not timed.
    """
    order = list(contenders.items())
    seconds = {name: [] for name in contenders}
    for _ in range(warm_up + rounds):
        for name, function in order:
            if setup is not None:
                setup()
            start = perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((perf_counter() - start) / calls)
        order.append(order.pop(0))
    return {name: median(times[warm_up:]) for name, times in seconds.items()}


def medians_alone(setup=None, lasting=0.5, **contenders):
    """Seconds of a call of each contender, by name, in a loop of its own of 3 to 200 rounds.

    So none disturbs the caches of another. `setup` is called before each loop.
    """
    found = {}
    for name, function in contenders.items():
        if setup is not None:
            setup()
        function()
        seconds = []
        while len(seconds) < 3 or (len(seconds) < 200 and sum(seconds) < lasting):
            start = perf_counter()
            function()
            seconds.append(perf_counter() - start)
        found[name] = median(seconds)
    return found


def values_of(shape, dtype="f8"):
    """Random numbers, the same each time."""
    random = np.random.default_rng(0)
    is_float = np.dtype(dtype).kind == "f"
    return random.random(shape, dtype) if is_float else random.integers(1, 99, shape, dtype)


def stored(path, shape, chunks, dtype="f8", endian="big", **options):
    """An array of `values_of` its shape, without compression."""
    codec = {"name": "bytes", "configuration": {"endian": endian}}
    options = {"chunks": chunks, "compressors": None, "serializer": codec, **options}
    zarr.create_array(path, data=values_of(shape, dtype), **options)
    return path


def opened(path, pipeline, codec=OURS, mode="r"):
    with zarr.config.set({"codecs.bytes": codec, "codec_pipeline.path": pipeline}):
        return zarr.open_array(path, mode=mode)


def read_into(path, by=map):
    """One `readinto` of each file of an array, into one new piece of memory."""
    names = sorted(file for file in path.glob("c/**/*") if file.is_file())
    sizes = [name.stat().st_size for name in names]

    def read_file(name, part):
        with name.open("rb", buffering=0) as file:
            file.readinto(part)

    def read():
        memory = np.empty(sum(sizes), "u1")
        list(by(read_file, names, np.split(memory, np.cumsum(sizes[:-1]))))

    return read


def write_from(path, by=map):
    """One `write` of each file of an array beside the old one, in whose place it is put then."""
    files = {file: file.read_bytes() for file in path.glob("c/**/*") if file.is_file()}

    def write_file(name):
        new = name.with_suffix(".new")
        with new.open("wb", buffering=0) as file:
            file.write(files[name])
        new.replace(name)

    def write():
        list(by(write_file, files))

    return write


def in_words(seconds):
    return f"{seconds * 1e3:6.2f} ms" if seconds > 1e-3 else f"{seconds * 1e6:6.1f} us"
