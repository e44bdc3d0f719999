"""The patches for zarr: each applies, and changes what its case on the page prints."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

DOCS = Path(__file__).parents[1] / "docs/contributing"
PAGE = (DOCS / "what-zarr-could-change.md").read_text("utf-8")
(VERSION,) = re.findall(r"a patch against zarr ([\d.]*\d)", PAGE)
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PATCHES = {
    heading: re.search(r"\((zarr-patches/.*?\.patch)\).*?It prints `(.*?)` then", text, re.DOTALL)
    for heading, text in SECTIONS.items()
    if "zarr-patches/" in text
}


def test_every_patch_is_on_the_page():
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("zarr-patches/*")}
    assert files == {found[1] for found in PATCHES.values()}


def applied(folder, *options, patch):
    command = ["git", "apply", *options, DOCS / patch]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the installed zarr, as it lies in its source tree."""
    if not shutil.which("git"):
        pytest.skip("git applies the patches")
    folder = tmp_path_factory.mktemp("zarr")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(zarr.__file__).parent, folder / "src/zarr", ignore=ignored)
    return folder


if zarr.__version__ == VERSION:

    @pytest.mark.parametrize("heading", PATCHES)
    def test_each_patch_applies_alone(source, heading):
        assert applied(source, "--check", patch=PATCHES[heading][1]).stderr == ""

    @pytest.mark.slow
    def test_with_all_patches_every_case_prints_what_the_page_promises(source, tmp_path):
        shutil.copytree(source, tmp_path, dirs_exist_ok=True)
        for patch, _ in (found.groups() for found in PATCHES.values()):
            assert applied(tmp_path, patch=patch).returncode == 0
        first = f"import sys; sys.path.insert(0, {str(tmp_path / 'src')!r})\n"
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
        command = [sys.executable, "-W", "error", "-c", first + code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        unchanged = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)[len(PATCHES) :]
        promised = [prints for _, prints in (found.groups() for found in PATCHES.values())]
        assert done.stdout.splitlines() == promised + unchanged
