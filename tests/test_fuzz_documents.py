"""Random metadata documents: what plain zarr reads reads alike, and the rest is a clean error.

The oracle is zarr without this package, in a process of its own. `tests/fuzz.py` says how long they
run.
"""

import pytest
import zarr
from documents import document_of
from fuzz import fuzz
from fuzz_documents import documents, mutated, objects_of
from hypothesis import event, given
from hypothesis import strategies as st
from plain_zarr import outcome

# OSError: a chunk that is no gzip.
CLEAN = {"ValueError", "TypeError", "KeyError", "OSError", "NotImplementedError", "ImportError"}
if zarr.__version__ < "3.3":
    CLEAN.add("ArithmeticError")  # zarr divides by a shape of chunks of 0, or of 2**1000


def is_deliberate(error, document, is_lenient):
    """Whether what zarr reads is refused because the specification does not permit it.

    A fill value, where the setting is strict, and an array for a bool; a name such as ``r12``; a
    byte of a bool that is not 0 or 1; the configuration of the codec.
    """
    names, text = error["error"], error["text"]
    own = {"DataTypeNameError", "BoolValueError"}
    if not is_lenient or isinstance(document.get("fill_value"), list):
        own.add("FillValueError")
    return bool(own & set(names)) or text.startswith(("codec 'bytes'", "codec 'endian'"))


def test_the_oracle_of_these_tests_is_zarr_without_this_package(plain):
    """It reads what this package refuses, and does not know what this package knows."""
    loose = objects_of(document_of("float32", (), fill_value="1.5"), bytes(4))
    assert plain(loose)["values"] == "00000000"
    with zarr.config.set({"zarr_bytes.fill_values": "strict"}):
        assert "FillValueError" in outcome(loose)["error"]
    raw = objects_of(document_of("r24", ()), b"abc")
    assert "error" in plain(raw)
    assert outcome(raw)["values"] == b"abc".hex()


@pytest.mark.parametrize("fill_values", ["strict", "lenient"])
@fuzz(examples=30)
@given(case=documents(is_permitted=True))
def test_a_document_that_the_specification_permits_reads(fill_values, case):
    with zarr.config.set({"zarr_bytes.fill_values": fill_values}):
        assert "values" in outcome(objects_of(*case))


@pytest.mark.parametrize("fill_values", ["strict", "lenient"])
@fuzz(examples=70)
@given(data=st.data())
def test_a_document_reads_as_zarr_reads_it_or_is_refused_cleanly(plain, fill_values, data):
    document, content = data.draw(documents())
    document = data.draw(mutated(document))
    objects = objects_of(document, content)
    expected = plain(objects)
    with zarr.config.set({"zarr_bytes.fill_values": fill_values}):
        found = outcome(objects)
    event(f"refused here: {'error' in found}, by zarr: {'error' in expected}")
    if "error" not in found:
        if "error" not in expected:
            assert found | {"shape": [*found["shape"]]} == expected
    elif "error" in expected:
        assert CLEAN & set(found["error"]) or found["error"] == expected["error"], found
        assert found["text"], found
    else:
        assert is_deliberate(found, document, fill_values == "lenient"), (found, expected)
