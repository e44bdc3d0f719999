"""Every fault at every call: the n-th call of the system fails, for n = 0, 1, 2, ...

As SQLite tests itself: an operation is repeated until none of its calls fails any more. So nothing
here depends on which calls it makes, or on how many. After each fault

- elements that are not selected are unchanged, and those that are selected are old or new,
- a chunk that is replaced, made or deleted is old or new,
- no temporary file is left, and no descriptor,
- the error is that of the system, and names the file, and
- the same operation then succeeds.

A process that is killed leaves what its files hold at that moment. So they are copied before each
call, and each copy must fulfil the same, but for temporary files.
"""

import errno
import os
import shutil
import signal
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from stored_arrays import IN_PLACE, PLAIN_ZARR, created, numbers
from system_calls import at_each_call_below
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore

from zarr_bytes import BytesCodec, preallocate

pytestmark = [
    pytest.mark.zarr,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files are known by descriptor"),
    pytest.mark.skipif(not hasattr(os, "pwrite"), reason="files are written in place on POSIX"),
]

SHAPE = (100, 40)  # a column is so many ranges that the file is mapped
OLD = numbers(SHAPE, "i4") + 1
BIG = BytesCodec(endian="big")

LAYOUTS = {  # with the elements of an absent inner chunk
    "chunk": {"serializer": BIG},
    "transposed chunk of another fill value": {
        "serializer": BIG,
        "filters": [TransposeCodec(order=(1, 0))],
        "fill_value": 9,
    },
    "shard": {"serializer": ShardingCodec(chunk_shape=(25, 20), codecs=[BIG])},
    "shard with its index at the start": {
        "serializer": ShardingCodec(chunk_shape=(50, 40), codecs=[BIG], index_location="start"),
        "fill_value": 9,
    },
}


class Stored:
    """An array of one chunk or shard in a folder, and what it must hold."""

    def __init__(self, folder, layout):
        self.fill_value = LAYOUTS[layout].get("fill_value", 0)
        created(LocalStore(folder), SHAPE, "i4", **LAYOUTS[layout])
        self.moved(folder)

    def moved(self, folder):
        self.folder, self.path = folder, folder / "c/0/0"
        with zarr.config.set(IN_PLACE):
            self.array = zarr.open_array(folder, mode="r+")

    @property
    def missing(self):
        return np.full(SHAPE, self.fill_value, "i4")

    def full(self):
        self.array[...] = OLD
        return OLD.copy()

    def sparse(self):
        """Of a shard, inner chunks are absent."""
        values = self.missing
        values[:25, :20] = OLD[:25, :20]
        self.array[...] = values
        return values

    def linked(self):
        values = self.full()
        os.link(self.path, self.folder / "backup")
        return values

    def values(self, folder=None):
        """By plain zarr."""
        with zarr.config.set(PLAIN_ZARR):
            return np.asarray(zarr.open_array(folder or self.folder, mode="r")[...])


def write(selection):
    def act(array):
        array[selection] = (1_000_000 + numbers(SHAPE, "i4"))[selection]

    return act


def delete(array):
    array[...] = array.fill_value


# What is there, what is done, which elements that changes, and whether the file stays.
OPERATIONS = {
    "row": (Stored.full, write(7), np.s_[7], True),
    "rows": (Stored.full, write(np.s_[5:60:9, 3:30]), np.s_[5:60:9, 3:30], True),
    "mapped column": (Stored.full, write(np.s_[:, 3]), np.s_[:, 3], True),
    "row of a new chunk": (lambda stored: stored.missing, write(7), np.s_[7], False),
    "whole chunk": (Stored.full, write(...), np.s_[...], False),
    "whole new chunk": (lambda stored: stored.missing, write(...), np.s_[...], False),
    "deletion": (Stored.full, delete, np.s_[...], False),
    "row of a file with another name": (Stored.linked, write(7), np.s_[7], False),
    "absent inner chunk": (Stored.sparse, write(np.s_[:, 25:30]), np.s_[:, 25:30], None),
    "preallocation": (lambda stored: stored.missing, preallocate, None, False),
    "preallocation of absent inner chunks": (Stored.sparse, preallocate, None, False),
    "read": (Stored.full, lambda array: array[3:50:7, 2:30], None, True),
}


def new_values(stored, before, operation, selection):
    """The elements after an operation."""
    after = before.copy()
    if operation == "deletion":
        after[...] = stored.fill_value
    elif selection is not None:
        after[selection] = (1_000_000 + numbers(SHAPE, "i4"))[selection]
    return after


def check_elements(found, before, after, selection, is_in_place):
    """Old or new: each element that is selected, or all of them together."""
    if np.array_equal(found, before) or np.array_equal(found, after):
        return
    assert is_in_place is not False
    if is_in_place is None:  # it stays where it has all inner chunks
        return
    is_selected = np.zeros(SHAPE, bool)
    is_selected[selection] = True
    assert np.array_equal(found[~is_selected], before[~is_selected])
    assert ((found == before) | (found == after)).all()


def open_below(folder):
    """Paths that this process has open."""
    found = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(file.readlink()))
    return [path for path in found if path.startswith((str(folder), "/memfd:zarr-bytes"))]


def temporary(folder):
    return [path.name for path in folder.rglob("*.partial")]


@contextmanager
def failing(folder, number, error):
    """The call of this number fails; yields the names of all calls."""

    def act(n, name, first):
        if n == number:
            named = [first] if isinstance(first, str | os.PathLike) else []
            raise OSError(error, os.strerror(error), *named)

    with at_each_call_below(folder, act) as calls:
        yield calls


ERRORS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.ENOLCK, errno.ENOMEM]
# Each operation once, in one of two layouts.
QUICK = {"transposed chunk of another fill value": [*OPERATIONS][:8], "shard": [*OPERATIONS][8:]}


def cases(*errors):
    """Operations and layouts, with each of the errors; all of them but a few are slow."""
    return [
        pytest.param(
            *(operation, layout, *([error] if error else [])),
            marks=[pytest.mark.slow] * (not is_quick or error not in (None, "EIO")),
        )
        for operation in OPERATIONS
        for layout in LAYOUTS
        if "shard" in layout or "inner" not in operation
        for is_quick in [operation in QUICK.get(layout, [])[:: 1 if errors[0] else 3]]
        for error in errors
    ]


def old_if_linked(stored, before):
    """What another name of the file still holds."""
    if (backup := stored.folder / "backup").exists():
        backup.replace(stored.path)
        assert np.array_equal(stored.values(), before)


@pytest.mark.parametrize(
    ("operation", "layout", "error"), cases(*(errno.errorcode[e] for e in ERRORS))
)
def test_the_nth_call_fails(tmp_path, operation, layout, error):
    prepare, act, selection, is_in_place = OPERATIONS[operation]
    error = getattr(errno, error)
    for number in range(500):
        stored = Stored(tmp_path / str(number), layout)
        before = prepare(stored)
        after, failure = new_values(stored, before, operation, selection), None
        with failing(stored.folder, number, error) as calls:
            try:
                act(stored.array)
            except OSError as caught:
                failure = caught
        at = calls[number] if number < len(calls) else None
        assert open_below(stored.folder) == [], at
        if at != "unlink":  # the name that stays is the one that could not be taken away
            assert temporary(stored.folder) == [], at
        if failure is None:
            assert np.array_equal(stored.values(), after), at
        else:
            # Without permission to make a link, there are none.
            assert failure.errno in (error, *[errno.EOPNOTSUPP] * (at == "link")), at
            assert str(stored.folder) in str(failure), (at, str(failure))
            check_elements(stored.values(), before, after, selection, is_in_place)
        act(stored.array)
        assert np.array_equal(stored.values(), after), at
        assert np.array_equal(stored.array[...], after), at
        old_if_linked(stored, before)
        if at is None:
            return
    raise AssertionError("it goes on for ever")


def copied(folder, target):
    """Copy a folder, with files of several names."""
    files = {}
    for path in sorted(folder.rglob("*")):
        other = target / path.relative_to(folder)
        if path.is_dir():
            other.mkdir(parents=True)
        elif (inode := path.stat().st_ino) in files:
            os.link(files[inode], other)
        else:
            other.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, other)
            files[inode] = other


def check_what_is_left(stored, before, after, operation):
    """By a process that was killed: old and new elements, and nothing in the way of a write."""
    _, act, selection, is_in_place = OPERATIONS[operation]
    check_elements(stored.values(), before, after, selection, is_in_place)
    act(stored.array)
    assert np.array_equal(stored.values(), after)
    assert np.array_equal(stored.array[...], after)
    old_if_linked(stored, before)


@pytest.mark.parametrize(("operation", "layout"), cases(None))
def test_a_process_that_ends_before_the_nth_call_leaves_old_or_new(tmp_path, operation, layout):
    prepare, act, selection, _ = OPERATIONS[operation]
    stored = Stored(tmp_path / "a", layout)
    before = prepare(stored)
    after = new_values(stored, before, operation, selection)
    with at_each_call_below(
        stored.folder, lambda number, *_: copied(stored.folder, tmp_path / str(number))
    ) as calls:
        act(stored.array)
    for number in range(len(calls)):
        stored.moved(tmp_path / str(number))
        check_what_is_left(stored, before, after, operation)


def kill_at(number, n, *_):
    if n == number:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_that_is_killed_before_the_nth_call_leaves_old_or_new(tmp_path, operation):
    """The same, with processes that are."""
    prepare, act, selection, _ = OPERATIONS[operation]
    for number in range(500):
        stored = Stored(tmp_path / str(number), "shard")
        before = prepare(stored)
        after = new_values(stored, before, operation, selection)
        child = os.fork()
        if not child:
            with at_each_call_below(stored.folder, partial(kill_at, number)):
                act(stored.array)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        check_what_is_left(stored, before, after, operation)
        if status == 0:
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("it goes on for ever")
