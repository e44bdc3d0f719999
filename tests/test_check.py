"""Does a store conform: what is found, what is read for it, what is shown."""

import asyncio
import gc
import io
import json
import os
import re
import sys
from importlib.util import find_spec
from math import prod
from urllib.parse import unquote

import numpy as np
import pytest
import zarr
from command import Watched, call, check_json, found_in, nodes_of, reports_of
from documents import (
    ARRAY,
    ARRAY_2,
    ENDIAN,
    GROUP,
    GROUP_2,
    GZIP,
    HAS_STRUCT,
    LITTLE,
    consolidated,
    document_of,
    memory,
    regular,
    store_of,
    struct_of,
    transposes,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Delta
from servers import WithoutRanges, serving
from shards import shard_of, sharding
from stored_arrays import PLAIN_ZARR, most_memory
from system_calls import fail_at
from zarr.codecs import TransposeCodec
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

import zarr_bytes
from zarr_bytes.commands.stores import parse_storage_options

# Consolidated metadata is not in the specification, of which zarr warns.
pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")

BARE = [{"name": "bytes"}]
ZIPPED = ARRAY | {"codecs": [*LITTLE, GZIP]}
LONG = [*range(100)]
LACKING = {"data_type": struct_of(a="int16"), "fill_value": {}}
SHARDS_BEHIND_A_TRANSPOSE = document_of(
    "int16", [4, 6], codecs=[*transposes([[1, 0]]), sharding([3, 2], LITTLE)]
)
WRONG, WRONG_GROUP = ARRAY | {"fill_value": "1.5"}, GROUP | {"attributes": 7}
DEFAULTS = {"storage_transformers": [], "dimension_names": None}
CHANGED, INNER = ARRAY | {"attributes": {"x": 1}}, consolidated({})
needs_rich = pytest.mark.skipif(find_spec("rich") is None, reason="done by rich")


def findings_of(store):
    """Subject, found and permitted of everything that is found in the only array."""
    (report,) = reports_of(store).values()
    return [(f.subject, f.found, f.permitted) for f in report.findings]


@pytest.fixture
def folder(tmp_path):
    """A hierarchy of four arrays that conforms."""
    root = tmp_path / "a.zarr"
    group = zarr.open_group(root, mode="w")
    for name, dtype, options in (
        ("plain", "f4", {"chunks": (3, 4), "compressors": None}),
        ("mask", "bool", {"chunks": (3, 4), "compressors": None}),
        ("packed", "i2", {"chunks": (3, 4)}),
        ("shards", "i4", {"chunks": (2, 3), "shards": (4, 6), "compressors": None}),
    ):
        group.create_array(f"data/{name}", shape=(6, 6), dtype=dtype, **options)[1:] = 1
    return root


def test_a_store_that_conforms_has_no_findings(tmp_path):
    zarr.create_array(tmp_path, data=np.arange(6), compressors=None)
    (report,) = zarr_bytes.check(tmp_path)
    assert report.findings == []


@pytest.mark.parametrize(
    ("members", "subject", "found", "permitted"),
    [
        ({"fill_value": "1.5"}, "fill_value", '"1.5"', "an integer from -32768 to 32767"),
        ({"data_type": "bool"}, "fill_value", "0", "true or false"),
        *[(LACKING, "fill_value", "{}", "field, also 'a'")] * HAS_STRUCT,
        ({"data_type": "r12"}, "zarr.json", "r12", ""),
        ({"codecs": BARE}, "zarr.json", "needs a byte order", ""),
        # Permitted forms that zarr does not open.
        ({"codecs": ["bytes"], "data_type": "uint8"}, "zarr.json", "", ""),
        (SHARDS_BEHIND_A_TRANSPOSE, "zarr.json", "", ""),
        ({"codecs": [*LITTLE, *LITTLE]}, "zarr.json", "ArrayBytesCodec", ""),
        ({"codecs": [*LITTLE, {"name": "no-such-codec"}]}, "zarr.json", "no-such-codec", ""),
        ({"attributes": {"a": float("nan")}}, "zarr.json", "not JSON", ""),
        *(({member: ...}, "zarr.json", member, "") for member in [*ARRAY][2:-1]),
        ({"node_type": True}, "zarr.json", 'is true; permitted are "array" and "group"', ""),
        ({"fill_value": LONG}, "fill_value", f"{str(LONG)[:76]} ...", ""),
    ],
    ids=str,
)
def test_check_finds_metadata_that_is_not_permitted_or_that_zarr_does_not_open(
    members, subject, found, permitted
):
    document = {name: v for name, v in (ARRAY | members).items() if v is not ...}
    with zarr.config.set(PLAIN_ZARR):  # no configuration permits it
        ((where, shown, allowed),) = findings_of(memory({"": document}))
    assert where == subject
    assert found in shown
    assert permitted in allowed


def test_check_looks_at_chunks_where_metadata_is_not_json_but_zarr_opens_it(tmp_path):
    array = zarr.create_array(tmp_path, shape=4, dtype="i4", compressors=None)
    array.update_attributes({"a": float("nan")})
    array[...] = 1
    (tmp_path / "c/0").write_bytes(b"short")
    report = reports_of(tmp_path)[""]
    assert (report.stored_chunks, report.not_checked) == (1, "")
    assert [finding.subject for finding in report.findings] == ["zarr.json", "c/0"]


def test_check_finds_every_array_of_a_hierarchy(folder):
    code, found = check_json(folder)
    assert code == 0
    assert {n["path"]: (n["stored_chunks"], n["not_checked"]) for n in found["nodes"]} == {
        "data/plain": (4, ""),
        "data/mask": (4, ""),
        "data/packed": (None, "not plain bytes"),
        "data/shards": (2, ""),
    }
    assert all(n["conforms"] and n["findings"] == [] for n in found["nodes"])
    told = []
    zarr_bytes.check(folder, progress=told.append)
    shown = [(*vars(progress).values(),) for progress in told]
    assert shown[1::5] == [("data/shards", 0, 6, 2, 2), ("data/mask", 3, 6, 1, 4)]


def test_check_changes_no_settings_of_other_threads(monkeypatch):
    """As if one looked, and set one, while zarr reads a document."""
    read, settings = TransposeCodec.from_dict, lambda: dict(zarr.config.get("zarr_bytes", {}))
    before, found = settings(), []

    def looking(data):
        found.append(settings())
        zarr.config.set({"zarr_bytes.partial_writes": True})
        return read(data)

    monkeypatch.setattr(TransposeCodec, "from_dict", looking)
    documents = {"a": document_of("int16", [4], orders=[[0]]), "b": ARRAY | {"fill_value": "1"}}
    reports = reports_of(memory(documents))
    found.append(settings())
    zarr.config.refresh()
    assert (found[0], found[-1]) == (before, before | {"partial_writes": True})
    assert (reports["a"].conforms, reports["b"].conforms) == (True, False)  # still strict


def test_check_goes_on_after_broken_metadata():
    broken = {"copies": GROUP | {"consolidated_metadata": 5}, "group": "{", "list": "[]"}
    whole = dict.fromkeys(("a", "group/a", "whole"), ARRAY)
    reports = reports_of(memory(broken | whole))
    assert reports.keys() == broken.keys() | whole.keys()
    assert {path for path, report in reports.items() if report.conforms} == whole.keys()


@pytest.mark.parametrize(
    ("method", "key", "answer", "found", "stored"),
    [
        ("getsize", "c/0", lambda size: os.truncate("nowhere", 0), "", 0),
        ("getsize", "c/0", lambda size: {}["gone"], "KeyError: 'gone'", 1),
        ("get", "c/0", lambda buffer: None, "", 0),
        ("get", "c/0", lambda buffer: buffer[:1], "bytes 0 to 2 of c/0 are 2 bytes, found 1: ", 1),
        ("get", "zarr.json", lambda buffer: None, "FileNotFoundError: zarr.json", None),
    ],
)
def test_check_finds_errors_of_the_store_and_takes_a_deleted_chunk_for_missing(
    monkeypatch, method, key, answer, found, stored
):
    store = Watched(store_of("bool", fill_value=False, chunk=b"\0\2"))
    ask = getattr(store, method)

    async def asked(name, *args):
        return answer(await ask(name, *args)) if name == key else await ask(name, *args)

    monkeypatch.setattr(store, method, asked)
    (node,) = zarr_bytes.check(store)
    assert (node.stored_chunks, len(node.findings)) == (stored, bool(found))
    assert all(f.subject == key and f.found.startswith(found) for f in node.findings)
    assert node.kind == ("array" if key == "c/0" else "unreadable")


def test_check_looks_again_at_an_object_that_is_replaced_meanwhile(monkeypatch):
    store, sizes = store_of("bool", fill_value=False, chunk=b"\0\1"), iter([1, 3, 2])

    async def size_of(key):
        return next(sizes)

    monkeypatch.setattr(store, "getsize", size_of)
    (node,) = zarr_bytes.check(store)
    assert (node.stored_chunks, node.findings) == (1, [])


@pytest.mark.parametrize(
    ("documents", "names"),
    [
        ({"": consolidated({"a": ARRAY, "g": GROUP}), "a": CHANGED, "g": INNER}, []),
        ({"": consolidated({"a": ARRAY}), "a": ARRAY, "no group/b": ARRAY}, []),
        ({"": consolidated({"a": CHANGED | DEFAULTS}), "a": ARRAY}, []),
        ({"": GROUP, "a": consolidated({}), "ab": GROUP, "ab/c": ARRAY, "c/d": ARRAY}, []),
        ({"": consolidated({"a": ARRAY | DEFAULTS | {"fill_value": 7}}), "a": ARRAY}, ["a"]),
        ({"": consolidated({"g": GROUP}), "g": ARRAY}, ["g"]),
        ({"h": consolidated({"a": ARRAY, "c": GROUP}), "h/a": ARRAY, "h/b": ARRAY}, ["b", "c"]),
    ],
    ids=range(7),
)
def test_check_finds_consolidated_metadata_that_differs_from_the_document(documents, names):
    """Zarr reads the copies alone."""
    findings = [f for report in zarr_bytes.check(memory(documents)) for f in report.findings]
    assert [f.subject for f in findings] == [f"consolidated_metadata: {name}" for name in names]
    for f in findings:
        assert f.found == "differs from its zarr.json, or one of them is missing"
        assert f.permitted == "zarr.consolidate_metadata writes it anew"


PARTS = [bytes([n, 0, 1, 0]) for n in range(4)]  # inner chunks of two int16
SHARDS = [sharding([2, 1], LITTLE)]
SHARDS_FROM_INDEX = [sharding([2, 1], LITTLE, "start")]


class TestChunks:
    @given(
        dimensions=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=3),
        name=st.sampled_from(["default", "v2", "format 2"]),
        separator=st.sampled_from([None, ".", "/"]),
        other=st.text("c0123./", min_size=1, max_size=8).filter(
            lambda key: not {"", ".", ".."} & set(key.split("/"))
        ),
        data=st.data(),
    )
    def test_chunk_keys_are_those_that_zarr_writes_and_no_others(
        self, dimensions, name, separator, other, data
    ):
        encoding = {"name": name}
        if separator is not None:
            encoding["configuration"] = {"separator": separator}
        shape, chunk_shape = [n for n, _ in dimensions], [m for _, m in dimensions]
        key, document = (
            "zarr.json",
            document_of("uint8", shape, chunk_shape, chunk_key_encoding=encoding),
        )
        if name == "format 2":
            key, document = ".zarray", ARRAY_2 | {"shape": shape, "chunks": chunk_shape}
            document |= {"dtype": "|u1", "dimension_separator": separator or "."}
        metadata = zarr.open_array(memory({}, **{key: document}), mode="r").metadata
        grid = [*np.ndindex(*(-(-n // m) for n, m in dimensions))]
        keys = [metadata.encode_chunk_key(index) for index in grid]
        beyond = np.ndindex(*(-(-n // m) + 1 for n, m in dimensions))  # by one along each axis
        near = [metadata.encode_chunk_key(index) for index in beyond]
        chosen = {other, *data.draw(st.lists(st.sampled_from(near)))}
        contents = {key: bytes(prod(chunk_shape)) if key in keys else b"other" for key in chosen}
        store = Watched(memory({}, **contents, **{key: document}))
        (report,) = reports_of(store).values()
        assert (report.chunks, report.findings) == (len(keys), [])
        assert report.stored_chunks == len(chosen & {*keys})
        assert sorted(store.sized) == sorted(chosen & {*keys})

    @pytest.mark.parametrize(
        ("codecs", "content", "found"),
        [
            (LITTLE, bytes(16), None),
            (ENDIAN, b"", "0 bytes"),
            ([*transposes([[1, 0]]), *LITTLE], bytes(1700), "1,700 bytes"),
            (SHARDS, shard_of(PARTS), None),
            (SHARDS, shard_of(PARTS, places=[2, 0, 3, 1], gap=b"xyz"), None),
            (SHARDS, shard_of([*PARTS[:3], None]), None),
            (SHARDS, shard_of(PARTS, entries={1: (14, 4)}), "(0, 1) of the shard ends at byte"),
            (SHARDS, b"\0" * 20, "shard a/c/0/0 takes 68 bytes for 4 inner chunks, found 20"),
            (SHARDS, shard_of(PARTS)[:-1], "checksum"),
            (SHARDS_FROM_INDEX, shard_of(PARTS, "start"), None),
            (SHARDS_FROM_INDEX, shard_of(PARTS), "checksum"),
        ],
        ids=range(11),
    )
    def test_a_wrong_size_of_a_chunk_or_a_damaged_shard_index_is_found(
        self, codecs, content, found
    ):
        """The second chunk is missing."""
        document = document_of("int16", [8, 2], [4, 2], codecs=codecs)
        (report,) = reports_of(memory({"a": document}, **{"a/c/0/0": content})).values()
        assert (report.chunks, report.stored_chunks) == (2, 1)
        assert [finding.subject for finding in report.findings] == ["c/0/0"] * bool(found)
        for finding in report.findings:
            assert all(part in finding.found for part in found.split(" of the shard "))

    def test_a_bool_that_is_neither_0_nor_1_is_found_in_a_record_and_in_each_piece_of_a_chunk(self):
        data_type, fill_value, item_size = "bool", False, 1
        if HAS_STRUCT:
            data_type, fill_value = struct_of(n="int16", flag="bool"), {"n": 0, "flag": False}
            item_size = 3
        piece = 2**23 // item_size  # elements that are read at once
        for place in (0, piece - 1, piece, piece + 1):
            flags = np.zeros((piece + 2, item_size), "u1")
            flags[place, -1] = 255
            store = store_of(data_type, shape=(piece + 2,), fill_value=fill_value, chunk=flags)
            found = f"a bool of 255 at byte {place * item_size + item_size - 1:,}"
            assert findings_of(store) == [("c/0", found, "0 or 1")]

    @pytest.mark.parametrize("gap", [b"", b"\7"])
    def test_a_bool_of_an_inner_chunk_is_found_also_where_a_server_ignores_ranges(self, gap):
        class Whole(Watched):
            async def get(self, key, prototype, byte_range=None):
                return await self._store.get(key, prototype)

        content = shard_of([b"\0\1\0\1", None, b"\1\1\1\2", b"\0\0\0\0"], gap=gap)
        codecs = [sharding([2, 2], BARE)]
        store = store_of("bool", shape=[4, 4], fill_value=False, codecs=codecs, chunk=content)
        for some in store, Whole(store):
            ((_, found, _),) = findings_of(some)
            assert found == f"a bool of 2 at byte {7 + 2 * len(gap)}"


@pytest.mark.parametrize("name", ["plain", "packed"])  # written by this package, and by zarr
def test_temporary_files_of_interrupted_writes_are_a_note(folder, monkeypatch, name):
    path, left = folder / "data" / name, []
    # By the names that they have before they are renamed.
    before = lambda: left.extend(path.rglob("*.partial"))  # noqa: E731
    fail_at(monkeypatch, "replace", 0, before=before)
    zarr.open_array(path, mode="r+")[0, 0] = 7
    (file,) = left
    text = " left by interrupted writes; may be deleted while nobody writes: "
    text += file.relative_to(path).as_posix()
    for other, found in (("0.abc.partial", "1" + text), ("other" + file.name, f"2{text}, ...")):
        for name in file.name, other, file.name + "x":
            (file.parent / name).touch()
        report = zarr_bytes.check(path)
        shown = [(*vars(f).values(),) for f in report.nodes[0].findings]
        assert shown == [("*.partial", found, "", True)]
        assert report.conforms
        assert "finding" not in str(report)
    document = (path / "zarr.json").read_text().replace('"shape"', '"chape"')
    (path / "zarr.json").write_text(document)
    report = zarr_bytes.check(path)
    assert [f.subject for f in report.nodes[0].findings] == ["*.partial", "zarr.json"]
    assert "1 finding" in str(report)


def test_check_reads_no_chunks_but_of_bools_in_concurrent_requests(folder):
    store = Watched(LocalStore(folder, read_only=True))
    with zarr.config.set({"async.concurrency": 3}):
        reports_of(store)
    chunks = {key for key in store.read if "/c/" in key}
    assert {key.split("/c/")[0] for key in chunks} == {"data/mask", "data/shards"}  # the index
    assert sum("data/plain/c/" in key for key in store.sized) == 4
    assert store.most == 3


def test_check_reads_large_chunks_of_bools_piece_by_piece(tmp_path):
    zarr.create_array(tmp_path, data=np.ones(8 * 2**23, bool), chunks=8 * 2**23, compressors=None)
    store = Watched(LocalStore(tmp_path, read_only=True))
    report, peak = most_memory(lambda: reports_of(store)[""])
    assert report.conforms
    assert store.read.count("c/0") == 8
    assert peak < 6 * 2**23


OLD_TYPES = ["|u1", ">i2", "<f8", "|b1", ">c16", "|S3", "<U2", "|V3", "<M8[s]"]
OLD_TYPES += [[("a", ">i2"), ("b", "|b1")]]
OLD_FLAGS = np.array([(1, 0), (2, 3)], [("a", ">i2"), ("flag", "u1")])


def old(path, **options):
    """An array of format 2 as zarr alone makes it, uncompressed unless `options` say otherwise."""
    options = {"shape": 4, "chunks": 2, "dtype": "<i2", "compressors": None} | options
    config = {"write_empty_chunks": True}
    with zarr.config.set(PLAIN_ZARR):
        return zarr.create_array(path, zarr_format=2, config=config, **options)


def changed(path, **members):
    """Change members of a JSON document."""
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


class TestFormat2:
    @pytest.mark.parametrize("separator", [".", "/"])
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("dtype", OLD_TYPES, ids=str)
    def test_the_sizes_of_chunks_of_format_2_are_checked(self, tmp_path, separator, order, dtype):
        encoding = {"name": "v2", "separator": separator}
        options = {"shape": (5, 7), "chunks": (2, 3), "order": order}
        array = old(tmp_path, dtype=np.dtype(dtype), chunk_key_encoding=encoding, **options)
        array[:3] = np.zeros((3, 7), dtype)
        report = reports_of(tmp_path)[""]
        assert (report.kind, report.zarr_format, report.codecs) == ("array", 2, [])
        data_type = json.loads((tmp_path / ".zarray").read_text())["dtype"]
        assert report.data_type in (data_type, json.dumps(data_type))
        assert (report.chunks, report.stored_chunks, report.not_checked) == (9, 6, "")
        assert report.findings == []
        key = f"1{separator}2"
        os.truncate(tmp_path / key, 5)
        size = 2 * 3 * np.dtype(dtype).itemsize
        assert findings_of(tmp_path) == [(key, "5 bytes", f"{size} bytes")]

    def test_a_bool_of_format_2_that_is_neither_0_nor_1_is_found_though_it_reads_as_true(
        self, tmp_path
    ):
        """Also in a record."""
        for name, dtype, chunk, place in (
            ("plain", "|b1", b"\0\2", 1),
            ("record", [("a", ">i2"), ("flag", "|b1")], OLD_FLAGS.tobytes(), 5),
        ):
            old(tmp_path / name, dtype=np.dtype(dtype))
            (tmp_path / name / "1").write_bytes(chunk)
            found = f"a bool of {chunk[place]} at byte {place}"
            assert findings_of(tmp_path / name) == [("1", found, "0 or 1")]
            values = zarr.open_array(tmp_path / name)[2:]
            assert (values if name == "plain" else values["flag"]).tolist() == [False, True]

    @pytest.mark.parametrize(
        ("options", "codecs"),
        [
            ({"compressors": "auto"}, ["zstd"]),
            ({"filters": Delta("<i2")}, ["delta"]),
            ({"compressors": "auto", "filters": Delta("<i2")}, ["delta", "zstd"]),
            ({"dtype": str}, ["vlen-utf8"]),
        ],
    )
    def test_chunks_of_format_2_with_a_compressor_or_a_filter_are_not_checked(
        self, tmp_path, options, codecs
    ):
        old(tmp_path, **options)[...] = 1 if "dtype" not in options else "text"
        os.truncate(tmp_path / "0", 1)
        report = zarr_bytes.check(tmp_path)
        (node,) = report
        assert (node.codecs, node.not_checked) == (codecs, "not plain bytes")
        assert (node.chunks, node.stored_chunks) == (None, None)
        assert (report.verdict, report.is_complete) == (
            "Conforms; 1 of 1 array not checked in full",
            False,
        )

    def test_a_hierarchy_of_format_2_conforms_with_attributes_and_consolidated_metadata(
        self, tmp_path
    ):
        group = zarr.open_group(tmp_path, mode="w", zarr_format=2)
        group.attrs["title"] = "old"
        old(tmp_path / "a", attributes={"units": "K"})[...] = 7
        group.create_group("deep")
        old(tmp_path / "deep/b", shape=(), chunks=())[...] = 7
        for is_consolidated in False, True:
            if is_consolidated:
                zarr.consolidate_metadata(tmp_path, zarr_format=2)
            report = zarr_bytes.check(tmp_path)
            assert (report.verdict, report.is_complete) == ("Conforms", True)
            assert {node.path: node.stored_chunks for node in report} == {"a": 2, "deep/b": 1}
            assert not any(node.findings for node in report)

    def test_consolidated_metadata_of_format_2_that_differs_from_the_documents_is_found(
        self, tmp_path
    ):
        zarr.open_group(tmp_path, mode="w", zarr_format=2)
        for name in "abc":
            old(tmp_path / name)
        zarr.consolidate_metadata(tmp_path, zarr_format=2)
        changed(tmp_path / "a/.zarray", shape=[8])
        (tmp_path / "b/.zarray").unlink()
        (tmp_path / "c/.zattrs").write_text('{"changed": true}')  # attributes may differ
        old(tmp_path / "d")
        with pytest.raises(KeyError):
            zarr.open_group(tmp_path)["d"]
        assert [(f.subject, f.found) for f in reports_of(tmp_path)[""].findings] == [
            (f".zmetadata: {name}", "differs from its .zarray, or one of them is missing")
            for name in "abd"
        ]

    @pytest.mark.parametrize(
        ("objects", "subject", "found"),
        [
            ({".zarray": "{"}, ".zarray", "JSONDecodeError"),
            ({".zarray": "[]"}, ".zarray", "[] is not a JSON object"),
            ({".zarray": ARRAY_2 | {"dtype": "|O"}}, ".zarray", "No Zarr data type found"),
            ({".zarray": ARRAY_2 | {"dtype": "<q9"}}, ".zarray", "No Zarr data type found"),
            ({".zarray": ARRAY_2 | {"compressor": {"id": "no"}}}, ".zarray", "UnknownCodecError"),
            ({".zarray": ARRAY_2 | {"fill_value": "x"}}, ".zarray", "TypeError"),
            ({".zarray": ARRAY_2 | {"chunks": [2, 2]}}, ".zarray", "must have the same length"),
            ({".zarray": ARRAY_2 | {"order": "A"}}, ".zarray", "ValueError"),
            ({".zarray": ARRAY_2, ".zattrs": "{"}, ".zattrs", "JSONDecodeError"),
            ({".zgroup": "{"}, ".zgroup", "JSONDecodeError"),
            ({".zgroup": GROUP_2, ".zmetadata": "{"}, ".zmetadata", "JSONDecodeError"),
            ({".zgroup": GROUP_2, ".zmetadata": {}}, ".zmetadata", "KeyError: 'metadata'"),
        ],
        ids=str,
    )
    def test_a_node_of_format_2_that_zarr_does_not_open_is_a_finding(self, objects, subject, found):
        report = zarr_bytes.check(memory({}, **objects))
        (node,) = report
        with pytest.raises(Exception):  # noqa: B017, PT011 -- any error of zarr
            zarr.open(memory({}, **objects), mode="r")
        ((where, shown, _),) = [(f.subject, f.found, f.permitted) for f in node.findings]
        assert where == subject
        assert found in shown
        assert (node.conforms, node.stored_chunks, report.conforms) == (False, None, False)

    @pytest.mark.parametrize("text", ["{", "[]", "null", b"\xff"])
    def test_an_array_of_format_2_with_damaged_attributes_is_not_checked(self, text):
        """Some of which zarr 3.1 takes."""
        report = zarr_bytes.check(memory({}, **{".zarray": ARRAY_2, ".zattrs": text, "0": b"1"}))
        (node,) = report
        assert [finding.subject for finding in node.findings] == [".zattrs"]
        assert (node.not_checked, node.stored_chunks) == ("its .zattrs is damaged", None)
        assert report.verdict == "1 of 1 do not conform; 1 of 1 array not checked in full"

    def test_attributes_of_format_2_that_are_not_json_but_that_zarr_reads_are_a_finding(self):
        (node,) = zarr_bytes.check(memory({}, **{".zarray": ARRAY_2, ".zattrs": '{"a": NaN}'}))
        assert [(f.subject, "not JSON" in f.found) for f in node.findings] == [(".zattrs", True)]
        assert node.stored_chunks == 0

    def test_of_a_node_with_documents_of_both_formats_zarr_json_is_checked(self):
        both = {"a/.zarray": ARRAY_2, "a/zarr.json": ARRAY | {"data_type": "int8"}}
        both |= {".zgroup": GROUP_2, "zarr.json": GROUP, "a/c/0": b"xx", "a/0": b"short"}
        report = zarr_bytes.check(memory({}, **both))
        assert [(node.path, node.zarr_format, node.data_type) for node in report] == [
            ("", 3, ""),
            ("a", 3, "int8"),
        ]
        assert [(f.subject, f.found) for node in report for f in node.findings] == [
            (".zgroup", "not checked: zarr opens zarr.json instead"),
            (".zarray", "not checked: zarr opens zarr.json instead"),
        ]
        assert (report.conforms, report.nodes[1].stored_chunks) == (True, 1)

    def test_arrays_of_format_2_are_no_members_of_a_group_of_format_3(self):
        """So that its consolidated metadata has none of them."""
        objects = {"": consolidated({"a": ARRAY}), "a": ARRAY}
        report = zarr_bytes.check(memory(objects, **{"old/.zarray": ARRAY_2}))
        assert [(node.path, node.findings) for node in report] == [("a", []), ("old", [])]

    def test_an_array_of_format_2_on_a_server_that_does_not_list_is_opened(self, tmp_path):
        pytest.importorskip("aiohttp")
        asked = set()

        class Handler(WithoutRanges):
            def list_directory(self, path):
                return self.send_error(403)

            def log_message(self, *args):
                asked.add(self.path)

        old(tmp_path)[...] = 1
        with serving(tmp_path, Handler) as server:
            report = zarr_bytes.check(server.url)
            explained = call("explain", server.url, "[3]").stdout
            gc.collect()
        (node,) = report
        assert (node.zarr_format, node.data_type) == (2, "<i2")
        assert (node.not_checked, node.findings) == ("the store cannot list", [])
        assert report.verdict == "Conforms; 1 of 1 array not checked in full"
        assert "metadata conforms" in str(report)
        assert asked == {"/", "/zarr.json", "/.zarray", "/.zattrs"}
        assert "Reason: a chunk has 4 bytes" in explained


class TestStores:
    def test_a_zip_member_that_is_there_twice_is_one_chunk(self, tmp_path):
        with ZipStore(tmp_path / "a.zip", mode="w") as store:
            array = zarr.create_array(store, shape=4, chunks=2, dtype="i2", compressors=None)
            array[:] = 1
            with pytest.warns(UserWarning, match="Duplicate name: 'c/0'"):
                array[:2] = 2
        assert nodes_of(tmp_path / "a.zip")[""]["stored_chunks"] == 2

    @pytest.mark.parametrize(
        "location", ["FILE://./a.zip", "local://a#1?.zarr", "file://a%20b/c.zarr", "a%20b.zip"]
    )
    def test_a_relative_file_url_names_its_folder_and_none_around_it(
        self, tmp_path, monkeypatch, location
    ):
        """Also one that is called like an archive."""
        monkeypatch.chdir(tmp_path)
        path = unquote(location.partition("://")[2]) or location
        zarr.create_array(LocalStore(path), shape=3, dtype="i4", compressors=None)
        assert list(nodes_of(location)) == [""]

    def test_check_takes_any_path_and_closes_only_the_stores_that_it_opens(
        self, folder, monkeypatch
    ):
        closed, store = [], LocalStore(folder, read_only=True)
        monkeypatch.setattr(LocalStore, "close", lambda store: closed.append(store))
        with os.scandir(folder.parent) as entries:
            assert all(zarr_bytes.check(location).conforms for location in (store, next(entries)))
        assert closed == [store]  # once

    def test_a_store_that_neither_lists_nor_reads_is_an_error(self):
        broken = type("Broken", (WrapperStore,), {"get": None, "list_prefix": None})
        with pytest.raises(zarr_bytes.StoreError, match=": it cannot be read: TypeError: "):
            zarr_bytes.check(broken(MemoryStore()))

    def test_storage_options_beside_an_open_store_are_an_error(self):
        store = memory({"": ARRAY})
        said = f"{store}: storage options are for URLs, and this is an open store"
        with pytest.raises(zarr_bytes.StoreError, match=f"^{re.escape(said)}$"):
            zarr_bytes.check(store, storage_options={"anon": True})
        assert zarr_bytes.check(store, storage_options={}).conforms

    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_a_server_that_does_not_answer_is_named_with_the_error(self, tmp_path, command):
        pytest.importorskip("aiohttp")
        with serving(tmp_path) as server:
            url = server.url
        result = call(command, url)
        gc.collect()
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{url}: it cannot be read: ClientConnectorError: ")
        assert result.stderr.endswith("the server answers, and reading is permitted\n")

    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_a_server_that_has_no_such_address_is_said_to_hold_no_array(self, tmp_path, command):
        pytest.importorskip("aiohttp")
        with serving(tmp_path) as server:
            result = call(command, f"{server.url}/nothing")
            gc.collect()
        assert (result.exit_code, result.stdout) == (2, "")
        said = {
            "check": "it holds no array and no group, no zarr.json, .zarray or .zgroup",
            "explain": "no array is at /, no zarr.json, .zarray or .zgroup: see whether it is"
            " elsewhere",
        }
        assert result.stderr == f"{server.url}/nothing: {said[command]}\n"

    @pytest.mark.parametrize(
        ("url", "missing", "packages"),
        [
            ("https://a.org/b", ["fsspec", "aiohttp"], "fsspec aiohttp"),
            ("simplecache::s3://a", ["fsspec"], "fsspec"),
            ("s3://a", ["fsspec", "s3fs"], "fsspec s3fs"),
            ("memory://a", ["fsspec"], "fsspec"),
        ],
    )
    def test_without_fsspec_the_command_says_what_to_install(
        self, monkeypatch, url, missing, packages
    ):
        if url.endswith("s3://a") and "s3fs" not in missing:
            pytest.importorskip("s3fs")
        for name in (*missing, "fsspec.core"):
            monkeypatch.setitem(sys.modules, name, None)
        result = call("check", url)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{url}: it cannot be opened: ")
        assert result.stderr.endswith(f"; pip install {packages}\n")

    def test_an_fsspec_url_is_checked_and_an_open_store_stays_open(self, folder):
        fs = pytest.importorskip("fsspec").filesystem("memory")
        fs.put(str(folder), "/check.zarr", recursive=True)
        assert nodes_of("memory://check.zarr")["data/plain"]["stored_chunks"] == 4
        options = ['memory={"skip_instance_cache": true}', "--storage-option", "same_names=False"]
        url = "simplecache::memory://check.zarr"
        assert call("check", url, "--storage-option", *options).exit_code == 0
        store = FsspecStore.from_url("memory://check.zarr", read_only=True)
        assert zarr_bytes.check(store).conforms
        assert zarr.open_array(store, path="data/plain", mode="r")[1, 0] == 1

    def test_an_array_that_is_open_keeps_its_connections(self, folder):
        """Though fsspec has one file system for all that zarr opens by HTTP."""
        pytest.importorskip("aiohttp")
        with serving(folder / "data/plain") as server:
            array = zarr.open_array(server.url, mode="r")
            session = array.store.fs._session
            assert zarr_bytes.check(server.url).conforms
            assert array.store.fs._session is session
            assert not session.closed
            assert array[1, 0] == 1

    @pytest.mark.parametrize(
        ("kind", "path", "verdict"),
        [
            ("index", "", "1 of 4 do not conform"),
            ("empty page", "", "Nothing is checked"),
            ("refusal", "data/plain", "Conforms"),
        ],
    )
    def test_http_is_checked_in_full_only_where_the_server_lists(self, folder, kind, path, verdict):
        pytest.importorskip("aiohttp")
        pytest.importorskip("fsspec")
        asked = set()

        class Handler(WithoutRanges):
            def list_directory(self, path):
                if kind == "index":
                    return super().list_directory(path)
                if kind == "refusal":
                    return self.send_error(403)
                self.send_response(200)
                return self.end_headers()

            def log_message(self, *args):
                asked.add(self.path)

        zarr.consolidate_metadata(str(folder))
        (folder / "data/plain/c/1/1").write_bytes(b"short")
        with serving(folder / path, Handler) as server:
            results = [check_json(server.url) for _ in range(2)]  # once more, anew
            gc.collect()  # what a session says that was not closed is an error
        for code, found in results:
            nodes = {node["path"]: node for node in found["nodes"]}
            assert (code, found["verdict"].partition(";")[0]) == (verdict != "Conforms", verdict)
            if kind == "index":
                assert found_in(nodes["data/plain"]) == ["5 bytes"]
            else:
                assert nodes[""]["not_checked"] == "the store cannot list"
                assert nodes[""]["chunks"] is None
                assert asked <= {"/", "/zarr.json"}

    def test_names_in_the_listing_of_a_server_are_unquoted(self, tmp_path):
        pytest.importorskip("aiohttp")
        group = zarr.open_group(tmp_path, mode="w")
        names = ["wind speed/südlich", "run#1", "100%", "why?"]
        for name in names:
            group.create_array(name, shape=4, dtype="i4", compressors=None)[1:] = 1
        zarr.consolidate_metadata(str(tmp_path), path="wind speed")
        with serving(tmp_path, WithoutRanges) as server:
            report, nodes = zarr_bytes.check(server.url), nodes_of(server.url)
        assert report.conforms
        stored = {unquote(path): node["stored_chunks"] for path, node in nodes.items()}
        assert stored == dict.fromkeys(names, 1)
        assert names[0] in nodes

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("{folder}/nothing", ": it does not exist"),
            ("file://nowhere.zarr", ": it does not exist"),
            ("{folder}/nothing.zip", ": it does not exist"),
            (
                "{folder}/empty",
                ": it holds no array and no group, no zarr.json, .zarray or .zgroup",
            ),
            ("{folder}", ": it holds no array and no group, no zarr.json, .zarray or .zgroup"),
            ("{folder}/file", ": it is not a folder, a .zip file or a URL"),
            ("/dev/null", ": it is not a folder, a .zip file or a URL"),
            ("{folder}/damaged.zip", ": it cannot be opened: BadZipFile"),
            ("nosuchscheme://a", ": it cannot be opened: "),
            ("", ": no store is named; . is the folder you are in"),
            (". --storage-option a=b", ": storage options are for URLs, and this is a path"),
            ("s3://a --storage-option =true", "'=true' is not of the form key=value"),
            ("s3://a --storage-option anon", "'anon' is not of the form key=value"),
        ],
    )
    def test_a_store_that_cannot_be_opened_is_one_line_and_exit_status_2(
        self, tmp_path, words, said
    ):
        deep = "[" * 10**5  # which Python's JSON does not read
        assert parse_storage_options([f"a={deep}"]) == {"a": deep}
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("text")
        (tmp_path / "damaged.zip").write_text("text")
        location, *options = words.format(folder=tmp_path).split(" ")
        result = call("check", location, *options)
        assert (result.exit_code, result.stdout) == (2, "")
        place = location if said[0] == ":" else "--storage-option: "
        assert result.stderr.startswith(place + said)
        assert result.stderr.count("\n") == 1


SHOWN = """\
2 of 6 do not conform; 3 of 6 arrays not checked in full: STORE

Node      Data type   Codecs            Chunks
----------------------------------------------------------------------------------------------
/sizes    int16       bytes             2 of 2 stored                        2 findings
/wrong    int16                         not checked: zarr does not open it   1 finding
/large    int16       bytes             1 of about 10^30 stored              conforms
/old      <i2         none (format 2)   0 of 2 stored                        conforms
/packed   int16       bytes, gzip       not checked: not plain bytes         metadata conforms
/small    <i2         zlib (format 2)   not checked: not plain bytes         metadata conforms

/sizes   Found         Permitted
----------------------------------
c/0      3 bytes       1,600 bytes
c/1      1,000 bytes   1,600 bytes

/wrong       Found   Permitted
----------------------------------------------------
fill_value   "1.5"   an integer from -32768 to 32767"""


class TestWhatIsShown:
    def test_columns_of_a_table_are_aligned_without_rich(self):
        documents = {"": GROUP, "packed": ZIPPED, "sizes": document_of("int16", [1600], [800])}
        documents |= {"large": ARRAY | {"shape": [10**30]}, "wrong": WRONG}
        chunks = {"sizes/c/0": b"123", "sizes/c/1": bytes(1000), "large/c/" + "1" * 5000: b""}
        chunks[f"large/c/{10**20}"] = bytes(4)
        small = ARRAY_2 | {"compressor": {"id": "zlib", "level": 1}}
        store = memory(documents, **chunks, **{"old/.zarray": ARRAY_2, "small/.zarray": small})
        assert str(zarr_bytes.check(store)) == SHOWN.replace("STORE", str(store))
        (report,) = zarr_bytes.check(memory({"": ARRAY | {"data_type": {"name": "int16"}}}))
        assert report.data_type == '{"name": "int16"}'
        store = memory({"": GROUP})
        assert str(zarr_bytes.check(store)) == f"Conforms: {store}"
        if "rectilinear_chunks" in zarr.config.get("array"):  # from zarr 3.3 on
            chunks = {"kind": "inline", "chunk_shapes": [[1, 3]]}
            grid = {"name": "rectilinear", "configuration": chunks}
            (report,) = zarr_bytes.check(memory({"": ARRAY | {"chunk_grid": grid}}))
            assert report.not_checked == "chunks of several shapes"

    def test_check_works_in_a_notebook_whose_event_loop_runs(self):
        async def cell():
            return zarr_bytes.check(memory({"": ARRAY}))

        assert asyncio.run(cell()).conforms
        with pytest.raises(TypeError, match="int; permitted are a path, a URL and a zarr store"):
            zarr_bytes.check(5)

    @pytest.mark.parametrize(
        ("documents", "verdict", "is_complete", "colours"),
        [
            ([GROUP], "Conforms", True, "2"),
            ([ARRAY], "Conforms", True, "22"),
            (["old"], "Conforms", True, "22"),
            (["old, compressed"], "Conforms; 1 of 1 array", False, "33"),
            ([ARRAY, ZIPPED], "Conforms; 1 of 2 arrays", False, "323"),
            ([ARRAY, ZIPPED, WRONG], "1 of 3 do not conform; 2 of 3 arrays", False, "1123"),
            ([ZIPPED, "{"], "1 of 2 do not conform; 1 of 1 array", False, "113"),
            # Groups count as nodes.
            ([WRONG_GROUP, WRONG, ARRAY], "2 of 3 do not conform; 1 of 2 arrays", False, "1112"),
            ([WRONG_GROUP, ARRAY], "1 of 2 do not conform", False, "112"),
        ],
        ids=str,
    )
    def test_the_verdict_is_in_the_headline_in_json_and_in_the_exit_status_of_strict(
        self, tmp_path, monkeypatch, documents, verdict, is_complete, colours
    ):
        """In red (1), green (2) or yellow (3), as are the nodes."""
        status = not verdict.startswith("Conforms")
        for name, document in enumerate(documents):
            if str(document).startswith("old"):
                options = {} if document == "old, compressed" else {"compressors": None}
                path = tmp_path / str(name)
                zarr.create_array(path, shape=4, dtype="f4", zarr_format=2, **options)
            else:
                write(tmp_path / str(name), document)
        verdict += " not checked in full" * (";" in verdict)
        assert call("check", tmp_path).stdout.startswith(f"{verdict}: ")
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        shown = re.findall(r"\x1b\[(?:1;)?3([123])m", call("check", tmp_path).stdout)
        assert "".join(shown) in (colours, "")  # none without rich
        code, found = check_json(tmp_path)
        assert (code, found["verdict"], found["conforms"]) == (status, verdict, not status)
        assert found["is_complete"] == is_complete
        assert check_json(tmp_path, "--strict")[0] == (status or not is_complete)

    @pytest.mark.parametrize(
        ("options", "number", "count"), [([], 30, 20), (["--all"], 30, 30), ([], 20, 20)]
    )
    def test_nodes_with_findings_come_first_and_of_many_nodes_and_findings_some_are_listed(
        self, tmp_path, options, number, count
    ):
        for i in range(number):
            write(tmp_path / f"a{i}")
        wrong = ARRAY | {"shape": [60], "chunk_grid": regular([2])}
        write(tmp_path / "a7", wrong, **{f"c{i}": b"xx" for i in range(number)})
        lines = call("check", tmp_path, *options).stdout.splitlines()
        rows = [line.split()[0] for line in lines if line.startswith("/a")]
        assert rows[0] == rows[-1] == "/a7"  # and the table of its findings
        assert len(rows) == count + 1
        more = ["... and 10 more: --all lists them"] * (number > count)
        more += ["... and 10 more: zarr-bytes check --json gives all"] * (number > 20)
        assert [line.strip() for line in lines if "..." in line] == more
        assert lines[0] == lines[-1] == f"1 of {number} do not conform: {tmp_path}"
        subjects = [finding["subject"] for finding in nodes_of(tmp_path)["a7"]["findings"]]
        assert subjects == sorted(f"c/{i}" for i in range(number))
        for i in range(number):
            write(tmp_path / f"a{i}", WRONG)
        assert call("check", tmp_path, *options).stdout.count("fill_value") == count

    @needs_rich
    def test_columns_of_a_table_are_aligned_in_any_script(self, tmp_path, monkeypatch):
        """A terminal shows some characters in two columns, which `rich` knows."""
        from rich.cells import cell_len

        for name in ("plain", "溫度" * 12):
            zarr.create_array(tmp_path, name=name, shape=1, dtype="int8", compressors=None)
        monkeypatch.setenv("COLUMNS", "60")
        lines = call("check", tmp_path).stdout.splitlines()
        one, other = (cell_len(line.partition("int8")[0]) for line in lines if "int8" in line)
        assert one == other
        assert max(cell_len(line) for line in lines if "溫" in line) <= 60

    @needs_rich
    def test_a_terminal_that_does_not_know_its_width_has_80_columns(self, folder, monkeypatch):
        shown = []
        for columns in "80", "0":
            monkeypatch.setenv("COLUMNS", columns)
            shown.append(call("check", folder).stdout)
        assert shown[0] == shown[1] != ""

    @needs_rich
    def test_a_progress_bar_counts_on_a_terminal(self, folder, monkeypatch):
        terminal = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})
        monkeypatch.setattr("command.io.StringIO", terminal)
        monkeypatch.setenv("TERM", "xterm")
        assert "chunk 4 of 4 /data/mask" in call("check", folder).stderr
