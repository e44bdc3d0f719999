"""The settings, from zarr's configuration.

| setting                             | default |                                                 |
| ----------------------------------- | ------- | ----------------------------------------------- |
| `zarr_bytes.partial_reads`          | True    | False reads every chunk whole                   |
| `zarr_bytes.gap.local`              | 32 KiB  | bytes worth reading to save a request           |
| `zarr_bytes.gap.remote`             | 256 KiB |                                                 |
| `zarr_bytes.largest_request.local`  | 1 GiB   | no request is larger, but one for a whole chunk |
| `zarr_bytes.largest_request.remote` | 8 MiB   |                                                 |
| `zarr_bytes.fill_values`            | strict  | lenient reads what zarr reads                   |

Local are zarr's ``LocalStore`` and ``ZipStore``; every other store that is not in memory is remote.

All are measured. Local (`tests/benchmarks/test_read.py`): a run of 512 bytes of its own takes 1.5
microseconds, reading over a gap of 32 KiB 1.2, and over one of 64 KiB 2.9. Remote
(`tests/benchmarks/test_remote.py`), with zarr's ten requests at a time, from a server that answers
after 30 ms and sends 90 MB/s on each connection: 64 runs take as long one by one as read together
with gaps of 256 KiB between them (226 and 217 ms), and without any delay on loopback the same (6.7
and 4.9 ms); 128 MiB come in 237 ms with requests of 16 MiB, 259 of 8 and 423 of 32, and 16 MiB in
217 ms, 125 and 217.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import zarr
from zarr.storage import LocalStore, ZipStore

__all__ = ["DEFAULTS", "Cost", "fill_values_are_lenient", "reading_cost"]


class Cost(NamedTuple):
    """What a request costs.

    Attributes
    ----------
    gap : int
        Bytes that are worth reading to save one request.
    largest_request : int
        Size in bytes that no request exceeds, but one for the whole chunk.
    """

    gap: int
    largest_request: int


DEFAULTS: Final = {"local": Cost(2**15, 2**30), "remote": Cost(2**18, 2**23)}
"""What a request costs where nothing is set, in bytes."""


def reading_cost(store: object) -> Cost | None:
    """What a request to `store` costs, or None where partial reads are switched off.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Whether it is local decides which of the settings hold.

    Raises
    ------
    ValueError
        If a setting has a value that is not permitted.

    Examples
    --------
    >>> reading_cost(ZipStore("a.zip"))
    Cost(gap=32768, largest_request=1073741824)
    """
    settings = _section(zarr.config.get("zarr_bytes", {}), "zarr_bytes", "partial_reads")
    enabled = settings.get("partial_reads", True)
    if enabled is not True:
        if enabled is False:
            return None
        raise ValueError(f"zarr_bytes.partial_reads is {enabled!r}; permitted are True and False")
    where = "local" if isinstance(store, LocalStore | ZipStore) else "remote"
    default = DEFAULTS[where]
    gap = _section(settings.get("gap", {}), "zarr_bytes.gap", where).get(where, default.gap)
    largest = _section(
        settings.get("largest_request", {}), "zarr_bytes.largest_request", where
    ).get(where, default.largest_request)
    for name, value, least in (("gap", gap, 0), ("largest_request", largest, 1)):
        if type(value) is not int or value < least:
            raise ValueError(
                f"zarr_bytes.{name}.{where} is {value!r}; permitted is a number of bytes, an"
                f" integer from {least} on"
            )
    return Cost(gap, largest)


def _section(settings: object, name: str, example: str) -> dict[str, Any]:
    if not isinstance(settings, dict):
        raise ValueError(f"{name} is {settings!r}; permitted are settings in it: {name}.{example}")
    return settings


def fill_values_are_lenient() -> bool:
    """Whether fill values that zarr accepts and the specification does not permit are read.

    Raises
    ------
    TypeError
        If the setting has a value that is not permitted. zarr would replace a ValueError, see
        `zarr_bytes.errors.FillValueError`.
    """
    setting = zarr.config.get("zarr_bytes.fill_values", "strict")
    if setting not in ("strict", "lenient"):
        raise TypeError(
            f"zarr_bytes.fill_values is {setting!r}; permitted are 'strict' and 'lenient'"
        )
    return bool(setting == "lenient")
