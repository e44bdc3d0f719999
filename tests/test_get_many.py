"""Stores whose class has a `get_many` of its own get the small requests of a read by it.

The method is that of zarr-python's pull request 4112: requests are keys, or keys and byte ranges;
answers come in groups, in any order, each with the number of its request. No zarr has it yet, so
a store stands in for those to come.
"""

import asyncio

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import PLAIN_ZARR, CountingStore, numbers
from zarr.storage import MemoryStore

from zarr_bytes import BoolValueError, ChunkSizeError, counting

MEBIBYTE = 2**20


class StoreOfMany(CountingStore):
    """Answers from the last request to the first, in groups of three, and notes the calls."""

    def __init__(self, store):
        super().__init__(store)
        self.calls = []

    async def get_many(self, requests, *, prototype):
        self.calls.append(requests)
        group = []
        for number, request in reversed([*enumerate(requests)]):
            key, byte_range = (request, None) if isinstance(request, str) else request
            group.append((number, await self._store.get(key, prototype, byte_range)))
            if len(group) == 3 or not number:
                yield group
                group = []

    def asked(self):
        """The requests by `get_many` of each call, and the number of those by `get`."""
        calls, self.calls = self.calls, []
        gets, self.requests = len(self.requests), []
        return [len(call) for call in calls], gets


def stored(values, store_class=StoreOfMany, **options):
    """An array whose chunks plain zarr has written."""
    memory = MemoryStore()
    with zarr.config.set(PLAIN_ZARR):
        zarr.create_array(memory, data=values, **{"compressors": None, **options})
    return zarr.open_array(store_class(memory))


def set_chunk(array, key, content):
    buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(content)
    asyncio.run(array.store._store.set(key, buffer))


class TestRequests:
    def test_whole_chunks_are_asked_for_by_their_keys_in_one_call(self):
        values = numbers((12, 20))
        array = stored(values, chunks=(3, 5))
        assert np.array_equal(array[:], values)
        calls = array.store.calls
        assert [sorted(calls[-1])] == [sorted(f"c/{i}/{j}" for i in range(4) for j in range(4))]
        assert array.store.asked()[1] == 0

    def test_ranges_are_asked_for_in_one_call(self):
        values = numbers((4, 200, 300))
        array = stored(values, chunks=(1, 200, 300))
        array[:2, 0, 0]
        array.store.asked()
        with counting() as counted:
            assert np.array_equal(array[:, 7, 40:50], values[:, 7, 40:50])
        (call,) = array.store.calls
        itemsize = values.itemsize
        start = (7 * 300 + 40) * itemsize
        found = {key: (some.start, some.end) for key, some in call}
        assert found == {f"c/{i}/0/0": (start, start + 10 * itemsize) for i in range(4)}
        assert (counted.requests, counted.ranges) == (4, 4)
        assert counted.bytes_fetched == 4 * 10 * itemsize
        assert counted.chunks == 4

    def test_calls_are_for_so_many_bytes_as_small_requests_have_at_once(self):
        values = np.zeros((80, MEBIBYTE // 2), "u1")
        values[:, 0] = range(80)
        array = stored(values, chunks=(1, MEBIBYTE // 2))
        array.store.asked()
        assert np.array_equal(array[:], values)
        calls, gets = array.store.asked()
        assert (calls, gets) == ([64, 16], 0)

    def test_until_a_range_has_been_answered_the_first_chunk_goes_alone(self):
        values = numbers((4, 200, 300))
        array = zarr.open_array(StoreOfMany(stored(values, chunks=(1, 200, 300)).store._store))
        assert np.array_equal(array[:, 7, 40:50], values[:, 7, 40:50])
        assert array.store.asked() == ([1, 3], 0)

    @pytest.mark.parametrize(
        "options",
        [{"chunks": (1, 300_000)}, {"shards": (2, 3000), "chunks": (1, 300)}],
        ids=["a large chunk", "shards"],
    )
    def test_large_chunks_and_shards_are_asked_for_by_get(self, options):
        shape = (4, max(options["chunks"][1], options.get("shards", (0, 0))[1]))
        values = numbers(shape)
        array = stored(values, **options)
        array.store.asked()
        assert np.array_equal(array[:], values)
        calls, gets = array.store.asked()
        assert not calls
        assert gets

    def test_one_chunk_is_asked_for_by_get(self):
        array = stored(numbers((12, 20)), chunks=(3, 5))
        array.store.asked()
        array[0]
        array.store.asked()
        assert array[0, 0] == numbers((12, 20))[0, 0]
        assert array.store.asked() == ([], 1)

    def test_a_store_that_does_not_override_it_is_asked_by_get(self, monkeypatch):
        """As all stores will have one."""
        monkeypatch.setattr("zarr.abc.store.Store.get_many", StoreOfMany.get_many, raising=False)
        values = numbers((12, 20))
        array = stored(values, CountingStore, chunks=(3, 5))
        array.store.requests = []
        assert np.array_equal(array[:], values)
        assert len(array.store.requests) == 16


def upward_slices(length):
    return st.slices(length).filter(lambda entry: entry.indices(length)[2] > 0)


@given(
    st.tuples(*map(upward_slices, (13, 20))),
    st.sampled_from([(3, 5), (13, 4), (1, 20)]),
    st.sampled_from(["<i4", ">f8", "?"]),
    st.booleans(),
)
def test_selections_are_those_of_numpy(selection, chunks, dtype, partial):
    values = numbers((13, 20)).astype(dtype)
    array = stored(values, chunks=chunks)
    with zarr.config.set({"zarr_bytes.partial_reads": partial, "zarr_bytes.gap.remote": 0}):
        assert np.array_equal(array[selection], values[selection])


class TestAnswers:
    def test_a_missing_chunk_is_the_fill_value(self):
        values = numbers((12, 20))
        array = stored(values, chunks=(3, 5), fill_value=7)
        del array.store._store._store_dict["c/1/2"]
        array.store.asked()
        expected = values.copy()
        expected[3:6, 10:15] = 7
        assert np.array_equal(array[:], expected)
        assert array.store.asked() == ([16], 0)

    def test_a_truncated_chunk_is_an_error_with_its_key(self):
        array = stored(numbers((12, 20)), chunks=(3, 5))
        set_chunk(array, "c/1/2", b"1234")
        with pytest.raises(ChunkSizeError, match="c/1/2"):
            array[:]

    def test_a_bool_that_is_neither_0_nor_1_is_an_error(self):
        array = stored(np.ones((12, 20), "?"), chunks=(3, 5))
        set_chunk(array, "c/1/2", bytes(range(15)))
        with pytest.raises(BoolValueError, match="2"):
            array[:]

    def test_after_an_error_of_get_many_chunks_are_asked_for_by_get(self):
        """So that the error of a chunk is that of `get`, and other chunks are read."""

        class Failing(StoreOfMany):
            async def get_many(self, requests, *, prototype):
                answers = super().get_many(requests, prototype=prototype)
                yield await anext(answers)
                raise OSError("of get_many")

        values = numbers((12, 20))
        array = stored(values, Failing, chunks=(3, 5))
        array.store.asked()
        assert np.array_equal(array[:], values)
        assert array.store.asked() == ([16], 13)

    def test_answers_that_never_come_are_asked_for_by_get(self):
        class Forgetful(StoreOfMany):
            async def get_many(self, requests, *, prototype):
                async for group in super().get_many(requests, prototype=prototype):
                    yield group[:1]

        values = numbers((12, 20))
        array = stored(values, Forgetful, chunks=(3, 5))
        array.store.asked()
        assert np.array_equal(array[:], values)
        assert array.store.asked() == ([16], 10)

    def test_a_store_that_ignores_ranges_is_asked_for_one_of_them(self):
        class Whole(StoreOfMany):
            async def get(self, key, prototype, byte_range=None):
                return await super().get(key, prototype)

            async def get_many(self, requests, *, prototype):
                keys = [one if isinstance(one, str) else one[0] for one in requests]
                async for group in super().get_many(keys, prototype=prototype):
                    yield group

        values = numbers((4, 200, 300))
        memory = stored(values, chunks=(1, 200, 300)).store._store
        array = zarr.open_array(Whole(memory))
        with pytest.warns(UserWarning, match="does not answer byte ranges"):
            assert np.array_equal(array[:, 7, 40:50], values[:, 7, 40:50])
        assert array.store.asked()[0] == [1]

    def test_a_cancelled_read_ends_the_call(self):
        class Waiting(StoreOfMany):
            is_closed = False

            async def get_many(self, requests, *, prototype):
                try:
                    yield []
                    await asyncio.Event().wait()
                finally:
                    Waiting.is_closed = True

        array = stored(numbers((12, 20)), chunks=(3, 5))
        array = zarr.open_array(Waiting(array.store._store))

        async def read():
            async with asyncio.timeout(0.01):
                await array.async_array.getitem(...)

        with pytest.raises(TimeoutError):
            asyncio.run(read())
        assert Waiting.is_closed
