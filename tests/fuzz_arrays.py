"""Random arrays, and selections to read and to write, with what NumPy makes of each.

`tests/fuzz.py` has the values, and the stores that hold them.
"""

import json
import re
import sys
from base64 import b64encode
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import gcd, prod

import numpy as np
from documents import document_of, transposes
from fuzz import (
    ALL_TYPES,
    NAMES_OF_FORMAT_2,
    RECORDS_OF_FORMAT_2,
    TYPES,
    encoded,
    filled_up,
    transposed,
    values_of,
)
from hypothesis import note
from hypothesis import strategies as st
from shards import divided, morton_order, shard_of, sharding

LARGEST = [0, 9, 9, 7, 5]  # sizes of axes, by their number: of 600 chunks at most

# By data type, one that has room for its values less `OFFSET`.
WIDER = {
    **dict.fromkeys(["int8", "uint8"], "int16"),
    **dict.fromkeys(["int16", "uint16"], "int32"),
    **dict.fromkeys(["int32", "uint32"], "int64"),
}
OFFSET = 7


@dataclass(frozen=True)
class Example:
    """An array as it is stored; `values` differ in each version."""

    name: str  # of the data type
    endian: str
    shape: tuple
    chunk_shape: tuple
    orders: list  # of its transposes, one after another
    missing: list  # keys of chunks
    seed: int
    is_converted: bool = field(default=False, kw_only=True)  # by codecs that keep every value

    document_key = "zarr.json"

    @property
    def dtype(self):
        """In NumPy memory."""
        return np.dtype(ALL_TYPES[self.name][0])

    @property
    def fill_value(self):
        return np.zeros((), self.dtype)

    def values(self, version=0):
        """Elements in NumPy memory, with the fill value where chunks are missing."""
        values = values_of(self.name, self.shape, self.seed + version)
        for key in self.missing:
            values[self.region(key)] = self.fill_value
        return values

    def region(self, key):
        """Elements of a chunk, as an index of the array."""
        places = zip(map(int, re.findall(r"\d+", key)), self.chunk_shape, strict=False)
        return tuple(slice(i * c, (i + 1) * c) for i, c in places)

    def key_of(self, index):
        """Key of the chunk at an index of the grid."""
        return "/".join(["c", *map(str, index)])

    @property
    def keys(self):
        """Keys of its chunks."""
        grid = [-(-n // c) for n, c in zip(self.shape, self.chunk_shape, strict=True)]
        return [self.key_of(index) for index in np.ndindex(*grid)]

    def numbers_of_chunks(self):
        """For each element, the number of its chunk among the keys."""
        numbers = np.zeros(self.shape, int)
        for number, key in enumerate(self.keys):
            numbers[self.region(key)] = number
        return numbers

    def chunks(self, values):
        """Key and bytes of each chunk that is not missing."""
        chunks = zip(self.keys, filled_up(values, self.chunk_shape), strict=True)
        return {key: self.chunk(key, chunk) for key, chunk in chunks if key not in self.missing}

    def encoded(self, values):
        """The bytes of values with the axes as stored."""
        if not self.is_converted:
            return encoded(values, self.name, self.endian)
        return encoded(values.astype(self.stored_dtype) - OFFSET, WIDER[self.name], self.endian)

    @property
    def stored_dtype(self):
        """In NumPy memory."""
        return np.dtype(ALL_TYPES[WIDER[self.name]][0]) if self.is_converted else self.dtype

    @property
    def converting_codecs(self):
        """Those that change elements, in metadata."""
        if not self.is_converted:
            return []
        dtypes = {"encode_dtype": self.stored_dtype.str, "decode_dtype": self.dtype.str}
        return [
            {"name": "numcodecs.astype", "configuration": dtypes},
            {"name": "scale_offset", "configuration": {"offset": OFFSET}},
        ]

    def chunk(self, key, values):
        """The bytes of a chunk, or of a shard."""
        return self.encoded(transposed(values, self.orders))

    def document(self):
        document = document_of(self.name, self.shape, self.chunk_shape, self.endian, self.orders)
        *moves, serializer = document["codecs"]
        return document | {"codecs": [*moves, *self.converting_codecs, serializer]}

    def objects(self, values=None):
        """What a store of the array holds; no chunks without values."""
        chunks = {} if values is None else self.chunks(values)
        return {self.document_key: json.dumps(self.document()).encode(), **chunks}


@dataclass(frozen=True)
class Format2(Example):
    """An array of Zarr format 2; `orders` are none in order C, and one that reverses axes in F."""

    separator: str  # of the numbers in keys
    has_fill_value: bool  # rather than null

    document_key = ".zarray"

    @property
    def fill_value(self):
        """Of null, that of zarr."""
        if self.name == "datetime" and not self.has_fill_value:
            return np.array("NaT", self.dtype)
        return super().fill_value

    def key_of(self, index):
        return self.separator.join(map(str, index)) or "0"

    def filters(self, dtype):
        """Those that change elements of this data type, in metadata."""
        stored = self.stored_dtype.newbyteorder(self.endian).str
        types = {"dtype": stored, "astype": stored}
        return [
            {"id": "astype", "encode_dtype": stored, "decode_dtype": dtype.str},
            {"id": "fixedscaleoffset", "offset": OFFSET, "scale": 1, **types},
        ]

    def document(self):
        dtype, is_bfloat16 = self.dtype, self.name == "bfloat16"
        if self.name not in RECORDS_OF_FORMAT_2 and not is_bfloat16:
            dtype = dtype.newbyteorder(self.endian)
        zeros = {"b": False, "c": [0, 0], "U": "", "S": ""}
        zeros["V"] = b64encode(bytes(dtype.itemsize)).decode()
        zero = 0 if is_bfloat16 else zeros.get(dtype.kind, 0)
        return {
            "zarr_format": 2,
            "shape": self.shape,
            "chunks": self.chunk_shape,
            "dtype": "bfloat16" if is_bfloat16 else dtype.descr if dtype.names else dtype.str,
            "order": "F" if self.orders else "C",
            "dimension_separator": self.separator,
            "fill_value": zero if self.has_fill_value else None,
            "compressor": None,
            "filters": self.filters(dtype) if self.is_converted else None,
        }


@dataclass(frozen=True)
class Sharded(Example):
    """An array of shards; `orders` are those of the transposes of inner chunks."""

    before: list  # orders of the transposes before the shard
    inner_shape: tuple  # as the codec names it, in the axes that those make
    index: dict  # its location, byte order and checksum
    is_shuffled: bool  # whether inner chunks lie in any order, with bytes between them
    is_sparse: bool  # whether some inner chunks are absent
    converts_before: bool = False  # whether codecs that change elements are before the shard

    @property
    def counts(self):
        """Number of inner chunks in a shard along each axis of the index."""
        shape = transposed(np.empty(self.chunk_shape, "V"), self.before).shape
        return [n // c for n, c in zip(shape, self.inner_shape, strict=True)]

    @property
    def count(self):
        """Number of inner chunks in a shard."""
        return prod(self.counts)

    def absent(self, key):
        """Numbers of the inner chunks of a shard that are absent."""
        if not self.is_sparse:
            return []
        random = np.random.default_rng([self.seed, self.keys.index(key)])
        return np.flatnonzero(random.random(self.count) < 0.4).tolist()

    def values(self, version=0):
        values = super().values(version)
        numbers = np.empty(self.chunk_shape, int)
        for number, inner in enumerate(divided(transposed(numbers, self.before), self.inner_shape)):
            inner[...] = number
        for key in self.keys:
            part = values[(*self.region(key), ...)]  # never a scalar
            inside = numbers[(*[slice(0, n) for n in part.shape], ...)]
            part[np.isin(inside, self.absent(key))] = np.zeros((), values.dtype)
        return values

    def parts(self, shard):
        """The inner chunks of a shard as they are stored, in the order of the index."""
        inner = divided(transposed(shard, self.before), self.inner_shape)
        return [self.encoded(transposed(part, self.orders)) for part in inner]

    def chunk(self, key, values):
        absent = self.absent(key)
        parts = [None if i in absent else part for i, part in enumerate(self.parts(values))]
        if not self.is_shuffled:
            return shard_of(parts, **self.index, places=morton_order(self.counts))
        places = np.random.default_rng(self.seed).permutation(self.count)
        return shard_of(parts, **self.index, places=places, gap=b"gap")

    def document(self):
        document, converting = super().document(), self.converting_codecs
        inner = document["codecs"]
        if self.converts_before:
            inner = [codec for codec in inner if codec not in converting]
        codecs = transposes(self.before)
        codecs += converting if self.converts_before else []
        return document | {"codecs": [*codecs, sharding(self.inner_shape, inner, **self.index)]}


# Arrays are drawn by NumPy, from a number: those of Hypothesis are small, and one like the other.
RANDOM = st.integers(0, 2**32).map(np.random.default_rng)


@st.composite
def sharded(draw, example, can_be_sparse=True):
    """`example` in shards of any form."""
    random = draw(RANDOM)
    before = orders_of(random, len(example.shape)) if random.random() < 0.3 else ()
    shape = transposed(np.empty(example.chunk_shape, "V"), before).shape
    # zarr holds the shape of inner chunks to that of the shard in the axes of the array, too.
    sizes = [gcd(n, m) for n, m in zip(shape, example.chunk_shape, strict=True)]
    divisors = [[d for d in range(1, n + 1) if n % d == 0] for n in sizes]
    has_checksum, is_shuffled, is_sparse = (random.random(3) < 0.5).tolist()
    return Sharded(
        **vars(example),
        before=before,
        inner_shape=tuple(int(random.choice(sizes)) for sizes in divisors),
        index={
            "location": str(random.choice(["end", "start"])),
            "endian": str(random.choice(["little", "big"])),
            "has_checksum": has_checksum,
        },
        is_shuffled=is_shuffled,
        is_sparse=can_be_sparse and is_sparse,
        converts_before=bool(random.integers(2)),
    )


@st.composite
def of_format_2(draw, example):
    """An array like `example`, of any layout of format 2."""
    random = draw(RANDOM)
    name = example.name
    if name not in NAMES_OF_FORMAT_2 or random.random() < 0.2:
        name = str(random.choice(NAMES_OF_FORMAT_2))
    axes = tuple(range(len(example.shape)))
    numbers_of_missing = [example.keys.index(key) for key in example.missing]
    fields = vars(example) | {"name": name, "orders": [axes[::-1]] * int(random.integers(2))}
    if name == "bfloat16":  # whose name says no byte order
        fields["endian"] = sys.byteorder
    of_format_2 = Format2(
        **fields,
        separator=str(random.choice([".", "/"])),
        has_fill_value=bool(random.integers(2)),
    )
    return replace(of_format_2, missing=[of_format_2.keys[i] for i in numbers_of_missing])


@st.composite
def converted(draw, example):
    """`example`, or one with a data type for it, behind codecs that change each element."""
    name = example.name if example.name in WIDER else draw(st.sampled_from(list(WIDER)))
    return replace(example, name=name, is_converted=True)


@st.composite
def arrays(draw, least_size=0, can_be_missing=False, names=tuple(TYPES)):
    """Of three axes most often, whose orders are not all their own inverse."""
    random = draw(RANDOM)
    ndim = int(random.choice([0, 1, 2, 2, 3, 3, 3, 4]))
    least = least_size if random.random() < 0.1 else 1
    shape = tuple(random.integers(least, LARGEST[ndim] + 1, ndim).tolist())
    example = Example(
        name=str(random.choice(names)),
        endian=str(random.choice(["little", "big"])),
        shape=shape,
        chunk_shape=tuple(int(random.integers(1, max(n, 1) + 3)) for n in shape),
        orders=orders_of(random, ndim),
        missing=[],
        seed=int(random.integers(2**32)),
    )
    if not (can_be_missing and example.keys):
        return example
    return replace(example, missing=random.choice(example.keys, random.integers(3)).tolist())


def orders_of(random, ndim):
    """Orders of one transpose after another; each exchanges axes, where there are two."""
    orders = list(permutations(range(ndim)))
    number = random.choice([0, 1, 1, 1, 2, 3])
    return [orders[random.integers(min(1, len(orders) - 1), len(orders))] for _ in range(number)]


def slice_of(random, size):
    limits = random.integers(-size - 2, size + 3, 2).tolist()
    start, stop = (None if random.random() < 0.5 else limit for limit in limits)
    return slice(start, stop, [None, 1, 2, 3, 4][random.integers(5)])


@st.composite
def basic(draw, shape):
    """Integers and slices, some of them left out or replaced by an ellipsis."""
    random = draw(RANDOM)
    entries = [
        int(random.integers(-n, n)) if n and random.random() < 0.3 else slice_of(random, n)
        for n in shape
    ]
    first, last = sorted(random.integers(len(shape) + 1, size=2).tolist())
    fewer, ellipsis = entries[:first], [*entries[:first], ..., *entries[last:]]
    return tuple([entries, entries, fewer, ellipsis][random.integers(4)])


@st.composite
def orthogonal(draw, shape):
    """For each dimension an integer, a slice, a list of integers in any order, or bools."""
    random, entries = draw(RANDOM), []
    for size in shape:
        kind = random.integers(4) if size else 0
        if kind == 0:
            entries.append(slice_of(random, size))
        elif kind == 1:
            entries.append(int(random.integers(-size, size)))
        elif kind == 2:
            entries.append(random.integers(-size, size, random.integers(1, 7)))
        else:
            entries.append(random.random(size) < 0.5)
    return tuple(entries)


@dataclass(frozen=True)
class Selection:
    """What is read from or written to an array, and to the NumPy array that it is beside."""

    entries: object
    how: str = ""  # oindex, vindex or blocks
    block: tuple = ()  # the elements of one

    def read(self, array):
        return (getattr(array, self.how) if self.how else array)[self.entries]

    def write(self, array, new):
        (getattr(array, self.how) if self.how else array)[self.entries] = new

    def take(self, values):
        """What NumPy selects; orthogonally one dimension after another from the last."""
        if self.how != "oindex":
            return values[self.block or self.entries]
        for axis in reversed(range(len(self.entries))):
            values = values[(slice(None),) * axis + (self.entries[axis],)]
        return values

    def assign(self, values, new):
        """What NumPy assigns, by the places of elements in C order."""
        places = self.take(np.arange(values.size).reshape(values.shape))
        values[np.unravel_index(places, values.shape)] = new


@st.composite
def selections(draw, shape, chunk_shape, *, to_write=False):
    """No element is written twice: zarr sorts points by chunk, and not always the last counts."""
    kinds = ["all", "basic", "oindex", "mask"] + ["blocks", "points"] * (0 not in shape)
    kind, random = draw(st.sampled_from(kinds if shape else ["all", "basic"])), draw(RANDOM)
    if kind in ("all", "basic"):
        selection = Selection(draw(basic(shape)) if kind == "basic" else ...)
    elif kind == "mask":
        selection = Selection(random.random(shape) < 0.3, "vindex")
    elif kind == "blocks":
        sizes = list(zip(shape, chunk_shape, strict=True))
        place = [int(random.integers(-(-n // c))) for n, c in sizes]
        block = [slice(i * c, (i + 1) * c) for i, (_, c) in zip(place, sizes, strict=True)]
        selection = Selection(tuple(place), "blocks", tuple(block))
    elif kind == "points":
        form, size = [(1,), (4,), (2, 3)][random.integers(3)], prod(shape)
        flat = random.permutation(size)[:5] if to_write else random.integers(size, size=form)
        points = zip(np.unravel_index(flat, shape), shape, strict=True)
        points = [np.where(random.random(flat.shape) < 0.3, i - n, i) for i, n in points]
        selection = Selection(tuple(points), "vindex")
    else:
        entries = draw(orthogonal(shape))
        if to_write:
            entries = [
                np.unique(np.arange(n)[entry]) if isinstance(entry, np.ndarray) else entry
                for n, entry in zip(shape, entries, strict=True)
            ]
        selection = Selection(tuple(entries), "oindex")
    note(f"{selection}")
    return selection
