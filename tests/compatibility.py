"""What works with the zarr and the Python that run this: a column of `docs/compatibility.md`.

A capability is a function that holds, or fails in any way. Capabilities that need no import come
first, data types before the codec: choosing the codec imports the package.
"""

import json
import tempfile
import traceback
from pathlib import Path

import numpy as np
import zarr
from documents import BIG, ENDIAN, store_of, struct_of, transposes
from zarr.core import codec_pipeline
from zarr.storage import LocalStore, MemoryStore, WrapperStore

VALUES = np.arange(6000, dtype=">f4").reshape(60, 100)
LARGE = np.arange(10**6, dtype=">f4").reshape(1000, 1000)
RECORDS = np.array([(1, 2.5), (-3, 4.5)], [("a", ">i2"), ("b", ">f8")])


class CountingStore(WrapperStore):
    """Counts the bytes that are fetched from the store behind it."""

    fetched = 0

    def _counted(self, key, found):
        is_chunk = "c/" in key or key == "0.0"  # the latter in format 2
        self.fetched += len(found) if found is not None and is_chunk else 0
        return found

    async def get(self, key, *args, **options):
        return self._counted(key, await super().get(key, *args, **options))

    def get_sync(self, key, *args, **options):
        return self._counted(key, super().get_sync(key, *args, **options))


def opened(data_type, values, fill_value=0, codecs=BIG, store_class=lambda store: store):
    """An array of one chunk, made by hand."""
    members = {"fill_value": fill_value, "codecs": codecs, "chunk": values.tobytes()}
    return zarr.open_array(store_class(store_of(data_type, shape=values.shape, **members)))


def codec_of(array):
    return type(array.metadata.codecs[0]).__module__


def reads_in_part(pipeline, orders=()):
    """Ten elements of a chunk of 4 MB are fetched alone."""
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        codecs = [*transposes(orders), *BIG]
        array = opened("float32", LARGE, codecs=codecs, store_class=CountingStore)
        found = array[40:50, 7] if orders else array[7, 40:50]
    return (found == LARGE[7, 40:50]).all() and array.store.fetched == 40


def format_2_is_read_in_part():
    store = CountingStore(MemoryStore())
    options = {"chunks": LARGE.shape, "compressors": None, "zarr_format": 2}
    zarr.create_array(store, data=LARGE, **options)
    array = zarr.open_array(store)
    store.fetched = 0
    return (array[7, 40:50] == LARGE[7, 40:50]).all() and store.fetched == 40


def opened_arrays_have_the_codec():
    return codec_of(opened("float32", VALUES)) == "zarr_bytes.codec"


def new_arrays_are_read_in_part():
    store = CountingStore(MemoryStore())
    array = zarr.create_array(store, data=LARGE, chunks=LARGE.shape, compressors=None)
    store.fetched = 0
    return (array[7, 40:50] == LARGE[7, 40:50]).all() and store.fetched == 40


def the_draft_codec_endian_opens():
    return (opened("float32", VALUES, codecs=ENDIAN)[...] == VALUES).all()


def nan_fill_values_keep_their_bits():
    metadata = opened("float32", VALUES, "0x7f800001").metadata.to_dict()
    return "0x7f800001" in json.dumps(metadata, default=str)


def bfloat16_opens():
    values = np.array([0x3F80, 0x4000], ">u2")
    return [*opened("bfloat16", values)[...].astype("f4")] == [1, 2]


def raw_bits_open():
    values = np.array([b"abc", b"def"], "V3")
    return opened("r24", values, [0, 0, 0], [{"name": "bytes"}])[1] == values[1]


def parts_are_written_in_place():
    with tempfile.TemporaryDirectory() as folder:
        options = {"chunks": VALUES.shape, "compressors": None}
        store = zarr.create_array(LocalStore(folder), data=VALUES, **options).store
        with zarr.config.set({"zarr_bytes.partial_writes": True}):
            array = zarr.open_array(store, mode="r+")
        chunk = Path(folder, "c/0/0")
        with chunk.open("rb"):  # its number is not given to another file
            before = chunk.stat().st_ino
            array[7] = 5
            return chunk.stat().st_ino == before and (array[7] == 5).all()


def chunks_in_shards_have_the_codec():
    shards = {"shape": (60, 100), "chunks": (30, 50), "shards": (60, 100), "dtype": "f4"}
    store = MemoryStore()
    zarr.create_array(store, **shards, compressors=None)[...] = VALUES
    array = zarr.open_array(store)
    (inner,) = array.metadata.codecs[0].codecs
    return type(inner).__module__ == "zarr_bytes.codec" and (array[...] == VALUES).all()


def big_endian_records_read():
    array = opened(struct_of(a="int16", b="float64"), RECORDS, {"a": 0, "b": 0})
    return array[...].tolist() == RECORDS.tolist()


BATCHED, FUSED = (f"zarr.core.codec_pipeline.{n}CodecPipeline" for n in ("Batched", "Fused"))
OWN = "zarr_bytes.BatchedBytesPipeline"
WITHOUT_IMPORT = {
    "`bfloat16` opens, nothing imported": bfloat16_opens,
    "NaN fill values keep their bits, nothing imported": nan_fill_values_keep_their_bits,
    "an array that is opened has this codec": opened_arrays_have_the_codec,
    "a new array is read in part before it is opened again": new_arrays_are_read_in_part,
    "the draft codec `endian` opens": the_draft_codec_endian_opens,
}
WITH_IMPORT = {
    "NaN fill values keep their bits, after `import zarr_bytes`": nan_fill_values_keep_their_bits,
    "`bfloat16` opens, after `import zarr_bytes`": bfloat16_opens,
    "`r24` opens, after `import zarr_bytes`": raw_bits_open,
    "`struct` reads in big-endian": big_endian_records_read,
    "chunks in shards have this codec": chunks_in_shards_have_the_codec,
    "partial reads with zarr's default pipeline": lambda: reads_in_part(BATCHED),
    "zarr has `FusedCodecPipeline`": lambda: hasattr(codec_pipeline, "FusedCodecPipeline"),
    "partial reads with `FusedCodecPipeline`": lambda: reads_in_part(FUSED),
    "partial reads of transposed chunks": lambda: reads_in_part(OWN, [[1, 0]]),
    "partial reads of uncompressed Zarr format 2": format_2_is_read_in_part,
    "partial writes, on Linux and macOS": parts_are_written_in_place,
}


def outcomes(capabilities):
    found = {}
    for name, capability in capabilities.items():
        try:
            found[name] = bool(capability())
        except Exception:  # noqa: BLE001 -- in whatever way it does not work
            found[name] = False
            traceback.print_exc()
    return found


if __name__ == "__main__":
    found = outcomes(WITHOUT_IMPORT)
    import zarr_bytes  # noqa: F401 -- registers the data types with zarr 3.1 to 3.3

    print(json.dumps(found | outcomes(WITH_IMPORT)))  # noqa: T201
