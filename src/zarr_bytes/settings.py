"""The settings, from zarr's configuration, and advice where it chooses nothing of this package.

`docs/guide/pipeline.md` says what each is for. The defaults were measured by `pipeline.py` and
`remote.py` of `tests/benchmarks`. A mapping keeps a file descriptor before Python 3.13. The codecs
and the pipeline are chosen in zarr's configuration, too, by ``etc/zarr/zarr-bytes.yaml`` of the
wheel; some ways of installing put it where zarr does not look.

Where zarr's configuration takes no settings of other packages, those of this package are in a
configuration of its own, which has the same files and environment variables.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import zarr

from zarr_bytes.errors import short_repr, warn_caller
from zarr_bytes.zarr_versions import PIPELINES, default_of_zarr, own_configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

CLASSES: Final = {"bytes": "zarr_bytes.codec.BytesCodec", "endian": "zarr_bytes.codec.EndianCodec"}
"""The class of each codec name, as zarr's configuration names it."""

PIPELINE: Final = "zarr_bytes.BatchedBytesPipeline"
"""The pipeline, as zarr's configuration names it under ``codec_pipeline.path``."""

RESTART: Final = "restart Python: zarr read its configuration before zarr-bytes was installed"
"""What to do where zarr would find the configuration file of this package now."""

NOT_FOUND: Final = "the configuration file zarr-bytes.yaml is not where zarr looks for it"
"""Why nothing has chosen this package elsewhere."""

_NOTICE: Final = "zarr-bytes is installed and zarr does not use it:"
_CODE: Final = (
    f'zarr.config.set({{"codecs.bytes": "{CLASSES["bytes"]}",'
    f' "codec_pipeline.path": "{PIPELINE}"}})'
)
_VARIABLES: Final = f"ZARR_CODECS__BYTES={CLASSES['bytes']} ZARR_CODEC_PIPELINE__PATH={PIPELINE}"


class RequestCost(NamedTuple):
    """The cost of a request, in bytes."""

    gap: int  # that is read to save one request
    max_request_nbytes: int  # that no request exceeds, except one for a whole chunk


DEFAULTS: Final = {"local": RequestCost(2**15, 2**30), "remote": RequestCost(2**18, 2**23)}
"""The default costs of a request, in bytes."""


SETTINGS: Final[dict[str, tuple[object, int | Sequence[object]]]] = {
    "zarr_bytes.partial_reads": (True, [True, False]),
    "zarr_bytes.partial_writes": (False, [True, False]),
    "zarr_bytes.gap.local": (DEFAULTS["local"].gap, 0),
    "zarr_bytes.gap.remote": (DEFAULTS["remote"].gap, 0),
    "zarr_bytes.largest_request.local": (DEFAULTS["local"].max_request_nbytes, 1),
    "zarr_bytes.largest_request.remote": (DEFAULTS["remote"].max_request_nbytes, 1),
    "zarr_bytes.fill_values": ("lenient", ["strict", "lenient"]),
    "zarr_bytes.other_chains": ("batched", list(PIPELINES)),
    "zarr_bytes.mappings": (1024 if sys.version_info >= (3, 13) else 128, 1),
    "zarr_bytes.index_cache": (0, 0),
}
"""The default of every setting, and the permitted values: some, or integers from this one on."""


# Made once, as zarr's is: what is set later in the environment is no part of it.
_own: Final = own_configuration()

_LOST: Final = (
    f"the configuration of zarr {zarr.__version__} takes no settings of other packages: set those"
    " of zarr-bytes by zarr_bytes.config.set({...}), since zarr.config.set fails or has no effect."
    " Those in the environment (ZARR_ZARR_BYTES__...) and in zarr's configuration files are in"
    " force, whatever zarr says of them"
)


def configuration() -> Any:
    """The configuration with the settings of this package: zarr's, or one of its own."""
    return zarr.config if _own is None else _own


def where_to_set(name: str) -> str:
    """The function that sets a setting of zarr or of this package, as it is written in code."""
    is_own = _own is not None and name.partition(".")[0] == "zarr_bytes"
    return "zarr_bytes.config.set" if is_own else "zarr.config.set"


def call_to_set(name: str, *, value: object) -> str:
    """The call that sets a setting, as it is written in code."""
    written = f'"{value}"' if isinstance(value, str) else repr(value)
    return f'{where_to_set(name)}({{"{name}": {written}}})'


def setting_of_zarr(name: str, default: Any = None) -> Any:
    """Value of a setting of zarr itself; `default` where this zarr has no such setting."""
    try:
        return zarr.config.get(name, default)
    except (AttributeError, LookupError, TypeError, ValueError):  # of a typed configuration
        return default


class Config:
    """The settings of this package, as ``zarr_bytes.config``.

    They are part of ``zarr.config``. A version of zarr whose configuration takes no settings of
    other packages leaves them to this package: they are then read from the same files and
    environment variables, and ``zarr_bytes.config.set`` is the way to change them in code. It works
    with every version of zarr.
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
            The same, with a double underscore for each dot.

        Returns
        -------
        context manager
            Restores the values from before, as that of ``zarr.config.set`` does. All threads share
            the settings.

        Raises
        ------
        ValueError
            If a name is not one of this package, such as ``array.order``.

        Examples
        --------
        >>> import zarr_bytes
        >>> with zarr_bytes.config.set({"zarr_bytes.gap.remote": 2**20}):
        ...     pass
        """
        given = dict(arg or {}) | {key.replace("__", "."): value for key, value in named.items()}
        for name in given:
            if name.partition(".")[0].replace("-", "_") != "zarr_bytes":
                raise ValueError(
                    f"{short_repr(name)} is no setting of zarr-bytes; permitted are names that"
                    " begin with `zarr_bytes.`, and zarr.config.set sets those of zarr"
                )
        changed: AbstractContextManager[object] = configuration().set(given)
        return changed


config: Final = Config()
"""The settings, for code that sets them."""


def setting(name: str) -> Any:
    """Value of a setting; an error if it is not permitted."""
    return checked_value(_given(), name)


def request_cost(where: Literal["local", "remote"]) -> RequestCost | None:
    """Cost of a request to a store, or None if partial reads are switched off."""
    given = _given()
    if not given:  # the usual case, asked for every chunk
        return DEFAULTS[where]
    if not checked_value(given, "zarr_bytes.partial_reads"):
        return None
    return RequestCost(
        gap=checked_value(given, f"zarr_bytes.gap.{where}"),
        max_request_nbytes=checked_value(given, f"zarr_bytes.largest_request.{where}"),
    )


def checked_value(given: Mapping[str, object], name: str) -> Any:
    """Value of a setting where these are given."""
    default, permitted = SETTINGS[name]
    found = given.get(name, default)
    if isinstance(permitted, int):
        if type(found) is int and found >= permitted:
            return min(found, 2**62)  # offsets, of 64 bits, are added to some
        text = f"is an integer from {permitted} on"
    else:
        words = {str(value).lower(): value for value in permitted}
        if (word := str(found).lower()) in words:
            return words[word]
        text = f"are {' and '.join(map(repr, permitted))}"
    # zarr would replace a ValueError where it reads fill values: see `FillValueError`.
    kind = TypeError if name == "zarr_bytes.fill_values" else ValueError
    raise kind(f"{name} is {short_repr(found)}; permitted {text}")


is_strict = ContextVar("is_strict", default=False)
"""Whether fill values are read as with "strict", whatever the setting is: in tasks of `check`."""

_warned: Final[set[str]] = set()


def _given() -> dict[str, object]:
    """As `given_settings`; warns once of each unknown one, and where zarr takes none."""
    given = given_settings()
    if _own is not None and _LOST not in _warned:
        _warned.add(_LOST)
        warn_caller(_LOST)
    for name, sentence in unknown_settings(given).items():
        if name not in _warned:
            _warned.add(name)
            warn_caller(f"{sentence}; it has no effect")
    return given


def unknown_settings(given: Mapping[str, object]) -> dict[str, str]:
    """A sentence about each name that is no setting."""
    return {
        name: f"the setting `{name}` is not known (known: {', '.join(SETTINGS)})"
        for name in given
        if name not in SETTINGS
    }


def given_settings() -> dict[str, object]:
    """Values of the configuration under ``zarr_bytes``, by name."""
    found = (zarr.config if _own is None else _own).get("zarr_bytes", {})
    return {} if found == {} else dict(_leaves("zarr_bytes", found))  # the usual case is fast


def _leaves(name: str, found: object) -> Iterator[tuple[str, object]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from _leaves(f"{name}.{key}".replace("-", "_"), value)
    else:
        yield name, found


def has_configuration_file() -> bool:
    """Whether the configuration file of this package is where zarr looks for such files."""
    files = [f"{folder}/zarr-bytes.yaml" for folder in configuration().paths]
    return any(map(os.path.isfile, files))  # False in a folder of another user, unlike `Path`'s


def say_where_undecided() -> None:
    """Log how to activate the package, where nothing has chosen a codec."""
    # No warning: where these are errors, the array for which zarr imports this would not open.
    # The very object of the defaults: whoever chooses zarr's class on purpose sets an equal one.
    default = default_of_zarr("codecs.bytes")
    if default is not None and setting_of_zarr("codecs.bytes") is default:
        if has_configuration_file():
            advice = f"{RESTART}.\n  Or in this process: {_CODE}"
        else:
            in_code = f"Before or after zarr_bytes is imported: {_CODE}"
            advice = f"{NOT_FOUND}.\n  {in_code}\n  Or in the environment: {_VARIABLES}"
        logging.getLogger("zarr_bytes").warning("%s %s", _NOTICE, advice)
