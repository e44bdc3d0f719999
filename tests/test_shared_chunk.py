"""Several processes that write into one chunk or shard at the same moment lose nothing.

Nor does a process that is killed while it writes into a shard.
"""

import os
import random
import signal

import numpy as np
import pytest
import zarr
from fuzz import document_of, encoded
from shards import divided, shard_of, sharding
from sharing import (
    COUNT,
    context,
    create_chunks,
    exit_code_of,
    processes,
    write_and_die,
    write_shares,
    write_until_killed,
)
from stored_arrays import created, numbers, written_documents
from zarr.storage import LocalStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="written in place on POSIX")

SHAPE, INNER = (32, 300), (8, 50)  # so that four rows of each inner chunk belong to four processes
CODECS = [{"name": "bytes", "configuration": {"endian": "big"}}]
# How an array is stored, and how often it is written.
WAYS = [
    pytest.param("chunk", 20, marks=pytest.mark.slow, id="chunk"),
    pytest.param("shard", 2, id="shard"),
    pytest.param("shard", 20, marks=pytest.mark.slow, id="shard-20"),
]
NAMES = ("layout", "rounds")


@pytest.fixture(scope="module")
def together():
    """Calls a function in four processes at once, which stay for all tests here."""
    with processes() as call:
        yield call


def array_in(folder, shape=SHAPE, fill_value=0, location="end", layout="shard"):
    """An array of one chunk or shard, which is missing."""
    document = document_of("int32", shape, shape, "big") | {"fill_value": fill_value}
    if layout == "shard":
        inner_shape = INNER if shape == SHAPE else INNER[::-1]
        document |= {"codecs": [sharding(inner_shape, CODECS, location=location)]}
    return zarr.open_array(written_documents(folder, document), mode="r+")


def content_of(values, location="end", inner_shape=INNER, **options):
    parts = [encoded(part, "int32", "big") for part in divided(values.astype("i4"), inner_shape)]
    return shard_of(parts, location, **options)


@pytest.mark.parametrize(NAMES, WAYS)
@pytest.mark.parametrize(
    ("kind", "fill_value"), [("rows", 0), ("rows", 99), ("columns", 0), ("points", 0)]
)
@pytest.mark.parametrize("is_there", [True, False], ids=["present", "missing"])
def test_nothing_is_lost_of_what_each_process_writes(
    tmp_path, together, layout, kind, fill_value, is_there, rounds
):
    # A column is so long that the processes map the same pages.
    shape, inner_shape = (SHAPE[::-1], INNER[::-1]) if kind == "columns" else (SHAPE, INNER)
    expected = numbers(shape, "i4")
    for number in range(rounds):
        folder, location = tmp_path / str(number), ("end", "start")[number % 2]
        array = array_in(folder, shape, fill_value, location, layout)
        if is_there:
            array[...] = -1
        together(write_shares, str(folder), kind)
        values = zarr.open_array(folder, mode="r")[...]
        assert np.argwhere(values != expected).tolist() == []
        if layout == "shard":
            content = content_of(expected, location, inner_shape)
            assert (folder / "c/0/0").read_bytes() == content
        assert list(folder.rglob("*.partial")) == []


@pytest.mark.slow
@pytest.mark.parametrize("fill_value", [0, 99])
def test_processes_that_create_the_same_chunk_lose_nothing(tmp_path, together, fill_value):
    created(LocalStore(tmp_path), 400 * COUNT, "i4", (COUNT,), fill_value=fill_value)
    together(create_chunks, str(tmp_path))
    values = zarr.open_array(tmp_path, mode="r")[...]
    assert np.flatnonzero(values != np.arange(values.size) + 1).tolist() == []
    assert list(tmp_path.rglob("*.partial")) == []


@pytest.fixture(scope="module")
def killed_at():
    """Whether a process that writes is killed before its system call of a number."""
    with context().Pool(1) as pool:

        def killed_at(folder, selection, call):
            arguments = (write_and_die, str(folder), selection, 0x05050505, call)
            code = pool.apply(exit_code_of, arguments)
            assert code in (0, -signal.SIGKILL)
            return code != 0

        yield killed_at
        pool.close()
        pool.join()


EVERY_CALL = pytest.param(range(1000), marks=pytest.mark.slow)


class TestKills:
    """A process is killed in the middle of a write to a shard of sevens."""

    SELECTIONS = {"rows": np.s_[5:11], "mapped column": np.s_[:, 20:260:40]}
    PLACES = np.random.default_rng(0).permutation(24)

    @pytest.mark.parametrize("calls", [[3, 9, 12], EVERY_CALL], ids=["some calls", "every call"])
    @pytest.mark.parametrize("selection", SELECTIONS)
    def test_one_before_a_call_of_the_system_leaves_what_is_not_selected_as_it_was(
        self, killed_at, tmp_path, selection, calls
    ):
        """And so the index."""
        values = np.full(SHAPE, 0x07070707)
        array, path = array_in(tmp_path), tmp_path / "c/0/0"
        path.parent.mkdir(parents=True)
        before = content_of(values, places=self.PLACES, gap=b"gap")
        values[self.SELECTIONS[selection]] = 0x05050505
        wanted = content_of(values, places=self.PLACES, gap=b"gap")
        old, new = np.frombuffer(before, "u1"), np.frombuffer(wanted, "u1")
        for call in calls:
            path.write_bytes(before)
            is_killed = killed_at(tmp_path, self.SELECTIONS[selection], call)
            after = np.frombuffer(path.read_bytes(), "u1")
            assert ((after == old) | (after == new)).all()
            assert (array[...] != values).sum() <= (values == 0x05050505).sum()
            if not is_killed:
                break
        assert is_killed == (len(calls) == 3)
        assert call > 10
        assert is_killed or (after == new).all()

    @pytest.mark.parametrize("calls", [[2, 8, 12, 15, 1000], EVERY_CALL], ids=["some", "every"])
    @pytest.mark.parametrize("is_absent", [True, False], ids=["absent", "missing"])
    def test_a_new_shard_is_there_complete_or_not_at_all(
        self, killed_at, tmp_path, is_absent, calls
    ):
        """Also one that replaces a shard of which an inner chunk is absent."""
        values = np.full(SHAPE, 9)
        values[-1] = 7 if is_absent else 9
        array_in(tmp_path, fill_value=9)
        parts = divided(values, INNER)
        parts = [
            None if (part == 9).all() else encoded(part.astype("i4"), "int32", "big")
            for part in parts
        ]
        before = shard_of(parts) if is_absent else None
        values[5:11] = 0x05050505
        path, outcomes = tmp_path / "c/0/0", []
        path.parent.mkdir(parents=True)
        for call in calls:
            path.write_bytes(before) if is_absent else path.unlink(missing_ok=True)
            is_killed = killed_at(tmp_path, np.s_[5:11], call)
            outcomes.append(path.read_bytes() if path.exists() else None)
            if not is_killed:
                break
        assert call > 10
        assert outcomes[0] == before
        assert outcomes[-1] == content_of(values)
        assert set(outcomes) == {before, content_of(values)}

    @pytest.mark.slow
    @pytest.mark.parametrize("selection", SELECTIONS)
    def test_so_does_one_at_a_random_moment(self, tmp_path, selection):
        array, path, made = array_in(tmp_path), tmp_path / "c/0/0", context()
        array[...] = -1
        old = np.frombuffer(path.read_bytes(), "u1")
        is_selected = np.zeros(SHAPE, int)
        is_selected[self.SELECTIONS[selection]] = -1
        is_free = np.frombuffer(content_of(is_selected), "u1")[: is_selected.size * 4] == 255
        moments = random.Random(0)  # noqa: S311
        for _ in range(60):  # with those before each call of the system, more than 200 kills
            ours, theirs = made.Pipe(duplex=False)
            arguments = (str(tmp_path), self.SELECTIONS[selection], theirs)
            process = made.Process(target=write_until_killed, args=arguments)
            process.start()
            for _ in range(moments.randrange(1, 60)):
                ours.recv()
            process.kill()
            process.join(60)
            after = np.frombuffer(path.read_bytes(), "u1")
            assert after.size == old.size
            is_other = after != old
            assert not is_other[is_free.size :].any()  # the index
            assert not is_other[: is_free.size][~is_free].any()
