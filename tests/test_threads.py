"""Where chunks are read and written: on the event loop, in one thread, or in several at a time."""

import asyncio
import errno
import itertools
import multiprocessing
import os
import sys
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from interleaving import results_with
from stored_arrays import (
    IN_PLACE,
    CountingStore,
    created,
    faulty,
    numbers,
    pipeline_of,
    pipeline_with,
    put,
    spec_of,
    stored,
)
from system_calls import before_each, ending_early, mounted_as, needs_nowait, watched
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import ChunkFileError, ChunkSizeError, counting, read
from zarr_bytes.indexing import plan
from zarr_bytes.io import counters, index_cache
from zarr_bytes.io.known_stores import known_stores
from zarr_bytes.io.tasks import max_codec_pipeline_workers
from zarr_bytes.layout import objects
from zarr_bytes.limits import Limits

LIMITS = Limits()
ZARRS, OURS = "BatchedCodecPipeline", "BatchedBytesPipeline"


@pytest.fixture(params=[ZARRS, OURS])
def pipeline(request):
    """The pipelines that read on the event loop of their caller, in turn."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[request.param]}):
        yield request.param


def on_the_loop(array, selection=...):
    """What is read of `array` on an event loop of this thread."""
    return asyncio.run(array.async_array.getitem(selection))


def small_chunks(folder, rows=10):
    """Chunks of 64 bytes, on a file system that is known to be local, and what they hold."""
    values = numbers((rows, 8)) + 1
    array = stored(LocalStore(folder), values, chunks=(1, 8))
    assert array[0, 0] == 1
    return array, values


@needs_nowait
def test_small_chunks_are_read_in_the_thread_of_the_event_loop(tmp_path):
    array, values = small_chunks(tmp_path)
    with watched(tmp_path) as files:
        assert np.array_equal(on_the_loop(array), values)
    assert set(files.threads) == {threading.get_ident()}


@needs_nowait
class TestOnTheEventLoop:
    @pytest.mark.parametrize("more", [0, 1])
    @pytest.mark.parametrize(
        ("name", "rows", "columns"),
        [
            (ZARRS, 1, LIMITS.inline_nbytes),
            (OURS, 8, LIMITS.inline_nbytes // 8),
            (
                OURS,
                LIMITS.inline_nbytes // LIMITS.inline_average_chunk_nbytes + 32,
                LIMITS.inline_average_chunk_nbytes,
            ),
        ],
        ids=["each chunk for zarr", "together", "many of few bytes each"],
    )
    def test_chunks_up_to_a_size_are_read_on_the_event_loop(
        self, tmp_path, name, rows, columns, more
    ):
        """And nothing that is larger by one byte."""
        shape = rows, columns + more
        with zarr.config.set({"codec_pipeline.path": PIPELINES[name]}):
            self.check(tmp_path, shape, (1, shape[1]), np.s_[...], rows * columns * (not more))

    @pytest.mark.parametrize("more", [0, 1])
    def test_the_bytes_that_are_read_decide_for_the_event_loop_and_not_those_selected(
        self, tmp_path, pipeline, more
    ):
        """Two bytes of each of four rows, and all those between them."""
        apart = LIMITS.single_thread_nbytes // 4 - 1 + more
        shape, selection = (4, 3 * apart), np.s_[:, : apart + 1 : apart]
        with zarr.config.set({"zarr_bytes.gap.local": apart}):
            self.check(tmp_path, shape, shape, selection, LIMITS.single_thread_nbytes * (not more))

    @staticmethod
    def check(root, shape, chunk_shape, selection, expected):
        """The bytes that this thread reads of an array."""
        values = numbers(shape, "u1")
        array = stored(LocalStore(root), values, chunks=chunk_shape)
        array[0, 0]  # now the file system is known
        with watched(root) as files:
            assert np.array_equal(on_the_loop(array, selection), values[selection])
        assert expected == sum(n for thread, _, n in files.reads if thread == threading.get_ident())

    def test_threads_that_read_the_same_selection_at_once_share_no_scratch_memory(
        self, tmp_path, pipeline
    ):
        """Another thread, between the two calls of the system that give the first its bytes."""
        values, meanwhile, is_free = numbers((2, 100)) + 1, [], threading.Lock()
        array = stored(LocalStore(tmp_path), values, chunks=(1, 100))
        array[0]  # now the file system is known, and the read is one like the last

        def another(*_):
            if is_free.acquire(blocking=False):
                meanwhile.append(array[1])
                is_free.release()

        with ending_early(0), before_each(another, ("preadv",)):
            assert np.array_equal(on_the_loop(array, 0), values[0])
        assert len(meanwhile) > 1
        assert all(np.array_equal(found, values[1]) for found in meanwhile)

    def test_a_chunk_on_the_event_loop_takes_no_task_beside_that_of_zarrs_pipeline(self, tmp_path):
        with zarr.config.set({"codec_pipeline.path": PIPELINES[ZARRS]}):
            array, _ = small_chunks(tmp_path, 20)

        async def tasks_of(rows):
            tasks = []

            def made(loop, work, **options):
                tasks.append(work)
                return asyncio.Task(work, loop=loop, **options)

            asyncio.get_running_loop().set_task_factory(made)
            await array.async_array.getitem(slice(rows))
            return len(tasks)

        assert asyncio.run(tasks_of(20)) - asyncio.run(tasks_of(10)) == 10

    def test_other_tasks_have_their_turn_between_many_chunks_on_the_event_loop(
        self, tmp_path, monkeypatch
    ):
        path = pipeline_with(Limits(chunks_between_yields=20))
        with zarr.config.set({"codec_pipeline.path": path}):
            array, expected = small_chunks(tmp_path, 600)
        monkeypatch.delattr(asyncio, "to_thread")

        async def run():
            reading, turns = asyncio.ensure_future(array.async_array.getitem(...)), 0
            while not reading.done():
                await asyncio.sleep(0)
                turns += 1
            return reading.result(), turns

        result, turns = asyncio.run(run())
        assert np.array_equal(result, expected)
        assert turns >= 600 / 20


@pytest.fixture
def clock(monkeypatch):
    """The clock of what is known of stores, which stands still until its `now` is put ahead."""
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(known_stores, "clock", lambda: clock.now)
    known_stores.forget()
    yield clock
    known_stores.forget()


def is_read_here(root, array, selection=...):
    """Whether this thread reads all selected chunks of an array of `small_chunks`."""
    with watched(root) as files:
        assert np.array_equal(on_the_loop(array, selection), numbers((10, 8))[selection] + 1)
    return set(files.threads) == {threading.get_ident()}


@needs_nowait
class TestFileSystems:
    """Files of a network are opened in a thread: the server may not answer."""

    def test_local_file_systems_are_known_by_the_kind_of_their_mount(self, tmp_path):
        root, mounts = tmp_path / "a", tmp_path / "mounts"
        array, _ = small_chunks(root)
        local = "bcachefs btrfs exfat ext2 ext3 ext4 f2fs jfs nilfs2 ntfs3 overlay ramfs squashfs"
        local = [*local.split(), "tmpfs", "vfat", "xfs"]
        others = "9p ceph cifs fuse.sshfs lustre nfs nfs4 proc smb3 virtiofs".split()
        for kind in [*local, *others]:
            with mounted_as(kind, root / "zarr.json", mounts):
                line, other = mounts.read_text(), "nfs4" if kind in local else "ext4"
                lines = f"{line.split()[0]}0 1 0:9 / / rw - {other} x rw\n{line}"
                mounts.write_text(lines.replace(f" - {kind}", f" master:1 - {kind}"))
                is_read_here(root, array)  # which finds out where it is
                assert is_read_here(root, array) == (kind in local)

    @pytest.mark.parametrize("major", [8, 0], ids=["of a disk", "of no disk"])
    def test_a_file_system_is_known_by_the_device_number_of_a_disk_alone(
        self, tmp_path, monkeypatch, major
    ):
        """A disk keeps its number; that of a network's file system is given to others."""
        arrays = {root: small_chunks(root)[0] for root in (tmp_path / "a", tmp_path / "b")}
        mounts, found = tmp_path / "mounts", []
        monkeypatch.setattr(os, "major", lambda device: major)
        with mounted_as("ext4", tmp_path / "a/zarr.json", mounts):
            for root, array in arrays.items():
                is_read_here(root, array)
                found.append(is_read_here(root, array))
                mounts.write_text(mounts.read_text().replace("ext4", "nfs4"))
        assert found == [True, major == 8]

    def test_the_file_systems_of_a_thousand_stores_are_kept_and_then_forgotten(self, tmp_path):
        array, _ = small_chunks(tmp_path / "a")
        with (
            mounted_as("ext4", tmp_path / "a/zarr.json", tmp_path / "mounts"),
            (tmp_path / "a/zarr.json").open() as file,
        ):
            assert not is_read_here(tmp_path / "a", array)
            for number in range(1001):
                assert number % 100 or is_read_here(tmp_path / "a", array)
                known_stores.record_file_system_unless_known(file.fileno(), str(number))
            assert not is_read_here(tmp_path / "a", array)

    @pytest.mark.parametrize("major", [8, 0], ids=["of a disk", "of no disk"])
    def test_the_kind_of_a_file_system_is_kept_for_a_minute(
        self, tmp_path, monkeypatch, clock, pipeline, major
    ):
        """The first read looks, in a thread; those of the next minute go by what it has found."""
        root, mounts, found = tmp_path / "a", tmp_path / "mounts", []
        array, _ = small_chunks(root)
        monkeypatch.setattr(os, "major", lambda device: major)
        with mounted_as("ext4", root / "zarr.json", mounts):
            assert not is_read_here(root, array)
            for kinds, steps in (
                (("ext4", "nfs4"), (10, 20, 29.5, 1, 1)),
                (("nfs4", "ext4"), (60, 1)),
            ):
                mounts.write_text(mounts.read_text().replace(*kinds))
                for seconds in steps:
                    clock.now += seconds
                    found.append(is_read_here(root, array))
        assert found == [True, True, True, False, False, False, True]

    def test_the_kind_of_a_file_system_is_not_looked_up_before_every_write(self, tmp_path, clock):
        root, looks = tmp_path / "a", []
        array, values = small_chunks(root)

        def note(call, *arguments):
            looks.extend([clock.now] * (call == "open" and arguments[0] == str(root)))

        with mounted_as("nfs4", root / "zarr.json", tmp_path / "mounts"), before_each(note):
            begin = clock.now
            for seconds in (1, 1, 30, 60):
                clock.now += seconds
                array[...] = values
        assert looks == [begin + 1, begin + 92]


@needs_nowait
class TestWaiting:
    """Small chunks that need not be waited for are read on the event loop."""

    @pytest.mark.parametrize("fault", ["truncated", "folder", "FIFO", "socket"])
    def test_an_error_of_one_chunk_keeps_no_others_off_the_event_loop(
        self, tmp_path, pipeline, fault
    ):
        array, _ = small_chunks(tmp_path)
        path = tmp_path / "c/3/0"
        content = path.read_bytes()
        path.unlink()
        if fault == "truncated":
            path.write_bytes(content[:20])
        else:
            put(fault, path)
        for selection in 3, (3, slice(2, 5)):
            with pytest.raises((ChunkSizeError, ChunkFileError)):
                on_the_loop(array, selection)
            assert is_read_here(tmp_path, array, np.s_[4:])

    @pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EOPNOTSUPP], ids=["wait", "unable"])
    @pytest.mark.parametrize("selection", [3, (3, slice(2, 5))], ids=["whole", "range"])
    def test_a_chunk_outside_the_page_cache_keeps_reads_off_the_event_loop_for_a_second(
        self, tmp_path, clock, pipeline, refusal, selection
    ):
        array, values = small_chunks(tmp_path)
        with watched(tmp_path, waits_after=0, refusal=refusal) as files:
            assert np.array_equal(on_the_loop(array, selection), values[selection])
            assert (files.refused, files.opened) == (1, {"c/3/0": 2})  # a thread reads it again
        for seconds, is_here in (0, False), (0.9, False), (0.2, True):
            clock.now += seconds
            assert is_read_here(tmp_path, array, np.s_[4:]) == is_here

    def test_chunks_after_one_outside_the_page_cache_are_read_in_a_thread(self, tmp_path, clock):
        array, values = small_chunks(tmp_path, 60)

        def wait_from_the_41st_on(key):
            if len(files.threads) == 41:
                files.waits_after = 0

        with watched(tmp_path, before=wait_from_the_41st_on) as files:
            assert np.array_equal(on_the_loop(array), values)
        assert files.refused == 1
        is_here = [thread == threading.get_ident() for thread in files.threads]
        assert is_here == [True] * 41 + [False] * 20  # the 41st is opened again


def meeting(count, *, timeout=30):
    """A function for `watched`: the first `count` chunks that are opened wait for each other."""
    together, opened = threading.Barrier(count, timeout=timeout), []

    def meet(key):
        opened.append(key)
        if len(opened) <= count:
            together.wait()

    return meet


@needs_nowait
class TestSeveralThreads:
    """As many at the same time as zarr's settings say."""

    THREADS = {"codec_pipeline.max_workers": 3, "async.concurrency": 2}
    REQUESTS = {"codec_pipeline.max_workers": 2, "async.concurrency": 3}

    def test_threads_are_as_many_as_cores_where_zarr_has_no_number(self):
        for number, expected in (3, 3), (1, 1), (None, os.cpu_count()), (0, os.cpu_count()):
            with zarr.config.set({"codec_pipeline.max_workers": number}):
                assert max_codec_pipeline_workers() == expected

    @pytest.mark.parametrize(
        ("kind", "settings", "columns", "count"),
        [
            ("ext4", THREADS, 2**20, 3),
            ("ext4", THREADS, 2**17, 1),
            ("nfs4", REQUESTS, 8, 3),
            ("nfs4", {"async.concurrency": 2.5}, 8, 3),  # rounded up
        ],
        ids=["many bytes", "few bytes", "of a network", "of a network, no integer"],
    )
    def test_chunks_are_read_in_several_threads(self, tmp_path, kind, settings, columns, count):
        root, values = tmp_path / "array", np.ones((12, columns), "u1")
        array = stored(LocalStore(root), values, chunks=(1, columns))
        with mounted_as(kind, root / "zarr.json", tmp_path / "mounts"), zarr.config.set(settings):
            array[0, 0]
            with watched(root, before=meeting(count)) as files:
                assert array[...].all()
        assert len(set(files.threads)) == count

    def test_threads_are_as_many_as_requests_after_a_read_that_would_have_waited_for_the_disk(
        self, tmp_path, clock
    ):
        """These threads mostly wait, too: with plain zarr, as many files are read at a time."""
        root, values, meet = tmp_path / "array", np.ones((12, 8), "u1"), meeting(3, timeout=5)
        array = stored(LocalStore(root), values, chunks=(1, 8))

        def meet_after_the_first(key):
            if len(files.keys) > 1:
                meet(key)

        with (
            mounted_as("ext4", root / "zarr.json", tmp_path / "mounts"),
            zarr.config.set(self.REQUESTS),
        ):
            array[0, 0]
            with watched(root, waits_after=0, before=meet_after_the_first) as files:
                assert array[...].all()
        assert files.refused == 1
        assert len(set(files.threads[1:])) == 3

    @pytest.mark.parametrize("selection", [np.s_[...], np.s_[:, 3:5]], ids=["whole", "parts"])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    @pytest.mark.parametrize(("kind", "settings"), [("ext4", THREADS), ("nfs4", REQUESTS)])
    def test_chunks_are_written_in_several_threads(self, tmp_path, kind, settings, way, selection):
        expected, root = np.ones((12, 8), "u1"), tmp_path / "array"
        stored(LocalStore(root), expected, chunks=(1, 8))
        expected[selection] = 7
        is_quick = way and selection != np.s_[...] and kind == "ext4"  # one thread is enough
        count = 1 if is_quick else 3
        with (
            mounted_as(kind, root / "zarr.json", tmp_path / "mounts"),
            zarr.config.set(way | settings),
            watched(root, before=meeting(count)) as files,
        ):
            zarr.open_array(root, mode="r+")[selection] = expected[selection]
        assert len(set(files.threads)) == count
        assert np.array_equal(zarr.open_array(root, mode="r")[...], expected)

    @pytest.mark.parametrize("error", [asyncio.CancelledError, ChunkFileError])
    def test_a_write_that_is_cancelled_or_fails_ends_when_the_chunks_that_have_begun_have_ended(
        self, tmp_path, error
    ):
        """And begins no others."""
        array = created(LocalStore(tmp_path), (12, 8), "u1", (1, 8))
        has_begun, may_go_on, fails = threading.Event(), threading.Event(), error is ChunkFileError
        if fails:
            (tmp_path / "c/0/0").mkdir(parents=True)

        def wait(key):
            if fails and key.startswith("c/0"):
                assert has_begun.wait(30)
                return
            has_begun.set()
            assert may_go_on.wait(30)

        async def ended():
            write = asyncio.ensure_future(array.async_array.setitem(..., 7))
            await asyncio.to_thread(has_begun.wait, 30)
            if not fails:
                write.cancel()
            done, _ = await asyncio.wait([write], timeout=0.2)  # within which the other has failed
            may_go_on.set()
            assert not done
            with pytest.raises(error):
                await write

        with zarr.config.set({"codec_pipeline.max_workers": 2}), watched(tmp_path, before=wait):
            asyncio.run(ended())
        if fails:
            (tmp_path / "c/0/0").rmdir()
        assert 1 <= np.count_nonzero(array[:, 0] == 7) <= 2


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process with threads is forked")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_a_lock_that_a_thread_held_meanwhile():
    array = stored(MemoryStore(), numbers((4, 8)), chunks=(1, 8))

    def read():
        with counting() as counted:
            assert np.array_equal(on_the_loop(array), numbers((4, 8)))
        assert counted.chunks == 4

    child = multiprocessing.get_context("fork").Process(target=read)
    with counters.lock:
        child.start()
    child.join(10)
    child.kill()  # if it still runs
    child.join()
    assert child.exitcode == 0


class TestSharedState:
    """Another thread changes what threads share between any two lines of this one."""

    def test_a_chunk_has_its_layout_though_more_shapes_have_been_read_meanwhile_than_are_kept(self):
        array = stored(MemoryStore(), numbers((4, 8)))
        chunks, rows = pipeline_of(array).encoding, itertools.count(200)

        def shape_of_a_new_one():
            n = next(rows)
            return n, chunks.layout_of(spec_of(array, (n, 8))).shape

        def read_others():
            for n in range(10, 140):
                chunks.layout_of(spec_of(array, (n, 8)))

        found = list(results_with(read_others, shape_of_a_new_one, objects))
        assert len(found) > 10
        assert all(shape == (n, 8) for n, shape in found)

    def test_threads_read_shards_while_the_cache_of_indexes_is_full(self):
        """Each thread has a loop of its own, and reads all shards in an order of its own."""
        values, options = numbers((8, 64)) + 1, {"serializer": ShardingCodec(chunk_shape=(1, 16))}
        written = stored(CountingStore(MemoryStore()), values, chunks=(1, 64), **options)
        array, found = zarr.open_array(written.store, mode="r"), []

        def read_all(seed):
            rows = np.random.default_rng(seed).permutation(np.arange(8).repeat(5)).tolist()
            found.extend([(i, on_the_loop(array, (i, slice(3, 50)))) for i in rows])

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with zarr.config.set({"zarr_bytes.index_cache": 3}):
                threads = [threading.Thread(target=read_all, args=(seed,)) for seed in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert len(found) == 8 * 8 * 5
        assert all(np.array_equal(result, values[i, 3:50]) for i, result in found)

    @pytest.mark.parametrize(
        ("kind", "selection"),
        [
            pytest.param("chunk", np.s_[9], marks=pytest.mark.slow),
            ("shard", np.s_[9, 3:50]),
            pytest.param("shard of a store", np.s_[9, 3:50], marks=pytest.mark.slow),
        ],
    )
    def test_a_read_is_right_whatever_others_read_of_the_array_meanwhile(
        self, tmp_path, kind, selection
    ):
        """What is kept of the last read, for the next: plans, ranges, memory, and indexes."""
        values, options = numbers((64, 64)) + 1, {}
        if kind != "chunk":
            options["serializer"] = ShardingCodec(chunk_shape=(16, 32))
        is_file = kind != "shard of a store"
        store = LocalStore(tmp_path) if is_file else CountingStore(MemoryStore())
        store = stored(store, values, chunks=(32, 64), **options).store
        array, gaps = zarr.open_array(store, mode="r"), itertools.count()

        def read_others():
            """A row in the place that the row 9 has in its chunk, before and after a box."""
            small = next(gaps) % 20  # more costs of a request than plans are kept for
            assert np.array_equal(array[41], values[41])
            with zarr.config.set({"zarr_bytes.gap": {"local": small, "remote": small}}):
                assert np.array_equal(array[5:60:9, 1:50:17], values[5:60:9, 1:50:17])
            assert np.array_equal(array[41], values[41])

        with zarr.config.set({"zarr_bytes.index_cache": 1}):
            work = partial(on_the_loop, array, selection)
            found = list(results_with(read_others, work, read, objects, plan, index_cache))
        assert len(found) > 30
        assert all(np.array_equal(result, values[selection]) for result in found)


class TestTheLastChunkIsReadFirst:
    """Results stand where they belong, in whatever order they come."""

    def test_a_missing_file_is_told_though_later_chunks_are_read_first(self, tmp_path):
        root, last_is_read = tmp_path / "array", threading.Event()
        array = stored(LocalStore(root), numbers((4, 8)), chunks=(1, 8))
        (root / "c/0/0").unlink()

        def wait(key):
            assert key != "c/0/0" or last_is_read.wait(30)

        with (
            mounted_as("nfs4", root / "zarr.json", tmp_path / "mounts"),
            watched(root, before=wait, then=lambda key: key != "c/3/0" or last_is_read.set()),
        ):
            self.check_that_the_first_is_missing(array)

    def test_a_missing_object_is_told_though_later_chunks_are_read_first(self):
        last = asyncio.Event()

        async def fault(number, buffer):
            if number > 1:
                last.set()
                return buffer
            await asyncio.wait_for(last.wait(), 30)
            return None

        self.check_that_the_first_is_missing(faulty(fault, numbers((4, 8)), chunks=(1, 8)))

    @staticmethod
    def check_that_the_first_is_missing(array):
        """The pipeline says of each chunk, a row, whether it is there, and fills in the others."""
        spec = spec_of(array)
        batch = [
            (array.store_path / f"c/{row}/0", spec, np.s_[:1, :8], np.s_[row : row + 1, :8], True)
            for row in range(4)
        ]
        out = cpu.NDBuffer.from_numpy_array(np.full((4, 8), -1.0))
        with zarr.config.set({"async.concurrency": 2}):
            found = asyncio.run(pipeline_of(array).read(batch, out))
        assert [f["status"] for f in found] == ["missing", "present", "present", "present"]
        assert np.array_equal(out.as_numpy_array(), numbers((4, 8)) * [[0], [1], [1], [1]])
