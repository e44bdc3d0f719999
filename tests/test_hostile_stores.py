"""The commands on stores that mean no good, or that nobody meant: no hang, no harm, no praise."""

import json
import os
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path

import pytest
import zarr
from command import Watched, call, check_json, found_in, nodes_of, reports_of
from documents import (
    ARRAY,
    DRAFT,
    GROUP,
    GZIP,
    LITTLE,
    consolidated,
    memory,
    regular,
    text_of,
    with_text,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from shards import sharding
from stored_arrays import KINDS_OF_NO_FILE, put

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
    def test_a_linked_chunk_is_checked_and_links_to_folders_are_not_followed(
        self, folder, tmp_path
    ):
        (folder / "a/c/1").rename(tmp_path / "elsewhere")
        (folder / "a/c/1").symlink_to(tmp_path / "elsewhere")
        (folder / "b").symlink_to(folder / "a")
        (tmp_path / "elsewhere").write_bytes(b"short")
        nodes = nodes_of(folder)
        assert list(nodes) == ["a"]
        assert found_in(nodes["a"]) == ["5 bytes"]

    def test_links_that_lead_back_end(self, folder):
        (folder / "back").symlink_to(folder)
        (folder / "up").symlink_to(folder.parent)
        (folder / "a/c/back").symlink_to(folder / "a/c")
        (folder / "itself").symlink_to(folder / "itself")
        nodes = nodes_of(folder)
        assert nodes["a"]["stored_chunks"] == 2
        assert "back" not in nodes


@on_posix
class TestWhatIsNoFile:
    @pytest.mark.parametrize("codecs", [LITTLE, [sharding([1], LITTLE)]], ids=["chunk", "shard"])
    @pytest.mark.parametrize("kind", KINDS_OF_NO_FILE)
    def test_in_the_place_of_a_chunk_is_not_listed_and_not_opened(self, folder, kind, codecs):
        write(folder / "a", ARRAY | {"codecs": codecs})
        (folder / "a/c/0").unlink()
        (folder / "a/c/1").unlink()
        put(kind, folder / "a/c/1")
        node = nodes_of(folder)["a"]
        assert node["findings"] == []
        assert node["stored_chunks"] == 0

    @pytest.mark.parametrize("kind", ["FIFO", "character device", "socket"])
    @pytest.mark.parametrize("place", ["b", "b/.."])
    def test_in_the_place_of_a_document_is_not_waited_for(self, folder, kind, place):
        (folder / "b").mkdir()
        (folder / place / "zarr.json").unlink(missing_ok=True)
        put(kind, folder / place / "zarr.json")
        assert list(nodes_of(folder)) == ["a"]

    def test_in_the_place_of_the_document_of_a_store_that_cannot_list_is_an_error(self, tmp_path):
        os.mkfifo(tmp_path / "zarr.json")

        class Unlisted(zarr.storage.LocalStore):
            async def list_prefix(self, prefix):
                raise NotImplementedError
                yield

        with pytest.raises(zarr_bytes.StoreError, match="zarr.json has 0 bytes"):
            zarr_bytes.check(Unlisted(tmp_path, read_only=True))


class TestConsolidatedMetadata:
    """Copies are what zarr reads: it does not look at the documents."""

    @pytest.mark.parametrize("path", ["../a", "/etc", "/a", "b//c", "b/../../a", "", "."])
    def test_a_path_that_leads_out_of_the_store_is_found_and_not_followed(self, tmp_path, path):
        write(tmp_path / "a", DRAFT)
        write(tmp_path / "s/b", ARRAY)
        folder = write(tmp_path / "s", consolidated({path: ARRAY, "b": ARRAY}))
        store = Watched(zarr.storage.LocalStore(folder, read_only=True))
        reports = reports_of(store)
        assert not reports[""].conforms
        assert reports["b"].conforms
        assert {key for key in store.read if "/c/" not in key} == {"zarr.json", "b/zarr.json"}


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
    def test_any_encoding_of_the_terminal_will_do(self, folder):
        write(folder / "\u96ea\U0001f600", ARRAY)
        done = subprocess.run(
            [sys.executable, "-m", "zarr_bytes", "check", str(folder)],
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")

    def store(self, tmp_path, **members):
        """A group and an array of the draft form whose names and members are of such characters."""
        try:
            write(tmp_path / NAME, ARRAY | members | {"data_type": NAME})
            (tmp_path / NAME / "c").mkdir()
            (tmp_path / NAME / "c" / NAME).write_bytes(b"")
        except (OSError, ValueError):
            pytest.skip("this file system has no such names")
        return write(tmp_path, GROUP | {"attributes": {NAME: 1}})


@pytest.mark.slow
class TestDepthsAndSizes:
    """What is found of them; `test_fuzz_commands` has that they neither hang nor fail."""

    def test_attributes_as_deep_as_zarr_reads_them(self, tmp_path):
        depth = 1400 if sys.version_info >= (3, 12) else 600  # what Python's JSON reads
        attributes = f'{{"deep": {"[" * depth + "]" * depth}}}'
        write(tmp_path, with_text(ARRAY, "attributes", attributes))
        assert nodes_of(tmp_path)[""]["findings"] == []

    @pytest.mark.parametrize(
        ("shape", "chunk_shape", "chunks"),
        [
            ([10**400], [1], 10**400),
            ([2**60 + 1], [2], 2**59 + 1),
            ([2**53 + 1, 10**400 - 1], [2, 3], (2**52 + 1) * ((10**400 - 1) // 3)),
            ([10**300] * 60, [1] * 60, "about 10^18000"),
        ],
        ids=["400 digits", "above 2**60", "both", "sixty"],
    )
    def test_shapes_of_any_size_are_counted_exactly(self, tmp_path, shape, chunk_shape, chunks):
        write(tmp_path, ARRAY | {"shape": shape, "chunk_grid": regular(chunk_shape)})
        code, found = check_json(tmp_path)
        refused = any("OverflowError" in f for f in found_in(found["nodes"][0]))
        assert found["nodes"][0]["chunks"] == (None if refused else chunks)
        assert not refused or zarr.__version__.startswith("3.2")  # it makes a float of the shape
        assert call("check", tmp_path).exit_code == code == int(refused)

    def test_groups_5000_deep(self, tmp_path):
        groups = [("a/" * depth + "zarr.json", GROUP) for depth in range(5000)]
        path = in_zip(tmp_path / "deep.zip", [*groups, ("a/" * 5000 + "zarr.json", DRAFT)])
        assert [len(path) for path in nodes_of(path)] == [9999]

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

    def test_of_a_long_path_little_is_printed(self):
        path = "/".join(["abc"] * 600)
        shown = str(zarr_bytes.check(memory({path: ARRAY | {"fill_value": "1.5"}})))
        assert max(map(len, shown.splitlines())) < 700
        assert shown.count("/abc") > 100

    def test_of_many_arrays_little_is_printed(self, tmp_path):
        arrays = {f"a{i}": DRAFT for i in range(300)}
        members = [(f"{name}/zarr.json", document) for name, document in arrays.items()]
        path = in_zip(tmp_path / "many.zip", [("zarr.json", consolidated(arrays)), *members])
        assert call("check", path).stdout.count("\n") < 200


class TestZipMembers:
    @pytest.mark.parametrize(
        "name", ["/a/zarr.json", "../zarr.json", "b/../../zarr.json", "b//zarr.json", "./zarr.json"]
    )
    def test_absolute_names_and_those_that_lead_out_are_found(self, tmp_path, name):
        members = [("zarr.json", GROUP), ("b/zarr.json", GROUP), (name, ARRAY)]
        code, found = check_json(in_zip(tmp_path / "a.zip", members))
        assert code == 1
        (node,) = found["nodes"]
        assert found_in(node)
        assert found["arrays_not_checked"] == found["arrays"] == 1

    def test_a_wrong_bool_is_found_also_in_a_compressed_member(self, tmp_path):
        document = ARRAY | {"data_type": "bool", "fill_value": False}
        members = [("zarr.json", document), ("c/", ""), ("c/0/", ""), ("c/1", b"\0\2")]
        path = in_zip(tmp_path / "a.zip", members, zipfile.ZIP_DEFLATED)
        assert found_in(nodes_of(path)[""]) == ["a bool of 2 at byte 1"]
