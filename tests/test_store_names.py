"""Messages and results name a store by its class, and by its root or URL."""

import re

import numpy as np
import pytest
import zarr
from stored_arrays import CountingStore, contents_of, created, numbers, stored
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, WrapperStore, ZipStore

import zarr_bytes
from zarr_bytes import (
    ChunkSizeError,
    FillValueWarning,
    ShardIndexError,
    StoreError,
    counting,
    explain,
)
from zarr_bytes.io.store_names import store_name


class Talkative(CountingStore):
    """A store whose text has as many characters as that of a `ManifestStore`."""

    def __str__(self):
        return "many words\n" * 500


class InFolder(LocalStore):
    pass


class InMemory(MemoryStore):
    def __str__(self):
        return "many words\n" * 500


def in_a_file_system(url):
    pytest.importorskip("fsspec")
    return FsspecStore.from_url(url)


def in_an_object_store(name):
    obstore = pytest.importorskip("obstore.store")
    return ObjectStore(getattr(obstore, name)("https://example.org/a"))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: LocalStore("/data/a.zarr"), "file:///data/a.zarr"),
        (lambda: ZipStore("/data/a.zip"), "zip:///data/a.zip"),
        (lambda: MemoryStore({}), r"memory://\d+"),
        (lambda: InFolder("/data/a.zarr"), r"InFolder\(/data/a.zarr\)"),
        (InMemory, r"InMemory\(0x[0-9a-f]+\)"),
        (
            lambda: in_a_file_system("memory://data/a.zarr"),
            r"FsspecStore\(memory:///data/a.zarr\)",
        ),
        (lambda: WrapperStore(LocalStore("/a")), r"WrapperStore\(file:///a\)"),
        (lambda: Talkative(Talkative(InFolder("/a"))), r"Talkative\(Talkative\(InFolder\(/a\)\)\)"),
        (
            lambda: in_an_object_store("HTTPStore"),
            r'ObjectStore\(HTTPStore\("https://example.org/a"\)\)',
        ),
    ],
)
def test_a_store_is_named_by_its_class_and_its_root_or_url(make, name):
    assert re.fullmatch(name, store_name(make()))


def test_two_stores_without_a_place_have_two_names():
    stores = InMemory(), InMemory()
    assert len({*map(store_name, stores)}) == 2


def talkative(**options):
    store = Talkative(MemoryStore())
    return stored(store, numbers((60, 50)), **options), f"Talkative({store._store})"


def test_errors_name_the_store_briefly():
    for options in {}, {"chunks": (10, 50), "shards": (60, 50)}:
        array, name = talkative(**options)
        objects = array.store._store._store_dict
        objects["c/0/0"] = objects["c/0/0"][:30]
        for act in (lambda array: array[3], lambda array: array.__setitem__(3, 5)):
            with pytest.raises((ChunkSizeError, ShardIndexError)) as caught:
                act(array)
            is_named = f"{name}/c/0/0" in str(caught.value)
            assert is_named or "data type" in str(caught.value)  # of the codec
            assert "many words" not in str(caught.value)
    for act in zarr_bytes.view, zarr_bytes.preallocate:
        with pytest.raises(StoreError, match=re.escape(f" of {name}")) as caught:
            act(array)
        assert len(str(caught.value)) < 400


def test_results_name_the_store_briefly():
    array, name = talkative()
    assert explain(array, 7).array == name
    member = created(Talkative(memory := MemoryStore()), (60, 50), "f8", name="a")
    assert explain(member, 7).array == f"Talkative({memory})/a"
    with counting() as counted:
        array[7]
    assert [*counted] == [name]
    report = zarr_bytes.check(array.store)
    assert (report.store, report.conforms) == (name, True)
    with pytest.raises(StoreError, match=re.escape(f"{store_name(empty := InMemory())}: it holds")):
        zarr_bytes.check(empty)


def test_warnings_name_the_store_briefly():
    class WithoutRanges(Talkative):
        async def get(self, key, prototype, byte_range=None):
            return await super().get(key, prototype)

    store = WithoutRanges(MemoryStore())
    array = stored(store, numbers((60, 5000)))
    name = re.escape(f"WithoutRanges({store._store})")
    with pytest.warns(UserWarning, match=f"^{name} does not answer byte ranges"):
        array[:, 3]
    assert re.match(f"{name} has answered", explain(array, 3).reason)


@pytest.mark.parametrize("is_consolidated", [False, True])
def test_a_warning_of_a_fill_value_names_store_and_path(is_consolidated):
    memory = MemoryStore()
    zarr.create_group(memory).create_array("b", shape=3, dtype="f4", compressors=None)
    if is_consolidated:
        with pytest.warns(UserWarning, match="onsolidated"):
            zarr.consolidate_metadata(memory)
    for key, content in contents_of(memory).items():
        document = content.replace(b'"fill_value": 0.0', b'"fill_value": "1"')
        memory._store_dict[key] = type(memory._store_dict[key]).from_bytes(document)
    store = Talkative(memory)
    with pytest.warns(FillValueWarning) as warned:
        assert zarr.open_group(store, mode="r")["b"].fill_value == 1
    found = [str(w.message) for w in warned if w.category is FillValueWarning]
    assert found
    assert all(text.startswith(f"array Talkative({memory})/b: ") for text in found)


@pytest.mark.slow
def test_a_store_of_virtualizarr_is_named_by_its_class(tmp_path):
    """Its text has thousands of characters."""
    pytest.importorskip("virtualizarr")
    scipy_io = pytest.importorskip("scipy.io")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore as LocalObjects
    from virtualizarr.parsers import NetCDF3Parser

    with scipy_io.netcdf_file(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 1000)
        file.createVariable("v", ">f8", ("x",))[:] = np.arange(1000.0)
    registry = ObjectStoreRegistry({"file://": LocalObjects()})
    store = NetCDF3Parser()(url=f"file://{tmp_path / 'a.nc'}", registry=registry)
    array = zarr.open_array(store, path="v", mode="r")
    assert re.fullmatch(r"ManifestStore\(0x[0-9a-f]+\)/v", explain(array, 7).array)
    with (tmp_path / "a.nc").open("r+b") as file:
        file.truncate(1000)
    # Of a VirtualiZarr for Python 3.11, each chunk by itself.
    name = r"ManifestStore\(0x[0-9a-f]+\)/v/c/0"
    message = rf"^({name} is a part of .*a.nc, 8000 bytes from byte 80 on|bytes .* of {name})"
    with pytest.raises(ChunkSizeError, match=f"{message}.* found (0|920): "):
        array[900]
