"""Metadata of the draft form becomes today's: what changes and stays, what a failure leaves."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import zarr
from command import call
from documents import ARRAY, BIG, DRAFT, ENDIAN, GROUP, GZIP, LITTLE, consolidated, memory, write
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.buffer import cpu
from zarr.storage import LocalStore, WrapperStore

import zarr_bytes
from zarr_bytes.errors import MigrationError

TRANSPOSE = {"name": "transpose", "configuration": {"order": [0]}}
UNKNOWN = [{"name": "no-such-codec"}]
BACKUP = "zarr.json.before-migration"
VALUES = [1, 2, 3, 256]
BIG_CHUNKS = {"c0": b"\0\1\0\2", "c1": b"\0\3\1\0"}
LITTLE_CHUNKS = {"c0": b"\1\0\2\0", "c1": b"\3\0\0\1"}


def run(*arguments, answer=""):
    result = call("migrate", *arguments, answer=answer)
    return result.exit_code, result.output


def document_of(path):
    return json.loads((path / "zarr.json").read_text())


def codecs_of(path):
    return document_of(path)["codecs"]


def text_of_migrated(document):
    """The text of a document in memory, before and after, and the steps between them."""
    (change,) = zarr_bytes.migrate(memory({"": document}), dry_run=True)
    return change.old.decode(), change.new.decode(), change.steps


def values_by_zarrs_own_codec(path):
    with zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
        return zarr.open_array(path, mode="r")[...].tolist()


@pytest.fixture
def draft(tmp_path):
    """An array on disk, big-endian, with the codec of the draft."""
    return write(tmp_path / "a", DRAFT, **BIG_CHUNKS)


class TestForms:
    def test_endian_becomes_bytes_with_the_same_configuration(self, draft):
        assert run(draft, "--yes")[0] == 0
        assert codecs_of(draft) == BIG
        assert values_by_zarrs_own_codec(draft) == VALUES

    def test_no_codec_becomes_bytes_in_little_endian(self, tmp_path):
        missing = {name: value for name, value in ARRAY.items() if name != "codecs"}
        for document in (ARRAY | {"codecs": []}, missing):
            path = write(tmp_path, document, **LITTLE_CHUNKS)
            assert run(path, "--yes")[0] == 0
            assert codecs_of(path) == LITTLE
            assert values_by_zarrs_own_codec(path) == VALUES

    @pytest.mark.parametrize(("data_type", "fill_value"), [("uint8", 0), ("bool", False)])
    @pytest.mark.parametrize(("before", "after"), [(ENDIAN, BIG), ([], LITTLE)])
    def test_single_bytes_keep_an_endian_which_is_permitted(
        self, tmp_path, data_type, fill_value, before, after
    ):
        members = {"data_type": data_type, "fill_value": fill_value, "codecs": before}
        path = write(tmp_path, ARRAY | members, c0=b"\1\0", c1=b"\0\1")
        assert run(path, "--yes")[0] == 0
        assert codecs_of(path) == after
        assert values_by_zarrs_own_codec(path) == [1, 0, 0, 1]

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
        _, new, _ = text_of_migrated(ARRAY | {"codecs": before})
        assert json.loads(new)["codecs"] == after

    def test_the_chains_within_a_shard_are_migrated_too(self, tmp_path):
        shards = {"shape": (4,), "shards": (4,), "chunks": (2,), "dtype": "i2"}
        zarr.create_array(tmp_path, **shards, compressors=None)[...] = VALUES
        document = document_of(tmp_path)
        configuration = document["codecs"][0]["configuration"]
        configuration["codecs"] = []
        configuration["index_codecs"][0]["name"] = "endian"
        write(tmp_path, document)
        assert run(tmp_path, "--yes")[0] == 0
        configuration = codecs_of(tmp_path)[0]["configuration"]
        assert configuration["codecs"] == LITTLE
        assert configuration["index_codecs"][0]["name"] == "bytes"
        assert values_by_zarrs_own_codec(tmp_path) == VALUES

    @pytest.mark.parametrize("with_draft", [False, True])
    def test_a_store_of_format_2_is_said_to_be_one(self, tmp_path, with_draft):
        write(tmp_path, GROUP)
        for name in "ab":
            zarr.create_array(tmp_path, name=name, shape=4, dtype="f4", zarr_format=2)
        if with_draft:
            write(tmp_path / "c", DRAFT)
        code, text = run(tmp_path, "--dry-run")
        assert code == 0
        what = "1 metadata document of the draft form" if with_draft else "Nothing to migrate"
        assert text.startswith(f"{what}; 2 arrays of Zarr format 2, which has no draft form: ")
        assert zarr_bytes.migrate(tmp_path, dry_run=True).format_2 == ["a", "b"]
        assert run(tmp_path / "a")[1].startswith("Nothing to migrate; 1 array of Zarr format 2")

    def test_chains_in_consolidated_metadata_are_migrated_with_the_array(self, tmp_path):
        write(tmp_path, consolidated({"b": GROUP, "b/a": DRAFT}))
        write(tmp_path / "b", GROUP)
        write(tmp_path / "b/a", DRAFT, **BIG_CHUNKS)
        code, text = run(tmp_path, "--yes")
        assert code == 0
        assert "2 metadata documents" in text
        assert codecs_of(tmp_path / "b/a") == BIG
        assert document_of(tmp_path)["consolidated_metadata"]["metadata"]["b/a"]["codecs"] == BIG
        with zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"}):
            opened = zarr.open_group(tmp_path, mode="r", use_consolidated=True)
            assert opened["b/a"][...].tolist() == VALUES


class TestRefused:
    @pytest.mark.parametrize(
        ("members", "reason"),
        [
            (
                {"codecs": UNKNOWN},
                "'no-such-codec' is not known here",
            ),  # which may be the one that is missing
            ({"codecs": [{"name": "endian"}]}, "would not open it"),
            ({"codecs": ENDIAN, "data_type": "x"}, "would not open it"),
        ],
    )
    def test_what_zarr_would_not_open_is_not_written(self, tmp_path, members, reason):
        path = write(tmp_path, DRAFT | members)
        before = (path / "zarr.json").read_bytes()
        code, text = run(path, "--yes")
        assert code == 1
        assert reason in " ".join(text.split())
        assert (path / "zarr.json").read_bytes() == before

    def test_the_arrays_beside_it_are_migrated_and_its_consolidated_copy_stays(self, tmp_path):
        arrays = {"a": DRAFT | {"codecs": UNKNOWN}, "b": DRAFT}
        write(tmp_path, consolidated(arrays))
        for name, document in arrays.items():
            write(tmp_path / name, document)
        write(tmp_path / "c", "{")
        assert run(tmp_path, "--yes")[0] == 1
        assert codecs_of(tmp_path / "b") == BIG
        after = document_of(tmp_path)["consolidated_metadata"]["metadata"]
        assert after == {"a": arrays["a"], "b": DRAFT | {"codecs": BIG}}

    def test_a_zip_file_is_only_shown(self, tmp_path, draft):
        path = shutil.make_archive(str(tmp_path / "z"), "zip", draft)
        assert run(path, "--dry-run")[0] == 0
        code, text = run(path, "--yes")
        assert code == 2
        assert "unpack it" in text


class TestAsking:
    @pytest.mark.parametrize(
        ("options", "answer", "code", "is_written"),
        [
            ((), "y\n", 0, True),
            ((), "n\n", 1, False),
            ((), "", 1, False),
            ((), "\n", 1, False),
            (("--yes",), "", 0, True),
            (("--dry-run",), "", 0, False),
            (("--dry-run", "--yes"), "", 0, False),
        ],
    )
    def test_nothing_is_written_without_a_yes(self, draft, options, answer, code, is_written):
        before = {p: p.read_bytes() for p in draft.rglob("*") if p.is_file()}
        found, text = run(draft, *options, answer=answer)
        assert found == code
        after = {p: p.read_bytes() for p in draft.rglob("*") if p.is_file()}
        assert set(after) == set(before)  # and no backup is left
        changed = {p.name for p in before if before[p] != after[p]}
        assert changed == ({"zarr.json"} if is_written else set())
        assert text.endswith("Nothing written; --yes writes.\n") == (code == 1)

    @pytest.mark.slow
    @pytest.mark.skipif(os.name != "posix", reason="the shell is POSIX")
    def test_without_a_standard_input_too(self, draft):
        shell = f'"{sys.executable}" -m zarr_bytes migrate "{draft}" <&-'
        done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.endswith("Nothing written; --yes writes.\n")
        assert codecs_of(draft) == ENDIAN


texts = st.text('ab"\\{}[]:, \n\u00e4', max_size=6)  # what JSON is made of
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
styles = st.sampled_from(
    [{}, {"indent": 2}, {"indent": 1}, {"indent": "\t"}, {"separators": (",", ":")}]
)


class TestWhatStays:
    def test_the_spelling_of_numbers_and_the_order_of_members_stay(self):
        text = (
            "\n "
            + json.dumps(ARRAY).removesuffix("}")
            + ', "attributes": {"b": 1.50e+1, "a": NaN, "b": 0.0, "x": "\\u00e4",\n'
            '   "codecs" : [] , "big": 123456789012345678901234567890},\n'
            ' "codecs" : [ {"configuration":{"endian":"big"}, "name" : "endian"} ] }\n'
        )
        old, new, _ = text_of_migrated(text)
        assert old == text
        assert new == text.replace('"name" : "endian"', '"name" : "bytes"')

    @given(
        st.dictionaries(texts, json_values, max_size=4),
        st.permutations(list(ARRAY)),
        styles,
        st.sampled_from([[], ENDIAN, [GZIP], [TRANSPOSE], [TRANSPOSE, GZIP], None]),
    )
    def test_every_other_byte_is_what_it_was(self, attributes, order, style, codecs):
        members = ARRAY | {"attributes": attributes, "codecs": codecs}
        document = {n: members[n] for n in order if n != "codecs" or codecs is not None}
        text = json.dumps(document, **style)
        old, new, steps = text_of_migrated(text)
        assert old == text
        assert len(steps) == 1
        after = json.loads(new)
        assert "bytes" in [codec["name"] for codec in after["codecs"]]
        if codecs is None:
            assert list(after) in (["codecs", *document], [*document, "codecs"])
            expected = {name: document.get(name, LITTLE) for name in after}
        else:
            expected = document | {"codecs": after["codecs"]}
            assert list(after) == list(document)
        # NaN is not equal to itself; a text is.
        assert json.dumps(after) == json.dumps(expected)
        if "separators" not in style or '": ' not in text:  # which may stand in a string, too
            assert new == json.dumps(expected, **style)


class TestScreen:
    """What is shown is bounded, whatever there is to migrate."""

    def test_documents_that_change_alike_are_shown_once(self):
        arrays = {f"a{i}": DRAFT for i in range(30)}
        text = str(zarr_bytes.migrate(memory({"": GROUP} | arrays), dry_run=True))
        assert text.count("endian becomes bytes") == 1
        assert "and 19 more" in text

    def test_a_long_plan_ends_with_the_verdict(self, tmp_path):
        write(tmp_path, GROUP)
        for name, codecs in (("a", ENDIAN), ("b", []), ("c", UNKNOWN)):
            write(tmp_path / name, json.dumps(ARRAY | {"codecs": codecs}, indent=2))
        lines = run(tmp_path, "--dry-run")[1].splitlines()
        assert len(lines) > 24
        assert lines[0].startswith(
            "2 metadata documents of the draft form; 1 metadata document not"
        )
        assert lines[-1] == lines[0]

    @settings(max_examples=30)
    @given(attributes=st.dictionaries(texts, json_values, max_size=4))
    def test_a_document_on_one_line_is_shown_as_one_on_several(self, attributes):
        def shown(indent):
            text = json.dumps(DRAFT | {"attributes": attributes}, indent=indent)
            found = str(zarr_bytes.migrate(memory({"": text}), dry_run=True))
            return re.sub(r"memory://\d+", "", found)

        assert shown(None) == shown(2)
        assert "becomes bytes\n  ..." not in shown(None)  # nor the header of a difference
        changed = [line.split() for line in shown(None).splitlines() if re.match(" *[-+] ", line)]
        assert changed == [["-", '"name":', '"endian",'], ["+", '"name":', '"bytes",']]

    def test_however_deep(self):
        text = json.dumps(DRAFT)
        deep = '{"a":' * 500 + "{}" + "}" * 500
        store = memory({"": text.replace('"attributes": {}', f'"attributes": {deep}')})
        assert '-      "name": "endian",' in str(zarr_bytes.migrate(store, dry_run=True))


class Killed(BaseException):
    """The end of a process, which no command takes for an error of the store."""


class Failing(WrapperStore):
    """A store whose `failing`th write or delete fails.

    `how` is "before" or "behind" what it does, "half" done, "silent" (not done, and no error),
    "for good" (this and all that follow) or "killed".
    """

    def __init__(self, store, failing, how):
        super().__init__(store)
        self.failing, self.how, self.count = failing, how, 0

    def with_read_only(self, read_only=False):
        return self

    async def _do(self, key, value):
        self.count += 1
        fails = self.count == self.failing
        if self.how == "killed" and fails:
            raise Killed
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


class ChangedBy(WrapperStore):
    """A store in which another process replaces an object once it has been read."""

    def __init__(self, store, key):
        super().__init__(store)
        self.key = key

    def with_read_only(self, read_only=False):
        return self

    async def get(self, key, *args, **kwargs):
        found = await self._store.get(key, *args, **kwargs)
        if key == self.key:
            await self._store.set(key, cpu.Buffer.from_bytes(b"{} "))
        return found


class TestFailures:
    @pytest.mark.parametrize("how", ["before", "behind", "half", "silent", "for good"])
    @pytest.mark.parametrize("failing", [1, 2, 3])
    def test_the_array_is_readable_and_the_next_attempt_succeeds(self, draft, failing, how):
        before = (draft / "zarr.json").read_bytes()
        store = Failing(LocalStore(draft), failing, how)
        if (failing, how) == (3, "silent"):
            zarr_bytes.migrate(store)  # a backup that stays is all that it leaves
        else:
            with pytest.raises(MigrationError, match=r"(.|\n)*[01] of 1 meta") as raised:
                zarr_bytes.migrate(store)
            assert "zarr.json" in str(raised.value)
            if (draft / BACKUP).exists():
                assert BACKUP in str(raised.value)
        assert zarr.open_array(draft, mode="r")[...].tolist() == VALUES
        in_place = (draft / "zarr.json").read_bytes()
        assert in_place == before or json.loads(in_place)["codecs"] == BIG
        zarr_bytes.migrate(LocalStore(draft))
        assert codecs_of(draft) == BIG

    @pytest.mark.parametrize("failing", [1, 2, 3])
    def test_after_a_kill_it_is_readable_and_the_next_run_leaves_nothing(self, draft, failing):
        with pytest.raises(Killed):
            zarr_bytes.migrate(Failing(LocalStore(draft), failing, "killed"))
        assert zarr.open_array(draft, mode="r")[...].tolist() == VALUES
        code, text = run(draft, "--yes")
        assert code == 0
        assert sorted(p.name for p in draft.iterdir()) == ["c", "zarr.json"]
        assert codecs_of(draft) == BIG
        assert ("Removed: 1 leftover of an earlier run." in text) == (failing == 3)
        assert run(draft)[1].startswith("Nothing to migrate: ")

    def test_the_old_document_is_beside_it_while_the_new_one_is_written(self, draft):
        before = (draft / "zarr.json").read_bytes()
        seen = []

        class Watched(Failing):
            async def set(self, key, value):
                if key == "zarr.json":
                    seen.append((draft / BACKUP).read_bytes())
                await super().set(key, value)

        zarr_bytes.migrate(Watched(LocalStore(draft), None, "before"))
        assert seen == [before]
        assert not (draft / BACKUP).exists()

    def test_what_a_kill_within_a_write_leaves_is_removed_too(self, draft):
        (draft / BACKUP).write_bytes((draft / "zarr.json").read_bytes())
        chunk = draft / f"0.{'a' * 32}.partial"  # of an array whose chunk keys have no slash
        chunk.write_bytes(b"")
        for name in (f"zarr.json.{'a' * 32}.partial", f"zarr.{'b' * 32}.partial"):
            (draft / name).write_text('{"zarr_')
        assert "Removed: 2 leftovers of an earlier run." in run(draft, "--yes")[1]
        assert sorted(p.name for p in draft.iterdir()) == [chunk.name, "c", "zarr.json"]

    def test_what_another_process_is_writing_is_left_alone(self, tmp_path):
        path = write(tmp_path, ARRAY)
        (path / f"zarr.{'b' * 32}.partial").write_text('{"zarr_')
        assert run(path, "--yes")[1].startswith("Nothing to migrate: ")
        assert len(list(path.glob("*.partial"))) == 1

    @pytest.mark.parametrize(("options", "answer"), [(("--dry-run",), ""), ((), "n\n")])
    def test_a_leftover_is_shown_and_not_removed_without_a_yes(self, tmp_path, options, answer):
        backup = write(tmp_path, ARRAY) / BACKUP
        backup.write_text("{}")
        text = run(tmp_path, *options, answer=answer)[1]
        assert text.startswith("1 leftover of an earlier run: ")
        assert backup.name in text
        assert backup.exists()

    @pytest.mark.parametrize(
        ("document", "code"),
        [(ARRAY | {"codecs": UNKNOWN}, 1), ("{", 1), (ARRAY | {"fill_value": "x"}, 0)],
    )
    def test_a_backup_stays_beside_a_document_that_is_not_in_order(self, tmp_path, document, code):
        path = write(tmp_path / "a", document).parent
        write(path, GROUP)
        (path / "a" / BACKUP).write_text("{}")
        assert run(path, "--yes")[0] == code
        assert (path / "a" / BACKUP).exists()

    @pytest.mark.parametrize(
        ("document", "key"), [(DRAFT, "zarr.json"), (ARRAY, BACKUP)], ids=["document", "backup"]
    )
    def test_what_has_changed_meanwhile_is_left_alone(self, document, key):
        store = memory({"": document})
        if key == BACKUP:
            store._store_dict[key] = cpu.Buffer.from_bytes(b"{}")
        with pytest.raises(MigrationError, match=f"{key} has changed meanwhile"):
            zarr_bytes.migrate(ChangedBy(store, key))
        assert store._store_dict[key].to_bytes() == b"{} "

    def test_a_backup_of_another_document_is_not_overwritten(self, draft):
        (draft / BACKUP).write_text("{}")
        with pytest.raises(MigrationError, match=r"holds another document(.|\n)*0 of 1"):
            zarr_bytes.migrate(draft)
        assert (draft / BACKUP).read_text() == "{}"
        assert codecs_of(draft) == ENDIAN

    def test_where_nothing_can_be_written_the_command_says_what_is_left(self, draft):
        (draft / BACKUP).mkdir()
        code, text = run(draft, "--yes")
        assert code == 1
        assert "0 of 1 metadata document migrated" in text
        assert codecs_of(draft) == ENDIAN


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what clients and servers of others warn of
def test_a_store_behind_s3_is_migrated(draft):
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

    python("-c", put, draft)
    done = python("-m", "zarr_bytes", "migrate", "--yes", "s3://migrate/a")
    assert done.stderr == ""
    read = "import s3fs; print(s3fs.S3FileSystem().cat('migrate/a/zarr.json').decode())"
    assert json.loads(python("-c", read).stdout)["codecs"] == BIG
    python("-m", "zarr_bytes", "check", "s3://migrate/a")
    server.stop()


class TestFromPython:
    @pytest.mark.parametrize("kind", ["path", "open store"])
    def test_a_loop_gives_the_changes_with_both_texts(self, draft, kind):
        old = (draft / "zarr.json").read_bytes()
        store = draft if kind == "path" else LocalStore(draft)
        planned = zarr_bytes.migrate(store, dry_run=True)
        assert not planned.is_written
        assert (draft / "zarr.json").read_bytes() == old
        found = zarr_bytes.migrate(store)
        assert found.is_written
        assert list(found) == list(planned)
        (change,) = found
        new = (draft / "zarr.json").read_bytes()
        assert (change.key, change.old, change.new) == ("zarr.json", old, new)
        assert codecs_of(draft) == BIG
        assert str(found).startswith("1 metadata document migrated: ")

    def test_a_store_that_was_opened_to_be_read_only_is_not_written(self, draft):
        with pytest.raises(zarr_bytes.StoreError, match="read only"):
            zarr_bytes.migrate(LocalStore(draft, read_only=True))
        assert codecs_of(draft) == ENDIAN
