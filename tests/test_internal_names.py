"""What tests know of the inside of the package: the names that a page lists, and no others.

A function in `src` that is not on the list can be renamed without a change of any test.
"""

import ast
import importlib
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path

import system_calls

import zarr_bytes

TESTS = Path(__file__).parent
SRC = TESTS.parent / "src"
PAGE = TESTS.parent / "docs/contributing/tests.md"
ROWS = re.compile(r"^\| `(zarr_bytes[.\w]*)` \| (`.*`) \|", re.MULTILINE)
OF_MODULES = ("setattr", "getattr", "hasattr", "delattr")
FILES = {*TESTS.glob("*.py"), *TESTS.glob("benchmarks/*.py")} - {Path(__file__)}


def is_module(name):
    """Whether this is the whole name of a module of the package."""
    path = SRC / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@cache
def split(name):
    """A dotted name as that of a module and that of something in it, which may be empty."""
    parts, rest = name.split("."), []
    while parts and not is_module(".".join(parts)):
        rest.insert(0, parts.pop())
    return ".".join(parts), rest[0] if rest else ""


def called_in(node):
    """The name of the function or method that is called, without what is before it; or empty."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


class Names(ast.NodeVisitor):
    """The names of the package that a program uses, as pairs of a module and a name in it."""

    def __init__(self, code):
        self.used, self.modules = set(), {}  # modules by the names that they have in the program
        self.visit(ast.parse(code))

    def use(self, name):
        module, inside = split(name)
        if module and inside:
            self.used.add((module, inside))

    def visit_Import(self, node):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self.modules[alias.asname or first] = alias.name if alias.asname else first

    def visit_ImportFrom(self, node):
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            self.modules[alias.asname or alias.name] = name
            self.use(name)

    def visit_Assign(self, node):
        """Of ``module = import_module("zarr_bytes...")``."""
        if called_in(node.value) == "import_module":
            self.modules[ast.unparse(node.targets[0])] = ast.literal_eval(node.value.args[0])
        self.generic_visit(node)

    def dotted(self, node):
        """The whole name of an expression such as ``module.name``, or None."""
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return before and f"{before}.{node.attr}"
        return self.modules.get(node.id) if isinstance(node, ast.Name) else None

    def visit_Attribute(self, node):
        if name := self.dotted(node):
            self.use(name)
        self.generic_visit(node)

    def visit_Call(self, node):
        """Of ``setattr(module, "name", ...)`` and others that have a name as a text."""
        if called_in(node) in OF_MODULES and len(node.args) > 1:
            module, name = self.dotted(node.args[0]), node.args[1]
            if module and isinstance(name, ast.Constant):
                self.use(f"{module}.{name.value}")
        self.generic_visit(node)

    def visit_Constant(self, node):
        """Of a text that is a whole name, or a program."""
        if not isinstance(node.value, str) or "zarr_bytes" not in node.value:
            return
        if re.fullmatch(r"zarr_bytes(\.\w+)+", node.value):
            module, inside = split(node.value)
            if hasattr(importlib.import_module(module), inside):  # else a setting, perhaps
                self.use(node.value)
        elif "import" in node.value:
            try:
                self.used |= Names(node.value).used
            except SyntaxError:  # no program
                return


def used_by_tests():
    """The internal names that tests use, and the files that do."""
    found = {}
    for path in FILES:
        for module, name in Names(path.read_text("utf-8")).used:
            is_public = module == "zarr_bytes" or module.endswith("__main__")
            if not is_public and not re.fullmatch("__.*__", name):
                found.setdefault((module, name), set()).add(path.name)
    return found


def allowed():
    """The internal names that the page lists."""
    rows = ROWS.findall(PAGE.read_text("utf-8"))
    return {(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)}


def private_names_of_the_package():
    """Names with one underscore that modules, classes and functions of `src` define."""
    names = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in names if re.match("_[^_]", name)}


OF_OTHERS = {
    # What zarr calls of a codec and a data type, and what its `WrapperStore` has.
    *("_decode_partial_single", "_decode_single", "_decode_sync"),
    *("_encode_partial_single", "_encode_single", "_encode_sync"),
    *("_store", "_zarr_v3_name"),
    "_replace",  # of a named tuple
}


def test_an_internal_name_is_found_in_every_kind_of_use():
    code = """
from zarr_bytes import settings, view
from zarr_bytes.io.locks import lock_if_supported as held
import zarr_bytes.io.files as files
patch.setattr(settings, "DEFAULTS", 1)
patch.setattr("zarr_bytes.io.locks.sleep", 1)
files._pread_once
zarr.config.set({"zarr_bytes.gap": 1})
run("from zarr_bytes.io.tasks import map_concurrently")
"""
    io = [
        ("files", "_pread_once"),
        ("locks", "lock_if_supported"),
        ("locks", "sleep"),
        ("tasks", "map_concurrently"),
    ]
    expected = {(f"zarr_bytes.io.{module}", name) for module, name in io}
    expected |= {("zarr_bytes", "view"), ("zarr_bytes.settings", "DEFAULTS")}
    assert Names(code).used == expected


def test_the_internal_names_that_tests_use_are_those_of_the_page():
    used = used_by_tests()
    missing = {key: sorted(used[key]) for key in used.keys() - allowed()}
    assert not missing, f"use public names, or add these to the list of {PAGE.name}"
    unused = allowed() - used.keys()
    assert not unused, f"no test uses these names: take them from the list of {PAGE.name}"


def test_the_names_of_the_page_exist():
    """One that has been renamed in `src` is renamed on the page and in the tests, too."""
    missing = [
        f"{module}.{name}"
        for module, name in sorted(allowed())
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == [], f"rename these in the tests and in {PAGE.name}"


def test_no_test_uses_a_private_name_of_the_package():
    private = private_names_of_the_package() - OF_OTHERS
    found = []
    for path in FILES:
        text = path.read_text("utf-8")
        private_here = private - set(re.findall(r"self\.(_\w+)\b", text))  # but its own
        if private_here.isdisjoint(re.findall(r"\.\s*(_\w+)", text)):
            continue  # nothing to look for in its syntax tree, which takes time
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in private_here:
                found += [f"{path.name}:{node.lineno} {ast.unparse(node)}"]
    assert found == []


def test_system_calls_are_made_where_tests_can_replace_them():
    """As attributes of `os` and others: a module that kept one would not be seen to call it."""
    for module in pkgutil.walk_packages(zarr_bytes.__path__, "zarr_bytes."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    calls = [
        (system_calls.module_of(name), getattr(system_calls.module_of(name), name, None))
        for name in system_calls.EVERY_CALL
    ]
    kept = [
        f"{name}.{variable}"
        for name, module in sys.modules.items()
        if name.startswith("zarr_bytes")
        for variable, value in vars(module).items()
        if any(value is call and module is not home for home, call in calls if call)
    ]
    assert kept == []
