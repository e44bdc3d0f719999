"""Blocks that share a chunk, written by the workers of Dask and by xarray.

Without the setting a block is lost where two workers have read the chunk before either replaces it.
Here that is no matter of luck: in every worker, the renaming that puts a chunk in place waits until
all four blocks have come so far. With the setting nothing is renamed, and nothing waits.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import zarr

dask = pytest.importorskip("dask")
dask_array = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
xarray = pytest.importorskip("xarray")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # what dask and its servers warn of
]

UNWRITTEN = -1.0  # the fill value
SHAPE = (16, 4)  # one chunk
ROWS = slice(4, 12)
BLOCKS, BLOCK = 4, (4, 2)  # two above two others
VALUES = np.arange(32.0).reshape(8, 4)
SETTING = "zarr_bytes.partial_writes"
VARIABLE = "ZARR_ZARR_BYTES__PARTIAL_WRITES"


def hold_renaming():
    """In a worker; with its imports in here it is sent there as it is."""
    import sys
    import time
    from pathlib import Path

    def hook(event, arguments):
        if event != "os.rename" or "/c/" not in str(arguments[1]):
            return
        Path(f"{arguments[0]}.waiting").touch()
        end = time.monotonic() + 60
        while len(list(Path(arguments[0]).parent.glob("*.waiting"))) < 4:
            assert time.monotonic() < end
            time.sleep(0.01)

    sys.addaudithook(hook)


@contextmanager
def workers(number, threads):
    with (
        distributed.LocalCluster(
            number, threads_per_worker=threads, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    """Of two worker processes, each with a thread for every block: no block waits for another."""
    with workers(2, BLOCKS) as client:
        client.run(hold_renaming)
        yield client


@pytest.fixture
def path(tmp_path):
    """A dataset of one variable, in one chunk that is not there yet."""
    layout = xarray.Dataset({"v": (("t", "x"), dask_array.zeros(SHAPE))})
    encoding = {"chunks": SHAPE, "compressors": None, "fill_value": UNWRITTEN}
    layout.to_zarr(tmp_path / "a", compute=False, encoding={"v": encoding}, zarr_format=3)
    assert not (tmp_path / "a/v/c").exists()
    return tmp_path / "a"


def with_store(path, blocks):
    target = zarr.open_array(path / "v", mode="r+")
    blocks.store(target, regions=(ROWS,), lock=False)


def with_to_zarr_of_xarray(path, blocks):
    dataset = xarray.Dataset({"v": (("t", "x"), blocks)})
    dataset.to_zarr(path, region={"t": ROWS}, safe_chunks=False)


WRITERS = [with_store, with_to_zarr_of_xarray]


def kept(path):
    """For every block, whether it is in the array; all else is as it was."""
    array = zarr.open_array(path / "v", mode="r")[...]
    assert (np.delete(array, ROWS, axis=0) == UNWRITTEN).all()
    found, expected = (a.reshape(2, 4, 2, 2).swapaxes(1, 2) for a in (array[ROWS], VALUES))
    is_kept = (found == expected).all(axis=(2, 3))
    assert (found[~is_kept] == UNWRITTEN).all()
    return is_kept.ravel().tolist()


@pytest.mark.parametrize("write", WRITERS)
def test_partial_writes_keep_all_blocks_of_dask_that_share_a_chunk(client, path, write):
    write(path, dask_array.from_array(VALUES, chunks=BLOCK))
    assert sum(kept(path)) == 1
    with zarr.config.set({SETTING: True}):  # in this process; the arrays are opened here
        write(path, dask_array.from_array(VALUES, chunks=BLOCK))
    assert kept(path) == [True] * BLOCKS


def test_an_array_that_a_worker_opens_has_the_setting_of_the_worker(client, path):
    values = VALUES

    def write(row, column):
        import zarr

        array = zarr.open_array(path / "v", mode="r+")
        block = values[row : row + 4, column : column + 2]
        array[4 + row : 8 + row, column : column + 2] = block

    def switch(value):  # `zarr.config.set` itself would be sent with this process's configuration
        import zarr

        zarr.config.set({"zarr_bytes.partial_writes": value})

    def written():
        client.gather(client.map(write, [0, 0, 4, 4], [0, 2, 0, 2], pure=False))
        return kept(path)

    with zarr.config.set({SETTING: True}):  # does not reach the workers
        assert sum(written()) == 1
    client.run(switch, True)
    try:
        assert written() == [True] * BLOCKS
    finally:
        client.run(switch, False)


def test_the_configuration_of_dask_gives_the_setting_to_the_workers_that_it_starts():
    def setting():
        from zarr_bytes.settings import checked_setting

        return checked_setting("zarr_bytes.partial_writes")

    with (
        dask.config.set({"distributed.nanny.environ": {VARIABLE: "true"}}),
        workers(1, 1) as client,
    ):
        assert set(client.run(setting).values()) == {True}
