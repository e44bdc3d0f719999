"""The kinds of stores: the properties of a store for reading, writing, views and commands.

Only `driver_of` looks at the class of a store. A new kind of store needs a class that overrides
members of `Driver`, and one line in `_DRIVERS`. A driver has no state except facts about its store,
so any thread may use it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zipfile import ZIP_STORED

import numpy as np
from zarr.buffer import cpu
from zarr.storage import (
    FsspecStore,
    LocalStore,
    LoggingStore,
    ObjectStore,
    WrapperStore,
    ZipStore,
)

from zarr_bytes.errors import wrong_size_error
from zarr_bytes.io.file_writing import CAN_WRITE_FILES
from zarr_bytes.io.known_stores import known_stores, origin_of_range_answers
from zarr_bytes.io.mapping import map_read_only_if_exists, map_writable_if_exists
from zarr_bytes.io.references import (
    PLAIN_KEY,
    ManifestReferences,
    is_exactly,
    is_local_file_system,
    is_obstore_local_store_without_links,
    references_of_fsspec_if_any,
)
from zarr_bytes.io.store_names import store_name
from zarr_bytes.io.tasks import run_coroutine_that_never_waits
from zarr_bytes.settings import request_cost_or_none_if_partial_reads_are_off
from zarr_bytes.zarr_versions import (
    MEMORY_STORES,
    overrides_get_many,
    wrapped_store,
    zip_file_for_getinfo_or_none,
)

if TYPE_CHECKING:
    from zipfile import ZipFile

    from zarr_bytes.io.mapping import WritableMappings
    from zarr_bytes.io.references import References
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.settings import CostKind, RequestCost


class WholeReadReason(NamedTuple):
    """Why an object is always read whole, and the remedy, as parts of sentences."""

    text: str
    remedy: str


_IN_MEMORY: Final = WholeReadReason(
    "the chunks are in memory, where reading one whole costs nothing", "none is needed"
)


class Driver:
    """A store of any class: its `get` reads byte ranges, and its `set` writes new objects."""

    cost_kind: CostKind = "remote"  # the cost of a request
    # Folder with files that are opened and read without the store; empty if there is none.
    files_root = ""
    is_memory = False  # whether objects are buffers of this process
    can_be_viewed = False  # whether `view_bytes_if_exists` gives bytes
    # The locations of objects that are parts of files; None if the store has its own objects.
    references: References | None = None
    # Whether `why_always_whole` has one result for all objects, until an object is read.
    objects_are_alike = True
    # The host or service of the store, from `origin_of_range_answers`; empty if there is none.
    origin = ""

    def __init__(self, store: Any, key: str) -> None:  # noqa: ARG002 -- as of `driver_of`
        self.store = store

    @property
    def is_remote(self) -> bool:
        """Whether the store may be on another machine, so that each answer takes a while."""
        return self.cost_kind == "remote"

    @property
    def store_overrides_get_many(self) -> bool:
        """Whether the store has its own `get_many`, which takes requests for several keys."""
        return overrides_get_many(self.store)

    def request_cost_or_none_if_partial_reads_are_off(self) -> RequestCost | None:
        """Cost of a request with the current settings; None if partial reads are switched off."""
        return request_cost_or_none_if_partial_reads_are_off(self.cost_kind)

    def why_always_whole(self, key: str) -> WholeReadReason | None:  # noqa: ARG002
        """Why the object at `key` is read whole; None if it isn't.

        A range of such an object costs as much as the whole object. A missing object isn't read
        whole.
        """
        if not known_stores.is_known_to_ignore_ranges(self.store):
            return None
        return WholeReadReason(
            f"{store_name(self.store)} has answered a byte range with a whole object, or refused"
            " it",
            "serve the objects from a server that answers byte ranges (nginx, Apache, S3), and not"
            " compressed by the server (Content-Encoding), or copy them to a folder",
        )

    def request_cost_or_none_if_read_whole(self, key: str) -> RequestCost | None:
        """Cost of a request for a part of the object at `key`; None if it is read whole."""
        return (
            None
            if self.why_always_whole(key) is not None
            else self.request_cost_or_none_if_partial_reads_are_off()
        )

    def is_known_to_answer_ranges(self) -> bool:
        """Whether the store, or its host, is known to answer ranges with ranges."""
        return known_stores.is_known_to_answer_ranges(self.store, self.origin)

    def may_divide_whole_chunks(self) -> bool:
        """Whether a whole chunk may be fetched in several requests."""
        return self.is_known_to_answer_ranges()

    def why_not_in_place(self) -> str | None:
        """Why this package doesn't write files of the store, with the remedy; None if it does.

        If there is a reason, the store's `set` writes whole objects.
        """
        must = "must be a folder (LocalStore): only chunks in files are changed in place"
        return f"its store is a {type(self.store).__name__}, and {must}"

    def view_bytes_if_exists(self, key: str, expected_nbytes_if_known: int | None) -> Bytes | None:
        """The bytes of the object at `key`, read-only and without a copy; None if it is missing.

        Raises ChunkSizeError unless there are `expected_nbytes_if_known` bytes; None permits any
        number. Only for stores that have a `files_root` or are in memory; others raise
        NotImplementedError. It may wait for the disk.
        """
        raise NotImplementedError

    def view_writable_bytes_if_exists(
        self, key: str, expected_nbytes_if_known: int | None, writable_mappings: WritableMappings
    ) -> Bytes | None:
        """Like `view_bytes_if_exists`, but changes of the bytes change the file.

        `writable_mappings` gets the mapping. Only for stores for which `why_not_in_place` is None;
        others raise NotImplementedError.
        """
        raise NotImplementedError


class _LocalMediaDriver(Driver):
    """A store on this machine: a request is a call, which takes tens of microseconds."""

    cost_kind: CostKind = "local store"


class FileDriver(Driver):
    """A folder; its files are read, written and mapped without the store."""

    cost_kind: CostKind = "local"
    can_be_viewed = True

    def __init__(self, store: LocalStore, key: str) -> None:
        super().__init__(store, key)
        self.files_root = str(store.root)

    def why_not_in_place(self) -> str | None:
        """Why the files aren't written: a read-only store, or a system without `os.pwrite`."""
        if self.store.read_only:
            return 'it was opened read-only: open it with mode="r+"'
        return None if CAN_WRITE_FILES else "this system has no positioned writes"

    def view_bytes_if_exists(self, key: str, expected_nbytes_if_known: int | None) -> Bytes | None:
        """The bytes of a file, mapped; raises the errors of `map_read_only_if_exists`."""
        return map_read_only_if_exists(f"{self.files_root}/{key}", expected_nbytes_if_known)

    def view_writable_bytes_if_exists(
        self, key: str, expected_nbytes_if_known: int | None, writable_mappings: WritableMappings
    ) -> Bytes | None:
        """The bytes of a file, mapped; raises the errors of `map_writable_if_exists`."""
        return map_writable_if_exists(
            f"{self.files_root}/{key}", expected_nbytes_if_known, writable_mappings
        )


class MemoryDriver(Driver):
    """A store of buffers of this process."""

    cost_kind: CostKind = "local store"
    is_memory = True
    can_be_viewed = True

    def why_always_whole(self, key: str) -> WholeReadReason:  # noqa: ARG002
        """Why an object is read whole: it is in memory."""
        return _IN_MEMORY

    def view_bytes_if_exists(self, key: str, expected_nbytes_if_known: int | None) -> Bytes | None:
        """The bytes of a buffer, used in place."""
        buffer = run_coroutine_that_never_waits(self.store.get(key, cpu.buffer_prototype))
        if buffer is None:
            return None
        content = np.asarray(buffer.as_array_like()).view(np.uint8)
        if expected_nbytes_if_known is not None and content.size != expected_nbytes_if_known:
            raise wrong_size_error(key, 0, expected_nbytes_if_known, content.size)
        content.flags.writeable = False  # for this NumPy array, not for the buffer
        return content


class ZipDriver(Driver):
    """A zip file; compressed members must be decompressed from their start."""

    cost_kind: CostKind = "zip file"
    objects_are_alike = False  # members may be compressed one by one

    def why_always_whole(self, key: str) -> WholeReadReason | None:
        """Why a member is read whole: it is compressed, or the reason of `Driver`."""
        if self._is_compressed_member(key):
            return WholeReadReason(
                "the zip file is compressed",
                "make the zip file again with compression=zipfile.ZIP_STORED, as zarr's ZipStore"
                " does by default",
            )
        return super().why_always_whole(key)

    def _is_compressed_member(self, key: str) -> bool:
        """Whether a member is compressed; False if it is missing, which `get` will find."""
        if self._zip_directory is None:
            return False
        try:
            return self._zip_directory.getinfo(key).compress_type != ZIP_STORED
        except KeyError:
            return False

    @cached_property
    def _zip_directory(self) -> ZipFile | None:
        """The list of members, which may be closed; None if the store has no file yet."""
        return zip_file_for_getinfo_or_none(self.store)


class FsspecDriver(Driver):
    """A file system of fsspec; with exactly its local one, files are read without the store."""

    def __init__(self, store: FsspecStore, key: str) -> None:
        super().__init__(store, key)
        protocol = store.fs.protocol
        service = f"{protocol if isinstance(protocol, str) else protocol[0]}://"
        self.origin = origin_of_range_answers(service, store.path)
        # The file system of fsspec that zarr wraps, or the file system itself.
        file_system = getattr(store.fs, "sync_fs", store.fs)
        classes = type(file_system).__mro__
        self._is_archive = any(base.__module__ == "fsspec.archive" for base in classes)
        if is_exactly(file_system, "fsspec.implementations.memory", "MemoryFileSystem"):
            self.cost_kind = "local store"
        self.references = references_of_fsspec_if_any(store)
        if is_local_file_system(file_system):
            self.cost_kind = "local store"
            # The file system changes relative paths, and paths with "~" or "..".
            is_plain = file_system._strip_protocol(store.path) == store.path
            # A store may treat other errors as missing chunks, too.
            if is_plain and set(store.allowed_exceptions) == _ERRORS_OF_MISSING_FILES:
                self.cost_kind = "local"
                self.files_root = store.path

    def why_always_whole(self, key: str) -> WholeReadReason | None:
        """Why an object is read whole: it is in an archive, or the reason of `Driver`."""
        if self._is_archive:
            return WholeReadReason(
                "fsspec reads an archive at one position, so that ranges would get mixed up",
                "open a zip file on this machine with zarr.storage.ZipStore, and unpack any other"
                " archive",
            )
        return super().why_always_whole(key)


class ObjectStoreDriver(Driver):
    """A store of obstore; with exactly its local one, files are read without the store."""

    def __init__(self, store: ObjectStore[Any], key: str) -> None:
        super().__init__(store, key)
        of_obstore: Any = store.store
        self.origin = origin_of_range_answers(
            type(of_obstore).__name__, getattr(of_obstore, "url", "")
        )
        self._is_in_memory = is_exactly(of_obstore, "obstore.store", "MemoryStore")
        if self._is_in_memory:
            self.cost_kind = "local store"
        if is_exactly(of_obstore, "obstore.store", "LocalStore"):
            self.cost_kind = "local store"
            if is_obstore_local_store_without_links(of_obstore) and PLAIN_KEY.fullmatch(key):
                self.cost_kind = "local"
                self.files_root = str(of_obstore.prefix)

    def why_always_whole(self, key: str) -> WholeReadReason | None:
        """Why an object is read whole: it is in memory, or the reason of `Driver`."""
        return _IN_MEMORY if self._is_in_memory else super().why_always_whole(key)


class _WrapperDriver(Driver):
    """A wrapper store of zarr: requests go to the wrapper, at the cost of the wrapped store."""

    def __init__(self, store: WrapperStore[Any], key: str) -> None:
        super().__init__(store, key)
        wrapped = driver_of(wrapped_store(store), key)
        self.origin = wrapped.origin
        self.cost_kind = "remote" if wrapped.cost_kind == "remote" else "local store"
        self.objects_are_alike = wrapped.objects_are_alike
        self._wrapped = wrapped

    def why_always_whole(self, key: str) -> WholeReadReason | None:
        """The reason of the wrapped store, or the reason of `Driver`."""
        return self._wrapped.why_always_whole(key) or super().why_always_whole(key)


class _ManifestDriver(Driver):
    """A `ManifestStore` of VirtualiZarr."""

    def __init__(self, store: Any, key: str) -> None:
        super().__init__(store, key)
        self.references = ManifestReferences(store)


class _IcechunkDriver(Driver):
    """A store of Icechunk, which divides large requests itself."""

    def may_divide_whole_chunks(self) -> bool:
        """False, because Icechunk would divide the requests again."""
        return False


_ERRORS_OF_MISSING_FILES: Final = {FileNotFoundError, IsADirectoryError, NotADirectoryError}


_DRIVERS: Final[dict[type, type[Driver]]] = {
    LocalStore: FileDriver,
    ZipStore: ZipDriver,
    FsspecStore: FsspecDriver,
    ObjectStore: ObjectStoreDriver,
    WrapperStore: _WrapperDriver,
    LoggingStore: _WrapperDriver,
    **dict.fromkeys(MEMORY_STORES, MemoryDriver),
}
# For subclasses, which may behave differently. Subclasses of other classes get a `Driver`.
_DRIVERS_OF_SUBCLASSES: Final[dict[type, type[Driver]]] = {
    ZipStore: ZipDriver,
    LocalStore: _LocalMediaDriver,
}


def driver_of(store: object, key: str) -> Driver:
    """A new driver for a store of any class, and for the objects of an array.

    `key` is the key of the array, or of one of its objects.
    """
    driver_class = _DRIVERS.get(type(store))
    if driver_class is None and is_exactly(store, "icechunk.store", "IcechunkStore"):
        driver_class = _IcechunkDriver
    if driver_class is None and is_exactly(store, "virtualizarr.manifests.store", "ManifestStore"):
        driver_class = _ManifestDriver
    if driver_class is None:
        bases = (base for base in _DRIVERS_OF_SUBCLASSES if isinstance(store, base))
        driver_class = _DRIVERS_OF_SUBCLASSES.get(next(bases, object), Driver)
    return driver_class(store, key)
