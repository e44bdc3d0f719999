"""What one chunk costs with the codec of this package in zarr's pipelines, beside its peers.

    python tests/benchmarks/chunk_cost.py --picture tests/benchmarks/chunk_cost.png

All contenders run in turn in one process, page cache warm; figures are medians. Below the figures
of a row stand its bars, as in `pipeline.py`. `--quick` is for a look, and `--only` for some of the
sections. The picture is of how the cost of a chunk grows with their number.
"""

import os
from functools import partial

import numpy as np
import zarr
from benchmark import DEFAULT, FUSED, LARGE, OURS, THEIRS, ZARRS, opened, reading, stored
from pipeline import PIPELINE, Picture, Row, at_most, run
from zarr.core.codec_pipeline import FusedCodecPipeline

BARE = "open, read, close, assign"
WAYS = {
    "zarr-bytes, default pipeline": (DEFAULT, OURS),
    "zarr-bytes, fused pipeline": (FUSED, OURS),
    "zarr's own codec, default pipeline": (DEFAULT, THEIRS),
    "zarr's own codec, fused pipeline": (FUSED, THEIRS),
    "zarrs": (ZARRS, OURS),
}
COUNTS = (16, 256, 4096)
PICTURE = Picture(
    "What a chunk of 256 bytes costs,\nread from local disk",
    {f"{count:,} chunks": f"{count:,} chunks" for count in COUNTS},
    (*WAYS, BARE),
    "us",
)
SMALL_READS = {
    "row": np.s_[7, 500],
    "point": np.s_[7, 500, 300],
    "box": np.s_[5:10, 200:300, 400:500],
}


def main():
    run(SECTIONS, __doc__, ("zarr-bytes", "numpy", "zarr", "zarrs"), PICTURE)


def growth(folder, rounds):
    """Seconds of one chunk of an array of a number of them."""
    for count in COUNTS:
        path = stored(folder / f"{count}", (count, 32), (1, 32))
        reads = {name: reading(path, way, codec=codec) for name, (way, codec) in WAYS.items()}
        times = rounds.in_turn(reads | {BARE: bare_loop(path)}, max(9, 2048 // count))
        each = {name: seconds / count for name, seconds in times.items()}
        yield Row(f"{count:,} chunks", each, [])


def pipelines(folder, rounds):
    """The codec in each of zarr's pipelines, and that of zarr in the same one."""
    for what, shape in {"1,024 chunks of 256 B": (1024, 32), "64 of 64 KiB": (64, 8192)}.items():
        path = stored(folder / what, shape, (1, shape[1]))
        for name, pipeline in {"default": DEFAULT, "fused": FUSED}.items():
            reads = {
                "zarr-bytes": reading(path, pipeline),
                "zarr": reading(path, pipeline, codec=THEIRS),
                "zarrs": reading(path, ZARRS),
            }
            times = rounds.in_turn(reads, 41)
            bars = [at_most(times, 0.6, "zarr"), at_most(times, 1, "zarrs")]
            yield Row(f"{what}, {name} pipeline", times, bars)


def fused_pipeline(folder, rounds):
    """Its `read_sync` without what is around it, and with one worker."""
    path = stored(folder / "chunks", (1024, 32), (1, 32))
    times = rounds.in_turn({"read_sync": read_sync(path), BARE: bare_loop(path)}, 41)
    yield Row("1,024 chunks of 256 B, read_sync", times, [at_most(times, 2.5, BARE)])
    with zarr.config.set({"codec_pipeline.max_workers": 1}):
        reads = {"zarr-bytes": reading(path, FUSED), "zarrs": reading(path, ZARRS)}
        times = rounds.in_turn(reads, 41)
    yield Row("1,024 chunks of 256 B, one worker", times, [at_most(times, 1, "zarrs")])


def between(folder, rounds):
    """Small reads of large chunks, with 125 MiB of another array read before each."""
    path = stored(folder / "large", LARGE, (18, *LARGE[1:]))
    other = reading(stored(folder / "other", (18, *LARGE[1:]), (18, *LARGE[1:])), DEFAULT)
    ways = {PIPELINE: "zarr_bytes.BatchedBytesPipeline", "zarrs": ZARRS}
    for name, selection in SMALL_READS.items():
        reads = {each: reading(path, way, selection) for each, way in ways.items()}
        times = rounds.in_turn(reads, 41, other)
        yield Row(f"{name}, 125 MiB read in between", times, [at_most(times, 1.4, "zarrs")])


def read_sync(path):
    """`FusedCodecPipeline.read_sync` alone, with the arguments that zarr gives it."""
    calls = []

    class Recording(FusedCodecPipeline):
        def read_sync(self, batch, out, drop_axes=(), max_workers=1):
            calls.append((batch, out))
            return super().read_sync(batch, out, drop_axes, max_workers)

    array = opened(path, FUSED)
    pipeline = array._async_array.codec_pipeline
    recording = Recording(**{name: getattr(pipeline, name) for name in pipeline.__dict__})
    object.__setattr__(array._async_array, "codec_pipeline", recording)
    array[...]
    return partial(pipeline.read_sync, *calls[0])


def bare_loop(path):
    """Open, read, close and assign: what no reader of these files can do without."""
    shape = zarr.open_array(path, mode="r").shape
    names = [f"{path}/c/{i}/0" for i in range(shape[0])]
    result = np.empty(shape)

    def loop():
        for i, name in enumerate(names):
            file = os.open(name, os.O_RDONLY)
            content = os.read(file, 256)
            os.close(file)
            result[i] = np.frombuffer(content, ">f8")

    return loop


SECTIONS = {
    "growth": growth,
    "pipelines": pipelines,
    "fused": fused_pipeline,
    "between": between,
}

if __name__ == "__main__":
    main()
