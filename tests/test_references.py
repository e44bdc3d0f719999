"""Chunks that are parts of files: kerchunk's references, and the manifests of VirtualiZarr.

Files are laid out by hand: a chunk may lie anywhere, beside or within another one.
"""

import importlib.util
import json
import pickle
import resource
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import zarr
from documents import BIG, document_of
from fuzz import same
from fuzz_arrays import selections
from hypothesis import given
from hypothesis import strategies as st
from servers import WithoutRanges, serving
from stored_arrays import IN_PLACE, numbers
from zarr.storage import FsspecStore

from zarr_bytes import ChunkSizeError, StoreError, check, counting, explain, view

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
RECORDS, RECORD = 300, (1, 20, 30)  # a record of 600 numbers of four bytes
VALUES = numbers((RECORDS, *RECORD[1:]), "f4")
RECORD_NBYTES, HEADER_NBYTES, STEP = 2400, 100, 2500  # bytes of the file
NO_GAP = {"zarr_bytes.gap.local": 0, "zarr_bytes.gap.remote": 0}
every_format = pytest.mark.parametrize("zarr_format", [2, 3])
BY_KERCHUNK_OR_VIRTUALIZARR = ["kerchunk"]
# Python 3.11 has a VirtualiZarr that is asked chunk by chunk.
if sys.version_info >= (3, 12) and importlib.util.find_spec("virtualizarr"):
    from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore

    BY_KERCHUNK_OR_VIRTUALIZARR.append("VirtualiZarr")


def key_of(index, zarr_format):
    parts = map(str, index)
    return "/".join(["c", *parts]) if zarr_format == 3 else ".".join(parts)


def store_of(
    references, shape, chunk_shape, zarr_format=3, protocol="file", prefix="", target=None
):
    """kerchunk's references, by the index of a chunk, of an array of float32."""
    if zarr_format == 2:
        document = {
            "zarr_format": 2,
            "shape": shape,
            "chunks": chunk_shape,
            "dtype": ">f4",
            "order": "C",
            "fill_value": 0.0,
            "compressor": None,
            "filters": None,
        }
    else:
        document = document_of("float32", shape, chunk_shape, codecs=BIG)
    name = ".zarray" if zarr_format == 2 else "zarr.json"
    by_key = {prefix + key_of(index, zarr_format): ref for index, ref in references.items()}
    options = {"fo": {prefix + name: json.dumps(document), **by_key}, "asynchronous": True}
    options |= {"remote_protocol": protocol, "remote_options": {"asynchronous": True}}
    options |= {"target": target}
    if protocol == "file":
        del options["remote_options"]
    return FsspecStore.from_url("reference://", storage_options=options)


def manifest_store_of(url, offsets, shape, chunk_shape):
    """The manifest of VirtualiZarr of an array of one file, and a registry of its stores."""
    import obstore
    from obspec_utils.registry import ObjectStoreRegistry

    grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
    manifest = ChunkManifest.from_arrays(
        paths=np.full(grid, url, np.dtypes.StringDType()),
        offsets=np.asarray(offsets, np.uint64).reshape(grid),
        lengths=np.full(grid, 4 * np.prod(chunk_shape), np.uint64),
    )
    document = document_of("float32", shape, chunk_shape, codecs=BIG)
    metadata = zarr.core.metadata.ArrayV3Metadata.from_dict(document)
    group = ManifestGroup(arrays={"a": ManifestArray(metadata=metadata, chunkmanifest=manifest)})
    registry = ObjectStoreRegistry()
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    is_file = scheme == "file"
    registry.register(
        f"{scheme}://{host}",
        obstore.store.LocalStore()
        if is_file
        else obstore.store.HTTPStore(f"{scheme}://{host}", client_options={"allow_http": True}),
    )
    return ManifestStore(group, registry=registry)


def write_records(folder):
    """A file of records with bytes between them, as NetCDF-3 has those of other variables."""
    (folder / "c").mkdir()
    path = folder / "c" / "records.nc"
    records = (b"x" * HEADER_NBYTES + record.astype(">f4").tobytes() for record in VALUES)
    path.write_bytes(b"".join(records))
    return path


def records_at(url, by="kerchunk", zarr_format=3, protocol="file"):
    """The array of the records of a file."""
    offsets = [HEADER_NBYTES + i * STEP for i in range(RECORDS)]
    if by == "VirtualiZarr":
        store = manifest_store_of(url, offsets, VALUES.shape, RECORD)
        return zarr.open_array(store, path="a", mode="r", zarr_format=3)
    references = {(i, 0, 0): [url, offset, RECORD_NBYTES] for i, offset in enumerate(offsets)}
    store = store_of(references, VALUES.shape, RECORD, zarr_format, protocol)
    return zarr.open_array(store, mode="r")


SERIES = np.s_[:, 7, 9]
SELECTIONS = [SERIES, ..., np.s_[3], np.s_[3:200:7, 5, ::3], np.s_[:, 19], np.s_[40:42, 3:5]]
every_maker = pytest.mark.parametrize(
    ("by", "zarr_format"),
    [
        (by, n)
        for by in BY_KERCHUNK_OR_VIRTUALIZARR
        for n in (2, 3)
        if (by, n) != ("VirtualiZarr", 2)
    ],
)


def cost_of(array, selection, expected):
    """Opens, requests and bytes, which `explain` has said."""
    explained = explain(array, selection)
    with counting() as counted:
        same(array[selection], expected)
    for name in "opens", "requests", "ranges", "bytes_fetched", "chunks":
        assert (name, getattr(explained, name)) == (name, getattr(counted, name))
    return counted.opens, counted.requests, counted.bytes_fetched


class TestLocalFiles:
    @every_maker
    def test_a_series_opens_the_file_once_and_reads_its_elements(self, tmp_path, by, zarr_format):
        array = records_at(f"file://{write_records(tmp_path)}", by, zarr_format)
        with zarr.config.set(NO_GAP):
            assert cost_of(array, SERIES, VALUES[SERIES]) == (1, 0, 4 * RECORDS)
        for selection in SELECTIONS:
            assert cost_of(array, selection, VALUES[selection])[:2] == (1, 0)

    @pytest.mark.parametrize("url", ["file://{}", "{}"])
    def test_a_reference_may_be_a_url_or_a_path(self, tmp_path, url):
        array = records_at(url.format(write_records(tmp_path)))
        assert cost_of(array, SERIES, VALUES[SERIES])[:2] == (1, 0)

    def test_each_of_many_files_is_opened_once_though_few_may_be_open(self, tmp_path):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        references = {}
        for i in range(RECORDS):
            (tmp_path / f"{i}.bin").write_bytes(b"x" + VALUES[i].astype(">f4").tobytes())
            references[i, 0, 0] = [str(tmp_path / f"{i}.bin"), 1, RECORD_NBYTES]
        array = zarr.open_array(store_of(references, VALUES.shape, RECORD), mode="r")
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            assert cost_of(array, SERIES, VALUES[SERIES])[:2] == (RECORDS, 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestRemoteFiles:
    @every_maker
    def test_ranges_of_neighbours_are_joined_and_others_are_requests_of_their_own(
        self, tmp_path, by, zarr_format
    ):
        write_records(tmp_path)
        with serving(tmp_path) as server:
            array = records_at(f"{server.url}/c/records.nc", by, zarr_format, "http")
            last = 4 * (7 * 30 + 9) + 4  # the end of a point in its record
            gaps = {0: (RECORDS, 4 * RECORDS), 2**16: (1, (RECORDS - 1) * STEP + 4)}
            for gap, (requests, nbytes) in gaps.items():
                with zarr.config.set({"zarr_bytes.gap.remote": gap}):
                    server.sent.clear()
                    assert cost_of(array, SERIES, VALUES[SERIES]) == (0, requests, nbytes)
                    assert (len(server.sent), sum(server.sent)) == (requests, nbytes)
            # Whole records that lie one behind the other, in requests of a largest size.
            with zarr.config.set({"zarr_bytes.largest_request.remote": 10 * STEP + last}):
                server.sent.clear()
                opens, requests, _ = cost_of(array, np.s_[:100], VALUES[:100])
                assert (opens, requests) == (0, len(server.sent)) == (0, 10)

    def test_a_server_without_ranges_is_an_error_as_with_zarr(self, tmp_path):
        """It sends the whole file for each chunk."""
        write_records(tmp_path)
        with serving(tmp_path, WithoutRanges) as server:
            array = records_at(f"{server.url}/c/records.nc", protocol="http")
            with pytest.raises(Exception, match=r"records\.nc|bytes"):
                array[:2, 7, 9]


@dataclass(frozen=True)
class Laid:
    """Chunks of an array in files: their bytes, and where each is."""

    shape: tuple
    chunk_shape: tuple
    values: np.ndarray
    files: dict  # contents
    places: dict  # name of the file and offset, by the index of a chunk; some are missing


@st.composite
def laid(draw):
    """Chunks in any order in several files, of which some are stored twice, or not at all."""
    ndim = draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = tuple(random.integers(1, [30, 12, 7][ndim - 1] + 1, ndim).tolist())
    chunk_shape = tuple(int(random.integers(1, n + 1)) for n in shape)
    values = numbers(shape, "f4") + 1
    files, places = dict.fromkeys("ab", b""), {}
    grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
    for index in random.permutation(list(np.ndindex(*grid))).tolist():
        region = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk_shape, strict=True))
        kind = random.random()
        if kind < 0.1:
            values[region] = 0
            continue
        part = values[region]
        chunk = np.zeros(chunk_shape, ">f4")
        chunk[tuple(map(slice, part.shape))] = part
        name = str(random.choice(list("ab")))
        files[name] += bytes(int(random.integers(0, 40)))
        places[tuple(index)] = name, len(files[name])
        files[name] += chunk.tobytes()
    return Laid(shape, chunk_shape, values, files, places)


class TestAnyPlaces:
    @pytest.mark.parametrize("protocol", ["file", "memory"])
    @given(data=st.data(), example=laid(), zarr_format=st.sampled_from([2, 3]))
    def test_selections_are_those_of_numpy(
        self, tmp_path_factory, protocol, data, example, zarr_format
    ):
        folder = tmp_path_factory.mktemp("a")
        files = fsspec.filesystem(protocol)
        nbytes = 4 * int(np.prod(example.chunk_shape))
        for name, content in example.files.items():
            files.pipe(f"{folder}/{name}", content)
        references = {
            index: [f"{protocol}://{folder}/{name}", offset, nbytes]
            for index, (name, offset) in example.places.items()
        }
        store = store_of(references, example.shape, example.chunk_shape, zarr_format, protocol)
        array = zarr.open_array(store, mode="r")
        gap, largest = data.draw(st.integers(0, 300)), data.draw(st.integers(1, 500))
        sizes = {"gap": {"local": gap, "remote": gap}, "largest_request": {"remote": largest}}
        with zarr.config.set({"zarr_bytes": sizes}):
            selection = data.draw(selections(example.shape, example.chunk_shape))
            same(np.asarray(selection.read(array)), np.asarray(selection.take(example.values)))

    @pytest.mark.parametrize("protocol", ["file", "memory"])
    def test_chunks_may_lie_within_others(self, tmp_path, protocol):
        """As the same bytes in two places, and those of several files in two."""
        files = fsspec.filesystem(protocol)
        numbers_in_file = np.arange(20, dtype=">f4")
        files.pipe(f"{tmp_path}/a", numbers_in_file.tobytes())
        files.pipe(f"{tmp_path}/b", (numbers_in_file + 50).astype(">f4").tobytes())
        places = [("a", 0), ("a", 4), ("b", 8), ("a", 4), ("a", 2), ("b", 0)]
        references = {
            divmod(i, 2): [f"{protocol}://{tmp_path}/{name}", 4 * first, 40]
            for i, (name, first) in enumerate(places)
        }
        array = zarr.open_array(store_of(references, (3, 20), (1, 10), 3, protocol), mode="r")
        chunks = [np.arange(first, first + 10) + 50 * (name == "b") for name, first in places]
        expected = np.array(chunks, "f4").reshape(3, 20)
        for selection in ..., np.s_[:, :13], np.s_[:, ::9], np.s_[1:, 3], np.s_[0, 5:12]:
            same(array[selection], expected[selection])


class TestOtherReferences:
    def test_bytes_within_the_references_and_missing_keys_are_as_with_zarr(self, tmp_path):
        path = write_records(tmp_path)
        content = VALUES[1].astype(">f4").tobytes()
        references = {
            (0, 0, 0): [str(path), HEADER_NBYTES, RECORD_NBYTES],
            (1, 0, 0): "base64:" + b64encode(content).decode(),
        }
        array = zarr.open_array(store_of(references, (4, 20, 30), RECORD), mode="r")
        expected = VALUES[:4].copy()
        expected[2:] = 0
        for selection in ..., SERIES, np.s_[1, 3]:
            same(array[selection], expected[selection])

    def test_a_reference_may_be_a_whole_file(self, tmp_path):
        (tmp_path / "a").write_bytes(VALUES[5].astype(">f4").tobytes())
        references = {(0, 0, 0): [str(tmp_path / "a")]}
        array = zarr.open_array(store_of(references, RECORD, RECORD), mode="r")
        same(array[SERIES], VALUES[5:6][SERIES])

    @pytest.mark.parametrize("protocol", ["file", "http"])
    def test_a_reference_without_a_url_is_to_the_target_of_the_file_system(
        self, tmp_path, protocol
    ):
        path = write_records(tmp_path)
        references = {
            (i, 0, 0): [None, HEADER_NBYTES + i * STEP, RECORD_NBYTES] for i in range(RECORDS)
        }
        with serving(tmp_path) as server:
            target = f"{server.url}/c/records.nc" if protocol == "http" else str(path)
            store = store_of(references, VALUES.shape, RECORD, 2, protocol, target=target)
            array = zarr.open_array(store, mode="r")
            opens, requests, _ = cost_of(array, SERIES, VALUES[SERIES])
            assert (opens, requests) == ((0, 1) if protocol == "http" else (1, 0))

    # pandas 3 has NaN where parquet files have no URL.
    @pytest.mark.parametrize("url", [None, float("nan")])
    def test_a_reference_without_a_url_and_a_target_is_an_error_as_with_zarr(self, url):
        store = store_of({(0, 0, 0): [url, 0, RECORD_NBYTES]}, RECORD, RECORD)
        array = zarr.open_array(store, mode="r")
        with pytest.raises(TypeError, match="NoneType|float"):  # fsspec's own
            array[SERIES]

    def test_the_path_of_the_store_may_be_a_slash(self, tmp_path):
        """As zarr's `FsspecStore` has it for a file system without a path."""
        references = {(0, 0, 0): [str(write_records(tmp_path)), HEADER_NBYTES, RECORD_NBYTES]}
        files = store_of(references, RECORD, RECORD).fs
        array = zarr.open_array(FsspecStore(files), mode="r")
        assert cost_of(array, SERIES, VALUES[:1][SERIES])[0] == 1

    def test_an_array_may_be_in_a_group(self, tmp_path):
        references = {(0, 0, 0): [str(write_records(tmp_path)), HEADER_NBYTES, RECORD_NBYTES]}
        store = store_of(references, RECORD, RECORD, prefix="b/c/")
        array = zarr.open_array(store, path="b/c", mode="r")
        assert cost_of(array, SERIES, VALUES[:1][SERIES])[0] == 1

    def test_arrays_can_be_pickled_and_read_in_threads(self, tmp_path):
        array = records_at(str(write_records(tmp_path)))
        array[SERIES]
        array = pickle.loads(pickle.dumps(array))  # noqa: S301
        with ThreadPoolExecutor(4) as threads:
            for i, found in enumerate(threads.map(array.__getitem__, range(40))):
                same(found, VALUES[i])


class TestFaults:
    def test_a_protocol_without_a_file_system_is_an_error_with_key_and_url(self):
        store = store_of({(0, 0, 0): ["s9://a/records.nc", 0, RECORD_NBYTES]}, RECORD, RECORD)
        array = zarr.open_array(store, mode="r")
        with pytest.raises(Exception, match=r'"c/0/0/0" failed .* s9://a/records.nc'):
            array[SERIES]

    @pytest.mark.parametrize("protocol", ["file", "http"])
    def test_a_missing_file_is_an_error_with_key_and_file(self, tmp_path, protocol):
        path = write_records(tmp_path)
        with serving(tmp_path) as server:
            url = f"{server.url}/c/records.nc" if protocol == "http" else f"file://{path}"
            array = records_at(url, protocol=protocol)
            path.unlink()
            for selection in SERIES, 3:
                with pytest.raises(Exception, match=r'"c/\d+/0/0" failed .* records\.nc|records'):
                    array[selection]

    @every_format
    @pytest.mark.parametrize("nbytes", [RECORD_NBYTES - 4, RECORD_NBYTES + 4])
    def test_a_reference_of_a_wrong_length_is_an_error_with_both_and_the_remedy(
        self, tmp_path, zarr_format, nbytes
    ):
        path = write_records(tmp_path)
        references = {(0, 0, 0): [str(path), 0, nbytes]}
        array = zarr.open_array(store_of(references, RECORD, RECORD, zarr_format), mode="r")
        message = (
            rf"/{key_of((0, 0, 0), zarr_format)} is a part of .*records.nc with {nbytes} bytes"
        )
        remedy = "2400 bytes: .* make the references again"
        with pytest.raises(ChunkSizeError, match=f"{message} .* {remedy}"):
            array[SERIES]

    @pytest.mark.parametrize("by", BY_KERCHUNK_OR_VIRTUALIZARR)
    def test_a_file_that_ends_before_a_chunk_is_an_error_with_key_file_and_sizes(
        self, tmp_path, by
    ):
        path = write_records(tmp_path)
        array = records_at(f"file://{path}", by)
        with path.open("r+b") as file:
            file.truncate(150 * STEP)
        same(array[:100], VALUES[:100])
        start = HEADER_NBYTES + 150 * STEP
        key = f"/150/0/0 is a part of .*records.nc with {RECORD_NBYTES} bytes from byte {start} on"
        end = f"the file has {150 * STEP} bytes: it is truncated or has changed"
        with pytest.raises(ChunkSizeError, match=f"{key}, and {end}"):
            array[SERIES]

    @pytest.mark.parametrize("change", ["truncated", "missing"])
    def test_check_finds_files_that_are_truncated_or_missing(self, tmp_path, change):
        """Though the references have the size of each chunk."""
        path = write_records(tmp_path)
        store = records_at(f"file://{path}").store
        assert check(store).conforms
        if change == "missing":
            path.unlink()
        else:
            with path.open("r+b") as file:
                file.truncate(RECORDS // 2 * STEP)
        (report,) = check(store)
        assert len(report.findings) == (RECORDS if change == "missing" else RECORDS - RECORDS // 2)

    def test_files_are_never_written_to(self, tmp_path):
        path = write_records(tmp_path)
        content, changed = path.read_bytes(), path.stat().st_mtime_ns
        references = {(0, 0, 0): [str(path), HEADER_NBYTES, RECORD_NBYTES]}
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(store_of(references, RECORD, RECORD), mode="r+")
        assert not explain(array, 0, write=True).may_share
        array[0, 3, 4] = -1  # which fsspec keeps among its references
        assert array[0, 3, 4] == -1
        with pytest.raises(StoreError, match="must be a LocalStore or a MemoryStore"):
            view(array)
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed)
