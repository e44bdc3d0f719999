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

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
IS_TEST = re.compile(r"`?((?:Test\w+::)?test_\w+)`?")
TRUST = [
    "What is checked when you read",
    "What somebody who controls a store can do",
    "What the system around it can do",
]
EVERY_SENTENCE = SPECIFICATION, "Every sentence"


def names_of_tests(path):
    """``test`` and ``Class::test`` of a file, without importing it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{test.name}" for test in node.body if is_test(test))
        elif is_test(node):
            yield node.name


def is_test(node):
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def rows_of(text):
    """The rows of the one table in a text, as lists of cells."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def modules_imported_in(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


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


@pytest.mark.parametrize(("page", "heading"), [*((CHECKING, h) for h in TRUST), EVERY_SENTENCE])
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


HIDDEN = re.compile(r"\A---\n.*?^---\n|^ *```.*?^ *```|<!--.*?-->", re.MULTILINE | re.DOTALL)


def test_the_pages_are_at_most_25_with_16000_words_and_a_readme_of_110_lines():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    paths = [path.removeprefix("repository/") for path in re.findall(r": (\S+\.md)$", nav, re.M)]
    pages = [path if path.startswith("examples/") else f"docs/{path}" for path in paths]
    assert len(pages) <= 25
    assert {page for page in PAGES if page.startswith("docs/")} <= set(pages)
    texts = [LINK.sub(r"\1", HIDDEN.sub("", (ROOT / page).read_text())) for page in pages]
    assert len(re.findall(r"\S*\w\S*", "\n".join(texts))) <= 16_000
    assert len(PAGES["README.md"].splitlines()) <= 110


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_to_exists(page):
    targets = [target.partition("#")[0] for _, target in LINK.findall(PAGES[page])]
    paths = [target for target in targets if target and "://" not in target]
    assert [path for path in paths if not ((ROOT / page).parent / path).is_file()] == []


# What the newest zarr does, older ones do otherwise.
OF_ZARR = "docs/contributing/what-zarr-could-change.md"
CODE = {
    page: "\n".join(blocks(page, "python"))
    for page in PAGES
    if blocks(page, "python") and (page != OF_ZARR or zarr.__version__ >= "3.4")
}
NEEDS = {
    page: {module.partition(".")[0] for module in modules_imported_in(code)}
    for page, code in CODE.items()
}
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
    zarr.config.refresh()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
    printed[page] = output.getvalue().splitlines()
print(json.dumps(printed), flush=True)
# Its threads of Rust outlive the interpreter: with Python 3.13.0 one of twelve such processes is
# killed by a segmentation fault once its code is done.
if "icechunk" in sys.modules:
    os._exit(0)
"""


@pytest.mark.parametrize(
    "pages",
    [
        TOGETHER,
        *([page] for page in CODE if page == OF_ZARR),
        *(pytest.param([page], marks=pytest.mark.slow) for page in WITH_OTHERS),
    ],
    ids=lambda pages: pages[-1],
)
def test_the_code_of_pages_runs_and_prints_what_its_comments_say(pages, tmp_path):
    """Of those that need nothing else in one process, each in a folder of its own."""
    check({page: CODE[page] for page in pages}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_MORE)
def test_the_code_of_pages_runs_with_the_blocks_that_need_more(page, tmp_path):
    check({page: WITH_MORE[page]}, tmp_path)


def check(codes, tmp_path):
    for module in {
        name.partition(".")[0] for c in codes.values() for name in modules_imported_in(c)
    }:
        pytest.importorskip(module, reason=f"{module} is not installed (extra stores or examples)")
    code = json.dumps(codes)
    command = [sys.executable, "-W", "error", "-c", RUN, code, str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    comments = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
    printed = json.loads(run.stdout.splitlines()[-1])
    assert printed == {page: comments.findall(code) for page, code in codes.items()}


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
    options = {"shape": (200, 100), "compressors": None}
    for name, chunks, dtype in (
        ("flux", (100, 100), "f4"),
        ("mask", (200, 100), "bool"),
        ("weight", (200, 50), "f4"),
    ):
        zarr.create_array(folder, name=name, chunks=chunks, dtype=dtype, **options)[:] = 1
    packed = zarr.create_array(folder, name="exposure", shape=(200, 100), dtype="i2")
    shards = {"chunks": (50, 50), "shards": (200, 100)}
    spectra = zarr.create_array(folder, name="spectra", dtype="f4", **options, **shards)
    packed[:], spectra[:] = 1, 1
    os.truncate(folder / "flux/c/1/0", 30_000)
    with (folder / "mask/c/0/0").open("r+b") as file:
        file.seek(217)
        file.write(b"\xff")
    os.truncate(folder / "spectra/c/0/0", 80_000)
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
    columns = "400" if "status" in command else "80"
    printed = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=tmp_path,
        env=environment | {"COLUMNS": columns, "LINES": "20"},
        capture_output=True,
        text=True,
    ).stdout
    printed = printed.replace(sys.prefix, "/opt/env")
    shown = screen.rpartition(f"$ {command}\n")[2]
    words = [_words(text) for text in (printed, *shown.split("\n...\n"))]
    first, *_ = parts = words[1:]
    assert words[0][: len(first)] == first
    assert words[0][-len(parts[-1]) :] == parts[-1]


def _words(text):
    """The words of a screen, without its rules, and versions as they are on any machine."""
    return re.sub(r"\d+\.\d+\.\d+", "1.2.3", text).replace("─", "").split()
