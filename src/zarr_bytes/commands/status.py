"""`status`: whether zarr uses this package, and the origin of each class and setting."""

from __future__ import annotations

import platform
import warnings
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import zarr
from zarr.dtype import data_type_registry
from zarr.registry import get_codec_class, get_pipeline_class
from zarr.storage import LocalStore

from zarr_bytes.activation import CLASSES, PIPELINE, VARIABLES
from zarr_bytes.commands.origin import Origin, origin_of, overridden
from zarr_bytes.commands.reports import Result
from zarr_bytes.commands.text import class_path
from zarr_bytes.data_type.extension import ExtensionDataType
from zarr_bytes.data_type.names import DATA_TYPES
from zarr_bytes.errors import MissingPackageError
from zarr_bytes.settings import (
    SETTINGS,
    fill_values_are_lenient,
    number_of_mappings,
    partial_writes_enabled,
    pipeline_of_other_chains,
    reading_cost,
    unknown_settings,
)
from zarr_bytes.zarr_versions import LOADS_DATA_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CodecInForce", "DataType", "PipelineInForce", "Setting", "Status", "status"]

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
class CodecInForce:
    """The class that zarr uses for a codec name.

    Attributes
    ----------
    name : str
        Name of the codec in metadata.
    found, expected : str
        The class that zarr uses, or the reason why there is none; and the class of this package.
    origin : Origin
        The default, file, variable or code that decides the class.
    """

    name: str
    found: str
    expected: str
    origin: Origin

    @property
    def is_active(self) -> bool:
        """Whether the class is this package's."""
        return self.found == self.expected


@dataclass(frozen=True)
class PipelineInForce:
    """The codec pipeline that zarr's configuration names.

    Attributes
    ----------
    found : str
        The class of the pipeline.
    is_active : bool
        Whether the class is this package's.
    acts_for : str
        The arrays for which this package reads parts of chunks, in words.
    origin : Origin
        The default, file, variable or code that decides the class.
    """

    found: str
    is_active: bool
    acts_for: str
    origin: Origin


@dataclass(frozen=True)
class DataType:
    """The class that zarr has for a data type name, and the package missing for it, if any."""

    name: str
    found: str
    is_active: bool
    lacks: str | None


@dataclass(frozen=True)
class Setting:
    """A setting of this package, its value, and the origin of the value."""

    name: str
    value: object
    origin: Origin


@dataclass(frozen=True, repr=False)
class Status(Result):
    """The codecs, pipeline, data types and settings in force in this process.

    Prints as the tables of the command. A loop over it gives the `CodecInForce` of each codec name.

    Attributes
    ----------
    versions : dict
        Versions by package.
    codecs : list of CodecInForce
        The classes for `bytes` and `endian`.
    pipeline : PipelineInForce
        The pipeline in zarr's configuration.
    data_types : list of DataType
        Each data type of this package.
    data_types_need_import : bool
        Whether this version of zarr knows the data types only after ``import zarr_bytes``.
    settings : list of Setting
        Each setting of this package.
    new_arrays : str
        The codec of newly created arrays, in words.
    unknown : list of str
        Unknown settings and environment variables, each with the most similar known name.
    problems, advice : list of str
        Values of settings that are not permitted; and what to do if the package is not active.
    """

    versions: dict[str, str]
    codecs: list[CodecInForce]
    pipeline: PipelineInForce
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

    @property
    def is_in_order(self) -> bool:
        """Whether the package is active, and all settings are known."""
        return self.is_active and not self.unknown

    def __iter__(self) -> Iterator[CodecInForce]:
        return iter(self.codecs)

    def _document(self) -> dict[str, Any]:
        return {"active": self.is_active, **super()._document()}


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
    pipeline = zarr.config.get(_PIPELINE, "none")
    is_own = str(pipeline) == PIPELINE
    acts_for = _ACTS_FOR[is_own] if is_active else "are not read: every chunk is read whole"
    return Status(
        versions=dict(_versions()),
        codecs=codecs,
        pipeline=PipelineInForce(str(pipeline), is_own, acts_for, origin_of(_PIPELINE)),
        data_types=[_data_type(name) for name in DATA_TYPES],
        data_types_need_import=not LOADS_DATA_TYPES,
        settings=[
            Setting(name, zarr.config.get(name, default), origin_of(name))
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


def _codec(name: str) -> CodecInForce:
    try:
        found = class_path(get_codec_class(name))
    except (KeyError, ValueError) as error:  # no class of that name, or none at all
        found = f"none: {str(error).partition('. ')[0]}"
    except (AttributeError, TypeError):  # a value where a section should be
        found = f"none: codecs is {zarr.config.get('codecs')!r} in zarr's configuration"
    return CodecInForce(name, found, CLASSES[name], origin_of(f"codecs.{name}"))


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
    checks = (
        partial(reading_cost, LocalStore(".", read_only=True)),
        partial(reading_cost, None),
        partial_writes_enabled,
        fill_values_are_lenient,
        pipeline_of_other_chains,
        number_of_mappings,
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


def _advice(codecs: list[CodecInForce]) -> Iterator[str]:
    for codec in codecs:
        if codec.is_active:
            continue
        choose = f"export {VARIABLES[codec.name]}={codec.expected}"
        match codec.origin:
            case Origin("environment variable", name):
                yield f"unset {name}"
            case Origin("file", path):
                yield f"{path} sets codecs.{codec.name}: remove it there, or"
                yield choose
            case Origin("code"):
                yield f"code has called zarr.config.set for codecs.{codec.name}: remove that"
            case _:
                places = ", ".join(zarr.config.paths)
                yield f"zarr reads its configuration from {places}: zarr-bytes.yaml is in none."
                yield "Install into a virtual environment, or set it yourself:"
                yield choose
                if codec.name == "bytes":
                    yield f"export ZARR_CODEC_PIPELINE__PATH={PIPELINE}"
    for key in ("codecs.bytes", _PIPELINE):
        section, _, name = key.partition(".")
        for file, value in overridden(key):
            yield f"{file} sets {key}, and {origin_of(key).name} is read after it. To have the"
            yield "value of the first, put this line into ~/.config/zarr/zarr.yaml:"
            yield f"{section}: {{{name}: {value}}}"
