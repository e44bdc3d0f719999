"""The index of a shard: where each inner chunk lies, and what is wrong with it.

Specification: sharding codec 1.0, "Binary shard format": offset and size of each inner chunk in C
order, as unsigned integers of 64 bits, all bits of both being 1 for one that is absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import google_crc32c
import numpy as np

from zarr_bytes.chunk.files import EndOfFileError
from zarr_bytes.errors import ShardIndexError

if TYPE_CHECKING:
    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.chunk.files import ChunkFile
    from zarr_bytes.chunk.grid import Offsets
    from zarr_bytes.chunk.shards import Shards

__all__ = ["CHECKSUM", "ENTRY", "Index", "complete_index", "content_of_index", "read_index"]

ENTRY: Final = 16
"""Bytes of the index for each inner chunk."""
CHECKSUM: Final = 4
"""Bytes of a checksum."""
_ABSENT: Final = 2**64 - 1  # offset and size of an inner chunk that is not there
_LARGEST: Final = 2**63 - 1  # offset in a file


class Index:
    """The index of one shard.

    Parameters
    ----------
    shards : Shards
        The shard, and those like it.
    key : str
        Of the shard, for the messages of errors.
    content : array of uint8, 1-D
        Its bytes, with the checksum.
    size : int or None
        Size of the shard in bytes, where it is known.

    Raises
    ------
    ShardIndexError
        If the index is truncated, or does not have its checksum.
    """

    def __init__(self, shards: Shards, key: str, content: Bytes, size: int | None) -> None:
        self._shards = shards
        self._key = key
        if content.size != shards.index_nbytes:
            raise ShardIndexError(
                f"the index of the shard {key} takes {shards.index_nbytes} bytes for"
                f" {shards.count} inner chunks, found {content.size}: the shard is truncated, or it"
                " was written with other shapes or codecs than the metadata names"
            )
        entries = content[: ENTRY * shards.count]
        if shards.sharding.has_checksum:
            found, computed = bytes(content[entries.size :]), google_crc32c.value(bytes(entries))
            if int.from_bytes(found, "little") != computed:
                raise ShardIndexError(
                    f"the index of the shard {key} has the checksum"
                    f" {int.from_bytes(found, 'little'):#010x}, and that of its bytes is"
                    f" {computed:#010x}: the shard is damaged, or it was written with other shapes"
                    " or codecs than the metadata names"
                )
        order = "<" if shards.sharding.index_endian == "little" else ">"
        self._entries = entries.view(f"{order}u8").reshape(-1, 2)
        self._first = shards.first
        self._last = size  # where an inner chunk must have ended
        if size is not None and shards.sharding.is_at_end:
            self._last = size - shards.index_nbytes

    def offset(self, number: int) -> int | None:
        """Offset of an inner chunk in its shard, in bytes; None if it is absent.

        Raises
        ------
        ShardIndexError
            If it has another size than its metadata asks for, is not in the file, or overlaps the
            index.
        """
        start, nbytes = self._entries[number].tolist()
        if start == nbytes == _ABSENT:
            return None
        expected = self._shards.inner_nbytes
        if nbytes != expected:
            fault = f"has {nbytes} bytes, and must have {expected}"
        elif start < self._first:
            fault = f"begins at byte {start}, within the index, which ends at {self._first}"
        elif self._last is not None and start + nbytes > self._last:
            fault = f"ends at byte {start + nbytes}, and the inner chunks end at {self._last}"
        elif start + nbytes > _LARGEST:
            fault = f"begins at byte {start}, where no file ends"
        else:
            return int(start)
        place = ", ".join(map(str, self._shards.division.place_of(number)))
        raise ShardIndexError(
            f"inner chunk ({place}) of the shard {self._key} {fault}, says its index: the shard is"
            " damaged, or it was written with other shapes or codecs than the metadata names"
        )


def read_index(shards: Shards, file: ChunkFile) -> Index:
    """The index of a shard that is an open file.

    Raises
    ------
    ShardIndexError
        If it is truncated or damaged.
    """
    size = file.size()
    content = np.empty(min(shards.index_nbytes, size), np.uint8)
    try:
        file.read_range(memoryview(content), shards.index_start(size))
    except EndOfFileError as end:
        content = content[: max(end.offset - shards.index_start(size), 0)]
    return Index(shards, file.path, content, size)


def content_of_index(shards: Shards, starts: Offsets) -> bytes:
    """The bytes of an index, with its checksum.

    Parameters
    ----------
    shards : Shards
        The shard, and those like it.
    starts : array of int64
        Where each inner chunk begins in its shard, in bytes; -1 for one that is absent.
    """
    order = "<" if shards.sharding.index_endian == "little" else ">"
    entries = np.full((shards.count, 2), _ABSENT, f"{order}u8")
    is_there = starts >= 0
    entries[is_there, 0] = starts[is_there]
    entries[is_there, 1] = shards.inner_nbytes
    content = entries.tobytes()
    if shards.sharding.has_checksum:
        content += google_crc32c.value(content).to_bytes(CHECKSUM, "little")
    return content


def complete_index(shards: Shards) -> tuple[Index, bytes]:
    """The index of a shard that has all inner chunks, in their order, and its bytes."""
    starts = shards.first + np.arange(shards.count, dtype=np.int64) * shards.inner_nbytes
    content = content_of_index(shards, starts)
    size = shards.count * shards.inner_nbytes + shards.index_nbytes
    return Index(shards, "", np.frombuffer(content, np.uint8), size), content
