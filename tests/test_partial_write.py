"""Writing a selection of a chunk through zarr: results, the bytes that are written, and fallbacks.

The oracle is NumPy, and for bytes the system: what it says that this process has written.
"""

import importlib.util
import json
import math
import os
import pickle
import shutil
import sys
import tempfile
from pathlib import Path

import device_memory
import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from extension_types import NAMES, numpy_type
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_place import IN_PLACE, created, written_to
from zarr.abc.codec import ArrayBytesCodecPartialEncodeMixin
from zarr.codecs import ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ZipStore

from zarr_bytes import BytesCodec, ChunkSizeError
from zarr_bytes.chunk import file_writing, limits, mapped_writing
from zarr_bytes.chunk.limits import Limits
from zarr_bytes.codec import EndianCodec, PartialWriteBytesCodec, PartialWriteEndianCodec

pytestmark = [
    # zarr warns that some of its types have no specification, and 3.1 of structured ones.
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:Missing 'endian'"),
    pytest.mark.filterwarnings("ignore:Duplicate name"),  # in a zip, of a chunk that is replaced
    pytest.mark.filterwarnings("ignore:invalid value encountered"),  # ml_dtypes, of NaN
]


# Data types: a name or NumPy type that zarr takes, and the NumPy type.
STRUCT = np.dtype([("a", "<i2"), ("b", "?"), ("c", [("d", "<f8"), ("e", ml_dtypes.int4)])])
TYPES = {
    **{name: np.dtype(name) for name in "bool int8 uint8 int16 uint16 int32 uint32".split()},
    **{name: np.dtype(name) for name in "int64 uint64 float16 float32 float64".split()},
    **{name: np.dtype(name) for name in "complex64 complex128".split()},
    **{name: numpy_type(name) for name in NAMES},
    "complex_float32": np.dtype("c8"),
    "complex_float64": np.dtype("c16"),
    "r24": np.dtype("V3"),
    **{dtype: np.dtype(dtype) for dtype in ("<U3", "S3", "V5", "<M8[s]", "<m8[ns]")},
    "struct": STRUCT,
}


def leaves(dtype, start=0):
    """Offset and type of every number in an element."""
    if dtype.names is None:
        return [(start, dtype)]
    fields = [dtype.fields[name] for name in dtype.names]
    return [leaf for field in fields for leaf in leaves(field[0], start + field[1])]


def random_values(rng, dtype, shape):
    """Elements of any bits that the data type permits."""
    count = math.prod(shape)
    if dtype.kind in "US":
        return rng.choice(np.array(["", "a", "bc", "def"], dtype), count).reshape(shape)
    bits = rng.integers(0, 256, (count, dtype.itemsize), np.uint8)
    for offset, leaf in leaves(dtype):
        if leaf.kind == "b":
            bits[:, offset] %= 2
        elif leaf.name in ("int2", "uint2", "int4", "uint4"):
            bits[:, offset] %= 4 if leaf.name.endswith("2") else 16
        elif leaf.name.startswith(("float4", "float6")):
            bits[:, offset] %= 16 if leaf.name.startswith("float4") else 64
    return bits.view(dtype).reshape(shape)


def bits(values):
    """The bits by which to compare: narrow numbers may hold anything above theirs in memory."""
    values = np.asarray(values)
    bits = np.frombuffer(values.tobytes(), np.uint8).reshape(-1, values.itemsize).copy()
    for offset, leaf in leaves(values.dtype):
        if leaf.name in ("int2", "uint2", "int4", "uint4"):
            bits[:, offset] %= 4 if leaf.name.endswith("2") else 16
    return bits.tobytes()


@st.composite
def slices(draw, size):
    start, stop = sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    return slice(start, stop, draw(st.integers(1, 4)))


@st.composite
def basic(draw, shape):
    return tuple(draw(st.one_of(st.integers(0, n - 1), slices(n))) for n in shape)


@st.composite
def orthogonal(draw, shape):
    def entries(n):
        unique = st.lists(st.integers(0, n - 1), max_size=n, unique=True)
        bools = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda b: np.array(b, bool))
        return st.one_of(
            st.integers(0, n - 1),
            slices(n),
            unique.map(lambda i: np.array(i, np.int64)),
            unique.map(lambda i: np.array(sorted(i), np.int64)),
            bools,
        )

    return tuple(draw(entries(n)) for n in shape)


def as_grid(selection, shape):
    """The selection that NumPy takes for an orthogonal one, and the shape without its integers."""
    indices = [
        np.atleast_1d(np.arange(n)[entry]) for entry, n in zip(selection, shape, strict=True)
    ]
    dropped = [isinstance(entry, int) for entry in selection]
    kept = tuple(len(i) for i, is_dropped in zip(indices, dropped, strict=True) if not is_dropped)
    return np.ix_(*indices) if indices else (), kept


KINDS = ["basic", "orthogonal", "coordinates", "mask", "block"]
STORES = ["local", "mapped", "memory", "zip", "fsspec", "shard", "compressed", "transposed"]
if not importlib.util.find_spec("fsspec"):
    STORES.remove("fsspec")


def store_and_chain(kind, folder, chunks, endian):
    """A store of this kind, and how an array of uncompressed chunks is created there."""
    options = {"serializer": BytesCodec(endian=endian), "chunks": chunks}
    if kind == "memory":
        return MemoryStore(), options
    if kind == "zip":
        return ZipStore(folder / "store.zip", mode="w"), options
    if kind == "fsspec":
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
        from fsspec.implementations.memory import MemoryFileSystem

        files = AsyncFileSystemWrapper(MemoryFileSystem(), asynchronous=True)
        return FsspecStore(files, path=f"/{folder.name}"), options
    if kind == "shard":
        options["serializer"] = ShardingCodec(chunk_shape=chunks, codecs=[options["serializer"]])
        options["chunks"] = tuple(2 * n for n in chunks)
    elif kind == "compressed":
        options["compressors"] = ZstdCodec()
    elif kind == "transposed":
        options["filters"] = [TransposeCodec(order=tuple(range(len(chunks)))[::-1])]
    return LocalStore(folder / "store"), options


def write_same(array, model, kind, data, rng, chunks):
    """Write the same random elements to `array` and to its NumPy model."""
    shape, is_scalar = model.shape, data.draw(st.booleans(), label="scalar")

    def values(of_shape):
        return random_values(rng, model.dtype, () if is_scalar else of_shape)

    if kind == "basic":
        selection = data.draw(basic(shape), label="selection")
        value = values(model[selection].shape)
        array[selection] = model[selection] = value
    elif kind == "orthogonal":
        selection = data.draw(orthogonal(shape), label="selection")
        grid, kept = as_grid(selection, shape)
        value = values(kept)
        array.set_orthogonal_selection(selection, value)
        model[grid] = value if is_scalar else value.reshape(model[grid].shape)
    elif kind == "coordinates":
        points = data.draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in shape)), min_size=1))
        # zarr sorts points by chunk, also within a shard, so that not the last of the same counts.
        if array.shards is not None or chunks != shape:
            points = list(dict.fromkeys(points))
        selection = tuple(np.array(points).T)
        value = values((len(points),))
        array.set_coordinate_selection(selection, value)
        model[selection] = value
    elif kind == "mask":
        mask = rng.random(shape) < 0.4
        value = values((int(mask.sum()),))
        array.set_mask_selection(mask, value)
        model[mask] = value
    else:
        blocks = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
        block = data.draw(st.tuples(*(st.integers(0, n - 1) for n in blocks)), label="block")
        region = tuple(slice(b * c, (b + 1) * c) for b, c in zip(block, chunks, strict=True))
        value = values(model[region].shape)
        array.set_block_selection(block, value)
        model[region] = value


@pytest.mark.parametrize("store", STORES)
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_selection_of_every_type_is_written_as_numpy_does(
    store, pipeline, data, tmp_path, monkeypatch
):
    if store == "mapped":  # as files are from many ranges on
        monkeypatch.setattr(file_writing, "is_local", lambda device: True)
        monkeypatch.setattr(limits, "LIMITS", Limits(mapped_ranges=1))
        monkeypatch.setattr(mapped_writing, "_BATCH", 2)
    # zarr up to 3.2 cannot write a void type into a shard, because its scalars have no hash, nor
    # orthogonal selections with integers, of which it gives inner chunks another shape.
    is_older_shard = store == "shard" and not HAS_FUSED_PIPELINE
    names = [name for name in TYPES if not (is_older_shard and TYPES[name].kind == "V")]
    kinds = [kind for kind in KINDS if not (is_older_shard and kind == "orthogonal")]
    name = data.draw(st.sampled_from(names), label="data type")
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=6), label="shape")
    chunks = data.draw(
        st.one_of(st.just(shape), st.tuples(*(st.integers(1, n) for n in shape))), label="chunks"
    )
    endians = ["little", "big"]
    if store == "shard" and name in ("complex_float16", "complex_bfloat16"):
        endians = [sys.byteorder]  # the fused pipeline reads these past the codec, see the limits
    endian = data.draw(st.sampled_from(endians), label="endian")
    # Nothing can be deleted from a zip; and where zarr leaves out empty chunks, equal is enough.
    is_ours = store in ("local", "mapped", "memory", "fsspec")
    keeps_empty = not is_ours or data.draw(st.booleans(), label="write_empty_chunks")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))

    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    opened, options = store_and_chain(store, folder, chunks, endian)
    data_type = STRUCT if name == "struct" else name
    array = created(opened, shape, data_type, config={"write_empty_chunks": keeps_empty}, **options)
    model = np.full(shape, array.fill_value, TYPES[name])
    for kind in data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4), label="kinds"):
        write_same(array, model, kind, data, rng, array.shards or array.chunks)
        assert bits(array[...]) == bits(model)
    assert bits(zarr.open_array(opened, mode="r+")[...]) == bits(model)
    if store == "zip":
        opened.close()
    assert not list(folder.rglob("*.partial"))


class TestTheSetting:
    def test_without_it_the_codec_is_the_one_that_always_was(self, tmp_path):
        array = zarr.create_array(tmp_path, shape=(4, 3), dtype="i2", compressors=None)
        (codec,) = zarr.open_array(tmp_path, mode="r+").metadata.codecs
        assert type(codec) is BytesCodec
        assert not isinstance(codec, ArrayBytesCodecPartialEncodeMixin)
        assert not array._async_array.codec_pipeline.supports_partial_encode

    @pytest.mark.parametrize("codec", [BytesCodec, EndianCodec])
    @pytest.mark.parametrize("dtype", ["i2", "u1"])
    def test_with_it_the_codec_differs_in_nothing_but_its_way_of_writing(self, codec, dtype):
        spec = {"shape": (4, 3), "dtype": dtype, "serializer": codec(), "compressors": None}
        plain = zarr.create_array(MemoryStore(), **spec).metadata
        with zarr.config.set(IN_PLACE):
            fitted = zarr.create_array(MemoryStore(), **spec).metadata
        (codec,) = fitted.codecs
        assert type(codec) in (PartialWriteBytesCodec, PartialWriteEndianCodec)
        assert isinstance(codec, ArrayBytesCodecPartialEncodeMixin)
        assert fitted == plain
        assert hash(codec) == hash(plain.codecs[0])
        assert fitted.to_dict() == plain.to_dict()
        assert codec.endian == plain.codecs[0].endian

    def test_an_array_keeps_the_way_it_was_opened_with(self, tmp_path, pipeline):
        zarr.create_array(
            tmp_path,
            shape=(40, 3),
            dtype="i2",
            compressors=None,
            config={"write_empty_chunks": True},
        )[...] = 0
        replaced = zarr.open_array(tmp_path, mode="r+")
        with zarr.config.set(IN_PLACE):
            in_place = zarr.open_array(tmp_path, mode="r+")
            copied = pickle.loads(pickle.dumps(replaced))  # noqa: S301
            pickled = pickle.dumps(in_place)
            with written_to(tmp_path / "c/0/0") as counted:
                replaced[1] = 5
                copied[2] = 5
            assert counted == []
        with written_to(tmp_path / "c/0/0") as counted:
            in_place[3] = 5
            pickle.loads(pickled)[4] = 5  # noqa: S301
        assert counted == [(18, 6), (24, 6)]
        assert (in_place[1:5] == 5).all()

    def test_what_is_no_truth_value_is_an_error(self, tmp_path):
        zarr.create_array(tmp_path, shape=(4, 3), dtype="i2")
        with (
            zarr.config.set({"zarr_bytes.partial_writes": "yes"}),
            pytest.raises(
                ValueError, match="partial_writes is 'yes'; permitted are True and False"
            ),
        ):
            zarr.open_array(tmp_path, mode="r+")


def bytes_written():
    """Bytes that this process has handed to the system to write."""
    return int(Path("/proc/self/io").read_text().split("wchar:")[1].split()[0])


def runs_of(shape, item_size, selection):
    """Offset and length of each run of selected bytes, from NumPy."""
    selected = np.zeros((*shape, item_size), bool)
    selected[selection] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[0], selected.ravel().view("i1"), [0]])))
    return [(int(start), int(stop - start)) for start, stop in edges.reshape(-1, 2)]


@pytest.mark.usefixtures("pipeline")
class TestBytes:
    """A chunk of 300 x 40 x 50 float64: 4.8 MB."""

    SHAPE = (300, 40, 50)
    SELECTIONS = {
        "point": np.s_[7, 8, 9],
        "row": np.s_[7, 8],
        "plane": np.s_[7],
        "box": np.s_[10:20, 3:30, 5:40],
        "strided": np.s_[::3, 1, ::7],
        "column": np.s_[:, 5, 6],
        "planes in steps": np.s_[::2],
        "middle plane": np.s_[:, :, 3],
    }

    @pytest.fixture
    def array(self, tmp_path):
        array = created(LocalStore(tmp_path), self.SHAPE, "f8")
        array[...] = np.arange(math.prod(self.SHAPE)).reshape(self.SHAPE)
        return array

    @pytest.fixture(params=SELECTIONS)
    def selection(self, request):
        return self.SELECTIONS[request.param]

    @pytest.mark.skipif(sys.platform != "linux", reason="this system has no /proc")
    def test_those_of_the_selection_reach_the_system_and_no_others(self, array, selection):
        path = Path(array.store.root) / "c/0/0/0"
        value = -1 - np.zeros(self.SHAPE)[selection]
        with written_to(path) as ranges:
            array[selection] = value
        assert ranges == runs_of(self.SHAPE, 8, selection)

    @pytest.mark.skipif(
        not Path("/proc/self/io").exists(), reason="this system has no /proc/self/io"
    )
    def test_as_many_are_written_as_the_selection_has(self, array, selection):
        value = -1 - np.zeros(self.SHAPE)[selection]
        array[0, 0, 0] = 1  # whatever is written once in a process has been
        before = bytes_written()
        array[selection] = value
        assert bytes_written() - before == value.nbytes

    def test_all_other_bytes_of_the_file_stay(self, array, selection):
        path = Path(array.store.root) / "c/0/0/0"
        noise = np.random.default_rng(0).integers(0, 256, path.stat().st_size, np.uint8)
        path.write_bytes(noise.tobytes())  # as bytes: no writer of numbers would leave these
        value = np.random.default_rng(1).random(np.zeros(self.SHAPE)[selection].shape)
        array[selection] = value
        expected = noise.view(">f8").reshape(self.SHAPE)
        expected[selection] = value
        assert path.read_bytes() == expected.tobytes()

    def test_the_file_stays_the_same_file(self, array):
        path = Path(array.store.root) / "c/0/0/0"
        before = path.stat().st_ino
        array[3:5, 7] = 1
        assert path.stat().st_ino == before

    def test_a_whole_chunk_is_another_file_under_its_name(self, array):
        path = Path(array.store.root) / "c/0/0/0"
        with written_to(path) as ranges, path.open("rb") as before:
            array[...] = 1
            assert os.fstat(before.fileno()).st_nlink == 0
        assert ranges == []


@pytest.mark.usefixtures("pipeline")
class TestForms:
    """Which shapes of values fit: with the setting as without it."""

    @pytest.mark.parametrize(
        ("selection", "shape"),
        [
            (np.s_[2], (8, 10)),
            (np.s_[2], (1, 8, 10)),
            (np.s_[2:4], (1, 8, 10)),
            (np.s_[2:4], (2, 1, 10)),
            (np.s_[2:4, :, 3], (2, 1)),
            (np.s_[2:3, :, 3:4], (1, 8, 1)),
            (([1, 2], 3, [0, 5, 7]), (2, 3)),
            (([1, 2], 3, [0, 5, 7]), (2, 1)),
            (([1, 2], 3, [0, 5, 7]), (1, 3)),
            (([2, 1], 3, 4), (2,)),
            ((1, 3, [4, 9]), (2,)),
            (([1], [2, 3], [4]), (1, 2, 1)),
            ((np.arange(6) % 2 == 0, 2, slice(0, 9, 4)), (3, 3)),
            ((slice(None), 2, [9, 0]), (6, 2)),
        ],
        ids=str,
    )
    def test_axes_of_integers_are_dropped_and_those_of_one_repeated(
        self, tmp_path, selection, shape
    ):
        values = np.random.default_rng(0).random(shape)
        array = created(LocalStore(tmp_path / "new"), (6, 8, 10), "f8")
        with zarr.config.set({"zarr_bytes.partial_writes": False}):
            plain = zarr.create_array(
                tmp_path / "plain", shape=(6, 8, 10), dtype="f8", chunks=(6, 8, 10)
            )
        for each in (array, plain):
            each[...] = 7
            each.set_orthogonal_selection(selection, values)
        assert np.array_equal(array[...], plain[...])
        assert (array[...] != 7).sum() >= values.size

    @pytest.mark.parametrize("shape", [(7,), (8, 9), (2, 8, 10), (8, 10, 1)], ids=str)
    def test_a_shape_that_does_not_fit_is_an_error(self, tmp_path, shape):
        array = created(LocalStore(tmp_path), (6, 8, 10), "f8")
        array[...] = 7
        with pytest.raises((ValueError, IndexError)):
            array[2] = np.ones(shape)
        assert (array[...] == 7).all()

    def test_the_error_names_both_shapes(self, tmp_path):
        array = created(LocalStore(tmp_path), (6, 8), "f8")
        message = r"elements of shape \(7,\) do not fit .* has the shape \(8,\)"
        with pytest.raises(ValueError, match=message):
            array[2] = np.ones(7)

    def test_values_in_another_byte_order_or_layout_of_memory(self, tmp_path):
        array = created(LocalStore(tmp_path), (6, 8), "f8")
        model = np.zeros((6, 8))
        values = np.random.default_rng(0).random((8, 6)).astype(">f8").T
        array[1:4] = model[1:4] = values[1:4]
        array[:, ::2] = model[:, ::2] = values[::-1, ::2]
        assert np.array_equal(array[...], model)

    @pytest.mark.parametrize("selection", [np.s_[1:3], ...], ids=["part", "whole"])
    def test_records_with_other_fields_are_converted_as_numpy_does(self, tmp_path, selection):
        array = created(LocalStore(tmp_path), 4, [("a", "<i4"), ("b", "<f4")])
        values = np.array([(1.5, 2), (3.5, 4)] * 2, [("x", "<f4"), ("y", "<i4")])[selection]
        array[selection] = values
        assert array[selection].tolist() == [(int(x), float(y)) for x, y in values]

    @pytest.mark.parametrize("selection", [np.s_[1:3], np.s_[2], ...], ids=str)
    def test_arrays_of_other_libraries_are_taken_for_what_they_hold(self, tmp_path, selection):
        array = created(LocalStore(tmp_path), (6, 8), "f8")
        model = np.zeros((6, 8))
        values = np.arange(48.0).reshape(6, 8)[selection]
        array[selection] = np.ma.masked_array(values, mask=values % 2 == 0)
        model[selection] = values
        assert np.array_equal(array[...], model)

    def test_true_is_one_byte_of_one(self, tmp_path):
        array = created(LocalStore(tmp_path), (4, 5), "bool")
        array[1] = np.array([0, 1, 2, 128, 255], "u1").view(bool)
        assert (tmp_path / "c/0/0").read_bytes()[5:10] == bytes([0, 1, 1, 1, 1])

    def test_narrow_numbers_repeat_their_sign_in_the_file(self, tmp_path):
        array = created(LocalStore(tmp_path), (4, 5), "int4")
        array[1] = np.array([-8, -1, 0, 1, 7], ml_dtypes.int4)
        assert (tmp_path / "c/0/0").read_bytes()[5:10] == bytes([0xF8, 0xFF, 0, 1, 7])


@pytest.mark.usefixtures("pipeline")
class TestNewChunks:
    @pytest.mark.parametrize(
        ("dtype", "fill_value"),
        [
            ("f4", "0x7f800001"),
            ("f8", "0x8000000000000000"),
            ("f8", "NaN"),
            ("i4", 7),
            ("bool", True),
            ("complex64", [1.0, "0x80000000"]),
            ("r24", [1, 2, 3]),
            ("int4", -3),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("endian", ["little", "big"])
    def test_what_is_not_selected_holds_the_bits_of_the_fill_value(
        self, tmp_path, dtype, fill_value, endian
    ):
        create_with_fill_value(tmp_path, dtype, fill_value, endian)
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(tmp_path, mode="r+")
        missing = zarr.open_array(tmp_path, mode="r")[...]
        value = random_values(np.random.default_rng(3), array.dtype, (7,))
        array[3, 1:8] = value
        missing[3, 1:8] = value
        assert (tmp_path / "c/0/0").stat().st_size == missing.nbytes
        assert bits(zarr.open_array(tmp_path, mode="r")[...]) == bits(missing)

    def test_a_large_chunk_is_filled_to_its_end_and_no_further(self, tmp_path):
        array = created(LocalStore(tmp_path), 400_000, "i4", fill_value=7)
        array[5] = 1
        assert (tmp_path / "c/0").stat().st_size == 1_600_000
        assert np.array_equal(np.flatnonzero(array[...] != 7), [5])

    @pytest.mark.parametrize("fill_value", [0, 7])
    def test_nothing_is_created_for_the_fill_value_alone(self, tmp_path, fill_value):
        array = created(LocalStore(tmp_path), (8, 9), "i4", (4, 9), fill_value=fill_value)
        array[2] = fill_value
        array[5, ::2] = np.full(5, fill_value)
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["zarr.json"]

    def test_it_is_created_where_empty_chunks_are_written(self, tmp_path):
        array = created(LocalStore(tmp_path), 8, "i4", config={"write_empty_chunks": True})
        array[2:4] = 0
        assert (tmp_path / "c/0").read_bytes() == bytes(32)

    @pytest.mark.parametrize(
        ("dtype", "fill_value", "value"),
        [
            ("f4", "NaN", np.uint32(0x7FC00001).view("f4")),
            ("f8", 0.0, -0.0),
            ("f8", "0x8000000000000000", 0.0),
            ("complex64", [0.0, 0.0], complex(0, -0.0)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("selection", [np.s_[3, 1:8], ...], ids=["part", "whole"])
    def test_equal_numbers_of_other_bits_are_no_fill_value(
        self, tmp_path, dtype, fill_value, value, selection
    ):
        create_with_fill_value(tmp_path, dtype, fill_value, "little")
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(tmp_path, mode="r+")
        array[selection] = np.full((8, 9), value, array.dtype)[selection]
        read = zarr.open_array(tmp_path, mode="r")[selection]
        assert bits(read) == bits(np.full(read.shape, value, array.dtype))

    def test_a_whole_chunk_of_the_fill_value_is_deleted(self, tmp_path):
        array = created(LocalStore(tmp_path), (8, 9), "i4", (4, 9))
        array[...] = 5
        array[:4] = 0
        assert not (tmp_path / "c/0/0").exists()
        assert (tmp_path / "c/1/0").exists()

    @pytest.mark.parametrize("store", ["local", "memory"])
    @pytest.mark.parametrize("endian", ["little", "big"])
    @pytest.mark.parametrize("place", [8191, 8192, 65535, 65536, -1])
    def test_a_large_chunk_with_one_element_that_is_no_fill_value_is_stored(
        self, tmp_path, store, endian, place
    ):
        """Wherever it is: such a chunk is encoded and compared in blocks of several sizes."""
        opened = LocalStore(tmp_path) if store == "local" else MemoryStore()
        array = created(opened, 150_000, "f8", serializer=BytesCodec(endian=endian))
        values = np.zeros(150_000)
        values[place] = 1
        array[...] = values
        assert np.array_equal(array[...], values)

    def test_zeros_take_no_room_on_the_disk(self, tmp_path):
        array = created(LocalStore(tmp_path), (2**15, 2**15), "u1")  # a chunk of 1 GiB
        array[5] = 1
        status = (tmp_path / "c/0/0").stat()
        assert status.st_size == 2**30
        assert 512 * status.st_blocks < 2**20
        assert array[5].all()
        assert not array[6].any()


def create_with_fill_value(folder, dtype, fill_value, endian):
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8, 9],
        "data_type": {"f4": "float32", "f8": "float64", "i4": "int32"}.get(dtype, dtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 9]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": fill_value,
        "codecs": [{"name": "bytes", "configuration": {"endian": endian}}],
    }
    (folder / "zarr.json").write_text(json.dumps(document))


@pytest.mark.usefixtures("pipeline")
class TestChunks:
    def test_an_array_without_dimensions(self, tmp_path):
        array = created(LocalStore(tmp_path), (), "i4")
        array[...] = 5
        assert (tmp_path / "c").read_bytes() == b"\0\0\0\5"
        array[()] = 0
        assert not (tmp_path / "c").exists()

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)], ids=str)
    def test_an_array_without_elements(self, tmp_path, shape):
        array = created(LocalStore(tmp_path), shape, "i4", tuple(max(n, 1) for n in shape))
        array[...] = 5
        array[...] = np.zeros(shape)
        assert [p.name for p in tmp_path.rglob("*")] == ["zarr.json"]

    def test_a_selection_of_nothing(self, tmp_path):
        array = created(LocalStore(tmp_path), (4, 6), "i4", config={"write_empty_chunks": True})
        array[2:2] = 5
        array.oindex[np.array([], int), 3] = 5
        array.set_mask_selection(np.zeros((4, 6), bool), 5)
        assert [p.name for p in tmp_path.rglob("*")] == ["zarr.json"]

    def test_chunks_at_the_edge_are_stored_whole(self, tmp_path):
        array = created(LocalStore(tmp_path), (5, 7), "u1", (4, 4), fill_value=9)
        array[4, 5:7] = 1
        edge = np.full((4, 4), 9, "u1")
        edge[0, 1:3] = 1
        assert (tmp_path / "c/1/1").read_bytes() == edge.tobytes()

    def test_what_lies_beyond_the_array_stays(self, tmp_path):
        array = created(LocalStore(tmp_path), (5, 7), "u1", (4, 4))
        (tmp_path / "c/1").mkdir(parents=True)
        (tmp_path / "c/1/1").write_bytes(bytes(range(16)))
        array[4:, 4:6] = 99
        assert (tmp_path / "c/1/1").read_bytes() == bytes([99, 99, *range(2, 16)])

    def test_a_chunk_of_one_element_is_whole_where_an_integer_selects_it(self, tmp_path):
        array = created(LocalStore(tmp_path), (3, 5), "i4", (1, 5))
        array[...] = 5
        (tmp_path / "c/1/0").write_bytes(b"of another size")
        array[1] = np.arange(5)
        assert array[1].tolist() == [0, 1, 2, 3, 4]
        array[2] = 0
        assert not (tmp_path / "c/2/0").exists()

    @pytest.mark.parametrize("name", ["default", "v2"])
    @pytest.mark.parametrize("separator", ["/", "."])
    def test_keys_of_every_form(self, tmp_path, name, separator):
        store = LocalStore(tmp_path)
        encoding = {"name": name, "separator": separator}
        array = created(store, (8, 9), "i4", (4, 3), chunk_key_encoding=encoding)
        model = np.zeros((8, 9), "i4")
        array[1:7, 2] = model[1:7, 2] = np.arange(6) + 1
        prefix = [] if name == "v2" else ["c"]
        expected = {separator.join([*prefix, str(i), "0"]) for i in range(2)}
        assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == {
            "zarr.json",
            *expected,
        }
        array[1:7, 1] = model[1:7, 1] = np.arange(6) + 10
        assert np.array_equal(zarr.open_array(store, mode="r")[...], model)

    def test_arrays_in_groups(self, tmp_path):
        group = zarr.create_group(tmp_path)
        array = group.create_array(
            "a b/c.d", shape=(8, 9), dtype="i4", compressors=None, serializer=BytesCodec()
        )
        with zarr.config.set(IN_PLACE):
            array = zarr.open_group(tmp_path, mode="r+")["a b/c.d"]
        array[2, 3:5] = 7
        assert (tmp_path / "a b/c.d/c/0/0").read_bytes().count(7) == 2
        array[2, 3] = 8
        assert array[2, 3:5].tolist() == [8, 7]

    def test_a_relative_root(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        array = created("some/where", (8, 9), "i4")
        array[2, 3:5] = 7
        array[3, 3:5] = 7
        assert (tmp_path / "some/where/c/0/0").read_bytes().count(7) == 4

    def test_folders_that_somebody_has_removed(self, tmp_path):
        array = created(LocalStore(tmp_path / "root"), (8, 9), "i4")
        shutil.rmtree(tmp_path / "root")
        array[2, 3:5] = 7
        assert (tmp_path / "root/c/0/0").read_bytes().count(7) == 2


class TestBeyondTheArray:
    """Elements of a chunk that no index reaches, until the array is resized."""

    def shrunk_and_grown(self, folder, pipeline, act):
        with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
            array = created(LocalStore(folder), 12, "i4")
        array[...] = np.arange(101, 113)
        array.resize(5)
        act(array)
        array.resize(12)
        return array[...].tolist()

    def test_our_pipeline_replaces_them_with_a_chunk_of_which_all_is_written(self, tmp_path):
        def write_all(array):
            array[...] = 1

        found = self.shrunk_and_grown(tmp_path, "BytesPipeline", write_all)
        assert found == 5 * [1] + 7 * [0]

    def test_our_pipeline_leaves_out_such_a_chunk_if_it_is_empty(self, tmp_path):
        def write_all(array):
            array[...] = 0
            assert not (tmp_path / "c/0").exists()

        assert self.shrunk_and_grown(tmp_path, "BytesPipeline", write_all) == 12 * [0]

    @pytest.mark.parametrize("name", sorted(set(PIPELINES) - {"BytesPipeline"}))
    def test_zarrs_pipelines_do_not_tell_the_codec_and_leave_them(self, tmp_path, name):
        def write_all(array):
            array[...] = 1

        found = self.shrunk_and_grown(tmp_path, name, write_all)
        assert found == 5 * [1] + [*range(106, 113)]

    @pytest.mark.parametrize("name", PIPELINES)
    def test_part_of_a_chunk_leaves_them(self, tmp_path, name):
        def write_part(array):
            array[:4] = 1

        found = self.shrunk_and_grown(tmp_path, name, write_part)
        assert found == 4 * [1] + [*range(105, 113)]

    @settings(max_examples=12, deadline=None)
    @given(data=st.data())
    def test_our_pipeline_leaves_what_zarr_alone_leaves(self, tmp_path_factory, data):
        chunks = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)), label="chunks")
        shapes = st.tuples(st.integers(1, 7), st.integers(1, 7))
        names = ["BatchedCodecPipeline", "BytesPipeline"]
        arrays = []
        for name, serializer in zip(names, [zarr.codecs.BytesCodec(), BytesCodec()], strict=True):
            with zarr.config.set({"codec_pipeline.path": PIPELINES[name]}):
                store = LocalStore(tmp_path_factory.mktemp("a"))
                arrays.append(created(store, (7, 7), "i2", chunks, serializer=serializer))
        assert not arrays[0].async_array.codec_pipeline.supports_partial_encode  # zarr's own codec
        for number in range(data.draw(st.integers(1, 4), label="writes")):
            shape = data.draw(shapes, label="shape")
            selection = data.draw(st.one_of(st.just(...), basic(shape)), label="selection")
            for array in arrays:
                array.resize(shape)
                array[selection] = number
                array.resize((7, 7))
            assert np.array_equal(arrays[0][...], arrays[1][...])


@pytest.mark.usefixtures("pipeline")
class TestOtherWays:
    """What cannot be written in place is read, changed and replaced, with the same result."""

    def test_a_read_only_store(self, tmp_path):
        array = created(LocalStore(tmp_path), (8, 9), "i4")
        array[...] = 7
        before = (tmp_path / "c/0/0").read_bytes()
        with zarr.config.set(IN_PLACE):
            array = zarr.open_array(LocalStore(tmp_path, read_only=True), mode="r")
        with pytest.raises(ValueError, match="read-only"):
            array[2] = 5
        assert (tmp_path / "c/0/0").read_bytes() == before

    def test_a_subclass_of_the_local_store_gets_whole_chunks(self, tmp_path):
        class Logged(LocalStore):
            _supports_sync_io = False
            keys = []

            async def set(self, key, value):
                self.keys.append(key)
                await super().set(key, value)

        array = created(Logged(tmp_path), (8, 9), "i4")
        Logged.keys.clear()
        array[2, 3] = 7
        array[3, 3] = 7
        assert Logged.keys == ["c/0/0", "c/0/0"]
        assert array[2:4, 3].tolist() == [7, 7]

    @pytest.mark.parametrize("chain", ["compressors", "filters"])
    def test_a_chain_of_more_codecs_is_left_alone(self, tmp_path, chain, pipeline):
        codec = {"compressors": ZstdCodec(), "filters": TransposeCodec(order=(1, 0))}[chain]
        array = created(LocalStore(tmp_path), (8, 9), "i4", **{chain: [codec]})
        array[...] = model = np.arange(72, dtype="i4").reshape(8, 9)
        with written_to(tmp_path / "c/0/0") as ranges:
            array[2, 3] = model[2, 3] = 99
        is_folded = (chain, pipeline) == ("filters", "BytesPipeline")
        assert ranges == ([((3 * 8 + 2) * 4, 4)] if is_folded else [])
        assert np.array_equal(array[...], model)

    def test_a_stored_chunk_of_another_size_is_an_error(self):
        store = MemoryStore()
        array = created(store, (8, 9), "i4")
        array[...] = 7
        store._store_dict["c/0/0"] = store._store_dict["c/0/0"][:-1]
        with pytest.raises(ChunkSizeError, match="288 bytes, found 287"):
            array[2, 3] = 5

    def test_a_chunk_that_becomes_empty_is_deleted(self):
        store = MemoryStore()
        array = created(store, (8, 9), "i4")
        array[2, 3] = 5
        assert "c/0/0" in store._store_dict
        array[2, :5] = 0
        assert "c/0/0" not in store._store_dict

    def test_what_the_caller_has_written_stays_his(self):
        array, values = created(MemoryStore(), (8, 9), ">i4"), np.ones((8, 9), ">i4")
        array[...] = values
        array[2] = 5
        assert (values == 1).all()


def test_buffers_that_are_not_numpys_are_stored_whole(tmp_path):
    array = created(LocalStore(tmp_path), (8, 9), "i4")
    array[...] = 1
    prototype = device_memory.PROTOTYPE
    with written_to(tmp_path / "c/0/0") as ranges:
        array.set_basic_selection(np.s_[2, 3:5], np.array([7, 8], "i4"), prototype=prototype)
        array.set_basic_selection(np.s_[:4], np.zeros((4, 9), "i4"), prototype=prototype)
    assert ranges == []
    assert array[2:5, 3].tolist() == [0, 0, 1]
