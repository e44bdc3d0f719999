"""The blocks of a zarr array, or the reasons against views of them and writes in place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from zarr.buffer import cpu
from zarr.storage import LocalStore

from zarr_bytes.blocks import Blocks, Source
from zarr_bytes.chains import codec_name, plain_chain, why_undivided
from zarr_bytes.errors import StoreError, wrong_size
from zarr_bytes.io.mapping import mapped
from zarr_bytes.io.new_files import CAN_REPLACE
from zarr_bytes.layout.element import stored_dtype
from zarr_bytes.layout.stored import stored_by
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import partial_writes_enabled
from zarr_bytes.zarr_versions import MEMORY_STORES, spec_of, sync

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr
    from zarr.abc.codec import Codec
    from zarr.abc.store import Store

    from zarr_bytes.io.mapping import ChangedFiles
    from zarr_bytes.layout.elements import Bytes
    from zarr_bytes.zarr_versions import ArraySpec, ArrayV3Metadata

Mode: TypeAlias = Literal["r", "r+"]

_SETTING: Final = 'with zarr.config.set({"zarr_bytes.partial_writes": True})'


def blocks_of(array: zarr.Array[Any], changed: ChangedFiles | None, most: int) -> Blocks:
    """The blocks of an array; a StoreError with the reason if NumPy cannot view them."""
    store = array.store
    prefix = f"{array.path}/" if array.path else ""
    if type(store) is LocalStore:
        prefix, bytes_of = f"{store.root}/{prefix}", partial(mapped, changed=changed)
    elif type(store) in MEMORY_STORES:
        bytes_of = partial(_buffer_of, store)
    else:
        kind = type(store).__name__
        raise StoreError(f"its store is a {kind}, and must be a LocalStore or a MemoryStore")
    chain, metadata, spec = plain_parts(array)
    stored = stored_by(chain)
    dtype, endian = spec.dtype.to_native_dtype(), stored.endian
    if stored_dtype(dtype, endian) is None:
        raise StoreError(f"its {dtype} is stored {endian}-endian, a type that NumPy does not have")
    source = Source(lambda place: f"{prefix}{metadata.encode_chunk_key(place)}", bytes_of)
    return Blocks(array.shape, spec, stored, source, most)


def _buffer_of(store: Store, key: str, nbytes: int | None) -> Bytes | None:
    """The bytes of a chunk in memory, used in place; None if it is missing."""
    buffer = sync(store.get(key, cpu.buffer_prototype))
    if buffer is None:
        return None
    content = np.asarray(buffer.as_array_like()).view(np.uint8)
    if nbytes is not None and content.size != nbytes:
        raise wrong_size(key, 0, nbytes, content.size)
    content.flags.writeable = False  # of this NumPy array alone
    return content


def plain_parts(array: zarr.Array[Any]) -> tuple[Sequence[Codec], ArrayV3Metadata, ArraySpec]:
    """Codecs, metadata and chunk spec of an array with chunks of plain bytes."""
    metadata = array.metadata
    if metadata.zarr_format != 3:
        raise StoreError("it is of Zarr format 2")
    chain = plain_chain(metadata.codecs)
    if chain is None:
        names = ", ".join(map(codec_name, metadata.codecs))
        raise StoreError(
            f"its codecs are {names}; permitted are transposes and bytes alone, or shards of them"
        )
    spec = spec_of(metadata)
    if spec is None:
        raise StoreError("its chunks have several shapes")
    if reason := why_undivided(metadata):
        raise StoreError(reason)
    return chain, metadata, spec


def why_not_in_place(store: Store) -> str:
    """The reason why chunks in a store are not changed in place, and what to do; or empty."""
    if type(store) is not LocalStore:
        kind = type(store).__name__
        must = "must be a folder (LocalStore): only chunks in files are changed in place"
        return f"its store is a {kind}, and {must}"
    if store.read_only:
        return 'it was opened to be read only: open it with mode="r+"'
    return "" if CAN_REPLACE else "this system has no positioned writes"


def refusal_to_write(array: zarr.Array[Any]) -> str | None:
    """The reason why chunks of an array are not changed in place, and what to do; or None."""
    if reason := why_not_in_place(array.store):
        return reason
    pipeline = array.async_array.codec_pipeline
    if partial_writes_enabled() or (
        isinstance(pipeline, BatchedBytesPipeline) and pipeline.in_place
    ):
        return None
    return f"partial writes are off; open the array and its view in `{_SETTING}`"
