"""Random metadata documents: permitted ones, and what is left of them after random changes."""

import gzip
import json
from copy import deepcopy

import zarr
from documents import BIG, GZIP, LITTLE, document_of, transposes
from fuzz import TYPES, encoded, values_of
from hypothesis import strategies as st

FILL_VALUES = {
    "bool": [True, False],
    "float": [0, 1.5, -0.0, "NaN", "Infinity", "-Infinity", 10**40, "0x7fc00000", "0x7f800001"],
    "int": [0, 1, -1, 127, 2**31, 2**63, 2**64, 1.0],
    "complex": [[0, 0], ["NaN", -1.5], ["0x7f800001", "-Infinity"]],
    "r": [[0], [0, 1, 255], "AAEC"],
}
ENCODINGS = [
    {"name": "default"},
    {"name": "default", "configuration": {"separator": "."}},
    {"name": "v2", "configuration": {"separator": "/"}},
]
NAMES = ["name", "configuration", "endian", "x", "must_understand"]
# What is in documents of other writers, or is next to what is permitted.
ODD = [
    None, True, False, 0, 1, -1, 1.0, 1.5, 300, 2**63, 2**64, 1e30, 10**400, float("nan"),
    float("inf"), "0", "1", "-1", " 7 ", "1_0", "1.5", "1e3", "inf", "nan", " NaN", "NaN",
    "Infinity", "true", "", "x", "0x7fc00000", "0x7f800001", "0x7e01", "0x7ff8000000000000", "0x0",
    "0X7FC00000", "\u0663", [], [0], [1], [[1]], [1, 2], [True, "1"], [None, 0], ["1.5", 0],
    [True, "0x7f800001"], ["0x7e01", "0x7f800001"], [1, 2, 3], {}, {"a": 1},
]  # fmt: skip
LEAVES = [
    *ODD, 2, 3, 2**31, 2**53 + 1, 10**30, -(10**30), 0.5, -0.0, 1e308, " 1", "-Infinity", "0x",
    "false", "little", "big", "Little", "native", "bytes", "endian", "Bytes", "transpose", "gzip",
    "regular", "rectangular", "default", "v2", "/", ".", "C", "array", "group", "AA==", "AAAA",
    "=", "r8", "r12", "r0", "r-8", "r08", "r16777216000", "r99999999999999999999", "raw_bytes",
    "bool", "int16", "uint8", "float32", "complex64", "string", "bfloat16", "int4", "\x00",
    "\x1b[31m", "\u202e", "\ud800", "a" * 1000, [[]], [0, 0], ["NaN", "NaN"], [1, [2]],
    {"name": "bytes"}, {"name": 5}, {"name": "bytes", "configuration": None}, BIG[0],
    {"name": "endian", "configuration": {"endian": "little"}}, {"configuration": 5},
]  # fmt: skip


def places_of(node):
    """Every dict or list within a document, with each of its keys or indices."""
    for key, member in [*(node.items() if isinstance(node, dict) else enumerate(node))]:
        yield node, key
        if isinstance(member, dict | list):
            yield from places_of(member)


@st.composite
def mutated(draw, document):
    """A document of which some members are others, are gone, are there twice, or are wrapped."""
    document = deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        if not document:
            break
        node, key = draw(st.sampled_from([*places_of(document)]))
        how = draw(st.sampled_from(["replace", "replace", "replace", "wrap", "remove", "add"]))
        other, member = deepcopy(draw(st.sampled_from(LEAVES))), node[key]
        if how == "replace":
            node[key] = other
        elif how == "wrap":
            node[key] = draw(st.sampled_from([[member], {"name": member}, [member, member]]))
        elif how == "remove":
            del node[key]
        elif isinstance(node, dict):
            node[draw(st.sampled_from(NAMES))] = other
        else:
            node.insert(key, draw(st.sampled_from([other, deepcopy(member)])))
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
    codecs = LITTLE if endian == "little" else BIG
    chains = [
        codecs,
        [{"name": "endian", "configuration": {"endian": endian}}],
        [*codecs, GZIP],
        [*transposes([range(len(shape))]), *codecs],
    ]
    if max(TYPES[name][1]) == 1 or not is_permitted:
        chains += [{"name": "bytes"}], [{"name": "bytes", "configuration": {}}]
    document["codecs"] = draw(st.sampled_from(chains))
    document["chunk_key_encoding"] = draw(st.sampled_from(ENCODINGS))
    if draw(st.booleans()):
        document |= {"dimension_names": [None] * len(shape), "storage_transformers": []}
    content = encoded(values_of(name, shape, draw(st.integers(0, 99))), name, endian)
    return document, gzip.compress(content) if document["codecs"][-1] == GZIP else content


def objects_of(document, content):
    """A store of a document, and of a chunk under each key that it may have."""
    chunk = dict.fromkeys(("c", "c/0", "c.0", "c/0/0", "c.0.0", "0", "0/0", "0.0"), content)
    return {"zarr.json": json.dumps(document).encode(), **chunk}
