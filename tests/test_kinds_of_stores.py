"""How bytes come from each kind of store: in files that are opened here, by requests, or whole.

Stores write their own chunks here, so that the names of files are theirs.
"""

from pathlib import Path

import numpy as np
import pytest
import zarr
from stored_arrays import IN_PLACE, PLAIN_ZARR, numbers
from zarr.storage import FsspecStore, LocalStore, LoggingStore, ObjectStore, WrapperStore, ZipStore

from zarr_bytes import StoreError, counting, explain, view

fsspec = pytest.importorskip("fsspec")
obstore = pytest.importorskip("obstore.store")
AsyncFileSystemWrapper = pytest.importorskip(
    "fsspec.implementations.asyn_wrapper"
).AsyncFileSystemWrapper
LocalFileSystem = fsspec.get_filesystem_class("file")

VALUES = numbers((400, 400))  # one chunk of 1,280,000 bytes, more than any gap
POINT = (7, 300)


class Elsewhere(WrapperStore):
    """Of a class that is not known, and may be anywhere."""


def wrapped_fsspec(folder):
    files = AsyncFileSystemWrapper(LocalFileSystem(auto_mkdir=True), asynchronous=True)
    return FsspecStore(files, path=str(folder))


def of_url(folder):
    return FsspecStore.from_url(f"file://{folder}", storage_options={"auto_mkdir": True})


def of_obstore(folder):
    return ObjectStore(obstore.LocalStore(folder, mkdir=True))


FILES = {"fsspec": wrapped_fsspec, "fsspec by URL": of_url, "obstore": of_obstore}
every_store_of_files = pytest.mark.parametrize("store_of", FILES.values(), ids=FILES)


def created(store, name=None, values=VALUES):
    """An array of one chunk that the store itself has written."""
    with zarr.config.set(PLAIN_ZARR):
        zarr.create_array(store, name=name, data=values, chunks=values.shape, compressors=None)
    return zarr.open_array(store, path=name or "")


def cost_of(array, selection=POINT, values=VALUES):
    """Opens, requests and bytes of a read, which finds what NumPy selects."""
    with counting() as counted:
        assert np.array_equal(array[selection], values[selection])
    explained = explain(array, selection)
    assert (explained.opens, explained.requests) == (counted.opens, counted.requests)
    return counted.opens, counted.requests, counted.bytes_fetched


class TestFilesOfOtherStores:
    @every_store_of_files
    def test_a_point_is_its_bytes_of_a_file_that_is_opened_once(self, tmp_path, store_of):
        assert cost_of(created(store_of(tmp_path))) == (1, 0, 8)

    @pytest.mark.parametrize("store_of", [wrapped_fsspec, of_obstore])
    @pytest.mark.parametrize("folder", ["a b", "a%20b", "a#b", "a?b", "ü"])
    def test_the_folder_may_have_any_name(self, tmp_path, store_of, folder):
        assert cost_of(created(store_of(tmp_path / folder))) == (1, 0, 8)

    @pytest.mark.parametrize(("store_of", "opens"), [(wrapped_fsspec, True), (of_obstore, False)])
    def test_a_link_that_is_moved_is_followed_as_by_the_store(self, tmp_path, store_of, opens):
        """obstore keeps the folder that it has found when the store was made."""
        for name, values in ("a", VALUES), ("b", VALUES + 1):
            created(LocalStore(tmp_path / name), values=values)
        (tmp_path / "link").symlink_to(tmp_path / "a")
        array = zarr.open_array(store_of(tmp_path / "link"))
        assert cost_of(array)[0] == opens
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(tmp_path / "b")
        assert array[POINT] == VALUES[POINT] + opens

    @every_store_of_files
    @pytest.mark.parametrize("name", ["a/b", "a b", "a%20b", "a#b", "a#1", "a?b", "ü", "~", "a*"])
    def test_arrays_of_any_name_are_found_as_by_the_store(self, tmp_path, store_of, name):
        cost_of(created(store_of(tmp_path), name))

    @every_store_of_files
    def test_a_missing_chunk_is_the_fill_value(self, tmp_path, store_of):
        array = created(store_of(tmp_path))
        next(tmp_path.glob("c/*/*")).unlink()
        assert array[POINT] == 0

    @every_store_of_files
    def test_writes_are_those_of_the_store(self, tmp_path, store_of):
        with zarr.config.set(IN_PLACE):
            array = created(store_of(tmp_path))
        assert not explain(array, POINT, write=True).may_share
        with counting() as counted:
            array[POINT] = -1
        assert (counted.opens, counted.requests) == (0, 2)  # a `get` and a `set`
        assert array[POINT] == -1
        with pytest.raises(StoreError, match="must be a LocalStore or a MemoryStore"):
            view(array)

    def test_a_relative_folder_is_where_the_store_says(self, tmp_path, monkeypatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        stores = wrapped_fsspec("data"), of_obstore(Path("other"))
        arrays = [created(store) for store in stores]
        assert [cost_of(array)[:2] for array in arrays] == [(0, 1), (0, 1)]
        monkeypatch.chdir("elsewhere")
        assert arrays[0][POINT] == 0  # fsspec looks there now
        assert arrays[1][POINT] == VALUES[POINT]

    @pytest.mark.parametrize(
        "allowed", [(FileNotFoundError,), (FileNotFoundError, IsADirectoryError, OSError)], ids=str
    )
    def test_a_store_that_takes_other_errors_for_missing_chunks_is_asked(self, tmp_path, allowed):
        created(LocalStore(tmp_path))
        files = AsyncFileSystemWrapper(LocalFileSystem(), asynchronous=True)
        store = FsspecStore(files, path=str(tmp_path), allowed_exceptions=allowed)
        assert cost_of(zarr.open_array(store))[:2] == (0, 1)

    def test_a_class_that_derives_from_the_store_or_the_file_system_is_asked(self, tmp_path):
        class Files(LocalFileSystem):
            pass

        class Store(FsspecStore):
            pass

        of_files = AsyncFileSystemWrapper(Files(auto_mkdir=True), asynchronous=True)
        of_store = AsyncFileSystemWrapper(LocalFileSystem(auto_mkdir=True), asynchronous=True)
        for number, store in enumerate(
            [
                FsspecStore(of_files, path=f"{tmp_path}/0"),
                Store(of_store, path=f"{tmp_path}/1"),
            ]
        ):
            assert cost_of(created(store))[:2] == (0, 1), number


class TestWrappers:
    @pytest.mark.parametrize("wrapper", [WrapperStore, LoggingStore])
    def test_a_wrapper_around_a_folder_sees_each_get_and_costs_little(self, tmp_path, wrapper):
        created(LocalStore(tmp_path))
        array = zarr.open_array(wrapper(LocalStore(tmp_path)))
        assert cost_of(array) == (0, 1, 8)
        # Two points whose gap is read over, and two whose gap is longer than that of this kind.
        assert cost_of(array, np.s_[7:335:327, 300])[:2] == (0, 1)
        assert cost_of(array, np.s_[7:337:329, 300])[:2] == (0, 2)

    def test_a_wrapper_around_memory_reads_whole_chunks(self):
        array = created(WrapperStore(zarr.storage.MemoryStore()))
        assert cost_of(array) == (0, 1, VALUES.nbytes)
        assert "in memory" in explain(array, POINT).reason

    def test_a_class_that_derives_from_a_wrapper_is_remote(self, tmp_path):
        class Wrapper(WrapperStore):
            pass

        created(LocalStore(tmp_path))
        array = zarr.open_array(Wrapper(LocalStore(tmp_path)))
        assert "zarr_bytes.gap.remote" in explain(array, np.s_[::2, 300]).reason


def test_chunks_in_the_memory_of_obstore_are_read_whole():
    array = created(ObjectStore(obstore.MemoryStore()))
    assert cost_of(array) == (0, 1, VALUES.nbytes)
    assert "in memory" in explain(array, POINT).reason


class TestMemoryOfFsspec:
    """It copies what it is asked for, some 1 MiB in the time of a call."""

    def store(self, folder):
        files = AsyncFileSystemWrapper(fsspec.filesystem("memory"), asynchronous=True)
        return FsspecStore(files, path=str(folder))

    def test_a_chunk_of_less_than_a_mib_is_read_whole(self, tmp_path):
        values = VALUES[:325]
        assert cost_of(created(self.store(tmp_path), values=values), POINT, values) == (
            (0, 1, values.nbytes)
        )

    def test_of_a_larger_chunk_a_part_is_read_with_gaps_of_up_to_a_mib(self, tmp_path):
        """Of rows of 3,200 bytes."""
        array = created(self.store(tmp_path))
        assert cost_of(array) == (0, 1, 8)
        assert cost_of(array, np.s_[:400:327, 300])[:2] == (0, 1)
        assert cost_of(array, np.s_[:400:329, 300])[:2] == (0, 2)

    def test_a_large_chunk_is_read_in_parts_of_up_to_16_mib(self, tmp_path):
        """Once it is known to answer ranges: smaller parts come into memory that is used again."""
        values = numbers((5, 2**20))  # of 40 MiB
        array = created(self.store(tmp_path), values=values)
        array[0, 0]
        assert cost_of(array, ..., values) == (0, 3, values.nbytes)


def test_a_gap_in_a_zip_file_is_that_of_a_store_that_is_asked(tmp_path):
    """A call costs more than one of the system: 90 rows of 3,200 bytes are a gap too long."""
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        created(store)
    with ZipStore(tmp_path / "a.zip") as store:
        array = zarr.open_array(store, mode="r")
        assert cost_of(array, np.s_[7:80:72, 300])[:2] == (0, 1)
        assert cost_of(array, np.s_[7:100:90, 300])[:2] == (0, 2)
        with zarr.config.set({"zarr_bytes.gap.local": 10}):
            assert cost_of(array, np.s_[7:20:12, 300])[:2] == (0, 2)


@pytest.mark.parametrize(("class_", "rounds"), [(WrapperStore, 4), (Elsewhere, 2)])
def test_more_small_requests_than_zarr_has_are_at_once_where_a_server_is_waited_for(
    tmp_path, class_, rounds
):
    """Of 40 chunks: 32 requests at a time, and ten of a store on this machine."""
    with zarr.config.set(PLAIN_ZARR):
        zarr.create_array(tmp_path, data=VALUES[:40], chunks=(1, 400), compressors=None)
    array = zarr.open_array(class_(LocalStore(tmp_path)))
    with counting() as counted:
        assert np.array_equal(array[:], VALUES[:40])
    explained = explain(array, ...)
    assert (explained.requests, counted.requests) == (40, 40)
    assert explained.rounds == rounds
