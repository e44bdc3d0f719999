"""Partial reads over real connections: every store that users have, and how much it sends.

Servers run on free ports of the loopback interface. A test whose server or package is missing is
skipped and says so; `.ci/run` installs them all.
"""

import os
import shutil
import socket
import subprocess
import threading

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from stored_arrays import numbers, store_at
from zarr.codecs import ShardingCodec
from zarr.storage import FsspecStore, LocalStore

from zarr_bytes import BytesCodec, ChunkSizeError

# What the clients and servers of others warn of is not this package's.
pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = numbers((60, 50, 20))  # one chunk of 480 kB
SMALL_GAPS = {"zarr_bytes.gap": {"local": 4096, "remote": 4096}}
SELECTIONS = {
    "plane": np.s_[7],
    "row": np.s_[7, 8],
    "point": np.s_[7, 8, 9],
    "box": np.s_[10:20, 30:60],
    "stepped": np.s_[::20, ::25, ::3],
    "column": np.s_[:, 5, 6],
    "whole": ...,
}


SHARDED = {
    "chunks": (30, 50, 20),  # two shards
    "serializer": ShardingCodec(chunk_shape=(10, 25, 20), codecs=[BytesCodec(endian="big")]),
}


def write(store):
    """An array of one chunk, and one of two shards."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedBytesPipeline"]}):
        options = {"data": VALUES, "compressors": None, "overwrite": True}
        one = {"chunks": VALUES.shape, "serializer": BytesCodec(endian="big")}
        zarr.create_array(store, name="chunk", **options, **one)
        zarr.create_array(store, name="shards", **options, **SHARDED)


def check(store):
    """Every selection through `store`, with gaps small enough that ranges are read."""
    for path in PIPELINES.values():
        with zarr.config.set({"codec_pipeline.path": path} | SMALL_GAPS):
            chunk, shards = (zarr.open_array(store, path=p, mode="r") for p in ("chunk", "shards"))
            assert type(chunk.metadata.codecs[0]) is BytesCodec
            for array in (chunk, shards):
                for name, selection in SELECTIONS.items():
                    assert np.array_equal(array[selection], VALUES[selection]), name
                points = ([3, 50, 7], [1, 2, 3], [4, 5, 6])
                assert np.array_equal(array.vindex[points], VALUES[points])
                grid = np.ix_([5, 1], range(50), [0, 19])
                assert np.array_equal(array.oindex[[5, 1], :, [0, 19]], VALUES[grid])


def test_icechunk(tmp_path):
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    write(session.store)
    session.commit("written")
    check(repository.readonly_session("main").store)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition):
    """Ask again and again, for at most ten seconds."""
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("waited for ten seconds")


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Nginx:
    """A server of static files that logs the bytes it sends."""

    def __init__(self, folder, files):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "access.log"
        (folder / "nginx.conf").write_text(
            f"""
            {"user root;" if os.getuid() == 0 else ""}
            daemon off; pid {folder}/pid; error_log {folder}/error.log;
            events {{}}
            http {{
              log_format bytes '$request_method $status $body_bytes_sent $uri';
              access_log {self.log} bytes;
              client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
              fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
              server {{ listen 127.0.0.1:{self.port}; root {files}; }}
            }}
            """
        )
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"])
        wait_until(lambda: answers(self.port))

    def chunks_sent(self):
        """Requests for chunks so far, and the bytes they were answered with."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        chunks = [line for line in lines if "/c/" in line[3] and line[0] == "GET"]
        return len(chunks), sum(int(line[2]) for line in chunks)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    if shutil.which("nginx") is None and shutil.which("/usr/sbin/nginx") is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")
    folder = tmp_path_factory.mktemp("nginx")
    files = folder / "files"
    files.mkdir()
    write(LocalStore(files))
    write(LocalStore(files / "cut"))
    chunk = files / "cut/chunk/c/0/0/0"
    chunk.write_bytes(chunk.read_bytes()[: VALUES.nbytes // 2])
    server = Nginx(folder, files)
    yield server
    server.process.terminate()
    server.process.wait()


class TestHttp:
    @pytest.mark.parametrize("client", ["fsspec", "obstore"])
    def test_every_selection_reads(self, nginx, client):
        check(store_at(nginx.url, client))

    # Bytes of the index of a shard: entries of six inner chunks, and the checksum. Selections, and
    # how many ranges each has.
    READS = {
        "chunk": (0, [(np.s_[7], 1), (np.s_[10:20, 30:60], 10), (np.s_[7, 8, 9], 1)]),
        "shards": (6 * 16 + 4, [(np.s_[7], 2), (np.s_[7, 8], 1), (np.s_[7, 8, 9], 1)]),
    }

    @pytest.mark.parametrize("client", ["fsspec", "obstore"])
    @pytest.mark.parametrize(
        ("pipeline", "name"),
        [*((name, "chunk") for name in PIPELINES), ("BatchedBytesPipeline", "shards")],
    )
    def test_the_server_sends_what_is_needed(self, nginx, client, pipeline, name):
        """Of shards the index too, by this package's pipeline."""
        index, reads = self.READS[name]
        with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
            array = zarr.open_array(store_at(f"{nginx.url}/{name}", client), mode="r")
        requests, nbytes = nginx.chunks_sent()
        with zarr.config.set({"zarr_bytes.gap.remote": 4096}):
            for selection, ranges in reads:
                assert np.array_equal(array[selection], VALUES[selection])
                requests += ranges + bool(index)
                nbytes += index + VALUES[selection].nbytes
                # nginx logs a request after it has answered it
                wait_until(lambda: nginx.chunks_sent()[0] >= requests)  # noqa: B023
                assert nginx.chunks_sent() == (requests, nbytes)

    @pytest.mark.parametrize("client", ["fsspec", "obstore"])
    def test_a_truncated_object_is_an_error_with_key_range_and_sizes(self, nginx, client, pipeline):
        """Also where the server answers a range past the end with an error of its own."""
        array = zarr.open_array(store_at(nginx.url + "/cut/chunk", client), mode="r")
        for selection in 59, np.s_[29:31], ...:
            with (
                zarr.config.set({"zarr_bytes.gap.remote": 4096}),
                pytest.raises(ChunkSizeError, match=r"bytes \d+ to \d+ of .*c/0/0/0 are .* found"),
            ):
                array[selection]


@pytest.fixture(scope="module")
def s3():
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["s3fs", "obstore"])
def test_s3(s3, client):
    s3fs = pytest.importorskip("s3fs")
    options = {"endpoint_url": s3, "key": "testing", "secret": "testing"}
    s3fs.S3FileSystem(**options).mkdir(f"partial-{client}")

    def opened():
        if client == "s3fs":
            return FsspecStore.from_url(
                "s3://partial-s3fs/a.zarr", storage_options=options | {"asynchronous": True}
            )
        pytest.importorskip("obstore")
        from obstore.store import S3Store

        return zarr.storage.ObjectStore(
            S3Store(
                "partial-obstore",
                endpoint=s3,
                access_key_id="testing",
                secret_access_key="testing",  # noqa: S106
                region="us-east-1",
                virtual_hosted_style_request=False,
                client_options={"allow_http": True},
            )
        )

    write(opened())
    check(opened())


@pytest.mark.slow
def test_a_netcdf_3_file_behind_virtualizarr(tmp_path):
    pytest.importorskip("virtualizarr")
    pytest.importorskip("obstore")
    scipy_io = pytest.importorskip("scipy.io")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore as LocalObjects
    from virtualizarr.parsers import NetCDF3Parser

    path = tmp_path / "a.nc"
    with scipy_io.netcdf_file(path, "w") as file:
        for name, size in zip("tyx", VALUES.shape, strict=True):
            file.createDimension(name, size)
        file.createVariable("v", ">f8", ("t", "y", "x"))[:] = VALUES
    registry = ObjectStoreRegistry({"file://": LocalObjects()})
    store = NetCDF3Parser()(url=f"file://{path}", registry=registry)
    with zarr.config.set(SMALL_GAPS):
        array = zarr.open_group(store, mode="r")["v"]
        assert type(array.metadata.codecs[0]) is BytesCodec
        for name, selection in SELECTIONS.items():
            assert np.array_equal(array[selection], VALUES[selection]), name


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_xarray_writes_a_new_dataset_through_the_pipeline(tmp_path, named):
    xarray = pytest.importorskip("xarray")
    dataset = xarray.Dataset({"v": (("y", "x"), np.arange(6.0).reshape(2, 3))})
    encoding = {"compressors": None} | ({"serializer": BytesCodec()} if named else {})
    options = {"zarr_format": 3, "consolidated": False}
    with zarr.config.set({"zarr_bytes.partial_writes": True}):
        dataset.to_zarr(tmp_path / "a.zarr", encoding={"v": encoding}, **options)
        before = (tmp_path / "a.zarr/v/c/0/0").stat().st_ino
        part = dataset.isel(y=[1]) + 1
        part.to_zarr(
            tmp_path / "a.zarr", region={"y": slice(1, 2)}, safe_chunks=False, consolidated=False
        )
    assert (tmp_path / "a.zarr/v/c/0/0").stat().st_ino == before
    opened = xarray.open_zarr(tmp_path / "a.zarr", **options)
    assert isinstance(opened["v"].encoding["serializer"], BytesCodec)  # and so is a copy's
    assert opened["v"].values.tolist() == [[0, 1, 2], [4, 5, 6]]
