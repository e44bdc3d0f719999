"""The settings, from zarr's configuration, and advice where it chooses nothing of this package.

`docs/guide/pipeline.md` says what each is for. A size is a number of bytes. A word may be in upper
or lower case, as in the environment. A hyphen may stand for an underscore, as everywhere in zarr's
configuration. An unknown setting causes one warning in a process, for the line that has called
zarr.

The defaults were measured: those for local stores by `tests/benchmarks/pipeline.py` (one more run
of 512 bytes takes as long as reading over a gap of some 40 KiB), those for remote ones by
`tests/benchmarks/remote.py`. A mapping keeps a file descriptor before Python 3.13.

The codecs and the pipeline are chosen in zarr's configuration, too. The wheel brings
``etc/zarr/zarr-bytes.yaml``, for which zarr looks in ``/etc/zarr``, below `sys.prefix` and in
``~/.config/zarr``; some ways of installing put it elsewhere.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import zarr

from zarr_bytes.errors import in_short, warn_caller
from zarr_bytes.zarr_versions import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CLASSES: Final = {
    "bytes": "zarr_bytes.codec.BytesCodec",
    "endian": "zarr_bytes.codec.EndianCodec",
}
"""The class of each codec name, as zarr's configuration names it."""

PIPELINE: Final = "zarr_bytes.BatchedBytesPipeline"
"""The pipeline, as zarr's configuration names it under ``codec_pipeline.path``."""

_HINT: Final = (
    "zarr-bytes is installed and zarr does not use it: the configuration file zarr-bytes.yaml is"
    " not where zarr looks for it.\n"
    f'  Before zarr_bytes is imported: zarr.config.set({{"codecs.bytes": "{CLASSES["bytes"]}",'
    f' "codec_pipeline.path": "{PIPELINE}"}})\n'
    f"  Or in the environment: ZARR_CODECS__BYTES={CLASSES['bytes']}"
    f" ZARR_CODEC_PIPELINE__PATH={PIPELINE}"
)


class Cost(NamedTuple):
    """The cost of a request, in bytes."""

    gap: int  # that is read to save one request
    largest_request: int  # that no request exceeds, except one for a whole chunk


DEFAULTS: Final = {"local": Cost(2**15, 2**30), "remote": Cost(2**18, 2**23)}
"""The default costs of a request, in bytes."""


class Setting(NamedTuple):
    """A setting: its default, and what is permitted."""

    default: object
    permitted: str  # in words
    parsed: Callable[[object], Any]  # None for a value that is not permitted


def _one_of(values: Sequence[object]) -> Setting:
    """One of some values, or its text; the first one is the default."""
    words = {str(value).lower(): value for value in values}
    permitted = f"are {' and '.join(map(repr, values))}"
    return Setting(values[0], permitted, lambda found: words.get(str(found).lower()))


def _integer(default: int, *, least: int = 0) -> Setting:
    def parsed(found: object) -> int | None:
        if type(found) is not int or found < least:
            return None
        return min(found, 2**62)  # offsets, of 64 bits, are added to some

    return Setting(default, f"is an integer from {least} on", parsed)


SETTINGS: Final = {
    "zarr_bytes.partial_reads": _one_of([True, False]),
    "zarr_bytes.partial_writes": _one_of([False, True]),
    "zarr_bytes.gap.local": _integer(DEFAULTS["local"].gap),
    "zarr_bytes.gap.remote": _integer(DEFAULTS["remote"].gap),
    "zarr_bytes.largest_request.local": _integer(DEFAULTS["local"].largest_request, least=1),
    "zarr_bytes.largest_request.remote": _integer(DEFAULTS["remote"].largest_request, least=1),
    "zarr_bytes.fill_values": _one_of(["lenient", "strict"]),
    "zarr_bytes.other_chains": _one_of(list(PIPELINES)),
    "zarr_bytes.mappings": _integer(1024 if sys.version_info >= (3, 13) else 128, least=1),
    "zarr_bytes.index_cache": _integer(0),
}
"""Every setting by name."""


def setting(name: str) -> Any:
    """Value of a setting; a TypeError if it is not permitted."""
    return value_in(_given(), name)


def reading_cost(where: Literal["local", "remote"]) -> Cost | None:
    """Cost of a request to a store, or None if partial reads are switched off."""
    given = _given()
    if not given:  # the usual case, asked for every chunk
        return DEFAULTS[where]
    if not value_in(given, "zarr_bytes.partial_reads"):
        return None
    gap, largest = f"zarr_bytes.gap.{where}", f"zarr_bytes.largest_request.{where}"
    return Cost(value_in(given, gap), value_in(given, largest))


def value_in(given: Mapping[str, object], name: str) -> Any:
    """Value of a setting where these are given."""
    default, permitted, parsed = SETTINGS[name]
    found = given.get(name, default)
    value = parsed(found)
    if value is None:
        # No ValueError, which zarr would replace: see `zarr_bytes.errors.FillValueError`.
        raise TypeError(f"{name} is {in_short(found)}; permitted {permitted}")
    return value


_warned: Final[set[str]] = set()


def _given() -> dict[str, object]:
    """As `given_settings`; warns of each unknown one, once."""
    given = given_settings()
    for name, sentence in unknown_in(given).items():
        if name not in _warned:
            _warned.add(name)
            warn_caller(f"{sentence}; it has no effect")
    return given


def unknown_in(given: Mapping[str, object]) -> dict[str, str]:
    """A sentence about each name that is no setting."""
    return {
        name: f"the setting `{name}` is not known (known: {', '.join(SETTINGS)})"
        for name in given
        if name not in SETTINGS
    }


def given_settings() -> dict[str, object]:
    """Values of zarr's configuration under ``zarr_bytes``, by name."""
    return dict(_leaves("zarr_bytes", zarr.config.get("zarr_bytes", {})))


def _leaves(name: str, found: object) -> Iterator[tuple[str, object]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from _leaves(f"{name}.{key}".replace("-", "_"), value)
    else:
        yield name, found


def say_where_undecided() -> None:
    """Log the lines that activate the package, where nothing has chosen a codec.

    A log message and no warning: zarr imports this package when it looks up a codec or a data type,
    and where warnings are errors the array that it opens would not open.
    """
    # The very object of the defaults: whoever chooses zarr's class on purpose sets an equal one.
    defaults = [
        d["codecs"]["bytes"] for d in zarr.config.defaults if "bytes" in d.get("codecs", {})
    ]
    if defaults and zarr.config.get("codecs.bytes", None) is defaults[-1]:
        logging.getLogger("zarr_bytes").warning(_HINT)
