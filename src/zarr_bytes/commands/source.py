"""The source of a value of zarr's configuration.

zarr reads defaults, then files, then environment variables; code sets values last. A later value
replaces an earlier one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import zarr

if TYPE_CHECKING:
    from collections.abc import Iterator

_MISSING: Final = object()


@dataclass(frozen=True)
class Source:
    """The default, file, variable or code that decided a value of zarr's configuration.

    Attributes
    ----------
    kind : {"default", "file", "environment variable", "code"}
        "code" is any caller of ``zarr.config.set``.
    name : str
        The path of the file, the name of the variable, or empty.
    """

    kind: Literal["default", "file", "environment variable", "code"]
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "environment variable":
            return f"environment: {self.name}"
        return self.name or self.kind


def source_of(key: str) -> Source:
    """Source of the current value of `key` in zarr's configuration."""
    source, decided = [(Source("default"), _MISSING), *_given(key)][-1]
    in_force = zarr.config.get(key, _MISSING)
    # An array, as code may set, is equal to something in each element.
    is_equal = in_force is decided or (in_force == decided) is True
    return source if is_equal else Source("code")


def decided_by(key: str) -> str:
    """The source of the current value of `key`, in the words of a sentence."""
    source = source_of(key)
    match source.kind:
        case "default":
            return "the default" if key.startswith("zarr_bytes") else "zarr's default"
        case "code":
            return "set by zarr.config.set"
        case "file":
            return f"set in {source.name}"
    return f"set by the environment variable {source.name}"


def overridden(key: str) -> list[tuple[str, object]]:
    """Files whose value of `key` is replaced by the file of this package, and their values."""
    source, in_force = source_of(key), zarr.config.get(key, _MISSING)
    if Path(source.name).name != "zarr-bytes.yaml":
        return []
    before = takewhile(lambda given: given[0] != source, _given(key))
    return [(o.name, value) for o, value in before if o.kind == "file" and value != in_force]


def _given(key: str) -> Iterator[tuple[Source, object]]:
    """Each source that gives `key`, and its value."""
    for source, values in _sources():
        value: Any = values
        for name in key.split("."):
            value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is not _MISSING:
            yield source, value


def _sources() -> Iterator[tuple[Source, object]]:
    """Each source of zarr's configuration and its values, in the order in which zarr reads them."""
    config = zarr.config
    for default in config.defaults:
        yield Source("default"), default
    for path in map(Path, config.paths):
        files = sorted(path.iterdir()) if path.is_dir() else [path] * path.is_file()
        for file in files:
            if file == path or file.suffix in (".json", ".yaml", ".yml"):
                yield Source("file", str(file)), config.collect(paths=[str(file)], env={})
    for name, value in os.environ.items():
        yield Source("environment variable", name), config.collect(paths=[], env={name: value})
