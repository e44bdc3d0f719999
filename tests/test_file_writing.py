"""Writing into a file: what is there already, who else uses it, limits of the system, cancelling.

The file is a chunk or a shard. `test_faults.py` lets every call fail, `test_meanwhile.py` has what
others do between any two calls, and `test_locks.py` other writers.
"""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from shards import index_of
from stored_arrays import IN_PLACE, KINDS_OF_NO_FILE, created, numbers, put, stored
from system_calls import (
    Stop,
    before_each,
    fail_at,
    leased,
    mounted_as,
    no_file_larger_than,
    watched,
    written_to,
)
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore

from zarr_bytes import BytesCodec, ChunkFileError, ChunkSizeError
from zarr_bytes.io import known_stores, range_writing

pytest.importorskip("resource", reason="files are written in place on POSIX systems")

SHAPE = (3000, 40)  # of 4 bytes: 480,000, so that a column is three batches of a mapping
ROW, ROWS, COLUMN = np.s_[7], np.s_[5:2900], np.s_[:, 3]
BIG = BytesCodec(endian="big")
# Inner chunks are whole rows, so that the elements lie in the shard as in a chunk.
LAYOUTS = {"chunk": {}, "shard": {"serializer": ShardingCodec(chunk_shape=(500, 40), codecs=[BIG])}}
INDEX = index_of([(80_000 * i, 80_000) for i in range(6)])

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a file of another owner: needs root")


class Chunk:
    """An array of one chunk or shard, and its file."""

    def __init__(self, folder, **options):
        self.array = created(LocalStore(folder), SHAPE, "i4", **options)
        self.path = folder / "c/0/0"
        self.index = INDEX if self.array.shards else b""
        self.nbytes = 480_000 + len(self.index)

    def full_of(self, number):
        self.array[...] = number
        return self

    def content(self, number):
        """What the file holds where every element is a number."""
        return np.full(SHAPE, number, ">i4").tobytes() + self.index

    def put_another(self, number):
        other = self.path.with_name("other")
        other.write_bytes(self.content(number))
        other.replace(self.path)

    @property
    def values(self):
        return np.fromfile(self.path, ">i4", np.prod(SHAPE)).reshape(SHAPE)


@pytest.fixture
def folder():
    """A folder that every user may use; it must hold no temporary file in the end."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    left = [str(p) for p in path.rglob("*.partial")]
    shutil.rmtree(path, ignore_errors=True)
    assert left == []


@pytest.fixture(params=LAYOUTS)
def missing(request, folder):
    return Chunk(folder, **LAYOUTS[request.param])


@pytest.fixture
def chunk(missing):
    return missing.full_of(7)


@pytest.fixture(params=[ROW, COLUMN], ids=["row", "column"])
def selection(request):
    """One run; and so many that the file is mapped."""
    return request.param


@pytest.fixture
def mapped(monkeypatch):
    """Whatever file system the tests run on."""
    if not range_writing.CAN_MAP:
        pytest.skip("files are mapped on Linux")
    monkeypatch.setattr(range_writing, "is_local", lambda device: True)


def expected(selection, number, of=7):
    values = np.full(SHAPE, of, "i4")
    values[selection] = number
    return values


@contextmanager
def as_somebody_else():
    """As a user who is not root: root may write to every file."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def through_a_link(path):
    path.rename(path.with_name("target"))
    path.symlink_to(path.with_name("target"))


FILES_THAT_ARE_REPLACED = {  # what is done to the file, and who writes
    "with another name elsewhere": (lambda p: os.link(p, p.parents[2] / "backup"), nullcontext),
    "with another name beside it": (lambda p: os.link(p, f"{p}.backup"), nullcontext),
    "behind a symbolic link": (through_a_link, nullcontext),
    "that nobody may write": (lambda p: p.chmod(0o444), as_somebody_else),
    "that its owner may write": (lambda p: p.chmod(0o644), as_somebody_else),
    "that nobody may write, written by root": (lambda p: p.chmod(0o444), nullcontext),
}
WITHOUT_PERMISSION = {  # the chunk: whether its folder or itself is there; selection, number
    "part, no folder": (None, ROW, 5, "made"),
    "whole, no folder": (None, ..., 5, "replaced"),
    "part, missing": (False, ROW, 5, "made"),
    "whole, missing": (False, ..., 5, "replaced"),
    "part": (True, ROW, 5, "replaced"),  # a file that must not be written either
    "whole": (True, ..., 5, "replaced"),
    "empty": (True, ..., 0, "deleted"),
}


class TestWhatIsThere:
    @pytest.mark.parametrize("case", FILES_THAT_ARE_REPLACED)
    def test_a_file_that_is_not_the_chunks_alone_stays_and_another_takes_its_place(
        self, chunk, selection, case
    ):
        change, as_writer = FILES_THAT_ARE_REPLACED[case]
        if "owner" in case and os.geteuid() != 0:
            pytest.skip("a file of another owner: needs the user root")
        change(chunk.path)
        chunk.path.parent.chmod(0o777)
        with chunk.path.open("rb") as before, as_writer():
            chunk.array[selection] = 5
            assert before.read() == chunk.content(7)
            assert not os.path.samestat(os.fstat(before.fileno()), chunk.path.lstat())
        assert not chunk.path.is_symlink()
        assert np.array_equal(chunk.values, expected(selection, 5))
        with written_to(chunk.path) as ranges:
            chunk.array[0, 0] = 6
        assert ranges == [(0, 4)]  # from now on it is the chunk's alone

    # Without the rights of root, its owner alone opens a file of one's own.
    @pytest.mark.parametrize("mode", [0o644, *[0o464, 0o446] * (os.geteuid() == 0)], ids=oct)
    def test_a_file_that_anybody_may_write_stays(self, chunk, selection, mode):
        chunk.path.chmod(mode)
        inode = chunk.path.stat().st_ino
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5))
        assert chunk.path.stat().st_ino == inode

    def test_the_temporary_name_of_one_who_was_killed_is_none(self, chunk, selection):
        left = chunk.path.with_name(f"0.{32 * 'a'}.partial")
        os.link(chunk.path, left)
        inode = chunk.path.stat().st_ino
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5))
        assert chunk.path.stat().st_ino == inode
        left.unlink()

    def test_whoever_may_read_new_files_may_read_a_chunk_that_was_replaced(self, chunk):
        umask = os.umask(0o022)
        try:
            chunk.array[...] = 5
        finally:
            os.umask(umask)
        assert stat.S_IMODE(chunk.path.stat().st_mode) == 0o644

    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_what_is_no_file_neither_hangs_nor_is_written(self, missing, kind):
        path = missing.path
        put(kind, path)
        before = path.lstat()
        if kind == "folder":
            (path / "file").write_text("of somebody")
        named = f"{re.escape(str(path))} is a {kind.removeprefix('link to a ')}"
        with zarr.config.set({"zarr_bytes.partial_writes": False}):
            replacing = zarr.open_array(missing.array.store, mode="r+")
        for array in missing.array, replacing:
            for selected in ROW, ...:
                for number in 0, 5:  # the fill value and another one
                    with pytest.raises(ChunkFileError, match=named):
                        array[selected] = number
                with pytest.raises(ChunkFileError, match=named):
                    array[selected]
        after = path.lstat()
        assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
        if kind == "folder":
            assert (path / "file").read_text() == "of somebody"
        else:
            assert [p.name for p in path.parent.iterdir() if p.name != "fifo"] == ["0"]

    @pytest.mark.parametrize("chunk_shape", [(1, 8), (50, 5000)], ids=["small", "large"])
    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_what_is_no_file_is_refused_and_never_waited_for(
        self, tmp_path, pipeline, kind, chunk_shape
    ):
        array, path = stored(LocalStore(tmp_path), numbers(chunk_shape)), tmp_path / "c/0/0"
        assert array[0, 2] == 2  # now small reads are made on zarr's event loop
        path.unlink()
        put(kind, path)
        found = f"{re.escape(str(path))} is a {kind.removeprefix('link to a ')}"
        for selected in ..., np.s_[0, 2:5]:
            with pytest.raises(ChunkFileError, match=f"{found}.*, and a chunk is a regular file"):
                array[selected]
        path.unlink() if kind != "folder" else path.rmdir()
        assert array[0, 2] == 0

    def test_a_file_in_the_place_of_a_folder_is_a_missing_chunk_and_an_error_of_a_write(
        self, missing
    ):
        above = missing.path.parent.parent
        above.write_text("of somebody")
        assert not missing.array[3].any()
        assert not missing.array[...].any()
        with pytest.raises(OSError, match=re.escape(str(missing.path))):
            missing.array[ROW] = 5
        assert above.read_text() == "of somebody"

    @pytest.mark.parametrize("case", WITHOUT_PERMISSION)
    def test_a_folder_that_must_not_be_written_is_named(self, missing, folder, case):
        is_there, selected, number, outcome = WITHOUT_PERMISSION[case]
        if is_there is not None:
            folder = missing.path.parent
            folder.mkdir(parents=True)
        if is_there:
            missing.full_of(7).path.chmod(0o444)
        folder.chmod(0o555)
        message = (
            rf"Permission denied: the (chunk|shard) has not been {outcome};"
            rf" to write '{missing.path.relative_to(folder)}', make this folder writable:"
            rf" '{re.escape(str(folder))}'$"
        )
        with as_somebody_else(), pytest.raises(PermissionError, match=message):
            missing.array[selected] = number

    @needs_root
    @pytest.mark.parametrize("case", ["part", "whole", "empty"])
    def test_a_chunk_that_only_its_owner_may_rename_stays_and_is_named(self, chunk, case):
        _, selected, number, outcome = WITHOUT_PERMISSION[case]
        chunk.path.parent.chmod(0o1777)  # as of /tmp
        chunk.path.chmod(0o644)
        message = (
            f"Operation not permitted: the (chunk|shard) has not been {outcome}:"
            f" '{re.escape(str(chunk.path))}'$"
        )
        with as_somebody_else(), pytest.raises(PermissionError, match=message):
            chunk.array[selected] = number
        assert (chunk.values == 7).all()  # and the fixture finds no temporary file

    @pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
    def test_a_file_that_another_process_has_a_lease_on_is_waited_for(self, chunk, is_written):
        inode = chunk.path.stat().st_ino
        with leased(chunk.path):
            if is_written:
                chunk.array[ROW] = 5
            else:
                assert (chunk.array[ROW] == 7).all()
        assert chunk.path.stat().st_ino == inode
        assert np.array_equal(chunk.values, expected(ROW, 5 if is_written else 7))


class TestOthersAtTheSameMoment:
    """What another process may do between two system calls, that `test_meanwhile.py` has not."""

    @pytest.mark.parametrize(
        ("happens", "of"), [(lambda c: c.put_another(8), 8), (lambda c: c.path.unlink(), 0)]
    )
    def test_a_selection_is_written_into_the_file_that_is_there_at_last(
        self, chunk, selection, monkeypatch, happens, of
    ):
        """And not into the one that was opened, of which another took the name, or nothing."""
        fail_at(monkeypatch, "fstat", 0, before=lambda: happens(chunk))
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5, of))

    def test_a_chunk_that_is_just_created_has_two_names_and_is_written_in_place(
        self, chunk, selection, monkeypatch
    ):
        temporary = chunk.path.with_name(f"0.{32 * 'b'}.partial")
        os.link(chunk.path, temporary)
        inode = chunk.path.stat().st_ino
        fail_at(monkeypatch, "scandir", 0, before=temporary.unlink)  # its maker is done just now
        chunk.array[selection] = 5
        assert chunk.path.stat().st_ino == inode
        assert np.array_equal(chunk.values, expected(selection, 5))

    @pytest.mark.parametrize(
        "happens",
        [
            {"fstat": lambda chunk: chunk.put_another(8)},
            {
                "open": lambda chunk: chunk.path.unlink(missing_ok=True),
                "link": lambda chunk: chunk.path.write_bytes(chunk.content(8)),
            },
        ],
        ids=["replaced", "deleted and made"],
    )
    def test_a_chunk_that_changes_again_and_again_is_an_error(self, chunk, happens):
        calls = Counter()

        def act(call, *arguments):
            calls[call] += 1
            assert calls[call] < 1000, "it goes on for ever"
            happens.get(call, lambda chunk: None)(chunk)

        message = (
            "opened 100 times.* another process keeps replacing it.*"
            rf"nothing has been written: '{re.escape(str(chunk.path))}'"
        )
        with before_each(act), pytest.raises(OSError, match=message) as caught:
            chunk.array[ROW] = 5
        assert caught.value.errno == errno.EBUSY
        assert chunk.path.read_bytes() == chunk.content(8)

    def test_a_folder_that_is_deleted_while_its_chunk_is_made_is_an_error(
        self, missing, selection, monkeypatch
    ):
        fail_at(monkeypatch, "link", 0, before=lambda: shutil.rmtree(missing.path.parent))
        with pytest.raises(FileNotFoundError, match=re.escape(str(missing.path))):
            missing.array[selection] = 5
        assert not missing.path.exists()

    @pytest.mark.usefixtures("mapped")
    @pytest.mark.parametrize("size", [0, 100, 5000])
    @pytest.mark.parametrize(
        ("name", "at"), [("memfd_create", 0), ("scatter", 0), ("scatter", 2), ("pwrite", 0)]
    )
    def test_a_file_that_is_shortened_while_it_is_mapped_is_an_error(
        self, chunk, monkeypatch, size, name, at
    ):
        """Before its first batch is prepared, or before one is copied; or a call writes to it."""
        fail_at(monkeypatch, name, at, before=lambda: os.truncate(chunk.path, size))
        with pytest.raises(ChunkSizeError, match=f"{chunk.nbytes} bytes, found"):
            chunk.array[ROW if name == "pwrite" else COLUMN] = 5
        if name == "pwrite":
            return
        assert chunk.path.stat().st_size == size, "it was made longer again"
        read = np.frombuffer(chunk.path.read_bytes(), ">i4")
        column = np.arange(read.size) % SHAPE[1] == COLUMN[1]
        assert (read[~column | (name == "memfd_create")] == 7).all()


class TestFileSystems:
    def test_one_without_numbers_of_names_is_written_in_place(self, chunk, selection, monkeypatch):
        fstat, calls = os.fstat, []

        def without_names(file):
            calls.append(None)
            assert len(calls) < 1000, "it goes on for ever"
            status = list(fstat(file))
            status[stat.ST_NLINK] = 0
            return os.stat_result(status)

        inode = chunk.path.stat().st_ino
        monkeypatch.setattr(os, "fstat", without_names)  # as some network file systems
        chunk.array[selection] = 5
        monkeypatch.undo()
        assert chunk.path.stat().st_ino == inode
        assert np.array_equal(chunk.values, expected(selection, 5))

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
    def test_where_no_link_can_be_made_the_chunk_is_written_whole(
        self, missing, monkeypatch, selection, number
    ):
        fail_at(monkeypatch, "link", 0, error=OSError(number, os.strerror(number)))
        missing.array[selection] = 5
        assert np.array_equal(missing.values, expected(selection, 5, of=0))

    @pytest.mark.parametrize("kind", ["nfs4", "", None], ids=["network", "unknown", "no /proc"])
    def test_one_that_others_may_share_is_not_mapped(self, chunk, monkeypatch, tmp_path, kind):
        calls = fail_at(monkeypatch, "scatter", 0)
        with mounted_as(kind, chunk.path, tmp_path / "mounts"):
            chunk.array[COLUMN] = 5
        assert calls == []
        assert np.array_equal(chunk.values, expected(COLUMN, 5))

    @pytest.mark.parametrize(("major", "finds"), [(8, [True] * 2), (0, [True, False])])
    def test_what_is_known_of_a_disk_is_kept_and_of_no_other(
        self, chunk, monkeypatch, tmp_path, major, finds
    ):
        """Numbers of other file systems are given again: to one of a network, perhaps."""
        monkeypatch.setattr(os, "major", lambda device: major)
        mounts, found = tmp_path / "mounts", []
        with mounted_as("ext4", chunk.path, mounts), chunk.path.open() as file:
            for kind in "ext4", "nfs4":
                mounts.write_text(mounts.read_text().replace("ext4", kind))
                found.append(known_stores.is_local(file.fileno()))
        assert found == finds

    @pytest.mark.usefixtures("mapped")
    def test_a_mapping_that_takes_less_is_finished_by_system_calls(self, chunk, monkeypatch):
        scatter = range_writing.scatter
        monkeypatch.setattr(range_writing, "scatter", lambda s, p, b: scatter(s, p[:9], b))
        chunk.array[COLUMN] = np.arange(3000)
        assert np.array_equal(chunk.values, expected(COLUMN, np.arange(3000)))

    @pytest.mark.usefixtures("mapped")
    def test_many_ranges_are_mapped_in_batches_and_large_ones_are_not(self, folder, monkeypatch):
        array = created(LocalStore(folder), (200_000, 2), "i4", config={"write_empty_chunks": True})
        array[:, 1] = np.arange(200_000)
        values = np.fromfile(folder / "c/0/0", ">i4").reshape(200_000, 2)
        assert (values[:, 0] == 0).all()
        assert np.array_equal(values[:, 1], np.arange(200_000))
        array, calls = Chunk(folder / "large").full_of(7).array, fail_at(monkeypatch, "scatter", 0)
        array = created(LocalStore(folder / "large"), (300, 4000), "u1", overwrite=True)
        array[...] = 7
        array[::2, :3999] = 5
        assert calls == []
        assert (array[::2, :3999] == 5).all()

    def test_a_write_that_takes_nothing_is_an_error(self, chunk, monkeypatch):
        monkeypatch.setattr(os, "pwrite", lambda file, data, at: 0)
        with pytest.raises(OSError, match="byte 1120 of the chunk could not be written; 0 bytes"):
            chunk.array[7] = 5
        assert (chunk.values == 7).all()

    def test_an_error_names_file_and_offset_and_what_was_written(self, chunk, monkeypatch):
        fail_at(monkeypatch, "pwrite", 2, error=OSError(errno.EIO, "the disk"))
        message = (
            r"\[Errno 5\] Input/output error: byte 2400 of the chunk could not be written;"
            rf" 320 bytes of the selection have been written: '{chunk.path}'"
        )
        with pytest.raises(OSError, match=message):
            chunk.array[5:26:5] = 5
        assert np.array_equal(chunk.values, expected(np.s_[5:11:5], 5))


class TestLimits:
    """The system stops a write in the middle, at a limit of file sizes."""

    def test_a_write_that_is_cut_short_says_where(self, chunk):
        limit = 320_001
        message = (
            f"byte {limit} of the chunk could not be written; {limit - 800} bytes of the selection"
        )
        with no_file_larger_than(limit), pytest.raises(OSError, match=message) as caught:
            chunk.array[ROWS] = 0x05050505
        assert caught.value.errno == errno.EFBIG
        before, after = expected((), 7).ravel(), chunk.values.ravel()
        done = np.frombuffer(chunk.path.read_bytes(), "u1")
        assert (done[800:limit] == 5).all()
        assert np.array_equal(after[:200], before[:200])
        assert (after[limit // 4 + 1 :] == 7).all()

    @pytest.mark.parametrize("limit", [320_001, 100_001])
    @pytest.mark.parametrize("settings", [{}, IN_PLACE], ids=["replaced", "in place"])
    def test_a_chunk_that_is_cut_short_is_not_made_or_replaced(self, missing, limit, settings):
        with zarr.config.set(settings):
            array = zarr.open_array(missing.array.store, mode="r+")
        for is_there in False, True:
            for selected in (...,) if is_there and settings else (COLUMN, ...):
                message = "the (chunk|shard) has not been (made|replaced)"
                error = pytest.raises(OSError, match=message)
                with no_file_larger_than(limit), error as caught:
                    array[selected] = 5
                assert caught.value.errno == errno.EFBIG
                assert missing.path.exists() == is_there
                assert (array[...] == 7 * is_there).all()
            missing.full_of(7)


class TestCancelling:
    """Nothing more is begun after an error or a cancellation; what has begun is completed."""

    @pytest.fixture(params=["chunks", "shards"])
    def rows(self, request, tmp_path):
        """An array of 40 chunks or shards of ten elements, written one after another."""
        inner = ShardingCodec(chunk_shape=(1, 5), codecs=[BIG])
        options = {"serializer": inner} if request.param == "shards" else {}
        array = created(LocalStore(tmp_path), (40, 10), "i4", chunks=(1, 10), **options)
        array[...] = 7
        assert array[0, 0] == 7  # now the file system is known
        with zarr.config.set({"codec_pipeline.max_workers": 1, "async.concurrency": 1}):
            yield array

    @pytest.mark.parametrize("selection", [np.s_[:, :5], np.s_[...]], ids=["part", "whole"])
    @pytest.mark.parametrize("limit", [1, 100], ids=["one task", "a task for each chunk"])
    def test_no_other_chunk_is_begun(self, rows, tmp_path, monkeypatch, limit, selection):
        stop, expected = Stop(), np.full((40, 10), 7)
        expected[0][selection[1:] if selection != ... else ...] = 5
        fail_at(monkeypatch, "pwrite", 0, before=stop)
        with zarr.config.set({"async.concurrency": limit}), watched(tmp_path) as files:
            assert stop.cancelled(rows.async_array.setitem(selection, 5))
        assert {key.partition(".")[0] for key in files.keys} == {"c/0/0"}
        assert np.array_equal(rows[...], expected)
        assert not list(tmp_path.rglob("*.partial"))

    @pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
    def test_after_an_error_of_one_chunk_no_later_file_is_opened(self, rows, tmp_path, is_written):
        (tmp_path / "c/3/0").unlink()
        (tmp_path / "c/3/0").mkdir()
        act = partial(rows.__setitem__, ..., -1) if is_written else partial(rows.__getitem__, ...)
        with watched(tmp_path) as files, pytest.raises(ChunkFileError, match="c/3/0 is a folder"):
            act()
        keys = [key.partition(".")[0] for key in files.keys]
        assert list(dict.fromkeys(keys)) == [f"c/{i}/0" for i in range(4)]
        assert is_written or len(keys) == 4  # each is opened once

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    def test_cancelling_a_read_waits_for_the_chunk_that_has_begun(self, tmp_path, monkeypatch):
        array = stored(LocalStore(tmp_path), numbers((40, 2**17)), chunks=(1, 2**17))
        stop = Stop()
        fail_at(monkeypatch, "preadv", 0, before=stop)
        settings = {"codec_pipeline.max_workers": 1, "async.concurrency": 1}
        with zarr.config.set(settings), watched(tmp_path) as files:
            assert stop.cancelled(array.async_array.getitem(...))
        assert files.keys == ["c/0/0"]

    @pytest.mark.parametrize("selection", [np.s_[5:26:5], ...], ids=["part", "whole"])
    @pytest.mark.parametrize("times", [1, 3])
    def test_a_write_that_has_begun_is_completed(self, chunk, monkeypatch, selection, times):
        stop = Stop()
        fail_at(monkeypatch, "pwrite", 0, before=stop)
        assert stop.cancelled(chunk.array.async_array.setitem(selection, 5), times)
        assert np.array_equal(chunk.values, expected(selection, 5))

    def test_the_error_of_a_cancelled_write_is_not_logged(self, chunk, monkeypatch, caplog):
        stop = Stop()
        fail_at(monkeypatch, "pwrite", 0, before=stop, error=OSError(errno.EIO, "the disk"))
        assert stop.cancelled(chunk.array.async_array.setitem(ROW, 5))
        assert [r.message for r in caplog.records if r.name == "asyncio"] == []
