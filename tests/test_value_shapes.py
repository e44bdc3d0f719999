"""Which shapes of values fit a selection: what NumPy broadcasts is written, all else is refused.

For example, a column does not fit a row, also where one chunk has both:

>>> array = zarr.create_array({}, shape=(4, 6), dtype="i4", compressors=None)
>>> array[0:1] = np.ones((6, 1))
Traceback (most recent call last):
ValueError: elements of shape (6, 1) do not fit the selection, which has the shape (1, 6): ...

The oracle is NumPy, and plain zarr: what it stores is stored here too, unless NumPy refuses it.
"""

from itertools import count
from math import prod

import numpy as np
import pytest
import zarr
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    contents_of,
    created,
    keys_of,
    most_memory,
    numbers,
    stored,
)
from test_partial_write import READS, of_another_library
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import view

# zarr warns that records have no specification.
pytestmark = pytest.mark.filterwarnings("ignore:The data type")

SHAPE = 4, 6
BEFORE = -numbers(SHAPE, "i4") - 1
ROWS = np.array([True, False, True, True])
LAYOUTS = {
    "one chunk": {"chunks": (4, 6)},
    "chunks along one axis": {"chunks": (4, 3)},
    "chunks": {"chunks": (2, 4)},
    "one shard": {"chunks": (2, 3), "shards": (4, 6)},
    "shards": {"chunks": (1, 2), "shards": (2, 4)},
}
BASIC = [
    np.s_[...],
    np.s_[0:1],
    np.s_[:, 2:3],
    np.s_[::2, 1:6:3],
    np.s_[2],
    np.s_[:, 5],
    np.s_[3, 1:5],
    np.s_[1, 3],
]
ORTHOGONAL = [
    np.s_[2, 4],
    ([3, 0, 1], slice(None)),
    ([3, 0, 1], [5, 1]),
    ([0, 2], 4),
    (2, [1, 5, 0]),
    (ROWS, slice(1, 5)),
    (ROWS, 1),
]
FORMS = [  # how zarr is called, and the selection
    *(("__setitem__", entries) for entries in BASIC),
    ("set_basic_selection", np.s_[1:3, 2:4]),
    ("set_basic_selection", np.s_[0, 5]),
    *(("oindex", entries) for entries in ORTHOGONAL),
    ("blocks", np.s_[-1]),
    ("blocks", np.s_[0:1, 0]),
    ("vindex", BEFORE % 5 == 0),
    ("set_mask_selection", BEFORE == -7),
]
POINTS = [
    ([3, 0, 2], [5, 0, 2]),
    ([[0, 3], [1, 1]], [[5, 5], [0, 4]]),
    (2, 4),
]
both_ways = pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
layouts = pytest.mark.parametrize("layout", LAYOUTS)
in_all_ways = pytest.mark.parametrize(
    ("layout", "in_place"),
    [*((layout, False) for layout in LAYOUTS), ("chunks", True), ("one shard", True)],
)


def made(folder, layout, *, in_place, config=None):
    """An array of `BEFORE`; files where it is written in place."""
    store = LocalStore(folder) if in_place else MemoryStore()
    with zarr.config.set({**(IN_PLACE if in_place else {}), **(config or {})}):
        options = {"dtype": "i4", "compressors": None, **LAYOUTS[layout]}
        zarr.create_array(store, shape=SHAPE, **options)[...] = BEFORE
        return zarr.open_array(store, mode="r+")


def shapes_for(shape):
    """Shapes of values for a selection: those that fit, and such as are close to them."""
    longer = [shape[:axis] + (n + 1,) + shape[axis + 1 :] for axis, n in enumerate(shape)]
    shorter = [shape[:axis] + (n - 1,) + shape[axis + 1 :] for axis, n in enumerate(shape)]
    repeated = [shape[:axis] + (1,) + shape[axis + 1 :] for axis in range(len(shape))]
    lines = [form for n in shape for form in ((n,), (n, 1), (1, n))]
    few = [(), (1,), (1, 1), (0,), (6, 1), (7, 9)]
    more_axes = [(1, *shape), (*shape, 1), (2, *shape)]
    return dict.fromkeys([shape, *few, *longer, *shorter, *repeated, *lines, *more_axes])


def outcome(array, how, selection, value):
    """All elements after a write; None where it is refused."""
    try:
        if not how.startswith(("_", "set")):
            getattr(array, how)[selection] = value
        else:
            getattr(array, how)(selection, value)
    except (ValueError, IndexError):
        return None
    return array[...].tolist()


def places_of(array, how, selection):
    """The numbers of the selected elements in C order, in the shape of the selection."""
    places = np.arange(BEFORE.size).reshape(SHAPE)
    if how == "blocks":
        rows, columns = array.shards or array.chunks  # with which the last block is a whole one
        return places[-rows:] if selection == -1 else places[:rows, :columns]
    if how != "oindex":
        return places[selection]
    for axis in reversed(range(len(selection))):  # one axis after another
        places = places[(slice(None),) * axis + (selection[axis],)]
    return places


def numpy_outcome(places, value, before=BEFORE):
    expected = before.copy()
    try:
        expected.reshape(-1)[places] = value
    except ValueError:
        return None
    return expected.tolist()


def value_of(shape, first=1):
    return np.arange(first, first + prod(shape), dtype="i4").reshape(shape)


@in_all_ways
def test_a_value_that_numpy_broadcasts_is_written_and_any_other_refused_before_a_write(
    tmp_path, layout, in_place
):
    array, before, first = made(tmp_path, layout, in_place=in_place), BEFORE, count(1, 100)
    for how, selection in FORMS:
        places = places_of(array, how, selection)
        # No two of them have an element in common: each write changes all that it selects.
        values = [value_of(shape, next(first)) for shape in shapes_for(places.shape)]
        misfits = [value for value in values if numpy_outcome(places, value) is None]
        assert 0 < len(misfits) < len(values)
        objects = contents_of(array.store)
        for value in misfits:
            assert outcome(array, how, selection, value) is None, (how, selection, value.shape)
        assert contents_of(array.store) == objects
        for value in values:
            if (expected := numpy_outcome(places, value, before)) is not None:
                found = outcome(array, how, selection, value)
                assert found == expected, (how, selection, value.shape)
                before = np.array(expected)


@layouts
def test_what_plain_zarr_writes_is_what_numpy_assigns_if_that_takes_it(tmp_path, layout):
    """So that the test before compares with plain zarr too.

    It refuses some values that are repeated over several chunks. It also writes what NumPy refuses,
    such as the beginning of a longer value, and cuts a value with more axes than the selection.
    """
    plain = made(tmp_path, layout, in_place=False, config=PLAIN_ZARR)
    before, first = BEFORE, count(1, 100)
    for how, selection in FORMS:
        places = places_of(plain, how, selection)
        for shape in shapes_for(places.shape):
            value = value_of(shape, next(first))
            expected = numpy_outcome(places, value, before)
            if expected is not None and len(shape) <= places.ndim:
                found = outcome(plain, how, selection, value)
                assert found in (None, expected), (how, selection, shape)
                if found is None:  # in some chunks it may be written
                    plain[...] = before
                else:
                    before = np.array(expected)


@in_all_ways
def test_points_take_a_scalar_or_a_value_of_their_number_as_with_plain_zarr(
    tmp_path, layout, in_place
):
    """In any shape, since zarr flattens it. NumPy takes the shape of the points, or repeats."""
    array = made(tmp_path, layout, in_place=in_place)
    plain = made(tmp_path, layout, in_place=False, config=PLAIN_ZARR)
    for selection in POINTS:
        points = BEFORE[selection]
        for shape in shapes_for((points.size,)):
            value, expected = value_of(shape), None
            if value.shape == () or value.size == points.size:
                assigned = BEFORE.copy()
                assigned[selection] = value if shape == () else value.reshape(points.shape)
                expected = assigned.tolist()
            for each in array, plain:
                assert outcome(each, "vindex", selection, value) == expected, (selection, shape)
                if expected is not None:
                    each[...] = BEFORE


class TestOneElement:
    """A selection without axes takes no array with axes."""

    @both_ways
    @pytest.mark.parametrize("value", [[7.0], [[7.0]], np.ones(1), np.ones((1, 1)), []], ids=str)
    def test_an_array_with_axes_is_refused(self, tmp_path, value, in_place):
        """Also for `...` of an array without axes, which zarr does not tell from `()`."""
        for shape, selection in [((), ()), ((), ...), (3, 1), ((2, 3), (1, 2)), ((2, 3), (-1, -1))]:
            kind = LocalStore(tmp_path / f"{shape}") if in_place else MemoryStore()
            array = created(kind, shape, "f8", in_place=in_place, overwrite=True)
            with pytest.raises(ValueError, match=r"selection, which has the shape \(\): permitted"):
                array[selection] = value
            assert keys_of(array.store) == []
            array[selection] = np.array(7.0)
            assert array[selection] == 7

    def test_append_to_an_array_without_axes_is_refused_as_by_plain_zarr(self):
        for config in {}, PLAIN_ZARR:
            with zarr.config.set(config):
                array = zarr.create_array({}, shape=(), dtype="f8", compressors=None)
                with pytest.raises(ValueError, match="element|selection"):
                    array.append([7.0])
            assert array[()] == 0

    @pytest.mark.parametrize("dtype", ["?", "V3", [("a", "<i4"), ("b", "?")]], ids=str)
    def test_an_array_of_one_bool_or_of_one_record_is_taken_as_by_numpy(self, dtype):
        expected = np.zeros(3, dtype)
        with zarr.config.set(PLAIN_ZARR):
            plain = created(MemoryStore(), 3, dtype, serializer="auto")
        element = np.frombuffer(bytes([1] * expected.itemsize), dtype)
        for array in plain, created(MemoryStore(), 3, dtype):
            for value in element, element.reshape(1, 1), np.zeros(1, dtype):
                array[1] = expected[1] = value
                assert array[...].tolist() == expected.tolist()
        with pytest.raises(ValueError, match="do not fit"):
            array[0] = np.zeros(2, dtype)


class TestValuesThatAreRepeated:
    """Over several chunks, as within one."""

    @both_ways
    def test_a_row_of_a_view_of_the_same_array(self, tmp_path, in_place):
        array = stored(LocalStore(tmp_path), numbers((6, 4), "i8"), (2, 2), in_place=in_place)
        array[...] = view(array)[2:3]
        assert array[...].tolist() == [[8, 9, 10, 11]] * 6

    @both_ways
    @pytest.mark.parametrize("reads", READS)
    def test_a_row_that_another_library_reads_by_zarr(self, tmp_path, reads, in_place):
        source = stored(LocalStore(tmp_path / "source"), numbers(4, "i4"))
        names = {"shape": (4,), "dtype": source.dtype}
        names["__getitem__"] = lambda _, at: reads(source, at)
        for store in LocalStore(tmp_path / "array"), MemoryStore():
            array = created(store, (6, 4), "i4", (2, 2), in_place=in_place)
            array[1:] = type("Lazy", (), names)()
            assert array[...].tolist() == [[0] * 4, *[[0, 1, 2, 3]] * 5]
            with pytest.raises(ValueError, match="do not fit"):
                array[:, 1:] = of_another_library(np.zeros(4, "i4"))

    def test_they_take_the_memory_of_a_chunk(self, tmp_path):
        array = created(LocalStore(tmp_path), (64, 2**17), "u1", (4, 2**17))
        value = np.arange(2**17).astype("u1")
        _, most = most_memory(lambda: array.__setitem__(slice(None), value))
        assert most < 3 * 2**20
        assert (array[...] == value).all()

    def test_a_matrix(self):
        array = created(MemoryStore(), (4, 3), "i4", (2, 2))
        with pytest.warns(PendingDeprecationWarning):
            row = np.matrix([[1, 2, 3]])
        array[1:] = row
        array[0] = row
        assert array[...].tolist() == [[1, 2, 3]] * 4


@pytest.mark.parametrize("shape", [(), (0,), (1,)], ids=str)
def test_an_empty_selection_changes_nothing(shape):
    array = created(MemoryStore(), 7, "i4", 3)
    for selection in np.s_[5:4], np.s_[5:5], np.s_[9:8]:  # zarr 3.1 sends a chunk for the first
        array[selection] = np.ones(shape)
    assert keys_of(array.store) == []
