"""Random arrays, and selections to read and to write, with what NumPy makes of each.

`tests/fuzz.py` has the values, and the stores that hold them.
"""

import json
from dataclasses import dataclass, replace
from itertools import permutations
from math import gcd

import numpy as np
from fuzz import (
    TYPES,
    chunks_of,
    document_of,
    encoded,
    filled_up,
    transposed,
    transposes,
    values_of,
)
from hypothesis import note
from hypothesis import strategies as st
from shards import divided, shard_of, sharding


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

    def values(self, version=0):
        """Elements in NumPy memory, with the fill value where chunks are missing."""
        values = values_of(self.name, self.shape, self.seed + version)
        for key in self.missing:
            values[self.region(key)] = np.zeros((), values.dtype)
        return values

    def region(self, key):
        """Elements of a chunk, as an index of the array."""
        index = map(int, key.split("/")[1:])
        return tuple(
            slice(i * c, (i + 1) * c) for i, c in zip(index, self.chunk_shape, strict=True)
        )

    @property
    def keys(self):
        """Keys of its chunks."""
        grid = [-(-n // c) for n, c in zip(self.shape, self.chunk_shape, strict=True)]
        return ["/".join(["c", *map(str, index)]) for index in np.ndindex(*grid)]

    def numbers_of_chunks(self):
        """For each element, the number of its chunk among the keys."""
        numbers = np.zeros(self.shape, int)
        for number, key in enumerate(self.keys):
            numbers[self.region(key)] = number
        return numbers

    def chunks(self, values):
        """Key and bytes of each chunk that is not missing."""
        chunks = chunks_of(values, self.chunk_shape, self.name, self.endian, self.orders)
        return {key: content for key, content in chunks if key not in self.missing}

    def document(self):
        return document_of(self.name, self.shape, self.chunk_shape, self.endian, self.orders)

    def objects(self, values=None):
        """What a store of the array holds; no chunks without values."""
        chunks = {} if values is None else self.chunks(values)
        return {"zarr.json": json.dumps(self.document()).encode(), **chunks}


@dataclass(frozen=True)
class Sharded(Example):
    """An array of shards; `orders` are those of the transposes of inner chunks."""

    before: list  # orders of the transposes before the shard
    inner_shape: tuple  # as the codec names it, in the axes that those make
    index: dict  # its location, byte order and checksum
    is_shuffled: bool  # whether inner chunks lie in any order, with bytes between them
    is_sparse: bool  # whether some inner chunks are absent

    @property
    def count(self):
        """Number of inner chunks in a shard."""
        shape = transposed(np.empty(self.chunk_shape, "V"), self.before).shape
        return int(
            np.prod([n // c for n, c in zip(shape, self.inner_shape, strict=True)], dtype=int)
        )

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

    def chunks(self, values):
        return {
            key: self.shard(key, shard)
            for key, shard in filled_up(values, self.chunk_shape)
            if key not in self.missing
        }

    def parts(self, shard):
        """The inner chunks of a shard as they are stored, in the order of the index."""
        inner = divided(transposed(shard, self.before), self.inner_shape)
        return [encoded(transposed(part, self.orders), self.name, self.endian) for part in inner]

    def shard(self, key, shard):
        """The bytes of a shard."""
        absent = self.absent(key)
        parts = [None if i in absent else part for i, part in enumerate(self.parts(shard))]
        if not self.is_shuffled:
            return shard_of(parts, **self.index)
        places = np.random.default_rng(self.seed).permutation(self.count)
        return shard_of(parts, **self.index, places=places, gap=b"gap")

    def document(self):
        document = super().document()
        codec = sharding(self.inner_shape, document["codecs"], **self.index)
        return document | {"codecs": [*transposes(self.before), codec]}


@st.composite
def sharded(draw, example, can_be_sparse=True):
    """`example` in shards of any form."""
    before = draw(st.sampled_from([(), (), draw(orders_of(len(example.shape)))]))
    shape = transposed(np.empty(example.chunk_shape, "V"), before).shape
    # zarr holds the shape of inner chunks to that of the shard in the axes of the array, too.
    sizes = [gcd(n, m) for n, m in zip(shape, example.chunk_shape, strict=True)]
    divisors = [[d for d in range(1, n + 1) if n % d == 0] for n in sizes]
    return Sharded(
        **vars(example),
        before=before,
        inner_shape=tuple(draw(st.sampled_from(sizes)) for sizes in divisors),
        index={
            "location": draw(st.sampled_from(["end", "start"])),
            "endian": draw(st.sampled_from(["little", "big"])),
            "has_checksum": draw(st.booleans()),
        },
        is_shuffled=draw(st.booleans()),
        is_sparse=can_be_sparse and draw(st.booleans()),
    )


@st.composite
def arrays(draw, least_size=0, can_be_missing=False, names=tuple(TYPES)):
    """Of three axes most often, whose orders are not all their own inverse."""
    ndim = draw(st.sampled_from([3, 2, 3, 1, 2, 3, 4, 0]))
    shape = draw(st.tuples(*[st.integers(least_size, 9)] * ndim))
    chunk_shape = tuple(draw(st.integers(1, max(n, 1) + 2)) for n in shape)
    example = Example(
        name=draw(st.sampled_from(names)),
        endian=draw(st.sampled_from(["little", "big"])),
        shape=shape,
        chunk_shape=chunk_shape,
        orders=draw(orders_of(len(shape))),
        missing=[],
        seed=draw(st.integers(0, 2**32)),
    )
    if not (can_be_missing and example.keys):
        return example
    return replace(example, missing=draw(st.lists(st.sampled_from(example.keys), max_size=2)))


def orders_of(ndim):
    """Orders of one transpose after another; each exchanges axes, where there are two."""
    orders = list(permutations(range(ndim)))
    other = st.sampled_from(orders[1:] or orders)
    return st.sampled_from([0, 1, 1, 1, 2, 3]).flatmap(lambda n: st.tuples(*[other] * n))


@st.composite
def slices(draw, size):
    limits = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(limits), draw(limits), draw(st.none() | st.integers(1, 4)))


@st.composite
def basic(draw, shape):
    """Integers and slices, some of them left out or replaced by an ellipsis."""
    entries = []
    for size in shape:
        integers = st.integers(-size, size - 1) if size else slices(size)
        entries.append(draw(slices(size) | integers))
    form = draw(st.sampled_from(["all", "fewer", "ellipsis"]))
    if form == "all" or not shape:
        return tuple(entries)
    cut = draw(st.integers(0, len(shape)))
    if form == "fewer":
        return tuple(entries[:cut])
    return (*entries[:cut], ..., *entries[draw(st.integers(cut, len(shape))) :])


@st.composite
def orthogonal(draw, shape):
    """For each dimension an integer, a slice, a list of integers in any order, or bools."""
    entries = []
    for size in shape:
        forms = [slices(size), st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)]
        if size:
            integers = st.integers(-size, size - 1)
            forms += [integers, st.lists(integers, min_size=1, max_size=6).map(np.array)]
        entry = draw(st.one_of(forms))
        entries.append(slice(None) if isinstance(entry, np.ndarray) and not entry.size else entry)
    return tuple(entries)


@st.composite
def blocks(draw, shape, chunk_shape):
    """A chunk, by its place in the grid, and the elements of it that the array has."""
    sizes = list(zip(shape, chunk_shape, strict=True))
    block = shown("block", tuple(draw(st.integers(0, -(-n // c) - 1)) for n, c in sizes))
    return block, tuple(slice(b * c, (b + 1) * c) for b, (_, c) in zip(block, sizes, strict=True))


def take_orthogonally(values, entries):
    """NumPy, one dimension after another from the last."""
    for axis in reversed(range(len(entries))):
        values = values[(slice(None),) * axis + (entries[axis],)]
    return values


def shown(kind, selection):
    """Show a selection with an example that fails."""
    note(f"{kind}: {np.argwhere(selection).tolist() if kind == 'mask' else selection}")
    return selection


@st.composite
def reads(draw, shape, chunk_shape):
    """A read of an array, and what NumPy says to it."""
    kinds = ["basic", "orthogonal", "mask"] + ["blocks", "points"] * (0 not in shape)
    kind = draw(st.sampled_from(kinds if shape else ["basic"]))
    if kind == "basic":
        entries = shown(kind, draw(basic(shape)))
        return lambda array: array[entries], lambda values: values[entries]
    if kind == "orthogonal":
        entries = shown(kind, draw(orthogonal(shape)))
        return lambda array: array.oindex[entries], lambda v: take_orthogonally(v, entries)
    if kind == "mask":
        mask = shown(kind, np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.3)
        return lambda array: array.vindex[mask], lambda values: values[mask]
    if kind == "blocks":
        block, part = draw(blocks(shape, chunk_shape))
        return lambda array: array.blocks[block], lambda values: values[part]
    form = draw(st.sampled_from([(1,), (3,), (5,), (2, 3), (1, 2)]))
    indices = [draw(st.lists(st.integers(-n, n - 1), min_size=6, max_size=6)) for n in shape]
    points = shown(kind, tuple(np.reshape(i[: np.prod(form)], form) for i in indices))
    return lambda array: array.vindex[points], lambda values: values[points]


@st.composite
def writes(draw, shape, chunk_shape=None, may_repeat=False):
    """A write of values to an array, and the index by which NumPy assigns them.

    Blocks are written too, if `chunk_shape` is given, and a point may be written twice, if
    `may_repeat`: zarr sorts points by their chunk, so that not always the last value counts.
    """
    kinds = ["all", "basic", "orthogonal", "mask"]
    if 0 not in shape:
        kinds += ["points"] + ["block"] * (chunk_shape is not None)
    kind = draw(st.sampled_from(kinds if shape else ["all", "basic"]))
    if kind in ("all", "basic"):
        entries = shown(kind, draw(basic(shape))) if kind == "basic" else ...
        return lambda array, value: array.__setitem__(entries, value), entries
    if kind == "mask":
        mask = shown(kind, np.random.default_rng(draw(st.integers(0, 99))).random(shape) < 0.3)
        return lambda array, value: array.set_mask_selection(mask, value), mask
    if kind == "points":
        places = st.integers(0, int(np.prod(shape)) - 1)
        flat = draw(st.lists(places, min_size=1, max_size=5, unique=not may_repeat))
        points = shown(kind, np.unravel_index(flat, shape))
        return lambda array, value: array.set_coordinate_selection(points, value), points
    if kind == "block":
        block, part = draw(blocks(shape, chunk_shape))
        return lambda array, value: array.set_block_selection(block, value), part
    entries = [
        np.unique(np.arange(n)[entry]) if isinstance(entry, np.ndarray) else entry
        for n, entry in zip(shape, draw(orthogonal(shape)), strict=True)
    ]
    entries = shown(kind, tuple(entries))
    grid = np.ix_(
        *(np.atleast_1d(np.arange(n)[entry]) for n, entry in zip(shape, entries, strict=True))
    )
    without_integers = take_orthogonally(np.empty(shape), entries).shape

    def write(array, value):
        value = value.reshape(without_integers) if np.ndim(value) else value
        array.set_orthogonal_selection(entries, value)

    return write, grid
