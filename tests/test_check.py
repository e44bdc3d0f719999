"""Does a store conform: what is found, what is read for it, what is shown."""

import asyncio
import contextlib
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from command import call
from documents import BIG, LITTLE, store_of
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.buffer.cpu import Buffer
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

import zarr_bytes
from zarr_bytes.commands import stored_chunks
from zarr_bytes.commands.check import check_store
from zarr_bytes.commands.chunk_grid import ChunkGrid
from zarr_bytes.commands.screen import has_rich


def reports_of(store):
    async def collect():
        return {report.path: report async for report in check_store(store)}

    return asyncio.run(collect())


def findings_of(store):
    """Subject, found and permitted of everything that is not permitted in the only array."""
    (report,) = reports_of(store).values()
    return [(f.subject, f.found, f.permitted) for f in report.findings if not f.is_note]


def run(*arguments):
    result = call("check", *arguments)
    return result.exit_code, result.stdout


def run_json(location):
    code, text = run(location, "--json")
    document = json.loads(text)
    return code, {node["path"]: node for node in document["nodes"]}


def edit(path, **members):
    """Change members of a metadata document on disk."""
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | members))


def tree_of(folder):
    """Every file under `folder`, with a hash of its bytes and its time of modification."""
    return {
        path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


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
        array = group.create_array(
            f"data/{name}", shape=(6, 6), chunks=(3, 4), dtype=dtype, compressors=compressors
        )
        array[...] = 1
    return root


VALID = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": LITTLE,
}


class TestMetadata:
    @pytest.mark.parametrize(
        ("data_type", "fill_value", "codecs"),
        [
            ("float32", 0, LITTLE),
            ("float32", "0x7f800001", BIG),
            ("complex64", ["NaN", -1.5], LITTLE),
            ("uint8", 255, [{"name": "bytes"}]),
            ("int8", -128, [{"name": "bytes", "configuration": {}}]),
            ("bool", True, LITTLE),
            ("r24", [0, 1, 255], [{"name": "bytes"}]),
            ("int64", 2**63 - 1, [*LITTLE, {"name": "gzip", "configuration": {"level": 1}}]),
            ("string", "", [{"name": "vlen-utf8"}]),
        ],
    )
    def test_what_the_specification_permits_has_no_finding(self, data_type, fill_value, codecs):
        assert findings_of(store_of(data_type, fill_value=fill_value, codecs=codecs)) == []

    @pytest.mark.parametrize(
        ("codec", "found", "permitted"),
        [
            ({"name": "bytes"}, "needs a byte order", '{"endian": "little"}'),
            ({"name": "bytes", "configuration": {"endian": "middle"}}, "middle", "'little'"),
            ({"name": "bytes", "configuration": {"endian": None}}, "null", '"little"'),
            ({"name": "bytes", "configuration": {"endian": "big", "x": 1}}, '"x"', "'endian'"),
            ({"name": "bytes", "configuration": 3}, "3", "an object"),
            ({**LITTLE[0], "level": 3}, '"level"', '"configuration"'),
            ({"name": "endian", "configuration": {"endian": "big"}}, "endian", '"name": "bytes"'),
        ],
    )
    def test_a_codec_object_that_does_not_conform_is_shown_beside_what_does(
        self, codec, found, permitted
    ):
        ((subject, shown, allowed),) = findings_of(store_of("float32", codecs=[codec]))
        assert subject == "codecs[0]"
        assert found in shown
        assert permitted in allowed

    @pytest.mark.parametrize(
        ("codecs", "found"),
        [
            ([], "no array -> bytes codec"),
            ([*LITTLE, *LITTLE], "2 array -> bytes codecs"),
            ([{"name": "gzip", "configuration": {"level": 1}}, *LITTLE], "the order gzip, bytes"),
            ([*LITTLE, {"name": "no-such-codec"}], "unknown codec"),
            ([{}, *LITTLE], "{}"),
            ("bytes", '"bytes"'),
        ],
    )
    def test_a_chain_that_is_none_is_found(self, codecs, found):
        assert any(found in f[1] for f in findings_of(store_of("float32", codecs=codecs)))

    def test_the_chains_within_a_shard_are_checked_too(self):
        configuration = {
            "chunk_shape": [1],
            "codecs": [{"name": "bytes"}],
            "index_codecs": [{"name": "endian", "configuration": {"endian": "little"}}],
        }
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        subjects = [f[0] for f in findings_of(store_of("int16", codecs=codecs))]
        assert subjects == ["codecs[0].codecs[0]", "codecs[0].index_codecs[0]"]

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
    def test_a_fill_value_that_is_not_permitted_is_shown_beside_what_is(
        self, data_type, fill_value, permitted
    ):
        findings = findings_of(store_of(data_type, fill_value=fill_value))
        assert findings[0][:2] == ("fill_value", json.dumps(fill_value))
        assert permitted in findings[0][2]

    def test_lenient_settings_and_another_codec_class_change_nothing(self):
        settings = {
            "zarr_bytes.fill_values": "lenient",
            "codecs.bytes": "zarr.codecs.bytes.BytesCodec",
        }
        with zarr.config.set(settings):
            assert findings_of(store_of("float32", fill_value="1.5"))

    @pytest.mark.parametrize("data_type", ["float33", "r12", 3, None, {"name": "x"}])
    def test_an_unknown_data_type_is_found(self, data_type):
        assert findings_of(store_of(data_type))[0][0] == "data_type"

    def test_a_data_type_that_needs_a_package_says_which(self, without_ml_dtypes):
        ((_, found, permitted),) = findings_of(store_of("bfloat16"))
        assert found == '"bfloat16"'
        assert permitted.endswith('ml_dtypes, 0.6 or newer: pip install "ml_dtypes>=0.6"')

    def test_members_that_are_missing_or_unknown_are_found(self, folder):
        path = folder / "data/plain/zarr.json"
        edit(path, more=1, ignorable={"must_understand": False})
        document = json.loads(path.read_text())
        del document["fill_value"]
        path.write_text(json.dumps(document))
        _, nodes = run_json(folder)
        assert [f["subject"] for f in nodes["data/plain"]["findings"]] == ["fill_value", "more"]

    def test_a_bare_nan_is_no_json(self, folder):
        path = folder / "data/plain/zarr.json"
        edit(path, fill_value=float("nan"))
        _, nodes = run_json(folder)
        assert nodes["data/plain"]["findings"][0]["found"] == "NaN is no JSON"

    @pytest.mark.parametrize(
        ("codecs", "promise"),
        [
            ([{"name": "endian", "configuration": {"endian": "big"}}], "writes it"),
            ([], "adds bytes"),
            (None, "adds bytes"),
        ],
    )
    @pytest.mark.parametrize(
        "others",
        [
            {},
            {"fill_value": 1.0},  # not permitted either, but zarr opens it
            {"fill_value": "1"},
            {"codecs": [*LITTLE, {"name": "no-such-codec"}]},
            {"dimension_names": ["one", "two"]},
            {"more": 1},
        ],
        ids=str,
    )
    def test_migrate_is_promised_just_where_it_writes(self, tmp_path, codecs, promise, others):
        document = VALID | others | {"codecs": [*(codecs or []), *others.get("codecs", [])]}
        if codecs is None and not document["codecs"]:
            del document["codecs"]
        (tmp_path / "zarr.json").write_text(json.dumps(document))
        is_written = bool(zarr_bytes.migrate(tmp_path, dry_run=True).changes)
        (report,) = zarr_bytes.check(tmp_path)
        assert [f.migrate for f in report.findings if f.migrate] == [promise] * is_written
        shown = " ".join(run(tmp_path)[1].split())
        assert (f"zarr-bytes migrate {promise}" in shown) == is_written

    def test_migrate_is_promised_where_a_setting_lets_it_write(self, tmp_path):
        document = VALID | {"codecs": [], "fill_value": None}
        (tmp_path / "zarr.json").write_text(json.dumps(document))
        for setting, promised in (("strict", False), ("lenient", True)):
            with warnings.catch_warnings(), zarr.config.set({"zarr_bytes.fill_values": setting}):
                warnings.simplefilter("ignore")  # of the fill value
                (report,) = zarr_bytes.check(tmp_path)
            assert any(finding.migrate for finding in report.findings) == promised

    def test_migrate_is_not_promised_for_another_encoding(self, tmp_path):
        text = json.dumps(VALID | {"codecs": []})
        (tmp_path / "zarr.json").write_bytes(text.encode("utf-16"))
        (report,) = zarr_bytes.check(tmp_path)
        assert [finding.migrate for finding in report.findings] == ["", ""]

    def test_what_only_zarr_finds_is_a_finding(self, folder):
        edit(folder / "data/plain/zarr.json", dimension_names=["only one"])
        _, nodes = run_json(folder)
        assert "zarr does not open it" in nodes["data/plain"]["findings"][0]["found"]


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

    @settings(deadline=None)
    @given(st.dictionaries(st.sampled_from([*VALID, "more"]), json_values, max_size=3))
    def test_with_members_of_any_kind(self, members):
        text = json.dumps(VALID | members)
        store = MemoryStore({"zarr.json": Buffer.from_bytes(text.encode())})
        (report,) = reports_of(store).values()
        assert report.conforms or text != json.dumps(VALID)
        if report.conforms:
            assert zarr.open_array(store, mode="r").ndim == 1
            for name in members.keys() & IS_PERMITTED.keys():
                assert IS_PERMITTED[name](members[name])

    @settings(deadline=None)
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
        if codecs == [{"name": "bytes"}]:
            assert bool(findings) == (data_type in ("int16", "string"))
        if not findings:
            assert zarr.open_array(store, mode="r").shape == (2,)
            names = [codec["name"] for codec in codecs]
            assert len([name for name in names if name in TURN_INTO_BYTES]) == 1
            assert not {"endian", "none"} & set(names)

    @settings(deadline=None)
    @given(st.binary(max_size=20))
    def test_that_is_any_bytes(self, text):
        (report,) = reports_of(MemoryStore({"zarr.json": Buffer.from_bytes(text)})).values()
        assert not report.conforms

    def test_that_is_deeper_than_python_reads(self):
        text = b"[" * 100_000
        (report,) = reports_of(MemoryStore({"zarr.json": Buffer.from_bytes(text)})).values()
        assert report.kind == "unreadable"


class TestHierarchy:
    def test_every_array_is_found_and_conforms(self, folder):
        code, nodes = run_json(folder)
        assert code == 0
        assert set(nodes) == {"data/plain", "data/mask", "data/packed"}
        assert nodes["data/plain"]["stored_chunks"] == nodes["data/plain"]["chunks"] == 4
        assert nodes["data/packed"]["not_checked"] == "not plain bytes"

    def test_broken_arrays_do_not_stop_it(self, folder):
        (folder / "data/plain/zarr.json").write_text("{")
        (folder / "data/mask/zarr.json").write_bytes(b"\xff\xfe")
        edit(folder / "data/packed/zarr.json", codecs=[{"name": "no-such-codec"}])
        (folder / "data/list").mkdir()
        (folder / "data/list/zarr.json").write_text("[]")
        zarr.create_array(folder, name="whole", shape=2, dtype="u1", compressors=None)
        code, nodes = run_json(folder)
        assert code == 1
        assert {path for path, node in nodes.items() if node["conforms"]} == {"whole"}
        assert len(nodes) == 5

    def test_arrays_below_a_broken_group_are_found(self, folder):
        (folder / "data/zarr.json").write_text("{")
        _, nodes = run_json(folder)
        assert set(nodes) == {"data", "data/plain", "data/mask", "data/packed"}

    def test_a_document_that_cannot_be_read_is_a_finding(self):
        class Unreadable(WrapperStore):
            async def get(self, key, *args, **kwargs):
                if key == "b/zarr.json":
                    raise PermissionError("no")
                return await self._store.get(key, *args, **kwargs)

        group = zarr.create_group(MemoryStore())
        for name in "abc":
            group.create_array(name, shape=2, dtype="u1", compressors=None)
        reports = reports_of(Unreadable(group.store))
        assert {path: report.conforms for path, report in reports.items()} == {
            "a": True,
            "b": False,
            "c": True,
        }

    @pytest.mark.filterwarnings("ignore")  # consolidated metadata is not in the specification
    def test_a_consolidated_copy_that_differs_is_found(self, folder):
        zarr.consolidate_metadata(str(folder))
        edit(folder / "data/plain/zarr.json", attributes={"changed": 1})
        assert run_json(folder)[0] == 0
        edit(folder / "data/plain/zarr.json", fill_value=7.0)
        code, nodes = run_json(folder)
        assert code == 1
        assert "consolidated" in nodes["data/plain"]["findings"][0]["found"]
        assert nodes["data/mask"]["conforms"]

    @pytest.mark.filterwarnings("ignore")  # consolidated metadata is not in the specification
    @pytest.mark.parametrize("consolidated", [["a"], ["a/b", "a"]], ids=str)
    def test_what_lies_beside_a_consolidated_group_has_no_copy_there(self, consolidated):
        group = zarr.group(MemoryStore())
        for name in ("a/b/x", "ab/y", "c"):
            group.create_array(name, shape=3, dtype="i4", compressors=None)
        for path in consolidated:
            zarr.consolidate_metadata(group.store, path=path)
        reports = reports_of(group.store)
        assert reports.keys() >= {"a/b/x", "ab/y", "c"}
        assert [report.findings for report in reports.values() if report.findings] == []

    def test_format_2_is_listed_as_not_checked(self, folder):
        zarr.create_array(folder, name="old", shape=4, dtype="f4", zarr_format=2)
        code, nodes = run_json(folder)
        assert code == 0
        assert nodes["old"]["not_checked"] == "Zarr format 2"

    def test_a_store_with_nothing_but_format_2_does_not_conform(self, tmp_path):
        zarr.create_array(tmp_path / "old", shape=4, dtype="f4", zarr_format=2)
        code, nodes = run_json(tmp_path / "old")
        assert code == 1
        assert nodes[""]["kind"] == "format 2"
        assert run(tmp_path / "old")[1].startswith("Not checked: it holds nothing but Zarr format")


GRIDS = [((6, 6), (3, 4)), ((), ()), ((5,), (2,)), ((0, 3), (1, 2))]


def grid_document(shape, chunks, encoding):
    return {
        "shape": list(shape),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": encoding,
    }


ENCODINGS = [
    {"name": "default"},
    {"name": "default", "configuration": {"separator": "."}},
    {"name": "v2"},
    {"name": "v2", "configuration": {"separator": "/"}},
]


class TestChunkKeys:
    @pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
    @pytest.mark.parametrize(("shape", "chunks"), GRIDS)
    def test_the_keys_are_those_that_zarr_writes(self, tmp_path, shape, chunks, encoding):
        options = {"name": encoding["name"], **encoding.get("configuration", {})}
        if 0 not in shape:
            array = zarr.create_array(
                tmp_path,
                shape=shape,
                chunks=chunks,
                dtype="u1",
                compressors=None,
                chunk_key_encoding=options,
            )
            array[...] = 1
        grid = ChunkGrid.of_document(grid_document(shape, chunks, encoding))
        written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        assert set(grid.keys()) == written - {"zarr.json"}
        assert len(set(grid.keys())) == grid.count

    @settings(deadline=None)
    @given(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=3),
        st.sampled_from(ENCODINGS),
        st.text("c0123./", max_size=8),
    )
    def test_a_key_is_in_the_grid_just_if_the_grid_has_it(self, dimensions, encoding, key):
        shape, chunks = [n for n, _ in dimensions], [m for _, m in dimensions]
        grid = ChunkGrid.of_document(grid_document(shape, chunks, encoding))
        keys = set(grid.keys())
        assert grid.contains(key) == (key in keys)
        assert all(map(grid.contains, keys))

    @pytest.mark.parametrize(
        "members",
        [
            {"shape": None},
            {"shape": [-1, 2]},
            {"chunk_grid": {"name": "rectilinear"}},
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 1]}}},
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}}},
            {"chunk_key_encoding": {"name": "other"}},
            {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}},
        ],
        ids=str,
    )
    def test_any_other_grid_is_not_checked_and_says_why(self, members):
        with pytest.raises(ValueError, match=r"\w+ \w+"):
            ChunkGrid.of_document(grid_document((4, 4), (2, 2), {"name": "v2"}) | members)


@pytest.mark.parametrize("chunk_shape", [[0], 2, [True]])
def test_a_chunk_shape_of_anything_but_integers_from_1_on_is_found(chunk_shape):
    found = findings_of(store_of("int8", chunk_shape=chunk_shape))
    assert ("chunk_grid", json.dumps(chunk_shape), "an array of integers from 1 on") in found


@pytest.mark.parametrize("shape", [2, True, [True]])
def test_a_shape_of_anything_but_integers_is_found(shape):
    found = findings_of(store_of("int8", shape=shape, chunk_shape=[1]))
    assert found == [("shape", json.dumps(shape), "an array of integers from 0 on")]


class TestChunks:
    @pytest.mark.parametrize("size", [0, 47, 49])
    def test_a_chunk_of_another_size_is_found_with_both_sizes(self, folder, size):
        (folder / "data/plain/c/1/0").write_bytes(bytes(size))
        code, nodes = run_json(folder)
        (finding,) = nodes["data/plain"]["findings"]
        assert code == 1
        assert (finding["subject"], finding["found"]) == ("c/1/0", f"{size} bytes")
        assert finding["permitted"] == "48 bytes"  # 3 x 4 of 4 bytes each

    @pytest.mark.parametrize(
        "codecs", [[], [{"name": "endian", "configuration": {"endian": "big"}}]]
    )
    def test_chunks_of_the_draft_form_are_checked(self, folder, codecs):
        edit(folder / "data/plain/zarr.json", codecs=codecs)
        (folder / "data/plain/c/1/0").write_bytes(b"short")
        _, nodes = run_json(folder)
        assert [f["subject"] for f in nodes["data/plain"]["findings"]][1:] == ["c/1/0"]

    def test_a_chunk_that_is_not_stored_is_no_finding(self, folder):
        (folder / "data/plain/c/1/0").unlink()
        code, nodes = run_json(folder)
        assert code == 0
        assert nodes["data/plain"]["stored_chunks"] == 3

    def test_a_bool_that_is_neither_0_nor_1_is_found_with_its_index(self, folder):
        (folder / "data/mask/c/1/0").write_bytes(bytes([0] * 6 + [7] + [1] * 5))
        _, nodes = run_json(folder)
        (finding,) = nodes["data/mask"]["findings"]
        assert finding["subject"] == "c/1/0"
        assert finding["found"] == "a bool of 7 at index (1, 2), byte 6"

    @settings(deadline=None)
    @given(st.integers(0, 9999), st.integers(1, 700))
    def test_a_bool_is_found_also_where_the_chunk_is_read_in_pieces(self, position, piece):
        flags = np.zeros((100, 100), "u1")
        flags.ravel()[position] = 255
        store = store_of(
            "bool", shape=(100, 100), fill_value=False, codecs=[{"name": "bytes"}], chunk=flags
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stored_chunks, "_PIECE", piece)
            ((_, found, _),) = findings_of(store)
        index = divmod(position, 100)
        assert found == f"a bool of 255 at index {index}, byte {position:,}"

    def test_what_is_no_chunk_of_the_grid_is_a_note(self, folder):
        (folder / "data/plain/c/9").mkdir()
        (folder / "data/plain/c/9/0").write_bytes(b"")
        code, nodes = run_json(folder)
        assert code == 0
        (finding,) = nodes["data/plain"]["findings"]
        assert finding["is_note"]
        assert "c/9/0" in finding["found"]


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
        code, nodes = run_json(folder)
        assert code == 0
        (note,) = nodes[array.path]["findings"]
        assert note["is_note"]
        assert note["subject"] == "*.partial"
        text = f"{len(files)} left by interrupted writes; may be deleted while nobody writes: "
        assert note["found"].startswith(text)
        assert min(files).relative_to(folder / array.path).as_posix() in note["found"]

    @pytest.mark.parametrize("path", ["data", "data/plain", "data/packed"])
    def test_of_a_document_are_too(self, folder, path):
        node = zarr.open(folder, path=path, mode="r+")
        (file,) = unfinished(lambda: node.update_attributes({"more": 1}))
        file.write_bytes(b"{")
        code, nodes = run_json(folder)
        assert code == 0
        assert [f["found"].partition(": ")[2] for f in nodes[path]["findings"]] == [file.name]

    def test_are_counted_and_three_are_named(self, folder):
        for digit in "edcba":
            (folder / f"data/packed/c/0/0.{digit * 32}.partial").write_bytes(b"")
        (note,) = run_json(folder)[1]["data/packed"]["findings"]
        assert note["found"].startswith("5 left by")
        names = [f"c/0/0.{digit * 32}.partial" for digit in "abc"]
        assert note["found"].endswith(f": {', '.join(names)}, ...")


class Watched(WrapperStore):
    """A store that remembers which objects were read, and how many at once."""

    def __init__(self, store):
        super().__init__(store)
        self.read, self.sized, self.running, self.most = [], [], 0, 0

    async def get(self, key, *args, **kwargs):
        self.read.append(key)
        return await self._store.get(key, *args, **kwargs)

    async def getsize(self, key):
        self.sized.append(key)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(20):  # long enough for the others to begin
            await asyncio.sleep(0)
        self.running -= 1
        return await self._store.getsize(key)


class Unlistable(Watched):
    """As plain HTTP: `get` works, and listing shows nothing."""

    async def list_dir(self, prefix):
        raise NotImplementedError
        yield

    async def list_prefix(self, prefix):
        raise NotImplementedError
        yield


class TestWhatIsRead:
    def test_no_data_is_read_but_of_bools(self, folder):
        store = Watched(LocalStore(folder, read_only=True))
        reports_of(store)
        chunks = {key for key in store.read if "/c/" in key}
        assert {key.split("/c/")[0] for key in chunks} == {"data/mask"}
        assert sum("data/plain/c/" in key for key in store.sized) == 4

    def test_nothing_is_written(self, folder):
        before = tree_of(folder)
        run(folder)
        assert tree_of(folder) == before

    def test_requests_are_concurrent_within_the_setting(self, folder):
        store = Watched(LocalStore(folder, read_only=True))
        with zarr.config.set({"async.concurrency": 3}):
            reports_of(store)
        assert store.most == 3

    def test_a_chunk_that_cannot_be_read_is_a_finding(self, folder):
        class Failing(Watched):
            async def getsize(self, key):
                if key.endswith("plain/c/0/1"):
                    raise OSError("gone")
                return await super().getsize(key)

        report = reports_of(Failing(LocalStore(folder, read_only=True)))["data/plain"]
        assert [(f.subject, f.found) for f in report.findings] == [("c/0/1", "OSError: gone")]
        assert report.stored_chunks == 3

    def test_chunks_and_groups_that_cannot_be_listed_are_findings(self, folder):
        class Failing(Watched):
            async def list_prefix(self, prefix):
                raise OSError("no list")
                yield

            async def list_dir(self, prefix):
                if prefix == "data/deep":
                    raise OSError("no list")
                async for name in self._store.list_dir(prefix):
                    yield name

        zarr.create_group(folder, path="data/deep")
        reports = reports_of(Failing(LocalStore(folder, read_only=True)))
        assert "no list" in reports["data/deep"].findings[0].found
        assert "no list" in reports["data/plain"].findings[0].found
        assert reports["data/packed"].conforms

    def test_a_store_that_cannot_list_is_asked_for_every_chunk(self, folder):
        (folder / "data/plain/c/1/0").unlink()
        store = Unlistable(LocalStore(folder / "data/plain", read_only=True))
        report = reports_of(store)[""]
        assert report.conforms
        assert report.stored_chunks == 3
        assert len(store.sized) == 4

    def test_a_listing_that_shows_nothing_is_not_believed(self, folder):
        class Silent(Watched):
            async def list_dir(self, prefix):
                for name in ():
                    yield name

            list_prefix = list_dir

        report = reports_of(Silent(LocalStore(folder / "data/plain", read_only=True)))[""]
        assert report.stored_chunks == 4

    @pytest.mark.filterwarnings("ignore")  # consolidated metadata is not in the specification
    def test_a_store_that_cannot_list_is_walked_by_consolidated_metadata(self, folder):
        zarr.consolidate_metadata(str(folder))
        reports = reports_of(Unlistable(LocalStore(folder, read_only=True)))
        assert set(reports) == {"data/plain", "data/mask", "data/packed"}

    def test_without_that_a_note_says_to_name_an_array(self, folder):
        (report,) = reports_of(Unlistable(LocalStore(folder, read_only=True))).values()
        assert "name an array" in report.findings[0].found

    def test_the_requests_to_a_store_that_cannot_list_are_bounded(self, monkeypatch):
        monkeypatch.setattr(stored_chunks, "MOST_REQUESTS", 7)
        store = Unlistable(store_of("u" + "int8", shape=(10**6, 10**6), chunk_shape=(1, 1)))
        (report,) = reports_of(store).values()
        assert len(store.sized) == 7
        assert "7 of 1,000,000,000,000 chunks" in report.findings[0].found


class TestStores:
    def test_a_folder_of_chunks_that_may_not_be_read_is_found(self, folder, monkeypatch):
        scandir = os.scandir

        def refuse(path):  # an administrator, who may run this, is refused nothing
            if str(path).endswith("plain/c"):
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refuse)
        _, nodes = run_json(folder)
        found = [f["found"] for f in nodes["data/plain"]["findings"]]
        assert "cannot be listed" in " ".join(found)

    def test_folders_in_a_zip_file_are_no_chunks(self, folder):
        path = shutil.make_archive(str(folder), "zip", folder)
        code, nodes = run_json(path)
        assert code == 0
        assert nodes["data/plain"]["findings"] == []

    def test_no_name_is_no_store(self):
        result = call("check", "")
        assert result.exit_code == 2
        assert "no store is named" in result.output

    def test_zip_sizes_come_from_its_directory(self, folder, tmp_path, monkeypatch):
        path = shutil.make_archive(str(tmp_path / "b"), "zip", folder)
        read = []
        get = ZipStore.get

        async def watched(self, key, *args, **kwargs):
            read.append(key)
            return await get(self, key, *args, **kwargs)

        monkeypatch.setattr(ZipStore, "get", watched)
        code, nodes = run_json(path)
        assert code == 0
        assert nodes["data/plain"]["stored_chunks"] == 4
        assert not any("plain/c/" in key for key in read)

    def test_a_file_url(self, folder):
        assert run_json(folder.as_uri())[0] == 0

    def test_an_fsspec_url(self, folder):
        fsspec = pytest.importorskip("fsspec")
        fs = fsspec.filesystem("memory")
        fs.put(str(folder), "/check.zarr", recursive=True)
        code, nodes = run_json("memory://check.zarr")
        assert code == 0
        assert nodes["data/plain"]["stored_chunks"] == 4
        fs.pipe("/check.zarr/data/plain/c/0/0", b"short")
        assert run_json("memory://check.zarr")[0] == 1

    @pytest.mark.parametrize("lists", [True, False], ids=["with index", "without"])
    def test_http(self, folder, lists):
        pytest.importorskip("aiohttp")

        class Handler(http.server.SimpleHTTPRequestHandler):
            def list_directory(self, path):
                return super().list_directory(path) if lists else self.send_error(403)

            def log_message(self, *args):
                pass

        (folder / "data/plain/c/1/1").write_bytes(b"short")
        handler = partial(Handler, directory=folder / "data/plain")
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            done = subprocess.run(
                [sys.executable, "-m", "zarr_bytes", "check", "--json"]
                + [f"http://127.0.0.1:{server.server_port}"],
                capture_output=True,
                text=True,
                check=False,
            )
            server.shutdown()
        (node,) = json.loads(done.stdout)["nodes"]
        assert done.returncode == 1
        assert done.stderr == ""
        assert node["stored_chunks"] == 4
        assert [f["subject"] for f in node["findings"]] == ["c/1/1"]


on_posix = pytest.mark.skipif(
    os.name != "posix", reason="pseudo-terminals and signals to threads are POSIX"
)


def stderr_of(location, patience, *, on_terminal):
    """What a real process writes to stderr, with another patience before the progress bar."""
    code = (
        "import sys, zarr_bytes.commands.rich_screen as screen\n"
        "from zarr_bytes.commands.command_line import main\n"
        f"screen._PATIENCE = {patience}; sys.exit(main(['check', sys.argv[1]]))"
    )
    parent, child = os.openpty() if on_terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(location)],
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
    return written


@on_posix
@pytest.mark.skipif(not has_rich(), reason="the progress bar is rich's")
class TestProgress:
    def test_it_counts_arrays_and_the_chunks_of_the_present_one(self, folder):
        written = stderr_of(folder, 0, on_terminal=True)
        assert b"4 of 5 found, chunk 4 of 4 /data/plain" in written

    @pytest.mark.parametrize(
        ("patience", "on_terminal", "shown"),
        [(0, True, True), (100, True, False), (0, False, False)],
    )
    def test_a_bar_is_shown_on_a_terminal_where_it_takes_long(
        self, folder, patience, on_terminal, shown
    ):
        written = stderr_of(folder, patience, on_terminal=on_terminal)
        assert (b"/data/plain" in written) == shown
        assert bool(written) == shown


class TestManyArrays:
    @pytest.fixture
    def store(self, tmp_path):
        group = zarr.open_group(tmp_path / "many.zarr", mode="w")
        for i in range(30):
            group.create_array(f"a{i}", shape=2, dtype="u1", compressors=None)
        edit(tmp_path / "many.zarr/a7/zarr.json", fill_value="1")
        return tmp_path / "many.zarr"

    def test_only_those_with_findings_are_listed(self, store):
        code, text = run(store)
        assert code == 1
        assert "/a7 " in text
        assert "/a8 " not in text
        assert "29 arrays without findings: --all lists them" in text

    def test_all_lists_every_one_and_the_verdict_is_the_last_line_too(self, store):
        lines = run(store, "--all")[1].splitlines()
        assert sum(line.startswith("/a") for line in lines) == 31  # and the table of findings
        assert lines[0] == lines[-1] == f"1 of 30 do not conform: {store}"

    def test_the_findings_of_many_are_cut(self, store):
        for i in range(30):
            edit(store / f"a{i}/zarr.json", fill_value="1")
        assert "... and 10 more with findings" in run(store)[1]
        assert "more with findings" not in run(store, "--all")[1]


class TestOptionsOfStores:
    def test_they_are_handed_to_fsspec(self, folder):
        fsspec = pytest.importorskip("fsspec")
        fs = fsspec.filesystem("memory")
        fs.put(str(folder), "/options.zarr", recursive=True)
        url = "simplecache::memory://options.zarr"
        option = 'memory={"skip_instance_cache": true}'
        assert run(url, "--storage-option", option)[0] == 0

    def test_one_that_is_not_known_is_one_line(self):
        pytest.importorskip("s3fs")
        result = call("check", "s3://a", "--storage-option", "nonsense=1")
        assert result.exit_code == 2
        assert "nonsense" in result.stderr
        assert result.stderr.count("\n") == 1

    @pytest.mark.parametrize("text", ["anon", "=true", ""])
    def test_what_is_no_key_and_value_is_refused(self, text):
        result = call("check", "s3://a", "--storage-option", text)
        assert result.exit_code == 2
        assert "key=value" in result.stderr

    def test_a_folder_takes_none(self, folder):
        result = call("check", folder, "--storage-option", "anon=true")
        assert result.exit_code == 2
        assert "for URLs" in result.stderr

    def test_where_credentials_are_missing_they_are_asked_for(self, tmp_path):
        pytest.importorskip("s3fs")
        lacking = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        nowhere = {
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # where nothing listens
        }
        done = subprocess.run(
            [sys.executable, "-m", "zarr_bytes", "check", "s3://bucket/a"],
            env=lacking | nowhere,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "--storage-option" in done.stderr
        assert done.stderr.count("\n") == 1


class TestFromPython:
    def test_a_loop_gives_a_report_of_each_array(self, folder):
        (folder / "data/plain/c/1/0").write_bytes(b"x" * 47)
        found = zarr_bytes.check(folder)
        assert not found.conforms
        assert [(array.path, array.conforms) for array in found] == [
            ("data/mask", True),
            ("data/packed", True),
            ("data/plain", False),
        ]

    def test_it_prints_what_the_command_prints_without_rich(self, folder, monkeypatch):
        (folder / "data/plain/c/1/0").write_bytes(b"x" * 47)
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setenv("LINES", "100")
        assert f"{zarr_bytes.check(folder)}\n" == run(folder)[1]

    def test_without_rich_the_columns_stand_below_each_other(self, folder):
        (folder / "data/plain/c/1/0").write_bytes(b"x" * 47)
        lines = str(zarr_bytes.check(folder / "data/plain")).splitlines()
        assert lines[2:] == [
            "Array   Data type   Codecs   Chunks",
            "-" * 54,
            "/       float32     bytes    4 of 4 stored   1 finding",
            "",
            "/       Found      Permitted",
            "-" * 28,
            "c/1/0   47 bytes   48 bytes",
        ]

    @pytest.mark.parametrize("kind", ["text", "path", "local", "memory", "array"])
    def test_a_store_is_a_path_or_one_that_is_open(self, folder, kind):
        store = MemoryStore()
        array = zarr.create_array(store, shape=3, dtype="i4", compressors=None)
        stores = {
            "text": str(folder),
            "path": folder,
            "local": LocalStore(folder),
            "memory": store,
            "array": array.store,
        }
        assert zarr_bytes.check(stores[kind]).conforms

    def test_one_that_was_open_is_left_open(self, folder):
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").put(str(folder), "/open.zarr", recursive=True)
        store = FsspecStore.from_url("memory://open.zarr", read_only=True)
        assert zarr_bytes.check(store).conforms
        assert zarr.open_array(store, path="data/plain", mode="r")[0, 0] == 1

    def test_it_runs_where_an_event_loop_runs_as_in_a_notebook(self, folder):
        async def cell():
            return zarr_bytes.check(folder)

        assert asyncio.run(cell()).conforms

    @pytest.fixture
    def interruptible(self):
        """Also where the tests run in the background of a shell, which ignores the signal."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @on_posix
    @pytest.mark.usefixtures("interruptible")
    def test_an_interruption_stops_it(self, folder):
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
            zarr_bytes.check(Endless(LocalStore(folder)))
        assert cancelled.is_set()

    def test_what_cannot_be_opened_is_an_error_that_names_it(self, tmp_path):
        with pytest.raises(zarr_bytes.StoreError, match="nothing: it does not exist"):
            zarr_bytes.check(tmp_path / "nothing")

    def test_what_is_no_store_is_an_error_that_says_what_is(self):
        with pytest.raises(TypeError, match="int; permitted are a path, a URL and a zarr store"):
            zarr_bytes.check(5)

    def test_options_are_for_urls(self, folder):
        with pytest.raises(zarr_bytes.StoreError, match="for URLs"):
            zarr_bytes.check(folder, storage_options={"anon": True})


class TestCommand:
    def test_the_findings_are_shown_beside_what_is_permitted(self, folder):
        (folder / "data/plain/c/1/0").write_bytes(b"x" * 47)
        code, text = run(folder)
        assert code == 1
        assert "1 of 3 do not conform" in text
        assert "47 bytes" in text
        assert "48 bytes" in text

    def test_a_store_that_conforms_is_one_table(self, folder):
        edit(folder / "data/packed/zarr.json", codecs=LITTLE)
        shutil.rmtree(folder / "data/packed/c")
        code, text = run(folder)
        assert code == 0
        assert text.startswith("Conforms: ")
        assert text.count(" conforms\n") == 3

    def test_many_findings_are_cut_on_the_terminal_and_whole_in_json(self, tmp_path):
        array = zarr.create_array(tmp_path, shape=30, chunks=1, dtype="u1", compressors=None)
        array[...] = 1
        for path in (tmp_path / "c").iterdir():
            path.write_bytes(b"xx")
        assert "20 more" in run(tmp_path)[1]
        assert len(run_json(tmp_path)[1][""]["findings"]) == 30

    @pytest.mark.parametrize("what", ["nothing", "empty", "file", "scheme"])
    def test_what_cannot_be_opened_is_one_line_and_exit_status_2(self, tmp_path, what):
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("text")
        location = "nosuchscheme://a" if what == "scheme" else str(tmp_path / what)
        result = call("check", location)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(location)
        assert result.stderr.count("\n") == 1

    def test_the_help_gives_the_exit_statuses(self):
        assert "2 if STORE cannot be opened" in " ".join(call("check", "--help").stdout.split())
