"""Who decided a value of zarr's configuration.

It is made of defaults, then files, then environment variables, each over the ones before, and then
of what code sets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zarr

from zarr_bytes.commands.in_force import Origin
from zarr_bytes.commands.text import nested

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["origin_of"]

_MISSING: Final = object()


def origin_of(key: str) -> Origin:
    """Who decided the value that `key` has in zarr's configuration now."""
    config, names = zarr.config, key.split(".")
    origin, decided = Origin("default"), _MISSING
    for default in config.defaults:
        decided = nested(default, *names, default=decided)
    for path in _configuration_files():
        found = nested(config.collect(paths=[str(path)], env={}), *names, default=_MISSING)
        if found is not _MISSING:
            origin, decided = Origin("file", str(path)), found
    for name, value in os.environ.items():
        found = nested(config.collect(paths=[], env={name: value}), *names, default=_MISSING)
        if found is not _MISSING:
            origin, decided = Origin("environment variable", name), found
    in_force = config.get(key, _MISSING)
    return origin if in_force is decided or in_force == decided else Origin("code")


def _configuration_files() -> Iterator[Path]:
    """The files that zarr's configuration reads, in its order."""
    for path in map(Path, zarr.config.paths):
        if path.is_dir():
            yield from sorted(p for p in path.iterdir() if p.suffix in (".json", ".yaml", ".yml"))
        elif path.is_file():
            yield path
