"""Threads, other processes, descriptors, permissions, and claims: what surrounds a read."""

import errno
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zarr
from documents import document_of, memory
from fuzz import store_with
from stored_arrays import IN_PLACE, CountingStore, contents_of, most_memory, numbers, stored
from system_calls import as_somebody_else
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BytesCodec, ChunkSizeError

NEEDS_POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")


def test_threads_read_from_one_array(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((4, 6)))
    with ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(array.get_basic_selection, range(4)))
    assert np.array_equal(rows, numbers((4, 6)))


@pytest.mark.slow
class TestThreads:
    """Settings are the process's: a read takes those of the moment, and its values are the same."""

    STEPS, VALUES = 12, numbers((16, 60, 500))
    SETTINGS = [
        *({"zarr_bytes.gap": {"local": gap, "remote": gap}} for gap in (0, 2**20)),
        {"zarr_bytes.largest_request": {"local": 1000, "remote": 1000}},
        *({"zarr_bytes.partial_reads": is_on} for is_on in (False, True)),
        {"zarr_bytes.fill_values": "lenient"},
        *({"async.concurrency": number} for number in (3, 10)),
    ]

    def read(self, store, plane):
        random = np.random.default_rng(plane)
        for _ in range(self.STEPS):
            array = zarr.open_array(store, mode="r")
            assert type(array.metadata.codecs[0]) is BytesCodec
            row, column = random.integers(0, 60), random.integers(0, 500)
            for selection in np.s_[:8, row], np.s_[:8, :, column], np.s_[plane], np.s_[:8]:
                assert np.array_equal(array[selection], self.VALUES[selection])

    def write(self, store, plane):
        array = zarr.open_array(store, mode="r+")
        for step in range(self.STEPS):
            array[plane, :, step] = -plane
            array[plane] = self.VALUES[plane] + step
            assert np.array_equal(array[plane, 3], self.VALUES[plane, 3] + step)

    def change_settings(self):
        for step in range(self.STEPS * 20):
            zarr.config.set(self.SETTINGS[step % len(self.SETTINGS)])

    @pytest.mark.parametrize("kind", ["local", "requests"])
    def test_reading_and_writing_while_settings_change_and_arrays_open(self, kind, tmp_path):
        store = LocalStore(tmp_path) if kind == "local" else CountingStore(MemoryStore())
        stored(store, self.VALUES, chunks=(1, 60, 500))
        before = {"zarr_bytes": {}, "async.concurrency": 10}
        with zarr.config.set(before), ThreadPoolExecutor(10) as threads:
            jobs = [threads.submit(self.read, store, plane) for plane in range(4)]
            jobs += [threads.submit(self.write, store, plane) for plane in range(8, 12)]
            jobs.append(threads.submit(self.change_settings))
            for job in jobs:
                job.result()
        array = zarr.open_array(store, mode="r")
        assert np.array_equal(array[8:12], self.VALUES[8:12] + self.STEPS - 1)


CHANGING = """
import os, sys
path = sys.argv[1]
old = open(path, "rb").read()
new = bytes([2]) * len(old)

def put(content):
    open(path + ".new", "wb").write(content)
    os.replace(path + ".new", path)

def overwrite(content):
    open(path, "r+b").write(content)

print(flush=True)
while True:
    eval(sys.argv[2])
"""
# What another process does to a file of ones again and again; the values that one read may give, or
# an error; and those of these that come.
CHANGES = {
    "replaced": ("put(new), put(old)", [{1}, {2}], [{1}, {2}]),
    "overwritten": ("overwrite(new), overwrite(old)", [{1}, {2}, {1, 2}], [{1}, {2}]),
    "truncated": (  # zeros, where the system clears the end of a page while another call reads it
        "put(old), os.truncate(path, len(old) // 2)",
        [{1}, {0}, {0, 1}, "error"],
        [{1}, "error"],
    ),
}


@pytest.mark.slow
@NEEDS_POSIX
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_another_process_changes_gives_its_versions_or_an_error(tmp_path, change):
    """A chunk of 2,000,000 bytes; test_meanwhile has each moment of a read."""
    code, permitted, coming = CHANGES[change]
    array, path = stored(LocalStore(tmp_path), np.ones(2_000_000, "u1"), fill_value=9), "c/0"
    command = [sys.executable, "-W", "ignore", "-c", CHANGING, tmp_path / path, code]
    found, rounds, end = [], 0, time.monotonic() + 10
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            while rounds < 20 or (time.monotonic() < end and not all(c in found for c in coming)):
                for selection in (..., np.s_[500_000:1_500_000], np.s_[::100_000], 1_999_999):
                    try:
                        found.append(set(np.unique(array[selection]).tolist()))
                    except ChunkSizeError as error:
                        found.append("error")
                        assert f"{tmp_path / path} are " in str(error)  # noqa: PT017
                rounds += 1
            assert process.poll() is None, "it is still at work"
        finally:
            process.kill()
    assert all(each in found for each in coming)
    assert all(each in permitted for each in found)


@pytest.mark.slow
@NEEDS_POSIX
class TestFileDescriptors:
    def test_a_read_without_free_file_descriptors_is_an_error_and_the_next_reads_again(
        self, tmp_path
    ):
        resource, values = pytest.importorskip("resource"), numbers((50, 5000))
        array, selections = stored(LocalStore(tmp_path), values), (..., 3, (3, 7), np.s_[:, 7])
        most = resource.getrlimit(resource.RLIMIT_NOFILE)

        def read():
            assert all(np.array_equal(array[s], values[s]) for s in selections)

        read()
        with ExitStack() as taken:
            taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, most[1]))
            with suppress(OSError):
                while True:
                    taken.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            for selection in selections:
                with pytest.raises(OSError, match="c/0/0") as caught:
                    array[selection]
                assert caught.value.errno == errno.EMFILE
        read()
        gc.collect()
        left = [*Path("/dev/fd").iterdir()]
        for _ in range(100):
            read()
        assert len([*Path("/dev/fd").iterdir()]) == len(left)


@NEEDS_POSIX
def test_a_process_without_standard_input_reads_files(tmp_path):
    stored(LocalStore(tmp_path), numbers((50, 5000)))
    code = "import os, sys, zarr; array = zarr.open_array(sys.argv[1], mode='r'); os.close(0)"
    command = [sys.executable, "-c", f"{code}; print(array[3, 7], array[4, 7])", tmp_path]
    assert subprocess.check_output(command, text=True) == "15007.0 20007.0\n"


class TestPermissions:
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    def test_a_store_that_is_opened_for_reading_is_not_written(self, tmp_path, way):
        stored(LocalStore(tmp_path), numbers((50, 5000)))
        before = contents_of(LocalStore(tmp_path))
        with zarr.config.set(way):
            array = zarr.open_array(LocalStore(tmp_path, read_only=True), mode="r")
        assert array[3, 7] == 15007
        with pytest.raises(ValueError, match="read-only"):
            array[3, 7] = 0
        assert contents_of(LocalStore(tmp_path)) == before

    @NEEDS_POSIX
    def test_a_chunk_that_may_not_be_read_is_an_error_and_not_missing(self):
        with tempfile.TemporaryDirectory() as folder:  # others may not enter pytest's own
            root, values = Path(folder) / "a.zarr", numbers((100, 5000))
            array = stored(LocalStore(root), values, chunks=(50, 5000))
            for path in [Path(folder), *Path(folder).rglob("*")]:
                path.chmod(0o555 if path.is_dir() else 0o444)
            (root / "c/1/0").chmod(0)
            with as_somebody_else():
                for selection in (3, 7), 3, slice(50):
                    assert np.array_equal(array[selection], values[selection])
                for selection in (73, 7), 73, slice(50, 100):
                    with pytest.raises(PermissionError) as caught:
                        array[selection]
                    assert caught.value.filename == str(root / "c/1/0")
                with pytest.raises(PermissionError):
                    array[3, 7] = 0


class TestWhatAStoreClaims:
    """Metadata that somebody else wrote, read with little memory and no trust in its names."""

    @pytest.mark.parametrize("kind", ["local", "zip", "memory", "requests"])
    def test_a_chunk_that_claims_to_be_huge_takes_no_memory(self, kind, tmp_path):
        """One of 32 TiB, of which 4 bytes are there."""
        document = document_of("uint8", [2**45], [2**45], "little")
        objects = {"zarr.json": json.dumps(document).encode(), "c/0": b"\1\2\3\4"}
        array = zarr.open_array(store_with(kind, objects, tmp_path))

        def fail(act):
            with pytest.raises(ChunkSizeError, match="truncated"):
                act()

        for selection in np.s_[5], np.s_[2:9], np.s_[:: 2**40]:
            assert most_memory(lambda: fail(lambda: array[selection]))[1] < 2**20  # noqa: B023
        if kind == "local":  # where the whole chunk is read
            fail(lambda: array.set_basic_selection(5, 1))
            with zarr.config.set({"zarr_bytes.partial_reads": False}):
                fail(lambda: array[5])
        array.store_path.store.close()

    @pytest.mark.parametrize("name", ["os.system", "antigravity", "antigravity:fly", "../x"])
    @pytest.mark.parametrize("member", ["data_type", "codecs"])
    def test_no_name_in_metadata_imports_a_module(self, member, name):
        document = document_of("uint8", [2], [2], "little")
        document[member] = name if member == "data_type" else [{"name": name}]
        with pytest.raises((ValueError, KeyError), match=name):
            zarr.open_array(memory({"": document}), mode="r")
        assert "antigravity" not in sys.modules

    @pytest.mark.parametrize("separator", ["/../", "..", "", "/etc/", "\x00"])
    def test_no_separator_leads_chunk_keys_out_of_the_store(self, separator):
        encoding = {"name": "default", "configuration": {"separator": separator}}
        document = document_of("uint8", [2, 2], chunk_key_encoding=encoding)
        with pytest.raises(ValueError, match="separator"):
            zarr.open_array(memory({"": document}), mode="r")

    @NEEDS_POSIX
    def test_a_link_in_the_place_of_a_chunk_is_followed_as_zarr_follows_it(self, tmp_path):
        stored(LocalStore(tmp_path / "a.zarr"), np.array([1, 2], "u1"))
        chunk = tmp_path / "a.zarr/c/0"
        chunk.symlink_to(chunk.rename(tmp_path / "elsewhere"))
        assert zarr.open_array(tmp_path / "a.zarr", mode="r")[...].tolist() == [1, 2]

    def test_a_changed_byte_is_read_as_it_is_unless_a_codec_has_a_checksum(self):
        document = document_of("uint8", [2], [2], "little")
        checksum = google_crc32c.value(b"\1\2").to_bytes(4, "little")
        for codecs, end in (([], b""), ([{"name": "crc32c"}], checksum)):
            document["codecs"] += codecs
            for content in b"\1\2", b"\1\3":
                objects = {"zarr.json": json.dumps(document).encode(), "c/0": content + end}
                array = zarr.open_array(store_with("memory", objects, None))
                if codecs and content == b"\1\3":
                    with pytest.raises(ValueError, match="checksum"):
                        array[...]
                else:
                    assert array[...].tolist() == [*content]
