"""What others do to a chunk between any two calls of a read or a write.

Another process, or another client of a server, replaces, deletes, truncates or overwrites a chunk
before the n-th call, for n = 0, 1, 2, ... until there are no more calls. What is permitted then is
in the guide ("Readers, failures, cancelled writes"): a result is old or new, or an error names the
chunk. Which calls are made, and how many, is not looked at.
"""

import os
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr
from shards import divided, shard_of
from stored_arrays import contents_of, created, faulty, numbers
from system_calls import at_each_call_below
from zarr.buffer.cpu import Buffer
from zarr.codecs import ShardingCodec
from zarr.storage import LocalStore, MemoryStore

import zarr_bytes
from zarr_bytes import BytesCodec, ChunkFileError, ChunkSizeError, ShardIndexError

SHAPE, FILL_VALUE = (80, 8), 9
OLD = numbers(SHAPE, "i4") + 10
NEW, OURS, MISSING = -OLD, OLD + 1_000_000, np.full(SHAPE, FILL_VALUE, "i4")
BIG = BytesCodec(endian="big")
LAYOUTS = {
    "chunk": {"serializer": BIG},
    "shard": {"serializer": ShardingCodec(chunk_shape=(20, 4), codecs=[BIG])},
}
READS = [np.s_[57, 6], np.s_[7], np.s_[15:70:18, 2:6], np.s_[...]]
WRITES = [*READS, np.s_[:, 3]]  # through a mapping
KEY = "c/0/0"

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
needs_descriptors = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="files are known by descriptor, and written in place"
)


def contents_of_versions(layout):
    """The bytes of a chunk or shard of each version."""
    for values in OLD, NEW:
        array = created(MemoryStore(), SHAPE, "i4", fill_value=FILL_VALUE, **LAYOUTS[layout])
        array[...] = values
        yield contents_of(array.store)[KEY]


class File:
    """The file of the one chunk or shard of an array, which others change."""

    def __init__(self, folder, layout, *, in_place=False):
        self.folder, self.path = folder, folder / KEY
        self.old, self.new = contents_of_versions(layout)
        self.replacing = self.new
        if layout == "shard":  # whose inner chunks lie elsewhere
            parts = [part.astype(">i4").tobytes() for part in divided(NEW, (20, 4))]
            self.replacing = shard_of(parts, places=[3, 1, 0, 2, 7, 4, 6, 5])
        options = {"fill_value": FILL_VALUE, "in_place": in_place, **LAYOUTS[layout]}
        self.array = created(LocalStore(folder), SHAPE, "i4", **options)
        self.path.parent.mkdir(parents=True)

    def put(self, content):
        """Another file takes its name."""
        if self.path.is_dir():
            self.path.rmdir()
        other = self.folder / "other"
        other.write_bytes(content)
        other.replace(self.path)

    def replaced(self):
        self.put(self.replacing)

    def made(self):
        """A file takes its name if none has it; whether it does."""
        other = self.folder / "other"
        other.write_bytes(self.replacing)
        with suppress(FileExistsError):
            os.link(other, self.path)
        is_made = other.stat().st_nlink > 1
        other.unlink()
        return is_made

    def deleted(self):
        self.path.unlink(missing_ok=True)

    def truncated(self, size=None):
        with suppress(FileNotFoundError):
            os.truncate(self.path, len(self.old) // 2 if size is None else size)

    def emptied(self):
        self.truncated(0)

    def lengthened(self):
        with self.path.open("ab") as file:
            file.write(b"more")

    def overwritten(self):
        with self.path.open("r+b") as file:
            file.write(self.new)

    def a_folder(self):
        self.deleted()
        self.path.mkdir(exist_ok=True)

    @property
    def values(self):
        return np.asarray(zarr.open_array(self.folder, mode="r")[...])


def outcome(act):
    """The result, or the error."""
    try:
        return act(), None
    except (ChunkSizeError, ShardIndexError, ChunkFileError, OSError) as error:
        return None, error


def each_moment(file, event):
    """Before each call, `event` happens: yields a context for each call, and a last one without."""
    for number in range(1000):
        file.put(file.old)
        happened = []

        def act(n, *_, number=number, happened=happened):
            if n == number:
                happened.append(event())

        yield at_each_call_below(file.path.parent, act)
        assert list(file.folder.rglob("*.partial")) == []
        if not happened:
            return
    raise AssertionError("it goes on for ever")


# Of each event, the versions that a read may give. Single elements are of either one only where a
# file is overwritten.
EVENTS_OF_READS = {
    **dict.fromkeys(["replaced", "overwritten"], (OLD, NEW)),
    **dict.fromkeys(["deleted", "a_folder"], (OLD, MISSING)),
    **dict.fromkeys(["truncated", "emptied", "lengthened"], (OLD,)),
}
MAY_FAIL = ("truncated", "emptied", "lengthened", "a_folder")


def is_one_of(found, versions, selection, *, is_mixed=False):
    """Whether all elements are those of one version, or else each is of one of them."""
    equal = [np.equal(found, version[selection]) for version in versions]
    return bool(np.any(equal, axis=0).all()) if is_mixed else any(each.all() for each in equal)


def test_a_chunk_that_is_replaced_between_two_reads_has_the_new_elements(tmp_path):
    file = File(tmp_path, "chunk")
    file.put(file.old)
    assert np.array_equal(file.array[7], OLD[7])
    file.replaced()
    assert np.array_equal(file.array[7], NEW[7])


@needs_descriptors
@pytest.mark.parametrize("event", EVENTS_OF_READS)
@every_layout
def test_a_chunk_file_that_others_change_reads_old_or_new_or_is_named(tmp_path, layout, event):
    file, is_mixed = File(tmp_path, layout), event == "overwritten"
    with zarr.config.set({"zarr_bytes.gap.local": 0}):
        for selection in READS:
            for moment in each_moment(file, getattr(file, event)):
                with moment:
                    found, error = outcome(lambda s=selection: file.array[s])
                if error is None:
                    assert is_one_of(found, EVENTS_OF_READS[event], selection, is_mixed=is_mixed)
                else:
                    assert event in MAY_FAIL
                    assert str(file.path) in str(error)


def changed(values, selection):
    values = values.copy()
    values[selection] = OURS[selection]
    return values


# Of each event, the versions to which the write may have been done, and those that undo it.
EVENTS_OF_WRITES = {
    "replaced": ([OLD, NEW], [NEW]),
    "deleted": ([OLD, MISSING], [MISSING]),
    "lengthened": ([OLD], [OLD]),
    "a_folder": ([OLD], []),
}


@needs_descriptors
@pytest.mark.parametrize("event", [*EVENTS_OF_WRITES, "truncated", "emptied"])
@pytest.mark.parametrize(
    ("layout", "in_place"),
    [
        ("shard", True),
        *(
            pytest.param(layout, in_place, marks=pytest.mark.slow)
            for layout, in_place in (("chunk", False), ("chunk", True), ("shard", False))
        ),
    ],
)
def test_a_write_to_a_chunk_file_that_others_change_is_done_to_one_version(
    tmp_path, layout, event, in_place
):
    """Or is undone by the others; no version is written in part, or mixed with another.

    What others truncate is an error of the next read, or right.
    """
    file = File(tmp_path, layout, in_place=in_place)
    for selection in WRITES:
        for moment in each_moment(file, getattr(file, event)):
            with moment:
                _, error = outcome(lambda s=selection: file.array.set_basic_selection(s, OURS[s]))
            if error is not None:
                assert event in MAY_FAIL
                assert str(file.path) in str(error)
            elif event in EVENTS_OF_WRITES and not file.path.is_dir():  # which came last
                if event == "lengthened":
                    file.put(file.path.read_bytes().removesuffix(b"more"))
                to, undone = EVENTS_OF_WRITES[event]
                possible = [*(changed(version, selection) for version in to), *undone]
                assert any(np.array_equal(file.values, version) for version in possible)


@needs_descriptors
@every_layout
@pytest.mark.parametrize("value", [OURS, MISSING], ids=["elements", "fill values"])
def test_a_write_to_a_missing_chunk_keeps_what_others_make_meanwhile(tmp_path, layout, value):
    """Fill values may count as written before, when there was nothing to write."""
    file, is_made = File(tmp_path, layout, in_place=True), []
    for moment in each_moment(file, lambda: is_made.append(file.made())):
        file.deleted()
        is_made.clear()
        with moment:
            file.array[7] = value[7]
        before = NEW if any(is_made) else MISSING
        expected = before.copy()
        expected[7] = value[7]
        possible = [expected, before] if value is MISSING else [expected]
        assert any(np.array_equal(file.values, each) for each in possible)


@needs_descriptors
@every_layout
@pytest.mark.parametrize("is_there", [True, False], ids=["there", "missing"])
def test_preallocate_keeps_a_chunk_file_that_others_make_meanwhile(tmp_path, layout, is_there):
    file, was_put = File(tmp_path, layout, in_place=True), []
    for moment in each_moment(file, file.replaced):
        if not is_there:
            file.deleted()
        with moment:
            allocated = zarr_bytes.preallocate(file.array)
        assert (allocated.chunks, allocated.made + is_there) in ((1, 0), (1, 1))
        was_put.append(np.array_equal(file.values, NEW))
    assert was_put == [True] * (len(was_put) - 1) + [False]


@pytest.mark.parametrize("event", ["replaced", "deleted", "truncated", "emptied"])
@every_layout
@pytest.mark.parametrize("is_partial", [True, False], ids=["in ranges", "whole"])
def test_a_remote_object_that_others_change_reads_old_or_new_or_is_named(layout, event, is_partial):
    """With several requests, elements may be of two versions; never beside the fill value."""
    old, new = map(Buffer.from_bytes, contents_of_versions(layout))
    others = {"replaced": new, "truncated": old[: len(old) // 2], "emptied": old[:0]}
    then = {KEY: others[event]} if event in others else {}

    async def change(number, buffer):
        if number == array.store.last:
            objects.pop(KEY)
            objects.update(then)
        return buffer

    array = faulty(change, OLD, fill_value=FILL_VALUE, **LAYOUTS[layout])
    objects, requests = array.store._store._store_dict, array.store.requests
    settings = {"zarr_bytes.gap.remote": 0, "zarr_bytes.partial_reads": is_partial}
    with zarr.config.set({**settings, "async.concurrency": 1}):
        for selection, last in product(READS, range(1, 12)):  # more than there are requests
            objects[KEY], array.store.last = old, last
            requests.clear()
            found, error = outcome(lambda s=selection: array[s])
            if error is None:
                is_mixed = event == "replaced" and len(requests) > 1
                assert is_one_of(found, EVENTS_OF_READS[event], selection, is_mixed=is_mixed)
            else:
                assert event != "replaced"
                assert KEY in str(error)
