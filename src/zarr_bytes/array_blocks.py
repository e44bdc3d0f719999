"""The blocks of a zarr array, or the reason why NumPy cannot view them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import numpy as np
from zarr.abc.codec import ArrayBytesCodecPartialEncodeMixin
from zarr.buffer import cpu
from zarr.storage import LocalStore

from zarr_bytes.chains import plain_chain
from zarr_bytes.chunk.blocks import Blocks, Source
from zarr_bytes.chunk.layout import stored_dtype
from zarr_bytes.chunk.mapping import mapped
from zarr_bytes.chunk.new_files import CAN_REPLACE
from zarr_bytes.chunk.stored import stored_by
from zarr_bytes.errors import StoreError, wrong_size
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import partial_writes_enabled
from zarr_bytes.zarr_versions import MEMORY_STORES, spec_of, sync

if TYPE_CHECKING:
    import zarr

    from zarr_bytes.chunk.elements import Bytes
    from zarr_bytes.chunk.mapping import ChangedFiles
    from zarr_bytes.zarr_versions import ArrayV3Metadata

__all__ = ["Mode", "blocks_of", "refusal_to_write"]

Mode: TypeAlias = Literal["r", "r+"]

_INSTEAD: Final = "read it through zarr, as in `array[...]`"
_SETTING: Final = 'with zarr.config.set({"zarr_bytes.partial_writes": True})'


def blocks_of(
    array: zarr.Array[Any], changed: ChangedFiles | None, most: int, *, is_checked: bool
) -> Blocks:
    """The blocks of an array; a StoreError with the reason if NumPy cannot view them."""
    store, metadata = array.store, array.metadata
    if metadata.zarr_format != 3:
        raise _no_view(array, "it is of Zarr format 2")
    if type(store) is not LocalStore and type(store) not in MEMORY_STORES:
        kind = type(store).__name__
        raise _no_view(array, f"its store is a {kind}, and must be a LocalStore or a MemoryStore")
    chain = plain_chain(metadata.codecs)
    if chain is None:
        names = ", ".join([str(codec.to_dict()["name"]) for codec in metadata.codecs])
        raise _no_view(array, f"its codecs are {names}, so that its chunks are not plain bytes")
    spec = spec_of(metadata)
    if spec is None:
        raise _no_view(array, "its chunks have several shapes")
    stored = stored_by(chain)
    dtype, endian = spec.dtype.to_native_dtype(), stored.codec.stored_endian
    if stored_dtype(dtype, endian) is None:
        raise _no_view(
            array, f"its {dtype} is stored {endian}-endian, a type that NumPy does not have"
        )
    is_in_files = type(store) is LocalStore
    source = _files_of(array, changed) if is_in_files else _buffers_of(array)
    return Blocks(array.shape, spec, stored, source, most, is_checked=is_checked)


def _no_view(array: zarr.Array[Any], reason: str) -> StoreError:
    return StoreError(f"there is no view of {array.store_path}: {reason}; {_INSTEAD}")


def _files_of(array: zarr.Array[Any], changed: ChangedFiles | None) -> Source:
    """Chunks in files, which are mapped; to be changed, with `changed`."""
    folder = "/".join(filter(None, [str(cast("LocalStore", array.store).root), array.path]))
    metadata = cast("ArrayV3Metadata", array.metadata)

    def path_of(place: tuple[int, ...]) -> str:
        return f"{folder}/{metadata.encode_chunk_key(place)}"

    def bytes_of(path: str, nbytes: int | None) -> Bytes | None:
        return mapped(path, nbytes, changed)

    return Source(path_of, bytes_of)


def _buffers_of(array: zarr.Array[Any]) -> Source:
    """Chunks in memory, which are used in place."""
    store, metadata = array.store, cast("ArrayV3Metadata", array.metadata)

    def key_of(place: tuple[int, ...]) -> str:
        return "/".join(filter(None, [array.path, metadata.encode_chunk_key(place)]))

    def bytes_of(key: str, nbytes: int | None) -> Bytes | None:
        buffer = sync(store.get(key, cpu.buffer_prototype))
        if buffer is None:
            return None
        content = np.asarray(buffer.as_array_like()).view(np.uint8)
        if nbytes is not None and content.size != nbytes:
            raise wrong_size(key, 0, nbytes, content.size)
        content.flags.writeable = False  # of this NumPy array alone
        return content

    return Source(key_of, bytes_of)


def refusal_to_write(array: zarr.Array[Any]) -> str | None:
    """The reason why chunks of an array are not changed in place, and what to do; or None."""
    if type(array.store) is not LocalStore:
        return "only chunks in files are changed in place; write through zarr (`array[...] = ...`)"
    if array.read_only:
        return 'it was opened to be read only; open it with mode="r+"'
    if not CAN_REPLACE:
        return "this system has no positioned writes; write through zarr (`array[...] = ...`)"
    pipeline = array.async_array.codec_pipeline
    if isinstance(pipeline, BatchedBytesPipeline):  # which was made with the settings of the array
        codec = pipeline.stored.codec
    else:
        codec = stored_by(plain_chain(cast("ArrayV3Metadata", array.metadata).codecs) or ()).codec
    if partial_writes_enabled() or isinstance(codec, ArrayBytesCodecPartialEncodeMixin):
        return None
    return f"partial writes are off; open the array and its view in `{_SETTING}`"
