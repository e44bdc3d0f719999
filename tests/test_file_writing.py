"""Writing into a file: what is there already, who else uses it, and every fault on the way.

The file is a chunk or a shard. After each fault the bytes that were not selected are as they were,
and no temporary file is left.
"""

import asyncio
import errno
import mmap
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from shards import index_of
from stored_arrays import KINDS_OF_NO_FILE, created, fill, put
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

from zarr_bytes import BytesCodec, ChunkFileError, ChunkSizeError, ShardIndexError
from zarr_bytes.io import file_writing, opening, range_writing

pytest.importorskip("resource", reason="files are written in place on POSIX systems")

SHAPE = (3000, 40)  # of 4 bytes: 480,000, so that a column is three batches of a mapping
ROW, ROWS, COLUMN = np.s_[7], np.s_[5:2900], np.s_[:, 3]
# Inner chunks are whole rows, so that the elements lie in the shard as in a chunk.
SHARDED = {"serializer": ShardingCodec(chunk_shape=(500, 40), codecs=[BytesCodec(endian="big")])}
INDEX = index_of([(80_000 * i, 80_000) for i in range(6)])


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


@pytest.fixture(params=["BatchedBytesPipeline", "shard"])
def way(request):
    """Options of an array of chunks that a pipeline writes, or of shards."""
    is_sharded = request.param == "shard"
    pipeline = "BatchedBytesPipeline" if is_sharded else request.param
    with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
        yield SHARDED if is_sharded else {}


@pytest.fixture
def missing(folder, way):
    return Chunk(folder, **way)


@pytest.fixture
def chunk(missing):
    return missing.full_of(7)


@pytest.fixture(params=[ROW, COLUMN], ids=["row", "column"])
def selection(request):
    """One run; and so many that the file is mapped."""
    return request.param


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
    "with another name elsewhere": (
        lambda path: os.link(path, path.parents[2] / "backup"),
        nullcontext,
    ),
    "with another name beside it": (lambda path: os.link(path, f"{path}.backup"), nullcontext),
    "behind a symbolic link": (through_a_link, nullcontext),
    "that nobody may write": (lambda path: path.chmod(0o444), as_somebody_else),
    "that its owner may write": (lambda path: path.chmod(0o644), as_somebody_else),
    "that nobody may write, written by root": (lambda path: path.chmod(0o444), nullcontext),
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

    def test_the_temporary_name_of_one_who_was_killed_is_none(self, chunk, selection):
        left = chunk.path.with_name(f"0.{32 * 'a'}.partial")
        os.link(chunk.path, left)
        inode = chunk.path.stat().st_ino
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5))
        assert chunk.path.stat().st_ino == inode
        left.unlink()

    def test_a_symbolic_link_to_nothing_is_replaced(self, missing, folder, selection):
        missing.path.parent.mkdir(parents=True)
        missing.path.symlink_to(folder / "nothing")
        missing.array[selection] = 5
        assert not (folder / "nothing").exists()
        assert np.array_equal(missing.values, expected(selection, 5, of=0))

    def test_whoever_may_read_new_files_may_read_a_chunk_that_was_replaced(self, chunk):
        umask = os.umask(0o022)
        try:
            chunk.array[...] = 5
        finally:
            os.umask(umask)
        assert stat.S_IMODE(chunk.path.stat().st_mode) == 0o644

    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_what_is_no_file_neither_hangs_nor_is_written(self, missing, folder, kind):
        path = missing.path
        put(kind, path)
        before = path.lstat()
        if kind == "folder":
            (path / "file").write_text("of somebody")
        named = f"{re.escape(str(path))} is a {kind.removeprefix('link to a ')}"
        for selected in ROW, ...:
            for number in 0, 5:  # the fill value and another one
                with pytest.raises(ChunkFileError, match=named):
                    missing.array[selected] = number
            with pytest.raises(ChunkFileError, match=named):
                missing.array[selected]
        after = path.lstat()
        assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
        if kind == "folder":
            assert (path / "file").read_text() == "of somebody"

    def test_a_file_in_the_place_of_a_folder_is_an_error(self, missing):
        missing.path.parent.parent.write_text("of somebody")
        with pytest.raises(OSError, match=re.escape(str(missing.path))):
            missing.array[ROW] = 5
        assert missing.path.parent.parent.read_text() == "of somebody"

    @pytest.mark.parametrize(
        ("is_there", "selected", "number", "outcome"),
        [
            (None, ROW, 5, "made"),
            (None, ..., 5, "replaced"),
            (False, ROW, 5, "made"),
            (False, ..., 5, "replaced"),
            (True, ROW, 5, "replaced"),  # a file that must not be written either
            (True, ..., 5, "replaced"),
            (True, ..., 0, "deleted"),
        ],
        ids=[
            *("part, no folder", "whole, no folder", "part, missing", "whole, missing"),
            *("part", "whole", "empty"),
        ],
    )
    def test_a_folder_that_must_not_be_written_is_named(
        self, missing, folder, is_there, selected, number, outcome
    ):
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

    @pytest.mark.parametrize(
        ("selected", "number", "outcome"),
        [(ROW, 5, "replaced"), (..., 5, "replaced"), (..., 0, "deleted")],
        ids=["part", "whole", "empty"],
    )
    def test_a_chunk_that_only_its_owner_may_rename_stays_and_is_named(
        self, chunk, selected, number, outcome
    ):
        if os.geteuid() != 0:
            pytest.skip("a file of another owner: needs the user root")
        chunk.path.parent.chmod(0o1777)  # as of /tmp
        chunk.path.chmod(0o644)
        message = (
            f"Operation not permitted: the (chunk|shard) has not been {outcome}:"
            f" '{re.escape(str(chunk.path))}'$"
        )
        with as_somebody_else(), pytest.raises(PermissionError, match=message):
            chunk.array[selected] = number
        assert (chunk.values == 7).all()  # and the fixture finds no temporary file

    def test_a_file_that_another_process_has_a_lease_on_is_waited_for(self, chunk):
        inode = chunk.path.stat().st_ino
        with leased(chunk.path):
            chunk.array[ROW] = 5
        assert chunk.path.stat().st_ino == inode
        assert np.array_equal(chunk.values, expected(ROW, 5))


@pytest.mark.parametrize("way", ["BatchedBytesPipeline"], indirect=True)
@pytest.mark.parametrize("size", [0, 1, 479_999, 480_001, 960_000])
def test_a_file_of_another_size_is_an_error_before_a_byte_is_written(chunk, selection, size):
    os.truncate(chunk.path, size)
    before, status = chunk.path.read_bytes(), chunk.path.stat()
    what = "truncated" if size < 480_000 else "too long"
    message = f"bytes 0 to 480000 of {chunk.path} are 480000 bytes, found {size}: .* {what}"
    with pytest.raises(ChunkSizeError, match=message):
        chunk.array[selection] = 5
    assert chunk.path.read_bytes() == before
    assert chunk.path.stat().st_mtime_ns == status.st_mtime_ns


@pytest.fixture
def mapped(monkeypatch):
    """Whatever file system the tests run on."""
    if not range_writing.CAN_MAP:
        pytest.skip("files are mapped on Linux")
    monkeypatch.setattr(range_writing, "is_local", lambda device: True)


def put_another(chunk, number):
    other = chunk.path.with_name("other")
    other.write_bytes(chunk.content(number))
    other.replace(chunk.path)


MEANWHILE = {  # the call before which something happens to the chunk, and the elements then
    "another file takes its name after it was opened": ("fstat", lambda c: put_another(c, 8), 8),
    "it is deleted after it was opened": ("fstat", lambda c: c.path.unlink(), 0),
    "it is created": ("link", lambda c: c.path.write_bytes(c.content(8)), 8),
}


class TestOthersAtTheSameMoment:
    """What another process may do between two system calls."""

    @pytest.mark.parametrize("case", MEANWHILE)
    def test_the_selection_is_written_into_the_file_that_is_there_at_last(
        self, chunk, selection, monkeypatch, case
    ):
        call, happens, number = MEANWHILE[case]
        if case == "it is created":
            chunk.path.unlink()
        fail_at(monkeypatch, call, 0, before=lambda: happens(chunk))
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5, of=number))

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

    def test_a_chunk_that_a_writer_without_the_setting_replaces_meanwhile_is_replaced_again(
        self, chunk, monkeypatch
    ):
        with zarr.config.set({"zarr_bytes.partial_writes": False}):
            other = zarr.open_array(chunk.array.store, mode="r+")
        fail_at(monkeypatch, "pwrite", 0, before=lambda: other.set_basic_selection(..., 8))
        chunk.array[...] = 5
        assert (chunk.values == 5).all()

    def test_a_file_system_without_numbers_of_names_is_written_in_place(
        self, chunk, selection, monkeypatch
    ):
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

    @pytest.mark.parametrize(
        "happens",
        [
            {"fstat": lambda chunk: put_another(chunk, 8)},
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
        ("name", "batch"), [("memfd_create", 0), *(("scatter", batch) for batch in range(3))]
    )
    def test_a_file_that_is_shortened_while_it_is_mapped_is_an_error(
        self, chunk, monkeypatch, size, name, batch
    ):
        """Before its first batch is prepared, and before each one is copied."""
        calls = fail_at(monkeypatch, name, batch, before=lambda: os.truncate(chunk.path, size))
        with pytest.raises(ChunkSizeError, match=f"{chunk.nbytes} bytes, found {size}"):
            chunk.array[COLUMN] = 5
        assert len(calls) == batch + 1
        assert chunk.path.stat().st_size == size, "it was made longer again"
        read = np.frombuffer(chunk.path.read_bytes(), ">i4")
        column = np.arange(read.size) % SHAPE[1] == COLUMN[1]
        assert (read[~column | (name == "memfd_create")] == 7).all()

    @pytest.mark.usefixtures("mapped")
    def test_a_file_of_one_page_too(self, folder, monkeypatch):
        array = created(LocalStore(folder), (300, 4), "u1")
        array[...] = 7
        fail_at(monkeypatch, "scatter", 0, before=lambda: os.truncate(folder / "c/0/0", 100))
        with pytest.raises(ChunkSizeError, match="1200 bytes, found 100"):
            array[:, 1] = 5

    def test_a_file_that_is_shortened_while_it_is_written_is_an_error(self, chunk, monkeypatch):
        fail_at(monkeypatch, "pwrite", 0, before=lambda: os.truncate(chunk.path, 100))
        with pytest.raises(ChunkSizeError, match=f"{chunk.nbytes} bytes, found"):
            chunk.array[ROW] = 5


class TestFaults:
    @pytest.mark.usefixtures("mapped")
    @pytest.mark.parametrize("name", ["memfd_create", "scatter"])
    @pytest.mark.parametrize("call", [0, 1, 2])
    def test_what_cannot_be_mapped_is_written_by_system_calls(self, chunk, monkeypatch, name, call):
        fail_at(monkeypatch, name, call, error=OSError(errno.EPERM, "not here"))
        chunk.array[COLUMN] = np.arange(3000)
        assert np.array_equal(chunk.values, expected(COLUMN, np.arange(3000)))

    @pytest.mark.usefixtures("mapped")
    @pytest.mark.parametrize("error", [OSError(errno.ENODEV, "no"), ValueError("no")], ids=repr)
    def test_a_file_that_has_no_mapping_is_written_by_system_calls(self, chunk, monkeypatch, error):
        def no_mapping(*args):
            raise error

        monkeypatch.setattr(mmap, "mmap", no_mapping)
        with written_to(chunk.path) as ranges:
            monkeypatch.setattr(mmap, "mmap", no_mapping)
            chunk.array[COLUMN] = np.arange(3000)
        assert ranges == [(160 * i + 12, 4) for i in range(3000)]
        assert np.array_equal(chunk.values, expected(COLUMN, np.arange(3000)))

    @pytest.mark.usefixtures("mapped")
    def test_a_mapping_that_takes_less_is_finished_by_system_calls(self, chunk, monkeypatch):
        scatter = range_writing.scatter
        monkeypatch.setattr(
            range_writing,
            "scatter",
            lambda source, places, begin: scatter(source, places[:9], begin),
        )
        chunk.array[COLUMN] = np.arange(3000)
        assert np.array_equal(chunk.values, expected(COLUMN, np.arange(3000)))

    @pytest.mark.parametrize("kind", ["nfs4", "", None], ids=["network", "unknown", "no /proc"])
    def test_a_file_system_that_others_may_share_is_not_mapped(
        self, chunk, monkeypatch, tmp_path, kind
    ):
        calls = fail_at(monkeypatch, "scatter", 0)
        with mounted_as(kind, chunk.path, tmp_path / "mounts"):
            chunk.array[COLUMN] = 5
        assert calls == []
        assert np.array_equal(chunk.values, expected(COLUMN, 5))

    @pytest.mark.parametrize(("major", "finds"), [(8, [True] * 2), (0, [True, False])])
    def test_what_is_known_of_a_disk_is_kept_and_of_no_other_file_system(
        self, chunk, monkeypatch, tmp_path, major, finds
    ):
        """Numbers of other file systems are given again: to one of a network, perhaps."""
        monkeypatch.setattr(os, "major", lambda device: major)
        mounts, found = tmp_path / "mounts", []
        with mounted_as("ext4", chunk.path, mounts), chunk.path.open() as file:
            for kind in "ext4", "nfs4":
                mounts.write_text(mounts.read_text().replace("ext4", kind))
                found.append(opening.is_local(file.fileno()))
        assert found == finds

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux says what is open")
    def test_after_an_error_no_file_stays_open(self, chunk, selection):
        os.truncate(chunk.path, 100)
        with pytest.raises((ChunkSizeError, ShardIndexError)):
            chunk.array[selection]
        with pytest.raises((ChunkSizeError, ShardIndexError)):
            chunk.array[selection] = 5
        files = [file.resolve() for file in Path("/proc/self/fd").iterdir()]
        assert chunk.path.resolve() not in files

    @pytest.mark.usefixtures("mapped")
    def test_a_column_of_more_rows_than_are_made_ready_at_once_is_written(self, folder):
        array = created(LocalStore(folder), (200_000, 2), "i4", config={"write_empty_chunks": True})
        array[:, 1] = np.arange(200_000)
        values = np.fromfile(folder / "c/0/0", ">i4").reshape(200_000, 2)
        assert (values[:, 0] == 0).all()
        assert np.array_equal(values[:, 1], np.arange(200_000))

    @pytest.mark.usefixtures("mapped")
    def test_many_large_runs_are_not_mapped(self, folder, monkeypatch):
        array = created(LocalStore(folder), (600, 8000), "u1", config={"write_empty_chunks": True})
        array[...] = 7
        calls = fail_at(monkeypatch, "scatter", 0)
        array[::2, :7999] = 5
        assert calls == []
        values = np.fromfile(folder / "c/0/0", "u1").reshape(600, 8000)
        assert (values[::2, :7999] == 5).all()
        assert (values == 5).sum() == 300 * 7999

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

    @pytest.mark.parametrize("fill_value", [0, 9])
    def test_a_chunk_that_cannot_be_filled_is_not_made(
        self, folder, monkeypatch, selection, fill_value
    ):
        chunk = Chunk(folder, fill_value=fill_value)
        fail_at(monkeypatch, "truncate", 0, error=OSError(errno.ENOSPC, "full"))
        message = rf"byte 0 of the chunk .* the chunk has not been made: '{chunk.path}'"
        with pytest.raises(OSError, match=message) as caught:
            chunk.array[selection] = 5
        assert caught.value.errno == errno.ENOSPC
        assert not chunk.path.exists()

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EROFS, errno.ESTALE])
    def test_a_file_that_does_not_open_is_an_error_and_not_replaced(
        self, chunk, monkeypatch, number
    ):
        inode = chunk.path.stat().st_ino
        fail_at(monkeypatch, "open", 0, error=OSError(number, os.strerror(number), chunk.path))
        with pytest.raises(OSError, match=os.strerror(number)):
            chunk.array[ROW] = 5
        assert chunk.path.stat().st_ino == inode
        assert (chunk.values == 7).all()

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
    def test_where_no_link_can_be_made_the_chunk_is_written_whole(
        self, missing, monkeypatch, selection, number
    ):
        fail_at(monkeypatch, "link", 0, error=OSError(number, os.strerror(number)))
        missing.array[selection] = 5
        assert np.array_equal(missing.values, expected(selection, 5, of=0))

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
    def test_another_error_of_linking_is_raised(self, missing, monkeypatch, number):
        fail_at(monkeypatch, "link", 0, error=OSError(number, os.strerror(number)))
        with pytest.raises(OSError, match=os.strerror(number)):
            missing.array[ROW] = 5
        assert not missing.path.exists()

    def test_where_the_system_has_no_such_call_chunks_are_written_whole(self, chunk, monkeypatch):
        monkeypatch.setattr(file_writing, "_IS_POSSIBLE", False)  # as on Windows
        inode = chunk.path.stat().st_ino
        with chunk.path.open("rb"):
            chunk.array[ROW] = 5
            assert chunk.path.stat().st_ino != inode
        assert np.array_equal(chunk.values, expected(ROW, 5))


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
        before, after = expected((), 7), chunk.values.ravel()
        done = np.frombuffer(chunk.path.read_bytes(), "u1")
        assert (done[800:limit] == 5).all()
        assert np.array_equal(after[: 5 * 40], before.ravel()[: 5 * 40])
        assert (after[limit // 4 + 1 :] == 7).all()

    def test_a_new_chunk_that_is_cut_short_is_not_made(self, missing, selection):
        with (
            no_file_larger_than(320_001),
            pytest.raises(OSError, match="the chunk has not been made") as caught,
        ):
            missing.array[selection] = 5
        assert caught.value.errno == errno.EFBIG
        assert not missing.path.exists()


ON_A_FULL_DISK = {  # the selection, whether the chunk is there, and what the error says
    "row": (np.s_[3], True, r"\d+ bytes of the selection"),
    "column": (np.s_[:, 5], True, r"\d+ bytes of the selection"),
    "rows of a new chunk": (np.s_[3:], False, "the chunk has not been made"),
    "column of a new chunk": (np.s_[:, 5], False, "the chunk has not been made"),
    "row of a new chunk that is filled": (np.s_[3], False, "the chunk has not been made"),
    "all": (np.s_[...], True, "the chunk has not been replaced"),
    "all, in another order": (np.s_[...], True, "the chunk has not been replaced"),
}


def write_to_a_full_disk(disk):
    """On a file system of 1 MiB: each chunk has 4 MiB, which are mostly holes."""
    arrays, shape, disk = {}, (512, 8192), Path(disk)
    for name, (_, is_there, _) in ON_A_FULL_DISK.items():
        fill_value = 9 * name.endswith("filled")
        arrays[name] = created(LocalStore(disk / name), shape, "u1", fill_value=fill_value)
        (disk / name / "c/0").mkdir(parents=True)
        if is_there:
            arrays[name][:2, :100] = 7
    fill(disk)
    for name, (selection, is_there, says) in ON_A_FULL_DISK.items():
        path = disk / name / "c/0/0"
        message = rf"byte \d+ of the chunk could not be written; {says}.*: '{path}'"
        before = np.fromfile(path, "u1").reshape(shape) if is_there else None
        value = np.full(shape, 5, "u1", order="F" if name.endswith("order") else "C")
        with pytest.raises(OSError, match=message) as caught:
            arrays[name][selection] = value[selection]
        assert caught.value.errno == errno.ENOSPC, name
        assert list(disk.rglob("*.partial")) == [], name
        assert path.exists() == is_there, name
        if is_there:
            after = np.fromfile(path, "u1").reshape(shape)
            if selection != np.s_[...]:
                before[selection] = after[selection] = 0
            assert np.array_equal(after, before), name
    print("as expected")  # noqa: T201


def test_a_full_disk(tmp_path):
    """Parts of chunks and whole ones are written, in a process that mounts a file system."""
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    mount = f"mount -t tmpfs -o size=1m none '{tmp_path}'"
    if subprocess.run(["unshare", "-Urm", "sh", "-c", mount], capture_output=True).returncode:  # noqa: S607
        pytest.skip("no permission to mount a file system")
    script = "import sys, test_file_writing as t; t.write_to_a_full_disk(sys.argv[1])"
    run = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*run, script, tmp_path], capture_output=True, text=True, check=False, env=os.environ | path
    )
    assert done.stdout == "as expected\n", done.stderr


def array_of_rows(folder, count, **options):
    """An array whose rows are chunks, or shards, of ten elements, all of them 7."""
    array = created(LocalStore(folder), (count, 10), "i4", chunks=(1, 10), **options)
    array[...] = 7
    return array


def rows_written(folder, selection=np.s_[:, :5]):
    """The rows whose selection is 5."""
    content = np.full((1, 10), 7, ">i4")
    content[selection] = 5
    rows = folder.glob("c/*/0")
    return {path.parent.name for path in rows if path.read_bytes()[:40] == content.tobytes()}


class TestCancelling:
    @pytest.mark.parametrize("limit", [1, 100], ids=["one task", "a task for each chunk"])
    @pytest.mark.parametrize("selection", [np.s_[:, :5], np.s_[...]], ids=["part", "whole"])
    def test_no_other_chunk_is_begun(self, tmp_path, monkeypatch, way, limit, selection):
        if way:
            codecs = [BytesCodec(endian="big")]
            way = {"serializer": ShardingCodec(chunk_shape=(1, 5), codecs=codecs)}
        array, stop = array_of_rows(tmp_path, 40, **way), Stop()
        fail_at(monkeypatch, "pwrite", 0, before=stop)
        settings = {"codec_pipeline.max_workers": 1, "async.concurrency": limit}
        with zarr.config.set(settings), watched(tmp_path) as files:
            assert stop.cancelled(array.async_array.setitem(selection, 5))
        assert {key.partition(".")[0] for key in files.keys} == {"c/0/0"}
        assert rows_written(tmp_path, selection) == {"0"}
        assert not list(tmp_path.rglob("*.partial"))

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

    def test_a_write_that_has_not_begun_changes_nothing(self, chunk):
        async def cancelled():
            write = asyncio.ensure_future(chunk.array.async_array.setitem(ROW, 5))
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write

        asyncio.run(cancelled())
        assert (chunk.values == 7).all()
