"""The pipeline of this package: when it acts, and that it reads and writes what NumPy says.

The tests of the codec run with it too; here is what it does otherwise. Most of its ways are for
large arrays: their limits are made small here, so that small arrays go each way.
"""

import asyncio
import copy
import errno
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from functools import partial

import device_memory
import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import chunks_of, document_of, same, settings_of, store_with, values_of
from fuzz_arrays import arrays, basic, reads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_place import IN_PLACE, created, written_to
from test_file_writing import no_file_larger_than, on_a_small_disk
from test_partial_read import CountingStore, FaultyStore, numbers, put, stored
from zarr.buffer import cpu
from zarr.codecs import BloscCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BoolValueError, BytesCodec, BytesPipeline, ChunkFileError, ChunkSizeError
from zarr_bytes.chunk import limits
from zarr_bytes.chunk.limits import Limits
from zarr_bytes.chunk.threads import in_threads
from zarr_bytes.codec import EndianCodec, PartialWriteBytesCodec

pytestmark = pytest.mark.filterwarnings("ignore:The data type", "ignore:.*does not answer byte")

CHOSEN = {"codec_pipeline.path": PIPELINES["BytesPipeline"]}
MEBIBYTE = 2**20


@pytest.fixture(autouse=True)
def chosen():
    with zarr.config.set(CHOSEN):
        yield


# Small arrays go the ways of large ones: windows, blocks and parts.
SMALL = Limits(
    loop=0,
    loop_each=0,
    one_thread=0,
    assigned=24,
    direct=8,
    block=48,
    block_out_of_order=96,
    windowed=16,
    size_not_asked=16,
    runs=4,
    compared=16,
)


def make_limits_small(patch):
    patch.setattr(limits, "LIMITS", SMALL)


@pytest.fixture(params=["as they are", "small"])
def sizes(request, monkeypatch):
    if request.param == "small":
        make_limits_small(monkeypatch)


def pipeline_of(array):
    return array._async_array.codec_pipeline


def property_of(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


class TestChoosing:
    def test_it_is_off_unless_chosen(self):
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            array = zarr.create_array({}, shape=3, dtype="i4", serializer=BytesCodec())
        assert not isinstance(pipeline_of(array), BytesPipeline)
        done = in_a_process("print(zarr.config.get('codec_pipeline.path'))")
        assert "zarr_bytes" not in done

    def test_by_zarrs_configuration(self):
        array = created(MemoryStore(), (3,), "i4")
        assert type(pipeline_of(array)) is BytesPipeline
        assert pipeline_of(array).acts

    def test_by_the_environment_with_nothing_imported(self):
        code = (
            "a = zarr.create_array({}, shape=3, dtype='i4', compressors=None,"
            " serializer={'name': 'bytes', 'configuration': {'endian': 'big'}});"
            "a[:] = 7;"
            "print(type(a._async_array.codec_pipeline).__name__, a[1])"
        )
        path = {"ZARR_CODEC_PIPELINE__PATH": "zarr_bytes.BytesPipeline"}
        assert in_a_process(code, **path) == "BytesPipeline 7\n"

    @pytest.mark.parametrize("again", [lambda a: pickle.loads(pickle.dumps(a)), copy.deepcopy])  # noqa: S301
    def test_an_array_that_is_sent_to_another_process_keeps_it(self, tmp_path, again):
        array = created(LocalStore(tmp_path), (6, 4), "i4", filters=[TransposeCodec(order=(1, 0))])
        array[...] = numbers((6, 4))
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
            found = again(array)
            assert pipeline_of(found) == pipeline_of(array)
            assert hash(pipeline_of(found)) == hash(pipeline_of(array))
            assert np.array_equal(found[2:, 1], numbers((6, 4))[2:, 1])

    def test_dask_reads_and_writes_through_it(self, tmp_path):
        dask_array = pytest.importorskip("dask.array")
        array = created(LocalStore(tmp_path), (8, 6), "f8", chunks=(4, 3))
        values = dask_array.from_array(numbers((8, 6)), chunks=(4, 3))
        dask_array.store(values, array, lock=False, scheduler="threads")
        total = dask_array.from_array(array, chunks=(4, 3)).sum(axis=0)
        found = total.compute(scheduler="threads", num_workers=2)
        assert np.array_equal(found, numbers((8, 6)).sum(axis=0))

    @pytest.mark.parametrize("name", ["batched"] + ["fused"] * HAS_FUSED_PIPELINE)
    def test_one_of_zarrs_stands_behind_it(self, name):
        with zarr.config.set({"zarr_bytes.other_chains": name}):
            array = zarr.create_array({}, shape=3, dtype="i4", compressors=ZstdCodec())
        assert type(pipeline_of(array).other).__name__ == f"{name.title()}CodecPipeline"
        array[:] = 7
        assert array[:].tolist() == [7, 7, 7]

    @pytest.mark.parametrize("name", ["batched"] + ["fused"] * HAS_FUSED_PIPELINE)
    @pytest.mark.parametrize("chain", ["compressor", "shard", "format 2"])
    def test_which_is_fitted_to_the_array_as_by_zarr(self, name, chain):
        store, found = MemoryStore(), []
        zarr.create_array(store, shape=(7, 9), chunks=(4, 6), dtype="i4", **OTHER_CHAINS[chain])
        for path in (PIPELINES[f"{name.title()}CodecPipeline"], PIPELINES["BytesPipeline"]):
            with zarr.config.set({"codec_pipeline.path": path, "zarr_bytes.other_chains": name}):
                found.append(pipeline_of(zarr.open_array(store)))
        assert found[1].other == found[0]

    if HAS_FUSED_PIPELINE:  # up to zarr 3.2 no pipeline is fitted

        def test_fitting_it_to_a_data_type_fits_its_codecs(self):
            spec = zarr.core.array_spec.ArraySpec(
                shape=(3,),
                dtype=zarr.dtype.UInt8(),
                fill_value=0,
                config=zarr.core.array_spec.ArrayConfig.from_dict({}),
                prototype=cpu.buffer_prototype,
            )
            with zarr.config.set(IN_PLACE):
                fitted = BytesPipeline.from_codecs([BytesCodec()]).evolve_from_array_spec(spec)
            for codec in (fitted.codec, *fitted):
                assert type(codec) is PartialWriteBytesCodec
                assert codec.endian is None

    def test_a_name_that_is_none_of_them_is_an_error(self):
        expected = "zarr_bytes.other_chains is 'rust'; permitted with zarr .* are 'batched'"
        with (
            zarr.config.set({"zarr_bytes.other_chains": "rust"}),
            pytest.raises(ValueError, match=expected),
        ):
            zarr.create_array({}, shape=3, dtype="i4")


def in_a_process(code, **variables):
    done = subprocess.run(
        [sys.executable, "-c", f"import zarr; {code}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TRANSPOSED = TransposeCodec(order=(1, 0))
BIG_ENDIAN = {"compressors": None, "serializer": BytesCodec(endian="big")}
OTHER_CHAINS = {
    "compressor": BIG_ENDIAN | {"compressors": ZstdCodec()},
    "checksum": BIG_ENDIAN | {"compressors": Crc32cCodec()},
    "compressor behind transpose": BIG_ENDIAN
    | {"filters": [TRANSPOSED], "compressors": BloscCodec()},
    "shard": BIG_ENDIAN
    | {"serializer": ShardingCodec(chunk_shape=(2, 3), codecs=[BytesCodec(endian="big")])},
    "shard of transposed chunks": BIG_ENDIAN
    | {
        "serializer": ShardingCodec(
            chunk_shape=(2, 3), codecs=[TRANSPOSED, BytesCodec(endian="big")]
        )
    },
    "zarr's own codec": BIG_ENDIAN | {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "format 2": {"compressors": None, "zarr_format": 2},
}


def created_without_parts(folder, **options):
    return zarr.create_array(folder, shape=(3, 4), dtype="i4", **BIG_ENDIAN | options)


class TestActing:
    @pytest.mark.parametrize("count", [0, 1, 2])
    @pytest.mark.parametrize("codec", [BytesCodec, EndianCodec])
    @pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])
    def test_for_any_number_of_transposes_and_this_packages_codec(self, count, codec, way):
        filters = [TRANSPOSED, TransposeCodec(order=(0, 1))][:count]
        with zarr.config.set(way):
            array = zarr.create_array(
                {}, shape=(3, 4), dtype="i4", compressors=None, filters=filters, serializer=codec()
            )
        assert pipeline_of(array).acts
        assert [type(c) for c in pipeline_of(array)][:-1] == [TransposeCodec] * count

    @pytest.mark.parametrize("other", ["batched"] + ["fused"] * HAS_FUSED_PIPELINE)
    @pytest.mark.parametrize("chain", OTHER_CHAINS)
    def test_every_other_chain_reads_and_writes_as_with_zarrs_pipeline(self, chain, other):
        contents = []
        for path in (PIPELINES["BatchedCodecPipeline"], PIPELINES["BytesPipeline"]):
            store, model = MemoryStore(), numbers((7, 9), "i4")
            with zarr.config.set({"codec_pipeline.path": path, "zarr_bytes.other_chains": other}):
                array = zarr.create_array(
                    store, shape=(7, 9), chunks=(4, 6), dtype="i4", **OTHER_CHAINS[chain]
                )
                array[...] = model
                array[2:5, ::2] = model[2:5, ::2] = -1
                assert np.array_equal(array[...], model)
                assert np.array_equal(array[3, 1:8:3], model[3, 1:8:3])
                assert np.array_equal(array.oindex[[5, 1], [8, 0]], model[np.ix_([5, 1], [8, 0])])
            if "zarr_bytes" in path:
                assert not pipeline_of(array).acts
            contents.append({key: value.to_bytes() for key, value in store._store_dict.items()})
        assert contents[0] == contents[1]

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
            array = created_without_parts(tmp_path, serializer=Inverted(endian="big"))
        array[...] = model = numbers((3, 4), "i4")
        array[1] = model[1] = 7
        assert np.array_equal(array[...], model)
        assert np.array_equal(array[1:, 2], model[1:, 2])
        assert (tmp_path / "c/0/0").read_bytes() == (~model).astype(">i4").tobytes()

    def test_a_subclass_of_transpose_does_what_it_does_otherwise(self, tmp_path):
        class Negated(TransposeCodec):
            async def _decode_single(self, chunk_array, chunk_spec):
                return await super()._decode_single(negative(chunk_array), chunk_spec)

            async def _encode_single(self, chunk_array, chunk_spec):
                return await super()._encode_single(negative(chunk_array), chunk_spec)

        def negative(chunk_array):
            return chunk_array.from_ndarray_like(-chunk_array.as_ndarray_like())

        array = created_without_parts(tmp_path, filters=[Negated(order=(1, 0))])
        array[...] = model = numbers((3, 4), "i4")
        array[1] = model[1] = 7
        assert np.array_equal(array[...], model)
        assert np.array_equal(array[1:, 2], model[1:, 2])
        assert (tmp_path / "c/0/0").read_bytes() == (-model).T.astype(">i4").tobytes()

    def test_buffers_of_another_memory_are_left_to_zarrs_pipeline(self, tmp_path):
        asked = []

        class Other(type(pipeline_of(created({}, (2,), "i4")).other)):
            async def read(self, *arguments, **named):
                asked.append("read")
                return await super().read(*arguments, **named)

            async def write(self, *arguments, **named):
                asked.append("write")
                return await super().write(*arguments, **named)

        array = created(LocalStore(tmp_path), (8, 9), "i4")
        array[...] = model = numbers((8, 9), "i4")
        ours = pipeline_of(array)
        object.__setattr__(ours, "other", Other.from_codecs(list(ours)))
        prototype = device_memory.PROTOTYPE
        values = np.array([7, 8], "i4")
        array.set_basic_selection(np.s_[2, 3:5], values, prototype=prototype)
        model[2, 3:5] = values
        found = array.get_basic_selection(np.s_[1:4, 3], prototype=prototype)
        assert np.array_equal(found, model[1:4, 3])
        assert asked == ["write", "read"]


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
    @property_of(40)
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

    if "rectilinear_chunks" in zarr.config.get("array"):  # from zarr 3.3 on

        def test_a_chunk_grid_of_chunks_of_several_shapes(self, tmp_path):
            with zarr.config.set({"array.rectilinear_chunks": True}):
                array = created(LocalStore(tmp_path), (10, 6), "i4", chunks=[[3, 3, 4], [2, 4]])
            array[...] = model = numbers((10, 6), "i4")
            array[2:8, 1::2] = model[2:8, 1::2] = -1
            assert np.array_equal(array[...], model)
            assert np.array_equal(array[:, 3], model[:, 3])


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


def stored_runs(selection):
    """Offset and length of each run of selected bytes of the stored chunk, from NumPy."""
    selected = np.zeros((*SHAPE, 8), bool)
    selected[selection] = True
    flat = selected.transpose(*ORDER, 3).reshape(-1).view("i1")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat, [0]])))
    return [(int(start), int(stop - start)) for start, stop in edges.reshape(-1, 2)]


class TestSmallChunks:
    """A chunk is read as the one before, where it is selected alike."""

    def array(self, path):
        array = stored(LocalStore(path), numbers((600, 8)), chunks=(1, 8))
        assert array[0, 0] == 0  # now the file system is known
        return array

    @pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot tell")
    def test_that_need_not_be_waited_for_take_no_thread(self, tmp_path, monkeypatch):
        array = self.array(tmp_path)
        (tmp_path / "c/7/0").unlink()
        monkeypatch.delattr(asyncio, "to_thread")
        expected = numbers((600, 8))
        expected[7] = 0
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array[:, 2:5], expected[:, 2:5])
        assert np.array_equal(array[::3, 4], expected[::3, 4])

    @pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot tell")
    def test_from_the_first_on_that_must_be_waited_for_are_read_in_a_thread(
        self, tmp_path, monkeypatch
    ):
        array, tries = self.array(tmp_path), []

        def preadv(file, buffers, offset, flags=0):
            tries.append(flags)
            if flags == os.RWF_NOWAIT and len(tries) > 40:
                raise BlockingIOError
            return read_now(file, buffers, offset)

        read_now = os.preadv
        monkeypatch.setattr(os, "preadv", preadv)  # what is in the page cache, nobody can command
        assert np.array_equal(array[...], numbers((600, 8)))
        assert tries == [os.RWF_NOWAIT] * 41 + [0] * 560

    @pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot tell")
    def test_leave_others_on_the_event_loop_their_turn(self, tmp_path, monkeypatch):
        array = self.array(tmp_path)
        monkeypatch.setattr(limits, "LIMITS", Limits(loop_chunks=20))
        monkeypatch.delattr(asyncio, "to_thread")

        async def run():
            reading, turns = asyncio.ensure_future(array._async_array.getitem(...)), 0
            while not reading.done():
                await asyncio.sleep(0)
                turns += 1
            return reading.result(), turns

        result, turns = asyncio.run(run())
        assert np.array_equal(result, numbers((600, 8)))
        assert turns >= 600 / 20

    def test_an_array_of_one_index_is_not_taken_for_the_index(self, tmp_path):
        """NumPy finds them equal, but keeps the axis of the first alone."""
        selections = [(0, 5), (0, np.array([5])), (0, 5), (0, slice(5, 6)), (slice(0, 1), 5)]
        places = [(0,), (slice(1, 2),), (2,), (slice(3, 4),), (slice(4, 5),)]
        found = read_in_turn(self.array(tmp_path), selections, places)
        assert found.tolist() == numbers((600, 8))[:5, 5].tolist()

    @pytest.mark.parametrize("index", [0, 1])
    def test_a_mask_of_one_element_is_not_taken_for_the_index_that_it_equals(self, tmp_path, index):
        """NumPy finds them equal, and here it refuses the mask."""
        array = stored(LocalStore(tmp_path), numbers((600, 8)), chunks=(2, 8))
        found = read_in_turn(array, [(index, 5), (index, 5)], [(0,), (1,)])
        assert found[:2].tolist() == [8 * index + 5, 16 + 8 * index + 5]
        mask = np.array([bool(index)])
        with pytest.raises(IndexError, match="boolean"):
            read_in_turn(array, [(index, 5), (mask, 5)], [(0,), (slice(1, 2),)])

    @pytest.mark.parametrize("rows", [3, 5000])
    def test_many_ranges_of_a_few_bytes_are_read_and_a_truncated_one_is_named(self, tmp_path, rows):
        stored(LocalStore(tmp_path), numbers((rows, 512), "i2"))
        with zarr.config.set({"zarr_bytes.gap.local": 0}):
            array = zarr.open_array(tmp_path, mode="r")
            assert np.array_equal(array[:, 3], numbers((rows, 512), "i2")[:, 3])
            start = (rows - 1) * 1024 + 6
            os.truncate(tmp_path / "c/0/0", start + 1)
            with pytest.raises(ChunkSizeError, match=f"bytes {start} to {start + 2} of .*found 1"):
                array[:, 3]


def read_in_turn(array, selections, places):
    """What a selection of each of the first chunks puts in its place among five elements."""
    spec = zarr.core.array_spec.ArraySpec(
        shape=array.chunks,
        dtype=array.metadata.data_type,
        fill_value=0,
        config=zarr.core.array_spec.ArrayConfig.from_dict({}),
        prototype=cpu.buffer_prototype,
    )
    batch = [
        (array.store_path / f"c/{row}/0", spec, selection, place, False)
        for row, (selection, place) in enumerate(zip(selections, places, strict=True))
    ]
    out = cpu.NDBuffer.from_numpy_array(np.full(5, -1.0))
    with zarr.config.set({"zarr_bytes.gap.local": 0}):  # the ranges alone
        asyncio.run(pipeline_of(array).read(batch, out))
    return out.as_numpy_array()


class TestBytesOfTransposedChunks:
    """A chunk of 300 x 40 x 50 float64: 4.8 MB, stored as 50 x 300 x 40."""

    def array(self, store):
        return stored(store, numbers(SHAPE), filters=[TransposeCodec(order=ORDER)])

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("rows", [64, 256], ids=["a few pages", "more"])
    def test_chunks_are_read_into_a_result_of_either_order(self, tmp_path, order, rows):
        values = numbers((2 * rows, 128))
        codec = BytesCodec(endian=sys.byteorder)
        stored(
            LocalStore(tmp_path),
            values,
            chunks=(rows, 128),
            serializer=codec,
            filters=[TransposeCodec(order=(1, 0))],
        )
        with zarr.config.set({"array.order": order}):
            array = zarr.open_array(tmp_path, mode="r")
            for selection in np.s_[...], np.s_[:rows], np.s_[rows:, 5:]:
                assert np.array_equal(array[selection], values[selection])

    @pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
    def test_the_requests_are_for_the_selected_bytes_and_no_others(self, selection):
        array = self.array(CountingStore(MemoryStore()))
        array.store_path.store.counted()
        with zarr.config.set({"zarr_bytes.gap.remote": 0}):
            assert np.array_equal(array[selection], numbers(SHAPE)[selection])
        found = array.store_path.store.requests
        assert sorted((r.start, r.end - r.start) for r in found) == stored_runs(selection)

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    @pytest.mark.parametrize("name", ["point", "column", "row", "plane"])
    def test_a_file_is_read_at_the_selected_bytes_and_no_others(self, tmp_path, monkeypatch, name):
        array, selection, ranges = self.array(LocalStore(tmp_path)), SELECTIONS[name], []
        preadv = os.preadv

        def counting(file, buffers, offset, *flags):
            count = preadv(file, buffers, offset, *flags)
            ranges.append((offset, count))
            return count

        def counting_short_ones(file, nbytes, offset):
            content = pread(file, nbytes, offset)
            ranges.append((offset, len(content)))
            return content

        pread = os.pread
        monkeypatch.setattr(os, "preadv", counting)
        monkeypatch.setattr(os, "pread", counting_short_ones)
        with zarr.config.set({"zarr_bytes.gap.local": 0}):
            assert np.array_equal(array[selection], numbers(SHAPE)[selection])
        assert sum(count for _, count in ranges) == sum(n for _, n in stored_runs(selection))

    @pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
    def test_those_of_the_selection_are_written_and_no_others(self, tmp_path, selection):
        array = created(LocalStore(tmp_path), SHAPE, "f8", filters=[TransposeCodec(order=ORDER)])
        array[...] = model = numbers(SHAPE)
        path = tmp_path / "c/0/0/0"
        with written_to(path) as ranges:
            array[selection] = model[selection] = -1 - np.zeros(SHAPE)[selection]
        assert sorted(ranges) == stored_runs(selection)
        assert path.read_bytes() == model.astype(">f8").transpose(ORDER).tobytes()


class TestErrorsOfReading:
    @pytest.mark.usefixtures("sizes")
    @property_of(60)
    @given(data=st.data())
    def test_what_is_wrong_with_a_file_is_said_as_the_codec_says_it(self, tmp_path_factory, data):
        """In the words of zarr's batched pipeline with this codec; where that reads, so here."""
        shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
        name = data.draw(st.sampled_from(["bool", "int32", "float64"]))
        values = np.ones(shape, {"bool": "?"}.get(name, name))
        endian = data.draw(st.sampled_from(["little", "big"]))
        ((key, content),) = chunks_of(values, shape, name, endian)
        fault = data.draw(st.sampled_from(["short", "long", "bool", "folder"]))
        if fault == "short":
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        elif fault == "long":
            content += b"x"
        elif fault == "bool":
            i = data.draw(st.integers(0, len(content) - 1))
            content = content[:i] + b"\5" + content[i + 1 :]
        document = json.dumps(document_of(name, shape, shape, endian)).encode()
        folder = tmp_path_factory.mktemp("a")
        store = store_with("local", {"zarr.json": document, key: content}, folder)
        if fault == "folder":
            (folder / key).unlink()
            (folder / key).mkdir()
        read, _ = data.draw(reads(shape, shape))
        outcomes = []
        with zarr.config.set(settings_of(data.draw)):
            for path in (PIPELINES["BatchedCodecPipeline"], PIPELINES["BytesPipeline"]):
                with zarr.config.set({"codec_pipeline.path": path}):
                    array = zarr.open_array(store, mode="r")
                    try:
                        outcomes.append(np.asarray(read(array)).tobytes())
                    except (ChunkSizeError, ChunkFileError, BoolValueError) as error:
                        outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]

    @pytest.mark.parametrize("endian", ["little", "big"])
    def test_chunks_of_a_few_pages_have_the_size_that_they_must(self, tmp_path, endian):
        """These are read straight into the result, where their byte order is its own."""
        codec, model = BytesCodec(endian=endian), numbers((256, 64))
        with zarr.config.set({"codec_pipeline.path": PIPELINES["BytesPipeline"]}):
            array = stored(LocalStore(tmp_path), model, chunks=(128, 64), serializer=codec)
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
        with pytest.raises(ChunkFileError, match="is a folder"):
            array[...]
        with pytest.raises(ChunkFileError, match="is a folder"):
            array[...] = 1
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

    @pytest.mark.parametrize("fault", ["truncated", "too long", "folder"])
    @pytest.mark.usefixtures("sizes")
    def test_of_a_transposed_chunk_too(self, tmp_path, fault):
        array = stored(LocalStore(tmp_path), numbers((50, 60)), filters=[TRANSPOSED])
        path = tmp_path / "c/0/0"
        content = path.read_bytes()
        path.unlink()
        if fault == "folder":
            path.mkdir()
        else:
            path.write_bytes(content[:-1] if fault == "truncated" else content + b"x")
        error, words = {
            "folder": (ChunkFileError, f"{path} is a folder"),
            "truncated": (ChunkSizeError, f"of {path} are 24000 bytes, found 23999"),
            "too long": (ChunkSizeError, f"of {path} are 24000 bytes, found 24001"),
        }[fault]
        with pytest.raises(error, match=re.escape(words)):
            array[...]

    def test_a_chunk_of_requests_that_is_deleted_midway_is_an_error_not_a_mix(self):
        async def fault(number, buffer):
            return buffer if number < 20 else None

        array = stored(FaultyStore(MemoryStore(), fault), numbers((50, 5000)), filters=[TRANSPOSED])
        array.store_path.store.requests.clear()
        array.store_path.store.fault = fault
        with (
            zarr.config.set({"zarr_bytes.gap.remote": 0}),
            pytest.raises(ChunkSizeError, match="are there and others are missing"),
        ):
            array[:40, ::100]


class TestThreads:
    def test_every_item_is_taken_by_one_of_them(self):
        taken = Counter()

        def work(items):
            for item in items:
                taken[item, threading.get_ident()] += 1
                yield -item

        found = asyncio.run(in_threads(work, range(5000), 8))
        assert found == [-i for i in range(5000)]
        assert sorted(item for item, _ in taken) == list(range(5000))
        assert set(taken.values()) == {1}


class TestAfterAnError:
    """Nothing runs on: no chunk is begun, and what has begun is waited for."""

    def test_no_other_item_is_begun_and_what_has_begun_is_waited_for(self):
        begun, ended, both = [], [], threading.Barrier(2, timeout=30)

        def work(i):
            begun.append(i)
            both.wait()
            if i == 0:
                raise PermissionError("no more")
            while not failed.wait(0.01):  # until the other has failed, and a little longer
                if is_failed():
                    failed.set()
            ended.append(i)

        failed = threading.Event()
        first = []

        def noting(i):
            try:
                work(i)
            except PermissionError:
                first.append(i)
                raise

        def is_failed():
            return bool(first)

        with pytest.raises(PermissionError, match="no more"):
            asyncio.run(in_threads(partial(map, noting), range(100), 2))
        assert sorted(begun) == [0, 1]
        assert ended == [1]

    def test_of_one_chunk_no_later_file_is_opened(self, tmp_path, monkeypatch):
        array = stored(LocalStore(tmp_path), numbers((40, 10)), chunks=(1, 10))
        assert array[0, 0] == 0  # now the file system is known
        (tmp_path / "c/3/0").write_bytes(b"short")
        opened = opened_chunks(monkeypatch, tmp_path)
        with zarr.config.set({"codec_pipeline.max_workers": 1}), pytest.raises(ChunkSizeError):
            array[...]
        assert sorted(set(opened)) == [f"c/{i}/0" for i in range(4)]

    def test_of_writing_one_chunk_no_later_file_is_opened(self, tmp_path, monkeypatch):
        array = stored(LocalStore(tmp_path), numbers((40, 10)), chunks=(1, 10))
        (tmp_path / "c/3/0").unlink()
        (tmp_path / "c/3/0").mkdir()
        opened = opened_chunks(monkeypatch, tmp_path)
        with (
            zarr.config.set({"codec_pipeline.max_workers": 1}),
            pytest.raises(ChunkFileError, match="c/3/0 is a folder"),
        ):
            array[...] = -1
        assert {key.partition(".")[0] for key in opened} == {f"c/{i}/0" for i in range(4)}
        assert not list(tmp_path.rglob("*.partial"))

    def test_of_one_request_the_others_are_cancelled_and_none_is_begun(self):
        async def fault(number, buffer):
            if number == 5:
                raise PermissionError("no more")
            await asyncio.sleep(0 if number < 5 else 60)
            return buffer

        array = column_of_chunks(fault)
        with (
            zarr.config.set({"async.concurrency": 4}),
            pytest.raises(PermissionError, match="no more"),
        ):
            array[:, 7]
        assert array.store_path.store.running == 0
        assert len(array.store_path.store.requests) <= 8

    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
    def test_cancelling_a_read_waits_for_the_chunk_that_has_begun(self, tmp_path, monkeypatch):
        make_limits_small(monkeypatch)
        array = stored(LocalStore(tmp_path), numbers((40, 10)), chunks=(1, 10))
        opened = opened_chunks(monkeypatch, tmp_path)
        assert cancelled(monkeypatch, "preadv", lambda a: a.getitem(...), array)
        assert opened == ["c/0/0"]

    @pytest.mark.parametrize("times", [1, 3])
    def test_cancelling_a_write_waits_for_the_chunk_that_has_begun(
        self, tmp_path, monkeypatch, times
    ):
        array = stored(LocalStore(tmp_path), numbers((40, 10)), chunks=(1, 10))
        assert cancelled(monkeypatch, "pwrite", lambda a: a.setitem(..., -1), array, times)
        assert (array[0] == -1).all()
        assert np.array_equal(array[1:], numbers((40, 10))[1:])
        assert not list(tmp_path.rglob("*.partial"))


def opened_chunks(monkeypatch, root):
    """Keys of the files of chunks that are opened from now on, in order."""
    keys, open_ = [], os.open

    def counting(path, *args, **options):
        if str(path).startswith(f"{root}/c/"):
            keys.append(str(path).removeprefix(f"{root}/"))
        return open_(path, *args, **options)

    monkeypatch.setattr(os, "open", counting)
    return keys


def cancelled(monkeypatch, name, act, array, times=1):
    """Cancel `act` while ``os.<name>`` waits; whether it went on no longer than that."""
    begun, go_on, real = threading.Event(), threading.Event(), getattr(os, name)

    def waiting(*args):
        begun.set()
        assert go_on.wait(30)
        return real(*args)

    async def run():
        task = asyncio.ensure_future(act(array._async_array))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        is_waited_for = not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return is_waited_for

    monkeypatch.setattr(os, name, waiting)
    with zarr.config.set({"codec_pipeline.max_workers": 1, "async.concurrency": 1}):
        found = asyncio.run(run())
    monkeypatch.setattr(os, name, real)
    return found


class TestMissingChunks:
    @pytest.mark.usefixtures("sizes")
    @pytest.mark.parametrize("kind", ["local", "memory", "requests"])
    @pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
    def test_are_the_fill_value(self, tmp_path, kind, filters):
        store = store_with(kind, {}, tmp_path)
        array = created(
            store, (6, 8), "i4", chunks=(3, 4), fill_value=7, filters=filters, config={"order": "F"}
        )
        array[:3, :4] = 1
        expected = np.full((6, 8), 7)
        expected[:3, :4] = 1
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array[1:5, ::3], expected[1:5, ::3])
        assert np.array_equal(array.oindex[[4, 2], [7, 0]], expected[np.ix_([4, 2], [7, 0])])

    if hasattr(zarr.errors, "ChunkNotFoundError"):  # from zarr 3.3 on

        @pytest.mark.parametrize("kind", ["local", "memory", "requests"])
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
    @pytest.mark.parametrize("kind", ["local", "memory"])
    @pytest.mark.parametrize(
        ("fill_value", "other"),
        [
            (np.nan, np.array(0x7FF8000000000001, "u8").view("f8")[()]),
            (0.0, -0.0),
            (-0.0, 0.0),
        ],
        ids=["a NaN with another payload", "-0.0", "0.0 where -0.0 fills"],
    )
    def test_what_only_equals_the_fill_value_is_stored(self, tmp_path, kind, fill_value, other):
        store = store_with(kind, {}, tmp_path)
        array = created(store, (4, 6), "f8", chunks=(2, 6), fill_value=fill_value)
        array[...] = np.full((4, 6), other)
        expected = np.full((4, 6), other).view("u8")
        assert np.array_equal(array[...].view("u8"), expected)
        assert keys_of(store) == ["c/0/0", "c/1/0"]
        array[:2] = fill_value
        assert keys_of(store) == ["c/1/0"]

    @pytest.mark.usefixtures("sizes")
    @pytest.mark.parametrize("kind", ["local", "memory", "requests"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_a_chunk_of_the_fill_value_is_left_out_or_deleted(self, tmp_path, kind, order):
        store = store_with(kind, {}, tmp_path)
        array = created(store, (4, 60), "i4", chunks=(2, 60), fill_value=7)
        array[...] = np.full((4, 60), 7, "i4", order=order)
        assert keys_of(store) == []
        array[...] = np.arange(240, dtype="i4").reshape(4, 60, order=order)
        assert keys_of(store) == ["c/0/0", "c/1/0"]
        array[...] = np.full((4, 60), 7, "i4", order=order)
        assert keys_of(store) == []

    @pytest.mark.parametrize("kind", ["local", "memory"])
    def test_it_is_stored_where_zarr_is_told_so(self, tmp_path, kind):
        store = store_with(kind, {}, tmp_path)
        array = created(store, (4, 6), "i4", chunks=(2, 6), config={"write_empty_chunks": True})
        array[:2] = 0
        assert keys_of(store) == ["c/0/0"]

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

    def test_beyond_the_array_a_chunk_holds_the_fill_value(self, tmp_path):
        array = created(LocalStore(tmp_path), (5, 3), "u1", chunks=(4, 4), fill_value=9)
        array[...] = 1
        edge = np.full((4, 4), 9, "u1")
        edge[:1, :3] = 1
        assert (tmp_path / "c/1/0").read_bytes() == edge.tobytes()

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

    @pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
    def test_what_the_caller_has_written_stays_his(self, filters):
        array = created(MemoryStore(), (8, 8), ">i4", filters=filters)
        values = np.ones((8, 8), ">i4")
        array[...] = values
        array[2] = 7
        assert (values == 1).all()
        if HAS_FUSED_PIPELINE:  # the memory store of older zarr keeps the memory itself
            array[...] = values
            values[...] = 5
            assert (array[...] == 1).all()


def keys_of(store):
    async def listed():
        return [key async for key in store.list() if not key.endswith("zarr.json")]

    return sorted(asyncio.run(listed()))


@pytest.mark.parametrize(
    "filters", [[], [TransposeCodec(order=(1, 0))]], ids=["plain", "transposed"]
)
class TestErrorsOfWriting:
    VALUES = numbers((300, 400), "i4")  # 480,000 bytes

    def array(self, folder, filters):
        return created(LocalStore(folder), (300, 400), "i4", filters=filters)

    def test_a_chunk_that_is_cut_short_is_not_replaced(self, tmp_path, filters):
        array = self.array(tmp_path, filters)
        array[...] = self.VALUES
        with (
            no_file_larger_than(320_001),
            pytest.raises(OSError, match="320001 of .* the chunk has not been replaced") as caught,
        ):
            array[...] = -1
        assert caught.value.errno == errno.EFBIG
        assert np.array_equal(array[...], self.VALUES)
        assert not list(tmp_path.rglob("*.partial"))

    def test_a_new_chunk_that_is_cut_short_is_not_made(self, tmp_path, filters):
        array = self.array(tmp_path, filters)
        with no_file_larger_than(320_001), pytest.raises(OSError, match="not been replaced"):
            array[...] = -1
        assert not [p for p in tmp_path.joinpath("c").rglob("*") if p.is_file()]

    def test_a_selection_of_a_truncated_chunk_is_an_error_that_changes_nothing(
        self, tmp_path, filters
    ):
        array = self.array(tmp_path, filters)
        array[...] = self.VALUES
        path = tmp_path / "c/0/0"
        path.write_bytes(path.read_bytes()[:-1])
        before = path.read_bytes()
        for way in ({}, IN_PLACE):
            with zarr.config.set(way):
                opened = zarr.open_array(tmp_path, mode="r+")
            with pytest.raises(ChunkSizeError, match="480000 bytes, found 479999"):
                opened[3, 7:9] = -1
        assert path.read_bytes() == before

    @pytest.mark.parametrize("kind", ["folder", "FIFO", "socket", "character device"])
    @pytest.mark.parametrize("selection", [np.s_[3, 7:9], ...], ids=["part", "whole"])
    @pytest.mark.parametrize("number", [0, 5], ids=["fill value", "number"])
    def test_what_is_no_file_is_named_and_stays(self, tmp_path, filters, kind, selection, number):
        array, path = self.array(tmp_path, filters), tmp_path / "c/0/0"
        path.parent.mkdir(parents=True)
        put(kind, path)
        before = path.lstat()
        with pytest.raises(ChunkFileError, match=f"{path} is a {kind}"):
            array[selection] = number
        assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
        assert not list(tmp_path.rglob("*.partial"))

    def test_values_that_cannot_be_converted_leave_no_temporary_file(self, tmp_path, filters):
        array = created(LocalStore(tmp_path), (3, 4), "i4", filters=filters)
        array[...] = 7
        with pytest.raises((TypeError, ValueError)):
            array[...] = np.full((3, 4), "a")
        assert (array[...] == 7).all()
        assert not list(tmp_path.rglob("*.partial"))


ON_A_FULL_DISK = """
import json, sys
from pathlib import Path
import numpy as np, zarr
from in_place import created, fill
from zarr.storage import LocalStore

disk, reports = Path(sys.argv[1]), {}
with zarr.config.set({"codec_pipeline.path": "zarr_bytes.BytesPipeline"}):
    arrays = {n: created(LocalStore(disk / n), (400, 1000), "u1") for n in ("plain", "swapped")}
for array in arrays.values():
    array[...] = 1
fill(disk)
for name, array in arrays.items():
    value = np.full((400, 1000), 2, "u1")
    try:
        array[...] = value if name == "plain" else np.asfortranarray(value)
    except OSError as error:
        reports[name] = {"errno": error.errno, "error": str(error)}
    reports[name]["stays"] = bool((array[...] == 1).all())
    reports[name]["temporary"] = [str(p) for p in disk.rglob("*.partial")]
print(json.dumps(reports))
"""


def test_on_a_full_disk_a_chunk_stays_as_it_is(tmp_path):
    reports = on_a_small_disk(tmp_path, ON_A_FULL_DISK)
    assert reports.keys() == {"plain", "swapped"}
    for report in reports.values():
        assert report["errno"] == errno.ENOSPC
        assert "the chunk has not been replaced" in report["error"]
        assert report["stays"]
        assert report["temporary"] == []


def peak_of(act):
    """Most memory that is taken while `act` runs, in bytes."""
    tracemalloc.start()
    try:
        return act(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestMemory:
    """A chunk of 48 MiB, that zarr's own way copies whole at least once."""

    SHAPE = (2048, 3072)  # of 8 bytes
    LIMIT = 20 * MEBIBYTE  # less than half of the chunk

    def array(self, folder, endian="big", **options):
        codec = BytesCodec(endian=endian)
        return created(LocalStore(folder), self.SHAPE, "f8", serializer=codec, **options)

    @pytest.mark.parametrize(
        ("endian", "order"), [("big", "C"), ("little", "F"), ("big", "F")], ids=str
    )
    @pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
    def test_of_writing_a_whole_chunk_is_that_of_a_few_blocks(
        self, tmp_path, endian, order, filters
    ):
        values = np.zeros(self.SHAPE, order=order)
        values[...] = np.arange(3072)
        array = self.array(tmp_path, endian, filters=filters)
        _, peak = peak_of(lambda: array.__setitem__(..., values))
        assert peak < self.LIMIT
        assert (tmp_path / "c/0/0").stat().st_size == values.nbytes

    @pytest.mark.parametrize(
        "selection",
        [np.s_[...], np.s_[:, 100:3000], np.s_[::2], np.s_[::3, ::2]],
        ids=["whole", "tile", "stepped", "stepped twice"],
    )
    @pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
    def test_of_reading_is_that_of_the_result_and_a_few_blocks(self, tmp_path, selection, filters):
        array = self.array(tmp_path, filters=filters)
        array[...] = np.broadcast_to(np.arange(3072.0), self.SHAPE)
        found, peak = peak_of(lambda: array[selection])
        assert peak < found.nbytes + self.LIMIT
        assert np.array_equal(found, np.broadcast_to(np.arange(3072.0), self.SHAPE)[selection])

    @pytest.mark.parametrize("filters", [[], [TRANSPOSED]], ids=["plain", "transposed"])
    def test_of_reading_index_arrays_is_that_of_the_result_and_64_mib(self, tmp_path, filters):
        array = self.array(tmp_path, filters=filters)
        array[...] = np.broadcast_to(np.arange(3072.0), self.SHAPE)
        rows = np.random.default_rng(0).permutation(2048)
        found, peak = peak_of(lambda: array.oindex[rows, :])
        assert peak < found.nbytes + 64 * MEBIBYTE
        assert np.array_equal(found[5], np.arange(3072))


def column_of_chunks(fault):
    """100 chunks below each other in a store whose requests end as `fault` says."""
    array = stored(FaultyStore(MemoryStore(), fault), numbers((100, 5000)), chunks=(1, 5000))
    array.store_path.store.requests.clear()
    array.store_path.store.fault = fault
    return array


class TestRequests:
    @pytest.mark.parametrize(
        ("selection", "requests", "nbytes"),
        [(np.s_[:, 7], 100, 8), (np.s_[:, ::1000], 500, 8), (np.s_[:40], 40, None)],
        ids=["a range of each", "five ranges of each", "whole chunks"],
    )
    def test_those_of_all_chunks_share_zarrs_limit(self, selection, requests, nbytes):
        async def fault(number, buffer):
            await asyncio.sleep(0)
            return buffer

        array = column_of_chunks(fault)
        with zarr.config.set({"async.concurrency": 7, "zarr_bytes.gap.remote": 100}):
            assert np.array_equal(array[selection], numbers((100, 5000))[selection])
        assert array.store_path.store.most == 7
        found = array.store_path.store.requests
        assert len(found) == requests
        assert {r and r.end - r.start for r in found} == {nbytes}

    def test_a_batch_size_of_zarr_changes_nothing(self):
        async def fault(number, buffer):
            return buffer

        with zarr.config.set({"codec_pipeline.batch_size": 3}):
            array = column_of_chunks(fault)
            array[:, 7]
        assert len(array.store_path.store.requests) == 100
