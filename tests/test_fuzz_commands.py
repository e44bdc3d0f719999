"""Hostile hierarchies through the commands: no traceback, bounded time, nothing for the terminal.

`tests/hostile.py` has the cases, and `tests/fuzz.py` says how long the random ones run.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import hostile
import pytest
import zarr
from fuzz import fuzz
from hypothesis import given
from hypothesis import strategies as st
from test_fuzz_documents import documents, mutated, objects_of
from zarr.storage import LocalStore, ZipStore

import zarr_bytes

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the cases need POSIX"),
    pytest.mark.filterwarnings("ignore"),
]


def test_no_hierarchy_makes_a_command_fail(tmp_path):
    """In a process of its own, whose memory is bounded."""
    program = [sys.executable, Path(__file__).with_name("hostile.py"), tmp_path]
    done = subprocess.run(program, capture_output=True, text=True)
    ended = list(map(json.loads, done.stdout.splitlines()))
    assert [row for row in ended if row[2]] == []
    expected = [[case, command] for case in hostile.CASES for command in hostile.STORED]
    assert [row[:2] for row in ended] == expected, done.stderr[-2000:]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=str)
@pytest.mark.parametrize(
    "setting",
    [
        {"zarr_bytes.partial_reads": hostile.TERMINAL},
        {"zarr_bytes.gap": {"remote": float("nan")}},
        {"zarr_bytes.gap": hostile.TERMINAL},
        {"zarr_bytes": {hostile.TERMINAL: {hostile.TERMINAL: 1}}},
        {"zarr_bytes": 5},
        {"zarr_bytes.fill_values": "\ud800"},
        {"codecs.bytes": hostile.TERMINAL},
        {"codecs.bytes": None},
    ],
    ids=range(8),
)
def test_no_setting_makes_status_fail(setting, options):
    arguments = ["status", *options]
    with zarr.config.set(setting):
        ended = hostile.run(arguments)
    assert list(hostile.faults_of(arguments, ended)) == []


NAMES = [
    "a",
    "b",
    "a/b",
    "..",
    "c",
    "zarr.json",
    "x" * 100,
    hostile.TERMINAL,
    "é\u0301",
    "[b]",
    "-y",
]


@fuzz(examples=15)
@given(data=st.data())
def test_no_random_hierarchy_makes_a_command_fail(tmp_path_factory, data):
    """Documents that are changed at random under hostile names, in a folder or a zip archive."""
    objects = {"zarr.json": json.dumps(hostile.GROUP).encode()}
    for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
        document, content = data.draw(documents())
        nodes = objects_of(data.draw(mutated(document)), content)
        objects |= {f"{name}/{key}": nodes[key] for key in ("zarr.json", "c/0", "c/0/0")}
    root = tmp_path_factory.mktemp("a") / "a.zarr"
    if data.draw(st.booleans()):
        root = root.with_suffix(".zip")
        with zipfile.ZipFile(root, "w") as archive:
            for key, content in objects.items():
                archive.writestr(key, content)
    else:
        for key, content in objects.items():
            path = root / key.replace("\x00", "").replace("..", "dots")
            if not path.is_dir() and not any(parent.is_file() for parent in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    for command, options in hostile.STORED.items():
        arguments = [*options, str(root)]
        assert list(hostile.faults_of(arguments, hostile.run(arguments))) == [], command
    store = (ZipStore if root.suffix == ".zip" else LocalStore)(root, read_only=True)
    with zarr.config.set({"zarr_bytes.fill_values": "strict"}):
        zarr.open_group(store, mode="r")  # an archive is closed only where it has been open
        for report in zarr_bytes.check(root):
            if report.kind == "array" and not report.findings:  # what conforms opens
                zarr.open_array(store, path=report.path, mode="r")
