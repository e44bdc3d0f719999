"""Random metadata documents: what plain zarr reads reads alike, and the rest is a clean error.

The oracle is zarr without this package, in a process of its own. `tests/fuzz.py` says how long they
run.
"""

import gzip
import json
from copy import deepcopy

import pytest
import zarr
from fuzz import TYPES, document_of, encoded, fuzz, values_of
from hypothesis import event, given
from hypothesis import strategies as st
from plain_zarr import outcome

# OSError: a chunk that is no gzip.
CLEAN = {"ValueError", "TypeError", "KeyError", "OSError", "NotImplementedError", "ImportError"}
if zarr.__version__ < "3.3":
    CLEAN.add("ArithmeticError")  # zarr divides by a shape of chunks of 0, or of 2**1000

FILL_VALUES = {
    "bool": [True, False],
    "float": [0, 1.5, -0.0, "NaN", "Infinity", "-Infinity", 10**40, "0x7fc00000", "0x7f800001"],
    "int": [0, 1, -1, 127, 2**31, 2**63, 2**64, 1.0],
    "complex": [[0, 0], ["NaN", -1.5], ["0x7f800001", "-Infinity"]],
    "r": [[0], [0, 1, 255], "AAEC"],
}
LEAVES = [
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, -(10**30), 10**400,
    0.5, 1.0, -0.0, 1e308, float("nan"), float("inf"), "", "0", "1", "1.5", " 1", "NaN", "nan",
    "Infinity", "inf", "-Infinity", "0x", "0x0", "0x7fc00000", "0x7f800001", "0X7FC00000", "true",
    "false", "little", "big", "Little", "native", "bytes", "endian", "Bytes", "transpose", "gzip",
    "regular", "rectangular", "default", "v2", "/", ".", "C", "array", "group", "AA==", "AAAA",
    "=", "r8", "r12", "r0", "r-8", "r08", "r16777216000", "r99999999999999999999", "raw_bytes",
    "bool", "int16", "uint8", "float32", "complex64", "string", "bfloat16", "int4", "\x00",
    "\x1b[31m", "\u202e", "\ud800", "a" * 1000, [], {}, [[]], [0], [0, 0], [1, 2], ["NaN", "NaN"],
    [1, [2]], {"name": "bytes"}, {"name": 5}, {"name": "bytes", "configuration": None},
    {"name": "bytes", "configuration": {"endian": "big"}},
    {"name": "endian", "configuration": {"endian": "little"}}, {"configuration": 5},
]  # fmt: skip


def paths_of(node, path=()):
    """The paths of every member of a document, the document left out."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, member in items:
        yield (*path, key)
        if isinstance(member, dict | list):
            yield from paths_of(member, (*path, key))


def leaves(*others):
    """A copy of one of `LEAVES` or `others`: the document that gets it is changed further."""
    return st.sampled_from([*others, *LEAVES]).map(deepcopy)


@st.composite
def mutated(draw, document):
    """A document of which some members are others, are gone, are there twice, or are wrapped."""
    document = deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        paths = list(paths_of(document))
        *path, last = draw(st.sampled_from(paths)) if paths else ["new"]
        node = document
        for key in path:
            node = node[key]
        how = draw(st.sampled_from(["replace", "replace", "replace", "wrap", "remove", "add"]))
        if how == "replace":
            node[last] = draw(leaves())
        elif how == "wrap":
            form = draw(
                st.sampled_from([lambda m: [m], lambda m: {"name": m}, lambda m: [m, m], str])
            )
            node[last] = form(node[last]) if last in node or isinstance(node, list) else form(0)
        elif how == "remove":
            if isinstance(node, list) or last in node:
                del node[last]
        elif isinstance(node, dict):
            node[
                draw(st.sampled_from(["name", "configuration", "endian", "x", "must_understand"]))
            ] = draw(leaves())
        else:
            node.insert(last, draw(leaves(node[last])))
    return document


@st.composite
def documents(draw, is_permitted=False):
    """A document, permitted or nearly so, and the bytes of its chunk."""
    # zarr up to 3.2 does not swap the fields of records.
    names = [name for name in TYPES if name not in ("struct", "nested") or zarr.__version__ > "3.3"]
    name = draw(st.sampled_from(names))
    shape = draw(st.sampled_from([(), (2,), (2, 1), (0,)]))
    endian = draw(st.sampled_from(["little", "big"]))
    document = document_of(name, shape, [max(n, 1) for n in shape], endian)
    family = "".join(c for c in name if c.isalpha()).removeprefix("u")
    if family in FILL_VALUES and not is_permitted and draw(st.booleans()):
        document["fill_value"] = draw(st.sampled_from(FILL_VALUES[family]))
    is_bare = max(TYPES[name][1]) == 1 or not is_permitted
    if draw(st.booleans()):
        document["codecs"] = draw(
            st.sampled_from(
                [
                    *([[{"name": "bytes"}], [{"name": "bytes", "configuration": {}}]] * is_bare),
                    [{"name": "endian", "configuration": {"endian": endian}}],
                    [*document["codecs"], {"name": "gzip", "configuration": {"level": 1}}],
                    [
                        {"name": "transpose", "configuration": {"order": [*range(len(shape))]}},
                        *document["codecs"],
                    ],
                ]
            )
        )
    if draw(st.booleans()):
        document["chunk_key_encoding"] = draw(
            st.sampled_from(
                [
                    {"name": "default"},
                    {"name": "default", "configuration": {"separator": "."}},
                    {"name": "v2", "configuration": {"separator": "/"}},
                ]
            )
        )
    if draw(st.booleans()):
        document["dimension_names"] = [None] * len(shape)
        document["storage_transformers"] = []
    content = encoded(values_of(name, shape, draw(st.integers(0, 99))), name, endian)
    if document["codecs"][-1]["name"] == "gzip":
        content = gzip.compress(content)
    return document, content


def objects_of(document, content):
    text = json.dumps(document)
    chunk = dict.fromkeys(("c", "c/0", "c.0", "c/0/0", "c.0.0", "0", "0/0", "0.0"), content)
    return {"zarr.json": text.encode(), **chunk}


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


def test_the_oracle_is_zarr_without_this_package(plain):
    """It reads what this package refuses, and does not know what this package knows."""
    loose = document_of("float32", (), (), "little") | {"fill_value": "1.5"}
    assert plain(objects_of(loose, bytes(4)))["values"] == "00000000"
    with zarr.config.set({"zarr_bytes.fill_values": "strict"}):
        assert "FillValueError" in outcome(objects_of(loose, bytes(4)))["error"]
    raw = document_of("r24", (), (), "little")
    assert "error" in plain(objects_of(raw, b"abc"))
    assert outcome(objects_of(raw, b"abc"))["values"] == b"abc".hex()


@pytest.mark.parametrize("fill_values", ["strict", "lenient"])
@fuzz(examples=50)
@given(case=documents(is_permitted=True))
def test_a_document_that_the_specification_permits_reads(fill_values, case):
    with zarr.config.set({"zarr_bytes.fill_values": fill_values}):
        assert "values" in outcome(objects_of(*case))


@pytest.mark.parametrize("fill_values", ["strict", "lenient"])
@fuzz(examples=150)
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
            found["shape"] = list(found["shape"])
            assert found == expected
        return
    if "error" in expected:
        assert CLEAN & set(found["error"]) or found["error"] == expected["error"], found
        assert found["text"], found
    else:
        assert is_deliberate(found, document, fill_values == "lenient"), (found, expected)
