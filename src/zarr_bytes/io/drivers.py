"""The kinds of stores: what reading, writing, views and commands ask of a store.

`driver_of` alone looks at the class of a store. A new kind is a class with members of `Driver` of
its own, and one line in `_DRIVERS`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from zipfile import ZIP_STORED

import numpy as np
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, ObjectStore, ZipStore

from zarr_bytes.errors import wrong_size_error
from zarr_bytes.io.file_writing import CAN_WRITE_FILES
from zarr_bytes.io.known_stores import (
    is_known_to_answer_ranges,
    is_known_to_ignore_ranges,
    origin_of,
)
from zarr_bytes.io.mapping import map_file
from zarr_bytes.io.store_names import store_name
from zarr_bytes.io.tasks import result_without_waiting
from zarr_bytes.settings import request_cost
from zarr_bytes.zarr_versions import MEMORY_STORES, zip_directory

if TYPE_CHECKING:
    from zipfile import ZipFile

    from zarr_bytes.io.mapping import ChangedFiles
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.settings import RequestCost

CostKind: TypeAlias = Literal["local", "remote"]


class Driver:
    """A store of any class: its `get` is asked for byte ranges, and its `set` takes new objects."""

    cost_kind: CostKind = "remote"  # whose settings have the cost of a request
    root = ""  # of files that are opened here, in threads; empty where the store is asked
    is_memory = False  # objects are buffers of this process
    origin = ""  # the host or service behind the store, if it is known

    def __init__(self, store: Any) -> None:
        self.store = store

    def request_cost(self) -> RequestCost | None:
        """Cost of a request, as of `request_cost`."""
        return request_cost(self.cost_kind)

    def why_whole(self, key: str) -> str:  # noqa: ARG002
        """Why a range of an object costs as much as all of it; empty where it costs less."""
        if not is_known_to_ignore_ranges(self.store):
            return ""
        return (
            f"{store_name(self.store)} has answered a byte range with a whole object, or refused"
            " it: a server that answers ranges is needed to read parts"
        )

    def request_cost_of(self, key: str) -> RequestCost | None:
        """`request_cost` of one object: None, too, where it comes whole."""
        return None if self.why_whole(key) else self.request_cost()

    def answers_ranges(self) -> bool:
        """Whether the store is known to answer ranges with ranges."""
        return is_known_to_answer_ranges(self.store, self.origin)

    def why_not_in_place(self) -> str:
        """Why objects are not written as files, in place or not, and what to do; or empty."""
        must = "must be a folder (LocalStore): only chunks in files are changed in place"
        return f"its store is a {type(self.store).__name__}, and {must}"

    def content_for_view(
        self, key: str, nbytes: int | None, changed: ChangedFiles | None
    ) -> Bytes | None:
        """The bytes of an object for a view, of `nbytes` if that is given; None if missing."""
        raise NotImplementedError


class _LocalMediaDriver(Driver):
    cost_kind: CostKind = "local"


class FileDriver(_LocalMediaDriver):
    """A folder, whose files are read, written and mapped without the store."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.root = str(store.root)

    def why_not_in_place(self) -> str:
        """As of `Driver`."""
        if self.store.read_only:
            return 'it was opened to be read only: open it with mode="r+"'
        return "" if CAN_WRITE_FILES else "this system has no positioned writes"

    def content_for_view(
        self, key: str, nbytes: int | None, changed: ChangedFiles | None
    ) -> Bytes | None:
        """The bytes of a file, mapped."""
        return map_file(f"{self.root}/{key}", nbytes, changed)


class MemoryDriver(Driver):
    """A store of buffers of this process."""

    is_memory = True

    def why_whole(self, key: str) -> str:  # noqa: ARG002
        """As of `Driver`."""
        return "the chunks are in memory, where reading one whole costs nothing"

    def content_for_view(
        self, key: str, nbytes: int | None, changed: ChangedFiles | None
    ) -> Bytes | None:
        """The bytes of a buffer, used in place."""
        del changed
        buffer = result_without_waiting(self.store.get(key, cpu.buffer_prototype))
        if buffer is None:
            return None
        content = np.asarray(buffer.as_array_like()).view(np.uint8)
        if nbytes is not None and content.size != nbytes:
            raise wrong_size_error(key, 0, nbytes, content.size)
        content.flags.writeable = False  # of this NumPy array alone
        return content


class ZipDriver(_LocalMediaDriver):
    """A zip file, whose compressed members are inflated from their start."""

    def why_whole(self, key: str) -> str:
        """As of `Driver`."""
        if self._is_deflated(key):
            return "the zip file is compressed: make it with zipfile.ZIP_STORED to read parts"
        return super().why_whole(key)

    def _is_deflated(self, key: str) -> bool:
        """Whether a member is compressed; False for one that is missing, which `get` finds out."""
        if self._directory is None:
            return False
        try:
            return self._directory.getinfo(key).compress_type != ZIP_STORED
        except KeyError:
            return False

    @cached_property
    def _directory(self) -> ZipFile | None:
        return zip_directory(self.store)


class FsspecDriver(Driver):
    """A file system of fsspec."""

    def __init__(self, store: FsspecStore) -> None:
        super().__init__(store)
        protocol = store.fs.protocol
        service = f"{protocol if isinstance(protocol, str) else protocol[0]}://"
        self.origin = origin_of(service, store.path)
        kinds = type(getattr(store.fs, "sync_fs", None)).__mro__
        self._is_archive = any(kind.__module__ == "fsspec.archive" for kind in kinds)

    def why_whole(self, key: str) -> str:
        """As of `Driver`."""
        if self._is_archive:
            return "fsspec reads an archive at one position, so that ranges would get mixed up"
        return super().why_whole(key)


class ObjectStoreDriver(Driver):
    """A store of obstore."""

    def __init__(self, store: ObjectStore[Any]) -> None:
        super().__init__(store)
        self.origin = origin_of(type(store.store).__name__, getattr(store.store, "url", ""))


_DRIVERS: Final[dict[type, type[Driver]]] = {
    LocalStore: FileDriver,
    ZipStore: ZipDriver,
    FsspecStore: FsspecDriver,
    ObjectStore: ObjectStoreDriver,
    **dict.fromkeys(MEMORY_STORES, MemoryDriver),
}
# Of subclasses, which may answer in any way.
_OF_SUBCLASSES: Final[dict[type, type[Driver]]] = {
    ZipStore: ZipDriver,
    LocalStore: _LocalMediaDriver,
}


def driver_of(store: object) -> Driver:
    """The driver for a store."""
    made = _DRIVERS.get(type(store))
    if made is None:
        kinds = (kind for kind in _OF_SUBCLASSES if isinstance(store, kind))
        made = _OF_SUBCLASSES.get(next(kinds, object), Driver)
    return made(store)
