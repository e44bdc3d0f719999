"""Files of the repository in the site: the pages link to them by their place beside `docs`.

A link such as ``../tests/test_check.py`` works where the pages are read in the repository. For the
site, every file that is linked becomes a page (sources, other documents) or is copied (pictures),
and a link whose text is the name of a test leads to its line.

For narrow screens, identifiers may break after ``_`` and ``.``, and the cells of a table name their
column, so that its rows can be stacked.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = "repository"  # of the site, for what lies outside docs
PICTURES = (".png", ".svg")
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml"}
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")

TEST_LINK = re.compile(
    r'<a href="(?P<target>[^"]*?repository/(?P<path>[^"]*/test_\w+\.py)\.html)">'
    r"(?P<name>(?:Test\w+::)?test_\w+)</a>"
)

CODE = re.compile(r"<pre\b.*?</pre>|(<code\b[^>]*>)(.*?)(</code>)", re.DOTALL)
BREAK = re.compile(r"(?<=[\w)])(?:::|[_/]|\.(?!\d))(?=[\w(*])(?![^<]*>)")
TABLE = re.compile(r"<table\b(?! class=\"highlighttable)[^>]*>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)

DEFINITION = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to, and those that these link to."""
    waiting = [
        (f"docs/{page.src_uri}", page.content_string) for page in files.documentation_pages()
    ]
    while waiting:
        source, text = waiting.pop()
        for path in _outside(source, text):
            uri = _site_uri(path)
            if uri in files.src_uris:
                continue
            if not (ROOT / path).is_file():
                raise PluginError(f"{source} links to {path}, which is no file of the repository")
            if path.endswith(PICTURES):
                added = File.generated(config, uri, abs_src_path=str(ROOT / path))
            else:
                added = File.generated(config, uri, content=_page_of(path))
                if path.endswith(".md"):
                    waiting.append((path, (ROOT / path).read_text()))
            added.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links out of `docs` to the pages that `on_files` has added."""
    uri = page.file.src_uri
    source = uri.removeprefix(f"{FOLDER}/") if uri.startswith(f"{FOLDER}/") else f"docs/{uri}"
    if not (ROOT / source).is_file():
        return markdown  # the text of a source

    def rewritten(link: re.Match[str]) -> str:
        path = _path_of(source, link["target"])
        target = path.removeprefix("docs/") if path.startswith("docs/") else _site_uri(path)
        target = posixpath.relpath(target, posixpath.dirname(uri) or ".")
        return f"[{link['text']}]({target}{link['anchor'] or ''})"

    return LINK.sub(rewritten, markdown)


def on_page_content(content: str, **_: object) -> str:
    """Lead links whose text is the name of a test to its line.

    The lines get their anchors after mkdocs has looked for them, so that this is done on HTML.
    """

    def rewritten(link: re.Match[str]) -> str:
        line = _line_of(link["path"], link["name"])
        return f'<a href="{link["target"]}#__codelineno-0-{line}"><code>{link["name"]}</code></a>'

    return TEST_LINK.sub(rewritten, content)


def on_post_page(output: str, **_: object) -> str:
    """Fit identifiers and tables to narrow screens, after the search has taken their text."""
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


def _outside(source: str, text: str) -> Iterator[str]:
    """Paths of the files outside `docs` that a page links to, from the root of the repository."""
    for link in LINK.finditer(text):
        path = _path_of(source, link["target"])
        if not path.startswith("docs/"):
            yield path


def _path_of(source: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _site_uri(path: str) -> str:
    return f"{FOLDER}/{path}" + ("" if path.endswith((*PICTURES, ".md")) else ".md")


def _page_of(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "text" if "." in Path(path).name[1:] else "sh")
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# {path}\n\n"
    return f'{head}````{{ .{language} linenums="1" }}\n{text.rstrip()}\n````\n'


def _line_of(path: str, name: str) -> int:
    """Line where the test `name` (``Class::test`` or ``test``) begins."""
    line, body = 1, ast.parse((ROOT / path).read_text()).body
    for part in name.split("::"):
        node = next((n for n in body if isinstance(n, DEFINITION) and n.name == part), None)
        if node is None:
            raise PluginError(f"{path} has no test {name}")
        line, body = node.lineno, node.body
    return line
