"""What is known of stores: where their files are, and how they answer ranges.

Opening a file on another machine may wait, and a mapped page of one is sent whole. So files are
read on the event loop, and written through a mapping, only where the file system is this machine's.
Nothing else that a process finds out is kept by a module.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from zarr_bytes.io import counters

_LOCAL: Final = (
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3"),
    *("overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs"),
)
# Locks of SMB refuse the reads and writes of others (flock(2)).
_MANDATORY: Final = ("cifs", "smb3")

_UNKNOWN: Final = ("", 0.0)
_TRUSTED: Final = 60.0  # seconds: mounts change
_RETRY_AFTER: Final = 1.0  # seconds


@dataclass
class FileSystems:
    """What is known of file systems: their kinds, each with the time until which it is trusted."""

    mounts: Path = Path("/proc/self/mountinfo")
    by_root: dict[str, tuple[str, float]] = field(default_factory=dict)  # of a store
    # By number of a block device. Other file systems, such as those of a network, share numbers
    # that are given again once something is unmounted.
    by_device: dict[int, tuple[str, float]] = field(default_factory=dict)
    # By root of a store: until when nothing is read on the event loop, after a read that would
    # have waited.
    busy: dict[str, float] = field(default_factory=dict)


file_systems = FileSystems()
"""What this process knows of file systems; tests replace it."""

# Hosts and stores that have answered a range with a range, services that always do, and stores that
# have not. Stores by identity, since many have no hash.
_SERVICES: Final = frozenset(("s3://", "gs://", "abfs://", "S3Store", "GCSStore", "AzureStore"))
_origins: set[str] = {*_SERVICES}
_with_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()
_without_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()


def is_on_local_file_system(file: int) -> bool:
    """Whether an open file is on this machine; False where that is not known."""
    return _kind_of(file) in _LOCAL


def _kind_of(file: int) -> str:
    """The kind of the file system of an open file, as Linux names it; empty if it is not known."""
    device = os.fstat(file).st_dev
    kind, until = file_systems.by_device.get(device, _UNKNOWN)
    if monotonic() > until:
        kind = _mounted_kind(file)
        if hasattr(os, "major") and os.major(device):
            file_systems.by_device[device] = kind, monotonic() + _TRUSTED
    return kind


def record_file_system(file: int, root: str) -> None:
    """Find out, in a thread, where the `root` of a store is, from an open file below it."""
    if not location_is_known(root):
        kind = _kind_of(file)
        if len(file_systems.by_root) > 1000:
            file_systems.by_root.clear()
        file_systems.by_root[root] = kind, monotonic() + _TRUSTED


def location_is_known(root: str) -> bool:
    """Whether it is known where files below `root` are."""
    return monotonic() <= file_systems.by_root.get(root, _UNKNOWN)[1]


def is_local_file_system(root: str) -> bool:
    """Whether files below `root` are known to be on this machine."""
    kind, until = file_systems.by_root.get(root, _UNKNOWN)
    return kind in _LOCAL and hasattr(os, "RWF_NOWAIT") and monotonic() <= until


def has_advisory_locks(file: int, root: str) -> bool:
    """Whether a lock of an open file below `root` disturbs nobody who does not ask for one."""
    # None where other threads have located too many others since.
    located = file_systems.by_root.get(root)
    kind = _kind_of(file) if located is None else located[0]
    return kind not in _MANDATORY


def may_read_inline(root: str) -> bool:
    """Whether files below `root` are read on the event loop: local ones, but after a wait."""
    return is_local_file_system(root) and monotonic() >= file_systems.busy.get(root, 0)


def avoid_inline_reads(root: str) -> None:
    """Remember that a read below `root` would have waited, on the event loop."""
    if len(file_systems.busy) > 1000:
        file_systems.busy.clear()
    file_systems.busy[root] = monotonic() + _RETRY_AFTER


def _mounted_kind(file: int) -> str:
    try:
        about = Path(f"/proc/self/fdinfo/{file}").read_text()
        (mount,) = (line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:"))
        mounts = file_systems.mounts.read_bytes().splitlines()
    except (OSError, ValueError):
        return ""
    for line in mounts:  # proc_pid_mountinfo(5): the type is the first field after " - "
        if line.split(maxsplit=1)[0] == mount.encode():
            return line.partition(b" - ")[2].split()[0].decode()
    return ""


def means_ranges_unsupported(error: Exception) -> bool:
    """Whether an error of a store means that it cannot read ranges."""
    obstore = sys.modules.get("obstore.exceptions")  # loaded, if the error is one of its own
    own = getattr(obstore, "NotSupportedError", NotImplementedError)
    # A range of what a server keeps compressed is not a whole stream: fsspec cannot decode it.
    return isinstance(error, NotImplementedError | own) or "content-encoding" in str(error)


def is_known_to_ignore_ranges(store: object) -> bool:
    """Whether a store has answered a range with the whole object, or refused it."""
    return _without_ranges.get(id(store)) is store


def origin_of(service: str, address: str) -> str:
    """A service that always answers ranges, or the host of an address; empty if there is none."""
    return service if service in _SERVICES else urlsplit(address).netloc


def is_known_to_answer_ranges(store: object, origin: str) -> bool:
    """Whether a store, or the host or service behind it, is known to answer ranges with ranges."""
    return origin in _origins or _with_ranges.get(id(store)) is store


def record_range_answer(store: object, origin: str) -> None:
    """Remember that a store has answered a range with a range; so does all of its host then."""
    if origin:
        _origins.add(origin)
    elif not is_known_to_answer_ranges(store, origin):
        _remember(_with_ranges, store)


def record_whole_object_answer(store: object) -> bool:
    """Remember that a range has brought the whole object; True for the first of a store."""
    return _remember(_without_ranges, store)


def _remember(stores: WeakValueDictionary[int, object], store: object) -> bool:
    """Add a store to `stores`; whether it is new there."""
    with counters.lock:
        is_new = stores.get(id(store)) is not store
        stores[id(store)] = store
        return is_new
