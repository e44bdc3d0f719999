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
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from shards import index_of
from stored_arrays import KINDS_OF_NO_FILE, behind_a_link, created, numbers, put, stored
from system_calls import (
    Stop,
    as_somebody_else,
    before_each,
    fail_at,
    leased,
    mounted_as,
    watched,
    written_to,
)
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore

from zarr_bytes import BytesCodec, ChunkFileError, ChunkSizeError, preallocate
from zarr_bytes.io import range_writing
from zarr_bytes.io.known_stores import known_stores

pytest.importorskip("resource", reason="files are written in place on POSIX systems")

SHAPE = (3000, 40)  # of 4 bytes: 480,000, so that a column is three batches of a mapping
ROW, COLUMN = np.s_[7], np.s_[:, 3]
BIG = BytesCodec(endian="big")
# Inner chunks are whole rows, so that the elements lie in the shard as in a chunk.
LAYOUTS = {"chunk": {}, "shard": {"serializer": ShardingCodec(chunk_shape=(500, 40), codecs=[BIG])}}
INDEX = index_of([(80_000 * i, 80_000) for i in range(6)])
TEMPORARY = f"0.{32 * 'a'}.partial"  # of a writer that was killed, or is not done

is_root = os.geteuid() == 0


class Chunk:
    """An array of one chunk or shard, and its file."""

    def __init__(self, folder, **options):
        self.array = created(LocalStore(folder), SHAPE, "i4", **options)
        self.path = folder / "c/0/0"
        self.index = INDEX if self.array.shards else b""

    def full_of(self, number):
        self.array[...] = number
        return self

    def content(self, number):
        """What the file holds where every element is a number."""
        return np.full(SHAPE, number, ">i4").tobytes() + self.index

    def put_another(self, name="0"):
        """One full of 8."""
        other = self.path.with_name("other")
        other.write_bytes(self.content(8))
        other.replace(self.path.with_name(name))

    @contextmanager
    def staying(self):
        """It is the same file afterwards."""
        inode = self.path.stat().st_ino
        yield
        assert self.path.stat().st_ino == inode

    def check(self, selection, number, of=7):
        """The file holds a number in a selection, and another one elsewhere."""
        expected = np.full(SHAPE, of, "i4")
        expected[selection] = number
        found = np.fromfile(self.path, ">i4", np.prod(SHAPE)).reshape(SHAPE)
        assert np.array_equal(found, expected)


@pytest.fixture
def folder():
    """A folder that every user may use; it must hold no temporary file in the end."""
    path, umask = Path(tempfile.mkdtemp()), os.umask(0o022)
    path.chmod(0o777)
    yield path
    left = [p.name for p in path.rglob("*.partial") if p.name != TEMPORARY]
    shutil.rmtree(path, ignore_errors=True)
    os.umask(umask)
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
    monkeypatch.setattr(known_stores, "is_on_local_file_system", lambda descriptor: True)


def without_numbers_of_names(chunk, monkeypatch):
    """As on some network file systems."""
    fstat = os.fstat

    def without(file):
        status = list(fstat(file))
        status[stat.ST_NLINK] = 0
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", without)


def with_a_temporary_name(chunk, monkeypatch, *, goes=False):
    """That of a killed writer; or whoever makes the chunk is done just now."""
    temporary = chunk.path.with_name(TEMPORARY)
    os.link(chunk.path, temporary)
    if goes:
        fail_at(monkeypatch, "scandir", 0, before=temporary.unlink)


FILES_THAT_STAY = {
    # Without the rights of root, its owner alone opens a file of one's own.
    **{
        f"with the mode {mode:o}": lambda chunk, _, mode=mode: chunk.path.chmod(mode)
        for mode in [0o644, *[0o464, 0o446] * is_root]
    },
    "of one who was killed": with_a_temporary_name,
    "of one who makes it now": partial(with_a_temporary_name, goes=True),
    "without a number of names": without_numbers_of_names,
}
FILES_THAT_ARE_REPLACED = {  # what is done to the file, and who writes
    "with another name elsewhere": (lambda p: os.link(p, p.parents[2] / "backup"), nullcontext),
    "with another name beside it": (lambda p: os.link(p, f"{p}.backup"), nullcontext),
    "with another name, beside what a killed writer has left": (
        lambda p: (os.link(p, f"{p}.backup"), p.with_name(TEMPORARY).touch()),
        nullcontext,
    ),
    "behind a symbolic link": (behind_a_link, nullcontext),
    "that nobody may write": (lambda p: p.chmod(0o444), as_somebody_else),
    "that nobody may write, written by root": (lambda p: p.chmod(0o444), nullcontext),
    "that its owner may write": (lambda p: p.chmod(0o644), as_somebody_else),
}
WITHOUT_PERMISSION = {  # whether the folder or the chunk is there; selection, number, outcome
    "part, no folder": (None, ROW, 5, "made"),
    "whole, missing": (False, ..., 5, "replaced"),
    "part": (True, ROW, 5, "replaced"),  # a file that must not be written either
    "empty": (True, ..., 0, "deleted"),
}


def test_a_row_is_written_in_place(chunk):
    with chunk.staying():
        chunk.array[ROW] = 5
    chunk.check(ROW, 5)


class TestWhatIsThere:
    @pytest.mark.parametrize("case", FILES_THAT_STAY)
    def test_a_chunk_file_of_its_own_is_written_in_place(self, chunk, selection, monkeypatch, case):
        FILES_THAT_STAY[case](chunk, monkeypatch)
        with chunk.staying():
            chunk.array[selection] = 5
        chunk.check(selection, 5)

    @pytest.mark.parametrize("case", FILES_THAT_ARE_REPLACED)
    def test_a_chunk_file_that_must_not_be_changed_in_place_is_replaced(
        self, chunk, selection, case
    ):
        change, as_writer = FILES_THAT_ARE_REPLACED[case]
        if "owner" in case and not is_root:
            pytest.skip("a file of another owner: needs the user root")
        change(chunk.path)
        chunk.path.parent.chmod(0o777)
        with chunk.path.open("rb") as before, as_writer():
            chunk.array[selection] = 5
            assert before.read() == chunk.content(7)
            assert not os.path.samestat(os.fstat(before.fileno()), chunk.path.lstat())
        assert stat.S_IMODE(chunk.path.lstat().st_mode) == 0o644  # and no symbolic link
        chunk.check(selection, 5)
        with written_to(chunk.path) as ranges:
            chunk.array[0, 0] = 6
        assert ranges == [(0, 4)]  # from now on it is the chunk's alone

    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_a_fifo_or_device_at_the_path_of_a_chunk_is_refused_without_waiting(
        self, missing, kind
    ):
        path, arrays = missing.path, [missing.array]
        for name in PIPELINES if not missing.index else ["BatchedBytesPipeline"]:
            with zarr.config.set({"codec_pipeline.path": PIPELINES[name]}):
                arrays.append(zarr.open_array(missing.array.store, mode="r+"))
        assert [array[0, 0] for array in arrays] == [0] * len(arrays)  # now the store is known
        put(kind, path)
        before = path.lstat()
        kind = kind.removeprefix("link to a ")
        named = f"^{re.escape(str(path))} is a {kind}, and a chunk is a regular file: move it out"
        acts = [partial(a.__getitem__, s) for a in arrays for s in (..., ROW, np.s_[0, 2:5])]
        for array in arrays[0], arrays[-1]:  # written in place, and replaced
            for number in 0, 5:  # the fill value and another one
                acts += [partial(array.__setitem__, s, number) for s in (..., ROW)]
        for act in acts:
            with pytest.raises(ChunkFileError, match=named):
                act()
        assert os.path.samestat(path.lstat(), before)

    def test_a_file_where_a_folder_should_be_is_a_missing_chunk_and_an_error_of_a_write(
        self, missing
    ):
        above = missing.path.parents[1]
        above.write_text("of somebody")
        missing.array[...] = 0  # a chunk that is not stored
        assert not missing.array[3].any()
        with pytest.raises(OSError, match=re.escape(str(missing.path))):
            missing.array[ROW] = 5
        assert above.read_text() == "of somebody"

    @pytest.mark.parametrize("case", WITHOUT_PERMISSION)
    def test_a_write_to_a_read_only_folder_names_the_folder(self, missing, folder, case):
        is_there, selected, number, outcome = WITHOUT_PERMISSION[case]
        if is_there is not None:
            folder = missing.path.parent
            folder.mkdir(parents=True)
        if is_there:
            missing.full_of(7).path.chmod(0o444)
        folder.chmod(0o555)
        message = (
            rf"Permission denied: the chunk has not been {outcome};"
            rf" to write '{missing.path.relative_to(folder)}', make this folder writable:"
            rf" '{re.escape(str(folder))}'$"
        )
        with as_somebody_else(), pytest.raises(PermissionError, match=message):
            missing.array[selected] = number

    def test_an_unreadable_chunk_file_is_replaced_whole_and_not_written_in_part(self, chunk):
        chunk.path.parent.chmod(0o777)
        chunk.path.chmod(0o200)
        with as_somebody_else():
            with pytest.raises(PermissionError, match=f"denied: '{re.escape(str(chunk.path))}'"):
                chunk.array[ROW] = 6
            chunk.array[...] = 5
        chunk.check(..., 5)

    @pytest.mark.parametrize("number", [errno.EROFS, errno.EPERM], ids=["file system", "file"])
    @pytest.mark.parametrize(("value", "outcome"), [(5, "replaced"), (0, "deleted")])
    def test_a_read_only_file_or_file_system_is_an_error_that_names_it(
        self, chunk, number, value, outcome
    ):
        def act(call, path=None, flags=0, *_):
            if call in ("unlink", "replace") or (call == "open" and flags & os.O_RDWR):
                raise OSError(number, os.strerror(number), path)

        said, path = f"{os.strerror(number)}: the chunk has not been {outcome}", chunk.path
        if number == errno.EROFS:
            said, path = f"{said}; to write '0', make this folder writable", path.parent
        with before_each(act), pytest.raises(OSError, match=rf"\] {said}: '{path}'$"):
            chunk.array[...] = value
        chunk.check(..., 7)

    @pytest.mark.parametrize("made", [None, "0", "nothing"])
    def test_a_dangling_symbolic_link_at_the_path_of_a_chunk_is_replaced(
        self, missing, monkeypatch, made
    ):
        missing.path.parent.mkdir(parents=True)
        missing.path.symlink_to("nothing")
        fail_at(monkeypatch, "fstat", 0, before=made and partial(missing.put_another, made))
        missing.array[ROW] = 5
        missing.check(ROW, 5, of=8 if made else 0)
        assert not missing.path.is_symlink()

    @pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
    @pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
    def test_a_chunk_file_with_a_lease_is_waited_for(self, chunk, is_written, is_link):
        leased_file = chunk.path
        if is_link:
            leased_file = chunk.path.rename(chunk.path.with_name("of another name"))
            chunk.path.symlink_to(leased_file)
        with nullcontext() if is_link else chunk.staying(), leased(leased_file):
            if is_written:
                chunk.array[ROW] = 5
            else:
                assert (chunk.array[ROW] == 7).all()
        chunk.check(ROW, 5 if is_written else 7)


def test_a_chunk_larger_than_any_file_is_an_error_of_the_system(tmp_path):
    for number in 2**59, 2**61:  # of more bytes than 63 bits count
        array = created(LocalStore(tmp_path / str(number)), (number,), "i4")
        for act in partial(array.__setitem__, 5, 1), partial(preallocate, array):
            with pytest.raises(OSError, match=r"File too large: .* has not been made: '.*/c/0'"):
                act()


class TestOthersAtTheSameMoment:
    """What another process may do between two system calls, that `test_meanwhile.py` has not."""

    @pytest.mark.parametrize("of", [8, 0], ids=["replaced", "deleted"])
    @pytest.mark.parametrize("call", ["fstat", "open"])  # of a file that somebody has a lease on
    def test_a_write_goes_into_the_chunk_file_that_replaced_another_meanwhile(
        self, chunk, selection, monkeypatch, of, call
    ):
        """And not into the one that was opened, of which another took the name, or nothing."""
        act = chunk.put_another if of else chunk.path.unlink
        error = BlockingIOError(errno.EAGAIN, "a lease") if call == "open" else None
        fail_at(monkeypatch, call, 0, error, act)
        chunk.array[selection] = 5
        chunk.check(selection, 5, of)

    def test_a_chunk_file_that_is_replaced_again_and_again_is_an_error(self, chunk):
        message = (
            rf"^\[Errno {errno.EBUSY}\].*opened 100 times.* another process keeps replacing it.*"
            rf"nothing has been written: '{re.escape(str(chunk.path))}'$"
        )
        replaced = before_each(lambda *_: chunk.put_another(), ["fstat"])
        with replaced, pytest.raises(OSError, match=message):
            chunk.array[ROW] = 5
        assert chunk.path.read_bytes() == chunk.content(8)

    @pytest.mark.usefixtures("mapped")
    @pytest.mark.parametrize("size", [0, 4800])
    @pytest.mark.parametrize(
        ("name", "at"),
        [("memfd_create", 0), ("read_to_addresses", 0), ("read_to_addresses", 2), ("pwrite", 0)],
    )
    def test_a_file_that_is_shortened_while_it_is_mapped_is_an_error(
        self, chunk, monkeypatch, size, name, at
    ):
        """Before its first batch is prepared, or before one is copied; or a call writes to it."""
        nbytes = chunk.path.stat().st_size
        fail_at(monkeypatch, name, at, before=lambda: os.truncate(chunk.path, size))
        with pytest.raises(ChunkSizeError, match=f"{nbytes} bytes, found"):
            chunk.array[ROW if name == "pwrite" else COLUMN] = 5
        if name == "pwrite":
            return
        assert chunk.path.stat().st_size == size, "it was made longer again"
        found = np.fromfile(chunk.path, ">i4").reshape(-1, SHAPE[1])
        assert (np.delete(found, COLUMN[1], axis=1) == 7).all()


class TestFileSystems:
    @pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS])
    def test_a_new_chunk_is_written_whole_where_there_are_no_hard_links(
        self, missing, monkeypatch, number
    ):
        fail_at(monkeypatch, "link", 0, error=OSError(number, os.strerror(number)))
        missing.array[COLUMN] = 5
        missing.check(COLUMN, 5, of=0)
        assert stat.S_IMODE(missing.path.stat().st_mode) == 0o644

    def test_another_error_of_a_hard_link_is_raised(self, missing, monkeypatch):
        fail_at(monkeypatch, "link", 0, error=OSError(errno.ENOSPC, "no space"))
        with pytest.raises(OSError, match="No space left on device: the chunk has not been made"):
            missing.array[COLUMN] = 5
        assert not missing.path.exists()

    @pytest.mark.parametrize("kind", ["nfs4", "", None], ids=["network", "unknown", "no /proc"])
    def test_files_of_network_file_systems_are_not_mapped_for_writing(
        self, chunk, monkeypatch, tmp_path, kind
    ):
        calls = fail_at(monkeypatch, "read_to_addresses", 0)
        with mounted_as(kind, chunk.path, tmp_path / "mounts"):
            chunk.array[COLUMN] = 5
        assert calls == []
        chunk.check(COLUMN, 5)

    @pytest.mark.parametrize(("major", "finds"), [(8, [True] * 2), (0, [True, False])])
    def test_the_kind_of_a_file_system_is_kept_for_disks_alone(
        self, chunk, monkeypatch, tmp_path, major, finds
    ):
        """Numbers of other file systems are given again: to one of a network, perhaps."""
        monkeypatch.setattr(os, "major", lambda device: major)
        calls = fail_at(monkeypatch, "read_to_addresses", 0)
        mounts, found = tmp_path / "mounts", []
        with mounted_as("ext4", chunk.path, mounts):
            for kind in "ext4", "nfs4":
                mounts.write_text(mounts.read_text().replace("ext4", kind))
                chunk.array[COLUMN] = 5
                found.append(bool(calls))
                calls.clear()
        assert found == finds

    @pytest.mark.usefixtures("mapped")
    def test_a_write_that_a_mapping_cuts_short_is_finished_by_pwrite(self, chunk, monkeypatch):
        scatter = range_writing.read_to_addresses
        monkeypatch.setattr(
            range_writing, "read_to_addresses", lambda s, p, b: scatter(s, p[:9], b)
        )
        chunk.array[COLUMN] = np.arange(3000)
        chunk.check(COLUMN, np.arange(3000))

    @pytest.mark.usefixtures("mapped")
    def test_very_many_ranges_are_written_through_a_mapping_in_parts(self, folder):
        array = created(LocalStore(folder), (200_000, 2), "i4")
        array[:, 1] = np.arange(200_000)
        values = np.fromfile(folder / "c/0/0", ">i4").reshape(200_000, 2)
        assert (values[:, 0] == 0).all()
        assert np.array_equal(values[:, 1], np.arange(200_000))


@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk"), None], ids=["EIO", "empty"])
def test_an_error_of_a_write_names_the_file_the_offset_and_the_written_bytes(
    chunk, monkeypatch, error
):
    """The third write is cut short, and so is its rest; what is left fails, or takes nothing."""
    pwrite, sizes = os.pwrite, iter([160, 160, 100, 20])

    def stopped(file, memory, offset):
        count = pwrite(file, memory[: next(sizes, 0)], offset)
        if error and not count:
            raise error
        return count

    monkeypatch.setattr(os, "pwrite", stopped)
    message = (
        r"^\[Errno 5\] Input/output error: byte 2520 of the chunk could not be written;"
        rf" 440 bytes of the selection have been written: '{chunk.path}'$"
    )
    with pytest.raises(OSError, match=message):
        chunk.array[5:26:5] = 5
    is_written = np.zeros(SHAPE, bool)
    is_written[5:11:5] = is_written[15, :30] = True
    chunk.check(is_written, 5)


@pytest.fixture
def one_by_one():
    with zarr.config.set({"codec_pipeline.max_workers": 1, "async.concurrency": 1}):
        yield


@pytest.mark.usefixtures("one_by_one")
class TestCancelling:
    """Nothing more is begun; what has begun is completed. `test_pipeline.py` has errors."""

    @pytest.fixture(params=["chunks", "shards"])
    def rows(self, request, tmp_path):
        """An array of 40 chunks or shards of ten elements."""
        inner = ShardingCodec(chunk_shape=(1, 5), codecs=[BIG])
        options = {"serializer": inner} if request.param == "shards" else {}
        array = created(LocalStore(tmp_path), (40, 10), "i4", chunks=(1, 10), **options)
        array[...] = 7
        assert array[0, 0] == 7  # now the file system is known
        return array

    @pytest.mark.parametrize("selection", [np.s_[:, :5], np.s_[:]], ids=["part", "whole"])
    # One task, or one for each chunk; cancelled once, or again.
    @pytest.mark.parametrize(("limit", "times"), [(1, 3), (100, 1)])
    def test_a_cancelled_write_begins_no_other_chunk(
        self, rows, tmp_path, monkeypatch, limit, selection, times
    ):
        stop, expected = Stop(), np.full((40, 10), 7)
        expected[:1][selection] = 5
        fail_at(monkeypatch, "pwrite", 0, before=stop)
        with zarr.config.set({"async.concurrency": limit}), watched(tmp_path) as files:
            assert stop.cancelled(rows.async_array.setitem(selection, 5), times)
        assert {key.partition(".")[0] for key in files.keys} == {"c/0/0"}
        assert np.array_equal(rows[...], expected)
        assert not list(tmp_path.rglob("*.partial"))

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    def test_a_cancelled_read_waits_for_the_chunk_that_has_begun(self, tmp_path, monkeypatch):
        array = stored(LocalStore(tmp_path), numbers((40, 2**17)), chunks=(1, 2**17))
        stop = Stop()
        fail_at(monkeypatch, "preadv", 0, before=stop)
        with watched(tmp_path) as files:
            assert stop.cancelled(array.async_array.getitem(...))
        assert files.keys == ["c/0/0"]

    def test_the_error_of_a_cancelled_write_is_not_logged(self, chunk, monkeypatch, caplog):
        stop = Stop()
        fail_at(monkeypatch, "pwrite", 0, before=stop, error=OSError(errno.EIO, "the disk"))
        assert stop.cancelled(chunk.array.async_array.setitem(ROW, 5))
        assert [r.message for r in caplog.records if r.name == "asyncio"] == []
