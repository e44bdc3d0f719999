"""Writing into a file: what is there already, who else uses it, and every fault on the way.

The file is a chunk or a shard. After each fault the bytes that were not selected are as they were,
and no temporary file is left.
"""

import asyncio
import errno
import json
import mmap
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from shards import index_of
from stored_arrays import KINDS_OF_NO_FILE, created, put
from system_calls import (
    Stop,
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
from zarr_bytes.chunk import file_writing, mapped_writing, opening

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


every_way = pytest.mark.parametrize("way", [*PIPELINES, "shard"], indirect=True)


@pytest.fixture
def missing(folder, way):
    return Chunk(folder, **way)


@pytest.fixture
def chunk(missing):
    return missing.full_of(7)


@pytest.fixture(params=["row", "column"])
def selection(request):
    """One run; and so many that the file is mapped."""
    return {"row": ROW, "column": COLUMN}[request.param]


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


@every_way
class TestWhatIsThere:
    @pytest.mark.parametrize("name", ["backup", "c/0/0.backup"], ids=["elsewhere", "beside it"])
    def test_a_file_with_another_name_is_left_to_that_name(self, chunk, folder, selection, name):
        os.link(chunk.path, folder / name)
        before = chunk.path.read_bytes()
        chunk.array[selection] = 5
        assert (folder / name).read_bytes() == before
        assert np.array_equal(chunk.values, expected(selection, 5))
        with written_to(chunk.path) as ranges:
            chunk.array[0, 0] = 6
        assert ranges == [(0, 4)]  # from now on there is one name

    def test_the_temporary_name_of_one_who_was_killed_is_none(self, chunk, selection):
        left = chunk.path.with_name(f"0.{32 * 'a'}.partial")
        os.link(chunk.path, left)
        inode = chunk.path.stat().st_ino
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5))
        assert chunk.path.stat().st_ino == inode
        left.unlink()

    def test_a_symbolic_link_is_replaced_and_its_target_stays(self, chunk, folder, selection):
        chunk.path.rename(folder / "target")
        chunk.path.symlink_to(folder / "target")
        before = (folder / "target").read_bytes()
        chunk.array[selection] = 5
        assert not chunk.path.is_symlink()
        assert (folder / "target").read_bytes() == before
        assert np.array_equal(chunk.values, expected(selection, 5))

    def test_a_symbolic_link_to_nothing_is_replaced(self, missing, folder, selection):
        missing.path.parent.mkdir(parents=True)
        missing.path.symlink_to(folder / "nothing")
        missing.array[selection] = 5
        assert not (folder / "nothing").exists()
        assert np.array_equal(missing.values, expected(selection, 5, of=0))

    @pytest.mark.parametrize(
        ("mode", "as_user"),
        [(0o444, as_somebody_else), (0o644, as_somebody_else), (0o444, nullcontext)],
        ids=["for nobody", "for its owner", "for nobody, as root"],
    )
    def test_a_file_that_must_not_be_written_is_replaced(self, chunk, selection, mode, as_user):
        if mode == 0o644 and os.geteuid() != 0:
            pytest.skip("a file of another owner: needs the user root")
        chunk.path.chmod(mode)
        chunk.path.parent.chmod(0o777)
        inode = chunk.path.stat().st_ino
        with chunk.path.open("rb") as before, as_user():
            chunk.array[selection] = 5
            assert before.read() == chunk.content(7)
        assert chunk.path.stat().st_ino != inode
        assert np.array_equal(chunk.values, expected(selection, 5))

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
            (False, ROW, 5, "made"),
            (False, ..., 5, "replaced"),
            (True, ROW, 5, "replaced"),  # a file that must not be written either
            (True, ..., 5, "replaced"),
            (True, ..., 0, "deleted"),
        ],
        ids=["part, missing", "whole, missing", "part", "whole", "empty"],
    )
    def test_a_folder_that_must_not_be_written_is_named(
        self, missing, is_there, selected, number, outcome
    ):
        folder = missing.path.parent
        folder.mkdir(parents=True)
        if is_there:
            missing.full_of(7).path.chmod(0o444)
        folder.chmod(0o555)
        message = (
            rf"Permission denied: the (chunk|shard) has not been {outcome};"
            rf" to write '0', make this folder writable: '{re.escape(str(folder))}'$"
        )
        with as_somebody_else(), pytest.raises(PermissionError, match=message):
            missing.array[selected] = number

    @pytest.mark.parametrize("selected", [ROW, ...], ids=["part", "whole"])
    def test_a_folder_in_which_no_folder_can_be_made_is_named(self, missing, folder, selected):
        folder.chmod(0o555)
        message = f"to write 'c/0/0', make this folder writable: '{re.escape(str(folder))}'$"
        with as_somebody_else(), pytest.raises(PermissionError, match=message):
            missing.array[selected] = 5

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


@pytest.mark.parametrize("way", PIPELINES, indirect=True)
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
    if not file_writing.CAN_MAP:
        pytest.skip("files are mapped on Linux")
    monkeypatch.setattr(file_writing, "is_local", lambda device: True)


class TestOthersAtTheSameMoment:
    """What another process may do between two system calls."""

    def test_a_chunk_that_is_created_meanwhile_is_written_into(
        self, missing, selection, monkeypatch
    ):
        def create():
            missing.path.write_bytes(missing.content(7))

        fail_at(monkeypatch, "link", 0, before=create)
        missing.array[selection] = 5
        assert np.array_equal(missing.values, expected(selection, 5))

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

    def test_a_chunk_that_is_replaced_after_it_was_opened_is_opened_again(
        self, chunk, selection, monkeypatch
    ):
        def replace():
            other = chunk.path.with_name("other")
            other.write_bytes(chunk.content(8))
            other.replace(chunk.path)

        fail_at(monkeypatch, "fstat", 0, before=replace)
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5, of=8))

    def test_a_chunk_that_is_deleted_after_it_was_opened_is_created(
        self, chunk, selection, monkeypatch
    ):
        fail_at(monkeypatch, "fstat", 0, before=chunk.path.unlink)
        chunk.array[selection] = 5
        assert np.array_equal(chunk.values, expected(selection, 5, of=0))

    def test_a_chunk_that_another_thread_replaces_meanwhile_is_replaced_again(
        self, chunk, monkeypatch
    ):
        fail_at(monkeypatch, "pwrite", 0, before=lambda: chunk.array.set_basic_selection(..., 8))
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

    def test_a_chunk_that_is_replaced_again_and_again_is_an_error(self, folder, monkeypatch):
        array = created(LocalStore(folder), (4, 5), "u1")
        array[...] = 7
        path, other, fstat = folder / "c/0/0", folder / "other", os.fstat
        calls = []

        def replacing(file):
            calls.append(None)
            assert len(calls) < 1000, "it goes on for ever"
            other.write_bytes(bytes(20))
            other.replace(path)
            return fstat(file)

        monkeypatch.setattr(os, "fstat", replacing)
        message = (
            rf"opened 100 times.* another process keeps replacing it.*'{re.escape(str(path))}'"
        )
        with pytest.raises(OSError, match=message) as caught:
            array[1] = 5
        assert caught.value.errno == errno.EBUSY
        assert path.read_bytes() == bytes(20)

    def test_a_chunk_that_comes_and_goes_is_an_error(self, folder, monkeypatch):
        array = created(LocalStore(folder), (4, 5), "u1")
        path, open_, link = folder / "c/0/0", os.open, os.link
        calls = []

        def deleting(name, *args, **options):
            if str(name) == str(path):
                path.unlink(missing_ok=True)
            return open_(name, *args, **options)

        def making(source, target):
            calls.append(None)
            assert len(calls) < 1000, "it goes on for ever"
            path.write_bytes(bytes(20))
            link(source, target)

        monkeypatch.setattr(os, "open", deleting)
        monkeypatch.setattr(os, "link", making)
        with pytest.raises(OSError, match=re.escape(str(path))) as caught:
            array[1] = 5
        assert caught.value.errno == errno.EBUSY

    def test_a_folder_that_is_deleted_while_its_chunk_is_made_is_an_error(
        self, missing, selection, monkeypatch
    ):
        fail_at(monkeypatch, "link", 0, before=lambda: shutil.rmtree(missing.path.parent))
        with pytest.raises(FileNotFoundError, match=re.escape(str(missing.path))):
            missing.array[selection] = 5
        assert not missing.path.exists()

    @pytest.mark.usefixtures("mapped")
    @pytest.mark.parametrize("size", [0, 100, 5000])
    @pytest.mark.parametrize("batch", [0, 1, 2])
    def test_a_file_that_is_shortened_while_it_is_mapped_is_an_error(
        self, chunk, monkeypatch, size, batch
    ):
        calls = fail_at(monkeypatch, "scatter", batch, before=lambda: os.truncate(chunk.path, size))
        with pytest.raises(ChunkSizeError, match=f"{chunk.nbytes} bytes, found {size}"):
            chunk.array[COLUMN] = 5
        assert len(calls) == batch + 1
        assert chunk.path.stat().st_size == size, "it was made longer again"
        read = np.frombuffer(chunk.path.read_bytes(), ">i4")
        column = np.arange(read.size) % SHAPE[1] == COLUMN[1]
        assert (read[~column] == 7).all()

    @pytest.mark.usefixtures("mapped")
    def test_a_file_of_one_page_too(self, folder, monkeypatch):
        array = created(LocalStore(folder), (300, 4), "u1")
        array[...] = 7
        fail_at(monkeypatch, "scatter", 0, before=lambda: os.truncate(folder / "c/0/0", 100))
        with pytest.raises(ChunkSizeError, match="1200 bytes, found 100"):
            array[:, 1] = 5

    @pytest.mark.usefixtures("mapped")
    def test_a_file_that_is_shortened_before_it_is_mapped_is_an_error(self, chunk, monkeypatch):
        fail_at(monkeypatch, "memfd_create", 0, before=lambda: os.truncate(chunk.path, 100))
        with pytest.raises(ChunkSizeError, match=f"{chunk.nbytes} bytes, found 100"):
            chunk.array[COLUMN] = 5
        assert chunk.path.read_bytes() == chunk.content(7)[:100]

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
        scatter = mapped_writing.scatter
        monkeypatch.setattr(
            mapped_writing,
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

    def test_a_column_of_any_number_of_rows_is_written(self, folder):
        array = created(LocalStore(folder), (200_000, 2), "i4", config={"write_empty_chunks": True})
        array[...] = -1
        array[:, 1] = np.arange(200_000)
        values = np.fromfile(folder / "c/0/0", ">i4").reshape(200_000, 2)
        assert (values[:, 0] == -1).all()
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

    def test_writes_that_take_less_are_continued(self, chunk, monkeypatch):
        pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:7], at))
        chunk.array[7] = np.arange(40)
        assert np.array_equal(chunk.values, expected(7, np.arange(40)))

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
        inode, real = chunk.path.stat().st_ino, os.open

        def fails(path, *args, **options):
            if str(path) == str(chunk.path):
                raise OSError(number, os.strerror(number), path)
            return real(path, *args, **options)

        monkeypatch.setattr(os, "open", fails)
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


@every_way
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


SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np, zarr
from stored_arrays import created, fill
from zarr.storage import LocalStore

disk, reports = Path(sys.argv[1]), {}  # of 1 MiB; a chunk of 4 MiB is mostly holes
names = ("row", "column", "new", "new column", "filled")
arrays = {
    name: created(LocalStore(disk / name), (512, 8192), "u1", fill_value=9 * (name == "filled"))
    for name in names
}
with zarr.config.set({"codec_pipeline.path": "zarr_bytes.BatchedBytesPipeline"}):
    for name in ("whole", "in another order"):
        arrays[name] = created(LocalStore(disk / name), (300, 1000), "u1")
        arrays[name][...] = 7
for name in names:
    (disk / name / "c/0").mkdir(parents=True, exist_ok=True)
    if name in ("row", "column"):
        arrays[name][:2, :100] = 7
fill(disk)
for name, array in arrays.items():
    path = disk / name / "c/0/0"
    before = path.read_bytes() if path.exists() else None
    value = np.full(array.shape, 5, "u1", order="F" if name == "in another order" else "C")
    selections = {"column": np.s_[:, 5], "new": np.s_[3:], "new column": np.s_[:, 5]}
    selection = selections.get(name, np.s_[...] if array.shape[0] == 300 else np.s_[3])
    report = reports[name] = {"path": str(path)}
    try:
        array[selection] = value[selection]
    except OSError as error:
        report |= {"errno": error.errno, "error": str(error)}
    report["temporary"] = [str(p) for p in disk.rglob("*.partial")]
    after = path.read_bytes() if path.exists() else None
    if name in ("row", "column"):
        before = np.frombuffer(before, "u1").reshape(array.shape).copy()
        after = np.frombuffer(after, "u1").reshape(array.shape).copy()
        before[selection] = after[selection] = 0
        before, after = before.tobytes(), after.tobytes()
    report["all else stays"] = before == after
print(json.dumps(reports))
"""


def test_a_full_disk(tmp_path):
    """A file system of 1 MiB is full, while parts of chunks and whole ones are written."""
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=1m none '{disk}'"
    if subprocess.run(["unshare", "-Urm", "sh", "-c", mount], capture_output=True).returncode:  # noqa: S607
        pytest.skip("no permission to mount a file system")
    run = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*run, SCRIPT, disk], capture_output=True, text=True, check=False, env=os.environ | path
    )
    assert done.returncode == 0, done.stderr
    parts, new = {"row", "column"}, {"new", "new column", "filled"}
    reports = json.loads(done.stdout)
    assert reports.keys() == {*parts, *new, "whole", "in another order"}
    for name, report in reports.items():
        assert report["errno"] == errno.ENOSPC, name
        assert re.search(r"byte \d+ of the chunk could not be written", report["error"]), name
        outcome = "made" if name in new else "replaced"
        said = r"; \d+ bytes of the selection" if name in parts else f"has not been {outcome}"
        assert re.search(said, report["error"]), name
        assert report["path"] in report["error"], name
        assert report["temporary"] == [], name
        assert report["all else stays"], name


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


cancellable = pytest.mark.parametrize(
    "way", ["BatchedCodecPipeline", "BatchedBytesPipeline", "shard"], indirect=True
)


class TestCancelling:
    @cancellable
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

    if HAS_FUSED_PIPELINE:

        def test_zarrs_fused_pipeline_writes_every_chunk_all_the_same(self, tmp_path, monkeypatch):
            with zarr.config.set({"codec_pipeline.path": PIPELINES["FusedCodecPipeline"]}):
                array, stop = array_of_rows(tmp_path, 4), Stop()
            pwrite, written, all_are_written = os.pwrite, [], threading.Event()

            def writing(*args):
                stop()
                written.append(pwrite(*args))
                if len(written) == 4:
                    all_are_written.set()
                return written[-1]

            monkeypatch.setattr(os, "pwrite", writing)
            stop.cancelled(array.async_array.setitem(np.s_[:, :5], 5))
            assert all_are_written.wait(30)
            assert rows_written(tmp_path) == set("0123")

    @cancellable
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


class TestAfterAnError:
    """What zarr's default pipeline does with the other chunks; ours is in `test_pipeline`."""

    def test_zarrs_default_pipeline_writes_them(self, tmp_path):
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            array = array_of_rows(tmp_path, 40)
        os.truncate(tmp_path / "c/0/0", 39)

        async def failing():
            with pytest.raises(ChunkSizeError, match="c/0/0 are 40 bytes, found 39"):
                await array.async_array.setitem(np.s_[:, :5], 5)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run(failing())
        assert rows_written(tmp_path) == {str(i) for i in range(1, 40)}

    if HAS_FUSED_PIPELINE:

        def test_zarrs_fused_pipeline_begins_none(self, tmp_path):
            with zarr.config.set({"codec_pipeline.path": PIPELINES["FusedCodecPipeline"]}):
                array = array_of_rows(tmp_path, 40)
            os.truncate(tmp_path / "c/0/0", 39)
            with (
                zarr.config.set({"codec_pipeline.max_workers": 1}),
                watched(tmp_path) as files,
                pytest.raises(ChunkSizeError, match="c/0/0 are 40 bytes, found 39"),
            ):
                array[:, :5] = 5
            assert len(files.opened) <= 20
