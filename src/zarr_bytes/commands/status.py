"""`status`: reports whether zarr uses this package, and the source of each class and setting."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zarr.dtype import data_type_registry
from zarr.registry import get_codec_class, get_pipeline_class

from zarr_bytes.commands.result import (
    Result,
    Table,
    class_path,
    in_largest_exact_unit,
    is_package_installed,
    thousands_or_power_of_ten,
)
from zarr_bytes.data_type import DATA_TYPES
from zarr_bytes.data_type.real import ExtensionDataType
from zarr_bytes.errors import HOW_TO_INSTALL, MissingPackageError, describe_error
from zarr_bytes.settings import (
    CLASSES,
    CONFIGURATION,
    NOT_FOUND,
    PIPELINE,
    RESTART,
    SETTINGS,
    checked_value_or_default,
    explicit_settings,
    is_zarr_bytes_yaml_where_zarr_looks,
    messages_on_unknown_settings,
    name_of_function_that_sets,
    zarr_setting_or_default,
)
from zarr_bytes.zarr_versions import LOADS_DATA_TYPES, defaults_of_zarr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.commands.result import Cell, Line, OutputPart

_MISSING: Final = object()
_CODE: Final = "zarr.config.set"
_DEFAULT: Final = "default"
_UNKNOWN: Final = "unknown"  # if zarr's configuration doesn't show its defaults
_IN_ENVIRONMENT: Final = " in the environment"
_FOR_A_SHELL: Final = ("export ", "unset ")
_PACKAGES: Final = ("zarr-bytes", "zarr", "numpy", "ml_dtypes")
# The classes of this package, and zarr's settings that choose them, by the names of `InForce`.
_OWN_CLASSES: Final = CLASSES | {"pipeline": PIPELINE}
_KEYS: Final = {name: f"codecs.{name}" for name in CLASSES} | {"pipeline": "codec_pipeline.path"}
_PARTS_OF_CHUNKS: Final = (
    "are read in Zarr formats 2 and 3, if the array, or the inner chunks of its shards, have no"
    " compressor, and no codecs or filters other than `bytes`, `transpose`, and with zarr 3.3 or"
    " newer those that change each element by itself."
)
_NO_PARTS_IN_FORMAT_2: Final = (
    "has no codec `bytes`, so zarr-bytes reads no parts of its chunks with this pipeline: choose"
    f" {PIPELINE} for that."
)
_NEW_ARRAYS: Final = (
    "have zarr's own codec in their metadata, but zarr-bytes still reads and writes them."
)


@dataclass(frozen=True)
class InForce:
    """A class that zarr uses, or a setting.

    Attributes
    ----------
    name : str
        Name of a codec in metadata, "pipeline", or name of a setting.
    found : object
        The class, or the reason why there is none; or the value of the setting.
    source : str
        The source of the choice: "default", the path of a file, an environment variable,
        "zarr.config.set", or "zarr_bytes.config.set" if zarr's configuration doesn't accept
        settings of this package; "unknown" if zarr's configuration doesn't show its defaults.
    """

    name: str
    found: object
    source: str

    def _table_row(self, found: Cell) -> tuple[Cell, ...]:
        """The row of a table, with the cell for `found`."""
        return self.name, found, (self.source, "dim" if self.source == _DEFAULT else "")


@dataclass(frozen=True, repr=False)
class Status(Result):
    """The codecs, pipeline, data types and settings in force in this process.

    It prints as the tables of the command, and iterates over `codecs`.

    Attributes
    ----------
    is_active : bool
        Whether zarr uses this package for `bytes`, and all values of settings are permitted. If
        False, zarr reads and writes all arrays by itself, including arrays of format 2.
    versions : dict
        Versions by package.
    codecs : list of InForce
        The classes for `bytes` and `endian`, and the pipeline.
    data_types : dict
        The class of each data type of this package, or the reason why there is none, by name.
    settings : list of InForce
        Each setting of this package.
    problems, unknown, advice : list of str
        Messages on values of settings that are not permitted, messages on unknown settings, and
        advice if the package is not active.
    """

    is_active: bool
    versions: dict[str, str]
    codecs: list[InForce]
    data_types: dict[str, str]
    settings: list[InForce]
    problems: list[str]
    unknown: list[str]
    advice: list[str]

    def __iter__(self) -> Iterator[InForce]:
        return iter(self.codecs)

    def _iter_output_parts(self, *, in_full: bool = False) -> Iterator[OutputPart]:
        yield self._verdict_line()
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        yield ((versions, "dim"),)
        classes = [
            codec._table_row(
                (str(codec.found), "green" if codec.found == _OWN_CLASSES[codec.name] else "red")
            )
            for codec in self.codecs
        ]
        yield Table(("Codec", "Class", "Decided by"), classes)
        yield ("",)
        if self.is_active and self.codecs[-1].found == PIPELINE:
            yield ("Parts of chunks ", "bold"), _PARTS_OF_CHUNKS
            yield ("New arrays ", "bold"), _NEW_ARRAYS
        elif self.is_active:
            yield ("Zarr format 2 ", "bold"), _NO_PARTS_IN_FORMAT_2
        yield ("One array ", "bold"), "is explained by `zarr-bytes explain STORE '[0]'`."
        if not LOADS_DATA_TYPES:
            text = (
                f"need `import zarr_bytes` first. Without it, zarr {self.versions['zarr']} does not"
                ' open an array of bfloat16 or the like ("No Zarr data type found"), until it has'
                " opened or made another array."
            )
            yield ("Data types ", "bold"), (text, "yellow")
        if in_full:
            yield Table(("Data type", "Class"), list(self.data_types.items()))
        else:
            yield self._line_on_data_types()
        if (setter := name_of_function_that_sets(self.settings[0].name)) != "zarr.config.set":
            text = f"zarr {self.versions['zarr']} takes none of other packages."
            yield ("Settings ", "bold"), (f"are set by {setter}: {text}", "yellow")
        settings = [setting._table_row(_value_with_unit(setting)) for setting in self.settings]
        yield Table(("Setting", "Value", "Decided by"), settings)
        texts = [*self.problems, *self.unknown, *self.advice]
        if texts:
            yield ("",)
            yield (("What to do", "bold"),)
        for text in texts:
            yield (f"  {text}" if text.startswith(_FOR_A_SHELL) else text,)  # to be copied

    def _verdict_line(self) -> Line:
        if self.problems:
            return ("Not working:", "bold red"), " a setting is not permitted."
        if self.advice:
            return ("Not active:", "bold red"), " zarr does not use zarr-bytes."
        if self.unknown:
            return ("Active, but", "bold yellow"), f" {self.unknown[0]}."
        return ("Active:", "bold green"), " zarr reads and writes bytes through zarr-bytes."

    def _line_on_data_types(self) -> Line:
        classes = self.data_types.values()
        others = Counter(found for found in classes if not found.startswith("zarr_bytes."))
        own = f"{len(classes) - others.total()} of {len(classes)} by zarr-bytes"
        other = "".join(f"; {count} {found}" for found, count in others.items())
        return ("Data types: ", "bold"), own, (other, "yellow"), ("; --verbose lists them", "dim")


def _value_with_unit(setting: InForce) -> str:
    """The value of a setting; sizes are in binary units, other integers have separators."""
    if type(setting.found) is not int:
        return str(setting.found)
    if setting.name.endswith((".local", ".remote")):
        return in_largest_exact_unit(setting.found)
    return thousands_or_power_of_ten(setting.found)


def status() -> Status:
    """Report whether zarr uses this package in this process, and the source of that choice.

    The command ``zarr-bytes status`` calls this function.

    Returns
    -------
    Status
        The result prints as tables. ``is_active`` is the verdict.

    Examples
    --------
    >>> codec, *_ = status()
    >>> codec.name, codec.found
    ('bytes', 'zarr_bytes.codec.BytesCodec')
    """
    given = explicit_settings()
    codecs = [
        InForce(name, _class_path_or_error_text(name), source_of_setting(key))
        for name, key in _KEYS.items()
    ]
    problems = list(_iter_configuration_errors(given, codecs[-1]))
    advice = list(_iter_how_to_activate_unless_bytes_codec_is_chosen(codecs))
    return Status(
        is_active=not (problems or advice),
        versions={"Python": platform.python_version()}
        | {n: metadata.version(n) for n in _PACKAGES if is_package_installed(n.replace("-", "_"))},
        codecs=codecs,
        data_types={name: _data_type_class_path_or_reason(name) for name in DATA_TYPES},
        settings=[
            InForce(name, given.get(name, default), source_of_setting(name))
            for name, (default, _) in SETTINGS.items()
        ],
        problems=problems,
        unknown=list(messages_on_unknown_settings(given).values()),
        advice=advice,
    )


def _class_path_or_error_text(codec_name_or_pipeline: str) -> str:
    """The class that zarr uses for a codec or the pipeline; "none: " and the error if it fails."""
    name = codec_name_or_pipeline
    is_pipeline = name == "pipeline"
    try:
        return class_path(get_pipeline_class() if is_pipeline else get_codec_class(name))
    except Exception as error:  # noqa: BLE001 -- from zarr, for any value in its configuration
        return f"none: {describe_error(error)}"


def _data_type_class_path_or_reason(name: str) -> str:
    """The class that zarr uses for a data type, or the reason why there is none."""
    own = DATA_TYPES[name]
    registered = data_type_registry.contents.get(name)
    try:
        if issubclass(own, ExtensionDataType):
            own().to_native_dtype()
    except MissingPackageError as error:
        return f"without {error.name}: {HOW_TO_INSTALL[str(error.name)]}"
    return "unknown to zarr" if registered is None else class_path(registered)


def _iter_configuration_errors(explicit: Mapping[str, object], pipeline: InForce) -> Iterator[str]:
    """Messages on values of settings that are not permitted, and on a pipeline that fails.

    The messages are those of the errors that reading an array would raise.
    """
    for name in SETTINGS:
        try:
            checked_value_or_default(explicit, name)
        except (TypeError, ValueError) as error:
            yield str(error)
    if str(pipeline.found).startswith("none: "):
        section = zarr_setting_or_default("codec_pipeline")
        yield f"codec_pipeline.path is {section!r}: {pipeline.found}"


def _iter_how_to_activate_unless_bytes_codec_is_chosen(codecs: list[InForce]) -> Iterator[str]:
    """The advice if zarr uses another class for `bytes`: sentences, then lines for a shell."""
    others = [codec for codec in codecs if codec.found != _OWN_CLASSES[codec.name]]
    if codecs[0] not in others:
        return
    sources = list(dict.fromkeys(codec.source for codec in others))
    sentences = [_advice_on_source_of_other_class(source) for source in sources]
    # In a new process, the configuration file chooses the classes that nothing else chooses.
    if is_zarr_bytes_yaml_where_zarr_looks():
        others = [codec for codec in others if codec.source != _DEFAULT]
    if others:
        sentences.append("Run before Python starts:")
    yield " ".join(sentences)
    variables = {
        f"ZARR_{_KEYS[codec.name].replace('.', '__').upper()}": _OWN_CLASSES[codec.name]
        for codec in others
    }
    for source in sources:
        variable = source.removesuffix(_IN_ENVIRONMENT)
        if variable != source and variable not in variables:  # such as ZARR_CODECS
            yield f"unset {variable}"
    for variable, path in variables.items():
        yield f"export {variable}={path}"


def _advice_on_source_of_other_class(source: str) -> str:
    """The reason why a source hasn't chosen this package, or the remedy."""
    if source == _DEFAULT:
        text = RESTART if is_zarr_bytes_yaml_where_zarr_looks() else NOT_FOUND
        return f"{text[0].upper()}{text[1:]}."
    if source == _CODE:
        return f"Remove the call of {_CODE} that has chosen another class."
    if source == _UNKNOWN:
        return "Another class is chosen."
    return f"{source} has chosen another class."


def source_of_setting(setting_name: str) -> str:
    """The source of the current value of a setting of zarr or of this package.

    "default", the path of a file, an environment variable, the function that sets it, or "unknown",
    as in `InForce.source`.
    """
    is_own = setting_name in SETTINGS
    in_force = (
        CONFIGURATION.get(setting_name, _MISSING)
        if is_own
        else zarr_setting_or_default(setting_name, _MISSING)
    )
    if in_force is _MISSING:
        return _DEFAULT
    # Code, unless another source has this value; or a default that zarr's configuration hides.
    source = name_of_function_that_sets(setting_name) if is_own or defaults_of_zarr() else _UNKNOWN
    for name, values in _iter_sources():
        value: Any = values
        for part in setting_name.split("."):
            mapping = value if isinstance(value, Mapping) else {}
            value = mapping.get(part, mapping.get(part.replace("_", "-"), _MISSING))
        # The last source with this value: a variable may have been set after zarr read all of them.
        # Code may set a value that equals a default, or an array, whose `==` is elementwise.
        if value is in_force or (name != _DEFAULT and (value == in_force) is True):
            source = name
    return source


class _Source(NamedTuple):
    """A source of zarr's configuration, and all its values, nested by name."""

    name: str
    values: object


def _iter_sources() -> Iterator[_Source]:
    """Each source of zarr's configuration, in the order in which zarr reads them."""
    for default in defaults_of_zarr():
        yield _Source(_DEFAULT, default)
    config = CONFIGURATION
    for path in map(Path, config.paths):
        with suppress(OSError):  # for a folder of another user, which zarr skips, too
            if path.is_dir():
                suffixes = (".json", ".yaml", ".yml")
                files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in suffixes]
            else:
                files = [path] if path.is_file() else []
            for file in files:
                yield _Source(str(file), config.collect(paths=[str(file)], env={}))
    for name, value in os.environ.items():
        values = config.collect(paths=[], env={name: value})
        yield _Source(f"{name}{_IN_ENVIRONMENT}", values)
