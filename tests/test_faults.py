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
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE
from stored_arrays import IN_PLACE, PLAIN_ZARR, created, numbers
from system_calls import at_each_call_below, interrupted
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore

from zarr_bytes import BytesCodec, preallocate
from zarr_bytes.io.files import open_descriptor_if_exists

pytestmark = [
    pytest.mark.zarr,
    pytest.mark.skipif(
        not Path("/proc/self/fd").exists(),
        reason="files are known by descriptor, and written in place",
    ),
]

SHAPE = (100, 40)  # a column is so many ranges that the file is mapped
OLD = numbers(SHAPE, "i4") + 1
NEW = OLD + 1_000_000
BIG, TRANSPOSE = BytesCodec(endian="big"), [TransposeCodec(order=(1, 0))]

OF_FORMAT_2 = {"zarr_format": 2, "order": "F", "serializer": "auto"}
LAYOUTS = {
    "chunk": {},
    "transposed chunk of another fill value": {"filters": TRANSPOSE, "fill_value": 9},
    "chunk of format 2 in order F": {**OF_FORMAT_2, "fill_value": 9},
    "shard": {"serializer": ShardingCodec(chunk_shape=(25, 20), codecs=[BIG])},
    "shard with its index at the start": {
        "serializer": ShardingCodec(chunk_shape=(50, 40), codecs=[BIG], index_location="start"),
        "fill_value": 9,
    },
}
if HAS_FUSED_PIPELINE:  # from zarr 3.3 on
    scaled = [zarr.codecs.ScaleOffset(offset=-5, scale=3)]
    LAYOUTS |= {
        "chunk of scaled elements": {"filters": [*TRANSPOSE, *scaled], "fill_value": 9},
        "shard of scaled elements": {
            "serializer": ShardingCodec(chunk_shape=(25, 20), codecs=[*scaled, BIG])
        },
    }


class Stored:
    """An array of one chunk or shard in a folder."""

    def __init__(self, folder, layout=None):
        if layout is not None:
            created(LocalStore(folder), SHAPE, "i4", **LAYOUTS[layout])
        with zarr.config.set(PLAIN_ZARR):
            self.plain = zarr.open_array(folder, mode="r")
        self.folder = folder
        self.path = folder / self.plain.metadata.encode_chunk_key((0, 0))
        with zarr.config.set(IN_PLACE):
            self.array = zarr.open_array(folder, mode="r+")

    def full(self):
        self.array[...] = OLD

    def sparse(self):
        """Of a shard, inner chunks are absent."""
        values = np.full(SHAPE, self.array.fill_value)
        values[:25, :20] = OLD[:25, :20]
        self.array[...] = values

    def linked(self):
        self.full()
        os.link(self.path, self.folder / "backup")

    def missing(self):
        pass

    def values(self):
        """As plain zarr reads them."""
        with zarr.config.set(PLAIN_ZARR):
            return np.asarray(self.plain[...])

    def check_afterwards(self, operation, before, after):
        """The elements are old or new; the same operation succeeds, and spares other names."""
        _, act, outcome = OPERATIONS[operation]
        found = self.values()
        if outcome == "in place":
            assert ((found == before) | (found == after)).all()
        else:
            assert np.array_equal(found, before) or np.array_equal(found, after)
        act(self.array)
        assert np.array_equal(self.values(), after)
        assert np.array_equal(self.array[...], after)
        if (backup := self.folder / "backup").exists():
            backup.replace(self.path)
            assert np.array_equal(self.values(), before)


def write(selection):
    def act(array):
        array[selection] = NEW[selection]

    return act


def delete(array):
    array[...] = array.fill_value


# What is there, what is done, and whether elements become new one after another.
OPERATIONS = {
    "row": (Stored.full, write(np.s_[7, 18:22]), "in place"),
    "rows": (Stored.full, write(np.s_[5:60:27, 18:22]), "in place"),
    "mapped column": (Stored.full, write(np.s_[:, 3]), "in place"),
    "row of a new chunk": (Stored.missing, write(7), "at once"),
    "whole chunk": (Stored.full, write(...), "at once"),
    "whole new chunk": (Stored.missing, write(...), "at once"),
    "deletion": (Stored.full, delete, "at once"),
    "row of a file with another name": (Stored.linked, write(7), "at once"),
    "absent inner chunk": (Stored.sparse, write(np.s_[:, 25:30]), "in place"),
    "preallocation": (Stored.missing, preallocate, "nothing"),
    "preallocation of absent inner chunks": (Stored.sparse, preallocate, "nothing"),
    "read": (Stored.full, lambda array: array[3:50:7, 2:30], "nothing"),
}
slow = pytest.mark.slow


def cases(step):
    """Each `step`-th operation in one of three layouts; the others are slow."""
    for number, operation in enumerate(OPERATIONS):
        quick = [*LAYOUTS][1 + number % 2 if number < 8 else 3] if number % step == 0 else None
        for layout in LAYOUTS:
            if "shard" in layout or "inner" not in operation:
                yield pytest.param(operation, layout, marks=[] if layout == quick else slow)


def prepared(folder, operation, layout):
    """What is stored, and its elements before and after an operation."""
    prepare, act, outcome = OPERATIONS[operation]
    stored = Stored(folder, layout)
    prepare(stored)
    before = stored.values()
    after = before.copy()
    if operation == "deletion":
        after[...] = stored.array.fill_value
    elif outcome != "nothing":
        act(after)
    return stored, before, after


def copy_all(folder, target):
    """Copy a folder, with files of several names."""
    first = {}  # by inode

    def copy(source, path):
        other = first.setdefault(Path(source).stat().st_ino, path)
        shutil.copyfile(source, path) if other == path else os.link(other, path)

    shutil.copytree(folder, target, copy_function=copy)


def open_below(folder):
    """Paths that this process has open."""
    found = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(file.readlink()))
    return [path for path in found if path.startswith((str(folder), "/memfd:zarr-bytes"))]


OTHER_ERRORS = ["EIO", "EDQUOT", "EACCES", "ENOLCK", "ENOMEM"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    stored = Stored(tmp_path, "chunk")
    stored.full()

    def fail(number, name, file):
        if name == "pwrite":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        at_each_call_below(tmp_path, fail),
        pytest.raises(OSError, match=r"No space left on device.*/c/0/0"),
    ):
        stored.array[7] = 1


@pytest.mark.parametrize(
    "error", ["ENOSPC", *(pytest.param(name, marks=slow) for name in OTHER_ERRORS)]
)
@pytest.mark.parametrize(("operation", "layout"), [*cases(1)])
def test_an_error_of_the_nth_system_call_leaves_old_or_new_elements(
    tmp_path, operation, layout, error
):
    error = getattr(errno, error)
    first, before, after = prepared(tmp_path / "a", operation, layout)
    for number in range(500):

        def fail(n, name, file):
            if n == number:  # noqa: B023
                path = [file] if isinstance(file, str | os.PathLike) else []
                raise OSError(error, os.strerror(error), *path)

        copy_all(first.folder, tmp_path / str(number))
        stored, failure = Stored(tmp_path / str(number)), None
        with at_each_call_below(stored.folder, fail) as calls:
            try:
                OPERATIONS[operation][1](stored.array)
            except OSError as caught:
                failure = caught
        at = calls[number] if number < len(calls) else None
        assert open_below(stored.folder) == [], at
        if at != "unlink":  # the name that stays is the one that could not be taken away
            assert list(stored.folder.rglob("*.partial")) == [], at
        if failure is None:
            assert np.array_equal(stored.values(), after), at
        else:
            # Without permission to make a link, there are none.
            assert failure.errno in (error, *[errno.EOPNOTSUPP] * (at == "link")), at
            assert str(stored.folder) in str(failure), (at, str(failure))
        stored.check_afterwards(operation, before, after)
        if at is None:
            return
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize(("operation", "layout"), [*cases(3)])
def test_a_process_that_ends_before_the_nth_system_call_leaves_old_or_new_elements(
    tmp_path, operation, layout
):
    stored, before, after = prepared(tmp_path / "a", operation, layout)
    with at_each_call_below(
        stored.folder, lambda number, *_: copy_all(stored.folder, tmp_path / str(number))
    ) as calls:
        OPERATIONS[operation][1](stored.array)
    for number in range(len(calls)):
        Stored(tmp_path / str(number)).check_afterwards(operation, before, after)


def opened_and_closed(array):
    os.close(open_descriptor_if_exists(f"{array.store.root}/zarr.json"))


@pytest.mark.parametrize("act", [preallocate, opened_and_closed])
def test_an_interrupt_leaves_no_descriptor_and_no_temporary_file(tmp_path, act):
    stored = Stored(tmp_path, "chunk")

    def look():
        assert open_below(tmp_path) == []
        assert list(tmp_path.rglob("*.partial")) == []
        shutil.rmtree(tmp_path / "c", ignore_errors=True)

    look()
    assert interrupted(lambda: act(stored.array), look, only="zarr_bytes") > 2


def test_the_first_write_of_several_chunks_finds_the_file_system_of_the_store(tmp_path):
    created(tmp_path, (6, 4), "i4", (3, 4))[...] = 1
    assert open_below(tmp_path) == []
