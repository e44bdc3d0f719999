"""Partial reads over real connections: every store that users have.

Servers run on free ports of the loopback interface. A test whose server or package is missing is
skipped and says so; `.ci/run` installs them all.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from time import sleep

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from stored_arrays import PLAIN_ZARR, numbers, store_at
from zarr.codecs import ShardingCodec
from zarr.storage import FsspecStore, LocalStore, ObjectStore

from zarr_bytes import BytesCodec, ChunkSizeError, counting, explain
from zarr_bytes.io.drivers import driver_of

# What the clients and servers of others warn of is not this package's.
pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = numbers((60, 50, 20))  # one chunk of 480 kB
SMALL_GAPS = {"zarr_bytes.gap": {"local": 4096, "remote": 4096}}
SELECTIONS = [7, (7, 8), (7, 8, 9), np.s_[10:20, 30:], np.s_[::20, ::25, ::3], np.s_[:, 5, 6], ...]


def write(store):
    """An array of one chunk, and one of two shards."""
    shards = {"chunks": (30, 50, 20), "serializer": ShardingCodec(chunk_shape=(10, 25, 20))}
    for name, layout in ("chunk", {"chunks": VALUES.shape}), ("shards", shards):
        zarr.create_array(store, name=name, data=VALUES, compressors=None, **layout)


def check(store, names=("chunk", "shards")):
    """Every selection through `store`, with gaps small enough that ranges are read."""
    for path in PIPELINES.values():
        with zarr.config.set({"codec_pipeline.path": path} | SMALL_GAPS):
            for array in (zarr.open_array(store, path=name, mode="r") for name in names):
                assert isinstance(array.metadata.codecs[0], BytesCodec | ShardingCodec)
                for selection in SELECTIONS:
                    assert np.array_equal(array[selection], VALUES[selection])
                points = ([3, 50, 7], [1, 2, 3], [4, 5, 6])
                assert np.array_equal(array.vindex[points], VALUES[points])
                grid = np.ix_([5, 1], range(50), [0, 19])
                assert np.array_equal(array.oindex[[5, 1], :, [0, 19]], VALUES[grid])


def test_an_element_is_read_from_a_store_of_obstore():
    store = ObjectStore(pytest.importorskip("obstore.store").MemoryStore())
    write(store)
    assert zarr.open_array(store, path="chunk", mode="r")[7, 8, 9] == VALUES[7, 8, 9]


@pytest.mark.parametrize("package", ["fsspec.asyn", "obstore.store"])
def test_services_that_always_answer_ranges_are_known(package):
    client, options = pytest.importorskip(package), {"skip_signature": True}
    if package == "obstore.store":
        clients = [client.S3Store("a", region="b", **options), client.GCSStore("a", **options)]
        clients += [client.AzureStore("a", account_name="b", **options), client.MemoryStore()]
        stores = [*map(ObjectStore, clients)]
    else:
        protocols = ("s3", "s3a"), ("gs", "gcs"), "abfs", ("http", "https")
        kinds = [type("Files", (client.AsyncFileSystem,), {"protocol": p}) for p in protocols]
        stores = [FsspecStore(kind(asynchronous=True), path="a/b") for kind in kinds]
    are_known = [driver_of(store, "").is_known_to_answer_ranges() for store in stores]
    assert are_known == [True, True, True, False]


def test_arrays_of_icechunk_are_read_in_ranges(tmp_path):
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    write(session.store)
    session.commit("written")
    check(repository.readonly_session("main").store)


def test_a_whole_chunk_of_icechunk_is_one_request_which_icechunk_divides(tmp_path):
    """Of 20 MB, more than the largest request, and of a store that is known to answer ranges."""
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    values = np.arange(2_500_000.0).reshape(50, -1)
    zarr.create_array(session.store, data=values, chunks=values.shape, compressors=None)
    array = zarr.open_array(session.store, mode="r")
    assert array[3, 4] == values[3, 4]
    with counting() as counted:
        assert np.array_equal(array[...], values)
    assert counted.requests == explain(array).requests == 1


def test_a_point_of_an_hdf5_file_that_kerchunk_describes_is_eight_bytes(tmp_path):
    """Its references are of format 2; here they are written by hand, as kerchunk does."""
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("fsspec")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("a", data=VALUES, dtype=">f8")
        place = data.id.get_offset(), data.id.get_storage_size()
    document = {
        "zarr_format": 2,
        "shape": VALUES.shape,
        "chunks": VALUES.shape,
        "dtype": ">f8",
        "order": "C",
        "fill_value": 0.0,
        "compressor": None,
        "filters": None,
    }
    references = {".zarray": json.dumps(document), "0.0.0": [str(tmp_path / "a.h5"), *place]}
    options = {"fo": references, "remote_protocol": "file", "asynchronous": True}
    store = FsspecStore.from_url("reference://", storage_options=options, read_only=True)
    array = zarr.open_array(store, mode="r")
    assert array.dtype == ">f8"
    assert np.array_equal(array[...], VALUES)
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for selection, nbytes in ((7, 8, 9), 8), ((7, 8), 8 * 20), (np.s_[:, 5, 6], 8 * 60):
            with counting() as counted:
                assert np.array_equal(array[selection], VALUES[selection])
            assert counted.bytes_fetched == nbytes


class TestIcechunkWithTheCacheOfIndexes:
    """An array of one shard, whose inner chunks of zeros, the fill value, are not stored."""

    VALUES = np.arange(8, dtype="i4") + 1

    @pytest.fixture
    def repository(self, tmp_path):
        icechunk = pytest.importorskip("icechunk")
        repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
        session = repository.writable_session("main")
        options = {"chunks": (2,), "shards": (8,), "compressors": None}
        for name in "a", "b":
            zarr.create_array(session.store, name=name, data=self.VALUES, **options)
        session.commit("written")
        with zarr.config.set(SMALL_GAPS | {"zarr_bytes.index_cache": 5}):
            yield repository

    def test_discarded_changes_are_gone(self, repository):
        session = repository.writable_session("main")
        array, changed = zarr.open_array(session.store, path="a"), self.VALUES.copy()
        array[:4] = changed[:4] = 0
        assert np.array_equal(array[...], changed)
        session.discard_changes()
        assert np.array_equal(array[...], self.VALUES)

    def test_a_rebased_session_has_the_commit_of_another_one(self, repository):
        icechunk, changed = pytest.importorskip("icechunk"), self.VALUES.copy()
        session, other = (repository.writable_session("main") for _ in range(2))
        array = zarr.open_array(session.store, path="a")
        zarr.open_array(session.store, path="b")[0] = 7
        assert np.array_equal(array[...], changed)
        with zarr.config.set(PLAIN_ZARR):  # as in another process
            zarr.open_array(other.store, path="a")[:4] = changed[:4] = 0
        other.commit("changed by another one")
        session.rebase(icechunk.BasicConflictSolver())
        assert np.array_equal(array[...], changed)

    def test_an_index_of_a_read_only_session_is_fetched_once(self, repository):
        store = repository.readonly_session("main").store
        with zarr.config.set({"zarr_bytes.gap.remote": 0}):
            array = zarr.open_array(store, path="a", mode="r")
            for expected in 2, 1:
                assert explain(array, 3).requests == expected
                with counting() as counted:
                    assert array[3] == self.VALUES[3]
                assert counted.requests == expected


NGINX = """
{user} daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


@pytest.fixture
def nginx(tmp_path):
    """The address of a server of the files in the folder `files`."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "user root;" if os.getuid() == 0 else ""
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(NGINX.format(user=user, folder=tmp_path, port=port))
    with subprocess.Popen([program, "-p", tmp_path, "-c", configuration]) as process:
        for _ in range(1000):
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
                break
            sleep(0.01)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_arrays_of_an_http_server_are_read_in_ranges(nginx, tmp_path, client):
    """The truncated object is named with range and sizes, though the server has its own error."""
    write(LocalStore(tmp_path / "files"))
    check(store_at(nginx, client))
    os.truncate(tmp_path / "files/chunk/c/0/0/0", VALUES.nbytes // 2)
    for path in PIPELINES.values():
        with zarr.config.set({"codec_pipeline.path": path} | SMALL_GAPS):
            array = zarr.open_array(store_at(f"{nginx}/chunk", client), mode="r")
            for selection, first, last in (59, 59, 60), (np.s_[29:31], 29, 31), (..., 0, 60):
                start, stop = first * 8000, last * 8000
                size, found = stop - start, max(VALUES.nbytes // 2 - start, 0)
                message = f"bytes {start} to {stop} of .*c/0/0/0 are {size} bytes, found {found}"
                with pytest.raises(ChunkSizeError, match=message):
                    array[selection]


@pytest.mark.slow
def test_arrays_of_s3_are_read_in_ranges():
    s3fs, moto = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    options = {"endpoint_url": url, "key": "testing", "secret": "testing"}
    s3fs.S3FileSystem(**options).mkdir("bucket")
    for act in write, check:
        options["asynchronous"] = True
        act(FsspecStore.from_url("s3://bucket/a.zarr", storage_options=options))
    del options["asynchronous"]
    given = [f"--storage-option={name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "zarr_bytes", "check", "s3://bucket/a.zarr", *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # no word of a session that was not closed
    server.stop()


@pytest.mark.slow
def test_a_netcdf_3_file_behind_virtualizarr(tmp_path):
    pytest.importorskip("virtualizarr")
    pytest.importorskip("obstore")
    scipy_io = pytest.importorskip("scipy.io")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore as LocalObjects
    from virtualizarr.parsers import NetCDF3Parser

    with scipy_io.netcdf_file(tmp_path / "a.nc", "w") as file:
        for name, size in zip("tyx", VALUES.shape, strict=True):
            file.createDimension(name, size)
        file.createVariable("v", ">f8", ("t", "y", "x"))[:] = VALUES
    registry = ObjectStoreRegistry({"file://": LocalObjects()})
    check(NetCDF3Parser()(url=f"file://{tmp_path / 'a.nc'}", registry=registry), ["v"])


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_xarray_writes_a_new_dataset_through_the_pipeline(tmp_path, named):
    xarray = pytest.importorskip("xarray")
    dataset = xarray.Dataset({"v": (("y", "x"), np.arange(6.0).reshape(2, 3))})
    encoding = {"compressors": None} | ({"serializer": BytesCodec()} if named else {})
    store, options = tmp_path / "a.zarr", {"zarr_format": 3, "consolidated": False}
    with zarr.config.set({"zarr_bytes.partial_writes": True}):
        dataset.to_zarr(store, encoding={"v": encoding}, **options)
        before = (store / "v/c/0/0").stat().st_ino
        rows = {"region": {"y": slice(1, 2)}, "safe_chunks": False, "consolidated": False}
        (dataset.isel(y=[1]) + 1).to_zarr(store, **rows)
    assert (store / "v/c/0/0").stat().st_ino == before
    opened = xarray.open_zarr(store, **options)
    assert isinstance(opened["v"].encoding["serializer"], BytesCodec)  # and so is a copy's
    assert opened["v"].values.tolist() == [[0, 1, 2], [4, 5, 6]]
