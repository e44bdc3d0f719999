"""Files of the repository in the site: the pages link to them by their place beside `docs`.

A link such as ``../tests/test_check.py`` works where the pages are read in the repository. In the
site, it leads to the file at the forge, and a link whose text is the name of a test to its line.
The page of examples, which lies beside the scripts, and pictures become files of the site.

For narrow screens, identifiers may break after ``_`` and ``.``, and the cells of a table name their
column, so that its rows can be stacked.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = "repository"  # of the site, for what lies outside docs
EXAMPLES = "examples/README.md"
PICTURES = (".png", ".svg")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
IS_TEST = re.compile(r"`?(?:Test\w+::)?test_\w+`?")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REPOSITORY = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
FORGE = f"{REPOSITORY}/blob/v{PROJECT['project']['version']}"

CODE = re.compile(r"<pre\b.*?</pre>|(<code\b[^>]*>)(.*?)(</code>)", re.DOTALL)
BREAK = re.compile(r"(?<=[\w)])(?:::|[_/]|\.(?!\d))(?=[\w(*])(?![^<]*>)")
TABLE = re.compile(r"<table\b(?! class=\"highlighttable)[^>]*>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)

GUIDE = re.compile(r'id="__nav_2"(?! checked)')  # the first group of the navigation

DEFINITION = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link every page to the repository, whose address is in pyproject.toml alone.

    By the theme's links in the footer: its ``repo_url`` would ask the forge for stars and forks.
    """
    link = {"icon": "fontawesome/brands/git-alt", "link": REPOSITORY, "name": "Repository"}
    config.extra["social"] = [link]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of examples, and the pictures outside of `docs` that pages show."""
    text = (ROOT / EXAMPLES).read_text("utf-8")
    files.append(File.generated(config, f"{FOLDER}/{EXAMPLES}", content=text))
    for page in list(files.documentation_pages()):
        for link in LINK.finditer(page.content_string):
            path = _path_of(_source_of(page), link["target"])
            uri = f"{FOLDER}/{path}"
            if path.startswith("docs/") or not path.endswith(PICTURES) or uri in files.src_uris:
                continue
            added = File.generated(config, uri, abs_src_path=str(ROOT / path))
            added.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links out of `docs` to the site or to the forge."""
    source = _source_of(page.file)

    def rewritten(link: re.Match[str]) -> str:
        path, anchor = _path_of(source, link["target"]), link["anchor"] or ""
        if path.startswith("docs/") or path.endswith(PICTURES) or path == EXAMPLES:
            uri = path.removeprefix("docs/") if path.startswith("docs/") else f"{FOLDER}/{path}"
            target = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
            return f"[{link['text']}]({target}{anchor})"
        if not (ROOT / path).exists():
            raise PluginError(f"{source} links to {path}, which is not in the repository")
        text = link["text"]
        if IS_TEST.fullmatch(text):
            text = f"`{text.strip('`')}`"
            anchor = f"#L{_line_of(path, text.strip('`'))}"
        return f"[{text}]({FORGE}/{path}{anchor})"

    return LINK.sub(rewritten, markdown)


def on_post_page(output: str, **_: object) -> str:
    """Open the guide in the navigation, and fit identifiers and tables to narrow screens.

    After the search has taken their text.
    """
    output = GUIDE.sub(r"\g<0> checked", output)
    return TABLE.sub(_labelled, CODE.sub(_breakable, output))


def _breakable(code: re.Match[str]) -> str:
    if code[1] is None:  # a block, which scrolls
        return code[0]
    return code[1] + BREAK.sub(lambda sign: f"{sign[0]}<wbr>", code[2]) + code[3]


def _labelled(table: re.Match[str]) -> str:
    """The table, each cell with the heading of its column."""
    headings = [
        html.escape(html.unescape(re.sub(r"<.*?>", "", heading)))
        for heading in HEADING.findall(table[0])
    ]

    def labelled(row: re.Match[str]) -> str:
        labels = iter(headings)
        return re.sub("<td", lambda cell: f'{cell[0]} data-label="{next(labels)}"', row[0])

    return re.sub(r"<tr\b.*?</tr>", labelled, table[0], flags=re.DOTALL)


def _source_of(file: File) -> str:
    """Path of a page, from the root of the repository."""
    uri = file.src_uri
    return uri.removeprefix(f"{FOLDER}/") if uri.startswith(f"{FOLDER}/") else f"docs/{uri}"


def _path_of(source: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


@cache
def _parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


def _line_of(path: str, name: str) -> int:
    """Line where the test `name` (``Class::test`` or ``test``) begins."""
    line, body = 1, _parsed(path).body
    for part in name.split("::"):
        node = next((n for n in body if isinstance(n, DEFINITION) and n.name == part), None)
        if node is None:
            raise PluginError(f"{path} has no test {name}")
        line, body = node.lineno, node.body
    return line
