"""The commands on stores that mean no good, or that nobody meant: no hang, no harm, no praise."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import unicodedata
import warnings
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import zarr
from command import call
from documents import LITTLE, store_of
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore, WrapperStore

from zarr_bytes.commands import stored_chunks
from zarr_bytes.commands.check import check_store
from zarr_bytes.commands.chunk_grid import ChunkGrid
from zarr_bytes.commands.migrate import plan
from zarr_bytes.commands.reports import CheckReport
from zarr_bytes.commands.text import as_json, brief, in_digits, printable

on_posix = pytest.mark.skipif(os.name != "posix", reason="FIFOs and links to folders are POSIX")

ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": LITTLE,
    "attributes": {},
}
DRAFT = ARRAY | {"codecs": [{"name": "endian", "configuration": {"endian": "little"}}]}
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}


def write(folder, document):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zarr.json").write_text(json.dumps(document))
    return folder


def memory(documents):
    """A store in memory of documents, each a dict, text or bytes, by their paths."""
    texts = {
        path: document if isinstance(document, bytes) else json.dumps(document).encode()
        for path, document in documents.items()
    }
    return MemoryStore(
        {f"{path}/zarr.json".lstrip("/"): Buffer.from_bytes(text) for path, text in texts.items()}
    )


def check(store):
    async def collect():
        return {report.path: report async for report in check_store(store)}

    return asyncio.run(collect())


def run_json(location, *options):
    result = call("check", location, "--json", *options)
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    return result.exit_code, document


def nodes_of(location):
    return {node["path"]: node for node in run_json(location)[1]["nodes"]}


def found_in(node):
    return [finding["found"] for finding in node["findings"]]


@pytest.fixture
def folder(tmp_path):
    """A group with one array of two chunks."""
    write(tmp_path / "s", GROUP)
    array = write(tmp_path / "s/a", ARRAY)
    (array / "c").mkdir()
    for i in "01":
        (array / "c" / i).write_bytes(bytes(4))
    return tmp_path / "s"


@on_posix
class TestLinks:
    def test_chunks_behind_a_link_are_checked(self, folder, tmp_path):
        (folder / "a/c").rename(tmp_path / "elsewhere")
        (folder / "a/c").symlink_to(tmp_path / "elsewhere")
        assert nodes_of(folder)["a"]["stored_chunks"] == 2
        (tmp_path / "elsewhere/1").write_bytes(b"short")
        assert found_in(nodes_of(folder)["a"]) == ["5 bytes"]

    def test_a_chunk_that_is_a_link_is_checked(self, folder, tmp_path):
        (tmp_path / "chunk").write_bytes(b"short")
        (folder / "a/c/1").unlink()
        (folder / "a/c/1").symlink_to(tmp_path / "chunk")
        assert found_in(nodes_of(folder)["a"]) == ["5 bytes"]

    def test_an_array_behind_a_link_is_checked(self, folder, tmp_path):
        (folder / "a").rename(tmp_path / "elsewhere")
        (folder / "a").symlink_to(tmp_path / "elsewhere")
        assert nodes_of(folder)["a"]["stored_chunks"] == 2

    def test_an_array_with_two_names_is_checked_once_and_both_are_listed(self, folder):
        (folder / "b").symlink_to(folder / "a")
        code, found = run_json(folder)
        assert code == 0
        assert found["arrays"] == 1
        assert {n["path"]: n["not_checked"] for n in found["nodes"]} == {
            "a": "",
            "b": "the same as /a",
        }

    def test_links_that_lead_back_end(self, folder):
        (folder / "back").symlink_to(folder)
        (folder / "up").symlink_to(folder.parent)
        (folder / "a/c/back").symlink_to(folder / "a/c")
        (folder / "itself").symlink_to(folder / "itself")
        nodes = nodes_of(folder)
        assert nodes["back"]["not_checked"] == "the same as /"
        assert nodes["a"]["stored_chunks"] == 2

    def test_groups_that_branch_by_links_are_met_once(self, tmp_path):
        write(tmp_path / "0", GROUP)
        for level in range(40):
            write(tmp_path / str(level + 1), GROUP)
            for name in "ab":
                (tmp_path / str(level) / name).symlink_to(tmp_path / str(level + 1))
        assert len(nodes_of(tmp_path / "0")) == 40  # the second name of each

    def test_chunks_that_branch_by_links_are_counted_exactly(self, tmp_path):
        dimensions = 40
        grid = {"name": "regular", "configuration": {"chunk_shape": [1] * dimensions}}
        document = ARRAY | {"shape": [2] * dimensions, "chunk_grid": grid}
        array = write(tmp_path / "a", document)
        folders = [array / "c", *(tmp_path / f"d{i}" for i in range(1, dimensions))]
        for folder in folders:
            folder.mkdir()
        for folder, below in pairwise(folders):
            for name in "01":
                (folder / name).symlink_to(below)
        (folders[-1] / "0").write_bytes(bytes(2))
        (folders[-1] / "1").write_bytes(b"short")
        node = nodes_of(array)[""]
        assert node["stored_chunks"] == node["chunks"] == 2**dimensions
        assert found_in(node) == ["5 bytes"]


@on_posix
class TestWhatIsNoFile:
    @pytest.mark.parametrize("data_type", ["int16", "bool"])
    @pytest.mark.parametrize("kind", ["FIFO", "folder", "device", "socket", "link to nothing"])
    def test_in_the_place_of_a_chunk_is_found_and_not_opened(
        self, folder, kind, data_type, monkeypatch
    ):
        write(folder / "a", ARRAY | {"data_type": data_type})
        path = folder / "a/c/1"
        path.unlink()
        make(kind, path, monkeypatch)
        assert f"a {kind}" in found_in(nodes_of(folder)["a"])

    def test_in_the_place_of_a_folder_of_chunks_is_found(self, folder):
        for path in (folder / "a/c").iterdir():
            path.unlink()
        (folder / "a/c").rmdir()
        os.mkfifo(folder / "a/c")
        assert found_in(nodes_of(folder)["a"]) == ["a FIFO"]

    @pytest.mark.parametrize("kind", ["FIFO", "device", "socket"])
    @pytest.mark.parametrize("command", ["check", "migrate"])
    def test_in_the_place_of_a_document_is_found(self, folder, kind, command, monkeypatch):
        (folder / "b").mkdir()
        make(kind, folder / "b/zarr.json", monkeypatch)
        result = call(command, folder)
        assert result.exit_code == 1
        assert f"it is a {kind}, not a file" in " ".join(result.output.split())

    def test_in_the_place_of_the_first_document_is_said_in_one_line(self, tmp_path):
        os.mkfifo(tmp_path / "zarr.json")
        result = call("check", tmp_path)
        assert result.exit_code == 2
        assert "it is a FIFO" in result.stderr

    def test_a_document_of_a_terabyte_is_not_read(self, folder):
        (folder / "b").mkdir()
        with (folder / "b/zarr.json").open("wb") as file:
            file.truncate(2**40)  # takes no space
        assert "is not read" in found_in(nodes_of(folder)["b"])[0]


def make(kind, path, monkeypatch):
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")  # which never ends
        case "socket":
            monkeypatch.chdir(path.parent)  # their paths are short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        case "link to nothing":
            path.symlink_to(path.with_name("nothing"))


class Unlistable(WrapperStore):
    """As plain HTTP: `get` works, and nothing can be listed. What was read is remembered."""

    def __init__(self, store):
        super().__init__(store)
        self.read = []

    async def get(self, key, *args, **kwargs):
        self.read.append(key)
        return await self._store.get(key, *args, **kwargs)

    async def list_dir(self, prefix):
        raise NotImplementedError
        yield


def consolidated(copies):
    member = {"kind": "inline", "must_understand": False, "metadata": copies}
    return GROUP | {"consolidated_metadata": member}


class TestConsolidatedMetadata:
    """Copies are what zarr reads: it does not look at the documents."""

    def test_copies_that_are_the_documents_are_no_finding(self):
        reports = check(
            memory({"": consolidated({"a": ARRAY, "g": GROUP}), "a": ARRAY, "g": GROUP})
        )
        assert list(reports) == ["a"]
        assert reports["a"].conforms

    def test_a_copy_with_a_fault_is_found(self):
        copy = ARRAY | {"fill_value": "1.5"}
        reports = check(memory({"": consolidated({"a": copy}), "a": ARRAY}))
        subjects = [finding.subject for finding in reports[""].findings]
        assert "consolidated_metadata: a" in subjects
        assert not reports["a"].conforms

    def test_a_copy_of_an_array_without_a_document_is_found(self):
        (report,) = check(memory({"": consolidated({"a": ARRAY})})).values()
        assert report.findings[0].found == "a copy of a zarr.json that is not there"

    def test_an_array_without_a_copy_is_found_because_zarr_does_not_see_it(self):
        store = memory({"": consolidated({"a": ARRAY}), "a": ARRAY, "b": ARRAY})
        assert "b" not in zarr.open_group(store, mode="r")
        report = check(store)[""]
        assert report.findings[0].found == "no copy of b, which zarr therefore does not see"

    @pytest.mark.parametrize(
        "member",
        [5, {}, {"kind": "other", "metadata": {}}, {"kind": "inline", "metadata": {"a": 5}}],
    )
    def test_what_zarr_does_not_open_the_group_for_is_found(self, member):
        store = memory({"": GROUP | {"consolidated_metadata": member}, "a": ARRAY})
        try:
            zarr.open_group(store, mode="r")
        except Exception:  # noqa: BLE001 -- zarr's
            assert not check(store)[""].conforms
        else:
            assert member == {}

    @pytest.mark.parametrize("path", ["../a", "/etc", "b//c", "", "."])
    def test_a_path_that_leads_out_of_the_store_is_found_and_not_followed(self, tmp_path, path):
        write(tmp_path / "a", ARRAY)
        folder = write(tmp_path / "s", consolidated({path: ARRAY}))
        assert "no path of a node" in found_in(nodes_of(folder)[""])

    @pytest.mark.parametrize("path", ["../a", "b/../../a", "/a", "b//../../a"])
    def test_nor_by_what_cannot_list_and_is_walked_by_the_copies(self, tmp_path, path):
        write(tmp_path / "a", DRAFT)
        write(tmp_path / "s/b", ARRAY)
        folder = write(tmp_path / "s", consolidated({path: ARRAY, "b": ARRAY}))
        store = Unlistable(zarr.storage.LocalStore(folder, read_only=True))
        reports = check(store)
        assert set(reports) == {"", "b"}
        assert "no path of a node" in [f.found for f in reports[""].findings]
        assert not asyncio.run(plan(store)).changes
        assert {key for key in store.read if "/c/" not in key} == {"zarr.json", "b/zarr.json"}

    def test_a_copy_of_what_is_behind_a_second_link_is_compared(self, folder):
        (folder / "b").symlink_to(folder / "a")
        write(folder, consolidated({"a": ARRAY, "b": ARRAY}))
        assert run_json(folder)[0] == 0
        write(folder, consolidated({"a": ARRAY, "b": ARRAY | {"fill_value": 1}}))
        assert "another copy" in found_in(nodes_of(folder)[""])[0]


def test_groups_without_any_array_conform():
    assert check(memory({"": GROUP, "a": GROUP})) == {}


class TestVerdict:
    def documents(self, folder, **arrays):
        for name, document in arrays.items():
            write(folder / name, document)
        return folder

    def test_what_is_not_checked_is_in_the_headline_and_in_json(self, folder):
        gzip = [*LITTLE, {"name": "gzip", "configuration": {"level": 1}}]
        self.documents(folder, b=ARRAY | {"codecs": gzip}, c=ARRAY | {"codecs": gzip})
        text = "Metadata conforms; chunks of 2 of 3 arrays not checked"
        assert call("check", folder).stdout.startswith(f"{text}: ")
        code, found = run_json(folder)
        assert (code, found["verdict"], found["conforms"], found["complete"]) == (
            0,
            text,
            True,
            False,
        )
        assert (found["arrays"], found["arrays_not_checked"]) == (3, 2)
        assert run_json(folder, "--strict")[0] == 1

    def test_strict_changes_nothing_where_everything_is_checked(self, folder):
        assert run_json(folder, "--strict")[0] == 0

    def test_findings_come_before_what_is_not_checked(self, folder):
        gzip = [*LITTLE, {"name": "gzip", "configuration": {"level": 1}}]
        self.documents(folder, b=ARRAY | {"codecs": gzip}, c=ARRAY | {"fill_value": "1.5"})
        found = run_json(folder)[1]
        assert found["verdict"] == "1 of 3 do not conform; chunks of 1 of 3 arrays not checked"

    def test_arrays_of_format_2_are_counted_apart(self, folder):
        zarr.create_array(folder, name="old", shape=4, dtype="f4", zarr_format=2)
        code, found = run_json(folder)
        assert code == 0
        assert found["verdict"] == (
            "What is of Zarr format 3 conforms; 1 array of Zarr format 2 not checked"
        )
        assert run_json(folder, "--strict")[0] == 1

    def test_a_store_that_cannot_list_and_names_no_array_does_not_conform(self, folder):
        (report,) = check(Unlistable(zarr.storage.LocalStore(folder, read_only=True))).values()
        assert not CheckReport.of("a store", [report]).conforms

    def test_what_does_not_exist_is_said_not_to(self, tmp_path):
        for path in (tmp_path / "nothing", tmp_path / "nothing.zip"):
            result = call("check", path)
            assert result.exit_code == 2
            assert result.stderr == f"{path}: it does not exist\n"


# What Unicode calls control and format characters, and half of a surrogate pair.
DANGEROUS = [chr(n) for n in range(0x20)] + [chr(n) for n in range(0x7F, 0xA0)]
DANGEROUS += list("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029\udcff")
NAME = "".join(c for c in DANGEROUS if c not in "\0/")


def has_danger(text):
    allowed = text.replace("\n", "")
    return [c for c in allowed if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@pytest.mark.slow
class TestTerminal:
    """Nothing from a store reaches a terminal as a control character."""

    @given(st.text(st.characters() | st.sampled_from(DANGEROUS)))
    def test_every_such_character_is_escaped(self, text):
        shown = printable(text)
        assert not has_danger(shown)
        assert "\n" not in shown
        if text.isascii() and text.isprintable():
            assert shown == text

    @pytest.mark.parametrize("options", [[], ["--all"], ["--json"]])
    def test_in_what_check_prints(self, tmp_path, options):
        store = self.store(tmp_path)
        result = call("check", store, *options)
        assert result.exit_code == 1
        assert not has_danger(result.stdout + result.stderr)
        assert "\\x1b" in result.stdout or "\\u001b" in result.stdout

    def test_in_what_migrate_prints_and_asks(self, tmp_path):
        store = self.store(tmp_path, DRAFT | {"attributes": {"\x7f\x9b\u202e": "\x85\u2028"}})
        for path in store.rglob("zarr.json"):  # as they may stand in JSON
            text = json.dumps(json.loads(path.read_text()), ensure_ascii=False)
            path.write_bytes(text.encode(errors="surrogatepass"))
        result = call("migrate", store, answer="n\n")
        assert "Write " in result.stdout
        assert not has_danger(result.output)

    def test_in_errors(self, tmp_path):
        result = call("check", str(tmp_path / f"no{NAME}"))
        assert result.exit_code == 2
        assert not has_danger(result.stderr)

    def test_names_that_look_like_markup_are_shown_as_they_are(self, folder):
        write(folder / "[red]a[", ARRAY | {"fill_value": "[/]"})
        text = call("check", folder).stdout
        assert "/[red]a[" in text
        assert "[/]" in text

    @on_posix
    def test_a_file_name_that_is_not_utf_8_is_in_json_too(self, folder):
        name = os.fsdecode(b"caf\xe9")
        write(folder / name, ARRAY)
        (folder / "a/c/extra").with_name(name).write_bytes(b"")
        assert name in nodes_of(folder)
        assert "caf\\udce9" in call("check", folder).stdout

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
    def test_any_encoding_of_the_terminal_will_do(self, folder, encoding):
        write(folder / "\u96ea\U0001f600", ARRAY)
        done = subprocess.run(
            [sys.executable, "-m", "zarr_bytes", "check", str(folder)],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0
        assert done.stderr == b""

    def test_a_bare_nan_is_not_in_json_output(self, folder):
        nan = float("nan")
        write(folder / "a", ARRAY | {"data_type": {"name": nan, "x": [nan, float("inf")]}})
        (node,) = run_json(folder)[1]["nodes"]
        assert node["data_type"] == {"name": "NaN", "x": ["NaN", "Infinity"]}

    def store(self, tmp_path, document=DRAFT):
        store = write(tmp_path / "s", GROUP)
        try:
            write(store / NAME, document | {NAME: {"must_understand": False}})
            (store / NAME / "c").mkdir()
            (store / NAME / "c" / NAME).write_bytes(b"")
        except (OSError, ValueError):
            pytest.skip("this file system has no such names")
        return write(store, GROUP | {"attributes": {NAME: 1}})


def nested(depth, inner=0, *, by="list"):
    if by == "list":
        return json.loads("[" * depth + json.dumps(inner) + "]" * depth)
    return json.loads('{"a":' * depth + json.dumps(inner) + "}" * depth)


BYTES = '"name": "bytes"'


def is_read_by_python(text):
    try:
        json.loads(text)
    except RecursionError:
        return False
    return True


def is_opened_by_zarr(text):
    try:
        zarr.open_array(memory({"": text.encode()}), mode="r")
    except Exception:  # noqa: BLE001 -- zarr's
        return False
    return True


DEEP = 1400 if sys.version_info >= (3, 12) else 600  # what Python's JSON reads


@pytest.mark.slow
class TestDepthsAndSizes:
    """No traceback, and neither time nor memory without bound."""

    @pytest.mark.parametrize("command", ["check", "migrate"])
    @pytest.mark.parametrize("by", ["list", "object"])
    def test_attributes_as_deep_as_zarr_reads_them(self, tmp_path, command, by):
        text = '{"a": ' * DEEP + "0" + "}" * DEEP if by == "object" else "[" * DEEP + "]" * DEEP
        document = json.dumps(DRAFT | {"attributes": {"deep": "HERE"}}).replace('"HERE"', text)
        (tmp_path / "zarr.json").write_text(document)
        assert call("check", tmp_path).exit_code == 1  # for the name endian alone
        result = call("migrate", tmp_path, "--yes")
        assert result.exit_code == 0
        if command == "check":
            assert run_json(tmp_path)[1]["nodes"][0]["findings"] == []
        else:
            assert '"name": "bytes"' in (tmp_path / "zarr.json").read_text()

    @pytest.mark.parametrize("member", [*ARRAY, "more", "consolidated_metadata"])
    @pytest.mark.parametrize("depth", [100, 1400, 100_000])
    @pytest.mark.parametrize("by", ["list", "object"])
    def test_any_member_of_any_depth(self, tmp_path, by, depth, member):
        """An error in the array and in the group, except for attributes of a group."""
        deep = "[" * depth + "]" * depth if by == "list" else '{"name":' * depth + "1" + "}" * depth
        for kind in (DRAFT, GROUP):
            document = json.dumps(kind | {member: "HERE"}).replace('"HERE"', deep)
            (tmp_path / "zarr.json").write_text(document)
            is_read = is_read_by_python(document)
            conforms = is_read and kind is GROUP and (member, by) == ("attributes", "object")
            assert call("check", tmp_path, "--json").exit_code == (not conforms)
            assert call("check", tmp_path).exit_code == (not conforms)
            if not is_read or member == "node_type":
                is_left = True
            elif kind is GROUP or member == "zarr_format":
                is_left = False  # there is no codec in it
            elif member == "codecs":
                is_left = by == "list"  # the one codec in it is not known
            else:
                is_left = not is_opened_by_zarr(document.replace('"name": "endian"', BYTES))
            result = call("migrate", tmp_path, "--dry-run")
            assert result.exit_code == is_left
            assert ("Reason" in result.stdout) == is_left

    @pytest.mark.parametrize(("depth", "is_left"), [(10, False), (200, False), (1000, True)])
    def test_shards_within_shards(self, tmp_path, depth, is_left):
        codecs = LITTLE
        text = json.dumps(codecs)
        for _ in range(depth):
            text = f'[{{"name":"sharding_indexed","configuration":{{"codecs":{text}}}}}]'
        document = json.dumps(ARRAY | {"codecs": "HERE"}).replace('"HERE"', text)
        (tmp_path / "zarr.json").write_text(document)
        for options in ([], ["--json"]):  # what shards must have is missing from these
            assert call("check", tmp_path, *options).exit_code == 1
        assert call("migrate", tmp_path, "--dry-run").exit_code == is_left

    @pytest.mark.parametrize(
        ("shape", "chunk_shape", "chunks"),
        [
            ([10**400], [1], 10**400),
            ([10**400], [10**400], 1),
            ([2**53 + 1], [1], 2**53 + 1),
            ([2**60 + 1], [2], 2**59 + 1),
            ([10**300] * 60, [1] * 60, "about 10^18000"),
            ([2] * 70, [1] * 70, None),
        ],
        ids=["400 digits", "1", "above 2**53", "above 2**60", "sixty", "seventy"],
    )
    @pytest.mark.parametrize("lists", [True, False])
    def test_shapes_of_any_size_are_counted_exactly(
        self, tmp_path, monkeypatch, shape, chunk_shape, chunks, lists
    ):
        monkeypatch.setattr(stored_chunks, "MOST_REQUESTS", 5)
        if not lists:

            async def cannot_list(self):
                return False

            monkeypatch.setattr("zarr_bytes.commands.folder.Folder.can_list", cannot_list)
        grid = {"name": "regular", "configuration": {"chunk_shape": chunk_shape}}
        write(tmp_path, ARRAY | {"shape": shape, "chunk_grid": grid})
        code, found = run_json(tmp_path)
        assert found["nodes"][0]["chunks"] == chunks
        refused = any("OverflowError" in f["found"] for f in found["nodes"][0]["findings"])
        assert not refused or zarr.__version__.startswith("3.2")  # it makes a float of the shape
        assert call("check", tmp_path).exit_code == code == int(refused)

    def test_counts_are_of_integers(self):
        document = {
            "shape": [2**53 + 1, 10**400 - 1],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
            "chunk_key_encoding": {"name": "default"},
        }
        grid = ChunkGrid.of_document(document)
        assert grid.counts == (2**52 + 1, (10**400 - 1) // 3)
        last = grid.key((2**52, (10**400 - 1) // 3 - 1))
        assert grid.contains(last)
        assert not grid.contains(grid.key((0, (10**400 - 1) // 3)))
        assert not grid.contains("c/0/" + "9" * 5000)  # more digits than Python reads

    def test_chunks_are_asked_for_one_after_another(self):
        """In a store that cannot list, with 10**8 chunks in each dimension."""
        document = {
            "shape": [10**8, 10**8],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1]}},
            "chunk_key_encoding": {"name": "v2"},
        }
        keys = ChunkGrid.of_document(document).keys(3)
        assert list(keys) == ["0.0", "0.1", "0.2"]

    def test_groups_5000_deep(self, tmp_path):
        path = tmp_path / "deep.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for depth in range(5000):
                archive.writestr("a/" * depth + "zarr.json", json.dumps(GROUP))
            archive.writestr("a/" * 5000 + "zarr.json", json.dumps(DRAFT))
        assert [len(path) for path in nodes_of(path)] == [9999]
        assert call("migrate", path, "--dry-run").exit_code == 0

    @on_posix
    def test_folders_deeper_than_the_system_names(self, tmp_path, monkeypatch):
        monkeypatch.chdir(write(tmp_path / "s", GROUP))
        for _ in range(30):
            write(Path(), GROUP)
            Path("a" * 200).mkdir()
            monkeypatch.chdir("a" * 200)
        write(Path(), ARRAY)
        monkeypatch.chdir(tmp_path)
        assert call("check", "s").exit_code == 1
        assert call("migrate", "s", "--dry-run").exit_code == 1

    def test_an_element_of_two_gigabytes_is_not_made(self, tmp_path):
        data_type = {"name": "raw_bytes", "configuration": {"length_bytes": 2**31 - 1}}
        write(tmp_path, ARRAY | {"data_type": data_type, "fill_value": ""})
        code, found = run_json(tmp_path)
        assert code == 0
        assert not found["complete"]

    def test_of_many_arrays_little_is_printed(self, tmp_path):
        count = 300
        path = tmp_path / "many.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                "zarr.json", json.dumps(consolidated({f"a{i}": DRAFT for i in range(count)}))
            )
            for i in range(count):
                archive.writestr(f"a{i}/zarr.json", json.dumps(DRAFT))
        result = call("check", path)
        assert result.exit_code == 1
        assert result.stdout.count("\n") < 200
        result = call("migrate", path, "--dry-run")
        assert f"{count + 1:,} metadata documents of the draft form" in result.stdout
        assert result.stdout.count("\n") < 100


class TestZipMembers:
    @pytest.mark.parametrize(
        "name", ["/a/zarr.json", "../zarr.json", "b/../../zarr.json", "b//zarr.json", "./zarr.json"]
    )
    def test_absolute_names_and_those_that_lead_out_are_found(self, tmp_path, name):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("zarr.json", json.dumps(GROUP))
            archive.writestr("b/zarr.json", json.dumps(GROUP))
            archive.writestr(name, json.dumps(ARRAY))
        code, found = run_json(path)
        assert code == 1
        assert "no name of a node" in found["nodes"][0]["findings"][0]["found"]
        assert found["arrays"] == 0
        assert call("migrate", path, "--dry-run").exit_code == 1

    def test_a_member_that_is_a_folder_in_the_place_of_a_chunk_is_found(self, tmp_path):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("zarr.json", json.dumps(ARRAY))
            archive.writestr("c/", "")
            archive.writestr("c/0/", "")
            archive.writestr("c/1", bytes(4))
        assert found_in(nodes_of(path)[""]) == ["a folder"]

    def test_a_bool_in_a_compressed_member_is_found(self, tmp_path):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(
                "zarr.json", json.dumps(ARRAY | {"data_type": "bool", "fill_value": False})
            )
            archive.writestr("c/1", b"\0\2")
        assert found_in(nodes_of(path)[""]) == ["a bool of 2 at index (1,), byte 1"]


ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]


class TestEncodings:
    """zarr reads them all, and JSON is UTF-8 without a byte order mark (RFC 8259)."""

    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_another_is_judged_alike_by_both_commands(self, tmp_path, encoding):
        (tmp_path / "zarr.json").write_bytes(json.dumps(DRAFT).encode(encoding))
        (found, _) = nodes_of(tmp_path)[""]["findings"]
        assert found["permitted"] == "UTF-8 without a byte order mark"
        (reason,) = asyncio.run(plan(zarr.storage.LocalStore(tmp_path))).refused.values()
        assert found["found"] in reason
        assert found["permitted"] in reason

    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_where_nothing_is_to_be_migrated_migrate_says_nothing(self, tmp_path, encoding):
        (tmp_path / "zarr.json").write_bytes(json.dumps(ARRAY).encode(encoding))
        assert call("migrate", tmp_path).exit_code == 0
        assert len(found_in(nodes_of(tmp_path)[""])) == 1


WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9) | st.sampled_from([10**400, -(10**20), 2**53 + 1]),
    st.floats(),
    st.sampled_from(
        ["", "bytes", "int16", "/", "\x1b[2J", "\ud800", "0x7fc00000", "r12", "endian"]
    ),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(
        st.sampled_from(["name", "configuration", "endian", ""]), st.none(), max_size=2
    ),
)


def places(value, path=()):
    """Paths of every value in a document, itself included."""
    yield path
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for name, member in inner:
            yield from places(member, (*path, name))


def replaced(document, path, value):
    if not path:
        return value
    changed = document.copy()
    changed[path[0]] = replaced(document[path[0]], path[1:], value)
    return changed


SHARD = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [1], "codecs": DRAFT["codecs"], "index_codecs": LITTLE},
}
STRUCT = {
    "name": "struct",
    "configuration": {
        "fields": [{"name": "a", "data_type": "bool"}, {"name": "b", "data_type": "float32"}]
    },
}
FORMS = [
    ARRAY,
    DRAFT | {"codecs": [{"name": "gzip", "configuration": {"level": 1}}]},
    ARRAY | {"codecs": [SHARD], "data_type": "float32", "fill_value": "NaN"},
    ARRAY | {"data_type": STRUCT, "fill_value": {"a": True, "b": 0.0}},
    ARRAY | {"data_type": "complex_bfloat16", "fill_value": [0.0, "NaN"]},
    ARRAY | {"codecs": [{"name": "transpose", "configuration": {"order": [0]}}, *LITTLE]},
    consolidated({"a": DRAFT, "g/b": ARRAY, "g": GROUP}),
]


@st.composite
def mutations(draw):
    """A valid document with one or two of its values replaced by something else."""
    document = draw(st.sampled_from(FORMS))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(places(document))))
        document = replaced(document, path, draw(WRONG))
    return document


class TestWrongTypesEverywhere:
    @settings(deadline=None, max_examples=300)
    @given(mutations())
    def test_are_findings_or_none_and_never_an_error(self, document):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store = memory({"": document, "a": ARRAY})
            for report in check(store).values():
                assert not any("cannot be checked" in f.found for f in report.findings)
                brief(report.data_type)
                for text in (f.found + f.permitted + f.subject for f in report.findings):
                    printable(text)
            asyncio.run(plan(store))

    @pytest.mark.parametrize("configuration", [5, None, [], "/", {"separator": 5}])
    def test_in_the_chunk_key_encoding(self, configuration):
        encoding = {"name": "default", "configuration": configuration}
        (report,) = check(memory({"": ARRAY | {"chunk_key_encoding": encoding}})).values()
        assert report.kind == "array"


class TestText:
    def test_json_output_is_cut_where_it_is_too_deep_for_python(self):
        document = json.loads(as_json({"a": nested(900), "b": 10**5000, "c": float("-inf")}))
        assert document["b"] == "about 10^5000"
        assert document["c"] == "-Infinity"

    @pytest.mark.parametrize(("sign", "shown"), [(1, "about 10^1500"), (-1, "about -10^1500")])
    def test_an_integer_of_1500_digits_is_given_by_magnitude(self, tmp_path, sign, shown):
        write(tmp_path, ARRAY | {"data_type": sign * 10**1500})
        code, document = run_json(tmp_path)
        assert code == 1
        assert document["nodes"][0]["data_type"] == shown

    @given(st.integers(-(10**30), 10**30))
    def test_numbers_are_given_in_digits_or_by_magnitude(self, number):
        if abs(number) < 10**18:
            assert int(in_digits(number).replace(",", "")) == number
        else:
            sign, exponent = re.fullmatch(r"about (-?)10\^(\d+)", in_digits(number)).groups()
            assert bool(sign) == (number < 0)
            assert abs(len(str(abs(number))) - int(exponent)) <= 1

    @given(st.integers(10, 100), st.recursive(st.text() | st.integers(), st.lists))
    def test_what_is_brief_is_the_beginning_of_the_json(self, longest, value):
        whole = json.dumps(value)
        assert brief(value, longest) == (
            whole if len(whole) <= longest else whole[: longest - 4] + " ..."
        )


def test_a_store_that_nothing_is_wrong_with_has_no_finding():
    (report,) = check(store_of("int16", chunk=bytes(4))).values()
    assert report.conforms
    assert report.stored_chunks == 1
