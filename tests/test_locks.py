"""Writers of separate elements lose none where one of them replaces the file: they lock it."""

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import numpy as np
import pytest
import sharing
import zarr
from conftest import HAS_FUSED_PIPELINE
from fuzz import encoded
from shards import divided, shard_of
from stored_arrays import behind_a_link, created, numbers
from system_calls import before_each, fail_at, mounted_as, watched
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore

from zarr_bytes import BytesCodec, explain, preallocate
from zarr_bytes.io import locks
from zarr_bytes.io.known_stores import known_stores

fcntl = pytest.importorskip("fcntl", reason="files are written in place on POSIX systems")

SHAPE, INNER = (8, 6), (2, 6)
CODEC = ShardingCodec(chunk_shape=INNER, codecs=[BytesCodec(endian="big")])
LAYOUTS = {
    "chunk": {},
    "shard": {"serializer": CODEC},
    "format 2": {"serializer": "auto", "zarr_format": 2, "order": "F"},
}
if HAS_FUSED_PIPELINE:  # from zarr 3.3 on
    LAYOUTS["scaled"] = {"filters": [zarr.codecs.ScaleOffset(offset=5)]}
OLD = numbers(SHAPE, "i4") + 1
PARTS = [encoded(part, "int32", "big") for part in divided(OLD, INNER)]


class Chunk:
    """An array of one chunk or shard, and its file."""

    def __init__(self, folder, layout):
        self.array = created(LocalStore(folder), SHAPE, "i4", **LAYOUTS[layout])
        self.array[...] = OLD
        self.path = folder / self.array.metadata.encode_chunk_key((0, 0))


STATES = {  # what a file is like, by its path
    "as it was": lambda path: None,
    "without an inner chunk": lambda path: path.write_bytes(shard_of([*PARTS[:3], None])),
    "with two inner chunks of one place": lambda path: path.write_bytes(
        shard_of(PARTS, entries={3: (2 * len(PARTS[0]), len(PARTS[0]))})
    ),
    "with another name": lambda path: os.link(path, path.with_name("backup")),
    "behind a link": behind_a_link,
    "read-only": lambda path: path.chmod(0o444),
}
WRITES = {  # the first and the last are of separate elements
    "first": (0, 77),
    "last": (np.s_[7, 2:5], 99),
    "whole": (..., 99),
    "empty": (..., 0),
}
# The layout; what the file is like before both writes, and from the second one on; the write that
# replaces the file.
REPLACING = [
    ("shard", "without an inner chunk", "as it was", "last"),
    ("shard", "with two inner chunks of one place", "as it was", "last"),
    ("format 2", "as it was", "with another name", "last"),
    ("shard", "as it was", "behind a link", "last"),
    ("chunk", "as it was", "read-only", "last"),
    ("chunk", "as it was", "as it was", "whole"),
    ("shard", "as it was", "as it was", "whole"),
    ("format 2", "as it was", "as it was", "empty"),
    ("shard", "without an inner chunk", "as it was", "preallocate"),
]
if HAS_FUSED_PIPELINE:
    REPLACING += [
        ("scaled", "as it was", "with another name", "last"),
        ("scaled", "as it was", "as it was", "empty"),
    ]
replacing = pytest.mark.parametrize(("layout", "before", "meanwhile", "replace"), REPLACING)


def write(array, name):
    if name == "preallocate":
        preallocate(array)
    else:
        selection, number = WRITES[name]
        array[selection] = number


def after(values, *names):
    """The elements after some writes."""
    values = values.copy()
    for name in names:
        if name in WRITES:
            write(values, name)
    return values.tolist()


@pytest.fixture
def waits(monkeypatch):
    """Set as soon as a writer waits for a lock."""
    waits, sleep = threading.Event(), locks.sleep

    def told(seconds):
        waits.set()
        sleep(seconds)

    monkeypatch.setattr(locks, "sleep", told)
    return waits


def test_threads_that_write_different_rows_of_a_chunk_lose_none(tmp_path):
    array = Chunk(tmp_path, "chunk").array
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda row: array.set_basic_selection(row, row), range(SHAPE[0])))
    assert array[:, 0].tolist() == list(range(SHAPE[0]))


@pytest.mark.parametrize("is_replaced_first", [False, True], ids=["in place", "replaced"])
@replacing
def test_a_write_in_place_and_a_replacement_of_the_file_wait_for_each_other(
    tmp_path, monkeypatch, waits, layout, before, meanwhile, replace, is_replaced_first
):
    chunk, begun = Chunk(tmp_path, layout), []
    STATES[before](chunk.path)
    if is_replaced_first:
        STATES[meanwhile](chunk.path)
    values = chunk.array[...]
    first, second = (replace, "first") if is_replaced_first else ("first", replace)

    def at_the_same_moment():
        if not is_replaced_first:
            STATES[meanwhile](chunk.path)
        begun.append(thread.submit(write, chunk.array, second))
        begun[0].add_done_callback(lambda _: waits.set())
        assert waits.wait(30)

    call = "unlink" if replace == "empty" else "replace"
    fail_at(monkeypatch, call if is_replaced_first else "pwrite", 0, before=at_the_same_moment)
    with ThreadPoolExecutor(1) as thread:
        write(chunk.array, first)
        begun[0].result(30)
    assert chunk.array[...].tolist() == after(values, first, second)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["last", "whole"])
@pytest.mark.parametrize("other", ["first", "whole", "preallocate"])
def test_the_second_of_two_writers_that_make_a_chunk_file_writes_into_the_first(
    tmp_path, monkeypatch, layout, name, other
):
    chunk = Chunk(tmp_path, layout)
    chunk.path.unlink()
    fail_at(monkeypatch, "link", 0, before=lambda: write(chunk.array, other))
    write(chunk.array, name)
    assert chunk.array[...].tolist() == after(np.zeros_like(OLD), other, name)


@pytest.fixture
def held(tmp_path):
    """A chunk whose lock another program holds, and the file of that program."""
    chunk = Chunk(tmp_path, "chunk")
    with chunk.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield chunk, file


class TestWaiting:
    @pytest.mark.parametrize("name", ["first", "whole", "empty"])
    def test_a_lock_that_is_held_for_a_minute_is_an_error_that_names_the_file(
        self, held, monkeypatch, name
    ):
        """Whatever others do to the chunks beside it meanwhile."""
        chunk, _ = held
        pauses, others = [], ["1", "00.a.partial", "1.a.partial", "0.partial.old"]

        def paused(seconds):
            pauses.append(seconds)
            for other in others * (len(pauses) < 100):
                chunk.path.with_name(other).write_bytes(bytes(len(pauses)))

        monkeypatch.setattr(locks, "monotonic", lambda: len(pauses))
        monkeypatch.setattr(locks, "sleep", paused)
        message = f"held a lock .* 60 seconds, and nothing has been written: .*'{chunk.path}'$"
        with pytest.raises(OSError, match=rf"^\[Errno {errno.EBUSY}\].* {message}"):
            write(chunk.array, name)
        assert len(pauses) == 60
        assert pauses[:7] == [2**-12, 2**-11, 2**-10, 2**-9, 2**-8, 2**-7, 2**-7]
        assert np.array_equal(chunk.array[...], OLD)

    @pytest.mark.parametrize("name", ["0", f"0.{32 * 'a'}.partial"])
    def test_a_lock_of_a_writer_that_goes_on_writing_is_waited_for_longer(
        self, held, monkeypatch, name
    ):
        """In place, or a file that is to take the place of the chunk's."""
        chunk, file = held
        other, times, seconds = chunk.path.with_name(name), iter(range(10)), iter(range(0, 999, 25))

        def going_on(_):
            number = next(times)
            if number == 8:
                fcntl.flock(file, fcntl.LOCK_UN)
            if other != chunk.path:  # it grows, and the clock of the file system is coarse
                other.write_bytes(bytes(number))
            os.utime(other, ns=(0, number * (other == chunk.path)))

        monkeypatch.setattr(locks, "sleep", going_on)
        monkeypatch.setattr(locks, "monotonic", lambda: next(seconds))
        write(chunk.array, "first")
        assert chunk.array[...].tolist() == after(OLD, "first")

    @pytest.mark.parametrize("is_cancelled", [False, True])
    def test_the_event_loop_goes_on_while_a_write_waits_for_a_lock(self, held, waits, is_cancelled):
        chunk, file = held

        async def run():
            write = asyncio.ensure_future(chunk.array.async_array.setitem(0, 77))
            while not waits.is_set():
                await asyncio.sleep(0)
            assert not write.done()
            if is_cancelled:
                write.cancel()
            else:
                fcntl.flock(file, fcntl.LOCK_UN)
            await asyncio.wait([write])
            assert write.cancelled() == is_cancelled

        asyncio.run(run())
        assert chunk.array[...].tolist() == after(OLD, *["first"] * (not is_cancelled))

    def test_a_write_that_waits_for_a_lock_ends_with_the_error_of_another_chunk(
        self, tmp_path, waits
    ):
        array = created(LocalStore(tmp_path), (2, 6), "i4", chunks=(1, 6))
        array[...] = 7
        path = tmp_path / "c/1/0"
        path.unlink()
        path.mkdir()
        with (
            (tmp_path / "c/0/0").open("rb") as file,
            zarr.config.set({"codec_pipeline.max_workers": 2}),
            watched(tmp_path, before=lambda key: key == "c/0/0" or waits.wait(30)),
        ):
            fcntl.flock(file, fcntl.LOCK_EX)
            for _ in range(10):  # either thread may be the one that waits
                waits.clear()
                with pytest.raises(ValueError, match="is a folder"):
                    array[...] = np.arange(12).reshape(2, 6)

    def test_a_process_that_was_forked_meanwhile_does_not_keep_a_lock(self, tmp_path):
        chunk, kept = Chunk(tmp_path, "chunk"), []
        with before_each(lambda _, file, *__: kept.append(os.dup(file)), ["pwrite"]):
            write(chunk.array, "first")
        with chunk.path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for descriptor in kept:
            os.close(descriptor)

    def test_readers_and_writers_without_the_setting_wait_for_no_lock(self, held):
        chunk, _ = held
        assert np.array_equal(chunk.array[...], OLD)
        array = zarr.open_array(chunk.array.store, mode="r+")
        write(array, "first")
        assert array[...].tolist() == after(OLD, "first")


class TestFileSystems:
    """Where a file system has no locks, chunks are written as without them."""

    @pytest.mark.parametrize(
        "error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, None]
    )
    @replacing
    def test_chunks_are_written_where_a_file_system_has_no_locks(
        self, tmp_path, monkeypatch, error, layout, before, meanwhile, replace
    ):
        def refused(*_):
            raise OSError(error, os.strerror(error))

        if error is None:
            monkeypatch.setattr(locks, "fcntl", None)
        else:
            monkeypatch.setattr(fcntl, "flock", refused)
        chunk = Chunk(tmp_path, layout)
        STATES[before](chunk.path)
        STATES[meanwhile](chunk.path)
        values = chunk.array[...]
        write(chunk.array, replace)
        write(chunk.array, "first")
        assert chunk.array[...].tolist() == after(values, replace, "first")

    @pytest.mark.parametrize(
        ("kind", "is_locked"), [("cifs", False), ("smb3", False), ("nfs4", True)]
    )
    def test_no_lock_is_taken_where_locks_are_mandatory(self, tmp_path, kind, is_locked):
        chunk, calls = Chunk(tmp_path / "store", "chunk"), []
        with (
            mounted_as(kind, chunk.path, tmp_path / "mounts"),
            before_each(lambda *call: calls.append(call[2] & ~fcntl.LOCK_UN), ["flock"]),
        ):
            write(chunk.array, "first")
            assert explain(chunk.array, ..., write=True).may_share is is_locked
        assert any(calls) is is_locked

    def test_no_lock_is_taken_on_smb_though_a_thousand_other_stores_have_been_located_meanwhile(
        self, tmp_path
    ):
        """Other threads may do so between the look at the file system and the lock."""
        path, calls = tmp_path / "file", []
        path.touch()
        with mounted_as("cifs", path, tmp_path / "mounts"), path.open() as file:
            for root in "root", *map(str, range(1001)):
                known_stores.record_file_system_unless_known(file.fileno(), root)
            with before_each(lambda *call: calls.append(call), ["flock"]):
                locks.lock_if_supported(
                    file.fileno(), str(path), "root", is_shared=True, max_seconds_without_writes=60
                )
        assert calls == []

    def test_explain_says_that_writers_may_share_a_chunk_that_is_locked(self, tmp_path):
        """In place of a chunk, and of an array whose chunk is replaced."""
        chunk = Chunk(tmp_path, "chunk")
        for path, selection in (chunk.path, 3), (tmp_path, ...):
            file = os.open(path, os.O_RDONLY)
            fcntl.flock(file, fcntl.LOCK_EX)
            assert explain(chunk.array, selection, write=True).may_share
            os.close(file)


@pytest.fixture(scope="module")
def together():
    """Calls a function in four processes at once, which stay for all tests here."""
    with sharing.processes() as call:
        yield call


WAYS = ["rows", "columns", "points", "preallocate", "whole"]
FEW = [(*case, 2) for case in zip(sharing.LAYOUTS[:-1], cycle(WAYS), strict=False)]
MANY = [(layout, way, 25) for layout in sharing.LAYOUTS for way in WAYS]


@pytest.mark.parametrize(
    ("layout", "way", "rounds"),
    [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in MANY)],
)
def test_four_processes_that_write_one_chunk_lose_no_element(
    tmp_path, together, layout, way, rounds
):
    assert sharing.lost(together, tmp_path, layout, way, rounds) == [0] * rounds
