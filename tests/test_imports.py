"""The modules of the package import each other in no circle, for types included."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import zarr_bytes

SRC = Path(__file__).parents[1] / "src"
MODULES = {
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SRC.rglob("*.py")
}
WITHIN_FUNCTIONS = {
    # zarr imports the codecs and the pipeline in every process, also where nothing is read.
    ("zarr_bytes.codec", "zarr_bytes.read"),
    ("zarr_bytes.pipeline", "zarr_bytes.read"),
    ("zarr_bytes.pipeline", "zarr_bytes.read_many"),
    ("zarr_bytes.pipeline", "zarr_bytes.read_references"),
    ("zarr_bytes.pipeline", "zarr_bytes.write"),
    ("zarr_bytes.codec", "zarr_bytes.indexing.plan_cache"),
    ("zarr_bytes.pipeline", "zarr_bytes.indexing.plan_cache"),
    ("zarr_bytes.codec", "zarr_bytes.io.drivers"),
    ("zarr_bytes.pipeline", "zarr_bytes.io.drivers"),
    ("zarr_bytes.codec", "zarr_bytes.layout.objects"),
    ("zarr_bytes.chains", "zarr_bytes.layout.objects"),
    # Which imports another module of `data_type`, and with it all of them.
    ("zarr_bytes.data_type.core", "zarr_bytes.layout.elements"),
}


def imports_in(node, *, is_within=False):
    """Each imported module of the package, and whether it is imported within a function."""
    for child in ast.iter_child_nodes(node):
        names = []
        if isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            names = [name if name in MODULES else child.module for name in names]
        elif isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        yield from ((name, is_within) for name in names if name in MODULES)
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from imports_in(child, is_within=is_within or function)


def all_imports(*, within_functions):
    """The pairs of a module and one that it imports, within functions or outside of them."""
    return {
        (name, imported)
        for name, path in MODULES.items()
        for imported, is_within in imports_in(ast.parse(path.read_text()))
        if is_within is within_functions
    }


def test_no_modules_import_each_other_in_a_circle_and_a_circle_for_types_is_seen():
    """`plan` imports `format` for the types of annotations alone."""
    plan, layout = "zarr_bytes.indexing.plan", "zarr_bytes.layout.objects"
    whole = all_imports(within_functions=False)
    assert (plan, layout) in whole
    graph = {name: [i for n, i in whole if n == name] for name in MODULES}
    TopologicalSorter(graph).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter({**graph, layout: [plan]}).prepare()


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'zarr_bytes' has no attribute 'views_of'"):
        zarr_bytes.views_of  # noqa: B018


def test_the_imports_within_functions_are_those_with_a_reason():
    assert all_imports(within_functions=True) == WITHIN_FUNCTIONS
