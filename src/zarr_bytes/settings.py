"""The settings, from zarr's configuration.

| setting                             | default |                                                 |
| ----------------------------------- | ------- | ----------------------------------------------- |
| `zarr_bytes.partial_reads`          | True    | False reads every chunk whole                   |
| `zarr_bytes.partial_writes`         | False   | True writes only the selected bytes of a chunk  |
| `zarr_bytes.gap.local`              | 32 KiB  | bytes worth reading to save a request           |
| `zarr_bytes.gap.remote`             | 256 KiB |                                                 |
| `zarr_bytes.largest_request.local`  | 1 GiB   | no request is larger, except for a whole chunk  |
| `zarr_bytes.largest_request.remote` | 8 MiB   |                                                 |
| `zarr_bytes.fill_values`            | strict  | lenient reads what zarr reads                   |
| `zarr_bytes.other_chains`           | batched | fused is zarr's other pipeline                  |
| `zarr_bytes.mappings`               | 1024    | most chunks that a view keeps mapped            |

zarr's ``LocalStore`` and ``ZipStore`` are local; every other store that is not in memory is remote.
A size is a number of bytes, or a text such as "32 KiB", in bytes, KiB, MiB or GiB. Instead of True
and False, the words may be given, in upper or lower case, as in the environment. A
hyphen may stand for an underscore, as everywhere in zarr's configuration. An unknown setting causes
one warning in a process, for the line that has called zarr.

The defaults were measured: those for local stores by `tests/benchmarks/test_read.py` (one more run
of 512 bytes takes as long as reading over a gap of some 40 KiB), those for remote ones by
`tests/benchmarks/test_remote.py`. A mapping keeps a file descriptor before Python 3.13, where the
default of `zarr_bytes.mappings` is 128.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import zarr
from zarr.storage import LocalStore, ZipStore

from zarr_bytes.caller import warn_caller
from zarr_bytes.errors import in_short
from zarr_bytes.zarr_versions import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr.abc.codec import CodecPipeline

__all__ = [
    "DEFAULTS",
    "SETTINGS",
    "UNITS",
    "Cost",
    "fill_values_are_lenient",
    "number_of_mappings",
    "partial_writes_enabled",
    "pipeline_of_other_chains",
    "reading_cost",
    "unknown_settings",
]


class Cost(NamedTuple):
    """The cost of a request.

    Attributes
    ----------
    gap : int
        Number of bytes that are read to save one request.
    largest_request : int
        Size in bytes that no request exceeds, except one for a whole chunk.
    """

    gap: int
    largest_request: int


DEFAULTS: Final = {"local": Cost(2**15, 2**30), "remote": Cost(2**18, 2**23)}
"""The default costs of a request, in bytes."""

UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""The units of sizes, in bytes."""

SETTINGS: Final[dict[str, bool | int | str]] = {
    "zarr_bytes.partial_reads": True,
    "zarr_bytes.partial_writes": False,
    "zarr_bytes.gap.local": DEFAULTS["local"].gap,
    "zarr_bytes.gap.remote": DEFAULTS["remote"].gap,
    "zarr_bytes.largest_request.local": DEFAULTS["local"].largest_request,
    "zarr_bytes.largest_request.remote": DEFAULTS["remote"].largest_request,
    "zarr_bytes.fill_values": "strict",
    "zarr_bytes.other_chains": "batched",
    "zarr_bytes.mappings": 1024 if sys.version_info >= (3, 13) else 128,
}
"""Every setting, and its default."""


def reading_cost(store: object) -> Cost | None:
    """Cost of a request to `store`, or None if partial reads are switched off.

    Parameters
    ----------
    store : zarr.abc.store.Store
        The settings for local or for remote stores apply, depending on its class.

    Raises
    ------
    ValueError
        If a setting has a value that is not permitted.

    Examples
    --------
    >>> reading_cost(ZipStore("a.zip"))
    Cost(gap=32768, largest_request=1073741824)
    """
    where = "local" if isinstance(store, LocalStore | ZipStore) else "remote"
    given = _given()
    if not given:  # the usual case, asked for every chunk
        return DEFAULTS[where]
    if not _truth(given, "zarr_bytes.partial_reads"):
        return None
    return Cost(
        _nbytes(given, f"zarr_bytes.gap.{where}", least=0),
        _nbytes(given, f"zarr_bytes.largest_request.{where}", least=1),
    )


def partial_writes_enabled() -> bool:
    """Whether only the selected bytes of a chunk are written, where that is possible.

    Raises
    ------
    ValueError
        If the setting has a value that is not permitted.

    Examples
    --------
    >>> partial_writes_enabled()
    False
    """
    return _truth(_given(), "zarr_bytes.partial_writes")


def fill_values_are_lenient() -> bool:
    """Whether fill values that zarr accepts and the specification does not permit are read.

    Raises
    ------
    TypeError
        If the setting has a value that is not permitted. zarr would replace a ValueError, see
        `zarr_bytes.errors.FillValueError`.
    """
    setting = _given().get("zarr_bytes.fill_values", "strict")
    if isinstance(setting, str) and setting in ("strict", "lenient"):
        return setting == "lenient"
    raise TypeError(f"zarr_bytes.fill_values is {setting!r}; permitted are 'strict' and 'lenient'")


def pipeline_of_other_chains() -> type[CodecPipeline]:
    """Pipeline of zarr for chains that `zarr_bytes.BatchedBytesPipeline` does not act on.

    Raises
    ------
    ValueError
        If the setting has a value that is not permitted, or one that this zarr does not have.

    Examples
    --------
    >>> pipeline_of_other_chains().__name__
    'BatchedCodecPipeline'
    """
    setting = _value(_given(), "zarr_bytes.other_chains")
    if not isinstance(setting, str) or setting not in PIPELINES:
        raise ValueError(
            f"zarr_bytes.other_chains is {setting!r}; permitted with zarr {zarr.__version__} are"
            f" {' and '.join(map(repr, PIPELINES))}"
        )
    return PIPELINES[setting]


def number_of_mappings() -> int:
    """Number of chunks that `zarr_bytes.view` keeps mapped at the same time, for each view.

    Raises
    ------
    ValueError
        If the setting has a value that is not permitted.
    """
    value = _value(_given(), "zarr_bytes.mappings")
    number = value
    if isinstance(value, str) and re.fullmatch("[0-9]{1,30}", value):
        number = int(value)
    if type(number) is int and number > 0:
        return min(number, sys.maxsize)
    raise ValueError(f"zarr_bytes.mappings is {in_short(value)}; permitted is an integer from 1 on")


def unknown_settings() -> list[str]:
    """Keys of zarr's configuration and environment variables that have no effect, in words.

    Returns
    -------
    list of str
        For each key under ``zarr_bytes`` that is not a setting, and each environment variable that
        is written with one underscore in place of two: the name, and the nearest that has an
        effect.

    Examples
    --------
    >>> with zarr.config.set({"zarr_bytes.partial_read": False}):
    ...     unknown_settings()
    ['the setting `zarr_bytes.partial_read` is not known (nearest: `zarr_bytes.partial_reads`)']
    """
    return [_sentence(name) for name in _flat() if _is_unknown(name)] + list(_unread_variables())


def _sentence(name: str) -> str:
    nearest = _nearest(name.partition(".")[2], {s.partition(".")[2]: s for s in SETTINGS})
    known = f"nearest: `{nearest}`" if nearest else f"known: {', '.join(SETTINGS)}"
    return f"the setting `{name}` is not known ({known})"


def _nearest(name: str, names: Mapping[str, str]) -> str | None:
    from difflib import get_close_matches  # not at every start: half a millisecond

    found = get_close_matches(name, names, n=1)
    return names[found[0]] if found else None


def _unread_variables() -> Iterator[str]:
    """Environment variables that were meant for a setting, and are read as something else."""
    variables = ["ZARR_" + setting.upper().replace(".", "__") for setting in SETTINGS]
    words = {
        variable.partition("BYTES__")[2].replace("__", "_"): variable for variable in variables
    }
    for name in os.environ:
        meant = re.fullmatch("ZARR_+(?:ZARR_+)?BYTES_+(.+)", name.upper())
        is_read = re.match("ZARR_(?i:ZARR_BYTES__)", name)
        if meant and not is_read and (nearest := _nearest(re.sub("_+", "_", meant[1]), words)):
            yield f"the variable `{name}` has no effect (nearest: `{nearest}`)"


def _is_unknown(name: str) -> bool:
    # A value in place of a section is not permitted, which `_value` says.
    return name not in SETTINGS and not any(s.startswith(f"{name}.") for s in SETTINGS)


_warned: Final[set[str]] = set()


def _given() -> dict[str, object]:
    """The given settings, by name; warns of each unknown one, once."""
    given = _flat()
    for name in given:
        if name not in _warned and _is_unknown(name):
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


def _value(given: dict[str, object], name: str) -> object:
    for section in given:
        if name.startswith(f"{section}."):
            permitted = ", ".join(s for s in SETTINGS if s.startswith(f"{section}."))
            raise ValueError(
                f"{section} is {given[section]!r}; permitted are settings in it: {permitted}"
            )
    return given.get(name, SETTINGS[name])


def _truth(given: dict[str, object], name: str) -> bool:
    value = _value(given, name)
    truth = {"true": True, "false": False}.get(str(value).lower())
    if truth is None:
        raise ValueError(f"{name} is {value!r}; permitted are True and False")
    return truth


def _nbytes(given: dict[str, object], name: str, *, least: int) -> int:
    value = _value(given, name)
    if size := re.fullmatch(rf"([0-9][0-9,]{{,29}}) ?({'|'.join(UNITS)})", str(value)):
        value = int(size[1].replace(",", "")) * UNITS[size[2]]
    if type(value) is not int or value < least:
        raise ValueError(
            f"{name} is {given[name]!r}; permitted is a number of bytes, an integer from {least}"
            f" on, or a text such as '32 KiB', in {', '.join(UNITS)}"
        )
    return min(value, 2**62)  # offsets, of 64 bits, are added to it
