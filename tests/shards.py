"""Shards made by hand, and their indexes taken apart, as the sharding codec 1.0 says."""

import struct

import google_crc32c
import numpy as np

ABSENT = (2**64 - 1, 2**64 - 1)
"""Offset and size of an inner chunk that is not there."""


def index_of(entries, endian="little", has_checksum=True):
    """The bytes of an index of offsets and sizes."""
    order = "<" if endian == "little" else ">"
    content = b"".join(struct.pack(f"{order}QQ", *entry) for entry in entries)
    checksum = struct.pack("<I", google_crc32c.value(content)) if has_checksum else b""
    return content + checksum


def shard_of(
    parts, location="end", endian="little", has_checksum=True, places=None, gap=b"", entries=None
):
    """The bytes of a shard of inner chunks in the order of the index, where None is an absent one.

    They lie in the order of the numbers in `places`, each behind `gap`. `entries` has entries of
    the index that are not true, by the numbers of their inner chunks.
    """
    index_nbytes = 16 * len(parts) + 4 * has_checksum
    position = index_nbytes if location == "start" else 0
    content, found = b"", dict.fromkeys(range(len(parts)), ABSENT)
    for number in range(len(parts)) if places is None else places:
        if parts[number] is not None:
            content += gap
            found[number] = position + len(content), len(parts[number])
            content += parts[number]
    index = index_of((found | (entries or {})).values(), endian, has_checksum)
    return index + content if location == "start" else content + index


def entries_in(content, count, location="end", endian="little", has_checksum=True):
    """Offset and size of each inner chunk in a shard, which must have its checksum."""
    nbytes = 16 * count + 4 * has_checksum
    index = content[:nbytes] if location == "start" else content[-nbytes:]
    order = "<" if endian == "little" else ">"
    entries = list(struct.iter_unpack(f"{order}QQ", index[: 16 * count]))
    assert index == index_of(entries, endian, has_checksum)
    return entries


def divided(values, inner_shape):
    """The inner chunks of a shard, in C order."""
    for index in np.ndindex(*(n // c for n, c in zip(values.shape, inner_shape, strict=True))):
        place = [slice(i * c, (i + 1) * c) for i, c in zip(index, inner_shape, strict=True)]
        yield values[(*place, ...)]  # never a scalar


def morton_order(counts):
    """Numbers of the inner chunks of a shard in Morton order, by how many there are on each axis.

    They ascend by the bits of their indices in turn: the last bit of the first axis counts least.
    """
    lengths = [(n - 1).bit_length() for n in counts]
    axes = range(len(counts))
    bits = [(bit, axis) for bit in range(64) for axis in axes if bit < lengths[axis]]
    indices = [*np.ndindex(*counts)]

    def code(number):
        return [indices[number][axis] >> bit & 1 for bit, axis in reversed(bits)]

    return sorted(range(len(indices)), key=code)


def sharding(inner_shape, codecs, location="end", endian="little", has_checksum=True):
    """The codec, as it stands in metadata."""
    index_codecs = [{"name": "bytes", "configuration": {"endian": endian}}]
    return {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": list(inner_shape),
            "codecs": codecs,
            "index_codecs": [*index_codecs, *[{"name": "crc32c"}] * has_checksum],
            "index_location": location,
        },
    }
