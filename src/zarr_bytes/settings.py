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

zarr's ``LocalStore`` and ``ZipStore`` are local; every other store that is not in memory is remote.
Instead of True and False, the words may be given, in upper or lower case, as in the environment. A
hyphen may stand for an underscore, as everywhere in zarr's configuration. A key that is not a
setting causes one warning in a process, when the settings are first used.

The defaults were measured. Local (`tests/benchmarks/test_read.py`): one more run of 512 bytes takes
1.5 microseconds, reading over a gap of 32 KiB 1.2, and over one of 64 KiB 2.9. Remote
(`tests/benchmarks/test_remote.py`), with zarr's ten requests at a time, from a server that answers
after 30 ms and sends 90 MB/s on each connection: 64 runs take as long one by one as read together
with gaps of 256 KiB between them (226 and 217 ms), and without any delay on loopback the same (6.7
and 4.9 ms); 128 MiB come in 237 ms with requests of 16 MiB, 259 of 8 and 423 of 32, and 16 MiB in
217 ms, 125 and 217.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

import zarr
from zarr.storage import LocalStore, ZipStore

from zarr_bytes.zarr_versions import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr.abc.codec import CodecPipeline

__all__ = [
    "DEFAULTS",
    "SETTINGS",
    "Cost",
    "fill_values_are_lenient",
    "partial_writes_enabled",
    "pipeline_of_other_chains",
    "reading_cost",
    "unknown_settings",
]


class Cost(NamedTuple):
    """What a request costs.

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
"""What a request costs by default, in bytes."""

SETTINGS: Final[dict[str, bool | int | str]] = {
    "zarr_bytes.partial_reads": True,
    "zarr_bytes.partial_writes": False,
    "zarr_bytes.gap.local": DEFAULTS["local"].gap,
    "zarr_bytes.gap.remote": DEFAULTS["remote"].gap,
    "zarr_bytes.largest_request.local": DEFAULTS["local"].largest_request,
    "zarr_bytes.largest_request.remote": DEFAULTS["remote"].largest_request,
    "zarr_bytes.fill_values": "strict",
    "zarr_bytes.other_chains": "batched",
}
"""Every setting, and its default."""


def reading_cost(store: object) -> Cost | None:
    """What a request to `store` costs, or None if partial reads are switched off.

    Parameters
    ----------
    store : zarr.abc.store.Store
        The settings for local or for remote stores apply, depending on its class.

    Raises
    ------
    ValueError
        If a setting has a value that is not permitted.

    Warns
    -----
    UserWarning
        For each key that is not a setting, once in a process.

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

    Warns
    -----
    UserWarning
        For each key that is not a setting, once in a process.

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

    Warns
    -----
    UserWarning
        For each key that is not a setting, once in a process.
    """
    setting = _given().get("zarr_bytes.fill_values", "strict")
    if setting not in ("strict", "lenient"):
        raise TypeError(
            f"zarr_bytes.fill_values is {setting!r}; permitted are 'strict' and 'lenient'"
        )
    return setting == "lenient"


def pipeline_of_other_chains() -> type[CodecPipeline]:
    """Pipeline of zarr for chains that `zarr_bytes.BytesPipeline` does not act on.

    Raises
    ------
    ValueError
        If the setting has a value that is not permitted, or one that this zarr does not have.

    Warns
    -----
    UserWarning
        Of each key that is no setting, once in a process.

    Examples
    --------
    >>> pipeline_of_other_chains().__name__
    'BatchedCodecPipeline'
    """
    setting = _value(_given(), "zarr_bytes.other_chains")
    if setting not in PIPELINES:
        raise ValueError(
            f"zarr_bytes.other_chains is {setting!r}; permitted with zarr {zarr.__version__} are"
            f" {' and '.join(map(repr, PIPELINES))}"
        )
    return PIPELINES[str(setting)]


def unknown_settings() -> list[str]:
    """A sentence for each key of zarr's configuration that is no setting of this package.

    Returns
    -------
    list of str
        Each names the key, and the setting whose name is nearest, or all.

    Examples
    --------
    >>> with zarr.config.set({"zarr_bytes.partial_read": False}):
    ...     unknown_settings()
    ['zarr_bytes.partial_read is no setting; the nearest is zarr_bytes.partial_reads']
    """
    return [_sentence(name) for name in _flat() if _is_unknown(name)]


def _sentence(name: str) -> str:
    names = {setting.partition(".")[2]: setting for setting in SETTINGS}
    nearest = get_close_matches(name.partition(".")[2], names, n=1)
    if nearest:
        return f"{name} is no setting; the nearest is {names[nearest[0]]}"
    return f"{name} is no setting; these are: {', '.join(SETTINGS)}"


def _is_unknown(name: str) -> bool:
    # A value in place of a section is not permitted, which `_value` says.
    return name not in SETTINGS and not any(s.startswith(f"{name}.") for s in SETTINGS)


_warned: Final[set[str]] = set()


def _given() -> dict[str, object]:
    """What is set, by name; warns of each key that is no setting, once."""
    given = _flat()
    for name in given:
        if name not in _warned and _is_unknown(name):
            _warned.add(name)
            warnings.warn(f"{_sentence(name)}; this one has no effect", UserWarning, stacklevel=4)
    return given


def _flat() -> dict[str, object]:
    """What zarr's configuration has under ``zarr_bytes``, by name."""
    found = zarr.config.get("zarr_bytes", {})
    return dict(_leaves("zarr_bytes", found))


def _leaves(name: str, found: object) -> Iterator[tuple[str, object]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from _leaves(f"{name}.{key}".replace("-", "_"), value)
    else:
        yield name, found


def _value(given: dict[str, object], name: str) -> object:
    section = name.rpartition(".")[0]
    while section:
        if section in given:
            raise ValueError(
                f"{section} is {given[section]!r}; permitted are settings in it:"
                f" {', '.join(s for s in SETTINGS if s.startswith(f'{section}.'))}"
            )
        section = section.rpartition(".")[0]
    return given.get(name, SETTINGS[name])


def _truth(given: dict[str, object], name: str) -> bool:
    value = _value(given, name)
    truth = {"true": True, "false": False}.get(str(value).lower())
    if truth is None:
        raise ValueError(f"{name} is {value!r}; permitted are True and False")
    return truth


def _nbytes(given: dict[str, object], name: str, *, least: int) -> int:
    value = _value(given, name)
    if type(value) is not int or value < least:
        raise ValueError(
            f"{name} is {value!r}; permitted is a number of bytes, an integer from {least} on"
        )
    return value
