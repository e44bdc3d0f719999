"""Does a store conform: what is found, what is read for it, what is shown."""

import asyncio
import contextlib
import gc
import hashlib
import http.server
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import pytest
import zarr
from command import Unlistable, Watched, call, check_json, nodes_of, reports_of
from documents import (
    ARRAY,
    BIG,
    ENDIAN,
    GZIP,
    LITTLE,
    memory,
    regular,
    store_of,
    struct_of,
    text_of,
    write,
)
from hypothesis import example, given
from hypothesis import strategies as st
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

import zarr_bytes

# Consolidated metadata is not in the specification, of which zarr warns.
pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")

BARE = [{"name": "bytes"}]


def findings_of(store):
    """Subject, found and permitted of everything that is not permitted in the only array."""
    (report,) = reports_of(store).values()
    return [(f.subject, f.found, f.permitted) for f in report.findings if not f.is_note]


def edit(path, **members):
    """Change members of a metadata document on disk."""
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


@pytest.fixture
def folder(tmp_path):
    """A hierarchy of three arrays that conforms."""
    root = tmp_path / "a.zarr"
    group = zarr.open_group(root, mode="w")
    for name, dtype, compressors in (
        ("plain", "f4", None),
        ("mask", "bool", None),
        ("packed", "i2", "auto"),
    ):
        group.create_array(
            f"data/{name}", shape=(6, 6), chunks=(3, 4), dtype=dtype, compressors=compressors
        )[...] = 1
    return root


@pytest.fixture
def with_a_finding(folder):
    """The same, with one chunk that is a byte too short."""
    (folder / "data/plain/c/1/0").write_bytes(b"x" * 47)
    return folder


class TestMetadata:
    @pytest.mark.parametrize(
        ("data_type", "fill_value", "codecs"),
        [
            ("float32", 0, LITTLE),
            ("float32", "0x7f800001", BIG),
            ("complex64", ["NaN", -1.5], LITTLE),
            ("uint8", 255, BARE),
            ("int8", -128, [{"name": "bytes", "configuration": {}}]),
            ("bool", True, LITTLE),
            ("r24", [0, 1, 255], BARE),
            ("int64", 2**63 - 1, [*LITTLE, GZIP]),
            ("string", "", [{"name": "vlen-utf8"}]),
        ],
    )
    def test_what_the_specification_permits_has_no_finding(self, data_type, fill_value, codecs):
        assert findings_of(store_of(data_type, fill_value=fill_value, codecs=codecs)) == []

    @pytest.mark.parametrize(
        ("member", "value", "found", "permitted"),
        [
            ("codecs", {"name": "bytes"}, "needs a byte order", '{"endian": "little"}'),
            ("codecs", {"configuration": {"endian": "middle"}}, "middle", "'little'"),
            ("codecs", {"configuration": {"endian": None}}, "null", '"little"'),
            ("codecs", {"configuration": {"endian": "big", "x": 1}}, '"x"', "'endian'"),
            ("codecs", {"configuration": 3}, "3", "an object"),
            ("codecs", {**LITTLE[0], "level": 3}, '"level"', '"configuration"'),
            ("codecs", ENDIAN[0], "endian", '"name": "bytes"'),
            ("shape", 2, "2", "an array of integers from 0 on"),
            ("shape", True, "true", "an array of integers from 0 on"),
            ("shape", [True], "[true]", "an array of integers from 0 on"),
            ("chunk_grid", [0], "[0]", "an array of integers from 1 on"),
            ("chunk_grid", 2, "2", "an array of integers from 1 on"),
            ("chunk_grid", [True], "[true]", "an array of integers from 1 on"),
            ("data_type", "float33", '"float33"', ""),
            ("data_type", "r12", '"r12"', ""),
            ("data_type", 3, "3", ""),
            ("data_type", None, "null", ""),
            ("data_type", {"name": "x"}, '{"name": "x"}', ""),
            ("zarr.json", {"dimension_names": ["1", "2"]}, "zarr does not open it", ""),
            ("zarr.json", {"fill_value": float("nan")}, "NaN is not JSON", '"NaN"'),
            ("more", 1, "1", '"must_understand": false'),
            ("more", {"x": 1}, '{"x": 1}', '"must_understand": false'),
        ],
    )
    def test_what_is_not_is_found_beside_what_is(self, member, value, found, permitted):
        members = {member: value}
        match member:
            case "codecs":
                members = {"codecs": [{"name": "bytes"} | value]}
            case "chunk_grid":
                members = {"chunk_grid": regular(value)}
            case "zarr.json":
                members = value
        base = ARRAY | {"data_type": "float32", "ignored": {"must_understand": False}}
        (subject, shown, allowed), *others = findings_of(memory({"": base | members}))
        assert subject == {"codecs": "codecs[0]"}.get(member, member)
        assert found in shown
        assert permitted in allowed
        assert [other for other in others if "NaN" not in other[1]] == []

    @pytest.mark.parametrize(
        ("codecs", "found"),
        [
            ([], "no array -> bytes codec"),
            ([*LITTLE, *LITTLE], "2 array -> bytes codecs"),
            ([GZIP, *LITTLE], "the order gzip, bytes"),
            ([*LITTLE, {"name": "no-such-codec"}], "unknown codec"),
            ([{}, *LITTLE], "{}"),
            ("bytes", '"bytes"'),
        ],
    )
    def test_a_chain_that_is_none_is_found(self, codecs, found):
        assert any(found in f[1] for f in findings_of(store_of("float32", codecs=codecs)))

    @pytest.mark.parametrize(
        ("data_type", "index_codecs", "found"),
        [
            ("int16", ENDIAN, ["codecs[0].codecs[0]", "codecs[0].index_codecs[0]"]),
            ("uint8", BARE, ["codecs[0].index_codecs[0]"]),  # its elements are of 8 bytes
        ],
    )
    def test_the_chains_within_a_shard_are_checked_too(self, data_type, index_codecs, found):
        configuration = {"chunk_shape": [1], "codecs": BARE, "index_codecs": index_codecs}
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        assert [f[0] for f in findings_of(store_of(data_type, codecs=codecs))] == found

    @pytest.mark.parametrize(
        ("data_type", "fill_value", "permitted"),
        [
            ("float32", "1.5", "a number"),
            ("int16", 1.0, "no fraction or exponent: 1"),
            ("int16", 40000, "an integer from -32768 to 32767"),
            ("bool", 0, "true or false"),
            ("complex64", 1, "an array of two components"),
            ("r16", "AAE=", "an array of integers: [0, 1]"),
            ("float64", None, "a number"),
        ],
    )
    def test_a_fill_value_that_is_not_permitted_is_found_whatever_is_set(
        self, data_type, fill_value, permitted
    ):
        lenient = {
            "zarr_bytes.fill_values": "lenient",
            "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
        }
        for settings in ({}, lenient):
            with zarr.config.set(settings):
                findings = findings_of(store_of(data_type, fill_value=fill_value))
            assert findings[0][:2] == ("fill_value", json.dumps(fill_value))
            assert permitted in findings[0][2]

    def test_a_data_type_that_needs_a_package_says_which(self, without_ml_dtypes):
        ((_, found, permitted),) = findings_of(store_of("bfloat16"))
        assert found == '"bfloat16"'
        assert permitted.endswith('ml_dtypes, 0.6 or newer: pip install "ml_dtypes>=0.6"')

    @pytest.mark.parametrize("member", [m for m in ARRAY if m not in ("node_type", "attributes")])
    def test_a_member_that_is_missing_is_found(self, member):
        document = {name: value for name, value in ARRAY.items() if name != member}
        assert (member, "missing", "required") in findings_of(memory({"": document}))

    @pytest.mark.parametrize(
        ("codecs", "promise"), [(ENDIAN, "writes it"), ([], "adds bytes"), (None, "adds bytes")]
    )
    @pytest.mark.parametrize(
        "others",
        [
            {},
            {"fill_value": 1.0},  # not permitted either, but zarr opens it
            {"fill_value": "1"},
            {"fill_value": None},
            {"codecs": [*LITTLE, {"name": "no-such-codec"}]},
            {"dimension_names": ["one", "two"]},
            {"more": 1},
            "utf-16",
        ],
        ids=str,
    )
    def test_migrate_is_promised_just_where_it_writes(self, codecs, promise, others):
        members, encoding = ({}, others) if isinstance(others, str) else (others, "utf-8")
        document = ARRAY | members | {"codecs": [*(codecs or []), *members.get("codecs", [])]}
        if codecs is None and not document["codecs"]:
            del document["codecs"]
        store = memory({"": json.dumps(document).encode(encoding)})
        for fill_values in ("strict", "lenient"):
            with (
                warnings.catch_warnings(),
                zarr.config.set({"zarr_bytes.fill_values": fill_values}),
            ):
                warnings.simplefilter("ignore")  # of fill values that are not permitted
                is_written = bool(zarr_bytes.migrate(store, dry_run=True).changes)
                found = zarr_bytes.check(store)
            (report,) = found
            assert [f.migrate for f in report.findings if f.migrate] == [promise] * is_written
            assert (f"zarr-bytes migrate {promise}" in " ".join(str(found).split())) == is_written


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("abc/.", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "configuration", "endian", "codecs", "separator", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
NAMES = ["bytes", "endian", "gzip", "transpose", "sharding_indexed", "vlen-utf8", "none"]
CONFIGURATIONS = [{"endian": "little"}, {"level": 1}, {"order": [0]}]
TURN_INTO_BYTES = ("bytes", "endian", "vlen-utf8", "sharding_indexed")
IS_PERMITTED = {
    "zarr_format": lambda value: value == 3,
    "node_type": lambda value: value == "array",
    "shape": lambda value: isinstance(value, list) and type(value[0]) is int and value[0] >= 0,
    "fill_value": lambda value: type(value) is int and -(2**15) <= value < 2**15,
    "more": lambda value: value["must_understand"] is False,
}


class TestAnyDocument:
    """What conforms is permitted and opens; anything else is a finding, and never an error."""

    @given(st.dictionaries(st.sampled_from([*ARRAY, "more"]), json_values, max_size=3))
    def test_with_members_of_any_kind(self, members):
        store = memory({"": ARRAY | members})
        (report,) = reports_of(store).values()
        assert report.conforms or members
        if report.conforms:
            assert zarr.open_array(store, mode="r").ndim == 1
            for name in members.keys() & IS_PERMITTED.keys():
                assert IS_PERMITTED[name](members[name])

    @given(
        st.lists(
            st.sampled_from(NAMES)
            | st.fixed_dictionaries(
                {"name": st.sampled_from(NAMES)},
                optional={"configuration": st.sampled_from(CONFIGURATIONS) | json_values},
            ),
            max_size=3,
        ),
        st.sampled_from([("int16", 0), ("bool", True), ("string", ""), ("r16", [0, 1])]),
    )
    def test_with_codecs_of_any_configuration(self, codecs, element):
        data_type, fill_value = element
        store = store_of(data_type, codecs=codecs, fill_value=fill_value)
        findings = findings_of(store)
        if codecs == BARE:
            assert bool(findings) == (data_type in ("int16", "string"))
        if not findings:
            assert zarr.open_array(store, mode="r").shape == (2,)
            names = [codec["name"] for codec in codecs]
            assert len([name for name in names if name in TURN_INTO_BYTES]) == 1
            assert not {"endian", "none"} & set(names)

    @given(st.binary(max_size=20))
    @example(b"[" * 100_000)  # deeper than Python reads
    def test_that_is_any_bytes(self, text):
        (report,) = reports_of(memory({"": text})).values()
        assert report.kind == "unreadable"
        assert not report.conforms


class TestHierarchy:
    def test_every_array_is_found_and_conforms(self, folder):
        code, found = check_json(folder)
        nodes = {node["path"]: node for node in found["nodes"]}
        assert code == 0
        assert set(nodes) == {"data/plain", "data/mask", "data/packed"}
        assert nodes["data/plain"]["stored_chunks"] == nodes["data/plain"]["chunks"] == 4
        assert all(node["conforms"] for node in nodes.values())
        assert nodes["data/packed"]["not_checked"] == "not plain bytes"

    def test_shards_are_named_as_what_is_not_checked(self):
        layout = {"shape": 4, "shards": (4,), "chunks": (2,), "compressors": None}
        array = zarr.create_array({}, dtype="i4", **layout)
        (report,) = zarr_bytes.check(array.store)
        assert report.not_checked == "shards"

    def test_broken_documents_do_not_stop_it(self):
        class Unreadable(WrapperStore):
            async def get(self, key, *args, **kwargs):
                if key == "secret/zarr.json":
                    raise PermissionError("no")
                return await self._store.get(key, *args, **kwargs)

        broken = {
            "brace": "{",
            "group": "{",  # and what is below it is found
            "bytes": b"\xff\xfe",
            "codec": ARRAY | {"codecs": [{"name": "no-such-codec"}]},
            "list": "[]",
            "secret": ARRAY,
        }
        whole = dict.fromkeys(("a", "group/a", "whole"), ARRAY)
        reports = reports_of(Unreadable(memory(broken | whole)))
        assert reports.keys() == broken.keys() | whole.keys()
        assert {path for path, report in reports.items() if report.conforms} == whole.keys()

    def test_a_consolidated_copy_that_differs_is_found(self, folder):
        zarr.consolidate_metadata(str(folder))
        edit(folder / "data/plain/zarr.json", attributes={"changed": 1})
        assert zarr_bytes.check(folder).conforms
        edit(folder / "data/plain/zarr.json", fill_value=7.0)
        reports = reports_of(LocalStore(folder))
        assert "consolidated" in reports["data/plain"].findings[0].found
        assert reports["data/mask"].conforms

    @pytest.mark.parametrize("paths", [["a"], ["a/b", "a"]], ids=str)
    def test_what_lies_beside_a_consolidated_group_has_no_copy_there(self, paths):
        group = zarr.group(MemoryStore())
        for name in ("a/b/x", "ab/y", "c"):
            group.create_array(name, shape=3, dtype="i4", compressors=None)
        for path in paths:
            zarr.consolidate_metadata(group.store, path=path)
        reports = reports_of(group.store)
        assert reports.keys() >= {"a/b/x", "ab/y", "c"}
        assert [report.findings for report in reports.values() if report.findings] == []

    def test_a_store_with_nothing_but_format_2_does_not_conform(self, tmp_path):
        zarr.create_array(tmp_path, shape=4, dtype="f4", zarr_format=2)
        result = call("check", tmp_path)
        assert result.exit_code == 1
        assert result.stdout.startswith("Not checked: it holds nothing but Zarr format")
        assert nodes_of(tmp_path)[""]["kind"] == "format 2"


ENCODINGS = [
    {"name": "default"},
    {"name": "default", "configuration": {"separator": "."}},
    {"name": "v2"},
    {"name": "v2", "configuration": {"separator": "/"}},
]


def array_of(shape, chunk_shape, encoding):
    """The document of an array of bytes, and the keys of its chunks as zarr has them."""
    members = {"shape": shape, "data_type": "uint8", "chunk_grid": regular(chunk_shape)}
    document = ARRAY | members | {"chunk_key_encoding": encoding}
    metadata = zarr.open_array(memory({"": document}), mode="r").metadata
    counts = [-(-n // m) for n, m in zip(shape, chunk_shape, strict=True)]
    return document, {metadata.encode_chunk_key(index) for index in np.ndindex(*counts)}


class TestChunkKeys:
    @pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
    @pytest.mark.parametrize(
        ("shape", "chunk_shape"), [((6, 6), (3, 4)), ((), ()), ((5,), (2,)), ((0, 3), (1, 2))]
    )
    def test_the_keys_are_those_that_zarr_writes(self, shape, chunk_shape, encoding):
        document, keys = array_of(shape, chunk_shape, encoding)
        stored = memory({"": document}, **dict.fromkeys(keys, bytes(prod(chunk_shape))))
        for store in (stored, asked := Unlistable(stored)):
            (report,) = reports_of(store).values()
            assert report.findings == []
            assert report.stored_chunks == report.chunks == len(keys)
        assert sorted(asked.sized) == sorted(keys)

    @given(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=3),
        st.sampled_from(ENCODINGS),
        st.text("c0123./", min_size=1, max_size=8).filter(lambda key: not key.endswith("/")),
    )
    def test_any_other_key_is_no_chunk_of_the_grid(self, dimensions, encoding, key):
        shape, chunk_shape = [n for n, _ in dimensions], [m for _, m in dimensions]
        document, keys = array_of(shape, chunk_shape, encoding)
        size = prod(chunk_shape)
        (report,) = reports_of(memory({"": document}, **{key: bytes(size)})).values()
        assert report.stored_chunks == (key in keys)
        notes = [f.is_note for f in report.findings if key in f.found]
        assert notes == [True] * (key not in keys)

    @pytest.mark.parametrize(
        ("key", "is_chunk"),
        [
            ("0", True),
            ("00", False),
            ("01", False),
            (str(10**400 - 2), True),
            (str(10**400 - 1), False),
            ("9" * 5000, False),  # more digits than Python reads
        ],
        ids=["0", "00", "01", "last", "next", "long"],
    )
    def test_coordinates_are_numbers_as_they_are_written(self, key, is_chunk):
        members = {"shape": [10**400 - 1], "chunk_grid": regular([1])}
        document = ARRAY | members | {"chunk_key_encoding": {"name": "v2"}}
        (report,) = reports_of(memory({"": document}, **{key: bytes(2)})).values()
        assert report.stored_chunks == is_chunk
        # zarr 3.2 makes a float of the shape, and refuses it.
        findings = [f.is_note for f in report.findings if f.subject != "zarr.json"]
        assert findings == [True] * (not is_chunk)

    @pytest.mark.parametrize(
        ("members", "reason"),
        [
            ({"shape": None}, "shape is null"),
            ({"shape": [-1]}, "shape is [-1]"),
            ({"chunk_grid": {"name": "rectilinear"}}, "the chunk grid is not regular"),
            ({"chunk_grid": regular([0])}, "chunk_shape is [0]"),
            ({"chunk_grid": regular([1, 1])}, "shape has 1 dimensions and chunk_shape 2"),
            ({"chunk_key_encoding": {"name": "other"}}, '"other" is not known here'),
            (
                {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}},
                "'/' or '.'",
            ),
        ],
        ids=str,
    )
    def test_any_other_grid_is_not_checked_and_says_why(self, members, reason):
        (report,) = reports_of(memory({"": ARRAY | members})).values()
        assert reason in report.not_checked
        assert report.chunks is None


class TestChunks:
    @pytest.mark.parametrize("codecs", [LITTLE, [], ENDIAN])
    @pytest.mark.parametrize("size", [0, 47, 49])
    def test_a_chunk_of_another_size_is_found_with_both_sizes(self, folder, size, codecs):
        edit(folder / "data/plain/zarr.json", codecs=codecs)
        (folder / "data/plain/c/1/0").write_bytes(bytes(size))
        *of_codecs, finding = findings_of(LocalStore(folder / "data/plain"))
        assert finding == ("c/1/0", f"{size} bytes", "48 bytes")  # 3 x 4 of 4 bytes each
        assert len(of_codecs) == (codecs != LITTLE)

    def test_a_chunk_that_is_not_stored_is_no_finding_and_one_of_no_grid_a_note(self, folder):
        (folder / "data/plain/c/1/0").unlink()
        (folder / "data/plain/c/9").mkdir()
        (folder / "data/plain/c/9/0").write_bytes(b"")
        report = reports_of(LocalStore(folder))["data/plain"]
        assert report.conforms
        assert report.stored_chunks == 3
        assert [(f.is_note, "c/9/0" in f.found) for f in report.findings] == [(True, True)]

    @pytest.mark.parametrize("item", [1, 3], ids=["alone", "in a record"])
    def test_a_bool_that_is_neither_0_nor_1_is_found_also_where_a_chunk_is_read_in_pieces(
        self, item
    ):
        record = struct_of(n="int16", flag="bool")
        item = item if hasattr(zarr.dtype, "Struct") else 1  # from zarr 3.2 on
        data_type, fill_value = ("bool", False) if item == 1 else (record, {"n": 0, "flag": False})
        piece = 2**23 // item  # elements that are read at once
        for place in (0, piece - 1, piece, piece + 1, 3000 * 3000 - 1):
            flags = np.zeros((3000 * 3000, item), "u1")
            flags[place, -1] = 255
            store = store_of(data_type, shape=(3000, 3000), fill_value=fill_value, chunk=flags)
            ((_, found, _),) = findings_of(store)
            byte = place * item + item - 1
            assert found == f"a bool of 255 at index {divmod(place, 3000)}, byte {byte:,}"


def unfinished(write):
    """Files that `write` leaves behind if it is killed before it renames or links them."""
    kept = []

    def first_kept(act):
        def keep(source, *arguments, **options):
            kept.append((source, Path(source).read_bytes()))
            return act(source, *arguments, **options)

        return keep

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "replace"), (os, "link"), (Path, "replace")):
            patch.setattr(owner, name, first_kept(getattr(owner, name)))
        write()
    return {Path(path): content for path, content in kept}


class TestUnfinishedFiles:
    """What a writer that was killed has left, by the names that writers give it."""

    @pytest.fixture(params=["plain", "packed", "shards", "format 2", "in place"])
    def array(self, request, folder):
        match request.param:
            case "shards":
                options = {"shape": (6,), "chunks": (3,), "shards": (6,), "dtype": "i2"}
                return zarr.create_array(folder, name="data/shards", **options)
            case "format 2":
                options = {"shape": (6, 6), "dtype": "i2", "zarr_format": 2}
                return zarr.create_array(folder, name="data/old", **options)
            case "in place":
                (folder / "data/plain/c/0/0").unlink()
                with zarr.config.set({"zarr_bytes.partial_writes": True}):
                    return zarr.open_array(folder, path="data/plain", mode="r+")
        return zarr.open_array(folder, path=f"data/{request.param}", mode="r+")

    def test_are_a_note_that_says_they_may_be_deleted(self, array, folder):
        files = unfinished(lambda: array.__setitem__(0, 7))
        assert files
        for path, content in files.items():
            path.write_bytes(content)
        (note,) = reports_of(LocalStore(folder))[array.path].findings
        assert note.is_note
        assert note.subject == "*.partial"
        text = f"{len(files)} left by interrupted writes; may be deleted while nobody writes: "
        assert note.found.startswith(text)
        assert min(files).relative_to(folder / array.path).as_posix() in note.found

    @pytest.mark.parametrize("path", ["data", "data/plain", "data/packed"])
    def test_of_a_document_are_too(self, folder, path):
        node = zarr.open(folder, path=path, mode="r+")
        (file,) = unfinished(lambda: node.update_attributes({"more": 1}))
        file.write_bytes(b"{")
        report = reports_of(LocalStore(folder))[path]
        assert report.conforms
        assert [f.found.partition(": ")[2] for f in report.findings] == [file.name]

    def test_are_counted_and_three_are_named(self, folder):
        for digit in "edcba":
            (folder / f"data/packed/c/0/0.{digit * 32}.partial").write_bytes(b"")
        (note,) = reports_of(LocalStore(folder))["data/packed"].findings
        assert note.found.startswith("5 left by")
        names = [f"c/0/0.{digit * 32}.partial" for digit in "abc"]
        assert note.found.endswith(f": {', '.join(names)}, ...")


class Silent(Watched):
    """As a server that lists nothing, and does not say that it cannot."""

    async def list_dir(self, prefix):
        for name in ():
            yield name

    list_prefix = list_dir


class TestWhatIsRead:
    def test_no_data_is_read_but_of_bools_and_requests_are_concurrent(self, folder):
        store = Watched(LocalStore(folder, read_only=True))
        with zarr.config.set({"async.concurrency": 3}):
            reports_of(store)
        chunks = {key for key in store.read if "/c/" in key}
        assert {key.split("/c/")[0] for key in chunks} == {"data/mask"}
        assert sum("data/plain/c/" in key for key in store.sized) == 4
        assert store.most == 3

    def test_nothing_is_written(self, folder):
        def files():
            return {
                path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
                for path in folder.rglob("*")
                if path.is_file()
            }

        before = files()
        call("check", folder)
        assert files() == before

    def test_what_cannot_be_read_or_listed_is_a_finding(self, folder):
        class Failing(Watched):
            async def getsize(self, key):
                if key.endswith("plain/c/0/1"):
                    raise OSError("gone")
                return await super().getsize(key)

            async def list_prefix(self, prefix):
                if prefix == "data/mask/":
                    raise OSError("no list")
                async for name in self._store.list_prefix(prefix):
                    yield name

            async def list_dir(self, prefix):
                if prefix == "data/deep":
                    raise OSError("no list")
                async for name in self._store.list_dir(prefix):
                    yield name

        zarr.create_group(folder, path="data/deep")
        reports = reports_of(Failing(LocalStore(folder, read_only=True)))
        assert "no list" in reports["data/deep"].findings[0].found
        assert "no list" in reports["data/mask"].findings[0].found
        plain = reports["data/plain"]
        assert [(f.subject, f.found) for f in plain.findings] == [("c/0/1", "OSError: gone")]
        assert plain.stored_chunks == 3
        assert reports["data/packed"].conforms

    @pytest.mark.parametrize("kind", [Unlistable, Silent])
    def test_a_store_whose_listing_shows_nothing_is_asked_for_every_chunk(self, folder, kind):
        (folder / "data/plain/c/1/0").unlink()
        store = kind(LocalStore(folder / "data/plain", read_only=True))
        (report,) = reports_of(store).values()
        assert report.conforms
        assert report.stored_chunks == 3
        assert len(store.sized) == 4

    def test_a_store_that_cannot_list_is_walked_by_consolidated_metadata(self, folder):
        store = Unlistable(LocalStore(folder, read_only=True))
        (report,) = reports_of(store).values()
        assert "name an array" in report.findings[0].found
        assert not zarr_bytes.check(store).conforms
        zarr.consolidate_metadata(str(folder))
        assert set(reports_of(store)) == {"data/plain", "data/mask", "data/packed"}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("length", "chunks"), [(10**6, "1,000,000,000,000"), (10**300, "about 10^600")]
    )
    def test_the_requests_to_a_store_that_cannot_list_are_bounded(self, length, chunks):
        class Empty(Unlistable):
            async def getsize(self, key):
                self.sized.append(key)
                raise FileNotFoundError

        store = Empty(store_of("uint8", shape=(length, length), chunk_shape=(1, 1)))
        (report,) = reports_of(store).values()
        assert store.sized == [f"c/0/{i}" for i in range(100_000)]
        assert report.chunks == length**2
        assert f"100,000 of {chunks} chunks" in " ".join(f.found for f in report.findings)
        assert report.not_checked == "too many to request"


class TestStores:
    def test_a_folder_of_chunks_that_may_not_be_read_is_found(self, folder, monkeypatch):
        scandir = os.scandir

        def refuse(path):  # an administrator, who may run this, is refused nothing
            if str(path).endswith("plain/c"):
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refuse)
        found = [f.found for f in reports_of(LocalStore(folder))["data/plain"].findings]
        assert "cannot be listed" in " ".join(found)

    def test_of_a_zip_file_folders_are_no_chunks_and_sizes_come_from_its_directory(
        self, folder, monkeypatch
    ):
        path = shutil.make_archive(str(folder), "zip", folder)
        read = []
        get = ZipStore.get

        async def watched(self, key, *args, **kwargs):
            read.append(key)
            return await get(self, key, *args, **kwargs)

        monkeypatch.setattr(ZipStore, "get", watched)
        nodes = nodes_of(path)
        assert nodes["data/plain"]["findings"] == []
        assert nodes["data/plain"]["stored_chunks"] == 4
        assert not any("plain/c/" in key for key in read)

    def test_a_file_url(self, folder):
        assert check_json(folder.as_uri())[0] == 0
        assert check_json(folder.as_uri().replace("//", "//localhost"))[0] == 0

    @pytest.mark.parametrize("name", ["a.zarr", "./a.zarr", "a#1?.zarr", "a/b.zarr"])
    def test_a_relative_file_url_is_of_that_folder_and_not_of_one_around_it(
        self, tmp_path, monkeypatch, name
    ):
        monkeypatch.chdir(tmp_path)
        zarr.create_array(LocalStore(name), shape=3, dtype="i4", compressors=None)
        assert list(nodes_of(f"file://{name}")) == [""]
        assert call("check", "file://nowhere.zarr").output == (
            "file://nowhere.zarr: it does not exist\n"
        )

    def test_an_fsspec_url(self, folder):
        fs = pytest.importorskip("fsspec").filesystem("memory")
        fs.put(str(folder), "/check.zarr", recursive=True)
        assert nodes_of("memory://check.zarr")["data/plain"]["stored_chunks"] == 4
        option = 'memory={"skip_instance_cache": true}'
        url = "simplecache::memory://check.zarr"
        assert call("check", url, "--storage-option", option).exit_code == 0
        fs.pipe("/check.zarr/data/plain/c/0/0", b"short")
        assert check_json("memory://check.zarr")[0] == 1

    @pytest.mark.parametrize("lists", [True, False], ids=["with index", "without"])
    def test_http(self, folder, lists):
        pytest.importorskip("aiohttp")
        pytest.importorskip("fsspec")

        class Handler(http.server.SimpleHTTPRequestHandler):
            def list_directory(self, path):
                return super().list_directory(path) if lists else self.send_error(403)

            def log_message(self, *args):
                pass

        (folder / "data/plain/c/1/1").write_bytes(b"short")
        handler = partial(Handler, directory=folder / "data/plain")
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            results = [call("check", "--json", url) for _ in range(2)]  # once more, anew
            gc.collect()  # what a session says that was not closed is an error
            server.shutdown()
        for result in results:
            (node,) = json.loads(result.stdout)["nodes"]
            assert result.exit_code == 1
            assert result.stderr == ""
            assert node["stored_chunks"] == 4
            assert [f["subject"] for f in node["findings"]] == ["c/1/1"]


on_posix = pytest.mark.skipif(
    os.name != "posix", reason="pseudo-terminals and signals to threads are POSIX"
)


@on_posix
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="the progress bar is rich's")
@pytest.mark.parametrize(
    ("patience", "on_terminal", "is_shown"),
    [(0, True, True), (100, True, False), (0, False, False)],
)
def test_a_progress_bar_counts_on_a_terminal_where_it_takes_long(
    folder, patience, on_terminal, is_shown
):
    """What a real process writes to stderr, with another patience before the progress bar."""
    code = (
        "import sys, zarr_bytes.commands.rich_screen as screen\n"
        "from zarr_bytes.commands.command_line import main\n"
        f"screen._PATIENCE = {patience}; sys.exit(main(['check', sys.argv[1]]))"
    )
    parent, child = os.openpty() if on_terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=child,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(child)
    written = b""
    with contextlib.suppress(OSError):  # how a pseudo-terminal ends on Linux
        while piece := os.read(parent, 4096):
            written += piece
    os.close(parent)
    assert process.wait() == 0
    assert (b"4 of 5 found, chunk 4 of 4 /data/plain" in written) == is_shown
    assert bool(written) == is_shown


class TestManyArrays:
    @pytest.fixture
    def store(self, tmp_path):
        """30 arrays, of which one does not conform."""
        for i in range(30):
            write(tmp_path / f"s/a{i}", ARRAY | {"fill_value": "1" if i == 7 else 0})
        return write(tmp_path / "s", text_of({"zarr_format": 3, "node_type": "group"}))

    def test_only_those_with_findings_are_listed(self, store):
        result = call("check", store)
        assert result.exit_code == 1
        assert "/a7 " in result.stdout
        assert "/a8 " not in result.stdout
        assert "29 arrays without findings: --all lists them" in result.stdout

    def test_all_lists_every_one_and_the_verdict_is_the_last_line_too(self, store):
        lines = call("check", store, "--all").stdout.splitlines()
        assert sum(line.startswith("/a") for line in lines) == 31  # and the table of findings
        assert lines[0] == lines[-1] == f"1 of 30 do not conform: {store}"

    def test_the_findings_of_many_are_cut(self, store):
        for i in range(30):
            write(store / f"a{i}", ARRAY | {"fill_value": "1"})
        assert "... and 10 more with findings" in call("check", store).stdout
        assert "more with findings" not in call("check", store, "--all").stdout

    def test_many_findings_of_one_are_cut_on_the_terminal_and_whole_in_json(self, tmp_path):
        chunks = {f"c{i}": b"xx" for i in range(30)}
        write(tmp_path, ARRAY | {"shape": [60], "chunk_grid": regular([2])}, **chunks)
        assert "20 more" in call("check", tmp_path).stdout
        subjects = [finding["subject"] for finding in nodes_of(tmp_path)[""]["findings"]]
        assert subjects == sorted(f"c/{i}" for i in range(30))


class TestOptionsOfStores:
    @pytest.mark.parametrize("text", ["anon", "=true", ""])
    def test_what_is_no_key_and_value_is_refused(self, text):
        result = call("check", "s3://a", "--storage-option", text)
        assert result.exit_code == 2
        assert "key=value" in result.stderr

    def test_a_folder_takes_none(self, folder):
        result = call("check", folder, "--storage-option", "anon=true")
        assert result.exit_code == 2
        assert "for URLs" in result.stderr
        with pytest.raises(zarr_bytes.StoreError, match="for URLs"):
            zarr_bytes.check(folder, storage_options={"anon": True})

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("url", "options", "said"),
        [
            ("s3://a", ["--storage-option", "nonsense=1"], "nonsense"),
            ("s3://bucket/a", [], "--storage-option"),
        ],
        ids=["unknown", "missing credentials"],
    )
    def test_what_keeps_a_bucket_from_being_opened_is_one_line(self, tmp_path, url, options, said):
        pytest.importorskip("s3fs")
        lacking = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        nowhere = {
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # where nothing listens
        }
        done = subprocess.run(
            [sys.executable, "-m", "zarr_bytes", "check", url, *options],
            env=lacking | nowhere,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


class TestFromPython:
    def test_a_loop_gives_a_report_of_each_array(self, with_a_finding):
        found = zarr_bytes.check(with_a_finding)
        assert not found.conforms
        assert [(array.path, array.conforms) for array in found] == [
            ("data/mask", True),
            ("data/packed", True),
            ("data/plain", False),
        ]

    def test_without_rich_the_columns_stand_below_each_other(self, with_a_finding):
        lines = str(zarr_bytes.check(with_a_finding / "data/plain")).splitlines()
        assert lines[2:] == [
            "Array   Data type   Codecs   Chunks",
            "-" * 54,
            "/       float32     bytes    4 of 4 stored   1 finding",
            "",
            "/       Found      Permitted",
            "-" * 28,
            "c/1/0   47 bytes   48 bytes",
        ]

    def test_one_that_was_open_is_left_open(self, folder):
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").put(str(folder), "/open.zarr", recursive=True)
        store = FsspecStore.from_url("memory://open.zarr", read_only=True)
        assert zarr_bytes.check(store).conforms
        assert zarr.open_array(store, path="data/plain", mode="r")[0, 0] == 1

    def test_it_runs_where_an_event_loop_runs_as_in_a_notebook(self):
        async def cell():
            return zarr_bytes.check(memory({"": ARRAY}))

        assert asyncio.run(cell()).conforms

    @pytest.fixture
    def interruptible(self):
        """Also where the tests run in the background of a shell, which ignores the signal."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @on_posix
    @pytest.mark.usefixtures("interruptible")
    def test_an_interruption_stops_it(self):
        class Endless(WrapperStore):
            async def list_dir(self, prefix):
                asking.set()
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise
                yield ""

        asking, cancelled = threading.Event(), threading.Event()

        def interrupt():
            asking.wait()
            # Again, if need be: Python sleeps through a signal that comes as it begins to wait.
            while not cancelled.wait(1):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            zarr_bytes.check(Endless(memory({"": ARRAY})))
        assert cancelled.is_set()

    def test_what_is_no_store_is_an_error_that_says_what_is(self):
        with pytest.raises(TypeError, match="int; permitted are a path, a URL and a zarr store"):
            zarr_bytes.check(5)


class TestCommand:
    def test_a_store_that_conforms_is_one_table(self, folder):
        edit(folder / "data/packed/zarr.json", codecs=LITTLE)
        shutil.rmtree(folder / "data/packed/c")
        result = call("check", folder)
        assert result.exit_code == 0
        assert result.stdout.startswith("Conforms: ")
        assert result.stdout.count(" conforms\n") == 3

    @pytest.mark.parametrize(
        ("location", "said"),
        [
            ("{folder}/nothing", ": it does not exist"),
            ("{folder}/nothing.zip", ": it does not exist"),
            ("{folder}/empty", ": it holds no array and no group"),
            ("{folder}/file", ": it is not a folder, a .zip file or a URL"),
            ("nosuchscheme://a", ": "),
            ("", ": no store is named"),
        ],
    )
    def test_what_cannot_be_opened_is_one_line_and_exit_status_2(self, tmp_path, location, said):
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("text")
        location = location.format(folder=tmp_path)
        result = call("check", location)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(location + said)
        assert result.stderr.count("\n") == 1
        with pytest.raises(zarr_bytes.StoreError, match=said[2:] or "scheme"):
            zarr_bytes.check(location)

    def test_the_help_gives_the_exit_statuses(self):
        assert "2 if STORE cannot be opened" in " ".join(call("check", "--help").stdout.split())
