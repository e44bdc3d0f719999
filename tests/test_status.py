"""Whether zarr uses the package, who decided that, and what to do: as users see it."""

import io
import json
import os
import platform
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import zarr
from command import call
from conftest import PIPELINES
from documents import document_of, text_of
from packaging.version import Version
from stored_arrays import CountingStore
from system_calls import fail_at
from zarr.storage import MemoryStore

import zarr_bytes
from zarr_bytes.__main__ import main
from zarr_bytes.data_type import DATA_TYPES

ZARRS_OWN = "zarr.codecs.bytes.BytesCodec"
ZARRS_PIPELINE = PIPELINES["BatchedCodecPipeline"]
OWN_CODEC = "zarr_bytes.codec.BytesCodec"
OWN_PIPELINE = PIPELINES["BatchedBytesPipeline"]
NOT_ACTIVE = {"ZARR_CODECS__BYTES": ZARRS_OWN}


def printed(*options, columns=80, lines=24, later=(), status=None, set_in_code=(), **variables):
    """What the command prints in a process with these environment variables and later files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zarr.config, "paths", [*zarr.config.paths, *later])
        for name in os.environ:
            if name.startswith("ZARR_"):
                patch.delenv(name)
        for name, value in {"COLUMNS": columns, "LINES": lines, **variables}.items():
            patch.setenv(name, str(value))
        zarr.config.refresh()
        with zarr.config.set(dict(set_in_code)):
            result = call("status", *options)
    zarr.config.refresh()
    assert result.stderr == ""
    assert status in (None, result.exit_code)
    return json.loads(result.stdout) if "--json" in options else result.stdout


def test_status_says_that_the_package_is_active():
    assert zarr_bytes.status().is_active
    assert call("status").exit_code == 0


class TestActive:
    def test_active_status_exits_with_0_and_names_the_configuration_file(self):
        names = "zarr-bytes", "zarr", "numpy", "ml_dtypes"
        versions = {"Python": platform.python_version()} | {n: metadata.version(n) for n in names}
        assert printed(status=0).splitlines()[1] == ", ".join(map(" ".join, versions.items()))
        found = printed("--json", status=0)
        assert (found["is_active"], found["advice"], found["versions"]) == (True, [], versions)
        classes = [OWN_CODEC, "zarr_bytes.codec.EndianCodec", OWN_PIPELINE]
        assert [codec["found"] for codec in found["codecs"]] == classes
        assert [codec.found for codec in zarr_bytes.status()] == classes
        for codec in found["codecs"]:
            assert codec["source"].endswith("etc/zarr/zarr-bytes.yaml")

    def test_verbose_status_lists_the_data_types(self):
        lines = printed("--verbose").splitlines()
        assert lines[0].startswith("Active: ")
        assert any(line.startswith("complex128 ") for line in lines)
        needs_import = Version(zarr.__version__) < Version("3.4")
        first_screen = "\n".join(lines[:24])
        assert ("Data types need `import zarr_bytes` first" in first_screen) == needs_import
        assert ('("No Zarr data type found")' in first_screen.replace("\n", " ")) == needs_import
        assert max(map(len, lines)) <= 80

    @pytest.mark.parametrize("first", ["", "zarr.create_array({}, shape=1, dtype='i4')"])
    def test_a_data_type_of_this_package_is_found_without_an_import_or_after_another_array(
        self, first
    ):
        """As `status` says: from zarr 3.4 on without anything before it."""
        document = text_of(document_of("bfloat16", [4]))
        code = f"""if True:
            import zarr
            from zarr.buffer.cpu import Buffer
            {first}
            store = zarr.storage.MemoryStore({{"zarr.json": Buffer.from_bytes({document})}})
            try:
                print(zarr.open_array(store, mode="r").dtype)
            except ValueError as error:
                print(error)
        """
        command = [sys.executable, "-W", "error", "-c", code]
        found = subprocess.check_output(command, text=True, env={}).strip()
        is_found = first or Version(zarr.__version__) >= Version("3.4")
        lacking = "No Zarr data type found that matches 'bfloat16'"
        assert found == ("bfloat16" if is_found else lacking)

    def test_data_types_that_are_lacking_are_counted(self, monkeypatch, without_ml_dtypes):
        monkeypatch.delitem(zarr.dtype.data_type_registry.contents, "int16")
        found = zarr_bytes.status()
        assert "ml_dtypes" not in found.versions
        lacking = {name for name, said in found.data_types.items() if "without ml_dtypes" in said}
        assert {"bfloat16", "int4", "complex_float16", "complex_float8_e5m2"} <= lacking
        assert not {"float16", "complex_float32", "r*"} & lacking
        count = f"{len(DATA_TYPES) - len(lacking) - 1} of {len(DATA_TYPES)} by zarr-bytes"
        how = f'{len(lacking)} without ml_dtypes: pip install "ml_dtypes>=0.6"'
        assert f" {count}; 1 unknown to zarr; {how}; --verbose lists them\n" in str(found)


class TestNotActive:
    @pytest.mark.parametrize("kind", ["variable", "file"])
    def test_status_names_who_chose_another_codec_and_the_line_to_run(self, tmp_path, kind):
        path = tmp_path / "a-rather-long-name" / "and-another-one" / "mine.conf"
        path.parent.mkdir(parents=True)
        path.write_text(f"codecs: {{bytes: {ZARRS_OWN}}}")
        start, source = {"later": [str(path)]}, str(path)
        if kind == "variable":
            start, source = NOT_ACTIVE, "ZARR_CODECS__BYTES in the environment"
        found, line = printed("--json", status=1, **start), f"export ZARR_CODECS__BYTES={OWN_CODEC}"
        assert (found["codecs"][0]["source"], found["advice"][1:]) == (source, [line])
        narrow = printed(columns=15, **start)
        assert (f"  {line}\n" in narrow, "…" in narrow) == (True, False)  # nothing is cut
        assert source in printed(columns=400, **start)

    @pytest.mark.parametrize("kind", ["variable", "variable with all codecs", "file", "code"])
    def test_what_to_do_fits_what_has_chosen_another_class(self, tmp_path, kind):
        (file := tmp_path / "mine.yaml").write_text(f"codecs: {{bytes: {ZARRS_OWN}}}")
        code = {"codecs.bytes": ZARRS_OWN} if kind == "code" else {}
        start, said, unset = {
            "variable": (NOT_ACTIVE, "ZARR_CODECS__BYTES in the environment has", []),
            "variable with all codecs": (
                {"ZARR_CODECS": str({"bytes": ZARRS_OWN})},
                "ZARR_CODECS in the environment has",
                ["unset ZARR_CODECS"],
            ),
            "file": ({"later": [str(file)]}, f"{file} has", []),
            "code": ({}, "Remove the call of zarr.config.set that has", []),
        }[kind]
        found = printed("--json", status=1, set_in_code=code, **start)
        assert found["advice"] == [
            f"{said} chosen another class. Run before Python starts:",
            *unset,
            f"export ZARR_CODECS__BYTES={OWN_CODEC}",
        ]

    def test_of_several_that_have_chosen_each_is_named_once(self):
        found = printed("--json", set_in_code={"codec_pipeline.path": ZARRS_PIPELINE}, **NOT_ACTIVE)
        assert found["advice"] == [
            "ZARR_CODECS__BYTES in the environment has chosen another class."
            " Remove the call of zarr.config.set that has chosen another class."
            " Run before Python starts:",
            f"export ZARR_CODECS__BYTES={OWN_CODEC}",
            f"export ZARR_CODEC_PIPELINE__PATH={OWN_PIPELINE}",
        ]

    @pytest.mark.parametrize("is_there", [True, False])
    def test_where_nothing_has_chosen_a_class_python_is_restarted_or_the_file_not_found(
        self, tmp_path, monkeypatch, is_there
    ):
        """A process that has read its configuration before the package was installed."""
        monkeypatch.setattr(zarr.config, "paths", [str(tmp_path)])
        zarr.config.refresh()
        if is_there:
            (tmp_path / "zarr-bytes.yaml").write_text(f"codecs: {{bytes: {OWN_CODEC}}}")
        found = zarr_bytes.status()
        monkeypatch.undo()
        zarr.config.refresh()
        assert [codec.source for codec in found.codecs] == ["default"] * 3
        lines = (
            []
            if is_there
            else [
                f"export ZARR_CODECS__BYTES={OWN_CODEC}",
                "export ZARR_CODECS__ENDIAN=zarr_bytes.codec.EndianCodec",
                f"export ZARR_CODEC_PIPELINE__PATH={OWN_PIPELINE}",
            ]
        )
        said = "Restart Python: zarr read its configuration before zarr-bytes was installed."
        if not is_there:
            said = "The configuration file zarr-bytes.yaml is not where zarr looks for it."
            said += " Run before Python starts:"
        assert (found.is_active, found.advice) == (False, [said, *lines])

    def test_status_tells_code_from_configuration_files_and_variables(self):
        for name, path, shown in (
            ("bytes", ZARRS_OWN, ZARRS_OWN),
            ("bytes", "no.such.Codec", "none: "),
            ("endian", ZARRS_OWN, ZARRS_OWN),  # of the draft, without which it is active
        ):
            with zarr.config.set({f"codecs.{name}": path}):
                found = zarr_bytes.status()
            assert shown in str(found)
            codec = found.codecs[name == "endian"]
            assert (found.is_active, codec.source) == (name == "endian", "zarr.config.set")
            assert codec.found.startswith(shown)

    def test_an_unknown_pipeline_is_a_problem_of_status(self):
        for value in {}, 5, {"path": np.array([1, 2])}, {"path": "zarr_bytes.BytePipeline"}:
            with zarr.config.set(codec_pipeline=value):
                found = zarr_bytes.status()
            expected = f"codec_pipeline.path is {value!r}: {found.codecs[2].found}"
            assert (found.is_active, found.problems) == (False, [expected])


class TestWhatIsSaid:
    def test_status_names_the_source_of_each_setting(self, monkeypatch, tmp_path):
        """Of files in a folder, the last by name whose ending is one that zarr reads."""
        chosen = {"zarr_bytes.partial_reads": True, "zarr_bytes.gap.remote": 2**16}
        files = {"mappings": "a.json", "index-cache": "b.YML", "other_chains": "c.yaml"}
        for name in "c.yaml", "a.json", "d.txt", "b.YML":
            given = {s: 5 for s, file in files.items() if file >= name} or {"mappings": 5}
            (tmp_path / name).write_text(json.dumps({"zarr_bytes": given}))
        monkeypatch.setattr(zarr.config, "paths", [str(tmp_path)])
        monkeypatch.setenv("ZARR_ZARR_BYTES__GAP__LOCAL", "4096")
        zarr.config.refresh()
        for name in "MAPPINGS", "PARTIAL_WRITES":  # too late: zarr has read its configuration
            monkeypatch.setenv(f"ZARR_ZARR_BYTES__{name}", "7")
        with zarr.config.set(chosen):
            found = zarr_bytes.status()
        monkeypatch.undo()
        zarr.config.refresh()
        variable = "ZARR_ZARR_BYTES__GAP__LOCAL in the environment"
        sources = dict.fromkeys(chosen, "zarr.config.set") | {"zarr_bytes.gap.local": variable}
        sources |= {
            f"zarr_bytes.{name}".replace("-", "_"): str(tmp_path / file)
            for name, file in files.items()
        }
        assert sources == {s.name: s.source for s in found.settings if s.source != "default"}
        assert variable in str(found)

    def test_status_says_all_that_is_to_be_done(self):
        given = {f"zarr_bytes.{name}": -1 for name in ("x", "mappings", "gap.local", "y")}
        given |= {"codecs.bytes": ZARRS_OWN, "codecs.endian": ZARRS_OWN}
        with zarr.config.set(given | {"codec_pipeline.path": ZARRS_PIPELINE}):
            found = zarr_bytes.status()
        assert str(found).partition("\n\nWhat to do\n")[2].splitlines() == [
            "zarr_bytes.gap.local is -1; permitted is an integer from 0 on",
            "zarr_bytes.mappings is -1; permitted is an integer from 1 on",
            *found.unknown,
            "Remove the call of zarr.config.set that has chosen another class."
            " Run before Python starts:",
            f"  export ZARR_CODECS__BYTES={OWN_CODEC}",
            "  export ZARR_CODECS__ENDIAN=zarr_bytes.codec.EndianCodec",
            f"  export ZARR_CODEC_PIPELINE__PATH={OWN_PIPELINE}",
        ]

    @pytest.mark.parametrize("pipeline", [OWN_PIPELINE, ZARRS_PIPELINE])
    @pytest.mark.parametrize("codec", [OWN_CODEC, ZARRS_OWN])
    def test_status_says_which_arrays_are_read_in_parts_by_the_pipeline(self, pipeline, codec):
        with zarr.config.set({"codec_pipeline.path": pipeline, "codecs.bytes": codec}):
            found = zarr_bytes.status()
        assert found.codecs[2].found == pipeline
        is_said = (pipeline, codec) == (OWN_PIPELINE, OWN_CODEC)
        for said in "Parts of chunks are read in Zarr formats", "New arrays have zarr's own":
            assert (said in str(found)) == is_said

    @pytest.mark.parametrize("pipeline", PIPELINES)
    @pytest.mark.parametrize("codec", [OWN_CODEC, ZARRS_OWN])
    def test_what_status_says_of_format_2_is_what_happens(self, pipeline, codec):
        """With zarr's class for `bytes`, it says that zarr does not use this package."""
        setting = {"codec_pipeline.path": PIPELINES[pipeline], "codecs.bytes": codec}
        options = {"shape": 2**20, "chunks": 2**20, "dtype": "u1", "compressors": None}
        array = zarr.create_array(CountingStore(MemoryStore()), zarr_format=2, **options)
        array[...] = 1
        with zarr.config.set(setting):
            said = str(zarr_bytes.status())
            store = array.store
            opened = zarr.open_array(store)
            store.requests.clear()
            assert opened[7] == 1
        is_partial = store.requests != [None]
        assert is_partial == ((pipeline, codec) == ("BatchedBytesPipeline", OWN_CODEC))
        assert ("Parts of chunks are read in Zarr formats 2 and 3" in said) == is_partial
        assert ("Zarr format 2 has no codec `bytes`" in said) == (
            codec == OWN_CODEC and not is_partial
        )
        assert said.startswith("Not active: zarr does not use") == (codec != OWN_CODEC)

    @pytest.mark.parametrize("with_rich", [True, False])
    def test_the_verdict_of_status_is_on_the_last_screen(self, with_rich, monkeypatch):
        """Of 24 lines, the last is the next prompt."""
        if not with_rich:
            monkeypatch.setitem(sys.modules, "rich", None)
            text = f"{zarr_bytes.status()}\n"
            assert printed(lines=text.count("\n") + 2) == text
            assert printed(lines=text.count("\n") + 1) != text
        not_active = NOT_ACTIVE | {"ZARR_ZARR_BYTES__GAPS": "1"}
        not_working = not_active | {"ZARR_ZARR_BYTES__GAP__LOCAL": "[/]\x1b[2J"}
        said = {"Active: ": {}, "Not active: ": not_active, "Not working: ": not_working}
        for verdict, variables in said.items():
            text = printed(**variables)
            assert any(line.startswith(verdict) for line in text.splitlines()[-23:])
        assert "[/]\\x1b[2J" in text  # what looks like markup is shown as it is


class TestCommand:
    def test_an_interrupt_of_a_command_is_said_on_stderr(self, monkeypatch, tmp_path):
        zarr.create_array(tmp_path, shape=3, dtype="i4", compressors=None)
        fail_at(monkeypatch, "open", 0, error=KeyboardInterrupt())
        result = call("preallocate", tmp_path)
        assert vars(result) == {"exit_code": 130, "stdout": "", "stderr": "Interrupted.\n"}

    def test_the_version_is_that_of_the_metadata_and_without_a_command_there_is_help(self):
        assert zarr_bytes.__version__ == metadata.version("zarr-bytes")
        assert call("--version").stdout == f"zarr-bytes {zarr_bytes.__version__}\n"
        assert call().exit_code == 2
        for said in "Partial reads of Zarr arrays:", "status Show whether zarr uses this":
            assert f" {said} " in " ".join(call().stdout.split())
        assert "\n\nExit status: 0 if zarr uses it; 1 if not, " in call("status", "--help").stdout
        assert call("status", "--jso").stderr.endswith(" unrecognized arguments: --jso\n")

    def test_commands_print_to_closed_streams_and_to_ascii(self, monkeypatch):
        for stream in None, io.TextIOWrapper(io.BytesIO(), "ascii"):
            monkeypatch.setattr(sys, "stdout", stream)
            monkeypatch.setattr(sys, "stderr", stream)
            assert main(["status"]) == 0
            assert main(["check", "温"]) == 2
        stream.flush()
        assert stream.buffer.getvalue().endswith(b"\n\\u6e29: it does not exist\n")

    @pytest.mark.skipif(sys.platform != "linux", reason="a device of Linux")
    def test_closed_or_full_output_of_a_command_is_no_traceback(self):
        full = (1, "OSError: [Errno 28] No space left on device\n")
        for redirected, expected in (">/dev/full", full), ("", (1, "")):  # to a pager that was left
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run(
                ["/bin/sh", "-c", f'"$0" -m zarr_bytes status {redirected}', sys.executable],
                env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
                stdout=writing,
                stderr=subprocess.PIPE,
                text=True,
            )
            os.close(writing)
            assert (done.returncode, done.stderr) == expected

    def test_importing_the_package_imports_neither_rich_nor_the_commands(self):
        code = "import sys, zarr_bytes; print({'rich', 'zarr_bytes.commands'} & {*sys.modules})"
        assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
