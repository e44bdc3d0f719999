"""Names of code on the pages for contributors exist, so that a rename in `src` reaches them."""

import ast
import builtins
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from zarr_bytes.settings import SETTINGS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [DOCS / "contributing.md", DOCS / "how-it-works.md", *(DOCS / "contributing").glob("*.md")]
FOLDERS = [ROOT, ROOT / "src/zarr_bytes", ROOT / "tests"]

FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w./-]*/[\w./-]*|[\w-]+\.(?:md|py|svg|toml|cff|ya?ml)")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# What pages name of zarr and of other software, and no module of `src` or `tests` has as a name.
OF_OTHERS = {
    *("codec_pipeline.max_workers", "contents", "default_serializer_v3", "scale_offset"),
    *("FusedCodecPipeline", "monkeypatch", "transpose"),
    *("SupportsSetRange", "Store.get_many", "get_many"),  # proposed
    *("BSCALE", "BZERO", "CompImageHDU", "FixedScaleOffset"),
    *("gate", "mypy", "night", "pypi", "quick", "release.yml", ".hypothesis/examples"),
}


def targets_of(statement):
    """What a statement assigns to, if it is an assignment."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def names_in(body):
    """The names that statements of a module or class define, not those within its functions."""
    for statement in body:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name) for alias in statement.names)
        elif isinstance(statement, ast.If | ast.Try):
            yield from names_in([*statement.body, *statement.orelse])
        for target in targets_of(statement):
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def attributes_of(class_):
    """The methods and fields of a class, and what its methods assign to `self`."""
    yield from names_in(class_.body)
    for method in class_.body:
        if isinstance(method, FUNCTIONS):
            for node in ast.walk(method):
                for target in targets_of(node):
                    yield from assigned_to_self(target)


def assigned_to_self(target):
    """`x` and `y` of `self.x, self.y`."""
    elements = target.elts if isinstance(target, ast.Tuple) else [target]
    for element in elements:
        if isinstance(element, ast.Attribute) and ast.unparse(element.value) == "self":
            yield element.attr


class Code:
    """The names that modules define: of each module, of each class, and of parameters."""

    def __init__(self, files):
        self.modules, self.attributes, self.bases = {}, {}, {}
        self.parameters = set()
        for module, text in files.items():
            tree = ast.parse(text)
            self.modules[module] = set(names_in(tree.body))
            if module in TESTS:
                continue  # of tests, pages name modules, functions and classes alone
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.attributes.setdefault(node.name, set()).update(attributes_of(node))
                    self.bases[node.name] = [ast.unparse(base) for base in node.bases]
                elif isinstance(node, ast.arg):
                    self.parameters.add(node.arg)

    def attributes_with_bases(self, name):
        """The attributes of a class and of the classes that it derives from."""
        bases = [base for base in self.bases.get(name, ()) if base != name]
        return self.attributes.get(name, set()).union(*map(self.attributes_with_bases, bases))

    def has(self, name):
        """Whether this is a module, a name in one, `Class.attribute`, or an attribute alone."""
        parts = name.split(".")
        if len(parts) == 1 and (
            name in self.parameters or any(name in names for names in self.attributes.values())
        ):
            return True
        return any(
            self.defines(module, parts[i:])
            for i in range(len(parts) + 1)
            for module in self.modules
            if i == 0 or module.split(".")[-i:] == parts[:i]
        )

    def defines(self, module, parts):
        """Whether a module has a name, a class with an attribute, or is what is named itself."""
        if not parts:
            return True
        first, *rest = parts
        if first not in self.modules[module]:
            return False
        return not rest or (len(rest) == 1 and rest[0] in self.attributes_with_bases(first))


def module_of(path, folder):
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SRC = {module_of(path, ROOT / "src"): path.read_text("utf-8") for path in ROOT.glob("src/**/*.py")}
TESTS = {
    module_of(path, ROOT / "tests"): path.read_text("utf-8") for path in ROOT.glob("tests/**/*.py")
}
PACKAGES = {module.split(".")[1] for module in SRC if "." in module}


@cache
def code():
    return Code(SRC | TESTS)


def names_of(text):
    """Paths, identifiers and keywords in backticks; commands and other code give none."""
    for code in IN_BACKTICKS.findall(FENCED.sub("", text)):
        if PATH.fullmatch(code):
            yield code
            continue
        try:
            tree = ast.parse(code, mode="eval").body
        except SyntaxError:
            continue
        if not isinstance(tree, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            continue  # such as `date-released`
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
                yield ast.unparse(node)
            elif isinstance(node, ast.keyword) and node.arg:
                yield node.arg


def exists(name):
    if any((folder / name).exists() for folder in FOLDERS):
        return True
    first, *more = name.split(".")
    is_python = not more and first in dir(builtins)
    # But `io`, which is a package here, too.
    is_python |= first in sys.stdlib_module_names and first not in PACKAGES
    is_of_others = name in OF_OTHERS or name.startswith(("zarr.", "np."))
    # A page of tests names `tests/test_model.py` by `model`.
    is_test = f"test_{name}" in TESTS
    return is_python or is_of_others or is_test or name in SETTINGS or code().has(name)


def missing_names(text):
    return sorted({name for name in names_of(text) if not exists(name)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_of_code_on_a_page_for_contributors_exists(page):
    assert missing_names(page.read_text("utf-8")) == [], f"rename or remove these in {page}"


@pytest.mark.parametrize(
    "name",
    [
        "plain_chain",
        "Format",
        "Driver.requests",
        "ObjectLayout.formats",
        "layout.format",
        "layout.objects.Format",
        "io.drivers.Plan",
        "Limits(largest_block=1)",
        "plan_of.layout",
        "zarr_bytes.no_setting",
        "src/zarr_bytes/layout/format.py",
        "layout/format.py",
    ],
)
def test_a_name_that_is_gone_is_found(name):
    assert missing_names(f"The function `{name}` does it.")


@pytest.mark.parametrize(
    "name",
    [
        "plan_of",
        "ObjectLayout",
        "BatchedBytesPipeline.plans",
        "ShardIndex.share_no_bytes_with_others",
        "FileDriver.request_cost_or_none_if_partial_reads_are_off",
        "indexing.plan",
        "zarr_bytes.indexing.plan.Plan.fetches",
        "Limits(mapped_ranges=1)",
        "zarr_bytes.partial_writes",
        "layout/objects.py",
        "tests/run_mistakes.py",
        "pytest -n logical",
    ],
)
def test_a_name_that_is_there_is_permitted(name):
    assert missing_names(f"The function `{name}` does it.") == []
