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
PATCHES = {  # the file, and what its case prints then
    heading: re.search(r"\((zarr-patches/.*?\.patch)\).*?then prints `(.*?)`", text, re.DOTALL)
    for heading, text in SECTIONS.items()
    if "zarr-patches/" in text
}


def test_every_patch_is_on_the_page():
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("zarr-patches/*")}
    assert files == {found[1] for found in PATCHES.values()}


def said_of(folder, patch, *options):
    """What git says of a patch that does not apply."""
    command = ["git", "apply", *options, DOCS / patch]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr


if zarr.__version__ == VERSION:

    @pytest.mark.slow
    def test_each_patch_applies_and_with_all_every_case_prints_what_the_page_promises(tmp_path):
        """To a copy of the installed zarr, as it lies in its source tree."""
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(zarr.__file__).parent, tmp_path / "src/zarr", ignore=ignored)
        alone = {found[1]: said_of(tmp_path, found[1], "--check") for found in PATCHES.values()}
        assert set(alone.values()) == {""}, alone
        for found in PATCHES.values():
            assert said_of(tmp_path, found[1]) == ""
        first = f"import sys; sys.path.insert(0, {str(tmp_path / 'src')!r})\n"
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
        command = [sys.executable, "-W", "error", "-c", first + code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        unchanged = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)[len(PATCHES) :]
        assert done.stdout.splitlines() == [found[2] for found in PATCHES.values()] + unchanged
