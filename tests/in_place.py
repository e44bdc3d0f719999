"""Arrays of which parts of chunks are written in place, and what is written to a file."""

import mmap
import os
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import zarr

from zarr_bytes import BytesCodec
from zarr_bytes.chunk import mapped_writing

IN_PLACE = {"zarr_bytes.partial_writes": True}


def created(store, shape, dtype, chunks=None, **options):
    """An array of which parts of chunks are written in place."""
    options = {"compressors": None, "serializer": BytesCodec(endian="big"), **options}
    with zarr.config.set(IN_PLACE):
        return zarr.create_array(store, shape=shape, dtype=dtype, chunks=chunks or shape, **options)


def fill(disk):
    """Write a file to a small file system until nothing more fits."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass


@contextmanager
def written_to(path):
    """Offset and length of each write to the file at `path`, by system call or mapping."""
    ranges = []
    pwrite, scatter, mapped = os.pwrite, mapped_writing.scatter, mmap.mmap

    def is_chunk(file):
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), path.stat())
        return str(Path(f"/proc/self/fd/{file}").readlink()).startswith(f"{path}.")

    def counting_pwrite(file, memory, offset):
        count = pwrite(file, memory, offset)
        if is_chunk(file):
            ranges.append((offset, count))
        return count

    def counting_scatter(source, places, begin):
        count = scatter(source, places, begin)
        ranges.extend((int(start) - mapped_at[0], int(size)) for start, size in places)
        return count

    mapped_at = []

    def counting_mmap(*args):
        mapping = mapped(*args)
        mapped_at[:] = [np.frombuffer(mapping, "u1").__array_interface__["data"][0]]
        return mapping

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", counting_pwrite)
        patch.setattr(mapped_writing, "scatter", counting_scatter)
        patch.setattr(mmap, "mmap", counting_mmap)
        yield ranges
