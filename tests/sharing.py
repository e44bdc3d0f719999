"""What the processes do that share a chunk: a module that they can import by its name."""

import multiprocessing
import os
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from shutil import rmtree
from unittest.mock import patch

import numpy as np
import zarr
from stored_arrays import IN_PLACE, PLAIN_ZARR, behind_a_link, numbers
from zarr.core import codec_pipeline

from zarr_bytes import preallocate

COUNT = 4  # writers
SHAPE, INNER = (64, 256), (4, 256)  # sixteen inner chunks; a column is written through a mapping
VALUES = numbers(SHAPE, "i4") + 2
OPTIONS = {
    "chunk": {"chunks": SHAPE},
    "shard": {"shards": SHAPE, "chunks": INNER},
    "format_2": {"chunks": SHAPE, "zarr_format": 2, "order": "F"},
}
LAYOUTS = [
    *("chunk missing", "format_2 complete", "chunk with another name", "chunk behind a link"),
    *("shard missing", "shard incomplete", "shard complete"),
    *("shard with another name", "shard behind a link", "chunk complete"),
]
if hasattr(codec_pipeline, "FusedCodecPipeline"):  # from zarr 3.3 on
    OPTIONS["scaled"] = OPTIONS["shard"] | {"filters": zarr.codecs.ScaleOffset(offset=5)}
    LAYOUTS.insert(0, "scaled incomplete")

_barrier = None


def keep(barrier):
    global _barrier
    _barrier = barrier


@contextmanager
def processes():
    """Function that calls another one in four processes at once, which stay."""
    # Not forked from this one, which has threads, but from one that imports this module once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sharing"])
    with patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parent)):
        forkserver.ensure_running()
    with context.Pool(COUNT, keep, (context.Barrier(COUNT),)) as pool:

        def call(function, *args):
            # One call for each process: none returns before all have begun.
            pool.starmap(function, [(who, *args) for who in range(COUNT)], chunksize=1)

        yield call
        pool.close()
        pool.join()


def prepared(folder, layout):
    """An array of one chunk or shard, in which plain zarr has stored four rows of ones."""
    kind, _, state = layout.partition(" ")
    options = {"dtype": "i4", "compressors": None, **OPTIONS[kind]}
    with zarr.config.set(PLAIN_ZARR):
        array = zarr.create_array(folder, shape=SHAPE, **options)
    path = folder / array.metadata.encode_chunk_key((0, 0))
    if state == "missing":
        return
    array[...] = 1
    if state == "incomplete":
        array[4:] = 0
    if state == "with another name":
        os.link(path, path.with_name("backup"))
    elif state == "behind a link":
        behind_a_link(path)


def write(who, path, way):
    """Write every fourth row, column or element; the first one may preallocate or replace all."""
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(path, mode="r+")
    _barrier.wait(60)
    if who == 0 and way == "preallocate":
        preallocate(array)
    if who == 0 and way == "whole":
        for _ in range(4):
            array[...] = -1
    parts, own = range(who, SHAPE[0], COUNT), np.arange(who, SHAPE[1], COUNT)
    if way == "columns":
        parts = [np.s_[:, column] for column in own]
    elif way == "points":
        parts = [(np.full(own.size, row), own) for row in range(SHAPE[0])]
    for part in parts:
        array[part] = VALUES[part]


def lost(call, folder, layout, way, rounds):
    """The number of elements that are lost in each round of four writers at once."""
    counts = []
    for number in range(rounds):
        path = folder / str(number)
        prepared(path, layout)
        call(write, str(path), way)
        found = zarr.open_array(path, mode="r")[...]
        is_kept = (found == VALUES) | ((found == -1) & (way == "whole"))
        counts.append(np.count_nonzero(~is_kept))
        assert list(path.rglob("*.partial")) == []
        rmtree(path)
    return counts
