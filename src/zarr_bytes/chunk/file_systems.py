"""File systems that belong to this machine alone, and the open files on them.

Opening a file of another one may wait for a server or for another process, and a page of it that is
mapped is sent whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Final

__all__ = ["is_known_to_be_local", "is_local", "note_location"]

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOCAL: Final = (
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3"),
    *("overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs"),
)


def is_local(file: int) -> bool:
    """Whether an open file is on a file system of this machine, as far as Linux says.

    Parameters
    ----------
    file : int
        Its descriptor.

    Returns
    -------
    bool
        False on other systems, and for a kind of file system that is not known.
    """
    device = os.fstat(file).st_dev
    found, until = _known.get(device, (False, 0.0))
    if monotonic() > until:
        found = _is_of_known_kind(file)
        if hasattr(os, "major") and os.major(device):
            _known[device] = found, monotonic() + _TRUSTED
    return found


def note_location(file: int, root: str) -> None:
    """Find out where an open file below the `root` of a store is, where that is not known.

    In a thread: reading what is mounted may take its time.
    """
    if monotonic() > _roots.get(root, _UNKNOWN)[1]:
        found = hasattr(os, "RWF_NOWAIT") and is_local(file)
        if len(_roots) > 1000:
            _roots.clear()
        _roots[root] = found, monotonic() + _TRUSTED


def is_known_to_be_local(root: str) -> bool:
    """Whether files below `root` are on this machine, as far as is known by now."""
    found, until = _roots.get(root, _UNKNOWN)
    return found and monotonic() <= until


# By root of a store: whether it is on this machine, and until when that is taken for true.
_roots: dict[str, tuple[bool, float]] = {}
_UNKNOWN: Final = (False, 0.0)

# By number of a block device. Other file systems, those of a network among them, share numbers that
# are given again once something is unmounted.
_known: dict[int, tuple[bool, float]] = {}
_TRUSTED: Final = 60.0  # seconds: what is mounted changes


def _is_of_known_kind(file: int) -> bool:
    try:
        about = Path(f"/proc/self/fdinfo/{file}").read_text()
        (mount,) = (line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:"))
        mounts = _MOUNTS.read_bytes().splitlines()
    except (OSError, ValueError):
        return False
    for line in mounts:  # proc_pid_mountinfo(5): the type is the first field after " - "
        if line.split(maxsplit=1)[0] == mount.encode():
            return line.partition(b" - ")[2].split()[0].decode() in _LOCAL
    return False
