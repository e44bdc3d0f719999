"""Does a store conform: what is found, what is read for it, what is shown."""

import asyncio
import contextlib
import gc
import http.server
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
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
    GROUP,
    GZIP,
    LITTLE,
    consolidated,
    memory,
    regular,
    store_of,
    struct_of,
    text_of,
    write,
)
from fuzz import store_with
from hypothesis import given
from hypothesis import strategies as st
from shards import shard_of, sharding
from zarr.storage import FsspecStore, LocalStore, WrapperStore

import zarr_bytes
from zarr_bytes.zarr_versions import spec_of

# Consolidated metadata is not in the specification, of which zarr warns.
pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")

BARE = [{"name": "bytes"}]
TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}


def findings_of(store):
    """Subject, found and permitted of everything that is not permitted in the only array."""
    (report,) = reports_of(store).values()
    return [(f.subject, f.found, f.permitted) for f in report.findings if not f.is_note]


def edit(path, **members):
    """Change members of a metadata document on disk."""
    path.write_text(json.dumps(json.loads(path.read_text()) | members))


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


@pytest.fixture
def with_a_finding(folder):
    """The same hierarchy, one of whose chunks is a byte too short."""
    (folder / "data/plain/c/1/0").write_bytes(b"x" * 47)
    return folder


class TestMetadata:
    @pytest.mark.parametrize(
        ("data_type", "fill_value", "codecs"),
        [
            ("float32", "0x7f800001", BIG),
            ("complex64", ["NaN", -1.5], LITTLE),
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
        ("members", "subject", "found", "permitted"),
        [
            ({"fill_value": "1.5"}, "fill_value", '"1.5"', "an integer from -32768 to 32767"),
            ({"fill_value": 40000}, "fill_value", "40000", "an integer from -32768 to 32767"),
            ({"fill_value": None}, "fill_value", "null", "an integer"),
            ({"data_type": "bool"}, "fill_value", "0", "true or false"),
            ({"data_type": "complex64", "fill_value": 1}, "fill_value", "1", "two components"),
            ({"data_type": "r12"}, "data_type", "r12", ""),
            ({"data_type": "float33"}, "zarr.json", "float33", ""),
            ({"codecs": BARE}, "codecs", "needs a byte order", ""),
            (
                {"codecs": [{**BARE[0], "configuration": {"endian": "up"}}]},
                "codecs",
                "bytes",
                "big",
            ),
            ({"codecs": []}, "zarr.json", "ArrayBytesCodec", ""),
            ({"codecs": [*LITTLE, *LITTLE]}, "zarr.json", "ArrayBytesCodec", ""),
            ({"codecs": [*LITTLE, {"name": "no-such-codec"}]}, "zarr.json", "no-such-codec", ""),
            ({"dimension_names": ["1", "2"]}, "zarr.json", "dimension", ""),
            ({"shape": [-1]}, "zarr.json", "-1", ""),
            ({"more": 1}, "zarr.json", "more", ""),
            ({"attributes": {"a": float("nan")}}, "zarr.json", "not JSON", ""),
            *(({member: ...}, member, "missing", "") for member in [*ARRAY][2:-1]),
        ],
        ids=str,
    )
    def test_what_is_not_is_found_beside_what_is(self, members, subject, found, permitted):
        document = {name: v for name, v in (ARRAY | members).items() if v is not ...}
        ((where, shown, allowed),) = findings_of(memory({"": document}))
        assert where == subject
        assert found in shown
        assert permitted in allowed

    def test_a_data_type_that_needs_a_package_says_which(self, without_ml_dtypes):
        ((_, found, _),) = findings_of(store_of("bfloat16"))
        assert 'ml_dtypes, 0.6 or newer: pip install "ml_dtypes>=0.6"' in found

    @pytest.mark.parametrize(
        "members",
        [
            {"codecs": ["bytes"], "data_type": "uint8"},
            {"data_type": {"name": "int16"}},
            {"chunk_key_encoding": "default"},
            {
                "shape": [4, 6],
                "chunk_grid": regular([4, 3]),
                "codecs": [TRANSPOSE, sharding([3, 2], LITTLE)],
            },
            {
                "data_type": "uint8",
                "shape": [4, 6],
                "chunk_grid": regular([4, 3]),
                "codecs": [TRANSPOSE, sharding([3, 2], ["bytes"])],
            },
        ],
        ids=["codec", "data type", "keys", "transpose before shards", "both"],
    )
    def test_a_permitted_form_that_zarr_does_not_open_is_found(self, members):
        store = memory({"": ARRAY | members})
        with pytest.raises((TypeError, ValueError)) as refused:
            zarr.open_array(store, mode="r")
        (report,) = reports_of(store).values()
        (finding,) = report.findings
        assert not report.conforms
        assert str(refused.value) in finding.found
        assert report.not_checked == "zarr does not open it"


class TestHierarchy:
    def test_every_array_is_found_and_conforms(self, folder):
        code, found = check_json(folder)
        nodes = {node["path"]: node for node in found["nodes"]}
        assert code == 0
        assert set(nodes) == {"data/plain", "data/mask", "data/packed", "data/shards"}
        assert nodes["data/plain"]["stored_chunks"] == nodes["data/plain"]["chunks"] == 4
        assert nodes["data/shards"]["stored_chunks"] == nodes["data/shards"]["chunks"] == 2
        assert not any(node["findings"] for node in nodes.values())
        assert all(node["conforms"] for node in nodes.values())
        assert nodes["data/packed"]["not_checked"] == "not plain bytes"

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

    def test_an_error_at_one_node_is_its_finding_and_the_others_are_checked(self, monkeypatch):
        def faulty(metadata):
            if metadata.shape == (7,):
                raise AttributeError("a fault")
            return spec_of(metadata)

        monkeypatch.setattr("zarr_bytes.commands.check.spec_of", faulty)
        reports = reports_of(memory({"": GROUP, "a": ARRAY | {"shape": [7]}, "b": ARRAY}))
        (finding,) = reports["a"].findings
        assert finding.found == "AttributeError: a fault"
        assert reports["b"].conforms
        assert reports["b"].stored_chunks == 0

    def test_a_group_that_does_not_open_is_found(self):
        reports = reports_of(memory({"": GROUP | {"consolidated_metadata": 5}, "a": ARRAY}))
        assert {path: report.conforms for path, report in reports.items()} == {"": False, "a": True}
        assert [finding.subject for finding in reports[""].findings] == ["zarr.json"]

    def test_a_store_with_nothing_but_format_2_does_not_conform(self, tmp_path):
        zarr.create_array(tmp_path, shape=4, dtype="f4", zarr_format=2)
        result = call("check", tmp_path)
        assert result.exit_code == 1
        assert result.stdout.startswith("Nothing is checked; 1 of 1 array not checked in full")
        assert nodes_of(tmp_path)[""]["kind"] == "format 2"


class TestConsolidatedMetadata:
    """Copies are what zarr reads: it does not look at the documents."""

    @pytest.mark.parametrize(
        ("copies", "documents", "found"),
        [
            ({"a": ARRAY, "g": GROUP}, {"a": ARRAY, "g": GROUP}, []),
            ({"a": ARRAY | {"attributes": {"x": 1}}}, {"a": ARRAY}, []),
            ({"a": ARRAY | {"fill_value": 7}}, {"a": ARRAY}, ["differs from its zarr.json"]),
            ({"a": 5}, {"a": ARRAY}, ["Error"]),
            ({"a": ARRAY}, {}, ["differs from its zarr.json, or has none"]),
            ({"a": ARRAY}, {"a": ARRAY, "no group/b": ARRAY}, []),
            (
                {"g": GROUP},
                {"g": GROUP, "b": ARRAY},
                ["has no copy, and zarr therefore does not see it"],
            ),
        ],
    )
    def test_a_copy_that_is_not_the_document_is_found(self, copies, documents, found):
        reports = reports_of(memory({"": consolidated(copies)} | documents))
        shown = [f.found for f in reports[""].findings] if "" in reports else []
        for text in found:
            assert any(text in f for f in shown)
        assert bool(shown) == bool(found)

    @pytest.mark.parametrize("paths", [["a"], ["a/b", "a"]], ids=str)
    def test_what_lies_beside_a_consolidated_group_has_no_copy_there(self, paths):
        group = zarr.group({})
        for name in ("a/b/x", "ab/y", "c"):
            group.create_array(name, shape=3, dtype="i4", compressors=None)
        for path in paths:
            zarr.consolidate_metadata(group.store, path=path)
        reports = reports_of(group.store)
        assert set(reports) == {"a/b/x", "ab/y", "c"}
        assert [report.findings for report in reports.values() if report.findings] == []


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
        ("shape", "chunk_shape"), [((6, 6), (3, 4)), ((), ()), ((0, 3), (1, 2))]
    )
    def test_the_keys_are_those_that_zarr_writes(self, shape, chunk_shape, encoding, tmp_path):
        document, keys = array_of(shape, chunk_shape, encoding)
        chunks = dict.fromkeys(keys, bytes(prod(chunk_shape)))
        store_with("local", {"zarr.json": text_of(document)} | chunks, tmp_path)
        asked = Watched(memory({"": document}, **chunks))
        for store in (LocalStore(tmp_path), asked):
            (report,) = reports_of(store).values()
            assert report.findings == []
            assert report.stored_chunks == report.chunks == len(keys)
        assert sorted(asked.sized) == sorted(keys)

    @given(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=3),
        st.sampled_from(ENCODINGS),
        st.text("c0123./", min_size=1, max_size=8).filter(
            lambda key: not {"", ".", ".."} & set(key.split("/"))
        ),
    )
    def test_any_other_key_is_no_chunk_of_the_grid(self, dimensions, encoding, key):
        shape, chunk_shape = [n for n, _ in dimensions], [m for _, m in dimensions]
        document, keys = array_of(shape, chunk_shape, encoding)
        (report,) = reports_of(memory({"": document}, **{key: bytes(prod(chunk_shape))})).values()
        assert report.stored_chunks == (key in keys)
        assert report.findings == []


PARTS = [bytes([n, 0, 1, 0]) for n in range(4)]  # inner chunks of two int16


def shards_with(content):
    """A store of two shards of four inner chunks; the second one is missing."""
    members = {"shape": [8, 2], "codecs": [sharding([2, 1], LITTLE)]}
    return memory({"": ARRAY | members | {"chunk_grid": regular([4, 2])}}, **{"c/0/0": content})


class TestChunks:
    @pytest.mark.parametrize("codecs", [LITTLE, ENDIAN, [TRANSPOSE, *LITTLE]])
    def test_a_chunk_of_another_size_is_found_with_both_sizes(self, folder, codecs):
        edit(folder / "data/plain/zarr.json", codecs=codecs)
        for size in (0, 49):
            (folder / "data/plain/c/1/0").write_bytes(bytes(size))
            (finding,) = findings_of(LocalStore(folder / "data/plain"))
            assert finding == ("c/1/0", f"{size} bytes", "48 bytes")  # 3 x 4 of 4 bytes each

    def test_a_chunk_that_is_not_stored_is_no_finding_and_neither_is_one_of_no_grid(self, folder):
        (folder / "data/plain/c/1/0").unlink()
        (folder / "data/plain/c/9").mkdir()
        (folder / "data/plain/c/9/0").write_bytes(b"")
        report = reports_of(LocalStore(folder))["data/plain"]
        assert report.conforms
        assert report.stored_chunks == 3
        assert report.findings == []

    @pytest.mark.parametrize(
        ("content", "found"),
        [
            (shard_of(PARTS), None),
            (shard_of(PARTS, places=[2, 0, 3, 1], gap=b"xyz"), None),
            (shard_of([*PARTS[:3], None]), None),
            (shard_of(PARTS, entries={1: (0, 3)}), "inner chunk (0, 1) of the shard has 3 bytes"),
            (shard_of(PARTS, entries={1: (14, 4)}), "inner chunk (0, 1) of the shard ends at byte"),
            (shard_of(PARTS, entries={3: (2**64 - 2, 4)}), "inner chunk (1, 1) of the shard"),
            (b"\0" * 20, "found 20"),
            (shard_of(PARTS)[:-1], "checksum"),
        ],
        ids=range(8),
    )
    def test_a_damaged_index_is_found(self, content, found):
        findings = findings_of(shards_with(content))
        assert [subject for subject, *_ in findings] == ["c/0/0"] * (found is not None)
        for _, shown, _ in findings:
            assert all(part in shown for part in found.split(" of the shard "))

    @pytest.mark.parametrize("item", [1, 3], ids=["alone", "in a record"])
    def test_a_bool_that_is_neither_0_nor_1_is_found_also_where_a_chunk_is_read_in_pieces(
        self, item
    ):
        record = struct_of(n="int16", flag="bool")
        item = item if hasattr(zarr.dtype, "Struct") else 1  # from zarr 3.2 on
        data_type, fill_value = ("bool", False) if item == 1 else (record, {"n": 0, "flag": False})
        piece = 2**23 // item  # elements that are read at once
        for place in (0, piece - 1, piece, 3000 * 3000 - 1):
            flags = np.zeros((3000 * 3000, item), "u1")
            flags[place, -1] = 255
            store = store_of(data_type, shape=(3000, 3000), fill_value=fill_value, chunk=flags)
            ((_, found, permitted),) = findings_of(store)
            assert found == f"a bool of 255 at byte {place * item + item - 1:,}"
            assert permitted == "0 or 1"

    @pytest.mark.parametrize("answers_ranges", [True, False])
    @pytest.mark.parametrize("gap", [b"", b"\7"])
    def test_a_bool_of_an_inner_chunk_is_found(self, gap, answers_ranges):
        class Whole(Watched):
            async def get(self, key, prototype, byte_range=None):
                return await self._store.get(key, prototype)

        members = {"data_type": "bool", "shape": [4, 4], "fill_value": False}
        members |= {"codecs": [sharding([2, 2], BARE)], "chunk_grid": regular([4, 4])}
        content = shard_of([b"\0\1\0\1", None, b"\1\1\1\2", b"\0\0\0\0"], gap=gap)
        store = memory({"": ARRAY | members}, **{"c/0/0": content})
        ((_, found, _),) = findings_of(store if answers_ranges else Whole(store))
        assert found == f"a bool of 2 at byte {7 + 2 * len(gap)}"


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

    @pytest.fixture(params=["plain", "packed", "in place"])
    def array(self, request, folder):
        if request.param == "in place":
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
        assert {key.split("/c/")[0] for key in chunks} == {"data/mask", "data/shards"}  # the index
        assert sum("data/plain/c/" in key for key in store.sized) == 4
        assert store.most == 3

    def test_what_cannot_be_read_is_a_finding(self, folder):
        class Failing(Watched):
            async def getsize(self, key):
                if key.endswith("plain/c/0/1"):
                    raise OSError("gone")
                return await super().getsize(key)

        reports = reports_of(Failing(LocalStore(folder, read_only=True)))
        plain = reports["data/plain"]
        assert [(f.subject, f.found) for f in plain.findings] == [("c/0/1", "OSError: gone")]
        assert plain.stored_chunks == 3
        assert reports["data/packed"].conforms

    @pytest.mark.parametrize("kind", [Unlistable, Silent])
    def test_of_a_store_that_cannot_list_no_chunk_is_requested(self, folder, kind):
        store = kind(LocalStore(folder / "data/plain", read_only=True))
        (report,) = reports_of(store).values()
        assert report.conforms
        assert report.not_checked == "the store cannot list"
        assert (report.stored_chunks, store.sized) == (None, [])
        assert set(store.read) == {"zarr.json"}

    def test_of_a_group_in_a_store_that_cannot_list_no_member_is_checked(self, folder):
        zarr.consolidate_metadata(str(folder))
        found = zarr_bytes.check(Unlistable(LocalStore(folder, read_only=True)))
        assert [(report.path, report.not_checked) for report in found] == [
            ("", "the store cannot list")
        ]
        assert found.verdict == "Nothing is checked"
        assert not found.conforms


class TestStores:
    def test_a_zip_file(self, with_a_finding):
        nodes = nodes_of(shutil.make_archive(str(with_a_finding), "zip", with_a_finding))
        assert [f["subject"] for f in nodes["data/plain"]["findings"]] == ["c/1/0"]
        assert nodes["data/plain"]["stored_chunks"] == 4

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

    def test_an_fsspec_url_and_a_store_that_was_open_and_is_left_open(self, folder):
        fs = pytest.importorskip("fsspec").filesystem("memory")
        fs.put(str(folder), "/check.zarr", recursive=True)
        assert nodes_of("memory://check.zarr")["data/plain"]["stored_chunks"] == 4
        option = 'memory={"skip_instance_cache": true}'
        url = "simplecache::memory://check.zarr"
        assert call("check", url, "--storage-option", option).exit_code == 0
        store = FsspecStore.from_url("memory://check.zarr", read_only=True)
        assert zarr_bytes.check(store).conforms
        assert zarr.open_array(store, path="data/plain", mode="r")[1, 0] == 1
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
            assert result.exit_code == (1 if lists else 0)
            assert result.stderr == ""
            assert node["stored_chunks"] == (4 if lists else None)
            assert [f["subject"] for f in node["findings"]] == ["c/1/1"] * lists

    @pytest.mark.parametrize(
        ("location", "option", "said"),
        [
            ("s3://a", "anon", "key=value"),
            ("s3://a", "=true", "key=value"),
            (".", "a=b", "for URLs"),
        ],
    )
    def test_an_option_that_is_none_or_of_a_folder_is_refused(self, location, option, said):
        result = call("check", location, "--storage-option", option)
        assert result.exit_code == 2
        assert said in result.stderr


class TestFromPython:
    def test_without_rich_the_columns_stand_below_each_other(self, with_a_finding):
        lines = str(zarr_bytes.check(with_a_finding / "data/plain")).splitlines()
        assert lines[2:] == [
            "Node   Data type   Codecs   Chunks",
            "-" * 53,
            "/      float32     bytes    4 of 4 stored   1 finding",
            "",
            "/       Found      Permitted",
            "-" * 28,
            "c/1/0   47 bytes   48 bytes",
        ]

    def test_it_runs_where_an_event_loop_runs_as_in_a_notebook(self):
        async def cell():
            return zarr_bytes.check(memory({"": ARRAY}))

        assert asyncio.run(cell()).conforms

    def test_what_is_no_store_is_an_error_that_says_what_is(self):
        with pytest.raises(TypeError, match="int; permitted are a path, a URL and a zarr store"):
            zarr_bytes.check(5)


class TestCommand:
    @pytest.mark.parametrize(
        ("others", "verdict", "conforms", "counts"),
        [
            ({}, "Conforms", True, (1, 0)),
            (
                {"b": [*LITTLE, GZIP], "c": []},
                "1 of 3 do not conform; 2 of 3 arrays not checked in full",
                False,
                (3, 2),
            ),
            (
                {"b": [*LITTLE, GZIP]},
                "Conforms; 1 of 2 arrays not checked in full",
                True,
                (2, 1),
            ),
            ({"old": None}, "Conforms; 1 of 2 arrays not checked in full", True, (2, 1)),
        ],
    )
    def test_what_is_not_checked_is_in_the_headline_in_json_and_in_a_strict_status(
        self, tmp_path, others, verdict, conforms, counts
    ):
        write(tmp_path / "a", ARRAY, c0=bytes(4))
        write(tmp_path, GROUP)
        for name, codecs in others.items():
            if codecs is None:
                zarr.create_array(tmp_path, name=name, shape=4, dtype="f4", zarr_format=2)
            else:
                write(tmp_path / name, ARRAY | {"codecs": codecs})
        assert call("check", tmp_path).stdout.startswith(f"{verdict}: ")
        code, found = check_json(tmp_path)
        assert (code, found["verdict"], found["conforms"]) == (not conforms, verdict, conforms)
        assert found["complete"] == (not others)
        assert (found["arrays"], found["arrays_not_checked"]) == counts
        assert check_json(tmp_path, "--strict")[0] == bool(others)

    @pytest.mark.parametrize(
        ("location", "said"),
        [
            ("{folder}/nothing", ": it does not exist"),
            ("{folder}/nothing.zip", ": it does not exist"),
            ("{folder}/empty", ": it holds no array and no group"),
            ("{folder}/file", ": it is not a folder, a .zip file or a URL"),
            ("{folder}/damaged.zip", ": it cannot be opened: BadZipFile"),
            ("nosuchscheme://a", ": "),
            ("", ": no store is named"),
        ],
    )
    def test_what_cannot_be_opened_is_one_line_and_exit_status_2(self, tmp_path, location, said):
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("text")
        (tmp_path / "damaged.zip").write_text("text")
        location = location.format(folder=tmp_path)
        result = call("check", location)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(location + said)
        assert result.stderr.count("\n") == 1
        with pytest.raises(zarr_bytes.StoreError, match=said[2:] or "scheme"):
            zarr_bytes.check(location)

    @pytest.fixture
    def many(self, tmp_path):
        """30 arrays, of which one does not conform."""
        for i in range(30):
            write(tmp_path / f"s/a{i}", ARRAY | {"fill_value": "1" if i == 7 else 0})
        return write(tmp_path / "s", text_of(GROUP))

    def test_those_with_findings_come_first_and_all_are_listed_where_that_is_asked_for(self, many):
        result = call("check", many)
        assert result.exit_code == 1
        rows = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("/a")]
        assert rows[0] == rows[-1] == "/a7"  # and the table of its findings
        assert len(rows) == 21
        assert "... and 10 more: --all lists them" in result.stdout
        lines = call("check", many, "--all").stdout.splitlines()
        assert sum(line.startswith("/a") for line in lines) == 31  # and the table of findings
        said = f"1 of 30 do not conform; 1 of 30 arrays not checked in full: {many}"
        assert lines[0] == lines[-1] == said

    def test_many_findings_are_cut_on_the_terminal_and_whole_in_json(self, many):
        for i in range(30):
            write(many / f"a{i}", ARRAY | {"fill_value": "1"})
        assert call("check", many).stdout.count("/a") == 40  # a row and a table of each
        assert call("check", many, "--all").stdout.count("/a") == 60
        chunks = {f"c{i}": b"xx" for i in range(30)}
        write(many / "a0", ARRAY | {"shape": [60], "chunk_grid": regular([2])}, **chunks)
        assert "20 more" in call("check", many / "a0").stdout
        subjects = [finding["subject"] for finding in nodes_of(many / "a0")[""]["findings"]]
        assert subjects == sorted(f"c/{i}" for i in range(30))

    @pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="rich counts columns")
    @pytest.mark.parametrize("columns", [200, 60])
    def test_columns_stand_below_each_other_in_any_script(self, tmp_path, monkeypatch, columns):
        """A terminal shows some characters in two columns, which `rich` knows."""
        from rich.cells import cell_len

        for name in ("plain", "溫度" * 12):
            zarr.create_array(tmp_path, name=name, shape=1, dtype="int8", compressors=None)
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = call("check", tmp_path).stdout.splitlines()
        rows = [line for line in lines if "int8" in line]
        assert len(rows) == 2
        assert len({cell_len(row.partition("int8")[0]) for row in rows}) == 1
        assert max(cell_len(line) for line in lines if "溫" in line) <= columns

    @pytest.mark.slow
    @pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")
    @pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="the bar is rich's")
    @pytest.mark.parametrize(("patience", "is_shown"), [(0, True), (100, False)])
    def test_a_progress_bar_counts_on_a_terminal_where_it_takes_long(
        self, folder, patience, is_shown
    ):
        """What a real process writes to stderr, with another patience before the progress bar."""
        code = (
            "import sys, zarr_bytes.commands.result as result\n"
            "from zarr_bytes.commands.command_line import main\n"
            f"result._PATIENCE = {patience}; sys.exit(main(['check', sys.argv[1]]))"
        )
        parent, child = os.openpty()
        command = [sys.executable, "-c", code, str(folder)]
        environment = os.environ | {"TERM": "xterm"}
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=child, env=environment
        )
        os.close(child)
        written = b""
        with contextlib.suppress(OSError):  # how a pseudo-terminal ends on Linux
            while piece := os.read(parent, 4096):
                written += piece
        os.close(parent)
        assert process.wait() == 0
        assert (b"chunk 4 of 4 /data/mask" in written) == bool(written) == is_shown
