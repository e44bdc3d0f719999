"""The blocks of a zarr array, or the reasons against views of them and writes in place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from zarr_bytes.blocks import Blocks, Source
from zarr_bytes.chains import codec_name, plain_chain, stored_by, why_undivided
from zarr_bytes.errors import StoreError
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.layout.element import stored_dtype
from zarr_bytes.pipeline import BatchedBytesPipeline
from zarr_bytes.settings import partial_writes_enabled
from zarr_bytes.zarr_versions import spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr
    from zarr.abc.codec import Codec

    from zarr_bytes.io.mapping import ChangedFiles
    from zarr_bytes.zarr_versions import ArraySpec, ArrayV3Metadata

Mode: TypeAlias = Literal["r", "r+"]

_SETTING: Final = 'with zarr.config.set({"zarr_bytes.partial_writes": True})'


def blocks_of(array: zarr.Array[Any], changed: ChangedFiles | None, most: int) -> Blocks:
    """The blocks of an array; a StoreError with the reason if NumPy cannot view them."""
    driver = driver_of(array.store)
    if reason := driver.why_no_view():
        raise StoreError(reason)
    prefix = f"{array.path}/" if array.path else ""
    content = partial(driver.content, changed=changed)
    chain, metadata, spec = plain_parts(array)
    stored = stored_by(chain)
    dtype, endian = spec.dtype.to_native_dtype(), stored.endian
    if stored_dtype(dtype, endian) is None:
        raise StoreError(f"its {dtype} is stored {endian}-endian, a type that NumPy does not have")
    source = Source(lambda place: f"{prefix}{metadata.encode_chunk_key(place)}", content)
    return Blocks(array.shape, spec, stored, source, most)


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


def refusal_to_write(array: zarr.Array[Any]) -> str | None:
    """The reason why chunks of an array are not changed in place, and what to do; or None."""
    if reason := driver_of(array.store).why_not_in_place():
        return reason
    pipeline = array.async_array.codec_pipeline
    if partial_writes_enabled() or (
        isinstance(pipeline, BatchedBytesPipeline) and pipeline.in_place
    ):
        return None
    return f"partial writes are off; open the array and its view in `{_SETTING}`"
