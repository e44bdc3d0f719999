"""Whether zarr uses the package, who decided that, and what to do: as users see it."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import metadata

import numpy as np
import pytest
import zarr
from command import call
from packaging.version import Version

import zarr_bytes
from zarr_bytes.data_type import DATA_TYPES
from zarr_bytes.settings import SETTINGS

ZARRS_OWN = "zarr.codecs.bytes.BytesCodec"
PIPELINE = "codec_pipeline.path"


def command(*arguments):
    """The real command in a process of its own, 100 columns wide."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ZARR_", "PYTHON"))}
    options = {"capture_output": True, "text": True, "check": False}
    return subprocess.run(
        [sys.executable, *arguments], env=inherited | {"COLUMNS": "100"}, **options
    )


@contextmanager
def started_with(columns=80, lines=24, **variables):
    """As in a process that was started with these environment variables, on such a terminal."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("ZARR_"):
                patch.delenv(name)
        for name, value in {"COLUMNS": columns, "LINES": lines, **variables}.items():
            patch.setenv(name, str(value))
        zarr.config.refresh()
        yield
    zarr.config.refresh()


def printed(*options, **environment):
    """Exit status and text of the command."""
    with started_with(**environment):
        result = call("status", *options)
    assert result.stderr == ""
    return result.exit_code, result.stdout


def status_json(**environment):
    code, text = printed("--json", **environment)
    return code, json.loads(text)


class TestActive:
    def test_exit_status_0_and_the_file_that_decided(self):
        code, found = status_json()
        assert (code, found["active"], found["advice"]) == (0, True, [])
        assert [c["found"] for c in found["codecs"]] == [
            "zarr_bytes.codec.BytesCodec",
            "zarr_bytes.codec.EndianCodec",
        ]
        for codec in found["codecs"]:
            assert codec["source"]["kind"] == "file"
            assert codec["source"]["name"].endswith("etc/zarr/zarr-bytes.yaml")

    def test_a_process_says_so_first_and_names_versions_and_counts_data_types(self):
        done = command("-m", "zarr_bytes", "status")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Active: ")
        assert f"zarr {zarr.__version__}" in done.stdout
        assert f"Data types: {len(DATA_TYPES)} of {len(DATA_TYPES)} by zarr-bytes" in done.stdout

    def test_verbose_lists_the_data_types_and_first_whether_they_need_an_import(self):
        text = printed("--verbose")[1]
        assert "complex128" in text
        needs_import = Version(zarr.__version__) < Version("3.4")
        first_screen = "\n".join(text.splitlines()[:24])
        assert ("Data types need `import zarr_bytes` first" in first_screen) == needs_import
        assert zarr_bytes.status().data_types_need_import == needs_import
        assert max(map(len, text.splitlines())) <= 80

    def test_a_data_type_that_zarr_does_not_have_is_named(self, monkeypatch):
        monkeypatch.delitem(zarr.dtype.data_type_registry.contents, "int16")
        (found,) = (d for d in zarr_bytes.status().data_types if d.name == "int16")
        assert (found.found, found.is_active) == ("none", False)
        assert "by others: int16" in " ".join(call("status").stdout.split())

    def test_a_data_type_that_lacks_a_package_says_how_to_get_it(self, without_ml_dtypes):
        lacking = [d.name for d in zarr_bytes.status().data_types if d.lacks == "ml_dtypes"]
        assert {"bfloat16", "int4", "complex_float16", "complex_float8_e5m2"} <= set(lacking)
        assert not {"float16", "complex_float32", "r*"} & set(lacking)
        text = " ".join(call("status").stdout.split())
        assert 'lack ml_dtypes: pip install "ml_dtypes>=0.6"' in text
        assert f"{len(DATA_TYPES) - len(lacking)} of {len(DATA_TYPES)} by zarr-bytes" in text
        assert call("status", "--verbose").stdout.count("uint4") == 1  # not among those it has


class TestNotActive:
    def test_an_environment_variable_is_named_and_to_be_unset(self):
        code, found = status_json(ZARR_CODECS__BYTES=ZARRS_OWN)
        assert code == 1
        source = {"kind": "environment variable", "name": "ZARR_CODECS__BYTES"}
        assert found["codecs"][0]["source"] == source
        assert found["advice"] == ["unset ZARR_CODECS__BYTES"]

    def test_a_later_configuration_file_is_named(self, tmp_path, monkeypatch):
        path = tmp_path / "a-rather-long-name" / "and-another-one" / "mine.conf"
        path.parent.mkdir(parents=True)
        path.write_text(f"codecs: {{bytes: {ZARRS_OWN}}}")
        monkeypatch.setattr(zarr.config, "paths", [*zarr.config.paths, str(path)])
        code, found = status_json()
        assert code == 1
        assert found["codecs"][0]["source"] == {"kind": "file", "name": str(path)}
        assert found["advice"][0].startswith(f"{path} sets codecs.bytes")
        text = printed()[1]
        for name in path.parts[1:]:  # on 80 columns
            assert name in text

    def test_code_is_told_from_files_and_variables(self):
        with zarr.config.set({"codecs.bytes": ZARRS_OWN}):
            found = zarr_bytes.status()
        assert not found.is_active
        assert found.codecs[0].source.kind == "code"
        assert "zarr.config.set" in found.advice[0]

    def test_a_class_that_is_not_registered_is_reported(self):
        code, found = status_json(ZARR_CODECS__BYTES="no.such.Codec")
        assert code == 1
        assert found["codecs"][0]["found"].startswith("none: ")

    def test_a_file_that_the_installed_one_overrides_is_named_with_the_line_that_helps(
        self, tmp_path, monkeypatch
    ):
        path = "zarr.core.codec_pipeline.BatchedCodecPipeline"
        (tmp_path / "a.yaml").write_text(f"codec_pipeline: {{path: {path}}}")
        monkeypatch.setattr(zarr.config, "paths", [str(tmp_path), *zarr.config.paths])
        sentence, more, line = zarr_bytes.status().advice
        assert sentence.startswith(f"{tmp_path}/a.yaml sets codec_pipeline.path, and ")
        assert more.endswith("put this line into ~/.config/zarr/zarr.yaml:")
        assert line == f"codec_pipeline: {{path: {path}}}"

    def test_the_draft_codec_alone_does_not_make_it_inactive(self):
        with zarr.config.set({"codecs.endian": ZARRS_OWN}):
            found = zarr_bytes.status()
        assert found.is_active
        assert "Not so for endian." in str(found).splitlines()[0]

    @pytest.mark.parametrize("with_rich", [True, False])
    def test_the_verdict_is_on_the_last_screen_where_there_is_much_to_do(
        self, with_rich, monkeypatch
    ):
        """Of 24 lines, the last is the next prompt."""
        if not with_rich:
            monkeypatch.setitem(sys.modules, "rich", None)
        not_active = {"ZARR_CODECS__BYTES": ZARRS_OWN, "ZARR_ZARR_BYTES__GAPS": "1"}
        not_working = not_active | {"ZARR_ZARR_BYTES__GAP__LOCAL": "x"}
        for verdict, variables in (
            ("Active: ", {}),
            ("Not active: ", not_active),
            ("Not working: ", not_working),
        ):
            screen = printed(**variables)[1].splitlines()[-23:]
            assert any(line.startswith(verdict) for line in screen)


class TestSettings:
    def test_each_is_marked_by_its_source_whatever_its_value(self):
        chosen = {"zarr_bytes.partial_reads": True, "zarr_bytes.gap.remote": 2**18}
        with started_with(ZARR_ZARR_BYTES__GAP__LOCAL="4096"), zarr.config.set(chosen):
            found = zarr_bytes.status()
        settings = {s.name.partition(".")[2]: s for s in found.settings}
        kinds = {name: setting.source.kind for name, setting in settings.items()}
        assert kinds["partial_reads"] == kinds["gap.remote"] == "code"
        assert kinds["gap.local"] == "environment variable"
        assert kinds["largest_request.local"] == kinds["partial_writes"] == "default"
        assert settings["gap.local"].value == 4096
        assert "environment: ZARR_ZARR_BYTES__GAP__LOCAL" in str(found)

    def test_a_size_has_its_unit_and_a_number_of_chunks_none(self):
        rows = [line.split() for line in str(zarr_bytes.status()).splitlines()]
        shown = {row[0]: row[1:-1] for row in rows if row and row[0].startswith("zarr_bytes.")}
        assert shown["zarr_bytes.gap.local"] == ["32", "KiB"]
        assert shown["zarr_bytes.mappings"] == [str(SETTINGS["zarr_bytes.mappings"])]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("partial_reads", "no"),
            ("partial_writes", "no"),
            ("gap.local", -1),
            ("largest_request.remote", 0),
            ("fill_values", "loose"),
            ("other_chains", "fast"),
            *((name, []) for name in ("partial_reads", "gap.local", "other_chains", "mappings")),
            ("fill_values", np.array(["strict", "lenient"])),
            ("gap.remote", np.array([1, 2])),
        ],
        ids=str,
    )
    def test_a_value_that_is_not_permitted_is_a_problem(self, name, value):
        with zarr.config.set({f"zarr_bytes.{name}": value}):
            found = zarr_bytes.status()
        assert not found.is_active
        assert f"zarr_bytes.{name} is {value!r}" in found.problems[0]

    @pytest.mark.parametrize("name", ["partial_read", "gaps.local", "fill-value"])
    def test_one_that_is_unknown_does_not_make_it_inactive(self, name):
        with zarr.config.set({f"zarr_bytes.{name}": 1}):
            found, result = zarr_bytes.status(), call("status")
        assert (found.is_active, found.problems) == (True, [])
        shown = name.replace("-", "_")
        (sentence,) = found.unknown
        assert sentence.startswith(f"the setting `zarr_bytes.{shown}` is not known (known: ")
        assert str(found).startswith(f"Active, but {sentence}.")
        assert result.exit_code == 1
        assert result.stdout.startswith("Active, but the setting ")

    @pytest.mark.parametrize(
        "value", [{}, 5, [], np.array([1, 2]), {"path": np.array([1, 2])}], ids=str
    )
    def test_a_pipeline_without_a_path_is_a_problem(self, value):
        with zarr.config.set(codec_pipeline=value):
            found = zarr_bytes.status()
        assert not found.is_active
        assert found.problems

    def test_a_value_that_looks_like_markup_is_shown_as_it_is(self):
        text = printed(ZARR_ZARR_BYTES__FILL_VALUES="[/]\x1b[2J")[1]
        assert "[/]\\x1b[2J" in text
        assert "\x1b" not in text


class TestPipeline:
    @pytest.mark.parametrize(
        ("setting", "acts_for", "new_arrays"),
        [
            (
                {PIPELINE: "zarr_bytes.BatchedBytesPipeline"},
                "are read where an array has `transpose` codecs and `bytes` alone, or shards of"
                " these",
                "zarr-bytes reads and writes them all the same",
            ),
            (
                {PIPELINE: "zarr.core.codec_pipeline.Other"},
                "are read where `bytes` is the only codec of an array",
                "until they are reopened; serializer=zarr_bytes.BytesCodec() gives them this one",
            ),
            (
                {PIPELINE: "zarr_bytes.BatchedBytesPipeline", "codecs.bytes": ZARRS_OWN},
                "are not read: every chunk is read whole",
                "also when they are reopened; serializer=zarr_bytes.BytesCodec() gives them this",
            ),
        ],
        ids=["this package's", "another", "this package's without its codec"],
    )
    def test_the_one_configured_is_named_with_its_arrays(self, setting, acts_for, new_arrays):
        with zarr.config.set(setting):
            found = zarr_bytes.status()
        pipeline = found.pipeline
        assert (pipeline.found, found.acts_for) == (setting[PIPELINE], acts_for)
        assert pipeline.is_active == (pipeline.found == "zarr_bytes.BatchedBytesPipeline")
        assert (pipeline.source.kind == "code") != pipeline.is_active
        assert new_arrays in found.new_arrays
        shown = [f"Parts of chunks {acts_for}.", f"New arrays have {found.new_arrays}."]
        assert "\n".join(shown) in str(found)

    def test_one_that_there_is_not_is_a_problem(self):
        with zarr.config.set({"codec_pipeline.path": "zarr_bytes.BytePipeline"}):
            found = zarr_bytes.status()
        assert not found.is_active
        (problem,) = found.problems
        assert "'zarr_bytes.BytePipeline' not found" in problem
        assert "zarr_bytes.BatchedBytesPipeline" in problem


class TestCommand:
    def test_the_version_is_that_of_the_metadata(self):
        version = metadata.version("zarr-bytes")
        assert call("--version").stdout == f"zarr-bytes {version}\n"
        assert zarr_bytes.__version__ == version

    def test_it_prints_what_python_prints_without_rich(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "rich", None)
        assert printed(lines=100)[1] == f"{zarr_bytes.status()}\n"

    def test_no_command_prints_the_help(self):
        result = call()
        assert result.exit_code == 2
        assert "status" in result.stdout

    @pytest.mark.skipif(sys.platform != "linux", reason="a device of Linux")
    @pytest.mark.parametrize(
        ("redirected", "expected"),
        [
            (">&-", (0, "")),
            (">/dev/full", (1, "OSError: [Errno 28] No space left on device\n")),
            ("| true", (0, "")),  # a pager that was left
        ],
    )
    def test_output_that_is_closed_or_full_is_no_traceback(self, redirected, expected):
        done = subprocess.run(
            ["/bin/sh", "-c", f'"$0" -m zarr_bytes status {redirected}', sys.executable],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == expected

    def test_importing_the_package_imports_neither_rich_nor_the_commands(self):
        code = (
            "import sys, zarr_bytes\n"
            "print([m for m in sys.modules if m == 'rich' or m.startswith('zarr_bytes.commands')])"
        )
        assert command("-c", code).stdout == "[]\n"
