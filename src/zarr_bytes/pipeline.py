"""The pipeline of uncompressed arrays: chunks are read straight into the result.

Zarr's pipelines call the codec for each chunk and copy its result. This pipeline uses the plans,
files, requests and encoding of the codec, and chooses the threads once for all chunks of a read or
a write. Arrays with other chains of codecs get a pipeline of zarr.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self, TypeAlias, cast

import numpy as np
import zarr
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.storage import StorePath

from zarr_bytes.chains import (
    encoding_of_uncompressed,
    is_uncompressed,
    why_inner_chunks_do_not_divide_shard,
    why_neither_reads_shard,
    why_uncompressed_chunks_are_read_by_zarr,
    with_own_bytes_codecs,
)
from zarr_bytes.codec import Immutable
from zarr_bytes.errors import ConfigurationError, warn_caller
from zarr_bytes.io.index_cache import IndexCache
from zarr_bytes.limits import DEFAULT_LIMITS
from zarr_bytes.pickling import PIPELINE_FROM_CODECS
from zarr_bytes.settings import CLASSES, checked_setting, zarr_setting_or_default
from zarr_bytes.zarr_versions import (
    PIPELINES,
    BatchedCodecPipeline,
    chunk_shape_if_regular,
    chunk_spec_of_shape,
    why_pipeline_is_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from zarr.abc.buffer import NDBuffer
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec, GetResult
    from zarr.abc.store import Store

    from zarr_bytes.indexing.plan_cache import PlanCache
    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.layout.elements import Array
    from zarr_bytes.layout.objects import ChunkEncoding
    from zarr_bytes.limits import Limits
    from zarr_bytes.read import ChunkExists, ChunkProjection
    from zarr_bytes.zarr_versions import (
        ArrayMetadata,
        ArraySpec,
        SelectorTuple,
    )

# One chunk of zarr's batch: store path, or another getter or setter of bytes; chunk spec, chunk
# selection, out selection, and whether the selection is a complete chunk.
_BatchItem: TypeAlias = "tuple[Any, ArraySpec, SelectorTuple, SelectorTuple, bool]"

_ARRAYS_LEFT_TO_ZARR: Final = np.ma.MaskedArray, np.matrix  # with their own rules of assignment
_PRESENT: Final[GetResult] = {"status": "present"}
_MISSING: Final[GetResult] = {"status": "missing"}


class BatchedBytesPipeline(Immutable, BatchedCodecPipeline):
    """A pipeline of zarr that reads and writes uncompressed chunks and shards by itself.

    Arrays get this pipeline if zarr uses this package's class for ``bytes``, and if their codecs
    are any number of `transpose` followed by `bytes` or `endian`, or `sharding_indexed` with these
    codecs inside. Arrays of Zarr format 2 get it if they have no filters and no compressor. Arrays
    with other codecs get the pipeline of zarr that the setting ``zarr_bytes.other_chains`` names.

    With zarr 3.3 or newer, codecs and filters that change each element by itself are permitted,
    too, such as `scale_offset`, `cast_value` and `numcodecs.fixedscaleoffset`.

    Parameters
    ----------
    array_array_codecs, array_bytes_codec, bytes_bytes_codecs, batch_size
        As in zarr's ``BatchedCodecPipeline``.

    Notes
    -----
    Specification: bytes codec 1.0, transpose codec 1.0 and sharding codec 1.0. An array has the
    pipeline that is configured when it is opened. A new array has zarr's own ``bytes`` codec, which
    this pipeline replaces with the codec of this package.

    Examples
    --------
    >>> array = zarr.create_array({}, shape=3, dtype="int32", compressors=None)
    >>> array.async_array.codec_pipeline.array_bytes_codec
    zarr_bytes.BytesCodec(endian='little')
    """

    # Sizes at which reading and writing change their method. Subclasses may have others.
    limits: ClassVar[Limits] = DEFAULT_LIMITS
    # Whether selections are written in place: the value of the setting when the array was opened. A
    # pickled pipeline keeps it.
    in_place: bool
    # The indexes of shards that reads have fetched. A pickled pipeline has an empty one.
    index_cache: IndexCache
    # The driver of the last folder that was read or written.
    _kept_driver: Driver | None = None

    def __init__(
        self,
        array_array_codecs: tuple[ArrayArrayCodec, ...],
        array_bytes_codec: ArrayBytesCodec,
        bytes_bytes_codecs: tuple[BytesBytesCodec, ...],
        batch_size: int,
    ) -> None:
        super().__init__(array_array_codecs, array_bytes_codec, bytes_bytes_codecs, batch_size)
        # zarr's class is frozen.
        object.__setattr__(self, "in_place", checked_setting("zarr_bytes.partial_writes"))
        object.__setattr__(self, "index_cache", IndexCache())

    @classmethod
    def from_array_metadata_and_store(
        cls,
        array_metadata: ArrayMetadata,
        store: Store,  # noqa: ARG003
    ) -> NoReturn:
        """Refuse metadata of shards that can't be read; otherwise, zarr calls `from_codecs`.

        Zarr calls this first, and calls `from_codecs` after a NotImplementedError.

        Raises
        ------
        ConfigurationError
            If inner chunks don't divide the shard, and zarr doesn't read such shards either.
        NotImplementedError
            Otherwise.
        """
        codecs: Sequence[Codec] = getattr(array_metadata, "codecs", ())  # none in format 2
        has_shards = bool(codecs) and isinstance(codecs[-1], ShardingCodec)
        if has_shards and _is_chosen() and _are_own_if_chosen(codecs):
            shape = chunk_shape_if_regular(array_metadata)
            # Making the chunk spec takes as long as everything else.
            if shape is not None and why_inner_chunks_do_not_divide_shard(codecs, shape):
                spec = chunk_spec_of_shape(array_metadata, shape)
                _raise_if_neither_reads_shard(codecs, spec)
        raise NotImplementedError("zarr calls `from_codecs`")

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec], *, batch_size: int | None = None) -> Self:
        """Pipeline for a chain of codecs.

        A pipeline of zarr if the chain has codecs that this package doesn't read, if this package's
        codec isn't chosen, or if the pipeline of this zarr isn't known.
        """
        codecs = tuple(codecs)
        are_own = False
        if _is_chosen():
            codecs = with_own_bytes_codecs(codecs)  # a new array has zarr's own
            are_own = _are_own_if_chosen(codecs)
        if not are_own:
            # zarr takes any pipeline.
            pipeline_of_zarr = cast(
                "type[Self]", PIPELINES[checked_setting("zarr_bytes.other_chains")]
            )
            return pipeline_of_zarr.from_codecs(codecs, batch_size=batch_size)
        # Not with zarr's `from_codecs`, which warns that shards after a `transpose` are read whole.
        return cls(
            array_array_codecs=cast("tuple[ArrayArrayCodec, ...]", codecs[:-1]),
            array_bytes_codec=cast("ArrayBytesCodec", codecs[-1]),
            bytes_bytes_codecs=(),
            batch_size=batch_size or zarr_setting_or_default("codec_pipeline.batch_size", 1),
        )

    @cached_property
    def encoding(self) -> ChunkEncoding:
        """The encoding of the chunks by the codecs."""
        return encoding_of_uncompressed(
            (*self.array_array_codecs, self.array_bytes_codec), self.limits
        )

    @cached_property
    def plans(self) -> PlanCache:
        """The plans of the last reads and writes. A pickled pipeline has an empty cache."""
        from zarr_bytes.indexing.plan_cache import PlanCache  # as `read_batch`, for this array only

        return PlanCache()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # As the codec, so that the array can be read where this package isn't installed. A pipeline
        # that writes in place may share chunks with other writers, which no other pipeline can do.
        if self.in_place or type(self) is not BatchedBytesPipeline:
            return super().__reduce_ex__(protocol)
        codecs = (*self.array_array_codecs, self.array_bytes_codec)
        state = {"in_place": False, "batch_size": self.batch_size}  # not every class takes a size
        return PIPELINE_FROM_CODECS, (codecs,), state

    def __getstate__(self) -> dict[str, object]:
        return {name: kept for name, kept in vars(self).items() if name != "_kept_driver"}

    async def read(
        self, batch_info: Iterable[_BatchItem], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[GetResult, ...]:
        """Read selections of chunks into `out`; return for each chunk whether it exists.

        Zarr calls this on its event loop, with the chunks of one read. Results in other memory, and
        chunks that aren't in a store, are left to zarr's pipeline.
        """
        items = list(batch_info)
        array = out.as_ndarray_like()
        is_numpy = isinstance(array, np.ndarray) and not isinstance(array, _ARRAYS_LEFT_TO_ZARR)
        batch = self._projections_unless_left_to_zarr(items) if is_numpy else None
        if batch is None:
            return await super().read(items, out, drop_axes)
        from zarr_bytes.read import read_batch  # 10 ms, and zarr loads this module for any array

        driver = self._driver_of(items[0][0])
        read: Callable[..., Awaitable[list[ChunkExists]]] = read_batch
        if driver.references is not None:
            from zarr_bytes.read_references import read_batch_of_references

            read = read_batch_of_references
        elif not driver.files_root and driver.store_overrides_get_many:
            from zarr_bytes.read_many import read_batch_by_get_many

            read = read_batch_by_get_many
        exists = await read(
            batch,
            driver,
            cast("Array", array),
            drop_axes,
            items[0][1].prototype,
            self.plans,
            self.index_cache,
        )
        return tuple([_PRESENT if is_there else _MISSING for is_there in exists])

    async def write(
        self, batch_info: Iterable[_BatchItem], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        """Write selections of chunks from `value`.

        Zarr calls this on its event loop, with the chunks of one write. Chunks that aren't in a
        store, or whose absent inner chunks don't read as the fill value, are left to zarr's
        pipeline.
        """
        items = list(batch_info)
        batch = self._projections_unless_left_to_zarr(items)
        if batch is None or not batch[0].layout.absent_inner_chunks_are_fill_values:
            await super().write(items, value, drop_axes)
            return
        from zarr_bytes.write import write_batch

        spec = items[0][1]
        await write_batch(
            batch,
            self._driver_of(items[0][0]),
            value,
            drop_axes,
            spec.prototype,
            self.plans,
            in_place=self.in_place,
            skips_empty_chunks=not spec.config.write_empty_chunks,
        )

    def _driver_of(self, store_path: StorePath) -> Driver:
        """The driver of a store; the driver of a folder is kept for the next read or write."""
        store = store_path.store
        kept = self._kept_driver
        if kept is not None and kept.store is store:
            return kept
        from zarr_bytes.io.drivers import driver_of

        driver = driver_of(store, store_path.path)
        if driver.files_root:
            object.__setattr__(self, "_kept_driver", driver)
        return driver

    def _projections_unless_left_to_zarr(
        self, items: list[_BatchItem]
    ) -> list[ChunkProjection] | None:
        """Zarr's batch as items of this package; only this method depends on the form of zarr's.

        None for a batch that zarr reads or writes: it is empty, its chunks aren't in a store, its
        buffers aren't in main memory, filters of format 2 don't decode each element by itself, or
        inner chunks don't divide the shards. A ConfigurationError if zarr doesn't read these shards
        either.
        """
        if not items:
            return None
        store_path_of_first, spec_of_first, *_ = items[0]  # usually the spec of all
        has_cpu_buffers = issubclass(spec_of_first.prototype.buffer, cpu.Buffer)
        if not (isinstance(store_path_of_first, StorePath) and has_cpu_buffers):
            return None
        # With filters, specs differ only in their shapes.
        has_filters = bool(self.encoding.elementwise_codecs.filters)
        if has_filters and why_uncompressed_chunks_are_read_by_zarr(
            (self.array_bytes_codec,), spec_of_first
        ):
            return None
        from zarr_bytes.read import ChunkProjection

        layout_of = self.encoding.layout_of
        layout_of_first = layout_of(spec_of_first)
        # Faster than calling the class, by 0.1 microseconds for each of a thousand chunks.
        projection_of = ChunkProjection._make
        batch = [
            projection_of(
                (
                    store_path,
                    layout_of_first if spec is spec_of_first else layout_of(spec),
                    chunk_selection,
                    out_selection,
                    is_complete_chunk,
                )
            )
            for store_path, spec, chunk_selection, out_selection, is_complete_chunk in items
        ]
        if self.encoding.sharding is None or all(one.layout.is_divided for one in batch):
            return batch
        for _, spec, *_ in items:
            _raise_if_neither_reads_shard((*self.array_array_codecs, self.array_bytes_codec), spec)
        return None


def _is_chosen() -> bool:
    """Whether zarr's configuration names this package's class for ``bytes``."""
    return bool(zarr_setting_or_default("codecs.bytes") == CLASSES["bytes"])


def _are_own_if_chosen(codecs: Sequence[Codec]) -> bool:
    """Whether arrays with these codecs get this package's pipeline, if its codec `_is_chosen`.

    Otherwise, they get a pipeline of zarr.
    """
    return _knows_pipeline_of_zarr() and is_uncompressed(codecs)


def _raise_if_neither_reads_shard(codecs: Sequence[Codec], shard_spec: ArraySpec) -> None:
    """Raise a ConfigurationError for shards that neither this package nor this zarr reads."""
    if reason := why_neither_reads_shard(codecs, shard_spec):
        raise ConfigurationError(f"codec 'sharding_indexed': {reason}")


@cache
def _knows_pipeline_of_zarr() -> bool:
    """Whether this package can derive from zarr's pipeline; warns once if it can't."""
    if unknown := why_pipeline_is_unknown(BatchedCodecPipeline):
        warn_caller(
            f"zarr-bytes {metadata.version('zarr-bytes')} does not know the pipeline of zarr"
            f" {zarr.__version__} ({unknown}), so zarr's own pipeline is used with the codec of"
            " zarr-bytes; a newer zarr-bytes may know it"
        )
    return not unknown


# Zarr's registry identifies a pipeline by its module and name.
BatchedBytesPipeline.__module__ = "zarr_bytes"
