"""What this process knows of stores: where their files are, and how they answer ranges.

Opening a file on another machine may wait, and a mapped page of one is sent whole. So files are
read on the event loop, and written through a mapping, only where the file system is this machine's.

A thread that has opened a file finds out where it is (`find_file_system`), and that is trusted
for a minute. The event loop only looks that up. No lock is taken: each entry is replaced whole, and
at worst two threads find out the same. Nothing else that a process finds out is kept by a module.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from zarr_bytes.io import counters

# The types of file systems on this machine, as Linux names them.
_LOCAL_TYPES: Final = (
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3"),
    *("overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs"),
)
# Locks of SMB refuse the reads and writes of others (flock(2)).
_TYPES_WITH_MANDATORY_LOCKS: Final = ("cifs", "smb3")

_TRUSTED_SECONDS: Final = 60.0  # mounts change
_AVOIDED_SECONDS: Final = 1.0  # after a read that would have waited
_MAX_ROOTS: Final = 1000  # after which those that are known are forgotten


class KnownType(NamedTuple):
    """The type of a file system, and the time until which it is trusted."""

    name: str  # as Linux names it; empty if it could not be found out
    trusted_until: float  # on the monotonic clock


_UNKNOWN: Final = KnownType("", 0.0)


@dataclass
class FileSystems:
    """What is known of file systems."""

    mounts: Path = Path("/proc/self/mountinfo")
    by_root: dict[str, KnownType] = field(default_factory=dict)  # of a store
    # By number of a block device. Other file systems, such as those of a network, share numbers
    # that are given again once something is unmounted.
    by_device: dict[int, KnownType] = field(default_factory=dict)
    # By root of a store: the time until which nothing is read on the event loop, after a read that
    # would have waited.
    avoided_until: dict[str, float] = field(default_factory=dict)


file_systems = FileSystems()
"""What this process knows of file systems; tests replace it."""

# Services that always answer ranges.
_SERVICES: Final = frozenset(("s3://", "gs://", "abfs://", "S3Store", "GCSStore", "AzureStore"))
# These, and the hosts that have answered a range with a range.
_origins_with_ranges: set[str] = {*_SERVICES}
# Stores that have, and stores that have not; by identity, since many have no hash.
_stores_with_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()
_stores_without_ranges: WeakValueDictionary[int, object] = WeakValueDictionary()


def is_on_local_file_system(descriptor: int) -> bool:
    """Whether an open file is on this machine; False where that is not known. In a thread."""
    return _type_of(descriptor) in _LOCAL_TYPES


def _type_of(descriptor: int) -> str:
    """The type of the file system of an open file; empty if it cannot be found out. In a thread.

    Reads it from the system, unless the device is a disk whose type is trusted.
    """
    device = os.fstat(descriptor).st_dev
    name, trusted_until = file_systems.by_device.get(device, _UNKNOWN)
    if monotonic() > trusted_until:
        name = _mounted_type(descriptor)
        if hasattr(os, "major") and os.major(device):
            known = KnownType(name, monotonic() + _TRUSTED_SECONDS)
            file_systems.by_device[device] = known
    return name


def find_file_system(descriptor: int, root: str) -> None:
    """Find out where the `root` of a store is, from an open file below it, unless it is known.

    In a thread, as it reads files of the system.
    """
    if not location_is_known(root):
        name = _type_of(descriptor)
        if len(file_systems.by_root) > _MAX_ROOTS:
            file_systems.by_root.clear()
        file_systems.by_root[root] = KnownType(name, monotonic() + _TRUSTED_SECONDS)


def location_is_known(root: str) -> bool:
    """Whether `find_file_system` has looked within the last minute, with whatever result."""
    return monotonic() <= file_systems.by_root.get(root, _UNKNOWN).trusted_until


def is_known_as_local(root: str) -> bool:
    """Whether files below `root` are known to be on this machine, and may be read without a wait.

    False where that is not known, and on systems that cannot read without a wait (RWF_NOWAIT).
    """
    name, trusted_until = file_systems.by_root.get(root, _UNKNOWN)
    return name in _LOCAL_TYPES and hasattr(os, "RWF_NOWAIT") and monotonic() <= trusted_until


def has_advisory_locks(descriptor: int, root: str) -> bool:
    """Whether a lock of an open file below `root` disturbs nobody who does not ask for one.

    False on SMB, where it refuses the reads and writes of others. In a thread.
    """
    # None where other threads have located too many others since.
    located = file_systems.by_root.get(root)
    name = _type_of(descriptor) if located is None else located.name
    return name not in _TYPES_WITH_MANDATORY_LOCKS


def may_read_inline(root: str) -> bool:
    """Whether files below `root` may be read on the event loop.

    They are known to be on this machine, and no read there would have waited in the last second.
    """
    return is_known_as_local(root) and monotonic() >= file_systems.avoided_until.get(root, 0)


def avoid_inline_reads(root: str) -> None:
    """Keep reads below `root` off the event loop for a second, after one that would have waited."""
    if len(file_systems.avoided_until) > _MAX_ROOTS:
        file_systems.avoided_until.clear()
    file_systems.avoided_until[root] = monotonic() + _AVOIDED_SECONDS


def _mounted_type(descriptor: int) -> str:
    """The type of the file system of an open file, out of Linux' table of mounts, or empty."""
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        (mount_id,) = (line.split()[1] for line in lines if line.startswith("mnt_id:"))
        mounts = file_systems.mounts.read_bytes().splitlines()
    except (OSError, ValueError):
        return ""
    for line in mounts:  # proc_pid_mountinfo(5): the type is the first field after " - "
        if line.split(maxsplit=1)[0] == mount_id.encode():
            return line.partition(b" - ")[2].split()[0].decode()
    return ""


def means_ranges_unsupported(error: Exception) -> bool:
    """Whether an error of a store's `get` means that it cannot read ranges of the object."""
    obstore = sys.modules.get("obstore.exceptions")  # loaded, if the error is one of its own
    not_supported = getattr(obstore, "NotSupportedError", NotImplementedError)
    # A range of what a server keeps compressed is not a whole stream: fsspec cannot decode it.
    is_not_supported = isinstance(error, NotImplementedError | not_supported)
    return is_not_supported or "content-encoding" in str(error)


def is_known_to_ignore_ranges(store: object) -> bool:
    """Whether a store has answered a range with the whole object, or refused it."""
    return _stores_without_ranges.get(id(store)) is store


def origin_of_range_answers(service: str, address: str) -> str:
    """By what stores are remembered that have answered a range; empty if only by themselves.

    `service` is the protocol of fsspec ("s3://") or the class of obstore ("S3Store"): it is the
    origin if it always answers ranges. Else the origin is the host in `address`, if it is a URL.
    """
    return service if service in _SERVICES else urlsplit(address).netloc


def is_known_to_answer_ranges(store: object, origin: str) -> bool:
    """Whether a store, or the `origin` behind it, is known to answer ranges with ranges."""
    return origin in _origins_with_ranges or _stores_with_ranges.get(id(store)) is store


def record_range_answer(store: object, origin: str) -> None:
    """Remember that a store has answered a range with a range: for all stores of its `origin`."""
    if origin:
        _origins_with_ranges.add(origin)
    elif not is_known_to_answer_ranges(store, origin):
        _remember(_stores_with_ranges, store)


def record_whole_object_answer(store: object) -> bool:
    """Remember that a range has brought the whole object; True for the first of a store."""
    return _remember(_stores_without_ranges, store)


def _remember(stores: WeakValueDictionary[int, object], store: object) -> bool:
    """Add a store to `stores`; True if it was not there. From any thread."""
    with counters.lock:
        is_new = stores.get(id(store)) is not store
        stores[id(store)] = store
        return is_new
