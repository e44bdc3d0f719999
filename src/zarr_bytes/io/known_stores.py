"""Facts about stores in this process: where their files are, and how they answer ranges.

All facts are in one object, `known_stores`, and are found while stores are used:

1. Opening a file on another machine may wait, and each mapped page of such a file is sent as a
   whole. So files are read on the event loop, and written through a mapping, only on a local file
   system. A thread that has opened a file records its file system
   (`record_file_system_unless_known`); the event loop only looks the result up (`may_read_inline`).
2. A server may answer a range with the whole object, or refuse it. So the first range of an object
   is requested alone, unless the store, or another store of the same host, has answered a range.

Mounts and servers may change. Each fact is valid for a time, and is then found again:

========================================  ================================== the file system of a
root or a disk       a minute a read of files would have waited         a second a store or a host
answers ranges          ten minutes after its last answer a store ignores ranges
ten minutes a service (S3, GCS, Azure) answers them   always, without being recorded
========================================  ==================================
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit
from weakref import ref

from zarr_bytes.io import counters

if TYPE_CHECKING:
    from collections.abc import Callable

# The types of file systems on this machine, as Linux names them.
_LOCAL_TYPES: Final = (
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3"),
    *("overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs"),
)
# Locks on SMB block reads and writes of other processes (flock(2)).
_TYPES_WITH_MANDATORY_LOCKS: Final = ("cifs", "smb3")
# Services that always answer ranges.
_SERVICES: Final = frozenset(("s3://", "gs://", "abfs://", "S3Store", "GCSStore", "AzureStore"))

_FILE_SYSTEM_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 1.0
# Long compared with the wait for one range, and short for a process that runs for days and reads
# from a server whose proxy is replaced.
_RANGES_SECONDS: Final = 600.0
_MAX_FACTS: Final = 1000  # of one kind; if there are more, all are forgotten

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


FileSystemTypeOrEmpty: TypeAlias = str
"""The type of a file system, such as "ext4"; empty if it isn't known."""

IsFirstTime: TypeAlias = bool
"""Whether the fact has been recorded for the store for the first time."""


class _Facts(Generic[_Key, _Value]):
    """Facts of one kind, each with the time until which it is valid.

    Any thread may call the methods without a lock: each fact is replaced as a whole, and at worst
    two threads find one fact twice. Old facts stay until there are more than a thousand; then all
    are removed.
    """

    def __init__(self) -> None:
        self._facts: dict[_Key, tuple[_Value, float]] = {}

    def get(self, key: _Key, now: float) -> _Value | None:
        """The value that is valid at the time `now`; None if there is none, or it is too old."""
        fact = self._facts.get(key)
        return fact[0] if fact is not None and now <= fact[1] else None

    def get_even_if_expired(self, key: _Key) -> _Value | None:
        """The last value, even if it isn't valid anymore; None if there is none."""
        fact = self._facts.get(key)
        return None if fact is None else fact[0]

    def record(self, key: _Key, value: _Value, *, until: float) -> None:
        """Replace the value by a new one, which is valid until a time."""
        if len(self._facts) > _MAX_FACTS:
            self._facts.clear()
        self._facts[key] = value, until

    def forget(self) -> None:
        """Forget all."""
        self._facts.clear()


class KnownStores:
    """Facts about file systems, hosts and stores, each valid for a time.

    A root is the folder of a store with files that this package opens itself. The origin of a store
    is its host or service, from `origin_of_range_answers`; empty if it has none. In that case, the
    store itself is remembered, by a weak reference.

    Any thread may call the methods. Methods that take the descriptor of an open file may read
    system files, and are for threads that may wait; all others only look something up.

    Parameters
    ----------
    mounts
        Linux's table of mounts; an attribute, so that tests can replace it.
    clock
        A clock in seconds; an attribute, so that tests can replace it.
    """

    def __init__(
        self,
        mounts: Path = Path("/proc/self/mountinfo"),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.mounts = mounts
        self.clock = clock
        # Types of file systems, as Linux names them; empty if the type isn't known.
        self._type_of_root = _Facts[str, str]()
        # By number of a block device. Numbers of other file systems, such as network file systems,
        # are reused after an unmount.
        self._type_of_device = _Facts[int, str]()
        # Whether a read below the root would have waited.
        self._root_waits = _Facts[str, bool]()
        self._origin_answers_ranges = _Facts[str, bool]()
        # Stores by `id`, since many have no hash. Another store may have this `id` later.
        self._stores_with_ranges = _Facts[int, ref[object]]()
        self._stores_without_ranges = _Facts[int, ref[object]]()

    def forget(self) -> None:
        """Forget all facts, so that everything is found out again."""
        self._type_of_root.forget()
        self._type_of_device.forget()
        self._root_waits.forget()
        self._origin_answers_ranges.forget()
        self._stores_with_ranges.forget()
        self._stores_without_ranges.forget()

    # Where files are.

    def record_file_system_unless_known(self, descriptor: int, root: str) -> FileSystemTypeOrEmpty:
        """Record the file system of a root, from an open file below it, unless it is known.

        Returns the type of the file system; empty if it isn't known.
        """
        name = self._type_of_root.get(root, self.clock())
        if name is None:
            name = self._type_of(descriptor)
            self._type_of_root.record(root, name, until=self.clock() + _FILE_SYSTEM_SECONDS)
        return name

    def file_system_is_known(self, root: str) -> bool:
        """Whether the file system was looked at within the last minute, with any result."""
        return self._type_of_root.get(root, self.clock()) is not None

    def is_known_as_local(self, root: str) -> bool:
        """Whether files below a root are known to be on this machine, and may be read inline.

        False if it isn't known, and on systems without reads that never wait (RWF_NOWAIT).
        """
        name = self._type_of_root.get(root, self.clock())
        return name in _LOCAL_TYPES and hasattr(os, "RWF_NOWAIT")

    def may_read_inline(self, root: str) -> bool:
        """Whether files below a root may be read on the event loop.

        True if they are known to be on this machine, and no read below the root would have waited
        in the last second.
        """
        return self.is_known_as_local(root) and not self._root_waits.get(root, self.clock())

    def avoid_inline_reads(self, root: str) -> None:
        """Keep reads below a root off the event loop for a second, after one would have waited."""
        self._root_waits.record(root, value=True, until=self.clock() + _WAIT_SECONDS)

    def is_on_local_file_system(self, descriptor: int) -> bool:
        """Whether an open file is on this machine; False if it isn't known."""
        return self._type_of(descriptor) in _LOCAL_TYPES

    def has_mandatory_locks(self, descriptor: int, root: str) -> bool:
        """Whether a lock on an open file below a root blocks reads and writes of other processes.

        True on SMB. False if it isn't known, and without locks. Records the file system of the
        root.
        """
        return self.record_file_system_unless_known(descriptor, root) in _TYPES_WITH_MANDATORY_LOCKS

    def _type_of(self, descriptor: int) -> FileSystemTypeOrEmpty:
        """The type of the file system of an open file; empty if it isn't known.

        Reads the type from the system, unless the device is a disk with a known type.
        """
        device = os.fstat(descriptor).st_dev
        name = self._type_of_device.get(device, self.clock())
        if name is None:
            name = self._mounted_type(descriptor)
            if hasattr(os, "major") and os.major(device):
                until = self.clock() + _FILE_SYSTEM_SECONDS
                self._type_of_device.record(device, name, until=until)
        return name

    def _mounted_type(self, descriptor: int) -> FileSystemTypeOrEmpty:
        """The type of the file system of an open file in the table of mounts, or empty."""
        try:
            lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
            (mount_id,) = (line.split()[1] for line in lines if line.startswith("mnt_id:"))
            mounts = self.mounts.read_bytes().splitlines()
        except (OSError, ValueError):
            return ""
        for line in mounts:  # proc_pid_mountinfo(5): the type is the first field after " - "
            if line.split(maxsplit=1)[0] == mount_id.encode():
                return line.partition(b" - ")[2].split()[0].decode()
        return ""

    # How stores answer ranges.

    def is_known_to_answer_ranges(self, store: object, origin: str) -> bool:
        """Whether a store, or its origin, is known to answer ranges with ranges."""
        if origin in _SERVICES:
            return True
        if origin:
            return self._origin_answers_ranges.get(origin, self.clock()) is not None
        return _is_store(self._stores_with_ranges.get(id(store), self.clock()), store)

    def is_known_to_ignore_ranges(self, store: object) -> bool:
        """Whether a store has answered a range with the whole object, or refused it."""
        return _is_store(self._stores_without_ranges.get(id(store), self.clock()), store)

    def record_range_answer(self, store: object, origin: str) -> None:
        """Record that a store has answered a range with a range, for all stores of its origin."""
        if origin in _SERVICES:
            return
        until = self.clock() + _RANGES_SECONDS
        if origin:
            self._origin_answers_ranges.record(origin, value=True, until=until)
        else:
            self._stores_with_ranges.record(id(store), ref(store), until=until)

    def record_whole_object_answer(self, store: object) -> IsFirstTime:
        """Record for ten minutes that a range brought the whole object, or was refused.

        Returns True for the first time of a store, when the user is warned. The user isn't warned
        again if the store is tried again later, and still has no ranges.
        """
        with counters.lock:  # so that only one of several threads has the first time
            is_first = not _is_store(
                self._stores_without_ranges.get_even_if_expired(id(store)), store
            )
            until = self.clock() + _RANGES_SECONDS
            self._stores_without_ranges.record(id(store), ref(store), until=until)
            return is_first


def _is_store(known: ref[object] | None, store: object) -> bool:
    """Whether the store that is known by an `id` is this store, and not an earlier one."""
    return known is not None and known() is store


known_stores: Final = KnownStores()
"""All facts about stores in this process."""


def origin_of_range_answers(service: str, address: str) -> str:
    """The key for stores that answer ranges alike: a service or a host; empty if there is none.

    `service` is the protocol of fsspec ("s3://") or the class of obstore ("S3Store"). It is the
    origin if it always answers ranges. Otherwise, the origin is the host in `address`, if that is a
    URL.
    """
    return service if service in _SERVICES else urlsplit(address).netloc


def means_ranges_unsupported(error: Exception) -> bool:
    """Whether an error of a store's `get` means that it can't read ranges of the object."""
    obstore = sys.modules.get("obstore.exceptions")  # loaded if the error is from obstore
    not_supported = getattr(obstore, "NotSupportedError", NotImplementedError)
    # A range of a compressed response isn't a whole stream: fsspec can't decode it.
    is_not_supported = isinstance(error, NotImplementedError | not_supported)
    return is_not_supported or "content-encoding" in str(error)
