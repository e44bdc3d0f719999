"""What the processes do that share a chunk: a module that they can import by its name."""

import multiprocessing
import os
import signal
import threading
from contextlib import contextmanager
from shutil import rmtree

import numpy as np
import zarr
from stored_arrays import IN_PLACE, numbers
from system_calls import before_each

from zarr_bytes import preallocate
from zarr_bytes.io import file_writing, mapped_writing

COUNT = 4  # processes
PLAIN_ZARR = {
    "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
    "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
}


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


def exit_code_of(function, *args):
    """How a process ends that is forked from this one, which has no threads."""
    child = os.fork()
    if child == 0:
        try:
            function(*args)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write_and_die(path, selection, number, call):
    """Write a number in place, and be killed before this call of the system that concerns files.

    Copies into a mapping count too; each takes few ranges here.
    """
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(path, mode="r+")
    calls, scatter = [], mapped_writing.scatter

    def count(*arguments):
        calls.append(arguments)
        if len(calls) > call:
            os.kill(os.getpid(), signal.SIGKILL)

    def scatter_or_die(*arguments):
        count("scatter")
        return scatter(*arguments)

    # This process ends with the write, so that nothing has to be put back.
    mapped_writing.scatter = scatter_or_die
    mapped_writing._BATCH = 4
    file_writing.is_local = lambda file: True
    with before_each(count):
        array[selection] = number


def write_until_killed(path, selection, pipe):
    """Write one number after another in place, and say so each time."""
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(path, mode="r+")
    number = 0
    while True:
        number = number % 100 + 1
        array[selection] = number
        pipe.send(number)
