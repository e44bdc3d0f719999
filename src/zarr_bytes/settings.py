"""The settings, from zarr's configuration, and advice if it doesn't choose this package.

`docs/guide/pipeline.md` describes each setting. The defaults were measured: the costs of local
requests with `tests/benchmarks/pipeline.py`, and of remote requests with
`tests/benchmarks/remote.py`. Before Python 3.13, a mapping keeps a file descriptor, so fewer
mappings are kept.

The codecs and the pipeline are chosen in zarr's configuration, too. The wheel brings
``etc/zarr/zarr-bytes.yaml`` for that; some ways of installing put it where zarr doesn't look.

If zarr's configuration doesn't accept settings of other packages, the settings of this package are
in a separate configuration with the same files and environment variables.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import zarr

from zarr_bytes.errors import short_repr, warn_caller
from zarr_bytes.zarr_versions import (
    PIPELINES,
    new_configuration_unless_zarr_takes_settings,
    zarr_default_or_none,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

CLASSES: Final = {"bytes": "zarr_bytes.codec.BytesCodec", "endian": "zarr_bytes.codec.EndianCodec"}
"""The class of each codec name, as zarr's configuration names it."""

PIPELINE: Final = "zarr_bytes.BatchedBytesPipeline"
"""The pipeline, as zarr's configuration names it under ``codec_pipeline.path``."""

RESTART: Final = "restart Python: zarr read its configuration before zarr-bytes was installed"
"""Advice if zarr didn't find the configuration file of this package, but would find it now."""

NOT_FOUND: Final = "the configuration file zarr-bytes.yaml is not where zarr looks for it"
"""The reason if zarr would not find the configuration file now either."""

_NOTICE: Final = "zarr-bytes is installed and zarr does not use it:"
_CALL_TO_CHOOSE: Final = (
    f'zarr.config.set({{"codecs.bytes": "{CLASSES["bytes"]}",'
    f' "codec_pipeline.path": "{PIPELINE}"}})'
)
_VARIABLES_TO_CHOOSE: Final = (
    f"ZARR_CODECS__BYTES={CLASSES['bytes']} ZARR_CODEC_PIPELINE__PATH={PIPELINE}"
)


class RequestCost(NamedTuple):
    """The cost of a request, in bytes that could be read in the same time."""

    gap: int  # largest gap between two ranges that is read, to save one request
    max_request_nbytes: int  # largest request, except requests for whole chunks


class CostSettingNames(NamedTuple):
    """Names of the settings for the cost of a request."""

    gap: str
    max_request_nbytes: str


CostKind: TypeAlias = Literal["local", "zip file", "local store", "remote"]
"""The location of bytes: files that are opened here, a zip file, another store on this machine
whose `get` is called, or elsewhere."""

DEFAULTS: Final[dict[CostKind, RequestCost]] = {
    "local": RequestCost(2**15, 2**30),
    "zip file": RequestCost(2**18, 2**24),
    "local store": RequestCost(2**20, 2**24),
    "remote": RequestCost(2**16, 2**23),
}
"""The default costs of a request, by kind of store.

A store that is called returns new memory. Up to some 16 MiB, this is memory that was used before;
larger memory comes from the system, which clears it, and that takes longer than copying the bytes.
"""


class Setting(NamedTuple):
    """A setting of this package."""

    default: object
    permitted: int | Sequence[object]  # the smallest permitted integer, or all permitted values


SETTINGS: Final = {
    "zarr_bytes.partial_reads": Setting(default=True, permitted=[True, False]),
    "zarr_bytes.partial_writes": Setting(default=False, permitted=[True, False]),
    "zarr_bytes.gap.local": Setting(DEFAULTS["local"].gap, 0),
    "zarr_bytes.gap.remote": Setting(DEFAULTS["remote"].gap, 0),
    "zarr_bytes.largest_request.local": Setting(DEFAULTS["local"].max_request_nbytes, 1),
    "zarr_bytes.largest_request.remote": Setting(DEFAULTS["remote"].max_request_nbytes, 1),
    "zarr_bytes.small_requests": Setting(32, 1),
    "zarr_bytes.fill_values": Setting("lenient", ["strict", "lenient"]),
    "zarr_bytes.other_chains": Setting("batched", list(PIPELINES)),
    "zarr_bytes.mappings": Setting(1024 if sys.version_info >= (3, 13) else 128, 1),
    "zarr_bytes.index_cache": Setting(0, 0),
}
"""Every setting, by name."""


# None if zarr's configuration accepts the settings of this package. Made once, like zarr's: later
# changes of the environment have no effect.
_own_configuration: Final = new_configuration_unless_zarr_takes_settings()
CONFIGURATION: Final[Any] = zarr.config if _own_configuration is None else _own_configuration
"""The configuration with the settings of this package: zarr's, or a separate one."""

_SEPARATE_CONFIGURATION_WARNING: Final = (
    f"the configuration of zarr {zarr.__version__} takes no settings of other packages: change the"
    " settings of zarr-bytes with zarr_bytes.config.set({...}), since zarr.config.set fails or has"
    " no effect. Settings in the environment (ZARR_ZARR_BYTES__...) and in zarr's configuration"
    " files are in force, even if zarr warns about them"
)


def name_of_function_that_sets(setting_name: str) -> str:
    """Name of the function that sets a setting of zarr or of this package, as in code.

    "zarr.config.set", or "zarr_bytes.config.set".
    """
    is_setting_of_package = setting_name.partition(".")[0] == "zarr_bytes"
    if _own_configuration is not None and is_setting_of_package:
        return "zarr_bytes.config.set"
    return "zarr.config.set"


def code_that_sets(setting_name: str, *, value: object) -> str:
    """The text of a call that sets a setting of zarr or of this package, for messages."""
    literal = f'"{value}"' if isinstance(value, str) else repr(value)
    return f'{name_of_function_that_sets(setting_name)}({{"{setting_name}": {literal}}})'


def zarr_setting_or_default(setting_name: str, default: Any = None) -> Any:
    """Value of a setting of zarr itself; `default` if this zarr has no such setting.

    The value is not checked, and nothing is raised.
    """
    try:
        return zarr.config.get(setting_name, default)
    except (AttributeError, LookupError, TypeError, ValueError):  # of a typed configuration
        return default


class Config:
    """The settings of this package, as ``zarr_bytes.config``.

    The settings are part of ``zarr.config``. If the configuration of a zarr version doesn't accept
    settings of other packages, this package reads them from the files and environment variables of
    zarr, and code changes them with ``zarr_bytes.config.set``, which works with every version of
    zarr.
    """

    def set(
        self, arg: Mapping[str, object] | None = None, **named: object
    ) -> AbstractContextManager[object]:
        """Set settings for this process, or in a ``with`` statement for its block.

        Parameters
        ----------
        arg : mapping, optional
            Values by name, such as ``{"zarr_bytes.gap.remote": 2**20}``.
        **named
            Values by name, with a double underscore for each dot.

        Returns
        -------
        context manager
            Restores the previous values, like the context manager of ``zarr.config.set``. All
            threads share the settings.

        Raises
        ------
        ValueError
            If a name isn't the name of a setting of this package, such as ``array.order``.

        Examples
        --------
        >>> import zarr_bytes
        >>> with zarr_bytes.config.set({"zarr_bytes.gap.remote": 2**20}):
        ...     pass
        """
        values = dict(arg or {}) | {key.replace("__", "."): value for key, value in named.items()}
        for name in values:
            if name.partition(".")[0].replace("-", "_") != "zarr_bytes":
                raise ValueError(
                    f"{short_repr(name)} is not a setting of zarr-bytes; permitted are names that"
                    " begin with `zarr_bytes.`; use zarr.config.set for settings of zarr"
                )
        restoring: AbstractContextManager[object] = CONFIGURATION.set(values)
        return restoring


config: Final = Config()
"""The settings, for code that sets them."""


def checked_setting(setting_name: str) -> Any:
    """Value of a setting of this package, or its default; a ValueError if it is not permitted.

    The error is a TypeError for ``zarr_bytes.fill_values``. Warns once for each unknown setting.
    """
    return checked_value_or_default(_explicit_settings_after_warnings(), setting_name)


def request_cost_or_none_if_partial_reads_are_off(kind: CostKind) -> RequestCost | None:
    """Cost of a request to a store of this kind; None if partial reads are switched off.

    Raises and warns like `checked_setting`.
    """
    default = DEFAULTS[kind]
    values = _explicit_settings_after_warnings()
    if not values:  # the usual case, checked for every chunk
        return default
    if not checked_value_or_default(values, "zarr_bytes.partial_reads"):
        return None
    names = names_of_cost_settings(kind)
    return RequestCost(
        *[
            checked_value_or_default(values, name) if name in values else default_value
            for name, default_value in zip(names, default, strict=True)
        ]
    )


def names_of_cost_settings(kind: CostKind) -> CostSettingNames:
    """Names of the settings for the cost of a request to a store of this kind."""
    place = "remote" if kind == "remote" else "local"
    return CostSettingNames(f"zarr_bytes.gap.{place}", f"zarr_bytes.largest_request.{place}")


def checked_value_or_default(explicit: Mapping[str, object], setting_name: str) -> Any:
    """Value of a setting in the `explicit_settings`, or its default.

    Permitted values may also be texts, in upper or lower case. Other values raise the errors of
    `checked_setting`.
    """
    default, permitted = SETTINGS[setting_name]
    if setting_name not in explicit:
        return default
    value = explicit[setting_name]
    if isinstance(permitted, int):
        if type(value) is int and value >= permitted:
            return min(value, 2**62)  # some values are added to offsets of 64 bits
        permitted_text = f"is an integer from {permitted} on"
    else:
        permitted_by_word = {str(one).lower(): one for one in permitted}
        if (word := str(value).lower()) in permitted_by_word:
            return permitted_by_word[word]
        permitted_text = f"are {' and '.join(map(repr, permitted))}"
    # zarr would replace a ValueError when it reads fill values: see `FillValueError`.
    error_class = TypeError if setting_name == "zarr_bytes.fill_values" else ValueError
    raise error_class(f"{setting_name} is {short_repr(value)}; permitted {permitted_text}")


reads_fill_values_strictly = ContextVar("reads_fill_values_strictly", default=False)
"""Whether fill values are strict in spite of the setting: in tasks of `check`."""
# The warnings so far: names of unknown settings, and the text of the other warning.
_warned: Final[set[str]] = set()


def _explicit_settings_after_warnings() -> dict[str, object]:
    """`explicit_settings`, after warnings that are given once in a process.

    There is one warning if zarr's configuration doesn't accept settings of this package, and one
    for each unknown setting.
    """
    is_unset = CONFIGURATION.get("zarr_bytes", {}) == {}
    if is_unset and _own_configuration is None:  # the usual case, checked for every chunk
        return {}
    values = explicit_settings()
    if _own_configuration is not None and _SEPARATE_CONFIGURATION_WARNING not in _warned:
        _warned.add(_SEPARATE_CONFIGURATION_WARNING)
        warn_caller(_SEPARATE_CONFIGURATION_WARNING)
    for name, sentence in messages_on_unknown_settings(values).items():
        if name not in _warned:
            _warned.add(name)
            warn_caller(f"{sentence}; it has no effect")
    return values


def messages_on_unknown_settings(explicit: Mapping[str, object]) -> dict[str, str]:
    """A sentence for each unknown setting, by its name; empty if all settings are known."""
    return {
        name: f"the setting `{name}` is not known (known: {', '.join(SETTINGS)})"
        for name in explicit
        if name not in SETTINGS
    }


def explicit_settings() -> dict[str, object]:
    """All values that are set under ``zarr_bytes``, by name; not checked, and without defaults."""
    return dict(_iter_leaf_settings("zarr_bytes", CONFIGURATION.get("zarr_bytes", {})))


def _iter_leaf_settings(dotted_name: str, section_or_value: object) -> Iterator[tuple[str, object]]:
    """The dotted name and value of each setting in a section, or of a single value."""
    if isinstance(section_or_value, Mapping):
        for key, value in section_or_value.items():
            yield from _iter_leaf_settings(f"{dotted_name}.{key}".replace("-", "_"), value)
    else:
        yield dotted_name, section_or_value


def is_zarr_bytes_yaml_where_zarr_looks() -> bool:
    """Whether the configuration file of this package is where zarr looks for such files."""
    files = [f"{folder}/zarr-bytes.yaml" for folder in CONFIGURATION.paths]
    return any(map(os.path.isfile, files))  # False in a folder of another user, unlike `Path`'s


def log_how_to_activate_unless_bytes_codec_is_chosen() -> None:
    """Log how to activate the package, if nothing has chosen a class for the codec ``bytes``."""
    # Not a warning: if warnings are errors, the array for which zarr imports this wouldn't open.
    # Compared by identity with the default: a choice of zarr's class on purpose sets an equal one.
    default = zarr_default_or_none("codecs.bytes")
    if default is not None and zarr_setting_or_default("codecs.bytes") is default:
        if is_zarr_bytes_yaml_where_zarr_looks():
            advice = f"{RESTART}.\n  Or in this process: {_CALL_TO_CHOOSE}"
        else:
            in_code = f"Before or after zarr_bytes is imported: {_CALL_TO_CHOOSE}"
            advice = f"{NOT_FOUND}.\n  {in_code}\n  Or in the environment: {_VARIABLES_TO_CHOOSE}"
        logging.getLogger("zarr_bytes").warning("%s %s", _NOTICE, advice)
