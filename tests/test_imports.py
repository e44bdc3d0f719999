"""The modules of the package import each other in no circle, for types included."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
MODULES = {
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SRC.rglob("*.py")
}
WITHIN_FUNCTIONS = {
    # zarr imports the codecs and the pipeline in every process, also where nothing is read.
    ("zarr_bytes.codec", "zarr_bytes.read"),
    ("zarr_bytes.pipeline", "zarr_bytes.read"),
    ("zarr_bytes.pipeline", "zarr_bytes.write"),
    ("zarr_bytes.codec", "zarr_bytes.layout.format"),
    ("zarr_bytes.chains", "zarr_bytes.layout.format"),
}


def imports_in(node, *, is_within=False):
    """Each imported module of the package, and whether it is imported within a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from ((n if n in MODULES else child.module, is_within) for n in names)
        elif isinstance(child, ast.Import):
            yield from ((alias.name, is_within) for alias in child.names)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports_in(child, is_within=is_within or function)


IMPORTS = {
    (name, imported, is_within)
    for name, path in MODULES.items()
    for imported, is_within in imports_in(ast.parse(path.read_text()))
    if imported in MODULES
}
WHOLE = {(name, imported) for name, imported, is_within in IMPORTS if not is_within}


def test_no_modules_import_each_other_in_a_circle_and_a_circle_for_types_is_seen():
    """`plan` imports `format` for the types of annotations alone."""
    plan, layout = "zarr_bytes.indexing.plan", "zarr_bytes.layout.format"
    assert (plan, layout) in WHOLE
    graph = TopologicalSorter()
    for name, imported in WHOLE:
        graph.add(name, imported)
    graph.prepare()
    with pytest.raises(CycleError):
        TopologicalSorter({layout: [plan], plan: [i for n, i in WHOLE if n == plan]}).prepare()


def test_the_imports_within_functions_are_those_with_a_reason():
    assert {(n, imported) for n, imported, is_within in IMPORTS if is_within} == WITHIN_FUNCTIONS
