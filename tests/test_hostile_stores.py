"""The commands on stores that mean no good, or that nobody meant: no hang, no harm, no praise."""

import json
import os
import re
import subprocess
import sys
import unicodedata
import warnings
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import zarr
from command import Unlistable, Watched, call, check_json, found_in, nodes_of, reports_of
from documents import (
    ARRAY,
    DRAFT,
    GROUP,
    GZIP,
    LITTLE,
    consolidated,
    memory,
    regular,
    struct_of,
    text_of,
    with_text,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_arrays import KINDS_OF_NO_FILE, put
from test_fuzz_documents import mutated

import zarr_bytes

on_posix = pytest.mark.skipif(os.name != "posix", reason="FIFOs and links to folders are POSIX")

ZIPPED, WRONG = {"codecs": [*LITTLE, GZIP]}, {"fill_value": "1.5"}
BOTH_CHUNKS = {"c0": bytes(4), "c1": bytes(4)}


def in_zip(path, members, compression=zipfile.ZIP_STORED):
    """A zip file of documents and other members, by their names."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, text_of(content))
    return path


@pytest.fixture
def folder(tmp_path):
    """A group with one array of two chunks."""
    write(tmp_path / "s/a", ARRAY, **BOTH_CHUNKS)
    return write(tmp_path / "s", GROUP)


@on_posix
class TestLinks:
    @pytest.mark.parametrize("place", ["a", "a/c", "a/c/1"])
    def test_what_is_behind_a_link_is_checked(self, folder, tmp_path, place):
        elsewhere = (folder / place).rename(tmp_path / "elsewhere")
        (folder / place).symlink_to(elsewhere)
        assert nodes_of(folder)["a"]["stored_chunks"] == 2
        (folder / "a/c/1").write_bytes(b"short")
        assert found_in(nodes_of(folder)["a"]) == ["5 bytes"]

    def test_an_array_with_two_names_is_checked_once_and_both_are_listed(self, folder):
        (folder / "b").symlink_to(folder / "a")
        code, found = check_json(folder)
        assert (code, found["arrays"]) == (0, 1)
        nodes = {node["path"]: node["not_checked"] for node in found["nodes"]}
        assert nodes == {"a": "", "b": "the same as /a"}

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
        members = {"shape": [2] * dimensions, "chunk_grid": regular([1] * dimensions)}
        array = write(tmp_path / "a", ARRAY | members)
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


def make(kind, path):
    if kind == "link to nothing":
        path.symlink_to(path.with_name("nothing"))
    else:
        put(kind, path)


@on_posix
class TestWhatIsNoFile:
    @pytest.mark.parametrize("data_type", ["int16", "bool"])
    @pytest.mark.parametrize("kind", [*KINDS_OF_NO_FILE, "link to nothing"])
    def test_in_the_place_of_a_chunk_is_found_and_not_opened(self, folder, kind, data_type):
        write(folder / "a", ARRAY | {"data_type": data_type})
        (folder / "a/c/1").unlink()
        make(kind, folder / "a/c/1")
        assert f"a {kind.replace('link to a ', '')}" in found_in(nodes_of(folder)["a"])

    def test_in_the_place_of_a_folder_of_chunks_is_found(self, folder):
        (folder / "a/c").rename(folder / "chunks")
        os.mkfifo(folder / "a/c")
        assert found_in(nodes_of(folder)["a"]) == ["a FIFO"]

    @pytest.mark.parametrize("kind", ["FIFO", "character device", "socket"])
    @pytest.mark.parametrize("command", ["check", "migrate"])
    def test_in_the_place_of_a_document_is_found(self, folder, kind, command):
        (folder / "b").mkdir()
        make(kind, folder / "b/zarr.json")
        result = call(command, folder)
        assert result.exit_code == 1
        assert f"it is a {kind}, not a file" in " ".join(result.output.split())

    def test_in_the_place_of_the_first_document_is_said_in_one_line(self, tmp_path):
        os.mkfifo(tmp_path / "zarr.json")
        result = call("check", tmp_path)
        assert (result.exit_code, "it is a FIFO" in result.stderr) == (2, True)

    def test_a_document_of_a_terabyte_is_not_read(self, folder):
        (folder / "b").mkdir()
        with (folder / "b/zarr.json").open("wb") as file:
            file.truncate(2**40)  # takes no space
        assert "is not read" in found_in(nodes_of(folder)["b"])[0]


class TestConsolidatedMetadata:
    """Copies are what zarr reads: it does not look at the documents."""

    @pytest.mark.parametrize(
        ("copies", "documents", "conforming", "found"),
        [
            ({"a": ARRAY, "g": GROUP}, {"a": ARRAY, "g": GROUP}, {"a": True}, ""),
            ({"a": ARRAY | WRONG}, {"a": ARRAY}, {"": False, "a": False}, "fill_value"),
            ({"a": ARRAY}, {}, {"": False}, "a copy of a zarr.json that is not there"),
            (
                {"a": ARRAY},
                {"a": ARRAY, "b": ARRAY},
                {"": False, "a": True, "b": True},
                "no copy of b, which zarr therefore does not see",
            ),
        ],
        ids=["the same", "with a fault", "of nothing", "missing"],
    )
    def test_a_copy_that_is_not_the_document_is_found(self, copies, documents, conforming, found):
        reports = reports_of(memory({"": consolidated(copies)} | documents))
        assert {path: report.conforms for path, report in reports.items()} == conforming
        assert not found or any(found in f.found for f in reports[""].findings)

    @pytest.mark.parametrize(
        "member",
        [5, {}, {"kind": "other", "metadata": {}}, {"kind": "inline", "metadata": {"a": 5}}],
    )
    def test_what_zarr_does_not_open_the_group_for_is_found(self, member):
        store = memory({"": GROUP | {"consolidated_metadata": member}, "a": ARRAY})
        try:
            zarr.open_group(store, mode="r")
        except Exception:  # noqa: BLE001 -- zarr's
            assert not reports_of(store)[""].conforms
        else:
            assert member == {}

    @pytest.mark.parametrize("path", ["../a", "/etc", "/a", "b//c", "b/../../a", "", "."])
    def test_a_path_that_leads_out_of_the_store_is_found_and_not_followed(self, tmp_path, path):
        """Nor in a store that cannot list, and is walked by the copies."""
        write(tmp_path / "a", DRAFT)
        write(tmp_path / "s/b", ARRAY)
        folder = write(tmp_path / "s", consolidated({path: ARRAY, "b": ARRAY}))
        for class_ in (Watched, Unlistable):
            store = class_(zarr.storage.LocalStore(folder, read_only=True))
            reports = reports_of(store)
            assert set(reports) == {"", "b"}
            assert "not the path of a node" in [f.found for f in reports[""].findings]
            assert not zarr_bytes.migrate(store, dry_run=True).changes
        assert {key for key in store.read if "/c/" not in key} == {"zarr.json", "b/zarr.json"}

    @on_posix
    def test_a_copy_of_what_is_behind_a_second_link_is_compared(self, folder):
        (folder / "b").symlink_to(folder / "a")
        for fill_value, found in ((0, []), (1, ["differs from its zarr.json"])):
            write(folder, consolidated({"a": ARRAY, "b": ARRAY | {"fill_value": fill_value}}))
            assert found_in(nodes_of(folder).get("", {"findings": []})) == found


NOT_CHECKED = "chunks of %d of 3 arrays not checked"
OF_FORMAT_3 = "Everything of Zarr format 3 conforms"
OF_FORMAT_2 = "1 array of Zarr format 2 not checked"


class TestVerdict:
    @pytest.mark.parametrize(
        ("others", "verdict", "conforms", "counts"),
        [
            ({}, "Conforms", True, (1, 0)),
            ({"b": ZIPPED, "c": ZIPPED}, f"Metadata conforms; {NOT_CHECKED % 2}", True, (3, 2)),
            ({"b": ZIPPED, "c": WRONG}, f"1 of 3 do not conform; {NOT_CHECKED % 1}", False, (3, 1)),
            ({"old": None}, f"{OF_FORMAT_3}; {OF_FORMAT_2}", True, (2, 1)),
        ],
        ids=["checked", "compressed", "with findings", "format 2"],
    )
    def test_what_is_not_checked_is_in_the_headline_in_json_and_in_a_strict_status(
        self, folder, others, verdict, conforms, counts
    ):
        for name, members in others.items():
            if members is None:
                zarr.create_array(folder, name=name, shape=4, dtype="f4", zarr_format=2)
            else:
                write(folder / name, ARRAY | members)
        assert call("check", folder).stdout.startswith(f"{verdict}: ")
        code, found = check_json(folder)
        assert (code, found["verdict"], found["conforms"]) == (not conforms, verdict, conforms)
        assert found["complete"] == (not others)
        assert (found["arrays"], found["arrays_not_checked"]) == counts
        assert check_json(folder, "--strict")[0] == bool(others)
        if "old" in others:
            assert nodes_of(folder)["old"]["not_checked"] == "Zarr format 2"

    def test_groups_without_any_array_conform_and_are_not_listed(self):
        found = zarr_bytes.check(memory({"": GROUP, "a": GROUP}))
        assert found.conforms
        assert found.nodes == []


# What Unicode calls control and format characters, and half of a surrogate pair.
DANGEROUS = [chr(n) for n in range(0x20)] + [chr(n) for n in range(0x7F, 0xA0)]
DANGEROUS += list("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029\udcff")
NAME = "".join(c for c in DANGEROUS if c not in "\0/")


def has_danger(text):
    allowed = text.replace("\n", "")
    return [c for c in allowed if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


class TestTerminal:
    """Nothing from a store reaches a terminal as a control character."""

    @given(st.text(st.characters() | st.sampled_from(DANGEROUS), min_size=1, max_size=20))
    def test_every_such_character_is_escaped(self, text):
        shown = str(zarr_bytes.check(memory({"": DRAFT | {"data_type": text}})))
        assert not has_danger(shown)
        if text.isascii() and text.isprintable() and "  " not in text:
            assert json.dumps(text)[1:-1] in shown

    @pytest.mark.parametrize("options", [[], ["--all"], ["--json"]])
    def test_in_what_check_prints(self, tmp_path, options):
        result = call("check", self.store(tmp_path), *options)
        assert result.exit_code == 1
        assert not has_danger(result.stdout + result.stderr)
        assert "\\x1b" in result.stdout or "\\u001b" in result.stdout
        assert "\\n" in result.stdout

    def test_in_what_migrate_prints_and_asks(self, tmp_path):
        store = self.store(tmp_path, attributes={"\x7f\x9b\u202e": "\x85\u2028"})
        for path in store.rglob("zarr.json"):  # as they may stand in JSON
            text = json.dumps(json.loads(path.read_text()), ensure_ascii=False)
            path.write_bytes(text_of(text))
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

    @pytest.mark.slow
    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
    def test_any_encoding_of_the_terminal_will_do(self, folder, encoding):
        write(folder / "\u96ea\U0001f600", ARRAY)
        done = subprocess.run(
            [sys.executable, "-m", "zarr_bytes", "check", str(folder)],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")

    def store(self, tmp_path, **members):
        """A group and an array of the draft form whose names and members are of such characters."""
        try:
            write(tmp_path / NAME, DRAFT | members | {NAME: {"must_understand": False}})
            (tmp_path / NAME / "c").mkdir()
            (tmp_path / NAME / "c" / NAME).write_bytes(b"")
        except (OSError, ValueError):
            pytest.skip("this file system has no such names")
        return write(tmp_path, GROUP | {"attributes": {NAME: 1}})


def nested(depth, by):
    return "[" * depth + "]" * depth if by == "list" else '{"name":' * depth + "1" + "}" * depth


def is_read_by_python(text):
    try:
        json.loads(text)
    except RecursionError:
        return False
    return True


def is_opened_by_zarr(text):
    try:
        zarr.open_array(memory({"": text}), mode="r")
    except Exception:  # noqa: BLE001 -- zarr's
        return False
    return True


DEEP = 1400 if sys.version_info >= (3, 12) else 600  # what Python's JSON reads


@pytest.mark.slow
class TestDepthsAndSizes:
    """No traceback, and neither time nor memory without bound."""

    @pytest.mark.parametrize("by", ["list", "object"])
    def test_attributes_as_deep_as_zarr_reads_them(self, tmp_path, by):
        attributes = f'{{"deep": {nested(DEEP, by)}}}'
        write(tmp_path, with_text(DRAFT, "attributes", attributes))
        assert call("check", tmp_path).exit_code == 1  # for the name endian alone
        assert call("migrate", tmp_path, "--yes").exit_code == 0
        assert nodes_of(tmp_path)[""]["findings"] == []
        assert '"name": "bytes"' in (tmp_path / "zarr.json").read_text()

    @pytest.mark.parametrize("member", [*ARRAY, "more", "consolidated_metadata"])
    @pytest.mark.parametrize("depth", [100, 1400, 100_000])
    @pytest.mark.parametrize("by", ["list", "object"])
    def test_any_member_of_any_depth(self, tmp_path, by, depth, member):
        """An error in the array and in the group, except for attributes of a group."""
        for kind in (DRAFT, GROUP):
            document = with_text(kind, member, nested(depth, by))
            write(tmp_path, document)
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
                is_left = not is_opened_by_zarr(document.replace('"endian", "c', '"bytes", "c'))
            result = call("migrate", tmp_path, "--dry-run")
            assert result.exit_code == is_left
            assert ("Reason" in result.stdout) == is_left

    @pytest.mark.parametrize(("depth", "is_left"), [(10, False), (200, False), (1000, True)])
    def test_shards_within_shards(self, tmp_path, depth, is_left):
        text = json.dumps(LITTLE)
        for _ in range(depth):
            text = f'[{{"name":"sharding_indexed","configuration":{{"codecs":{text}}}}}]'
        write(tmp_path, with_text(ARRAY, "codecs", text))
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
            ([2**53 + 1, 10**400 - 1], [2, 3], (2**52 + 1) * ((10**400 - 1) // 3)),
            ([10**300] * 60, [1] * 60, "about 10^18000"),
            ([2] * 70, [1] * 70, None),
        ],
        ids=["400 digits", "1", "above 2**53", "above 2**60", "both", "sixty", "seventy"],
    )
    def test_shapes_of_any_size_are_counted_exactly(self, tmp_path, shape, chunk_shape, chunks):
        write(tmp_path, ARRAY | {"shape": shape, "chunk_grid": regular(chunk_shape)})
        code, found = check_json(tmp_path)
        assert found["nodes"][0]["chunks"] == chunks
        refused = any("OverflowError" in f for f in found_in(found["nodes"][0]))
        assert not refused or zarr.__version__.startswith("3.2")  # it makes a float of the shape
        assert call("check", tmp_path).exit_code == code == int(refused)

    def test_groups_5000_deep(self, tmp_path):
        groups = [("a/" * depth + "zarr.json", GROUP) for depth in range(5000)]
        path = in_zip(tmp_path / "deep.zip", [*groups, ("a/" * 5000 + "zarr.json", DRAFT)])
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
        code, found = check_json(tmp_path)
        assert (code, found["complete"]) == (0, False)

    def test_of_many_arrays_little_is_printed(self, tmp_path):
        arrays = {f"a{i}": DRAFT for i in range(300)}
        members = [(f"{name}/zarr.json", document) for name, document in arrays.items()]
        path = in_zip(tmp_path / "many.zip", [("zarr.json", consolidated(arrays)), *members])
        assert call("check", path).stdout.count("\n") < 200
        shown = call("migrate", path, "--dry-run").stdout
        assert "301 metadata documents of the draft form" in shown
        assert shown.count("\n") < 100


class TestZipMembers:
    @pytest.mark.parametrize(
        "name", ["/a/zarr.json", "../zarr.json", "b/../../zarr.json", "b//zarr.json", "./zarr.json"]
    )
    def test_absolute_names_and_those_that_lead_out_are_found(self, tmp_path, name):
        members = [("zarr.json", GROUP), ("b/zarr.json", GROUP), (name, ARRAY)]
        code, found = check_json(path := in_zip(tmp_path / "a.zip", members))
        assert code == 1
        assert "not the name of a node" in found_in(found["nodes"][0])[0]
        assert found["arrays"] == 0
        assert call("migrate", path, "--dry-run").exit_code == 1

    @pytest.mark.parametrize(
        ("data_type", "chunks", "found"),
        [
            ("int16", {"c/": "", "c/0/": "", "c/1": bytes(4)}, "a folder"),
            ("bool", {"c/1": b"\0\2"}, "a bool of 2 at index (1,), byte 1"),
        ],
    )
    def test_what_is_no_chunk_is_found_also_in_a_compressed_member(
        self, tmp_path, data_type, chunks, found
    ):
        fill_value = False if data_type == "bool" else 0
        document = ARRAY | {"data_type": data_type, "fill_value": fill_value}
        members = [("zarr.json", document), *chunks.items()]
        path = in_zip(tmp_path / "a.zip", members, zipfile.ZIP_DEFLATED)
        assert found_in(nodes_of(path)[""]) == [found]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_than_utf_8_is_judged_alike_by_both_commands(encoding):
    """zarr reads them all, and JSON is UTF-8 without a byte order mark (RFC 8259)."""
    draft, array = (memory({"": json.dumps(d).encode(encoding)}) for d in (DRAFT, ARRAY))
    first, *_ = reports_of(draft)[""].findings
    assert first.permitted == "UTF-8 without a byte order mark"
    (reason,) = zarr_bytes.migrate(draft, dry_run=True).refused.values()
    assert first.found in reason
    assert first.permitted in reason
    assert len(reports_of(array)[""].findings) == 1
    assert not zarr_bytes.migrate(array, dry_run=True).refused  # nothing is to be migrated


SHARD = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [1], "codecs": DRAFT["codecs"], "index_codecs": LITTLE},
}
FORMS = [
    ARRAY,
    DRAFT | {"codecs": [GZIP]},
    ARRAY | {"codecs": [SHARD], "data_type": "float32", "fill_value": "NaN"},
    ARRAY | {"data_type": struct_of(a="bool", b="float32"), "fill_value": {"a": True, "b": 0.0}},
    ARRAY | {"data_type": "complex_bfloat16", "fill_value": [0.0, "NaN"]},
    ARRAY | {"codecs": [{"name": "transpose", "configuration": {"order": [0]}}, *LITTLE]},
    consolidated({"a": DRAFT, "g/b": ARRAY, "g": GROUP}),
]


@settings(max_examples=150)
@given(st.sampled_from(FORMS).flatmap(mutated))
def test_wrong_types_are_findings_or_none_and_never_an_error(document):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = memory({"": json.dumps(document), "a": ARRAY})
        try:
            found = zarr_bytes.check(store)
        except zarr_bytes.StoreError:
            assert document is None
            return
        for report in found:
            assert not any("cannot be checked" in f.found for f in report.findings)
        assert not has_danger(f"{found}{zarr_bytes.migrate(store, dry_run=True)}")


class TestText:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (10**1500, "about 10^1500"),
            (-(10**1500), "about -10^1500"),
            ({"b": 10**2500}, {"b": "about 10^2500"}),
            ({"c": [float("-inf"), float("nan")]}, {"c": ["-Infinity", "NaN"]}),
        ],
        ids=["long", "negative", "within", "not finite"],
    )
    def test_a_number_that_is_no_json_is_given_in_words(self, tmp_path, value, shown):
        assert nodes_of(write(tmp_path, ARRAY | {"data_type": value}))[""]["data_type"] == shown

    def test_json_output_is_cut_where_it_is_too_deep_for_python(self, tmp_path):
        write(tmp_path, with_text(ARRAY, "data_type", nested(900, "list")))
        shown = json.dumps(nodes_of(tmp_path)[""]["data_type"])
        assert re.match(r'\[{40,50}"\[{60,} \.\.\."\]', shown)

    @given(st.integers(1, 10**30))
    def test_numbers_are_given_in_digits_or_by_magnitude(self, number):
        document = ARRAY | {"shape": [number], "chunk_grid": regular([1])}
        shown = re.search("0 of (.*) stored", str(zarr_bytes.check(memory({"": document}))))[1]
        if number < 10**18:
            assert shown == f"{number:,}"
        else:
            exponent = int(re.fullmatch(r"about 10\^(\d+)", shown)[1])
            assert abs(len(str(number)) - exponent) <= 1

    @settings(max_examples=50)
    @given(st.recursive(st.text() | st.integers(), st.lists))
    def test_what_is_brief_is_the_beginning_of_the_json(self, value):
        whole = json.dumps(value)
        (*_, finding) = reports_of(memory({"": ARRAY | {"more": value}}))[""].findings
        assert finding.found == (whole if len(whole) <= 80 else whole[:76] + " ...")
