"""`status`: whether zarr uses this package, and the source of each class and setting."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import zarr
from zarr.dtype import data_type_registry
from zarr.registry import get_codec_class, get_pipeline_class

from zarr_bytes.commands.result import Result, Table, class_path, in_units
from zarr_bytes.data_type import DATA_TYPES
from zarr_bytes.data_type.real import ExtensionDataType
from zarr_bytes.errors import HOW_TO_INSTALL, MissingPackageError
from zarr_bytes.settings import (
    CLASSES,
    PIPELINE,
    SETTINGS,
    VARIABLES,
    fill_values_are_lenient,
    number_of_indexes,
    number_of_mappings,
    partial_writes_enabled,
    pipeline_of_other_chains,
    reading_cost,
    unknown_settings,
)
from zarr_bytes.zarr_versions import LOADS_DATA_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zarr_bytes.commands.result import Cell, Line, Part

_MISSING: Final = object()
_PACKAGES: Final = ("zarr-bytes", "zarr", "numpy", "ml_dtypes")
_PIPELINE: Final = "codec_pipeline.path"
_ACTS_FOR: Final = {  # with this package's pipeline, or another
    False: "are read where `bytes` is the only codec of an array",
    True: "are read where an array has `transpose` codecs and `bytes` alone, or shards of these",
}
_NEW: Final = {
    False: "zarr's own codec until they are reopened; serializer=zarr_bytes.BytesCodec() gives"
    " them this one at once",
    True: "zarr's own codec in their metadata, and zarr-bytes reads and writes them all the same",
}
_SWITCHED_OFF: Final = (
    "zarr's own codec, also when they are reopened; serializer=zarr_bytes.BytesCodec() gives them"
    " this one"
)


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


@dataclass(frozen=True)
class InForce:
    """The class that zarr uses for a codec name, or as its pipeline.

    Attributes
    ----------
    name : str
        Name of the codec in metadata, or "pipeline".
    found, expected : str
        The class that zarr uses, or the reason why there is none; and the class of this package.
    source : Source
        The default, file, variable or code that decides the class.
    """

    name: str
    found: str
    expected: str
    source: Source

    @property
    def is_active(self) -> bool:
        """Whether the class is this package's."""
        return self.found == self.expected


@dataclass(frozen=True)
class DataType:
    """The class that zarr has for a data type name, and the package missing for it, if any."""

    name: str
    found: str
    is_active: bool
    lacks: str | None


@dataclass(frozen=True)
class Setting:
    """A setting of this package, its value, and the source of the value."""

    name: str
    value: object
    source: Source


@dataclass(frozen=True, repr=False)
class Status(Result):
    """The codecs, pipeline, data types and settings in force in this process.

    Prints as the tables of the command. A loop over it gives the `InForce` of each codec name.

    Attributes
    ----------
    versions : dict
        Versions by package.
    codecs : list of InForce
        The classes for `bytes` and `endian`.
    pipeline : InForce
        The pipeline in zarr's configuration.
    acts_for : str
        The arrays for which this package reads parts of chunks, in words.
    data_types : list of DataType
        Each data type of this package.
    data_types_need_import : bool
        Whether this version of zarr knows the data types only after ``import zarr_bytes``.
    settings : list of Setting
        Each setting of this package.
    new_arrays : str
        The codec of newly created arrays, in words.
    unknown : list of str
        Unknown settings.
    problems, advice : list of str
        Values of settings that are not permitted; and what to do if the package is not active.
    """

    versions: dict[str, str]
    codecs: list[InForce]
    pipeline: InForce
    acts_for: str
    data_types: list[DataType]
    data_types_need_import: bool
    settings: list[Setting]
    new_arrays: str
    unknown: list[str]
    problems: list[str]
    advice: list[str]

    @property
    def is_active(self) -> bool:
        """Whether zarr uses this package for `bytes`, and all values of settings are permitted."""
        return self.codecs[0].is_active and not self.problems

    def __iter__(self) -> Iterator[InForce]:
        return iter(self.codecs)

    def _document(self) -> dict[str, Any]:
        return {"active": self.is_active, **super()._document()}

    def _parts(self, *, in_full: bool = False) -> Iterator[Part]:
        yield self._verdict()
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        yield ((versions, "dim"),)
        rows: list[tuple[Cell, ...]] = [
            (codec.name, (codec.found, "green" if codec.is_active else "red"), _cell(codec.source))
            for codec in (*self.codecs, self.pipeline)
        ]
        yield Table(("Codec", "Class", "Decided by"), rows)
        yield ("",)
        yield ("Parts of chunks ", "bold"), f"{self.acts_for}."
        yield ("New arrays ", "bold"), f"have {self.new_arrays}."
        yield ("One array ", "bold"), "is explained by `zarr-bytes explain STORE '[0]'`."
        if self.data_types_need_import:
            text = f"zarr {self.versions['zarr']} does not load them by itself."
            yield ("Data types ", "bold"), (f"need `import zarr_bytes` first: {text}", "yellow")
        yield _of_data_types(self.data_types, in_full=in_full)
        settings = [(s.name, _in_units(s), _cell(s.source)) for s in self.settings]
        yield Table(("Setting", "Value", "Decided by"), settings)
        if texts := (*self.problems, *self.unknown, *self.advice):
            yield from (("",), (("What to do", "bold"),))
        for text in texts:
            is_copied = text.startswith(("export ", "unset "))  # commands
            yield (f"  {text}" if is_copied else text,)

    def _verdict(self) -> Line:
        if self.is_active and self.unknown:
            first, *others = self.unknown
            more = f", and {len(others)} more below" if others else ""
            return ("Active, but", "bold yellow"), f" {first}{more}."
        if self.is_active:
            lacking = " and ".join(codec.name for codec in self.codecs if not codec.is_active)
            but = f" Not so for {lacking}." if lacking else ""
            does = " zarr reads and writes bytes through zarr-bytes."
            return ("Active:", "bold green"), does + but
        if self.problems:
            return ("Not working:", "bold red"), " a setting is not permitted."
        return ("Not active:", "bold red"), " zarr does not use zarr-bytes."


def _cell(source: Source) -> Cell:
    return str(source), "dim" if source.kind == "default" else ""


def _in_units(setting: Setting) -> str:
    is_size = setting.name.startswith(("zarr_bytes.gap.", "zarr_bytes.largest_request."))
    value = setting.value
    return in_units(value) if is_size and type(value) is int else str(value)


def _of_data_types(data_types: list[DataType], *, in_full: bool) -> Part:
    """Each data type and its class; or how many have one of this package, and why others don't."""
    lacks = {d.name: f"{d.lacks}: {HOW_TO_INSTALL[d.lacks]}" for d in data_types if d.lacks}
    others = [d.name for d in data_types if not (d.is_active or d.lacks)]
    if in_full:
        rows: list[tuple[Cell, ...]] = [
            (d.name, (f"lacks {lacks[d.name]}", "yellow") if d.lacks else d.found)
            for d in data_types
        ]
        return Table(("Data type", "Class"), rows)
    but = f"; {len(lacks)} lack {next(iter(lacks.values()))}" if lacks else ""
    but += f"; by others: {', '.join(others)}" if others else ""
    found = f"{len(data_types) - len(lacks) - len(others)} of {len(data_types)} by zarr-bytes"
    return ("Data types: ", "bold"), found, (but, "yellow"), ("; --verbose lists them", "dim")


def status() -> Status:
    """Report whether zarr uses this package in this process, and what decides that.

    The command ``zarr-bytes status`` calls this function.

    Returns
    -------
    Status
        The result prints as tables. ``is_active`` is the verdict.

    Examples
    --------
    >>> [codec.found for codec in status()]
    ['zarr_bytes.codec.BytesCodec', 'zarr_bytes.codec.EndianCodec']
    """
    codecs = [_codec(name) for name in CLASSES]
    is_active = codecs[0].is_active
    found = str(zarr.config.get(_PIPELINE, "none"))
    pipeline = InForce("pipeline", found, PIPELINE, source_of(_PIPELINE))
    is_own = pipeline.is_active
    return Status(
        versions=dict(_versions()),
        codecs=codecs,
        pipeline=pipeline,
        acts_for=_ACTS_FOR[is_own] if is_active else "are not read: every chunk is read whole",
        data_types=[_data_type(name) for name in DATA_TYPES],
        data_types_need_import=not LOADS_DATA_TYPES,
        settings=[
            Setting(name, zarr.config.get(name, default), source_of(name))
            for name, default in SETTINGS.items()
        ],
        new_arrays=_NEW[is_own] if is_active else _SWITCHED_OFF,
        unknown=unknown_settings(),
        problems=list(dict.fromkeys(_problems())),
        advice=list(dict.fromkeys(_advice(codecs))),
    )


def _versions() -> Iterator[tuple[str, str]]:
    yield "Python", platform.python_version()
    for package in _PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            yield package, "not installed"


def _codec(name: str) -> InForce:
    try:
        found = class_path(get_codec_class(name))
    except (KeyError, ValueError) as error:  # no class of that name, or none at all
        found = f"none: {str(error).partition('. ')[0]}"
    except (AttributeError, TypeError):  # a value where a section should be
        found = f"none: codecs is {zarr.config.get('codecs')!r} in zarr's configuration"
    return InForce(name, found, CLASSES[name], source_of(f"codecs.{name}"))


def _data_type(name: str) -> DataType:
    expected, registered = DATA_TYPES[name], data_type_registry.contents.get(name)
    lacks = None
    try:
        if issubclass(expected, ExtensionDataType):
            expected().to_native_dtype()
    except MissingPackageError as error:
        lacks = error.name
    found = "none" if registered is None else class_path(registered)
    return DataType(name, found, registered is expected, lacks)


def _problems() -> Iterator[str]:
    """Errors in the values of settings, in the words that reading an array would raise."""
    checks: tuple[Callable[[], object], ...] = (
        partial(reading_cost, "local"),
        partial(reading_cost, "remote"),
        partial_writes_enabled,
        fill_values_are_lenient,
        pipeline_of_other_chains,
        number_of_mappings,
        number_of_indexes,
        get_pipeline_class,  # its error names the known pipelines
    )
    for check in checks:
        try:
            with warnings.catch_warnings(action="ignore"):  # unknown settings are listed anyway
                check()
        except (TypeError, ValueError) as error:
            yield str(error)
        except LookupError:  # a value where the section should be
            yield f"codec_pipeline is {zarr.config.get('codec_pipeline')!r}, without a path"


def _advice(codecs: list[InForce]) -> Iterator[str]:
    for codec in codecs:
        if codec.is_active:
            continue
        choose = f"export {VARIABLES[codec.name]}={codec.expected}"
        match codec.source:
            case Source("environment variable", name):
                yield f"unset {name}"
            case Source("file", path):
                yield f"{path} sets codecs.{codec.name}: remove it there, or"
                yield choose
            case Source("code"):
                yield f"code has called zarr.config.set for codecs.{codec.name}: remove that"
            case _:
                places = ", ".join(zarr.config.paths)
                yield f"zarr reads its configuration from {places}: zarr-bytes.yaml is in none."
                yield "Install into a virtual environment, or set it yourself:"
                yield choose
                if codec.name == "bytes":
                    yield f"export ZARR_CODEC_PIPELINE__PATH={PIPELINE}"


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
    return {
        "default": "the default" if key.startswith("zarr_bytes") else "zarr's default",
        "file": f"set in {source.name}",
        "environment variable": f"set by the environment variable {source.name}",
        "code": "set by zarr.config.set",
    }[source.kind]


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
