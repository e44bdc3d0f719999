"""Arrays beside NumPy arrays: whatever is done to them in any order, they hold the same bits.

Several arrays live in one process, so that what is kept of one is there when another is read. They
are of every layout, data type, byte order, fill value and kind of store. Each is created, opened
again under other settings, read, written, resized, explained, viewed and preallocated; in the end
plain zarr, in a process of its own, reads what is stored. `tests/fuzz.py` says how long it runs.
"""

import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import KINDS, TYPES, conditions, fuzz, same, store_with, values_of
from fuzz_arrays import Sharded, arrays, basic, reads, sharded, writes
from hypothesis import event, given, note
from hypothesis import strategies as st
from zarr.buffer import cpu

import zarr_bytes
from zarr_bytes import StoreError, counting, explain, preallocate

# zarr warns that some of its types have no specification, and of shards behind a transpose.
pytestmark = [
    pytest.mark.zarr,
    pytest.mark.filterwarnings(
        "ignore:The data type", "ignore:.*answer byte ranges", "ignore:Combining a"
    ),
]

OWN = "BatchedBytesPipeline"
STORES = [*KINDS, *["local"] * len(KINDS)]  # what is written in place, often
if importlib.util.find_spec("obstore"):
    STORES.append("obstore")

# By data type: fill values in metadata, and their bits, the most significant byte first.
FILL_VALUES = {
    "bool": [(True, "01")],
    "int16": [(-2, "fffe")],
    "uint64": [(2**64 - 1, 8 * "ff")],
    "float16": [("0x7e01", "7e01"), (-0.0, "8000")],
    "float32": [("0x7fc00001", "7fc00001"), (-0.0, "80000000"), ("NaN", "7fc00000")],
    "float64": [("0x7ff8000000000001", "7ff8000000000001"), (-0.0, "80" + 7 * "00")],
    "complex64": [([1.5, "0x7fc00001"], "3fc000007fc00001")],
    "r24": [([1, 2, 3], "010203")],
    "bfloat16": [("0x7fc1", "7fc1"), (-0.0, "8000")],
}
OF_PLAIN_ZARR = {
    *("bool", "datetime", "text", "ascii", "complex64", "complex128"),
    *(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)),
    *(["struct", "nested"] if zarr.__version__ > "3.3" else []),  # whose fields it did not swap
}
LARGEST = 14  # along an axis

# Of int2 and int4, bits that do not count are written.
EXAMPLES = arrays(
    least_size=1, can_be_missing=True, names=[n for n in TYPES if n not in ("int2", "int4")]
)


def element_of(name, bits):
    """An element of a data type in NumPy memory, from its bits in hexadecimal digits."""
    dtype, units, *_ = TYPES[name]
    content, ends = bytes.fromhex(bits), np.cumsum(units)
    if sys.byteorder == "little":
        parts = zip(ends, units, strict=True)
        content = b"".join(content[end - n : end][::-1] for end, n in parts)
    return np.frombuffer(content, dtype)[0]


class Member:
    """An array, and what it must hold."""

    def __init__(self, data, folder):
        example = data.draw(EXAMPLES)
        if data.draw(st.booleans()):
            example = data.draw(sharded(example))
        self.example, self.folder = example, folder
        self.dtype = np.dtype(TYPES[example.name][0])
        self.kind = data.draw(st.sampled_from(STORES))
        self.fill_value = np.zeros((), self.dtype)[()]
        self.versions = 0
        document, objects = example.document(), example.objects()
        self.values = np.zeros(example.shape, self.dtype)
        if example.name in FILL_VALUES and data.draw(st.booleans()):
            document["fill_value"], bits = data.draw(st.sampled_from(FILL_VALUES[example.name]))
            self.fill_value = element_of(example.name, bits)
            self.values[...] = self.fill_value
        elif self.is_read_only or data.draw(st.booleans()):  # by hand, in shards of any form
            self.values = example.values()
            objects = example.objects(self.values)
        objects["zarr.json"] = json.dumps(document).encode()
        # Whether all chunks are there, and shards have all inner chunks in order, and only those
        # within the array: what is assumed of a shard that is not looked at.
        has_edge = any(n % c for n, c in zip(example.shape, example.chunk_shape, strict=True))
        self.is_dense = len(objects) == 1 + len(example.keys) and not (
            isinstance(example, Sharded) and (example.is_sparse or example.is_shuffled or has_edge)
        )
        self.before = np.full((LARGEST,) * len(example.shape), self.fill_value, self.dtype)
        self.store = self.made(objects)
        self.open(data)

    def made(self, objects):
        if self.kind != "obstore":
            return store_with(self.kind, objects, self.folder)
        import obstore

        store = zarr.storage.ObjectStore(obstore.store.MemoryStore())
        for key, content in objects.items():
            zarr.core.sync.sync(store.set(key, cpu.Buffer.from_bytes(content)))
        return store

    def open(self, data):
        """Under any settings; zarr's pipelines do not tell NaNs apart where chunks are empty."""
        known = list(PIPELINES)
        if self.is_sharded:  # limits of zarr's fused pipeline are in the guide
            known = [name for name in known if "Fused" not in name]
        if self.is_sharded and not HAS_FUSED_PIPELINE:
            # Up to zarr 3.2, its shards hash the fill value, which a NumPy record cannot; they have
            # no dimensionless arrays, and some orthogonal writes end in an error.
            known = [OWN]
        self.pipeline = data.draw(st.sampled_from([OWN, OWN, OWN, *known]))
        self.writes_empty = self.pipeline != OWN or data.draw(st.booleans())
        self.is_in_place = data.draw(st.booleans())
        note(f"open: {self.kind}, {self.pipeline}, in place: {self.is_in_place}")
        config = {
            "codec_pipeline.path": PIPELINES[self.pipeline],
            "zarr_bytes.partial_writes": self.is_in_place,
            "array.write_empty_chunks": self.writes_empty,
        }
        with zarr.config.set(config):
            self.array = zarr.open_array(self.store, mode="r" if self.is_read_only else "r+")
        self.view = None

    @property
    def is_read_only(self):
        """An archive, whose members cannot be replaced."""
        return self.kind == "zip"

    @property
    def is_sharded(self):
        return isinstance(self.example, Sharded)

    @property
    def shape(self):
        return self.values.shape

    @property
    def keys(self):
        """Of the chunks, or shards, that the array may have."""
        return replace(self.example, shape=self.shape).keys

    def objects(self):
        """What is stored."""

        async def got():
            found = {key: await self.store.get(key, prototype) for key in ["zarr.json", *self.keys]}
            return {key: buffer.to_bytes() for key, buffer in found.items() if buffer is not None}

        prototype = cpu.buffer_prototype
        return zarr.core.sync.sync(got())

    def fresh(self, shape):
        """Other bits of every element, which are nowhere in the array."""
        self.versions += 1
        return values_of(self.example.name, shape, self.example.seed + self.versions)


class Steps:
    """What is done to an array, with values by chance."""

    def reopen(self, member, data):
        member.open(data)

    def read(self, member, data):
        read, select = data.draw(reads(member.shape, member.example.chunk_shape))
        same(read(member.array), np.asarray(select(member.values), member.dtype))

    def write(self, member, data):
        """And a read, of which a part is often what was written."""
        write, where = data.draw(writes(member.shape, member.example.chunk_shape))
        shape = member.values[where].shape
        values = data.draw(self.values(member, shape))
        write(member.array, values)
        member.values[where] = values if shape else np.asarray(values)[()]
        member.is_dense = member.is_dense and member.writes_empty and member.pipeline == OWN
        self.read(member, data)

    @staticmethod
    @st.composite
    def values(draw, member, shape):
        """Values of every kind, for a selection of this shape."""
        kinds = ["fresh", "fresh", "Fortran", "broadcast", "fill value"]
        kind = draw(st.sampled_from([*kinds, *["one"] * (member.dtype.kind in "biufc")]))
        note(f"values: {kind}")
        fresh = member.fresh(shape)
        if kind == "Fortran":
            return np.array(fresh, order="F")
        if kind == "broadcast":
            return np.broadcast_to(member.fresh(()), shape)
        if kind == "one":
            return member.fresh(())[()]
        if kind == "fill value":
            values = np.full(shape, member.fill_value, member.dtype)
            if member.dtype.kind == "f" and values.size and draw(st.booleans()):
                values.flat[0] = -values.flat[0]  # of other bits, though equal for NumPy
            return values
        return fresh

    def resize(self, member, data):
        """What comes into sight is what was there when it went, or the fill value."""
        if not member.shape:
            return
        shape = data.draw(st.tuples(*[st.integers(0, LARGEST)] * len(member.shape)))
        note(f"resize: {shape}")
        member.before[tuple(map(slice, member.shape))] = member.values
        member.array.resize(shape)
        found = np.asarray(member.array[...], member.dtype)
        kept = tuple(map(slice, np.minimum(shape, member.shape)))
        same(found[kept], member.values[kept])
        possible = np.full(shape, member.fill_value), member.before[tuple(map(slice, shape))]
        raw = [
            np.ascontiguousarray(a, member.dtype).reshape(-1).view(f"V{member.dtype.itemsize}")
            for a in (found, *possible)
        ]
        for element, *others in zip(*(a.tolist() for a in raw), strict=True):
            assert element in others
        member.values = found.copy()
        member.is_dense, member.view = False, None

    def explained_read(self, member, data):
        selection = data.draw(basic(member.shape))
        note(f"explain: {selection}")
        explained = explain(member.array, selection)
        selected = member.values[selection]
        assert explained.bytes_selected == np.size(selected) * member.dtype.itemsize
        with counting() as counted:
            same(member.array[selection], np.asarray(selected, member.dtype))
        if explained.acts.startswith("zarr.") or (explained.chunks_assumed and not member.is_dense):
            event("zarr reads it, or chunks are missing")
            return
        exact = ["ranges", "bytes_fetched"] * member.is_dense  # of indexes read twice, it has one
        for name in ("chunks", "opens", "requests", *exact):
            assert (name, getattr(explained, name)) == (name, getattr(counted, name))

    def explained_write(self, member, data):
        """As many files are replaced as it says, the bytes are as many, and so are the chunks."""
        selection = data.draw(basic(member.shape))
        note(f"explain: {selection}")
        shape = member.values[selection].shape
        explained = explain(member.array, selection, write=True)
        before = self.inodes(member)
        values = member.fresh(shape)
        with counting() as counted:
            member.array[selection] = values
        member.values[selection] = values if shape else values[()]
        is_known = member.is_dense or not explained.chunks_assumed
        member.is_dense = member.is_dense and member.writes_empty and member.pipeline == OWN
        if not is_known or member.pipeline != OWN or not counted.chunks:
            event("zarr writes it, or chunks are missing")
            return
        if member.writes_empty:
            assert explained.bytes_written == counted.bytes_written
            assert explained.chunks == counted.chunks
        if member.kind == "local":
            after = self.inodes(member)
            replaced = [key for key in before if before[key] != after.get(key)]
            kept = explained.chunks - explained.chunks_in_place
            assert len(replaced) == kept or len(before) < len(member.keys)

    def inodes(self, member):
        if member.kind != "local":
            return {}
        paths = [member.folder / key for key in member.keys]
        return {path: path.stat().st_ino for path in paths if path.exists()}

    def viewed(self, member, data):
        try:
            if member.view is None:
                member.view = zarr_bytes.view(member.array)
        except StoreError:
            event("no view")
            return
        member.view.refresh()
        selection = data.draw(basic(member.shape))
        same(member.view[...], member.values)
        same(member.view[selection], np.asarray(member.values[selection], member.dtype))

    def written_through_a_view(self, member, data):
        """At once, where no selected chunk is missing."""
        selection = data.draw(basic(member.shape))
        note(f"view: {selection}")
        shape = member.values[selection].shape
        values = data.draw(self.values(member, shape))
        try:
            with zarr.config.set({"zarr_bytes.partial_writes": True}):
                view = zarr_bytes.view(zarr.open_array(member.store, mode="r+"), "r+")
        except StoreError:
            event("no view")
            return
        try:
            view[selection] = values
        except ValueError as error:
            assert "is missing, or shares" in str(error)  # noqa: PT017 -- in some states
            assert not member.is_dense
            member.values = np.array(view[...], member.dtype)
        else:
            member.values[selection] = values if shape else np.asarray(values)[()]

    def preallocated(self, member, data):
        if member.kind != "local" or member.pipeline != OWN:
            return
        assert preallocate(member.array).chunks == len(member.keys)
        assert len(member.objects()) == 1 + len(member.keys)
        assert preallocate(member.array).made == 0


STEPS = Steps()
READING = ["read", "explained_read", "viewed", "reopen"]
WRITING = ["write", "explained_write", "written_through_a_view", "resize", "preallocated"]


def as_plain_zarr_says(values):
    """As `plain_zarr.outcome` has them."""
    if values.dtype.kind in "fc":
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return values.tobytes().hex()


@fuzz(examples=25)
@given(data=st.data())
def test_arrays_hold_what_numpy_arrays_hold(tmp_path_factory, plain, data):
    """Each example has some of the steps, and so more often one after the same one."""
    folder, members = tmp_path_factory.mktemp("a"), []
    some = data.draw(st.lists(st.sampled_from(WRITING), min_size=1, max_size=3))
    some += data.draw(st.lists(st.sampled_from(READING), min_size=1, max_size=2))
    some += ["write", "write", "reopen"]
    for step in range(data.draw(st.integers(4, 16))):
        if not members or (len(members) < 3 and data.draw(st.integers(0, 3)) == 0):
            (folder / str(step)).mkdir()
            members.append(Member(data, folder / str(step)))
        member = data.draw(st.sampled_from(members))
        name = data.draw(st.sampled_from(some))
        if member.is_read_only and name in WRITING:
            name = "read"
        note(f"{name} of array {members.index(member)}")
        with conditions(data.draw, member.pipeline):
            getattr(STEPS, name)(member, data)
            same(member.array[...], member.values)
    for member in members:
        same(member.array[...], member.values)
        if member.example.name in OF_PLAIN_ZARR:
            found = plain(member.objects())
            assert found.get("values") == as_plain_zarr_says(member.values), found
        if member.is_read_only:
            member.store.close()
