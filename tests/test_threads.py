"""Where chunks are read and written: on the event loop, in one thread, or in several at a time."""

import asyncio
import errno
import os
import sys
import threading
import time

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from stored_arrays import (
    IN_PLACE,
    KINDS_OF_NO_FILE,
    faulty,
    numbers,
    pipeline_of,
    put,
    spec_of,
    stored,
)
from system_calls import before_each, mounted_as, needs_nowait, watched
from zarr.buffer import cpu
from zarr.storage import LocalStore

from zarr_bytes import ChunkFileError, ChunkSizeError, limits
from zarr_bytes.limits import LIMITS, Limits


@pytest.fixture(params=["BatchedCodecPipeline", "BatchedBytesPipeline"])
def pipeline(request):
    """The pipelines that read on the event loop of their caller, in turn."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[request.param]}):
        yield request.param


@pytest.fixture
def bytes_pipeline():
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedBytesPipeline"]}):
        yield


def on_the_loop(array, selection=...):
    """What is read of `array` on an event loop of this thread."""
    return asyncio.run(array.async_array.getitem(selection))


def read_here(root, array, selection=...):
    """The result, the chunks that this thread opens, and the bytes of each of its reads."""
    here = threading.get_ident()
    with watched(root) as files:
        result = on_the_loop(array, selection)
    nbytes = [count for thread, _, count in files.reads if thread == here]
    return result, files.threads.count(here), nbytes


@needs_nowait
class TestOnTheEventLoop:
    """Up to a size that the guide names, and nothing that is larger by one byte."""

    def read(self, root, shape, chunk_shape, selection=..., gap=0):
        """How many chunks of an array of bytes this thread opens, and what it reads of them."""
        values = numbers(shape, "u1")
        array = stored(LocalStore(root), values, chunks=chunk_shape)
        array[0, 0]  # now the file system is known
        with zarr.config.set({"zarr_bytes.gap.local": gap}):
            result, opened, nbytes = read_here(root, array, selection)
        assert np.array_equal(result, values[selection])
        return opened, sum(nbytes)

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_chunk_for_zarrs_pipeline(self, tmp_path, more):
        shape = (1, LIMITS.loop + more)
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            found = self.read(tmp_path, shape, shape)
        assert found == ((0, 0) if more else (1, LIMITS.loop))

    @pytest.mark.usefixtures("bytes_pipeline")
    @pytest.mark.parametrize("more", [0, 1])
    @pytest.mark.parametrize(
        ("rows", "columns"),
        [(8, LIMITS.loop // 8), (LIMITS.loop // LIMITS.loop_each + 32, LIMITS.loop_each)],
        ids=["together", "many of few bytes each"],
    )
    def test_the_chunks_of_a_read(self, tmp_path, rows, columns, more):
        found = self.read(tmp_path, (rows, columns + more), (1, columns + more))
        assert found == ((0, 0) if more else (rows, rows * columns))

    @pytest.mark.parametrize("more", [0, 1])
    def test_what_is_read_counts_and_not_what_is_selected(self, tmp_path, pipeline, more):
        """Two bytes, and all those between them."""
        apart = LIMITS.loop - 1 + more
        shape, selection = (1, 8 * apart), np.s_[0, : apart + 1 : apart]
        found = self.read(tmp_path, shape, shape, selection, gap=apart)
        assert found == ((0, 0) if more else (1, LIMITS.loop))

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_others_have_their_turn_between_many_chunks(self, tmp_path, monkeypatch):
        array, expected = small_chunks(tmp_path, 600)
        monkeypatch.setattr(limits, "LIMITS", Limits(loop_chunks=20))
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


def small_chunks(folder, rows=10):
    """Chunks of 64 bytes, on a file system that is known to be local, and what they hold."""
    values = numbers((rows, 8)) + 1
    array = stored(LocalStore(folder), values, chunks=(1, 8))
    assert array[0, 0] == 1
    return array, values


@pytest.fixture
def hops(monkeypatch):
    """The calls that threads of the event loop get, in a list."""
    found, run = [], asyncio.BaseEventLoop.run_in_executor
    monkeypatch.setattr(
        asyncio.BaseEventLoop,
        "run_in_executor",
        lambda loop, *args: (found.append(args[1]), run(loop, *args))[1],
    )
    return found


@pytest.mark.parametrize(
    ("selection", "threads"), [(np.s_[:, 3], 1), (np.s_[:4], 2)], ids=["in place", "replaced"]
)
def test_threads_share_a_write_where_chunks_are_replaced(tmp_path, hops, selection, threads):
    with zarr.config.set({"zarr_bytes.partial_writes": True, "codec_pipeline.max_workers": 2}):
        array, values = small_chunks(tmp_path)
        hops.clear()
        array[selection] = values[selection] + 1
    assert len(hops) == threads


@pytest.fixture
def clock(monkeypatch):
    """The clock of this package, in a list, which stands still until it is put ahead."""
    now = [time.monotonic()]
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("zarr_bytes.") and hasattr(module, "monotonic")
    ]
    assert modules
    for module in modules:
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


@needs_nowait
class TestWhatIsKnownOfAFileSystem:
    @pytest.mark.parametrize("major", [8, 0], ids=["of a disk", "of no disk"])
    def test_is_looked_at_again_after_a_minute(self, tmp_path, monkeypatch, clock, pipeline, major):
        """Files of a network are opened in a thread: the server may not answer."""
        root, found = tmp_path / "a", []
        array = stored(LocalStore(root), numbers((3, 4)))
        monkeypatch.setattr(os, "major", lambda device: major)
        for kind in ("ext4", "nfs4", "ext4"):
            with mounted_as(kind, root / "zarr.json", tmp_path / "mounts"):
                found.append([])
                for seconds in (1, 1, 57, 0.5):
                    clock[0] += seconds
                    result, opened, _ = read_here(root, array)
                    assert np.array_equal(result, numbers((3, 4)))
                    found[-1].append(opened == 1)
                clock[0] += 1
        # The first read looks, in a thread; those of the next minute go by what it has found.
        assert found == [[False, True, True, True], [False] * 4, [False, True, True, True]]

    def test_is_not_trusted_longer_where_it_is_used_all_the_time(self, tmp_path, clock, pipeline):
        """A server may be mounted in the place of a disk."""
        root, mounts, found = tmp_path / "a", tmp_path / "mounts", []
        array = stored(LocalStore(root), numbers((3, 4)))
        with mounted_as("ext4", root / "zarr.json", mounts):
            assert read_here(root, array)[1] == 0  # now the file system is known
            for kinds, steps in (
                (("ext4", "nfs4"), (10, 20, 29.5, 1, 1)),
                (("nfs4", "ext4"), (60, 1)),
            ):
                mounts.write_text(mounts.read_text().replace(*kinds))
                for seconds in steps:
                    clock[0] += seconds
                    found.append(read_here(root, array)[1])
        assert found == [1, 1, 1, 0, 0, 0, 1]

    def test_is_not_looked_at_before_every_write(self, tmp_path, clock):
        root, looks = tmp_path / "a", []
        array = stored(LocalStore(root), numbers((3, 4)), chunks=(1, 4))

        def note(call, *arguments):
            looks.extend([clock[0]] * (call == "open" and arguments[0] == str(root)))

        with mounted_as("nfs4", root / "zarr.json", tmp_path / "mounts"), before_each(note):
            begin = clock[0]
            for seconds in (1, 1, 30, 60):
                clock[0] += seconds
                array[...] = numbers((3, 4))
        assert looks == [begin + 1, begin + 92]

    def test_one_whose_files_had_to_be_waited_for_is_tried_again_after_a_second(
        self, tmp_path, clock, pipeline
    ):
        root, found = tmp_path / "a", []
        array = stored(LocalStore(root), numbers((3, 4)))
        with mounted_as("ext4", root / "zarr.json", tmp_path / "mounts"):
            assert read_here(root, array)[1] == 0  # now the file system is known
            for is_busy, seconds in [(0, 0), (1, 0), (0, 0), (0, 0.5), (0, 1)]:
                clock[0] += seconds
                with watched(root, waits_after=0 if is_busy else 2**62) as files:
                    assert np.array_equal(on_the_loop(array), numbers((3, 4)))
                threads = {thread for thread, _, _ in files.reads}
                found.append((files.refused, threads == {threading.get_ident()}))
                assert files.opened == {"c/0/0": 1}  # also where a thread reads on
        assert found == [(0, True), (1, False), (0, False), (0, False), (0, True)]


@needs_nowait
class TestWaiting:
    """Small chunks that need not be waited for are read on the event loop."""

    @pytest.mark.parametrize("fault", ["truncated", "too long", *KINDS_OF_NO_FILE])
    def test_is_not_due_for_others_because_one_chunk_is_an_error(self, tmp_path, pipeline, fault):
        array, values = small_chunks(tmp_path)
        path = tmp_path / "c/3/0"
        if fault in ("truncated", "too long"):
            path.write_bytes(path.read_bytes()[:20] if fault == "truncated" else bytes(67))
        else:
            path.unlink()
            put(fault, path)
        for selection in 3, (3, slice(2, 5)):
            if (fault, selection) != ("too long", (3, slice(2, 5))):  # of which a part is no error
                with pytest.raises((ChunkSizeError, ChunkFileError)):
                    on_the_loop(array, selection)
            with watched(tmp_path) as files:
                assert np.array_equal(on_the_loop(array, np.s_[4:]), values[4:])
            assert set(files.threads) == {threading.get_ident()}

    @pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EOPNOTSUPP], ids=["wait", "unable"])
    @pytest.mark.parametrize("selection", [3, (3, slice(2, 5))], ids=["whole", "range"])
    def test_is_due_for_all_chunks_for_a_while_where_it_was_for_one(
        self, tmp_path, clock, pipeline, refusal, selection
    ):
        array, values = small_chunks(tmp_path)
        with watched(tmp_path, waits_after=0, refusal=refusal) as files:
            assert np.array_equal(on_the_loop(array, selection), values[selection])
            assert (files.refused, files.opened["c/3/0"]) == (1, 1)
            assert np.array_equal(on_the_loop(array, np.s_[4:]), values[4:])
            assert files.refused == 1

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_from_the_first_on_that_must_be_waited_for_are_read_in_a_thread(self, tmp_path, clock):
        array, values = small_chunks(tmp_path, 60)

        def wait_from_the_41st_on(key):
            if len(files.threads) == 41:
                files.waits_after = 0

        with watched(tmp_path, before=wait_from_the_41st_on) as files:
            assert np.array_equal(on_the_loop(array), values)
        assert files.refused == 1
        is_here = [thread == threading.get_ident() for thread in files.threads]
        assert is_here == [True] * 41 + [False] * 19


def meeting(count):
    """A function for `watched`: the first `count` chunks that are opened wait for each other."""
    together, opened = threading.Barrier(count, timeout=30), []

    def meet(key):
        opened.append(key)
        if len(opened) <= count:
            together.wait()

    return meet


BATCHES = {
    "codec_pipeline.path": PIPELINES["BatchedCodecPipeline"],
    "codec_pipeline.batch_size": 12,
}


class TestSeveralThreads:
    """As many at the same time as zarr's settings say."""

    THREADS = {"codec_pipeline.max_workers": 3, "async.concurrency": 2}
    REQUESTS = {"codec_pipeline.max_workers": 2, "async.concurrency": 3}

    def read_by(self, count, folder, columns, kind="ext4"):
        """Whether so many threads read twelve chunks, all at the same time."""
        root = folder / "array"
        array = stored(LocalStore(root), np.ones((12, columns), "u1"), chunks=(1, columns))
        with mounted_as(kind, root / "zarr.json", folder / "mounts"):
            array[0, 0]
            with watched(root, before=meeting(count)) as files:
                assert array[...].all()
        return len(set(files.threads)) == count

    @needs_nowait
    @pytest.mark.usefixtures("bytes_pipeline")
    @pytest.mark.parametrize(("columns", "count"), [(2**20, 3), (2**17, 1)], ids=["many", "few"])
    def test_read_many_bytes_and_one_reads_few(self, tmp_path, columns, count):
        assert LIMITS.loop < 12 * 2**17 <= LIMITS.one_thread < 12 * 2**20
        with zarr.config.set(self.THREADS):
            assert self.read_by(count, tmp_path, columns)

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_read_where_files_may_have_to_be_waited_for(self, tmp_path):
        with zarr.config.set(self.REQUESTS):
            assert self.read_by(3, tmp_path, 8, "nfs4")

    @needs_nowait
    @pytest.mark.usefixtures("bytes_pipeline")
    @pytest.mark.parametrize("selection", [np.s_[...], np.s_[:, 3:5]], ids=["whole", "parts"])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    @pytest.mark.parametrize(("kind", "settings"), [("ext4", THREADS), ("nfs4", REQUESTS)])
    def test_write(self, tmp_path, kind, settings, way, selection):
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


class TestTheLastChunkIsReadFirst:
    """Results stand where they belong, in whatever order they come."""

    @pytest.fixture
    def array(self, tmp_path):
        root = tmp_path / "array"
        array = stored(LocalStore(root), numbers((4, 8)), chunks=(1, 8))
        last_is_read = threading.Event()

        def wait(key):
            if key == "c/0/0":
                assert last_is_read.wait(30)

        def note(key):
            if key == "c/3/0":
                last_is_read.set()

        with (
            mounted_as("nfs4", root / "zarr.json", tmp_path / "mounts"),
            zarr.config.set({"async.concurrency": 2}),
            watched(root, before=wait, then=note),
        ):
            yield array

    def check_that_the_first_is_missing(self, array):
        """The pipeline says of each chunk, a row, whether it is there, and fills in the others."""
        spec = spec_of(array)
        batch = [
            (array.store_path / f"c/{row}/0", spec, np.s_[:1, :8], np.s_[row : row + 1, :8], True)
            for row in range(4)
        ]
        out = cpu.NDBuffer.from_numpy_array(np.full((4, 8), -1.0))
        found = asyncio.run(pipeline_of(array).read(batch, out))
        assert [f["status"] for f in found] == ["missing", "present", "present", "present"]
        assert np.array_equal(out.as_numpy_array(), numbers((4, 8)) * [[0], [1], [1], [1]])

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_of_files(self, array, tmp_path):
        (tmp_path / "array/c/0/0").unlink()
        self.check_that_the_first_is_missing(zarr.open_array(array.store, mode="r"))

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_of_requests(self):
        async def fault(number, buffer):
            if number > 1:
                last.set()
                return buffer
            await asyncio.wait_for(last.wait(), 30)
            return None

        last = asyncio.Event()
        array = faulty(fault, numbers((4, 8)), chunks=(1, 8))
        with zarr.config.set({"async.concurrency": 2}):
            self.check_that_the_first_is_missing(array)

    def test_of_the_ranges_of_a_chunk(self, pipeline):
        async def fault(number, buffer):
            if number == 2:  # the first goes alone, while it is not known that the store has ranges
                await asyncio.wait_for(last.wait(), 30)
            elif number == 5:
                last.set()
            return buffer

        last = asyncio.Event()
        array = faulty(fault, numbers((5, 5000)))
        with zarr.config.set({"async.concurrency": 2, "zarr_bytes.gap.remote": 100}):
            assert np.array_equal(array[:, 7], numbers((5, 5000))[:, 7])
