"""What one chunk costs, beside its peers: the bars that hold, and a picture of how it grows.

    python tests/benchmarks/chunk_cost.py --picture tests/benchmarks/chunk_cost.png

All contenders run in turn in one process, page cache warm; figures are medians. Each line names
what was read, whose time it is divided by, the bar, and whether it holds. `--quick` is for a look.
"""

import argparse
import os
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import zarr
import zarrs  # noqa: F401 -- the peer
from benchmark import (
    DEFAULT,
    FUSED,
    LARGE,
    THEIRS,
    ZARRS,
    in_words,
    medians,
    opened,
    read_into,
    reading,
    stored,
)
from drawing import save
from zarr.core.codec_pipeline import FusedCodecPipeline

from zarr_bytes.layout.elements import decode_elements, encode_elements

SMALL_READS = {
    "row": np.s_[7, 500],
    "point": np.s_[7, 500, 300],
    "box": np.s_[5:10, 200:300, 400:500],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="draw the cost of a chunk into this file")
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    options = parser.parse_args()
    rounds = 5 if options.quick else 41
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "zarr", "zarrs"))
    print(f"Python {sys.version.split()[0]}, {packages}, {os.cpu_count()} cores\n")
    print(f"{'what':54} {'ours':>9} {'theirs':>9} ratio   bar")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for what, ours, theirs, bar in bars(Path(folder), rounds):
            holds = ours <= bar * theirs
            missed += not holds
            ratio = f"{ours / theirs:5.2f} {bar:5.2f}   {'holds' if holds else 'MISSED'}"
            print(f"{what:54} {in_words(ours)} {in_words(theirs)} {ratio}", flush=True)
        print(f"\n{missed} missed" if missed else "\nall hold")
        if options.picture:
            costs = growth(Path(folder), 3 if options.quick else 9)
            save(
                "What a chunk of 256 bytes costs,\nread from local disk",
                "µs",
                costs,
                options.picture,
            )
            print(f"picture: {options.picture}")


def bars(folder, rounds):
    """What is measured, our seconds, theirs, and the bar that the ratio is held to."""
    yield from small_chunks(folder, rounds)
    yield from large_chunks(folder, rounds)
    yield from records(rounds)


def small_chunks(folder, rounds):
    tiny = stored(folder / "tiny", (1024, 32), (1, 32))
    with zarr.config.set({"codec_pipeline.max_workers": 1}):
        alone = medians(rounds, ours=reading(tiny, FUSED), zarrs=reading(tiny, ZARRS))
    times = medians(
        rounds,
        fused=reading(tiny, FUSED),
        default=reading(tiny, DEFAULT),
        theirs=reading(tiny, DEFAULT, codec=THEIRS),
        zarrs=reading(tiny, ZARRS),
        read_sync=read_sync(tiny),
        bare=bare_loop(tiny),
    )
    what = "1,024 chunks of 256 bytes"
    yield f"{what}, fused pipeline / zarrs", times["fused"], times["zarrs"], 1.0
    yield f"{what}, fused, one worker / zarrs", alone["ours"], alone["zarrs"], 1.0
    yield f"{what}, default / zarr's own", times["default"], times["theirs"], 0.55
    yield f"{what}, read_sync / bare loop", times["read_sync"], times["bare"], 2.5

    middling = stored(folder / "middling", (64, 8192), (1, 8192))
    times = medians(
        rounds,
        default=reading(middling, DEFAULT),
        fused=reading(middling, FUSED),
        default_theirs=reading(middling, DEFAULT, codec=THEIRS),
        fused_theirs=reading(middling, FUSED, codec=THEIRS),
        zarrs=reading(middling, ZARRS),
    )
    for name in ("default", "fused"):
        what = f"64 chunks of 64 KiB, {name}"
        yield f"{what} / zarr's own", times[name], times[f"{name}_theirs"], 0.6
        yield f"{what} / zarrs", times[name], times["zarrs"], 1.0


def large_chunks(folder, rounds):
    path = stored(folder / "large", LARGE, (18, *LARGE[1:]))
    other = reading(stored(folder / "other", (18, *LARGE[1:]), (18, *LARGE[1:])), DEFAULT)
    for between, bar in ((None, 1.1), (other, 1.4)):
        for name, selection in SMALL_READS.items():
            times = best_and_zarrs(path, selection, rounds, between)
            suffix = ", 125 MiB read in between" if between else ""
            yield f"{name}{suffix} / zarrs", *times, bar
    yield "column of 36 / zarrs", *best_and_zarrs(path, np.s_[:, 500, 300], rounds, None), 1.4
    times = medians(
        max(rounds // 2, 3),
        default=reading(path, DEFAULT),
        fused=reading(path, FUSED),
        readinto=read_into(path),
    )
    best = min(times["default"], times["fused"])
    yield "whole array of 250 MiB / readinto", best, times["readinto"], 1.35


def best_and_zarrs(path, selection, rounds, between):
    times = medians(
        rounds,
        calls=1 if between else 20,
        setup=between,
        default=reading(path, DEFAULT, selection),
        fused=reading(path, FUSED, selection),
        zarrs=reading(path, ZARRS, selection),
    )
    return min(times["default"], times["fused"]), times["zarrs"]


def records(rounds):
    pair = [("real", "<f2"), ("imag", "<f2")]
    fields = [(name, "<f4") for name in "xyz"]
    for what, data_type, number in (
        ("pairs of float16", pair, "<u2"),
        ("records of three float32", fields, "<u4"),
        ("complex64", "<c8", "<u4"),
    ):
        dtype = np.dtype(data_type)
        # Ones: memory of zeros that nobody has written is one page, always in the cache.
        array = np.ones(2**26 // dtype.itemsize * dtype.itemsize, "u1").view(dtype)
        numbers = array.view(number)
        encoded = encode_elements(array, "big")
        times = medians(
            rounds,
            encode=partial(encode_elements, array, "big"),
            decode=partial(decode_elements, encoded, dtype, array.shape, "big"),
            astype=partial(numbers.astype, numbers.dtype.newbyteorder()),
        )
        for name in ("encode", "decode"):
            yield f"{name} {what}, 64 MiB / astype", times[name], times["astype"], 1.15


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


def growth(folder, rounds):
    """Microseconds a chunk of 256 bytes, by the number of chunks in the array and by contender."""
    costs = {}
    for count in (16, 256, 4096):
        path = stored(folder / f"{count} chunks", (count, 32), (1, 32))
        times = medians(
            max(rounds, 2048 // count),
            **{
                "zarr-bytes, default pipeline": reading(path, DEFAULT),
                "zarr-bytes, fused pipeline": reading(path, FUSED),
                "zarr's own codec, default pipeline": reading(path, DEFAULT, codec=THEIRS),
                "zarr's own codec, fused pipeline": reading(path, FUSED, codec=THEIRS),
                "zarrs": reading(path, ZARRS),
                "open, read, close, assign": bare_loop(path),
            },
        )
        for name, seconds in times.items():
            costs.setdefault(f"{count:,} chunks", {})[name] = 1e6 * seconds / count
        print(
            f"{count:6} chunks  "
            + ", ".join(f"{k}: {1e6 * v / count:.1f}" for k, v in times.items())
        )
    return costs


if __name__ == "__main__":
    main()
