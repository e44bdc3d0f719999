"""macOS and Windows, as far as Linux can show them: without the calls and names that they lack.

Each is a process of its own, from which they are taken before the package is imported, and which
cannot open `/proc`. What it must do is the same as here.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from other_systems import LACKING
from stored_arrays import CAN_WRITE_IN_PLACE, numbers, stored
from zarr.storage import LocalStore

from zarr_bytes import ChunkFileError

VALUES = numbers((400, 500), "i4")


@pytest.fixture
def array(tmp_path):
    """Of one chunk of 800 kB, that is read by a thread."""
    return stored(LocalStore(tmp_path), VALUES, in_place=True)


@pytest.fixture
def chunk(tmp_path):
    return tmp_path / "c/0/0"


def test_a_chunk_is_changed_in_place_only_where_that_is_safe(array, chunk):
    with chunk.open("rb"):  # its number is not given to another file
        before = chunk.stat().st_ino
        array[3] = 7
        assert (chunk.stat().st_ino == before) is CAN_WRITE_IN_PLACE
    assert np.array_equal(array[2:5, 9], [1009, 7, 2009])


def test_a_symbolic_link_is_replaced_and_what_it_leads_to_is_not_changed(array, chunk, tmp_path):
    before, elsewhere = chunk.read_bytes(), chunk.rename(tmp_path / "elsewhere")
    chunk.symlink_to(elsewhere)
    array[3] = 7
    assert elsewhere.read_bytes() == before
    assert (array[3] == 7).all()


def test_a_folder_in_the_place_of_a_chunk_is_an_error(array, chunk):
    chunk.unlink()
    chunk.mkdir()
    for selection in np.s_[...], 3:
        with pytest.raises(ChunkFileError, match="is a folder"):
            array[selection]


@pytest.mark.slow
@pytest.mark.parametrize("system", LACKING)
def test_every_behaviour_holds_without_what_a_system_lacks(tmp_path, system):
    here = Path(__file__)
    names = ("test_model.py", "test_damaged.py", "test_references.py")
    tests = [*map(here.with_name, names), here]
    others = "not no_store_holds"  # Linux does not seek as far as Windows does
    command = [sys.executable, here.with_name("other_systems.py"), system, "-k", others, *tests]
    command.append(f"--basetemp={tmp_path / 'others'}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
