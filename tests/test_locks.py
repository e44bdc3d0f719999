"""Writers of separate elements lose none where one of them replaces the file: they lock it."""

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from fuzz import encoded
from shards import divided, shard_of
from sharing import LAYOUTS_OF_RACES, processes, race
from stored_arrays import created, numbers
from system_calls import fail_at, mounted_as
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore

from zarr_bytes import BytesCodec, preallocate
from zarr_bytes.io import locks

fcntl = pytest.importorskip("fcntl", reason="files are written in place on POSIX systems")

SHAPE, INNER = (8, 6), (2, 6)
SHARDED = {"serializer": ShardingCodec(chunk_shape=INNER, codecs=[BytesCodec(endian="big")])}
LAYOUTS = {"chunk": {}, "shard": SHARDED}
OLD = numbers(SHAPE, "i4") + 1
PARTS = [encoded(part, "int32", "big") for part in divided(OLD, INNER)]
FIRST, LAST = np.s_[0], np.s_[7, 2:5]  # of other inner chunks


class Chunk:
    """An array of one chunk or shard, and its file."""

    def __init__(self, folder, layout):
        self.array = created(LocalStore(folder), SHAPE, "i4", **LAYOUTS[layout])
        self.array[...] = OLD
        self.path = folder / "c/0/0"

    def lacks_an_inner_chunk(self):
        self.path.write_bytes(shard_of([*PARTS[:3], None]))

    def has_two_inner_chunks_of_one_place(self):
        self.path.write_bytes(shard_of(PARTS, entries={3: (2 * len(PARTS[0]), len(PARTS[0]))}))

    def has_another_name(self):
        os.link(self.path, self.path.with_name("backup"))

    def is_behind_a_symbolic_link(self):
        self.path.rename(self.path.with_name("target"))
        self.path.symlink_to("target")

    def is_read_only(self):
        self.path.chmod(0o444)


def nothing(chunk):
    pass


def write_last(array):
    array[LAST] = 99


def write_whole(array):
    array[...] = 99


def write_empty(array):
    array[...] = 0


# The layout; what the file is like before both writes, and at the moment of the second; the write
# that replaces the file.
REPLACING = {
    "an inner chunk is absent": ("shard", Chunk.lacks_an_inner_chunk, nothing, write_last),
    "inner chunks share bytes": (
        *("shard", Chunk.has_two_inner_chunks_of_one_place, nothing, write_last),
    ),
    "a chunk has another name": ("chunk", nothing, Chunk.has_another_name, write_last),
    "a shard has another name": ("shard", nothing, Chunk.has_another_name, write_last),
    "a chunk is a symbolic link": ("chunk", nothing, Chunk.is_behind_a_symbolic_link, write_last),
    "a shard is a symbolic link": ("shard", nothing, Chunk.is_behind_a_symbolic_link, write_last),
    "a chunk is read-only": ("chunk", nothing, Chunk.is_read_only, write_last),
    "a chunk is written whole": ("chunk", nothing, nothing, write_whole),
    "a shard is written whole": ("shard", nothing, nothing, write_whole),
    "a chunk becomes empty": ("chunk", nothing, nothing, write_empty),
    "a shard is completed": ("shard", Chunk.lacks_an_inner_chunk, nothing, preallocate),
}


def write_first(array):
    array[FIRST] = 77


def after(values, *writes):
    values = values.copy()
    for write in writes:
        if write is not preallocate:
            write(values)
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


@pytest.fixture
def begin(waits):
    """Function that begins a write in a thread, and returns when that waits or is done."""
    with ThreadPoolExecutor(1) as thread:

        def begin(write, array):
            begun = thread.submit(write, array)
            begun.add_done_callback(lambda _: waits.set())
            assert waits.wait(30)
            return begun

        yield begin


@pytest.mark.parametrize("is_replaced_first", [False, True], ids=["in place", "replaced"])
@pytest.mark.parametrize("case", REPLACING)
def test_one_who_writes_in_place_and_one_who_replaces_the_file_wait_for_each_other(
    tmp_path, monkeypatch, begin, case, is_replaced_first
):
    layout, before, meanwhile, replace = REPLACING[case]
    chunk, begun = Chunk(tmp_path, layout), []
    before(chunk)
    if is_replaced_first:
        meanwhile(chunk)
    values = chunk.array[...]
    first, second = (replace, write_first) if is_replaced_first else (write_first, replace)

    def at_the_same_moment():
        if not is_replaced_first:
            meanwhile(chunk)
        begun.append(begin(second, chunk.array))

    call = "unlink" if replace is write_empty else "replace"
    call = call if is_replaced_first else "pwrite"
    fail_at(monkeypatch, call, 0, before=at_the_same_moment)
    first(chunk.array)
    begun[0].result(30)
    assert chunk.array[...].tolist() == after(values, first, second)


@pytest.mark.parametrize("layout", ["chunk", "shard"])
class TestMissingFiles:
    @pytest.mark.parametrize("write", [write_last, write_whole])
    @pytest.mark.parametrize("other", [write_first, write_whole, preallocate])
    def test_of_two_who_make_the_file_the_second_writes_into_that_of_the_first(
        self, tmp_path, monkeypatch, layout, write, other
    ):
        chunk = Chunk(tmp_path, layout)
        chunk.path.unlink()
        fail_at(monkeypatch, "link", 0, before=lambda: other(chunk.array))
        write(chunk.array)
        assert chunk.array[...].tolist() == after(np.zeros_like(OLD), other, write)

    def test_a_symbolic_link_to_nothing_is_replaced_by_one_alone(
        self, tmp_path, monkeypatch, begin, layout
    ):
        chunk, begun = Chunk(tmp_path, layout), []
        chunk.path.unlink()
        chunk.path.symlink_to("nothing")

        def at_the_same_moment():
            begun.append(begin(write_first, chunk.array))

        fail_at(monkeypatch, "replace", 0, before=at_the_same_moment)
        write_last(chunk.array)
        begun[0].result(30)
        assert chunk.array[...].tolist() == after(np.zeros_like(OLD), write_last, write_first)


@pytest.fixture
def held(tmp_path):
    """A chunk whose lock another program holds, and the file of that program."""
    chunk = Chunk(tmp_path, "chunk")
    with chunk.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield chunk, file


class TestWaiting:
    @pytest.mark.parametrize("write", [write_first, write_whole, write_empty])
    def test_a_lock_that_is_held_for_a_minute_is_an_error_that_names_the_file(
        self, held, monkeypatch, write
    ):
        waited = []
        monkeypatch.setattr(locks, "monotonic", lambda: sum(waited))
        monkeypatch.setattr(locks, "sleep", lambda seconds: waited.append(max(seconds, 1)))
        chunk, _ = held
        message = f"held a lock .* 60 seconds, and nothing has been written: .*'{chunk.path}'"
        with pytest.raises(OSError, match=message) as caught:
            write(chunk.array)
        assert caught.value.errno == errno.EBUSY
        assert sum(waited) == 60
        assert np.array_equal(chunk.array[...], OLD)

    @pytest.mark.parametrize("name", ["0", f"0.{32 * 'a'}.partial"])
    def test_a_writer_who_goes_on_writing_is_waited_for_longer(self, held, monkeypatch, name):
        """In place, or a file that is to take the place of the chunk's."""
        chunk, file = held
        other, times, seconds = chunk.path.with_name(name), iter(range(10)), iter(range(0, 999, 25))

        def going_on(_):
            number = next(times)
            if number == 8:
                fcntl.flock(file, fcntl.LOCK_UN)
            other.touch()
            os.utime(other, ns=(number, number))

        monkeypatch.setattr(locks, "sleep", going_on)
        monkeypatch.setattr(locks, "monotonic", lambda: next(seconds))
        write_first(chunk.array)
        assert chunk.array[...].tolist() == after(OLD, write_first)

    def test_the_event_loop_goes_on(self, held, waits):
        chunk, file = held

        async def run():
            write = asyncio.ensure_future(chunk.array.async_array.setitem(FIRST, 77))
            while not waits.is_set():
                await asyncio.sleep(0)
            assert not write.done()
            fcntl.flock(file, fcntl.LOCK_UN)
            await write

        asyncio.run(run())
        assert chunk.array[...].tolist() == after(OLD, write_first)

    def test_a_write_that_waits_can_be_cancelled(self, held, waits):
        """It has not begun."""
        chunk, _ = held

        async def run():
            write = asyncio.ensure_future(chunk.array.async_array.setitem(FIRST, 77))
            while not waits.is_set():
                await asyncio.sleep(0)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write

        asyncio.run(run())
        assert np.array_equal(chunk.array[...], OLD)

    def test_a_write_that_waits_ends_with_the_error_of_another_chunk(self, tmp_path, waits):
        array = created(LocalStore(tmp_path), (2, 6), "i4", chunks=(1, 6))
        array[...] = 7
        paths = [tmp_path / "c" / str(row) / "0" for row in range(2)]
        paths[1].unlink()
        paths[1].mkdir()  # an error once the other chunk waits
        with paths[0].open("rb") as file, zarr.config.set({"codec_pipeline.max_workers": 2}):
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(ValueError, match="is a folder"):
                array[:, :] = np.arange(12).reshape(2, 6)

    def test_who_was_forked_meanwhile_does_not_keep_the_lock(self, tmp_path, monkeypatch):
        chunk, pwrite, kept = Chunk(tmp_path, "chunk"), os.pwrite, []

        def with_another_descriptor(file, *args):
            kept.append(os.dup(file))  # as of a forked process
            return pwrite(file, *args)

        monkeypatch.setattr(os, "pwrite", with_another_descriptor)
        write_first(chunk.array)
        with chunk.path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for descriptor in kept:
            os.close(descriptor)


def test_readers_and_writers_without_the_setting_take_no_lock(held):
    chunk, _ = held
    assert np.array_equal(chunk.array[...], OLD)
    array = zarr.open_array(chunk.array.store, mode="r+")
    write_first(array)
    assert array[...].tolist() == after(OLD, write_first)


NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class TestFileSystems:
    """Where a file system has no locks, chunks are written as without them."""

    @pytest.fixture(params=[*map(errno.errorcode.get, NO_LOCKS), "no fcntl"])
    def without_locks(self, request, monkeypatch):
        if request.param == "no fcntl":
            monkeypatch.setattr(locks, "fcntl", None)
            return
        number = getattr(errno, request.param)

        def refused(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", refused)

    @pytest.mark.usefixtures("without_locks")
    def test_chunks_are_written_all_the_same(self, tmp_path):
        for case, (layout, before, meanwhile, replace) in REPLACING.items():
            chunk = Chunk(tmp_path / case, layout)
            before(chunk)
            meanwhile(chunk)
            values = chunk.array[...]
            replace(chunk.array)
            write_first(chunk.array)
            assert chunk.array[...].tolist() == after(values, replace, write_first)
            assert not locks.can_lock(str(chunk.path))

    def test_the_file_and_the_folder_of_a_missing_one_are_asked(self, held):
        chunk, file = held
        assert locks.can_lock(str(chunk.path))
        fcntl.flock(file, fcntl.LOCK_UN)
        assert locks.can_lock(str(chunk.path))
        assert locks.can_lock(str(chunk.path.parents[1] / "7/7"))

    @pytest.mark.parametrize(("kind", "is_locked"), [("cifs", False), ("nfs4", True)])
    def test_locks_that_would_refuse_others_their_reads_are_not_taken(
        self, tmp_path, monkeypatch, kind, is_locked
    ):
        chunk, flock, calls = Chunk(tmp_path / "store", "chunk"), fcntl.flock, []

        def counting(*args):
            calls.append(args[1] & ~fcntl.LOCK_UN)
            flock(*args)

        monkeypatch.setattr(fcntl, "flock", counting)
        with mounted_as(kind, chunk.path, tmp_path / "mounts"):
            write_first(chunk.array)
            assert locks.can_lock(str(chunk.path)) is is_locked
        assert any(calls) is is_locked


@pytest.fixture(scope="module")
def together():
    """Calls a function in four processes at once, which stay for all tests here."""
    with processes() as call:
        yield call


QUICK = {
    ("chunk missing", "rows"),
    ("chunk complete", "whole"),
    ("chunk with another name", "rows"),
    ("shard missing", "preallocate"),
    ("shard incomplete", "rows"),
    ("shard behind a link", "whole"),
}
RACES = [
    *(pytest.param(*race, 3, id=", ".join(race)) for race in sorted(QUICK)),
    *(
        pytest.param(layout, beside, 100, marks=pytest.mark.slow)
        for layout in LAYOUTS_OF_RACES
        for beside in ("rows", "preallocate", "whole")
    ),
]


@pytest.mark.parametrize(("layout", "beside", "rounds"), RACES)
def test_four_processes_lose_no_row(tmp_path, together, layout, beside, rounds):
    assert race(together, tmp_path, layout, beside, rounds) == [0] * rounds


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", LAYOUTS_OF_RACES)
def test_four_threads_lose_no_row(tmp_path, layout, rounds):
    barrier = threading.Barrier(4)
    with ThreadPoolExecutor(4) as threads:

        def call(function, *args):
            list(threads.map(lambda who: function(who, *args, barrier), range(4)))

        assert race(call, tmp_path, layout, "rows", rounds) == [0] * rounds
