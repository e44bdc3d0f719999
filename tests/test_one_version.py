"""An error is made of what has been read of a file: it is opened once, and no byte is read again.

`test_cost.py` has reads without errors, and `test_meanwhile.py` files that others replace at any
moment: a result has each chunk in one version.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import zarr
from conftest import PIPELINES
from fuzz import settings_of, store_with, thresholds
from fuzz_arrays import arrays, reads
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from stored_arrays import numbers, stored
from system_calls import NEVER, watched
from zarr.storage import LocalStore

from zarr_bytes import BoolValueError, ChunkFileError, ChunkSizeError, limits

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no preadv"),
    pytest.mark.filterwarnings("ignore:The data type"),
]


def batched(array):
    with zarr.config.set({"codec_pipeline.path": PIPELINES["BatchedCodecPipeline"]}):
        return zarr.open_array(array.store, mode="r")


def damage(path, fault, place):
    """Change a chunk of bools or other bytes at `place`, or put something else there."""
    content = path.read_bytes()
    if fault == "folder":
        path.unlink()
        path.mkdir()
    else:
        changed = {
            "truncated": content[:place],
            "too long": content + b"xyz",
            "bool": content[:place] + b"\5" + content[place + 1 :],
        }
        path.write_bytes(changed[fault])


def outcome(folder, read, array, **faults):
    """What a read gives, elements or an error; and the files that it reads."""
    with watched(folder, **faults) as files:
        try:
            found = np.asarray(read(array)).tobytes()
        except (ChunkSizeError, ChunkFileError, BoolValueError) as error:
            found = type(error), str(error)
    return found, files


class TestErrors:
    """They are made of what has been read, in the words of zarr's batched pipeline."""

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_take_no_second_reading(self, tmp_path_factory, pipeline, data):
        """Zarr's pipelines let the store read transposed chunks; here there are none."""
        folder, example = tmp_path_factory.mktemp("a"), replace(data.draw(arrays(1)), orders=[])
        store = store_with("local", example.objects(example.values()), folder)
        read, select = data.draw(reads(example.shape, example.chunk_shape))
        keys = np.unique(select(example.numbers_of_chunks())).tolist()
        assume(keys)
        key = example.keys[data.draw(st.sampled_from(keys))]
        nbytes = (folder / key).stat().st_size
        faults = ["truncated", "too long", "folder"] + ["bool"] * 3 * (example.name == "bool")
        fault = data.draw(st.sampled_from(faults))
        most = data.draw(st.sampled_from([NEVER, 1, 3, 7, 30]))
        assume(fault != "too long" or most != nbytes)  # what is enough at once is the end
        with zarr.config.set(settings_of(data.draw)), pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "LIMITS", data.draw(thresholds()))
            array = zarr.open_array(store, mode="r")
            outcome(folder, read, array)  # now the file system is known
            _, intact = outcome(folder, read, array)
            damage(folder / key, fault, data.draw(st.integers(0, nbytes - 1)))
            expected, _ = outcome(folder, read, batched(array))
            found, files = outcome(folder, read, array, most=most)
        assert found == expected
        assert files.opened[key] == 1
        assert files.nbytes[key] <= intact.nbytes[key] + (fault == "too long")

    def test_are_of_the_whole_chunk_where_that_is_no_larger_than_the_gap(self, tmp_path, pipeline):
        array = stored(LocalStore(tmp_path), numbers((60, 1000)))
        os.truncate(tmp_path / "c/0/0", 479_999)
        with (
            zarr.config.set({"zarr_bytes.gap.local": 2**20}),
            pytest.raises(ChunkSizeError, match="480000 bytes, found 479999"),
        ):
            array[:50]
