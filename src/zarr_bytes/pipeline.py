"""The pipeline of uncompressed arrays: chunks are read straight into the result.

Zarr's pipelines call the codec for each chunk and copy its result. This pipeline shares the codec's
plans, files, requests and encoding, and decides once for all chunks of a read or a write which
threads do the work. Arrays with other chains of codecs get a pipeline of zarr.
"""

from __future__ import annotations

from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Final, Self, cast

import numpy as np
import zarr
from zarr.buffer import cpu
from zarr.storage import StorePath

from zarr_bytes.caller import warn_caller
from zarr_bytes.chains import own_chain
from zarr_bytes.settings import pipeline_of_other_chains
from zarr_bytes.zarr_versions import BatchedCodecPipeline, unknown_in_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, Codec, GetResult
    from zarr.abc.store import ByteGetter

    from zarr_bytes.chunk.batches import ChunkOfWrite
    from zarr_bytes.chunk.scattering import ChunkOfRead
    from zarr_bytes.chunk.stored import Stored
    from zarr_bytes.zarr_versions import ArraySpec, SelectorTuple

__all__ = ["BatchedBytesPipeline"]

_PRESENT: Final[GetResult] = {"status": "present"}
_MISSING: Final[GetResult] = {"status": "missing"}


class BatchedBytesPipeline(BatchedCodecPipeline):
    """A pipeline of zarr that reads and writes uncompressed chunks and shards by itself.

    It is the pipeline of arrays whose codecs are any number of `transpose` and then `bytes` or
    `endian`, or `sharding_indexed` with these codecs inside, while zarr chooses this package's
    class for ``bytes``. Arrays with other codecs get the pipeline of zarr that the setting
    ``zarr_bytes.other_chains`` names.

    Parameters
    ----------
    array_array_codecs, array_bytes_codec, bytes_bytes_codecs, batch_size
        As of zarr's ``BatchedCodecPipeline``.

    Notes
    -----
    Specification: bytes codec 1.0, transpose codec 1.0 and sharding codec 1.0. An array has the
    pipeline that is configured when it is opened. A new array has zarr's own ``bytes`` codec, which
    this pipeline replaces by this package's.

    Examples
    --------
    >>> array = zarr.create_array({}, shape=3, dtype="int32", compressors=None)
    >>> array.async_array.codec_pipeline.array_bytes_codec
    zarr_bytes.BytesCodec(endian='little')
    """

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec], *, batch_size: int | None = None) -> Self:
        """Pipeline of `codecs`: one of zarr's where others are among them."""
        chain = tuple(codecs)
        own = own_chain(chain) if _is_known() else None
        if own is None:
            # zarr takes any pipeline.
            other = cast("type[Self]", pipeline_of_other_chains())
            return other.from_codecs(chain, batch_size=batch_size)
        # Not by zarr's `from_codecs`, which warns that shards behind a `transpose` are read whole.
        return cls(
            array_array_codecs=cast("tuple[ArrayArrayCodec, ...]", tuple(own[:-1])),
            array_bytes_codec=cast("ArrayBytesCodec", own[-1]),
            bytes_bytes_codecs=(),
            batch_size=batch_size or zarr.config.get("codec_pipeline.batch_size"),
        )

    @cached_property
    def stored(self) -> Stored:
        """Storage of the chunks."""
        from zarr_bytes.chunk.stored import stored_by

        return stored_by((*self.array_array_codecs, self.array_bytes_codec))

    def __getstate__(self) -> dict[str, object]:
        # With the storage: zarr pickles a sharding codec as metadata, which doesn't say that parts
        # are written in place.
        return self.__dict__ | {"stored": self.stored}

    async def read(
        self,
        batch_info: Iterable[tuple[ByteGetter, ArraySpec, SelectorTuple, SelectorTuple, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> tuple[GetResult, ...]:
        """Read selections of chunks into `out`.

        Parameters
        ----------
        batch_info : iterable of (ByteGetter, ArraySpec, tuple, tuple, bool)
            A chunk's key in a store, its shape and data type, the selection of it, where that
            belongs in `out`, and whether all of the chunk that is within the array is selected.
        out : zarr.abc.buffer.NDBuffer
            Of the shape of the selection of the array.
        drop_axes : tuple of int
            Axes of the selections of chunks that `out` does not have.

        Returns
        -------
        tuple of zarr.abc.codec.GetResult
            For each chunk, whether it was there; where it was not, `out` has the fill value.

        Raises
        ------
        ValueError
            If a chunk is not as its metadata says; see `zarr_bytes.errors`.
        """
        batch = cast("list[ChunkOfRead]", list(batch_info))
        array = out.as_ndarray_like()
        if not isinstance(array, np.ndarray) or not _is_taken(batch):
            return await super().read(batch, out, drop_axes)
        from zarr_bytes.chunk.batches import read_batch

        found = await read_batch(batch, array, drop_axes, self.stored)
        return tuple([_PRESENT if is_there else _MISSING for is_there in found])

    async def write(
        self,
        batch_info: Iterable[ChunkOfWrite],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        """Write selections of chunks from `value`.

        Parameters
        ----------
        batch_info : iterable of (ByteSetter, ArraySpec, tuple, tuple, bool)
            As for `read`; the selections belong in `value`.
        value : zarr.abc.buffer.NDBuffer
            Of the shape of the selection of the array, or one element for all.
        drop_axes : tuple of int
            Axes of the selections of chunks that `value` does not have.

        Raises
        ------
        ValueError, OSError
            As `zarr_bytes.chunk.codec_calls.write_selection`.
        """
        batch = list(batch_info)
        if not _is_taken(batch):
            await super().write(batch, value, drop_axes)
            return
        from zarr_bytes.chunk.batches import write_batch

        await write_batch(batch, value, drop_axes, self.stored)


def _is_taken(batch: Sequence[ChunkOfRead] | Sequence[ChunkOfWrite]) -> bool:
    """Whether a batch has chunks of stores, for the memory of this machine."""
    if not batch:
        return False
    getter, spec, *_ = batch[0]
    return isinstance(getter, StorePath) and issubclass(spec.prototype.buffer, cpu.Buffer)


_unknown = unknown_in_pipeline(BatchedCodecPipeline)
_unknown_is_said = False


def _is_known() -> bool:
    """Whether zarr's pipeline is as this one needs it; warns once where it is not."""
    global _unknown_is_said
    if _unknown and not _unknown_is_said:
        _unknown_is_said = True
        warn_caller(
            f"zarr-bytes {metadata.version('zarr-bytes')} does not know the pipeline of zarr"
            f" {zarr.__version__} ({_unknown}), so that zarr's own pipeline is used, and only the"
            " codec of this package; a newer zarr-bytes may know it"
        )
    return not _unknown


# Reading and writing are imported where chunks are read or written here: zarr loads this module for
# every array, and their import takes ten milliseconds.

# Zarr's registry knows a pipeline by its module and name.
BatchedBytesPipeline.__module__ = "zarr_bytes"
