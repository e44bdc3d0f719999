"""Where chunks are read and written: on the event loop, in one thread, or in several at a time."""

import asyncio
import os
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from in_place import IN_PLACE
from test_partial_read import FaultyStore, numbers, stored
from zarr.buffer import cpu
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes.chunk import file_systems
from zarr_bytes.chunk.limits import LIMITS

needs_nowait = pytest.mark.skipif(
    not hasattr(os, "RWF_NOWAIT"), reason="this system cannot tell what is in the page cache"
)


@pytest.fixture(params=["BatchedCodecPipeline", "BytesPipeline"])
def pipeline(request):
    """The pipelines that read on the event loop of their caller, in turn."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[request.param]}):
        yield request.param


@pytest.fixture
def bytes_pipeline():
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BytesPipeline"]}):
        yield


class Calls:
    """By thread: chunks that are opened below a folder, and the bytes of each read."""

    def __init__(self, monkeypatch, root):
        self.opened, self.read = [], []
        self._root = f"{root}/c/"
        self._open = os.open
        monkeypatch.setattr(os, "open", self._counting_open)
        for name in ("read", "pread", "preadv", "readv"):
            if hasattr(os, name):
                monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting_open(self, path, *args, **named):
        if str(path).startswith(self._root):
            self.opened.append(threading.get_ident())
        return self._open(path, *args, **named)

    def _counting(self, read):
        def counting(*args):
            found = read(*args)
            count = found if isinstance(found, int) else len(found)
            self.read.append((threading.get_ident(), count))
            return found

        return counting

    def of(self, array, selection=...):
        """The chunks opened and the bytes read by the thread whose event loop reads `array`."""
        self.opened.clear()
        self.read.clear()
        result = asyncio.run(array.async_array.getitem(selection))
        here = threading.get_ident()
        nbytes = [count for thread, count in self.read if thread == here]
        return result, self.opened.count(here), nbytes


@needs_nowait
class TestOnTheEventLoop:
    """Up to a size that the guide names, and nothing that is larger by one byte."""

    def calls(self, monkeypatch, root, shape, chunks):
        array = stored(LocalStore(root), numbers(shape, "u1"), chunks=chunks)
        array[0, 0]  # now the file system is known
        return array, Calls(monkeypatch, root)

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_chunk_for_zarrs_pipeline(self, tmp_path, monkeypatch, more):
        columns = LIMITS.loop_chunk + more
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            array, calls = self.calls(monkeypatch, tmp_path, (1, columns), (1, columns))
            result, opened, nbytes = calls.of(array)
        assert np.array_equal(result, numbers((1, columns), "u1"))
        assert (opened, sum(nbytes)) == ((0, 0) if more else (1, columns))

    @pytest.mark.usefixtures("bytes_pipeline")
    @pytest.mark.parametrize("more", [0, 1])
    def test_the_chunks_of_a_read_together(self, tmp_path, monkeypatch, more):
        columns = LIMITS.loop // 8 + more
        array, calls = self.calls(monkeypatch, tmp_path, (8, columns), (1, columns))
        result, opened, nbytes = calls.of(array)
        assert np.array_equal(result, numbers((8, columns), "u1"))
        assert (opened, sum(nbytes)) == ((0, 0) if more else (8, 8 * columns))

    @pytest.mark.usefixtures("bytes_pipeline")
    @pytest.mark.parametrize("more", [0, 1])
    def test_many_chunks_of_few_bytes_each(self, tmp_path, monkeypatch, more):
        rows, columns = LIMITS.loop // LIMITS.loop_each + 32, LIMITS.loop_each + more
        array, calls = self.calls(monkeypatch, tmp_path, (rows, columns), (1, columns))
        result, opened, nbytes = calls.of(array)
        assert np.array_equal(result, numbers((rows, columns), "u1"))
        assert (opened, sum(nbytes)) == ((0, 0) if more else (rows, rows * columns))

    @pytest.mark.parametrize("more", [0, 1])
    def test_what_is_read_counts_and_not_what_is_selected(
        self, tmp_path, monkeypatch, pipeline, more
    ):
        """Two bytes, and all those between them."""
        apart = LIMITS.loop_chunk - 1 + more
        array, calls = self.calls(monkeypatch, tmp_path, (1, 8 * apart), (1, 8 * apart))
        with zarr.config.set({"zarr_bytes.gap.local": apart}):
            result, opened, nbytes = calls.of(array, np.s_[0, : apart + 1 : apart])
        assert result.tolist() == [0, apart % 256]
        assert (opened, sum(nbytes)) == ((0, 0) if more else (1, apart + 1))

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_number_of_ranges(self, tmp_path, monkeypatch, pipeline, more):
        rows = LIMITS.loop_ranges + more
        array, calls = self.calls(monkeypatch, tmp_path, (rows, 100), (rows, 100))
        with zarr.config.set({"zarr_bytes.gap.local": 0}):
            result, opened, nbytes = calls.of(array, np.s_[:, 3])
        assert np.array_equal(result, numbers((rows, 100), "u1")[:, 3])
        assert (opened, nbytes) == ((0, []) if more else (1, [1] * rows))


class Clock:
    """The clock of this package, which stands still until it is put ahead."""

    def __init__(self, monkeypatch):
        self.now = time.monotonic()
        modules = [
            module
            for name, module in sys.modules.items()
            if name.startswith("zarr_bytes.") and hasattr(module, "monotonic")
        ]
        assert modules
        for module in modules:
            monkeypatch.setattr(module, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """A function that says of what kind the file system of `tmp_path` is from now on."""
    mounts, probe = tmp_path / "mounts", tmp_path / "probe"
    with probe.open("w") as file:
        about = Path(f"/proc/self/fdinfo/{file.fileno()}").read_text()
    mount = re.search(r"mnt_id:\s*(\d+)", about)[1]
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    monkeypatch.setattr(file_systems, "_known", {})
    return lambda kind: mounts.write_text(f"{mount} 1 8:1 / / rw - {kind} /dev/x rw\n")


@needs_nowait
class TestWhatIsKnownOfAFileSystem:
    @pytest.fixture
    def array(self, tmp_path, pipeline):
        return stored(LocalStore(tmp_path / "a"), numbers((3, 4)))

    def is_on_the_loop(self, calls, array):
        result, opened, _ = calls.of(array)
        assert np.array_equal(result, numbers((3, 4)))
        assert len(calls.opened) - opened in (0, 1)
        return bool(opened)

    @pytest.mark.parametrize("major", [8, 0], ids=["of a disk", "of no disk"])
    def test_is_looked_at_again_after_a_minute(
        self, tmp_path, monkeypatch, array, clock, mounted, major
    ):
        """Files of a network are opened in a thread: the server may not answer."""
        monkeypatch.setattr(os, "major", lambda device: major)
        calls, found = Calls(monkeypatch, tmp_path / "a"), []
        for kind in ("ext4", "nfs4", "ext4"):
            mounted(kind)
            found.append([])
            for seconds in (1, 1, 57, 0.5):
                clock.now += seconds
                found[-1].append(self.is_on_the_loop(calls, array))
            clock.now += 1
        # The first read looks, in a thread; those of the next minute go by what it has found.
        assert found == [[False, True, True, True], [False] * 4, [False, True, True, True]]

    def test_one_whose_files_had_to_be_waited_for_is_tried_again_after_a_second(
        self, tmp_path, monkeypatch, array, clock, mounted
    ):
        mounted("ext4")
        preadv, is_busy, tries = os.preadv, False, []

        def read_now(file, buffers, offset, flags=0):
            if flags == os.RWF_NOWAIT:
                tries.append(offset)
                if is_busy:
                    raise BlockingIOError
            return preadv(file, buffers, offset, flags)

        monkeypatch.setattr(os, "preadv", read_now)
        calls, found = Calls(monkeypatch, tmp_path / "a"), []
        assert not self.is_on_the_loop(calls, array)  # now the file system is known
        for is_busy, seconds in [(False, 0), (True, 0), (False, 0), (False, 0.5), (False, 1)]:  # noqa: B007
            clock.now += seconds
            tries.clear()
            result, _, _ = calls.of(array)
            assert np.array_equal(result, numbers((3, 4)))
            is_in_a_thread = {thread for thread, _ in calls.read} != {threading.get_ident()}
            found.append((len(tries), is_in_a_thread))
        assert found == [(1, False), (1, True), (0, True), (0, True), (1, False)]


def meeting(monkeypatch, root, count):
    """The threads that open chunks; the first `count` of them wait for each other."""
    threads, together, open_ = [], threading.Barrier(count, timeout=30), os.open

    def waiting(path, *args, **named):
        if str(path).startswith(f"{root}/c/"):
            threads.append(threading.get_ident())
            if len(threads) <= count:
                together.wait()
        return open_(path, *args, **named)

    monkeypatch.setattr(os, "open", waiting)
    return threads


BATCHES = {
    "codec_pipeline.path": PIPELINES["BatchedCodecPipeline"],
    "codec_pipeline.batch_size": 12,
}


class TestSeveralThreads:
    """As many at the same time as zarr's settings say."""

    THREADS = {"codec_pipeline.max_workers": 3, "async.concurrency": 2}
    REQUESTS = {"codec_pipeline.max_workers": 2, "async.concurrency": 3}
    MEBIBYTE = (1, 2**20)

    def array(self, root, chunks, *, is_known):
        """Twelve chunks."""
        shape = (12, chunks[1])
        array = stored(LocalStore(root), np.ones(shape, "u1"), chunks=chunks)
        if is_known:
            array[0, 0]
        return array

    @needs_nowait
    @pytest.mark.usefixtures("bytes_pipeline")
    def test_read_many_bytes(self, tmp_path, monkeypatch):
        array = self.array(tmp_path, self.MEBIBYTE, is_known=True)
        assert array.nbytes > LIMITS.one_thread
        threads = meeting(monkeypatch, tmp_path, 3)
        with zarr.config.set(self.THREADS):
            assert array[...].all()
        assert len(set(threads)) == 3

    @needs_nowait
    @pytest.mark.usefixtures("bytes_pipeline")
    def test_of_which_one_reads_fewer(self, tmp_path, monkeypatch):
        array = self.array(tmp_path, (1, 2**17), is_known=True)
        assert LIMITS.loop < array.nbytes <= LIMITS.one_thread
        threads = meeting(monkeypatch, tmp_path, 1)
        with zarr.config.set(self.THREADS):
            assert array[...].all()
        assert len(set(threads)) == 1

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_read_where_files_may_have_to_be_waited_for(self, tmp_path, monkeypatch):
        array = self.array(tmp_path, (1, 8), is_known=False)
        threads = meeting(monkeypatch, tmp_path, 3)
        with zarr.config.set(self.REQUESTS):
            assert array[...].all()
        assert len(set(threads)) == 3

    @pytest.mark.parametrize(
        ("chunks", "is_known"), [(MEBIBYTE, True), ((1, 8), False)], ids=["many bytes", "may wait"]
    )
    def test_read_the_batches_of_zarrs_pipeline(self, tmp_path, monkeypatch, chunks, is_known):
        with zarr.config.set(BATCHES | self.REQUESTS):
            array = self.array(tmp_path, chunks, is_known=is_known)
            threads = meeting(monkeypatch, tmp_path, 3)
            assert array[...].all()
        assert len(set(threads)) == 3

    @pytest.mark.skipif(os.name == "nt", reason="zarr writes the chunks there")
    @pytest.mark.usefixtures("bytes_pipeline")
    @pytest.mark.parametrize("selection", [np.s_[...], np.s_[:, 3:5]], ids=["whole", "parts"])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    def test_write(self, tmp_path, monkeypatch, way, selection):
        self.array(tmp_path, (1, 8), is_known=False)
        expected = np.ones((12, 8), "u1")
        expected[selection] = 7
        with zarr.config.set(way | self.THREADS):
            array = zarr.open_array(tmp_path, mode="r+")
            threads = meeting(monkeypatch, tmp_path, 3)
            array[selection] = 7
        assert len(set(threads)) == 3
        monkeypatch.undo()
        assert np.array_equal(array[...], expected)


class TestTheLastChunkIsReadFirst:
    """Results stand where they belong, in whatever order they come."""

    def first_waits(self, monkeypatch, root, last):
        """The first chunk is opened once the last one is."""
        is_open, open_ = threading.Event(), os.open

        def waiting(path, *args, **named):
            if str(path) == f"{root}/c/0/0":
                assert is_open.wait(30)
            file = open_(path, *args, **named)
            if str(path) == f"{root}/c/{last}/0":
                is_open.set()
            return file

        monkeypatch.setattr(os, "open", waiting)

    def is_there(self, array, rows):
        """What the pipeline says of each of `rows`, each a chunk: whether it is there."""
        spec = ArraySpec(
            shape=array.chunks,
            dtype=array.metadata.data_type,
            fill_value=0,
            config=ArrayConfig.from_dict({}),
            prototype=cpu.buffer_prototype,
        )
        batch = [
            (array.store_path / f"c/{row}/0", spec, (slice(1), slice(8)), (row, slice(8)), True)
            for row in range(rows)
        ]
        out = cpu.NDBuffer.from_numpy_array(np.full((rows, 8), -1.0))
        found = asyncio.run(array.async_array.codec_pipeline.read(batch, out))
        return [result["status"] for result in found], out.as_numpy_array()

    def test_of_a_batch_of_zarrs_pipeline(self, tmp_path, monkeypatch):
        with zarr.config.set(BATCHES | {"async.concurrency": 2}):
            array = stored(LocalStore(tmp_path), numbers((4, 8)), chunks=(1, 8))
            self.first_waits(monkeypatch, tmp_path, 3)
            assert np.array_equal(array[...], numbers((4, 8)))

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_of_files(self, tmp_path, monkeypatch):
        array = stored(LocalStore(tmp_path), numbers((4, 8)), chunks=(1, 8))
        (tmp_path / "c/0/0").unlink()
        self.first_waits(monkeypatch, tmp_path, 3)
        with zarr.config.set({"async.concurrency": 2}):
            found, result = self.is_there(array, 4)
        assert found == ["missing", "present", "present", "present"]
        assert np.array_equal(result, numbers((4, 8)) * [[0], [1], [1], [1]])

    @pytest.mark.usefixtures("bytes_pipeline")
    def test_of_requests(self):
        async def fault(number, buffer):
            if number > 1:
                last.set()
                return buffer
            await asyncio.wait_for(last.wait(), 30)
            return None

        last = asyncio.Event()
        array = stored(FaultyStore(MemoryStore(), fault), numbers((4, 8)), chunks=(1, 8))
        array.store_path.store.requests.clear()
        array.store_path.store.fault = fault
        with zarr.config.set({"async.concurrency": 2}):
            found, result = self.is_there(array, 4)
        assert found == ["missing", "present", "present", "present"]
        assert np.array_equal(result, numbers((4, 8)) * [[0], [1], [1], [1]])

    def test_of_the_ranges_of_a_chunk(self, pipeline):
        async def fault(number, buffer):
            if number == 2:  # the first goes alone, while it is not known that the store has ranges
                await asyncio.wait_for(last.wait(), 30)
            elif number == 5:
                last.set()
            return buffer

        last = asyncio.Event()
        array = stored(FaultyStore(MemoryStore(), fault), numbers((5, 5000)))
        array.store_path.store.requests.clear()
        array.store_path.store.fault = fault
        with zarr.config.set({"async.concurrency": 2, "zarr_bytes.gap.remote": 100}):
            assert np.array_equal(array[:, 7], numbers((5, 5000))[:, 7])
