"""Metadata of the draft form becomes today's: what changes and stays, what a failure leaves."""

import asyncio
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import zarr
from command import call
from documents import BIG, LITTLE
from hypothesis import given
from hypothesis import strategies as st
from zarr.buffer import cpu
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import zarr_bytes
from zarr_bytes.commands import draft as json_text
from zarr_bytes.commands.migrate import (
    BACKUP,
    migrated,
    plan,
    remove_leftover,
    rewrite,
)
from zarr_bytes.errors import MigrationError

ENDIAN = [{"name": "endian", "configuration": {"endian": "big"}}]
GZIP = {"name": "gzip", "configuration": {"level": 1}}
TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
VALUES = np.arange(12).reshape(3, 4)


def run(*arguments, answer=None):
    result = call("migrate", *arguments, answer=answer or "")
    return result.exit_code, result.output


def codecs_of(path):
    return json.loads((path / "zarr.json").read_text())["codecs"]


def make_draft(path, codecs, *, dtype="i4", compressors=None, **options):
    """An array on disk whose chunks are as zarr writes them, and whose document is the draft's."""
    endian = codecs[0]["configuration"]["endian"] if codecs in (ENDIAN, BIG) else "little"
    serializer = {"name": "bytes", "configuration": {"endian": endian}}
    array = zarr.create_array(
        path,
        shape=(3, 4),
        chunks=(2, 2),
        dtype=dtype,
        compressors=compressors,
        serializer=serializer,
        **options,
    )
    array[...] = VALUES
    document = json.loads((path / "zarr.json").read_text())
    document["codecs"] = codecs
    if codecs is None:
        del document["codecs"]
    (path / "zarr.json").write_text(json.dumps(document, indent=2))
    return path


def values_by_plain_zarr(path):
    """What a process reads in which zarr uses its own codec."""
    code = (
        "import json, sys, zarr\n"
        "print(json.dumps(zarr.open_array(sys.argv[1], mode='r')[...].tolist()))"
    )
    own = {"ZARR_CODECS__BYTES": "zarr.codecs.bytes.BytesCodec"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


class TestForms:
    def test_endian_becomes_bytes_with_the_same_configuration(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        assert run(path, "--yes")[0] == 0
        assert codecs_of(path) == BIG
        assert values_by_plain_zarr(path) == VALUES.tolist()

    @pytest.mark.parametrize("codecs", [[], None], ids=["empty", "missing"])
    def test_no_codec_becomes_bytes_in_little_endian(self, tmp_path, codecs):
        path = make_draft(tmp_path / "a", codecs)
        assert run(path, "--yes")[0] == 0
        assert codecs_of(path) == LITTLE
        assert values_by_plain_zarr(path) == VALUES.tolist()

    @pytest.mark.parametrize("dtype", ["u1", "bool"])
    @pytest.mark.parametrize("codecs", [ENDIAN, []], ids=["endian", "empty"])
    def test_single_bytes_keep_an_endian_which_is_permitted(self, tmp_path, dtype, codecs):
        path = make_draft(tmp_path / "a", codecs, dtype=dtype)
        assert run(path, "--yes")[0] == 0
        assert codecs_of(path) == (BIG if codecs else LITTLE)
        assert values_by_plain_zarr(path) == VALUES.astype(dtype).tolist()

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ([GZIP], [*LITTLE, GZIP]),
            ([TRANSPOSE], [TRANSPOSE, *LITTLE]),
            ([TRANSPOSE, GZIP], [TRANSPOSE, *LITTLE, GZIP]),
            ([TRANSPOSE, *ENDIAN, GZIP], [TRANSPOSE, *BIG, GZIP]),
        ],
    )
    def test_bytes_stands_between_filters_and_compressors(self, before, after):
        text = json.dumps({"node_type": "array", "codecs": before}, indent=1)
        assert json.loads(migrated(text)[0])["codecs"] == after

    def test_the_chains_within_a_shard_are_migrated_too(self, tmp_path):
        array = zarr.create_array(
            tmp_path / "a",
            shape=(3, 4),
            shards=(4, 4),
            chunks=(2, 2),
            dtype="i4",
            compressors=None,
        )
        array[...] = VALUES
        path = tmp_path / "a/zarr.json"
        document = json.loads(path.read_text())
        configuration = document["codecs"][0]["configuration"]
        configuration["codecs"] = []
        configuration["index_codecs"][0]["name"] = "endian"
        path.write_text(json.dumps(document))
        assert run(tmp_path / "a", "--yes")[0] == 0
        configuration = codecs_of(tmp_path / "a")[0]["configuration"]
        assert configuration["codecs"] == LITTLE
        assert configuration["index_codecs"][0]["name"] == "bytes"
        assert values_by_plain_zarr(tmp_path / "a") == VALUES.tolist()

    def test_todays_form_is_nothing_to_do(self, tmp_path):
        path = make_draft(tmp_path / "a", BIG)
        before = (path / "zarr.json").read_bytes()
        code, text = run(path, "--yes")
        assert code == 0
        assert text.startswith("Nothing to migrate: ")
        assert (path / "zarr.json").read_bytes() == before

    @pytest.mark.parametrize("with_draft", [False, True])
    def test_a_store_of_format_2_is_said_to_be_one(self, tmp_path, with_draft):
        zarr.open_group(tmp_path, mode="w", zarr_format=3)
        for name in "ab":
            zarr.create_array(tmp_path, name=name, shape=4, dtype="f4", zarr_format=2)
        if with_draft:
            make_draft(tmp_path / "c", ENDIAN)
        code, text = run(tmp_path, "--dry-run")
        assert code == 0
        what = "1 metadata document of the draft form" if with_draft else "Nothing to migrate"
        assert text.startswith(f"{what}; 2 arrays of Zarr format 2, which has no draft form: ")
        assert zarr_bytes.migrate(tmp_path, dry_run=True).format_2 == ["a", "b"]

    def test_one_array_of_format_2_too(self, tmp_path):
        zarr.create_array(tmp_path, shape=4, dtype="f4", zarr_format=2)
        expected = "Nothing to migrate; 1 array of Zarr format 2, which has no draft form: "
        assert run(tmp_path)[1].startswith(expected)

    def test_chains_in_consolidated_metadata_are_migrated_with_the_array(self, tmp_path):
        group = zarr.open_group(tmp_path, mode="w")
        group.create_array("b/a", shape=(3, 4), dtype="i4", compressors=None)[...] = VALUES
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # consolidated metadata is not in the specification
            zarr.consolidate_metadata(str(tmp_path))
        for path in (tmp_path / "zarr.json", tmp_path / "b/a/zarr.json"):
            path.write_text(path.read_text().replace('"name": "bytes"', '"name": "endian"'))
        code, text = run(tmp_path, "--yes")
        assert code == 0
        assert "2 metadata documents" in text
        assert "endian" not in codecs_of(tmp_path / "b/a")[0]["name"]
        with zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
            opened = zarr.open_group(tmp_path, mode="r", use_consolidated=True)
            assert opened["b/a"][...].tolist() == VALUES.tolist()
        assert '"endian",' not in (tmp_path / "zarr.json").read_text()


class TestRefused:
    def test_an_unknown_codec_may_be_the_one_that_is_missing(self, tmp_path):
        path = make_draft(tmp_path / "a", [{"name": "no-such-codec"}])
        before = (path / "zarr.json").read_bytes()
        code, text = run(path, "--yes")
        assert code == 1
        assert "no-such-codec" in text
        assert (path / "zarr.json").read_bytes() == before

    def test_what_zarr_would_not_open_is_not_written(self, tmp_path):
        path = make_draft(tmp_path / "a", [{"name": "endian"}])  # no byte order
        before = (path / "zarr.json").read_bytes()
        assert run(path, "--yes")[0] == 1
        assert (path / "zarr.json").read_bytes() == before

    def test_the_arrays_beside_it_are_migrated(self, tmp_path):
        zarr.open_group(tmp_path, mode="w")
        make_draft(tmp_path / "a", [{"name": "no-such-codec"}])
        make_draft(tmp_path / "b", ENDIAN)
        (tmp_path / "c").mkdir()
        (tmp_path / "c/zarr.json").write_text("{")
        assert run(tmp_path, "--yes")[0] == 1
        assert codecs_of(tmp_path / "b") == BIG

    def test_its_copy_in_consolidated_metadata_stays_as_it_is_too(self, tmp_path):
        zarr.open_group(tmp_path, mode="w")
        for name, codecs in (("a", [{"name": "no-such-codec"}]), ("b", ENDIAN)):
            make_draft(tmp_path / name, codecs)
        path = tmp_path / "zarr.json"
        copies = {name: json.loads((tmp_path / name / "zarr.json").read_text()) for name in "ab"}
        consolidated = {"kind": "inline", "must_understand": False, "metadata": copies}
        document = json.loads(path.read_text()) | {"consolidated_metadata": consolidated}
        path.write_text(json.dumps(document))
        assert run(tmp_path, "--yes")[0] == 1
        after = json.loads(path.read_text())["consolidated_metadata"]["metadata"]
        assert after["a"] == copies["a"]
        assert after["b"]["codecs"] == BIG

    def test_a_zip_file_is_only_shown(self, tmp_path):
        import shutil

        path = shutil.make_archive(str(tmp_path / "z"), "zip", make_draft(tmp_path / "a", ENDIAN))
        assert run(path, "--dry-run")[0] == 0
        code, text = run(path, "--yes")
        assert code == 2
        assert "unpack it" in text


class TestAsking:
    @pytest.mark.parametrize(
        ("options", "answer", "code", "written"),
        [
            ((), "y\n", 0, True),
            ((), "n\n", 1, False),
            ((), "", 1, False),
            (("--yes",), None, 0, True),
            (("--dry-run",), None, 0, False),
            (("--dry-run", "--yes"), None, 0, False),
        ],
    )
    def test_nothing_is_written_without_a_yes(self, tmp_path, options, answer, code, written):
        path = make_draft(tmp_path / "a", ENDIAN)
        before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        assert run(path, *options, answer=answer)[0] == code
        after = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        assert set(after) == set(before)  # and no backup is left
        assert {p.name for p in before if before[p] != after[p]} == (
            {"zarr.json"} if written else set()
        )

    @pytest.mark.parametrize("answer", ["n\n", ""])
    def test_without_a_yes_it_says_so_and_what_would_write(self, tmp_path, answer):
        code, text = run(make_draft(tmp_path / "a", ENDIAN), answer=answer)
        assert code == 1
        assert text.endswith("Nothing written; --yes writes.\n")

    @pytest.mark.skipif(os.name != "posix", reason="the shell is POSIX")
    def test_without_a_standard_input_too(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        shell = f'"{sys.executable}" -m zarr_bytes migrate "{path}" <&-'
        done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.endswith("Nothing written; --yes writes.\n")
        assert codecs_of(path) == ENDIAN

    def test_the_change_is_shown(self, tmp_path):
        _, text = run(make_draft(tmp_path / "a", ENDIAN), "--dry-run")
        lines = [line.split() for line in text.splitlines()]
        assert ["-", '"name":', '"endian",'] in lines
        assert ["+", '"name":', '"bytes",'] in lines

    def test_a_second_time_there_is_nothing_to_do(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        run(path, "--yes")
        assert run(path, "--yes")[1].startswith("Nothing to migrate: ")


texts = st.text('ab"\\{}[]:, \n\u00e4', max_size=6)  # what JSON is made of
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
styles = st.sampled_from(
    [{}, {"indent": 2}, {"indent": 1}, {"indent": "\t"}, {"separators": (",", ":")}]
)


class TestWhatStays:
    def test_the_spelling_of_numbers_and_the_order_of_members_stay(self):
        text = (
            '{"b": 1.50e+1, "a": NaN, "node_type": "array",\n'
            '   "codecs" : [ {"configuration":{"endian":"big"}, "name" : "endian"} ],'
            ' "big": 123456789012345678901234567890, "x": "\\u00e4", "b": 0.0 }\n'
        )
        assert migrated(text)[0] == text.replace('"name" : "endian"', '"name" : "bytes"')

    @given(
        st.dictionaries(texts, json_values, max_size=4),
        styles,
        st.sampled_from([[], ENDIAN, [GZIP], [TRANSPOSE, GZIP], None]),
    )
    def test_every_other_member_is_what_it_was(self, others, style, codecs):
        document = others | {"node_type": "array"}
        document.pop("codecs", None)
        if codecs is not None:
            document["codecs"] = codecs
        new, steps = migrated(json.dumps(document, **style))
        assert len(steps) == 1
        after = json.loads(new)
        assert "bytes" in [codec["name"] for codec in after.pop("codecs")]
        document.pop("codecs", None)
        assert json.dumps(after) == json.dumps(document)  # NaN is not equal to itself
        assert list(after) == list(document)

    @pytest.mark.parametrize("indent", [None, 2, 4, "\t"])
    @pytest.mark.parametrize("codecs", [[], [GZIP], [TRANSPOSE]], ids=["none", "before", "behind"])
    def test_the_style_stays(self, indent, codecs):
        document = {"node_type": "array", "codecs": codecs, "shape": [1]}
        text = json.dumps(document, indent=indent)
        new, _ = migrated(text)
        assert new == json.dumps(json.loads(new), indent=indent)

    @given(json_values, styles)
    def test_spans_are_where_the_values_are(self, value, style):
        text = json.dumps({"a": value, "b": [value, 1, value]}, **style)
        spans = json_text.members(text)
        assert json.dumps(json_text.value(text, spans["a"])) == json.dumps(value)
        found = [json_text.value(text, span) for span in json_text.items(text, spans["b"].start)]
        assert json.dumps(found) == json.dumps([value, 1, value])


class TestScreen:
    """What is shown is bounded, whatever there is to migrate."""

    def test_documents_that_change_alike_are_shown_once(self, tmp_path):
        zarr.open_group(tmp_path, mode="w")
        for i in range(30):
            make_draft(tmp_path / f"a{i}", ENDIAN)
        code, text = run(tmp_path, "--dry-run")
        assert code == 0
        assert text.count("endian becomes bytes") == 1
        assert "and 19 more" in text

    def test_a_long_plan_ends_with_the_verdict(self, tmp_path):
        zarr.open_group(tmp_path, mode="w")
        make_draft(tmp_path / "a", ENDIAN)
        make_draft(tmp_path / "b", [])
        make_draft(tmp_path / "c", [{"name": "no-such-codec"}])
        lines = run(tmp_path, "--dry-run")[1].splitlines()
        assert len(lines) > 24
        assert lines[0].startswith(
            "2 metadata documents of the draft form; 1 metadata document not"
        )
        assert lines[-1] == lines[0]

    def test_a_document_on_one_line_is_shown_on_several_however_deep(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        text = json.dumps(json.loads((path / "zarr.json").read_text()))
        deep = '{"a":' * 500 + "{}" + "}" * 500
        (path / "zarr.json").write_text(text.replace('"attributes": {}', f'"attributes": {deep}'))
        assert '-      "name": "endian",' in run(path, "--dry-run")[1]

    @given(json_values)
    def test_a_document_on_several_lines_is_the_same_document(self, value):
        text = json.dumps(value)
        assert json.dumps(json.loads(json_text.indented(text))) == text


class Failing(WrapperStore):
    """A store whose `failing`th write or delete fails.

    `how` is "before" or "behind" what it does, "half" done, "silent" (not done, and no error),
    "for good" (this and all that follow) or "killed".
    """

    def __init__(self, store, failing, how):
        super().__init__(store)
        self.failing, self.how, self.count = failing, how, 0

    async def _do(self, key, value):
        self.count += 1
        fails = self.count == self.failing
        if self.how == "killed" and fails:
            raise KeyboardInterrupt
        fails = fails or (self.how == "for good" and self.count > self.failing)
        if not fails or self.how == "behind":
            await (self._store.delete(key) if value is None else self._store.set(key, value))
        if fails and self.how == "half" and value is not None:
            half = cpu.Buffer.from_bytes(value.to_bytes()[: len(value) // 2])
            await self._store.set(key, half)
        if fails and self.how != "silent":
            raise OSError("the disk is full")

    async def set(self, key, value):
        await self._do(key, value)

    async def delete(self, key):
        await self._do(key, None)


def migrate_all(store):
    async def work():
        for change in (await plan(store)).changes:
            await rewrite(store, change)

    asyncio.run(work())


class TestFailures:
    @pytest.mark.parametrize("how", ["before", "behind", "half", "silent", "for good"])
    @pytest.mark.parametrize("failing", [1, 2, 3])
    def test_the_array_is_readable_and_the_data_the_same(self, tmp_path, failing, how):
        path = make_draft(tmp_path / "a", ENDIAN)
        before = (path / "zarr.json").read_bytes()
        store = Failing(LocalStore(path), failing, how)
        if (failing, how) == (3, "silent"):
            migrate_all(store)  # a backup that stays is all that it leaves
        else:
            with pytest.raises(MigrationError) as raised:
                migrate_all(store)
            assert "zarr.json" in str(raised.value)
            if (path / f"zarr.json{BACKUP}").exists():
                assert BACKUP in str(raised.value)
        assert zarr.open_array(path, mode="r")[...].tolist() == VALUES.tolist()
        in_place = (path / "zarr.json").read_bytes()
        assert in_place == before or json.loads(in_place)["codecs"] == BIG

    @pytest.mark.parametrize("how", ["before", "behind", "half"])
    @pytest.mark.parametrize("failing", [1, 2])
    def test_the_next_attempt_succeeds(self, tmp_path, failing, how):
        path = make_draft(tmp_path / "a", ENDIAN)
        with pytest.raises(MigrationError):
            migrate_all(Failing(LocalStore(path), failing, how))
        migrate_all(LocalStore(path))
        assert codecs_of(path) == BIG

    @pytest.mark.parametrize("failing", [1, 2, 3])
    def test_killing_it_leaves_the_array_readable(self, tmp_path, failing):
        path = make_draft(tmp_path / "a", ENDIAN)
        with pytest.raises(KeyboardInterrupt):
            migrate_all(Failing(LocalStore(path), failing, "killed"))
        assert zarr.open_array(path, mode="r")[...].tolist() == VALUES.tolist()
        migrate_all(LocalStore(path))
        assert codecs_of(path) == BIG

    def test_the_old_document_is_beside_it_while_the_new_one_is_written(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        before = (path / "zarr.json").read_bytes()
        seen = []

        class Watched(WrapperStore):
            async def set(self, key, value):
                if key == "zarr.json":
                    seen.append((path / f"zarr.json{BACKUP}").read_bytes())
                await self._store.set(key, value)

        migrate_all(Watched(LocalStore(path)))
        assert seen == [before]
        assert not (path / f"zarr.json{BACKUP}").exists()

    @pytest.mark.parametrize("failing", [1, 2, 3])
    def test_after_a_kill_the_next_run_leaves_nothing(self, tmp_path, failing):
        path = make_draft(tmp_path / "a", ENDIAN)
        with pytest.raises(KeyboardInterrupt):
            migrate_all(Failing(LocalStore(path), failing, "killed"))
        code, text = run(path, "--yes")
        assert code == 0
        assert sorted(p.name for p in path.iterdir()) == ["c", "zarr.json"]
        assert codecs_of(path) == BIG
        assert ("Removed: 1 leftover of an earlier run." in text) == (failing == 3)
        assert run(path)[1].startswith("Nothing to migrate: ")

    def test_what_a_kill_within_a_write_leaves_is_removed_too(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        halves = [f"zarr.json.{'a' * 32}.partial", f"zarr.{'b' * 32}.partial"]
        (path / f"zarr.json{BACKUP}").write_bytes((path / "zarr.json").read_bytes())
        for name in halves:
            (path / name).write_text('{"zarr_')
        text = run(path, "--yes")[1]
        assert "Removed: 2 leftovers of an earlier run." in text
        assert sorted(p.name for p in path.iterdir()) == ["c", "zarr.json"]

    def test_what_another_process_is_writing_is_left_alone(self, tmp_path):
        path = make_draft(tmp_path / "a", BIG)
        (path / f"zarr.{'b' * 32}.partial").write_text('{"zarr_')
        assert run(path, "--yes")[1].startswith("Nothing to migrate: ")
        assert len(list(path.glob("*.partial"))) == 1

    def test_an_unfinished_chunk_beside_the_document_is_left_alone(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        (path / f"zarr.json{BACKUP}").write_bytes((path / "zarr.json").read_bytes())
        chunk = path / f"0.{'a' * 32}.partial"  # of an array whose chunk keys have no slash
        chunk.write_bytes(b"")
        assert run(path, "--yes")[0] == 0
        assert chunk.exists()

    @pytest.mark.parametrize(("options", "answer"), [(("--dry-run",), None), ((), "n\n")])
    def test_a_leftover_is_shown_and_not_removed_without_a_yes(self, tmp_path, options, answer):
        path = make_draft(tmp_path / "a", BIG)
        backup = path / f"zarr.json{BACKUP}"
        backup.write_text("{}")
        text = run(path, *options, answer=answer)[1]
        assert text.startswith("1 leftover of an earlier run: ")
        assert backup.name in text
        assert backup.exists()

    def test_a_backup_stays_beside_a_document_that_is_not_in_order(self, tmp_path):
        path = make_draft(tmp_path / "a", [{"name": "no-such-codec"}])
        backup = path / f"zarr.json{BACKUP}"
        backup.write_text("{}")
        assert run(path, "--yes")[0] == 1
        (path / "zarr.json").write_text("{")
        assert run(path, "--yes")[0] == 1
        assert backup.exists()

    def test_a_leftover_that_has_changed_meanwhile_is_not_removed(self, tmp_path):
        path = make_draft(tmp_path / "a", BIG)
        backup = path / f"zarr.json{BACKUP}"
        backup.write_text("{}")
        (key,) = asyncio.run(plan(LocalStore(path))).leftovers
        with pytest.raises(MigrationError, match="changed meanwhile"):
            asyncio.run(remove_leftover(LocalStore(path), key, b"other"))
        assert backup.exists()

    def test_a_backup_of_another_document_is_not_overwritten(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        backup = path / f"zarr.json{BACKUP}"
        backup.write_text("{}")
        with pytest.raises(MigrationError, match="holds another document"):
            migrate_all(LocalStore(path))
        assert backup.read_text() == "{}"
        assert codecs_of(path) == ENDIAN

    def test_a_document_that_has_changed_meanwhile_is_left_alone(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        (change,) = asyncio.run(plan(LocalStore(path))).changes
        (path / "zarr.json").write_text("{}")
        with pytest.raises(MigrationError, match="changed meanwhile"):
            asyncio.run(rewrite(LocalStore(path), change))
        assert (path / "zarr.json").read_text() == "{}"

    def test_where_nothing_can_be_written_the_command_says_what_is_left(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        (path / f"zarr.json{BACKUP}").mkdir()
        code, text = run(path, "--yes")
        assert code == 1
        assert "0 of 1 metadata document migrated" in text
        assert codecs_of(path) == ENDIAN


@pytest.mark.filterwarnings("ignore")  # what clients and servers of others warn of
def test_a_store_behind_s3_is_migrated(tmp_path):
    """Planned and written through the same connections."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    put = (
        "import sys, s3fs; fs = s3fs.S3FileSystem(); fs.mkdir('migrate');"
        "fs.put(sys.argv[1], 'migrate/a', recursive=True)"
    )
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    environment = os.environ | keys | {"AWS_ENDPOINT_URL": url}

    def python(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    path = make_draft(tmp_path / "a", ENDIAN)
    python("-c", put, path)
    done = python("-m", "zarr_bytes", "migrate", "--yes", "s3://migrate/a")
    assert done.stderr == ""
    read = "import s3fs; print(s3fs.S3FileSystem().cat('migrate/a/zarr.json').decode())"
    assert json.loads(python("-c", read).stdout)["codecs"] == BIG
    python("-m", "zarr_bytes", "check", "s3://migrate/a")
    server.stop()


def test_a_document_that_zarr_would_not_open_is_refused():
    text = '{"zarr_format": 3, "node_type": "array", "codecs": []}'
    store = MemoryStore({"zarr.json": cpu.Buffer.from_bytes(text.encode())})
    found = asyncio.run(plan(store))
    assert not found.changes
    assert "would not open it" in found.refused[""]


class TestFromPython:
    def test_a_loop_gives_the_changes_with_both_texts(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        old = (path / "zarr.json").read_bytes()
        found = zarr_bytes.migrate(path)
        ((key, before, after),) = [(change.key, change.old, change.new) for change in found]
        assert found.is_written
        assert (key, before) == ("zarr.json", old)
        assert after == (path / "zarr.json").read_bytes()
        assert codecs_of(path) == BIG

    def test_a_dry_run_writes_nothing(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        found = zarr_bytes.migrate(path, dry_run=True)
        assert not found.is_written
        assert len(list(found)) == 1
        assert codecs_of(path) == ENDIAN

    def test_it_prints_what_the_command_prints_without_rich(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setenv("LINES", "100")
        path = make_draft(tmp_path / "a", ENDIAN)
        assert f"{zarr_bytes.migrate(path, dry_run=True)}\n" == run(path, "--dry-run")[1]

    def test_what_is_done_is_said(self, tmp_path):
        found = zarr_bytes.migrate(make_draft(tmp_path / "a", ENDIAN))
        assert str(found).startswith("1 metadata document migrated: ")

    def test_an_open_store_is_written(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        assert zarr_bytes.migrate(LocalStore(path)).is_written
        assert codecs_of(path) == BIG

    def test_one_that_was_opened_to_be_read_only_is_not(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        with pytest.raises(zarr_bytes.StoreError, match="read only"):
            zarr_bytes.migrate(LocalStore(path, read_only=True))
        assert codecs_of(path) == ENDIAN

    def test_a_failure_is_an_error_that_says_what_is_in_the_store(self, tmp_path):
        path = make_draft(tmp_path / "a", ENDIAN)
        (path / f"zarr.json{BACKUP}").write_text("another")
        with pytest.raises(MigrationError, match="holds another document(.|\n)*0 of 1"):
            zarr_bytes.migrate(path)
