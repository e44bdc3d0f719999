"""The commands on stores that mean no good, or that nobody meant: no hang, no harm, no praise.

They print no traceback and nothing that acts on a terminal, and end in bounded time and memory.
`tests/fuzz.py` says how long the random ones run.
"""

import io
import json
import os
import signal
import sys
import unicodedata
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import zarr
from command import Watched, call, found_in, nodes_of, reports_of
from documents import (
    ARRAY,
    ARRAY_2,
    DRAFT,
    GROUP,
    GROUP_2,
    LITTLE,
    consolidated,
    memory,
    regular,
    text_of,
    with_text,
    write,
)
from fuzz import fuzz
from fuzz_documents import documents, mutated, objects_of
from hypothesis import given
from hypothesis import strategies as st
from stored_arrays import KINDS_OF_NO_FILE, put
from zarr.storage import LocalStore, ZipStore

import zarr_bytes
from zarr_bytes.__main__ import main

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is bounded on Linux"),
    pytest.mark.filterwarnings("ignore"),
]

SECONDS = 20  # of computing, for one command
MEMORY = 4 * 2**30  # bytes of addresses, of which most are never used
TERMINAL = "\x1b[31m\x9b2J\u202e\u2066\x07\r\x00\x7f\n\u2028"
CHUNK = b"\1\0\2\0"


class TookTooLongError(BaseException):
    """An interruption, which no command takes for an error of the store."""


@contextmanager
def bounded():
    """Time and addresses of this process are."""
    import resource

    def interrupt(*_):
        raise TookTooLongError(f"longer than {SECONDS} seconds")

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    handler = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def in_danger(text):
    """Characters that a terminal interprets: control and format characters, and half surrogates."""
    dangerous = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text.replace("\n", "") if unicodedata.category(c) in dangerous}


def check_command(*arguments):
    """A command ends as it may, as text and as JSON."""
    for options in ([], ["--json"]):
        with bounded():
            result = call(*arguments, *options)
        shown = result.stdout + result.stderr
        assert result.exit_code in (0, 1, 2)
        assert in_danger(shown) == set()
        assert "MemoryError" not in shown
        if options and result.exit_code < 2:
            found = json.loads(result.stdout, parse_constant=pytest.fail)
            assert found.get("conforms", result.exit_code == 0) == (result.exit_code == 0)


def in_zip(path, objects):
    """A zip archive of documents and chunks, by their keys."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in objects.items():
            archive.writestr(key, text_of(content))
    return path


def arrays(documents, group=GROUP):
    """A group of arrays, each with one chunk."""
    objects = {"zarr.json": group}
    for name, document in enumerate(documents):
        objects |= {f"{name}/zarr.json": document, f"{name}/c/0": CHUNK}
    return objects


def deep():
    texts = ["[" * depth + "0" + "]" * depth for depth in (1400, 100_000)]
    codecs = "[]"
    for _ in range(1000):
        codecs = f'[{{"name":"sharding_indexed","configuration":{{"codecs":{codecs}}}}}]'
    documents = [with_text(ARRAY, member, text) for member in ARRAY for text in texts]
    return arrays([*documents, with_text(ARRAY, "codecs", codecs)])


def deep_groups():
    """No folder has so long a path."""
    groups = {"g/" * depth + "zarr.json": GROUP for depth in range(1200)}
    return groups | {"g/" * 1200 + "zarr.json": DRAFT}


SIZES = [
    ([10**400], [1], 10**400),
    ([2**60 + 1], [2], 2**59 + 1),
    ([2**53 + 1, 10**400 - 1], [2, 3], (2**52 + 1) * ((10**400 - 1) // 3)),
    ([10**300] * 60, [1] * 60, 10**1000),
    ([10**400], [10**399 + 1], 10),
]


def sizes():
    documents = [ARRAY | {"shape": n, "chunk_grid": regular(chunk)} for n, chunk, _ in SIZES]
    documents += [ARRAY | {"data_type": f"r{8 * 10**17}", "fill_value": [0]}]
    return arrays([*documents, with_text(ARRAY, "shape", f"[1{'0' * 5000}]")])


LEADING_OUT = ["/a", "../up", "a/../../up", "./dot", "a//b", "\\back"]


def names():
    others = ["C:", "..x", "-rf", "[red]x", "a b", "x" * 200, TERMINAL]
    return {f"{name}/zarr.json": DRAFT for name in LEADING_OUT + others} | {"zarr.json": GROUP}


def texts():
    documents = [ARRAY | {"data_type": "\ud800", "fill_value": "\udfff"}]
    named = {"name": TERMINAL, "configuration": {TERMINAL: 1}}
    codecs = [{"name": "bytes", "configuration": TERMINAL}]
    documents += [ARRAY | {m: value} for m in ARRAY for value in (TERMINAL, named, codecs)]
    return arrays(documents, GROUP | {"attributes": {TERMINAL: TERMINAL}})


def wrong_types():
    wrong = [None, True, -1, 2.5, 10**400, -(10**1500), "x", "", [], {}, [[]], [None]]
    wrong += [{"name": None}]
    documents = [ARRAY | {member: value} for member in ARRAY for value in wrong]
    for value in wrong:
        for member in ("chunk_grid", "chunk_key_encoding"):
            inner = dict.fromkeys(ARRAY[member]["configuration"], value)
            for configuration in (value, inner):
                documents += [ARRAY | {member: ARRAY[member] | {"configuration": configuration}}]
        documents += [ARRAY | {"codecs": [{"name": "bytes", "configuration": value}]}]
        documents += [ARRAY | {"codecs": [value, *LITTLE]}]
    return arrays(documents)


def not_documents():
    texts = ["", " ", "null", "5", '"x"', "[]", "{}", "{", "NaN", '{"a": NaN}', "\x00" * 50]
    texts += ["\ufeff{}", b"\xff\xfe\xfd", '{"node_type": "array"}', '{"zarr_format": 99}']
    texts += [json.dumps(ARRAY).encode(code) for code in ("utf-16", "utf-32", "utf-8-sig")]
    members = [("fill_value", "1" * 5000), ("shape", "[1e400]"), ("shape", "[NaN]")]
    return arrays([*texts, *(with_text(ARRAY, *member) for member in members)])


def copies():
    group = consolidated({"a": 5, "b": None, TERMINAL: [], "": ARRAY, "../d": ARRAY})
    return {"zarr.json": group, "a/zarr.json": DRAFT}


def format_2():
    """Documents of format 2 with members of any type and depth, and what may lie beside them."""
    texts = ["", "null", "5", "[]", "{}", "{", "NaN", '{"a": NaN}', "\x00", b"\xff\xfe\xfd"]
    deepest = "[" * 100_000 + "]" * 100_000
    wrong = [None, True, -1, 0, 2.5, 10**400, "x", "", [], {}, [[]], [None], TERMINAL, {"id": "x"}]
    wrong += [["a"], [["a", "<i2"]], [["a", "|b1", [10**9]]], "|V0", "|S99999999999", "<M8[x]"]
    arrays = [ARRAY_2 | {member: value} for member in ARRAY_2 for value in wrong]
    arrays += [{k: v for k, v in ARRAY_2.items() if k != member} for member in ARRAY_2]
    arrays += [ARRAY_2 | {"shape": shape, "chunks": chunks} for shape, chunks, _ in SIZES]
    arrays += [ARRAY_2 | {"chunks": [0]}, ARRAY_2 | {"dimension_separator": TERMINAL}]
    arrays += [with_text(ARRAY_2, member, deepest) for member in ARRAY_2]
    objects = {".zgroup": GROUP_2}
    for name, document in enumerate([*arrays, *texts]):
        objects |= {f"{name}/.zarray": document, f"{name}/0": CHUNK}
    for name, text in enumerate([*texts, deepest, json.dumps({TERMINAL: TERMINAL})]):
        objects |= {f"attributes {name}/.zarray": ARRAY_2, f"attributes {name}/.zattrs": text}
        objects |= {f"groups/{name}/.zgroup": text, f"copies/{name}/.zmetadata": text}
        objects |= {f"copies/{name}/.zgroup": GROUP_2}
    paths = {"../a/.zarray": ARRAY_2, "/.zarray": ARRAY_2, "a/.zarray": 5, TERMINAL: 5, "x": 5}
    copies = {"zarr_consolidated_format": 1, "metadata": paths}
    return objects | {"copies/.zgroup": GROUP_2, "copies/.zmetadata": copies}


CASES = [deep, deep_groups, sizes, names, texts, wrong_types, not_documents, copies, format_2]


def test_metadata_that_is_no_json_is_a_finding_and_no_traceback(tmp_path):
    (tmp_path / "zarr.json").write_text("{")
    result = call("check", tmp_path)
    assert (result.exit_code, result.stderr) == (1, "")


@pytest.mark.parametrize("case", CASES)
def test_no_hierarchy_makes_a_command_fail(tmp_path, case):
    check_command("check", in_zip(tmp_path / "a.zip", case()))


NAMES = ["a", "b", "a/b", "..", "c", "zarr.json", "x" * 100, TERMINAL, "é\u0301", "[b]", "-y"]


@fuzz(examples=15)
@given(data=st.data())
def test_no_random_hierarchy_makes_a_command_fail(tmp_path_factory, data):
    """Documents that are changed at random under hostile names, in a folder or a zip archive."""
    objects = {"zarr.json": GROUP}
    for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
        document, content = data.draw(documents())
        nodes = objects_of(data.draw(mutated(document)), content)
        objects |= {f"{name}/{key}": nodes[key] for key in ("zarr.json", "c/0", "c/0/0")}
        if data.draw(st.booleans()):
            objects |= {f"{name}/.zarray": data.draw(mutated(ARRAY_2)), f"{name}/0": CHUNK}
            if data.draw(st.booleans()):
                del objects[f"{name}/zarr.json"]
    root, is_zip = tmp_path_factory.mktemp("a"), data.draw(st.booleans())
    if is_zip:
        root = in_zip(root / "a.zip", objects)
    for key, content in {} if is_zip else objects.items():
        path = root / key.replace("\x00", "").replace("..", "dots")
        if not path.is_dir() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text_of(content))
    check_command("check", root)
    store = (ZipStore if is_zip else LocalStore)(root, read_only=True)
    with zarr.config.set({"zarr_bytes.fill_values": "strict"}):
        zarr.open_group(store, mode="r")  # an archive is closed only where it has been open
        for report in zarr_bytes.check(root):
            if report.kind == "array" and not report.findings:  # what conforms opens
                zarr.open_array(store, path=report.path, mode="r")


def test_no_setting_makes_status_fail():
    for setting in (
        {"zarr_bytes.partial_reads": TERMINAL},
        {"zarr_bytes.gap": {"remote": float("nan")}},
        {"zarr_bytes.gap": TERMINAL},
        {"zarr_bytes": {TERMINAL: {TERMINAL: 1}}},
        {"zarr_bytes": 5},
        {"zarr_bytes.fill_values": "\ud800"},
        {"codecs.bytes": TERMINAL},
        {"codecs.bytes": None},
    ):
        with zarr.config.set(setting):
            check_command("status")


@pytest.fixture
def folder(tmp_path):
    """A group with one array of two chunks."""
    write(tmp_path / "s/a", ARRAY, c0=bytes(4), c1=bytes(4))
    return write(tmp_path / "s", GROUP)


def test_the_name_of_a_store_is_printable_with_rich_and_without(tmp_path, monkeypatch):
    folder = write(tmp_path / TERMINAL.replace("\0", ""), ARRAY)
    for _ in range(2):
        assert in_danger(call("check", folder).stdout + str(zarr_bytes.check(folder))) == set()
        monkeypatch.setitem(sys.modules, "rich", None)


class TestFolders:
    def test_a_linked_chunk_is_checked_and_links_to_folders_are_not_followed(self, folder):
        (folder / "a/c/1").rename(folder / "elsewhere")
        (folder / "a/c/1").symlink_to(folder / "elsewhere")
        (folder / "elsewhere").write_bytes(b"short")
        (folder / "b").symlink_to(folder / "a")
        (folder / "back").symlink_to(folder)
        (folder / "up").symlink_to(folder.parent)
        (folder / "a/c/back").symlink_to(folder / "a/c")
        (folder / "itself").symlink_to(folder / "itself")
        (node,) = nodes_of(folder).values()
        assert (node["path"], found_in(node), node["stored_chunks"]) == ("a", ["5 bytes"], 2)

    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_a_folder_fifo_or_device_at_a_document_is_not_listed_and_not_waited_for(
        self, folder, kind
    ):
        (folder / "zarr.json").unlink()
        for place in ("b/zarr.json", "zarr.json", ".zgroup", "d/.zarray"):
            put(kind, folder / place)
            if kind == "link to a FIFO":
                (folder / place).with_name("fifo").unlink()
        (node,) = nodes_of(folder).values()
        assert (node["path"], node["findings"], node["stored_chunks"]) == ("a", [], 2)
        (folder / "a/zarr.json").unlink()
        with pytest.raises(zarr_bytes.StoreError, match="it holds no array and no group"):
            zarr_bytes.check(folder)

    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    @pytest.mark.parametrize("key", ["c/1", "1"])
    def test_a_folder_fifo_or_device_at_a_chunk_is_found_and_not_waited_for(
        self, folder, kind, key
    ):
        """As a read of the chunk says; of both formats."""
        if key == "1":
            (folder / "a/zarr.json").unlink()
            (folder / "a/.zarray").write_bytes(text_of(ARRAY_2))
        (folder / "a" / key).unlink(missing_ok=True)
        put(kind, folder / "a" / key)
        array = zarr.open_array(folder / "a", mode="r")
        with pytest.raises(zarr_bytes.ChunkFileError) as caught:
            array[3]
        said = str(caught.value).replace(f"{folder}/a/", "")
        (finding,) = nodes_of(folder)["a"]["findings"]
        assert (finding["subject"], finding["found"]) == (key, said)
        assert not finding["is_note"]

    def test_folders_that_are_no_chunks_and_links_to_nothing_are_ignored(self, folder):
        (folder / "a/c/1").unlink()
        (folder / "a/c/1").symlink_to("nothing")  # a missing chunk, as for a read
        for name in "c/2", "c/0.0", "c/x/1", "1":
            (folder / "a" / name).mkdir(parents=True)
        (node,) = nodes_of(folder).values()
        assert (node["findings"], node["stored_chunks"]) == ([], 1)

    def test_check_ends_at_folders_deeper_than_a_path_can_name(self, tmp_path, monkeypatch):
        monkeypatch.chdir(write(tmp_path / "s", GROUP))
        for _ in range(30):
            Path("a" * 200).mkdir()
            monkeypatch.chdir("a" * 200)
            write(Path(), GROUP)
        write(Path(), ARRAY)
        monkeypatch.chdir(tmp_path)
        assert call("check", "s").exit_code == 1


class TestPaths:
    def test_consolidated_paths_out_of_the_store_are_found_and_not_followed(self, tmp_path):
        paths = ["../a", "/etc", "/a", "b//c", "b/../../a", "", "."]
        write(tmp_path / "a", DRAFT)
        write(tmp_path / "s/b", ARRAY)
        copies = consolidated(dict.fromkeys([*paths, "b"], ARRAY))
        store = Watched(LocalStore(write(tmp_path / "s", copies), read_only=True))
        reports = reports_of(store)
        assert not reports[""].conforms
        assert reports["b"].conforms
        assert {key for key in store.read if "/c/" not in key} == {"zarr.json", "b/zarr.json"}

    def test_zip_members_that_lead_out_of_the_file_are_found(self, tmp_path):
        nodes = nodes_of(in_zip(tmp_path / "names.zip", names()))
        assert {path for path, node in nodes.items() if not node["conforms"]} == {*LEADING_OUT}
        assert [*nodes_of(in_zip(tmp_path / "deep.zip", deep_groups()))] == ["/".join("g" * 1200)]
        nodes = nodes_of(in_zip(tmp_path / "sizes.zip", sizes()))
        for number, (_, _, count) in enumerate(SIZES):
            refused = any("OverflowError" in found for found in found_in(nodes[str(number)]))
            assert nodes[str(number)]["chunks"] == (None if refused else count)
            assert not refused or zarr.__version__.startswith("3.2")  # it makes it a float

    def test_a_wrong_bool_is_found_also_in_a_compressed_member(self, tmp_path):
        document = ARRAY | {"data_type": "bool", "fill_value": False}
        objects = {"zarr.json": document, "c/": "", "c/0/": "", "c/1": b"\0\2"}
        node = nodes_of(in_zip(tmp_path / "a.zip", objects))[""]
        assert found_in(node) == ["a bool of 2 at byte 1"]


class TestTerminal:
    """Nothing from a store reaches a terminal as a control character."""

    def test_check_prints_no_control_characters(self, tmp_path):
        """Characters that are not shown are there as escapes, in names, documents and errors."""
        name = TERMINAL.replace("\0", "")
        write(tmp_path / name, ARRAY | {"data_type": TERMINAL}, **{f"c{name}": b""})
        write(tmp_path, GROUP | {"attributes": {name: 1}})
        write(tmp_path / "[red]a[" / os.fsdecode(b"caf\xe9"), ARRAY | {"fill_value": "[/]"})
        check_command("check", tmp_path)
        text = call("check", tmp_path).stdout
        for shown in ("\\x1b[31m", "\\u202e", "\\n", "/[red]a[/caf\\udce9", "[/]"):
            assert shown in text
        assert os.fsdecode(b"[red]a[/caf\xe9") in nodes_of(tmp_path)
        check_command("check", str(tmp_path / f"no{name}"))

    @given(st.text(st.characters() | st.sampled_from(TERMINAL + "\u2029\udcff"), max_size=20))
    def test_every_character_that_is_not_printable_is_escaped(self, text):
        shown = str(zarr_bytes.check(memory({"": ARRAY | {"data_type": text}})))
        assert in_danger(shown) == set()
        if text.isascii() and text.isprintable() and "  " not in text:
            assert json.dumps(text)[1:-1] in shown

    def test_check_prints_to_a_terminal_of_any_encoding(self, folder, monkeypatch):
        write(folder / "\u96ea\U0001f600", ARRAY)
        output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["check", str(folder)]) == 0
        assert b"\\u96ea\\U0001f600" in output.buffer.getvalue()

    def test_long_paths_are_cut_in_what_is_printed(self, tmp_path):
        path = in_zip(tmp_path / "a.zip", {"abc/" * 600 + "zarr.json": ARRAY | {"codecs": 5}})
        shown = str(zarr_bytes.check(path))
        assert max(map(len, shown.splitlines())) < 700
        assert shown.count("/abc") > 100
