"""Where the files of stores are: on this machine, or where opening one may wait.

The opening of a file on another machine may wait for a server or for another process, and a mapped
page of such a file is sent whole. So files are read on the event loop, and written through a
mapping, only where the file system belongs to this machine alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOCAL: Final = (
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3"),
    *("overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs"),
)
# Locks of SMB refuse the reads and writes of others (flock(2)).
_MANDATORY: Final = ("cifs", "smb3")

# By root of a store: the kind of its file system, and until when that is trusted.
_roots: dict[str, tuple[str, float]] = {}
_UNKNOWN: Final = ("", 0.0)
# By number of a block device. Other file systems, such as those of a network, share numbers that
# are given again once something is unmounted.
_known: dict[int, tuple[str, float]] = {}
_TRUSTED: Final = 60.0  # seconds: mounts change

# By root of a store: until when nothing is read on the event loop, after a read would have waited.
_busy: dict[str, float] = {}
_RETRY_AFTER: Final = 1.0  # seconds


def is_local(file: int) -> bool:
    """Whether an open file is on a file system of this machine, according to Linux.

    False on other systems, and for unknown kinds of file systems.
    """
    return _kind_of(file) in _LOCAL


def _kind_of(file: int) -> str:
    """The kind of the file system of an open file, as Linux names it; empty if it is not known."""
    device = os.fstat(file).st_dev
    kind, until = _known.get(device, _UNKNOWN)
    if monotonic() > until:
        kind = _mounted_kind(file)
        if hasattr(os, "major") and os.major(device):
            _known[device] = kind, monotonic() + _TRUSTED
    return kind


def note_location(file: int, root: str) -> None:
    """Find out where the `root` of a store is, from an open file below it.

    In a thread: reading the table of mounts may take long.
    """
    if not is_located(root):
        kind = _kind_of(file)
        if len(_roots) > 1000:
            _roots.clear()
        _roots[root] = kind, monotonic() + _TRUSTED


def is_located(root: str) -> bool:
    """Whether it is known where files below `root` are."""
    return monotonic() <= _roots.get(root, _UNKNOWN)[1]


def is_known_to_be_local(root: str) -> bool:
    """Whether files below `root` are known to be on this machine."""
    kind, until = _roots.get(root, _UNKNOWN)
    return kind in _LOCAL and hasattr(os, "RWF_NOWAIT") and monotonic() <= until


def has_advisory_locks(root: str) -> bool:
    """Whether a lock of a file below `root` disturbs nobody who does not ask for one."""
    return _roots.get(root, _UNKNOWN)[0] not in _MANDATORY


def is_tried(root: str) -> bool:
    """Whether files below `root` are read on the event loop.

    Only on a local file system, and not for a moment after a read that would have waited.
    """
    return is_known_to_be_local(root) and monotonic() >= _busy.get(root, 0)


def note_wait(root: str) -> None:
    """Remember that a read below `root` would have waited, on the event loop."""
    if len(_busy) > 1000:
        _busy.clear()
    _busy[root] = monotonic() + _RETRY_AFTER


def _mounted_kind(file: int) -> str:
    try:
        about = Path(f"/proc/self/fdinfo/{file}").read_text()
        (mount,) = (line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:"))
        mounts = _MOUNTS.read_bytes().splitlines()
    except (OSError, ValueError):
        return ""
    for line in mounts:  # proc_pid_mountinfo(5): the type is the first field after " - "
        if line.split(maxsplit=1)[0] == mount.encode():
            return line.partition(b" - ")[2].split()[0].decode()
    return ""
