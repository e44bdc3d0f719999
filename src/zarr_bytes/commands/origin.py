"""Who decided a value of zarr's configuration.

It is made of defaults, then files, then environment variables, each over the ones before, and then
of what code sets.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import zarr

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Origin", "origin_of"]

_MISSING: Final = object()


@dataclass(frozen=True)
class Origin:
    """Who decided a value of zarr's configuration.

    Attributes
    ----------
    kind : {"default", "file", "environment variable", "code"}
        "code" is whatever has called ``zarr.config.set``.
    name : str
        The path of the file, the name of the variable, or empty.
    """

    kind: Literal["default", "file", "environment variable", "code"]
    name: str = ""


def origin_of(key: str) -> Origin:
    """Who decided the value that `key` has in zarr's configuration now."""
    config = zarr.config
    origin, decided = Origin("default"), _MISSING
    for default in config.defaults:
        decided = _lookup(default, key, decided)
    for path in _configuration_files():
        found = _lookup(config.collect(paths=[str(path)], env={}), key)
        if found is not _MISSING:
            origin, decided = Origin("file", str(path)), found
    for name, value in os.environ.items():
        found = _lookup(config.collect(paths=[], env={name: value}), key)
        if found is not _MISSING:
            origin, decided = Origin("environment variable", name), found
    in_force = config.get(key, _MISSING)
    return origin if in_force is decided or in_force == decided else Origin("code")


def _lookup(values: Any, key: str, default: object = _MISSING) -> object:
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return default
        values = values[part]
    return values


def _configuration_files() -> Iterator[Path]:
    """The files that zarr's configuration reads, in its order."""
    for path in map(Path, zarr.config.paths):
        if path.is_dir():
            yield from sorted(p for p in path.iterdir() if p.suffix in (".json", ".yaml", ".yml"))
        elif path.is_file():
            yield path
