"""A pipeline for chains that are bytes: chunks are read straight into the result.

Zarr's pipelines ask the codec for each chunk, and copy what it gives. This one uses the plan, the
files, the requests and the encoding of the codec, and decides once for all chunks of a read or a
write in which threads that is done. Every other chain is left to a pipeline of zarr.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self, cast

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodecPartialEncodeMixin, CodecPipeline
from zarr.buffer import cpu
from zarr.codecs import TransposeCodec
from zarr.storage import LocalStore, StorePath

from zarr_bytes.chunk import limits
from zarr_bytes.chunk.file_systems import is_known_to_be_local
from zarr_bytes.chunk.files import WouldWaitError, is_tried
from zarr_bytes.chunk.gathering import Gather
from zarr_bytes.chunk.scattering import Scatter
from zarr_bytes.chunk.selection import order_of
from zarr_bytes.chunk.tasks import for_each
from zarr_bytes.chunk.threads import in_threads, number_of_threads
from zarr_bytes.chunk.writing import is_local_chunk
from zarr_bytes.codec import (
    BytesCodec,
    EndianCodec,
    PartialWriteBytesCodec,
    PartialWriteEndianCodec,
)
from zarr_bytes.settings import pipeline_of_other_chains

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zarr.abc.buffer import Buffer, NDBuffer
    from zarr.abc.codec import Codec, GetResult
    from zarr.abc.store import ByteGetter
    from zarr.dtype import ZDType

    from zarr_bytes.chunk.gathering import ChunkOfWrite
    from zarr_bytes.chunk.scattering import ChunkOfRead
    from zarr_bytes.zarr_versions import (
        ArraySpec,
        ChunkGridMetadata,
        SelectorTuple,
        TBaseDType,
        TBaseScalar,
    )

__all__ = ["BytesPipeline"]

_CODECS: Final = (BytesCodec, EndianCodec, PartialWriteBytesCodec, PartialWriteEndianCodec)

_PRESENT: Final[GetResult] = {"status": "present"}
_MISSING: Final[GetResult] = {"status": "missing"}


@dataclass(frozen=True)
class BytesPipeline(CodecPipeline):
    """Pipeline that reads and writes chunks of plain bytes, transposed or not, by itself.

    It acts where the codecs are any number of `transpose` and then this package's `bytes` or
    `endian`, in the memory of this machine. Whatever else is to be read or written is left to the
    pipeline of zarr that the setting ``zarr_bytes.other_chains`` names.

    Parameters
    ----------
    other : zarr.abc.codec.CodecPipeline
        Pipeline of zarr with the same codecs.
    codec : BytesCodec or None
        The codec, where this pipeline acts.
    order : tuple of int or None
        The axis of the array that each stored axis is, by the codecs before it; None where they
        are in order.

    Notes
    -----
    Specification: bytes codec 1.0 and transpose codec 1.0. An array has the pipeline that is
    configured when it is opened.

    Examples
    --------
    >>> with zarr.config.set({"codec_pipeline.path": "zarr_bytes.BytesPipeline"}):
    ...     array = zarr.create_array({}, shape=3, dtype="int32", serializer=BytesCodec())
    >>> array.async_array.codec_pipeline.acts  # not with a compressor
    False
    """

    other: CodecPipeline
    codec: BytesCodec | None = None
    order: tuple[int, ...] | None = None

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """Pipeline of `codecs`."""
        # Up to zarr 3.2 they are fitted to the array, and no pipeline is.
        return cls._before(pipeline_of_other_chains().from_codecs(tuple(codecs)))

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """The same pipeline for one array."""
        return self._before(self.other.evolve_from_array_spec(array_spec))

    @classmethod
    def _before(cls, other: CodecPipeline) -> Self:
        """The pipeline that leaves to `other` what it does not do itself."""
        *before, last = cast("Iterable[Codec]", other)
        if type(last) not in _CODECS or any(type(codec) is not TransposeCodec for codec in before):
            return cls(other)
        orders = [cast("TransposeCodec", codec).order for codec in before]
        return cls(other, cast("BytesCodec", last), order_of(orders))

    @property
    def acts(self) -> bool:
        """Whether chunks are read and written here, and not by a pipeline of zarr."""
        return self.codec is not None

    @property
    def supports_partial_decode(self) -> bool:
        """As of zarr's pipeline; zarr never asks."""
        return self.other.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        """As of zarr's pipeline; zarr never asks."""
        return self.other.supports_partial_encode

    def __iter__(self) -> Iterator[Codec]:
        return iter(cast("Iterable[Codec]", self.other))

    def validate(
        self,
        *,
        shape: tuple[int, ...],
        dtype: ZDType[TBaseDType, TBaseScalar],
        chunk_grid: ChunkGridMetadata,
    ) -> None:
        """Refuse what a codec refuses."""
        self.other.validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        """Size of a stored chunk, in bytes."""
        return self.other.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        """Chunks from their bytes; by zarr's pipeline."""
        return await self.other.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        """Bytes of chunks; by zarr's pipeline."""
        return await self.other.encode(chunk_arrays_and_specs)

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
            If a chunk is not as its metadata say; see `zarr_bytes.errors`.
        """
        batch = cast("list[ChunkOfRead]", list(batch_info))
        array = out.as_ndarray_like()
        if self.codec is None or not isinstance(array, np.ndarray) or not self._is_taken(batch):
            return await self.other.read(batch, out, drop_axes)
        store = batch[0][0].store
        scatter = Scatter(array, drop_axes, self.codec.stored_endian, self.order, store)
        if type(store) is LocalStore:
            found = await _read_files(scatter, batch, array.nbytes, str(store.root))
        else:
            found = await for_each(scatter.read, batch)
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
            As `zarr_bytes.chunk.writing.write_selection`.
        """
        batch = list(batch_info)
        if self.codec is None or not self._is_taken(batch):
            await self.other.write(batch, value, drop_axes)
            return
        gather = Gather(
            value,
            drop_axes,
            self.codec.stored_endian,
            self.order,
            in_place=isinstance(self.codec, ArrayBytesCodecPartialEncodeMixin),
        )
        if is_local_chunk(batch[0][0]):
            # A rename waits for the file system (ext4 allocates the blocks then), so that several
            # threads pay from the second chunk on.
            threads = min(number_of_threads(), len(batch))
            await in_threads(partial(map, gather.write_file), batch, threads)
        else:
            await for_each(gather.write, batch)

    def _is_taken(self, batch: Sequence[ChunkOfRead] | Sequence[ChunkOfWrite]) -> bool:
        """Whether chunks of stores, in the memory of this machine, are selected as zarr does."""
        if not batch:
            return False
        getter, spec, *_ = batch[0]
        return isinstance(getter, StorePath) and issubclass(spec.prototype.buffer, cpu.Buffer)


async def _read_files(
    scatter: Scatter, batch: Sequence[ChunkOfRead], nbytes: int, root: str
) -> list[bool]:
    """Read files into `nbytes` bytes; whether each is there."""
    is_local = is_known_to_be_local(root)
    found: list[bool] = []
    if nbytes <= max(limits.LIMITS.loop, len(batch) * limits.LIMITS.loop_each) and is_tried(root):
        try:
            for is_there in scatter.read_files(batch, waits=False):
                found.append(is_there)
                if not len(found) % limits.LIMITS.loop_chunks:
                    await asyncio.sleep(0)
        except WouldWaitError as wait:
            scatter.left_open[wait.file.path] = wait.file
        except BlockingIOError:
            pass
    rest = batch[len(found) :]
    if not rest:
        return found
    # Files that may have to be waited for are read by as many threads as zarr makes requests.
    limit = number_of_threads() if is_local else zarr.config.get("async.concurrency") or len(rest)
    threads = 1 if is_local and nbytes <= limits.LIMITS.one_thread else min(limit, len(rest))
    return [*found, *await in_threads(scatter.read_files, rest, threads)]


# Zarr's registry knows a pipeline by its module and name.
BytesPipeline.__module__ = "zarr_bytes"
