"""A program that reads arrays with zarr alone, as if this package were not installed.

Each line of its input is a JSON object of base64 texts, the objects of a store; each line of its
output says what zarr makes of them. `outcome` is the same for any zarr: the fuzz tests call it in
their own process for zarr with this package.
"""

import base64
import json
import sys
import warnings
from importlib import metadata
from math import prod

LARGEST = 2**16  # elements, or bytes of one; larger arrays and chunks are opened and not read


def without_this_package():
    """Hide the entry points and the configuration of this package from zarr."""
    points = [point for found in metadata.distributions() for point in found.entry_points]
    others = metadata.EntryPoints(p for p in points if not p.value.startswith("zarr_bytes"))
    metadata.entry_points = lambda **selection: others.select(**selection)
    sys.modules["zarr_bytes"] = None
    import zarr

    own = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec", "codec_pipeline.path": own})


def outcome(objects):
    """What zarr makes of a store: the array, or the class and text of the error."""
    import numpy as np
    import zarr
    from zarr.buffer.cpu import Buffer
    from zarr.storage import MemoryStore

    store = MemoryStore({key: Buffer.from_bytes(content) for key, content in objects.items()})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = zarr.open_array(store, mode="r")
            read = {"shape": array.shape, "dtype": str(array.dtype)}
            # A rectilinear grid has no one shape of chunks; those of format 2 have no grid.
            grid = getattr(array.metadata, "chunk_grid", None)
            chunk_shape = getattr(grid, "chunk_shape", ())
            if max(prod(array.shape), prod(chunk_shape), array.dtype.itemsize) > LARGEST:
                return read
            values = np.asarray(array[...], array.dtype)
    except Exception as error:  # noqa: BLE001 -- which errors are clean, the test says
        names = [base.__name__ for base in type(error).__mro__]
        return {"error": names, "text": str(error)}
    if values.dtype.kind in "fc":  # NaNs are alike: of their bits, zarr keeps none
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    content = str(values.tolist()) if values.dtype.hasobject else values.tobytes().hex()
    return {**read, "values": content}


if __name__ == "__main__":
    without_this_package()
    for line in sys.stdin:
        objects = {key: base64.b64decode(text) for key, text in json.loads(line).items()}
        print(json.dumps(outcome(objects)), flush=True)  # noqa: T201
