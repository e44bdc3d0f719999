"""Arrays that are given as a metadata document and stored chunks, as another writer left them."""

import json

import zarr
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

LITTLE = [{"name": "bytes", "configuration": {"endian": "little"}}]
BIG = [{"name": "bytes", "configuration": {"endian": "big"}}]


def store_of(data_type, *, shape=(2,), fill_value=0, codecs=LITTLE, chunk=None, chunk_shape=None):
    """A store that holds one array, whose first chunk is `chunk` or missing."""
    chunk_shape = shape if chunk_shape is None else chunk_shape
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
    }
    objects = {"zarr.json": Buffer.from_bytes(json.dumps(document).encode())}
    if chunk is not None:
        key = "/".join(["c", *("0" for _ in shape)])
        objects[key] = Buffer.from_bytes(bytes(chunk))
    return MemoryStore(objects)


def open_document(data_type, **members):
    """The array that `store_of` stores, opened by zarr."""
    return zarr.open_array(store_of(data_type, **members), mode="r")


def stored_document(array):
    """The metadata document that the store of `array` holds now."""
    return json.loads(array.store_path.store._store_dict["zarr.json"].to_bytes())


def rewritten_document(data_type, **members):
    """The metadata document after zarr has read it and written it again."""
    array = zarr.open_array(store_of(data_type, **members), mode="r+")
    array.update_attributes({"rewritten": True})
    return stored_document(array)


def stored_chunk(array):
    """The bytes of the first chunk of `array`."""
    key = "/".join(["c", *("0" for _ in array.shape)])
    return array.store_path.store._store_dict[key].to_bytes()
