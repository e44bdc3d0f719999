"""Whether zarr uses this package, and who decided that."""

from __future__ import annotations

import platform
import warnings
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import zarr
from zarr.dtype import ZDType, data_type_registry
from zarr.registry import get_codec_class, get_pipeline_class
from zarr.storage import LocalStore

from zarr_bytes.activation import CLASSES, VARIABLES
from zarr_bytes.commands.in_force import (
    CodecInForce,
    DataType,
    Origin,
    PipelineInForce,
    Setting,
    Status,
)
from zarr_bytes.commands.origin import origin_of
from zarr_bytes.data_type.extension import ExtensionDataType
from zarr_bytes.data_type.names import DATA_TYPES
from zarr_bytes.errors import MissingPackageError
from zarr_bytes.settings import (
    SETTINGS,
    fill_values_are_lenient,
    partial_writes_enabled,
    pipeline_of_other_chains,
    reading_cost,
    unknown_settings,
)
from zarr_bytes.zarr_versions import LOADS_DATA_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["status"]

_PACKAGES: Final = ("zarr-bytes", "zarr", "numpy", "ml_dtypes")
_PIPELINE: Final = "zarr_bytes.BytesPipeline"
_ALONE: Final = "are read where `bytes` is the only codec of an array"
_BEHIND_TRANSPOSE: Final = "are read where an array has `transpose` codecs, `bytes` and no other"
_SERIALIZER: Final = "serializer=zarr_bytes.BytesCodec() gives them this one"


def status() -> Status:
    """Does zarr use this package in this process, and who decided that.

    What the command ``zarr-bytes status`` does.

    Returns
    -------
    Status
        It prints as tables. ``is_active`` is the verdict.

    Examples
    --------
    >>> [codec.found for codec in status()]
    ['zarr_bytes.codec.BytesCodec', 'zarr_bytes.codec.EndianCodec']
    """
    codecs = [_codec(name) for name in CLASSES]
    problems = list(dict.fromkeys(_problems()))
    return Status(
        versions=dict(_versions()),
        codecs=codecs,
        pipeline=_pipeline(is_active=codecs[0].is_active),
        data_types=[_data_type(name) for name in DATA_TYPES],
        data_types_need_import=not LOADS_DATA_TYPES,
        settings=[
            Setting(name, zarr.config.get(name, default), origin_of(name))
            for name, default in SETTINGS.items()
        ],
        new_arrays=_new_arrays(is_active=codecs[0].is_active),
        unknown=unknown_settings(),
        problems=problems,
        advice=list(dict.fromkeys(_advice(codecs))),
    )


def _new_arrays(*, is_active: bool) -> str:
    if is_active:
        return f"zarr's own codec until they are reopened; {_SERIALIZER} at once"
    return f"zarr's own codec, also when they are reopened; {_SERIALIZER}"


def _pipeline(*, is_active: bool) -> PipelineInForce:
    key = "codec_pipeline.path"
    found = zarr.config.get(key, "none")
    is_ours = found == _PIPELINE
    acts_for = (
        (_BEHIND_TRANSPOSE if is_ours else _ALONE)
        if is_active
        else "are not read: every chunk is read whole"
    )
    return PipelineInForce(str(found), is_ours, acts_for, origin_of(key))


def _versions() -> Iterator[tuple[str, str]]:
    yield "Python", platform.python_version()
    for package in _PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            yield package, "not installed"


def _path_of(class_: type) -> str:
    return f"{class_.__module__}.{class_.__qualname__}"


def _codec(name: str) -> CodecInForce:
    try:
        found = _path_of(get_codec_class(name))
    except (KeyError, ValueError) as error:  # no class of that name, or none at all
        found = "none: " + str(error).partition(". ")[0]
    except (AttributeError, TypeError):  # a setting in place of a section
        found = f"none: codecs is {zarr.config.get('codecs')!r} in zarr's configuration"
    return CodecInForce(name, found, CLASSES[name], origin_of(f"codecs.{name}"))


def _data_type(name: str) -> DataType:
    registered = data_type_registry.contents.get(name)
    return DataType(
        name=name,
        found="none" if registered is None else _path_of(registered),
        is_active=registered is DATA_TYPES[name],
        lacks=_lacking_package(DATA_TYPES[name]),
    )


def _lacking_package(data_type: type[ZDType[Any, Any]]) -> str | None:
    """The package that a data type needs and that is not installed."""
    try:
        if issubclass(data_type, ExtensionDataType):
            data_type().to_native_dtype()
    except MissingPackageError as error:
        return error.name
    return None


def _problems() -> Iterator[str]:
    """What is wrong with the values of settings, as reading an array would say it."""
    checks = (
        partial(reading_cost, LocalStore(".", read_only=True)),
        partial(reading_cost, None),
        partial_writes_enabled,
        fill_values_are_lenient,
        pipeline_of_other_chains,
        get_pipeline_class,  # it names those that there are
    )
    for check in checks:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of unknown settings, which are listed
                check()
        except (TypeError, ValueError) as error:
            yield str(error)


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
                yield "Install into a virtual environment, or say it yourself:"
                yield choose
