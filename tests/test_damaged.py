"""Chunks of a wrong size, bytes that are no bools, and indexes of shards that lie.

An error names the chunk, what was found and what must be there; nothing else is affected by it.
`test_fuzz.py` has chunks of a wrong size in any read, and `test_meanwhile.py` those that become so.
"""

import os
import re
import struct
from functools import partial
from operator import setitem

import google_crc32c
import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from documents import BIG, HAS_STRUCT, document_of, text_of, transposes
from fuzz import encoded, store_with, transposed
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from shards import ABSENT, divided, index_of, shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    contents_of,
    keys_of,
    most_memory,
    numbers,
    pipeline_of,
    stored,
)
from system_calls import READING, before_each, watched
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.codecs import GzipCodec, ShardingCodec, TransposeCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import LocalStore, MemoryStore, ObjectStore, WrapperStore

import zarr_bytes
from zarr_bytes import BoolValueError, ChunkSizeError, ShardIndexError, explain

OWN = "BatchedBytesPipeline"
KEY = "c/0/0"
KINDS = ["local", "memory", "requests"]
TRANSPOSE = TransposeCodec(order=(1, 0))
NO_GAP = {"zarr_bytes.gap": {"local": 0, "remote": 0}}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("way", [{}, IN_PLACE], ids=["replaced", "in place"])

pytestmark = pytest.mark.zarr


def opened(kind, folder, objects, config=()):
    """An array with these objects in a store of a kind, opened with these settings."""
    folder.mkdir(exist_ok=True)
    with zarr.config.set(dict(config)):
        return zarr.open_array(store_with(kind, objects, folder), mode="r+")


def refused(error, match, *acts):
    for act in acts:
        with pytest.raises(error, match=match):
            act()


def reads(array, *selections):
    return [partial(array.__getitem__, selection) for selection in selections]


def write(array, selection):
    return partial(setitem, array, selection, 5)


FORMAT_2 = {"serializer": "auto", "zarr_format": 2}
FORMS = {  # pipelines and options of an array
    **{name: (name, {}) for name in PIPELINES},
    "little-endian of format 2": (OWN, FORMAT_2),
    "transposed": (OWN, {"filters": [TRANSPOSE]}),
}


def test_a_truncated_chunk_is_an_error_with_both_sizes(tmp_path):
    array = stored(LocalStore(tmp_path), numbers((4, 8)))
    os.truncate(tmp_path / "c/0/0", 100)
    with pytest.raises(ChunkSizeError, match="256 bytes, found 100"):
        array[...]


class TestSizes:
    @every_kind
    @both_ways
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("nbytes", [2**16, 2**17])
    def test_a_chunk_of_a_wrong_size_is_an_error_that_changes_nothing(
        self, tmp_path, kind, form, way, nbytes
    ):
        """Of a few pages, so that a file may be read straight into the result."""
        pipeline, options = FORMS[form]
        with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline], **NO_GAP}):
            values = numbers((nbytes // 512, 64))
            store = stored(MemoryStore(), values, **options).store
            (key,), objects = keys_of(store), contents_of(store)
            content = objects[key]
            for found in 0, 1, nbytes - 1, nbytes + 1, 2 * nbytes:
                objects[key] = (content * 2)[:found]
                array = opened(kind, tmp_path / str(found), objects, way)
                if found > 1 and kind != "memory":
                    assert array[0, 1] == 1  # these bytes are there
                message = f"{nbytes} bytes, found {found}"
                refused(ChunkSizeError, message, write(array, np.s_[3, 7:9]))
                if kind != "memory" or pipeline == OWN:  # zarr's do not tell the codec a key
                    where = tmp_path / str(found) if kind == "local" else array.store
                    if kind == "requests":
                        where = f"CountingStore({array.store._store})"
                    message = f"^bytes 0 to {nbytes} of {re.escape(f'{where}/{key}')} are {message}"
                why = "truncated" if found < nbytes else "too long"
                refused(ChunkSizeError, f"{message}: .*{why}", *reads(array, ...))
                assert contents_of(array.store)[key] == objects[key]

    @pytest.mark.parametrize("kind", ["local", "requests"])
    @pytest.mark.parametrize("rows", [10, 5000])
    def test_the_first_byte_range_behind_a_truncated_chunk_is_named(self, tmp_path, kind, rows):
        """Of so many that they are fetched together, too."""
        values = numbers((rows, 100), "u4")
        objects = contents_of(stored(MemoryStore(), values).store)
        content = objects[KEY]
        cuts = [0, 1, 201, 204, 600, 602, 1399, 1400, 1403, 2999]
        cuts += [400_000, 1_999_802] * (rows > 10)
        with zarr.config.set(NO_GAP | {"async.concurrency": 1}):
            array = opened(kind, tmp_path / "all", objects)
            assert np.array_equal(array[:, 50], values[:, 50])
            for cut in cuts:
                objects[KEY] = content[:cut]
                array = opened(kind, tmp_path / str(cut), objects)
                start = next(at for at in range(200, 400 * rows, 400) if at + 4 > cut)
                found = max(cut - start, 0)
                ranges = rf"bytes {start} to {start + 4} of .*{KEY} are 4 bytes, found {found}: "
                refused(ChunkSizeError, ranges, *reads(array, np.s_[:, 50]))
                if cut < 3200:  # within or before the row that is one range
                    row = (
                        f"bytes 2800 to 3200 of .*{KEY} are 400 bytes, found {max(cut - 2800, 0)}: "
                    )
                    refused(ChunkSizeError, row, *reads(array, 7))

    def test_chunks_that_no_store_holds_read_as_their_fill_value(self, tmp_path, pipeline):
        for shape in [(2**60,), (2**63,), (2**40, 2**40), (2**70, 3)]:
            key, rest = "/".join(["c", *("0" for _ in shape)]), (slice(2),) * (len(shape) - 1)
            objects = {"zarr.json": text_of(document_of("float64", shape, fill_value=7))}
            for kind in KINDS:
                array = opened(kind, tmp_path / f"{kind} {shape}", objects)
                for entry in (3, slice(5), slice(None, None, 2**58)):
                    assert (array[(entry, *rest)] == 7).all()
                array = opened(kind, tmp_path / f"{kind} {shape}", objects | {key: bytes(16)})
                refused(ChunkSizeError, "bytes.* found", *reads(array, (slice(9), *rest)))


class TestBools:
    @every_kind
    @pytest.mark.parametrize("form", [*PIPELINES, "transposed", "shard"])
    def test_a_bool_that_is_neither_0_nor_1_is_named_by_its_index(self, tmp_path, kind, form):
        """In the chunk as the array has it, or in the selection; the byte is that of the file."""
        values, orders = np.ones((4, 5, 6), "u1"), [(2, 0, 1)] * (form == "transposed")
        values[1, 2, 4] = 7
        codecs, content = [*transposes(orders), *BIG], transposed(values, orders).tobytes()
        if form == "shard":
            codecs = [sharding((2, 5, 3), BIG)]
            content = shard_of([part.tobytes() for part in divided(values, (2, 5, 3))])
        document = text_of(document_of("bool", values.shape, codecs=codecs))
        objects = {"zarr.json": document, "c/0/0/0": content}
        with zarr.config.set(NO_GAP | {"codec_pipeline.path": PIPELINES.get(form, PIPELINES[OWN])}):
            array = opened(kind, tmp_path, objects)
            assert array[2:].all()
            of_all = f"chunk (byte {content.index(7)})" if form != "shard" else "selection"
            for of, selection, index in [
                (array, ..., f"(1, 2, 4) of the {of_all}"),
                (array, np.s_[1:, 2, ::2], "(0, 2) of the selection"),
                (array.oindex, ([1, 3], slice(5), [0, 4, 5]), "(0, 2, 1) of the selection"),
                (array.vindex, ([1, 0], [2, 0], [4, 0]), "(0,) of the selection"),
            ]:
                message = re.escape(f"found 7 at index {index}")
                refused(BoolValueError, message, *reads(of, selection))

    @every_kind
    def test_a_bool_of_format_2_is_any_byte_as_for_plain_zarr(self, tmp_path, kind):
        for name, dtype in ("bools", "?"), ("records", "u1,?"):
            values = np.arange(24 * np.dtype(dtype).itemsize, dtype="u1").view(dtype).reshape(4, 6)
            objects = contents_of(stored(MemoryStore(), values, **FORMAT_2).store)
            objects["0.0"] = values.tobytes()
            array = opened(kind, tmp_path / name, objects)
            plain = opened("memory", tmp_path, objects, PLAIN_ZARR)
            assert array[...].tobytes() == plain[...].tobytes() == values.tobytes()
            assert array[1:3, ::2].tobytes() == values[1:3, ::2].tobytes()
            assert array.vindex[[3, 0], [1, 5]].tobytes() == values[[3, 0], [1, 5]].tobytes()

    @both_ways
    def test_a_bool_of_format_2_keeps_its_byte_when_its_neighbour_is_written(self, tmp_path, way):
        content = bytearray(range(24))
        objects = contents_of(stored(MemoryStore(), np.ones((4, 6), "?"), **FORMAT_2).store)
        for kind in KINDS:
            array = opened(kind, tmp_path / kind, objects | {"0.0": bytes(content)}, way)
            array[2, 3:5] = True
            expected = content[:15] + b"\1\1" + content[17:]
            assert contents_of(array.store)["0.0"] == expected

    @pytest.mark.filterwarnings("ignore:The data type")  # zarr: not yet specified
    @pytest.mark.parametrize("dtype", ["?", *[[("a", "i2"), ("b", "?")]] * HAS_STRUCT])
    def test_a_wrong_bool_in_a_later_block_is_named_by_its_index(self, tmp_path, dtype):
        values = np.ones((3000, 1000), dtype)
        array = stored(LocalStore(tmp_path), values)
        content = bytearray((tmp_path / KEY).read_bytes())
        content[2_800_008 * values.itemsize - 1] = 2
        (tmp_path / KEY).write_bytes(content)
        assert np.array_equal(array[:2800], values[:2800])
        for selection, row, of in (..., 2800, "chunk"), (np.s_[500:], 2300, "selection"):
            byte = (1000 * row + 8) * values.itemsize - 1
            message = re.escape(f"found 2 at index ({row}, 7) of the {of} (byte {byte})")
            refused(BoolValueError, message, *reads(array, selection))


SHAPE, INNER = (4, 6), (2, 3)  # of 4 bytes: four inner chunks of 24, and an index of 68
VALUES = numbers(SHAPE, "i4") + 1
BOXES = [(slice(i, i + 2), slice(j, j + 3)) for i in (0, 2) for j in (0, 3)]
PARTS = [encoded(part, "int32", "big") for part in divided(VALUES, INNER)]
every_location = pytest.mark.parametrize("location", ["end", "start"])


def shard_with(
    kind, folder, content, location="end", config=(), shape=SHAPE, inner=INNER, data_type="int32"
):
    """An array of one shard with this content."""
    codecs = [sharding(inner, BIG, location=location)]
    key = "/".join(["c", *("0" for _ in shape)])
    document = document_of(data_type, shape, codecs=codecs)
    return opened(kind, folder, {"zarr.json": text_of(document), key: content}, config)


ANY_PLACE = st.integers(0, 200) | st.sampled_from(
    [1000, 2**62, 2**63 - 24, 2**63, 2**64 - 24, 2**64 - 2, ABSENT[0]]
)
ANY_SIZE = st.sampled_from([24] * 8 + [23, 25, 0, 2**63, ABSENT[1]])
ENTRIES = st.dictionaries(
    st.integers(0, 3), st.tuples(ANY_PLACE, ANY_SIZE) | st.sampled_from([ABSENT, (0, 0)])
)


def inner_chunk_at(entry, content, location, kind):
    """Its bytes, which are zeros for an absent one; otherwise the errors that it may be."""
    start, nbytes = entry
    if entry == ABSENT:
        return bytes(24)
    if nbytes != 24 or (location == "start" and start < 68) or start + 24 > 2**63 - 1:
        return ShardIndexError
    if kind == "requests":  # the end of the shard is not known
        is_there = start + 24 <= len(content)
        return content[start : start + 24] if is_there else (ShardIndexError, ChunkSizeError)
    end = len(content) - 68 * (location == "end")
    return content[start : start + 24] if start + 24 <= end else ShardIndexError


class TestIndexes:
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @example(entries={0: (70, 24), 2: (71, 24)}, way={})  # which share bytes
    @given(entries=ENTRIES, way=st.sampled_from([{}, IN_PLACE]))
    @every_kind
    @every_location
    def test_an_index_entry_gives_its_inner_chunk_or_an_error_that_names_it(
        self, tmp_path_factory, kind, location, entries, way
    ):
        """Whatever is said of the others; and a write that needs it changes nothing then."""
        content = shard_of(PARTS, location, entries=entries)
        given = {i: (24 * i + 68 * (location == "start"), 24) for i in range(4)} | entries
        # A write to an object reads the whole of it, and knows its end.
        parts, known = (
            [inner_chunk_at(given[i], content, location, form) for i in range(4)]
            for form in (kind, "local")
        )
        folder = tmp_path_factory.mktemp("a")
        array = shard_with(kind, folder, content, location, way)
        is_alone = sum(isinstance(part, bytes) for part in known) == 3
        with zarr.config.set(NO_GAP):  # or a store is asked for the whole shard
            for number, (part, box) in enumerate(zip(parts, BOXES, strict=True)):
                if isinstance(part, bytes):
                    assert np.array_equal(array[box], np.frombuffer(part, ">i4").reshape(INNER))
                    continue
                element = box[0].start + 1, box[1].start
                acts = reads(array, box, *[...] * is_alone)
                if part is ShardIndexError:  # and not of a range, which may be there in part
                    acts += [*reads(array, element), write(array, element)]
                named = re.escape(f"inner chunk ({number // 2}, {number % 2}) of the shard")
                refused(part, f"({named} |^bytes ).*{KEY}" if is_alone else KEY, *acts)
                assert contents_of(array.store)[KEY] == content
            if all(isinstance(part, bytes) for part in parts):
                values = [np.frombuffer(part, ">i4").reshape(INNER) for part in parts]
                values = np.block([values[:2], values[2:]])
                for selection in np.s_[1:], np.s_[:, 2:]:
                    assert np.array_equal(array[selection], values[selection])
                if all(isinstance(part, bytes) for part in known):
                    assert np.array_equal(array[...], values)
                else:  # the end of a shard that is read whole is known
                    refused(ShardIndexError, KEY, *reads(array, ...))

    @pytest.mark.parametrize(
        ("location", "entry", "says"),
        [
            ("end", (48, 23), "has 23 bytes, and must have 24"),
            ("end", (48, 2**63), f"has {2**63} bytes, and must have 24"),
            ("end", (73, 24), "ends at byte 97, and the inner chunks end at 96"),
            ("start", (141, 24), "ends at byte 165, and the inner chunks end at 164"),
            ("end", (2**64 - 1, 24), f"ends at byte {2**64 + 23}, and the inner chunks end at 96"),
            ("start", (67, 24), "begins at byte 67, within the index, which ends at 68"),
        ],
    )
    def test_messages_say_what_is_wrong_with_a_shard_index(self, tmp_path, location, entry, says):
        array = shard_with(
            "local", tmp_path, shard_of(PARTS, location, entries={2: entry}), location
        )
        why = "says its index: the shard is damaged, or it was written with other shapes or codecs"
        message = rf"^inner chunk \(1, 0\) of the shard .*{KEY} {says}, {why}"
        refused(ShardIndexError, message, *reads(array, (3, 1)), write(array, (3, 1)))

    @every_kind
    @every_location
    @both_ways
    def test_a_changed_or_truncated_shard_index_is_an_error(self, tmp_path, kind, location, way):
        content = shard_of(PARTS, location)
        wrong, start = {}, 96 if location == "end" else 0
        for byte in 0, 63, 64, 67:
            changed = bytearray(content)
            changed[start + byte] ^= 1
            found = struct.unpack_from("<I", changed, start + 64)[0]
            computed = google_crc32c.value(bytes(changed[start : start + 64]))
            says = f"has the checksum {found:#010x}, but its bytes have {computed:#010x}"
            wrong[bytes(changed)] = says
        for size in 0, 1, 67:
            wrong[content[:size]] = "takes 68 bytes for 4 inner chunks, found .* is truncated"
        if location == "end":
            wrong |= {content[:size]: "has the checksum 0x" for size in (68, 163)}
        for number, (content, says) in enumerate(wrong.items()):
            array = shard_with(kind, tmp_path / str(number), content, location, way)
            acts = *reads(array, ..., np.s_[:2], (3, 3)), write(array, np.s_[:, 1])
            refused(ShardIndexError, f"^the index of the .*{KEY} {says}", *acts)
            assert contents_of(array.store)[KEY] == content

    def test_a_shard_index_that_is_truncated_while_it_is_read_is_an_error(self, tmp_path):
        for size, found in (130, 34), (50, 0):
            array = shard_with("local", tmp_path, shard_of(PARTS))
            with before_each(lambda *_: os.truncate(tmp_path / KEY, size), READING):  # noqa: B023
                refused(ShardIndexError, f"inner chunks, found {found}:", *reads(array, (0, 0)))

    def test_an_inner_chunk_of_a_transposed_shard_is_named_by_its_place_in_the_array(
        self, tmp_path
    ):
        codecs = [*transposes([(2, 0, 1)]), sharding((1, 1, 1), BIG)]
        document = text_of(document_of("uint8", (2, 3, 4), codecs=codecs))
        for number, (k, i, j) in enumerate(np.ndindex(4, 2, 3)):
            content = shard_of([b"\1"] * 24, entries={number: (1000, 1)})
            array = opened("memory", tmp_path, {"zarr.json": document, "c/0/0/0": content})
            assert array[1 - i, j, k] == 1
            named = rf"inner chunk \({i}, {j}, {k}\) of the shard"
            refused(ShardIndexError, named, *reads(array, (i, j, k)))

    @every_kind
    def test_a_damaged_inner_chunk_is_replaced_where_it_is_written_whole(self, tmp_path, kind):
        array = shard_with(kind, tmp_path, shard_of(PARTS, entries={2: (1000, 24)}))
        array[2:, :3] = 5
        expected = VALUES.copy()
        expected[2:, :3] = 5
        assert np.array_equal(array[...], expected)


class TestMemory:
    """An index or a place that is made large takes none."""

    @pytest.mark.parametrize("is_partial", [True, False])
    def test_inner_chunks_at_far_offsets_are_not_fetched_together(self, tmp_path, is_partial):
        array = shard_with("local", tmp_path / "a", b"")
        with (tmp_path / "a" / KEY).open("r+b") as file:
            file.write(PARTS[0])
            file.seek(2**40 + 24)
            file.write(index_of([(0, 24), (2**40, 24), (2**39, 24), ABSENT]))
        expected = np.zeros(SHAPE, "i4")
        expected[:2, :3] = VALUES[:2, :3]
        other = shard_with("requests", tmp_path / "b", shard_of(PARTS, entries={1: (2**61, 24)}))
        with zarr.config.set({"zarr_bytes.partial_reads": is_partial} | NO_GAP):
            with watched(tmp_path / "a") as files:
                found, memory = most_memory(lambda: array[...])
            error = ChunkSizeError if is_partial else ShardIndexError  # its size is known
            some = np.s_[:2]
            assert most_memory(lambda: refused(error, KEY, *reads(other, some)))[1] < 2**20
            # All is read whole.
            acts = reads(other, ...)
            assert most_memory(lambda: refused(ShardIndexError, KEY, *acts))[1] < 2**20
        assert np.array_equal(found, expected)
        assert files.nbytes[KEY] == 68 + 3 * 24
        assert memory < 2**20

    @every_location
    @both_ways
    def test_a_shard_index_that_metadata_makes_huge_takes_no_memory(self, tmp_path, location, way):
        large = (2**40,), (1,), "uint8"
        array = shard_with("local", tmp_path, b"0123456789", location, way, *large)
        message = f"takes {2**44 + 4} bytes for {2**40} inner chunks, found 10"
        acts = *reads(array, 7), write(array, 7)
        assert most_memory(lambda: refused(ShardIndexError, message, *acts))[1] < 2**20

    def test_explain_makes_no_shard_index(self, tmp_path):
        array = shard_with("requests", tmp_path, b"", "end", (), (2**40,), (1,), "uint8")
        explained, memory = most_memory(lambda: explain(array, 7))
        assert (explained.bytes_fetched, explained.chunks_assumed) == (2**44 + 4 + 1, 1)
        assert memory < 2**20


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")  # zarr's pipeline
class TestInnerChunksThatDoNotDivideATransposedShard:
    """zarr compares them with the shard before the `transpose`, and accepts them."""

    OPTIONS = {"shape": (4, 6), "chunks": (4, 3), "dtype": "int32", "filters": TRANSPOSE}
    REFUSED = (
        r"inner chunks of the shape \(4, 3\) do not divide shards, which have the shape \(3, 4\)"
        r" after the codecs before them: 4 does not divide 3 on axis 0"
    )

    INNER = ShardingCodec(chunk_shape=(4, 3), codecs=(zarr.codecs.BytesCodec(),))

    def test_inner_chunks_that_do_not_divide_a_transposed_shard_are_refused(self):
        options, store = {**self.OPTIONS, "serializer": self.INNER, "compressors": None}, {}
        create = partial(zarr.create_array, store, **options)
        refused(zarr_bytes.ConfigurationError, self.REFUSED, create)
        assert not store
        with zarr.config.set(PLAIN_ZARR):
            array = create()
        opens = partial(zarr.open_array, store), partial(zarr.open, store)
        refused(zarr_bytes.ConfigurationError, self.REFUSED, *opens)
        refused(zarr_bytes.StoreError, self.REFUSED, partial(zarr_bytes.view, array))

    @pytest.mark.parametrize("setting", [{}, {"codecs.bytes": PLAIN_ZARR["codecs.bytes"]}])
    def test_those_that_this_package_leaves_to_zarr_are_left_to_it(self, setting):
        """Compressed inner chunks, or another codec for bytes."""
        codecs = (zarr.codecs.BytesCodec(), *([] if setting else [GzipCodec()]))
        inner = ShardingCodec(chunk_shape=(4, 3), codecs=codecs)
        with zarr.config.set(setting):
            new = zarr.create_array({}, **self.OPTIONS, serializer=inner, compressors=None)
            opened = zarr.open_array(new.store)
        for array in new, opened:
            assert type(pipeline_of(array)) is BatchedCodecPipeline

    @pytest.mark.newest
    @pytest.mark.skipif(
        "rectilinear_chunks" not in zarr.config.get("array"), reason="zarr has them from 3.3 on"
    )
    def test_in_a_grid_of_several_shapes_they_are_refused_where_they_are_read_and_written(self):
        options = {**self.OPTIONS, "shape": (8, 6), "chunks": [[4, 4], [3, 3]], "compressors": None}
        with zarr.config.set({"array.rectilinear_chunks": True}):
            array = zarr.create_array({}, **options, serializer=self.INNER)
        refused(zarr_bytes.ConfigurationError, self.REFUSED, *reads(array, ...), write(array, 7))
        assert [*contents_of(array.store)] == ["zarr.json"]

    def test_inner_chunks_that_divide_a_shard_and_its_transpose_are_read_and_written(self):
        inner = ShardingCodec(chunk_shape=(1, 1), codecs=(zarr.codecs.BytesCodec(),))
        array = zarr.create_array({}, **self.OPTIONS, serializer=inner, compressors=None)
        array[:] = VALUES
        assert np.array_equal(zarr.open_array(array.store)[:], VALUES)


class Refusing(WrapperStore):
    """A store without sizes that refuses a range behind the end of an object, as obstore does."""

    def __init__(self, store, refused=0):
        super().__init__(store)
        self.refused = refused  # size from which on nothing is readable

    def _with_store(self, store):
        return type(self)(store, self.refused)

    async def get(self, key, prototype, byte_range=None):
        found = await super().get(key, prototype, byte_range)
        first = getattr(byte_range, "start", getattr(byte_range, "offset", 0))
        if self.refused and not key.endswith("zarr.json") and first >= self.refused:
            raise RuntimeError("the range is refused")
        return found

    getsize = Store.getsize


def within_obstore(objects):
    obstore = pytest.importorskip("obstore.store")
    store = obstore.MemoryStore()
    for key, content in objects.items():
        store.put(key, content)

    class Asked(WrapperStore):  # unlike memory behind zarr's own wrapper
        pass

    return Asked(ObjectStore(store))


class TestRangesBehindTheEnd:
    """Of a truncated object, in a store that tells no sizes and has an error of its own."""

    @pytest.mark.parametrize(
        "make", [Refusing, pytest.param(within_obstore, marks=pytest.mark.newest)]
    )
    @pytest.mark.parametrize("is_sharded", [False, True], ids=["chunk", "shard"])
    def test_they_are_an_error_with_both_sizes(self, make, is_sharded):
        """And those before it are read."""
        values, index = numbers((100, 100)), {"index_location": "start"}
        shards = {"serializer": ShardingCodec(chunk_shape=(10, 100), **index)} if is_sharded else {}
        objects = contents_of(stored(MemoryStore(), values, **shards).store)
        objects["c/0/0"] = objects["c/0/0"][:16_000]
        if make is Refusing:
            memory = {key: cpu.Buffer.from_bytes(content) for key, content in objects.items()}
            store = Refusing(MemoryStore(memory), refused=16_000)
        else:
            store = make(objects)
        array = zarr.open_array(store, mode="r")
        with zarr.config.set({"zarr_bytes.gap.remote": 0}):
            assert np.array_equal(array[7], values[7])
            for selection, nbytes in (np.s_[99], 800), (np.s_[90:, 3], 8):
                message = rf"\S+/c/0/0 are {nbytes} bytes, found 0: the stored chunk is truncated"
                with pytest.raises(ChunkSizeError, match=message):
                    array[selection]

    def test_another_error_of_the_store_is_raised_as_it_is(self):
        class Failing(Refusing):
            async def get(self, key, prototype, byte_range=None):
                if byte_range is not None:
                    raise PermissionError("no ranges for you")
                return await super().get(key, prototype)

        array = zarr.open_array(Failing(stored(MemoryStore(), numbers((100, 100))).store), mode="r")
        with (
            zarr.config.set({"zarr_bytes.gap.remote": 0}),
            pytest.raises(PermissionError, match="no ranges for you"),
        ):
            array[99]
