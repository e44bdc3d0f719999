"""Arrays that are given as a metadata document and stored chunks, as another writer left them."""

import json

import zarr
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

LITTLE = [{"name": "bytes", "configuration": {"endian": "little"}}]
BIG = [{"name": "bytes", "configuration": {"endian": "big"}}]
ENDIAN = [{"name": "endian", "configuration": {"endian": "big"}}]
GZIP = {"name": "gzip", "configuration": {"level": 1}}

ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": LITTLE,
    "attributes": {},
}
DRAFT = ARRAY | {"codecs": ENDIAN}
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}


def regular(chunk_shape):
    """The member `chunk_grid` of chunks of that shape."""
    return {"name": "regular", "configuration": {"chunk_shape": chunk_shape}}


def consolidated(copies):
    """The document of a group with `copies` of others, by their paths."""
    member = {"kind": "inline", "must_understand": False, "metadata": copies}
    return GROUP | {"consolidated_metadata": member}


def struct_of(**fields):
    """The data type of records, of the data types of its fields by their names."""
    members = [{"name": name, "data_type": data_type} for name, data_type in fields.items()]
    return {"name": "struct", "configuration": {"fields": members}}


def text_of(document):
    """The bytes of a document, which is a dict, a text or already bytes."""
    if isinstance(document, dict):
        document = json.dumps(document)
    return document if isinstance(document, bytes) else document.encode("utf-8", "surrogatepass")


def with_text(document, member, text):
    """A document as text, of which one member is `text`, which may be deeper than Python writes."""
    return json.dumps(document | {member: "HERE"}).replace('"HERE"', text)


def write(folder, document=ARRAY, **chunks):
    """A node on disk, with `chunks` by the coordinates after ``c/``, such as ``c0=b"..."``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zarr.json").write_bytes(text_of(document))
    for name, content in chunks.items():
        (folder / "c").mkdir(exist_ok=True)
        (folder / "c" / name.removeprefix("c")).write_bytes(content)
    return folder


def memory(documents, **objects):
    """A store in memory of `documents` by their paths, and of other `objects` by their keys."""
    texts = {f"{path}/zarr.json".lstrip("/"): text_of(d) for path, d in documents.items()}
    return MemoryStore({key: Buffer.from_bytes(text) for key, text in (texts | objects).items()})


def store_of(data_type, *, shape=(2,), fill_value=0, codecs=LITTLE, chunk=None, chunk_shape=None):
    """A store that holds one array, whose first chunk is `chunk` or missing."""
    members = {"shape": shape, "data_type": data_type, "fill_value": fill_value, "codecs": codecs}
    grid = regular(shape if chunk_shape is None else chunk_shape)
    objects = {}
    if chunk is not None:
        objects["/".join(["c", *("0" for _ in shape)])] = bytes(chunk)
    return memory({"": ARRAY | members | {"chunk_grid": grid}}, **objects)


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
