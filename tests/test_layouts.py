"""Elements at their places: every order of three axes, any indices, shared bytes.

The values of an array are all distinct, so that none can stand in the place of another. The oracles
are NumPy and plain zarr, and for stored bytes the transposes of NumPy.
"""

import os
import pickle
import re
import warnings
from itertools import permutations, product

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from fuzz import document_of
from shards import shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    CountingStore,
    created,
    keys_of,
    numbers,
    stored,
    written_documents,
)
from system_calls import needs_nowait, watched
from zarr.buffer.cpu import Buffer
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore, StorePath

from zarr_bytes import BoolValueError, BytesCodec, ChunkSizeError, counting, explain, view

pytestmark = pytest.mark.zarr

ORDERS = list(permutations(range(3)))
SHAPE, INNER = (4, 6, 8), (2, 1, 2)  # every size of INNER divides every size of SHAPE
PLAIN_ZARR = {
    "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
    "codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline",
}
GAPS = {"zarr_bytes.gap.local": 0, "zarr_bytes.gap.remote": 0}

needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")


def by_plain_zarr(folder):
    """All elements, as the codecs and the pipeline of zarr read them."""
    with zarr.config.set(PLAIN_ZARR), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it reads shards behind a transpose whole
        return np.asarray(zarr.open_array(folder, mode="r")[...])


def layouts_of(order):
    """By a name: the options of an array of one chunk or shard whose axes have this order."""
    transpose, big = TransposeCodec(order=order), BytesCodec(endian="big")
    inverse = TransposeCodec(order=np.argsort(order).tolist())
    return {
        "chunk": {"filters": [transpose], "serializer": big},
        "chunk, transposed twice": {"filters": [transpose, transpose], "serializer": big},
        "inner chunks": {"serializer": ShardingCodec(chunk_shape=INNER, codecs=[transpose, big])},
        "shard": {
            "filters": [transpose],
            "serializer": ShardingCodec(chunk_shape=INNER, codecs=[big]),
        },
        "shard, and inner chunks back": {
            "filters": [transpose],
            "serializer": ShardingCodec(chunk_shape=INNER, codecs=[inverse, big]),
        },
        "shard, and inner chunks again": {
            "filters": [transpose],
            "serializer": ShardingCodec(chunk_shape=INNER, codecs=[transpose, big]),
        },
    }


LAYOUTS = list(layouts_of((0, 1, 2)))

# The call, its selection, and the same elements for NumPy.
WRITES = {
    "integers": ("set_basic_selection", (3, 4, 5), np.s_[3, 4, 5]),
    "row": ("set_basic_selection", np.s_[1, 2], np.s_[1, 2]),
    "middle axis": ("set_basic_selection", np.s_[1, :, 5], np.s_[1, :, 5]),
    "box": ("set_basic_selection", np.s_[1:3, 2:5, 3:8], np.s_[1:3, 2:5, 3:8]),
    "strided": ("set_basic_selection", np.s_[::2, 1::3, 1:8:2], np.s_[::2, 1::3, 1:8:2]),
    "orthogonal": (
        "set_orthogonal_selection",
        ([0, 3], slice(1, 5, 2), [1, 2, 6]),
        np.ix_([0, 3], [1, 3], [1, 2, 6]),
    ),
    "points": ("set_coordinate_selection", ([3, 0, 2, 2], [5, 0, 4, 1], [7, 0, 3, 6]), None),
}


@needs_pwrite
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_writes_in_place_reach_their_elements_in_every_order_of_three_axes(tmp_path, order, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = created(LocalStore(tmp_path), SHAPE, "i4", **layouts_of(order)[layout])
    array[...] = model = numbers(SHAPE, "i4") + 1
    (path,) = (path for path in tmp_path.rglob("*/0") if path.is_file())
    inode, next_value = path.stat().st_ino, 1000
    for name, (call, selection, index) in WRITES.items():
        index = selection if index is None else index
        shape = model[index].shape
        values = next_value + np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
        getattr(array, call)(selection, values)
        model[index], next_value = values, next_value + 1000
        assert np.array_equal(array[...], model), name
        assert np.array_equal(by_plain_zarr(tmp_path), model), name
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_reads_and_views_find_their_elements_in_every_order_of_three_axes(tmp_path, order, layout):
    """A cyclic order is not its own inverse."""
    values = numbers(SHAPE, "i4") + 1
    with zarr.config.set(PLAIN_ZARR), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codecs = layouts_of(order)[layout]
        array = created(LocalStore(tmp_path), SHAPE, "i4", **codecs)
        array[...] = values
    with zarr.config.set(GAPS):
        array = zarr.open_array(tmp_path, mode="r")
        viewed = view(array)
        for selection in (
            *(np.s_[...], np.s_[1], np.s_[:, 3], np.s_[:, :, 5], np.s_[3, 4, 5]),
            *(np.s_[1:3, 2:5, 3:8], np.s_[::2, 1::3, 1:8:2]),
        ):
            assert np.array_equal(array[selection], values[selection])
            assert np.array_equal(viewed[selection], values[selection])
        rows = [3, 0, 1], [5, 0], [1, 7, 2]
        assert np.array_equal(array.oindex[rows], values[np.ix_(*rows)])
        points = [3, 0, 2], [5, 0, 4], [7, 0, 3]
        assert np.array_equal(array.vindex[points], values[points])
        assert np.array_equal(viewed[points], values[points])


@pytest.mark.parametrize("first", ORDERS, ids=str)
@pytest.mark.parametrize("second", ORDERS, ids=str)
def test_two_transposes_act_one_after_another(tmp_path, first, second):
    values = numbers(SHAPE, "i4") + 1
    document = document_of("int32", SHAPE, SHAPE, "big", [first, second])
    array = zarr.open_array(written_documents(tmp_path, document), mode="r+")
    array[...] = values
    transposed = values.transpose(first).transpose(second)
    (path,) = (path for path in tmp_path.rglob("*/0") if path.is_file())
    assert path.read_bytes() == transposed.astype(">i4").tobytes()
    assert np.array_equal(array[1:3, 2, ::3], values[1:3, 2, ::3])
    assert np.array_equal(view(array)[1:3, 2, ::3], values[1:3, 2, ::3])


@pytest.mark.parametrize(
    ("layout", "pipeline", "n"),
    [
        ("chunk", "BatchedCodecPipeline", 3000),
        ("chunk", "BatchedBytesPipeline", 1000),
        ("transposed", "BatchedBytesPipeline", 2400),
        ("shard", "BatchedBytesPipeline", 1000),
    ],
)
def test_uneven_indices_are_put_to_their_places_in_several_pieces(tmp_path, layout, pipeline, n):
    """More elements than are read at once: of each row 9,600 bytes, and about half of all rows."""
    values, random = numbers((n, 1200)), np.random.default_rng(7)
    shards = ShardingCodec(chunk_shape=(n // 2, 600), codecs=[BytesCodec(endian="big")])
    options = {
        "chunk": {},
        "transposed": {"filters": [TransposeCodec(order=(1, 0))]},
        "shard": {"serializer": shards},
    }
    stored(LocalStore(tmp_path), values, **options[layout])
    ascending = np.sort(random.choice(n, 3 * n // 5, replace=False))
    again = np.sort(random.integers(0, n, 3 * n // 5))  # some of them several times
    columns = np.sort(random.choice(1200, 500, replace=False))
    with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
        array = zarr.open_array(tmp_path, mode="r")
    for gap in 0, 10_000:  # rows apart, and some of them joined
        with zarr.config.set({"zarr_bytes.gap.local": gap}):
            for rows in ascending, again, random.permutation(ascending):
                assert np.array_equal(array.oindex[rows], values[rows])
            assert np.array_equal(array.oindex[:, columns], values[:, columns])
            both = ascending[::3], columns[1:]
            assert np.array_equal(array.oindex[both], values[np.ix_(*both)])


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("largest", [65535, 65536, 65537])
@pytest.mark.parametrize("shape", [(65538,), (257, 256)], ids=str)
def test_points_out_of_order_around_an_index_of_16_bits(tmp_path, largest, shape):
    values = numbers(shape, "u4") + 1
    array = stored(LocalStore(tmp_path), values)
    flat = [largest, 0, 7, largest - 1, 65534, 3]
    points = np.unravel_index(flat, shape)
    assert np.array_equal(array.vindex[points], values[points])
    if len(shape) == 1:
        assert np.array_equal(array.oindex[flat], values[flat])
    array.vindex[points] = values[points] + 10**6
    values[points] += 10**6
    assert np.array_equal(array[...], values)


@pytest.mark.parametrize("kind", ["local", "requests"])
@pytest.mark.parametrize("places", list(product([0, 24], repeat=4)), ids=str)
def test_inner_chunks_with_shared_bytes_are_selected_in_different_sizes(tmp_path, kind, places):
    """A part that ends before the one that lies around it does not end what is read for both."""
    parts = numbers((2, 6), "i4") + 1
    content = shard_of(
        [part.astype(">i4").tobytes() for part in parts] + [None] * 2,
        entries={number: (place, 24) for number, place in enumerate(places)},
    )
    document = document_of("int32", (4, 6), (4, 6), "big")
    document |= {"codecs": [sharding((2, 3), [*document["codecs"]])]}
    store = written_documents(tmp_path if kind == "local" else None, document)
    zarr.core.sync.sync(StorePath(store, "c/0/0").set(Buffer.from_bytes(content)))
    store = store if kind == "local" else CountingStore(store)
    inner = [parts[place // 24].reshape(2, 3) for place in places]
    expected = np.block([[inner[0], inner[1]], [inner[2], inner[3]]])
    for gap in 0, 100:
        with zarr.config.set({"zarr_bytes.gap": {"local": gap, "remote": gap}}):
            array = zarr.open_array(store, mode="r")
            for selection in np.s_[:3, :4], np.s_[1:, 2:], np.s_[:1, :4], np.s_[1:3, 2:6], np.s_[:]:
                assert np.array_equal(array[selection], expected[selection])


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("chunks", [{"chunks": (4,)}, {"chunks": (2,), "shards": (4,)}])
def test_arrays_that_share_a_data_type_keep_their_own_fill_values(chunks):
    """One object of the data type, chunks of one shape, read and written in turn."""
    fill_values = (5, 7, 9)
    options = {"shape": (8,), "dtype": zarr.dtype.Int32(), "compressors": None, **chunks}
    arrays = [zarr.create_array({}, fill_value=value, **options) for value in fill_values]
    assert len({id(array.metadata.data_type) for array in arrays}) == 1
    for _ in range(2):
        for array in arrays:
            array[1] = 1  # of a shard, the other inner chunk stays absent
        for fill_value, array in zip(fill_values, arrays, strict=True):
            assert array[2:4].tolist() == [fill_value] * 2
            assert array[...].tolist() == [fill_value, 1, *[fill_value] * 6]
    for fill_value, array in zip(fill_values, arrays, strict=True):
        array[:4] = fill_value
        assert keys_of(array.store) == []


@needs_pwrite
@pytest.mark.parametrize("options", [{"chunks": (8,)}, {"chunks": (2,), "shards": (8,)}], ids=str)
def test_an_unpickled_array_writes_in_place_as_it_was_opened(tmp_path, options):
    zarr.create_array(tmp_path, data=np.arange(1, 9), compressors=None, **options)
    with zarr.config.set(IN_PLACE):
        pickled = pickle.dumps(zarr.open_array(tmp_path, mode="r+"))
    inode = (tmp_path / "c/0").stat().st_ino
    array = pickle.loads(pickled)  # noqa: S301
    array[3] = 70
    assert (tmp_path / "c/0").stat().st_ino == inode
    pickle.loads(pickle.dumps(array))[4] = 80  # noqa: S301
    assert (tmp_path / "c/0").stat().st_ino == inode
    assert array[...].tolist() == [1, 2, 3, 70, 80, 6, 7, 8]


class TestEmptyChunks:
    """Of elements of which no power of two is a multiple, larger than what is compared at once."""

    COUNT = 50_000

    @pytest.fixture(params=[3, 12], ids="{} bytes".format)
    def array(self, request, tmp_path):
        size = request.param
        document = document_of("r24", [2 * self.COUNT], [self.COUNT], "big")
        document |= {"data_type": f"r{8 * size}", "fill_value": list(range(1, size + 1))}
        return zarr.open_array(written_documents(tmp_path, document), mode="r+")

    def filled(self, array):
        return np.full(self.COUNT, np.asarray(array.fill_value), array.dtype)

    def test_one_of_fill_values_alone_is_not_stored(self, array):
        other = np.frombuffer(bytes(range(50, 50 + array.dtype.itemsize)), array.dtype)[0]
        array[: self.COUNT] = other
        assert keys_of(array.store) == ["c/0"]
        array[: self.COUNT] = self.filled(array)
        assert keys_of(array.store) == []

    @pytest.mark.parametrize("place", [0, 5461, 5462, 21845, 21846, 43690, 43691, 49_999])
    def test_one_with_a_single_other_byte_is(self, array, place):
        values = self.filled(array)
        values.view("u1").reshape(self.COUNT, -1)[place, -1] ^= 1
        array[: self.COUNT] = values
        assert keys_of(array.store) == ["c/0"]
        assert array[: self.COUNT].tobytes() == values.tobytes()


@pytest.mark.usefixtures("pipeline")
@pytest.mark.parametrize("endian", ["little", "big"])
def test_a_wrong_bool_in_a_record_is_named_by_the_index_of_the_record(tmp_path, endian):
    """The message has its byte among those of the chunk, or of the selection."""
    document = document_of(
        "nested", (4, 6), (4, 6), endian
    )  # 7 bytes, of which the first is a bool
    fields = [["a", "int16"], ["b", "bool"], ["c", "int32"], ["d", "bool"]]
    data_type = {"name": "structured", "configuration": {"fields": fields}}
    document |= {"data_type": data_type, "fill_value": "AAAAAAAAAAA="}
    store = written_documents(tmp_path, document)
    content = np.zeros((24, 8), "u1")
    content[:, [1, 4]], content[9, 7] = 9, 3  # the last field of the record (1, 3)
    (tmp_path / "c/0").mkdir(parents=True)
    (tmp_path / "c/0/0").write_bytes(content.tobytes())
    with zarr.config.set(GAPS):
        array = zarr.open_array(store, mode="r")
        for selection, index, byte in (
            (np.s_[...], (1, 3), 8 * 9 + 7),
            (np.s_[1, 2:5], (1,), 8 * 1 + 7),
            (np.s_[1:3, 3:], (0, 0), 7),
            (np.s_[:, 1::2], (1, 1), 8 * 4 + 7),
        ):
            message = rf"found 3 at index {re.escape(str(index))} of the .*\(byte {byte}\)"
            with pytest.raises(BoolValueError, match=message):
                array[selection]
        assert array[2:].tolist() == array[:1].tolist() * 2


class TestRangesOfMessages:
    """An error of a chunk that ends too early names the range that it lacks."""

    VALUES = numbers((10, 100), "u1")

    @pytest.mark.parametrize("cut", [0, 1, 150, 349, 350, 351, 359, 360, 361, 720, 745])
    def test_of_a_file(self, tmp_path, cut):
        array = stored(LocalStore(tmp_path), self.VALUES)
        os.truncate(tmp_path / "c/0/0", cut)
        # The first range, of those that are read, that ends behind the end of the file.
        start = next(row for row in range(50, 1000, 100) if row + 10 > cut)
        message = (
            f"^bytes {start} to {start + 10} of {tmp_path}/c/0/0 are 10 bytes,"
            f" found {max(cut - start, 0)}: "
        )
        with zarr.config.set(GAPS), pytest.raises(ChunkSizeError, match=message):
            zarr.open_array(array.store, mode="r")[:, 50:60]

    def test_of_a_request(self):
        array = stored(MemoryStore(), self.VALUES)
        key = StorePath(array.store, "c/0/0")
        content = zarr.core.sync.sync(key.get())
        zarr.core.sync.sync(key.set(content[:355]))
        with zarr.config.set(GAPS), pytest.raises(ChunkSizeError) as caught:
            zarr.open_array(CountingStore(array.store), mode="r")[:4, 50:60]
        assert re.match(r"bytes 350 to 360 of .*c/0/0 are 10 bytes, found 5: ", str(caught.value))


class TestGaps:
    """A gap is a number of bytes, and no more of them are read over."""

    @pytest.mark.parametrize("item_size", [1, 2, 4, 8])
    @pytest.mark.parametrize("unread", [1, 2, 3])
    @pytest.mark.parametrize("kind", ["local", "requests"])
    def test_one_byte_less_than_lies_between_joins_nothing(self, tmp_path, item_size, unread, kind):
        values = numbers((6, 100), f"u{item_size}")
        store = LocalStore(tmp_path) if kind == "local" else CountingStore(MemoryStore())
        array = stored(store, values)
        selection = np.s_[2, : (unread + 1) * 4 : unread + 1]  # four elements
        nbytes = unread * item_size
        for gap, ranges in (nbytes - 1, 4), (nbytes, 1), (nbytes + 1, 1):
            with zarr.config.set({"zarr_bytes.gap": {"local": gap, "remote": gap}}):
                expected = explain(array, selection)
                with counting() as counted:
                    assert np.array_equal(array[selection], values[selection])
            assert (gap, counted.ranges) == (gap, ranges)
            assert counted.bytes_fetched == (4 + 3 * unread * (ranges == 1)) * item_size
            assert expected.ranges == counted.ranges
            assert expected.bytes_fetched == counted.bytes_fetched


def test_a_read_shares_nothing(tmp_path):
    """`may_share` is of writes, and of those in place."""
    with zarr.config.set(IN_PLACE):
        array = zarr.create_array(tmp_path, data=np.arange(1, 9), compressors=None)
        array = zarr.open_array(tmp_path, mode="r+")
        assert explain(array, np.s_[2:4], write=True).may_share
        assert not explain(array, np.s_[2:4]).may_share


@needs_nowait
@pytest.mark.parametrize("extra", [0, 1, 100])
@pytest.mark.parametrize("most", [1, 7, 63, 65, 10_000])
def test_a_short_read_is_not_taken_for_the_end_of_a_file_that_is_too_long(tmp_path, most, extra):
    values = numbers((8,), "i8") + 1
    array = stored(LocalStore(tmp_path), values)
    path = tmp_path / "c/0"
    path.write_bytes(path.read_bytes() + extra * b"x")
    with watched(tmp_path, most=most):
        for _ in "unknown", "known":  # whether the file system is local
            if not extra:
                assert np.array_equal(array[...], values)
                continue
            with pytest.raises(ChunkSizeError, match=f"64 bytes, found {64 + extra}.* too long"):
                array[...]
