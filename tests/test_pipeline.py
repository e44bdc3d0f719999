"""The pipeline of this package reads and writes what NumPy says, and leaves to zarr what it must.

The tests of the codec run with it too; here is what it does otherwise. Most of its ways are for
large arrays: their limits are made small here, so that small arrays go each way.
"""

import asyncio
import errno
import os
import sys
import threading
from functools import partial

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from fuzz import same, settings_of, store_with, values_of
from fuzz_arrays import arrays, basic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_arrays import (
    DEVICE,
    IN_PLACE,
    SMALL,
    CountingStore,
    created,
    faulty,
    keys_of,
    most_memory,
    numbers,
    pipeline_of,
    runs_of,
    spec_of,
    stored,
)
from system_calls import Stop, fail_at, no_file_larger_than, watched, written_to
from test_partial_read import deleted_at_the_twentieth, fails_at_the_fifth
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import (
    BatchedBytesPipeline,
    BoolValueError,
    BytesCodec,
    ChunkFileError,
    ChunkSizeError,
    EndianCodec,
    ShardIndexError,
    limits,
)
from zarr_bytes.io.tasks import in_threads

pytest.importorskip("resource", reason="files are replaced by this package on POSIX systems")

pytestmark = [
    pytest.mark.zarr,
    pytest.mark.filterwarnings("ignore:The data type", "ignore:.*does not answer byte"),
]

MEBIBYTE = 2**20


@pytest.fixture(autouse=True)
def chosen():
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedBytesPipeline"]}):
        yield


@pytest.fixture(params=["as they are", "small"])
def sizes(request, monkeypatch):
    if request.param == "small":
        monkeypatch.setattr(limits, "LIMITS", SMALL)


TRANSPOSED = TransposeCodec(order=(1, 0))


def test_fitting_it_to_a_data_type_fits_its_codec():
    spec = spec_of(zarr.create_array({}, shape=(3,), dtype="u1"))
    fitted = BatchedBytesPipeline.from_codecs([BytesCodec()]).evolve_from_array_spec(spec)
    (codec,) = fitted
    assert codec is fitted.array_bytes_codec
    assert type(codec) is BytesCodec
    assert codec.endian is None


class TestWhatIsLeftToZarr:
    def check_is_inverted(self, folder, order, **options):
        """Read and write an array of a codec that inverts what it gets."""
        array = zarr.create_array(folder, shape=(3, 4), dtype="i4", compressors=None, **options)
        array[...] = model = numbers((3, 4), "i4")
        array[1] = model[1] = 7
        assert np.array_equal(array[...], model)
        assert np.array_equal(array[1:, 2], model[1:, 2])
        in_file = (~model).transpose(order).astype(">i4")
        assert (folder / "c/0/0").read_bytes() == in_file.tobytes()

    @pytest.mark.parametrize("codec", [BytesCodec, EndianCodec])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    def test_a_subclass_of_the_codec_does_what_it_does_otherwise(self, tmp_path, codec, way):
        class Inverted(codec):
            def _decode_sync(self, chunk_bytes, chunk_spec):
                chunk_bytes = chunk_bytes.from_array_like(~chunk_bytes.as_numpy_array())
                return super()._decode_sync(chunk_bytes, chunk_spec)

            def _encode_sync(self, chunk_array, chunk_spec):
                encoded = super()._encode_sync(chunk_array, chunk_spec)
                return encoded.from_array_like(~encoded.as_numpy_array())

            async def _decode_partial_single(self, byte_getter, selection, chunk_spec):
                chunk_bytes = await byte_getter.get(chunk_spec.prototype)
                return self._decode_sync(chunk_bytes, chunk_spec)[selection]

        with zarr.config.set(way):
            self.check_is_inverted(tmp_path, (0, 1), serializer=Inverted(endian="big"))

    def test_a_subclass_of_transpose_does_what_it_does_otherwise(self, tmp_path):
        class Inverted(TransposeCodec):
            async def _decode_single(self, chunk_array, chunk_spec):
                return await super()._decode_single(inverted(chunk_array), chunk_spec)

            async def _encode_single(self, chunk_array, chunk_spec):
                return await super()._encode_single(inverted(chunk_array), chunk_spec)

        def inverted(chunk_array):
            return chunk_array.from_ndarray_like(~chunk_array.as_ndarray_like())

        codecs = {"filters": [Inverted(order=(1, 0))], "serializer": BytesCodec(endian="big")}
        self.check_is_inverted(tmp_path, (1, 0), **codecs)

    def test_buffers_of_another_memory_are_left_to_zarrs_pipeline(self, tmp_path):
        """Which stores chunks whole."""
        asked = []

        class Noted(BatchedBytesPipeline):
            async def read_batch(self, *arguments):
                asked.append("read")
                return await super().read_batch(*arguments)

            async def write_batch(self, *arguments):
                asked.append("write")
                return await super().write_batch(*arguments)

        array = created(LocalStore(tmp_path), (8, 9), "i4")
        array[...] = model = numbers((8, 9), "i4")
        noted = Noted.from_codecs(pipeline_of(array))
        object.__setattr__(array._async_array, "codec_pipeline", noted)
        with written_to(tmp_path / "c/0/0") as ranges:
            for selection, values in ((np.s_[2, 3:5], [7, 8]), (np.s_[5:], np.ones((3, 9)))):
                array.set_basic_selection(selection, np.array(values, "i4"), prototype=DEVICE)
                model[selection] = values
        assert ranges == []
        found = array.get_basic_selection(np.s_[1:7, 3], prototype=DEVICE)
        assert np.array_equal(found, model[1:7, 3])
        assert asked == ["write", "write", "read"]


def buffer_for(draw, values):
    """An empty result in a memory and a data type of its own."""
    dtype = values.dtype
    form = draw(st.sampled_from(["same", "swapped", "Fortran", "steps", "float"]))
    if form == "swapped":
        dtype = dtype.newbyteorder()
    if form == "float" and dtype.kind in "biu" and dtype.isbuiltin == 1:
        dtype = np.dtype("f8")
    array = np.zeros(values.shape, dtype, order="F" if form == "Fortran" else "C")
    if form == "steps" and values.ndim:
        array = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), dtype)[..., ::2]
    return cpu.NDBuffer.from_ndarray_like(array)


class TestReading:
    @pytest.mark.usefixtures("sizes")
    @settings(
        max_examples=40,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(data=st.data())
    def test_into_a_buffer_of_the_caller_in_any_memory_and_data_type(self, tmp_path_factory, data):
        example = data.draw(arrays(can_be_missing=True))
        values, entries = example.values(), data.draw(basic(example.shape))
        expected = np.asarray(values[entries])
        out = buffer_for(data.draw, expected)
        with zarr.config.set(settings_of(data.draw)):
            store = store_with("local", example.objects(values), tmp_path_factory.mktemp("a"))
            zarr.open_array(store, mode="r").get_basic_selection(entries, out=out)
        model = np.empty_like(out.as_numpy_array())
        model[...] = expected
        same(out.as_numpy_array(), model)

    @pytest.mark.usefixtures("sizes")
    def test_into_a_buffer_in_an_order_that_a_type_of_another_package_lacks(self, tmp_path):
        """NumPy takes it for the type's own, and does not swap."""
        values = values_of("complex_float16", (3, 40), 0)
        array = stored(LocalStore(tmp_path), values)
        out = cpu.NDBuffer.from_ndarray_like(np.zeros((3, 39), values.dtype.newbyteorder()))
        array.get_basic_selection(np.s_[:, 1:], out=out)
        model = np.empty_like(out.as_numpy_array())
        model[...] = values[:, 1:]
        same(out.as_numpy_array(), model)


SHAPE = (300, 40, 50)
ORDER = (2, 0, 1)  # a stored chunk has the shape (50, 300, 40)
SELECTIONS = {
    "point": np.s_[7, 8, 9],
    "column": np.s_[7, :, 9],  # one run of the stored chunk
    "row": np.s_[7, 8],
    "plane": np.s_[:, :, 3],
    "box": np.s_[10:20, 3:30, 5:40],
    "strided": np.s_[::3, 1, ::7],
}


@pytest.mark.parametrize("rows", [3, 5000])
def test_many_ranges_of_a_few_bytes_are_read_and_a_truncated_one_is_named(tmp_path, rows):
    values = numbers((rows, 512), "i2")
    array = stored(LocalStore(tmp_path), values)
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        assert np.array_equal(array[:, 3], values[:, 3])
        start = (rows - 1) * 1024 + 6
        os.truncate(tmp_path / "c/0/0", start + 1)
        with pytest.raises(ChunkSizeError, match=f"bytes {start} to {start + 2} of .*found 1"):
            array[:, 3]


class TestBytesOfTransposedChunks:
    """A chunk of 300 x 40 x 50 float64: 4.8 MB, stored as 50 x 300 x 40."""

    def array(self, store):
        return stored(store, numbers(SHAPE), filters=[TransposeCodec(order=ORDER)])

    @pytest.mark.parametrize("rows", [64, 256], ids=["a few pages", "more"])
    def test_chunks_are_read_into_a_result_of_either_order(self, tmp_path, rows):
        values, codec = numbers((2 * rows, 128)), BytesCodec(endian=sys.byteorder)
        options = {"chunks": (rows, 128), "serializer": codec, "filters": [TRANSPOSED]}
        stored(LocalStore(tmp_path), values, **options)
        for order in "CF":
            with zarr.config.set({"array.order": order}):
                array = zarr.open_array(tmp_path, mode="r")
                for selection in np.s_[...], np.s_[:rows], np.s_[rows:, 5:]:
                    assert np.array_equal(array[selection], values[selection])

    def test_the_requests_are_for_the_selected_bytes_and_no_others(self):
        array = self.array(CountingStore(MemoryStore()))
        for name, selection in SELECTIONS.items():
            array.store_path.store.counted()
            with zarr.config.set({"zarr_bytes.gap.remote": 0}):
                assert np.array_equal(array[selection], numbers(SHAPE)[selection])
            found = sorted((r.start, r.end - r.start) for r in array.store_path.store.requests)
            assert (name, found) == (name, runs_of(SHAPE, 8, selection, ORDER))

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    def test_a_file_is_read_at_the_selected_bytes_and_no_others(self, tmp_path):
        array = self.array(LocalStore(tmp_path))
        for name in ["point", "column", "row", "plane"]:
            selection = SELECTIONS[name]
            with zarr.config.set({"zarr_bytes.gap.local": 0}), watched(tmp_path) as files:
                assert np.array_equal(array[selection], numbers(SHAPE)[selection])
            selected = sum(count for _, count in runs_of(SHAPE, 8, selection, ORDER))
            assert (name, sum(files.nbytes.values())) == (name, selected)


class TestErrorsOfReading:
    @pytest.mark.parametrize("layout", ["little", "big", "transposed"])
    @pytest.mark.usefixtures("sizes")
    def test_a_chunk_is_a_file_of_the_size_that_it_must_have(self, tmp_path, layout):
        """Of a few pages: it is read straight into the result, where its byte order is its own."""
        endian, filters = ("big", [TRANSPOSED]) if layout == "transposed" else (layout, [])
        options = {"serializer": BytesCodec(endian=endian), "filters": filters}
        model = numbers((256, 64))
        array = stored(LocalStore(tmp_path), model, chunks=(128, 64), **options)
        path = tmp_path / "c/1/0"
        content = path.read_bytes()
        assert np.array_equal(array[...], model)
        for found in (65535, 65537):
            path.write_bytes((content + b"x")[:found])
            with pytest.raises(ChunkSizeError, match=f"{path}.* 65536 bytes, found {found}"):
                array[...]
        path.unlink()
        model[128:] = 0
        assert np.array_equal(array[...], model)
        path.mkdir()
        for act in (lambda: array[...], lambda: array.__setitem__(..., 1)):
            with pytest.raises(ChunkFileError, match=f"{path} is a folder"):
                act()
        assert [p.name for p in path.parent.iterdir()] == ["0"]

    @pytest.mark.parametrize("endian", ["little", "big"])
    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            (np.s_[100:], "bytes 400000 to 1600000 of .* are 1200000 bytes, found 1199999"),
            (np.s_[:, 500:], "bytes 2000 to 1600000 of .* are 1598000 bytes, found 1597999"),
        ],
        ids=["one run", "tile"],
    )
    def test_a_file_that_ends_within_an_element(self, tmp_path, endian, selection, expected):
        codec = BytesCodec(endian=endian)
        array = stored(LocalStore(tmp_path), numbers((400, 1000), "i4"), serializer=codec)
        path = tmp_path / "c/0/0"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ChunkSizeError, match=expected):
            array[selection]

    def test_a_bool_of_a_later_block_is_found_where_it_is(self, tmp_path):
        values = np.zeros((3000, 1000), "u1")
        values[2800, 7] = 2
        array = stored(LocalStore(tmp_path), np.ones((3000, 1000), bool))
        (tmp_path / "c/0/0").write_bytes(values.tobytes())
        assert not array[:2800].any()
        with pytest.raises(BoolValueError, match=r"found 2 at index \(2800, 7\) of the chunk"):
            array[...]
        with pytest.raises(BoolValueError, match=r"found 2 at index \(2300, 7\) of the selection"):
            array[500:]

    def test_a_chunk_of_requests_that_is_deleted_midway_is_an_error_not_a_mix(self):
        array = faulty(deleted_at_the_twentieth, filters=[TRANSPOSED])
        with (
            zarr.config.set({"zarr_bytes.gap.remote": 0}),
            pytest.raises(ChunkSizeError, match="are there and others are missing"),
        ):
            array[:40, ::100]


class TestAfterAnError:
    """Nothing runs on: no chunk is begun, and what has begun is waited for."""

    @pytest.fixture(params=["chunks", "shards"])
    def array(self, request, tmp_path):
        """Of 40 chunks or shards, on a file system that is known to be local."""
        inner = ShardingCodec(chunk_shape=(1, 5), codecs=[BytesCodec(endian="big")])
        options = {"serializer": inner} if request.param == "shards" else {}
        array = stored(LocalStore(tmp_path), numbers((40, 10)), chunks=(1, 10), **options)
        assert array[0, 0] == 0
        with zarr.config.set({"codec_pipeline.max_workers": 1, "async.concurrency": 1}):
            yield array

    def test_no_other_item_is_begun_and_what_has_begun_is_waited_for(self):
        begun, ended, both, is_raised = [], [], threading.Barrier(2, timeout=30), threading.Event()

        def work(i):
            begun.append(i)
            both.wait()
            if i == 0:
                is_raised.set()
                raise PermissionError("no more")
            assert is_raised.wait(30)
            ended.append(i)

        with pytest.raises(PermissionError, match="no more"):
            asyncio.run(in_threads(partial(map, work), range(100), 2))
        assert begun[:2] in ([0, 1], [1, 0])
        assert ended == begun[begun.index(1) :][:1] + begun[2:]

    @pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
    def test_of_one_chunk_no_later_file_is_opened(self, array, tmp_path, is_written):
        (tmp_path / "c/3/0").unlink()
        (tmp_path / "c/3/0").mkdir()
        act = partial(array.__setitem__, ..., -1) if is_written else partial(array.__getitem__, ...)
        with watched(tmp_path) as files, pytest.raises(ChunkFileError, match="c/3/0 is a folder"):
            act()
        keys = [key.partition(".")[0] for key in files.keys]
        assert list(dict.fromkeys(keys)) == [f"c/{i}/0" for i in range(4)]
        assert is_written or len(keys) == 4  # each is opened once
        assert not list(tmp_path.rglob("*.partial"))

    def test_of_one_request_the_others_are_cancelled_and_none_is_begun(self):
        array = faulty(fails_at_the_fifth, chunks=(1, 5000))
        with (
            zarr.config.set({"async.concurrency": 4, "zarr_bytes.gap.remote": 100}),
            pytest.raises(PermissionError, match="no more"),
        ):
            array[:, 7]
        assert array.store_path.store.running == 0
        assert len(array.store_path.store.requests) <= 8

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    def test_cancelling_a_read_waits_for_the_chunk_that_has_begun(
        self, array, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(limits, "LIMITS", SMALL)
        stop = Stop()
        fail_at(monkeypatch, "preadv", 0, before=stop)
        with watched(tmp_path) as files:
            assert stop.cancelled(array.async_array.getitem(...))
        assert files.keys == ["c/0/0"]


@pytest.mark.parametrize("kind", ["local", "memory", "requests"])
class TestMissingChunks:
    @pytest.mark.usefixtures("sizes")
    def test_are_the_fill_value(self, tmp_path, kind):
        options = {"fill_value": 7, "filters": [TRANSPOSED], "config": {"order": "F"}}
        array = created(store_with(kind, {}, tmp_path), (6, 8), "i4", chunks=(3, 4), **options)
        array[:3, :4] = 1
        expected = np.full((6, 8), 7)
        expected[:3, :4] = 1
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array[1:5, ::3], expected[1:5, ::3])
        assert np.array_equal(array.oindex[[4, 2], [7, 0]], expected[np.ix_([4, 2], [7, 0])])

    if hasattr(zarr.errors, "ChunkNotFoundError"):  # from zarr 3.3 on

        def test_are_errors_where_zarr_is_told_so(self, tmp_path, kind):
            array = created(store_with(kind, {}, tmp_path), (6, 8), "i4", chunks=(3, 4))
            array[:3] = 1
            with zarr.config.set({"array.read_missing_chunks": False}):
                array = zarr.open_array(array.store, mode="r")
            assert (array[:3] == 1).all()
            with pytest.raises(zarr.errors.ChunkNotFoundError, match="c/1/0") as caught:
                array[2:4, :3]
            assert "c/0/0" not in str(caught.value)


class TestWriting:
    @pytest.mark.parametrize("dtype", [">f8", "<f8"])
    def test_a_chunk_that_differs_at_its_beginning_is_not_compared_to_its_end(
        self, tmp_path, monkeypatch, dtype
    ):
        compared, array_equal = [], np.array_equal
        monkeypatch.setattr(
            np, "array_equal", lambda a, b: (compared.append(a.nbytes), array_equal(a, b))[1]
        )
        values = np.zeros(MEBIBYTE, dtype)
        values[100] = 1
        array = created(LocalStore(tmp_path), values.shape, "f8")
        array[...] = values
        assert sum(compared) <= 2**16
        compared.clear()
        array[...] = np.zeros(MEBIBYTE, dtype)  # and an empty one is
        assert sum(compared) > 7 * MEBIBYTE
        assert keys_of(array.store) == []

    @pytest.mark.parametrize("kind", ["local", "memory"])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    @pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
    def test_a_chunk_at_the_edge_of_which_all_is_written_is_not_read(
        self, tmp_path, kind, way, filters
    ):
        store = store_with(kind, {}, tmp_path)
        options = {"chunks": (4, 4), "fill_value": 9, "filters": filters}
        created(store, (5, 3), "u1", **options)[...] = 1
        if kind == "local":
            os.truncate(tmp_path / "c/1/0", 3)  # reading it would be an error
        else:
            store._store_dict["c/1/0"] = store._store_dict["c/1/0"][:3]
        with zarr.config.set(way):
            array = zarr.open_array(store, mode="r+")
        array[4:] = [[2, 3, 4]]
        array.resize((8, 4))
        assert array[4:].tolist() == [[2, 3, 4, 9], *3 * [[9, 9, 9, 9]]]


BIG = BytesCodec(endian="big")
LAYOUTS = {
    "plain": {},
    "transposed": {"filters": [TRANSPOSED]},
    "shards": {"serializer": ShardingCodec(chunk_shape=(3, 4), codecs=[BIG])},
}


@pytest.mark.parametrize("layout", LAYOUTS)
class TestErrorsOfWriting:
    VALUES = numbers((300, 400), "i4")  # 480,000 bytes

    def array(self, folder, layout):
        array = created(LocalStore(folder), (300, 400), "i4", **LAYOUTS[layout])
        return zarr.open_array(array.store, mode="r+")  # of which no part is written in place

    @pytest.mark.parametrize("selection", [np.s_[...], np.s_[100:]], ids=["whole", "part"])
    @pytest.mark.parametrize("most", [320_001, 100_001])
    @pytest.mark.parametrize("is_new", [False, True], ids=["there", "new"])
    def test_a_chunk_that_is_cut_short_is_not_replaced(
        self, tmp_path, layout, selection, most, is_new
    ):
        array = self.array(tmp_path, layout)
        if not is_new:
            array[...] = self.VALUES
        error = pytest.raises(OSError, match=f"{most} of .* the .* has not been replaced")
        with no_file_larger_than(most), error as caught:
            array[selection] = -1
        assert caught.value.errno == errno.EFBIG
        assert np.array_equal(array[...], self.VALUES * (not is_new))
        assert keys_of(array.store) == ["c/0/0"] * (not is_new)

    @pytest.mark.parametrize("more", [-1, 1])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    def test_a_selection_of_a_chunk_of_another_size_is_an_error_that_changes_nothing(
        self, tmp_path, layout, way, more
    ):
        self.array(tmp_path, layout)[...] = self.VALUES
        os.truncate(path := tmp_path / "c/0/0", (size := path.stat().st_size) + more)
        before = path.read_bytes()
        with zarr.config.set(way):
            opened = zarr.open_array(tmp_path, mode="r+")
        error = ShardIndexError if layout == "shards" else ChunkSizeError
        with pytest.raises(error, match=f"{size} bytes, found {size + more}|checksum"):
            opened[3, 7:9] = -1
        assert path.read_bytes() == before

    def test_values_that_cannot_be_converted_leave_no_temporary_file(self, tmp_path, layout):
        array = created(LocalStore(tmp_path), (3, 4), "i4", **LAYOUTS[layout])
        array[...] = 7
        with pytest.raises((TypeError, ValueError)):
            array[...] = np.full((3, 4), "a")
        assert (array[...] == 7).all()
        assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
class TestMemory:
    """A chunk of 48 MiB, that zarr's own way copies whole at least once."""

    SHAPE = (2048, 3072)  # of 8 bytes
    LIMIT = 20 * MEBIBYTE  # less than half of the chunk

    def array(self, folder, endian="big", **options):
        codec = BytesCodec(endian=endian)
        return created(LocalStore(folder), self.SHAPE, "f8", serializer=codec, **options)

    def test_of_writing_a_whole_chunk_is_that_of_a_few_blocks(self, tmp_path, filters):
        for endian, order in [("big", "C"), ("little", "F"), ("big", "F")]:
            values = np.zeros(self.SHAPE, order=order)
            values[...] = np.arange(3072)
            array = self.array(tmp_path / endian / order, endian, filters=filters)
            _, peak = most_memory(lambda: array.__setitem__(..., values))  # noqa: B023
            assert peak < self.LIMIT
            assert (tmp_path / endian / order / "c/0/0").stat().st_size == values.nbytes

    def test_of_reading_is_that_of_the_result_and_a_few_blocks(self, tmp_path, filters):
        array, values = self.array(tmp_path, filters=filters), np.arange(3072.0)
        array[...] = np.broadcast_to(values, self.SHAPE)
        for selection in np.s_[...], np.s_[:, 100:3000], np.s_[::2], np.s_[::3, ::2]:
            found, peak = most_memory(lambda: array[selection])  # noqa: B023
            assert peak < found.nbytes + self.LIMIT
            assert np.array_equal(found, np.broadcast_to(values, self.SHAPE)[selection])
        rows = np.random.default_rng(0).permutation(2048)
        found, peak = most_memory(lambda: array.oindex[rows, :])
        assert peak < found.nbytes + 64 * MEBIBYTE
        assert np.array_equal(found[5], values)


class TestRequests:
    @pytest.mark.parametrize("batch_size", [1, 3])
    @pytest.mark.parametrize(
        ("selection", "requests", "nbytes"),
        [(np.s_[:, 7], 100, 8), (np.s_[:, ::1000], 500, 8), (np.s_[:40], 40, None)],
        ids=["a range of each", "five ranges of each", "whole chunks"],
    )
    def test_those_of_all_chunks_share_zarrs_limit(self, selection, requests, nbytes, batch_size):
        """Whatever zarr's size of a batch is."""

        async def fault(number, buffer):
            await asyncio.sleep(0)
            return buffer

        with zarr.config.set({"codec_pipeline.batch_size": batch_size}):
            array = faulty(fault, numbers((100, 5000)), chunks=(1, 5000))
        with zarr.config.set({"async.concurrency": 7, "zarr_bytes.gap.remote": 100}):
            assert np.array_equal(array[selection], numbers((100, 5000))[selection])
        assert array.store_path.store.most == 7
        found = array.store_path.store.requests
        assert len(found) == requests
        assert {r and r.end - r.start for r in found} == {nbytes}
