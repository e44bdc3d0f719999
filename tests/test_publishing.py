"""What publishing the package says in more than one place agrees, and nothing is checked twice."""

import re
import sys
import tomllib
from pathlib import Path

import yaml

from zarr_bytes.errors import HOW_TO_INSTALL

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CI = (ROOT / ".ci/run").read_text("utf-8")
TEXTS = {path.stem: path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml")}
ON_EVERY_SYSTEM = yaml.safe_load(TEXTS["tests"])["jobs"]["run"]


def load(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def commands(job):
    return [step["run"] for step in job.get("steps", []) if "run" in step]


def test_extras_bring_what_the_first_example_imports_and_an_error_tells_to_install():
    text = (ROOT / "examples/quickstart.py").read_text("utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    brought = {*PROJECT["optional-dependencies"]["quickstart"], "numpy", "zarr"}
    beside = {"gallery"}  # what the examples share
    assert imported - set(sys.stdlib_module_names) - beside == brought
    command = '".[quickstart]" && .venv/bin/python examples/quickstart.py'
    assert command in (ROOT / "README.md").read_text("utf-8")
    (requirement,) = PROJECT["optional-dependencies"]["ml"]
    assert HOW_TO_INSTALL["ml_dtypes"] == f'pip install "{requirement}"'


class TestWorkflows:
    def test_all_that_a_system_does_beside_installing_programs_is_to_run_what_runs_here(self):
        installs = re.compile(r"(sudo apt-get|brew) ")
        others = [c for c in commands(ON_EVERY_SYSTEM) if not installs.match(c)]
        assert others == ["bash .ci/run"]

    def test_every_python_that_the_package_names_is_tested_there_and_here(self):
        tested = ON_EVERY_SYSTEM["strategy"]["matrix"]["python"]
        named = [c.rpartition(" :: ")[2] for c in PROJECT["classifiers"]]
        assert {version for version in named if re.fullmatch(r"3\.\d+", version)} <= set(tested)
        assert PROJECT["requires-python"] == f">={tested[0]}"
        assert f'"${{CI_PYTHONS:-{" ".join(tested)}}}"' in CI

    def test_a_release_is_what_the_tests_built(self):
        jobs = yaml.safe_load(TEXTS["release"])["jobs"]
        assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
        assert "CI_KEEP" in CI
        for name in ("package", "site"):
            assert jobs[name]["needs"] == "tests"
            assert commands(jobs[name]) == []

    def test_actions_are_pinned_to_commits(self):
        used = re.findall(r"uses: (?!\./)(.*)", "\n".join(TEXTS.values()))
        assert len(used) > 5
        assert [use for use in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", use)] == []


def test_the_run_names_the_scripts_of_an_environment_as_windows_does_too():
    assert re.findall(r"\S*venv/bin/\S*", CI) == []


def test_pre_commit_calls_the_linters_as_the_run_does():
    (repository,) = load(".pre-commit-config.yaml")["repos"]
    linters = re.findall(r"lint-venv/\$bin/((?:ruff|mypy).*?)\"?\)?$", CI, re.MULTILINE)
    assert [hook["entry"] for hook in repository["hooks"]] == [c.replace('"', "") for c in linters]


def test_the_citation_and_the_conda_recipe_are_of_this_version_and_need_the_same():
    citation, recipe = load("CITATION.cff"), load(".ci/conda/recipe.yaml")
    version, changelog = PROJECT["version"], (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert citation["license"] == PROJECT["license"]
    assert citation["version"] == recipe["context"]["version"] == version
    released = re.search(rf"^## {re.escape(version)}\b.*(\d{{4}}-\d\d-\d\d)", changelog, re.M)
    assert str(citation.get("date-released")) == (released[1] if released else "None")
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    needed = [requirement.replace(" ", "") for requirement in recipe["requirements"]["run"][1:]]
    assert needed == PROJECT["dependencies"]
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
