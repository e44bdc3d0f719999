"""The settings for partial reads, from zarr's configuration.

====================================  ==========  ==================================================
setting                               default
====================================  ==========  ==================================================
``zarr_bytes.partial_reads``          True        False reads every chunk whole
``zarr_bytes.gap.local``              32 KiB      bytes worth reading to save a request
``zarr_bytes.gap.remote``             1 MiB
``zarr_bytes.largest_request.local``  1 GiB       no request is larger, but one for a whole chunk
``zarr_bytes.largest_request.remote`` 16 MiB
====================================  ==========  ==================================================

Local are zarr's ``LocalStore`` and ``ZipStore``; every other store that is not in memory is remote.

The local gap is measured (tests/benchmarks/test_read.py): a run of 512 bytes of its own takes 1.3
microseconds, and reading over a gap of 32 KiB 1.4. The remote defaults are those with which zarr
joins the inner chunks of a shard.
"""

from __future__ import annotations

from typing import Any, Final

import zarr
from zarr.storage import LocalStore, ZipStore

from zarr_bytes.byte_ranges import Cost

__all__ = ["reading_cost"]

_DEFAULTS: Final = {"local": Cost(2**15, 2**30), "remote": Cost(2**20, 2**24)}


def reading_cost(store: object) -> Cost | None:
    """What a request to `store` costs, or None where partial reads are switched off.

    Raises
    ------
    ValueError
        If a setting has a value that is not permitted.
    """
    settings: dict[str, Any] = zarr.config.get("zarr_bytes", {})
    enabled = settings.get("partial_reads", True)
    if enabled is not True:
        if enabled is False:
            return None
        raise ValueError(f"zarr_bytes.partial_reads is {enabled!r}; permitted are True and False")
    where = "local" if isinstance(store, LocalStore | ZipStore) else "remote"
    default = _DEFAULTS[where]
    gap = settings.get("gap", {}).get(where, default.gap)
    largest = settings.get("largest_request", {}).get(where, default.largest_request)
    for name, value, least in (("gap", gap, 0), ("largest_request", largest, 1)):
        if type(value) is not int or value < least:
            raise ValueError(
                f"zarr_bytes.{name}.{where} is {value!r}; permitted is a number of bytes, an"
                f" integer from {least} on"
            )
    return Cost(gap, largest)
