"""What the processes do that share a chunk: a module that they can import by its name."""

import multiprocessing
import os
import threading
from contextlib import contextmanager
from shutil import rmtree

import numpy as np
import zarr
from stored_arrays import IN_PLACE, PLAIN_ZARR, numbers

from zarr_bytes import preallocate

COUNT = 4  # processes


def context():
    """How processes are made: not forked from this one, which has threads."""
    made = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
    if hasattr(os, "fork"):
        made.set_forkserver_preload(["sharing"])  # imported once for all
    return made


@contextmanager
def processes():
    """Function that calls another one in four processes at once, which stay."""
    made = context()
    barrier = made.Barrier(COUNT)
    with made.Pool(COUNT, keep, (barrier,)) as pool:

        def call(function, *args):
            # One call for each process: none returns before all have begun.
            pool.starmap(function, [(who, *args) for who in range(COUNT)], chunksize=1)

        yield call
        pool.close()
        pool.join()


_barrier = None
_setting = threading.Lock()


def keep(barrier):
    global _barrier
    _barrier = barrier


def opened(path):
    """The array at `path`, to be written in place when all the others write."""
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(path, mode="r+")
    _barrier.wait(60)
    return array


def write_shares(who, path, kind):
    """Write every fourth row, column or element of an array of numbers, one row at a time."""
    array = opened(path)
    values = numbers(array.shape, "i4")
    if kind == "rows":
        for row in range(who, array.shape[0], COUNT):
            array[row] = values[row]
    elif kind == "columns":  # through a mapping of the file
        for column in range(who, array.shape[1], COUNT):
            array[:, column] = values[:, column]
    else:
        columns = np.arange(who, array.shape[1], COUNT)
        for row in range(array.shape[0]):
            array.vindex[np.full(columns.size, row), columns] = values[row, columns]


def create_chunks(who, path):
    """Write one element of every chunk of an array."""
    array = opened(path)
    for first in range(0, array.shape[0], COUNT):
        array[first + who] = first + who + 1


RACE, RACE_INNER = (64, 1024), (4, 1024)  # rows of 4 KiB, and sixteen inner chunks
LAYOUTS_OF_RACES = [
    f"{layout} {state}"
    for layout, states in {
        "chunk": ["missing", "complete", "with another name", "behind a link"],
        "shard": ["missing", "incomplete", "complete", "with another name", "behind a link"],
    }.items()
    for state in states
]


def prepared(folder, layout):
    """An array of one chunk or shard, in which plain zarr has stored four rows of ones."""
    kind, _, state = layout.partition(" ")
    divided = {"shards": RACE, "chunks": RACE_INNER} if kind == "shard" else {"chunks": RACE}
    with zarr.config.set(PLAIN_ZARR):
        array = zarr.create_array(folder, shape=RACE, dtype="i4", compressors=None, **divided)
    path = folder / "c/0/0"
    if state == "missing":
        return
    array[...] = 1
    if state == "incomplete":
        array[4:] = 0
    if state == "with another name":
        os.link(path, path.with_name("backup"))
    elif state == "behind a link":
        path.rename(path.with_name("target"))
        path.symlink_to("target")


def write_rows(who, path, beside, barrier=None):
    """Write every fourth row; the first process preallocates, or writes everything, meanwhile."""
    with _setting, zarr.config.set(IN_PLACE):  # which is of all threads
        array = zarr.open_array(path, mode="r+")
    (_barrier if barrier is None else barrier).wait(60)
    if who == 0 and beside == "preallocate":
        preallocate(array)
    if who == 0 and beside == "whole":
        for _ in range(4):
            array[...] = -1
    for row in range(who, RACE[0], COUNT):
        array[row] = row + 2


def race(call, folder, layout, beside, rounds):
    """The number of rows that are lost in each round of four writers at once."""
    lost = []
    for number in range(rounds):
        path = folder / str(number)
        prepared(path, layout)
        call(write_rows, str(path), beside)
        rows = zarr.open_array(path, mode="r")[...]
        expected = np.arange(RACE[0])[:, None] + 2
        is_kept = (rows == expected) | ((rows == -1) & (beside == "whole"))
        lost.append(int((~is_kept.all(axis=1)).sum()))
        rmtree(path)
    return lost
