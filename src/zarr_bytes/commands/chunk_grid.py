"""The regular grid of an array's chunks, and the keys of these chunks.

Specification: Zarr 3.1, "Regular grids" and "Chunk key encoding".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Final, Self, TypeGuard

from zarr_bytes.commands.text import brief, nested

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ChunkGrid", "are_sizes"]

_MOST_DIMENSIONS: Final = 64  # of a NumPy array


@dataclass(frozen=True)
class ChunkGrid:
    """The regular grid of an array's chunks.

    Attributes
    ----------
    chunk_shape : tuple of int
        Shape of a chunk.
    counts : tuple of int
        Number of chunks along each dimension.
    prefix, separator : str
        The beginning of a chunk key, and the character between its parts.
    """

    chunk_shape: tuple[int, ...]
    counts: tuple[int, ...]
    prefix: str
    separator: str

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Grid of an array; a ValueError names the member that does not conform."""
        shape = _sizes(document.get("shape"), "shape", 0)
        grid = document.get("chunk_grid")
        if nested(grid, "name") != "regular":
            raise ValueError("the chunk grid is not regular")
        sizes = _sizes(nested(grid, "configuration", "chunk_shape"), "chunk_shape", 1)
        if len(sizes) != len(shape):
            found = f"shape has {len(shape)} dimensions and chunk_shape {len(sizes)}"
            raise ValueError(f"{found}: the numbers must be equal")
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError(f"{len(shape)} dimensions; NumPy has {_MOST_DIMENSIONS} at most")
        encoding = document.get("chunk_key_encoding")
        name = encoding.get("name") if isinstance(encoding, dict) else encoding
        if name not in ("default", "v2"):
            raise ValueError(f"the chunk key encoding {brief(name)} is not known here")
        prefix, separator = ("c", "/") if name == "default" else ("", ".")
        separator = nested(encoding, "configuration", "separator", default=separator)
        if separator not in ("/", "."):
            raise ValueError(f"the separator of chunk keys is {brief(separator)}, not '/' or '.'")
        # In integers: as floats, numbers above 2**53 would be rounded.
        counts = tuple(-(-n // m) for n, m in zip(shape, sizes, strict=True))
        return cls(sizes, counts, prefix, separator)

    @property
    def count(self) -> int:
        """Number of chunks, stored or not."""
        return prod(self.counts)

    def key(self, coordinates: tuple[int, ...]) -> str:
        """Key of a chunk, within its array."""
        parts = [self.prefix, *coordinates] if self.prefix else coordinates
        return self.separator.join(map(str, parts)) or "0"

    def contains(self, key: str) -> bool:
        """Whether `key` is the key of a chunk of this grid."""
        if not self.counts:
            return key == self.key(())
        return self._matched(key) == len(self.counts)

    def has_folder(self, path: str) -> bool:
        """Whether keys of chunks of this grid begin with `path` and a slash."""
        matched = self._matched(path) if self.separator == "/" else None
        return matched is not None and matched < len(self.counts)

    def _matched(self, key: str) -> int | None:
        """Number of coordinates in `key`, or None if one is out of the grid."""
        parts = key.split(self.separator)
        if self.prefix and parts.pop(0) != self.prefix:
            return None
        if len(parts) > len(self.counts):
            return None
        for part, count in zip(parts, self._counts, strict=False):
            is_number = part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")
            # As texts: Python reads at most 4,300 digits, and a name may have more.
            if not is_number or (len(part), part) >= count:
                return None
        return len(parts)

    @cached_property
    def _counts(self) -> list[tuple[int, str]]:
        return [(len(str(count)), str(count)) for count in self.counts]

    def keys(self, most: int) -> Iterator[str]:
        """Keys of the first `most` chunks in C order."""
        for number in islice(range(self.count), most):
            coordinates: list[int] = []
            for count in reversed(self.counts):  # not by NumPy: it may be beyond 64 bits
                number, i = divmod(number, count)
                coordinates.insert(0, i)
            yield self.key(tuple(coordinates))


def _sizes(value: object, name: str, least: int) -> tuple[int, ...]:
    if not are_sizes(value, least):
        raise ValueError(f"{name} is {brief(value)}, not an array of integers from {least} on")
    return tuple(value)


def are_sizes(value: object, least: int) -> TypeGuard[list[int]]:
    """Whether `value` is an array of integers of at least `least`; zarr accepts more."""
    return isinstance(value, list) and all(type(n) is int and n >= least for n in value)
