"""The pipeline of this package leaves to zarr what it must, and reads into any buffer.

The tests of reading and writing run with it too; here is what it does otherwise.
"""

import asyncio
import threading
from contextlib import nullcontext
from functools import partial
from mmap import mmap

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from fuzz import conditions, same, store_with
from fuzz_arrays import arrays, basic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_arrays import DEVICE, created, most_memory, numbers, pipeline_of, stored
from system_calls import written_to
from zarr.buffer import cpu
from zarr.codecs import TransposeCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore

from zarr_bytes import BatchedBytesPipeline, BytesCodec, EndianCodec, view
from zarr_bytes.io.tasks import map_in_threads

pytest.importorskip("resource", reason="files are replaced by this package on POSIX systems")

pytestmark = [pytest.mark.zarr, pytest.mark.filterwarnings("ignore:The data type")]


@pytest.fixture(autouse=True)
def chosen():
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedBytesPipeline"]}):
        yield


def test_a_selection_is_read_into_a_buffer_of_the_caller(tmp_path):
    array, out = stored(LocalStore(tmp_path), numbers((4, 6))), np.empty((2, 6))
    array.get_basic_selection(np.s_[1:3], out=cpu.NDBuffer.from_numpy_array(out))
    assert np.array_equal(out, numbers((4, 6))[1:3])


def test_the_pipeline_takes_its_codecs_by_position_as_zarrs_does():
    codecs = [TransposeCodec(order=(0,)), BytesCodec()]
    for pipeline in BatchedCodecPipeline, BatchedBytesPipeline:
        parts = vars(BatchedCodecPipeline.from_codecs(codecs, batch_size=7))
        assert vars(pipeline(*parts.values())).items() >= parts.items()


class TestWhatIsLeftToZarr:
    @pytest.mark.parametrize("name", ["bytes", "bytes in place", "endian", "transpose"])
    def test_a_subclass_of_a_codec_is_left_to_zarrs_pipeline(self, tmp_path, name):
        """Here it inverts what it gets."""

        def inverted(buffer):
            if isinstance(buffer, cpu.NDBuffer):
                return buffer.from_ndarray_like(~buffer.as_ndarray_like())
            return buffer.from_array_like(~buffer.as_numpy_array())

        class Bytes(EndianCodec if name == "endian" else BytesCodec):
            def _decode_sync(self, chunk_bytes, chunk_spec):
                return super()._decode_sync(inverted(chunk_bytes), chunk_spec)

            def _encode_sync(self, chunk_array, chunk_spec):
                return inverted(super()._encode_sync(chunk_array, chunk_spec))

            async def _decode_partial_single(self, byte_getter, selection, chunk_spec):
                chunk_bytes = await byte_getter.get(chunk_spec.prototype)
                return self._decode_sync(chunk_bytes, chunk_spec)[selection]

        class Transpose(TransposeCodec):
            async def _decode_single(self, chunk_array, chunk_spec):
                return await super()._decode_single(inverted(chunk_array), chunk_spec)

            async def _encode_single(self, chunk_array, chunk_spec):
                return await super()._encode_single(inverted(chunk_array), chunk_spec)

        order = (1, 0) if name == "transpose" else (0, 1)
        options = {"serializer": Bytes(endian="big")}
        if name == "transpose":
            options = {"filters": [Transpose(order=order)]}
        array = created(tmp_path, (3, 4), "i4", in_place=name == "bytes in place", **options)
        array[...] = model = numbers((3, 4), "i4")
        array[1] = model[1] = 7
        assert np.array_equal(array[...], model)
        assert np.array_equal(array[1:, 2], model[1:, 2])
        in_file = (~model).transpose(order).astype(">i4")
        assert (tmp_path / "c/0/0").read_bytes() == in_file.tobytes()

    def test_buffers_of_device_memory_are_left_to_zarrs_pipeline(self, tmp_path):
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
            for selection in np.s_[2, 3:5], np.s_[5:], ([6, 1, 4], 3):
                values = -model[selection]
                array.set_orthogonal_selection(selection, values, prototype=DEVICE)
                model[selection] = values
        assert ranges == []
        found = array.get_basic_selection(np.s_[1:7, 3], prototype=DEVICE)
        assert np.array_equal(found, model[1:7, 3])
        assert asked == ["write", "write", "write", "read"]


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


class TestReadingIntoABufferOfTheCaller:
    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_a_read_fills_a_buffer_of_any_memory_and_data_type(self, tmp_path_factory, data):
        example = data.draw(arrays(can_be_missing=True))
        values, entries = example.values(), data.draw(basic(example.shape))
        expected = np.asarray(values[entries])
        out = buffer_for(data.draw, expected)
        with conditions(data.draw, "BatchedBytesPipeline"):
            store = store_with("local", example.objects(values), tmp_path_factory.mktemp("a"))
            zarr.open_array(store, mode="r").get_basic_selection(entries, out=out)
        model = np.empty_like(out.as_numpy_array())
        model[...] = expected
        same(out.as_numpy_array(), model)

    @pytest.mark.filterwarnings("ignore:the matrix subclass")
    @pytest.mark.parametrize("endian", ["little", "big"])
    @pytest.mark.parametrize(
        "make",
        [
            lambda shape: np.empty(shape, object),
            lambda shape: np.ma.masked_all(shape, "f8"),
            lambda shape: np.asmatrix(np.zeros(shape)),
        ],
        ids=["objects", "masked", "matrix"],
    )
    def test_a_read_fills_a_buffer_of_any_class_of_numpy(self, tmp_path, make, endian):
        values = numbers((200, 100))
        array = stored(tmp_path, values, (100, 100), serializer=BytesCodec(endian=endian))
        for selection in (slice(None),), (slice(1, 3),), ([1, 150, 3],):
            out = make(values[selection].shape)
            buffer = cpu.NDBuffer.from_ndarray_like(out)
            array.get_orthogonal_selection(selection, out=buffer)
            assert out.tolist() == values[selection].tolist()

    def test_a_read_into_a_read_only_buffer_is_numpys_error(self, tmp_path):
        array = stored(tmp_path, numbers((100, 100)), serializer=BytesCodec())
        buffer = cpu.NDBuffer.from_numpy_array(np.zeros((100, 100)))
        for is_writeable in False, True, False:  # also after a read into one that is not
            buffer.as_numpy_array().flags.writeable = is_writeable
            error = pytest.raises(ValueError, match="read-only")
            with nullcontext() if is_writeable else error:
                array.get_basic_selection(..., out=buffer)

    @pytest.mark.parametrize("rows", [600, 6000], ids=["in one read", "in several"])
    @pytest.mark.parametrize("mapped", ["view", "memmap"])
    def test_a_read_fills_a_buffer_that_maps_the_file_itself(self, tmp_path, mapped, rows):
        """Elements are read before others take their place, as from any other memory."""
        values = numbers((rows, 100), "<i4")
        options = {"serializer": BytesCodec(), "in_place": mapped == "view"}
        array = stored(LocalStore(tmp_path), values, **options)
        if mapped == "view":
            memory = view(array, "r+")[...]
        else:
            memory = np.memmap(tmp_path / "c/0/0", values.dtype, shape=values.shape)
        for out in memory[::2], np.zeros_like(memory)[::2]:  # of the same strides
            array.get_basic_selection(slice(rows // 2), out=cpu.NDBuffer.from_numpy_array(out))
            assert np.array_equal(out, values[: rows // 2])
            array[...] = values

    def test_a_read_into_shared_memory_copies_no_buffer(self, tmp_path):
        array = stored(LocalStore(tmp_path), numbers((1000, 1000)), (100, 1000))
        out = np.frombuffer(mmap(-1, array.nbytes)).reshape(array.shape)
        buffer = cpu.NDBuffer.from_numpy_array(out)
        _, memory = most_memory(lambda: array.get_basic_selection(..., out=buffer))
        assert memory < array.nbytes


def test_an_array_may_have_as_many_axes_as_numpy_has(tmp_path):
    """In either byte order, of which one is converted."""
    values = numbers((2,) + (1,) * 63, "i4") + 1
    for endian in "little", "big":
        array = stored(tmp_path / endian, values, serializer=BytesCodec(endian=endian))
        assert array.oindex[np.array([False, True])].ravel().tolist() == [2]


def test_an_error_in_a_thread_begins_no_other_chunk_and_waits_for_those_that_have_begun():
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
        asyncio.run(map_in_threads(partial(map, work), range(100), 2))
    assert begun[:2] in ([0, 1], [1, 0])
    assert ended == begun[begun.index(1) :][:1] + begun[2:]


if hasattr(zarr.errors, "ChunkNotFoundError"):  # from zarr 3.3 on

    @pytest.mark.parametrize("kind", ["local", "memory", "requests"])
    def test_missing_chunks_are_errors_where_zarr_is_told_so(tmp_path, kind):
        array = created(store_with(kind, {}, tmp_path), (6, 8), "i4", chunks=(3, 4))
        array[:3] = 1
        with zarr.config.set({"array.read_missing_chunks": False}):
            array = zarr.open_array(array.store, mode="r")
        assert (array[:3] == 1).all()
        with pytest.raises(zarr.errors.ChunkNotFoundError, match="c/1/0") as caught:
            array[2:4, :3]
        assert "c/0/0" not in str(caught.value)
