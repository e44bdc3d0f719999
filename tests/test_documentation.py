"""The pages say nothing that is not there: tests and files exist, code runs as it says."""

import ast
import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

import zarr_bytes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    p.relative_to(ROOT).as_posix(): p.read_text() for p in [ROOT / "README.md", *DOCS.rglob("*.md")]
}
SPECIFICATION = "docs/specification.md"
CHECKING = "docs/guide/checking-stores.md"
READING = "docs/guide/partial-reads.md"

EVERY_SENTENCE = SPECIFICATION, "Every sentence"
TRACED = [
    (CHECKING, "What is checked when you read"),
    (CHECKING, "What somebody who controls a store can do"),
    (CHECKING, "What the system around it can do"),
    EVERY_SENTENCE,
]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
IS_TEST = re.compile(r"`?((?:Test\w+::)?test_\w+)`?")


def names_of_tests(path):
    """``test`` and ``Class::test`` of a file, without importing it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{test.name}" for test in node.body if hasattr(test, "name"))
        else:
            yield getattr(node, "name", "")


def rows_of(text):
    """The rows of the one table in a text, as lists of cells."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def modules_imported_in(code):
    """Their first names."""
    nodes = [*ast.walk(ast.parse(code))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def blocks(page, language):
    found = re.findall(rf"^ *```(?:{language})\n(.*?)^ *```", PAGES[page], re.M | re.S)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.parametrize("page", [SPECIFICATION, CHECKING])
def test_every_test_that_a_page_names_exists(page):
    links = [(IS_TEST.fullmatch(text), target) for text, target in LINK.findall(PAGES[page])]
    named = [(name[1], (ROOT / page).parent / target) for name, target in links if name]
    assert len(named) > 5
    existing = {path: set(names_of_tests(path)) for path in {path for _, path in named}}
    assert [(name, path) for name, path in named if name not in existing[path]] == []


@pytest.mark.parametrize(("page", "heading"), TRACED)
def test_every_statement_has_tests_or_says_that_it_has_none(page, heading):
    rows = rows_of(PAGES[page].partition(f"\n## {heading}\n")[2].partition("\n## ")[0])
    assert len(rows) > 3
    for *_, statement, tests in rows:
        named = LINK.sub(lambda link: "test" if IS_TEST.fullmatch(link[1]) else "", tests)
        assert statement
        assert set(named.split("<br>")) == {"test"} or tests == "no test", statement
    if (page, heading) == EVERY_SENTENCE:
        documents = {"bytes, endian, registry", "bytes", "endian", "registry", "data types"}
        assert {document for document, *_ in rows} == documents


NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
STORED_BYTES = re.compile(r"\[([^\]]*)\]\([^)\s]*installing\.md#stored-bytes\)")


def test_every_page_names_the_number_of_listed_differences_from_zarr_in_stored_bytes():
    section = PAGES["docs/guide/installing.md"].partition("\n## Stored bytes\n")[2]
    section = section.partition("\n## ")[0]
    listed = len(re.findall(r"^- ", section, re.M))
    assert NUMBERS[re.search(r"(\w+) differences:", section)[1]] == listed
    links = {page: STORED_BYTES.findall(text) for page, text in PAGES.items()}
    assert links["README.md"]
    assert links["docs/questions.md"]
    for page, texts in links.items():
        for text in texts:
            assert (page, NUMBERS[text.split()[0]]) == (page, listed)


@pytest.mark.parametrize("page", [*PAGES, "examples/README.md"])
def test_every_file_and_heading_that_a_page_links_to_exists(page):
    for _, target in LINK.findall((ROOT / page).read_text()):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert ":" in path or file.is_file(), target
        if anchor and file.suffix == ".md" and ":" not in path:
            headings = re.findall(r"^#+ (.*)", file.read_text().lower(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", h).replace(" ", "-") for h in headings], target


# What the newest zarr does, older ones do otherwise.
OF_ZARR = "docs/contributing/what-zarr-could-change.md"
CODE = {
    page: "\n".join(blocks(page, "python"))
    for page in PAGES
    if blocks(page, "python") and (page != OF_ZARR or zarr.__version__ >= "3.4")
}
NEEDS = {page: modules_imported_in(code) for page, code in CODE.items()}
PACKAGES = {"ml_dtypes", "numpy", "zarr", "zarr_bytes", *sys.stdlib_module_names}
# Those that import this package come last: the others are to do without.
TOGETHER = sorted(
    (page for page in CODE if NEEDS[page] <= PACKAGES and page != OF_ZARR),
    key=lambda page: "zarr_bytes" in NEEDS[page],
)
# With the blocks marked `py`, which need MPI or processes of Dask.
WITH_MORE = {page: "\n".join(blocks(page, "python|py")) for page in CODE if blocks(page, "py")}
WITH_OTHERS = [page for page in CODE if not NEEDS[page] <= PACKAGES]

RUN = """
import contextlib, io, json, os, sys, tempfile, zarr
printed = {}
for page, code in json.loads(sys.argv[1]).items():
    os.chdir(tempfile.mkdtemp(dir=sys.argv[2]))
    printed[page] = []
    for _ in range(int(sys.argv[3])):
        zarr.config.refresh()
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(code, page, "exec"), {"__name__": "__main__"})
        printed[page].append(output.getvalue().splitlines())
print(json.dumps(printed), flush=True)
# Its threads of Rust outlive the interpreter: with Python 3.13.0 one of twelve such processes is
# killed by a segmentation fault once its code is done.
if "icechunk" in sys.modules:
    os._exit(0)
"""


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param({page: CODE[page] for page in TOGETHER}, id="together"),
        *(pytest.param({page: CODE[page]}, id=page) for page in CODE if page == OF_ZARR),
        *(
            pytest.param({page: codes[page]}, id=page, marks=pytest.mark.slow)
            for codes, pages in ((CODE, WITH_OTHERS), (WITH_MORE, WITH_MORE))
            for page in pages
        ),
    ],
)
def test_the_code_of_pages_runs_twice_and_prints_what_its_comments_say(codes, tmp_path):
    """Of those that need nothing else in one process, each in a folder of its own."""
    for module in modules_imported_in("\n".join(codes.values())):
        pytest.importorskip(module, reason=f"{module} is not installed (extra stores or examples)")
    # As in a notebook that is run again. Of zarr's faults, one is that of a process that begins.
    times = 1 if OF_ZARR in codes else 2
    arguments = json.dumps(codes), str(tmp_path), str(times)
    command = [sys.executable, "-W", "error", "-c", RUN, *arguments]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    comments = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
    printed = json.loads(run.stdout.splitlines()[-1])
    assert printed == {page: [comments.findall(code)] * times for page, code in codes.items()}


def test_the_page_on_partial_reads_shows_what_explain_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(blocks(READING, "python")[0], names)  # noqa: S102
    printed = str(zarr_bytes.explain(names["cube"], np.s_[7, :, 150]))
    shown = blocks(READING, "text")[0].replace("file:///data/cube.zarr", str(names["cube"].store))
    assert printed.split() == shown.split()


def test_the_examples_of_the_docstrings_hold():
    attempted = 0
    for module in pkgutil.walk_packages(zarr_bytes.__path__, "zarr_bytes."):
        if not module.name.endswith("__main__"):
            result = doctest.testmod(importlib.import_module(module.name))
            assert result.failed == 0, module.name
            attempted += result.attempted
    assert attempted > 10


def test_the_search_of_the_site_finds_an_identifier_by_its_parts():
    plugins = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["plugins"]
    separator = next(p["search"]["separator"] for p in plugins if "search" in p)
    for identifier, parts in (
        ("zarr_bytes.partial_reads", "zarr bytes partial reads"),
        ("BytesCodec(endian='big')", "Bytes Codec endian 'big'"),
        ("3.4.2", "3.4.2"),
    ):
        assert [part for part in re.split(separator, identifier) if part] == parts.split()


def survey(folder):
    """The store that the page about `check` shows."""
    shards = {"chunks": (50, 50), "shards": (200, 100)}
    for name, dtype, options in (
        ("flux", "f4", {"chunks": (100, 100), "compressors": None}),
        ("mask", "bool", {"chunks": (200, 100), "compressors": None}),
        ("weight", "f4", {"chunks": (200, 50), "compressors": None}),
        ("exposure", "i2", {}),
        ("spectra", "f4", {"compressors": None, **shards}),
    ):
        zarr.create_array(folder, name=name, shape=(200, 100), dtype=dtype, **options)[:] = 1
    os.truncate(folder / "flux/c/1/0", 30_000)
    os.truncate(folder / "spectra/c/0/0", 80_000)
    mask = bytearray((folder / "mask/c/0/0").read_bytes())
    mask[217] = 255
    (folder / "mask/c/0/0").write_bytes(mask)
    document = json.loads((folder / "weight/zarr.json").read_text())
    (folder / "weight/zarr.json").write_text(json.dumps(document | {"fill_value": "1.5"}))


SCREENS = [
    (page, screen)
    for page in PAGES
    for screen in blocks(page, "text")
    if "$ python -m zarr_bytes" in screen
]


@pytest.mark.skipif(zarr.__version__ < "3.4", reason="zarr names the codecs otherwise")
@pytest.mark.parametrize(("page", "screen"), SCREENS, ids=lambda text: text[:40])
def test_the_screens_of_commands_are_what_is_printed(page, screen, tmp_path):
    """Word by word: columns are as wide as the path of the environment, as in `status`."""
    survey(tmp_path / "survey.zarr")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ZARR_")}
    *exports, command = re.findall(r"^\$ (.*)", screen, re.MULTILINE)
    environment |= dict(line.removeprefix("export ").split("=") for line in exports)
    environment |= {"COLUMNS": "400" if "status" in command else "80", "LINES": "20"}
    called = [sys.executable, *command.split()[1:]]
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = words_of(done.stdout.replace(sys.prefix, "/opt/env"))
    shown = screen.rpartition(f"$ {command}\n")[2].split("\n...\n")
    first, last = words_of(shown[0]), words_of(shown[-1])
    assert found[: len(first)] == first
    assert found[-len(last) :] == last


def words_of(text):
    """The words of a screen, without its rules, and versions as they are on any machine."""
    return re.sub(r"\d+\.\d+\.\d+", "1.2.3", text).replace("─", "").split()
