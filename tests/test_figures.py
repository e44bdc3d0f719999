"""The figures of the gallery and of the page of cases are those that were measured."""

import json
import re
import struct
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GALLERY = (EXAMPLES / "README.md").read_text("utf-8")
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import gallery

    yield gallery
    del sys.modules["gallery"]


def texts_of(picture):
    """What a PNG says of itself, by its keywords."""
    content, place, texts = picture.read_bytes(), 8, {}
    while place < len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        if kind == b"tEXt":
            keyword, _, text = content[place + 8 : place + 8 + length].partition(b"\0")
            texts[keyword.decode("latin-1")] = text.decode("latin-1")
        place += length + 12
    return texts


def table_of(name, page):
    """The table of an example in a page."""
    return re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)[1]


def figures_of(name):
    return json.loads(texts_of(EXAMPLES / f"pictures/{name}.png")["Figures"])


def test_the_gallery_shows_each_picture_with_its_figures_and_the_command_that_draws_it(gallery):
    assert sorted(path.stem for path in (EXAMPLES / "pictures").iterdir()) == NAMES
    for name in NAMES:
        assert table_of(name, GALLERY) == gallery.as_markdown(figures_of(name))
        assert f"](pictures/{name}.png)" in GALLERY
        assert f"python examples/{name}.py\n" in GALLERY


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_figures_of_a_front_page_are_those_of_an_example(gallery, page):
    found = table_of(gallery.HEADLINE, (ROOT / page).read_text("utf-8"))
    assert found == gallery.as_headline(figures_of(gallery.HEADLINE))


def test_the_page_of_cases_and_the_readme_have_the_figures_that_were_measured():
    import cases

    measured = json.loads(cases.FIGURES.read_text("utf-8"))
    for path, table in ((cases.PAGE, cases.table), (cases.README, cases.table_in_readme)):
        page = path.read_text("utf-8").partition(cases.BEGIN)[2].partition(cases.END)[0]
        assert page == table(measured)
        assert "not measured" not in page


PAGES = [ROOT / "README.md", EXAMPLES / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def test_each_block_that_a_command_writes_has_been_written():
    block = re.compile(r"<!-- [^>]+ -->\n(.*?)<!-- end -->", re.DOTALL)
    blocks = [
        (path.name, text) for path in PAGES for text in block.findall(path.read_text("utf-8"))
    ]
    assert len(blocks) > len(NAMES)
    assert not [name for name, found in blocks if not found.strip()]
