"""Arrays beside NumPy arrays: whatever is done to them in any order, they hold the same bits.

Several arrays live in one process, so that what is kept of one is there when another is read. They
are of both Zarr formats, and of every layout, data type, byte order, fill value and kind of store.
Each is created, opened again under other settings, read, written, resized, explained, viewed and
preallocated; in the end plain zarr, in a process of its own, reads what is stored. `tests/fuzz.py`
says how long it runs.
"""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE, PIPELINES
from fuzz import (
    ALL_TYPES,
    IS_NEWER_ZARR,
    KINDS,
    RECORDS_OF_FORMAT_2,
    TYPES,
    conditions,
    fuzz,
    pipeline_with_any_thresholds,
    same,
    store_with,
    values_of,
)
from fuzz_arrays import (
    LARGEST,
    Format2,
    Selection,
    Sharded,
    arrays,
    basic,
    converted,
    of_format_2,
    selections,
    sharded,
)
from hypothesis import event, given, note
from hypothesis import strategies as st
from stored_arrays import CAN_WRITE_IN_PLACE, IN_PLACE, contents_of, keys_of, pipeline_of
from zarr.buffer import cpu

import zarr_bytes
from zarr_bytes import BatchedBytesPipeline, StoreError, counting, explain, preallocate

# zarr warns that some of its types have no specification, and of shards behind a transpose.
pytestmark = [
    pytest.mark.zarr,
    pytest.mark.filterwarnings(
        "ignore:The data type",
        "ignore:.*answer byte ranges",
        "ignore:Combining a",
        "ignore:Numcodecs codecs are not in the Zarr version 3",
    ),
]

OWN = "BatchedBytesPipeline"
RECORDS = ["struct", "nested", *RECORDS_OF_FORMAT_2]
STORES = [*KINDS, *["local"] * len(KINDS)]  # what is written in place, often

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
FILL_VALUES_OF_FORMAT_2 = {
    "bool": [(True, "01")],
    "int16": [(-2, "fffe")],
    "float32": [("NaN", "7fc00000"), (-0.0, "80000000")],
    "complex64": [([1.5, "NaN"], "3fc000007fc00000")],
    "r24": [("AQID", "010203")],
    "datetime": [(7, 7 * "00" + "07")],
    "text": [("a", "0000006100000000")],
    "ascii": [("YWI=", "616200")],
    "bfloat16": [(-0.0, "8000")],
    "mixed": [("//4DAAAAAAAA8D8=", "fffe03000000000000f03f")],
}
OF_PLAIN_ZARR = {
    *("bool", "datetime", "text", "ascii", "complex64", "complex128"),
    *(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)),
    *(["struct", "nested"] if IS_NEWER_ZARR else []),
}

# Of int2 and int4, bits that do not count are written.
EXAMPLES = arrays(can_be_missing=True, names=[n for n in TYPES if n not in ("int2", "int4")])


def element_of(name, bits):
    """An element of a data type in NumPy memory, from its bits in hexadecimal digits."""
    dtype, units, _ = ALL_TYPES[name]
    content, ends = bytes.fromhex(bits), np.cumsum(units)
    if sys.byteorder == "little":
        parts = zip(ends, units, strict=True)
        content = b"".join(content[end - n : end][::-1] for end, n in parts)
    return np.frombuffer(content, dtype)[0]


class Member:
    """An array, what it must hold, and what is done to it with values by chance."""

    def __init__(self, data, folder):
        example = data.draw(EXAMPLES)
        layout = data.draw(st.sampled_from([None, sharded, of_format_2]))
        if layout is not None:
            example = data.draw(layout(example))
        # zarr's own codecs cannot convert dimensionless arrays.
        can_be_converted = HAS_FUSED_PIPELINE and example.shape
        if can_be_converted and data.draw(st.sampled_from([True, False, False])):
            example = data.draw(converted(example))
        self.example, self.is_sharded = example, isinstance(example, Sharded)
        is_format_2 = isinstance(example, Format2)
        self.is_of_plain_zarr = example.name in OF_PLAIN_ZARR or (
            is_format_2 and example.name != "bfloat16"
        )
        self.folder, self.kind = folder, data.draw(st.sampled_from(STORES))
        self.is_read_only = self.kind == "zip"  # whose members cannot be replaced
        self.dtype = example.dtype
        self.has_byte_order = self.dtype.kind in "iufcMU" or example.name in RECORDS
        self.fill_value, self.versions = example.fill_value[()], 0
        self.values = np.full(example.shape, self.fill_value, self.dtype)
        document, objects = example.document(), example.objects()
        fill_values = FILL_VALUES_OF_FORMAT_2 if is_format_2 else FILL_VALUES
        if example.name in fill_values and data.draw(st.booleans()):
            document["fill_value"], bits = data.draw(st.sampled_from(fill_values[example.name]))
            self.fill_value = element_of(example.name, bits)
            self.values[...] = self.fill_value
        elif self.is_read_only or data.draw(st.booleans()):  # by hand, in shards of any form
            self.values = example.values()
            objects = example.objects(self.values)
        objects[example.document_key] = json.dumps(document).encode()
        # Whether all chunks are there, and shards have all inner chunks in order, and only those
        # within the array: what is assumed of a shard that is not looked at.
        has_edge = any(n % c for n, c in zip(example.shape, example.chunk_shape, strict=True))
        self.is_dense = len(objects) == 1 + len(example.keys) and not (
            self.is_sharded and (example.is_sparse or example.is_shuffled or has_edge)
        )
        self.store = store_with(self.kind, objects, folder)
        self.reopen(data)
        # The same array as zarr's pipeline keeps it, with what is behind its edges. Up to zarr 3.2,
        # its shards hash the fill value, which a NumPy record cannot; they have no dimensionless
        # arrays, and some orthogonal writes end in an error.
        self.twin = None
        if HAS_FUSED_PIPELINE or not self.is_sharded:
            of_zarr = {"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}
            with zarr.config.set(of_zarr | {"array.write_empty_chunks": True}):
                self.twin = zarr.open_array(store_with("memory", objects, None), mode="r+")

    @property
    def shape(self):
        return self.values.shape

    @property
    def keys(self):
        """Of the chunks, or shards, that the array may have."""
        return replace(self.example, shape=self.shape).keys

    def fresh(self, shape):
        """Other bits of every element, which are nowhere in the array."""
        self.versions += 1
        return values_of(self.example.name, shape, self.example.seed + self.versions)

    def is_written(self, selection, values):
        """To be the same as NumPy and zarr write it."""
        selection.assign(self.values, values if np.shape(values) else np.asarray(values)[()])
        if self.twin is not None:
            selection.write(self.twin, values)
        self.is_dense = self.is_dense and self.writes_empty and self.pipeline == OWN

    def reopen(self, data):
        """Under any settings; zarr's pipelines do not tell NaNs apart where chunks are empty."""
        # Limits of zarr's fused pipeline are in the guide.
        known = [name for name in PIPELINES if not (self.is_sharded and "Fused" in name)]
        if self.is_sharded and not HAS_FUSED_PIPELINE:
            known = [OWN]
        self.pipeline = data.draw(st.sampled_from([OWN, OWN, OWN, *known]))
        self.writes_empty = self.pipeline != OWN or data.draw(st.booleans())
        config = {
            "codec_pipeline.path": pipeline_with_any_thresholds(data.draw, self.pipeline),
            "zarr_bytes.partial_writes": data.draw(st.sampled_from([True, True, False])),
            "array.write_empty_chunks": self.writes_empty,
            "array.order": data.draw(st.sampled_from("CF")),
        }
        note(f"open: {self.kind}, {config}")
        with zarr.config.set(config):
            self.array = zarr.open_array(self.store, mode="r" if self.is_read_only else "r+")
        is_own = isinstance(pipeline_of(self.array), BatchedBytesPipeline)
        assert is_own == (self.pipeline == OWN)
        self.view = None

    def read(self, data):
        for _ in range(2):
            selection = data.draw(selections(self.shape, self.example.chunk_shape))
            expected = np.asarray(selection.take(self.values), self.dtype)
            found = selection.read(self.array)
            assert found.dtype == self.array.dtype or not isinstance(found, np.ndarray)
            same(found, expected)
        if not selection.how and self.has_byte_order:
            out = np.empty(expected.shape, self.array.dtype.newbyteorder())
            into = cpu.NDBuffer.from_numpy_array(out)
            self.array.get_basic_selection(selection.entries, out=into)
            same(out, expected)

    def write(self, data):
        """And a read, of which a part is often what was written."""
        selection = data.draw(selections(self.shape, self.example.chunk_shape, to_write=True))
        values = data.draw(values_for(self, selection.take(self.values).shape))
        selection.write(self.array, values)
        self.is_written(selection, values)
        self.read(data)

    def resize(self, data):
        largest = LARGEST[len(self.shape)] + 3
        self.resized(data.draw(st.tuples(*[st.integers(0, largest)] * len(self.shape))))

    def resized(self, shape):
        """What comes into sight is what zarr kept when it went, or the fill value."""
        if not self.shape or self.twin is None:
            return
        note(f"resize: {shape}")
        self.array.resize(shape)
        self.twin.resize(shape)
        found = np.array(self.twin[...], self.dtype)
        kept = tuple(map(slice, np.minimum(shape, self.shape)))
        same(found[kept], self.values[kept])
        self.values, self.is_dense, self.view = found, False, None

    def explained_read(self, data):
        selection = data.draw(basic(self.shape))
        note(f"explain: {selection}")
        explained = explain(self.array, selection)
        selected = np.asarray(self.values[selection], self.dtype)
        assert explained.bytes_selected == selected.size * self.example.stored_dtype.itemsize
        same(self.array[selection], selected)  # an index that is read in vain is read again, once
        with counting() as counted:
            same(self.array[selection], selected)
        if explained.acts.startswith("zarr.") or (explained.chunks_assumed and not self.is_dense):
            event("zarr reads it, or chunks are missing")
            return
        for name in ("chunks", "opens", "requests", "ranges", "bytes_fetched"):
            assert (name, getattr(explained, name)) == (name, getattr(counted, name))

    def explained_write(self, data):
        """As many files are replaced as it says, the bytes are as many, and so are the chunks."""
        selection = data.draw(basic(self.shape))
        note(f"explain: {selection}")
        explained = explain(self.array, selection, write=True)
        is_known = self.is_dense or not explained.chunks_assumed
        before, values = self.inodes(), self.fresh(self.values[selection].shape)
        with counting() as counted:
            self.array[selection] = values
        self.is_written(Selection(selection), values)
        if not is_known or self.pipeline != OWN or not counted.chunks:
            event("zarr writes it, or chunks are missing")
            return
        if self.writes_empty:
            assert explained.bytes_written == counted.bytes_written
            assert explained.chunks == counted.chunks
        if self.kind == "local":
            after = self.inodes()
            replaced = [key for key in before if before[key] != after.get(key)]
            kept = explained.chunks - explained.chunks_in_place
            assert len(replaced) == kept or len(before) < len(self.keys)

    def inodes(self):
        if self.kind != "local":
            return {}
        paths = [self.folder / key for key in self.keys]
        return {path: path.stat().st_ino for path in paths if path.exists()}

    def viewed(self, data):
        try:
            if self.view is None:
                self.view = zarr_bytes.view(self.array)
        except StoreError:
            event("no view")
            return
        self.view.refresh()
        selection = data.draw(basic(self.shape))
        same(self.view[...], self.values)
        same(self.view[selection], np.asarray(self.values[selection], self.dtype))

    def written_through_a_view(self, data):
        """At once, where no selected chunk is missing."""
        selection = data.draw(basic(self.shape))
        note(f"view: {selection}")
        values = data.draw(values_for(self, self.values[selection].shape))
        try:
            with zarr.config.set(IN_PLACE):
                view = zarr_bytes.view(zarr.open_array(self.store, mode="r+"), "r+")
        except StoreError:
            event("no view")
            return
        try:
            view[selection] = values
        except ValueError as error:
            assert "is missing, or shares" in str(error)  # noqa: PT017 -- in some states
            assert not self.is_dense
            self.values, self.twin = np.array(view[...], self.dtype), None
        else:
            self.is_written(Selection(selection), values)

    def preallocated(self, data):
        if self.kind != "local" or self.pipeline != OWN or not CAN_WRITE_IN_PLACE:
            return
        assert preallocate(self.array).chunks == len(self.keys)
        assert len(keys_of(self.store)) == len(self.keys)
        assert preallocate(self.array).made == 0


@st.composite
def values_for(draw, member, shape):
    """Values of every kind, for a selection of this shape."""
    kinds = ["fresh", "Fortran", "broadcast", "fill value", "fill value"]
    kinds += ["one"] * (member.dtype.kind in "biufc")
    # zarr's own pipelines hand such values to `numcodecs.astype`, which takes them for others.
    kinds += ["other byte order"] * (member.has_byte_order and not member.example.is_converted)
    kind = draw(st.sampled_from(kinds))
    note(f"values: {kind}")
    if kind == "Fortran":
        return np.array(member.fresh(shape), order="F")
    if kind == "other byte order":
        return member.fresh(shape).astype(member.array.dtype.newbyteorder())
    if kind == "broadcast":
        return np.broadcast_to(member.fresh(()), shape)
    if kind == "one":
        return member.fresh(())[()]
    if kind == "fill value":
        values = np.full(shape, member.fill_value, member.dtype)
        if member.dtype.kind == "f" and values.size and draw(st.booleans()):
            values.flat[0] = -values.flat[0]  # of other bits, though equal for NumPy
        return values
    return member.fresh(shape)


READING = ["read", "explained_read", "viewed", "reopen"]
WRITING = ["write", "explained_write", "written_through_a_view", "resize", "preallocated"]


def as_plain_zarr_says(values, dtype):
    """As `plain_zarr.outcome` has them."""
    values = np.asarray(values, dtype)
    if values.dtype.kind in "fc":
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return values.tobytes().hex()


def test_an_array_holds_what_a_numpy_array_holds(tmp_path):
    values = np.arange(12.0).reshape(3, 4)
    array = zarr.create_array(tmp_path, data=values, chunks=(2, 2), compressors=None)
    array[1:, 2] = values[1:, 2] = -1
    same(array[...], values)


@fuzz(examples=20)
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
            getattr(member, name)(data)
            same(member.array[...], member.values)
    for member in members:
        if member.is_of_plain_zarr:
            found = plain(contents_of(member.store))
            expected = as_plain_zarr_says(member.values, member.array.dtype)
            assert found.get("values") == expected, found
        if not member.is_read_only:
            chunks = zip(member.shape, member.example.chunk_shape, strict=True)
            member.resized(tuple(-(-n // c) * c for n, c in chunks))  # to see behind the edges
        same(member.array[...], member.values)
        member.store.close()
