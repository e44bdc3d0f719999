"""Codecs that change each element by itself, such as `scale_offset`: read and written in part.

Stored elements are made by hand. What they decode to is what plain zarr makes of them, in a chunk
without transposes and shards, which it reads rightly. `test_choice_of_pipeline.py` has which codecs
these are.
"""

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import product

import numcodecs
import numpy as np
import pytest
import zarr
from conftest import HAS_FUSED_PIPELINE
from documents import BIG, LITTLE, document_of, transposes
from fuzz import KINDS, conditions, fuzz, same, store_with, values_of
from fuzz_arrays import arrays, selections, sharded
from hypothesis import given
from hypothesis import strategies as st
from shards import shard_of, sharding
from stored_arrays import (
    IN_PLACE,
    PLAIN_ZARR,
    contents_of,
    most_memory,
    numbers,
    pipeline_of,
    pipeline_with,
)
from zarr.buffer.cpu import NDBuffer
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.dtype import parse_dtype
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import (
    BatchedBytesPipeline,
    ChunkSizeError,
    StoreError,
    check,
    counting,
    explain,
    preallocate,
    view,
)
from zarr_bytes.limits import Limits

pytestmark = [
    pytest.mark.skipif(not HAS_FUSED_PIPELINE, reason="from zarr 3.3 on"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of arithmetic with any bits
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
]

NO_GAP = {"zarr_bytes.gap.local": 0, "zarr_bytes.gap.remote": 0}
SELECTIONS = [..., np.s_[2], np.s_[:, 3], np.s_[1, 4], np.s_[::3, 1:6:2], np.s_[5:2]]


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


def scaled(astype="<i2", **others):
    configuration = {"offset": -3.5, "scale": 100, "dtype": "<f8", "astype": astype, **others}
    return codec("numcodecs.fixedscaleoffset", **configuration)


def as_type(encode_dtype, decode_dtype):
    return codec("numcodecs.astype", encode_dtype=encode_dtype, decode_dtype=decode_dtype)


BIT_ROUND = codec("numcodecs.bitround", keepbits=5)
CHAINS = {  # the data types of the array and of stored elements, and the codecs between them
    "fixedscaleoffset": ("float64", "int16", [scaled()]),
    "fixedscaleoffset of one byte": ("float64", "uint8", [scaled("|u1", scale=4)]),
    "fixedscaleoffset, big-endian": ("float64", "int16", [scaled(">i2")]),
    "astype": ("float64", "float32", [as_type("<f4", "<f8")]),
    "astype to a longer type": ("int8", "int32", [as_type("<i4", "|i1")]),
    "bitround": ("float32", "float32", [BIT_ROUND]),
    "quantize": ("float64", "float64", [codec("numcodecs.quantize", digits=2, dtype="<f8")]),
    "scale_offset": ("float32", "float32", [codec("scale_offset", offset=5, scale=10)]),
    "scale_offset of integers": ("int64", "int64", [codec("scale_offset", offset=7)]),
    "cast_value": ("float64", "int16", [codec("cast_value", data_type="int16")]),
    "scale_offset, cast_value": (
        "float32",
        "uint8",
        [codec("scale_offset", scale=10), codec("cast_value", data_type="uint8")],
    ),
    "scale_offset, fixedscaleoffset, astype": (
        "float64",
        "int16",
        [codec("scale_offset", offset=1), scaled("<i4"), as_type("<i2", "<i4")],
    ),
}
every_chain = pytest.mark.parametrize("chain", CHAINS)


def opened(document, chunks, kind="memory", folder=None):
    """The array of a document and the bytes of its chunks, by their keys, in a kind of store."""
    objects = {"zarr.json": json.dumps(document).encode(), **chunks}
    return zarr.open_array(store_with(kind, objects, folder), mode="r+")


def decoded_by_plain_zarr(values, data_type, codecs):
    """All elements, as zarr without this package decodes them from one chunk in C order."""
    document = document_of(data_type, values.shape, codecs=[*codecs, *BIG])
    key = "/".join(["c", *("0" for _ in values.shape)])
    with zarr.config.set(PLAIN_ZARR):
        array = opened(document, {key: values.astype(values.dtype.newbyteorder(">")).tobytes()})
        return np.asarray(array[...])


def test_a_point_of_scaled_integers_is_the_two_bytes_of_its_integer(tmp_path):
    integers = numbers((6, 8), ">i2")
    document = document_of("float64", (6, 8), codecs=[scaled(), *BIG])
    array = opened(document, {"c/0/0": integers.tobytes()}, "local", tmp_path)
    with zarr.config.set(NO_GAP), counting() as counted:
        assert array[2, 3] == integers[2, 3] / 100 - 3.5
    assert (counted.bytes_fetched, counted.ranges) == (2, 1)


@cache
def codecs_and_specs(chain):
    """The codecs of a chain, and the spec before each of them and after the last one."""
    data_type, _, documents = CHAINS[chain]
    codecs = opened(document_of(data_type, (), codecs=[*documents, *BIG]), {}).metadata.codecs[:-1]
    dtype, prototype = parse_dtype(data_type, zarr_format=3), zarr.buffer.cpu.buffer_prototype
    specs = [ArraySpec((), dtype, 0, ArrayConfig.from_dict({}), prototype)]
    for one in codecs:
        specs.append(one.resolve_metadata(specs[-1]))
    return codecs, specs


class TestEachCodec:
    """A part is decoded and encoded as among all: what makes a codec one of those handled here."""

    @staticmethod
    def encoded(chain, elements):
        codecs, specs = codecs_and_specs(chain)
        buffer = NDBuffer.from_ndarray_like(elements)
        for one, spec in zip(codecs, specs[:-1], strict=True):
            buffer = one._encode_sync(buffer, replace(spec, shape=elements.shape))
        return buffer.as_numpy_array().reshape(elements.shape)

    @every_chain
    @fuzz(examples=10)
    @given(shape=st.lists(st.integers(1, 20), min_size=1, max_size=3), seed=st.integers(0, 2**32))
    def test_a_part_of_the_elements_is_encoded_as_among_all(self, chain, shape, seed):
        """Of values that the stored type has: what becomes of others is not defined by NumPy."""
        random = np.random.default_rng(seed)
        values = random.integers(0, 11, shape).astype(CHAINS[chain][0])
        if values.dtype.kind == "f":
            values += random.random(shape).astype(values.dtype)
        chosen = random.integers(0, values.size, random.integers(1, 30))
        encoded = self.encoded(chain, values).ravel()
        same(self.encoded(chain, values.ravel()[chosen]), encoded[chosen])

    @staticmethod
    def decoded(chain, elements):
        codecs, specs = codecs_and_specs(chain)
        buffer = NDBuffer.from_ndarray_like(elements)
        for one, spec in zip(reversed(codecs), reversed(specs[:-1]), strict=True):
            buffer = one._decode_sync(buffer, replace(spec, shape=elements.shape))
        return buffer.as_numpy_array()

    @every_chain
    @fuzz(examples=10)
    @given(shape=st.lists(st.integers(1, 20), min_size=1, max_size=3), seed=st.integers(0, 2**32))
    def test_a_part_of_the_elements_is_decoded_as_among_all(self, chain, shape, seed):
        dtype = codecs_and_specs(chain)[1][-1].dtype.to_native_dtype()
        stored = values_of(CHAINS[chain][1], tuple(shape), seed).astype(dtype)
        random = np.random.default_rng(seed)
        chosen = random.integers(0, stored.size, random.integers(1, 30))
        decoded = self.decoded(chain, stored).ravel()
        same(self.decoded(chain, stored.ravel()[chosen]), decoded[chosen])

    @pytest.mark.parametrize(
        ("elementwise_filter", "stored"),
        [
            (numcodecs.FixedScaleOffset(offset=3, scale=7, dtype=">f8", astype=">i2"), ">i2"),
            (numcodecs.FixedScaleOffset(offset=0.5, scale=7, dtype="<f4", astype="|u1"), "|u1"),
            (numcodecs.AsType(encode_dtype=">f4", decode_dtype="<f8"), ">f4"),
            (numcodecs.AsType(encode_dtype="<i4", decode_dtype="|i1"), "<i4"),
            (numcodecs.Quantize(digits=2, dtype="<f8", astype=">f4"), ">f4"),
            (numcodecs.BitRound(keepbits=4), "<f2"),
        ],
        ids=str,
    )
    @fuzz(examples=10)
    @given(count=st.integers(1, 99), seed=st.integers(0, 2**32))
    def test_a_filter_decodes_the_bytes_of_a_part_as_among_all(
        self, elementwise_filter, stored, count, seed
    ):
        random = np.random.default_rng(seed)
        elements = np.frombuffer(random.bytes(count * np.dtype(stored).itemsize), stored)
        chosen = random.integers(0, count, random.integers(1, 30))
        decoded = elementwise_filter.decode(elements.view("u1"))
        itemsize = decoded.nbytes // elements.size
        part = elementwise_filter.decode(elements[chosen].view("u1"))
        same(part.view(f"V{itemsize}"), decoded.view(f"V{itemsize}")[chosen])


def mixed(draw, first, second):
    """The elements of two lists in one, each in its order."""
    places = draw(st.permutations([True] * len(first) + [False] * len(second)))
    first, second = iter(first), iter(second)
    return [next(first) if is_first else next(second) for is_first in places]


def with_codecs(draw, document, codecs):
    """A document with codecs anywhere among the transposes, before its shards and in them."""
    document = deepcopy(document)
    *moves, last = document["codecs"]
    if last["name"] == "sharding_indexed":
        count = draw(st.integers(0, len(codecs)))
        *inner_moves, serializer = last["configuration"]["codecs"]
        inner = mixed(draw, inner_moves, codecs[count:])
        last["configuration"]["codecs"] = [*inner, serializer]
        codecs = codecs[:count]
    document["codecs"] = [*mixed(draw, moves, codecs), last]
    return document


@pytest.mark.filterwarnings("ignore:.*does not answer byte")
@fuzz(examples=60)
@given(data=st.data())
def test_every_selection_has_the_values_and_the_data_type_of_zarr(tmp_path_factory, data):
    """In every kind of store, in chunks and shards, with codecs and transposes in any order."""
    kind = data.draw(st.sampled_from(KINDS))
    data_type, stored_type, codecs = CHAINS[data.draw(st.sampled_from(list(CHAINS)))]
    example = data.draw(arrays(names=[stored_type]))
    if data.draw(st.booleans()):
        example = data.draw(sharded(example, can_be_sparse=False))
    values = example.values()
    document = with_codecs(data.draw, example.document() | {"data_type": data_type}, codecs)
    objects = {"zarr.json": json.dumps(document).encode(), **example.chunks(values)}
    decoded = decoded_by_plain_zarr(values, data_type, codecs)
    with conditions(data.draw, "BatchedBytesPipeline"):
        store = store_with(kind, objects, tmp_path_factory.mktemp("a"))
        array = zarr.open_array(store, mode="r")
        assert isinstance(pipeline_of(array), BatchedBytesPipeline)
        for selection in data.draw(st.lists(selections(example.shape, example.chunk_shape))):
            found, expected = selection.read(array), np.asarray(selection.take(decoded))
            assert np.asarray(found).dtype == expected.dtype
            same(found, expected)


class TestChunks:
    INTEGERS = (numbers((6, 8)) + 1).astype(">i2")

    def test_elements_behind_a_codec_and_a_transpose_are_those_of_the_specification(self):
        """zarr 3.4.2 itself neither writes nor rightly reads this order of codecs."""
        order = transposes([(1, 0)])
        document = document_of("float64", (6, 8), codecs=[scaled(), *order, *BIG])
        array = opened(document, {"c/0/0": self.INTEGERS.T.tobytes()})
        for selection in SELECTIONS:
            same(array[selection], self.INTEGERS[selection] / 100 - 3.5)

    def test_the_result_may_have_another_data_type(self):
        out = np.zeros((2, 8), "f4")
        document = document_of("float64", (6, 8), codecs=[scaled(), *BIG])
        array = opened(document, {"c/0/0": self.INTEGERS.tobytes()})
        array.get_basic_selection(np.s_[1:3], out=NDBuffer.from_numpy_array(out))
        same(out, (self.INTEGERS[1:3] / 100 - 3.5).astype("f4"))

    @pytest.mark.parametrize("size", [95, 97])
    def test_a_chunk_of_a_wrong_size_is_an_error_with_the_stored_sizes(self, tmp_path, size):
        document = document_of("float64", (6, 8), codecs=[scaled(), *BIG])
        content = self.INTEGERS.tobytes().ljust(size)[:size]
        array = opened(document, {"c/0/0": content}, "local", tmp_path)
        with pytest.raises(ChunkSizeError, match=f"96 bytes, found {size}|0 to 96 .* {size}"):
            array[...]
        (finding,) = check(tmp_path).nodes[0].findings
        assert (finding.found, finding.permitted) == (f"{size} bytes", "96 bytes")

    def test_an_error_of_a_codec_is_raised_if_its_element_is_selected(self):
        """The quotient of 5 and 2 is no integer."""
        values = np.array([2, 4, 5, 8], ">i4")
        codecs = [codec("scale_offset", scale=2), *BIG]
        array = opened(document_of("int32", (4,), codecs=codecs), {"c/0": values.tobytes()})
        assert array.oindex[[0, 1, 3]].tolist() == [1, 2, 4]
        for selection in ..., 2:
            with pytest.raises(ValueError, match="non-zero remainder"):
                array[selection]

    def test_numbers_may_lie_at_any_offset(self):
        """`cast_value` ends in a panic of Rust where they are not at multiples of their size."""
        codecs = [sharding((2,), [codec("cast_value", data_type="int16"), *LITTLE])]
        parts = [np.array(pair, "<i2").tobytes() for pair in ([1, 2], [3, 4])]
        array = opened(
            document_of("float64", (4,), codecs=codecs), {"c/0": shard_of(parts, gap=b"x")}
        )
        assert array[...].tolist() == [1, 2, 3, 4]
        assert array[3] == 4

    @pytest.mark.parametrize("kind", ["local", "memory", "requests"])
    def test_a_block_of_elements_is_decoded_at_a_time(self, tmp_path, kind):
        """Also where all of a chunk is in memory."""
        small_blocks = {"codec_pipeline.path": pipeline_with(Limits(block_nbytes=2**14))}
        integers = numbers((2**19,), "<i2")
        document = document_of("float64", integers.shape, codecs=[scaled(), *BIG])
        requests = {"zarr_bytes.largest_request.remote": 2**14}
        with zarr.config.set(requests | small_blocks):
            array = opened(document, {"c/0": integers.tobytes()}, kind, tmp_path)
            array[:9]
            values, nbytes = most_memory(lambda: array[...])
        # Of a store by requests, ten of which are under way at a time.
        assert nbytes < values.nbytes + 2**20


class TestCheck:
    """Of an array of four elements of one byte, which `numcodecs.astype` converts."""

    @pytest.mark.parametrize(
        ("data_type", "stored", "decoded", "is_conforming"),
        [("bool", "|i1", "|b1", True), ("int8", "|b1", "|i1", False)],
    )
    def test_a_byte_is_a_bool_if_the_stored_elements_are(
        self, tmp_path, data_type, stored, decoded, is_conforming
    ):
        document = document_of(data_type, (4,), codecs=[as_type(stored, decoded), *BIG])
        opened(document, {"c/0": bytes([2, 1, 0, 1])}, "local", tmp_path)
        (report,) = check(tmp_path)
        found = [finding.found for finding in report.findings]
        assert found == ([] if is_conforming else ["a bool of 2 at byte 0"])

    def test_filters_that_need_whole_chunks_are_named_as_the_reason(self, tmp_path):
        options = {"compressors": None, "order": "F", "zarr_format": 2}
        filters = numcodecs.BitRound(keepbits=3)
        zarr.create_array(tmp_path, data=numbers((3, 4)), filters=filters, **options)
        (report,) = check(tmp_path)
        assert report.not_checked == "filters do not give each element by itself"


class TestMissing:
    """The fill value 0.05 is 0 as an integer, which `fixedscaleoffset` decodes to its offset."""

    CODEC = scaled(offset=0)
    TWO = np.array([[100, 200]], ">i2").tobytes()

    @pytest.mark.parametrize(
        ("before", "inside", "value"),
        [
            ([CODEC], [], 0.0),
            ([], [CODEC], 0.05),
            ([as_type("<f4", "<f8")], [scaled(offset=0, dtype="<f4")], np.float32(0.05)),
            ([codec("scale_offset", offset=1, scale=8)], [as_type("<i2", "<f8")], 0.05),
        ],
        ids=["before", "inside", "both", "fill value encoded"],
    )
    @pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
    def test_an_absent_inner_chunk_is_as_zarr_has_it_in_each_place(self, before, inside, value):
        codecs = [*before, sharding((1, 2), [*inside, *BIG])]
        document = document_of("float64", (4, 4), (2, 4), codecs=codecs, fill_value=0.05)
        chunks = {"c/0/0": shard_of([self.TWO, None, None, self.TWO])}
        with zarr.config.set(PLAIN_ZARR):
            plain = opened(document, chunks)[...]
        assert plain[0, 2] == pytest.approx(value)
        array = opened(document, chunks, "requests")
        for config in NO_GAP, {}:
            with zarr.config.set(config):
                for selection in [..., np.s_[1], np.s_[:, 2], np.s_[0, 3], np.s_[3, 3]]:
                    same(array[selection], plain[selection])

    def test_a_missing_chunk_is_the_fill_value(self, tmp_path):
        document = document_of("float64", (4, 2), (1, 2), codecs=[self.CODEC, *BIG])
        document["fill_value"] = 0.05
        array = opened(document, {"c/1/0": self.TWO}, "local", tmp_path)
        assert array[...].tolist() == [[0.05, 0.05], [1, 2], [0.05, 0.05], [0.05, 0.05]]


FILTERS = {  # of format 2, with the data type of the array
    "fixedscaleoffset": (
        [numcodecs.FixedScaleOffset(offset=3, scale=7, dtype=">f8", astype=">i2")],
        ">f8",
    ),
    "astype": ([numcodecs.AsType(encode_dtype=">f4", decode_dtype="<f8")], "<f8"),
    "astype of bools": ([numcodecs.AsType(encode_dtype="|u1", decode_dtype="?")], "?"),
    "astype of texts": ([numcodecs.AsType(encode_dtype="S3", decode_dtype="<U3")], "<U3"),
    "quantize": ([numcodecs.Quantize(digits=1, dtype="<f8", astype="<f4")], "<f8"),
    "bitround": ([numcodecs.BitRound(keepbits=4)], "<f4"),
    "fixedscaleoffset, astype": (
        [
            numcodecs.FixedScaleOffset(offset=3, scale=7, dtype="<f8", astype="<i4"),
            numcodecs.AsType(encode_dtype=">i2", decode_dtype="<i4"),
        ],
        "<f8",
    ),
}


class TestFormat2:
    def made(self, name, store=None, order="C", **options):
        filters, dtype = FILTERS[name]
        data = numbers((9, 8), "i2").astype(dtype)
        options = {"chunks": (4, 8), "compressors": None, "zarr_format": 2, **options}
        store = MemoryStore() if store is None else store
        zarr.create_array(store, data=data, filters=filters, order=order, **options)
        return zarr.open_array(store, mode="r")

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("name", FILTERS)
    def test_every_filter_is_read_as_by_zarr(self, tmp_path, name, order):
        array = self.made(name, LocalStore(tmp_path), order)
        with zarr.config.set(PLAIN_ZARR):
            plain = zarr.open_array(tmp_path, mode="r")[...]
        for config in NO_GAP, {}:
            with zarr.config.set(config):
                for selection in SELECTIONS:
                    assert np.asarray(array[selection]).dtype == plain.dtype
                    same(array[selection], plain[selection])

    def test_a_point_is_the_bytes_of_its_stored_element(self, tmp_path):
        array = self.made("fixedscaleoffset, astype", LocalStore(tmp_path), "F")
        with zarr.config.set(NO_GAP), counting() as counted:
            array[5, 3]
            explained = explain(array, (5, 3))
        assert counted.bytes_fetched == explained.bytes_fetched == explained.bytes_selected == 2
        assert explained.bytes_of_chunks == 2 * 4 * 8

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_bitround_in_fortran_order_is_left_to_zarr(self, order):
        explained = explain(self.made("bitround", order=order), 3)
        assert ("does not keep the order F" in explained.reason) == (order == "F")
        assert ("filters=None" in explained.remedy) == (order == "F")

    @pytest.mark.parametrize(
        ("filters", "dtype", "reason"),
        [
            # As kerchunk writes images with BZERO.
            (FILTERS["fixedscaleoffset"][0], ">i2", "gives elements of 8 bytes .>f8., where 2"),
            # Two elements of the last filter are one of the array.
            (
                [
                    numcodecs.AsType(encode_dtype="<i4", decode_dtype="<f8"),
                    numcodecs.AsType(encode_dtype="|i1", decode_dtype="<i2"),
                ],
                "<f8",
                "gives elements of 2 bytes .int16., where 4",
            ),
        ],
        ids=["first", "last"],
    )
    def test_filters_of_other_sizes_are_left_to_zarr(self, filters, dtype, reason):
        def outcome():
            try:
                return zarr.open_array(store)[...].tolist()
            except ValueError as error:
                return str(error)

        store = MemoryStore()
        options = {"compressors": None, "zarr_format": 2, "filters": filters}
        array = zarr.create_array(store, shape=4, dtype=dtype, **options)
        array[...] = [1, 2, 3, 4]
        with zarr.config.set(PLAIN_ZARR):
            plain = outcome()
        assert outcome() == plain
        assert reason in explain(zarr.open_array(store)).reason.replace("(", ".").replace(")", ".")


PLACES = {  # of codecs that change elements, in the codecs of an array
    "chunk": lambda codecs: [*transposes([(1, 0)]), *codecs, *BIG],
    "inside the shard": lambda codecs: [sharding((2, 4), [*codecs, *BIG])],
    "before the shard": lambda codecs: [*codecs, sharding((2, 4), BIG)],
}
# zarr 3.4.2 itself cannot write `fixedscaleoffset` before shards, and takes the bits of `bitround`
# for integers, where it compares inner chunks with the fill value.
every_chain_in_every_place = pytest.mark.parametrize(
    ("chain", "place"),
    [
        (chain, place)
        for chain, place in product(CHAINS, PLACES)
        if place != "before the shard" or not ("fixedscale" in chain or chain == "bitround")
    ],
)
in_either_way = pytest.mark.parametrize("config", [{}, IN_PLACE], ids=["replaced", "in place"])


def in_folder(folder, document, chunks=None, **config):
    """The array of a document in a folder, opened under a configuration."""
    folder.mkdir(exist_ok=True)
    with zarr.config.set(config):
        return opened(document, chunks or {}, "local", folder)


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
class TestWrites:
    @every_chain_in_every_place
    @pytest.mark.parametrize("fill_value", [0, 3])
    def test_the_stored_bytes_are_those_of_zarr(self, tmp_path, chain, place, fill_value):
        data_type, _, codecs = CHAINS[chain]
        document = document_of(data_type, (6, 8), (4, 8), codecs=PLACES[place](codecs))
        document["fill_value"] = fill_value
        for name, config in ("own", {}), ("plain", PLAIN_ZARR):
            array = in_folder(tmp_path / name, document, **config)
            array[1, 2] = 9
            array[...] = numbers((6, 8), array.dtype) % 25
            array[1:5, 2] = 5
            array[:4, 4:] = fill_value
            array[4:] = fill_value
            array.oindex[[0, 3], 1:3] = 7
        own, plain = (contents_of(LocalStore(tmp_path / name)) for name in ("own", "plain"))
        assert own == plain

    @every_chain_in_every_place
    @pytest.mark.parametrize("fill_value", [0, 3])
    def test_what_is_written_in_place_is_read_as_zarr_reads_its_own(
        self, tmp_path, chain, place, fill_value
    ):
        data_type, _, codecs = CHAINS[chain]
        document = document_of(data_type, (6, 8), (4, 8), codecs=PLACES[place](codecs))
        document["fill_value"] = fill_value
        found = []
        for name, config in ("own", IN_PLACE), ("plain", PLAIN_ZARR):
            array = in_folder(tmp_path / name, document, **config)
            array[1, 2] = 9
            found.append(array[...])
            array[...] = numbers((6, 8), array.dtype) % 25
            array[1:5, 2] = 5
            array[:4, 4:] = fill_value
            array.oindex[[0, 3], 1:3] = 7
            found.append(array[...])
        same(found[0], found[2])
        same(found[1], found[3])

    @in_either_way
    @pytest.mark.parametrize(
        ("data_type", "changing"), [("float64", scaled(offset=0)), ("float32", BIT_ROUND)]
    )
    def test_zarr_reads_what_it_cannot_write_before_shards(
        self, tmp_path, data_type, changing, config
    ):
        codecs = PLACES["before the shard"]([changing])
        document = document_of(data_type, (6, 8), (4, 8), codecs=codecs)
        array = in_folder(tmp_path, document, **config)
        array[1, 2] = 9
        array[3:5] = numbers((2, 8))
        with zarr.config.set(PLAIN_ZARR):
            plain = zarr.open_array(tmp_path, mode="r")[...]
        same(array[...], plain)
        assert plain[1, 2] == 9
        assert plain[3:5].tolist() == numbers((2, 8)).tolist()
        assert np.count_nonzero(plain) == 16

    @in_either_way
    @pytest.mark.parametrize("inner", [(4,), (2,)])
    def test_elements_that_are_not_selected_are_not_converted(self, tmp_path, config, inner):
        """That of 5 is an error, as its half is no integer; nor are other inner chunks."""
        stored = [
            np.array(part, ">i4").tobytes()
            for part in np.split(np.array([2, 4, 5, 8]), 4 // inner[0])
        ]
        codecs = [sharding(inner, [codec("scale_offset", scale=2), *BIG])]
        document = document_of("int32", (4,), codecs=codecs)
        array = in_folder(tmp_path, document, {"c/0": shard_of(stored)}, **config)
        array[0] = 9
        array[3] = 10
        content = (tmp_path / "c/0").read_bytes()
        assert np.frombuffer(content, ">i4", 4).tolist() == [18, 4, 5, 20]

    def test_in_place_the_bytes_of_the_selected_elements_are_written(self, tmp_path):
        document = document_of("float64", (6, 8), codecs=[scaled(), *BIG])
        integers = numbers((6, 8), ">i2")
        array = in_folder(tmp_path, document, {"c/0/0": integers.tobytes()}, **IN_PLACE)
        with counting() as counted:
            array[2, 3:5] = [1, 2]
            explained = explain(array, np.s_[2, 3:5], write=True)
        assert counted.bytes_written == explained.bytes_written == 4
        assert (counted.bytes_fetched, explained.chunks_in_place) == (0, 1)
        integers[2, 3:5] = [450, 550]  # (1 + 3.5) * 100, (2 + 3.5) * 100
        assert (tmp_path / "c/0/0").read_bytes() == integers.tobytes()

    @in_either_way
    def test_elements_before_a_transpose_are_stored_as_the_specification_says(
        self, tmp_path, config
    ):
        """zarr 3.4.2 itself cannot write this order of codecs."""
        order = transposes([(1, 0)])
        document = document_of("float64", (6, 8), codecs=[scaled(), *order, *BIG])
        values = numbers((6, 8)) / 4
        array = in_folder(tmp_path, document, **config)
        array[1:3] = values[1:3]
        array[:, ::2] = values[:, ::2]
        array[...] = values
        array[2, 3] = values[2, 3] = -1
        stored = np.rint((values + 3.5) * 100).astype(">i2")
        assert (tmp_path / "c/0/0").read_bytes() == stored.T.tobytes()

    @in_either_way
    def test_an_error_of_a_codec_leaves_the_chunk_as_it_was(self, tmp_path, config):
        codecs = [codec("cast_value", data_type="int16"), *BIG]
        document = document_of("float64", (4,), codecs=codecs)
        content = np.array([1, 2, 3, 4], ">i2").tobytes()
        array = in_folder(tmp_path, document, {"c/0": content}, **config)
        for selection in np.s_[1:3], ...:
            with pytest.raises(ValueError, match="out of range|40000"):
                array[selection] = 40_000
        assert [path.name for path in (tmp_path / "c").iterdir()] == ["0"]
        assert (tmp_path / "c/0").read_bytes() == content

    @in_either_way
    def test_values_in_the_other_byte_order_are_converted_first(self, tmp_path, config):
        """zarr 3.4.2 itself stores other numbers: `numcodecs` takes the bytes as they are."""
        document = document_of("int16", (4,), codecs=[as_type("<i4", "<i2"), *BIG])
        array = in_folder(tmp_path, document, **config)
        array[1:] = np.array([1, 2, 3], ">i2")
        assert array[...].tolist() == [0, 1, 2, 3]

    def test_a_codec_whose_elements_could_not_be_read_again_is_refused(self, tmp_path):
        """zarr stores four bytes for each of these elements, and then expects eight."""
        codecs = [codec("numcodecs.quantize", digits=2, dtype="<f8", astype="<f4"), *BIG]
        array = in_folder(tmp_path, document_of("float64", (4,), codecs=codecs))
        with pytest.raises(ValueError, match="Quantize encodes elements to float32, and they are"):
            array[...] = 1

    def test_a_block_of_elements_is_encoded_at_a_time(self, tmp_path):
        small_blocks = {"codec_pipeline.path": pipeline_with(Limits(block_nbytes=2**14))}
        document = document_of("float64", (2**19,), codecs=[scaled("<i8"), *BIG])
        array = in_folder(tmp_path, document, **small_blocks)
        values = numbers((2**19,))
        array[:9] = 1
        _, nbytes = most_memory(lambda: array.__setitem__(..., values))
        assert nbytes < 2**20


class TestEmptyChunks:
    """Whether a chunk is stored is decided on the values before the codec."""

    @pytest.mark.parametrize("place", ["chunk", "inside the shard"])
    @in_either_way
    @pytest.mark.parametrize("selection", [np.s_[:2, :4], np.s_[1, 2]], ids=["whole", "part"])
    def test_a_value_that_is_stored_as_the_fill_value_does_not_vanish(
        self, tmp_path, place, config, selection
    ):
        """0.04 and the fill value 0.05 are both stored as the integer 0."""
        document = document_of(
            "float64", (4, 8), codecs=PLACES[place]([scaled(offset=0, scale=10)])
        )
        document["fill_value"] = 0.05
        array = in_folder(tmp_path, document, **config)
        array[selection] = 0.04
        assert array[1, 2] == 0

    @pytest.mark.parametrize("place", ["chunk", "inside the shard"])
    @in_either_way
    def test_fill_values_alone_are_not_stored(self, tmp_path, place, config):
        document = document_of(
            "float64", (4, 8), codecs=PLACES[place]([scaled(offset=0, scale=10)])
        )
        document["fill_value"] = 0.05
        array = in_folder(tmp_path, document, **config)
        array[1, 2] = 0.05
        array[...] = 0.05
        assert array[...].tolist() == [[0.05] * 8] * 4
        assert list(tmp_path.rglob("c/*/*")) == []

    def test_a_part_that_becomes_the_fill_value_empties_its_inner_chunk(self, tmp_path):
        document = document_of("float64", (4, 8), codecs=PLACES["inside the shard"]([scaled()]))
        document["fill_value"] = 1.5
        array = in_folder(tmp_path, document)
        array[...] = 2
        size = (tmp_path / "c/0/0").stat().st_size
        array[:2, :3] = 1.5
        assert (tmp_path / "c/0/0").stat().st_size == size
        array[:2, 3] = 1.5
        assert (tmp_path / "c/0/0").stat().st_size == size - 2 * 2 * 4
        assert np.count_nonzero(array[...] == 1.5) == 8


class TestFillValuesThatCodecsChange:
    """NaN is stored as the smallest integer, which is read as a number."""

    def made(self, folder, place, **config):
        document = document_of("float64", (4, 8), codecs=PLACES[place]([scaled(offset=0)]))
        document["fill_value"] = "NaN"
        return in_folder(folder, document, **config)

    def test_a_shard_keeps_inner_chunks_absent_in_place(self, tmp_path):
        array = self.made(tmp_path, "inside the shard", **IN_PLACE)
        array[0, 5:7] = 1
        assert np.isnan(array[...])[:, :4].all()
        assert np.isnan(array[2:, 4:]).all()
        array[3, 1] = 2
        array[3, 2] = 3
        assert array[0, 5:7].tolist() == [1, 1]
        assert array[3, 1:3].tolist() == [2, 3]
        assert np.isnan(array[2:, 4:]).all()

    @pytest.mark.parametrize("place", ["chunk", "inside the shard"])
    def test_chunks_are_not_made_in_advance(self, tmp_path, place):
        array = self.made(tmp_path, place, **IN_PLACE)
        with pytest.raises(StoreError, match="its codecs do not keep the fill value nan"):
            preallocate(array)

    @pytest.mark.parametrize("place", ["chunk", "inside the shard"])
    def test_chunks_of_other_fill_values_are_made_in_advance(self, tmp_path, place):
        document = document_of("float64", (4, 8), codecs=PLACES[place]([scaled()]))
        document["fill_value"] = 1.5
        array = in_folder(tmp_path, document, **IN_PLACE)
        assert preallocate(array).made == 1
        assert array[...].tolist() == [[1.5] * 8] * 4
        with counting() as counted:
            array[3, 7] = 2
        assert counted.bytes_written == 2

    def test_zarr_writes_shards_whose_absent_inner_chunks_read_as_another_value(self, tmp_path):
        """As 0, and a missing shard as 0.05."""
        codecs = PLACES["before the shard"]([scaled(offset=0, scale=10)])
        document = document_of("float64", (4, 8), codecs=codecs, fill_value=0.05)
        array = in_folder(tmp_path, document, **IN_PLACE)
        explained = explain(array, 0, write=True)
        assert not explained.may_share
        reads_as = "an inner chunk that a shard lacks reads as 0.0, not as the fill value 0.05"
        assert reads_as in explained.reason
        assert "inside the shards" in explained.remedy
        with pytest.raises(StoreError, match=reads_as):
            preallocate(array)


@pytest.mark.parametrize("order", ["C", "F"])
@in_either_way
@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_format_2_store_what_zarr_stores(tmp_path, name, order, config):
    filters, dtype = FILTERS[name]
    options = {"chunks": (4, 8), "compressors": None, "zarr_format": 2, "dtype": dtype}
    values = numbers((8, 8), "i2").astype(dtype)
    for folder, chosen in ("own", config), ("plain", PLAIN_ZARR):
        with zarr.config.set(chosen):
            array = zarr.create_array(
                tmp_path / folder, shape=(8, 8), filters=filters, order=order, **options
            )
            array[...] = values
            array[1:5, 2] = values[2, 3]
            array[3, ::2] = values[2, ::2]
    own, plain = (contents_of(LocalStore(tmp_path / folder)) for folder in ("own", "plain"))
    assert own == plain


@pytest.mark.parametrize("version", [2, 3])
def test_views_are_refused(tmp_path, version):
    if version == 2:
        filters = FILTERS["astype"][0]
        array = zarr.create_array(
            tmp_path, shape=4, dtype="f8", zarr_format=2, filters=filters, compressors=None
        )
    else:
        array = in_folder(tmp_path, document_of("float64", (6, 8), codecs=[scaled(), *BIG]))
    with pytest.raises(StoreError, match="the codec .*, which stores other elements"):
        view(array)
