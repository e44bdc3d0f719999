"""The settings, from zarr's configuration, and advice where it chooses nothing of this package.

`docs/guide/pipeline.md` says what each is for. A size is a number of bytes. Instead of True and
False, the words may be given, in upper or lower case, as in the environment. A hyphen may stand for
an underscore, as everywhere in zarr's configuration. An unknown setting causes one warning in a
process, for the line that has called zarr.

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
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import zarr

from zarr_bytes.errors import in_short, warn_caller
from zarr_bytes.zarr_versions import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr.abc.codec import CodecPipeline


CLASSES: Final = {
    "bytes": "zarr_bytes.codec.BytesCodec",
    "endian": "zarr_bytes.codec.EndianCodec",
}
"""The class of each codec name, as zarr's configuration names it."""

VARIABLES: Final = {name: f"ZARR_CODECS__{name.upper()}" for name in CLASSES}
"""The environment variable that chooses the class, by codec name."""

PIPELINE: Final = "zarr_bytes.BatchedBytesPipeline"
"""The pipeline, as zarr's configuration names it under ``codec_pipeline.path``."""

_HINT: Final = (
    "zarr-bytes is installed and zarr does not use it: the configuration file zarr-bytes.yaml is"
    " not where zarr looks for it.\n"
    f'  Before zarr_bytes is imported: zarr.config.set({{"codecs.bytes": "{CLASSES["bytes"]}",'
    f' "codec_pipeline.path": "{PIPELINE}"}})\n'
    f"  Or in the environment: {VARIABLES['bytes']}={CLASSES['bytes']}"
    f" ZARR_CODEC_PIPELINE__PATH={PIPELINE}\n"
    "  To go without it: the same with zarr.codecs.bytes.BytesCodec, zarr's own"
)


class Cost(NamedTuple):
    """The cost of a request, in bytes."""

    gap: int  # that is read to save one request
    largest_request: int  # that no request exceeds, except one for a whole chunk


DEFAULTS: Final = {"local": Cost(2**15, 2**30), "remote": Cost(2**18, 2**23)}
"""The default costs of a request, in bytes."""

SETTINGS: Final[dict[str, object]] = {
    "zarr_bytes.partial_reads": True,
    "zarr_bytes.partial_writes": False,
    "zarr_bytes.gap.local": DEFAULTS["local"].gap,
    "zarr_bytes.gap.remote": DEFAULTS["remote"].gap,
    "zarr_bytes.largest_request.local": DEFAULTS["local"].largest_request,
    "zarr_bytes.largest_request.remote": DEFAULTS["remote"].largest_request,
    "zarr_bytes.fill_values": "lenient",
    "zarr_bytes.other_chains": "batched",
    "zarr_bytes.mappings": 1024 if sys.version_info >= (3, 13) else 128,
    "zarr_bytes.index_cache": 0,
}
"""Every setting, and its default."""


def reading_cost(where: Literal["local", "remote"]) -> Cost | None:
    """Cost of a request to a store, or None if partial reads are switched off."""
    given = _given()
    if not given:  # the usual case, asked for every chunk
        return DEFAULTS[where]
    given = SETTINGS | given
    if not _truth("zarr_bytes.partial_reads", given):
        return None
    gap, largest = f"zarr_bytes.gap.{where}", f"zarr_bytes.largest_request.{where}"
    return Cost(_integer(gap, given, 0), _integer(largest, given, 1))


def partial_writes_enabled() -> bool:
    """Whether only the selected bytes of a chunk are written, where that is possible."""
    return _truth("zarr_bytes.partial_writes", SETTINGS | _given())


def fill_values_are_lenient() -> bool:
    """Whether fill values that zarr reads and the specification does not permit are read."""
    setting = (SETTINGS | _given())["zarr_bytes.fill_values"]
    if isinstance(setting, str) and setting in ("strict", "lenient"):
        return setting == "lenient"
    # No ValueError, which zarr would replace: see `zarr_bytes.errors.FillValueError`.
    raise TypeError(f"zarr_bytes.fill_values is {setting!r}; permitted are 'strict' and 'lenient'")


def pipeline_of_other_chains() -> type[CodecPipeline]:
    """Pipeline of zarr for chains that `zarr_bytes.BatchedBytesPipeline` does not act on."""
    setting = (SETTINGS | _given())["zarr_bytes.other_chains"]
    if not isinstance(setting, str) or setting not in PIPELINES:
        raise ValueError(
            f"zarr_bytes.other_chains is {setting!r}; permitted with zarr {zarr.__version__} are"
            f" {' and '.join(map(repr, PIPELINES))}"
        )
    return PIPELINES[setting]


def number_of_mappings() -> int:
    """Number of chunks that `zarr_bytes.view` keeps mapped at the same time, for each view."""
    return _integer("zarr_bytes.mappings", SETTINGS | _given(), 1)


def number_of_indexes() -> int:
    """Number of indexes of shards, in stores other than folders, that are kept for other reads."""
    return _integer("zarr_bytes.index_cache", SETTINGS | _given(), 0)


def unknown_settings() -> list[str]:
    """Keys of zarr's configuration under ``zarr_bytes`` that are no settings, in words."""
    return [_sentence(name) for name in _flat() if name not in SETTINGS]


def _sentence(name: str) -> str:
    return f"the setting `{name}` is not known (known: {', '.join(SETTINGS)})"


_warned: Final[set[str]] = set()


def _given() -> dict[str, object]:
    """The given settings, by name; warns of each unknown one, once."""
    given = _flat()
    for name in given:
        if name not in SETTINGS and name not in _warned:
            _warned.add(name)
            warn_caller(f"{_sentence(name)}; it has no effect")
    return given


def _flat() -> dict[str, object]:
    """Values of zarr's configuration under ``zarr_bytes``, by name."""
    return dict(_leaves("zarr_bytes", zarr.config.get("zarr_bytes", {})))


def _leaves(name: str, found: object) -> Iterator[tuple[str, object]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from _leaves(f"{name}.{key}".replace("-", "_"), value)
    else:
        yield name, found


def _truth(name: str, values: Mapping[str, object]) -> bool:
    truth = {"true": True, "false": False}.get(str(values[name]).lower())
    if truth is None:
        raise ValueError(f"{name} is {values[name]!r}; permitted are True and False")
    return truth


def _integer(name: str, values: Mapping[str, object], least: int) -> int:
    value = values[name]
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {in_short(value)}; permitted is an integer from {least} on")
    return min(value, 2**62)  # offsets, of 64 bits, are added to some


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
