"""Elements at their places: every order of three axes, and what is kept from one read to the next.

The values of an array are all distinct, so that none can stand in the place of another. The oracles
are NumPy and plain zarr.
"""

import gc
import sys
import warnings
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import zarr
from stored_arrays import PLAIN_ZARR, CountingStore, created, numbers, spec_of, stored
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import BytesCodec, counting, view
from zarr_bytes.indexing.plan import Plan
from zarr_bytes.layout.objects import ChunkEncoding

pytestmark = pytest.mark.zarr

SHAPE, INNER = (4, 6, 8), (2, 1, 2)  # every size of INNER divides every size of SHAPE


def layouts_of(order):
    """The options of an array of one chunk or shard whose axes have this order."""
    first, other = TransposeCodec(order=order), TransposeCodec(order=(1, 0, 2))
    back = TransposeCodec(order=np.argsort(order).tolist())

    def shard(*codecs):
        return ShardingCodec(chunk_shape=INNER, codecs=[*codecs, BytesCodec(endian="big")])

    return {
        "chunk": {"filters": [first]},
        "chunk, transposed twice": {"filters": [first, other]},
        "inner chunks": {"serializer": shard(first)},
        "shard": {"filters": [first], "serializer": shard()},
        "shard, and inner chunks back": {"filters": [first], "serializer": shard(back)},
        "shard, and inner chunks again": {"filters": [first], "serializer": shard(first)},
    }


ORDERS = list(permutations(range(3)))
SLOW_ORDERS = [(0, 1, 2), (1, 0, 2)]  # others exchange neighbours too; the model has all orders
every_order = pytest.mark.parametrize(
    "order",
    [pytest.param(o, marks=[pytest.mark.slow] * (o in SLOW_ORDERS)) for o in ORDERS],
    ids=str,
)
BASIC = [
    *(np.s_[1], np.s_[:, 3], np.s_[:, :, 5], np.s_[1, 2], np.s_[1, :, 5], np.s_[3, 4, 5]),
    *(np.s_[1:3, 2:5, 3:8], np.s_[::2, 1::3, 1:8:2], np.s_[1:3, 2, ::3]),
]
LISTS = [[3, 0, 1], [5, 0], [1, 7, 2]]
SELECTIONS = [  # the method of zarr, its selection, and the same elements for NumPy
    *(("basic", selection, selection) for selection in BASIC),
    ("orthogonal", ([0, 3], slice(1, 5, 2), [1, 2, 6]), np.ix_([0, 3], [1, 3], [1, 2, 6])),
    ("orthogonal", tuple(LISTS), np.ix_(*LISTS)),
    ("coordinate", *[([3, 0, 2, 2], [5, 0, 4, 1], [7, 0, 3, 6])] * 2),
]


def test_a_transposed_chunk_is_stored_in_the_order_of_its_transpose(tmp_path):
    values = numbers((2, 3), "i4")
    array = created(LocalStore(tmp_path), (2, 3), "i4", filters=[TransposeCodec(order=(1, 0))])
    array[...] = values
    assert (tmp_path / "c/0/0").read_bytes() == values.T.astype(">i4").tobytes()
    assert np.array_equal(array[:, 1], values[:, 1])


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize("layout", layouts_of(ORDERS[0]))
@every_order
def test_elements_are_found_in_every_order_of_three_axes(tmp_path, order, layout):
    """Read, viewed and written in place. A cyclic order is not its own inverse."""
    array = created(LocalStore(tmp_path), SHAPE, "i4", **layouts_of(order)[layout])
    array[...] = values = numbers(SHAPE, "i4") + 1
    viewed, next_value = view(array), 1000
    for method, selection, index in SELECTIONS:
        part = values[index]
        for gap in 0, 2**20:
            with zarr.config.set({"zarr_bytes.gap.local": gap}):
                assert np.array_equal(getattr(array, f"get_{method}_selection")(selection), part)
        if method != "orthogonal":
            assert np.array_equal(viewed[selection], part)
        new = next_value + np.arange(part.size, dtype="i4").reshape(part.shape)
        getattr(array, f"set_{method}_selection")(selection, new)
        values[index], next_value = new, next_value + 1000
        assert np.array_equal(viewed[...], values)
    assert np.array_equal(array[...], values)
    with zarr.config.set(PLAIN_ZARR), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it reads shards behind a transpose whole
        assert np.array_equal(zarr.open_array(tmp_path, mode="r")[...], values)


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize("layout", layouts_of(ORDERS[0]))
@every_order
def test_a_kept_plan_serves_other_integers_of_a_selection(tmp_path, order, layout):
    """Read and written in place, with inner chunks that are absent."""
    array = created(LocalStore(tmp_path), SHAPE, "i4", **layouts_of(order)[layout])
    values = numbers(SHAPE, "i4") + 1
    values[1:3, 2:4] = 0
    array[...] = values
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for form, k in product(range(4), range(8)):
            forms = (
                (k % 4,),
                np.s_[::3, k % 6, k % 3 :],
                np.s_[:, k % 3, k],
                np.s_[3 - k % 4, :, 7 - k],
            )
            assert np.array_equal(array[forms[form]], values[forms[form]])
            if k > 3:
                new = -values[forms[form]] - 5
                array[forms[form]] = values[forms[form]] = new
    assert np.array_equal(array[...], values)


@pytest.mark.parametrize("memory", ["C", "F"])
@every_order
def test_long_ranges_in_native_byte_order_are_read_in_every_order_of_axes(tmp_path, order, memory):
    """Which are read straight into the result where it has the order of the stored axes."""
    values, filters = numbers((20, 24, 280), "i4") + 1, [TransposeCodec(order=order)]
    native = BytesCodec(endian=sys.byteorder)
    stored(LocalStore(tmp_path), values, filters=filters, serializer=native)
    array = zarr.open_array(tmp_path, mode="r", config={"order": memory})
    for selection in (..., np.s_[3], np.s_[:, 3], np.s_[:, :, 3], np.s_[3:9], np.s_[:, :, 3:9]):
        for _ in "unknown", "known":  # where the store is
            assert np.array_equal(array[selection], values[selection])


@pytest.mark.parametrize("shape", [(65538,), (257, 256)], ids=str)
def test_points_in_any_order_are_read_around_an_index_of_16_bits(pipeline, shape):
    """Of a point that is written twice, the last value counts."""
    values = numbers(shape, "u4") + 1
    array = stored(MemoryStore(), values)
    for largest in 65535, 65536, 65537:
        flat = 20 * [largest, 0, 7, largest - 1, 65534, 3]
        points = np.unravel_index(flat, shape)
        for of in (array.vindex, array.oindex)[: 3 - len(shape)]:
            assert np.array_equal(of[points], values[points])
            of[points] = values[points] = values.max() + 1 + np.arange(120)
            assert np.array_equal(array[...], values)


def test_plans_are_kept_for_few_settings(tmp_path, pipeline):
    array = stored(LocalStore(tmp_path), numbers((8, 4095), "u1"))
    for gap in range(150):
        with zarr.config.set({"zarr_bytes.gap.local": gap}):
            array[:, :2048]
    assert 0 < len(kept_plans((8, 4095))) < 70


def test_the_plans_of_all_forms_of_chunks_of_a_box_are_kept():
    """Of its corners, its edges and its inside, which come in turn."""
    values = numbers((21, 22, 23), "u1")
    array = stored(CountingStore(MemoryStore()), values, chunks=(7, 8, 9))
    box = (slice(2, -2),) * 3
    with zarr.config.set({"zarr_bytes.gap.remote": 0}):
        assert np.array_equal(array[box], values[box])
        plans = kept_plans((7, 8, 9))
        assert np.array_equal(array[box], values[box])
    assert len(kept_plans((7, 8, 9))) == len(plans) == 27


def kept_plans(chunk_shape):
    """All plans of such chunks in this process."""
    found = [thing for thing in gc.get_objects() if isinstance(thing, Plan)]
    return [plan for plan in found if plan.layout.shape == chunk_shape]


def test_a_kept_plan_reads_into_memory_of_any_form(tmp_path, pipeline):
    """Long ranges are read straight into the memory that has their form; the others are copied."""
    values = numbers((40, 600)) + 1
    array = stored(LocalStore(tmp_path), values, serializer=BytesCodec(endian="little"))
    forms = {
        "C": lambda shape: np.zeros(shape),
        "F": lambda shape: np.zeros(shape, order="F"),
        "columns of more": lambda shape: np.zeros((shape[0], shape[1] + 1))[:, 1:],
        "big-endian": lambda shape: np.zeros(shape, ">f8"),
        "numbers": lambda shape: np.zeros(shape, "i8"),
    }
    for first, second in permutations(forms, 2):
        for selection in np.s_[:], np.s_[3:20], np.s_[5:7, 1:9]:
            for form in first, second:
                out = forms[form](values[selection].shape)
                array.get_basic_selection(selection, out=cpu.NDBuffer.from_numpy_array(out))
                assert np.array_equal(out, values[selection])


def test_chunk_specs_that_differ_in_their_fill_values_have_layouts_of_their_own():
    spec = spec_of(created(MemoryStore(), (4,), "i4"))
    encoding = ChunkEncoding("little")
    for fill_value in np.int32(7), np.int32(8), np.int32(7):
        assert encoding.layout_of(replace(spec, fill_value=fill_value)).fill_value == fill_value


@pytest.mark.filterwarnings("ignore:The 'generic' unit", "ignore:The data type")
@pytest.mark.parametrize("endian", ["big", "little"])
@pytest.mark.parametrize("zarr_format", [2, 3])
class TestTimesWithoutAUnit:
    """`numpy.empty` gives them the byte order of this machine, whatever their data type says."""

    def test_a_missing_chunk_has_the_fill_value(self, zarr_format, endian):
        found = self.created(zarr_format, endian)[1:]
        assert self.numbers_in(found) == [-(2**63)] * 2

    def test_elements_are_those_that_were_written(self, zarr_format, endian):
        array = self.created(zarr_format, endian)
        array[1:] = np.array([7, 2**40], array.dtype.str.replace("M", "i")).view(array.dtype)
        assert self.numbers_in(array[...]) == [-(2**63), 7, 2**40]

    def created(self, zarr_format, endian):
        data_type = zarr.dtype.DateTime64(endianness=endian, unit="generic", scale_factor=1)
        return zarr.create_array(
            {}, shape=3, dtype=data_type, zarr_format=zarr_format, compressors=None
        )

    def numbers_in(self, times):
        return times.view(times.dtype.str.replace("M", "i")).tolist()


def test_an_array_of_format_2_reads_into_memory_of_both_byte_orders(tmp_path):
    options = {"serializer": "auto", "zarr_format": 2, "order": "F"}
    for number, (dtype, memory_dtype) in enumerate(product(["<f8", ">f8"], repeat=2)):
        values = numbers((40, 600), dtype)
        array = stored(LocalStore(tmp_path / str(number)), values, **options)
        for selection in np.s_[:], np.s_[3:20], np.s_[5:7, 1:9], np.s_[3, 7]:
            out = np.zeros(values[selection].shape, memory_dtype)
            array.get_basic_selection(selection, out=cpu.NDBuffer.from_numpy_array(out))
            assert np.array_equal(out, values[selection])
        assert array[3:20].dtype == values.dtype


def test_a_kept_plan_follows_the_settings_of_the_moment(tmp_path, pipeline):
    array = stored(LocalStore(tmp_path), numbers((8, 4096), "u1"))
    for gap, ranges in (2047, 8), (2048, 1), (2047, 8):
        with zarr.config.set({"zarr_bytes.gap.local": gap}), counting() as counted:
            array[:, :2048]
        assert counted.ranges == ranges


def test_a_kept_plan_is_not_used_for_other_arrays_of_indices(tmp_path, pipeline):
    """Nor are equal ones of two chunks, whose elements have other places in the result."""
    values = numbers((6, 10))
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for chunks, shards in ((6, 10), None), ((1, 5), None), ((6, 5), (6, 10)):
            array = stored(LocalStore(tmp_path / str(chunks)), values, chunks, shards=shards)
            for columns in 5, [5], [1, 2], [2, 5], [2, 5], [3], [1, 6], [0, 1, 3, 5, 7, 9]:
                assert np.array_equal(array.oindex[1:4, columns], values[1:4, columns])
