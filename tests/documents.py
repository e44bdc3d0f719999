"""Arrays that are given as a metadata document and stored chunks, as another writer left them."""

import json

import zarr
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

HAS_STRUCT = hasattr(zarr.dtype, "Struct")  # from zarr 3.2 on

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

ARRAY_2 = {  # of format 2, at the key .zarray
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<i2",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
    "filters": None,
}
GROUP_2 = {"zarr_format": 2}  # at the key .zgroup


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


def structured(*fields):
    """The same as zarr 3.1 writes it."""
    return {"name": "structured", "configuration": {"fields": fields}}


LONG_NAMES = {
    "datetime": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}},
    "text": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}},
    "ascii": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}},
    "struct": structured(["a", "int16"], ["b", "uint8"], ["c", "float64"]),
    "nested": structured(["a", "bool"], ["b", structured(["c", "float32"], ["d", "int16"])]),
}
ZEROS = {  # as fill values; of other complex types they are two, and of the rest one
    "bool": False,
    "r8": [0],
    "r24": [0, 0, 0],
    "text": "",
    "ascii": "",
    "struct": "AAAAAAAAAAAAAAA=",
    "nested": "AAAAAAAAAA==",
    "float8_e8m0fnu": "0x00",
    "complex_float8_e8m0fnu": ["0x00", "0x00"],
}


def transposes(orders):
    """The codecs of transposes, one after another."""
    return [{"name": "transpose", "configuration": {"order": list(order)}} for order in orders]


def document_of(data_type, shape, chunk_shape=None, endian="little", orders=(), **members):
    """The document of an array, of one chunk without `chunk_shape`, and with other `members`.

    `data_type` may be a key of `LONG_NAMES`; `orders` are those of transposes.
    """
    is_complex = str(data_type).startswith("complex")
    return ARRAY | {
        "shape": list(shape),
        "data_type": LONG_NAMES.get(str(data_type), data_type),
        "chunk_grid": regular(list(shape if chunk_shape is None else chunk_shape)),
        "fill_value": ZEROS.get(str(data_type), [0, 0] if is_complex else 0),
        "codecs": [*transposes(orders), *(BIG if endian == "big" else LITTLE)],
        **members,
    }


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
    texts = {f"{path}/zarr.json".lstrip("/"): d for path, d in documents.items()} | objects
    return MemoryStore({key: Buffer.from_bytes(text_of(text)) for key, text in texts.items()})


def store_of(data_type, *, shape=(2,), fill_value=0, codecs=LITTLE, chunk=None, chunk_shape=None):
    """A store that holds one array, whose first chunk is `chunk` or missing."""
    document = document_of(data_type, shape, chunk_shape, fill_value=fill_value, codecs=codecs)
    key = "/".join(["c", *("0" for _ in shape)])
    return memory({"": document}, **({} if chunk is None else {key: bytes(chunk)}))


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
