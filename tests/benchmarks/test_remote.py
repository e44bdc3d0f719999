"""What a request to a remote store is worth: the measurements behind the remote defaults.

    pytest tests/benchmarks/test_remote.py

A server on loopback answers after 30 ms and sends 90 MB/s on each connection, in the range that
object stores publish for themselves; and once without any delay. Read through obstore.
"""

import asyncio
from functools import partial
from itertools import product

import numpy as np
import pytest
from benchmark import compare
from zarr.buffer import default_buffer_prototype
from zarr.storage import ObjectStore, StorePath

from zarr_bytes.indexing.plan import plan_of
from zarr_bytes.io.requests import Requests
from zarr_bytes.layout.format import Format
from zarr_bytes.read import read_object
from zarr_bytes.settings import Cost

obstore = pytest.importorskip("obstore", reason="obstore is not installed (extra benchmark)")
pytest.importorskip("aiohttp", reason="aiohttp is not installed (extra benchmark)")
from slow_server import slow_server  # noqa: E402

SIZE = 2**30
PROTOTYPE = default_buffer_prototype()
SERVERS = {"30 ms, 90 MB/s": (0.03, 90e6), "no delay": (0.0, 1e12)}


@pytest.fixture(scope="module", params=SERVERS)
def chunk(request):
    with slow_server(SIZE, *SERVERS[request.param]) as url:
        store = obstore.store.HTTPStore.from_url(url, client_options={"allow_http": True})
        yield StorePath(ObjectStore(store, read_only=True), "c/0")


def read(runner, chunk, runs, distance, gap, largest):
    """`runs` ranges of 4 KiB, or of `distance` bytes, that are as far apart."""
    shape = runs, min(distance, 2**12)
    chunks = Format((SIZE // distance, distance), np.dtype("u1"), None, None, None, bytes(1))
    plan, out = plan_of(chunks, tuple(map(slice, shape)), Cost(gap, largest)), np.empty(shape, "u1")
    return runner.run(read_object(plan, Requests(chunk, plan, PROTOTYPE), out))


@pytest.mark.parametrize(
    ("runs", "kibibytes"),
    # Of more than 16 MiB that are not selected, a chunk is fetched in several tiles.
    [*product([4], [32, 128, 256, 512, 1024, 2048, 4096]), *product([64], [32, 128, 256])],
)
def test_the_gap_worth_bridging(benchmark, chunk, runs, kibibytes):
    """Runs of 4 KiB: each on its own, and all in one with the gaps."""
    distance = kibibytes * 2**10 + 2**12
    with asyncio.Runner() as runner:
        compare(
            benchmark,
            partial(read, runner, chunk, runs, distance, 0, 2**24),
            bridged=partial(read, runner, chunk, runs, distance, distance, 2**24),
            rounds=5,
        )


@pytest.mark.parametrize("mebibytes", [16, 128])
def test_the_largest_request(benchmark, chunk, mebibytes):
    """One run, in requests of at most 16 MiB, and of other sizes."""
    sizes = {f"{size} MiB": size * 2**20 for size in (16, 2, 4, 8, 32, 64)}
    with asyncio.Runner() as runner:
        reads = {
            name: partial(read, runner, chunk, mebibytes * 2**8, 2**12, 0, size)
            for name, size in sizes.items()
        }
        compare(benchmark, reads.pop("16 MiB"), rounds=3, **reads)
