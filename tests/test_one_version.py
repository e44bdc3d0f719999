"""An error is made of what has been read of a file: it is opened once, and no byte is read again.

`test_cost.py` has reads without errors, and `test_meanwhile.py` files that others replace at any
moment: a result has each chunk in one version.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import zarr
from fuzz import settings_of, store_with, thresholds
from fuzz_arrays import arrays, selections
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from stored_arrays import PLAIN_ZARR
from system_calls import NEVER, watched

from zarr_bytes import BoolValueError, ChunkFileError, ChunkSizeError, limits

PIPELINE = "codec_pipeline.path"


def outcome(folder, read, array, **faults):
    """What a read gives, elements or an error; and the files that it reads."""
    with watched(folder, **faults) as files:
        try:
            found = np.asarray(read(array)).tobytes()
        except (ChunkSizeError, ChunkFileError, BoolValueError) as error:
            found = type(error), str(error)
    return found, files


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv")
@pytest.mark.filterwarnings("ignore:The data type")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_error_takes_no_second_reading(tmp_path_factory, pipeline, data):
    """It has the words that it has in zarr's batched pipeline.

    Zarr's pipelines let the store read transposed chunks; here there are none.
    """
    folder, example = tmp_path_factory.mktemp("a"), replace(data.draw(arrays(1)), orders=[])
    store = store_with("local", example.objects(example.values()), folder)
    selection = data.draw(selections(example.shape, example.chunk_shape))
    numbers = np.unique(selection.take(example.numbers_of_chunks())).tolist()
    assume(numbers)
    key = example.keys[data.draw(st.sampled_from(numbers))]
    content = (folder / key).read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    damaged = {"truncated": content[:place], "too long": content + b"xyz", "folder": None}
    if example.name == "bool":
        damaged["neither 0 nor 1"] = content[:place] + b"\5" + content[place + 1 :]
    fault = data.draw(st.sampled_from(list(damaged)))
    most = data.draw(st.sampled_from([NEVER, 1, 3, 7, 30]))
    assume(fault != "too long" or most != len(content))  # what is enough at once is the end
    with zarr.config.set(settings_of(data.draw)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIMITS", data.draw(thresholds()))
        array = zarr.open_array(store, mode="r")
        outcome(folder, selection.read, array)  # now the file system is known
        _, intact = outcome(folder, selection.read, array)
        (folder / key).unlink()
        if damaged[fault] is None:
            (folder / key).mkdir()
        else:
            (folder / key).write_bytes(damaged[fault])
        with zarr.config.set({PIPELINE: PLAIN_ZARR[PIPELINE]}):
            expected, _ = outcome(folder, selection.read, zarr.open_array(store, mode="r"))
        found, files = outcome(folder, selection.read, array, most=most)
    assert found == expected
    assert files.opened[key] == 1
    assert files.nbytes[key] <= intact.nbytes[key] + (fault == "too long")
