"""Which file systems lie on this machine alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["is_local"]

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOCAL: Final = (
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "overlay",
    "ramfs",
    "tmpfs",
    "xfs",
    "zfs",
)


def is_local(device: int) -> bool:
    """Whether files with ``st_dev`` of `device` are of a file system that only this machine has.

    False where the system does not say: no Linux, or a kind of file system that is not known.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    for mount in mounts:
        fields = mount.split(" ")
        if fields[2] == number:
            return fields[fields.index("-") + 1] in _LOCAL
    return False
